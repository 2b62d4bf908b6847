/* test_tokenizer.c - text to ids and back. Expected ids come from the PyPI package `tokenizers`, expected streams from
 * Python's decoder: tests/vectors/tokenizer/make.py. */
#include <utf8proc.h>
#include "random.h"
#include "tokenizer_load.h"
#include "../ref/files/tokenizer_parts.h"
#include "../ref/files/utf8.h"

/* ---- ids --------------------------------------------------------------------------------------------------------- */

static void check_ids(const CloverTokenizer *t, const json_t *text, const json_t *expected, bool special) {
    const char *bytes = json_string_value(text);
    int32_t *id;
    int64_t n;
    assert_ok(clover_encode(t, bytes, json_string_length(text), special, &id, &n, &err), err);
    bool equal = (size_t)n == json_array_size(expected);
    for (int64_t i = 0; equal && i < n; i++) equal = id[i] == json_integer_value(json_array_get(expected, (size_t)i));
    ck_assert_msg(equal, "\"%s\" (special %d): %lld ids, expected %zu, or other ones", bytes, special, (long long)n,
                  json_array_size(expected));
    free(id);
}

/* expected.json holds NUL characters: jansson reads them when it is told to. */
static json_t *load_expected(const char *part) {
    json_error_t where;
    json_t *root = json_load_file(VECTORS "expected.json", JSON_ALLOW_NUL, &where);
    ck_assert_msg(root != NULL, "expected.json: %s", where.text);
    json_t *cases = json_incref(json_object_get(root, part));
    json_decref(root);
    return cases;
}

static void check_all_ids(const CloverTokenizer *t, const char *part, size_t at_least) {
    json_t *cases = load_expected(part), *c;
    ck_assert_uint_ge(json_array_size(cases), at_least);
    size_t i;
    json_array_foreach(cases, i, c) {
        const json_t *ids = json_object_get(c, "ids"), *plain = json_object_get(c, "plain");
        check_ids(t, json_object_get(c, "text"), ids, true);
        check_ids(t, json_object_get(c, "text"), plain ? plain : ids, false);
    }
    json_decref(cases);
}

/* [TOK-1] [TOK-2] [TOK-3] [TOK-4] [TOK-5] */
START_TEST(hard_texts_give_the_ids_of_tokenizers) {
    CloverTokenizer *t = load(VECTORS "tokenizer.json");
    check_all_ids(t, "tokenizer", 100);
    tokenizer_free(t);
}
END_TEST

/* Added tokens that begin alike, overlap, stand in each other, and are normalised. [TOK-4] */
START_TEST(odd_added_tokens_are_taken_out_as_tokenizers_does) {
    CloverTokenizer *t = load(VECTORS "added.json");
    check_all_ids(t, "added", 16);
    tokenizer_free(t);
}
END_TEST

/* [TOK-6] */
START_TEST(a_gguf_of_the_vocabulary_gives_the_same_ids) {
    GgufForm f = gguf_form();
    CloverTokenizer *t;
    assert_ok(load_gguf(&f, &t), err);
    check_all_ids(t, "tokenizer", 100);
    tokenizer_free(t);
}
END_TEST

/* The other way to write merges. */
START_TEST(merges_may_be_written_with_a_space) {
    json_t *root = load_json(VECTORS "tokenizer.json"), *merges = json_object_get(json_object_get(root, "model"), "merges"), *merge;
    size_t i;
    json_array_foreach(merges, i, merge) {
        char both[256];
        snprintf(both, sizeof both, "%s %s", json_string_value(json_array_get(merge, 0)), json_string_value(json_array_get(merge, 1)));
        json_array_set_new(merges, i, json_string(both));
    }
    CloverTokenizer *t;
    assert_ok(load_edited(root, &t), err);
    check_all_ids(t, "tokenizer", 100);
    tokenizer_free(t);
}
END_TEST

/* ---- merging ----------------------------------------------------------------------------------------------------- */

/* [TOK-3] word for word: look at all pairs, merge the best, begin again. */
static int32_t merge_naively(const MergeTable *m, int32_t *id, int32_t n) {
    for (;;) {
        const Merge *best = NULL;
        int32_t at = 0;
        for (int32_t i = 0; i + 1 < n; i++) {
            const Merge *merge = merge_table_find(m, id[i], id[i + 1]);
            if (merge && (!best || merge->rank < best->rank)) best = merge, at = i;
        }
        if (!best) return n;
        id[at] = best->result;
        for (int32_t i = at + 1; i + 1 < n; i++) id[i] = id[i + 1];
        n--;
    }
}

/* Few symbols and many merges, among them of a symbol with itself: ties, chains and stale candidates all the time. */
START_TEST(merging_with_a_heap_equals_merging_by_looking) {
    uint64_t seed = 7;
    BpeSpace space = { 0 };
    for (int round = 0; round < 300; round++) {
        MergeTable m;
        ck_assert(merge_table_new(&m, 40));
        for (int32_t i = 0; i < 40; i++) {
            int32_t left = (int32_t)(random_bits(&seed) % (uint64_t)(3 + i)), right = (int32_t)(random_bits(&seed) % (uint64_t)(3 + i));
            merge_table_add(&m, (Merge){ left, right, i, 3 + i });
        }
        int32_t n = 1 + (int32_t)(random_bits(&seed) % 80), naive[80];
        ck_assert(bpe_space_reserve(&space, n));
        for (int32_t i = 0; i < n; i++) naive[i] = space.id[i] = (int32_t)(random_bits(&seed) % 3);
        int32_t left = bpe_merge(&m, &space, n);
        ck_assert_int_eq(left, merge_naively(&m, naive, n));
        ck_assert_mem_eq(space.id, naive, (size_t)left * sizeof *naive);
        free(m.slot);
    }
    bpe_space_free(&space);
}
END_TEST

/* ---- back to text ------------------------------------------------------------------------------------------------ */

static Bytes decode(const CloverTokenizer *t, const int32_t *id, int64_t n) {
    Bytes b = { 0 };
    int64_t holes = 0;
    for (int64_t i = 0; i < n; i++) {                 /* an assertion for each of a million would take longer than the rest */
        size_t length;
        const char *bytes = clover_token_bytes(t, id[i], &length);
        holes += bytes == NULL;
        put_bytes(&b, bytes, length);
    }
    ck_assert_int_eq(holes, 0);
    return b;
}

/* utf8proc's own NFC, which is only slow on long runs of marks. */
static char *nfc_of(const char *text, size_t length, size_t *out_length) {
    utf8proc_uint8_t *out;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)length, &out, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    ck_assert_int_ge(n, 0);
    *out_length = (size_t)n;
    return (char *)out;
}

/* decode(encode(x)) is NFC(x), added tokens or not: here no mark follows one. [TOK-7] */
START_TEST(decoding_gives_the_normalised_text_back) {
    CloverTokenizer *t = load(VECTORS "tokenizer.json");
    json_t *cases = load_expected("tokenizer"), *c;
    size_t i;
    json_array_foreach(cases, i, c) {
        const json_t *text = json_object_get(c, "text");
        if (strstr(json_string_value(text), ">\xCC")) continue;
        int32_t *id;
        int64_t n;
        size_t length;
        assert_ok(clover_encode(t, json_string_value(text), json_string_length(text), i % 2, &id, &n, &err), err);
        Bytes back = decode(t, id, n);
        char *expected = nfc_of(json_string_value(text), json_string_length(text), &length);
        ck_assert_uint_eq(back.n, length);
        if (length) ck_assert_mem_eq(back.data, expected, length);
        free(id), free(expected), free_bytes(&back);
    }
    json_decref(cases);
    tokenizer_free(t);
}
END_TEST

/* Random texts of bases and marks of many classes, in any order. [TOK-1] */
START_TEST(nfc_equals_utf8procs) {
    static const int32_t from[] = { 0x61, 0x300, 0x323, 0x1100, 0x1161, 0x11A8, 0x915, 0x93C, 0x5D0, 0x5B0, 0x1D157, 0x1D165,
                                    0x1E00, 0x1F00, 0xAC00, 0xF900, 0x2F800 };
    uint64_t seed = 1;
    for (int round = 0; round < 2000; round++) {
        char text[400], *ours, *theirs;
        size_t length = 0, n, m;
        for (int i = 0; i < 40; i++) {
            int32_t code = from[random_bits(&seed) % 17] + (int32_t)(random_bits(&seed) % 24);
            length += (size_t)utf8proc_encode_char(code, (utf8proc_uint8_t *)text + length);
        }
        assert_ok(utf8_nfc(text, length, &ours, &n, &err), err);
        theirs = nfc_of(text, length, &m);
        ck_assert_uint_eq(n, m);
        ck_assert_mem_eq(ours, theirs, n);
        free(ours), free(theirs);
    }
}
END_TEST

/* [TOK-8] */
START_TEST(tokens_tell_what_they_are) {
    GgufForm f = gguf_form();
    f.type[520] = 5;                                  /* an unused entry is a hole */
    CloverTokenizer *t;
    assert_ok(load_gguf(&f, &t), err);
    size_t length;
    ck_assert_int_eq(clover_tokenizer_size(t), 522);
    ck_assert_int_eq(clover_token_find(t, "<|im_end|>"), 518);
    ck_assert_int_eq(clover_token_find(t, "</think>"), 521);
    ck_assert_int_eq(clover_token_find(t, "<think>"), -1);
    ck_assert_int_eq(clover_token_find(t, "the"), -1);
    ck_assert(clover_token_is_special(t, 518));
    ck_assert(!clover_token_is_special(t, 521));
    ck_assert(!clover_token_is_special(t, 0));
    ck_assert(!clover_token_is_special(t, -1));
    ck_assert(!clover_token_is_special(t, 522));
    int32_t *ids;
    int64_t n;
    assert_ok(clover_encode(t, "<|im_end|>", 9, true, &ids, &n, &err), err);   /* the text ends before the token does */
    ck_assert_int_gt(n, 1);
    free(ids);
    ck_assert_mem_eq(clover_token_bytes(t, 518, &length), "<|im_end|>", 10);
    ck_assert_uint_eq(length, 10);
    for (int32_t id = -1; id <= 522; id++) {
        bool hole = id < 0 || id == 520 || id > 521;
        length = 99;
        ck_assert(hole == (clover_token_bytes(t, id, &length) == NULL));
        ck_assert(hole == (length == 0));
    }
    tokenizer_free(t);
}
END_TEST

/* A token outside the byte alphabet cannot come from text, but it has bytes: itself. */
START_TEST(a_token_outside_the_byte_alphabet_is_its_own_text) {
    GgufForm f = gguf_form();
    set_text(&f.token[519], "w 262\xE4\xB8\x89");
    f.type[519] = 1;
    CloverTokenizer *t;
    assert_ok(load_gguf(&f, &t), err);
    size_t length;
    ck_assert_mem_eq(clover_token_bytes(t, 519, &length), "w 262\xE4\xB8\x89", 8);
    ck_assert_uint_eq(length, 8);
    tokenizer_free(t);
}
END_TEST

/* ---- streaming --------------------------------------------------------------------------------------------------- */

static Bytes from_hex(const char *hex) {
    Bytes b = { 0 };
    put_bytes(&b, "", 0);
    for (; *hex; hex += 2) {
        char digits[3] = { hex[0], hex[1], 0 };
        put_number(&b, strtoul(digits, NULL, 16), 1);
    }
    return b;
}

/* Whatever the pieces, the whole is what Python's decoder makes of it, and every piece's output is whole characters. [TOK-7] */
START_TEST(streams_put_out_whole_characters) {
    json_t *cases = load_expected("streams"), *c;
    ck_assert_uint_ge(json_array_size(cases), 28);
    size_t i;
    json_array_foreach(cases, i, c) {
        Bytes in = from_hex(json_string_value(json_object_get(c, "hex")));
        const json_t *expected = json_object_get(c, "text"), *invalid = json_object_get(c, "invalid");
        for (size_t piece = 1; piece <= in.n + 1; piece++) {
            CloverUtf8Stream s = { 0 };
            char out[512];
            size_t n = 0;
            for (size_t at = 0; at < in.n; at += piece) {
                size_t length = in.n - at < piece ? in.n - at : piece;
                size_t put = clover_utf8_feed(&s, (const char *)in.data + at, length, false, out + n);
                ck_assert_uint_le(put, 3 * length + 16);
                ck_assert_uint_eq(utf8_first_invalid(out + n, put), put);
                n += put;
            }
            n += clover_utf8_feed(&s, NULL, 0, true, out + n);
            ck_assert_uint_eq(n, json_string_length(expected));
            ck_assert_mem_eq(out, json_string_value(expected), n);
            ck_assert_int_eq(s.n, 0);
        }
        ck_assert_uint_eq(utf8_first_invalid((const char *)in.data, in.n), invalid ? (size_t)json_integer_value(invalid) : in.n);
        free_bytes(&in);
    }
    json_decref(cases);
}
END_TEST

/* An emoji is four tokens here: nothing comes out before the last one. */
START_TEST(a_character_of_several_tokens_comes_out_once) {
    CloverTokenizer *t = load(VECTORS "tokenizer.json");
    int32_t *id;
    int64_t n;
    assert_ok(clover_encode(t, "\xF0\x9F\x8E\xB2", 4, true, &id, &n, &err), err);
    ck_assert_int_ge(n, 2);
    CloverUtf8Stream s = { 0 };
    char out[64];
    for (int64_t i = 0; i < n; i++) {
        size_t length;
        const char *bytes = clover_token_bytes(t, id[i], &length);
        size_t put = clover_utf8_feed(&s, bytes, length, false, out);
        ck_assert_uint_eq(put, i == n - 1 ? 4 : 0);
    }
    ck_assert_mem_eq(out, "\xF0\x9F\x8E\xB2", 4);
    free(id);
    tokenizer_free(t);
}
END_TEST

/* ---- bad texts, long texts --------------------------------------------------------------------------------------- */

/* [TOK-7] */
START_TEST(text_that_is_not_utf8_is_refused_with_its_offset) {
    CloverTokenizer *t = load(VECTORS "tokenizer.json");
    static const struct { const char *text, *says; } cases[] = {
        { "\xFF", "byte 0xFF at offset 0" }, { "abc\x80", "byte 0x80 at offset 3" },
        { "h\xC3\xA4\xC3", "byte 0xC3 at offset 3" },
        { "<|im_end|>\xE4\xB8", "byte 0xE4 at offset 10" },
        { "a\xED\xA0\x80", "byte 0xED at offset 1" }, { "\xC0\x80", "byte 0xC0 at offset 0" },
        { "ab\xF4\x90\x80\x80", "byte 0xF4 at offset 2" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t *id = NULL;
        int64_t n = -7;
        assert_status(clover_encode(t, cases[i].text, strlen(cases[i].text), true, &id, &n, &err), CLOVER_BAD_INPUT, err);
        assert_says(err, cases[i].says);
        ck_assert_ptr_null(id);
        ck_assert_int_eq(n, -7);
    }
    tokenizer_free(t);
}
END_TEST

/* A million bytes of one pattern: it ends soon, and nothing is lost. */
START_TEST(long_texts_of_one_pattern_end) {
    static const char *const patterns[] = { "a", " ", "\n", " \n", "\t \r\n\v", "!", "\xC3\xA9", "\xCC\x81\xCC\xA3",
                                            "a\xCC\x81\xCC\xA3", "\xE4\xB8\x89", "<", "<|im_end|>", "<|im_", "'",
                                            "\xEA\xB0\x80\xE1\x86\xA8", "\xE1\xA0\x8E" };
    enum { LENGTH = 1000000 };
    CloverTokenizer *t = load(VECTORS "tokenizer.json");
    char *text = malloc(LENGTH + 1);
    ck_assert_ptr_nonnull(text);
    size_t step = strlen(patterns[_i]), length = LENGTH / step * step;
    for (size_t i = 0; i < length; i++) text[i] = patterns[_i][i % step];
    text[length] = 'x';                               /* makes a run of spaces go back one */
    int32_t *id;
    int64_t n;
    size_t expected_length;
    assert_ok(clover_encode(t, text, length + 1, true, &id, &n, &err), err);
    Bytes back = decode(t, id, n);
    if ((unsigned char)patterns[_i][0] != 0xCC && step != 5) {   /* utf8proc would sort these for minutes */
        char *expected = nfc_of(text, length + 1, &expected_length);
        ck_assert_uint_eq(back.n, expected_length);
        ck_assert_mem_eq(back.data, expected, expected_length);
        free(expected);
    } else {
        ck_assert_uint_eq(back.n, length + 1);
    }
    free(id), free(text), free_bytes(&back);
    tokenizer_free(t);
}
END_TEST

/* ---- other patterns ---------------------------------------------------------------------------------------------- */

static json_t *with_pattern(const char *pattern) {
    json_t *root = load_json(VECTORS "tokenizer.json");
    json_t *split = json_array_get(json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers"), 0);
    json_object_set_new(json_object_get(split, "pattern"), "Regex", json_string(pattern));
    return root;
}

static void check_count(const CloverTokenizer *t, const char *text, int64_t expected) {
    int32_t *id;
    int64_t n;
    assert_ok(clover_encode(t, text, strlen(text), true, &id, &n, &err), err);
    ck_assert_msg(n == expected, "\"%s\": %lld ids, expected %lld", text, (long long)n, (long long)expected);
    free(id);
}

/* "ing" is one token where it is one piece: counts show where a pattern splits. [TOK-1] [TOK-6] */
START_TEST(the_pattern_of_the_file_splits) {
    static const struct { const char *pattern, *text; int64_t ids; } cases[] = {
        { "zzz", "inging", 2 },                       /* no match: one piece */
        { "[a-z]", "inging", 6 },                     /* a piece a letter */
        { "n", "ing", 3 },                            /* what lies between matches is a piece */
        { "x*", "ing", 1 },                           /* an empty match splits nothing */
        { "x*|n", "ing", 1 }, { "(?=n)", "ing", 1 },
        { "n?", "ing", 3 },
        { "n\\\\s", "in\\s", 4 },                      /* a backslash and an s, not a space */
        { "\\S", "ing", 3 }, { "[^\\S]", "ing", 1 }, { "[\\s\\S]", "ing", 3 },
        { "zzz", " \xE1\xA0\x8E", 2 },                /* a space and two bytes of U+180E merge in one piece */
        { "\\S", " \xE1\xA0\x8E", 4 }, { "[^\\s]", " \xE1\xA0\x8E", 4 },   /* U+180E is no space */
        { "\\s", " \xE1\xA0\x8E", 4 }, { "\\s\\s", " \xE1\xA0\x8E", 2 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CloverTokenizer *t;
        assert_ok(load_edited(with_pattern(cases[i].pattern), &t), err);
        check_count(t, cases[i].text, cases[i].ids);
        tokenizer_free(t);
    }
}
END_TEST

START_TEST(a_pattern_that_does_not_work_is_an_error) {
    CloverTokenizer *t;
    assert_status(load_edited(with_pattern("(a"), &t), CLOVER_UNSUPPORTED, err);
    assert_says(err, "does not compile");
    assert_status(load_edited(with_pattern("a\\Cb"), &t), CLOVER_UNSUPPORTED, err);

    assert_ok(load_edited(with_pattern("(a+)+(a+)+$"), &t), err);
    int32_t *id = NULL;
    int64_t n;
    assert_status(clover_encode(t, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", 41, true, &id, &n, &err), CLOVER_UNSUPPORTED, err);
    assert_says(err, "gave up");
    ck_assert_ptr_null(id);
    tokenizer_free(t);
}
END_TEST

/* Bytes alone need no merges; a byte that has no token is told when a text holds it. */
START_TEST(a_vocabulary_of_bytes_encodes_bytes) {
    GgufForm f = gguf_form();
    f.n_tokens = f.n_types = 256;
    f.no_merges = true;
    f.type[10] = 5;
    CloverTokenizer *t;
    assert_ok(load_gguf(&f, &t), err);
    check_count(t, "the h\xC3\xA4\xC3\x9F", 9);
    size_t length;
    int32_t *id = NULL, hole_byte = -1;
    for (int byte = 1; byte < 128; byte++) {
        char text[2] = { (char)byte, 0 };
        int64_t n;
        if (clover_encode(t, text, 1, true, &id, &n, &err) == CLOVER_OK) {
            ck_assert_int_eq(clover_token_bytes(t, id[0], &length)[0], byte);
            free(id);
        } else {
            ck_assert_int_eq(err.status, CLOVER_BAD_INPUT);
            assert_says(err, "no token for byte 0x");
            hole_byte = byte;
        }
    }
    ck_assert_int_eq(hole_byte, '+');                 /* id 10: the vocabulary begins at '!' */
    tokenizer_free(t);
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static const char memory_text[] = "cafe\xCC\x81 the <e\xCC\x81> <|im_end|> three leaves";

/* Each allocation in turn fails, alone or with all that follow: the right class, and nothing is kept. */
START_TEST(encoding_without_memory_is_told) {
    CloverTokenizer *t = load(VECTORS "added.json");
    for (long i = 0; malloc_can_fail(); i++) {
        int32_t *id = NULL;
        int64_t n;
        malloc_fail_after(i / 2, i % 2);
        CloverStatus status = clover_encode(t, memory_text, sizeof memory_text - 1, true, &id, &n, &err);
        bool failed = malloc_recover();
        ck_assert_int_eq(status, failed ? CLOVER_SYSTEM : CLOVER_OK);
        free(id);
        if (!failed) break;
    }
    tokenizer_free(t);
}
END_TEST

Suite *tokenizer_suite(void) {
    Suite *s = suite_create("tokenizer");
    TCase *c = tcase_create("ids");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, hard_texts_give_the_ids_of_tokenizers);
    tcase_add_test(c, odd_added_tokens_are_taken_out_as_tokenizers_does);
    tcase_add_test(c, a_gguf_of_the_vocabulary_gives_the_same_ids);
    tcase_add_test(c, merges_may_be_written_with_a_space);
    tcase_add_test(c, merging_with_a_heap_equals_merging_by_looking);
    tcase_add_test(c, the_pattern_of_the_file_splits);
    tcase_add_test(c, a_vocabulary_of_bytes_encodes_bytes);
    suite_add_tcase(s, c);
    c = tcase_create("text");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, decoding_gives_the_normalised_text_back);
    tcase_add_test(c, nfc_equals_utf8procs);
    tcase_add_test(c, tokens_tell_what_they_are);
    tcase_add_test(c, a_token_outside_the_byte_alphabet_is_its_own_text);
    tcase_add_test(c, streams_put_out_whole_characters);
    tcase_add_test(c, a_character_of_several_tokens_comes_out_once);
    tcase_add_test(c, text_that_is_not_utf8_is_refused_with_its_offset);
    tcase_add_loop_test(c, long_texts_of_one_pattern_end, 0, 16);
    suite_add_tcase(s, c);
    c = tcase_create("trouble");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, a_pattern_that_does_not_work_is_an_error);
    tcase_add_test(c, encoding_without_memory_is_told);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(tokenizer_suite()); }
