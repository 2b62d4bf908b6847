/* kernels.h - the inner loops of linear(), compiled once for each instruction set. Every set gives the same bits: lanes
 * are independent, no operation is fused, and the order of the additions is written down. [NUM] */
#ifndef CLOVER_KERNELS_H
#define CLOVER_KERNELS_H

#include "../files/dtype.h"

typedef struct Kernels {
    const char *name;
    /* quant_decode and quant_decode_float, same contracts. */
    void (*decode)(DType type, const uint8_t *src, int64_t n, double *dst);
    void (*decode_float)(DType type, const uint8_t *src, int64_t n, float *dst);
    /* y[t * y_stride] = sum of w[i] * x[t * stride + i], for `rows` rows of n.  Element i is added to lane i mod 16 in
     * ascending order; then lanes l and l+8, l+4, l+2, l+1 are added. */
    void (*dot)(const double *w, const double *x, int64_t stride, int64_t rows, int64_t n, double *y, int64_t y_stride);
    float (*dot_float)(const float *w, const float *x, int64_t n);
} Kernels;

const Kernels *kernels_best(void);   /* for the CPU that this runs on */

#endif
