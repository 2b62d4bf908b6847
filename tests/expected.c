/* expected.c - compares steps of a model with files of expected values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../ref/error.h"
#include "../ref/files/quant.h"
#include "../ref/files/safetensors.h"
#include "expected.h"

typedef struct Watch {
    const Safetensors *file;
    double relative, absolute;
    ExpectedResult *result;
} Watch;

static double value_of(const Tensor *t, int64_t i) {
    if (t->type == DT_I64) {
        int64_t v;
        memcpy(&v, t->data + i * 8, 8);
        return (double)v;
    }
    double v;
    quant_decode(t->type, t->data + i * dtype_info(t->type)->bytes, 1, &v);
    return v;
}

static void problem(ExpectedResult *r, const char *format, const char *name, double a, double b, int64_t at) {
    if (r->beyond++ == 0) snprintf(r->problem, sizeof r->problem, format, name, (long long)at, a, b);
}

static void compare(void *user, const char *name, double *data, const int64_t *shape, int dims) {
    const Watch *w = user;
    ExpectedResult *r = w->result;
    const Tensor *t = safetensors_tensor(w->file, name);
    if (!t) return;
    r->arrays++;
    bool same = t->dims == dims;
    for (int i = 0; same && i < dims; i++) same = t->shape[i] == shape[i];
    if (!same) {
        problem(r, "%s: another shape", name, 0, 0, 0);
        return;
    }
    for (int64_t i = 0; i < t->elements; i++) {
        const double expected = value_of(t, i), actual = data[i], off = fabs(expected - actual), size = fmax(fabs(expected), fabs(actual));
        r->values++;
        if (isnan(off) || (off > w->absolute && off > w->relative * size)) problem(r, "%s[%lld]: %.17g, expected %.17g", name, actual, expected, i);
        if (off > r->worst) {
            r->worst = off;
            snprintf(r->worst_name, sizeof r->worst_name, "%s", name);
        }
    }
}

CloverStatus expected_step(CloverSession *session, int64_t vocab, ExpectedStep kind, const char *file, double relative, double absolute,
                           ExpectedResult *result, CloverError *err) {
    *result = (ExpectedResult){ 0 };
    Safetensors *s = NULL;
    CloverStatus status = safetensors_open(file, &s, err);
    if (status != CLOVER_OK) return status;
    Watch w = { s, relative, absolute, result };
    const Tensor *ids = safetensors_tensor(s, "ids");
    const int64_t n = ids ? ids->elements : 0;
    int32_t *tokens = malloc((size_t)n * sizeof *tokens + 1);
    double *logits = malloc((size_t)(n * vocab) * sizeof *logits + 1);
    for (int64_t i = 0; i < n; i++) tokens[i] = (int32_t)value_of(ids, i);
    clover_session_watch(session, compare, &w);
    status = kind == EXPECTED_COMMIT ? clover_commit(session, tokens, n, logits, n, err) : clover_preview(session, tokens, n, logits, err);
    clover_session_watch(session, NULL, NULL);
    const int64_t wanted = safetensors_tensors(s).n - 1;   /* all but ids */
    if (status == CLOVER_OK && result->arrays != wanted) problem(result, "%s: %lld arrays were seen, fewer than the file's", file, 0, 0, result->arrays);
    free(tokens);
    free(logits);
    safetensors_close(s);
    return status;
}

CloverStatus expected_folder(const CloverModel *model, const char *folder, double relative, double absolute, ExpectedReport *report, void *user, CloverError *err) {
    static const struct { const char *name; ExpectedStep kind; bool empty; double coreset; } steps[] = {
        { "preview_empty_prefix", EXPECTED_PREVIEW, true, NAN }, { "causal", EXPECTED_COMMIT, true, NAN },
        { "preview_full", EXPECTED_PREVIEW, false, NAN },        { "preview_8rows", EXPECTED_PREVIEW, false, NAN },
        { "preview_1row", EXPECTED_PREVIEW, false, NAN },        { "preview_coreset", EXPECTED_PREVIEW, false, 0.5 },
        { "causal_continued", EXPECTED_COMMIT, false, NAN },
    };
    const int64_t vocab = clover_model_config(model)->vocab;
    char causal[512];
    snprintf(causal, sizeof causal, "%s/causal.safetensors", folder);
    CloverStatus status = CLOVER_OK;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == CLOVER_OK; i++) {
        char file[512];
        snprintf(file, sizeof file, "%s/%s.safetensors", folder, steps[i].name);
        if (access(file, R_OK) != 0) continue;
        /* Every step gets a session of its own, so that none can lean on another. */
        CloverSessionOptions o = clover_session_defaults();
        o.coreset_top_p = steps[i].coreset;
        CloverSession *session = NULL;
        ExpectedResult r;
        status = clover_session_new(model, &o, &session, err);
        if (status == CLOVER_OK && !steps[i].empty) status = expected_step(session, vocab, EXPECTED_COMMIT, causal, relative, absolute, &r, err);
        if (status == CLOVER_OK) status = expected_step(session, vocab, steps[i].kind, file, relative, absolute, &r, err);
        clover_session_free(session);
        if (status == CLOVER_OK) report(user, steps[i].name, &r);
    }
    return status;
}
