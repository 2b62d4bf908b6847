/* fix_plan.c - what the right file will hold: keys and tensors of the input, changed one by one. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/files/config.h"
#include "fix.h"

/* ---- telling ---------------------------------------------------------------------------------------------------------- */

bool fix_wanted(const Fix *x, LintId id) { return (!x->only_given || x->only[id]) && !(id == HEAD_ORDER && x->heads_stuck); }

static void say(const char *how, LintId id, const char *format, va_list list) {
    printf("%s%s: ", how, lint_id_name(id));
    vprintf(format, list);
    putchar('\n');
}

void fix_say(Fix *x, LintId id, const char *format, ...) {
    va_list list;
    va_start(list, format);
    say("", id, format, list);
    va_end(list);
    x->changes++;
    x->said[id] = true;
}

void fix_cannot(Fix *x, LintId id, const char *format, ...) {
    va_list list;
    va_start(list, format);
    say("not mended: ", id, format, list);
    x->said[id] = true;
    va_end(list);
}

/* ---- keys -------------------------------------------------------------------------------------------------------------- */

/* The order in which exports hold them: a new key goes behind those that stand before it here. */
static const char *const usual_order[] = { "general.architecture", "general.name", "general.file_type", "general.quantization_version",
    "block_count", "context_length", "embedding_length", "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.value_length", "attention.layer_norm_rms_epsilon", "rope.dimension_sections", "rope.dimension_count", "rope.freq_base",
    "expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_feed_forward_length", "expert_shared_count",
    "ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size", "full_attention_interval",
    "attention.recurrent_layers", "diffusion.block_size", "diffusion.mask_token_id", "diffusion.threshold", "diffusion.coreset_enabled",
    "diffusion.coreset_top_p", "diffusion.head_order", "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
    "tokenizer.ggml.token_type", "tokenizer.ggml.merges", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.add_bos_token", "tokenizer.chat_template" };
enum { USUAL = sizeof usual_order / sizeof *usual_order };

static int place_of(const Fix *x, const char *name) {
    const size_t n = strlen(x->model.architecture);
    const char *own = strncmp(name, x->model.architecture, n) == 0 && name[n] == '.' ? name + n + 1 : name;
    for (int i = 0; i < USUAL; i++)
        if (strcmp(usual_order[i], own) == 0) return i;
    return -1;
}

const char *fix_scoped(const Fix *x, const char *name, char out[160]) {
    snprintf(out, 160, "%s.%s", x->model.architecture, name);
    return out;
}

FixKey *fix_key(const Fix *x, const char *name) {
    for (int64_t i = 0; i < x->n_keys; i++)
        if (strcmp(x->key[i].name, name) == 0) return &x->key[i];
    return NULL;
}

/* A free place before position `at`; NULL: no memory. */
static FixKey *insert_key(Fix *x, int64_t at) {
    if (x->n_keys == x->key_room) {
        const int64_t more = x->key_room ? 2 * x->key_room : 64;
        FixKey *larger = realloc(x->key, (size_t)more * sizeof *larger);
        if (!larger) { error_memory(x->err, "the keys", (size_t)more * sizeof *larger); return NULL; }
        x->key = larger;
        x->key_room = more;
    }
    memmove(&x->key[at + 1], &x->key[at], (size_t)(x->n_keys - at) * sizeof *x->key);
    x->key[at] = (FixKey){ 0 };
    x->n_keys++;
    return &x->key[at];
}

static int64_t usual_position(const Fix *x, const char *name) {
    const int place = place_of(x, name);
    int64_t at = x->n_keys;
    for (int64_t i = 0, best = -1; place >= 0 && i < x->n_keys; i++) {
        const int other = place_of(x, x->key[i].name);
        if (other >= 0 && other < place && other >= best) best = other, at = i + 1;
    }
    return at;
}

void fix_set_key(Fix *x, const char *name, GgufType type, GgufType element, uint64_t count, const void *data, uint64_t bytes) {
    if (x->err->status != CLOVER_OK) return;
    void *own = malloc(bytes ? (size_t)bytes : 1);
    char *copy = strdup(name);
    FixKey *k = fix_key(x, name);
    if (own && copy && !k) k = insert_key(x, usual_position(x, name));
    if (!own || !copy || !k) {
        free(own);
        free(copy);
        error_memory(x->err, name, (size_t)bytes);
        return;
    }
    memcpy(own, data, (size_t)bytes);
    free(k->own);
    free(k->name);
    *k = (FixKey){ copy, type, element, count, own, bytes, own };
}

static void free_key(FixKey *k) {
    free(k->name);
    free(k->own);
}

void fix_drop_key(Fix *x, const char *name) {
    FixKey *k = fix_key(x, name);
    if (!k) return;
    free_key(k);
    memmove(k, k + 1, (size_t)(&x->key[x->n_keys] - (k + 1)) * sizeof *k);
    x->n_keys--;
}

/* The writer says how a file is split and aligned. */
static bool of_the_container(const char *name) { return strncmp(name, "split.", 6) == 0 || strcmp(name, "general.alignment") == 0; }

static CloverStatus take_keys(Fix *x) {
    for (int64_t i = 0; i < x->file.n_keys; i++) {
        const GgufKey *from = &x->file.key[i];
        if (of_the_container(from->name)) continue;
        FixKey *k = insert_key(x, x->n_keys);
        if (k) *k = (FixKey){ strdup(from->name), from->type, from->element, from->count, from->data, from->bytes, NULL };
        if (!k || !k->name) return error_memory(x->err, "the keys", 256);
    }
    return CLOVER_OK;
}

/* ---- tensors --------------------------------------------------------------------------------------------------------------- */

FixTensor *fix_tensor(const Fix *x, const char *name) {
    for (int64_t i = 0; i < x->n; i++)
        if (!x->tensor[i].dropped && strcmp(x->tensor[i].name, name) == 0) return &x->tensor[i];
    return NULL;
}

static FixTensor *insert_tensor(Fix *x, int64_t at, const char *name) {
    if (x->n == x->room) {
        const int64_t more = x->room ? 2 * x->room : 128;
        FixTensor *larger = realloc(x->tensor, (size_t)more * sizeof *larger);
        if (!larger) { error_memory(x->err, "the list of tensors", (size_t)more * sizeof *larger); return NULL; }
        x->tensor = larger;
        x->room = more;
    }
    char *copy = strdup(name);
    if (!copy) { error_memory(x->err, "a name", strlen(name)); return NULL; }
    memmove(&x->tensor[at + 1], &x->tensor[at], (size_t)(x->n - at) * sizeof *x->tensor);
    x->tensor[at] = (FixTensor){ .name = copy, .t = { .from = -1 } };
    x->n++;
    return &x->tensor[at];
}

FixTensor *fix_add_tensor(Fix *x, const RoleOf *role) {
    const int64_t place = role - x->roles.role;
    int64_t at = 0, best = -1;
    for (int64_t i = 0; i < x->n; i++) {
        const int64_t other = role_find(&x->roles, x->tensor[i].name);
        if (other >= 0 && other < place && other > best) best = other, at = i + 1;
    }
    FixTensor *t = insert_tensor(x, at, role->name);
    if (t) t->dims = role_shape(role, t->shape);
    return t;
}

void fix_drop_tensor(Fix *x, FixTensor *t) {
    t->dropped = true;
    x->dropped++;
}

static CloverStatus take_tensors(Fix *x) {
    for (int64_t i = 0; i < x->file.tensors.n; i++) {
        const Tensor *from = &x->file.tensors.tensor[i];
        if (!dtype_info(from->type))
            return error_set(x->err, CLOVER_UNSUPPORTED, "%s: %s: type %d is unknown, so is its size: the file cannot be written again",
                             x->in, from->name, (int)from->type);
        FixTensor *t = insert_tensor(x, x->n, from->name);
        if (!t) return x->err->status;
        t->type = from->type;
        t->dims = from->dims;
        memcpy(t->shape, from->shape, sizeof t->shape);
        t->source = from;
    }
    return CLOVER_OK;
}

static void free_now(Fix *x) {
    names_free(&x->now.names);
    free(x->now.tensors.tensor);
    x->now = (ModelFile){ 0 };
}

/* The columns of ssm_out move in whole blocks or not at all; rows that moved without them would be a new drift. */
static void look_for_stuck_heads(Fix *x) {
    for (int64_t i = 0; i < x->now.tensors.n && x->sized; i++) {
        const Tensor *t = &x->now.tensors.tensor[i];
        const size_t n = strlen(t->name);
        if (n > 15 && strcmp(t->name + n - 15, ".ssm_out.weight") == 0) x->heads_stuck |= x->config.value_width % dtype_info(t->type)->block != 0;
    }
}

/* Only what is still the source's bytes: nothing is mended twice. */
CloverStatus fix_look_again(Fix *x) {
    const GgufKey *order = lint_key(&x->file, "clover_moe.diffusion.head_order");
    GgufString word;
    free_now(x);
    ModelFile *f = &x->now;
    f->path = x->in;
    f->form = NAMES_GGUF;
    f->config = x->config;
    f->diffusion_tiled = !(order && gguf_string(order, &word) && word.length == 7 && memcmp(word.bytes, "grouped", 7) == 0);
    f->tensors.tensor = calloc((size_t)x->n + 1, sizeof *f->tensors.tensor);
    if (!f->tensors.tensor) return error_memory(x->err, "the list of tensors", (size_t)x->n * sizeof *f->tensors.tensor);
    for (int64_t i = 0; i < x->n; i++) {
        const FixTensor *t = &x->tensor[i];
        if (t->dropped || t->how != FIX_COPY || names_find(&f->names, t->name) >= 0) continue;
        f->tensors.tensor[f->tensors.n] = *t->source;
        f->tensors.tensor[f->tensors.n].name = t->name;
        if (!names_add(&f->names, t->name, f->tensors.n++)) return error_memory(x->err, "the index of names", (size_t)x->n * 64);
    }
    look_for_stuck_heads(x);
    return CLOVER_OK;
}

/* ---- the model's sizes --------------------------------------------------------------------------------------------------------- */

/* As lint settles them between keys and tensors; false: one is known to neither. */
static bool take_sizes(const LintModel *m, CloverConfig *c) {
    const int64_t *s = m->size;
    *c = (CloverConfig){ .family = m->clover ? CLOVER_FAMILY_CLOVER : CLOVER_FAMILY_BASE, .layers = m->layers, .hidden = s[S_D], .vocab = s[S_V],
        .heads = m->heads, .kv_heads = m->kv_heads, .head_width = s[S_WIDTH], .key_heads = m->key_heads, .key_width = m->key_width,
        .value_heads = s[S_HV], .value_width = s[S_DV], .taps = s[S_TAPS], .experts = s[S_E], .expert_width = s[S_F], .shared_width = s[S_FS] };
    memcpy(c->full_attention, m->attention, sizeof c->full_attention);
    const int64_t all[] = { c->layers, c->hidden, c->vocab, c->heads, c->kv_heads, c->head_width, c->key_heads, c->key_width, c->value_heads, c->value_width,
                            c->taps, c->experts, c->expert_width, c->shared_width };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] < 1) return false;
    return c->layers <= CLOVER_MAX_LAYERS && c->value_heads % c->key_heads == 0;
}

static CloverStatus refuse_damage(Fix *x) {
    const LintId hopeless[] = { TRUNCATED, SPLIT_PART_MISSING };
    for (int k = 0; k < 2; k++)
        if (report_has(&x->report, hopeless[k]))
            return error_set(x->err, CLOVER_BAD_INPUT, "%s: %s: what is not in the file cannot be mended; get it again (clover lint says what is missing)",
                             x->in, lint_id_name(hopeless[k]));
    for (int64_t i = 0; i < x->file.tensors.n; i++)
        if (!x->file.tensors.tensor[i].data && x->file.tensors.tensor[i].elements > 0)
            return error_set(x->err, CLOVER_BAD_INPUT, "%s: %s: its bytes are not in the file", x->in, x->file.tensors.tensor[i].name);
    return x->file.whole ? CLOVER_OK : error_set(x->err, CLOVER_BAD_INPUT, "%s: the file cannot be read to its end (clover lint says where it breaks off)", x->in);
}

CloverStatus fix_open(Fix *x) {
    if (lint_read_gguf(x->in, &x->file, &x->report, x->err) != CLOVER_OK) return x->err->status;
    if (refuse_damage(x) != CLOVER_OK || lint_header(&x->model, &x->file, &x->report, x->err) != CLOVER_OK) return x->err->status;
    if (lint_vectors(&x->model, &x->report, x->err) != CLOVER_OK || take_keys(x) != CLOVER_OK || take_tensors(x) != CLOVER_OK) return x->err->status;
    x->sized = take_sizes(&x->model, &x->config);
    if (x->sized && role_list(&x->config, &x->roles, x->err) != CLOVER_OK) return x->err->status;
    if (!x->like) return CLOVER_OK;
    if (model_file_open(x->like, &x->good, x->err) != CLOVER_OK) return x->err->status;
    x->has_good = true;
    if (!x->sized) return error_set(x->err, CLOVER_BAD_INPUT, "%s: neither its keys nor its tensors say all sizes of the model: --like cannot be followed", x->in);
    return CLOVER_OK;
}

void fix_free(Fix *x) {
    for (int64_t i = 0; i < x->n_keys; i++) free_key(&x->key[i]);
    for (int64_t i = 0; i < x->n; i++) {
        free(x->tensor[i].name);
        transform_free(&x->tensor[i].t);
        role_view_free(&x->tensor[i].view);
    }
    free(x->key);
    free(x->tensor);
    free(x->roles.role);
    free_now(x);
    if (x->has_good) model_file_close(&x->good);
    lint_model_free(&x->model);
    lint_file_free(&x->file);
    report_free(&x->report);
}
