/* test_golden.c - clover golden: what its files hold, against vectors of an independent model; its case files; broken-off
 * runs; shards. [BND-2, BND-3, BND-6, BND-7, BND-8] */
#include <jansson.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "files.h"
#include "../ref/files/safetensors.h"
#include "../tools/golden.h"

#define MODEL "tests/vectors/tiny-a/hf"

/* ---- a process that is killed when a test says so ---------------------------------------------------------------------- */

/* rename, unlink, rmdir and fsync of the whole program go through here: the first three are all that changes which files
 * there are. After so many of them the process dies as by kill -9; -1: never. What waits for the disk is left out. */
static volatile long changes_left = -1;

static void change(void) {
    if (changes_left == 0) raise(SIGKILL);
    if (changes_left > 0) changes_left--;
}

int rename(const char *from, const char *to) {
    change();
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}
int unlink(const char *path) {
    change();
    return unlinkat(AT_FDCWD, path, 0);
}
int rmdir(const char *path) {
    change();
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}
int fsync(int fd) { return fd < 0; }

static char folder[TEST_PATH];
static void set_up(void) { make_folder("golden", folder); }
static void tear_down(void) { remove_folder(folder); }

static json_t *parse(const char *text) {
    char *copy = strdup(text);
    for (char *p = copy; *p; p++)
        if (*p == '\'') *p = '"';
    json_t *json = json_loads(copy, 0, NULL);
    ck_assert_msg(json != NULL, "not JSON: %s", text);
    free(copy);
    return json;
}

/* ---- running it -------------------------------------------------------------------------------------------------------- */

/* A bundle of these cases (an array, freed) in folder/name. */
static CloverStatus golden(const char *name, json_t *cases, GoldenShard shard, bool force, CloverError *err) {
    CloverModel *model = NULL;
    ModelArgs args = model_args_defaults();
    args.path = MODEL;
    char *command[] = { "golden", NULL };
    Golden g = { .args = &args, .out = in_folder(folder, name) };
    char out[2 * TEST_PATH];
    snprintf(out, sizeof out, "%s", g.out);                          /* in_folder's buffers take turns */
    g.out = out;
    assert_ok(model_args_open(&args, &model, err), *err);
    g.model = model;
    CloverStatus status = golden_plan(&g, cases, false, "cases.json", shard, false, err);
    if (status == CLOVER_OK) status = golden_write(&g, force, 1, command, err);
    golden_free(&g);
    clover_model_close(model);
    json_decref(cases);
    return status;
}

static const GoldenShard all = { 1, 1 };

static Bundle open_whole(const char *name) {
    CloverError err;
    Bundle b;
    assert_ok(bundle_open(in_folder(folder, name), &b, &err), err);
    assert_ok(bundle_verify(&b, &err), err);
    return b;
}

static void assert_same_file(const char *a, const char *b) {
    Bytes x = read_file(a), y = read_file(b);
    ck_assert_msg(x.n == y.n && memcmp(x.data, y.data, x.n) == 0, "%s and %s differ", a, b);
    free_bytes(&x);
    free_bytes(&y);
}

/* Manifests hold the hashes of all other files. */
static void assert_same_bundle(const char *a, const char *b) {
    Bundle x = open_whole(a), y = open_whole(b);
    bundle_close(&x);
    bundle_close(&y);
    char path[2 * TEST_PATH];
    snprintf(path, sizeof path, "%s/manifest.json", in_folder(folder, a));
    assert_same_file(path, in_folder(in_folder(folder, b), "manifest.json"));
}

/* ---- values -------------------------------------------------------------------------------------------------------------- */

static json_t *ids_of(const Safetensors *f) {
    const Tensor *t = safetensors_tensor(f, "ids");
    json_t *list = json_array();
    for (int64_t i = 0; i < t->elements; i++) {
        int64_t id;
        memcpy(&id, t->data + 8 * i, 8);
        json_array_append_new(list, json_integer(id));
    }
    return list;
}

static void assert_arrays_close(const Safetensors *got, const Safetensors *expected, const char *step) {
    const TensorList list = safetensors_tensors(expected);
    ck_assert_int_ge(safetensors_tensors(got).n, list.n);
    for (int64_t i = 0; i < list.n; i++) {
        const Tensor *e = &list.tensor[i], *g = safetensors_tensor(got, e->name);
        ck_assert_msg(g && g->type == e->type && g->dims == e->dims && memcmp(g->shape, e->shape, (size_t)e->dims * sizeof *e->shape) == 0,
                      "%s %s is missing, or has another shape or type", step, e->name);
        for (int64_t k = 0; k < e->elements && e->type == DT_F64; k++) {
            double a, b;
            memcpy(&a, g->data + 8 * k, 8);
            memcpy(&b, e->data + 8 * k, 8);
            ck_assert_msg(close_to(a, b, 1e-9, 1e-12), "%s %s[%lld] is %.17g, expected %.17g", step, e->name, (long long)k, a, b);
        }
    }
}

/* The vectors' steps, all probes, through a case of steps: the previews over a snapshot too. */
START_TEST(steps_hold_the_vectors) {
    static const char *const names[] = { "causal", "preview_8rows", "preview_1row", "causal_continued" };
    CloverError err;
    Safetensors *expected[4];
    json_t *steps = json_array();
    for (int i = 0; i < 4; i++) {
        char path[128];
        snprintf(path, sizeof path, "tests/vectors/tiny-a/expected-hf/%s.safetensors", names[i]);
        assert_ok(safetensors_open(path, &expected[i], &err), err);
        json_array_append_new(steps, json_pack("{s:s, s:o}", "name", names[i], i == 1 || i == 2 ? "preview" : "commit", ids_of(expected[i])));
        if (i == 0) json_array_append_new(steps, parse("{'snapshot': 'prompt'}"));
        if (i == 1) {                                                /* away and back */
            json_array_append_new(steps, parse("{'name': 'elsewhere', 'commit': [1, 2, 3]}"));
            json_array_append_new(steps, parse("{'restore': 'prompt'}"));
        }
    }
    json_t *cases = json_pack("[{s:s, s:[s], s:o}]", "name", "steps", "probes", "*", "steps", steps);
    assert_ok(golden("b", cases, all, false, &err), err);

    Bundle b = open_whole("b");
    ck_assert_int_eq(b.n_cases, 1);
    ck_assert_str_eq(b.cases[0].folder, "steps");
    ck_assert_int_eq(b.cases[0].n_steps, 7);
    for (int i = 0; i < 4; i++) {
        Safetensors *got = NULL;
        char *path = bundle_file(&b, &b.cases[0], names[i], ".safetensors");
        assert_ok(safetensors_open(path, &got, &err), err);
        assert_arrays_close(got, expected[i], names[i]);
        safetensors_close(got);
        safetensors_close(expected[i]);
        free(path);
    }
    bundle_close(&b);
}
END_TEST

/* A preview's coreset is the case's. */
START_TEST(steps_with_a_coreset) {
    CloverError err;
    Safetensors *expected = NULL, *causal = NULL, *got = NULL;
    assert_ok(safetensors_open("tests/vectors/tiny-a/expected-hf/preview_coreset.safetensors", &expected, &err), err);
    assert_ok(safetensors_open("tests/vectors/tiny-a/expected-hf/causal.safetensors", &causal, &err), err);
    json_t *cases = json_pack("[{s:s, s:[s], s:{s:f}, s:[{s:s, s:o}, {s:s, s:o}]}]", "name", "c", "probes", "*", "options", "coreset_top_p", 0.5, "steps",
                              "name", "causal", "commit", ids_of(causal), "name", "look", "preview", ids_of(expected));
    assert_ok(golden("b", cases, all, false, &err), err);
    assert_ok(safetensors_open(in_folder(folder, "b/c/look.safetensors"), &got, &err), err);
    assert_arrays_close(got, expected, "look");
    safetensors_close(got);
    safetensors_close(causal);
    safetensors_close(expected);
}
END_TEST

/* ---- runs ---------------------------------------------------------------------------------------------------------------- */

/* The case of a bundle that asks for what a trace of the vectors asked for. */
static json_t *case_of_trace(const json_t *trace) {
    json_t *options = json_object(), *value;
    const char *key;
    double ratio = 0.9, delta = 0.6;
    bool given = false, exact = false;
    json_object_foreach(json_object_get(trace, "options"), key, value) {
        if (strcmp(key, "thr") == 0) json_object_set(options, "threshold", value);
        else if (strcmp(key, "ratio") == 0) ratio = json_number_value(value), given = true;
        else if (strcmp(key, "delta") == 0) delta = json_number_value(value), given = true;
        else if (strcmp(key, "exact") == 0) exact = json_is_true(value);
        else json_object_set(options, key, value);
    }
    char accept[80];
    snprintf(accept, sizeof accept, "%.17g,%.17g", ratio, delta);
    if (exact || given) json_object_set_new(options, "accept", json_string(exact ? "exact" : accept));
    return json_pack("{s:O, s:{s:O}, s:O, s:O, s:o, s:O}", "name", json_object_get(trace, "name"), "prompt", "ids", json_object_get(trace, "prompt"),
                     "mode", json_object_get(trace, "mode"), "n", json_object_get(trace, "max_tokens"), "options", options,
                     "controls", json_object_get(trace, "controls"));
}

static const json_t *trace_named(const json_t *root, const char *name) {
    json_t *trace;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, trace)
        if (strcmp(json_string_value(json_object_get(trace, "name")), name) == 0) return trace;
    return NULL;
}

/* Runs a case's steps again on a session of its own: the logits are those of the files, bit for bit. */
static void replay(const Bundle *b, const BundleCase *c, const CloverModel *model) {
    CloverError err;
    CloverSession *s = NULL;
    CloverSnapshot *snapshot = NULL;
    const char *taken = NULL;
    const int64_t V = clover_model_config(model)->vocab;
    CloverSessionOptions o = clover_session_defaults();
    o.coreset_top_p = c->coreset_top_p;
    assert_ok(clover_session_new(model, &o, &s, &err), err);
    for (int64_t i = 0; i < c->n_steps; i++) {
        const BundleStep *st = &c->step[i];
        if (st->kind == STEP_SNAPSHOT) {
            clover_snapshot_free(snapshot);
            assert_ok(clover_snapshot_take(s, &snapshot, &err), err);
            taken = st->name;
        } else if (st->kind == STEP_RESTORE) {
            ck_assert_str_eq(taken, st->name);
            assert_ok(clover_snapshot_restore(s, snapshot, &err), err);
        } else {
            ck_assert(st->recorded);
            double *logits = malloc((size_t)(st->n * V) * sizeof *logits);
            if (st->kind == STEP_COMMIT) assert_ok(clover_commit(s, st->ids, st->n, logits, st->n, &err), err);
            else assert_ok(clover_preview(s, st->ids, st->n, logits, &err), err);
            Safetensors *f = NULL;
            char *path = bundle_file(b, c, st->name, ".safetensors");
            assert_ok(safetensors_open(path, &f, &err), err);
            const Tensor *t = safetensors_tensor(f, "logits");
            ck_assert_int_eq(t->shape[0], st->n);
            ck_assert_int_eq(t->shape[1], V);
            ck_assert_msg(memcmp(t->data, logits, (size_t)t->bytes) == 0, "%s/%s: other logits", c->name, st->name);
            safetensors_close(f);
            free(path);
            free(logits);
        }
    }
    clover_snapshot_free(snapshot);
    clover_session_free(s);
}

START_TEST(runs_are_the_traces_and_replay) {
    CloverError err;
    json_t *root = json_load_file("tests/vectors/tiny-a/traces.json", 0, NULL);
    ck_assert_ptr_nonnull(root);
    static const char *const names[] = { "ar-controls", "denoise-threshold-0.6", "denoise-coreset-0.5", "denoise-length-ramp", "draft-accept-some", "draft-width-8", "draft-controls" };
    json_t *cases = json_array();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) json_array_append_new(cases, case_of_trace(trace_named(root, names[i])));
    assert_ok(golden("b", cases, all, false, &err), err);
    CloverModel *model = NULL;
    assert_ok(clover_model_open(MODEL, NULL, &model, &err), err);
    Bundle b = open_whole("b");
    bool snapshots = false;
    for (int64_t i = 0; i < b.n_cases; i++) {
        const BundleCase *c = &b.cases[i];
        ck_assert(c->has_trace);
        char *path = bundle_file(&b, c, "trace", ".json");
        json_t *got = json_load_file(path, 0, NULL);
        const json_t *expected = trace_named(root, c->name);
        ck_assert_msg(json_equal(json_object_get(got, "tokens"), json_object_get(expected, "tokens")), "%s: other tokens", c->name);
        ck_assert_msg(json_equal(json_object_get(got, "prompt"), json_object_get(expected, "prompt")), "%s: another prompt", c->name);
        ck_assert_uint_eq(json_array_size(json_object_get(got, "steps")), json_array_size(json_object_get(expected, "steps")));
        for (int64_t k = 0; k < c->n_steps; k++) snapshots |= c->step[k].kind == STEP_RESTORE;
        replay(&b, c, model);
        json_decref(got);
        free(path);
    }
    ck_assert(snapshots);                                            /* a draft round went back */
    ck_assert_str_eq(b.cases[0].step[0].name, "000-commit");
    ck_assert_str_eq(b.cases[0].step[1].name, "001-commit");
    bundle_close(&b);
    clover_model_close(model);
    json_decref(root);
}
END_TEST

/* What a trace says of the options is what counted: given, the file's, the default. */
START_TEST(a_trace_states_all_options) {
    CloverError err;
    json_t *cases = parse("[{'name': 'd', 'prompt': {'chat': 'Hi', 'system': 'Be'}, 'mode': 'draft', 'n': 3,"
                          "  'options': {'think': false, 'width': 8, 'accept': '0.5,0.25', 'temperature': 0.5, 'seed': '18446744073709551615'},"
                          "  'controls': {'repetition_penalty': 1.25}}]");
    assert_ok(golden("b", cases, all, false, &err), err);
    json_t *t = json_load_file(in_folder(folder, "b/d/trace.json"), 0, NULL), *o = json_object_get(t, "options");
    json_t *expected = parse("{'accept_exact': false, 'block': 32, 'coreset_top_p': 'off', 'delta': 0.25, 'mask_id': 261, 'ratio': 0.5,"
                             " 'seed': '18446744073709551615', 'stops': [258, 256], 'temperature': 0.5, 'threshold': 0.95, 'top_k': 0, 'top_p': 1.0, 'width': 8}");
    ck_assert(json_equal(o, expected));
    ck_assert(json_number_value(json_object_get(json_object_get(t, "controls"), "repetition_penalty")) == 1.25);
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(t, "controls"), "dllm_think_end_start")), 4096);
    /* <|im_start|>system\nBe<|im_end|>\n ... assistant\n<think>\n\n</think>\n\n: byte b is token b in this model */
    const json_t *prompt = json_object_get(t, "prompt");
    const int tail[] = { 259, 10, 10, 260, 10, 10 };
    const size_t n = json_array_size(prompt);
    ck_assert_int_eq(json_integer_value(json_array_get(prompt, 0)), 257);
    for (size_t i = 0; i < 6; i++) ck_assert_int_eq(json_integer_value(json_array_get(prompt, n - 6 + i)), tail[i]);
    json_decref(expected);
    json_decref(t);
}
END_TEST

/* ---- case files that are wrong --------------------------------------------------------------------------------------------- */

static const struct { const char *cases; CloverStatus status; const char *says; } wrong[] = {
    { "[]", CLOVER_BAD_INPUT, "no cases" },
    { "[7]", CLOVER_BAD_INPUT, "cases[0]: case: expected an object" },
    { "[{'name': 'a', 'steps': [{'name': 's', 'commit': [320]}]}]", CLOVER_BAD_INPUT, "cases[0] (a): steps[0]: commit[0]: expected a token id, 0 to 319, found 320" },
    { "[{'name': 'a', 'folder': 'x', 'steps': [{'name': 's', 'commit': [1]}]}]", CLOVER_BAD_INPUT, "unknown key \"folder\"" },
    { "[{'name': 'a', 'mode': 'ar', 'n': 1}]", CLOVER_BAD_INPUT, "prompt" },
    { "[{'name': 'a', 'prompt': {'ids': [1]}}]", CLOVER_BAD_INPUT, "mode: missing" },
    { "[{'name': 'a', 'prompt': {'ids': [1]}, 'mode': 'ar', 'n': 1, 'steps': [{'name': 's', 'commit': [1]}]}]", CLOVER_BAD_INPUT, "prompt belongs to a run" },
    { "[{'name': 'manifest.json', 'steps': [{'name': 's', 'commit': [1]}]}]", CLOVER_BAD_INPUT, "may not be named manifest.json" },
    { "[{'name': 'a', 'steps': [{'name': 's', 'commit': [1]}]}, {'name': 'a', 'steps': [{'name': 's', 'commit': [1]}]}]", CLOVER_BAD_INPUT, "\"a\" stands there twice" },
    { "[{'name': 'a', 'prompt': {'ids': [1]}, 'mode': 'draft', 'n': 1, 'options': {'width': 5}}]", CLOVER_BAD_INPUT, "must divide the block size" },
    { "[{'name': 'a', 'prompt': {'ids': [1]}, 'mode': 'draft', 'n': 1, 'options': {'accept': '0.9'}}]", CLOVER_BAD_INPUT, "options.accept: expected" },
    { "[{'name': 'a', 'prompt': {'ids': [1]}, 'mode': 'ar', 'n': 1, 'options': {'think': true}}]", CLOVER_BAD_INPUT, "options.think goes with prompt.chat" },
    { "[{'name': 'a', 'prompt': {'text': ''}, 'mode': 'ar', 'n': 1}]", CLOVER_BAD_INPUT, "the prompt is empty" },
    { "[{'name': 'a', 'prompt': {'ids': [1]}, 'mode': 'ar', 'n': 5000}]", CLOVER_BAD_INPUT, "exceed the model's context of 4096" },
    { "[{'name': 'a', 'prompt': {'ids': [1]}, 'mode': 'ar', 'n': 1, 'controls': {'dllm_think_end_bias': 1}}]", CLOVER_BAD_INPUT, "needs the id to favour" },
};

START_TEST(a_wrong_case) {
    CloverError err;
    assert_status(golden("b", parse(wrong[_i].cases), all, false, &err), wrong[_i].status, err);
    assert_says(err, wrong[_i].says);
    ck_assert_int_ne(access(in_folder(folder, "b"), F_OK), 0);       /* nothing was begun */
}
END_TEST

START_TEST(all_wrong_cases_at_once) {
    CloverError err;
    json_t *cases = parse("[{'name': '..', 'steps': [{'name': 'x', 'commit': [-1]}, {'name': 'x', 'commit': [1]}]},"
                          " {'name': 'a', 'steps': [{'restore': 'never'}], 'extra': 1},"
                          " {'name': 'b', 'prompt': {'ids': [1]}, 'mode': 'draft', 'n': 1, 'options': {'width': 5}},"
                          " {'name': 'b', 'steps': [{'name': 's', 'commit': 1}]}]");
    assert_status(golden("b", cases, all, false, &err), CLOVER_BAD_INPUT, err);
    ck_assert_msg(problems(&err) == 8, "%s", err.text);
}
END_TEST

/* ---- broken off, and gone on with ------------------------------------------------------------------------------------------ */

static json_t *three(void) {
    return parse("[{'name': 'draft', 'prompt': {'ids': [72, 101, 108]}, 'mode': 'draft', 'n': 4, 'probes': ['L00.*']},"
                 " {'name': 'denoise', 'prompt': {'ids': [72, 101]}, 'mode': 'denoise', 'n': 8, 'options': {'block': 8, 'threshold': 0.5}},"
                 " {'name': 'steps', 'steps': [{'name': 'a', 'commit': [1, 2]}, {'snapshot': 's'}, {'name': 'b', 'commit': [3]}, {'restore': 's'},"
                 "   {'snapshot': 't'}, {'name': 'c', 'preview': [261, 4]}, {'name': 'd', 'commit': [5]}, {'restore': 's'}, {'name': 'e', 'commit': [3]}, {'restore': 't'}, {'name': 'f', 'commit': [5]}]}]");
}

/* The bundle of three() as one run makes it, made once. */
static char shared[TEST_PATH];

static void copy_folder(const char *from, const char *to) {
    char command[3 * TEST_PATH];
    snprintf(command, sizeof command, "cp -a '%s' '%s'", from, in_folder(folder, to));
    ck_assert_int_eq(system(command), 0);
}

static void make_shared(void) {
    CloverError err;
    make_folder("golden-whole", shared);
    snprintf(folder, sizeof folder, "%s", shared);
    assert_ok(golden("whole", three(), all, false, &err), err);
}

static void remove_shared(void) { remove_folder(shared); }

static void set_up_whole(void) {
    set_up();
    copy_folder(in_folder(shared, "whole"), "whole");
}

/* A run in a process of its own that is killed after so many changes. Returns whether it was. */
static bool run_killed(const char *name, long changes) {
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        CloverError err;
        changes_left = changes;
        _exit((int)golden(name, three(), all, false, &err));
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) ck_assert_int_eq(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status);
}

#ifdef __SANITIZE_ADDRESS__
enum { KILL_TESTS = 4, KILL_STEP = 12 };                             /* every third: sanitizers are slow */
#else
enum { KILL_TESTS = 4, KILL_STEP = 4 };
#endif

/* Killed before every change of files there is: what is left looks like no bundle or is the whole one, and the next run
 * makes the same bytes, with the files that were there. */
START_TEST(killed_and_gone_on_with) {
    CloverError err;
    Bundle b;
    bool killed = true;
    for (long k = _i; killed; k += KILL_STEP) {
        killed = run_killed("broken", k);
        struct stat before, after;
        const bool had = stat(in_folder(folder, "broken/draft/000-commit.safetensors"), &before) == 0;
        if (access(in_folder(folder, "broken/manifest.json"), F_OK) != 0) {
            assert_status(bundle_open(in_folder(folder, "broken"), &b, &err), CLOVER_BAD_INPUT, err);
            ck_assert(killed);
        } else assert_same_bundle("whole", "broken");
        assert_ok(golden("broken", three(), all, false, &err), err);
        assert_same_bundle("whole", "broken");
        ck_assert_int_ne(access(in_folder(folder, "broken/.unfinished"), F_OK), 0);
        if (had) {
            ck_assert_int_eq(stat(in_folder(folder, "broken/draft/000-commit.safetensors"), &after), 0);
            ck_assert_uint_eq(before.st_ino, after.st_ino);
        }
        remove_folder(in_folder(folder, "broken"));
    }
}
END_TEST

/* Killed again and again: every run gets a little further. */
START_TEST(killed_many_times) {
    int runs = 0;
    while (run_killed("broken", 8)) ck_assert_int_lt(++runs, 100);
    ck_assert_int_gt(runs, 3);
    assert_same_bundle("whole", "broken");
}
END_TEST

/* Whatever files of an unfinished run are gone or damaged, with the saved state or without, the bytes come out the same. */
START_TEST(unfinished_with_holes) {
    CloverError err;
    static const int kinds[] = { 0, 1, 2, 4 + 8, 16, 32, 63 };
    const int holes = kinds[_i];
    for (long k = 20; access(in_folder(folder, "broken/steps/d.safetensors"), F_OK) != 0; k++) {
        remove_folder(in_folder(folder, "broken"));
        ck_assert(run_killed("broken", k));
    }
    unlink(in_folder(folder, "broken/.unfinished/done/draft.json"));
    if (holes & 1) unlink(in_folder(folder, "broken/.unfinished/state.safetensors"));
    if (holes & 2) unlink(in_folder(folder, "broken/draft/001-commit.safetensors"));
    if (holes & 4) write_file(in_folder(folder, "broken/draft/002-preview.safetensors"), "damaged", 7);
    if (holes & 8) unlink(in_folder(folder, "broken/steps/b.safetensors"));
    if (holes & 16) write_file(in_folder(folder, "broken/.unfinished/state.safetensors"), "damaged", 7);
    if (holes & 32) {                                                /* a good file, but of another step */
        Bytes other = read_file(in_folder(folder, "broken/draft/000-commit.safetensors"));
        write_file(in_folder(folder, "broken/draft/001-commit.safetensors"), other.data, other.n);
        free_bytes(&other);
    }
    write_file(in_folder(folder, "broken/draft/003-x.safetensors.partial-77"), "half", 4);
    assert_ok(golden("broken", three(), all, false, &err), err);
    assert_same_bundle("whole", "broken");
}
END_TEST

/* The saved state alone: everything after it, with snapshots that are older than it. */
START_TEST(a_saved_state_is_the_state) {
    CloverError err;
    CloverModel *model = NULL;
    CloverSession *a = NULL, *b = NULL;
    assert_ok(clover_model_open(MODEL, NULL, &model, &err), err);
    assert_ok(clover_session_new(model, NULL, &a, &err), err);
    assert_ok(clover_session_new(model, NULL, &b, &err), err);
    const int32_t ids[] = { 1, 2, 3, 4, 5 };
    KeptSnapshot first = { .name = "s", .call = 1, .position = 2 }, gone = { .name = "t", .call = 2, .position = 2, .released = true };
    KeptSnapshot *kept[] = { &first, &gone };
    assert_ok(clover_commit(a, ids, 2, NULL, 0, &err), err);
    const uint64_t at_two = clover_session_hash(a);
    assert_ok(clover_snapshot_take(a, &first.snapshot, &err), err);
    assert_ok(clover_commit(a, ids + 2, 3, NULL, 0, &err), err);
    const char *path = in_folder(folder, "state.safetensors");
    assert_ok(state_save(path, "case", 4, a, kept, 2, &err), err);

    KeptSnapshot back = first, none = gone, *kept_back[] = { &back, &none };
    back.snapshot = NULL;
    ck_assert_int_eq(state_load(path, "other case", 9, b, kept_back, 2), 0);
    ck_assert_int_eq(state_load(path, "case", 3, b, kept_back, 2), 0);   /* it is further than wanted */
    ck_assert_int_eq(clover_session_position(b), 0);
    ck_assert_int_eq(state_load(path, "case", 4, b, kept_back, 2), 4);
    ck_assert_uint_eq(clover_session_hash(a), clover_session_hash(b));
    ck_assert_ptr_null(none.snapshot);
    assert_ok(clover_snapshot_restore(b, back.snapshot, &err), err);
    ck_assert_uint_eq(clover_session_hash(b), at_two);
    clover_snapshot_free(first.snapshot);
    clover_snapshot_free(back.snapshot);
    clover_session_free(a);
    clover_session_free(b);
    clover_model_close(model);
}
END_TEST

START_TEST(another_plan_is_refused) {
    CloverError err;
    assert_ok(golden("b", three(), all, false, &err), err);
    assert_ok(golden("b", three(), all, false, &err), err);          /* it is there already */
    json_t *other = parse("[{'name': 'x', 'steps': [{'name': 's', 'commit': [1]}]}]");
    assert_status(golden("b", json_incref(other), all, false, &err), CLOVER_USAGE, err);
    assert_says(err, "another bundle stands there");
    assert_ok(golden("b", json_incref(other), all, true, &err), err);
    Bundle b = open_whole("b");                                      /* nothing of the old one is left */
    ck_assert_int_eq(b.n_cases, 1);
    bundle_close(&b);

    ck_assert(run_killed("c", 30));
    assert_status(golden("c", json_incref(other), all, false, &err), CLOVER_USAGE, err);
    assert_says(err, "an unfinished bundle of another model or of other cases");
    assert_ok(golden("c", json_incref(other), all, true, &err), err);
    assert_same_bundle("b", "c");
    ck_assert_int_eq(mkdir(in_folder(folder, "d"), 0777), 0);
    write_file(in_folder(folder, "d/thesis.txt"), "x", 1);
    assert_status(golden("d", other, all, true, &err), CLOVER_USAGE, err);
    assert_says(err, "files that are no bundle");
    ck_assert_int_eq(access(in_folder(folder, "d/thesis.txt"), F_OK), 0);
}
END_TEST

START_TEST(a_full_disk) {
    CloverError err;
    struct rlimit old, limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old;
    limit.rlim_cur = 60000;                                          /* the small steps pass, a preview does not */
    setrlimit(RLIMIT_FSIZE, &limit);
    const CloverStatus status = golden("b", three(), all, false, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    ck_assert_int_eq((int)status, (int)CLOVER_SYSTEM);
    assert_says(err, "case draft");
    ck_assert_int_ne(access(in_folder(folder, "b/manifest.json"), F_OK), 0);
    assert_ok(golden("b", three(), all, false, &err), err);
    assert_same_bundle("whole", "b");
}
END_TEST

/* ---- parts ------------------------------------------------------------------------------------------------------------------ */

static CloverStatus merge(const char *name, char **parts, int64_t n, CloverError *err) {
    char *command[] = { "golden", NULL }, out[2 * TEST_PATH];
    snprintf(out, sizeof out, "%s", in_folder(folder, name));
    return golden_merge(out, parts, n, false, 1, command, err);
}

START_TEST(parts_join) {
    CloverError err;
    char path[4][2 * TEST_PATH], *parts[4];
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i + 1);
        assert_ok(golden(name, three(), (GoldenShard){ i + 1, 4 }, false, &err), err);   /* the fourth has no case */
        snprintf(path[3 - i], sizeof path[0], "%s", in_folder(folder, name));            /* in any order */
        parts[3 - i] = path[3 - i];
    }
    Bundle second = open_whole("p2");
    ck_assert_int_eq(second.n_cases, 1);
    ck_assert_str_eq(second.cases[0].name, "denoise");
    bundle_close(&second);
    assert_ok(merge("joined", parts, 4, &err), err);
    assert_same_bundle("whole", "joined");

    char half[2][2 * TEST_PATH], *halves[] = { half[0], half[1] };   /* whose cases interleave */
    for (int i = 0; i < 2; i++) {
        snprintf(half[i], sizeof half[i], "%s", in_folder(folder, i ? "h2" : "h1"));
        assert_ok(golden(i ? "h2" : "h1", three(), (GoldenShard){ i + 1, 2 }, false, &err), err);
    }
    assert_ok(merge("joined2", halves, 2, &err), err);
    assert_same_bundle("whole", "joined2");

    assert_status(merge("m", parts, 3, &err), CLOVER_BAD_INPUT, err);
    assert_says(err, "part 1 of 4 is missing");
    char *twice[] = { path[0], path[1], path[2], path[3], path[2] };
    assert_status(merge("m", twice, 5, &err), CLOVER_BAD_INPUT, err);
    assert_says(err, "a second time");
    assert_ok(golden("q", three(), (GoldenShard){ 1, 5 }, false, &err), err);
    char other[2 * TEST_PATH], *mixed[] = { path[0], path[1], path[2], other };
    snprintf(other, sizeof other, "%s", in_folder(folder, "q"));
    assert_status(merge("m", mixed, 4, &err), CLOVER_BAD_INPUT, err);
    assert_says(err, "part 1 of 5");
    snprintf(other, sizeof other, "%s", in_folder(folder, "whole"));
    assert_status(merge("m", mixed, 4, &err), CLOVER_BAD_INPUT, err);
    assert_says(err, "no part made with --shard");
    copy_folder(in_folder(folder, "p1"), "damaged");
    write_file(in_folder(folder, "damaged/draft/000-commit.safetensors"), "x", 1);
    snprintf(other, sizeof other, "%s", in_folder(folder, "damaged"));
    assert_status(merge("m", mixed, 4, &err), CLOVER_BAD_INPUT, err);
    assert_says(err, "damaged/draft/000-commit.safetensors: changed");
    ck_assert_int_ne(access(in_folder(folder, "m"), F_OK), 0);
}
END_TEST

/* ---- the version ------------------------------------------------------------------------------------------------------------- */

START_TEST(spec_version_is_the_texts) {
    Bytes spec = read_file("SPEC.md");
    put_number(&spec, 0, 1);
    ck_assert_ptr_nonnull(strstr((const char *)spec.data, "\nVersion " CLOVER_SPEC_VERSION ". "));
    free_bytes(&spec);
}
END_TEST

static Suite *golden_suite(void) {
    Suite *s = suite_create("golden");
    TCase *t = tcase_create("values");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, steps_hold_the_vectors);
    tcase_add_test(t, steps_with_a_coreset);
    tcase_add_test(t, runs_are_the_traces_and_replay);
    tcase_add_test(t, a_trace_states_all_options);
    tcase_add_test(t, spec_version_is_the_texts);
    suite_add_tcase(s, t);
    t = tcase_create("case files");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, a_wrong_case, 0, (int)(sizeof wrong / sizeof *wrong));
    tcase_add_test(t, all_wrong_cases_at_once);
    suite_add_tcase(s, t);
    t = tcase_create("broken off");
    tcase_add_unchecked_fixture(t, make_shared, remove_shared);
    tcase_add_checked_fixture(t, set_up_whole, tear_down);
    tcase_add_loop_test(t, killed_and_gone_on_with, 0, KILL_TESTS);
    tcase_add_test(t, killed_many_times);
    tcase_add_loop_test(t, unfinished_with_holes, 0, 7);
    tcase_add_test(t, a_saved_state_is_the_state);
    tcase_add_test(t, another_plan_is_refused);
    tcase_add_test(t, a_full_disk);
    tcase_add_test(t, parts_join);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(golden_suite()); }
