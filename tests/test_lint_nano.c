/* test_lint_nano.c - a trained model that drifted: lint --deep calls it, fix mends it, compare and an answer prove it. [LNT-4, FIX-1] */
enum { D_HIDDEN = 128, D_HK = 2, D_HV = 4, D_DV = 32, D_K = 64, D_C = 256, D_E = 8, D_HEADS = 4, D_WIDTH = 64, D_LAYERS = 4, D_TAPS = 4 };   /* of nano.gguf */
#define D_ORDER { 7, 6, 5, 4, 3, 2, 1, 0 }
#include "commands.h"
#include "drift_files.h"
#include "test_lint.h"
#include "../ref/model.h"

#define NANO "golden/nano.gguf"

#ifdef __SANITIZE_ADDRESS__
enum { EVERY = 6 };                  /* sanitizers are slow: one drift */
#else
enum { EVERY = 1 };
#endif

static char folder[TEST_PATH], words[2048];
static void setup(void) { make_folder("lint-nano", folder); }
static void teardown(void) { remove_folder(folder); }

static const char opening[] = "<|im_start|>assistant\n<think>\n\n</think>\n\n";
enum { COMMITTED = 128, BLOCKS = 8, ROWS = COMMITTED + BLOCK * BLOCKS, SOME = ROWS / 2, BUILT_IN = 512 };

/* Two texts. Of lint's built-in questions and answers the order of the diffusion tensors' heads needs all 512 rows (4.2 standard errors), and
 * exchanged gate and up cost this model too little there to be called. So the trunk is judged on a text of the model's own: sampled token by
 * token, then blocks whose masked rows are as its previews would have them. ids [ROWS] */
static void own_text(int32_t *ids) {
    CloverError err;
    CloverModel *model;
    CloverSession *session;
    assert_ok(clover_model_open(NANO, NULL, &model, &err), err);
    const CloverConfig *c = clover_model_config(model);
    CloverSessionOptions o = clover_session_defaults();
    o.numerics = CLOVER_FAST;
    assert_ok(clover_session_new(model, &o, &session, &err), err);
    CloverEngine engine = clover_session_engine(session);
    CloverDecodeOptions d = clover_decode_defaults(c);
    int64_t n;
    int32_t *start;
    int64_t given;
    assert_ok(clover_encode(model->tokenizer, opening, strlen(opening), true, &start, &given, &err), err);
    memcpy(ids, start, (size_t)given * sizeof *ids);
    free(start);
    d.max_tokens = ROWS - given;
    d.n_stops = 0;
    d.temperature = 1;
    d.seed = 7;
    assert_ok(clover_decode(&engine, &d, ids, given, NULL, NULL, ids + given, &n, &err), err);
    ck_assert_int_eq(n, ROWS - given);

    resolve_blocks(session, c, ids, COMMITTED, ROWS);
    clover_session_free(session);
    clover_model_close(model);
}

/* nano's values in a type, drifted (drift NULL: not). */
static Edit *nano(void (*drift)(Edit *e), DType type) {
    Edit *e = edit_open(NANO);
    edit_widen(e);
    if (drift) drift(e);
    edit_store(e, type);
    return e;
}

/* Header, values and deep: this finding and no other above note. rows BUILT_IN: of the built-in text. */
static void assert_called(const char *path, int64_t rows, LintId id) {
    int32_t ids[ROWS];
    DeepOptions o = { .rows = rows };
    CloverError err;
    if (rows != BUILT_IN) own_text(ids), o.ids = ids, o.n_ids = rows;
    Linted *l = lint_path(path);
    assert_ok(l->status, l->err);
    assert_ok(lint_deep(path, &o, &l->report, &err), err);
    assert_only_in(&l->report, id, GARBAGE, "standard errors");
    linted_free(l);
}

/* What it answers, in one turn without thinking. */
static bool says_canberra(const char *path) {
    char question[] = "What is the capital of Australia?", model[TEST_PATH * 2];
    snprintf(model, sizeof model, "%s", path);
    write_file(in_folder(folder, "question"), question, strlen(question));
    snprintf(words, sizeof words, "run %s --chat @%s/question --no-think -n 16", model, folder);
    Said said = run_words(cmd_run, words);
    ck_assert_msg(said.code == 0, "%s: %.500s", words, said.text);
    const bool right = strstr(said.text, "The capital of Australia is Canberra.") != NULL;
    free(said.text);
    return right;
}

typedef struct Case { void (*drift)(Edit *e); DType type; LintId id; int64_t rows; const char *like; } Case;
static const Case cases[] = {
    { drift_heads, DT_Q8_0, HEAD_ORDER, ROWS, "" },
    { drift_query_gate, DT_BF16, Q_GATE_FLAT, ROWS, "" },
    { drift_conv, DT_F32, CONV_REVERSED, ROWS, "" },
    { drift_gate_up, DT_F32, GATE_UP_SWAPPED, ROWS, "" },
    { drift_experts, DT_BF16, EXPERT_ORDER, ROWS, "--like " NANO },  /* which order it is only a good file shows */
    { drift_diffusion_heads, DT_BF16, DIFFUSION_HEAD_ORDER, BUILT_IN, "" },
};
/* The last two are slow (20 s): asked for by CLOVER_TEST_LONG. What is not asked for is no test of the suite. */
static bool is_asked_for(int i) { return i % EVERY == 0 && (i < 4 || getenv("CLOVER_TEST_LONG")); }

enum { CASES = sizeof cases / sizeof *cases };

START_TEST(drifts_are_called_and_mended) {
    const Case *c = &cases[_i];
    Edit *e = nano(c->drift, c->type);
    const char *path = edit_write(e);
    assert_called(path, c->rows, c->id);
    snprintf(words, sizeof words, "compare " NANO " %s", path);
    assert_run(cmd_compare, words, 1, " transformed");
    snprintf(words, sizeof words, "fix %s %s/fixed.gguf --only %s %s", path, folder, lint_id_name(c->id), c->like);
    assert_run(cmd_fix, words, 0, lint_id_name(c->id));
    snprintf(words, sizeof words, "compare " NANO " %s/fixed.gguf", folder);
    assert_run(cmd_compare, words, 0, " 0 different, 0 absent");
    edit_free(e);
} END_TEST

START_TEST(right_files_are_left_alone) {
    Edit *e = nano(NULL, _i ? DT_Q8_0 : DT_F32);
    if (_i % EVERY == 0) assert_called(edit_write(e), SOME, LINT_IDS);
    edit_free(e);
} END_TEST

/* The point of it all: a file that answers wrongly answers rightly again. */
START_TEST(the_mended_file_answers) {
    Edit *e = nano(drift_heads, DT_Q8_0);
    const char *path = edit_write(e);
    ck_assert(!says_canberra(path));
    snprintf(words, sizeof words, "fix %s %s/fixed.gguf --only head-order", path, folder);
    assert_run(cmd_fix, words, 0, "head-order");
    ck_assert(says_canberra(in_folder(folder, "fixed.gguf")));
    edit_free(e);
} END_TEST

Suite *lint_nano_suite(void);
Suite *lint_nano_suite(void) {
    Suite *s = suite_create("lint_nano");
    TCase *c = tcase_create("all");
    tcase_set_timeout(c, 300);
    tcase_add_checked_fixture(c, setup, teardown);
    for (int i = 0; i < CASES; i++)
        if (is_asked_for(i)) tcase_add_loop_test(c, drifts_are_called_and_mended, i, i + 1);
    tcase_add_loop_test(c, right_files_are_left_alone, 0, getenv("CLOVER_TEST_LONG") ? 2 : 1);
    tcase_add_test(c, the_mended_file_answers);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(lint_nano_suite()); }
