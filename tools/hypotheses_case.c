/* hypotheses_case.c - the case that clover hypotheses --dump runs when no golden says which. [HYP-3] */
#include <string.h>
#include "hypotheses_case.h"

/* n ids of the model's vocabulary, none of them the mask, no two next to each other alike. */
static json_t *some_ids(const CloverConfig *c, int64_t n, int64_t from) {
    json_t *ids = json_array();
    for (int64_t i = 0; i < n; i++) {
        int64_t id = (from + 7 * i) % c->vocab;
        if (id == c->mask_id) id = (id + 1) % c->vocab;
        json_array_append_new(ids, json_integer((json_int_t)id));
    }
    return ids;
}

static json_t *mostly_masks(const CloverConfig *c) {
    json_t *ids = some_ids(c, 6, 105);
    for (size_t i = 0; i < 6 && c->mask_id >= 0; i++)
        if (i % 3 != 2) json_array_set_new(ids, i, json_integer(c->mask_id));
    return ids;
}

static bool needs(const Hypothesis *h, const char *word) { return strstr(h->needs, word) != NULL || strncmp(h->name, word, strlen(word)) == 0; }

/* Commits, a preview, a snapshot and its restore: what a stage, a parameter or the state does wrong shows in one of them. */
static json_t *steps_case(const Hypothesis *h, const CloverConfig *c) {
    json_t *steps = json_array();
    json_array_append_new(steps, json_pack("{s:s, s:o}", "name", "prompt", "commit", some_ids(c, 12, 72)));
    json_array_append_new(steps, json_pack("{s:s}", "snapshot", "mid"));
    if (c->mask_id >= 0) json_array_append_new(steps, json_pack("{s:s, s:o}", "name", "block", "preview", mostly_masks(c)));
    json_array_append_new(steps, json_pack("{s:s, s:o}", "name", "more", "commit", some_ids(c, 4, 65)));
    json_array_append_new(steps, json_pack("{s:s}", "restore", "mid"));
    json_array_append_new(steps, json_pack("{s:s, s:o}", "name", "again", "commit", some_ids(c, 3, 97)));
    json_t *one = json_pack("{s:s, s:s, s:[s], s:o}", "name", h->name, "why", h->says, "probes", "*", "steps", steps);
    if (one && needs(h, "coreset")) json_object_set_new(one, "options", json_pack("{s:f}", "coreset_top_p", 0.6));
    return one;
}

/* A run in the mode where the decision falls, with what it takes to see it. */
static json_t *run_case(const Hypothesis *h, const CloverConfig *c) {
    const char *mode = needs(h, "denoise") ? "denoise" : needs(h, "draft") ? "draft" : "ar";
    json_t *one = json_pack("{s:s, s:s, s:{s:o}, s:s, s:i}", "name", h->name, "why", h->says, "prompt", "ids", some_ids(c, 7, 72), "mode", mode, "n", 20);
    json_t *options = json_object();
    if (strcmp(mode, "ar") != 0) json_object_set_new(options, "block", json_integer(8));
    if (strcmp(mode, "draft") == 0) json_object_set_new(options, "width", json_integer(4));
    if (needs(h, "a pass")) json_object_set_new(options, "threshold", json_real(0.02));      /* so that a pass fixes several rows, also of a small random model */
    if (json_object_size(options)) json_object_set(one, "options", options);
    json_decref(options);
    if (needs(h, "penalty")) json_object_set_new(one, "controls", json_pack("{s:f, s:f, s:f}", "presence_penalty", 1.0, "frequency_penalty", 0.5, "repetition_penalty", 1.5));
    return one;
}

json_t *fitting_cases(const Hypothesis *h, const CloverConfig *c) {
    json_t *one = h->kind == HYPOTHESIS_DECODING ? run_case(h, c) : steps_case(h, c);
    return one ? json_pack("[o]", one) : NULL;
}
