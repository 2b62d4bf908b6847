/* diff_profile.c - what a profile's engines do beyond rounding values: the same mathematics in another order, or another
 * epsilon, met in sound engines. Only the floor of a diff's budget is made with it. [NUM-8] */
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "diff_parts.h"

enum { CHUNK = 64 };                 /* rows that the chunked delta rule takes at once */

/* Running sum of g over the rows of t's chunk, as float32 may hold it: off by half a unit in the last place, up in one row
 * and down in the next. */
static double running_sum(const double *g, int64_t t, int64_t stride) {
    double sum = 0;
    for (int64_t s = t / CHUNK * CHUNK; s <= t; s++) sum += g[s * stride];
    return sum * (t % 2 ? 1 + 0x1p-24 : 1 - 0x1p-24);
}

/* Engines that work in chunks take a row's decay from the difference of two running sums, which loses the last digits of a
 * large sum. The delta rule itself is the right one, on such decays. */
static void mix_in_chunks(Run *run, const GdnW *w, Gdn *a) {
    const int64_t Hv = a->c->value_heads;
    const size_t bytes = (size_t)(a->T * Hv) * sizeof *a->g;
    double *g = malloc(bytes);
    if (!g) {
        error_memory(run->err, "a profile's decays", bytes);
        return;
    }
    memcpy(g, a->g, bytes);
    for (int64_t t = 0; t < a->T; t++)
        for (int64_t h = 0; h < Hv; h++) a->g[t * Hv + h] = running_sum(g + h, t, Hv) - (t % CHUNK ? running_sum(g + h, t - 1, Hv) : 0);
    gdn_causal.mix(run, w, a);
    memcpy(a->g, g, bytes);
    free(g);
}

/* Keys and values go through a float16 cache, those of the step itself too. */
static void attend_half(Run *run, const AttnW *w, Attn *a, AttnRule *attend) {
    const int64_t width = a->c->kv_heads * a->c->head_width, past = a->past * width, now = a->T * width;
    const size_t bytes = (size_t)(2 * (past + now)) * sizeof(double);
    double *half = malloc(bytes);
    if (!half) {
        error_memory(run->err, "a profile's float16 cache", bytes);
        return;
    }
    Attn rounded = *a;
    double *const k_past = half, *const v_past = half + past;
    rounded.k_past = k_past, rounded.v_past = v_past;
    rounded.k_rope = half + 2 * past, rounded.v = half + 2 * past + now;
    for (int64_t i = 0; i < past; i++) k_past[i] = round_to_type(DT_F16, a->k_past[i]), v_past[i] = round_to_type(DT_F16, a->v_past[i]);
    for (int64_t i = 0; i < now; i++) rounded.k_rope[i] = round_to_type(DT_F16, a->k_rope[i]), rounded.v[i] = round_to_type(DT_F16, a->v[i]);
    attend(run, w, &rounded);
    free(half);
}
static void attend_half_causal(Run *run, const AttnW *w, Attn *a) { attend_half(run, w, a, attn_causal.attend); }
static void attend_half_preview(Run *run, const AttnW *w, Attn *a) { attend_half(run, w, a, attn_preview.attend); }

void diff_profile(CloverSession *s, const DiffOptions *options, ProfileRules *rules) {
    const CloverNumerics profile = options->profile;
    rules->gdn = gdn_causal;
    rules->gdn.mix = mix_in_chunks;
    s->rules.gdn_commit = &rules->gdn;
    if (options->half_cache) {
        rules->attn[0] = attn_causal, rules->attn[1] = attn_preview;
        rules->attn[0].attend = attend_half_causal, rules->attn[1].attend = attend_half_preview;
        s->rules.attn_commit = &rules->attn[0], s->rules.attn_preview = &rules->attn[1];
    }
    /* llama.cpp's L2 norm was x / max(|x|, epsilon) until mid 2026: no epsilon where a vector is longer than that. */
    if (profile == CLOVER_LLAMA_CPP) s->c.l2_eps = 1e-12;
}
