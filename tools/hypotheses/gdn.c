/* gdn.c - mistakes in Gated DeltaNet. [GDN] Commits and previews share projections, gates, split and output; where they have
 * rules of their own, both get the mistake. */
#include <math.h>
#include "../../ref/math/elementary.h"
#include "wrong.h"

static int64_t values(const Gdn *a) { return a->T * a->c->value_heads * a->c->value_width; }

/* ---- beta and g [GDN-2] ---------------------------------------------------------------------------------------- */

static void gates_without_bias(Run *run, const GdnW *w, Gdn *a) {
    double *zero = wrong_times(run, w->dt_bias, 0, a->c->value_heads);
    GdnW wrong = *w;
    if (zero) wrong.dt_bias = zero;
    gdn_causal.gates(run, &wrong, a);
    free(zero);
}
static void gates_bias_late(Run *run, const GdnW *w, Gdn *a) {
    const int64_t Hv = a->c->value_heads;
    gdn_causal.gates(run, w, a);
    for (int64_t i = 0; i < a->T * Hv; i++) a->g[i] = -w->rate[i % Hv] * (softplus(a->a[i]) + w->dt_bias[i % Hv]);
}
static void gates_without_softplus(Run *run, const GdnW *w, Gdn *a) {
    const int64_t Hv = a->c->value_heads;
    gdn_causal.gates(run, w, a);
    for (int64_t i = 0; i < a->T * Hv; i++) a->g[i] = -w->rate[i % Hv] * (a->a[i] + w->dt_bias[i % Hv]);
}

/* The rate in another form than exp(A_log). */
static double minus_log(double rate) { return rate > 0 ? -el_log(rate) : rate; }   /* g = A_log * softplus: as a naive loader reads raw A_log */
static double exp_again(double rate) { return el_exp(rate); }
static double exp_of_stored(double rate) { return el_exp(-rate); }       /* a GGUF holds -exp(A_log) */
static void gates_with_rate(Run *run, const GdnW *w, Gdn *a, double (*of)(double)) {
    double *rate = wrong_times(run, w->rate, 1, a->c->value_heads);
    GdnW wrong = *w;
    for (int64_t h = 0; rate && h < a->c->value_heads; h++) rate[h] = of(rate[h]);
    if (rate) wrong.rate = rate;
    gdn_causal.gates(run, &wrong, a);
    free(rate);
}
static void gates_raw(Run *run, const GdnW *w, Gdn *a) { gates_with_rate(run, w, a, minus_log); }
static void gates_exp_twice(Run *run, const GdnW *w, Gdn *a) { gates_with_rate(run, w, a, exp_again); }
static void gates_exp_of_stored(Run *run, const GdnW *w, Gdn *a) { gates_with_rate(run, w, a, exp_of_stored); }

static void gates_beta_doubled(Run *run, const GdnW *w, Gdn *a) {
    gdn_causal.gates(run, w, a);
    for (int64_t i = 0; i < a->T * a->c->value_heads; i++) a->beta[i] *= 2;
}
static void gates_beta_coarse(Run *run, const GdnW *w, Gdn *a) {
    gdn_causal.gates(run, w, a);
    round_row(STORE_BF16, a->beta, a->T * a->c->value_heads);
}
static void set_without_bias(HypothesisRules *r) { r->gdn[0].gates = r->gdn[1].gates = gates_without_bias; }
static void set_bias_late(HypothesisRules *r) { r->gdn[0].gates = r->gdn[1].gates = gates_bias_late; }
static void set_without_softplus(HypothesisRules *r) { r->gdn[0].gates = r->gdn[1].gates = gates_without_softplus; }
static void set_raw(HypothesisRules *r) { r->gdn[0].gates = r->gdn[1].gates = gates_raw; }
static void set_exp_twice(HypothesisRules *r) { r->gdn[0].gates = r->gdn[1].gates = gates_exp_twice; }
static void set_exp_of_stored(HypothesisRules *r) { r->gdn[0].gates = r->gdn[1].gates = gates_exp_of_stored; }
static void set_beta_doubled(HypothesisRules *r) { r->gdn[0].gates = r->gdn[1].gates = gates_beta_doubled; }
static void set_beta_coarse(HypothesisRules *r) { r->gdn[0].gates = r->gdn[1].gates = gates_beta_coarse; }

/* ---- convolution [GDN-3] --------------------------------------------------------------------------------------- */

static void conv_reversed(Run *run, const GdnW *w, Gdn *a, GdnRule *right) {
    double *conv = wrong_reversed(run, w->conv, wrong_channels(a->c), a->c->taps);
    GdnW wrong = *w;
    if (conv) wrong.conv = conv;
    right(run, &wrong, a);
    free(conv);
}
static void commit_reversed(Run *run, const GdnW *w, Gdn *a) { conv_reversed(run, w, a, gdn_causal.conv); }
static void preview_reversed(Run *run, const GdnW *w, Gdn *a) { conv_reversed(run, w, a, gdn_preview.conv); }
static void set_reversed(HypothesisRules *r) { r->gdn[0].conv = commit_reversed, r->gdn[1].conv = preview_reversed; }

/* The kernel's bytes taken as [taps, C]. */
static void conv_transposed(Run *run, const GdnW *w, Gdn *a, GdnRule *right) {
    const int64_t C = wrong_channels(a->c), taps = a->c->taps;
    double *conv = wrong_room(run, C * taps);
    GdnW wrong = *w;
    for (int64_t i = 0; conv && i < C * taps; i++) conv[i] = w->conv[i % taps * C + i / taps];
    if (conv) wrong.conv = conv;
    right(run, &wrong, a);
    free(conv);
}
static void commit_transposed(Run *run, const GdnW *w, Gdn *a) { conv_transposed(run, w, a, gdn_causal.conv); }
static void preview_transposed(Run *run, const GdnW *w, Gdn *a) { conv_transposed(run, w, a, gdn_preview.conv); }
static void set_transposed(HypothesisRules *r) { r->gdn[0].conv = commit_transposed, r->gdn[1].conv = preview_transposed; }

/* ring | step, as in ref/; `right`: the rows after are read too. */
static void conv_linear(const Run *run, const GdnW *w, Gdn *a, bool right) {
    const int64_t C = wrong_channels(a->c), taps = a->c->taps, past = taps - 1;
    for (int64_t i = 0; i < a->T * C; i++) {
        const int64_t t = i / C, ch = i % C;
        double sum = 0;
        for (int64_t j = 0; j < taps; j++) sum += w->conv[ch * taps + j] * (t + j < past ? a->ring[(t + j) * C + ch] : a->qkv[(t + j - past) * C + ch]);
        for (int64_t d = 1; right && d < taps && t + d < a->T; d++) sum += w->conv_right[ch * past + d - 1] * a->qkv[(t + d) * C + ch];
        a->conv[i] = round_to(run->storage, sum);
    }
}
static void commit_linear(Run *run, const GdnW *w, Gdn *a) { conv_linear(run, w, a, false); }
static void preview_linear(Run *run, const GdnW *w, Gdn *a) { conv_linear(run, w, a, true); }
static void set_linear(HypothesisRules *r) { r->gdn[0].conv = commit_linear, r->gdn[1].conv = preview_linear; }

/* ---- split and L2 [GDN-4] -------------------------------------------------------------------------------------- */

/* What a head of width dk with these squares is multiplied by. */
typedef double Length(double squares, int64_t dk, double eps);
static double by_mean(double squares, int64_t dk, double eps) { return 1 / sqrt(squares / (double)dk + eps); }
static double by_max(double squares, int64_t dk, double eps) { return (void)dk, 1 / fmax(sqrt(squares), eps); }
static double as_it_is(double squares, int64_t dk, double eps) { return (void)squares, (void)dk, (void)eps, 1.0; }

static void split_with(Run *run, const GdnW *w, Gdn *a, bool on_q, bool on_k, Length *length) {
    const int64_t Hk = a->c->key_heads, dk = a->c->key_width, C = wrong_channels(a->c);
    gdn_causal.split(run, w, a);
    for (int64_t i = 0; i < a->T * Hk; i++)
        for (int k = 0; k < 2; k++) {
            if (!(k ? on_k : on_q)) continue;
            const double *row = a->conv + i / Hk * C + (k * Hk + i % Hk) * dk;
            const double factor = length(dot_ascending(row, row, dk), dk, a->c->l2_eps);
            for (int64_t j = 0; j < dk; j++) (k ? a->k : a->q)[i * dk + j] = row[j] * factor;
        }
}
static void split_mean(Run *run, const GdnW *w, Gdn *a) { split_with(run, w, a, true, true, by_mean); }
static void split_max(Run *run, const GdnW *w, Gdn *a) { split_with(run, w, a, true, true, by_max); }
static void split_raw_q(Run *run, const GdnW *w, Gdn *a) { split_with(run, w, a, true, false, as_it_is); }
static void split_raw_k(Run *run, const GdnW *w, Gdn *a) { split_with(run, w, a, false, true, as_it_is); }
static void split_k_first(Run *run, const GdnW *w, Gdn *a) {
    Gdn b = *a;
    b.q = a->k, b.k = a->q;
    gdn_causal.split(run, w, &b);
}
static void set_mean(HypothesisRules *r) { r->gdn[0].split = r->gdn[1].split = split_mean; }
static void set_max(HypothesisRules *r) { r->gdn[0].split = r->gdn[1].split = split_max; }
static void set_raw_q(HypothesisRules *r) { r->gdn[0].split = r->gdn[1].split = split_raw_q; }
static void set_raw_k(HypothesisRules *r) { r->gdn[0].split = r->gdn[1].split = split_raw_k; }
static void set_k_first(HypothesisRules *r) { r->gdn[0].split = r->gdn[1].split = split_k_first; }

/* ---- key heads of value heads [GDN-5] -------------------------------------------------------------------------- */

/* The right rule on one key head for each value head: h mod Hk's. */
static void with_tiled_heads(Run *run, const GdnW *w, Gdn *a, GdnRule *right) {
    const int64_t Hk = a->c->key_heads, Hv = a->c->value_heads, dk = a->c->key_width, n = a->T * Hv * dk;
    double *room = wrong_room(run, 2 * n);
    if (!room) {
        right(run, w, a);
        return;
    }
    CloverConfig c = *a->c;
    Gdn b = *a;
    c.key_heads = Hv;
    b.c = &c, b.q = room, b.k = room + n;
    for (int64_t i = 0; i < a->T * Hv; i++) {
        const int64_t from = i / Hv * Hk + i % Hv % Hk;
        memcpy(b.q + i * dk, a->q + from * dk, (size_t)dk * sizeof(double));
        memcpy(b.k + i * dk, a->k + from * dk, (size_t)dk * sizeof(double));
    }
    right(run, w, &b);
    free(room);
}
static void mix_tiled(Run *run, const GdnW *w, Gdn *a) { with_tiled_heads(run, w, a, gdn_causal.mix); }
static void weigh_tiled(Run *run, const GdnW *w, Gdn *a) { with_tiled_heads(run, w, a, gdn_preview.weigh); }
static void preview_mix_tiled(Run *run, const GdnW *w, Gdn *a) { with_tiled_heads(run, w, a, gdn_preview.mix); }
static void set_tiled(HypothesisRules *r) { r->gdn[0].mix = mix_tiled, r->gdn[1].weigh = weigh_tiled, r->gdn[1].mix = preview_mix_tiled; }

/* ---- the delta rule [GDN-6] ------------------------------------------------------------------------------------ */

typedef enum Order { READ_BEFORE_WRITE, DECAY_AFTER_UPDATE, DECAY_AFTER_READ } Order;

static void scale_row(double *x, double factor, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}
/* y [dv] = S^T x */
static void read_state(double *y, const double *S, const double *x, int64_t dk, int64_t dv) {
    memset(y, 0, (size_t)dv * sizeof *y);
    for (int64_t i = 0; i < dk * dv; i++) y[i % dv] += S[i] * x[i / dv];
}
static void delta_rule(const Run *run, Gdn *a, Order order) {
    const int64_t Hk = a->c->key_heads, Hv = a->c->value_heads, dk = a->c->key_width, dv = a->c->value_width;
    memcpy(a->state, a->S0, (size_t)(Hv * dk * dv) * sizeof(double));
    for (int64_t th = 0; th < a->T * Hv; th++) {
        const int64_t h = th % Hv, kh = th / Hv * Hk + h / (Hv / Hk);
        const double *q = a->q + kh * dk, *k = a->k + kh * dk, *v = a->v + th * dv, decay = el_exp(a->g[th]);
        double *S = a->state + h * dk * dv, *o = a->mixed + th * dv, *d = a->d;
        if (order == READ_BEFORE_WRITE) scale_row(S, decay, dk * dv);
        read_state(d, S, k, dk, dv);
        if (order == READ_BEFORE_WRITE) read_state(o, S, q, dk, dv);
        if (order == DECAY_AFTER_READ) scale_row(S, decay, dk * dv);
        for (int64_t j = 0; j < dv; j++) d[j] = a->beta[th] * (v[j] - d[j]);
        for (int64_t i = 0; i < dk * dv; i++) S[i] += k[i / dv] * d[i % dv];
        if (order == DECAY_AFTER_UPDATE) scale_row(S, decay, dk * dv);
        round_row(run->inner, S, dk * dv);
        if (order != READ_BEFORE_WRITE) read_state(o, S, q, dk, dv);
        for (int64_t j = 0; j < dv; j++) o[j] = round_to(run->storage, o[j] / sqrt((double)dk));
    }
}
static void mix_read_before(Run *run, const GdnW *w, Gdn *a) { (void)w, delta_rule(run, a, READ_BEFORE_WRITE); }
static void mix_decay_last(Run *run, const GdnW *w, Gdn *a) { (void)w, delta_rule(run, a, DECAY_AFTER_UPDATE); }
static void mix_decay_late(Run *run, const GdnW *w, Gdn *a) { (void)w, delta_rule(run, a, DECAY_AFTER_READ); }
static void set_read_before(HypothesisRules *r) { r->gdn[0].mix = mix_read_before; }
static void set_decay_last(HypothesisRules *r) { r->gdn[0].mix = mix_decay_last; }
static void set_decay_late(HypothesisRules *r) { r->gdn[0].mix = mix_decay_late; }

static void mix_without_beta(Run *run, const GdnW *w, Gdn *a) {
    double *one = wrong_room(run, a->T * a->c->value_heads);
    Gdn b = *a;
    for (int64_t i = 0; one && i < a->T * a->c->value_heads; i++) one[i] = 1;
    if (one) b.beta = one;
    gdn_causal.mix(run, w, &b);
    free(one);
}
static void mix_without_decay(Run *run, const GdnW *w, Gdn *a) {
    double *zero = wrong_times(run, a->g, 0, a->T * a->c->value_heads);
    Gdn b = *a;
    if (zero) b.g = zero;
    gdn_causal.mix(run, w, &b);
    free(zero);
}
static void set_without_beta(HypothesisRules *r) { r->gdn[0].mix = mix_without_beta; }
static void set_without_decay(HypothesisRules *r) { r->gdn[0].mix = mix_without_decay; }

/* q is only read out with, so that q * sqrt(dk) makes up for 1/sqrt(dk); the written state stays right. */
static void mix_unscaled(Run *run, const GdnW *w, Gdn *a, GdnRule *right) {
    double *q = wrong_times(run, a->q, sqrt((double)a->c->key_width), a->T * a->c->key_heads * a->c->key_width);
    Gdn b = *a;
    if (q) b.q = q;
    right(run, w, &b);
    free(q);
}
static void commit_unscaled(Run *run, const GdnW *w, Gdn *a) { mix_unscaled(run, w, a, gdn_causal.mix); }
static void preview_unscaled(Run *run, const GdnW *w, Gdn *a) { mix_unscaled(run, w, a, gdn_preview.mix); }
static void set_unscaled(HypothesisRules *r) { r->gdn[0].mix = commit_unscaled, r->gdn[1].mix = preview_unscaled; }

/* ---- head norm and z gate [GDN-7] ------------------------------------------------------------------------------ */

static void gate_then_norm(Run *run, const GdnW *w, Gdn *a) {
    const int64_t dv = a->c->value_width;
    for (int64_t i = 0; i < values(a); i++) a->gated[i] = round_to(run->storage, a->mixed[i] * silu(a->z[i]));
    for (int64_t i = 0; i < values(a); i += dv) rms_norm(a->gated + i, a->gated + i, w->norm, dv, a->c->rms_eps);
    round_row(run->storage, a->gated, values(a));
}
static void gate_with(Run *run, const GdnW *w, Gdn *a, double (*of_z)(double)) {
    const int64_t dv = a->c->value_width;
    const Storage s = run->storage;
    for (int64_t i = 0; i < values(a); i += dv) rms_norm(a->gated + i, a->mixed + i, NULL, dv, a->c->rms_eps);
    for (int64_t i = 0; i < values(a); i++) a->gated[i] = round_to(s, round_to(s, round_to(s, a->gated[i]) * w->norm[i % dv]) * of_z(a->z[i]));
}
static double always_open(double z) { return (void)z, 1.0; }
static void gate_sigmoid(Run *run, const GdnW *w, Gdn *a) { gate_with(run, w, a, sigmoid); }
static void gate_missing(Run *run, const GdnW *w, Gdn *a) { gate_with(run, w, a, always_open); }
static void set_gate_then_norm(HypothesisRules *r) { r->gdn[0].gate = r->gdn[1].gate = gate_then_norm; }
static void set_gate_sigmoid(HypothesisRules *r) { r->gdn[0].gate = r->gdn[1].gate = gate_sigmoid; }
static void set_gate_missing(HypothesisRules *r) { r->gdn[0].gate = r->gdn[1].gate = gate_missing; }

#define A_LAYER "a GDN layer"
static const Hypothesis list[] = {
    { .name = "gdn_beta_doubled", .kind = HYPOTHESIS_STAGE, .clause = "GDN-2", .stages = "gdn.beta", .rules = set_beta_doubled,
      .says = "lets beta run from 0 to 2", .right = "beta = sigmoid(b)", .wrong = "beta = 2 sigmoid(b)",
      .shows = "Corrections overshoot; the state may grow.", .needs = A_LAYER, .report = "", .lint = "" },
    { .name = "gdn_beta_bf16", .kind = HYPOTHESIS_STAGE, .clause = "GDN-2", .stages = "gdn.beta", .rules = set_beta_coarse,
      .says = "rounds beta to bf16", .right = "beta = sigmoid(b) in float32", .wrong = "beta = bf16(sigmoid(b))",
      .shows = "The state drifts over hundreds of tokens.", .needs = A_LAYER, .report = "vllm-project/vllm PR 53877", .lint = "" },
    { .name = "dt_bias_missing", .kind = HYPOTHESIS_STAGE, .clause = "GDN-2", .stages = "gdn.g", .rules = set_without_bias,
      .says = "leaves out dt_bias", .right = "g = -rate softplus(a + dt_bias)", .wrong = "g = -rate softplus(a)",
      .shows = "Every head forgets at another speed than it was trained for.", .needs = A_LAYER, .report = "", .lint = "" },
    { .name = "dt_bias_after_softplus", .kind = HYPOTHESIS_STAGE, .clause = "GDN-2", .stages = "gdn.g", .rules = set_bias_late,
      .says = "adds dt_bias after the softplus", .right = "g = -rate softplus(a + dt_bias)", .wrong = "g = -rate (softplus(a) + dt_bias)",
      .shows = "A negative bias can make a state grow.", .needs = A_LAYER, .report = "", .lint = "" },
    { .name = "a_log_as_decay", .kind = HYPOTHESIS_STAGE, .clause = "GDN-2", .stages = "gdn.g", .rules = set_raw,
      .says = "takes raw A_log for -exp(A_log)", .right = "g = -exp(A_log) softplus(a + dt_bias)", .wrong = "g = A_log softplus(a + dt_bias)",
      .shows = "Where A_log > 0 the state grows without bound: 0.04, 110, inf; the text is one token for ever.", .needs = A_LAYER,
      .report = "kekzl/imp issue 1282, PR 1284; the article on the drifted Clover GGUF", .lint = "a-log-raw" },
    { .name = "a_exp_twice", .kind = HYPOTHESIS_STAGE, .clause = "GDN-2", .stages = "gdn.g", .rules = set_exp_twice,
      .says = "exponentiates A twice", .right = "g = -exp(A_log) softplus(a + dt_bias)", .wrong = "g = -exp(exp(A_log)) softplus(a + dt_bias)",
      .shows = "Fine on short prompts, breaks on long ones: the state forgets too fast.", .needs = A_LAYER,
      .report = "lucasjinreal/Crane PR 99; 1bit-MONSTER issue 1460", .lint = "a-exp-twice" },
    { .name = "a_exp_of_ssm_a", .kind = HYPOTHESIS_STAGE, .clause = "GDN-2", .stages = "gdn.g", .rules = set_exp_of_stored,
      .says = "exponentiates a GGUF's ssm_a, which is -exp(A_log) already", .right = "g = ssm_a softplus(a + dt_bias)",
      .wrong = "g = -exp(ssm_a) softplus(a + dt_bias)",
      .shows = "Fine on short prompts, breaks on long ones: heads forget at nearly one speed.", .needs = A_LAYER,
      .report = "lucasjinreal/Crane PR 99; 1bit-MONSTER issue 1460", .lint = "a-exp-twice" },
    { .name = "softplus_missing", .kind = HYPOTHESIS_STAGE, .clause = "GDN-2", .stages = "gdn.g", .rules = set_without_softplus,
      .says = "leaves out the softplus", .right = "g = -rate softplus(a + dt_bias)", .wrong = "g = -rate (a + dt_bias)",
      .shows = "Where a + dt_bias < 0 the state grows.", .needs = A_LAYER, .report = "", .lint = "" },
    { .name = "conv_taps_reversed", .kind = HYPOTHESIS_STAGE, .clause = "GDN-3", .stages = "gdn.conv", .rules = set_reversed,
      .says = "reads the convolution's taps from last to first", .right = "w[taps-1] meets the row itself", .wrong = "w[0] meets the row itself",
      .shows = "The first GDN layer's conv is off in every row.", .needs = A_LAYER, .report = "", .lint = "conv-reversed" },
    { .name = "conv_transposed", .kind = HYPOTHESIS_STAGE, .clause = "GDN-3", .stages = "gdn.conv", .rules = set_transposed,
      .says = "reads the convolution's kernel as [taps, C] instead of [C, taps]", .right = "w[c, j] at c * taps + j", .wrong = "w[c, j] at j * C + c",
      .shows = "The first GDN layer's conv is noise.", .needs = A_LAYER, .report = "ikawrakow/ik_llama.cpp PR 1654; sgl-project/sglang PR 36864",
      .lint = "conv-layout" },
    { .name = "conv_without_silu", .kind = HYPOTHESIS_STAGE, .clause = "GDN-3", .stages = "gdn.conv", .rules = set_linear,
      .says = "leaves out the SiLU after the convolution", .right = "SiLU(sum of taps)", .wrong = "sum of taps",
      .shows = "Negative values survive that should nearly vanish.", .needs = A_LAYER, .report = "", .lint = "" },
    { .name = "l2_mean", .kind = HYPOTHESIS_STAGE, .clause = "ROW-2", .stages = "gdn.q gdn.k", .rules = set_mean,
      .says = "normalises q and k by the mean of squares instead of the sum", .right = "x / sqrt(sum x^2 + eps)", .wrong = "x / sqrt(mean x^2 + eps)",
      .shows = "q and k are sqrt(dk) too long; the state blows up after some twenty tokens.", .needs = A_LAYER, .report = "1bit-MONSTER PR 2134",
      .lint = "" },
    { .name = "l2_max_eps", .kind = HYPOTHESIS_STAGE, .clause = "ROW-2", .stages = "gdn.q gdn.k", .rules = set_max,
      .says = "takes the L2 norm's epsilon as a lower bound instead of adding it inside the root", .right = "x / sqrt(sum x^2 + eps)",
      .wrong = "x / max(sqrt(sum x^2), eps)",
      .shows = "A small drift where q or k are short.", .needs = A_LAYER ", heads whose squares sum to little",
      .report = "ggml-org/llama.cpp PR 28068; huggingface/transformers PR 40842", .lint = "" },
    { .name = "l2_missing_on_q", .kind = HYPOTHESIS_STAGE, .clause = "GDN-4", .stages = "gdn.q", .rules = set_raw_q,
      .says = "does not normalise q", .right = "q / |q|", .wrong = "q",
      .shows = "What is read has another size; the state is right.", .needs = A_LAYER, .report = "", .lint = "" },
    { .name = "l2_missing_on_k", .kind = HYPOTHESIS_STAGE, .clause = "GDN-4", .stages = "gdn.k", .rules = set_raw_k,
      .says = "does not normalise k", .right = "k / |k|", .wrong = "k",
      .shows = "The state is written with other lengths and may blow up.", .needs = A_LAYER, .report = "", .lint = "" },
    { .name = "gdn_qk_swapped", .kind = HYPOTHESIS_STAGE, .clause = "GDN-4", .stages = "gdn.q gdn.k", .rules = set_k_first,
      .says = "takes the convolution's channels as k | q | v", .right = "q | k | v", .wrong = "k | q | v",
      .shows = "q and k are each other.", .needs = A_LAYER, .report = "", .lint = "" },
    { .name = "gdn_heads_tiled", .kind = HYPOTHESIS_STAGE, .clause = "GDN-5", .stages = "gdn.state gdn.block_weights gdn.mixed", .rules = set_tiled,
      .says = "pairs value heads tiled instead of grouped", .right = "key head = h div r", .wrong = "key head = h mod Hk",
      .shows = "All \"!\"; correlation with right outputs 0.04 to 0.17.", .needs = A_LAYER " of two key heads that several value heads share",
      .report = "weicj/vLLM-2080Ti-Definitive PR 107; sgl-project/sglang PR 19584, 38363; ggml-org/llama.cpp PR 19468", .lint = "head-order" },
    { .name = "gdn_read_before_write", .kind = HYPOTHESIS_STAGE, .clause = "GDN-6", .stages = "gdn.mixed", .rules = set_read_before,
      .says = "reads the state before the row is written", .right = "S = S + k d^T; o = S^T q", .wrong = "o = S^T q; S = S + k d^T",
      .shows = "The state is right, every output is one row late; row 0 reads nothing.", .needs = A_LAYER ", a commit", .report = "", .lint = "" },
    { .name = "gdn_decay_after_update", .kind = HYPOTHESIS_STAGE, .clause = "GDN-6", .stages = "gdn.state gdn.mixed", .rules = set_decay_last,
      .says = "decays the state after the update instead of before", .right = "S = e^g S, then S = S + k d^T",
      .wrong = "S = S + k d^T, then S = e^g S",
      .shows = "The new row is decayed at once.", .needs = A_LAYER ", a commit", .report = "", .lint = "" },
    { .name = "gdn_decay_after_read", .kind = HYPOTHESIS_STAGE, .clause = "GDN-6", .stages = "gdn.state gdn.mixed", .rules = set_decay_late,
      .says = "takes the correction from the state before its decay", .right = "d = beta (v - (e^g S)^T k)",
      .wrong = "d = beta (v - S^T k); S = e^g S + k d^T",
      .shows = "Right from an empty state, off from the second row on.", .needs = A_LAYER ", a commit of a row after the first", .report = "",
      .lint = "" },
    { .name = "gdn_decay_missing", .kind = HYPOTHESIS_STAGE, .clause = "GDN-6", .stages = "gdn.state gdn.mixed", .rules = set_without_decay,
      .says = "never decays the state", .right = "S = e^g S", .wrong = "S = S",
      .shows = "Right from an empty state, off from the second row on.", .needs = A_LAYER ", a commit of a row after the first", .report = "",
      .lint = "" },
    { .name = "gdn_beta_missing", .kind = HYPOTHESIS_STAGE, .clause = "GDN-6", .stages = "gdn.state gdn.mixed", .rules = set_without_beta,
      .says = "does not use beta", .right = "d = beta (v - S^T k)", .wrong = "d = v - S^T k",
      .shows = "Each row overwrites what it should correct.", .needs = A_LAYER ", a commit", .report = "", .lint = "" },
    { .name = "gdn_q_unscaled", .kind = HYPOTHESIS_STAGE, .clause = "GDN-6", .stages = "gdn.mixed", .rules = set_unscaled,
      .says = "does not divide what it reads from the state by sqrt(dk)", .right = "o = S^T q / sqrt(dk)", .wrong = "o = S^T q",
      .shows = "The head norm hides it in commits, but for its epsilon; previews weigh the history too heavily.", .needs = A_LAYER, .report = "",
      .lint = "" },
    { .name = "gdn_gate_before_norm", .kind = HYPOTHESIS_STAGE, .clause = "GDN-7", .stages = "gdn.gated", .rules = set_gate_then_norm,
      .says = "applies the z gate before the head norm", .right = "RMSNorm(o) * SiLU(z)", .wrong = "RMSNorm(o * SiLU(z))",
      .shows = "The gate cannot close a head any more.", .needs = A_LAYER, .report = "", .lint = "" },
    { .name = "gdn_gate_sigmoid", .kind = HYPOTHESIS_STAGE, .clause = "GDN-7", .stages = "gdn.gated", .rules = set_gate_sigmoid,
      .says = "gates by sigmoid(z) instead of SiLU(z)", .right = "RMSNorm(o) * z sigmoid(z)", .wrong = "RMSNorm(o) * sigmoid(z)",
      .shows = "Signs are lost wherever z is negative.", .needs = A_LAYER, .report = "", .lint = "" },
    { .name = "gdn_gate_missing", .kind = HYPOTHESIS_STAGE, .clause = "GDN-7", .stages = "gdn.gated", .rules = set_gate_missing,
      .says = "does not apply the z gate", .right = "RMSNorm(o) * SiLU(z)", .wrong = "RMSNorm(o)",
      .shows = "Every head is fully open.", .needs = A_LAYER, .report = "", .lint = "" },
};
const HypothesisList hypotheses_gdn = HYPOTHESES(list);
