/* golden_merge.c - clover golden --merge: parts made with --shard become the bundle that one run would have made. [BND-8] */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "golden.h"
#include "output.h"
#include "sha256.h"

typedef struct Parts {
    Bundle *bundle;                  /* [n] in the order of their index */
    int64_t n, cases;                /* parts, cases of all */
} Parts;

static int64_t shard_number(const Bundle *b, const char *key) {
    return json_integer_value(json_object_get(json_object_get(b->manifest, "shard"), key));   /* 0: no shard */
}

/* What all parts must share. */
static void check_common(const Bundle *first, const Bundle *b, CloverError *err) {
    static const char *const keys[] = { "spec", "model", "numerics", NULL };
    for (const char *const *key = keys; *key; key++)
        if (!json_equal(json_object_get(first->manifest, *key), json_object_get(b->manifest, *key)))
            error_add(err, CLOVER_BAD_INPUT, "%s: another %s than that of %s", b->path, *key, first->path);
    if (shard_number(b, "count") != shard_number(first, "count") || shard_number(b, "cases") != shard_number(first, "cases"))
        error_add(err, CLOVER_BAD_INPUT, "%s: part %lld of %lld over %lld cases, while %s is one of %lld over %lld", b->path, (long long)shard_number(b, "index"),
                  (long long)shard_number(b, "count"), (long long)shard_number(b, "cases"), first->path, (long long)shard_number(first, "count"),
                  (long long)shard_number(first, "cases"));
}

/* Puts the opened bundles in order; every part once, each with the cases that are its own. */
static CloverStatus arrange(Parts *p, const Bundle *opened, int64_t n, CloverError *err) {
    error_clear(err);
    for (int64_t i = 0; i < n; i++)
        if (shard_number(&opened[i], "count") < 2) error_add(err, CLOVER_BAD_INPUT, "%s: a bundle of its own, no part made with --shard", opened[i].path);
        else check_common(&opened[0], &opened[i], err);
    if (err->status != CLOVER_OK) return err->status;
    const int64_t count = shard_number(&opened[0], "count");
    p->cases = shard_number(&opened[0], "cases");
    if (count > n) {
        for (int64_t k = 1; k <= count && k <= n + 16; k++) {
            bool there = false;
            for (int64_t i = 0; i < n; i++) there |= shard_number(&opened[i], "index") == k;
            if (!there) error_add(err, CLOVER_BAD_INPUT, "part %lld of %lld is missing", (long long)k, (long long)count);
        }
        return err->status;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t index = shard_number(&opened[i], "index"), own = p->cases >= index ? (p->cases - index) / count + 1 : 0;
        if (p->bundle[index - 1].path) error_add(err, CLOVER_BAD_INPUT, "%s: part %lld a second time, after %s", opened[i].path, (long long)index, p->bundle[index - 1].path);
        else p->bundle[index - 1] = opened[i];           /* index <= count <= n */
        if (opened[i].n_cases != own)
            error_add(err, CLOVER_BAD_INPUT, "%s: has %lld cases; part %lld of %lld of %lld cases has %lld", opened[i].path, (long long)opened[i].n_cases, (long long)index,
                      (long long)count, (long long)p->cases, (long long)own);
    }
    p->n = count;
    return err->status;
}

/* Case k of the whole is case k div n of part k mod n. */
static CloverStatus join(const Parts *p, json_t **plan, json_t **manifest, CloverError *err) {
    json_t *cases = json_array(), *names = json_object(), *files = json_object();
    for (int64_t k = 0; k < p->cases; k++) {
        json_t *c = json_array_get(json_object_get(p->bundle[k % p->n].manifest, "cases"), (size_t)(k / p->n));
        const char *name = json_string_value(json_object_get(c, "name"));
        if (json_object_get(names, name)) error_add(err, CLOVER_BAD_INPUT, "the case \"%s\" stands in two parts", name);
        json_object_set_new(names, name, json_true());
        if (json_array_append(cases, c) != 0) error_memory(err, "the cases", 0);
    }
    for (int64_t i = 0; i < p->n; i++)
        if (json_object_update(files, json_object_get(p->bundle[i].manifest, "files")) != 0) error_memory(err, "the files", 0);
    *manifest = json_copy(p->bundle[0].manifest);
    json_object_del(*manifest, "shard");
    json_object_set_new(*manifest, "files", files);
    json_object_set_new(*manifest, "cases", cases);
    json_decref(names);
    if (!(*plan = plan_of_manifest(*manifest))) error_memory(err, "the plan", 0);
    return err->status;
}

static CloverStatus copy_file(const char *from, const char *to, const char *expected, CloverError *err) {
    enum { PIECE = 1 << 20 };
    Output o = { .fd = -1 };
    Sha256 hash;
    char hex[SHA256_HEX];
    FILE *f = fopen(from, "rb");
    if (!f) return error_set(err, CLOVER_SYSTEM, "cannot read %s: %s", from, strerror(errno));
    char *piece = malloc(PIECE);
    CloverStatus status = piece ? sha256_begin(&hash, err) : error_memory(err, from, PIECE);
    if (status == CLOVER_OK) {
        status = output_open(&o, to, true, err);
        for (size_t n; status == CLOVER_OK && (n = fread(piece, 1, PIECE, f)) > 0;) {
            sha256_add(&hash, piece, n);
            status = output_write(&o, piece, n, err);
        }
        CloverError own;
        const CloverStatus hashed = sha256_end(&hash, hex, &own);
        if (status == CLOVER_OK && hashed != CLOVER_OK) status = error_set(err, hashed, "%s", own.text);
        if (status == CLOVER_OK && strcmp(hex, expected) != 0) status = error_set(err, CLOVER_BAD_INPUT, "%s: changed while it was copied", from);
        if (status == CLOVER_OK) status = output_commit(&o, err);
    }
    output_discard(&o);
    free(piece);
    fclose(f);
    return status;
}

static CloverStatus copy_part(const Bundle *b, const char *out, CloverError *err) {
    CloverStatus status = CLOVER_OK;
    for (int64_t i = 0; i < b->n_cases && status == CLOVER_OK; i++) {
        char *folder = text_format(err, "%s/%s", out, b->cases[i].folder);
        if (!folder) return err->status;
        if (mkdir(folder, 0777) != 0 && errno != EEXIST) status = error_set(err, CLOVER_SYSTEM, "%s: cannot make the folder: %s", folder, strerror(errno));
        free(folder);
    }
    const char *name;
    json_t *hash;
    json_object_foreach(json_object_get(b->manifest, "files"), name, hash) {
        char *from = text_format(err, "%s/%s", b->path, name), *to = text_format(err, "%s/%s", out, name);
        if (status == CLOVER_OK) status = from && to ? copy_file(from, to, json_string_value(hash), err) : err->status;
        free(from);
        free(to);
    }
    return status;
}

static CloverStatus write_merged(const Parts *p, const char *out, bool force, int argc, char **argv, CloverError *err) {
    json_t *plan = NULL, *manifest = NULL;
    Folder f = { .lock = -1 };
    bool whole = false;
    CloverStatus status = join(p, &plan, &manifest, err);
    if (status == CLOVER_OK) status = folder_begin(&f, out, plan, force, &whole, err);
    for (int64_t i = 0; i < p->n && status == CLOVER_OK && !whole; i++) status = copy_part(&p->bundle[i], out, err);
    if (status == CLOVER_OK && !whole) status = folder_finish(&f, manifest, argc, argv, err);
    folder_free(&f);
    json_decref(plan);
    json_decref(manifest);
    return status;
}

CloverStatus golden_merge(const char *out, char *const *parts, int64_t n, bool force, int argc, char **argv, CloverError *err) {
    Bundle *opened = calloc((size_t)n, sizeof *opened);
    Parts p = { .bundle = calloc((size_t)n, sizeof *p.bundle) };
    int64_t n_opened = 0;
    CloverStatus status = opened && p.bundle ? CLOVER_OK : error_memory(err, "the parts", (size_t)n * sizeof *opened);
    for (; n_opened < n && status == CLOVER_OK; n_opened++) {
        status = bundle_open(parts[n_opened], &opened[n_opened], err);
        if (status == CLOVER_OK) status = bundle_verify(&opened[n_opened], err);
    }
    if (status == CLOVER_OK) status = arrange(&p, opened, n, err);
    if (status == CLOVER_OK) status = write_merged(&p, out, force, argc, argv, err);
    for (int64_t i = 0; i < n_opened; i++) bundle_close(&opened[i]);   /* p.bundle are copies of these */
    free(opened);
    free(p.bundle);
    return status;
}
