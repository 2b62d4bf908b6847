/* config.h - a model's numbers from GGUF keys or from config.json and generation_config.json. [CFG] */
#ifndef CLOVER_CONFIG_H
#define CLOVER_CONFIG_H

#include "gguf.h"

/* A size that could not be read and was reported: config_check says nothing more of it. */
#define CONFIG_REPORTED INT64_MIN

/* Fill *config, and report every missing, contradictory or unsupported value at once (error_add, one line each: the
 * key, what was expected, what was found, what to do). Keys that SPEC CFG gives a default may be absent. as_is: accept
 * what makes a file drifted (a missing rope.dimension_count, expert_shared_count), as a naive loader would; mend: take
 * the right value for it. Default: a drift is refused with the mend named. */
CloverStatus config_from_gguf(const Gguf *g, CloverDriftMode drifts, CloverConfig *config, CloverError *err);

/* folder: holds config.json (text_config nested or not) and perhaps generation_config.json. Drifts do not occur there. */
CloverStatus config_from_folder(const char *folder, CloverConfig *config, CloverError *err);

/* How a GGUF says that its diffusion tensors order value heads: *tiled is 1, 0 or, when it does not say, -1. [CFG-12] */
CloverStatus config_head_order(const Gguf *g, int *tiled, CloverError *err);

/* Checks that both share: positive sizes, divisibility (heads by KV heads, value heads by key heads), even rotary dims <= width, k <= E,
 * ids inside the vocabulary, bounds that keep every product of sizes inside 62 bits. Adds its problems to *err, which the caller
 * has cleared; both of the above call it. */
CloverStatus config_check(const CloverConfig *config, const char *where, CloverError *err);

#endif
