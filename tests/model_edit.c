/* model_edit.c - see model_edit.h. */
#include "model_edit.h"
#include "../ref/files/quant.h"
#include "../ref/files/safetensors.h"
#include "gguf_build.h"
#include "safetensors_build.h"

static Edit *new_edit(void) {
    Edit *e = calloc(1, sizeof *e);
    ck_assert_ptr_nonnull(e);
    return e;
}

static void copy_tensors(Edit *e, TensorList list) {
    ck_assert_int_le(list.n, EDIT_ROOM);
    for (int64_t i = 0; i < list.n; i++) {
        EditTensor *t = &e->tensor[e->n_tensors++];
        snprintf(t->name, sizeof t->name, "%s", list.tensor[i].name);
        t->type = list.tensor[i].type;
        t->dims = list.tensor[i].dims;
        memcpy(t->shape, list.tensor[i].shape, sizeof t->shape);
        put_bytes(&t->data, list.tensor[i].data, list.tensor[i].bytes);
    }
}

Edit *edit_open(const char *path) {
    Edit *e = new_edit();
    CloverError err;
    Gguf *g;
    assert_ok(gguf_open(path, &g, &err), err);
    for (int64_t i = 0; i < gguf_n_keys(g); i++) {
        const GgufKey *k = gguf_key_at(g, i);
        EditKey *copy = &e->key[e->n_keys++];
        *copy = (EditKey){ .type = k->type, .element = k->element, .count = k->count };
        snprintf(copy->name, sizeof copy->name, "%s", k->name);
        put_bytes(&copy->value, k->data, k->bytes);
    }
    copy_tensors(e, gguf_tensors(g));
    gguf_close(g);
    return e;
}

Edit *edit_gguf(void) { return edit_open(GOOD_GGUF); }

Edit *edit_hf(void) {
    Edit *e = new_edit();
    CloverError err;
    Safetensors *s;
    assert_ok(safetensors_open(GOOD_HF, &s, &err), err);
    copy_tensors(e, safetensors_tensors(s));
    safetensors_close(s);
    e->config = json_load_file(GOOD_HF "/config.json", 0, NULL);
    e->generation = json_load_file(GOOD_HF "/generation_config.json", 0, NULL);
    ck_assert(e->config && e->generation);
    return e;
}

void edit_free(Edit *e) {
    for (int i = 0; i < e->n_keys; i++) free_bytes(&e->key[i].value);
    for (int i = 0; i < e->n_tensors; i++) free_bytes(&e->tensor[i].data);
    json_decref(e->config);
    json_decref(e->generation);
    if (e->folder[0]) remove_folder(e->folder);
    free(e);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void write_gguf(Edit *e) {
    GgufBuild b = gguf_build();
    for (int i = 0; i < e->n_keys; i++) {
        const EditKey *k = &e->key[i];
        if (k->type == GGUF_ARRAY) build_array(&b, k->name, k->element, k->count);
        else build_key(&b, k->name, k->type);
        put_bytes(&b.keys, k->value.data, k->value.n);
    }
    for (int i = 0; i < e->n_tensors; i++) {
        const EditTensor *t = &e->tensor[i];
        uint64_t shape[TENSOR_MAX_DIMS];
        for (int d = 0; d < t->dims; d++) shape[d] = (uint64_t)t->shape[d];
        build_tensor(&b, t->name, t->type, (uint32_t)t->dims, shape, t->data.data, t->data.n);
    }
    Bytes file = build_file(&b);
    snprintf(e->path, sizeof e->path, "%s/model.gguf", e->folder);
    write_file(e->path, file.data, file.n);
    free_bytes(&file);
}

static void write_json(const Edit *e, const char *name, const json_t *object) {
    if (!object) return;
    char *text = json_dumps(object, JSON_INDENT(1));
    ck_assert_ptr_nonnull(text);
    write_file(in_folder(e->folder, name), text, strlen(text));
    free(text);
}

static void write_folder(Edit *e) {
    SafetensorsBuild b = { 0 };
    for (int i = 0; i < e->n_tensors; i++) {
        const EditTensor *t = &e->tensor[i];
        const char *type = t->type == DT_F32 ? "F32" : t->type == DT_BF16 ? "BF16" : t->type == DT_F16 ? "F16"
                           : t->type == DT_F8_E4M3 ? "F8_E4M3" : t->type == DT_F8_E5M2 ? "F8_E5M2" : "I8";
        build_safetensor(&b, t->name, type, t->dims, t->shape, t->data.data, t->data.n);
    }
    Bytes file = build_safetensors(&b);
    write_file(in_folder(e->folder, "model.safetensors"), file.data, file.n);
    free_bytes(&file);
    write_json(e, "config.json", e->config);
    write_json(e, "generation_config.json", e->generation);
    snprintf(e->path, sizeof e->path, "%s", e->folder);
}

const char *edit_write(Edit *e) {
    make_folder("edit", e->folder);
    if (e->n_keys) write_gguf(e);
    else write_folder(e);
    return e->path;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

void edit_drop_key(Edit *e, const char *name) {
    for (int i = 0; i < e->n_keys; i++) {
        if (strcmp(e->key[i].name, name) != 0) continue;
        free_bytes(&e->key[i].value);
        memmove(&e->key[i], &e->key[i + 1], (size_t)(e->n_keys - i - 1) * sizeof e->key[0]);
        e->n_keys--;
        return;
    }
}

static EditKey *set_key(Edit *e, const char *name, GgufType type) {
    edit_drop_key(e, name);
    ck_assert_int_lt(e->n_keys, EDIT_ROOM);
    EditKey *k = &e->key[e->n_keys++];
    *k = (EditKey){ .type = type, .count = 1 };
    snprintf(k->name, sizeof k->name, "%s", name);
    return k;
}

void edit_u32(Edit *e, const char *name, uint32_t value) { put_u32(&set_key(e, name, GGUF_U32)->value, value); }
void edit_f32(Edit *e, const char *name, float value) { put_bytes(&set_key(e, name, GGUF_F32)->value, &value, sizeof value); }
void edit_f64(Edit *e, const char *name, double value) { put_bytes(&set_key(e, name, GGUF_F64)->value, &value, sizeof value); }
void edit_bool(Edit *e, const char *name, bool value) { put_number(&set_key(e, name, GGUF_BOOL)->value, value, 1); }
void edit_string(Edit *e, const char *name, const char *text) { put_string(&set_key(e, name, GGUF_STRING)->value, text, strlen(text)); }

void edit_ints(Edit *e, const char *name, const int32_t *values, uint64_t n) {
    EditKey *k = set_key(e, name, GGUF_ARRAY);
    k->element = GGUF_I32;
    k->count = n;
    put_bytes(&k->value, values, n * sizeof *values);
}

void edit_bools(Edit *e, const char *name, const bool *values, uint64_t n) {
    EditKey *k = set_key(e, name, GGUF_ARRAY);
    k->element = GGUF_BOOL;
    k->count = n;
    for (uint64_t i = 0; i < n; i++) put_number(&k->value, values[i], 1);
}

void edit_rename_prefix(Edit *e, const char *from, const char *to) {
    for (int i = 0; i < e->n_keys; i++) {
        char rest[128];
        if (strncmp(e->key[i].name, from, strlen(from)) != 0) continue;
        snprintf(rest, sizeof rest, "%s", e->key[i].name + strlen(from));
        snprintf(e->key[i].name, sizeof e->key[i].name, "%s%.100s", to, rest);
    }
}

static void set_member(json_t *object, const char *name, const char *json) {
    json_t *value = json ? json_loads(json, JSON_DECODE_ANY, NULL) : NULL;
    ck_assert_msg(!json || value, "the test's JSON is wrong: %s", json);
    if (json) json_object_set_new(object, name, value);
    else json_object_del(object, name);
}

void edit_config(Edit *e, const char *name, const char *json) { set_member(e->config, name, json); }
void edit_generation(Edit *e, const char *name, const char *json) { set_member(e->generation, name, json); }

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

EditTensor *edit_tensor(Edit *e, const char *name) {
    for (int i = 0; i < e->n_tensors; i++)
        if (strcmp(e->tensor[i].name, name) == 0) return &e->tensor[i];
    ck_abort_msg("no tensor %s", name);
    return NULL;
}

void edit_drop(Edit *e, const char *name) {
    EditTensor *t = edit_tensor(e, name);
    free_bytes(&t->data);
    memmove(t, t + 1, (size_t)(&e->tensor[e->n_tensors] - (t + 1)) * sizeof *t);
    e->n_tensors--;
}

void edit_rename(Edit *e, const char *from, const char *to) {
    EditTensor *t = edit_tensor(e, from);
    snprintf(t->name, sizeof t->name, "%s", to);
}

void edit_widen(Edit *e) {
    for (int i = 0; i < e->n_tensors; i++) {
        EditTensor *t = &e->tensor[i];
        int64_t n = 1;
        Bytes wide = { 0 };
        for (int d = 0; d < t->dims; d++) n *= t->shape[d];
        if (t->type == DT_F32) continue;
        float *values = malloc((size_t)n * sizeof *values);
        ck_assert_ptr_nonnull(values);
        quant_decode_float(t->type, t->data.data, n, values);
        put_bytes(&wide, values, (size_t)n * sizeof *values);
        free(values);
        free_bytes(&t->data);
        t->data = wide;
        t->type = DT_F32;
    }
}

EditTensor *edit_add(Edit *e, const char *name, DType type, int dims, const int64_t *shape) {
    ck_assert_int_lt(e->n_tensors, EDIT_ROOM);
    EditTensor *t = &e->tensor[e->n_tensors++];
    *t = (EditTensor){ .type = type, .dims = dims };
    snprintf(t->name, sizeof t->name, "%s", name);
    size_t bytes = type == DT_F32 ? 4 : 1;
    for (int i = 0; i < dims; i++) bytes *= (size_t)(t->shape[i] = shape[i]);
    put_zeros(&t->data, bytes);
    return t;
}

float edit_get(const EditTensor *t, int64_t i) {
    float value;
    memcpy(&value, t->data.data + 4 * i, sizeof value);
    return value;
}

void edit_set(EditTensor *t, int64_t i, float value) { memcpy(t->data.data + 4 * i, &value, sizeof value); }
