/* test_decode.c - decoding: options, autoregression, and what holds in every mode. [AR-1, AR-2, AR-3, CTL-7, CTL-8] */
#include <math.h>
#include <string.h>
#include "decode_run.h"
#include "../ref/sample.h"

/* ---- autoregression --------------------------------------------------------------------------------------------- */

START_TEST(ar_takes_each_token_from_the_last_causal_row) {
    DecodeRun *r = decode_run_new(CLOVER_AR, (const char *const[]){ "4", "5", "6", NULL }, NULL);
    r->options.max_tokens = 3;
    decode_run_go(r);
    assert_ok(r->status, r->err);
    assert_answer(r, "456");
    assert_steps(r, "token 4\ntoken 5\ntoken 6\n");
    assert_calls(r, "c3+1 c1+1 c1+1");               /* the last token is not committed */
    assert_committed(r, "12345");
    decode_run_free(r);
}
END_TEST

START_TEST(ar_ends_at_a_stop_id_which_it_includes) {
    DecodeRun *r = decode_run_new(CLOVER_AR, (const char *const[]){ "4", "8", "6", NULL }, NULL);
    decode_run_go(r);
    assert_answer(r, "48");
    assert_calls(r, "c3+1 c1+1");
    decode_run_free(r);
}
END_TEST

START_TEST(ar_any_of_several_stop_ids_ends_it) {
    DecodeRun *r = decode_run_new(CLOVER_AR, (const char *const[]){ "4", "0", "6", NULL }, NULL);
    r->options.stops[1] = 0;
    r->options.n_stops = 2;
    decode_run_go(r);
    assert_answer(r, "40");
    decode_run_free(r);
}
END_TEST

START_TEST(ar_the_lowest_id_wins_a_tie_and_p_is_its_share) {
    DecodeRun *r = decode_run_new(CLOVER_AR, (const char *const[]){ "64", "5210", "3", NULL }, NULL);
    r->options.max_tokens = 3;
    decode_run_go(r);
    assert_answer(r, "403");
    ck_assert_double_eq(r->p[0], 0.5);
    ck_assert_double_eq(r->p[1], 0.25);
    ck_assert_double_eq(r->p[2], 1);
    decode_run_free(r);
}
END_TEST

static void mask_is_largest(void *user, const int32_t *prefix, int64_t n_prefix, double *logits) {
    (void)user, (void)prefix, (void)n_prefix;
    digits_row("23", logits);
    logits[MASK] = 50;
}

START_TEST(ar_never_chooses_the_mask_nor_gives_it_a_share) {
    DecodeRun *r = decode_run_new(CLOVER_AR, NULL, NULL);
    decode_run_script(r, mask_is_largest, NULL, NULL);
    r->options.max_tokens = 1;
    decode_run_go(r);
    assert_answer(r, "2");
    ck_assert_double_eq(r->p[0], 0.5);
    decode_run_free(r);
}
END_TEST

START_TEST(ar_without_a_mask_id_has_no_forbidden_id) {
    DecodeRun *r = decode_run_new(CLOVER_AR, NULL, NULL);
    decode_run_script(r, mask_is_largest, NULL, NULL);
    r->options.max_tokens = 1;
    r->options.mask_id = -1;
    decode_run_go(r);
    assert_answer(r, "9");
    decode_run_free(r);
}
END_TEST

/* Id 1 has logit 1, id 2 has 0.6; a presence penalty of 0.5 turns the order once 1 was output, and again once 2 was.
 * The prompt holds both and must not count. */
static void one_before_two(void *user, const int32_t *prefix, int64_t n_prefix, double *logits) {
    (void)user, (void)prefix, (void)n_prefix;
    digits_row("", logits);
    logits[1] = 1;
    logits[2] = 0.6;
}

START_TEST(ar_counts_the_response_and_never_the_prompt) {
    DecodeRun *r = decode_run_new(CLOVER_AR, NULL, NULL);
    decode_run_script(r, one_before_two, NULL, NULL);
    r->options.max_tokens = 4;
    r->options.controls.presence_penalty = 0.5;
    decode_run_go(r);
    assert_answer(r, "1211");
    decode_run_free(r);
}
END_TEST

/* Frequency 0.3: 1; then 0.7 against 0.6: 1; then 0.4 against 0.6: 2; 0.4 against 0.3: 1; 0.1 against 0.3: 2. */
START_TEST(ar_frequency_counts_how_often) {
    DecodeRun *r = decode_run_new(CLOVER_AR, NULL, NULL);
    decode_run_script(r, one_before_two, NULL, NULL);
    r->options.max_tokens = 5;
    r->options.controls.frequency_penalty = 0.3;
    decode_run_go(r);
    assert_answer(r, "11212");
    decode_run_free(r);
}
END_TEST

static void stop_is_behind(void *user, const int32_t *prefix, int64_t n_prefix, double *logits) {
    (void)user, (void)prefix, (void)n_prefix;
    digits_row("4", logits);
    logits[STOP] = -0.5;
    logits[THINK_END] = -0.5;
}

/* Positions count from 1: the token with position 4 is the first that the step at start 3 lifts. */
START_TEST(ar_positions_count_from_one) {
    DecodeRun *r = decode_run_new(CLOVER_AR, NULL, NULL);
    decode_run_script(r, stop_is_behind, NULL, NULL);
    r->options.controls.dllm_length_penalty = 1;
    r->options.controls.dllm_length_penalty_start = 3;
    r->options.controls.dllm_length_penalty_window = 1;
    decode_run_go(r);
    assert_answer(r, "4448");
    decode_run_free(r);
}
END_TEST

START_TEST(ar_think_end_is_lifted_until_it_is_there) {
    DecodeRun *r = decode_run_new(CLOVER_AR, NULL, NULL);
    decode_run_script(r, stop_is_behind, NULL, NULL);
    r->options.max_tokens = 5;
    r->options.controls.dllm_think_end_bias = 1;
    r->options.controls.dllm_think_end_start = 2;
    r->options.controls.dllm_think_end_window = 1;
    r->prompt[2] = THINK_END;                        /* in the prompt it does not count */
    decode_run_go(r);
    assert_answer(r, "44744");
    decode_run_free(r);
}
END_TEST

START_TEST(ar_a_one_token_prompt) {
    DecodeRun *r = decode_run_new(CLOVER_AR, (const char *const[]){ "4", "8", NULL }, NULL);
    r->n_prompt = 1;
    decode_run_go(r);
    assert_answer(r, "48");
    assert_calls(r, "c1+1 c1+1");
    decode_run_free(r);
}
END_TEST

/* The draws are those of the seeded generator, one a token; with two equal ids the lower one is drawn below 1/2. */
START_TEST(ar_draws_with_the_seed) {
    for (uint64_t seed = 0; seed < 20; seed++) {
        DecodeRun *r = decode_run_new(CLOVER_AR, (const char *const[]){ "36", NULL }, NULL);
        r->options.temperature = 0.7;
        r->options.seed = seed;
        decode_run_go(r);
        ck_assert_int_eq(r->n_out, 8);
        Generator g;
        generator_seed(&g, seed);
        for (int i = 0; i < 8; i++) ck_assert_int_eq(r->out[i], generator_uniform(&g) < 0.5 ? 3 : 6);
        ck_assert_double_eq(r->p[0], 0.5);
        decode_run_free(r);
    }
}
END_TEST

/* Logits 1 and 0.6: at T = 0.01 the second has e^-40 of the mass; what is told is the probability at T = 1. */
START_TEST(ar_tells_the_probability_at_temperature_one) {
    DecodeRun *r = decode_run_new(CLOVER_AR, NULL, NULL);
    decode_run_script(r, one_before_two, NULL, NULL);
    r->options.max_tokens = 1;
    r->options.temperature = 0.01;
    decode_run_go(r);
    assert_answer(r, "1");
    ck_assert(close_to(r->p[0], 0.598687660112452, 1e-14, 0));       /* 1 / (1 + e^-0.4) */
    decode_run_free(r);
}
END_TEST

/* ---- every mode -------------------------------------------------------------------------------------------------- */

START_TEST(nan_logits_are_an_error_never_a_token) {
    for (CloverMode mode = CLOVER_AR; mode <= CLOVER_DRAFT; mode++) {
        DecodeRun *r = decode_run_new(mode, (const char *const[]){ ".", NULL }, (const char *const[]){ ".", ".", ".", ".", NULL });
        decode_run_go(r);
        ck_assert_int_eq(r->status, CLOVER_BAD_INPUT);
        assert_answer(r, "");
        decode_run_free(r);
    }
}
END_TEST

START_TEST(nothing_but_the_mask_to_choose_is_an_error) {
    for (CloverMode mode = CLOVER_AR; mode <= CLOVER_DRAFT; mode++) {
        DecodeRun *r = decode_run_new(mode, (const char *const[]){ "9", NULL }, (const char *const[]){ "9", "9", "9", "9", NULL });
        decode_run_go(r);
        ck_assert_int_eq(r->status, CLOVER_BAD_INPUT);
        assert_answer(r, "");
        decode_run_free(r);
    }
}
END_TEST

START_TEST(an_error_half_way_keeps_what_was_output) {
    DecodeRun *r = decode_run_new(CLOVER_AR, (const char *const[]){ "4", "5", ".", NULL }, NULL);
    decode_run_go(r);
    ck_assert_int_eq(r->status, CLOVER_BAD_INPUT);
    assert_answer(r, "45");
    decode_run_free(r);
}
END_TEST

/* An engine may refuse at any call: the error comes back as it is, nothing leaks, what was output stands. */
START_TEST(a_failing_engine_ends_decoding_at_any_call) {
    static const char *const causal[] = { "4", "5", "6", "5", "4", NULL };
    static const char *const preview[] = { "4", "5", "6", "5", "4", "4", "4", "4", "4", "4", "4", "4", NULL };
    for (CloverMode mode = CLOVER_AR; mode <= CLOVER_DRAFT; mode++) {
        DecodeRun *whole = decode_run_new(mode, causal, preview);
        decode_run_go(whole);
        assert_ok(whole->status, whole->err);
        for (int64_t i = 0; i < whole->engine->n_calls; i++) {
            DecodeRun *r = decode_run_new(mode, causal, preview);
            r->engine->fail_at = i;
            decode_run_go(r);
            ck_assert_int_eq(r->status, CLOVER_SYSTEM);
            ck_assert_str_eq(r->err.text, "scripted failure");
            ck_assert_int_eq(r->engine->n_calls, i + 1);
            ck_assert_int_eq(r->n_told, r->n_out);
            ck_assert_mem_eq(r->out, whole->out, (size_t)r->n_out * sizeof *r->out);
            decode_run_free(r);
        }
        decode_run_free(whole);
    }
}
END_TEST

/* After any event the listener may end it: OK, what was told stands, and nothing more is asked of the engine. */
START_TEST(the_listener_can_end_decoding_after_any_event) {
    static const char *const causal[] = { "4", "5", "6", "5", "4", NULL };
    static const char *const preview[] = { "4", "5", "6", "5", "4", "4", "4", "4", "4", "4", "4", "4", NULL };
    for (CloverMode mode = CLOVER_AR; mode <= CLOVER_DRAFT; mode++) {
        DecodeRun *whole = decode_run_new(mode, causal, preview);
        decode_run_go(whole);
        ck_assert_int_eq(whole->n_out, 8);
        for (int64_t i = 1; i <= whole->n_events; i++) {
            DecodeRun *r = decode_run_new(mode, causal, preview);
            r->stop_listening_after = i;
            decode_run_go(r);
            assert_ok(r->status, r->err);
            ck_assert_int_eq(r->n_events, i);
            ck_assert_int_eq(r->n_told, r->n_out);
            ck_assert_mem_eq(r->out, whole->out, (size_t)r->n_out * sizeof *r->out);
            ck_assert(strncmp(whole->log, r->log, strlen(r->log)) == 0);
            decode_run_free(r);
        }
        decode_run_free(whole);
    }
}
END_TEST

START_TEST(nobody_needs_to_listen) {
    DecodeRun *r = decode_run_new(CLOVER_AR, (const char *const[]){ "4", "8", NULL }, NULL);
    CloverEngine engine = scripted_engine(r->engine);
    assert_ok(clover_decode(&engine, &r->options, r->prompt, r->n_prompt, NULL, NULL, r->out, &r->n_out, &r->err), r->err);
    ck_assert_int_eq(r->n_out, 2);
    decode_run_free(r);
}
END_TEST

/* ---- options ----------------------------------------------------------------------------------------------------- */

START_TEST(defaults_are_the_configs) {
    CloverConfig *c = calloc(1, sizeof *c);
    ck_assert_ptr_nonnull(c);
    c->block = 24;
    c->mask_id = 77;
    c->threshold = 0.8;
    c->stops[0] = 5;
    c->stops[1] = 6;
    c->n_stops = 2;
    c->controls.repetition_penalty = 1.5;
    CloverDecodeOptions o = clover_decode_defaults(c);
    ck_assert_int_eq(o.mode, CLOVER_AR);
    ck_assert_int_ge(o.max_tokens, 1);
    ck_assert_int_eq(o.block, 24);
    ck_assert_int_eq(o.mask_id, 77);
    ck_assert_double_eq(o.threshold, 0.8);
    ck_assert_int_eq(o.n_stops, 2);
    ck_assert_int_eq(o.stops[1], 6);
    ck_assert_double_eq(o.controls.repetition_penalty, 1.5);
    ck_assert_int_eq(o.width, -1);
    ck_assert_double_eq(o.ratio, 0.9);
    ck_assert_double_eq(o.delta, 0.6);
    ck_assert(!o.accept_exact);
    ck_assert_double_eq(o.temperature, 0);
    ck_assert_double_eq(o.top_p, 1);
    ck_assert_int_eq(o.top_k, 0);
    free(c);
}
END_TEST

/* One option wrong at a time: CLOVER_USAGE, the flag named, the engine never called. */
#define WRONG(mode, change, flag) do { \
    DecodeRun *r = decode_run_new(mode, NULL, NULL); \
    CloverDecodeOptions *o = &r->options; \
    (void)o; \
    change; \
    decode_run_go(r); \
    ck_assert_msg(r->status == CLOVER_USAGE, "%s: status %d", #change, (int)r->status); \
    ck_assert_msg(strstr(r->err.text, flag) != NULL, "%s: %s", #change, r->err.text); \
    ck_assert_msg(strchr(r->err.text, '\n') == NULL, "%s: one problem, but %s", #change, r->err.text); \
    ck_assert_int_eq(r->n_out, 0); \
    ck_assert_int_eq(r->engine->n_calls, 0); \
    decode_run_free(r); \
} while (0)

START_TEST(wrong_options_of_every_mode) {
    for (CloverMode mode = CLOVER_AR; mode <= CLOVER_DRAFT; mode++) {
        WRONG(mode, o->max_tokens = 0, "-n");
        WRONG(mode, o->mask_id = 10, "--mask-id");
        WRONG(mode, o->mask_id = -2, "--mask-id");
        WRONG(mode, o->n_stops = CLOVER_MAX_STOPS + 1, "stop ids");
        WRONG(mode, o->n_stops = -1, "stop ids");
        WRONG(mode, o->stops[0] = 10, "stop id 10");
        WRONG(mode, o->stops[0] = -1, "stop id -1");
        WRONG(mode, o->temperature = -0.1, "--temperature");
        WRONG(mode, o->temperature = NAN, "--temperature");
        WRONG(mode, o->temperature = INFINITY, "--temperature");
        WRONG(mode, o->top_k = -1, "--top-k");
        WRONG(mode, o->top_p = 0, "--top-p");
        WRONG(mode, o->top_p = 1.01, "--top-p");
        WRONG(mode, o->top_p = NAN, "--top-p");
        WRONG(mode, o->controls.frequency_penalty = NAN, "--frequency-penalty");
        WRONG(mode, o->controls.presence_penalty = INFINITY, "--presence-penalty");
        WRONG(mode, o->controls.repetition_penalty = 0, "--repetition-penalty");
        WRONG(mode, o->controls.repetition_penalty = -1, "--repetition-penalty");
        WRONG(mode, o->controls.repetition_penalty = NAN, "--repetition-penalty");
        WRONG(mode, (o->controls.dllm_length_penalty = 1, o->controls.dllm_length_penalty_window = 0),
              "--dllm-length-penalty-window");
        WRONG(mode, (o->controls.dllm_think_end_bias = 1, o->controls.dllm_think_end_window = -5), "--dllm-think-end-window");
        WRONG(mode, (o->controls.dllm_think_end_bias = 1, o->controls.dllm_think_end_token_id = -1), "--dllm-think-end-token-id");
        WRONG(mode, (o->controls.dllm_think_end_bias = 1, o->controls.dllm_think_end_token_id = 10), "--dllm-think-end-token-id");
        WRONG(mode, o->controls.dllm_length_penalty = NAN, "--dllm-length-penalty");
        WRONG(mode, r->n_prompt = 0, "prompt is empty");
        WRONG(mode, r->prompt[1] = 10, "prompt token 1 is id 10");
        WRONG(mode, r->prompt[2] = -1, "prompt token 2 is id -1");
        WRONG(mode, r->engine->position = 4, "empty state");
    }
    WRONG(CLOVER_AR, o->mode = (CloverMode)3, "--mode");
}
END_TEST

START_TEST(wrong_options_of_the_modes_that_preview) {
    for (CloverMode mode = CLOVER_DENOISE; mode <= CLOVER_DRAFT; mode++) {
        WRONG(mode, o->mask_id = -1, "--mask-id");
        WRONG(mode, o->block = 0, "--block");
        WRONG(mode, o->block = -1, "--block");
    }
    WRONG(CLOVER_DENOISE, o->threshold = NAN, "--threshold");
    WRONG(CLOVER_DRAFT, o->width = 3, "--width");
    WRONG(CLOVER_DRAFT, o->width = 8, "--width");
    WRONG(CLOVER_DRAFT, o->width = 0, "--width");
    WRONG(CLOVER_DRAFT, o->width = -4, "--width");
    WRONG(CLOVER_DRAFT, o->ratio = -0.1, "--accept");
    WRONG(CLOVER_DRAFT, o->delta = -0.1, "--accept");
    WRONG(CLOVER_DRAFT, o->delta = NAN, "--accept");
    WRONG(CLOVER_DRAFT, o->ratio = INFINITY, "--accept");
}
END_TEST

START_TEST(all_wrong_options_are_told_at_once) {
    DecodeRun *r = decode_run_new(CLOVER_DENOISE, NULL, NULL);
    r->options.max_tokens = 0;
    r->options.threshold = NAN;
    r->options.top_k = -1;
    decode_run_go(r);
    ck_assert_int_eq(r->status, CLOVER_USAGE);
    ck_assert_ptr_nonnull(strstr(r->err.text, "-n is 0"));
    ck_assert_ptr_nonnull(strstr(r->err.text, "--threshold"));
    ck_assert_ptr_nonnull(strstr(r->err.text, "--top-k"));
    decode_run_free(r);
}
END_TEST

/* What a mode does not use may be unknown: AR runs on the base family, which has no block, mask or threshold. */
START_TEST(ar_needs_nothing_of_the_block) {
    DecodeRun *r = decode_run_new(CLOVER_AR, (const char *const[]){ "8", NULL }, NULL);
    r->options.mask_id = -1;
    r->options.block = -1;
    r->options.threshold = NAN;
    r->options.controls.dllm_length_penalty_window = 0;              /* off: its window does not matter */
    CloverEngine engine = scripted_engine(r->engine);
    engine.preview = NULL;
    engine.snapshot = NULL;
    assert_ok(clover_decode(&engine, &r->options, r->prompt, r->n_prompt, NULL, NULL, r->out, &r->n_out, &r->err), r->err);
    ck_assert_int_eq(r->n_out, 1);
    decode_run_free(r);
}
END_TEST

START_TEST(an_engine_without_previews_can_only_ar) {
    for (CloverMode mode = CLOVER_DENOISE; mode <= CLOVER_DRAFT; mode++) {
        DecodeRun *r = decode_run_new(mode, NULL, NULL);
        CloverEngine engine = scripted_engine(r->engine);
        engine.preview = NULL;
        CloverStatus status = clover_decode(&engine, &r->options, r->prompt, r->n_prompt, NULL, NULL, r->out, &r->n_out, &r->err);
        ck_assert_int_eq(status, CLOVER_USAGE);
        ck_assert_ptr_nonnull(strstr(r->err.text, "previews"));
        decode_run_free(r);
    }
}
END_TEST

Suite *decode_suite(void) {
    Suite *s = suite_create("decode");
    TCase *c = tcase_create("ar");
    tcase_add_test(c, ar_takes_each_token_from_the_last_causal_row);
    tcase_add_test(c, ar_ends_at_a_stop_id_which_it_includes);
    tcase_add_test(c, ar_any_of_several_stop_ids_ends_it);
    tcase_add_test(c, ar_the_lowest_id_wins_a_tie_and_p_is_its_share);
    tcase_add_test(c, ar_never_chooses_the_mask_nor_gives_it_a_share);
    tcase_add_test(c, ar_without_a_mask_id_has_no_forbidden_id);
    tcase_add_test(c, ar_counts_the_response_and_never_the_prompt);
    tcase_add_test(c, ar_frequency_counts_how_often);
    tcase_add_test(c, ar_positions_count_from_one);
    tcase_add_test(c, ar_think_end_is_lifted_until_it_is_there);
    tcase_add_test(c, ar_a_one_token_prompt);
    tcase_add_test(c, ar_draws_with_the_seed);
    tcase_add_test(c, ar_tells_the_probability_at_temperature_one);
    suite_add_tcase(s, c);
    c = tcase_create("every mode");
    tcase_add_test(c, nan_logits_are_an_error_never_a_token);
    tcase_add_test(c, nothing_but_the_mask_to_choose_is_an_error);
    tcase_add_test(c, an_error_half_way_keeps_what_was_output);
    tcase_add_test(c, a_failing_engine_ends_decoding_at_any_call);
    tcase_add_test(c, the_listener_can_end_decoding_after_any_event);
    tcase_add_test(c, nobody_needs_to_listen);
    suite_add_tcase(s, c);
    c = tcase_create("options");
    tcase_add_test(c, defaults_are_the_configs);
    tcase_add_test(c, wrong_options_of_every_mode);
    tcase_add_test(c, wrong_options_of_the_modes_that_preview);
    tcase_add_test(c, all_wrong_options_are_told_at_once);
    tcase_add_test(c, ar_needs_nothing_of_the_block);
    tcase_add_test(c, an_engine_without_previews_can_only_ar);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(decode_suite()); }
