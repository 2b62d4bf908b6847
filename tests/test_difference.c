/* test_difference.c - the figures of clover diff, against values worked out by hand. [DIF-1] */
#include <math.h>
#include <string.h>
#include "../tools/diff_parts.h"
#include "harness.h"

static Difference of(const double *actual, const double *expected, int64_t n, DType type) {
    Difference d;
    ck_assert(difference(&d, actual, expected, n, type));
    return d;
}

static void assert_near(double actual, double expected) { ck_assert_msg(close_to(actual, expected, 1e-12, 0), "%.17g, expected %.17g", actual, expected); }

/* The numbers that SPEC.md gives. */
START_TEST(figures_by_hand) {
    const double expected[4] = { 1, -2, 4, 0.5 }, actual[4] = { 1.5, -2, 3, 0.5 };
    const Difference d = of(actual, expected, 4, DT_BF16);
    assert_near(d.max, 1);
    assert_near(d.mean, 0.375);
    assert_near(d.rms, sqrt(1.25 / 4));
    assert_near(d.relative, sqrt(1.25 / 21.25));
    assert_near(d.p99, 0.5);
    assert_near(d.cosine, 17.75 / sqrt(15.5 * 21.25));   /* 1.5 + 4 + 12 + 0.25 */
    assert_near(d.ulp, 32);                              /* bf16's spacing from 4 to 8 is 2^-5 */
    ck_assert_int_eq(d.worst, 2);
    ck_assert(d.expected == 4 && d.actual == 3);
    ck_assert_int_eq(d.not_finite, 0);
}
END_TEST

START_TEST(equal_arrays) {
    const double x[3] = { 0, 1e300, -3 }, zero[2] = { 0, 0 };
    Difference d = of(x, x, 3, DT_F32);
    ck_assert(d.max == 0 && d.mean == 0 && d.rms == 0 && d.p99 == 0 && d.relative == 0 && d.cosine == 1 && d.ulp == 0);
    d = of(zero, zero, 2, DT_F32);
    ck_assert(d.relative == 0 && d.cosine == 1);
}
END_TEST

/* Nothing to be relative to: infinite, not a division by zero that passes. */
START_TEST(expected_all_zero) {
    const double zero[2] = { 0, 0 }, actual[2] = { 0, 1e-3 };
    const Difference d = of(actual, zero, 2, DT_F32);
    ck_assert(isinf(d.relative) && d.cosine == 0 && d.worst == 1);
    assert_near(d.rms, 1e-3 / sqrt(2));
}
END_TEST

START_TEST(opposite_and_unrelated_directions) {
    const double a[2] = { 1, 2 }, opposite[2] = { -1, -2 }, across[2] = { 2, -1 };
    assert_near(of(opposite, a, 2, DT_F64).cosine, -1);
    assert_near(of(across, a, 2, DT_F64).cosine + 1, 1);
}
END_TEST

/* NaN and infinity are counted and left out of the rest. */
START_TEST(not_finite_elements) {
    const double expected[4] = { 1, 2, 3, 4 }, actual[4] = { (double)NAN, 2.5, HUGE_VAL, -HUGE_VAL };
    Difference d = of(actual, expected, 4, DT_F32);
    ck_assert_int_eq(d.not_finite, 3);
    assert_near(d.max, 0.5);
    assert_near(d.mean, 0.5);
    ck_assert(d.worst == 0 && isnan(d.actual));     /* the first that is not finite is what a reader looks for */
    const double none[2] = { (double)NAN, (double)NAN };
    d = of(none, expected, 2, DT_F32);
    ck_assert_int_eq(d.not_finite, 2);
    ck_assert_int_eq(d.worst, 0);
}
END_TEST

/* 99 of 100 lie at or below: of 200 differences 0..199, the 198th; of one, itself. */
START_TEST(percentile) {
    double expected[200] = { 0 }, actual[200];
    for (int i = 0; i < 200; i++) actual[i] = (double)((i * 73) % 200);   /* 73 and 200 share no factor: a permutation */
    assert_near(of(actual, expected, 200, DT_F32).p99, 197);              /* (199 * 99) / 100 = 197.01 */
    assert_near(of(actual + 1, expected, 1, DT_F32).p99, 73);
}
END_TEST

/* The distance to the next number of the type, at the expected value. */
START_TEST(ulp_of_types) {
    static const struct { DType type; double at, spacing; } cases[] = {
        { DT_F32, 1, 0x1p-23 }, { DT_F32, 1.99, 0x1p-23 }, { DT_F32, 2, 0x1p-22 }, { DT_F32, -0.75, 0x1p-24 }, { DT_F16, 1, 0x1p-10 }, { DT_F16, 1000, 0.5 },
        { DT_BF16, 1, 0x1p-7 }, { DT_BF16, 256, 2 }, { DT_F64, 1, 0x1p-52 }, { DT_F32, 0, 0x1p-149 }, { DT_F16, 0, 0x1p-24 }, { DT_F16, 1e-6, 0x1p-24 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double expected = cases[i].at, actual = expected + 3 * cases[i].spacing;
        assert_near(of(&actual, &expected, 1, cases[i].type).ulp, 3);
    }
}
END_TEST

/* What a dump of a type would hold: nearest, ties to even. */
START_TEST(storage) {
    ck_assert(round_to_type(DT_F64, 0.1) == 0.1);
    ck_assert(round_to_type(DT_F32, 0.1) == (double)0.1f);
    ck_assert(round_to_type(DT_F16, 1 + 0x1p-11) == 1 && round_to_type(DT_F16, 1 + 3 * 0x1p-11) == 1 + 0x1p-9);   /* both are halfway */
    ck_assert(round_to_type(DT_BF16, 1 + 0x1p-8) == 1 && round_to_type(DT_BF16, 1 + 3 * 0x1p-8) == 1 + 0x1p-6);
    ck_assert(round_to_type(DT_F16, -65504) == -65504);
}
END_TEST

/* Two tokens: expected probabilities 3/4, 1/4, actual 1/2, 1/2: KL = 3/4 ln(3/2) + 1/4 ln(1/2). Logits may have any offset. */
START_TEST(kl_divergence) {
    const double expected[2] = { log(3) + 100, 100 }, actual[2] = { -7, -7 };
    LogitsFigures f;
    logits_figures(&f, actual, expected, 1, 2);
    assert_near(f.kl_max, 0.75 * log(1.5) + 0.25 * log(0.5));
    assert_near(f.kl_mean, f.kl_max);
    ck_assert_int_eq(f.argmax_differs, 0);   /* equal logits: the lower id */
    assert_near(f.top5_overlap, 1);          /* there are but two */
    ck_assert(f.regret_max == 0);
}
END_TEST

/* Row 0 is the golden's; in row 1 the first two of seven change places and the fifth and sixth. */
START_TEST(overlap_and_regret) {
    const double expected[14] = { 7, 6, 5, 4, 3, 2, 1, 7, 6.5, 5, 4, 3, 2, 1 }, actual[14] = { 7, 6, 5, 4, 3, 2, 1, 6.5, 7, 5, 4, 2, 3, 1 };
    LogitsFigures f;
    logits_figures(&f, actual, expected, 2, 7);
    ck_assert_int_eq(f.rows, 2);
    ck_assert_int_eq(f.argmax_differs, 1);
    assert_near(f.regret_max, 0.5);
    assert_near(f.top5_overlap, (1 + 0.8) / 2);
    double sum = 0, kl = 0;
    for (int i = 7; i < 14; i++) sum += exp(expected[i]);                       /* the same for both: a permutation */
    for (int i = 7; i < 14; i++) kl += exp(expected[i]) / sum * (expected[i] - actual[i]);
    assert_near(f.kl_max, kl);
    assert_near(f.kl_mean, kl / 2);
}
END_TEST

START_TEST(root_mean_square_and_largest) {
    const double x[4] = { 1, -7, 5, 5 };
    assert_near(rms_of(x, 4), 5);
    assert_near(largest_of(x, 4), 7);
    ck_assert(rms_of(x, 0) == 0 && largest_of(x, 0) == 0);
}
END_TEST

START_TEST(stages_of_probes) {
    ck_assert_str_eq(stage_of("L03.gdn.mixed"), "gdn.mixed");
    ck_assert_str_eq(stage_of("L120.out"), "out");
    ck_assert_str_eq(stage_of("logits"), "logits");
    ck_assert_str_eq(stage_of("Loud.out"), "Loud.out");
    ck_assert(is_choice("moe.ids") && is_choice("moe.coreset") && !is_choice("moe.weights"));
}
END_TEST

Suite *difference_suite(void) {
    Suite *s = suite_create("difference");
    TCase *t = tcase_create("figures");
    tcase_add_test(t, figures_by_hand);
    tcase_add_test(t, equal_arrays);
    tcase_add_test(t, expected_all_zero);
    tcase_add_test(t, opposite_and_unrelated_directions);
    tcase_add_test(t, not_finite_elements);
    tcase_add_test(t, percentile);
    tcase_add_test(t, ulp_of_types);
    tcase_add_test(t, storage);
    tcase_add_test(t, kl_divergence);
    tcase_add_test(t, overlap_and_regret);
    tcase_add_test(t, root_mean_square_and_largest);
    tcase_add_test(t, stages_of_probes);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(difference_suite()); }
