/* linear.c - rows times a weight matrix: exact in doubles, fast in floats. [NUM] */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../error.h"
#include "kernels.h"
#include "linear.h"

/* OpenBLAS's own, not in its cblas.h of every version. */
void openblas_set_num_threads(int threads);

extern const Kernels kernels_baseline;
#if defined(__x86_64__)
extern const Kernels kernels_avx2, kernels_avx512;
#endif

const Kernels *kernels_best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) return &kernels_avx512;
    if (__builtin_cpu_supports("avx2")) return &kernels_avx2;
#endif
    return &kernels_baseline;
}

/* One decoded row costs its columns; a panel of rows for sgemm is kept within a second-level cache. */
enum { PANEL_BYTES = 512 * 1024, FEW_ROWS = 4 };

typedef struct Buffers {
    const Kernels *kernels;
    void *row, *spare, *panel, *x, *y;           /* grown when needed */
    size_t row_bytes, spare_bytes, panel_bytes, x_bytes, y_bytes;
} Buffers;

CloverStatus run_init(Run *run, CloverNumerics numerics, CloverError *err) {
    *run = (Run){ .numerics = numerics, .storage = numerics == CLOVER_BF16 ? STORE_BF16 : STORE_F64 };
    Buffers *b = calloc(1, sizeof *b);
    if (!b) return error_memory(err, "buffers", sizeof *b);
    b->kernels = kernels_best();
    run->buffers = b;
    if (numerics == CLOVER_FAST) openblas_set_num_threads(1);
    return CLOVER_OK;
}

void run_free(Run *run) {
    Buffers *b = run->buffers;
    if (!b) return;
    free(b->row);
    free(b->spare);
    free(b->panel);
    free(b->x);
    free(b->y);
    free(b);
    run->buffers = NULL;
}

/* *buffer with at least `bytes`, aligned to cache lines; NULL (and the sticky error) when there is no memory. */
static void *grow(Run *run, void **buffer, size_t *have, size_t bytes) {
    if (*have >= bytes) return *buffer;
    free(*buffer);
    *have = 0;
    const size_t rounded = (bytes + 63) / 64 * 64;
    *buffer = aligned_alloc(64, rounded);
    if (!*buffer) error_memory(run->err, "a decoded weight row", rounded);
    else *have = rounded;
    return *buffer;
}

/* The matrix's row r (HF's index) in the file. */
static const uint8_t *stored_row(const Matrix *w, int64_t r) { return w->data + head_map(&w->row_map, r) * w->row_bytes; }

/* Columns that the file keeps in tiled head order go to HF's order, so that sums run in the same order for every file. */
#define DEFINE_UNTILE(NAME, REAL) \
    static void NAME(const HeadMap *m, const REAL *stored, int64_t cols, REAL *row) { \
        memcpy(row, stored, (size_t)m->start * sizeof(REAL)); \
        for (int64_t c = m->start; c < cols; c += m->width) \
            memcpy(row + c, stored + head_map(m, c), (size_t)m->width * sizeof(REAL)); \
    }
DEFINE_UNTILE(untile_double, double)
DEFINE_UNTILE(untile_float, float)

/* Row r as doubles in HF order, in the run's buffer; NULL on failure. */
static const double *decoded_row(Run *run, const Matrix *w, int64_t r) {
    Buffers *b = run->buffers;
    double *row = grow(run, &b->row, &b->row_bytes, (size_t)w->cols * sizeof(double));
    if (!row) return NULL;
    if (w->col_map.width == 0) {
        b->kernels->decode(w->type, stored_row(w, r), w->cols, row);
        return row;
    }
    double *stored = grow(run, &b->spare, &b->spare_bytes, (size_t)w->cols * sizeof(double));
    if (!stored) return NULL;
    b->kernels->decode(w->type, stored_row(w, r), w->cols, stored);
    untile_double(&w->col_map, stored, w->cols, row);
    return row;
}

/* Row r as floats in HF order into row [cols]; false on failure. */
static bool decode_float_row(Run *run, const Matrix *w, int64_t r, float *row) {
    Buffers *b = run->buffers;
    if (w->col_map.width == 0) {
        b->kernels->decode_float(w->type, stored_row(w, r), w->cols, row);
        return true;
    }
    float *stored = grow(run, &b->spare, &b->spare_bytes, (size_t)w->cols * sizeof(float));
    if (!stored) return false;
    b->kernels->decode_float(w->type, stored_row(w, r), w->cols, stored);
    untile_float(&w->col_map, stored, w->cols, row);
    return true;
}

static bool decodable(Run *run, const Matrix *w) {
    const DTypeInfo *info = dtype_info(w->type);
    if (info && info->decodable) return true;
    if (info) error_set(run->err, CLOVER_UNSUPPORTED, "%s: tensor %s has type %s, which cannot be decoded", w->tensor->file, w->tensor->name, info->name);
    else error_set(run->err, CLOVER_UNSUPPORTED, "%s: tensor %s has type %d, which is not known", w->tensor->file, w->tensor->name, (int)w->type);
    return false;
}

/* A result is not finite: say whose fault it is. */
static void blame(Run *run, const Matrix *w, int64_t r, const double *x) {
    const double *row = decoded_row(run, w, r);
    if (!row) return;
    for (int64_t c = 0; c < w->cols; c++)
        if (!isfinite(row[c])) {
            /* Rows are counted through the whole tensor, so an expert's slice is told by its row. */
            const int64_t first = (w->data - w->tensor->data) / w->row_bytes;
            error_set(run->err, CLOVER_BAD_INPUT, "%s: tensor %s holds %s at row %lld, column %lld (of %lld columns); it was touched, so no answer is given",
                      w->tensor->file, w->tensor->name, isnan(row[c]) ? "a NaN" : "an infinity", (long long)(first + r), (long long)c, (long long)w->cols);
            return;
        }
    for (int64_t c = 0; x && c < w->cols; c++)
        if (!isfinite(x[c])) {
            error_set(run->err, CLOVER_BAD_INPUT, "%s: the values that reach tensor %s are not finite (column %lld): an earlier stage overflowed or was given such values",
                      w->tensor->file, w->tensor->name, (long long)c);
            return;
        }
    error_set(run->err, CLOVER_BAD_INPUT, "%s: the product with tensor %s overflows at row %lld", w->tensor->file, w->tensor->name, (long long)r);
}

void matrix_row(Run *run, const Matrix *w, int64_t r, double *out) {
    memset(out, 0, (size_t)w->cols * sizeof(double));
    if (run_failed(run) || !decodable(run, w)) return;
    const double *row = decoded_row(run, w, r);
    if (!row) return;
    for (int64_t c = 0; c < w->cols; c++)
        if (!isfinite(row[c])) {
            blame(run, w, r, NULL);
            return;
        }
    memcpy(out, row, (size_t)w->cols * sizeof(double));
}

/* The reference: a row is decoded once and meets every row of x. */
static void linear_exact(Run *run, const Matrix *w, const double *x, int64_t T, double *y) {
    const Buffers *b = run->buffers;
    for (int64_t r = 0; r < w->rows; r++) {
        const double *row = decoded_row(run, w, r);
        if (!row) return;
        b->kernels->dot(row, x, w->cols, T, w->cols, y + r, w->rows);
    }
}

/* Few rows: dot products. Many: panels of decoded rows and sgemm. */
static void linear_fast(Run *run, const Matrix *w, const double *x, int64_t T, double *y) {
    Buffers *b = run->buffers;
    const int64_t cols = w->cols, fit = PANEL_BYTES / (cols * (int64_t)sizeof(float));
    const int64_t most = T <= FEW_ROWS || fit < 1 ? 1 : fit < w->rows ? fit : w->rows;
    float *panel = grow(run, &b->panel, &b->panel_bytes, (size_t)(most * cols) * sizeof(float));
    float *xf = panel ? grow(run, &b->x, &b->x_bytes, (size_t)(T * cols) * sizeof(float)) : NULL;
    float *yf = xf ? grow(run, &b->y, &b->y_bytes, (size_t)(T * most) * sizeof(float)) : NULL;
    if (!yf) return;
    for (int64_t i = 0; i < T * cols; i++) xf[i] = (float)x[i];

    for (int64_t start = 0; start < w->rows; start += most) {
        const int64_t n = w->rows - start < most ? w->rows - start : most;
        for (int64_t r = 0; r < n; r++)
            if (!decode_float_row(run, w, start + r, panel + r * cols)) return;
        if (n == 1)
            for (int64_t t = 0; t < T; t++) yf[t] = b->kernels->dot_float(panel, xf + t * cols, cols);
        else
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)T, (int)n, (int)cols, 1.0f, xf, (int)cols, panel, (int)cols, 0.0f, yf, (int)n);
        for (int64_t t = 0; t < T; t++)
            for (int64_t r = 0; r < n; r++) y[t * w->rows + start + r] = (double)yf[t * n + r];
    }
}

void linear(Run *run, const Matrix *w, const double *x, int64_t T, double *y) {
    if (!run_failed(run) && decodable(run, w)) {
        if (run->numerics == CLOVER_FAST) linear_fast(run, w, x, T, y);
        else linear_exact(run, w, x, T, y);
    }
    for (int64_t i = 0; i < T * w->rows && !run_failed(run); i++) {
        if (!isfinite(y[i])) blame(run, w, i % w->rows, x + i / w->rows * w->cols);
        y[i] = round_to(run->storage, y[i]);
    }
    if (run_failed(run)) memset(y, 0, (size_t)(T * w->rows) * sizeof(double));
}
