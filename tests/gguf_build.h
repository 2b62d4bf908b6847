/* gguf_build.h - puts GGUF files together byte by byte, proper ones and others. [GGUF] */
#ifndef CLOVER_TEST_GGUF_BUILD_H
#define CLOVER_TEST_GGUF_BUILD_H

#include "files.h"
#include "../ref/files/gguf.h"

typedef struct GgufBuild {
    uint8_t magic[4];
    uint32_t version;
    uint64_t n_keys, n_tensors;      /* as the header will say */
    uint64_t alignment;              /* what tensors are placed by; the key is the caller's to add */
    Bytes keys, tensors, data;
} GgufBuild;

static inline GgufBuild gguf_build(void) {
    return (GgufBuild){ .magic = { 'G', 'G', 'U', 'F' }, .version = 3, .alignment = 32 };
}

static inline void gguf_build_free(GgufBuild *b) {
    free_bytes(&b->keys);
    free_bytes(&b->tensors);
    free_bytes(&b->data);
}

static inline void put_string(Bytes *b, const char *text, size_t length) {
    put_u64(b, length);
    put_bytes(b, text, length);
}

/* A key's name and type; its value must be put into b->keys next. */
static inline void build_key(GgufBuild *b, const char *name, uint32_t type) {
    put_string(&b->keys, name, strlen(name));
    put_u32(&b->keys, type);
    b->n_keys++;
}

/* An integer or bool of any type, as its bytes. */
static inline void build_number(GgufBuild *b, const char *name, GgufType type, uint64_t value, size_t bytes) {
    build_key(b, name, type);
    put_number(&b->keys, value, bytes);
}

static inline void build_u32(GgufBuild *b, const char *name, uint32_t value) { build_number(b, name, GGUF_U32, value, 4); }
static inline void build_bool(GgufBuild *b, const char *name, bool value) { build_number(b, name, GGUF_BOOL, value, 1); }

static inline void build_f32(GgufBuild *b, const char *name, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    build_number(b, name, GGUF_F32, bits, 4);
}

static inline void build_f64(GgufBuild *b, const char *name, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    build_number(b, name, GGUF_F64, bits, 8);
}

static inline void build_string(GgufBuild *b, const char *name, const char *text) {
    build_key(b, name, GGUF_STRING);
    put_string(&b->keys, text, strlen(text));
}

/* An array's head; its elements must be put into b->keys next. */
static inline void build_array(GgufBuild *b, const char *name, uint32_t element, uint64_t count) {
    build_key(b, name, GGUF_ARRAY);
    put_u32(&b->keys, element);
    put_u64(&b->keys, count);
}

static inline void build_strings(GgufBuild *b, const char *name, const char *const *texts, uint64_t count) {
    build_array(b, name, GGUF_STRING, count);
    for (uint64_t i = 0; i < count; i++) put_string(&b->keys, texts[i], strlen(texts[i]));
}

/* A tensor entry as given; shape: slowest first. */
static inline void build_entry(GgufBuild *b, const char *name, uint32_t type, uint32_t dims, const uint64_t *shape, uint64_t offset) {
    put_string(&b->tensors, name, strlen(name));
    put_u32(&b->tensors, dims);
    for (uint32_t i = dims; i > 0; i--) put_u64(&b->tensors, shape[i - 1]);
    put_u32(&b->tensors, type);
    put_u64(&b->tensors, offset);
    b->n_tensors++;
}

/* A tensor and its data, placed after the ones before. */
static inline void build_tensor(GgufBuild *b, const char *name, uint32_t type, uint32_t dims, const uint64_t *shape,
                                const void *data, size_t bytes) {
    put_zeros(&b->data, (b->alignment - b->data.n % b->alignment) % b->alignment);
    build_entry(b, name, type, dims, shape, b->data.n);
    put_bytes(&b->data, data, bytes);
}

/* The whole file; frees what b holds. */
static inline Bytes build_file(GgufBuild *b) {
    Bytes file = { 0 };
    put_bytes(&file, b->magic, 4);
    put_u32(&file, b->version);
    put_u64(&file, b->n_tensors);
    put_u64(&file, b->n_keys);
    put_bytes(&file, b->keys.data, b->keys.n);
    put_bytes(&file, b->tensors.data, b->tensors.n);
    put_zeros(&file, (b->alignment - file.n % b->alignment) % b->alignment);
    put_bytes(&file, b->data.data, b->data.n);
    gguf_build_free(b);
    return file;
}

#endif
