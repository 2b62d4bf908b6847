/* test_error.c - how problems become one error. [ERR-1] [ERR-2] */
#include "files.h"
#include "../ref/error.h"

START_TEST(classes_are_the_exit_codes) {
    ck_assert_int_eq(CLOVER_OK, 0);
    ck_assert_int_eq(CLOVER_USAGE, 2);
    ck_assert_int_eq(CLOVER_BAD_INPUT, 3);
    ck_assert_int_eq(CLOVER_UNSUPPORTED, 4);
    ck_assert_int_eq(CLOVER_BUG, 70);
    ck_assert_int_eq(CLOVER_SYSTEM, 71);
}
END_TEST

START_TEST(set_replaces) {
    CloverError err;
    error_clear(&err);
    ck_assert_int_eq(err.status, CLOVER_OK);
    ck_assert_str_eq(err.text, "");
    ck_assert_int_eq(error_set(&err, CLOVER_USAGE, "id %d is not below %d", 7, 5), CLOVER_USAGE);
    ck_assert_str_eq(err.text, "id 7 is not below 5");
    ck_assert_int_eq(error_set(&err, CLOVER_BAD_INPUT, "other"), CLOVER_BAD_INPUT);
    ck_assert_int_eq(err.status, CLOVER_BAD_INPUT);
    ck_assert_str_eq(err.text, "other");
    error_clear(&err);
    ck_assert_int_eq(err.status, CLOVER_OK);
    ck_assert_str_eq(err.text, "");
}
END_TEST

START_TEST(set_cuts_what_is_too_long) {
    CloverError err;
    error_set(&err, CLOVER_BUG, "%*s", CLOVER_ERROR_TEXT + 100, "x");
    ck_assert_uint_eq(strlen(err.text), CLOVER_ERROR_TEXT - 1);
}
END_TEST

START_TEST(add_gives_each_problem_a_line) {
    CloverError err;
    error_clear(&err);
    ck_assert_int_eq(error_add(&err, CLOVER_BAD_INPUT, "one"), CLOVER_BAD_INPUT);
    ck_assert_str_eq(err.text, "one");
    error_add(&err, CLOVER_BAD_INPUT, "two %s", "2");
    error_add(&err, CLOVER_BAD_INPUT, "three");
    ck_assert_str_eq(err.text, "one\ntwo 2\nthree");
    ck_assert_int_eq(problems(&err), 3);
}
END_TEST

/* An error that was never cleared but says OK may hold anything as text. */
START_TEST(add_to_an_unwritten_text) {
    CloverError err;
    memset(&err, 'x', sizeof err);
    err.status = CLOVER_OK;
    error_add(&err, CLOVER_USAGE, "first");
    ck_assert_str_eq(err.text, "first");
    ck_assert_int_eq(err.status, CLOVER_USAGE);
}
END_TEST

/* A file that is damaged AND uses something unsupported is damaged; the first of other classes stays. */
START_TEST(bad_input_wins_over_unsupported) {
    CloverError err;
    error_clear(&err);
    ck_assert_int_eq(error_add(&err, CLOVER_UNSUPPORTED, "a"), CLOVER_UNSUPPORTED);
    ck_assert_int_eq(error_add(&err, CLOVER_UNSUPPORTED, "b"), CLOVER_UNSUPPORTED);
    ck_assert_int_eq(error_add(&err, CLOVER_BAD_INPUT, "c"), CLOVER_BAD_INPUT);
    ck_assert_int_eq(error_add(&err, CLOVER_UNSUPPORTED, "d"), CLOVER_BAD_INPUT);
    ck_assert_str_eq(err.text, "a\nb\nc\nd");
    error_clear(&err);
    error_add(&err, CLOVER_SYSTEM, "disk");
    ck_assert_int_eq(error_add(&err, CLOVER_BAD_INPUT, "file"), CLOVER_SYSTEM);
}
END_TEST

/* 1,000 problems of 100 bytes do not fit into 16,384: the last line counts the others, and what stands is whole. */
START_TEST(the_last_line_counts_what_does_not_fit) {
    CloverError err;
    char line[128];
    enum { ALL = 1000 };
    error_clear(&err);
    for (int i = 0; i < ALL; i++) error_add(&err, CLOVER_BAD_INPUT, "problem %04d %087d", i, 0);
    int shown = problems(&err) - 1, more = 0;
    const char *last = strrchr(err.text, '\n') + 1;
    ck_assert_int_eq(sscanf(last, "... and %d more problems", &more), 1);
    ck_assert_str_eq(strchr(last, 'p'), "problems");
    ck_assert_int_eq(shown + more, ALL);
    ck_assert_int_ge(shown, 155);                                    /* 16,384 / 101 = 162, less the room for the last line */
    const char *at = err.text;
    for (int i = 0; i < shown; i++) {
        int n = snprintf(line, sizeof line, "problem %04d %087d\n", i, 0);
        ck_assert_msg(strncmp(at, line, (size_t)n) == 0, "line %d is not whole: %.100s", i, at);
        at += n;
    }
}
END_TEST

START_TEST(one_problem_too_many_is_in_the_singular) {
    CloverError err;
    error_clear(&err);
    while (!strstr(err.text, "... and")) error_add(&err, CLOVER_BAD_INPUT, "%0100d", 0);
    ck_assert_str_eq(strrchr(err.text, '\n') + 1, "... and 1 more problem");
    error_add(&err, CLOVER_BAD_INPUT, "x");
    ck_assert_str_eq(strrchr(err.text, '\n') + 1, "... and 2 more problems");
    for (int i = 3; i <= 12345; i++) error_add(&err, CLOVER_BAD_INPUT, "x");
    ck_assert_str_eq(strrchr(err.text, '\n') + 1, "... and 12345 more problems");
    ck_assert_uint_lt(strlen(err.text), CLOVER_ERROR_TEXT);
}
END_TEST

START_TEST(memory_says_how_much) {
    CloverError err;
    ck_assert_int_eq(error_memory(&err, "the state", 3 * 1048576 / 2), CLOVER_SYSTEM);
    ck_assert_str_eq(err.text, "out of memory: the state needs 1572864 bytes (1.5 MiB)");
}
END_TEST

static Suite *error_suite(void) {
    Suite *s = suite_create("error");
    TCase *t = tcase_create("error");
    tcase_add_test(t, classes_are_the_exit_codes);
    tcase_add_test(t, set_replaces);
    tcase_add_test(t, set_cuts_what_is_too_long);
    tcase_add_test(t, add_gives_each_problem_a_line);
    tcase_add_test(t, add_to_an_unwritten_text);
    tcase_add_test(t, bad_input_wins_over_unsupported);
    tcase_add_test(t, the_last_line_counts_what_does_not_fit);
    tcase_add_test(t, one_problem_too_many_is_in_the_singular);
    tcase_add_test(t, memory_says_how_much);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(error_suite()); }
