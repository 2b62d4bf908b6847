/* golden.c - clover golden: a bundle of expected values, written, checked, joined. [BND-1] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "golden.h"
#include "json_check.h"
#include "output.h"
#include "tools.h"

typedef struct GoldenArgs {
    RunArgs run;
    const char *cases, *out, *name, *why, *probes, *shard;
    ArgIds then, preview;
    bool steps, full_hash, force;
} GoldenArgs;

/* ---- one case from the command line -------------------------------------------------------------------------------- */

static json_t *step_json(const char *name, const char *kind, const ArgIds *ids) {
    const BundleStep step = { .name = name, .kind = strcmp(kind, "preview") == 0 ? STEP_PREVIEW : STEP_COMMIT, .ids = ids->ids, .n = ids->n };
    return case_step_json(&step);
}

/* --ids, --then and --preview as clover logits has them. */
static json_t *steps_case(const GoldenArgs *a) {
    json_t *steps = json_array();
    int failed = 0;
    if (a->run.ids.ids) failed |= json_array_append_new(steps, step_json("commit", "commit", &a->run.ids));
    if (a->then.ids) failed |= json_array_append_new(steps, step_json("then", "commit", &a->then));
    if (a->preview.ids) failed |= json_array_append_new(steps, step_json("preview", "preview", &a->preview));
    json_t *c = json_pack("{s:o}", "steps", steps);
    if (!isnan(a->run.model.coreset_top_p))
        failed |= json_object_set_new(c, "options", json_pack("{s:o}", "coreset_top_p", a->run.model.coreset_top_p < 0 ? json_string("off") : json_real(a->run.model.coreset_top_p)));
    if (failed == 0) return c;
    json_decref(c);
    return NULL;
}

static json_t *probes_json(const char *globs) {
    json_t *list = json_array();
    for (const char *g = globs; *g;) {
        const size_t length = strcspn(g, ",");
        if (length) json_array_append_new(list, json_stringn(g, length));
        g += length + (g[length] == ',');
    }
    return list;
}

static CloverStatus case_of_flags(const GoldenArgs *a, json_t **cases, CloverError *err) {
    const bool steps = a->steps || a->then.ids || a->preview.ids;
    json_t *c = steps ? steps_case(a) : run_args_to_json(&a->run);
    int failed = c == NULL;
    failed |= json_object_set_new(c, "name", json_string(a->name ? a->name : steps ? "steps" : mode_names[a->run.mode]));
    if (a->why) failed |= json_object_set_new(c, "why", json_string(a->why));
    if (a->probes) failed |= json_object_set_new(c, "probes", probes_json(a->probes));
    *cases = json_pack("[o]", c);
    return failed || !*cases ? error_set(err, CLOVER_USAGE, "cannot write the case as JSON: out of memory, or a text that is not UTF-8") : CLOVER_OK;
}

/* ---- a case file --------------------------------------------------------------------------------------------------- */

static CloverStatus cases_of_file(const char *path, json_t **root, const json_t **cases, CloverError *err) {
    static const char *const known[] = { "cases", NULL };
    if (!(*root = json_read(path, err))) return err->status;
    error_clear(err);
    if (json_known_keys(err, path, "the file", *root, known)) *cases = json_list(err, path, *root, "cases", true);
    return err->status;
}

/* ---- the command --------------------------------------------------------------------------------------------------- */

static CloverStatus check_args(const GoldenArgs *a, CloverError *err) {
    const RunArgs defaults = run_args_defaults();
    const bool steps = a->steps || a->then.ids || a->preview.ids;
    if (!a->out) return error_set(err, CLOVER_USAGE, "say where the bundle goes: -o DIR");
    if (!a->cases) {
        if (a->shard) return error_set(err, CLOVER_USAGE, "--shard goes with --cases");
        if (!steps) return run_args_check(&a->run, err);
        if (a->run.prompt.bytes || a->run.chat.bytes) return error_set(err, CLOVER_USAGE, "steps are given as --ids, --then and --preview, not as text");
        if (!a->run.ids.ids && !a->preview.ids) return error_set(err, CLOVER_USAGE, "give the ids of a step: --ids LIST or --preview LIST");
        RunArgs rest = a->run;
        rest.ids = defaults.ids;
        rest.model.coreset_top_p = defaults.model.coreset_top_p;
        json_t *given = run_args_to_json(&rest), *none = run_args_to_json(&defaults);
        const bool same = given && none && json_equal(given, none);
        json_decref(given);
        json_decref(none);
        return same ? CLOVER_OK : error_set(err, CLOVER_USAGE, "--then, --preview and --steps make a case of steps, which decodes nothing: of a run's options only --coreset-top-p goes with them");
    }
    json_t *given = run_args_to_json(&a->run), *none = run_args_to_json(&defaults);
    const bool same = given && none && json_equal(given, none) && !steps && !a->name && !a->why && !a->probes;
    json_decref(given);
    json_decref(none);
    return same ? CLOVER_OK : error_set(err, CLOVER_USAGE, "--cases FILE says what the cases are; a prompt, steps, probes and a run's options belong into that file");
}

static CloverStatus read_shard(const char *text, GoldenShard *shard, CloverError *err) {
    char index[32] = "";
    *shard = (GoldenShard){ 1, 1 };
    if (!text) return CLOVER_OK;
    const char *slash = strchr(text, '/');
    const size_t length = slash ? (size_t)(slash - text) : sizeof index;
    if (length < sizeof index) {
        memcpy(index, text, length);
        if (arg_int(index, &shard->index) && arg_int(slash + 1, &shard->count) && shard->index >= 1 && shard->index <= shard->count && shard->count <= 1000000) return CLOVER_OK;
    }
    return error_set(err, CLOVER_USAGE, "--shard takes I/N, the Ith of N parts, such as 1/4; \"%s\" given", text);
}

static CloverStatus make(GoldenArgs *a, int argc, char **argv, CloverError *err) {
    GoldenShard shard;
    Golden g = { .out = a->out };
    CloverModel *model = NULL;
    json_t *root = NULL;
    const json_t *cases = NULL;
    CloverStatus status = check_args(a, err);
    if (status == CLOVER_OK) status = read_shard(a->shard, &shard, err);
    if (status == CLOVER_OK && a->cases) status = cases_of_file(a->cases, &root, &cases, err);
    if (status == CLOVER_OK && !a->cases) {
        status = case_of_flags(a, &root, err);
        cases = root;
    }
    ModelArgs margs = a->run.model;                      /* the case's own options are the case's */
    margs.block = -1;
    margs.threshold = margs.coreset_top_p = (double)NAN;
    g.args = &margs;
    if (status == CLOVER_OK) status = model_args_open(&margs, &model, err);
    g.model = model;
    if (status == CLOVER_OK) status = golden_plan(&g, cases, !a->cases, a->cases ? a->cases : "the case", shard, a->full_hash, err);
    if (status == CLOVER_OK) status = golden_write(&g, a->force, argc, argv, err);
    if (status == CLOVER_OK) {
        if (shard.count > 1) printf("%s: part %lld of %lld, %lld cases\n", a->out, (long long)shard.index, (long long)shard.count, (long long)g.n_cases);
        else printf("%s: %lld case%s\n", a->out, (long long)g.n_cases, g.n_cases == 1 ? "" : "s");
    }
    golden_free(&g);
    clover_model_close(model);
    json_decref(root);
    return status;
}

static CloverStatus check(const char *path, CloverError *err) {
    Bundle b;
    CloverStatus status = bundle_open(path, &b, err);
    if (status != CLOVER_OK) return status;
    status = bundle_verify(&b, err);
    int64_t steps = 0;
    for (int64_t i = 0; i < b.n_cases; i++)
        for (int64_t k = 0; k < b.cases[i].n_steps; k++) steps += b.cases[i].step[k].recorded;
    if (status == CLOVER_OK)
        printf("%s: whole; %lld cases, %lld recorded steps, %zu files, of %s in %s numerics\n", path, (long long)b.n_cases, (long long)steps,
               json_object_size(json_object_get(b.manifest, "files")), b.model_path, b.numerics);
    bundle_close(&b);
    return status;
}

/* --check DIR and --merge OUT PART... are commands of their own: without a model. */
static bool other_command(int argc, char **argv, CloverStatus *status, CloverError *err) {
    if (argc < 2) return false;
    if (strcmp(argv[1], "--check") == 0) {
        *status = argc == 3 ? check(argv[2], err) : error_set(err, CLOVER_USAGE, "--check takes one bundle: clover golden --check DIR");
        return true;
    }
    if (strcmp(argv[1], "--merge") != 0) return false;
    const bool force = argc > 2 && strcmp(argv[2], "--force") == 0;
    const int first = force ? 3 : 2;
    for (int i = first; i < argc; i++)
        if (argv[i][0] == '-' && argv[i][1]) {
            *status = error_set(err, CLOVER_USAGE, "--merge takes folders only, \"%s\" given: clover golden --merge [--force] OUT PART...", argv[i]);
            return true;
        }
    if (argc - first < 2) *status = error_set(err, CLOVER_USAGE, "--merge takes the new bundle and its parts: clover golden --merge [--force] OUT PART...");
    else *status = golden_merge(argv[first], argv + first + 1, argc - first - 1, force, argc, argv, err);
    if (*status == CLOVER_OK) printf("%s: joined from %d parts\n", argv[first], argc - first - 1);
    return true;
}

int cmd_golden(int argc, char **argv) {
    GoldenArgs a = { .run = run_args_defaults() };
    const ArgOption options[] = {
        MODEL_FILE_OPTIONS(a.run.model),
        { .kind = ARG_HEADING, .help = "What is written" },
        { .name = "out", .letter = 'o', .kind = ARG_STRING, .target = &a.out, .value = "DIR", .help = "the bundle's folder; a run that broke off goes on there when started again" },
        { .name = "cases", .kind = ARG_STRING, .target = &a.cases, .value = "FILE", .help = "the cases, as JSON (SPEC BND-2); without it one case is made of the options below" },
        { .name = "shard", .kind = ARG_STRING, .target = &a.shard, .value = "I/N", .help = "only cases I-1, I-1+N, I-1+2N, ...; clover golden --merge joins the parts" },
        { .name = "full-hash", .kind = ARG_FLAG, .target = &a.full_hash, .help = "the model's identity over all its bytes (over headers, config and 4 KiB of each tensor)" },
        { .name = "force", .kind = ARG_FLAG, .target = &a.force, .help = "replace another bundle that stands there" },
        { .name = "name", .kind = ARG_STRING, .target = &a.name, .value = "NAME", .help = "the case's name (its mode, or steps)" },
        { .name = "why", .kind = ARG_STRING, .target = &a.why, .value = "TEXT", .help = "what the case is for" },
        { .name = "probes", .kind = ARG_STRING, .target = &a.probes, .value = "GLOB[,GLOB]", .help = "stages to keep beside ids and logits, such as 'L00.*' or '*'" },
        RUN_PROMPT_OPTIONS(a.run),
        { .kind = ARG_HEADING, .help = "Steps instead of a run, from an empty state" },
        { .name = "steps", .kind = ARG_FLAG, .target = &a.steps, .help = "--ids is committed as one step, nothing is decoded" },
        { .name = "then", .kind = ARG_IDS, .target = &a.then, .value = "LIST", .help = "ids committed after --ids" },
        { .name = "preview", .kind = ARG_IDS, .target = &a.preview, .value = "LIST", .help = "ids previewed as a block after all commits" },
        RUN_MODE_OPTIONS(a.run),
        MODEL_RUN_OPTIONS(a.run.model),
        RUN_SAMPLING_OPTIONS(a.run),
        RUN_CONTROL_OPTIONS(a.run),
    };
    const ArgCommand command = { .name = "golden", .usage = "MODEL (--cases FILE | --prompt TEXT | ...) -o DIR [options]\n"
                                                            "       clover golden --check DIR\n       clover golden --merge [--force] OUT PART...",
        .summary = "Writes a golden bundle: the expected values of cases, step by step, with hashes of everything.\n"
                   "--check proves that a bundle is whole; --merge joins what --shard made into the bundle that one run would have made.",
        .example = "clover golden model.gguf --chat 'Hello' --mode denoise -n 32 --probes 'L00.*' -o golden/hello",
        .options = options, .n = sizeof options / sizeof *options };
    CloverError err;
    CloverStatus status = CLOVER_OK;
    if (other_command(argc, argv, &status, &err)) return status == CLOVER_OK ? 0 : command_failed("golden", &err);
    const int code = args_begin(&command, argc, argv, &err);
    if (code != ARGS_GO) return code;
    status = make(&a, argc, argv, &err);
    args_free(&command);
    return status == CLOVER_OK ? 0 : command_failed("golden", &err);
}
