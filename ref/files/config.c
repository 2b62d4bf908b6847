/* config.c - a model's numbers, from the keys of a GGUF or from config.json and generation_config.json. [CFG]
 *
 * The tables below are [CFG-2], [CFG-7], [CFG-11], [CFG-12] and [CFG-14] as data. Nothing is guessed: a key without a stated
 * default is needed ([ERR-3]), and all problems of a file are added to one error ([ERR-2]). */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../error.h"
#include "config.h"
#include "map.h"

/* What the file says; some of it only leads to the config's numbers. */
typedef struct Raw {
    CloverConfig c;
    int64_t value_length, inner_size, interval;
    double partial_rotary_factor;
} Raw;

typedef enum Kind { INT, ID, REAL, BOOL } Kind;

typedef struct Key {
    const char *gguf;        /* behind the architecture's name and a dot; NULL: not read from a GGUF by this table */
    const char *json;        /* a.b is b inside a, x|y are alternatives; NULL: not read from JSON */
    Kind kind;
    size_t field;            /* in Raw */
    double absent;           /* the value when absent; NEEDED: absence is an error */
} Key;

#define NEEDED NAN
#define FIELD(name) offsetof(Raw, name)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const Key size_keys[] = {   /* [CFG-2] */
    { "block_count",                       "num_hidden_layers",               INT,  FIELD(c.layers),              NEEDED },
    { "nextn_predict_layers",              NULL,                              INT,  FIELD(c.nextn_layers),        0 },
    { "embedding_length",                  "hidden_size",                     INT,  FIELD(c.hidden),              NEEDED },
    { NULL,                                "vocab_size",                      INT,  FIELD(c.vocab),               NEEDED },
    { "context_length",                    "max_position_embeddings",         INT,  FIELD(c.context),             NEEDED },
    { "full_attention_interval",           "full_attention_interval",         INT,  FIELD(interval),              -1 },
    { "attention.head_count",              "num_attention_heads",             INT,  FIELD(c.heads),               NEEDED },
    { NULL,                                "num_key_value_heads",             INT,  FIELD(c.kv_heads),            NEEDED },
    { "attention.key_length",              "head_dim",                        INT,  FIELD(c.head_width),          NEEDED },
    { "attention.value_length",            NULL,                              INT,  FIELD(value_length),          NEEDED },
    { "attention.layer_norm_rms_epsilon",  "rms_norm_eps",                    REAL, FIELD(c.rms_eps),             NEEDED },
    { "rope.dimension_count",              NULL,                              INT,  FIELD(c.rotary_dims),         -1 },
    { NULL, "rope_parameters.partial_rotary_factor|partial_rotary_factor",    REAL, FIELD(partial_rotary_factor), NEEDED },
    { "rope.freq_base",                    "rope_parameters.rope_theta|rope_theta", REAL, FIELD(c.rope_base),     NEEDED },
    { "ssm.group_count",                   "linear_num_key_heads",            INT,  FIELD(c.key_heads),           NEEDED },
    { "ssm.state_size",                    "linear_key_head_dim",             INT,  FIELD(c.key_width),           NEEDED },
    { "ssm.time_step_rank",                "linear_num_value_heads",          INT,  FIELD(c.value_heads),         NEEDED },
    { "ssm.inner_size",                    NULL,                              INT,  FIELD(inner_size),            NEEDED },
    { NULL,                                "linear_value_head_dim",           INT,  FIELD(c.value_width),         NEEDED },
    { "ssm.conv_kernel",                   "linear_conv_kernel_dim",          INT,  FIELD(c.taps),                NEEDED },
    { "expert_count",                      "num_experts",                     INT,  FIELD(c.experts),             NEEDED },
    { "expert_used_count",                 "num_experts_per_tok",             INT,  FIELD(c.experts_used),        NEEDED },
    { "expert_feed_forward_length",        "moe_intermediate_size",           INT,  FIELD(c.expert_width),        NEEDED },
    { "expert_shared_feed_forward_length", "shared_expert_intermediate_size", INT,  FIELD(c.shared_width),        NEEDED },
};

static const Key diffusion_keys[] = {   /* [CFG-11], [CFG-12]: Clover only */
    { "diffusion.block_size",      "block_size",                 INT,  FIELD(c.block),           32 },
    { "diffusion.mask_token_id",   "mask_token_id",              ID,   FIELD(c.mask_id),         -1 },
    { "diffusion.threshold",       "denoising_config.threshold", REAL, FIELD(c.threshold),       0.95 },
    { "diffusion.coreset_enabled", "moe_block_coreset_enabled",  BOOL, FIELD(c.coreset_enabled), 0 },
    { "diffusion.coreset_top_p",   "moe_block_coreset_top_p",    REAL, FIELD(c.coreset_top_p),   1.0 },
};

/* [CFG-14]: `NAME` in generation_config.json, `generation.NAME` in a GGUF; absent: neutral. */
#define CONTROL(name, kind, absent) { "generation." #name, #name, kind, FIELD(c.controls.name), absent }
static const Key control_keys[] = {
    CONTROL(frequency_penalty,          REAL, 0),
    CONTROL(presence_penalty,           REAL, 0),
    CONTROL(repetition_penalty,         REAL, 1),
    CONTROL(dllm_length_penalty,        REAL, 0),
    CONTROL(dllm_length_penalty_start,  INT,  8192),
    CONTROL(dllm_length_penalty_window, INT,  8192),
    CONTROL(dllm_think_end_bias,        REAL, 0),
    CONTROL(dllm_think_end_start,       INT,  4096),
    CONTROL(dllm_think_end_window,      INT,  4096),
    CONTROL(dllm_think_end_token_id,    ID,   -1),
};

/* [CFG-7]: a key that may stand there only with a value that changes nothing. false counts as 0, true as 1. */
typedef struct Fixed { const char *gguf, *json; double value, or_value; } Fixed;
static const Fixed fixed_numbers[] = {
    { "expert_shared_count",      "num_shared_experts",  1, 1 },
    { "expert_weights_norm",      "norm_topk_prob",      1, 1 },
    { "expert_weights_scale",     NULL,                  1, 0 },
    { "expert_gating_func",       NULL,                  1, 1 },   /* softmax */
    { "expert_group_count",       NULL,                  1, 0 },
    { "leading_dense_block_count", NULL,                 0, 0 },
    { "attention.sliding_window", NULL,                  0, 0 },
    { "rope.scaling.factor",      NULL,                  1, 0 },
    { "rope.scale_linear",        NULL,                  1, 0 },
    { "logit_scale",              NULL,                  1, 0 },
    { "embedding_scale",          NULL,                  1, 0 },
    { "final_logit_softcapping",  NULL,                  0, 0 },
    { NULL,                       "attention_bias",      0, 0 },
    { NULL,                       "attn_output_gate",    1, 1 },
    { NULL,                       "use_sliding_window",  0, 0 },
    { NULL,                       "decoder_sparse_step", 1, 1 },
};
typedef struct FixedWord { const char *gguf, *json, *value, *or_value; } FixedWord;
static const FixedWord fixed_words[] = {
    { "rope.scaling.type", NULL,                                        "none",           "none" },
    { NULL,                "rope_parameters.rope_type|rope_parameters.type", "default",   "mrope" },   /* mrope: plain for text */
    { NULL,                "rope_scaling.rope_type|rope_scaling.type",  "default",        "mrope" },
    { NULL,                "hidden_act",                                "silu",           "silu" },
    { NULL,                "denoising_config.algorithm",                "low_confidence", "low_confidence" },
};

/* ---- reading one value ----------------------------------------------------------------------------------------- */

enum { NAME_ROOM = 160, FOUND_ROOM = 96 };

/* Where keys are looked up: a GGUF, or JSON objects. */
typedef struct Source {
    const char *where;               /* the file, for messages */
    const Gguf *gguf;
    const char *architecture;        /* GGUF: what stands before each key */
    const json_t *json, *fallback;   /* text_config, then what it stands in [CFG-10]; or the same object twice */
    CloverError *err;
} Source;

/* What a key holds; both NULL: absent. */
typedef struct Entry { const GgufKey *gguf; const json_t *json; char name[NAME_ROOM]; } Entry;

/* The member that `names` leads to, NULL when absent or null. */
static const json_t *member(const json_t *object, const char *names) {
    for (const char *p = names;; p++) {
        const json_t *at = object;
        for (;; p++) {
            size_t n = strcspn(p, ".|");
            at = json_object_getn(at, p, n);
            p += n;
            if (*p != '.') break;
        }
        if (at && !json_is_null(at)) return at;
        if (*p == '\0') return NULL;
    }
}

static bool look_up(const Source *s, const char *gguf, const char *json, Entry *e) {
    e->gguf = NULL;
    e->json = NULL;
    if (s->gguf && gguf) {
        snprintf(e->name, sizeof e->name, "%s.%s", s->architecture, gguf);
        e->gguf = gguf_key(s->gguf, e->name);
    } else if (!s->gguf && json) {
        snprintf(e->name, sizeof e->name, "%s", json);
        e->json = member(s->json, json);
        if (!e->json) e->json = member(s->fallback, json);
    }
    return e->gguf || e->json;
}

/* A key that every GGUF may have, whatever its architecture. */
static bool look_up_whole(const Source *s, const char *name, Entry *e) {
    e->json = NULL;
    e->gguf = gguf_key(s->gguf, name);
    snprintf(e->name, sizeof e->name, "%s", name);
    return e->gguf != NULL;
}

static bool entry_int(const Entry *e, int64_t *out) {
    if (e->gguf) return e->gguf->type != GGUF_ARRAY && gguf_int(e->gguf, 0, out);
    *out = (int64_t)json_integer_value(e->json);
    return json_is_integer(e->json);
}

static bool entry_real(const Entry *e, double *out) {
    if (e->gguf) return e->gguf->type != GGUF_ARRAY && gguf_real(e->gguf, 0, out);
    *out = json_number_value(e->json);
    return json_is_number(e->json);
}

static bool entry_bool(const Entry *e, bool *out) {
    if (e->gguf) return e->gguf->type != GGUF_ARRAY && gguf_bool(e->gguf, 0, out);
    *out = json_is_true(e->json);
    return json_is_boolean(e->json);
}

static bool entry_id(const Entry *e, int64_t *out) {
    return entry_int(e, out) && *out >= -1 && *out <= INT32_MAX;   /* -1: none */
}

/* The value as far as a message needs it. */
static const char *found(const Entry *e, char out[FOUND_ROOM]) {
    int64_t i;
    double r;
    bool b;
    GgufString text;
    char *dump;
    if (e->json) {
        dump = json_dumps(e->json, JSON_ENCODE_ANY | JSON_COMPACT);
        snprintf(out, FOUND_ROOM, "%.80s", dump ? dump : "something else");
        free(dump);
    } else if (e->gguf->type == GGUF_ARRAY) {
        snprintf(out, FOUND_ROOM, "an array of %llu %s", (unsigned long long)e->gguf->count, gguf_type_name(e->gguf->element));
    } else if (entry_int(e, &i)) {
        snprintf(out, FOUND_ROOM, "%lld", (long long)i);
    } else if (entry_real(e, &r)) {
        snprintf(out, FOUND_ROOM, "%.9g (%s)", r, gguf_type_name(e->gguf->type));
    } else if (entry_bool(e, &b)) {
        snprintf(out, FOUND_ROOM, "%s", b ? "true" : "false");
    } else if (gguf_string(e->gguf, &text)) {
        snprintf(out, FOUND_ROOM, "\"%.*s\"", text.length > 80 ? 80 : (int)text.length, text.bytes);
    } else {
        snprintf(out, FOUND_ROOM, "a value of type %s", gguf_type_name(e->gguf->type));
    }
    return out;
}

static void wrong(const Source *s, const Entry *e, const char *expected) {
    char text[FOUND_ROOM];
    error_add(s->err, CLOVER_BAD_INPUT, "%s: %s: expected %s, found %s", s->where, e->name, expected, found(e, text));
}

static void missing(const Source *s, const Entry *e) {
    error_add(s->err, CLOVER_BAD_INPUT, "%s: missing key %s", s->where, e->name);
}

/* Reads one row of a table into its field. */
static void read_key(const Source *s, const Key *key, Raw *raw) {
    char *field = (char *)raw + key->field;
    Entry e;
    bool there = look_up(s, key->gguf, key->json, &e);
    if (!there && isnan(key->absent)) missing(s, &e);
    int64_t i = isnan(key->absent) ? CONFIG_REPORTED : (int64_t)key->absent;
    double real = key->absent;
    bool truth = key->absent > 0;
    switch (key->kind) {
    case INT:
        if (there && !entry_int(&e, &i)) wrong(s, &e, "an integer"), i = CONFIG_REPORTED;
        memcpy(field, &i, sizeof i);
        break;
    case ID:
        if (there && !entry_id(&e, &i)) wrong(s, &e, "a token id"), i = -1;
        memcpy(field, &(int32_t){ (int32_t)i }, sizeof(int32_t));
        break;
    case REAL:
        if (there && !entry_real(&e, &real)) wrong(s, &e, "a number"), real = NAN;
        memcpy(field, &real, sizeof real);
        break;
    case BOOL:
        if (there && !entry_bool(&e, &truth)) wrong(s, &e, "true or false");
        memcpy(field, &truth, sizeof truth);
        break;
    }
}

static void read_keys(const Source *s, const Key *keys, size_t n, Raw *raw) {
    for (size_t i = 0; i < n; i++)
        if (s->gguf ? keys[i].gguf != NULL : keys[i].json != NULL) read_key(s, &keys[i], raw);
}

/* Every key whose value would change the mathematics is refused by name. [CFG-7] */
static void check_fixed(const Source *s) {
    Entry e;
    for (size_t i = 0; i < COUNT(fixed_numbers); i++) {
        const Fixed *f = &fixed_numbers[i];
        double number;
        bool truth;
        if (!look_up(s, f->gguf, f->json, &e)) continue;
        if (entry_bool(&e, &truth)) number = truth;
        else if (!entry_real(&e, &number)) { wrong(s, &e, "a number, true or false"); continue; }
        if (number == f->value || number == f->or_value) continue;
        char text[FOUND_ROOM];
        error_add(s->err, CLOVER_UNSUPPORTED, "%s: %s: only %g is supported, found %s", s->where, e.name, f->value,
                  found(&e, text));
    }
    for (size_t i = 0; i < COUNT(fixed_words); i++) {
        const FixedWord *f = &fixed_words[i];
        GgufString word = { NULL, 0 };
        if (!look_up(s, f->gguf, f->json, &e)) continue;
        bool is_word = e.gguf ? gguf_string(e.gguf, &word) : json_is_string(e.json);
        if (!is_word) { wrong(s, &e, "a string"); continue; }
        if (e.json) word = (GgufString){ json_string_value(e.json), json_string_length(e.json) };
        const char *allowed[] = { f->value, f->or_value };
        bool fine = false;
        for (int a = 0; a < 2; a++) fine |= word.length == strlen(allowed[a]) && memcmp(word.bytes, allowed[a], word.length) == 0;
        char text[FOUND_ROOM];
        if (!fine) error_add(s->err, CLOVER_UNSUPPORTED, "%s: %s: only \"%s\" is supported, found %s", s->where, e.name,
                             f->value, found(&e, text));
    }
}

/* ---- layers ---------------------------------------------------------------------------------------------------- */

static bool layers_in_range(const CloverConfig *c) { return c->layers >= 1 && c->layers <= CLOVER_MAX_LAYERS; }

/* Element i of a list with one entry per layer: is the layer full attention? */
static bool listed_kind(const Entry *e, int64_t i, bool *full) {
    if (e->gguf) {
        bool recurrent;
        int64_t number;
        if (!gguf_bool(e->gguf, (uint64_t)i, &recurrent)) {
            if (!gguf_int(e->gguf, (uint64_t)i, &number) || (number != 0 && number != 1)) return false;
            recurrent = number != 0;
        }
        *full = !recurrent;
        return true;
    }
    const char *kind = json_string_value(json_array_get(e->json, (size_t)i));
    *full = kind && strcmp(kind, "full_attention") == 0;
    return kind && (*full || strcmp(kind, "linear_attention") == 0);
}

/* Which layers are full attention: as listed, which must not contradict the interval, or by the interval. [CFG-3] */
static void settle_layers(const Source *s, Raw *raw) {
    CloverConfig *c = &raw->c;
    Entry list, every;
    bool listed = look_up(s, "attention.recurrent_layers", "layer_types", &list);
    bool by_interval = look_up(s, "full_attention_interval", "full_attention_interval", &every);
    if (!listed && !by_interval) {
        error_add(s->err, CLOVER_BAD_INPUT, "%s: missing key %s (or %s)", s->where, every.name, list.name);
        return;
    }
    if (by_interval && raw->interval < 1) {
        if (raw->interval != CONFIG_REPORTED) wrong(s, &every, "an interval of at least 1");
        return;
    }
    if (!layers_in_range(c)) return;   /* config_check says so */
    if (listed) {
        int64_t n = list.gguf ? (list.gguf->type == GGUF_ARRAY ? (int64_t)list.gguf->count : -1)
                              : (json_is_array(list.json) ? (int64_t)json_array_size(list.json) : -1);
        if (n != c->layers + c->nextn_layers) {
            char expected[64];
            snprintf(expected, sizeof expected, "a list of %lld entries", (long long)(c->layers + c->nextn_layers));
            wrong(s, &list, expected);
            return;
        }
    }
    for (int64_t i = 0; i < c->layers; i++) {
        bool full = by_interval && (i + 1) % raw->interval == 0;
        if (listed && !listed_kind(&list, i, &c->full_attention[i])) {
            char text[FOUND_ROOM];
            error_add(s->err, list.json ? CLOVER_UNSUPPORTED : CLOVER_BAD_INPUT,
                      "%s: %s: layer %lld is neither full nor linear attention: %s",
                      s->where, list.name, (long long)i, found(&list, text));
            return;
        }
        if (listed && by_interval && full != c->full_attention[i]) {
            error_add(s->err, CLOVER_BAD_INPUT,
                      "%s: %s and %s contradict each other: layer %lld is %s attention by the list and %s attention "
                      "by the interval of %lld; correct one of them", s->where, list.name, every.name, (long long)i,
                      full ? "linear" : "full", full ? "full" : "linear", (long long)raw->interval);
            return;
        }
        if (!listed) c->full_attention[i] = full;
    }
}

/* Hkv in a GGUF: one number, or one per layer, of which those of the full-attention layers count. [CFG-9] */
static void read_kv_heads(const Source *s, CloverConfig *c) {
    Entry e;
    c->kv_heads = CONFIG_REPORTED;
    if (!look_up(s, "attention.head_count_kv", NULL, &e)) { missing(s, &e); return; }
    if (e.gguf->type != GGUF_ARRAY) {
        if (!entry_int(&e, &c->kv_heads)) wrong(s, &e, "an integer"), c->kv_heads = CONFIG_REPORTED;
        return;
    }
    if (!layers_in_range(c)) return;
    if (e.gguf->count != (uint64_t)(c->layers + c->nextn_layers)) { wrong(s, &e, "an integer, or one for each layer"); return; }
    for (int64_t i = 0; i < c->layers; i++) {
        int64_t heads;
        if (!gguf_int(e.gguf, (uint64_t)i, &heads)) { wrong(s, &e, "integers"); return; }
        if (!c->full_attention[i]) continue;
        if (c->kv_heads == CONFIG_REPORTED) c->kv_heads = heads;
        if (heads != c->kv_heads) {
            error_add(s->err, CLOVER_UNSUPPORTED,
                      "%s: %s: layer %lld has %lld KV heads, earlier ones %lld; only one number for all is supported",
                      s->where, e.name, (long long)i, (long long)heads, (long long)c->kv_heads);
            return;
        }
    }
    if (c->kv_heads == CONFIG_REPORTED) c->kv_heads = c->heads;   /* no layer uses it */
}

/* ---- stop ids [CFG-14] ----------------------------------------------------------------------------------------- */

static void add_stop(const Source *s, CloverConfig *c, const char *name, int64_t id) {
    if (id < 0 || id > INT32_MAX || (c->vocab > 0 && id >= c->vocab)) {
        error_add(s->err, CLOVER_BAD_INPUT, "%s: %s: id %lld lies outside the vocabulary of %lld", s->where, name, (long long)id,
                  (long long)c->vocab);
        return;
    }
    for (int64_t i = 0; i < c->n_stops; i++)
        if (c->stops[i] == id) return;
    if (c->n_stops == CLOVER_MAX_STOPS) {
        error_add(s->err, CLOVER_UNSUPPORTED, "%s: %s: more than %d stop ids", s->where, name, CLOVER_MAX_STOPS);
        return;
    }
    c->stops[c->n_stops++] = (int32_t)id;
}

/* One id or a list of them. */
static void add_stops(const Source *s, CloverConfig *c, const Entry *e) {
    uint64_t n = e->gguf ? e->gguf->count : json_is_array(e->json) ? json_array_size(e->json) : 1;
    for (uint64_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(e->json) ? json_array_get(e->json, i) : e->json;
        int64_t id = (int64_t)json_integer_value(item);
        if (e->gguf ? !gguf_int(e->gguf, i, &id) : !json_is_integer(item)) { wrong(s, e, "one id or a list of ids"); return; }
        add_stop(s, c, e->name, id);
    }
}

static bool stops_from(const Source *s, CloverConfig *c, const char *gguf, const char *json) {
    Entry e;
    bool there = look_up(s, gguf, json, &e);
    if (there) add_stops(s, c, &e);
    return there;
}

static void stops_from_tokenizer(const Source *s, CloverConfig *c, const char *name) {
    Entry e;
    if (look_up_whole(s, name, &e)) add_stops(s, c, &e);
}

/* ---- GGUF ------------------------------------------------------------------------------------------------------ */

static bool is_word(GgufString text, const char *word) {
    return text.length == strlen(word) && memcmp(text.bytes, word, text.length) == 0;
}

/* The architecture's name, NULL (and an error) when there is none that is supported. [CFG-1] */
static const char *gguf_architecture(const Gguf *g, CloverFamily *family, CloverError *err) {
    const GgufKey *k = gguf_key(g, "general.architecture");
    GgufString name;
    if (!k || !gguf_string(k, &name)) {
        error_add(err, CLOVER_BAD_INPUT, "%s: general.architecture: expected a string, found %s", gguf_path(g),
                  k ? gguf_type_name(k->type) : "no such key");
        return NULL;
    }
    *family = is_word(name, "clover_moe") ? CLOVER_FAMILY_CLOVER : CLOVER_FAMILY_BASE;
    if (is_word(name, "clover_moe")) return "clover_moe";
    if (is_word(name, "qwen35moe")) return "qwen35moe";
    error_add(err, CLOVER_UNSUPPORTED, "%s: general.architecture is \"%.*s\"; supported are clover_moe and qwen35moe",
              gguf_path(g),
              name.length > 80 ? 80 : (int)name.length, name.bytes);
    return NULL;
}

/* V: the rows of the embedding, with which the token list must agree. [CFG-2] */
static void read_vocab(const Source *s, CloverConfig *c) {
    const Tensor *embedding = gguf_tensor(s->gguf, "token_embd.weight");
    Entry tokens;
    c->vocab = embedding ? embedding->shape[0] : CONFIG_REPORTED;
    if (look_up_whole(s, "tokenizer.ggml.tokens", &tokens)) {
        if (tokens.gguf->type != GGUF_ARRAY || tokens.gguf->element != GGUF_STRING) {
            wrong(s, &tokens, "an array of strings");
            return;
        }
        if (!embedding) c->vocab = (int64_t)tokens.gguf->count;
        if (c->vocab != (int64_t)tokens.gguf->count)
            error_add(s->err, CLOVER_BAD_INPUT,
                      "%s: tokenizer.ggml.tokens has %llu tokens and token_embd.weight %lld rows; one of them is cut or padded",
                      s->where, (unsigned long long)tokens.gguf->count, (long long)c->vocab);
    } else if (!embedding) {
        error_add(s->err, CLOVER_BAD_INPUT,
                  "%s: neither token_embd.weight nor tokenizer.ggml.tokens says how large the vocabulary is", s->where);
    }
}

/* The mask id of a file that has no diffusion key for it. [CFG-13] */
static void read_mask(const Source *s, CloverConfig *c) {
    Entry e;
    int64_t id;
    if (look_up_whole(s, "tokenizer.ggml.mask_token_id", &e)) {
        if (entry_id(&e, &id)) c->mask_id = (int32_t)id;
        else wrong(s, &e, "a token id");
    }
    if (c->mask_id >= 0 || !look_up_whole(s, "tokenizer.ggml.tokens", &e) || e.gguf->type != GGUF_ARRAY) return;
    const uint8_t *cursor = NULL;
    GgufString token;
    for (int32_t i = 0; gguf_next_string(e.gguf, &cursor, &token) && i < INT32_MAX; i++)
        if (is_word(token, "<|mask|>")) { c->mask_id = i; return; }
}

/* rope.dimension_count is absent: what a mended file would say. Rotary pairs are the sections' sum where there are any. */
static int64_t mended_rotary_dims(const Source *s, const CloverConfig *c, const char **from) {
    Entry e;
    int64_t pairs = 0, section;
    *from = "a quarter of the head width";
    if (look_up(s, "rope.dimension_sections", NULL, &e) && e.gguf->type == GGUF_ARRAY && e.gguf->count <= 4)
        for (uint64_t i = 0; i < e.gguf->count; i++)
            if (gguf_int(e.gguf, i, &section) && section > 0 && section <= c->head_width) pairs += section;
    if (pairs == 0) return c->head_width / 4;
    *from = "twice the sum of rope.dimension_sections";
    return 2 * pairs;
}

/* A missing rope.dimension_count: a naive loader rotates the whole head and answers other tokens. [CFG-6] */
static void settle_rotary_dims(const Source *s, CloverDriftMode drifts, CloverConfig *c) {
    if (c->rotary_dims != -1 || c->head_width < 1) return;
    Entry e;
    if (look_up(s, "rope.dimension_count", NULL, &e)) return;   /* it says -1; config_check says so */
    const char *from;
    int64_t mended = mended_rotary_dims(s, c, &from);
    c->rotary_dims = drifts == CLOVER_AS_IS ? c->head_width : mended;
    if (drifts == CLOVER_REFUSE_DRIFTS)
        error_add(s->err, CLOVER_BAD_INPUT,
                  "%s: missing key %s: a loader that rotates the whole head (%lld) answers garbage; read it with --mend "
                  "(%lld: %s), show the garbage with --as-is, or write a right file with clover fix", s->where, e.name,
                  (long long)c->head_width, (long long)mended, from);
}

CloverStatus config_head_order(const Gguf *g, int *tiled, CloverError *err) {
    const GgufKey *k = gguf_key(g, "clover_moe.diffusion.head_order");
    GgufString order;
    error_clear(err);
    *tiled = -1;
    if (!k) return CLOVER_OK;
    if (!gguf_string(k, &order) || (!is_word(order, "tiled") && !is_word(order, "grouped")))
        return error_set(err, CLOVER_BAD_INPUT, "%s: clover_moe.diffusion.head_order: expected \"tiled\" or \"grouped\"",
                         gguf_path(g));
    *tiled = is_word(order, "tiled");
    return CLOVER_OK;
}

/* What a file that says nothing of diffusion has, and the number that no file has. */
static void start(Raw *raw, CloverFamily family) {
    memset(raw, 0, sizeof *raw);
    raw->c.family = family;
    raw->c.l2_eps = 1e-6;   /* [CFG-4] */
    raw->c.block = raw->c.mask_id = -1;
    raw->c.threshold = raw->c.coreset_top_p = NAN;
}

CloverStatus config_from_gguf(const Gguf *g, CloverDriftMode drifts, CloverConfig *config, CloverError *err) {
    error_clear(err);
    CloverFamily family;
    Source s = { .where = gguf_path(g), .gguf = g, .err = err };
    s.architecture = gguf_architecture(g, &family, err);
    if (!s.architecture) return err->status;

    Raw raw;
    CloverConfig *c = &raw.c;
    start(&raw, family);
    read_keys(&s, size_keys, COUNT(size_keys), &raw);
    read_vocab(&s, c);
    if (family == CLOVER_FAMILY_CLOVER) {
        read_keys(&s, diffusion_keys, COUNT(diffusion_keys), &raw);
        if (c->mask_id < 0) read_mask(&s, c);
    }
    read_keys(&s, control_keys, COUNT(control_keys), &raw);
    check_fixed(&s);

    if (c->nextn_layers < 0 || (c->layers > 0 && c->nextn_layers >= c->layers)) {   /* [CFG-8] */
        error_add(err, CLOVER_BAD_INPUT, "%s: %s.nextn_predict_layers: expected 0 to block_count - 1, found %lld", s.where,
                  s.architecture, (long long)c->nextn_layers);
        c->nextn_layers = 0;
    }
    if (c->layers > 0) c->layers -= c->nextn_layers;
    settle_layers(&s, &raw);
    read_kv_heads(&s, c);
    settle_rotary_dims(&s, drifts, c);
    if (raw.value_length != CONFIG_REPORTED && c->head_width != CONFIG_REPORTED && raw.value_length != c->head_width)
        error_add(err, CLOVER_UNSUPPORTED,
                  "%s: %s.attention.value_length is %lld and key_length %lld; only equal widths are supported", s.where,
                  s.architecture, (long long)raw.value_length, (long long)c->head_width);
    c->value_width = CONFIG_REPORTED;
    if (raw.inner_size != CONFIG_REPORTED && c->value_heads > 0) {
        c->value_width = raw.inner_size / c->value_heads;
        if (raw.inner_size % c->value_heads != 0)
            error_add(err, CLOVER_BAD_INPUT,
                      "%s: %s.ssm.inner_size: expected a multiple of ssm.time_step_rank (%lld), found %lld", s.where,
                      s.architecture, (long long)c->value_heads, (long long)raw.inner_size);
    }
    c->tied = gguf_tensor(g, "output.weight") == NULL;   /* [CFG-15] */

    if (!stops_from(&s, c, "generation.eos_token_id", NULL)) {
        stops_from_tokenizer(&s, c, "tokenizer.ggml.eos_token_id");
        stops_from_tokenizer(&s, c, "tokenizer.ggml.eos_token_ids");
        stops_from_tokenizer(&s, c, "tokenizer.ggml.eot_token_id");
    }
    stops_from(&s, c, "generation.stop_token_ids", NULL);
    if (!stops_from(&s, c, "generation.pad_token_id", NULL)) stops_from_tokenizer(&s, c, "tokenizer.ggml.padding_token_id");

    if (config_check(c, s.where, err) == CLOVER_OK) *config = *c;
    return err->status;
}

/* ---- a folder -------------------------------------------------------------------------------------------------- */

/* The JSON object in folder/name; NULL and an error when there is none, or, when it is optional and absent, just NULL. */
static json_t *load_object(const char *folder, const char *name, bool optional, char path[], size_t room, CloverError *err) {
    if (snprintf(path, room, "%s/%s", folder, name) >= (int)room) {
        error_add(err, CLOVER_USAGE, "%.200s...: the path is too long", folder);
        return NULL;
    }
    struct stat found;
    Map file;
    if (optional && stat(path, &found) != 0 && errno == ENOENT) return NULL;
    if (map_open(path, &file, err) != CLOVER_OK) return NULL;
    json_error_t at;
    errno = 0;
    json_t *object = json_loadb((const char *)file.data, file.bytes, JSON_REJECT_DUPLICATES, &at);
    map_close(&file);
    if (errno == ENOMEM) error_memory(err, path, file.bytes);   /* jansson may call it a mistake in the text */
    else if (!object) error_add(err, CLOVER_BAD_INPUT, "%s: line %d: not valid JSON: %s", path, at.line, at.text);
    else if (!json_is_object(object)) error_add(err, CLOVER_BAD_INPUT, "%s: expected a JSON object", path);
    else return object;
    json_decref(object);
    return NULL;
}

/* [CFG-1] */
static bool json_family(const Source *s, const json_t *root, CloverFamily *family) {
    static const struct { const char *type; CloverFamily family; } types[] = {
        { "clover_moe", CLOVER_FAMILY_CLOVER }, { "qwen3_5_moe", CLOVER_FAMILY_BASE }, { "qwen3_5_moe_text", CLOVER_FAMILY_BASE },
    };
    const json_t *type = json_object_get(root, "model_type");
    if (!json_is_string(type)) {
        error_add(s->err, CLOVER_BAD_INPUT, "%s: model_type: expected a string, found %s", s->where,
                  type ? "something else" : "no such key");
        return false;
    }
    for (size_t i = 0; i < COUNT(types); i++)
        if (strcmp(json_string_value(type), types[i].type) == 0) { *family = types[i].family; return true; }
    error_add(s->err, CLOVER_UNSUPPORTED,
              "%s: model_type is \"%.80s\"; supported are clover_moe, qwen3_5_moe and qwen3_5_moe_text", s->where,
              json_string_value(type));
    return false;
}

/* A number inside something that should be an object must not be passed over as absent. */
static void check_objects(const Source *s) {
    static const char *const names[] = { "rope_parameters", "rope_scaling", "denoising_config" };
    Entry e;
    for (size_t i = 0; i < COUNT(names); i++)
        if (look_up(s, NULL, names[i], &e) && !json_is_object(e.json)) wrong(s, &e, "an object");
    if (look_up(s, NULL, "mlp_only_layers", &e)) {
        if (!json_is_array(e.json)) wrong(s, &e, "a list");
        else if (json_array_size(e.json) > 0)
            error_add(s->err, CLOVER_UNSUPPORTED, "%s: mlp_only_layers: layers without experts are not supported", s->where);
    }
}

static void folder_numbers(const Source *s, const Source *generation, Raw *raw) {
    CloverConfig *c = &raw->c;
    read_keys(s, size_keys, COUNT(size_keys), raw);
    if (c->family == CLOVER_FAMILY_CLOVER) read_keys(s, diffusion_keys, COUNT(diffusion_keys), raw);
    read_keys(generation, control_keys, COUNT(control_keys), raw);
    check_fixed(s);
    check_objects(s);
    settle_layers(s, raw);

    double rotary = (double)c->head_width * raw->partial_rotary_factor;
    c->rotary_dims = CONFIG_REPORTED;
    bool whole = rotary - floor(rotary) <= 1e-12 * rotary;    /* for many R no double times the width is R exactly, only a hair above */
    if (c->head_width > 0 && rotary >= 0 && rotary < 1e9 && whole) c->rotary_dims = (int64_t)rotary;
    else if (c->head_width > 0 && !isnan(raw->partial_rotary_factor))
        error_add(s->err, CLOVER_BAD_INPUT, "%s: partial_rotary_factor: %g of the head width %lld is no number of dims", s->where,
                  raw->partial_rotary_factor, (long long)c->head_width);
    Entry tie;
    c->tied = true;   /* where nothing is said, the tensors settle it; false needs a head [CFG-15] */
    if (look_up(s, NULL, "tie_word_embeddings", &tie)) {
        if (!entry_bool(&tie, &c->tied)) wrong(s, &tie, "true or false");
        else c->tied_said = c->tied;
    }

    if (!stops_from(generation, c, NULL, "eos_token_id")) stops_from(s, c, NULL, "eos_token_id");
    stops_from(generation, c, NULL, "stop_token_ids");
    if (!stops_from(generation, c, NULL, "pad_token_id")) stops_from(s, c, NULL, "pad_token_id");
    config_check(c, s->where, s->err);
}

CloverStatus config_from_folder(const char *folder, CloverConfig *config, CloverError *err) {
    error_clear(err);
    char path[4096], generation_path[4096];
    json_t *root = load_object(folder, "config.json", false, path, sizeof path, err);
    json_t *controls = load_object(folder, "generation_config.json", true, generation_path, sizeof generation_path, err);
    const json_t *text = json_object_get(root, "text_config");
    if (!text || json_is_null(text)) text = root;
    Source s = { .where = path, .json = text, .fallback = root, .err = err };
    Source generation = { .where = generation_path, .json = controls, .fallback = controls, .err = err };
    CloverFamily family;
    Raw raw;
    if (root && !json_is_object(text)) error_add(err, CLOVER_BAD_INPUT, "%s: text_config: expected an object", path);
    else if (root && json_family(&s, root, &family)) {
        start(&raw, family);
        folder_numbers(&s, &generation, &raw);
        if (err->status == CLOVER_OK) *config = raw.c;
    }
    json_decref(root);
    json_decref(controls);
    return err->status;
}
