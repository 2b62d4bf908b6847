/* error.c - filling a CloverError. [ERR] */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "error.h"

void error_clear(CloverError *err) {
    err->status = CLOVER_OK;
    err->text[0] = '\0';
}

CloverStatus error_set(CloverError *err, CloverStatus status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return err->status = status;
}

/* The last line when problems did not fit: room is kept for it. */
enum { TAIL_ROOM = 64 };
static const char tail_format[] = "... and %d more problem%s";

CloverStatus error_add(CloverError *err, CloverStatus status, const char *format, ...) {
    if (err->status == CLOVER_OK) err->text[0] = '\0';
    if (err->status == CLOVER_OK || (err->status == CLOVER_UNSUPPORTED && status == CLOVER_BAD_INPUT)) err->status = status;

    size_t used = strlen(err->text);
    char *tail = strrchr(err->text, '\n');
    int more = 0;
    char suffix[8];
    if (tail && sscanf(tail + 1, "... and %d more problem%1s", &more, suffix) >= 1) {
        snprintf(tail + 1, TAIL_ROOM, tail_format, more + 1, "s");
        return err->status;
    }
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const char *separator = used ? "\n" : "";
    if (used + 1 + strlen(line) + TAIL_ROOM < sizeof err->text)
        snprintf(err->text + used, sizeof err->text - used, "%s%s", separator, line);
    else
        snprintf(err->text + used, sizeof err->text - used, "%s... and 1 more problem", separator);
    return err->status;
}

CloverStatus error_memory(CloverError *err, const char *what, size_t bytes) {
    return error_set(err, CLOVER_SYSTEM, "out of memory: %s needs %zu bytes (%.1f MiB)", what, bytes, (double)bytes / 1048576.0);
}
