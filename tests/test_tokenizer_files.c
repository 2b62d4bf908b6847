/* test_tokenizer_files.c - vocabularies that are damaged or ask for what is not implemented. [TOK-6] */
#include "tokenizer_load.h"

typedef void Edit(json_t *root);

#define MODEL json_object_get(root, "model")
#define VOCAB json_object_get(MODEL, "vocab")
#define MERGES json_object_get(MODEL, "merges")
#define ADDED(i) json_array_get(json_object_get(root, "added_tokens"), i)
#define PRE(i) json_array_get(json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers"), i)
#define SET(object, key, value) json_object_set_new(object, key, value)
#define STRING json_string

static void wordpiece(json_t *root) { SET(MODEL, "type", STRING("WordPiece")); }
static void no_model(json_t *root) { json_object_del(root, "model"); }
static void no_vocab(json_t *root) { json_object_del(MODEL, "vocab"); }
static void no_merges(json_t *root) { json_object_del(MODEL, "merges"); }
static void negative_id(json_t *root) { SET(VOCAB, "the", json_integer(-1)); }
static void huge_id(json_t *root) { SET(VOCAB, "qqq", json_integer(1LL << 40)); }
static void text_id(json_t *root) { SET(VOCAB, "qqq", STRING("5")); }
static void same_id(json_t *root) { SET(VOCAB, "qqq", json_integer(5)); }
static void merge_without_space(json_t *root) { json_array_set_new(MERGES, 3, STRING("ab")); }
static void merge_two_spaces(json_t *root) { json_array_set_new(MERGES, 3, STRING("a b c")); }
static void merge_of_three(json_t *root) { json_array_set_new(MERGES, 3, json_pack("[sss]", "a", "b", "c")); }
static void merge_unknown_part(json_t *root) { json_array_set_new(MERGES, 3, STRING("qqq b")); }
static void merge_unknown_result(json_t *root) { json_array_set_new(MERGES, 3, STRING("q q")); }
static void merge_twice(json_t *root) { json_array_append(MERGES, json_array_get(MERGES, 3)); }
static void dropout(json_t *root) { SET(MODEL, "dropout", json_real(0.1)); }
static void prefix(json_t *root) { SET(MODEL, "continuing_subword_prefix", STRING("##")); }
static void suffix(json_t *root) { SET(MODEL, "end_of_word_suffix", STRING("</w>")); }
static void fallback(json_t *root) { SET(MODEL, "byte_fallback", json_true()); }
static void ignore_merges(json_t *root) { SET(MODEL, "ignore_merges", json_true()); }
static void nfkc(json_t *root) { SET(root, "normalizer", json_pack("{ss}", "type", "NFKC")); }
static void no_pre(json_t *root) { SET(root, "pre_tokenizer", json_null()); }
static void whitespace(json_t *root) { SET(PRE(0), "type", STRING("Whitespace")); }
static void literal(json_t *root) { SET(PRE(0), "pattern", json_pack("{ss}", "String", " ")); }
static void removed(json_t *root) { SET(PRE(0), "behavior", STRING("Removed")); }
static void invert(json_t *root) { SET(PRE(0), "invert", json_true()); }
static void prefix_space(json_t *root) { SET(PRE(1), "add_prefix_space", json_true()); }
static void use_regex(json_t *root) { json_object_del(PRE(1), "use_regex"); }
static void template_post(json_t *root) { SET(root, "post_processor", json_pack("{ss}", "type", "TemplateProcessing")); }
static void metaspace(json_t *root) { SET(root, "decoder", json_pack("{ss}", "type", "Metaspace")); }
static void lstrip(json_t *root) { SET(ADDED(1), "lstrip", json_true()); }
static void rstrip(json_t *root) { SET(ADDED(1), "rstrip", json_true()); }
static void single_word(json_t *root) { SET(ADDED(1), "single_word", json_true()); }
static void added_no_content(json_t *root) { json_object_del(ADDED(1), "content"); }
static void added_empty(json_t *root) { SET(ADDED(1), "content", STRING("")); }
static void added_twice(json_t *root) { json_array_append(json_object_get(root, "added_tokens"), ADDED(1)); }
static void added_other_id(json_t *root) { SET(VOCAB, "<|im_end|>", json_integer(600)); }
static void added_id_taken(json_t *root) { SET(ADDED(1), "id", json_integer(5)); }
static void added_object(json_t *root) { SET(root, "added_tokens", json_object()); }

/* [TOK-6] */
START_TEST(a_tokenizer_json_that_is_wrong_or_unsupported_is_refused_by_name) {
    static const struct { Edit *edit; CloverStatus status; const char *says; } cases[] = {
        { wordpiece, CLOVER_UNSUPPORTED, "model.type 'WordPiece'" },
        { no_model, CLOVER_BAD_INPUT, "model: expected" },
        { no_vocab, CLOVER_BAD_INPUT, "model.vocab" },
        { no_merges, CLOVER_BAD_INPUT, "model.merges" },
        { negative_id, CLOVER_BAD_INPUT, "id -1 is out of range" },
        { huge_id, CLOVER_BAD_INPUT, "id 1099511627776 is out of range" },
        { text_id, CLOVER_BAD_INPUT, "out of range" },
        { same_id, CLOVER_BAD_INPUT, "id 5 is both" },
        { merge_without_space, CLOVER_BAD_INPUT, "merges[3]: expected" },
        { merge_two_spaces, CLOVER_BAD_INPUT, "merges[3]: expected" },
        { merge_of_three, CLOVER_BAD_INPUT, "merges[3]: expected" },
        { merge_unknown_part, CLOVER_BAD_INPUT, "merge 3: its part 'qqq' is not in the vocabulary" },
        { merge_unknown_result, CLOVER_BAD_INPUT, "merge 3: its result 'qq' is not" },
        { merge_twice, CLOVER_BAD_INPUT, "by an earlier one already" },
        { dropout, CLOVER_UNSUPPORTED, "model.dropout" },
        { prefix, CLOVER_UNSUPPORTED, "continuing_subword_prefix '##'" },
        { suffix, CLOVER_UNSUPPORTED, "end_of_word_suffix '</w>'" },
        { fallback, CLOVER_UNSUPPORTED, "byte_fallback" },
        { ignore_merges, CLOVER_UNSUPPORTED, "ignore_merges" },
        { nfkc, CLOVER_UNSUPPORTED, "normalizer 'NFKC'" },
        { no_pre, CLOVER_UNSUPPORTED, "pre_tokenizer 'null'" },
        { whitespace, CLOVER_UNSUPPORTED, "Whitespace" },
        { literal, CLOVER_UNSUPPORTED, "Regex" },
        { removed, CLOVER_UNSUPPORTED, "Removed" },
        { invert, CLOVER_UNSUPPORTED, "invert" },
        { prefix_space, CLOVER_UNSUPPORTED, "add_prefix_space" },
        { use_regex, CLOVER_UNSUPPORTED, "use_regex" },
        { template_post, CLOVER_UNSUPPORTED, "post_processor 'TemplateProcessing'" },
        { metaspace, CLOVER_UNSUPPORTED, "decoder 'Metaspace'" },
        { lstrip, CLOVER_UNSUPPORTED, "added_tokens[1].lstrip" },
        { rstrip, CLOVER_UNSUPPORTED, "added_tokens[1].rstrip" },
        { single_word, CLOVER_UNSUPPORTED, "added_tokens[1].single_word" },
        { added_no_content, CLOVER_BAD_INPUT, "added_tokens[1]: expected" },
        { added_empty, CLOVER_BAD_INPUT, "without text" },
        { added_twice, CLOVER_BAD_INPUT, "listed twice" },
        { added_other_id, CLOVER_BAD_INPUT, "'<|im_end|>' has two ids, 600 and 518" },
        { added_id_taken, CLOVER_BAD_INPUT, "id 5 is both" },
        { added_object, CLOVER_BAD_INPUT, "added_tokens" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = load_json(VECTORS "tokenizer.json");
        CloverTokenizer *t = NULL;
        cases[i].edit(root);
        CloverStatus status = load_edited(root, &t);
        ck_assert_msg(status == cases[i].status, "case \"%s\": status %d: %s", cases[i].says, (int)status, status ? err.text : "");
        assert_says(err, cases[i].says);
        assert_says(err, "tokenizer.json: ");
        ck_assert_int_eq(problems(&err), 1);
        ck_assert_ptr_null(t);
    }
}
END_TEST

START_TEST(all_problems_of_a_tokenizer_json_are_told_at_once) {
    json_t *root = load_json(VECTORS "tokenizer.json");
    nfkc(root), invert(root), merge_unknown_part(root), lstrip(root), ignore_merges(root);
    CloverTokenizer *t;
    assert_status(load_edited(root, &t), CLOVER_BAD_INPUT, err);
    ck_assert_int_eq(problems(&err), 5);
}
END_TEST

START_TEST(what_is_no_tokenizer_json_is_refused) {
    char folder[TEST_PATH];
    make_folder("tokenizer", folder);
    const char *path = in_folder(folder, "tokenizer.json");
    static const struct { const char *text, *says; } cases[] = {
        { "", "tokenizer.json" }, { "{", "line 1" }, { "[]", "expected a JSON object" }, { "\"\\ud800\"", "line 1" }, { "{} x", "line 1" },
        { "{\"model\": {\"vocab\": {\"a\": 1, \"a\": 2}}}", "duplicate" } };
    CloverTokenizer *t;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(path, cases[i].text, strlen(cases[i].text));
        assert_status(tokenizer_from_json(path, &t, &err), CLOVER_BAD_INPUT, err);
        assert_says(err, cases[i].says);
    }
    assert_status(tokenizer_from_json(in_folder(folder, "none.json"), &t, &err), CLOVER_BAD_INPUT, err);
    assert_says(err, "none.json");

    Bytes whole = read_file(VECTORS "tokenizer.json");
    for (size_t part = 0; part < 50; part++) {
        write_file(path, whole.data, whole.n * part / 50);
        assert_status(tokenizer_from_json(path, &t, &err), CLOVER_BAD_INPUT, err);
    }
    free_bytes(&whole);
    remove_folder(folder);
}
END_TEST

START_TEST(a_gguf_vocabulary_that_is_wrong_or_unsupported_is_refused_by_name) {
    enum { CASES = 22 };
    for (int i = 0; i < CASES; i++) {
        GgufForm f = gguf_form();
        CloverStatus expected = CLOVER_BAD_INPUT;
        const char *says = "";
        switch (i) {
            case 0: strcpy(f.model, "llama"), expected = CLOVER_UNSUPPORTED, says = "tokenizer.ggml.model is 'llama'"; break;
            case 1: strcpy(f.pre, "qwen2"), expected = CLOVER_UNSUPPORTED, says = "tokenizer.ggml.pre is 'qwen2'"; break;
            case 2: f.pre[0] = 0, says = "tokenizer.ggml.pre is missing"; break;
            case 3: f.model[0] = 0, says = "tokenizer.ggml.model is missing"; break;
            case 4: f.no_tokens = true, says = "tokenizer.ggml.tokens is missing"; break;
            case 5: f.no_types = true, says = "token_type is missing"; break;
            case 6: f.no_merges = true, says = "merges is missing"; break;
            case 7: f.n_types--, says = "token_type has 521 entries, tokenizer.ggml.tokens has 522"; break;
            case 8: set_text(&f.token[7], f.token[8]), says = "has two ids, 7 and 8"; break;
            case 9: set_text(&f.merge[2], "qqq b"), says = "merge 2: its part 'qqq' is not"; break;
            case 10: set_text(&f.merge[2], "b qqq"), says = "merge 2: its part 'qqq' is not"; break;
            case 11: set_text(&f.merge[2], "q q"), says = "merge 2: its result 'qq' is not"; break;
            case 12: set_text(&f.merge[2], f.merge[3]), says = "merge 3: "; break;
            case 13: set_text(&f.merge[2], "ab"), says = "merges[2]: expected"; break;
            case 14: set_text(&f.merge[2], "a "), says = "merges[2]: expected"; break;
            case 15: set_text(&f.merge[2], "a b c"), says = "merges[2]: expected"; break;
            case 16: f.type[300] = 6, expected = CLOVER_BAD_INPUT, says = "tokens[300]: token type 6 (byte)"; break;
            case 17: f.type[521] = 2, expected = CLOVER_UNSUPPORTED, says = "tokens[521]: token type 2 (unknown)"; break;
            case 18: f.type[521] = 0, says = "token type 0"; break;
            case 19: f.type[521] = 77, says = "token type 77"; break;
            case 20: f.bos = true, expected = CLOVER_UNSUPPORTED, says = "add_bos_token is true"; break;
            default: set_text(&f.token[520], ""), says = "an added token without text"; break;
        }
        CloverTokenizer *t = NULL;
        CloverStatus status = load_gguf(&f, &t);
        ck_assert_msg(status == expected, "case %d: status %d: %s", i, (int)status, status ? err.text : "");
        assert_says(err, says);
        assert_says(err, "vocab.gguf: ");
        ck_assert_ptr_null(t);
    }
}
END_TEST

START_TEST(all_problems_of_a_gguf_vocabulary_are_told_at_once) {
    GgufForm f = gguf_form();
    strcpy(f.pre, "gpt-2");
    f.type[521] = 77;
    set_text(&f.merge[2], "qqq b");
    f.bos = true;
    CloverTokenizer *t;
    assert_status(load_gguf(&f, &t), CLOVER_BAD_INPUT, err);
    ck_assert_int_eq(problems(&err), 4);
}
END_TEST

START_TEST(a_gguf_without_vocabulary_has_no_tokenizer) {
    for (int i = 0; i < 3; i++) {
        GgufForm f = gguf_form();
        f.no_keys = i == 0;
        if (i > 0) strcpy(f.model, i == 1 ? "none" : "no_vocab");
        CloverTokenizer *t = (CloverTokenizer *)&f;    /* anything but NULL */
        assert_ok(load_gguf(&f, &t), err);
        ck_assert_ptr_null(t);
    }
}
END_TEST

START_TEST(loading_without_memory_is_told) {
    for (long i = 0; malloc_can_fail(); i++) {
        GgufForm f = gguf_form();
        f.fail_at = i + 1;
        CloverTokenizer *t = NULL;
        CloverStatus status = load_gguf(&f, &t);
        ck_assert_int_eq(status, f.failed ? CLOVER_SYSTEM : CLOVER_OK);
        tokenizer_free(t);
        if (!f.failed) break;
    }
    /* jansson takes a lack of memory for wrong JSON in places: never a crash or a leak, and never CLOVER_OK. */
    for (long i = 0; malloc_can_fail(); i += i < 20 ? 1 : 197) {
        CloverTokenizer *t = NULL;
        malloc_fail_after(i, true);
        CloverStatus status = tokenizer_from_json(VECTORS "added.json", &t, &err);
        bool failed = malloc_recover();
        ck_assert_int_eq(status != CLOVER_OK, failed);
        tokenizer_free(t);
        if (!failed) break;
    }
    if (!malloc_can_fail()) puts("skip: allocations cannot be made to fail under sanitizers");
}
END_TEST

Suite *tokenizer_files_suite(void) {
    Suite *s = suite_create("tokenizer_files");
    TCase *c = tcase_create("bad files");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, a_tokenizer_json_that_is_wrong_or_unsupported_is_refused_by_name);
    tcase_add_test(c, all_problems_of_a_tokenizer_json_are_told_at_once);
    tcase_add_test(c, what_is_no_tokenizer_json_is_refused);
    tcase_add_test(c, a_gguf_vocabulary_that_is_wrong_or_unsupported_is_refused_by_name);
    tcase_add_test(c, all_problems_of_a_gguf_vocabulary_are_told_at_once);
    tcase_add_test(c, a_gguf_without_vocabulary_has_no_tokenizer);
    tcase_add_test(c, loading_without_memory_is_told);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(tokenizer_files_suite()); }
