/* test_traces.c - the 26 decode traces of tiny-a on the real model, token for token and step for step, and a check that
 * the comparison itself can fail. [AR-1, DEN-1, DRA-1] */
#include <string.h>
#include "harness.h"
#include "traces.h"

enum { CASES = 26 };

static const char folder[] = "tests/vectors/tiny-a", file[] = "tests/vectors/tiny-a/traces.json";

static Traces open_traces(void) {
    Traces t;
    char message[1024];
    ck_assert_msg(traces_open(&t, folder, file, message, sizeof message), "%s", message);
    return t;
}

START_TEST(a_trace_is_reproduced) {
    Traces t = open_traces();
    char message[1024];
    ck_assert_msg(traces_check(&t, (size_t)_i, message, sizeof message), "%s: %s", traces_name(&t, (size_t)_i), message);
    traces_close(&t);
}
END_TEST

START_TEST(no_trace_is_left_out) {
    Traces t = open_traces();
    ck_assert_uint_eq(traces_count(&t), CASES);
    traces_close(&t);
}
END_TEST

static size_t find_case(const Traces *t, const char *name) {
    for (size_t i = 0; i < traces_count(t); i++) if (strcmp(traces_name(t, i), name) == 0) return i;
    ck_abort_msg("no case %s", name);
    return 0;
}

/* The last id of the last candidates list is changed by one, then a probability by 1e-6: each must be found. */
START_TEST(a_changed_trace_is_found) {
    Traces t = open_traces();
    char message[1024];
    size_t i = find_case(&t, "denoise-block-8");
    json_t *pass = json_array_get(json_object_get(json_array_get(t.cases, i), "steps"), 0);
    json_t *candidate = json_array_get(json_object_get(pass, "candidates"), 7);
    json_int_t id = json_integer_value(json_array_get(candidate, 1));
    double p = json_real_value(json_array_get(candidate, 2));

    json_array_set_new(candidate, 1, json_integer(id + 1));
    ck_assert(!traces_check(&t, i, message, sizeof message));
    ck_assert_ptr_nonnull(strstr(message, "steps[0].candidates[7][1]"));
    json_array_set_new(candidate, 1, json_integer(id));

    json_array_set_new(candidate, 2, json_real(p + 1e-6));
    ck_assert(!traces_check(&t, i, message, sizeof message));
    ck_assert_ptr_nonnull(strstr(message, "steps[0].candidates[7][2]"));
    json_array_set_new(candidate, 2, json_real(p));

    json_array_append_new(json_object_get(json_array_get(t.cases, i), "tokens"), json_integer(1));
    ck_assert(!traces_check(&t, i, message, sizeof message));
    ck_assert_ptr_nonnull(strstr(message, "tokens has"));
    traces_close(&t);
}
END_TEST

START_TEST(a_missing_file_counts_as_a_failure) {
    int checked = -1;
    FILE *report = tmpfile();
    ck_assert_ptr_nonnull(report);
    ck_assert_int_eq(traces_run(folder, "tests/vectors/no-such-file.json", report, &checked), 1);
    ck_assert_int_eq(checked, 0);
    fclose(report);
}
END_TEST

Suite *traces_suite(void) {
    Suite *s = suite_create("traces");
    TCase *c = tcase_create("tiny-a");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, a_trace_is_reproduced, 0, CASES);
    tcase_add_test(c, no_trace_is_left_out);
    tcase_add_test(c, a_changed_trace_is_found);
    tcase_add_test(c, a_missing_file_counts_as_a_failure);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(traces_suite()); }
