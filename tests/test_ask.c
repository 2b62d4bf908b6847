/* test_ask.c - clover ask: how answers are judged, and what garbage shows. [ASK-1] */
#include <math.h>
#include "../tools/ask.h"
#include "commands.h"
#include "drift_files.h"

START_TEST(right_and_wrong) {
    ck_assert(ask_is_right("Paris", "Paris"));
    ck_assert(ask_is_right("The capital is paris.", "Paris"));
    ck_assert(ask_is_right("**PARIS**\n", "Paris"));
    ck_assert(!ask_is_right("Parisian", "Paris"));
    ck_assert(!ask_is_right("comParis", "Paris"));
    ck_assert(!ask_is_right("London", "Paris"));
    ck_assert(!ask_is_right("", "Paris"));
    ck_assert(ask_is_right("7 + 5 = 12.", "12"));
    ck_assert(!ask_is_right("112", "12"));
    ck_assert(!ask_is_right("120", "12"));
    ck_assert(ask_is_right("120, no, 12", "12"));
} END_TEST

START_TEST(telltales) {
    int32_t ids[40];
    for (int i = 0; i < 40; i++) ids[i] = 7;
    ck_assert_int_eq(ask_telltales(ids, 40, 1, 1000), ONE_TOKEN);
    ids[0] = 3, ids[1] = 4;
    ck_assert_int_eq(ask_telltales(ids, 20, 1, 1000), ONE_TOKEN);       /* 18 of 20 */
    ck_assert_int_eq(ask_telltales(ids, 7, 1, 1000), 0);                /* too few to say */
    for (int i = 0; i < 40; i++) ids[i] = i % 3;
    ck_assert_int_eq(ask_telltales(ids, 40, 1, 1000), LOOP);
    for (int i = 0; i < 25; i++) ids[i] = 100 + i;
    ck_assert_int_eq(ask_telltales(ids, 40, 1, 1000), 0);               /* less than half of it turns */
    for (int i = 0; i < 40; i++) ids[i] = i;
    ck_assert_int_eq(ask_telltales(ids, 40, 1, 1000), 0);
    ck_assert_int_eq(ask_telltales(ids, 40, NAN, 1000), 0);
    ck_assert_int_eq(ask_telltales(ids, 40, 0.0005, 1000), NO_DOUBT);
    ck_assert_int_eq(ask_telltales(ids, 40, 0.91 * log(1000), 1000), NO_IDEA);
    ck_assert_int_eq(ask_telltales(ids, 40, 0.89 * log(1000), 1000), 0);
    ck_assert_int_eq(ask_telltales(ids, 0, 1, 1000), SILENT);
    for (int bit = ONE_TOKEN; bit <= SILENT; bit *= 2) ck_assert_uint_gt(strlen(telltale_name((Telltale)bit)), 5);
} END_TEST

static bool any_shows(const json_t *all, const char *telltale) {
    size_t i, k;
    json_t *answer, *name;
    json_array_foreach(json_object_get(all, "answers"), i, answer)
        json_array_foreach(json_object_get(answer, "telltales"), k, name)
            if (strcmp(json_string_value(name), telltale) == 0) return true;
    return false;
}

/* Random weights answer nothing; both paths are asked where there are two, and one where there is one. */
START_TEST(random_weights) {
    json_t *all = run_json(cmd_ask, "ask " GOOD_GGUF " --json -n 8", 1);
    ck_assert_int_eq(json_integer_value(json_object_get(all, "asked")), 16);
    ck_assert_int_eq(json_integer_value(json_object_get(all, "right")), 0);
    json_decref(all);
    Edit *e = edit_gguf();
    for (int i = e->n_tensors - 1; i >= 0; i--)
        if (strstr(e->tensor[i].name, "bd_softmax") || strstr(e->tensor[i].name, "conv_right")) edit_drop(e, e->tensor[i].name);
    char words[512];
    snprintf(words, sizeof words, "ask %s --json -n 2", edit_write(e));
    all = run_json(cmd_ask, words, 1);
    ck_assert_int_eq(json_integer_value(json_object_get(all, "asked")), 8);
    json_decref(all);
    edit_free(e);
} END_TEST

/* A head of zeros has no idea, a head with one large row says one token for ever. */
START_TEST(garbage_is_named) {
    char words[512];
    for (int k = 0; k < 2; k++) {
        Edit *e = edit_gguf();
        EditTensor *head = edit_tensor(e, "output.weight"), *norm = edit_tensor(e, "output_norm.weight"), *embedding = edit_tensor(e, "token_embd.weight");
        memset(head->data.data, 0, head->data.n);
        for (int64_t d = 0; d < 64 && k == 1; d++) {             /* every row of the embedding leans one way, and so does token 71's head row */
            edit_set(norm, d, 1);
            for (int64_t v = 0; v < 272; v++) edit_set(embedding, v * 64 + d, edit_get(embedding, v * 64 + d) * 0.1f + 30);
            edit_set(head, 71 * 64 + d, 9);
        }
        snprintf(words, sizeof words, "ask %s --json -n 8", edit_write(e));
        json_t *all = run_json(cmd_ask, words, 1);
        ck_assert_msg(any_shows(all, k == 0 ? "entropy near ln V" : "one token for ever"), "case %d", k);
        ck_assert(k == 0 || any_shows(all, "entropy near zero"));
        ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(all, "verdict")), "garbage"));
        json_decref(all);
        edit_free(e);
    }
} END_TEST

START_TEST(refusals) {
    Edit *e = drifted(drift_raw_a_log, DT_F32);
    char words[512];
    snprintf(words, sizeof words, "ask %s -n 4", edit_write(e));
    assert_run(cmd_ask, words, 3, "ssm_a holds A_log");
    snprintf(words, sizeof words, "ask %s -n 4 --as-is", edit_write(e));
    assert_run(cmd_ask, words, 1, "of 16 right");
    edit_free(e);
    assert_run(cmd_ask, "ask tests/vectors/shapes/recurrent/hf", 4, "no tokenizer");
    assert_run(cmd_ask, "ask no-such.gguf", 3, "no-such.gguf");
    assert_run(cmd_ask, "ask", 2, "MODEL");
} END_TEST

Suite *ask_suite(void) {
    Suite *s = suite_create("ask");
    TCase *c = tcase_create("ask");
    tcase_set_timeout(c, 30);
    tcase_add_test(c, right_and_wrong);
    tcase_add_test(c, telltales);
    tcase_add_test(c, random_weights);
    tcase_add_test(c, garbage_is_named);
    tcase_add_test(c, refusals);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(ask_suite()); }
