/* engine.c - runs the steps with an engine's rules and writes what it dumps. */
#include "engine.h"
#include <math.h>
#include "../ref/files/quant.h"
#include "safetensors_build.h"

/* 261 is the mask of every test model. */
const EngineStep engine_steps[] = {
    { "prompt", 'c', { 72, 101, 108, 108, 111, 44, 32, 119, 111, 114, 108, 100 }, 12 },
    { "mid", 's', { 0 }, 0 },
    { "block", 'p', { 261, 261, 105, 261, 261, 116 }, 6 },
    { "more", 'c', { 65, 66, 67, 68 }, 4 },
    { "mid", 'r', { 0 }, 0 },
    { "again", 'c', { 97, 98, 99 }, 3 },
};
const int n_engine_steps = sizeof engine_steps / sizeof *engine_steps;

/* ---- what is dumped ---------------------------------------------------------------------------------------------- */

typedef struct Kept { const Engine *engine; const char *step; SafetensorsBuild file; } Kept;

/* The values as the type holds them; free it. */
static void *stored(const double *data, int64_t n, DType type) {
    uint8_t *out = malloc((size_t)n * 8 + 1);
    ck_assert_ptr_nonnull(out);
    for (int64_t i = 0; i < n; i++) {
        const float f = (float)data[i];
        const int32_t whole = type == DT_I32 ? (int32_t)data[i] : 0;
        const float rounded = (float)round_to(STORE_BF16, data[i]);
        uint16_t half = half_from_float(f);
        switch (type) {
        case DT_F64: memcpy(out + 8 * i, &data[i], 8); break;
        case DT_F32: memcpy(out + 4 * i, &f, 4); break;
        case DT_F16: memcpy(out + 2 * i, &half, 2); break;
        case DT_BF16: memcpy(out + 2 * i, (const uint8_t *)&rounded + 2, 2); break;
        default: memcpy(out + 4 * i, &whole, 4);
        }
    }
    return out;
}

static void keep(void *user, const char *name, double *data, const int64_t *shape, int dims) {
    Kept *k = user;
    const Engine *e = k->engine;
    if (e->wants && !e->wants(e->user, k->step, name)) return;
    int64_t n = 1;
    for (int i = 0; i < dims; i++) n *= shape[i];
    double *copy = malloc((size_t)n * sizeof *copy + 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, data, (size_t)n * sizeof *copy);
    int64_t shown[4];
    memcpy(shown, shape, (size_t)dims * sizeof *shape);
    if (e->shows) e->shows(e->user, k->step, name, copy, shown, dims);
    n = 1;
    for (int i = 0; i < dims; i++) n *= shown[i];    /* fewer, perhaps */
    const DType type = strstr(name, "moe.ids") ? DT_I32 : e->type;
    void *bytes = stored(copy, n, type);
    build_safetensor(&k->file, name, dtype_info(type)->name, dims, shown, bytes, (size_t)dtype_bytes(type, n));
    free(bytes);
    free(copy);
}

void engine_dump(const CloverModel *model, const Engine *e, const char *folder) {
    CloverError err;
    CloverSession *s;
    CloverSnapshot *mid = NULL;
    CloverSessionOptions o = clover_session_defaults();
    o.numerics = e->numerics;
    o.coreset_top_p = e->coreset_top_p;
    o.capacity = 64;
    assert_ok(clover_session_new(model, &o, &s, &err), err);
    EngineRules rules = { trunk_rules, { attn_causal, attn_preview }, { gdn_causal, gdn_preview }, { moe_causal, moe_preview } };
    if (e->fault && e->fault->rules) e->fault->rules(&rules);
    if (e->fault && e->fault->session) e->fault->session(s);
    s->rules = (Rules){ &rules.trunk, &rules.attn[0], &rules.attn[1], &rules.gdn[0], &rules.gdn[1], &rules.moe[0], &rules.moe[1] };
    double *logits = malloc((size_t)(16 * s->c.vocab) * sizeof *logits);
    Kept kept = { .engine = e };
    for (int i = 0; i < n_engine_steps; i++) {
        const EngineStep *st = &engine_steps[i];
        kept.step = st->name;
        clover_session_watch(s, keep, &kept);
        if (st->kind == 's') assert_ok(clover_snapshot_take(s, &mid, &err), err);
        else if (st->kind == 'r') assert_ok(clover_snapshot_restore(s, mid, &err), err);
        else if (st->kind == 'c') assert_ok(clover_commit(s, st->ids, st->n, logits, st->n, &err), err);
        else assert_ok(clover_preview(s, st->ids, st->n, logits, &err), err);
        if (e->fault && e->fault->after) e->fault->after(s, st->kind == 'r' ? "restore" : st->name);
        if (st->n == 0 || (e->wants && !e->wants(e->user, st->name, ""))) continue;
        char name[64];
        snprintf(name, sizeof name, "%s.safetensors", st->name);
        if (!e->wants || e->wants(e->user, st->name, "ids"))
            build_safetensor(&kept.file, "ids", "I32", 1, &st->n, st->ids, (size_t)st->n * sizeof *st->ids);
        Bytes file = build_safetensors(&kept.file);
        unlink(in_folder(folder, name));             /* to be made anew is faster than to be cut short */
        write_file(in_folder(folder, name), file.data, file.n);
        free_bytes(&file);
    }
    clover_snapshot_free(mid);
    clover_session_free(s);
    free(logits);
}

/* ---- the golden's case ------------------------------------------------------------------------------------------- */

void engine_cases(const char *path, double coreset_top_p) {
    char text[4096];
    size_t n = (size_t)snprintf(text, sizeof text, "{\"cases\": [{\"name\": \"case\", \"probes\": [\"*\"], \"options\": {\"coreset_top_p\": ");
    n += (size_t)(coreset_top_p < 0 ? snprintf(text + n, sizeof text - n, "\"off\"}, \"steps\": [") : snprintf(text + n, sizeof text - n, "%.17g}, \"steps\": [", coreset_top_p));
    for (int i = 0; i < n_engine_steps; i++) {
        const EngineStep *st = &engine_steps[i];
        if (i) n += (size_t)snprintf(text + n, sizeof text - n, ", ");
        if (st->kind == 's' || st->kind == 'r') {
            n += (size_t)snprintf(text + n, sizeof text - n, "{\"%s\": \"%s\"}", st->kind == 's' ? "snapshot" : "restore", st->name);
            continue;
        }
        n += (size_t)snprintf(text + n, sizeof text - n, "{\"name\": \"%s\", \"%s\": [", st->name, st->kind == 'c' ? "commit" : "preview");
        for (int64_t k = 0; k < st->n; k++) n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", k ? ", " : "", (int)st->ids[k]);
        n += (size_t)snprintf(text + n, sizeof text - n, "]}");
    }
    n += (size_t)snprintf(text + n, sizeof text - n, "]}]}");
    write_file(path, text, n);
}

void engine_probe(const CloverModel *model, const Fault *f, char *out, size_t room) {
    const CloverConfig *c = clover_model_config(model);
    int64_t layer = 0;
    if (f->probe[1] != '.' || !strchr("AG0", f->probe[0])) {
        snprintf(out, room, "%s", f->probe);
        return;
    }
    if (f->probe[0] != '0')
        while (c->full_attention[layer] != (f->probe[0] == 'A')) layer++;
    snprintf(out, room, "L%02lld.%s", (long long)layer, f->probe + 2);
}
