/* weights.c - from a file's tensor names to the roles that the layers read. [TEN]
 *
 * The tables below are [TEN-1] as data; what follows binds them. Matrices stay in the mapping. Vectors are decoded, put into
 * HF's head order and kept as the file's values until all layers are bound; only then is it known whether the file drifts
 * ([TEN-10], [TEN-11]), and the last step makes factors and rates of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../error.h"
#include "../math/elementary.h"
#include "names.h"
#include "quant.h"
#include "weights.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Sizes that shapes are made of: the letters of clover.h. */
typedef enum Size { ONE, D, V, QG, KV, O, WIDTH, C, VD, HV, DV, TAPS, RIGHT, E, F, F2, FS, SIZES } Size;

/* Which indices a GGUF keeps in its own order of value heads. [TEN-7] */
typedef enum Heads {
    NO_HEADS,
    QKV_ROWS,                /* the V rows behind q and k, whole heads of dv */
    V_ROWS,                  /* whole heads of dv rows */
    HEAD_ROWS,               /* one row or element a head */
    V_COLS                   /* whole heads of dv columns */
} Heads;

typedef enum Form {
    MATRIX,                  /* stays in the mapping */
    PLAIN,                   /* a vector (or conv kernel) as it is */
    LAYER_NORM,              /* a vector that holds w in HF and 1 + w in a GGUF [TEN-5] */
    HEAD_NORM,               /* the same; not asked whether it is near 0 or 1: a trained head norm may be anywhere */
    RATE                     /* A_log in HF, -exp(A_log) in a GGUF [TEN-6] */
} Form;

enum { ALTERNATIVES = 3 };

typedef struct Role {
    Form form;
    const char *gguf[ALTERNATIVES], *hf[ALTERNATIVES];   /* behind the layer's prefix */
    Size rows, cols;         /* a vector's cols are ONE */
    Heads heads;
    size_t field;            /* in Weights, or in LayerW */
} Role;

#define WHOLE(name) offsetof(Weights, name)
#define LAYER(name) offsetof(LayerW, name)

static const Role model_roles[] = {
    { MATRIX,     { "token_embd.weight" },  { "embed_tokens.weight" }, V, D,   NO_HEADS, WHOLE(embed) },
    { LAYER_NORM, { "output_norm.weight" }, { "norm.weight" },         D, ONE, NO_HEADS, WHOLE(norm) },
};
static const Role head_role =   /* HF: without a prefix */
    { MATRIX,     { "output.weight" },      { "lm_head.weight" },      V, D,   NO_HEADS, WHOLE(head) };

static const Role every_layer[] = {
    { LAYER_NORM, { "attn_norm.weight" },           { "input_layernorm.weight" },          D,  ONE, NO_HEADS, LAYER(attn_norm) },
    { LAYER_NORM, { "post_attention_norm.weight" }, { "post_attention_layernorm.weight" }, D,  ONE, NO_HEADS, LAYER(ffn_norm) },
    { MATRIX, { "ffn_gate_inp.weight" },       { "mlp.gate.weight" },                    E,   D,  NO_HEADS, LAYER(moe.router) },
    { MATRIX, { "ffn_gate_shexp.weight" },     { "mlp.shared_expert.gate_proj.weight" }, FS,  D,  NO_HEADS, LAYER(moe.shared.gate) },
    { MATRIX, { "ffn_up_shexp.weight" },       { "mlp.shared_expert.up_proj.weight" },   FS,  D,  NO_HEADS, LAYER(moe.shared.up) },
    { MATRIX, { "ffn_down_shexp.weight" },     { "mlp.shared_expert.down_proj.weight" }, D,   FS, NO_HEADS, LAYER(moe.shared.down) },
    { MATRIX, { "ffn_gate_inp_shexp.weight" }, { "mlp.shared_expert_gate.weight" },      ONE, D,  NO_HEADS, LAYER(moe.shared_gate) },
};

static const Role attention_layer[] = {
    { MATRIX,    { "attn_q.weight" },      { "self_attn.q_proj.weight" }, QG,    D,   NO_HEADS, LAYER(attn.q) },
    { MATRIX,    { "attn_k.weight" },      { "self_attn.k_proj.weight" }, KV,    D,   NO_HEADS, LAYER(attn.k) },
    { MATRIX,    { "attn_v.weight" },      { "self_attn.v_proj.weight" }, KV,    D,   NO_HEADS, LAYER(attn.v) },
    { MATRIX,    { "attn_output.weight" }, { "self_attn.o_proj.weight" }, D,     O,   NO_HEADS, LAYER(attn.o) },
    { HEAD_NORM, { "attn_q_norm.weight" }, { "self_attn.q_norm.weight" }, WIDTH, ONE, NO_HEADS, LAYER(attn.q_norm) },
    { HEAD_NORM, { "attn_k_norm.weight" }, { "self_attn.k_norm.weight" }, WIDTH, ONE, NO_HEADS, LAYER(attn.k_norm) },
};

static const Role gdn_layer_roles[] = {
    { MATRIX, { "attn_qkv.weight" },    { "linear_attn.in_proj_qkv.weight" }, C,  D,    QKV_ROWS,  LAYER(gdn.qkv) },
    { MATRIX, { "attn_gate.weight" },   { "linear_attn.in_proj_z.weight" },   VD, D,    V_ROWS,    LAYER(gdn.z) },
    { MATRIX, { "ssm_beta.weight" },    { "linear_attn.in_proj_b.weight" },   HV, D,    HEAD_ROWS, LAYER(gdn.beta) },
    { MATRIX, { "ssm_alpha.weight" },   { "linear_attn.in_proj_a.weight" },   HV, D,    HEAD_ROWS, LAYER(gdn.alpha) },
    { MATRIX, { "ssm_out.weight" },     { "linear_attn.out_proj.weight" },    D,  VD,   V_COLS,    LAYER(gdn.out) },
    { PLAIN,  { "ssm_conv1d.weight" },  { "linear_attn.conv1d.weight" },      C,  TAPS, QKV_ROWS,  LAYER(gdn.conv) },
    { PLAIN,  { "ssm_norm.weight" },    { "linear_attn.norm.weight" },        DV, ONE,  NO_HEADS,  LAYER(gdn.norm) },
    { RATE,   { "ssm_a", "ssm_a.weight" },                  { "linear_attn.A_log" },   HV, ONE, HEAD_ROWS, LAYER(gdn.rate) },
    { PLAIN,  { "ssm_dt.bias", "ssm_dt", "ssm_dt.weight" }, { "linear_attn.dt_bias" }, HV, ONE, HEAD_ROWS, LAYER(gdn.dt_bias) },  /* [TEN-12] */
};

/* In a GGUF any name of the layer that ends so counts, with or without .weight. [TEN-3] */
#define DIFFUSION(name, rows, cols, heads, field) \
    { PLAIN, { name }, { "linear_attn." name, "linear_attn." name ".weight" }, rows, cols, heads, field }
static const Role diffusion_roles[] = {
    DIFFUSION("conv_right_weight",       C,  RIGHT, QKV_ROWS,  LAYER(gdn.conv_right)),
    DIFFUSION("bd_softmax_logit_scale",  HV, ONE,   HEAD_ROWS, LAYER(gdn.logit_scale)),
    DIFFUSION("bd_softmax_history_bias", HV, ONE,   HEAD_ROWS, LAYER(gdn.history_bias)),
    DIFFUSION("bd_softmax_history_c",    HV, ONE,   HEAD_ROWS, LAYER(gdn.history_c)),
};

/* Experts: one tensor [E, rows, cols] for all, the gate and up halves together or, in a GGUF, apart; or in HF three tensors
 * an expert. */
typedef struct Experts {
    const char *gguf[ALTERNATIVES], *hf[ALTERNATIVES];   /* two at most, then NULL */
    Size rows, cols;         /* of one expert */
    bool up;                 /* the second half of rows is up */
    size_t field;            /* in ExpertW */
} Experts;
#define EXPERT(name) offsetof(ExpertW, name)
static const Experts gate_up_experts =
    { { "ffn_gate_up_exps.weight" }, { "mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj.weight" }, F2, D, true, EXPERT(gate) };
static const Experts gate_experts = { { "ffn_gate_exps.weight" }, { NULL }, F, D, false, EXPERT(gate) };
static const Experts up_experts = { { "ffn_up_exps.weight" }, { NULL }, F, D, false, EXPERT(up) };
static const Experts down_experts =
    { { "ffn_down_exps.weight" }, { "mlp.experts.down_proj", "mlp.experts.down_proj.weight" }, D, F, false, EXPERT(down) };
static const Role single_expert[] = {   /* behind mlp.experts.E. */
    { MATRIX, { NULL }, { "gate_proj.weight" }, F, D, NO_HEADS, EXPERT(gate) },
    { MATRIX, { NULL }, { "up_proj.weight" },   F, D, NO_HEADS, EXPERT(up) },
    { MATRIX, { NULL }, { "down_proj.weight" }, D, F, NO_HEADS, EXPERT(down) },
};

/* Known, and no part of the text model. [TEN-9] */
static const char *const ignored_prefixes[] = {
    "mtp.", "model.mtp.", "visual.", "model.visual.", "v.", "mm.", "vision_", "model.vision_",
};
/* What would change the mathematics. [CFG-7] */
static const char *const unsupported_suffixes[] = {
    ".bias", ".scale", ".input_scale", ".weight_scale", ".weight_scale_inv", ".qweight",
};

/* ---- memory ---------------------------------------------------------------------------------------------------- */

typedef struct Chunk { struct Chunk *next; max_align_t data[]; } Chunk;

/* n zeroed things that live as long as the weights; NULL and an error when the machine refuses. */
static void *keep(Weights *w, int64_t n, size_t size, CloverError *err) {
    const size_t most = SIZE_MAX / 2 - sizeof(Chunk);
    if ((uint64_t)n > most / size) { error_memory(err, "the model's vectors", SIZE_MAX); return NULL; }
    Chunk *chunk = calloc(1, sizeof *chunk + (size_t)n * size);
    if (!chunk) { error_memory(err, "the model's vectors", (size_t)n * size); return NULL; }
    chunk->next = w->arena;
    w->arena = chunk;
    return chunk->data;
}

void weights_free(Weights *w) {
    for (Chunk *chunk = w->arena, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    memset(w, 0, sizeof *w);
}

/* ---- finding tensors ------------------------------------------------------------------------------------------- */

enum { PREFIX_ROOM = 64, NAME_ROOM = 256, WHERE_ROOM = 1024 };

typedef struct Binder {
    const TensorList *list;
    Names names;                     /* tensor's name -> its place in the list */
    bool *used;                      /* [list->n] */
    NameForm form;
    const CloverConfig *c;
    int64_t size[SIZES];
    bool diffusion_tiled;
    const char *trunk, *layers;      /* what stands before the names of the whole model, and before a layer's number */
    char where[WHERE_ROOM];          /* the file, or HF's folder, for what is missing */
    CloverDriftMode drifts;
    Weights *w;
    CloverError *err;
    /* what the values show [TEN-10], [TEN-11] */
    bool raw_rates;                  /* an ssm_a has a value >= 0 */
    double norm_sum; int64_t norm_count;
} Binder;

static bool failed_for_memory(const Binder *b) { return b->err->status == CLOVER_SYSTEM; }

static const Tensor *take(Binder *b, const char *name) {
    int64_t at = names_find(&b->names, name);
    if (at < 0) return NULL;
    b->used[at] = true;
    return &b->list->tensor[at];
}

/* The tensor that has one of these names behind the prefix; two of them at once contradict each other. first: the name to
 * speak of when there is none. */
static const Tensor *find(Binder *b, const char *prefix, const char *const names[], int n, char first[NAME_ROOM]) {
    const Tensor *found = NULL;
    snprintf(first, NAME_ROOM, "%s%s", prefix, names[0]);
    for (int i = 0; i < n && names[i]; i++) {
        char name[NAME_ROOM];
        snprintf(name, sizeof name, "%s%s", prefix, names[i]);
        const Tensor *t = take(b, name);
        if (t && found)
            error_add(b->err, CLOVER_BAD_INPUT, "%s: %s and %s are both there; only one of them can be meant", t->file,
                      found->name, t->name);
        else if (t) found = t;
    }
    return found;
}

static bool ends_with(const char *name, const char *suffix) {
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* A GGUF's diffusion tensor: the one of the layer whose name ends so. [TEN-3] */
static const Tensor *find_ending(Binder *b, const char *prefix, const char *ending, char first[NAME_ROOM]) {
    const Tensor *found = NULL;
    char with_weight[NAME_ROOM];
    snprintf(first, NAME_ROOM, "%s%s", prefix, ending);
    snprintf(with_weight, sizeof with_weight, "%s.weight", ending);
    for (int64_t i = 0; i < b->list->n; i++) {
        const Tensor *t = &b->list->tensor[i];
        if (strncmp(t->name, prefix, strlen(prefix)) != 0) continue;
        if (!ends_with(t->name, ending) && !ends_with(t->name, with_weight)) continue;
        b->used[i] = true;
        if (found) error_add(b->err, CLOVER_BAD_INPUT, "%s: %s and %s are both there; only one of them can be meant", t->file,
                             found->name, t->name);
        else found = t;
    }
    return found;
}

/* ---- shapes ---------------------------------------------------------------------------------------------------- */

/* The axes longer than one: files differ in whether they keep the others, which change neither order nor meaning. */
static int squeeze(const int64_t *shape, int dims, int64_t out[TENSOR_MAX_DIMS]) {
    int n = 0;
    for (int i = 0; i < dims; i++)
        if (shape[i] != 1) out[n++] = shape[i];
    return n;
}

/* Does the tensor have this shape, and as many bytes as it needs? [TEN-1] */
static bool check_shape(Binder *b, const Tensor *t, const int64_t *shape, int dims) {
    int64_t expected[TENSOR_MAX_DIMS], actual[TENSOR_MAX_DIMS] = { 0 };
    int n = squeeze(shape, dims, expected), m = squeeze(t->shape, t->dims, actual);
    if (n != m || memcmp(expected, actual, (size_t)n * sizeof *expected) != 0) {
        char want[SHAPE_TEXT], have[SHAPE_TEXT];
        bool turned = n == 2 && m == 2 && expected[0] == actual[1] && expected[1] == actual[0];
        error_add(b->err, CLOVER_BAD_INPUT, "%s: %s: expected shape %s, found %s%s", t->file, t->name, shape_text(shape, dims, want),
                  shape_text(t->shape, t->dims, have), turned ? ": it is transposed" : "");
        return false;
    }
    int64_t row = dtype_bytes(t->type, shape[dims - 1]);
    if (dtype_info(t->type) && (row < 0 || (uint64_t)(t->elements / shape[dims - 1]) * (uint64_t)row > t->bytes)) {
        error_add(b->err, CLOVER_BAD_INPUT, "%s: %s: rows of %lld %s elements do not fit its %llu bytes", t->file, t->name,
                  (long long)shape[dims - 1], dtype_info(t->type)->name, (unsigned long long)t->bytes);
        return false;
    }
    return true;
}

/* How HF's indices lead to the file's. */
static HeadMap map_of(const Binder *b, Heads heads, bool diffusion) {
    const CloverConfig *c = b->c;
    HeadMap m = { 0, 0, c->key_heads, c->value_heads / c->key_heads };
    if (b->form == NAMES_HF || (diffusion && !b->diffusion_tiled)) return m;
    if (heads == QKV_ROWS) m.start = 2 * c->key_heads * c->key_width;
    if (heads != NO_HEADS) m.width = heads == HEAD_ROWS ? 1 : c->value_width;
    return m;
}

/* ---- binding one role ------------------------------------------------------------------------------------------ */

static Matrix matrix_of(const Binder *b, const Tensor *t, int64_t first_row, int64_t rows, int64_t cols, Heads heads) {
    const HeadMap none = map_of(b, NO_HEADS, false), map = map_of(b, heads, false);
    int64_t row_bytes = dtype_bytes(t->type, cols);
    if (row_bytes < 0) row_bytes = 0;   /* a type that nobody knows: refused when it is used */
    return (Matrix){ .tensor = t, .data = t->data + first_row * row_bytes, .type = t->type, .rows = rows, .cols = cols,
                     .row_bytes = row_bytes,
                     .row_map = heads == V_COLS ? none : map, .col_map = heads == V_COLS ? map : none };
}

static void note_values(Binder *b, Form form, const double *values, int64_t n) {
    if (b->form == NAMES_HF) return;
    for (int64_t i = 0; i < n; i++) {
        if (form == LAYER_NORM) b->norm_sum += values[i];
        b->raw_rates |= form == RATE && values[i] >= 0;
    }
    if (form == LAYER_NORM) b->norm_count += n;
}

/* A vector's values in HF's head order: [rows, cols]; NULL when they cannot be had. */
static const double *vector_of(Binder *b, const Tensor *t, const Role *role, bool diffusion) {
    const int64_t rows = b->size[role->rows], cols = b->size[role->cols], n = rows * cols;
    const DTypeInfo *info = dtype_info(t->type);
    if (!info || !info->decodable) {
        error_add(b->err, CLOVER_UNSUPPORTED, "%s: %s: its type %s cannot be decoded", t->file, t->name,
                  info ? info->name : "(unknown)");
        return NULL;
    }
    double *file = malloc((size_t)n * sizeof *file), *values = keep(b->w, n, sizeof *values, b->err);
    if (!file) error_memory(b->err, "a vector", (size_t)n * sizeof *file);
    if (!file || !values) { free(file); return NULL; }
    quant_decode(t->type, t->data, n, file);
    int64_t bad = -1;
    for (int64_t i = n - 1; i >= 0; i--)
        if (!isfinite(file[i])) bad = i;
    if (bad >= 0)   /* [TEN-13] */
        error_add(b->err, CLOVER_BAD_INPUT, "%s: %s: element %lld of %lld is %s", t->file, t->name, (long long)bad, (long long)n,
                  isnan(file[bad]) ? "NaN" : "infinite");
    else note_values(b, role->form, file, n);
    const HeadMap map = map_of(b, role->heads, diffusion);
    for (int64_t r = 0; r < rows; r++) memcpy(values + r * cols, file + head_map(&map, r) * cols, (size_t)cols * sizeof *values);
    free(file);
    return values;
}

/* Binds a role to the tensor that was found for it. */
static void bind_tensor(Binder *b, const Tensor *t, const Role *role, void *base, bool diffusion) {
    const int64_t rows = b->size[role->rows], cols = b->size[role->cols];
    void *field = (char *)base + role->field;
    if (!check_shape(b, t, (const int64_t[]){ rows, cols }, role->form == MATRIX || role->cols != ONE ? 2 : 1)) return;
    if (role->form == MATRIX) *(Matrix *)field = matrix_of(b, t, 0, rows, cols, role->heads);
    else *(const double **)field = vector_of(b, t, role, diffusion);
}

static void bind_roles(Binder *b, const char *prefix, const Role *roles, size_t n, void *base) {
    for (size_t i = 0; i < n; i++) {
        char name[NAME_ROOM];
        const Tensor *t = find(b, prefix, b->form == NAMES_GGUF ? roles[i].gguf : roles[i].hf, ALTERNATIVES, name);
        if (t) bind_tensor(b, t, &roles[i], base, false);
        else error_add(b->err, CLOVER_BAD_INPUT, "%s: missing tensor %s", b->where, name);
    }
}

/* ---- experts --------------------------------------------------------------------------------------------------- */

/* Every expert's slice of a tensor [E, rows, cols]. */
static void slice_experts(Binder *b, const Tensor *t, const Experts *kind, ExpertW *expert) {
    const int64_t n = b->size[E], rows = b->size[kind->rows], cols = b->size[kind->cols], half = b->size[F];
    if (!check_shape(b, t, (const int64_t[]){ n, rows, cols }, 3)) return;
    for (int64_t e = 0; e < n; e++) {
        *(Matrix *)((char *)&expert[e] + kind->field) = matrix_of(b, t, e * rows, kind->up ? half : rows, cols, NO_HEADS);
        if (kind->up) expert[e].up = matrix_of(b, t, e * rows + half, half, cols, NO_HEADS);
    }
}

/* Binds a fused tensor of experts; false when it is not there. */
static bool fused_experts(Binder *b, const char *prefix, const Experts *kind, ExpertW *expert, char name[NAME_ROOM]) {
    const Tensor *t = find(b, prefix, b->form == NAMES_GGUF ? kind->gguf : kind->hf, 2, name);
    if (t) slice_experts(b, t, kind, expert);
    return t != NULL;
}

static void single_experts(Binder *b, const char *prefix, ExpertW *expert) {
    for (int64_t e = 0; e < b->size[E]; e++) {
        char inner[2 * PREFIX_ROOM];
        snprintf(inner, sizeof inner, "%smlp.experts.%lld.", prefix, (long long)e);
        bind_roles(b, inner, single_expert, COUNT(single_expert), &expert[e]);
    }
}

/* Gate and up apart: a GGUF's two tensors, or HF's one tensor an expert, which brings its down too. */
static bool separate_experts(Binder *b, const char *prefix, ExpertW *expert, char gate[NAME_ROOM], char up[NAME_ROOM]) {
    if (b->form == NAMES_GGUF) {
        bool has_gate = fused_experts(b, prefix, &gate_experts, expert, gate), has_up = fused_experts(b, prefix, &up_experts, expert, up);
        if (has_gate != has_up) error_add(b->err, CLOVER_BAD_INPUT, "%s: missing tensor %s", b->where, has_gate ? up : gate);
        return has_gate || has_up;
    }
    snprintf(gate, NAME_ROOM, "%smlp.experts.0.gate_proj.weight", prefix);
    snprintf(up, NAME_ROOM, "%smlp.experts.0.up_proj.weight", prefix);
    bool single = names_find(&b->names, gate) >= 0 || names_find(&b->names, up) >= 0;
    if (single) single_experts(b, prefix, expert);
    return single;
}

static void bind_experts(Binder *b, const char *prefix, MoeW *moe) {
    if (!moe->router.data) return;   /* absent or of another shape, as was reported: then E is not to be trusted */
    ExpertW *expert = moe->expert = keep(b->w, b->size[E], sizeof *expert, b->err);
    if (!expert) return;
    char gate_up[NAME_ROOM], gate[NAME_ROOM], up[NAME_ROOM], down[NAME_ROOM];
    bool fused = fused_experts(b, prefix, &gate_up_experts, expert, gate_up);
    bool separate = separate_experts(b, prefix, expert, gate, up);
    if (fused && separate)
        error_add(b->err, CLOVER_BAD_INPUT, "%s: %s and %s or %s are both there; only one form can be meant", b->where, gate_up, gate, up);
    if (!fused && !separate) error_add(b->err, CLOVER_BAD_INPUT, "%s: missing tensor %s (or %s and %s)", b->where, gate_up, gate, up);
    bool needs_down = b->form == NAMES_GGUF || !separate;
    if (needs_down && !fused_experts(b, prefix, &down_experts, expert, down))
        error_add(b->err, CLOVER_BAD_INPUT, "%s: missing tensor %s", b->where, down);
}

/* ---- diffusion tensors ----------------------------------------------------------------------------------------- */

/* Binds what is there and notes what is not: all together or none is fine. [TEN-3] [TEN-4] */
static void bind_diffusion(Binder *b, const char *prefix, LayerW *layer) {
    for (size_t i = 0; i < COUNT(diffusion_roles); i++) {
        const Role *role = &diffusion_roles[i];
        char name[NAME_ROOM];
        if (b->size[role->cols] == 0) continue;   /* one tap: no row after is read */
        const Tensor *t = b->form == NAMES_GGUF ? find_ending(b, prefix, role->gguf[0], name) : find(b, prefix, role->hf,
                                                                                                     ALTERNATIVES, name);
        if (t) { b->w->diffusion = true; bind_tensor(b, t, role, layer, true); continue; }
        char *copy = keep(b->w, (int64_t)strlen(name) + 1, 1, b->err);
        if (!copy) return;
        b->w->missing[b->w->n_missing++] = strcpy(copy, name);
    }
}

static void settle_diffusion(Binder *b) {
    Weights *w = b->w;
    bool any_gdn = false;
    for (int64_t i = 0; i < w->layers; i++) any_gdn |= !w->layer[i].full_attention;
    if (!any_gdn) w->diffusion = b->c->family == CLOVER_FAMILY_CLOVER;   /* nothing is needed */
    if (w->diffusion && any_gdn)
        for (int64_t i = 0; i < w->n_missing; i++)
            error_add(b->err, CLOVER_BAD_INPUT, "%s: missing tensor %s: a file has all diffusion tensors or none", b->where,
                      w->missing[i]);
    if (b->c->family == CLOVER_FAMILY_BASE) w->n_missing = 0;   /* a base model has none */
}

/* ---- what is left over ----------------------------------------------------------------------------------------- */

/* The layer that a name belongs to, -1 for none. */
static int64_t layer_of(const Binder *b, const char *name) {
    size_t n = strlen(b->layers);
    if (strncmp(name, b->layers, n) != 0 || name[n] < '0' || name[n] > '9') return -1;
    char *end;
    long long layer = strtoll(name + n, &end, 10);
    return *end == '.' ? (int64_t)layer : -1;
}

static bool is_ignored(const Binder *b, const char *name) {
    int64_t layer = layer_of(b, name);
    for (size_t i = 0; i < COUNT(ignored_prefixes); i++)
        if (strncmp(name, ignored_prefixes[i], strlen(ignored_prefixes[i])) == 0) return true;
    return layer >= b->c->layers && layer < b->c->layers + b->c->nextn_layers;   /* [CFG-8] */
}

/* Names every tensor that no role took. Most mean nothing; layers past the last and biases do. [TEN-9] */
static void sort_out_the_rest(Binder *b) {
    Weights *w = b->w;
    const Tensor *past = NULL;
    int64_t n_past = 0;
    w->ignored = keep(w, b->list->n, sizeof *w->ignored, b->err);
    w->unknown = keep(w, b->list->n, sizeof *w->unknown, b->err);
    if (!w->ignored || !w->unknown) return;
    for (int64_t i = 0; i < b->list->n; i++) {
        const Tensor *t = &b->list->tensor[i];
        if (b->used[i]) continue;
        if (is_ignored(b, t->name)) { w->ignored[w->n_ignored++] = t; continue; }
        w->unknown[w->n_unknown++] = t;
        if (w->head.data == w->embed.data && t->dims == 2 && t->shape[0] == b->size[V] && t->shape[1] == b->size[D])   /* a damaged name? */
            error_add(b->err, CLOVER_BAD_INPUT, "%s: no tensor is named %s, but the unknown %s has its shape: is it the output head under another name?", t->file,
                      b->form == NAMES_GGUF ? head_role.gguf[0] : head_role.hf[0], t->name);
        if (layer_of(b, t->name) >= b->c->layers) {
            if (!past) past = t;
            n_past++;
            continue;
        }
        for (size_t k = 0; k < COUNT(unsupported_suffixes); k++)
            if (ends_with(t->name, unsupported_suffixes[k]))
                error_add(b->err, CLOVER_UNSUPPORTED, "%s: %s: tensors named *%s are not supported", t->file, t->name,
                          unsupported_suffixes[k]);
    }
    if (past)
        error_add(b->err, CLOVER_BAD_INPUT,
                  "%s: %s lies past the model's %lld layers (%lld such tensors): the number of layers is wrong, or the "
                  "file holds more than one model", past->file, past->name, (long long)b->c->layers, (long long)n_past);
}

/* ---- drifts and final forms ------------------------------------------------------------------------------------ */

/* Adds 1 to the norms among the roles that base holds. */
static void shift_norms(const Binder *b, const Role *roles, size_t n, const void *base) {
    for (size_t i = 0; i < n; i++) {
        if (roles[i].form != LAYER_NORM && roles[i].form != HEAD_NORM) continue;
        double *own = (double *)*(const double *const *)((const char *)base + roles[i].field);   /* our own vector, still being made */
        for (int64_t k = 0; own && k < b->size[roles[i].rows]; k++) own[k] += 1;
    }
}

/* Norms become factors. [TEN-5] [TEN-11] */
static void settle_norms(Binder *b) {
    Weights *w = b->w;
    const double mean = b->norm_count ? b->norm_sum / (double)b->norm_count : 1;
    const bool unshifted = b->form == NAMES_GGUF && fabs(mean) < 0.5;   /* nearer to 0 than to 1 */
    if (unshifted && b->drifts == CLOVER_REFUSE_DRIFTS)
        error_add(b->err, CLOVER_BAD_INPUT,
                  "%s: the layer norms (attn_norm, post_attention_norm, output_norm) hold w, not 1 + w: their %lld values "
                  "average %.3g, expected near 1; read it with --mend, show its garbage with --as-is, or write a right file with clover fix",
                  b->where, (long long)b->norm_count, mean);
    if (b->form == NAMES_GGUF && !(unshifted && b->drifts == CLOVER_MEND)) return;
    shift_norms(b, model_roles, COUNT(model_roles), w);
    for (int64_t i = 0; i < w->layers; i++) {
        shift_norms(b, every_layer, COUNT(every_layer), &w->layer[i]);
        if (w->layer[i].full_attention) shift_norms(b, attention_layer, COUNT(attention_layer), &w->layer[i]);
    }
}

double weights_log_usual(double a_log) {
    const double mean = 0.7, sd = 1.5, z = (a_log - mean) / sd;   /* ln of 0 to 16 at first, moved by training */
    return -0.5 * z * z - el_log(sd);
}

RateForm weights_rate_form(const double *values, int64_t n) {
    const double clear = 4;                                      /* nats: 55 to 1 */
    double right = 0;                                            /* log p(-exp(A_log)) - log p(A_log), with |dA_log/dx| = 1/(-x) */
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) return RATE_RIGHT;              /* told elsewhere [TEN-13] */
        if (values[i] >= 0) return RATE_RAW;
        const double a_log = el_log(-values[i]);
        right += weights_log_usual(a_log) - a_log - weights_log_usual(values[i]);
    }
    return right > clear ? RATE_RIGHT : right < -clear ? RATE_RAW : RATE_UNDECIDED;
}

/* The layer's ssm_a, as a tensor: for its name. */
static const Tensor *rate_tensor(const Binder *b, int64_t layer) {
    for (int k = 0; k < 2; k++) {
        char name[NAME_ROOM];
        snprintf(name, sizeof name, "blk.%lld.%s", (long long)layer, k ? "ssm_a.weight" : "ssm_a");
        const int64_t at = names_find(&b->names, name);
        if (at >= 0) return &b->list->tensor[at];
    }
    return NULL;
}

/* Says which layers hold A_log and of which nothing can be told: no other is accused. */
static void refuse_rates(Binder *b, const RateForm *form) {
    const Tensor *raw = NULL, *undecided = NULL;
    char others[256] = "", value[64] = "";
    size_t used = 0;
    for (int64_t i = 0; i < b->w->layers; i++) {
        const double *rate = b->w->layer[i].gdn.rate;
        const Tensor *t = rate && form[i] != RATE_RIGHT ? rate_tensor(b, i) : NULL;
        if (!t) continue;
        if (form[i] == RATE_UNDECIDED) { undecided = undecided ? undecided : t; continue; }
        if (raw && used < sizeof others - 64) used += (size_t)snprintf(others + used, sizeof others - used, "%s%lld", used ? ", " : "; so do layers ", (long long)i);
        else if (raw && others[used - 1] != '.') used += (size_t)snprintf(others + used, sizeof others - used, " ...");
        if (raw) continue;
        raw = t;
        const HeadMap map = map_of(b, HEAD_ROWS, false);
        for (int64_t k = b->size[HV] - 1; k >= 0; k--)           /* the first of the file's order */
            for (int64_t h = 0; h < b->size[HV]; h++)
                if (head_map(&map, h) == k && rate[h] >= 0)
                    snprintf(value, sizeof value, ": value %.9g >= 0 at element %lld", rate[h], (long long)k);
    }
    if (raw && b->drifts == CLOVER_REFUSE_DRIFTS)
        error_add(b->err, CLOVER_BAD_INPUT, "%s: %s holds A_log, not -exp(A_log)%s%s; %sshow its garbage with --as-is, or write a right file with clover fix%s",
                  raw->file, raw->name, value, others, undecided ? "" : "read it with --mend, ", undecided ? " --like GOOD" : "");
    if (undecided)
        error_add(b->err, CLOVER_BAD_INPUT, "%s: %s: other layers hold A_log, not -exp(A_log), and the values of this one may be either: it cannot be mended "
                  "without a good file (clover fix --like GOOD)", undecided->file, undecided->name);
}

/* A becomes the positive rate exp(A_log): in a folder everywhere, in a GGUF where a layer holds A_log. [TEN-6] [TEN-10] */
static void settle_rates(Binder *b) {
    RateForm *form = keep(b->w, b->w->layers, sizeof *form, b->err);
    if (!form) return;
    for (int64_t i = 0; i < b->w->layers && b->raw_rates; i++)
        if (b->w->layer[i].gdn.rate) form[i] = weights_rate_form(b->w->layer[i].gdn.rate, b->size[HV]);
    if (b->raw_rates && b->drifts != CLOVER_AS_IS) refuse_rates(b, form);
    for (int64_t i = 0; i < b->w->layers; i++) {
        double *rate = (double *)b->w->layer[i].gdn.rate;   /* our own vector, still being made; NULL in full attention */
        const bool logarithm = b->form == NAMES_HF || (form[i] == RATE_RAW && b->drifts == CLOVER_MEND);
        for (int64_t h = 0; rate && h < b->size[HV]; h++) rate[h] = logarithm ? el_exp(rate[h]) : -rate[h];
    }
}

/* ---- names alone ----------------------------------------------------------------------------------------------- */

/* What stands behind prefix and a number and a dot; NULL when name does not begin so. */
static const char *behind_number(const char *name, const char *prefix) {
    const size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || name[n] < '0' || name[n] > '9') return NULL;
    const char *rest = name + n + strspn(name + n, "0123456789");
    return *rest == '.' ? rest + 1 : NULL;
}

static const char *role_in(const Role *roles, size_t n, const char *name, NameForm form) {
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < ALTERNATIVES; k++) {
            const char *known = form == NAMES_GGUF ? roles[i].gguf[k] : roles[i].hf[k];
            if (known && strcmp(known, name) == 0) return roles[i].hf[0];
        }
    return NULL;
}

static const char *layer_role(const char *name, NameForm form) {
    const char *role = role_in(every_layer, COUNT(every_layer), name, form);
    if (!role) role = role_in(attention_layer, COUNT(attention_layer), name, form);
    if (!role) role = role_in(gdn_layer_roles, COUNT(gdn_layer_roles), name, form);
    if (!role) role = role_in(diffusion_roles, COUNT(diffusion_roles), name, form);
    for (size_t i = 0; !role && form == NAMES_GGUF && i < COUNT(diffusion_roles); i++) {
        char dotted[NAME_ROOM];
        snprintf(dotted, sizeof dotted, "%s.weight", diffusion_roles[i].gguf[0]);
        if (ends_with(name, diffusion_roles[i].gguf[0]) || ends_with(name, dotted)) role = diffusion_roles[i].hf[0];
    }
    const Experts *experts[] = { &gate_up_experts, &gate_experts, &up_experts, &down_experts };
    for (size_t i = 0; !role && i < COUNT(experts); i++)
        for (int k = 0; k < 2; k++) {
            const char *known = form == NAMES_GGUF ? experts[i]->gguf[k] : experts[i]->hf[k];
            if (known && strcmp(known, name) == 0) role = i == 3 ? down_experts.hf[0] : gate_up_experts.hf[0];
        }
    const char *single = form == NAMES_HF ? behind_number(name, "mlp.experts.") : NULL;
    if (!role && single && role_in(single_expert, COUNT(single_expert), single, form))
        role = strcmp(single, single_expert[2].hf[0]) == 0 ? down_experts.hf[0] : gate_up_experts.hf[0];
    return role;
}

const char *weights_role(const char *name, NameForm form) {
    const char *const trunks[] = { "", "model.language_model.", "model." };
    if (role_in(&head_role, 1, name, form)) return head_role.hf[0];
    for (size_t i = form == NAMES_GGUF ? 0 : 1; i < (form == NAMES_GGUF ? 1 : COUNT(trunks)); i++) {
        char layers[64];
        snprintf(layers, sizeof layers, "%s%s", trunks[i], form == NAMES_GGUF ? "blk." : "layers.");
        const char *inside = behind_number(name, layers);
        if (inside) return layer_role(inside, form);
        if (strncmp(name, trunks[i], strlen(trunks[i])) == 0) {
            const char *role = role_in(model_roles, COUNT(model_roles), name + strlen(trunks[i]), form);
            if (role) return role;
        }
    }
    return NULL;
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

static void set_sizes(int64_t size[SIZES], const CloverConfig *c) {
    const int64_t K = c->key_heads * c->key_width, Vd = c->value_heads * c->value_width;
    const int64_t of[SIZES] = {
        [ONE] = 1, [D] = c->hidden, [V] = c->vocab, [QG] = c->heads * 2 * c->head_width, [KV] = c->kv_heads * c->head_width,
        [O] = c->heads * c->head_width, [WIDTH] = c->head_width, [C] = 2 * K + Vd, [VD] = Vd, [HV] = c->value_heads,
        [DV] = c->value_width,
        [TAPS] = c->taps, [RIGHT] = c->taps - 1, [E] = c->experts, [F] = c->expert_width, [F2] = 2 * c->expert_width,
        [FS] = c->shared_width,
    };
    memcpy(size, of, sizeof of);
}

static const Role *role_named(const Role *roles, size_t n, const char *gguf) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(roles[i].gguf[0], gguf) == 0) return &roles[i];
    return NULL;
}

bool weights_describe(const char *gguf, const CloverConfig *config, WeightRole *out) {
    static const Experts *const experts[] = { &gate_experts, &up_experts, &down_experts };
    int64_t size[SIZES];
    set_sizes(size, config);
    for (int i = 0; i < 3; i++) {
        if (strcmp(experts[i]->gguf[0], gguf) != 0) continue;
        const Experts *in_hf = i < 2 ? &gate_up_experts : &down_experts;
        *out = (WeightRole){ .gguf = experts[i]->gguf, .hf = in_hf->hf, .single = single_expert[i].hf[0], .experts = size[E],
                             .rows = size[experts[i]->rows], .cols = size[experts[i]->cols], .half = i < 2 ? i : -1 };
        return true;
    }
    const Role *role = role_named(model_roles, COUNT(model_roles), gguf), *diffusion = role_named(diffusion_roles, COUNT(diffusion_roles), gguf);
    if (!role) role = role_named(&head_role, 1, gguf);
    if (!role) role = role_named(every_layer, COUNT(every_layer), gguf);
    if (!role) role = role_named(attention_layer, COUNT(attention_layer), gguf);
    if (!role) role = role_named(gdn_layer_roles, COUNT(gdn_layer_roles), gguf);
    if (!role) role = diffusion;
    if (!role) return false;
    *out = (WeightRole){ .gguf = role->gguf, .hf = role->hf, .form = (RoleForm)role->form, .heads = (RoleHeads)role->heads,   /* the same order */
                         .rows = size[role->rows], .cols = size[role->cols], .half = -1, .diffusion = diffusion != NULL };
    return true;
}

static void set_where(Binder *b) {
    const char *file = b->list->n ? b->list->tensor[0].file : "the model", *slash = strrchr(file, '/');
    bool folder = b->form == NAMES_HF && slash;
    snprintf(b->where, sizeof b->where, "%.*s", folder ? (int)(slash - file) : WHERE_ROOM, file);
}

/* A config that ties the two may come with a head all the same, if it is the embedding. [CFG-15] */
static void check_tied_head(Binder *b, const Tensor *head) {
    const Tensor *embed = b->w->embed.tensor;
    if (b->form != NAMES_HF || !b->c->tied_said || !embed) return;
    if (head->type != embed->type || head->bytes != embed->bytes || memcmp(head->data, embed->data, head->bytes) != 0)
        error_add(b->err, CLOVER_BAD_INPUT, "%s: config.json says tie_word_embeddings true, but %s is not the embedding: which of the two is meant?", head->file, head->name);
}

static void bind_head(Binder *b) {
    char name[NAME_ROOM];
    const Tensor *t = find(b, "", b->form == NAMES_GGUF ? head_role.gguf : head_role.hf, ALTERNATIVES, name);
    if (t) {
        bind_tensor(b, t, &head_role, b->w, false);
        check_tied_head(b, t);
    } else if (b->form == NAMES_HF && !b->c->tied)
        error_add(b->err, CLOVER_BAD_INPUT, "%s: missing tensor %s: config.json says tie_word_embeddings false, so the embedding is not the head", b->where, head_role.hf[0]);
    else b->w->head = b->w->embed;   /* tied [CFG-15] */
}

static void bind_layer(Binder *b, int64_t i) {
    LayerW *layer = &b->w->layer[i];
    char prefix[PREFIX_ROOM];
    snprintf(prefix, sizeof prefix, "%s%lld.", b->layers, (long long)i);
    layer->full_attention = b->c->full_attention[i];
    bind_roles(b, prefix, every_layer, COUNT(every_layer), layer);
    if (layer->full_attention) bind_roles(b, prefix, attention_layer, COUNT(attention_layer), layer);
    else {
        bind_roles(b, prefix, gdn_layer_roles, COUNT(gdn_layer_roles), layer);
        bind_diffusion(b, prefix, layer);
    }
    bind_experts(b, prefix, &layer->moe);
}

static void bind_all(Binder *b) {
    Weights *w = b->w;
    w->layers = b->c->layers;
    w->tiled = b->form == NAMES_GGUF;
    w->layer = keep(w, w->layers, sizeof *w->layer, b->err);
    w->missing = keep(w, w->layers * (int64_t)COUNT(diffusion_roles), sizeof *w->missing, b->err);
    if (!w->layer || !w->missing) return;
    bind_roles(b, b->trunk, model_roles, COUNT(model_roles), w);
    bind_head(b);
    for (int64_t i = 0; i < w->layers && !failed_for_memory(b); i++) bind_layer(b, i);
    if (failed_for_memory(b)) return;
    settle_diffusion(b);
    sort_out_the_rest(b);
    settle_norms(b);
    settle_rates(b);
}

CloverStatus weights_bind(const TensorList *tensors, NameForm form, const CloverConfig *config, const CloverOpenOptions *options,
                          int diffusion_heads_tiled, Weights *out, CloverError *err) {
    error_clear(err);
    Weights weights = { 0 };
    const int grouped = options->diffusion_heads_grouped;
    Binder b = { .list = tensors, .form = form, .c = config, .drifts = options->drifts, .w = &weights, .err = err,
                 .diffusion_tiled = grouped >= 0 ? !grouped : diffusion_heads_tiled != 0 };   /* [TEN-8] */
    set_sizes(b.size, config);
    b.used = calloc(tensors->n ? (size_t)tensors->n : 1, sizeof *b.used);
    bool room = b.used != NULL;
    for (int64_t i = 0; i < tensors->n && room; i++)
        room = names_add(&b.names, tensors->tensor[i].name, i);
    const bool nested = names_find(&b.names, "model.language_model.embed_tokens.weight") >= 0;   /* [TEN-2] */
    b.trunk = form == NAMES_GGUF ? "" : nested ? "model.language_model." : "model.";
    b.layers = form == NAMES_GGUF ? "blk." : nested ? "model.language_model.layers." : "model.layers.";
    set_where(&b);
    if (room) bind_all(&b);
    else error_memory(err, "the index of tensor names", (size_t)tensors->n * 64);
    names_free(&b.names);
    free(b.used);
    if (err->status == CLOVER_OK) *out = weights;   /* else as it was [ERR-5] */
    else weights_free(&weights);
    return err->status;
}
