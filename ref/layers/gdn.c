/* gdn.c - Gated DeltaNet, causal and preview side by side. [GDN, PRV]
 *
 * Causal: a notebook S that is corrected row by row. Preview: the block's rows read each other through one softmax, in
 * which the notebook is one more slot; nothing is written. The two share projections, gates, split and the output; they
 * differ in how the convolution sees the block's end and in how rows are mixed. */
#include <math.h>
#include <string.h>
#include "../math/elementary.h"
#include "layers.h"

static int64_t channels(const CloverConfig *c) { return 2 * c->key_heads * c->key_width + c->value_heads * c->value_width; }

/* [GDN-1] */
static void project(Run *run, const GdnW *w, Gdn *a) {
    linear(run, &w->qkv, a->x, a->T, a->qkv);
    linear(run, &w->z, a->x, a->T, a->z);
    linear(run, &w->beta, a->x, a->T, a->b);
    linear(run, &w->alpha, a->x, a->T, a->a);
}

/* How strongly a row writes, and how much of the past it keeps: beta in (0, 1), g = ln(decay) < 0. [GDN-2] */
static void gates(Run *run, const GdnW *w, Gdn *a) {
    const int64_t Hv = a->c->value_heads;
    for (int64_t t = 0; t < a->T; t++)
        for (int64_t h = 0; h < Hv; h++) {
            a->beta[t * Hv + h] = round_to(run->storage, sigmoid(a->b[t * Hv + h]));
            a->g[t * Hv + h] = -w->rate[h] * softplus(a->a[t * Hv + h] + w->dt_bias[h]);
        }
}

/* Row `row` of [ring | step]: rows before the step come from the ring. */
static const double *conv_row(const Gdn *a, int64_t row) {
    const int64_t C = channels(a->c), past = a->c->taps - 1;
    return row < past ? a->ring + row * C : a->qkv + (row - past) * C;
}

/* Depthwise convolution along the rows: the last tap reads the row itself, the others the rows before it. [GDN-3] */
static void conv_causal(Run *run, const GdnW *w, Gdn *a) {
    const int64_t C = channels(a->c), taps = a->c->taps;
    for (int64_t t = 0; t < a->T; t++)
        for (int64_t ch = 0; ch < C; ch++) {
            double sum = 0;
            for (int64_t j = 0; j < taps; j++) sum += w->conv[ch * taps + j] * conv_row(a, t + j)[ch];
            a->conv[t * C + ch] = round_to(run->storage, silu(round_to(run->storage, sum)));
        }
}

/* In a preview the rows after are read too; those past the block's end contribute nothing. [PRV-2] */
static void conv_preview(Run *run, const GdnW *w, Gdn *a) {
    const int64_t C = channels(a->c), taps = a->c->taps;
    for (int64_t t = 0; t < a->T; t++)
        for (int64_t ch = 0; ch < C; ch++) {
            double sum = 0;
            for (int64_t j = 0; j < taps; j++) sum += w->conv[ch * taps + j] * conv_row(a, t + j)[ch];
            for (int64_t d = 1; d < taps && t + d < a->T; d++)
                sum += w->conv_right[ch * (taps - 1) + d - 1] * a->qkv[(t + d) * C + ch];
            a->conv[t * C + ch] = round_to(run->storage, silu(round_to(run->storage, sum)));
        }
}

/* Channels are q | k | v; each q and k head is made a unit vector. [GDN-4] */
static void split(Run *run, const GdnW *w, Gdn *a) {
    (void)run, (void)w;
    const int64_t Hk = a->c->key_heads, Hv = a->c->value_heads, dk = a->c->key_width, dv = a->c->value_width;
    const int64_t K = Hk * dk, C = channels(a->c);
    for (int64_t t = 0; t < a->T; t++) {
        const double *row = a->conv + t * C;
        for (int64_t h = 0; h < Hk; h++) {
            l2_norm(a->q + (t * Hk + h) * dk, row + h * dk, dk, a->c->l2_eps);
            l2_norm(a->k + (t * Hk + h) * dk, row + K + h * dk, dk, a->c->l2_eps);
        }
        memcpy(a->v + t * Hv * dv, row + 2 * K, (size_t)(Hv * dv) * sizeof(double));
    }
}

/* y [dv] = S^T x, key dimensions added in ascending order.  S [dk, dv], x [dk]. */
static void read_state(double *y, const double *S, const double *x, int64_t dk, int64_t dv) {
    memset(y, 0, (size_t)dv * sizeof(double));
    for (int64_t i = 0; i < dk; i++)
        for (int64_t j = 0; j < dv; j++) y[j] += S[i * dv + j] * x[i];
}

/* The delta rule: decay the notebook, see what it says under this key, correct it by beta times the difference, read.
 * [GDN-6] */
static void mix_causal(Run *run, const GdnW *w, Gdn *a) {
    (void)w;
    const int64_t Hk = a->c->key_heads, Hv = a->c->value_heads, dk = a->c->key_width, dv = a->c->value_width;
    memcpy(a->state, a->S0, (size_t)(Hv * dk * dv) * sizeof(double));
    for (int64_t t = 0; t < a->T; t++)
        for (int64_t h = 0; h < Hv; h++) {
            const int64_t kh = h / (Hv / Hk);   /* the key head of value head h [GDN-5] */
            const double *q = a->q + (t * Hk + kh) * dk, *k = a->k + (t * Hk + kh) * dk, *v = a->v + (t * Hv + h) * dv;
            const double decay = el_exp(a->g[t * Hv + h]), beta = a->beta[t * Hv + h], scale = sqrt((double)dk);
            double *S = a->state + h * dk * dv, *o = a->mixed + (t * Hv + h) * dv, *d = a->d;

            for (int64_t i = 0; i < dk * dv; i++) S[i] *= decay;
            read_state(d, S, k, dk, dv);
            for (int64_t j = 0; j < dv; j++) d[j] = beta * (v[j] - d[j]);
            for (int64_t i = 0; i < dk; i++)
                for (int64_t j = 0; j < dv; j++) S[i * dv + j] += k[i] * d[j];
            round_row(run->inner, S, dk * dv);
            read_state(o, S, q, dk, dv);
            for (int64_t j = 0; j < dv; j++) o[j] = round_to(run->storage, o[j] / scale);
        }
}

/* One softmax over the block's rows and the history slot, which comes last. [PRV-3, PRV-5] */
static void weigh_preview(Run *run, const GdnW *w, Gdn *a) {
    (void)run;
    const int64_t Hk = a->c->key_heads, Hv = a->c->value_heads, dk = a->c->key_width;
    const int64_t n = a->T;
    const double log_size = el_log((double)n / 32.0);   /* 32 is a constant of the model, not the block size in use [PRV-4] */
    for (int64_t t = 0; t < n; t++)
        for (int64_t h = 0; h < Hv; h++) {
            const int64_t kh = h / (Hv / Hk);
            double *slot = a->weights + (t * Hv + h) * (n + 1);
            for (int64_t s = 0; s < n; s++)
                slot[s] = w->logit_scale[h] * dot_ascending(a->q + (t * Hk + kh) * dk, a->k + (s * Hk + kh) * dk, dk);
            slot[n] = w->history_bias[h] + w->history_c[h] * log_size;
            softmax(slot, n + 1);
        }
}

/* Values of the block by their weights, then the history: what the decayed notebook says under this row's query.
 * [PRV-6] */
static void mix_preview(Run *run, const GdnW *w, Gdn *a) {
    (void)w;
    const int64_t Hk = a->c->key_heads, Hv = a->c->value_heads, dk = a->c->key_width, dv = a->c->value_width;
    const int64_t n = a->T;
    const double scale = sqrt((double)dk);
    for (int64_t t = 0; t < n; t++)
        for (int64_t h = 0; h < Hv; h++) {
            const double *q = a->q + (t * Hk + h / (Hv / Hk)) * dk, *weight = a->weights + (t * Hv + h) * (n + 1);
            const double decay = el_exp(a->g[t * Hv + h]);   /* the row's own gate, not a running sum */
            double *o = a->mixed + (t * Hv + h) * dv, *history = a->d;

            memset(o, 0, (size_t)dv * sizeof(double));
            for (int64_t s = 0; s < n; s++)
                for (int64_t j = 0; j < dv; j++) o[j] += weight[s] * a->v[(s * Hv + h) * dv + j];
            read_state(history, a->S0 + h * dk * dv, q, dk, dv);
            for (int64_t j = 0; j < dv; j++)
                o[j] = round_to(run->storage, o[j] + weight[n] * (decay * (history[j] / scale)));
        }
}

/* The head norm's weight is a plain factor; then the z gate. [GDN-7] */
static void gate(Run *run, const GdnW *w, Gdn *a) {
    const int64_t dv = a->c->value_width;
    const Storage s = run->storage;
    for (int64_t i = 0; i < a->T * a->c->value_heads; i++) {
        double *y = a->gated + i * dv;
        rms_norm(y, a->mixed + i * dv, NULL, dv, a->c->rms_eps);
        for (int64_t j = 0; j < dv; j++)
            y[j] = round_to(s, round_to(s, round_to(s, y[j]) * w->norm[j]) * silu(a->z[i * dv + j]));
    }
}

static void out(Run *run, const GdnW *w, Gdn *a) { linear(run, &w->out, a->gated, a->T, a->out); }

/* A preview differs in three rules; the rest is shared. [PRV-7] */
const GdnRules gdn_causal = { project, gates, conv_causal, split, NULL, mix_causal, gate, out };
const GdnRules gdn_preview = { project, gates, conv_preview, split, weigh_preview, mix_preview, gate, out };

void gdn_layer(Run *run, const Tap *t, const GdnW *w, const GdnRules *r, Gdn *a) {
    const int64_t Hk = a->c->key_heads, Hv = a->c->value_heads, dk = a->c->key_width, dv = a->c->value_width;
    const int64_t T = a->T, C = channels(a->c);
    r->project(run, w, a);
    tap(t, "gdn.qkv", a->qkv, 2, T, C);
    tap(t, "gdn.z", a->z, 3, T, Hv, dv);
    r->gates(run, w, a);
    tap(t, "gdn.beta", a->beta, 2, T, Hv);
    tap(t, "gdn.g", a->g, 2, T, Hv);
    r->conv(run, w, a);
    tap(t, "gdn.conv", a->conv, 2, T, C);
    r->split(run, w, a);
    tap(t, "gdn.q", a->q, 3, T, Hk, dk);
    tap(t, "gdn.k", a->k, 3, T, Hk, dk);
    tap(t, "gdn.v", a->v, 3, T, Hv, dv);
    if (r->weigh) {
        r->weigh(run, w, a);
        tap(t, "gdn.block_weights", a->weights, 3, T, Hv, T + 1);
        r->mix(run, w, a);
    } else {
        r->mix(run, w, a);
        tap(t, "gdn.state", a->state, 3, Hv, dk, dv);
    }
    tap(t, "gdn.mixed", a->mixed, 3, T, Hv, dv);
    r->gate(run, w, a);
    tap(t, "gdn.gated", a->gated, 3, T, Hv, dv);
    r->out(run, w, a);
    tap(t, "mixer", a->out, 2, T, a->c->hidden);
}
