/* parameters.c - right rules with a wrong number: epsilon, rotary base, norm weights. (rope_query_off_by_one stands with the
 * rotations, in attention.c.)
 *
 * In memory a norm's weight is the factor 1 + w; "plain" takes w for it, "twice" 2 + w. [TEN-5] */
#include <math.h>
#include "wrong.h"

/* ---- numbers of the config ------------------------------------------------------------------------------------- */

static void base_10000(CloverSession *s) { s->c.rope_base = 10000; }
static void eps_1e_5(CloverSession *s) { s->c.rms_eps = 1e-5; }

/* ---- norm weights ---------------------------------------------------------------------------------------------- */

static void norm_shifted(Run *run, const double *weight, const CloverConfig *c, const double *h, int64_t T, double *x, double shift) {
    double *wrong = wrong_plus(run, weight, shift, c->hidden);
    trunk_rules.norm(run, wrong ? wrong : weight, c, h, T, x);
    free(wrong);
}
static void norm_plain(Run *run, const double *weight, const CloverConfig *c, const double *h, int64_t T, double *x) { norm_shifted(run, weight, c, h, T, x, -1); }
static void norm_twice(Run *run, const double *weight, const CloverConfig *c, const double *h, int64_t T, double *x) { norm_shifted(run, weight, c, h, T, x, 1); }
static void set_plain(HypothesisRules *r) { r->trunk.norm = norm_plain; }
static void set_twice(HypothesisRules *r) { r->trunk.norm = norm_twice; }
static void set_final_plain(HypothesisRules *r) { r->trunk.final_norm = norm_plain; }
static void set_final_twice(HypothesisRules *r) { r->trunk.final_norm = norm_twice; }

static void heads_shifted(Run *run, const AttnW *w, Attn *a, double shift) {
    double *q = wrong_plus(run, w->q_norm, shift, a->c->head_width), *k = wrong_plus(run, w->k_norm, shift, a->c->head_width);
    AttnW wrong = *w;
    if (q && k) wrong.q_norm = q, wrong.k_norm = k;
    attn_causal.norm(run, &wrong, a);
    free(q);
    free(k);
}
static void heads_plain(Run *run, const AttnW *w, Attn *a) { heads_shifted(run, w, a, -1); }
static void heads_twice(Run *run, const AttnW *w, Attn *a) { heads_shifted(run, w, a, 1); }
static void set_heads_plain(HypothesisRules *r) { r->attn[0].norm = r->attn[1].norm = heads_plain; }
static void set_heads_twice(HypothesisRules *r) { r->attn[0].norm = r->attn[1].norm = heads_twice; }

/* The one norm whose weight is a plain factor. */
static void gdn_shifted(Run *run, const GdnW *w, Gdn *a) {
    double *norm = wrong_plus(run, w->norm, 1, a->c->value_width);
    GdnW wrong = *w;
    if (norm) wrong.norm = norm;
    gdn_causal.gate(run, &wrong, a);
    free(norm);
}
static void set_gdn_shifted(HypothesisRules *r) { r->gdn[0].gate = r->gdn[1].gate = gdn_shifted; }

#define REPORTED "ml-explore/mlx-lm PR 1442, 1623, 1735; Blaizzy/mlx-vlm issue 1548; kekzl/imp PR 1289"
static const Hypothesis list[] = {
    { .name = "rope_base_10000", .kind = HYPOTHESIS_PARAMETER, .clause = "ATT-3", .stages = "attn.q_rope attn.k_rope", .parameter = base_10000,
      .says = "uses 10000 as rotary base", .right = "base as the file says", .wrong = "base = 10000",
      .shows = "Position 0 is right; far rows are told apart too well.",
      .needs = "a full-attention layer, four rotary dims, a position after the first, a base other than 10000", .report = "", .lint = "" },
    { .name = "eps_1e-5", .kind = HYPOTHESIS_PARAMETER, .clause = "ROW-1",
      .stages = "attn_norm attn.q_norm attn.k_norm gdn.gated ffn_norm final_norm", .parameter = eps_1e_5,
      .says = "uses 1e-5 as RMSNorm epsilon", .right = "epsilon as the file says, 1e-6", .wrong = "epsilon = 1e-5",
      .shows = "A small error where rows are short.", .needs = "an epsilon other than 1e-5", .report = "", .lint = "" },
    { .name = "norms_plain_weight", .kind = HYPOTHESIS_PARAMETER, .clause = "TEN-5", .stages = "attn_norm ffn_norm final_norm", .rules = set_plain,
      .says = "multiplies by the layer norms' w instead of 1 + w", .right = "RMSNorm(x) * (1 + w)", .wrong = "RMSNorm(x) * w",
      .shows = "Token salad; shapes never change.", .needs = "", .report = REPORTED, .lint = "norm-shift-missing" },
    { .name = "norms_shifted_twice", .kind = HYPOTHESIS_PARAMETER, .clause = "TEN-5", .stages = "attn_norm ffn_norm final_norm", .rules = set_twice,
      .says = "adds 1 to the layer norms' weights twice", .right = "RMSNorm(x) * (1 + w)", .wrong = "RMSNorm(x) * (2 + w)",
      .shows = "Coherent text with twice the perplexity, or salad.", .needs = "", .report = REPORTED, .lint = "norm-shift-twice" },
    { .name = "final_norm_plain", .kind = HYPOTHESIS_PARAMETER, .clause = "TEN-5", .stages = "final_norm", .rules = set_final_plain,
      .says = "multiplies by the final norm's w instead of 1 + w", .right = "RMSNorm(x) * (1 + w)", .wrong = "RMSNorm(x) * w",
      .shows = "All layers are right, the logits are not.", .needs = "", .report = REPORTED, .lint = "norm-shift-mixed" },
    { .name = "final_norm_shifted_twice", .kind = HYPOTHESIS_PARAMETER, .clause = "TEN-5", .stages = "final_norm", .rules = set_final_twice,
      .says = "adds 1 to the final norm's weight twice", .right = "RMSNorm(x) * (1 + w)", .wrong = "RMSNorm(x) * (2 + w)",
      .shows = "All layers are right, the logits are too large.", .needs = "", .report = REPORTED, .lint = "norm-shift-mixed" },
    { .name = "qk_norm_plain_weight", .kind = HYPOTHESIS_PARAMETER, .clause = "ATT-2", .stages = "attn.q_norm attn.k_norm", .rules = set_heads_plain,
      .says = "multiplies by q_norm's and k_norm's w instead of 1 + w", .right = "RMSNorm(q) * (1 + w)", .wrong = "RMSNorm(q) * w",
      .shows = "Attention is nearly flat.", .needs = "a full-attention layer", .report = REPORTED, .lint = "norm-shift-missing" },
    { .name = "qk_norm_shifted_twice", .kind = HYPOTHESIS_PARAMETER, .clause = "ATT-2", .stages = "attn.q_norm attn.k_norm", .rules = set_heads_twice,
      .says = "adds 1 to q_norm's and k_norm's weights twice", .right = "RMSNorm(q) * (1 + w)", .wrong = "RMSNorm(q) * (2 + w)",
      .shows = "Attention is too sharp.", .needs = "a full-attention layer", .report = REPORTED, .lint = "norm-shift-twice" },
    { .name = "gdn_norm_shifted", .kind = HYPOTHESIS_PARAMETER, .clause = "GDN-7", .stages = "gdn.gated", .rules = set_gdn_shifted,
      .says = "adds 1 to the GDN head norm's weight, which is a plain factor", .right = "RMSNorm(o) * w", .wrong = "RMSNorm(o) * (1 + w)",
      .shows = "GDN layers are about twice too loud.", .needs = "a GDN layer", .report = REPORTED, .lint = "head-norm-shifted" },
};
const HypothesisList hypotheses_parameters = HYPOTHESES(list);
