/* test_config.c - a model's numbers from GGUF keys and from config.json. [CFG]
 *
 * The good files were not made by this project; expected numbers are what their headers say, read by eye. Everything else
 * is one of them with one thing changed. */
#include <math.h>
#include "harness.h"
#include "model_edit.h"
#include "../ref/files/config.h"

static CloverError err;
static CloverConfig config;

static CloverStatus read_gguf(Edit *e, CloverDriftMode drifts) {
    Gguf *g;
    const char *path = edit_write(e);
    assert_ok(gguf_open(path, &g, &err), err);
    CloverStatus status = config_from_gguf(g, drifts, &config, &err);
    gguf_close(g);
    edit_free(e);
    return status;
}

static CloverStatus read_hf(Edit *e) {
    CloverStatus status = config_from_folder(edit_write(e), &config, &err);
    edit_free(e);
    return status;
}

#define assert_refused(call, status, text) do { assert_status(call, status, err); assert_says(err, text); } while (0)

/* What both good files say. */
static void assert_good(const CloverConfig *c) {
    ck_assert_int_eq(c->family, CLOVER_FAMILY_CLOVER);
    ck_assert_int_eq(c->layers, 4);
    ck_assert_int_eq(c->nextn_layers, 0);
    ck_assert_int_eq(c->hidden, 64);
    ck_assert_int_eq(c->vocab, 272);
    ck_assert_int_eq(c->context, 4096);
    ck_assert_int_eq(c->heads, 2);
    ck_assert_int_eq(c->kv_heads, 1);
    ck_assert_int_eq(c->head_width, 32);
    ck_assert_int_eq(c->rotary_dims, 8);
    ck_assert_double_eq(c->rope_base, 1e7);
    ck_assert_double_eq(c->l2_eps, 1e-6);
    ck_assert_int_eq(c->key_heads, 2);
    ck_assert_int_eq(c->value_heads, 4);
    ck_assert_int_eq(c->key_width, 32);
    ck_assert_int_eq(c->value_width, 32);
    ck_assert_int_eq(c->taps, 4);
    ck_assert_int_eq(c->experts, 4);
    ck_assert_int_eq(c->experts_used, 2);
    ck_assert_int_eq(c->expert_width, 32);
    ck_assert_int_eq(c->shared_width, 32);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(c->full_attention[i], i == 3);   /* [CFG-3] */
    ck_assert(!c->tied);
    ck_assert_int_eq(c->block, 32);
    ck_assert_int_eq(c->mask_id, 261);
    ck_assert_double_eq(c->threshold, 0.95);
    ck_assert(!c->coreset_enabled);
    ck_assert_double_eq(c->coreset_top_p, 1.0);
    ck_assert_int_eq(c->n_stops, 2);
    ck_assert_int_eq(c->stops[0], 258);
    ck_assert_int_eq(c->stops[1], 256);
    const CloverControls *k = &c->controls;
    ck_assert_double_eq(k->frequency_penalty, 0);
    ck_assert_double_eq(k->presence_penalty, 0);
    ck_assert_double_eq(k->repetition_penalty, 1);
    ck_assert_double_eq(k->dllm_length_penalty, 0);
    ck_assert_int_eq(k->dllm_length_penalty_start, 8192);
    ck_assert_int_eq(k->dllm_length_penalty_window, 8192);
    ck_assert_double_eq(k->dllm_think_end_bias, 0);
    ck_assert_int_eq(k->dllm_think_end_start, 4096);
    ck_assert_int_eq(k->dllm_think_end_window, 4096);
    ck_assert_int_eq(k->dllm_think_end_token_id, -1);
}

START_TEST(good_files) {   /* [CFG-1] [CFG-2] [CFG-4] [CFG-11] [CFG-12] [CFG-13] */
    assert_ok(read_gguf(edit_gguf(), CLOVER_REFUSE_DRIFTS), err);
    assert_good(&config);
    ck_assert_double_eq(config.rms_eps, 9.99999997475242707878351211548e-07);   /* the float32 nearest to 1e-6 */
    assert_ok(config_from_folder(GOOD_HF, &config, &err), err);
    assert_good(&config);
    ck_assert_double_eq(config.rms_eps, 1e-6);
} END_TEST

START_TEST(other_sizes_land_in_their_own_fields) {
    static const struct { const char *gguf, *json; int value; size_t field; } all[] = {
        { "context_length", "max_position_embeddings", 9999, offsetof(CloverConfig, context) },
        { "attention.head_count", "num_attention_heads", 7, offsetof(CloverConfig, heads) },
        { "embedding_length", "hidden_size", 96, offsetof(CloverConfig, hidden) },
        { "ssm.group_count", "linear_num_key_heads", 4, offsetof(CloverConfig, key_heads) },
        { "ssm.state_size", "linear_key_head_dim", 48, offsetof(CloverConfig, key_width) },
        { "ssm.inner_size", NULL, 4 * 17, offsetof(CloverConfig, value_width) },
        { NULL, "linear_value_head_dim", 17, offsetof(CloverConfig, value_width) },
        { "ssm.conv_kernel", "linear_conv_kernel_dim", 1, offsetof(CloverConfig, taps) },
        { "expert_count", "num_experts", 11, offsetof(CloverConfig, experts) },
        { "expert_used_count", "num_experts_per_tok", 3, offsetof(CloverConfig, experts_used) },
        { "expert_feed_forward_length", "moe_intermediate_size", 33, offsetof(CloverConfig, expert_width) },
        { "expert_shared_feed_forward_length", "shared_expert_intermediate_size", 35, offsetof(CloverConfig, shared_width) },
        { "rope.dimension_count", NULL, 10, offsetof(CloverConfig, rotary_dims) },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int64_t expected = all[i].gguf && strcmp(all[i].gguf, "ssm.inner_size") == 0 ? 17 : all[i].value, actual;
        char text[128];
        if (all[i].gguf) {
            Edit *e = edit_gguf();
            snprintf(text, sizeof text, "clover_moe.%s", all[i].gguf);
            edit_u32(e, text, (uint32_t)all[i].value);
            assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
            memcpy(&actual, (char *)&config + all[i].field, sizeof actual);
            ck_assert_msg(actual == expected, "%s", text);
        }
        if (all[i].json) {
            Edit *e = edit_hf();
            snprintf(text, sizeof text, "%d", all[i].value);
            edit_config(e, all[i].json, text);
            assert_ok(read_hf(e), err);
            memcpy(&actual, (char *)&config + all[i].field, sizeof actual);
            ck_assert_msg(actual == expected, "%s", all[i].json);
        }
    }
} END_TEST

/* ---- missing, wrong, unsupported --------------------------------------------------------------------------------- */

static const char *const needed_gguf[] = {
    "block_count", "embedding_length", "context_length", "full_attention_interval", "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon", "rope.dimension_count", "rope.freq_base",
    "ssm.group_count", "ssm.state_size", "ssm.time_step_rank", "ssm.inner_size", "ssm.conv_kernel", "expert_count", "expert_used_count",
    "expert_feed_forward_length", "expert_shared_feed_forward_length",
};
static const char *const needed_json[] = {
    "num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings", "num_attention_heads", "num_key_value_heads", "head_dim",
    "rms_norm_eps", "linear_num_key_heads", "linear_key_head_dim", "linear_num_value_heads", "linear_value_head_dim",
    "linear_conv_kernel_dim", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size",
};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

START_TEST(every_missing_key_is_named) {   /* [CFG-2] [ERR-3] */
    char name[128];
    Edit *all = edit_gguf();
    for (size_t i = 0; i < COUNT(needed_gguf); i++) {
        Edit *e = edit_gguf();
        snprintf(name, sizeof name, "clover_moe.%s", needed_gguf[i]);
        edit_drop_key(e, name);
        edit_drop_key(all, name);
        assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, name);
        ck_assert_msg(problems(&err) == 1, "%s", err.text);
    }
    assert_status(read_gguf(all, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, err);
    for (size_t i = 0; i < COUNT(needed_gguf); i++)
        if (strcmp(needed_gguf[i], "rope.dimension_count") != 0) assert_says(err, needed_gguf[i]);   /* what it should be needs the head width */

    all = edit_hf();
    for (size_t i = 0; i < COUNT(needed_json); i++) {
        Edit *e = edit_hf();
        edit_config(e, needed_json[i], NULL);
        edit_config(all, needed_json[i], NULL);
        assert_refused(read_hf(e), CLOVER_BAD_INPUT, needed_json[i]);
        ck_assert_msg(problems(&err) == 1, "%s", err.text);
    }
    assert_status(read_hf(all), CLOVER_BAD_INPUT, err);
    for (size_t i = 0; i < COUNT(needed_json); i++) assert_says(err, needed_json[i]);
    ck_assert_int_eq(problems(&err), COUNT(needed_json));
} END_TEST

START_TEST(a_failed_reading_leaves_the_config) {   /* [ERR-5] */
    Edit *e = edit_gguf();
    edit_drop_key(e, "clover_moe.block_count");
    config.layers = 77;
    assert_status(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, err);
    ck_assert_int_eq(config.layers, 77);
} END_TEST

START_TEST(wrong_types_are_named) {
    Edit *e;
    e = edit_gguf(); edit_string(e, "clover_moe.block_count", "4");
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "clover_moe.block_count: expected an integer, found \"4\"");
    e = edit_gguf(); edit_f32(e, "clover_moe.expert_count", 4);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "clover_moe.expert_count: expected an integer");
    e = edit_gguf(); edit_bool(e, "clover_moe.rope.freq_base", true);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "clover_moe.rope.freq_base: expected a number, found true");
    e = edit_gguf(); edit_ints(e, "clover_moe.embedding_length", (int32_t[]){ 64 }, 1);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "clover_moe.embedding_length: expected an integer, found an array of 1");
    e = edit_gguf(); edit_u32(e, "general.architecture", 4);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "general.architecture");
    e = edit_gguf(); edit_drop_key(e, "general.architecture");
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "general.architecture");
    e = edit_gguf(); edit_u32(e, "tokenizer.ggml.tokens", 4);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "tokenizer.ggml.tokens: expected an array of strings");

    static const struct { const char *name, *json, *says; } wrong[] = {
        { "hidden_size", "\"64\"", "hidden_size: expected an integer, found \"64\"" },
        { "hidden_size", "64.0", "hidden_size: expected an integer" },
        { "rms_norm_eps", "\"1e-6\"", "rms_norm_eps: expected a number" },
        { "block_size", "true", "block_size: expected an integer, found true" },
        { "mask_token_id", "[261]", "mask_token_id: expected a token id, found [261]" },
        { "mask_token_id", "4294967557", "mask_token_id: expected a token id" },
        { "moe_block_coreset_enabled", "1", "moe_block_coreset_enabled: expected true or false, found 1" },
        { "denoising_config", "0.95", "denoising_config: expected an object" },
        { "rope_parameters", "[]", "rope_parameters: expected an object" },
        { "layer_types", "4", "layer_types: expected a list of 4 entries" },
        { "eos_token_id", "\"<|im_end|>\"", "eos_token_id: expected one id or a list" },
        { "tie_word_embeddings", "0", "tie_word_embeddings: expected true or false" },
        { "model_type", "7", "model_type: expected a string" },
        { "model_type", NULL, "model_type: expected a string, found no such key" },
        { "text_config", "7", "text_config: expected an object" },
        { "mlp_only_layers", "{}", "mlp_only_layers: expected a list" },
        { "norm_topk_prob", "\"yes\"", "norm_topk_prob: expected a number, true or false" },
        { "hidden_act", "7", "hidden_act: expected a string" },
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        e = edit_hf();
        edit_config(e, wrong[i].name, wrong[i].json);
        edit_generation(e, "eos_token_id", NULL);
        assert_refused(read_hf(e), CLOVER_BAD_INPUT, wrong[i].says);
    }
    e = edit_hf(); edit_generation(e, "repetition_penalty", "\"1.1\"");
    assert_refused(read_hf(e), CLOVER_BAD_INPUT, "generation_config.json: repetition_penalty: expected a number");
} END_TEST

START_TEST(null_is_absent_and_unknown_keys_mean_nothing) {
    Edit *e = edit_hf();
    edit_config(e, "mask_token_id", "null");
    edit_config(e, "rope_scaling", "null");
    edit_config(e, "text_config", "null");
    edit_config(e, "something_new", "{\"hidden_size\": 1}");
    edit_generation(e, "repetition_penalty", "null");
    assert_ok(read_hf(e), err);
    ck_assert_int_eq(config.mask_id, -1);
    ck_assert_int_eq(config.hidden, 64);
    ck_assert_double_eq(config.controls.repetition_penalty, 1);
} END_TEST

START_TEST(what_changes_the_mathematics_is_refused_by_name) {   /* [CFG-7] */
    static const struct { const char *name; double value; const char *word; } gguf[] = {
        { "expert_shared_count", 2, NULL }, { "expert_shared_count", 0, NULL }, { "expert_weights_scale", 2.5, NULL },
        { "expert_gating_func", 2, NULL }, { "expert_group_count", 4, NULL }, { "leading_dense_block_count", 1, NULL },
        { "attention.sliding_window", 512, NULL }, { "rope.scaling.factor", 4, NULL }, { "rope.scale_linear", 2, NULL },
        { "logit_scale", 0.5, NULL }, { "embedding_scale", 8, NULL }, { "final_logit_softcapping", 30, NULL },
        { "rope.scaling.type", 0, "yarn" }, { "rope.scaling.type", 0, "linear" },
    };
    char name[128];
    for (size_t i = 0; i < COUNT(gguf); i++) {
        Edit *e = edit_gguf();
        snprintf(name, sizeof name, "clover_moe.%s", gguf[i].name);
        if (gguf[i].word) edit_string(e, name, gguf[i].word);
        else if (gguf[i].value == floor(gguf[i].value)) edit_u32(e, name, (uint32_t)gguf[i].value);
        else edit_f32(e, name, (float)gguf[i].value);
        assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_UNSUPPORTED, name);
    }
    Edit *e = edit_gguf(); edit_bool(e, "clover_moe.expert_weights_norm", false);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_UNSUPPORTED, "clover_moe.expert_weights_norm");
    e = edit_gguf(); edit_u32(e, "clover_moe.attention.value_length", 16);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_UNSUPPORTED, "value_length is 16 and key_length 32");

    static const struct { const char *name, *json; } json[] = {
        { "num_shared_experts", "2" }, { "norm_topk_prob", "false" }, { "attention_bias", "true" }, { "attn_output_gate", "false" },
        { "use_sliding_window", "true" }, { "decoder_sparse_step", "2" }, { "hidden_act", "\"gelu\"" }, { "mlp_only_layers", "[0]" },
        { "denoising_config", "{\"algorithm\": \"entropy\", \"threshold\": 0.9}" },
        { "rope_parameters", "{\"rope_type\": \"yarn\", \"rope_theta\": 1e7, \"partial_rotary_factor\": 0.25}" },
        { "rope_scaling", "{\"type\": \"linear\", \"factor\": 2.0}" },
        { "layer_types", "[\"linear_attention\", \"sliding_attention\", \"linear_attention\", \"full_attention\"]" },
    };
    for (size_t i = 0; i < COUNT(json); i++) {
        e = edit_hf();
        edit_config(e, json[i].name, json[i].json);
        assert_refused(read_hf(e), CLOVER_UNSUPPORTED, json[i].name);
    }
} END_TEST

START_TEST(neutral_values_are_fine) {
    Edit *e = edit_gguf();
    edit_bool(e, "clover_moe.expert_weights_norm", true);
    edit_f32(e, "clover_moe.expert_weights_scale", 0);
    edit_u32(e, "clover_moe.expert_gating_func", 1);
    edit_string(e, "clover_moe.rope.scaling.type", "none");
    edit_f32(e, "clover_moe.rope.scaling.factor", 1);
    edit_drop_key(e, "clover_moe.expert_shared_count");   /* 1 when absent [CFG-2] */
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    e = edit_hf();
    edit_config(e, "mlp_only_layers", "[]");
    edit_config(e, "rope_scaling", "{\"type\": \"mrope\", \"mrope_section\": [2, 1, 1]}");
    edit_config(e, "num_shared_experts", NULL);
    edit_config(e, "norm_topk_prob", NULL);
    assert_ok(read_hf(e), err);
} END_TEST

START_TEST(bad_input_and_unsupported_are_reported_together) {
    Edit *e = edit_gguf();
    edit_drop_key(e, "clover_moe.expert_count");
    edit_bool(e, "clover_moe.expert_weights_norm", false);
    edit_u32(e, "clover_moe.attention.head_count_kv", 0);
    assert_status(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, err);
    assert_says(err, "expert_count");
    assert_says(err, "expert_weights_norm");
    assert_says(err, "number of KV heads");
    ck_assert_int_eq(problems(&err), 3);
} END_TEST

/* ---- families ---------------------------------------------------------------------------------------------------- */

START_TEST(architectures) {   /* [CFG-1] */
    Edit *e = edit_gguf();
    edit_string(e, "general.architecture", "qwen35moe");
    edit_rename_prefix(e, "clover_moe.", "qwen35moe.");
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    ck_assert_int_eq(config.family, CLOVER_FAMILY_BASE);
    ck_assert_int_eq(config.hidden, 64);
    ck_assert_int_eq(config.block, -1);
    ck_assert_int_eq(config.mask_id, -1);
    ck_assert(isnan(config.threshold) && isnan(config.coreset_top_p));
    e = edit_gguf(); edit_string(e, "general.architecture", "qwen35moe");   /* its keys have another prefix */
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "qwen35moe.block_count");
    e = edit_gguf(); edit_string(e, "general.architecture", "llama");
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_UNSUPPORTED, "\"llama\"; supported are clover_moe and qwen35moe");

    static const char *const base[] = { "\"qwen3_5_moe\"", "\"qwen3_5_moe_text\"" };
    for (size_t i = 0; i < 2; i++) {
        e = edit_hf();
        edit_config(e, "model_type", base[i]);
        assert_ok(read_hf(e), err);
        ck_assert_int_eq(config.family, CLOVER_FAMILY_BASE);
        ck_assert_int_eq(config.mask_id, -1);
    }
    e = edit_hf(); edit_config(e, "model_type", "\"qwen3_moe\"");
    assert_refused(read_hf(e), CLOVER_UNSUPPORTED, "\"qwen3_moe\"; supported are clover_moe, qwen3_5_moe and qwen3_5_moe_text");
} END_TEST

START_TEST(numbers_inside_text_config) {   /* [CFG-10] */
    Edit *e = edit_hf();
    json_t *outer = json_pack("{s:s, s:O, s:i, s:b, s:i}", "model_type", "clover_moe", "text_config", e->config, "hidden_size", 999,
                              "tie_word_embeddings", 1, "image_token_id", 5);
    json_object_del(e->config, "mask_token_id");
    json_object_del(e->config, "tie_word_embeddings");
    json_object_set_new(outer, "mask_token_id", json_integer(260));
    json_decref(e->config);
    e->config = outer;
    assert_ok(read_hf(e), err);
    ck_assert_int_eq(config.family, CLOVER_FAMILY_CLOVER);
    ck_assert_int_eq(config.hidden, 64);       /* text_config wins */
    ck_assert_int_eq(config.mask_id, 260);     /* what it lacks may stand outside */
    ck_assert(config.tied);
} END_TEST

START_TEST(rotary_numbers_nested_or_beside) {   /* [CFG-10] */
    Edit *e = edit_hf();
    edit_config(e, "rope_parameters", "{\"rope_theta\": 5000.5, \"partial_rotary_factor\": 0.5}");
    assert_ok(read_hf(e), err);
    ck_assert_double_eq(config.rope_base, 5000.5);
    ck_assert_int_eq(config.rotary_dims, 16);
    e = edit_hf();
    edit_config(e, "rope_parameters", NULL);
    edit_config(e, "rope_theta", "10000");
    edit_config(e, "partial_rotary_factor", "1.0");
    assert_ok(read_hf(e), err);
    ck_assert_double_eq(config.rope_base, 10000);
    ck_assert_int_eq(config.rotary_dims, 32);
    e = edit_hf();
    edit_config(e, "rope_parameters", NULL);
    edit_config(e, "rope_theta", NULL);
    edit_config(e, "partial_rotary_factor", NULL);
    assert_status(read_hf(e), CLOVER_BAD_INPUT, err);
    assert_says(err, "rope_theta");
    assert_says(err, "partial_rotary_factor");
    e = edit_hf(); edit_config(e, "rope_parameters", "{\"rope_theta\": 1e7, \"partial_rotary_factor\": 0.26}");
    assert_refused(read_hf(e), CLOVER_BAD_INPUT, "partial_rotary_factor: 0.26 of the head width 32");
} END_TEST

START_TEST(json_files) {
    char folder[TEST_PATH];
    make_folder("config", folder);
    assert_refused(config_from_folder(folder, &config, &err), CLOVER_BAD_INPUT, "config.json: no such file");
    static const struct { const char *text, *says; } bad[] = {
        { "{\"hidden_size\": 64,}", "line 1: not valid JSON" },
        { "{\"a\": 1,\n \"a\": 2}", "duplicate" },
        { "[1]", "expected a JSON object" },
        { "", "is empty" },
        { "{\"model_type\": \"\xff\"}", "not valid JSON" },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        write_file(in_folder(folder, "config.json"), bad[i].text, strlen(bad[i].text));
        assert_refused(config_from_folder(folder, &config, &err), CLOVER_BAD_INPUT, bad[i].says);
    }
    remove_folder(folder);
    Edit *e = edit_hf();   /* generation_config.json may be absent: its ids then stand in config.json */
    json_decref(e->generation);
    e->generation = NULL;
    assert_ok(read_hf(e), err);
    assert_good(&config);
} END_TEST

/* ---- layers ------------------------------------------------------------------------------------------------------ */

START_TEST(which_layers_are_full_attention) {   /* [CFG-3] */
    Edit *e = edit_gguf(); edit_u32(e, "clover_moe.full_attention_interval", 2);
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(config.full_attention[i], i % 2 == 1);
    e = edit_gguf();
    edit_drop_key(e, "clover_moe.full_attention_interval");
    edit_bools(e, "clover_moe.attention.recurrent_layers", (bool[]){ false, true, true, false }, 4);
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(config.full_attention[i], i == 0 || i == 3);
    e = edit_gguf(); edit_bools(e, "clover_moe.attention.recurrent_layers", (bool[]){ true, true, true, false }, 4);
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);   /* both, in agreement */
    ck_assert(config.full_attention[3] && !config.full_attention[0]);
    e = edit_gguf(); edit_bools(e, "clover_moe.attention.recurrent_layers", (bool[]){ true, false, true, false }, 4);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "contradict each other: layer 1 is full attention by the list and linear");
    e = edit_gguf(); edit_bools(e, "clover_moe.attention.recurrent_layers", (bool[]){ true, true, true }, 3);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "recurrent_layers: expected a list of 4 entries");
    e = edit_gguf(); edit_u32(e, "clover_moe.full_attention_interval", 0);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "full_attention_interval: expected an interval of at least 1, found 0");
    e = edit_gguf(); edit_u32(e, "clover_moe.full_attention_interval", 5);   /* no layer at all: fine here */
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);

    e = edit_hf();
    edit_config(e, "full_attention_interval", NULL);
    edit_config(e, "layer_types", "[\"full_attention\", \"linear_attention\", \"full_attention\", \"linear_attention\"]");
    assert_ok(read_hf(e), err);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(config.full_attention[i], i % 2 == 0);
    e = edit_hf(); edit_config(e, "layer_types", NULL);
    assert_ok(read_hf(e), err);
    ck_assert(config.full_attention[3] && !config.full_attention[2]);
    e = edit_hf(); edit_config(e, "full_attention_interval", "2");
    assert_refused(read_hf(e), CLOVER_BAD_INPUT, "layer_types and full_attention_interval contradict each other: layer 1");
    e = edit_hf(); edit_config(e, "layer_types", "[\"linear_attention\"]");
    assert_refused(read_hf(e), CLOVER_BAD_INPUT, "layer_types: expected a list of 4 entries");
    e = edit_hf(); edit_config(e, "layer_types", NULL); edit_config(e, "full_attention_interval", NULL);
    assert_refused(read_hf(e), CLOVER_BAD_INPUT, "missing key full_attention_interval (or layer_types)");
} END_TEST

START_TEST(kv_heads_per_layer) {   /* [CFG-9] */
    Edit *e = edit_gguf(); edit_ints(e, "clover_moe.attention.head_count_kv", (int32_t[]){ 0, 0, 0, 2 }, 4);
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    ck_assert_int_eq(config.kv_heads, 2);
    e = edit_gguf(); edit_ints(e, "clover_moe.attention.head_count_kv", (int32_t[]){ 1, 1, 1, 1 }, 4);
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    ck_assert_int_eq(config.kv_heads, 1);
    e = edit_gguf(); edit_u32(e, "clover_moe.full_attention_interval", 2);
    edit_ints(e, "clover_moe.attention.head_count_kv", (int32_t[]){ 0, 1, 0, 2 }, 4);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_UNSUPPORTED, "layer 3 has 2 KV heads, earlier ones 1");
    e = edit_gguf(); edit_ints(e, "clover_moe.attention.head_count_kv", (int32_t[]){ 2, 2, 2, 0 }, 4);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "number of KV heads: expected 1 to");
    e = edit_gguf(); edit_ints(e, "clover_moe.attention.head_count_kv", (int32_t[]){ 1, 1 }, 2);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "head_count_kv: expected an integer, or one for each layer");
} END_TEST

START_TEST(sections_mean_nothing_for_text) {   /* [CFG-9] */
    Edit *e = edit_gguf(); edit_ints(e, "clover_moe.rope.dimension_sections", (int32_t[]){ 2, 1, 1 }, 3);
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    assert_good(&config);
    e = edit_gguf(); edit_drop_key(e, "clover_moe.rope.dimension_sections");
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    assert_good(&config);
} END_TEST

START_TEST(nextn_layers_are_no_part) {   /* [CFG-8] */
    Edit *e = edit_gguf();
    edit_u32(e, "clover_moe.block_count", 6);
    edit_u32(e, "clover_moe.nextn_predict_layers", 2);
    edit_ints(e, "clover_moe.attention.head_count_kv", (int32_t[]){ 0, 0, 0, 1, 1, 1 }, 6);
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    ck_assert_int_eq(config.layers, 4);
    ck_assert_int_eq(config.nextn_layers, 2);
    e = edit_gguf(); edit_u32(e, "clover_moe.nextn_predict_layers", 4);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "nextn_predict_layers: expected 0 to block_count - 1, found 4");
} END_TEST

START_TEST(rotary_dims_missing_is_a_drift) {   /* [CFG-6] */
    Edit *e = edit_gguf(); edit_drop_key(e, "clover_moe.rope.dimension_count");
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "missing key clover_moe.rope.dimension_count");
    assert_says(err, "--mend");
    assert_says(err, "--as-is");
    e = edit_gguf(); edit_drop_key(e, "clover_moe.rope.dimension_count");
    assert_ok(read_gguf(e, CLOVER_MEND), err);
    ck_assert_int_eq(config.rotary_dims, 8);
    e = edit_gguf(); edit_drop_key(e, "clover_moe.rope.dimension_count");
    assert_ok(read_gguf(e, CLOVER_AS_IS), err);
    ck_assert_int_eq(config.rotary_dims, 32);
    e = edit_gguf();   /* the sections say how many pairs there are: 3+2+1 */
    edit_drop_key(e, "clover_moe.rope.dimension_count");
    edit_ints(e, "clover_moe.rope.dimension_sections", (int32_t[]){ 3, 2, 1 }, 3);
    assert_ok(read_gguf(e, CLOVER_MEND), err);
    ck_assert_int_eq(config.rotary_dims, 12);
    e = edit_gguf();
    edit_drop_key(e, "clover_moe.rope.dimension_count");
    edit_drop_key(e, "clover_moe.rope.dimension_sections");
    assert_ok(read_gguf(e, CLOVER_MEND), err);
    ck_assert_int_eq(config.rotary_dims, 8);   /* a quarter of the head width */
} END_TEST

START_TEST(inner_size) {   /* [CFG-5] */
    Edit *e = edit_gguf(); edit_u32(e, "clover_moe.ssm.inner_size", 129);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "ssm.inner_size: expected a multiple of ssm.time_step_rank (4), found 129");
} END_TEST

START_TEST(vocabulary) {   /* [CFG-2] */
    Edit *e = edit_gguf();
    edit_drop_key(e, "tokenizer.ggml.tokens");
    edit_u32(e, "tokenizer.ggml.mask_token_id", 260);
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    ck_assert_int_eq(config.vocab, 272);
    e = edit_gguf();
    edit_drop(e, "token_embd.weight");
    edit_add(e, "token_embd.weight", DT_F32, 2, (int64_t[]){ 270, 64 });
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "272 tokens and token_embd.weight 270 rows");
    e = edit_gguf(); edit_drop(e, "token_embd.weight");
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    ck_assert_int_eq(config.vocab, 272);
    e = edit_gguf(); edit_drop(e, "token_embd.weight"); edit_drop_key(e, "tokenizer.ggml.tokens");
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "neither token_embd.weight nor tokenizer.ggml.tokens");
} END_TEST

START_TEST(tied_heads) {   /* [CFG-15] */
    Edit *e = edit_gguf(); edit_drop(e, "output.weight");
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    ck_assert(config.tied);
    e = edit_hf(); edit_config(e, "tie_word_embeddings", "true");
    assert_ok(read_hf(e), err);
    ck_assert(config.tied);
    e = edit_hf(); edit_config(e, "tie_word_embeddings", NULL);
    assert_ok(read_hf(e), err);
    ck_assert(config.tied);   /* nothing said: the tensors settle it */
} END_TEST

/* ---- diffusion, controls, stops ---------------------------------------------------------------------------------- */

START_TEST(diffusion_numbers_in_a_gguf) {   /* [CFG-12] [CFG-13] */
    Edit *e = edit_gguf();
    edit_u32(e, "clover_moe.diffusion.block_size", 16);
    edit_u32(e, "clover_moe.diffusion.mask_token_id", 259);
    edit_f64(e, "clover_moe.diffusion.threshold", 0.9);
    edit_bool(e, "clover_moe.diffusion.coreset_enabled", true);
    edit_f32(e, "clover_moe.diffusion.coreset_top_p", 0.75f);
    edit_u32(e, "tokenizer.ggml.mask_token_id", 260);
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    ck_assert_int_eq(config.block, 16);
    ck_assert_int_eq(config.mask_id, 259);     /* the file's own key first, */
    ck_assert_double_eq(config.threshold, 0.9);
    ck_assert(config.coreset_enabled);
    ck_assert_double_eq(config.coreset_top_p, 0.75);
    e = edit_gguf(); edit_u32(e, "tokenizer.ggml.mask_token_id", 260);
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    ck_assert_int_eq(config.mask_id, 260);     /* then the tokenizer's, then the token named <|mask|> (261, good_files) */
    e = edit_gguf(); edit_drop_key(e, "tokenizer.ggml.tokens");
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    ck_assert_int_eq(config.mask_id, -1);      /* then unknown */
    e = edit_gguf(); edit_u32(e, "clover_moe.diffusion.mask_token_id", 272);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "mask id: id 272 lies outside the vocabulary of 272");
    e = edit_gguf(); edit_string(e, "tokenizer.ggml.mask_token_id", "x");
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "tokenizer.ggml.mask_token_id: expected a token id");
} END_TEST

START_TEST(diffusion_numbers_in_json) {   /* [CFG-11] */
    Edit *e = edit_hf();
    edit_config(e, "block_size", "8");
    edit_config(e, "mask_token_id", "7");
    edit_config(e, "denoising_config", "{\"algorithm\": \"low_confidence\", \"threshold\": 0.5}");
    edit_config(e, "moe_block_coreset_enabled", "true");
    edit_config(e, "moe_block_coreset_top_p", "0.3");
    assert_ok(read_hf(e), err);
    ck_assert_int_eq(config.block, 8);
    ck_assert_int_eq(config.mask_id, 7);
    ck_assert_double_eq(config.threshold, 0.5);
    ck_assert(config.coreset_enabled);
    ck_assert_double_eq(config.coreset_top_p, 0.3);
    e = edit_hf();
    edit_config(e, "block_size", NULL);
    edit_config(e, "mask_token_id", NULL);
    edit_config(e, "denoising_config", NULL);
    edit_config(e, "moe_block_coreset_enabled", NULL);
    edit_config(e, "moe_block_coreset_top_p", NULL);
    assert_ok(read_hf(e), err);
    ck_assert_int_eq(config.block, 32);
    ck_assert_int_eq(config.mask_id, -1);
    ck_assert_double_eq(config.threshold, 0.95);
    ck_assert(!config.coreset_enabled);
    ck_assert_double_eq(config.coreset_top_p, 1);
} END_TEST

START_TEST(order_of_diffusion_heads) {   /* [CFG-12] */
    static const struct { const char *word; CloverStatus status; int tiled; } all[] = {
        { NULL, CLOVER_OK, -1 }, { "tiled", CLOVER_OK, 1 }, { "grouped", CLOVER_OK, 0 }, { "tile", CLOVER_BAD_INPUT, -1 },
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        Edit *e = edit_gguf();
        Gguf *g;
        int tiled;
        if (all[i].word) edit_string(e, "clover_moe.diffusion.head_order", all[i].word);
        assert_ok(gguf_open(edit_write(e), &g, &err), err);
        assert_status(config_head_order(g, &tiled, &err), all[i].status, err);
        ck_assert_int_eq(tiled, all[i].tiled);
        gguf_close(g);
        edit_free(e);
    }
} END_TEST

static void assert_controls(const CloverControls *k) {
    ck_assert_double_eq(k->frequency_penalty, 0.25);
    ck_assert_double_eq(k->presence_penalty, 0.5);
    ck_assert_double_eq(k->repetition_penalty, 1.25);
    ck_assert_double_eq(k->dllm_length_penalty, 2);
    ck_assert_int_eq(k->dllm_length_penalty_start, 100);
    ck_assert_int_eq(k->dllm_length_penalty_window, 50);
    ck_assert_double_eq(k->dllm_think_end_bias, 3);
    ck_assert_int_eq(k->dllm_think_end_start, 10);
    ck_assert_int_eq(k->dllm_think_end_window, 5);
    ck_assert_int_eq(k->dllm_think_end_token_id, 260);
}

START_TEST(controls) {   /* [CFG-14] */
    static const struct { const char *name; double value; } all[] = {
        { "frequency_penalty", 0.25 }, { "presence_penalty", 0.5 }, { "repetition_penalty", 1.25 }, { "dllm_length_penalty", 2 },
        { "dllm_length_penalty_start", 100 }, { "dllm_length_penalty_window", 50 }, { "dllm_think_end_bias", 3 },
        { "dllm_think_end_start", 10 }, { "dllm_think_end_window", 5 }, { "dllm_think_end_token_id", 260 },
    };
    Edit *g = edit_gguf(), *h = edit_hf();
    for (size_t i = 0; i < COUNT(all); i++) {
        char name[128], value[32];
        bool whole = all[i].value == floor(all[i].value);
        snprintf(name, sizeof name, "clover_moe.generation.%s", all[i].name);
        snprintf(value, sizeof value, "%g", all[i].value);
        if (whole) edit_u32(g, name, (uint32_t)all[i].value);
        else edit_f32(g, name, (float)all[i].value);
        edit_generation(h, all[i].name, value);
    }
    assert_ok(read_gguf(g, CLOVER_REFUSE_DRIFTS), err);
    assert_controls(&config.controls);
    assert_ok(read_hf(h), err);
    assert_controls(&config.controls);

    static const struct { const char *name, *json; } bad[] = {
        { "repetition_penalty", "0" }, { "repetition_penalty", "-1.5" }, { "dllm_length_penalty_window", "0" },
        { "dllm_think_end_window", "-4" }, { "dllm_think_end_token_id", "272" }, { "dllm_think_end_token_id", "-2" },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        h = edit_hf();
        edit_generation(h, bad[i].name, bad[i].json);
        assert_refused(read_hf(h), CLOVER_BAD_INPUT, bad[i].name);
    }
    g = edit_gguf(); edit_f32(g, "clover_moe.generation.presence_penalty", NAN);
    assert_refused(read_gguf(g, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "presence_penalty: expected a finite number");
} END_TEST

static void assert_stops(int n, const int32_t *ids) {
    ck_assert_int_eq(config.n_stops, n);
    for (int i = 0; i < n; i++) ck_assert_int_eq(config.stops[i], ids[i]);
}

START_TEST(stop_ids) {   /* [CFG-14] */
    Edit *e = edit_hf();
    edit_generation(e, "eos_token_id", "[258, 256]");
    edit_generation(e, "stop_token_ids", "[7, 258, 9]");
    edit_generation(e, "pad_token_id", "256");
    assert_ok(read_hf(e), err);
    assert_stops(4, (int32_t[]){ 258, 256, 7, 9 });   /* each once */
    e = edit_hf();
    edit_generation(e, "eos_token_id", NULL);
    edit_generation(e, "pad_token_id", NULL);
    edit_config(e, "eos_token_id", "[1, 2]");
    edit_config(e, "pad_token_id", "3");
    assert_ok(read_hf(e), err);
    assert_stops(3, (int32_t[]){ 1, 2, 3 });
    e = edit_hf();   /* generation_config.json's own ids stand in place of config.json's */
    edit_config(e, "eos_token_id", "5");
    assert_ok(read_hf(e), err);
    assert_stops(2, (int32_t[]){ 258, 256 });
    e = edit_hf(); edit_generation(e, "stop_token_ids", "[272]");
    assert_refused(read_hf(e), CLOVER_BAD_INPUT, "stop_token_ids: id 272 lies outside the vocabulary of 272");
    e = edit_hf(); edit_generation(e, "eos_token_id", "-1");
    assert_refused(read_hf(e), CLOVER_BAD_INPUT, "eos_token_id: id -1 lies outside");
    e = edit_hf(); edit_generation(e, "stop_token_ids", "[1.5]");
    assert_refused(read_hf(e), CLOVER_BAD_INPUT, "stop_token_ids: expected one id or a list of ids");

    e = edit_gguf();
    edit_u32(e, "tokenizer.ggml.eot_token_id", 257);
    edit_ints(e, "clover_moe.generation.stop_token_ids", (int32_t[]){ 3, 257 }, 2);
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    assert_stops(4, (int32_t[]){ 258, 257, 3, 256 });
    e = edit_gguf();
    edit_ints(e, "clover_moe.generation.eos_token_id", (int32_t[]){ 4, 5 }, 2);
    edit_u32(e, "clover_moe.generation.pad_token_id", 6);
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    assert_stops(3, (int32_t[]){ 4, 5, 6 });
    e = edit_gguf(); edit_u32(e, "tokenizer.ggml.eos_token_id", 4000);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_BAD_INPUT, "tokenizer.ggml.eos_token_id: id 4000 lies outside");
    int32_t many[CLOVER_MAX_STOPS + 1];
    for (int i = 0; i <= CLOVER_MAX_STOPS; i++) many[i] = i;
    e = edit_gguf(); edit_ints(e, "clover_moe.generation.stop_token_ids", many, CLOVER_MAX_STOPS - 2);   /* eos and pad are two more */
    assert_ok(read_gguf(e, CLOVER_REFUSE_DRIFTS), err);
    ck_assert_int_eq(config.n_stops, CLOVER_MAX_STOPS);
    e = edit_gguf(); edit_ints(e, "clover_moe.generation.stop_token_ids", many, CLOVER_MAX_STOPS + 1);
    assert_refused(read_gguf(e, CLOVER_REFUSE_DRIFTS), CLOVER_UNSUPPORTED, "more than 64 stop ids");
} END_TEST

Suite *config_suite(void) {
    Suite *s = suite_create("config");
    TCase *t = tcase_create("config");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, good_files);
    tcase_add_test(t, other_sizes_land_in_their_own_fields);
    tcase_add_test(t, every_missing_key_is_named);
    tcase_add_test(t, a_failed_reading_leaves_the_config);
    tcase_add_test(t, wrong_types_are_named);
    tcase_add_test(t, null_is_absent_and_unknown_keys_mean_nothing);
    tcase_add_test(t, what_changes_the_mathematics_is_refused_by_name);
    tcase_add_test(t, neutral_values_are_fine);
    tcase_add_test(t, bad_input_and_unsupported_are_reported_together);
    tcase_add_test(t, architectures);
    tcase_add_test(t, numbers_inside_text_config);
    tcase_add_test(t, rotary_numbers_nested_or_beside);
    tcase_add_test(t, json_files);
    tcase_add_test(t, which_layers_are_full_attention);
    tcase_add_test(t, kv_heads_per_layer);
    tcase_add_test(t, sections_mean_nothing_for_text);
    tcase_add_test(t, nextn_layers_are_no_part);
    tcase_add_test(t, rotary_dims_missing_is_a_drift);
    tcase_add_test(t, inner_size);
    tcase_add_test(t, vocabulary);
    tcase_add_test(t, tied_heads);
    tcase_add_test(t, diffusion_numbers_in_a_gguf);
    tcase_add_test(t, diffusion_numbers_in_json);
    tcase_add_test(t, order_of_diffusion_heads);
    tcase_add_test(t, controls);
    tcase_add_test(t, stop_ids);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(config_suite()); }
