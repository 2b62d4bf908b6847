/* run.c - clover run: answers a prompt in one of the three modes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "../ref/error.h"
#include "../ref/trace.h"
#include "run_args.h"
#include "show.h"
#include "tools.h"

typedef struct RunCommand {
    RunArgs run;
    bool steps, json;
} RunCommand;

/* What the answer is shown with, while it comes. */
typedef struct Show {
    const RunCommand *args;
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

static CloverStatus answer(const RunCommand *command, CloverError *err) {
    const RunArgs *a = &command->run;
    struct timespec start, opened, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    CloverModel *model = NULL;
    CloverSession *session = NULL;
    CloverDecodeOptions o;
    int32_t *prompt = NULL, *out = NULL;
    int64_t n_prompt = 0, n = 0;
    CloverStatus status = model_args_open(&a->model, &model, err);
    if (status == CLOVER_OK && a->mode != CLOVER_AR) status = clover_model_can_preview(model, err);
    if (status == CLOVER_OK) status = run_args_decode(a, clover_model_config(model), &o, err);
    if (status == CLOVER_OK) status = run_args_prompt(a, model, &prompt, &n_prompt, err);
    const CloverConfig *c = model ? clover_model_config(model) : NULL;
    if (status == CLOVER_OK && n_prompt + o.max_tokens > c->context)
        status = error_set(err, CLOVER_USAGE, "a prompt of %lld tokens and -n %lld exceed the model's context of %lld positions",
                           (long long)n_prompt, (long long)o.max_tokens, (long long)c->context);
    if (status == CLOVER_OK) status = model_args_session(&a->model, model, run_args_capacity(&o, n_prompt), &session, err);
    if (status == CLOVER_OK && !(out = malloc((size_t)o.max_tokens * sizeof *out))) status = error_memory(err, "the answer", (size_t)o.max_tokens * sizeof *out);
    clock_gettime(CLOCK_MONOTONIC, &opened);
    if (status == CLOVER_OK) {
        Show show = { .args = command, .tokenizer = clover_model_tokenizer(model), .mask_id = o.mask_id, .steps = json_array() };
        show.redraw = o.mode == CLOVER_DENOISE && !command->json && !command->steps && show.tokenizer && isatty(STDOUT_FILENO);
        const CloverEngine engine = clover_session_engine(session);
        status = clover_decode(&engine, &o, prompt, n_prompt, on_event, &show, out, &n, err);
        if (status == CLOVER_OK && show.out_of_memory) status = error_memory(err, "the trace", 0);
        clock_gettime(CLOCK_MONOTONIC, &end);
        bool stopped = false;
        for (int64_t i = 0; n > 0 && i < o.n_stops; i++) stopped |= out[n - 1] == o.stops[i];
        const double opening = seconds_between(start, opened), total = seconds_between(start, end), to_first = show.first.tv_sec ? seconds_between(start, show.first) : total;
        if (status == CLOVER_OK && command->json) status = print_json(&show, a, prompt, n_prompt, out, n, stopped, opening, total, to_first, err);
        if ((status == CLOVER_OK || n > 0) && !command->json && !command->steps) {
            show_bytes(&show, "", 0, true);
            putchar('\n');
        }
        if (status == CLOVER_OK && command->steps && show.tokenizer) {
            char *text = text_of(show.tokenizer, out, n);
            printf("answer %s\n", text ? text : "");
            free(text);
        }
        if (status == CLOVER_OK && isatty(STDERR_FILENO) && !command->json)
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

/* A flag that the mode would ignore is a mistake; so is JSON of a path that JSON cannot hold. */
static CloverStatus flags_fit(const RunCommand *c, CloverError *err) {
    const RunArgs *a = &c->run;
    if (!isnan(a->model.threshold) && a->mode != CLOVER_DENOISE) return error_set(err, CLOVER_USAGE, "--threshold goes with --mode denoise");
    if ((a->width || a->accept) && a->mode != CLOVER_DRAFT) return error_set(err, CLOVER_USAGE, "%s goes with --mode draft", a->width ? "--width" : "--accept");
    if ((a->seed || a->top_k || a->top_p) && !(a->temperature && a->decode.temperature > 0))
        return error_set(err, CLOVER_USAGE, "%s goes with --temperature above 0: without it every choice is the best one", a->seed ? "--seed" : a->top_k ? "--top-k" : "--top-p");
    return c->json ? json_holds_path(a->model.path, err) : CLOVER_OK;
}

int cmd_run(int argc, char **argv) {
    RunCommand a = { .run = run_args_defaults() };
    const ArgOption options[] = {
        MODEL_FILE_OPTIONS(a.run.model),
        RUN_PROMPT_OPTIONS(a.run),
        RUN_MODE_OPTIONS(a.run),
        MODEL_RUN_OPTIONS(a.run.model),
        RUN_SAMPLING_OPTIONS(a.run),
        RUN_CONTROL_OPTIONS(a.run),
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

    CloverStatus status = run_args_check(&a.run, &err);
    if (status == CLOVER_OK) status = flags_fit(&a, &err);
    if (status == CLOVER_OK) status = answer(&a, &err);
    args_free(&command);
    return status == CLOVER_OK ? 0 : command_failed("run", &err);
}
