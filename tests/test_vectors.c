/* test_vectors.c - every probe and logit of the vectors, which come from an independent model in float64.
 * [LAY-1, LAY-2, LAY-3, GDN-1, PRB-2] */
#include <stdio.h>
#include "expected.h"
#include "harness.h"
#include "traces.h"

static void report(void *user, const char *step, const ExpectedResult *r) {
    int *steps = user;
    ck_assert_msg(r->beyond == 0, "%s: %lld values beyond the bound, first: %s", step, (long long)r->beyond, r->problem);
    ck_assert_int_gt(r->values, 0);
    ++*steps;
}

START_TEST(tiny_a_from_its_folder) {
    CloverError err;
    CloverModel *model = NULL;
    assert_ok(clover_model_open("tests/vectors/tiny-a/hf", NULL, &model, &err), err);
    int steps = 0;
    assert_ok(expected_folder(model, "tests/vectors/tiny-a/expected-hf", 1e-9, 1e-12, report, &steps, &err), err);
    ck_assert_int_eq(steps, 7);
    clover_model_close(model);
}
END_TEST

/* Shapes that tiny-a cannot show: value heads that are three times, as many as and four times the key heads, dk and dv that
 * differ, 2, 3 and 5 taps, three query heads on one KV head, all dims rotated, no attention at all, a tied head, a coreset
 * that the config turns on, blocks of 5 and 7. No tokenizer beside them.
 * [CFG-3, CFG-15, ATT-4, GDN-3, GDN-5, PRV-2, COR-1, COR-4, DRA-2] */
static const char *const shapes[] = { "three", "taps2", "recurrent" };

START_TEST(shape_steps) {
    char hf[128], expected[128];
    snprintf(hf, sizeof hf, "tests/vectors/shapes/%s/hf", shapes[_i]);
    snprintf(expected, sizeof expected, "tests/vectors/shapes/%s/expected-hf", shapes[_i]);
    CloverError err;
    CloverModel *model = NULL;
    assert_ok(clover_model_open(hf, NULL, &model, &err), err);
    int steps = 0;
    assert_ok(expected_folder(model, expected, 1e-9, 1e-12, report, &steps, &err), err);
    ck_assert_int_eq(steps, 7);
    clover_model_close(model);
}
END_TEST

START_TEST(shape_runs) {
    char folder[128], path[160];
    snprintf(folder, sizeof folder, "tests/vectors/shapes/%s", shapes[_i]);
    snprintf(path, sizeof path, "%s/traces.json", folder);
    int checked = 0;
    ck_assert_int_eq(traces_run(folder, path, stderr, &checked), 0);
    ck_assert_int_eq(checked, 8);
}
END_TEST

static Suite *vectors_suite(void) {
    Suite *s = suite_create("vectors");
    TCase *t = tcase_create("tiny-a");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, tiny_a_from_its_folder);
    suite_add_tcase(s, t);
    t = tcase_create("shapes");
    tcase_add_loop_test(t, shape_steps, 0, 3);
    tcase_add_loop_test(t, shape_runs, 0, 3);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(vectors_suite()); }
