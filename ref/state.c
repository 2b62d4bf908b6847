/* state.c - the state as a value: position, keys and values, ring and S. [STA-1, STA-4] */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "error.h"
#include "state.h"

int64_t state_kv_row(const CloverConfig *c) { return c->kv_heads * c->head_width; }
int64_t state_ring_size(const CloverConfig *c) { return (c->taps - 1) * (2 * c->key_heads * c->key_width + c->value_heads * c->value_width); }
int64_t state_S_size(const CloverConfig *c) { return c->value_heads * c->key_width * c->value_width; }

/* Bytes of a state, or 0 when they do not fit a size_t. */
static size_t state_bytes(const CloverConfig *c, int64_t capacity) {
    size_t total = 0;
    for (int64_t l = 0; l < c->layers; l++) {
        size_t doubles, bytes;
        if (c->full_attention[l] ? __builtin_mul_overflow((size_t)capacity, 2 * (size_t)state_kv_row(c), &doubles)
                                 : __builtin_add_overflow((size_t)state_ring_size(c), (size_t)state_S_size(c), &doubles)) return 0;
        if (__builtin_mul_overflow(doubles, sizeof(double), &bytes) || __builtin_add_overflow(total, bytes, &total)) return 0;
    }
    return total ? total : 1;
}

static double *zeros(int64_t n) { return calloc(n > 0 ? (size_t)n : 1, sizeof(double)); }

CloverStatus state_init(State *s, const CloverConfig *c, int64_t capacity, CloverError *err) {
    *s = (State){ .c = c, .capacity = capacity };
    const size_t bytes = state_bytes(c, capacity);
    /* The kernel promises memory that it does not have; asking for more than the machine owns would end us later. */
    const size_t machine = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (bytes == 0 || bytes > machine)
        return error_set(err, CLOVER_SYSTEM, "out of memory: a state for %lld positions needs %.1f GiB, this machine has %.1f GiB; ask for fewer",
                         (long long)capacity, bytes ? (double)bytes / 1073741824.0 : 1.7e10, (double)machine / 1073741824.0);
    s->layer = calloc((size_t)c->layers, sizeof *s->layer);
    bool ok = s->layer != NULL;
    for (int64_t l = 0; ok && l < c->layers; l++) {
        LayerState *layer = &s->layer[l];
        if (c->full_attention[l]) ok = (layer->k = zeros(capacity * state_kv_row(c))) && (layer->v = zeros(capacity * state_kv_row(c)));
        else ok = (layer->ring = zeros(state_ring_size(c))) && (layer->S = zeros(state_S_size(c)));
    }
    if (ok) return CLOVER_OK;
    state_free(s);
    return error_memory(err, "the state", bytes);
}

void state_free(State *s) {
    for (int64_t l = 0; s->layer && l < s->c->layers; l++) {
        free(s->layer[l].k);
        free(s->layer[l].v);
        free(s->layer[l].ring);
        free(s->layer[l].S);
    }
    free(s->layer);
    s->layer = NULL;
}

void state_reset(State *s) {
    const CloverConfig *c = s->c;
    s->position = 0;
    for (int64_t l = 0; l < c->layers; l++)
        if (!c->full_attention[l]) {
            memset(s->layer[l].ring, 0, (size_t)state_ring_size(c) * sizeof(double));
            memset(s->layer[l].S, 0, (size_t)state_S_size(c) * sizeof(double));
        }
}

CloverStatus state_copy(State *to, const State *from, CloverError *err) {
    const CloverConfig *c = from->c;
    if (to->capacity < from->position || to->c->layers != c->layers)
        return error_set(err, CLOVER_USAGE, "a state of %lld positions does not fit into one that has room for %lld",
                         (long long)from->position, (long long)to->capacity);
    to->position = from->position;
    for (int64_t l = 0; l < c->layers; l++) {
        const LayerState *a = &from->layer[l];
        LayerState *b = &to->layer[l];
        if (c->full_attention[l]) {
            const size_t bytes = (size_t)(from->position * state_kv_row(c)) * sizeof(double);
            memcpy(b->k, a->k, bytes);
            memcpy(b->v, a->v, bytes);
        } else {
            memcpy(b->ring, a->ring, (size_t)state_ring_size(c) * sizeof(double));
            memcpy(b->S, a->S, (size_t)state_S_size(c) * sizeof(double));
        }
    }
    return CLOVER_OK;
}

static uint64_t fnv1a(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

uint64_t state_hash(const State *s) {
    const CloverConfig *c = s->c;
    uint64_t hash = fnv1a(0xcbf29ce484222325u, &s->position, sizeof s->position);
    for (int64_t l = 0; l < c->layers; l++) {
        const LayerState *layer = &s->layer[l];
        if (c->full_attention[l]) {
            const size_t bytes = (size_t)(s->position * state_kv_row(c)) * sizeof(double);
            hash = fnv1a(fnv1a(hash, layer->k, bytes), layer->v, bytes);
        } else {
            hash = fnv1a(hash, layer->ring, (size_t)state_ring_size(c) * sizeof(double));
            hash = fnv1a(hash, layer->S, (size_t)state_S_size(c) * sizeof(double));
        }
    }
    return hash;
}
