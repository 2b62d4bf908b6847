/* safetensors_write.h - writes safetensors files, streamed: all tensors are declared, then their bytes follow. */
#ifndef CLOVER_SAFETENSORS_WRITE_H
#define CLOVER_SAFETENSORS_WRITE_H

#include "../ref/clover.h"
#include "../ref/files/dtype.h"

typedef struct SafetensorsWriter SafetensorsWriter;

/* new; add and metadata as often as needed; begin; write all bytes of all tensors in the order of adding, in pieces of
 * any size; finish. Free in any case: what is not finished leaves no file. Running out of memory is reported by begin. */
SafetensorsWriter *safetensors_writer_new(void);                     /* NULL: out of memory */
void safetensors_writer_free(SafetensorsWriter *w);
void safetensors_writer_metadata(SafetensorsWriter *w, const char *key, const char *value);
/* shape: slowest first. Types that safetensors has no name for are an error of begin. */
void safetensors_writer_add(SafetensorsWriter *w, const char *name, DType type, int dims, const int64_t *shape);
/* path: the file; or, with shard_bytes > 0, a folder: model-00001-of-000NN.safetensors and model.safetensors.index.json,
 * each shard holding at most so many bytes of tensors, at least one tensor. Checks free space first. */
CloverStatus safetensors_writer_begin(SafetensorsWriter *w, const char *path, uint64_t shard_bytes, bool force, CloverError *err);
CloverStatus safetensors_writer_write(SafetensorsWriter *w, const void *bytes, size_t n, CloverError *err);
CloverStatus safetensors_writer_finish(SafetensorsWriter *w, CloverError *err);
uint64_t safetensors_writer_bytes(const SafetensorsWriter *w);       /* of all tensors declared so far */

/* Arrays that are in memory, as one file; replaces an existing one. metadata: key, value, key, value, ..., NULL; or NULL. */
typedef struct NamedArray {
    const char *name;
    DType type;
    int dims;
    int64_t shape[8];        /* slowest first */
    const void *data;        /* little-endian, as the machine has it */
} NamedArray;
CloverStatus safetensors_save(const char *path, const NamedArray *arrays, int64_t n, const char *const *metadata, CloverError *err);

#endif
