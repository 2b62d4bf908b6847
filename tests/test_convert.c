/* test_convert.c - clover convert: every tensor against the gguf package's bytes, keys against the folder's numbers, refusals. [CNV-1] */
#include <math.h>
#include "../ref/files/config.h"
#include "../ref/files/tokenizer.h"
#include "../tools/convert_roles.h"
#include "../tools/sha256.h"
#include "commands.h"
#include "model_edit.h"

static char folder[TEST_PATH];
static void setup(void) { make_folder("convert", folder); }
static void teardown(void) { remove_folder(folder); }

static char words[1024];
static const char *say(const char *from, const char *out, const char *flags) {
    snprintf(words, sizeof words, "convert %s %s/%s %s", from, folder, out, flags);
    return words;
}

static Gguf *open_gguf(const char *path) {
    CloverError err;
    Gguf *g;
    assert_ok(gguf_open(path, &g, &err), err);
    return g;
}

/* ---- tensors ---------------------------------------------------------------------------------------------------------- */

static void assert_tensor(const Tensor *t, const json_t *expected) {
    CloverError err;
    Sha256 sum;
    char shape[96] = "", hex[SHA256_HEX];
    for (int i = 0; i < t->dims; i++) snprintf(shape + strlen(shape), sizeof shape - strlen(shape), i ? "x%lld" : "%lld", (long long)t->shape[i]);
    ck_assert_msg(strcmp(dtype_info(t->type)->name, json_string_value(json_array_get(expected, 0))) == 0, "%s is %s", t->name, dtype_info(t->type)->name);
    ck_assert_msg(strcmp(shape, json_string_value(json_array_get(expected, 1))) == 0, "%s is [%s]", t->name, shape);
    assert_ok(sha256_begin(&sum, &err), err);
    sha256_add(&sum, t->data, (size_t)(t->elements / dtype_info(t->type)->block * dtype_info(t->type)->bytes));
    assert_ok(sha256_end(&sum, hex, &err), err);
    ck_assert_msg(strncmp(hex, json_string_value(json_array_get(expected, 2)), 16) == 0, "%s: %s has other bytes than the gguf package gives", t->file, t->name);
}

/* [TEN-5, TEN-6, TEN-7] */
START_TEST(bytes_are_those_of_the_gguf_package) {
    static const char *const types[] = { "f16", "bf16", "q8_0", "q4_0" }, *const names[] = { "F16", "BF16", "Q8_0", "Q4_0" };
    json_t *all = json_load_file("tests/vectors/drifts/exports.json", 0, NULL);
    const char *name;
    json_t *expected;
    char flags[64];
    snprintf(flags, sizeof flags, "--type %s", types[_i]);
    assert_run(cmd_convert, say(GOOD_HF, "out.gguf", flags), 0, NULL);
    Gguf *g = open_gguf(in_folder(folder, "out.gguf"));
    json_t *of = json_object_get(all, names[_i]);
    ck_assert_uint_gt(json_object_size(of), 40);
    json_object_foreach(of, name, expected) {
        const Tensor *t = gguf_tensor(g, name);
        ck_assert_msg(t != NULL, "%s is not there", name);
        assert_tensor(t, expected);
    }
    ck_assert_int_eq(gguf_tensors(g).n, 88);
    gguf_close(g);
    json_decref(all);
} END_TEST

static bool one_step(float a, float b) { return a == b || nextafterf(a, b) == b; }

/* good.gguf was written apart from this project; its ssm_a is a float32 exp. [TEN-6] */
START_TEST(f32_is_the_good_export) {
    assert_run(cmd_convert, say(GOOD_HF, "out.gguf", "--type=f32"), 0, NULL);
    Gguf *a = open_gguf(in_folder(folder, "out.gguf")), *b = open_gguf(GOOD_GGUF);
    const TensorList x = gguf_tensors(a), y = gguf_tensors(b);
    ck_assert_int_eq(x.n, y.n);
    for (int64_t i = 0; i < x.n; i++) {
        const Tensor *s = &x.tensor[i], *t = &y.tensor[i];
        ck_assert_str_eq(s->name, t->name);
        ck_assert_int_eq(s->dims, t->dims);
        ck_assert_mem_eq(s->shape, t->shape, (size_t)s->dims * sizeof *s->shape);
        ck_assert_uint_eq(s->offset - x.tensor[0].offset, t->offset - y.tensor[0].offset);
        for (int64_t k = 0; k < s->elements; k++) {
            float p, q;
            memcpy(&p, s->data + 4 * k, 4);
            memcpy(&q, t->data + 4 * k, 4);
            ck_assert_msg(strstr(s->name, "ssm_a") && !strstr(s->name, "alpha") ? one_step(p, q) : memcmp(&p, &q, 4) == 0, "%s[%lld]: %.9g and %.9g", s->name, (long long)k, (double)p, (double)q);
        }
    }
    gguf_close(a);
    gguf_close(b);
} END_TEST

/* Whatever the layout of the folder, one model gives one file: experts apart, names behind language_model. [TEN-2] */
START_TEST(every_layout_of_a_folder_gives_one_file) {
    static const char *const layouts[] = { "--per-expert", "--prefix-language-model", "--split-size 64K", "--nested-config" };
    char text[512];
    snprintf(text, sizeof text, "synth -o %s/hf --form hf --type bf16 --seed 5", folder);
    assert_run(cmd_synth, text, 0, NULL);
    assert_run(cmd_convert, say(in_folder(folder, "hf"), "a.gguf", "--type q8_0"), 0, NULL);
    snprintf(text, sizeof text, "synth -o %s/x/hf --form hf --type bf16 --seed 5 %s", folder, layouts[_i]);   /* general.name is the folder's */
    mkdir(in_folder(folder, "x"), 0777);
    assert_run(cmd_synth, text, 0, NULL);
    assert_run(cmd_convert, say(in_folder(folder, "x/hf"), "b.gguf", "--type q8_0"), 0, NULL);
    ck_assert(same_files(in_folder(folder, "a.gguf"), in_folder(folder, "b.gguf")));
} END_TEST

/* Rows of 24 are no whole blocks. */
START_TEST(rows_that_are_no_whole_blocks_become_f16) {
    char text[512];
    snprintf(text, sizeof text, "synth -o %s/hf --form hf --seed 5 --expert-width 24", folder);
    assert_run(cmd_synth, text, 0, NULL);
    assert_run(cmd_convert, say(in_folder(folder, "hf"), "a.gguf", "--type q4_0"), 0, "written as F16");
    Gguf *g = open_gguf(in_folder(folder, "a.gguf"));
    ck_assert_int_eq(gguf_tensor(g, "blk.0.ffn_down_exps.weight")->type, DT_F16);
    ck_assert_int_eq(gguf_tensor(g, "blk.0.ffn_up_exps.weight")->type, DT_Q4_0);
    gguf_close(g);
} END_TEST

/* ---- keys ------------------------------------------------------------------------------------------------------------------ */

static void assert_same_numbers(const char *hf, const char *gguf) {
    CloverError err;
    CloverModel *a, *b;
    assert_ok(clover_model_open(hf, NULL, &a, &err), err);
    assert_ok(clover_model_open(gguf, NULL, &b, &err), err);
    CloverConfig x = *clover_model_config(a), y = *clover_model_config(b);
    ck_assert(y.rms_eps == (double)(float)x.rms_eps);            /* a GGUF's float32 [CFG-4] */
    y.rms_eps = x.rms_eps;
    y.tied_said = x.tied_said;                                   /* config.json's own */
    ck_assert_int_eq(x.n_stops, y.n_stops);
    for (int64_t i = 0; i < x.n_stops; i++) {
        bool found = false;
        for (int64_t k = 0; k < x.n_stops; k++) found |= x.stops[i] == y.stops[k];
        ck_assert_msg(found, "stop id %d", (int)x.stops[i]);
    }
    memcpy(y.stops, x.stops, sizeof x.stops);
    ck_assert_mem_eq(x.full_attention, y.full_attention, sizeof x.full_attention);
    ck_assert_mem_eq(&x.controls, &y.controls, sizeof x.controls);
    ck_assert_mem_eq(&x, &y, offsetof(CloverConfig, controls));
    ck_assert_int_eq(clover_tokenizer_size(clover_model_tokenizer(a)), clover_tokenizer_size(clover_model_tokenizer(b)));
    clover_model_close(a);
    clover_model_close(b);
}

/* [CFG-2, CFG-3, CFG-12, CFG-14] */
START_TEST(numbers_survive) {
    Edit *e = edit_hf();
    char tokenizer[3 * TEST_PATH];
    edit_config(e, "block_size", "16");
    edit_config(e, "denoising_config", "{\"algorithm\": \"low_confidence\", \"threshold\": 0.85}");
    edit_config(e, "moe_block_coreset_enabled", "true");
    edit_config(e, "moe_block_coreset_top_p", "0.7");
    edit_generation(e, "eos_token_id", "[258, 256, 257]");
    edit_generation(e, "stop_token_ids", "[260]");
    edit_generation(e, "presence_penalty", "0.3");
    edit_generation(e, "repetition_penalty", "1.1");
    edit_generation(e, "dllm_length_penalty", "2.5");
    edit_generation(e, "dllm_length_penalty_start", "77");
    edit_generation(e, "dllm_think_end_token_id", "260");
    edit_generation(e, "dllm_think_end_bias", "1.5");
    const char *hf = edit_write(e);
    Bytes text = read_file(GOOD_HF "/tokenizer.json");
    snprintf(tokenizer, sizeof tokenizer, "%s/tokenizer.json", hf);
    write_file(tokenizer, text.data, text.n);
    free_bytes(&text);
    assert_run(cmd_convert, say(hf, "out.gguf", ""), 0, NULL);
    assert_same_numbers(hf, in_folder(folder, "out.gguf"));
    edit_free(e);
} END_TEST

START_TEST(a_list_of_layers_survives) {
    char text[512];
    snprintf(text, sizeof text, "synth -o %s/hf --form hf --seed 5 --layers 3 --interval 2", folder);
    assert_run(cmd_synth, text, 0, NULL);
    assert_run(cmd_convert, say(in_folder(folder, "hf"), "a.gguf", ""), 0, NULL);
    assert_same_numbers(in_folder(folder, "hf"), in_folder(folder, "a.gguf"));
    assert_run(cmd_convert, say("tests/vectors/shapes/recurrent/hf", "b.gguf", ""), 0, NULL);
    CloverError err;
    CloverConfig a, b;
    assert_ok(config_from_folder("tests/vectors/shapes/recurrent/hf", &a, &err), err);
    Gguf *g = open_gguf(in_folder(folder, "b.gguf"));
    assert_ok(config_from_gguf(g, CLOVER_REFUSE_DRIFTS, &b, &err), err);
    ck_assert_mem_eq(a.full_attention, b.full_attention, sizeof a.full_attention);
    gguf_close(g);
} END_TEST

static void assert_same_ids(const CloverTokenizer *a, const CloverTokenizer *b, const char *text) {
    CloverError err;
    int32_t *x, *y;
    int64_t n, m;
    assert_ok(clover_encode(a, text, strlen(text), true, &x, &n, &err), err);
    assert_ok(clover_encode(b, text, strlen(text), true, &y, &m, &err), err);
    ck_assert_int_eq(n, m);
    ck_assert_mem_eq(x, y, (size_t)n * sizeof *x);
    free(x);
    free(y);
}

/* A real vocabulary with merges and added tokens, special or not. [TOK-6] */
START_TEST(the_tokenizer_survives) {
    CloverError err;
    CloverTokenizer *a, *b;
    static const char *const files[] = { "tests/vectors/tokenizer/tokenizer.json", GOOD_HF "/tokenizer.json" };
    assert_ok(tokenizer_from_json(files[_i], &a, &err), err);
    char text[512], path[2 * TEST_PATH];
    const int64_t size = clover_tokenizer_size(a);
    snprintf(text, sizeof text, "synth -o %s/hf --form hf --seed 5 --vocab %lld", folder, (long long)size + 9);
    assert_run(cmd_synth, text, 0, NULL);
    Bytes json = read_file(files[_i]);
    snprintf(path, sizeof path, "%s/hf/tokenizer.json", folder);
    write_file(path, json.data, json.n);
    free_bytes(&json);
    assert_run(cmd_convert, say(in_folder(folder, "hf"), "a.gguf", ""), 0, NULL);
    Gguf *g = open_gguf(in_folder(folder, "a.gguf"));
    assert_ok(tokenizer_from_gguf(g, &b, &err), err);
    ck_assert_uint_eq(gguf_key(g, "tokenizer.ggml.tokens")->count, (uint64_t)size + 9);       /* one for each row */
    for (int32_t id = 0; id < size; id++) {
        size_t n, m;
        const char *x = clover_token_bytes(a, id, &n), *y = clover_token_bytes(b, id, &m);
        ck_assert_uint_eq(n, m);
        ck_assert(n == 0 || memcmp(x, y, n) == 0);
        ck_assert_int_eq(clover_token_is_special(a, id), clover_token_is_special(b, id));
    }
    assert_same_ids(a, b, "Hello world, the  quick\n\nbrown fox <|im_start|>user 12345 \xC3\xA9t\xC3\xA9");
    gguf_close(g);
    tokenizer_free(a);
    tokenizer_free(b);
} END_TEST

/* ---- readers and architectures ------------------------------------------------------------------------------------------------- */

static int64_t diffusion_things(const Gguf *g) {
    int64_t n = 0;
    for (int64_t i = 0; i < gguf_tensors(g).n; i++) n += strstr(gguf_tensors(g).tensor[i].name, "bd_softmax") || strstr(gguf_tensors(g).tensor[i].name, "conv_right");
    for (int64_t i = 0; i < gguf_n_keys(g); i++) n += strstr(gguf_key_at(g, i)->name, ".diffusion.") != NULL;
    return n;
}

START_TEST(for_llama_cpp_and_as_a_base_model) {
    CloverError err;
    CloverConfig c;
    assert_run(cmd_convert, say(GOOD_HF, "self.gguf", ""), 0, NULL);
    assert_run(cmd_convert, say(GOOD_HF, "llama.gguf", "--for llama.cpp"), 0, "left out");
    assert_run(cmd_convert, say(GOOD_HF, "base.gguf", "--arch qwen35moe"), 0, "left out");
    Gguf *g = open_gguf(in_folder(folder, "self.gguf"));
    ck_assert_int_gt(diffusion_things(g), 12);
    gguf_close(g);
    g = open_gguf(in_folder(folder, "llama.gguf"));
    ck_assert_int_eq(diffusion_things(g), 0);
    ck_assert_int_eq(gguf_tensors(g).n, 76);                     /* as many as upstream's loader counts */
    ck_assert_ptr_nonnull(gguf_key(g, "clover_moe.expert_shared_count"));
    gguf_close(g);
    g = open_gguf(in_folder(folder, "base.gguf"));
    assert_ok(config_from_gguf(g, CLOVER_REFUSE_DRIFTS, &c, &err), err);
    ck_assert_int_eq(c.family, CLOVER_FAMILY_BASE);
    ck_assert_int_eq(gguf_tensors(g).n, 76);
    gguf_close(g);
} END_TEST

/* ---- refusals --------------------------------------------------------------------------------------------------------------------- */

START_TEST(refusals_leave_nothing) {
    Edit *e = edit_hf();
    edit_set(edit_tensor(e, "model.layers.2.mlp.experts.down_proj"), 700, NAN);
    assert_run(cmd_convert, say(edit_write(e), "a.gguf", ""), 3, "no finite number");
    edit_free(e);
    e = edit_hf();
    edit_drop(e, "model.layers.1.mlp.gate.weight");
    assert_run(cmd_convert, say(edit_write(e), "a.gguf", ""), 3, "missing tensor model.layers.1.mlp.gate.weight");
    edit_free(e);
    e = edit_hf();
    edit_config(e, "norm_topk_prob", "false");
    assert_run(cmd_convert, say(edit_write(e), "a.gguf", ""), 4, "norm_topk_prob");
    edit_free(e);
    assert_run(cmd_convert, say(GOOD_GGUF, "a.gguf", ""), 2, "expected a folder");
    assert_run(cmd_convert, say("no/such/folder", "a.gguf", ""), 3, "no/such/folder");
    assert_run(cmd_convert, say(GOOD_HF, "a.gguf", "--type q9_9"), 2, "type");
    char text[512];
    snprintf(text, sizeof text, "synth -o %s/base --form hf --arch qwen35moe", folder);
    assert_run(cmd_synth, text, 0, NULL);
    assert_run(cmd_convert, say(in_folder(folder, "base"), "a.gguf", ""), 2, "--arch qwen35moe");
    ck_assert(!is_there(in_folder(folder, "a.gguf")));
    write_file(in_folder(folder, "a.gguf"), "mine", 4);
    assert_run(cmd_convert, say(GOOD_HF, "a.gguf", ""), 2, "exists");
    Bytes mine = read_file(in_folder(folder, "a.gguf"));
    ck_assert_uint_eq(mine.n, 4);
    free_bytes(&mine);
    assert_run(cmd_convert, say(GOOD_HF, "a.gguf", "--force"), 0, NULL);
} END_TEST

/* Values that cannot be had are not written, and the tensor is named. */
START_TEST(types_that_cannot_be_decoded_are_refused) {
    static const struct { DType type; const char *tensor, *says; } all[] = {
        { DT_F8_E4M3, "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.weight: its type F8_E4M3" },
        { DT_F8_E5M2, "model.layers.0.linear_attn.in_proj_qkv.weight", "in_proj_qkv.weight: its type F8_E5M2" },
        { DT_I8, "model.layers.3.self_attn.q_proj.weight", "self_attn.q_proj.weight: its type I8" },
        { DT_I8, "model.layers.2.mlp.experts.down_proj", "model.layers.2.mlp.experts.down_proj: its type I8" },
        { DT_I8, "model.embed_tokens.weight", "model.embed_tokens.weight: its type I8" } };
    Edit *e = edit_hf();
    EditTensor *t = edit_tensor(e, all[_i].tensor);
    t->type = all[_i].type;
    t->data.n /= 4;
    char text[1024];
    const char *hf = edit_write(e);
    for (int k = 0; k < 2; k++) {
        snprintf(text, sizeof text, "convert %s %s/a.gguf --type %s", hf, folder, k ? "q4_0" : "f32");
        assert_run(cmd_convert, text, 4, all[_i].says);
    }
    ck_assert(!is_there(in_folder(folder, "a.gguf")));
    snprintf(text, sizeof text, "lint %s", hf);
    assert_run(cmd_lint, text, 0, "no fault found in what could be looked at");
    assert_run(cmd_lint, text, 0, "clover convert refuse");
    edit_free(e);
} END_TEST

/* One expert's tensor of another type than the others': neither misread nor read past its end. */
START_TEST(experts_of_two_types_are_refused) {
    char text[512], path[2 * TEST_PATH];
    snprintf(text, sizeof text, "synth -o %s/hf --form hf --seed 5 --per-expert", folder);
    assert_run(cmd_synth, text, 0, NULL);
    snprintf(path, sizeof path, "%s/hf/model.safetensors", folder);
    Bytes file = read_file(path);
    char *at = NULL;
    const char name[] = "layers.1.mlp.experts.2.up_proj.weight";
    for (size_t i = 0; i + sizeof name < file.n && !at; i++)
        if (memcmp(file.data + i, name, sizeof name - 1) == 0) at = (char *)file.data + i;
    ck_assert_ptr_nonnull(at);
    char *type = strstr(at, "\"F32\"");
    ck_assert_ptr_nonnull(type);
    memcpy(type, "\"I32\"", 5);
    write_file(path, file.data, file.n);
    free_bytes(&file);
    assert_run(cmd_convert, say(in_folder(folder, "hf"), "a.gguf", ""), 4, "experts.2.up_proj.weight: its type I32");
    ck_assert(!is_there(in_folder(folder, "a.gguf")));
} END_TEST

/* Norms and rates that are in a GGUF's form already would be treated twice. [LNT-3] */
START_TEST(garbage_is_not_exported) {
    for (int k = 0; k < 2; k++) {
        Edit *e = edit_hf();
        for (int i = 0; i < e->n_tensors; i++) {
            EditTensor *t = &e->tensor[i];
            const bool norm = strstr(t->name, "norm.weight") && !strstr(t->name, "linear_attn"), rate = strstr(t->name, "A_log") != NULL;
            for (int64_t n = 0; (k ? rate : norm) && n < (int64_t)t->data.n / 4; n++) {
                const float v = edit_get(t, n);
                edit_set(t, n, k ? -expf(v) : v + 1);
            }
        }
        assert_run(cmd_convert, say(edit_write(e), "a.gguf", ""), 3, k ? "a-exp-twice" : "norm-shift-twice");
        edit_free(e);
    }
    ck_assert(!is_there(in_folder(folder, "a.gguf")));
} END_TEST

/* Finite in the folder, infinite in the type asked for. */
START_TEST(values_too_large_are_refused) {
    static const char *const types[] = { "f16", "q8_0", "q4_0" };
    Edit *e = edit_hf();
    edit_set(edit_tensor(e, "model.layers.1.mlp.shared_expert.up_proj.weight"), 70, 1e8f);
    const char *hf = edit_write(e);
    char flags[32];
    for (int i = 0; i < 3; i++) {
        snprintf(flags, sizeof flags, "--type %s", types[i]);
        assert_run(cmd_convert, say(hf, "a.gguf", flags), 3, "model.layers.1.mlp.shared_expert.up_proj.weight: row 1 of expert 0 has a value too large");
    }
    ck_assert(!is_there(in_folder(folder, "a.gguf")));
    assert_run(cmd_convert, say(hf, "a.gguf", "--type bf16"), 0, "has no tokenizer.json");      /* this folder is written without one */
    edit_free(e);
} END_TEST

/* The folder's own files are no place to write to. [ERR-4] */
START_TEST(the_folder_is_spared) {
    static const char *const files[] = { "config.json", "tokenizer.json", "model.safetensors", "generation_config.json" };
    char text[512];
    snprintf(text, sizeof text, "synth -o %s/hf --form hf --seed 5", folder);
    assert_run(cmd_synth, text, 0, NULL);
    for (int i = 0; i < 4; i++) {
        char out[64];
        snprintf(out, sizeof out, "hf/../hf/%s", files[i]);
        Bytes before = read_file(in_folder(folder, out));
        assert_run(cmd_convert, say(in_folder(folder, "hf"), out, "--force"), 2, "is a file that is read here");
        Bytes after = read_file(in_folder(folder, out));
        ck_assert(before.n == after.n && memcmp(before.data, after.data, before.n) == 0);
        free_bytes(&before);
        free_bytes(&after);
    }
} END_TEST

/* A GGUF names its split pattern; another than Qwen3.5's has no name. */
START_TEST(another_split_pattern_is_refused) {
    char text[512];
    snprintf(text, sizeof text, "synth -o %s/hf --form hf --seed 5", folder);
    assert_run(cmd_synth, text, 0, NULL);
    Bytes json = read_file(in_folder(folder, "hf/tokenizer.json"));
    put_zeros(&json, 1);
    char *at = strstr((char *)json.data, "|\\\\s+(?!");
    ck_assert_ptr_nonnull(at);
    at[3] = 'w';
    write_file(in_folder(folder, "hf/tokenizer.json"), json.data, json.n - 1);
    free_bytes(&json);
    assert_run(cmd_convert, say(in_folder(folder, "hf"), "a.gguf", ""), 4, "split pattern");
    ck_assert(!is_there(in_folder(folder, "a.gguf")));
} END_TEST

START_TEST(out_of_memory) {
    char out[2 * TEST_PATH];
    snprintf(out, sizeof out, "%s/a.gguf", folder);
    assert_survives_without_memory(cmd_convert, say(GOOD_HF, "a.gguf", "--type q4_0"), out, 0);
} END_TEST

Suite *convert_suite(void) {
    Suite *s = suite_create("convert");
    TCase *c = tcase_create("convert");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, bytes_are_those_of_the_gguf_package, 0, 4);
    tcase_add_test(c, f32_is_the_good_export);
    tcase_add_loop_test(c, every_layout_of_a_folder_gives_one_file, 0, 4);
    tcase_add_test(c, rows_that_are_no_whole_blocks_become_f16);
    tcase_add_test(c, numbers_survive);
    tcase_add_test(c, a_list_of_layers_survives);
    tcase_add_loop_test(c, the_tokenizer_survives, 0, 2);
    tcase_add_test(c, for_llama_cpp_and_as_a_base_model);
    tcase_add_test(c, refusals_leave_nothing);
    tcase_add_test(c, another_split_pattern_is_refused);
    tcase_add_loop_test(c, types_that_cannot_be_decoded_are_refused, 0, 5);
    tcase_add_test(c, experts_of_two_types_are_refused);
    tcase_add_test(c, the_folder_is_spared);
    tcase_add_test(c, garbage_is_not_exported);
    tcase_add_test(c, values_too_large_are_refused);
    tcase_add_test(c, out_of_memory);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(convert_suite()); }
