/* bundle.c - reading a golden bundle, and proving that it is whole. [BND-1, BND-5] */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "case.h"
#include "json_check.h"
#include "output.h"
#include "sha256.h"

/* ---- the manifest -------------------------------------------------------------------------------------------------- */

static bool is_sha256(const char *text) {
    return text && strlen(text) == SHA256_HEX - 1 && strspn(text, "0123456789abcdef") == SHA256_HEX - 1;
}

/* The vocabulary that ids are checked with; -1 when the manifest does not say. */
static int64_t read_model(Bundle *b, const char *where, CloverError *err) {
    static const char *const known[] = { "path", "identity", "identity_of", "config", "open", NULL };
    const json_t *model = json_object_get(b->manifest, "model");
    if (!json_known_keys(err, where, "model", model, known)) return -1;
    b->model_path = json_text(err, where, model, "path", true);
    b->identity = json_text(err, where, model, "identity", true);
    if (b->identity && !is_sha256(b->identity)) json_wrong(err, where, "model.identity", "a SHA-256, 64 hex digits", json_object_get(model, "identity"));
    const char *of = json_text(err, where, model, "identity_of", true);
    b->full_hash = of && strcmp(of, "full") == 0;
    if (of && !b->full_hash && strcmp(of, "start") != 0) json_wrong(err, where, "model.identity_of", "start or full", json_object_get(model, "identity_of"));
    const json_t *config = json_object_get(model, "config"), *vocab = json_object_get(config, "vocab");
    if (!json_is_object(config)) json_wrong(err, where, "model.config", "an object", config);
    else if (!json_is_integer(vocab) || json_integer_value(vocab) < 1 || json_integer_value(vocab) > INT32_MAX)
        json_wrong(err, where, "model.config.vocab", "a whole number, 1 to 2147483647", vocab);
    else return json_integer_value(vocab);
    return -1;
}

static void read_numerics(Bundle *b, const char *where, CloverError *err) {
    const char *found = json_text(err, where, b->manifest, "numerics", true);
    for (int i = 0; found && numerics_names[i]; i++)
        if (strcmp(found, numerics_names[i]) == 0) b->numerics = found;
    if (found && !b->numerics) json_wrong(err, where, "numerics", "exact, fast, bf16, f32 or llama.cpp", json_object_get(b->manifest, "numerics"));
}

static void read_shard(const json_t *shard, const char *where, CloverError *err) {
    static const char *const known[] = { "index", "count", "cases", NULL };
    if (!shard || !json_known_keys(err, where, "shard", shard, known)) return;
    const json_t *index = json_object_get(shard, "index"), *count = json_object_get(shard, "count"), *cases = json_object_get(shard, "cases");
    if (!json_is_integer(index) || !json_is_integer(count) || !json_is_integer(cases) || json_integer_value(cases) < 1 ||
        json_integer_value(index) < 1 || json_integer_value(index) > json_integer_value(count))
        json_wrong(err, where, "shard", "an index from 1 to count, and cases from 1", shard);
}

/* FOLDER/NAME.ending as the manifest writes it, or NULL and *err. */
static char *relative_name(const BundleCase *c, const char *name, const char *ending, CloverError *err) {
    return *c->folder ? text_format(err, "%s/%s%s", c->folder, name, ending) : text_format(err, "%s%s", name, ending);
}

/* Is this file named? Strikes it from the rest. */
static bool take_file(json_t *rest, const BundleCase *c, const char *name, const char *ending, CloverError *err) {
    char *file = relative_name(c, name, ending, err);
    const bool found = file && json_object_del(rest, file) == 0;
    free(file);
    return found;
}

/* Which steps and traces have files; each file named must be one of them. */
static void read_files(Bundle *b, const char *where, CloverError *err) {
    const json_t *files = json_object_get(b->manifest, "files");
    if (!json_is_object(files)) {
        json_wrong(err, where, "files", "an object", files);
        return;
    }
    json_t *rest = json_copy((json_t *)(uintptr_t)files), *value;
    const char *name;
    if (!rest) error_memory(err, "the list of files", json_object_size(files));
    for (int64_t i = 0; i < b->n_cases && rest; i++) {
        BundleCase *c = &b->cases[i];
        for (int64_t k = 0; k < c->n_steps && c->name; k++)
            if ((c->step[k].kind == STEP_COMMIT || c->step[k].kind == STEP_PREVIEW) && c->step[k].name)
                c->step[k].recorded = take_file(rest, c, c->step[k].name, ".safetensors", err);
        if (c->name && c->mode) c->has_trace = take_file(rest, c, "trace", ".json", err);
    }
    json_object_foreach(rest, name, value) error_add(err, CLOVER_BAD_INPUT, "%s: files: \"%.100s\" belongs to no step and no run", where, name);
    json_object_foreach((json_t *)(uintptr_t)files, name, value)
        if (!is_sha256(json_string_value(value))) json_wrong(err, where, name, "a SHA-256, 64 hex digits", value);
    json_decref(rest);
}

static void read_cases(Bundle *b, const char *where, int64_t vocab, CloverError *err) {
    const json_t *cases = json_list(err, where, b->manifest, "cases", true);
    const size_t n = json_array_size(cases);
    json_t *names = json_object();
    b->cases = calloc(n ? n : 1, sizeof *b->cases);
    if (!b->cases || !names) {
        error_memory(err, "the cases", n * sizeof *b->cases);
        json_decref(names);
        return;
    }
    b->n_cases = (int64_t)n;
    for (size_t i = 0; i < n; i++) {
        char here[640];
        RunArgs run;
        BundleCase *c = &b->cases[i];
        snprintf(here, sizeof here, "%.600s: cases[%zu]", where, i);
        case_read(json_array_get(cases, i), CASE_MANIFEST, here, vocab, c, &run, err);
        case_run_free(&run);
        if (!c->name) continue;
        if (json_object_get(names, c->name)) error_add(err, CLOVER_BAD_INPUT, "%s: the case name \"%s\" stands there twice", here, c->name);
        json_object_set_new(names, c->name, json_true());
        if (*c->folder == '\0' && n > 1) error_add(err, CLOVER_BAD_INPUT, "%s: only a single case may lie at the top", here);
    }
    json_decref(names);
}

static CloverStatus read_manifest(const char *path, const char *file, json_t **out, CloverError *err) {
    struct stat info;
    if (stat(file, &info) != 0) {
        if (errno != ENOENT && errno != ENOTDIR) return error_set(err, CLOVER_SYSTEM, "%s: %s", file, strerror(errno));
        char *unfinished = text_format(err, "%s/%s", path, BUNDLE_UNFINISHED);
        if (!unfinished) return err->status;
        const bool begun = stat(unfinished, &info) == 0;
        free(unfinished);
        return error_set(err, CLOVER_BAD_INPUT, "%s: no bundle: it has no manifest.json%s", path,
                         begun ? " (clover golden began to write one here and did not finish: run the same command again)" : "");
    }
    *out = json_read(file, err);
    return *out ? CLOVER_OK : err->status;
}

CloverStatus bundle_open(const char *path, Bundle *out, CloverError *err) {
    static const char *const known[] = { "schema", "spec", "model", "numerics", "shard", "cases", "files", NULL };
    *out = (Bundle){ 0 };
    Bundle b = { .path = text_format(err, "%s", path) };
    char *file = b.path ? text_format(err, "%s/manifest.json", path) : NULL;
    CloverStatus status = file ? read_manifest(path, file, &b.manifest, err) : err->status;
    const json_t *schema = json_object_get(b.manifest, "schema");
    if (status == CLOVER_OK && json_is_integer(schema) && json_integer_value(schema) != BUNDLE_SCHEMA)
        status = error_set(err, CLOVER_UNSUPPORTED, "%s: bundle schema %lld; this program reads schema %d", file, (long long)json_integer_value(schema), (int)BUNDLE_SCHEMA);
    if (status == CLOVER_OK) {
        error_clear(err);
        if (json_known_keys(err, file, "the manifest", b.manifest, known)) {
            if (!json_is_integer(schema)) json_wrong(err, file, "schema", "a whole number", schema);
            json_text(err, file, b.manifest, "spec", true);
            const int64_t vocab = read_model(&b, file, err);
            read_numerics(&b, file, err);
            read_shard(json_object_get(b.manifest, "shard"), file, err);
            read_cases(&b, file, vocab, err);
            read_files(&b, file, err);
        }
        status = err->status;
    }
    free(file);
    if (status == CLOVER_OK) *out = b;
    else bundle_close(&b);
    return status;
}

void bundle_close(Bundle *b) {
    for (int64_t i = 0; i < b->n_cases; i++) case_free(&b->cases[i]);
    free(b->cases);
    free(b->path);
    json_decref(b->manifest);
    *b = (Bundle){ 0 };
}

char *bundle_file(const Bundle *b, const BundleCase *c, const char *name, const char *ending) {
    CloverError err;
    return *c->folder ? text_format(&err, "%s/%s/%s%s", b->path, c->folder, name, ending) : text_format(&err, "%s/%s%s", b->path, name, ending);
}

/* ---- is it whole? -------------------------------------------------------------------------------------------------- */

static void verify_file(const Bundle *b, const char *name, const char *expected, CloverError *err) {
    char hex[SHA256_HEX];
    CloverError own;
    struct stat info;
    char *path = text_format(&own, "%s/%s", b->path, name);
    if (!path) error_memory(err, "a file's name", strlen(name));
    else if (stat(path, &info) != 0 && (errno == ENOENT || errno == ENOTDIR)) error_add(err, CLOVER_BAD_INPUT, "%s: missing", path);
    else if (sha256_file(path, hex, &own) != CLOVER_OK) error_add(err, own.status, "%s", own.text);
    else if (strcmp(hex, expected) != 0) error_add(err, CLOVER_BAD_INPUT, "%s: changed since the bundle was made: SHA-256 %s, the manifest has %s", path, hex, expected);
    free(path);
}

/* Files under PATH/inside (inside "": PATH) that the manifest does not name. Folders are looked into one level deep. */
static void find_extra(const Bundle *b, const char *inside, CloverError *err) {
    const json_t *files = json_object_get(b->manifest, "files");
    char *folder = text_format(err, "%s/%s", b->path, inside);
    DIR *dir = folder ? opendir(folder) : NULL;
    if (folder && !dir) error_add(err, CLOVER_SYSTEM, "cannot read the folder %s: %s", folder, strerror(errno));
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (!*inside && (strcmp(e->d_name, "manifest.json") == 0 || strcmp(e->d_name, "provenance.json") == 0 || strcmp(e->d_name, BUNDLE_UNFINISHED) == 0)) continue;
        struct stat info;
        char *name = *inside ? text_format(err, "%s/%s", inside, e->d_name) : text_format(err, "%s", e->d_name);
        char *path = name ? text_format(err, "%s/%s", b->path, name) : NULL;
        bool is_case = false;
        for (int64_t i = 0; i < b->n_cases && name; i++) is_case |= strcmp(b->cases[i].folder, name) == 0;
        if (path && !*inside && is_case && stat(path, &info) == 0 && S_ISDIR(info.st_mode)) find_extra(b, name, err);
        else if (path && !json_object_get(files, name)) error_add(err, CLOVER_BAD_INPUT, "%s: not in the manifest", path);
        free(path);
        free(name);
    }
    if (dir) closedir(dir);
    free(folder);
}

CloverStatus bundle_verify(const Bundle *b, CloverError *err) {
    const char *name;
    json_t *hash;
    error_clear(err);
    json_object_foreach(json_object_get(b->manifest, "files"), name, hash) verify_file(b, name, json_string_value(hash), err);
    find_extra(b, "", err);
    return err->status;
}

json_t *bundle_cases(const Bundle *b) {
    json_t *cases = json_deep_copy(json_object_get(b->manifest, "cases")), *c;
    size_t i;
    json_array_foreach(cases, i, c) {
        json_object_del(c, "folder");
        if (json_object_get(c, "mode")) json_object_del(c, "steps");
    }
    return cases;
}
