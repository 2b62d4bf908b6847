/* moe.c - mistakes in the mixture of experts and in the previews' coreset. [MOE, COR] */
#include "wrong.h"

/* ---- router [MOE-1] -------------------------------------------------------------------------------------------- */

static void route_coarse(Run *run, const MoeW *w, Moe *a) {
    const int64_t E = a->c->experts;
    linear(run, &w->router, a->x, a->T, a->probs);
    round_row(STORE_BF16, a->probs, a->T * E);
    for (int64_t t = 0; t < a->T; t++) softmax(a->probs + t * E, E);
}
static void route_sigmoid(Run *run, const MoeW *w, Moe *a) {
    linear(run, &w->router, a->x, a->T, a->probs);
    for (int64_t i = 0; i < a->T * a->c->experts; i++) a->probs[i] = sigmoid(a->probs[i]);
}
static void set_coarse(HypothesisRules *r) { r->moe[0].route = r->moe[1].route = route_coarse; }
static void set_sigmoid(HypothesisRules *r) { r->moe[0].route = r->moe[1].route = route_sigmoid; }

/* ---- choice [MOE-1, MOE-2, COR-4] ------------------------------------------------------------------------------ */

static void choose_fewer(Run *run, const MoeW *w, Moe *a) {
    CloverConfig c = *a->c;
    Moe b = *a;
    if (c.experts_used > 1) c.experts_used--;
    b.c = &c;
    moe_causal.choose(run, w, &b);
    a->k = b.k;
}
static void choose_raw(Run *run, const MoeW *w, Moe *a) {
    moe_causal.choose(run, w, a);
    for (int64_t i = 0; i < a->T * a->k; i++) a->weights[i] = round_to(run->storage, a->probs[i / a->k * a->c->experts + (int64_t)a->ids[i]]);
}
static void choose_from_all(Run *run, const MoeW *w, Moe *a) {
    Moe b = *a;
    b.coreset = NULL;
    moe_causal.choose(run, w, &b);
    a->k = b.k;
}
static void set_fewer(HypothesisRules *r) { r->moe[0].choose = r->moe[1].choose = choose_fewer; }
static void set_raw(HypothesisRules *r) { r->moe[0].choose = r->moe[1].choose = choose_raw; }
static void set_from_all(HypothesisRules *r) { r->moe[1].choose = choose_from_all; }

/* A commit with a preview's coreset: its rows vote, as a block's do. */
static void choose_kept(Run *run, const MoeW *w, Moe *a) {
    Moe b = *a;
    b.coreset = wrong_room(run, a->c->experts);
    if (b.coreset) moe_preview.keep(run, w, &b);
    moe_preview.choose(run, w, &b);
    a->k = b.k;
    free(b.coreset);
}
static void set_kept(HypothesisRules *r) { r->moe[0].choose = choose_kept; }

/* ---- the coreset [COR-2, COR-3] -------------------------------------------------------------------------------- */

typedef struct Walk { bool drop_crossing, vote_all, vote_renormalised; int64_t least; } Walk;

/* totals [E]: what the rows vote for. */
static void vote(Run *run, const MoeW *w, Moe *a, Walk how) {
    const int64_t E = a->c->experts, k = a->c->experts_used;
    double *room = wrong_room(run, 2 * a->T * k);   /* the ids and weights that a right router would choose among all */
    memset(a->totals, 0, (size_t)E * sizeof(double));
    if (!room) return;
    Moe b = *a;
    b.coreset = NULL, b.ids = room, b.weights = room + a->T * k;
    moe_causal.choose(run, w, &b);
    for (int64_t i = 0; i < a->T * k && !how.vote_all; i++) {
        const int64_t e = (int64_t)b.ids[i];
        a->totals[e] += how.vote_renormalised ? b.weights[i] : a->probs[i / k * E + e];
    }
    for (int64_t i = 0; i < a->T * E && how.vote_all; i++) a->totals[i % E] += a->probs[i];
    free(room);
}
/* The largest total among those not kept, the lower id first; E: none is left. */
static int64_t next_of(const Moe *a) {
    int64_t best = a->c->experts;
    for (int64_t e = 0; e < a->c->experts; e++)
        if (a->coreset[e] == 0 && (best == a->c->experts || a->totals[e] > a->totals[best])) best = e;
    return best;
}
static void keep_how(Run *run, const MoeW *w, Moe *a, Walk how) {
    const int64_t E = a->c->experts;
    if (a->top_p < 0) {
        moe_preview.keep(run, w, a);
        return;
    }
    vote(run, w, a, how);
    double sum = 0, before = 0;
    for (int64_t e = 0; e < E; e++) sum += a->totals[e];
    const double floor = sum > 1e-9 ? sum : 1e-9;
    memset(a->coreset, 0, (size_t)E * sizeof(double));
    for (int64_t i = 0; i < E; i++) {
        const int64_t e = next_of(a);
        const double share = a->totals[e] / floor;
        if (i > 0 && i >= how.least && !(how.drop_crossing ? before + share <= a->top_p : before < a->top_p)) break;
        a->coreset[e] = 1;
        before += share;
    }
}
static void keep_all(Run *run, const MoeW *w, Moe *a) {
    (void)run, (void)w;
    for (int64_t e = 0; e < a->c->experts; e++) a->coreset[e] = 1;
}
static void keep_within(Run *run, const MoeW *w, Moe *a) { keep_how(run, w, a, (Walk){ .drop_crossing = true }); }
static void keep_16(Run *run, const MoeW *w, Moe *a) { keep_how(run, w, a, (Walk){ .least = 16 }); }
static void keep_by_all(Run *run, const MoeW *w, Moe *a) { keep_how(run, w, a, (Walk){ .vote_all = true }); }
static void keep_by_weights(Run *run, const MoeW *w, Moe *a) { keep_how(run, w, a, (Walk){ .vote_renormalised = true }); }
static void set_keep_all(HypothesisRules *r) { r->moe[1].keep = keep_all; }
static void set_keep_within(HypothesisRules *r) { r->moe[1].keep = keep_within; }
static void set_keep_16(HypothesisRules *r) { r->moe[1].keep = keep_16; }
static void set_by_all(HypothesisRules *r) { r->moe[1].keep = keep_by_all; }
static void set_by_weights(HypothesisRules *r) { r->moe[1].keep = keep_by_weights; }

/* ---- experts [MOE-3] ------------------------------------------------------------------------------------------- */

/* The right rule with other experts: e's matrices are those of `from` of e, their gate and up exchanged or not. */
static void experts_with(Run *run, const MoeW *w, Moe *a, int64_t later, bool swap) {
    const int64_t E = a->c->experts;
    MoeW wrong = *w;
    wrong.expert = malloc((size_t)E * sizeof *wrong.expert);
    for (int64_t e = 0; wrong.expert && e < E; e++) {
        const ExpertW *x = &w->expert[(e + later) % E];
        wrong.expert[e] = swap ? (ExpertW){ x->up, x->gate, x->down } : *x;
    }
    if (!wrong.expert) error_memory(run->err, "a hypothesis", (size_t)E * sizeof *wrong.expert);
    moe_causal.experts(run, wrong.expert ? &wrong : w, a);
    free(wrong.expert);
}
static void experts_swapped(Run *run, const MoeW *w, Moe *a) { experts_with(run, w, a, 0, true); }
static void experts_next(Run *run, const MoeW *w, Moe *a) { experts_with(run, w, a, 1, false); }
static void set_swapped(HypothesisRules *r) { r->moe[0].experts = r->moe[1].experts = experts_swapped; }
static void set_next(HypothesisRules *r) { r->moe[0].experts = r->moe[1].experts = experts_next; }

/* y [D] += down(after * SiLU(gate (before * x)) * up (before * x)): a weight before gate and up, or before down. */
static void add_expert(Run *run, const ExpertW *w, Moe *a, const double *x, double before, double after, double *y) {
    const int64_t D = a->c->hidden;
    const Storage s = run->storage;
    for (int64_t i = 0; i < D; i++) a->rows[i] = before == 1 ? x[i] : round_to(s, before * x[i]);
    linear(run, &w->gate, a->rows, 1, a->hidden);
    linear(run, &w->up, a->rows, 1, a->up);
    for (int64_t i = 0; i < w->gate.rows; i++) {
        const double h = round_to(s, round_to(s, silu(a->hidden[i])) * a->up[i]);
        a->hidden[i] = after == 1 ? h : round_to(s, after * h);
    }
    linear(run, &w->down, a->hidden, 1, a->result);
    for (int64_t i = 0; i < D; i++) y[i] = round_to(s, y[i] + a->result[i]);
}
static void experts_weighed_early(Run *run, const MoeW *w, Moe *a, bool at_input) {
    const int64_t D = a->c->hidden, k = a->k;
    memset(a->routed, 0, (size_t)(a->T * D) * sizeof(double));
    for (int64_t t = 0; t < a->T; t++)
        for (int64_t e = 0; e < a->c->experts; e++) {
            int64_t i = t * k;
            while (i < (t + 1) * k && a->ids[i] != (double)e) i++;
            if (i == (t + 1) * k) continue;
            const double weight = a->weights[i];
            add_expert(run, &w->expert[e], a, a->x + t * D, at_input ? weight : 1, at_input ? 1 : weight, a->routed + t * D);
        }
}
static void experts_before_down(Run *run, const MoeW *w, Moe *a) { experts_weighed_early(run, w, a, false); }
static void experts_at_input(Run *run, const MoeW *w, Moe *a) { experts_weighed_early(run, w, a, true); }
static void set_before_down(HypothesisRules *r) { r->moe[0].experts = r->moe[1].experts = experts_before_down; }
static void set_at_input(HypothesisRules *r) { r->moe[0].experts = r->moe[1].experts = experts_at_input; }

/* ---- the shared expert [MOE-4] --------------------------------------------------------------------------------- */

static void shared_gate_raw(Run *run, const MoeW *w, Moe *a) {
    moe_causal.shared(run, w, a);
    linear(run, &w->shared_gate, a->x, a->T, a->shared_gate);
}
static void sum_ungated(Run *run, const MoeW *w, Moe *a) {
    (void)w;
    for (int64_t i = 0; i < a->T * a->c->hidden; i++) a->out[i] = round_to(run->storage, a->routed[i] + a->shared[i]);
}
static void sum_routed(Run *run, const MoeW *w, Moe *a) {
    (void)run, (void)w;
    memcpy(a->out, a->routed, (size_t)(a->T * a->c->hidden) * sizeof(double));
}
static void set_gate_raw(HypothesisRules *r) { r->moe[0].shared = r->moe[1].shared = shared_gate_raw; }
static void set_ungated(HypothesisRules *r) { r->moe[0].sum = r->moe[1].sum = sum_ungated; }
static void set_routed(HypothesisRules *r) { r->moe[0].sum = r->moe[1].sum = sum_routed; }

#define A_CORESET "a preview with a coreset"
static const Hypothesis list[] = {
    { .name = "router_bf16", .kind = HYPOTHESIS_STAGE, .clause = "MOE-1", .stages = "moe.probs", .rules = set_coarse,
      .says = "rounds the router's logits to bf16", .right = "p = softmax(router x)", .wrong = "p = softmax(bf16(router x))",
      .shows = "Now and then a row gets another expert.", .needs = "", .report = "", .lint = "" },
    { .name = "router_sigmoid", .kind = HYPOTHESIS_STAGE, .clause = "MOE-1", .stages = "moe.probs", .rules = set_sigmoid,
      .says = "takes sigmoids of the router's logits instead of their softmax", .right = "p = softmax(router x)", .wrong = "p = sigmoid(router x)",
      .shows = "The same experts with nearly equal weights.", .needs = "", .report = "", .lint = "" },
    { .name = "router_top_k_less_one", .kind = HYPOTHESIS_STAGE, .clause = "MOE-1", .stages = "moe.ids moe.weights", .rules = set_fewer,
      .says = "chooses one expert fewer than k", .right = "the k most probable", .wrong = "the k - 1 most probable",
      .shows = "Each row lacks its last expert.", .needs = "two experts a row", .report = "", .lint = "" },
    { .name = "router_not_renormalised", .kind = HYPOTHESIS_STAGE, .clause = "MOE-2", .stages = "moe.weights", .rules = set_raw,
      .says = "does not renormalise the chosen experts' probabilities", .right = "p / sum of the chosen p", .wrong = "p",
      .shows = "Experts are too quiet; the text decays.", .needs = "fewer experts a row than there are", .report = "leonickson1/Swiftlet PR 6",
      .lint = "" },
    { .name = "coreset_ignored", .kind = HYPOTHESIS_STAGE, .clause = "COR-1", .stages = "moe.coreset", .rules = set_keep_all,
      .says = "keeps all experts in previews", .right = "the coreset's experts", .wrong = "all experts",
      .shows = "Right in commits and with the coreset off.", .needs = A_CORESET, .report = "", .lint = "" },
    { .name = "coreset_in_commit", .kind = HYPOTHESIS_STAGE, .clause = "COR-1", .stages = "moe.ids moe.weights", .rules = set_kept,
      .says = "uses the coreset in commits too", .right = "commits choose among all experts", .wrong = "commits choose among the kept ones",
      .shows = "Commits are off as soon as the coreset is on.", .needs = "a commit with the coreset on", .report = "", .lint = "" },
    { .name = "coreset_all_vote", .kind = HYPOTHESIS_STAGE, .clause = "COR-2", .stages = "moe.coreset", .rules = set_by_all,
      .says = "adds all of a row's probabilities to the coreset's totals, not its k largest", .right = "a row votes with its k largest p",
      .wrong = "a row votes with all p",
      .shows = "Some experts more are kept.", .needs = A_CORESET, .report = "", .lint = "" },
    { .name = "coreset_votes_renormalised", .kind = HYPOTHESIS_STAGE, .clause = "COR-2", .stages = "moe.coreset", .rules = set_by_weights,
      .says = "adds renormalised probabilities to the coreset's totals", .right = "a row votes with p",
      .wrong = "a row votes with p / sum of its chosen p",
      .shows = "Rows that are unsure vote too loudly; an expert more or less.", .needs = A_CORESET " where an order or the bound changes",
      .report = "", .lint = "" },
    { .name = "coreset_crossing_dropped", .kind = HYPOTHESIS_STAGE, .clause = "COR-3", .stages = "moe.coreset", .rules = set_keep_within,
      .says = "drops the expert with which the coreset's share crosses top_p", .right = "keep while the share before < top_p",
      .wrong = "keep while the share with it <= top_p",
      .shows = "One expert fewer is kept.", .needs = A_CORESET, .report = "", .lint = "" },
    { .name = "coreset_guard_16", .kind = HYPOTHESIS_STAGE, .clause = "COR-3", .stages = "moe.coreset", .rules = set_keep_16,
      .says = "keeps at least 16 experts in the coreset", .right = "no minimum count", .wrong = "at least 16",
      .shows = "Small coresets are too large.", .needs = A_CORESET " of fewer than 16 experts", .report = "", .lint = "" },
    { .name = "coreset_not_obeyed", .kind = HYPOTHESIS_STAGE, .clause = "COR-4", .stages = "moe.ids moe.weights", .rules = set_from_all,
      .says = "computes the coreset, but lets rows choose among all experts", .right = "the k largest inside the kept set",
      .wrong = "the k largest of all",
      .shows = "Ids outside the coreset.", .needs = A_CORESET, .report = "", .lint = "" },
    { .name = "weight_before_down", .kind = HYPOTHESIS_STAGE, .clause = "MOE-3", .stages = "moe.routed", .rules = set_before_down,
      .says = "applies an expert's weight before its down projection", .right = "weight * down(h)", .wrong = "down(weight * h)",
      .shows = "The same mathematics with other rounding: small errors in bf16.", .needs = "rounding to bf16",
      .report = "NVIDIA-NeMo/Automodel PR 3233", .lint = "" },
    { .name = "weight_on_expert_input", .kind = HYPOTHESIS_STAGE, .clause = "MOE-3", .stages = "moe.routed", .rules = set_at_input,
      .says = "applies an expert's weight to its input", .right = "weight * expert(x)", .wrong = "expert(weight * x)",
      .shows = "Experts are too quiet, by more than their weight.", .needs = "", .report = "", .lint = "" },
    { .name = "gate_up_swapped", .kind = HYPOTHESIS_STAGE, .clause = "MOE-3", .stages = "moe.routed", .rules = set_swapped,
      .says = "takes the experts' up rows for their gate rows", .right = "SiLU(gate x) * up x", .wrong = "SiLU(up x) * gate x",
      .shows = "Every routed expert is off; the shared one is right.", .needs = "", .report = "", .lint = "gate-up-swapped" },
    { .name = "expert_ids_off_by_one", .kind = HYPOTHESIS_STAGE, .clause = "MOE-3", .stages = "moe.routed", .rules = set_next,
      .says = "runs expert e + 1 for expert e", .right = "expert e", .wrong = "expert (e + 1) mod E",
      .shows = "Ids and weights are right, what they add is not.", .needs = "", .report = "", .lint = "expert-order" },
    { .name = "shared_gate_raw", .kind = HYPOTHESIS_STAGE, .clause = "MOE-4", .stages = "moe.shared_gate", .rules = set_gate_raw,
      .says = "does not squash the shared expert's gate", .right = "sigmoid(shared_gate x)", .wrong = "shared_gate x",
      .shows = "The shared expert's sign flips in some rows.", .needs = "", .report = "", .lint = "" },
    { .name = "shared_gate_missing", .kind = HYPOTHESIS_STAGE, .clause = "MOE-4", .stages = "moe", .rules = set_ungated,
      .says = "adds the shared expert without its gate", .right = "routed + sigmoid(shared_gate x) shared", .wrong = "routed + shared",
      .shows = "The shared expert is about twice too loud.", .needs = "", .report = "", .lint = "" },
    { .name = "shared_missing", .kind = HYPOTHESIS_STAGE, .clause = "MOE-4", .stages = "moe", .rules = set_routed,
      .says = "leaves out the shared expert", .right = "routed + sigmoid(shared_gate x) shared", .wrong = "routed",
      .shows = "Each MoE lacks the part that every row shares.", .needs = "", .report = "", .lint = "" },
};
const HypothesisList hypotheses_moe = HYPOTHESES(list);
