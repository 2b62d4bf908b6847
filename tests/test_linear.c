/* test_linear.c - matrix products: the written order of summation, head maps, refusals. [NUM-2, NUM-5, NUM-7, NUM-8, TEN-7] */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "../ref/error.h"
#include "../ref/math/kernels.h"
#include "../ref/math/linear.h"
#include "harness.h"
#include "random_model.h"

static Tensor named = { .name = "some.weight", .file = "some.gguf" };

/* NUM-2 written as its sentence says it, element by element. */
static double by_definition(const double *w, const double *x, int64_t n) {
    double lane[16] = { 0 };
    for (int64_t c = 0; c < n; c++) lane[c % 16] = lane[c % 16] + w[c] * x[c];
    for (int l = 0; l < 8; l++) lane[l] += lane[l + 8];
    for (int l = 0; l < 4; l++) lane[l] += lane[l + 4];
    for (int l = 0; l < 2; l++) lane[l] += lane[l + 2];
    return lane[0] + lane[1];
}

START_TEST(exact_order) {
    uint64_t seed = 1;
    CloverError err = { .status = CLOVER_OK };
    Run run;
    assert_ok(run_init(&run, CLOVER_EXACT, &err), err);
    run.err = &err;
    const int64_t widths[] = { 1, 7, 15, 16, 17, 31, 32, 33, 64, 100, 257, 1000 }, rows_of_x[] = { 1, 2, 3, 4, 5, 9 };
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (size_t k = 0; k < sizeof rows_of_x / sizeof *rows_of_x; k++) {
            const int64_t cols = widths[i], T = rows_of_x[k], rows = 3;
            Matrix w = random_matrix(&seed, &named, rows, cols);
            double *x = random_row(&seed, T * cols, -2, 2), y[9 * 3];
            linear(&run, &w, x, T, y);
            for (int64_t t = 0; t < T; t++)
                for (int64_t r = 0; r < rows; r++)
                    ck_assert_msg(y[t * rows + r] == by_definition((const double *)w.data + r * cols, x + t * cols, cols),
                                  "cols %lld, row %lld of x, row %lld of w", (long long)cols, (long long)t, (long long)r);
            free((void *)(uintptr_t)w.data);
            free(x);
        }
    run_free(&run);
}
END_TEST

#if defined(__x86_64__)
extern const Kernels kernels_baseline, kernels_avx2, kernels_avx512;
START_TEST(instruction_sets_agree) {
    const Kernels *best = kernels_best();
    uint64_t seed = 5;
    double *w = random_row(&seed, 4099, -1, 1), *x = random_row(&seed, 5 * 4099, -1, 1), a[5], b[5];
    kernels_baseline.dot(w, x, 4099, 5, 4099, a, 1);
    best->dot(w, x, 4099, 5, 4099, b, 1);
    ck_assert_int_eq(memcmp(a, b, sizeof a), 0);
    if (best == &kernels_avx512) {
        kernels_avx2.dot(w, x, 4099, 5, 4099, b, 1);
        ck_assert_int_eq(memcmp(a, b, sizeof a), 0);
    }
    const DType types[] = { DT_F32, DT_F16, DT_BF16, DT_F64, DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1, DT_Q8_0, DT_Q2_K, DT_Q3_K, DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_IQ4_NL, DT_IQ4_XS };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        uint8_t raw[8192];
        double da[512], db[512];
        float fa[512], fb[512];
        for (size_t k = 0; k < sizeof raw; k++) raw[k] = (uint8_t)random_bits(&seed);
        kernels_baseline.decode(types[i], raw, 512, da), best->decode(types[i], raw, 512, db);
        kernels_baseline.decode_float(types[i], raw, 512, fa), best->decode_float(types[i], raw, 512, fb);
        for (int k = 0; k < 512; k++) {
            ck_assert_msg(da[k] == db[k] || (isnan(da[k]) && isnan(db[k])), "%s element %d", dtype_info(types[i])->name, k);
            ck_assert_msg(fa[k] == fb[k] || (isnan(fa[k]) && isnan(fb[k])), "%s element %d", dtype_info(types[i])->name, k);
        }
    }
    free(w);
    free(x);
}
END_TEST
#endif

/* A matrix whose rows (or columns) the file keeps tiled gives the bits of one that keeps them in HF's order. */
START_TEST(head_order_is_a_map) {
    uint64_t seed = 2;
    CloverError err = { .status = CLOVER_OK };
    const HeadMap map = { .start = 5, .width = 3, .Hk = 2, .r = 3 };   /* 5 + 2*3*3 = 23 */
    const CloverNumerics kinds[] = { CLOVER_EXACT, CLOVER_FAST };
    for (int kind = 0; kind < 2; kind++) {
        Run run;
        assert_ok(run_init(&run, kinds[kind], &err), err);
        run.err = &err;
        for (int columns = 0; columns < 2; columns++) {
            const int64_t rows = columns ? 4 : 23, cols = columns ? 23 : 4, T = 6;
            Matrix plain = random_matrix(&seed, &named, rows, cols), tiled = plain;
            double *moved = malloc(23 * 4 * sizeof *moved), *x = random_row(&seed, T * cols, -1, 1), a[6 * 23], b[6 * 23];
            /* HF head h = g*3 + j lies at GGUF head j*2 + g (facts: GGUF head p is HF head (p mod 2)*3 + p div 2). */
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < cols; c++) {
                    const int64_t i = columns ? c : r;
                    int64_t to = i;
                    if (i >= 5) {
                        const int64_t h = (i - 5) / 3;
                        to = 5 + ((h % 3) * 2 + h / 3) * 3 + (i - 5) % 3;
                    }
                    moved[columns ? r * cols + to : to * cols + c] = ((const double *)plain.data)[r * cols + c];
                }
            tiled.data = (const uint8_t *)moved;
            if (columns) tiled.col_map = map;
            else tiled.row_map = map;
            linear(&run, &plain, x, T, a);
            linear(&run, &tiled, x, T, b);
            ck_assert_int_eq(err.status, CLOVER_OK);
            ck_assert_int_eq(memcmp(a, b, (size_t)(T * rows) * sizeof *a), 0);
            free((void *)(uintptr_t)plain.data);
            free(moved);
            free(x);
        }
        run_free(&run);
    }
}
END_TEST

START_TEST(head_map_inverts_the_facts) {   /* GGUF head p is HF head (p mod Hk)*r + p div Hk */
    const HeadMap map = { .start = 0, .width = 1, .Hk = 4, .r = 3 };
    for (int64_t p = 0; p < 12; p++) ck_assert_int_eq(head_map(&map, p % 4 * 3 + p / 4), p);
}
END_TEST

START_TEST(fast_is_close) {
    uint64_t seed = 3;
    CloverError err = { .status = CLOVER_OK };
    Run exact, fast;
    assert_ok(run_init(&exact, CLOVER_EXACT, &err), err);
    assert_ok(run_init(&fast, CLOVER_FAST, &err), err);
    exact.err = fast.err = &err;
    const int64_t T_of[] = { 1, 3, 40 };
    for (int i = 0; i < 3; i++) {
        const int64_t T = T_of[i], rows = 300, cols = 515;   /* several panels */
        Matrix w = random_matrix(&seed, &named, rows, cols);
        double *x = random_row(&seed, T * cols, -1, 1), *a = malloc((size_t)(T * rows) * 8), *b = malloc((size_t)(T * rows) * 8);
        linear(&exact, &w, x, T, a);
        linear(&fast, &w, x, T, b);
        for (int64_t k = 0; k < T * rows; k++) ck_assert_msg(fabs(a[k] - b[k]) < 1e-5 * sqrt((double)cols), "%lld: %g %g", (long long)k, a[k], b[k]);
        free((void *)(uintptr_t)w.data);
        free(x), free(a), free(b);
    }
    run_free(&exact);
    run_free(&fast);
}
END_TEST

START_TEST(bf16_rounds_results) {   /* 1 + 2^-9 is no bfloat16: ties to even, 1 */
    CloverError err = { .status = CLOVER_OK };
    Run run;
    assert_ok(run_init(&run, CLOVER_BF16, &err), err);
    run.err = &err;
    const double one[1] = { 1.0 }, x[2] = { 1.0 + 0x1p-9, 1.0 + 0x1.8p-8 };
    const Matrix w = { .tensor = &named, .data = (const uint8_t *)one, .type = DT_F64, .rows = 1, .cols = 1, .row_bytes = 8 };
    double y[2];
    linear(&run, &w, x, 2, y);
    ck_assert(y[0] == 1.0);
    ck_assert(y[1] == 1.0 + 0x1p-7);
    run_free(&run);
}
END_TEST

/* [NUM-8] by hand. float32: 2^24 + 1 + 1 is 2^24 when added one by one, 2^24 + 2 when the ones meet first. The worse of
 * the two orders is asked for, and lanes keep 2^24 and the ones apart until the end, where (2^24 + 1) + 1 rounds too. */
START_TEST(float32_profile_loses_what_float32_loses) {
    CloverError err = { .status = CLOVER_OK };
    Run run;
    assert_ok(run_init(&run, CLOVER_F32, &err), err);
    run.err = &err;
    double w[3] = { 1, 1, 1 }, x[3] = { 0x1p24, 1, 1 }, y[1];
    Matrix m = { .tensor = &named, .data = (const uint8_t *)w, .type = DT_F64, .rows = 1, .cols = 3, .row_bytes = 24 };
    named.data = m.data;
    linear(&run, &m, x, 1, y);
    ck_assert(y[0] == 0x1p24);
    run_free(&run);
}
END_TEST

/* [NUM-8]: a row (127, 63.6, -0.4, 0 ...) meets a Q8_0 weight in steps of 127/127 = 1: as (127, 64, 0, 0 ...). A BF16
 * weight sees 1 + 2^-9 as 1; an F32 one sees it whole. */
START_TEST(llama_cpp_profile_quantises_activations) {
    CloverError err = { .status = CLOVER_OK };
    Run run;
    assert_ok(run_init(&run, CLOVER_LLAMA_CPP, &err), err);
    run.err = &err;
    uint8_t block[34] = { 0x00, 0x3C };   /* d = 1 */
    for (int i = 0; i < 3; i++) block[2 + i] = (uint8_t)(i + 1);
    double x[32] = { 127, 63.6, -0.4 }, y[1];
    Matrix q8 = { .tensor = &named, .data = block, .type = DT_Q8_0, .rows = 1, .cols = 32, .row_bytes = 34 };
    named.data = block;
    linear(&run, &q8, x, 1, y);
    ck_assert_msg(y[0] == 127 + 2 * 64, "%g", y[0]);
    const uint16_t one_bf16 = 0x3F80;
    const float one = 1;
    double near_one = 1 + 0x1p-9;
    Matrix bf16 = { .tensor = &named, .data = (const uint8_t *)&one_bf16, .type = DT_BF16, .rows = 1, .cols = 1, .row_bytes = 2 };
    named.data = bf16.data;
    linear(&run, &bf16, &near_one, 1, y);
    ck_assert(y[0] == 1);
    Matrix f32 = { .tensor = &named, .data = (const uint8_t *)&one, .type = DT_F32, .rows = 1, .cols = 1, .row_bytes = 4 };
    named.data = f32.data;
    linear(&run, &f32, &near_one, 1, y);
    ck_assert(y[0] == 1 + 0x1p-9);
    run_free(&run);
}
END_TEST

START_TEST(refusals) {
    CloverError err = { .status = CLOVER_OK };
    for (int fast = 0; fast < 2; fast++) {
        Run run;
        assert_ok(run_init(&run, fast ? CLOVER_FAST : CLOVER_EXACT, &err), err);
        double data[6] = { 1, 2, 3, 4, (double)NAN, 6 }, x[3] = { 1, 0, 0 }, y[2];
        Matrix w = { .tensor = &named, .data = (const uint8_t *)data, .type = DT_F64, 
                     .rows = 2, .cols = 3, .row_bytes = 24 };
        named.data = w.data;
        run.err = &err;
        linear(&run, &w, x, 1, y);   /* NaN * 0 is NaN: touched */
        ck_assert_int_eq(err.status, CLOVER_BAD_INPUT);
        ck_assert_ptr_nonnull(strstr(err.text, "some.weight"));
        ck_assert_ptr_nonnull(strstr(err.text, "NaN"));
        ck_assert_ptr_nonnull(strstr(err.text, "row 1, column 1"));
        ck_assert(y[0] == 0 && y[1] == 0);

        error_clear(&err);
        data[4] = 5;
        x[1] = (double)INFINITY;
        linear(&run, &w, x, 1, y);
        ck_assert_int_eq(err.status, CLOVER_BAD_INPUT);
        ck_assert_ptr_nonnull(strstr(err.text, "not finite"));

        error_clear(&err);
        x[1] = 1e308, x[2] = 1e308;
        linear(&run, &w, x, 1, y);
        ck_assert_int_eq(err.status, CLOVER_BAD_INPUT);

        error_clear(&err);
        w.type = (DType)16;   /* IQ2_XXS: known, not decodable */
        linear(&run, &w, x, 1, y);
        ck_assert_int_eq(err.status, CLOVER_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(err.text, "IQ2_XXS"));
        error_clear(&err);
        run_free(&run);
    }
}
END_TEST

static Suite *linear_suite(void) {
    Suite *s = suite_create("linear");
    TCase *t = tcase_create("linear");
    tcase_add_test(t, exact_order);
#if defined(__x86_64__)
    tcase_add_test(t, instruction_sets_agree);
#endif
    tcase_add_test(t, head_order_is_a_map);
    tcase_add_test(t, head_map_inverts_the_facts);
    tcase_add_test(t, fast_is_close);
    tcase_add_test(t, bf16_rounds_results);
    tcase_add_test(t, float32_profile_loses_what_float32_loses);
    tcase_add_test(t, llama_cpp_profile_quantises_activations);
    tcase_add_test(t, refusals);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(linear_suite()); }
