/* fix_write.c - the planned file, streamed: whole tensors as their bytes, moved ones row by row. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/files/quant.h"
#include "fix.h"
#include "output.h"

enum { PIECE = 4 << 20 };

typedef struct Sink { GgufWriter *w; Progress *progress; } Sink;

static CloverStatus put(const Sink *s, const void *bytes, size_t n, CloverError *err) {
    progress_add(s->progress, (double)n);
    return gguf_writer_write(s->w, bytes, n, err);
}

static uint64_t tensor_bytes(const FixTensor *t) {
    uint64_t rows = 1;
    for (int i = 0; i + 1 < t->dims; i++) rows *= (uint64_t)t->shape[i];
    return rows * (uint64_t)dtype_bytes(t->type, t->dims ? t->shape[t->dims - 1] : 1);
}

static CloverStatus copy_bytes(const FixTensor *t, const Sink *s, CloverError *err) {
    const uint64_t all = tensor_bytes(t);
    for (uint64_t done = 0; done < all && err->status == CLOVER_OK; done += PIECE)
        put(s, t->source->data + done, all - done < PIECE ? (size_t)(all - done) : PIECE, err);
    return err->status;
}

/* [cols] */
static int64_t *source_columns(const FixTensor *t, CloverError *err) {
    int64_t *from = malloc((size_t)t->view.cols * sizeof *from);
    if (!from) { error_memory(err, "a permutation", (size_t)t->view.cols * sizeof *from); return NULL; }
    for (int64_t i = 0; i < t->view.cols; i++) from[i] = fix_source_column(t, i);
    return from;
}

static void move_row(const FixTensor *t, const int64_t *from, int64_t expert, int64_t row, uint8_t *out) {
    const RoleView *v = &t->view;
    const int64_t block = dtype_info(v->type)->block, size = dtype_info(v->type)->bytes;
    const bool turned = v->transposed || t->t.transposed;        /* of types whose blocks are single values [fix_rearrange] */
    const uint8_t *bytes = turned ? v->tensor->data : role_row_bytes(v, expert, row);
    for (int64_t c = 0; c < v->cols; c += block) {
        const int64_t at = turned ? from[c] * v->rows + head_map(&v->row_map, row) : from[c] / block;
        memcpy(out + c / block * size, bytes + at * size, (size_t)size);
    }
}

static void value_row(const FixTensor *t, int64_t e, int64_t r, float *room, uint8_t *out) {
    const int64_t n = t->view.cols;
    float *right = room, *ordered = room + n, *scratch = room + 2 * n;
    transform_row(&t->view, &t->t, e, r, right, scratch);
    for (int64_t c = 0; c < n; c++) ordered[c] = right[head_unmap(&t->cols, c)];
    quant_encode(t->type, ordered, n, out);                      /* it has an encoder [fix_rearrange] */
}

static CloverStatus write_rows(const FixTensor *t, const Sink *s, CloverError *err) {
    const RoleView *v = &t->view;
    const size_t bytes = (size_t)dtype_bytes(t->type, v->cols);
    int64_t *from = source_columns(t, err);
    uint8_t *row = malloc(bytes);
    float *room = malloc((size_t)v->cols * 4 * sizeof *room);
    if (err->status == CLOVER_OK && (!row || !room)) error_memory(err, "a row", bytes + (size_t)v->cols * 16);
    for (int64_t e = 0; e < v->experts && err->status == CLOVER_OK; e++)
        for (int64_t i = 0; i < v->rows && err->status == CLOVER_OK; i++) {
            const int64_t r = head_unmap(&t->rows, i);
            if (t->how == FIX_VALUES) value_row(t, e, r, room, row);
            else move_row(t, from, t->t.expert ? t->t.expert[e] : e, t->t.row ? t->t.row[r] : r, row);
            if (t->how == FIX_VALUES && !role_fits_in(t->type, row, v->cols, room))
                error_set(err, CLOVER_BAD_INPUT, "%s: row %lld has a value too large for %s, or none that is finite", t->name, (long long)i, dtype_info(t->type)->name);
            else put(s, row, bytes, err);
        }
    free(from);
    free(row);
    free(room);
    return err->status;
}

/* ---- files ----------------------------------------------------------------------------------------------------------- */

static CloverStatus write_file(const Fix *x, const char *path, bool side, CloverError *err) {
    GgufWriter *w = gguf_writer_new();
    if (!w) return error_memory(err, "the writer", 1024);
    for (int64_t i = 0; i < x->n_keys; i++) {
        const FixKey *k = &x->key[i];
        if (side && strcmp(k->name, "general.architecture") != 0 && strcmp(k->name, "general.name") != 0 && !strstr(k->name, ".diffusion.")) continue;
        gguf_put_raw(w, k->name, k->type, k->element, k->count, k->data, k->bytes);
    }
    for (int64_t i = 0; i < x->n; i++)
        if (x->tensor[i].dropped == side) gguf_add_tensor(w, x->tensor[i].name, x->tensor[i].type, x->tensor[i].dims, x->tensor[i].shape);
    const GgufKey *alignment = lint_key(&x->file, "general.alignment");
    int64_t aligned = 0;
    if (alignment && (!gguf_int(alignment, 0, &aligned) || aligned < 8 || (aligned & (aligned - 1)) != 0)) aligned = 0;
    Progress progress = progress_start(side ? "writing what is left out" : "writing", (double)gguf_writer_bytes(w));
    const Sink s = { w, &progress };
    error_clear(err);
    gguf_writer_begin(w, path, (uint64_t)aligned, 0, x->force, err);
    for (int64_t i = 0; i < x->n && err->status == CLOVER_OK; i++) {
        const FixTensor *t = &x->tensor[i];
        if (t->dropped != side) continue;
        if (t->how == FIX_COPY) copy_bytes(t, &s, err);
        else write_rows(t, &s, err);
    }
    progress_end(&progress);
    if (err->status == CLOVER_OK) gguf_writer_finish(w, err);
    gguf_writer_free(w);
    return err->status;
}

/* Nothing to mend: the very bytes. */
static CloverStatus copy_whole(const Fix *x, CloverError *err) {
    Output o;
    const Map *map = &x->file.map[0];
    if (output_room(x->out, map->bytes, err) != CLOVER_OK || output_open(&o, x->out, x->force, err) != CLOVER_OK) return err->status;
    Progress progress = progress_start("copying", (double)map->bytes);
    for (uint64_t done = 0; done < map->bytes && err->status == CLOVER_OK; done += PIECE) {
        const size_t n = map->bytes - done < PIECE ? (size_t)(map->bytes - done) : PIECE;
        output_write(&o, map->data + done, n, err);
        progress_add(&progress, (double)n);
    }
    progress_end(&progress);
    if (err->status == CLOVER_OK) return output_commit(&o, err);
    output_discard(&o);
    return err->status;
}

static CloverStatus check_room(const Fix *x, CloverError *err) {
    uint64_t all = 0;
    for (int64_t i = 0; i < x->n; i++)
        if (!x->tensor[i].dropped || x->side) all += tensor_bytes(&x->tensor[i]);
    return output_room(x->out, all, err);
}

CloverStatus fix_write(Fix *x) {
    CloverError *err = x->err;
    const bool side = x->side && x->dropped > 0;
    error_clear(err);
    if (side && output_may_replace(x->side, x->force, err) != CLOVER_OK) return err->status;
    if (x->changes == 0 && x->file.maps == 1) return copy_whole(x, err);
    if (check_room(x, err) != CLOVER_OK) return err->status;
    if (side && write_file(x, x->side, true, err) != CLOVER_OK) return err->status;      /* first: nothing may be lost */
    return write_file(x, x->out, false, err);
}
