/* test_bundle.c - reading bundles: good ones, hostile ones, damaged ones; a model's identity; SHA-256. [BND-1, BND-4, BND-5] */
#include <jansson.h>
#include <math.h>
#include "files.h"
#include "../ref/model.h"
#include "../tools/bundle.h"
#include "../tools/json_check.h"
#include "../tools/sha256.h"

/* ---- a bundle made by hand ------------------------------------------------------------------------------------------- */

#define DIGITS_64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
static const char good[] =
    "{'schema': 1, 'spec': '1', 'numerics': 'exact',"
    " 'model': {'path': 'some/model', 'identity': '" DIGITS_64 "', 'identity_of': 'full', 'config': {'vocab': 300}, 'open': {}},"
    " 'cases': ["
    "  {'name': 'run', 'folder': 'run', 'why': 'because', 'features': ['causal'], 'prompt': {'ids': [1, 2]}, 'mode': 'ar', 'n': 4,"
    "   'options': {'coreset_top_p': 0.5, 'seed': 3}, 'controls': {'presence_penalty': 0.5},"
    "   'steps': [{'name': '000-commit', 'commit': [1, 2]}, {'name': '001-commit', 'commit': [299]}]},"
    "  {'name': 'by hand', 'folder': 'by hand', 'options': {'coreset_top_p': 'off'}, 'probes': ['*'],"
    "   'steps': [{'name': 'a', 'commit': [1]}, {'snapshot': 's'}, {'name': 'b', 'preview': [2, 3]}, {'restore': 's'}]}],"
    " 'files': {'run/000-commit.safetensors': '" DIGITS_64 "', 'run/001-commit.safetensors': '" DIGITS_64 "', 'run/trace.json': '" DIGITS_64 "',"
    "           'by hand/a.safetensors': '" DIGITS_64 "'}}";

static json_t *parse(const char *text) {
    char *copy = strdup(text);
    for (char *p = copy; *p; p++)
        if (*p == '\'') *p = '"';
    json_t *json = json_loads(copy, JSON_DECODE_ANY, NULL);
    ck_assert_msg(json != NULL, "not JSON: %s", text);
    free(copy);
    return json;
}

/* Sets, or with value NULL removes, what stands at a path such as cases/0/steps/1/name. */
static void edit(json_t *root, const char *path, const char *value) {
    char part[256];
    json_t *at = root;
    for (;;) {
        const char *slash = strchr(path, '/');
        const size_t length = slash ? (size_t)(slash - path) : strlen(path);
        snprintf(part, sizeof part, "%.*s", (int)length, path);
        if (!slash) break;
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(part)) : json_object_get(at, part);
        ck_assert_msg(at != NULL, "no %s", path);
        path = slash + 1;
    }
    for (char *p = part; *p; p++)
        if (*p == '|') *p = '/';                                     /* a slash inside a key */
    if (json_is_array(at) && value) json_array_set_new(at, (size_t)atoi(part), parse(value));
    else if (json_is_array(at)) json_array_remove(at, (size_t)atoi(part));
    else if (value) json_object_set_new(at, part, parse(value));
    else json_object_del(at, part);
}

static char folder[TEST_PATH];

static void set_up(void) { make_folder("bundle", folder); }
static void tear_down(void) { remove_folder(folder); }

static void write_manifest(const json_t *json) {
    char *text = json_dumps(json, JSON_ENCODE_ANY);
    write_file(in_folder(folder, "manifest.json"), text, strlen(text));
    free(text);
}

START_TEST(a_good_manifest) {
    CloverError err;
    Bundle b;
    json_t *json = parse(good);
    write_manifest(json);
    json_decref(json);
    assert_ok(bundle_open(folder, &b, &err), err);
    ck_assert_str_eq(b.model_path, "some/model");
    ck_assert_str_eq(b.identity, DIGITS_64);
    ck_assert_str_eq(b.numerics, "exact");
    ck_assert(b.full_hash);
    ck_assert_int_eq(b.n_cases, 2);

    const BundleCase *run = &b.cases[0], *steps = &b.cases[1];
    ck_assert_str_eq(run->name, "run");
    ck_assert_str_eq(run->why, "because");
    ck_assert_str_eq(run->folder, "run");
    ck_assert_str_eq(json_string_value(run->mode), "ar");
    ck_assert_str_eq(json_string_value(json_array_get(run->features, 0)), "causal");
    ck_assert(run->coreset_top_p == 0.5);
    ck_assert(run->has_trace);
    ck_assert_int_eq(run->n_steps, 2);
    ck_assert_int_eq(run->step[0].n, 2);
    ck_assert_int_eq(run->step[0].ids[1], 2);
    ck_assert_int_eq(run->step[1].ids[0], 299);
    ck_assert(run->step[1].recorded);

    ck_assert(steps->coreset_top_p < 0);
    ck_assert_ptr_null(steps->mode);
    ck_assert(!steps->has_trace);
    const StepKind kinds[] = { STEP_COMMIT, STEP_SNAPSHOT, STEP_PREVIEW, STEP_RESTORE };
    const char *const names[] = { "a", "s", "b", "s" };
    const bool recorded[] = { true, false, false, false };           /* the preview has no file */
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq((int)steps->step[i].kind, (int)kinds[i]);
        ck_assert_str_eq(steps->step[i].name, names[i]);
        ck_assert_int_eq(steps->step[i].recorded, recorded[i]);
    }

    char expected[2 * TEST_PATH], *file = bundle_file(&b, steps, "a", ".safetensors");
    snprintf(expected, sizeof expected, "%s/by hand/a.safetensors", folder);
    ck_assert_str_eq(file, expected);
    free(file);
    bundle_close(&b);
}
END_TEST

START_TEST(a_single_case_at_the_top) {
    CloverError err;
    Bundle b;
    json_t *json = parse(good);
    edit(json, "cases/1", NULL);
    edit(json, "cases/0/folder", "''");
    edit(json, "files", "{'000-commit.safetensors': '" DIGITS_64 "'}");
    edit(json, "cases/0/options/coreset_top_p", NULL);
    write_manifest(json);
    json_decref(json);
    assert_ok(bundle_open(folder, &b, &err), err);
    ck_assert(b.cases[0].step[0].recorded);
    ck_assert(!b.cases[0].step[1].recorded);
    ck_assert(!b.cases[0].has_trace);
    ck_assert(isnan(b.cases[0].coreset_top_p));
    char expected[2 * TEST_PATH], *file = bundle_file(&b, &b.cases[0], "trace", ".json");
    snprintf(expected, sizeof expected, "%s/trace.json", folder);
    ck_assert_str_eq(file, expected);
    free(file);
    bundle_close(&b);
}
END_TEST

/* ---- hostile manifests ----------------------------------------------------------------------------------------------- */

static const struct { const char *path, *value, *says; } bad[] = {
    { "schema", NULL, "schema: missing" },
    { "schema", "'1'", "schema: expected a whole number, found \"1\"" },
    { "spec", NULL, "spec: missing" },
    { "surprise", "1", "unknown key \"surprise\"" },
    { "numerics", "'float128'", "numerics: expected exact, fast, bf16, f32 or llama.cpp, found \"float128\"" },
    { "numerics", "7", "numerics: expected a string" },
    { "model", "[]", "model: expected an object" },
    { "model/path", "1", "path: expected a string" },
    { "model/identity", "'12'", "model.identity: expected a SHA-256" },
    { "model/identity", "'0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef'", "model.identity: expected a SHA-256" },
    { "model/identity_of", "'some'", "model.identity_of: expected start or full" },
    { "model/config", "'x'", "model.config: expected an object" },
    { "model/config/vocab", "0", "model.config.vocab: expected a whole number" },
    { "model/config/vocab", "1e300", "model.config.vocab: expected a whole number" },
    { "shard", "{'index': 3, 'count': 2, 'cases': 2}", "shard: expected an index from 1 to count" },
    { "shard", "{'index': 1, 'count': 2, 'cases': 2, 'x': 1}", "unknown key \"x\"" },
    { "cases", "{}", "cases: expected an array" },
    { "cases", NULL, "cases: missing" },
    { "cases/0", "null", "cases[0]: case: expected an object" },
    { "cases/0/name", "''", "name: expected a name" },
    { "cases/0/name", "'..'", "name: expected a name" },
    { "cases/0/name", "'a/b'", "name: expected a name" },
    { "cases/0/name", "'.hidden'", "name: expected a name" },
    { "cases/0/name", "'a\\nb'", "name: expected a name" },
    { "cases/0/name", NULL, "name: missing" },
    { "cases/0/name", "'other'", "folder: expected the case's name" },
    { "cases/0/folder", "'../..'", "folder: expected the case's name" },
    { "cases/0/folder", "''", "only a single case may lie at the top" },
    { "cases/0/folder", NULL, "folder: missing" },
    { "cases/1/name", "'run'", "\"run\" stands there twice" },
    { "cases/0/what", "1", "cases[0]: case: unknown key \"what\"" },
    { "cases/0/why", "[]", "why: expected a string" },
    { "cases/0/features", "'causal'", "features: expected an array" },
    { "cases/0/features/0", "1", "features: expected an array of non-empty strings" },
    { "cases/0/n", "0", "n: expected a whole number" },
    { "cases/0/n", "4.0", "n: expected a whole number, 1 to 16777216, found 4.0" },
    { "cases/0/n", "9223372036854775807", "n: expected a whole number" },
    { "cases/0/mode", "'beam'", "mode: expected ar, denoise or draft" },
    { "cases/0/prompt", "{}", "prompt: expected exactly one of text, chat and ids" },
    { "cases/0/prompt", "{'text': 'a', 'ids': [1]}", "prompt: expected exactly one of text, chat and ids" },
    { "cases/0/prompt", "{'text': 1}", "prompt.text: expected a string" },
    { "cases/0/prompt/ids/1", "300", "prompt.ids[1]: expected a token id, 0 to 299, found 300" },
    { "cases/0/options/seed", "-1", "options.seed: expected a whole number" },
    { "cases/0/options/coreset_top_p", "'on'", "options.coreset_top_p: expected a number from 0" },
    { "cases/0/options/block", "1e9", "options.block: expected a whole number, 1 to 65536" },
    { "cases/0/options/colour", "1", "options: unknown key \"colour\"" },
    { "cases/0/controls/presence_penalty", "'1'", "controls.presence_penalty: expected a number" },
    { "cases/0/controls/penalty", "1", "controls: unknown key \"penalty\"" },
    { "cases/0/steps", NULL, "steps: missing" },
    { "cases/0/steps", "[]", "steps: expected a non-empty array" },
    { "cases/0/steps/0", "7", "steps[0]: step: expected an object" },
    { "cases/0/steps/0/commit", "[]", "commit: expected a non-empty array of token ids" },
    { "cases/0/steps/0/commit", "'1,2'", "commit: expected a non-empty array of token ids" },
    { "cases/0/steps/0/commit/1", "-1", "commit[1]: expected a token id, 0 to 299, found -1" },
    { "cases/0/steps/0/commit/1", "1.5", "commit[1]: expected a token id" },
    { "cases/0/steps/0/commit/1", "4294967296", "commit[1]: expected a token id" },
    { "cases/0/steps/0/preview", "[1]", "exactly one of commit, preview, snapshot and restore" },
    { "cases/0/steps/0/name", "'../../etc/passwd'", "name: expected a name" },
    { "cases/0/steps/0/name", "'001-commit'", "the step name \"001-commit\" stands there twice" },
    { "cases/0/steps/0/mood", "1", "unknown key \"mood\"" },
    { "cases/1/steps/1", NULL, "no step before takes a snapshot \"s\"" },
    { "cases/1/steps/1/name", "'x'", "a snapshot has no name beside its own" },
    { "cases/1/prompt", "{'ids': [1]}", "prompt belongs to a run" },
    { "cases/1/n", "1", "n belongs to a run" },
    { "cases/1/options/threshold", "1", "unknown key \"threshold\"" },
    { "cases/1/steps/3/restore", "'t'", "no step before takes a snapshot \"t\"" },
    { "files", "[]", "files: expected an object" },
    { "files/..|..|etc|passwd", "'" DIGITS_64 "'", "\"../../etc/passwd\" belongs to no step and no run" },
    { "files/run|002-commit.safetensors", "'" DIGITS_64 "'", "belongs to no step and no run" },
    { "files/run|trace.json", "'abc'", "expected a SHA-256" },
};

START_TEST(a_bad_manifest) {
    CloverError err;
    Bundle b;
    json_t *json = parse(good);
    edit(json, bad[_i].path, bad[_i].value);
    write_manifest(json);
    json_decref(json);
    assert_status(bundle_open(folder, &b, &err), CLOVER_BAD_INPUT, err);
    assert_says(err, bad[_i].says);
    assert_says(err, "manifest.json");
}
END_TEST

START_TEST(all_problems_at_once) {
    CloverError err;
    Bundle b;
    json_t *json = parse(good);
    edit(json, "spec", NULL);
    edit(json, "model/path", "7");
    edit(json, "cases/0/steps/0/commit/0", "1000");
    edit(json, "cases/1/steps/2/name", "'/'");
    edit(json, "files/run|trace.json", "1");
    write_manifest(json);
    json_decref(json);
    assert_status(bundle_open(folder, &b, &err), CLOVER_BAD_INPUT, err);
    ck_assert_int_eq(problems(&err), 5);
}
END_TEST

START_TEST(another_schema_is_unsupported) {
    CloverError err;
    Bundle b;
    json_t *json = parse(good);
    edit(json, "schema", "2");
    edit(json, "cases", NULL);
    write_manifest(json);
    json_decref(json);
    assert_status(bundle_open(folder, &b, &err), CLOVER_UNSUPPORTED, err);
    assert_says(err, "bundle schema 2");
}
END_TEST

START_TEST(no_manifest_no_bundle) {
    CloverError err;
    Bundle b;
    assert_status(bundle_open(folder, &b, &err), CLOVER_BAD_INPUT, err);
    assert_says(err, "no bundle: it has no manifest.json");
    ck_assert_ptr_null(strstr(err.text, "did not finish"));
    ck_assert_int_eq(mkdir(in_folder(folder, BUNDLE_UNFINISHED), 0777), 0);
    assert_status(bundle_open(folder, &b, &err), CLOVER_BAD_INPUT, err);
    assert_says(err, "did not finish");
    assert_status(bundle_open("build/tmp/there/is/none", &b, &err), CLOVER_BAD_INPUT, err);
}
END_TEST

static const struct { const char *text, *says; } not_json[] = {
    { "", "not JSON" }, { "{\"schema\": 1", "not JSON" }, { "[1, 2]", "expected an object" }, { "{\"schema\": 1, \"schema\": 1}", "duplicate" },
    { "\xff\xfe", "not JSON" }, { "{\"schema\": 99999999999999999999999999}", "not JSON" },
};

START_TEST(a_manifest_that_is_no_object) {
    CloverError err;
    Bundle b;
    write_file(in_folder(folder, "manifest.json"), not_json[_i].text, strlen(not_json[_i].text));
    assert_status(bundle_open(folder, &b, &err), CLOVER_BAD_INPUT, err);
    assert_says(err, not_json[_i].says);
}
END_TEST

/* Every cut of a good manifest is refused, and none of them is fatal. */
START_TEST(a_manifest_cut_anywhere) {
    CloverError err;
    Bundle b;
    json_t *json = parse(good);
    char *text = json_dumps(json, 0);
    json_decref(json);
    for (size_t n = 0; n < strlen(text); n += 7) {
        write_file(in_folder(folder, "manifest.json"), text, n);
        assert_status(bundle_open(folder, &b, &err), CLOVER_BAD_INPUT, err);
    }
    free(text);
}
END_TEST

/* ---- is it whole? ---------------------------------------------------------------------------------------------------- */

/* SHA-256 of "abc" and of "", from FIPS 180-2 and its examples. */
#define SHA_ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define SHA_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void write_whole(void) {
    json_t *json = parse(good);
    edit(json, "files", "{'run/000-commit.safetensors': '" SHA_ABC "', 'run/trace.json': '" SHA_EMPTY "', 'by hand/a.safetensors': '" SHA_ABC "'}");
    write_manifest(json);
    json_decref(json);
    ck_assert_int_eq(mkdir(in_folder(folder, "run"), 0777), 0);
    ck_assert_int_eq(mkdir(in_folder(folder, "by hand"), 0777), 0);
    write_file(in_folder(folder, "run/000-commit.safetensors"), "abc", 3);
    write_file(in_folder(folder, "by hand/a.safetensors"), "abc", 3);
    write_file(in_folder(folder, "run/trace.json"), "", 0);
    write_file(in_folder(folder, "provenance.json"), "{}", 2);
}

static CloverStatus verify(CloverError *err) {
    Bundle b;
    assert_ok(bundle_open(folder, &b, err), *err);
    CloverStatus status = bundle_verify(&b, err);
    bundle_close(&b);
    return status;
}

START_TEST(a_whole_bundle) {
    CloverError err;
    write_whole();
    assert_ok(verify(&err), err);
    unlink(in_folder(folder, "provenance.json"));                    /* says how, not what */
    ck_assert_int_eq(mkdir(in_folder(folder, BUNDLE_UNFINISHED), 0777), 0);
    assert_ok(verify(&err), err);
}
END_TEST

START_TEST(changed_missing_and_extra_files_are_named) {
    CloverError err;
    write_whole();
    write_file(in_folder(folder, "run/000-commit.safetensors"), "abb", 3);
    unlink(in_folder(folder, "by hand/a.safetensors"));
    write_file(in_folder(folder, "run/more.safetensors"), "abc", 3);
    write_file(in_folder(folder, "notes.txt"), "abc", 3);
    ck_assert_int_eq(mkdir(in_folder(folder, "third"), 0777), 0);
    assert_status(verify(&err), CLOVER_BAD_INPUT, err);
    ck_assert_int_eq(problems(&err), 5);
    assert_says(err, "run/000-commit.safetensors: changed");
    assert_says(err, "by hand/a.safetensors: missing");
    assert_says(err, "run/more.safetensors: not in the manifest");
    assert_says(err, "notes.txt: not in the manifest");
    assert_says(err, "third: not in the manifest");
}
END_TEST

START_TEST(sha256_of_a_million) {
    CloverError err;
    Sha256 s;
    char hex[SHA256_HEX], a[1000];
    memset(a, 'a', sizeof a);
    assert_ok(sha256_begin(&s, &err), err);
    for (int i = 0; i < 1000; i++) sha256_add(&s, a, sizeof a);
    assert_ok(sha256_end(&s, hex, &err), err);
    ck_assert_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");   /* FIPS 180-2, example 3 */
    assert_status(sha256_file(in_folder(folder, "none"), hex, &err), CLOVER_SYSTEM, err);
}
END_TEST

START_TEST(names_that_files_may_have) {
    char longest[130];
    memset(longest, 'x', sizeof longest);
    longest[129] = '\0';
    ck_assert(json_is_file_name("000-commit") && json_is_file_name("a b.c") && json_is_file_name("\xc3\xa4"));
    ck_assert(!json_is_file_name(longest));
    longest[128] = '\0';
    ck_assert(json_is_file_name(longest));
    ck_assert(!json_is_file_name("a..b") && !json_is_file_name("a\\b") && !json_is_file_name(".") && !json_is_file_name("\x7f"));
}
END_TEST

/* ---- identity -------------------------------------------------------------------------------------------------------- */

static void identity_of(const char *path, bool full, char hex[65]) {
    CloverError err;
    CloverModel *model = NULL;
    assert_ok(clover_model_open(path, NULL, &model, &err), err);
    assert_ok(model_identity(model, full, hex, &err), err);
    clover_model_close(model);
}

/* Computed with Python's hashlib from the files, by the words of BND-4. */
START_TEST(identity_of_tiny_a) {
    char hex[65];
    identity_of("tests/vectors/tiny-a/hf", false, hex);
    ck_assert_str_eq(hex, "d141aff3fe51f6d1d8bf5987034aa85d300715a9ef773720fb6e3c7825e6bf3b");
    identity_of("tests/vectors/tiny-a/hf", true, hex);
    ck_assert_str_eq(hex, "bc72982faebbfd6f724d3989c3d7a3ab9eb4bd46a9b5a7808be2f9055d027ac2");
}
END_TEST

/* A byte of config, one early and one late in a tensor: the identity shows the first two, the full one all. */
START_TEST(identity_shows_changes) {
    static const char *const files[] = { "config.json", "generation_config.json", "model.safetensors", "tokenizer.json" };
    char start[65], full[65], hex[65], from[64];
    for (int i = 0; i < 4; i++) {
        snprintf(from, sizeof from, "tests/vectors/tiny-a/hf/%s", files[i]);
        if (access(from, R_OK) != 0) continue;
        Bytes b = read_file(from);
        write_file(in_folder(folder, files[i]), b.data, b.n);
        free_bytes(&b);
    }
    identity_of(folder, false, start);
    identity_of(folder, true, full);
    ck_assert_str_eq(start, "d141aff3fe51f6d1d8bf5987034aa85d300715a9ef773720fb6e3c7825e6bf3b");   /* wherever it lies */

    Bytes weights = read_file(in_folder(folder, "model.safetensors"));
    uint64_t header, late = 0;
    memcpy(&header, weights.data, 8);
    CloverError err;
    CloverModel *model = NULL;
    assert_ok(clover_model_open(folder, NULL, &model, &err), err);
    for (int64_t i = 0; i < model->tensors.n && late == 0; i++)
        if (model->tensors.tensor[i].bytes > 4096) late = model->tensors.tensor[i].offset + 4096;   /* behind its first 4 KiB */
    clover_model_close(model);
    ck_assert_uint_gt(late, 0);
    weights.data[late] ^= 1;
    write_file(in_folder(folder, "model.safetensors"), weights.data, weights.n);
    identity_of(folder, false, hex);
    ck_assert_str_eq(hex, start);
    identity_of(folder, true, hex);
    ck_assert_str_ne(hex, full);
    weights.data[late] ^= 1;
    weights.data[8 + header] ^= 1;                                   /* the first tensor's first byte */
    write_file(in_folder(folder, "model.safetensors"), weights.data, weights.n);
    identity_of(folder, false, hex);
    ck_assert_str_ne(hex, start);
    weights.data[8 + header] ^= 1;
    write_file(in_folder(folder, "model.safetensors"), weights.data, weights.n);

    Bytes config = read_file(in_folder(folder, "config.json"));
    put_text(&config, "\n");
    write_file(in_folder(folder, "config.json"), config.data, config.n);
    identity_of(folder, false, hex);
    ck_assert_str_ne(hex, start);
    free_bytes(&config);
    free_bytes(&weights);
}
END_TEST

static Suite *bundle_suite(void) {
    Suite *s = suite_create("bundle");
    TCase *t = tcase_create("manifest");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_good_manifest);
    tcase_add_test(t, a_single_case_at_the_top);
    tcase_add_loop_test(t, a_bad_manifest, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(t, all_problems_at_once);
    tcase_add_test(t, another_schema_is_unsupported);
    tcase_add_test(t, no_manifest_no_bundle);
    tcase_add_loop_test(t, a_manifest_that_is_no_object, 0, (int)(sizeof not_json / sizeof *not_json));
    tcase_add_test(t, a_manifest_cut_anywhere);
    suite_add_tcase(s, t);
    t = tcase_create("whole");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_whole_bundle);
    tcase_add_test(t, changed_missing_and_extra_files_are_named);
    tcase_add_test(t, sha256_of_a_million);
    tcase_add_test(t, names_that_files_may_have);
    tcase_add_test(t, identity_of_tiny_a);
    tcase_add_test(t, identity_shows_changes);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(bundle_suite()); }
