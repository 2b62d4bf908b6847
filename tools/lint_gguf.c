/* lint_gguf.c - a GGUF's header as far as it goes. [LNT-2]
 *
 * The loader (ref/files/gguf.c) refuses a file that breaks a rule; this reader names the rule as a finding and reads on,
 * so that a cut, misaligned or partly downloaded file still tells what it is. The same care holds: no length is used
 * before it was held against what is left of the file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../ref/files/utf8.h"
#include "lint.h"

enum { DEFAULT_ALIGNMENT = 32, MAX_DIMS = 4, MAX_NAME = 4096, MAX_PARTS = 65535 };
static const char extension[] = ".gguf";

typedef struct Cursor {
    const Map *map;
    uint64_t at;
    Report *r;
} Cursor;

static const uint8_t *take(Cursor *c, uint64_t n, const char *what) {
    const uint64_t left = c->map->bytes - c->at;
    if (n > left) {
        report_add(c->r, TRUNCATED, BREAKS, LLAMA_CPP | CLOVER, NULL, "%s: %s at byte %llu needs %llu bytes, %llu are left; what follows is unknown",
                   c->map->path, what, (unsigned long long)c->at, (unsigned long long)n, (unsigned long long)left);
        return NULL;
    }
    const uint8_t *p = c->map->data + c->at;
    c->at += n;
    return p;
}

static bool take_u32(Cursor *c, uint32_t *out, const char *what) {
    const uint8_t *p = take(c, 4, what);
    if (p) *out = le32(p);
    return p != NULL;
}

static bool take_u64(Cursor *c, uint64_t *out, const char *what) {
    const uint8_t *p = take(c, 8, what);
    if (p) *out = le64(p);
    return p != NULL;
}

static bool take_string(Cursor *c, GgufString *out, const char *what) {
    return take_u64(c, &out->length, what) && (out->bytes = (const char *)take(c, out->length, what)) != NULL;
}

/* ---- names, for both formats --------------------------------------------------------------------------------------- */

/* A copy of the name, or of how it is shown when it is no proper text. NULL: out of memory. */
char *lint_name(Report *r, const char *kind, const char *bytes, uint64_t length) {
    bool proper = length > 0 && length <= MAX_NAME && utf8_first_invalid(bytes, (size_t)length) == length;
    for (uint64_t i = 0; proper && i < length; i++) proper = (unsigned char)bytes[i] >= 0x20 && bytes[i] != 0x7f;
    char shown[NAME_SHOWN];
    if (!proper) {
        name_show(bytes, length < MAX_NAME ? length : MAX_NAME, shown);
        report_add(r, NAME_FORM, BREAKS, LLAMA_CPP | CLOVER, NULL, "a %s's name is no plain text: %s (%llu bytes)", kind, shown,
                   (unsigned long long)length);
        bytes = shown;
        length = strlen(shown);
    }
    char *copy = malloc((size_t)length + 1);
    if (!copy) { r->no_memory = true; return NULL; }
    memcpy(copy, bytes, (size_t)length);
    copy[length] = '\0';
    return copy;
}

bool lint_add_tensor(LintFile *f, Report *r, const char *name, uint64_t length, Tensor *t) {
    char *copy = lint_name(r, "tensor", name, length);
    if (!copy) return false;
    if (names_find(&f->tensor_names, copy) >= 0) {
        report_add(r, TENSOR_EXTRA, BREAKS, LLAMA_CPP | CLOVER, copy, "%s stands there twice", copy);
        free(copy);
        return true;
    }
    t->name = copy;
    if (!tensor_append(&f->tensors, &f->tensor_room, t)) {
        free(copy);
        r->no_memory = true;
        return false;
    }
    if (!names_add(&f->tensor_names, copy, f->tensors.n - 1)) r->no_memory = true;
    return !r->no_memory;
}

const GgufKey *lint_key(const LintFile *f, const char *name) {
    for (int64_t i = 0; i < f->n_keys; i++)
        if (strcmp(f->key[i].name, name) == 0) return &f->key[i];
    return NULL;
}

const Tensor *lint_tensor(const LintFile *f, const char *name) {
    int64_t i = names_find(&f->tensor_names, name);
    return i < 0 ? NULL : &f->tensors.tensor[i];
}

void lint_file_free(LintFile *f) {
    for (int64_t i = 0; i < f->n_keys; i++) free((void *)(uintptr_t)f->key[i].name);
    for (int64_t i = 0; i < f->tensors.n; i++) free((void *)(uintptr_t)f->tensors.tensor[i].name);
    for (int64_t i = 0; i < f->maps; i++) map_close(&f->map[i]);
    free(f->key);
    free(f->tensors.tensor);
    free(f->map);
    names_free(&f->tensor_names);
    json_decref(f->config);
    json_decref(f->generation);
    *f = (LintFile){ 0 };
}

/* ---- keys ---------------------------------------------------------------------------------------------------------- */

static bool take_type(Cursor *c, GgufType *out, const char *name) {
    uint32_t type;
    if (!take_u32(c, &type, name)) return false;
    *out = (GgufType)type;
    if (type <= GGUF_F64) return true;
    report_add(c->r, TRUNCATED, BREAKS, LLAMA_CPP | CLOVER, NULL, "%s: key %s has value type %u, of 0 to %d; nothing after byte %llu can be read",
               c->map->path, name, (unsigned)type, (int)GGUF_F64, (unsigned long long)c->at);
    return false;
}

static bool take_elements(Cursor *c, GgufKey *key) {
    static const uint8_t sizes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    const uint64_t start = c->at;
    if (key->element == GGUF_STRING) {
        GgufString s;
        for (uint64_t i = 0; i < key->count; i++)            /* each takes 8 bytes at least: ends with the file */
            if (!take_string(c, &s, key->name)) return false;
    } else {
        const uint64_t size = sizes[key->element];
        if (!take(c, key->count > UINT64_MAX / size ? UINT64_MAX : key->count * size, key->name)) return false;
    }
    key->data = c->map->data + start;
    key->bytes = c->at - start;
    return true;
}

static bool take_value(Cursor *c, GgufKey *key) {
    if (!take_type(c, &key->type, key->name)) return false;
    key->element = key->type;
    key->count = 1;
    if (key->type == GGUF_ARRAY) {
        if (!take_type(c, &key->element, key->name) || !take_u64(c, &key->count, key->name)) return false;
        if (key->element == GGUF_ARRAY) {
            report_add(c->r, KEY_CONTRADICTS, BREAKS, CLOVER, NULL, "key %s is an array of arrays: nothing behind it can be read", key->name);
            return false;
        }
    }
    return take_elements(c, key);
}

static bool keep_key(LintFile *f, const GgufKey *key, Report *r) {
    if (lint_key(f, key->name)) {
        report_add(r, KEY_CONTRADICTS, BREAKS, LLAMA_CPP | CLOVER, NULL, "key %s stands there twice", key->name);
        free((void *)(uintptr_t)key->name);
        return true;
    }
    if (f->n_keys == f->key_room) {
        int64_t more = f->key_room ? 2 * f->key_room : 64;
        GgufKey *larger = realloc(f->key, (size_t)more * sizeof *larger);
        if (!larger) {
            free((void *)(uintptr_t)key->name);
            r->no_memory = true;
            return false;
        }
        f->key = larger;
        f->key_room = more;
    }
    f->key[f->n_keys++] = *key;
    return true;
}

/* keep: of the first part; the others' keys are walked only. */
static bool read_key(Cursor *c, LintFile *f, bool keep, uint64_t *alignment) {
    GgufString name;
    GgufKey key = { 0 };
    if (!take_string(c, &name, "the name of a key")) return false;
    char *copy = lint_name(c->r, "key", name.bytes, name.length);
    if (!copy) return false;
    key.name = copy;
    if (!take_value(c, &key)) { free(copy); return false; }
    int64_t value;
    if (strcmp(copy, "general.alignment") == 0) {
        if (key.type == GGUF_U32 && gguf_int(&key, 0, &value) && value >= 8 && (value & (value - 1)) == 0) *alignment = (uint64_t)value;
        else report_add(c->r, ALIGNMENT, BREAKS, LLAMA_CPP | CLOVER, NULL,
                        "general.alignment is no power of two of at least 8 as u32; read as if it were %d", DEFAULT_ALIGNMENT);
    }
    if (keep) return keep_key(f, &key, c->r);
    free(copy);
    return true;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------- */

/* Dimensions into t, slowest first; *proper: they make sense. False: the file ends. */
static bool take_shape(Cursor *c, const char *name, Tensor *t, bool *proper) {
    uint32_t dims;
    const uint8_t *p;
    if (!take_u32(c, &dims, name) || !(p = take(c, 8 * (uint64_t)dims, name))) return false;
    *proper = dims >= 1 && dims <= MAX_DIMS;
    if (!*proper) {
        report_add(c->r, TENSOR_SHAPE, BREAKS, LLAMA_CPP | CLOVER, name, "%s has %u dimensions, of 1 to %d", name, (unsigned)dims, MAX_DIMS);
        return true;
    }
    t->dims = (int)dims;
    for (uint32_t i = 0; i < dims; i++) {
        uint64_t n = le64(p + 8 * i);                            /* fastest first */
        t->shape[dims - 1 - i] = n > INT64_MAX ? -1 : (int64_t)n;
    }
    *proper = tensor_count_elements(t) && t->elements > 0;
    if (!*proper)
        report_add(c->r, TENSOR_SHAPE, BREAKS, LLAMA_CPP | CLOVER, name, "%s has a dimension of 0, or more than 2^63 elements", name);
    return true;
}

static bool size_tensor(Cursor *c, const char *name, Tensor *t) {
    const DTypeInfo *info = dtype_info(t->type);
    if (!info) return true;
    const int64_t row = t->shape[t->dims - 1], bytes = dtype_bytes(t->type, t->elements);
    if (row % info->block == 0 && bytes >= 0) {
        t->bytes = (uint64_t)bytes;
        return true;
    }
    report_add(c->r, TENSOR_SHAPE, BREAKS, LLAMA_CPP | CLOVER, name, "%s has rows of %lld elements, no whole number of %s blocks of %lld", name,
               (long long)row,
               info->name, (long long)info->block);
    return false;
}

static bool read_tensor(Cursor *c, LintFile *f) {
    GgufString name;
    Tensor t = { .file = c->map->path };
    uint32_t type;
    bool proper;
    if (!take_string(c, &name, "the name of a tensor")) return false;
    char *copy = lint_name(c->r, "tensor", name.bytes, name.length);
    if (!copy) return false;
    bool more = take_shape(c, copy, &t, &proper) && take_u32(c, &type, copy) && take_u64(c, &t.offset, copy);
    if (more) {
        t.type = type < DT_U8 ? (DType)type : DT_UNKNOWN;
        if (proper) proper = size_tensor(c, copy, &t);
        if (proper) more = lint_add_tensor(f, c->r, copy, strlen(copy), &t);
    }
    free(copy);
    return more;
}

/* Offsets become places in the file. Loaders expect tensors one behind the other, each at the next multiple of the alignment. */
static void place_tensors(const Map *map, uint64_t start, uint64_t alignment, Tensor *tensor, int64_t n, Report *r) {
    const uint64_t room = start < map->bytes ? map->bytes - start : 0;
    uint64_t expected = 0;
    bool known = true;                                           /* the expected place */
    for (int64_t i = 0; i < n; i++) {
        Tensor *t = &tensor[i];
        const uint64_t need = t->bytes ? t->bytes : 1;           /* a type of unknown size needs something */
        if (t->offset % alignment != 0)
            report_add(r, ALIGNMENT, BREAKS, LLAMA_CPP | CLOVER, t->name, "%s has offset %llu, no multiple of %llu", t->name,
                       (unsigned long long)t->offset, (unsigned long long)alignment);
        else if (known && t->offset != expected)
            report_add(r, ALIGNMENT, BREAKS, LLAMA_CPP | CLOVER, t->name, "%s has offset %llu, behind the tensor before it comes %llu", t->name,
                       (unsigned long long)t->offset,
                       (unsigned long long)expected);
        known = dtype_info(t->type) != NULL && t->bytes <= UINT64_MAX / 2 && t->offset <= UINT64_MAX / 2;
        if (known) expected = (t->offset + t->bytes + alignment - 1) / alignment * alignment;
        if (t->offset > room || need > room - t->offset) {
            report_add(r, TRUNCATED, BREAKS, LLAMA_CPP | CLOVER, t->name, "%s ends %llu bytes behind the file's end", t->name,
                       (unsigned long long)(t->offset > UINT64_MAX / 4 || need > UINT64_MAX / 4 ? UINT64_MAX : t->offset + need - room));
            continue;
        }
        t->offset += start;
        t->data = map->data + t->offset;
        if (!dtype_info(t->type)) t->bytes = i + 1 < n && tensor[i + 1].offset > t->offset - start ? tensor[i + 1].offset - (t->offset - start)
                : room - (t->offset - start);
        if (!dtype_info(t->type) && t->bytes > room - (t->offset - start)) t->bytes = room - (t->offset - start);
    }
    if (known && n > 0 && room > expected)
        report_add(r, ALIGNMENT, BREAKS, CLOVER, NULL, "%s: %llu bytes behind the last tensor belong to none", map->path,
                   (unsigned long long)(room - expected));
}

/* ---- parts --------------------------------------------------------------------------------------------------------- */

/* False: not even its counts can be read. *whole: nothing of its header is missing. */
static bool read_part(LintFile *f, const Map *map, bool first, bool *whole, Report *r) {
    Cursor c = { .map = map, .r = r };
    uint64_t n_tensors, n_keys, alignment = DEFAULT_ALIGNMENT;
    const int64_t before = f->tensors.n;
    *whole = false;
    if (map->bytes < 24 || memcmp(map->data, "GGUF", 4) != 0 || le32(map->data + 4) != 3) return false;
    c.at = 8;
    take_u64(&c, &n_tensors, "the number of tensors");
    take_u64(&c, &n_keys, "the number of keys");
    for (uint64_t i = 0; i < n_keys; i++)
        if (!read_key(&c, f, first, &alignment)) return true;
    for (uint64_t i = 0; i < n_tensors; i++)
        if (!read_tensor(&c, f)) return true;                    /* where the data starts is then unknown: no values */
    *whole = true;
    const uint64_t start = (c.at + alignment - 1) / alignment * alignment;
    if (f->tensors.n > before) place_tensors(map, start, alignment, &f->tensors.tensor[before], f->tensors.n - before, r);
    return true;
}

/* The file is no GGUF at all: the loader's words for it. */
static CloverStatus refuse(const char *path, CloverError *err) {
    Gguf *g = NULL;
    if (gguf_open(path, &g, err) == CLOVER_OK) {
        gguf_close(g);
        return error_set(err, CLOVER_BUG, "%s: opens, but lint cannot read it", path);
    }
    return err->status;
}

static CloverStatus read_single(const char *path, LintFile *f, Report *r, CloverError *err) {
    if (map_open(path, &f->map[0], err) != CLOVER_OK) return err->status;
    f->maps = 1;
    f->bytes = f->map[0].bytes;
    if (!read_part(f, &f->map[0], true, &f->whole, r)) return refuse(path, err);
    const GgufKey *count = lint_key(f, "split.count");
    int64_t parts;
    if (count && gguf_int(count, 0, &parts) && parts > 1) {
        report_add(r, SPLIT_PART_MISSING, BREAKS, LLAMA_CPP | CLOVER, NULL,
                   "split.count is %lld, but the file's name does not end in -00001-of-%05lld%s: the other parts cannot be found",
                   (long long)parts, (long long)parts, extension);
        f->whole = false;
    }
    return CLOVER_OK;
}

static CloverStatus read_parts(const char *path, const PartName *name, LintFile *f, Report *r, CloverError *err) {
    bool any = false;
    f->whole = true;
    for (int i = 1; i <= name->parts; i++) {
        char *part = part_name_make(path, name, i, extension);
        if (!part) return error_memory(err, "a path", strlen(path) + 16);
        Map *map = &f->map[f->maps];
        bool whole = false;
        if (access(part, F_OK) != 0 && errno == ENOENT) {
            char shown[NAME_SHOWN];
            const char *slash = strrchr(part, '/');
            slash = slash ? slash + 1 : part;
            report_add(r, SPLIT_PART_MISSING, BREAKS, LLAMA_CPP | CLOVER, NULL, "%s, part %d of %d, is not there",
                       name_show(slash, strlen(slash), shown), i, name->parts);
        } else if (map_open(part, map, err) != CLOVER_OK) {
            if (err->status == CLOVER_SYSTEM) { free(part); return err->status; }
            report_add(r, TRUNCATED, BREAKS, LLAMA_CPP | CLOVER, NULL, "%s", err->text);
        } else {
            f->maps++;
            f->bytes += map->bytes;
            if (!read_part(f, map, i == 1, &whole, r))
                report_add(r, TRUNCATED, BREAKS, LLAMA_CPP | CLOVER, NULL, "part %d of %d is no GGUF file", i, name->parts);
            else any = true;
        }
        f->whole &= whole;
        free(part);
        if (r->no_memory) return error_memory(err, "the list of tensors", (size_t)f->tensors.n * sizeof(Tensor));
    }
    return any ? CLOVER_OK : error_set(err, CLOVER_BAD_INPUT, "%s: none of its %d parts can be read", path, name->parts);
}

CloverStatus lint_read_gguf(const char *path, LintFile *f, Report *r, CloverError *err) {
    PartName name;
    error_clear(err);
    const bool split = part_name_parse(path, extension, &name) && name.parts > 1 && name.part >= 1 && name.part <= name.parts;
    const size_t room = split ? (size_t)name.parts : 1;
    f->path = path;
    f->form = NAMES_GGUF;
    f->map = room <= MAX_PARTS + 1u ? calloc(room, sizeof *f->map) : NULL;
    if (!f->map) return error_memory(err, "a file's parts", room * sizeof *f->map);
    CloverStatus status = split ? read_parts(path, &name, f, r, err) : read_single(path, f, r, err);
    if (status == CLOVER_OK) error_clear(err);
    if (status == CLOVER_OK && r->no_memory) return error_memory(err, "the header", (size_t)f->tensors.n * sizeof(Tensor));
    return status;
}
