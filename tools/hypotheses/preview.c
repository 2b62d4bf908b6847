/* preview.c - mistakes of previews alone. [PRV, ATT-6] */
#include <math.h>
#include "../../ref/math/elementary.h"
#include "wrong.h"

/* ---- the convolution's right taps [PRV-2] ---------------------------------------------------------------------- */

static void set_right_missing(HypothesisRules *r) { r->gdn[1].conv = gdn_causal.conv; }

static void conv_right_reversed(Run *run, const GdnW *w, Gdn *a) {
    double *right = wrong_reversed(run, w->conv_right, wrong_channels(a->c), a->c->taps - 1);
    GdnW wrong = *w;
    if (right) wrong.conv_right = right;
    gdn_preview.conv(run, &wrong, a);
    free(right);
}
static void set_right_reversed(HypothesisRules *r) { r->gdn[1].conv = conv_right_reversed; }

/* ---- slots and their weights [PRV-3, PRV-4, PRV-5] ------------------------------------------------------------- */

/* The right rule with the layer's three vectors changed: x becomes factor * x + shift. */
typedef struct Change { double factor, shift; } Change;
static const Change same = { 1, 0 };
static void weigh_with(Run *run, const GdnW *w, Gdn *a, Change scale, Change bias, Change by_size) {
    const int64_t Hv = a->c->value_heads;
    double *room = wrong_room(run, 3 * Hv);
    GdnW wrong = *w;
    for (int64_t h = 0; room && h < Hv; h++) {
        room[h] = scale.factor * w->logit_scale[h] + scale.shift;
        room[Hv + h] = bias.factor * w->history_bias[h] + bias.shift;
        room[2 * Hv + h] = by_size.factor * w->history_c[h] + by_size.shift;
    }
    if (room) wrong.logit_scale = room, wrong.history_bias = room + Hv, wrong.history_c = room + 2 * Hv;
    gdn_preview.weigh(run, &wrong, a);
    free(room);
}
static void weigh_scaled(Run *run, const GdnW *w, Gdn *a) { weigh_with(run, w, a, (Change){ 1 / sqrt((double)a->c->key_width), 0 }, same, same); }
static void weigh_scale_missing(Run *run, const GdnW *w, Gdn *a) { weigh_with(run, w, a, (Change){ 0, 1 }, same, same); }
static void weigh_no_history(Run *run, const GdnW *w, Gdn *a) { weigh_with(run, w, a, same, (Change){ 0, -INFINITY }, same); }
static void weigh_no_bias(Run *run, const GdnW *w, Gdn *a) { weigh_with(run, w, a, same, (Change){ 0, 0 }, same); }
static void weigh_no_size(Run *run, const GdnW *w, Gdn *a) { weigh_with(run, w, a, same, same, (Change){ 0, 0 }); }

/* ln(n / size) in place of ln(n / 32): the bias makes up for the difference. */
static void weigh_by_size(Run *run, const GdnW *w, Gdn *a, double size) {
    double *bias = wrong_room(run, a->c->value_heads);
    GdnW wrong = *w;
    for (int64_t h = 0; bias && h < a->c->value_heads; h++) bias[h] = w->history_bias[h] + w->history_c[h] * el_log(32.0 / size);
    if (bias) wrong.history_bias = bias;
    gdn_preview.weigh(run, &wrong, a);
    free(bias);
}
static void weigh_by_rows(Run *run, const GdnW *w, Gdn *a) { weigh_by_size(run, w, a, 1); }
static void weigh_by_block(Run *run, const GdnW *w, Gdn *a) { weigh_by_size(run, w, a, a->c->block > 0 ? (double)a->c->block : 32); }

/* Row t sees the rows up to itself, and the history. */
static void weigh_causal(Run *run, const GdnW *w, Gdn *a) {
    const int64_t n = a->T, Hv = a->c->value_heads;
    gdn_preview.weigh(run, w, a);
    for (int64_t i = 0; i < n * Hv; i++) {
        double *slot = a->weights + i * (n + 1), sum = slot[n];
        for (int64_t s = 0; s <= i / Hv; s++) sum += slot[s];
        for (int64_t s = 0; s <= n; s++) slot[s] = s <= i / Hv || s == n ? slot[s] / sum : 0;
    }
}
static void set_scaled(HypothesisRules *r) { r->gdn[1].weigh = weigh_scaled; }
static void set_scale_missing(HypothesisRules *r) { r->gdn[1].weigh = weigh_scale_missing; }
static void set_no_history(HypothesisRules *r) { r->gdn[1].weigh = weigh_no_history; }
static void set_no_bias(HypothesisRules *r) { r->gdn[1].weigh = weigh_no_bias; }
static void set_no_size(HypothesisRules *r) { r->gdn[1].weigh = weigh_no_size; }
static void set_by_rows(HypothesisRules *r) { r->gdn[1].weigh = weigh_by_rows; }
static void set_by_block(HypothesisRules *r) { r->gdn[1].weigh = weigh_by_block; }
static void set_causal(HypothesisRules *r) { r->gdn[1].weigh = weigh_causal; }

/* ---- what is read [PRV-6] -------------------------------------------------------------------------------------- */

/* The right rule reads q for the history alone, so factor * q is factor * history. */
static void mix_history_times(Run *run, const GdnW *w, Gdn *a, double factor) {
    double *q = wrong_times(run, a->q, factor, a->T * a->c->key_heads * a->c->key_width);
    Gdn b = *a;
    if (q) b.q = q;
    gdn_preview.mix(run, w, &b);
    free(q);
}
static void mix_unscaled(Run *run, const GdnW *w, Gdn *a) { mix_history_times(run, w, a, sqrt((double)a->c->key_width)); }
static void mix_unread(Run *run, const GdnW *w, Gdn *a) { mix_history_times(run, w, a, 0); }

/* g of row t times 0, or added to that of the rows before it. */
static void mix_decay(Run *run, const GdnW *w, Gdn *a, bool summed) {
    const int64_t Hv = a->c->value_heads;
    double *g = wrong_times(run, a->g, summed ? 1 : 0, a->T * Hv);
    Gdn b = *a;
    for (int64_t i = Hv; g && summed && i < a->T * Hv; i++) g[i] += g[i - Hv];
    if (g) b.g = g;
    gdn_preview.mix(run, w, &b);
    free(g);
}
static void mix_not_decayed(Run *run, const GdnW *w, Gdn *a) { mix_decay(run, w, a, false); }
static void mix_summed(Run *run, const GdnW *w, Gdn *a) { mix_decay(run, w, a, true); }

static void mix_beta_on_v(Run *run, const GdnW *w, Gdn *a) {
    const int64_t dv = a->c->value_width, n = a->T * a->c->value_heads * dv;
    double *v = wrong_room(run, n);
    Gdn b = *a;
    for (int64_t i = 0; v && i < n; i++) v[i] = a->beta[i / dv] * a->v[i];
    if (v) b.v = v;
    gdn_preview.mix(run, w, &b);
    free(v);
}
/* The commit's rule, on a copy of the state. */
static void mix_delta_rule(Run *run, const GdnW *w, Gdn *a) {
    double *state = wrong_room(run, a->c->value_heads * a->c->key_width * a->c->value_width);
    Gdn b = *a;
    b.state = state;
    (state ? gdn_causal.mix : gdn_preview.mix)(run, w, &b);
    free(state);
}
static void set_unscaled(HypothesisRules *r) { r->gdn[1].mix = mix_unscaled; }
static void set_unread(HypothesisRules *r) { r->gdn[1].mix = mix_unread; }
static void set_not_decayed(HypothesisRules *r) { r->gdn[1].mix = mix_not_decayed; }
static void set_summed(HypothesisRules *r) { r->gdn[1].mix = mix_summed; }
static void set_beta_on_v(HypothesisRules *r) { r->gdn[1].mix = mix_beta_on_v; }
static void set_delta_rule(HypothesisRules *r) { r->gdn[1].mix = mix_delta_rule; }

/* ---- full attention of a block [ATT-6] ------------------------------------------------------------------------- */

static void rotate_from_zero(Run *run, const AttnW *w, Attn *a) {
    Attn b = *a;
    b.past = 0;
    attn_preview.rotate(run, w, &b);
}
static void set_attention_causal(HypothesisRules *r) { r->attn[1].attend = attn_causal.attend; }
static void set_from_zero(HypothesisRules *r) { r->attn[1].rotate = rotate_from_zero; }

#define A_GDN "a GDN layer, a preview"
#define AN_ATTENTION "a full-attention layer, a preview"
static const Hypothesis list[] = {
    { .name = "preview_right_conv_missing", .kind = HYPOTHESIS_STAGE, .clause = "PRV-2", .stages = "gdn.conv", .rules = set_right_missing,
      .says = "leaves out the right taps of a preview's convolution", .right = "left taps + right taps", .wrong = "left taps",
      .shows = "Commits are right; in a preview all rows but the last are off.", .needs = A_GDN " of two rows", .report = "", .lint = "" },
    { .name = "preview_right_conv_reversed", .kind = HYPOTHESIS_STAGE, .clause = "PRV-2", .stages = "gdn.conv", .rules = set_right_reversed,
      .says = "reads the right taps of a preview's convolution from last to first", .right = "right[d-1] meets the row d after",
      .wrong = "right[taps-1-d] meets the row d after",
      .shows = "Commits are right; in a preview all rows but the last are off.", .needs = A_GDN " of two rows, three taps", .report = "",
      .lint = "" },
    { .name = "preview_logits_scaled", .kind = HYPOTHESIS_STAGE, .clause = "PRV-3", .stages = "gdn.block_weights", .rules = set_scaled,
      .says = "divides a preview's block scores by sqrt(dk)", .right = "logit_scale (q.k)", .wrong = "logit_scale (q.k) / sqrt(dk)",
      .shows = "Rows of a block read each other almost evenly.", .needs = A_GDN, .report = "", .lint = "" },
    { .name = "preview_logit_scale_missing", .kind = HYPOTHESIS_STAGE, .clause = "PRV-3", .stages = "gdn.block_weights", .rules = set_scale_missing,
      .says = "leaves out logit_scale in a preview's block scores", .right = "logit_scale (q.k)", .wrong = "q.k",
      .shows = "Rows of a block read each other almost evenly.", .needs = A_GDN, .report = "", .lint = "" },
    { .name = "preview_gdn_causal", .kind = HYPOTHESIS_STAGE, .clause = "PRV-3", .stages = "gdn.block_weights", .rules = set_causal,
      .says = "masks the rows after in a preview's block softmax", .right = "row t reads all n rows", .wrong = "row t reads rows 0...t",
      .shows = "The last row is right, the first is furthest off.", .needs = A_GDN " of two rows", .report = "", .lint = "" },
    { .name = "preview_history_c_ignored", .kind = HYPOTHESIS_STAGE, .clause = "PRV-4", .stages = "gdn.block_weights", .rules = set_no_size,
      .says = "ignores history_c", .right = "history_bias + history_c ln(n/32)", .wrong = "history_bias",
      .shows = "Blocks of 32 rows are right, others are not.", .needs = A_GDN " of n not 32", .report = "", .lint = "" },
    { .name = "preview_history_bias_missing", .kind = HYPOTHESIS_STAGE, .clause = "PRV-4", .stages = "gdn.block_weights", .rules = set_no_bias,
      .says = "ignores history_bias", .right = "history_bias + history_c ln(n/32)", .wrong = "history_c ln(n/32)",
      .shows = "The history has another weight.", .needs = A_GDN, .report = "", .lint = "" },
    { .name = "preview_history_by_rows", .kind = HYPOTHESIS_STAGE, .clause = "PRV-4", .stages = "gdn.block_weights", .rules = set_by_rows,
      .says = "takes ln(n) in place of ln(n/32)", .right = "history_bias + history_c ln(n/32)", .wrong = "history_bias + history_c ln(n)",
      .shows = "The history has another weight.", .needs = A_GDN, .report = "", .lint = "" },
    { .name = "preview_history_by_block", .kind = HYPOTHESIS_STAGE, .clause = "PRV-4", .stages = "gdn.block_weights", .rules = set_by_block,
      .says = "takes the model's block size in place of the constant 32", .right = "history_bias + history_c ln(n/32)",
      .wrong = "history_bias + history_c ln(n/block size)",
      .shows = "Right for models of block size 32.", .needs = A_GDN ", a block size other than 32", .report = "", .lint = "" },
    { .name = "preview_history_missing", .kind = HYPOTHESIS_STAGE, .clause = "PRV-5", .stages = "gdn.block_weights", .rules = set_no_history,
      .says = "has no history slot in a preview's softmax", .right = "softmax over n + 1 slots", .wrong = "softmax over the n rows",
      .shows = "GDN layers know nothing of the prompt.", .needs = A_GDN, .report = "", .lint = "" },
    { .name = "preview_history_unread", .kind = HYPOTHESIS_STAGE, .clause = "PRV-6", .stages = "gdn.mixed", .rules = set_unread,
      .says = "weighs the history in a preview, but adds nothing for it", .right = "o = sum p v + p_H e^g S^T q / sqrt(dk)", .wrong = "o = sum p v",
      .shows = "GDN layers know nothing of the prompt.", .needs = A_GDN " over a prefix", .report = "", .lint = "" },
    { .name = "preview_history_unscaled", .kind = HYPOTHESIS_STAGE, .clause = "PRV-6", .stages = "gdn.mixed", .rules = set_unscaled,
      .says = "does not divide what a preview reads from the state by sqrt(dk)", .right = "p_H e^g S^T q / sqrt(dk)", .wrong = "p_H e^g S^T q",
      .shows = "The history is sqrt(dk) too loud.", .needs = A_GDN " over a prefix", .report = "", .lint = "" },
    { .name = "preview_history_not_decayed", .kind = HYPOTHESIS_STAGE, .clause = "PRV-6", .stages = "gdn.mixed", .rules = set_not_decayed,
      .says = "does not decay the history in a preview", .right = "p_H e^g S^T q / sqrt(dk)", .wrong = "p_H S^T q / sqrt(dk)",
      .shows = "The history is too loud where a gate forgets.", .needs = A_GDN " over a prefix", .report = "", .lint = "" },
    { .name = "preview_history_decay_summed", .kind = HYPOTHESIS_STAGE, .clause = "PRV-6", .stages = "gdn.mixed", .rules = set_summed,
      .says = "decays the history by the running sum of g over the block's rows", .right = "e^(g_t)", .wrong = "e^(g_0 + ... + g_t)",
      .shows = "Row 0 is right, later rows hear less and less of the prompt.", .needs = A_GDN " of two rows over a prefix", .report = "",
      .lint = "" },
    { .name = "preview_beta_on_v", .kind = HYPOTHESIS_STAGE, .clause = "PRV-6", .stages = "gdn.mixed", .rules = set_beta_on_v,
      .says = "multiplies the values of a preview by beta", .right = "sum p v", .wrong = "sum p beta v",
      .shows = "Block rows are too quiet.", .needs = A_GDN, .report = "", .lint = "" },
    { .name = "preview_delta_rule", .kind = HYPOTHESIS_STAGE, .clause = "PRV-6", .stages = "gdn.mixed", .rules = set_delta_rule,
      .says = "runs a preview's rows through the causal delta rule", .right = "one softmax over block and history",
      .wrong = "S = e^g S + k d^T row by row; o = S^T q / sqrt(dk)",
      .shows = "The block's weights are never used.", .needs = A_GDN, .report = "", .lint = "" },
    { .name = "preview_attention_causal", .kind = HYPOTHESIS_STAGE, .clause = "ATT-6", .stages = "attn.context", .rules = set_attention_causal,
      .says = "masks the rows after in a preview's full attention", .right = "row t sees the prefix and all n rows",
      .wrong = "row t sees the prefix and rows 0...t",
      .shows = "The last row's context is right, the others' are not.", .needs = AN_ATTENTION " of two rows", .report = "", .lint = "" },
    { .name = "preview_positions_from_zero", .kind = HYPOTHESIS_STAGE, .clause = "ATT-6", .stages = "attn.q_rope attn.k_rope", .rules = set_from_zero,
      .says = "counts a preview's positions from 0 instead of from the prefix's end", .right = "positions p0 ... p0 + n - 1",
      .wrong = "positions 0 ... n - 1",
      .shows = "Right over an empty prefix; else the block stands on the prompt's first rows.", .needs = AN_ATTENTION " over a prefix", .report = "",
      .lint = "" },
};
const HypothesisList hypotheses_preview = HYPOTHESES(list);
