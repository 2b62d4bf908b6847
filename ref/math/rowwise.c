/* rowwise.c - norms, activations, softmax: functions of one row. Every sum starts at 0 and adds element 0, 1, 2, ... in
 * that order, in double. [NUM-3] */
#include "rowwise.h"

#include <math.h>
#include "../files/quant.h"
#include "elementary.h"

/* Ties to even, in one rounding: by way of float a bfloat16 would be rounded twice. [NUM-6] */
double round_to(Storage s, double x) {
    switch (s) {
    case STORE_F32: return (double)(float)x;
    case STORE_BF16: return bf16_round(x);
    case STORE_F64: break;
    }
    return x;
}

void round_row(Storage s, double *x, int64_t n) {
    if (s == STORE_F64) return;
    for (int64_t i = 0; i < n; i++) x[i] = round_to(s, x[i]);
}

/* The exponential's argument is never positive, so nothing overflows and small results keep all their digits. [ROW-3] */
double sigmoid(double x) {
    if (x >= 0.0) return 1.0 / (1.0 + el_exp(-x));
    double e = el_exp(x);
    return e / (1.0 + e);
}

double silu(double x) {
    if (x == -INFINITY) return -0.0;    /* the limit; -inf * 0 would be NaN */
    return x * sigmoid(x);
}

/* [ROW-4] */
double softplus(double x) { return x > 20.0 ? x : el_log1p(el_exp(x)); }

static double sum_of_squares(const double *x, int64_t n) { return dot_ascending(x, x, n); }

/* [ROW-1] */
void rms_norm(double *y, const double *x, const double *w, int64_t n, double eps) {
    double factor = 1.0 / sqrt(sum_of_squares(x, n) / (double)n + eps);
    for (int64_t i = 0; i < n; i++) y[i] = w ? x[i] * factor * w[i] : x[i] * factor;
}

/* The sum, not the mean. [ROW-2] */
void l2_norm(double *y, const double *x, int64_t n, double eps) {
    double factor = 1.0 / sqrt(sum_of_squares(x, n) + eps);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * factor;
}

/* A NaN anywhere, a +inf, or nothing but -inf makes every element NaN (inf - inf): no probability is invented. [ROW-5] */
void softmax(double *x, int64_t n) {
    double max = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < n; i++) {
        x[i] = el_exp(x[i] - max);
        sum += x[i];
    }
    for (int64_t i = 0; i < n; i++) x[i] /= sum;
}

double dot_ascending(const double *a, const double *b, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}
