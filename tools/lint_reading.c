/* lint_reading.c - see lint_reading.h. */
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "../ref/files/config.h"
#include "lint_reading.h"

/* ---- memory -------------------------------------------------------------------------------------------------------- */

typedef struct Block { struct Block *next; max_align_t data[]; } Block;

/* n things that live as long as the reading; NULL and an error when there is no memory. */
static void *keep(Reading *r, int64_t n, size_t size, CloverError *err) {
    Block *block = calloc(1, sizeof *block + (size_t)n * size);
    if (!block) {
        error_memory(err, "another reading of the weights", (size_t)n * size);
        return NULL;
    }
    block->next = r->memory;
    r->memory = block;
    return block->data;
}

void reading_free(Reading *r) {
    for (Block *block = r->memory, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    *r = (Reading){ 0 };
}

/* ---- value heads in the other order -------------------------------------------------------------------------------- */

static HeadMap tiled(const CloverConfig *c, int64_t start, int64_t width) {
    return (HeadMap){ start, width, c->key_heads, c->value_heads / c->key_heads };
}

/* The vector as it is when the file has the other order. values: [n] whole groups of `cols`, brought to HF's order by the map
 * (was_tiled) or taken as they stand; the map moves groups. */
static const double *reordered(Reading *r, const double *values, int64_t rows, int64_t cols, const HeadMap *map, bool was_tiled, CloverError *err) {
    double *other = values ? keep(r, rows * cols, sizeof *other, err) : NULL;
    for (int64_t i = 0; other && i < rows; i++) {
        const int64_t there = head_map(map, i);
        if (was_tiled) memcpy(other + there * cols, values + i * cols, (size_t)cols * sizeof *other);   /* values[i] is the file's row `there` */
        else memcpy(other + i * cols, values + there * cols, (size_t)cols * sizeof *other);
    }
    return other;
}

static void other_map(Matrix *m, const HeadMap *map, bool was_tiled, bool columns) {
    *(columns ? &m->col_map : &m->row_map) = *map;
    if (was_tiled) (columns ? &m->col_map : &m->row_map)->width = 0;
}

static void read_heads(Reading *r, GdnW *w, CloverError *err) {
    const CloverConfig *c = &r->model.config;
    const int64_t K2 = 2 * c->key_heads * c->key_width, C = K2 + c->value_heads * c->value_width;
    const HeadMap qkv = tiled(c, K2, c->value_width), heads = tiled(c, 0, c->value_width), singles = tiled(c, 0, 1);
    const bool was = r->model.weights.tiled;
    other_map(&w->qkv, &qkv, was, false);
    other_map(&w->z, &heads, was, false);
    other_map(&w->beta, &singles, was, false);
    other_map(&w->alpha, &singles, was, false);
    other_map(&w->out, &heads, was, true);
    w->conv = reordered(r, w->conv, C, c->taps, &qkv, was, err);
    w->dt_bias = reordered(r, w->dt_bias, c->value_heads, 1, &singles, was, err);
    w->rate = reordered(r, w->rate, c->value_heads, 1, &singles, was, err);
}

static void read_diffusion(Reading *r, GdnW *w, bool was, CloverError *err) {
    const CloverConfig *c = &r->model.config;
    const int64_t K2 = 2 * c->key_heads * c->key_width, C = K2 + c->value_heads * c->value_width;
    const HeadMap qkv = tiled(c, K2, c->value_width), singles = tiled(c, 0, 1);
    w->conv_right = reordered(r, w->conv_right, C, c->taps - 1, &qkv, was, err);
    w->logit_scale = reordered(r, w->logit_scale, c->value_heads, 1, &singles, was, err);
    w->history_bias = reordered(r, w->history_bias, c->value_heads, 1, &singles, was, err);
    w->history_c = reordered(r, w->history_c, c->value_heads, 1, &singles, was, err);
}

static bool diffusion_is_tiled(const CloverModel *m) {
    CloverError err;
    int says = -1;
    if (!m->gguf) return false;
    config_head_order(m->gguf, &says, &err);
    return says != 0;                                            /* [CFG-12] */
}

/* ---- the other readings -------------------------------------------------------------------------------------------- */

/* Row block 2h + part (part 0: query, 1: gate; whole heads) stands at part*H + h: the map of two heads a group. */
static void read_q_gate(const CloverConfig *c, AttnW *w) { w->q.row_map = (HeadMap){ 0, c->head_width, c->heads, 2 }; }

static void read_conv(Reading *r, GdnW *w, CloverError *err) {
    const CloverConfig *c = &r->model.config;
    const int64_t C = 2 * c->key_heads * c->key_width + c->value_heads * c->value_width;
    double *other = keep(r, C * c->taps, sizeof *other, err);
    for (int64_t i = 0; other && i < C; i++)
        for (int64_t j = 0; j < c->taps; j++) other[i * c->taps + j] = w->conv[i * c->taps + c->taps - 1 - j];
    w->conv = other;
}

static void swap(ExpertW *e) {
    const Matrix gate = e->gate;
    e->gate = e->up;
    e->up = gate;
}

static void read_experts(Reading *r, MoeW *w, bool swapped, const int64_t *order, CloverError *err) {
    const int64_t E = r->model.config.experts;
    ExpertW *other = keep(r, E, sizeof *other, err);
    for (int64_t e = 0; other && e < E; e++) {
        other[e] = w->expert[order ? order[e] : e];
        if (swapped) swap(&other[e]);
    }
    w->expert = other;
}

CloverStatus reading_make(const CloverModel *model, unsigned bits, const int64_t *order, Reading *out, CloverError *err) {
    error_clear(err);
    *out = (Reading){ .model = *model };
    const CloverConfig *c = &out->model.config;
    LayerW *layer = keep(out, c->layers, sizeof *layer, err);
    if (!layer) return err->status;
    memcpy(layer, model->weights.layer, (size_t)c->layers * sizeof *layer);
    out->model.weights.layer = layer;
    const bool diffusion_tiled = diffusion_is_tiled(model);
    for (int64_t l = 0; l < c->layers && err->status == CLOVER_OK; l++) {
        LayerW *w = &layer[l];
        if (w->full_attention && (bits & READ_Q_GATE)) read_q_gate(c, &w->attn);
        if (!w->full_attention && (bits & READ_HEADS)) read_heads(out, &w->gdn, err);
        if (!w->full_attention && (bits & READ_CONV) && err->status == CLOVER_OK) read_conv(out, &w->gdn, err);
        if (!w->full_attention && (bits & READ_DIFFUSION) && err->status == CLOVER_OK) read_diffusion(out, &w->gdn, diffusion_tiled, err);
        if ((bits & READ_GATE_UP) || order) read_experts(out, &w->moe, (bits & READ_GATE_UP) != 0, order, err);
        if (bits & READ_SHARED) swap(&w->moe.shared);
    }
    if (err->status != CLOVER_OK) reading_free(out);
    return err->status;
}

unsigned reading_possible(const CloverModel *m) {
    const CloverConfig *c = &m->config;
    bool attention = false, gdn = false;
    for (int64_t l = 0; l < c->layers; l++) {
        attention |= c->full_attention[l];
        gdn |= !c->full_attention[l];
    }
    const bool orders = gdn && c->key_heads > 1 && c->value_heads > c->key_heads;
    return READ_GATE_UP | READ_SHARED | (orders ? READ_HEADS : 0u) | (attention && c->heads > 1 ? READ_Q_GATE : 0u) | (gdn && c->taps > 1 ? READ_CONV
            : 0u) |
           (orders && m->weights.diffusion ? READ_DIFFUSION : 0u);
}
