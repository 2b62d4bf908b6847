/* difference.c - how one array differs from another. [DIF-1] */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/files/quant.h"
#include "diff_parts.h"

/* Bits of a type's significand, the hidden one included. */
static int significand_bits(DType type) { return type == DT_F64 ? 53 : type == DT_F32 ? 24 : type == DT_F16 ? 11 : type == DT_BF16 ? 8 : 53; }
static int smallest_exponent(DType type) { return type == DT_F64 ? -1074 : type == DT_F16 ? -24 : type == DT_BF16 ? -133 : -149; }

/* The distance between neighbours of a type near x. */
double type_spacing(DType type, double x) {
    int e;
    if (x == 0) return ldexp(1, smallest_exponent(type));
    frexp(x, &e);
    const int exponent = e - significand_bits(type);
    return ldexp(1, exponent > smallest_exponent(type) ? exponent : smallest_exponent(type));
}

double round_to_type(DType type, double x) {
    switch (type) {
    case DT_F32: return (double)(float)x;
    case DT_F16: return half_to_double(half_from_float((float)x));
    case DT_BF16: return bf16_round(x);
    default: return x;
    }
}

double storage_unit(DType type) { return type == DT_F16 ? 0x1p-11 : type == DT_BF16 ? 0x1p-8 : type == DT_F32 ? 0x1p-24 : 0; }

double profile_unit(CloverNumerics profile) { return profile == CLOVER_BF16 ? 0x1p-9 : 0x1p-24; }

bool is_coarse(DType type, CloverNumerics profile) { return storage_unit(type) > 4 * profile_unit(profile); }

int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void exchange(double *x, int64_t i, int64_t j) {
    const double was = x[i];
    x[i] = x[j];
    x[j] = was;
}

/* The value that 99 of 100 do not exceed, by Hoare's selection: x [n] is reordered until element k stands where sorting would put it. */
static double percentile_99(double *x, int64_t n) {
    const int64_t k = (n - 1) * 99 / 100;
    for (int64_t low = 0, high = n - 1; low < high;) {
        const double pivot = x[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (x[i] < pivot) i++;
            while (x[j] > pivot) j--;
            if (i <= j) exchange(x, i++, j--);
        }
        if (k <= j) high = j;
        else if (k >= i) low = i;
        else break;
    }
    return n ? x[k] : 0;
}

bool difference(Difference *d, const double *actual, const double *expected, int64_t n, DType type) {
    *d = (Difference){ .worst = -1 };
    double squares = 0, expected_squares = 0, actual_squares = 0, product = 0, sum = 0;
    double *sizes = malloc((size_t)n * sizeof *sizes + 1);
    if (!sizes) return false;
    int64_t finite = 0, first_not_finite = -1;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(actual[i])) {
            if (d->not_finite++ == 0) first_not_finite = i;
            continue;
        }
        const double off = fabs(actual[i] - expected[i]);
        sizes[finite++] = off;
        sum += off;
        squares += off * off;
        expected_squares += expected[i] * expected[i];
        actual_squares += actual[i] * actual[i];
        product += actual[i] * expected[i];
        if (d->worst < 0 || off > d->max) {
            d->max = off;
            d->worst = i;
        }
    }
    if (finite > 0) {
        d->mean = sum / (double)finite;
        d->rms = sqrt(squares / (double)finite);
        d->expected = expected[d->worst];
        d->actual = actual[d->worst];
        d->ulp = d->max / type_spacing(type, d->expected);
        d->relative = d->rms == 0 ? 0 : expected_squares > 0 ? sqrt(squares / expected_squares) : HUGE_VAL;
        d->cosine = d->rms == 0 ? 1 : expected_squares > 0 && actual_squares > 0 ? product / sqrt(expected_squares * actual_squares) : 0;
        d->p99 = percentile_99(sizes, finite);
    }
    if (d->not_finite > 0) {             /* the first of them is what a reader looks for; the figures are of the others */
        d->worst = first_not_finite;
        d->expected = expected[d->worst];
        d->actual = actual[d->worst];
        d->ulp = (double)NAN;
    }
    free(sizes);
    return true;
}

double rms_of(const double *x, int64_t n) {
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += x[i] * x[i];
    return n ? sqrt(squares / (double)n) : 0;
}

double largest_of(const double *x, int64_t n) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(x[i]));
    return largest;
}

/* log of the sum of exponentials. */
static double log_sum(const double *x, int64_t n) {
    double top = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++) top = fmax(top, x[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - top);
    return top + log(sum);
}

static int64_t argmax(const double *x, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

enum { TOP = 5 };
static void top_ids(const double *x, int64_t n, int64_t *ids) {
    int have = 0;
    for (int64_t i = 0; i < n; i++) {
        int at = have;
        while (at > 0 && x[i] > x[ids[at - 1]]) at--;
        if (at == TOP) continue;
        if (have < TOP) have++;
        for (int k = have - 1; k > at; k--) ids[k] = ids[k - 1];
        ids[at] = i;
    }
    for (; have < TOP; have++) ids[have] = -1;
}

/* KL(expected | actual) in nats; regret: what the actual argmax loses in the expected log-probabilities. */
void logits_figures(LogitsFigures *f, const double *actual, const double *expected, int64_t rows, int64_t V) {
    *f = (LogitsFigures){ .rows = rows };
    for (int64_t r = 0; r < rows; r++) {
        const double *a = actual + r * V, *e = expected + r * V, log_a = log_sum(a, V), log_e = log_sum(e, V);
        double kl = 0;
        for (int64_t i = 0; i < V; i++) kl += exp(e[i] - log_e) * ((e[i] - log_e) - (a[i] - log_a));
        int64_t ours[TOP], theirs[TOP];
        top_ids(e, V, ours);
        top_ids(a, V, theirs);
        int shared = 0;
        for (int i = 0; i < TOP; i++)
            for (int k = 0; k < TOP; k++) shared += ours[i] >= 0 && ours[i] == theirs[k];
        const int64_t best = argmax(e, V), chosen = argmax(a, V);
        f->kl_max = fmax(f->kl_max, kl);
        f->kl_mean += kl / (double)rows;
        f->top5_overlap += (double)shared / (double)(V < TOP ? V : TOP) / (double)rows;
        f->regret_max = fmax(f->regret_max, e[best] - e[chosen]);
        f->argmax_differs += best != chosen;
    }
}
