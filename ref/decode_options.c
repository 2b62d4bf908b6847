/* decode_options.c - the defaults of decoding, and what its options must satisfy. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "decoder.h"
#include "error.h"

enum { DEFAULT_MAX_TOKENS = 256, DEFAULT_WIDTH = 16 };

CloverDecodeOptions clover_decode_defaults(const CloverConfig *config) {
    CloverDecodeOptions o;
    memset(&o, 0, sizeof o);
    o.mode = CLOVER_AR;
    o.max_tokens = DEFAULT_MAX_TOKENS;
    o.mask_id = config->mask_id;
    memcpy(o.stops, config->stops, sizeof o.stops);
    o.n_stops = config->n_stops;
    o.block = config->block;
    o.threshold = config->threshold;
    o.width = -1;
    o.ratio = 0.9;
    o.delta = 0.6;
    o.top_p = 1;
    o.controls = config->controls;
    return o;
}

int64_t decode_draft_width(const CloverDecodeOptions *o) {
    if (o->width != -1) return o->width;
    return o->block < DEFAULT_WIDTH ? o->block : DEFAULT_WIDTH;
}

int64_t decode_rows(const CloverDecodeOptions *o) {
    if (o->mode == CLOVER_DENOISE) return o->block;
    if (o->mode == CLOVER_DRAFT) return decode_draft_width(o);
    return 1;
}

static void check_finite(CloverError *err, const char *flag, double value) {
    if (!isfinite(value)) error_add(err, CLOVER_USAGE, "--%s is %g; a finite number is needed", flag, value);
}

static void check_ramp(CloverError *err, const char *name, double strength, int64_t window) {
    if (strength != 0 && window < 1)
        error_add(err, CLOVER_USAGE, "--%s-window is %" PRId64 "; a ramp needs at least 1 position", name, window);
}

static void check_controls(const CloverControls *c, int64_t vocab, CloverError *err) {
    check_finite(err, "frequency-penalty", c->frequency_penalty);
    check_finite(err, "presence-penalty", c->presence_penalty);
    if (!isfinite(c->repetition_penalty) || c->repetition_penalty <= 0)
        error_add(err, CLOVER_USAGE, "--repetition-penalty is %g; a finite number above 0 is needed (1 is neutral)", c->repetition_penalty);
    check_finite(err, "dllm-length-penalty", c->dllm_length_penalty);
    check_finite(err, "dllm-think-end-bias", c->dllm_think_end_bias);
    check_ramp(err, "dllm-length-penalty", c->dllm_length_penalty, c->dllm_length_penalty_window);
    check_ramp(err, "dllm-think-end", c->dllm_think_end_bias, c->dllm_think_end_window);
    if (c->dllm_think_end_bias != 0 && (c->dllm_think_end_token_id < 0 || c->dllm_think_end_token_id >= vocab))
        error_add(err, CLOVER_USAGE, "--dllm-think-end-bias needs the id to favour, 0 to %" PRId64 ": --dllm-think-end-token-id is %d",
                  vocab - 1, (int)c->dllm_think_end_token_id);
}

static void check_sampling(const CloverDecodeOptions *o, CloverError *err) {
    if (!isfinite(o->temperature) || o->temperature < 0)
        error_add(err, CLOVER_USAGE, "--temperature is %g; 0 (greedy) or a finite number above it is needed", o->temperature);
    if (o->top_k < 0) error_add(err, CLOVER_USAGE, "--top-k is %" PRId64 "; 0 (off) or more is needed", o->top_k);
    if (!(o->top_p > 0 && o->top_p <= 1))
        error_add(err, CLOVER_USAGE, "--top-p is %g; it must be above 0 and at most 1 (off)", o->top_p);
}

static void check_stops(const CloverDecodeOptions *o, int64_t vocab, CloverError *err) {
    if (o->n_stops < 0 || o->n_stops > CLOVER_MAX_STOPS) {
        error_add(err, CLOVER_USAGE, "%" PRId64 " stop ids; 0 to %d are allowed", o->n_stops, (int)CLOVER_MAX_STOPS);
        return;
    }
    for (int64_t i = 0; i < o->n_stops; i++)
        if (o->stops[i] < 0 || o->stops[i] >= vocab)
            error_add(err, CLOVER_USAGE, "stop id %d is not in the vocabulary (0 to %" PRId64 ")", (int)o->stops[i], vocab - 1);
}

static void check_prompt(const int32_t *prompt, int64_t n_prompt, int64_t vocab, CloverError *err) {
    if (n_prompt < 1 || prompt == NULL) {
        error_add(err, CLOVER_USAGE, "the prompt is empty; at least one token is needed");
        return;
    }
    for (int64_t i = 0; i < n_prompt; i++)
        if (prompt[i] < 0 || prompt[i] >= vocab) {
            error_add(err, CLOVER_USAGE, "prompt token %" PRId64 " is id %d, which is not in the vocabulary (0 to %" PRId64 ")",
                      i, (int)prompt[i], vocab - 1);
            return;                                  /* one line, however long the prompt */
        }
}

/* What the two modes that preview need besides. */
static void check_block_modes(const CloverEngine *engine, const CloverDecodeOptions *o, CloverError *err) {
    const char *mode = o->mode == CLOVER_DENOISE ? "denoise" : "draft";
    if (engine->preview == NULL)
        error_add(err, CLOVER_USAGE, "--mode %s needs previews, which this model cannot run; --mode ar can", mode);
    if (o->mask_id == -1)
        error_add(err, CLOVER_USAGE, "--mode %s needs the mask id, which the model's files do not give: use --mask-id", mode);
    if (o->block < 1)
        error_add(err, CLOVER_USAGE, "--mode %s needs a block of at least 1 row; --block is %" PRId64, mode, o->block);
    if (o->mode == CLOVER_DENOISE) {
        if (isnan(o->threshold)) error_add(err, CLOVER_USAGE, "--threshold is not a number");
        return;
    }
    if (engine->snapshot == NULL || engine->restore == NULL || engine->snapshot_free == NULL)
        error_add(err, CLOVER_USAGE, "--mode draft needs an engine that can take snapshots and restore them");
    if (o->width != -1 && (o->width < 1 || (o->block >= 1 && o->block % o->width != 0)))
        error_add(err, CLOVER_USAGE, "--width is %" PRId64 "; it must divide the block size, %" PRId64, o->width, o->block);
    if (!isfinite(o->ratio) || o->ratio < 0 || !isfinite(o->delta) || o->delta < 0)
        error_add(err, CLOVER_USAGE, "--accept is %g,%g; RATIO,DELTA must be finite and not negative", o->ratio, o->delta);
}

CloverStatus decode_check(const CloverEngine *engine, const CloverDecodeOptions *o, const int32_t *prompt, int64_t n_prompt,
                          CloverError *err) {
    error_clear(err);
    if (engine->vocab < 1) return error_set(err, CLOVER_USAGE, "the engine has a vocabulary of %" PRId64 " ids", engine->vocab);
    if (o->mode != CLOVER_AR && o->mode != CLOVER_DENOISE && o->mode != CLOVER_DRAFT)
        return error_set(err, CLOVER_USAGE, "--mode %d is none of ar, denoise, draft", (int)o->mode);

    if (engine->position(engine->self) != 0)
        error_add(err, CLOVER_USAGE, "decoding starts from an empty state; this one holds %" PRId64 " positions",
                  engine->position(engine->self));
    check_prompt(prompt, n_prompt, engine->vocab, err);
    if (o->max_tokens < 1) error_add(err, CLOVER_USAGE, "-n is %" PRId64 "; at least 1 token is needed", o->max_tokens);
    if (o->mask_id < -1 || o->mask_id >= engine->vocab)
        error_add(err, CLOVER_USAGE, "--mask-id is %d, which is not in the vocabulary (0 to %" PRId64 ")",
                  (int)o->mask_id, engine->vocab - 1);
    check_stops(o, engine->vocab, err);
    check_controls(&o->controls, engine->vocab, err);
    check_sampling(o, err);
    if (o->mode != CLOVER_AR) check_block_modes(engine, o, err);
    return err->status;
}
