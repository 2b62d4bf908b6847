/* harness.h - what every Check suite shares. */
#ifndef CLOVER_TEST_HARNESS_H
#define CLOVER_TEST_HARNESS_H

#include <check.h>
#include <stdlib.h>
#include "../ref/clover.h"

/* Runs a suite and returns main's exit code. */
static inline int harness_run(Suite *s) {
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* The status a call must have; prints the error's text when it has another. */
#define assert_status(call, expected, err) do { \
    CloverStatus status_ = (call); \
    ck_assert_msg(status_ == (expected), "%s: status %d, expected %d: %s", #call, (int)status_, (int)(expected), status_ == CLOVER_OK ? "" : (err).text); \
} while (0)
#define assert_ok(call, err) assert_status(call, CLOVER_OK, err)

/* |a - b| <= rel * max(|a|, |b|), or both within abs of zero's neighbourhood. */
static inline bool close_to(double a, double b, double rel, double abs_) {
    double d = a > b ? a - b : b - a, m = a < 0 ? -a : a, n = b < 0 ? -b : b;
    return a == b || d <= rel * (m > n ? m : n) || d <= abs_;
}

#endif
