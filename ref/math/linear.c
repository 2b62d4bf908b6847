/* linear.c - rows times a weight matrix: exact in doubles, fast in floats. [NUM] */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../error.h"
#include "../files/quant.h"
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
    if (__builtin_cpu_supports("avx512f")) return &kernels_avx512;
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
    static const Storage storage[] = { [CLOVER_EXACT] = STORE_F64, [CLOVER_FAST] = STORE_F64, [CLOVER_BF16] = STORE_BF16,
                                       [CLOVER_F32] = STORE_F32, [CLOVER_LLAMA_CPP] = STORE_F32 };
    if ((int)numerics < 0 || (size_t)numerics >= sizeof storage / sizeof *storage)
        return error_set(err, CLOVER_USAGE, "numerics %d: expected exact, fast, bf16, f32 or llama.cpp", (int)numerics);
    *run = (Run){ .numerics = numerics, .storage = storage[numerics], .inner = storage[numerics] == STORE_F64 ? STORE_F64 : STORE_F32 };
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

/* A result is not finite: say whose fault it is. [NUM-7] */
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

/* The reference: a row is decoded once and meets every row of x. [NUM-2] */
static void linear_exact(Run *run, const Matrix *w, const double *x, int64_t T, double *y) {
    const Buffers *b = run->buffers;
    for (int64_t r = 0; r < w->rows; r++) {
        const double *row = decoded_row(run, w, r);
        if (!row) return;
        b->kernels->dot(row, x, w->cols, T, w->cols, y + r, w->rows);
    }
}

/* Few rows: dot products. Many: panels of decoded rows and sgemm. [NUM-5] */
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

/* ---- engines' profiles [NUM-8] --------------------------------------------------------------------------------- */

/* x [n] as llama.cpp's CPU backend has it when it meets a weight of that type: 8-bit blocks for quantised ones. */
static void meet_weight_type(DType type, const double *x, int64_t n, double *y) {
    const DTypeInfo *info = dtype_info(type);
    if (info->block == 1) {
        for (int64_t i = 0; i < n; i++)
            y[i] = type == DT_BF16 ? round_to(STORE_BF16, x[i]) : type == DT_F16 ? half_to_double(half_from_float((float)x[i])) : x[i];
        return;
    }
    for (int64_t start = 0; start < n; start += info->block) {   /* Q8_0 for blocks of 32, Q8_K for blocks of 256 */
        double largest = 0;
        for (int64_t i = start; i < start + info->block; i++) largest = fmax(largest, fabs(x[i]));
        double step = largest / 127.0;
        if (info->block == 32) step = half_to_double(half_from_float((float)step));
        for (int64_t i = start; i < start + info->block; i++) y[i] = step > 0 ? step * nearbyint(x[i] * (127.0 / largest)) : 0.0;
    }
}

/* A float32 engine adds in one of many orders. The worse of two: one after the other, and in eight lanes. */
static double float_sum(const double *w, const double *x, int64_t n) {
    float one = 0, lane[8] = { 0 };
    double exact = 0;
    for (int64_t i = 0; i < n; i++) {
        const float product = (float)w[i] * (float)x[i];
        one += product;
        lane[i % 8] += product;
        exact += w[i] * x[i];
    }
    const float lanes = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    return fabs((double)one - exact) > fabs((double)lanes - exact) ? (double)one : (double)lanes;
}

static void linear_profile(Run *run, const Matrix *w, const double *x, int64_t T, double *y) {
    Buffers *b = run->buffers;
    double *met = grow(run, &b->x, &b->x_bytes, (size_t)(T * w->cols) * sizeof *met);
    if (!met) return;
    for (int64_t t = 0; t < T; t++)
        if (run->numerics == CLOVER_LLAMA_CPP) meet_weight_type(w->type, x + t * w->cols, w->cols, met + t * w->cols);
        else memcpy(met + t * w->cols, x + t * w->cols, (size_t)w->cols * sizeof *met);
    for (int64_t r = 0; r < w->rows; r++) {
        const double *row = decoded_row(run, w, r);
        if (!row) return;
        for (int64_t t = 0; t < T; t++) y[t * w->rows + r] = float_sum(row, met + t * w->cols, w->cols);
    }
}

void linear(Run *run, const Matrix *w, const double *x, int64_t T, double *y) {
    if (!run_failed(run) && decodable(run, w)) {
        if (run->numerics == CLOVER_FAST) linear_fast(run, w, x, T, y);
        else if (run->numerics == CLOVER_F32 || run->numerics == CLOVER_LLAMA_CPP) linear_profile(run, w, x, T, y);
        else linear_exact(run, w, x, T, y);
    }
    for (int64_t i = 0; i < T * w->rows && !run_failed(run); i++) {
        if (!isfinite(y[i])) blame(run, w, i % w->rows, x + i / w->rows * w->cols);
        y[i] = round_to(run->storage, y[i]);
    }
    if (run_failed(run)) memset(y, 0, (size_t)(T * w->rows) * sizeof(double));
}
