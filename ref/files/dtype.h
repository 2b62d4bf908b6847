/* dtype.h - the element types of tensors, GGUF's ids for all files (safetensors types are mapped to them). [QNT] */
#ifndef CLOVER_DTYPE_H
#define CLOVER_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum DType {
    DT_F32 = 0, DT_F16 = 1, DT_Q4_0 = 2, DT_Q4_1 = 3, DT_Q5_0 = 6, DT_Q5_1 = 7, DT_Q8_0 = 8,
    DT_Q2_K = 10, DT_Q3_K = 11, DT_Q4_K = 12, DT_Q5_K = 13, DT_Q6_K = 14, DT_IQ4_NL = 20, DT_IQ4_XS = 23,
    DT_I8 = 24, DT_I16 = 25, DT_I32 = 26, DT_I64 = 27, DT_F64 = 28, DT_BF16 = 30,
    DT_U8 = 200, DT_BOOL = 201, DT_U16 = 202, DT_U32 = 203, DT_U64 = 204,   /* safetensors only */
    DT_F8_E4M3 = 205, DT_F8_E5M2 = 206,                    /* safetensors only, not decodable */
    DT_UNKNOWN = 255                                       /* a safetensors type of another name; dtype_info gives NULL */
} DType;

typedef struct DTypeInfo {
    const char *name;        /* as ggml prints it: "Q4_0" */
    int64_t block;           /* elements a block, 1 for plain types */
    int64_t bytes;           /* bytes a block */
    bool decodable;          /* to real numbers, by quant_decode */
} DTypeInfo;

/* NULL for a type id that no table knows (its size is then unknown). Knows every ggml type's name and size, also of
 * those that cannot be decoded (IQ2_XXS, TQ1_0, MXFP4, ...). */
const DTypeInfo *dtype_info(DType type);

/* Bytes of n elements in a row; -1 when n is no multiple of the block, the type is unknown or the size overflows. */
int64_t dtype_bytes(DType type, int64_t n);

#endif
