/* model_args.h - the options that every command which opens a model shares, and the opening itself. */
#ifndef CLOVER_MODEL_ARGS_H
#define CLOVER_MODEL_ARGS_H

#include "args.h"

typedef struct ModelArgs {
    const char *path;
    bool mend, as_is;
    int64_t block;                   /* -1: the file's */
    int32_t mask_id;                 /* -1: the file's */
    double threshold;                /* NaN: the file's */
    int head_order;                  /* index in diffusion_head_orders */
    int numerics;                    /* index in numerics_names = CloverNumerics */
    double coreset_top_p;            /* NaN: the file's; -1: off */
} ModelArgs;

extern const char *const numerics_names[];          /* exact, fast, bf16, f32, llama.cpp, NULL: the order of CloverNumerics */
extern const char *const diffusion_head_orders[];   /* file, tiled, grouped, NULL */

ModelArgs model_args_defaults(void);

/* Rows of an ArgOption table. */
#define MODEL_FILE_OPTIONS(m) \
    { .name = "MODEL", .kind = ARG_POSITIONAL, .target = &(m).path, .required = true, \
      .help = "a .gguf (any part of a split one), or a folder with config.json and *.safetensors" }, \
    { .kind = ARG_HEADING, .help = "How the file is read" }, \
    { .name = "mend", .kind = ARG_FLAG, .target = &(m).mend, .excludes = 101, .help = "read a drifted file mended, in memory" }, \
    { .name = "as-is", .kind = ARG_FLAG, .target = &(m).as_is, .excludes = 101, .help = "read a drifted file as a naive loader would, to see its garbage" }, \
    { .name = "block", .kind = ARG_INT, .target = &(m).block, .value = "N", .min = 1, .max = 65536, .help = "block size (the file's, else 32)" }, \
    { .name = "mask-id", .kind = ARG_ID, .target = &(m).mask_id, .value = "ID", .help = "mask token id (the file's, else that of <|mask|>)" }, \
    { .name = "diffusion-heads", .kind = ARG_CHOICE, .target = &(m).head_order, .choices = diffusion_head_orders, .value = "ORDER", \
      .help = "value-head order of a GGUF's diffusion tensors: file (as its key says, else tiled), tiled, grouped" }
#define MODEL_RUN_OPTIONS(m) \
    { .name = "numerics", .kind = ARG_CHOICE, .target = &(m).numerics, .choices = numerics_names, .value = "KIND", \
      .help = "exact (the reference), fast (float32 matrix products); bf16, f32, llama.cpp: exact, rounded where such an engine rounds" }, \
    { .name = "coreset-top-p", .kind = ARG_REAL_OR_OFF, .target = &(m).coreset_top_p, .value = "P|off", .min = 0, .max = 1e9, \
      .help = "expert coreset of previews: its bound, or off (the file's setting)" }

/* Paths are bytes, JSON is UTF-8. */
CloverStatus json_holds_path(const char *path, CloverError *err);

CloverStatus model_args_open(const ModelArgs *m, CloverModel **model, CloverError *err);
CloverStatus model_args_session(const ModelArgs *m, const CloverModel *model, int64_t capacity, CloverSession **session, CloverError *err);

#endif
