/* synth_config.c - a random model's keys [CFG] and its byte-level tokenizer [TOK]. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "synth.h"

static const char *const specials[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|mask|>" };

/* GPT-2's byte table: printable bytes stand for themselves, the others for U+0100 and up. [TOK-2] */
static bool stands_for_itself(int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; }

static void byte_token(int b, char out[3]) {
    unsigned point = (unsigned)b;
    if (!stands_for_itself(b)) {
        point = 0x100;
        for (int other = 0; other < b; other++) point += !stands_for_itself(other);
    }
    if (point < 0x80) {
        out[0] = (char)point;
        out[1] = '\0';
    } else {
        out[0] = (char)(0xc0 | point >> 6);
        out[1] = (char)(0x80 | (point & 0x3f));
        out[2] = '\0';
    }
}

static void token_text(int64_t id, char out[32]) {
    if (id < 256) byte_token((int)id, out);
    else if (id < FIRST_FILLER) strcpy(out, specials[id - 256]);
    else snprintf(out, 32, "w%lld_", (long long)id);
}

/* ---- GGUF -------------------------------------------------------------------------------------------------------- */

enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_UNUSED = 5 };

static CloverStatus put_tokenizer(const SynthModel *m, GgufWriter *w, CloverError *err) {
    char text[32];
    gguf_put_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_put_string(w, "tokenizer.ggml.pre", "qwen35");
    gguf_put_strings(w, "tokenizer.ggml.tokens", (uint64_t)m->vocab);
    for (int64_t id = 0; id < m->vocab; id++) {
        token_text(id, text);
        gguf_add_string(w, text, strlen(text));
    }
    Buffer types = { 0 };
    for (int64_t id = 0; id < m->vocab; id++) {
        int32_t type = id < 256 ? TYPE_NORMAL : id < FIRST_FILLER ? TYPE_CONTROL : TYPE_UNUSED;
        buffer_add(&types, &type, sizeof type);
    }
    bool no_memory = types.no_memory;
    if (!no_memory) gguf_put_raw(w, "tokenizer.ggml.token_type", GGUF_ARRAY, GGUF_I32, (uint64_t)m->vocab, types.data, types.n);
    buffer_free(&types);
    if (no_memory) return error_memory(err, "the token types", (size_t)m->vocab * 4);
    gguf_put_strings(w, "tokenizer.ggml.merges", 0);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", TOKEN_IM_END);
    gguf_put_u32(w, "tokenizer.ggml.padding_token_id", TOKEN_ENDOFTEXT);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    return CLOVER_OK;
}

typedef struct KeyScope { GgufWriter *w; const char *architecture; char key[96]; } KeyScope;

static const char *scoped(KeyScope *s, const char *name) {
    snprintf(s->key, sizeof s->key, "%s.%s", s->architecture, name);
    return s->key;
}

static void put_size(KeyScope *s, const char *name, int64_t v) { gguf_put_u32(s->w, scoped(s, name), (uint32_t)v); }

/* The options' own numbers, as doubles: a folder of the same seed then states the same. */
static void put_real(KeyScope *s, const char *name, double v) {
    gguf_put_raw(s->w, scoped(s, name), GGUF_F64, GGUF_F64, 1, &v, sizeof v);
}

static void put_diffusion(const SynthModel *m, KeyScope *s) {
    put_size(s, "diffusion.block_size", m->block);
    put_size(s, "diffusion.mask_token_id", m->mask_id);
    put_real(s, "diffusion.threshold", m->threshold);
    gguf_put_bool(s->w, scoped(s, "diffusion.coreset_enabled"), m->coreset_top_p >= 0);
    put_real(s, "diffusion.coreset_top_p", m->coreset_top_p >= 0 ? m->coreset_top_p : 1.0);
    gguf_put_string(s->w, scoped(s, "diffusion.head_order"), "tiled");
}

/* How the rotary pairs are shared among time, height and width: changes nothing for text. [CFG-9] */
static void rope_sections(const SynthModel *m, int32_t out[4]) {
    int32_t pairs = (int32_t)(m->rotary_dims / 2);
    out[0] = (pairs + 2) / 3;
    out[1] = (pairs + 1) / 3;
    out[2] = pairs / 3;
    out[3] = 0;
}

CloverStatus synth_put_keys(const SynthModel *m, GgufWriter *w, CloverError *err) {
    KeyScope s = { .w = w, .architecture = m->base ? "qwen35moe" : "clover_moe" };
    int32_t sections[4];
    char text[80];
    gguf_put_string(w, "general.architecture", s.architecture);
    gguf_put_string(w, "general.name", m->name);
    snprintf(text, sizeof text, "random weights: clover synth %s, seed %llu", CLOVER_VERSION, (unsigned long long)m->seed);
    gguf_put_string(w, "general.description", text);
    if (dtype_info(m->type)->block > 1) gguf_put_u32(w, "general.quantization_version", 2);
    put_size(&s, "block_count", m->layers);
    put_size(&s, "context_length", m->context);
    put_size(&s, "embedding_length", m->hidden);
    put_size(&s, "attention.head_count", m->heads);
    put_size(&s, "attention.head_count_kv", m->kv_heads);
    put_size(&s, "attention.key_length", m->head_width);
    put_size(&s, "attention.value_length", m->head_width);
    gguf_put_f32(w, scoped(&s, "attention.layer_norm_rms_epsilon"), 1e-6f);
    rope_sections(m, sections);
    gguf_put_i32s(w, scoped(&s, "rope.dimension_sections"), sections, 4);
    put_size(&s, "rope.dimension_count", m->rotary_dims);
    gguf_put_f32(w, scoped(&s, "rope.freq_base"), (float)m->rope_base);
    put_size(&s, "expert_count", m->experts);
    put_size(&s, "expert_used_count", m->experts_used);
    put_size(&s, "expert_feed_forward_length", m->expert_width);
    put_size(&s, "expert_shared_feed_forward_length", m->shared_width);
    put_size(&s, "expert_shared_count", 1);
    put_size(&s, "ssm.conv_kernel", m->taps);
    put_size(&s, "ssm.state_size", m->key_width);
    put_size(&s, "ssm.group_count", m->key_heads);
    put_size(&s, "ssm.time_step_rank", m->value_heads);
    put_size(&s, "ssm.inner_size", m->value_heads * m->value_width);
    put_size(&s, "full_attention_interval", m->interval);
    if (m->diffusion) put_diffusion(m, &s);
    return put_tokenizer(m, w, err);
}

/* ---- Hugging Face ------------------------------------------------------------------------------------------------ */

/* The factor that gives R again when the head width is multiplied by it and truncated. */
static double rotary_factor(const SynthModel *m) {
    double factor = (double)m->rotary_dims / (double)m->head_width;
    while ((int64_t)(factor * (double)m->head_width) < m->rotary_dims) factor = nextafter(factor, 2);
    return factor;
}

static json_t *layer_types(const SynthModel *m) {
    json_t *list = json_array();
    for (int64_t i = 0; i < m->layers; i++)
        json_array_append_new(list, json_string((i + 1) % m->interval == 0 ? "full_attention" : "linear_attention"));
    return list;
}

static void set_size(json_t *o, const char *key, int64_t v) { json_object_set_new(o, key, json_integer(v)); }
static void set_text(json_t *o, const char *key, const char *v) { json_object_set_new(o, key, json_string(v)); }
static void set_bool(json_t *o, const char *key, bool v) { json_object_set_new(o, key, json_boolean(v)); }
static void set_real(json_t *o, const char *key, double v) { json_object_set_new(o, key, json_real(v)); }

static void set_rope(const SynthModel *m, json_t *o) {
    int32_t sections[4];
    rope_sections(m, sections);
    json_t *rope = json_object();
    set_real(rope, "rope_theta", m->rope_base);
    set_text(rope, "rope_type", "default");
    set_real(rope, "partial_rotary_factor", rotary_factor(m));
    json_object_set_new(rope, "mrope_section", json_pack("[i,i,i]", sections[0], sections[1], sections[2]));
    set_bool(rope, "mrope_interleaved", true);
    json_object_set_new(o, "rope_parameters", rope);
}

static const char *torch_type(DType type) { return type == DT_F32 ? "float32" : type == DT_F16 ? "float16" : "bfloat16"; }

static void set_numbers(const SynthModel *m, json_t *o) {
    set_size(o, "hidden_size", m->hidden);
    set_size(o, "num_hidden_layers", m->layers);
    set_size(o, "num_attention_heads", m->heads);
    set_size(o, "num_key_value_heads", m->kv_heads);
    set_size(o, "head_dim", m->head_width);
    set_size(o, "vocab_size", m->vocab);
    set_real(o, "rms_norm_eps", 1e-6);
    set_text(o, "hidden_act", "silu");
    set_bool(o, "attn_output_gate", true);
    set_bool(o, "attention_bias", false);
    set_size(o, "full_attention_interval", m->interval);
    json_object_set_new(o, "layer_types", layer_types(m));
    set_size(o, "linear_conv_kernel_dim", m->taps);
    set_size(o, "linear_key_head_dim", m->key_width);
    set_size(o, "linear_value_head_dim", m->value_width);
    set_size(o, "linear_num_key_heads", m->key_heads);
    set_size(o, "linear_num_value_heads", m->value_heads);
    set_size(o, "num_experts", m->experts);
    set_size(o, "num_experts_per_tok", m->experts_used);
    set_size(o, "moe_intermediate_size", m->expert_width);
    set_size(o, "shared_expert_intermediate_size", m->shared_width);
    set_bool(o, "norm_topk_prob", true);
    set_size(o, "num_shared_experts", 1);
    set_size(o, "max_position_embeddings", m->context);
    set_bool(o, "tie_word_embeddings", m->tied);
    set_rope(m, o);
    set_text(o, "torch_dtype", torch_type(m->type));
    set_size(o, "eos_token_id", TOKEN_IM_END);
    set_size(o, "pad_token_id", TOKEN_ENDOFTEXT);
    if (!m->diffusion) return;
    set_size(o, "block_size", m->block);
    set_size(o, "mask_token_id", m->mask_id);
    json_object_set_new(o, "denoising_config", json_pack("{s:s,s:f}", "algorithm", "low_confidence", "threshold", m->threshold));
    set_bool(o, "moe_block_coreset_enabled", m->coreset_top_p >= 0);
    set_real(o, "moe_block_coreset_top_p", m->coreset_top_p >= 0 ? m->coreset_top_p : 1.0);
}

static json_t *config_json(const SynthModel *m) {
    json_t *o = json_object(), *numbers = m->nested_config ? json_object() : o;
    const char *outer = m->base ? (m->nested_config ? "qwen3_5_moe" : "qwen3_5_moe_text") : "clover_moe";
    const char *class = !m->base ? "CloverMoeModelLM" : m->nested_config ? "Qwen3_5MoeForConditionalGeneration"
        : "Qwen3_5MoeForCausalLM";
    json_object_set_new(o, "architectures", json_pack("[s]", class));
    set_text(o, "model_type", outer);
    if (m->nested_config) {
        set_text(numbers, "model_type", m->base ? "qwen3_5_moe_text" : "clover_moe");
        json_object_set_new(o, "text_config", numbers);
    }
    set_numbers(m, numbers);
    return o;
}

/* 15 digits where they say the same number, else 17: 1e-06 rather than 9.9999999999999995e-07. */
static char *dump(const json_t *value) {
    char *text = json_dumps(value, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    json_t *again = text ? json_loads(text, 0, NULL) : NULL;
    bool same = again && json_equal(again, value);
    json_decref(again);
    if (same) return text;
    free(text);
    return json_dumps(value, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
}

static CloverStatus write_text(const char *folder, const char *name, const char *text, size_t length, bool force,
    CloverError *err) {
    char *path = text ? text_format(err, "%s/%s", folder, name) : NULL;
    if (!path) return error_memory(err, name, 0);
    CloverStatus status = output_file(path, text, length, force, err);
    free(path);
    return status;
}

static CloverStatus write_json(const char *folder, const char *name, json_t *value, bool force, CloverError *err) {
    char *text = value ? dump(value) : NULL;
    json_decref(value);
    CloverStatus status = write_text(folder, name, text, text ? strlen(text) : 0, force, err);
    free(text);
    return status;
}

static const char tokenizer_head[] =
    " \"normalizer\": {\"type\": \"NFC\"},\n"
    " \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n"
    "  {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|\\\\p{N}|"
    " ?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, "
    "\"behavior\": \"Isolated\", \"invert\": false},\n"
    "  {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}]},\n"
    " \"post_processor\": null,\n"
    " \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false},\n"
    " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
    "\"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"\", "
    "\"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false,\n  \"vocab\": {";

static CloverStatus write_tokenizer(const SynthModel *m, const char *folder, bool force, CloverError *err) {
    Buffer b = { 0 };
    char text[64];
    buffer_text(&b, "{\n \"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n \"added_tokens\": [");
    for (int id = 256; id < FIRST_FILLER; id++) {
        snprintf(text, sizeof text, "%s\n  {\"id\": %d, \"content\": ", id > 256 ? "," : "", id);
        buffer_text(&b, text);
        buffer_json(&b, specials[id - 256]);
        buffer_text(&b,
            ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}");
    }
    buffer_text(&b, "],\n");
    buffer_text(&b, tokenizer_head);
    for (int64_t id = 0; id < m->vocab; id++) {
        token_text(id, text);
        buffer_text(&b, id ? ",\n   " : "\n   ");
        buffer_json(&b, text);
        snprintf(text, sizeof text, ": %lld", (long long)id);
        buffer_text(&b, text);
    }
    buffer_text(&b, "},\n  \"merges\": []}\n}\n");
    CloverStatus status = write_text(folder, "tokenizer.json", b.no_memory ? NULL : (const char *)b.data, b.n, force, err);
    buffer_free(&b);
    return status;
}

CloverStatus synth_write_json(const SynthModel *m, const char *folder, bool force, CloverError *err) {
    json_t *generation = json_pack("{s:[i],s:i}", "eos_token_id", TOKEN_IM_END, "pad_token_id", TOKEN_ENDOFTEXT);
    json_t *tokenizer = json_pack("{s:s,s:s,s:s,s:I}", "tokenizer_class", "Qwen2TokenizerFast", "eos_token", "<|im_end|>",
        "pad_token", "<|endoftext|>",
                                  "model_max_length", (json_int_t)m->context);
    if (write_json(folder, "generation_config.json", generation, force, err) != CLOVER_OK) {
        json_decref(tokenizer);
        return err->status;
    }
    if (write_json(folder, "tokenizer_config.json", tokenizer, force, err) != CLOVER_OK) return err->status;
    if (write_tokenizer(m, folder, force, err) != CLOVER_OK) return err->status;
    return write_json(folder, "config.json", config_json(m), force, err);
}
