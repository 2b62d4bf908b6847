/* diagnose_trace.c - decisions that differ: the run is made again with one decoding fault after the other, until its trace is the
 * dump's. [DIA-3] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "../ref/model.h"
#include "../ref/trace.h"
#include "diff_parts.h"
#include "golden.h"

/* A session under hypotheses, as decoding sees it. */
typedef struct Replay { CloverSession *session; InForce force; bool preview; json_t *steps; bool no_memory; } Replay;

static void see(void *user, const char *name, double *data, const int64_t *shape, int dims) {
    Replay *r = user;
    in_force_observe(&r->force, r->session, r->preview, name, data, shape, dims);
    in_force_passed(&r->force, r->session, name);
}
static CloverStatus replay_commit(void *self, const int32_t *ids, int64_t n, double *logits, int64_t rows, CloverError *err) {
    Replay *r = self;
    r->preview = false;
    return in_force_commit(&r->force, r->session, ids, n, logits, rows, err);
}
static CloverStatus replay_preview(void *self, const int32_t *ids, int64_t n, double *logits, CloverError *err) {
    Replay *r = self;
    r->preview = true;
    return in_force_preview(&r->force, r->session, ids, n, logits, err);
}
static CloverStatus replay_snapshot(void *self, void **out, CloverError *err) {
    Replay *r = self;
    CloverSnapshot *snapshot = NULL;
    const CloverStatus status = in_force_snapshot(&r->force, r->session, &snapshot, err);
    *out = snapshot;
    return status;
}
static CloverStatus replay_restore(void *self, const void *snapshot, CloverError *err) {
    Replay *r = self;
    return in_force_restore(&r->force, r->session, snapshot, err);
}
static void replay_snapshot_free(void *self, void *snapshot) {
    (void)self;
    clover_snapshot_free(snapshot);
}
static int64_t replay_position(void *self) { return clover_session_position(((Replay *)self)->session); }

static bool on_event(void *user, const CloverEvent *e) {
    Replay *r = user;
    if (e->kind != CLOVER_EVENT_OUTPUT && json_array_append_new(r->steps, trace_step(e)) != 0) r->no_memory = true;
    return !r->no_memory;
}

/* The run's trace as an engine with d->force and h (or NULL) would write it: the golden's with other steps and tokens. NULL: it cannot be
 * run to its end, which is no error, or d->err says why. */
static json_t *run_again(DiffRun *d, const GoldenCase *c, const json_t *golden, const Hypothesis *h) {
    const CloverDecodeOptions *o = &c->decode;
    CloverSessionOptions session = clover_session_defaults();
    const Hypothesis *all[IN_FORCE_MAX];
    int n_all = 0;
    CloverError why;
    for (int i = 0; numerics_names[i]; i++)
        if (strcmp(numerics_names[i], d->bundle->numerics) == 0) session.numerics = (CloverNumerics)i;   /* as the golden's run was made */
    session.coreset_top_p = c->given.coreset_top_p;
    session.capacity = c->capacity + o->max_tokens * decode_draft_width(o);   /* a fault that rewinds nothing commits more */
    for (int i = 0; i < d->n_force; i++) all[n_all++] = d->force[i].h;
    if (h) all[n_all++] = h;
    Replay r = { .steps = json_array() };
    int32_t *out = malloc((size_t)o->max_tokens * sizeof *out);
    int64_t n = 0;
    CloverStatus status = out && r.steps ? clover_session_new(d->model, &session, &r.session, d->err) : error_memory(d->err, "a run", 0);
    if (status == CLOVER_OK && (status = in_force_begin(&r.force, all, n_all, r.session, d->err)) == CLOVER_OK) {
        for (int i = 0; i < d->n_force; i++) in_force_only(&r.force, r.session, i, d->force[i].layer);
        const CloverEngine engine = { &r, d->model->config.vocab, replay_commit, replay_preview, replay_snapshot, replay_restore, replay_snapshot_free, replay_position };
        clover_session_watch(r.session, n_all ? see : NULL, &r);
        status = decode_with_rules(&engine, &r.force.decoding, o, c->prompt, c->n_prompt, on_event, &r, out, &n, &why);
    }
    in_force_end(&r.force);
    clover_session_free(r.session);
    json_t *trace = NULL;
    if (status == CLOVER_OK && !r.no_memory && (trace = json_copy((json_t *)(uintptr_t)golden)) != NULL) {
        json_t *tokens = json_array();
        for (int64_t i = 0; i < n; i++) json_array_append_new(tokens, json_integer(out[i]));
        json_object_set_new(trace, "tokens", tokens);
        json_object_set(trace, "steps", r.steps);
    }
    free(out);
    json_decref(r.steps);
    return trace;
}

/* How far a run decides as the dump's does: to its end, or to decision `step`, by a hair or not. */
typedef struct Agreement { bool ran, whole, by_a_hair; int64_t step; double apart; } Agreement;   /* apart: their probabilities */

static Agreement agree(DiffRun *d, const GoldenCase *c, const json_t *golden, const json_t *dump, const Hypothesis *h) {
    TraceResult r = { 0 };
    json_t *trace = run_again(d, c, golden, h);
    if (!trace) return (Agreement){ .step = -1 };
    diff_compare_traces(d->options, trace, dump, &r);
    const double apart = diff_trace_distance(trace, dump);
    json_decref(trace);
    return (Agreement){ true, !r.differs, r.differs && r.explained, r.step, apart };
}

/* One run whose trace differs: the decoding faults, and where none is it, every other mistake, since the dump may show no stage at all.
 * Where rounding turns a decision further on, an engine's run cannot be given to its end: then the one that gets past the first. */
static void diagnose_run(DiffRun *d, const GoldenCase *c, const json_t *golden, const json_t *dump, const BundleCase *b, int divergence) {
    const Agreement before = agree(d, c, golden, dump, NULL);
    if (d->n_force && (before.whole || before.by_a_hair)) return;   /* what was diagnosed explains it */
    Agreement *with = calloc((size_t)hypotheses_count(), sizeof *with);
    int best = -1;
    if (!with) {
        error_memory(d->err, "a run's hypotheses", 0);
        return;
    }
    for (int tier = 0; tier < 4 && best < 0; tier++) {
        for (int i = 0; i < hypotheses_count() && d->err->status == CLOVER_OK; i++) {
            const Hypothesis *h = hypothesis_at(i);
            if ((h->kind == HYPOTHESIS_DECODING) != (tier < 2)) continue;
            if (tier % 2 == 0) with[i] = agree(d, c, golden, dump, h);
            const bool explains = tier % 2 == 0 ? with[i].whole : with[i].by_a_hair && with[i].step > before.step;
            if (with[i].ran && explains && (best < 0 || with[i].apart < with[best].apart)) best = i;
        }
        for (int i = -1; best >= 0 && i < hypotheses_count(); i++) {   /* the best first */
            const int k = i < 0 ? best : i;
            const Hypothesis *h = hypothesis_at(k);
            const bool explains = (h->kind == HYPOTHESIS_DECODING) == (tier < 2) && with[k].ran && (tier % 2 == 0 ? with[k].whole : with[k].by_a_hair && with[k].step > before.step);
            if (i == best || !explains || with[k].apart > 2 * with[best].apart + 1e-9) continue;
            Diagnosis *g = diagnosis_add(d, h, b->name, NULL, "trace", divergence, i < 0 ? DIAGNOSIS_CAUSE : DIAGNOSIS_ALIKE);
            if (g) g->explains = 1;
        }
    }
    free(with);
    if (best < 0) diff_note(d, "none of the known mistakes gives %s's decisions; all %d were tried", b->name, hypotheses_count());
    else if (d->n_force < IN_FORCE_MAX) d->force[d->n_force++] = (Forced){ hypothesis_at(best), -1 };   /* the next run is asked whether this explains it as well */
}

static json_t *golden_trace(const Bundle *b, const BundleCase *c) {
    json_error_t ignored;
    char *path = bundle_file(b, c, "trace", ".json");
    json_t *trace = path ? json_load_file(path, JSON_REJECT_DUPLICATES, &ignored) : NULL;
    free(path);
    return trace;
}

CloverStatus diff_diagnose_traces(DiffRun *d, int divergence) {
    const DiffResult *out = d->result;
    bool any = false;
    for (int64_t i = 0; i < out->n_traces; i++) any |= out->trace[i].compared && out->trace[i].differs && !out->trace[i].explained;
    if (!any) return CLOVER_OK;
    ModelArgs args = model_args_defaults();
    args.path = d->model->path;
    Golden g = { .args = &args, .model = d->model };
    json_t *cases = bundle_cases(d->bundle);
    const bool single = d->bundle->n_cases == 1 && !*d->bundle->cases[0].folder;
    CloverStatus status = cases ? golden_plan(&g, cases, single, d->bundle->path, (GoldenShard){ 1, 1 }, false, d->err) : error_memory(d->err, "the cases", 0);
    for (int64_t i = 0; i < out->n_traces && status == CLOVER_OK; i++) {
        const TraceResult *t = &out->trace[i];
        if (!t->compared || !t->differs || t->explained) continue;
        const BundleCase *b = case_named(d->bundle, t->case_name);
        json_t *golden = golden_trace(d->bundle, b), *dump = dump_trace(d->dump, b->name, d->err);
        const json_t *prompt = json_object_get(dump, "prompt"), *mode = json_object_get(dump, "mode");
        const bool same_run = (!json_is_array(prompt) || json_equal(prompt, json_object_get(golden, "prompt"))) && (!json_is_string(mode) || json_equal(mode, b->mode));
        for (int64_t k = 0; k < g.n_cases && golden && dump && same_run; k++)
            if (strcmp(g.cases[k].given.name, b->name) == 0) diagnose_run(d, &g.cases[k], golden, dump, b, divergence);
        json_decref(golden);
        json_decref(dump);
        status = d->err->status;
    }
    golden_free(&g);
    json_decref(cases);
    return d->err->status;
}
