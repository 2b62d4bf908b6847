/* fix_like.c - mends by a good file: what compare finds to be a transform is taken back, what is not there is lent. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/files/quant.h"
#include "fix.h"

/* The finding that a transform is. */
static LintId id_of(const RoleOf *role, const Match *m) {
    const char *name = m->transform.name;
    if (strstr(name, "exp") == name && strncmp(name, "experts", 7) != 0) return m->transform.value == VALUE_NEG_EXP ? A_LOG_RAW : A_EXP_TWICE;
    if (strncmp(name, "shifted", 7) == 0) {
        if (strcmp(role->what.gguf[0], "ssm_norm.weight") == 0) return HEAD_NORM_SHIFTED;
        return m->transform.value == VALUE_PLUS_1 ? NORM_SHIFT_MISSING : NORM_SHIFT_TWICE;
    }
    if (strcmp(name, "heads permuted, reversed") == 0 && !role->what.diffusion) return CONV_REVERSED;      /* and head-order: one tensor, one mend */
    if (strstr(name, "heads permuted")) return role->what.diffusion ? DIFFUSION_HEAD_ORDER : HEAD_ORDER;
    if (strstr(name, "experts permuted")) return EXPERT_ORDER;
    if (strstr(name, "reversed")) return CONV_REVERSED;
    if (strstr(name, "split")) return Q_GATE_FLAT;
    if (strstr(name, "swapped")) return role->what.experts || strstr(role->what.gguf[0], "shexp") ? GATE_UP_SWAPPED : NAME_FORM;
    return strstr(role->what.gguf[0], "conv") ? CONV_LAYOUT : TENSOR_SHAPE;
}

/* Lint calls a shift that only some norms lack mixed: --only by either name means it. */
static bool wanted(const Fix *x, LintId id) {
    if (fix_wanted(x, id)) return true;
    return (id == NORM_SHIFT_MISSING || id == NORM_SHIFT_TWICE) && report_has(&x->report, NORM_SHIFT_MIXED) && x->only[NORM_SHIFT_MIXED];
}

/* ---- lending ---------------------------------------------------------------------------------------------------------------- */

/* The good file's values: its very bytes where its type is the one wanted or has no encoder, else stored as that type. */
static void lend(Fix *x, int64_t role, DType type, LintId id) {
    const RoleOf *r = &x->roles.role[role];
    RoleView v;
    if (!fix_wanted(x, id)) return;
    if (role_view(&x->good, r, &x->config, &v, x->err) != CLOVER_OK) return;
    if (!role_view_present(&v) || !v.fits || !v.decodable) {
        fix_cannot(x, id, "%s: %s has none that fits", r->name, x->like);
        role_view_free(&v);
        return;
    }
    FixTensor *t = fix_tensor(x, r->name);
    if (t && t->how != FIX_COPY) { role_view_free(&v); return; }
    const bool new = t == NULL;
    if (new) t = fix_add_tensor(x, r);
    if (!t) { role_view_free(&v); return; }
    if (!type_has_encoder(type) || v.cols % dtype_info(type)->block != 0) type = v.value == VALUE_AS_IT_IS ? v.type : DT_F32;
    t->how = type == v.type && v.value == VALUE_AS_IT_IS && !v.single ? FIX_MOVE : FIX_VALUES;
    t->view = v;
    t->t = (Transform){ .from = -1 };
    t->type = type;
    t->dims = role_shape(r, t->shape);
    role_maps(r, &x->config, &t->rows, &t->cols);
    if (r->what.diffusion && !x->now.diffusion_tiled) t->rows.width = t->cols.width = 0;
    if (t->how == FIX_MOVE && v.col_map.width != t->cols.width && dtype_info(type)->block > 1) t->how = FIX_VALUES;      /* another order of columns: stored again */
    fix_say(x, id, "%s: %s -> as in %s", r->name, new ? "not there" : "replaced", x->like);
}

static void take_back(Fix *x, int64_t role, Match *m) {
    const LintId id = id_of(&x->roles.role[role], m);
    FixTensor *t = fix_tensor(x, x->roles.role[role].name);
    const int64_t from = m->transform.from >= 0 ? m->transform.from : role;
    RoleView v;
    if (id == HEAD_ORDER && x->heads_stuck) { x->stuck_told++; return; }
    if (!wanted(x, id) || strcmp(m->transform.name, "merged") == 0 || (strcmp(m->transform.name, "split") == 0 && x->roles.role[role].what.experts)) return;
    if (!t) { fix_cannot(x, id, "%s: it is one tensor with another", x->roles.role[role].name); return; }
    if (m->transform.value == VALUE_LOG_NEG || m->transform.value == VALUE_NEG_LOG_NEG) {     /* a logarithm would not give every bit back */
        lend(x, role, DT_F32, id);
        return;
    }
    if (role_view(&x->now, &x->roles.role[from], &x->config, &v, x->err) != CLOVER_OK) return;
    v.role = &x->roles.role[role];                               /* the right place is this role's, wherever the values stand */
    fix_rearrange(x, t, &v, &m->transform, id);
    m->transform = (Transform){ .from = -1 };                    /* taken over */
}

/* Why a tensor is another than the good file's: LINT_IDS when nothing is plainly wrong with it. */
static LintId what_ails(Fix *x, const RoleView *v) {
    float *row = malloc((size_t)v->cols * 2 * sizeof *row);
    uint64_t *hash = calloc((size_t)v->experts, sizeof *hash);
    bool all_zero = false, finite = true, same = false;          /* all_zero: the tensor, or one expert of it */
    if (!row || !hash) error_memory(x->err, "a row", (size_t)v->cols * 8 + (size_t)v->experts * 8);
    for (int64_t e = 0; row && hash && e < v->experts; e++) {
        bool zero = true;
        for (int64_t r = 0; r < v->rows; r++) {
            role_row(v, e, r, row, row + v->cols);
            for (int64_t c = 0; c < v->cols; c++) {
                uint32_t bits;
                memcpy(&bits, &row[c], sizeof bits);
                hash[e] = (hash[e] ^ bits) * 0x9e3779b97f4a7c15u;
                hash[e] ^= hash[e] >> 29;
                zero &= row[c] == 0, finite &= isfinite(row[c]) != 0;
            }
        }
        all_zero |= zero;
        for (int64_t k = 0; k < e; k++) same |= hash[k] == hash[e];
    }
    free(row);
    free(hash);
    return x->err->status != CLOVER_OK ? LINT_IDS : !finite ? NAN_OR_INF : all_zero ? ALL_ZERO : same ? DUPLICATE_EXPERTS : LINT_IDS;
}

static void mend_different(Fix *x, int64_t role, const RoleView *v) {
    if (!v->fits) { lend(x, role, v->decodable ? v->type : role_type(v->role, lint_matrix_type(&x->model)), TENSOR_SHAPE); return; }
    const LintId id = v->decodable ? what_ails(x, v) : LINT_IDS;
    if (id != LINT_IDS) lend(x, role, v->type, id);
    else if (x->err->status == CLOVER_OK) printf("left as it is: %s differs from that of %s, and no transform explains it\n", v->role->name, x->like);
}

/* What a right export has in F32 and this file in less; alpha and beta follow the file's type, or are finer. */
static void mend_precision(Fix *x, int64_t role, const RoleView *v) {
    const char *own = v->role->what.gguf[0];
    const bool alpha_beta = strcmp(own, "ssm_alpha.weight") == 0 || strcmp(own, "ssm_beta.weight") == 0;
    if (!alpha_beta && role_type(v->role, DT_Q8_0) == DT_F32 && v->type != DT_F32 && v->type != DT_F64) lend(x, role, DT_F32, ROUTER_QUANTISED);
    const DType most = lint_matrix_type(&x->model);
    if (alpha_beta && dtype_info(v->type)->block > 1 && lint_bits(v->type) < lint_bits(most)) lend(x, role, role_type(v->role, most), ALPHA_BETA_QUANTISED);
}

static void mend_role(Fix *x, int64_t role) {
    const RoleOf *r = &x->roles.role[role];
    RoleView mine, theirs;
    Match m;
    if (role_view(&x->good, r, &x->config, &theirs, x->err) != CLOVER_OK) return;
    const bool known = role_view_present(&theirs);
    role_view_free(&theirs);
    if (!known || (r->what.diffusion && x->reader == FIX_FOR_LLAMA_CPP)) return;
    if (role_view(&x->now, r, &x->config, &mine, x->err) != CLOVER_OK) return;
    if (!role_view_present(&mine)) {
        const LintId diffusion = report_has(&x->report, DIFFUSION_PARTIAL) ? DIFFUSION_PARTIAL : DIFFUSION_MISSING;
        lend(x, role, role_type(r, lint_matrix_type(&x->model)), r->what.diffusion ? diffusion : TENSOR_MISSING);
        return;
    }
    if (compare_role(&x->good, &x->now, &x->roles, role, &x->config, &m, x->err) != CLOVER_OK) return;
    x->shared++;
    x->differing += m.relation == RELATION_DIFFERENT;
    if (m.relation == RELATION_DIFFERENT) mend_different(x, role, &mine);
    else if (m.transform.name[0]) take_back(x, role, &m);
    else mend_precision(x, role, &mine);
    transform_free(&m.transform);
}

CloverStatus fix_like(Fix *x) {
    for (int64_t i = 0; i < x->roles.n && x->err->status == CLOVER_OK; i++) mend_role(x, i);
    if (x->err->status == CLOVER_OK && x->shared > 3 && 2 * x->differing > x->shared)
        return error_set(x->err, CLOVER_BAD_INPUT, "%s: %lld of the %lld tensors that it and %s both have differ: it is another model, nothing is written",
                         x->like, (long long)x->differing, (long long)x->shared, x->in);
    if (x->changes && fix_key(x, FIX_MENDED)) fix_drop_key(x, FIX_MENDED);       /* the good file's word counts now */
    if (x->stuck_told) fix_cannot(x, HEAD_ORDER, "%lld tensors: " FIX_STUCK, (long long)x->stuck_told);
    return x->err->status;
}
