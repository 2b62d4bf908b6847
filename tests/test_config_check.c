/* test_config_check.c - what a model's numbers must satisfy: a good config with one number changed. [CFG-5] */
#include <math.h>
#include "files.h"
#include "../ref/error.h"
#include "../ref/files/config.h"

#define GOOD_HF "tests/vectors/drifts/hf"
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define assert_refused(call, status, text) do { assert_status(call, status, err); assert_says(err, text); } while (0)

static CloverError err;

static CloverStatus check_with_size(size_t field, int64_t value) {
    CloverConfig c;
    assert_ok(config_from_folder(GOOD_HF, &c, &err), err);
    memcpy((char *)&c + field, &value, sizeof value);
    error_clear(&err);
    return config_check(&c, "here", &err);
}

static CloverStatus check_with_real(size_t field, double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return check_with_size(field, bits);
}

START_TEST(sizes_that_cannot_be) {   /* [CFG-5] */
    static const size_t positive[] = {
        offsetof(CloverConfig, layers), offsetof(CloverConfig, hidden), offsetof(CloverConfig, vocab), offsetof(CloverConfig, context),
        offsetof(CloverConfig, heads), offsetof(CloverConfig, kv_heads), offsetof(CloverConfig, head_width), offsetof(CloverConfig, rotary_dims),
        offsetof(CloverConfig, key_heads), offsetof(CloverConfig, value_heads), offsetof(CloverConfig, key_width),
        offsetof(CloverConfig, value_width), offsetof(CloverConfig, taps), offsetof(CloverConfig, experts), offsetof(CloverConfig, experts_used),
        offsetof(CloverConfig, expert_width), offsetof(CloverConfig, shared_width), offsetof(CloverConfig, block),
    };
    for (size_t i = 0; i < COUNT(positive); i++) {
        assert_refused(check_with_size(positive[i], 0), CLOVER_BAD_INPUT, "here: ");
        assert_refused(check_with_size(positive[i], -1), CLOVER_BAD_INPUT, "found -1");
        assert_refused(check_with_size(positive[i], INT64_MIN), CLOVER_BAD_INPUT, "here: ");
    }
    assert_refused(check_with_size(offsetof(CloverConfig, layers), CLOVER_MAX_LAYERS + 1), CLOVER_UNSUPPORTED, "number of layers: expected 1 to 1024");
    assert_refused(check_with_size(offsetof(CloverConfig, vocab), (int64_t)1 << 31), CLOVER_UNSUPPORTED, "vocabulary");
    assert_refused(check_with_size(offsetof(CloverConfig, kv_heads), 3), CLOVER_BAD_INPUT, "query heads: expected a multiple of the number of KV heads (3), found 2");
    assert_refused(check_with_size(offsetof(CloverConfig, key_heads), 3), CLOVER_BAD_INPUT, "expected a multiple of the number of GDN key heads (3), found 4");
    assert_refused(check_with_size(offsetof(CloverConfig, rotary_dims), 7), CLOVER_BAD_INPUT, "rotary dims: expected a multiple of the pair (2), found 7");
    assert_refused(check_with_size(offsetof(CloverConfig, rotary_dims), 34), CLOVER_BAD_INPUT, "at most the head width (32), found 34");
    assert_ok(check_with_size(offsetof(CloverConfig, rotary_dims), 32), err);
    assert_refused(check_with_size(offsetof(CloverConfig, experts_used), 5), CLOVER_BAD_INPUT, "at most the number of experts (4), found 5");
    assert_ok(check_with_size(offsetof(CloverConfig, experts_used), 4), err);
    assert_ok(check_with_size(offsetof(CloverConfig, taps), 1), err);
} END_TEST

START_TEST(absurd_products) {   /* [CFG-5] */
    CloverConfig c;
    assert_ok(config_from_folder(GOOD_HF, &c, &err), err);
    c.experts = c.expert_width = 1 << 30;
    error_clear(&err);
    assert_refused(config_check(&c, "here", &err), CLOVER_BAD_INPUT, "the experts would have more than 2^56 elements");
    assert_ok(config_from_folder(GOOD_HF, &c, &err), err);
    c.key_heads = c.value_heads = c.key_width = c.value_width = INT32_MAX;
    error_clear(&err);
    assert_refused(config_check(&c, "here", &err), CLOVER_BAD_INPUT, "the GDN state would have more");
    assert_says(err, "the GDN projection would have more");
    assert_ok(config_from_folder(GOOD_HF, &c, &err), err);
    c.hidden = c.vocab = INT32_MAX;
    error_clear(&err);
    assert_refused(config_check(&c, "here", &err), CLOVER_BAD_INPUT, "the embedding would have more");
} END_TEST

START_TEST(reals_that_cannot_be) {   /* [CFG-5] */
    static const struct { size_t field; double value; CloverStatus status; } all[] = {
        { offsetof(CloverConfig, rms_eps), 0, CLOVER_BAD_INPUT }, { offsetof(CloverConfig, rms_eps), -1e-6, CLOVER_BAD_INPUT },
        { offsetof(CloverConfig, rms_eps), INFINITY, CLOVER_BAD_INPUT }, { offsetof(CloverConfig, rms_eps), NAN, CLOVER_BAD_INPUT },
        { offsetof(CloverConfig, rope_base), 0.5, CLOVER_BAD_INPUT }, { offsetof(CloverConfig, rope_base), 1, CLOVER_OK },
        { offsetof(CloverConfig, rope_base), INFINITY, CLOVER_BAD_INPUT }, { offsetof(CloverConfig, rope_base), NAN, CLOVER_BAD_INPUT },
        { offsetof(CloverConfig, threshold), 1.5, CLOVER_OK }, { offsetof(CloverConfig, threshold), NAN, CLOVER_BAD_INPUT },
        { offsetof(CloverConfig, threshold), -0.5, CLOVER_BAD_INPUT }, { offsetof(CloverConfig, threshold), 0, CLOVER_OK },
        { offsetof(CloverConfig, coreset_top_p), NAN, CLOVER_BAD_INPUT }, { offsetof(CloverConfig, coreset_top_p), -1, CLOVER_BAD_INPUT },
    };
    for (size_t i = 0; i < COUNT(all); i++) assert_status(check_with_real(all[i].field, all[i].value), all[i].status, err);
} END_TEST

Suite *config_check_suite(void) {
    Suite *s = suite_create("config_check");
    TCase *t = tcase_create("config_check");
    tcase_add_test(t, sizes_that_cannot_be);
    tcase_add_test(t, absurd_products);
    tcase_add_test(t, reals_that_cannot_be);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(config_check_suite()); }
