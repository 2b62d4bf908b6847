/* gguf.h - GGUF v3 files, whole and split, mapped. [GGUF] */
#ifndef CLOVER_GGUF_H
#define CLOVER_GGUF_H

#include "../clover.h"
#include "tensor.h"

typedef enum GgufType {
    GGUF_U8 = 0, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64
} GgufType;

/* In the mapping, not terminated, may hold NUL. A scalar's is valid UTF-8; an array's elements lie inside the file, but whether
 * they are UTF-8 is for their reader to check: a vocabulary has half a million of them. */
typedef struct GgufString { const char *bytes; uint64_t length; } GgufString;

typedef struct GgufKey {
    const char *name;        /* NUL-terminated */
    GgufType type;           /* GGUF_ARRAY for arrays */
    GgufType element;        /* of an array (arrays of arrays are CLOVER_UNSUPPORTED) */
    uint64_t count;          /* of an array, else 1 */
    const uint8_t *data;     /* the value's bytes in the mapping, little-endian, unaligned; an array's elements, one after
                              * the other; a string is its u64 length, then its bytes */
    uint64_t bytes;          /* of all elements together */
} GgufKey;

typedef struct Gguf Gguf;

/* path: a single file, or any part of a split one (NAME-00001-of-000NN.gguf): all parts are opened, the keys are those
 * of the first part, the tensors those of all parts in order. Everything is bounds-checked here: magic, version, counts
 * against the file's size, key and tensor names (UTF-8, no NUL, unique), types, alignment, offsets inside the file, aligned and
 * not overlapping, shapes whose product or size does not overflow. All problems of a file are reported at once where
 * the file can still be read on. */
CloverStatus gguf_open(const char *path, Gguf **out, CloverError *err);
/* The same over the bytes of one whole file, which must outlive *out. label stands for the path in messages. */
CloverStatus gguf_open_bytes(const uint8_t *bytes, uint64_t n, const char *label, Gguf **out, CloverError *err);
void gguf_close(Gguf *g);

const char *gguf_path(const Gguf *g);                                 /* of the first part, which holds the keys */
uint64_t gguf_alignment(const Gguf *g);                               /* of the first part */
uint64_t gguf_file_bytes(const Gguf *g);                              /* of all parts together */
int64_t gguf_parts(const Gguf *g);
int64_t gguf_n_keys(const Gguf *g);
const GgufKey *gguf_key_at(const Gguf *g, int64_t i);
const GgufKey *gguf_key(const Gguf *g, const char *name);             /* NULL when absent */
TensorList gguf_tensors(const Gguf *g);
const Tensor *gguf_tensor(const Gguf *g, const char *name);           /* NULL when absent */

/* Typed reading of element i of a key (i = 0 for a scalar). False when the type does not fit or the value is out of
 * range: integers of any width fit an int64 when their value does; bool is not an integer; any float fits a real, and so do integers. */
bool gguf_int(const GgufKey *k, uint64_t i, int64_t *out);
bool gguf_real(const GgufKey *k, uint64_t i, double *out);
bool gguf_bool(const GgufKey *k, uint64_t i, bool *out);
bool gguf_string(const GgufKey *k, GgufString *out);                  /* a scalar string */
/* Walks an array of strings: *cursor starts as NULL; false at the end. O(1) a step. */
bool gguf_next_string(const GgufKey *k, const uint8_t **cursor, GgufString *out);
int64_t gguf_find_string(const GgufKey *k, const char *text);        /* the place of text in an array of strings; -1: not there, or k NULL */
const char *gguf_type_name(GgufType type);

#endif
