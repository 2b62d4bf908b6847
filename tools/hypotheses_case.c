/* hypotheses_case.c - the case that clover hypotheses --dump runs when no golden says which. [HYP-3] */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "hypotheses_case.h"
#include "run_args.h"

/* n ids of the model's vocabulary, none of them the mask, no two next to each other alike. */
static void some_ids(const CloverConfig *c, int64_t n, int64_t from, int32_t *ids) {
    for (int64_t i = 0; i < n; i++) {
        int64_t id = (from + 7 * i) % c->vocab;
        if (id == c->mask_id) id = (id + 1) % c->vocab;
        ids[i] = (int32_t)id;
    }
}

static bool needs(const Hypothesis *h, const char *word) { return strstr(h->needs, word) != NULL || strncmp(h->name, word, strlen(word)) == 0; }

/* ---- steps --------------------------------------------------------------------------------------------------------- */

static json_t *id_list(const CloverConfig *c, int64_t n, int64_t from, bool masks) {
    int32_t id[16];
    json_t *ids = json_array();
    some_ids(c, n, from, id);
    for (int64_t i = 0; i < n; i++) json_array_append_new(ids, json_integer(masks && i % 3 != 2 ? c->mask_id : id[i]));
    return ids;
}

/* Commits, a preview, a snapshot and its restore: what a stage, a parameter or the state does wrong shows in one of them. */
static json_t *steps_case(const Hypothesis *h, const CloverModel *model) {
    const CloverConfig *c = clover_model_config(model);
    CloverError ignored;
    json_t *steps = json_array();
    json_array_append_new(steps, json_pack("{s:s, s:o}", "name", "prompt", "commit", id_list(c, 12, 72, false)));
    json_array_append_new(steps, json_pack("{s:s}", "snapshot", "mid"));
    if (clover_model_can_preview(model, &ignored) == CLOVER_OK) json_array_append_new(steps, json_pack("{s:s, s:o}", "name", "block", "preview", id_list(c, 6, 105, c->mask_id >= 0)));
    json_array_append_new(steps, json_pack("{s:s, s:o}", "name", "more", "commit", id_list(c, 4, 65, false)));
    json_array_append_new(steps, json_pack("{s:s}", "restore", "mid"));
    json_array_append_new(steps, json_pack("{s:s, s:o}", "name", "again", "commit", id_list(c, 3, 97, false)));
    json_t *one = json_pack("{s:[s], s:o}", "probes", "*", "steps", steps);
    if (one && needs(h, "coreset")) json_object_set_new(one, "options", json_pack("{s:f}", "coreset_top_p", 0.6));
    return one;
}

/* ---- runs ---------------------------------------------------------------------------------------------------------- */

/* A run in the mode where the decision falls, with what it takes to see it; the tries differ in prompt, threshold, strength. */
static void set_run(RunArgs *a, const Hypothesis *h, const CloverModel *model, int t, int32_t prompt[7]) {
    static const double thresholds[] = { 0.5, 0.3, 0.45, 0.02 };
    const CloverConfig *c = clover_model_config(model);
    CloverError ignored;
    *a = run_args_defaults();
    a->mode = needs(h, "denoise") ? CLOVER_DENOISE : needs(h, "draft") ? CLOVER_DRAFT : CLOVER_AR;
    if (t % 2 && needs(h, "penalty") && clover_model_can_preview(model, &ignored) == CLOVER_OK) a->mode = CLOVER_DENOISE;   /* blocks repeat themselves more */
    some_ids(c, 7, 72 + 11 * t, prompt);
    a->ids = (ArgIds){ prompt, 7 };
    a->decode.max_tokens = 20;
    if (a->mode != CLOVER_AR) a->model.block = 8;
    if (a->mode == CLOVER_DENOISE) a->model.threshold = thresholds[t % 4];
    if (a->mode == CLOVER_DRAFT) a->decode.width = 4, a->width = true;
    if (needs(h, "no argmax") && t > 0) a->accept = "0.000000001,0.000000001";         /* so that a small random model's drafts are likely enough */
    if (!needs(h, "penalty")) return;
    a->presence = a->frequency = a->repetition = true;
    a->decode.controls.presence_penalty = 1 + 2 * (t % 3);
    a->decode.controls.frequency_penalty = 0.5;
    a->decode.controls.repetition_penalty = t / 2 % 2 ? 1.25 : 2;
    a->decode.max_tokens = 40;
}

/* What a run decided, and the second largest probability of its first pass. */
typedef struct Decisions { uint64_t hash; double second; bool past_first; } Decisions;

static void mix_in(Decisions *d, int64_t value) { d->hash = (d->hash ^ (uint64_t)value) * 0x100000001b3u; }

static bool decided(void *user, const CloverEvent *e) {
    Decisions *d = user;
    double largest = 0;
    const int64_t numbers[] = { e->kind, e->position, e->id, e->pass, e->n_candidates, e->n_fixed, e->n_ids, e->emitted, e->accepted, e->bonus };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) mix_in(d, numbers[i]);
    for (int64_t i = 0; i < e->n_ids; i++) mix_in(d, e->ids[i]);
    for (int64_t i = 0; i < e->n_fixed; i++) mix_in(d, e->fixed[i]);
    for (int64_t i = 0; i < e->n_judged; i++) mix_in(d, e->judged[i].accepted);
    for (int64_t i = 0; i < e->n_candidates && !d->past_first; i++) {
        const double p = e->candidates[i].p;
        if (p > largest) d->second = largest, largest = p;
        else if (p > d->second && p < largest) d->second = p;
    }
    d->past_first = true;
    return true;
}

static CloverStatus decide(const RunArgs *a, const Hypothesis *h, const CloverModel *model, Decisions *d, CloverError *err) {
    CloverDecodeOptions o;
    CloverSession *s = NULL;
    InForce f = { .n = 0 };
    int32_t out[64];
    int64_t n;
    *d = (Decisions){ .hash = 0xcbf29ce484222325u };
    if (run_args_decode(a, clover_model_config(model), &o, err) != CLOVER_OK) return err->status;
    CloverStatus status = model_args_session(&a->model, model, run_args_capacity(&o, a->ids.n) + o.max_tokens * o.block, &s, err);
    if (status == CLOVER_OK) status = in_force_begin(&f, &h, h ? 1 : 0, s, err);
    if (status == CLOVER_OK) {
        const CloverEngine engine = clover_session_engine(s);
        status = decode_with_rules(&engine, &f.decoding, &o, a->ids.ids, a->ids.n, decided, d, out, &n, err);
    }
    in_force_end(&f);
    clover_session_free(s);
    return status;
}

/* Does the run show it? */
static CloverStatus differs(RunArgs *a, const Hypothesis *h, const CloverModel *model, bool *shows, CloverError *err) {
    Decisions right, wrong = { 0 };
    CloverStatus status = decide(a, NULL, model, &right, err);
    if (status == CLOVER_OK && needs(h, "threshold exactly")) {
        a->model.threshold = right.second;
        status = decide(a, NULL, model, &right, err);
    }
    if (status == CLOVER_OK) status = decide(a, h, model, &wrong, err);
    *shows = right.hash != wrong.hash;
    return status;
}

enum { TRIES = 24, SMALL = 4096 };                           /* SMALL: layers times hidden size */

static CloverStatus run_case(const Hypothesis *h, const CloverModel *model, ModelArgs *m, json_t **one, CloverError *err) {
    const CloverConfig *c = clover_model_config(model);
    RunArgs a;
    int32_t prompt[7];
    bool shows = false;
    CloverStatus status = CLOVER_OK;
    for (int t = 0; t < TRIES && c->layers * c->hidden <= SMALL && !shows && status == CLOVER_OK; t++) {
        set_run(&a, h, model, t, prompt);
        a.model.numerics = needs(h, "equal") ? CLOVER_BF16 : m->numerics;   /* exact logits are hardly ever equal */
        status = differs(&a, h, model, &shows, err);
    }
    if (shows) m->numerics = a.model.numerics;
    else set_run(&a, h, model, 0, prompt);
    if (status == CLOVER_OK && !(*one = run_args_to_json(&a))) status = error_memory(err, "the case", 0);
    if (status == CLOVER_OK && m->numerics == CLOVER_BF16) json_object_set_new(*one, "probes", json_pack("[s]", "*"));   /* so that clover diff sees which experts rounding chose */
    return status;
}

/* ---- both ---------------------------------------------------------------------------------------------------------- */

CloverStatus fitting_cases(const Hypothesis *h, const CloverModel *model, ModelArgs *a, json_t **cases, CloverError *err) {
    json_t *one = NULL;
    error_clear(err);
    if (h->kind != HYPOTHESIS_DECODING) one = steps_case(h, model);
    else if (run_case(h, model, a, &one, err) != CLOVER_OK) return err->status;
    if (one) json_object_set_new(one, "name", json_string(h->name));
    if (one) json_object_set_new(one, "why", json_string(h->says));
    *cases = one ? json_pack("[o]", one) : NULL;
    return *cases ? CLOVER_OK : error_memory(err, "the case", 0);
}
