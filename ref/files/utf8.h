/* utf8.h - UTF-8 checked byte by byte, and put into Unicode's normal form C. [TOK-1] [TOK-7] */
#ifndef CLOVER_UTF8_H
#define CLOVER_UTF8_H

#include "../clover.h"

/* Is text[0..length) UTF-8 as Unicode defines it (no surrogates, nothing overlong, nothing above U+10FFFF)? When not,
 * *bad is the offset at which the first invalid part starts. */
bool utf8_valid(const char *text, size_t length, size_t *bad);

/* NFC of valid UTF-8; NUL bytes are characters like others. *out is malloc'ed, not terminated, never NULL. */
CloverStatus utf8_nfc(const char *text, size_t length, char **out, size_t *out_length, CloverError *err);

#endif
