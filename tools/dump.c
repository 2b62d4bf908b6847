/* dump.c - finds a step's arrays in a dump folder and brings them to our form. [DMP-1] */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../ref/error.h"
#include "../ref/files/quant.h"
#include "../ref/files/safetensors.h"
#include "dump_parts.h"
#include "output.h"

/* What is in the step that was asked for last: a safetensors file, or a folder of .npy files. */
typedef struct Open {
    char *path;                      /* without ending; NULL: nothing is open */
    Safetensors *file;               /* or */
    bool folder;
} Open;

struct Dump {
    char *path;
    const CloverConfig *config;
    bool single;
    bool mapped;
    DumpMap map;
    Open open;
    char **unused; int64_t n_unused, room_unused;   /* names of opened files that no probe has taken */
    char **used; int64_t n_used, room_used;
};

static bool is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}
static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The step's place without ending: CASE/STEP, or STEP at the top of a dump of a single case. NULL: nowhere. */
static char *place(const Dump *d, const char *case_name, const char *step, bool *folder) {
    CloverError ignored;
    for (int top = 0; top < (d->single ? 2 : 1); top++) {
        char *base = top ? text_format(&ignored, "%s/%s", d->path, step) : text_format(&ignored, "%s/%s/%s", d->path, case_name, step);
        char *file = base ? text_format(&ignored, "%s.safetensors", base) : NULL;
        const bool found = file && is_file(file);
        free(file);
        *folder = base && !found && is_folder(base);
        if (found || *folder) return base;
        free(base);
    }
    return NULL;
}

bool dump_has_step(const Dump *d, const char *case_name, const char *step) {
    bool folder;
    char *base = place(d, case_name, step, &folder);
    free(base);
    return base != NULL;
}

static void close_step(Dump *d) {
    safetensors_close(d->open.file);
    free(d->open.path);
    d->open = (Open){ 0 };
}

static void remember(char ***list, int64_t *n, int64_t *room, const char *name) {
    for (int64_t i = 0; i < *n; i++)
        if (strcmp((*list)[i], name) == 0) return;
    if (*n == *room) {
        char **grown = realloc(*list, (size_t)(*room ? 2 * *room : 64) * sizeof *grown);
        if (!grown) return;   /* the list is for the report only */
        *list = grown;
        *room = *room ? 2 * *room : 64;
    }
    char *copy = malloc(strlen(name) + 1);
    if (copy) (*list)[(*n)++] = strcpy(copy, name);
}

static void forget(char **list, int64_t *n, const char *name) {
    for (int64_t i = 0; i < *n; i++)
        if (strcmp(list[i], name) == 0) {
            free(list[i]);
            list[i] = list[--*n];
            return;
        }
}

static void note_name(Dump *d, const char *name) {
    for (int64_t k = 0; k < d->n_used; k++)
        if (strcmp(d->used[k], name) == 0) return;
    remember(&d->unused, &d->n_unused, &d->room_unused, name);
}

/* What stands in the step that was just opened. */
static void note_names(Dump *d) {
    DIR *folder = d->open.folder ? opendir(d->open.path) : NULL;
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        char name[256];
        const size_t length = strlen(entry->d_name);
        if (length <= 4 || strcmp(entry->d_name + length - 4, ".npy") != 0) continue;
        snprintf(name, sizeof name, "%.*s", (int)length - 4, entry->d_name);
        note_name(d, name);
    }
    if (folder) closedir(folder);
    const TensorList list = d->open.folder ? (TensorList){ 0 } : safetensors_tensors(d->open.file);
    for (int64_t i = 0; i < list.n; i++) note_name(d, list.tensor[i].name);
}

static void take_name(Dump *d, const char *name) {
    remember(&d->used, &d->n_used, &d->room_used, name);
    forget(d->unused, &d->n_unused, name);
}

static CloverStatus open_step(Dump *d, const char *case_name, const char *step, bool *there, CloverError *err) {
    bool folder;
    char *base = place(d, case_name, step, &folder);
    *there = base != NULL;
    if (base && d->open.path && strcmp(base, d->open.path) == 0) {
        free(base);
        return CLOVER_OK;
    }
    close_step(d);
    if (!base) return CLOVER_OK;
    d->open.path = base;
    d->open.folder = folder;
    if (folder) {
        note_names(d);
        return CLOVER_OK;
    }
    char *file = text_format(err, "%s.safetensors", base);
    CloverStatus status = file ? safetensors_open(file, &d->open.file, err) : err->status;
    free(file);
    if (status == CLOVER_OK) note_names(d);
    else close_step(d);
    return status;
}

CloverStatus dump_open_step(Dump *d, const char *case_name, const char *step, CloverError *err) {
    bool there;
    return open_step(d, case_name, step, &there, err);
}

/* An element type as numbers; false for one that is none. */
static bool numbers_of(const Tensor *t, double *out) {
    const DTypeInfo *info = dtype_info(t->type);
    for (int64_t i = 0; i < t->elements; i++) {
        int64_t wide;
        int32_t narrow;
        switch (t->type) {
        case DT_I64: memcpy(&wide, t->data + 8 * i, 8); out[i] = (double)wide; break;
        case DT_I32: memcpy(&narrow, t->data + 4 * i, 4); out[i] = narrow; break;
        case DT_F16: case DT_BF16: case DT_F32: case DT_F64: quant_decode(t->type, t->data + i * info->bytes, 1, &out[i]); break;
        default: return false;
        }
    }
    return true;
}

/* Logits of the last row alone, which is all that some engines give. */
static bool last_row_only(const Tensor *t, const char *probe, const int64_t *shape, int dims) {
    return strcmp(probe, "logits") == 0 && dims == 2 && shape[0] > 1 && t->elements == shape[1];
}

static DumpFound bring(const Dump *d, const Tensor *t, const MapEntry *entry, const char *probe, const int64_t *shape, int dims, double *data, int64_t *rows, CloverError *why) {
    static const MapEntry as_it_is = { .n_forms = 0 };
    char have[SHAPE_TEXT], want[SHAPE_TEXT];
    shape_text(t->shape, t->dims, have);
    shape_text(shape, dims, want);
    double *values = malloc((size_t)t->elements * sizeof *values + 1);
    if (!values) {
        error_memory(why, "an array of the dump", (size_t)t->elements * sizeof *values);
        return DUMP_BAD;
    }
    const int64_t last[2] = { 1, dims == 2 ? shape[1] : 0 };
    const bool last_row = last_row_only(t, probe, shape, dims);
    CloverError reason;
    DumpFound found = DUMP_WRONG;
    *rows = last_row ? 1 : shape[0];
    if (!numbers_of(t, values)) {
        error_set(why, CLOVER_BAD_INPUT, "%s: its %s has type %s; expected F16, BF16, F32, F64, I32 or I64", d->open.path, t->name, dtype_info(t->type) ? dtype_info(t->type)->name : "?");
        found = DUMP_BAD;
    } else if (last_row) {
        if (names_map_apply(entry ? entry : &as_it_is, d->config, values, t->shape, t->dims, last, 2, data + (shape[0] - 1) * shape[1], &reason)) found = DUMP_FOUND;
        else error_set(why, CLOVER_BAD_INPUT, "the dump's %s has shape %s, expected %s or its last row: %.200s", t->name, have, want, reason.text);
    } else if (names_map_apply(entry ? entry : &as_it_is, d->config, values, t->shape, t->dims, shape, dims, data, &reason)) found = DUMP_FOUND;
    else error_set(why, CLOVER_BAD_INPUT, "the dump's %s has shape %s, expected %s: %.200s", t->name, have, want, reason.text);
    free(values);
    return found;
}

/* Is an array of that name in the step that is open? */
static bool in_step(const Dump *d, const char *name) {
    if (!d->open.folder) return safetensors_tensor(d->open.file, name) != NULL;
    CloverError ignored;
    char *path = text_format(&ignored, "%s/%s.npy", d->open.path, name);
    const bool there = path && is_file(path);
    free(path);
    return there;
}

DumpFound dump_load(Dump *d, const char *case_name, const char *step, const char *probe, const int64_t *shape, int dims, double *data, DType *type,
                    int64_t *rows, CloverError *why) {
    bool there;
    char name[256];
    int64_t layer;
    if (open_step(d, case_name, step, &there, why) != CLOVER_OK) return DUMP_BAD;
    if (!there) return DUMP_ABSENT;
    const MapEntry *entry = d->mapped ? names_map_find(&d->map, probe, &layer) : NULL;
    if (d->mapped && !entry) return DUMP_ABSENT;
    if (entry) {
        names_map_name(entry->name, layer, name, sizeof name);
        if (entry->or_name && !in_step(d, name)) names_map_name(entry->or_name, layer, name, sizeof name);
    } else snprintf(name, sizeof name, "%s", probe);
    if (!d->open.folder) {
        const Tensor *t = safetensors_tensor(d->open.file, name);
        if (!t) return DUMP_ABSENT;
        take_name(d, name);
        *type = t->type;
        return bring(d, t, entry, probe, shape, dims, data, rows, why);
    }
    char *path = text_format(why, "%s/%s.npy", d->open.path, name);
    if (!path) return DUMP_BAD;
    Npy npy;
    DumpFound found = DUMP_ABSENT;
    if (is_file(path)) {
        found = DUMP_BAD;
        take_name(d, name);
        if (npy_open(path, &npy, why) == CLOVER_OK) {
            /* A Fortran-order array is the array of the reversed shape, transposed. */
            MapEntry turned = entry ? *entry : (MapEntry){ .n_forms = 0 };
            npy.array.name = name;
            *type = npy.array.type;
            if (npy.reversed) {
                memmove(turned.form + 1, turned.form, (size_t)turned.n_forms++ * sizeof *turned.form);
                turned.form[0] = (Form){ .kind = FORM_TRANSPOSE };
            }
            found = bring(d, &npy.array, &turned, probe, shape, dims, data, rows, why);
            npy_close(&npy);
        }
    }
    free(path);
    return found;
}

json_t *dump_trace(const Dump *d, const char *case_name, CloverError *err) {
    error_clear(err);
    for (int top = 0; top < (d->single ? 2 : 1); top++) {
        char *path = top ? text_format(err, "%s/trace.json", d->path) : text_format(err, "%s/%s/trace.json", d->path, case_name);
        if (!path) return NULL;
        json_error_t where;
        json_t *trace = is_file(path) ? json_load_file(path, JSON_REJECT_DUPLICATES, &where) : NULL;
        if (!trace && is_file(path)) error_set(err, CLOVER_BAD_INPUT, "%s: line %d: %s", path, where.line, where.text);
        free(path);
        if (trace || err->status != CLOVER_OK) return trace;
    }
    return NULL;
}

const char *const *dump_unused(const Dump *d, int64_t *n) {
    *n = d->n_unused;
    return (const char *const *)d->unused;
}

CloverStatus dump_open(const char *path, const char *map, const CloverConfig *config, bool single_case, Dump **out, CloverError *err) {
    error_clear(err);
    if (!is_folder(path)) return error_set(err, CLOVER_BAD_INPUT, "%s: no such folder; a dump is a folder of STEP.safetensors files, or of STEP/PROBE.npy files", path);
    Dump *d = calloc(1, sizeof *d);
    if (!d || !(d->path = text_format(err, "%s", path))) {
        free(d);
        return error_memory(err, "a dump", sizeof *d);
    }
    d->config = config;
    d->single = single_case;
    if (map) {
        d->mapped = true;
        if (names_map_open(map, &d->map, err) != CLOVER_OK) {
            dump_close(d);
            return err->status;
        }
    }
    *out = d;
    return CLOVER_OK;
}

void dump_close(Dump *d) {
    if (!d) return;
    close_step(d);
    names_map_close(&d->map);
    for (int64_t i = 0; i < d->n_unused; i++) free(d->unused[i]);
    for (int64_t i = 0; i < d->n_used; i++) free(d->used[i]);
    free(d->unused);
    free(d->used);
    free(d->path);
    free(d);
}
