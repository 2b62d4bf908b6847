/* test_lint_values.c - clover lint: what the values show, over all layers together. [LNT-3] */
#include <math.h>
#include "test_lint.h"

static float plus_one(float x) { return x + 1; }
static float minus_one(float x) { return x - 1; }
static float raw(float x) { return logf(-x); }                   /* from -exp(A_log) back */
static float twice(float x) { return -expf(x); }                 /* -exp(-exp(A_log)) */
static float grown(float x) { return -expf(-x); }                /* -exp(exp(A_log)) */
static float minus_exp(float x) { return -expf(x); }

static void each_norm(Edit *e, float (*change)(float), int first_layer, int layers) {
    for (int l = first_layer; l < first_layer + layers; l++) {
        edit_each(e, blk(l, "attn_norm.weight"), change);
        edit_each(e, blk(l, "post_attention_norm.weight"), change);
    }
}

static void each_gdn(Edit *e, const char *name, float (*change)(float)) {
    for (int l = 0; l < 3; l++) edit_each(e, blk(l, name), change);
}

/* ---- rates --------------------------------------------------------------------------------------------------------- */

START_TEST(a_log_raw) {
    Edit *e = edit_gguf();
    each_gdn(e, "ssm_a", raw);
    Linted *l = lint_edit(e);
    assert_only_in(&l->report, A_LOG_RAW, GARBAGE, "7 of 12 values");
    ck_assert_int_eq(finding(&l->report, A_LOG_RAW, GARBAGE)->n_tensors, 3);
    linted_free(l);
    e = edit_gguf();                                             /* one value of one layer is enough, and accuses no other */
    edit_set(edit_tensor(e, "blk.1.ssm_a"), 2, 0);
    l = lint_edit(e);
    assert_only_in(&l->report, A_LOG_RAW, GARBAGE, "1 of 12 values");
    ck_assert_int_eq(finding(&l->report, A_LOG_RAW, GARBAGE)->n_tensors, 1);
    ck_assert_str_eq(finding(&l->report, A_LOG_RAW, GARBAGE)->tensor[0], "blk.1.ssm_a");
    linted_free(l);
    e = edit_gguf();
    edit_each(e, "blk.1.ssm_a", raw);
    for (int i = 0; i < 4; i++) edit_set(edit_tensor(e, "blk.2.ssm_a"), i, -0.0324f);
    l = lint_edit(e);
    assert_only_in(&l->report, A_LOG_RAW, GARBAGE, "of 1 layers the values may be either, the first is blk.2.ssm_a");
    ck_assert_int_eq(finding(&l->report, A_LOG_RAW, GARBAGE)->n_tensors, 1);
    linted_free(l);
} END_TEST

START_TEST(a_exp_twice) {
    Edit *e = edit_gguf();
    each_gdn(e, "ssm_a", twice);
    assert_only(e, A_EXP_TWICE, GARBAGE, "-exp(-exp(A_log))");
    e = edit_gguf();
    each_gdn(e, "ssm_a", grown);
    assert_only(e, A_EXP_TWICE, GARBAGE, "-exp(exp(A_log))");
    e = edit_hf();
    for (int l = 0; l < 3; l++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.%d.linear_attn.A_log", l);
        edit_each(e, name, minus_exp);
    }
    assert_only(e, A_EXP_TWICE, GARBAGE, "A_log holds -exp(A_log)");
} END_TEST

/* In one layer of a folder: blk.1's values of good.gguf, from -7.39 to -0.09. */
START_TEST(a_exp_twice_in_one_layer) {
    Edit *e = edit_hf();
    edit_each(e, "model.layers.1.linear_attn.A_log", minus_exp);
    Linted *l = lint_edit(e);
    assert_only_in(&l->report, A_EXP_TWICE, GARBAGE, "model.layers.1.linear_attn.A_log: its 4 values");
    ck_assert_int_eq(finding(&l->report, A_EXP_TWICE, GARBAGE)->n_tensors, 1);
    linted_free(l);
    e = edit_hf();                                               /* slow, not wrong */
    for (int i = 0; i < 4; i++) edit_set(edit_tensor(e, "model.layers.1.linear_attn.A_log"), i, -0.5f - 0.7f * (float)i);
    assert_clean(e);
} END_TEST

/* Slow heads are rare, not wrong: all rates below 1, and all far above. */
START_TEST(small_and_large_rates_are_left_alone) {
    for (int large = 0; large < 2; large++) {
        Edit *e = edit_gguf();
        for (int l = 0; l < 3; l++)
            for (int i = 0; i < 4; i++)                          /* 2 to 13, 0.2 to 0.86 */
                edit_set(edit_tensor(e, blk(l, "ssm_a")), i, large ? -(float)(2 + i + 4 * l) : -0.2f - 0.06f * (float)(i + 4 * l));
        assert_clean(e);
    }
} END_TEST

/* ---- norms --------------------------------------------------------------------------------------------------------- */

START_TEST(norm_shifts) {
    Edit *e = edit_gguf();
    each_norm(e, minus_one, 0, 4);
    edit_each(e, "output_norm.weight", minus_one);
    Linted *l = lint_edit(e);
    assert_only_in(&l->report, NORM_SHIFT_MISSING, GARBAGE, "576 values of 9 layer norms");
    ck_assert_int_eq(finding(&l->report, NORM_SHIFT_MISSING, GARBAGE)->n_tensors, 9);
    linted_free(l);
    e = edit_gguf();
    each_norm(e, plus_one, 0, 4);
    edit_each(e, "output_norm.weight", plus_one);
    assert_only(e, NORM_SHIFT_TWICE, GARBAGE, "average 2");
    e = edit_gguf();
    each_norm(e, minus_one, 1, 1);
    l = lint_edit(e);
    assert_only_in(&l->report, NORM_SHIFT_MIXED, GARBAGE, "2 of 9 norms average");
    ck_assert_int_eq(finding(&l->report, NORM_SHIFT_MIXED, GARBAGE)->n_tensors, 2);
    linted_free(l);
    e = edit_gguf();                                             /* most of them: the others are still the right ones */
    each_norm(e, minus_one, 0, 4);
    l = lint_edit(e);
    assert_only_in(&l->report, NORM_SHIFT_MIXED, GARBAGE, "8 of 9 norms average");
    linted_free(l);
    e = edit_gguf();
    each_norm(e, plus_one, 2, 2);
    l = lint_edit(e);
    assert_only_in(&l->report, NORM_SHIFT_MIXED, GARBAGE, "5 of 9 norms average");
    ck_assert_int_eq(finding(&l->report, NORM_SHIFT_MIXED, GARBAGE)->n_tensors, 4);
    linted_free(l);
    e = edit_hf();
    for (int i = 0; i < e->n_tensors; i++)
        if (strstr(e->tensor[i].name, "layernorm.weight") || strcmp(e->tensor[i].name, "model.norm.weight") == 0)
            edit_each(e, e->tensor[i].name, plus_one);
    assert_only(e, NORM_SHIFT_TWICE, GARBAGE, "a folder holds w");
} END_TEST

START_TEST(head_norm_shifted) {
    Edit *e = edit_gguf();
    each_gdn(e, "ssm_norm.weight", plus_one);
    assert_only(e, HEAD_NORM_SHIFTED, GARBAGE, "3 GDN head norms");
    e = edit_gguf();
    edit_each(e, "blk.1.ssm_norm.weight", plus_one);             /* of one layer: a trained head norm may be anywhere */
    assert_clean(e);
    e = edit_gguf();
    edit_each(e, "blk.3.attn_q_norm.weight", plus_one);
    assert_clean(e);
} END_TEST

/* A file may keep an axis of one. */
START_TEST(norms_with_another_axis) {
    for (int shifted = 0; shifted < 2; shifted++) {
        Edit *e = edit_gguf();
        for (int i = 0; i < e->n_tensors; i++) {
            EditTensor *t = &e->tensor[i];
            if (!strstr(t->name, "norm.weight")) continue;
            t->dims = 2, t->shape[1] = t->shape[0], t->shape[0] = 1;
            if (shifted && !strstr(t->name, "ssm_norm")) edit_each(e, t->name, minus_one);
        }
        assert_only(e, shifted ? NORM_SHIFT_MISSING : LINT_IDS, GARBAGE, "expected near 1");
    }
} END_TEST

/* Norms that training has spread are not mixed. */
START_TEST(spread_norms_are_left_alone) {
    Edit *e = edit_gguf();
    for (int l = 0; l < 4; l++)
        for (int i = 0; i < 64; i++) {
            edit_set(edit_tensor(e, blk(l, "attn_norm.weight")), i, 0.6f + 0.3f * (float)l + 0.005f * (float)i);
            edit_set(edit_tensor(e, blk(l, "post_attention_norm.weight")), i, 0.7f + 0.3f * (float)l);
        }
    assert_clean(e);
    /* per norm its mean; a tenth of the values negative where that is low: two groups, but not one whole shift apart */
    static const float means[2][8] = { { 0.2f, 0.45f, 0.85f, 0.9f, 1, 1.1f, 1.15f, 1.2f }, { 0.1f, 1.7f, 1.7f, 1.7f, 1.7f, 1.7f, 1.7f, 1.7f } };
    for (int k = 0; k < 2; k++) {
        e = edit_gguf();
        for (int n = 0; n < 8; n++)
            for (int i = 0; i < 64; i++)
                edit_set(edit_tensor(e, blk(n / 2, n % 2 ? "attn_norm.weight" : "post_attention_norm.weight")), i,
                         means[k][n] + (means[k][n] > 0.5f ? 0 : i % 8 ? 0.1f : -0.7f));
        for (int i = 0; i < 64; i++) edit_set(edit_tensor(e, "output_norm.weight"), i, means[k][7]);
        assert_clean(e);
    }
} END_TEST

/* ---- single values ------------------------------------------------------------------------------------------------- */

START_TEST(nan_or_inf) {
    Edit *e = edit_gguf();
    edit_set(edit_tensor(e, "blk.2.ffn_down_exps.weight"), 2144, NAN);
    edit_set(edit_tensor(e, "blk.3.attn_q.weight"), 0, -INFINITY);
    Linted *l = lint_edit(e);
    assert_only_in(&l->report, NAN_OR_INF, GARBAGE, "1 of 8192 values are NaN or infinite, the first is element 2144 (row 67)");
    ck_assert_int_eq(finding(&l->report, NAN_OR_INF, GARBAGE)->n_tensors, 2);
    linted_free(l);
    e = edit_gguf();                                             /* in a norm: the average is that of the others */
    edit_set(edit_tensor(e, "blk.0.attn_norm.weight"), 3, NAN);
    assert_only(e, NAN_OR_INF, GARBAGE, "element 3 ");
    e = edit_hf();
    edit_set(edit_tensor(e, "model.layers.0.mlp.experts.down_proj"), 77, NAN);
    assert_only(e, NAN_OR_INF, GARBAGE, "element 77 ");
} END_TEST

START_TEST(all_zero) {
    Edit *e = edit_gguf();
    EditTensor *t = edit_tensor(e, "blk.1.attn_gate.weight");
    memset(t->data.data, 0, t->data.n);
    assert_only(e, ALL_ZERO, GARBAGE, "blk.1.attn_gate.weight: all 8192 values are zero");
    e = edit_gguf();
    t = edit_tensor(e, "blk.1.ffn_up_exps.weight");              /* expert 2 of 4 */
    memset(t->data.data + t->data.n / 2, 0, t->data.n / 4);
    assert_only(e, ALL_ZERO, GARBAGE, "1 of 4 experts are zero throughout, the first is 2");
    e = edit_gguf();
    t = edit_tensor(e, "blk.0.post_attention_norm.weight");
    memset(t->data.data, 0, t->data.n);
    assert_only(e, ALL_ZERO, GARBAGE, "post_attention_norm");
    e = edit_gguf();                                             /* a bias may be zero; so may w in a folder */
    t = edit_tensor(e, "blk.0.ssm_dt.bias");
    memset(t->data.data, 0, t->data.n);
    assert_clean(e);
    e = edit_hf();
    t = edit_tensor(e, "model.norm.weight");
    memset(t->data.data, 0, t->data.n);
    assert_clean(e);
} END_TEST

START_TEST(duplicate_experts) {
    Edit *e = edit_gguf();
    EditTensor *t = edit_tensor(e, "blk.1.ffn_down_exps.weight");
    const size_t each = t->data.n / 4;
    memcpy(t->data.data + 3 * each, t->data.data + each, each);
    assert_only(e, DUPLICATE_EXPERTS, GARBAGE, "blk.1.ffn_down_exps.weight: experts 1 and 3 are the same");
    e = edit_gguf();                                             /* all but one value */
    t = edit_tensor(e, "blk.1.ffn_down_exps.weight");
    memcpy(t->data.data + 3 * each, t->data.data + each, each);
    edit_set(t, (int64_t)(3 * each / 4) + 5, 9);
    assert_clean(e);
} END_TEST

/* A folder's experts one by one. */
START_TEST(separate_experts) {
    Edit *e = edit_hf();
    for (int l = 0; l < 4; l++) {
        char name[128];
        for (int x = 0; x < 4; x++)
            for (int k = 0; k < 3; k++) {
                static const char *const parts[] = { "gate_proj", "up_proj", "down_proj" };
                snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s.weight", l, x, parts[k]);
                EditTensor *t = edit_add(e, name, DT_F32, 2, k < 2 ? (const int64_t[]){ 32, 64 } : (const int64_t[]){ 64, 32 });
                char fused[128];
                snprintf(fused, sizeof fused, "model.layers.%d.mlp.experts.%s", l, k < 2 ? "gate_up_proj" : "down_proj");
                memcpy(t->data.data, edit_tensor(e, fused)->data.data + (k < 2 ? 2 * x + k : x) * 8192, 8192);
            }
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.gate_up_proj", l);
        edit_drop(e, name);
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.down_proj", l);
        edit_drop(e, name);
    }
    Linted *l = lint_path(edit_write(e));
    assert_only_in(&l->report, LINT_IDS, NOTE, "");
    linted_free(l);
    remove_folder(e->folder);
    memcpy(edit_tensor(e, "model.layers.1.mlp.experts.2.up_proj.weight")->data.data,
           edit_tensor(e, "model.layers.1.mlp.experts.0.up_proj.weight")->data.data, 8192);
    l = lint_path(edit_write(e));
    assert_only_in(&l->report, DUPLICATE_EXPERTS, GARBAGE, "experts 0 and 2 are the same");
    linted_free(l);
    remove_folder(e->folder);
    edit_drop(e, "model.layers.1.mlp.experts.2.up_proj.weight");
    l = lint_path(edit_write(e));
    assert_only_in(&l->report, TENSOR_MISSING, BREAKS, "layer 1 has up_proj.weight of 3 experts, of 4");
    linted_free(l);
    edit_free(e);
} END_TEST

/* What other orders leave in random values is nothing, and lint does not guess. */
START_TEST(orders_leave_no_trace) {
    Edit *e = edit_gguf();
    EditTensor *q = edit_tensor(e, "blk.3.attn_q.weight");
    for (int i = 0; i < 32 * 64; i++) {                          /* [q0 g0 q1 g1] to [q0 q1 g0 g1] */
        const float g0 = edit_get(q, 2048 + i), q1 = edit_get(q, 4096 + i);
        edit_set(q, 2048 + i, q1);
        edit_set(q, 4096 + i, g0);
    }
    for (int l = 0; l < 3; l++) {
        EditTensor *conv = edit_tensor(e, blk(l, "ssm_conv1d.weight"));
        for (int c = 0; c < 256; c++)
            for (int j = 0; j < 2; j++) {
                const float a = edit_get(conv, 4 * c + j);
                edit_set(conv, 4 * c + j, edit_get(conv, 4 * c + 3 - j));
                edit_set(conv, 4 * c + 3 - j, a);
            }
        EditTensor *rate = edit_tensor(e, blk(l, "ssm_a"));
        const float a = edit_get(rate, 1);
        edit_set(rate, 1, edit_get(rate, 2));
        edit_set(rate, 2, a);
    }
    assert_clean(e);
} END_TEST

Suite *lint_values_suite(void);
Suite *lint_values_suite(void) {
    Suite *s = suite_create("lint_values");
    TCase *t = tcase_create("values");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_log_raw);
    tcase_add_test(t, a_exp_twice);
    tcase_add_test(t, a_exp_twice_in_one_layer);
    tcase_add_test(t, small_and_large_rates_are_left_alone);
    tcase_add_test(t, norm_shifts);
    tcase_add_test(t, head_norm_shifted);
    tcase_add_test(t, norms_with_another_axis);
    tcase_add_test(t, spread_norms_are_left_alone);
    tcase_add_test(t, nan_or_inf);
    tcase_add_test(t, all_zero);
    tcase_add_test(t, duplicate_experts);
    tcase_add_test(t, separate_experts);
    tcase_add_test(t, orders_leave_no_trace);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(lint_values_suite()); }
