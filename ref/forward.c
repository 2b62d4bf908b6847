/* forward.c - the whole forward pass: embedding, layers, head; commit and preview. [LAY, STA]
 *
 * One step runs T rows through all layers. A commit keeps what the rows leave behind (keys, values, ring, S); a preview
 * reads the same state and keeps nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "error.h"
#include "forward.h"

/* ---- between the layers ---------------------------------------------------------------------------------------- */

/* [LAY-1] */
static void embed(Run *run, const Weights *w, const CloverConfig *c, const int32_t *ids, int64_t T, double *h) {
    for (int64_t t = 0; t < T; t++) matrix_row(run, &w->embed, ids[t], h + t * c->hidden);
    round_row(run->storage, h, T * c->hidden);
}

static void norm(Run *run, const double *weight, const CloverConfig *c, const double *h, int64_t T, double *x) {
    for (int64_t t = 0; t < T; t++) rms_norm(x + t * c->hidden, h + t * c->hidden, weight, c->hidden, c->rms_eps);
    round_row(run->storage, x, T * c->hidden);
}

static void add(Run *run, const double *y, int64_t n, double *h) {
    for (int64_t i = 0; i < n; i++) h[i] = round_to(run->storage, h[i] + y[i]);
}

/* [LAY-3] */
static void head(Run *run, const Weights *w, const double *x, int64_t T, double *logits) { linear(run, &w->head, x, T, logits); }

const TrunkRules trunk_rules = { .embed = embed, .norm = norm, .add = add, .head = head };
const Rules right_rules = { &trunk_rules, &attn_causal, &attn_preview, &gdn_causal, &gdn_preview, &moe_causal, &moe_preview };

/* ---- one step's buffers ---------------------------------------------------------------------------------------- */

/* Everything that T rows need on their way, reused by every layer. */
typedef struct Step {
    const int32_t *ids;
    int64_t T;
    bool preview;
    double *h, *x;                   /* [T, D] residual stream, normalised input */
    double *logits;                  /* [rows, V], the caller's, or NULL */
    int64_t rows;                    /* logits of the last `rows` rows */
    Attn attn;
    Gdn gdn;
    Moe moe;
    double *memory;                  /* one block that holds all of the above but the caller's */
} Step;

/* Hands out pieces of a block; with no block yet, only counts. */
typedef struct Carver { double *block; size_t used; } Carver;

static double *carve(Carver *c, int64_t n) {
    double *piece = c->block ? c->block + c->used : NULL;
    c->used += (size_t)n;
    return piece;
}

static void carve_step(Carver *m, const CloverConfig *c, int64_t past, Step *s) {
    const int64_t T = s->T, D = c->hidden, Q = T * c->heads * c->head_width, KV = T * c->kv_heads * c->head_width;
    const int64_t Hv = c->value_heads, K = T * c->key_heads * c->key_width, V = T * Hv * c->value_width;
    const int64_t wide = c->expert_width > c->shared_width ? c->expert_width : c->shared_width;
    Attn *a = &s->attn;
    Gdn *g = &s->gdn;
    Moe *e = &s->moe;
    s->h = carve(m, T * D);
    s->x = carve(m, T * D);

    a->qg = carve(m, 2 * Q);
    a->q = carve(m, Q), a->gate = carve(m, Q), a->q_norm = carve(m, Q), a->q_rope = carve(m, Q);
    a->k = carve(m, KV), a->v = carve(m, KV), a->k_norm = carve(m, KV), a->k_rope = carve(m, KV);
    a->context = carve(m, Q), a->gated = carve(m, Q);
    a->out = carve(m, T * D);
    a->scores = carve(m, past + T);
    a->angles = carve(m, T * c->rotary_dims);

    g->qkv = carve(m, 2 * K + V), g->conv = carve(m, 2 * K + V);
    g->z = carve(m, V), g->v = carve(m, V), g->mixed = carve(m, V), g->gated = carve(m, V);
    g->b = carve(m, T * Hv), g->a = carve(m, T * Hv), g->beta = carve(m, T * Hv), g->g = carve(m, T * Hv);
    g->q = carve(m, K), g->k = carve(m, K);
    g->weights = carve(m, s->preview ? T * Hv * (T + 1) : 0);
    g->out = carve(m, T * D);
    g->d = carve(m, c->value_width);

    e->probs = carve(m, T * c->experts);
    e->coreset = carve(m, s->preview ? c->experts : 0);
    e->ids = carve(m, T * c->experts_used), e->weights = carve(m, T * c->experts_used);
    e->routed = carve(m, T * D), e->shared = carve(m, T * D), e->out = carve(m, T * D);
    e->shared_gate = carve(m, T);
    e->rows = carve(m, T * D), e->result = carve(m, T * D);
    e->hidden = carve(m, T * wide), e->up = carve(m, T * wide);
    e->totals = carve(m, c->experts);
    e->order = (int64_t *)carve(m, c->experts > T ? c->experts : T);   /* an int64 is as wide as a double */
}

static CloverStatus step_init(Step *s, const CloverConfig *c, int64_t past, CloverError *err) {
    Carver m = { NULL, 0 };
    carve_step(&m, c, past, s);
    m.block = malloc(m.used * sizeof(double));
    if (!m.block) return error_memory(err, "a step's buffers", m.used * sizeof(double));
    s->memory = m.block;
    m.used = 0;
    carve_step(&m, c, past, s);
    if (!s->preview) s->moe.coreset = NULL;
    s->attn.c = s->gdn.c = s->moe.c = c;
    s->attn.T = s->gdn.T = s->moe.T = s->T;
    s->attn.past = past;
    s->attn.x = s->gdn.x = s->moe.x = s->x;
    return CLOVER_OK;
}

/* ---- layers ---------------------------------------------------------------------------------------------------- */

/* [STA-2] */
void roll_ring(double *to, const double *from, const double *qkv, const CloverConfig *c, int64_t T) {
    const int64_t past = c->taps - 1, C = 2 * c->key_heads * c->key_width + c->value_heads * c->value_width;
    for (int64_t r = 0; r < past; r++) {
        const double *row = T + r < past ? from + (T + r) * C : qkv + (T + r - past) * C;
        memmove(to + r * C, row, (size_t)C * sizeof(double));
    }
}

static void attention(CloverSession *s, Step *st, const Tap *t, int64_t l, const LayerW *w) {
    Attn *a = &st->attn;
    LayerState *state = &s->state.layer[l];
    a->k_past = state->k;
    a->v_past = state->v;
    attn_layer(&s->run, t, &w->attn, st->preview ? s->rules.attn_preview : s->rules.attn_commit, a);
    if (st->preview) return;
    /* Rows past the committed position are nobody's yet: a commit that fails later leaves no trace. [STA-5] */
    const int64_t row = s->c.kv_heads * s->c.head_width;
    memcpy(state->k + a->past * row, a->k_rope, (size_t)(st->T * row) * sizeof(double));
    memcpy(state->v + a->past * row, a->v, (size_t)(st->T * row) * sizeof(double));
}

/* before: the ring and S that the step starts from (the committed ones, or next's when a commit goes on). */
static void gated_delta_net(CloverSession *s, Step *st, const Tap *t, int64_t l, const LayerW *w, const State *before) {
    Gdn *g = &st->gdn;
    LayerState *next = &s->next.layer[l];
    g->ring = before->layer[l].ring;
    g->S0 = before->layer[l].S;
    g->state = st->preview ? NULL : next->S;
    gdn_layer(&s->run, t, &w->gdn, st->preview ? s->rules.gdn_preview : s->rules.gdn_commit, g);
    if (!st->preview) roll_ring(next->ring, g->ring, g->qkv, &s->c, st->T);
}

/* h <- h + mixer(norm(h)); h <- h + MoE(norm(h)), layer by layer; then the head. [LAY-2] */
static void forward(CloverSession *s, Step *st, const State *before) {
    const CloverConfig *c = &s->c;
    const Weights *w = &s->model->weights;
    const TrunkRules *trunk = s->rules.trunk;
    const int64_t T = st->T, D = c->hidden;
    Tap t = { s->watcher, s->watcher_user, -1 };

    trunk->embed(&s->run, w, c, st->ids, T, st->h);
    tap(&t, "embed", st->h, 2, T, D);

    for (int64_t l = 0; l < c->layers && !run_failed(&s->run); l++) {
        const LayerW *layer = &w->layer[l];
        t.layer = l;
        trunk->norm(&s->run, layer->attn_norm, c, st->h, T, st->x);
        tap(&t, "attn_norm", st->x, 2, T, D);
        if (c->full_attention[l]) attention(s, st, &t, l, layer);
        else gated_delta_net(s, st, &t, l, layer, before);
        const double *mixed = c->full_attention[l] ? st->attn.out : st->gdn.out;
        if (trunk->add_mixer) trunk->add_mixer(&s->run, layer, c, mixed, T, st->h);
        else trunk->add(&s->run, mixed, T * D, st->h);
        tap(&t, "mixer_residual", st->h, 2, T, D);

        (trunk->ffn_norm ? trunk->ffn_norm : trunk->norm)(&s->run, layer->ffn_norm, c, st->h, T, st->x);
        tap(&t, "ffn_norm", st->x, 2, T, D);
        st->moe.top_p = s->coreset_top_p;
        moe_layer(&s->run, &t, &layer->moe, st->preview ? s->rules.moe_preview : s->rules.moe_commit, &st->moe);
        trunk->add(&s->run, st->moe.out, T * D, st->h);
        tap(&t, "out", st->h, 2, T, D);
    }
    if (run_failed(&s->run)) return;

    t.layer = -1;
    (trunk->final_norm ? trunk->final_norm : trunk->norm)(&s->run, w->norm, c, st->h, T, st->x);
    tap(&t, "final_norm", st->x, 2, T, D);
    if (st->rows == 0) return;
    trunk->head(&s->run, w, st->x + (T - st->rows) * D, st->rows, st->logits);
    tap(&t, "logits", st->logits, 2, st->rows, c->vocab);
}

/* ---- commit and preview ---------------------------------------------------------------------------------------- */

static CloverStatus check_ids(const CloverSession *s, const int32_t *ids, int64_t n, CloverError *err) {
    if (n < 1) return error_set(err, CLOVER_USAGE, "a step needs at least one token, %lld given", (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= s->c.vocab)
            return error_set(err, CLOVER_USAGE, "token id %d at index %lld is outside the vocabulary 0..%lld",
                             (int)ids[i], (long long)i, (long long)s->c.vocab - 1);
    return CLOVER_OK;
}

static CloverStatus run_step(CloverSession *s, Step *st, int64_t past, const State *before, CloverError *err) {
    CloverStatus status = step_init(st, &s->c, past, err);
    if (status != CLOVER_OK) return status;
    error_clear(err);
    s->run.err = err;
    forward(s, st, before);
    s->run.err = NULL;
    free(st->memory);
    return err->status;
}

CloverStatus clover_commit(CloverSession *s, const int32_t *ids, int64_t n, double *logits, int64_t rows, CloverError *err) {
    CloverStatus status = check_ids(s, ids, n, err);
    if (status != CLOVER_OK) return status;
    if (!logits) rows = 0;
    if (rows < 0 || rows > n) return error_set(err, CLOVER_USAGE, "logits of %lld rows asked for, the step has %lld", (long long)rows, (long long)n);
    if (n > s->state.capacity - s->state.position)
        return error_set(err, CLOVER_USAGE, "the state has room for %lld positions; %lld are taken and %lld more were asked for",
                         (long long)s->state.capacity, (long long)s->state.position, (long long)n);

    const int64_t most = s->watcher ? n : COMMIT_ROWS;   /* a watcher sees the step whole */
    const State *before = &s->state;
    for (int64_t start = 0; start < n; start += most) {
        const int64_t T = n - start < most ? n - start : most;
        const int64_t first = start > n - rows ? start : n - rows, end = start + T;   /* the part's rows whose logits are wanted */
        Step st = { .ids = ids + start, .T = T, .rows = end > first ? end - first : 0 };
        st.logits = st.rows ? logits + (first - (n - rows)) * s->c.vocab : NULL;
        status = run_step(s, &st, s->state.position + start, before, err);
        if (status != CLOVER_OK) return status;
        before = &s->next;
    }
    /* All of it succeeded: what the rows left behind becomes the state. [STA-2, STA-5] */
    for (int64_t l = 0; l < s->c.layers; l++)
        if (!s->c.full_attention[l]) {
            LayerState *now = &s->state.layer[l], *next = &s->next.layer[l], old = *now;
            now->ring = next->ring, now->S = next->S;
            next->ring = old.ring, next->S = old.S;
        }
    s->state.position += n;
    return CLOVER_OK;
}

/* Nothing of s but its run is written: the state is read. [PRV-1, PRV-8] */
CloverStatus clover_preview(CloverSession *s, const int32_t *ids, int64_t n, double *logits, CloverError *err) {
    CloverStatus status = check_ids(s, ids, n, err);
    if (status != CLOVER_OK) return status;
    if (!s->model->weights.diffusion)
        return error_set(err, CLOVER_UNSUPPORTED, "%s has no diffusion tensors, so it cannot preview a block; use mode ar", s->model->path);
    Step st = { .ids = ids, .T = n, .preview = true, .rows = logits ? n : 0, .logits = logits };
    return run_step(s, &st, s->state.position, &s->state, err);
}

/* ---- the session ----------------------------------------------------------------------------------------------- */

CloverSessionOptions clover_session_defaults(void) {
    return (CloverSessionOptions){ .numerics = CLOVER_EXACT, .capacity = 4096, .coreset_top_p = (double)NAN };
}

CloverStatus clover_session_new(const CloverModel *model, const CloverSessionOptions *options, CloverSession **out, CloverError *err) {
    const CloverSessionOptions o = options ? *options : clover_session_defaults();
    if (o.capacity < 1) return error_set(err, CLOVER_USAGE, "a session needs room for at least one position, %lld asked for", (long long)o.capacity);
    CloverSession *s = calloc(1, sizeof *s);
    if (!s) return error_memory(err, "a session", sizeof *s);
    s->model = model;
    s->c = model->config;
    s->rules = right_rules;
    s->coreset_top_p = !isnan(o.coreset_top_p) ? o.coreset_top_p : s->c.coreset_enabled ? s->c.coreset_top_p : -1.0;
    CloverStatus status = run_init(&s->run, o.numerics, err);
    if (status == CLOVER_OK) status = state_init(&s->state, &s->c, o.capacity, err);
    if (status == CLOVER_OK) status = state_init(&s->next, &s->c, 0, err);
    if (status != CLOVER_OK) {
        clover_session_free(s);
        return status;
    }
    *out = s;
    return CLOVER_OK;
}

void clover_session_free(CloverSession *s) {
    if (!s) return;
    state_free(&s->state);
    state_free(&s->next);
    run_free(&s->run);
    free(s);
}

int64_t clover_session_position(const CloverSession *s) { return s->state.position; }
void clover_session_reset(CloverSession *s) { state_reset(&s->state); }
uint64_t clover_session_hash(const CloverSession *s) { return state_hash(&s->state); }

void clover_session_watch(CloverSession *s, CloverWatcher *watcher, void *user) {
    s->watcher = watcher;
    s->watcher_user = user;
}

CloverStatus clover_snapshot_take(const CloverSession *s, CloverSnapshot **out, CloverError *err) {
    CloverSnapshot *snapshot = calloc(1, sizeof *snapshot);
    if (!snapshot) return error_memory(err, "a snapshot", sizeof *snapshot);
    CloverStatus status = state_init(&snapshot->state, &s->model->config, s->state.position, err);   /* may outlive the session */
    if (status == CLOVER_OK) status = state_copy(&snapshot->state, &s->state, err);
    if (status != CLOVER_OK) {
        free(snapshot);
        return status;
    }
    *out = snapshot;
    return CLOVER_OK;
}

CloverStatus clover_snapshot_restore(CloverSession *s, const CloverSnapshot *snapshot, CloverError *err) {
    return state_copy(&s->state, &snapshot->state, err);
}

void clover_snapshot_free(CloverSnapshot *snapshot) {
    if (!snapshot) return;
    state_free(&snapshot->state);
    free(snapshot);
}

/* ---- the session as decoding sees it --------------------------------------------------------------------------- */

static CloverStatus engine_commit(void *self, const int32_t *ids, int64_t n, double *logits, int64_t rows, CloverError *err) {
    return clover_commit(self, ids, n, logits, rows, err);
}
static CloverStatus engine_preview(void *self, const int32_t *ids, int64_t n, double *logits, CloverError *err) {
    return clover_preview(self, ids, n, logits, err);
}
static CloverStatus engine_snapshot(void *self, void **out, CloverError *err) {
    CloverSnapshot *snapshot = NULL;
    CloverStatus status = clover_snapshot_take(self, &snapshot, err);
    *out = snapshot;
    return status;
}
static CloverStatus engine_restore(void *self, const void *snapshot, CloverError *err) { return clover_snapshot_restore(self, snapshot, err); }
static void engine_snapshot_free(void *self, void *snapshot) {
    (void)self;
    clover_snapshot_free(snapshot);
}
static int64_t engine_position(void *self) { return clover_session_position(self); }

CloverEngine clover_session_engine(CloverSession *s) {
    return (CloverEngine){ s, s->c.vocab, engine_commit, engine_preview, engine_snapshot, engine_restore, engine_snapshot_free, engine_position };
}
