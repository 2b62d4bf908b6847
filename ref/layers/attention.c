/* attention.c - full attention with an output gate, causal and preview side by side. [ATT]
 *
 * The two forms differ in one rule only: which rows a query may see. A causal row sees the cache and the rows up to
 * itself; a block row sees the cache and the whole block. The caller decides whether the new keys and values are kept. */
#include <math.h>
#include <string.h>
#include "../math/elementary.h"
#include "layers.h"

/* q_proj holds, head by head, `width` query rows and then `width` gate rows: [T, H, 2, width]. [ATT-1] */
static void project(Run *run, const AttnW *w, Attn *a) {
    const int64_t T = a->T, H = a->c->heads, width = a->c->head_width;
    linear(run, &w->q, a->x, T, a->qg);
    linear(run, &w->k, a->x, T, a->k);
    linear(run, &w->v, a->x, T, a->v);
    for (int64_t i = 0; i < T * H; i++) {
        memcpy(a->q + i * width, a->qg + i * 2 * width, (size_t)width * sizeof(double));
        memcpy(a->gate + i * width, a->qg + (i * 2 + 1) * width, (size_t)width * sizeof(double));
    }
}

/* Each query and key head is RMS-normalised over its own width. [ATT-2] */
static void norm(Run *run, const AttnW *w, Attn *a) {
    const int64_t T = a->T, H = a->c->heads, Hkv = a->c->kv_heads, width = a->c->head_width;
    for (int64_t i = 0; i < T * H; i++) rms_norm(a->q_norm + i * width, a->q + i * width, w->q_norm, width, a->c->rms_eps);
    for (int64_t i = 0; i < T * Hkv; i++) rms_norm(a->k_norm + i * width, a->k + i * width, w->k_norm, width, a->c->rms_eps);
    round_row(run->storage, a->q_norm, T * H * width);
    round_row(run->storage, a->k_norm, T * Hkv * width);
}

/* Rotates pairs (i, i + R/2) of one head by the row's angles [R/2, 2]; dims from R on pass. [ATT-3] */
static void rotate_head(Storage s, double *y, const double *x, const double *angles, int64_t R, int64_t width) {
    for (int64_t i = 0; i < R / 2; i++) {
        const double c = angles[2 * i], sn = angles[2 * i + 1], lo = x[i], hi = x[i + R / 2];
        y[i] = round_to(s, round_to(s, lo * c) - round_to(s, hi * sn));
        y[i + R / 2] = round_to(s, round_to(s, hi * c) + round_to(s, lo * sn));
    }
    for (int64_t i = R; i < width; i++) y[i] = x[i];
}

static void rotate(Run *run, const AttnW *w, Attn *a) {
    (void)w;
    const int64_t T = a->T, H = a->c->heads, Hkv = a->c->kv_heads, width = a->c->head_width, R = a->c->rotary_dims;
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < R / 2; i++) {
            const double frequency = round_to(run->inner, el_pow(a->c->rope_base, -2.0 * (double)i / (double)R));
            const double angle = round_to(run->inner, (double)(a->past + t) * frequency);
            a->angles[(t * (R / 2) + i) * 2] = round_to(run->storage, el_cos(angle));
            a->angles[(t * (R / 2) + i) * 2 + 1] = round_to(run->storage, el_sin(angle));
        }
    for (int64_t t = 0; t < T; t++) {
        const double *angles = a->angles + t * R;
        for (int64_t h = 0; h < H; h++)
            rotate_head(run->storage, a->q_rope + (t * H + h) * width, a->q_norm + (t * H + h) * width, angles, R, width);
        for (int64_t h = 0; h < Hkv; h++)
            rotate_head(run->storage, a->k_rope + (t * Hkv + h) * width, a->k_norm + (t * Hkv + h) * width, angles, R, width);
    }
}

/* One query head over `visible` rows: the `past` cached ones, then the step's own from its first on. [ATT-4] */
static void attend_head(Storage s, Attn *a, int64_t t, int64_t h, int64_t visible) {
    const int64_t H = a->c->heads, Hkv = a->c->kv_heads, width = a->c->head_width, g = h / (H / Hkv);
    const double scale = 1.0 / sqrt((double)width);
    const double *q = a->q_rope + (t * H + h) * width;
    double *context = a->context + (t * H + h) * width;

    for (int64_t p = 0; p < visible; p++) {
        const double *k = p < a->past ? a->k_past + (p * Hkv + g) * width : a->k_rope + ((p - a->past) * Hkv + g) * width;
        a->scores[p] = round_to(s, round_to(s, dot_ascending(q, k, width)) * scale);
    }
    softmax(a->scores, visible);
    round_row(s, a->scores, visible);

    memset(context, 0, (size_t)width * sizeof(double));
    for (int64_t p = 0; p < visible; p++) {   /* positions in ascending order */
        const double *v = p < a->past ? a->v_past + (p * Hkv + g) * width : a->v + ((p - a->past) * Hkv + g) * width;
        for (int64_t i = 0; i < width; i++) context[i] += a->scores[p] * v[i];
    }
    round_row(s, context, width);
}

/* A row sees the cache and the step's rows up to itself. [ATT-5] */
static void attend_causal(Run *run, const AttnW *w, Attn *a) {
    (void)w;
    for (int64_t t = 0; t < a->T; t++)
        for (int64_t h = 0; h < a->c->heads; h++) attend_head(run->storage, a, t, h, a->past + t + 1);
}

/* A row of a block sees the cache and the whole block. [ATT-6] */
static void attend_preview(Run *run, const AttnW *w, Attn *a) {
    (void)w;
    for (int64_t t = 0; t < a->T; t++)
        for (int64_t h = 0; h < a->c->heads; h++) attend_head(run->storage, a, t, h, a->past + a->T);
}

/* [ATT-7] */
static void gate(Run *run, const AttnW *w, Attn *a) {
    (void)w;
    const Storage s = run->storage;
    for (int64_t i = 0; i < a->T * a->c->heads * a->c->head_width; i++)
        a->gated[i] = round_to(s, a->context[i] * round_to(s, sigmoid(a->gate[i])));
}

static void out(Run *run, const AttnW *w, Attn *a) { linear(run, &w->o, a->gated, a->T, a->out); }

const AttnRules attn_causal = { project, norm, rotate, attend_causal, gate, out };
const AttnRules attn_preview = { project, norm, rotate, attend_preview, gate, out };

void attn_layer(Run *run, const Tap *t, const AttnW *w, const AttnRules *r, Attn *a) {
    const int64_t T = a->T, H = a->c->heads, Hkv = a->c->kv_heads, width = a->c->head_width;
    r->project(run, w, a);
    tap(t, "attn.q", a->q, 3, T, H, width);
    tap(t, "attn.gate", a->gate, 3, T, H, width);
    tap(t, "attn.k", a->k, 3, T, Hkv, width);
    tap(t, "attn.v", a->v, 3, T, Hkv, width);
    r->norm(run, w, a);
    tap(t, "attn.q_norm", a->q_norm, 3, T, H, width);
    tap(t, "attn.k_norm", a->k_norm, 3, T, Hkv, width);
    r->rotate(run, w, a);
    tap(t, "attn.q_rope", a->q_rope, 3, T, H, width);
    tap(t, "attn.k_rope", a->k_rope, 3, T, Hkv, width);
    r->attend(run, w, a);
    tap(t, "attn.context", a->context, 3, T, H, width);
    r->gate(run, w, a);
    tap(t, "attn.gated", a->gated, 3, T, H, width);
    r->out(run, w, a);
    tap(t, "mixer", a->out, 2, T, a->c->hidden);
}
