/* compare_measure.c - how far two tensors of a role lie apart, and how far their types let them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "../ref/files/quant.h"
#include "compare.h"

/* What a type's rounding costs: rms of the error / rms of the values, and the largest error / the largest value among 256
 * neighbours. The first from 256 x 1024 values of Student's t with 5 degrees of freedom, put through llama.cpp's own quantisers
 * (normal values cost a sixth less); a type that has an encoder here is asked directly instead. The second is the type's own
 * bound where each block of 32 has its scale; the K types and IQ4 search for scales, and cut outliers: theirs has room. */
typedef struct Loss { DType type; double rms, most; } Loss;
static const Loss losses[] = {
    { DT_F64, 0, 0 }, { DT_F32, 0, 0 },
    { DT_F16, 2.1e-4, 5e-4 },   { DT_BF16, 1.7e-3, 4e-3 },  { DT_Q8_0, 7e-3, 4.5e-3 },  { DT_Q6_K, 0.022, 0.04 },
    { DT_Q5_K, 0.042, 0.12 },   { DT_Q5_1, 0.044, 0.034 },  { DT_Q5_0, 0.054, 0.063 },  { DT_Q4_K, 0.083, 0.2 },
    { DT_Q4_1, 0.09, 0.07 },    { DT_Q4_0, 0.108, 0.127 },  { DT_IQ4_NL, 0.089, 0.2 },  { DT_IQ4_XS, 0.09, 0.2 },
    { DT_Q3_K, 0.18, 0.4 },     { DT_Q2_K, 0.34, 0.8 },
};

static Loss loss_of(DType type) {
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        if (losses[i].type == type) return losses[i];
    return losses[0];
}

static double step_count(float a, float b) {             /* ulps between two floats; infinite when one alone is NaN */
    if (a == b) return 0;
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b) ? 0 : INFINITY;
    int32_t i, k;
    memcpy(&i, &a, sizeof i);
    memcpy(&k, &b, sizeof k);
    const double x = i < 0 ? -(double)(i & INT32_MAX) : i, y = k < 0 ? -(double)(k & INT32_MAX) : k;
    return fabs(x - y);
}

void transform_row(const RoleView *other, const Transform *t, int64_t e, int64_t r, float *out, float *scratch) {
    const int64_t expert = t->expert ? t->expert[e] : e, row = t->row ? t->row[r] : r;
    float *as_is = t->col ? scratch + other->cols : out;
    if (t->transposed) for (int64_t c = 0; c < other->cols; c++) as_is[c] = role_element(other, expert, c, row);
    else role_row(other, expert, row, as_is, scratch);
    for (int64_t c = 0; t->col && c < other->cols; c++) out[c] = as_is[t->col[c]];
    for (int64_t c = 0; t->value != VALUE_AS_IT_IS && c < other->cols; c++) out[c] = value_in_form(t->value, out[c]);
}

/* The coarser of the two and its columns' way into its file: what it would hold of the finer one's row, and what that costs. */
typedef struct Rounding { const RoleView *view; const int64_t *col; float *row; uint8_t *packed; } Rounding;

bool type_has_encoder(DType type) {
    float zeros[256] = { 0 };
    uint8_t packed[1024];
    return quant_encode(type, zeros, dtype_info(type)->block, packed);
}

static void add_expected(const Rounding *q, const float *fine, Measure *m) {
    const int64_t n = q->view->cols;
    for (int64_t c = 0; c < n; c++) q->row[head_map(&q->view->col_map, q->col ? q->col[c] : c)] = fine[c];
    quant_encode(q->view->type, q->row, n, q->packed);
    quant_decode_float(q->view->type, q->packed, n, q->row + n);
    for (int64_t c = 0; c < n; c++) {
        const double d = (double)q->row[n + c] - (double)q->row[c];
        m->expected2 += d * d;
        m->expected_right2 += (double)q->row[c] * (double)q->row[c];
    }
}

static double largest_of(const float *a, const float *b, int64_t n) {
    float most = 0;
    for (int64_t i = 0; i < n; i++) {
        const float x = fabsf(a[i]), y = fabsf(b[i]);
        most = x > most ? x : most;
        most = y > most ? y : most;
    }
    return (double)most;
}

static void add_element(float right, float other, double bound, const int64_t at[3], Measure *m) {
    const double ulps = step_count(right, other), d = isnan(right) || isnan(other) ? INFINITY : fabs((double)right - (double)other);
    if (ulps == 0) return;                               /* NaN in both */
    m->unequal++;
    m->beyond_ulp += ulps > 1;
    m->difference2 += d * d;
    if (!(d <= bound)) m->beyond_bound = true;
    if (d <= m->worst_distance) return;
    m->worst_distance = d;
    memcpy(m->worst, at, sizeof m->worst);
    m->worst_right = right;
    m->worst_other = other;
}

/* most: of both types together, of the largest value among 256 neighbours. */
static void add_row(const float *right, const float *other, int64_t n, double most, int64_t e, int64_t r, Measure *m) {
    double sum = 0;
    for (int64_t start = 0; start < n; start += 256) {
        const int64_t length = n - start < 256 ? n - start : 256;
        double bound = -1;
        for (int64_t c = start; c < start + length; c++) {
            if (isfinite(right[c])) sum += (double)right[c] * (double)right[c];
            if (right[c] == other[c]) continue;
            if (bound < 0) bound = 1.25 * most * largest_of(right + start, other + start, length);
            add_element(right[c], other[c], bound, (const int64_t[]){ e, r, c }, m);
        }
    }
    m->right2 += sum;
    m->n += (double)n;
}

/* The same type, order and form, and the same bytes: nothing need be decoded. */
static bool same_bytes(const RoleView *a, const RoleView *b, const Transform *t) {
    const bool plain = !t->expert && !t->row && !t->col && !t->transposed && t->value == VALUE_AS_IT_IS && a->value == b->value &&
                       !a->transposed && !b->transposed && a->type == b->type && memcmp(&a->col_map, &b->col_map, sizeof a->col_map) == 0;
    for (int64_t i = 0; plain && i < a->experts * a->rows; i++)
        if (memcmp(role_row_bytes(a, i / a->rows, i % a->rows), role_row_bytes(b, i / b->rows, i % b->rows), (size_t)a->row_bytes) != 0) return false;
    return plain;
}

/* A logarithm or a difference brings out rounding that the exponential or the sum hid: such a form is compared on its own side,
 * where an ulp of the right value x makes up to 2|x| ulps of its exponential. */
static void bring_forwards(float *right, float *other, int64_t n, ValueForm form) {
    for (int64_t c = 0; c < n; c++) {
        const double allowed = form == VALUE_MINUS_1 ? 1 : 1 + 2 * fabs((double)right[c]);
        right[c] = value_in_form(value_back(form), right[c]);
        if (step_count(right[c], other[c]) <= allowed) other[c] = right[c];
    }
}

CloverStatus compare_measure(const RoleView *right, const RoleView *other, const Transform *t, int64_t rows, Measure *out, CloverError *err) {
    enum { EXPECTED_ROWS = 512 };                        /* quantising is slow: a sample tells its cost */
    const int64_t n = right->cols, all = right->experts * right->rows;
    const Loss a = loss_of(right->type), b = loss_of(other->type);
    float *room = malloc((size_t)n * 6 * sizeof *room);
    uint8_t *packed = malloc((size_t)n * 4 + 1024);
    error_clear(err);
    *out = (Measure){ .worst_distance = -1 };
    if (rows == 0 && same_bytes(right, other, t)) out->n = (double)all * (double)n;
    else if (!room || !packed) error_memory(err, "a row", (size_t)n * 28);
    else {
        const bool forwards = t->value == VALUE_MINUS_1 || t->value == VALUE_LOG_NEG || t->value == VALUE_NEG_LOG_NEG;
        Transform moved = *t;
        moved.value = VALUE_AS_IT_IS;
        float *x = room, *y = room + n, *scratch = room + 2 * n;
        const bool other_coarser = b.rms > a.rms;
        const bool ask = a.rms != b.rms && (dtype_info(a.type)->block == 1 || dtype_info(b.type)->block == 1);
        const Rounding q = { other_coarser ? other : right, other_coarser ? t->col : NULL, room + 4 * n, packed };
        const bool plain = q.view->value == VALUE_AS_IT_IS && t->value == VALUE_AS_IT_IS && !q.view->transposed && !t->transposed;
        const bool encodes = ask && plain && type_has_encoder(q.view->type);
        const int64_t step = rows > 0 && all > rows ? all / rows : 1, ask_step = all / step > EXPECTED_ROWS ? all / step / EXPECTED_ROWS * step : step;
        for (int64_t i = 0; i < all; i += step) {
            const int64_t e = i / right->rows, r = i % right->rows;
            role_row(right, e, r, x, scratch);
            transform_row(other, forwards ? &moved : t, e, r, y, scratch);
            if (forwards) bring_forwards(x, y, n, t->value);
            add_row(x, y, n, a.most + b.most, e, r, out);
            if (encodes && i % ask_step == 0) add_expected(&q, other_coarser ? x : y, out);
        }
    }
    free(room);
    free(packed);
    return err->status;
}

/* The relation as compare.c words it. */
Relation measure_relation(const RoleView *right, const RoleView *other, const Measure *m, double *error, double *expected) {
    const double a = loss_of(right->type).rms, b = loss_of(other->type).rms;
    const bool same_plain = right->type == other->type && dtype_info(right->type)->block == 1;
    const bool asked = m->expected_right2 > 0;
    *error = m->unequal == 0 ? 0 : m->right2 > 0 ? sqrt(m->difference2 / m->right2) : INFINITY;
    *expected = asked ? sqrt(m->expected2 / m->expected_right2) : same_plain ? 0 : sqrt(a * a + b * b);
    if (m->unequal == 0) return RELATION_IDENTICAL;
    if (m->beyond_ulp == 0) return RELATION_EQUAL;
    if (*expected == 0 || m->beyond_bound) return RELATION_DIFFERENT;
    return *error <= 1.5 * *expected ? RELATION_WITHIN : RELATION_DIFFERENT;
}
