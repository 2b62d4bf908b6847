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

/* For the readers of a format. room: of list->tensor; false: out of memory. */
bool tensor_append(TensorList *list, int64_t *room, const Tensor *tensor);
/* elements from shape; false: above 2^63 - 1, or a dimension is negative. */
bool tensor_count_elements(Tensor *tensor);
/* By offset, then size, then name. The second leaves the list as it is: [n] pointers into it; NULL: out of memory; free it. */
void tensors_sort(Tensor *first, int64_t n);
Tensor **tensors_sorted(Tensor *first, int64_t n);

/* "[rows, columns]", of at most TENSOR_MAX_DIMS; returns out. */
enum { SHAPE_TEXT = 24 * TENSOR_MAX_DIMS };
const char *shape_text(const int64_t *shape, int dims, char out[SHAPE_TEXT]);

#endif
