/* diff.c - clover diff: where does an engine first leave the reference? [DIF] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../ref/error.h"
#include "args.h"
#include "output.h"
#include "diff_parts.h"
#include "tools.h"

/* What the compared stages and decisions show of each feature. A feature that nothing showed is not wrong. [DIF-7] */
static void conclude(DiffRun *d) {
    DiffResult *r = d->result;
    for (int64_t i = 0; i < r->n_probes; i++) {
        const ProbeResult *p = &r->probe[i];
        const BundleCase *c = case_named(d->bundle, p->case_name);
        const bool differs = p->verdict == STAGE_DIFFERS || p->verdict == STAGE_WRONG, preview = c && c->step[p->step_index].kind == STEP_PREVIEW;
        const bool coreset = preview && d->model &&
                             (isnan(c->coreset_top_p) ? d->model->config.coreset_enabled : c->coreset_top_p >= 0);
        const Feature shown[2] = { preview ? FEATURE_PREVIEW : FEATURE_CAUSAL, FEATURE_CORESET };
        for (int k = 0; k < (coreset ? 2 : 1); k++)
            if (differs) r->feature[shown[k]] = FEATURE_DIFFERS;
            else if (r->feature[shown[k]] == FEATURE_NOT_SHOWN) r->feature[shown[k]] = FEATURE_CONFORMS;
    }
    for (int64_t i = 0; i < r->n_traces; i++)
        if (r->trace[i].compared && r->trace[i].differs && !r->trace[i].explained) r->verdict = DIFF_DIFFERS;
    if (r->verdict == DIFF_INCOMPARABLE)
        for (int64_t i = 0; i < r->n_traces; i++)
            if (r->trace[i].compared && !r->trace[i].differs) r->verdict = DIFF_CONFORMS;
}

/* The model, opened as the golden's was: with the manifest's "open". */
static CloverStatus open_model(DiffRun *d) {
    const char *path = d->options->model ? d->options->model : d->bundle->model_path;
    const json_t *open = json_object_get(json_object_get(d->bundle->manifest, "model"), "open");
    const char *heads = json_string_value(json_object_get(open, "diffusion_heads"));
    CloverOpenOptions o = clover_open_defaults();
    char identity[65];
    if (json_is_true(json_object_get(open, "mend"))) o.drifts = CLOVER_MEND;
    if (json_is_true(json_object_get(open, "as_is"))) o.drifts = CLOVER_AS_IS;
    if (json_is_integer(json_object_get(open, "mask_id"))) o.mask_id = (int32_t)json_integer_value(json_object_get(open, "mask_id"));
    if (heads) o.diffusion_heads_grouped = strcmp(heads, "grouped") == 0;
    CloverStatus status = clover_model_open(path, &o, &d->model, d->err);
    if (status != CLOVER_OK && !d->options->model) {
        CloverError why = *d->err;
        return error_set(d->err, status, "the model that %s was made of cannot be opened at the manifest's path; say where it is with --model, or compare without it: --no-model\n%.8000s",
                         d->bundle->path, why.text);
    }
    if (status == CLOVER_OK) status = model_identity(d->model, d->bundle->full_hash, identity, d->err);
    if (status != CLOVER_OK) return status;
    if (strcmp(identity, d->bundle->identity) != 0)
        return error_set(d->err, CLOVER_BAD_INPUT, "%s is not the model that %s was made of: identity %.16s..., the golden's is %.16s...; give the right one with --model", path,
                         d->bundle->path, identity, d->bundle->identity);
    return CLOVER_OK;
}

#define OTHER_FILE "the dump says that its engine ran another file than the golden's"

/* A dump may say in a manifest like a bundle's, {"model": {"identity"}}, which file its engine ran. */
static const char *engine_file(const char *dump, const char *identity) {
    CloverError ignored;
    char *path = text_format(&ignored, "%s/manifest.json", dump);
    json_t *manifest = path ? json_load_file(path, 0, NULL) : NULL;
    const char *theirs = json_string_value(json_object_get(json_object_get(manifest, "model"), "identity"));
    const char *said = !theirs ? "" : strcmp(theirs, identity) == 0 ? "the dump says that its engine ran the golden's file, which is read right here: then it is the engine" : OTHER_FILE;
    json_decref(manifest);
    free(path);
    return said;
}

CloverStatus diff_run(const DiffOptions *options, Bundle *bundle, DiffResult *out, CloverError *err) {
    *out = (DiffResult){ .first = -1, .engine_file = engine_file(options->dump, bundle->identity), .margin_rms = options->margin_rms, .margin_max = options->margin_max,
                         .profile = options->profile == CLOVER_BF16 ? "bf16" : options->profile == CLOVER_LLAMA_CPP ? "llama.cpp" : "f32" };
    error_clear(err);
    DiffRun d = { .options = options, .bundle = bundle, .result = out, .err = err, .scratch = { .fd = -1 } };
    FILE *scratch = tmpfile();
    if (!scratch) return error_set(err, CLOVER_SYSTEM, "cannot make a scratch file; TMPDIR or /tmp must be writable");
    d.scratch.fd = fileno(scratch);
    CloverStatus status = options->no_model ? CLOVER_OK : open_model(&d);
    if (status == CLOVER_OK) status = dump_open(options->dump, options->map, d.model ? &d.model->config : NULL, bundle->n_cases == 1, &d.dump, err);
    if (status == CLOVER_OK) status = d.model ? diff_cases(&d) : diff_plain(&d);
    if (status == CLOVER_OK) {
        diff_judge(&d);
        status = diff_traces(&d);
    }
    if (status == CLOVER_OK) {
        int64_t n_unused = 0;
        const char *const *unused = dump_unused(d.dump, &n_unused);
        for (int64_t i = 0; i < n_unused; i++) diff_not_compared(&d, "%s (no probe of that name)", unused[i]);
        if (strcmp(out->engine_file, OTHER_FILE) == 0) diff_note(&d, "%s", OTHER_FILE);
        conclude(&d);
        status = err->status;
        if (status == CLOVER_OK && d.model && !options->no_diagnosis && out->verdict == DIFF_DIFFERS) status = diff_diagnose(&d);
    }
    dump_close(d.dump);
    clover_model_close(d.model);
    free(d.total);
    free(d.chosen);
    fclose(scratch);
    return status;
}

void diff_free(DiffResult *r) {
    free(r->probe);
    free(r->trace);
    for (int64_t i = 0; i < r->n_notes; i++) free(r->note[i]);
    for (int64_t i = 0; i < r->n_not_compared; i++) free(r->not_compared[i]);
    free(r->note);
    free(r->not_compared);
    free(r->diagnosis);
    *r = (DiffResult){ .first = -1, .engine_file = "" };
}

/* What stops a diff is no verdict on the engine. */
static void print_error_json(const CloverError *err) {
    json_t *o = json_pack("{s:s, s:n, s:s, s:i}", "verdict", verdict_name(DIFF_INCOMPARABLE), "first", "error", err->text, "code", (int)err->status);
    if (o && json_dumpf(o, stdout, JSON_INDENT(1)) == 0) putchar('\n');
    json_decref(o);
}

int cmd_diff(int argc, char **argv) {
    static const char *const profiles[] = { "f32", "bf16", "llama.cpp", NULL };
    static const CloverNumerics numerics[] = { CLOVER_F32, CLOVER_BF16, CLOVER_LLAMA_CPP };
    DiffOptions o = { .margin_rms = DIFF_MARGIN_RMS, .margin_max = DIFF_MARGIN_MAX };
    int profile = 0;
    bool json = false;
    const char *html = NULL;
    const ArgOption options[] = {
        { .name = "GOLDEN", .kind = ARG_POSITIONAL, .target = &o.golden, .required = true, .help = "the bundle that clover golden wrote" },
        { .name = "DUMP", .kind = ARG_POSITIONAL, .target = &o.dump, .required = true, .help = "the engine's dump: a folder like a bundle's, safetensors or .npy" },
        { .name = "model", .kind = ARG_STRING, .target = &o.model, .value = "MODEL", .excludes = 105, .help = "the model (the manifest's path); its identity is checked" },
        { .name = "no-model", .kind = ARG_FLAG, .target = &o.no_model, .excludes = 105, .help = "only compare with the golden: no rule is run on the dump's inputs" },
        { .name = "map", .kind = ARG_STRING, .target = &o.map, .value = "MAP", .help = "names of the dump: transformers, llama.cpp, or a map file" },
        { .name = "profile", .kind = ARG_CHOICE, .target = &profile, .choices = profiles, .value = "PROFILE", .help = "what the engine's rounding may add: f32 (default), bf16, llama.cpp" },
        { .name = "f16-cache", .kind = ARG_FLAG, .target = &o.half_cache, .help = "profile llama.cpp: the engine keeps keys and values in float16" },
        { .name = "margin", .kind = ARG_REAL, .target = &o.margin_rms, .value = "X", .min = 1, .max = 1e6, .help = "budget = X times the profile's floor (8); worst elements twice that" },
        { .name = "no-diagnosis", .kind = ARG_FLAG, .target = &o.no_diagnosis, .help = "do not look for the mistake that explains a divergence" },
        { .name = "html", .kind = ARG_STRING, .target = &html, .value = "FILE", .help = "also write the report as one page that needs no network" },
        { .name = "json", .kind = ARG_FLAG, .target = &json, .help = "print JSON" },
    };
    const ArgCommand command = { .name = "diff", .usage = "GOLDEN DUMP [options]",
        .summary = "Says whether an engine conforms, and if not, the first step, layer, stage and element where it leaves the reference:\n"
                   "how much of its error that stage was given, and how much it added.\nExit code 0: conforms; 1: differs; 3: the dump cannot be compared.",
        .example = "clover diff golden/nano my-engine-dump --html report.html", .options = options, .n = sizeof options / sizeof *options };
    CloverError err;
    const int code = args_begin(&command, argc, argv, &err);
    if (code != ARGS_GO) return code;
    o.profile = numerics[profile];
    if (o.half_cache && o.profile != CLOVER_LLAMA_CPP) {
        args_free(&command);
        error_set(&err, CLOVER_USAGE, "--f16-cache goes with --profile llama.cpp");
        return command_failed("diff", &err);
    }
    o.margin_max = o.margin_rms / DIFF_MARGIN_RMS * DIFF_MARGIN_MAX;

    Bundle bundle = { 0 };
    DiffResult result = { .first = -1 };
    CloverStatus status = bundle_open(o.golden, &bundle, &err);
    if (status == CLOVER_OK) status = bundle_verify(&bundle, &err);
    if (status == CLOVER_OK) status = diff_run(&o, &bundle, &result, &err);
    if (status == CLOVER_OK && html) status = diff_html(&result, &bundle, o.dump, html, &err);
    int exit_code = (int)status;
    if (status == CLOVER_OK) {
        if (json) {
            json_t *object = diff_json(&result, &bundle);
            if (!object || json_dumpf(object, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) != 0) {
                error_set(&err, CLOVER_SYSTEM, "cannot write the result as JSON");
                status = err.status;
            }
            putchar('\n');
            json_decref(object);
        } else diff_print(&result, &bundle);
        exit_code = result.verdict == DIFF_CONFORMS ? 0 : result.verdict == DIFF_DIFFERS ? 1 : CLOVER_BAD_INPUT;
    }
    if (status != CLOVER_OK) {
        if (json) print_error_json(&err);
        exit_code = command_failed("diff", &err);
    }
    diff_free(&result);
    bundle_close(&bundle);
    args_free(&command);
    return exit_code;
}
