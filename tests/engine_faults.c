/* engine_faults.c - what public ports got wrong, and their like: one fault each, and the stage where it enters. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "engine.h"

/* ---- the trunk ----------------------------------------------------------------------------------------------------- */

static void embed_scaled(Run *run, const Weights *w, const CloverConfig *c, const int32_t *ids, int64_t T, double *h) {
    trunk_rules.embed(run, w, c, ids, T, h);
    for (int64_t i = 0; i < T * c->hidden; i++) h[i] *= sqrt((double)c->hidden);
}
static void residual_lost(Run *run, const double *y, int64_t n, double *h) {
    (void)run;
    memcpy(h, y, (size_t)n * sizeof *h);
}
static void logits_capped(Run *run, const Weights *w, const double *x, int64_t T, double *logits) {
    trunk_rules.head(run, w, x, T, logits);
    for (int64_t i = 0; i < T * w->head.rows; i++) logits[i] = 3 * tanh(logits[i] / 3);
}
/* Norms whose weight is the plain factor: w and not 1 + w, which is what w->… hold. */
static void norm_plain(Run *run, const double *weight, const CloverConfig *c, const double *h, int64_t T, double *x) {
    trunk_rules.norm(run, weight, c, h, T, x);
    for (int64_t i = 0; i < T * c->hidden; i++) x[i] *= weight[i % c->hidden] == 0 ? 1 : (weight[i % c->hidden] - 1) / weight[i % c->hidden];
}
static void set_embed_scaled(EngineRules *r) { r->trunk.embed = embed_scaled; }
static void set_residual_lost(EngineRules *r) { r->trunk.add = residual_lost; }
static void set_logits_capped(EngineRules *r) { r->trunk.head = logits_capped; }
static void set_norm_plain(EngineRules *r) { r->trunk.norm = norm_plain; }
static void epsilon(CloverSession *s) { s->c.rms_eps = 1e-3; }

/* ---- full attention ------------------------------------------------------------------------------------------------ */

static void attn_swapped(Run *run, const AttnW *w, Attn *a) {   /* gate rows first */
    attn_causal.project(run, w, a);
    for (int64_t i = 0; i < a->T * a->c->heads * a->c->head_width; i++) {
        const double q = a->q[i];
        a->q[i] = a->gate[i], a->gate[i] = q;
    }
}
static void attn_no_q_norm(Run *run, const AttnW *w, Attn *a) {
    attn_causal.norm(run, w, a);
    memcpy(a->q_norm, a->q, (size_t)(a->T * a->c->heads * a->c->head_width) * sizeof(double));
}
static void attn_adjacent(Run *run, const AttnW *w, Attn *a) {   /* pairs (2i, 2i+1) */
    attn_causal.rotate(run, w, a);
    const int64_t T = a->T, R = a->c->rotary_dims, width = a->c->head_width;
    double *const to[2] = { a->q_rope, a->k_rope }, *const from[2] = { a->q_norm, a->k_norm };
    const int64_t heads[2] = { a->c->heads, a->c->kv_heads };
    for (int k = 0; k < 2; k++)
        for (int64_t th = 0; th < T * heads[k]; th++)
            for (int64_t i = 0; i < R / 2; i++) {
                const double c = a->angles[(th / heads[k] * (R / 2) + i) * 2], s = a->angles[(th / heads[k] * (R / 2) + i) * 2 + 1];
                const double x = from[k][th * width + 2 * i], y = from[k][th * width + 2 * i + 1];
                to[k][th * width + 2 * i] = x * c - y * s;
                to[k][th * width + 2 * i + 1] = y * c + x * s;
            }
}
static void attn_v_unrotated_k(Run *run, const AttnW *w, Attn *a) {   /* keys stay where they are */
    attn_causal.rotate(run, w, a);
    memcpy(a->k_rope, a->k_norm, (size_t)(a->T * a->c->kv_heads * a->c->head_width) * sizeof(double));
}
/* Queries 1 + 1/8 times as long: the scale is 1/sqrt of something else. */
static void attn_scale(Run *run, const AttnW *w, Attn *a) {
    const int64_t n = a->T * a->c->heads * a->c->head_width;
    double *right = malloc((size_t)n * sizeof *right);
    memcpy(right, a->q_rope, (size_t)n * sizeof *right);
    for (int64_t i = 0; i < n; i++) a->q_rope[i] *= 1.125;
    attn_causal.attend(run, w, a);
    memcpy(a->q_rope, right, (size_t)n * sizeof *right);
    free(right);
}
static void attn_ungated(Run *run, const AttnW *w, Attn *a) {
    (void)run, (void)w;
    memcpy(a->gated, a->context, (size_t)(a->T * a->c->heads * a->c->head_width) * sizeof(double));
}
static void attn_gate_silu(Run *run, const AttnW *w, Attn *a) {
    (void)run, (void)w;
    for (int64_t i = 0; i < a->T * a->c->heads * a->c->head_width; i++) a->gated[i] = a->context[i] * silu(a->gate[i]);
}
static void set_swapped(EngineRules *r) { r->attn[0].project = r->attn[1].project = attn_swapped; }
static void set_no_q_norm(EngineRules *r) { r->attn[0].norm = r->attn[1].norm = attn_no_q_norm; }
static void set_adjacent(EngineRules *r) { r->attn[0].rotate = r->attn[1].rotate = attn_adjacent; }
static void set_unrotated_k(EngineRules *r) { r->attn[0].rotate = r->attn[1].rotate = attn_v_unrotated_k; }
static void set_scale(EngineRules *r) { r->attn[0].attend = attn_scale; }
static void set_all_visible(EngineRules *r) { r->attn[0].attend = attn_preview.attend; }
static void set_block_causal(EngineRules *r) { r->attn[1].attend = attn_causal.attend; }
static void set_ungated(EngineRules *r) { r->attn[0].gate = r->attn[1].gate = attn_ungated; }
static void set_gate_silu(EngineRules *r) { r->attn[0].gate = attn_gate_silu; }
static void rope_base(CloverSession *s) { s->c.rope_base = 10000; }

/* ---- Gated DeltaNet ------------------------------------------------------------------------------------------------ */

static int64_t values_of(const Gdn *a) { return a->T * a->c->value_heads * a->c->value_width; }
static int64_t channels_of(const Gdn *a) { return 2 * a->c->key_heads * a->c->key_width + a->c->value_heads * a->c->value_width; }

static void beta_doubled(Run *run, const GdnW *w, Gdn *a) {
    gdn_causal.gates(run, w, a);
    for (int64_t i = 0; i < a->T * a->c->value_heads; i++) a->beta[i] *= 2;
}
static void no_dt_bias(Run *run, const GdnW *w, Gdn *a) {
    gdn_causal.gates(run, w, a);
    for (int64_t i = 0; i < a->T * a->c->value_heads; i++) a->g[i] = -w->rate[i % a->c->value_heads] * softplus(a->a[i]);
}
static void taps_reversed(Run *run, const GdnW *w, Gdn *a) {
    const int64_t C = channels_of(a), taps = a->c->taps;
    double *reversed = malloc((size_t)(C * taps) * sizeof *reversed);
    for (int64_t i = 0; i < C * taps; i++) reversed[i] = w->conv[i / taps * taps + (taps - 1 - i % taps)];
    GdnW wrong = *w;
    wrong.conv = reversed;
    gdn_causal.conv(run, &wrong, a);
    free(reversed);
}
static void no_silu(Run *run, const GdnW *w, Gdn *a) {
    const int64_t C = channels_of(a), taps = a->c->taps;
    (void)run;
    for (int64_t i = 0; i < a->T * C; i++) {
        a->conv[i] = 0;
        for (int64_t j = 0; j < taps; j++) {
            const int64_t row = i / C + j - (taps - 1);
            a->conv[i] += w->conv[i % C * taps + j] * (row < 0 ? a->ring[(row + taps - 1) * C + i % C] : a->qkv[row * C + i % C]);
        }
    }
}
static void l2_mean(Run *run, const GdnW *w, Gdn *a) {
    gdn_causal.split(run, w, a);
    for (int64_t i = 0; i < a->T * a->c->key_heads * a->c->key_width; i++) {
        a->q[i] *= sqrt((double)a->c->key_width);
        a->k[i] *= sqrt((double)a->c->key_width);
    }
}
static void k_not_normalised(Run *run, const GdnW *w, Gdn *a) {
    gdn_causal.split(run, w, a);
    const int64_t K = a->c->key_heads * a->c->key_width;
    for (int64_t i = 0; i < a->T * K; i++) a->k[i] = a->conv[i / K * channels_of(a) + K + i % K];
}
/* The delta rule with other key heads: of value head h, h mod Hk; reads_old: o before the row is written. */
static void delta_rule(Gdn *a, bool tiled, bool reads_old, bool decays_late) {
    const int64_t Hk = a->c->key_heads, Hv = a->c->value_heads, dk = a->c->key_width, dv = a->c->value_width;
    memcpy(a->state, a->S0, (size_t)(Hv * dk * dv) * sizeof(double));
    for (int64_t t = 0; t < a->T; t++)
        for (int64_t h = 0; h < Hv; h++) {
            const int64_t kh = tiled ? h % Hk : h / (Hv / Hk);
            const double *q = a->q + (t * Hk + kh) * dk, *k = a->k + (t * Hk + kh) * dk, decay = exp(a->g[t * Hv + h]);
            double *S = a->state + h * dk * dv;
            for (int64_t j = 0; j < dv; j++) {
                double was = 0, o = 0;
                for (int64_t i = 0; i < dk; i++) {
                    if (!decays_late) S[i * dv + j] *= decay;
                    was += S[i * dv + j] * k[i];
                    o += S[i * dv + j] * q[i];
                    if (decays_late) S[i * dv + j] *= decay;
                }
                const double d = a->beta[t * Hv + h] * (a->v[(t * Hv + h) * dv + j] - was);
                double after = 0;
                for (int64_t i = 0; i < dk; i++) {
                    S[i * dv + j] += k[i] * d;
                    after += S[i * dv + j] * q[i];
                }
                a->mixed[(t * Hv + h) * dv + j] = (reads_old ? o : after) / sqrt((double)dk);
            }
        }
}
static void heads_tiled(Run *run, const GdnW *w, Gdn *a) { (void)run, (void)w; delta_rule(a, true, false, false); }
static void read_before_write(Run *run, const GdnW *w, Gdn *a) { (void)run, (void)w; delta_rule(a, false, true, false); }
static void decay_after_reading(Run *run, const GdnW *w, Gdn *a) { (void)run, (void)w; delta_rule(a, false, false, true); }
static void unscaled(Run *run, const GdnW *w, Gdn *a) {
    gdn_causal.mix(run, w, a);
    for (int64_t i = 0; i < values_of(a); i++) a->mixed[i] *= sqrt((double)a->c->key_width);
}
static void head_norm_shifted(Run *run, const GdnW *w, Gdn *a) {
    gdn_causal.gate(run, w, a);
    for (int64_t i = 0; i < values_of(a); i++) {
        const double f = w->norm[i % a->c->value_width];
        a->gated[i] *= f == 0 ? 1 : (1 + f) / f;
    }
}
static void z_sigmoid(Run *run, const GdnW *w, Gdn *a) {
    gdn_causal.gate(run, w, a);
    for (int64_t i = 0; i < values_of(a); i++) a->gated[i] = a->z[i] == 0 ? 0 : a->gated[i] / a->z[i];   /* silu(z) = z sigmoid(z) */
}
static void right_conv_lost(Run *run, const GdnW *w, Gdn *a) { gdn_causal.conv(run, w, a); }
static void weigh_with(Run *run, const GdnW *w, Gdn *a, bool no_c, double scale) {
    GdnW wrong = *w;
    const int64_t Hv = a->c->value_heads;
    double *changed = calloc((size_t)(2 * Hv), sizeof *changed);
    for (int64_t h = 0; h < Hv; h++) {
        changed[h] = no_c ? 0 : w->history_c[h];
        changed[Hv + h] = w->logit_scale[h] * scale;
    }
    wrong.history_c = changed;
    wrong.logit_scale = changed + Hv;
    gdn_preview.weigh(run, &wrong, a);
    free(changed);
}
static void c_ignored(Run *run, const GdnW *w, Gdn *a) { weigh_with(run, w, a, true, 1); }
static void weights_scaled(Run *run, const GdnW *w, Gdn *a) { weigh_with(run, w, a, false, 1 / sqrt((double)a->c->key_width)); }
static void no_history_slot(Run *run, const GdnW *w, Gdn *a) {
    gdn_preview.weigh(run, w, a);
    const int64_t slots = a->T + 1;
    for (int64_t i = 0; i < a->T * a->c->value_heads; i++) {
        double *slot = a->weights + i * slots, rest = 1 - slot[slots - 1];
        for (int64_t s = 0; s < slots; s++) slot[s] = s + 1 == slots ? 0 : slot[s] / rest;
    }
}
static void history_not_decayed(Run *run, const GdnW *w, Gdn *a) {
    const int64_t n = a->T * a->c->value_heads;
    double *g = malloc((size_t)n * sizeof *g);
    memcpy(g, a->g, (size_t)n * sizeof *g);
    memset(a->g, 0, (size_t)n * sizeof *g);
    gdn_preview.mix(run, w, a);
    memcpy(a->g, g, (size_t)n * sizeof *g);
    free(g);
}
static void beta_in_preview(Run *run, const GdnW *w, Gdn *a) {
    const int64_t n = values_of(a), dv = a->c->value_width;
    double *v = malloc((size_t)n * sizeof *v);
    memcpy(v, a->v, (size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) a->v[i] *= a->beta[i / dv];
    gdn_preview.mix(run, w, a);
    memcpy(a->v, v, (size_t)n * sizeof *v);
    free(v);
}
static void set_beta(EngineRules *r) { r->gdn[0].gates = r->gdn[1].gates = beta_doubled; }
static void set_no_dt_bias(EngineRules *r) { r->gdn[0].gates = r->gdn[1].gates = no_dt_bias; }
static void set_taps(EngineRules *r) { r->gdn[0].conv = taps_reversed; }
static void set_no_silu(EngineRules *r) { r->gdn[0].conv = no_silu; }
static void set_l2_mean(EngineRules *r) { r->gdn[0].split = r->gdn[1].split = l2_mean; }
static void set_k_raw(EngineRules *r) { r->gdn[0].split = r->gdn[1].split = k_not_normalised; }
static void set_tiled(EngineRules *r) { r->gdn[0].mix = heads_tiled; }
static void set_read_before(EngineRules *r) { r->gdn[0].mix = read_before_write; }
static void set_decay_late(EngineRules *r) { r->gdn[0].mix = decay_after_reading; }
static void set_unscaled(EngineRules *r) { r->gdn[0].mix = unscaled; }
static void set_head_norm(EngineRules *r) { r->gdn[0].gate = r->gdn[1].gate = head_norm_shifted; }
static void set_z_sigmoid(EngineRules *r) { r->gdn[0].gate = r->gdn[1].gate = z_sigmoid; }
static void set_right_conv(EngineRules *r) { r->gdn[1].conv = right_conv_lost; }
static void set_c_ignored(EngineRules *r) { r->gdn[1].weigh = c_ignored; }
static void set_weights_scaled(EngineRules *r) { r->gdn[1].weigh = weights_scaled; }
static void set_no_history(EngineRules *r) { r->gdn[1].weigh = no_history_slot; }
static void set_not_decayed(EngineRules *r) { r->gdn[1].mix = history_not_decayed; }
static void set_beta_in_preview(EngineRules *r) { r->gdn[1].mix = beta_in_preview; }

/* ---- the experts --------------------------------------------------------------------------------------------------- */

static void router_sigmoid(Run *run, const MoeW *w, Moe *a) {
    linear(run, &w->router, a->x, a->T, a->probs);
    for (int64_t i = 0; i < a->T * a->c->experts; i++) a->probs[i] = sigmoid(a->probs[i]);
}
static void not_renormalised(Run *run, const MoeW *w, Moe *a) {
    moe_causal.choose(run, w, a);
    for (int64_t i = 0; i < a->T * a->k; i++) a->weights[i] = a->probs[i / a->k * a->c->experts + (int64_t)a->ids[i]];
}
/* The next one in place of the last one chosen. */
static void off_by_one(Run *run, const MoeW *w, Moe *a) {
    moe_causal.choose(run, w, a);
    const int64_t E = a->c->experts, k = a->k;
    for (int64_t t = 0; t < a->T && k < E; t++) {
        int64_t next = -1;
        for (int64_t e = 0; e < E; e++) {
            bool chosen = a->coreset && a->coreset[e] == 0;
            for (int64_t i = 0; i < k; i++) chosen |= a->ids[t * k + i] == (double)e;
            if (!chosen && (next < 0 || a->probs[t * E + e] > a->probs[t * E + next])) next = e;
        }
        if (next >= 0) a->ids[t * k + k - 1] = (double)next;
    }
}
static void without_last(Run *run, const MoeW *w, Moe *a) {   /* the last expert is never added */
    moe_causal.experts(run, w, a);
    const int64_t D = a->c->hidden;
    memset(a->routed + (a->T - 1) * D, 0, (size_t)D * sizeof(double));
}
static void shared_halved(Run *run, const MoeW *w, Moe *a) {
    moe_causal.shared(run, w, a);
    for (int64_t i = 0; i < a->T * a->c->hidden; i++) a->shared[i] *= 0.5;
}
static void gate_not_squashed(Run *run, const MoeW *w, Moe *a) {
    moe_causal.shared(run, w, a);
    linear(run, &w->shared_gate, a->x, a->T, a->shared_gate);
}
static void shared_not_gated(Run *run, const MoeW *w, Moe *a) {
    (void)run, (void)w;
    for (int64_t i = 0; i < a->T * a->c->hidden; i++) a->out[i] = a->routed[i] + a->shared[i];
}
static void keep_all(Run *run, const MoeW *w, Moe *a) {
    (void)run, (void)w;
    for (int64_t e = 0; e < a->c->experts; e++) a->coreset[e] = 1;
}
static void keep_one_more(Run *run, const MoeW *w, Moe *a) {   /* the lowest id of those left out */
    moe_preview.keep(run, w, a);
    for (int64_t e = 0; e < a->c->experts; e++)
        if (a->coreset[e] == 0) {
            a->coreset[e] = 1;
            return;
        }
}
static void keep_one_less(Run *run, const MoeW *w, Moe *a) {   /* the first that is kept is lost */
    moe_preview.keep(run, w, a);
    for (int64_t e = 0; e < a->c->experts; e++)
        if (a->coreset[e] == 1) {
            a->coreset[e] = 0;
            return;
        }
}
static void coreset_not_obeyed(Run *run, const MoeW *w, Moe *a) {
    double *coreset = a->coreset;
    const int64_t k = a->k;
    a->coreset = NULL;
    moe_causal.choose(run, w, a);
    a->coreset = coreset;
    (void)k;
}
static void set_router(EngineRules *r) { r->moe[0].route = r->moe[1].route = router_sigmoid; }
static void set_not_renormalised(EngineRules *r) { r->moe[0].choose = r->moe[1].choose = not_renormalised; }
static void set_off_by_one(EngineRules *r) { r->moe[0].choose = off_by_one; }
static void set_without_last(EngineRules *r) { r->moe[0].experts = r->moe[1].experts = without_last; }
static void set_shared_halved(EngineRules *r) { r->moe[0].shared = r->moe[1].shared = shared_halved; }
static void set_gate_raw(EngineRules *r) { r->moe[0].shared = r->moe[1].shared = gate_not_squashed; }
static void set_not_gated(EngineRules *r) { r->moe[0].sum = r->moe[1].sum = shared_not_gated; }
static void set_keep_all(EngineRules *r) { r->moe[1].keep = keep_all; }
static void set_keep_more(EngineRules *r) { r->moe[1].keep = keep_one_more; }
static void set_keep_less(EngineRules *r) { r->moe[1].keep = keep_one_less; }
static void set_not_obeyed(EngineRules *r) { r->moe[1].choose = coreset_not_obeyed; }

/* ---- the state ----------------------------------------------------------------------------------------------------- */

static LayerState *first(CloverSession *s, bool attention) {
    int64_t l = 0;
    while (s->c.full_attention[l] != attention) l++;
    return &s->state.layer[l];
}
static void scale(double *x, int64_t n, double by) {
    for (int64_t i = 0; i < n; i++) x[i] *= by;
}
static int64_t S_size(const CloverSession *s) { return s->c.value_heads * s->c.key_width * s->c.value_width; }
static int64_t ring_size(const CloverSession *s) { return (s->c.taps - 1) * (2 * s->c.key_heads * s->c.key_width + s->c.value_heads * s->c.value_width); }

static void S_lost(CloverSession *s, const char *step) {
    if (strcmp(step, "prompt") == 0) scale(first(s, false)->S, S_size(s), 0);
}
static void ring_lost(CloverSession *s, const char *step) {
    if (strcmp(step, "prompt") == 0) scale(first(s, false)->ring, ring_size(s), 0);
}
static void key_lost(CloverSession *s, const char *step) {   /* of the first row */
    if (strcmp(step, "prompt") == 0) scale(first(s, true)->k, s->c.kv_heads * s->c.head_width, 0);
}
static void preview_writes_S(CloverSession *s, const char *step) {
    if (strcmp(step, "block") == 0) scale(first(s, false)->S, S_size(s), 0.75);
}
static void restore_forgets_ring(CloverSession *s, const char *step) {
    if (strcmp(step, "restore") == 0) scale(first(s, false)->ring, ring_size(s), 0);
}
static void positions_restart(CloverSession *s, const char *step) {   /* the cache is one row short of what it was */
    if (strcmp(step, "block") == 0) s->state.position -= 1;
}

const Fault engine_faults[] = {
    { "embedding scaled", "prompt", "embed", set_embed_scaled, NULL, NULL, false, false },
    { "residual lost", "prompt", "0.mixer_residual", set_residual_lost, NULL, NULL, false, false },
    { "logits capped", "prompt", "logits", set_logits_capped, NULL, NULL, false, false },
    { "norms plain", "prompt", "0.attn_norm", set_norm_plain, NULL, NULL, false, false },
    { "epsilon 1e-3", "prompt", "0.attn_norm", NULL, epsilon, NULL, false, true },
    { "q and gate swapped", "prompt", "A.attn.q", set_swapped, NULL, NULL, false, false },
    { "q not normalised", "prompt", "A.attn.q_norm", set_no_q_norm, NULL, NULL, false, false },
    { "rotary pairs adjacent", "prompt", "A.attn.q_rope", set_adjacent, NULL, NULL, false, false },
    { "rotary base 10000", "prompt", "A.attn.q_rope", NULL, rope_base, NULL, false, false },
    { "keys not rotated", "prompt", "A.attn.k_rope", set_unrotated_k, NULL, NULL, false, false },
    { "score scale", "prompt", "A.attn.context", set_scale, NULL, NULL, false, false },
    { "commit sees all rows", "prompt", "A.attn.context", set_all_visible, NULL, NULL, false, false },
    { "block is causal", "block", "A.attn.context", set_block_causal, NULL, NULL, false, false },
    { "output gate missing", "prompt", "A.attn.gated", set_ungated, NULL, NULL, false, false },
    { "output gate SiLU", "prompt", "A.attn.gated", set_gate_silu, NULL, NULL, false, false },
    { "beta doubled", "prompt", "G.gdn.beta", set_beta, NULL, NULL, false, false },
    { "dt_bias missing", "prompt", "G.gdn.g", set_no_dt_bias, NULL, NULL, false, false },
    { "taps reversed", "prompt", "G.gdn.conv", set_taps, NULL, NULL, false, false },
    { "conv without SiLU", "prompt", "G.gdn.conv", set_no_silu, NULL, NULL, false, false },
    { "L2 by the mean", "prompt", "G.gdn.q", set_l2_mean, NULL, NULL, false, false },
    { "k not normalised", "prompt", "G.gdn.k", set_k_raw, NULL, NULL, false, false },
    { "key heads tiled", "prompt", "G.gdn.state", set_tiled, NULL, NULL, false, false },
    { "read before write", "prompt", "G.gdn.mixed", set_read_before, NULL, NULL, false, false },
    { "decay after reading", "prompt", "G.gdn.state", set_decay_late, NULL, NULL, false, false },
    { "no 1/sqrt(dk)", "prompt", "G.gdn.mixed", set_unscaled, NULL, NULL, false, false },
    { "head norm 1 + w", "prompt", "G.gdn.gated", set_head_norm, NULL, NULL, false, false },
    { "z by sigmoid", "prompt", "G.gdn.gated", set_z_sigmoid, NULL, NULL, false, false },
    { "right conv missing", "block", "G.gdn.conv", set_right_conv, NULL, NULL, false, false },
    { "history_c ignored", "block", "G.gdn.block_weights", set_c_ignored, NULL, NULL, false, false },
    { "block scores scaled", "block", "G.gdn.block_weights", set_weights_scaled, NULL, NULL, false, false },
    { "no history slot", "block", "G.gdn.block_weights", set_no_history, NULL, NULL, false, false },
    { "history not decayed", "block", "G.gdn.mixed", set_not_decayed, NULL, NULL, false, false },
    { "beta in a preview", "block", "G.gdn.mixed", set_beta_in_preview, NULL, NULL, false, false },
    { "router sigmoid", "prompt", "0.moe.probs", set_router, NULL, NULL, false, false },
    { "weights not renormalised", "prompt", "0.moe.weights", set_not_renormalised, NULL, NULL, false, false },
    { "expert off by one", "prompt", "0.moe.ids", set_off_by_one, NULL, NULL, false, false },
    { "last row's experts lost", "prompt", "0.moe.routed", set_without_last, NULL, NULL, false, false },
    { "shared expert halved", "prompt", "0.moe.shared", set_shared_halved, NULL, NULL, false, false },
    { "shared gate raw", "prompt", "0.moe.shared_gate", set_gate_raw, NULL, NULL, false, false },
    { "shared gate missing", "prompt", "0.moe", set_not_gated, NULL, NULL, false, false },
    { "coreset ignored", "block", "0.moe.coreset", set_keep_all, NULL, NULL, true, false },
    { "coreset one more", "block", "0.moe.coreset", set_keep_more, NULL, NULL, true, false },
    { "coreset one less", "block", "0.moe.coreset", set_keep_less, NULL, NULL, true, false },
    { "coreset not obeyed", "block", "0.moe.ids", set_not_obeyed, NULL, NULL, true, false },
    { "S not carried", "block", "G.gdn.mixed", NULL, NULL, S_lost, false, false },
    { "ring not carried", "block", "G.gdn.conv", NULL, NULL, ring_lost, false, false },
    { "key not carried", "block", "A.attn.context", NULL, NULL, key_lost, false, false },
    { "preview writes S", "more", "G.gdn.state", NULL, NULL, preview_writes_S, false, false },
    { "restore forgets the ring", "again", "G.gdn.conv", NULL, NULL, restore_forgets_ring, false, false },
    { "position one back", "more", "A.attn.q_rope", NULL, NULL, positions_restart, false, false },
};
const int n_engine_faults = sizeof engine_faults / sizeof *engine_faults;
