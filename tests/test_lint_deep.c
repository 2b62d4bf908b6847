/* test_lint_deep.c - lint --deep: which reading of the weights makes text likely. [LNT-4]
 *
 * The text is the model's own: sampled from good.gguf token by token, and blocks whose masked rows are the preview's argmax. So
 * good.gguf is a model that knows this text, though its weights are random, and a file that drifted from it knows it only in
 * the right reading. */
#include "test_lint.h"
#include "../tools/lint_reading.h"
#include "../tools/tools.h"

enum { COMMITTED = 48, BLOCKS = 3, ROWS = COMMITTED + BLOCKS * BLOCK, UNCLEAR = 30, LITTLE = 16 };

/* ids [ROWS] */
static void models_own_text(int32_t *ids, uint64_t seed) {
    CloverError err;
    CloverModel *model;
    CloverSession *session;
    assert_ok(clover_model_open(GOOD_GGUF, NULL, &model, &err), err);
    const CloverConfig *c = clover_model_config(model);
    CloverSessionOptions o = clover_session_defaults();
    assert_ok(clover_session_new(model, &o, &session, &err), err);
    CloverEngine engine = clover_session_engine(session);
    CloverDecodeOptions d = clover_decode_defaults(c);
    int64_t n;
    d.max_tokens = ROWS - 1;
    d.n_stops = 0;
    d.temperature = 1;
    d.seed = seed;
    ids[0] = 72;
    assert_ok(clover_decode(&engine, &d, ids, 1, NULL, NULL, ids + 1, &n, &err), err);
    ck_assert_int_eq(n, ROWS - 1);

    resolve_blocks(session, c, ids, COMMITTED, ROWS);
    clover_session_free(session);
    clover_model_close(model);
}

static void go_deep(const char *path, bool own_text, int64_t rows, Report *r) {
    int32_t ids[ROWS];
    CloverError err;
    DeepOptions o = { .rows = rows };
    models_own_text(ids, 7);
    if (own_text) o.ids = ids, o.n_ids = ROWS;
    assert_ok(lint_deep(path, &o, r, &err), err);
}

/* The drifted file's deep findings: this one alone. LINT_IDS: none. */
static void assert_called(Edit *e, LintId id) {
    Report r = { 0 };
    go_deep(edit_write(e), true, ROWS, &r);
    assert_only_in(&r, id, GARBAGE, "standard errors");
    report_free(&r);
    edit_free(e);
}

static void assert_remark(const Report *r, const char *text) {
    ck_assert_msg(r->remark.n > 0, "no remark");
    char *all = calloc(1, r->remark.n + 1);
    memcpy(all, r->remark.data, r->remark.n);
    ck_assert_msg(strstr(all, text) != NULL, "expected \"%s\" in: %s", text, all);
    free(all);
}

/* ---- drifts: good.gguf has Hk = 2, Hv = 4, dk = dv = 32, H = 2, width = 32, E = 4, F = 32, D = 64 --------------------- */

/* HF's (grouped) head h stands at tiled place (h mod 2)·2 + h div 2: written out, not computed by what is tested. */
static const int64_t grouped_from_tiled[4] = { 0, 2, 1, 3 };
static int64_t head_rows(int64_t i) { return grouped_from_tiled[i]; }
static int64_t wide_rows(int64_t i) { return grouped_from_tiled[i / 32] * 32 + i % 32; }
static int64_t qkv_rows(int64_t i) { return i < 128 ? i : 128 + wide_rows(i - 128); }

static void group_trunk(Edit *e) {
    for (int l = 0; l < 3; l++) {
        edit_rows(edit_tensor(e, blk(l, "attn_qkv.weight")), 256, qkv_rows);
        edit_rows(edit_tensor(e, blk(l, "ssm_conv1d.weight")), 256, qkv_rows);
        edit_rows(edit_tensor(e, blk(l, "attn_gate.weight")), 128, wide_rows);
        edit_rows(edit_tensor(e, blk(l, "ssm_alpha.weight")), 4, head_rows);
        edit_rows(edit_tensor(e, blk(l, "ssm_beta.weight")), 4, head_rows);
        edit_rows(edit_tensor(e, blk(l, "ssm_a")), 4, head_rows);
        edit_rows(edit_tensor(e, blk(l, "ssm_dt.bias")), 4, head_rows);
        EditTensor *out = edit_tensor(e, blk(l, "ssm_out.weight"));      /* [64, 128]: its columns */
        for (int row = 0; row < 64; row++) {
            float old[128];
            for (int i = 0; i < 128; i++) old[i] = edit_get(out, row * 128 + i);
            for (int i = 0; i < 128; i++) edit_set(out, row * 128 + i, old[wide_rows(i)]);
        }
    }
}

static void group_diffusion(Edit *e) {
    for (int l = 0; l < 3; l++) {
        edit_rows(edit_tensor(e, blk(l, "conv_right_weight")), 256, qkv_rows);
        edit_rows(edit_tensor(e, blk(l, "bd_softmax_logit_scale")), 4, head_rows);
        edit_rows(edit_tensor(e, blk(l, "bd_softmax_history_bias")), 4, head_rows);
        edit_rows(edit_tensor(e, blk(l, "bd_softmax_history_c")), 4, head_rows);
    }
}

/* [2 heads, query and gate, 32 rows] to [query and gate, 2 heads, 32 rows] */
static int64_t flat_rows(int64_t i) { return (i / 32 % 2) * 64 + (i / 64) * 32 + i % 32; }

static void reverse_taps(Edit *e) {
    for (int l = 0; l < 3; l++) {
        EditTensor *t = edit_tensor(e, blk(l, "ssm_conv1d.weight"));
        for (int c = 0; c < 256; c++) {
            float w[4];
            for (int j = 0; j < 4; j++) w[j] = edit_get(t, c * 4 + j);
            for (int j = 0; j < 4; j++) edit_set(t, c * 4 + j, w[3 - j]);
        }
    }
}

static void exchange(Edit *e, const char *a, const char *b) {
    edit_rename(e, a, "for a moment");
    edit_rename(e, b, a);
    edit_rename(e, "for a moment", b);
}

static int64_t backwards(int64_t i) { return 3 - i; }
static int64_t shuffled(int64_t i) { static const int64_t from[4] = { 2, 0, 1, 3 }; return from[i]; }
static void order_experts(Edit *e, int64_t (*from)(int64_t)) {
    for (int l = 0; l < 4; l++) {
        edit_rows(edit_tensor(e, blk(l, "ffn_gate_exps.weight")), 4, from);
        edit_rows(edit_tensor(e, blk(l, "ffn_up_exps.weight")), 4, from);
        edit_rows(edit_tensor(e, blk(l, "ffn_down_exps.weight")), 4, from);
    }
}

START_TEST(good_file_is_left_alone) {
    Report r = { 0 };
    go_deep(GOOD_GGUF, true, ROWS, &r);
    assert_only_in(&r, LINT_IDS, NOTE, "");
    assert_remark(&r, "17 readings tried; of 47 committed rows");
    report_free(&r);
} END_TEST

START_TEST(grouped_heads) {
    Edit *e = edit_gguf();
    group_trunk(e);
    assert_called(e, HEAD_ORDER);
} END_TEST

START_TEST(grouped_diffusion_tensors) {
    Edit *e = edit_gguf();
    group_diffusion(e);
    assert_called(e, DIFFUSION_HEAD_ORDER);
} END_TEST

START_TEST(flat_query_and_gate) {
    Edit *e = edit_gguf();
    edit_rows(edit_tensor(e, "blk.3.attn_q.weight"), 128, flat_rows);
    assert_called(e, Q_GATE_FLAT);
} END_TEST

START_TEST(reversed_taps) {
    Edit *e = edit_gguf();
    reverse_taps(e);
    assert_called(e, CONV_REVERSED);
} END_TEST

START_TEST(exchanged_gate_and_up) {
    Edit *e = edit_gguf();
    for (int l = 0; l < 4; l++) exchange(e, blk(l, "ffn_gate_exps.weight"), blk(l, "ffn_up_exps.weight"));
    assert_called(e, GATE_UP_SWAPPED);
} END_TEST

START_TEST(exchanged_gate_and_up_of_the_shared_expert) {
    Edit *e = edit_gguf();
    for (int l = 0; l < 4; l++) exchange(e, blk(l, "ffn_gate_shexp.weight"), blk(l, "ffn_up_shexp.weight"));
    assert_called(e, GATE_UP_SWAPPED);
} END_TEST

START_TEST(experts_backwards) {
    Edit *e = edit_gguf();
    order_experts(e, backwards);
    assert_called(e, EXPERT_ORDER);
} END_TEST

START_TEST(experts_in_an_order_of_no_rule) {
    Edit *e = edit_gguf();
    order_experts(e, shuffled);
    assert_called(e, EXPERT_ORDER);
} END_TEST

/* Two drifts at once, one of them visible in values (and read mended): both the others are called. */
START_TEST(several_drifts_at_once) {
    Edit *e = edit_gguf();
    Report r = { 0 };
    group_trunk(e);
    reverse_taps(e);
    for (int l = 0; l < 4; l++)
        for (int i = 0; i < 2; i++) {
            EditTensor *t = edit_tensor(e, blk(l, i ? "attn_norm.weight" : "post_attention_norm.weight"));
            for (int k = 0; k < 64; k++) edit_set(t, k, edit_get(t, k) - 1);
        }
    for (int i = 0; i < 64; i++) edit_set(edit_tensor(e, "output_norm.weight"), i, edit_get(edit_tensor(e, "output_norm.weight"), i) - 1);
    for (int i = 0; i < 32; i++) edit_set(edit_tensor(e, "blk.3.attn_q_norm.weight"), i, edit_get(edit_tensor(e, "blk.3.attn_q_norm.weight"), i) - 1);
    for (int i = 0; i < 32; i++) edit_set(edit_tensor(e, "blk.3.attn_k_norm.weight"), i, edit_get(edit_tensor(e, "blk.3.attn_k_norm.weight"), i) - 1);
    go_deep(edit_write(e), true, ROWS, &r);
    ck_assert_int_eq(r.n, 2);
    finding(&r, HEAD_ORDER, GARBAGE);
    const Finding *f = finding(&r, CONV_REVERSED, GARBAGE);
    ck_assert_int_eq(f->n_tensors, 3);
    ck_assert_str_eq(f->tensor[0], "blk.0.ssm_conv1d.weight");
    report_free(&r);
    edit_free(e);
} END_TEST

/* A folder drifts the other way: its heads are tiled. */
START_TEST(folder_with_tiled_heads) {
    Edit *e = edit_hf();
    for (int l = 0; l < 3; l++) {
        char name[128];
        static const char *const rows[] = { "in_proj_qkv.weight", "conv1d.weight", "in_proj_z.weight", "in_proj_a.weight", "in_proj_b.weight",
                                            "A_log", "dt_bias" };
        for (int i = 0; i < 7; i++) {
            snprintf(name, sizeof name, "model.layers.%d.linear_attn.%s", l, rows[i]);
            edit_rows(edit_tensor(e, name), i < 2 ? 256 : i == 2 ? 128 : 4,
                      i < 2 ? qkv_rows : i == 2 ? wide_rows : head_rows);         /* its own inverse for 2 x 2 */
        }
        snprintf(name, sizeof name, "model.layers.%d.linear_attn.out_proj.weight", l);
        EditTensor *out = edit_tensor(e, name);
        for (int row = 0; row < 64; row++) {
            float old[128];
            for (int i = 0; i < 128; i++) old[i] = edit_get(out, row * 128 + i);
            for (int i = 0; i < 128; i++) edit_set(out, row * 128 + i, old[wide_rows(i)]);
        }
    }
    assert_called(e, HEAD_ORDER);
} END_TEST

/* Random weights and a text that is not theirs: nothing is called, and it is said that nothing can be. */
START_TEST(random_weights_are_undecidable) {
    Report r = { 0 };
    go_deep(GOOD_GGUF, false, LITTLE, &r);
    assert_only_in(&r, LINT_IDS, NOTE, "");
    assert_remark(&r, "undecidable");
    report_free(&r);
    Edit *e = edit_gguf();
    group_trunk(e);
    reverse_taps(e);
    go_deep(edit_write(e), false, LITTLE, &r);
    assert_only_in(&r, LINT_IDS, NOTE, "");
    assert_remark(&r, "none is better than chance");
    report_free(&r);
    edit_free(e);
} END_TEST

START_TEST(what_cannot_run_is_said) {
    Report r = { 0 };
    Edit *e = edit_gguf();
    edit_set(edit_tensor(e, "output.weight"), 5, __builtin_nanf(""));
    go_deep(edit_write(e), true, ROWS, &r);
    assert_only_in(&r, LINT_IDS, NOTE, "");
    assert_remark(&r, "cannot be run");
    report_free(&r);
    edit_free(e);
    e = edit_gguf();
    edit_drop(e, "blk.1.ssm_norm.weight");
    go_deep(edit_write(e), true, ROWS, &r);
    assert_remark(&r, "does not open");
    report_free(&r);
    edit_free(e);
    e = edit_gguf();
    edit_drop_key(e, "tokenizer.ggml.tokens");
    edit_u32(e, "tokenizer.ggml.mask_token_id", 261);
    go_deep(edit_write(e), false, LITTLE, &r);
    assert_remark(&r, "no tokenizer");
    report_free(&r);
    edit_free(e);
} END_TEST

/* A file without diffusion tensors has no blocks; the trunk is judged all the same. */
START_TEST(without_diffusion_tensors) {
    static const char *const own[] = { "conv_right_weight", "bd_softmax_logit_scale", "bd_softmax_history_bias", "bd_softmax_history_c" };
    Edit *e = edit_gguf();
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < 4; i++) edit_drop(e, blk(l, own[i]));
    reverse_taps(e);
    Report r = { 0 };
    go_deep(edit_write(e), true, COMMITTED, &r);
    assert_only_in(&r, CONV_REVERSED, GARBAGE, "standard errors");
    report_free(&r);
    edit_free(e);
} END_TEST

/* ---- readings alone ------------------------------------------------------------------------------------------------ */

/* Logits of 24 committed rows and a block of 8, to the bit; [32, V]. order: of experts. */
static double *logits_of(const char *path, unsigned bits, const int64_t *order) {
    CloverError err;
    CloverModel *model;
    CloverSession *session;
    Reading reading;
    int32_t ids[32];
    for (int i = 0; i < 32; i++) ids[i] = i < 24 ? (37 * i + 11) % 256 : i % 3 ? 261 : 80 + i;
    assert_ok(clover_model_open(path, NULL, &model, &err), err);
    assert_ok(reading_make(model, bits, order, &reading, &err), err);
    const int64_t V = model->config.vocab;
    double *logits = malloc((size_t)(32 * V) * sizeof *logits);
    CloverSessionOptions o = clover_session_defaults();
    assert_ok(clover_session_new(&reading.model, &o, &session, &err), err);
    assert_ok(clover_commit(session, ids, 24, logits, 24, &err), err);
    assert_ok(clover_preview(session, ids + 24, 8, logits + 24 * V, &err), err);
    clover_session_free(session);
    reading_free(&reading);
    clover_model_close(model);
    return logits;
}

/* The right reading of a drifted file computes what good.gguf computes, bit for bit; the plain reading does not. */
static void assert_reading(Edit *e, unsigned bits, const int64_t *order) {
    const char *path = edit_write(e);
    double *good = logits_of(GOOD_GGUF, 0, NULL), *right = logits_of(path, bits, order), *plain = logits_of(path, 0, NULL);
    const size_t n = 32 * 272 * sizeof *good;
    ck_assert_msg(memcmp(good, right, n) == 0, "the reading %u differs", bits);
    ck_assert_msg(memcmp(good, plain, n) != 0, "the drift %u has no effect", bits);
    free(good);
    free(right);
    free(plain);
    edit_free(e);
}

START_TEST(readings_are_exact) {
    Edit *e = edit_gguf();
    group_trunk(e);
    assert_reading(e, READ_HEADS, NULL);
    e = edit_gguf();
    group_diffusion(e);
    assert_reading(e, READ_DIFFUSION, NULL);
    e = edit_gguf();
    edit_rows(edit_tensor(e, "blk.3.attn_q.weight"), 128, flat_rows);
    assert_reading(e, READ_Q_GATE, NULL);
    e = edit_gguf();
    reverse_taps(e);
    assert_reading(e, READ_CONV, NULL);
    e = edit_gguf();
    for (int l = 0; l < 4; l++) exchange(e, blk(l, "ffn_gate_exps.weight"), blk(l, "ffn_up_exps.weight"));
    for (int l = 0; l < 4; l++) exchange(e, blk(l, "ffn_gate_shexp.weight"), blk(l, "ffn_up_shexp.weight"));
    assert_reading(e, READ_GATE_UP | READ_SHARED, NULL);
    static const int64_t places[4] = { 1, 2, 0, 3 };             /* shuffled's inverse: where expert e stands */
    e = edit_gguf();
    order_experts(e, shuffled);
    assert_reading(e, 0, places);
    e = edit_gguf();                                             /* the key says so: then it is no drift */
    group_diffusion(e);
    edit_string(e, "clover_moe.diffusion.head_order", "grouped");
    const char *path = edit_write(e);
    double *good = logits_of(GOOD_GGUF, 0, NULL), *said = logits_of(path, 0, NULL), *turned = logits_of(path, READ_DIFFUSION, NULL);
    double *good_turned = logits_of(GOOD_GGUF, READ_DIFFUSION, NULL);
    ck_assert(memcmp(good, said, 32 * 272 * sizeof *good) == 0);
    ck_assert(memcmp(good, turned, 32 * 272 * sizeof *good) != 0);
    ck_assert(memcmp(good, good_turned, 32 * 272 * sizeof *good) != 0);
    free(good);
    free(said);
    free(turned);
    free(good_turned);
    edit_free(e);
} END_TEST

/* Three value heads a key head: the order is then not its own inverse. The loader can read the diffusion tensors in either. */
START_TEST(orders_that_are_not_their_own_inverse) {
    char folder[TEST_PATH], path[2 * TEST_PATH];
    make_folder("reading", folder);
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    char *argv[] = { "synth", "-o", path, "--key-heads", "2", "--value-heads", "6", "--layers", "2", "--interval", "2", NULL };
    ck_assert_int_eq(cmd_synth(11, argv), 0);
    Bytes file = read_file(path);                                /* the key that says the order is made unknown: tiled is the default */
    for (size_t i = 0; i + 20 < 20000 && i + 20 < file.n; i++)
        if (memcmp(file.data + i, "diffusion.head_order", 20) == 0) file.data[i] = 'x';
    write_file(path, file.data, file.n);
    free_bytes(&file);
    CloverError err;
    CloverModel *tiled, *grouped;
    CloverOpenOptions o = clover_open_defaults();
    Reading turned, back;
    assert_ok(clover_model_open(path, &o, &tiled, &err), err);
    o.diffusion_heads_grouped = 1;
    assert_ok(clover_model_open(path, &o, &grouped, &err), err);
    assert_ok(reading_make(tiled, READ_DIFFUSION | READ_HEADS, NULL, &turned, &err), err);
    const GdnW *a = &turned.model.weights.layer[0].gdn, *b = &grouped->weights.layer[0].gdn, *t = &tiled->weights.layer[0].gdn;
    const CloverConfig *c = &tiled->config;
    const int64_t Hv = c->value_heads, C = 2 * c->key_heads * c->key_width + Hv * c->value_width;
    ck_assert(memcmp(a->logit_scale, b->logit_scale, (size_t)Hv * 8) == 0);
    ck_assert(memcmp(a->history_c, b->history_c, (size_t)Hv * 8) == 0);
    ck_assert(memcmp(a->conv_right, b->conv_right, (size_t)(C * (c->taps - 1)) * 8) == 0);
    ck_assert(memcmp(a->logit_scale, t->logit_scale, (size_t)Hv * 8) != 0);
    static const int64_t tiled_place[6] = { 0, 2, 4, 1, 3, 5 };  /* of HF's head [TEN-7] */
    for (int64_t h = 0; h < Hv; h++) {                           /* the file's head h, taken as it stands */
        ck_assert(a->rate[tiled_place[h]] == t->rate[h]);
        ck_assert(a->dt_bias[tiled_place[h]] == t->dt_bias[h]);
        ck_assert(head_map(&t->alpha.row_map, h) == tiled_place[h] && head_map(&a->alpha.row_map, h) == h);
    }
    turned.model.weights.tiled = false;                          /* and a folder's order back to the tiled one */
    assert_ok(reading_make(&turned.model, READ_HEADS, NULL, &back, &err), err);
    for (int64_t h = 0; h < Hv; h++) {
        const GdnW *w = &back.model.weights.layer[0].gdn;
        ck_assert(w->rate[h] == t->rate[h] && head_map(&w->alpha.row_map, h) == tiled_place[h]);
    }
    ck_assert(memcmp(back.model.weights.layer[0].gdn.conv, t->conv, (size_t)(C * c->taps) * 8) == 0);
    reading_free(&back);
    reading_free(&turned);
    clover_model_close(tiled);
    clover_model_close(grouped);
    remove_folder(folder);
} END_TEST

START_TEST(known_orders_of_experts) {
    static const int64_t expected[DEEP_ORDERS][12] = { { 0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3 }, { 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0 },
                                                       { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0 }, { 11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 } };
    for (int kind = 0; kind < DEEP_ORDERS; kind++) {
        int64_t order[12];
        deep_order(kind, 12, order);
        for (int e = 0; e < 12; e++) ck_assert_int_eq(order[e], expected[kind][e]);
    }
} END_TEST

/* Better, but by too few rows to be sure: nothing is called. */
START_TEST(an_unclear_winner_is_not_called) {
    Report r = { 0 };
    Edit *e = edit_gguf();
    edit_rows(edit_tensor(e, "blk.3.attn_q.weight"), 128, flat_rows);
    go_deep(edit_write(e), true, UNCLEAR, &r);
    assert_only_in(&r, LINT_IDS, NOTE, "");
    assert_remark(&r, "readings tried");
    report_free(&r);
    edit_free(e);
} END_TEST

START_TEST(too_little_text) {
    Report r = { 0 };
    CloverError err;
    const int32_t ids[4] = { 1, 2, 3, 4 }, foreign[20] = { 5000 };
    DeepOptions o = { .ids = ids, .n_ids = 4, .rows = ROWS };
    assert_ok(lint_deep(GOOD_GGUF, &o, &r, &err), err);
    assert_remark(&r, "at least 16");
    report_free(&r);
    o = (DeepOptions){ .ids = foreign, .n_ids = 20, .rows = ROWS };
    assert_status(lint_deep(GOOD_GGUF, &o, &r, &err), CLOVER_USAGE, err);
    assert_says(err, "5000");
    report_free(&r);
} END_TEST

Suite *lint_deep_suite(void);
Suite *lint_deep_suite(void) {
    Suite *s = suite_create("lint_deep");
    TCase *t = tcase_create("deep");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, good_file_is_left_alone);
    tcase_add_test(t, grouped_heads);
    tcase_add_test(t, grouped_diffusion_tensors);
    tcase_add_test(t, flat_query_and_gate);
    tcase_add_test(t, reversed_taps);
    tcase_add_test(t, exchanged_gate_and_up);
    tcase_add_test(t, exchanged_gate_and_up_of_the_shared_expert);
    tcase_add_test(t, experts_backwards);
    tcase_add_test(t, experts_in_an_order_of_no_rule);
    tcase_add_test(t, several_drifts_at_once);
    tcase_add_test(t, folder_with_tiled_heads);
    tcase_add_test(t, random_weights_are_undecidable);
    tcase_add_test(t, what_cannot_run_is_said);
    tcase_add_test(t, without_diffusion_tensors);
    tcase_add_test(t, readings_are_exact);
    tcase_add_test(t, orders_that_are_not_their_own_inverse);
    tcase_add_test(t, known_orders_of_experts);
    tcase_add_test(t, an_unclear_winner_is_not_called);
    tcase_add_test(t, too_little_text);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(lint_deep_suite()); }
