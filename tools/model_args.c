/* model_args.c - opening a model as the command line asks. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "../ref/error.h"
#include "lint.h"
#include "model_args.h"

const char *const numerics_names[] = { "exact", "fast", "bf16", "f32", "llama.cpp", NULL };
const char *const diffusion_head_orders[] = { "file", "tiled", "grouped", NULL };

ModelArgs model_args_defaults(void) {
    return (ModelArgs){ .block = -1, .mask_id = -1, .threshold = (double)NAN, .coreset_top_p = (double)NAN };
}

/* What was wrong, a line each, without what a refusal recommends. */
static void tell_mended(const CloverError *refusal) {
    for (const char *line = refusal->text; *line;) {
        const size_t n = strcspn(line, "\n");
        const char *advice = strstr(line, "; read it with --mend");
        const size_t said = advice && advice < line + n ? (size_t)(advice - line) : n;
        fprintf(stderr, "mended in memory: %.*s\n", (int)said, line);
        line += n + (line[n] == '\n');
    }
}

/* Garbage that norms and rates show and no reading mends: asked to mend it, a refusal that names what does, else a warning. [LNT-3] */
static CloverStatus look_for_garbage(const char *path, bool mend, CloverError *err) {
    Report r = { 0 };
    CloverStatus status = lint_quickly(path, &r, err);
    if (status != CLOVER_OK && status != CLOVER_SYSTEM) status = CLOVER_OK;     /* the loader has taken the file */
    if (status == CLOVER_OK) error_clear(err);
    for (int64_t i = 0; i < r.n && status == CLOVER_OK; i++) {
        const Finding *f = &r.finding[i];
        const char *id = lint_id_name(f->id), *evidence = f->n_evidence ? f->evidence[0] : "";
        if (f->severity != GARBAGE || f->id == A_LOG_RAW || f->id == NORM_SHIFT_MISSING) continue;     /* the loader's own */
        if (mend) error_add(err, CLOVER_BAD_INPUT, "%s: %s: %s; --mend cannot mend that: clover lint says more, clover fix writes a right file", path, id, evidence);
        else fprintf(stderr, "warning: %s: %s: %s; what it says may be garbage: clover lint says more\n", path, id, evidence);
    }
    report_free(&r);
    return status == CLOVER_OK ? err->status : status;
}

/* Read mended: what a plain reading refuses is told. */
static CloverStatus open_mended(const char *path, CloverOpenOptions *o, CloverModel **model, CloverError *err) {
    CloverError refusal;
    o->drifts = CLOVER_REFUSE_DRIFTS;
    const bool right = clover_model_open(path, o, model, &refusal) == CLOVER_OK;
    o->drifts = CLOVER_MEND;
    CloverStatus status = right ? CLOVER_OK : clover_model_open(path, o, model, err);
    if (status != CLOVER_OK) return status;
    status = look_for_garbage(path, true, err);
    if (status != CLOVER_OK) {
        clover_model_close(*model);
        *model = NULL;
    } else if (right) fprintf(stderr, "%s: nothing to mend\n", path);
    else tell_mended(&refusal);
    return status;
}

static CloverStatus open_plainly(const char *path, CloverOpenOptions *o, CloverModel **model, CloverError *err) {
    *model = NULL;
    CloverStatus status = clover_model_open(path, o, model, err);
    if (status == CLOVER_OK && o->drifts == CLOVER_REFUSE_DRIFTS) status = look_for_garbage(path, false, err);
    if (status == CLOVER_OK) return status;
    clover_model_close(*model);
    *model = NULL;
    return status;
}

CloverStatus model_args_open(const ModelArgs *m, CloverModel **model, CloverError *err) {
    CloverOpenOptions o = clover_open_defaults();
    o.drifts = m->mend ? CLOVER_MEND : m->as_is ? CLOVER_AS_IS : CLOVER_REFUSE_DRIFTS;
    o.block = m->block;
    o.mask_id = m->mask_id;
    o.threshold = m->threshold;
    o.diffusion_heads_grouped = m->head_order == 0 ? -1 : m->head_order == 2;
    return m->mend ? open_mended(m->path, &o, model, err) : open_plainly(m->path, &o, model, err);
}

CloverStatus model_args_session(const ModelArgs *m, const CloverModel *model, int64_t capacity, CloverSession **session, CloverError *err) {
    CloverSessionOptions o = clover_session_defaults();
    o.numerics = (CloverNumerics)m->numerics;
    o.capacity = capacity;
    o.coreset_top_p = m->coreset_top_p;
    return clover_session_new(model, &o, session, err);
}

CloverStatus json_holds_path(const char *path, CloverError *err) {
    errno = 0;
    json_t *text = json_string(path);
    json_decref(text);
    if (!text && errno == ENOMEM) return error_memory(err, path, 64);
    return text ? CLOVER_OK : error_set(err, CLOVER_USAGE, "--json: the path %s is not UTF-8, which JSON must be; give it under another name", path);
}
