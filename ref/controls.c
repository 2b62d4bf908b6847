/* controls.c - response controls, and what a processed row says. [CTL-1] */
#include <math.h>
#include "controls.h"
#include "error.h"
#include "math/elementary.h"

/* [CTL-4] */
double controls_ramp(int64_t position, int64_t start, int64_t window, double strength) {
    double share = ((double)position - (double)start) / (double)window;
    if (share < 0) share = 0;
    if (share > 1) share = 1;
    return share * strength;
}

/* [CTL-2, CTL-3] Penalties: only ids that stand in the response; repetition sees what presence left. */
void controls_penalise(double *logits, const ControlContext *c) {
    const CloverControls *k = c->controls;
    for (int64_t id = 0; id < c->vocab; id++) {
        if (c->counts[id] == 0) continue;
        logits[id] -= (double)c->counts[id] * k->frequency_penalty;
        logits[id] -= k->presence_penalty;
        if (k->repetition_penalty != 1) {
            if (logits[id] < 0) logits[id] *= k->repetition_penalty;
            else logits[id] /= k->repetition_penalty;
        }
    }
}

/* [AR-2] */
void controls_mask(double *logits, int32_t mask_id) { logits[mask_id] = -INFINITY; }

static const ControlRules right = { controls_penalise, controls_mask };
static const ControlRules *rules_of(const ControlContext *c) { return c->rules ? c->rules : &right; }

static bool listed_before(const int32_t *ids, int64_t i) {
    for (int64_t j = 0; j < i; j++) if (ids[j] == ids[i]) return true;
    return false;
}

void controls_apply(double *logits, const ControlContext *c, int64_t position, bool think_end_in_block) {
    const CloverControls *k = c->controls;
    rules_of(c)->penalise(logits, c);

    /* [CTL-5, CTL-6] Ramps come after the penalties. A strength of zero is off whatever its window says. */
    if (k->dllm_length_penalty != 0) {
        double bias = controls_ramp(position, k->dllm_length_penalty_start, k->dllm_length_penalty_window, k->dllm_length_penalty);
        for (int64_t i = 0; i < c->n_stops; i++)
            if (!listed_before(c->stops, i)) logits[c->stops[i]] += bias;
    }
    int32_t think_end = k->dllm_think_end_token_id;
    if (k->dllm_think_end_bias != 0 && think_end >= 0 && c->counts[think_end] == 0 && !think_end_in_block)
        logits[think_end] += controls_ramp(position, k->dllm_think_end_start, k->dllm_think_end_window, k->dllm_think_end_bias);
}

/* The first id whose logit no softmax can take, -1 when there is none. */
static int64_t first_unusable(const double *logits, int64_t vocab) {
    for (int64_t id = 0; id < vocab; id++) if (isnan(logits[id]) || logits[id] == INFINITY) return id;
    return -1;
}

CloverStatus controls_process(double *logits, const ControlContext *c, int64_t position, bool think_end_in_block, CloverError *err) {
    int64_t id = first_unusable(logits, c->vocab);
    if (id >= 0)
        return error_set(err, CLOVER_BAD_INPUT, "response position %lld: the model's logit of id %lld is %s, so no token can be chosen; "
                         "a weight or an engine is broken (clover lint finds weights that are NaN or infinite)",
                         (long long)position, (long long)id, isnan(logits[id]) ? "NaN" : "+infinity");

    controls_apply(logits, c, position, think_end_in_block);
    if (c->mask_id >= 0) rules_of(c)->mask(logits, c->mask_id);

    id = first_unusable(logits, c->vocab);
    if (id >= 0)
        return error_set(err, CLOVER_USAGE, "response position %lld: the response controls leave the range of a double at id %lld; "
                         "use smaller penalties", (long long)position, (long long)id);
    if (logits[row_argmax(logits, c->vocab)] == -INFINITY)
        return error_set(err, CLOVER_BAD_INPUT, "response position %lld: every logit but the mask's is -infinity, so no token can be chosen",
                         (long long)position);
    return CLOVER_OK;
}

/* [AR-2] */
int32_t row_argmax(const double *values, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) if (values[i] > values[best]) best = i;
    return (int32_t)best;
}

double row_entropy(const double *p, int64_t n) {
    double h = 0;
    for (int64_t i = 0; i < n; i++) if (p[i] > 0) h -= p[i] * el_log(p[i]);
    return h;
}
