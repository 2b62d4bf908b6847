/* quant.c - block formats to numbers and back. The decoders are in quant_decode.inc, which math/kernels.c compiles again
 * for each instruction set; here they are compiled for any CPU. [QNT] */
#include "quant.h"

#include <math.h>

#define REAL double
#define QUANT_NAME(x) x##_double
#include "quant_decode.inc"
#undef REAL
#undef QUANT_NAME

#define REAL float
#define QUANT_NAME(x) x##_float
#include "quant_decode.inc"
#undef REAL
#undef QUANT_NAME

void quant_decode(DType type, const uint8_t *src, int64_t n, double *dst) { decode_double(type, src, n, dst); }
void quant_decode_float(DType type, const uint8_t *src, int64_t n, float *dst) { decode_float(type, src, n, dst); }

/* ---- single numbers ----------------------------------------------------------------------------------------------- */

double half_to_double(uint16_t h) { return (double)float_of_half(h); }
double bf16_to_double(uint16_t b) { return (double)float_of_bf16(b); }

uint16_t half_from_float(float x) {
    uint32_t bits = bits_of_float(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF, half;
    if (magnitude > 0x7F800000) {                       /* NaN: made quiet, the payload's upper bits kept */
        half = 0x7E00 | (magnitude >> 13 & 0x03FF);
    } else if (magnitude >= 0x47800000) {               /* 2^16 and above */
        half = 0x7C00;
    } else if (magnitude >= 0x38800000) {               /* 2^-14 and above: normal; a carry goes on into the exponent, to infinity too */
        uint32_t rebiased = magnitude - ((127 - 15) << 23);
        half = (rebiased + 0x0FFF + (rebiased >> 13 & 1)) >> 13;
    } else {                                            /* 0.5 + x has its last place at 2^-24, a half's smallest step */
        half = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3F000000;
    }
    return (uint16_t)(sign | half);
}

uint16_t bf16_from_float(float x) {
    uint32_t bits = bits_of_float(x);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x0040);    /* NaN: made quiet */
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

double bf16_round(double x) {
    double magnitude = fabs(x);
    if (!(magnitude < INFINITY)) return x;              /* infinity, NaN */
    if (magnitude < 0x1p-126) {                         /* subnormal: steps of 2^-133, the last place of this sum */
        const double anchor = 0x1.8p-81;
        return copysign((magnitude + anchor) - anchor, x);
    }
    uint64_t bits;                                      /* keep 8 of 53 significant bits; a carry goes on into the exponent */
    memcpy(&bits, &magnitude, sizeof bits);
    bits += ((uint64_t)1 << 44) - 1 + (bits >> 45 & 1);
    bits &= ~(((uint64_t)1 << 45) - 1);
    memcpy(&magnitude, &bits, sizeof magnitude);
    return copysign(magnitude < 0x1p128 ? magnitude : INFINITY, x);
}

/* ---- encoding ----------------------------------------------------------------------------------------------------- */

/* The arithmetic of gguf-py's quants.py, all in float: the scale is stored rounded to a half, but the quants are made with
 * the scale before that rounding, as a product with its reciprocal. A NaN or an infinity makes the whole block NaN when
 * it is decoded: the scale becomes NaN or infinite, and the quants of such a block are 0 where they would be NaN. */
enum { BLOCK = 32 };

static void store_u16(uint8_t *p, uint16_t x) {
    p[0] = (uint8_t)x;
    p[1] = (uint8_t)(x >> 8);
}

static float reciprocal_or_zero(float d) { return d == 0.0f ? 0.0f : 1.0f / d; }

/* x cut to its integer part, at most `most`; below 0, infinity and NaN give 0. (gguf-py leaves those two to a C cast, which
 * gives 0 on x86-64; infinity comes of the reciprocal of a scale below 2^-128, which as a half is 0 anyway.) */
static uint8_t clamp_quant(float x, int most) {
    if (!(x > 0.0f && x < INFINITY)) return 0;
    return (uint8_t)(x < (float)most ? (int)x : most);
}

/* The element of the largest magnitude, the first of equals; the first NaN if there is one. */
static float signed_maximum(const float *x) {    /* [BLOCK] */
    float largest = x[0];
    for (int i = 1; i < BLOCK && largest == largest; i++)
        if (x[i] != x[i] || fabsf(x[i]) > fabsf(largest)) largest = x[i];
    return largest;
}

static void range(const float *x, float *low, float *high) {    /* both NaN if there is one */
    *low = *high = x[0];
    for (int i = 1; i < BLOCK && *low == *low; i++) {
        if (!(x[i] >= *low)) *low = x[i];
        if (!(x[i] <= *high)) *high = x[i];
    }
}

static void store_nibbles(const uint8_t *q, uint8_t *qs) {    /* [BLOCK] to [BLOCK / 2] */
    for (int i = 0; i < BLOCK / 2; i++) qs[i] = (uint8_t)((q[i] & 15) | (q[BLOCK / 2 + i] & 15) << 4);
}

static void store_fifth_bits(const uint8_t *q, uint8_t *qh) {    /* [BLOCK] to [BLOCK / 8] */
    for (int i = 0; i < BLOCK / 8; i++) qh[i] = 0;
    for (int i = 0; i < BLOCK; i++) qh[i / 8] = (uint8_t)(qh[i / 8] | (q[i] >> 4 & 1) << i % 8);
}

/* Q4_0 and Q5_0: q = x / d + zero, the value of largest magnitude at q = 0. Returns d. */
static float symmetric_quants(const float *x, int zero, uint8_t *q) {
    float d = signed_maximum(x) / (float)-zero, inverse = reciprocal_or_zero(d);
    for (int i = 0; i < BLOCK; i++) q[i] = clamp_quant(x[i] * inverse + ((float)zero + 0.5f), 2 * zero - 1);
    return d;
}

/* Q4_1 and Q5_1: q = (x - low) / d from 0 to most. Returns d. */
static float offset_quants(const float *x, int most, uint8_t *q, float *low) {
    float high;
    range(x, low, &high);
    float d = (high - *low) / (float)most, inverse = reciprocal_or_zero(d);
    for (int i = 0; i < BLOCK; i++) q[i] = clamp_quant((x[i] - *low) * inverse + 0.5f, most);
    return d;
}

static void encode_q4_0(const float *x, uint8_t *b) {
    uint8_t q[BLOCK];
    store_u16(b, half_from_float(symmetric_quants(x, 8, q)));
    store_nibbles(q, b + 2);
}

static void encode_q5_0(const float *x, uint8_t *b) {
    uint8_t q[BLOCK];
    store_u16(b, half_from_float(symmetric_quants(x, 16, q)));
    store_fifth_bits(q, b + 2);
    store_nibbles(q, b + 6);
}

static void encode_q4_1(const float *x, uint8_t *b) {
    uint8_t q[BLOCK];
    float low;
    store_u16(b, half_from_float(offset_quants(x, 15, q, &low)));
    store_u16(b + 2, half_from_float(low));
    store_nibbles(q, b + 4);
}

static void encode_q5_1(const float *x, uint8_t *b) {
    uint8_t q[BLOCK];
    float low;
    store_u16(b, half_from_float(offset_quants(x, 31, q, &low)));
    store_u16(b + 2, half_from_float(low));
    store_fifth_bits(q, b + 4);
    store_nibbles(q, b + 8);
}

static void encode_q8_0(const float *x, uint8_t *b) {
    float d = fabsf(signed_maximum(x)) / 127.0f, inverse = reciprocal_or_zero(d);
    store_u16(b, half_from_float(d));
    for (int i = 0; i < BLOCK; i++) {
        float scaled = fabsf(x[i] * inverse), whole = floorf(scaled);
        whole += floorf(2.0f * (scaled - whole));    /* halves away from zero */
        int q = clamp_quant(whole, 127);
        b[2 + i] = (uint8_t)(x[i] < 0.0f ? -q : q);
    }
}

bool quant_encode(DType type, const float *src, int64_t n, uint8_t *dst) {
    switch (type) {
    case DT_F32: memcpy(dst, src, (size_t)n * sizeof *src); return true;
    case DT_F16: for (int64_t i = 0; i < n; i++) store_u16(dst + 2 * i, half_from_float(src[i])); return true;
    case DT_BF16: for (int64_t i = 0; i < n; i++) store_u16(dst + 2 * i, bf16_from_float(src[i])); return true;
    case DT_Q4_0: for (int64_t i = 0; i < n / BLOCK; i++) encode_q4_0(src + BLOCK * i, dst + 18 * i); return true;
    case DT_Q4_1: for (int64_t i = 0; i < n / BLOCK; i++) encode_q4_1(src + BLOCK * i, dst + 20 * i); return true;
    case DT_Q5_0: for (int64_t i = 0; i < n / BLOCK; i++) encode_q5_0(src + BLOCK * i, dst + 22 * i); return true;
    case DT_Q5_1: for (int64_t i = 0; i < n / BLOCK; i++) encode_q5_1(src + BLOCK * i, dst + 24 * i); return true;
    case DT_Q8_0: for (int64_t i = 0; i < n / BLOCK; i++) encode_q8_0(src + BLOCK * i, dst + 34 * i); return true;
    default: return false;
    }
}
