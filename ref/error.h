/* error.h - how the library fills a CloverError. */
#ifndef CLOVER_ERROR_H
#define CLOVER_ERROR_H

#include "clover.h"

#if defined(__GNUC__)
#define CLOVER_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define CLOVER_PRINTF(f, a)
#endif

void error_clear(CloverError *err);

/* Sets class and text (replacing what was there) and returns status, so that a failure is one line: return error_set(...). */
CloverStatus error_set(CloverError *err, CloverStatus status, const char *format, ...) CLOVER_PRINTF(3, 4);

/* Appends one problem as a line of its own. The class becomes `status` when there was none, and CLOVER_BAD_INPUT wins
 * over CLOVER_UNSUPPORTED. When the text is full, the last line counts what did not fit. */
CloverStatus error_add(CloverError *err, CloverStatus status, const char *format, ...) CLOVER_PRINTF(3, 4);

CloverStatus error_memory(CloverError *err, const char *what, size_t bytes);   /* "out of memory: WHAT needs N bytes" */

#endif
