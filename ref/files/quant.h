/* quant.h - block formats to numbers and back. [QNT] */
#ifndef CLOVER_QUANT_H
#define CLOVER_QUANT_H

#include "dtype.h"

/* Decodes n elements (a multiple of the block) that start at a block's first byte. src needs no alignment. The double
 * form is the exact value of the formula in SPEC QNT; the float form is what llama.cpp and the gguf package compute.
 * The type must be decodable. */
void quant_decode(DType type, const uint8_t *src, int64_t n, double *dst);        /* dst [n] */
void quant_decode_float(DType type, const uint8_t *src, int64_t n, float *dst);   /* dst [n] */

/* Encodes n floats, to the bit as the gguf package does: F32, F16, BF16, Q8_0, Q4_0 (and others that it has).
 * Returns false when the type has no encoder. */
bool quant_encode(DType type, const float *src, int64_t n, uint8_t *dst);

double half_to_double(uint16_t h);
double bf16_to_double(uint16_t b);
uint16_t half_from_float(float x);    /* round to nearest even */
uint16_t bf16_from_float(float x);    /* round to nearest even; NaN stays NaN */
double bf16_round(double x);          /* the bfloat16 nearest to x, ties to even, overflow to infinity; one rounding from double */

#endif
