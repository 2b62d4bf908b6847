/* sample.c - drawing a token. [SMP-1] */
#include <math.h>
#include <stdlib.h>
#include "sample.h"
#include "math/rowwise.h"

/* ---- the generator [SMP-4] ---------------------------------------------------------------------------------------------- */

uint64_t splitmix64_next(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void generator_seed(Generator *g, uint64_t seed) {
    for (int i = 0; i < 4; i++) g->state[i] = splitmix64_next(&seed);
}

static uint64_t rotate_left(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

uint64_t generator_next(Generator *g) {
    uint64_t *s = g->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double generator_uniform(Generator *g) {
    return (double)(generator_next(g) >> 11) * 0x1p-53;
}

/* ---- the distribution ------------------------------------------------------------------------------------------- */

static int by_falling_value(const void *a, const void *b) {
    const RankedId *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;       /* equal: the lower id first */
}

static void rank(RankedId *ranked, const double *values, int64_t vocab) {
    for (int64_t i = 0; i < vocab; i++) ranked[i] = (RankedId){ values[i], (int32_t)i };
    qsort(ranked, (size_t)vocab, sizeof *ranked, by_falling_value);
}

/* [SMP-2] Keeps every logit that is not below the k-th largest, so ties with it stay. */
static void keep_top_k(double *p, int64_t vocab, int64_t top_k, RankedId *work) {
    rank(work, p, vocab);
    double least = work[top_k - 1].value;
    for (int64_t i = 0; i < vocab; i++)
        if (p[i] < least) p[i] = -INFINITY;
}

/* [SMP-3] Drops an id once the mass before it exceeds top_p: the id that carries the mass over the bound stays. */
static void keep_top_p(double *p, int64_t vocab, double top_p, RankedId *work) {
    rank(work, p, vocab);
    double before = 0;
    for (int64_t i = 0; i < vocab; i++) {
        if (before > top_p) p[work[i].id] = 0;
        before += work[i].value;
    }
    double kept = 0;
    for (int64_t i = 0; i < vocab; i++) kept += p[i];
    for (int64_t i = 0; i < vocab; i++) p[i] /= kept;
}

void sample_distribution(double *p, const double *logits, int64_t vocab, double temperature, int64_t top_k, double top_p,
                         RankedId *work) {
    double largest = -INFINITY;
    for (int64_t i = 0; i < vocab; i++) if (logits[i] > largest) largest = logits[i];

    /* The maximum goes before the division, so that no temperature, however small, overflows. */
    for (int64_t i = 0; i < vocab; i++) p[i] = (logits[i] - largest) / temperature;
    if (top_k > 0 && top_k < vocab) keep_top_k(p, vocab, top_k, work);
    softmax(p, vocab);
    if (top_p < 1) keep_top_p(p, vocab, top_p, work);
}

/* [SMP-5] */
int32_t sample_draw(const double *p, int64_t vocab, double uniform) {
    int32_t last = 0;
    double mass = 0;
    for (int64_t i = 0; i < vocab; i++) {
        if (p[i] == 0) continue;
        mass += p[i];
        last = (int32_t)i;
        if (mass > uniform) break;
    }
    return last;                                     /* rounding can leave the whole mass a little below 1 */
}
