/* test_layers.c - the rules of the three layer kinds are pure: each reads what it says and writes what it says. [ATT GDN PRV MOE COR]
 * The numbers themselves are tested against vectors (test_vectors.c). */
#include <math.h>
#include <string.h>
#include "../ref/error.h"
#include "../ref/layers/layers.h"
#include "harness.h"
#include "random_model.h"

enum { MAX_BUFFERS = 32, ROWS_IN_STEP = 5 };

/* A named buffer of a layer struct: where its pointer stands, and how many doubles it has. */
typedef struct Buffer { const char *name; double **at; int64_t n; double *right; } Buffer;
typedef struct Fixture {
    CloverConfig c;
    Run run;
    CloverError err;
    Buffer buffer[MAX_BUFFERS];
    int n;
    double *owned[64];
    int n_owned;
} Fixture;

static double *own(Fixture *f, double *p) { return f->owned[f->n_owned++] = p; }

static void start(Fixture *f) {
    memset(f, 0, sizeof *f);
    f->c = (CloverConfig){ .hidden = 12, .heads = 4, .kv_heads = 2, .head_width = 6, .rotary_dims = 4, .rope_base = 1e4, .rms_eps = 1e-6, .l2_eps = 1e-6,
                           .key_heads = 2, .value_heads = 4, .key_width = 3, .value_width = 5, .taps = 3,
                           .experts = 6, .experts_used = 2, .expert_width = 7, .shared_width = 4 };
    assert_ok(run_init(&f->run, CLOVER_EXACT, &f->err), f->err);
    f->run.err = &f->err;
}

static void add(Fixture *f, const char *name, double **at, int64_t n) {
    *at = own(f, calloc((size_t)n, sizeof **at));
    f->buffer[f->n++] = (Buffer){ name, at, n, own(f, calloc((size_t)n, sizeof **at)) };
}

static void finish(Fixture *f) {
    for (int i = 0; i < f->n_owned; i++) free(f->owned[i]);
    run_free(&f->run);
}

static bool listed(const char *list, const char *name) {
    const size_t length = strlen(name);
    for (const char *p = list; (p = strstr(p, name)); p++)
        if ((p == list || p[-1] == ' ') && (p[length] == ' ' || p[length] == '\0')) return true;
    return false;
}

/* Keeps the buffers of a right run. */
static void keep_right(Fixture *f) {
    ck_assert_msg(f->err.status == CLOVER_OK, "%s", f->err.text);
    for (int i = 0; i < f->n; i++) memcpy(f->buffer[i].right, *f->buffer[i].at, (size_t)f->buffer[i].n * sizeof(double));
}

/* Before a rule: its inputs as the right run had them, everything else NaN. After: its outputs are right to the bit, and
 * nothing else was written. scratch may hold anything. */
static void before_rule(Fixture *f, const char *inputs) {
    for (int i = 0; i < f->n; i++)
        for (int64_t k = 0; k < f->buffer[i].n; k++) (*f->buffer[i].at)[k] = listed(inputs, f->buffer[i].name) ? f->buffer[i].right[k] : (double)NAN;
}

static void after_rule(Fixture *f, const char *rule, const char *inputs, const char *outputs, const char *scratch) {
    ck_assert_msg(f->err.status == CLOVER_OK, "%s: %s", rule, f->err.text);
    for (int i = 0; i < f->n; i++) {
        const Buffer *b = &f->buffer[i];
        if (listed(scratch, b->name)) continue;
        const bool known = listed(inputs, b->name) || listed(outputs, b->name);
        for (int64_t k = 0; k < b->n; k++)
            ck_assert_msg(known ? (*b->at)[k] == b->right[k] : isnan((*b->at)[k]), "%s: %s[%lld] is %g, expected %g", rule, b->name, (long long)k,
                          (*b->at)[k], known ? b->right[k] : (double)NAN);
    }
}

#define PURE(f, rule, w, a, inputs, outputs, scratch) do { \
    before_rule(f, inputs); \
    (rule)(&(f)->run, w, a); \
    after_rule(f, #rule, inputs, outputs, scratch); \
} while (0)

static const Tensor named = { .name = "random", .file = "memory" };
static const Tap nobody = { NULL, NULL, 0 };

static Matrix matrix(Fixture *f, uint64_t *seed, int64_t rows, int64_t cols) {
    Matrix m = random_matrix(seed, &named, rows, cols);
    own(f, (double *)(uintptr_t)m.data);
    return m;
}

START_TEST(attention_rules_are_pure) {
    Fixture f;
    start(&f);
    const CloverConfig *c = &f.c;
    const int64_t T = ROWS_IN_STEP, past = 3, Q = T * c->heads * c->head_width, KV = T * c->kv_heads * c->head_width;
    uint64_t seed = 7;
    AttnW w = { matrix(&f, &seed, 2 * c->heads * c->head_width, c->hidden), matrix(&f, &seed, c->kv_heads * c->head_width, c->hidden),
                matrix(&f, &seed, c->kv_heads * c->head_width, c->hidden), matrix(&f, &seed, c->hidden, c->heads * c->head_width),
                own(&f, random_row(&seed, c->head_width, 0.5, 1.5)), own(&f, random_row(&seed, c->head_width, 0.5, 1.5)) };
    Attn a = { .c = c, .T = T, .past = past, .x = own(&f, random_row(&seed, T * c->hidden, -1, 1)),
               .k_past = own(&f, random_row(&seed, past * c->kv_heads * c->head_width, -1, 1)), .v_past = own(&f, random_row(&seed, past * c->kv_heads * c->head_width, -1, 1)) };
    add(&f, "qg", &a.qg, 2 * Q), add(&f, "q", &a.q, Q), add(&f, "gate", &a.gate, Q), add(&f, "k", &a.k, KV), add(&f, "v", &a.v, KV);
    add(&f, "q_norm", &a.q_norm, Q), add(&f, "k_norm", &a.k_norm, KV), add(&f, "q_rope", &a.q_rope, Q), add(&f, "k_rope", &a.k_rope, KV);
    add(&f, "context", &a.context, Q), add(&f, "gated", &a.gated, Q), add(&f, "out", &a.out, T * c->hidden);
    add(&f, "scores", &a.scores, past + T), add(&f, "angles", &a.angles, T * c->rotary_dims);
    const AttnRules *both[] = { &attn_causal, &attn_preview };
    for (int i = 0; i < 2; i++) {
        const AttnRules *r = both[i];
        attn_layer(&f.run, &nobody, &w, r, &a);
        keep_right(&f);
        PURE(&f, r->project, &w, &a, "", "qg q gate k v", "");
        PURE(&f, r->norm, &w, &a, "q k", "q_norm k_norm", "");
        PURE(&f, r->rotate, &w, &a, "q_norm k_norm", "q_rope k_rope", "angles");
        PURE(&f, r->attend, &w, &a, "q_rope k_rope v", "context", "scores");
        PURE(&f, r->gate, &w, &a, "context gate", "gated", "");
        PURE(&f, r->out, &w, &a, "gated", "out", "");
    }
    finish(&f);
}
END_TEST

START_TEST(gdn_rules_are_pure) {
    Fixture f;
    start(&f);
    const CloverConfig *c = &f.c;
    const int64_t T = ROWS_IN_STEP, Hk = c->key_heads, Hv = c->value_heads, dk = c->key_width, dv = c->value_width, C = 2 * Hk * dk + Hv * dv;
    uint64_t seed = 8;
    GdnW w = { .qkv = matrix(&f, &seed, C, c->hidden), .z = matrix(&f, &seed, Hv * dv, c->hidden), .beta = matrix(&f, &seed, Hv, c->hidden),
               .alpha = matrix(&f, &seed, Hv, c->hidden), .out = matrix(&f, &seed, c->hidden, Hv * dv),
               .conv = own(&f, random_row(&seed, C * c->taps, -1, 1)), .dt_bias = own(&f, random_row(&seed, Hv, -1, 1)), .rate = own(&f, random_row(&seed, Hv, 0.1, 1)),
               .norm = own(&f, random_row(&seed, dv, 0.5, 1.5)), .conv_right = own(&f, random_row(&seed, C * (c->taps - 1), -1, 1)),
               .logit_scale = own(&f, random_row(&seed, Hv, 1, 5)), .history_bias = own(&f, random_row(&seed, Hv, 0, 2)), .history_c = own(&f, random_row(&seed, Hv, -1, 1)) };
    double *ring = own(&f, random_row(&seed, (c->taps - 1) * C, -1, 1)), *S0 = own(&f, random_row(&seed, Hv * dk * dv, -1, 1));
    Gdn a = { .c = c, .T = T, .x = own(&f, random_row(&seed, T * c->hidden, -1, 1)), .ring = ring, .S0 = S0 };
    add(&f, "qkv", &a.qkv, T * C), add(&f, "z", &a.z, T * Hv * dv), add(&f, "b", &a.b, T * Hv), add(&f, "a", &a.a, T * Hv);
    add(&f, "beta", &a.beta, T * Hv), add(&f, "g", &a.g, T * Hv), add(&f, "conv", &a.conv, T * C);
    add(&f, "q", &a.q, T * Hk * dk), add(&f, "k", &a.k, T * Hk * dk), add(&f, "v", &a.v, T * Hv * dv);
    add(&f, "weights", &a.weights, T * Hv * (T + 1)), add(&f, "mixed", &a.mixed, T * Hv * dv), add(&f, "gated", &a.gated, T * Hv * dv);
    add(&f, "state", &a.state, Hv * dk * dv), add(&f, "out", &a.out, T * c->hidden), add(&f, "d", &a.d, dv);
    const GdnRules *both[] = { &gdn_causal, &gdn_preview };
    for (int i = 0; i < 2; i++) {
        const GdnRules *r = both[i];
        gdn_layer(&f.run, &nobody, &w, r, &a);
        keep_right(&f);
        PURE(&f, r->project, &w, &a, "", "qkv z b a", "");
        PURE(&f, r->gates, &w, &a, "b a", "beta g", "");
        PURE(&f, r->conv, &w, &a, "qkv", "conv", "");
        PURE(&f, r->split, &w, &a, "conv", "q k v", "");
        if (r->weigh) {
            PURE(&f, r->weigh, &w, &a, "q k", "weights", "");
            PURE(&f, r->mix, &w, &a, "weights q v g", "mixed", "d");   /* not beta [PRV-6] */
        } else PURE(&f, r->mix, &w, &a, "q k v beta g", "mixed state", "d");
        PURE(&f, r->gate, &w, &a, "mixed z", "gated", "");
        PURE(&f, r->out, &w, &a, "gated", "out", "");
    }
    finish(&f);
}
END_TEST

START_TEST(moe_rules_are_pure) {
    Fixture f;
    start(&f);
    const CloverConfig *c = &f.c;
    const int64_t T = ROWS_IN_STEP, D = c->hidden, E = c->experts, k = c->experts_used;
    uint64_t seed = 9;
    ExpertW expert[6];
    for (int e = 0; e < 6; e++) expert[e] = (ExpertW){ matrix(&f, &seed, c->expert_width, D), matrix(&f, &seed, c->expert_width, D), matrix(&f, &seed, D, c->expert_width) };
    MoeW w = { matrix(&f, &seed, E, D), expert, { matrix(&f, &seed, c->shared_width, D), matrix(&f, &seed, c->shared_width, D), matrix(&f, &seed, D, c->shared_width) },
               matrix(&f, &seed, 1, D) };
    Moe a = { .c = c, .T = T, .top_p = 0.6, .x = own(&f, random_row(&seed, T * D, -2, 2)) };
    int64_t order[8];
    a.order = order;
    add(&f, "probs", &a.probs, T * E), add(&f, "coreset", &a.coreset, E), add(&f, "ids", &a.ids, T * k), add(&f, "weights", &a.weights, T * k);
    add(&f, "routed", &a.routed, T * D), add(&f, "shared", &a.shared, T * D), add(&f, "shared_gate", &a.shared_gate, T), add(&f, "out", &a.out, T * D);
    add(&f, "rows", &a.rows, T * D), add(&f, "hidden", &a.hidden, T * 7), add(&f, "up", &a.up, T * 7), add(&f, "result", &a.result, T * D);
    add(&f, "totals", &a.totals, E);
    double *coreset = a.coreset;
    const MoeRules *both[] = { &moe_preview, &moe_causal };
    for (int i = 0; i < 2; i++) {
        const MoeRules *r = both[i];
        a.coreset = i == 0 ? coreset : NULL;
        if (i == 1) f.buffer[1].at = &coreset;   /* "coreset": no buffer of a causal layer */
        moe_layer(&f.run, &nobody, &w, r, &a);
        keep_right(&f);
        PURE(&f, r->route, &w, &a, "", "probs", "");
        if (r->keep) PURE(&f, r->keep, &w, &a, "probs", "coreset", "totals");
        PURE(&f, r->choose, &w, &a, r->keep ? "probs coreset" : "probs", "ids weights", "");
        PURE(&f, r->experts, &w, &a, "ids weights", "routed", "rows hidden up result");
        PURE(&f, r->shared, &w, &a, "", "shared shared_gate", "hidden up");
        PURE(&f, r->sum, &w, &a, "routed shared shared_gate", "out", "");
    }
    finish(&f);
}
END_TEST

/* What needs exact equality, which no vector can show: ties among experts, and the coreset's bound. Probabilities are
 * given, the rules are run on them. */
typedef struct Router { CloverConfig c; double probs[8], coreset[4], ids[8], weights[8], totals[4]; int64_t order[8]; Moe a; Run run; CloverError err; } Router;
static Router router(int64_t T, int64_t k, double top_p) {
    Router r = { .c = { .experts = 4, .experts_used = k, .hidden = 1 } };
    r.a.T = T, r.a.top_p = top_p;
    r.run.storage = STORE_F64;
    return r;
}
static void wire(Router *r, bool preview) {
    r->a.c = &r->c, r->a.probs = r->probs, r->a.coreset = preview ? r->coreset : NULL, r->a.ids = r->ids, r->a.weights = r->weights, r->a.totals = r->totals, r->a.order = r->order;
    r->run.err = &r->err;
}

START_TEST(equal_probabilities_choose_the_lower_id) {   /* [MOE-1] */
    Router r = router(1, 2, -1);
    wire(&r, false);
    memcpy(r.probs, (double[]){ 0.2, 0.3, 0.2, 0.3 }, 4 * sizeof(double));
    moe_causal.choose(&r.run, NULL, &r.a);
    ck_assert(r.ids[0] == 1 && r.ids[1] == 3);
    memcpy(r.probs, (double[]){ 0.25, 0.25, 0.25, 0.25 }, 4 * sizeof(double));
    moe_causal.choose(&r.run, NULL, &r.a);
    ck_assert(r.ids[0] == 0 && r.ids[1] == 1);
    ck_assert(r.weights[0] == 0.5 && r.weights[1] == 0.5);   /* [MOE-2] */
}
END_TEST

START_TEST(coreset_bound_is_strict) {   /* [COR-3]: kept while the share before is < top_p */
    Router r = router(1, 4, 0.5);
    wire(&r, true);
    memcpy(r.probs, (double[]){ 0.125, 0.5, 0.25, 0.125 }, 4 * sizeof(double));
    moe_preview.keep(&r.run, NULL, &r.a);   /* shares before: 1: 0, 2: 0.5, which is not < 0.5 */
    ck_assert(r.coreset[0] == 0 && r.coreset[1] == 1 && r.coreset[2] == 0 && r.coreset[3] == 0);
    r.a.top_p = 0.75;                       /* before 2: 0.5 < 0.75; before 0: 0.75 is not */
    moe_preview.keep(&r.run, NULL, &r.a);
    ck_assert(r.coreset[0] == 0 && r.coreset[1] == 1 && r.coreset[2] == 1 && r.coreset[3] == 0);
    r.a.top_p = 0.80;                       /* equal totals 0 and 3: the lower id first; before 3: 0.875 */
    moe_preview.keep(&r.run, NULL, &r.a);
    ck_assert(r.coreset[0] == 1 && r.coreset[1] == 1 && r.coreset[2] == 1 && r.coreset[3] == 0);
    r.a.top_p = 0;                          /* the first is always kept */
    moe_preview.keep(&r.run, NULL, &r.a);
    ck_assert(r.coreset[0] == 0 && r.coreset[1] == 1 && r.coreset[2] == 0 && r.coreset[3] == 0);
    moe_preview.choose(&r.run, NULL, &r.a); /* [COR-4]: fewer are kept, so fewer are chosen */
    ck_assert(r.a.k == 1 && r.ids[0] == 1 && r.weights[0] == 1);
    r.a.top_p = -1;                         /* off: all */
    moe_preview.keep(&r.run, NULL, &r.a);
    ck_assert(r.coreset[0] == 1 && r.coreset[1] == 1 && r.coreset[2] == 1 && r.coreset[3] == 1);
}
END_TEST

START_TEST(coreset_votes_are_top_k_and_not_renormalised) {   /* [COR-2], two rows, k = 1 */
    Router r = router(2, 1, 0.6);
    wire(&r, true);
    /* row 0 votes expert 0 with 0.4; row 1 votes expert 2 with 0.9. Totals 0.4, 0, 0.9; shares 0.307, 0.692: before
     * expert 0 the share is 0.692, not < 0.6. Renormalised votes would be 1 and 1: both kept (0.5 < 0.6). */
    memcpy(r.probs, (double[]){ 0.4, 0.35, 0.25, 0, 0.05, 0.05, 0.9, 0 }, 8 * sizeof(double));
    moe_preview.keep(&r.run, NULL, &r.a);
    ck_assert(r.coreset[0] == 0 && r.coreset[1] == 0 && r.coreset[2] == 1 && r.coreset[3] == 0);
    moe_preview.choose(&r.run, NULL, &r.a);
    ck_assert(r.ids[0] == 2 && r.ids[1] == 2);
}
END_TEST

static Suite *layers_suite(void) {
    Suite *s = suite_create("layers");
    TCase *t = tcase_create("rules");
    tcase_add_test(t, attention_rules_are_pure);
    tcase_add_test(t, gdn_rules_are_pure);
    tcase_add_test(t, moe_rules_are_pure);
    tcase_add_test(t, equal_probabilities_choose_the_lower_id);
    tcase_add_test(t, coreset_bound_is_strict);
    tcase_add_test(t, coreset_votes_are_top_k_and_not_renormalised);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(layers_suite()); }
