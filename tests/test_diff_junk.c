/* test_diff_junk.c - a right dump in which one array is spoilt: never a conforming engine. [DIF-4, DIF-6] */
#include <math.h>
#include "../ref/files/quant.h"
#include "judged.h"

#ifdef __SANITIZE_ADDRESS__
enum { EVERY = 180 };                 /* sanitizers are slow: a part of the stages */
#else
enum { EVERY = 23 };
#endif

typedef struct Spoil { const char *step, *probe; int how; bool done; } Spoil;

static void zeros(double *x, int64_t n, int64_t row) { (void)row; memset(x, 0, (size_t)n * sizeof *x); }
static void negated(double *x, int64_t n, int64_t row) {
    (void)row;
    for (int64_t i = 0; i < n; i++) x[i] = -x[i];
}
static void noise(double *x, int64_t n, int64_t row) {
    (void)row;
    const double size = rms_of(x, n);
    uint32_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] += 0.1 * size * ((double)state / 4294967296.0 - 0.5);
    }
}
static void one_element(double *x, int64_t n, int64_t row) { (void)row; x[n / 2] += 0.25 * rms_of(x, n) + 1e-3; }
static void rows_shifted(double *x, int64_t n, int64_t row) { memmove(x + row, x, (size_t)(n - row) * sizeof *x); }
static void blown_up(double *x, int64_t n, int64_t row) {
    (void)row;
    for (int64_t i = 0; i < n; i++) x[i] = (i % 3 ? 1e9 : -1e8) * (x[i] + 1);
}
static const struct { const char *name; void (*spoil)(double *x, int64_t n, int64_t row); } ways[] = {
    { "zeros", zeros }, { "negated", negated }, { "noise", noise }, { "one element", one_element }, { "rows shifted", rows_shifted }, { "blown up", blown_up } };

static void spoil(void *user, const char *step, const char *probe, double *data, const int64_t *shape, int dims) {
    Spoil *s = user;
    if (strcmp(step, s->step) != 0 || strcmp(probe, s->probe) != 0) return;
    int64_t n = 1;
    for (int i = 0; i < dims; i++) n *= shape[i];
    double *was = malloc((size_t)n * sizeof *was);
    memcpy(was, data, (size_t)n * sizeof *was);
    ways[s->how].spoil(data, n, n / shape[0]);
    s->done = memcmp(was, data, (size_t)n * sizeof *was) != 0;
    free(was);
}

/* Every stage of every layer, spoilt in one of the ways, all the rest being right: the spoilt stage is the first divergence. */
START_TEST(one_spoilt_array) {
    Judged *j = judged_new("a-hf");
    Engine e = engine_of(&shapes[0], NULL, DT_F32);
    Spoil s = { .how = _i };
    engine_dump(j->model, &e, judged_folder);
    const DiffResult *all = judge(j);
    const int64_t n = all->n_probes;
    struct { char step[32], probe[48]; } *stage = calloc((size_t)n, sizeof *stage);
    for (int64_t i = 0; i < n; i++) {
        snprintf(stage[i].step, sizeof stage[i].step, "%s", all->probe[i].step);
        snprintf(stage[i].probe, sizeof stage[i].probe, "%s", all->probe[i].probe);
    }
    e.shows = spoil;
    e.user = &s;
    int64_t spoilt = 0;
    for (int64_t i = _i % EVERY; i < n; i += EVERY) {
        if (is_choice(stage_of(stage[i].probe))) continue;
        s.step = stage[i].step, s.probe = stage[i].probe, s.done = false;
        engine_dump(j->model, &e, judged_folder);
        if (!s.done) continue;                       /* the first ring rows, say, are zero already */
        spoilt++;
        char what[128];
        snprintf(what, sizeof what, "%s in %s of %s", ways[_i].name, s.probe, s.step);
        judge(j);
        assert_first(j, what, s.step, s.probe);
    }
    ck_assert_int_ge(spoilt, n / EVERY * 3 / 4);
    free(stage);
    judged_free(j);
}
END_TEST

/* ---- files that are broken: no verdict ------------------------------------------------------------------------------- */

static bool nothing_but_block(void *user, const char *step, const char *probe) {
    (void)user;
    return strcmp(step, "block") != 0 && *probe != '\0' ? strcmp(probe, "embed") == 0 : strcmp(step, "block") != 0;
}

/* A folder of .npy files beside: one of them cut short, of an unknown type, or not one at all. */
START_TEST(broken_npy) {
    static const char header[] = "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (6, 48), }                                                         \n";
    char folder[512], path[600], bytes[128 + 4 * 6 * 48] = { 0 };
    Judged *j = judged_new("a-hf");
    Engine e = engine_of(&shapes[0], NULL, DT_F32);
    e.wants = nothing_but_block;
    engine_dump(j->model, &e, judged_folder);
    snprintf(folder, sizeof folder, "%s/block", judged_folder);
    snprintf(path, sizeof path, "%s/embed.npy", folder);
    mkdir(folder, 0777);
    ck_assert_uint_eq(sizeof header - 1, 128);
    for (int i = 0; i < 4; i++) {
        memcpy(bytes, header, 128);
        if (i == 1) memcpy(strstr(bytes + 10, "<f4"), "|O8", 3);
        if (i == 2) bytes[0] = 'x';
        write_file(path, bytes, i == 0 ? sizeof bytes - 1 : sizeof bytes);
        const DiffResult *r = judge(j);
        if (i == 3) {                                /* whole: zeros, a finding */
            assert_first(j, "zeros", "block", "embed");
            ck_assert_int_eq(r->n_missing, 0);
            continue;
        }
        ck_assert_msg(j->status == CLOVER_BAD_INPUT, "%d: %s", i, j->err.text);
        assert_says(j->err, "embed.npy");
    }
    judged_free(j);
}
END_TEST

/* ---- the llama.cpp profile's float16 cache [DIF-2] --------------------------------------------------------------------- */

/* Keys and values rounded to float16 before they are read: beyond the profile's budget unless it has such a cache. */
static void attend_half(Run *run, const AttnW *w, Attn *a) {
    const int64_t n = a->c->kv_heads * a->c->head_width, past = a->past * n, now = a->T * n;
    double *half = malloc((size_t)(2 * (past + now)) * sizeof *half);
    double *const at[4] = { half, half + past, half + 2 * past, half + 2 * past + now };
    const double *const from[4] = { a->k_past, a->v_past, a->k_rope, a->v };
    for (int k = 0; k < 4; k++)
        for (int64_t i = 0; i < (k < 2 ? past : now); i++) at[k][i] = half_to_double(half_from_float((float)from[k][i]));
    Attn other = *a;
    other.k_past = at[0], other.v_past = at[1], other.k_rope = at[2], other.v = at[3];
    attn_causal.attend(run, w, &other);
    free(half);
}
static void set_half(EngineRules *r) { r->attn[0].attend = attend_half; }
static const Fault half_cache = { .name = "float16 cache", .rules = set_half };

START_TEST(float16_cache) {
    Judged *j = judged_new("a-hf");
    Engine e = engine_of(&shapes[0], &half_cache, DT_F32);
    j->options.profile = CLOVER_LLAMA_CPP;
    engine_dump(j->model, &e, judged_folder);
    judge(j);
    assert_first(j, "float16 cache", "prompt", "L03.attn.context");
    j->options.half_cache = true;
    judge(j);
    assert_conforms(j, "float16 cache, said");
    ck_assert(notes(&j->result, "a fault smaller than that does not show"));
    judged_free(j);
}
END_TEST

Suite *diff_junk_suite(void) {
    Suite *s = suite_create("diff_junk");
    TCase *t = tcase_create("spoilt arrays");
    tcase_add_unchecked_fixture(t, judged_make_two, judged_remove);
    tcase_add_checked_fixture(t, judged_setup, judged_teardown);
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, one_spoilt_array, 0, (int)(sizeof ways / sizeof *ways));
    tcase_add_test(t, broken_npy);
    tcase_add_test(t, float16_cache);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(diff_junk_suite()); }
