/* random_model.h - weights in memory, filled from a seed: enough to run single layers without a file. */
#ifndef CLOVER_TEST_RANDOM_MODEL_H
#define CLOVER_TEST_RANDOM_MODEL_H

#include <stdlib.h>
#include "../ref/files/weights.h"
#include "random.h"

/* n doubles uniform in [low, high); free them. */
static inline double *random_row(uint64_t *seed, int64_t n, double low, double high) {
    double *row = malloc((size_t)n * sizeof *row);
    for (int64_t i = 0; row && i < n; i++) row[i] = random_between(seed, low, high);
    return row;
}

/* An F64 matrix [rows, cols]; free (void *)m.data. `name` appears in messages. */
static inline Matrix random_matrix(uint64_t *seed, const Tensor *name, int64_t rows, int64_t cols) {
    return (Matrix){ .tensor = name, .data = (const uint8_t *)random_row(seed, rows * cols, -0.5, 0.5), .type = DT_F64,
                     .rows = rows, .cols = cols, .row_bytes = cols * 8 };
}

#endif
