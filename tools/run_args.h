/* run_args.h - what a decode run is asked for: from the command line (clover run, clover golden) or from a case's JSON. */
#ifndef CLOVER_RUN_ARGS_H
#define CLOVER_RUN_ARGS_H

#include <jansson.h>
#include "model_args.h"

typedef struct RunArgs {
    ModelArgs model;
    ArgText prompt, chat, system;
    ArgIds ids;
    int mode;                        /* index in mode_names = CloverMode */
    CloverDecodeOptions decode;      /* the caller's values; what stands below says which count */
    const char *accept;              /* exact, or RATIO,DELTA; NULL: not given */
    bool no_think, think;
    bool width, temperature, top_k, top_p, seed;
    bool presence, frequency, repetition, length, length_start, length_window, think_bias, think_start, think_window, think_id;
} RunArgs;

extern const char *const mode_names[];   /* ar, denoise, draft, NULL */

RunArgs run_args_defaults(void);

/* Rows of an ArgOption table. */
#define RUN_PROMPT_OPTIONS(a) \
    { .kind = ARG_HEADING, .help = "The prompt, one of" }, \
    { .name = "prompt", .letter = 'p', .kind = ARG_TEXT, .target = &(a).prompt, .value = "TEXT", .excludes = 102, .help = "plain text, or @FILE; special tokens in it are recognised" }, \
    { .name = "chat", .letter = 'c', .kind = ARG_TEXT, .target = &(a).chat, .value = "TEXT", .excludes = 102, .help = "a user's turn, in the chat form" }, \
    { .name = "ids", .kind = ARG_IDS, .target = &(a).ids, .value = "LIST", .excludes = 102, .help = "token ids: 1,2,3, or @FILE" }, \
    { .name = "system", .kind = ARG_TEXT, .target = &(a).system, .value = "TEXT", .help = "with --chat: a system turn before it" }, \
    { .name = "think", .kind = ARG_FLAG, .target = &(a).think, .excludes = 103, .help = "with --chat: leave the thinking open (default)" }, \
    { .name = "no-think", .kind = ARG_FLAG, .target = &(a).no_think, .excludes = 103, .help = "with --chat: closed, empty thinking" }
#define RUN_MODE_OPTIONS(a) \
    { .kind = ARG_HEADING, .help = "How the answer is made" }, \
    { .name = "mode", .letter = 'm', .kind = ARG_CHOICE, .target = &(a).mode, .choices = mode_names, .value = "MODE", .help = "ar (token by token, default), denoise (block by block), draft (self-speculation)" }, \
    { .name = "max-tokens", .letter = 'n', .kind = ARG_INT, .target = &(a).decode.max_tokens, .value = "N", .min = 1, .max = 1 << 24, .help = "token budget (128)" }, \
    { .name = "threshold", .kind = ARG_REAL, .target = &(a).model.threshold, .value = "P", .min = 0, .max = 1e9, .help = "denoise: fix rows above this probability (the file's, else 0.95)" }, \
    { .name = "width", .kind = ARG_INT, .target = &(a).decode.width, .given = &(a).width, .value = "N", .min = 1, .max = 65536, .help = "draft: candidates a round; divides the block size (16)" }, \
    { .name = "accept", .kind = ARG_STRING, .target = &(a).accept, .value = "RULE", .help = "draft: exact, or RATIO,DELTA (0.9,0.6)" }
#define RUN_SAMPLING_OPTIONS(a) \
    { .kind = ARG_HEADING, .help = "Sampling (greedy unless --temperature is above 0)" }, \
    { .name = "temperature", .kind = ARG_REAL, .target = &(a).decode.temperature, .given = &(a).temperature, .value = "T", .min = 0, .max = 1e6, .help = "0: greedy" }, \
    { .name = "top-k", .kind = ARG_INT, .target = &(a).decode.top_k, .given = &(a).top_k, .value = "K", .min = 0, .max = 1e9, .help = "0: off" }, \
    { .name = "top-p", .kind = ARG_REAL, .target = &(a).decode.top_p, .given = &(a).top_p, .value = "P", .min = 0, .max = 1, .help = "1: off" }, \
    { .name = "seed", .kind = ARG_SEED, .target = &(a).decode.seed, .given = &(a).seed, .value = "N", .help = "of the generator (0)" }
#define RUN_CONTROL(a, flag, kind_, field, given_, value_, min_, max_, help_) \
    { .name = flag, .kind = kind_, .target = &(a).decode.controls.field, .given = &(a).given_, .value = value_, .min = min_, .max = max_, .help = help_ }
#define RUN_CONTROL_OPTIONS(a) \
    { .kind = ARG_HEADING, .help = "Response controls (the file's generation_config, else neutral)" }, \
    RUN_CONTROL(a, "presence-penalty", ARG_REAL, presence_penalty, presence, "X", 0, 0, "0: neutral"), \
    RUN_CONTROL(a, "frequency-penalty", ARG_REAL, frequency_penalty, frequency, "X", 0, 0, "0: neutral"), \
    RUN_CONTROL(a, "repetition-penalty", ARG_REAL, repetition_penalty, repetition, "X", 0, 0, "1: neutral"), \
    RUN_CONTROL(a, "dllm-length-penalty", ARG_REAL, dllm_length_penalty, length, "X", 0, 0, "added to stop tokens, along a ramp"), \
    RUN_CONTROL(a, "dllm-length-penalty-start", ARG_INT, dllm_length_penalty_start, length_start, "N", 0, 1e15, "(8192)"), \
    RUN_CONTROL(a, "dllm-length-penalty-window", ARG_INT, dllm_length_penalty_window, length_window, "N", 1, 1e15, "(8192)"), \
    RUN_CONTROL(a, "dllm-think-end-bias", ARG_REAL, dllm_think_end_bias, think_bias, "X", 0, 0, "added to the end of thinking, along a ramp"), \
    RUN_CONTROL(a, "dllm-think-end-start", ARG_INT, dllm_think_end_start, think_start, "N", 0, 1e15, "(4096)"), \
    RUN_CONTROL(a, "dllm-think-end-window", ARG_INT, dllm_think_end_window, think_window, "N", 1, 1e15, "(4096)"), \
    RUN_CONTROL(a, "dllm-think-end-token-id", ARG_ID, dllm_think_end_token_id, think_id, "ID", 0, 0, "the id of </think>")

/* Exactly one prompt, and --system and the like only with --chat; else CLOVER_USAGE. */
CloverStatus run_args_check(const RunArgs *a, CloverError *err);

/* The file's decode options with the caller's on top. */
CloverStatus run_args_decode(const RunArgs *a, const CloverConfig *c, CloverDecodeOptions *o, CloverError *err);

/* The prompt's ids, malloc'ed. */
CloverStatus run_args_prompt(const RunArgs *a, const CloverModel *model, int32_t **ids, int64_t *n, CloverError *err);

/* Positions that a run's state must have room for: prompt, answer, and what a round or block commits beyond them. */
int64_t run_args_capacity(const CloverDecodeOptions *o, int64_t n_prompt);

/* ---- a case's form: {"prompt": {"text" | "chat" [, "system"] | "ids"}, "mode", "n", "options", "controls"} ---- */

/* Reads these members of object; each problem is a line of *err (CLOVER_BAD_INPUT) that begins with where. vocab -1:
 * any id. What a points to is borrowed from object, but for a->ids.ids: free it. */
void run_args_from_json(RunArgs *a, const json_t *object, const char *where, int64_t vocab, CloverError *err);

/* The options of a case of steps: only coreset_top_p has a meaning there. */
void run_args_steps_options(RunArgs *a, const json_t *object, const char *where, CloverError *err);

/* The same members, only what was given; NULL: no memory. */
json_t *run_args_to_json(const RunArgs *a);

#endif
