/* decoder.h - what the three decode modes share while they run. Internal to ref/decode*.c. */
#ifndef CLOVER_DECODER_H
#define CLOVER_DECODER_H

#include "clover.h"
#include "controls.h"
#include "sample.h"

typedef struct Decoder {
    const CloverEngine *engine;
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
} Decoder;

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

/* Every option that makes no sense, one line each, with its flag. decode_options.c */
CloverStatus decode_check(const CloverEngine *engine, const CloverDecodeOptions *options, const int32_t *prompt, int64_t n_prompt,
                          CloverError *err);

/* The most rows that one step asks logits of: 1, a block, or a draft. */
int64_t decode_rows(const CloverDecodeOptions *options);
int64_t decode_draft_width(const CloverDecodeOptions *options);      /* the width before any halving */

#endif
