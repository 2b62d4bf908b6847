/* logits.c - clover logits: exact logits and every intermediate value, one safetensors file a step. [PRB-1] */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "../ref/error.h"
#include "model_args.h"
#include "output.h"
#include "record.h"
#include "tools.h"

static int64_t argmax(const double *row, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

/* One step: run it, save OUT/NAME.safetensors, say so in a line. */
static CloverStatus step(Record *r, CloverSession *s, int64_t vocab, const char *name, const ArgIds *ids, bool preview, const char *out, CloverError *err) {
    CloverStatus status = record_step(r, s, vocab, preview, ids->ids, ids->n, err);
    char *path = NULL;
    if (status == CLOVER_OK && out) {
        path = text_format(err, "%s/%s.safetensors", out, name);
        status = path ? record_save(r, path, err) : err->status;
    }
    if (status == CLOVER_OK) {
        const double *last = r->logits + (ids->n - 1) * vocab;
        const int64_t best = argmax(last, vocab);
        printf("%-8s rows %lld  last row's argmax %lld (%.17g)  state %016llx", name, (long long)ids->n, (long long)best, last[best],
               (unsigned long long)clover_session_hash(s));
        if (path) printf("  %lld arrays in %s", (long long)r->n, path);
        putchar('\n');
    }
    free(path);
    return status;
}

int cmd_logits(int argc, char **argv) {
    ModelArgs m = model_args_defaults();
    ArgIds commit = { 0 }, then = { 0 }, preview = { 0 };
    const char *globs = NULL, *out = NULL;
    bool list = false;
    const ArgOption options[] = {
        MODEL_FILE_OPTIONS(m),
        { .kind = ARG_HEADING, .help = "The steps, in this order" },
        { .name = "ids", .kind = ARG_IDS, .target = &commit, .value = "LIST", .required = true, .help = "ids committed as one step, or @FILE: OUT/commit.safetensors" },
        { .name = "then", .kind = ARG_IDS, .target = &then, .value = "LIST", .help = "ids committed after them: OUT/then.safetensors" },
        { .name = "preview", .kind = ARG_IDS, .target = &preview, .value = "LIST", .help = "ids previewed as a block after all commits: OUT/preview.safetensors" },
        { .kind = ARG_HEADING, .help = "What is computed and kept" },
        { .name = "probes", .kind = ARG_STRING, .target = &globs, .value = "GLOB[,GLOB]", .help = "stages to keep beside ids and logits, such as 'L00.*' or '*'" },
        MODEL_RUN_OPTIONS(m),
        { .name = "list", .kind = ARG_FLAG, .target = &list, .help = "print the stages asked for: name, shape, size, first numbers" },
        { .name = "out", .letter = 'o', .kind = ARG_STRING, .target = &out, .value = "OUT", .help = "the folder to write to; files of the same names are replaced" },
    };
    const ArgCommand command = { .name = "logits", .usage = "MODEL --ids LIST [--then LIST] [--preview LIST] (-o OUT | --list)",
        .summary = "Runs single steps from an empty state and writes their logits and the stages asked for, in double.",
        .example = "clover logits tiny.gguf --ids 72,101,108 --preview 261,261,261,261 --probes 'L00.*' -o build/steps",
        .options = options, .n = sizeof options / sizeof *options };
    CloverError err;
    const int code = args_begin(&command, argc, argv, &err);
    if (code != ARGS_GO) return code;
    if (!out && !list) {
        args_free(&command);
        error_set(&err, CLOVER_USAGE, "say where the results go: -o OUT, or --list to print the stages");
        return command_failed("logits", &err);
    }
    if (list && !globs) globs = "*";

    CloverModel *model = NULL;
    CloverSession *session = NULL;
    bool made = false;
    CloverStatus status = model_args_open(&m, &model, &err);
    if (status == CLOVER_OK) status = model_args_session(&m, model, commit.n + then.n > 0 ? commit.n + then.n : 1, &session, &err);
    if (status == CLOVER_OK) status = record_check_globs(globs, clover_model_config(model), &err);
    const int64_t context = model ? clover_model_config(model)->context : 0;
    if (status == CLOVER_OK && commit.n + then.n > context)
        status = error_set(&err, CLOVER_USAGE, "%lld ids exceed the model's context of %lld positions", (long long)(commit.n + then.n), (long long)context);
    const int64_t vocab = model ? clover_model_config(model)->vocab : 0;
    Record r = { .fd = -1 };
    if (status == CLOVER_OK && out) status = output_folder(out, true, &made, &err);
    if (status == CLOVER_OK) status = record_open(&r, globs, list, out, &err);
    if (status == CLOVER_OK) status = step(&r, session, vocab, "commit", &commit, false, out, &err);
    if (status == CLOVER_OK && then.ids) status = step(&r, session, vocab, "then", &then, false, out, &err);
    if (status == CLOVER_OK && preview.ids) status = step(&r, session, vocab, "preview", &preview, true, out, &err);
    record_close(&r);
    if (status != CLOVER_OK && made) rmdir(out);   /* does nothing to a folder that holds a step */
    clover_session_free(session);
    clover_model_close(model);
    args_free(&command);
    return status == CLOVER_OK ? 0 : command_failed("logits", &err);
}
