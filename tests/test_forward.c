/* test_forward.c - commits, previews and the state. [STA-1, STA-2, PRV-1, LAY-1, NUM-5] */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "../ref/forward.h"
#include "harness.h"

static const char *const tiny = "tests/vectors/tiny-a/hf";
enum { V = 320, LONG = 300 };   /* LONG is more than two of commit's parts */

typedef struct Fixture { CloverError err; CloverModel *model; CloverSession *a, *b; int32_t ids[LONG]; } Fixture;

static void open_sessions(Fixture *f, const CloverSessionOptions *o) {
    *f = (Fixture){ 0 };
    assert_ok(clover_model_open(tiny, NULL, &f->model, &f->err), f->err);
    assert_ok(clover_session_new(f->model, o, &f->a, &f->err), f->err);
    assert_ok(clover_session_new(f->model, o, &f->b, &f->err), f->err);
    for (int i = 0; i < LONG; i++) f->ids[i] = (i * 37 + 11) % 256;
}

static void close_sessions(Fixture *f) {
    clover_session_free(f->a);
    clover_session_free(f->b);
    clover_model_close(f->model);
}

#define COMMIT(f, s, from, n, logits, rows) assert_ok(clover_commit(s, (f)->ids + (from), n, logits, rows, &(f)->err), (f)->err)

START_TEST(any_split_gives_the_same_bits) {   /* [STA-3] */
    Fixture f;
    open_sessions(&f, NULL);
    double *whole = malloc(LONG * V * sizeof *whole), *parts = malloc(LONG * V * sizeof *parts);
    COMMIT(&f, f.a, 0, LONG, whole, LONG);
    const uint64_t expected = clover_session_hash(f.a);
    const int splits[] = { 1, 2, 3, 21, 127, 128, 129, 150, 299 };
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        clover_session_reset(f.b);
        const int n = splits[i];
        COMMIT(&f, f.b, 0, n, parts, n);
        COMMIT(&f, f.b, n, LONG - n, parts + n * V, LONG - n);
        ck_assert_uint_eq(clover_session_hash(f.b), expected);
        ck_assert_int_eq(memcmp(whole, parts, LONG * V * sizeof *whole), 0);
    }
    clover_session_reset(f.b);
    for (int t = 0; t < LONG; t++) COMMIT(&f, f.b, t, 1, parts + t * V, 1);
    ck_assert_uint_eq(clover_session_hash(f.b), expected);
    ck_assert_int_eq(memcmp(whole, parts, LONG * V * sizeof *whole), 0);
    ck_assert_int_eq(clover_session_position(f.b), LONG);
    free(whole);
    free(parts);
    close_sessions(&f);
}
END_TEST

START_TEST(only_the_rows_asked_for) {   /* the last rows' logits, wherever commit's parts end */
    Fixture f;
    open_sessions(&f, NULL);
    double *all = malloc(LONG * V * sizeof *all), *some = malloc(LONG * V * sizeof *some);
    COMMIT(&f, f.a, 0, LONG, all, LONG);
    const int rows[] = { 0, 1, 2, 43, 44, 45, 172, 173, 299, 300 };   /* 300 = 128 + 128 + 44 */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        clover_session_reset(f.b);
        some[rows[i] * V < LONG * V ? rows[i] * V : 0] = 1234.5;
        COMMIT(&f, f.b, 0, LONG, some, rows[i]);
        ck_assert_int_eq(memcmp(all + (LONG - rows[i]) * V, some, (size_t)(rows[i] * V) * sizeof *all), 0);
        if (rows[i] < LONG) ck_assert(some[rows[i] * V] == 1234.5);   /* nothing beyond */
    }
    CloverStatus status = clover_commit(f.b, f.ids, 5, some, 6, &f.err);
    ck_assert_int_eq(status, CLOVER_USAGE);
    free(all);
    free(some);
    close_sessions(&f);
}
END_TEST

static void count(void *user, const char *name, double *data, const int64_t *shape, int dims) {
    (void)name, (void)data, (void)shape, (void)dims;
    ++*(int64_t *)user;
}

START_TEST(a_watched_step_is_the_same_step) {
    Fixture f;
    open_sessions(&f, NULL);
    double a[V], b[V];
    COMMIT(&f, f.a, 0, LONG, a, 1);
    int64_t seen = 0;
    clover_session_watch(f.b, count, &seen);
    COMMIT(&f, f.b, 0, LONG, b, 1);
    ck_assert_int_eq(memcmp(a, b, sizeof a), 0);
    ck_assert_uint_eq(clover_session_hash(f.a), clover_session_hash(f.b));
    ck_assert_int_eq(seen, 3 + 3 * 23 + 22);   /* embed, final_norm, logits; 23 stages a GDN layer, 22 an attention layer */
    close_sessions(&f);
}
END_TEST

START_TEST(previews_change_nothing) {   /* [PRV-1] [PRV-8] */
    Fixture f;
    open_sessions(&f, NULL);
    double logits[40 * V], again[40 * V];
    int32_t block[40];
    for (int i = 0; i < 40; i++) block[i] = i % 3 ? 261 : i;
    for (int prefix = 0; prefix < 30; prefix += 7) {
        const uint64_t before = clover_session_hash(f.a);
        const int sizes[] = { 1, 2, 3, 8, 32, 33, 40 };
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            assert_ok(clover_preview(f.a, block, sizes[i], logits, &f.err), f.err);
            assert_ok(clover_preview(f.a, block, sizes[i], again, &f.err), f.err);
            ck_assert_int_eq(memcmp(logits, again, (size_t)sizes[i] * V * sizeof *logits), 0);
            assert_ok(clover_preview(f.a, block, sizes[i], NULL, &f.err), f.err);
            ck_assert_uint_eq(clover_session_hash(f.a), before);
        }
        /* Nor does it show later: the other session never previewed. */
        double a[7 * V], b[7 * V];
        COMMIT(&f, f.a, prefix, 7, a, 7);
        COMMIT(&f, f.b, prefix, 7, b, 7);
        ck_assert_int_eq(memcmp(a, b, sizeof a), 0);
        ck_assert_uint_eq(clover_session_hash(f.a), clover_session_hash(f.b));
    }
    close_sessions(&f);
}
END_TEST

/* Every byte of the state that counts, in one buffer. */
static size_t state_bytes(const CloverSession *s, unsigned char **out) {
    const State *st = &s->state;
    size_t n = 0, room = 1 << 22;
    *out = malloc(room);
    for (int64_t l = 0; l < s->c.layers; l++) {
        const size_t kv = (size_t)(st->position * s->c.kv_heads * s->c.head_width) * 8, C = (size_t)(2 * s->c.key_heads * s->c.key_width + s->c.value_heads * s->c.value_width);
        const struct { const double *p; size_t bytes; } parts[] = {
            { st->layer[l].k, kv }, { st->layer[l].v, kv }, { st->layer[l].ring, (size_t)(s->c.taps - 1) * C * 8 },
            { st->layer[l].S, (size_t)(s->c.value_heads * s->c.key_width * s->c.value_width) * 8 } };
        for (int i = 0; i < 4; i++)
            if (parts[i].p) {
                ck_assert_uint_le(n + parts[i].bytes, room);
                memcpy(*out + n, parts[i].p, parts[i].bytes);
                n += parts[i].bytes;
            }
    }
    return n;
}

START_TEST(snapshots_are_values) {   /* [STA-4]: in any order, forwards and backwards in time */
    Fixture f;
    open_sessions(&f, NULL);
    CloverSnapshot *empty = NULL, *at20 = NULL, *at50 = NULL;
    double a[V], b[V];
    unsigned char *bytes20, *bytes50, *now;
    assert_ok(clover_snapshot_take(f.a, &empty, &f.err), f.err);
    const uint64_t h0 = clover_session_hash(f.a);
    COMMIT(&f, f.a, 0, 20, NULL, 0);
    assert_ok(clover_snapshot_take(f.a, &at20, &f.err), f.err);
    const size_t n20 = state_bytes(f.a, &bytes20);
    COMMIT(&f, f.a, 20, 30, NULL, 0);
    assert_ok(clover_snapshot_take(f.a, &at50, &f.err), f.err);
    const size_t n50 = state_bytes(f.a, &bytes50);
    COMMIT(&f, f.a, 50, 10, a, 1);

    assert_ok(clover_snapshot_restore(f.a, at20, &f.err), f.err);
    ck_assert_int_eq(clover_session_position(f.a), 20);
    ck_assert_uint_eq(state_bytes(f.a, &now), n20);
    ck_assert_int_eq(memcmp(now, bytes20, n20), 0);
    free(now);
    COMMIT(&f, f.a, 100, 60, NULL, 0);   /* another continuation overwrites the cache's rows */
    assert_ok(clover_snapshot_restore(f.a, at50, &f.err), f.err);
    ck_assert_uint_eq(state_bytes(f.a, &now), n50);
    ck_assert_int_eq(memcmp(now, bytes50, n50), 0);
    free(now);
    COMMIT(&f, f.a, 50, 10, b, 1);
    ck_assert_int_eq(memcmp(a, b, sizeof a), 0);
    assert_ok(clover_snapshot_restore(f.a, empty, &f.err), f.err);
    ck_assert_uint_eq(clover_session_hash(f.a), h0);
    clover_snapshot_free(empty);
    clover_snapshot_free(at20);
    clover_snapshot_free(at50);
    free(bytes20);
    free(bytes50);
    close_sessions(&f);
}
END_TEST

START_TEST(a_failed_step_leaves_no_trace) {   /* [STA-5] [LAY-1] */
    Fixture f;
    open_sessions(&f, &(CloverSessionOptions){ .numerics = CLOVER_EXACT, .capacity = 250, .coreset_top_p = -1 });
    COMMIT(&f, f.a, 0, 20, NULL, 0);
    const uint64_t before = clover_session_hash(f.a);
    const int32_t bad[] = { -1, V, INT32_MAX, INT32_MIN };
    for (int i = 0; i < 4; i++) {
        f.ids[150] = bad[i];
        assert_status(clover_commit(f.a, f.ids, 200, NULL, 0, &f.err), CLOVER_USAGE, f.err);
        ck_assert_ptr_nonnull(strstr(f.err.text, "index 150"));
        assert_status(clover_preview(f.a, f.ids + 149, 3, NULL, &f.err), CLOVER_USAGE, f.err);
    }
    f.ids[150] = 3;
    assert_status(clover_commit(f.a, f.ids, 0, NULL, 0, &f.err), CLOVER_USAGE, f.err);
    assert_status(clover_preview(f.a, f.ids, 0, NULL, &f.err), CLOVER_USAGE, f.err);
    assert_status(clover_commit(f.a, f.ids, 231, NULL, 0, &f.err), CLOVER_USAGE, f.err);   /* room for 230 more */
    ck_assert_ptr_nonnull(strstr(f.err.text, "250"));
    /* A value that overflows in the second part of a commit, after the first part is through. */
    f.model->weights.embed.type = DT_F32;
    uint8_t *copy = malloc((size_t)(V * 128 * 4));
    memcpy(copy, f.model->weights.embed.data, V * 128 * 4);
    const float nan_value = NAN;
    memcpy(copy + (5 * 128 + 17) * 4, &nan_value, 4);
    f.model->weights.embed.data = copy;
    for (int i = 0; i < 200; i++) f.ids[i] = i == 140 ? 5 : 6;
    assert_status(clover_commit(f.a, f.ids, 200, NULL, 0, &f.err), CLOVER_BAD_INPUT, f.err);
    ck_assert_ptr_nonnull(strstr(f.err.text, "embed_tokens"));
    ck_assert_uint_eq(clover_session_hash(f.a), before);
    COMMIT(&f, f.a, 0, 140, NULL, 0);   /* the NaN is not touched: fine */
    free(copy);
    close_sessions(&f);
}
END_TEST

/* Injection: what a watcher writes is what later stages read. [PRB-3] */
static void overwrite(void *user, const char *name, double *data, const int64_t *shape, int dims) {
    if (strcmp(name, user) != 0) return;
    int64_t n = 1;
    for (int i = 0; i < dims; i++) n *= shape[i];
    for (int64_t i = 0; i < n; i++) data[i] = 0.25;
}

START_TEST(watchers_can_inject) {
    const char *stages[] = { "embed", "L00.gdn.qkv", "L01.gdn.q", "L02.gdn.beta", "L03.attn.k_rope", "L03.moe.weights", "L02.out", "final_norm", "L00.gdn.state" };
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        Fixture f;
        open_sessions(&f, NULL);
        double a[2 * V], b[2 * V];
        char stage[32];
        strcpy(stage, stages[i]);
        clover_session_watch(f.b, overwrite, stage);
        COMMIT(&f, f.a, 0, 5, a, 2);
        COMMIT(&f, f.b, 0, 5, b, 2);
        if (strcmp(stage, "L00.gdn.state") != 0) ck_assert_msg(memcmp(a, b, sizeof a) != 0, "%s", stage);
        else {   /* the state shows in the next step */
            ck_assert_int_eq(memcmp(a, b, sizeof a), 0);
            ck_assert(f.b->state.layer[0].S[7] == 0.25);
        }
        if (strcmp(stage, "final_norm") == 0) ck_assert_int_eq(memcmp(b, b + V, V * sizeof *b), 0);   /* all rows alike now */
        close_sessions(&f);
    }
}
END_TEST

START_TEST(fast_and_bf16_are_near) {   /* [NUM-5]; bf16: near, and different */
    Fixture f;
    open_sessions(&f, NULL);
    const CloverNumerics kinds[] = { CLOVER_FAST, CLOVER_BF16 };
    for (int k = 0; k < 2; k++) {
        CloverSession *other = NULL;
        clover_session_reset(f.a);
        assert_ok(clover_session_new(f.model, &(CloverSessionOptions){ kinds[k], 400, -1 }, &other, &f.err), f.err);
        double *a = malloc(60 * V * sizeof *a), *b = malloc(60 * V * sizeof *b), scale = 0, worst = 0;
        for (int step = 0; step < 3; step++) {
            const int64_t n = step == 0 ? 60 : step == 1 ? 1 : 32;
            for (int who = 0; who < 2; who++) {
                CloverSession *s = who ? other : f.a;
                double *to = who ? b : a;
                if (step < 2) assert_ok(clover_commit(s, f.ids + 60 * step, n, to, n, &f.err), f.err);
                else assert_ok(clover_preview(s, f.ids, n, to, &f.err), f.err);
            }
            for (int64_t i = 0; i < n * V; i++) {
                scale = fmax(scale, fabs(a[i]));
                worst = fmax(worst, fabs(a[i] - b[i]));
            }
        }
        if (kinds[k] == CLOVER_FAST) ck_assert_msg(worst < 1e-4 * scale, "fast: %g of %g", worst, scale);
        else ck_assert_msg(worst > 1e-4 * scale, "bf16: %g of %g", worst, scale);
        free(a);
        free(b);
        clover_session_free(other);
    }
    close_sessions(&f);
}
END_TEST

START_TEST(sizes_that_no_machine_has) {
    Fixture f;
    open_sessions(&f, NULL);
    CloverSession *s = NULL;
    CloverSessionOptions o = clover_session_defaults();
    o.capacity = INT64_MAX / 4;
    assert_status(clover_session_new(f.model, &o, &s, &f.err), CLOVER_SYSTEM, f.err);
    o.capacity = (int64_t)1 << 36;   /* 64 TiB */
    assert_status(clover_session_new(f.model, &o, &s, &f.err), CLOVER_SYSTEM, f.err);
    ck_assert_ptr_nonnull(strstr(f.err.text, "memory"));
    o.capacity = 0;
    assert_status(clover_session_new(f.model, &o, &s, &f.err), CLOVER_USAGE, f.err);
    ck_assert_ptr_null(s);
    close_sessions(&f);
}
END_TEST

static Suite *forward_suite(void) {
    Suite *s = suite_create("forward");
    TCase *t = tcase_create("state");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, any_split_gives_the_same_bits);
    tcase_add_test(t, only_the_rows_asked_for);
    tcase_add_test(t, a_watched_step_is_the_same_step);
    tcase_add_test(t, previews_change_nothing);
    tcase_add_test(t, snapshots_are_values);
    tcase_add_test(t, a_failed_step_leaves_no_trace);
    tcase_add_test(t, watchers_can_inject);
    tcase_add_test(t, fast_and_bf16_are_near);
    tcase_add_test(t, sizes_that_no_machine_has);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(forward_suite()); }
