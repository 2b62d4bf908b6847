/* test_decode_draft.c - self-speculation over a scripted engine: what needs exact equality.
 * [DRA-1, DRA-2, DRA-3, DRA-4, DRA-5, DRA-6, DRA-7, DRA-8, DRA-9, CTL-7, CTL-8, SMP-6] */
#include <math.h>
#include <string.h>
#include "decode_run.h"
#include "../ref/sample.h"

#define ROWS(...) (const char *const[]){ __VA_ARGS__, NULL }

/* Exact acceptance unless a test sets ratio and delta. causal[0] gives the first token, causal[1 + j] is verify row j of
 * the first round; preview row 0 of a round (the pending token's) must not be looked at, so it is written ".". */
static DecodeRun *draft(int64_t block, int64_t budget, const char *const *causal, const char *const *preview) {
    DecodeRun *r = decode_run_new(CLOVER_DRAFT, causal, preview);
    r->options.block = block;
    r->options.max_tokens = budget;
    r->options.accept_exact = true;
    return r;
}

static void accept_by(DecodeRun *r, double ratio, double delta) {
    r->options.accept_exact = false;
    r->options.ratio = ratio;
    r->options.delta = delta;
}

/* ---- rounds --------------------------------------------------------------------------------------------------------- */

/* Budget 5, block 4: the first token 0; a round of 4 (still wanted: 4) drafts 1 2 3, of which the verify accepts 1 and
 * 2, rejects 3 for 5 (the bonus); then one more is wanted: a round of one candidate. */
START_TEST(a_round_accepts_up_to_the_first_rejection) {
    DecodeRun *r = draft(4, 5, ROWS("0", "1", "2", "5", "6", "7"), ROWS(".", "1", "2", "3"));
    decode_run_go(r);
    assert_ok(r->status, r->err);
    assert_answer(r, "01256");
    assert_steps(r, "first 0\n"
                    "see 0 9 9 9\nround @3: 0 1 2 3 judged 1+ 2+ 3- accepted 2 bonus 5\n"
                    "round @6: 5 judged accepted 0 bonus 6\n");
    assert_calls(r, "c2 c1+1 p4 s c4+4 r3 c3 c1+1");
    assert_committed(r, "1230125");                  /* the last bonus is not committed */
    decode_run_free(r);
}
END_TEST

/* Everything accepted: the bonus comes from the last row, the state is right as it is and is not restored. */
START_TEST(a_round_that_accepts_all_is_not_rewound) {
    DecodeRun *r = draft(4, 5, ROWS("0", "1", "2", "3", "4", "5"), ROWS(".", "1", "2", "3"));
    decode_run_go(r);
    assert_answer(r, "01234");
    assert_steps(r, "first 0\nsee 0 9 9 9\nround @3: 0 1 2 3 judged 1+ 2+ 3+ accepted 3 bonus 4\n");
    assert_calls(r, "c2 c1+1 p4 s c4+4");
    assert_committed(r, "1230123");
    decode_run_free(r);
}
END_TEST

/* The state after a rejection keeps pending and accepted only: a causal row that read the rejected ones would differ. */
START_TEST(every_round_rewinds_to_the_accepted) {
    DecodeRun *r = draft(4, 8, ROWS("0", "1", "2", "3", "4", "5", "6", "7"),
                         ROWS(".", "6", "6", "6",  ".", "2", "6", "6",  ".", "4", "5", "6"));
    decode_run_go(r);
    assert_answer(r, "01234567");
    assert_steps(r, "first 0\n"
                    "see 0 9 9 9\nround @3: 0 6 6 6 judged 6- accepted 0 bonus 1\n"
                    "see 1 9 9 9\nround @4: 1 2 6 6 judged 2+ 6- accepted 1 bonus 3\n"
                    "see 3 9 9 9\nround @6: 3 4 5 6 judged 4+ 5+ 6+ accepted 3 bonus 7\n");
    assert_calls(r, "c2 c1+1 p4 s c4+4 r3 c1 p4 s c4+4 r4 c2 p4 s c4+4");
    assert_committed(r, "1230123456");
    decode_run_free(r);
}
END_TEST

START_TEST(a_one_token_prompt_has_nothing_to_commit_before_its_verify) {
    DecodeRun *r = draft(2, 3, ROWS("0", "1", "2"), ROWS(".", "1"));
    r->n_prompt = 1;
    decode_run_go(r);
    assert_answer(r, "012");
    assert_calls(r, "c1+1 p2 s c2+2");
    assert_committed(r, "101");
    decode_run_free(r);
}
END_TEST

START_TEST(a_budget_of_one_has_no_round) {
    DecodeRun *r = draft(4, 1, ROWS("4"), NULL);
    decode_run_go(r);
    assert_answer(r, "4");
    assert_calls(r, "c2 c1+1");
    decode_run_free(r);
}
END_TEST

/* ---- stops ---------------------------------------------------------------------------------------------------------- */

START_TEST(a_first_token_that_stops_ends_it) {
    DecodeRun *r = draft(4, 9, ROWS("8"), NULL);
    decode_run_go(r);
    assert_answer(r, "8");
    assert_calls(r, "c2 c1+1");
    decode_run_free(r);
}
END_TEST

/* Judging goes on past an accepted stop id, a bonus is chosen, the state keeps all; only the answer is cut. */
START_TEST(an_accepted_stop_id_cuts_the_answer_not_the_round) {
    DecodeRun *r = draft(4, 9, ROWS("0", "1", "8", "2", "3"), ROWS(".", "1", "8", "2"));
    decode_run_go(r);
    assert_answer(r, "018");
    assert_steps(r, "first 0\nsee 0 9 9 9\nround @3: 0 1 8 2 judged 1+ 8+ 2+ accepted 3 bonus 3\n");
    assert_committed(r, "1230182");
    decode_run_free(r);
}
END_TEST

START_TEST(a_rejected_stop_id_does_not_stop) {
    DecodeRun *r = draft(2, 3, ROWS("0", "1", "2"), ROWS(".", "8"));
    decode_run_go(r);
    assert_answer(r, "012");
    decode_run_free(r);
}
END_TEST

START_TEST(a_bonus_that_stops_ends_it) {
    DecodeRun *r = draft(4, 9, ROWS("0", "1", "8", "2", "3"), ROWS(".", "1", "4", "2"));
    decode_run_go(r);
    assert_answer(r, "018");
    assert_calls(r, "c2 c1+1 p4 s c4+4 r3 c2");
    decode_run_free(r);
}
END_TEST

/* ---- the width ------------------------------------------------------------------------------------------------------- */

/* Always drafts and verifies 4, so every round accepts all of its width and gives as many tokens. */
static void always_four(void *user, const int32_t *prefix, int64_t n_prefix, double *logits) {
    (void)user, (void)prefix, (void)n_prefix;
    digits_row("4", logits);
}
static void always_four_rows(void *user, const int32_t *prefix, int64_t n_prefix, const int32_t *block, int64_t n, double *logits) {
    (void)user, (void)prefix, (void)n_prefix, (void)block;
    for (int64_t t = 0; t < n; t++) digits_row("4", logits + t * DIGITS);
}

static void assert_widths(int64_t block, int64_t width, int64_t budget, const char *calls) {
    DecodeRun *r = draft(block, budget, NULL, NULL);
    decode_run_script(r, always_four, always_four_rows, NULL);
    r->options.width = width;
    decode_run_go(r);
    assert_ok(r->status, r->err);
    ck_assert_int_eq(r->n_out, budget);
    assert_calls(r, calls);
    decode_run_free(r);
}

/* A token is output before the first round, so budget - 1 are wanted then. */
START_TEST(the_width_is_halved_while_it_exceeds_what_is_wanted) {
    assert_widths(8, 8, 9, "c2 c1+1 p8 s c8+8");
    assert_widths(8, 8, 8, "c2 c1+1 p4 s c4+4 p2 s c2+2 c1+1");              /* 7 wanted: 4, 2, 1 */
    assert_widths(8, 8, 17, "c2 c1+1 p8 s c8+8 p8 s c8+8");
    assert_widths(8, 8, 14, "c2 c1+1 p8 s c8+8 p4 s c4+4 c1+1");             /* 13 wanted: 8, 4, 1 */
    assert_widths(6, 6, 6, "c2 c1+1 p3 s c3+3 c1+1 c1+1");                   /* 5 wanted: 3; 2: 3 halves to 1 */
    assert_widths(8, 1, 3, "c2 c1+1 c1+1 c1+1");                             /* no preview, no snapshot */
}
END_TEST

START_TEST(the_default_width_is_sixteen_or_the_block) {
    assert_widths(32, -1, 17, "c2 c1+1 p16 s c16+16");
    assert_widths(24, -1, 17, "c2 c1+1 p16 s c16+16");                       /* only a width given must divide the block */
    assert_widths(5, -1, 6, "c2 c1+1 p5 s c5+5");
    assert_widths(32, 32, 33, "c2 c1+1 p32 s c32+32");
    assert_widths(24, 12, 13, "c2 c1+1 p12 s c12+12");
}
END_TEST

/* ---- judging --------------------------------------------------------------------------------------------------------- */

/* Verify row 0 shares 1 and 2, so p = 1/2 and H = ln 2 for the drafted 2. delta is out of the way. */
static void assert_judged(double ratio, double delta, const char *row, const char *drafted, const char *step) {
    DecodeRun *r = draft(2, 3, ROWS("0", row, "5"), ROWS(".", drafted));
    accept_by(r, ratio, delta);
    decode_run_go(r);
    assert_ok(r->status, r->err);
    ck_assert_msg(strstr(r->steps, step) != NULL, "%s not in:\n%s", step, r->steps);
    decode_run_free(r);
}

START_TEST(a_probability_equal_to_the_bound_is_accepted) {
    assert_judged(0.5, 1e9, "12", "2", "judged 2+ accepted 1 bonus 5");
    assert_judged(nextafter(0.5, 1), 1e9, "12", "2", "judged 2- accepted 0 bonus 1");
}
END_TEST

/* e^-H = 1/2 for two equal ids, 1/4 for four: the bound is delta times that where that is below ratio. */
START_TEST(the_bound_falls_with_the_entropy) {
    assert_judged(10, 0.999999, "12", "2", "judged 2+");
    assert_judged(10, 1.000001, "12", "2", "judged 2-");
    assert_judged(10, 0.999999, "0123", "2", "judged 2+");
    assert_judged(10, 1.000001, "0123", "2", "judged 2-");
    assert_judged(0.24, 1.000001, "0123", "2", "judged 2+");                 /* the smaller of the two bounds holds */
    assert_judged(0.26, 0.999999, "0123", "2", "judged 2+");
    assert_judged(0.9, 0.6, "2", "2", "judged 2+");                          /* the defaults: p = 1 against 0.6 */
}
END_TEST

START_TEST(what_is_judged_is_told_with_its_entropy) {
    DecodeRun *r = draft(2, 3, ROWS("0", "0123", "5"), ROWS(".", "2"));
    accept_by(r, 0.2, 1);
    decode_run_go(r);
    ck_assert_int_eq(r->n_p, 1);
    ck_assert_double_eq(r->p[0], 0.25);
    ck_assert(close_to(r->entropy[0], 1.38629436111989061883, 1e-15, 0));
    decode_run_free(r);
}
END_TEST

/* With ratio 0 the bound is 0, but an impossible candidate is still rejected. */
START_TEST(a_candidate_of_probability_zero_is_rejected) {
    assert_judged(0, 0, "12", "2", "judged 2+");
    assert_judged(0, 0, "12", "3", "judged 3- accepted 0 bonus 1");
}
END_TEST

/* Exact mode: of equal ids only the lowest is the argmax. */
START_TEST(exact_mode_accepts_the_argmax_only) {
    DecodeRun *r = draft(2, 3, ROWS("0", "12", "5"), ROWS(".", "2"));
    decode_run_go(r);
    ck_assert_ptr_nonnull(strstr(r->steps, "judged 2- accepted 0 bonus 1"));
    decode_run_free(r);
    r = draft(2, 3, ROWS("0", "12", "5"), ROWS(".", "1"));
    decode_run_go(r);
    ck_assert_ptr_nonnull(strstr(r->steps, "judged 1+ accepted 1 bonus 5"));
    decode_run_free(r);
}
END_TEST

static void mask_on_top(void *user, const int32_t *prefix, int64_t n_prefix, double *logits) {
    always_four(user, prefix, n_prefix, logits);
    logits[MASK] = 50;
}
static void mask_on_top_rows(void *user, const int32_t *prefix, int64_t n_prefix, const int32_t *block, int64_t n, double *logits) {
    always_four_rows(user, prefix, n_prefix, block, n, logits);
    for (int64_t t = 0; t < n; t++) logits[t * DIGITS + MASK] = 50;
}

START_TEST(the_mask_is_never_first_drafted_nor_bonus) {
    DecodeRun *r = draft(4, 6, NULL, NULL);
    decode_run_script(r, mask_on_top, mask_on_top_rows, NULL);
    accept_by(r, 0.9, 0.6);
    decode_run_go(r);
    assert_answer(r, "444444");
    ck_assert_double_eq(r->p[0], 1);
    decode_run_free(r);
}
END_TEST

/* ---- controls --------------------------------------------------------------------------------------------------------- */

static void one_before_two(void *user, const int32_t *prefix, int64_t n_prefix, double *logits) {
    (void)user, (void)prefix, (void)n_prefix;
    digits_row("", logits);
    logits[1] = 1;
    logits[2] = 0.6;
}
static void one_before_two_rows(void *user, const int32_t *prefix, int64_t n_prefix, const int32_t *block, int64_t n, double *logits) {
    (void)block;
    for (int64_t t = 0; t < n; t++) one_before_two(user, prefix, n_prefix, logits + t * DIGITS);
}

/* Presence 0.5 turns the order of 1 and 2 once. First: 1 (the prompt's 1 and 2 do not count). Round 1 counts the pending
 * 1 and is frozen: drafts, verdicts and bonus are 2. Round 2 counts both, so 1 leads again. */
START_TEST(counts_hold_the_pending_token_and_are_frozen_in_a_round) {
    DecodeRun *r = draft(4, 9, NULL, NULL);
    decode_run_script(r, one_before_two, one_before_two_rows, NULL);
    r->options.controls.presence_penalty = 0.5;
    decode_run_go(r);
    assert_answer(r, "122221111");
    decode_run_free(r);
}
END_TEST

static void stop_is_behind(void *user, const int32_t *prefix, int64_t n_prefix, double *logits) {
    (void)user, (void)prefix, (void)n_prefix;
    digits_row("4", logits);
    logits[STOP] = logits[THINK_END] = -0.5;
}
static void stop_is_behind_rows(void *user, const int32_t *prefix, int64_t n_prefix, const int32_t *block, int64_t n, double *logits) {
    (void)block;
    for (int64_t t = 0; t < n; t++) stop_is_behind(user, prefix, n_prefix, logits + t * DIGITS);
}

static DecodeRun *length_step(int64_t start) {
    DecodeRun *r = draft(4, 9, NULL, NULL);
    decode_run_script(r, stop_is_behind, stop_is_behind_rows, NULL);
    r->options.controls.dllm_length_penalty = 1;
    r->options.controls.dllm_length_penalty_start = start;
    r->options.controls.dllm_length_penalty_window = 1;
    decode_run_go(r);
    return r;
}

/* The step lifts the stop id from position start + 1 on. The response is [first] in round 1, so draft row r stands at
 * 1 + r and verify row j at j + 2; in round 2, after five tokens, at 5 + r and j + 6. Each start meets its stop at
 * position start + 1, in draft and verify alike. */
START_TEST(positions_of_drafts_and_verdicts) {
    static const char *const steps[] = {
        [0] = "first 8\n",
        [1] = "first 4\nround @3: 4 8 8 8 judged 8+ 8+ 8+ accepted 3 bonus 8\n",
        [2] = "first 4\nround @3: 4 4 8 8 judged 4+ 8+ 8+ accepted 3 bonus 8\n",
        [3] = "first 4\nround @3: 4 4 4 8 judged 4+ 4+ 8+ accepted 3 bonus 8\n",
        [4] = "first 4\nround @3: 4 4 4 4 judged 4+ 4+ 4+ accepted 3 bonus 8\n",
        [5] = "first 4\nround @3: 4 4 4 4 judged 4+ 4+ 4+ accepted 3 bonus 4\n"
              "round @7: 4 8 8 8 judged 8+ 8+ 8+ accepted 3 bonus 8\n",
        [6] = "first 4\nround @3: 4 4 4 4 judged 4+ 4+ 4+ accepted 3 bonus 4\n"
              "round @7: 4 4 8 8 judged 4+ 8+ 8+ accepted 3 bonus 8\n" };
    for (int start = 0; start <= 6; start++) {
        DecodeRun *r = length_step(start);
        assert_steps(r, steps[start]);
        ck_assert_int_eq(r->n_out, start + 1);
        ck_assert_int_eq(r->out[start], STOP);
        decode_run_free(r);
    }
}
END_TEST

/* The block is not looked at for the think-end id: all rows of a round take it; the next round knows it. */
START_TEST(think_end_is_lifted_through_a_round) {
    DecodeRun *r = draft(4, 9, NULL, NULL);
    decode_run_script(r, stop_is_behind, stop_is_behind_rows, NULL);
    r->options.controls.dllm_think_end_bias = 1;
    r->options.controls.dllm_think_end_start = 1;
    r->options.controls.dllm_think_end_window = 1;
    decode_run_go(r);
    assert_answer(r, "477774444");
    decode_run_free(r);
}
END_TEST

/* ---- sampling --------------------------------------------------------------------------------------------------------- */

/* Drafts stay greedy (1 of "12"); the first token and each bonus are drawn, one number each. */
START_TEST(only_the_first_and_the_bonus_are_drawn) {
    bool drew_high = false;
    for (uint64_t seed = 0; seed < 20; seed++) {
        DecodeRun *r = draft(2, 5, ROWS("34", "12", "56", "12", "56"), ROWS(".", "12",  ".", "12"));
        r->options.temperature = 1;
        r->options.seed = seed;
        decode_run_go(r);
        Generator g;
        generator_seed(&g, seed);
        ck_assert_int_eq(r->out[0], generator_uniform(&g) < 0.5 ? 3 : 4);
        ck_assert_int_eq(r->out[1], 1);
        ck_assert_int_eq(r->out[2], generator_uniform(&g) < 0.5 ? 5 : 6);
        ck_assert_int_eq(r->out[3], 1);
        ck_assert_int_eq(r->out[4], generator_uniform(&g) < 0.5 ? 5 : 6);
        drew_high |= r->out[0] == 4;
        decode_run_free(r);
    }
    ck_assert(drew_high);
}
END_TEST

/* Verdicts stay at T = 1: p of id 2 beside id 1 is 0.401 there and nearly 1/2 at T = 100. */
START_TEST(verdicts_are_at_temperature_one) {
    DecodeRun *r = draft(2, 3, NULL, ROWS(".", "2"));
    accept_by(r, 0.45, 1e9);
    PreviewScript *table = r->engine->preview;
    decode_run_script(r, one_before_two, table, r);
    r->options.temperature = 100;
    decode_run_go(r);
    ck_assert_ptr_nonnull(strstr(r->steps, "judged 2-"));
    ck_assert(close_to(r->p[0], 0.401312339887548, 1e-14, 0));
    decode_run_free(r);
}
END_TEST

/* ---- exact draft-self is autoregression --------------------------------------------------------------------------------- */

enum { HASHED_VOCAB = 40, HASHED_STOP = 38, HASHED_MASK = 39 };

/* Logits that depend on every id of the prefix and its order, and on nothing else. */
static void hashed_row(void *user, const int32_t *prefix, int64_t n_prefix, double *logits) {
    uint64_t hash = *(const uint64_t *)user;
    for (int64_t i = 0; i < n_prefix; i++) {
        hash ^= (uint64_t)prefix[i];
        hash = splitmix64_next(&hash);
    }
    for (int i = 0; i < HASHED_VOCAB; i++) logits[i] = (double)(splitmix64_next(&hash) >> 56) / 16;      /* coarse: ties happen */
}

/* A drafter that is often right: it continues the true chain, and at some rows answers something else. */
static void hashed_preview(void *user, const int32_t *prefix, int64_t n_prefix, const int32_t *block, int64_t n, double *logits) {
    int32_t chain[256];
    memcpy(chain, prefix, (size_t)n_prefix * sizeof *chain);
    chain[n_prefix] = block[0];
    uint64_t luck = *(const uint64_t *)user + (uint64_t)n_prefix;
    for (int i = 0; i < HASHED_VOCAB; i++) logits[i] = NAN;
    for (int64_t t = 1; t < n; t++) {
        double *row = logits + t * HASHED_VOCAB;
        hashed_row(user, chain, n_prefix + t, row);
        if (splitmix64_next(&luck) % 8 == 0) row[splitmix64_next(&luck) % HASHED_VOCAB] += 100;
        double kept = row[HASHED_MASK];
        row[HASHED_MASK] = -INFINITY;
        int32_t best = 0;
        for (int32_t i = 1; i < HASHED_VOCAB; i++) if (row[i] > row[best]) best = i;
        row[HASHED_MASK] = kept;
        chain[n_prefix + t] = best;
    }
}

static void decode_hashed(uint64_t seed, CloverMode mode, int64_t block, int64_t width, int32_t *out, int64_t *n_out, int64_t *commits) {
    ScriptedEngine *s = scripted_new(HASHED_VOCAB, hashed_row, hashed_preview, &seed);
    CloverEngine engine = scripted_engine(s);
    CloverDecodeOptions o = { .mode = mode, .max_tokens = 100, .mask_id = HASHED_MASK, .stops = { HASHED_STOP }, .n_stops = 1,
                              .block = block, .width = width, .accept_exact = true, .top_p = 1,
                              .controls = { .repetition_penalty = 1, .dllm_think_end_token_id = -1 } };
    int32_t prompt[7];
    uint64_t draw = seed;
    int64_t n_prompt = 1 + (int64_t)(seed % 7);
    for (int64_t i = 0; i < n_prompt; i++) prompt[i] = (int32_t)(splitmix64_next(&draw) % HASHED_VOCAB);
    CloverError err;
    assert_ok(clover_decode(&engine, &o, prompt, n_prompt, NULL, NULL, out, n_out, &err), err);
    ck_assert_int_eq(s->live_snapshots, 0);
    *commits = scripted_count(s, CALL_COMMIT);
    free(s);
}

START_TEST(exact_draft_with_neutral_controls_is_ar) {
    int64_t fewer = 0, cases = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        int32_t ar[100], drafted[100];
        int64_t n_ar, n_drafted, ar_commits, draft_commits;
        decode_hashed(seed, CLOVER_AR, 32, -1, ar, &n_ar, &ar_commits);
        static const int64_t shapes[][2] = {         /* block, width */
            { 32, -1 }, { 32, 1 }, { 32, 2 }, { 32, 8 }, { 32, 32 }, { 7, -1 }, { 12, 3 } };
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            decode_hashed(seed, CLOVER_DRAFT, shapes[k][0], shapes[k][1], drafted, &n_drafted, &draft_commits);
            ck_assert_int_eq(n_drafted, n_ar);
            ck_assert_mem_eq(drafted, ar, (size_t)n_ar * sizeof *ar);
            cases++;
            fewer += draft_commits < ar_commits;
        }
    }
    ck_assert_int_gt(fewer, cases / 2);              /* the drafts are accepted often enough to mean something */
}
END_TEST

Suite *decode_draft_suite(void) {
    Suite *s = suite_create("decode_draft");
    TCase *c = tcase_create("rounds");
    tcase_add_test(c, a_round_accepts_up_to_the_first_rejection);
    tcase_add_test(c, a_round_that_accepts_all_is_not_rewound);
    tcase_add_test(c, every_round_rewinds_to_the_accepted);
    tcase_add_test(c, a_one_token_prompt_has_nothing_to_commit_before_its_verify);
    tcase_add_test(c, a_budget_of_one_has_no_round);
    suite_add_tcase(s, c);
    c = tcase_create("stops");
    tcase_add_test(c, a_first_token_that_stops_ends_it);
    tcase_add_test(c, an_accepted_stop_id_cuts_the_answer_not_the_round);
    tcase_add_test(c, a_rejected_stop_id_does_not_stop);
    tcase_add_test(c, a_bonus_that_stops_ends_it);
    suite_add_tcase(s, c);
    c = tcase_create("width");
    tcase_add_test(c, the_width_is_halved_while_it_exceeds_what_is_wanted);
    tcase_add_test(c, the_default_width_is_sixteen_or_the_block);
    suite_add_tcase(s, c);
    c = tcase_create("judging");
    tcase_add_test(c, a_probability_equal_to_the_bound_is_accepted);
    tcase_add_test(c, the_bound_falls_with_the_entropy);
    tcase_add_test(c, what_is_judged_is_told_with_its_entropy);
    tcase_add_test(c, a_candidate_of_probability_zero_is_rejected);
    tcase_add_test(c, exact_mode_accepts_the_argmax_only);
    tcase_add_test(c, the_mask_is_never_first_drafted_nor_bonus);
    suite_add_tcase(s, c);
    c = tcase_create("controls");
    tcase_add_test(c, counts_hold_the_pending_token_and_are_frozen_in_a_round);
    tcase_add_test(c, positions_of_drafts_and_verdicts);
    tcase_add_test(c, think_end_is_lifted_through_a_round);
    suite_add_tcase(s, c);
    c = tcase_create("sampling");
    tcase_add_test(c, only_the_first_and_the_bonus_are_drawn);
    tcase_add_test(c, verdicts_are_at_temperature_one);
    suite_add_tcase(s, c);
    c = tcase_create("equivalence");
    tcase_add_test(c, exact_draft_with_neutral_controls_is_ar);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(decode_draft_suite()); }
