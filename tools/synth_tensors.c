/* synth_tensors.c - which tensors a model has [TEN], and their bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/files/quant.h"
#include "../ref/math/elementary.h"
#include "synth.h"

/* ---- the list ---------------------------------------------------------------------------------------------------- */

typedef enum RoleKind { MATRIX, PLAIN } RoleKind;        /* PLAIN: norms, vectors, conv, router: F32 in every GGUF */

typedef struct Role {
    const char *hf, *gguf;           /* names behind the layer's prefix; NULL: absent in that form */
    const char *key;                 /* NULL: hf */
    RoleKind kind;
    int dims;
    int64_t shape[3];
    double mean, sd;
    SynthForm gguf_form;
    int64_t first, group, stride, tiled_row, row_head, col_head;
    int expert;                      /* what stands for %d in a name */
} Role;

static bool holds_whole_blocks(DType type, int64_t cols) { return cols % dtype_info(type)->block == 0; }

static void choose_type(const SynthModel *m, const Role *r, SynthTensor *t) {
    t->type = m->type;
    if (m->hf) return;
    if (r->kind == PLAIN) t->type = DT_F32;
    else if (!holds_whole_blocks(m->type, t->shape[t->dims - 1])) {
        t->type = DT_F16;
        t->fell_back = true;
    }
}

/* layer -1: a tensor of no layer. */
static void add(SynthTensors *list, const SynthModel *m, int64_t layer, Role r) {
    const char *name = m->hf ? r.hf : r.gguf;
    if (!name || list->no_memory) return;
    if (list->n == list->room) {
        int64_t room = list->room ? 2 * list->room : 64;
        SynthTensor *larger = realloc(list->tensor, (size_t)room * sizeof *larger);
        if (!larger) {
            list->no_memory = true;
            return;
        }
        list->tensor = larger;
        list->room = room;
    }
    SynthTensor *t = &list->tensor[list->n++];
    *t = (SynthTensor){ .dims = r.dims, .mean = r.mean, .sd = r.sd, .first = r.first, .group = r.group, .stride = r.stride };

    char own[SYNTH_NAME / 2], in_layer[32] = "";
    snprintf(own, sizeof own, name, r.expert);
    bool outside = !m->hf || strcmp(name, "lm_head.weight") == 0;
    const char *prefix = outside ? "" : m->language_prefix ? "model.language_model." : "model.";
    if (layer >= 0) snprintf(in_layer, sizeof in_layer, m->hf ? "layers.%d." : "blk.%d.", (int)layer);
    snprintf(t->name, sizeof t->name, "%s%s%s", prefix, in_layer, own);
    snprintf(t->key, sizeof t->key, "%d.%s", (int)layer, r.key ? r.key : r.hf);

    memcpy(t->shape, r.shape, sizeof t->shape);
    choose_type(m, &r, t);
    t->cols = t->dims == 1 ? 1 : t->shape[t->dims - 1];
    t->rows = t->dims == 1 ? t->shape[0] : t->dims == 2 ? t->shape[0] : t->shape[0] * t->shape[1];
    if (t->group == 0) t->group = t->stride = t->rows;
    if (!m->hf) {
        t->form = r.gguf_form;
        t->tiled_row = r.tiled_row;
        t->row_head = r.row_head;
        t->col_head = r.col_head;
        t->key_heads = m->key_heads;
        t->heads_per_key = m->value_heads / m->key_heads;
    }
}

static void add_attention(SynthTensors *l, const SynthModel *m, int64_t i) {
    int64_t D = m->hidden, q = m->heads * m->head_width, kv = m->kv_heads * m->head_width;
    double sd = 1 / sqrt((double)D);
    add(l, m, i, (Role){ .hf = "self_attn.q_proj.weight", .gguf = "attn_q.weight", .dims = 2, .shape = { 2 * q, D },
        .sd = 1.5 * sd });
    add(l, m, i, (Role){ .hf = "self_attn.k_proj.weight", .gguf = "attn_k.weight", .dims = 2, .shape = { kv, D }, .sd = sd });
    add(l, m, i, (Role){ .hf = "self_attn.v_proj.weight", .gguf = "attn_v.weight", .dims = 2, .shape = { kv, D }, .sd = sd });
    add(l, m, i, (Role){ .hf = "self_attn.o_proj.weight", .gguf = "attn_output.weight", .dims = 2, .shape = { D, q },
        .sd = 1 / sqrt((double)q) });
    Role norm = { .kind = PLAIN, .dims = 1, .shape = { m->head_width }, .mean = 0.5, .sd = 0.2, .gguf_form = FORM_PLUS_ONE };
    norm.hf = "self_attn.q_norm.weight", norm.gguf = "attn_q_norm.weight";
    add(l, m, i, norm);
    norm.hf = "self_attn.k_norm.weight", norm.gguf = "attn_k_norm.weight";
    add(l, m, i, norm);
}

static void add_gdn(SynthTensors *l, const SynthModel *m, int64_t i) {
    int64_t D = m->hidden, Hv = m->value_heads, dv = m->value_width, K = m->key_heads * m->key_width, Vd = Hv * dv, C = 2 * K + Vd;
    double sd = 1 / sqrt((double)D);
    add(l, m, i, (Role){ .hf = "linear_attn.in_proj_qkv.weight", .gguf = "attn_qkv.weight", .dims = 2, .shape = { C, D },
        .sd = sd, .tiled_row = 2 * K, .row_head = dv });
    add(l, m, i, (Role){ .hf = "linear_attn.in_proj_z.weight", .gguf = "attn_gate.weight", .dims = 2, .shape = { Vd, D },
        .sd = sd, .row_head = dv });
    add(l, m, i, (Role){ .hf = "linear_attn.in_proj_b.weight", .gguf = "ssm_beta.weight", .dims = 2, .shape = { Hv, D },
        .sd = sd, .row_head = 1 });
    add(l, m, i, (Role){ .hf = "linear_attn.in_proj_a.weight", .gguf = "ssm_alpha.weight", .dims = 2, .shape = { Hv, D },
        .sd = sd, .row_head = 1 });

    Role conv = { .hf = "linear_attn.conv1d.weight", .gguf = "ssm_conv1d.weight", .kind = PLAIN, .sd = 0.5, .tiled_row = 2 * K,
        .row_head = dv };
    conv.dims = m->hf ? 3 : 2;                           /* HF has a middle axis of one */
    conv.shape[0] = C, conv.shape[1] = m->hf ? 1 : m->taps, conv.shape[2] = m->hf ? m->taps : 0;
    add(l, m, i, conv);

    Role head = { .kind = PLAIN, .dims = 1, .shape = { Hv }, .row_head = 1 };
    head.hf = "linear_attn.dt_bias", head.gguf = "ssm_dt.bias", head.sd = 1.4;
    add(l, m, i, head);
    add(l, m, i, (Role){ .hf = "linear_attn.norm.weight", .gguf = "ssm_norm.weight", .kind = PLAIN, .dims = 1, .shape = { dv },
        .mean = 1, .sd = 0.2 });
    head.hf = "linear_attn.A_log", head.gguf = "ssm_a", head.gguf_form = FORM_NEGATIVE_EXP;
    add(l, m, i, head);
    add(l, m, i, (Role){ .hf = "linear_attn.out_proj.weight", .gguf = "ssm_out.weight", .dims = 2, .shape = { D, Vd },
        .sd = 1 / sqrt((double)Vd), .col_head = dv });
    if (!m->diffusion) return;

    head.gguf_form = FORM_AS_HF;                         /* [TEN-3] */
    add(l, m, i, (Role){ .hf = "linear_attn.conv_right_weight", .gguf = "conv_right_weight", .kind = PLAIN, .dims = 2,
        .shape = { C, m->taps - 1 }, .sd = 0.3, .tiled_row = 2 * K, .row_head = dv });
    head.hf = "linear_attn.bd_softmax_logit_scale", head.gguf = "bd_softmax_logit_scale", head.mean = 4.5, head.sd = 0.9;
    add(l, m, i, head);
    head.hf = "linear_attn.bd_softmax_history_bias", head.gguf = "bd_softmax_history_bias", head.mean = 2, head.sd = 0.8;
    add(l, m, i, head);
    head.hf = "linear_attn.bd_softmax_history_c", head.gguf = "bd_softmax_history_c", head.mean = -0.4, head.sd = 0.4;
    add(l, m, i, head);
}

static void add_moe(SynthTensors *l, const SynthModel *m, int64_t i) {
    static const char gate_up[] = "mlp.experts.gate_up_proj", down[] = "mlp.experts.down_proj";
    int64_t D = m->hidden, E = m->experts, F = m->expert_width, Fs = m->shared_width;
    double sd = 1 / sqrt((double)D), down_sd = 1 / sqrt((double)F);
    add(l, m, i, (Role){ .hf = "mlp.gate.weight", .gguf = "ffn_gate_inp.weight", .kind = PLAIN, .dims = 2, .shape = { E, D },
        .sd = 2 * sd });
    if (m->hf && m->per_expert) {
        for (int e = 0; e < E; e++) {
            add(l, m, i, (Role){ .hf = "mlp.experts.%d.gate_proj.weight", .key = gate_up, .expert = e, .dims = 2,
                .shape = { F, D }, .sd = sd, .first = 2 * F * e });
            add(l, m, i, (Role){ .hf = "mlp.experts.%d.up_proj.weight", .key = gate_up, .expert = e, .dims = 2,
                .shape = { F, D }, .sd = sd, .first = 2 * F * e + F });
            add(l, m, i, (Role){ .hf = "mlp.experts.%d.down_proj.weight", .key = down, .expert = e, .dims = 2, .shape = { D, F },
                .sd = down_sd, .first = D * e });
        }
    } else {
        add(l, m, i, (Role){ .hf = gate_up, .dims = 3, .shape = { E, 2 * F, D }, .sd = sd });
        add(l, m, i, (Role){ .gguf = "ffn_gate_exps.weight", .key = gate_up, .dims = 3, .shape = { E, F, D }, .sd = sd,
            .group = F, .stride = 2 * F });
        add(l, m, i, (Role){ .gguf = "ffn_up_exps.weight", .key = gate_up, .dims = 3, .shape = { E, F, D }, .sd = sd, .first = F,
            .group = F, .stride = 2 * F });
        add(l, m, i, (Role){ .hf = down, .gguf = "ffn_down_exps.weight", .dims = 3, .shape = { E, D, F }, .sd = down_sd });
    }
    add(l, m, i, (Role){ .hf = "mlp.shared_expert_gate.weight", .gguf = "ffn_gate_inp_shexp.weight", .kind = PLAIN,
        .dims = m->hf ? 2 : 1, .shape = { m->hf ? 1 : D, m->hf ? D : 0 }, .sd = sd });
    add(l, m, i, (Role){ .hf = "mlp.shared_expert.gate_proj.weight", .gguf = "ffn_gate_shexp.weight", .dims = 2,
        .shape = { Fs, D }, .sd = sd });
    add(l, m, i, (Role){ .hf = "mlp.shared_expert.up_proj.weight", .gguf = "ffn_up_shexp.weight", .dims = 2, .shape = { Fs, D },
        .sd = sd });
    add(l, m, i, (Role){ .hf = "mlp.shared_expert.down_proj.weight", .gguf = "ffn_down_shexp.weight", .dims = 2,
        .shape = { D, Fs }, .sd = 1 / sqrt((double)Fs) });
}

/* Logits of a standard deviation of 12, so that some rows are sure of their token and others are not. */
static double head_sd(const SynthModel *m) { return 12 / sqrt((double)m->hidden); }

CloverStatus synth_list(const SynthModel *m, SynthTensors *out, CloverError *err) {
    int64_t D = m->hidden;
    Role norm = { .kind = PLAIN, .dims = 1, .shape = { D }, .sd = 0.1, .gguf_form = FORM_PLUS_ONE };
    *out = (SynthTensors){ 0 };
    add(out, m, -1, (Role){ .hf = "embed_tokens.weight", .gguf = "token_embd.weight", .dims = 2, .shape = { m->vocab, D },
        .sd = m->tied ? head_sd(m) : 1 });
    norm.hf = "norm.weight", norm.gguf = "output_norm.weight";
    add(out, m, -1, norm);
    if (!m->tied)
        add(out, m, -1, (Role){ .hf = "lm_head.weight", .gguf = "output.weight", .dims = 2, .shape = { m->vocab, D },
            .sd = head_sd(m) });
    for (int64_t i = 0; i < m->layers; i++) {
        norm.hf = "input_layernorm.weight", norm.gguf = "attn_norm.weight";
        add(out, m, i, norm);
        norm.hf = "post_attention_layernorm.weight", norm.gguf = "post_attention_norm.weight";
        add(out, m, i, norm);
        if ((i + 1) % m->interval == 0) add_attention(out, m, i);        /* [CFG-3] */
        else add_gdn(out, m, i);
        add_moe(out, m, i);
    }
    if (!out->no_memory) return CLOVER_OK;
    free(out->tensor);
    return error_memory(err, "the list of tensors", (size_t)out->room * 2 * sizeof *out->tensor);
}

/* ---- the bytes --------------------------------------------------------------------------------------------------- */

enum { CHUNK = 1 << 16 };            /* elements at a time */

/* GGUF's head p is this head of HF. [TEN-7] */
static int64_t hf_head(const SynthTensor *t, int64_t p) { return p % t->key_heads * t->heads_per_key + p / t->key_heads; }

static int64_t hf_row(const SynthTensor *t, int64_t row) {
    if (t->row_head && row >= t->tiled_row) {
        int64_t in_heads = row - t->tiled_row;
        row = t->tiled_row + hf_head(t, in_heads / t->row_head) * t->row_head + in_heads % t->row_head;
    }
    return t->first + row / t->group * t->stride + row % t->group;
}

static void transform(SynthForm form, float *x, int64_t n) {
    if (form == FORM_PLUS_ONE) for (int64_t i = 0; i < n; i++) x[i] += 1;
    if (form == FORM_NEGATIVE_EXP) for (int64_t i = 0; i < n; i++) x[i] = (float)-el_exp((double)x[i]);
}

static void fill_row(const SynthTensor *t, uint64_t stream, int64_t row, float *out) {
    int64_t start = hf_row(t, row) * t->cols, width = t->col_head ? t->col_head : t->cols;
    for (int64_t c = 0; c < t->cols; c += width) {
        int64_t hf_c = t->col_head ? hf_head(t, c / width) * width : c;
        random_normal(stream, start + hf_c, width, t->mean, t->sd, out + c);
    }
    transform(t->form, out, t->cols);
}

typedef struct Chunk { float *value; uint8_t *bytes; Progress progress; SynthWrite *write; void *self; } Chunk;

static CloverStatus put(Chunk *c, size_t n, CloverError *err) {
    progress_add(&c->progress, (double)n);
    return c->write(c->self, c->bytes, n, err);
}

static CloverStatus write_blocks(const SynthTensor *t, uint64_t stream, Chunk *c, CloverError *err) {
    const DTypeInfo *info = dtype_info(t->type);
    int64_t blocks = t->rows * (t->cols / info->block), at_once = CHUNK / info->block;
    for (int64_t b = 0; b < blocks; b += at_once) {
        int64_t n = blocks - b < at_once ? blocks - b : at_once;
        random_blocks(stream, t->type, b, n, t->sd, c->bytes);
        if (put(c, (size_t)(n * info->bytes), err) != CLOVER_OK) return err->status;
    }
    return CLOVER_OK;
}

static CloverStatus write_rows(const SynthTensor *t, uint64_t stream, Chunk *c, CloverError *err) {
    int64_t at_once = t->cols < CHUNK ? CHUNK / t->cols : 1;
    for (int64_t row = 0; row < t->rows; row += at_once) {
        int64_t n = t->rows - row < at_once ? t->rows - row : at_once;
        for (int64_t i = 0; i < n; i++) fill_row(t, stream, row + i, c->value + i * t->cols);
        if (!quant_encode(t->type, c->value, n * t->cols, c->bytes))
            return error_set(err, CLOVER_BUG, "%s: type %d has no encoder", t->name, (int)t->type);
        if (put(c, (size_t)(n * t->cols * dtype_info(t->type)->bytes), err) != CLOVER_OK) return err->status;
    }
    return CLOVER_OK;
}

CloverStatus synth_write(const SynthModel *m, const SynthTensors *tensors, SynthWrite *write, void *self, CloverError *err) {
    int64_t longest = CHUNK;
    double total = 0;
    for (int64_t i = 0; i < tensors->n; i++) {
        const SynthTensor *t = &tensors->tensor[i];
        if (t->cols > longest) longest = t->cols;
        total += (double)t->rows * (double)t->cols * (double)dtype_info(t->type)->bytes / (double)dtype_info(t->type)->block;
    }
    Chunk c = { .write = write, .self = self, .value = malloc((size_t)longest * 4), .bytes = malloc((size_t)longest * 4) };
    c.progress = progress_start("writing", total);
    CloverStatus status = c.value && c.bytes ? CLOVER_OK : error_memory(err, "a row", (size_t)longest * 8);
    for (int64_t i = 0; i < tensors->n && status == CLOVER_OK; i++) {
        const SynthTensor *t = &tensors->tensor[i];
        bool blocks = dtype_info(t->type)->block > 1;
        uint64_t stream = random_stream(m->seed, blocks ? t->name : t->key);
        status = blocks ? write_blocks(t, stream, &c, err) : write_rows(t, stream, &c, err);
    }
    progress_end(&c.progress);
    free(c.value);
    free(c.bytes);
    return status;
}
