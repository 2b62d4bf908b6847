/* elementary.c - exp, log, log1p, sin, cos and pow from +, -, *, / and a few Taylor terms. [NUM-4]
 *
 * The plan, the same for every function: reduce the argument to a short interval, carry what matters as an unevaluated
 * sum of two doubles (a Pair, about 106 bits), leave the small rest of the series to plain double, and round once at
 * the end. So each result is within 0.56 ulp of the true value (tests/test_elementary.c measures it against MPFR).
 * No table and no fitted coefficient: each coefficient is a Taylor coefficient, written as the fraction it is. The split
 * constants (ln 2, pi/2) are the leading bits of the true number at 400 bits, computed with mpmath: each part is what is
 * left, rounded to 53 bits (42 for the first part of ln 2). Every operation rounds once, as IEEE 754 says. [NUM-1] */
#include "elementary.h"

#include <float.h>
#include <stdint.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "elementary.c needs double arithmetic that rounds to double at every operation (on i386: -msse2 -mfpmath=sse)"
#endif

/* ---- error-free arithmetic -------------------------------------------------------------------------------------- */

typedef struct Pair { double hi, lo; } Pair;    /* the number hi + lo, with |lo| <= ulp(hi) / 2 once normalised */

/* a + b exactly (Knuth). */
static inline Pair two_sum(double a, double b) {
    double sum = a + b, b_part = sum - a, a_part = sum - b_part;
    return (Pair){ sum, (a - a_part) + (b - b_part) };
}

/* a + b exactly when |a| >= |b| or a is 0 (Dekker). */
static inline Pair fast_two_sum(double a, double b) {
    double sum = a + b;
    return (Pair){ sum, b - (sum - a) };
}

/* a * b exactly (Veltkamp's split into halves of 26 bits, then Dekker's product); |a|, |b| < 2^996. */
static inline Pair two_product(double a, double b) {
    const double splitter = 134217729.0;    /* 2^27 + 1 */
    double a_big = splitter * a, a_hi = a_big - (a_big - a), a_lo = a - a_hi;
    double b_big = splitter * b, b_hi = b_big - (b_big - b), b_lo = b - b_hi;
    double product = a * b;
    return (Pair){ product, ((a_hi * b_hi - product) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo };
}

static inline Pair pair_add(Pair a, Pair b) {
    Pair sum = two_sum(a.hi, b.hi), rest = two_sum(a.lo, b.lo);
    sum = fast_two_sum(sum.hi, sum.lo + rest.hi);
    return fast_two_sum(sum.hi, sum.lo + rest.lo);
}

static inline Pair pair_multiply(Pair a, Pair b) {
    Pair product = two_product(a.hi, b.hi);
    return fast_two_sum(product.hi, product.lo + (a.hi * b.lo + a.lo * b.hi));
}

static inline Pair pair_divide(Pair a, Pair b) {
    double quotient = a.hi / b.hi;
    Pair back = pair_multiply(b, (Pair){ quotient, 0.0 });
    double rest = ((a.hi - back.hi) - back.lo) + a.lo;    /* a.hi - back.hi is exact: they are neighbours */
    return fast_two_sum(quotient, rest / b.hi);
}

/* ---- bits ------------------------------------------------------------------------------------------------------- */

static inline uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Invalid operations give one NaN on every processor, infinities do not depend on how a compiler folds 1/0. */
static inline double quiet_nan(void) { return from_bits(0x7FF8000000000000u); }
static inline double infinity(void) { return from_bits(0x7FF0000000000000u); }

static inline double power_of_two(int exponent) { return from_bits((uint64_t)(exponent + 1023) << 52); }    /* -1022 .. 1023 */

static inline int64_t nearest_integer(double x) { return (int64_t)(x < 0.0 ? x - 0.5 : x + 0.5); }

/* ---- exp -------------------------------------------------------------------------------------------------------- */

/* ln 2 = LN2_HI + LN2_LO + 1.9e-31; LN2_HI has 42 bits, so that its product with an exponent of 11 bits is exact. */
static const double LN2_HI = 0x1.62e42fefa3800p-1, LN2_LO = 0x1.ef35793c76730p-45;

/* (hi + lo) 2^exponent for 1/2 < hi < 2, rounded once also where the result is subnormal or overflows. */
static double scale(Pair x, int exponent) {
    if (exponent > 1023) return x.hi * power_of_two(1023) * power_of_two(exponent - 1023);
    if (exponent > -1022 || (exponent == -1022 && x.hi >= 1.0)) return x.hi * power_of_two(exponent);
    /* Subnormal: adding 2^52 units of the last place that the result has rounds the sum at that place. */
    double anchor = power_of_two(-1022 - exponent);
    Pair sum = two_sum(anchor, x.hi);
    double units = (sum.hi + (sum.lo + x.lo)) - anchor;
    return units * power_of_two(-900) * power_of_two(exponent + 900);
}

/* e^(x.hi + x.lo), |x.hi| < 800: e^x = 2^k e^r with |r| <= ln(2)/2 and
 * e^r = 1 + r + r^2/2 + (r^3/3! + ... + r^14/14!); the part in brackets is below 0.0073, so plain double will do. */
static double exp_of_pair(Pair x) {
    int k = (int)nearest_integer(x.hi * 0x1.71547652b82fep+0);    /* 1 / ln 2 */
    Pair reduced = two_sum(x.hi, -k * LN2_HI);
    Pair r = fast_two_sum(reduced.hi, reduced.lo + (x.lo - k * LN2_LO));

    Pair square = pair_multiply(r, r);
    double h = r.hi, h2 = h * h;
    double rest = h2 * h * (1.0 / 6.0 + h * (1.0 / 24.0 + h * (1.0 / 120.0 + h * (1.0 / 720.0 + h * (1.0 / 5040.0
                + h * (1.0 / 40320.0 + h * (1.0 / 362880.0 + h * (1.0 / 3628800.0 + h * (1.0 / 39916800.0
                + h * (1.0 / 479001600.0 + h * (1.0 / 6227020800.0 + h * (1.0 / 87178291200.0))))))))))));

    Pair one_and_r = two_sum(1.0, r.hi);
    Pair sum = two_sum(one_and_r.hi, 0.5 * square.hi);
    return scale(fast_two_sum(sum.hi, sum.lo + (one_and_r.lo + (r.lo + (0.5 * square.lo + rest)))), k);
}

double el_exp(double x) {
    if (x != x) return x;
    if (x > 710.0) return infinity();
    if (x < -746.0) return 0.0;
    return exp_of_pair((Pair){ x, 0.0 });
}

/* ---- log -------------------------------------------------------------------------------------------------------- */

/* ln(x.hi + x.lo), x.hi > 0 and finite, good to about 2^-70 of its value:
 * x = 2^e m with m in [sqrt(1/2), sqrt(2)], s = (m-1)/(m+1), ln m = 2 atanh(s) = 2 s (1 + s^2/3 + s^4/5 + ...), |s| < 0.172.
 * The first three terms are added as pairs. */
static Pair log_of_pair(Pair x) {
    int e = 0;
    if (x.hi < 0x1p-1022) {
        x.hi *= 0x1p54;
        x.lo *= 0x1p54;
        e = -54;
    }
    e += (int)(bits_of(x.hi) >> 52) - 1023;
    double m_hi = from_bits((bits_of(x.hi) & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u);
    if (m_hi > 0x1.6a09e667f3bcdp+0) {    /* sqrt(2) */
        m_hi *= 0.5;
        e += 1;
    }
    double m_lo = x.lo * (m_hi / x.hi);    /* the quotient is 2^-e, exactly */

    Pair above = two_sum(m_hi, -1.0), below = two_sum(m_hi, 1.0);
    Pair s = pair_divide(fast_two_sum(above.hi, above.lo + m_lo), fast_two_sum(below.hi, below.lo + m_lo));
    Pair square = pair_multiply(s, s);
    double q = square.hi;
    double rest = q * (1.0 / 7.0 + q * (1.0 / 9.0 + q * (1.0 / 11.0 + q * (1.0 / 13.0 + q * (1.0 / 15.0 + q * (1.0 / 17.0
                + q * (1.0 / 19.0 + q * (1.0 / 21.0 + q * (1.0 / 23.0 + q * (1.0 / 25.0 + q * (1.0 / 27.0)))))))))));
    const Pair third = { 0x1.5555555555555p-2, 0x1.5555555555555p-56 }, fifth = { 0x1.999999999999ap-3, -0x1.999999999999ap-57 };
    Pair series = pair_add(fifth, (Pair){ rest, 0.0 });
    series = pair_add(third, pair_multiply(square, series));
    series = pair_multiply(s, pair_multiply(square, series));
    Pair log_m = pair_add(s, series);
    log_m.hi *= 2.0;
    log_m.lo *= 2.0;

    Pair exponent = fast_two_sum(e * LN2_HI, e * LN2_LO);
    return pair_add(exponent, log_m);
}

double el_log(double x) {
    if (x != x) return x;
    if (x < 0.0) return quiet_nan();
    if (x == 0.0) return -infinity();
    if (x == infinity()) return x;
    return log_of_pair((Pair){ x, 0.0 }).hi;
}

double el_log1p(double x) {
    if (x != x) return x;
    if (x < -1.0) return quiet_nan();
    if (x == -1.0) return -infinity();
    if (x == infinity()) return x;
    if (x > -0x1p-54 && x < 0x1p-54) return x;    /* ln(1+x) = x - x^2/2 + ...; keeps -0 */
    return log_of_pair(two_sum(1.0, x)).hi;
}

/* ---- pow -------------------------------------------------------------------------------------------------------- */

/* x^y = e^(y ln x); the pair carries y ln x to about 2^-60 absolute. As IEEE 754 has it: x^0 = 1^y = 1, also for NaN. */
double el_pow(double x, double y) {
    if (y == 0.0 || x == 1.0) return 1.0;
    if (x != x) return x;
    if (y != y) return y;
    if (x < 0.0) return quiet_nan();
    if (x == 0.0) return y > 0.0 ? 0.0 : infinity();
    if (x == infinity()) return y > 0.0 ? infinity() : 0.0;
    Pair log_x = log_of_pair((Pair){ x, 0.0 });
    double size = y * log_x.hi;
    if (size > 710.0) return infinity();
    if (size < -746.0) return 0.0;
    return exp_of_pair(pair_multiply(log_x, (Pair){ y, 0.0 }));
}

/* ---- sin, cos --------------------------------------------------------------------------------------------------- */

/* pi/2 = A + B + C + 5.6e-50, 53 bits each. */
static const double HALF_PI_A = 0x1.921fb54442d18p+0, HALF_PI_B = 0x1.1a62633145c07p-54, HALF_PI_C = -0x1.f1976b7ed8fbcp-110;

/* r = x - k pi/2 with |r| <= pi/4 (and a rounding), for |x| <= 2^32, so k has 32 bits; returns k mod 4.
 * No double in that range but 0 is nearer to a multiple of pi/2 than 2^-60.5 (by the convergents of 2^j 2/pi). The
 * products k A and k B are exact pairs, the cancelling sums are exact too, and what is rounded (the line of `rest`) is
 * below 2^-74 with an error below 2^-126: r is good to 2^-64 of its value at the very worst. */
static int reduce_by_half_pi(double x, Pair *r) {
    int64_t k = nearest_integer(x * 0x1.45f306dc9c883p-1);    /* 2 / pi */
    Pair a = two_product((double)k, HALF_PI_A), b = two_product((double)k, HALF_PI_B);
    Pair first = two_sum(x, -a.hi);
    Pair second = two_sum(first.hi, -a.lo);
    Pair third = two_sum(second.hi, -b.hi);
    double rest = ((first.lo + second.lo) + third.lo) - b.lo - (double)k * HALF_PI_C;
    *r = fast_two_sum(third.hi, rest);
    return (int)(k & 3);
}

/* sin r = r - r^3/3! + (r^5/5! - ... + r^17/17!); the bracket is below 0.0025. */
static double sin_series(Pair r) {
    const Pair sixth = { -0x1.5555555555555p-3, -0x1.5555555555555p-57 };    /* -1/6 */
    Pair square = pair_multiply(r, r), cube = pair_multiply(square, r);
    double q = square.hi;
    double rest = cube.hi * q * (1.0 / 120.0 - q * (1.0 / 5040.0 - q * (1.0 / 362880.0 - q * (1.0 / 39916800.0
                - q * (1.0 / 6227020800.0 - q * (1.0 / 1307674368000.0 - q * (1.0 / 355687428096000.0)))))));
    Pair second = pair_multiply(cube, sixth);
    Pair sum = two_sum(r.hi, second.hi);
    return sum.hi + (sum.lo + (r.lo + (second.lo + rest)));
}

/* cos r = 1 - r^2/2! + (r^4/4! - ... - r^18/18!); the bracket is below 0.016. */
static double cos_series(Pair r) {
    Pair square = pair_multiply(r, r);
    double q = square.hi;
    double rest = q * q * (1.0 / 24.0 - q * (1.0 / 720.0 - q * (1.0 / 40320.0 - q * (1.0 / 3628800.0 - q * (1.0 / 479001600.0
                - q * (1.0 / 87178291200.0 - q * (1.0 / 20922789888000.0 - q * (1.0 / 6402373705728000.0))))))));
    Pair sum = two_sum(1.0, -0.5 * square.hi);
    return sum.hi + (sum.lo + (rest - 0.5 * square.lo));
}

static double circular(double x, int quarter_turns) {    /* sin(x + quarter_turns pi/2) */
    if (x != x) return x;
    if (!(x >= -0x1p32 && x <= 0x1p32)) return quiet_nan();    /* outside the domain that the reduction is good for */
    Pair r;
    switch ((reduce_by_half_pi(x, &r) + quarter_turns) & 3) {
    case 0: return sin_series(r);
    case 1: return cos_series(r);
    case 2: return -sin_series(r);
    default: return -cos_series(r);
    }
}

double el_sin(double x) {
    if (x > -0x1p-27 && x < 0x1p-27) return x;    /* sin x = x - x^3/6 + ...; keeps -0 and subnormals */
    return circular(x, 0);
}

double el_cos(double x) { return circular(x, 1); }
