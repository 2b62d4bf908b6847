/* identity.c - a model's numbers and its hash. [BND-4] */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/model.h"
#include "bundle.h"
#include "identity.h"
#include "output.h"
#include "sha256.h"

static json_t *real(double x) { return isfinite(x) ? json_real(x) : json_null(); }

json_t *config_json(const CloverConfig *c) {
    json_t *full = json_array(), *stops = json_array();
    for (int64_t l = 0; l < c->layers; l++)
        if (c->full_attention[l]) json_array_append_new(full, json_integer(l));
    for (int64_t i = 0; i < c->n_stops; i++) json_array_append_new(stops, json_integer(c->stops[i]));
    const struct { const char *name; int64_t value; } whole[] = {
        { "layers", c->layers }, { "hidden", c->hidden }, { "vocab", c->vocab }, { "context", c->context }, { "heads", c->heads }, { "kv_heads", c->kv_heads },
        { "head_width", c->head_width }, { "rotary_dims", c->rotary_dims }, { "key_heads", c->key_heads }, { "value_heads", c->value_heads }, { "key_width", c->key_width },
        { "value_width", c->value_width }, { "taps", c->taps }, { "experts", c->experts }, { "experts_used", c->experts_used }, { "expert_width", c->expert_width },
        { "shared_width", c->shared_width }, { "block", c->block }, { "mask_id", c->mask_id } };
    json_t *o = json_pack("{s:s, s:o, s:o, s:b, s:o, s:b, s:o, s:o, s:o}", "family", c->family == CLOVER_FAMILY_CLOVER ? "clover" : "base", "rope_base", real(c->rope_base),
                          "rms_eps", real(c->rms_eps), "tied", (int)c->tied, "threshold", real(c->threshold), "coreset_enabled", (int)c->coreset_enabled,
                          "coreset_top_p", real(c->coreset_top_p), "full_attention", full, "stops", stops);
    for (size_t i = 0; i < sizeof whole / sizeof *whole && o; i++)
        if (json_object_set_new(o, whole[i].name, json_integer(whole[i].value)) != 0) {
            json_decref(o);
            return NULL;
        }
    return o;
}

/* ---- the hash ------------------------------------------------------------------------------------------------------ */

static void add_length(Sha256 *s, uint64_t n) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(n >> (8 * i));
    sha256_add(s, bytes, sizeof bytes);
}

/* The first n bytes of a file behind their number. optional: a file that is not there counts as empty. */
static CloverStatus add_file(Sha256 *s, const char *path, uint64_t n, bool optional, CloverError *err) {
    char piece[65536];
    FILE *f = fopen(path, "rb");
    if (!f && optional && errno == ENOENT) {
        add_length(s, 0);
        return CLOVER_OK;
    }
    if (!f) return error_set(err, CLOVER_SYSTEM, "cannot read %s: %s", path, strerror(errno));
    if (n == UINT64_MAX) {
        n = fseek(f, 0, SEEK_END) == 0 && ftell(f) > 0 ? (uint64_t)ftell(f) : 0;
        rewind(f);
    }
    add_length(s, n);
    while (n > 0) {
        const size_t got = fread(piece, 1, n < sizeof piece ? (size_t)n : sizeof piece, f);
        if (got == 0) break;
        sha256_add(s, piece, got);
        n -= got;
    }
    fclose(f);
    return n == 0 ? CLOVER_OK : error_set(err, CLOVER_SYSTEM, "cannot read %s: it ends early or does not let itself be read", path);
}

/* Up to where the first tensor begins, of each of the model's files. */
static CloverStatus add_headers(Sha256 *s, const TensorList *tensors, CloverError *err) {
    CloverStatus status = CLOVER_OK;
    for (int64_t i = 0; i < tensors->n && status == CLOVER_OK; i++) {
        const char *file = tensors->tensor[i].file;
        bool seen = false;
        uint64_t start = tensors->tensor[i].offset;
        for (int64_t k = 0; k < i && !seen; k++) seen = strcmp(tensors->tensor[k].file, file) == 0;
        for (int64_t k = i; k < tensors->n && !seen; k++)
            if (tensors->tensor[k].offset < start && strcmp(tensors->tensor[k].file, file) == 0) start = tensors->tensor[k].offset;
        if (!seen) status = add_file(s, file, start, false, err);
    }
    return status;
}

static CloverStatus add_folder_files(Sha256 *s, const char *folder, CloverError *err) {
    static const char *const names[] = { "config.json", "generation_config.json", "tokenizer.json", NULL };
    for (const char *const *name = names; *name; name++) {
        char *path = text_format(err, "%s/%s", folder, *name);
        if (!path || add_file(s, path, UINT64_MAX, true, err) != CLOVER_OK) {
            free(path);
            return err->status;
        }
        free(path);
    }
    return CLOVER_OK;
}

static void add_tensors(Sha256 *s, const TensorList *tensors, bool full) {
    enum { START = 4096, PIECE = 1 << 24 };
    uint64_t total = 0;
    for (int64_t i = 0; i < tensors->n; i++) total += tensors->tensor[i].bytes;
    Progress p = progress_start("hashing the weights", (double)total);
    for (int64_t i = 0; i < tensors->n; i++) {
        const Tensor *t = &tensors->tensor[i];
        if (!full) sha256_add(s, t->data, t->bytes < START ? (size_t)t->bytes : START);
        for (uint64_t at = 0; full && at < t->bytes; at += PIECE) {
            const size_t n = t->bytes - at < PIECE ? (size_t)(t->bytes - at) : PIECE;
            sha256_add(s, t->data + at, n);
            progress_add(&p, (double)n);
        }
    }
    progress_end(&p);
}

CloverStatus model_identity(const CloverModel *model, bool full, char hex[65], CloverError *err) {
    Sha256 s;
    if (sha256_begin(&s, err) != CLOVER_OK) return err->status;
    CloverStatus status = add_headers(&s, &model->tensors, err);
    if (status == CLOVER_OK && model->safetensors) status = add_folder_files(&s, model->path, err);
    if (status == CLOVER_OK) add_tensors(&s, &model->tensors, full);
    CloverError own;
    const CloverStatus ended = sha256_end(&s, hex, &own);
    if (status == CLOVER_OK && ended != CLOVER_OK) return error_set(err, ended, "%s", own.text);
    return status;
}
