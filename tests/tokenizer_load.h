/* tokenizer_load.h - tokenizers for tests: from files, from edited JSON, from a GGUF of the same vocabulary. */
#ifndef CLOVER_TEST_TOKENIZER_LOAD_H
#define CLOVER_TEST_TOKENIZER_LOAD_H

#include <jansson.h>
#include "failing_malloc.h"
#include "gguf_build.h"
#include "../ref/files/tokenizer.h"

#define VECTORS "tests/vectors/tokenizer/"

static CloverError err;

static inline json_t *load_json(const char *path) {
    json_error_t where;
    json_t *root = json_load_file(path, 0, &where);
    ck_assert_msg(root != NULL, "%s: %s", path, where.text);
    return root;
}

/* ---- making tokenizers ------------------------------------------------------------------------------------------- */

static inline CloverTokenizer *load(const char *path) {
    CloverTokenizer *t = NULL;
    assert_ok(tokenizer_from_json(path, &t, &err), err);
    return t;
}

/* Takes root: the tokenizer of this JSON, by way of a file. */
static inline CloverStatus load_edited(json_t *root, CloverTokenizer **out) {
    char folder[TEST_PATH];
    make_folder("tokenizer", folder);
    const char *path = in_folder(folder, "tokenizer.json");
    ck_assert_int_eq(json_dump_file(root, path, JSON_COMPACT), 0);
    json_decref(root);
    CloverStatus status = tokenizer_from_json(path, out, &err);
    remove_folder(folder);
    return status;
}

/* What a GGUF's keys are made of; a test spoils some of it before it is written. */
typedef struct GgufForm {
    char model[32], pre[32];
    char *token[600], *merge[600];
    int32_t type[600];
    uint64_t n_tokens, n_types, n_merges;
    bool no_tokens, no_types, no_merges, no_keys, bos;
    long fail_at;                    /* the allocation from which on none succeeds, counted from 1; 0: all succeed */
    bool failed;                     /* one did not */
} GgufForm;

static inline char *copy_text(const char *text) {
    char *copy = malloc(strlen(text) + 1);
    ck_assert_ptr_nonnull(copy);
    return strcpy(copy, text);
}

static inline void set_text(char **text, const char *value) {
    free(*text);
    *text = copy_text(value);
}

/* The vocabulary of tokenizer.json as llama.cpp's converter writes it: special tokens are control tokens (3), other
 * added ones user defined (4). */
static inline GgufForm gguf_form(void) {
    GgufForm f = { .model = "gpt2", .pre = "qwen35" };
    json_t *root = load_json(VECTORS "tokenizer.json"), *model = json_object_get(root, "model"), *entry;
    const char *text;
    size_t i;
    json_object_foreach(json_object_get(model, "vocab"), text, entry) {
        f.token[json_integer_value(entry)] = copy_text(text);
        f.type[json_integer_value(entry)] = 1;
        f.n_tokens++;
    }
    json_array_foreach(json_object_get(root, "added_tokens"), i, entry) {
        int64_t id = json_integer_value(json_object_get(entry, "id"));
        f.token[id] = copy_text(json_string_value(json_object_get(entry, "content")));
        f.type[id] = json_is_true(json_object_get(entry, "special")) ? 3 : 4;
        f.n_tokens++;
    }
    json_array_foreach(json_object_get(model, "merges"), i, entry) {
        char both[256];
        snprintf(both, sizeof both, "%s %s", json_string_value(json_array_get(entry, 0)), json_string_value(json_array_get(entry, 1)));
        f.merge[f.n_merges++] = copy_text(both);
    }
    f.n_types = f.n_tokens;
    json_decref(root);
    return f;
}

static inline CloverStatus load_gguf(GgufForm *f, CloverTokenizer **out) {
    GgufBuild b = gguf_build();
    if (!f->no_keys) {
        if (f->model[0]) build_string(&b, "tokenizer.ggml.model", f->model);
        if (f->pre[0]) build_string(&b, "tokenizer.ggml.pre", f->pre);
        if (!f->no_tokens) build_strings(&b, "tokenizer.ggml.tokens", (const char *const *)f->token, f->n_tokens);
        if (!f->no_types) build_array(&b, "tokenizer.ggml.token_type", GGUF_I32, f->n_types);
        for (uint64_t i = 0; !f->no_types && i < f->n_types; i++) put_u32(&b.keys, (uint32_t)f->type[i]);
        if (!f->no_merges) build_strings(&b, "tokenizer.ggml.merges", (const char *const *)f->merge, f->n_merges);
        build_bool(&b, "tokenizer.ggml.add_bos_token", f->bos);
    }
    Bytes file = build_file(&b);
    char folder[TEST_PATH];
    make_folder("tokenizer", folder);
    const char *path = in_folder(folder, "vocab.gguf");
    write_file(path, file.data, file.n);
    free_bytes(&file);
    Gguf *g;
    assert_ok(gguf_open(path, &g, &err), err);
    if (f->fail_at) malloc_fail_after(f->fail_at - 1, true);
    CloverStatus status = tokenizer_from_gguf(g, out, &err);
    f->failed = malloc_recover();
    gguf_close(g);
    remove_folder(folder);
    for (int i = 0; i < 600; i++) free(f->token[i]), free(f->merge[i]);
    return status;
}

#endif
