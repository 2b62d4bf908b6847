/* test_diff_trace.c - decisions of a run against the golden's: the first that differs, and whether rounding explains it. Traces
 * are written by hand. [DIF-9] */
#include <math.h>
#include "../tools/tools.h"
#include "judged.h"

/* ---- a bundle of one run of each mode, whose traces are replaced ------------------------------------------------------- */

enum { AR, DENOISE, DRAFT, EXACT_DRAFT, MODES };
static const char *const case_names[MODES] = { "ar", "denoise", "draft", "exact" };
static const Feature feature_of[MODES] = { FEATURE_CAUSAL, FEATURE_DENOISE, FEATURE_DRAFT, FEATURE_DRAFT };

static void make_runs(void) {
    static const char cases[] =
        "{\"cases\": [{\"name\": \"ar\", \"prompt\": {\"text\": \"He\"}, \"mode\": \"ar\", \"n\": 3, \"controls\": {\"presence_penalty\": 0.5}},"
        "{\"name\": \"denoise\", \"prompt\": {\"ids\": [72, 101]}, \"mode\": \"denoise\", \"n\": 4, \"options\": {\"block\": 4, \"threshold\": 0.5}},"
        "{\"name\": \"draft\", \"prompt\": {\"ids\": [72, 101]}, \"mode\": \"draft\", \"n\": 4, \"options\": {\"block\": 4}},"
        "{\"name\": \"exact\", \"prompt\": {\"ids\": [72, 101]}, \"mode\": \"draft\", \"n\": 4, \"options\": {\"block\": 4, \"accept\": \"exact\"}}]}";
    char text[1024];
    make_folder("diff-trace", judged_root);
    write_file(in_folder(judged_root, "cases.json"), cases, strlen(cases));
    snprintf(text, sizeof text, "synth -o %s/m.gguf --hidden 32 --layers 2 --interval 2 --vocab 270 --seed 5", judged_root);
    must(cmd_synth, text);
    snprintf(text, sizeof text, "golden %s/m.gguf --cases %s/cases.json -o %s/m-golden", judged_root, judged_root, judged_root);
    must(cmd_golden, text);
}

static void trace_path(char *path, size_t room, bool dump, int mode) {
    if (dump) snprintf(path, room, "%s/%s/trace.json", judged_folder, case_names[mode]);
    else snprintf(path, room, "%s/m-golden/%s/trace.json", judged_root, case_names[mode]);
}

/* The trace of a mode with these steps and tokens; its options are the golden's own. */
static void put_trace(bool dump, int mode, const char *prompt, const char *steps, const char *tokens) {
    char path[512], golden[512];
    json_error_t where;
    trace_path(golden, sizeof golden, false, mode);
    trace_path(path, sizeof path, dump, mode);
    json_t *trace = json_load_file(golden, 0, &where);
    ck_assert_ptr_nonnull(trace);
    if (prompt) json_object_set_new(trace, "prompt", json_loads(prompt, 0, &where));
    if (steps) json_object_set_new(trace, "steps", json_loads(steps, 0, &where));
    if (tokens) json_object_set_new(trace, "tokens", json_loads(tokens, 0, &where));
    snprintf(golden, sizeof golden, "%s/%s", judged_folder, case_names[mode]);
    mkdir(golden, 0777);
    ck_assert_int_eq(json_dump_file(trace, path, JSON_SORT_KEYS), 0);
    json_decref(trace);
}

/* One mode's golden steps against a dump's, both with those tokens; the result must be freed. */
static Judged *compare(int mode, const char *golden_steps, const char *golden_tokens, const char *dump_steps, const char *dump_tokens) {
    Judged *j = judged_at(in_folder(judged_root, "m.gguf"), "m-golden");
    j->options.no_model = true;
    put_trace(false, mode, NULL, golden_steps, golden_tokens);
    put_trace(true, mode, NULL, dump_steps, dump_tokens);
    judge(j);
    ck_assert_msg(j->status == CLOVER_OK, "%s", j->err.text);
    ck_assert_int_eq(j->result.n_traces, 1);
    ck_assert_str_eq(j->result.trace[0].case_name, case_names[mode]);
    ck_assert(j->result.trace[0].compared);
    return j;
}

typedef struct Case { int mode; const char *golden, *dump; const char *golden_tokens, *dump_tokens; int64_t step; bool explained; const char *says; } Case;

#define PASS(candidates, fixed) "{\"step\": \"pass\", \"pos\": 2, \"passno\": 0, \"candidates\": [" candidates "], \"fixed\": [" fixed "]}"
#define ROUND(draft, judged, accepted, bonus) "{\"step\": \"round\", \"pos\": 2, \"draft\": [" draft "], \"judged\": [" judged "], \"accepted\": " accepted ", \"bonus\": " bonus "}"
#define TOKEN(id, p) "{\"step\": \"token\", \"id\": " id ", \"p\": " p "}"

static const Case cases[] = {
    /* AR: another token; a near tie has both at about the same probability, which two tokens can have up to a half */
    { AR, "[" TOKEN("1", "0.4") ", " TOKEN("2", "0.7") "]", "[" TOKEN("1", "0.41") ", " TOKEN("3", "0.7") "]", NULL, NULL, 1, false, "token 2 (p 0.7) in the golden, 3 (p 0.7)" },
    { AR, "[" TOKEN("1", "0.4") "]", "[" TOKEN("9", "0.39995") "]", NULL, NULL, 0, true, "near tie" },
    { AR, "[" TOKEN("1", "0.4") "]", "[" TOKEN("9", "0.39") "]", NULL, NULL, 0, false, "token 1" },
    { AR, "[" TOKEN("1", "0.4") "]", "[]", NULL, NULL, 0, false, "ends here" },
    { AR, "[" TOKEN("1", "0.4") "]", "[" TOKEN("1", "0.4") ", " TOKEN("1", "0.4") "]", NULL, NULL, 1, false, "goes on" },
    { AR, "[" TOKEN("1", "0.4") "]", "[{\"step\": \"pass\"}]", NULL, NULL, 0, false, "a token here, the dump a pass" },
    { AR, "[" TOKEN("1", "0.4") "]", "[17]", NULL, NULL, 0, false, "a token here, the dump a ?" },
    { AR, "[" TOKEN("1", "0.4") "]", "[" TOKEN("1", "0.4") "]", "[1, 2]", "[1, 3]", 1, false, "output token 1 is 2 in the golden, 3 in the dump" },
    { AR, "[" TOKEN("1", "0.4") "]", "{}", "[1, 2]", "[4, 2]", 0, false, "output token 0" },
    /* denoise, threshold 0.5 */
    { DENOISE, "[" PASS("[0, 7, 0.9], [1, 8, 0.6]", "0, 1") "]", "[" PASS("[0, 7, 0.9], [1, 8, 0.6]", "0") "]", NULL, NULL, 0, false, "row 1 is fixed by the golden only" },
    { DENOISE, "[" PASS("[0, 7, 0.9], [1, 8, 0.4995]", "0") "]", "[" PASS("[0, 7, 0.9], [1, 8, 0.5002]", "0, 1") "]", NULL, NULL, 0, true, "row 1 is fixed by the dump only" },
    { DENOISE, "[" PASS("[0, 7, 0.9], [1, 8, 0.45]", "0") "]", "[" PASS("[0, 7, 0.9], [1, 8, 0.45]", "0, 1") "]", NULL, NULL, 0, false, "row 1 is fixed by the dump only" },
    { DENOISE, "[" PASS("[0, 7, 0.3], [1, 8, 0.3003]", "1") "]", "[" PASS("[0, 7, 0.3002], [1, 8, 0.3001]", "0") "]", NULL, NULL, 0, true, "row 0 is fixed by the dump only" },
    { DENOISE, "[" PASS("[0, 7, 0.9], [1, 8, 0.9]", "0, 1") "]", "[" PASS("[0, 7, 0.9], [1, 8, 0.9]", "0") "]", NULL, NULL, 0, false, "row 1 is fixed by the golden only" },
    { DENOISE, "[" PASS("[0, 7, 0.2], [1, 8, 0.3]", "1") "]", "[" PASS("[0, 7, 0.2], [1, 8, 0.3]", "0") "]", NULL, NULL, 0, false, "row 0 is fixed by the dump only" },
    { DENOISE, "[" PASS("[0, 7, 0.9]", "0") "]", "[" PASS("[0, 6, 0.9]", "0") "]", NULL, NULL, 0, false, "the golden's token is 7 (p 0.9), the dump's 6" },
    { DENOISE, "[" PASS("[0, 7, 0.45]", "0") "]", "[" PASS("[0, 6, 0.4502]", "0") "]", NULL, NULL, 0, true, "the golden's token is 7" },
    { DENOISE, "[" PASS("[0, 7, 0.9], [1, 8, 0.2]", "0") "]", "[" PASS("[0, 7, 0.9]", "0") "]", NULL, NULL, 0, false, "2 masked rows" },
    { DENOISE, "[" PASS("[0, 7, 0.9], [1, 8, 0.2]", "0") "]", "[" PASS("[0, 7, 0.9], [2, 8, 0.2]", "0") "]", NULL, NULL, 0, false, "row 1 is masked in one" },
    { DENOISE, "[{\"step\": \"block\", \"pos\": 2, \"ids\": [1], \"emitted\": 1}]", "[{\"step\": \"block\", \"pos\": 2, \"ids\": [1], \"emitted\": 0}]", NULL, NULL, 0, false, "the blocks differ" },
    /* draft: accepted from min(0.9, 0.6 e^-H): H = 0.5: 0.3639 */
    { DRAFT, "[" ROUND("1, 2", "[2, 0.5, 0.5, true]", "1", "3") "]", "[" ROUND("1, 2", "[2, 0.5, 0.5, false]", "0", "4") "]", NULL, NULL, 0, false, "candidate 1 (token 2) is accepted by the golden only" },
    { DRAFT, "[" ROUND("1, 2", "[2, 0.3641, 0.5, true]", "1", "3") "]", "[" ROUND("1, 2", "[2, 0.3638, 0.5, false]", "0", "4") "]", NULL, NULL, 0, true, "accepted by the golden only" },
    { DRAFT, "[" ROUND("1, 2", "[2, 0.1, 0.5, false]", "0", "3") "]", "[" ROUND("1, 9", "[9, 0.1, 0.5, false]", "0", "3") "]", NULL, NULL, 0, false, "the drafts differ" },
    { DRAFT, "[" ROUND("1, 2", "[2, 0.1, 0.5, false]", "0", "3") "]", "[" ROUND("1, 2", "[2, 0.1, 0.5, false]", "0", "5") "]", NULL, NULL, 0, false, "accepted 0 and then 3 in the golden, 0 and then 5" },
    { EXACT_DRAFT, "[" ROUND("1, 2", "[2, 0.4001, 0.5, true]", "1", "3") "]", "[" ROUND("1, 2", "[2, 0.3998, 0.5, false]", "0", "4") "]", NULL, NULL, 0, true, "near tie" },
    { EXACT_DRAFT, "[" ROUND("1, 2", "[2, 0.7, 0.5, true]", "1", "3") "]", "[" ROUND("1, 2", "[2, 0.7, 0.5, false]", "0", "4") "]", NULL, NULL, 0, false, "accepted by the golden only" },
};

START_TEST(decision_differs) {
    const Case *c = &cases[_i];
    Judged *j = compare(c->mode, c->golden, c->golden_tokens ? c->golden_tokens : "[]", c->dump, c->dump_tokens ? c->dump_tokens : "[]");
    const TraceResult *t = &j->result.trace[0];
    ck_assert(t->differs);
    ck_assert_msg(t->step == c->step, "step %lld: %s", (long long)t->step, t->text);
    ck_assert_msg(t->explained == c->explained, "%s", t->text);
    ck_assert_msg(strstr(t->text, c->says) != NULL, "%s", t->text);
    ck_assert_msg((strstr(t->text, "near tie") != NULL) == c->explained, "%s", t->text);
    ck_assert_int_eq(j->result.feature[feature_of[c->mode]], c->explained ? FEATURE_CONFORMS : FEATURE_DIFFERS);
    ck_assert_int_eq(j->result.verdict == DIFF_DIFFERS, !c->explained);
    judged_free(j);
}
END_TEST

/* Under a wider profile more is a near tie. */
START_TEST(the_profile_counts) {
    Judged *j = compare(AR, "[" TOKEN("1", "0.4") "]", "[]", "[" TOKEN("9", "0.35") "]", "[]");
    ck_assert(!j->result.trace[0].explained);
    j->options.profile = CLOVER_BF16;
    judge(j);
    ck_assert(j->result.trace[0].explained);
    judged_free(j);
}
END_TEST

/* Candidates that are not fixed may have any token: their probabilities decide nothing. */
START_TEST(decisions_agree) {
    static const char golden[] = "[" PASS("[0, 7, 0.9], [1, 8, 0.2]", "0") "]", dump[] = "[" PASS("[0, 7, 0.93], [1, 9, 0.21]", "0") "]";
    Judged *j = compare(DENOISE, golden, "[7]", dump, "[7]");
    ck_assert_msg(!j->result.trace[0].differs, "%s", j->result.trace[0].text);
    ck_assert_int_eq(j->result.verdict, DIFF_CONFORMS);
    ck_assert(j->result.feature[FEATURE_DENOISE] == FEATURE_CONFORMS && j->result.feature[FEATURE_CONTROLS] == FEATURE_NOT_SHOWN && j->result.feature[FEATURE_TOKENIZER] == FEATURE_NOT_SHOWN);
    ck_assert(says(j->result.not_compared, j->result.n_not_compared, "ar/trace.json (the dump has none)"));
    judged_free(j);
}
END_TEST

/* A text's ids are the tokenizer's; controls that are not neutral count as shown. */
START_TEST(prompt_and_controls) {
    static const char steps[] = "[" TOKEN("1", "0.4") "]";
    Judged *j = compare(AR, steps, "[1]", steps, "[1]");
    ck_assert(j->result.feature[FEATURE_TOKENIZER] == FEATURE_CONFORMS && j->result.feature[FEATURE_CONTROLS] == FEATURE_CONFORMS && j->result.feature[FEATURE_CAUSAL] == FEATURE_CONFORMS);
    put_trace(true, AR, "[72, 102]", steps, "[1]");
    judge(j);
    ck_assert(j->result.verdict == DIFF_DIFFERS && j->result.feature[FEATURE_TOKENIZER] == FEATURE_DIFFERS && j->result.feature[FEATURE_CONTROLS] == FEATURE_NOT_SHOWN);
    ck_assert_ptr_nonnull(strstr(j->result.trace[0].text, "other ids"));
    judged_free(j);
}
END_TEST

START_TEST(a_trace_that_is_no_json) {
    char path[512];
    Judged *j = compare(AR, "[]", "[]", "[]", "[]");
    trace_path(path, sizeof path, true, AR);
    write_file(path, "{\"steps\": [", 11);
    judge(j);
    ck_assert_int_eq(j->status, CLOVER_BAD_INPUT);
    assert_says(j->err, "ar/trace.json");
    judged_free(j);
}
END_TEST

/* Without steps and without tokens it is no trace; of another mode it is another run; an output that ends early or late differs. */
START_TEST(a_trace_of_nothing) {
    char path[512];
    static const char *const nothing[] = { "{}", "[]", "{\"tokens\": 3}" };
    Judged *j = compare(AR, "[]", "[1, 2]", "[]", "[1, 2]");
    trace_path(path, sizeof path, true, AR);
    for (int i = 0; i < 3; i++) {
        write_file(path, nothing[i], strlen(nothing[i]));
        judge(j);
        ck_assert_int_eq(j->status, CLOVER_BAD_INPUT);
        assert_says(j->err, "no trace of a run");
    }
    static const struct { const char *text, *says; } others[] = {
        { "{\"mode\": \"draft\", \"tokens\": [1, 2]}", "mode draft, the golden's of mode ar" },
        { "{\"mode\": \"ar\", \"tokens\": [1]}", "ends after 1 tokens, the golden's has 2" },
        { "{\"tokens\": [1, 2, 3]}", "goes on after the golden's 2 tokens" },
    };
    for (int i = 0; i < 3; i++) {
        write_file(path, others[i].text, strlen(others[i].text));
        judge(j);
        ck_assert_int_eq(j->result.verdict, DIFF_DIFFERS);
        ck_assert_msg(strstr(j->result.trace[0].text, others[i].says) != NULL, "%s", j->result.trace[0].text);
    }
    judged_free(j);
}
END_TEST

/* [DIF-8] Where only a decision differs, it is the first. */
START_TEST(first_is_a_decision) {
    Judged *j = compare(AR, "[" TOKEN("1", "0.4") "]", "[1]", "[" TOKEN("2", "0.8") "]", "[2]");
    json_t *o = diff_json(&j->result, &j->bundle), *first = json_object_get(o, "first");
    ck_assert_str_eq(json_string_value(json_object_get(first, "probe")), "trace");
    ck_assert_str_eq(json_string_value(json_object_get(first, "step")), "decision 0");
    ck_assert_str_eq(json_string_value(json_object_get(first, "case")), "ar");
    json_decref(o);
    judged_free(j);
}
END_TEST

Suite *diff_trace_suite(void) {
    Suite *s = suite_create("diff_trace");
    TCase *t = tcase_create("traces");
    tcase_add_unchecked_fixture(t, make_runs, judged_remove);
    tcase_add_checked_fixture(t, judged_setup, judged_teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, decision_differs, 0, (int)(sizeof cases / sizeof *cases));
    tcase_add_test(t, the_profile_counts);
    tcase_add_test(t, decisions_agree);
    tcase_add_test(t, prompt_and_controls);
    tcase_add_test(t, a_trace_that_is_no_json);
    tcase_add_test(t, a_trace_of_nothing);
    tcase_add_test(t, first_is_a_decision);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(diff_trace_suite()); }
