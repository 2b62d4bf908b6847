/* run_json.c - a decode run as a case file has it. [BND-2] */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "json_check.h"
#include "run_args.h"

/* Where a member's value lies in RunArgs. What is given shows in a bool of its own, or, with none, in the value:
 * NaN and -1 are "not given". */
typedef enum FieldKind { FIELD_REAL, FIELD_INT, FIELD_ID, FIELD_SEED } FieldKind;
typedef struct Field {
    const char *key;
    FieldKind kind;
    size_t value, given;             /* offsets; given 0: none */
    double min, max;
} Field;

#define VALUE(member) offsetof(RunArgs, member)
static const Field option_fields[] = {
    { "threshold", FIELD_REAL, VALUE(model.threshold), 0, 0, 1e9 },
    { "block", FIELD_INT, VALUE(model.block), 0, 1, 65536 },
    { "width", FIELD_INT, VALUE(decode.width), VALUE(width), 1, 65536 },
    { "temperature", FIELD_REAL, VALUE(decode.temperature), VALUE(temperature), 0, 1e6 },
    { "top_k", FIELD_INT, VALUE(decode.top_k), VALUE(top_k), 0, 1e9 },
    { "top_p", FIELD_REAL, VALUE(decode.top_p), VALUE(top_p), 0, 1 },
    { "seed", FIELD_SEED, VALUE(decode.seed), VALUE(seed), 0, 0 },
};
static const Field control_fields[] = {
    { "frequency_penalty", FIELD_REAL, VALUE(decode.controls.frequency_penalty), VALUE(frequency), -HUGE_VAL, HUGE_VAL },
    { "presence_penalty", FIELD_REAL, VALUE(decode.controls.presence_penalty), VALUE(presence), -HUGE_VAL, HUGE_VAL },
    { "repetition_penalty", FIELD_REAL, VALUE(decode.controls.repetition_penalty), VALUE(repetition), 0, HUGE_VAL },
    { "dllm_length_penalty", FIELD_REAL, VALUE(decode.controls.dllm_length_penalty), VALUE(length), -HUGE_VAL, HUGE_VAL },
    { "dllm_length_penalty_start", FIELD_INT, VALUE(decode.controls.dllm_length_penalty_start), VALUE(length_start), 0, 1e15 },
    { "dllm_length_penalty_window", FIELD_INT, VALUE(decode.controls.dllm_length_penalty_window), VALUE(length_window), 1, 1e15 },
    { "dllm_think_end_bias", FIELD_REAL, VALUE(decode.controls.dllm_think_end_bias), VALUE(think_bias), -HUGE_VAL, HUGE_VAL },
    { "dllm_think_end_start", FIELD_INT, VALUE(decode.controls.dllm_think_end_start), VALUE(think_start), 0, 1e15 },
    { "dllm_think_end_window", FIELD_INT, VALUE(decode.controls.dllm_think_end_window), VALUE(think_window), 1, 1e15 },
    { "dllm_think_end_token_id", FIELD_ID, VALUE(decode.controls.dllm_think_end_token_id), VALUE(think_id), 0, 0 },
};
enum { N_OPTIONS = sizeof option_fields / sizeof *option_fields, N_CONTROLS = sizeof control_fields / sizeof *control_fields };

/* ---- from JSON ----------------------------------------------------------------------------------------------------- */

static void real_between(char *text, size_t room, const Field *f) {
    if (isinf(f->max) && isinf(f->min)) snprintf(text, room, "a number");
    else if (isinf(f->max)) snprintf(text, room, "a number from %g", f->min);
    else snprintf(text, room, "%s, %.15g to %.15g", f->kind == FIELD_REAL ? "a number" : "a whole number", f->min, f->max);
}

/* A seed is any of 64 bits; what a JSON integer cannot hold stands as a string of digits. */
static bool read_seed(const json_t *v, uint64_t *out) {
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        *out = (uint64_t)json_integer_value(v);
        return true;
    }
    const char *text = json_string_value(v);
    if (!text || !*text || strspn(text, "0123456789") != strlen(text) || strlen(text) > 20) return false;
    uint64_t value = 0;
    for (; *text; text++)
        if (__builtin_mul_overflow(value, 10u, &value) || __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value)) return false;
    *out = value;
    return true;
}

static void read_field(RunArgs *a, const Field *f, const json_t *v, const char *where, const char *group, int64_t vocab, CloverError *err) {
    char key[64], expected[96];
    snprintf(key, sizeof key, "%s.%s", group, f->key);
    void *value = (char *)a + f->value;
    const double number = json_number_value(v);
    bool ok = false;
    real_between(expected, sizeof expected, f);
    if (f->kind == FIELD_REAL) ok = json_is_number(v) && number >= f->min && number <= f->max;
    if (f->kind == FIELD_INT) ok = json_is_integer(v) && number >= f->min && number <= f->max;
    if (f->kind == FIELD_ID) {
        const int64_t end = vocab >= 0 ? vocab : (int64_t)INT32_MAX + 1;
        ok = json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) < end;
        snprintf(expected, sizeof expected, "a token id, 0 to %" PRId64, end - 1);
    }
    uint64_t seed = 0;
    if (f->kind == FIELD_SEED) {
        ok = read_seed(v, &seed);
        snprintf(expected, sizeof expected, "a whole number from 0 (above 2^63-1 as a string)");
    }
    if (!ok) {
        json_wrong(err, where, key, expected, v);
        return;
    }
    switch (f->kind) {
    case FIELD_REAL: *(double *)value = number; break;
    case FIELD_INT: *(int64_t *)value = json_integer_value(v); break;
    case FIELD_ID: *(int32_t *)value = (int32_t)json_integer_value(v); break;
    case FIELD_SEED: *(uint64_t *)value = seed; break;
    }
    if (f->given) *(bool *)((char *)a + f->given) = true;
}

/* A number from 0, or "off". */
static void read_coreset(RunArgs *a, const json_t *v, const char *where, CloverError *err) {
    if (json_is_string(v) && strcmp(json_string_value(v), "off") == 0) a->model.coreset_top_p = -1;
    else if (json_is_number(v) && json_number_value(v) >= 0) a->model.coreset_top_p = json_number_value(v);
    else json_wrong(err, where, "options.coreset_top_p", "a number from 0, or \"off\"", v);
}

static void read_options(RunArgs *a, const json_t *options, const char *where, int64_t vocab, CloverError *err) {
    static const char *const known[] = { "threshold", "block", "width", "temperature", "top_k", "top_p", "seed", "accept", "coreset_top_p", "think", NULL };
    if (!options || !json_known_keys(err, where, "options", options, known)) return;
    for (int i = 0; i < N_OPTIONS; i++) {
        const json_t *v = json_object_get(options, option_fields[i].key);
        if (v) read_field(a, &option_fields[i], v, where, "options", vocab, err);
    }
    const json_t *v = json_object_get(options, "coreset_top_p");
    if (v) read_coreset(a, v, where, err);
    if ((v = json_object_get(options, "accept"))) {
        CloverDecodeOptions scratch;
        CloverError ignored;
        RunArgs only = { .model = model_args_defaults(), .accept = json_string_value(v) };
        const CloverConfig none = { .n_stops = 0 };
        if (only.accept && run_args_decode(&only, &none, &scratch, &ignored) == CLOVER_OK) a->accept = only.accept;
        else json_wrong(err, where, "options.accept", "\"exact\", or \"RATIO,DELTA\" such as \"0.9,0.6\"", v);
    }
    if ((v = json_object_get(options, "think"))) {
        if (!json_is_boolean(v)) json_wrong(err, where, "options.think", "true or false", v);
        else if (!a->chat.bytes) error_add(err, CLOVER_BAD_INPUT, "%s: options.think goes with prompt.chat", where);
        else *(json_is_true(v) ? &a->think : &a->no_think) = true;
    }
}

static void read_controls(RunArgs *a, const json_t *controls, const char *where, int64_t vocab, CloverError *err) {
    const char *known[N_CONTROLS + 1] = { NULL };
    for (int i = 0; i < N_CONTROLS; i++) known[i] = control_fields[i].key;
    if (!controls || !json_known_keys(err, where, "controls", controls, known)) return;
    for (int i = 0; i < N_CONTROLS; i++) {
        const json_t *v = json_object_get(controls, control_fields[i].key);
        if (v) read_field(a, &control_fields[i], v, where, "controls", vocab, err);
    }
}

static ArgText text_member(const json_t *prompt, const char *key, const char *where, CloverError *err) {
    const json_t *v = json_object_get(prompt, key);
    if (!v) return (ArgText){ 0 };
    if (json_is_string(v)) return (ArgText){ (char *)(uintptr_t)json_string_value(v), json_string_length(v) };
    char name[64];
    snprintf(name, sizeof name, "prompt.%s", key);
    json_wrong(err, where, name, "a string", v);
    return (ArgText){ 0 };
}

static void read_prompt(RunArgs *a, const json_t *prompt, const char *where, int64_t vocab, CloverError *err) {
    static const char *const known[] = { "text", "chat", "system", "ids", NULL };
    if (!json_known_keys(err, where, "prompt", prompt, known)) return;
    a->prompt = text_member(prompt, "text", where, err);
    a->chat = text_member(prompt, "chat", where, err);
    a->system = text_member(prompt, "system", where, err);
    const json_t *ids = json_object_get(prompt, "ids");
    if (ids) a->ids.ids = json_id_list(err, where, "prompt.ids", ids, vocab, &a->ids.n);
    const int given = (json_object_get(prompt, "text") != NULL) + (json_object_get(prompt, "chat") != NULL) + (ids != NULL);
    if (given != 1) json_wrong(err, where, "prompt", "exactly one of text, chat and ids", prompt);
    if (json_object_get(prompt, "system") && !json_object_get(prompt, "chat")) error_add(err, CLOVER_BAD_INPUT, "%s: prompt.system goes with prompt.chat", where);
}

void run_args_from_json(RunArgs *a, const json_t *object, const char *where, int64_t vocab, CloverError *err) {
    *a = run_args_defaults();
    read_prompt(a, json_object_get(object, "prompt"), where, vocab, err);
    const char *mode = json_text(err, where, object, "mode", true);
    bool known = false;
    for (int i = 0; mode && mode_names[i]; i++)
        if (strcmp(mode, mode_names[i]) == 0) a->mode = i, known = true;
    if (mode && !known) json_wrong(err, where, "mode", "ar, denoise or draft", json_object_get(object, "mode"));
    const json_t *n = json_object_get(object, "n");
    if (json_is_integer(n) && json_integer_value(n) >= 1 && json_integer_value(n) <= 1 << 24) a->decode.max_tokens = json_integer_value(n);
    else json_wrong(err, where, "n", "a whole number, 1 to 16777216", n);
    read_options(a, json_object_get(object, "options"), where, vocab, err);
    read_controls(a, json_object_get(object, "controls"), where, vocab, err);
}

void run_args_steps_options(RunArgs *a, const json_t *object, const char *where, CloverError *err) {
    static const char *const known[] = { "coreset_top_p", NULL };
    *a = run_args_defaults();
    const json_t *options = json_object_get(object, "options");
    if (!options || !json_known_keys(err, where, "options (a case of steps)", options, known)) return;
    if (json_object_get(options, "coreset_top_p")) read_coreset(a, json_object_get(options, "coreset_top_p"), where, err);
}

/* ---- to JSON ------------------------------------------------------------------------------------------------------- */

static bool was_given(const RunArgs *a, const Field *f) {
    const void *value = (const char *)a + f->value;
    if (f->given) return *(const bool *)((const char *)a + f->given);
    return f->kind == FIELD_REAL ? !isnan(*(const double *)value) : *(const int64_t *)value != -1;
}

static json_t *field_json(const RunArgs *a, const Field *f) {
    const void *value = (const char *)a + f->value;
    char digits[32];
    uint64_t seed;
    switch (f->kind) {
    case FIELD_REAL: return json_real(*(const double *)value);
    case FIELD_INT: return json_integer(*(const int64_t *)value);
    case FIELD_ID: return json_integer(*(const int32_t *)value);
    case FIELD_SEED: break;
    }
    seed = *(const uint64_t *)value;
    snprintf(digits, sizeof digits, "%" PRIu64, seed);
    return seed <= INT64_MAX ? json_integer((json_int_t)seed) : json_string(digits);
}

static json_t *fields_json(const RunArgs *a, const Field *fields, int n) {
    json_t *o = json_object();
    for (int i = 0; i < n && o; i++)
        if (was_given(a, &fields[i]) && json_object_set_new(o, fields[i].key, field_json(a, &fields[i])) != 0) {
            json_decref(o);
            return NULL;
        }
    return o;
}

json_t *run_args_to_json(const RunArgs *a) {
    json_t *prompt = json_object(), *options = fields_json(a, option_fields, N_OPTIONS), *controls = fields_json(a, control_fields, N_CONTROLS);
    int failed = 0;
    if (a->prompt.bytes) failed |= json_object_set_new(prompt, "text", json_stringn(a->prompt.bytes, a->prompt.length));
    if (a->chat.bytes) failed |= json_object_set_new(prompt, "chat", json_stringn(a->chat.bytes, a->chat.length));
    if (a->system.bytes) failed |= json_object_set_new(prompt, "system", json_stringn(a->system.bytes, a->system.length));
    if (a->ids.ids) {
        json_t *ids = json_array();
        for (int64_t i = 0; i < a->ids.n; i++) failed |= json_array_append_new(ids, json_integer(a->ids.ids[i]));
        failed |= json_object_set_new(prompt, "ids", ids);
    }
    if (a->accept) failed |= json_object_set_new(options, "accept", json_string(a->accept));
    if (!isnan(a->model.coreset_top_p))
        failed |= json_object_set_new(options, "coreset_top_p", a->model.coreset_top_p < 0 ? json_string("off") : json_real(a->model.coreset_top_p));
    if (a->think || a->no_think) failed |= json_object_set_new(options, "think", json_boolean(a->think));
    json_t *o = json_pack("{s:o, s:s, s:I, s:o, s:o}", "prompt", prompt, "mode", mode_names[a->mode], "n", (json_int_t)a->decode.max_tokens,
                          "options", options, "controls", controls);
    if (o && failed == 0) return o;
    json_decref(o);
    return NULL;
}
