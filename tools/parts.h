/* parts.h - what both streaming writers share: the tensors to come, dealt out over one or several files, and their bytes
 * written in order. Each file is opened when its first byte is due and renamed when all are written. */
#ifndef CLOVER_PARTS_H
#define CLOVER_PARTS_H

#include "../ref/files/tensor.h"
#include "output.h"

typedef struct PlannedTensor {
    char *name;
    DType type;
    int dims;
    int64_t shape[TENSOR_MAX_DIMS];  /* slowest first */
    uint64_t bytes, offset;          /* offset from its file's data start */
    int64_t part;
} PlannedTensor;

/* Writes part's header, up to its data start. */
typedef CloverStatus PartHeader(void *writer, int64_t part, Output *file, CloverError *err);

typedef struct Parts {
    PlannedTensor *tensor;           /* [n] */
    int64_t n, room;
    uint64_t alignment;              /* of each tensor's start */
    char **path;                     /* [n_parts] */
    Output *file;                    /* [n_parts] */
    int64_t n_parts, opened;         /* files opened so far */
    int64_t current;                 /* the tensor whose bytes are due */
    uint64_t left;                   /* of its bytes */
    bool force, no_memory;
    PartHeader *header;
    void *writer;
} Parts;

void parts_add(Parts *p, const char *name, DType type, int dims, const int64_t *shape);
/* Checks names, types and shapes, sets part and offset of each tensor and n_parts. limit: bytes of tensors a part, 0: one part. */
CloverStatus parts_plan(Parts *p, uint64_t alignment, uint64_t limit, CloverError *err);
/* paths: [n_parts], taken over. Checks the free space and opens the first part. */
CloverStatus parts_begin(Parts *p, char **paths, bool force, PartHeader *header, void *writer, CloverError *err);
CloverStatus parts_write(Parts *p, const void *bytes, size_t n, CloverError *err);
CloverStatus parts_finish(Parts *p, CloverError *err);
void parts_free(Parts *p);
uint64_t parts_bytes(const Parts *p, uint64_t alignment);            /* of all tensors, padding included */
int64_t parts_tensors_of(const Parts *p, int64_t part, int64_t *first);   /* how many; *first: index of the first */

#endif
