/* test_weights.c - from names to roles. [TEN]
 *
 * drifts/hf and drifts/good.gguf are one model in two forms, neither made by this project: what the GGUF binds to, read
 * through its head maps, must be the folder's tensors element by element. Everything else is one of them with one change. */
#include <math.h>
#include "harness.h"
#include "model_edit.h"
#include "../ref/files/config.h"
#include "../ref/files/safetensors.h"
#include "../ref/files/weights.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define assert_refused(call, status, text) do { assert_status(call, status, err); assert_says(err, text); } while (0)

static CloverError err;

/* What is open in a test. */
static CloverConfig config;
static Gguf *gguf;
static Safetensors *folder;
static Weights w;
static Edit *edited;

static CloverStatus bind_with(Edit *e, const CloverOpenOptions *o, int tiled) {
    const char *path = edit_write(edited = e);
    TensorList list;
    if (e->n_keys) {
        assert_ok(gguf_open(path, &gguf, &err), err);
        assert_ok(config_from_gguf(gguf, CLOVER_REFUSE_DRIFTS, &config, &err), err);
        list = gguf_tensors(gguf);
    } else {
        assert_ok(safetensors_open(path, &folder, &err), err);
        assert_ok(config_from_folder(path, &config, &err), err);
        list = safetensors_tensors(folder);
    }
    return weights_bind(&list, e->n_keys ? NAMES_GGUF : NAMES_HF, &config, o, tiled, &w, &err);
}

static CloverStatus bind(Edit *e) {
    CloverOpenOptions o = clover_open_defaults();
    return bind_with(e, &o, -1);
}

static CloverStatus bind_drifted(Edit *e, CloverDriftMode drifts) {
    CloverOpenOptions o = clover_open_defaults();
    o.drifts = drifts;
    return bind_with(e, &o, -1);
}

static void done(void) {
    weights_free(&w);
    gguf_close(gguf);
    safetensors_close(folder);
    if (edited) edit_free(edited);
    gguf = NULL;
    folder = NULL;
    edited = NULL;
}

/* Binds, expects the refusal, closes. */
#define refuse(e, status, text) do { assert_refused(bind(e), status, text); done(); } while (0)

static double element(const Matrix *m, int64_t r, int64_t c) {
    float value;
    ck_assert_int_eq(m->type, DT_F32);
    memcpy(&value, m->data + head_map(&m->row_map, r) * m->row_bytes + 4 * head_map(&m->col_map, c), sizeof value);
    return (double)value;
}

/* ---- the two forms are one model --------------------------------------------------------------------------------- */

static Safetensors *source;   /* drifts/hf, read by name */

static const Tensor *hf(const char *name) {
    const Tensor *t = safetensors_tensor(source, name);
    ck_assert_msg(t != NULL, "%s", name);
    return t;
}

static double value_at(const Tensor *t, int64_t i) {
    float value;
    memcpy(&value, t->data + 4 * i, sizeof value);
    return (double)value;
}

/* The matrix holds rows first.. of an HF tensor. */
static void same_matrix(const Matrix *m, const char *name, int64_t first, int64_t rows, int64_t cols) {
    ck_assert_int_eq(m->rows, rows);
    ck_assert_int_eq(m->cols, cols);
    const Tensor *t = hf(name);
    ck_assert_int_le((first + rows) * cols, t->elements);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            if (element(m, r, c) != value_at(t, (first + r) * cols + c)) ck_abort_msg("%s [%lld, %lld]", name, (long long)r, (long long)c);
}

/* The vector is plus + the HF tensor, exactly. */
static void same_vector(const double *v, const char *name, double plus, int64_t n) {
    const Tensor *t = hf(name);
    ck_assert_int_eq(t->elements, n);
    for (int64_t i = 0; i < n; i++)
        if (v[i] != plus + value_at(t, i)) ck_abort_msg("%s [%lld]: %.17g", name, (long long)i, v[i]);
}

/* The rate is exp(A_log): to one unit of float32 where a GGUF stored it so, to one of double where not. */
static void same_rate(const double *v, const char *name, double ulp, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double expected = exp(value_at(hf(name), i));
        ck_assert_msg(fabs(v[i] - expected) <= ulp * expected, "%s [%lld]: %.17g, expected %.17g", name, (long long)i, v[i], expected);
    }
}

static const char *in_layer(int64_t i, const char *rest) {
    static char names[4][128];
    static int turn;
    char *name = names[turn++ % 4];
    snprintf(name, sizeof names[0], "model.layers.%lld.%s", (long long)i, rest);
    return name;
}

static void same_layer(const LayerW *l, int64_t i, double ulp) {
    const int64_t D = 64, C = 256, Vd = 128, Hv = 4, F = 32;
    same_vector(l->attn_norm, in_layer(i, "input_layernorm.weight"), 1, D);
    same_vector(l->ffn_norm, in_layer(i, "post_attention_layernorm.weight"), 1, D);
    if (i == 3) {
        same_matrix(&l->attn.q, in_layer(i, "self_attn.q_proj.weight"), 0, 128, D);
        same_matrix(&l->attn.k, in_layer(i, "self_attn.k_proj.weight"), 0, 32, D);
        same_matrix(&l->attn.v, in_layer(i, "self_attn.v_proj.weight"), 0, 32, D);
        same_matrix(&l->attn.o, in_layer(i, "self_attn.o_proj.weight"), 0, D, 64);
        same_vector(l->attn.q_norm, in_layer(i, "self_attn.q_norm.weight"), 1, 32);
        same_vector(l->attn.k_norm, in_layer(i, "self_attn.k_norm.weight"), 1, 32);
    } else {
        same_matrix(&l->gdn.qkv, in_layer(i, "linear_attn.in_proj_qkv.weight"), 0, C, D);
        same_matrix(&l->gdn.z, in_layer(i, "linear_attn.in_proj_z.weight"), 0, Vd, D);
        same_matrix(&l->gdn.beta, in_layer(i, "linear_attn.in_proj_b.weight"), 0, Hv, D);
        same_matrix(&l->gdn.alpha, in_layer(i, "linear_attn.in_proj_a.weight"), 0, Hv, D);
        same_matrix(&l->gdn.out, in_layer(i, "linear_attn.out_proj.weight"), 0, D, Vd);
        same_vector(l->gdn.conv, in_layer(i, "linear_attn.conv1d.weight"), 0, C * 4);
        same_vector(l->gdn.dt_bias, in_layer(i, "linear_attn.dt_bias"), 0, Hv);
        same_rate(l->gdn.rate, in_layer(i, "linear_attn.A_log"), ulp, Hv);
        same_vector(l->gdn.norm, in_layer(i, "linear_attn.norm.weight"), 0, 32);
        same_vector(l->gdn.conv_right, in_layer(i, "linear_attn.conv_right_weight"), 0, C * 3);
        same_vector(l->gdn.logit_scale, in_layer(i, "linear_attn.bd_softmax_logit_scale"), 0, Hv);
        same_vector(l->gdn.history_bias, in_layer(i, "linear_attn.bd_softmax_history_bias"), 0, Hv);
        same_vector(l->gdn.history_c, in_layer(i, "linear_attn.bd_softmax_history_c"), 0, Hv);
    }
    same_matrix(&l->moe.router, in_layer(i, "mlp.gate.weight"), 0, 4, D);
    for (int64_t e = 0; e < 4; e++) {
        same_matrix(&l->moe.expert[e].gate, in_layer(i, "mlp.experts.gate_up_proj"), e * 2 * F, F, D);
        same_matrix(&l->moe.expert[e].up, in_layer(i, "mlp.experts.gate_up_proj"), e * 2 * F + F, F, D);
        same_matrix(&l->moe.expert[e].down, in_layer(i, "mlp.experts.down_proj"), e * D, D, F);
    }
    same_matrix(&l->moe.shared.gate, in_layer(i, "mlp.shared_expert.gate_proj.weight"), 0, F, D);
    same_matrix(&l->moe.shared.up, in_layer(i, "mlp.shared_expert.up_proj.weight"), 0, F, D);
    same_matrix(&l->moe.shared.down, in_layer(i, "mlp.shared_expert.down_proj.weight"), 0, D, F);
    same_matrix(&l->moe.shared_gate, in_layer(i, "mlp.shared_expert_gate.weight"), 0, 1, D);
}

static void same_model(double ulp) {
    assert_ok(safetensors_open(GOOD_HF, &source, &err), err);
    same_matrix(&w.embed, "model.embed_tokens.weight", 0, 272, 64);
    same_matrix(&w.head, "lm_head.weight", 0, 272, 64);
    same_vector(w.norm, "model.norm.weight", 1, 64);
    ck_assert_int_eq(w.layers, 4);
    for (int64_t i = 0; i < 4; i++) {
        ck_assert_int_eq(w.layer[i].full_attention, i == 3);
        same_layer(&w.layer[i], i, ulp);
    }
    ck_assert(w.diffusion);
    ck_assert_int_eq(w.n_missing + w.n_ignored + w.n_unknown, 0);
    safetensors_close(source);
}

static const double FLOAT_ULP = 1.0 / (1 << 23), DOUBLE_ULP = 1.0 / ((int64_t)1 << 52);

START_TEST(a_folder_binds_as_it_is) {   /* [TEN-1] [TEN-5] [TEN-6] */
    assert_ok(bind(edit_hf()), err);
    ck_assert(!w.tiled);
    same_model(DOUBLE_ULP);
    done();
} END_TEST

START_TEST(a_gguf_is_the_same_model) {   /* [TEN-1] [TEN-5] [TEN-6] [TEN-7] [TEN-8] */
    assert_ok(bind(edit_gguf()), err);
    ck_assert(w.tiled);
    same_model(FLOAT_ULP);
    done();
} END_TEST

START_TEST(tiled_heads) {   /* [TEN-7]: the worked example, by hand: r = 3, GGUF's heads 0..5 are HF's 0 3 1 4 2 5 */
    static const int64_t gguf_head[] = { 0, 2, 4, 1, 3, 5 };
    const HeadMap one = { 0, 1, 2, 3 }, wide = { 10, 4, 2, 3 }, none = { 0, 0, 2, 3 };
    for (int64_t h = 0; h < 6; h++) ck_assert_int_eq(head_map(&one, h), gguf_head[h]);
    for (int64_t i = 0; i < 34; i++) {
        int64_t h = (i - 10) / 4;
        ck_assert_int_eq(head_map(&wide, i), i < 10 ? i : 10 + 4 * gguf_head[h] + (i - 10) % 4);
        ck_assert_int_eq(head_map(&none, i), i);
    }
} END_TEST

/* ---- names ------------------------------------------------------------------------------------------------------- */

START_TEST(other_gguf_names) {   /* [TEN-3] [TEN-12] */
    Edit *e = edit_gguf();
    edit_rename(e, "blk.0.ssm_dt.bias", "blk.0.ssm_dt");
    edit_rename(e, "blk.1.ssm_dt.bias", "blk.1.ssm_dt.weight");
    edit_rename(e, "blk.0.ssm_a", "blk.0.ssm_a.weight");
    edit_rename(e, "blk.0.conv_right_weight", "blk.0.ssm_conv_right_weight.weight");
    edit_rename(e, "blk.0.bd_softmax_logit_scale", "blk.0.linear_attn.bd_softmax_logit_scale");
    edit_rename(e, "blk.1.bd_softmax_history_bias", "blk.1.bd_softmax_history_bias.weight");
    edit_rename(e, "blk.2.bd_softmax_history_c", "blk.2.x_bd_softmax_history_c");
    assert_ok(bind(e), err);
    same_model(FLOAT_ULP);
    done();
    e = edit_gguf();
    edit_add(e, "blk.0.ssm_dt", DT_F32, 1, (int64_t[]){ 4 });
    refuse(e, CLOVER_BAD_INPUT, "blk.0.ssm_dt.bias and blk.0.ssm_dt are both there");
    e = edit_gguf();
    edit_add(e, "blk.0.other_bd_softmax_history_c", DT_F32, 1, (int64_t[]){ 4 });
    refuse(e, CLOVER_BAD_INPUT, "blk.0.bd_softmax_history_c and blk.0.other_bd_softmax_history_c are both there");
} END_TEST

static void insert_rows(EditTensor *to, int64_t at, const EditTensor *from, int64_t first, int64_t rows, int64_t cols) {
    memcpy(to->data.data + 4 * at * cols, from->data.data + 4 * first * cols, (size_t)(4 * rows * cols));
}

START_TEST(fused_gate_and_up_in_a_gguf) {   /* [TEN-1] */
    Edit *e = edit_gguf();
    for (int i = 0; i < 4; i++) {
        char fused[64], gate[64], up[64];
        snprintf(fused, sizeof fused, "blk.%d.ffn_gate_up_exps.weight", i);
        snprintf(gate, sizeof gate, "blk.%d.ffn_gate_exps.weight", i);
        snprintf(up, sizeof up, "blk.%d.ffn_up_exps.weight", i);
        EditTensor *t = edit_add(e, fused, DT_F32, 3, (int64_t[]){ 4, 64, 64 });
        for (int64_t x = 0; x < 4; x++) {
            insert_rows(t, x * 64, edit_tensor(e, gate), x * 32, 32, 64);
            insert_rows(t, x * 64 + 32, edit_tensor(e, up), x * 32, 32, 64);
        }
        edit_drop(e, gate);
        edit_drop(e, up);
    }
    assert_ok(bind(e), err);
    same_model(FLOAT_ULP);
    done();
    e = edit_gguf();
    edit_add(e, "blk.1.ffn_gate_up_exps.weight", DT_F32, 3, (int64_t[]){ 4, 64, 64 });
    refuse(e, CLOVER_BAD_INPUT, "blk.1.ffn_gate_up_exps.weight and blk.1.ffn_gate_exps.weight or");
} END_TEST

/* Takes a layer's fused experts apart into three tensors each. */
static void separate_experts(Edit *e, int layer) {
    static const struct { const char *one, *fused; int64_t first, rows, cols; } parts[] = {
        { "gate_proj", "gate_up_proj", 0, 32, 64 }, { "up_proj", "gate_up_proj", 32, 32, 64 }, { "down_proj", "down_proj", 0, 64, 32 },
    };
    for (int x = 0; x < 4; x++)
        for (size_t p = 0; p < COUNT(parts); p++) {
            char name[128], fused[128];
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s.weight", layer, x, parts[p].one);
            snprintf(fused, sizeof fused, "model.layers.%d.mlp.experts.%s", layer, parts[p].fused);
            EditTensor *t = edit_add(e, name, DT_F32, 2, (int64_t[]){ parts[p].rows, parts[p].cols });
            insert_rows(t, 0, edit_tensor(e, fused), x * 64 + parts[p].first, parts[p].rows, parts[p].cols);
        }
    edit_drop(e, in_layer(layer, "mlp.experts.gate_up_proj"));
    edit_drop(e, in_layer(layer, "mlp.experts.down_proj"));
}

START_TEST(single_experts_in_a_folder) {   /* [TEN-2] */
    Edit *e = edit_hf();
    for (int i = 0; i < 4; i++) separate_experts(e, i);
    assert_ok(bind(e), err);
    same_model(DOUBLE_ULP);
    done();
    e = edit_hf(); separate_experts(e, 1); edit_drop(e, "model.layers.1.mlp.experts.2.up_proj.weight");
    refuse(e, CLOVER_BAD_INPUT, "missing tensor model.layers.1.mlp.experts.2.up_proj.weight");
    e = edit_hf(); separate_experts(e, 1); edit_drop(e, "model.layers.1.mlp.experts.0.gate_proj.weight");
    refuse(e, CLOVER_BAD_INPUT, "missing tensor model.layers.1.mlp.experts.0.gate_proj.weight");
    e = edit_hf(); separate_experts(e, 1);
    edit_add(e, "model.layers.1.mlp.experts.gate_up_proj", DT_F32, 3, (int64_t[]){ 4, 64, 64 });
    refuse(e, CLOVER_BAD_INPUT, "only one form can be meant");
} END_TEST

START_TEST(other_hf_names) {   /* [TEN-2] */
    Edit *e = edit_hf();
    for (int i = 0; i < e->n_tensors; i++) {
        char rest[128];
        if (strncmp(e->tensor[i].name, "model.", 6) != 0) continue;
        snprintf(rest, sizeof rest, "%s", e->tensor[i].name + 6);
        snprintf(e->tensor[i].name, sizeof e->tensor[i].name, "model.language_model.%.100s", rest);
    }
    edit_rename(e, "model.language_model.layers.0.mlp.experts.gate_up_proj", "model.language_model.layers.0.mlp.experts.gate_up_proj.weight");
    edit_rename(e, "model.language_model.layers.3.mlp.experts.down_proj", "model.language_model.layers.3.mlp.experts.down_proj.weight");
    EditTensor *t = edit_tensor(e, "model.language_model.layers.0.linear_attn.conv_right_weight");
    t->dims = 3, t->shape[1] = 1, t->shape[2] = 3;             /* [C, 1, taps-1] */
    t = edit_tensor(e, "model.language_model.layers.0.linear_attn.conv1d.weight");
    t->dims = 2, t->shape[1] = 4;                              /* [C, taps] */
    t = edit_tensor(e, "model.language_model.layers.0.mlp.shared_expert_gate.weight");
    t->dims = 1, t->shape[0] = 64;                             /* [D] */
    assert_ok(bind(e), err);
    same_model(DOUBLE_ULP);
    done();
} END_TEST

START_TEST(a_missing_head_is_the_embedding) {   /* [CFG-15] */
    Edit *e = edit_gguf(); edit_drop(e, "output.weight");
    assert_ok(bind(e), err);
    ck_assert_ptr_eq(w.head.data, w.embed.data);
    ck_assert_int_eq(w.head.rows, 272);
    done();
    e = edit_hf(); edit_config(e, "tie_word_embeddings", NULL); edit_drop(e, "lm_head.weight");
    assert_ok(bind(e), err);
    ck_assert_ptr_eq(w.head.data, w.embed.data);
    done();
    e = edit_hf(); edit_config(e, "tie_word_embeddings", "true");   /* and its head is no copy of the embedding */
    assert_status(bind(e), CLOVER_BAD_INPUT, err);
    assert_says(err, "tie_word_embeddings true");
    done();
} END_TEST

/* ---- missing tensors and wrong shapes ---------------------------------------------------------------------------- */

/* A GGUF may do without; the folder says tie_word_embeddings false. [CFG-15] */
static bool may_miss(const char *name) { return strcmp(name, "output.weight") == 0; }

/* Layers 1 and 2 are of layer 0's kind; their norms in the loops are enough. */
static bool repeats(const char *name) {
    return (strstr(name, "blk.1.") || strstr(name, "blk.2.") || strstr(name, "layers.1.") || strstr(name, "layers.2.")) && !strstr(name, "norm");
}

static void drop_each(Edit *(*start)(void)) {
    Edit *names = start();
    for (int i = 0; i < names->n_tensors; i++) {
        const char *name = names->tensor[i].name;
        if (repeats(name)) continue;
        Edit *e = start();
        edit_drop(e, name);
        if (may_miss(name)) assert_ok(bind(e), err);
        else {
            assert_status(bind(e), CLOVER_BAD_INPUT, err);
            assert_says(err, name);
            ck_assert_msg(problems(&err) == 1 || strstr(name, "gate_inp.weight") || strstr(name, "mlp.gate.weight"), "%s", err.text);
        }
        done();
    }
    edit_free(names);
}

START_TEST(every_missing_gguf_tensor_is_named) { drop_each(edit_gguf); } END_TEST   /* [TEN-1] */
START_TEST(every_missing_folder_tensor_is_named) { drop_each(edit_hf); } END_TEST

static void all_missing_at_once(Edit *e, const char *keep) {
    Edit *names = e->n_keys ? edit_gguf() : edit_hf();
    for (int i = 0; i < names->n_tensors; i++)
        if (strcmp(names->tensor[i].name, keep) != 0) edit_drop(e, names->tensor[i].name);
    assert_status(bind(e), CLOVER_BAD_INPUT, err);
    for (int i = 0; i < names->n_tensors; i++) {
        const char *name = names->tensor[i].name;
        bool counted = strstr(name, "exps") || strstr(name, "mlp.experts") || strstr(name, "bd_softmax") || strstr(name, "conv_right");
        if (!counted && !may_miss(name) && strcmp(name, keep) != 0) assert_says(err, name);
    }
    done();
    edit_free(names);
}

START_TEST(all_problems_at_once) {   /* [TEN-1] */
    all_missing_at_once(edit_gguf(), "token_embd.weight");
    all_missing_at_once(edit_hf(), "model.embed_tokens.weight");
    Edit *e = edit_gguf();
    edit_drop(e, "blk.2.attn_norm.weight");
    edit_tensor(e, "blk.1.ssm_conv1d.weight")->shape[0] = 4, edit_tensor(e, "blk.1.ssm_conv1d.weight")->shape[1] = 256;
    edit_set(edit_tensor(e, "output_norm.weight"), 7, NAN);
    edit_drop(e, "blk.0.bd_softmax_history_c");
    assert_status(bind(e), CLOVER_BAD_INPUT, err);
    assert_says(err, "missing tensor blk.2.attn_norm.weight");
    assert_says(err, "blk.1.ssm_conv1d.weight: expected shape [256, 4], found [4, 256]: it is transposed");
    assert_says(err, "output_norm.weight: element 7 of 64 is NaN");
    assert_says(err, "missing tensor blk.0.bd_softmax_history_c: a file has all diffusion tensors or none");
    ck_assert_int_eq(problems(&err), 4);
    done();
} END_TEST

/* Each tensor in turn with one more row. */
static void widen_each(Edit *(*start)(void)) {
    Edit *names = start();
    for (int i = 0; i < names->n_tensors; i++) {
        const char *name = names->tensor[i].name;
        if (repeats(name) || strcmp(name, "token_embd.weight") == 0) continue;   /* the embedding says how large the vocabulary is: test_config.c */
        Edit *e = start();
        EditTensor *t = edit_tensor(e, name);
        size_t row = t->data.n / (size_t)t->shape[0];
        put_zeros(&t->data, row);
        t->shape[0]++;
        assert_status(bind(e), CLOVER_BAD_INPUT, err);
        assert_says(err, name);
        assert_says(err, "expected shape");
        ck_assert_msg(problems(&err) == 1, "%s", err.text);
        done();
    }
    edit_free(names);
}

START_TEST(every_gguf_shape_is_checked) { widen_each(edit_gguf); } END_TEST   /* [TEN-1] */
START_TEST(every_folder_shape_is_checked) { widen_each(edit_hf); } END_TEST

START_TEST(another_config_is_another_shape) {
    Edit *e = edit_gguf(); edit_u32(e, "clover_moe.expert_count", 5);
    refuse(e, CLOVER_BAD_INPUT, "blk.0.ffn_gate_inp.weight: expected shape [5, 64], found [4, 64]");
    e = edit_hf(); edit_config(e, "moe_intermediate_size", "16");
    refuse(e, CLOVER_BAD_INPUT, "model.layers.0.mlp.experts.gate_up_proj: expected shape [4, 32, 64], found [4, 64, 64]");
    e = edit_gguf(); edit_u32(e, "clover_moe.expert_count", 2000000000);   /* no memory is asked for experts that are not there */
    refuse(e, CLOVER_BAD_INPUT, "expected shape [2000000000, 64]");
} END_TEST

/* ---- diffusion tensors ------------------------------------------------------------------------------------------- */

static void drop_diffusion(Edit *e) {
    for (int i = e->n_tensors - 1; i >= 0; i--) {
        char name[128];
        snprintf(name, sizeof name, "%s", e->tensor[i].name);
        if (strstr(name, "conv_right") || strstr(name, "bd_softmax")) edit_drop(e, name);
    }
}

START_TEST(without_diffusion_tensors) {   /* [TEN-4] */
    Edit *e = edit_gguf(); drop_diffusion(e);
    assert_ok(bind(e), err);
    ck_assert(!w.diffusion);
    ck_assert_int_eq(w.n_missing, 12);
    ck_assert_str_eq(w.missing[0], "blk.0.conv_right_weight");
    ck_assert_str_eq(w.missing[11], "blk.2.bd_softmax_history_c");
    ck_assert(!w.layer[0].gdn.conv_right && !w.layer[0].gdn.logit_scale && !w.layer[2].gdn.history_bias && !w.layer[2].gdn.history_c);
    done();
    e = edit_hf(); drop_diffusion(e);
    assert_ok(bind(e), err);
    ck_assert_int_eq(w.n_missing, 12);
    ck_assert_str_eq(w.missing[0], "model.layers.0.linear_attn.conv_right_weight");
    done();
    e = edit_hf(); drop_diffusion(e); edit_config(e, "model_type", "\"qwen3_5_moe_text\"");
    assert_ok(bind(e), err);   /* a base model lacks nothing */
    ck_assert(!w.diffusion);
    ck_assert_int_eq(w.n_missing, 0);
    done();
    e = edit_gguf();           /* one layer whole, the others without */
    for (int i = 1; i < 3; i++) {
        static const char *const four[] = { "conv_right_weight", "bd_softmax_logit_scale", "bd_softmax_history_bias", "bd_softmax_history_c" };
        char name[64];
        for (int k = 0; k < 4; k++) snprintf(name, sizeof name, "blk.%d.%s", i, four[k]), edit_drop(e, name);
    }
    assert_refused(bind(e), CLOVER_BAD_INPUT, "missing tensor blk.1.conv_right_weight: a file has all");
    ck_assert_int_eq(problems(&err), 8);
    done();
} END_TEST

START_TEST(order_of_diffusion_heads) {   /* [TEN-8]: HF's heads 0 1 2 3 stand at 0 2 1 3 in a tiled file */
    static const struct { int option, file; bool tiled; } all[] = {
        { -1, -1, true }, { -1, 1, true }, { -1, 0, false }, { 1, -1, false }, { 1, 1, false }, { 0, 0, true },
    };
    static const int tiled[] = { 0, 2, 1, 3 };
    for (size_t i = 0; i < COUNT(all); i++) {
        CloverOpenOptions o = clover_open_defaults();
        o.diffusion_heads_grouped = all[i].option;
        Edit *e = edit_gguf();
        for (int h = 0; h < 4; h++) edit_set(edit_tensor(e, "blk.0.bd_softmax_history_c"), h, (float)(10 + h));
        for (int c = 0; c < 256; c++) edit_set(edit_tensor(e, "blk.0.conv_right_weight"), 3 * c, (float)c);
        assert_ok(bind_with(e, &o, all[i].file), err);
        for (int h = 0; h < 4; h++) {
            int at = all[i].tiled ? tiled[h] : h;
            ck_assert_double_eq(w.layer[0].gdn.history_c[h], 10 + at);
            ck_assert_double_eq(w.layer[0].gdn.conv_right[3 * (128 + 32 * h + 5)], 128 + 32 * at + 5);
            ck_assert_double_eq(w.layer[0].gdn.conv_right[3 * (32 * h + 5)], 32 * h + 5);   /* q and k stay */
        }
        ck_assert_int_eq(w.layer[0].gdn.qkv.row_map.width, 32);   /* the other tensors are tiled all the same */
        done();
    }
} END_TEST

START_TEST(one_tap_reads_no_row_after) {
    Edit *e = edit_hf();
    edit_config(e, "linear_conv_kernel_dim", "1");
    for (int i = 0; i < 3; i++) {
        edit_drop(e, in_layer(i, "linear_attn.conv_right_weight"));
        edit_drop(e, in_layer(i, "linear_attn.conv1d.weight"));
        edit_add(e, in_layer(i, "linear_attn.conv1d.weight"), DT_F32, 3, (int64_t[]){ 256, 1, 1 });
    }
    assert_ok(bind(e), err);
    ck_assert(w.diffusion);
    done();
} END_TEST

/* ---- values ------------------------------------------------------------------------------------------------------ */

START_TEST(not_a_number) {   /* [TEN-13] */
    static const char *const vectors[] = {
        "output_norm.weight", "blk.0.attn_norm.weight", "blk.3.post_attention_norm.weight", "blk.3.attn_q_norm.weight", "blk.3.attn_k_norm.weight",
        "blk.0.ssm_conv1d.weight", "blk.0.ssm_dt.bias", "blk.0.ssm_a", "blk.0.ssm_norm.weight", "blk.0.conv_right_weight",
        "blk.0.bd_softmax_logit_scale", "blk.0.bd_softmax_history_bias", "blk.0.bd_softmax_history_c",
    };
    char text[128];
    for (size_t i = 0; i < COUNT(vectors); i++) {
        Edit *e = edit_gguf();
        edit_set(edit_tensor(e, vectors[i]), 2, i % 2 ? NAN : -INFINITY);
        snprintf(text, sizeof text, "%s: element 2 of %zu is %s", vectors[i], edit_tensor(e, vectors[i])->data.n / 4, i % 2 ? "NaN" : "infinite");
        assert_refused(bind(e), CLOVER_BAD_INPUT, text);
        ck_assert_msg(problems(&err) == 1, "%s", err.text);
        done();
    }
    Edit *e = edit_gguf();   /* a matrix is looked at when a row of it is used */
    edit_set(edit_tensor(e, "blk.0.attn_qkv.weight"), 0, NAN);
    assert_ok(bind(e), err);
    done();
} END_TEST

START_TEST(raw_a_log) {   /* [TEN-10] */
    static const float logs[3][4] = { { 1.5f, -2.25f, 0.5f, -1 }, { -1, -2, -3, -4 }, { -0.5f, 0, -1, -2 } };   /* tiled order */
    static const int tiled[] = { 0, 2, 1, 3 };
    for (int mode = 0; mode < 3; mode++) {
        Edit *e = edit_gguf();
        for (int i = 0; i < 3; i++)
            for (int h = 0; h < 4; h++) {
                char name[32];
                snprintf(name, sizeof name, "blk.%d.ssm_a", i);
                edit_set(edit_tensor(e, name), h, logs[i][h]);
            }
        if (mode == 0) {
            assert_refused(bind(e), CLOVER_BAD_INPUT, "blk.0.ssm_a holds A_log, not -exp(A_log): value 1.5 >= 0 at element 0; so do layers 2;");
            assert_says(err, "--mend");
            assert_says(err, "--as-is");
            ck_assert_int_eq(problems(&err), 1);
        } else {
            assert_ok(bind_drifted(e, mode == 1 ? CLOVER_MEND : CLOVER_AS_IS), err);
            for (int i = 0; i < 3; i++)
                for (int h = 0; h < 4; h++) {   /* not in layer 1, where -exp(A_log) is likelier: 900 to 1 */
                    double value = (double)logs[i][tiled[h]], rate = w.layer[i].gdn.rate[h];
                    if (mode == 1 && i != 1) ck_assert_msg(fabs(rate - exp(value)) <= DOUBLE_ULP * exp(value), "%.17g", rate);
                    else ck_assert_double_eq(rate, -value);
                }
        }
        done();
    }
    Edit *e = edit_gguf(); edit_set(edit_tensor(e, "blk.2.ssm_a"), 3, 0);   /* one value of zero is enough */
    refuse(e, CLOVER_BAD_INPUT, "blk.2.ssm_a holds A_log, not -exp(A_log): value 0 >= 0 at element 3");
    assert_ok(bind_drifted(edit_gguf(), CLOVER_MEND), err);                 /* nothing to mend: nothing is */
    same_model(FLOAT_ULP);
    done();
} END_TEST

/* Values below 0 throughout, of which neither reading is e^4 times likelier: -0.96, 2.19 and 3.07 nats, those after them 15.9, 4.30 and 4.72, from
 * ln N(ln -x; 0.7, 1.5) - ln -x - ln N(x; 0.7, 1.5). A file in which no layer shows A_log is right whatever they are. */
START_TEST(rates_that_may_be_either) {   /* [TEN-10] */
    static const float either[3][4] = { { -0.0324f, -0.0324f, -0.0324f, -0.0324f }, { -0.5f, -0.5f, -0.5f, -0.1f }, { -2, -1, -2, -1.58f } };
    static const float right[3][4] = { { -8, -1, -1, -1 }, { -2, -3, -2, -1 }, { -2, -1, -2.5f, -3 } };
    for (int k = 0; k < 6; k++) {
        Edit *e = edit_gguf();
        edit_set(edit_tensor(e, "blk.2.ssm_a"), 1, 2.5f);
        for (int h = 0; h < 4; h++) edit_set(edit_tensor(e, "blk.0.ssm_a"), h, k < 3 ? either[k][h] : right[k - 3][h]);
        if (k < 3) assert_refused(bind_drifted(e, CLOVER_MEND), CLOVER_BAD_INPUT, "blk.0.ssm_a: other layers hold A_log");
        else {
            assert_ok(bind_drifted(e, CLOVER_MEND), err);
            ck_assert_double_eq(w.layer[0].gdn.rate[0], -(double)right[k - 3][0]);
        }
        done();
    }
    Edit *e = edit_gguf();
    for (int h = 0; h < 4; h++) edit_set(edit_tensor(e, "blk.0.ssm_a"), h, either[0][h]);
    assert_ok(bind(e), err);
    done();
} END_TEST

static bool is_shifted_norm(const char *name) { return strstr(name, "norm.weight") && !strstr(name, "ssm_norm"); }

START_TEST(norms_without_the_shift) {   /* [TEN-11] [TEN-5] */
    for (int mode = 0; mode < 3; mode++) {
        Edit *e = edit_gguf();
        for (int i = 0; i < e->n_tensors; i++)
            for (int64_t k = 0; is_shifted_norm(e->tensor[i].name) && k < e->tensor[i].shape[0]; k++)
                edit_set(&e->tensor[i], k, edit_get(&e->tensor[i], k) - 1);
        if (mode == 0) {
            assert_refused(bind(e), CLOVER_BAD_INPUT, "hold w, not 1 + w: their 576 values average -0.000775");
            assert_says(err, "--mend");
            assert_says(err, "--as-is");
            ck_assert_int_eq(problems(&err), 1);
        } else {
            assert_ok(bind_drifted(e, mode == 1 ? CLOVER_MEND : CLOVER_AS_IS), err);
            if (mode == 1) same_model(FLOAT_ULP);
            else ck_assert_double_eq(w.layer[3].attn.q_norm[5], (double)edit_get(edit_tensor(edited, "blk.3.attn_q_norm.weight"), 5));
        }
        done();
    }
} END_TEST

/* ---- what else a file holds -------------------------------------------------------------------------------------- */

START_TEST(ignored_and_unknown) {   /* [TEN-9] [CFG-8] */
    Edit *e = edit_gguf();
    edit_u32(e, "clover_moe.block_count", 5);
    edit_u32(e, "clover_moe.nextn_predict_layers", 1);
    edit_add(e, "blk.4.nextn.eh_proj.weight", DT_F32, 2, (int64_t[]){ 64, 128 });
    edit_add(e, "blk.4.attn_q.bias", DT_F32, 1, (int64_t[]){ 64 });
    edit_add(e, "mtp.fc.weight", DT_F32, 1, (int64_t[]){ 8 });
    edit_add(e, "v.patch_embd.bias", DT_F32, 1, (int64_t[]){ 8 });
    edit_add(e, "mm.0.weight", DT_F32, 1, (int64_t[]){ 8 });
    edit_add(e, "rope_freqs.weight", DT_F32, 1, (int64_t[]){ 8 });
    assert_ok(bind(e), err);
    ck_assert_int_eq(w.n_ignored, 5);
    ck_assert_str_eq(w.ignored[0]->name, "blk.4.nextn.eh_proj.weight");
    ck_assert_int_eq(w.n_unknown, 1);
    ck_assert_str_eq(w.unknown[0]->name, "rope_freqs.weight");
    done();
    e = edit_hf();
    edit_add(e, "mtp.layers.0.mlp.gate.weight", DT_F32, 1, (int64_t[]){ 8 });
    edit_add(e, "model.visual.blocks.0.attn.qkv.bias", DT_F32, 1, (int64_t[]){ 8 });
    edit_add(e, "visual.merger.norm.weight", DT_F32, 1, (int64_t[]){ 8 });
    edit_add(e, "model.layers.0.linear_attn.extra", DT_F32, 1, (int64_t[]){ 8 });
    assert_ok(bind(e), err);
    ck_assert_int_eq(w.n_ignored, 3);
    ck_assert_int_eq(w.n_unknown, 1);
    ck_assert_str_eq(w.unknown[0]->name, "model.layers.0.linear_attn.extra");
    done();
} END_TEST

START_TEST(layers_past_the_last) {
    Edit *e = edit_gguf(); edit_u32(e, "clover_moe.block_count", 3);
    refuse(e, CLOVER_BAD_INPUT, "blk.3.attn_norm.weight lies past the model's 3 layers (16 such tensors)");
    e = edit_hf();
    edit_config(e, "num_hidden_layers", "3");
    edit_config(e, "layer_types", NULL);
    refuse(e, CLOVER_BAD_INPUT, "lies past the model's 3 layers (15 such tensors)");
} END_TEST

START_TEST(biases_and_scales_are_unsupported) {   /* [CFG-7] */
    Edit *e = edit_gguf(); edit_add(e, "blk.3.attn_q.bias", DT_F32, 1, (int64_t[]){ 128 });
    refuse(e, CLOVER_UNSUPPORTED, "blk.3.attn_q.bias: tensors named *.bias are not supported");
    e = edit_gguf(); edit_add(e, "blk.0.ssm_conv1d.bias", DT_F32, 1, (int64_t[]){ 256 });
    refuse(e, CLOVER_UNSUPPORTED, "blk.0.ssm_conv1d.bias");
    e = edit_gguf(); edit_add(e, "blk.0.attn_qkv.scale", DT_F32, 1, (int64_t[]){ 1 });
    refuse(e, CLOVER_UNSUPPORTED, "blk.0.attn_qkv.scale");
    e = edit_hf(); edit_add(e, "model.layers.3.self_attn.q_proj.weight_scale_inv", DT_F32, 1, (int64_t[]){ 1 });
    refuse(e, CLOVER_UNSUPPORTED, "q_proj.weight_scale_inv");
} END_TEST

START_TEST(types_that_cannot_be_decoded) {   /* [QNT] */
    Edit *e = edit_gguf();   /* a matrix is bound: what uses it refuses */
    edit_drop(e, "blk.3.attn_k.weight");
    edit_add(e, "blk.3.attn_k.weight", DT_I8, 2, (int64_t[]){ 32, 64 });
    assert_ok(bind(e), err);
    ck_assert_int_eq(w.layer[3].attn.k.type, DT_I8);
    ck_assert_int_eq(w.layer[3].attn.k.row_bytes, 64);
    done();
    e = edit_gguf();
    edit_drop(e, "blk.3.attn_k_norm.weight");
    edit_add(e, "blk.3.attn_k_norm.weight", DT_I8, 1, (int64_t[]){ 32 });
    refuse(e, CLOVER_UNSUPPORTED, "blk.3.attn_k_norm.weight: its type I8 cannot be decoded");
} END_TEST

Suite *weights_suite(void) {
    Suite *s = suite_create("weights");
    TCase *t = tcase_create("weights");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_folder_binds_as_it_is);
    tcase_add_test(t, a_gguf_is_the_same_model);
    tcase_add_test(t, tiled_heads);
    tcase_add_test(t, other_gguf_names);
    tcase_add_test(t, fused_gate_and_up_in_a_gguf);
    tcase_add_test(t, single_experts_in_a_folder);
    tcase_add_test(t, other_hf_names);
    tcase_add_test(t, a_missing_head_is_the_embedding);
    tcase_add_test(t, every_missing_gguf_tensor_is_named);
    tcase_add_test(t, every_missing_folder_tensor_is_named);
    tcase_add_test(t, all_problems_at_once);
    tcase_add_test(t, every_gguf_shape_is_checked);
    tcase_add_test(t, every_folder_shape_is_checked);
    tcase_add_test(t, another_config_is_another_shape);
    tcase_add_test(t, without_diffusion_tensors);
    tcase_add_test(t, order_of_diffusion_heads);
    tcase_add_test(t, one_tap_reads_no_row_after);
    tcase_add_test(t, not_a_number);
    tcase_add_test(t, raw_a_log);
    tcase_add_test(t, rates_that_may_be_either);
    tcase_add_test(t, norms_without_the_shift);
    tcase_add_test(t, ignored_and_unknown);
    tcase_add_test(t, layers_past_the_last);
    tcase_add_test(t, biases_and_scales_are_unsupported);
    tcase_add_test(t, types_that_cannot_be_decoded);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(weights_suite()); }
