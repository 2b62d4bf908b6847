/* tensor.c - lists of tensors, as the readers of both formats build them. [GGUF] [SFT] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tensor.h"

bool tensor_append(TensorList *list, int64_t *room, const Tensor *tensor) {
    if (list->n == *room) {
        int64_t more = *room ? 2 * *room : 64;
        Tensor *larger = realloc(list->tensor, (size_t)more * sizeof *larger);
        if (!larger) return false;
        list->tensor = larger;
        *room = more;
    }
    list->tensor[list->n++] = *tensor;
    return true;
}

bool tensor_count_elements(Tensor *tensor) {
    bool empty = false;
    for (int i = 0; i < tensor->dims; i++) {
        if (tensor->shape[i] < 0) return false;
        if (tensor->shape[i] == 0) empty = true;
    }
    tensor->elements = empty ? 0 : 1;
    for (int i = 0; i < tensor->dims && !empty; i++) {
        if (tensor->elements > INT64_MAX / tensor->shape[i]) return false;
        tensor->elements *= tensor->shape[i];
    }
    return true;
}

static int compare(const Tensor *s, const Tensor *t) {
    if (s->offset != t->offset) return s->offset < t->offset ? -1 : 1;
    if (s->bytes != t->bytes) return s->bytes < t->bytes ? -1 : 1;
    return strcmp(s->name, t->name);
}

static int compare_tensors(const void *s, const void *t) { return compare(s, t); }
static int compare_pointers(const void *s, const void *t) { return compare(*(Tensor *const *)s, *(Tensor *const *)t); }

void tensors_sort(Tensor *first, int64_t n) {
    if (n > 1) qsort(first, (size_t)n, sizeof *first, compare_tensors);
}

Tensor **tensors_sorted(Tensor *first, int64_t n) {
    Tensor **sorted = malloc((size_t)(n ? n : 1) * sizeof *sorted);   /* [n] */
    if (!sorted) return NULL;
    for (int64_t i = 0; i < n; i++) sorted[i] = &first[i];
    qsort(sorted, (size_t)n, sizeof *sorted, compare_pointers);
    return sorted;
}

const char *shape_text(const int64_t *shape, int dims, char out[SHAPE_TEXT]) {
    size_t n = (size_t)snprintf(out, SHAPE_TEXT, "[");
    for (int i = 0; i < dims; i++) n += (size_t)snprintf(out + n, SHAPE_TEXT - n, i ? ", %lld" : "%lld", (long long)shape[i]);
    snprintf(out + n, SHAPE_TEXT - n, "]");
    return out;
}
