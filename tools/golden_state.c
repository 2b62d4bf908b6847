/* golden_state.c - a session's state, and the snapshots still needed, as one safetensors file. [BND-7] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "../ref/files/safetensors.h"
#include "../ref/forward.h"
#include "golden.h"
#include "safetensors_write.h"

/* One value of a layer's state. */
typedef struct Piece { char name[64]; double *data; int64_t n; } Piece;
enum { PIECES = 2 };                                     /* of a layer: k and v, or ring and S */

static void pieces_of(const State *s, const char *prefix, int64_t l, Piece piece[PIECES]) {
    const CloverConfig *c = s->c;
    const LayerState *layer = &s->layer[l];
    const bool full = c->full_attention[l];
    const int64_t kv = s->position * c->kv_heads * c->head_width, channels = 2 * c->key_heads * c->key_width + c->value_heads * c->value_width;
    piece[0] = (Piece){ .data = full ? layer->k : layer->ring, .n = full ? kv : (c->taps - 1) * channels };
    piece[1] = (Piece){ .data = full ? layer->v : layer->S, .n = full ? kv : c->value_heads * c->key_width * c->value_width };
    snprintf(piece[0].name, sizeof piece[0].name, "%.32s.L%02lld.%s", prefix, (long long)l, full ? "k" : "ring");
    snprintf(piece[1].name, sizeof piece[1].name, "%.32s.L%02lld.%s", prefix, (long long)l, full ? "v" : "S");
}

/* ---- saving -------------------------------------------------------------------------------------------------------- */

typedef struct Arrays { NamedArray *array; char (*name)[64]; int64_t n; } Arrays;   /* [n] each */

static void put(Arrays *a, const char *name, DType type, const void *data, int64_t n) {
    snprintf(a->name[a->n], sizeof *a->name, "%.63s", name);
    a->array[a->n] = (NamedArray){ .name = a->name[a->n], .type = type, .dims = 1, .shape = { n }, .data = data };
    a->n++;
}

static void put_state(Arrays *a, const char *prefix, const State *s) {
    Piece piece[PIECES];
    char name[64];
    snprintf(name, sizeof name, "%s.position", prefix);
    put(a, name, DT_I64, &s->position, 1);
    for (int64_t l = 0; l < s->c->layers; l++) {
        pieces_of(s, prefix, l, piece);
        for (int i = 0; i < PIECES; i++) put(a, piece[i].name, DT_F64, piece[i].data, piece[i].n);
    }
}

CloverStatus state_save(const char *path, const char *case_name, int64_t calls, const CloverSession *s, KeptSnapshot *const *kept, int64_t n_kept, CloverError *err) {
    const size_t most = (size_t)((n_kept + 1) * (PIECES * s->c.layers + 1));
    Arrays a = { .array = malloc(most * sizeof *a.array), .name = malloc(most * sizeof *a.name) };
    char prefix[40], count[24];
    CloverStatus status = CLOVER_OK;
    if (a.array && a.name) {
        put_state(&a, "state", &s->state);
        for (int64_t i = 0; i < n_kept; i++) {
            if (kept[i]->released || !kept[i]->snapshot) continue;
            snprintf(prefix, sizeof prefix, "snapshot%lld", (long long)kept[i]->call);
            put_state(&a, prefix, &kept[i]->snapshot->state);
        }
        snprintf(count, sizeof count, "%lld", (long long)calls);
        const char *const metadata[] = { "case", case_name, "calls", count, NULL };
        status = safetensors_save(path, a.array, a.n, metadata, err);
    } else status = error_memory(err, "the list of a state's values", most * (sizeof *a.array + sizeof *a.name));
    free(a.array);
    free(a.name);
    return status;
}

/* ---- loading ------------------------------------------------------------------------------------------------------- */

static bool take(const Safetensors *f, const char *name, DType type, void *data, int64_t n) {
    const Tensor *t = safetensors_tensor(f, name);
    if (!t || t->type != type || t->elements != n) return false;
    if (n > 0) memcpy(data, t->data, (size_t)n * 8);     /* F64 and I64 alike */
    return true;
}

/* Into the session's own state; false: the file has no such state, or not of this shape. */
static bool take_state(const Safetensors *f, const char *prefix, CloverSession *s) {
    Piece piece[PIECES];
    char name[64];
    int64_t position;
    snprintf(name, sizeof name, "%s.position", prefix);
    if (!take(f, name, DT_I64, &position, 1) || position < 0 || position > s->state.capacity) return false;
    s->state.position = position;
    for (int64_t l = 0; l < s->c.layers; l++) {
        pieces_of(&s->state, prefix, l, piece);
        for (int i = 0; i < PIECES; i++)
            if (!take(f, piece[i].name, DT_F64, piece[i].data, piece[i].n)) return false;
    }
    return true;
}

static bool take_snapshot(const Safetensors *f, CloverSession *s, KeptSnapshot *k) {
    char prefix[40], name[64];
    CloverError ignored;
    snprintf(prefix, sizeof prefix, "snapshot%lld", (long long)k->call);
    snprintf(name, sizeof name, "%s.position", prefix);
    if (!safetensors_tensor(f, name)) return true;       /* nobody needed it any more when the file was written */
    return take_state(f, prefix, s) && s->state.position == k->position && clover_snapshot_take(s, &k->snapshot, &ignored) == CLOVER_OK;
}

int64_t state_load(const char *path, const char *case_name, int64_t at_most, CloverSession *s, KeptSnapshot *const *kept, int64_t n_kept) {
    Safetensors *f = NULL;
    CloverError ignored;
    if (safetensors_open(path, &f, &ignored) != CLOVER_OK) return 0;
    const char *name = safetensors_metadata(f, "case"), *count = safetensors_metadata(f, "calls");
    int64_t calls = 0;
    bool ok = name && strcmp(name, case_name) == 0 && count && arg_int(count, &calls) && calls > 0 && calls <= at_most;
    for (int64_t i = 0; i < n_kept && ok; i++)
        if (kept[i]->call < calls) ok = take_snapshot(f, s, kept[i]);
    ok = ok && take_state(f, "state", s);
    safetensors_close(f);
    if (ok) return calls;
    for (int64_t i = 0; i < n_kept; i++) {
        clover_snapshot_free(kept[i]->snapshot);
        kept[i]->snapshot = NULL;
    }
    clover_session_reset(s);
    return 0;
}
