/* model.h - an opened model: file, config, weights, tokenizer. Internal; tools that look inside (inspect, lint) use it. */
#ifndef CLOVER_MODEL_H
#define CLOVER_MODEL_H

#include "files/gguf.h"
#include "files/safetensors.h"
#include "files/weights.h"

struct CloverModel {
    char *path;
    Gguf *gguf;                      /* one of these two is NULL */
    Safetensors *safetensors;
    TensorList tensors;
    CloverConfig config;
    Weights weights;
    CloverTokenizer *tokenizer;      /* NULL when the file has none */
};

#endif
