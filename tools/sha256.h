/* sha256.h - SHA-256 as hex digits, over bytes that come in pieces or over a file. */
#ifndef CLOVER_SHA256_H
#define CLOVER_SHA256_H

#include "../ref/error.h"

enum { SHA256_HEX = 65 };            /* 64 digits and the NUL */

typedef struct Sha256 { void *context; bool failed; } Sha256;

CloverStatus sha256_begin(Sha256 *s, CloverError *err);
void sha256_add(Sha256 *s, const void *bytes, size_t n);
CloverStatus sha256_end(Sha256 *s, char hex[SHA256_HEX], CloverError *err);   /* frees what begin took */

/* A file that is missing or unreadable is CLOVER_SYSTEM, named. */
CloverStatus sha256_file(const char *path, char hex[SHA256_HEX], CloverError *err);

#endif
