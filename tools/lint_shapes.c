/* lint_shapes.c - the sizes of a model: what its keys say, what its tensors say, and which of the two to believe. [LNT-2]
 *
 * Every tensor bears witness to the sizes in its shape. Where all witnesses of a size agree, and there are two or more, they
 * win over a key that says otherwise: the key is the finding, not each of the tensors. Else the key wins. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "lint.h"

/* ---- witnesses ----------------------------------------------------------------------------------------------------- */

typedef struct Votes { int64_t value, n; bool split; } Votes;        /* n tensors say value; split: others say otherwise */

/* The shape with as many axes as the role has: axes of one more or less do not count. False: it cannot be brought there. */
static bool fit_dims(const Tensor *t, int dims, int64_t shape[3]) {
    int64_t squeezed[TENSOR_MAX_DIMS];
    int n = 0;
    if (t->dims == dims) {
        memcpy(shape, t->shape, (size_t)dims * sizeof *shape);
        return true;
    }
    for (int i = 0; i < t->dims; i++)
        if (t->shape[i] != 1) squeezed[n++] = t->shape[i];
    if (n > dims) return false;
    for (int i = 0; i < dims; i++) shape[i] = i < dims - n ? 1 : squeezed[i - (dims - n)];
    return true;
}

static void count_votes(const LintModel *m, Votes votes[SIZES]) {
    for (int64_t i = 0; i < m->file->tensors.n; i++) {
        int64_t shape[3];
        const LintTensor *t = &m->of[i];
        if (t->role < 0 || t->layer >= m->layers) continue;
        const LintRole *role = &lint_roles[t->role];
        if (!fit_dims(&m->file->tensors.tensor[i], role->dims, shape)) continue;
        const bool turned = role->value == V_CONV && shape[0] < shape[1];   /* few taps, many channels: no doubt which is which */
        for (int d = 0; d < role->dims; d++) {
            Votes *v = &votes[role->shape[turned ? 1 - d : d]];
            if (v->n == 0) v->value = shape[d];
            if (v->value == shape[d]) v->n++;
            else v->split = true;
        }
    }
}

/* ---- keys against witnesses ---------------------------------------------------------------------------------------- */

typedef enum Num { N_D, N_V, N_WIDTH, N_H, N_HKV, N_HK, N_DK, N_HV, N_INNER, N_TAPS, N_E, N_USED, N_F, N_FS, N_CONTEXT, N_EPS, N_BASE, N_SHARED,
                   NUMS } Num;

static const struct { const char *gguf, *json; } keys[NUMS] = {
    [N_D]       = { "embedding_length", "hidden_size" },
    [N_V]       = { NULL, "vocab_size" },
    [N_WIDTH]   = { "attention.key_length", "head_dim" },
    [N_H]       = { "attention.head_count", "num_attention_heads" },
    [N_HKV]     = { "attention.head_count_kv", "num_key_value_heads" },
    [N_HK]      = { "ssm.group_count", "linear_num_key_heads" },
    [N_DK]      = { "ssm.state_size", "linear_key_head_dim" },
    [N_HV]      = { "ssm.time_step_rank", "linear_num_value_heads" },
    [N_INNER]   = { "ssm.inner_size", "linear_value_head_dim" },       /* a folder's: of one head */
    [N_TAPS]    = { "ssm.conv_kernel", "linear_conv_kernel_dim" },
    [N_E]       = { "expert_count", "num_experts" },
    [N_USED]    = { "expert_used_count", "num_experts_per_tok" },
    [N_F]       = { "expert_feed_forward_length", "moe_intermediate_size" },
    [N_FS]      = { "expert_shared_feed_forward_length", "shared_expert_intermediate_size" },
    [N_CONTEXT] = { "context_length", "max_position_embeddings" },
    [N_EPS]     = { "attention.layer_norm_rms_epsilon", "rms_norm_eps" },
    [N_BASE]    = { "rope.freq_base", "rope_parameters.rope_theta|rope_theta" },
    [N_SHARED]  = { "expert_shared_count", NULL },
};

typedef struct Numbers {
    LintModel *m;
    Report *r;
    Votes votes[SIZES];
    double value[NUMS];      /* NaN: absent or unusable */
    bool there[NUMS];
} Numbers;

static const char *name_of(const Numbers *n, Num k) { return n->m->file->form == NAMES_GGUF ? keys[k].gguf : keys[k].json; }

static int hurt(const Numbers *n) { return n->m->file->form == NAMES_GGUF ? LLAMA_CPP | CLOVER : CLOVER | TRANSFORMERS; }

/* A GGUF may give Hkv layer by layer: the entries of attention layers count. [CFG-9] */
static bool kv_heads_by_layer(Numbers *n) {
    char whole[128];
    snprintf(whole, sizeof whole, "%s.%s", n->m->architecture, keys[N_HKV].gguf);
    const GgufKey *k = n->m->file->form == NAMES_GGUF ? lint_key(n->m->file, whole) : NULL;
    if (!k || k->type != GGUF_ARRAY) return false;
    n->there[N_HKV] = true;
    for (int64_t l = 0; l < n->m->layers && (uint64_t)l < k->count; l++) {
        int64_t heads;
        if (n->m->attention[l] && gguf_int(k, (uint64_t)l, &heads)) n->value[N_HKV] = (double)heads;
    }
    return true;
}

static void read_numbers(Numbers *n) {
    for (int k = 0; k < NUMS; k++) {
        n->value[k] = (double)NAN;
        if (k == N_HKV && kv_heads_by_layer(n)) continue;
        double v;
        const int said = lint_number(n->m, keys[k].gguf, keys[k].json, &v);
        n->there[k] = said != 0;
        const bool real = k == N_EPS || k == N_BASE;
        if (said == 1 && (real || (v >= (k == N_SHARED ? 0 : 1) && v < 9e15 && floor(v) == v))) n->value[k] = v;
        else if (said != 0) {
            report_add(n->r, KEY_CONTRADICTS, BREAKS, hurt(n), NULL, "%s is no number that makes sense", name_of(n, (Num)k));
            report_beyond_fix(n->r, KEY_CONTRADICTS, BREAKS);
        }
    }
}

/* What the tensors say of a size, -1 when they disagree or none speaks. */
static int64_t witnessed(const Numbers *n, Size s) { return n->votes[s].split || n->votes[s].n == 0 ? -1 : n->votes[s].value; }

/* Brings a key and its witnesses together: implied is what they say (-1: nothing), by so many tensors. */
static void settle(Numbers *n, Num k, int64_t implied, int64_t witnesses) {
    const bool needed = name_of(n, k) != NULL && (n->m->file->form == NAMES_GGUF ? n->m->file->whole : n->m->file->config != NULL);
    if (!n->there[k]) {
        if (needed)
            report_add(n->r, KEY_MISSING, BREAKS, hurt(n), NULL, implied > 0 ? "%s is not there; the tensors say %lld" : "%s is not there",
                       name_of(n, k), (long long)implied);
        if (needed && implied <= 0 && k != N_SHARED) report_beyond_fix(n->r, KEY_MISSING, BREAKS);
        if (implied > 0) n->value[k] = (double)implied;
    } else if (implied > 0 && witnesses >= 2 && !isnan(n->value[k]) && n->value[k] != (double)implied) {
        report_add(n->r, KEY_CONTRADICTS, BREAKS, hurt(n), NULL, "%s is %g, all %lld tensors that show it say %lld", name_of(n, k), n->value[k],
                   (long long)witnesses, (long long)implied);
        n->value[k] = (double)implied;
    }
    if (isnan(n->value[k]) && implied > 0) n->value[k] = (double)implied;
}

/* Two sizes that show the same number: their common answer. */
static int64_t common(int64_t a, int64_t b) { return a < 0 ? b : b < 0 || a == b ? a : -1; }
static int64_t divide(int64_t a, int64_t b) { return a > 0 && b > 0 && a % b == 0 ? a / b : -1; }
static int64_t whole(double v) { return isnan(v) ? -1 : (int64_t)v; }

/* The size of every letter, the keys being settled. */
static void settle_sizes(Numbers *n) {
    int64_t *s = n->m->size;
    const Votes *v = n->votes;
    settle(n, N_D, witnessed(n, S_D), v[S_D].n);
    settle(n, N_WIDTH, witnessed(n, S_WIDTH), v[S_WIDTH].n);
    const int64_t width = whole(n->value[N_WIDTH]);
    settle(n, N_H, common(divide(witnessed(n, S_O), width), divide(witnessed(n, S_QG), 2 * width)), v[S_O].n + v[S_QG].n);
    settle(n, N_HKV, divide(witnessed(n, S_KV), width), v[S_KV].n);
    settle(n, N_HV, witnessed(n, S_HV), v[S_HV].n);
    const int64_t Hv = whole(n->value[N_HV]), Vd = witnessed(n, S_VD);
    if (n->m->file->form == NAMES_GGUF) settle(n, N_INNER, Vd, v[S_VD].n);
    else settle(n, N_INNER, common(witnessed(n, S_DV), divide(Vd, Hv)), v[S_DV].n + v[S_VD].n);
    const int64_t inner = n->m->file->form == NAMES_GGUF ? whole(n->value[N_INNER]) : whole(n->value[N_INNER]) * (Hv > 0 ? Hv : 1);
    const int64_t right = witnessed(n, S_RIGHT);
    settle(n, N_TAPS, common(witnessed(n, S_TAPS), right > 0 ? right + 1 : -1), v[S_TAPS].n + v[S_RIGHT].n);
    settle(n, N_E, witnessed(n, S_E), v[S_E].n);
    settle(n, N_F, common(witnessed(n, S_F), divide(witnessed(n, S_F2), 2)), v[S_F].n + v[S_F2].n);
    settle(n, N_FS, witnessed(n, S_FS), v[S_FS].n);

    /* Hk and dk stand in one size only, 2·Hk·dk + Vd: each is what the other leaves. */
    const int64_t C = witnessed(n, S_C), K = C > 0 && inner > 0 && (C - inner) % 2 == 0 ? (C - inner) / 2 : -1;
    const int64_t Hk = whole(n->value[N_HK]), dk = whole(n->value[N_DK]);
    settle(n, N_HK, Hk < 0 ? divide(K, dk) : -1, 0);
    settle(n, N_DK, dk < 0 ? divide(K, Hk) : -1, 0);
    if (Hk > 0 && dk > 0 && K > 0 && Hk * dk != K && v[S_C].n >= 2)
        report_add(n->r, KEY_CONTRADICTS, BREAKS, hurt(n), NULL, "%s %lld times %s %lld is %lld, all %lld tensors that show it say %lld",
                   name_of(n, N_HK), (long long)Hk, name_of(n, N_DK), (long long)dk,
                   (long long)(Hk * dk), (long long)v[S_C].n, (long long)K);
    const int64_t keys_width = K > 0 && v[S_C].n >= 2 ? K : whole(n->value[N_HK]) > 0 && whole(n->value[N_DK]) > 0
            ? whole(n->value[N_HK]) * whole(n->value[N_DK]) : -1;

    n->m->heads = whole(n->value[N_H]);
    n->m->kv_heads = whole(n->value[N_HKV]);
    n->m->key_heads = whole(n->value[N_HK]);
    n->m->key_width = whole(n->value[N_DK]);
    s[S_ONE] = 1;
    s[S_D] = whole(n->value[N_D]);
    s[S_WIDTH] = width;
    s[S_QG] = n->m->heads > 0 && width > 0 ? 2 * n->m->heads * width : -1;
    s[S_O] = s[S_QG] > 0 ? s[S_QG] / 2 : -1;
    s[S_KV] = n->m->kv_heads > 0 && width > 0 ? n->m->kv_heads * width : -1;
    s[S_HV] = Hv;
    s[S_VD] = inner;
    s[S_DV] = divide(inner, Hv);
    s[S_C] = keys_width > 0 && inner > 0 ? 2 * keys_width + inner : -1;
    s[S_TAPS] = whole(n->value[N_TAPS]);
    s[S_RIGHT] = s[S_TAPS] > 1 ? s[S_TAPS] - 1 : -1;
    s[S_E] = whole(n->value[N_E]);
    s[S_F] = whole(n->value[N_F]);
    s[S_F2] = s[S_F] > 0 ? 2 * s[S_F] : -1;
    s[S_FS] = whole(n->value[N_FS]);
}

/* V: in a GGUF the embedding has it, and tokens and head must agree. */
static void settle_vocabulary(Numbers *n) {
    if (n->m->file->form == NAMES_HF) {
        settle(n, N_V, witnessed(n, S_V), n->votes[S_V].n);
        n->m->size[S_V] = whole(n->value[N_V]);
    } else n->m->size[S_V] = n->votes[S_V].n > 0 ? n->votes[S_V].value : -1;
}

static void check_relations(Numbers *n) {
    const double *v = n->value;
    const int hurts = hurt(n);
    const bool gguf = n->m->file->form == NAMES_GGUF;
    double length;
    if (v[N_USED] > v[N_E]) {
        report_add(n->r, KEY_CONTRADICTS, BREAKS, hurts, NULL, "%s is %g of %g experts", name_of(n, N_USED), v[N_USED], v[N_E]);
        report_beyond_fix(n->r, KEY_CONTRADICTS, BREAKS);
    }
    if (v[N_HKV] > 0 && fmod(v[N_H], v[N_HKV]) > 0)
        report_add(n->r, KEY_CONTRADICTS, BREAKS, hurts, NULL, "%g query heads are no multiple of %g KV heads", v[N_H], v[N_HKV]);
    if (v[N_HK] > 0 && fmod(v[N_HV], v[N_HK]) > 0)
        report_add(n->r, KEY_CONTRADICTS, BREAKS, hurts, NULL, "%g GDN value heads are no multiple of %g key heads", v[N_HV], v[N_HK]);
    if (gguf && v[N_HV] > 0 && fmod(v[N_INNER], v[N_HV]) > 0)
        report_add(n->r, KEY_CONTRADICTS, BREAKS, hurts, NULL, "ssm.inner_size %g is no multiple of %g value heads", v[N_INNER], v[N_HV]);
    if (n->there[N_EPS] && !(v[N_EPS] > 0 && v[N_EPS] < 0.01)) {
        report_add(n->r, KEY_CONTRADICTS, GARBAGE, hurts, NULL, "%s is %g, usually 1e-6", name_of(n, N_EPS), v[N_EPS]);
        report_beyond_fix(n->r, KEY_CONTRADICTS, GARBAGE);
    }
    if (n->there[N_BASE] && !(v[N_BASE] >= 1)) {
        report_add(n->r, KEY_CONTRADICTS, BREAKS, hurts, NULL, "%s is %g, expected at least 1", name_of(n, N_BASE), v[N_BASE]);
        report_beyond_fix(n->r, KEY_CONTRADICTS, BREAKS);
    }
    if (gguf && v[N_SHARED] == 0) report_add(n->r, KEY_CONTRADICTS, BREAKS, hurts, NULL, "expert_shared_count is 0; the model has one shared expert");
    const int said = lint_number(n->m, "attention.value_length", NULL, &length);
    if (gguf && said == 0 && n->m->file->whole) report_add(n->r, KEY_MISSING, BREAKS, hurts, NULL, "attention.value_length is not there");
    if (said == 1 && v[N_WIDTH] > 0 && length != v[N_WIDTH])
        report_add(n->r, KEY_CONTRADICTS, BREAKS, hurts, NULL, "attention.value_length is %g and key_length %g", length, v[N_WIDTH]);
}

/* ---- each tensor --------------------------------------------------------------------------------------------------- */

/* Loaders differ in which axes of one they accept: for the conv kernel a GGUF has none, a folder one in the middle. */
static bool conv_form_is_usual(const LintModel *m, const Tensor *t) {
    return m->file->form == NAMES_GGUF ? t->dims == 2 : t->dims == 3 && t->shape[1] == 1;
}

static void check_shape(const LintModel *m, int64_t i, Report *r) {
    const Tensor *t = &m->file->tensors.tensor[i];
    const LintRole *role = &lint_roles[m->of[i].role];
    const int hurts = m->file->form == NAMES_GGUF ? LLAMA_CPP | CLOVER : CLOVER | TRANSFORMERS;
    char want[SHAPE_TEXT], have[SHAPE_TEXT];
    int64_t shape[3] = { 0 }, expected[3];
    bool same = fit_dims(t, role->dims, shape), known = true;
    for (int d = 0; d < role->dims; d++) {
        expected[d] = m->size[role->shape[d]];
        known &= expected[d] > 0;
        same &= expected[d] <= 0 || shape[d] == expected[d];
    }
    const bool turned = known && role->dims == 2 && !same && shape[0] == expected[1] && shape[1] == expected[0];
    if (role->value == V_CONV && turned)
        report_add(r, CONV_LAYOUT, BREAKS, hurts, t->name, "%s is %s, expected %s: taps run slowest", t->name, shape_text(t->shape, t->dims, have),
                   shape_text(expected, 2, want));
    else if (!same)
        report_add(r, TENSOR_SHAPE, BREAKS, hurts, t->name, "%s is %s, expected %s%s", t->name, shape_text(t->shape, t->dims, have),
                   shape_text(expected, role->dims, want), turned ? ": it is transposed" : "");
    else if (role->value == V_CONV && !conv_form_is_usual(m, t))
        report_add(r, CONV_LAYOUT, BREAKS, m->file->form == NAMES_GGUF ? LLAMA_CPP : TRANSFORMERS, t->name, "%s is %s: %s", t->name,
                   shape_text(t->shape, t->dims, have),
                   m->file->form == NAMES_GGUF ? "its middle axis of one should be gone" : "its middle axis of one is gone");
}

void lint_shapes(LintModel *m, Report *r) {
    Numbers n = { .m = m, .r = r };
    for (int s = 0; s < SIZES; s++) m->size[s] = -1;
    count_votes(m, n.votes);
    read_numbers(&n);
    settle_sizes(&n);
    settle_vocabulary(&n);
    settle(&n, N_USED, -1, 0);
    settle(&n, N_CONTEXT, -1, 0);
    settle(&n, N_EPS, -1, 0);
    settle(&n, N_BASE, -1, 0);
    if (m->file->form == NAMES_GGUF && m->file->whole && !n.there[N_SHARED])   /* llama.cpp demands it, this tool reads 1 */
        report_add(r, KEY_MISSING, BREAKS, LLAMA_CPP, NULL, "%s.expert_shared_count is not there; the model has one shared expert", m->architecture);
    check_relations(&n);
    for (int64_t i = 0; i < m->file->tensors.n; i++)
        if (m->of[i].role >= 0 && m->of[i].layer < m->layers) check_shape(m, i, r);
}
