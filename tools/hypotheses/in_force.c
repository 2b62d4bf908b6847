/* in_force.c - hypotheses at work on a session: its rules pointed elsewhere, a parameter changed, its state meddled with. [HYP-2] */
#include <stdlib.h>
#include <string.h>
#include "../../ref/error.h"
#include "hypothesis.h"

enum { SLOTS = sizeof ((HypothesisMemory *)0)->layer / sizeof *((HypothesisMemory *)0)->layer };

static void point_at(Rules *r, const HypothesisRules *to) {
    *r = (Rules){ .trunk = &to->trunk, .attn_commit = &to->attn[0], .attn_preview = &to->attn[1], .gdn_commit = &to->gdn[0], .gdn_preview = &to->gdn[1],
                  .moe_commit = &to->moe[0], .moe_preview = &to->moe[1] };
}

static CloverStatus remember(HypothesisMemory *m, int64_t layers, CloverError *err) {
    m->layers = layers;
    for (int i = 0; i < SLOTS; i++)
        if (!(m->layer[i] = calloc((size_t)layers, sizeof *m->layer[i]))) return error_memory(err, "a state fault's memory", (size_t)layers * sizeof *m->layer[i]);
    return CLOVER_OK;
}

/* The session's own rules and parameters with those hypotheses' that are at work in the layer; layer < 0: outside of all. */
static void put_in_force(InForce *f, CloverSession *s, int64_t layer) {
    f->rules = f->base;
    s->c = f->config;
    s->coreset_top_p = f->coreset_top_p;
    for (int i = 0; i < f->n; i++) {
        if (f->layer[i] >= 0 && f->layer[i] != layer) continue;
        if (f->h[i]->rules) f->h[i]->rules(&f->rules);
        if (f->h[i]->parameter) f->h[i]->parameter(s);
    }
}

void in_force_only(InForce *f, CloverSession *s, int i, int64_t layer) {
    f->layer[i] = layer;
    put_in_force(f, s, -1);
}

void in_force_passed(InForce *f, CloverSession *s, const char *name) {
    bool some = false;
    for (int i = 0; i < f->n; i++) some |= f->layer[i] >= 0;
    if (!some) return;
    const char *dot = strchr(name, '.');
    if (strcmp(name, "embed") == 0) put_in_force(f, s, 0);
    else if (dot && strcmp(dot, ".out") == 0) put_in_force(f, s, strtoll(name + 1, NULL, 10) + 1);
    else if (strcmp(name, "logits") == 0) put_in_force(f, s, -1);
}

CloverStatus in_force_begin(InForce *f, const Hypothesis *const *h, int n, CloverSession *s, CloverError *err) {
    memset(f, 0, sizeof *f);
    if (n > IN_FORCE_MAX) return error_set(err, CLOVER_USAGE, "%d hypotheses at once, %d are the most", n, (int)IN_FORCE_MAX);
    const Rules *now = &s->rules;
    f->base = (HypothesisRules){ *now->trunk, { *now->attn_commit, *now->attn_preview }, { *now->gdn_commit, *now->gdn_preview }, { *now->moe_commit, *now->moe_preview } };
    f->decoding = decode_rules;
    for (int i = 0; i < n; i++) {
        f->h[f->n++] = h[i];
        f->layer[i] = -1;
        if (remember(&f->memory[i], s->c.layers, err) != CLOVER_OK) return err->status;
        if (h[i]->decoding) h[i]->decoding(&f->decoding);
    }
    f->config = s->c;
    f->coreset_top_p = s->coreset_top_p;
    put_in_force(f, s, -1);
    point_at(&s->rules, &f->rules);
    return CLOVER_OK;
}

void in_force_observe(InForce *f, const CloverSession *s, bool preview, const char *name, const double *data, const int64_t *shape, int dims) {
    for (int i = 0; i < f->n; i++)
        if (f->h[i]->observe) f->h[i]->observe(&f->memory[i], s, preview, name, data, shape, dims);
}

CloverStatus in_force_at(InForce *f, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err) {
    error_clear(err);
    for (int i = 0; i < f->n && err->status == CLOVER_OK; i++)
        if (f->h[i]->at) f->h[i]->at(&f->memory[i], s, moment, rows, err);
    return err->status;
}

CloverStatus in_force_commit(InForce *f, CloverSession *s, const int32_t *ids, int64_t n, double *logits, int64_t rows, CloverError *err) {
    if (f && in_force_at(f, s, BEFORE_COMMIT, n, err) != CLOVER_OK) return err->status;
    CloverStatus status = clover_commit(s, ids, n, logits, rows, err);
    return f && status == CLOVER_OK ? in_force_at(f, s, AFTER_COMMIT, n, err) : status;
}

CloverStatus in_force_preview(InForce *f, CloverSession *s, const int32_t *ids, int64_t n, double *logits, CloverError *err) {
    if (f && in_force_at(f, s, BEFORE_PREVIEW, n, err) != CLOVER_OK) return err->status;
    CloverStatus status = clover_preview(s, ids, n, logits, err);
    return f && status == CLOVER_OK ? in_force_at(f, s, AFTER_PREVIEW, n, err) : status;
}

CloverStatus in_force_snapshot(InForce *f, CloverSession *s, CloverSnapshot **out, CloverError *err) {
    CloverStatus status = clover_snapshot_take(s, out, err);
    return f && status == CLOVER_OK ? in_force_at(f, s, AFTER_SNAPSHOT, 0, err) : status;
}

CloverStatus in_force_restore(InForce *f, CloverSession *s, const CloverSnapshot *snapshot, CloverError *err) {
    CloverStatus status = clover_snapshot_restore(s, snapshot, err);
    return f && status == CLOVER_OK ? in_force_at(f, s, AFTER_RESTORE, 0, err) : status;
}

void in_force_end(InForce *f) {
    for (int i = 0; i < f->n; i++) {
        HypothesisMemory *m = &f->memory[i];
        for (int k = 0; k < SLOTS; k++) {
            for (int64_t l = 0; m->layer[k] && l < m->layers; l++) free(m->layer[k][l].data);
            free(m->layer[k]);
        }
    }
    memset(f, 0, sizeof *f);
}
