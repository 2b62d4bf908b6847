/* convert_keys.c - a GGUF's keys from a folder's JSON files. [CFG-2, CFG-3, CFG-9, CFG-12, CFG-14, TOK-6] */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../ref/error.h"
#include "../ref/files/tokenizer_parts.h"
#include "args.h"
#include "convert.h"
#include "output.h"

/* ---- reading the folder ------------------------------------------------------------------------------------------- */

static bool there(const char *folder, const char *name) {
    char path[4096];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && access(path, F_OK) == 0;
}

/* NULL and CLOVER_OK: the file is not there. */
static json_t *load(const char *folder, const char *name, CloverError *err) {
    error_clear(err);
    if (!there(folder, name)) return NULL;
    char path[4096], *text = NULL;
    size_t length;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (read_whole_file(path, &text, &length, err) != CLOVER_OK) return NULL;
    json_error_t at;
    errno = 0;
    json_t *value = json_loadb(text, length, 0, &at);
    const bool no_memory = errno == ENOMEM;              /* jansson may call it a mistake in the text */
    free(text);
    if (!value && no_memory) error_memory(err, path, length);
    else if (!value) error_set(err, CLOVER_BAD_INPUT, "%s: line %d: not valid JSON: %s", path, at.line, at.text);
    return value;
}

/* ---- numbers --------------------------------------------------------------------------------------------------------- */

typedef struct Scope { GgufWriter *w; const char *architecture; char key[128]; } Scope;

static const char *scoped(Scope *s, const char *name) {
    snprintf(s->key, sizeof s->key, "%s.%s", s->architecture, name);
    return s->key;
}

static void put_size(Scope *s, const char *name, int64_t v) { gguf_put_u32(s->w, scoped(s, name), (uint32_t)v); }
static void put_real(Scope *s, const char *name, double v) { gguf_put_raw(s->w, scoped(s, name), GGUF_F64, GGUF_F64, 1, &v, sizeof v); }

/* The interval where the layers follow one, else the list. [CFG-3] */
static void put_layers(Scope *s, const CloverConfig *c) {
    int64_t interval = 0;
    uint8_t recurrent[CLOVER_MAX_LAYERS];
    for (int64_t i = 0; i < c->layers; i++) {
        recurrent[i] = !c->full_attention[i];
        if (c->full_attention[i] && !interval) interval = i + 1;
    }
    bool regular = interval > 0;
    for (int64_t i = 0; regular && i < c->layers; i++) regular = c->full_attention[i] == ((i + 1) % interval == 0);
    if (regular) put_size(s, "full_attention_interval", interval);
    else gguf_put_raw(s->w, scoped(s, "attention.recurrent_layers"), GGUF_ARRAY, GGUF_BOOL, (uint64_t)c->layers, recurrent, (uint64_t)c->layers);
}

/* mrope_section with a zero behind it: four entries, which changes nothing for text. [CFG-9] */
static void put_sections(Scope *s, const CloverConfig *c, const json_t *config) {
    const json_t *text = json_object_get(config, "text_config"), *own = json_is_object(text) ? text : config;
    const json_t *list = json_object_get(json_object_get(own, "rope_parameters"), "mrope_section");
    if (!list) list = json_object_get(json_object_get(own, "rope_scaling"), "mrope_section");
    int32_t pairs = (int32_t)(c->rotary_dims / 2), sections[4] = { (pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0 };
    for (size_t i = 0; json_array_size(list) >= 3 && i < 4; i++) sections[i] = (int32_t)json_integer_value(json_array_get(list, i));
    gguf_put_i32s(s->w, scoped(s, "rope.dimension_sections"), sections, 4);
}

static void put_diffusion(Scope *s, const CloverConfig *c) {
    if (c->block > 0) put_size(s, "diffusion.block_size", c->block);
    if (c->mask_id >= 0) put_size(s, "diffusion.mask_token_id", c->mask_id);
    put_real(s, "diffusion.threshold", c->threshold);
    gguf_put_bool(s->w, scoped(s, "diffusion.coreset_enabled"), c->coreset_enabled);
    put_real(s, "diffusion.coreset_top_p", c->coreset_top_p);
    gguf_put_string(s->w, scoped(s, "diffusion.head_order"), "tiled");
}

/* What is not neutral. (section CTL) */
static void put_controls(Scope *s, const CloverControls *k) {
    const struct { const char *name; double value, neutral; } reals[] = {
        { "frequency_penalty", k->frequency_penalty, 0 }, { "presence_penalty", k->presence_penalty, 0 },
        { "repetition_penalty", k->repetition_penalty, 1 }, { "dllm_length_penalty", k->dllm_length_penalty, 0 },
        { "dllm_think_end_bias", k->dllm_think_end_bias, 0 },
    };
    const struct { const char *name; int64_t value, neutral; } sizes[] = {
        { "dllm_length_penalty_start", k->dllm_length_penalty_start, 8192 }, { "dllm_length_penalty_window", k->dllm_length_penalty_window, 8192 },
        { "dllm_think_end_start", k->dllm_think_end_start, 4096 }, { "dllm_think_end_window", k->dllm_think_end_window, 4096 },
        { "dllm_think_end_token_id", k->dllm_think_end_token_id, -1 },
    };
    char name[64];
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        snprintf(name, sizeof name, "generation.%s", reals[i].name);
        if (reals[i].value != reals[i].neutral) put_real(s, name, reals[i].value);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(name, sizeof name, "generation.%s", sizes[i].name);
        if (sizes[i].value != sizes[i].neutral) gguf_put_raw(s->w, scoped(s, name), GGUF_I64, GGUF_I64, 1, &sizes[i].value, sizeof sizes[i].value);
    }
}

static int64_t first_id(const json_t *object, const char *name) {
    const json_t *v = json_object_get(object, name);
    if (json_is_array(v)) v = json_array_get(v, 0);
    return json_is_integer(v) ? (int64_t)json_integer_value(v) : -1;
}

/* The first end and the pad under llama.cpp's keys; further stop ids under ours. [CFG-14] */
static void put_stops(Scope *s, const CloverConfig *c, const json_t *config, const json_t *generation) {
    const json_t *text = json_object_get(config, "text_config"), *own = json_is_object(text) ? text : config;
    int64_t eos = first_id(generation, "eos_token_id"), pad = first_id(generation, "pad_token_id");
    if (eos < 0) eos = first_id(own, "eos_token_id");
    if (eos < 0) eos = first_id(config, "eos_token_id");
    if (pad < 0) pad = first_id(own, "pad_token_id");
    if (pad < 0) pad = first_id(config, "pad_token_id");
    int64_t further = 0;
    for (int64_t i = 0; i < c->n_stops; i++) further += c->stops[i] != eos && c->stops[i] != pad;
    if (further > 0) gguf_put_i32s(s->w, scoped(s, "generation.eos_token_id"), c->stops, c->n_stops);
    if (eos >= 0) gguf_put_u32(s->w, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    if (pad >= 0) gguf_put_u32(s->w, "tokenizer.ggml.padding_token_id", (uint32_t)pad);
}

/* llama.cpp's numbers for "mostly of this type". */
static uint32_t file_type(DType type) {
    return type == DT_F16 ? 1 : type == DT_Q4_0 ? 2 : type == DT_Q8_0 ? 7 : type == DT_BF16 ? 32 : 0;
}

static const char *last_name(const char *folder, char out[256]) {
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/') n--;
    size_t start = n;
    while (start > 0 && folder[start - 1] != '/') start--;
    snprintf(out, 256, "%.*s", (int)(n - start), folder + start);
    return out;
}

static void put_chat_template(const char *folder, const json_t *tokenizer, GgufWriter *w, CloverError *err) {
    char path[4096], *text = NULL;
    size_t length;
    const json_t *own = json_object_get(tokenizer, "chat_template");
    if (json_is_string(own)) gguf_put_string(w, "tokenizer.chat_template", json_string_value(own));
    else if (there(folder, "chat_template.jinja")) {
        snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
        if (read_whole_file(path, &text, &length, err) == CLOVER_OK) gguf_put_string(w, "tokenizer.chat_template", text);
        free(text);
    }
}

static void put_numbers(Scope *s, const CloverConfig *c, const json_t *config) {
    put_size(s, "block_count", c->layers);
    put_size(s, "context_length", c->context);
    put_size(s, "embedding_length", c->hidden);
    put_size(s, "attention.head_count", c->heads);
    put_size(s, "attention.head_count_kv", c->kv_heads);
    put_size(s, "attention.key_length", c->head_width);
    put_size(s, "attention.value_length", c->head_width);
    gguf_put_f32(s->w, scoped(s, "attention.layer_norm_rms_epsilon"), (float)c->rms_eps);
    put_sections(s, c, config);
    put_size(s, "rope.dimension_count", c->rotary_dims);
    gguf_put_f32(s->w, scoped(s, "rope.freq_base"), (float)c->rope_base);
    put_size(s, "expert_count", c->experts);
    put_size(s, "expert_used_count", c->experts_used);
    put_size(s, "expert_feed_forward_length", c->expert_width);
    put_size(s, "expert_shared_feed_forward_length", c->shared_width);
    put_size(s, "expert_shared_count", 1);
    put_size(s, "ssm.conv_kernel", c->taps);
    put_size(s, "ssm.state_size", c->key_width);
    put_size(s, "ssm.group_count", c->key_heads);
    put_size(s, "ssm.time_step_rank", c->value_heads);
    put_size(s, "ssm.inner_size", c->value_heads * c->value_width);
    put_layers(s, c);
}

CloverStatus convert_put_keys(const char *folder, const CloverConfig *c, const char *architecture, DType type, bool diffusion,
                              GgufWriter *w, CloverError *err) {
    Scope s = { .w = w, .architecture = architecture };
    char name[256];
    CloverError further;
    json_t *config = load(folder, "config.json", err);
    if (err->status != CLOVER_OK) return err->status;
    json_t *generation = load(folder, "generation_config.json", err);
    json_t *tokenizer = err->status == CLOVER_OK ? load(folder, "tokenizer_config.json", err) : NULL;
    if (err->status == CLOVER_OK) {
        gguf_put_string(w, "general.architecture", architecture);
        gguf_put_string(w, "general.name", last_name(folder, name));
        gguf_put_u32(w, "general.file_type", file_type(type));
        if (dtype_info(type)->block > 1) gguf_put_u32(w, "general.quantization_version", 2);
        put_numbers(&s, c, config);
        if (diffusion) put_diffusion(&s, c);
        put_controls(&s, &c->controls);
        convert_put_tokenizer(folder, c->vocab, w, err);
    }
    if (err->status == CLOVER_OK) {
        put_stops(&s, c, config, generation);
        gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
        error_clear(&further);
        put_chat_template(folder, tokenizer, w, &further);
        if (further.status != CLOVER_OK) *err = further;
    }
    json_decref(config);
    json_decref(generation);
    json_decref(tokenizer);
    return err->status;
}

/* ---- the tokenizer ---------------------------------------------------------------------------------------------------- */

enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4, TYPE_UNUSED = 5 };

typedef struct Vocabulary { const char **text; int32_t *type; int64_t n, beyond; } Vocabulary;   /* [n]; text NULL: no such id */

static void take_token(Vocabulary *v, const char *text, int64_t id, int32_t type) {
    if (id < 0 || id >= v->n) { v->beyond++; return; }
    v->text[id] = text;
    v->type[id] = type;
}

static void collect(Vocabulary *v, const json_t *root) {
    const char *text;
    json_t *entry;
    size_t i;
    json_object_foreach(json_object_get(json_object_get(root, "model"), "vocab"), text, entry)
        take_token(v, text, (int64_t)json_integer_value(entry), TYPE_NORMAL);
    json_array_foreach(json_object_get(root, "added_tokens"), i, entry)
        take_token(v, json_string_value(json_object_get(entry, "content")), (int64_t)json_integer_value(json_object_get(entry, "id")),
                   json_is_true(json_object_get(entry, "special")) ? TYPE_CONTROL : TYPE_USER_DEFINED);
}

static void put_tokens(const Vocabulary *v, GgufWriter *w) {
    char pad[32];
    gguf_put_strings(w, "tokenizer.ggml.tokens", (uint64_t)v->n);
    for (int64_t id = 0; id < v->n; id++) {
        snprintf(pad, sizeof pad, "[PAD%lld]", (long long)id);       /* as llama.cpp's converter calls rows without a token */
        const char *text = v->text[id] ? v->text[id] : pad;
        gguf_add_string(w, text, strlen(text));
    }
    gguf_put_i32s(w, "tokenizer.ggml.token_type", v->type, v->n);
}

static void put_merges(const json_t *merges, GgufWriter *w, CloverError *err) {
    Buffer both = { 0 };
    size_t i;
    json_t *merge;
    gguf_put_strings(w, "tokenizer.ggml.merges", json_array_size(merges));
    json_array_foreach(merges, i, merge) {
        both.n = 0;
        if (json_is_string(merge)) buffer_text(&both, json_string_value(merge));
        else {
            buffer_text(&both, json_string_value(json_array_get(merge, 0)));
            buffer_text(&both, " ");
            buffer_text(&both, json_string_value(json_array_get(merge, 1)));
        }
        gguf_add_string(w, (const char *)both.data, both.n);
    }
    if (both.no_memory) error_memory(err, "a merge", both.n);
    buffer_free(&both);
}

/* A GGUF names its split pattern instead of holding it. */
static bool splits_as_qwen35(const json_t *root) {
    const json_t *split = json_array_get(json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers"), 0);
    const char *pattern = json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
    return pattern && strcmp(pattern, tokenizer_pattern_qwen35) == 0;
}

CloverStatus convert_put_tokenizer(const char *folder, int64_t vocab, GgufWriter *w, CloverError *err) {
    json_t *root = load(folder, "tokenizer.json", err);
    if (!root && err->status == CLOVER_OK)
        fprintf(stderr, "clover convert: %s has no tokenizer.json: the file has no tokenizer, and only ids can be given to it\n", folder);
    if (!root) return err->status;
    Vocabulary v = { .text = calloc((size_t)vocab, sizeof *v.text), .type = malloc((size_t)vocab * sizeof *v.type), .n = vocab };
    if (!v.text || !v.type) error_memory(err, "the vocabulary", (size_t)vocab * 12);
    else if (!splits_as_qwen35(root))
        error_set(err, CLOVER_UNSUPPORTED, "%s/tokenizer.json: its split pattern is not Qwen3.5's, and a GGUF can only name that one (tokenizer.ggml.pre)", folder);
    else {
        for (int64_t id = 0; id < vocab; id++) v.type[id] = TYPE_UNUSED;
        collect(&v, root);
        if (v.beyond)
            error_set(err, CLOVER_BAD_INPUT, "%s/tokenizer.json: %lld tokens have ids past the embedding's %lld rows", folder,
                      (long long)v.beyond, (long long)vocab);
        gguf_put_string(w, "tokenizer.ggml.model", "gpt2");
        gguf_put_string(w, "tokenizer.ggml.pre", "qwen35");
        put_tokens(&v, w);
        put_merges(json_object_get(json_object_get(root, "model"), "merges"), w, err);
    }
    free(v.text);
    free(v.type);
    json_decref(root);
    return err->status;
}
