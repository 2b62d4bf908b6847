/* fuzz_gguf.c - any bytes as a GGUF file: refused with a reason, or everything it says can be read. [GGUF-4] */
#include <stdlib.h>
#include <string.h>
#include "../../ref/files/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum_bytes(const uint8_t *p, uint64_t n) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += p[i];
    return sum;
}

static uint64_t touch_key(const GgufKey *k) {
    uint64_t sum = sum_bytes(k->data, k->bytes) + strlen(k->name);
    for (uint64_t i = 0; i < k->count; i++) {
        int64_t whole;
        double real;
        bool flag;
        if (gguf_int(k, i, &whole)) sum += (uint64_t)whole;
        if (gguf_real(k, i, &real)) sum += real > 0;
        if (gguf_bool(k, i, &flag)) sum += flag;
    }
    GgufString s;
    const uint8_t *cursor = NULL;
    if (gguf_string(k, &s)) sum += sum_bytes((const uint8_t *)s.bytes, s.length);
    uint64_t strings = 0;
    while (gguf_next_string(k, &cursor, &s)) {
        sum += sum_bytes((const uint8_t *)s.bytes, s.length);
        strings++;
    }
    if (k->type == GGUF_ARRAY && k->element == GGUF_STRING && strings != k->count) abort();
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CloverError err;
    Gguf *g = NULL;
    CloverStatus status = gguf_open_bytes(data, size, "fuzz", &g, &err);
    if (status != CLOVER_OK) {
        if (g || (status != CLOVER_BAD_INPUT && status != CLOVER_UNSUPPORTED) || err.status != status) abort();
        if (strncmp(err.text, "fuzz: ", 6) != 0) abort();
        return 0;
    }
    uint64_t sum = 0;
    for (int64_t i = 0; i < gguf_n_keys(g); i++) {
        sum += touch_key(gguf_key_at(g, i));
        if (gguf_key(g, gguf_key_at(g, i)->name) != gguf_key_at(g, i)) abort();
    }
    TensorList list = gguf_tensors(g);
    for (int64_t i = 0; i < list.n; i++) {
        const Tensor *t = &list.tensor[i];
        if (t->data != data + t->offset || t->offset > size || t->bytes > size - t->offset || t->elements < 1) abort();
        if (gguf_tensor(g, t->name) != t) abort();
        sum += sum_bytes(t->data, t->bytes);
    }
    gguf_close(g);
    if (sum == UINT64_MAX) abort();                              /* it is not: the reads above must not be left out */
    return 0;
}
