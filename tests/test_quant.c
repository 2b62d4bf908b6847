/* test_quant.c - block formats against the gguf package's numbers and bytes, against the formulas of SPEC QNT read
 * literally, and roundings against MPFR. [QNT] */
#include "../ref/files/quant.h"

#include <math.h>
#include <mpfr.h>
#include <stdio.h>
#include "../ref/files/safetensors.h"
#include "harness.h"
#include "random.h"

static const DType block_types[] = { DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1, DT_Q8_0, DT_IQ4_NL,
                                     DT_Q2_K, DT_Q3_K, DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_IQ4_XS };
enum { BLOCK_TYPES = sizeof block_types / sizeof block_types[0] };

/* ck_assert_msg writes a mark at every call; this one only when it fails, for loops over many elements. */
#define require(condition, ...) do { if (!(condition)) ck_abort_msg(__VA_ARGS__); } while (0)

static bool same_float(float a, float b) { return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0; }
static bool same_double(double a, double b) { return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0; }

/* ---- against the gguf package -------------------------------------------------------------------------------------- */

static const Tensor *part(const Safetensors *file, const char *type, const char *suffix) {
    char name[32];
    snprintf(name, sizeof name, "%s%s", type, suffix);
    const Tensor *t = safetensors_tensor(file, name);
    ck_assert_msg(t != NULL, "no tensor %s", name);
    return t;
}

static void check_decode_vector(const Safetensors *file, DType type) {
    const char *name = dtype_info(type)->name;
    const Tensor *raw = part(file, name, ".raw"), *values = part(file, name, ".values");
    int64_t n = values->elements;
    ck_assert_int_eq((int64_t)raw->bytes, dtype_bytes(type, n));
    float *expected = malloc((size_t)n * sizeof *expected), *found = malloc((size_t)n * sizeof *found);
    double *exact = malloc((size_t)n * sizeof *exact);
    memcpy(expected, values->data, (size_t)n * sizeof *expected);
    quant_decode_float(type, raw->data, n, found);
    quant_decode(type, raw->data, n, exact);
    for (int64_t i = 0; i < n; i++) {
        require(same_float(found[i], expected[i]), "%s element %lld is %a, gguf gives %a", name, (long long)i, (double)found[i],
                (double)expected[i]);
        require(same_float((float)exact[i], expected[i]), "%s element %lld as a double is %a, gguf gives %a", name, (long long)i,
                exact[i], (double)expected[i]);
    }
    free(exact);
    free(found);
    free(expected);
}

START_TEST(decode_as_gguf) {
    CloverError err = { 0 };
    Safetensors *file = NULL;
    assert_ok(safetensors_open("tests/vectors/blocks.safetensors", &file, &err), err);
    for (int i = 0; i < BLOCK_TYPES; i++) check_decode_vector(file, block_types[i]);
    check_decode_vector(file, DT_F16);
    check_decode_vector(file, DT_BF16);
    safetensors_close(file);
}
END_TEST

START_TEST(encode_as_gguf) {
    static const DType types[] = { DT_F32, DT_F16, DT_BF16, DT_Q8_0, DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1 };
    CloverError err = { 0 };
    Safetensors *file = NULL;
    assert_ok(safetensors_open("tests/vectors/encode.safetensors", &file, &err), err);
    const Tensor *values = part(file, "values", "");
    int64_t n = values->elements;
    float *x = malloc((size_t)n * sizeof *x);
    memcpy(x, values->data, (size_t)n * sizeof *x);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const DTypeInfo *info = dtype_info(types[t]);
        const Tensor *expected = part(file, info->name, "");
        int64_t bytes = dtype_bytes(types[t], n);
        ck_assert_int_eq((int64_t)expected->bytes, bytes);
        uint8_t *found = malloc((size_t)bytes);
        ck_assert(quant_encode(types[t], x, n, found));
        for (int64_t i = 0; i < bytes; i++)
            require(found[i] == expected->data[i], "%s: byte %lld of block %lld is %02x, gguf writes %02x", info->name,
                    (long long)(i % info->bytes), (long long)(i / info->bytes), found[i], expected->data[i]);
        free(found);
    }
    free(x);
    safetensors_close(file);
}
END_TEST

/* ---- against the formulas, one element at a time -------------------------------------------------------------------- */

static double half_by_definition(unsigned h) {
    int exponent = (int)(h >> 10 & 31), fraction = (int)(h & 1023);
    double size = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return h >> 15 ? -size : size;
}

static double half_in(const uint8_t *b, int at) { return half_by_definition((unsigned)(b[at] + 256 * b[at + 1])); }
static unsigned bits(unsigned from, int shift, unsigned mask) { return from >> shift & mask; }
static unsigned bit(unsigned from, int i) { return bits(from, i, 1); }
static unsigned nibble(const uint8_t *qs, int e) { return e < 16 ? qs[e] & 15u : qs[e - 16] >> 4; }

/* Element e of block b is product - minimum, as SPEC QNT-3 to QNT-12 say. */
static void element(DType type, const uint8_t *b, int e, double *product, double *minimum) {
    static const int codebook[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
    int n = e / 128, j = e / 32 % 4, l = e % 32, is = 8 * n + 2 * j + (l >= 16), g = e / 64, u = e / 32 % 2, p = e / 32;
    const uint8_t *s = b;
    unsigned q, sc, m;
    *minimum = 0.0;
    switch (type) {
    /* [QNT-3] */
    case DT_Q4_0: *product = half_in(b, 0) * ((int)nibble(b + 2, e) - 8); return;
    case DT_Q4_1: *product = half_in(b, 0) * nibble(b + 4, e); *minimum = -half_in(b, 2); return;
    /* [QNT-4] */
    case DT_Q5_0: *product = half_in(b, 0) * ((int)(nibble(b + 6, e) + 16u * bit(b[2 + e / 8], e % 8)) - 16); return;
    case DT_Q5_1: *product = half_in(b, 0) * (nibble(b + 8, e) + 16u * bit(b[4 + e / 8], e % 8)); *minimum = -half_in(b, 2); return;
    /* [QNT-5] */
    case DT_Q8_0: *product = half_in(b, 0) * (b[2 + e] < 128 ? b[2 + e] : b[2 + e] - 256); return;
    /* [QNT-11] */
    case DT_IQ4_NL: *product = half_in(b, 0) * codebook[nibble(b + 2, e)]; return;
    case DT_Q2_K:    /* [QNT-6] */
        q = bits(b[16 + 32 * n + l], 2 * j, 3);
        *product = half_in(b, 80) * (b[is] & 15) * q;
        *minimum = half_in(b, 82) * (b[is] >> 4);
        return;
    case DT_Q3_K:    /* [QNT-7] */
        s = b + 96;
        sc = is < 8 ? s[is] & 15u : s[is - 8] >> 4;
        sc |= bits(s[8 + is % 4], 2 * (is / 4), 3) << 4;
        *product = half_in(b, 108) * ((int)sc - 32) * ((int)bits(b[32 + 32 * n + l], 2 * j, 3) - (bit(b[l], 4 * n + j) ? 0 : 4));
        return;
    case DT_Q4_K:    /* [QNT-8] */
    case DT_Q5_K:    /* [QNT-9] */
        s = b + 4;
        sc = p < 4 ? s[p] & 63u : (s[p + 4] & 15u) | (s[p - 4] >> 6 & 3u) << 4;
        m = p < 4 ? s[p + 4] & 63u : (unsigned)(s[p + 4] >> 4 | (s[p] >> 6) << 4);
        q = bits(b[(type == DT_Q4_K ? 16 : 48) + 32 * g + l], 4 * u, 15);
        if (type == DT_Q5_K) q += 16u * bit(b[16 + l], 2 * g + u);
        *product = half_in(b, 0) * sc * q;
        *minimum = half_in(b, 2) * m;
        return;
    case DT_Q6_K:    /* [QNT-10] */
        q = b[64 * n + 32 * (j & 1) + l];
        q = (j < 2 ? q & 15u : q >> 4) | bits(b[128 + 32 * n + l], 2 * j, 3) << 4;
        *product = half_in(b, 208) * (b[192 + is] < 128 ? b[192 + is] : b[192 + is] - 256) * ((int)q - 32);
        return;
    case DT_IQ4_XS:    /* [QNT-12] */
        sc = bits(b[4 + p / 2], 4 * (p % 2), 15) | bits(b[2] + 256u * b[3], 2 * p, 3) << 4;
        *product = half_in(b, 0) * ((int)sc - 32) * codebook[nibble(b + 8 + 16 * p, l)];
        return;
    default: ck_abort_msg("no formula for type %d", type);
    }
}

/* Random bytes in blocks at every alignment: every bit of a block counts. The double is the formula's exact value, the
 * float is the product (exact in float) less the minimum, rounded once. */
START_TEST(decode_by_the_formula) {
    const DType type = block_types[_i];
    const DTypeInfo *info = dtype_info(type);
    enum { BLOCKS = 7, ROUNDS = 60 };
    uint64_t random = 3;
    uint8_t *bytes = malloc((size_t)(BLOCKS * info->bytes));
    double *found = malloc((size_t)(BLOCKS * info->block) * sizeof *found);
    float *found_float = malloc((size_t)(BLOCKS * info->block) * sizeof *found_float);
    for (int round = 0; round < ROUNDS; round++) {
        for (int64_t i = 0; i < BLOCKS * info->bytes; i++) bytes[i] = (uint8_t)random_bits(&random);
        quant_decode(type, bytes, BLOCKS * info->block, found);
        quant_decode_float(type, bytes, BLOCKS * info->block, found_float);
        for (int64_t i = 0; i < BLOCKS * info->block; i++) {
            double product, minimum;
            element(type, bytes + i / info->block * info->bytes, (int)(i % info->block), &product, &minimum);
            float expected = minimum == 0.0 ? (float)product : (float)product - (float)minimum;
            double exact = minimum == 0.0 ? product : product - minimum;
            require(found[i] == exact || (isnan(found[i]) && isnan(exact)), "%s element %lld: %a, by the formula %a", info->name,
                    (long long)i, found[i], exact);
            require(found_float[i] == expected || (isnan(found_float[i]) && isnan(expected)),
                    "%s element %lld: float %a, by the formula %a", info->name, (long long)i, (double)found_float[i], (double)expected);
        }
    }
    free(found_float);
    free(found);
    free(bytes);
}
END_TEST

/* ---- plain types and roundings --------------------------------------------------------------------------------------- */

START_TEST(every_half_and_bfloat16) {    /* [QNT-2] */
    enum { ALL = 65536 };
    uint8_t *bytes = malloc(2 * ALL);
    double *found = malloc(ALL * sizeof *found);
    float *found_float = malloc(ALL * sizeof *found_float);
    for (int i = 0; i < ALL; i++) {
        bytes[2 * i] = (uint8_t)(i & 255);
        bytes[2 * i + 1] = (uint8_t)(i >> 8);
    }
    quant_decode(DT_F16, bytes, ALL, found);
    quant_decode_float(DT_F16, bytes, ALL, found_float);
    for (unsigned i = 0; i < ALL; i++) {
        double expected = half_by_definition(i);
        require(same_double(found[i], expected), "half %04x is %a, not %a", i, found[i], expected);
        require(same_float(found_float[i], (float)expected) && same_double(half_to_double((uint16_t)i), expected), "half %04x", i);
        if (!isnan(expected)) require(half_from_float((float)expected) == i, "half_from_float(%a)", expected);
        else require(isnan(half_to_double(half_from_float((float)found[i]))), "half NaN %04x", i);
    }
    quant_decode(DT_BF16, bytes, ALL, found);
    quant_decode_float(DT_BF16, bytes, ALL, found_float);
    for (unsigned i = 0; i < ALL; i++) {
        int exponent = (int)(i >> 7 & 255), fraction = (int)(i & 127);
        double size = exponent == 255 ? (fraction ? NAN : INFINITY) : exponent == 0 ? ldexp(fraction, -133) : ldexp(128 + fraction, exponent - 134);
        double expected = i >> 15 ? -size : size;
        require(same_double(found[i], expected), "bfloat16 %04x is %a, not %a", i, found[i], expected);
        require(same_float(found_float[i], (float)expected) && same_double(bf16_to_double((uint16_t)i), expected), "bfloat16 %04x", i);
        require(same_double(bf16_round(expected), expected), "bf16_round(%a)", expected);
        if (!isnan(expected)) require(bf16_from_float((float)expected) == i, "bf16_from_float(%a)", expected);
        else require(isnan(bf16_to_double(bf16_from_float((float)found[i]))), "bfloat16 NaN %04x", i);
    }
    free(found_float);
    free(found);
    free(bytes);
}
END_TEST

START_TEST(nan_of_low_payload) {    /* cut to 16 bits it would be an infinity */
    const uint32_t bits = 0xFF800001;
    float x;
    memcpy(&x, &bits, sizeof x);
    ck_assert(isnan(half_to_double(half_from_float(x))) && isnan(bf16_to_double(bf16_from_float(x))) && isnan(bf16_round((double)x)));
}
END_TEST

START_TEST(plain_floats) {
    const float x[4] = { 1.5f, -0.0f, 0x1p-149f, INFINITY };
    const double y[4] = { 0.1, -0x1p-1074, 1e300, NAN };
    uint8_t bytes[1 + sizeof y];    /* and at an odd address */
    double found[4];
    float found_float[4];
    memcpy(bytes + 1, x, sizeof x);
    quant_decode(DT_F32, bytes + 1, 4, found);
    quant_decode_float(DT_F32, bytes + 1, 4, found_float);
    for (int i = 0; i < 4; i++) ck_assert(same_double(found[i], (double)x[i]) && same_float(found_float[i], x[i]));
    memcpy(bytes + 1, y, sizeof y);
    quant_decode(DT_F64, bytes + 1, 4, found);
    quant_decode_float(DT_F64, bytes + 1, 4, found_float);
    for (int i = 0; i < 4; i++) ck_assert(same_double(found[i], y[i]));
    ck_assert(same_float(found_float[0], 0.1f) && same_float(found_float[1], -0.0f) && isinf(found_float[2]) && isnan(found_float[3]));
}
END_TEST

/* x rounded by MPFR to a format of `precision` bits whose smallest step is 2^low and whose values stay below 2^high. */
static double rounded(double x, int precision, int low, int high) {
    mpfr_t number;
    mpfr_init2(number, precision);
    mpfr_exp_t old_low = mpfr_get_emin(), old_high = mpfr_get_emax();
    mpfr_set_emin(low + 1);
    mpfr_set_emax(high);
    int inexact = mpfr_set_d(number, x, MPFR_RNDN);
    inexact = mpfr_check_range(number, inexact, MPFR_RNDN);
    mpfr_subnormalize(number, inexact, MPFR_RNDN);
    double result = mpfr_get_d(number, MPFR_RNDN);
    mpfr_set_emin(old_low);
    mpfr_set_emax(old_high);
    mpfr_clear(number);
    return result;
}

START_TEST(rounding_against_mpfr) {
    uint64_t random = 5;
    for (int i = 0; i < 100000; i++) {
        double x = random_magnitude(&random, -140, 130), step = ldexp(1.0, ilogb(x) - 8);
        if (i % 4 == 1) x = nextafter(floor(x / step) * step, i % 8 == 1 ? 0.0 : INFINITY);    /* beside a tie: a second rounding shows */
        if (i % 4 == 2) x = floor(x / step) * step;                                            /* a tie, or exact */
        if (i % 3 == 0) x = -x;
        double expected = rounded(x, 8, -133, 128);
        require(same_double(bf16_round(x), expected), "bf16_round(%a) is %a, MPFR gives %a", x, bf16_round(x), expected);

        float f = (float)x;
        expected = rounded((double)f, 8, -133, 128);
        require(same_double(bf16_to_double(bf16_from_float(f)), expected), "bf16_from_float(%a)", (double)f);

        f = (float)random_magnitude(&random, -27, 16);
        double half_step = ldexp(1.0, ilogb((double)f) - 11);
        if (i % 2) f = (float)(floor((double)f / half_step) * half_step);
        if (i % 3 == 0) f = -f;
        expected = rounded((double)f, 11, -24, 16);
        require(same_double(half_to_double(half_from_float(f)), expected), "half_from_float(%a) is %a, MPFR gives %a", (double)f,
                      half_to_double(half_from_float(f)), expected);
    }
    mpfr_free_cache();
    ck_assert(same_double(bf16_round(0x1.FEFFFFFFFFFFFp127), 0x1.FEp127));    /* below half-way to 2^128 */
    ck_assert(same_double(bf16_round(0x1.FFp127), INFINITY));
    ck_assert(same_double(bf16_round(-1e300), -INFINITY));
    ck_assert(same_double(bf16_round(-0x1p-134), -0.0) && same_double(bf16_round(0x1.0000000000001p-134), 0x1p-133));
    ck_assert(same_double(bf16_round(-0x1p-1074), -0.0) && same_double(bf16_round(-0.0), -0.0));
    ck_assert(isnan(bf16_round(NAN)) && same_double(bf16_round(-INFINITY), -INFINITY));
    ck_assert(same_double(bf16_round(0x1.0100000000001p0), 0x1.02p0));        /* by way of float it would be a tie, and 1 */
}
END_TEST

/* A block that cannot be stored does not decode to plausible numbers. */
START_TEST(encode_not_finite) {
    static const DType types[] = { DT_Q8_0, DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1 };
    static const float bad[] = { NAN, -NAN, INFINITY, -INFINITY };
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++)
            for (int at = 0; at < 32; at += 31) {
                float x[32];
                uint8_t block[34];
                double found[32];
                for (int i = 0; i < 32; i++) x[i] = (float)(i - 7);
                x[at] = bad[k];
                ck_assert(quant_encode(types[t], x, 32, block));
                quant_decode(types[t], block, 32, found);
                ck_assert_msg(!isfinite(found[at]), "%s stores %g as %g", dtype_info(types[t])->name, (double)bad[k], found[at]);
            }
    float x[256] = { 0 };
    uint8_t bytes[256];
    ck_assert(!quant_encode(DT_Q4_K, x, 256, bytes));
    ck_assert(!quant_encode(DT_I8, x, 256, bytes));
}
END_TEST

Suite *quant_suite(void);
Suite *quant_suite(void) {
    Suite *s = suite_create("quant");
    TCase *c = tcase_create("blocks");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, decode_as_gguf);
    tcase_add_test(c, encode_as_gguf);
    tcase_add_loop_test(c, decode_by_the_formula, 0, BLOCK_TYPES);
    tcase_add_test(c, encode_not_finite);
    suite_add_tcase(s, c);
    c = tcase_create("numbers");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, every_half_and_bfloat16);
    tcase_add_test(c, nan_of_low_payload);
    tcase_add_test(c, plain_floats);
    tcase_add_test(c, rounding_against_mpfr);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(quant_suite()); }
