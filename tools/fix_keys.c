/* fix_keys.c - mends of the header: numbers that the tensors say, fixed words, the token table. [CFG-2, CFG-3, CFG-6, CFG-9] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fix.h"

/* ---- numbers ----------------------------------------------------------------------------------------------------------- */

static void set_u32(Fix *x, const char *name, uint32_t v) { fix_set_key(x, name, GGUF_U32, GGUF_U32, 1, &v, sizeof v); }

/* A key's number; false: absent, or no whole number. */
static bool number(const FixKey *k, int64_t *out) {
    if (!k || k->type == GGUF_ARRAY) return false;
    const GgufKey as_read = { k->name, k->type, k->element, k->count, k->data, k->bytes };
    return gguf_int(&as_read, 0, out);
}

/* What the tensors say against what the key says, once lint has found them to differ. Arrays, one entry a layer, stay. */
static void settle(Fix *x, const char *own, int64_t right) {
    char name[160];
    int64_t have = 0;
    fix_scoped(x, own, name);
    const FixKey *k = fix_key(x, name);
    const LintId id = k ? KEY_CONTRADICTS : KEY_MISSING;
    if (right < 1 || right > UINT32_MAX || !report_has(&x->report, id) || !fix_wanted(x, id)) return;
    if (k && (!number(k, &have) || have == right)) return;
    set_u32(x, name, (uint32_t)right);
    if (k) fix_say(x, id, "%s: %lld -> %lld, as the tensors say", name, (long long)have, (long long)right);
    else fix_say(x, id, "%s: not there -> %lld", name, (long long)right);
}

static void settle_numbers(Fix *x) {
    const int64_t *s = x->model.size;
    int64_t nextn = 0;
    char name[160];
    number(fix_key(x, fix_scoped(x, "nextn_predict_layers", name)), &nextn);
    settle(x, "block_count", x->model.layers + nextn);
    settle(x, "embedding_length", s[S_D]);
    settle(x, "attention.head_count", x->model.heads);
    settle(x, "attention.head_count_kv", x->model.kv_heads);
    settle(x, "attention.key_length", s[S_WIDTH]);
    settle(x, "attention.value_length", s[S_WIDTH]);
    settle(x, "expert_count", s[S_E]);
    settle(x, "expert_feed_forward_length", s[S_F]);
    settle(x, "expert_shared_feed_forward_length", s[S_FS]);
    settle(x, "expert_shared_count", 1);
    settle(x, "ssm.conv_kernel", s[S_TAPS]);
    settle(x, "ssm.state_size", x->model.key_width);
    settle(x, "ssm.group_count", x->model.key_heads);
    settle(x, "ssm.time_step_rank", s[S_HV]);
    settle(x, "ssm.inner_size", s[S_VD]);
}

/* The interval that the tensors follow; where they follow none, a list. */
static void settle_layers(Fix *x) {
    char interval_name[160], list_name[160];
    const LintModel *m = &x->model;
    int64_t every = 0, have = 0;
    uint8_t recurrent[CLOVER_MAX_LAYERS];
    fix_scoped(x, "full_attention_interval", interval_name);
    fix_scoped(x, "attention.recurrent_layers", list_name);
    const bool none = !fix_key(x, interval_name) && !fix_key(x, list_name);
    const LintId id = none ? KEY_MISSING : INTERVAL_CONTRADICTS;
    if (!report_has(&x->report, id) || !fix_wanted(x, id) || m->layers < 1) return;
    for (int64_t l = 0; l < m->layers; l++) {
        recurrent[l] = !m->attention[l];
        if (m->attention[l] && !every) every = l + 1;
    }
    for (int64_t l = 0; every && l < m->layers; l++)
        if (m->attention[l] != ((l + 1) % every == 0)) every = 0;
    const bool said = number(fix_key(x, interval_name), &have);
    if (every > 0) {
        set_u32(x, interval_name, (uint32_t)every);
        fix_drop_key(x, list_name);
        if (said) fix_say(x, id, "%s: %lld -> %lld, as the layers' tensors say", interval_name, (long long)have, (long long)every);
        else fix_say(x, id, "%s: not there -> %lld", interval_name, (long long)every);
    } else {
        fix_drop_key(x, interval_name);
        fix_set_key(x, list_name, GGUF_ARRAY, GGUF_BOOL, (uint64_t)m->layers, recurrent, (uint64_t)m->layers);
        fix_say(x, id, "%s: one entry a layer, as its tensors say, in place of an interval", list_name);
    }
}

/* ---- rotary ------------------------------------------------------------------------------------------------------------- */

/* Up to 8 sections; -1: no list of whole numbers. */
static int64_t sections(const Fix *x, int32_t out[8]) {
    char name[160];
    const FixKey *k = fix_key(x, fix_scoped(x, "rope.dimension_sections", name));
    if (!k) return 0;
    if (k->type != GGUF_ARRAY || k->count > 8) return -1;
    const GgufKey as_read = { k->name, k->type, k->element, k->count, k->data, k->bytes };
    for (uint64_t i = 0; i < k->count; i++) {
        int64_t v;
        if (!gguf_int(&as_read, i, &v) || v < 0 || v > INT32_MAX) return -1;
        out[i] = (int32_t)v;
    }
    return (int64_t)k->count;
}

static void fix_rotary(Fix *x) {
    char name[160];
    int32_t s[8] = { 0 };
    const int64_t n = sections(x, s);
    int64_t pairs = 0;
    for (int64_t i = 0; i < n; i++) pairs += s[i];
    if (report_has(&x->report, ROPE_DIMS_MISSING) && fix_wanted(x, ROPE_DIMS_MISSING)) {
        const bool good = x->has_good && x->good.has_config;
        const int64_t dims = good ? x->good.config.rotary_dims : pairs > 0 ? 2 * pairs : x->model.size[S_WIDTH] / 4;
        if (dims > 0) {
            set_u32(x, fix_scoped(x, "rope.dimension_count", name), (uint32_t)dims);
            fix_say(x, ROPE_DIMS_MISSING, "%s: not there -> %lld (%s)", name, (long long)dims, good ? "as in the file given as --like"
                : pairs > 0 ? "twice the sum of rope.dimension_sections" : "a quarter of the head width");
        } else fix_cannot(x, ROPE_DIMS_MISSING, "neither sections nor head width are known");
    }
    if (!report_has(&x->report, ROPE_SECTIONS_FORM) || !fix_wanted(x, ROPE_SECTIONS_FORM)) return;
    fix_scoped(x, "rope.dimension_sections", name);
    if (n == 3) {
        fix_set_key(x, name, GGUF_ARRAY, GGUF_I32, 4, s, 16);
        fix_say(x, ROPE_SECTIONS_FORM, "%s: three entries -> four, the last 0", name);
        return;
    }
    int64_t dims = 0;
    char count_name[160];
    number(fix_key(x, fix_scoped(x, "rope.dimension_count", count_name)), &dims);
    if (dims < 2 || n > 4) { fix_cannot(x, ROPE_SECTIONS_FORM, "%s: no list of four numbers, and nothing says which", name); return; }
    const int32_t p = (int32_t)(dims / 2), split[4] = { (p + 2) / 3, (p + 1) / 3, p / 3, 0 };
    fix_set_key(x, name, GGUF_ARRAY, GGUF_I32, 4, split, sizeof split);
    fix_say(x, ROPE_SECTIONS_FORM, "%s: -> %d, %d, %d, 0; it changes nothing for text", name, split[0], split[1], split[2]);
}

/* ---- tokenizer ------------------------------------------------------------------------------------------------------------ */

static void set_word(Fix *x, const char *name, const char *word) {
    uint8_t bytes[64];
    const uint64_t n = strlen(word);
    memcpy(bytes, &n, 8);                                        /* u64 length, then its bytes */
    memcpy(bytes + 8, word, (size_t)n);
    const FixKey *k = fix_key(x, name);
    if (k && k->type == GGUF_STRING && k->bytes == n + 8 && memcmp(k->data, bytes, (size_t)n + 8) == 0) return;
    fix_set_key(x, name, GGUF_STRING, GGUF_STRING, 1, bytes, n + 8);
    fix_say(x, TOKENIZER_PRE, "%s -> \"%s\"", name, word);
}

static void fix_end(Fix *x) {
    const GgufKey *tokens = lint_key(&x->file, "tokenizer.ggml.tokens");
    if (!report_has(&x->report, EOS_MISSING) || !fix_wanted(x, EOS_MISSING)) return;
    int64_t id = gguf_find_string(tokens, "<|im_end|>");
    if (id < 0) id = gguf_find_string(tokens, "<|endoftext|>");
    if (id < 0) { fix_cannot(x, EOS_MISSING, "no token is named <|im_end|> or <|endoftext|>"); return; }
    set_u32(x, "tokenizer.ggml.eos_token_id", (uint32_t)id);
    fix_say(x, EOS_MISSING, "tokenizer.ggml.eos_token_id: not there -> %lld", (long long)id);
}

/* The table gets as many entries as the embedding has rows: further ones are marked unused. A longer one cannot be cut: its
 * last tokens may be in use. */
static void fix_token_table(Fix *x) {
    const FixKey *tokens = fix_key(x, "tokenizer.ggml.tokens"), *types = fix_key(x, "tokenizer.ggml.token_type");
    const FixTensor *embedding = fix_tensor(x, "token_embd.weight");
    if (!report_has(&x->report, TOKEN_TABLE_SIZE) || !fix_wanted(x, TOKEN_TABLE_SIZE)) return;
    const uint64_t rows = embedding && embedding->dims == 2 ? (uint64_t)embedding->shape[0] : 0;
    if (!tokens || !types || types->element != GGUF_I32 || rows < tokens->count || rows < types->count) {
        fix_cannot(x, TOKEN_TABLE_SIZE, "only a table shorter than the embedding can be filled up");
        return;
    }
    const int64_t V = (int64_t)rows, had = (int64_t)tokens->count;
    Buffer texts = { 0 }, kinds = { 0 };
    buffer_add(&texts, tokens->data, (size_t)tokens->bytes);
    buffer_add(&kinds, types->data, (size_t)types->bytes);
    for (int64_t id = had; id < V; id++) {
        char text[32];
        const uint64_t n = (uint64_t)snprintf(text, sizeof text, "[PAD%lld]", (long long)id);
        buffer_add(&texts, &n, 8);
        buffer_add(&texts, text, (size_t)n);
    }
    for (int64_t id = (int64_t)types->count; id < V; id++) buffer_add(&kinds, &(int32_t){ 5 }, 4);        /* unused */
    if (texts.no_memory || kinds.no_memory) error_memory(x->err, "the token table", texts.n);
    else {
        fix_set_key(x, "tokenizer.ggml.tokens", GGUF_ARRAY, GGUF_STRING, (uint64_t)V, texts.data, texts.n);
        fix_set_key(x, "tokenizer.ggml.token_type", GGUF_ARRAY, GGUF_I32, (uint64_t)V, kinds.data, kinds.n);
        fix_say(x, TOKEN_TABLE_SIZE, "tokenizer.ggml.tokens: %lld entries -> %lld, the new ones unused", (long long)had, (long long)V);
    }
    buffer_free(&texts);
    buffer_free(&kinds);
}

/* ---- what only a good file knows ---------------------------------------------------------------------------------------- */

/* Which finding a key's absence is. */
static LintId id_of_key(const char *own) {
    if (strcmp(own, "tokenizer.ggml.merges") == 0) return MERGES_MISSING;
    if (strncmp(own, "tokenizer.ggml.eo", 17) == 0) return EOS_MISSING;
    if (strstr(own, "mask_token_id")) return MASK_UNKNOWN;
    return KEY_MISSING;
}

/* Keys that the good GGUF has and this file lacks, where lint misses something of the kind. */
static void lend_keys(Fix *x) {
    for (int64_t i = 0; x->has_good && x->good.gguf && i < gguf_n_keys(x->good.gguf); i++) {
        const GgufKey *k = gguf_key_at(x->good.gguf, i);
        const char *dot = strchr(k->name, '.');
        char name[160];
        if (!dot || strncmp(k->name, "split.", 6) == 0 || strncmp(k->name, "general.", 8) == 0) continue;
        if (strncmp(k->name, "tokenizer.", 10) == 0) snprintf(name, sizeof name, "%s", k->name);
        else fix_scoped(x, dot + 1, name);
        const LintId id = id_of_key(k->name);
        if (fix_key(x, name) || !report_has(&x->report, id) || !fix_wanted(x, id)) continue;
        fix_set_key(x, name, k->type, k->element, k->count, k->data, k->bytes);
        fix_say(x, id, "%s: not there -> as in %s", name, x->like);
    }
}

/* Numbers that no tensor shows. */
static void lend_numbers(Fix *x) {
    const CloverConfig *c = &x->good.config;
    char name[160];
    if (!x->has_good || !x->good.has_config) return;
    settle(x, "expert_used_count", c->experts_used);
    settle(x, "context_length", c->context);
    const struct { const char *own; float value; } reals[] = {
        { "attention.layer_norm_rms_epsilon", (float)c->rms_eps }, { "rope.freq_base", (float)c->rope_base } };
    for (int i = 0; i < 2; i++) {
        if (fix_key(x, fix_scoped(x, reals[i].own, name)) || !report_has(&x->report, KEY_MISSING) || !fix_wanted(x, KEY_MISSING)) continue;
        fix_set_key(x, name, GGUF_F32, GGUF_F32, 1, &reals[i].value, 4);
        fix_say(x, KEY_MISSING, "%s: not there -> %.9g", name, (double)reals[i].value);
    }
    int64_t have = 0;
    const FixKey *k = fix_key(x, fix_scoped(x, "rope.dimension_count", name));
    if (k && number(k, &have) && have != c->rotary_dims && fix_wanted(x, KEY_CONTRADICTS)) {
        set_u32(x, name, (uint32_t)c->rotary_dims);
        fix_say(x, KEY_CONTRADICTS, "%s: %lld -> %lld", name, (long long)have, (long long)c->rotary_dims);
    }
}

CloverStatus fix_keys(Fix *x) {
    settle_numbers(x);
    settle_layers(x);
    lend_numbers(x);
    fix_rotary(x);
    if (report_has(&x->report, TOKENIZER_PRE) && fix_wanted(x, TOKENIZER_PRE)) {
        set_word(x, "tokenizer.ggml.model", "gpt2");
        set_word(x, "tokenizer.ggml.pre", "qwen35");
    }
    lend_keys(x);
    if (!fix_key(x, "tokenizer.ggml.eos_token_id")) fix_end(x);
    fix_token_table(x);
    if (report_has(&x->report, ALIGNMENT) && fix_wanted(x, ALIGNMENT)) fix_say(x, ALIGNMENT, "tensors are laid out anew");
    return x->err->status;
}
