/* decode.c - decoding: the frame that the modes share, and autoregression. [AR-1]
 *
 * A mode sees an engine (commit, preview, snapshot, restore), never a model. It turns rows of logits into tokens:
 * controls and mask (controls.h), probabilities in double added in ascending ids, then the argmax or a draw (sample.h).
 * Every step is told to the listener before its tokens go out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "decoder.h"
#include "error.h"
#include "math/rowwise.h"

const DecodeRules decode_rules = {
    .control = { controls_penalise, controls_mask },
    .best = row_argmax, .count_prompt = NULL,
    .block_rows = denoise_block_rows, .confident = denoise_confident, .most_probable = denoise_most_probable, .revise = NULL,
    .keep_block = denoise_keep_block,
    .accept = draft_accept, .rewind = draft_rewind,
};

/* ---- the frame -------------------------------------------------------------------------------------------------- */

double *decoder_row(const Decoder *d, int64_t row) {
    return d->logits + row * d->engine->vocab;
}

CloverStatus decoder_process(Decoder *d, int64_t row, int64_t position, bool think_end_in_block) {
    ControlContext context = { .rules = &d->rules->control, .controls = &d->options->controls, .stops = d->options->stops, .n_stops = d->options->n_stops,
                               .mask_id = d->options->mask_id, .vocab = d->engine->vocab, .counts = d->counts };
    CloverStatus status = controls_process(decoder_row(d, row), &context, position, think_end_in_block, d->err);
    if (status != CLOVER_OK) return status;
    memcpy(d->p, decoder_row(d, row), (size_t)d->engine->vocab * sizeof *d->p);
    softmax(d->p, d->engine->vocab);
    return CLOVER_OK;
}

int32_t decoder_choose(Decoder *d, int64_t row) {
    const CloverDecodeOptions *o = d->options;
    int64_t vocab = d->engine->vocab;
    if (o->temperature == 0) return d->rules->best(decoder_row(d, row), vocab);
    sample_distribution(d->distribution, decoder_row(d, row), vocab, o->temperature, o->top_k, o->top_p, d->ranked);
    return sample_draw(d->distribution, vocab, generator_uniform(&d->generator));
}

CloverStatus decoder_commit(Decoder *d, const int32_t *ids, int64_t n, int64_t rows) {
    return d->engine->commit(d->engine->self, ids, n, rows > 0 ? d->logits : NULL, rows, d->err);
}

CloverStatus decoder_preview(Decoder *d, const int32_t *ids, int64_t n) {
    return d->engine->preview(d->engine->self, ids, n, d->logits, d->err);
}

bool decoder_is_stop(const Decoder *d, int32_t id) {
    for (int64_t i = 0; i < d->options->n_stops; i++) if (d->options->stops[i] == id) return true;
    return false;
}

CloverEvent decoder_event(const Decoder *d, CloverEventKind kind) {
    CloverEvent event;
    memset(&event, 0, sizeof event);
    event.kind = kind;
    event.position = d->engine->position(d->engine->self);
    event.id = event.bonus = -1;
    return event;
}

void decoder_tell(Decoder *d, const CloverEvent *event) {
    if (d->listener && !d->listener(d->user, event)) d->finished = true;
}

/* [AR-3] */
void decoder_output(Decoder *d, int32_t id) {
    if (d->finished) return;
    d->response[d->n_response++] = id;
    d->counts[id]++;
    if (decoder_is_stop(d, id) || d->n_response == d->options->max_tokens) d->finished = true;
    CloverEvent event = decoder_event(d, CLOVER_EVENT_OUTPUT);
    event.id = id;
    decoder_tell(d, &event);
}

/* ---- autoregression --------------------------------------------------------------------------------------------- */

/* [AR-1] Each token from the causal logits of the last row, at position tokens put out + 1 [CTL-8]. The last token is not
 * committed: none is wanted after it. */
CloverStatus decode_ar(Decoder *d) {
    CloverStatus status = decoder_commit(d, d->prompt, d->n_prompt, 1);
    while (status == CLOVER_OK) {
        if ((status = decoder_process(d, 0, d->n_response + 1, false)) != CLOVER_OK) break;
        int32_t id = decoder_choose(d, 0);

        CloverEvent event = decoder_event(d, CLOVER_EVENT_TOKEN);
        event.id = id;
        event.p = d->p[id];
        decoder_tell(d, &event);
        decoder_output(d, id);
        if (d->finished) break;
        status = decoder_commit(d, &id, 1, 1);
    }
    return status;
}

/* ---- the call --------------------------------------------------------------------------------------------------- */

static CloverStatus decoder_allocate(Decoder *d) {
    size_t vocab = (size_t)d->engine->vocab, rows = (size_t)decode_rows(d->options), ids = vocab;
    if (rows > SIZE_MAX / sizeof(double) / vocab)
        return error_set(d->err, CLOVER_SYSTEM, "out of memory: %zu rows of %zu logits", rows, vocab);
    bool drawn = d->options->temperature > 0;
    d->logits = malloc(rows * vocab * sizeof *d->logits);
    d->counts = calloc(ids, sizeof *d->counts);
    d->p = malloc(ids * sizeof *d->p);
    if (drawn) d->distribution = malloc(ids * sizeof *d->distribution);
    if (drawn) d->ranked = malloc(ids * sizeof *d->ranked);
    if (!d->logits || !d->counts || !d->p || (drawn && (!d->distribution || !d->ranked)))
        return error_memory(d->err, "the logits of a step", (rows + 5) * vocab * sizeof(double));
    return CLOVER_OK;
}

static void decoder_release(Decoder *d) {
    free(d->logits);
    free(d->counts);
    free(d->p);
    free(d->distribution);
    free(d->ranked);
}

CloverStatus decode_with_rules(const CloverEngine *engine, const DecodeRules *rules, const CloverDecodeOptions *options, const int32_t *prompt,
                               int64_t n_prompt, CloverListener *listener, void *user, int32_t *out, int64_t *n_out, CloverError *err) {
    *n_out = 0;
    CloverStatus status = decode_check(engine, options, prompt, n_prompt, err);
    if (status != CLOVER_OK) return status;

    Decoder d;
    memset(&d, 0, sizeof d);
    d.engine = engine;
    d.rules = rules;
    d.options = options;
    d.prompt = prompt;
    d.n_prompt = n_prompt;
    d.listener = listener;
    d.user = user;
    d.err = err;
    d.response = out;
    generator_seed(&d.generator, options->seed);

    status = decoder_allocate(&d);
    if (status == CLOVER_OK) {
        if (rules->count_prompt) rules->count_prompt(d.counts, prompt, n_prompt);
        switch (options->mode) {
        case CLOVER_AR: status = decode_ar(&d); break;
        case CLOVER_DENOISE: status = decode_denoise(&d); break;
        case CLOVER_DRAFT: status = decode_draft(&d); break;
        }
    }
    *n_out = d.n_response;
    decoder_release(&d);
    return status;
}

CloverStatus clover_decode(const CloverEngine *engine, const CloverDecodeOptions *options, const int32_t *prompt, int64_t n_prompt,
                           CloverListener *listener, void *user, int32_t *out, int64_t *n_out, CloverError *err) {
    return decode_with_rules(engine, &decode_rules, options, prompt, n_prompt, listener, user, out, n_out, err);
}
