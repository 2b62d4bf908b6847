/* decode_denoise.c - block diffusion, algorithm "low_confidence": a block of masks resolves pass by pass. [DEN-1, DEN-2] */
#include <stdlib.h>
#include "decoder.h"
#include "error.h"

/* A block being resolved; n rows, read by the preview whole at every pass. */
typedef struct Block {
    int64_t n;
    int32_t *ids;                    /* [n] the mask id where masked */
    bool *masked;                    /* [n] */
    int64_t left;                    /* rows still masked */
    CloverCandidate *candidates;     /* [n] this pass's, one per row still masked, in ascending rows */
    int64_t n_candidates;
    int64_t *fixed;                  /* [n] rows that this pass fixed */
    int64_t n_fixed;
} Block;

static CloverStatus block_allocate(Block *b, int64_t n, CloverError *err) {
    size_t rows = (size_t)n;
    *b = (Block){ .n = n };
    b->ids = malloc(rows * sizeof *b->ids);
    b->masked = malloc(rows * sizeof *b->masked);
    b->candidates = malloc(rows * sizeof *b->candidates);
    b->fixed = malloc(rows * sizeof *b->fixed);
    if (!b->ids || !b->masked || !b->candidates || !b->fixed) return error_memory(err, "a block", rows * 40);
    return CLOVER_OK;
}

static void block_release(Block *b) {
    free(b->ids);
    free(b->masked);
    free(b->candidates);
    free(b->fixed);
}

static void block_mask(Block *b, int32_t mask_id) {
    for (int64_t t = 0; t < b->n; t++) {
        b->ids[t] = mask_id;
        b->masked[t] = true;
    }
    b->left = b->n;
}

static bool block_holds(const Block *b, int32_t id) {
    for (int64_t t = 0; t < b->n; t++) if (!b->masked[t] && b->ids[t] == id) return true;
    return false;
}

/* [DEN-2] Every row still masked proposes a token, with its probability at T = 1; rows ascend, one draw each
 * [SMP-6]. A row's position is the committed response + its row + 1 [CTL-8]. */
static CloverStatus propose(Decoder *d, Block *b) {
    bool think_ended = block_holds(b, d->options->controls.dllm_think_end_token_id);
    b->n_candidates = 0;
    for (int64_t t = 0; t < b->n; t++) {
        if (!b->masked[t]) continue;
        CloverStatus status = decoder_process(d, t, d->n_response + t + 1, think_ended);
        if (status != CLOVER_OK) return status;
        int32_t id = decoder_choose(d, t);
        b->candidates[b->n_candidates++] = (CloverCandidate){ .row = t, .id = id, .p = d->p[id] };
    }
    return CLOVER_OK;
}

/* [DEN-5] A row's token is fixed for good: no later pass revises it. */
static void fix(Block *b, const CloverCandidate *c) {
    b->ids[c->row] = c->id;
    b->masked[c->row] = false;
    b->left--;
    b->fixed[b->n_fixed++] = c->row;
}

/* [DEN-3] Fixes every row strictly above the threshold; [DEN-4] when none is, the most probable (equal: the lowest row). */
static void fix_confident(Block *b, double threshold) {
    const CloverCandidate *best = &b->candidates[0];
    b->n_fixed = 0;
    for (int64_t i = 0; i < b->n_candidates; i++) {
        const CloverCandidate *c = &b->candidates[i];
        if (c->p > threshold) fix(b, c);
        if (c->p > best->p) best = c;
    }
    if (b->n_fixed == 0) fix(b, best);
}

static void tell_pass(Decoder *d, const Block *b, int64_t pass) {
    CloverEvent event = decoder_event(d, CLOVER_EVENT_PASS);
    event.pass = pass;
    event.candidates = b->candidates;
    event.n_candidates = b->n_candidates;
    event.fixed = b->fixed;
    event.n_fixed = b->n_fixed;
    event.ids = b->ids;
    event.n_ids = b->n;
    decoder_tell(d, &event);
}

/* [DEN-5] Passes until no mask is left; each fixes at least one row. */
static CloverStatus resolve(Decoder *d, Block *b) {
    block_mask(b, d->options->mask_id);
    for (int64_t pass = 0; b->left > 0; pass++) {
        if (pass == b->n)
            return error_set(d->err, CLOVER_BUG, "a block of %lld rows is not resolved after as many passes", (long long)b->n);
        CloverStatus status = decoder_preview(d, b->ids, b->n);
        if (status == CLOVER_OK) status = propose(d, b);
        if (status != CLOVER_OK) return status;
        fix_confident(b, d->options->threshold);
        tell_pass(d, b, pass);
        if (d->finished) break;                      /* the listener has heard enough */
    }
    return CLOVER_OK;
}

/* [DEN-6] The block goes out in position order, cut at the budget, ending at the first stop id (included). */
static void output_block(Decoder *d, const Block *b) {
    int64_t wanted = d->options->max_tokens - d->n_response, emitted = 0;
    while (emitted < b->n && emitted < wanted) if (decoder_is_stop(d, b->ids[emitted++])) break;

    CloverEvent event = decoder_event(d, CLOVER_EVENT_BLOCK);
    event.ids = b->ids;
    event.n_ids = b->n;
    event.emitted = emitted;
    decoder_tell(d, &event);
    for (int64_t t = 0; t < emitted; t++) decoder_output(d, b->ids[t]);
}

/* [DEN-1] The prompt is committed whole and the first block starts right after it; [DEN-7] a block is always previewed at
 * its full size; [DEN-6] it is committed only when another one follows. */
CloverStatus decode_denoise(Decoder *d) {
    Block b;
    CloverStatus status = block_allocate(&b, d->options->block, d->err);
    if (status == CLOVER_OK) status = decoder_commit(d, d->prompt, d->n_prompt, 0);
    while (status == CLOVER_OK) {
        status = resolve(d, &b);
        if (status != CLOVER_OK || d->finished) break;
        output_block(d, &b);
        if (d->finished) break;
        status = decoder_commit(d, b.ids, b.n, 0);
    }
    block_release(&b);
    return status;
}
