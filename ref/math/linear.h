/* linear.h - how rows are multiplied by a weight matrix. [NUM] */
#ifndef CLOVER_LINEAR_H
#define CLOVER_LINEAR_H

#include "../files/weights.h"
#include "rowwise.h"

/* What one computation runs with. The error is sticky: after the first, linear() and its callers return at once with
 * their outputs zeroed, and the caller of the forward pass finds it in err. */
typedef struct Run {
    CloverNumerics numerics;
    Storage storage;         /* of values between operations */
    Storage inner;           /* of what an engine keeps in float32 whatever its storage: rotary angles, S */
    CloverError *err;
    void *buffers;           /* linear's own: decoded rows, panels */
} Run;

CloverStatus run_init(Run *run, CloverNumerics numerics, CloverError *err);
void run_free(Run *run);
static inline bool run_failed(const Run *run) { return run->err->status != CLOVER_OK; }

/* y[t][r] = sum over c of w[r][c] * x[t][c], rounded to the run's storage.  x [T, cols], y [T, rows].
 * Exact: element c is added to lane c mod 16 in ascending order; then lanes l and l+8, l+4, l+2, l+1 are added. A result
 * that is not finite is an error that names the tensor and row. */
void linear(Run *run, const Matrix *w, const double *x, int64_t T, double *y);

/* Row r of w as doubles, in HF order: [cols]. For embeddings. */
void matrix_row(Run *run, const Matrix *w, int64_t r, double *row);

#endif
