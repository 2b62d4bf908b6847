/* test_fix.c - clover fix: every drift that can be mended is, in four types, to the byte; the rest is said; nothing is lost. [FIX-1] */
#include "commands.h"
#include "drift_files.h"

static char folder[TEST_PATH], words[2048];
static void setup(void) { make_folder("fix", folder); }
static void teardown(void) { remove_folder(folder); }

static const char *say(const char *in, const char *out, const char *flags) {
    snprintf(words, sizeof words, "fix %s %s/%s %s", in, folder, out, flags);
    return words;
}

/* ---- two files, key by key and tensor by tensor ----------------------------------------------------------------------------- */

static Gguf *open_gguf(const char *path) {
    CloverError err;
    Gguf *g;
    assert_ok(gguf_open(path, &g, &err), err);
    return g;
}

static double ulps(float a, float b) {
    double n = 0;
    while (a != b && n < 9) a = nextafterf(a, b), n++;
    return n;
}

/* Keys to the byte; tensors too and in order, but that rates may be ulps off. */
static void assert_same_model(const char *a, const char *b, double rate_ulps, const char *what) {
    Gguf *g = open_gguf(a), *h = open_gguf(b);
    ck_assert_msg(gguf_n_keys(g) == gguf_n_keys(h), "%s: %lld keys, expected %lld", what, (long long)gguf_n_keys(g), (long long)gguf_n_keys(h));
    for (int64_t i = 0; i < gguf_n_keys(g); i++) {
        const GgufKey *k = gguf_key_at(g, i), *l = gguf_key(h, k->name);     /* an edited one stands last in what the tests write */
        ck_assert_msg(l && k->type == l->type && k->count == l->count && k->bytes == l->bytes && memcmp(k->data, l->data, k->bytes) == 0,
                      "%s: key %s is another", what, k->name);
    }
    const TensorList x = gguf_tensors(g), y = gguf_tensors(h);
    ck_assert_msg(x.n == y.n, "%s: %lld tensors, expected %lld", what, (long long)x.n, (long long)y.n);
    for (int64_t i = 0; i < x.n; i++) {
        const Tensor *s = &x.tensor[i], *t = &y.tensor[i];
        const bool rate = strlen(s->name) > 6 && strcmp(s->name + strlen(s->name) - 6, ".ssm_a") == 0;
        ck_assert_msg(strcmp(s->name, t->name) == 0 && s->type == t->type && s->dims == t->dims && memcmp(s->shape, t->shape, (size_t)s->dims * sizeof *s->shape) == 0,
                      "%s: tensor %s, expected %s with its type and shape", what, s->name, t->name);
        for (int64_t k = 0; rate && k < s->elements; k++) {
            float p, q;
            memcpy(&p, s->data + 4 * k, 4);
            memcpy(&q, t->data + 4 * k, 4);
            ck_assert_msg(ulps(p, q) <= rate_ulps, "%s: %s[%lld]: %.9g, expected %.9g", what, s->name, (long long)k, (double)p, (double)q);
        }
        const uint64_t bytes = (uint64_t)(t->elements / dtype_info(t->type)->block * dtype_info(t->type)->bytes);
        ck_assert_msg(rate || memcmp(s->data, t->data, bytes) == 0, "%s: %s has other bytes", what, s->name);
    }
    gguf_close(g);
    gguf_close(h);
}

/* ---- every drift ---------------------------------------------------------------------------------------------------------------- */

typedef struct Case { void (*drift)(Edit *e); const char *flags, *says; double rate_ulps; bool any_key; } Case;

#define LIKE_GGUF "--like " GOOD_GGUF
#define LIKE_HF "--like " GOOD_HF
static const Case cases[] = {
    { drift_shared_count, "", "key-missing: clover_moe.expert_shared_count: not there -> 1", 0, false },
    { drift_rope, "", "rope-dims-missing: clover_moe.rope.dimension_count: not there -> 8", 0, false },
    { drift_sections, "", "rope-sections-form", 0, false },
    { drift_interval, "", "interval-contradicts: clover_moe.full_attention_interval: 2 -> 4", 0, false },
    { drift_taps_key, "", "key-contradicts: clover_moe.ssm.conv_kernel: 3 -> 4", 0, false },
    { drift_pre, "", "tokenizer-pre: tokenizer.ggml.pre -> \"qwen35\"", 0, false },
    { drift_eos, "", "eos-missing: tokenizer.ggml.eos_token_id: not there -> 258", 0, false },
    { drift_names, "", "name-form: blk.0.ssm_dt -> blk.0.ssm_dt.bias", 0, false },
    { drift_hf_names, "", "name-form: model.layers.0.input_layernorm.weight -> blk.0.attn_norm.weight", 0, false },
    { drift_mtp, "--only mtp-bundled", "mtp-bundled", 0, false },
    { drift_vision, "--only vision-bundled", "vision-bundled: 2 tensors left out", 0, false },
    { drift_raw_a_log, "", "a-log-raw: blk.0.ssm_a", 1, false },
    { drift_norms_plain, "", "norm-shift-missing: blk.3.attn_q_norm.weight: w to 1 + w", 0, false },
    { drift_norms_twice, "", "norm-shift-twice: output_norm.weight: 2 + w to 1 + w", 0, false },
    { drift_head_norm, "", "head-norm-shifted: blk.2.ssm_norm.weight", 0, false },
    { drift_conv_turned, "", "conv-layout: blk.1.ssm_conv1d.weight", 0, false },
    { drift_merges, LIKE_GGUF, "merges-missing", 0, false },
    { drift_exp_twice, LIKE_GGUF, "a-exp-twice: blk.0.ssm_a", 0, false },
    { drift_exp_grown, LIKE_HF, "a-exp-twice: blk.0.ssm_a", 1, false },
    { drift_mixed, LIKE_GGUF, "norm-shift-missing: blk.1.attn_norm.weight", 0, false },
    { drift_heads, LIKE_GGUF, "head-order: blk.0.ssm_out.weight: grouped where the format tiles them: 64 of 128 columns moved", 0, false },
    { drift_heads, LIKE_HF, "head-order: blk.1.attn_qkv.weight", 0, false },
    { drift_diffusion_heads, LIKE_HF, "diffusion-head-order: blk.1.conv_right_weight", 0, false },
    { drift_query_gate, LIKE_HF, "q-gate-flat: blk.3.attn_q.weight", 0, false },
    { drift_conv, LIKE_HF, "conv-reversed: blk.2.ssm_conv1d.weight", 0, false },
    { drift_gate_up, LIKE_HF, "gate-up-swapped: blk.3.ffn_gate_exps.weight", 0, false },
    { drift_experts, LIKE_HF, "expert-order: blk.0.ffn_down_exps.weight", 0, false },
    { drift_nan, LIKE_HF, "nan-or-inf: blk.2.ffn_down_exps.weight", 0, false },
    { drift_nan, LIKE_GGUF, "nan-or-inf: blk.2.ffn_down_exps.weight", 0, false },
    { drift_zero, LIKE_GGUF, "all-zero: blk.1.attn_gate.weight", 0, false },
    { drift_missing, LIKE_HF, "tensor-missing: blk.1.ssm_norm.weight", 0, false },
    /* by the caller's word */
    { drift_heads, "--only head-order", "head-order: blk.0.ssm_out.weight", 0, true },
    { drift_diffusion_heads, "--only diffusion-head-order", "diffusion-head-order: blk.0.conv_right_weight", 0, true },
    { drift_query_gate, "--only q-gate-flat", "q-gate-flat: blk.3.attn_q.weight", 0, true },
    { drift_conv, "--only conv-reversed,a-log-raw", "conv-reversed: blk.0.ssm_conv1d.weight", 0, true },
    { drift_gate_up, "--only gate-up-swapped", "gate-up-swapped: blk.0.ffn_gate_exps.weight and blk.0.ffn_up_exps.weight exchanged", 0, true },
};
enum { CASES = sizeof cases / sizeof *cases };

static void drop_memory(const char *path, Edit *good) {      /* the good file with the key that remembers such a mend */
    Gguf *g = open_gguf(path);
    const GgufKey *k = gguf_key(g, "clover.mended");
    GgufString s;
    char text[256];
    ck_assert_ptr_nonnull(k);
    ck_assert(gguf_string(k, &s));
    snprintf(text, sizeof text, "%.*s", (int)s.length, s.bytes);
    edit_string(good, "clover.mended", text);
    gguf_close(g);
}

/* The mended file is the good one, and mending it again changes nothing. */
START_TEST(drifts_are_mended) {
    const Case *c = &cases[_i];
    for (int type = 0; type < DRIFT_TYPES; type++) {
        Edit *in = drifted(c->drift, drift_types[type]), *good = drifted(NULL, drift_types[type]);
        char flags[256], what[1024], again[64];
        snprintf(flags, sizeof flags, "%s", c->flags);
        snprintf(what, sizeof what, "case %d in %s (%s %s)", _i, drift_type_names[type], c->says, flags);
        snprintf(again, sizeof again, "again-%d.gguf", type);
        char out[64];
        snprintf(out, sizeof out, "out-%d.gguf", type);
        assert_run(cmd_fix, say(edit_write(in), out, flags), 0, c->says);
        if (c->any_key) drop_memory(in_folder(folder, out), good);
        assert_same_model(in_folder(folder, out), edit_write(good), c->rate_ulps, what);
        assert_run(cmd_fix, say(in_folder(folder, out), again, flags), 0, "nothing to mend");
        ck_assert_msg(same_files(in_folder(folder, out), in_folder(folder, again)), "%s: again", what);
        edit_free(in);
        edit_free(good);
    }
} END_TEST

/* Where only keys or whole tensors change, the file is the good one to the byte: keys and tensors take their usual places. */
START_TEST(the_good_file_to_the_byte) {
    static const struct { void (*drift)(Edit *e); const char *flags; } of[] = {
        { drift_shared_count, "" }, { drift_rope, "" }, { drift_norms_plain, "" }, { drift_missing, LIKE_HF }, { drift_names, "" }, { drift_heads, LIKE_HF }, { drift_nan, LIKE_GGUF } };
    Edit *e = drifted(of[_i].drift, DT_F32);
    assert_run(cmd_fix, say(edit_write(e), "a.gguf", of[_i].flags), 0, NULL);
    ck_assert(same_files(in_folder(folder, "a.gguf"), GOOD_GGUF));
    edit_free(e);
} END_TEST

/* The exponential undone without a good file: as far as float32 lets it. */
START_TEST(exponentials_are_undone) {
    for (int k = 0; k < 2; k++) {
        Edit *e = drifted(k ? drift_exp_grown : drift_exp_twice, DT_F32);
        const char *in = edit_write(e);
        Said said = run_words(cmd_fix, say(in, k ? "b.gguf" : "a.gguf", ""));
        ck_assert_int_eq(said.code, 0);
        if (strstr(said.text, "a-exp-twice")) {                  /* twelve values are few: lint may not dare to say */
            Gguf *g = open_gguf(in_folder(folder, k ? "b.gguf" : "a.gguf")), *h = open_gguf(GOOD_GGUF);
            for (int i = 0; i < D_HV; i++) {
                float p, q;
                memcpy(&p, gguf_tensor(g, "blk.1.ssm_a")->data + 4 * i, 4);
                memcpy(&q, gguf_tensor(h, "blk.1.ssm_a")->data + 4 * i, 4);
                ck_assert(close_to((double)p, (double)q, 1e-4, 1e-6));
            }
            gguf_close(g);
            gguf_close(h);
        }
        free(said.text);
        edit_free(e);
    }
} END_TEST

/* A_log in some layers: those are mended, the others keep their bytes; where one may be either, none is changed without a good file. */
START_TEST(rates_of_some_layers) {
    for (int type = 0; type < DRIFT_TYPES; type++) {
        Edit *e = drifted(NULL, drift_types[type]), *good = drifted(NULL, drift_types[type]);
        map_values(edit_tensor(e, "blk.1.ssm_a"), log_of_negative);
        assert_run(cmd_fix, say(edit_write(e), "a.gguf", "--force"), 0, "1 changes");
        assert_same_model(in_folder(folder, "a.gguf"), edit_write(good), 1, "one layer");
        edit_free(e);
        edit_free(good);
    }
    Edit *e = edit_gguf();
    map_values(edit_tensor(e, "blk.1.ssm_a"), log_of_negative);
    for (int h = 0; h < 4; h++) edit_set(edit_tensor(e, "blk.2.ssm_a"), h, -0.0324f);
    const char *in = edit_write(e);
    assert_run(cmd_fix, say(in, "b.gguf", ""), 0, "not mended: a-log-raw: blk.2.ssm_a");
    ck_assert(same_files(in, in_folder(folder, "b.gguf")));
    edit_free(e);
} END_TEST

static void pack_q8(EditTensor *t) {
    Bytes packed = { 0 };
    put_zeros(&packed, (size_t)dtype_bytes(DT_Q8_0, (int64_t)t->data.n / 4));
    quant_encode(DT_Q8_0, (const float *)(const void *)t->data.data, (int64_t)t->data.n / 4, packed.data);
    free_bytes(&t->data);
    t->data = packed;
    t->type = DT_Q8_0;
}

/* Norms are mended together, a quantised one too; where one cannot be, none is, and that is said. */
START_TEST(all_norms_or_none) {
    Edit *e = edit_gguf();
    drift_norms_plain(e);
    pack_q8(edit_tensor(e, "blk.1.attn_norm.weight"));
    assert_run(cmd_fix, say(edit_write(e), "a.gguf", ""), 0, "norm-shift-missing: blk.1.attn_norm.weight: w to 1 + w");
    Gguf *g = open_gguf(in_folder(folder, "a.gguf")), *good = open_gguf(GOOD_GGUF);
    const Tensor *t = gguf_tensor(g, "blk.1.attn_norm.weight");
    ck_assert_int_eq(t->type, DT_F32);
    for (int i = 0; i < D_HIDDEN; i++) {
        float p, q;
        memcpy(&p, t->data + 4 * i, 4);
        memcpy(&q, gguf_tensor(good, "blk.1.attn_norm.weight")->data + 4 * i, 4);
        ck_assert(fabsf(p - q) < 0.01f);                         /* a step of Q8_0 */
    }
    gguf_close(g);
    gguf_close(good);
    edit_free(e);
    e = edit_gguf();
    drift_norms_plain(e);
    EditTensor *odd = edit_tensor(e, "blk.2.attn_norm.weight");
    odd->type = DT_I8;
    odd->data.n /= 4;
    const char *in = edit_write(e);
    assert_run(cmd_fix, say(in, "b.gguf", ""), 0, "not mended: norm-shift-missing: blk.2.attn_norm.weight");
    ck_assert(same_files(in, in_folder(folder, "b.gguf")));
    edit_free(e);
} END_TEST

static void drift_two(Edit *e) { drift_raw_a_log(e); drift_norms_twice(e); }

/* --mend never says that nothing is to be mended where norms and rates show garbage, and a plain reading warns. [LNT-3] */
START_TEST(mend_is_not_silent) {
    static const struct { void (*drift)(Edit *e); const char *id; int plain; } all[] = {
        { drift_norms_twice, "norm-shift-twice", 0 }, { drift_mixed, "norm-shift-mixed", 0 }, { drift_exp_twice, "a-exp-twice", 0 },
        { drift_head_norm, "head-norm-shifted", 0 }, { drift_two, "norm-shift-twice", 3 } };
    char text[1024], says[64];
    Edit *e = drifted(all[_i].drift, DT_F32);
    const char *in = edit_write(e);
    snprintf(text, sizeof text, "inspect %s --mend", in);
    assert_run(cmd_inspect, text, 3, all[_i].id);
    assert_run(cmd_inspect, text, 3, "clover fix");
    snprintf(text, sizeof text, "inspect %s", in);
    snprintf(says, sizeof says, "warning: %s: %s", in, all[_i].id);
    assert_run(cmd_inspect, text, all[_i].plain, all[_i].plain ? "holds A_log" : says);
    assert_run(cmd_fix, say(in, "a.gguf", ""), 0, all[_i].id);                    /* what is named does mend it */
    snprintf(text, sizeof text, "inspect %s/a.gguf --mend", folder);
    assert_run(cmd_inspect, text, 0, "nothing to mend");
    edit_free(e);
} END_TEST

START_TEST(right_files_are_copied) {
    static const char *const flags[] = { "", LIKE_GGUF, LIKE_HF, "--only a-log-raw" };
    for (int i = 0; i < 4; i++) {
        char out[32];
        snprintf(out, sizeof out, "o%d.gguf", i);
        assert_run(cmd_fix, say(GOOD_GGUF, out, flags[i]), 0, "nothing to mend");
        ck_assert(same_files(GOOD_GGUF, in_folder(folder, out)));
    }
} END_TEST

/* ---- nothing is lost ------------------------------------------------------------------------------------------------------------- */

/* Left out for llama.cpp, kept aside, and brought back: the good file again. */
START_TEST(diffusion_goes_and_comes_back) {
    char flags[512];
    for (int type = 0; type < DRIFT_TYPES; type++) {
        Edit *e = drifted(NULL, drift_types[type]);
        const char *in = edit_write(e);
        char out[32], back[32];
        snprintf(out, sizeof out, "llama-%d.gguf", type);
        snprintf(back, sizeof back, "back-%d.gguf", type);
        snprintf(flags, sizeof flags, "--for llama.cpp --keep-diffusion %s/side-%d.gguf", folder, type);
        assert_run(cmd_fix, say(in, out, flags), 0, "tensor-extra: 12 diffusion tensors left out");
        Gguf *g = open_gguf(in_folder(folder, out));
        ck_assert_int_eq(gguf_tensors(g).n, 76);
        gguf_close(g);
        snprintf(flags, sizeof flags, "--like %s/side-%d.gguf", folder, type);
        assert_run(cmd_fix, say(in_folder(folder, out), back, flags), 0, "diffusion-missing");
        assert_same_model(in_folder(folder, back), in, 0, "back");
        edit_free(e);
    }
} END_TEST

/* Half of them there is an error for previews: the rest is lent. */
START_TEST(partial_diffusion) {
    Edit *e = edit_gguf();
    edit_drop(e, "blk.1.bd_softmax_history_c");
    assert_run(cmd_fix, say(edit_write(e), "a.gguf", LIKE_HF), 0, "diffusion-partial: blk.1.bd_softmax_history_c");
    assert_same_model(in_folder(folder, "a.gguf"), GOOD_GGUF, 0, "partial");
    edit_free(e);
} END_TEST

/* A router that was quantised gets its own values again; alpha and beta follow the file's type. */
START_TEST(precision_is_lent) {
    Edit *e = edit_gguf();
    EditTensor *t = edit_tensor(e, "blk.0.ffn_gate_inp.weight");
    pack_q8(t);
    assert_run(cmd_fix, say(edit_write(e), "a.gguf", LIKE_HF), 0, "router-quantised: blk.0.ffn_gate_inp.weight");
    assert_same_model(in_folder(folder, "a.gguf"), GOOD_GGUF, 0, "router");
    edit_free(e);
} END_TEST

/* Finer than the file's matrices is not made coarser. */
START_TEST(fine_alpha_stays) {
    Edit *e = edit_gguf();
    for (int i = 0; i < e->n_tensors; i++) {
        EditTensor *t = &e->tensor[i];
        if (t->dims < 2 || strstr(t->name, "conv") || strstr(t->name, "ffn_gate_inp")) continue;
        if (named(t, "ssm_alpha.weight")) { pack_q8(t); continue; }
        Bytes packed = { 0 };
        put_zeros(&packed, (size_t)dtype_bytes(DT_Q4_0, (int64_t)t->data.n / 4));
        quant_encode(DT_Q4_0, (const float *)(const void *)t->data.data, (int64_t)t->data.n / 4, packed.data);
        free_bytes(&t->data);
        t->data = packed;
        t->type = DT_Q4_0;
    }
    const char *in = edit_write(e);
    assert_run(cmd_fix, say(in, "a.gguf", LIKE_HF), 0, "nothing to mend");
    ck_assert(same_files(in, in_folder(folder, "a.gguf")));
    edit_free(e);
} END_TEST

START_TEST(token_table_is_filled_up) {
    Edit *e = edit_gguf();
    for (int i = 0; i < e->n_tensors; i++)
        if (strcmp(e->tensor[i].name, "token_embd.weight") == 0 || strcmp(e->tensor[i].name, "output.weight") == 0) {
            put_zeros(&e->tensor[i].data, 4 * 64 * 4);           /* four rows more than tokens */
            e->tensor[i].shape[0] += 4;
        }
    assert_run(cmd_fix, say(edit_write(e), "a.gguf", ""), 0, "token-table-size: tokenizer.ggml.tokens: 272 entries -> 276");
    Gguf *g = open_gguf(in_folder(folder, "a.gguf"));
    int64_t type;
    ck_assert_uint_eq(gguf_key(g, "tokenizer.ggml.tokens")->count, 276);
    ck_assert(gguf_int(gguf_key(g, "tokenizer.ggml.token_type"), 275, &type) && type == 5);
    gguf_close(g);
    CloverError err;
    CloverModel *m;
    assert_ok(clover_model_open(in_folder(folder, "a.gguf"), NULL, &m, &err), err);
    clover_model_close(m);
    edit_free(e);
} END_TEST

/* What a finding's mend cannot do is said, and lint names no command for it. */
START_TEST(what_is_not_mended_is_said) {
    static const struct { const char *key, *id, *left; } all[] = {
        { "clover_moe.attention.layer_norm_rms_epsilon", "key-missing", "rms_epsilon is not there" },
        { "clover_moe.expert_used_count", "key-missing", "expert_used_count is not there" } };
    char text[1024], says[256];
    for (int i = 0; i < 2; i++) {
        Edit *e = edit_gguf();
        edit_drop_key(e, all[i].key);
        const char *in = edit_write(e);
        snprintf(says, sizeof says, "not mended: %s: attention.layer_norm", all[i].id);
        if (i) snprintf(says, sizeof says, "not mended: %s: %s", all[i].id, all[i].left);
        assert_run(cmd_fix, say(in, "a.gguf", "--force"), 0, says);
        assert_run(cmd_fix, say(in, "a.gguf", "--force"), 0, "nothing that could be mended");
        snprintf(text, sizeof text, "lint %s", in);
        assert_run(cmd_lint, text, 1, "mend      clover fix IN OUT --like GOOD");
        snprintf(text, sizeof text, "lint %s --json", in);
        json_t *o = run_json(cmd_lint, text, 1);
        ck_assert(json_is_null(json_object_get(json_array_get(json_object_get(o, "findings"), 0), "mend")));
        json_decref(o);
        assert_run(cmd_fix, say(in, "b.gguf", LIKE_GGUF " --force"), 0, "key-missing");        /* what lint names does it */
        snprintf(text, sizeof text, "lint %s/b.gguf", folder);
        assert_run(cmd_lint, text, 0, NULL);
        edit_drop_key(e, "clover_moe.expert_shared_count");                                    /* one of the two can be mended */
        assert_run(cmd_fix, say(edit_write(e), "c.gguf", "--force"), 0, "still there: key-missing");
        edit_free(e);
    }
    Edit *e = edit_gguf();                                       /* announced, and not there */
    edit_u32(e, "clover_moe.block_count", 5);
    edit_u32(e, "clover_moe.nextn_predict_layers", 1);
    assert_run(cmd_fix, say(edit_write(e), "d.gguf", ""), 0, "mtp-bundled: clover_moe.block_count -> 4");
    assert_same_model(in_folder(folder, "d.gguf"), GOOD_GGUF, 0, "nextn");
    edit_free(e);
} END_TEST

/* Experts that are one and the same, or zero: the good file has them. */
START_TEST(experts_are_lent) {
    for (int type = 0; type < DRIFT_TYPES; type++)
        for (int zero = 0; zero < 2; zero++) {
            Edit *e = drifted(NULL, drift_types[type]), *good = drifted(NULL, drift_types[type]);
            EditTensor *t = edit_tensor(e, "blk.1.ffn_up_exps.weight");
            const size_t each = t->data.n / D_E;
            if (zero) memset(t->data.data + 2 * each, 0, each);
            else memcpy(t->data.data + 2 * each, t->data.data, each);
            char flags[512];
            snprintf(flags, sizeof flags, "--force --like %s", edit_write(good));
            assert_run(cmd_fix, say(edit_write(e), "a.gguf", flags), 0, zero ? "all-zero: blk.1.ffn_up_exps.weight" : "duplicate-experts: blk.1.ffn_up_exps.weight");
            assert_same_model(in_folder(folder, "a.gguf"), good->path, 0, "experts");
            edit_free(e);
            edit_free(good);
        }
} END_TEST

/* What the good file has in F32 and the type here cannot hold. */
START_TEST(too_large_to_lend) {
    Edit *e = drifted(NULL, DT_Q8_0), *good = edit_gguf();
    edit_drop(e, "blk.1.attn_gate.weight");
    edit_set(edit_tensor(good, "blk.1.attn_gate.weight"), 5, 1e9f);
    char flags[512];
    snprintf(flags, sizeof flags, "--like %s", edit_write(good));
    assert_run(cmd_fix, say(edit_write(e), "a.gguf", flags), 3, "blk.1.attn_gate.weight: row 0 has a value too large for Q8_0");
    ck_assert(!is_there(in_folder(folder, "a.gguf")));
    edit_free(e);
    edit_free(good);
} END_TEST

/* A file of another model lends nothing. */
START_TEST(another_model_is_no_good_file) {
    char text[512], flags[512];
    snprintf(text, sizeof text, "synth -o %s/other.gguf --seed 77", folder);
    assert_run(cmd_synth, text, 0, NULL);
    snprintf(text, sizeof text, "synth -o %s/in.gguf --seed 5", folder);
    assert_run(cmd_synth, text, 0, NULL);
    snprintf(flags, sizeof flags, "--like %s/other.gguf", folder);
    assert_run(cmd_fix, say(in_folder(folder, "in.gguf"), "a.gguf", flags), 3, "it is another model");
    snprintf(flags, sizeof flags, "--like %s/in.gguf", folder);
    assert_run(cmd_fix, say(GOOD_GGUF, "a.gguf", flags), 3, "it is another model");       /* nor one of other sizes */
    ck_assert(!is_there(in_folder(folder, "a.gguf")));
} END_TEST

/* A good file's word counts more than what was done on the caller's. */
START_TEST(a_wrong_word_is_taken_back) {
    assert_run(cmd_fix, say(GOOD_GGUF, "a.gguf", "--only head-order,conv-reversed,q-gate-flat"), 0, "q-gate-flat");
    ck_assert(!same_files(in_folder(folder, "a.gguf"), GOOD_GGUF));
    assert_run(cmd_fix, say(in_folder(folder, "a.gguf"), "b.gguf", LIKE_HF), 0, "conv-reversed");
    ck_assert(same_files(in_folder(folder, "b.gguf"), GOOD_GGUF));
} END_TEST

/* --only keeps to what it names. */
START_TEST(only_what_was_asked_for) {
    Edit *e = edit_gguf();
    drift_raw_a_log(e);
    drift_shared_count(e);
    const char *in = edit_write(e);
    assert_run(cmd_fix, say(in, "a.gguf", "--only key-missing"), 0, "1 changes");
    Gguf *g = open_gguf(in_folder(folder, "a.gguf"));
    ck_assert_mem_eq(gguf_tensor(g, "blk.0.ssm_a")->data, edit_tensor(e, "blk.0.ssm_a")->data.data, 16);
    ck_assert_ptr_nonnull(gguf_key(g, "clover_moe.expert_shared_count"));
    gguf_close(g);
    assert_run(cmd_fix, say(in, "b.gguf", ""), 0, "4 changes");  /* the public case without its extra tensors */
    assert_same_model(in_folder(folder, "b.gguf"), GOOD_GGUF, 1, "both");
    edit_free(e);
} END_TEST

/* Blocks of 32 across heads of 16: neither ssm_out nor anything else is moved. */
START_TEST(stuck_columns_are_said) {
    char text[512];
    snprintf(text, sizeof text, "synth -o %s/in.gguf --type q8_0", folder);      /* the tiny preset's heads are 16 wide */
    assert_run(cmd_synth, text, 0, NULL);
    assert_run(cmd_fix, say(in_folder(folder, "in.gguf"), "a.gguf", "--only head-order"), 0, "not mended: head-order: the columns of ssm_out cannot move");
    ck_assert(same_files(in_folder(folder, "in.gguf"), in_folder(folder, "a.gguf")));
    assert_run(cmd_fix, say(GOOD_GGUF, "b.gguf", "--only expert-order"), 0, "--like GOOD");
} END_TEST

/* Tensors that lie askew are laid out anew: gguf_open refuses what comes in and takes what goes out. */
START_TEST(alignment_is_mended) {
    Edit *e = edit_gguf();
    edit_u32(e, "general.alignment", 64);                        /* the tests' writer goes on with 32 */
    const char *in = edit_write(e);
    CloverError err;
    Gguf *g;
    if (gguf_open(in, &g, &err) == CLOVER_OK) gguf_close(g);     /* where by chance it fits */
    else {
        assert_run(cmd_fix, say(in, "a.gguf", "--only alignment"), 0, "alignment: tensors are laid out anew");
        g = open_gguf(in_folder(folder, "a.gguf"));
        ck_assert_uint_eq(gguf_alignment(g), 64);
        ck_assert_int_eq(gguf_tensors(g).n, 88);
        ck_assert_mem_eq(gguf_tensor(g, "blk.3.ffn_down_shexp.weight")->data, edit_tensor(e, "blk.3.ffn_down_shexp.weight")->data.data, 8192);
        gguf_close(g);
    }
    edit_free(e);
} END_TEST

/* A split file becomes one. */
START_TEST(split_files) {
    char text[512];
    snprintf(text, sizeof text, "synth -o %s/in.gguf --seed 3", folder);
    assert_run(cmd_synth, text, 0, NULL);
    snprintf(text, sizeof text, "synth -o %s/split.gguf --seed 3 --split-size 200K", folder);
    assert_run(cmd_synth, text, 0, NULL);
    DIR *d = opendir(folder);
    char first[512] = "";
    for (struct dirent *f; (f = readdir(d)); )
        if (strstr(f->d_name, "-00001-of-")) snprintf(first, sizeof first, "%s/%s", folder, f->d_name);
    closedir(d);
    assert_run(cmd_fix, say(first, "a.gguf", ""), 0, "nothing to mend");
    assert_same_model(in_folder(folder, "a.gguf"), in_folder(folder, "in.gguf"), 0, "split");
} END_TEST

/* ---- refusals ------------------------------------------------------------------------------------------------------------------------ */

START_TEST(refusals) {
    Edit *e = drifted(drift_raw_a_log, DT_F32);
    const char *in = edit_write(e);
    Bytes before = read_file(in);
    char text[1024];
    assert_run(cmd_fix, say(in, "a.gguf", "--only no-such-id"), 2, "no-such-id");
    assert_run(cmd_fix, say(GOOD_HF, "a.gguf", ""), 2, "clover convert");
    assert_run(cmd_fix, say("no-such.gguf", "a.gguf", ""), 3, "no-such.gguf");
    assert_run(cmd_fix, say(in, "a.gguf", "--like no-such.gguf"), 3, "no-such.gguf");
    snprintf(text, sizeof text, "fix %s %s --force", in, in);
    assert_run(cmd_fix, text, 2, "is a file that is read here");
    snprintf(text, sizeof text, "fix %s", in);
    assert_run(cmd_fix, text, 2, "OUT is missing");
    snprintf(text, sizeof text, "fix %s --dry-run", in);
    assert_run(cmd_fix, text, 0, "3 changes, none written");
    write_file(in_folder(folder, "cut.gguf"), before.data, before.n / 2);
    assert_run(cmd_fix, say(in_folder(folder, "cut.gguf"), "a.gguf", ""), 3, "truncated");
    write_file(in_folder(folder, "there.gguf"), "mine", 4);
    assert_run(cmd_fix, say(in, "there.gguf", ""), 2, "exists");
    assert_run(cmd_fix, say(in, "none/a.gguf", ""), 71, "none/a.gguf");
    ck_assert(!is_there(in_folder(folder, "a.gguf")));
    Bytes after = read_file(in);
    ck_assert(before.n == after.n && memcmp(before.data, after.data, before.n) == 0);
    free_bytes(&before);
    free_bytes(&after);
    edit_free(e);
} END_TEST

/* Whatever name it goes by, no output replaces what is read: parts of a split file, files of a folder, the good file. [ERR-4] */
START_TEST(inputs_are_spared) {
    char text[4096], part[512] = "", other[512] = "";
    snprintf(text, sizeof text, "synth -o %s/split.gguf --seed 3 --split-size 200K", folder);
    assert_run(cmd_synth, text, 0, NULL);
    DIR *d = opendir(folder);
    for (struct dirent *f; (f = readdir(d)); ) {
        if (strstr(f->d_name, "-00001-of-")) snprintf(part, sizeof part, "%s/%s", folder, f->d_name);
        if (strstr(f->d_name, "-00002-of-")) snprintf(other, sizeof other, "%s/%s", folder, f->d_name);
    }
    closedir(d);
    snprintf(text, sizeof text, "synth -o %s/hf --form hf --seed 3", folder);
    assert_run(cmd_synth, text, 0, NULL);
    char hf[512], config[600], tokenizer[600], link[600];
    snprintf(hf, sizeof hf, "%s/hf", folder);
    snprintf(config, sizeof config, "%s/config.json", hf);
    snprintf(tokenizer, sizeof tokenizer, "%s/./tokenizer.json", hf);
    snprintf(link, sizeof link, "%s/link.gguf", folder);
    ck_assert_int_eq(symlink(strrchr(other, '/') + 1, link), 0);
    const struct { const char *in, *out, *flags; } all[] = {
        { part, other, "" }, { part, link, "" }, { other, part, "" }, { part, config, "--like HF" }, { part, tokenizer, "--like HF" },
        { GOOD_GGUF, other, "--like PART" }, { part, "OUT", "--for llama.cpp --keep-diffusion OTHER" }, { part, "OUT", "--like HF --keep-diffusion CONFIG" } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *value = strstr(all[i].flags, "HF") ? hf : strstr(all[i].flags, "PART") ? part : "", *side = strstr(all[i].flags, "OTHER") ? other : config;
        char out[1024];
        snprintf(out, sizeof out, "%s/new.gguf", folder);
        if (strcmp(all[i].out, "OUT") != 0) snprintf(out, sizeof out, "%s", all[i].out);
        snprintf(text, sizeof text, "fix %s %s --force %s %s %s %s", all[i].in, out, *value ? "--like" : "", value,
                 strstr(all[i].flags, "keep") ? "--for llama.cpp --keep-diffusion" : "", strstr(all[i].flags, "keep") ? side : "");
        Bytes before = read_file(strstr(all[i].flags, "keep") ? side : out);
        assert_run(cmd_fix, text, 2, "is a file that is read here");
        Bytes after = read_file(strstr(all[i].flags, "keep") ? side : out);
        ck_assert(before.n == after.n && memcmp(before.data, after.data, before.n) == 0);
        free_bytes(&before);
        free_bytes(&after);
    }
    ck_assert(!is_there(in_folder(folder, "new.gguf")));
    snprintf(text, sizeof text, "fix %s %s/new.gguf --for llama.cpp --keep-diffusion %s/hf/../new.gguf", part, folder, folder);   /* not there yet */
    assert_run(cmd_fix, text, 2, "are one file");
    ck_assert(!is_there(in_folder(folder, "new.gguf")));
} END_TEST

/* Memory that runs out anywhere: said, nothing leaks, nothing is left that looks finished. */
START_TEST(out_of_memory) {
    Edit *e = edit_gguf();
    drift_raw_a_log(e);
    drift_heads(e);
    static const char *const flags[] = { "--for llama.cpp", LIKE_GGUF };
    char out[2 * TEST_PATH];
    snprintf(out, sizeof out, "%s/a.gguf", folder);
    assert_survives_without_memory(cmd_fix, say(edit_write(e), "a.gguf", flags[_i]), out, 0);
    edit_free(e);
} END_TEST

Suite *fix_suite(void) {
    Suite *s = suite_create("fix");
    TCase *c = tcase_create("fix");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, drifts_are_mended, 0, CASES);
    tcase_add_loop_test(c, the_good_file_to_the_byte, 0, 7);
    tcase_add_test(c, exponentials_are_undone);
    tcase_add_test(c, rates_of_some_layers);
    tcase_add_test(c, all_norms_or_none);
    tcase_add_loop_test(c, mend_is_not_silent, 0, 5);
    tcase_add_test(c, right_files_are_copied);
    tcase_add_test(c, diffusion_goes_and_comes_back);
    tcase_add_test(c, partial_diffusion);
    tcase_add_test(c, precision_is_lent);
    tcase_add_test(c, fine_alpha_stays);
    tcase_add_test(c, token_table_is_filled_up);
    tcase_add_test(c, experts_are_lent);
    tcase_add_test(c, too_large_to_lend);
    tcase_add_test(c, another_model_is_no_good_file);
    tcase_add_test(c, what_is_not_mended_is_said);
    tcase_add_test(c, a_wrong_word_is_taken_back);
    tcase_add_test(c, only_what_was_asked_for);
    tcase_add_test(c, stuck_columns_are_said);
    tcase_add_test(c, alignment_is_mended);
    tcase_add_test(c, split_files);
    tcase_add_test(c, refusals);
    tcase_add_test(c, inputs_are_spared);
    tcase_add_loop_test(c, out_of_memory, 0, 2);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(fix_suite()); }
