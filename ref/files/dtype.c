/* dtype.c - the table of element types: name, elements a block, bytes a block. [QNT] */
#include <stddef.h>
#include "dtype.h"

/* ggml's ids; the gaps are types that ggml has removed (Q4_2, Q4_3 and the interleaved Q4_0 and IQ4_NL forms), which no
 * current program reads. Integers are not decodable: a file that holds a weight as bare integers keeps its scale
 * elsewhere, and reading them as numbers would give a plausible wrong answer. */
static const struct { DType type; DTypeInfo info; } types[] = {
    { DT_F32,         { "F32", 1, 4, true } },
    { DT_F16,         { "F16", 1, 2, true } },
    { DT_Q4_0,        { "Q4_0", 32, 18, true } },
    { DT_Q4_1,        { "Q4_1", 32, 20, true } },
    { DT_Q5_0,        { "Q5_0", 32, 22, true } },
    { DT_Q5_1,        { "Q5_1", 32, 24, true } },
    { DT_Q8_0,        { "Q8_0", 32, 34, true } },
    { (DType)9,       { "Q8_1", 32, 36, false } },      /* half d, half s, 32 bytes; an activation type, never in a file */
    { DT_Q2_K,        { "Q2_K", 256, 84, true } },
    { DT_Q3_K,        { "Q3_K", 256, 110, true } },
    { DT_Q4_K,        { "Q4_K", 256, 144, true } },
    { DT_Q5_K,        { "Q5_K", 256, 176, true } },
    { DT_Q6_K,        { "Q6_K", 256, 210, true } },
    { (DType)15,      { "Q8_K", 256, 292, false } },
    { (DType)16,      { "IQ2_XXS", 256, 66, false } },
    { (DType)17,      { "IQ2_XS", 256, 74, false } },
    { (DType)18,      { "IQ3_XXS", 256, 98, false } },
    { (DType)19,      { "IQ1_S", 256, 50, false } },
    { DT_IQ4_NL,      { "IQ4_NL", 32, 18, true } },
    { (DType)21,      { "IQ3_S", 256, 110, false } },
    { (DType)22,      { "IQ2_S", 256, 82, false } },
    { DT_IQ4_XS,      { "IQ4_XS", 256, 136, true } },
    { DT_I8,          { "I8", 1, 1, false } },
    { DT_I16,         { "I16", 1, 2, false } },
    { DT_I32,         { "I32", 1, 4, false } },
    { DT_I64,         { "I64", 1, 8, false } },
    { DT_F64,         { "F64", 1, 8, true } },
    { (DType)29,      { "IQ1_M", 256, 56, false } },
    { DT_BF16,        { "BF16", 1, 2, true } },
    { (DType)34,      { "TQ1_0", 256, 54, false } },
    { (DType)35,      { "TQ2_0", 256, 66, false } },
    { (DType)39,      { "MXFP4", 32, 17, false } },
    { (DType)40,      { "NVFP4", 64, 36, false } },
    { (DType)41,      { "Q1_0", 128, 18, false } },
    { DT_U8,          { "U8", 1, 1, false } },
    { DT_BOOL,        { "BOOL", 1, 1, false } },
    { DT_U16,         { "U16", 1, 2, false } },
    { DT_U32,         { "U32", 1, 4, false } },
    { DT_U64,         { "U64", 1, 8, false } },
    { DT_F8_E4M3,     { "F8_E4M3", 1, 1, false } },
    { DT_F8_E5M2,     { "F8_E5M2", 1, 1, false } },
};

const DTypeInfo *dtype_info(DType type) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].type == type) return &types[i].info;
    return NULL;
}

int64_t dtype_bytes(DType type, int64_t n) {
    const DTypeInfo *info = dtype_info(type);
    if (!info || n < 0 || n % info->block != 0) return -1;
    int64_t blocks = n / info->block;
    return blocks > INT64_MAX / info->bytes ? -1 : blocks * info->bytes;
}
