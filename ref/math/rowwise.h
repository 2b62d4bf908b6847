/* rowwise.h - functions of one row, and where rounding happens. [ROW, NUM] */
#ifndef CLOVER_ROWWISE_H
#define CLOVER_ROWWISE_H

#include <stdint.h>
#include "../clover.h"

/* The precision that values are stored in between operations. Exact arithmetic stores doubles; an engine's profile is
 * the same arithmetic with the values rounded where that engine rounds. */
typedef enum Storage { STORE_F64, STORE_F32, STORE_BF16 } Storage;

double round_to(Storage s, double x);                /* the nearest value of s, ties to even */
void round_row(Storage s, double *x, int64_t n);

double sigmoid(double x);
double silu(double x);                               /* x * sigmoid(x) */
double softplus(double x);                           /* x when x > 20, else ln(1 + e^x) */

/* y = x * rsqrt(mean(x^2) + eps) * w over n elements; y may be x. w NULL: factor 1. */
void rms_norm(double *y, const double *x, const double *w, int64_t n, double eps);
/* y = x * rsqrt(sum(x^2) + eps) over n elements; y may be x. */
void l2_norm(double *y, const double *x, int64_t n, double eps);
/* In place over n elements: e^(x - max) / sum, added in ascending order. */
void softmax(double *x, int64_t n);
double dot_ascending(const double *a, const double *b, int64_t n);    /* added in ascending order */

#endif
