/* golden_write.c - all cases of a plan, one after the other. [BND-7] */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "golden.h"
#include "json_check.h"
#include "output.h"
#include "sha256.h"

typedef struct Told { const char *name; int64_t index, count; double start, shown, base; bool on; } Told;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void tell(void *user, const char *step, double done) {
    Told *t = user;
    const double time = now(), all = ((double)t->index + done) / (double)t->count, share = all - t->base;
    if (!t->on || time - t->shown < 0.2) return;
    t->shown = time;
    fprintf(stderr, "\rgolden: %.0f%%, case %lld of %lld: %s, step %s, %.0f s", 100 * all, (long long)t->index + 1, (long long)t->count, t->name, step, time - t->start);
    if (share > 0 && all < 1) fprintf(stderr, ", about %.0f s left", (time - t->start) * (1 - all) / share);
    fputs("\033[K", stderr);
}

/* {"files": {name: SHA-256}, "steps": [...]} of a case: from the journal, or made. */
static json_t *case_result(const Golden *g, const GoldenCase *c, const Folder *f, Told *told, CloverError *err) {
    CaseFiles made = { 0 };
    CloverError ignored;
    json_t *result = NULL, *name;
    size_t i;
    char *journal = text_format(err, "%s/%s.json", f->done, c->given.name);
    if (journal && path_exists(journal) && (result = json_read(journal, &ignored))) {
        free(journal);
        return result;
    }
    const char *folder = json_string_value(json_object_get(c->json, "folder"));
    char *path = *folder ? text_format(err, "%s/%s", f->out, folder) : NULL;
    CloverStatus status = journal && (path || !*folder) ? CLOVER_OK : err->status;
    if (path && mkdir(path, 0777) != 0 && errno != EEXIST) status = error_set(err, CLOVER_SYSTEM, "%s: cannot make the folder: %s", path, strerror(errno));
    if (path) remove_partials(path);
    if (status == CLOVER_OK && golden_case(g, c, tell, told, &made, &ignored) != CLOVER_OK)
        status = error_set(err, ignored.status, "case %s: %s", c->given.name, ignored.text);
    json_t *files = json_object();
    json_array_foreach(made.names, i, name) {
        char hex[SHA256_HEX], *file = text_format(err, "%s/%s", f->out, json_string_value(name));
        if (status == CLOVER_OK) status = file ? sha256_file(file, hex, err) : err->status;
        if (status == CLOVER_OK) json_object_set_new(files, json_string_value(name), json_string(hex));
        free(file);
    }
    if (status == CLOVER_OK && !(result = json_pack("{s:O, s:O}", "files", files, "steps", made.steps))) status = error_memory(err, "a case's result", 0);
    if (status == CLOVER_OK) status = write_sorted_json(journal, result, err);
    json_decref(files);
    json_decref(made.names);
    json_decref(made.steps);
    free(path);
    free(journal);
    if (status == CLOVER_OK) return result;
    json_decref(result);
    return NULL;
}

CloverStatus golden_write(Golden *g, bool force, int argc, char **argv, CloverError *err) {
    Folder f;
    bool whole;
    CloverStatus status = folder_begin(&f, g->out, g->plan, force, &whole, err);
    if (status == CLOVER_OK && !whole) {
        Told told = { .count = g->n_cases, .start = now(), .on = isatty(STDERR_FILENO) == 1 };
        json_t *manifest = json_deep_copy(g->plan), *files = json_object();
        for (int64_t i = 0; i < g->n_cases && status == CLOVER_OK; i++) {
            const GoldenCase *c = &g->cases[i];
            told.name = c->given.name;
            told.index = i;
            json_t *result = case_result(g, c, &f, &told, err);
            if (!result) status = err->status;
            json_object_update(files, json_object_get(result, "files"));
            if (c->is_run) json_object_set(json_array_get(json_object_get(manifest, "cases"), (size_t)i), "steps", json_object_get(result, "steps"));
            json_decref(result);
        }
        if (told.shown > 0) fputs("\r\033[K", stderr);
        if (status == CLOVER_OK && json_object_set(manifest, "files", files) != 0) status = error_memory(err, "the manifest", 0);
        if (status == CLOVER_OK) status = folder_finish(&f, manifest, argc, argv, err);
        json_decref(files);
        json_decref(manifest);
    }
    folder_free(&f);
    return status;
}
