/* decoder.h - what the three decode modes share while they run. Internal to ref/decode*.c. */
#ifndef CLOVER_DECODER_H
#define CLOVER_DECODER_H

#include "clover.h"
#include "controls.h"
#include "sample.h"

typedef struct Decoder Decoder;

/* A block being denoised; n rows, read by the preview whole at every pass. */
typedef struct Block {
    int64_t n;
    int32_t *ids;                    /* [n] the mask id where masked */
    bool *masked;                    /* [n] */
    int64_t left;                    /* rows still masked */
    CloverCandidate *candidates;     /* [n] this pass's, one per row still masked, in ascending rows */
    int64_t n_candidates;
    int64_t *fixed;                  /* [n] rows that this pass fixed */
    int64_t n_fixed;
} Block;

/* One round of draft-self. Row j of the verify predicts what follows candidate j, so it judges candidate j+1. */
typedef struct Round {
    int64_t w;                       /* candidates */
    int32_t *draft;                  /* [w] the pending token first */
    CloverJudged *judged;            /* [w-1] */
    int64_t n_judged, accepted;
    int32_t bonus;
} Round;

/* The decisions of the three modes. The modes ask them here, so that a decoding fault can point one elsewhere. */
typedef struct DecodeRules {
    ControlRules control;
    int32_t (*best)(const double *row, int64_t vocab);                              /* a row's argmax; equal: the lowest id [AR-2] */
    void (*count_prompt)(int64_t *counts, const int32_t *prompt, int64_t n);        /* NULL: the prompt's ids are never seen [CTL-7] */
    int64_t (*block_rows)(const Decoder *d);                                        /* of the block that begins now, 1 to options->block [DEN-1, DEN-7] */
    bool (*confident)(double p, double threshold);                                  /* is a row of this probability fixed? [DEN-3] */
    int64_t (*most_probable)(const CloverCandidate *c, int64_t n);                  /* the one to fix when none is; equal: the lowest row [DEN-4] */
    CloverStatus (*revise)(Decoder *d, Block *b);                                   /* NULL: nothing fixed is revised [DEN-5] */
    CloverStatus (*keep_block)(Decoder *d, const Block *b);                         /* before another block begins [DEN-6] */
    bool (*accept)(const Decoder *d, int64_t row, const CloverJudged *j);           /* a draft, by the processed row that judges it [DRA-5] */
    CloverStatus (*rewind)(Decoder *d, const Round *r, const void *before);         /* after a rejection; before: a snapshot [DRA-7] */
} DecodeRules;

extern const DecodeRules decode_rules;

struct Decoder {
    const CloverEngine *engine;
    const DecodeRules *rules;
    const CloverDecodeOptions *options;
    const int32_t *prompt;           /* [n_prompt] */
    int64_t n_prompt;
    CloverListener *listener;        /* NULL: nobody listens */
    void *user;
    CloverError *err;

    int32_t *response;               /* [max_tokens] what was output so far */
    int64_t n_response;
    bool finished;                   /* a stop id went out, the budget is spent, or the listener has heard enough */

    int64_t *counts;                 /* [V] how often each id stands in the response [CTL-7] */
    double *logits;                  /* [rows, V] the step's rows; a row is processed in place, once */
    double *p;                       /* [V] probabilities of the row looked at last, T = 1 */
    double *distribution;            /* [V] and */
    RankedId *ranked;                /* [V]: only when temperature > 0 */
    Generator generator;
};

/* A row of d->logits. */
double *decoder_row(const Decoder *d, int64_t row);

/* Controls and mask, in place; then d->p is the row's softmax. position counts from 1 in the response. */
CloverStatus decoder_process(Decoder *d, int64_t row, int64_t position, bool think_end_in_block);

/* The id that a processed row gives: its argmax, or a draw when temperature > 0. Its probability is d->p[id]. */
int32_t decoder_choose(Decoder *d, int64_t row);

CloverStatus decoder_commit(Decoder *d, const int32_t *ids, int64_t n, int64_t rows);      /* logits of the last rows into d->logits */
CloverStatus decoder_preview(Decoder *d, const int32_t *ids, int64_t n);                   /* logits into d->logits */

bool decoder_is_stop(const Decoder *d, int32_t id);
CloverEvent decoder_event(const Decoder *d, CloverEventKind kind);
void decoder_tell(Decoder *d, const CloverEvent *event);     /* sets finished when the listener returns false */
void decoder_output(Decoder *d, int32_t id);                 /* appends id to the response; does nothing once finished */

CloverStatus decode_ar(Decoder *d);                          /* decode.c */
CloverStatus decode_denoise(Decoder *d);                     /* decode_denoise.c */
CloverStatus decode_draft(Decoder *d);                       /* decode_draft.c */

/* clover_decode by other rules than the right ones. */
CloverStatus decode_with_rules(const CloverEngine *engine, const DecodeRules *rules, const CloverDecodeOptions *options, const int32_t *prompt,
                               int64_t n_prompt, CloverListener *listener, void *user, int32_t *out, int64_t *n_out, CloverError *err);

/* The right rules, each beside its mode. */
int64_t denoise_block_rows(const Decoder *d);
bool denoise_confident(double p, double threshold);
int64_t denoise_most_probable(const CloverCandidate *c, int64_t n);
CloverStatus denoise_keep_block(Decoder *d, const Block *b);
bool draft_accept(const Decoder *d, int64_t row, const CloverJudged *j);
CloverStatus draft_rewind(Decoder *d, const Round *r, const void *before);

/* Every option that makes no sense, one line each, with its flag. decode_options.c */
CloverStatus decode_check(const CloverEngine *engine, const CloverDecodeOptions *options, const int32_t *prompt, int64_t n_prompt,
                          CloverError *err);

/* The most rows that one step asks logits of: 1, a block, or a draft. */
int64_t decode_rows(const CloverDecodeOptions *options);
int64_t decode_draft_width(const CloverDecodeOptions *options);      /* the width before any halving */

#endif
