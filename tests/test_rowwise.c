/* test_rowwise.c - norms, activations and softmax against MPFR and by hand. [ROW] */
#include "../ref/math/rowwise.h"

#include <math.h>
#include <mpfr.h>
#include "harness.h"
#include "random.h"

static bool same(double a, double b) { return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0; }

/* |found / truth - 1| in units of 2^-53. */
static double relative_error(double found, mpfr_srcptr truth) {
    mpfr_t d;
    mpfr_init2(d, 120);
    mpfr_set_d(d, found, MPFR_RNDN);
    mpfr_sub(d, d, truth, MPFR_RNDN);
    mpfr_div(d, d, truth, MPFR_RNDN);
    double error = fabs(mpfr_get_d(d, MPFR_RNDN)) * 0x1p53;
    mpfr_clear(d);
    return error;
}

/* ---- sigmoid, SiLU, softplus -------------------------------------------------------------------------------------------- */

static void true_sigmoid(mpfr_ptr r, double x) {    /* 1 / (1 + e^-x) */
    mpfr_set_d(r, -x, MPFR_RNDN);
    mpfr_exp(r, r, MPFR_RNDN);
    mpfr_add_ui(r, r, 1, MPFR_RNDN);
    mpfr_ui_div(r, 1, r, MPFR_RNDN);
}

START_TEST(activations_against_mpfr) {    /* [ROW-3] [ROW-4] */
    mpfr_t truth;
    mpfr_init2(truth, 1300);              /* 1 + e^x with e^x down to 2^-1022 */
    uint64_t random = 1;
    for (int i = 0; i < 3000; i++) {
        double x = i % 3 == 0 ? random_between(&random, -700.0, 700.0) : i % 3 == 1 ? random_between(&random, -30.0, 30.0)
                 : (i & 1 ? -1.0 : 1.0) * random_magnitude(&random, -60, 2);
        true_sigmoid(truth, x);
        double error = relative_error(sigmoid(x), truth);
        ck_assert_msg(error <= 4.0, "sigmoid(%a) is %g units off", x, error);
        mpfr_mul_d(truth, truth, x, MPFR_RNDN);
        error = relative_error(silu(x), truth);
        ck_assert_msg(error <= 6.0, "silu(%a) is %g units off", x, error);
        if (x > 20.0) {
            ck_assert(same(softplus(x), x));
        } else {
            mpfr_set_d(truth, x, MPFR_RNDN);
            mpfr_exp(truth, truth, MPFR_RNDN);
            mpfr_log1p(truth, truth, MPFR_RNDN);
            error = relative_error(softplus(x), truth);
            ck_assert_msg(error <= 4.0, "softplus(%a) is %g units off", x, error);
        }
    }
    mpfr_clear(truth);
    mpfr_free_cache();
}
END_TEST

START_TEST(activations_at_the_ends) {
    ck_assert(same(sigmoid(0.0), 0.5) && same(sigmoid(-0.0), 0.5));
    ck_assert(same(sigmoid(800.0), 1.0) && same(sigmoid(INFINITY), 1.0));
    ck_assert(same(sigmoid(-800.0), 0.0) && same(sigmoid(-INFINITY), 0.0));
    ck_assert(sigmoid(-745.0) > 0.0 && sigmoid(-745.0) < 1e-323);
    ck_assert(isnan(sigmoid(NAN)) && isnan(silu(NAN)) && isnan(softplus(NAN)));
    ck_assert(same(silu(0.0), 0.0) && same(silu(-0.0), -0.0));
    ck_assert(same(silu(1e300), 1e300) && same(silu(INFINITY), INFINITY));
    ck_assert(same(silu(-1e300), -0.0) && same(silu(-INFINITY), -0.0));
    ck_assert(same(softplus(-INFINITY), 0.0) && same(softplus(INFINITY), INFINITY) && same(softplus(1e300), 1e300));
    ck_assert(same(softplus(0.0), 0x1.62e42fefa39efp-1));    /* ln 2 */
    /* The bend at 20: ln(1 + e^20) = 20.0000000020611536 from MPFR; just above, x itself. */
    ck_assert(close_to(softplus(20.0), 20.0000000020611536, 1e-15, 0.0));
    ck_assert(same(softplus(nextafter(20.0, 21.0)), nextafter(20.0, 21.0)));
}
END_TEST

/* ---- norms ------------------------------------------------------------------------------------------------------------- */

START_TEST(rms_norm_by_hand) {            /* [ROW-1]: mean of squares (1 + 4 + 4 + 0) / 4 = 2.25; 2.25 + 4 = 6.25, root 2.5 */
    const double x[4] = { 1.0, -2.0, 2.0, 0.0 }, w[4] = { 2.0, 1.0, -0.5, 7.0 };
    double y[4];
    rms_norm(y, x, w, 4, 4.0);
    const double expected[4] = { 0.8, -0.8, -0.4, 0.0 };
    for (int i = 0; i < 4; i++) ck_assert_msg(close_to(y[i], expected[i], 4e-16, 0.0), "element %d is %g", i, y[i]);
    rms_norm(y, x, NULL, 4, 4.0);
    const double plain[4] = { 0.4, -0.8, 0.8, 0.0 };
    for (int i = 0; i < 4; i++) ck_assert_msg(close_to(y[i], plain[i], 4e-16, 0.0), "element %d without w is %g", i, y[i]);
    memcpy(y, x, sizeof y);
    rms_norm(y, y, w, 4, 4.0);            /* in place */
    for (int i = 0; i < 4; i++) ck_assert_msg(close_to(y[i], expected[i], 4e-16, 0.0), "element %d in place is %g", i, y[i]);
}
END_TEST

START_TEST(l2_norm_by_hand) {             /* [ROW-2]: sum of squares 9; 9 + 7 = 16, root 4: the sum, and epsilon inside */
    const double x[4] = { 1.0, -2.0, 2.0, 0.0 };
    double y[4];
    l2_norm(y, x, 4, 7.0);
    const double expected[4] = { 0.25, -0.5, 0.5, 0.0 };
    for (int i = 0; i < 4; i++) ck_assert(same(y[i], expected[i]));
    memcpy(y, x, sizeof y);
    l2_norm(y, y, 4, 7.0);
    for (int i = 0; i < 4; i++) ck_assert(same(y[i], expected[i]));
    const double zero[3] = { 0.0, 0.0, -0.0 };
    l2_norm(y, zero, 3, 1e-6);
    ck_assert(y[0] == 0.0 && y[1] == 0.0 && y[2] == 0.0);
}
END_TEST

START_TEST(nan_spoils_a_norm) {
    const double x[3] = { 1.0, NAN, 2.0 };
    double y[3];
    rms_norm(y, x, NULL, 3, 1e-6);
    for (int i = 0; i < 3; i++) ck_assert(isnan(y[i]));
    l2_norm(y, x, 3, 1e-6);
    for (int i = 0; i < 3; i++) ck_assert(isnan(y[i]));
}
END_TEST

/* Sums in ascending order: 2^53 + 1 + 1 loses both ones, 1 + 1 + 2^53 loses none. [NUM-3] */
START_TEST(sums_ascend) {
    const double ones[3] = { 1.0, 1.0, 1.0 }, down[3] = { 0x1p53, 1.0, 1.0 }, up[3] = { 1.0, 1.0, 0x1p53 };
    ck_assert(same(dot_ascending(down, ones, 3), 0x1p53));
    ck_assert(same(dot_ascending(up, ones, 3), 0x1p53 + 2.0));
    ck_assert(same(dot_ascending(up, ones, 0), 0.0));

    /* In a norm: 8 + 2^54 keeps the 8 that 2^54 + 1 + 1 + ... loses one by one; epsilon -2^54 leaves what was kept. */
    double first[9] = { 0x1p27, 1, 1, 1, 1, 1, 1, 1, 1 }, last[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 0x1p27 }, y[9];
    l2_norm(y, last, 9, -0x1p54);
    ck_assert(close_to(y[0], 0.35355339059327376, 4e-16, 0.0));    /* 1 / sqrt(8) */
    l2_norm(y, first, 9, -0x1p54);
    ck_assert(isinf(y[0]));

    /* In softmax: e^-36.8 = 1.04e-16 is less than half an ulp of 1. */
    double large_first[9] = { 0.0 }, large_last[9];
    for (int i = 0; i < 8; i++) large_first[1 + i] = large_last[i] = -36.8;
    large_last[8] = 0.0;
    softmax(large_first, 9);
    softmax(large_last, 9);
    ck_assert(same(large_first[0], 1.0) && large_last[8] < 1.0);
}
END_TEST

/* ---- softmax ----------------------------------------------------------------------------------------------------------- */

START_TEST(softmax_values) {              /* [ROW-5] */
    double x[4] = { 1.0, 3.0, -INFINITY, 2.0 };
    softmax(x, 4);
    /* e^-2, 1, e^-1 over their sum 1.5032147244080551, from MPFR. */
    ck_assert(close_to(x[0], 0.090030573170380458, 5e-16, 0.0) && close_to(x[1], 0.66524095577482189, 5e-16, 0.0));
    ck_assert(same(x[2], 0.0) && close_to(x[3], 0.24472847105479765, 5e-16, 0.0));

    double large[3] = { 1e300, 1e300, -1e300 };
    softmax(large, 3);
    ck_assert(same(large[0], 0.5) && same(large[1], 0.5) && same(large[2], 0.0));
    double one[1] = { -750.0 };
    softmax(one, 1);
    ck_assert(same(one[0], 1.0));
    softmax(one, 0);
    ck_assert(same(one[0], 1.0));
}
END_TEST

START_TEST(softmax_without_an_answer) {
    const double rows[4][3] = { { -INFINITY, -INFINITY, -INFINITY }, { 0.0, NAN, 1.0 }, { NAN, 0.0, 1.0 }, { 0.0, 1.0, INFINITY } };
    for (int r = 0; r < 4; r++) {
        double x[3];
        memcpy(x, rows[r], sizeof x);
        softmax(x, 3);
        double sum = x[0] + x[1] + x[2];
        ck_assert_msg(isnan(sum), "row %d sums to %g", r, sum);
        if (r < 3) ck_assert(isnan(x[0]) && isnan(x[1]) && isnan(x[2]));
    }
}
END_TEST

/* ---- storage ------------------------------------------------------------------------------------------------------------ */

START_TEST(rounding_to_a_storage) {       /* [NUM-6] */
    ck_assert(same(round_to(STORE_F64, 0.1), 0.1));
    ck_assert(same(round_to(STORE_F32, 0.1), 0x1.99999ap-4));
    ck_assert(same(round_to(STORE_BF16, 0.1), 0x1.9ap-4));
    ck_assert(same(round_to(STORE_F32, 0x1.000001p0), 1.0) && same(round_to(STORE_F32, 0x1.000003p0), 0x1.000004p0));    /* ties to even */
    ck_assert(same(round_to(STORE_BF16, 0x1.01p0), 1.0) && same(round_to(STORE_BF16, 0x1.03p0), 0x1.04p0));
    ck_assert(same(round_to(STORE_BF16, 0x1.0100000000001p0), 0x1.02p0));    /* one rounding: by way of float it would be 1 */
    ck_assert(same(round_to(STORE_F32, 1e39), INFINITY) && same(round_to(STORE_BF16, -3.4e38), -INFINITY));
    ck_assert(isnan(round_to(STORE_BF16, NAN)) && isnan(round_to(STORE_F32, NAN)));
    double row[3] = { 0.1, -0x1.03p0, 5.0 };
    round_row(STORE_F64, row, 3);
    ck_assert(same(row[0], 0.1) && same(row[1], -0x1.03p0));
    round_row(STORE_BF16, row, 3);
    ck_assert(same(row[0], 0x1.9ap-4) && same(row[1], -0x1.04p0) && same(row[2], 5.0));
}
END_TEST

Suite *rowwise_suite(void);
Suite *rowwise_suite(void) {
    Suite *s = suite_create("rowwise");
    TCase *c = tcase_create("rowwise");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, activations_against_mpfr);
    tcase_add_test(c, activations_at_the_ends);
    tcase_add_test(c, rms_norm_by_hand);
    tcase_add_test(c, l2_norm_by_hand);
    tcase_add_test(c, nan_spoils_a_norm);
    tcase_add_test(c, sums_ascend);
    tcase_add_test(c, softmax_values);
    tcase_add_test(c, softmax_without_an_answer);
    tcase_add_test(c, rounding_to_a_storage);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(rowwise_suite()); }
