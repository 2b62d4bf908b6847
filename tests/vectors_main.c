/* vectors_main.c - `make vectors VECTORS=DIR`: everything in a folder of vectors that this project can check today.
 *
 * Looks for models (DIR/NAME/hf, DIR/NAME/model-*.gguf), expected steps (expected-hf, expected-gguf), traces.json, block
 * formats, drifted files and engine dumps. Prints a line each and ends with "N passed, N failed, N skipped". */
#include <dirent.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../ref/error.h"
#include "../ref/files/quant.h"
#include "../ref/files/safetensors.h"
#include "expected.h"
#include "traces.h"
#include "vectors_engines.h"

typedef struct Tally { int passed, failed, skipped; char where[512]; } Tally;

static void result(Tally *t, bool ok, const char *what, const char *detail) {
    if (ok) t->passed++;
    else t->failed++;
    printf("%-6s %s: %s\n", ok ? "ok" : "FAILED", what, detail);
    fflush(stdout);
}

static void engine_result(void *user, bool ok, const char *what, const char *detail) { result(user, ok, what, detail); }

static void skip(Tally *t, const char *what, const char *why) {
    t->skipped++;
    printf("skip   %s: %s\n", what, why);
}

static void report_step(void *user, const char *step, const ExpectedResult *r) {
    Tally *t = user;
    char what[600], detail[600];
    snprintf(what, sizeof what, "%s %s", t->where, step);
    if (r->beyond) snprintf(detail, sizeof detail, "%lld of %lld values beyond the bound; %s", (long long)r->beyond, (long long)r->values, r->problem);
    else snprintf(detail, sizeof detail, "%lld arrays, %lld values, largest difference %.2g%s%s", (long long)r->arrays, (long long)r->values, r->worst,
                  r->worst > 0 ? " at " : "", r->worst_name);
    result(t, r->beyond == 0 && r->values > 0, what, detail);
}

/* The steps of DIR/NAME/EXPECTED on one file. */
static void steps(Tally *t, const char *model_path, const char *folder) {
    CloverError err;
    CloverModel *model = NULL;
    snprintf(t->where, sizeof t->where, "%s", model_path);
    if (access(folder, R_OK) != 0) return;
    CloverStatus status = clover_model_open(model_path, NULL, &model, &err);
    if (status == CLOVER_OK) status = expected_folder(model, folder, 1e-9, 1e-12, report_step, t, &err);
    if (status != CLOVER_OK) result(t, false, model_path, err.text);
    clover_model_close(model);
}

/* FNV-1a over the logits of a fixed commit and preview: two files with the same values give the same. */
static bool fingerprint(const char *path, uint64_t *out, CloverError *err) {
    CloverModel *model = NULL;
    CloverSession *s = NULL;
    double *logits = NULL;
    CloverStatus status = clover_model_open(path, NULL, &model, err);
    if (status == CLOVER_OK) status = clover_session_new(model, NULL, &s, err);
    const int64_t V = model ? clover_model_config(model)->vocab : 0;
    int32_t ids[40];
    for (int i = 0; i < 40; i++) ids[i] = (int32_t)((i * 29 + 3) % (V ? V : 1));
    if (status == CLOVER_OK && !(logits = malloc((size_t)(2 * 40 * V) * sizeof *logits))) status = error_memory(err, "logits", (size_t)(2 * 40 * V) * sizeof *logits);
    if (status == CLOVER_OK) status = clover_commit(s, ids, 40, logits, 40, err);
    if (status == CLOVER_OK && clover_model_can_preview(model, err) == CLOVER_OK) status = clover_preview(s, ids, 40, logits + 40 * V, err);
    if (status == CLOVER_OK) {
        uint64_t hash = clover_session_hash(s);
        for (int64_t i = 0; i < 80 * V * 8; i++) hash = (hash ^ ((const unsigned char *)logits)[i]) * 0x100000001b3u;
        *out = hash;
    }
    free(logits);
    clover_session_free(s);
    clover_model_close(model);
    return status == CLOVER_OK;
}

static void same_bits(Tally *t, const char *pattern) {
    glob_t g = { 0 };
    if (glob(pattern, 0, NULL, &g) == 0 && g.gl_pathc > 1) {
        uint64_t first = 0;
        char detail[512] = "";
        bool ok = true;
        for (size_t i = 0; i < g.gl_pathc && ok; i++) {
            CloverError err;
            uint64_t hash = 0;
            ok = fingerprint(g.gl_pathv[i], &hash, &err) && (i == 0 || hash == first);
            if (i == 0) first = hash;
            snprintf(detail, sizeof detail, "%zu files, bits %016llx", g.gl_pathc, (unsigned long long)hash);
        }
        result(t, ok, pattern, detail);
    }
    globfree(&g);
}

static void models(Tally *t, const char *dir) {
    char pattern[512], expected[512], path[512];
    glob_t g = { 0 };
    snprintf(pattern, sizeof pattern, "%s/*/", dir);
    if (glob(pattern, GLOB_MARK, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc; i++) {
            const char *folder = g.gl_pathv[i];   /* ends with a slash */
            snprintf(path, sizeof path, "%shf", folder);
            snprintf(expected, sizeof expected, "%sexpected-hf", folder);
            if (access(path, R_OK) == 0) steps(t, path, expected);
            snprintf(pattern, sizeof pattern, "%smodel-*.gguf", folder);
            snprintf(expected, sizeof expected, "%sexpected-gguf", folder);
            glob_t files = { 0 };
            if (glob(pattern, 0, NULL, &files) == 0)
                for (size_t k = 0; k < files.gl_pathc; k++) steps(t, files.gl_pathv[k], expected);
            globfree(&files);
            same_bits(t, pattern);
            snprintf(path, sizeof path, "%straces.json", folder);
            if (access(path, R_OK) == 0) {
                char detail[96];
                int checked = 0;
                const int failed = traces_run(g.gl_pathv[i], path, stdout, &checked);
                snprintf(detail, sizeof detail, "%d of %d runs match token for token and step for step", checked - failed, checked);
                result(t, checked > 0 && failed == 0, path, detail);
            }
        }
    globfree(&g);
}

/* NAME.raw and NAME.values: decoded as floats, to the bit. */
static void blocks(Tally *t, const char *dir) {
    char path[512];
    CloverError err;
    Safetensors *s = NULL;
    snprintf(path, sizeof path, "%s/blocks.safetensors", dir);
    if (access(path, R_OK) != 0) return;
    if (safetensors_open(path, &s, &err) != CLOVER_OK) {
        result(t, false, path, err.text);
        return;
    }
    for (int type = 0; type < 64; type++) {
        const DTypeInfo *info = dtype_info((DType)type);
        char name[64], what[600], detail[64];
        if (!info) continue;
        snprintf(name, sizeof name, "%s.raw", info->name);
        const Tensor *raw = safetensors_tensor(s, name);
        snprintf(name, sizeof name, "%s.values", info->name);
        const Tensor *values = safetensors_tensor(s, name);
        if (!raw || !values) continue;
        float *decoded = malloc((size_t)values->elements * sizeof *decoded);
        int64_t off = values->elements;
        if (decoded && info->decodable) {
            quant_decode_float((DType)type, raw->data, values->elements, decoded);
            off = 0;
            for (int64_t i = 0; i < values->elements; i++) {
                float expected;
                memcpy(&expected, values->data + 4 * i, 4);
                off += !(expected == decoded[i] || (isnan(expected) && isnan(decoded[i])));
            }
        }
        free(decoded);
        snprintf(what, sizeof what, "%s %s", path, info->name);
        snprintf(detail, sizeof detail, "%lld of %lld values differ", (long long)off, (long long)values->elements);
        result(t, off == 0, what, detail);
    }
    safetensors_close(s);
}

/* Files that must be refused, and those that must not. What leaves no trace in the header and the values that opening
 * looks at (a reversed conv, heads in another order) is for lint and compare. */
static void drifts(Tally *t, const char *dir) {
    static const struct { const char *file; CloverStatus opens; CloverStatus runs; const char *says; } cases[] = {
        { "good.gguf", CLOVER_OK, CLOVER_OK, "" },           { "hf", CLOVER_OK, CLOVER_OK, "" },
        { "upstream.gguf", CLOVER_OK, CLOVER_OK, "" },       { "no_shared_count.gguf", CLOVER_OK, CLOVER_OK, "" },
        { "raw_a_log.gguf", CLOVER_BAD_INPUT, 0, "A_log" },  { "norms_not_shifted.gguf", CLOVER_BAD_INPUT, 0, "norm" },
        { "rope_dims_missing.gguf", CLOVER_BAD_INPUT, 0, "rope.dimension_count" }, { "missing_tensor.gguf", CLOVER_BAD_INPUT, 0, "missing" },
        { "nan_row.gguf", CLOVER_OK, CLOVER_BAD_INPUT, "NaN" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[512], detail[CLOVER_ERROR_TEXT + 64];
        CloverError err = { .text = "" };
        CloverModel *model = NULL;
        CloverSession *s = NULL;
        snprintf(path, sizeof path, "%s/drifts/%s", dir, cases[i].file);
        if (access(path, R_OK) != 0) continue;
        CloverStatus opens = clover_model_open(path, NULL, &model, &err), runs = CLOVER_OK;
        if (opens == CLOVER_OK) {
            runs = clover_session_new(model, NULL, &s, &err);
            const int64_t V = clover_model_config(model)->vocab;
            double *logits = malloc((size_t)V * sizeof *logits);
            for (int32_t id = 0; id < V && runs == CLOVER_OK; id++) runs = clover_commit(s, &id, 1, logits, 1, &err);   /* every embedding row */
            free(logits);
        }
        clover_session_free(s);
        clover_model_close(model);
        const bool ok = opens == cases[i].opens && (opens != CLOVER_OK || runs == cases[i].runs) && strstr(err.text, cases[i].says);
        snprintf(detail, sizeof detail, "%s%s", opens != CLOVER_OK ? "refused: " : runs != CLOVER_OK ? "stopped: " : "opens and runs", err.text);
        result(t, ok, path, detail);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: vectors DIR\n");
        return CLOVER_USAGE;
    }
    DIR *d = opendir(argv[1]);
    if (!d) {
        fprintf(stderr, "vectors: no folder %s\n", argv[1]);
        return CLOVER_BAD_INPUT;
    }
    closedir(d);
    Tally t = { 0 };
    models(&t, argv[1]);
    blocks(&t, argv[1]);
    drifts(&t, argv[1]);
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizer.json", argv[1]);
    if (access(path, R_OK) == 0) skip(&t, path, "needs the real vocabulary, which make peers fetches and compares");
    snprintf(path, sizeof path, "%s/engines", argv[1]);
    if (access(path, R_OK) == 0) {
        snprintf(path, sizeof path, "%s/tiny-a/expected-hf/causal.safetensors", argv[1]);
        if (access(path, R_OK) == 0) vectors_engines(argv[1], engine_result, &t);
        else skip(&t, "engines", "their golden, tiny-a/expected-hf, is not there");
    }
    printf("%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped);
    return t.failed > 0 || t.passed == 0;
}
