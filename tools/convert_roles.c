/* convert_roles.c - the tensors of a file by role. [TEN-1, TEN-2, TEN-3, TEN-5, TEN-6, TEN-7, TEN-8] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../ref/error.h"
#include "../ref/files/config.h"
#include "../ref/files/quant.h"
#include "../ref/math/elementary.h"
#include "convert_roles.h"

/* ---- files ------------------------------------------------------------------------------------------------------- */

static CloverStatus open_gguf(ModelFile *f, CloverError *err) {
    int tiled;
    if (gguf_open(f->path, &f->gguf, err) != CLOVER_OK) return err->status;
    f->form = NAMES_GGUF;
    f->tensors = gguf_tensors(f->gguf);
    f->has_config = config_from_gguf(f->gguf, CLOVER_MEND, &f->config, &f->why) == CLOVER_OK;
    if (config_head_order(f->gguf, &tiled, err) != CLOVER_OK) return err->status;
    f->diffusion_tiled = tiled != 0;
    return CLOVER_OK;
}

static CloverStatus open_safetensors(ModelFile *f, bool folder, CloverError *err) {
    if (safetensors_open(f->path, &f->safetensors, err) != CLOVER_OK) return err->status;
    f->form = NAMES_HF;
    f->tensors = safetensors_tensors(f->safetensors);
    if (folder) f->has_config = config_from_folder(f->path, &f->config, &f->why) == CLOVER_OK;
    else error_set(&f->why, CLOVER_BAD_INPUT, "%s: a file of tensors alone has no config.json", f->path);
    return CLOVER_OK;
}

CloverStatus model_file_open(const char *path, ModelFile *out, CloverError *err) {
    ModelFile f = { .path = path };
    struct stat info;
    const size_t n = strlen(path);
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode), safetensors = n > 12 && strcmp(path + n - 12, ".safetensors") == 0;
    error_clear(err);
    if (folder || safetensors) open_safetensors(&f, folder, err);
    else open_gguf(&f, err);
    for (int64_t i = 0; err->status == CLOVER_OK && i < f.tensors.n; i++)
        if (!names_add(&f.names, f.tensors.tensor[i].name, i)) error_memory(err, "the index of tensor names", (size_t)f.tensors.n * 64);
    if (err->status == CLOVER_OK) *out = f;
    else model_file_close(&f);
    return err->status;
}

void model_file_close(ModelFile *f) {
    names_free(&f->names);
    gguf_close(f->gguf);
    safetensors_close(f->safetensors);
    *f = (ModelFile){ 0 };
}

const Tensor *model_file_tensor(const ModelFile *f, const char *name) {
    int64_t at = names_find(&f->names, name);
    return at < 0 ? NULL : &f->tensors.tensor[at];
}

/* ---- the list of roles ------------------------------------------------------------------------------------------- */

static const char *const of_model[] = { "token_embd.weight", "output_norm.weight", "output.weight", NULL };
static const char *const norms[] = { "attn_norm.weight", "post_attention_norm.weight", NULL };
static const char *const attention[] = { "attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight", "attn_q_norm.weight",
    "attn_k_norm.weight", NULL };
static const char *const gdn[] = { "attn_qkv.weight", "attn_gate.weight", "ssm_beta.weight", "ssm_alpha.weight", "ssm_conv1d.weight", "ssm_dt.bias",
    "ssm_norm.weight", "ssm_a", "ssm_out.weight", NULL };
static const char *const diffusion[] = { "conv_right_weight", "bd_softmax_logit_scale", "bd_softmax_history_bias", "bd_softmax_history_c", NULL };
static const char *const moe[] = { "ffn_gate_inp.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight",
    "ffn_gate_inp_shexp.weight", "ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight", NULL };

static void add(RoleList *list, const CloverConfig *c, const char *const names[], int64_t layer) {
    for (; *names; names++) {
        RoleOf *r = &list->role[list->n];
        if (!weights_describe(*names, c, &r->what)) continue;
        if (r->what.cols == 0) continue;                 /* conv_right_weight of a conv of one tap */
        r->layer = layer;
        if (layer >= 0) snprintf(r->name, sizeof r->name, "blk.%lld.%s", (long long)layer, *names);
        else snprintf(r->name, sizeof r->name, "%s", *names);
        list->n++;
    }
}

CloverStatus role_list(const CloverConfig *c, RoleList *out, CloverError *err) {
    enum { AT_MOST = 24 };                               /* roles of one layer */
    error_clear(err);
    *out = (RoleList){ .role = calloc((size_t)(c->layers + 1) * AT_MOST, sizeof *out->role) };
    if (!out->role) return error_memory(err, "the list of roles", (size_t)(c->layers + 1) * AT_MOST * sizeof *out->role);
    add(out, c, of_model, -1);
    for (int64_t i = 0; i < c->layers; i++) {
        add(out, c, norms, i);
        add(out, c, c->full_attention[i] ? attention : gdn, i);
        if (!c->full_attention[i] && c->family == CLOVER_FAMILY_CLOVER) add(out, c, diffusion, i);
        add(out, c, moe, i);
    }
    return CLOVER_OK;
}

int64_t role_find(const RoleList *list, const char *name) {
    for (int64_t i = 0; i < list->n; i++)
        if (strcmp(list->role[i].name, name) == 0) return i;
    return -1;
}

/* ---- finding a role's tensor --------------------------------------------------------------------------------------- */

enum { NAME_ROOM = 256 };

static const char *trunk_of(const ModelFile *f) {
    return names_find(&f->names, "model.language_model.embed_tokens.weight") >= 0 ? "model.language_model." : "model.";
}

static void name_in(const ModelFile *f, const RoleOf *role, const char *own, char out[NAME_ROOM]) {
    if (f->form == NAMES_GGUF && role->layer < 0) snprintf(out, NAME_ROOM, "%s", own);
    else if (f->form == NAMES_GGUF) snprintf(out, NAME_ROOM, "blk.%lld.%s", (long long)role->layer, own);
    else if (strncmp(own, "lm_head", 7) == 0) snprintf(out, NAME_ROOM, "%s", own);
    else if (role->layer < 0) snprintf(out, NAME_ROOM, "%s%s", trunk_of(f), own);
    else snprintf(out, NAME_ROOM, "%slayers.%lld.%s", trunk_of(f), (long long)role->layer, own);
}

static bool ends_with(const char *name, const char *suffix) {
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* A GGUF's diffusion tensor is the one of the layer whose name ends so. [TEN-3] */
static const Tensor *find_ending(const ModelFile *f, const RoleOf *role) {
    char prefix[32], weight[NAME_ROOM];
    snprintf(prefix, sizeof prefix, "blk.%lld.", (long long)role->layer);
    snprintf(weight, sizeof weight, "%s.weight", role->what.gguf[0]);
    for (int64_t i = 0; i < f->tensors.n; i++) {
        const Tensor *t = &f->tensors.tensor[i];
        if (strncmp(t->name, prefix, strlen(prefix)) == 0 && (ends_with(t->name, role->what.gguf[0]) || ends_with(t->name, weight))) return t;
    }
    return NULL;
}

static const Tensor *find(const ModelFile *f, const RoleOf *role) {
    const char *const *names = f->form == NAMES_GGUF ? role->what.gguf : role->what.hf;
    if (f->form == NAMES_GGUF && role->what.diffusion) return find_ending(f, role);
    for (int i = 0; i < 3 && names[i]; i++) {
        char name[NAME_ROOM];
        name_in(f, role, names[i], name);
        const Tensor *t = model_file_tensor(f, name);
        if (t) return t;
    }
    return NULL;
}

/* HF's experts, one tensor each: all of them or none. */
static const Tensor **find_single(const ModelFile *f, const RoleOf *role, CloverError *err) {
    const int64_t n = role->what.experts;
    const Tensor **single = malloc((size_t)n * sizeof *single);
    if (!single) { error_memory(err, "the list of experts", (size_t)n * sizeof *single); return NULL; }
    for (int64_t e = 0; e < n; e++) {
        char own[64], name[NAME_ROOM];
        snprintf(own, sizeof own, "mlp.experts.%lld.%s", (long long)e, role->what.single);
        name_in(f, role, own, name);
        if (!(single[e] = model_file_tensor(f, name))) { free(single); return NULL; }
    }
    return single;
}

/* ---- shapes and maps ------------------------------------------------------------------------------------------------ */

static int squeeze(const Tensor *t, int64_t out[TENSOR_MAX_DIMS]) {
    int n = 0;
    for (int i = 0; i < t->dims; i++)
        if (t->shape[i] != 1) out[n++] = t->shape[i];
    return n;
}

static bool has_shape(const Tensor *t, int64_t a, int64_t b, int64_t c) {
    int64_t have[TENSOR_MAX_DIMS] = { 0 }, want[3] = { 0 };
    const int64_t of[3] = { a, b, c };
    int n = squeeze(t, have), m = 0;
    for (int i = 0; i < 3; i++)
        if (of[i] != 1) want[m++] = of[i];
    return n == m && memcmp(have, want, (size_t)n * sizeof *want) == 0;
}

static bool is_vector(const RoleOf *role) { return role->what.cols == 1 && role->what.form != ROLE_MATRIX; }

void role_maps(const RoleOf *role, const CloverConfig *c, HeadMap *rows, HeadMap *cols) {
    HeadMap m = { 0, 0, c->key_heads, c->value_heads / c->key_heads };
    *rows = *cols = m;
    switch (role->what.heads) {
    case ROLE_NO_HEADS: return;
    case ROLE_QKV_ROWS: m.start = 2 * c->key_heads * c->key_width; m.width = c->value_width; break;
    case ROLE_V_ROWS: case ROLE_V_COLS: m.width = c->value_width; break;
    case ROLE_HEAD_ROWS: m.width = 1; break;
    }
    *(role->what.heads == ROLE_V_COLS || is_vector(role) ? cols : rows) = m;
}

Slots role_heads(const RoleOf *role, const CloverConfig *c) {
    HeadMap rows, cols;
    role_maps(role, c, &rows, &cols);
    if (rows.width) return (Slots){ rows.start, rows.width, c->value_heads, false };
    if (cols.width) return (Slots){ cols.start, cols.width, c->value_heads, true };
    const char *own = role->what.gguf[0];
    if (strcmp(own, "attn_q.weight") == 0) return (Slots){ 0, 2 * c->head_width, c->heads, false };
    if (strcmp(own, "attn_k.weight") == 0 || strcmp(own, "attn_v.weight") == 0) return (Slots){ 0, c->head_width, c->kv_heads, false };
    if (strcmp(own, "attn_output.weight") == 0) return (Slots){ 0, c->head_width, c->heads, true };
    return (Slots){ 0 };
}

static ValueForm value_of(const ModelFile *f, const RoleOf *role) {
    if (f->form == NAMES_GGUF) return VALUE_AS_IT_IS;
    if (role->what.form == ROLE_LAYER_NORM || role->what.form == ROLE_HEAD_NORM) return VALUE_PLUS_1;
    return role->what.form == ROLE_RATE ? VALUE_NEG_EXP : VALUE_AS_IT_IS;
}

CloverStatus role_view(const ModelFile *f, const RoleOf *role, const CloverConfig *c, RoleView *out, CloverError *err) {
    const WeightRole *w = &role->what;
    const bool vector = is_vector(role);
    RoleView v = { .role = role, .experts = w->experts ? w->experts : 1, .rows = vector ? 1 : w->rows, .cols = vector ? w->rows : w->cols };
    error_clear(err);
    v.value = value_of(f, role);
    v.stride = v.rows;
    v.tensor = find(f, role);
    if (v.tensor && w->experts && f->form == NAMES_HF && w->half >= 0) v.stride = 2 * v.rows, v.first = w->half * v.rows;
    if (!v.tensor && w->experts && f->form == NAMES_HF) {
        v.single = find_single(f, role, err);
        if (err->status != CLOVER_OK) return err->status;
    }
    if (!v.tensor && w->half >= 0 && f->form == NAMES_GGUF) {           /* gate and up in one, as HF has them */
        char name[NAME_ROOM];
        name_in(f, role, "ffn_gate_up_exps.weight", name);
        v.tensor = model_file_tensor(f, name);
        v.stride = 2 * v.rows;
        v.first = w->half * v.rows;
    }
    const Tensor *t = v.single ? v.single[0] : v.tensor;
    if (!t) { *out = v; return CLOVER_OK; }

    const DTypeInfo *info = dtype_info(t->type);
    v.type = t->type;
    v.decodable = info && info->decodable;
    v.row_bytes = dtype_bytes(t->type, v.cols);
    v.fits = v.row_bytes >= 0;
    if (v.single) for (int64_t e = 0; e < v.experts; e++) v.fits &= v.single[e]->type == t->type && has_shape(v.single[e], 1, v.rows, v.cols);
    else v.fits &= has_shape(t, v.experts, v.stride, v.cols);
    if (!v.fits && v.tensor && v.experts == 1 && v.rows != 1 && info && info->block == 1 && has_shape(t, 1, v.cols, v.rows)) v.transposed = true;
    const uint64_t rows = (uint64_t)(v.single ? v.rows : v.experts * v.stride);
    if (v.fits && rows * (uint64_t)v.row_bytes > t->bytes) v.fits = false;
    if (f->form == NAMES_GGUF && (!w->diffusion || f->diffusion_tiled)) role_maps(role, c, &v.row_map, &v.col_map);
    *out = v;
    return CLOVER_OK;
}

void role_view_free(RoleView *v) {
    free(v->single);
    v->single = NULL;
}

bool role_view_present(const RoleView *v) { return v->tensor || v->single; }
const char *role_view_name(const RoleView *v) { return v->single ? v->single[0]->name : v->tensor ? v->tensor->name : v->role->name; }

/* ---- values ----------------------------------------------------------------------------------------------------------- */

float value_in_form(ValueForm form, float x) {
    switch (form) {
    case VALUE_AS_IT_IS: return x;
    case VALUE_PLUS_1: return (float)((double)x + 1);
    case VALUE_MINUS_1: return (float)((double)x - 1);
    case VALUE_NEG_EXP: return (float)-el_exp((double)x);
    case VALUE_LOG_NEG: return (float)el_log(-(double)x);
    case VALUE_NEG_EXP_NEG: return (float)-el_exp(-(double)x);
    case VALUE_NEG_LOG_NEG: return (float)-el_log(-(double)x);
    }
    return x;
}

ValueForm value_back(ValueForm form) {
    switch (form) {
    case VALUE_AS_IT_IS: break;
    case VALUE_PLUS_1: return VALUE_MINUS_1;
    case VALUE_MINUS_1: return VALUE_PLUS_1;
    case VALUE_NEG_EXP: return VALUE_LOG_NEG;
    case VALUE_LOG_NEG: return VALUE_NEG_EXP;
    case VALUE_NEG_EXP_NEG: return VALUE_NEG_LOG_NEG;
    case VALUE_NEG_LOG_NEG: return VALUE_NEG_EXP_NEG;
    }
    return VALUE_AS_IT_IS;
}

const uint8_t *role_row_bytes(const RoleView *v, int64_t e, int64_t r) {
    const int64_t row = head_map(&v->row_map, r);
    return v->single ? v->single[e]->data + row * v->row_bytes : v->tensor->data + (e * v->stride + v->first + row) * v->row_bytes;
}

void role_row(const RoleView *v, int64_t e, int64_t r, float *out, float *scratch) {
    if (v->transposed) {
        for (int64_t c = 0; c < v->cols; c++) out[c] = role_element(v, e, r, c);
        return;
    }
    const bool plain = v->col_map.width == 0;
    quant_decode_float(v->type, role_row_bytes(v, e, r), v->cols, plain ? out : scratch);
    for (int64_t c = 0; !plain && c < v->cols; c++) out[c] = scratch[head_map(&v->col_map, c)];
    for (int64_t c = 0; v->value != VALUE_AS_IT_IS && c < v->cols; c++) out[c] = value_in_form(v->value, out[c]);
}

float role_element(const RoleView *v, int64_t e, int64_t r, int64_t c) {
    float x;
    const int64_t row = head_map(&v->row_map, r), col = head_map(&v->col_map, c), size = dtype_bytes(v->type, 1);
    quant_decode_float(v->type, v->transposed ? v->tensor->data + (col * v->rows + row) * size
                                              : role_row_bytes(v, e, r) + col * size, 1, &x);
    return value_in_form(v->value, x);
}

int64_t head_unmap(const HeadMap *m, int64_t i) {
    if (m->width == 0 || i < m->start) return i;
    const int64_t p = (i - m->start) / m->width, within = (i - m->start) % m->width;
    return m->start + ((p % m->Hk) * m->r + p / m->Hk) * m->width + within;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------ */

/* Norms, vectors, the conv, the router and the shared gate stay F32 whatever the file's type. */
DType role_type(const RoleOf *role, DType matrices) {
    const char *own = role->what.gguf[0];
    if (role->what.form != ROLE_MATRIX || strcmp(own, "ffn_gate_inp.weight") == 0 || strcmp(own, "ffn_gate_inp_shexp.weight") == 0) return DT_F32;
    return role->what.cols % dtype_info(matrices)->block == 0 ? matrices : DT_F16;
}

int role_shape(const RoleOf *role, int64_t out[3]) {
    const WeightRole *w = &role->what;
    int n = 0;
    if (w->experts) out[n++] = w->experts;
    if (w->rows != 1) out[n++] = w->rows;
    if (!is_vector(role)) out[n++] = w->cols;
    if (n == 0) out[n++] = 1;
    return n;
}

static bool all_finite(const float *x, int64_t n) {
    bool fine = true;
    for (int64_t i = 0; i < n; i++) fine &= isfinite(x[i]) != 0;
    return fine;
}

bool role_fits_in(DType type, const uint8_t *packed, int64_t n, float *scratch) {
    if (type == DT_F32) return true;
    quant_decode_float(type, packed, n, scratch);
    return all_finite(scratch, n);
}

CloverStatus role_write(const RoleView *v, const HeadMap *rows, const HeadMap *cols, DType type, RoleSink *sink, void *self, CloverError *err) {
    float *row = malloc((size_t)v->cols * 3 * sizeof *row), *scratch = row ? row + v->cols : NULL, *moved = row ? row + 2 * v->cols : NULL;
    const size_t bytes = (size_t)dtype_bytes(type, v->cols);
    uint8_t *packed = malloc(bytes);
    error_clear(err);
    if (!row || !packed) error_memory(err, "a row", (size_t)v->cols * 12 + bytes);
    else if (!v->decodable || !v->fits) error_set(err, CLOVER_BUG, "%s: no values that could be written", role_view_name(v));
    for (int64_t e = 0; e < v->experts && err->status == CLOVER_OK; e++)
        for (int64_t r = 0; r < v->rows && err->status == CLOVER_OK; r++) {
            role_row(v, e, head_unmap(rows, r), row, scratch);
            if (!all_finite(row, v->cols))
                error_set(err, CLOVER_BAD_INPUT, "%s: row %lld of expert %lld has a value that is no finite number", role_view_name(v),
                          (long long)head_unmap(rows, r), (long long)e);
            for (int64_t c = 0; cols->width && c < v->cols; c++) moved[c] = row[head_unmap(cols, c)];
            if (err->status != CLOVER_OK) break;
            if (!quant_encode(type, cols->width ? moved : row, v->cols, packed)) error_set(err, CLOVER_BUG, "%s: type %d has no encoder", v->role->name, (int)type);
            else if (!role_fits_in(type, packed, v->cols, scratch))
                error_set(err, CLOVER_BAD_INPUT, "%s: row %lld of expert %lld has a value too large for %s", role_view_name(v),
                          (long long)head_unmap(rows, r), (long long)e, dtype_info(type)->name);
            else sink(self, packed, bytes, err);
        }
    free(row);
    free(packed);
    return err->status;
}
