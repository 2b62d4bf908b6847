/* test_decode_denoise.c - block diffusion over a scripted engine: what needs exact equality.
 * [DEN-1, DEN-2, DEN-3, DEN-4, DEN-5, DEN-6, DEN-7, CTL-7, CTL-8, SMP-6] */
#include <math.h>
#include <string.h>
#include "decode_run.h"
#include "../ref/sample.h"

#define ROWS(...) (const char *const[]){ __VA_ARGS__, NULL }

static DecodeRun *denoise(int64_t block, double threshold, int64_t budget, const char *const *preview) {
    DecodeRun *r = decode_run_new(CLOVER_DENOISE, NULL, preview);
    r->options.block = block;
    r->options.threshold = threshold;
    r->options.max_tokens = budget;
    return r;
}

/* A probability equal to the threshold does not fix: with >= row 0 would be fixed in pass 0, as 1. */
START_TEST(the_threshold_must_be_exceeded) {
    DecodeRun *r = denoise(2, 0.5, 2, ROWS("12", "3",  "4", "."));
    decode_run_go(r);
    assert_ok(r->status, r->err);
    assert_steps(r, "see 9 9\npass 0 @3: 0=1 1=3 fixed 1\n"
                    "see 9 3\npass 1 @3: 0=4 fixed 0\n"
                    "block @3: 4 3 emitted 2\n");
    ck_assert_double_eq(r->p[0], 0.5);
    ck_assert_double_eq(r->p[1], 1);
    assert_answer(r, "43");
    decode_run_free(r);
}
END_TEST

START_TEST(a_probability_just_above_the_threshold_fixes) {
    DecodeRun *r = denoise(2, nextafter(0.5, 0), 2, ROWS("12", "3"));
    decode_run_go(r);
    assert_steps(r, "see 9 9\npass 0 @3: 0=1 1=3 fixed 0 1\nblock @3: 1 3 emitted 2\n");
    decode_run_free(r);
}
END_TEST

/* Nothing above the threshold: one row a pass, the most probable, of equal ones the lowest row, of equal ids the lowest. */
START_TEST(the_most_probable_row_is_fixed_when_none_exceeds) {
    DecodeRun *r = denoise(4, 1, 4, ROWS("210", "54", "67", "0123",
                                         "210", ".", "67", "0123",
                                         "21", ".", ".", "56",
                                         ".", ".", ".", "3"));
    decode_run_go(r);
    assert_steps(r, "see 9 9 9 9\npass 0 @3: 0=0 1=4 2=6 3=0 fixed 1\n"
                    "see 9 4 9 9\npass 1 @3: 0=0 2=6 3=0 fixed 2\n"
                    "see 9 4 6 9\npass 2 @3: 0=1 3=5 fixed 0\n"
                    "see 1 4 6 9\npass 3 @3: 3=3 fixed 3\n"
                    "block @3: 1 4 6 3 emitted 4\n");
    ck_assert(close_to(r->p[0], 1.0 / 3, 1e-15, 0));
    ck_assert_double_eq(r->p[3], 0.25);
    decode_run_free(r);
}
END_TEST

/* A threshold of one can never be exceeded, not even by certainty. */
START_TEST(a_threshold_of_one_fixes_one_row_a_pass) {
    DecodeRun *r = denoise(3, 1, 3, ROWS("4", "5", "6",  ".", "5", "6",  ".", ".", "6"));
    decode_run_go(r);
    assert_answer(r, "456");
    ck_assert_int_eq(scripted_count(r->engine, CALL_PREVIEW), 3);
    decode_run_free(r);
}
END_TEST

/* Rows fixed earlier are given to the preview as they are and are not looked at again ("." is NaN). */
START_TEST(nothing_fixed_is_revised) {
    DecodeRun *r = denoise(3, 0.9, 3, ROWS("4", "12", "12",  ".", "5", "12",  ".", ".", "6"));
    decode_run_go(r);
    assert_ok(r->status, r->err);
    assert_answer(r, "456");
    assert_steps(r, "see 9 9 9\npass 0 @3: 0=4 1=1 2=1 fixed 0\n"
                    "see 4 9 9\npass 1 @3: 1=5 2=1 fixed 1\n"
                    "see 4 5 9\npass 2 @3: 2=6 fixed 2\n"
                    "block @3: 4 5 6 emitted 3\n");
    decode_run_free(r);
}
END_TEST

/* Blocks follow the prompt, whatever its length; each but the last is committed, causally and without logits. */
START_TEST(blocks_start_right_after_the_prompt) {
    DecodeRun *r = denoise(4, 0.9, 12, ROWS("4", "4", "5", "5",  "6", "6", "6", "6",  "0", "1", "2", "3"));
    r->n_prompt = 5;
    r->prompt[3] = r->prompt[4] = 0;
    decode_run_go(r);
    assert_answer(r, "445566660123");
    assert_calls(r, "c5 p4 c4 p4 c4 p4");
    assert_committed(r, "1230044556666");
    ck_assert_ptr_nonnull(strstr(r->steps, "pass 0 @5:"));
    ck_assert_ptr_nonnull(strstr(r->steps, "pass 0 @9:"));
    ck_assert_ptr_nonnull(strstr(r->steps, "block @13: 0 1 2 3 emitted 4"));
    decode_run_free(r);
}
END_TEST

START_TEST(a_one_token_prompt) {
    DecodeRun *r = denoise(2, 0.9, 2, ROWS("4", "8"));
    r->n_prompt = 1;
    decode_run_go(r);
    assert_answer(r, "48");
    assert_calls(r, "c1 p2");
    decode_run_free(r);
}
END_TEST

START_TEST(a_block_of_one_row) {
    DecodeRun *r = denoise(1, 0.9, 3, ROWS("45", "5", "8"));
    decode_run_go(r);
    assert_answer(r, "458");
    assert_calls(r, "c3 p1 c1 p1 c1 p1");
    decode_run_free(r);
}
END_TEST

/* The preview has the whole block also where the budget has less; the rest is not output. */
START_TEST(a_budget_smaller_than_the_block_cuts_the_output_only) {
    DecodeRun *r = denoise(4, 0.9, 6, ROWS("4", "4", "5", "5",  "6", "12", "1", "1",  ".", "0", ".", "."));
    decode_run_go(r);
    assert_answer(r, "445560");
    assert_calls(r, "c3 p4 c4 p4 p4");
    ck_assert_ptr_nonnull(strstr(r->steps, "block @7: 6 0 1 1 emitted 2\n"));
    decode_run_free(r);
}
END_TEST

/* The first stop id of a block, in position order, ends the answer and belongs to it, though it was not fixed first. */
START_TEST(a_stop_id_inside_a_block_ends_the_answer) {
    DecodeRun *r = denoise(4, 0.9, 100, ROWS("12", "8", "3", "8",  "4", ".", ".", "."));
    decode_run_go(r);
    assert_answer(r, "48");
    assert_steps(r, "see 9 9 9 9\npass 0 @3: 0=1 1=8 2=3 3=8 fixed 1 2 3\n"
                    "see 9 8 3 8\npass 1 @3: 0=4 fixed 0\n"
                    "block @3: 4 8 3 8 emitted 2\n");
    assert_calls(r, "c3 p4 p4");                     /* the last block is not committed */
    decode_run_free(r);
}
END_TEST

START_TEST(a_stop_id_behind_the_budget_does_not_count) {
    DecodeRun *r = denoise(4, 0.9, 2, ROWS("4", "5", "8", "6"));
    decode_run_go(r);
    assert_answer(r, "45");
    decode_run_free(r);
}
END_TEST

static void rows_with_mask_on_top(void *user, const int32_t *prefix, int64_t n_prefix, const int32_t *block, int64_t n, double *logits) {
    (void)user, (void)prefix, (void)n_prefix, (void)block;
    for (int64_t t = 0; t < n; t++) {
        digits_row("23", logits + t * DIGITS);
        logits[t * DIGITS + MASK] = 50;
    }
}

START_TEST(the_mask_is_never_chosen_and_has_no_share) {
    DecodeRun *r = denoise(2, 0.4, 2, NULL);
    decode_run_script(r, NULL, rows_with_mask_on_top, NULL);
    decode_run_go(r);
    assert_answer(r, "22");
    ck_assert_double_eq(r->p[0], 0.5);
    decode_run_free(r);
}
END_TEST

/* A prompt may hold the mask id; a row is masked because it is unresolved, not because of an id. */
START_TEST(the_mask_id_in_a_prompt_is_a_token_like_others) {
    DecodeRun *r = denoise(2, 0.9, 2, ROWS("4", "8"));
    r->prompt[0] = MASK;
    decode_run_go(r);
    assert_ok(r->status, r->err);
    assert_answer(r, "48");
    decode_run_free(r);
}
END_TEST

START_TEST(a_nan_in_a_masked_row_is_an_error) {
    DecodeRun *r = denoise(2, 0.9, 8, ROWS("4", "5",  "6", "."));
    decode_run_go(r);
    ck_assert_int_eq(r->status, CLOVER_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(r->err.text, "response position 4"));
    assert_answer(r, "45");                          /* the first block stands */
    decode_run_free(r);
}
END_TEST

/* ---- controls ----------------------------------------------------------------------------------------------------- */

/* Every row: id 1 at 1, id 2 at 0.6. */
static void one_before_two(void *user, const int32_t *prefix, int64_t n_prefix, const int32_t *block, int64_t n, double *logits) {
    (void)user, (void)prefix, (void)n_prefix, (void)block;
    for (int64_t t = 0; t < n; t++) {
        digits_row("", logits + t * DIGITS);
        logits[t * DIGITS + 1] = 1;
        logits[t * DIGITS + 2] = 0.6;
    }
}

/* A presence penalty of 0.5 counts the committed blocks: not the prompt, which holds 1 and 2, nor the block at work,
 * though it resolves over two passes. */
START_TEST(penalties_count_committed_blocks_only) {
    DecodeRun *r = denoise(2, 0.9, 6, NULL);
    decode_run_script(r, NULL, one_before_two, NULL);
    r->options.controls.presence_penalty = 0.5;
    decode_run_go(r);
    assert_answer(r, "112211");
    ck_assert_int_eq(scripted_count(r->engine, CALL_PREVIEW), 6);
    decode_run_free(r);
}
END_TEST

/* Every row: id 4 at 0, the stop and the think-end id at -0.5. */
static void stop_is_behind(void *user, const int32_t *prefix, int64_t n_prefix, const int32_t *block, int64_t n, double *logits) {
    (void)user, (void)prefix, (void)n_prefix, (void)block;
    for (int64_t t = 0; t < n; t++) {
        digits_row("4", logits + t * DIGITS);
        logits[t * DIGITS + STOP] = logits[t * DIGITS + THINK_END] = -0.5;
    }
}

/* A row's position is the committed response plus its row plus one: the step at 5 lifts from position 6 on, which is
 * row 1 of the second block. */
START_TEST(positions_count_the_committed_response_and_the_row) {
    DecodeRun *r = denoise(4, 0, 8, NULL);
    decode_run_script(r, NULL, stop_is_behind, NULL);
    r->options.controls.dllm_length_penalty = 1;
    r->options.controls.dllm_length_penalty_start = 5;
    r->options.controls.dllm_length_penalty_window = 1;
    decode_run_go(r);
    assert_answer(r, "444448");
    ck_assert_ptr_nonnull(strstr(r->steps, "block @7: 4 8 8 8 emitted 2\n"));
    decode_run_free(r);
}
END_TEST

/* The think-end id is lifted from position 2 on (a row a pass). Pass 0 fixes row 1, whose lift makes it the surest;
 * then it is in the block, so rows 0 and 2 take 4, and in the next block it is in the response. */
START_TEST(think_end_is_not_lifted_again_once_it_is_in_the_block) {
    DecodeRun *r = denoise(3, 1, 6, NULL);
    decode_run_script(r, NULL, stop_is_behind, NULL);
    r->options.controls.dllm_think_end_bias = 1000;
    r->options.controls.dllm_think_end_start = 1;
    r->options.controls.dllm_think_end_window = 1;
    decode_run_go(r);
    assert_answer(r, "474444");
    ck_assert(strncmp(r->steps, "pass 0 @3: 0=4 1=7 2=7 fixed 1\n", 31) == 0);
    decode_run_free(r);
}
END_TEST

/* ---- sampling ------------------------------------------------------------------------------------------------------ */

/* One draw a masked row a pass, rows ascending. Rows share two ids, so each has probability 1/2 and one row is fixed a
 * pass, the lowest: pass 0 draws 3 numbers, pass 1 two, pass 2 one. */
START_TEST(rows_are_drawn_in_ascending_order) {
    for (uint64_t seed = 0; seed < 20; seed++) {
        DecodeRun *r = denoise(3, 0.9, 3, ROWS("12", "34", "56",  ".", "34", "56",  ".", ".", "56"));
        r->options.temperature = 1;
        r->options.seed = seed;
        decode_run_go(r);
        Generator g;
        generator_seed(&g, seed);
        double u[6];
        for (int i = 0; i < 6; i++) u[i] = generator_uniform(&g);
        ck_assert_int_eq(r->out[0], u[0] < 0.5 ? 1 : 2);
        ck_assert_int_eq(r->out[1], u[3] < 0.5 ? 3 : 4);
        ck_assert_int_eq(r->out[2], u[5] < 0.5 ? 5 : 6);
        decode_run_free(r);
    }
}
END_TEST

/* At T = 100 both ids are nearly equal and either is drawn; the confidence stays the one at T = 1: 1/(1+e^-0.4) for
 * id 1, the rest for id 2. So a threshold of 0.5 fixes exactly the rows that drew 1. */
START_TEST(a_drawn_tokens_confidence_is_at_temperature_one) {
    int ones = 0, twos = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        DecodeRun *r = denoise(1, 0.5, 1, NULL);
        decode_run_script(r, NULL, one_before_two, NULL);
        r->options.temperature = 100;
        r->options.seed = seed;
        decode_run_go(r);
        ck_assert(r->out[0] == 1 || r->out[0] == 2);
        ones += r->out[0] == 1;
        twos += r->out[0] == 2;
        ck_assert(close_to(r->p[0], r->out[0] == 1 ? 0.598687660112452 : 0.401312339887548, 1e-14, 0));
        decode_run_free(r);
    }
    ck_assert(ones > 0 && twos > 0);
}
END_TEST

START_TEST(top_k_of_one_is_greedy) {
    DecodeRun *r = denoise(2, 0.5, 4, NULL);
    decode_run_script(r, NULL, one_before_two, NULL);
    r->options.temperature = 100;
    r->options.top_k = 1;
    decode_run_go(r);
    assert_answer(r, "1111");
    decode_run_free(r);
}
END_TEST

START_TEST(a_small_top_p_is_greedy) {
    DecodeRun *r = denoise(2, 0.5, 4, NULL);
    decode_run_script(r, NULL, one_before_two, NULL);
    r->options.temperature = 100;
    r->options.top_p = 0.1;
    decode_run_go(r);
    assert_answer(r, "1111");
    decode_run_free(r);
}
END_TEST

Suite *decode_denoise_suite(void) {
    Suite *s = suite_create("decode_denoise");
    TCase *c = tcase_create("blocks");
    tcase_add_test(c, the_threshold_must_be_exceeded);
    tcase_add_test(c, a_probability_just_above_the_threshold_fixes);
    tcase_add_test(c, the_most_probable_row_is_fixed_when_none_exceeds);
    tcase_add_test(c, a_threshold_of_one_fixes_one_row_a_pass);
    tcase_add_test(c, nothing_fixed_is_revised);
    tcase_add_test(c, blocks_start_right_after_the_prompt);
    tcase_add_test(c, a_one_token_prompt);
    tcase_add_test(c, a_block_of_one_row);
    tcase_add_test(c, a_budget_smaller_than_the_block_cuts_the_output_only);
    tcase_add_test(c, a_stop_id_inside_a_block_ends_the_answer);
    tcase_add_test(c, a_stop_id_behind_the_budget_does_not_count);
    tcase_add_test(c, the_mask_is_never_chosen_and_has_no_share);
    tcase_add_test(c, the_mask_id_in_a_prompt_is_a_token_like_others);
    tcase_add_test(c, a_nan_in_a_masked_row_is_an_error);
    suite_add_tcase(s, c);
    c = tcase_create("controls");
    tcase_add_test(c, penalties_count_committed_blocks_only);
    tcase_add_test(c, positions_count_the_committed_response_and_the_row);
    tcase_add_test(c, think_end_is_not_lifted_again_once_it_is_in_the_block);
    suite_add_tcase(s, c);
    c = tcase_create("sampling");
    tcase_add_test(c, rows_are_drawn_in_ascending_order);
    tcase_add_test(c, a_drawn_tokens_confidence_is_at_temperature_one);
    tcase_add_test(c, top_k_of_one_is_greedy);
    tcase_add_test(c, a_small_top_p_is_greedy);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(decode_denoise_suite()); }
