/* state.h - what a model remembers between steps: a value that can be copied, hashed and compared. [STA] */
#ifndef CLOVER_STATE_H
#define CLOVER_STATE_H

#include "clover.h"

typedef struct LayerState {
    double *k, *v;                   /* full attention: [capacity, Hkv, width] rotated keys, values; the first `position` rows count */
    double *ring;                    /* GDN: [taps-1, C] raw qkv rows, oldest first */
    double *S;                       /* GDN: [Hv, dk, dv] */
} LayerState;

typedef struct State {
    const CloverConfig *c;
    int64_t position, capacity;
    LayerState *layer;               /* [layers] */
} State;

CloverStatus state_init(State *s, const CloverConfig *c, int64_t capacity, CloverError *err);   /* empty: position 0, all zero */
void state_free(State *s);
void state_reset(State *s);
CloverStatus state_copy(State *to, const State *from, CloverError *err);   /* same config; to's capacity must hold from's position */
uint64_t state_hash(const State *s);

/* Numbers in one position's keys (and in its values), in a ring, in an S. */
int64_t state_kv_row(const CloverConfig *c);
int64_t state_ring_size(const CloverConfig *c);
int64_t state_S_size(const CloverConfig *c);

#endif
