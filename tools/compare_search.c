/* compare_search.c - which transform makes a tensor right: those met in the wild, one after the other, then any order of heads or
 * experts. A candidate is tried on a few rows first. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "compare.h"

typedef struct Search {
    const RoleView *right, *other;
    const ModelFile *file;           /* other's */
    const RoleList *roles;
    int64_t role;
    const CloverConfig *c;
    Match *match;
    bool found;
    CloverError *err;
} Search;

void transform_free(Transform *t) {
    free(t->expert);
    free(t->row);
    free(t->col);
    t->expert = t->row = t->col = NULL;
}

static bool is(const Search *s, const char *gguf) { return strcmp(s->right->role->what.gguf[0], gguf) == 0; }

/* ---- trying one -------------------------------------------------------------------------------------------------------- */

/* Measures t, over a few rows first; takes it over, into the match when it makes the tensor right. */
static void try_from(Search *s, const RoleView *other, Transform t) {
    enum { A_FEW = 24 };
    Measure m;
    double error, expected;
    for (int pass = 0; pass < 2; pass++) {
        if (compare_measure(s->right, other, &t, pass == 0 ? A_FEW : 0, &m, s->err) != CLOVER_OK) { transform_free(&t); return; }
        if (measure_relation(s->right, other, &m, &error, &expected) == RELATION_DIFFERENT) { transform_free(&t); return; }
    }
    Match *out = s->match;
    transform_free(&out->transform);
    *out = (Match){ .relation = measure_relation(s->right, other, &m, &error, &expected), .transform = t, .error = error, .expected = expected,
                    .worst = { m.worst[0], m.worst[1], m.worst[2] }, .worst_right = m.worst_right, .worst_other = m.worst_other };
    if (out->relation == RELATION_IDENTICAL && t.name[0]) out->relation = RELATION_EQUAL;
    s->found = true;
}

static void name_it(Transform *t, const char *name, const char *detail) {
    const size_t n = strlen(t->name), k = strlen(t->detail);
    snprintf(t->name + n, sizeof t->name - n, "%s%s", n ? ", " : "", name);
    snprintf(t->detail + k, sizeof t->detail - k, "%s%s", k ? "; " : "", detail);
}

static int64_t *new_map(int64_t n, CloverError *err) {
    int64_t *map = malloc((size_t)n * sizeof *map);
    if (!map) { error_memory(err, "a permutation", (size_t)n * sizeof *map); return NULL; }
    for (int64_t i = 0; i < n; i++) map[i] = i;
    return map;
}

/* ---- orders of slots ------------------------------------------------------------------------------------------------------ */

/* Gives t the rows or columns of slot from[i] for those of slot i; false: nothing moves, or no memory. */
static bool move_slots(Transform *t, const RoleView *of, Slots slots, const int64_t *from, CloverError *err) {
    int64_t *map = new_map(slots.cols ? of->cols : of->rows, err);
    bool moves = false;
    for (int64_t i = 0; map && i < slots.n; i++)
        for (int64_t k = 0; k < slots.width; k++) {
            map[slots.start + i * slots.width + k] = slots.start + from[i] * slots.width + k;
            moves |= from[i] != i;
        }
    if (!moves) { free(map); return false; }
    if (slots.cols) t->col = map;
    else t->row = map;
    return true;
}

/* Grouped where tiled was meant, or tiled twice. [TEN-7] */
static bool move_value_heads(Transform *t, const RoleView *of, const CloverConfig *c, bool grouped, CloverError *err) {
    const HeadMap map = { 0, 1, c->key_heads, c->value_heads / c->key_heads };
    const Slots slots = role_heads(of->role, c);
    if (slots.n < 2 || of->role->what.heads == ROLE_NO_HEADS) return false;
    int64_t *from = new_map(slots.n, err);
    for (int64_t h = 0; from && h < slots.n; h++) from[h] = grouped ? head_unmap(&map, h) : head_map(&map, h);
    const bool moves = from && move_slots(t, of, slots, from, err);
    free(from);
    return moves;
}

/* Query and gate rows: right are, head by head, [width query | width gate]. [ATT-1] */
static bool move_query_gate(Transform *t, const RoleView *of, const CloverConfig *c, Known known, CloverError *err) {
    const int64_t H = c->heads, w = c->head_width;
    if (strcmp(of->role->what.gguf[0], "attn_q.weight") != 0 || (known != QUERY_GATE_SWAPPED && H < 2) || !(t->row = new_map(of->rows, err))) return false;
    for (int64_t i = 0; i < of->rows; i++) {
        const int64_t h = i / (2 * w), part = i / w % 2, k = i % w, flat = (part * H + h) * w + k;
        if (known == QUERY_GATE_FLAT) t->row[i] = flat;
        else if (known == QUERY_GATE_TWICE) t->row[flat] = i;
        else t->row[i] = (h * 2 + 1 - part) * w + k;
    }
    return true;
}

static bool is_conv(const RoleView *of) {
    return strcmp(of->role->what.gguf[0], "ssm_conv1d.weight") == 0 || strcmp(of->role->what.gguf[0], "conv_right_weight") == 0;
}

static bool move_q_k(Transform *t, const RoleView *of, const CloverConfig *c, CloverError *err) {
    const int64_t K = c->key_heads * c->key_width;
    if ((!is_conv(of) && strcmp(of->role->what.gguf[0], "attn_qkv.weight") != 0) || of->rows == 1 || !(t->row = new_map(of->rows, err))) return false;
    for (int64_t i = 0; i < 2 * K; i++) t->row[i] = (i + K) % (2 * K);
    return true;
}

static bool move_taps(Transform *t, const RoleView *of, CloverError *err) {
    if (!is_conv(of) || t->col || of->rows == 1 || !(t->col = new_map(of->cols, err))) return false;
    for (int64_t i = 0; i < of->cols; i++) t->col[i] = of->cols - 1 - i;
    return true;
}

bool transform_known(Known known, const RoleView *of, const CloverConfig *c, Transform *t, CloverError *err) {
    static const char *const words[][2] = {
        [HEADS_GROUPED]      = { "heads permuted", "grouped where the format tiles them" },
        [HEADS_TILED_TWICE]  = { "heads permuted", "tiled once more than the format has them" },
        [QUERY_GATE_FLAT]    = { "split", "all query rows, then all gate rows, where each head has its own" },
        [QUERY_GATE_TWICE]   = { "split", "query and gate rows dealt out head by head though they were so already" },
        [QUERY_GATE_SWAPPED] = { "swapped", "each head's gate rows before its query rows" },
        [Q_K_SWAPPED]        = { "swapped", "the q rows and the k rows" },
        [TAPS_REVERSED]      = { "reversed", "the conv's taps" },
    };
    bool moves = false;
    switch (known) {
    case HEADS_GROUPED: case HEADS_TILED_TWICE: moves = move_value_heads(t, of, c, known == HEADS_GROUPED, err); break;
    case QUERY_GATE_FLAT: case QUERY_GATE_TWICE: case QUERY_GATE_SWAPPED: moves = move_query_gate(t, of, c, known, err); break;
    case Q_K_SWAPPED: moves = move_q_k(t, of, c, err); break;
    case TAPS_REVERSED: moves = move_taps(t, of, err); break;
    }
    if (moves) name_it(t, words[known][0], words[known][1]);
    return moves;
}

static void try_known(Search *s, Transform t, Known known) {
    if (!s->found && s->err->status == CLOVER_OK && transform_known(known, s->right, s->c, &t, s->err)) try_from(s, s->other, t);
}

enum { SAMPLE = 256 };

/* A slot's values as far as they tell it from others: of up to four rows. */
static void sample_of(const RoleView *v, const Transform *t, Slots slots, bool experts, int64_t i, float *row, float out[SAMPLE]) {
    int64_t n = 0;
    memset(out, 0, SAMPLE * sizeof *out);
    for (int64_t k = 0; k < 4 && n < SAMPLE; k++) {
        const int64_t width = slots.cols ? slots.width : v->cols, start = slots.cols ? slots.start + i * slots.width : 0;
        const int64_t r = experts ? k : slots.cols ? k : slots.start + i * slots.width + k;
        if (r >= v->rows || (!experts && !slots.cols && k >= slots.width)) break;
        transform_row(v, t, experts ? i : 0, r, row, row + v->cols);
        for (int64_t c = 0; c < width && c < SAMPLE / 4 && n < SAMPLE; c++) out[n++] = row[start + c];
    }
}

static double distance(const float *a, const float *b) {
    double sum = 0;
    for (int i = 0; i < SAMPLE; i++) sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return isnan(sum) ? INFINITY : sum;
}

/* Each right slot's nearest among the others not yet taken: from[n]. */
static void match_slots(Search *s, const Transform *t, Slots slots, bool experts, int64_t *from) {
    const Transform as_is = { .from = -1 };
    float *right = malloc((size_t)slots.n * SAMPLE * sizeof *right), *other = malloc((size_t)slots.n * SAMPLE * sizeof *other);
    float *row = malloc((size_t)s->right->cols * 3 * sizeof *row);
    bool *taken = calloc((size_t)slots.n, sizeof *taken);
    if (!right || !other || !row || !taken) error_memory(s->err, "samples of heads", (size_t)slots.n * SAMPLE * 8);
    for (int64_t i = 0; i < slots.n && s->err->status == CLOVER_OK; i++) {
        sample_of(s->right, &as_is, slots, experts, i, row, right + i * SAMPLE);
        sample_of(s->other, t, slots, experts, i, row, other + i * SAMPLE);
    }
    for (int64_t i = 0; i < slots.n && s->err->status == CLOVER_OK; i++) {
        int64_t best = -1;
        double least = INFINITY;
        for (int64_t k = 0; k < slots.n; k++) {
            const double d = taken[k] ? INFINITY : distance(right + i * SAMPLE, other + k * SAMPLE);
            if (best < 0 ? !taken[k] : d < least) best = k, least = d;
        }
        taken[best] = true;
        from[i] = best;
    }
    free(right);
    free(other);
    free(row);
    free(taken);
}

static void try_heads(Search *s, Transform t) {
    const Slots slots = role_heads(s->right->role, s->c);
    if (slots.n < 2) return;
    try_known(s, t, HEADS_GROUPED);
    try_known(s, t, HEADS_TILED_TWICE);
    int64_t *from = s->found || s->err->status != CLOVER_OK ? NULL : new_map(slots.n, s->err);
    if (from) match_slots(s, &t, slots, false, from);
    if (from && s->err->status == CLOVER_OK && move_slots(&t, s->right, slots, from, s->err)) {
        name_it(&t, "heads permuted", "in no order that is known");
        try_from(s, s->other, t);
    }
    free(from);
}

static void try_experts(Search *s, Transform t) {
    const bool router = is(s, "ffn_gate_inp.weight"), experts = s->right->experts > 1;
    if ((!router && !experts) || s->c->experts < 2) return;
    const Slots slots = { 0, 1, s->c->experts, false };
    int64_t *from = new_map(slots.n, s->err);
    if (!from) return;
    match_slots(s, &t, slots, experts, from);
    bool moves = false;
    for (int64_t e = 0; e < slots.n; e++) moves |= from[e] != e;
    if (s->err->status != CLOVER_OK || !moves) { free(from); return; }
    if (experts) t.expert = from;
    else t.row = from;
    name_it(&t, "experts permuted", "the same experts in another order");
    try_from(s, s->other, t);
}

/* ---- other orders -------------------------------------------------------------------------------------------------------- */

/* A conv's heads are rows and its taps columns: both may be moved. */
static void try_heads_and_taps(Search *s, Transform t, Known heads) {
    if (s->found || s->err->status != CLOVER_OK || !transform_known(heads, s->right, s->c, &t, s->err)) return;
    if (transform_known(TAPS_REVERSED, s->right, s->c, &t, s->err)) try_from(s, s->other, t);
    else transform_free(&t);
}

static void try_rows(Search *s, Transform t) {
    try_known(s, t, TAPS_REVERSED);
    try_heads_and_taps(s, t, HEADS_GROUPED);
    try_heads_and_taps(s, t, HEADS_TILED_TWICE);
    try_known(s, t, QUERY_GATE_FLAT);
    try_known(s, t, QUERY_GATE_TWICE);
    try_known(s, t, QUERY_GATE_SWAPPED);
    try_known(s, t, Q_K_SWAPPED);
}

static void try_square(Search *s, Transform t) {
    const RoleView *v = s->other;
    if (v->rows != v->cols || v->experts != 1 || v->single || dtype_info(v->type)->block != 1) return;
    t.transposed = true;
    name_it(&t, "transposed", "columns for rows");
    try_from(s, v, t);
}

/* Roles of one shape that get mixed up. */
static const char *const pairs[][2] = {
    { "ffn_gate_exps.weight", "ffn_up_exps.weight" }, { "ffn_gate_shexp.weight", "ffn_up_shexp.weight" }, { "ssm_alpha.weight", "ssm_beta.weight" },
    { "attn_k.weight", "attn_v.weight" }, { "attn_norm.weight", "post_attention_norm.weight" }, { "attn_q_norm.weight", "attn_k_norm.weight" },
    { "token_embd.weight", "output.weight" }, { "bd_softmax_logit_scale", "bd_softmax_history_bias" },
    { "bd_softmax_history_bias", "bd_softmax_history_c" }, { "bd_softmax_logit_scale", "bd_softmax_history_c" },
};

static void try_partner(Search *s, Transform t, const char *partner) {
    char name[ROLE_NAME], detail[160];
    const RoleOf *role = s->right->role;
    RoleView v;
    if (role->layer >= 0) snprintf(name, sizeof name, "blk.%lld.%s", (long long)role->layer, partner);
    else snprintf(name, sizeof name, "%s", partner);
    const int64_t at = role_find(s->roles, name);
    if (at < 0 || role_view(s->file, &s->roles->role[at], s->c, &v, s->err) != CLOVER_OK) return;
    if (role_view_present(&v) && v.fits && v.decodable && v.rows == s->right->rows && v.cols == s->right->cols && v.experts == s->right->experts) {
        snprintf(detail, sizeof detail, "these values stand in %s", role_view_name(&v));
        t.from = at;
        name_it(&t, "swapped", detail);
        try_from(s, &v, t);
    }
    role_view_free(&v);
}

static void try_partners(Search *s, Transform t) {
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && !s->found && s->err->status == CLOVER_OK; i++)
        for (int k = 0; k < 2 && !s->found; k++)
            if (is(s, pairs[i][k])) try_partner(s, t, pairs[i][1 - k]);
}

/* ---- all of them ----------------------------------------------------------------------------------------------------------- */

typedef struct Form { ValueForm value; const char *name, *detail; } Form;

static int forms_of(const RoleOf *role, const Form **out) {
    static const Form norm[] = { { VALUE_AS_IT_IS, "", "" }, { VALUE_PLUS_1, "shifted by 1", "w where 1 + w is meant" },
        { VALUE_MINUS_1, "shifted by 1", "2 + w where 1 + w is meant" } };
    static const Form head_norm[] = { { VALUE_AS_IT_IS, "", "" }, { VALUE_MINUS_1, "shifted by 1", "1 was added to the GDN head norm, which is a plain factor" } };
    static const Form rate[] = { { VALUE_AS_IT_IS, "", "" }, { VALUE_NEG_EXP, "exp", "A_log where -exp(A_log) is meant" },
        { VALUE_LOG_NEG, "exp", "-exp applied twice" },
        { VALUE_NEG_LOG_NEG, "exp", "-exp(exp(A_log)) where -exp(A_log) is meant" } };
    static const Form other[] = { { VALUE_AS_IT_IS, "", "" } };
    if (role->what.form == ROLE_LAYER_NORM || role->what.form == ROLE_HEAD_NORM) { *out = norm; return 3; }
    if (role->what.form == ROLE_RATE) { *out = rate; return 4; }
    if (strcmp(role->what.gguf[0], "ssm_norm.weight") == 0) { *out = head_norm; return 2; }
    *out = other;
    return 1;
}

typedef void TryOrder(Search *s, Transform t);
static TryOrder *const orders[] = { try_heads, try_rows, try_experts, try_partners, try_square };

CloverStatus compare_search(const RoleView *right, const RoleView *other, const ModelFile *file, const RoleList *roles, int64_t role,
                            const CloverConfig *config, Match *match, bool *found, CloverError *err) {
    Search s = { right, other, file, roles, role, config, match, false, err };
    const Form *forms;
    const int n = forms_of(right->role, &forms);
    error_clear(err);
    for (int order = -1; order < (int)(sizeof orders / sizeof *orders) && !s.found; order++)
        for (int i = 0; i < n && !s.found && err->status == CLOVER_OK; i++) {
            Transform t = { .value = forms[i].value, .from = -1 };
            if (forms[i].name[0]) name_it(&t, forms[i].name, forms[i].detail);
            if (other->transposed) name_it(&t, "transposed", "columns for rows");
            if (order < 0) try_from(&s, other, t);
            else orders[order](&s, t);
        }
    *found = s.found;
    return err->status;
}
