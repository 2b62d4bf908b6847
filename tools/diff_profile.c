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

void diff_profile(CloverSession *s, CloverNumerics profile, GdnRules *rules) {
    *rules = gdn_causal;
    rules->mix = mix_in_chunks;
    s->rules.gdn_commit = rules;
    /* llama.cpp's L2 norm was x / max(|x|, epsilon) until mid 2026: no epsilon where a vector is longer than that. */
    if (profile == CLOVER_LLAMA_CPP) s->c.l2_eps = 1e-12;
}
