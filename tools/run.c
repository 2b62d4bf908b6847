/* run.c - clover run: answers a prompt in one of the three modes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "../ref/error.h"
#include "../ref/trace.h"
#include "model_args.h"
#include "show.h"
#include "tools.h"


static const char *const mode_names[] = { "ar", "denoise", "draft", NULL };   /* the order of CloverMode */

typedef struct RunArgs {
    ModelArgs model;
    ArgText prompt, chat, system;
    ArgIds ids;
    int mode;
    CloverDecodeOptions decode;      /* the command line's values; `given` says which count */
    const char *accept;
    bool no_think, think, steps, json;
    bool width, temperature, top_k, top_p, seed;
    bool presence, frequency, repetition, length, length_start, length_window, think_bias, think_start, think_window, think_id;
} RunArgs;

/* What the answer is shown with, while it comes. */
typedef struct Show {
    const RunArgs *args;
    const CloverTokenizer *tokenizer;
    CloverUtf8Stream stream;
    bool redraw;                     /* denoising on a terminal: the block is drawn again after every pass */
    bool out_of_memory;
    int32_t mask_id;
    json_t *steps;
    int64_t forwards;                /* passes, rounds or tokens */
    struct timespec first;           /* when the first token of the answer came */
} Show;

static double seconds_between(struct timespec a, struct timespec b) { return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec); }

static void show_bytes(Show *s, const char *bytes, size_t length, bool end) {
    char small[3 * 64 + 16], *out = length <= 64 ? small : malloc(3 * length + 16);
    if (!out) {
        s->out_of_memory = true;
        return;
    }
    fwrite(out, 1, clover_utf8_feed(&s->stream, bytes, length, end, out), stdout);
    fflush(stdout);
    if (out != small) free(out);
}

/* Saves the cursor once a block, returns to it and draws the block as it is. The terminal's own save slot is enough:
 * room below is made first, so that drawing does not scroll. */
static void redraw_block(const CloverEvent *e, const Show *s) {
    if (e->pass == 0) fputs("\n\n\n\n\033[4A\0337", stdout);
    fputs("\0338\033[J\033[2m", stdout);
    for (int64_t i = 0; i < e->n_ids; i++) {
        char *text = e->ids[i] == s->mask_id ? NULL : text_of(s->tokenizer, &e->ids[i], 1);
        fputs(text && *text ? text : "\xC2\xB7", stdout);
        free(text);
    }
    fputs("\033[0m", stdout);
    fflush(stdout);
}

static bool on_event(void *user, const CloverEvent *e) {
    Show *s = user;
    if (e->kind == CLOVER_EVENT_OUTPUT) {
        if (s->first.tv_sec == 0) clock_gettime(CLOCK_MONOTONIC, &s->first);
        if (s->args->json || s->args->steps || clover_token_is_special(s->tokenizer, e->id)) return !s->out_of_memory;
        if (!s->tokenizer) printf("%d ", (int)e->id);
        size_t length = 0;
        const char *bytes = s->tokenizer ? clover_token_bytes(s->tokenizer, e->id, &length) : NULL;
        if (bytes) show_bytes(s, bytes, length, false);
        else fflush(stdout);
        return !s->out_of_memory;
    }
    if (e->kind == CLOVER_EVENT_PASS || e->kind == CLOVER_EVENT_ROUND || e->kind == CLOVER_EVENT_TOKEN) s->forwards++;
    if (s->args->steps) show_step(stdout, e, s->tokenizer, s->mask_id);
    if (s->args->json && json_array_append_new(s->steps, trace_step(e)) != 0) s->out_of_memory = true;
    if (s->redraw && e->kind == CLOVER_EVENT_PASS) redraw_block(e, s);
    if (s->redraw && e->kind == CLOVER_EVENT_BLOCK) fputs("\0338\033[J", stdout);   /* the text itself follows */
    return !s->out_of_memory;
}

/* The file's decode options with the command line's on top. */
static CloverStatus decode_options(const RunArgs *a, const CloverConfig *c, CloverDecodeOptions *o, CloverError *err) {
    const CloverDecodeOptions *d = &a->decode;
    *o = clover_decode_defaults(c);
    o->mode = (CloverMode)a->mode;
    o->max_tokens = d->max_tokens;
    if (a->width) o->width = d->width;
    if (a->temperature) o->temperature = d->temperature;
    if (a->top_k) o->top_k = d->top_k;
    if (a->top_p) o->top_p = d->top_p;
    if (a->seed) o->seed = d->seed;
    if (!isnan(a->model.threshold)) o->threshold = a->model.threshold;
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
    if (!a->accept) return CLOVER_OK;
    if (strcmp(a->accept, "exact") == 0) {
        o->accept_exact = true;
        return CLOVER_OK;
    }
    char ratio[64];
    const char *comma = strchr(a->accept, ',');
    const size_t length = comma ? (size_t)(comma - a->accept) : sizeof ratio;
    if (length < sizeof ratio) {
        memcpy(ratio, a->accept, length);
        ratio[length] = '\0';
        if (arg_real(ratio, &o->ratio) && arg_real(comma + 1, &o->delta)) return CLOVER_OK;
    }
    return error_set(err, CLOVER_USAGE, "--accept takes exact, or RATIO,DELTA such as 0.9,0.6; \"%s\" given", a->accept);
}

/* The prompt's ids, malloc'ed. */
static CloverStatus prompt_ids(const RunArgs *a, const CloverModel *model, int32_t **ids, int64_t *n, CloverError *err) {
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

static CloverStatus print_json(const Show *s, const RunArgs *a, const int32_t *prompt, int64_t n_prompt, const int32_t *out, int64_t n, bool stopped,
                               double opening, double total, double to_first, CloverError *err) {
    json_t *prompt_array = json_array(), *tokens = json_array();
    for (int64_t i = 0; i < n_prompt; i++) json_array_append_new(prompt_array, json_integer(prompt[i]));
    for (int64_t i = 0; i < n; i++) json_array_append_new(tokens, json_integer(out[i]));
    char *text = s->tokenizer ? text_of(s->tokenizer, out, n) : NULL;
    json_t *all = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s, s:O, s:{s:f, s:f, s:f, s:I}}", "model", a->model.path, "mode", mode_names[a->mode],
                            "numerics", numerics_names[a->model.numerics], "prompt", prompt_array, "tokens", tokens,
                            "text", text ? json_string(text) : json_null(), "finish", stopped ? "stop" : "length", "steps", s->steps,
                            "timings", "open_seconds", opening, "first_token_seconds", to_first, "total_seconds", total, "forwards", (json_int_t)s->forwards);
    free(text);
    if (!all || json_dumpf(all, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17)) != 0) {
        json_decref(all);
        return error_set(err, CLOVER_SYSTEM, "cannot write the result as JSON (out of memory, or standard output is full)");
    }
    putchar('\n');
    json_decref(all);
    return CLOVER_OK;
}

static CloverStatus answer(const RunArgs *a, CloverError *err) {
    struct timespec start, opened, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    CloverModel *model = NULL;
    CloverSession *session = NULL;
    CloverDecodeOptions o;
    int32_t *prompt = NULL, *out = NULL;
    int64_t n_prompt = 0, n = 0;
    CloverStatus status = model_args_open(&a->model, &model, err);
    if (status == CLOVER_OK && a->mode != CLOVER_AR) status = clover_model_can_preview(model, err);
    if (status == CLOVER_OK) status = decode_options(a, clover_model_config(model), &o, err);
    if (status == CLOVER_OK) status = prompt_ids(a, model, &prompt, &n_prompt, err);
    const CloverConfig *c = model ? clover_model_config(model) : NULL;
    /* Rows to hold: prompt and answer; a draft round commits its candidates before it knows which stay, and a denoised
     * block is committed whole. */
    const int64_t extra = status != CLOVER_OK || o.mode == CLOVER_AR ? 0 : o.block > 16 ? o.block : 16;
    if (status == CLOVER_OK && n_prompt + o.max_tokens > c->context)
        status = error_set(err, CLOVER_USAGE, "a prompt of %lld tokens and -n %lld exceed the model's context of %lld positions",
                           (long long)n_prompt, (long long)o.max_tokens, (long long)c->context);
    if (status == CLOVER_OK) status = model_args_session(&a->model, model, n_prompt + o.max_tokens + extra, &session, err);
    if (status == CLOVER_OK && !(out = malloc((size_t)o.max_tokens * sizeof *out))) status = error_memory(err, "the answer", (size_t)o.max_tokens * sizeof *out);
    clock_gettime(CLOCK_MONOTONIC, &opened);
    if (status == CLOVER_OK) {
        Show show = { .args = a, .tokenizer = clover_model_tokenizer(model), .mask_id = o.mask_id, .steps = json_array() };
        show.redraw = o.mode == CLOVER_DENOISE && !a->json && !a->steps && show.tokenizer && isatty(STDOUT_FILENO);
        const CloverEngine engine = clover_session_engine(session);
        status = clover_decode(&engine, &o, prompt, n_prompt, on_event, &show, out, &n, err);
        if (status == CLOVER_OK && show.out_of_memory) status = error_memory(err, "the trace", 0);
        clock_gettime(CLOCK_MONOTONIC, &end);
        bool stopped = false;
        for (int64_t i = 0; n > 0 && i < o.n_stops; i++) stopped |= out[n - 1] == o.stops[i];
        const double opening = seconds_between(start, opened), total = seconds_between(start, end), to_first = show.first.tv_sec ? seconds_between(start, show.first) : total;
        if (status == CLOVER_OK && a->json) status = print_json(&show, a, prompt, n_prompt, out, n, stopped, opening, total, to_first, err);
        if (!a->json && !a->steps) {
            show_bytes(&show, "", 0, true);
            putchar('\n');
        }
        if (status == CLOVER_OK && a->steps && show.tokenizer) {
            char *text = text_of(show.tokenizer, out, n);
            printf("answer %s\n", text ? text : "");
            free(text);
        }
        if (status == CLOVER_OK && isatty(STDERR_FILENO) && !a->json)
            fprintf(stderr, "%lld tokens in %.2f s (%.2f tokens/s after opening), %lld %s, ended by %s\n", (long long)n, total,
                    (double)n / (total - opening), (long long)show.forwards,
                    o.mode == CLOVER_DENOISE ? "passes" : o.mode == CLOVER_DRAFT ? "rounds" : "steps", stopped ? "a stop token" : "the budget -n");
        json_decref(show.steps);
    }
    free(prompt);
    free(out);
    clover_session_free(session);
    clover_model_close(model);
    return status;
}

int cmd_run(int argc, char **argv) {
    RunArgs a = { .model = model_args_defaults(), .decode = { .max_tokens = 128 } };
    CloverDecodeOptions *d = &a.decode;
    CloverControls *k = &d->controls;
    const ArgOption options[] = {
        MODEL_FILE_OPTIONS(a.model),
        { .kind = ARG_HEADING, .help = "The prompt, one of" },
        { .name = "prompt", .letter = 'p', .kind = ARG_TEXT, .target = &a.prompt, .value = "TEXT", .excludes = 102, .help = "plain text, or @FILE; special tokens in it are recognised" },
        { .name = "chat", .letter = 'c', .kind = ARG_TEXT, .target = &a.chat, .value = "TEXT", .excludes = 102, .help = "a user's turn, in the chat form" },
        { .name = "ids", .kind = ARG_IDS, .target = &a.ids, .value = "LIST", .excludes = 102, .help = "token ids: 1,2,3, or @FILE" },
        { .name = "system", .kind = ARG_TEXT, .target = &a.system, .value = "TEXT", .help = "with --chat: a system turn before it" },
        { .name = "think", .kind = ARG_FLAG, .target = &a.think, .excludes = 103, .help = "with --chat: leave the thinking open (default)" },
        { .name = "no-think", .kind = ARG_FLAG, .target = &a.no_think, .excludes = 103, .help = "with --chat: closed, empty thinking" },
        { .kind = ARG_HEADING, .help = "How the answer is made" },
        { .name = "mode", .letter = 'm', .kind = ARG_CHOICE, .target = &a.mode, .choices = mode_names, .value = "MODE", .help = "ar (token by token, default), denoise (block by block), draft (self-speculation)" },
        { .name = "max-tokens", .letter = 'n', .kind = ARG_INT, .target = &d->max_tokens, .value = "N", .min = 1, .max = 1 << 24, .help = "token budget (128)" },
        { .name = "threshold", .kind = ARG_REAL, .target = &a.model.threshold, .value = "P", .min = 0, .max = 1e9, .help = "denoise: fix rows above this probability (the file's, else 0.95)" },
        { .name = "width", .kind = ARG_INT, .target = &d->width, .given = &a.width, .value = "N", .min = 1, .max = 65536, .help = "draft: candidates a round; divides the block size (16)" },
        { .name = "accept", .kind = ARG_STRING, .target = &a.accept, .value = "RULE", .help = "draft: exact, or RATIO,DELTA (0.9,0.6)" },
        MODEL_RUN_OPTIONS(a.model),
        { .kind = ARG_HEADING, .help = "Sampling (greedy unless --temperature is above 0)" },
        { .name = "temperature", .kind = ARG_REAL, .target = &d->temperature, .given = &a.temperature, .value = "T", .min = 0, .max = 1e6, .help = "0: greedy" },
        { .name = "top-k", .kind = ARG_INT, .target = &d->top_k, .given = &a.top_k, .value = "K", .min = 0, .max = 1e9, .help = "0: off" },
        { .name = "top-p", .kind = ARG_REAL, .target = &d->top_p, .given = &a.top_p, .value = "P", .min = 0, .max = 1, .help = "1: off" },
        { .name = "seed", .kind = ARG_SEED, .target = &d->seed, .given = &a.seed, .value = "N", .help = "of the generator (0)" },
        { .kind = ARG_HEADING, .help = "Response controls (the file's generation_config, else neutral)" },
        { .name = "presence-penalty", .kind = ARG_REAL, .target = &k->presence_penalty, .given = &a.presence, .value = "X", .help = "0: neutral" },
        { .name = "frequency-penalty", .kind = ARG_REAL, .target = &k->frequency_penalty, .given = &a.frequency, .value = "X", .help = "0: neutral" },
        { .name = "repetition-penalty", .kind = ARG_REAL, .target = &k->repetition_penalty, .given = &a.repetition, .value = "X", .help = "1: neutral" },
        { .name = "dllm-length-penalty", .kind = ARG_REAL, .target = &k->dllm_length_penalty, .given = &a.length, .value = "X", .help = "added to stop tokens, along a ramp" },
        { .name = "dllm-length-penalty-start", .kind = ARG_INT, .target = &k->dllm_length_penalty_start, .given = &a.length_start, .value = "N", .min = 0, .max = 1e15, .help = "(8192)" },
        { .name = "dllm-length-penalty-window", .kind = ARG_INT, .target = &k->dllm_length_penalty_window, .given = &a.length_window, .value = "N", .min = 1, .max = 1e15, .help = "(8192)" },
        { .name = "dllm-think-end-bias", .kind = ARG_REAL, .target = &k->dllm_think_end_bias, .given = &a.think_bias, .value = "X", .help = "added to the end of thinking, along a ramp" },
        { .name = "dllm-think-end-start", .kind = ARG_INT, .target = &k->dllm_think_end_start, .given = &a.think_start, .value = "N", .min = 0, .max = 1e15, .help = "(4096)" },
        { .name = "dllm-think-end-window", .kind = ARG_INT, .target = &k->dllm_think_end_window, .given = &a.think_window, .value = "N", .min = 1, .max = 1e15, .help = "(4096)" },
        { .name = "dllm-think-end-token-id", .kind = ARG_ID, .target = &k->dllm_think_end_token_id, .given = &a.think_id, .value = "ID", .help = "the id of </think>" },
        { .kind = ARG_HEADING, .help = "What is shown" },
        { .name = "steps", .kind = ARG_FLAG, .target = &a.steps, .excludes = 104, .help = "one line per token, pass or round, then the answer" },
        { .name = "json", .kind = ARG_FLAG, .target = &a.json, .excludes = 104, .help = "one JSON object: tokens, text, steps, timings" },
    };
    const ArgCommand command = { .name = "run", .usage = "MODEL (--prompt TEXT | --chat TEXT | --ids LIST) [options]",
        .summary = "Answers a prompt, writing the text as it comes; a denoising block is redrawn as it resolves.",
        .example = "clover run model.gguf --chat 'What is the capital of Australia?' --mode denoise --no-think -n 64",
        .options = options, .n = sizeof options / sizeof *options };
    CloverError err;
    const int code = args_begin(&command, argc, argv, &err);
    if (code != ARGS_GO) return code;

    CloverStatus status = CLOVER_OK;
    if (!a.prompt.bytes && !a.chat.bytes && !a.ids.ids) status = error_set(&err, CLOVER_USAGE, "give a prompt: --prompt TEXT, --chat TEXT or --ids LIST");
    else if (!a.chat.bytes && (a.system.bytes || a.think || a.no_think)) status = error_set(&err, CLOVER_USAGE, "--system, --think and --no-think go with --chat");
    else status = answer(&a, &err);
    args_free(&command);
    return status == CLOVER_OK ? 0 : command_failed("run", &err);
}
