/* fix_tensors.c - mends of tensors that the file itself shows: names, left-over tensors, forms of vectors, layouts. And those that
 * only the caller can know, by --only: with no good file at hand they are done as asked. [TEN-3, TEN-5, TEN-6, TEN-7, TEN-9] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/files/quant.h"
#include "fix.h"

/* ---- names and left-overs ---------------------------------------------------------------------------------------------- */

/* The plan still stands in the file's order here. */
static void rename_drifted(Fix *x) {
    if (!report_has(&x->report, NAME_FORM) || !fix_wanted(x, NAME_FORM)) return;
    for (int64_t i = 0; i < x->n && x->err->status == CLOVER_OK; i++) {
        const LintTensor *of = &x->model.of[i];
        char right[160];
        if (of->role < 0 || !of->drifted_name || x->tensor[i].dropped) continue;
        lint_role_name(&x->model, of->role, of->layer, right);
        if (fix_tensor(x, right)) { fix_say(x, TENSOR_EXTRA, "%s left out: %s is there", x->tensor[i].name, right); fix_drop_tensor(x, &x->tensor[i]); continue; }
        char *name = strdup(right);
        if (!name) { error_memory(x->err, "a name", strlen(right)); return; }
        fix_say(x, NAME_FORM, "%s -> %s", x->tensor[i].name, right);
        free(x->tensor[i].name);
        x->tensor[i].name = name;
    }
}

/* What hurts the reader that the file is for is left out, the rest only when asked for. */
static void drop_listed(Fix *x, LintId id) {
    int64_t n = 0;
    const char *first = NULL;
    for (int64_t i = 0; i < x->report.n; i++) {
        const Finding *f = &x->report.finding[i];
        const bool hurts = x->reader == FIX_FOR_LLAMA_CPP ? f->severity > NOTE : (f->hurts & CLOVER) != 0;
        if (f->id != id || !fix_wanted(x, id) || (!hurts && !x->only_given)) continue;
        for (int64_t k = 0; k < f->n_tensors; k++) {
            FixTensor *t = fix_tensor(x, f->tensor[k]);
            if (!t) continue;
            fix_drop_tensor(x, t);
            if (n++ == 0) first = f->tensor[k];
        }
    }
    if (n) fix_say(x, id, "%lld tensors left out, the first is %s", (long long)n, first);
}

static void drop_prediction_layers(Fix *x) {
    char name[160];
    const int64_t before = x->dropped;
    bool tensors = false;
    for (int64_t i = 0; i < x->report.n; i++) tensors |= x->report.finding[i].id == MTP_BUNDLED && x->report.finding[i].n_tensors > 0;
    const bool numbers = !tensors && report_has(&x->report, MTP_BUNDLED) && fix_wanted(x, MTP_BUNDLED) && fix_key(x, fix_scoped(x, "nextn_predict_layers", name));
    drop_listed(x, MTP_BUNDLED);
    if (x->dropped == before && !numbers) return;
    const uint32_t layers = (uint32_t)x->model.layers;
    fix_drop_key(x, fix_scoped(x, "nextn_predict_layers", name));
    fix_set_key(x, fix_scoped(x, "block_count", name), GGUF_U32, GGUF_U32, 1, &layers, sizeof layers);
    fix_say(x, MTP_BUNDLED, "%s -> %u, without nextn_predict_layers", name, layers);
}

/* llama.cpp refuses a file with tensors that it does not know. */
static void drop_diffusion(Fix *x) {
    int64_t n = 0;
    if (x->reader != FIX_FOR_LLAMA_CPP || !fix_wanted(x, TENSOR_EXTRA)) return;
    for (int64_t i = 0; i < x->n; i++) {
        const LintTensor *of = &x->model.of[i];
        if (of->role < 0 || lint_roles[of->role].where != IN_DIFFUSION || x->tensor[i].dropped) continue;
        fix_drop_tensor(x, &x->tensor[i]);
        n++;
    }
    if (n) fix_say(x, TENSOR_EXTRA, "%lld diffusion tensors left out%s%s", (long long)n,
                   x->side ? ", kept in " : "; --keep-diffusion FILE keeps them", x->side ? x->side : "");
}

static void drop_doubles(Fix *x) {
    for (int64_t i = 0; i < x->n; i++) {
        if (x->tensor[i].dropped) continue;
        for (int64_t k = i + 1; k < x->n; k++) {
            if (x->tensor[k].dropped || strcmp(x->tensor[i].name, x->tensor[k].name) != 0) continue;
            fix_say(x, TENSOR_EXTRA, "%s stands there twice: the second is left out", x->tensor[k].name);
            fix_drop_tensor(x, &x->tensor[k]);
        }
    }
}

CloverStatus fix_names(Fix *x) {
    drop_doubles(x);
    rename_drifted(x);
    drop_prediction_layers(x);
    drop_listed(x, VISION_BUNDLED);
    drop_listed(x, TENSOR_EXTRA);
    drop_diffusion(x);
    return x->err->status == CLOVER_OK ? fix_look_again(x) : x->err->status;
}

/* ---- one tensor in another order or form ----------------------------------------------------------------------------- */

int64_t fix_source_column(const FixTensor *t, int64_t i) {
    const int64_t c = head_unmap(&t->cols, i);
    return head_map(&t->view.col_map, t->t.col ? t->t.col[c] : c);
}

/* Quantised blocks move whole or not at all. */
static bool columns_move(const FixTensor *t) {
    const int64_t block = dtype_info(t->view.type)->block;
    for (int64_t i = 0; i < t->view.cols; i++) {
        const int64_t from = fix_source_column(t, i);
        if (i % block == 0 ? from % block != 0 : from != fix_source_column(t, i - 1) + 1) return false;
    }
    return true;
}

static int64_t moved(const int64_t *map, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; map && i < n; i++) count += map[i] != i;
    return count;
}

static void tell(Fix *x, const FixTensor *t, LintId id) {
    const Transform *m = &t->t;
    char what[160] = "";
    if (t->how == FIX_VALUES && m->value != VALUE_AS_IT_IS && dtype_info(t->view.type)->block == 1) {
        const float before = role_element(&t->view, 0, 0, 0);
        snprintf(what, sizeof what, ": %lld values, the first %.7g -> %.7g", (long long)(t->view.rows * t->view.cols), (double)before,
                 (double)value_in_form(m->value, before));
    }
    const struct { const char *name; const int64_t *map; int64_t n; } moves[] = {
        { "rows", m->row, t->view.rows }, { "columns", m->col, t->view.cols }, { "experts", m->expert, t->view.experts } };
    for (int i = 0; i < 3; i++) {
        const size_t used = strlen(what);
        const int64_t count = moved(moves[i].map, moves[i].n);
        if (count) snprintf(what + used, sizeof what - used, "%s%lld of %lld %s moved", used ? ", " : ": ", (long long)count, (long long)moves[i].n, moves[i].name);
    }
    fix_say(x, id, "%s: %s%s", t->name, m->detail, what);
}

/* Takes *view and *t over, whatever comes of it. */
void fix_rearrange(Fix *x, FixTensor *tensor, const RoleView *view, Transform *t, LintId id) {
    FixTensor now = *tensor;
    const bool values = t->value != VALUE_AS_IT_IS, plain = dtype_info(view->type)->block == 1;
    now.view = *view;
    now.t = *t;
    role_maps(view->role, &x->config, &now.rows, &now.cols);
    if (view->role->what.diffusion && !x->now.diffusion_tiled) now.rows.width = now.cols.width = 0;
    now.how = values ? FIX_VALUES : FIX_MOVE;
    now.type = values ? DT_F32 : view->type;                     /* vectors are F32 in a right export */
    now.dims = role_shape(view->role, now.shape);
    const bool blocks = values || view->transposed || t->transposed ? plain || values : columns_move(&now);
    if (!blocks) {
        fix_cannot(x, id, "%s: %s: its columns cannot move, blocks of %lld straddle heads of %lld; write it again from its source", tensor->name, t->detail,
                   (long long)dtype_info(view->type)->block, (long long)role_heads(view->role, &x->config).width);
        transform_free(t);
        return;
    }
    *tensor = now;
    tell(x, tensor, id);
}

/* ---- by values ------------------------------------------------------------------------------------------------------------- */

/* The planned tensor of a role, with its view; NULL: absent, merged with another, or mended already. */
static FixTensor *tensor_of(Fix *x, int64_t role, RoleView *v) {
    FixTensor *t = fix_tensor(x, x->roles.role[role].name);
    if (!t || t->how != FIX_COPY || role_view(&x->now, &x->roles.role[role], &x->config, v, x->err) != CLOVER_OK) return NULL;
    return role_view_present(v) && (v->fits || v->transposed) && v->decodable ? t : NULL;
}

static void change_values(Fix *x, int64_t role, ValueForm form, const char *what, LintId id) {
    RoleView v;
    FixTensor *t = tensor_of(x, role, &v);
    Transform change = { .value = form, .from = -1 };
    snprintf(change.detail, sizeof change.detail, "%s", what);
    if (t) fix_rearrange(x, t, &v, &change, id);
}

/* A mend of many vectors is done to all of them or to none: half of it would be a new drift, which no value may show. concerned: to
 * which roles it would be done. */
static bool all_or_none(Fix *x, LintId id, bool concerned(const Fix *x, const RoleOf *role)) {
    for (int64_t i = 0; i < x->roles.n && x->err->status == CLOVER_OK; i++) {
        RoleView v;
        const RoleOf *role = &x->roles.role[i];
        if (!concerned(x, role) || !fix_tensor(x, role->name) || tensor_of(x, i, &v)) continue;
        if (x->err->status != CLOVER_OK) return false;
        fix_cannot(x, id, "%s has another shape or a type that cannot be decoded: none of these tensors is changed", role->name);
        return false;
    }
    return x->err->status == CLOVER_OK;
}

static bool is_rate(const Fix *x, const RoleOf *role) { (void)x; return role->what.form == ROLE_RATE; }
static bool is_norm(const Fix *x, const RoleOf *role) { (void)x; return role->what.form == ROLE_LAYER_NORM || role->what.form == ROLE_HEAD_NORM; }
static bool is_gdn_norm(const Fix *x, const RoleOf *role) { (void)x; return strcmp(role->what.gguf[0], "ssm_norm.weight") == 0; }

/* A vector's values [cols], to be freed; NULL: no memory. */
static double *vector_values(Fix *x, const RoleView *v) {
    float *row = malloc((size_t)v->cols * 2 * sizeof *row);
    double *values = malloc((size_t)v->cols * sizeof *values);
    if (row && values) {
        role_row(v, 0, 0, row, row + v->cols);
        for (int64_t c = 0; c < v->cols; c++) values[c] = (double)row[c];
    } else error_memory(x->err, "a vector", (size_t)v->cols * 16);
    free(row);
    if (x->err->status == CLOVER_OK) return values;
    free(values);
    return NULL;
}

/* Layers that hold A_log among others that hold -exp(A_log), where the values say which. [TEN-10] */
static void fix_raw_rates(Fix *x) {
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < x->roles.n && x->err->status == CLOVER_OK; i++) {
            RoleView v;
            if (x->roles.role[i].what.form != ROLE_RATE || !tensor_of(x, i, &v)) continue;
            double *values = vector_values(x, &v);
            if (!values) return;
            const RateForm form = weights_rate_form(values, v.cols);
            free(values);
            if (pass == 0 && form == RATE_UNDECIDED) {
                fix_cannot(x, A_LOG_RAW, "%s: its values may be A_log or -exp(A_log), and other layers hold A_log: none is changed; --like GOOD settles it",
                           x->roles.role[i].name);
                return;
            }
            if (pass == 1 && form == RATE_RAW) change_values(x, i, VALUE_NEG_EXP, "A_log to -exp(A_log)", A_LOG_RAW);
        }
}

static void fix_rates_twice(Fix *x) {
    bool inside = true;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < x->roles.n && x->err->status == CLOVER_OK; i++) {
            RoleView v;
            if (x->roles.role[i].what.form != ROLE_RATE || !tensor_of(x, i, &v)) continue;
            double *values = vector_values(x, &v);
            for (int64_t c = 0; values && c < v.cols; c++) inside &= values[c] > -1;
            free(values);
            if (pass == 1 && inside) change_values(x, i, VALUE_LOG_NEG, "-exp(-exp(A_log)) to -exp(A_log)", A_EXP_TWICE);
            else if (pass == 1) change_values(x, i, VALUE_NEG_LOG_NEG, "-exp(exp(A_log)) to -exp(A_log)", A_EXP_TWICE);
        }
}

static void fix_rates(Fix *x) {
    if (report_has(&x->report, A_LOG_RAW) && fix_wanted(x, A_LOG_RAW) && all_or_none(x, A_LOG_RAW, is_rate)) fix_raw_rates(x);
    if (report_has(&x->report, A_EXP_TWICE) && fix_wanted(x, A_EXP_TWICE) && all_or_none(x, A_EXP_TWICE, is_rate)) fix_rates_twice(x);
}

static bool listed(const Fix *x, LintId id, const char *name) {
    for (int64_t i = 0; i < x->report.n; i++)
        for (int64_t k = 0; x->report.finding[i].id == id && k < x->report.finding[i].n_tensors; k++)
            if (strcmp(x->report.finding[i].tensor[k], name) == 0) return true;
    return false;
}

static bool is_mixed(const Fix *x, const RoleOf *role) { return is_norm(x, role) && listed(x, NORM_SHIFT_MIXED, role->name); }

static double mean_of(Fix *x, const RoleView *v) {
    double sum = 0, *values = vector_values(x, v);
    for (int64_t c = 0; values && c < v->cols; c++) sum += values[c];
    free(values);
    return sum / (double)v->cols;
}

static void fix_mixed_norms(Fix *x) {
    for (int64_t i = 0; i < x->roles.n && x->err->status == CLOVER_OK; i++) {
        RoleView v;
        if (!is_mixed(x, &x->roles.role[i]) || !tensor_of(x, i, &v)) continue;
        const bool lacks = mean_of(x, &v) < 0.5;
        change_values(x, i, lacks ? VALUE_PLUS_1 : VALUE_MINUS_1, lacks ? "w to 1 + w" : "2 + w to 1 + w", NORM_SHIFT_MIXED);
    }
    fix_cannot(x, NORM_SHIFT_MIXED, "attn_q_norm and attn_k_norm: their values do not show whether 1 was added; --like GOOD settles it");
}

/* All norms were treated alike, head norms too; where they were not, only the layer norms can be told apart. */
static void fix_norms(Fix *x) {
    static const struct { LintId id; ValueForm form; const char *what; bool (*concerned)(const Fix *x, const RoleOf *role); } whole[] = {
        { NORM_SHIFT_MISSING, VALUE_PLUS_1, "w to 1 + w", is_norm }, { NORM_SHIFT_TWICE, VALUE_MINUS_1, "2 + w to 1 + w", is_norm },
        { HEAD_NORM_SHIFTED, VALUE_MINUS_1, "1 + w to w, a plain factor", is_gdn_norm } };
    for (size_t k = 0; k < sizeof whole / sizeof *whole; k++) {
        if (!report_has(&x->report, whole[k].id) || !fix_wanted(x, whole[k].id) || !all_or_none(x, whole[k].id, whole[k].concerned)) continue;
        for (int64_t i = 0; i < x->roles.n && x->err->status == CLOVER_OK; i++)
            if (whole[k].concerned(x, &x->roles.role[i])) change_values(x, i, whole[k].form, whole[k].what, whole[k].id);
    }
    if (report_has(&x->report, NORM_SHIFT_MIXED) && fix_wanted(x, NORM_SHIFT_MIXED) && all_or_none(x, NORM_SHIFT_MIXED, is_mixed)) fix_mixed_norms(x);
}

/* Turned matrices and shapes with axes of one. */
static void fix_layouts(Fix *x) {
    for (int64_t i = 0; i < x->roles.n && x->err->status == CLOVER_OK; i++) {
        const bool conv = strncmp(x->roles.role[i].what.gguf[0], "ssm_conv1d", 10) == 0 || strncmp(x->roles.role[i].what.gguf[0], "conv_right", 10) == 0;
        const LintId id = conv ? CONV_LAYOUT : TENSOR_SHAPE;
        int64_t shape[3];
        RoleView v;
        FixTensor *t = tensor_of(x, i, &v);
        if (!t || !fix_wanted(x, id)) continue;
        const int dims = role_shape(&x->roles.role[i], shape);
        if (v.transposed) {
            Transform turn = { .detail = "columns for rows", .from = -1 };
            fix_rearrange(x, t, &v, &turn, id);
        } else if (conv && t->dims > dims) {
            t->dims = dims;
            memcpy(t->shape, shape, sizeof shape);
            fix_say(x, id, "%s: the middle axis of one left out", t->name);
        }
    }
}

/* ---- by the caller's word ----------------------------------------------------------------------------------------------------- */

/* Such a mend done twice would undo itself: the file remembers it. */
static bool remembers(const Fix *x, const char *id) {
    const FixKey *k = fix_key(x, FIX_MENDED);
    for (uint64_t i = 0; k && k->bytes > 8 && i + strlen(id) <= k->bytes - 8; i++)
        if (memcmp((const char *)k->data + 8 + i, id, strlen(id)) == 0) return true;
    return false;
}

static void remember(Fix *x, const char *id) {
    const FixKey *k = fix_key(x, FIX_MENDED);
    Buffer b = { 0 };
    uint64_t n = 0;
    buffer_add(&b, &n, 8);
    if (k && k->bytes > 8) {
        buffer_add(&b, (const char *)k->data + 8, (size_t)k->bytes - 8);
        buffer_text(&b, " ");
    }
    buffer_text(&b, id);
    n = b.n - 8;
    if (b.no_memory) error_memory(x->err, FIX_MENDED, b.n);
    else {
        memcpy(b.data, &n, 8);
        fix_set_key(x, FIX_MENDED, GGUF_STRING, GGUF_STRING, 1, b.data, b.n);
    }
    buffer_free(&b);
}

/* The mends that are one of compare's known transforms, each for the tensors that it concerns; a conv can have two of them. */
static const struct { LintId id; Known known; bool diffusion; } told[] = {
    { HEAD_ORDER, HEADS_GROUPED, false }, { Q_GATE_FLAT, QUERY_GATE_FLAT, false }, { CONV_REVERSED, TAPS_REVERSED, false },
    { DIFFUSION_HEAD_ORDER, HEADS_GROUPED, true },
};
enum { TOLD = sizeof told / sizeof *told };

static void move_as_told(Fix *x, const bool now[TOLD]) {
    for (int64_t i = 0; i < x->roles.n && x->err->status == CLOVER_OK; i++) {
        RoleView v;
        FixTensor *t = tensor_of(x, i, &v);
        Transform move = { .from = -1 };
        LintId id = LINT_IDS;
        for (int k = 0; k < TOLD && t; k++)
            if (now[k] && told[k].diffusion == x->roles.role[i].what.diffusion && transform_known(told[k].known, &v, &x->config, &move, x->err)) id = told[k].id;
        if (id != LINT_IDS && x->err->status == CLOVER_OK) fix_rearrange(x, t, &v, &move, id);
        else transform_free(&move);
    }
}

static void swap_gate_up(Fix *x) {
    for (int64_t i = 0; i < x->roles.n && x->err->status == CLOVER_OK; i++) {
        RoleView gate, up;
        if (strcmp(x->roles.role[i].what.gguf[0], "ffn_gate_exps.weight") != 0) continue;
        FixTensor *g = tensor_of(x, i, &gate), *u = tensor_of(x, i + 1, &up);
        if (!g || !u) { fix_cannot(x, GATE_UP_SWAPPED, "%s: gate and up are not there as two tensors", x->roles.role[i].name); continue; }
        const Tensor *source = g->source;
        const DType type = g->type;
        g->source = u->source;
        g->type = u->type;
        u->source = source;
        u->type = type;
        fix_say(x, GATE_UP_SWAPPED, "%s and %s exchanged", g->name, u->name);
    }
}

static void fix_as_told(Fix *x) {
    bool now[TOLD], any = false;
    const int64_t before = x->changes;
    for (int k = 0; k < TOLD; k++) {
        now[k] = x->only_given && x->only[told[k].id] && !remembers(x, lint_id_name(told[k].id));
        if (now[k] && told[k].id == HEAD_ORDER && x->heads_stuck) { now[k] = false; fix_cannot(x, HEAD_ORDER, FIX_STUCK); }
        any |= now[k];
    }
    if (any) move_as_told(x, now);
    for (int k = 0; k < TOLD && x->changes > before; k++)
        if (now[k]) remember(x, lint_id_name(told[k].id));
    const bool swap = x->only_given && x->only[GATE_UP_SWAPPED] && !remembers(x, lint_id_name(GATE_UP_SWAPPED));
    const int64_t before_swap = x->changes;
    if (swap) swap_gate_up(x);
    if (x->changes > before_swap && x->err->status == CLOVER_OK) remember(x, lint_id_name(GATE_UP_SWAPPED));
    if (x->only_given && x->only[EXPERT_ORDER]) fix_cannot(x, EXPERT_ORDER, "which order is right shows --like GOOD alone");
}

CloverStatus fix_values(Fix *x) {
    if (!x->sized) {
        fix_cannot(x, TENSOR_SHAPE, "neither keys nor tensors say all sizes of the model: no tensor is looked at; --like GOOD may know them");
        return x->err->status;
    }
    fix_rates(x);
    fix_norms(x);
    fix_layouts(x);
    fix_as_told(x);
    return x->err->status;
}
