/* test_controls.c - response controls, worked by hand, and what a row says. [CTL-1, CTL-2, CTL-3, CTL-4, CTL-5, CTL-6, AR-2] */
#include <math.h>
#include <string.h>
#include "harness.h"
#include "../ref/controls.h"

enum { V = 8, MASK = 7 };

static const CloverControls neutral = { 0, 0, 1, 0, 8192, 8192, 0, 4096, 4096, -1 };

static ControlContext context(const CloverControls *controls, const int64_t *counts) {
    static const int32_t stops[] = { 5, 6 };
    return (ControlContext){ .controls = controls, .stops = stops, .n_stops = 2, .mask_id = MASK, .vocab = V, .counts = counts };
}

static void assert_row(const double *row, const double *expected) {
    for (int i = 0; i < V; i++) ck_assert_msg(close_to(row[i], expected[i], 1e-15, 0), "logit %d is %.17g, expected %.17g", i, row[i], expected[i]);
}

START_TEST(neutral_controls_change_nothing) {
    int64_t counts[V] = { 3, 0, 1, 0, 0, 0, 0, 0 };
    ControlContext c = context(&neutral, counts);
    double row[V] = { 1, -2, 3, 4, 5, 6, 7, 8 }, before[V];
    memcpy(before, row, sizeof row);
    controls_apply(row, &c, 100000, false);
    ck_assert_mem_eq(row, before, sizeof row);
}
END_TEST

/* By hand, frequency 0.25, presence 0.5, repetition 2:
 *   id 0, seen twice, logit 4:    4 - 2*0.25 - 0.5 = 3, not negative, 3/2 = 1.5
 *   id 1, seen once, logit 0.5:   0.5 - 0.25 - 0.5 = -0.25, negative, -0.25*2 = -0.5
 *        (repetition first would give 0.25 - 0.75 = -0.5 as well: hence id 2)
 *   id 2, seen once, logit -1:    -1 - 0.75 = -1.75, *2 = -3.5   (repetition first: -2 - 0.75 = -2.75)
 *   id 3, not seen: unchanged.    id 4, seen once, logit 0.75: exactly 0, 0/2 = 0 */
START_TEST(penalties_apply_in_order_to_seen_ids) {
    int64_t counts[V] = { 2, 1, 1, 0, 1, 0, 0, 0 };
    CloverControls k = neutral;
    k.frequency_penalty = 0.25;
    k.presence_penalty = 0.5;
    k.repetition_penalty = 2;
    ControlContext c = context(&k, counts);
    double row[V] = { 4, 0.5, -1, 9, 0.75, 1, 1, 1 };
    controls_apply(row, &c, 1, false);
    assert_row(row, (double[]){ 1.5, -0.5, -3.5, 9, 0, 1, 1, 1 });
}
END_TEST

START_TEST(each_penalty_alone) {
    int64_t counts[V] = { 3, 1, 0, 0, 0, 0, 0, 0 };
    CloverControls k = neutral;
    k.frequency_penalty = 0.5;
    ControlContext c = context(&k, counts);
    double row[V] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    controls_apply(row, &c, 1, false);
    assert_row(row, (double[]){ -0.5, 0.5, 1, 1, 1, 1, 1, 1 });

    k = neutral;
    k.presence_penalty = 0.5;
    double second[V] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    controls_apply(second, &c, 1, false);
    assert_row(second, (double[]){ 0.5, 0.5, 1, 1, 1, 1, 1, 1 });

    k = neutral;
    k.repetition_penalty = 0.5;                      /* below 1 it favours */
    double third[V] = { 1, -1, 1, -1, 1, 1, 1, 1 };
    controls_apply(third, &c, 1, false);
    assert_row(third, (double[]){ 2, -0.5, 1, -1, 1, 1, 1, 1 });
}
END_TEST

/* Start 10, window 4, strength 8: nothing up to 10, then 2 a position, 8 from 14 on. */
START_TEST(ramps_at_their_edges) {
    ck_assert_double_eq(controls_ramp(1, 10, 4, 8), 0);
    ck_assert_double_eq(controls_ramp(10, 10, 4, 8), 0);
    ck_assert_double_eq(controls_ramp(11, 10, 4, 8), 2);
    ck_assert_double_eq(controls_ramp(13, 10, 4, 8), 6);
    ck_assert_double_eq(controls_ramp(14, 10, 4, 8), 8);
    ck_assert_double_eq(controls_ramp(15, 10, 4, 8), 8);
    ck_assert_double_eq(controls_ramp(1, 0, 1, -3), -3);             /* a window of one is a step; strengths may be negative */
}
END_TEST

START_TEST(the_length_ramp_lifts_every_stop_id_after_the_penalties) {
    int64_t counts[V] = { 0, 0, 0, 0, 0, 1, 0, 0 };
    CloverControls k = neutral;
    k.repetition_penalty = 2;
    k.dllm_length_penalty = 8;
    k.dllm_length_penalty_start = 10;
    k.dllm_length_penalty_window = 4;
    ControlContext c = context(&k, counts);
    double row[V] = { 0, 0, 0, 0, 0, 3, 4, 0 };
    controls_apply(row, &c, 12, false);
    assert_row(row, (double[]){ 0, 0, 0, 0, 0, 1.5 + 4, 4 + 4, 0 }); /* id 5: 3/2 first, then + 4 */
}
END_TEST

START_TEST(a_stop_id_listed_twice_is_lifted_once) {
    int64_t counts[V] = { 0 };
    CloverControls k = neutral;
    k.dllm_length_penalty = 8;
    k.dllm_length_penalty_start = 0;
    k.dllm_length_penalty_window = 1;
    ControlContext c = context(&k, counts);
    static const int32_t twice[] = { 5, 6, 5 };
    c.stops = twice;
    c.n_stops = 3;
    double row[V] = { 0 };
    controls_apply(row, &c, 1, false);
    assert_row(row, (double[]){ 0, 0, 0, 0, 0, 8, 8, 0 });
}
END_TEST

START_TEST(the_think_end_ramp_is_off_once_the_id_is_there) {
    int64_t counts[V] = { 0 };
    CloverControls k = neutral;
    k.dllm_think_end_bias = 6;
    k.dllm_think_end_start = 2;
    k.dllm_think_end_window = 2;
    k.dllm_think_end_token_id = 3;
    ControlContext c = context(&k, counts);
    double row[V] = { 0 };
    controls_apply(row, &c, 3, false);
    ck_assert_double_eq(row[3], 3);
    controls_apply(row, &c, 9, true);                /* it is in the block */
    ck_assert_double_eq(row[3], 3);
    counts[3] = 1;                                   /* it is in the response */
    controls_apply(row, &c, 9, false);
    ck_assert_double_eq(row[3], 3);
    for (int i = 0; i < V; i++) if (i != 3) ck_assert_double_eq(row[i], 0);
}
END_TEST

START_TEST(the_mask_is_never_left) {
    int64_t counts[V] = { 0 };
    CloverControls k = neutral;
    k.dllm_think_end_bias = 1000;
    k.dllm_think_end_start = 0;
    k.dllm_think_end_window = 1;
    k.dllm_think_end_token_id = MASK;                /* not even a control brings it back */
    ControlContext c = context(&k, counts);
    double row[V] = { 0, 1, 2, 0, 0, 0, 0, 50 };
    CloverError err;
    assert_ok(controls_process(row, &c, 5, false, &err), err);
    ck_assert(row[MASK] == -INFINITY);
    ck_assert_int_eq(row_argmax(row, V), 2);
}
END_TEST

START_TEST(rows_that_no_token_can_come_from_are_refused) {
    int64_t counts[V] = { 0 };
    ControlContext c = context(&neutral, counts);
    CloverError err;
    double nan_row[V] = { 0, 1, NAN, 3 };
    assert_status(controls_process(nan_row, &c, 4, false, &err), CLOVER_BAD_INPUT, err);
    ck_assert_ptr_nonnull(strstr(err.text, "response position 4"));
    ck_assert_ptr_nonnull(strstr(err.text, "id 2 is NaN"));

    double nan_mask[V] = { 0, 1, 2, 3, 4, 5, 6, NAN };               /* also where the mask would hide it */
    assert_status(controls_process(nan_mask, &c, 1, false, &err), CLOVER_BAD_INPUT, err);
    double infinite[V] = { 0, INFINITY };
    assert_status(controls_process(infinite, &c, 1, false, &err), CLOVER_BAD_INPUT, err);

    double none[V];
    for (int i = 0; i < V; i++) none[i] = -INFINITY;
    none[MASK] = 1;
    assert_status(controls_process(none, &c, 1, false, &err), CLOVER_BAD_INPUT, err);
    ck_assert_ptr_nonnull(strstr(err.text, "every logit"));

    double one[V];
    for (int i = 0; i < V; i++) one[i] = -INFINITY;
    one[4] = -1e300;                                                 /* a single finite logit is enough */
    assert_ok(controls_process(one, &c, 1, false, &err), err);
    ck_assert_int_eq(row_argmax(one, V), 4);
}
END_TEST

START_TEST(controls_that_overflow_are_told) {
    int64_t counts[V] = { 2 };
    CloverControls k = neutral;
    k.frequency_penalty = -1e308;
    ControlContext c = context(&k, counts);
    CloverError err;
    double row[V] = { 1e308, 1, 1, 1, 1, 1, 1, 1 };
    assert_status(controls_process(row, &c, 1, false, &err), CLOVER_USAGE, err);
}
END_TEST

START_TEST(the_lowest_id_wins_a_tie) {
    ck_assert_int_eq(row_argmax((double[]){ 1, 3, 2, 3 }, 4), 1);
    ck_assert_int_eq(row_argmax((double[]){ 0, 0, 0, 0 }, 4), 0);
    ck_assert_int_eq(row_argmax((double[]){ -5, -4, -4, -9 }, 4), 1);
}
END_TEST

/* Entropy in nats: uniform over 4 is ln 4; a certainty is 0; 1/2, 1/4, 1/4 is 1.5 ln 2. */
START_TEST(entropy_is_in_nats) {
    const double ln2 = 0.69314718055994530942;
    ck_assert(close_to(row_entropy((double[]){ 0.25, 0.25, 0.25, 0.25 }, 4), 2 * ln2, 1e-15, 0));
    ck_assert(close_to(row_entropy((double[]){ 0.5, 0, 0.25, 0.25 }, 4), 1.5 * ln2, 1e-15, 0));
    ck_assert_double_eq(row_entropy((double[]){ 0, 1, 0, 0 }, 4), 0);
}
END_TEST

Suite *controls_suite(void) {
    Suite *s = suite_create("controls");
    TCase *c = tcase_create("controls");
    tcase_add_test(c, neutral_controls_change_nothing);
    tcase_add_test(c, penalties_apply_in_order_to_seen_ids);
    tcase_add_test(c, each_penalty_alone);
    tcase_add_test(c, ramps_at_their_edges);
    tcase_add_test(c, the_length_ramp_lifts_every_stop_id_after_the_penalties);
    tcase_add_test(c, a_stop_id_listed_twice_is_lifted_once);
    tcase_add_test(c, the_think_end_ramp_is_off_once_the_id_is_there);
    tcase_add_test(c, the_mask_is_never_left);
    tcase_add_test(c, rows_that_no_token_can_come_from_are_refused);
    tcase_add_test(c, controls_that_overflow_are_told);
    tcase_add_test(c, the_lowest_id_wins_a_tie);
    tcase_add_test(c, entropy_is_in_nats);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(controls_suite()); }
