/* lint_reading.h - the same file read otherwise, in memory: each reading is what a file would mean that drifted so. [LNT-4]
 *
 * A reading is a copy of the opened model whose weights lead elsewhere: matrices through other index maps, vectors (which
 * are decoded anyway) in another order. No byte of the file is copied or changed. */
#ifndef CLOVER_LINT_READING_H
#define CLOVER_LINT_READING_H

#include "../ref/model.h"

typedef enum ReadingBit {
    READ_HEADS = 1,          /* GDN value heads in the other order: grouped in a GGUF, tiled in a folder; the diffusion tensors as before [TEN-7] */
    READ_Q_GATE = 2,         /* attn_q's rows: the queries of all heads, then all gates [ATT-1] */
    READ_CONV = 4,           /* conv taps backwards [GDN-3] */
    READ_GATE_UP = 8,        /* the routed experts' gate is up, and up is gate [MOE-4] */
    READ_SHARED = 16,        /* the shared expert's */
    READ_DIFFUSION = 32      /* the diffusion tensors' value heads in the other order [TEN-8] */
} ReadingBit;

typedef struct Reading {
    CloverModel model;       /* run it with clover_session_new(&reading.model); never close it */
    void *memory;            /* what it has beyond the model that it came from */
} Reading;

/* bits: of ReadingBit. order: [E] the router's row e is served by the file's expert order[e]; NULL: by its own. model must
 * outlive the reading. Bits that change nothing in this model are allowed. */
CloverStatus reading_make(const CloverModel *model, unsigned bits, const int64_t *order, Reading *out, CloverError *err);
void reading_free(Reading *r);

/* Which bits mean anything in this model: two orders of one head are the same. */
unsigned reading_possible(const CloverModel *model);

#endif
