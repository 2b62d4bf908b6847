/* diff_choice.c - choices in a diff: the experts of a row, the experts that a block keeps. [DIF-4]
 *
 * A choice differs or it does not, but two probabilities that lie within the profile's error of each other may be
 * ordered either way: a near tie. It is counted, the dump's choice is followed, and the rest is judged given it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "diff_parts.h"

static const CloverConfig *config(const Pass *p) { return &p->d->model->config; }

/* ---- what a layer's later stages are judged with ------------------------------------------------------------------- */

static void set(Pass *p, double **slot, const double *data, int64_t n) {
    free(*slot);
    *slot = malloc((size_t)n * sizeof **slot + 1);
    if (*slot) memcpy(*slot, data, (size_t)n * sizeof **slot);
    else error_memory(p->d->err, "a layer's choices", (size_t)n * sizeof **slot);
}

void choice_forget(Pass *p) {
    free(p->x), free(p->probs), free(p->own_probs), free(p->coreset), free(p->ids), free(p->own_ids);
    p->x = p->probs = p->own_probs = p->coreset = p->ids = p->own_ids = NULL;
    p->followed = p->hidden = false;
}

void choice_remember(Pass *p, const char *stage, const double *data, const int64_t *shape, int64_t n) {
    if (strcmp(stage, "ffn_norm") == 0) {
        choice_forget(p);   /* a new layer's */
        p->T = shape[0];
        set(p, &p->x, data, n);
    } else if (strcmp(stage, "moe.probs") == 0) set(p, &p->probs, data, n);
    else if (strcmp(stage, "moe.coreset") == 0) set(p, &p->coreset, data, n);
    else if (strcmp(stage, "moe.ids") == 0) {
        set(p, &p->ids, data, n);
        p->k = shape[1];
    }
}

/* The router's probabilities and the rule's ids before the dump's take their place: what is wrong in those makes no near ties. */
void choice_own(Pass *p, const char *stage, const double *data, int64_t n) {
    if (strcmp(stage, "moe.probs") == 0) set(p, &p->own_probs, data, n);
    else if (strcmp(stage, "moe.ids") == 0) set(p, &p->own_ids, data, n);
}

static bool is_id(const Pass *p, double x) { return x >= 0 && x < (double)config(p)->experts && x == floor(x); }

bool choice_valid(const Pass *p, const char *stage, const double *values, int64_t n) {
    const bool ids = strcmp(stage, "moe.ids") == 0, coreset = strcmp(stage, "moe.coreset") == 0;
    double kept = 0;
    for (int64_t i = 0; i < n; i++) {
        if (ids ? !is_id(p, values[i]) : coreset && values[i] != 0 && values[i] != 1) return false;
        kept += values[i];
    }
    return !coreset || kept > 0;
}

/* Weights of one row's k experts. [MOE-2] */
static void row_weights(const Pass *p, int64_t t, const double *ids, double *weights) {
    const double *probs = p->probs + t * config(p)->experts;
    double sum = 0;
    for (int64_t i = 0; i < p->k; i++) sum += probs[(int64_t)ids[i]];
    for (int64_t i = 0; i < p->k; i++) weights[i] = round_to(p->session->run.storage, probs[(int64_t)ids[i]] / sum);
}

/* Where the rule chose the same experts in another order, its own weights in that order; else what the right rule gives those ids. */
static bool reorder(const double *own_ids, const double *ids, int64_t k, double *weights) {
    double own[64];
    if (k > 64) return false;
    memcpy(own, weights, (size_t)k * sizeof *own);
    for (int64_t i = 0; i < k; i++) {
        int64_t at = 0;
        while (at < k && own_ids[at] != ids[i]) at++;
        if (at == k) {
            memcpy(weights, own, (size_t)k * sizeof *own);
            return false;
        }
        weights[i] = own[at];
    }
    return true;
}

void choice_weights(const Pass *p, double *weights) {
    for (int64_t t = 0; t < p->T; t++)
        if (!p->own_ids || !reorder(p->own_ids + t * p->k, p->ids + t * p->k, p->k, weights + t * p->k)) row_weights(p, t, p->ids + t * p->k, weights + t * p->k);
}

/* Passes 2 and 3 go on with the choices that pass 1 went on with, where the dump shows them or what came of them: else a near tie would
 * pass for the profile's rounding. */
void choice_keep(Pass *p, const double *values, int64_t n, bool shown) {
    DiffRun *d = p->d;
    if (d->n_chosen + n > d->room_chosen) {
        const int64_t room = 2 * (d->n_chosen + n);
        double *grown = realloc(d->chosen, (size_t)room * sizeof *grown);
        if (!grown) {
            error_memory(d->err, "the choices", (size_t)room * sizeof *grown);
            return;
        }
        d->chosen = grown;
        d->room_chosen = room;
    }
    memcpy(d->chosen + d->n_chosen, values, (size_t)n * sizeof *values);
    if (!shown && n > 0) d->chosen[d->n_chosen] = (double)NAN;   /* any: flips that nothing shows belong to the profile's error */
    d->n_chosen += n;
}

void choice_take(Pass *p, double *values, int64_t n) {
    if (p->next_chosen + n > p->d->n_chosen) return;   /* pass 1 broke off before */
    if (!isnan(p->d->chosen[p->next_chosen])) memcpy(values, p->d->chosen + p->next_chosen, (size_t)n * sizeof *values);
    p->next_chosen += n;
}

/* ---- near ties ----------------------------------------------------------------------------------------------------- */

/* How far rounding may move one of the router's probabilities: twice what the profile moves the worst of them by, where
 * the dump has them; else a stated share of the probability, since they follow from what stands further back. */
static double router_error(const Pass *p, int64_t layer, double probability) {
    const DiffResult *r = p->d->result;
    for (int64_t i = p->next - 1; p->kind == PASS_PROFILE && i >= 0 && p->next - i <= 4; i--)
        if (r->probe[i].step_index == p->step_index && r->probe[i].layer == layer && strcmp(stage_of(r->probe[i].probe), "moe.probs") == 0) return 2 * r->probe[i].floor_max;
    return probability * fmax(p->d->options->profile == CLOVER_F32 ? 0x1p-12 : 0x1p-4, 16 * storage_unit(p->type));
}

static bool contains(const double *ids, int64_t k, double id) {
    for (int64_t i = 0; i < k; i++)
        if (ids[i] == id) return true;
    return false;
}

static bool repeats(const double *ids, int64_t k) {
    for (int64_t i = 1; i < k; i++)
        if (contains(ids, i, ids[i])) return true;
    return false;
}

/* A row's ids as a set: their order is the engine's own. Those of the computed ones that the dump lacks are flips, near ties when
 * no probability that was left out exceeds one that was taken by more than the error. */
static void judge_ids(const Pass *p, ProbeResult *r, const double *dump, const double *computed) {
    const int64_t E = config(p)->experts, k = p->k;
    for (int64_t t = 0; t < r->shape[0]; t++) {
        const double *mine = computed + t * k, *theirs = dump + t * k, *probs = p->own_probs + t * E;
        double lost = 0, won = 2;   /* the largest probability left out, the smallest put in its place */
        int64_t off = 0;
        bool sound = !repeats(theirs, k);
        for (int64_t i = 0; i < k; i++) {
            if (!contains(theirs, k, mine[i])) {
                off++;
                lost = fmax(lost, probs[(int64_t)mine[i]]);
            }
            if (contains(mine, k, theirs[i])) continue;
            if (!is_id(p, theirs[i]) || (p->coreset && p->coreset[(int64_t)theirs[i]] == 0)) sound = false;   /* not to be had, however probable */
            else won = fmin(won, probs[(int64_t)theirs[i]]);
        }
        r->choices += k;
        r->flips += off;
        if (sound && lost - won <= router_error(p, r->layer, lost) + router_error(p, r->layer, won)) r->near_ties += off;
    }
}

static bool ranks_before(const double *p, int64_t a, int64_t b) { return p[a] > p[b] || (p[a] == p[b] && a < b); }

/* Every expert's votes [E], and how much of them all hangs on near ties within rows. [COR-2] */
static double count_votes(const Pass *p, int64_t layer, double *votes) {
    const int64_t E = config(p)->experts, k = config(p)->experts_used;
    double loose = 0;
    for (int64_t t = 0; t < p->T; t++) {
        const double *probs = p->own_probs + t * E;
        double in = 2, out = 0;   /* the smallest probability that votes, the largest that does not */
        for (int64_t e = 0; e < E; e++) {
            int64_t before = 0;
            for (int64_t f = 0; f < E; f++) before += ranks_before(probs, f, e);
            if (before < k) {
                votes[e] += probs[e];
                in = fmin(in, probs[e]);
            } else out = fmax(out, probs[e]);
        }
        if (in - out <= router_error(p, layer, in) + router_error(p, layer, out)) loose += in;
    }
    return loose;
}

/* An expert that only one of the two keeps is a near tie when the share before it is the bound, within the error, or when it
 * changed places with one whose share is the same, within the error. [COR-3] */
static void judge_coreset(const Pass *p, ProbeResult *r, const double *dump, const double *computed) {
    const int64_t E = config(p)->experts;
    const double top_p = p->session->coreset_top_p;
    double *votes = calloc((size_t)E, sizeof *votes), sum = 0, largest = 0;
    if (!votes) {
        error_memory(p->d->err, "the coreset's votes", (size_t)E * sizeof *votes);
        return;
    }
    const double loose = count_votes(p, r->layer, votes);
    for (int64_t e = 0; e < E; e++) {
        sum += votes[e];
        largest = fmax(largest, votes[e] / (double)p->T);
    }
    const double error = router_error(p, r->layer, largest) * (double)p->T / sum, hangs = loose / sum;   /* of a share */
    for (int64_t e = 0; e < E; e++) {
        r->choices++;
        if (dump[e] == computed[e]) continue;
        double before = 0;
        bool swapped = false;
        for (int64_t f = 0; f < E; f++) {
            if (ranks_before(votes, f, e)) before += votes[f] / sum;
            swapped |= dump[f] != computed[f] && dump[f] != dump[e] && fabs(votes[f] - votes[e]) / sum <= 2 * error + hangs;
        }
        r->flips++;
        r->near_ties += top_p >= 0 && choice_valid(p, "moe.coreset", dump, E) && (swapped || fabs(before - top_p) <= (double)config(p)->experts_used * error + hangs);
    }
    free(votes);
}

void choice_judge(const Pass *p, ProbeResult *r, const double *dump, const double *computed, int64_t n) {
    r->flips = r->near_ties = r->choices = 0;
    if (!p->own_probs) return;
    if (strcmp(stage_of(r->probe), "moe.coreset") == 0) judge_coreset(p, r, dump, computed);
    else if (n == p->T * p->k) judge_ids(p, r, dump, computed);
}

/* ---- choices that the dump does not show --------------------------------------------------------------------------- */

typedef struct Swap { double *memory, *ids, *weights, *was, *row; Moe moe; } Swap;   /* ids, weights [k]; was, row [D]: routed rows */

static bool swap_init(Swap *t, const Pass *p) {
    const CloverConfig *c = config(p);
    const int64_t D = c->hidden, wide = c->expert_width > c->shared_width ? c->expert_width : c->shared_width;
    double *m = t->memory = malloc((size_t)(2 * p->k + 4 * D + 2 * wide + c->experts) * sizeof *m);
    if (!m) return false;
    t->ids = m, m += p->k;
    t->weights = m, m += p->k;
    t->was = m, m += D;
    t->row = m, m += D;
    t->moe = (Moe){ .c = c, .T = 1, .k = p->k, .ids = t->ids, .weights = t->weights, .rows = m, .result = m + D };
    m += 2 * D;
    t->moe.hidden = m, m += wide;
    t->moe.up = m, m += wide;
    t->moe.order = (int64_t *)m;   /* an int64 is as wide as a double */
    return true;
}

/* Row t's routed sum with the experts t->ids. */
static void routed(Swap *swap, const Pass *p, int64_t layer, int64_t t, double *out) {
    swap->moe.x = p->x + t * config(p)->hidden;
    swap->moe.routed = out;
    row_weights(p, t, swap->ids, swap->weights);
    moe_causal.experts(&p->session->run, &p->d->model->weights.layer[layer].moe, &swap->moe);
}

static double distance(const double *a, const double *b, const double *plus, const double *minus, int64_t n) {
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
        const double off = a[i] - b[i] - (plus ? plus[i] - minus[i] : 0);
        squares += off * off;
    }
    return squares;
}

/* The near tie of row t that brings data nearest to the dump, if one brings it much nearer than the computed choice is. */
static bool settle_row(Pass *p, Swap *swap, int64_t layer, int64_t t, double *data, const double *dump) {
    const int64_t E = config(p)->experts, D = config(p)->hidden, k = p->k;
    const double *probs = p->probs + t * E;
    double *ids = p->ids + t * k, best = distance(dump, data, NULL, NULL, D) / 16;
    int64_t best_slot = -1, best_id = -1;
    bool begun = false;
    for (int64_t slot = 0; slot < k; slot++)
        for (int64_t e = 0; e < E; e++) {
            const double mine = probs[(int64_t)ids[slot]];
            if (contains(ids, k, (double)e) || (p->coreset && p->coreset[e] == 0) || mine - probs[e] > router_error(p, layer, mine) + router_error(p, layer, probs[e])) continue;
            memcpy(swap->ids, ids, (size_t)k * sizeof *ids);
            if (!begun) routed(swap, p, layer, t, swap->was);
            begun = true;
            swap->ids[slot] = (double)e;
            routed(swap, p, layer, t, swap->row);
            const double off = distance(dump, data, swap->row, swap->was, D);
            if (off >= best) continue;
            best = off;
            best_slot = slot;
            best_id = e;
        }
    if (best_slot < 0) return false;
    memcpy(swap->ids, ids, (size_t)k * sizeof *ids);
    swap->ids[best_slot] = (double)best_id;
    routed(swap, p, layer, t, swap->row);
    for (int64_t i = 0; i < D; i++) data[i] += swap->row[i] - swap->was[i];
    ids[best_slot] = (double)best_id;
    return true;
}

/* The dump has the layer's experts' sum, or what it was added to, and not the ids: a row that another choice among near
 * ties explains has made that choice. */
void choice_settle(Pass *p, int64_t layer, double *data, const double *dump) {
    Swap swap;
    if (!p->x || !p->probs || !p->ids) return;
    if (!swap_init(&swap, p)) {
        error_memory(p->d->err, "a choice of experts", 0);
        return;
    }
    for (int64_t t = 0; t < p->T && p->d->err->status == CLOVER_OK; t++)
        p->d->hidden_flips += settle_row(p, &swap, layer, t, data + t * config(p)->hidden, dump + t * config(p)->hidden);
    free(swap.memory);
}
