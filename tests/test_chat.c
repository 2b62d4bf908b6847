/* test_chat.c - the chat form, written out by hand. */
#include <string.h>
#include "harness.h"
#include "../ref/files/tokenizer.h"

static CloverError err;

static void check_chat(const CloverMessage *messages, int64_t n, bool think, const char *expected) {
    char *text;
    assert_ok(clover_chat_text(messages, n, think, &text, &err), err);
    ck_assert_str_eq(text, expected);
    free(text);
}

/* [CHT-1] */
START_TEST(one_turn) {
    const CloverMessage m[] = { { "user", "Where is the fourth leaf?" } };
    check_chat(m, 1, true, "<|im_start|>user\nWhere is the fourth leaf?<|im_end|>\n<|im_start|>assistant\n<think>\n");
}
END_TEST

/* [CHT-2] */
START_TEST(thinking_off) {
    const CloverMessage m[] = { { "user", "Hello" } };
    check_chat(m, 1, false, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}
END_TEST

START_TEST(a_system_turn_and_several_turns) {
    const CloverMessage m[] = { { "system", "Be brief." }, { "user", "One?" }, { "assistant", "<think>\nhm\n</think>\n\nOne." },
                                { "user", "Two?" }, { "user", " and\nthree? " } };
    check_chat(m, 5, true,
               "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOne?<|im_end|>\n"
               "<|im_start|>assistant\n<think>\nhm\n</think>\n\nOne.<|im_end|>\n"
               "<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>user\n and\nthree? <|im_end|>\n<|im_start|>assistant\n<think>\n");
}
END_TEST

START_TEST(empty_texts_are_texts) {
    const CloverMessage m[] = { { "system", "" }, { "user", "" } };
    check_chat(m, 2, true, "<|im_start|>system\n<|im_end|>\n<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<think>\n");
}
END_TEST

/* Markers are one id each, and what a turn says stands between them. */
START_TEST(the_form_is_encoded_with_special_tokens) {
    const CloverMessage m[] = { { "user", "a" } };
    CloverTokenizer *t;
    char *text;
    int32_t *id;
    int64_t n;
    assert_ok(tokenizer_from_json("tests/vectors/tokenizer/tokenizer.json", &t, &err), err);
    assert_ok(clover_chat_text(m, 1, false, &text, &err), err);
    assert_ok(clover_encode(t, text, strlen(text), true, &id, &n, &err), err);
    ck_assert_int_eq(id[0], clover_token_find(t, "<|im_start|>"));
    int64_t ends = 0, thinks = 0, thought = 0;
    for (int64_t i = 0; i < n; i++) {
        ends += id[i] == clover_token_find(t, "<|im_end|>");
        thinks += id[i] == clover_token_find(t, "<think>");
        thought += id[i] == clover_token_find(t, "</think>");
    }
    ck_assert_int_eq(ends, 1);
    ck_assert_int_eq(thinks, 1);
    ck_assert_int_eq(thought, 1);
    free(id), free(text);
    tokenizer_free(t);
}
END_TEST

START_TEST(what_is_no_chat_is_refused) {
    static const struct { CloverMessage m[3]; int64_t n; const char *says; } cases[] = {
        { { { "user", "x" } }, 0, "at least one message" }, { { { "user", "x" } }, -1, "at least one message" },
        { { { "tool", "x" }, { "user", "x" } }, 2, "message 0: role 'tool'" }, { { { "User", "x" } }, 1, "role 'User'" },
        { { { "", "x" } }, 1, "role ''" },
        { { { "user", "x" }, { "system", "x" }, { "user", "x" } }, 3, "message 1: a system message stands first" },
        { { { "system", "x" }, { "system", "x" }, { "user", "x" } }, 3, "message 1: a system message stands first" },
        { { { "system", "x" } }, 1, "the last message is the system's" },
        { { { "user", "x" }, { "assistant", "x" } }, 2, "the last message is the assistant's" },
        { { { NULL, "x" } }, 1, "message 0 has no role" }, { { { "user", NULL } }, 1, "message 0 has no content" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = NULL;
        assert_status(clover_chat_text(cases[i].m, cases[i].n, true, &text, &err), CLOVER_USAGE, err);
        ck_assert_msg(strstr(err.text, cases[i].says) != NULL, "expected \"%s\" in: %s", cases[i].says, err.text);
        ck_assert_ptr_null(text);
    }
}
END_TEST

Suite *chat_suite(void) {
    Suite *s = suite_create("chat");
    TCase *c = tcase_create("chat");
    tcase_add_test(c, one_turn);
    tcase_add_test(c, thinking_off);
    tcase_add_test(c, a_system_turn_and_several_turns);
    tcase_add_test(c, empty_texts_are_texts);
    tcase_add_test(c, the_form_is_encoded_with_special_tokens);
    tcase_add_test(c, what_is_no_chat_is_refused);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(chat_suite()); }
