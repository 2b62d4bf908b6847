/* utf8.h - UTF-8 checked byte by byte, and put into Unicode's normal form C. [TOK-1] [TOK-7] */
#ifndef CLOVER_UTF8_H
#define CLOVER_UTF8_H

#include "../clover.h"

/* Where the first part starts that is not UTF-8 as Unicode defines it (surrogates, overlong forms and values above
 * U+10FFFF are not); length when all is. */
size_t utf8_first_invalid(const char *text, size_t length);

/* NFC of valid UTF-8; NUL bytes are characters like others. *out is malloc'ed, not terminated, never NULL. */
CloverStatus utf8_nfc(const char *text, size_t length, char **out, size_t *out_length, CloverError *err);

#endif
