/* gguf.c - reading GGUF v3. [GGUF-1] [GGUF-4]
 *
 * A file is magic, version, counts, keys, tensor descriptions, padding, data. Everything before the data is walked once
 * when the file is opened, each length checked against what is left of the file before it is used; the data itself is
 * not touched, so that a file of 20 GB opens in milliseconds. What does not disturb the walk (a duplicate name, an odd
 * shape) is noted and the walk goes on; what does (a length beyond the end, an unknown type of value) ends it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../error.h"
#include "gguf.h"
#include "map.h"
#include "names.h"
#include "utf8.h"

enum { GGUF_VERSION = 3, GGUF_MAX_DIMS = 4, GGUF_DEFAULT_ALIGNMENT = 32, GGUF_MAX_NAME = 65535 };
enum { KEY_MIN_BYTES = 8 + 4 + 1, TENSOR_MIN_BYTES = 8 + 4 + 4 + 8 };   /* without a name; the least a count can stand for */
static const char extension[] = ".gguf";

typedef struct Part {
    Map map;
    GgufKey *key;                    /* [n_keys] in the file's order */
    int64_t n_keys, key_room;
    Names key_names;
    uint64_t alignment;
} Part;

struct Gguf {
    Part *part;                      /* [parts] */
    int64_t parts;
    TensorList tensors;
    int64_t tensor_room;
    Names tensor_names;
};

/* ---- a cursor that cannot leave the file --------------------------------------------------------------------------- */

typedef struct Reader {
    const Map *map;
    uint64_t at;
    char what[NAME_SHOWN + 64];      /* being read now, for messages */
    CloverError *err;
} Reader;

static uint64_t left(const Reader *r) { return r->map->bytes - r->at; }

/* The next n bytes; NULL, with a problem noted, when the file ends before. */
static const uint8_t *take(Reader *r, uint64_t n) {
    if (n > left(r)) {
        error_add(r->err, CLOVER_BAD_INPUT,
                  "%s: %s at byte %llu needs %llu bytes, but the file ends after %llu more" FILE_CUT_SHORT, r->map->path,
                  r->what, (unsigned long long)r->at, (unsigned long long)n, (unsigned long long)left(r));
        return NULL;
    }
    const uint8_t *p = r->map->data + r->at;
    r->at += n;
    return p;
}

static bool take_u32(Reader *r, uint32_t *out) {
    const uint8_t *p = take(r, 4);
    if (p) *out = le32(p);
    return p != NULL;
}

static bool take_u64(Reader *r, uint64_t *out) {
    const uint8_t *p = take(r, 8);
    if (p) *out = le64(p);
    return p != NULL;
}

static bool take_string(Reader *r, GgufString *out) {
    return take_u64(r, &out->length) && (out->bytes = (const char *)take(r, out->length)) != NULL;
}

/* A key's or tensor's name, copied and terminated. *out is NULL (a problem noted) when it is no proper name: the walk can
 * go on. False when it cannot. */
static bool take_name(Reader *r, const char *kind, int64_t number, char **out, char shown[NAME_SHOWN]) {
    *out = NULL;
    snprintf(r->what, sizeof r->what, "the name of %s %lld", kind, (long long)number + 1);
    GgufString s;
    if (!take_string(r, &s)) return false;
    name_show(s.bytes, s.length, shown);
    snprintf(r->what, sizeof r->what, "%s %s", kind, shown);

    const char *wrong = s.length == 0                                         ? "empty"
                        : s.length > GGUF_MAX_NAME                            ? "longer than 65535 bytes"
                        : memchr(s.bytes, 0, s.length)                        ? "not a plain text: it contains a NUL byte"
                        : utf8_first_invalid(s.bytes, s.length) != s.length   ? "not valid UTF-8"
                                                                              : NULL;
    if (wrong) {
        error_add(r->err, CLOVER_BAD_INPUT, "%s: the name of %s %lld, %s, is %s" FILE_WRONG,
                  r->map->path, kind, (long long)number + 1, shown, wrong);
        return true;
    }
    *out = malloc(s.length + 1);
    if (!*out) {
        error_memory(r->err, "a name", s.length + 1);
        return false;
    }
    memcpy(*out, s.bytes, s.length);
    (*out)[s.length] = '\0';
    return true;
}

/* ---- keys [GGUF-2] ------------------------------------------------------------------------------------------------- */

/* Bytes of one value, 0 where it varies. */
static uint64_t type_bytes(GgufType type) {
    static const uint8_t bytes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    return bytes[type];
}

const char *gguf_type_name(GgufType type) {
    static const char *const names[] = { "u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64" };
    return (unsigned)type < sizeof names / sizeof names[0] ? names[type] : "unknown";
}

static bool take_type(Reader *r, GgufType *out) {
    uint32_t type;
    if (!take_u32(r, &type)) return false;
    if (type > GGUF_F64) {
        error_add(r->err, CLOVER_BAD_INPUT,
                  "%s: %s has value type %u, expected 0 to %d; nothing after byte %llu can be read: the file is damaged",
                  r->map->path, r->what, type, (int)GGUF_F64, (unsigned long long)r->at - 4);
        return false;
    }
    *out = (GgufType)type;
    return true;
}

static void check_bools(Reader *r, const GgufKey *key) {
    for (uint64_t i = 0; i < key->count; i++) {
        if (key->data[i] <= 1) continue;
        error_add(r->err, CLOVER_BAD_INPUT, "%s: %s has the bool %u at element %llu, expected 0 or 1" FILE_WRONG,
                  r->map->path, r->what, key->data[i], (unsigned long long)i);
        return;
    }
}

/* Walks the value, of which type (and an array's element type and count) are known. */
static bool take_elements(Reader *r, GgufKey *key, GgufType element) {
    uint64_t start = r->at;
    key->data = r->map->data + start;
    if (element == GGUF_STRING) {
        if (key->count > left(r) / 8)
            return take(r, key->count > UINT64_MAX / 8 ? UINT64_MAX : key->count * 8) != NULL; /* always too much */
        GgufString s = { 0 };
        for (uint64_t i = 0; i < key->count; i++)
            if (!take_string(r, &s)) return false;
        size_t bad = key->type == GGUF_STRING ? utf8_first_invalid(s.bytes, s.length) : s.length;
        if (bad != s.length)
            error_add(r->err, CLOVER_BAD_INPUT, "%s: the text of %s is not valid UTF-8 from its byte %zu on" FILE_WRONG,
                      r->map->path, r->what, bad);
    } else {
        uint64_t size = type_bytes(element);
        if (!take(r, key->count > UINT64_MAX / size ? UINT64_MAX : key->count * size)) return false;
        if (element == GGUF_BOOL) check_bools(r, key);
    }
    key->bytes = r->at - start;
    return true;
}

static bool take_value(Reader *r, GgufKey *key) {
    if (!take_type(r, &key->type)) return false;
    key->element = key->type;
    key->count = 1;
    if (key->type == GGUF_ARRAY) {
        if (!take_type(r, &key->element) || !take_u64(r, &key->count)) return false;
        if (key->element == GGUF_ARRAY) {
            error_add(r->err, CLOVER_UNSUPPORTED,
                      "%s: %s is an array of arrays, which is not supported; write the model without this key", r->map->path,
                      r->what);
            return false;
        }
    }
    return take_elements(r, key, key->element);
}

static bool append_key(Part *part, const GgufKey *key, CloverError *err) {
    if (part->n_keys == part->key_room) {
        int64_t more = part->key_room ? 2 * part->key_room : 64;
        GgufKey *larger = realloc(part->key, (size_t)more * sizeof *larger);
        if (!larger) {
            error_memory(err, "the list of keys", (size_t)more * sizeof *larger);
            return false;
        }
        part->key = larger;
        part->key_room = more;
    }
    part->key[part->n_keys++] = *key;
    return true;
}

static bool read_key(Reader *r, Part *part, int64_t number) {
    GgufKey key = { 0 };
    char *name, shown[NAME_SHOWN];
    if (!take_name(r, "key", number, &name, shown)) return false;
    key.name = name;
    if (!take_value(r, &key)) {
        free(name);
        return false;
    }
    if (name && names_find(&part->key_names, name) >= 0) {
        error_add(r->err, CLOVER_BAD_INPUT, "%s: key %s occurs twice, expected once; remove one of them", r->map->path, shown);
        free(name);
        return true;
    }
    if (!name) return true;
    if (!append_key(part, &key, r->err)) {
        free(name);
        return false;
    }
    if (names_add(&part->key_names, name, part->n_keys - 1)) return true;
    error_memory(r->err, "the index of keys", 32 * (size_t)part->n_keys);
    return false;
}

static const GgufKey *part_key(const Part *part, const char *name) {
    int64_t i = names_find(&part->key_names, name);
    return i < 0 ? NULL : &part->key[i];
}

/* False when tensor offsets mean nothing. */
static bool read_alignment(Part *part, CloverError *err) {
    part->alignment = GGUF_DEFAULT_ALIGNMENT;
    const GgufKey *key = part_key(part, "general.alignment");
    if (!key) return true;
    int64_t value;
    if (key->type != GGUF_U32 || !gguf_int(key, 0, &value)) {
        error_add(err, CLOVER_BAD_INPUT, "%s: key general.alignment has type %s, expected u32", part->map.path,
                  gguf_type_name(key->type));
        return false;
    }
    if (value < 8 || (value & (value - 1)) != 0) {
        error_add(err, CLOVER_BAD_INPUT,
                  "%s: key general.alignment is %lld, expected a power of two and at least 8; the usual value is 32",
                  part->map.path, (long long)value);
        return false;
    }
    part->alignment = (uint64_t)value;
    return true;
}

/* ---- tensors [GGUF-3] ---------------------------------------------------------------------------------------------- */

/* Reads dimensions into shape, slowest first. *proper: they make sense. False: the file ends. */
static bool take_shape(Reader *r, Tensor *t, bool *proper) {
    uint32_t dims;
    const uint8_t *p;
    if (!take_u32(r, &dims) || !(p = take(r, 8 * (uint64_t)dims))) return false;
    if (dims < 1 || dims > GGUF_MAX_DIMS) {
        error_add(r->err, CLOVER_BAD_INPUT, "%s: %s has %u dimensions, expected 1 to %d", r->map->path, r->what, dims,
                  GGUF_MAX_DIMS);
        *proper = false;
        return true;
    }
    t->dims = (int)dims;
    for (uint32_t i = 0; i < dims; i++) {
        uint64_t n = le64(p + 8 * i);                            /* fastest first */
        t->shape[dims - 1 - i] = n > INT64_MAX ? -1 : (int64_t)n;
        if (n > 0) continue;
        error_add(r->err, CLOVER_BAD_INPUT, "%s: %s has dimension %u of size 0, expected at least 1", r->map->path, r->what,
                  i + 1);
        *proper = false;
    }
    if (!tensor_count_elements(t)) {
        error_add(r->err, CLOVER_BAD_INPUT, "%s: %s has more than 2^63 elements by its shape; the file is damaged",
                  r->map->path, r->what);
        *proper = false;
    }
    return true;
}

/* Fills bytes from type and shape; 0 for a type whose block size nobody knows. */
static bool size_tensor(Reader *r, Tensor *t) {
    const DTypeInfo *info = dtype_info(t->type);
    if (!info) return true;
    int64_t row = t->shape[t->dims - 1], bytes = dtype_bytes(t->type, t->elements);
    if (row % info->block != 0) {
        error_add(r->err, CLOVER_BAD_INPUT,
                  "%s: %s has rows of %lld elements, expected a multiple of %lld, the block of its type %s", r->map->path,
                  r->what, (long long)row, (long long)info->block, info->name);
        return false;
    }
    if (bytes < 0) {
        error_add(r->err, CLOVER_BAD_INPUT, "%s: %s has more than 2^63 bytes by its shape and type; the file is damaged",
                  r->map->path, r->what);
        return false;
    }
    t->bytes = (uint64_t)bytes;
    return true;
}

/* offset is still counted from the data's start. */
static bool read_tensor(Reader *r, Gguf *g, int64_t number) {
    Tensor t = { .file = r->map->path };
    char *name, shown[NAME_SHOWN];
    uint32_t type;
    if (!take_name(r, "tensor", number, &name, shown)) return false;
    bool proper = name != NULL;
    if (!take_shape(r, &t, &proper) || !take_u32(r, &type) || !take_u64(r, &t.offset)) {
        free(name);
        return false;
    }
    t.name = name;
    t.type = type < DT_U8 ? (DType)type : DT_UNKNOWN;            /* from DT_U8 on, ids are safetensors' */
    if (proper) proper = size_tensor(r, &t);
    if (name && names_find(&g->tensor_names, name) >= 0) {
        error_add(r->err, CLOVER_BAD_INPUT, "%s: tensor %s occurs twice, expected once", r->map->path, shown);
        proper = false;
    }
    if (!proper) {
        free(name);
        return true;
    }
    if (!tensor_append(&g->tensors, &g->tensor_room, &t)) {
        free(name);
        error_memory(r->err, "the list of tensors", 2 * (size_t)g->tensors.n * sizeof t);
        return false;
    }
    if (names_add(&g->tensor_names, name, g->tensors.n - 1)) return true;
    error_memory(r->err, "the index of tensors", 32 * (size_t)g->tensors.n);
    return false;
}

/* Offsets become places in the file. False when some tensor lies beyond it; that is one problem, however many do. */
static bool place_tensors(const Map *map, uint64_t start, uint64_t alignment, Tensor *tensor, int64_t n, CloverError *err) {
    uint64_t room = start < map->bytes ? map->bytes - start : 0;
    int64_t beyond = 0;
    char shown[NAME_SHOWN], first[NAME_SHOWN] = "";
    for (int64_t i = 0; i < n; i++) {
        Tensor *t = &tensor[i];
        if (t->offset % alignment != 0)
            error_add(err, CLOVER_BAD_INPUT,
                      "%s: tensor %s has offset %llu, expected a multiple of the alignment %llu" FILE_WRONG, map->path,
                      name_show(t->name, strlen(t->name), shown), (unsigned long long)t->offset, (unsigned long long)alignment);
        uint64_t need = t->bytes ? t->bytes : 1;                 /* a type of unknown size needs something */
        if (t->offset > room || need > room - t->offset) {
            if (beyond++ == 0)
                snprintf(first, sizeof first, "%s", name_show(t->name, strlen(t->name), shown));
            continue;
        }
        t->offset += start;
        t->data = map->data + t->offset;
    }
    if (beyond)
        error_add(
            err, CLOVER_BAD_INPUT,
            "%s: the data of %lld of %lld tensors (the first is %s) lies beyond the file's end at byte %llu" FILE_CUT_SHORT,
            map->path, (long long)beyond, (long long)n, first, (unsigned long long)map->bytes);
    return beyond == 0;
}

/* Bytes that belong to nobody: a tensor whose type or shape was damaged no longer fills its place. */
static void check_hole(const Map *map, uint64_t from, uint64_t to, uint64_t alignment, const char *behind, CloverError *err) {
    if (to >= from && to - from < alignment) return;
    error_add(err, CLOVER_BAD_INPUT, "%s: %llu bytes behind %s (from byte %llu) belong to no tensor, expected fewer than the alignment %llu: its type or shape, or an offset, is wrong" FILE_WRONG,
              map->path, (unsigned long long)(to - from), behind, (unsigned long long)from, (unsigned long long)alignment);
}

/* Finds overlaps and holes, and gives tensors of unknown size the room up to the next one. All of them lie in the file. */
static void check_places(const Map *map, uint64_t start, uint64_t alignment, Tensor *tensor, int64_t n, CloverError *err) {
    Tensor **sorted = tensors_sorted(tensor, n);              /* [n] */
    if (!sorted) {
        error_memory(err, "the order of tensors", (size_t)n * sizeof *sorted);
        return;
    }
    const Tensor *furthest = NULL;                               /* of those before, the one that ends last */
    char a[NAME_SHOWN], b[NAME_SHOWN];
    for (int64_t i = 0; i < n; i++) {
        Tensor *t = sorted[i];
        if (!dtype_info(t->type)) t->bytes = (i + 1 < n ? sorted[i + 1]->offset : map->bytes) - t->offset;
        if (furthest && (t->offset < furthest->offset + furthest->bytes || t->offset == furthest->offset))
            error_add(err, CLOVER_BAD_INPUT, "%s: tensors %s (bytes %llu to %llu) and %s (from byte %llu) overlap" FILE_WRONG,
                      map->path, name_show(furthest->name, strlen(furthest->name), a), (unsigned long long)furthest->offset,
                      (unsigned long long)(furthest->offset + furthest->bytes), name_show(t->name, strlen(t->name), b),
                      (unsigned long long)t->offset);
        else if (err->status == CLOVER_OK) {   /* behind an overlap all places are suspect */
            name_show(furthest ? furthest->name : "", furthest ? strlen(furthest->name) : 0, a);
            check_hole(map, furthest ? furthest->offset + furthest->bytes : start, t->offset, alignment, furthest ? a : "the header", err);
        }
        if (!furthest || t->offset + t->bytes > furthest->offset + furthest->bytes) furthest = t;
    }
    if (furthest && err->status == CLOVER_OK) check_hole(map, furthest->offset + furthest->bytes, map->bytes, alignment, name_show(furthest->name, strlen(furthest->name), a), err);
    free(sorted);
}

/* ---- one file ------------------------------------------------------------------------------------------------------ */

static bool read_magic_and_version(Reader *r) {
    const char *path = r->map->path;
    const uint8_t *magic;
    uint32_t version;
    snprintf(r->what, sizeof r->what, "the header");
    if (!(magic = take(r, 4))) return false;
    if (memcmp(magic, "GGUF", 4) != 0) {
        char shown[NAME_SHOWN];
        error_add(r->err, CLOVER_BAD_INPUT, "%s: is no GGUF file: it starts with %s, expected 'GGUF'%s", path,
                  name_show((const char *)magic, 4, shown), map_advice(r->map));
        return false;
    }
    if (!take_u32(r, &version)) return false;
    if (version == GGUF_VERSION) return true;
    bool swapped = version != 0 && (version & 0xffff) == 0, plausible = version > 0 && version < 65536;
    if (swapped)
        error_add(r->err, CLOVER_UNSUPPORTED, "%s: is a big-endian GGUF file (its version reads as %u), expected little-endian; "
                  "convert it with gguf-py's gguf_convert_endian", path, version);
    else
        error_add(r->err, plausible ? CLOVER_UNSUPPORTED : CLOVER_BAD_INPUT, "%s: is GGUF version %u, expected %d; %s", path,
                  version, GGUF_VERSION,
                  plausible ? "convert the model again with a current converter" : "the file is damaged");
    return false;
}

/* Refused before anything is reserved for them. */
static bool check_count(Reader *r, uint64_t count, uint64_t least, const char *things) {
    if (count <= left(r) / least) return true;
    error_add(r->err, CLOVER_BAD_INPUT,
              "%s: announces %llu %s, which need at least %llu bytes each, but only %llu bytes follow" FILE_CUT_SHORT,
              r->map->path, (unsigned long long)count, things, (unsigned long long)least, (unsigned long long)left(r));
    return false;
}

/* part->map is open. Adds the part's tensors to g's. */
static void read_part(Gguf *g, Part *part, CloverError *err) {
    Reader r = { .map = &part->map, .err = err };
    uint64_t n_tensors, n_keys;
    int64_t first = g->tensors.n;
    if (!read_magic_and_version(&r) || !take_u64(&r, &n_tensors) || !take_u64(&r, &n_keys)) return;
    if (!check_count(&r, n_keys, KEY_MIN_BYTES, "keys") || !check_count(&r, n_tensors, TENSOR_MIN_BYTES, "tensors")) return;
    for (uint64_t i = 0; i < n_keys; i++)
        if (!read_key(&r, part, (int64_t)i)) return;
    bool placed = read_alignment(part, err);
    for (uint64_t i = 0; i < n_tensors; i++)
        if (!read_tensor(&r, g, (int64_t)i)) return;
    if (!placed) return;

    uint64_t start = (r.at + part->alignment - 1) / part->alignment * part->alignment;
    int64_t n = g->tensors.n - first;
    if (n == 0) return;
    Tensor *tensor = &g->tensors.tensor[first];
    if (place_tensors(&part->map, start, part->alignment, tensor, n, err))
        check_places(&part->map, start, part->alignment, tensor, n, err);
}

/* ---- parts [GGUF-5] ------------------------------------------------------------------------------------------------ */

/* A whole number in [0, limit] that a part may have: false when it has none, or (a problem noted) something else. */
static bool split_number(const Part *part, const char *name, int64_t limit, int64_t *out, CloverError *err) {
    const GgufKey *key = part_key(part, name);
    if (!key) return false;
    if (key->type != GGUF_ARRAY && gguf_int(key, 0, out) && *out >= 0 && *out <= limit) return true;
    error_add(err, CLOVER_BAD_INPUT, "%s: key %s is no whole number from 0 to %lld" FILE_WRONG, part->map.path, name,
              (long long)limit);
    return false;
}

/* Do a part's own keys agree with its name? [GGUF-5] */
static void check_split_keys(const Part *part, int64_t number, int64_t parts, CloverError *err) {
    int64_t count, no;
    if (split_number(part, "split.count", 65535, &count, err) && count != parts)
        error_add(err, CLOVER_BAD_INPUT,
                  "%s: key split.count is %lld, but the name says %lld parts; these files do not belong together, get all "
                  "parts from one place",
                  part->map.path, (long long)count, (long long)parts);
    if (split_number(part, "split.no", 65535, &no, err) && no != number)
        error_add(err, CLOVER_BAD_INPUT,
                  "%s: key split.no is %lld, expected %lld by its name; give the parts their right names", part->map.path,
                  (long long)no, (long long)number);
}

/* What a later part says again must be what the first says. (Each has its own number and may have its own alignment.) */
static void check_same_model(const Part *first, const Part *part, CloverError *err) {
    for (int64_t i = 0; i < part->n_keys; i++) {
        const GgufKey *k = &part->key[i], *f = part_key(first, k->name);
        if (!f || strcmp(k->name, "split.no") == 0 || strcmp(k->name, "general.alignment") == 0) continue;
        if (k->type == f->type && k->element == f->element && k->bytes == f->bytes && memcmp(k->data, f->data, k->bytes) == 0)
            continue;
        char shown[NAME_SHOWN];
        error_add(err, CLOVER_BAD_INPUT,
                  "%s: key %s differs from that of %s; these are parts of different models: get all parts from one place",
                  part->map.path, name_show(k->name, strlen(k->name), shown), first->map.path);
    }
}

static void check_parts(const Gguf *g, CloverError *err) {
    for (int64_t i = 0; i < g->parts; i++) {
        check_split_keys(&g->part[i], i, g->parts, err);
        if (i > 0) check_same_model(&g->part[0], &g->part[i], err);
    }
    int64_t tensors;
    if (split_number(&g->part[0], "split.tensors.count", INT64_MAX, &tensors, err) && err->status == CLOVER_OK &&
        tensors != g->tensors.n)
        error_add(err, CLOVER_BAD_INPUT,
                  "%s: key split.tensors.count is %lld, but the %lld parts hold %lld tensors; a part is of another model: "
                  "get all parts from one place",
                  g->part[0].map.path, (long long)tensors, (long long)g->parts, (long long)g->tensors.n);
}

static CloverStatus open_parts(Gguf *g, const char *path, const PartName *name, CloverError *err) {
    if (name->part < 1 || name->part > name->parts)
        return error_set(err, CLOVER_BAD_INPUT,
                         "%s: by its name is part %d of %d, expected 1 to %d; the file is misnamed or of another model", path,
                         name->part, name->parts, name->parts);
    for (int i = 0; i < name->parts; i++) {
        char *part = part_name_make(path, name, i + 1, extension);
        if (!part) return error_memory(err, "a path", strlen(path) + 1);
        if (access(part, F_OK) != 0 && errno == ENOENT)
            error_add(err, CLOVER_BAD_INPUT,
                      "%s: is missing: it is part %d of %d of this model; all parts must lie in one folder", part, i + 1,
                      name->parts);
        else if (map_open(part, &g->part[i].map, err) == CLOVER_OK)
            read_part(g, &g->part[i], err);
        free(part);
        if (err->status == CLOVER_SYSTEM) return CLOVER_SYSTEM;
    }
    if (err->status == CLOVER_OK) check_parts(g, err);
    return err->status;
}

static CloverStatus open_single(Gguf *g, CloverError *err) {
    Part *part = &g->part[0];
    read_part(g, part, err);
    const GgufKey *key = part_key(part, "split.count");
    int64_t count;
    if (key && gguf_int(key, 0, &count) && count > 1)
        error_add(err, CLOVER_BAD_INPUT,
                  "%s: is one of %lld parts by its key split.count, but its name does not end in -00001-of-%05lld%s, so that "
                  "the others "
                  "cannot be found; give all parts their names back",
                  part->map.path, (long long)count, (long long)count, extension);
    return err->status;
}

static Gguf *new_gguf(int64_t parts, CloverError *err) {
    error_clear(err);
    Gguf *g = calloc(1, sizeof *g);
    Part *part = calloc((size_t)parts, sizeof *part);
    if (g && part) {
        *g = (Gguf){ .part = part, .parts = parts };
        return g;
    }
    free(g);
    free(part);
    error_memory(err, "a GGUF file's parts", (size_t)parts * sizeof *part);
    return NULL;
}

/* Hands g over when all is well, else closes it. */
static CloverStatus finish(Gguf *g, Gguf **out, CloverError *err) {
    if (err->status == CLOVER_OK) *out = g;
    else gguf_close(g);
    return err->status;
}

CloverStatus gguf_open(const char *path, Gguf **out, CloverError *err) {
    PartName name;
    bool split = part_name_parse(path, extension, &name) && name.parts > 1;
    Gguf *g = new_gguf(split ? name.parts : 1, err);
    if (!g) return err->status;
    if (split) open_parts(g, path, &name, err);
    else if (map_open(path, &g->part[0].map, err) == CLOVER_OK) open_single(g, err);
    return finish(g, out, err);
}

CloverStatus gguf_open_bytes(const uint8_t *bytes, uint64_t n, const char *label, Gguf **out, CloverError *err) {
    Gguf *g = new_gguf(1, err);
    if (!g) return err->status;
    if (map_bytes(bytes, n, label, &g->part[0].map, err) == CLOVER_OK) open_single(g, err);
    return finish(g, out, err);
}

void gguf_close(Gguf *g) {
    if (!g) return;
    for (int64_t i = 0; i < g->parts; i++) {
        for (int64_t k = 0; k < g->part[i].n_keys; k++) free((void *)(uintptr_t)g->part[i].key[k].name);
        free(g->part[i].key);
        names_free(&g->part[i].key_names);
        map_close(&g->part[i].map);
    }
    for (int64_t i = 0; i < g->tensors.n; i++) free((void *)(uintptr_t)g->tensors.tensor[i].name);
    free(g->tensors.tensor);
    names_free(&g->tensor_names);
    free(g->part);
    free(g);
}

/* ---- looking things up --------------------------------------------------------------------------------------------- */

const char *gguf_path(const Gguf *g) { return g->part[0].map.path; }
uint64_t gguf_alignment(const Gguf *g) { return g->part[0].alignment; }
int64_t gguf_parts(const Gguf *g) { return g->parts; }
int64_t gguf_n_keys(const Gguf *g) { return g->part[0].n_keys; }
const GgufKey *gguf_key_at(const Gguf *g, int64_t i) { return &g->part[0].key[i]; }
const GgufKey *gguf_key(const Gguf *g, const char *name) { return part_key(&g->part[0], name); }
TensorList gguf_tensors(const Gguf *g) { return g->tensors; }

const Tensor *gguf_tensor(const Gguf *g, const char *name) {
    int64_t i = names_find(&g->tensor_names, name);
    return i < 0 ? NULL : &g->tensors.tensor[i];
}

uint64_t gguf_file_bytes(const Gguf *g) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < g->parts; i++) sum += g->part[i].map.bytes;
    return sum;
}

/* [GGUF-6] */
bool gguf_int(const GgufKey *k, uint64_t i, int64_t *out) {
    if (i >= k->count) return false;
    const uint8_t *p = k->data + i * type_bytes(k->element);
    switch (k->element) {
    case GGUF_U8:  *out = *p; return true;
    case GGUF_I8:  *out = (int8_t)*p; return true;
    case GGUF_U16: *out = le16(p); return true;
    case GGUF_I16: *out = (int16_t)le16(p); return true;
    case GGUF_U32: *out = le32(p); return true;
    case GGUF_I32: *out = (int32_t)le32(p); return true;
    case GGUF_I64: *out = (int64_t)le64(p); return true;
    case GGUF_U64: *out = (int64_t)le64(p); return *out >= 0;
    default: return false;
    }
}

bool gguf_real(const GgufKey *k, uint64_t i, double *out) {
    if (i >= k->count) return false;
    const uint8_t *p = k->data + i * type_bytes(k->element);
    if (k->element == GGUF_F32) {
        uint32_t bits = le32(p);
        float value;
        memcpy(&value, &bits, sizeof value);
        *out = (double)value;
        return true;
    }
    if (k->element == GGUF_F64) {
        uint64_t bits = le64(p);
        memcpy(out, &bits, sizeof *out);
        return true;
    }
    if (k->element == GGUF_U64) {
        *out = (double)le64(p);
        return true;
    }
    int64_t whole;
    if (!gguf_int(k, i, &whole)) return false;
    *out = (double)whole;
    return true;
}

bool gguf_bool(const GgufKey *k, uint64_t i, bool *out) {
    if (k->element != GGUF_BOOL || i >= k->count) return false;
    *out = k->data[i] != 0;
    return true;
}

bool gguf_string(const GgufKey *k, GgufString *out) {
    if (k->type != GGUF_STRING) return false;
    *out = (GgufString){ (const char *)k->data + 8, le64(k->data) };
    return true;
}

bool gguf_next_string(const GgufKey *k, const uint8_t **cursor, GgufString *out) {
    if (k->type != GGUF_ARRAY || k->element != GGUF_STRING) return false;
    if (!*cursor) *cursor = k->data;
    if (*cursor == k->data + k->bytes) return false;
    *out = (GgufString){ (const char *)*cursor + 8, le64(*cursor) };
    *cursor += 8 + out->length;
    return true;
}

int64_t gguf_find_string(const GgufKey *k, const char *text) {
    const uint8_t *cursor = NULL;
    GgufString s;
    for (int64_t i = 0; k && gguf_next_string(k, &cursor, &s); i++)
        if (s.length == strlen(text) && memcmp(s.bytes, text, s.length) == 0) return i;
    return -1;
}
