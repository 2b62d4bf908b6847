/* test_hypotheses_rules.c - the catalogue's stage rules and parameters: each is wrong at its stages and nowhere else, gives what an
 * independent model with that mistake gives, and reads and writes what a rule may. [HYP] */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "../ref/error.h"
#include "../ref/files/quant.h"
#include "../ref/files/safetensors.h"
#include "../tools/hypotheses/hypothesis.h"
#include "failing_malloc.h"
#include "harness.h"
#include "random_model.h"

static const HypothesisList *const lists[] = { &hypotheses_trunk, &hypotheses_attention, &hypotheses_gdn, &hypotheses_preview, &hypotheses_moe, &hypotheses_parameters };
enum { LISTS = sizeof lists / sizeof *lists };

/* The entry after h, the first after NULL; NULL after the last. */
static const Hypothesis *next(const Hypothesis *h) {
    int l = 0;
    while (h && !(h >= lists[l]->h && h < lists[l]->h + lists[l]->n)) l++;
    if (!h) return lists[0]->h;
    if (++h < lists[l]->h + lists[l]->n) return h;
    return l + 1 < LISTS ? lists[l + 1]->h : NULL;
}

/* Copies of the right rules, with the hypothesis's own in place of some. */
static void put_in_force(const Hypothesis *h, CloverSession *s, HypothesisRules *r) {
    *r = (HypothesisRules){ trunk_rules, { attn_causal, attn_preview }, { gdn_causal, gdn_preview }, { moe_causal, moe_preview } };
    if (h && h->rules) h->rules(r);
    if (h && h->parameter) h->parameter(s);
    s->rules = (Rules){ &r->trunk, &r->attn[0], &r->attn[1], &r->gdn[0], &r->gdn[1], &r->moe[0], &r->moe[1] };
}

/* Where a name stands in a list with spaces between; NULL: nowhere. */
static const char *listed(const char *list, const char *name) {
    const size_t length = strlen(name);
    for (const char *p = list; (p = strstr(p, name)); p++)
        if ((p == list || p[-1] == ' ') && (p[length] == ' ' || p[length] == '\0')) return p;
    return NULL;
}

/* ---- each mistake is at its stages, and nowhere else ---------------------------------------------------------------- */

/* Without layer, in the order of computation. */
static const char *const stages[] = {
    "embed", "attn_norm", "attn.q", "attn.gate", "attn.k", "attn.v", "attn.q_norm", "attn.k_norm", "attn.q_rope", "attn.k_rope", "attn.context", "attn.gated",
    "gdn.qkv", "gdn.z", "gdn.beta", "gdn.g", "gdn.conv", "gdn.q", "gdn.k", "gdn.v", "gdn.state", "gdn.block_weights", "gdn.mixed", "gdn.gated", "mixer", "mixer_residual",
    "ffn_norm", "moe.probs", "moe.coreset", "moe.ids", "moe.weights", "moe.routed", "moe.shared", "moe.shared_gate", "moe", "out", "final_norm", "logits" };
enum { STAGES = sizeof stages / sizeof *stages, MOST_SEEN = 512 };

static int stage_index(const char *probe) {
    const char *name = probe[0] == 'L' && probe[3] == '.' ? probe + 4 : probe;
    for (int i = 0; i < STAGES; i++)
        if (strcmp(stages[i], name) == 0) return i;
    ck_abort_msg("%s: a stage that this test does not know", probe);
    return -1;
}

/* What a right session showed; and which stages a wrong one, given right inputs at every stage, got wrong. */
typedef struct Seen { char name[32]; double *data; int64_t n, shape[4]; int dims; } Seen;
typedef struct Record { Seen seen[MOST_SEEN]; int n, at; bool wrong[STAGES], unshaped; } Record;

static void keep(void *user, const char *name, double *data, const int64_t *shape, int dims) {
    Record *r = user;
    Seen *s = &r->seen[r->n++];
    ck_assert_int_le(r->n, MOST_SEEN);
    *s = (Seen){ .n = 1, .dims = dims };
    snprintf(s->name, sizeof s->name, "%s", name);
    for (int i = 0; i < dims; i++) s->n *= s->shape[i] = shape[i];
    s->data = malloc((size_t)s->n * sizeof *s->data);
    memcpy(s->data, data, (size_t)s->n * sizeof *s->data);
}
static void compare_and_mend(void *user, const char *name, double *data, const int64_t *shape, int dims) {
    Record *r = user;
    const Seen *s = &r->seen[r->at++];
    const int stage = stage_index(name);
    ck_assert_str_eq(name, s->name);
    ck_assert_int_eq(dims, s->dims);
    if (memcmp(shape, s->shape, (size_t)dims * sizeof *shape) != 0) {   /* another number of experts: cannot be mended before moe.routed */
        r->wrong[stage] = r->unshaped = true;
        return;
    }
    const bool consequence = r->unshaped && strcmp(stages[stage], "moe.routed") == 0;
    if (strcmp(stages[stage], "moe.routed") == 0) r->unshaped = false;
    for (int64_t i = 0; i < s->n && !consequence; i++) r->wrong[stage] |= !(data[i] == s->data[i]);
    memcpy(data, s->data, (size_t)s->n * sizeof *data);
}

static const char *const models[] = { "tests/vectors/shapes/three/hf", "tests/vectors/shapes/taps2/hf", "tests/vectors/shapes/recurrent/hf", "tests/vectors/tiny-a/hf" };
enum { MODELS = sizeof models / sizeof *models };

/* A prompt, a block, and more, with a coreset. */
static void run_steps(CloverSession *s, CloverWatcher *watcher, Record *r) {
    static const struct { bool preview; int n; } steps[] = { { false, 9 }, { true, 5 }, { false, 3 } };
    CloverError err;
    int32_t ids[16];
    double *logits = malloc((size_t)(16 * s->c.vocab) * sizeof *logits);
    clover_session_watch(s, watcher, r);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        for (int t = 0; t < steps[i].n; t++) ids[t] = (int32_t)((t * 7 + 3 + (int)i) % 29);
        if (steps[i].preview) assert_ok(clover_preview(s, ids, steps[i].n, logits, &err), err);
        else assert_ok(clover_commit(s, ids, steps[i].n, logits, steps[i].n, &err), err);
    }
    free(logits);
}
static CloverSession *session_of(const CloverModel *model, double top_p) {
    CloverError err;
    CloverSession *s = NULL;
    CloverSessionOptions o = clover_session_defaults();
    o.capacity = 32, o.coreset_top_p = top_p;
    assert_ok(clover_session_new(model, &o, &s, &err), err);
    return s;
}

static bool seen_everywhere(const Hypothesis *h, const bool *wrong) {
    for (int i = 0; i < STAGES; i++)
        if (listed(h->stages, stages[i]) && !wrong[i]) return false;
    return true;
}

START_TEST(wrong_at_its_stages_and_nowhere_else) {
    static const double top_p[] = { 0.4, 0.6, 0.8 };     /* some mistakes change a coreset only now and then */
    enum { RUNS = MODELS * 3 };
    CloverModel *model[MODELS] = { NULL };
    Record *right[RUNS];
    CloverError err;
    for (int m = 0; m < MODELS; m++) assert_ok(clover_model_open(models[m], NULL, &model[m], &err), err);
    for (int m = 0; m < RUNS; m++) {
        CloverSession *s = session_of(model[m / 3], top_p[m % 3]);
        right[m] = calloc(1, sizeof **right);
        run_steps(s, keep, right[m]);
        clover_session_free(s);
    }
    for (const Hypothesis *h = next(NULL); h; h = next(h)) {
        const bool coreset = strncmp(h->name, "coreset", 7) == 0;
        bool wrong[STAGES] = { false };
        for (int m = 0; m < RUNS; m += coreset ? 1 : 3) {
            if (m / 3 == MODELS - 1 && seen_everywhere(h, wrong)) break;     /* the large one only where it is needed */
            HypothesisRules rules;
            CloverSession *s = session_of(model[m / 3], top_p[m % 3]);
            Record *r = right[m];
            r->at = 0, r->unshaped = false;
            memset(r->wrong, 0, sizeof r->wrong);
            put_in_force(h, s, &rules);
            run_steps(s, compare_and_mend, r);
            ck_assert_int_eq(r->at, r->n);
            clover_session_free(s);
            for (int i = 0; i < STAGES; i++) {
                ck_assert_msg(!r->wrong[i] || listed(h->stages, stages[i]), "%s is wrong at %s too (%s)", h->name, stages[i], models[m / 3]);
                wrong[i] |= r->wrong[i];
            }
        }
        const char *before = NULL;
        for (int i = 0; i < STAGES; i++) {
            const char *at = listed(h->stages, stages[i]);
            if (!at) continue;
            ck_assert_msg(wrong[i], "%s is right at %s", h->name, stages[i]);
            ck_assert_msg(!before || at > before, "%s: its stages are not in the order of computation", h->name);
            before = at;
        }
    }
    for (int m = 0; m < RUNS; m++) {
        for (int i = 0; i < right[m]->n; i++) free(right[m]->seen[i].data);
        free(right[m]);
    }
    for (int m = 0; m < MODELS; m++) clover_model_close(model[m]);
}
END_TEST

/* ---- what an independent model with that mistake answers ------------------------------------------------------------- */

/* The first 16 logits of a commit of two rows and a preview of three, after a commit of four (tests/vectors/make_hypotheses.py). */
enum { COLUMNS = 16, TOLD = 5 * COLUMNS };
static void answer(const Hypothesis *h, const char *name, double top_p, double *out) {
    static const int32_t first[] = { 3, 10, 17, 24 }, more[] = { 5, 12 }, block[] = { 9, 16, 23 };
    char path[128];
    CloverError err;
    CloverModel *model = NULL;
    HypothesisRules rules;
    snprintf(path, sizeof path, strcmp(name, "tiny-a") == 0 ? "tests/vectors/%s/hf" : "tests/vectors/shapes/%s/hf", name);
    assert_ok(clover_model_open(path, NULL, &model, &err), err);
    CloverSession *s = session_of(model, top_p);
    const int64_t V = s->c.vocab;
    double *logits = malloc((size_t)(5 * V) * sizeof *logits);
    CloverSnapshot *four = NULL;
    put_in_force(h, s, &rules);
    assert_ok(clover_commit(s, first, 4, NULL, 0, &err), err);
    assert_ok(clover_snapshot_take(s, &four, &err), err);
    assert_ok(clover_commit(s, more, 2, logits, 2, &err), err);
    assert_ok(clover_snapshot_restore(s, four, &err), err);
    assert_ok(clover_preview(s, block, 3, logits + 2 * V, &err), err);
    for (int i = 0; i < TOLD; i++) out[i] = logits[i / COLUMNS * V + i % COLUMNS];
    free(logits);
    clover_snapshot_free(four);
    clover_session_free(s);
    clover_model_close(model);
}

START_TEST(as_an_independent_model_with_that_mistake) {
    CloverError err;
    Safetensors *file = NULL;
    assert_ok(safetensors_open("tests/vectors/hypotheses.safetensors", &file, &err), err);
    const TensorList list = safetensors_tensors(file);
    int checked = 0;
    for (const Hypothesis *h = next(NULL); h; h = next(h)) {
        const Tensor *t = NULL;
        char name[64], model[16];
        double top_p, wrong[TOLD], right[TOLD], expected[TOLD], off = 0, apart = 0;
        for (int64_t i = 0; i < list.n && !t; i++)
            if (sscanf(list.tensor[i].name, "%63s %15s %lf", name, model, &top_p) == 3 && strcmp(name, h->name) == 0) t = &list.tensor[i];
        if (!t) {     /* the same mathematics: only rounding shows it */
            ck_assert_msg(strcmp(h->name, "weight_before_down") == 0, "%s: no independent numbers", h->name);
            continue;
        }
        ck_assert_int_eq(t->elements, TOLD);
        quant_decode(t->type, t->data, TOLD, expected);
        answer(NULL, model, top_p, right);
        answer(h, model, top_p, wrong);
        for (int i = 0; i < TOLD; i++) {
            off = fmax(off, fabs(wrong[i] - expected[i]));
            apart = fmax(apart, fabs(right[i] - expected[i]));
        }
        ck_assert_msg(off <= (t->type == DT_F64 ? 1e-11 : 5e-6), "%s on %s: off by %g", h->name, model, off);
        ck_assert_msg(apart > 1e4 * off && apart > 1e-6, "%s on %s: only %g from a right engine", h->name, model, apart);
        checked++;
    }
    ck_assert_int_eq(checked, list.n);
    safetensors_close(file);
}
END_TEST

/* ---- the rules are pure ------------------------------------------------------------------------------------------- */

/* A rule in place `slot` of its layer's table: what earlier places wrote is right, all else NaN, scratch included. It must leave
 * what it was given as it was, fill what is its own, and touch nothing later. */
enum { SCRATCH = -1, MOST_BUFFERS = 24 };
typedef struct Buffer { double **at; int64_t n; int slot; double *right; } Buffer;
typedef struct Bench {
    CloverConfig c;
    Run run;
    CloverError err;
    Buffer buffer[MOST_BUFFERS];
    void *owned[96];
    int n, n_owned;
    uint64_t seed;
} Bench;
static const Tensor named = { .name = "random", .file = "memory" };
static const Tap nobody = { NULL, NULL, 0 };

static void *own(Bench *b, void *p) {
    ck_assert_ptr_nonnull(p);
    ck_assert_int_lt(b->n_owned, (int)(sizeof b->owned / sizeof *b->owned));
    return b->owned[b->n_owned++] = p;
}
static double *row(Bench *b, int64_t n, double low, double high) { return own(b, random_row(&b->seed, n, low, high)); }
static Matrix matrix(Bench *b, int64_t rows, int64_t cols) {
    Matrix m = random_matrix(&b->seed, &named, rows, cols);
    own(b, (void *)(uintptr_t)m.data);
    return m;
}
static void has(Bench *b, int slot, double **at, int64_t n) {
    *at = own(b, calloc((size_t)n, sizeof **at));
    b->buffer[b->n++] = (Buffer){ at, n, slot, own(b, calloc((size_t)n, sizeof **at)) };
}
static void begin(Bench *b) {
    memset(b, 0, sizeof *b);
    b->c = (CloverConfig){ .hidden = 12, .heads = 4, .kv_heads = 2, .head_width = 7, .rotary_dims = 4, .rope_base = 1e6, .rms_eps = 1e-6, .l2_eps = 1e-6, .block = 5,
                           .key_heads = 2, .value_heads = 4, .key_width = 3, .value_width = 5, .taps = 3,
                           .experts = 6, .experts_used = 2, .expert_width = 7, .shared_width = 4 };
    assert_ok(run_init(&b->run, CLOVER_EXACT, &b->err), b->err);
    error_clear(&b->err);
    b->run.err = &b->err;
    b->seed = 11;
}
static void end(Bench *b) {
    for (int i = 0; i < b->n_owned; i++) free(b->owned[i]);
    run_free(&b->run);
}
static void remember(Bench *b) {
    for (int i = 0; i < b->n; i++) memcpy(b->buffer[i].right, *b->buffer[i].at, (size_t)b->buffer[i].n * sizeof(double));
}
static void before_rule(Bench *b, int slot) {
    for (int i = 0; i < b->n; i++)
        for (int64_t k = 0; k < b->buffer[i].n; k++)
            (*b->buffer[i].at)[k] = b->buffer[i].slot != SCRATCH && b->buffer[i].slot < slot ? b->buffer[i].right[k] : (double)NAN;
}
/* used: how much of its own buffers it must fill, of `of`: a choice of fewer experts leaves room. failed: memory ran out. */
static void after_rule(Bench *b, const char *name, int slot, bool failed, int64_t used, int64_t of) {
    ck_assert_msg(b->err.status == (failed ? CLOVER_SYSTEM : CLOVER_OK), "%s: status %d: %s", name, (int)b->err.status, b->err.text);
    error_clear(&b->err);
    for (int i = 0; i < b->n; i++) {
        const Buffer *f = &b->buffer[i];
        for (int64_t k = 0; k < f->n && f->slot != SCRATCH; k++) {
            const double x = (*f->at)[k];
            if (f->slot < slot) ck_assert_msg(x == f->right[k] || (isnan(x) && isnan(f->right[k])), "%s, rule %d: changed buffer %d", name, slot, i);
            else if (f->slot > slot) ck_assert_msg(isnan(x), "%s, rule %d: wrote buffer %d, which is a later rule's", name, slot, i);
            else ck_assert_msg(k >= f->n / of * used || isfinite(x), "%s, rule %d: buffer %d holds %g", name, slot, i, x);
        }
    }
}

START_TEST(attention_rules_are_pure) {
    Bench b;
    begin(&b);
    const CloverConfig *c = &b.c;
    const int64_t T = 5, past = 3, Q = T * c->heads * c->head_width, KV = T * c->kv_heads * c->head_width, D = c->hidden;
    AttnW w = { matrix(&b, 2 * Q / T, D), matrix(&b, KV / T, D), matrix(&b, KV / T, D), matrix(&b, D, Q / T), row(&b, c->head_width, 0.5, 1.5), row(&b, c->head_width, 0.5, 1.5) };
    Attn a = { .c = c, .T = T, .past = past, .x = row(&b, T * D, -1, 1), .k_past = row(&b, past * KV / T, -1, 1), .v_past = row(&b, past * KV / T, -1, 1) };
    has(&b, 0, &a.qg, 2 * Q), has(&b, 0, &a.q, Q), has(&b, 0, &a.gate, Q), has(&b, 0, &a.k, KV), has(&b, 0, &a.v, KV), has(&b, 1, &a.q_norm, Q), has(&b, 1, &a.k_norm, KV);
    has(&b, 2, &a.q_rope, Q), has(&b, 2, &a.k_rope, KV), has(&b, 3, &a.context, Q), has(&b, 4, &a.gated, Q), has(&b, 5, &a.out, T * D);
    has(&b, SCRATCH, &a.scores, past + T), has(&b, SCRATCH, &a.angles, T * c->rotary_dims);
    int rules = 0;
    const int most_fails = malloc_can_fail() ? 2 : 0;
    for (const Hypothesis *h = next(NULL); h; h = next(h)) {
        HypothesisRules r = { trunk_rules, { attn_causal, attn_preview }, { gdn_causal, gdn_preview }, { moe_causal, moe_preview } };
        if (h->rules) h->rules(&r);
        for (int p = 0; p < 2; p++) {
            const AttnRules *right = p ? &attn_preview : &attn_causal, *now = &r.attn[p];
            AttnRule *const rights[] = { right->project, right->norm, right->rotate, right->attend, right->gate, right->out };
            AttnRule *const wrongs[] = { now->project, now->norm, now->rotate, now->attend, now->gate, now->out };
            attn_layer(&b.run, &nobody, &w, right, &a);
            remember(&b);
            for (int slot = 0; slot < 6; slot++) {
                if (rights[slot] == wrongs[slot]) continue;
                for (int fails = 0; fails <= most_fails; fails++) {     /* the first allocation, or the second */
                    const long live = malloc_live;
                    before_rule(&b, slot);
                    if (fails) malloc_fail_after(fails - 1, true);
                    wrongs[slot](&b.run, &w, &a);
                    after_rule(&b, h->name, slot, fails && malloc_recover(), 1, 1);
                    ck_assert_int_eq(malloc_live, live);
                }
                rules++;
            }
        }
    }
    ck_assert_int_gt(rules, 30);
    end(&b);
}
END_TEST

START_TEST(gdn_rules_are_pure) {
    Bench b;
    begin(&b);
    const CloverConfig *c = &b.c;
    const int64_t T = 5, Hv = c->value_heads, K = c->key_heads * c->key_width, V = Hv * c->value_width, C = 2 * K + V, D = c->hidden, S = V * c->key_width, taps = c->taps;
    GdnW w = { .qkv = matrix(&b, C, D), .z = matrix(&b, V, D), .beta = matrix(&b, Hv, D), .alpha = matrix(&b, Hv, D), .out = matrix(&b, D, V), .conv = row(&b, C * taps, -1, 1),
               .dt_bias = row(&b, Hv, -1, 1), .rate = row(&b, Hv, 0.1, 1), .norm = row(&b, c->value_width, 0.5, 1.5), .conv_right = row(&b, C * (taps - 1), -1, 1),
               .logit_scale = row(&b, Hv, 1, 5), .history_bias = row(&b, Hv, 0, 2), .history_c = row(&b, Hv, -1, 1) };
    Gdn a = { .c = c, .T = T, .x = row(&b, T * D, -1, 1), .ring = row(&b, (taps - 1) * C, -1, 1), .S0 = row(&b, S, -1, 1) };
    has(&b, 0, &a.qkv, T * C), has(&b, 0, &a.z, T * V), has(&b, 0, &a.b, T * Hv), has(&b, 0, &a.a, T * Hv), has(&b, 1, &a.beta, T * Hv), has(&b, 1, &a.g, T * Hv);
    has(&b, 2, &a.conv, T * C), has(&b, 3, &a.q, T * K), has(&b, 3, &a.k, T * K), has(&b, 3, &a.v, T * V), has(&b, 4, &a.weights, T * Hv * (T + 1));
    has(&b, 5, &a.mixed, T * V), has(&b, 5, &a.state, S), has(&b, 6, &a.gated, T * V), has(&b, 7, &a.out, T * D), has(&b, SCRATCH, &a.d, c->value_width);
    double *state = a.state, *spare = state;
    enum { STATE = 12 };
    int rules = 0;
    const int most_fails = malloc_can_fail() ? 2 : 0;
    for (const Hypothesis *h = next(NULL); h; h = next(h)) {
        HypothesisRules r = { trunk_rules, { attn_causal, attn_preview }, { gdn_causal, gdn_preview }, { moe_causal, moe_preview } };
        if (h->rules) h->rules(&r);
        for (int p = 0; p < 2; p++) {
            const GdnRules *right = p ? &gdn_preview : &gdn_causal, *now = &r.gdn[p];
            GdnRule *const rights[] = { right->project, right->gates, right->conv, right->split, right->weigh, right->mix, right->gate, right->out };
            GdnRule *const wrongs[] = { now->project, now->gates, now->conv, now->split, now->weigh, now->mix, now->gate, now->out };
            a.state = p ? NULL : state;                  /* a preview has none to write */
            b.buffer[STATE].at = p ? &spare : &a.state;
            b.buffer[STATE].slot = p ? SCRATCH : 5;
            gdn_layer(&b.run, &nobody, &w, right, &a);
            remember(&b);
            for (int slot = 0; slot < 8; slot++) {
                if (rights[slot] == wrongs[slot]) continue;
                for (int fails = 0; fails <= most_fails; fails++) {     /* the first allocation, or the second */
                    const long live = malloc_live;
                    before_rule(&b, slot);
                    if (fails) malloc_fail_after(fails - 1, true);
                    wrongs[slot](&b.run, &w, &a);
                    after_rule(&b, h->name, slot, fails && malloc_recover(), 1, 1);
                    ck_assert_int_eq(malloc_live, live);
                }
                rules++;
            }
        }
    }
    ck_assert_int_gt(rules, 60);
    end(&b);
}
END_TEST

START_TEST(moe_rules_are_pure) {
    Bench b;
    begin(&b);
    const CloverConfig *c = &b.c;
    const int64_t T = 5, D = c->hidden, E = c->experts, F = c->expert_width, Fs = c->shared_width, k = c->experts_used;
    ExpertW expert[6];
    for (int e = 0; e < 6; e++) expert[e] = (ExpertW){ matrix(&b, F, D), matrix(&b, F, D), matrix(&b, D, F) };
    MoeW w = { matrix(&b, E, D), expert, { matrix(&b, Fs, D), matrix(&b, Fs, D), matrix(&b, D, Fs) }, matrix(&b, 1, D) };
    Moe a = { .c = c, .T = T, .top_p = 0.6, .x = row(&b, T * D, -2, 2) };
    int64_t order[8];
    a.order = order;
    has(&b, 0, &a.probs, T * E), has(&b, 1, &a.coreset, E), has(&b, 2, &a.ids, T * k), has(&b, 2, &a.weights, T * k), has(&b, 3, &a.routed, T * D), has(&b, 4, &a.shared, T * D);
    has(&b, 4, &a.shared_gate, T), has(&b, 5, &a.out, T * D), has(&b, SCRATCH, &a.rows, T * D), has(&b, SCRATCH, &a.hidden, T * F), has(&b, SCRATCH, &a.up, T * F);
    has(&b, SCRATCH, &a.result, T * D), has(&b, SCRATCH, &a.totals, E);
    double *coreset = a.coreset;
    int rules = 0;
    const int most_fails = malloc_can_fail() ? 2 : 0;
    b.buffer[1].at = &coreset;
    for (const Hypothesis *h = next(NULL); h; h = next(h)) {
        HypothesisRules r = { trunk_rules, { attn_causal, attn_preview }, { gdn_causal, gdn_preview }, { moe_causal, moe_preview } };
        if (h->rules) h->rules(&r);
        for (int p = 0; p < 2; p++) {
            const MoeRules *right = p ? &moe_preview : &moe_causal, *now = &r.moe[p];
            MoeRule *const rights[] = { right->route, right->keep, right->choose, right->experts, right->shared, right->sum };
            MoeRule *const wrongs[] = { now->route, now->keep, now->choose, now->experts, now->shared, now->sum };
            a.coreset = p ? coreset : NULL;              /* a commit has none */
            b.buffer[1].slot = p ? 1 : SCRATCH;
            for (int slot = 0; slot < 6; slot++) {
                if (rights[slot] == wrongs[slot]) continue;
                moe_layer(&b.run, &nobody, &w, right, &a);
                remember(&b);
                for (int fails = 0; fails <= most_fails; fails++) {     /* the first allocation, or the second */
                    const long live = malloc_live;
                    before_rule(&b, slot);
                    if (fails) malloc_fail_after(fails - 1, true);
                    wrongs[slot](&b.run, &w, &a);
                    after_rule(&b, h->name, slot, fails && malloc_recover(), slot == 2 ? a.k : 1, slot == 2 ? k : 1);
                    ck_assert_int_eq(malloc_live, live);
                }
                rules++;
            }
        }
    }
    ck_assert_int_gt(rules, 25);
    end(&b);
}
END_TEST

/* ---- the entries -------------------------------------------------------------------------------------------------- */

START_TEST(entries_are_whole) {
    for (const Hypothesis *h = next(NULL); h; h = next(h)) {
        const char *const texts[] = { h->name, h->clause, h->stages, h->says, h->right, h->wrong, h->shows, h->needs, h->report, h->lint };
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            ck_assert_msg(texts[i] != NULL, "%s lacks text %zu", h->name, i);
            ck_assert_msg(i >= 7 || *texts[i], "%s: text %zu is empty", h->name, i);
            ck_assert_ptr_null(strchr(texts[i], '\n'));
        }
        ck_assert_msg(strcmp(h->right, h->wrong) != 0, "%s: right and wrong are the same formula", h->name);
        ck_assert_msg((h->rules != NULL) + (h->parameter != NULL) == 1, "%s has rules or a parameter", h->name);
        ck_assert_msg(h->kind == HYPOTHESIS_STAGE || h->kind == HYPOTHESIS_PARAMETER, "%s: its kind", h->name);
        ck_assert_msg(!h->observe && !h->at && !h->decoding, "%s is no stage rule", h->name);
        for (const Hypothesis *other = next(NULL); other; other = next(other)) ck_assert_msg(other == h || strcmp(other->name, h->name) != 0, "%s stands twice", h->name);
    }
}
END_TEST

static Suite *hypotheses_rules_suite(void) {
    Suite *s = suite_create("hypotheses: rules");
    TCase *t = tcase_create("rules");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, entries_are_whole);
    tcase_add_test(t, wrong_at_its_stages_and_nowhere_else);
    tcase_add_test(t, as_an_independent_model_with_that_mistake);
    tcase_add_test(t, attention_rules_are_pure);
    tcase_add_test(t, gdn_rules_are_pure);
    tcase_add_test(t, moe_rules_are_pure);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(hypotheses_rules_suite()); }
