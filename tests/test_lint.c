/* test_lint.c - clover lint: every finding that a header shows, by a fixture made from good.gguf or drifts/hf. [LNT-1 LNT-2] */
#include <math.h>
#include "../ref/files/quant.h"
#include "../tools/gguf_write.h"
#include "test_lint.h"

static const char *const diffusion[] = { "conv_right_weight", "bd_softmax_logit_scale", "bd_softmax_history_bias", "bd_softmax_history_c" };

static void drop_diffusion(Edit *e) {
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < 4; i++) edit_drop(e, blk(l, diffusion[i]));
}

/* Columns and rows of an F32 matrix exchanged, shape too. */
static void transpose(EditTensor *t) {
    const int64_t rows = t->shape[0], cols = t->shape[1];
    float *old = malloc(t->data.n);
    memcpy(old, t->data.data, t->data.n);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) edit_set(t, c * rows + r, old[r * cols + c]);
    t->shape[0] = cols;
    t->shape[1] = rows;
    free(old);
}

/* ---- what is right stays unnamed ----------------------------------------------------------------------------------- */

START_TEST(good_files_have_notes_only) {
    assert_clean(edit_gguf());
    assert_clean(edit_hf());
    Edit *e = edit_gguf();
    edit_ints(e, "clover_moe.attention.head_count_kv", (const int32_t[]){ 0, 0, 0, 1 }, 4);      /* by layer [CFG-9] */
    assert_clean(e);
    e = edit_gguf();
    drop_diffusion(e);                                           /* upstream's export */
    Linted *l = lint_edit(e);
    assert_only_in(&l->report, LINT_IDS, NOTE, "");
    ck_assert_int_eq(finding(&l->report, DIFFUSION_MISSING, NOTE)->hurts, PREVIEWS);
    linted_free(l);
    static const char *const shapes[] = { "three", "taps2", "recurrent" };
    for (int i = 0; i < 3; i++) {
        char path[128];
        snprintf(path, sizeof path, "tests/vectors/shapes/%s/hf", shapes[i]);
        l = lint_path(path);
        assert_ok(l->status, l->err);
        assert_only_in(&l->report, LINT_IDS, NOTE, "");
        linted_free(l);
    }
} END_TEST

START_TEST(diffusion_tensors_are_a_note_for_llama_cpp) {
    Linted *l = lint_edit(edit_gguf());
    ck_assert_int_eq(finding(&l->report, TENSOR_EXTRA, NOTE)->hurts, LLAMA_CPP);
    ck_assert_int_eq(l->report.n, 1);
    linted_free(l);
} END_TEST

/* ---- keys ---------------------------------------------------------------------------------------------------------- */

START_TEST(key_missing) {
    Edit *e = edit_gguf();
    edit_drop_key(e, "clover_moe.expert_shared_count");
    Linted *l = lint_edit(e);
    assert_only_in(&l->report, KEY_MISSING, BREAKS, "expert_shared_count is not there");
    ck_assert_int_eq(finding(&l->report, KEY_MISSING, BREAKS)->hurts, LLAMA_CPP);      /* this tool reads 1 */
    linted_free(l);
    static const struct { const char *key, *text; } keys[] = {
        { "expert_count", "the tensors say 4" },        { "embedding_length", "the tensors say 64" }, { "attention.head_count", "the tensors say 2" },
        { "attention.key_length", "the tensors say 32" }, { "attention.head_count_kv", "the tensors say 1" },
        { "ssm.conv_kernel", "the tensors say 4" },
        { "ssm.group_count", "the tensors say 2" },     { "ssm.state_size", "the tensors say 32" },   { "ssm.time_step_rank", "the tensors say 4" },
        { "ssm.inner_size", "the tensors say 128" },    { "expert_feed_forward_length", "the tensors say 32" }, { "context_length", "is not there" },
        { "expert_used_count", "is not there" },        { "rope.freq_base", "is not there" },
        { "attention.layer_norm_rms_epsilon", "is not there" },
        { "full_attention_interval", "the tensors follow 4" }, { "attention.value_length", "is not there" },
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char name[128];
        snprintf(name, sizeof name, "clover_moe.%s", keys[i].key);
        e = edit_gguf();
        edit_drop_key(e, name);
        assert_only(e, KEY_MISSING, BREAKS, keys[i].text);
    }
    e = edit_hf();
    edit_config(e, "num_experts", NULL);
    assert_only(e, KEY_MISSING, BREAKS, "num_experts is not there; the tensors say 4");
    e = edit_hf();
    json_decref(e->config);
    e->config = NULL;
    assert_only(e, KEY_MISSING, BREAKS, "config.json is not there");
} END_TEST

START_TEST(key_contradicts) {
    static const struct { const char *key; uint32_t value; const char *text; } keys[] = {
        { "expert_count", 8, "all 16 tensors that show it say 4" }, { "embedding_length", 128, "say 64" }, { "attention.head_count", 4, "say 2" },
        { "attention.head_count_kv", 2, "say 1" },                  { "ssm.inner_size", 64, "say 128" },  { "ssm.conv_kernel", 3, "say 4" },
        { "ssm.group_count", 4, "times ssm.state_size 32 is 128" }, { "ssm.time_step_rank", 8, "say 4" },
        { "expert_feed_forward_length", 16, "say 32" },
        { "expert_used_count", 9, "9 of 4 experts" },               { "block_count", 6, "tensors of 4 layers only" },
        { "block_count", 3, "tensors of 4 layers" },
        { "expert_shared_count", 0, "expert_shared_count is 0" },   { "expert_count", 0, "no number that makes sense" },
        { "rope.dimension_count", 64, "64 rotary dims of a head of 32" }, { "attention.value_length", 16, "value_length is 16" },
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char name[128];
        snprintf(name, sizeof name, "clover_moe.%s", keys[i].key);
        Edit *e = edit_gguf();
        edit_u32(e, name, keys[i].value);
        assert_only(e, KEY_CONTRADICTS, BREAKS, keys[i].text);
    }
    Edit *e = edit_gguf();
    edit_u32(e, "clover_moe.rope.dimension_count", 32);           /* the whole head: loads and answers garbage */
    assert_only(e, KEY_CONTRADICTS, GARBAGE, "the sections (pairs) say 8");
    e = edit_gguf();
    edit_u32(e, "tokenizer.ggml.eos_token_id", 400);
    assert_only(e, KEY_CONTRADICTS, BREAKS, "outside the vocabulary");
    e = edit_gguf();
    edit_bool(e, "clover_moe.expert_weights_norm", false);       /* only the loader knows this one */
    assert_only(e, KEY_CONTRADICTS, BREAKS, "clover refuses it");
    e = edit_hf();
    edit_config(e, "vocab_size", "300");
    assert_only(e, KEY_CONTRADICTS, BREAKS, "vocab_size is 300, all 2 tensors that show it say 272");
} END_TEST

START_TEST(rotary_dims) {
    Edit *e = edit_gguf();
    edit_drop_key(e, "clover_moe.rope.dimension_count");
    assert_only(e, ROPE_DIMS_MISSING, GARBAGE, "the sections say 8");
    const int32_t three[] = { 2, 1, 1 };
    e = edit_gguf();
    edit_ints(e, "clover_moe.rope.dimension_sections", three, 3);
    Linted *l = lint_edit(e);                                    /* llama.cpp answers the same with it: a note */
    assert_only_in(&l->report, LINT_IDS, NOTE, "");
    ck_assert_ptr_nonnull(strstr(finding(&l->report, ROPE_SECTIONS_FORM, NOTE)->evidence[0], "has 3 entries"));
    linted_free(l);
    e = edit_gguf();
    edit_string(e, "clover_moe.rope.dimension_sections", "11,11,10");
    assert_only(e, ROPE_SECTIONS_FORM, BREAKS, "no list of whole numbers");
} END_TEST

START_TEST(interval_contradicts) {
    Edit *e = edit_gguf();
    edit_u32(e, "clover_moe.full_attention_interval", 2);
    assert_only(e, INTERVAL_CONTRADICTS, BREAKS, "the tensors follow interval 4: 1 of 4 layers are of the other kind (1)");
    const bool recurrent[] = { true, true, false, true };
    e = edit_gguf();
    edit_drop_key(e, "clover_moe.full_attention_interval");
    edit_bools(e, "clover_moe.attention.recurrent_layers", recurrent, 4);
    assert_only(e, INTERVAL_CONTRADICTS, BREAKS, "2 of 4 layers are of the other kind (2, 3)");
    e = edit_gguf();
    edit_bools(e, "clover_moe.attention.recurrent_layers", recurrent, 3);
    assert_only(e, INTERVAL_CONTRADICTS, BREAKS, "3 entries for 4 layers");
    e = edit_hf();
    edit_config(e, "full_attention_interval", NULL);
    edit_config(e, "layer_types", "[\"linear_attention\", \"full_attention\", \"linear_attention\", \"full_attention\"]");
    assert_only(e, INTERVAL_CONTRADICTS, BREAKS, "layer_types, but the tensors follow interval 4");
} END_TEST

/* ---- tensors ------------------------------------------------------------------------------------------------------- */

START_TEST(tensor_missing) {
    static const char *const names[] = { "blk.1.ssm_norm.weight", "blk.3.attn_k.weight", "blk.0.ffn_gate_inp.weight", "blk.2.ffn_up_exps.weight",
                                         "blk.2.ffn_down_exps.weight", "token_embd.weight", "output_norm.weight" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Edit *e = edit_gguf();
        edit_drop(e, names[i]);
        assert_only(e, TENSOR_MISSING, BREAKS, names[i]);
    }
    Edit *e = edit_hf();
    edit_drop(e, "lm_head.weight");                              /* config.json says that it is not tied */
    assert_only(e, TENSOR_MISSING, BREAKS, "lm_head.weight is not there");
    e = edit_hf();
    edit_drop(e, "model.layers.2.linear_attn.A_log");
    assert_only(e, TENSOR_MISSING, BREAKS, "model.layers.2.linear_attn.A_log is not there");
} END_TEST

START_TEST(tensor_extra) {
    Edit *e = edit_gguf();
    edit_add(e, "blk.0.mystery.weight", DT_F32, 1, (const int64_t[]){ 64 });
    Linted *l = lint_edit(e);
    assert_only_in(&l->report, TENSOR_EXTRA, BREAKS, "has no role");
    ck_assert_int_eq(finding(&l->report, TENSOR_EXTRA, BREAKS)->hurts, LLAMA_CPP);
    linted_free(l);
    e = edit_gguf();
    edit_add(e, "blk.3.attn_q.bias", DT_F32, 1, (const int64_t[]){ 128 });
    l = lint_edit(e);
    assert_only_in(&l->report, TENSOR_EXTRA, BREAKS, "would change what the model computes");
    ck_assert_int_eq(finding(&l->report, TENSOR_EXTRA, BREAKS)->hurts, LLAMA_CPP | CLOVER);
    linted_free(l);
    e = edit_gguf();
    edit_set(edit_add(e, "blk.1.attn_q.weight", DT_F32, 2, (const int64_t[]){ 128, 64 }), 0, 1);
    assert_only(e, TENSOR_EXTRA, BREAKS, "in a layer of the other kind");
    e = edit_gguf();
    edit_add(e, "blk.0.ssm_dt", DT_F32, 1, (const int64_t[]){ 4 });
    l = lint_edit(e);
    ck_assert_ptr_nonnull(strstr(finding(&l->report, TENSOR_EXTRA, BREAKS)->evidence[0], "second tensor for its role"));
    linted_free(l);
    e = edit_hf();
    edit_add(e, "model.layers.0.mystery", DT_F32, 1, (const int64_t[]){ 64 });
    assert_clean(e);
} END_TEST

START_TEST(tensor_shape) {
    Edit *e = edit_gguf();
    transpose(edit_tensor(e, "blk.3.attn_k.weight"));
    assert_only(e, TENSOR_SHAPE, BREAKS, "blk.3.attn_k.weight is [64, 32], expected [32, 64]: it is transposed");
    e = edit_gguf();
    EditTensor *t = edit_tensor(e, "blk.1.attn_norm.weight");
    t->shape[0] = 32;
    t->data.n = 128;
    assert_only(e, TENSOR_SHAPE, BREAKS, "is [32], expected [64]");
    e = edit_hf();
    transpose(edit_tensor(e, "model.layers.3.self_attn.v_proj.weight"));
    assert_only(e, TENSOR_SHAPE, BREAKS, "it is transposed");
} END_TEST

START_TEST(conv_layout) {
    for (int all = 0; all < 2; all++) {
        Edit *e = edit_gguf();
        if (all) drop_diffusion(e);                              /* then no other tensor says how many taps there are */
        for (int l = 0; l < (all ? 3 : 1); l++) transpose(edit_tensor(e, blk(l, "ssm_conv1d.weight")));
        assert_only(e, CONV_LAYOUT, BREAKS, "is [4, 256], expected [256, 4]");
    }
    Edit *e = edit_gguf();
    EditTensor *t = edit_tensor(e, "blk.0.ssm_conv1d.weight");
    t->dims = 3;
    t->shape[1] = 1;
    t->shape[2] = 4;
    Linted *l = lint_edit(e);
    assert_only_in(&l->report, CONV_LAYOUT, BREAKS, "middle axis of one should be gone");
    ck_assert_int_eq(finding(&l->report, CONV_LAYOUT, BREAKS)->hurts, LLAMA_CPP);
    linted_free(l);
} END_TEST

START_TEST(name_form) {
    Edit *e = edit_gguf();
    for (int l = 0; l < 3; l++) edit_rename(e, blk(l, "ssm_dt.bias"), blk(l, "ssm_dt"));
    Linted *l = lint_edit(e);
    assert_only_in(&l->report, NAME_FORM, BREAKS, "blk.0.ssm_dt, expected blk.0.ssm_dt.bias");
    ck_assert_int_eq(finding(&l->report, NAME_FORM, BREAKS)->n_tensors, 3);
    ck_assert_int_eq(finding(&l->report, NAME_FORM, BREAKS)->hurts, LLAMA_CPP);
    linted_free(l);
    e = edit_gguf();
    edit_rename(e, "blk.3.attn_k.weight", "model.layers.3.self_attn.k_proj.weight");
    l = lint_edit(e);
    assert_only_in(&l->report, NAME_FORM, BREAKS, "expected blk.3.attn_k.weight");
    ck_assert_int_eq(finding(&l->report, NAME_FORM, BREAKS)->hurts, LLAMA_CPP | CLOVER);
    linted_free(l);
} END_TEST

START_TEST(bundled_parts) {
    Edit *e = edit_gguf();
    edit_add(e, "mtp.fc.weight", DT_F32, 2, (const int64_t[]){ 64, 128 });
    assert_only(e, MTP_BUNDLED, BREAKS, "mtp.fc.weight");
    e = edit_gguf();
    edit_add(e, "v.blk.0.attn_q.weight", DT_F32, 2, (const int64_t[]){ 64, 64 });
    assert_only(e, VISION_BUNDLED, BREAKS, "v.blk.0.attn_q.weight");
    e = edit_hf();                                               /* a folder may have them: loaders pass them over */
    edit_add(e, "mtp.fc.weight", DT_F32, 2, (const int64_t[]){ 64, 128 });
    edit_add(e, "model.visual.x.weight", DT_F32, 2, (const int64_t[]){ 64, 64 });
    Linted *l = lint_edit(e);
    assert_only_in(&l->report, LINT_IDS, NOTE, "");
    finding(&l->report, MTP_BUNDLED, NOTE);
    finding(&l->report, VISION_BUNDLED, NOTE);
    linted_free(l);
} END_TEST

/* A fifth layer that copies the attention layer: the prediction block, with and without its key, its own tensors, its name. */
static Edit *with_block(bool nextn_tensors) {
    Edit *e = edit_gguf();
    const int n = e->n_tensors;
    for (int i = 0; i < n; i++) {
        if (strncmp(e->tensor[i].name, "blk.3.", 6) != 0) continue;
        const EditTensor *from = &e->tensor[i];
        char name[140];
        snprintf(name, sizeof name, "blk.4.%s", from->name + 6);
        EditTensor *t = edit_add(e, name, DT_F32, from->dims, from->shape);
        memcpy(t->data.data, from->data.data, from->data.n);
    }
    if (nextn_tensors) edit_set(edit_add(e, "blk.4.nextn.eh_proj.weight", DT_F32, 2, (const int64_t[]){ 64, 128 }), 0, 1);
    edit_u32(e, "clover_moe.block_count", 5);
    return e;
}

START_TEST(prediction_blocks) {
    Edit *e = with_block(true);
    edit_u32(e, "clover_moe.nextn_predict_layers", 1);
    assert_only(e, MTP_BUNDLED, BREAKS, "nextn_predict_layers is 1");
    assert_only(with_block(true), MTP_BUNDLED, BREAKS, "layer 4 has nextn tensors");
    e = with_block(false);
    Linted *l = lint_edit(e);
    assert_only_in(&l->report, MTP_BUNDLED, BREAKS, "layer 4, the last, has attention tensors");
    ck_assert_int_eq(finding(&l->report, MTP_BUNDLED, BREAKS)->n_tensors, 16);
    linted_free(l);
} END_TEST

START_TEST(diffusion_partial) {
    Edit *e = edit_gguf();
    edit_drop(e, "blk.1.bd_softmax_history_c");
    assert_only(e, DIFFUSION_PARTIAL, BREAKS, "11 of 12");
    e = edit_hf();
    edit_drop(e, "model.layers.0.linear_attn.conv_right_weight");
    assert_only(e, DIFFUSION_PARTIAL, BREAKS, "11 of 12");
} END_TEST

/* ---- types --------------------------------------------------------------------------------------------------------- */

static void requantise(EditTensor *t, DType type) {
    const int64_t n = (int64_t)t->data.n / 4;
    const size_t bytes = (size_t)dtype_bytes(type, n);
    uint8_t *out = malloc(bytes);
    ck_assert(quant_encode(type, (const float *)(const void *)t->data.data, n, out));
    t->data.n = 0;
    put_bytes(&t->data, out, bytes);
    t->type = type;
    free(out);
}

/* As a right export does it: matrices and experts, alpha and beta, nothing else. */
static Edit *requantised(DType type, Edit *e) {
    for (int i = 0; i < e->n_tensors && type != DT_F32; i++) {
        EditTensor *t = &e->tensor[i];
        if (t->dims >= 2 && !strstr(t->name, "ffn_gate_inp") && !strstr(t->name, "conv")) requantise(t, type);
    }
    return e;
}

START_TEST(quantised_router) {
    Edit *e = edit_gguf();
    requantise(edit_tensor(e, "blk.1.ffn_gate_inp.weight"), DT_Q8_0);
    assert_only(e, ROUTER_QUANTISED, QUALITY, "blk.1.ffn_gate_inp.weight is Q8_0, expected F32");
    e = edit_gguf();
    requantise(edit_tensor(e, "blk.1.ffn_gate_inp.weight"), DT_BF16);
    requantise(edit_tensor(e, "blk.0.ssm_conv1d.weight"), DT_F16);
    requantise(edit_tensor(e, "output_norm.weight"), DT_F16);
    Linted *l = lint_edit(e);
    assert_only_in(&l->report, ROUTER_QUANTISED, QUALITY, "blk.1.ffn_gate_inp.weight is BF16, expected F32");
    ck_assert_int_eq(finding(&l->report, ROUTER_QUANTISED, QUALITY)->n_tensors, 3);
    linted_free(l);
} END_TEST

START_TEST(quantised_alpha_and_beta) {
    Edit *e = edit_gguf(); requantise(edit_tensor(e, "blk.0.ssm_alpha.weight"), DT_Q4_0);
    requantise(edit_tensor(e, "blk.2.ssm_beta.weight"), DT_Q8_0);
    Linted *l = lint_edit(e);
    assert_only_in(&l->report, ALPHA_BETA_QUANTISED, QUALITY, "blk.0.ssm_alpha.weight is Q4_0, 4.5 bits");
    ck_assert_int_eq(finding(&l->report, ALPHA_BETA_QUANTISED, QUALITY)->n_tensors, 2);
    linted_free(l);
    e = edit_gguf(); requantise(edit_tensor(e, "blk.0.ssm_alpha.weight"), DT_F16);
    Linted *half = lint_edit(e);
    ck_assert(!report_has(&half->report, ALPHA_BETA_QUANTISED));
    linted_free(half);
    l = lint_edit(requantised(DT_Q8_0, edit_gguf()));            /* they follow the file's type: a note */
    assert_only_in(&l->report, LINT_IDS, NOTE, "");
    ck_assert_int_eq(finding(&l->report, ALPHA_BETA_QUANTISED, NOTE)->n_tensors, 6);
    linted_free(l);
    e = edit_gguf();                                             /* finer than most matrices, as good files have them: nothing */
    for (int i = 0; i < e->n_tensors; i++) {
        const char *n = e->tensor[i].name;
        if (e->tensor[i].dims >= 2 && !strstr(n, "ffn_gate_inp") && !strstr(n, "conv"))
            requantise(&e->tensor[i], strstr(n, "ssm_alpha") || strstr(n, "ssm_beta") ? DT_Q8_0 : DT_Q4_0);
    }
    l = lint_edit(e);
    ck_assert(!report_has(&l->report, ALPHA_BETA_QUANTISED));
    linted_free(l);
} END_TEST

/* The drifts of the public case and its kin, in every type: exactly their finding. */
static const DType types[] = { DT_F32, DT_BF16, DT_Q8_0, DT_Q4_0 };

START_TEST(drifts_in_every_type) {
    const DType type = types[_i];
    assert_clean(requantised(type, edit_gguf()));
    Edit *e = edit_gguf();
    edit_drop_key(e, "clover_moe.expert_shared_count");
    assert_only(requantised(type, e), KEY_MISSING, BREAKS, "expert_shared_count");
    e = edit_gguf();
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < 4; i++) {
            EditTensor *t = edit_tensor(e, blk(l, "ssm_a"));
            edit_set(t, i, logf(-edit_get(t, i)));
        }
    assert_only(requantised(type, e), A_LOG_RAW, GARBAGE, "7 of 12 values");
    e = edit_gguf();
    for (int i = 0; i < e->n_tensors; i++) {
        EditTensor *t = &e->tensor[i];
        if (!strstr(t->name, "norm.weight") || strstr(t->name, "ssm_norm")) continue;
        for (size_t k = 0; k < t->data.n / 4; k++) edit_set(t, (int64_t)k, edit_get(t, (int64_t)k) - 1);
    }
    assert_only(requantised(type, e), NORM_SHIFT_MISSING, GARBAGE, "expected near 1");
    e = edit_gguf();
    edit_drop_key(e, "clover_moe.rope.dimension_count");
    assert_only(requantised(type, e), ROPE_DIMS_MISSING, GARBAGE, "rope.dimension_count");
    e = requantised(type, edit_gguf());                          /* a row of an expert */
    EditTensor *t = edit_tensor(e, "blk.2.ffn_down_exps.weight");
    const size_t row = t->data.n / 256, at = 67 * row;
    if (type == DT_F32 || type == DT_BF16) memset(t->data.data + at, 0xff, row);
    else t->data.data[at] = 0xff, t->data.data[at + 1] = 0x7f;   /* the block's scale: a NaN half */
    assert_only(e, NAN_OR_INF, GARBAGE, "(row 67)");
    e = edit_gguf();
    edit_drop(e, "blk.1.ssm_norm.weight");
    assert_only(requantised(type, e), TENSOR_MISSING, BREAKS, "blk.1.ssm_norm.weight");
} END_TEST

/* A type that cannot be decoded is no obstacle, and said. */
START_TEST(undecodable_types_are_said) {
    Edit *e = edit_gguf();
    EditTensor *t = edit_tensor(e, "output.weight");
    t->type = (DType)16;                                         /* IQ2_XXS: 256 values in 66 bytes */
    t->shape[0] = 68;
    t->shape[1] = 256;
    t->data.n = 68 * 66;
    Linted *l = lint_edit(e);
    assert_ok(l->status, l->err);
    ck_assert_ptr_nonnull(strstr((const char *)l->report.remark.data, "1 tensors of type IQ2_XXS"));
    linted_free(l);
} END_TEST

/* ---- tokenizer ----------------------------------------------------------------------------------------------------- */

static EditKey *edit_key(Edit *e, const char *name) {
    for (int i = 0; i < e->n_keys; i++)
        if (strcmp(e->key[i].name, name) == 0) return &e->key[i];
    ck_abort_msg("no key %s", name);
    return NULL;
}

START_TEST(tokenizer) {
    Edit *e = edit_gguf();
    EditKey *tokens = edit_key(e, "tokenizer.ggml.tokens");
    size_t at = 0;
    for (int i = 0; i < 270; i++) at += 8 + tokens->value.data[at];      /* all are shorter than 256 bytes */
    tokens->value.n = at;
    tokens->count = 270;
    assert_only(e, TOKEN_TABLE_SIZE, BREAKS, "270 tokens, 272 embedding rows");
    e = edit_gguf();
    edit_string(e, "tokenizer.ggml.pre", "qwen2");
    assert_only(e, TOKENIZER_PRE, QUALITY, "is 'qwen2', expected 'qwen35'");
    e = edit_gguf();
    edit_drop_key(e, "tokenizer.ggml.pre");
    assert_only(e, TOKENIZER_PRE, QUALITY, "is not there");
    e = edit_gguf();
    edit_drop_key(e, "tokenizer.ggml.merges");
    assert_only(e, MERGES_MISSING, BREAKS, "tokenizer.ggml.merges is not there");
    e = edit_gguf();
    edit_drop_key(e, "tokenizer.ggml.eos_token_id");
    assert_only(e, EOS_MISSING, QUALITY, "none of");
    e = edit_hf();
    edit_config(e, "eos_token_id", NULL);
    edit_generation(e, "eos_token_id", NULL);
    assert_only(e, EOS_MISSING, QUALITY, "eos_token_id");
} END_TEST

/* tokenizer.json of tiny-a's kind with one text replaced by another. */
static void put_tokenizer(const char *path, const char *from, const char *to) {
    Bytes b = read_file(GOOD_HF "/tokenizer.json"), out = { 0 };
    const size_t n = strlen(from);
    bool found = false;
    for (size_t i = 0; i < b.n; i++) {
        const bool here = n && i + n <= b.n && memcmp(b.data + i, from, n) == 0;
        if (here) put_text(&out, to);
        else put_bytes(&out, b.data + i, 1);
        if (here) i += n - 1, found = true;
    }
    ck_assert(found || n == 0);
    write_file(in_folder(path, "tokenizer.json"), out.data, out.n);
    free_bytes(&b);
    free_bytes(&out);
}

START_TEST(tokenizer_of_a_folder) {
    static const struct { const char *from, *to; LintId id; Severity severity; const char *text; } cases[] = {
        { "", "", LINT_IDS, NOTE, "" },
        { "\\\\p{M}]+", "]+", TOKENIZER_PRE, QUALITY, "another pattern" },
        { "\"merges\"", "\"murges\"", MERGES_MISSING, BREAKS, "clover refuses it" },
        { "\"Split\"", "\"Splat\"", TOKENIZER_PRE, BREAKS, "clover refuses it" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Edit *e = edit_hf();
        const char *path = edit_write(e);
        put_tokenizer(path, cases[i].from, cases[i].to);
        Linted *l = lint_path(path);
        assert_ok(l->status, l->err);
        assert_only_in(&l->report, cases[i].id, cases[i].severity, cases[i].text);
        linted_free(l);
        edit_free(e);
    }
} END_TEST

START_TEST(mask_unknown) {
    Edit *e = edit_gguf();
    EditKey *tokens = edit_key(e, "tokenizer.ggml.tokens");
    for (size_t i = 0; i + 8 <= tokens->value.n; i++)
        if (memcmp(tokens->value.data + i, "<|mask|>", 8) == 0) tokens->value.data[i + 3] = 'u';
    Linted *l = lint_edit(e);
    assert_only_in(&l->report, MASK_UNKNOWN, BREAKS, "nor a token <|mask|>");
    ck_assert_int_eq(finding(&l->report, MASK_UNKNOWN, BREAKS)->hurts, PREVIEWS);
    linted_free(l);
    e = edit_hf();
    edit_config(e, "mask_token_id", NULL);                       /* and no tokenizer.json beside it */
    assert_only(e, MASK_UNKNOWN, BREAKS, "no mask_token_id");
    e = edit_gguf();
    drop_diffusion(e);
    edit_drop_key(e, "tokenizer.ggml.tokens");
    edit_drop_key(e, "tokenizer.ggml.token_type");
    assert_only(e, KEY_MISSING, BREAKS, "tokenizer.ggml.tokens");  /* without previews no mask is needed */
} END_TEST

/* ---- incomplete and damaged files ---------------------------------------------------------------------------------- */

static char folder[TEST_PATH];
static void new_folder(void) { make_folder("lint", folder); }
static void old_folder(void) { remove_folder(folder); }

/* good.gguf in parts of at most so many bytes of tensors. */
static void write_split(const char *path, uint64_t split) {
    CloverError err;
    Gguf *g;
    assert_ok(gguf_open(GOOD_GGUF, &g, &err), err);
    GgufWriter *w = gguf_writer_new();
    const TensorList t = gguf_tensors(g);
    for (int64_t i = 0; i < gguf_n_keys(g); i++) {
        const GgufKey *k = gguf_key_at(g, i);
        gguf_put_raw(w, k->name, k->type, k->element, k->count, k->data, k->bytes);
    }
    for (int64_t i = 0; i < t.n; i++) gguf_add_tensor(w, t.tensor[i].name, t.tensor[i].type, t.tensor[i].dims, t.tensor[i].shape);
    assert_ok(gguf_writer_begin(w, path, 0, split, false, &err), err);
    for (int64_t i = 0; i < t.n; i++) assert_ok(gguf_writer_write(w, t.tensor[i].data, t.tensor[i].bytes, &err), err);
    assert_ok(gguf_writer_finish(w, &err), err);
    gguf_writer_free(w);
    gguf_close(g);
}

START_TEST(split_files) {
    write_split(in_folder(folder, "m.gguf"), 400000);
    const char *second = in_folder(folder, "m-00002-of-00003.gguf");
    Linted *l = lint_path(second);
    assert_ok(l->status, l->err);
    assert_only_in(&l->report, LINT_IDS, NOTE, "");
    ck_assert_int_eq(l->file.tensors.n, 88);
    linted_free(l);
    ck_assert_int_eq(unlink(second), 0);
    l = lint_path(in_folder(folder, "m-00001-of-00003.gguf"));
    assert_ok(l->status, l->err);
    assert_only_in(&l->report, SPLIT_PART_MISSING, BREAKS, "'m-00002-of-00003.gguf', part 2 of 3, is not there");
    linted_free(l);
    ck_assert_int_eq(rename(in_folder(folder, "m-00001-of-00003.gguf"), in_folder(folder, "renamed.gguf")), 0);
    l = lint_path(in_folder(folder, "renamed.gguf"));
    assert_only_in(&l->report, SPLIT_PART_MISSING, BREAKS, "split.count is 3");
    linted_free(l);
} END_TEST

START_TEST(shards) {
    Edit *e = edit_hf();
    const char *path = edit_write(e);
    Bytes weights = read_file(in_folder(path, "model.safetensors"));
    ck_assert_int_eq(rename(in_folder(path, "model.safetensors"), in_folder(path, "model-00001-of-00002.safetensors")), 0);
    Linted *l = lint_path(path);
    assert_only_in(&l->report, SPLIT_PART_MISSING, BREAKS, "model-00002-of-00002.safetensors");
    linted_free(l);
    const char index[] = "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\", \"b\": \"other.safetensors\"}}";
    write_file(in_folder(path, "model.safetensors.index.json"), index, strlen(index));
    l = lint_path(path);
    assert_only_in(&l->report, SPLIT_PART_MISSING, BREAKS, "shard 'other.safetensors' is not there");
    linted_free(l);
    unlink(in_folder(path, "model.safetensors.index.json"));
    unlink(in_folder(path, "model-00001-of-00002.safetensors"));
    write_file(in_folder(path, "model.safetensors"), weights.data, weights.n - 1000);
    l = lint_path(path);
    assert_only_in(&l->report, TRUNCATED, BREAKS, "behind its file's end");
    linted_free(l);
    write_file(in_folder(path, "model.safetensors"), weights.data, 3000);
    l = lint_path(path);
    assert_only_in(&l->report, TRUNCATED, BREAKS, "its header needs");
    linted_free(l);
    free_bytes(&weights);
    edit_free(e);
} END_TEST

static Linted *lint_bytes(const Bytes *b, size_t n) {
    const char *path = in_folder(folder, "bytes.gguf");
    write_file(path, b->data, n);
    return lint_path(path);
}

START_TEST(truncated_files) {
    Bytes good = read_file(GOOD_GGUF);
    Linted *l = lint_bytes(&good, good.n - 5000);
    assert_ok(l->status, l->err);
    assert_only_in(&l->report, TRUNCATED, BREAKS, "behind the file's end");
    ck_assert_ptr_nonnull(strstr((const char *)l->report.remark.data, "not in the file"));
    linted_free(l);
    /* cut in the header: what is there is read, and nothing is said to be missing */
    CloverError err;
    Gguf *g;
    assert_ok(gguf_open(GOOD_GGUF, &g, &err), err);
    const size_t header = gguf_tensors(g).tensor[0].offset - 32;
    gguf_close(g);
    for (size_t n = 24; n < header; n += 97) {
        l = lint_bytes(&good, n);
        assert_ok(l->status, l->err);
        assert_only_in(&l->report, TRUNCATED, BREAKS, "needs");
        linted_free(l);
    }
    for (size_t n = 1; n < 24; n++) {
        l = lint_bytes(&good, n);
        assert_status(l->status, CLOVER_BAD_INPUT, l->err);
        linted_free(l);
    }
    free_bytes(&good);
} END_TEST

/* Where the offset of a tensor stands in the header of good.gguf's bytes. */
static size_t offset_of(const Bytes *b, const char *name) {
    const size_t n = strlen(name);
    for (size_t i = 0; i + n < 20000; i++)
        if (memcmp(b->data + i, name, n) == 0) return i + n + 4 + 8 * (size_t)le32(b->data + i + n) + 4;
    ck_abort_msg("no %s", name);
    return 0;
}

START_TEST(alignment) {
    Bytes good = read_file(GOOD_GGUF);
    const size_t at = offset_of(&good, "blk.1.attn_norm.weight");
    const uint8_t old = good.data[at];
    good.data[at] = (uint8_t)(old + 1);
    Linted *l = lint_bytes(&good, good.n);
    assert_only_in(&l->report, ALIGNMENT, BREAKS, "no multiple of 32");
    linted_free(l);
    good.data[at] = (uint8_t)(old ^ 32);
    l = lint_bytes(&good, good.n);
    assert_only_in(&l->report, ALIGNMENT, BREAKS, "behind the tensor before it comes");
    linted_free(l);
    good.data[at] = old;
    put_zeros(&good, 64);
    l = lint_bytes(&good, good.n);
    assert_only_in(&l->report, ALIGNMENT, BREAKS, "64 bytes behind the last tensor");
    linted_free(l);
    free_bytes(&good);
    Edit *e = edit_gguf();
    edit_u32(e, "general.alignment", 24);
    assert_only(e, ALIGNMENT, BREAKS, "no power of two");
} END_TEST

/* Whatever stands in a header: no crash, and findings or an error. */
START_TEST(hostile_headers) {
    Bytes good = read_file(GOOD_GGUF);
    uint64_t seed = 12345;
    for (int i = 0; i < 400; i++) {
        uint8_t old[4];
        size_t at[4];
        for (int k = 0; k < 4; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            at[k] = (size_t)(seed >> 33) % 16000;
            old[k] = good.data[at[k]];
            good.data[at[k]] = (uint8_t)(seed >> 20);
        }
        Linted *l = lint_bytes(&good, i % 4 ? 30000 : good.n);
        ck_assert(l->status == CLOVER_OK || l->status == CLOVER_BAD_INPUT || l->status == CLOVER_UNSUPPORTED);
        FILE *nowhere = fopen("/dev/null", "w");
        if (l->status == CLOVER_OK) {
            ck_assert(report_json(nowhere, &l->report, "x.gguf", NAMES_GGUF));
            report_print(nowhere, &l->report, "x.gguf", NAMES_GGUF);
        }
        fclose(nowhere);
        linted_free(l);
        for (int k = 3; k >= 0; k--) good.data[at[k]] = old[k];
    }
    free_bytes(&good);
} END_TEST

START_TEST(unreadable) {
    static const struct { const char *bytes; size_t n; } files[] = {
        { "", 0 }, { "GGUF", 4 }, { "not a model, but long enough to have a header", 45 }, { "GGUF\2\0\0\0aaaaaaaaaaaaaaaaaaaaaaaa", 32 } };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_file(in_folder(folder, "x.gguf"), files[i].bytes, files[i].n);
        Linted *l = lint_path(in_folder(folder, "x.gguf"));
        ck_assert(l->status == CLOVER_BAD_INPUT || l->status == CLOVER_UNSUPPORTED);
        linted_free(l);
    }
    Linted *l = lint_path(in_folder(folder, "none.gguf"));
    assert_status(l->status, CLOVER_BAD_INPUT, l->err);
    linted_free(l);
    l = lint_path(folder);                                       /* a folder without weights */
    unlink(in_folder(folder, "x.gguf"));
    assert_status(l->status, CLOVER_BAD_INPUT, l->err);
    linted_free(l);
    Edit *e = edit_gguf();
    edit_string(e, "general.architecture", "llama");
    l = lint_edit(e);
    assert_status(l->status, CLOVER_UNSUPPORTED, l->err);
    linted_free(l);
} END_TEST

/* ---- how it is told ------------------------------------------------------------------------------------------------ */

static json_t *as_json(const Report *r, const char *path) {
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    ck_assert(report_json(out, r, path, NAMES_GGUF));
    fclose(out);
    json_t *o = json_loadb(text, n, 0, NULL);
    ck_assert_ptr_nonnull(o);
    free(text);
    return o;
}

START_TEST(json_form) {
    Edit *e = edit_gguf();
    for (int i = 0; i < 4; i++) edit_set(edit_tensor(e, "blk.1.ssm_a"), i, 0.5f);
    Linted *l = lint_edit(e);
    json_t *o = as_json(&l->report, "dir/it's.gguf"), *first = json_array_get(json_object_get(o, "findings"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(first, "id")), "a-log-raw");
    ck_assert_str_eq(json_string_value(json_object_get(first, "severity")), "garbage");
    ck_assert_str_eq(json_string_value(json_object_get(first, "mend")),
                     "clover fix 'dir/it'\\''s.gguf' 'dir/it'\\''s-fixed.gguf' --for llama.cpp --only a-log-raw");
    ck_assert_uint_eq(json_array_size(json_object_get(first, "tensors")), 1);
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(first, "hurts"), 0)), "llama.cpp");
    ck_assert(json_is_string(json_object_get(first, "evidence")));
    ck_assert(json_is_array(json_object_get(o, "remarks")));
    json_decref(o);
    linted_free(l);
} END_TEST

/* Every id has its name, in the order of the list that users know. */
START_TEST(ids_have_their_names) {
    static const char *const names[LINT_IDS] = {
        "key-missing", "key-contradicts", "tensor-missing", "tensor-extra", "tensor-shape", "name-form", "a-log-raw", "a-exp-twice",
        "norm-shift-missing", "norm-shift-twice", "norm-shift-mixed",
        "head-norm-shifted", "conv-layout", "rope-dims-missing", "rope-sections-form", "router-quantised", "alpha-beta-quantised",
        "diffusion-missing", "diffusion-partial", "mtp-bundled",
        "vision-bundled", "interval-contradicts", "token-table-size", "tokenizer-pre", "merges-missing", "eos-missing", "mask-unknown", "nan-or-inf",
        "all-zero", "duplicate-experts",
        "split-part-missing", "truncated", "alignment", "head-order", "q-gate-flat", "conv-reversed", "gate-up-swapped", "expert-order",
        "diffusion-head-order" };
    for (int i = 0; i < LINT_IDS; i++) ck_assert_str_eq(lint_id_name((LintId)i), names[i]);
} END_TEST

/* Sentences beyond the eighth are counted, tensors are all kept. */
START_TEST(much_evidence_is_counted) {
    Report r = { 0 };
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        report_add(&r, ALL_ZERO, GARBAGE, CLOVER, name, "sentence %d", i);
    }
    json_t *o = as_json(&r, "m.gguf"), *f = json_array_get(json_object_get(o, "findings"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(f, "tensors")), 100);
    ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(f, "evidence")), "sentence 7; and 92 more"));
    json_decref(o);
    report_free(&r);
} END_TEST

Suite *lint_suite(void);
Suite *lint_suite(void) {
    Suite *s = suite_create("lint");
    TCase *t = tcase_create("header");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, good_files_have_notes_only);
    tcase_add_test(t, diffusion_tensors_are_a_note_for_llama_cpp);
    tcase_add_test(t, key_missing);
    tcase_add_test(t, key_contradicts);
    tcase_add_test(t, rotary_dims);
    tcase_add_test(t, interval_contradicts);
    tcase_add_test(t, tensor_missing);
    tcase_add_test(t, tensor_extra);
    tcase_add_test(t, tensor_shape);
    tcase_add_test(t, conv_layout);
    tcase_add_test(t, name_form);
    tcase_add_test(t, bundled_parts);
    tcase_add_test(t, prediction_blocks);
    tcase_add_test(t, diffusion_partial);
    tcase_add_test(t, quantised_router);
    tcase_add_test(t, quantised_alpha_and_beta);
    tcase_add_loop_test(t, drifts_in_every_type, 0, 4);
    tcase_add_test(t, undecodable_types_are_said);
    tcase_add_test(t, tokenizer);
    tcase_add_test(t, tokenizer_of_a_folder);
    tcase_add_test(t, mask_unknown);
    suite_add_tcase(s, t);
    t = tcase_create("files");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, new_folder, old_folder);
    tcase_add_test(t, split_files);
    tcase_add_test(t, shards);
    tcase_add_test(t, truncated_files);
    tcase_add_test(t, alignment);
    tcase_add_test(t, hostile_headers);
    tcase_add_test(t, unreadable);
    suite_add_tcase(s, t);
    t = tcase_create("report");
    tcase_add_test(t, json_form);
    tcase_add_test(t, ids_have_their_names);
    tcase_add_test(t, much_evidence_is_counted);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(lint_suite()); }
