/* lint_quick.c - what norms and rates alone show: a look that takes no time, for commands that read or write a model. [LNT-3] */
#include <stdlib.h>
#include <sys/stat.h>
#include "lint.h"

CloverStatus lint_vectors(const LintModel *whole, Report *r, CloverError *err) {
    LintFile small = *whole->file;
    LintModel m = *whole;
    const int64_t n = whole->file->tensors.n;
    small.tensors.tensor = calloc((size_t)n + 1, sizeof *small.tensors.tensor);
    small.tensors.n = 0;
    m.of = calloc((size_t)n + 1, sizeof *m.of);
    m.file = &small;
    error_clear(err);
    if (!small.tensors.tensor || !m.of) error_memory(err, "the list of vectors", (size_t)n * sizeof *small.tensors.tensor);
    for (int64_t i = 0; i < n && err->status == CLOVER_OK; i++) {
        const LintTensor of = whole->of[i];
        const Value v = of.role < 0 ? V_MATRIX : lint_roles[of.role].value;
        if (v != V_LAYER_NORM && v != V_QK_NORM && v != V_GDN_NORM && v != V_RATE) continue;
        m.of[small.tensors.n] = of;
        small.tensors.tensor[small.tensors.n++] = whole->file->tensors.tensor[i];
    }
    if (err->status == CLOVER_OK) lint_values(&m, r, err);
    free(small.tensors.tensor);
    free(m.of);
    return err->status;
}

CloverStatus lint_quickly(const char *path, Report *r, CloverError *err) {
    LintFile f = { 0 };
    LintModel m = { 0 };
    Report header = { 0 };                                       /* what the loader has judged already */
    struct stat found;
    const bool folder = stat(path, &found) == 0 && S_ISDIR(found.st_mode);
    CloverStatus status = folder ? lint_read_folder(path, &f, &header, err) : lint_read_gguf(path, &f, &header, err);
    if (status == CLOVER_OK) status = lint_header(&m, &f, &header, err);
    if (status == CLOVER_OK) status = lint_vectors(&m, r, err);
    lint_model_free(&m);
    lint_file_free(&f);
    report_free(&header);
    return status;
}
