/* tokenizer_build.c - from a vocabulary's texts, as a file lists them, to a tokenizer. [TOK-2] [TOK-6] */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../error.h"
#include "names.h"
#include "tokenizer_parts.h"
#include "utf8.h"

const char tokenizer_pattern_qwen35[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

void build_problem(TokenizerBuild *b, CloverStatus status, const char *format, ...) {
    char problem[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(problem, sizeof problem, format, args);
    va_end(args);
    error_add(b->err, status, "%s: %s", b->source, problem);
}

/* ---- GPT-2's byte alphabet [TOK-2] ----------------------------------------------------------------------------- */

/* Bytes that print stand for themselves, the others in ascending order for U+0100, U+0101, ... */
static void byte_alphabet(uint16_t character[256]) {
    uint16_t next = 0x100;
    for (uint16_t b = 0; b < 256; b++) {
        bool prints = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        character[b] = prints ? b : next++;
    }
}

/* UTF-8 of a character below U+0800; returns its length. */
static size_t put_character(uint16_t character, char out[2]) {
    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    out[0] = (char)(0xC0 | character >> 6);
    out[1] = (char)(0x80 | (character & 0x3F));
    return 2;
}

/* The bytes that a token's text stands for; out has room for length. A text with a character outside the alphabet
 * stands for itself, as in `tokenizers`: no text can encode to such a token, but a model may choose it. */
static size_t bytes_of_text(const int16_t byte_of[0x144], const char *text, size_t length, char *out) {
    size_t n = 0;
    for (size_t at = 0; at < length;) {
        unsigned char lead = (unsigned char)text[at];
        unsigned character = lead;
        size_t width = 1;
        if (lead >= 0xC2 && lead <= 0xDF && at + 1 < length) {
            character = (lead & 0x1Fu) << 6 | ((unsigned char)text[at + 1] & 0x3Fu);
            width = 2;
        }
        bool known = (lead < 0x80 || width == 2) && character < 0x144 && byte_of[character] >= 0;
        if (!known) {
            memcpy(out, text, length);
            return length;
        }
        out[n++] = (char)byte_of[character];
        at += width;
    }
    return n;
}

/* ---- texts to ids ---------------------------------------------------------------------------------------------- */

/* The slot of a text, or the empty one where it would go. FNV-1a, open addressing. */
static int32_t *text_slot(const TokenizerBuild *b, const char *text, size_t length) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < length; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001B3u;
    size_t i = (size_t)(h ^ h >> 32) & (b->slots - 1);
    for (; b->slot[i] >= 0; i = (i + 1) & (b->slots - 1)) {
        const TokenText *t = &b->token[b->slot[i]];
        if (t->length == length && memcmp(t->text, text, length) == 0) break;
    }
    return &b->slot[i];
}

CloverStatus build_begin(TokenizerBuild *b, int64_t n, size_t merges) {
    b->n = n;
    b->slots = 16;
    while (b->slots < (size_t)n * 2) b->slots *= 2;
    b->token = calloc((size_t)n + 1, sizeof *b->token);
    b->slot = malloc(b->slots * sizeof *b->slot);
    if (!b->token || !b->slot || !merge_table_new(&b->merges, merges))
        return error_memory(b->err, "a vocabulary", (size_t)n * sizeof *b->token + b->slots * sizeof *b->slot);
    for (size_t i = 0; i < b->slots; i++) b->slot[i] = -1;
    return CLOVER_OK;
}

void build_token(TokenizerBuild *b, int64_t id, TokenText token, const char *name) {
    if (id < 0 || id >= b->n) {
        build_problem(b, CLOVER_BAD_INPUT, "%s: id %lld is out of range", name, (long long)id);
        return;
    }
    TokenText *there = &b->token[id];
    int32_t *slot = text_slot(b, token.text, token.length);
    char text[NAME_SHOWN], other[NAME_SHOWN];
    if (*slot >= 0 && *slot != id)
        build_problem(b, CLOVER_BAD_INPUT, "%s: %s has two ids, %d and %lld", name,
                      name_show(token.text, token.length, text), (int)*slot, (long long)id);
    else if (there->kind != TOKEN_NONE && *slot != id)
        build_problem(b, CLOVER_BAD_INPUT, "%s: id %lld is both %s and %s", name, (long long)id,
                      name_show(there->text, there->length, other), name_show(token.text, token.length, text));
    else if (there->kind == TOKEN_ADDED)
        build_problem(b, CLOVER_BAD_INPUT, "%s: id %lld is listed twice", name, (long long)id);
    else if (token.kind == TOKEN_ADDED && token.length == 0)
        build_problem(b, CLOVER_BAD_INPUT, "%s: an added token without text", name);
    else {
        *there = token;
        *slot = (int32_t)id;
    }
}

/* [TOK-3] */
void build_merge(TokenizerBuild *b, int32_t rank, const char *left, size_t left_length, const char *right, size_t right_length) {
    int32_t left_id = *text_slot(b, left, left_length), right_id = *text_slot(b, right, right_length);
    char small[256], *whole = small;
    size_t length = left_length + right_length;
    if (length > sizeof small && !(whole = malloc(length))) {
        error_memory(b->err, "a merge", length);
        return;
    }
    memcpy(whole, left, left_length);
    memcpy(whole + left_length, right, right_length);
    int32_t result = *text_slot(b, whole, length);

    char shown[NAME_SHOWN], other[NAME_SHOWN];
    const char *absent = left_id < 0 ? name_show(left, left_length, shown) : right_id < 0 ? name_show(right, right_length, shown)
                       : result < 0 ? name_show(whole, length, shown) : NULL;
    if (absent)
        build_problem(b, CLOVER_BAD_INPUT, "merge %d: its %s %s is not in the vocabulary", (int)rank,
                      left_id < 0 || right_id < 0 ? "part" : "result", absent);
    else if (!merge_table_add(&b->merges, (Merge){left_id, right_id, rank, result}))
        build_problem(b, CLOVER_BAD_INPUT, "merge %d: %s and %s are merged by an earlier one already", (int)rank,
                      name_show(left, left_length, shown), name_show(right, right_length, other));
    if (whole != small) free(whole);
}

/* ---- the split pattern [TOK-1] --------------------------------------------------------------------------------- */

/* PCRE2's \s has U+180E in it, which Unicode took out of White_Space; the engines that such patterns are written for
 * follow Unicode. So \s is compiled as \p{White_Space}, and \S as its complement; both may stand in a class too. */
static char *with_unicode_space(const char *pattern) {
    static const char space[] = "\\p{White_Space}", no_space[] = "\\P{White_Space}";
    char *out = malloc(strlen(pattern) / 2 * (sizeof space - 1) + 2), *to = out;
    for (const char *p = pattern; out && *p;) {
        if (p[0] == '\\' && (p[1] == 's' || p[1] == 'S')) {
            memcpy(to, p[1] == 's' ? space : no_space, sizeof space - 1);
            to += sizeof space - 1;
            p += 2;
        } else {
            if (p[0] == '\\' && p[1]) *to++ = *p++;    /* \\s is a backslash and an s */
            *to++ = *p++;
        }
    }
    if (out) *to = '\0';
    return out;
}

void build_split(TokenizerBuild *b, const char *pattern) {
    char *translated = with_unicode_space(pattern);
    if (!translated) {
        error_memory(b->err, "the split pattern", strlen(pattern) * 8);
        return;
    }
    int code;
    PCRE2_SIZE offset;
    uint32_t flags = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;   /* \C would part a character */
    b->split = pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED, flags, &code, &offset, NULL);
    if (!b->split && code == PCRE2_ERROR_HEAP_FAILED) {
        error_memory(b->err, "the split pattern", strlen(translated));
    } else if (!b->split) {
        char message[256] = "", shown[NAME_SHOWN];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
        build_problem(b, CLOVER_UNSUPPORTED, "the split pattern does not compile: %s at offset %zu of %s", message, offset,
                      name_show(translated, strlen(translated), shown));
    }
    free(translated);
}

/* ---- finishing ------------------------------------------------------------------------------------------------- */

static int compare_added(const void *a, const void *b) {
    const AddedToken *x = a, *y = b;
    unsigned char first_x = (unsigned char)x->text[0], first_y = (unsigned char)y->text[0];
    if (first_x != first_y) return first_x < first_y ? -1 : 1;
    if (x->length != y->length) return x->length > y->length ? -1 : 1;
    return memcmp(x->text, y->text, x->length);
}

static void index_added(AddedTokens *a) {
    if (a->n > 0) qsort(a->token, a->n, sizeof *a->token, compare_added);
    size_t i = 0;
    for (int byte = 0; byte <= 256; byte++) {
        while (i < a->n && (unsigned char)a->token[i].text[0] < byte) i++;
        a->first[byte] = i;
    }
}

/* The texts of "normalized" added tokens are normalised themselves, into an arena of their own. */
static CloverStatus normalise_added(const TokenizerBuild *b, CloverTokenizer *t) {
    AddedTokens *a = &t->added_normal;
    size_t room = 0, used = 0;
    for (size_t i = 0; i < a->n; i++) room += a->token[i].length * 4;
    t->normal_arena = malloc(room + 1);
    if (!t->normal_arena) return error_memory(b->err, "added tokens", room + 1);
    for (size_t i = 0; i < a->n; i++) {
        char *normal;
        size_t length;
        if (utf8_nfc(a->token[i].text, a->token[i].length, &normal, &length, b->err) != CLOVER_OK) return b->err->status;
        char *text = t->normal_arena + used;
        memcpy(text, normal, length);
        free(normal);
        a->token[i].text = text;
        a->token[i].length = length;
        used += length;
    }
    return CLOVER_OK;
}

static CloverStatus collect_added(const TokenizerBuild *b, CloverTokenizer *t) {
    size_t raw = 0, normal = 0;
    for (int64_t id = 0; id < b->n; id++)
        if (b->token[id].kind == TOKEN_ADDED) *(b->token[id].normalized && b->nfc ? &normal : &raw) += 1;
    t->added_raw.token = malloc((raw + 1) * sizeof(AddedToken));
    t->added_normal.token = malloc((normal + 1) * sizeof(AddedToken));
    if (!t->added_raw.token || !t->added_normal.token) return error_memory(b->err, "added tokens", (raw + normal) * sizeof(AddedToken));
    for (int64_t id = 0; id < b->n; id++) {
        if (b->token[id].kind != TOKEN_ADDED) continue;
        AddedTokens *a = b->token[id].normalized && b->nfc ? &t->added_normal : &t->added_raw;
        a->token[a->n++] = (AddedToken){t->token[id].bytes, t->token[id].length, (int32_t)id, t->token[id].special};
    }
    if (t->added_normal.n > 0 && normalise_added(b, t) != CLOVER_OK) return b->err->status;
    index_added(&t->added_raw);
    index_added(&t->added_normal);
    return CLOVER_OK;
}

/* The tokens' bytes side by side in one arena. */
static CloverStatus lay_out_tokens(const TokenizerBuild *b, CloverTokenizer *t, const uint16_t character[256]) {
    int16_t byte_of[0x144];
    memset(byte_of, -1, sizeof byte_of);
    for (int16_t byte = 0; byte < 256; byte++) byte_of[character[byte]] = byte;

    size_t room = 1;
    for (int64_t id = 0; id < b->n; id++) room += b->token[id].length;
    t->arena = malloc(room);
    t->token = calloc((size_t)b->n + 1, sizeof *t->token);
    if (!t->arena || !t->token) return error_memory(b->err, "a vocabulary", room + (size_t)b->n * sizeof *t->token);
    t->n = b->n;
    char *to = t->arena;
    for (int64_t id = 0; id < b->n; id++) {
        const TokenText *from = &b->token[id];
        if (from->kind == TOKEN_NONE) continue;
        size_t length = from->length;
        if (from->kind == TOKEN_NORMAL) length = bytes_of_text(byte_of, from->text, from->length, to);
        else memcpy(to, from->text, length);
        t->token[id] = (Token){to, (uint32_t)length, from->special};
        to += length;
    }
    return CLOVER_OK;
}

static CloverStatus make_tokenizer(TokenizerBuild *b, CloverTokenizer *t) {
    uint16_t character[256];
    byte_alphabet(character);
    for (int byte = 0; byte < 256; byte++) {
        char text[2];
        size_t length = put_character(character[byte], text);
        t->byte_id[byte] = *text_slot(b, text, length);
    }
    if (lay_out_tokens(b, t, character) != CLOVER_OK || collect_added(b, t) != CLOVER_OK) return b->err->status;
    t->nfc = b->nfc;
    t->merges = b->merges;
    t->split = b->split;
    b->merges.slot = NULL;
    b->split = NULL;
    return CLOVER_OK;
}

CloverStatus build_finish(TokenizerBuild *b, CloverTokenizer **out) {
    CloverTokenizer *t = NULL;
    if (b->err->status == CLOVER_OK) {
        t = calloc(1, sizeof *t);
        if (!t) error_memory(b->err, "a tokenizer", sizeof *t);
        else if (make_tokenizer(b, t) != CLOVER_OK) {
            tokenizer_free(t);
            t = NULL;
        }
    }
    free(b->token), free(b->slot), free(b->merges.slot);
    pcre2_code_free(b->split);
    if (t) *out = t;
    return b->err->status;
}
