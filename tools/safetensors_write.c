/* safetensors_write.c - safetensors files, streamed. [SFT] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "parts.h"
#include "safetensors_write.h"

struct SafetensorsWriter {
    Parts parts;
    Buffer metadata;          /* "key":"value","key":"value" */
    char *index;             /* the path of a sharded folder's index, else NULL */
    bool force;
};

SafetensorsWriter *safetensors_writer_new(void) { return calloc(1, sizeof(SafetensorsWriter)); }

void safetensors_writer_free(SafetensorsWriter *w) {
    if (!w) return;
    parts_free(&w->parts);
    buffer_free(&w->metadata);
    free(w->index);
    free(w);
}

void safetensors_writer_metadata(SafetensorsWriter *w, const char *key, const char *value) {
    if (w->metadata.n) buffer_text(&w->metadata, ",");
    buffer_json(&w->metadata, key);
    buffer_text(&w->metadata, ":");
    buffer_json(&w->metadata, value);
}

void safetensors_writer_add(SafetensorsWriter *w, const char *name, DType type, int dims, const int64_t *shape) {
    parts_add(&w->parts, name, type, dims, shape);
}

uint64_t safetensors_writer_bytes(const SafetensorsWriter *w) { return parts_bytes(&w->parts, 1); }

static const char *type_name(DType type) {
    switch (type) {
    case DT_F64: return "F64";
    case DT_F32: return "F32";
    case DT_F16: return "F16";
    case DT_BF16: return "BF16";
    case DT_I64: return "I64";
    case DT_I32: return "I32";
    case DT_I16: return "I16";
    case DT_I8: return "I8";
    case DT_U64: return "U64";
    case DT_U32: return "U32";
    case DT_U16: return "U16";
    case DT_U8: return "U8";
    case DT_BOOL: return "BOOL";
    default: return NULL;
    }
}

static void put_tensor(Buffer *json, const PlannedTensor *t) {
    char text[96];
    buffer_json(json, t->name);
    snprintf(text, sizeof text, ":{\"dtype\":\"%s\",\"shape\":[", type_name(t->type));
    buffer_text(json, text);
    for (int i = 0; i < t->dims; i++) {
        snprintf(text, sizeof text, "%s%lld", i ? "," : "", (long long)t->shape[i]);
        buffer_text(json, text);
    }
    snprintf(text, sizeof text, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)t->offset,
        (unsigned long long)(t->offset + t->bytes));
    buffer_text(json, text);
}

static CloverStatus write_header(void *self, int64_t part, Output *file, CloverError *err) {
    SafetensorsWriter *w = self;
    Buffer json = { 0 };
    buffer_text(&json, "{");
    if (w->metadata.n) {
        buffer_text(&json, "\"__metadata__\":{");
        buffer_add(&json, w->metadata.data, w->metadata.n);
        buffer_text(&json, "}");
    }
    int64_t first, n = parts_tensors_of(&w->parts, part, &first);
    for (int64_t i = 0; i < n; i++) {
        if (json.n > 1) buffer_text(&json, ",");
        put_tensor(&json, &w->parts.tensor[first + i]);
    }
    buffer_text(&json, "}");
    while (json.n % 8 != 0 && !json.no_memory) buffer_text(&json, " ");      /* so that the data starts at a multiple of 8 */
    uint64_t length = json.n;
    CloverStatus status = json.no_memory ? error_memory(err, "the header", json.n)
        : output_write(file, &length, sizeof length, err);
    if (status == CLOVER_OK) status = output_write(file, json.data, json.n, err);
    buffer_free(&json);
    return status;
}

static CloverStatus check_types(const Parts *p, CloverError *err) {
    error_clear(err);
    for (int64_t i = 0; i < p->n; i++)
        if (!type_name(p->tensor[i].type))
            error_add(err, CLOVER_BUG, "tensor %s: safetensors has no type %d", p->tensor[i].name, (int)p->tensor[i].type);
    return err->status;
}

CloverStatus safetensors_writer_begin(SafetensorsWriter *w, const char *path, uint64_t shard_bytes, bool force, CloverError *err) {
    Parts *p = &w->parts;
    w->force = force;
    if (check_types(p, err) != CLOVER_OK || parts_plan(p, 1, shard_bytes, err) != CLOVER_OK) return err->status;
    if (w->metadata.no_memory) return error_memory(err, "the metadata", w->metadata.n);
    char **paths = calloc((size_t)p->n_parts, sizeof *paths);
    if (!paths) return error_memory(err, "the list of files", (size_t)p->n_parts * sizeof *paths);
    bool named = true;
    for (int64_t i = 0; i < p->n_parts && named; i++) {
        paths[i] = shard_bytes ? text_format(err, "%s/model-%05lld-of-%05lld.safetensors", path, (long long)i + 1,
            (long long)p->n_parts)
                               : text_format(err, "%s", path);
        named = paths[i] != NULL;
    }
    if (shard_bytes) named = named && (w->index = text_format(err, "%s/model.safetensors.index.json", path)) != NULL;
    p->path = paths;
    if (!named) return err->status;
    return parts_begin(p, paths, force, write_header, w, err);
}

CloverStatus safetensors_writer_write(SafetensorsWriter *w, const void *bytes, size_t n, CloverError *err) {
    return parts_write(&w->parts, bytes, n, err);
}

/* The index, whole but not yet in place. */
static CloverStatus write_index(const SafetensorsWriter *w, Output *file, CloverError *err) {
    const Parts *p = &w->parts;
    Buffer json = { 0 };
    char text[96];
    snprintf(text, sizeof text, "{\n \"metadata\": {\n  \"total_size\": %llu\n },\n \"weight_map\": {",
        (unsigned long long)parts_bytes(p, 1));
    buffer_text(&json, text);
    for (int64_t i = 0; i < p->n; i++) {
        buffer_text(&json, i ? ",\n  " : "\n  ");
        buffer_json(&json, p->tensor[i].name);
        buffer_text(&json, ": ");
        buffer_json(&json, strrchr(p->path[p->tensor[i].part], '/') + 1);
    }
    buffer_text(&json, "\n }\n}\n");
    CloverStatus status = json.no_memory ? error_memory(err, "the index", json.n) : output_open(file, w->index, w->force, err);
    if (status == CLOVER_OK) status = output_write(file, json.data, json.n, err);
    if (status == CLOVER_OK) status = output_close(file, err);
    buffer_free(&json);
    return status;
}

CloverStatus safetensors_writer_finish(SafetensorsWriter *w, CloverError *err) {
    Output index = { .fd = -1 };
    CloverStatus status = w->index ? write_index(w, &index, err) : CLOVER_OK;
    if (status == CLOVER_OK) status = parts_finish(&w->parts, err);
    if (status == CLOVER_OK && w->index) status = output_commit(&index, err);
    output_discard(&index);
    return status;
}

CloverStatus safetensors_save(const char *path, const NamedArray *arrays, int64_t n, const char *const *metadata,
    CloverError *err) {
    SafetensorsWriter *w = safetensors_writer_new();
    if (!w) return error_memory(err, path, sizeof *w);
    for (int64_t i = 0; metadata && metadata[i]; i += 2) safetensors_writer_metadata(w, metadata[i], metadata[i + 1]);
    for (int64_t i = 0; i < n; i++) safetensors_writer_add(w, arrays[i].name, arrays[i].type, arrays[i].dims, arrays[i].shape);
    CloverStatus status = safetensors_writer_begin(w, path, 0, true, err);
    for (int64_t i = 0; i < n && status == CLOVER_OK; i++)
        status = safetensors_writer_write(w, arrays[i].data, (size_t)w->parts.tensor[i].bytes, err);
    if (status == CLOVER_OK) status = safetensors_writer_finish(w, err);
    safetensors_writer_free(w);
    return status;
}
