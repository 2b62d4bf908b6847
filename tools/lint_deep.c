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

/* What a model that answers knows best: counting, copying, capitals. Of an exchange only the answer is judged. */
static const struct { const char *question, *answer; } exchanges[] = {
    { "Count from 1 to 20.", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20" },
    { "List the capitals of France, Germany, Italy and Japan.", "France: Paris\nGermany: Berlin\nItaly: Rome\nJapan: Tokyo" },
    { "Repeat after me:\nwater house stone bread green river apple", "water house stone bread green river apple" },
    { "Say hello 10 times.", "hello hello hello hello hello hello hello hello hello hello" },
    { "What is the capital of Spain?", "The capital of Spain is Madrid." },
    { "Spell the word garden.", "g-a-r-d-e-n" },
    { "Count down from 12 to 1.", "12 11 10 9 8 7 6 5 4 3 2 1" },
    { "What is the capital of Egypt?", "The capital of Egypt is Cairo." },
    { "Count from 30 to 45.", "30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45" },
    { "Repeat after me:\nthe small dog ran over the cold hill", "the small dog ran over the cold hill" },
    { "List the capitals of Spain, Portugal, Greece and Norway.", "Spain: Madrid\nPortugal: Lisbon\nGreece: Athens\nNorway: Oslo" },
    { "Say tree 8 times.", "tree tree tree tree tree tree tree tree" },
    { "Spell the word window.", "w-i-n-d-o-w" },
    { "What is the capital of Japan?", "The capital of Japan is Tokyo." },
    { "Sort 7 2 9 4 1", "1 2 4 7 9" },
    { "What is the opposite of hot?", "The opposite of hot is cold." },
};
enum { EXCHANGES = sizeof exchanges / sizeof *exchanges };

enum { COMMIT_PIECE = 16, MOST_BLOCK = 32, TEXT_BLOCK = 16, LEAST_ROWS = 16, MOST_MOVED = 8 };
static const double clear_errors = 4;                            /* a winner is clear at so many standard errors ... */
static const double clear_nats = 0.05;                           /* ... and so much a row */

/* ---- running a reading --------------------------------------------------------------------------------------------- */

/* Rows that are run from an empty state: the first `given` are committed and not judged, then the others are committed, or
 * previewed as a block with three of four masked (and filled up with masks to `block` rows). */
typedef struct Piece { int32_t *ids; int64_t given, n, block; } Piece;
enum { MOST_PIECES = EXCHANGES };
typedef struct Text { Piece piece[MOST_PIECES]; int64_t n, judged; } Text;

typedef struct Trial {
    unsigned bits;
    int64_t *order;                  /* [E] or NULL, its own */
    double *nll;                     /* [judged] */
    double mean;
} Trial;

typedef struct Deep {
    const CloverModel *model;
    Text text[2];                    /* committed rows, for the trunk; blocks, for the diffusion tensors */
    double *logits;                  /* [MOST_BLOCK, V] */
    int64_t tried;
    CloverError *err;
} Deep;

static bool is_masked(int64_t row_of_block) { return row_of_block % 4 != 3; }

/* -ln p(id) of a row of logits [V]. */
static double row_nll(const double *logits, int64_t V, int32_t id) {
    double most = logits[0], sum = 0;
    for (int64_t v = 1; v < V; v++)
        if (logits[v] > most) most = logits[v];
    for (int64_t v = 0; v < V; v++) sum += exp(logits[v] - most);
    return most + log(sum) - logits[id];
}

/* Judges the committed rows of a piece: each token by the row before it. */
static CloverStatus run_committed(Deep *d, CloverSession *s, const Piece *p, double *nll) {
    const int64_t V = d->model->config.vocab;
    for (int64_t at = 0; at < p->n - 1; at += COMMIT_PIECE) {
        const int64_t n = p->n - 1 - at < COMMIT_PIECE ? p->n - 1 - at : COMMIT_PIECE;
        if (clover_commit(s, p->ids + at, n, d->logits, n, d->err) != CLOVER_OK) return d->err->status;
        for (int64_t i = 0; i < n; i++)
            if (at + i + 1 >= p->given) *nll++ = row_nll(d->logits + i * V, V, p->ids[at + i + 1]);
    }
    return CLOVER_OK;
}

static CloverStatus run_block(Deep *d, CloverSession *s, const Piece *p, double *nll) {
    const int64_t V = d->model->config.vocab;
    int32_t block[MOST_BLOCK];
    for (int64_t i = 0; i < p->block; i++) block[i] = p->given + i < p->n && !is_masked(i) ? p->ids[p->given + i] : d->model->config.mask_id;
    if (clover_commit(s, p->ids, p->given, NULL, 0, d->err) != CLOVER_OK) return d->err->status;
    if (clover_preview(s, block, p->block, d->logits, d->err) != CLOVER_OK) return d->err->status;
    for (int64_t i = 0; p->given + i < p->n; i++)
        if (is_masked(i)) *nll++ = row_nll(d->logits + i * V, V, p->ids[p->given + i]);
    return CLOVER_OK;
}

static int64_t judged(const Piece *p) {
    int64_t masked = 0;
    for (int64_t i = 0; p->block > 0 && p->given + i < p->n; i++) masked += is_masked(i);
    return p->block > 0 ? masked : p->n - p->given;
}

static CloverStatus run_text(Deep *d, CloverSession *s, const Text *t, double *nll) {
    for (int64_t i = 0; i < t->n && d->err->status == CLOVER_OK; i++) {
        const Piece *p = &t->piece[i];
        clover_session_reset(s);
        if (p->block > 0) run_block(d, s, p, nll);
        else run_committed(d, s, p, nll);
        nll += judged(p);
    }
    return d->err->status;
}

static void trial_free(Trial *t) {
    free(t->order);
    free(t->nll);
    *t = (Trial){ 0 };
}

static double mean_of(const double *nll, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += nll[i];
    return n ? sum / (double)n : 0;
}

/* Runs one reading. order: [E] or NULL; copied. preview: the blocks, else the committed rows. */
static CloverStatus run_trial(Deep *d, unsigned bits, const int64_t *order, bool preview, Trial *out) {
    const size_t E = (size_t)d->model->config.experts;
    const Text *text = &d->text[preview];
    int64_t rows = 0;
    for (int64_t i = 0; i < text->n; i++) rows = text->piece[i].n > rows ? text->piece[i].n : rows;
    Trial t = { .bits = bits, .nll = calloc((size_t)text->judged, sizeof *t.nll), .order = order ? malloc(E * sizeof *order) : NULL };
    CloverSessionOptions o = clover_session_defaults();
    CloverSession *s = NULL;
    Reading reading = { 0 };
    if (!t.nll || (order && !t.order)) error_memory(d->err, "a reading's rows", (size_t)text->judged * sizeof *t.nll);
    else {
        if (order) memcpy(t.order, order, E * sizeof *order);
        o.numerics = CLOVER_FAST;
        o.capacity = rows;
        if (reading_make(d->model, bits, order, &reading, d->err) == CLOVER_OK &&
            clover_session_new(&reading.model, &o, &s, d->err) == CLOVER_OK) run_text(d, s, text, t.nll);
    }
    clover_session_free(s);
    reading_free(&reading);
    if (d->err->status == CLOVER_OK) {
        t.mean = mean_of(t.nll, text->judged);
        *out = t;
    } else trial_free(&t);
    d->tried++;
    return d->err->status;
}

/* ---- comparing ----------------------------------------------------------------------------------------------------- */

/* By how much a row `better` is likelier than `worse` (both [judged]; worse NULL: chance), and that in standard errors. */
static double lead(const Deep *d, const double *better, const double *worse, bool preview, double *errors) {
    double sum = 0, squares = 0;
    const int64_t n = d->text[preview].judged;
    for (int64_t i = 0; i < n; i++) {
        const double by = (worse ? worse[i] : log((double)d->model->config.vocab)) - better[i];
        sum += by;
        squares += by * by;
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
    if (t.mean < best->mean) {
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
        const double before = best->mean;
        for (int64_t e = 0; e < E; e++) start[e] = best->order ? best->order[e] : e;
        const unsigned bits = best->bits;
        for (int64_t a = 0; a < E; a++)
            for (int64_t b = a + 1; b < E && d->err->status == CLOVER_OK; b++) {
                memcpy(order, start, sizeof order);
                order[a] = start[b];
                order[b] = start[a];
                challenge(d, best, bits, order, false);
            }
        better = best->mean < before - 1e-9;
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
        const double before = best->mean;
        int64_t *order = best->order ? copy_order(d, best) : NULL;
        for (unsigned bit = 1; bit < READ_DIFFUSION && d->err->status == CLOVER_OK; bit *= 2)
            if (possible & bit) challenge(d, best, from ^ bit, order, false);
        if (!order && d->err->status == CLOVER_OK) try_known_orders(d, best, from);
        better = best->mean < before - 1e-9;
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
    const double before = best->mean;
    if (d->err->status == CLOVER_OK) try_exchanges(d, best);
    if (d->err->status == CLOVER_OK && best->mean < before - 1e-9) climb(d, best, possible);
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

static void tell(const Deep *d, Report *r, size_t which, const Trial *with, const Trial *without, bool preview) {
    double errors;
    const LintId id = names[which].id;
    const int hurts = id == DIFFUSION_HEAD_ORDER ? PREVIEWS | CLOVER : d->model->gguf ? LLAMA_CPP | CLOVER : CLOVER | TRANSFORMERS;
    const double by = lead(d, with->nll, without->nll, preview, &errors);
    report_add(r, id, GARBAGE, hurts, NULL, "read so, a row of text costs %.4g nats, else %.4g: %.3g fewer, %.3g standard errors "
               "(%lld %s rows; chance costs %.4g)", with->mean, without->mean, by, errors, (long long)d->text[preview].judged,
               preview ? "masked" : "committed", log((double)d->model->config.vocab));
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

static void add_piece(Text *t, const int32_t *ids, int64_t given, int64_t n, int64_t block, CloverError *err) {
    if (n <= given || t->n == MOST_PIECES) return;
    Piece *p = &t->piece[t->n];
    *p = (Piece){ malloc((size_t)n * sizeof *p->ids), given, n, block };
    if (!p->ids) {
        error_memory(err, "the text's ids", (size_t)n * sizeof *p->ids);
        return;
    }
    memcpy(p->ids, ids, (size_t)n * sizeof *p->ids);
    t->n++;
    t->judged += judged(p);
}

/* A text of the caller's: its first half is committed and judged from the second row on, the rest cut into blocks. */
static void cut_text(Deep *d, const int32_t *ids, int64_t n, int64_t block) {
    const int64_t each = block < TEXT_BLOCK ? block : TEXT_BLOCK;
    const int64_t committed = block > 0 ? n - n / 2 / each * each : n;
    add_piece(&d->text[0], ids, 1, committed, 0, d->err);
    for (int64_t at = committed; block > 0 && at + each <= n; at += each) add_piece(&d->text[1], ids, at, at + each, each, d->err);
}

/* Questions and answers, each on its own, in the chat's form with the thinking closed. */
static CloverStatus ask_and_answer(Deep *d, int64_t rows, int64_t block) {
    for (int64_t i = 0, used = 0; i < EXCHANGES && used < rows && d->err->status == CLOVER_OK; i++) {
        const CloverMessage turn = { "user", exchanges[i].question };
        char *prompt = NULL, *whole = NULL;
        int32_t *ids = NULL, *given = NULL;
        int64_t n, n_given;
        if (clover_chat_text(&turn, 1, false, &prompt, d->err) == CLOVER_OK &&
            (whole = text_format(d->err, "%s%s<|im_end|>", prompt, exchanges[i].answer)) &&
            clover_encode(d->model->tokenizer, prompt, strlen(prompt), true, &given, &n_given, d->err) == CLOVER_OK &&
            clover_encode(d->model->tokenizer, whole, strlen(whole), true, &ids, &n, d->err) == CLOVER_OK && n > n_given &&
                    n <= d->model->config.context) {
            add_piece(&d->text[0], ids, n_given, n, 0, d->err);
            if (block > 0 && d->err->status == CLOVER_OK) add_piece(&d->text[1], ids, n_given, n - n_given < block ? n : n_given + block, block,
                                                                    d->err);
            used += n;
        }
        free(prompt);
        free(whole);
        free(ids);
        free(given);
    }
    return d->err->status;
}

/* What is read: the caller's text, or questions and answers. False (and a remark): there is too little. */
static bool choose_text(Deep *d, const DeepOptions *o, Report *r) {
    const CloverConfig *c = &d->model->config;
    CloverError no_preview;
    const bool previews = clover_model_can_preview(d->model, &no_preview) == CLOVER_OK;
    const int64_t block = !previews ? 0 : c->block < MOST_BLOCK ? c->block : MOST_BLOCK;
    int32_t *ids = NULL;
    int64_t n = o->n_ids;
    if (!o->ids && !d->model->tokenizer) {
        report_remark(r, "deep: undecidable: the model has no tokenizer; give a text as --ids");
        return false;
    }
    for (int64_t i = 0; o->ids && i < n; i++)
        if (o->ids[i] < 0 || o->ids[i] >= c->vocab) {
            error_set(d->err, CLOVER_USAGE, "--ids: %d is no id of this model (0 to %lld)", o->ids[i], (long long)c->vocab - 1);
            return false;
        }
    if (!o->ids && !o->text) ask_and_answer(d, o->rows, block);
    else if (o->ids || clover_encode(d->model->tokenizer, o->text, o->length, false, &ids, &n, d->err) == CLOVER_OK) {
        if (n > o->rows) n = o->rows;
        if (n > c->context) n = c->context;
        cut_text(d, o->ids ? o->ids : ids, n, n >= LEAST_ROWS ? block : 0);
    }
    free(ids);
    if (d->err->status != CLOVER_OK) return false;
    const int64_t rows = o->ids || o->text ? n : d->text[0].judged;
    if (rows >= LEAST_ROWS) return true;
    report_remark(r, "deep: undecidable: %lld rows of text, at least %d are needed", (long long)rows, LEAST_ROWS);
    return false;
}

/* The order of the diffusion tensors' heads, the trunk being read as in *best. */
static CloverStatus decide_diffusion(Deep *d, Report *r, Trial *best) {
    Trial whole = { 0 };
    if (run_trial(d, best->bits, best->order, true, &whole) != CLOVER_OK) return d->err->status;
    const double as_said = whole.mean;
    if (challenge(d, &whole, best->bits ^ READ_DIFFUSION, best->order, true) == CLOVER_OK) {
        if (beats_chance(d, &whole, true)) call_winners(d, r, &whole, true);
        else
            report_remark(r, "deep: diffusion-head-order is undecidable: in neither order is a masked row better than chance "
                             "(%.4g nats as the file says, ln V is %.4g)", as_said, log((double)d->model->config.vocab));
        report_remark(r, "deep: of %lld masked rows one costs %.4g nats as the file says, %.4g in the likelier order of the diffusion tensors' heads",
                      (long long)d->text[1].judged, as_said, whole.mean);
    }
    trial_free(&whole);
    return d->err->status;
}

static CloverStatus decide(Deep *d, Report *r) {
    Trial best = { 0 };
    const double chance = log((double)d->model->config.vocab);
    if (run_trial(d, 0, NULL, false, &best) != CLOVER_OK) return d->err->status;
    const double causal = best.mean;
    CloverStatus status = search_trunk(d, &best);
    const bool trunk = status == CLOVER_OK && beats_chance(d, &best, false);
    if (trunk) status = call_winners(d, r, &best, false);
    if (status == CLOVER_OK && !trunk)
        report_remark(r,
                      "deep: undecidable: of %lld readings none is better than chance (a row of text costs %.4g nats as the file says, "
                      "%.4g in the best reading, ln V is %.4g): untrained weights, or a text that is not the model's",
                      (long long)d->tried, causal, best.mean, chance);
    if (status == CLOVER_OK && trunk && d->text[1].judged > 0 && (reading_possible(d->model) & READ_DIFFUSION)) status = decide_diffusion(d, r,
            &best);
    if (status == CLOVER_OK && trunk)
        report_remark(r,
                      "deep: %lld readings tried; of %lld committed rows one costs %.4g nats as the file says, %.4g in the best reading "
                      "(ln V is %.4g)", (long long)d->tried, (long long)d->text[0].judged, causal, best.mean, chance);
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
    CloverStatus status = CLOVER_OK;
    if (choose_text(&d, o, r)) {
        const size_t bytes = MOST_BLOCK * (size_t)model->config.vocab * sizeof *d.logits;
        d.logits = malloc(bytes);
        status = d.logits ? decide(&d, r) : error_memory(err, "logits", bytes);
        if (status == CLOVER_BAD_INPUT || status == CLOVER_UNSUPPORTED) {   /* a NaN, or a type that cannot be decoded */
            report_remark(r, "deep: undecidable: the model cannot be run: %.*s", (int)strcspn(err->text, "\n"), err->text);
            error_clear(err);
            status = CLOVER_OK;
        }
    } else status = err->status;
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < d.text[i].n; k++) free(d.text[i].piece[k].ids);
    free(d.logits);
    clover_model_close(model);
    return status;
}
