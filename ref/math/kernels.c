/* kernels.c - decoding and dot products. Compiled once per instruction set with KERNELS_ISA naming it (the Makefile). */
#include <string.h>
#include "kernels.h"

#ifndef KERNELS_ISA
#define KERNELS_ISA baseline
#endif
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define KERNELS_TABLE JOIN(kernels_, KERNELS_ISA)
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

/* The vector width, and the rows of x that share one pass over w: as the registers hold. They change speed, never a
 * result. */
#if defined(__AVX512F__)
enum { VECTOR = 64, ROWS = 4 };
#elif defined(__AVX2__)
enum { VECTOR = 32, ROWS = 2 };
#else
enum { VECTOR = 16, ROWS = 1 };
#endif

#define REAL double
#define QUANT_NAME(x) x##_double
#include "../files/quant_decode.inc"
#undef REAL
#undef QUANT_NAME
#define REAL float
#define QUANT_NAME(x) x##_float
#include "../files/quant_decode.inc"

/* Doubles side by side; an operation on them is so many independent IEEE operations, on any CPU. */
typedef double Doubles __attribute__((vector_size(VECTOR)));
enum { LANES = 16, SIDE = VECTOR / 8, PARTS = LANES / SIDE };   /* the 16 lanes of the written order, in PARTS vectors */

/* A macro: passing such vectors by value has no stable ABI. */
#define LOAD(v, p) memcpy(&(v), p, sizeof (v))

/* The definition, for `rows` (a constant where it is inlined) rows of x. */
static inline __attribute__((always_inline))
void dot_rows(const double *w, const double *x, int64_t stride, int64_t rows, int64_t n, double *y, int64_t y_stride) {
    Doubles sum[ROWS][PARTS];
    for (int64_t r = 0; r < rows; r++)
        for (int p = 0; p < PARTS; p++) sum[r][p] = (Doubles){ 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int p = 0; p < PARTS; p++) {
            Doubles wi, xi;
            LOAD(wi, w + i + p * SIDE);
            for (int64_t r = 0; r < rows; r++) {
                LOAD(xi, x + r * stride + i + p * SIDE);
                sum[r][p] += wi * xi;
            }
        }
    for (int64_t r = 0; r < rows; r++) {
        double lane[LANES];
        memcpy(lane, sum[r], sizeof lane);
        for (int64_t j = i; j < n; j++) lane[j % LANES] += w[j] * x[r * stride + j];
        for (int64_t half = LANES / 2; half >= 1; half /= 2)
            for (int64_t l = 0; l < half; l++) lane[l] += lane[l + half];
        y[r * y_stride] = lane[0];
    }
}

static void dot(const double *w, const double *x, int64_t stride, int64_t rows, int64_t n, double *y, int64_t y_stride) {
    int64_t r = 0;
    for (; r + ROWS <= rows; r += ROWS) dot_rows(w, x + r * stride, stride, ROWS, n, y + r * y_stride, y_stride);
    for (; r < rows; r++) dot_rows(w, x + r * stride, stride, 1, n, y + r * y_stride, y_stride);
}

typedef float Floats __attribute__((vector_size(VECTOR)));

/* 32 lanes in float; the order is free here, as long as it is the same every time. */
static float dot_float(const float *w, const float *x, int64_t n) {
    enum { FLOAT_LANES = 32, FLOAT_SIDE = VECTOR / 4, FLOAT_PARTS = FLOAT_LANES / FLOAT_SIDE };
    Floats sum[FLOAT_PARTS], wi, xi;
    for (int p = 0; p < FLOAT_PARTS; p++) sum[p] = (Floats){ 0 };
    int64_t i = 0;
    for (; i + FLOAT_LANES <= n; i += FLOAT_LANES)
        for (int p = 0; p < FLOAT_PARTS; p++) {
            LOAD(wi, w + i + p * FLOAT_SIDE);
            LOAD(xi, x + i + p * FLOAT_SIDE);
            sum[p] += wi * xi;
        }
    float lane[FLOAT_LANES], total = 0;
    memcpy(lane, sum, sizeof lane);
    for (int l = 0; l < FLOAT_LANES; l++) total += lane[l];
    for (; i < n; i++) total += w[i] * x[i];
    return total;
}

extern const Kernels KERNELS_TABLE;
const Kernels KERNELS_TABLE = { TEXT(KERNELS_ISA), decode_double, decode_float, dot, dot_float };
