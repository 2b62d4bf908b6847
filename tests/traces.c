/* traces.c - see traces.h. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "harness.h"
#include "traces.h"
#include "../ref/trace.h"

/* Writes the message; false, so that a comparison can end with it. */
static bool differs(char *message, size_t room, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(message, room, format, args);
    va_end(args);
    return false;
}

/* ---- comparing JSON ---------------------------------------------------------------------------------------------- */

/* An entropy near zero is a sum of terms that cancel to the last digit of 1; a probability has its digits however small. */
static bool is_entropy(const char *path) {
    const char *judged = strstr(path, "judged[");
    return judged && strcmp(strchr(judged, ']'), "][2]") == 0;
}

/* path is where we are, for the message. Integers, strings and booleans must be equal, reals close. */
static bool same(const json_t *got, const json_t *expected, const char *path, char *message, size_t room) {
    char inner[512];
    if (json_is_real(expected) && json_is_number(got)) {
        double a = json_number_value(got), b = json_number_value(expected);
        return close_to(a, b, 1e-9, is_entropy(path) ? 1e-14 : 0) || differs(message, room, "%s is %.17g, expected %.17g", path, a, b);
    }
    if (json_typeof(got) != json_typeof(expected)) return differs(message, room, "%s has another type than the trace", path);
    if (json_is_array(expected)) {
        for (size_t i = 0; i < json_array_size(expected) && i < json_array_size(got); i++) {
            snprintf(inner, sizeof inner, "%s[%zu]", path, i);
            if (!same(json_array_get(got, i), json_array_get(expected, i), inner, message, room)) return false;
        }
        size_t n = json_array_size(got), m = json_array_size(expected);
        return n == m || differs(message, room, "%s has %zu entries, expected %zu", path, n, m);
    }
    if (json_is_object(expected)) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)expected, key, value) {
            snprintf(inner, sizeof inner, "%s.%s", path, key);
            const json_t *ours = json_object_get(got, key);
            if (!ours) return differs(message, room, "%s is missing", inner);
            if (!same(ours, value, inner, message, room)) return false;
        }
        size_t n = json_object_size(got), m = json_object_size(expected);
        return n == m || differs(message, room, "%s has %zu members, expected %zu", path, n, m);
    }
    if (json_equal(got, expected)) return true;
    char *a = json_dumps(got, JSON_ENCODE_ANY), *b = json_dumps(expected, JSON_ENCODE_ANY);
    differs(message, room, "%s is %s, expected %s", path, a ? a : "?", b ? b : "?");
    free(a);
    free(b);
    return false;
}

/* ---- a case's options --------------------------------------------------------------------------------------------- */

typedef struct RealField { const char *name; double *value; } RealField;
typedef struct IntField { const char *name; int64_t *value; } IntField;

static bool read_controls(const json_t *from, CloverControls *c, char *message, size_t room) {
    const RealField reals[] = { { "frequency_penalty", &c->frequency_penalty }, { "presence_penalty", &c->presence_penalty },
                                { "repetition_penalty", &c->repetition_penalty }, { "dllm_length_penalty", &c->dllm_length_penalty },
                                { "dllm_think_end_bias", &c->dllm_think_end_bias } };
    int64_t think_end = c->dllm_think_end_token_id;
    const IntField ints[] = { { "dllm_length_penalty_start", &c->dllm_length_penalty_start },
                              { "dllm_length_penalty_window", &c->dllm_length_penalty_window },
                              { "dllm_think_end_start", &c->dllm_think_end_start },
                              { "dllm_think_end_window", &c->dllm_think_end_window },
                              { "dllm_think_end_token_id", &think_end } };
    size_t known = 0;
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        const json_t *v = json_object_get(from, reals[i].name);
        if (v) *reals[i].value = json_number_value(v), known++;
    }
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        const json_t *v = json_object_get(from, ints[i].name);
        if (v) *ints[i].value = json_integer_value(v), known++;
    }
    c->dllm_think_end_token_id = (int32_t)think_end;
    return known == json_object_size(from) || differs(message, room, "a control that this reader does not know");
}

static bool read_options(const json_t *from, CloverDecodeOptions *o, double *coreset_top_p, char *message, size_t room) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)from, key, v) {
        if (strcmp(key, "thr") == 0) o->threshold = json_number_value(v);
        else if (strcmp(key, "block") == 0) o->block = json_integer_value(v);
        else if (strcmp(key, "width") == 0) o->width = json_integer_value(v);
        else if (strcmp(key, "ratio") == 0) o->ratio = json_number_value(v);
        else if (strcmp(key, "delta") == 0) o->delta = json_number_value(v);
        else if (strcmp(key, "exact") == 0) o->accept_exact = json_is_true(v);
        else if (strcmp(key, "coreset_top_p") == 0) *coreset_top_p = json_number_value(v);
        else return differs(message, room, "an option that this reader does not know: %s", key);
    }
    return true;
}

static bool read_mode(const json_t *test, CloverMode *mode) {
    static const char *const names[] = { [CLOVER_AR] = "ar", [CLOVER_DENOISE] = "denoise", [CLOVER_DRAFT] = "draft" };
    const char *name = json_string_value(json_object_get(test, "mode"));
    for (int i = CLOVER_AR; i <= CLOVER_DRAFT; i++)
        if (name && strcmp(name, names[i]) == 0) return *mode = (CloverMode)i, true;
    return false;
}

/* ---- hf-flat ------------------------------------------------------------------------------------------------------- */

typedef struct FlatEngine { CloverEngine inner; } FlatEngine;

static void flatten(double *logits, int64_t n) {
    for (int64_t i = 0; i < n; i++) logits[i] /= 16;
}

static CloverStatus flat_commit(void *self, const int32_t *ids, int64_t n, double *logits, int64_t rows, CloverError *err) {
    FlatEngine *f = self;
    CloverStatus status = f->inner.commit(f->inner.self, ids, n, logits, rows, err);
    if (status == CLOVER_OK && logits) flatten(logits, rows * f->inner.vocab);
    return status;
}

static CloverStatus flat_preview(void *self, const int32_t *ids, int64_t n, double *logits, CloverError *err) {
    FlatEngine *f = self;
    CloverStatus status = f->inner.preview(f->inner.self, ids, n, logits, err);
    if (status == CLOVER_OK && logits) flatten(logits, n * f->inner.vocab);
    return status;
}

static CloverStatus flat_snapshot(void *self, void **out, CloverError *err) {
    FlatEngine *f = self;
    return f->inner.snapshot(f->inner.self, out, err);
}

static CloverStatus flat_restore(void *self, const void *snapshot, CloverError *err) {
    FlatEngine *f = self;
    return f->inner.restore(f->inner.self, snapshot, err);
}

static void flat_snapshot_free(void *self, void *snapshot) {
    FlatEngine *f = self;
    f->inner.snapshot_free(f->inner.self, snapshot);
}

static int64_t flat_position(void *self) {
    FlatEngine *f = self;
    return f->inner.position(f->inner.self);
}

static CloverEngine flat_engine(FlatEngine *f) {
    return (CloverEngine){ .self = f, .vocab = f->inner.vocab, .commit = flat_commit, .preview = flat_preview,
                           .snapshot = flat_snapshot, .restore = flat_restore, .snapshot_free = flat_snapshot_free, .position = flat_position };
}

/* ---- running a case ------------------------------------------------------------------------------------------------- */

static bool record(void *user, const CloverEvent *event) {
    json_t *step = trace_step(event);
    return step == NULL || json_array_append_new(user, step) == 0;
}

typedef struct Prompt { int32_t *ids; int64_t n; } Prompt;

static Prompt read_prompt(const json_t *from) {
    Prompt p = { NULL, (int64_t)json_array_size(from) };
    p.ids = malloc((size_t)(p.n + 1) * sizeof *p.ids);
    for (int64_t i = 0; p.ids && i < p.n; i++) p.ids[i] = (int32_t)json_integer_value(json_array_get(from, (size_t)i));
    return p;
}

/* Decodes the case and compares. */
static bool decode_and_compare(const json_t *test, const CloverEngine *engine, const CloverDecodeOptions *o, char *message, size_t room) {
    Prompt prompt = read_prompt(json_object_get(test, "prompt"));
    int32_t *out = malloc((size_t)o->max_tokens * sizeof *out);
    CloverError *err = malloc(sizeof *err);
    json_t *steps = json_array(), *tokens = json_array();
    bool ok = prompt.ids && out && err && steps && tokens;
    if (!ok) differs(message, room, "out of memory");

    int64_t n_out = 0;
    if (ok && clover_decode(engine, o, prompt.ids, prompt.n, record, steps, out, &n_out, err) != CLOVER_OK)
        ok = differs(message, room, "%s", err->text);
    for (int64_t i = 0; ok && i < n_out; i++) json_array_append_new(tokens, json_integer(out[i]));
    ok = ok && same(steps, json_object_get(test, "steps"), "steps", message, room);
    ok = ok && same(tokens, json_object_get(test, "tokens"), "tokens", message, room);
    json_decref(tokens);
    json_decref(steps);
    free(err);
    free(out);
    free(prompt.ids);
    return ok;
}

static bool check_on_model(const json_t *test, const CloverModel *model, bool flat, char *message, size_t room) {
    CloverDecodeOptions o = clover_decode_defaults(clover_model_config(model));
    CloverSessionOptions session_options = clover_session_defaults();
    if (!read_mode(test, &o.mode)) return differs(message, room, "a mode that this reader does not know");
    o.max_tokens = json_integer_value(json_object_get(test, "max_tokens"));
    if (!read_options(json_object_get(test, "options"), &o, &session_options.coreset_top_p, message, room)) return false;
    if (!read_controls(json_object_get(test, "controls"), &o.controls, message, room)) return false;

    CloverError err;
    CloverSession *session = NULL;
    if (clover_session_new(model, &session_options, &session, &err) != CLOVER_OK) return differs(message, room, "%s", err.text);
    CloverEngine engine = clover_session_engine(session);
    FlatEngine divided = { engine };
    if (flat) engine = flat_engine(&divided);
    bool ok = decode_and_compare(test, &engine, &o, message, room);
    clover_session_free(session);
    return ok;
}

bool traces_check(const Traces *t, size_t i, char *message, size_t room) {
    const json_t *test = json_array_get(t->cases, i);
    const char *name = json_string_value(json_object_get(test, "model"));
    if (!name) return differs(message, room, "the case names no model");
    char path[4352];
    snprintf(path, sizeof path, "%s/%s", t->folder, name);
    bool flat = strcmp(name, "hf-flat") == 0 && access(path, R_OK) != 0;
    if (flat) snprintf(path, sizeof path, "%s/hf", t->folder);

    CloverError err;
    CloverModel *model = NULL;
    CloverOpenOptions options = clover_open_defaults();
    if (clover_model_open(path, &options, &model, &err) != CLOVER_OK) return differs(message, room, "%s", err.text);
    bool ok = check_on_model(test, model, flat, message, room);
    clover_model_close(model);
    return ok;
}

/* ---- the file -------------------------------------------------------------------------------------------------------- */

bool traces_open(Traces *t, const char *folder, const char *traces_json, char *message, size_t room) {
    json_error_t error;
    memset(t, 0, sizeof *t);
    if (strlen(folder) >= sizeof t->folder) return differs(message, room, "the folder's name is too long");
    strcpy(t->folder, folder);
    t->root = json_load_file(traces_json, 0, &error);
    if (!t->root) return differs(message, room, "%s: %s, line %d", traces_json, error.text, error.line);
    t->cases = json_object_get(t->root, "cases");
    if (json_array_size(t->cases) > 0) return true;
    traces_close(t);
    return differs(message, room, "%s holds no cases", traces_json);
}

void traces_close(Traces *t) {
    json_decref(t->root);
    t->root = t->cases = NULL;
}

size_t traces_count(const Traces *t) { return json_array_size(t->cases); }

const char *traces_name(const Traces *t, size_t i) {
    const char *name = json_string_value(json_object_get(json_array_get(t->cases, i), "name"));
    return name ? name : "(no name)";
}

int traces_run(const char *folder, const char *traces_json, FILE *report, int *checked) {
    Traces t;
    char message[1024];
    int failed = 0;
    *checked = 0;
    if (!traces_open(&t, folder, traces_json, message, sizeof message)) {
        fprintf(report, "%s\n", message);
        return 1;
    }
    for (size_t i = 0; i < traces_count(&t); i++, ++*checked) {
        if (traces_check(&t, i, message, sizeof message)) continue;
        fprintf(report, "trace %s: %s\n", traces_name(&t, i), message);
        failed++;
    }
    traces_close(&t);
    return failed;
}
