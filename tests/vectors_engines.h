/* vectors_engines.h - dumps of engines with one known fault each, through clover diff. */
#ifndef CLOVER_VECTORS_ENGINES_H
#define CLOVER_VECTORS_ENGINES_H

#include <stdbool.h>

/* DIR/engines/KIND against DIR/tiny-a, in full, by layer outputs alone, and in float16. Calls told for each. */
typedef void EngineTold(void *user, bool ok, const char *what, const char *detail);
void vectors_engines(const char *dir, EngineTold *told, void *user);

#endif
