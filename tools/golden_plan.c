/* golden_plan.c - from a case file or the command line to cases that are ready to run. [BND-2, BND-3, BND-4] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/decoder.h"
#include "../ref/model.h"
#include "golden.h"
#include "identity.h"
#include "json_check.h"
#include "output.h"
#include "record.h"

/* Puts the lines of one error into another, each behind where it is. */
static void adopt(CloverError *err, const char *where, const CloverError *from, bool single) {
    const CloverStatus status = from->status == CLOVER_USAGE && !single ? CLOVER_BAD_INPUT : from->status;
    for (const char *line = from->text; *line;) {
        const size_t length = strcspn(line, "\n");
        error_add(err, status, "%s: %.*s", where, (int)length, line);
        line += length + (line[length] == '\n');
    }
}

/* ---- what a case needs of the model -------------------------------------------------------------------------------- */

static void plan_run(GoldenCase *c, const CloverModel *model, const CloverEngine *empty, const char *where, bool single, CloverError *err) {
    CloverError own;
    const CloverConfig *config = clover_model_config(model);
    if (c->args.mode != CLOVER_AR && clover_model_can_preview(model, &own) != CLOVER_OK) adopt(err, where, &own, single);
    if (run_args_decode(&c->args, config, &c->decode, &own) != CLOVER_OK || run_args_prompt(&c->args, model, &c->prompt, &c->n_prompt, &own) != CLOVER_OK ||
        decode_check(empty, &c->decode, c->prompt, c->n_prompt, &own) != CLOVER_OK) {
        adopt(err, where, &own, single);
        return;
    }
    c->capacity = run_args_capacity(&c->decode, c->n_prompt);
    if (c->n_prompt + c->decode.max_tokens > config->context)
        error_add(err, single ? CLOVER_USAGE : CLOVER_BAD_INPUT, "%s: a prompt of %lld tokens and n %lld exceed the model's context of %lld positions", where,
                  (long long)c->n_prompt, (long long)c->decode.max_tokens, (long long)config->context);
}

/* The step that took the snapshot which step i restores. */
static int64_t snapshot_of(const BundleCase *c, int64_t i) {
    int64_t taken = i;
    while (c->step[taken].kind != STEP_SNAPSHOT || strcmp(c->step[taken].name, c->step[i].name) != 0) taken--;
    return taken;
}

/* The most positions that the steps have committed at any time; -1: no memory. */
static int64_t peak_position(const BundleCase *c) {
    int64_t position = 0, peak = 1, *after = malloc((size_t)c->n_steps * sizeof *after + 1);   /* [n_steps] */
    if (!after) return -1;
    for (int64_t i = 0; i < c->n_steps; i++) {
        if (c->step[i].kind == STEP_COMMIT) position += c->step[i].n;
        if (c->step[i].kind == STEP_RESTORE) position = after[snapshot_of(c, i)];
        after[i] = position;
        if (position > peak) peak = position;
    }
    free(after);
    return peak;
}

static void plan_steps(GoldenCase *c, const CloverModel *model, const char *where, bool single, CloverError *err) {
    const CloverStatus fault = single ? CLOVER_USAGE : CLOVER_BAD_INPUT;
    bool previews = false;
    for (int64_t i = 0; i < c->given.n_steps; i++) previews |= c->given.step[i].kind == STEP_PREVIEW;
    if (previews && !model->weights.diffusion) error_add(err, CLOVER_UNSUPPORTED, "%s: has previews, and %s has no diffusion tensors", where, model->path);
    c->capacity = peak_position(&c->given);
    if (c->capacity < 0) error_memory(err, "the steps' positions", (size_t)c->given.n_steps * sizeof(int64_t));
    if (c->capacity > model->config.context)
        error_add(err, fault, "%s: commits %lld tokens, the model's context is %lld positions", where, (long long)c->capacity, (long long)model->config.context);
}

/* ["L00.*", "out"] as "L00.*,out". */
static char *join(const json_t *list, CloverError *err) {
    Buffer b = { 0 };
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (i) buffer_text(&b, ",");
        buffer_text(&b, json_string_value(json_array_get(list, i)));
    }
    buffer_add(&b, "", 1);
    if (!b.no_memory) return (char *)b.data;
    buffer_free(&b);
    error_memory(err, "the probes", b.n);
    return NULL;
}

/* ---- all cases ----------------------------------------------------------------------------------------------------- */

static void case_clear(GoldenCase *c) {
    case_free(&c->given);
    case_run_free(&c->args);
    free(c->globs);
    free(c->prompt);
    *c = (GoldenCase){ 0 };
}

static void plan_case(GoldenCase *c, const json_t *object, const CloverModel *model, const CloverEngine *empty, const char *where, bool single, CloverError *err) {
    CloverError own;
    error_clear(&own);
    case_read(object, CASE_FILE, where, clover_model_config(model)->vocab, &c->given, &c->args, &own);
    if (own.status != CLOVER_OK) {                       /* its lines say where already */
        const CloverStatus status = single && own.status == CLOVER_BAD_INPUT ? CLOVER_USAGE : own.status;
        for (char *line = own.text, *end; line; line = end) {
            if ((end = strchr(line, '\n'))) *end++ = '\0';
            error_add(err, status, "%s", line);
        }
        return;
    }
    char here[320];
    snprintf(here, sizeof here, "%.150s (%s)", where, c->given.name);
    c->is_run = c->given.mode != NULL;
    c->globs = join(json_object_get(object, "probes"), err);
    if (c->globs && record_check_globs(c->globs, clover_model_config(model), &own) != CLOVER_OK)
        error_add(err, single ? CLOVER_USAGE : CLOVER_BAD_INPUT, "%s: %s", here, own.text);
    c->args.model.path = model->path;
    if (c->is_run) plan_run(c, model, empty, here, single, err);
    else plan_steps(c, model, here, single, err);
}

static bool name_taken(json_t *names, const char *name) {
    const bool taken = json_object_get(names, name) != NULL;
    json_object_set_new(names, name, json_true());
    return taken;
}

static CloverStatus plan_cases(Golden *g, const json_t *list, bool single, const char *label, GoldenShard shard, json_t *planned, CloverError *err) {
    const size_t n = json_array_size(list);
    CloverSession *session = NULL;
    const CloverSessionOptions options = { .numerics = CLOVER_EXACT, .capacity = 1 };
    json_t *names = json_object();
    g->cases = calloc(n ? n : 1, sizeof *g->cases);
    if (!g->cases || !names) error_memory(err, "the cases", n * sizeof *g->cases);
    else if (clover_session_new(g->model, &options, &session, err) == CLOVER_OK) {
        const CloverEngine empty = clover_session_engine(session);
        error_clear(err);
        if (n == 0) error_add(err, CLOVER_BAD_INPUT, "%s: no cases", label);
        for (size_t i = 0; i < n; i++) {
            char where[160];
            if (single) snprintf(where, sizeof where, "%s", label);
            else snprintf(where, sizeof where, "%.120s: cases[%zu]", label, i);
            GoldenCase c = { 0 };
            const json_t *object = json_array_get(list, i);
            plan_case(&c, object, g->model, &empty, where, single, err);
            if (c.given.name && name_taken(names, c.given.name)) error_add(err, CLOVER_BAD_INPUT, "%s: the case name \"%s\" stands there twice", where, c.given.name);
            if (c.given.name && (strcmp(c.given.name, "manifest.json") == 0 || strcmp(c.given.name, "provenance.json") == 0))
                error_add(err, CLOVER_BAD_INPUT, "%s: a case may not be named %s, as a file of the bundle is", where, c.given.name);
            if ((int64_t)i % shard.count != shard.index - 1 || err->status != CLOVER_OK) {
                case_clear(&c);
                continue;
            }
            c.json = json_deep_copy(object);
            if (json_object_set_new(c.json, "folder", json_string(single ? "" : c.given.name)) != 0 || json_array_append_new(planned, c.json) != 0)
                error_memory(err, "the plan", 0);
            g->cases[g->n_cases++] = c;
        }
    }
    clover_session_free(session);
    json_decref(names);
    return err->status;
}

/* How the model is opened, where that is not as its files say. */
static json_t *open_json(const ModelArgs *a) {
    json_t *o = json_object();
    if (a->mend) json_object_set_new(o, "mend", json_true());
    if (a->as_is) json_object_set_new(o, "as_is", json_true());
    if (a->mask_id >= 0) json_object_set_new(o, "mask_id", json_integer(a->mask_id));
    if (a->head_order != 0) json_object_set_new(o, "diffusion_heads", json_string(diffusion_head_orders[a->head_order]));
    return o;
}

CloverStatus golden_plan(Golden *g, const json_t *cases, bool single, const char *label, GoldenShard shard, bool full_hash, CloverError *err) {
    char identity[65];
    json_t *planned = json_array();
    CloverStatus status = plan_cases(g, cases, single, label, shard, planned, err);
    if (status == CLOVER_OK) status = model_identity(g->model, full_hash, identity, err);
    if (status == CLOVER_OK) {
        g->plan = json_pack("{s:i, s:s, s:{s:s, s:s, s:s, s:o, s:o}, s:s, s:O}", "schema", (int)BUNDLE_SCHEMA, "spec", CLOVER_SPEC_VERSION,
                            "model", "path", g->args->path, "identity", identity, "identity_of", full_hash ? "full" : "start",
                            "config", config_json(clover_model_config(g->model)), "open", open_json(g->args),
                            "numerics", numerics_names[g->args->numerics], "cases", planned);
        if (g->plan && shard.count > 1)
            json_object_set_new(g->plan, "shard", json_pack("{s:I, s:I, s:I}", "index", (json_int_t)shard.index, "count", (json_int_t)shard.count,
                                                            "cases", (json_int_t)json_array_size(cases)));
        if (!g->plan) status = error_set(err, CLOVER_USAGE, "cannot write the plan as JSON: out of memory, or the model's path \"%s\" is not UTF-8", g->args->path);
    }
    json_decref(planned);
    return status;
}

void golden_free(Golden *g) {
    for (int64_t i = 0; i < g->n_cases; i++) case_clear(&g->cases[i]);
    free(g->cases);
    json_decref(g->plan);
    *g = (Golden){ 0 };
}
