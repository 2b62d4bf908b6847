/* test_hypotheses_decode.c - every decoding fault over a scripted engine: the first decision that it makes wrong, calculated by hand,
 * beside the right one. [HYP-2, AR-2, CTL-1, CTL-7, DEN-1, DEN-3, DEN-4, DEN-5, DEN-6, DEN-7, DRA-5, DRA-7] */
#include <math.h>
#include <string.h>
#include "decode_run.h"
#include "../tools/hypotheses/hypothesis.h"

#define ROWS(...) (const char *const[]){ __VA_ARGS__, NULL }

typedef struct Tried { DecodeRun *run; DecodeRules rules; } Tried;

/* A run that makes the mistake `name`; NULL: none. Block and budget of one size unless the test changes it. */
static Tried *try(const char *name, CloverMode mode, int64_t block, int64_t budget, const char *const *causal, const char *const *preview) {
    Tried *t = calloc(1, sizeof *t);
    ck_assert_ptr_nonnull(t);
    t->run = decode_run_new(mode, causal, preview);
    t->run->options.block = block;
    t->run->options.max_tokens = budget;
    t->rules = decode_rules;
    if (name) {
        const Hypothesis *h = hypothesis_named(name);
        ck_assert_msg(h && h->kind == HYPOTHESIS_DECODING && h->decoding, "no decoding fault %s", name);
        h->decoding(&t->rules);
    }
    t->run->rules = &t->rules;
    return t;
}

static void go(Tried *t) {
    decode_run_go(t->run);
    assert_ok(t->run->status, t->run->err);
}

static void done(Tried *t) {
    decode_run_free(t->run);
    free(t);
}

/* Goes, compares and frees. calls: NULL, any. */
static void expect(Tried *t, const char *steps, const char *answer, const char *calls) {
    go(t);
    assert_steps(t->run, steps);
    assert_answer(t->run, answer);
    if (calls) assert_calls(t->run, calls);
    done(t);
}

/* ---- denoising ------------------------------------------------------------------------------------------------------ */

/* Row 0 has probability 1/2 at threshold 1/2. */
START_TEST(threshold_inclusive) {
    Tried *right = try(NULL, CLOVER_DENOISE, 2, 2, NULL, ROWS("12", "4", "1", ".")), *wrong = try("threshold_inclusive", CLOVER_DENOISE, 2, 2, NULL, ROWS("12", "4"));
    right->run->options.threshold = wrong->run->options.threshold = 0.5;
    expect(right, "see 9 9\npass 0 @3: 0=1 1=4 fixed 1\nsee 9 4\npass 1 @3: 0=1 fixed 0\nblock @3: 1 4 emitted 2\n", "14", NULL);
    expect(wrong, "see 9 9\npass 0 @3: 0=1 1=4 fixed 0 1\nblock @3: 1 4 emitted 2\n", "14", NULL);
}
END_TEST

START_TEST(denoise_fixes_one) {
    expect(try(NULL, CLOVER_DENOISE, 2, 2, NULL, ROWS("1", "4")), "see 9 9\npass 0 @3: 0=1 1=4 fixed 0 1\nblock @3: 1 4 emitted 2\n", "14", NULL);
    expect(try("denoise_fixes_one", CLOVER_DENOISE, 2, 2, NULL, ROWS("1", "4", ".", "4")),
           "see 9 9\npass 0 @3: 0=1 1=4 fixed 0\nsee 1 9\npass 1 @3: 1=4 fixed 1\nblock @3: 1 4 emitted 2\n", "14", NULL);
}
END_TEST

/* Both rows have probability 1/2, below the threshold. */
START_TEST(tie_takes_last_row) {
    expect(try(NULL, CLOVER_DENOISE, 2, 2, NULL, ROWS("12", "34", ".", "3")),
           "see 9 9\npass 0 @3: 0=1 1=3 fixed 0\nsee 1 9\npass 1 @3: 1=3 fixed 1\nblock @3: 1 3 emitted 2\n", "13", NULL);
    expect(try("tie_takes_last_row", CLOVER_DENOISE, 2, 2, NULL, ROWS("12", "34", "1", ".")),
           "see 9 9\npass 0 @3: 0=1 1=3 fixed 1\nsee 9 3\npass 1 @3: 0=1 fixed 0\nblock @3: 1 3 emitted 2\n", "13", NULL);
}
END_TEST

/* In pass 1 row 0's token has probability 0; two rows are fixed, so one may be masked again. */
START_TEST(denoise_remasks) {
    Tried *right = try(NULL, CLOVER_DENOISE, 4, 4, NULL, ROWS("1", "12", "12", "12", ".", "4", "5", "12", ".", ".", ".", "5"));
    Tried *wrong = try("denoise_remasks", CLOVER_DENOISE, 4, 4, NULL, ROWS("1", "12", "12", "12", "23", "4", "5", "12", "6", "4", "5", "5"));
    right->run->options.threshold = wrong->run->options.threshold = 0.6;
    expect(right, "see 9 9 9 9\npass 0 @3: 0=1 1=1 2=1 3=1 fixed 0\nsee 1 9 9 9\npass 1 @3: 1=4 2=5 3=1 fixed 1 2\n"
                  "see 1 4 5 9\npass 2 @3: 3=5 fixed 3\nblock @3: 1 4 5 5 emitted 4\n", "1455", NULL);
    expect(wrong, "see 9 9 9 9\npass 0 @3: 0=1 1=1 2=1 3=1 fixed 0\nsee 1 9 9 9\npass 1 @3: 1=4 2=5 3=1 fixed 1 2\n"
                  "see 9 4 5 9\npass 2 @3: 0=6 3=5 fixed 0 3\nblock @3: 6 4 5 5 emitted 4\n", "6455", NULL);
}
END_TEST

/* However the rows change their mind, fewer masks are left after every pass: the block ends within as many passes as it has rows. */
START_TEST(remasking_comes_to_an_end) {
    const char *rows[64 * 8 + 1];
    for (int i = 0; i < 64 * 8; i++) rows[i] = (i / 8 + i) % 2 ? "12345" : i % 3 ? "12" : "34";
    rows[64 * 8] = NULL;
    Tried *t = try("denoise_remasks", CLOVER_DENOISE, 8, 8, NULL, rows);
    t->run->options.threshold = 0.3;
    go(t);
    ck_assert_int_eq(t->run->n_out, 8);
    ck_assert_int_le(scripted_count(t->run->engine, CALL_PREVIEW), 8);
    done(t);
}
END_TEST

/* The prompt has 3 ids, a block 4 rows: the next multiple is one row away. */
START_TEST(denoise_aligned_blocks) {
    expect(try(NULL, CLOVER_DENOISE, 4, 4, NULL, ROWS("1", "2", "3", "4")), "see 9 9 9 9\npass 0 @3: 0=1 1=2 2=3 3=4 fixed 0 1 2 3\nblock @3: 1 2 3 4 emitted 4\n", "1234", NULL);
    expect(try("denoise_aligned_blocks", CLOVER_DENOISE, 4, 4, NULL, ROWS("1", "2", "3", "4", "5")),
           "see 9\npass 0 @3: 0=1 fixed 0\nblock @3: 1 emitted 1\n"
           "see 9 9 9 9\npass 0 @4: 0=2 1=3 2=4 3=5 fixed 0 1 2 3\nblock @4: 2 3 4 5 emitted 3\n", "1234", "c3 p1 c1 p4");
}
END_TEST

START_TEST(block_cut_to_budget) {
    expect(try(NULL, CLOVER_DENOISE, 4, 2, NULL, ROWS("1", "2", "3", "4")), "see 9 9 9 9\npass 0 @3: 0=1 1=2 2=3 3=4 fixed 0 1 2 3\nblock @3: 1 2 3 4 emitted 2\n", "12", NULL);
    expect(try("block_cut_to_budget", CLOVER_DENOISE, 4, 2, NULL, ROWS("1", "2")), "see 9 9\npass 0 @3: 0=1 1=2 fixed 0 1\nblock @3: 1 2 emitted 2\n", "12", NULL);
    expect(try("block_cut_to_budget", CLOVER_DENOISE, 2, 3, NULL, ROWS("1", "2", "3")), "see 9 9\npass 0 @3: 0=1 1=2 fixed 0 1\nblock @3: 1 2 emitted 2\n"
           "see 9\npass 0 @5: 0=3 fixed 0\nblock @5: 3 emitted 1\n", "123", NULL);
}
END_TEST

START_TEST(commit_skipped) {
    expect(try(NULL, CLOVER_DENOISE, 2, 4, NULL, ROWS("1", "2", "3", "4")), "see 9 9\npass 0 @3: 0=1 1=2 fixed 0 1\nblock @3: 1 2 emitted 2\n"
           "see 9 9\npass 0 @5: 0=3 1=4 fixed 0 1\nblock @5: 3 4 emitted 2\n", "1234", "c3 p2 c2 p2");
    expect(try("commit_skipped", CLOVER_DENOISE, 2, 4, NULL, ROWS("1", "2", "3", "4")), "see 9 9\npass 0 @3: 0=1 1=2 fixed 0 1\nblock @3: 1 2 emitted 2\n"
           "see 9 9\npass 0 @3: 0=3 1=4 fixed 0 1\nblock @3: 3 4 emitted 2\n", "1234", "c3 p2 p2");
}
END_TEST

/* ---- draft-self ----------------------------------------------------------------------------------------------------- */

/* The verify rejects its third candidate: 2 accepted, so 3 rows stay; the wrong engine keeps all 4. */
START_TEST(draft_state_not_rewound) {
    const char *const *causal = ROWS("0", "1", "2", "5", "6", "7"), *const *preview = ROWS(".", "1", "2", "3");
    Tried *right = try(NULL, CLOVER_DRAFT, 4, 5, causal, preview), *wrong = try("draft_state_not_rewound", CLOVER_DRAFT, 4, 5, causal, preview);
    right->run->options.accept_exact = wrong->run->options.accept_exact = true;
    go(wrong);
    assert_committed(wrong->run, "12301235");
    assert_steps(wrong->run, "first 0\nsee 0 9 9 9\nround @3: 0 1 2 3 judged 1+ 2+ 3- accepted 2 bonus 5\nround @7: 5 judged accepted 0 bonus 7\n");
    assert_calls(wrong->run, "c2 c1+1 p4 s c4+4 c1+1");
    done(wrong);
    expect(right, "first 0\nsee 0 9 9 9\nround @3: 0 1 2 3 judged 1+ 2+ 3- accepted 2 bonus 5\nround @6: 5 judged accepted 0 bonus 6\n", "01256", "c2 c1+1 p4 s c4+4 r3 c3 c1+1");
}
END_TEST

/* Row 0 gives ids 1 and 2 half each: H = ln 2, so the bound is min(0.9, 0.6/2) = 0.3, and 2 passes it; the argmax is 1. */
START_TEST(draft_accept_exact_only) {
    const char *const *causal = ROWS("0", "12", "4"), *const *preview = ROWS(".", "2");
    expect(try(NULL, CLOVER_DRAFT, 2, 3, causal, preview), "first 0\nsee 0 9\nround @3: 0 2 judged 2+ accepted 1 bonus 4\n", "024", NULL);
    expect(try("draft_accept_exact_only", CLOVER_DRAFT, 2, 3, causal, preview),
           "first 0\nsee 0 9\nround @3: 0 2 judged 2- accepted 0 bonus 1\nround @4: 1 judged accepted 0 bonus 4\n", "014", NULL);
}
END_TEST

/* ---- every mode ----------------------------------------------------------------------------------------------------- */

/* The prompt is 1 2 3; ids 1 and 4 are equal. */
START_TEST(controls_count_prompt) {
    Tried *right = try(NULL, CLOVER_AR, 4, 1, ROWS("14"), NULL), *wrong = try("controls_count_prompt", CLOVER_AR, 4, 1, ROWS("14"), NULL);
    right->run->options.controls.presence_penalty = wrong->run->options.controls.presence_penalty = 1;
    expect(right, "token 1\n", "1", NULL);
    expect(wrong, "token 4\n", "4", NULL);
}
END_TEST

/* Every row: id 4 has logit 3, id 5 0.75, the mask `mask`, the others -10. */
typedef struct Levels { double mask; } Levels;
static void levels(void *user, const int32_t *prefix, int64_t n_prefix, double *logits) {
    (void)prefix, (void)n_prefix;
    for (int i = 0; i < DIGITS; i++) logits[i] = i == 4 ? 3 : i == 5 ? 0.75 : i == MASK ? ((const Levels *)user)->mask : -10;
}

/* Once 4 is out, presence 1 and repetition 2 make of its 3: right (3 - 1)/2 = 1 > 0.75, wrong 3/2 - 1 = 0.5 < 0.75. */
START_TEST(repetition_before_presence) {
    Levels none = { -10 };
    const char *const names[] = { NULL, "repetition_before_presence" }, *const answers[] = { "44", "45" };
    for (int i = 0; i < 2; i++) {
        Tried *t = try(names[i], CLOVER_AR, 4, 2, NULL, NULL);
        decode_run_script(t->run, levels, NULL, &none);
        t->run->options.controls.presence_penalty = 1;
        t->run->options.controls.repetition_penalty = 2;
        go(t);
        assert_answer(t->run, answers[i]);
        done(t);
    }
}
END_TEST

/* SPEC's example, the other way round: 3/2 - 2·0.5 - 0.25 = 0.25; -1·2 - 0.5 - 0.25 = -2.75. */
START_TEST(repetition_before_presence_in_numbers) {
    DecodeRules wrong = decode_rules;
    const CloverControls controls = { .frequency_penalty = 0.5, .presence_penalty = 0.25, .repetition_penalty = 2, .dllm_think_end_token_id = -1 };
    const int64_t counts[4] = { 2, 1, 0, 0 };
    double logits[4] = { 3, -1, 0.5, 1 };
    hypothesis_named("repetition_before_presence")->decoding(&wrong);
    const ControlContext context = { .rules = &wrong.control, .controls = &controls, .mask_id = -1, .vocab = 4, .counts = counts };
    controls_apply(logits, &context, 1, false);
    ck_assert(logits[0] == 0.25 && logits[1] == -2.75 && logits[2] == 0.5 && logits[3] == 1);
}
END_TEST

START_TEST(candidates_include_mask) {
    Levels high = { 5 };
    const char *const names[] = { NULL, "candidates_include_mask" }, *const answers[] = { "4", "9" };
    for (int i = 0; i < 2; i++) {
        Tried *t = try(names[i], CLOVER_AR, 4, 1, NULL, NULL);
        decode_run_script(t->run, levels, NULL, &high);
        go(t);
        assert_answer(t->run, answers[i]);
        done(t);
    }
}
END_TEST

/* In every mode: the first token, a block's row, a draft. */
START_TEST(tie_takes_last) {
    expect(try(NULL, CLOVER_AR, 4, 1, ROWS("14"), NULL), "token 1\n", "1", NULL);
    expect(try("tie_takes_last", CLOVER_AR, 4, 1, ROWS("14"), NULL), "token 4\n", "4", NULL);
    expect(try("tie_takes_last", CLOVER_DENOISE, 1, 1, NULL, ROWS("256")), "see 9\npass 0 @3: 0=6 fixed 0\nblock @3: 6 emitted 1\n", "6", NULL);
    expect(try("tie_takes_last", CLOVER_DRAFT, 2, 3, ROWS("0", "12", "4"), ROWS(".", "12")), "first 0\nsee 0 9\nround @3: 0 2 judged 2+ accepted 1 bonus 4\n", "024", NULL);
}
END_TEST

/* ---- all of them ---------------------------------------------------------------------------------------------------- */

/* A table that a fault has changed differs from the right one in exactly one rule, and leaves that as it was. */
START_TEST(every_fault_changes_one_rule) {
    int n = 0;
    for (int i = 0; i < hypotheses_count(); i++) {
        const Hypothesis *h = hypothesis_at(i);
        if (h->kind != HYPOTHESIS_DECODING) continue;
        DecodeRules r = decode_rules;
        h->decoding(&r);
        const int changed = (r.control.penalise != decode_rules.control.penalise) + (r.control.mask != decode_rules.control.mask) + (r.best != decode_rules.best) +
                            (r.count_prompt != decode_rules.count_prompt) + (r.block_rows != decode_rules.block_rows) + (r.confident != decode_rules.confident) +
                            (r.most_probable != decode_rules.most_probable) + (r.revise != decode_rules.revise) + (r.keep_block != decode_rules.keep_block) +
                            (r.accept != decode_rules.accept) + (r.rewind != decode_rules.rewind);
        ck_assert_msg(changed == 1, "%s changes %d rules", h->name, changed);
        n++;
    }
    ck_assert_int_ge(n, 10);
}
END_TEST

Suite *hypotheses_decode_suite(void) {
    Suite *s = suite_create("hypotheses_decode");
    TCase *c = tcase_create("faults");
    tcase_add_test(c, threshold_inclusive);
    tcase_add_test(c, denoise_fixes_one);
    tcase_add_test(c, tie_takes_last_row);
    tcase_add_test(c, denoise_remasks);
    tcase_add_test(c, remasking_comes_to_an_end);
    tcase_add_test(c, denoise_aligned_blocks);
    tcase_add_test(c, block_cut_to_budget);
    tcase_add_test(c, commit_skipped);
    tcase_add_test(c, draft_state_not_rewound);
    tcase_add_test(c, draft_accept_exact_only);
    tcase_add_test(c, controls_count_prompt);
    tcase_add_test(c, repetition_before_presence);
    tcase_add_test(c, repetition_before_presence_in_numbers);
    tcase_add_test(c, candidates_include_mask);
    tcase_add_test(c, tie_takes_last);
    tcase_add_test(c, every_fault_changes_one_rule);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(hypotheses_decode_suite()); }
