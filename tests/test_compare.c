/* test_compare.c - clover compare: every drift named, in four types and from both sides; what is faithful, what is not. [CMP-1] */
#include "commands.h"
#include "drift_files.h"

static char words[2048];

static json_t *said[16];             /* what a test asked for, freed behind it */
static int n_said;

static json_t *compare(const char *a, const char *b, int code) {
    snprintf(words, sizeof words, "compare %s %s --json", a, b);
    ck_assert_int_lt(n_said, 16);
    return json_object_get(said[n_said++] = run_json(cmd_compare, words, code), "tensors");
}

static void forget(void) { while (n_said > 0) json_decref(said[--n_said]); }

static const char *text_of_row(const json_t *row, const char *member) { return json_string_value(json_object_get(row, member)); }

static const json_t *row_of(const json_t *rows, const char *name) {
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
        if (strcmp(text_of_row(row, "name"), name) == 0) return row;
    ck_abort_msg("no row for %s", name);
    return NULL;
}

/* ---- drifts ------------------------------------------------------------------------------------------------------------------ */

/* Which tensors a drift touches, by an end of their names, and what it is called. */
static const struct { void (*drift)(Edit *e); const char *transform, *ends; int tensors; } drifts[] = {
    { drift_raw_a_log, "exp", "ssm_a", 3 }, { drift_exp_twice, "exp", "ssm_a", 3 }, { drift_exp_grown, "exp", "ssm_a", 3 },
    { drift_norms_plain, "shifted by 1", "norm.weight", 11 }, { drift_norms_twice, "shifted by 1", "norm.weight", 11 },
    { drift_head_norm, "shifted by 1", "ssm_norm.weight", 3 }, { drift_mixed, "shifted by 1", "blk.1.attn_norm.weight", 1 },
    { drift_heads, "heads permuted", "", 24 }, { drift_diffusion_heads, "heads permuted", "", 12 },
    { drift_query_gate, "split", "attn_q.weight", 1 }, { drift_conv, "reversed", "ssm_conv1d.weight", 3 },
    { drift_conv_turned, "transposed", "ssm_conv1d.weight", 3 }, { drift_gate_up, "swapped", "_exps.weight", 8 },
    { drift_experts, "experts permuted", "_exps.weight", 12 },
};
enum { DRIFTS = sizeof drifts / sizeof *drifts };

static void assert_named(const json_t *rows, int drift, bool quantised) {
    size_t i;
    json_t *row;
    int found = 0;
    json_array_foreach(rows, i, row) {
        const char *name = text_of_row(row, "name"), *transform = text_of_row(row, "transform"), *relation = text_of_row(row, "relation");
        ck_assert_msg(strcmp(relation, "different") != 0 && strcmp(relation, "absent") != 0, "drift %d: %s is %s", drift, name, relation);
        ck_assert_msg(quantised || strcmp(relation, "within-quantisation") != 0, "drift %d: %s is %s", drift, name, relation);
        if (!transform) continue;
        found++;
        ck_assert_msg(strcmp(transform, drifts[drift].transform) == 0, "drift %d: %s: %s", drift, name, transform);
        ck_assert_msg(strcmp(name + strlen(name) - strlen(drifts[drift].ends), drifts[drift].ends) == 0, "drift %d: %s is called %s", drift, name, transform);
    }
    ck_assert_msg(found == drifts[drift].tensors, "drift %d: %d tensors are named, expected %d", drift, found, drifts[drift].tensors);
}

/* Against the folder in four types, and from either side. */
START_TEST(drifts_are_named) {
    for (int type = 0; type < DRIFT_TYPES; type++) {
        Edit *e = drifted(drifts[_i].drift, drift_types[type]);
        const char *path = edit_write(e);
        assert_named(compare(path, GOOD_HF, 1), _i, type >= 1);
        if (type == 0) assert_named(compare(GOOD_HF, path, 1), _i, false);
        if (type == 2) assert_named(compare(path, GOOD_GGUF, 1), _i, true);
        if (type == 0) assert_named(compare(GOOD_GGUF, path, 1), _i, false);
        if (type == 0 && (drifts[_i].drift == drift_raw_a_log || drifts[_i].drift == drift_norms_plain)) {       /* not the right file's form applied twice */
            size_t i;
            json_t *row;
            const json_t *rows = compare(path, GOOD_GGUF, 1);
            json_array_foreach(rows, i, row)
                if (text_of_row(row, "transform")) ck_assert_str_eq(text_of_row(row, "transformed"), path);
        }
        edit_free(e);
    }
} END_TEST

/* Two drifts of one tensor are both named. */
START_TEST(two_transforms_at_once) {
    Edit *e = edit_gguf();
    drift_raw_a_log(e);
    drift_heads(e);
    const json_t *rows = compare(edit_write(e), GOOD_HF, 1), *row = row_of(rows, "blk.1.ssm_a");
    ck_assert_str_eq(text_of_row(row, "transform"), "exp, heads permuted");
    ck_assert_ptr_nonnull(strstr(text_of_row(row_of(rows, "blk.1.attn_gate.weight"), "detail"), "grouped"));     /* not just any order */
    edit_free(e);
} END_TEST

/* Rows and columns at once. */
START_TEST(heads_and_taps) {
    Edit *e = edit_gguf();
    drift_heads(e);
    drift_conv(e);
    const json_t *rows = compare(edit_write(e), GOOD_HF, 1);
    ck_assert_str_eq(text_of_row(row_of(rows, "blk.1.ssm_conv1d.weight"), "transform"), "heads permuted, reversed");
    edit_free(e);
} END_TEST

/* Any order of heads or experts is found, not only those met before. */
START_TEST(any_order_of_heads) {
    static const int64_t from[D_HV] = { 1, 3, 0, 2 };
    Edit *e = edit_gguf();
    move_units(edit_tensor(e, "blk.0.attn_gate.weight"), D_DV * D_HIDDEN * 4, D_HV, from);
    move_units(edit_tensor(e, "blk.0.ffn_gate_inp.weight"), D_HIDDEN * 4, D_E, from);
    const json_t *rows = compare(edit_write(e), GOOD_HF, 1);
    ck_assert_str_eq(text_of_row(row_of(rows, "blk.0.attn_gate.weight"), "transform"), "heads permuted");
    ck_assert_str_eq(text_of_row(row_of(rows, "blk.0.ffn_gate_inp.weight"), "transform"), "experts permuted");
    edit_free(e);
} END_TEST

START_TEST(gate_and_up_in_one_tensor) {
    Edit *e = edit_gguf();
    EditTensor *gate = edit_tensor(e, "blk.0.ffn_gate_exps.weight"), *up = edit_tensor(e, "blk.0.ffn_up_exps.weight");
    EditTensor *both = edit_add(e, "blk.0.ffn_gate_up_exps.weight", DT_F32, 3, (const int64_t[]){ D_E, 64, D_HIDDEN });
    const size_t half = gate->data.n / D_E;
    for (size_t i = 0; i < D_E; i++) {
        memcpy(both->data.data + 2 * i * half, gate->data.data + i * half, half);
        memcpy(both->data.data + (2 * i + 1) * half, up->data.data + i * half, half);
    }
    edit_drop(e, "blk.0.ffn_gate_exps.weight");
    edit_drop(e, "blk.0.ffn_up_exps.weight");
    const char *path = edit_write(e);
    ck_assert_str_eq(text_of_row(row_of(compare(GOOD_GGUF, path, 1), "blk.0.ffn_up_exps.weight"), "transform"), "merged");
    ck_assert_str_eq(text_of_row(row_of(compare(path, GOOD_GGUF, 1), "blk.0.ffn_up_exps.weight"), "transform"), "split");
    ck_assert_ptr_null(text_of_row(row_of(compare(path, GOOD_HF, 0), "blk.0.ffn_up_exps.weight"), "transform"));   /* HF has them in one: the formats' own difference */
    edit_free(e);
} END_TEST

/* ---- what is faithful ------------------------------------------------------------------------------------------------------------ */

static int count(const json_t *rows, const char *relation) {
    size_t i;
    json_t *row;
    int n = 0;
    json_array_foreach(rows, i, row) n += strcmp(text_of_row(row, "relation"), relation) == 0;
    return n;
}

START_TEST(right_exports_are_faithful) {
    ck_assert_int_eq(count(compare(GOOD_HF, GOOD_HF, 0), "identical"), 88);
    const json_t *rows = compare(GOOD_GGUF, GOOD_HF, 0);
    ck_assert_int_eq(count(rows, "identical"), 85);
    ck_assert_int_eq(count(rows, "equal"), 3);                   /* ssm_a is a float32 exp: 1 ulp */
    for (int type = 2; type < DRIFT_TYPES; type++) {
        Edit *e = drifted(NULL, drift_types[type]);
        const char *path = edit_write(e);
        rows = compare(path, GOOD_HF, 0);
        ck_assert_int_eq(count(rows, "within-quantisation"), 45);
        ck_assert_int_eq(count(rows, "identical"), 40);
        ck_assert_int_eq(count(compare(path, GOOD_GGUF, 0), "within-quantisation"), 45);
        edit_free(e);
    }
} END_TEST

/* What rounding costs is told, and measured about the same. */
START_TEST(expected_and_measured) {
    Edit *e = drifted(NULL, DT_Q4_0);
    const json_t *row = row_of(compare(edit_write(e), GOOD_HF, 0), "token_embd.weight");
    const double error = json_real_value(json_object_get(row, "error")), expected = json_real_value(json_object_get(row, "expected"));
    ck_assert(error > 0.07 && error < 0.1 && fabs(error - expected) < 1e-6);      /* Q4_0 of normal values: 0.086 */
    edit_free(e);
} END_TEST

/* Two quantisations of one model agree with each other as far as both round. */
START_TEST(two_quantisations) {
    Edit *a = drifted(NULL, DT_Q8_0), *b = drifted(NULL, DT_Q4_0);
    const char *path = edit_write(a);
    ck_assert_int_eq(count(compare(path, edit_write(b), 0), "within-quantisation"), 45);
    edit_free(a);
    edit_free(b);
} END_TEST

/* ---- what is not ------------------------------------------------------------------------------------------------------------------- */

static void assert_different(Edit *e, const char *name) {
    const json_t *rows = compare(edit_write(e), GOOD_HF, 1);
    ck_assert_str_eq(text_of_row(json_array_get(rows, 0), "name"), name);         /* the worst stands first */
    ck_assert_str_eq(text_of_row(json_array_get(rows, 0), "relation"), "different");
    ck_assert_int_eq(count(rows, "different"), 1);
    edit_free(e);
}

/* One element in a thousand rows is enough, quantised or not; so is an error everywhere that no single element shows. */
START_TEST(damage_is_not_quantisation) {
    Edit *e = edit_gguf();
    EditTensor *t = edit_tensor(e, "token_embd.weight");
    edit_set(t, 5000, edit_get(t, 5000) + 0.001f);
    assert_different(e, "token_embd.weight");
    e = edit_gguf();
    t = edit_tensor(e, "token_embd.weight");                     /* of standard deviation 1: as a share of the whole it is nothing */
    edit_set(t, 5000, edit_get(t, 5000) + 1);
    edit_store(e, DT_Q4_0);
    assert_different(e, "token_embd.weight");
    e = edit_gguf();
    t = edit_tensor(e, "blk.2.ffn_up_exps.weight");              /* of 1/8: no element is further off than Q4_0 can be */
    for (int64_t i = 0; i < (int64_t)t->data.n / 4; i++)
        if (fabsf(edit_get(t, i)) < 0.125f) edit_set(t, i, edit_get(t, i) + (i % 2 ? 0.019f : -0.019f));
    edit_store(e, DT_Q4_0);
    assert_different(e, "blk.2.ffn_up_exps.weight");
    e = drifted(drift_nan, DT_F32);
    assert_different(e, "blk.2.ffn_down_exps.weight");
} END_TEST

/* The next float is equal, the one after it is not. */
START_TEST(one_ulp) {
    for (int steps = 1; steps <= 2; steps++) {
        Edit *e = edit_gguf();
        EditTensor *t = edit_tensor(e, "blk.0.ssm_dt.bias");
        float x = edit_get(t, 2);
        for (int i = 0; i < steps; i++) x = nextafterf(x, 9);
        edit_set(t, 2, x);
        const json_t *rows = compare(edit_write(e), GOOD_HF, steps - 1);
        ck_assert_str_eq(text_of_row(row_of(rows, "blk.0.ssm_dt.bias"), "relation"), steps == 1 ? "equal" : "different");
        edit_free(e);
    }
} END_TEST

START_TEST(absent_extra_and_other_shapes) {
    Edit *e = edit_gguf();
    drift_missing(e);
    drift_vision(e);
    EditTensor *t = edit_tensor(e, "blk.0.ssm_norm.weight");
    t->shape[0] = 16;
    t->data.n /= 2;
    const char *path = edit_write(e);
    const json_t *rows = compare(path, GOOD_HF, 1), *row = row_of(rows, "blk.1.ssm_norm.weight");
    ck_assert_str_eq(text_of_row(row, "relation"), "absent");
    ck_assert_str_eq(text_of_row(row, "only_in"), GOOD_HF);
    ck_assert_str_eq(text_of_row(row_of(rows, "v.patch_embd.weight"), "only_in"), path);
    ck_assert_str_eq(text_of_row(row_of(rows, "blk.0.ssm_norm.weight"), "relation"), "different");
    ck_assert_str_eq(text_of_row(json_array_get(rows, 0), "relation"), "absent");
    edit_free(e);
} END_TEST

/* Numbers that no tensor shows. */
START_TEST(numbers_are_compared) {
    Edit *e = edit_gguf();
    edit_f32(e, "clover_moe.rope.freq_base", 10000);
    snprintf(words, sizeof words, "compare %s %s", edit_write(e), GOOD_HF);
    assert_run(cmd_compare, words, 1, "rope_base");
    edit_free(e);
    assert_run(cmd_compare, "compare no-such.gguf " GOOD_HF, 3, "no-such.gguf");
    assert_run(cmd_compare, "compare " GOOD_HF, 2, "B");
    assert_run(cmd_compare, "compare " GOOD_HF "/model.safetensors " GOOD_GGUF, 0, "85 identical");     /* tensors alone: the other says the numbers */
    assert_run(cmd_compare, "compare " GOOD_HF "/model.safetensors " GOOD_HF "/model.safetensors", 3, "config.json");
} END_TEST

START_TEST(out_of_memory) {
    Edit *e = drifted(drift_heads, DT_F32);
    snprintf(words, sizeof words, "compare %s %s", edit_write(e), GOOD_HF);
    assert_survives_without_memory(cmd_compare, words, NULL, 1);
    snprintf(words, sizeof words, "compare %s %s --json", edit_write(e), GOOD_HF);
    assert_survives_without_memory(cmd_compare, words, NULL, 1);
    edit_free(e);
} END_TEST

Suite *compare_suite(void) {
    Suite *s = suite_create("compare");
    TCase *c = tcase_create("compare");
    tcase_add_checked_fixture(c, NULL, forget);
    tcase_add_loop_test(c, drifts_are_named, 0, DRIFTS);
    tcase_add_test(c, two_transforms_at_once);
    tcase_add_test(c, heads_and_taps);
    tcase_add_test(c, any_order_of_heads);
    tcase_add_test(c, gate_and_up_in_one_tensor);
    tcase_add_test(c, right_exports_are_faithful);
    tcase_add_test(c, expected_and_measured);
    tcase_add_test(c, two_quantisations);
    tcase_add_test(c, damage_is_not_quantisation);
    tcase_add_test(c, one_ulp);
    tcase_add_test(c, absent_extra_and_other_shapes);
    tcase_add_test(c, numbers_are_compared);
    tcase_add_test(c, out_of_memory);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(compare_suite()); }
