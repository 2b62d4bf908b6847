/* trunk.c - mistakes between the layers: embedding, residual stream, the place of the norms, head. [LAY] */
#include <math.h>
#include "../../ref/math/elementary.h"
#include "wrong.h"

static void embed_scaled(Run *run, const Weights *w, const CloverConfig *c, const int32_t *ids, int64_t T, double *h) {
    trunk_rules.embed(run, w, c, ids, T, h);
    for (int64_t i = 0; i < T * c->hidden; i++) h[i] = round_to(run->storage, h[i] * sqrt((double)c->hidden));
}
static void set_embedding_scaled(HypothesisRules *r) { r->trunk.embed = embed_scaled; }

static void no_residual(Run *run, const double *y, int64_t n, double *h) {
    (void)run;
    memcpy(h, y, (size_t)n * sizeof *h);
}
static void set_residual_missing(HypothesisRules *r) { r->trunk.add = no_residual; }

/* h + norm(y), and no norm before the MoE: where other families have a norm of this name. */
static void add_normed(Run *run, const LayerW *w, const CloverConfig *c, const double *y, int64_t T, double *h) {
    double *normed = wrong_room(run, T * c->hidden);
    if (normed) trunk_rules.norm(run, w->ffn_norm, c, y, T, normed);
    trunk_rules.add(run, normed ? normed : y, T * c->hidden, h);
    free(normed);
}
static void no_norm(Run *run, const double *weight, const CloverConfig *c, const double *h, int64_t T, double *x) {
    (void)run, (void)weight;
    memcpy(x, h, (size_t)(T * c->hidden) * sizeof *x);
}
static void set_post_norm(HypothesisRules *r) { r->trunk.add_mixer = add_normed, r->trunk.ffn_norm = no_norm; }

/* Row t of the logits is row t-1's; the first has nobody before it and keeps its own. */
static void head_one_late(Run *run, const Weights *w, const double *x, int64_t T, double *logits) {
    const int64_t V = w->head.rows;
    trunk_rules.head(run, w, x, T, logits);
    if (T > 1) memmove(logits + V, logits, (size_t)((T - 1) * V) * sizeof *logits);
}
static void set_shifted(HypothesisRules *r) { r->trunk.head = head_one_late; }

static double capped(double x) {   /* 30 tanh(x / 30) */
    const double e = el_exp(-2 * fabs(x) / 30);
    return copysign(30 * (1 - e) / (1 + e), x);
}
static void head_capped(Run *run, const Weights *w, const double *x, int64_t T, double *logits) {
    trunk_rules.head(run, w, x, T, logits);
    for (int64_t i = 0; i < T * w->head.rows; i++) logits[i] = round_to(run->storage, capped(logits[i]));
}
static void set_capped(HypothesisRules *r) { r->trunk.head = head_capped; }

static const Hypothesis list[] = {
    { .name = "embedding_scaled", .kind = HYPOTHESIS_STAGE, .clause = "LAY-1", .stages = "embed", .rules = set_embedding_scaled,
      .says = "multiplies the embedding rows by sqrt(D)", .right = "h = embed[id]", .wrong = "h = sqrt(D) * embed[id]",
      .shows = "Every row starts sqrt(D) times too long.", .needs = "", .report = "", .lint = "" },
    { .name = "residual_missing", .kind = HYPOTHESIS_STAGE, .clause = "LAY-2", .stages = "mixer_residual out", .rules = set_residual_missing,
      .says = "replaces the residual stream where it should add to it", .right = "h = h + y", .wrong = "h = y",
      .shows = "Each layer forgets the one before; the output is noise.", .needs = "", .report = "", .lint = "" },
    { .name = "post_norm_on_mixer_output", .kind = HYPOTHESIS_STAGE, .clause = "LAY-2", .stages = "mixer_residual ffn_norm", .rules = set_post_norm,
      .says = "applies post_attention_norm to the mixer's output instead of before the MoE",
      .right = "h = h + mixer; x = RMSNorm(h; post_attention_norm)", .wrong = "h = h + RMSNorm(mixer; post_attention_norm); x = h",
      .shows = "The name is taken at its word: layer 0's residual is off already.", .needs = "", .report = "", .lint = "" },
    { .name = "logits_shifted_by_one", .kind = HYPOTHESIS_STAGE, .clause = "LAY-3", .stages = "logits", .rules = set_shifted,
      .says = "puts row t-1's logits at row t", .right = "logits[t] = head x[t]", .wrong = "logits[t] = head x[t-1]",
      .shows = "All hidden states are right, each row of logits is its neighbour's.", .needs = "two rows of logits", .report = "", .lint = "" },
    { .name = "logits_capped", .kind = HYPOTHESIS_STAGE, .clause = "LAY-3", .stages = "logits", .rules = set_capped,
      .says = "caps the logits at 30", .right = "logits = head x", .wrong = "logits = 30 tanh(head x / 30)",
      .shows = "Large logits are too small; the order stays.", .needs = "", .report = "", .lint = "" },
};
const HypothesisList hypotheses_trunk = HYPOTHESES(list);
