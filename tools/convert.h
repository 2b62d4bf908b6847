/* convert.h - what clover convert shares with its parts. */
#ifndef CLOVER_CONVERT_H
#define CLOVER_CONVERT_H

#include "../ref/clover.h"
#include "gguf_write.h"

/* Every key of a right export: the architecture's numbers, diffusion's (only with `diffusion`), the response controls, the
 * tokenizer. architecture: clover_moe or qwen35moe; type: of the matrices. [CFG-2, CFG-12, CFG-14, TOK-6] */
CloverStatus convert_put_keys(const char *folder, const CloverConfig *c, const char *architecture, DType type, bool diffusion,
                              GgufWriter *w, CloverError *err);
/* tokenizer.json's vocabulary, added tokens and merges, padded to the embedding's rows; nothing when there is no such file. */
CloverStatus convert_put_tokenizer(const char *folder, int64_t vocab, GgufWriter *w, CloverError *err);

#endif
