/* lint_deep.c - lint --deep: which reading of the weights makes text likely? [LNT-4]
 *
 * Where heads, taps, rows or experts stand in another order, every single value is as good as before: only running the model
 * tells. Each candidate reading (lint_reading.c) is run on the same rows and its negative log-likelihood compared, row by row:
 * the trunk's readings on committed rows, the diffusion tensors' on the masked rows of blocks. A model that no reading makes
 * better than chance cannot tell, and nothing is said of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "lint.h"
#include "lint_reading.h"

static const char sentences[] =
    "The sun rises in the east and sets in the west. In the morning people wake up, eat breakfast and go to work. "
    "Water boils at one hundred degrees and freezes at zero. The capital of France is Paris, and the capital of Italy is Rome. "
    "One, two, three, four, five, six, seven, eight, nine, ten. Once upon a time there was a king who had three daughters, "
    "and the youngest of them was so beautiful that the sun itself was astonished whenever it shone in her face.";

enum { COMMIT_PIECE = 16, MOST_BLOCK = COMMIT_PIECE, LEAST_ROWS = 16, MOST_MOVED = 8 };
static const double clear_errors = 4;                            /* a winner is clear at so many standard errors ... */
static const double clear_nats = 0.05;                           /* ... and so much a row */

/* ---- running a reading --------------------------------------------------------------------------------------------- */

/* Rows before `committed` judge the trunk; what follows is cut into blocks, each previewed with three of four rows masked, then
 * committed. */
typedef struct Text { int32_t *ids; int64_t n, committed, block; } Text;   /* block 0: no previews */

typedef struct Trial {
    unsigned bits;
    int64_t *order;                  /* [E] or NULL, its own */
    double *nll;                     /* [text n] a row; committed: rows 0..committed-2, of the token after; then the masked rows, of their own */
    double causal, preview;          /* means */
} Trial;

typedef struct Deep {
    const CloverModel *model;
    Text text;
    double *logits;                  /* [COMMIT_PIECE, V] */
    int64_t tried;
    CloverError *err;
} Deep;

static bool is_masked(const Text *t, int64_t row) { return row >= t->committed && (row - t->committed) % 4 != 3; }

/* -ln p(id) of a row of logits [V]. */
static double row_nll(const double *logits, int64_t V, int32_t id) {
    double most = logits[0], sum = 0;
    for (int64_t v = 1; v < V; v++)
        if (logits[v] > most) most = logits[v];
    for (int64_t v = 0; v < V; v++) sum += exp(logits[v] - most);
    return most + log(sum) - logits[id];
}

static CloverStatus run_text(Deep *d, CloverSession *s, bool preview, Trial *trial) {
    const Text *t = &d->text;
    const int64_t V = d->model->config.vocab;
    for (int64_t at = 0; at < t->committed; at += COMMIT_PIECE) {
        const int64_t n = t->committed - at < COMMIT_PIECE ? t->committed - at : COMMIT_PIECE;
        if (clover_commit(s, t->ids + at, n, d->logits, n, d->err) != CLOVER_OK) return d->err->status;
        for (int64_t i = 0; i < n && at + i + 1 < t->committed; i++) trial->nll[at + i] = row_nll(d->logits + i * V, V, t->ids[at + i + 1]);
    }
    for (int64_t at = t->committed; preview && at + t->block <= t->n; at += t->block) {
        int32_t block[MOST_BLOCK];
        for (int64_t i = 0; i < t->block; i++) block[i] = is_masked(t, at + i) ? d->model->config.mask_id : t->ids[at + i];
        if (clover_preview(s, block, t->block, d->logits, d->err) != CLOVER_OK) return d->err->status;
        for (int64_t i = 0; i < t->block; i++)
            if (is_masked(t, at + i)) trial->nll[at + i] = row_nll(d->logits + i * V, V, t->ids[at + i]);
        if (clover_commit(s, t->ids + at, t->block, NULL, 0, d->err) != CLOVER_OK) return d->err->status;
    }
    return CLOVER_OK;
}

static void trial_free(Trial *t) {
    free(t->order);
    free(t->nll);
    *t = (Trial){ 0 };
}

static double mean_of(const Deep *d, const double *nll, bool preview) {
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = preview ? d->text.committed : 0; i < (preview ? d->text.n : d->text.committed - 1); i++)
        if (!preview || is_masked(&d->text, i)) sum += nll[i], n++;
    return n ? sum / (double)n : 0;
}

/* Runs one reading. order: [E] or NULL; copied. preview: the blocks too. */
static CloverStatus run_trial(Deep *d, unsigned bits, const int64_t *order, bool preview, Trial *out) {
    const size_t E = (size_t)d->model->config.experts;
    Trial t = { .bits = bits, .nll = calloc((size_t)d->text.n, sizeof *t.nll), .order = order ? malloc(E * sizeof *order) : NULL };
    CloverSessionOptions o = clover_session_defaults();
    CloverSession *s = NULL;
    Reading reading = { 0 };
    if (!t.nll || (order && !t.order)) error_memory(d->err, "a reading's rows", (size_t)d->text.n * sizeof *t.nll);
    else {
        if (order) memcpy(t.order, order, E * sizeof *order);
        o.numerics = CLOVER_FAST;
        o.capacity = d->text.n;
        if (reading_make(d->model, bits, order, &reading, d->err) == CLOVER_OK &&
            clover_session_new(&reading.model, &o, &s, d->err) == CLOVER_OK) run_text(d, s, preview, &t);
    }
    clover_session_free(s);
    reading_free(&reading);
    if (d->err->status == CLOVER_OK) {
        t.causal = mean_of(d, t.nll, false);
        t.preview = preview ? mean_of(d, t.nll, true) : 0;
        *out = t;
    } else trial_free(&t);
    d->tried++;
    return d->err->status;
}

/* ---- comparing ----------------------------------------------------------------------------------------------------- */

/* By how much a row `better` is likelier than `worse` (both [text n]; worse NULL: chance), and that in standard errors. */
static double lead(const Deep *d, const double *better, const double *worse, bool preview, double *errors) {
    double sum = 0, squares = 0;
    int64_t n = 0;
    for (int64_t i = preview ? d->text.committed : 0; i < (preview ? d->text.n : d->text.committed - 1); i++) {
        if (preview && !is_masked(&d->text, i)) continue;
        const double by = (worse ? worse[i] : log((double)d->model->config.vocab)) - better[i];
        sum += by;
        squares += by * by;
        n++;
    }
    const double mean = n ? sum / (double)n : 0, variance = n > 1 ? (squares - sum * mean) / (double)(n - 1) : 0;
    *errors = variance > 0 ? mean / sqrt(variance / (double)n) : mean > 0 ? HUGE_VAL : 0;
    return mean;
}

static bool is_clear(const Deep *d, const Trial *better, const Trial *worse, bool preview) {
    double errors;
    const double by = lead(d, better->nll, worse ? worse->nll : NULL, preview, &errors);
    return by >= clear_nats && errors >= clear_errors;
}

static bool beats_chance(const Deep *d, const Trial *t, bool preview) { return is_clear(d, t, NULL, preview); }

/* Runs a reading and keeps it in *best when it is likelier. */
static CloverStatus challenge(Deep *d, Trial *best, unsigned bits, const int64_t *order, bool preview) {
    Trial t = { 0 };
    if (run_trial(d, bits, order, preview, &t) == CLOVER_BAD_INPUT) {    /* it overflows: no likely reading */
        error_clear(d->err);
        return CLOVER_OK;
    }
    if (d->err->status != CLOVER_OK) return d->err->status;
    if ((preview ? t.preview < best->preview : t.causal < best->causal)) {
        trial_free(best);
        *best = t;
    } else trial_free(&t);
    return CLOVER_OK;
}

/* ---- searching ----------------------------------------------------------------------------------------------------- */

/* Where expert e stands when the names 0 ... E-1 are sorted as text: 0, 1, 10, 11, ..., 2. */
static int64_t place_as_text(int64_t e, int64_t E) {
    char own[24], other[24];
    int64_t place = 0;
    snprintf(own, sizeof own, "%lld", (long long)e);
    for (int64_t i = 0; i < E; i++) {
        snprintf(other, sizeof other, "%lld", (long long)i);
        place += strcmp(other, own) < 0;
    }
    return place;
}

void deep_order(int kind, int64_t E, int64_t *order) {
    for (int64_t e = 0; e < E; e++)
        order[e] = kind == 0 ? place_as_text(e, E) : kind == 1 ? E - 1 - e : kind == 2 ? (e + 1) % E : (e + E - 1) % E;
}

static CloverStatus try_known_orders(Deep *d, Trial *best, unsigned bits) {
    const int64_t E = d->model->config.experts;
    int64_t *order = malloc((size_t)E * sizeof *order);
    if (!order) return error_memory(d->err, "an order of experts", (size_t)E * sizeof *order);
    for (int kind = E > 10 ? 0 : 1; kind < (E > 2 ? DEEP_ORDERS : E > 1 ? 2 : 0) && d->err->status == CLOVER_OK; kind++) {
        deep_order(kind, E, order);
        challenge(d, best, bits, order, false);
    }
    free(order);
    return d->err->status;
}

/* Few experts: exchange any two while that helps. */
static CloverStatus try_exchanges(Deep *d, Trial *best) {
    const int64_t E = d->model->config.experts;
    int64_t order[MOST_MOVED];
    if (E > MOST_MOVED || E < 2) return CLOVER_OK;
    for (bool better = true; better && d->err->status == CLOVER_OK; ) {
        int64_t start[MOST_MOVED];
        const double before = best->causal;
        for (int64_t e = 0; e < E; e++) start[e] = best->order ? best->order[e] : e;
        const unsigned bits = best->bits;
        for (int64_t a = 0; a < E; a++)
            for (int64_t b = a + 1; b < E && d->err->status == CLOVER_OK; b++) {
                memcpy(order, start, sizeof order);
                order[a] = start[b];
                order[b] = start[a];
                challenge(d, best, bits, order, false);
            }
        better = best->causal < before - 1e-9;
    }
    return d->err->status;
}

static int64_t *copy_order(Deep *d, const Trial *t) {
    const size_t bytes = (size_t)d->model->config.experts * sizeof *t->order;
    int64_t *copy = malloc(bytes);
    if (copy) memcpy(copy, t->order, bytes);
    else error_memory(d->err, "an order of experts", bytes);
    return copy;
}

/* From the best so far, one change at a time while that helps. */
static CloverStatus climb(Deep *d, Trial *best, unsigned possible) {
    for (bool better = true; better && d->err->status == CLOVER_OK; ) {
        const unsigned from = best->bits;
        const double before = best->causal;
        int64_t *order = best->order ? copy_order(d, best) : NULL;
        for (unsigned bit = 1; bit < READ_DIFFUSION && d->err->status == CLOVER_OK; bit *= 2)
            if (possible & bit) challenge(d, best, from ^ bit, order, false);
        if (!order && d->err->status == CLOVER_OK) try_known_orders(d, best, from);
        better = best->causal < before - 1e-9;
        free(order);
    }
    return d->err->status;
}

/* The likeliest reading of the trunk: each change alone, then on top of the best; where none is better than chance, all
 * combinations; then the experts' order, and once more what stands beside it. */
static CloverStatus search_trunk(Deep *d, Trial *best) {
    const unsigned possible = reading_possible(d->model) & ~(unsigned)READ_DIFFUSION;
    climb(d, best, possible);
    if (d->err->status == CLOVER_OK && !beats_chance(d, best, false))
        for (unsigned bits = 0; bits < READ_DIFFUSION && d->err->status == CLOVER_OK; bits++)
            if ((bits & ~possible) == 0 && bits & (bits - 1)) challenge(d, best, bits, NULL, false);      /* two or more */
    const double before = best->causal;
    if (d->err->status == CLOVER_OK) try_exchanges(d, best);
    if (d->err->status == CLOVER_OK && best->causal < before - 1e-9) climb(d, best, possible);
    return d->err->status;
}

/* ---- telling ------------------------------------------------------------------------------------------------------- */

static const struct { unsigned bit; LintId id; const char *roles[10]; } names[] = {
    { READ_HEADS, HEAD_ORDER, { "linear_attn.in_proj_qkv.weight", "linear_attn.in_proj_z.weight", "linear_attn.in_proj_b.weight",
                                "linear_attn.in_proj_a.weight", "linear_attn.conv1d.weight",
                                "linear_attn.dt_bias", "linear_attn.A_log", "linear_attn.out_proj.weight" } },
    { READ_Q_GATE, Q_GATE_FLAT, { "self_attn.q_proj.weight" } },
    { READ_CONV, CONV_REVERSED, { "linear_attn.conv1d.weight" } },
    { READ_GATE_UP, GATE_UP_SWAPPED, { "mlp.experts.gate_up_proj" } },
    { READ_SHARED, GATE_UP_SWAPPED, { "mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight" } },
    { READ_DIFFUSION, DIFFUSION_HEAD_ORDER, { "linear_attn.conv_right_weight", "linear_attn.bd_softmax_logit_scale",
                                              "linear_attn.bd_softmax_history_bias", "linear_attn.bd_softmax_history_c" } },
    { 0, EXPERT_ORDER, { "mlp.experts.gate_up_proj", "mlp.experts.down_proj" } },
};

static int64_t masked_rows(const Text *t) {
    int64_t n = 0;
    for (int64_t i = t->committed; i < t->n; i++) n += is_masked(t, i);
    return n;
}

static void tell(const Deep *d, Report *r, size_t which, const Trial *with, const Trial *without, bool preview) {
    double errors;
    const LintId id = names[which].id;
    const int hurts = id == DIFFUSION_HEAD_ORDER ? PREVIEWS | CLOVER : d->model->gguf ? LLAMA_CPP | CLOVER : CLOVER | TRANSFORMERS;
    const double by = lead(d, with->nll, without->nll, preview, &errors);
    report_add(r, id, GARBAGE, hurts, NULL,
               "read so, a row of text costs %.4g nats, else %.4g: %.3g fewer, %.3g standard errors (%lld %s rows; chance costs %.4g)", preview
                       ? with->preview : with->causal,
               preview ? without->preview : without->causal, by, errors, (long long)(preview ? masked_rows(&d->text) : d->text.committed - 1),
                       preview ? "masked" : "committed",
               log((double)d->model->config.vocab));
    for (int64_t i = 0; i < d->model->tensors.n; i++) {
        const char *name = d->model->tensors.tensor[i].name, *role = weights_role(name, d->model->gguf ? NAMES_GGUF : NAMES_HF);
        for (int k = 0; role && k < 10 && names[which].roles[k]; k++)
            if (strcmp(role, names[which].roles[k]) == 0) report_tensor(r, id, GARBAGE, hurts, name);
    }
}

/* Each part of the best reading is held against the best without it; only what clearly matters is called. */
static CloverStatus call_winners(Deep *d, Report *r, const Trial *best, bool preview) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const bool order = names[i].bit == 0;
        Trial without = { 0 };
        if ((names[i].bit == READ_DIFFUSION) != preview || (order ? !best->order : !(best->bits & names[i].bit))) continue;
        if (run_trial(d, best->bits & ~names[i].bit, order ? NULL : best->order, preview, &without) != CLOVER_OK) return d->err->status;
        if (is_clear(d, best, &without, preview)) tell(d, r, i, best, &without, preview);
        trial_free(&without);
    }
    return CLOVER_OK;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

static CloverStatus choose_text(Deep *d, const DeepOptions *o, Report *r) {
    const CloverConfig *c = &d->model->config;
    Text *t = &d->text;
    CloverError preview_error;
    if (o->ids) {
        t->ids = malloc((size_t)o->n_ids * sizeof *t->ids);
        if (!t->ids) return error_memory(d->err, "the text's ids", (size_t)o->n_ids * sizeof *t->ids);
        memcpy(t->ids, o->ids, (size_t)o->n_ids * sizeof *t->ids);
        t->n = o->n_ids;
    } else if (d->model->tokenizer) {
        if (clover_encode(d->model->tokenizer, o->text ? o->text : sentences, o->text ? o->length : strlen(sentences), false, &t->ids, &t->n,
                          d->err) != CLOVER_OK) return d->err->status;
    } else {
        report_remark(r, "deep: undecidable: the model has no tokenizer; give a text as --ids");
        return CLOVER_OK;
    }
    for (int64_t i = 0; i < t->n; i++)
        if (t->ids[i] < 0 || t->ids[i] >= c->vocab)
            return error_set(d->err, CLOVER_USAGE, "--ids: %d is no id of this model (0 to %lld)", t->ids[i], (long long)c->vocab - 1);
    if (t->n > o->rows) t->n = o->rows;
    if (t->n > c->context) t->n = c->context;
    if (t->n < LEAST_ROWS) {
        report_remark(r, "deep: undecidable: %lld rows of text, at least %d are needed", (long long)t->n, LEAST_ROWS);
        t->n = 0;
        return CLOVER_OK;
    }
    const bool previews = clover_model_can_preview(d->model, &preview_error) == CLOVER_OK;
    t->block = !previews ? 0 : c->block < MOST_BLOCK ? c->block : MOST_BLOCK;
    t->committed = previews ? t->n - t->n / 2 / t->block * t->block : t->n;
    if (t->committed == t->n) t->block = 0;
    return CLOVER_OK;
}

/* The order of the diffusion tensors' heads, the trunk being read as in *best. */
static CloverStatus decide_diffusion(Deep *d, Report *r, Trial *best) {
    Trial whole = { 0 };
    if (run_trial(d, best->bits, best->order, true, &whole) != CLOVER_OK) return d->err->status;
    const double as_said = whole.preview;
    if (challenge(d, &whole, best->bits ^ READ_DIFFUSION, best->order, true) == CLOVER_OK) {
        if (beats_chance(d, &whole, true)) call_winners(d, r, &whole, true);
        else
            report_remark(r, "deep: diffusion-head-order is undecidable: in neither order is a masked row better than chance "
                             "(%.4g nats as the file says, ln V is %.4g)", as_said, log((double)d->model->config.vocab));
    }
    trial_free(&whole);
    return d->err->status;
}

static CloverStatus decide(Deep *d, Report *r) {
    Trial best = { 0 };
    const double chance = log((double)d->model->config.vocab);
    if (run_trial(d, 0, NULL, false, &best) != CLOVER_OK) return d->err->status;
    const double causal = best.causal;
    CloverStatus status = search_trunk(d, &best);
    const bool trunk = status == CLOVER_OK && beats_chance(d, &best, false);
    if (trunk) status = call_winners(d, r, &best, false);
    if (status == CLOVER_OK && !trunk)
        report_remark(r,
                      "deep: undecidable: of %lld readings none is better than chance (a row of text costs %.4g nats as the file says, "
                      "%.4g in the best reading, ln V is %.4g): untrained weights, or a text that is not the model's",
                      (long long)d->tried, causal, best.causal, chance);
    if (status == CLOVER_OK && trunk && d->text.block > 0 && (reading_possible(d->model) & READ_DIFFUSION)) status = decide_diffusion(d, r, &best);
    if (status == CLOVER_OK && trunk)
        report_remark(r,
                      "deep: %lld readings tried on %lld rows; a committed row costs %.4g nats as the file says, %.4g in the best reading "
                      "(ln V is %.4g)", (long long)d->tried, (long long)d->text.n, causal, best.causal, chance);
    trial_free(&best);
    return status;
}

CloverStatus lint_deep(const char *path, const DeepOptions *o, Report *r, CloverError *err) {
    CloverOpenOptions open = clover_open_defaults();
    CloverModel *model = NULL;
    open.drifts = CLOVER_MEND;                                   /* what the values show is mended first */
    error_clear(err);
    if (clover_model_open(path, &open, &model, err) != CLOVER_OK) {
        if (err->status == CLOVER_SYSTEM) return err->status;
        report_remark(r, "deep: nothing was tried, the model does not open: %.*s", (int)strcspn(err->text, "\n"), err->text);
        error_clear(err);
        return CLOVER_OK;
    }
    Deep d = { .model = model, .err = err };
    CloverStatus status = choose_text(&d, o, r);
    if (status == CLOVER_OK && d.text.n > 0) {
        const size_t bytes = COMMIT_PIECE * (size_t)model->config.vocab * sizeof *d.logits;
        d.logits = malloc(bytes);
        status = d.logits ? decide(&d, r) : error_memory(err, "logits", bytes);
        if (status == CLOVER_BAD_INPUT || status == CLOVER_UNSUPPORTED) {   /* a NaN, or a type that cannot be decoded */
            report_remark(r, "deep: undecidable: the model cannot be run: %.*s", (int)strcspn(err->text, "\n"), err->text);
            error_clear(err);
            status = CLOVER_OK;
        }
    }
    free(d.logits);
    free(d.text.ids);
    clover_model_close(model);
    return status;
}
