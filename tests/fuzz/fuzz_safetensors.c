/* fuzz_safetensors.c - any bytes as a safetensors file: refused with a reason, or its tensors cover the data. [SFT-2] */
#include <stdlib.h>
#include <string.h>
#include "../../ref/files/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CloverError err;
    Safetensors *s = NULL;
    CloverStatus status = safetensors_open_bytes(data, size, "fuzz", &s, &err);
    if (status != CLOVER_OK) {
        if (s || (status != CLOVER_BAD_INPUT && status != CLOVER_UNSUPPORTED) || err.status != status) abort();
        if (strncmp(err.text, "fuzz: ", 6) != 0) abort();
        return 0;
    }
    TensorList list = safetensors_tensors(s);
    uint64_t covered = 0;
    uint64_t sum = 0;
    for (int64_t i = 0; i < list.n; i++) {
        const Tensor *t = &list.tensor[i];
        if (i > 0 && t->offset != list.tensor[i - 1].offset + list.tensor[i - 1].bytes) abort();
        if (t->data != data + t->offset || t->offset > size || t->bytes > size - t->offset) abort();
        if (safetensors_tensor(s, t->name) != t) abort();
        for (uint64_t k = 0; k < t->bytes; k++) sum += t->data[k];
        covered += t->bytes;
    }
    if (list.n > 0 && list.tensor[0].offset + covered != size) abort();
    const char *format = safetensors_metadata(s, "format");
    if (format) sum += strlen(format);
    safetensors_close(s);
    if (sum == UINT64_MAX) abort();                              /* it is not: the reads above must not be left out */
    return 0;
}
