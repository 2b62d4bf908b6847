/* wrong.h - what the wrong rules share: most give the right rule changed copies of its inputs. */
#ifndef CLOVER_WRONG_H
#define CLOVER_WRONG_H

#include <stdlib.h>
#include <string.h>
#include "../../ref/error.h"
#include "hypothesis.h"

#define HYPOTHESES(list) { (list), (int)(sizeof (list) / sizeof *(list)) }

/* n doubles, or NULL and the run's sticky error; the caller then does it right, so that its outputs hold something. Free it. */
static inline double *wrong_room(Run *run, int64_t n) {
    double *room = malloc((size_t)n * sizeof *room + 1);
    if (!room) error_memory(run->err, "a hypothesis", (size_t)n * sizeof *room);
    return room;
}

/* factor * x [n], in room of its own. */
static inline double *wrong_times(Run *run, const double *x, double factor, int64_t n) {
    double *copy = wrong_room(run, n);
    for (int64_t i = 0; copy && i < n; i++) copy[i] = factor * x[i];
    return copy;
}

/* x [n] + shift, in room of its own. */
static inline double *wrong_plus(Run *run, const double *x, double shift, int64_t n) {
    double *copy = wrong_room(run, n);
    for (int64_t i = 0; copy && i < n; i++) copy[i] = x[i] + shift;
    return copy;
}

/* Of x [n, row], each row from its last element to its first. */
static inline double *wrong_reversed(Run *run, const double *x, int64_t n, int64_t row) {
    double *copy = wrong_room(run, n * row);
    for (int64_t i = 0; copy && i < n * row; i++) copy[i] = x[i / row * row + row - 1 - i % row];
    return copy;
}

static inline int64_t wrong_channels(const CloverConfig *c) { return 2 * c->key_heads * c->key_width + c->value_heads * c->value_width; }

#endif
