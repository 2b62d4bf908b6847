/* utf8.c - UTF-8 checked byte by byte, streamed in whole characters, and normalised. [TOK-1] [TOK-7] */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "../error.h"
#include "utf8.h"

/* Length of the character that a byte starts; 0 when no character starts with it. */
static int length_from_lead(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;
    if (lead >= 0xE0 && lead <= 0xEF) return 3;
    if (lead >= 0xF0 && lead <= 0xF4) return 4;
    return 0;
}

/* May `byte` follow the n >= 1 bytes at s, which begin a character and do not complete it? The second byte's range
 * depends on the lead (Unicode table 3-7): it is what keeps out overlong forms, surrogates and values too large. */
static bool may_follow(const unsigned char *s, int n, unsigned char byte) {
    unsigned char low = 0x80, high = 0xBF;
    if (n == 1) switch (s[0]) {
        case 0xE0: low = 0xA0; break;
        case 0xED: high = 0x9F; break;
        case 0xF0: low = 0x90; break;
        case 0xF4: high = 0x8F; break;
        default: break;
    }
    return byte >= low && byte <= high;
}

size_t utf8_first_invalid(const char *text, size_t length) {
    const unsigned char *s = (const unsigned char *)text;
    for (size_t at = 0; at < length;) {
        int need = length_from_lead(s[at]), have = 1;
        while (have < need && at + (size_t)have < length && may_follow(s + at, have, s[at + (size_t)have])) have++;
        if (have != need) return at;
        at += (size_t)need;
    }
    return length;
}

/* ---- streaming ------------------------------------------------------------------------------------------------- */

static char *put_replacement(char *out) {
    memcpy(out, "\xEF\xBF\xBD", 3);
    return out + 3;
}

/* s->held always is the beginning of a character, so what is held when the next byte does not fit is one maximal
 * invalid part: the longest beginning of a character that stands there. */
size_t clover_utf8_feed(CloverUtf8Stream *s, const char *bytes, size_t length, bool end, char *out) {
    char *to = out;
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (s->n > 0 && !may_follow(s->held, s->n, byte)) {
            to = put_replacement(to);
            s->n = 0;
        }
        s->held[s->n++] = byte;
        int need = length_from_lead(s->held[0]);
        if (need == 0) {
            to = put_replacement(to);
            s->n = 0;
        } else if (s->n == need) {
            memcpy(to, s->held, (size_t)need);
            to += need;
            s->n = 0;
        }
    }
    if (end && s->n > 0) {
        to = put_replacement(to);
        s->n = 0;
    }
    return (size_t)(to - out);
}

/* ---- NFC ------------------------------------------------------------------------------------------------------- */

enum { MAX_DECOMPOSED = 4 };    /* code points of the longest canonical decomposition of one code point */

/* Sorting key of a combining mark: its class, then its place, so that equal classes keep their order. 8 + 35 + 21 bits. */
static uint64_t mark_key(int32_t code, size_t place) {
    uint64_t class_ = (uint64_t)utf8proc_get_property(code)->combining_class;
    return class_ << 56 | (uint64_t)place << 21 | (uint64_t)code;
}

static int compare_keys(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Canonical ordering: every run of marks in ascending class. utf8proc's own sorting is quadratic in the run, and a text
 * of a million marks is a text like others. key: room for n. */
static void order_marks(int32_t *code, size_t n, uint64_t *key) {
    for (size_t start = 0; start < n; start++) {
        size_t run = 0;
        while (start + run < n && utf8proc_get_property(code[start + run])->combining_class != 0) {
            key[run] = mark_key(code[start + run], run);
            run++;
        }
        if (run > 1) qsort(key, run, sizeof *key, compare_keys);
        for (size_t i = 0; i < run; i++) code[start + i] = (int32_t)(key[i] & 0x1FFFFF);
        start += run;
    }
}

/* No code point below U+0300 takes part in a composition as its second half or is changed by NFC. */
static bool is_surely_nfc(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] >= 0xCC) return false;
    return true;
}

static CloverStatus copy(const char *text, size_t length, char **out, size_t *out_length, CloverError *err) {
    *out = malloc(length + 1);
    if (!*out) return error_memory(err, "a text", length + 1);
    memcpy(*out, text, length);
    *out_length = length;
    return CLOVER_OK;
}

static size_t decompose(const char *text, size_t length, int32_t *code) {
    size_t n = 0;
    for (size_t at = 0; at < length;) {
        utf8proc_int32_t c;
        int boundary = 0;
        at += (size_t)utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(length - at), &c);
        n += (size_t)utf8proc_decompose_char(c, code + n, MAX_DECOMPOSED, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
    }
    return n;
}

CloverStatus utf8_nfc(const char *text, size_t length, char **out, size_t *out_length, CloverError *err) {
    if (is_surely_nfc(text, length)) return copy(text, length, out, out_length, err);

    size_t characters = 0;
    for (size_t i = 0; i < length; i++) characters += ((unsigned char)text[i] & 0xC0) != 0x80;
    size_t room = characters * MAX_DECOMPOSED;
    int32_t *code = malloc(room * sizeof *code);
    uint64_t *key = malloc(room * sizeof *key);
    char *bytes = malloc(room * 4);
    if (!code || !key || !bytes) {
        free(code), free(key), free(bytes);
        return error_memory(err, "normalising a text", room * (sizeof *code + sizeof *key + 4));
    }
    size_t n = decompose(text, length, code);
    order_marks(code, n, key);
    n = (size_t)utf8proc_normalize_utf32(code, (utf8proc_ssize_t)n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    char *to = bytes;
    for (size_t i = 0; i < n; i++) to += utf8proc_encode_char(code[i], (utf8proc_uint8_t *)to);
    free(code), free(key);
    *out = bytes;
    *out_length = (size_t)(to - bytes);
    return CLOVER_OK;
}
