/* golden_case.c - one case of a bundle: every call that is made of the engine is a step, and every step with rows a file.
 * [BND-2, BND-3, BND-7]
 *
 * Decoding sees an engine that stands between it and the session and writes down each call. What a broken-off run left
 * is used: a call whose file is there is answered from it, without the session; the first one that is not makes the
 * session catch up with the calls before it, from the saved state where there is one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "../ref/error.h"
#include "../ref/files/safetensors.h"
#include "../ref/trace.h"
#include "golden.h"
#include "output.h"
#include "record.h"
#include "show.h"

typedef struct Call { BundleStep step; KeptSnapshot *kept; } Call;   /* kept: of a snapshot or restore */

typedef struct CaseRun {
    const Golden *g;
    const GoldenCase *c;
    const char *const *step_names;   /* of a case of steps, by call; NULL: numbered */
    int64_t vocab;
    CloverSession *session;
    InForce in_force;                /* of the golden's faults */
    Record record;
    char *state_path;
    Call *call; int64_t n, room;     /* so far, the one being made last */
    int64_t synced;                  /* the session is as after this many of them */
    int64_t position;                /* after all of them */
    KeptSnapshot **kept; int64_t n_kept, room_kept;
    double saved_at, save_seconds;   /* when the state was saved last, and how long that took */
    json_t *files, *trace;
    GoldenTold *told;
    void *told_user;
    double done;
    bool no_memory;
} CaseRun;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the session behind the calls ---------------------------------------------------------------------------------- */

static void release(CaseRun *r) {
    for (int64_t i = 0; i < r->n_kept && r->synced == r->n; i++)
        if (r->kept[i]->released) {
            clover_snapshot_free(r->kept[i]->snapshot);
            r->kept[i]->snapshot = NULL;
        }
}

static void look_away(void *user, const char *name, double *data, const int64_t *shape, int dims) {
    (void)user, (void)name, (void)data, (void)shape, (void)dims;
}

/* Does a call's work on the state again, without its results. A step that was watched ran as a whole: so it does here. */
static CloverStatus redo(CaseRun *r, const Call *c, CloverError *err) {
    switch (c->step.kind) {
    case STEP_PREVIEW: return CLOVER_OK;
    case STEP_SNAPSHOT: return clover_snapshot_take(r->session, &c->kept->snapshot, err);
    case STEP_RESTORE:
        if (c->kept->snapshot) return clover_snapshot_restore(r->session, c->kept->snapshot, err);
        return error_set(err, CLOVER_BUG, "snapshot \"%s\" is gone before its last use", c->kept->name);
    case STEP_COMMIT: break;
    }
    if (*r->c->globs) clover_session_watch(r->session, look_away, NULL);
    CloverStatus status = clover_commit(r->session, c->step.ids, c->step.n, NULL, 0, err);
    clover_session_watch(r->session, NULL, NULL);
    return status;
}

/* Brings the session to where the calls before the last one leave it. */
static CloverStatus catch_up(CaseRun *r, CloverError *err) {
    const int64_t to = r->n - 1;
    if (r->synced == 0 && to > 0) r->synced = state_load(r->state_path, r->c->given.name, to, r->session, r->kept, r->n_kept);
    for (; r->synced < to; r->synced++)
        if (redo(r, &r->call[r->synced], err) != CLOVER_OK) return err->status;
    return CLOVER_OK;
}

/* Saves the state so that a broken-off case need not begin anew, as often as that takes a twentieth of the time. */
static CloverStatus save_state(CaseRun *r, CloverError *err) {
    const double start = now();
    if (r->g->faults) return CLOVER_OK;                  /* what a fault remembers is not in the state: a dump is made in one go */
    if (r->synced != r->n || start - r->saved_at < 20 * r->save_seconds) return CLOVER_OK;
    CloverStatus status = state_save(r->state_path, r->c->given.name, r->n, r->session, r->kept, r->n_kept, err);
    r->saved_at = now();
    r->save_seconds = r->saved_at - start;
    return status;
}

/* ---- calls --------------------------------------------------------------------------------------------------------- */

static Call *add_call(CaseRun *r, StepKind kind, const int32_t *ids, int64_t n, CloverError *err) {
    static const char *const kinds[] = { "commit", "preview", "snapshot", "restore" };
    if (r->n == r->room) {
        const int64_t room = r->room ? 2 * r->room : 64;
        Call *more = realloc(r->call, (size_t)room * sizeof *more);
        if (!more) {
            error_memory(err, "the list of steps", (size_t)room * sizeof *more);
            return NULL;
        }
        r->call = more;
        r->room = room;
    }
    Call c = { .step = { .kind = kind, .n = n, .recorded = n > 0 } };
    if (n > 0 && (c.step.ids = malloc((size_t)n * sizeof *ids))) memcpy(c.step.ids, ids, (size_t)n * sizeof *ids);
    c.step.name = r->step_names ? text_format(err, "%s", r->step_names[r->n]) : text_format(err, "%03lld-%s", (long long)r->n, kinds[kind]);
    if (!c.step.name || (n > 0 && !c.step.ids)) {
        free(c.step.ids);
        free((char *)(uintptr_t)c.step.name);
        error_memory(err, "a step", (size_t)n * sizeof *ids);
        return NULL;
    }
    r->call[r->n] = c;
    return &r->call[r->n++];
}

/* NAME.ending in the case's folder, relative to the bundle. */
static char *file_of(const CaseRun *r, const char *name, const char *ending, CloverError *err) {
    const char *folder = json_string_value(json_object_get(r->c->json, "folder"));
    return *folder ? text_format(err, "%s/%s%s", folder, name, ending) : text_format(err, "%s%s", name, ending);
}

/* A file of an earlier run: the last `rows` rows of its logits. false: there is none that is whole and of this step. */
static bool from_file(const CaseRun *r, const char *path, const Call *c, double *logits, int64_t rows) {
    Safetensors *f = NULL;
    CloverError ignored;
    if (access(path, F_OK) != 0 || safetensors_open(path, &f, &ignored) != CLOVER_OK) return false;
    const Tensor *ids = safetensors_tensor(f, "ids"), *have = safetensors_tensor(f, "logits");
    bool same = ids && ids->type == DT_I64 && ids->elements == c->step.n && have && have->type == DT_F64 && have->elements == c->step.n * r->vocab;
    for (int64_t i = 0; i < c->step.n && same; i++) {
        int64_t id;
        memcpy(&id, ids->data + 8 * i, sizeof id);
        same = id == c->step.ids[i];
    }
    const size_t wanted = (size_t)(rows * r->vocab) * sizeof *logits;
    if (same && wanted) memcpy(logits, have->data + (size_t)(c->step.n - rows) * (size_t)r->vocab * sizeof *logits, wanted);
    safetensors_close(f);
    return same;
}

/* A commit or preview: from its file, or computed and written to it. */
static CloverStatus step(CaseRun *r, StepKind kind, const int32_t *ids, int64_t n, double *logits, int64_t rows, CloverError *err) {
    const Call *c = add_call(r, kind, ids, n, err);
    if (!c) return err->status;
    char *name = file_of(r, c->step.name, ".safetensors", err);
    char *path = name ? text_format(err, "%s/%s", r->g->out, name) : NULL;
    CloverStatus status = path ? CLOVER_OK : err->status;
    if (status == CLOVER_OK && !from_file(r, path, c, logits, rows)) {
        status = catch_up(r, err);
        if (status == CLOVER_OK) status = record_step(&r->record, r->session, r->vocab, kind == STEP_PREVIEW, ids, n, err);
        if (status == CLOVER_OK) status = record_save(&r->record, path, err);
        if (status == CLOVER_OK && rows) memcpy(logits, r->record.logits + (n - rows) * r->vocab, (size_t)(rows * r->vocab) * sizeof *logits);
        if (status == CLOVER_OK) r->synced = r->n;
        release(r);
    }
    if (status == CLOVER_OK && kind == STEP_COMMIT) r->position += n;
    if (status == CLOVER_OK && kind == STEP_COMMIT) status = save_state(r, err);
    if (status == CLOVER_OK && json_array_append_new(r->files, json_string(name)) != 0) status = error_memory(err, "the list of files", 0);
    if (status == CLOVER_OK && r->told) r->told(r->told_user, c->step.name, r->done);
    free(name);
    free(path);
    return status;
}

static CloverStatus run_commit(void *self, const int32_t *ids, int64_t n, double *logits, int64_t rows, CloverError *err) {
    return step(self, STEP_COMMIT, ids, n, logits, logits ? rows : 0, err);
}

static CloverStatus run_preview(void *self, const int32_t *ids, int64_t n, double *logits, CloverError *err) {
    return step(self, STEP_PREVIEW, ids, n, logits, logits ? n : 0, err);
}

static CloverStatus run_snapshot(void *self, void **out, CloverError *err) {
    CaseRun *r = self;
    if (r->n_kept == r->room_kept) {
        const int64_t room = r->room_kept ? 2 * r->room_kept : 16;
        KeptSnapshot **more = realloc(r->kept, (size_t)room * sizeof *more);
        if (!more) return error_memory(err, "the list of snapshots", (size_t)room * sizeof *more);
        r->kept = more;
        r->room_kept = room;
    }
    KeptSnapshot *k = calloc(1, sizeof *k);
    if (!k) return error_memory(err, "a snapshot", sizeof *k);
    Call *c = add_call(r, STEP_SNAPSHOT, NULL, 0, err);
    if (!c) {
        free(k);
        return err->status;
    }
    *k = (KeptSnapshot){ .name = c->step.name, .call = r->n - 1, .position = r->position };
    c->kept = r->kept[r->n_kept++] = k;
    *out = k;
    if (r->synced < r->n - 1) return CLOVER_OK;          /* taken when the session catches up */
    r->synced = r->n;
    return in_force_snapshot(r->record.in_force, r->session, &k->snapshot, err);
}

static CloverStatus run_restore(void *self, const void *snapshot, CloverError *err) {
    CaseRun *r = self;
    KeptSnapshot *k = (KeptSnapshot *)(uintptr_t)snapshot;
    Call *c = add_call(r, STEP_RESTORE, NULL, 0, err);
    char *name = c ? text_format(err, "%s", k->name) : NULL;
    if (!name) return err->status;
    free((char *)(uintptr_t)c->step.name);
    c->step.name = name;                                 /* a restore is called as its snapshot */
    c->kept = k;
    r->position = k->position;
    if (r->synced < r->n - 1) return CLOVER_OK;
    CloverStatus status = in_force_restore(r->record.in_force, r->session, k->snapshot, err);
    if (status == CLOVER_OK) r->synced = r->n;
    return status;
}

static void run_snapshot_free(void *self, void *snapshot) {
    CaseRun *r = self;
    if (snapshot) ((KeptSnapshot *)snapshot)->released = true;
    release(r);
}

static int64_t run_position(void *self) { return ((const CaseRun *)self)->position; }

/* ---- the two kinds of case ----------------------------------------------------------------------------------------- */

/* Is the snapshot of step i restored after step `after`, before another of its name is taken? */
static bool needed_after(const BundleCase *c, int64_t i, int64_t after) {
    for (int64_t k = i + 1; k < c->n_steps; k++) {
        if (strcmp(c->step[k].name, c->step[i].name) != 0) continue;
        if (c->step[k].kind == STEP_SNAPSHOT) return false;
        if (c->step[k].kind == STEP_RESTORE && k > after) return true;
    }
    return false;
}

static CloverStatus make_steps(CaseRun *r, const CloverEngine *e, CloverError *err) {
    const BundleCase *c = &r->c->given;
    void **snapshot = calloc((size_t)c->n_steps + 1, sizeof *snapshot);
    const char **names = calloc((size_t)c->n_steps + 1, sizeof *names);
    CloverStatus status = snapshot && names ? CLOVER_OK : error_memory(err, "the steps", (size_t)c->n_steps * sizeof *snapshot);
    for (int64_t i = 0; i < c->n_steps && names; i++) names[i] = c->step[i].name;
    r->step_names = names;
    for (int64_t i = 0; i < c->n_steps && status == CLOVER_OK; i++) {
        const BundleStep *s = &c->step[i];
        r->done = (double)(i + 1) / (double)c->n_steps;
        int64_t taken = i;
        switch (s->kind) {
        case STEP_COMMIT: status = e->commit(e->self, s->ids, s->n, NULL, 0, err); break;
        case STEP_PREVIEW: status = e->preview(e->self, s->ids, s->n, NULL, err); break;
        case STEP_SNAPSHOT: status = e->snapshot(e->self, &snapshot[i], err); break;
        case STEP_RESTORE:
            while (c->step[taken].kind != STEP_SNAPSHOT || strcmp(c->step[taken].name, s->name) != 0) taken--;
            status = e->restore(e->self, snapshot[taken], err);
            break;
        }
        for (int64_t k = 0; k <= i && (s->kind == STEP_SNAPSHOT || s->kind == STEP_RESTORE) && status == CLOVER_OK; k++)
            if (snapshot[k] && !needed_after(c, k, i)) {
                e->snapshot_free(e->self, snapshot[k]);
                snapshot[k] = NULL;
            }
    }
    r->step_names = NULL;
    free(snapshot);
    free(names);
    return status;
}

static bool on_event(void *user, const CloverEvent *e) {
    CaseRun *r = user;
    if (e->kind == CLOVER_EVENT_OUTPUT) r->done += 1.0 / (double)r->c->decode.max_tokens;
    else if (json_array_append_new(r->trace, trace_step(e)) != 0) r->no_memory = true;
    return !r->no_memory;
}

static json_t *id_array(const int32_t *ids, int64_t n) {
    json_t *a = json_array();
    for (int64_t i = 0; i < n && a; i++)
        if (json_array_append_new(a, json_integer(ids[i])) != 0) {
            json_decref(a);
            return NULL;
        }
    return a;
}

/* Everything that decided: what the case did not give is the model's. [BND-3] */
static json_t *options_json(const CloverDecodeOptions *o, double coreset_top_p) {
    json_t *j = json_pack("{s:o, s:I, s:I, s:i, s:b, s:f, s:f, s:f, s:I, s:f, s:o}", "threshold", isnan(o->threshold) ? json_null() : json_real(o->threshold), "block", (json_int_t)o->block,
                          "width", (json_int_t)o->width, "mask_id", (int)o->mask_id, "accept_exact", (int)o->accept_exact, "ratio", o->ratio, "delta", o->delta,
                          "temperature", o->temperature, "top_k", (json_int_t)o->top_k, "top_p", o->top_p, "stops", id_array(o->stops, o->n_stops));
    char seed[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)o->seed);
    json_object_set_new(j, "seed", o->seed <= INT64_MAX ? json_integer((json_int_t)o->seed) : json_string(seed));
    json_object_set_new(j, "coreset_top_p", coreset_top_p < 0 ? json_string("off") : json_real(coreset_top_p));
    return j;
}

static json_t *controls_json(const CloverControls *c) {
    return json_pack("{s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:I, s:I, s:i}", "frequency_penalty", c->frequency_penalty, "presence_penalty", c->presence_penalty,
                     "repetition_penalty", c->repetition_penalty, "dllm_length_penalty", c->dllm_length_penalty, "dllm_length_penalty_start", (json_int_t)c->dllm_length_penalty_start,
                     "dllm_length_penalty_window", (json_int_t)c->dllm_length_penalty_window, "dllm_think_end_bias", c->dllm_think_end_bias, "dllm_think_end_start",
                     (json_int_t)c->dllm_think_end_start, "dllm_think_end_window", (json_int_t)c->dllm_think_end_window, "dllm_think_end_token_id", (int)c->dllm_think_end_token_id);
}

static CloverStatus write_trace(CaseRun *r, const int32_t *out, int64_t n, CloverError *err) {
    const GoldenCase *c = r->c;
    const CloverDecodeOptions *o = &c->decode;
    const CloverConfig *config = clover_model_config(r->g->model);
    const CloverTokenizer *t = clover_model_tokenizer(r->g->model);
    const double own = c->given.coreset_top_p, coreset = own == own ? own : config->coreset_enabled ? config->coreset_top_p : -1;
    bool stopped = false;
    for (int64_t i = 0; n > 0 && i < o->n_stops; i++) stopped |= out[n - 1] == o->stops[i];
    char *text = t ? text_of(t, out, n) : NULL, *dump = NULL;
    json_t *all = json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:s, s:O}", "name", c->given.name, "mode", mode_names[o->mode], "n", (json_int_t)o->max_tokens,
                            "prompt", id_array(c->prompt, c->n_prompt), "options", options_json(o, coreset), "controls", controls_json(&o->controls),
                            "tokens", id_array(out, n), "text", text ? json_string(text) : json_null(), "finish", stopped ? "stop" : "length", "steps", r->trace);
    free(text);
    if (all) dump = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    json_decref(all);
    if (!dump) return error_memory(err, "the trace", 0);
    char *name = file_of(r, "trace", ".json", err);
    char *path = name ? text_format(err, "%s/%s", r->g->out, name) : NULL;
    CloverStatus status = path ? output_file(path, dump, strlen(dump), true, err) : err->status;
    if (status == CLOVER_OK && json_array_append_new(r->files, json_string(name)) != 0) status = error_memory(err, "the list of files", 0);
    free(name);
    free(path);
    free(dump);
    return status;
}

static CloverStatus decode(CaseRun *r, const CloverEngine *e, CloverError *err) {
    const GoldenCase *c = r->c;
    int64_t n = 0;
    int32_t *out = malloc((size_t)c->decode.max_tokens * sizeof *out);
    if (!out) return error_memory(err, "the answer", (size_t)c->decode.max_tokens * sizeof *out);
    const DecodeRules *rules = r->g->faults ? &r->in_force.decoding : &decode_rules;
    CloverStatus status = decode_with_rules(e, rules, &c->decode, c->prompt, c->n_prompt, on_event, r, out, &n, err);
    if (status == CLOVER_OK && r->no_memory) status = error_memory(err, "the trace", 0);
    if (status == CLOVER_OK) status = write_trace(r, out, n, err);
    free(out);
    return status;
}

static json_t *steps_json(const CaseRun *r) {
    json_t *steps = json_array();
    for (int64_t i = 0; i < r->n && steps; i++)
        if (json_array_append_new(steps, case_step_json(&r->call[i].step)) != 0) {
            json_decref(steps);
            return NULL;
        }
    return steps;
}

static void let_go(CaseRun *r) {
    for (int64_t i = 0; i < r->n_kept; i++) {
        clover_snapshot_free(r->kept[i]->snapshot);
        free(r->kept[i]);
    }
    for (int64_t i = 0; i < r->n; i++) {
        free(r->call[i].step.ids);
        free((char *)(uintptr_t)r->call[i].step.name);
    }
    free(r->kept);
    free(r->call);
    free(r->state_path);
    record_close(&r->record);
    in_force_end(&r->in_force);
    clover_session_free(r->session);
    json_decref(r->trace);
    json_decref(r->files);
}

CloverStatus golden_case(const Golden *g, const GoldenCase *c, GoldenTold *told, void *user, CaseFiles *out, CloverError *err) {
    CaseRun r = { .g = g, .c = c, .vocab = clover_model_config(g->model)->vocab, .record = { .fd = -1 }, .files = json_array(), .trace = json_array(),
                  .told = told, .told_user = user, .saved_at = now() };
    char *journal = text_format(err, "%s/%s", g->out, BUNDLE_UNFINISHED);
    if (journal) r.state_path = text_format(err, "%s/state.safetensors", journal);
    CloverStatus status = r.state_path ? CLOVER_OK : err->status;
    ModelArgs args = *g->args;
    args.coreset_top_p = c->given.coreset_top_p;
    if (status == CLOVER_OK) status = model_args_session(&args, g->model, c->capacity, &r.session, err);
    if (status == CLOVER_OK) status = record_open(&r.record, c->globs, false, journal, err);
    const GoldenFaults *faults = g->faults;
    if (status == CLOVER_OK && faults) {
        status = in_force_begin(&r.in_force, faults->h, faults->n, r.session, err);
        r.record.in_force = &r.in_force;
        r.record.type = faults->type;
    }
    const CloverEngine engine = { &r, r.vocab, run_commit, run_preview, run_snapshot, run_restore, run_snapshot_free, run_position };
    if (status == CLOVER_OK) status = c->is_run ? decode(&r, &engine, err) : make_steps(&r, &engine, err);
    if (status == CLOVER_OK) {
        *out = (CaseFiles){ .steps = steps_json(&r), .names = json_incref(r.files) };
        if (!out->steps) status = error_memory(err, "the steps", 0);
    }
    free(journal);
    let_go(&r);
    return status;
}
