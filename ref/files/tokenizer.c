/* tokenizer.c - text to ids: added tokens out, NFC, pieces, bytes, merges. [TOK] */
#include <stdlib.h>
#include <string.h>
#include "../error.h"
#include "tokenizer_parts.h"
#include "utf8.h"

typedef struct Encoder {
    const CloverTokenizer *t;
    bool special;
    int32_t *id; size_t n, room;     /* the ids so far */
    BpeSpace space;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    CloverError *err;
} Encoder;

static CloverStatus emit(Encoder *e, const int32_t *id, size_t n) {
    if (n > e->room - e->n) {
        size_t room = (e->room + n) * 2;
        int32_t *grown = realloc(e->id, room * sizeof *grown);
        if (!grown) return error_memory(e->err, "the ids of a text", room * sizeof *grown);
        e->id = grown;
        e->room = room;
    }
    memcpy(e->id + e->n, id, n * sizeof *id);
    e->n += n;
    return CLOVER_OK;
}

/* One piece: its bytes' tokens, merged. [TOK-2] [TOK-3] */
static CloverStatus encode_piece(Encoder *e, const char *piece, size_t length) {
    if (length == 0) return CLOVER_OK;
    if (!bpe_space_reserve(&e->space, (int32_t)length)) return error_memory(e->err, "merging a piece", length * 12);
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)piece[i];
        e->space.id[i] = e->t->byte_id[byte];
        if (e->space.id[i] < 0)
            return error_set(e->err, CLOVER_BAD_INPUT, "the vocabulary has no token for byte 0x%02X: this text cannot be encoded", byte);
    }
    int32_t n = bpe_merge(&e->t->merges, &e->space, (int32_t)length);
    if (n < 0) return error_memory(e->err, "merging a piece", e->space.heap_room * 2 * sizeof(Candidate));
    return emit(e, e->space.id, (size_t)n);
}

/* Normalised text: every match of the pattern is a piece, and so is what lies between two matches. [TOK-1] */
static CloverStatus encode_pieces(Encoder *e, const char *text, size_t length) {
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(e->match);
    size_t done = 0, from = 0;
    while (from < length) {
        int rc = pcre2_match(e->t->split, (PCRE2_SPTR)text, length, from, PCRE2_NO_UTF_CHECK, e->match, e->limits);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc == PCRE2_ERROR_NOMEMORY) return error_memory(e->err, "the split pattern", length);
        if (rc < 0 || span[0] < from || span[1] < span[0])
            return error_set(e->err, CLOVER_UNSUPPORTED, "the split pattern gave up on this text (PCRE2 error %d at byte %zu)", rc, from);
        if (span[1] == span[0]) {                     /* an empty match splits nothing: look from the next character */
            from = span[0] + 1;
            while (from < length && ((unsigned char)text[from] & 0xC0) == 0x80) from++;
            continue;
        }
        if (encode_piece(e, text + done, span[0] - done) != CLOVER_OK) return e->err->status;
        if (encode_piece(e, text + span[0], span[1] - span[0]) != CLOVER_OK) return e->err->status;
        done = from = span[1];
    }
    return encode_piece(e, text + done, length - done);
}

typedef CloverStatus EncodeBetween(Encoder *e, const char *text, size_t length);

/* The longest added token that stands at the start of text; NULL when none does. */
static const AddedToken *added_at(const AddedTokens *a, const char *text, size_t length) {
    unsigned char byte = (unsigned char)text[0];
    for (size_t i = a->first[byte]; i < a->first[byte + 1]; i++)
        if (a->token[i].length <= length && memcmp(a->token[i].text, text, a->token[i].length) == 0) return &a->token[i];
    return NULL;
}

/* Takes added tokens out of the text, the leftmost first and of several at one place the longest; what lies between is
 * encoded alone. A special one that was not asked for stays text, whole, and the search goes on behind it. [TOK-4] */
static CloverStatus encode_around(Encoder *e, const AddedTokens *a, EncodeBetween *between, const char *text, size_t length) {
    size_t done = 0;
    for (size_t at = 0; at < length;) {
        const AddedToken *token = added_at(a, text + at, length - at);
        if (!token) {
            at++;
            continue;
        }
        if (!token->special || e->special) {
            if (between(e, text + done, at - done) != CLOVER_OK) return e->err->status;
            if (emit(e, &token->id, 1) != CLOVER_OK) return e->err->status;
            done = at + token->length;
        }
        at += token->length;
    }
    return between(e, text + done, length - done);
}

/* Text without raw added tokens. */
static CloverStatus encode_plain(Encoder *e, const char *text, size_t length) {
    if (!e->t->nfc) return encode_around(e, &e->t->added_normal, encode_pieces, text, length);
    char *normal;
    size_t normal_length;
    if (utf8_nfc(text, length, &normal, &normal_length, e->err) != CLOVER_OK) return e->err->status;
    CloverStatus status = encode_around(e, &e->t->added_normal, encode_pieces, normal, normal_length);
    free(normal);
    return status;
}

CloverStatus clover_encode(const CloverTokenizer *t, const char *text, size_t length, bool special, int32_t **out, int64_t *n_out,
                           CloverError *err) {
    enum { MOST = INT32_MAX / 4 };   /* NFC makes a text at most three times as long in bytes */
    if (length > MOST) return error_set(err, CLOVER_USAGE, "a text of %zu bytes: at most %d can be encoded at once", length, MOST);
    size_t bad = utf8_first_invalid(text, length);
    if (bad < length)
        return error_set(err, CLOVER_BAD_INPUT, "the text is not UTF-8: byte 0x%02X at offset %zu", (unsigned char)text[bad], bad);

    Encoder e = {.t = t, .special = special, .err = err, .room = length / 3 + 16};
    e.id = malloc(e.room * sizeof *e.id);
    e.match = pcre2_match_data_create(1, NULL);
    e.limits = pcre2_match_context_create(NULL);
    CloverStatus status;
    if (!e.id || !e.match || !e.limits) {
        status = error_memory(err, "encoding a text", e.room * sizeof *e.id);
    } else {
        /* Going back over a run of spaces costs a step a character, so the limit that stops a runaway pattern grows. */
        pcre2_set_match_limit(e.limits, 10000000u + 4u * (uint32_t)length);
        status = encode_around(&e, &t->added_raw, encode_plain, text, length);
    }
    pcre2_match_data_free(e.match);
    pcre2_match_context_free(e.limits);
    bpe_space_free(&e.space);
    if (status != CLOVER_OK) {
        free(e.id);
        return status;
    }
    *out = e.id;
    *n_out = (int64_t)e.n;
    return CLOVER_OK;
}

/* ---- asking about tokens --------------------------------------------------------------------------------------- */

const char *clover_token_bytes(const CloverTokenizer *t, int32_t id, size_t *length) {
    bool known = id >= 0 && id < t->n && t->token[id].bytes;
    *length = known ? t->token[id].length : 0;
    return known ? t->token[id].bytes : NULL;
}

/* [TOK-8] */
bool clover_token_is_special(const CloverTokenizer *t, int32_t id) {
    return id >= 0 && id < t->n && t->token[id].special;
}

static int32_t find_added(const AddedTokens *a, const CloverTokenizer *t, const char *content, size_t length) {
    for (size_t i = 0; i < a->n; i++) {
        const Token *token = &t->token[a->token[i].id];
        if (token->length == length && memcmp(token->bytes, content, length) == 0) return a->token[i].id;
    }
    return -1;
}

int32_t clover_token_find(const CloverTokenizer *t, const char *content) {
    size_t length = strlen(content);
    int32_t id = find_added(&t->added_raw, t, content, length);
    return id >= 0 ? id : find_added(&t->added_normal, t, content, length);
}

int64_t clover_tokenizer_size(const CloverTokenizer *t) {
    return t->n;
}

void tokenizer_free(CloverTokenizer *t) {
    if (!t) return;
    free(t->token), free(t->arena), free(t->normal_arena), free(t->merges.slot);
    free(t->added_raw.token), free(t->added_normal.token);
    pcre2_code_free(t->split);
    free(t);
}
