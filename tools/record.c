/* record.c - see record.h. [PRB-1, PRB-2] */
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../ref/files/quant.h"
#include "output.h"
#include "diff_parts.h"
#include "record.h"
#include "safetensors_write.h"

enum { PIECE = 1 << 20 };

bool record_wants(const char *globs, const char *name) {
    char pattern[256];
    for (const char *g = globs; g && *g;) {
        size_t length = strcspn(g, ",");
        if (length < sizeof pattern) {
            memcpy(pattern, g, length);
            pattern[length] = '\0';
            if (fnmatch(pattern, name, 0) == 0) return true;
        }
        g += length + (g[length] == ',');
    }
    return false;
}

CloverStatus record_open(Record *r, const char *globs, bool list, const char *folder, CloverError *err) {
    *r = (Record){ .globs = globs, .list = list, .fd = -1, .type = DT_F64 };
    if (!folder) return CLOVER_OK;
    char *path = text_format(err, "%s/scratch.partial-XXXXXX", folder);
    if (!path) return err->status;
    r->fd = mkstemp(path);
    const int error = errno;
    if (r->fd >= 0) unlink(path);                        /* it goes when we do */
    else error_set(err, CLOVER_SYSTEM, "%s: cannot make a scratch file: %s", folder, strerror(error));
    free(path);
    return r->fd >= 0 ? CLOVER_OK : err->status;
}

static void forget(Record *r) {
    for (int64_t i = 0; i < r->n; i++) free(r->array[i].name);
    free(r->array);
    free(r->logits);
    r->array = NULL;
    r->logits = NULL;
    r->n = r->room = 0;
    r->used = 0;
}

void record_close(Record *r) {
    forget(r);
    if (r->fd >= 0) close(r->fd);
    r->fd = -1;
}

/* ---- keeping ------------------------------------------------------------------------------------------------------- */

static void scratch_write(Record *r, const void *data, uint64_t bytes) {
    const char *p = data;
    while (bytes > 0) {
        const ssize_t wrote = pwrite(r->fd, p, bytes < (1u << 30) ? (size_t)bytes : 1u << 30, (off_t)r->used);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            const int error = wrote < 0 ? errno : ENOSPC;
            error_set(r->err, CLOVER_SYSTEM, "%sa step's values after %llu bytes: %s", error == ENOSPC ? "disk full: cannot keep " : "cannot keep ",
                      (unsigned long long)r->used, strerror(error));
            return;
        }
        p += wrote;
        bytes -= (uint64_t)wrote;
        r->used += (uint64_t)wrote;
    }
}

static void add(Record *r, const char *name, DType type, const void *data, const int64_t *shape, int dims) {
    if (r->fd < 0 || r->err->status != CLOVER_OK) return;
    if (r->n == r->room) {
        const int64_t room = r->room ? 2 * r->room : 64;
        RecordedArray *more = realloc(r->array, (size_t)room * sizeof *more);
        if (!more) {
            error_memory(r->err, "the list of probes", (size_t)room * sizeof *more);
            return;
        }
        r->array = more;
        r->room = room;
    }
    RecordedArray a = { .type = type, .dims = dims, .at = r->used, .bytes = (uint64_t)dtype_info(type)->bytes, .name = malloc(strlen(name) + 1) };
    if (!a.name) {
        error_memory(r->err, "a probe's name", strlen(name) + 1);
        return;
    }
    strcpy(a.name, name);
    for (int i = 0; i < dims; i++) {
        a.shape[i] = shape[i];
        a.bytes *= (uint64_t)shape[i];
    }
    r->array[r->n++] = a;
    scratch_write(r, data, a.bytes);
}

/* Floats as the file's type holds them, experts' ids as I32 unless that is F64. */
static void add_floats(Record *r, const char *name, const double *data, const int64_t *shape, int dims) {
    const DType type = r->type == DT_F64 || strcmp(stage_of(name), "moe.ids") != 0 ? r->type : DT_I32;
    int64_t n = 1;
    for (int i = 0; i < dims; i++) n *= shape[i];
    if (type == DT_F64) {
        add(r, name, DT_F64, data, shape, dims);
        return;
    }
    float *narrow = malloc((size_t)n * sizeof *narrow + 1);
    int32_t *stored = malloc((size_t)n * sizeof *stored + 1);        /* room for any of the types */
    for (int64_t i = 0; i < n && narrow && stored; i++) {
        narrow[i] = (float)(type == DT_BF16 ? bf16_round(data[i]) : data[i]);
        if (type == DT_I32) stored[i] = (int32_t)data[i];
    }
    if (!narrow || !stored) error_memory(r->err, "a probe's values", (size_t)n * 8);
    else if (type != DT_I32) quant_encode(type, narrow, n, (uint8_t *)stored);
    if (narrow && stored) add(r, name, type, stored, shape, dims);
    free(narrow);
    free(stored);
}

/* Name, shape, size and the first numbers of a stage, in the order in which they are computed. */
static void print_stage(const char *name, const double *data, const int64_t *shape, int dims) {
    char text[64];
    size_t used = 0;
    int64_t n = 1;
    double squares = 0;
    for (int i = 0; i < dims && used < sizeof text; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
        n *= shape[i];
    }
    for (int64_t i = 0; i < n; i++) squares += data[i] * data[i];
    printf("  %-22s [%s]%*s rms %-10.4g", name, text, (int)(used < 16 ? 16 - used : 0), "", n ? sqrt(squares / (double)n) : 0.0);
    for (int64_t i = 0; i < n && i < 4; i++) printf(" %10.5g", data[i]);
    printf("%s\n", n > 4 ? " ..." : "");
}

static void watch(void *user, const char *name, double *data, const int64_t *shape, int dims) {
    Record *r = user;
    if (r->in_force) in_force_observe(r->in_force, r->session, r->preview, name, data, shape, dims);
    if (!record_wants(r->globs, name)) return;
    if (r->list) print_stage(name, data, shape, dims);
    if (strcmp(name, "logits") != 0) add_floats(r, name, data, shape, dims);    /* they are kept in any case */
}

static void add_ids(Record *r, const int32_t *ids, int64_t n) {
    int64_t *wide = malloc((size_t)n * sizeof *wide);
    if (!wide) {
        error_memory(r->err, "the step's ids", (size_t)n * sizeof *wide);
        return;
    }
    for (int64_t i = 0; i < n; i++) wide[i] = ids[i];
    add(r, "ids", DT_I64, wide, &n, 1);
    free(wide);
}

CloverStatus record_step(Record *r, CloverSession *s, int64_t vocab, bool preview, const int32_t *ids, int64_t n, CloverError *err) {
    size_t bytes;
    forget(r);
    error_clear(err);
    if (__builtin_mul_overflow((size_t)n, (size_t)vocab * sizeof *r->logits, &bytes) || !(r->logits = malloc(bytes ? bytes : 1)))
        return error_memory(err, "the step's logits", bytes);
    CloverError own;                                     /* keeping fails on its own: the step's errors begin with a clear *err */
    error_clear(&own);
    r->err = &own;
    add_ids(r, ids, n);
    r->session = s;
    r->preview = preview;
    if ((r->globs && *r->globs) || r->in_force) clover_session_watch(s, watch, r);
    CloverStatus status = preview ? in_force_preview(r->in_force, s, ids, n, r->logits, err) : in_force_commit(r->in_force, s, ids, n, r->logits, n, err);
    clover_session_watch(s, NULL, NULL);
    if (status == CLOVER_OK) add_floats(r, "logits", r->logits, (int64_t[]){ n, vocab }, 2);
    if (status == CLOVER_OK && own.status != CLOVER_OK) status = error_set(err, own.status, "%s", own.text);
    r->err = NULL;
    return status;
}

/* ---- saving -------------------------------------------------------------------------------------------------------- */

static CloverStatus copy_out(const Record *r, SafetensorsWriter *w, CloverError *err) {
    char *piece = malloc(PIECE);
    if (!piece) return error_memory(err, "a file's buffer", PIECE);
    CloverStatus status = CLOVER_OK;
    for (uint64_t at = 0; at < r->used && status == CLOVER_OK;) {
        const uint64_t left = r->used - at;
        const ssize_t got = pread(r->fd, piece, left < PIECE ? (size_t)left : PIECE, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) status = error_set(err, CLOVER_SYSTEM, "cannot read a step's kept values back: %s", got < 0 ? strerror(errno) : "they are cut off");
        else status = safetensors_writer_write(w, piece, (size_t)got, err);
        if (got > 0) at += (uint64_t)got;
    }
    free(piece);
    return status;
}

CloverStatus record_save(Record *r, const char *path, CloverError *err) {
    SafetensorsWriter *w = safetensors_writer_new();
    if (!w) return error_memory(err, path, 0);
    for (int64_t i = 0; i < r->n; i++) safetensors_writer_add(w, r->array[i].name, r->array[i].type, r->array[i].dims, r->array[i].shape);
    CloverStatus status = safetensors_writer_begin(w, path, 0, true, err);
    if (status == CLOVER_OK) status = copy_out(r, w, err);
    if (status == CLOVER_OK) status = safetensors_writer_finish(w, err);
    safetensors_writer_free(w);
    return status;
}

/* Has a model of c a stage that pattern names? */
static bool names_a_stage(const char *pattern, const CloverConfig *c) {
    char name[64];
    for (size_t i = 0; stage_at(i); i++) {
        const char *stage = stage_at(i);
        const bool whole = strcmp(stage, "embed") == 0 || strcmp(stage, "final_norm") == 0 || strcmp(stage, "logits") == 0;
        if (whole && fnmatch(pattern, stage, 0) == 0) return true;
        for (int64_t l = 0; !whole && l < c->layers; l++) {
            if (strncmp(stage, "attn.", 5) == 0 ? !c->full_attention[l] : strncmp(stage, "gdn.", 4) == 0 && c->full_attention[l]) continue;
            snprintf(name, sizeof name, "L%02lld.%s", (long long)l, stage);
            if (fnmatch(pattern, name, 0) == 0) return true;
        }
    }
    return fnmatch(pattern, "ids", 0) == 0;
}

CloverStatus record_check_globs(const char *globs, const CloverConfig *c, CloverError *err) {
    for (const char *g = globs; g && *g;) {
        char pattern[256];
        const size_t length = strcspn(g, ",");
        snprintf(pattern, sizeof pattern, "%.*s", (int)(length < 255 ? length : 255), g);
        if (length && !names_a_stage(pattern, c))
            return error_set(err, CLOVER_USAGE, "probes: no stage of this model is named \"%s\"; clover logits --list --probes '*' shows them all", pattern);
        g += length + (g[length] == ',');
    }
    return CLOVER_OK;
}
