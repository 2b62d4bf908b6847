/* test_lint_memory.c - clover lint when memory runs out: an error of the machine or the whole truth, no leak, no crash. [ERR-5]
 * Of GGUFs only: jansson, which reads a folder's JSON, does not survive it. */
#include "failing_malloc.h"
#include "test_lint.h"

typedef enum What { HEADER_AND_VALUES, DEEP } What;

/* Lints path with the allocation after the first n failing; *findings: how many. */
static CloverStatus lint_once(const char *path, What what, long n, bool then_all, int64_t *findings) {
    LintFile file = { 0 };
    Report report = { 0 };
    CloverError err;
    const int32_t ids[20] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 };
    const DeepOptions o = { .ids = ids, .n_ids = 20, .rows = 20 };
    malloc_fail_after(n, then_all);
    CloverStatus status = what == DEEP ? lint_deep(path, &o, &report, &err) : lint_examine(path, &file, &report, &err);
    malloc_recover();
    if (status == CLOVER_OK && report.no_memory) status = CLOVER_SYSTEM;       /* as the command does */
    *findings = report.n;
    report_free(&report);
    lint_file_free(&file);
    return status;
}

static void run_out(const char *path, What what, long step) {
    int64_t whole, n;
    ck_assert_int_eq(lint_once(path, what, -1, false, &whole), CLOVER_OK);
    for (int then_all = 0; then_all < 2; then_all++)
        for (long at = 0; ; at += at < 300 ? 1 : step) {
            const long before = malloc_live;
            const CloverStatus status = lint_once(path, what, at, then_all, &n);
            /* deep: the session's aligned blocks are freed uncounted */
            ck_assert_msg(what == DEEP ? malloc_live <= before : malloc_live == before, "failing at %ld leaves %ld allocations", at,
                          malloc_live - before);
            if (!malloc_failed) break;
            if (status == CLOVER_OK) ck_assert_msg(n == whole, "failing at %ld: %lld findings, expected %lld or an error", at, (long long)n,
                                                   (long long)whole);
            else ck_assert_msg(status == CLOVER_SYSTEM, "failing at %ld: status %d", at, (int)status);
        }
}

START_TEST(of_a_gguf) {
    if (!malloc_can_fail()) { printf("skip of_a_gguf: the sanitizer has its own allocator\n"); return; }
    run_out(GOOD_GGUF, HEADER_AND_VALUES, 23);
} END_TEST

START_TEST(of_deep) {
    if (!malloc_can_fail()) { printf("skip of_deep: the sanitizer has its own allocator\n"); return; }
    run_out(GOOD_GGUF, DEEP, 211);
} END_TEST

Suite *lint_memory_suite(void);
Suite *lint_memory_suite(void) {
    Suite *s = suite_create("lint_memory");
    TCase *t = tcase_create("memory");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, of_a_gguf);
    tcase_add_test(t, of_deep);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(lint_memory_suite()); }
