/* gguf_write.h - writes GGUF v3 files, streamed: keys and tensors are declared, then the tensors' bytes follow. */
#ifndef CLOVER_GGUF_WRITE_H
#define CLOVER_GGUF_WRITE_H

#include "../ref/files/gguf.h"

typedef struct GgufWriter GgufWriter;

/* new; keys and tensors; begin; write all bytes of all tensors in the order of adding, in pieces of any size (padding is
 * the writer's business); finish. Free in any case: what is not finished leaves no file. Running out of memory and a key
 * or tensor given twice are reported by begin. */
GgufWriter *gguf_writer_new(void);                                   /* NULL: out of memory */
void gguf_writer_free(GgufWriter *w);

void gguf_put_u32(GgufWriter *w, const char *key, uint32_t v);
void gguf_put_f32(GgufWriter *w, const char *key, float v);
void gguf_put_bool(GgufWriter *w, const char *key, bool v);
void gguf_put_string(GgufWriter *w, const char *key, const char *v);
void gguf_put_i32s(GgufWriter *w, const char *key, const int32_t *v, int64_t n);
/* A value of any type as its bytes, as GgufKey holds it: copies another file's key. */
void gguf_put_raw(GgufWriter *w, const char *key, GgufType type, GgufType element, uint64_t count, const void *data,
    uint64_t bytes);
/* An array of strings, one at a time: start, then count times add. */
void gguf_put_strings(GgufWriter *w, const char *key, uint64_t count);
void gguf_add_string(GgufWriter *w, const char *bytes, size_t length);

/* shape: slowest first, as in HF ([rows, columns]); the file has it reversed. */
void gguf_add_tensor(GgufWriter *w, const char *name, DType type, int dims, const int64_t *shape);

/* path: the file; with split_bytes > 0 the parts are NAME-00001-of-000NN.gguf (path's .gguf, if any, removed), each with
 * at most so many bytes of tensors, at least one tensor. alignment: 0 for 32; else general.alignment is written. Checks
 * free space first. */
CloverStatus gguf_writer_begin(GgufWriter *w, const char *path, uint64_t alignment, uint64_t split_bytes, bool force,
    CloverError *err);
CloverStatus gguf_writer_write(GgufWriter *w, const void *bytes, size_t n, CloverError *err);
CloverStatus gguf_writer_finish(GgufWriter *w, CloverError *err);
uint64_t gguf_writer_bytes(const GgufWriter *w);                     /* of all tensors declared so far, padding included */

#endif
