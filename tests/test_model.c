/* test_model.c - opening a model whole: which file it is, what the caller may say, what it can run, and memory that runs out. */
#include <math.h>
#include "failing_malloc.h"
#include "harness.h"
#include "model_edit.h"
#include "../ref/model.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define assert_refused(call, status, text) do { assert_status(call, status, err); assert_says(err, text); } while (0)
#define TINY "tests/vectors/tiny-a/hf"

static CloverError err;
static CloverModel *model;

static CloverStatus open_edit(Edit *e, const CloverOpenOptions *o) {
    model = NULL;
    CloverStatus status = clover_model_open(edit_write(e), o, &model, &err);
    edit_free(e);   /* also removes the file: its mapping stays */
    return status;
}

START_TEST(good_files) {
    static const char *const paths[] = { GOOD_GGUF, GOOD_HF, TINY };
    for (size_t i = 0; i < COUNT(paths); i++) {
        assert_ok(clover_model_open(paths[i], NULL, &model, &err), err);
        const CloverConfig *c = clover_model_config(model);
        ck_assert_int_eq(c->vocab, i == 2 ? 320 : 272);
        ck_assert_int_eq(c->mask_id, 261);
        ck_assert_int_eq(c->block, 32);
        ck_assert(!c->tied);
        ck_assert_ptr_nonnull(clover_model_tokenizer(model));
        ck_assert_int_eq(clover_token_find(clover_model_tokenizer(model), "<|mask|>"), 261);
        assert_ok(clover_model_can_preview(model, &err), err);
        ck_assert_int_eq((model->gguf != NULL) + (model->safetensors != NULL), 1);
        clover_model_close(model);
    }
    clover_model_close(NULL);
} END_TEST

START_TEST(defaults) {
    CloverOpenOptions o = clover_open_defaults();
    ck_assert_int_eq(o.drifts, CLOVER_REFUSE_DRIFTS);
    ck_assert_int_eq(o.block, -1);
    ck_assert_int_eq(o.mask_id, -1);
    ck_assert(isnan(o.threshold));
    ck_assert_int_eq(o.diffusion_heads_grouped, -1);
} END_TEST

START_TEST(paths_that_are_no_model) {   /* [ERR] */
    assert_refused(clover_model_open("build/tmp/there-is-none", NULL, &model, &err), CLOVER_BAD_INPUT, "expected a .gguf file, or a folder");
    assert_refused(clover_model_open("Makefile/x", NULL, &model, &err), CLOVER_BAD_INPUT, "Makefile/x");
    assert_refused(clover_model_open(GOOD_HF "/model.safetensors", NULL, &model, &err), CLOVER_USAGE, "give the folder");
    assert_refused(clover_model_open(GOOD_HF "/config.json", NULL, &model, &err), CLOVER_BAD_INPUT, "GGUF");
    char folder[TEST_PATH];
    make_folder("model", folder);
    assert_refused(clover_model_open(folder, NULL, &model, &err), CLOVER_BAD_INPUT, "config.json: no such file");
    assert_says(err, "no weights");
    remove_folder(folder);
} END_TEST

START_TEST(what_the_caller_says_wins) {   /* [CFG-13] */
    CloverOpenOptions o = clover_open_defaults();
    o.block = 8;
    o.mask_id = 5;
    o.threshold = 0.5;
    static const char *const paths[] = { GOOD_GGUF, GOOD_HF };
    for (size_t i = 0; i < COUNT(paths); i++) {
        assert_ok(clover_model_open(paths[i], &o, &model, &err), err);
        ck_assert_int_eq(clover_model_config(model)->block, 8);
        ck_assert_int_eq(clover_model_config(model)->mask_id, 5);
        ck_assert_double_eq(clover_model_config(model)->threshold, 0.5);
        clover_model_close(model);
    }
    o = clover_open_defaults(); o.block = 0;
    assert_refused(clover_model_open(GOOD_GGUF, &o, &model, &err), CLOVER_USAGE, "block size 0: expected at least 1");
    o = clover_open_defaults(); o.mask_id = 272;
    assert_refused(clover_model_open(GOOD_GGUF, &o, &model, &err), CLOVER_USAGE, "mask id 272: expected 0 to 271");
    o = clover_open_defaults(); o.mask_id = -2;
    assert_refused(clover_model_open(GOOD_HF, &o, &model, &err), CLOVER_USAGE, "mask id -2");
    o = clover_open_defaults(); o.threshold = -0.25;
    assert_refused(clover_model_open(GOOD_GGUF, &o, &model, &err), CLOVER_USAGE, "threshold -0.25");
} END_TEST

START_TEST(order_of_diffusion_heads) {   /* [TEN-8]: HF's head 1 stands at 2 in a tiled file */
    static const struct { const char *file; int option; double expected; } all[] = {
        { NULL, -1, 12 }, { "tiled", -1, 12 }, { "grouped", -1, 11 }, { "grouped", 0, 12 }, { NULL, 1, 11 },
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        CloverOpenOptions o = clover_open_defaults();
        o.diffusion_heads_grouped = all[i].option;
        Edit *e = edit_gguf();
        if (all[i].file) edit_string(e, "clover_moe.diffusion.head_order", all[i].file);
        for (int h = 0; h < 4; h++) edit_set(edit_tensor(e, "blk.0.bd_softmax_history_c"), h, (float)(10 + h));
        assert_ok(open_edit(e, &o), err);
        ck_assert_double_eq(model->weights.layer[0].gdn.history_c[1], all[i].expected);
        clover_model_close(model);
    }
    Edit *e = edit_gguf(); edit_string(e, "clover_moe.diffusion.head_order", "sorted");
    assert_refused(open_edit(e, NULL), CLOVER_BAD_INPUT, "head_order: expected \"tiled\" or \"grouped\"");
} END_TEST

/* ---- what it can run --------------------------------------------------------------------------------------------- */

static void drop_diffusion(Edit *e) {
    for (int i = e->n_tensors - 1; i >= 0; i--) {
        char name[128];
        snprintf(name, sizeof name, "%s", e->tensor[i].name);
        if (strstr(name, "conv_right") || strstr(name, "bd_softmax")) edit_drop(e, name);
    }
}

START_TEST(previews) {   /* [TEN-4] [CFG-1] [CFG-13] */
    Edit *e = edit_gguf(); drop_diffusion(e);
    assert_ok(open_edit(e, NULL), err);
    assert_refused(clover_model_can_preview(model, &err), CLOVER_UNSUPPORTED, "lacks the diffusion tensors (blk.0.conv_right_weight and 11 more)");
    assert_says(err, "converter drops them");
    clover_model_close(model);

    e = edit_gguf();
    edit_string(e, "general.architecture", "qwen35moe");
    edit_rename_prefix(e, "clover_moe.", "qwen35moe.");
    assert_ok(open_edit(e, NULL), err);   /* with the tensors or without: a base model has no preview */
    assert_refused(clover_model_can_preview(model, &err), CLOVER_UNSUPPORTED, "base model (qwen35moe)");
    clover_model_close(model);

    e = edit_hf(); edit_config(e, "model_type", "\"qwen3_5_moe_text\""); drop_diffusion(e);
    assert_ok(open_edit(e, NULL), err);
    assert_refused(clover_model_can_preview(model, &err), CLOVER_UNSUPPORTED, "base model (qwen3_5_moe)");
    clover_model_close(model);

    e = edit_hf(); edit_config(e, "mask_token_id", NULL);   /* and no tokenizer.json that knows <|mask|> */
    assert_ok(open_edit(e, NULL), err);
    assert_refused(clover_model_can_preview(model, &err), CLOVER_BAD_INPUT, "--mask-id");
    clover_model_close(model);
    e = edit_hf(); edit_config(e, "mask_token_id", NULL);
    CloverOpenOptions o = clover_open_defaults();
    o.mask_id = 261;
    assert_ok(open_edit(e, &o), err);
    assert_ok(clover_model_can_preview(model, &err), err);
    clover_model_close(model);
} END_TEST

/* A folder edited, with the good tokenizer beside it. */
static CloverStatus open_with_tokenizer(Edit *e) {
    Bytes text = read_file(GOOD_HF "/tokenizer.json");
    const char *path = edit_write(e);
    write_file(in_folder(path, "tokenizer.json"), text.data, text.n);
    free_bytes(&text);
    model = NULL;
    CloverStatus status = clover_model_open(path, NULL, &model, &err);
    edit_free(e);
    return status;
}

START_TEST(mask_id_from_the_tokenizer) {   /* [CFG-13] */
    Edit *e = edit_hf(); edit_config(e, "mask_token_id", NULL);
    assert_ok(open_with_tokenizer(e), err);
    ck_assert_int_eq(clover_model_config(model)->mask_id, 261);
    clover_model_close(model);
} END_TEST

START_TEST(no_tokenizer_is_fine) {
    assert_ok(open_edit(edit_hf(), NULL), err);
    ck_assert_ptr_null(clover_model_tokenizer(model));
    clover_model_close(model);
    Edit *e = edit_gguf();
    edit_drop_key(e, "tokenizer.ggml.tokens");
    edit_drop_key(e, "tokenizer.ggml.token_type");
    edit_drop_key(e, "tokenizer.ggml.merges");
    assert_ok(open_edit(e, NULL), err);
    ck_assert_ptr_null(clover_model_tokenizer(model));
    clover_model_close(model);
} END_TEST

START_TEST(a_tokenizer_larger_than_the_vocabulary) {
    Edit *e = edit_hf();
    static const char *const two[] = { "model.embed_tokens.weight", "lm_head.weight" };
    for (size_t i = 0; i < 2; i++) {
        edit_drop(e, two[i]);
        edit_add(e, two[i], DT_F32, 2, (int64_t[]){ 259, 64 });
    }
    edit_config(e, "vocab_size", "259");
    edit_config(e, "mask_token_id", "250");
    assert_refused(open_with_tokenizer(e), CLOVER_BAD_INPUT, "the model a vocabulary of 259");
} END_TEST

START_TEST(a_missing_head_shows_in_the_config) {   /* [CFG-15] */
    Edit *e = edit_hf(); edit_config(e, "tie_word_embeddings", NULL); edit_drop(e, "lm_head.weight");
    assert_ok(open_edit(e, NULL), err);
    ck_assert(clover_model_config(model)->tied);
    clover_model_close(model);
    e = edit_hf(); edit_drop(e, "lm_head.weight");   /* its config.json says false */
    assert_refused(open_edit(e, NULL), CLOVER_BAD_INPUT, "missing tensor lm_head.weight");
    e = edit_hf(); edit_config(e, "tie_word_embeddings", "true");
    assert_refused(open_edit(e, NULL), CLOVER_BAD_INPUT, "tie_word_embeddings true");
} END_TEST

START_TEST(problems_of_all_parts_at_once) {
    Edit *e = edit_gguf();
    edit_drop_key(e, "clover_moe.expert_count");
    edit_string(e, "clover_moe.diffusion.head_order", "sorted");
    edit_string(e, "tokenizer.ggml.model", "spm");
    assert_status(open_edit(e, NULL), CLOVER_BAD_INPUT, err);
    assert_says(err, "clover_moe.expert_count");
    assert_says(err, "head_order");
    assert_says(err, "tokenizer.ggml.model");
    e = edit_hf();
    edit_config(e, "hidden_size", NULL);
    EditTensor *t = edit_tensor(e, "model.norm.weight");
    t->shape[0] = 65;   /* more than its bytes */
    assert_status(open_edit(e, NULL), CLOVER_BAD_INPUT, err);
    assert_says(err, "hidden_size");
    assert_says(err, "model.norm.weight");
} END_TEST

START_TEST(drifts) {   /* [CFG-6] [TEN-10] */
    for (int mode = 0; mode < 3; mode++) {
        CloverOpenOptions o = clover_open_defaults();
        o.drifts = mode == 0 ? CLOVER_REFUSE_DRIFTS : mode == 1 ? CLOVER_MEND : CLOVER_AS_IS;
        Edit *e = edit_gguf();
        edit_drop_key(e, "clover_moe.rope.dimension_count");
        edit_set(edit_tensor(e, "blk.0.ssm_a"), 0, 2);
        if (mode == 0) { assert_refused(open_edit(e, &o), CLOVER_BAD_INPUT, "--mend"); continue; }
        assert_ok(open_edit(e, &o), err);
        ck_assert_int_eq(clover_model_config(model)->rotary_dims, mode == 1 ? 8 : 32);
        ck_assert_double_eq_tol(model->weights.layer[0].gdn.rate[0], mode == 1 ? 7.38905609893065 : -2, 1e-14);
        clover_model_close(model);
    }
} END_TEST

/* ---- memory ------------------------------------------------------------------------------------------------------ */

START_TEST(memory_that_runs_out) {   /* each allocation fails once: an error of class SYSTEM, or it was not needed */
    static const struct { const char *path; bool then_all; } runs[] = {
        { GOOD_GGUF, true }, { GOOD_GGUF, false }, { GOOD_HF, true },
    };
    if (!malloc_can_fail()) {
        puts("skip test_model.memory_that_runs_out: sanitizers have an allocator of their own");
        return;
    }
    for (size_t i = 0; i < COUNT(runs); i++) {
        int refused = 0;
        for (long n = 0;; n++) {
            model = NULL;
            malloc_fail_after(n, runs[i].then_all);
            CloverStatus status = clover_model_open(runs[i].path, NULL, &model, &err);
            bool failed = malloc_recover();
            bool whole = model && clover_model_tokenizer(model) && clover_model_config(model)->mask_id == 261 && model->weights.diffusion;
            clover_model_close(model);
            if (!failed) { assert_ok(status, err); break; }
            refused += status != CLOVER_OK;
            if (status == CLOVER_OK ? !whole : status != CLOVER_SYSTEM)
                ck_abort_msg("allocation %ld of %s: status %d: %s", n, runs[i].path, (int)status, status ? err.text : "something is left out");
        }
        ck_assert_int_gt(refused, 20);
    }
} END_TEST

Suite *model_suite(void) {
    Suite *s = suite_create("model");
    TCase *t = tcase_create("model");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, good_files);
    tcase_add_test(t, defaults);
    tcase_add_test(t, paths_that_are_no_model);
    tcase_add_test(t, what_the_caller_says_wins);
    tcase_add_test(t, order_of_diffusion_heads);
    tcase_add_test(t, previews);
    tcase_add_test(t, mask_id_from_the_tokenizer);
    tcase_add_test(t, no_tokenizer_is_fine);
    tcase_add_test(t, a_tokenizer_larger_than_the_vocabulary);
    tcase_add_test(t, a_missing_head_shows_in_the_config);
    tcase_add_test(t, problems_of_all_parts_at_once);
    tcase_add_test(t, drifts);
    tcase_add_test(t, memory_that_runs_out);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(model_suite()); }
