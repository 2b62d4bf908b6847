/* tokenizer_json.c - a tokenizer from Hugging Face's tokenizer.json. [TOK-6]
 *
 * Every field that changes ids is looked at: it is what this project does, or it is named as unsupported. Left out are
 * truncation and padding, which the caller of an encoder decides on anew. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "../error.h"
#include "map.h"
#include "names.h"
#include "tokenizer_parts.h"

static void damaged(TokenizerBuild *b, const char *what, const char *expected) {
    build_problem(b, CLOVER_BAD_INPUT, "%s: expected %s", what, expected);
}

static void unsupported(TokenizerBuild *b, const char *what, const char *found, const char *supported) {
    char shown[NAME_SHOWN];
    build_problem(b, CLOVER_UNSUPPORTED, "%s %s is not supported (supported: %s)", what, name_show(found, strlen(found), shown), supported);
}

/* The "type" of an object, "null" for null or nothing, "?" for what has none. */
static const char *type_of(const json_t *value) {
    if (!value || json_is_null(value)) return "null";
    const char *type = json_string_value(json_object_get(value, "type"));
    return type ? type : "?";
}

/* A value the model may have, as text for a message; false when it is absent, null, false, 0 or "": the neutral ones. */
static bool is_set(const json_t *value, const char **found) {
    if (json_is_true(value)) return *found = "true", true;
    if (json_is_string(value)) return *found = json_string_value(value), json_string_length(value) > 0;
    if (json_is_number(value)) return *found = "a number", json_number_value(value) != 0;
    return *found = "a value", value && !json_is_null(value) && !json_is_false(value);
}

/* Refuses fields of an object that hold more than a neutral value. fields ends with NULL. */
static void refuse_set(TokenizerBuild *b, const json_t *object, const char *where, const char *const *fields) {
    for (; *fields; fields++) {
        const char *found;
        char what[96];
        if (!is_set(json_object_get(object, *fields), &found)) continue;
        snprintf(what, sizeof what, "%s.%s", where, *fields);
        unsupported(b, what, found, "none");
    }
}

/* ---- the parts before and after the model ---------------------------------------------------------------------- */

static void read_normalizer(TokenizerBuild *b, const json_t *value) {
    const char *type = type_of(value);
    b->nfc = strcmp(type, "NFC") == 0;
    if (!b->nfc && strcmp(type, "null") != 0) unsupported(b, "normalizer", type, "NFC or none");
}

static void read_split(TokenizerBuild *b, const json_t *split) {
    const char *pattern = json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
    const char *behavior = json_string_value(json_object_get(split, "behavior"));
    if (!pattern) unsupported(b, "pre_tokenizer.Split", "without a Regex pattern", "a Regex pattern");
    if (!behavior || strcmp(behavior, "Isolated") != 0)
        unsupported(b, "pre_tokenizer.Split.behavior", behavior ? behavior : "none", "Isolated");
    if (json_is_true(json_object_get(split, "invert"))) unsupported(b, "pre_tokenizer.Split.invert", "true", "false");
    if (pattern) build_split(b, pattern);
}

/* add_prefix_space and use_regex are true where they are not given. */
static void read_byte_level(TokenizerBuild *b, const json_t *level) {
    if (!json_is_false(json_object_get(level, "add_prefix_space")))
        unsupported(b, "pre_tokenizer.ByteLevel.add_prefix_space", "true", "false");
    if (!json_is_false(json_object_get(level, "use_regex"))) unsupported(b, "pre_tokenizer.ByteLevel.use_regex", "true", "false");
}

static void read_pre_tokenizer(TokenizerBuild *b, const json_t *value) {
    const char *type = type_of(value);
    const json_t *parts = json_object_get(value, "pretokenizers");
    const json_t *split = json_array_get(parts, 0), *level = json_array_get(parts, 1);
    if (strcmp(type, "Sequence") != 0) unsupported(b, "pre_tokenizer", type, "Sequence of Split and ByteLevel");
    else if (json_array_size(parts) != 2) unsupported(b, "pre_tokenizer", "Sequence of another length", "Sequence of Split and ByteLevel");
    else if (strcmp(type_of(split), "Split") != 0) unsupported(b, "pre_tokenizer[0]", type_of(split), "Split");
    else if (strcmp(type_of(level), "ByteLevel") != 0) unsupported(b, "pre_tokenizer[1]", type_of(level), "ByteLevel");
    else {
        read_split(b, split);
        read_byte_level(b, level);
    }
}

/* ByteLevel after the model moves offsets only; other processors add tokens. [TOK-5] */
static void read_post_processor(TokenizerBuild *b, const json_t *value) {
    const char *type = type_of(value);
    if (strcmp(type, "null") != 0 && strcmp(type, "ByteLevel") != 0) unsupported(b, "post_processor", type, "ByteLevel or none");
}

static void read_decoder(TokenizerBuild *b, const json_t *value) {
    const char *type = type_of(value);
    if (strcmp(type, "null") != 0 && strcmp(type, "ByteLevel") != 0) unsupported(b, "decoder", type, "ByteLevel or none");
}

/* ---- the model and the added tokens ---------------------------------------------------------------------------- */

static void read_vocab(TokenizerBuild *b, json_t *vocab) {
    const char *text;
    json_t *id;
    json_object_foreach(vocab, text, id) {
        TokenText token = {.text = text, .length = strlen(text), .kind = TOKEN_NORMAL};
        build_token(b, json_is_integer(id) ? json_integer_value(id) : -1, token, "vocab");
    }
}

static void read_added(TokenizerBuild *b, json_t *added) {
    static const char *const flags[] = {"single_word", "lstrip", "rstrip", NULL};
    size_t i;
    json_t *entry;
    json_array_foreach(added, i, entry) {
        const json_t *content = json_object_get(entry, "content"), *id = json_object_get(entry, "id");
        char name[48];
        snprintf(name, sizeof name, "added_tokens[%zu]", i);
        if (!json_is_string(content) || !json_is_integer(id)) {
            damaged(b, name, "an object with a content and an integer id");
            continue;
        }
        refuse_set(b, entry, name, flags);
        TokenText token = {.text = json_string_value(content), .length = json_string_length(content), .kind = TOKEN_ADDED,
                           .special = json_is_true(json_object_get(entry, "special")),
                           .normalized = json_is_true(json_object_get(entry, "normalized"))};
        build_token(b, json_integer_value(id), token, name);
    }
}

/* A merge is "a b" (no token of the byte alphabet holds a space) or ["a", "b"]. */
static void read_merges(TokenizerBuild *b, json_t *merges) {
    size_t i;
    json_t *merge;
    json_array_foreach(merges, i, merge) {
        const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        const char *text = json_string_value(merge), *space = text ? strchr(text, ' ') : NULL;
        if (space && space[1] && !strchr(space + 1, ' ')) {
            build_merge(b, (int32_t)i, text, (size_t)(space - text), space + 1, strlen(space + 1));
        } else if (json_array_size(merge) == 2 && json_is_string(left) && json_is_string(right)) {
            build_merge(b, (int32_t)i, json_string_value(left), json_string_length(left), json_string_value(right),
                        json_string_length(right));
        } else {
            char name[48];
            snprintf(name, sizeof name, "merges[%zu]", i);
            damaged(b, name, "\"a b\" or [\"a\", \"b\"]");
        }
    }
}

/* Ids may have holes; what must not be is an id so large that the file is surely damaged. */
static int64_t count_ids(json_t *vocab, json_t *added) {
    int64_t n = 0;
    const char *text;
    json_t *entry;
    size_t i;
    json_object_foreach(vocab, text, entry)
        if (json_integer_value(entry) >= n && json_integer_value(entry) < MAX_TOKENS) n = json_integer_value(entry) + 1;
    json_array_foreach(added, i, entry) {
        int64_t id = json_integer_value(json_object_get(entry, "id"));
        if (id >= n && id < MAX_TOKENS) n = id + 1;
    }
    return n;
}

static void read_model(TokenizerBuild *b, const json_t *root) {
    static const char *const fields[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback",
                                         "ignore_merges", NULL};
    const json_t *model = json_object_get(root, "model");
    json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
    json_t *added = json_object_get(root, "added_tokens");
    const char *type = json_string_value(json_object_get(model, "type"));
    if (!json_is_object(model)) damaged(b, "model", "an object");
    else if (!type || strcmp(type, "BPE") != 0) unsupported(b, "model.type", type ? type : "none", "BPE");
    else if (!json_is_object(vocab) || json_object_size(vocab) == 0) damaged(b, "model.vocab", "an object of texts and ids");
    else if (!json_is_array(merges)) damaged(b, "model.merges", "an array, empty where there are none");
    else if (added && !json_is_array(added)) damaged(b, "added_tokens", "an array");
    else if (build_begin(b, count_ids(vocab, added), json_array_size(merges)) == CLOVER_OK) {
        refuse_set(b, model, "model", fields);
        read_vocab(b, vocab);
        read_added(b, added);
        read_merges(b, merges);
    }
}

/* jansson sets no text when memory ran out. */
static json_t *read_json(const char *path, CloverError *err) {
    Map file;
    if (map_open(path, &file, err) != CLOVER_OK) return NULL;
    json_error_t where;
    json_t *root = json_loadb((const char *)file.data, file.bytes, JSON_REJECT_DUPLICATES, &where);
    map_close(&file);
    if (root) return root;
    if (!where.text[0]) error_memory(err, path, file.bytes);
    else error_set(err, CLOVER_BAD_INPUT, "%s: line %d, column %d: %s", path, where.line, where.column, where.text);
    return NULL;
}

CloverStatus tokenizer_from_json(const char *path, CloverTokenizer **out, CloverError *err) {
    error_clear(err);
    json_t *root = read_json(path, err);
    if (!root) return err->status;
    TokenizerBuild b = {.source = path, .err = err};
    if (!json_is_object(root)) {
        damaged(&b, "the file", "a JSON object");
    } else {
        read_normalizer(&b, json_object_get(root, "normalizer"));
        read_pre_tokenizer(&b, json_object_get(root, "pre_tokenizer"));
        read_post_processor(&b, json_object_get(root, "post_processor"));
        read_decoder(&b, json_object_get(root, "decoder"));
        read_model(&b, root);
    }
    CloverStatus status = build_finish(&b, out);
    json_decref(root);
    return status;
}
