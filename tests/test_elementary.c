/* test_elementary.c - our exp, log, ... against MPFR, and their special values. [NUM-4] */
#include "../ref/math/elementary.h"

#include <math.h>
#include <mpfr.h>
#include <stdio.h>
#include "harness.h"
#include "random.h"

/* A million points each; fewer where every operation is slow. CLOVER_TEST_POINTS sets another count. */
#if defined(__SANITIZE_ADDRESS__)
#define DEFAULT_POINTS 20000
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DEFAULT_POINTS 20000
#endif
#endif
#ifndef DEFAULT_POINTS
#define DEFAULT_POINTS 1000000
#endif

static int64_t points(void) {
    const char *wanted = getenv("CLOVER_TEST_POINTS");
    return wanted ? strtoll(wanted, NULL, 10) : DEFAULT_POINTS;
}

/* ---- measuring -------------------------------------------------------------------------------------------------- */

static const double LIMIT = 0.6;    /* ulp; elementary.h promises 1, and the method is good for 0.56 */
enum { PRECISION = 88 };    /* bits of MPFR's results: the truth is known to 2^-25 ulp, also of pow */

typedef struct Function {
    const char *name;
    double (*ours)(double x, double y);
    int (*mpfr)(mpfr_ptr result, mpfr_srcptr x, mpfr_srcptr y);
    void (*point)(uint64_t *random, double *x, double *y);    /* the next argument; y is for pow alone */
} Function;

/* |ours - truth| in units of the last place of the double nearest to the truth (2^-1074 for subnormal ones). An infinity
 * of ours is measured as 2^1024, the value that overflow rounds from. */
static double ulps(double ours, mpfr_srcptr truth, mpfr_ptr difference) {
    if (mpfr_zero_p(truth)) return ours == 0.0 ? 0.0 : INFINITY;
    mpfr_exp_t exponent = mpfr_get_exp(truth);              /* 2^(exponent-1) <= |truth| < 2^exponent */
    mpfr_exp_t last_place = exponent - 53 < -1074 ? -1074 : exponent > 1024 ? 971 : exponent - 53;
    if (isinf(ours)) mpfr_set_si_2exp(difference, ours > 0 ? 1 : -1, 1024, MPFR_RNDN);
    else mpfr_set_d(difference, ours, MPFR_RNDN);
    mpfr_sub(difference, difference, truth, MPFR_RNDN);
    if (isinf(ours) && exponent > 1024) return 0.0;
    mpfr_mul_2si(difference, difference, -(long)last_place, MPFR_RNDN);
    return fabs(mpfr_get_d(difference, MPFR_RNDN));
}

static double measure(const Function *f, double x, double y, mpfr_t number[4]) {
    mpfr_set_d(number[0], x, MPFR_RNDN);
    mpfr_set_d(number[1], y, MPFR_RNDN);
    f->mpfr(number[2], number[0], number[1]);
    return ulps(f->ours(x, y), number[2], number[3]);
}

static void check_function(const Function *f) {
    mpfr_t number[4];
    for (int i = 0; i < 4; i++) mpfr_init2(number[i], i < 2 ? 53 : PRECISION);
    uint64_t random = 1;
    double worst = 0.0, worst_x = 0.0, worst_y = 0.0;
    int64_t count = points();
    for (int64_t i = 0; i < count; i++) {
        double x = 0.0, y = 0.0;
        f->point(&random, &x, &y);
        double error = measure(f, x, y, number);
        if (!(error <= worst)) {
            worst = error;
            worst_x = x;
            worst_y = y;
        }
    }
    for (int i = 0; i < 4; i++) mpfr_clear(number[i]);
    mpfr_free_cache();
    printf("%s: %.4f ulp at worst in %lld points, at %a %a\n", f->name, worst, (long long)count, worst_x, worst_y);
    ck_assert_msg(worst <= LIMIT, "%s: %g ulp from MPFR at %a %a", f->name, worst, worst_x, worst_y);
}

/* ---- the functions and where they are used ----------------------------------------------------------------------- */

static double signed_(uint64_t *random, double magnitude) { return random_bits(random) >> 63 ? -magnitude : magnitude; }

static double our_exp(double x, double y) { (void)y; return el_exp(x); }
static double our_log(double x, double y) { (void)y; return el_log(x); }
static double our_log1p(double x, double y) { (void)y; return el_log1p(x); }
static double our_sin(double x, double y) { (void)y; return el_sin(x); }
static double our_cos(double x, double y) { (void)y; return el_cos(x); }

static int true_exp(mpfr_ptr r, mpfr_srcptr x, mpfr_srcptr y) { (void)y; return mpfr_exp(r, x, MPFR_RNDN); }
static int true_log(mpfr_ptr r, mpfr_srcptr x, mpfr_srcptr y) { (void)y; return mpfr_log(r, x, MPFR_RNDN); }
static int true_log1p(mpfr_ptr r, mpfr_srcptr x, mpfr_srcptr y) { (void)y; return mpfr_log1p(r, x, MPFR_RNDN); }
static int true_sin(mpfr_ptr r, mpfr_srcptr x, mpfr_srcptr y) { (void)y; return mpfr_sin(r, x, MPFR_RNDN); }
static int true_cos(mpfr_ptr r, mpfr_srcptr x, mpfr_srcptr y) { (void)y; return mpfr_cos(r, x, MPFR_RNDN); }

/* e^(y ln x) with 88 bits is as good as mpfr_pow here and takes half its time. */
static int true_pow(mpfr_ptr r, mpfr_srcptr x, mpfr_srcptr y) {
    mpfr_log(r, x, MPFR_RNDN);
    mpfr_mul(r, r, y, MPFR_RNDN);
    return mpfr_exp(r, r, MPFR_RNDN);
}

static void exp_point(uint64_t *random, double *x, double *y) {
    (void)y;
    switch (random_bits(random) % 5) {
    case 0: *x = random_between(random, -745.0, 709.0); break;
    case 1: *x = random_between(random, -745.3, -708.0); break;           /* subnormal results */
    case 2: *x = signed_(random, random_magnitude(random, -60, 8)); break;
    default: *x = random_between(random, -30.0, 0.0);                     /* softmax, sigmoid */
    }
}

static void log_point(uint64_t *random, double *x, double *y) {
    (void)y;
    switch (random_bits(random) % 4) {
    case 0: *x = random_magnitude(random, -1022, 1023); break;
    case 1: *x = 1.0 + signed_(random, random_magnitude(random, -52, -2)); break;
    case 2: *x = random_magnitude(random, -1022, -970) * 0x1p-52; break;   /* subnormal */
    default: *x = random_between(random, 0.5, 2.0);
    }
    if (*x == 0.0) *x = 0x1p-1074;
}

static void log1p_point(uint64_t *random, double *x, double *y) {
    (void)y;
    switch (random_bits(random) % 5) {
    case 0: *x = -1.0 + random_magnitude(random, -52, -2); break;
    case 1: *x = signed_(random, random_magnitude(random, -1022, -2)); break;
    case 2: *x = random_magnitude(random, -60, 1023); break;
    case 3: *x = random_between(random, -1.0, 1.0); break;
    default: *x = el_exp(random_between(random, -40.0, 20.0));            /* softplus */
    }
    if (*x <= -1.0) *x = -1.0 + 0x1p-53;
}

static void angle_point(uint64_t *random, double *x, double *y) {
    (void)y;
    const double half_pi = 1.57079632679489661923, its_rest = 6.123233995736766e-17;
    double k;
    switch (random_bits(random) % 5) {
    case 0: *x = random_between(random, -0x1p32, 0x1p32); break;
    case 1:                                                               /* a neighbour of a multiple of pi/2 */
        k = floor(signed_(random, random_magnitude(random, 0, 31)) * 0.63);
        *x = nextafter(k * half_pi + k * its_rest, signed_(random, 0x1p33));
        break;
    case 2: *x = signed_(random, random_magnitude(random, -60, 31)); break;
    default:                                                              /* rope: position times frequency */
        *x = (double)(random_bits(random) % 131072) * pow(1e7, -(double)(random_bits(random) % 32) / 32.0);
    }
}

static void pow_point(uint64_t *random, double *x, double *y) {
    switch (random_bits(random) % 4) {
    case 0: *x = random_magnitude(random, 0, 30); *y = -(double)(random_bits(random) % 128) / 128.0; break;    /* rope */
    case 1: *x = 1.0 + signed_(random, random_magnitude(random, -52, -2)); *y = random_between(random, -700.0, 700.0) / log(*x); break;
    default: *x = random_magnitude(random, -1022, 1023); *y = random_between(random, -745.0, 709.0) / log(*x);
    }
    if (*x == 1.0) *y = 3.0;
}

static const Function functions[] = {
    { "exp", our_exp, true_exp, exp_point },    { "log", our_log, true_log, log_point },
    { "log1p", our_log1p, true_log1p, log1p_point }, { "sin", our_sin, true_sin, angle_point },
    { "cos", our_cos, true_cos, angle_point },  { "pow", el_pow, true_pow, pow_point },
};

START_TEST(within_one_ulp) { check_function(&functions[_i]); }
END_TEST

/* The doubles up to 2^32 that lie nearest to a multiple of pi/2 (2^-60.5 and on), found by continued fractions: what a
 * reduction that is too short gets wrong by whole digits. */
START_TEST(nearest_to_multiples_of_half_pi) {
    static const double hard[] = { 0x1.6c6cbc45dc8dep+5, 0x1.6c6cbc45dc8dep+6, 0x1.b951f1572eba5p+23, 0x1.6c6cbc45dc8dep+7,
        0x1.b951f1572eba5p+24, 0x1.39c6fd67805a7p+18, 0x1.9eb7148f354d6p+20, 0x1.b951f1572eba5p+29, 0x1.55202aefde314p+29 };
    mpfr_t number[4];
    for (int i = 0; i < 4; i++) mpfr_init2(number[i], i < 2 ? 53 : PRECISION);
    for (size_t i = 0; i < sizeof hard / sizeof hard[0]; i++)
        for (int f = 3; f <= 4; f++)
            for (double sign = -1.0; sign <= 1.0; sign += 2.0) {
                double error = measure(&functions[f], sign * hard[i], 0.0, number);
                ck_assert_msg(error <= LIMIT, "%s(%a): %g ulp", functions[f].name, sign * hard[i], error);
            }
    for (int i = 0; i < 4; i++) mpfr_clear(number[i]);
    mpfr_free_cache();
}
END_TEST

/* ---- special values ---------------------------------------------------------------------------------------------- */

#define assert_nan(x) ck_assert_msg(isnan(x), "%s is not NaN", #x)
#define assert_same(x, expected) do { \
    double x_ = (x), expected_ = (expected); \
    ck_assert_msg(memcmp(&x_, &expected_, sizeof x_) == 0, "%s is %a, not %a", #x, x_, expected_); \
} while (0)

START_TEST(special_values) {
    assert_nan(el_exp(NAN));
    assert_same(el_exp(INFINITY), INFINITY);
    assert_same(el_exp(-INFINITY), 0.0);
    assert_same(el_exp(0.0), 1.0);
    assert_same(el_exp(-0.0), 1.0);
    assert_same(el_exp(0x1.62e42fefa39efp+9), 0x1.fffffffffff2ap+1023);    /* ln(2^1024) rounded down: the largest argument, from MPFR */
    assert_same(el_exp(0x1.62e42fefa39f0p+9), INFINITY);
    assert_same(el_exp(-0x1.74910d52d3051p+9), 0x1p-1074);                 /* ln(2^-1075) rounded to zero: the smallest */
    assert_same(el_exp(-0x1.74910d52d3052p+9), 0.0);

    assert_nan(el_log(NAN));
    assert_nan(el_log(-1.0));
    assert_nan(el_log(-INFINITY));
    assert_same(el_log(0.0), -INFINITY);
    assert_same(el_log(-0.0), -INFINITY);
    assert_same(el_log(INFINITY), INFINITY);
    assert_same(el_log(1.0), 0.0);

    assert_nan(el_log1p(NAN));
    assert_nan(el_log1p(-1.5));
    assert_same(el_log1p(-1.0), -INFINITY);
    assert_same(el_log1p(INFINITY), INFINITY);
    assert_same(el_log1p(0.0), 0.0);
    assert_same(el_log1p(-0.0), -0.0);
    assert_same(el_log1p(0x1p-1074), 0x1p-1074);

    assert_nan(el_sin(NAN));
    assert_nan(el_cos(NAN));
    assert_nan(el_sin(INFINITY));
    assert_nan(el_cos(-INFINITY));
    assert_nan(el_sin(0x1.0000000000001p32));     /* outside the stated domain */
    assert_nan(el_cos(-0x1.0000000000001p32));
    ck_assert(isfinite(el_sin(0x1p32)) && isfinite(el_cos(-0x1p32)));
    assert_same(el_sin(0.0), 0.0);
    assert_same(el_sin(-0.0), -0.0);
    assert_same(el_sin(0x1p-1074), 0x1p-1074);
    assert_same(el_cos(0.0), 1.0);
    assert_same(el_cos(0x1p-1074), 1.0);

    assert_same(el_pow(NAN, 0.0), 1.0);
    assert_same(el_pow(1.0, NAN), 1.0);
    assert_nan(el_pow(NAN, 1.0));
    assert_nan(el_pow(2.0, NAN));
    assert_nan(el_pow(-2.0, 3.0));
    assert_same(el_pow(0.0, 2.0), 0.0);
    assert_same(el_pow(0.0, -2.0), INFINITY);
    assert_same(el_pow(INFINITY, 0.5), INFINITY);
    assert_same(el_pow(INFINITY, -0.5), 0.0);
    assert_same(el_pow(2.0, INFINITY), INFINITY);
    assert_same(el_pow(0.5, INFINITY), 0.0);
    assert_same(el_pow(2.0, 1024.0), INFINITY);
    assert_same(el_pow(2.0, -1074.0), 0x1p-1074);
    assert_same(el_pow(2.0, -1080.0), 0.0);
    assert_same(el_pow(2.0, 0.5), 0x1.6a09e667f3bcdp+0);
    assert_same(el_pow(10.0, 15.0), 1e15);
    assert_same(el_pow(0x1p-1074, 1.0), 0x1p-1074);
    assert_same(el_pow(3.0, 1e-300), 1.0);
    assert_same(el_pow(3.0, 1e300), INFINITY);
}
END_TEST

Suite *elementary_suite(void);
Suite *elementary_suite(void) {
    Suite *s = suite_create("elementary");
    TCase *c = tcase_create("against MPFR");
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, within_one_ulp, 0, (int)(sizeof functions / sizeof functions[0]));
    tcase_add_test(c, nearest_to_multiples_of_half_pi);
    suite_add_tcase(s, c);
    c = tcase_create("special values");
    tcase_add_test(c, special_values);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(elementary_suite()); }
