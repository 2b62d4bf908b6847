/* diff_forms.c - the same thing in another form: which one, and what is left when it is undone. [DIF-6]
 *
 * Engines keep heads in another order, count positions from elsewhere, move a scale along, or show a value before or after its
 * squashing. Each of these leaves something of the golden's numbers as it is; zeros, noise, rows of others do not. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "../ref/math/elementary.h"
#include "../ref/math/rowwise.h"
#include "diff_parts.h"

/* Stages that engines keep in other forms. The residual stream, its norms, ids, weights and what is added to it have one form. */
static bool may_have_forms(const char *stage) {
    static const char *const forms[] = { "attn.q", "attn.k", "attn.v", "attn.gate", "attn.q_norm", "attn.k_norm", "attn.q_rope", "attn.k_rope", "attn.context", "attn.gated",
                                         "gdn.qkv", "gdn.z", "gdn.beta", "gdn.g", "gdn.conv", "gdn.q", "gdn.k", "gdn.v", "gdn.state", "gdn.block_weights", "gdn.mixed", "gdn.gated",
                                         "moe.probs", "moe.shared_gate" };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(forms[i], stage) == 0) return true;
    return false;
}

/* Keeps the form that leaves least: |a - by · b| over n, in the golden's measure. */
static void offer(FormFit *best, const char *name, const double *a, const double *b, double by, int64_t n) {
    double squares = 0, max = 0;
    for (int64_t i = 0; i < n; i++) {
        const double off = a[i] / by - b[i];
        squares += off * off;
        max = fmax(max, fabs(off));
    }
    const double rms = sqrt(squares / (double)(n ? n : 1));
    if (!isfinite(rms) || (best->name && rms >= best->rms / 2)) return;   /* the simpler forms are offered first */
    *best = (FormFit){ name, rms, max };
}

static void sort_rows(double *x, int64_t rows, int64_t width) {
    for (int64_t t = 0; t < rows; t++) qsort(x + t * width, (size_t)width, sizeof *x, ascending);
}

/* Values of a pair that rotates become its length; the others stay. x [heads, width] */
static void pair_lengths(double *x, int64_t heads, int64_t width, int64_t rotary) {
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < rotary / 2; i++) {
            double *a = x + h * width + i, *b = a + rotary / 2;
            *a = *b = hypot(*a, *b);
        }
}

static double squash(int how, double x) { return how == 0 ? sigmoid(x) : how == 1 ? silu(x) : el_exp(x); }

static void offer_squashed(FormFit *best, const double *dump, const double *right, double *scratch, int64_t n) {
    static const char *const names[3][2] = { { "before its sigmoid", "after a sigmoid" }, { "before its SiLU", "after a SiLU" }, { "its logarithm", "its exponential" } };
    for (int how = 0; how < 3; how++)
        for (int after = 0; after < 2; after++) {
            for (int64_t i = 0; i < n; i++) scratch[i] = squash(how, after ? right[i] : dump[i]);
            if (after) offer(best, names[how][1], dump, scratch, 1, n);
            else offer(best, names[how][0], scratch, right, 1, n);
        }
}

bool form_fit(FormFit *best, const CloverConfig *c, const char *stage, const int64_t *shape, int dims, const double *dump, const double *right) {
    *best = (FormFit){ 0 };
    if (!may_have_forms(stage)) return true;
    int64_t n = 1;
    for (int i = 0; i < dims; i++) n *= shape[i];
    double *a = malloc((size_t)n * sizeof *a + 1), *b = malloc((size_t)n * sizeof *b + 1);
    if (!a || !b) {
        free(a);
        free(b);
        return false;
    }
    const size_t bytes = (size_t)n * sizeof *a;
    double product = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) product += dump[i] * right[i], squares += right[i] * right[i];
    if (product > 0 && squares > 0) offer(best, "a scale moved along", dump, right, product / squares, n);

    /* Within a row an order is free; rows are not, for a row is a token. S has heads for rows, whose order is free as well. */
    const bool state = strcmp(stage, "gdn.state") == 0;
    memcpy(a, dump, bytes), memcpy(b, right, bytes);
    sort_rows(a, state ? 1 : shape[0], state ? n : n / shape[0]);
    sort_rows(b, state ? 1 : shape[0], state ? n : n / shape[0]);
    offer(best, state ? "heads in another order, or transposed" : "heads or channels in another order", a, b, 1, n);
    product = 0;
    for (int64_t i = 0; i < n; i++) product += a[i] * b[i];
    if (product > 0 && squares > 0) offer(best, "another order and a scale moved along", a, b, product / squares, n);

    if (strcmp(stage, "attn.q_rope") == 0 || strcmp(stage, "attn.k_rope") == 0) {
        memcpy(a, dump, bytes), memcpy(b, right, bytes);
        pair_lengths(a, shape[0] * shape[1], c->head_width, c->rotary_dims);
        pair_lengths(b, shape[0] * shape[1], c->head_width, c->rotary_dims);
        offer(best, "positions counted from elsewhere", a, b, 1, n);
    }
    offer_squashed(best, dump, right, a, n);
    if (strcmp(stage, "moe.probs") == 0) {
        memcpy(a, dump, bytes);
        for (int64_t t = 0; t < shape[0]; t++) softmax(a + t * shape[1], shape[1]);
        offer(best, "before its softmax", a, right, 1, n);
    }
    free(a);
    free(b);
    return true;
}
