/* lint_folder.c - a Hugging Face folder as far as it goes: config.json, the shards' headers. [LNT-2]
 *
 * As lint_gguf.c: what the loader (ref/files/safetensors.c) refuses is a finding here, and the reading goes on. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "lint.h"

enum { MAX_HEADER = 100000000, MAX_SHARDS = 65536, PATH_ROOM = 4096 };
static const char extension[] = ".safetensors", index_name[] = "model.safetensors.index.json";

/* FOLDER/NAME; false: too long. */
static bool in_folder(const LintFile *f, const char *name, char path[PATH_ROOM]) {
    return snprintf(path, PATH_ROOM, "%s/%s", f->path, name) < PATH_ROOM;
}

/* ---- JSON files ---------------------------------------------------------------------------------------------------- */

/* The object in a file of the folder; NULL when there is none, or (said) it is none. */
static json_t *load(const LintFile *f, const char *name, LintId id, Report *r) {
    char path[PATH_ROOM];
    struct stat found;
    Map map;
    CloverError err = { 0 };
    json_error_t at;
    if (!in_folder(f, name, path) || stat(path, &found) != 0) return NULL;
    if (map_open(path, &map, &err) != CLOVER_OK) {
        if (err.status == CLOVER_SYSTEM && errno == ENOMEM) r->no_memory = true;
        else report_add(r, id, BREAKS, CLOVER | TRANSFORMERS, NULL, "%s", err.text);
        return NULL;
    }
    errno = 0;
    json_t *root = json_loadb((const char *)map.data, (size_t)map.bytes, 0, &at);
    if (errno == ENOMEM) r->no_memory = true;                    /* jansson may call it a mistake in the text, or lose a member */
    map_close(&map);
    if (json_is_object(root)) return root;
    if (root) report_add(r, id, BREAKS, CLOVER | TRANSFORMERS, NULL, "%s is no JSON object", name);
    else report_add(r, id, BREAKS, CLOVER | TRANSFORMERS, NULL, "%s, line %d: not valid JSON: %s", name, at.line, at.text);
    json_decref(root);
    return NULL;
}

static bool contains(const Map *map, const char *text) {
    const size_t n = strlen(text);
    for (const uint8_t *p = map->data, *end = map->data + map->bytes; (uint64_t)(end - p) >= n; p++) {
        p = memchr(p, text[0], (size_t)(end - p) - n + 1);
        if (!p) return false;
        if (memcmp(p, text, n) == 0) return true;
    }
    return false;
}

/* tokenizer.json may have tens of megabytes: looked through, not parsed. */
static void look_at_tokenizer(LintFile *f) {
    char path[PATH_ROOM];
    Map map;
    CloverError err = { 0 };
    if (!in_folder(f, "tokenizer.json", path) || map_open(path, &map, &err) != CLOVER_OK) return;
    f->has_tokenizer = true;
    f->has_mask_token = contains(&map, "\"<|mask|>\"");
    f->splits_otherwise = contains(&map, "\"Regex\"") && !contains(&map, "\\\\p{L}\\\\p{M}]+");    /* [TOK-1]: marks stay with letters */
    map_close(&map);
}

/* ---- one shard ----------------------------------------------------------------------------------------------------- */

static DType dtype_of(const char *name) {
    static const struct { const char *name; DType type; } types[] = {
        { "F64", DT_F64 }, { "F32", DT_F32 }, { "F16", DT_F16 }, { "BF16", DT_BF16 }, { "I64", DT_I64 }, { "I32", DT_I32 }, { "I16", DT_I16 },
                { "I8", DT_I8 }, { "U8", DT_U8 },
        { "U16", DT_U16 }, { "U32", DT_U32 }, { "U64", DT_U64 }, { "BOOL", DT_BOOL }, { "F8_E4M3", DT_F8_E4M3 }, { "F8_E5M2", DT_F8_E5M2 },
    };
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) return types[i].type;
    return DT_UNKNOWN;
}

/* A list of at most `most` whole numbers >= 0; -1: it is none. */
static int numbers(const json_t *array, int most, int64_t *out) {
    const size_t n = json_array_size(array);
    if (!json_is_array(array) || n > (size_t)most) return -1;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(array, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0) return -1;
        out[i] = (int64_t)json_integer_value(v);
    }
    return (int)n;
}

static bool read_entry(LintFile *f, const Map *map, uint64_t start, const char *name, const json_t *entry, Report *r) {
    Tensor t = { .file = map->path };
    int64_t span[2];
    char shown[NAME_SHOWN];
    name_show(name, strlen(name), shown);
    t.dims = numbers(json_object_get(entry, "shape"), TENSOR_MAX_DIMS, t.shape);
    if (t.dims < 0 || !tensor_count_elements(&t) || numbers(json_object_get(entry, "data_offsets"), 2, span) != 2 || span[0] > span[1]) {
        report_add(r, TENSOR_SHAPE, BREAKS, CLOVER | TRANSFORMERS, NULL, "%s has no proper shape and data_offsets", shown);
        return true;
    }
    t.type = dtype_of(json_string_value(json_object_get(entry, "dtype")));
    t.bytes = (uint64_t)(span[1] - span[0]);
    t.offset = start + (uint64_t)span[0];
    const int64_t bytes = dtype_bytes(t.type, t.elements);
    if (dtype_info(t.type) && (bytes < 0 || (uint64_t)bytes != t.bytes)) {
        report_add(r, TENSOR_SHAPE, BREAKS, CLOVER | TRANSFORMERS, NULL, "%s has %llu bytes by its data_offsets, %lld by its shape and type", shown,
                   (unsigned long long)t.bytes, (long long)bytes);
        return true;
    }
    if ((uint64_t)span[1] > map->bytes - start)
        report_add(r, TRUNCATED, BREAKS, CLOVER | TRANSFORMERS, NULL, "%s ends %llu bytes behind its file's end", shown,
                   (unsigned long long)span[1] - (map->bytes - start));
    else t.data = map->data + t.offset;
    return lint_add_tensor(f, r, name, strlen(name), &t);
}

/* Tensors of one shard by offset: no hole, no overlap. */
static void check_places(Tensor *tensor, int64_t n, uint64_t start, const Map *map, Report *r) {
    uint64_t at = start;
    Tensor **sorted = tensors_sorted(tensor, n);
    if (!sorted) { r->no_memory = true; return; }
    for (int64_t i = 0; i < n; i++) {
        const Tensor *t = sorted[i];
        if (t->offset != at && t->bytes)
            report_add(r, ALIGNMENT, BREAKS, CLOVER | TRANSFORMERS, t->name, "%s begins at byte %llu, the one before it ends at %llu", t->name,
                       (unsigned long long)t->offset, (unsigned long long)at);
        if (t->offset + t->bytes > at) at = t->offset + t->bytes;
    }
    if (n > 0 && at < map->bytes)
        report_add(r, ALIGNMENT, BREAKS, CLOVER | TRANSFORMERS, NULL, "%llu bytes at the end of a shard belong to no tensor",
                   (unsigned long long)(map->bytes - at));
    free(sorted);
}

/* False: its header cannot be read. */
static bool read_shard(LintFile *f, const Map *map, const char *shown, Report *r) {
    const uint64_t header = map->bytes >= 8 ? le64(map->data) : 0;
    if (map->bytes < 8 || header > MAX_HEADER || header > map->bytes - 8) {
        report_add(r, TRUNCATED, BREAKS, CLOVER | TRANSFORMERS, NULL, "%s: its header needs %llu bytes, the file has %llu", shown,
                   (unsigned long long)header + 8, (unsigned long long)map->bytes);
        return false;
    }
    json_error_t at;
    errno = 0;
    json_t *root = json_loadb((const char *)map->data + 8, (size_t)header, 0, &at), *entry;
    const char *name;
    const int64_t before = f->tensors.n;
    if (errno == ENOMEM) r->no_memory = true;
    if (!json_is_object(root)) {
        report_add(r, TRUNCATED, BREAKS, CLOVER | TRANSFORMERS, NULL, "%s: its header is no JSON object", shown);
        json_decref(root);
        return false;
    }
    bool more = true;
    json_object_foreach(root, name, entry)
        if (more && strcmp(name, "__metadata__") != 0) more = read_entry(f, map, 8 + header, name, entry, r);
    json_decref(root);
    if (more) check_places(f->tensors.tensor + before, f->tensors.n - before, 8 + header, map, r);
    return true;
}

/* ---- which shards -------------------------------------------------------------------------------------------------- */

typedef struct Shards { char *name[MAX_SHARDS]; int64_t n; } Shards;

static void add_shard(Shards *s, const char *name, Report *r) {
    for (int64_t i = 0; i < s->n; i++)
        if (strcmp(s->name[i], name) == 0) return;
    if (s->n == MAX_SHARDS) return;
    char *copy = strdup(name);
    if (copy) s->name[s->n++] = copy;
    else r->no_memory = true;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void list_indexed(const json_t *index, Shards *s, Report *r) {
    const char *tensor;
    json_t *file;
    json_object_foreach((json_t *)(uintptr_t)json_object_get(index, "weight_map"), tensor, file) {
        const char *name = json_string_value(file);
        if (name && name[0] && !strchr(name, '/')) add_shard(s, name, r);
        else report_add(r, SPLIT_PART_MISSING, BREAKS, CLOVER | TRANSFORMERS, NULL, "%s names no file of the folder for a tensor", index_name);
    }
}

/* Without an index: what lies there, and by the names that count what should. */
static void list_folder(const LintFile *f, Shards *s, Report *r) {
    DIR *dir = opendir(f->path);
    PartName part;
    const size_t end = strlen(extension);
    if (!dir && errno == ENOMEM) r->no_memory = true;
    for (struct dirent *entry; dir && (entry = readdir(dir)); ) {
        const size_t n = strlen(entry->d_name);
        if (entry->d_name[0] != '.' && n > end && strcmp(entry->d_name + n - end, extension) == 0) add_shard(s, entry->d_name, r);
    }
    if (dir) closedir(dir);
    if (s->n == 0 || !part_name_parse(s->name[0], extension, &part) || part.parts > MAX_SHARDS) return;
    const int64_t there = s->n;
    const char *first = s->name[0];
    for (int i = 1; i <= part.parts && there < part.parts; i++) {
        char *name = part_name_make(first, &part, i, extension);
        if (name) add_shard(s, name, r);
        free(name);
    }
}

static void read_shards(LintFile *f, Shards *s, Report *r, CloverError *err) {
    f->map = calloc(s->n ? (size_t)s->n : 1, sizeof *f->map);
    if (!f->map) { r->no_memory = true; return; }
    if (s->n) qsort(s->name, (size_t)s->n, sizeof *s->name, by_name);
    for (int64_t i = 0; i < s->n && err->status != CLOVER_SYSTEM && !r->no_memory; i++) {
        char path[PATH_ROOM], shown[NAME_SHOWN];
        struct stat found;
        name_show(s->name[i], strlen(s->name[i]), shown);
        Map *map = &f->map[f->maps];
        if (!in_folder(f, s->name[i], path) || stat(path, &found) != 0) {
            report_add(r, SPLIT_PART_MISSING, BREAKS, CLOVER | TRANSFORMERS, NULL, "shard %s is not there", shown);
            f->whole = false;
        } else if (map_open(path, map, err) != CLOVER_OK) {
            report_add(r, TRUNCATED, BREAKS, CLOVER | TRANSFORMERS, NULL, "shard %s cannot be read", shown);
            f->whole = false;
        } else {
            f->maps++;
            f->bytes += map->bytes;
            if (!read_shard(f, map, shown, r)) f->whole = false;
        }
    }
}

CloverStatus lint_read_folder(const char *path, LintFile *f, Report *r, CloverError *err) {
    error_clear(err);
    f->path = path;
    f->form = NAMES_HF;
    f->whole = true;
    f->config = load(f, "config.json", KEY_MISSING, r);
    f->generation = load(f, "generation_config.json", KEY_CONTRADICTS, r);
    f->text = json_object_get(f->config, "text_config");
    if (!json_is_object(f->text)) f->text = f->config;
    look_at_tokenizer(f);

    Shards *shards = calloc(1, sizeof *shards);
    if (!shards) return error_memory(err, "the list of shards", sizeof *shards);
    json_t *index = load(f, index_name, SPLIT_PART_MISSING, r);
    if (json_is_object(json_object_get(index, "weight_map"))) list_indexed(index, shards, r);
    else list_folder(f, shards, r);
    json_decref(index);
    const bool none = shards->n == 0;
    read_shards(f, shards, r, err);
    for (int64_t i = 0; i < shards->n; i++) free(shards->name[i]);
    free(shards);
    if (r->no_memory) return error_memory(err, "the list of tensors", (size_t)f->tensors.n * sizeof(Tensor));
    if (err->status == CLOVER_SYSTEM) return err->status;
    if (none)
        return error_set(err, CLOVER_BAD_INPUT,
                         "%s: no *.safetensors file lies there; give the folder that holds them beside config.json, or a .gguf file", path);
    if (!f->config && f->maps == 0) return error_set(err, CLOVER_BAD_INPUT, "%s: neither config.json nor a shard can be read", path);
    error_clear(err);
    if (!f->config && !report_has(r, KEY_MISSING)) report_add(r, KEY_MISSING, BREAKS, CLOVER | TRANSFORMERS, NULL, "config.json is not there");
    return CLOVER_OK;
}
