/* run_args.c - a decode run's options, from the command line to what decoding takes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "run_args.h"

const char *const mode_names[] = { "ar", "denoise", "draft", NULL };

RunArgs run_args_defaults(void) { return (RunArgs){ .model = model_args_defaults(), .decode = { .max_tokens = 128 } }; }

CloverStatus run_args_check(const RunArgs *a, CloverError *err) {
    if (!a->prompt.bytes && !a->chat.bytes && !a->ids.ids) return error_set(err, CLOVER_USAGE, "give a prompt: --prompt TEXT, --chat TEXT or --ids LIST");
    if (!a->chat.bytes && (a->system.bytes || a->think || a->no_think)) return error_set(err, CLOVER_USAGE, "--system, --think and --no-think go with --chat");
    return CLOVER_OK;
}

/* exact, or RATIO,DELTA */
static bool read_accept(const char *text, CloverDecodeOptions *o) {
    if (strcmp(text, "exact") == 0) return o->accept_exact = true;
    char ratio[64];
    const char *comma = strchr(text, ',');
    const size_t length = comma ? (size_t)(comma - text) : sizeof ratio;
    if (length >= sizeof ratio) return false;
    memcpy(ratio, text, length);
    ratio[length] = '\0';
    return arg_real(ratio, &o->ratio) && arg_real(comma + 1, &o->delta);
}

CloverStatus run_args_decode(const RunArgs *a, const CloverConfig *c, CloverDecodeOptions *o, CloverError *err) {
    const CloverDecodeOptions *d = &a->decode;
    *o = clover_decode_defaults(c);
    o->mode = (CloverMode)a->mode;
    o->max_tokens = d->max_tokens;
    if (a->model.block != -1) o->block = a->model.block;
    if (!isnan(a->model.threshold)) o->threshold = a->model.threshold;
    if (a->width) o->width = d->width;
    if (a->temperature) o->temperature = d->temperature;
    if (a->top_k) o->top_k = d->top_k;
    if (a->top_p) o->top_p = d->top_p;
    if (a->seed) o->seed = d->seed;
    const CloverControls *k = &d->controls;
    if (a->presence) o->controls.presence_penalty = k->presence_penalty;
    if (a->frequency) o->controls.frequency_penalty = k->frequency_penalty;
    if (a->repetition) o->controls.repetition_penalty = k->repetition_penalty;
    if (a->length) o->controls.dllm_length_penalty = k->dllm_length_penalty;
    if (a->length_start) o->controls.dllm_length_penalty_start = k->dllm_length_penalty_start;
    if (a->length_window) o->controls.dllm_length_penalty_window = k->dllm_length_penalty_window;
    if (a->think_bias) o->controls.dllm_think_end_bias = k->dllm_think_end_bias;
    if (a->think_start) o->controls.dllm_think_end_start = k->dllm_think_end_start;
    if (a->think_window) o->controls.dllm_think_end_window = k->dllm_think_end_window;
    if (a->think_id) o->controls.dllm_think_end_token_id = k->dllm_think_end_token_id;
    if (!a->accept || read_accept(a->accept, o)) return CLOVER_OK;
    return error_set(err, CLOVER_USAGE, "--accept takes exact, or RATIO,DELTA such as 0.9,0.6; \"%s\" given", a->accept);
}

CloverStatus run_args_prompt(const RunArgs *a, const CloverModel *model, int32_t **ids, int64_t *n, CloverError *err) {
    const CloverTokenizer *t = clover_model_tokenizer(model);
    if (a->ids.ids) {
        *n = a->ids.n;
        *ids = malloc((size_t)*n * sizeof **ids + 1);
        if (!*ids) return error_memory(err, "the prompt", (size_t)*n * sizeof **ids);
        memcpy(*ids, a->ids.ids, (size_t)*n * sizeof **ids);
        return CLOVER_OK;
    }
    if (!t) return error_set(err, CLOVER_UNSUPPORTED, "%s has no tokenizer: give the prompt as --ids", a->model.path);
    if (a->prompt.bytes) return clover_encode(t, a->prompt.bytes, a->prompt.length, true, ids, n, err);

    const CloverMessage messages[2] = { { "system", a->system.bytes }, { "user", a->chat.bytes } };
    char *text = NULL;
    CloverStatus status = a->system.bytes ? clover_chat_text(messages, 2, !a->no_think, &text, err) : clover_chat_text(messages + 1, 1, !a->no_think, &text, err);
    if (status == CLOVER_OK) status = clover_encode(t, text, strlen(text), true, ids, n, err);
    free(text);
    return status;
}

/* A draft round commits its candidates before it knows which stay, and a denoised block is committed whole. */
int64_t run_args_capacity(const CloverDecodeOptions *o, int64_t n_prompt) {
    const int64_t extra = o->mode == CLOVER_AR ? 0 : o->block > 16 ? o->block : 16;
    return n_prompt + o->max_tokens + extra;
}
