/* safetensors_build.h - puts safetensors files together byte by byte, proper ones and others. [SFT] */
#ifndef CLOVER_TEST_SAFETENSORS_BUILD_H
#define CLOVER_TEST_SAFETENSORS_BUILD_H

#include "files.h"

/* A file of a header as given and `data` bytes 0, 1, 2, ... */
static inline Bytes safetensors_file(const char *header, size_t data) {
    Bytes file = { 0 };
    put_u64(&file, strlen(header));
    put_text(&file, header);
    for (size_t i = 0; i < data; i++) put_number(&file, i & 255, 1);
    return file;
}

typedef struct SafetensorsBuild { Bytes header, data; } SafetensorsBuild;   /* starts as { 0 } */

/* dtype as the file names it; shape: slowest first. The name must need no escaping in JSON. */
static inline void build_safetensor(SafetensorsBuild *b, const char *name, const char *dtype, int dims, const int64_t *shape,
                                    const void *data, size_t bytes) {
    char text[512];
    int n = snprintf(text, sizeof text, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", b->header.n ? "," : "", name, dtype);
    for (int i = 0; i < dims; i++) n += snprintf(text + n, sizeof text - (size_t)n, "%s%lld", i ? "," : "", (long long)shape[i]);
    snprintf(text + n, sizeof text - (size_t)n, "],\"data_offsets\":[%zu,%zu]}", b->data.n, b->data.n + bytes);
    put_text(&b->header, text);
    put_bytes(&b->data, data, bytes);
}

/* The whole file; frees what b holds. */
static inline Bytes build_safetensors(SafetensorsBuild *b) {
    Bytes file = { 0 };
    put_u64(&file, b->header.n + 2);
    put_text(&file, "{");
    put_bytes(&file, b->header.data, b->header.n);
    put_text(&file, "}");
    put_bytes(&file, b->data.data, b->data.n);
    free_bytes(&b->header);
    free_bytes(&b->data);
    return file;
}

#endif
