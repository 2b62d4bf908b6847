/* safetensors.h - one safetensors file, or a folder of shards, mapped. [SFT] */
#ifndef CLOVER_SAFETENSORS_H
#define CLOVER_SAFETENSORS_H

#include "../clover.h"
#include "tensor.h"

typedef struct Safetensors Safetensors;

/* path: a .safetensors file, or a folder: with model.safetensors.index.json its shards (each tensor must lie in the
 * shard that the index names), else its *.safetensors in name order. Checked: header length, JSON (duplicate keys are
 * an error), dtypes (an unknown one is kept, not decodable), shapes, offsets inside the file, in order of the format's rules (no hole, no
 * overlap), sizes equal to shape x type, unique names. All problems at once. */
CloverStatus safetensors_open(const char *path, Safetensors **out, CloverError *err);
/* The same over the bytes of one whole file, which must outlive *out. label stands for the path in messages. */
CloverStatus safetensors_open_bytes(const uint8_t *bytes, uint64_t n, const char *label, Safetensors **out, CloverError *err);
void safetensors_close(Safetensors *s);
TensorList safetensors_tensors(const Safetensors *s);
const Tensor *safetensors_tensor(const Safetensors *s, const char *name);
uint64_t safetensors_file_bytes(const Safetensors *s);                /* of all shards together */
int64_t safetensors_parts(const Safetensors *s);
/* A __metadata__ value of the first file, NULL when absent. */
const char *safetensors_metadata(const Safetensors *s, const char *key);

#endif
