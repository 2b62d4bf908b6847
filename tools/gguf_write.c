/* gguf_write.c - GGUF v3 files, streamed. [GGUF] */
#include <stdlib.h>
#include <string.h>
#include "gguf_write.h"
#include "parts.h"

struct GgufWriter {
    Parts parts;
    Buffer keys;              /* all key-value pairs as they stand in the first part */
    uint64_t n_keys;
    Buffer names;             /* the keys' names, NUL after each, to find doubles */
    const char *twice;       /* a key given twice */
    uint64_t strings_due;    /* of an array of strings begun */
};

enum { DEFAULT_ALIGNMENT = 32 };
static const uint32_t version = 3;

GgufWriter *gguf_writer_new(void) { return calloc(1, sizeof(GgufWriter)); }

void gguf_writer_free(GgufWriter *w) {
    if (!w) return;
    parts_free(&w->parts);
    buffer_free(&w->keys);
    buffer_free(&w->names);
    free(w);
}

static void put_u32(Buffer *b, uint32_t v) { buffer_add(b, &v, sizeof v); }
static void put_u64(Buffer *b, uint64_t v) { buffer_add(b, &v, sizeof v); }

static void put_string(Buffer *b, const char *bytes, size_t length) {
    put_u64(b, length);
    buffer_add(b, bytes, length);
}

static void put_key(Buffer *b, const char *key, GgufType type) {
    put_string(b, key, strlen(key));
    put_u32(b, (uint32_t)type);
}

static void start_key(GgufWriter *w, const char *key, GgufType type) {
    for (size_t at = 0; at < w->names.n; at += strlen((char *)w->names.data + at) + 1)
        if (strcmp((char *)w->names.data + at, key) == 0 && !w->twice) w->twice = key;
    buffer_add(&w->names, key, strlen(key) + 1);
    put_key(&w->keys, key, type);
    w->n_keys++;
}

void gguf_put_u32(GgufWriter *w, const char *key, uint32_t v) { gguf_put_raw(w, key, GGUF_U32, GGUF_U32, 1, &v, sizeof v); }
void gguf_put_f32(GgufWriter *w, const char *key, float v) { gguf_put_raw(w, key, GGUF_F32, GGUF_F32, 1, &v, sizeof v); }

void gguf_put_bool(GgufWriter *w, const char *key, bool v) {
    uint8_t byte = v;
    gguf_put_raw(w, key, GGUF_BOOL, GGUF_BOOL, 1, &byte, 1);
}

void gguf_put_string(GgufWriter *w, const char *key, const char *v) {
    start_key(w, key, GGUF_STRING);
    put_string(&w->keys, v, strlen(v));
}

void gguf_put_i32s(GgufWriter *w, const char *key, const int32_t *v, int64_t n) {
    gguf_put_raw(w, key, GGUF_ARRAY, GGUF_I32, (uint64_t)n, v, (uint64_t)n * sizeof *v);
}

void gguf_put_raw(GgufWriter *w, const char *key, GgufType type, GgufType element, uint64_t count, const void *data,
    uint64_t bytes) {
    start_key(w, key, type);
    if (type == GGUF_ARRAY) {
        put_u32(&w->keys, (uint32_t)element);
        put_u64(&w->keys, count);
    }
    buffer_add(&w->keys, data, (size_t)bytes);
}

void gguf_put_strings(GgufWriter *w, const char *key, uint64_t count) {
    gguf_put_raw(w, key, GGUF_ARRAY, GGUF_STRING, count, NULL, 0);
    w->strings_due = count;
}

void gguf_add_string(GgufWriter *w, const char *bytes, size_t length) {
    put_string(&w->keys, bytes, length);
    w->strings_due--;
}

void gguf_add_tensor(GgufWriter *w, const char *name, DType type, int dims,
    const int64_t *shape) { parts_add(&w->parts, name, type, dims, shape); }

uint64_t gguf_writer_bytes(const GgufWriter *w) { return parts_bytes(&w->parts, DEFAULT_ALIGNMENT); }

/* The keys that every part of a split file has; the first has them beside its own. */
static void put_split_keys(Buffer *b, const Parts *p, int64_t part) {
    uint16_t no = (uint16_t)part, count = (uint16_t)p->n_parts;
    int32_t tensors = (int32_t)p->n;
    put_key(b, "split.no", GGUF_U16);
    buffer_add(b, &no, sizeof no);
    put_key(b, "split.count", GGUF_U16);
    buffer_add(b, &count, sizeof count);
    put_key(b, "split.tensors.count", GGUF_I32);
    buffer_add(b, &tensors, sizeof tensors);
}

static void put_tensor(Buffer *b, const PlannedTensor *t) {
    put_string(b, t->name, strlen(t->name));
    put_u32(b, (uint32_t)t->dims);
    for (int i = t->dims - 1; i >= 0; i--) put_u64(b, (uint64_t)t->shape[i]);        /* fastest first */
    put_u32(b, (uint32_t)t->type);
    put_u64(b, t->offset);
}

static CloverStatus write_header(void *self, int64_t part, Output *file, CloverError *err) {
    GgufWriter *w = self;
    const Parts *p = &w->parts;
    bool split = p->n_parts > 1, aligned = p->alignment != DEFAULT_ALIGNMENT;
    int64_t first, n = parts_tensors_of(p, part, &first);
    Buffer b = { 0 };
    buffer_text(&b, "GGUF");
    put_u32(&b, version);
    put_u64(&b, (uint64_t)n);
    put_u64(&b, (part == 0 ? w->n_keys : 0) + (split ? 3 : 0) + (aligned ? 1 : 0));
    if (part == 0) buffer_add(&b, w->keys.data, w->keys.n);
    if (split) put_split_keys(&b, p, part);
    if (aligned) {
        put_key(&b, "general.alignment", GGUF_U32);
        put_u32(&b, (uint32_t)p->alignment);
    }
    for (int64_t i = 0; i < n; i++) put_tensor(&b, &p->tensor[first + i]);
    CloverStatus status = b.no_memory ? error_memory(err, "the header", b.n) : output_write(file, b.data, b.n, err);
    if (status == CLOVER_OK) status = output_zeros(file, (p->alignment - b.n % p->alignment) % p->alignment, err);
    buffer_free(&b);
    return status;
}

/* path of part i of n: NAME-00001-of-000NN.gguf */
static char *part_path(const char *path, int64_t i, int64_t n, CloverError *err) {
    size_t length = strlen(path);
    if (length > 5 && strcmp(path + length - 5, ".gguf") == 0) length -= 5;
    return text_format(err, "%.*s-%05lld-of-%05lld.gguf", (int)length, path, (long long)i + 1, (long long)n);
}

CloverStatus gguf_writer_begin(GgufWriter *w, const char *path, uint64_t alignment, uint64_t split_bytes, bool force,
    CloverError *err) {
    Parts *p = &w->parts;
    if (w->keys.no_memory || w->names.no_memory) return error_memory(err, "the keys", w->keys.n);
    if (w->twice) return error_set(err, CLOVER_BUG, "key %s: written twice", w->twice);
    if (w->strings_due != 0) return error_set(err, CLOVER_BUG, "an array of strings is not complete");
    if (parts_plan(p, alignment ? alignment : DEFAULT_ALIGNMENT, split_bytes, err) != CLOVER_OK) return err->status;
    if (p->n_parts > 65535)
        return error_set(err, CLOVER_USAGE, "%lld parts; a split GGUF has at most 65535: make the parts larger",
            (long long)p->n_parts);
    char **paths = calloc((size_t)p->n_parts, sizeof *paths);
    if (!paths) return error_memory(err, "the list of files", (size_t)p->n_parts * sizeof *paths);
    p->path = paths;
    for (int64_t i = 0; i < p->n_parts; i++) {
        paths[i] = split_bytes ? part_path(path, i, p->n_parts, err) : text_format(err, "%s", path);
        if (!paths[i]) return err->status;
    }
    return parts_begin(p, paths, force, write_header, w, err);
}

CloverStatus gguf_writer_write(GgufWriter *w, const void *bytes, size_t n,
    CloverError *err) { return parts_write(&w->parts, bytes, n, err); }

CloverStatus gguf_writer_finish(GgufWriter *w, CloverError *err) { return parts_finish(&w->parts, err); }
