/* test_vectors.c - every probe and logit of the vectors, which come from an independent model in float64.
 * [LAY-1, LAY-2, LAY-3, GDN-1, PRB-2] */
#include <stdio.h>
#include "expected.h"
#include "harness.h"

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

static Suite *vectors_suite(void) {
    Suite *s = suite_create("vectors");
    TCase *t = tcase_create("tiny-a");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, tiny_a_from_its_folder);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(vectors_suite()); }
