/* diff_trace.c - a run's decisions against the golden's: the first that differs, and whether rounding explains it. [DIF-9] */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "../ref/math/rowwise.h"
#include "diff_parts.h"

/* How far a probability may lie from the golden's by the profile's rounding alone: stated, since a decision is no sum of
 * many elements whose floor could be measured. */
static double probability_error(CloverNumerics profile) { return profile == CLOVER_F32 ? 1e-3 : 0.2; }

#define NEAR_TIE "; a near tie, within the profile's error: what follows answers another text"

static const char *kind_of(const json_t *step) {
    const char *kind = json_string_value(json_object_get(step, "step"));
    return kind ? kind : "?";
}

static double real_at(const json_t *array, size_t i) { return json_number_value(json_array_get(array, i)); }
static bool same(const json_t *a, const json_t *b, const char *key) { return json_equal(json_object_get(a, key), json_object_get(b, key)); }

/* One candidate or judged entry of both steps, by position. */
static const json_t *entry(const json_t *step, const char *key, size_t i) { return json_array_get(json_object_get(step, key), i); }

static void say(TraceResult *r, int64_t step, bool explained, const char *format, ...) {
    va_list args;
    r->differs = true;
    r->explained = explained;
    r->step = step;
    const int used = snprintf(r->text, sizeof r->text, "decision %lld: ", (long long)step);
    va_start(args, format);
    vsnprintf(r->text + used, sizeof r->text - (size_t)used, format, args);
    va_end(args);
    const size_t length = strlen(r->text);
    snprintf(r->text + length, sizeof r->text - length, "%s", explained ? NEAR_TIE : "");
}

/* Is row in a list of rows? */
static bool lists(const json_t *rows, json_int_t row) {
    size_t i;
    json_t *value;
    json_array_foreach((json_t *)(uintptr_t)rows, i, value)
        if (json_integer_value(value) == row) return true;
    return false;
}

/* By rounding alone? Probabilities that are the golden's to the last bit leave it no excuse. */
static bool near_by_rounding(double golden, double dump, double error) { return golden != dump && fabs(golden - dump) <= error; }

/* What decisions turn on. */
typedef struct Bounds { double threshold, ratio, delta, error; bool exact; } Bounds;

static double largest_probability(const json_t *pass) {
    double largest = 0;
    for (size_t i = 0; i < json_array_size(json_object_get(pass, "candidates")); i++) largest = fmax(largest, real_at(entry(pass, "candidates", i), 2));
    return largest;
}

/* Is a row of probability p fixed or not by a hair: at the threshold, or, where no row exceeds that, nearly the most probable? */
static bool fixed_by_a_hair(double p, const json_t *pass, const Bounds *b) {
    const double largest = largest_probability(pass);
    return fabs(p - b->threshold) <= b->error || (largest <= b->threshold + b->error && p >= largest - 2 * b->error);
}

/* A pass: every masked row's best token and probability, and which rows were fixed. False: they agree. */
static bool pass_differs(TraceResult *r, int64_t at, const json_t *golden, const json_t *dump, const Bounds *b) {
    const size_t n = json_array_size(json_object_get(golden, "candidates"));
    if (!same(golden, dump, "pos") || json_array_size(json_object_get(dump, "candidates")) != n) {
        say(r, at, false, "the golden's pass has %zu masked rows at position %lld, the dump's %zu at %lld", n, (long long)json_integer_value(json_object_get(golden, "pos")),
            json_array_size(json_object_get(dump, "candidates")), (long long)json_integer_value(json_object_get(dump, "pos")));
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *g = entry(golden, "candidates", i), *d = entry(dump, "candidates", i);
        const double pg = real_at(g, 2), pd = real_at(d, 2);
        const json_int_t row = json_integer_value(json_array_get(g, 0));
        const bool near = near_by_rounding(pg, pd, b->error), fixed_g = lists(json_object_get(golden, "fixed"), row), fixed_d = lists(json_object_get(dump, "fixed"), row);
        if (json_integer_value(json_array_get(g, 0)) != json_integer_value(json_array_get(d, 0))) {
            say(r, at, false, "row %lld is masked in one pass and not in the other", (long long)row);
            return true;
        }
        if ((fixed_g || fixed_d) && json_integer_value(json_array_get(g, 1)) != json_integer_value(json_array_get(d, 1))) {
            say(r, at, near && pg < 0.5 + b->error, "row %lld: the golden's token is %lld (p %.6g), the dump's %lld (p %.6g)", (long long)row,
                (long long)json_integer_value(json_array_get(g, 1)), pg, (long long)json_integer_value(json_array_get(d, 1)), pd);
            return true;
        }
        if (fixed_g != fixed_d) {
            say(r, at, near && fixed_by_a_hair(pg, golden, b), "row %lld is fixed by the %s only: p %.9g in the golden, %.9g in the dump, threshold %g", (long long)row,
                fixed_g ? "golden" : "dump", pg, pd, b->threshold);
            return true;
        }
    }
    return false;
}

static bool round_differs(TraceResult *r, int64_t at, const json_t *golden, const json_t *dump, const Bounds *b) {
    if (!same(golden, dump, "draft")) {
        say(r, at, false, "the drafts differ");
        return true;
    }
    const size_t n = json_array_size(json_object_get(golden, "judged"));
    for (size_t i = 0; i < n; i++) {
        const json_t *g = entry(golden, "judged", i), *d = entry(dump, "judged", i);
        if (json_equal(json_array_get(g, 3), json_array_get(d, 3))) continue;
        const double pg = real_at(g, 1), pd = real_at(d, 1), bound = fmin(b->ratio, b->delta * exp(-real_at(g, 2)));   /* [DRA-5] */
        const bool by_a_hair = b->exact ? pg < 0.5 + b->error : fabs(pg - bound) <= 2 * b->error;
        say(r, at, d && near_by_rounding(pg, pd, b->error) && by_a_hair, "candidate %zu (token %lld) is accepted by the %s only: p %.9g in the golden, %.9g in the dump", i + 1,
            (long long)json_integer_value(json_array_get(g, 0)), json_is_true(json_array_get(g, 3)) ? "golden" : "dump", pg, pd);
        return true;
    }
    if (!same(golden, dump, "accepted") || !same(golden, dump, "bonus")) {
        say(r, at, false, "accepted %lld and then %lld in the golden, %lld and then %lld in the dump", (long long)json_integer_value(json_object_get(golden, "accepted")),
            (long long)json_integer_value(json_object_get(golden, "bonus")), (long long)json_integer_value(json_object_get(dump, "accepted")),
            (long long)json_integer_value(json_object_get(dump, "bonus")));
        return true;
    }
    return false;
}

static bool step_differs(TraceResult *r, int64_t at, const json_t *golden, const json_t *dump, const Bounds *b) {
    const char *kind = kind_of(golden);
    if (strcmp(kind, kind_of(dump)) != 0) {
        say(r, at, false, "the golden has a %s here, the dump a %s", kind, kind_of(dump));
        return true;
    }
    if (strcmp(kind, "pass") == 0) return pass_differs(r, at, golden, dump, b);
    if (strcmp(kind, "round") == 0) return round_differs(r, at, golden, dump, b);
    if (strcmp(kind, "block") == 0) {
        if (same(golden, dump, "ids") && same(golden, dump, "emitted") && same(golden, dump, "pos")) return false;
        say(r, at, false, "the blocks differ");
        return true;
    }
    if (same(golden, dump, "id")) return false;
    const double pg = json_number_value(json_object_get(golden, "p")), pd = json_number_value(json_object_get(dump, "p"));
    say(r, at, pg > 0 && near_by_rounding(pg, pd, b->error) && pg < 0.5 + b->error, "token %lld (p %.6g) in the golden, %lld (p %.6g) in the dump",
        (long long)json_integer_value(json_object_get(golden, "id")), pg, (long long)json_integer_value(json_object_get(dump, "id")), pd);
    return true;
}

static double option(const json_t *trace, const char *name, double otherwise) {
    const json_t *value = json_object_get(json_object_get(trace, "options"), name);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static bool prefix_of(const json_t *a, const json_t *b) {
    for (size_t i = 0; i < json_array_size(a); i++)
        if (!json_equal(json_array_get(a, i), json_array_get(b, i))) return false;
    return true;
}

void diff_compare_traces(const DiffOptions *options, const json_t *golden, const json_t *dump, TraceResult *r) {
    const json_t *gs = json_object_get(golden, "steps"), *ds = json_object_get(dump, "steps");
    const Bounds bounds = { option(golden, "threshold", 0.95), option(golden, "ratio", 0.9), option(golden, "delta", 0.6), probability_error(options->profile),
                            json_is_true(json_object_get(json_object_get(golden, "options"), "accept_exact")) };
    const size_t n = json_array_size(gs);
    r->compared = true;
    for (size_t i = 0; json_is_array(ds) && i < n; i++) {
        if (i >= json_array_size(ds)) {
            say(r, (int64_t)i, false, "the dump's trace ends here, the golden's has %zu steps", n);
            return;
        }
        if (step_differs(r, (int64_t)i, json_array_get(gs, i), json_array_get(ds, i), &bounds)) return;
    }
    const json_t *gt = json_object_get(golden, "tokens"), *dt = json_object_get(dump, "tokens");
    if (json_is_array(dt) && json_array_size(dt) < json_array_size(gt) && prefix_of(dt, gt)) {
        say(r, (int64_t)json_array_size(dt), false, "the dump's output ends after %zu tokens, the golden's has %zu", json_array_size(dt), json_array_size(gt));
        return;
    }
    for (size_t i = 0; json_is_array(dt) && i < json_array_size(gt); i++)
        if (!json_equal(json_array_get(gt, i), json_array_get(dt, i))) {
            say(r, (int64_t)i, false, "output token %zu is %lld in the golden, %lld in the dump", i, (long long)json_integer_value(json_array_get(gt, i)),
                (long long)json_integer_value(json_array_get(dt, i)));
            return;
        }
    if (json_is_array(dt) && json_array_size(dt) > json_array_size(gt))
        say(r, (int64_t)json_array_size(gt), false, "the dump's output goes on after the golden's %zu tokens", json_array_size(gt));
    else if (json_is_array(ds) && json_array_size(ds) > n) say(r, (int64_t)n, false, "the dump's trace goes on after the golden's end");
}

/* Of entries […, id, …, p, …] that are about the same id. */
static double entries_apart(const json_t *a, const json_t *b, const char *key, size_t id, size_t p) {
    double apart = 0;
    for (size_t i = 0; i < json_array_size(json_object_get(a, key)) && i < json_array_size(json_object_get(b, key)); i++)
        if (json_equal(json_array_get(entry(a, key, i), id), json_array_get(entry(b, key, i), id))) apart = fmax(apart, fabs(real_at(entry(a, key, i), p) - real_at(entry(b, key, i), p)));
    return apart;
}

double diff_trace_distance(const json_t *golden, const json_t *dump) {
    const json_t *gs = json_object_get(golden, "steps"), *ds = json_object_get(dump, "steps");
    double apart = 0;
    for (size_t i = 0; i < json_array_size(gs) && i < json_array_size(ds); i++) {
        const json_t *g = json_array_get(gs, i), *d = json_array_get(ds, i), *pg = json_object_get(g, "p"), *pd = json_object_get(d, "p");
        if (strcmp(kind_of(g), kind_of(d)) != 0) break;
        if (json_is_number(pg) && json_is_number(pd) && same(g, d, "id")) apart = fmax(apart, fabs(json_number_value(pg) - json_number_value(pd)));
        apart = fmax(apart, fmax(entries_apart(g, d, "candidates", 1, 2), entries_apart(g, d, "judged", 0, 1)));
    }
    return apart;
}

static void show(DiffRun *d, Feature f, bool differs) {
    FeatureVerdict *v = &d->result->feature[f];
    if (differs) *v = FEATURE_DIFFERS;
    else if (*v == FEATURE_NOT_SHOWN) *v = FEATURE_CONFORMS;
}

/* Controls that are not neutral. */
static bool controlled(const json_t *controls) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)controls, key, value) {
        if (strcmp(key, "repetition_penalty") == 0 ? json_number_value(value) != 1 : strstr(key, "_penalty") && !strstr(key, "_start") && !strstr(key, "_window") && json_number_value(value) != 0) return true;
        if (strcmp(key, "dllm_think_end_bias") == 0 && json_number_value(value) != 0) return true;
    }
    return false;
}

/* The trace has no probabilities of a round's drafts and bonus; the golden's step has the logits. Step: the round's preview, or the commit
 * that verifies it. NULL: it has none. */
static const BundleStep *step_of_round(const BundleCase *c, const json_t *steps, int64_t round, bool preview) {
    int64_t before = 0;
    for (int64_t i = 0; i < round; i++) {
        const json_t *s = json_array_get(steps, (size_t)i);
        before += strcmp(kind_of(s), "round") == 0 && json_array_size(json_object_get(s, "draft")) > 1;
    }
    for (int64_t i = 0; i < c->n_steps; i++) {
        if (c->step[i].kind != STEP_PREVIEW || before-- > 0) continue;
        for (; i < c->n_steps && !preview && c->step[i].kind != STEP_COMMIT; i++) {}
        return i < c->n_steps ? &c->step[i] : NULL;
    }
    return NULL;
}

/* Do two ids of a row lie within the error of each other in the golden's logits of a step? */
static bool near_in_logits(const DiffRun *d, const BundleCase *c, const BundleStep *step, int64_t row, int64_t a, int64_t b) {
    char *path = step && step->recorded ? bundle_file(d->bundle, c, step->name, ".safetensors") : NULL;
    Safetensors *s = NULL;
    CloverError ignored;
    bool near = false;
    if (path && safetensors_open(path, &s, &ignored) == CLOVER_OK) {
        const Tensor *t = safetensors_tensor(s, "logits");
        if (t && t->type == DT_F64 && t->dims == 2 && row < t->shape[0] && a >= 0 && b >= 0 && a < t->shape[1] && b < t->shape[1]) {
            const int64_t V = t->shape[1];
            double *p = malloc((size_t)V * sizeof *p);
            if (p) {
                memcpy(p, t->data + (size_t)(row * V) * sizeof *p, (size_t)V * sizeof *p);
                softmax(p, V);
                near = fabs(p[a] - p[b]) <= 2 * probability_error(d->options->profile);
            }
            free(p);
        }
    }
    safetensors_close(s);
    free(path);
    return near;
}

/* Does the dump's choice follow from its own logits of that row, and do those conform? Then the decision was right, given them. */
static bool follows_from_its_logits(DiffRun *d, const BundleCase *c, const BundleStep *step, int64_t row, int64_t chosen) {
    const DiffResult *out = d->result;
    const ProbeResult *r = NULL;
    for (int64_t i = 0; step && i < out->n_probes && !r; i++)
        if (out->probe[i].case_name == c->name && strcmp(out->probe[i].step, step->name) == 0 && strcmp(out->probe[i].probe, "logits") == 0) r = &out->probe[i];
    if (!r || (r->verdict != STAGE_CONFORMS && r->verdict != STAGE_BELOW_FLOOR) || r->shape[0] != step->n || row >= step->n || chosen < 0 || chosen >= r->shape[1]) return false;
    const int64_t V = r->shape[1];
    double *logits = malloc((size_t)(step->n * V) * sizeof *logits);
    DType type;
    int64_t rows;
    CloverError ignored;
    bool follows = logits && dump_load(d->dump, c->name, step->name, "logits", r->shape, 2, logits, &type, &rows, &ignored) == DUMP_FOUND && rows == step->n;
    for (int64_t i = 0; i < V && follows; i++) follows = logits[row * V + i] <= logits[row * V + chosen];
    free(logits);
    return follows;
}

/* A round whose drafts or bonus differ by a hair, or as the logits do. */
static void excuse_round(DiffRun *d, const BundleCase *c, const json_t *golden, const json_t *dump, TraceResult *r) {
    const json_t *gs = json_object_get(golden, "steps"), *g = json_array_get(gs, (size_t)r->step), *theirs = json_array_get(json_object_get(dump, "steps"), (size_t)r->step);
    if (!r->differs || r->explained || strcmp(kind_of(g), "round") != 0 || strcmp(kind_of(theirs), "round") != 0) return;
    const json_t *draft = json_object_get(g, "draft"), *other = json_object_get(theirs, "draft");
    size_t at = 0;
    while (at < json_array_size(draft) && json_equal(json_array_get(draft, at), json_array_get(other, at))) at++;
    if (json_array_size(draft) != json_array_size(other) || at == 0) return;
    const bool drafted = at < json_array_size(draft);
    if (!drafted && !same(g, theirs, "accepted")) return;
    const BundleStep *step = step_of_round(c, gs, r->step, drafted);
    const int64_t row = drafted ? (int64_t)at : json_integer_value(json_object_get(g, "accepted"));
    const int64_t mine = json_integer_value(drafted ? json_array_get(draft, at) : json_object_get(g, "bonus"));
    const int64_t other_id = json_integer_value(drafted ? json_array_get(other, at) : json_object_get(theirs, "bonus"));
    if (!near_in_logits(d, c, step, row, mine, other_id) && !follows_from_its_logits(d, c, step, row, other_id)) return;
    r->explained = true;
    const size_t used = strlen(r->text);
    snprintf(r->text + used, sizeof r->text - used, "%s", NEAR_TIE);
}

static CloverStatus one_trace(DiffRun *d, const BundleCase *c) {
    TraceResult *r = &d->result->trace[d->result->n_traces];
    *r = (TraceResult){ .case_name = c->name };
    json_t *dump = dump_trace(d->dump, c->name, d->err);
    if (!dump) {
        if (d->err->status == CLOVER_OK) diff_not_compared(d, "%s/trace.json (the dump has none)", c->name);
        return d->err->status;
    }
    char *path = bundle_file(d->bundle, c, "trace", ".json");
    json_error_t where;
    json_t *golden = path ? json_load_file(path, JSON_REJECT_DUPLICATES, &where) : NULL;
    free(path);
    if (!golden) {
        json_decref(dump);
        return error_set(d->err, CLOVER_BAD_INPUT, "%s: case %s: its trace cannot be read: %s", d->bundle->path, c->name, where.text);
    }
    if (!json_is_array(json_object_get(dump, "steps")) && !json_is_array(json_object_get(dump, "tokens"))) {
        json_decref(golden);
        json_decref(dump);
        return error_set(d->err, CLOVER_BAD_INPUT, "%s: case %s: its trace.json has neither an array \"steps\" nor an array \"tokens\": no trace of a run", d->options->dump, c->name);
    }
    d->result->n_traces++;
    const json_t *prompt = json_object_get(dump, "prompt");
    const bool text = c->prompt && !json_object_get(c->prompt, "ids");
    bool same_prompt = true;
    if (json_is_array(prompt)) {
        same_prompt = json_equal(prompt, json_object_get(golden, "prompt"));
        if (text) show(d, FEATURE_TOKENIZER, !same_prompt);
    }
    const json_t *their_mode = json_object_get(dump, "mode");
    if (!same_prompt) {
        r->compared = true;
        say(r, 0, false, "the dump's prompt has other ids than the golden's");
    } else if (json_is_string(their_mode) && json_is_string(c->mode) && !json_equal(their_mode, c->mode)) {
        r->compared = true;
        say(r, 0, false, "the dump's run is of mode %.40s, the golden's of mode %.40s", json_string_value(their_mode), json_string_value(c->mode));
    } else {
        diff_compare_traces(d->options, golden, dump, r);
        if (d->options->profile != CLOVER_F32) excuse_round(d, c, golden, dump, r);
        const double apart = r->differs ? 0 : diff_trace_distance(golden, dump);
        if (apart > probability_error(d->options->profile)) diff_note(d, "trace %s: the decisions are the golden's, but a probability is %.3g off", c->name, apart);
        const json_t *theirs = json_object_get(dump, "options"), *value;
        const char *name;
        json_object_foreach((json_t *)(uintptr_t)theirs, name, value)
            if (json_object_get(json_object_get(golden, "options"), name) && !json_equal(value, json_object_get(json_object_get(golden, "options"), name)))
                diff_note(d, "trace %s: the dump's run has another %s than the golden's", c->name, name);
    }
    const char *mode = json_string_value(c->mode);
    const bool differs = r->differs && !r->explained;
    if (r->compared && mode && same_prompt) {
        show(d, strcmp(mode, "denoise") == 0 ? FEATURE_DENOISE : strcmp(mode, "draft") == 0 ? FEATURE_DRAFT : FEATURE_CAUSAL, differs);
        if (controlled(c->controls)) show(d, FEATURE_CONTROLS, differs);
    }
    json_decref(golden);
    json_decref(dump);
    return CLOVER_OK;
}

CloverStatus diff_traces(DiffRun *d) {
    const int64_t n = d->bundle->n_cases;
    d->result->trace = calloc((size_t)n + 1, sizeof *d->result->trace);
    if (!d->result->trace) return error_memory(d->err, "traces", (size_t)n * sizeof *d->result->trace);
    for (int64_t i = 0; i < n && d->err->status == CLOVER_OK; i++)
        if (d->bundle->cases[i].has_trace) one_trace(d, &d->bundle->cases[i]);
    return d->err->status;
}
