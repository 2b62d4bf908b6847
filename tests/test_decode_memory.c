/* test_decode_memory.c - decoding when memory runs out: CLOVER_SYSTEM at whichever allocation it happens. [ERR] */
#include <stdio.h>
#include "decode_run.h"
#include "failing_malloc.h"

/* One decode without listening. */
static CloverStatus decode(DecodeRun *r) {
    CloverEngine engine = scripted_engine(r->engine);
    return clover_decode(&engine, &r->options, r->prompt, r->n_prompt, NULL, NULL, r->out, &r->n_out, &r->err);
}

static DecodeRun *run_of(CloverMode mode) {
    static const char *const causal[] = { "4", "5", "6", "5", "4", NULL };
    static const char *const preview[] = { "4", "5", "6", "5", "4", "4", "4", "4", "4", "4", "4", "4", NULL };
    DecodeRun *r = decode_run_new(mode, causal, preview);
    r->options.temperature = 1;                      /* the work of drawing is allocated too */
    r->options.top_k = 1;
    return r;
}

START_TEST(memory_may_run_out_at_any_allocation) {
    if (!malloc_can_fail()) {
        printf("skip: sanitizers have an allocator of their own\n");
        return;
    }
    for (int all = 0; all <= 1; all++) {
        bool failed = true;
        long n = 0;
        for (; failed; n++) {
            ck_assert_int_lt(n, 100);
            DecodeRun *r = run_of((CloverMode)_i);
            malloc_fail_after(n, all == 1);
            CloverStatus status = decode(r);
            failed = malloc_recover();
            ck_assert_int_eq(status, failed ? CLOVER_SYSTEM : CLOVER_OK);
            if (failed) ck_assert_str_ne(r->err.text, "");
            ck_assert_int_eq(r->engine->live_snapshots, 0);
            decode_run_free(r);
        }
        ck_assert_int_gt(n, 5);                      /* at least logits, counts, p, distribution and ranked can fail */
    }
}
END_TEST

/* A block that no address space holds is refused before anything is asked of the engine. */
START_TEST(an_absurd_block_is_out_of_memory) {
    DecodeRun *r = decode_run_new(CLOVER_DENOISE, NULL, NULL);
    r->options.block = INT64_MAX;
    decode_run_go(r);
    ck_assert_int_eq(r->status, CLOVER_SYSTEM);
    ck_assert_int_eq(r->engine->n_calls, 0);
    decode_run_free(r);
}
END_TEST

Suite *decode_memory_suite(void) {
    Suite *s = suite_create("decode_memory");
    TCase *c = tcase_create("memory");
    tcase_add_loop_test(c, memory_may_run_out_at_any_allocation, CLOVER_AR, CLOVER_DRAFT + 1);
    tcase_add_test(c, an_absurd_block_is_out_of_memory);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(decode_memory_suite()); }
