/* sample.h - drawing a token: a seeded generator and the distribution that a row of logits leaves. [SMP-1, SMP-6] */
#ifndef CLOVER_SAMPLE_H
#define CLOVER_SAMPLE_H

#include <stdint.h>
#include "clover.h"

/* xoshiro256** 1.0 (Blackman and Vigna), its state filled by SplitMix64 from one 64-bit seed [SMP-4]. One generator serves one
 * decode; the same seed gives the same draws on every machine. */
typedef struct Generator { uint64_t state[4]; } Generator;

uint64_t splitmix64_next(uint64_t *state);
void generator_seed(Generator *g, uint64_t seed);
uint64_t generator_next(Generator *g);
double generator_uniform(Generator *g);              /* [0, 1): the upper 53 bits, times 2^-53 */

typedef struct RankedId { double value; int32_t id; } RankedId;

/* [SMP-1] The distribution that a token is drawn from, p [V], out of a processed row of logits [V] (which p may not be):
 * logits / temperature (> 0), the top_k largest logits and their equals (0: all), softmax, then in descending order
 * (equal: lower id first) whatever the mass before exceeds top_p is dropped, the first never; renormalised.
 * At least one logit must be finite and none NaN or +infinity. work: [V]. */
void sample_distribution(double *p, const double *logits, int64_t vocab, double temperature, int64_t top_k, double top_p,
                         RankedId *work);

/* [SMP-5] The id that a uniform number of [0, 1) draws: the lowest whose mass, added in ascending ids, exceeds it. An id of
 * mass zero is never drawn. */
int32_t sample_draw(const double *p, int64_t vocab, double uniform);

#endif
