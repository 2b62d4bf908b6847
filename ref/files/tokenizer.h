/* tokenizer.h - how a tokenizer is made; clover.h says what it does. [TOK] */
#ifndef CLOVER_TOKENIZER_H
#define CLOVER_TOKENIZER_H

#include "../clover.h"
#include "gguf.h"

/* From a tokenizer.json as Hugging Face `tokenizers` writes it, and from a GGUF's tokenizer.ggml keys. Everything that
 * the file asks for and this project does not implement is CLOVER_UNSUPPORTED by name; what contradicts itself is
 * CLOVER_BAD_INPUT; all problems of a file are reported at once. The tokenizer keeps nothing of the file or of *g. */
CloverStatus tokenizer_from_json(const char *path, CloverTokenizer **out, CloverError *err);
/* A GGUF that has no vocabulary (neither tokenizer.ggml.model nor .tokens, or model "none") is CLOVER_OK and *out NULL. */
CloverStatus tokenizer_from_gguf(const Gguf *g, CloverTokenizer **out, CloverError *err);
void tokenizer_free(CloverTokenizer *t);   /* NULL is fine */

#endif
