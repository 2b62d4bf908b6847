/* show.h - decoding as it happens, told on a terminal. */
#ifndef CLOVER_SHOW_H
#define CLOVER_SHOW_H

#include <stdio.h>
#include "../ref/clover.h"

/* A step in words, on one line: for people. text of ids by t (may be NULL: ids as numbers); mask_id is shown as a dot. */
void show_step(FILE *out, const CloverEvent *event, const CloverTokenizer *t, int32_t mask_id);

/* The text of ids, whole characters only (what is no character is U+FFFD), malloc'ed; NULL when there is no memory. */
char *text_of(const CloverTokenizer *t, const int32_t *ids, int64_t n);

#endif
