/* decode_run.h - one decode over a scripted engine, its steps written down as text that a test compares.
 *
 * The vocabulary is the ten digits: 7 ends the thinking, 8 stops, 9 is the mask. A row of logits is written as the ids
 * that share it: "4" gives id 4 all the probability, "12" gives ids 1 and 2 exactly 1/2 each, every other id -infinity.
 * "." is a row of NaN: nothing may look at it. */
#ifndef CLOVER_TEST_DECODE_RUN_H
#define CLOVER_TEST_DECODE_RUN_H

#include "../ref/decoder.h"
#include "scripted_engine.h"

enum { DIGITS = 10, THINK_END = 7, STOP = 8, MASK = 9 };

typedef struct DecodeRun {
    ScriptedEngine *engine;
    CloverDecodeOptions options;
    const DecodeRules *rules;        /* NULL: the right ones, by clover_decode */
    int32_t prompt[64];
    int64_t n_prompt;

    const char *const *causal;       /* row by row: causal[i] follows i ids after the prompt; NULL ends it, the last repeats */
    const char *const *preview;      /* row after row, pass after pass */
    int64_t n_previewed;             /* rows of preview used so far */

    int64_t stop_listening_after;    /* events; -1: never */
    int64_t n_events;
    char steps[65536];               /* one line an event, OUTPUT events left out; and what each preview was given */
    double p[1024];                  /* the probabilities of the candidates, judged ones and tokens, in their order */
    int64_t n_p;
    double entropy[1024];            /* of the judged ones */
    int64_t n_entropy;
    int32_t told[1024];              /* ids of the OUTPUT events */
    int64_t n_told;

    CloverStatus status;
    CloverError err;
    int32_t out[1024];
    int64_t n_out;
    char log[65536];                 /* scripted_log of the engine */
} DecodeRun;

/* Neutral controls, greedy, prompt 1 2 3, budget 8, block 4, threshold 0.9. NULL scripts: rows must not be asked for. */
DecodeRun *decode_run_new(CloverMode mode, const char *const *causal, const char *const *preview);
void decode_run_script(DecodeRun *r, CausalScript *causal, PreviewScript *preview, void *user);   /* functions instead */
void decode_run_go(DecodeRun *r);
void decode_run_free(DecodeRun *r);

/* Lines: "token 4" - "see 9 9 4 9", "pass 0 @3: 0=4 2=1 fixed 0", "block @3: 4 4 1 8 emitted 4" - "first 4",
 * "round @3: 4 1 2 judged 1+ 2- accepted 1 bonus 5". */
void assert_steps(const DecodeRun *r, const char *expected);
/* The answer as digits: "4418"; also checks that the OUTPUT events told it. */
void assert_answer(const DecodeRun *r, const char *expected);
void assert_calls(const DecodeRun *r, const char *expected);
/* What the engine's state holds at the end, as digits. */
void assert_committed(const DecodeRun *r, const char *expected);

void digits_row(const char *ids, double *logits);            /* [DIGITS] */

#endif
