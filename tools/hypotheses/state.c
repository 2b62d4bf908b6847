/* state.c - what an engine gets wrong between two steps: what it keeps, for how long and in what precision. [HYP-1]
 *
 * Such a fault shows at the second step or later, in the first stage that reads what was kept. Stages may be overwritten while
 * it is in force (observe sees what they are then), so what a fault puts into the state follows from the same values. */
#include <stdlib.h>
#include <string.h>
#include "../../ref/error.h"
#include "../diff_parts.h"
#include "hypothesis.h"

/* ---- what is kept of a step ---------------------------------------------------------------------------------------- */

/* A copy of data [rows, ...] of n numbers; with no memory for it, data is NULL and n stays, which `kept` reports. */
static void keep(HypothesisKeep *k, const double *data, int64_t n, int64_t rows) {
    free(k->data);
    *k = (HypothesisKeep){ .data = malloc((size_t)n * sizeof *data + 1), .n = n, .rows = rows };
    if (k->data) memcpy(k->data, data, (size_t)n * sizeof *data);
}

static bool kept(const HypothesisKeep *k, int64_t rows, CloverError *err) {
    if (k->data && k->rows == rows) return true;
    if (k->n > 0 && !k->data) error_memory(err, "what a state fault keeps", (size_t)k->n * sizeof *k->data);
    else error_set(err, CLOVER_BUG, "a state fault is in force on a step that nobody watched");
    return false;
}

/* Keeps stage's values, in their layer's slot. */
static void keep_stage(HypothesisMemory *m, int slot, const char *stage, const char *name, const double *data, const int64_t *shape, int dims) {
    if (strcmp(stage_of(name), stage) != 0) return;
    int64_t n = 1;
    for (int i = 0; i < dims; i++) n *= shape[i];
    keep(&m->layer[slot][strtoll(name + 1, NULL, 10)], data, n, shape[0]);
}

static void zero(double *x, int64_t n) { memset(x, 0, (size_t)n * sizeof *x); }
static void zero_ring(CloverSession *s, int64_t l) { zero(s->state.layer[l].ring, state_ring_size(&s->c)); }
static void zero_S(CloverSession *s, int64_t l) { zero(s->state.layer[l].S, state_S_size(&s->c)); }

/* ---- not carried --------------------------------------------------------------------------------------------------- */

typedef void ForLayer(CloverSession *s, int64_t l);

static void each(CloverSession *s, bool full_attention, ForLayer *f) {
    for (int64_t l = 0; l < s->c.layers; l++)
        if (s->c.full_attention[l] == full_attention) f(s, l);
}

static void ring_dropped(HypothesisMemory *m, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err) {
    (void)m, (void)rows, (void)err;
    if (moment == AFTER_COMMIT) each(s, false, zero_ring);
}

static void S_dropped(HypothesisMemory *m, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err) {
    (void)m, (void)rows, (void)err;
    if (moment == AFTER_COMMIT) each(s, false, zero_S);
}

static void S_reset(HypothesisMemory *m, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err) {
    (void)m, (void)err;
    if (moment == BEFORE_COMMIT && rows > 1) each(s, false, zero_S);
}

static void restarted(HypothesisMemory *m, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err) {
    S_reset(m, s, moment, rows, err);
    if (moment == BEFORE_COMMIT && rows > 1) each(s, false, zero_ring);
}

static void zero_last_row(CloverSession *s, int64_t l) {
    const int64_t row = state_kv_row(&s->c), at = (s->state.position - 1) * row;
    zero(s->state.layer[l].k + at, row);
    zero(s->state.layer[l].v + at, row);
}

static void row_lost(HypothesisMemory *m, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err) {
    (void)m, (void)rows, (void)err;
    if (moment == AFTER_COMMIT) each(s, true, zero_last_row);
}

/* ---- in half precision --------------------------------------------------------------------------------------------- */

/* The step computes in full precision and stores S in half of it. */
static void store_S(Run *run, const GdnW *w, Gdn *a, DType type) {
    gdn_causal.mix(run, w, a);
    for (int64_t i = 0; i < state_S_size(a->c); i++) a->state[i] = round_to_type(type, a->state[i]);
}
static void store_bf16(Run *run, const GdnW *w, Gdn *a) { store_S(run, w, a, DT_BF16); }
static void store_fp16(Run *run, const GdnW *w, Gdn *a) { store_S(run, w, a, DT_F16); }
static void set_bf16(HypothesisRules *r) { r->gdn[0].mix = store_bf16; }
static void set_fp16(HypothesisRules *r) { r->gdn[0].mix = store_fp16; }

/* ---- written by a preview ------------------------------------------------------------------------------------------ */

static void see_qkv(HypothesisMemory *m, const CloverSession *s, bool preview, const char *name, const double *data, const int64_t *shape, int dims) {
    (void)s;
    if (preview) keep_stage(m, 0, "gdn.qkv", name, data, shape, dims);
}

static void ring_moved(HypothesisMemory *m, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err) {
    for (int64_t l = 0; l < s->c.layers && moment == AFTER_PREVIEW; l++) {
        if (s->c.full_attention[l]) continue;
        if (!kept(&m->layer[0][l], rows, err)) return;
        roll_ring(s->state.layer[l].ring, s->state.layer[l].ring, m->layer[0][l].data, &s->c, rows);
    }
}

static void see_update(HypothesisMemory *m, const CloverSession *s, bool preview, const char *name, const double *data, const int64_t *shape, int dims) {
    static const char *const stages[] = { "gdn.k", "gdn.v", "gdn.beta", "gdn.g" };
    (void)s;
    for (int i = 0; i < 4 && preview; i++) keep_stage(m, i, stages[i], name, data, shape, dims);
}

/* The causal delta rule over the block's rows, from their k, v, beta and g. */
static void S_updated(HypothesisMemory *m, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err) {
    if (moment != AFTER_PREVIEW) return;
    const CloverConfig *c = &s->c;
    const int64_t n = state_S_size(c), mixed = rows * c->value_heads * c->value_width;
    double *before = malloc((size_t)(n + mixed + c->value_width) * sizeof *before);
    if (!before) {
        error_memory(err, "a copy of S", (size_t)(n + mixed + c->value_width) * sizeof *before);
        return;
    }
    for (int64_t l = 0; l < c->layers; l++) {
        if (c->full_attention[l]) continue;
        HypothesisKeep *const k = &m->layer[0][l], *const v = &m->layer[1][l], *const beta = &m->layer[2][l], *const g = &m->layer[3][l];
        if (!kept(k, rows, err) || !kept(v, rows, err) || !kept(beta, rows, err) || !kept(g, rows, err)) break;
        memcpy(before, s->state.layer[l].S, (size_t)n * sizeof *before);
        Gdn a = { .c = c, .T = rows, .S0 = before, .q = k->data, .k = k->data, .v = v->data, .beta = beta->data, .g = g->data,
                  .state = s->state.layer[l].S, .mixed = before + n, .d = before + n + mixed };   /* q only for what is read, which nobody wants */
        s->rules.gdn_commit->mix(&s->run, &s->model->weights.layer[l].gdn, &a);
    }
    free(before);
}

static void see_kv(HypothesisMemory *m, const CloverSession *s, bool preview, const char *name, const double *data, const int64_t *shape, int dims) {
    (void)s;
    if (preview) keep_stage(m, 0, "attn.k_rope", name, data, shape, dims);
    if (preview) keep_stage(m, 1, "attn.v", name, data, shape, dims);
}

/* Room for more positions, so that what is committed later still fits. */
static bool grow(CloverSession *s, int64_t rows, CloverError *err) {
    const size_t bytes = (size_t)((s->state.capacity + rows) * state_kv_row(&s->c)) * sizeof(double);
    for (int64_t l = 0; l < s->c.layers; l++) {
        if (!s->c.full_attention[l]) continue;
        LayerState *state = &s->state.layer[l];
        double *k = realloc(state->k, bytes);
        if (k) state->k = k;
        double *v = k ? realloc(state->v, bytes) : NULL;
        if (v) state->v = v;
        else {
            error_memory(err, "a longer cache", bytes);
            return false;
        }
    }
    s->state.capacity += rows;
    return true;
}

static void rows_kept(HypothesisMemory *m, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err) {
    if (moment != AFTER_PREVIEW || !grow(s, rows, err)) return;
    const int64_t row = state_kv_row(&s->c), at = s->state.position * row;
    for (int64_t l = 0; l < s->c.layers; l++) {
        if (!s->c.full_attention[l]) continue;
        if (!kept(&m->layer[0][l], rows, err) || !kept(&m->layer[1][l], rows, err)) return;
        memcpy(s->state.layer[l].k + at, m->layer[0][l].data, (size_t)(rows * row) * sizeof(double));
        memcpy(s->state.layer[l].v + at, m->layer[1][l].data, (size_t)(rows * row) * sizeof(double));
    }
    s->state.position += rows;
}

static void rows_cropped(HypothesisMemory *m, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err) {
    (void)m, (void)err;
    if (moment == AFTER_PREVIEW) s->state.position -= rows < s->state.position ? rows : s->state.position;
}

static void restart(HypothesisMemory *m, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err) {
    (void)m, (void)rows, (void)err;
    if (moment == AFTER_PREVIEW) s->state.position = 0;
}

/* ---- not rewound --------------------------------------------------------------------------------------------------- */

/* After every commit the recurrent state is kept; after a restore it is put back. */
static void not_rewound(HypothesisMemory *m, CloverSession *s, HypothesisMoment moment, bool with_S, CloverError *err) {
    const int64_t ring = state_ring_size(&s->c), S = state_S_size(&s->c);
    for (int64_t l = 0; l < s->c.layers; l++) {
        if (s->c.full_attention[l]) continue;
        LayerState *state = &s->state.layer[l];
        if (moment == AFTER_COMMIT) keep(&m->layer[0][l], state->ring, ring, 1);
        if (moment == AFTER_COMMIT && with_S) keep(&m->layer[1][l], state->S, S, 1);
        if (moment != AFTER_RESTORE || m->layer[0][l].n == 0) continue;   /* nothing was committed yet */
        if (!kept(&m->layer[0][l], 1, err) || (with_S && !kept(&m->layer[1][l], 1, err))) return;
        memcpy(state->ring, m->layer[0][l].data, (size_t)ring * sizeof(double));
        if (with_S) memcpy(state->S, m->layer[1][l].data, (size_t)S * sizeof(double));
    }
}

static void hybrid_not_rewound(HypothesisMemory *m, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err) {
    (void)rows;
    not_rewound(m, s, moment, true, err);
}

static void ring_not_rewound(HypothesisMemory *m, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err) {
    (void)rows;
    not_rewound(m, s, moment, false, err);
}

static void ring_forgotten(HypothesisMemory *m, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err) {
    (void)m, (void)rows, (void)err;
    if (moment == AFTER_RESTORE) each(s, false, zero_ring);
}

/* ---- the list ------------------------------------------------------------------------------------------------------ */

static const Hypothesis list[] = {
    { .name = "conv_ring_dropped", .kind = HYPOTHESIS_STATE, .clause = "STA-2", .stages = "gdn.conv", .at = ring_dropped,
      .says = "does not carry the convolution's last rows into the next step",
      .right = "e = [the last taps-1 raw rows | step]", .wrong = "e = [zeros | step]",
      .shows = "The first taps-1 rows of gdn.conv of every step but the first are off, those after them are right.",
      .needs = "a second step", .report = "", .lint = "" },
    { .name = "state_not_carried", .kind = HYPOTHESIS_STATE, .clause = "STA-2", .stages = "gdn.mixed gdn.state", .at = S_dropped,
      .says = "starts every step with an S of zeros",
      .right = "S = the last step's", .wrong = "S = 0",
      .shows = "Every step answers as if nothing stood before it, but for attention; previews read an empty history.",
      .needs = "a second step", .report = "syv-ai/qwen38-27b-rtx3090 PR 43", .lint = "" },
    { .name = "state_reset_between_chunks", .kind = HYPOTHESIS_STATE, .clause = "STA-3", .stages = "gdn.state gdn.mixed", .at = S_reset,
      .says = "starts a commit of several rows with an S of zeros, as if nothing was cached",
      .right = "S = the last chunk's", .wrong = "S = 0 when the commit has more than one row",
      .shows = "One token at a time and previews are right; a second chunk of a long prompt, or a verify, is not.",
      .needs = "a second commit of more than one row", .report = "syv-ai/qwen38-27b-rtx3090 PR 43; huggingface/transformers PR 45513", .lint = "" },
    { .name = "cached_forward_restarts", .kind = HYPOTHESIS_STATE, .clause = "STA-3", .stages = "gdn.conv gdn.state gdn.mixed", .at = restarted,
      .says = "restarts ring and S in a commit of several rows, as if nothing was cached",
      .right = "ring, S = the last step's", .wrong = "ring, S = 0 when the commit has more than one row",
      .shows = "One token at a time and previews are right; a second chunk of a long prompt, or a verify, continues wrongly.",
      .needs = "a second commit of more than one row", .report = "huggingface/transformers PR 45513", .lint = "" },
    { .name = "kv_row_lost", .kind = HYPOTHESIS_STATE, .clause = "STA-2", .stages = "attn.context", .at = row_lost,
      .says = "does not write the last row of a step into the KV cache",
      .right = "keys, values of all T rows are appended", .wrong = "the last row's place holds zeros",
      .shows = "attn.context of the next step reads a key of zeros, which takes its share of every softmax.",
      .needs = "a full-attention layer and a second step", .report = "", .lint = "" },
    { .name = "state_bf16", .kind = HYPOTHESIS_STATE, .clause = "STA-3", .stages = "gdn.state gdn.mixed", .rules = set_bf16,
      .says = "stores S in bf16 between steps",
      .right = "S kept in at least float32", .wrong = "S <- bf16(S) after every step",
      .shows = "An error of 2^-9 in S at every step that adds up over a long answer; short answers look right.",
      .needs = "", .report = "NVIDIA/TensorRT-Model-Connect PR 725", .lint = "" },
    { .name = "state_fp16", .kind = HYPOTHESIS_STATE, .clause = "STA-3", .stages = "gdn.state gdn.mixed", .rules = set_fp16,
      .says = "stores S in float16 between steps",
      .right = "S kept in at least float32", .wrong = "S <- fp16(S) after every step",
      .shows = "An error of 2^-12 in S at every step that adds up over a long answer; values beyond 65504 become infinite.",
      .needs = "", .report = "NVIDIA/TensorRT-Model-Connect PR 725", .lint = "" },
    { .name = "preview_mutates_ring", .kind = HYPOTHESIS_STATE, .clause = "PRV-1", .stages = "gdn.conv", .observe = see_qkv, .at = ring_moved,
      .says = "moves the ring on by a preview's rows",
      .right = "ring after a preview = ring before it", .wrong = "ring = the last taps-1 rows of [ring | block]",
      .shows = "The first taps-1 rows of gdn.conv of the step after a preview are off.",
      .needs = "a preview and a step after it", .report = "", .lint = "" },
    { .name = "preview_mutates_state", .kind = HYPOTHESIS_STATE, .clause = "PRV-1", .stages = "gdn.state gdn.mixed", .observe = see_update, .at = S_updated,
      .says = "writes a preview's rows into S",
      .right = "S after a preview = S before it", .wrong = "S after a preview = the delta rule over the block's rows",
      .shows = "Every pass of a block reads a history that already holds the masks of the pass before.",
      .needs = "a preview and a step after it", .report = "", .lint = "" },
    { .name = "preview_rows_kept_in_kv", .kind = HYPOTHESIS_STATE, .clause = "PRV-1", .stages = "attn.q_rope attn.k_rope attn.context", .observe = see_kv, .at = rows_kept,
      .says = "leaves a preview's rows in the KV cache",
      .right = "the cache holds committed rows only", .wrong = "the cache holds the block's rows too, and positions go on behind them",
      .shows = "After a preview, positions are n too high and attention reads the block's masks.",
      .needs = "a full-attention layer, a preview and a step after it", .report = "", .lint = "" },
    { .name = "preview_crops_cache", .kind = HYPOTHESIS_STATE, .clause = "PRV-1", .stages = "attn.q_rope attn.k_rope attn.context", .at = rows_cropped,
      .says = "cuts n rows off the KV cache after a preview that wrote none",
      .right = "position after a preview = position before it", .wrong = "position after a preview = position - n",
      .shows = "After a preview, positions are n too low and the last committed rows are overwritten.",
      .needs = "a full-attention layer, a preview and a step after it", .report = "", .lint = "" },
    { .name = "positions_restart_after_preview", .kind = HYPOTHESIS_STATE, .clause = "PRV-1", .stages = "attn.q_rope attn.k_rope attn.context", .at = restart,
      .says = "counts positions from 0 again after a preview and forgets the KV cache",
      .right = "position after a preview = position before it", .wrong = "position after a preview = 0, the cache empty",
      .shows = "After a preview, the answer goes on as if the prompt was not there, but for ring and S.",
      .needs = "a full-attention layer, a preview and a step after it", .report = "", .lint = "" },
    { .name = "hybrid_state_not_rewound", .kind = HYPOTHESIS_STATE, .clause = "STA-4", .stages = "gdn.conv gdn.state gdn.mixed", .at = hybrid_not_rewound,
      .says = "rewinds the KV cache, but not ring and S",
      .right = "restore gives back KV, ring, S and position", .wrong = "restore gives back KV and position; ring and S stay",
      .shows = "Corruption only with speculation, from the first rejected draft on.",
      .needs = "a restore after a commit, and a step after it", .report = "vllm-project/vllm issue 39273; raullenchai/Rapid-MLX issue 3295", .lint = "" },
    { .name = "ring_not_rewound", .kind = HYPOTHESIS_STATE, .clause = "STA-4", .stages = "gdn.conv", .at = ring_not_rewound,
      .says = "rewinds KV cache and S, but not the ring",
      .right = "restore gives back KV, ring, S and position", .wrong = "restore gives back KV, S and position; the ring stays",
      .shows = "After a rejected draft the first taps-1 rows of gdn.conv read the rejected rows.",
      .needs = "a restore after a commit, and a step after it", .report = "", .lint = "" },
    { .name = "snapshot_without_ring", .kind = HYPOTHESIS_STATE, .clause = "STA-4", .stages = "gdn.conv", .at = ring_forgotten,
      .says = "forgets the ring in snapshots: after a restore it is zero",
      .right = "restore gives back KV, ring, S and position", .wrong = "restore gives back KV, S and position; ring = 0",
      .shows = "After a restore the first taps-1 rows of gdn.conv are off, those after them are right.",
      .needs = "a restore and a step after it", .report = "", .lint = "" },
};
const HypothesisList hypotheses_state = { list, sizeof list / sizeof *list };
