/* tokenizer_gguf.c - a tokenizer from a GGUF's tokenizer.ggml keys. [TOK-6] */
#include <stdio.h>
#include <string.h>
#include "../error.h"
#include "names.h"
#include "tokenizer_parts.h"

/* The values of tokenizer.ggml.token_type. */
enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4, TYPE_UNUSED = 5 };

#define KEY "tokenizer.ggml."

/* A scalar string key that must have one of the values allowed here. */
static void expect_string(TokenizerBuild *b, const Gguf *g, const char *name, const char *expected) {
    const GgufKey *key = gguf_key(g, name);
    GgufString value;
    char shown[NAME_SHOWN];
    if (!key) build_problem(b, CLOVER_BAD_INPUT, "key %s is missing (expected \"%s\")", name, expected);
    else if (!gguf_string(key, &value))
        build_problem(b, CLOVER_BAD_INPUT, "key %s: expected a string, found %s", name, gguf_type_name(key->type));
    else if (value.length != strlen(expected) || memcmp(value.bytes, expected, value.length) != 0)
        build_problem(b, CLOVER_UNSUPPORTED, "key %s is %s; only \"%s\" is supported", name,
                      name_show(value.bytes, value.length, shown), expected);
}

static const GgufKey *expect_strings(TokenizerBuild *b, const Gguf *g, const char *name) {
    const GgufKey *key = gguf_key(g, name);
    if (!key) build_problem(b, CLOVER_BAD_INPUT, "key %s is missing", name);
    else if (key->type != GGUF_ARRAY || key->element != GGUF_STRING || key->count > MAX_TOKENS)
        build_problem(b, CLOVER_BAD_INPUT, "key %s: expected an array of at most %d strings", name, (int)MAX_TOKENS);
    else return key;
    return NULL;
}

/* Token types, one a token. NULL with the problem told. */
static const GgufKey *expect_types(TokenizerBuild *b, const Gguf *g, const GgufKey *tokens) {
    const GgufKey *key = gguf_key(g, KEY "token_type");
    int64_t first;
    if (!key) build_problem(b, CLOVER_BAD_INPUT, "key " KEY "token_type is missing: it tells control tokens from text");
    else if (key->type != GGUF_ARRAY || (key->count > 0 && !gguf_int(key, 0, &first)))
        build_problem(b, CLOVER_BAD_INPUT, "key " KEY "token_type: expected an array of integers");
    else if (tokens && key->count != tokens->count)
        build_problem(b, CLOVER_BAD_INPUT, "key " KEY "token_type has %llu entries, " KEY "tokens has %llu",
                      (unsigned long long)key->count, (unsigned long long)tokens->count);
    else return key;
    return NULL;
}

/* Control tokens are the special ones; user-defined ones are added tokens that are not. Both are text as it is. */
static void read_tokens(TokenizerBuild *b, const GgufKey *tokens, const GgufKey *types) {
    const uint8_t *cursor = NULL;
    GgufString text;
    for (int64_t id = 0; gguf_next_string(tokens, &cursor, &text); id++) {
        int64_t type = 0;
        char name[48];
        snprintf(name, sizeof name, KEY "tokens[%lld]", (long long)id);
        gguf_int(types, (uint64_t)id, &type);
        TokenText token = {.text = text.bytes, .length = text.length, .kind = TOKEN_ADDED, .special = type == TYPE_CONTROL};
        if (type == TYPE_NORMAL) token.kind = TOKEN_NORMAL;
        if (type == TYPE_UNUSED) continue;
        if (type == TYPE_NORMAL || type == TYPE_CONTROL || type == TYPE_USER_DEFINED) build_token(b, id, token, name);
        else
            build_problem(b, type == 2 || type == 6 ? CLOVER_UNSUPPORTED : CLOVER_BAD_INPUT,
                          "%s: token type %lld%s (supported: 1 normal, 3 control, 4 user defined, 5 unused)", name, (long long)type,
                          type == 2 ? " (unknown)" : type == 6 ? " (byte)" : "");
    }
}

/* "a b": no token of the byte alphabet holds a space. */
static void read_merges(TokenizerBuild *b, const GgufKey *merges) {
    const uint8_t *cursor = NULL;
    GgufString merge;
    char shown[NAME_SHOWN];
    for (int32_t rank = 0; gguf_next_string(merges, &cursor, &merge); rank++) {
        const char *space = memchr(merge.bytes, ' ', merge.length), *right = space ? space + 1 : NULL, *end = merge.bytes + merge.length;
        if (!space || right == end || memchr(right, ' ', (size_t)(end - right)))
            build_problem(b, CLOVER_BAD_INPUT, KEY "merges[%d]: expected two texts and a space between them, found %s", (int)rank,
                          name_show(merge.bytes, merge.length, shown));
        else build_merge(b, rank, merge.bytes, (size_t)(space - merge.bytes), right, (size_t)(end - right));
    }
}

/* Single bytes alone make a vocabulary too; longer tokens without merges would never be used: the key was lost. */
static bool needs_merges(const TokenizerBuild *b) {
    for (int64_t id = 0; id < b->n; id++)
        if (b->token[id].kind == TOKEN_NORMAL && b->token[id].length > 2) return true;
    return false;
}

/* [TOK-5] */
static void refuse_true(TokenizerBuild *b, const Gguf *g, const char *name) {
    const GgufKey *key = gguf_key(g, name);
    bool value;
    if (key && gguf_bool(key, 0, &value) && value)
        build_problem(b, CLOVER_UNSUPPORTED, "key %s is true; only false is supported", name);
}

static bool has_no_tokenizer(const Gguf *g) {
    const GgufKey *model = gguf_key(g, KEY "model");
    GgufString value;
    if (!model) return !gguf_key(g, KEY "tokens");
    return gguf_string(model, &value) && ((value.length == 4 && memcmp(value.bytes, "none", 4) == 0) ||
                                          (value.length == 8 && memcmp(value.bytes, "no_vocab", 8) == 0));
}

CloverStatus tokenizer_from_gguf(const Gguf *g, CloverTokenizer **out, CloverError *err) {
    error_clear(err);
    if (has_no_tokenizer(g)) {
        *out = NULL;
        return CLOVER_OK;
    }
    TokenizerBuild b = {.source = gguf_path(g), .err = err, .nfc = true};
    expect_string(&b, g, KEY "model", "gpt2");
    expect_string(&b, g, KEY "pre", "qwen35");
    refuse_true(&b, g, KEY "add_bos_token");
    refuse_true(&b, g, KEY "add_eos_token");
    const GgufKey *tokens = expect_strings(&b, g, KEY "tokens");
    const GgufKey *types = expect_types(&b, g, tokens);
    const GgufKey *merges = gguf_key(g, KEY "merges") ? expect_strings(&b, g, KEY "merges") : NULL;
    if (tokens && types && build_begin(&b, (int64_t)tokens->count, merges ? merges->count : 0) == CLOVER_OK) {
        read_tokens(&b, tokens, types);
        if (merges) read_merges(&b, merges);
        else if (!gguf_key(g, KEY "merges") && needs_merges(&b)) build_problem(&b, CLOVER_BAD_INPUT, "key " KEY "merges is missing");
    }
    build_split(&b, tokenizer_pattern_qwen35);
    return build_finish(&b, out);
}
