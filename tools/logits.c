/* logits.c - clover logits: exact logits and every intermediate value, one safetensors file a step. [PRB-1] */
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "model_args.h"
#include "output.h"
#include "safetensors_write.h"
#include "tools.h"

/* What one step showed. Arrays are copied as they pass. */
typedef struct Record {
    const char *globs;               /* comma-separated; NULL: nothing */
    bool list;                       /* print a line a stage */
    NamedArray *arrays;
    int64_t n, room;
    bool failed;                     /* out of memory */
} Record;

static bool wanted(const char *globs, const char *name) {
    char pattern[256];
    for (const char *g = globs; g && *g;) {
        size_t length = strcspn(g, ",");
        if (length < sizeof pattern) {
            memcpy(pattern, g, length);
            pattern[length] = '\0';
            if (fnmatch(pattern, name, 0) == 0) return true;
        }
        g += length + (g[length] == ',');
    }
    return false;
}

static void record_add(Record *r, const char *name, DType type, const void *data, const int64_t *shape, int dims) {
    if (r->n == r->room) {
        const int64_t room = r->room ? 2 * r->room : 64;
        NamedArray *more = realloc(r->arrays, (size_t)room * sizeof *more);
        if (!more) {
            r->failed = true;
            return;
        }
        r->arrays = more;
        r->room = room;
    }
    NamedArray a = { .type = type, .dims = dims };
    size_t bytes = 8;                /* F64 and I64 alike */
    for (int i = 0; i < dims; i++) {
        a.shape[i] = shape[i];
        bytes *= (size_t)shape[i];
    }
    char *name_copy = malloc(strlen(name) + 1), *copy = malloc(bytes ? bytes : 1);
    if (!name_copy || !copy) {
        free(name_copy);
        free(copy);
        r->failed = true;
        return;
    }
    strcpy(name_copy, name);
    memcpy(copy, data, bytes);
    a.name = name_copy;
    a.data = copy;
    r->arrays[r->n++] = a;
}

/* Name, shape, size and the first numbers of a stage, in the order in which they are computed. */
static void print_stage(const char *name, const double *data, const int64_t *shape, int dims) {
    char text[64];
    size_t used = 0;
    int64_t n = 1;
    double squares = 0;
    for (int i = 0; i < dims && used < sizeof text; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
        n *= shape[i];
    }
    for (int64_t i = 0; i < n; i++) squares += data[i] * data[i];
    printf("  %-22s [%s]%*s rms %-10.4g", name, text, (int)(used < 16 ? 16 - used : 0), "", n ? sqrt(squares / (double)n) : 0.0);
    for (int64_t i = 0; i < n && i < 4; i++) printf(" %10.5g", data[i]);
    printf("%s\n", n > 4 ? " ..." : "");
}

static void record_watch(void *user, const char *name, double *data, const int64_t *shape, int dims) {
    Record *r = user;
    if (!wanted(r->globs, name)) return;
    if (r->list) print_stage(name, data, shape, dims);
    if (strcmp(name, "logits") != 0) record_add(r, name, DT_F64, data, shape, dims);
}

static void record_clear(Record *r) {
    for (int64_t i = 0; i < r->n; i++) {
        free((void *)(uintptr_t)r->arrays[i].name);
        free((void *)(uintptr_t)r->arrays[i].data);
    }
    free(r->arrays);
    *r = (Record){ .globs = r->globs, .list = r->list };
}

static int64_t argmax(const double *row, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

/* One step: run it, save OUT/NAME.safetensors, say so in a line. */
static CloverStatus step(CloverSession *s, const CloverConfig *c, const char *name, const ArgIds *ids, bool preview, const char *globs, bool list,
                         const char *out, CloverError *err) {
    const int64_t n = ids->n;
    Record r = { .globs = globs, .list = list };
    double *logits = NULL;
    size_t bytes;
    if (__builtin_mul_overflow((size_t)n, (size_t)c->vocab * sizeof *logits, &bytes) || !(logits = malloc(bytes)))
        return error_memory(err, "the step's logits", bytes);
    if (globs) clover_session_watch(s, record_watch, &r);
    CloverStatus status = preview ? clover_preview(s, ids->ids, n, logits, err) : clover_commit(s, ids->ids, n, logits, n, err);
    clover_session_watch(s, NULL, NULL);
    if (status == CLOVER_OK) {
        int64_t *wide = malloc((size_t)n * sizeof *wide);
        if (wide) {
            for (int64_t i = 0; i < n; i++) wide[i] = ids->ids[i];
            record_add(&r, "ids", DT_I64, wide, &n, 1);
            record_add(&r, "logits", DT_F64, logits, (int64_t[]){ n, c->vocab }, 2);
        }
        if (!wide || r.failed) status = error_memory(err, "the step's probes", (size_t)n * sizeof(int64_t));
        free(wide);
    }
    char *path = NULL;
    if (status == CLOVER_OK && out) {
        path = text_format(err, "%s/%s.safetensors", out, name);
        status = path ? safetensors_save(path, r.arrays, r.n, NULL, err) : err->status;
    }
    if (status == CLOVER_OK) {
        const int64_t best = argmax(logits + (n - 1) * c->vocab, c->vocab);
        printf("%-8s rows %lld  arrays %lld  last row's argmax %lld (%.17g)  state %016llx  %s\n", name, (long long)n, (long long)r.n, (long long)best,
               logits[(n - 1) * c->vocab + best], (unsigned long long)clover_session_hash(s), path ? path : "");
    }
    free(path);
    record_clear(&r);
    free(logits);
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
    if (status == CLOVER_OK && out) status = output_folder(out, true, &made, &err);
    const CloverConfig *c = model ? clover_model_config(model) : NULL;
    if (status == CLOVER_OK) status = step(session, c, "commit", &commit, false, globs, list, out, &err);
    if (status == CLOVER_OK && then.ids) status = step(session, c, "then", &then, false, globs, list, out, &err);
    if (status == CLOVER_OK && preview.ids) status = step(session, c, "preview", &preview, true, globs, list, out, &err);
    clover_session_free(session);
    clover_model_close(model);
    args_free(&command);
    return status == CLOVER_OK ? 0 : command_failed("logits", &err);
}
