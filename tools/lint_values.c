/* lint_values.c - one walk over all values, and what they show. [LNT-3]
 *
 * Every tensor is decoded piece by piece from the mapping, so that a file of any size needs one small buffer. What decides
 * is never one tensor: the rates and the norms of all layers are held together before anything is said. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/files/quant.h"
#include "lint.h"

enum { PIECE = 1 << 15 };            /* values decoded at a time: whole blocks of every type */

/* ---- one tensor ---------------------------------------------------------------------------------------------------- */

typedef struct Stats {
    int64_t n, not_finite, first_bad;
    int64_t zeros;                   /* a matrix: all or none */
    int64_t negative, above_one;     /* of the finite ones */
    double sum, min, max;
} Stats;

typedef struct Walk {
    const LintModel *m;
    Report *r;
    double *piece;                   /* [PIECE] */
    float *rough;                    /* [PIECE] */
    Progress progress;
    Stats *stats;                    /* [tensors] n 0: not looked at */
} Walk;

static void add_values(Stats *s, const double *v, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(v[i])) {
            if (s->not_finite++ == 0) s->first_bad = s->n + i;
            continue;
        }
        s->zeros += v[i] == 0;
        s->negative += v[i] < 0;
        s->above_one += v[i] > 1;
        s->sum += v[i];
        if (v[i] < s->min) s->min = v[i];
        if (v[i] > s->max) s->max = v[i];
    }
    s->n += n;
}

/* Bytes to a number; equal bytes give equal numbers, others hardly ever do. */
static uint64_t hash_bytes(const uint8_t *p, uint64_t n) {
    uint64_t h = n;
    for (; n >= 8; p += 8, n -= 8) {
        h = (h ^ le64(p)) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    for (; n > 0; p++, n--) h = (h ^ *p) * 0x9e3779b97f4a7c15u;
    return h;
}

static bool can_decode(const Tensor *t) {
    const DTypeInfo *info = dtype_info(t->type);
    return t->data && info && info->decodable && t->elements > 0;
}

/* Of a large matrix only this is asked: is anything in a piece not finite, or not zero? On the bits, so that compilers do many
 * at a time. */
static void judge_bits(const float *v, int64_t n, bool *finite, bool *zero) {
    const uint32_t infinity = 0x7f800000u;
    uint32_t any = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &v[i], sizeof bits);
        bits &= 0x7fffffffu;
        any |= bits;
        most = bits > most ? bits : most;
    }
    *finite = most < infinity;
    *zero = any == 0;
}

/* Elements first .. first+n of the tensor: whole blocks. exactly: every statistic, else what judge_bits tells. */
static Stats walk_values(Walk *w, const Tensor *t, int64_t first, int64_t n, bool exactly) {
    Stats s = { .min = HUGE_VAL, .max = -HUGE_VAL };
    const DTypeInfo *info = dtype_info(t->type);
    const uint8_t *start = t->data + first / info->block * info->bytes;
    bool all_zero = true;
    for (int64_t done = 0; done < n; done += PIECE) {
        const int64_t piece = n - done < PIECE ? n - done : PIECE;
        const uint8_t *p = start + done / info->block * info->bytes;
        bool finite = false, zero = false;
        if (!exactly && t->type != DT_F64) {                     /* a double may be too large for a float */
            quant_decode_float(t->type, p, piece, w->rough);
            judge_bits(w->rough, piece, &finite, &zero);
        }
        if (finite) s.n += piece;
        else {
            quant_decode(t->type, p, piece, w->piece);
            add_values(&s, w->piece, piece);
        }
        all_zero &= zero;
    }
    if (all_zero && !exactly) s.zeros = s.n;
    progress_add(&w->progress, (double)(n / info->block * info->bytes));
    return s;
}

static void merge(Stats *to, const Stats *s) {
    if (s->not_finite && !to->not_finite) to->first_bad = to->n + s->first_bad;
    to->not_finite += s->not_finite;
    to->zeros += s->zeros;
    to->negative += s->negative;
    to->above_one += s->above_one;
    to->sum += s->sum;
    if (to->n == 0 || s->min < to->min) to->min = s->min;
    if (to->n == 0 || s->max > to->max) to->max = s->max;
    to->n += s->n;
}

/* ---- experts ------------------------------------------------------------------------------------------------------- */

typedef struct Slice { uint64_t hash; int64_t expert; const uint8_t *data; uint64_t bytes; } Slice;

static int by_hash(const void *a, const void *b) {
    const Slice *s = a, *t = b;
    if (s->hash != t->hash) return s->hash < t->hash ? -1 : 1;
    return (s->expert > t->expert) - (s->expert < t->expert);
}

/* slice: [n], all of one role and layer; zero ones left out. */
static void find_twins(Walk *w, const char *name, Slice *slice, int64_t n) {
    if (n > 1) qsort(slice, (size_t)n, sizeof *slice, by_hash);
    for (int64_t i = 1; i < n; i++) {
        const Slice *a = &slice[i - 1], *b = &slice[i];
        if (a->hash == b->hash && a->bytes == b->bytes && memcmp(a->data, b->data, (size_t)a->bytes) == 0)
            report_add(w->r, DUPLICATE_EXPERTS, GARBAGE, LLAMA_CPP | CLOVER, name, "%s: experts %lld and %lld are the same, byte for byte", name,
                       (long long)a->expert, (long long)b->expert);
    }
}

/* A tensor [E, rows, cols], expert by expert. */
static Stats walk_experts(Walk *w, const Tensor *t) {
    const int64_t E = t->shape[0], each = t->elements / E;
    const uint64_t bytes = t->bytes / (uint64_t)E;
    Stats all = { 0 };
    Slice *slice = malloc((size_t)E * sizeof *slice);
    int64_t n = 0, zero = 0, first_zero = -1;
    if (!slice) { w->r->no_memory = true; return all; }
    for (int64_t e = 0; e < E; e++) {
        const Stats s = walk_values(w, t, e * each, each, false);
        const uint8_t *data = t->data + (uint64_t)e * bytes;
        merge(&all, &s);
        if (s.zeros < s.n) slice[n++] = (Slice){ hash_bytes(data, bytes), e, data, bytes };
        else if (zero++ == 0) first_zero = e;
    }
    find_twins(w, t->name, slice, n);
    if (zero > 0 && zero < E)
        report_add(w->r, ALL_ZERO, GARBAGE, LLAMA_CPP | CLOVER, t->name, "%s: %lld of %lld experts are zero throughout, the first is %lld", t->name,
                   (long long)zero, (long long)E, (long long)first_zero);
    free(slice);
    return all;
}

/* A folder's separate experts: the tensors of one layer and role. */
static void compare_single_experts(Walk *w) {
    const LintFile *f = w->m->file;
    Slice *slice = NULL;
    int64_t room = 0;
    for (int64_t layer = 0; layer < w->m->layers; layer++)
        for (int role = ROLE_GATE_1; role <= ROLE_DOWN_1; role++) {
            int64_t n = 0;
            const char *name = NULL;
            if (!w->m->of || w->m->size[S_E] < 2) continue;
            for (int64_t i = 0; i < f->tensors.n; i++) {
                const LintTensor *of = &w->m->of[i];
                const Tensor *t = &f->tensors.tensor[i];
                if (of->role != role || of->layer != layer || !t->data || (w->stats[i].n && w->stats[i].zeros == w->stats[i].n)) continue;
                if (n == room) {
                    Slice *larger = realloc(slice, (size_t)(room ? 2 * room : 64) * sizeof *slice);
                    if (!larger) { w->r->no_memory = true; free(slice); return; }
                    slice = larger;
                    room = room ? 2 * room : 64;
                }
                if (!name) name = t->name;
                slice[n++] = (Slice){ hash_bytes(t->data, t->bytes), of->expert, t->data, t->bytes };
            }
            if (n > 1) find_twins(w, name, slice, n);
        }
    free(slice);
}

/* ---- the walk ------------------------------------------------------------------------------------------------------ */

static bool may_be_zero(Value v, NameForm form, int role) {
    if (v == V_VECTOR || (v == V_DIFFUSION && strcmp(lint_roles[role].gguf, "bd_softmax_logit_scale") != 0)) return true;
    return form == NAMES_HF && (v == V_LAYER_NORM || v == V_QK_NORM || v == V_RATE);    /* w and A_log around 0 */
}

static void walk_tensor(Walk *w, int64_t i) {
    const Tensor *t = &w->m->file->tensors.tensor[i];
    const LintTensor *of = &w->m->of[i];
    Stats *s = &w->stats[i];
    const Value value = of->role >= 0 ? lint_roles[of->role].value : V_MATRIX;
    const bool exactly = value == V_LAYER_NORM || value == V_GDN_NORM;      /* whose averages decide */
    const bool experts = of->role >= 0 && lint_roles[of->role].value == V_EXPERTS && of->expert < 0 && t->dims == 3;
    *s = experts ? walk_experts(w, t) : walk_values(w, t, 0, t->elements, exactly);
    if (s->not_finite)
        report_add(w->r, NAN_OR_INF, GARBAGE, LLAMA_CPP | CLOVER, t->name,
                   "%s: %lld of %lld values are NaN or infinite, the first is element %lld (row %lld)", t->name, (long long)s->not_finite,
                   (long long)s->n, (long long)s->first_bad, (long long)(s->first_bad / t->shape[t->dims - 1]));
    else if (s->zeros == s->n && of->role >= 0 && of->layer < w->m->layers && !may_be_zero(lint_roles[of->role].value, w->m->file->form, of->role))
        report_add(w->r, ALL_ZERO, GARBAGE, LLAMA_CPP | CLOVER, t->name, "%s: all %lld values are zero", t->name, (long long)s->n);
}

static bool needs_values(const LintModel *m, int64_t i) { return m->of[i].role >= 0 || m->file->tensors.tensor[i].elements > 0; }

/* Which types cannot be decoded, and how many tensors have them. Where the model needs one of them, who refuses. */
static void say_skipped(const LintModel *m, Report *r) {
    int64_t count[256] = { 0 }, absent = 0;
    const char *needed[256] = { NULL };
    for (int64_t i = 0; i < m->file->tensors.n; i++) {
        const Tensor *t = &m->file->tensors.tensor[i];
        const DTypeInfo *info = dtype_info(t->type);
        const unsigned type = (unsigned)t->type & 255;
        if (!t->data && t->elements > 0) { absent++; continue; }
        if (info && info->decodable) continue;
        count[type]++;
        if (!needed[type] && m->of[i].role >= 0 && m->of[i].layer < m->layers) needed[type] = t->name;
    }
    for (int type = 0; type < 256; type++) {
        if (count[type] == 0) continue;
        r->skipped = true;
        const DTypeInfo *info = dtype_info((DType)type);
        if (info)
            report_remark(r, "%lld tensors of type %s: it cannot be decoded, their values were not looked at", (long long)count[type], info->name);
        else report_remark(r, "%lld tensors of the unknown type %d: their values were not looked at", (long long)count[type], type);
        if (needed[type])
            report_remark(r, m->file->form == NAMES_HF ? "%s is one of them: clover run and clover convert refuse the folder; export it in F32, F16 or BF16 (Transformers)"
                             : "%s is one of them: clover run refuses the file", needed[type]);
    }
    if (absent) report_remark(r, "%lld tensors are not in the file, or not where they should be: their values were not looked at", (long long)absent);
}

/* ---- rates: ssm_a is -exp(A_log) [TEN-6] [TEN-10] ------------------------------------------------------------------- */

/* How much likelier the values are when an exp too many was taken, in nats: sums of log p(A_log) + log |dA_log/dvalue|. */
typedef struct RateVotes { double once, twice, grown; int64_t n, above, negative; double min, max; bool all_inside, all_beyond; } RateVotes;

static void rate_votes(RateVotes *v, double x, bool log_form) {
    v->n++;
    v->above += x >= 0;
    v->negative += x < 0;
    if (x < v->min) v->min = x;
    if (x > v->max) v->max = x;
    if (log_form) {                                              /* a folder's A_log itself; once more: it holds -exp(A_log) */
        v->once += weights_log_usual(x);
        if (x < 0) v->twice += weights_log_usual(log(-x)) - log(-x);
        return;
    }
    if (x >= 0) return;
    const double a = -x;
    v->once += weights_log_usual(log(a)) - log(a);
    v->all_inside &= a < 1;
    v->all_beyond &= a > 1;
    if (a < 1) v->twice += weights_log_usual(log(-log(a))) - log(a) - log(-log(a));      /* -exp(-exp(A_log)) */
    if (a > 1) v->grown += weights_log_usual(log(log(a))) - log(a) - log(log(a));        /* -exp(exp(A_log)) */
}

/* Where some layer has a value >= 0: the layers that hold A_log are named, and those that may hold either. */
static void blame_raw(Walk *w, const RateVotes *v) {
    const LintFile *f = w->m->file;
    int64_t layers = 0, raw = 0, undecided = 0;
    const char *open = NULL;
    for (int64_t i = 0; i < f->tensors.n; i++) {
        const Tensor *t = &f->tensors.tensor[i];
        if (w->m->of[i].role < 0 || lint_roles[w->m->of[i].role].value != V_RATE || !can_decode(t) || t->elements > PIECE) continue;
        quant_decode(t->type, t->data, t->elements, w->piece);
        const RateForm form = weights_rate_form(w->piece, t->elements);
        layers++;
        raw += form == RATE_RAW;
        undecided += form == RATE_UNDECIDED;
        if (form == RATE_UNDECIDED && !open) open = t->name;
        if (form == RATE_RAW) report_tensor(w->r, A_LOG_RAW, GARBAGE, LLAMA_CPP | CLOVER, t->name);
    }
    report_add(w->r, A_LOG_RAW, GARBAGE, LLAMA_CPP | CLOVER, NULL,
               "%lld of %lld values of all layers are 0 or above, where -exp(A_log) is below; they run from %.6g to %.6g; %lld of %lld layers hold A_log",
               (long long)v->above, (long long)v->n, v->min, v->max, (long long)raw, (long long)layers);
    if (undecided)
        report_add(w->r, A_LOG_RAW, GARBAGE, LLAMA_CPP | CLOVER, NULL, "of %lld layers the values may be either, the first is %s: clover fix mends none without --like GOOD",
                   (long long)undecided, open);
}

/* A folder's layer whose values are all below 0, far below too, and e^9 times likelier as -exp(A_log): a slow layer is not called so. */
static void check_layers_of_a_folder(Walk *w) {
    const LintFile *f = w->m->file;
    for (int64_t i = 0; i < f->tensors.n; i++) {
        const Tensor *t = &f->tensors.tensor[i];
        RateVotes v = { .min = HUGE_VAL, .max = -HUGE_VAL };
        if (w->m->of[i].role < 0 || lint_roles[w->m->of[i].role].value != V_RATE || !can_decode(t) || t->elements > PIECE) continue;
        quant_decode(t->type, t->data, t->elements, w->piece);
        for (int64_t k = 0; k < t->elements; k++)
            if (isfinite(w->piece[k])) rate_votes(&v, w->piece[k], true);
        if (v.n == 0 || v.negative < v.n || v.min > -4 || v.twice - v.once <= 9) continue;
        report_add(w->r, A_EXP_TWICE, GARBAGE, CLOVER | TRANSFORMERS, t->name, "%s: its %lld values run from %.6g to %.6g: %.3g nats likelier as -exp(A_log)", t->name,
                   (long long)v.n, v.min, v.max, v.twice - v.once);
    }
}

static void check_rates(Walk *w) {
    const LintFile *f = w->m->file;
    const bool hf = f->form == NAMES_HF;
    RateVotes v = { .min = HUGE_VAL, .max = -HUGE_VAL, .all_inside = true, .all_beyond = true };
    for (int64_t i = 0; i < f->tensors.n; i++) {
        const Tensor *t = &f->tensors.tensor[i];
        if (w->m->of[i].role < 0 || lint_roles[w->m->of[i].role].value != V_RATE || !can_decode(t) || t->elements > PIECE) continue;
        quant_decode(t->type, t->data, t->elements, w->piece);
        for (int64_t k = 0; k < t->elements; k++)
            if (isfinite(w->piece[k])) rate_votes(&v, w->piece[k], hf);
    }
    if (v.n == 0) return;
    const double clear = 9;                                      /* nats: 8000 to 1 */
    LintId id = LINT_IDS;
    if (!hf && v.above > 0) id = A_LOG_RAW;
    else if (!hf && v.all_inside && v.twice - v.once > clear) id = A_EXP_TWICE;
    else if (!hf && v.all_beyond && v.grown - v.once > clear) id = A_EXP_TWICE;
    else if (hf && v.negative == v.n && v.twice - v.once > clear) id = A_EXP_TWICE;
    if (id == LINT_IDS && hf) check_layers_of_a_folder(w);
    if (id == LINT_IDS) return;
    const int hurts = hf ? CLOVER | TRANSFORMERS : LLAMA_CPP | CLOVER;
    if (id == A_LOG_RAW) { blame_raw(w, &v); return; }
    report_add(w->r, id, GARBAGE, hurts, NULL,
                   "the %lld values of all layers run from %.6g to %.6g: %.3g nats likelier as an exponential of an exponential (%s)",
                           (long long)v.n, v.min, v.max,
                   (v.all_beyond && !hf ? v.grown : v.twice) - v.once, hf ? "A_log holds -exp(A_log)" : v.all_inside ? "-exp(-exp(A_log))"
                           : "-exp(exp(A_log))");
    for (int64_t i = 0; i < f->tensors.n; i++)
        if (w->m->of[i].role >= 0 && lint_roles[w->m->of[i].role].value == V_RATE) report_tensor(w->r, id, GARBAGE, hurts, f->tensors.tensor[i].name);
}

/* ---- norms: 1 + w in a GGUF [TEN-5] [TEN-11] ------------------------------------------------------------------------ */

typedef struct Norm { const char *name; double mean; const Stats *s; } Norm;

static int by_mean(const void *a, const void *b) {
    const Norm *m = a, *n = b;
    return (m->mean > n->mean) - (m->mean < n->mean);
}

static Stats sum_up(const Norm *norm, int64_t n) {
    Stats all = { 0 };
    for (int64_t i = 0; i < n; i++) merge(&all, norm[i].s);
    return all;
}

static double mean_of(const Stats *s) { return s->n > s->not_finite ? s->sum / (double)(s->n - s->not_finite) : 0; }

static void blame(Walk *w, LintId id, const Norm *norm, int64_t n) {
    for (int64_t i = 0; i < n; i++) report_tensor(w->r, id, GARBAGE, LLAMA_CPP | CLOVER, norm[i].name);
}

/* Two groups, one whole shift apart, with nothing between them? norm: [n] by mean. Returns how many are in the lower one, 0: no. */
static int64_t two_groups(const Norm *norm, int64_t n) {
    int64_t cut = 0;
    double gap = 0;
    for (int64_t i = 1; i < n; i++)
        if (norm[i].mean - norm[i - 1].mean > gap) gap = norm[i].mean - norm[i - 1].mean, cut = i;
    if (cut == 0 || gap < 0.5) return 0;
    const double low = norm[cut - 1].mean - norm[0].mean, high = norm[n - 1].mean - norm[cut].mean;
    const Stats below = sum_up(norm, cut), above = sum_up(norm + cut, n - cut);
    const double apart = mean_of(&above) - mean_of(&below), share = (double)below.negative / (double)below.n;
    const bool spread = low > gap || high > gap || fabs(apart - 1) > 0.4;
    if (spread) return 0;
    const bool unshifted_below = mean_of(&below) < 0.5 && share > 0.05;             /* w has both signs, 1 + w hardly ever */
    const bool twice_above = mean_of(&above) > 1.5 && (double)above.above_one > 0.99 * (double)above.n && mean_of(&below) > 0.5;
    return unshifted_below || twice_above ? cut : 0;
}

/* Layer norms decide; a trained head norm may be anywhere. shift: 1 where the file holds w. */
static void check_layer_norms(Walk *w, Norm *norm, int64_t n) {
    const bool hf = w->m->file->form == NAMES_HF;
    if (n == 0) return;
    qsort(norm, (size_t)n, sizeof *norm, by_mean);
    const Stats all = sum_up(norm, n);
    const double mean = mean_of(&all);
    const int64_t cut = two_groups(norm, n);
    if (cut > 0 && !hf) {
        report_add(w->r, NORM_SHIFT_MIXED, GARBAGE, LLAMA_CPP | CLOVER, NULL, "%lld of %lld norms average %.3g to %.3g, the others %.3g to %.3g",
                   (long long)cut, (long long)n, norm[0].mean,
                   norm[cut - 1].mean, norm[cut].mean, norm[n - 1].mean);
        const bool lower_is_wrong = norm[0].mean < 0.5;
        blame(w, NORM_SHIFT_MIXED, lower_is_wrong ? norm : norm + cut, lower_is_wrong ? cut : n - cut);
    } else if (!hf && fabs(mean) < 0.5) {
        report_add(w->r, NORM_SHIFT_MISSING, GARBAGE, LLAMA_CPP | CLOVER, NULL,
                   "the %lld values of %lld layer norms average %.3g, %.3g%% are negative: expected near 1", (long long)all.n, (long long)n, mean,
                   100 * (double)all.negative / (double)all.n);
        blame(w, NORM_SHIFT_MISSING, norm, n);
    } else if (!hf && mean > 1.5 && (double)all.above_one > 0.99 * (double)all.n) {
        report_add(w->r, NORM_SHIFT_TWICE, GARBAGE, LLAMA_CPP | CLOVER, NULL,
                   "the %lld values of %lld layer norms average %.3g, %lld of them above 1: expected near 1", (long long)all.n, (long long)n, mean,
                   (long long)all.above_one);
        blame(w, NORM_SHIFT_TWICE, norm, n);
    } else if (hf && mean > 0.5 && (double)all.negative < 0.01 * (double)all.n) {
        report_add(w->r, NORM_SHIFT_TWICE, GARBAGE, CLOVER | TRANSFORMERS, NULL,
                   "the %lld values of %lld layer norms average %.3g, %lld of them negative: a folder holds w, near 0, and readers add the 1",
                           (long long)all.n,
                   (long long)n, mean, (long long)all.negative);
        blame(w, NORM_SHIFT_TWICE, norm, n);
    }
}

static void check_head_norms(Walk *w, const Norm *norm, int64_t n) {
    const Stats all = sum_up(norm, n);
    if (n == 0 || !(mean_of(&all) > 1.5) || (double)all.above_one < 0.99 * (double)all.n) return;
    report_add(w->r, HEAD_NORM_SHIFTED, GARBAGE, LLAMA_CPP | CLOVER, NULL,
               "the %lld values of %lld GDN head norms average %.3g, from %.3g to %.3g: expected near 1", (long long)all.n, (long long)n,
                       mean_of(&all),
               all.min, all.max);
    blame(w, HEAD_NORM_SHIFTED, norm, n);
}

static void check_norms(Walk *w) {
    const LintFile *f = w->m->file;
    Norm *norm = malloc((size_t)(f->tensors.n ? f->tensors.n : 1) * sizeof *norm);
    if (!norm) { w->r->no_memory = true; return; }
    for (int head = 0; head < 2; head++) {
        int64_t n = 0;
        for (int64_t i = 0; i < f->tensors.n; i++) {
            const LintTensor *of = &w->m->of[i];
            const Stats *s = &w->stats[i];
            if (of->role < 0 || lint_roles[of->role].value != (head ? V_GDN_NORM : V_LAYER_NORM) || of->layer >= w->m->layers) continue;
            if (s->n == s->not_finite || (s->zeros == s->n && f->form == NAMES_GGUF)) continue;      /* told elsewhere */
            norm[n++] = (Norm){ f->tensors.tensor[i].name, mean_of(s), s };
        }
        if (head) check_head_norms(w, norm, n);
        else check_layer_norms(w, norm, n);
    }
    free(norm);
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

CloverStatus lint_values(const LintModel *m, Report *r, CloverError *err) {
    const int64_t n = m->file->tensors.n;
    error_clear(err);
    Walk w = { .m = m, .r = r, .piece = malloc(PIECE * sizeof *w.piece), .rough = malloc(PIECE * sizeof *w.rough),
               .stats = calloc(n ? (size_t)n : 1, sizeof *w.stats) };
    if (w.piece && w.rough && w.stats) {
        w.progress = progress_start("reading values", (double)m->file->bytes);
        for (int64_t i = 0; i < n; i++)
            if (needs_values(m, i) && can_decode(&m->file->tensors.tensor[i])) walk_tensor(&w, i);
        progress_end(&w.progress);
        compare_single_experts(&w);
        check_rates(&w);
        check_norms(&w);
        say_skipped(m, r);
    } else r->no_memory = true;
    free(w.piece);
    free(w.rough);
    free(w.stats);
    return r->no_memory ? error_memory(err, "the values' statistics", (size_t)n * sizeof *w.stats) : CLOVER_OK;
}
