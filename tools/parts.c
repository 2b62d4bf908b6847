/* parts.c - tensors dealt out over files and written in order. */
#include <stdlib.h>
#include <string.h>
#include "parts.h"

void parts_add(Parts *p, const char *name, DType type, int dims, const int64_t *shape) {
    if (p->no_memory) return;
    if (p->n == p->room) {
        int64_t room = p->room ? 2 * p->room : 64;
        PlannedTensor *larger = realloc(p->tensor, (size_t)room * sizeof *larger);
        if (!larger) {
            p->no_memory = true;
            return;
        }
        p->tensor = larger;
        p->room = room;
    }
    PlannedTensor *t = &p->tensor[p->n];
    *t = (PlannedTensor){ .type = type, .dims = dims, .name = malloc(strlen(name) + 1) };
    if (!t->name) {
        p->no_memory = true;
        return;
    }
    strcpy(t->name, name);
    for (int i = 0; i < dims && i < TENSOR_MAX_DIMS; i++) t->shape[i] = shape[i];
    p->n++;
}

/* Buffer of a tensor's rows; false when the type has no size, the row no whole blocks, or the product overflows. */
static bool tensor_bytes(const PlannedTensor *t, uint64_t *out) {
    int64_t columns = t->dims > 0 ? t->shape[t->dims - 1] : 1, row = dtype_bytes(t->type, columns), bytes = row;
    if (row < 0) return false;
    for (int i = 0; i < t->dims - 1; i++)
        if (t->shape[i] < 0 || __builtin_mul_overflow(bytes, t->shape[i], &bytes)) return false;
    *out = (uint64_t)bytes;
    return true;
}

static uint64_t padded(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

uint64_t parts_bytes(const Parts *p, uint64_t alignment) {
    uint64_t sum = 0, bytes;
    for (int64_t i = 0; i < p->n; i++)
        if (tensor_bytes(&p->tensor[i], &bytes)) sum += padded(bytes, alignment);
    return sum;
}

static int by_name(const void *a, const void *b) {
    const PlannedTensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static CloverStatus check_names(const Parts *p, CloverError *err) {
    const PlannedTensor **sorted = malloc((size_t)(p->n + 1) * sizeof *sorted);
    if (!sorted) return error_memory(err, "the list of tensors", (size_t)p->n * sizeof *sorted);
    for (int64_t i = 0; i < p->n; i++) sorted[i] = &p->tensor[i];
    qsort(sorted, (size_t)p->n, sizeof *sorted, by_name);
    for (int64_t i = 1; i < p->n; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            error_add(err, CLOVER_BUG, "tensor %s: written twice", sorted[i]->name);
    free(sorted);
    return err->status;
}

CloverStatus parts_plan(Parts *p, uint64_t alignment, uint64_t limit, CloverError *err) {
    error_clear(err);
    if (p->no_memory) return error_memory(err, "the list of tensors", (size_t)p->room * sizeof *p->tensor);
    if (check_names(p, err) != CLOVER_OK) return err->status;
    p->alignment = alignment;
    int64_t part = 0;
    uint64_t offset = 0;
    for (int64_t i = 0; i < p->n; i++) {
        PlannedTensor *t = &p->tensor[i];
        if (t->dims > TENSOR_MAX_DIMS || !tensor_bytes(t, &t->bytes))
            return error_set(err, CLOVER_BUG, "tensor %s: its shape and type %d have no size", t->name, (int)t->type);
        bool first = i == 0 || p->tensor[i - 1].part != part;
        if (limit && !first && offset + padded(t->bytes, alignment) > limit) {
            part++;
            offset = 0;
        }
        t->part = part;
        t->offset = offset;
        offset += padded(t->bytes, alignment);
    }
    p->n_parts = part + 1;
    return CLOVER_OK;
}

int64_t parts_tensors_of(const Parts *p, int64_t part, int64_t *first) {
    int64_t i = 0, n = 0;
    while (i < p->n && p->tensor[i].part < part) i++;
    *first = i;
    while (i + n < p->n && p->tensor[i + n].part == part) n++;
    return n;
}

static CloverStatus open_next(Parts *p, CloverError *err) {
    if (p->opened > 0 && output_close(&p->file[p->opened - 1], err) != CLOVER_OK) return err->status;
    Output *file = &p->file[p->opened];
    if (output_open(file, p->path[p->opened], p->force, err) != CLOVER_OK) return err->status;
    return p->header(p->writer, p->opened++, file, err);
}

/* Stands at the next tensor that has bytes to come, in an open file; or at the end. */
static CloverStatus advance(Parts *p, CloverError *err) {
    while (p->current < p->n && p->tensor[p->current].bytes == 0) p->current++;
    if (p->current == p->n) return CLOVER_OK;
    p->left = p->tensor[p->current].bytes;
    while (p->opened <= p->tensor[p->current].part)
        if (open_next(p, err) != CLOVER_OK) return err->status;
    return CLOVER_OK;
}

CloverStatus parts_begin(Parts *p, char **paths, bool force, PartHeader *header, void *writer, CloverError *err) {
    p->path = paths;
    p->force = force;
    p->header = header;
    p->writer = writer;
    p->file = calloc((size_t)p->n_parts, sizeof *p->file);
    if (!p->file) return error_memory(err, "the list of files", (size_t)p->n_parts * sizeof *p->file);
    for (int64_t i = 0; i < p->n_parts; i++)
        if (output_may_replace(p->path[i], force, err) != CLOVER_OK) return err->status;
    if (output_room(p->path[0], parts_bytes(p, p->alignment), err) != CLOVER_OK) return err->status;
    if (open_next(p, err) != CLOVER_OK) return err->status;
    return advance(p, err);
}

CloverStatus parts_write(Parts *p, const void *bytes, size_t n, CloverError *err) {
    const uint8_t *at = bytes;
    while (n > 0) {
        if (p->current == p->n) return error_set(err, CLOVER_BUG, "%s: %zu bytes more than the tensors have", p->path[0], n);
        const PlannedTensor *t = &p->tensor[p->current];
        Output *file = &p->file[t->part];
        size_t piece = p->left < n ? (size_t)p->left : n;
        if (output_write(file, at, piece, err) != CLOVER_OK) return err->status;
        at += piece;
        n -= piece;
        p->left -= piece;
        if (p->left > 0) continue;
        if (output_zeros(file, padded(t->bytes, p->alignment) - t->bytes, err) != CLOVER_OK) return err->status;
        p->current++;
        if (advance(p, err) != CLOVER_OK) return err->status;
    }
    return CLOVER_OK;
}

CloverStatus parts_finish(Parts *p, CloverError *err) {
    if (p->current < p->n)
        return error_set(err, CLOVER_BUG, "tensor %s: %llu bytes were not written", p->tensor[p->current].name,
            (unsigned long long)p->left);
    while (p->opened < p->n_parts)                                   /* parts of empty tensors only */
        if (open_next(p, err) != CLOVER_OK) return err->status;
    if (output_close(&p->file[p->opened - 1], err) != CLOVER_OK) return err->status;
    for (int64_t i = 0; i < p->n_parts; i++)
        if (output_commit(&p->file[i], err) != CLOVER_OK) return err->status;
    return CLOVER_OK;
}

void parts_free(Parts *p) {
    for (int64_t i = 0; i < p->n; i++) free(p->tensor[i].name);
    for (int64_t i = 0; p->file && i < p->opened; i++) output_discard(&p->file[i]);
    for (int64_t i = 0; p->path && i < p->n_parts; i++) free(p->path[i]);
    free(p->tensor);
    free(p->path);
    free(p->file);
    *p = (Parts){ 0 };
}
