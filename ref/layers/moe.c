/* moe.c - the mixture of experts: router, the preview's coreset, chosen experts, shared expert. [MOE, COR] */
#include <string.h>
#include "layers.h"

/* [MOE-1] */
static void route(Run *run, const MoeW *w, Moe *a) {
    const int64_t E = a->c->experts;
    linear(run, &w->router, a->x, a->T, a->probs);
    for (int64_t t = 0; t < a->T; t++) softmax(a->probs + t * E, E);
}

/* Is expert a before expert b in descending p? Equal values: the lower id comes first. [MOE-1, COR-3] */
static bool precedes(const double *p, int64_t a, int64_t b) { return p[a] > p[b] || (p[a] == p[b] && a < b); }

/* order[0..k) = the k first experts of `allowed` (NULL: all) in descending p; returns how many there were, at most k. */
static int64_t choose_top(int64_t *order, const double *p, const double *allowed, int64_t E, int64_t k) {
    int64_t n = 0;
    for (int64_t e = 0; e < E; e++) {
        if (allowed && allowed[e] == 0.0) continue;
        int64_t at = n;
        while (at > 0 && precedes(p, e, order[at - 1])) at--;
        if (at == k) continue;
        if (n < k) n++;
        for (int64_t i = n - 1; i > at; i--) order[i] = order[i - 1];
        order[at] = e;
    }
    return n;
}

/* [COR-2, COR-3] The block's rows vote with their top-k probabilities, resolved rows included; experts are kept in descending share
 * while the share before them is below top_p, the first always. */
static void keep(Run *run, const MoeW *w, Moe *a) {
    (void)run, (void)w;
    const int64_t E = a->c->experts, k = a->c->experts_used;
    double *total = a->totals, sum = 0;
    if (a->top_p < 0) {
        for (int64_t e = 0; e < E; e++) a->coreset[e] = 1.0;
        return;
    }
    memset(total, 0, (size_t)E * sizeof(double));
    for (int64_t t = 0; t < a->T; t++) {
        const int64_t n = choose_top(a->order, a->probs + t * E, NULL, E, k);
        for (int64_t i = 0; i < n; i++) total[a->order[i]] += a->probs[t * E + a->order[i]];
    }
    for (int64_t e = 0; e < E; e++) sum += total[e];
    const double floor = sum > 1e-9 ? sum : 1e-9;

    memset(a->coreset, 0, (size_t)E * sizeof(double));
    choose_top(a->order, total, NULL, E, E);   /* all of them, sorted */
    double before = 0;
    for (int64_t i = 0; i < E; i++) {
        if (i > 0 && !(before < a->top_p)) break;
        a->coreset[a->order[i]] = 1.0;
        before += total[a->order[i]] / floor;
    }
}

/* [MOE-2, COR-4] The k most probable experts, among the kept ones in a preview (fewer if fewer are kept); their probabilities
 * renormalised to sum to 1. */
static void choose(Run *run, const MoeW *w, Moe *a) {
    (void)w;
    const int64_t E = a->c->experts;
    int64_t kept = 0;
    for (int64_t e = 0; e < E; e++) kept += !a->coreset || a->coreset[e] != 0.0;
    const int64_t k = a->k = kept < a->c->experts_used ? kept : a->c->experts_used;
    for (int64_t t = 0; t < a->T; t++) {
        const double *p = a->probs + t * E;
        choose_top(a->order, p, a->coreset, E, k);
        double sum = 0;
        for (int64_t i = 0; i < k; i++) sum += p[a->order[i]];
        for (int64_t i = 0; i < k; i++) {
            a->ids[t * k + i] = (double)a->order[i];
            a->weights[t * k + i] = round_to(run->storage, p[a->order[i]] / sum);
        }
    }
}

/* y = down(SiLU(gate x) * up x).  x, y [T, D]; the hidden rows are F wide. [MOE-3] */
static void expert(Run *run, const ExpertW *w, Moe *a, const double *x, int64_t T, double *y) {
    const Storage s = run->storage;
    linear(run, &w->gate, x, T, a->hidden);
    linear(run, &w->up, x, T, a->up);
    for (int64_t i = 0; i < T * w->gate.rows; i++) a->hidden[i] = round_to(s, round_to(s, silu(a->hidden[i])) * a->up[i]);
    linear(run, &w->down, a->hidden, T, y);
}

/* Expert by expert in ascending id, all rows that chose it at once; so every row adds its experts in that order. */
static void experts(Run *run, const MoeW *w, Moe *a) {
    const int64_t D = a->c->hidden, k = a->k;
    memset(a->routed, 0, (size_t)(a->T * D) * sizeof(double));
    for (int64_t e = 0; e < a->c->experts; e++) {
        int64_t n = 0;
        for (int64_t t = 0; t < a->T; t++)
            for (int64_t i = t * k; i < (t + 1) * k; i++)
                if (a->ids[i] == (double)e) {
                    memcpy(a->rows + n * D, a->x + t * D, (size_t)D * sizeof(double));
                    a->order[n++] = i;
                    break;   /* a row has an expert at most once, also when ids come from elsewhere */
                }
        if (n == 0) continue;
        expert(run, &w->expert[e], a, a->rows, n, a->result);
        for (int64_t r = 0; r < n; r++) {
            double *y = a->routed + a->order[r] / k * D;
            const double weight = a->weights[a->order[r]];
            for (int64_t i = 0; i < D; i++)
                y[i] = round_to(run->storage, y[i] + round_to(run->storage, weight * a->result[r * D + i]));
        }
    }
}

/* [MOE-4] */
static void shared(Run *run, const MoeW *w, Moe *a) {
    expert(run, &w->shared, a, a->x, a->T, a->shared);
    linear(run, &w->shared_gate, a->x, a->T, a->shared_gate);
    for (int64_t t = 0; t < a->T; t++) a->shared_gate[t] = round_to(run->storage, sigmoid(a->shared_gate[t]));
}

static void sum(Run *run, const MoeW *w, Moe *a) {
    (void)w;
    const Storage s = run->storage;
    const int64_t D = a->c->hidden;
    for (int64_t t = 0; t < a->T; t++)
        for (int64_t i = t * D; i < (t + 1) * D; i++)
            a->out[i] = round_to(s, a->routed[i] + round_to(s, a->shared_gate[t] * a->shared[i]));
}

/* Only a preview keeps some of the experts. [COR-1] */
const MoeRules moe_causal = { route, NULL, choose, experts, shared, sum };
const MoeRules moe_preview = { route, keep, choose, experts, shared, sum };

void moe_layer(Run *run, const Tap *t, const MoeW *w, const MoeRules *r, Moe *a) {
    const int64_t T = a->T, D = a->c->hidden, E = a->c->experts;
    r->route(run, w, a);
    tap(t, "moe.probs", a->probs, 2, T, E);
    if (r->keep) {
        r->keep(run, w, a);
        tap(t, "moe.coreset", a->coreset, 1, E);
    }
    r->choose(run, w, a);
    tap(t, "moe.ids", a->ids, 2, T, a->k);
    tap(t, "moe.weights", a->weights, 2, T, a->k);
    r->experts(run, w, a);
    tap(t, "moe.routed", a->routed, 2, T, D);
    r->shared(run, w, a);
    tap(t, "moe.shared", a->shared, 2, T, D);
    tap(t, "moe.shared_gate", a->shared_gate, 2, T, (int64_t)1);
    r->sum(run, w, a);
    tap(t, "moe", a->out, 2, T, D);
}
