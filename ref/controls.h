/* controls.h - from a row of logits to the row that a token is chosen from, and the choice. [CTL-1, AR-2] */
#ifndef CLOVER_CONTROLS_H
#define CLOVER_CONTROLS_H

#include "clover.h"

typedef struct ControlContext ControlContext;

/* What a decoding fault may point elsewhere. logits: [V] */
typedef struct ControlRules {
    void (*penalise)(double *logits, const ControlContext *c);       /* counts and presence, then repetition [CTL-2, CTL-3] */
    void (*mask)(double *logits, int32_t mask_id);                   /* the mask is never an answer [AR-2] */
} ControlRules;

/* The right ones. */
void controls_penalise(double *logits, const ControlContext *c);
void controls_mask(double *logits, int32_t mask_id);

/* What processing a row needs besides its logits. */
struct ControlContext {
    const ControlRules *rules;       /* NULL: the right ones */
    const CloverControls *controls;
    const int32_t *stops;            /* [n_stops] */
    int64_t n_stops;
    int32_t mask_id;                 /* -1: none */
    int64_t vocab;                   /* V */
    const int64_t *counts;           /* [V] how often each id stands in the response so far; never the prompt's ids [CTL-7] */
};

/* clamp((position - start) / window, 0, 1) * strength; positions count from 1 in the response. window > 0. */
double controls_ramp(int64_t position, int64_t start, int64_t window, double strength);

/* The controls alone, in their order: frequency, presence, repetition, length ramp, think-end ramp.
 * think_end_in_block: the think-end id is already in the block being denoised. logits: [V] */
void controls_apply(double *logits, const ControlContext *c, int64_t position, bool think_end_in_block);

/* The whole way from an engine's row to a processed one: controls, then -infinity for the mask id. Fails with
 * CLOVER_BAD_INPUT on a NaN or +infinity, and when no id is left to choose. logits: [V] */
CloverStatus controls_process(double *logits, const ControlContext *c, int64_t position, bool think_end_in_block, CloverError *err);

int32_t row_argmax(const double *values, int64_t n);         /* ties: the lowest index */
double row_entropy(const double *p, int64_t n);              /* -sum p ln p over p > 0, in nats, added in ascending order */

#endif
