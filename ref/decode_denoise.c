/* decode_denoise.c - block diffusion, algorithm "low_confidence": a block of masks resolves pass by pass. [DEN-1, DEN-2] */
#include <stdlib.h>
#include "decoder.h"
#include "error.h"

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

/* [DEN-3] */
bool denoise_confident(double p, double threshold) { return p > threshold; }

/* [DEN-4] */
int64_t denoise_most_probable(const CloverCandidate *c, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) if (c[i].p > c[best].p) best = i;
    return best;
}

/* [DEN-3] Fixes every row strictly above the threshold; [DEN-4] when none is, the most probable (equal: the lowest row). */
static void fix_confident(const DecodeRules *rules, Block *b, double threshold) {
    b->n_fixed = 0;
    for (int64_t i = 0; i < b->n_candidates; i++)
        if (rules->confident(b->candidates[i].p, threshold)) fix(b, &b->candidates[i]);
    if (b->n_fixed == 0) fix(b, &b->candidates[rules->most_probable(b->candidates, b->n_candidates)]);
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
        fix_confident(d->rules, b, d->options->threshold);
        if (d->rules->revise && (status = d->rules->revise(d, b)) != CLOVER_OK) return status;
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

/* [DEN-1, DEN-7] Wherever a block begins and however small the budget, it has all its rows. */
int64_t denoise_block_rows(const Decoder *d) { return d->options->block; }

/* [DEN-6] What the previews computed stays out of the state; the causal path computes the block anew. */
CloverStatus denoise_keep_block(Decoder *d, const Block *b) { return decoder_commit(d, b->ids, b->n, 0); }

/* [DEN-1] The prompt is committed whole and the first block starts right after it; [DEN-7] a block is always previewed at
 * its full size; [DEN-6] it is committed only when another one follows. */
CloverStatus decode_denoise(Decoder *d) {
    Block b;
    CloverStatus status = block_allocate(&b, d->options->block, d->err);
    if (status == CLOVER_OK) status = decoder_commit(d, d->prompt, d->n_prompt, 0);
    while (status == CLOVER_OK) {
        b.n = d->rules->block_rows(d);
        status = resolve(d, &b);
        if (status != CLOVER_OK || d->finished) break;
        output_block(d, &b);
        if (d->finished) break;
        status = d->rules->keep_block(d, &b);
    }
    block_release(&b);
    return status;
}
