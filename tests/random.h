/* random.h - a seeded generator for tests: splitmix64, the same numbers everywhere. */
#ifndef CLOVER_TEST_RANDOM_H
#define CLOVER_TEST_RANDOM_H

#include <stdint.h>
#include <string.h>

static inline uint64_t random_bits(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Uniform in [low, high). */
static inline double random_between(uint64_t *state, double low, double high) {
    return low + (high - low) * ((double)(random_bits(state) >> 11) * 0x1p-53);
}

/* 2^e times a number in [1, 2), e uniform in [low, high]; positive. -1022 <= low, high <= 1023. */
static inline double random_magnitude(uint64_t *state, int low, int high) {
    uint64_t exponent = (uint64_t)(low + 1023) + random_bits(state) % (uint64_t)(high - low + 1);
    uint64_t bits = (exponent << 52) | (random_bits(state) >> 12);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
