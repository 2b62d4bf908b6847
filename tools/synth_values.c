/* synth_values.c - random values and blocks. */
#include <string.h>
#include "../ref/files/quant.h"
#include "synth.h"

/* FNV-1a of the name, started from the seed. */
uint64_t random_stream(uint64_t seed, const char *name) {
    uint64_t h = 0xcbf29ce484222325u ^ (seed * 0x9e3779b97f4a7c15u);
    for (const char *p = name; *p; p++) h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    return h;
}

/* SplitMix64's output number i of the stream: any element without those before it. */
static inline uint64_t random_at(uint64_t stream, uint64_t i) {
    uint64_t z = stream + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Rounded to 8 significant bits (bfloat16), and to multiples of 2^-21 below 2^-14, where float16 has fewer. */
static inline float round_to_both(float x) {
    if (x < 0x1p-14f && x > -0x1p-14f) return (float)(int)(x * 0x1p21f + (x < 0 ? -0.5f : 0.5f)) * 0x1p-21f;
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
    memcpy(&x, &bits, 4);
    return x;
}

/* The sum of four uniform 16-bit numbers: its mean and standard deviation. */
static const double sum_mean = 2 * 65535.0, sum_sd = 65536 / 1.7320508075688772;     /* sqrt(4 * 65536^2 / 12) */

void random_normal(uint64_t stream, int64_t first, int64_t n, double mean, double sd, float *out) {
    double scale = sd / sum_sd;
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = random_at(stream, (uint64_t)(first + i));
        int32_t sum = (int32_t)((r & 0xffff) + ((r >> 16) & 0xffff) + ((r >> 32) & 0xffff) + (r >> 48));
        out[i] = round_to_both((float)(mean + scale * ((double)sum - sum_mean)));
    }
}

/* Where a block's scale d lies, and its minimum m (-1: none); m = ratio * d makes the mean zero; rms: of the values of random
 * bits at d = 1. Where the quants lean to one side and there is no minimum, every other d is negative instead. [QNT] */
typedef struct BlockForm { DType type; int d, m; double ratio, rms; bool both_signs; } BlockForm;

static const BlockForm block_forms[] = {
    { DT_Q4_0, 0, -1, 0, 4.637, true },     { DT_Q4_1, 0, 2, -7.5, 4.610, false },   { DT_Q5_0, 0, -1, 0, 9.247, true },
    { DT_Q5_1, 0, 2, -15.5, 9.233, false }, { DT_Q8_0, 0, -1, 0, 73.90, true },      { DT_Q2_K, 80, 82, 1.5, 13.87, false },
    { DT_Q3_K, 108, -1, 0, 43.34, true },   { DT_Q4_K, 0, 2, 7.5, 258.3, false },    { DT_Q5_K, 0, 2, 15.5, 526.9, false },
    { DT_Q6_K, 208, -1, 0, 1365.7, true },  { DT_IQ4_NL, 0, -1, 0, 67.44, true },    { DT_IQ4_XS, 0, -1, 0, 1246.3, true },
};

static void put_half(uint8_t *at, double x) {
    uint16_t h = half_from_float((float)x);
    memcpy(at, &h, 2);
}

void random_blocks(uint64_t stream, DType type, int64_t first, int64_t n, double sd, uint8_t *out) {
    const BlockForm *form = block_forms;
    while (form->type != type) form++;
    size_t bytes = (size_t)dtype_info(type)->bytes;
    uint64_t words = (bytes + 7) / 8, next = (uint64_t)first * (words + 1);      /* a block uses words + 1 random numbers */
    for (int64_t b = 0; b < n; b++, out += bytes) {
        for (size_t at = 0; at < bytes; at += 8) {
            uint64_t r = random_at(stream, next++);
            memcpy(out + at, &r, bytes - at < 8 ? bytes - at : 8);
        }
        uint64_t r = random_at(stream, next++);
        double d = sd / form->rms * (0.5 + (double)(r & 0xff) / 256);
        if (form->both_signs && (r & 0x100)) d = -d;
        put_half(out + form->d, d);
        if (form->m >= 0) put_half(out + form->m, d * form->ratio);
    }
}
