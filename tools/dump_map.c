/* dump_map.c - other engines' names and forms for our probes. [DMP-3, DMP-4]
 *
 * A map is JSON: {"STAGE": {"name": "their.{layer}.name", "or": "where that one is absent", "forms": ["transpose", {"part": 0, "of": 2}, ...]}, ...}. The forms
 * lead from theirs to ours, in that order. Dims of one and flattened heads need no form: an array of the right size whose
 * elements stand in our order is taken as it is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "../ref/math/rowwise.h"
#include "args.h"
#include "diff_parts.h"
#include "dump_parts.h"

extern const char *const builtin_map_transformers, *const builtin_map_llama_cpp;   /* dump_maps.c */

static const struct { const char *name; FormKind kind; } plain_forms[] = {
    { "transpose", FORM_TRANSPOSE }, { "swap_last", FORM_SWAP_LAST }, { "tiled", FORM_TILED }, { "expanded", FORM_EXPANDED },
    { "expanded_tiled", FORM_EXPANDED_TILED }, { "sigmoid", FORM_SIGMOID }, { "exp", FORM_EXP }, { "log", FORM_LOG }, { "negate", FORM_NEGATE },
    { "softmax", FORM_SOFTMAX },
};

static bool read_form(const json_t *j, Form *out) {
    json_int_t take, of;
    double scale;
    if (json_is_string(j)) {
        for (size_t i = 0; i < sizeof plain_forms / sizeof *plain_forms; i++)
            if (strcmp(json_string_value(j), plain_forms[i].name) == 0) {
                *out = (Form){ .kind = plain_forms[i].kind };
                return true;
            }
        return false;
    }
    json_t *m = (json_t *)(uintptr_t)j;
    if (json_unpack(m, "{s:I, s:I !}", "part", &take, "of", &of) == 0 && take >= 0 && of > take && of <= 16) {
        *out = (Form){ .kind = FORM_PART, .take = take, .of = of };
        return true;
    }
    if (json_unpack(m, "{s:[I, I] !}", "columns", &take, &of) == 0 && take >= 0 && of > take) {
        *out = (Form){ .kind = FORM_COLUMNS, .take = take, .of = of };
        return true;
    }
    if (json_unpack(m, "{s:F !}", "scale", &scale) == 0 && isfinite(scale) && scale != 0) {
        *out = (Form){ .kind = FORM_SCALE, .scale = scale };
        return true;
    }
    return false;
}

static CloverStatus read_entry(const char *where, const char *stage, json_t *j, MapEntry *e, CloverError *err) {
    json_t *forms = NULL;
    const char *name = NULL, *or_name = NULL;
    *e = (MapEntry){ .stage = stage };
    if (json_unpack(j, "{s:s, s?s, s?o !}", "name", &name, "or", &or_name, "forms", &forms) != 0 || (forms && !json_is_array(forms)))
        return error_set(err, CLOVER_BAD_INPUT, "%s: %s: expected {\"name\": \"...\", \"or\": \"...\", \"forms\": [...]}, the last two or not", where, stage);
    e->name = name;
    e->or_name = or_name;
    if (forms && json_array_size(forms) > MAP_MAX_FORMS) return error_set(err, CLOVER_BAD_INPUT, "%s: %s: more than %d forms", where, stage, MAP_MAX_FORMS);
    for (size_t i = 0; forms && i < json_array_size(forms); i++)
        if (!read_form(json_array_get(forms, i), &e->form[e->n_forms++]))
            return error_set(err, CLOVER_BAD_INPUT,
                             "%s: %s: form %zu is none of transpose, swap_last, tiled, expanded, expanded_tiled, sigmoid, exp, log, negate, softmax, {\"part\": i, \"of\": n}, "
                             "{\"columns\": [from, to]}, {\"scale\": x}", where, stage, i);
    return CLOVER_OK;
}

CloverStatus names_map_open(const char *map, DumpMap *out, CloverError *err) {
    *out = (DumpMap){ 0 };
    char *file = NULL;
    size_t length = 0;
    const char *text = strcmp(map, "transformers") == 0 ? builtin_map_transformers : strcmp(map, "llama.cpp") == 0 ? builtin_map_llama_cpp : NULL;
    if (!text) {
        CloverStatus status = read_whole_file(map, &file, &length, err);
        if (status != CLOVER_OK) return status;
        text = file;
    } else length = strlen(text);
    json_error_t where;
    out->root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
    free(file);
    if (!json_is_object(out->root)) {
        if (out->root) error_set(err, CLOVER_BAD_INPUT, "%s: expected a JSON object of stages, found something else", map);
        else error_set(err, CLOVER_BAD_INPUT, "%s: line %d: %s; expected a JSON object of stages", map, where.line, where.text);
        names_map_close(out);
        return err->status;
    }
    out->entry = calloc(json_object_size(out->root) + 1, sizeof *out->entry);
    if (!out->entry) {
        names_map_close(out);
        return error_memory(err, "a map", 0);
    }
    const char *stage;
    json_t *value;
    json_object_foreach(out->root, stage, value)
        if (strcmp(stage, "ids") != 0 && *stage_clause(stage, false) == '\0') {   /* it would be passed over in silence */
            error_set(err, CLOVER_BAD_INPUT, "%s: %s is no stage; SPEC PRB-2 names them (without a layer: gdn.beta, not L00.gdn.beta)", map, stage);
            names_map_close(out);
            return err->status;
        } else if (read_entry(map, stage, value, &out->entry[out->n++], err) != CLOVER_OK) {
            names_map_close(out);
            return err->status;
        }
    return CLOVER_OK;
}

void names_map_close(DumpMap *m) {
    json_decref(m->root);
    free(m->entry);
    *m = (DumpMap){ 0 };
}

const MapEntry *names_map_find(const DumpMap *m, const char *probe, int64_t *layer) {
    const char *stage = probe;
    *layer = -1;
    if (probe[0] == 'L' && probe[1] >= '0' && probe[1] <= '9') {
        char *end;
        *layer = strtoll(probe + 1, &end, 10);
        stage = *end == '.' ? end + 1 : probe;
    }
    for (int64_t i = 0; i < m->n; i++)
        if (strcmp(m->entry[i].stage, stage) == 0) return &m->entry[i];
    return NULL;
}

void names_map_name(const char *name, int64_t layer, char *out, size_t room) {
    const char *mark = strstr(name, "{layer}");
    if (mark) snprintf(out, room, "%.*s%lld%s", (int)(mark - name), name, (long long)layer, mark + strlen("{layer}"));
    else snprintf(out, room, "%s", name);
}

/* ---- forms ----------------------------------------------------------------------------------------------------- */

/* Values on their way, with their shape. */
typedef struct Array { double *v; int64_t shape[TENSOR_MAX_DIMS]; int dims; int64_t n; } Array;

static void squeeze(Array *a) {
    int dims = 0;
    for (int i = 0; i < a->dims; i++)
        if (a->shape[i] != 1) a->shape[dims++] = a->shape[i];
    a->dims = dims;
}

/* [rows, cols] -> [cols, rows], `outer` times. */
static bool swap(Array *a, int64_t outer, int64_t rows, int64_t cols) {
    double *out = malloc((size_t)a->n * sizeof *out + 1);
    if (!out) return false;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++) out[(o * cols + c) * rows + r] = a->v[(o * rows + r) * cols + c];
    free(a->v);
    a->v = out;
    return true;
}

/* Reverses all dims: element [i, j, k] goes to [k, j, i]. */
static bool reverse_dims(Array *a) {
    double *out = malloc((size_t)a->n * sizeof *out + 1);
    if (!out) return false;
    int64_t index[TENSOR_MAX_DIMS] = { 0 };
    for (int64_t i = 0; i < a->n; i++) {
        int64_t to = 0;
        for (int d = a->dims - 1; d >= 0; d--) to = to * a->shape[d] + index[d];
        out[to] = a->v[i];
        for (int d = a->dims - 1; d >= 0 && ++index[d] == a->shape[d]; d--) index[d] = 0;
    }
    free(a->v);
    a->v = out;
    for (int d = 0; d < a->dims / 2; d++) {
        const int64_t other = a->shape[d];
        a->shape[d] = a->shape[a->dims - 1 - d];
        a->shape[a->dims - 1 - d] = other;
    }
    return true;
}

/* Keeps, of each of `outer` runs of `pieces` pieces of `size` elements, the pieces that pick names, in that order. */
static void gather(Array *a, int64_t outer, int64_t pieces, int64_t size, const int64_t *pick, int64_t picked, double *out) {
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < picked; i++) memcpy(out + (o * picked + i) * size, a->v + (o * pieces + pick[i]) * size, (size_t)size * sizeof *out);
}

/* Value heads of the V columns of q | k | v rows [T, C], from tiled to grouped; q and k are not tiled. [TEN-7] */
static bool untile_channels(Array *a, const CloverConfig *c, int64_t T, CloverError *why) {
    const int64_t Hk = c->key_heads, Hv = c->value_heads, dv = c->value_width, K2 = 2 * Hk * c->key_width, C = K2 + Hv * dv;
    if (a->n != T * C) {
        error_set(why, CLOVER_BAD_INPUT, "%lld elements are no %lld rows of %lld channels", (long long)a->n, (long long)T, (long long)C);
        return false;
    }
    double *out = malloc((size_t)a->n * sizeof *out + 1);
    if (!out) return false;
    for (int64_t t = 0; t < T; t++) {
        memcpy(out + t * C, a->v + t * C, (size_t)K2 * sizeof *out);
        for (int64_t h = 0; h < Hv; h++)
            memcpy(out + t * C + K2 + h * dv, a->v + t * C + K2 + (h % (Hv / Hk) * Hk + h / (Hv / Hk)) * dv, (size_t)dv * sizeof *out);
    }
    free(a->v);
    a->v = out;
    a->dims = 0;
    return true;
}

/* Reorders or thins out heads. The stage tells where they stand: [T, heads, ...] or, in the state, [heads, ...]. */
static bool heads(Array *a, const char *stage, const Form *f, const CloverConfig *c, const int64_t *shape, CloverError *why) {
    const int64_t Hk = c->key_heads, Hv = c->value_heads, r = Hv / Hk;
    if (f->kind == FORM_TILED && (strcmp(stage, "gdn.qkv") == 0 || strcmp(stage, "gdn.conv") == 0)) return untile_channels(a, c, shape[0], why);
    const int64_t outer = strcmp(stage, "gdn.state") == 0 ? 1 : shape[0];
    int64_t pieces, pick[1024];
    if (Hv > 1024) {
        error_set(why, CLOVER_UNSUPPORTED, "more than 1024 value heads");
        return false;
    }
    int64_t picked;
    if (f->kind == FORM_TILED) {
        pieces = picked = Hv;
        for (int64_t h = 0; h < Hv; h++) pick[h] = h % r * Hk + h / r;   /* [TEN-7] */
    } else {
        pieces = Hv;
        picked = Hk;
        for (int64_t h = 0; h < Hk; h++) pick[h] = f->kind == FORM_EXPANDED ? h * r : h;
    }
    if (a->n % (outer * pieces) != 0) {
        error_set(why, CLOVER_BAD_INPUT, "%lld elements are no %lld rows of %lld heads", (long long)a->n, (long long)outer, (long long)pieces);
        return false;
    }
    const int64_t size = a->n / (outer * pieces), n = outer * picked * size;
    double *out = malloc((size_t)n * sizeof *out + 1);
    if (!out) return false;
    gather(a, outer, pieces, size, pick, picked, out);
    free(a->v);
    a->v = out;
    a->n = n;
    a->dims = 0;   /* flat from here on */
    return true;
}

/* Part `take` of `of` in every head: [T, heads, of, width] -> [T, heads, width]. */
static bool part(Array *a, const Form *f, const int64_t *shape, int dims, int64_t wanted, CloverError *why) {
    int64_t runs = 1;
    for (int i = 0; i + 1 < dims; i++) runs *= shape[i];
    const int64_t size = wanted / runs;
    if (a->n != runs * f->of * size) {
        error_set(why, CLOVER_BAD_INPUT, "%lld elements, expected %lld: %lld parts of %lld for each of %lld heads", (long long)a->n, (long long)(runs * f->of * size),
                  (long long)f->of, (long long)size, (long long)runs);
        return false;
    }
    double *out = malloc((size_t)wanted * sizeof *out + 1);
    if (!out) return false;
    gather(a, runs, f->of, size, &f->take, 1, out);
    free(a->v);
    a->v = out;
    a->n = wanted;
    a->dims = 0;
    return true;
}

/* Columns from..to of rows that are a->n / T wide. */
static bool columns(Array *a, const Form *f, const int64_t *shape, CloverError *why) {
    const int64_t T = shape[0], width = T ? a->n / T : 0, n = f->of - f->take;
    if (T == 0 || a->n % T || f->of > width) {
        error_set(why, CLOVER_BAD_INPUT, "rows of %lld have no columns %lld to %lld", (long long)width, (long long)f->take, (long long)f->of);
        return false;
    }
    double *out = malloc((size_t)(T * n) * sizeof *out + 1);
    if (!out) return false;
    for (int64_t t = 0; t < T; t++) memcpy(out + t * n, a->v + t * width + f->take, (size_t)n * sizeof *out);
    free(a->v);
    a->v = out;
    a->n = T * n;
    a->dims = 0;
    return true;
}

static bool apply_form(Array *a, const char *stage, const Form *f, const CloverConfig *c, const int64_t *shape, int dims, int64_t wanted, CloverError *why) {
    switch (f->kind) {
    case FORM_TRANSPOSE: return reverse_dims(a);
    case FORM_SWAP_LAST: {
        if (a->dims < 2) {
            error_set(why, CLOVER_BAD_INPUT, "an array of fewer than two dims cannot be swapped");
            return false;
        }
        const int64_t rows = a->shape[a->dims - 2], cols = a->shape[a->dims - 1];
        a->shape[a->dims - 2] = cols, a->shape[a->dims - 1] = rows;
        return swap(a, rows > 0 && cols > 0 ? a->n / (rows * cols) : 0, rows, cols);
    }
    case FORM_TILED: case FORM_EXPANDED: case FORM_EXPANDED_TILED:
        if (c) return heads(a, stage, f, c, shape, why);
        error_set(why, CLOVER_USAGE, "head forms need the model: give --model");
        return false;
    case FORM_PART: return part(a, f, shape, dims, wanted, why);
    case FORM_COLUMNS: return columns(a, f, shape, why);
    case FORM_SIGMOID: for (int64_t i = 0; i < a->n; i++) a->v[i] = sigmoid(a->v[i]); return true;
    case FORM_EXP: for (int64_t i = 0; i < a->n; i++) a->v[i] = exp(a->v[i]); return true;
    case FORM_LOG: for (int64_t i = 0; i < a->n; i++) a->v[i] = log(a->v[i]); return true;
    case FORM_NEGATE: for (int64_t i = 0; i < a->n; i++) a->v[i] = -a->v[i]; return true;
    case FORM_SOFTMAX:
        if (shape[0] == 0 || a->n % shape[0]) {
            error_set(why, CLOVER_BAD_INPUT, "%lld elements are no %lld rows", (long long)a->n, (long long)shape[0]);
            return false;
        }
        for (int64_t t = 0; t < shape[0]; t++) softmax(a->v + t * (a->n / shape[0]), a->n / shape[0]);
        return true;
    case FORM_SCALE: for (int64_t i = 0; i < a->n; i++) a->v[i] *= f->scale; return true;
    }
    return false;
}

/* May elements that stand as `have` be ours in the same order? The rows lead, whatever the rest is cut into; or some of our
 * neighbouring dims are one. A transposed array is neither (unless its dims happen to be equal). */
static bool order_is_ours(const Array *a, const int64_t *shape, int dims) {
    int64_t edge = 1, ours = 1;
    int k = 0;
    for (int i = 0; i < a->dims; i++) {
        edge *= a->shape[i];
        if (edge == shape[0]) return true;
        while (k < dims && ours < edge) ours *= shape[k++];
        if (ours != edge) return false;
    }
    return true;
}

bool names_map_apply(const MapEntry *e, const CloverConfig *c, const double *values, const int64_t *have, int have_dims, const int64_t *shape, int dims,
               double *out, CloverError *why) {
    Array a = { .dims = have_dims, .n = 1 };
    int64_t wanted = 1;
    for (int i = 0; i < have_dims; i++) a.n *= a.shape[i] = have[i];
    for (int i = 0; i < dims; i++) wanted *= shape[i];
    error_set(why, CLOVER_SYSTEM, "out of memory");
    a.v = malloc((size_t)a.n * sizeof *a.v + 1);
    bool ok = a.v != NULL;
    if (ok) memcpy(a.v, values, (size_t)a.n * sizeof *a.v);
    squeeze(&a);
    for (int i = 0; ok && i < e->n_forms; i++) ok = apply_form(&a, e->stage, &e->form[i], c, shape, dims, wanted, why);
    if (ok && a.n != wanted) {
        error_set(why, CLOVER_BAD_INPUT, "after the map's forms %lld elements, expected %lld", (long long)a.n, (long long)wanted);
        ok = false;
    }
    if (ok && dims > 0 && wanted > 0 && shape[0] != 1 && !order_is_ours(&a, shape, dims)) {
        error_set(why, CLOVER_BAD_INPUT, "its first dim is %lld, expected the %lld rows first: transposed? (form \"transpose\")", (long long)a.shape[0], (long long)shape[0]);
        ok = false;
    }
    if (ok) memcpy(out, a.v, (size_t)wanted * sizeof *out);
    free(a.v);
    return ok;
}
