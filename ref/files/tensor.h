/* tensor.h - a named array in a mapped file, whatever the file's format. */
#ifndef CLOVER_TENSOR_H
#define CLOVER_TENSOR_H

#include <stddef.h>
#include <stdint.h>
#include "dtype.h"

enum { TENSOR_MAX_DIMS = 8 };

typedef struct Tensor {
    const char *name;                /* NUL-terminated UTF-8, as in the file */
    const char *file;                /* path of the file that holds it, for messages */
    DType type;
    int dims;
    int64_t shape[TENSOR_MAX_DIMS];  /* slowest first: [rows, columns], as HF writes it; a GGUF's order is reversed */
    int64_t elements;                /* product of shape */
    const uint8_t *data;             /* in the mapping; any alignment */
    uint64_t bytes;                  /* as stored; for an unknown type: up to the next tensor or the end */
    uint64_t offset;                 /* of data in its file */
} Tensor;

typedef struct TensorList { Tensor *tensor; int64_t n; } TensorList;   /* in the file's order, parts in order */


#endif
