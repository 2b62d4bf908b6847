/* drift_files.h - good.gguf drifted at one point, in any of four types: what compare names and fix mends.
 *
 * The drift is put into the float32 values by rules written here, from the formats' description; then the matrices are stored in
 * the type wanted, as the good file's are. So a right mend gives the good file's bytes. */
#ifndef CLOVER_TEST_DRIFT_FILES_H
#define CLOVER_TEST_DRIFT_FILES_H

#include <math.h>
#include "../ref/files/quant.h"
#include "model_edit.h"

#ifndef D_ORDER                      /* a suite with another model gives its sizes first */
enum { D_HIDDEN = 64, D_HK = 2, D_HV = 4, D_DV = 32, D_K = 64, D_C = 256, D_E = 4, D_HEADS = 2, D_WIDTH = 32, D_LAYERS = 4, D_TAPS = 4 };   /* of good.gguf */
#define D_ORDER { 2, 0, 3, 1 }      /* of drifted experts */
#endif

static const DType drift_types[] = { DT_F32, DT_BF16, DT_Q8_0, DT_Q4_0 };
static const char *const drift_type_names[] = { "f32", "bf16", "q8_0", "q4_0" };
enum { DRIFT_TYPES = 4 };

static inline bool named(const EditTensor *t, const char *end) {
    const size_t n = strlen(t->name), m = strlen(end);
    return n >= m && strcmp(t->name + n - m, end) == 0;
}

/* Stores the matrices in another type; what a right export has in F32 stays. */
static inline void edit_store(Edit *e, DType type) {
    for (int i = 0; i < e->n_tensors && type != DT_F32; i++) {
        EditTensor *t = &e->tensor[i];
        if (t->dims < 2 || strstr(t->name, "conv") || strstr(t->name, "ffn_gate_inp") || t->type != DT_F32) continue;
        const int64_t n = (int64_t)t->data.n / 4;
        Bytes packed = { 0 };
        put_zeros(&packed, (size_t)dtype_bytes(type, n));
        ck_assert(quant_encode(type, (const float *)(const void *)t->data.data, n, packed.data));
        free_bytes(&t->data);
        t->data = packed;
        t->type = type;
    }
}

/* Rows (of so many bytes) in another order: row i is row from(i). */
static inline void move_units(EditTensor *t, size_t bytes, int64_t n, const int64_t *from) {
    uint8_t *old = malloc(t->data.n);
    ck_assert_ptr_nonnull(old);
    memcpy(old, t->data.data, t->data.n);
    for (int64_t i = 0; i < n; i++) memcpy(t->data.data + (size_t)i * bytes, old + (size_t)from[i] * bytes, bytes);
    free(old);
}

/* Tiled to grouped: HF's head h stands at (h % r) * Hk + h / r in a GGUF. */
static inline int64_t tiled_place(int64_t h) { return h % (D_HV / D_HK) * D_HK + h / (D_HV / D_HK); }

static inline void group_heads(EditTensor *t, int64_t start, int64_t width, int64_t cols) {
    int64_t from[2048];
    const int64_t n = start + D_HV * width;
    for (int64_t i = 0; i < start; i++) from[i] = i;
    for (int64_t i = start; i < n; i++) from[i] = start + tiled_place((i - start) / width) * width + (i - start) % width;
    move_units(t, (size_t)cols * 4, n, from);
}

static inline void map_values(EditTensor *t, float (*f)(float)) {
    for (int64_t i = 0; i < (int64_t)t->data.n / 4; i++) edit_set(t, i, f(edit_get(t, i)));
}
static inline float minus_1(float x) { return x - 1; }
static inline float plus_1(float x) { return x + 1; }
static inline float log_of_negative(float x) { return (float)log(-(double)x); }
static inline float exp_again(float x) { return (float)-exp((double)x); }
static inline float exp_of_positive(float x) { return (float)-exp(-(double)x); }

/* ---- drifts of tensors: each gives good.gguf's model in another form ---------------------------------------------------- */

static inline void each(Edit *e, const char *end, float (*f)(float)) {
    int n = 0;
    for (int i = 0; i < e->n_tensors; i++)
        if (named(&e->tensor[i], end)) map_values(&e->tensor[i], f), n++;
    ck_assert_int_gt(n, 0);
}

static inline void shift_all(Edit *e, float (*f)(float)) {
    static const char *const norms[] = { "attn_norm.weight", "post_attention_norm.weight", "output_norm.weight", "attn_q_norm.weight", "attn_k_norm.weight" };
    for (int i = 0; i < 5; i++) each(e, norms[i], f);
}

static inline void drift_raw_a_log(Edit *e) { each(e, "ssm_a", log_of_negative); }
static inline void drift_exp_twice(Edit *e) { each(e, "ssm_a", exp_again); }
static inline void drift_exp_grown(Edit *e) { each(e, "ssm_a", exp_of_positive); }
static inline void drift_norms_plain(Edit *e) { shift_all(e, minus_1); }
static inline void drift_norms_twice(Edit *e) { shift_all(e, plus_1); }
static inline void drift_head_norm(Edit *e) { each(e, "ssm_norm.weight", plus_1); }
static inline void drift_mixed(Edit *e) { map_values(edit_tensor(e, "blk.1.attn_norm.weight"), minus_1); }

static inline void drift_heads(Edit *e) {
    for (int i = 0; i < e->n_tensors; i++) {
        EditTensor *t = &e->tensor[i];
        if (named(t, "attn_qkv.weight")) group_heads(t, 2 * D_K, D_DV, D_HIDDEN);
        if (named(t, "attn_gate.weight")) group_heads(t, 0, D_DV, D_HIDDEN);
        if (named(t, "ssm_alpha.weight") || named(t, "ssm_beta.weight")) group_heads(t, 0, 1, D_HIDDEN);
        if (named(t, "ssm_a") || named(t, "ssm_dt.bias")) group_heads(t, 0, 1, 1);
        if (named(t, "ssm_conv1d.weight")) group_heads(t, 2 * D_K, D_DV, D_TAPS);
        if (!named(t, "ssm_out.weight")) continue;
        int64_t from[D_HIDDEN * D_HV];
        for (int64_t k = 0; k < D_HIDDEN * D_HV; k++) from[k] = k / D_HV * D_HV + tiled_place(k % D_HV);
        move_units(t, D_DV * 4, D_HIDDEN * D_HV, from);
    }
}

static inline void drift_diffusion_heads(Edit *e) {
    for (int i = 0; i < e->n_tensors; i++) {
        if (named(&e->tensor[i], "conv_right_weight")) group_heads(&e->tensor[i], 2 * D_K, D_DV, D_TAPS - 1);
        if (strstr(e->tensor[i].name, "bd_softmax")) group_heads(&e->tensor[i], 0, 1, 1);
    }
}

static inline void drift_query_gate(Edit *e) {
    int64_t from[2 * D_HEADS * D_WIDTH];
    for (int64_t i = 0; i < 2 * D_HEADS * D_WIDTH; i++) {
        const int64_t part = i / (D_HEADS * D_WIDTH), h = i / D_WIDTH % D_HEADS;
        from[i] = (h * 2 + part) * D_WIDTH + i % D_WIDTH;
    }
    for (int i = 0; i < e->n_tensors; i++)
        if (named(&e->tensor[i], "attn_q.weight")) move_units(&e->tensor[i], D_HIDDEN * 4, 2 * D_HEADS * D_WIDTH, from);
}

static inline void drift_conv(Edit *e) {
    for (int i = 0; i < e->n_tensors; i++)
        for (int64_t c = 0; named(&e->tensor[i], "ssm_conv1d.weight") && c < D_C; c++)
            for (int64_t k = 0; k < D_TAPS / 2; k++) {
                const float a = edit_get(&e->tensor[i], c * D_TAPS + k), b = edit_get(&e->tensor[i], c * D_TAPS + D_TAPS - 1 - k);
                edit_set(&e->tensor[i], c * D_TAPS + k, b);
                edit_set(&e->tensor[i], c * D_TAPS + D_TAPS - 1 - k, a);
            }
}

static inline void drift_conv_turned(Edit *e) {
    for (int i = 0; i < e->n_tensors; i++) {
        EditTensor *t = &e->tensor[i];
        int64_t from[D_C * D_TAPS];
        if (!named(t, "ssm_conv1d.weight")) continue;
        for (int64_t k = 0; k < D_C * D_TAPS; k++) from[k] = k % D_C * D_TAPS + k / D_C;
        move_units(t, 4, D_C * D_TAPS, from);
        t->shape[0] = D_TAPS;
        t->shape[1] = D_C;
    }
}

static inline void drift_gate_up(Edit *e) {
    for (int l = 0; l < D_LAYERS; l++) {
        char gate[64], up[64];
        snprintf(gate, sizeof gate, "blk.%d.ffn_gate_exps.weight", l);
        snprintf(up, sizeof up, "blk.%d.ffn_up_exps.weight", l);
        EditTensor *a = edit_tensor(e, gate), *b = edit_tensor(e, up);
        const Bytes data = a->data;
        a->data = b->data;
        b->data = data;
    }
}

static inline void drift_experts(Edit *e) {
    static const int64_t from[D_E] = D_ORDER;
    for (int i = 0; i < e->n_tensors; i++)
        if (strstr(e->tensor[i].name, "_exps.weight")) move_units(&e->tensor[i], e->tensor[i].data.n / D_E, D_E, from);
}

static inline void drift_nan(Edit *e) { edit_set(edit_tensor(e, "blk.2.ffn_down_exps.weight"), 999, NAN); }
static inline void drift_zero(Edit *e) { EditTensor *t = edit_tensor(e, "blk.1.attn_gate.weight"); memset(t->data.data, 0, t->data.n); }
static inline void drift_missing(Edit *e) { edit_drop(e, "blk.1.ssm_norm.weight"); }

/* ---- drifts of the header ----------------------------------------------------------------------------------------------------- */

static inline void drift_shared_count(Edit *e) { edit_drop_key(e, "clover_moe.expert_shared_count"); }
static inline void drift_rope(Edit *e) { edit_drop_key(e, "clover_moe.rope.dimension_count"); }
static inline void drift_sections(Edit *e) { edit_ints(e, "clover_moe.rope.dimension_sections", (const int32_t[]){ 2, 1, 1 }, 3); }
static inline void drift_interval(Edit *e) { edit_u32(e, "clover_moe.full_attention_interval", 2); }
static inline void drift_taps_key(Edit *e) { edit_u32(e, "clover_moe.ssm.conv_kernel", 3); }
static inline void drift_pre(Edit *e) { edit_string(e, "tokenizer.ggml.pre", "gpt-2"); }
static inline void drift_eos(Edit *e) { edit_drop_key(e, "tokenizer.ggml.eos_token_id"); }
static inline void drift_merges(Edit *e) { edit_drop_key(e, "tokenizer.ggml.merges"); }
static inline void drift_names(Edit *e) {
    for (int l = 0; l < 3; l++) {
        char from[64], to[64];
        snprintf(from, sizeof from, "blk.%d.ssm_dt.bias", l);
        snprintf(to, sizeof to, "blk.%d.ssm_dt", l);
        edit_rename(e, from, to);
    }
}

static inline void drift_hf_names(Edit *e) {
    edit_rename(e, "output_norm.weight", "model.norm.weight");
    edit_rename(e, "blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight");
}

static inline void drift_vision(Edit *e) { edit_add(e, "v.patch_embd.weight", DT_F32, 2, (const int64_t[]){ 8, 32 }); edit_add(e, "mm.0.weight", DT_F32, 1, (const int64_t[]){ 8 }); }
static inline void drift_mtp(Edit *e) {
    edit_u32(e, "clover_moe.block_count", 5);
    edit_u32(e, "clover_moe.nextn_predict_layers", 1);
    edit_add(e, "blk.4.nextn.eh_proj.weight", DT_F32, 2, (const int64_t[]){ 64, 128 });
    edit_add(e, "blk.4.attn_norm.weight", DT_F32, 1, (const int64_t[]){ 64 });
}

static inline Edit *drifted(void (*drift)(Edit *e), DType type) {
    Edit *e = edit_gguf();
    if (drift) drift(e);
    edit_store(e, type);
    return e;
}

#endif
