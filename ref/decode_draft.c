/* decode_draft.c - self-speculation: a preview drafts, one causal forward verifies. [DRA-1, DRA-9] */
#include <stdlib.h>
#include "decoder.h"
#include "error.h"
#include "math/elementary.h"

/* [DRA-2] The width is halved while it exceeds the tokens still wanted. */
static int64_t round_width(const Decoder *d) {
    int64_t wanted = d->options->max_tokens - d->n_response, w = decode_draft_width(d->options);
    while (w > 1 && w > wanted) w /= 2;
    return w;
}

/* [DRA-3] One preview of [pending, mask ...] fills the other rows with their argmax, also when tokens are drawn.
 * Row r stands at response position length + r [CTL-8]. The pending token counts as part of the response. */
static CloverStatus propose(Decoder *d, Round *r, int32_t pending) {
    r->draft[0] = pending;
    for (int64_t t = 1; t < r->w; t++) r->draft[t] = d->options->mask_id;
    if (r->w == 1) return CLOVER_OK;
    CloverStatus status = decoder_preview(d, r->draft, r->w);
    for (int64_t t = 1; t < r->w && status == CLOVER_OK; t++) {
        status = decoder_process(d, t, d->n_response + t, false);
        if (status == CLOVER_OK) r->draft[t] = d->rules->best(decoder_row(d, t), d->engine->vocab);
    }
    return status;
}

/* [DRA-5] p(c) >= min(ratio, delta e^-H) and p(c) > 0, or, in exact mode, c is the argmax. The row is processed. */
bool draft_accept(const Decoder *d, int64_t row, const CloverJudged *j) {
    const CloverDecodeOptions *o = d->options;
    if (o->accept_exact) return j->id == d->rules->best(decoder_row(d, row), d->engine->vocab);
    double bound = o->delta * el_exp(-j->entropy);
    if (bound > o->ratio) bound = o->ratio;
    return j->p >= bound && j->p > 0;
}

static CloverJudged judge(const Decoder *d, int64_t row, int32_t candidate) {
    CloverJudged j = { .id = candidate, .p = d->p[candidate], .entropy = row_entropy(d->p, d->engine->vocab) };
    j.accepted = d->rules->accept(d, row, &j);
    return j;
}

/* [DRA-4] Candidates are judged up to the first rejection; [DRA-6] the bonus comes from the row after the last accepted one, so
 * from row `accepted`. Row j stands at response position length + j + 1. A stop id does not end the judging. */
static CloverStatus verify(Decoder *d, Round *r) {
    CloverStatus status = decoder_commit(d, r->draft, r->w, r->w);
    r->n_judged = r->accepted = 0;
    while (status == CLOVER_OK) {
        int64_t row = r->accepted;
        status = decoder_process(d, row, d->n_response + row + 1, false);
        if (status != CLOVER_OK || row == r->w - 1) break;
        CloverJudged verdict = judge(d, row, r->draft[row + 1]);
        r->judged[r->n_judged++] = verdict;
        if (!verdict.accepted) break;
        r->accepted++;
    }
    if (status == CLOVER_OK) r->bonus = decoder_choose(d, r->accepted);
    return status;
}

/* [DRA-7] The state keeps the pending token and the accepted ones. Committing them again after the restore gives the
 * same bits as having committed only them: a causal commit may be split anywhere. */
CloverStatus draft_rewind(Decoder *d, const Round *r, const void *before) {
    CloverStatus status = d->engine->restore(d->engine->self, before, d->err);
    if (status == CLOVER_OK) status = decoder_commit(d, r->draft, r->accepted + 1, 0);
    return status;
}

static void tell_round(Decoder *d, const Round *r, int64_t position) {
    CloverEvent event = decoder_event(d, CLOVER_EVENT_ROUND);
    event.position = position;
    event.ids = r->draft;
    event.n_ids = r->w;
    event.judged = r->judged;
    event.n_judged = r->n_judged;
    event.accepted = r->accepted;
    event.bonus = r->bonus;
    decoder_tell(d, &event);
}

/* [DRA-8] A round puts out what was accepted, then the bonus. */
static CloverStatus run_round(Decoder *d, Round *r, int32_t pending) {
    int64_t position = d->engine->position(d->engine->self);
    void *before = NULL;
    r->w = round_width(d);
    CloverStatus status = propose(d, r, pending);
    if (status == CLOVER_OK && r->w > 1) status = d->engine->snapshot(d->engine->self, &before, d->err);
    if (status == CLOVER_OK) status = verify(d, r);
    if (status == CLOVER_OK && r->accepted + 1 < r->w) status = d->rules->rewind(d, r, before);
    if (before) d->engine->snapshot_free(d->engine->self, before);
    if (status != CLOVER_OK) return status;

    tell_round(d, r, position);
    for (int64_t j = 1; j <= r->accepted; j++) decoder_output(d, r->draft[j]);
    decoder_output(d, r->bonus);
    return CLOVER_OK;
}

/* [DRA-1] The verify of the prompt's last token gives the first output token, which is then pending: output, but not yet
 * committed. The bonus of a round is the next round's pending token; the last round's is never committed. */
static CloverStatus first_token(Decoder *d, int32_t *pending) {
    CloverStatus status = CLOVER_OK;
    if (d->n_prompt > 1) status = decoder_commit(d, d->prompt, d->n_prompt - 1, 0);
    if (status == CLOVER_OK) status = decoder_commit(d, d->prompt + d->n_prompt - 1, 1, 1);
    if (status == CLOVER_OK) status = decoder_process(d, 0, 1, false);
    if (status != CLOVER_OK) return status;
    *pending = decoder_choose(d, 0);

    CloverEvent event = decoder_event(d, CLOVER_EVENT_FIRST);
    event.position = d->n_prompt - 1;
    event.id = *pending;
    event.p = d->p[*pending];
    decoder_tell(d, &event);
    decoder_output(d, *pending);
    return CLOVER_OK;
}

CloverStatus decode_draft(Decoder *d) {
    size_t width = (size_t)decode_draft_width(d->options);
    Round r = { .draft = malloc(width * sizeof *r.draft), .judged = malloc(width * sizeof *r.judged) };
    CloverStatus status = CLOVER_OK;
    if (!r.draft || !r.judged) status = error_memory(d->err, "a draft", width * (sizeof *r.draft + sizeof *r.judged));

    int32_t pending = -1;
    if (status == CLOVER_OK) status = first_token(d, &pending);
    while (status == CLOVER_OK && !d->finished) {
        status = run_round(d, &r, pending);
        pending = r.bonus;
    }
    free(r.draft);
    free(r.judged);
    return status;
}
