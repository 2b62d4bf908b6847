/* safetensors.c - reading safetensors files and folders of them. [SFT-1]
 *
 * A file is a u64 length, that many bytes of JSON, and data. The JSON has one entry a tensor: dtype, shape and
 * data_offsets [begin, end), counted from the data's start; together they must cover the data without hole or overlap.
 * Only the header is read when a file is opened. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <jansson.h>
#include "../error.h"
#include "map.h"
#include "names.h"
#include "safetensors.h"

enum { MAX_HEADER = 100000000 };     /* the format's own limit */
static const char extension[] = ".safetensors", index_name[] = "model.safetensors.index.json";

struct Safetensors {
    Map *part;                       /* [parts] */
    int64_t parts;
    TensorList tensors;
    int64_t tensor_room;
    Names tensor_names;
    json_t *metadata;                /* the first file's __metadata__, or NULL */
};

static DType dtype_of(const char *name) {
    static const struct { const char *name; DType type;
    } types[] = { { "F64", DT_F64 },   { "F32", DT_F32 },         { "F16", DT_F16 },        { "BF16", DT_BF16 },
                  { "I64", DT_I64 },   { "I32", DT_I32 },         { "I16", DT_I16 },        { "I8", DT_I8 },
                  { "U64", DT_U64 },   { "U32", DT_U32 },         { "U16", DT_U16 },        { "U8", DT_U8 },
                  { "BOOL", DT_BOOL }, { "F8_E4M3", DT_F8_E4M3 }, { "F8_E5M2", DT_F8_E5M2 } };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, name) == 0) return types[i].type;
    return DT_UNKNOWN;
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

/* NULL, with a problem noted, when the text is no JSON object. */
static json_t *parse_object(const char *text, size_t bytes, const char *path, const char *what, CloverError *err) {
    json_error_t error;
    char shown[NAME_SHOWN];
    errno = 0;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (errno == ENOMEM)                                         /* jansson may call it a mistake in the text, or lose characters */
        error_memory(err, what, bytes);
    else if (json_is_object(root))
        return root;
    else if (root)
        error_add(err, CLOVER_BAD_INPUT, "%s: %s is JSON, but no object; the file is damaged", path, what);
    else
        error_add(err, CLOVER_BAD_INPUT, "%s: %s is no proper JSON at byte %d: %s" FILE_WRONG, path, what, error.position,
                  name_show(error.text, strlen(error.text), shown));
    json_decref(root);
    return NULL;
}

/* An array of n whole numbers >= 0; false when it is none, or its length is not in [least, most]. */
static bool read_sizes(const json_t *array, size_t least, size_t most, int64_t *out, size_t *n) {
    *n = json_array_size(array);                                 /* 0 when it is no array */
    if (!json_is_array(array) || *n < least || *n > most) return false;
    for (size_t i = 0; i < *n; i++) {
        const json_t *item = json_array_get(array, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0) return false;
        out[i] = json_integer_value(item);
    }
    return true;
}

/* ---- one file ------------------------------------------------------------------------------------------------------ */

/* One entry of the header. *t is filled, offset still counted from the data's start; false, with a problem noted, when
 * it makes no sense. */
static bool read_entry(const char *path, const char *shown, const json_t *entry, Tensor *t, CloverError *err) {
    int64_t span[2];
    size_t n, dims = json_array_size(json_object_get(entry, "shape"));
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype) {
        error_add(err, CLOVER_BAD_INPUT, "%s: tensor %s has no text \"dtype\"" FILE_WRONG, path, shown);
        return false;
    }
    if (dims > TENSOR_MAX_DIMS) {
        error_add(err, CLOVER_UNSUPPORTED, "%s: tensor %s has %zu dimensions, supported are at most %d", path, shown, dims,
                  TENSOR_MAX_DIMS);
        return false;
    }
    if (!read_sizes(json_object_get(entry, "shape"), 0, TENSOR_MAX_DIMS, t->shape, &n)) {
        error_add(err, CLOVER_BAD_INPUT, "%s: tensor %s has no \"shape\" that is a list of whole numbers >= 0", path, shown);
        return false;
    }
    t->dims = (int)n;
    if (!read_sizes(json_object_get(entry, "data_offsets"), 2, 2, span, &n) || span[0] > span[1]) {
        error_add(err, CLOVER_BAD_INPUT, "%s: tensor %s has no \"data_offsets\" [begin, end] with 0 <= begin <= end", path,
                  shown);
        return false;
    }
    t->type = dtype_of(dtype);
    t->offset = (uint64_t)span[0];
    t->bytes = (uint64_t)(span[1] - span[0]);
    int64_t bytes = tensor_count_elements(t) ? dtype_bytes(t->type, t->elements) : -1;
    if (t->type != DT_UNKNOWN && bytes < 0) {
        error_add(err, CLOVER_BAD_INPUT, "%s: tensor %s has more than 2^63 bytes by its shape; the file is damaged", path, shown);
        return false;
    }
    if (t->type != DT_UNKNOWN && (uint64_t)bytes != t->bytes)
        error_add(err, CLOVER_BAD_INPUT,
                  "%s: tensor %s has %llu bytes by its data_offsets, expected %lld by its shape and type %s", path, shown,
                  (unsigned long long)t->bytes, (long long)bytes, dtype);
    return true;
}

/* Appends one tensor; false when out of memory. */
static bool add_tensor(Safetensors *s, const Map *map, const char *name, const json_t *entry, CloverError *err) {
    Tensor t = { .file = map->path };
    char shown[NAME_SHOWN];
    name_show(name, strlen(name), shown);
    if (!read_entry(map->path, shown, entry, &t, err)) return true;
    int64_t other = names_find(&s->tensor_names, name);
    if (other >= 0) {                                            /* within one file the JSON reader has refused it */
        error_add(err, CLOVER_BAD_INPUT,
                  "%s: tensor %s is also in %s, expected once; remove the file that does not belong to the model", map->path,
                  shown, s->tensors.tensor[other].file);
        return true;
    }
    char *copy = strdup(name);
    t.name = copy;
    if (copy && tensor_append(&s->tensors, &s->tensor_room, &t)) return true;
    free(copy);
    error_memory(err, "the list of tensors", 2 * (size_t)s->tensors.n * sizeof t);
    return false;
}

/* The list from `first` on gets its order and its names in the index. */
static bool index_tensors(Safetensors *s, int64_t first, CloverError *err) {
    if (first < s->tensors.n) tensors_sort(&s->tensors.tensor[first], s->tensors.n - first);
    for (int64_t i = first; i < s->tensors.n; i++) {
        if (names_add(&s->tensor_names, s->tensors.tensor[i].name, i)) continue;
        error_memory(err, "the index of tensors", 32 * (size_t)s->tensors.n);
        return false;
    }
    return true;
}

/* Offsets become places in the file; every hole, overlap and end is checked. tensor: [n] by offset. [SFT-2] */
static void place_tensors(const Map *map, uint64_t start, Tensor *tensor, int64_t n, CloverError *err) {
    uint64_t room = map->bytes - start, covered = 0;
    char shown[NAME_SHOWN];
    for (int64_t i = 0; i < n; i++) {
        Tensor *t = &tensor[i];
        uint64_t end = t->offset + t->bytes;                     /* both below 2^63 */
        if (t->offset != covered)
            error_add(err, CLOVER_BAD_INPUT, "%s: tensor %s begins at byte %llu of the data, expected %llu, where the ones before it "
                      "end: %s" FILE_WRONG, map->path, name_show(t->name, strlen(t->name), shown), (unsigned long long)t->offset,
                      (unsigned long long)covered, t->offset > covered ? "there is a hole" : "they overlap");
        if (end > covered) covered = end;
        if (end > room) continue;
        t->offset += start;
        t->data = map->data + t->offset;
    }
    if (covered > room)
        error_add(err, CLOVER_BAD_INPUT, "%s: its tensors need %llu bytes of data, but %llu follow the header" FILE_CUT_SHORT,
                  map->path, (unsigned long long)covered, (unsigned long long)room);
    else if (covered < room)
        error_add(err, CLOVER_BAD_INPUT, "%s: %llu bytes follow the last tensor, expected none" FILE_WRONG, map->path,
                  (unsigned long long)(room - covered));
}

static void read_metadata(Safetensors *s, const Map *map, json_t *metadata, CloverError *err) {
    const char *key;
    json_t *value;
    char shown[NAME_SHOWN];
    if (!json_is_object(metadata)) error_add(err, CLOVER_BAD_INPUT, "%s: __metadata__ is no JSON object of texts", map->path);
    json_object_foreach(metadata, key, value) {
        if (json_is_string(value)) continue;
        error_add(err, CLOVER_BAD_INPUT, "%s: __metadata__ has the key %s with a value that is no text; write it as one",
                  map->path, name_show(key, strlen(key), shown));
    }
    if (map == s->part) s->metadata = json_incref(metadata);
}

/* The map is open. */
static void read_part(Safetensors *s, const Map *map, CloverError *err) {
    uint64_t header = map->bytes < 8 ? 0 : le64(map->data);
    if (map->bytes < 8 || header > map->bytes - 8 || header > MAX_HEADER || header < 2 || map->data[8] != '{') {
        if (map->bytes < 8)
            error_add(err, CLOVER_BAD_INPUT, "%s: has %llu bytes, expected at least 8 for the header's length%s", map->path,
                      (unsigned long long)map->bytes, map_advice(map));
        else
            error_add(err, CLOVER_BAD_INPUT,
                      "%s: its first 8 bytes give a header of %llu bytes of JSON, expected 2 to %llu that begin with '{'%s",
                      map->path, (unsigned long long)header,
                      (unsigned long long)(map->bytes - 8 < MAX_HEADER ? map->bytes - 8 : MAX_HEADER),
                      map_advice(map)[0] ? map_advice(map) : "; it is cut short, damaged, or no safetensors file");
        return;
    }
    json_t *root = parse_object((const char *)map->data + 8, (size_t)header, map->path, "its header", err);
    if (!root) return;
    int64_t first = s->tensors.n;
    const char *name;
    json_t *entry;
    bool complete = true;                                        /* else holes would be reported where entries were refused */
    json_object_foreach(root, name, entry) {
        int64_t before = s->tensors.n;
        if (strcmp(name, "__metadata__") == 0) read_metadata(s, map, entry, err);
        else if (!add_tensor(s, map, name, entry, err)) break;
        else if (s->tensors.n == before) complete = false;
    }
    json_decref(root);
    if (err->status == CLOVER_SYSTEM || !index_tensors(s, first, err) || !complete) return;
    place_tensors(map, 8 + header, first < s->tensors.n ? &s->tensors.tensor[first] : NULL, s->tensors.n - first, err);
}

/* ---- folders [SFT-3] ----------------------------------------------------------------------------------------------- */

typedef struct FileNames { char **name; int64_t n, room; } FileNames;

static bool add_file(FileNames *files, const char *name) {
    if (files->n == files->room) {
        int64_t more = files->room ? 2 * files->room : 16;
        char **larger = realloc(files->name, (size_t)more * sizeof *larger);
        if (!larger) return false;
        files->name = larger;
        files->room = more;
    }
    char *copy = strdup(name);
    if (copy) files->name[files->n++] = copy;
    return copy != NULL;
}

static void free_files(FileNames *files) {
    for (int64_t i = 0; i < files->n; i++) free(files->name[i]);
    free(files->name);
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* FOLDER/NAME; NULL when out of memory. */
static char *join(const char *folder, const char *name, CloverError *err) {
    size_t length = strlen(folder), room = length + strlen(name) + 2;
    char *path = malloc(room);
    if (path) snprintf(path, room, "%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/", name);
    else error_memory(err, "a path", room);
    return path;
}

/* The *.safetensors in a folder, in name order. */
static void list_folder(const char *folder, FileNames *files, CloverError *err) {
    DIR *dir = opendir(folder);
    if (!dir) {
        if (errno == ENOMEM) error_memory(err, "a folder's names", 32768);
        else error_add(err, CLOVER_SYSTEM, "%s: cannot read the folder: %s", folder, strerror(errno));
        return;
    }
    size_t end = strlen(extension);
    for (struct dirent *entry; (entry = readdir(dir)); ) {
        size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || length <= end || strcmp(entry->d_name + length - end, extension) != 0) continue;
        if (add_file(files, entry->d_name)) continue;
        error_memory(err, "the list of files", 2 * (size_t)files->room * sizeof *files->name);
        break;
    }
    closedir(dir);
    if (files->n) qsort(files->name, (size_t)files->n, sizeof *files->name, compare_names);
    if (files->n == 0 && err->status == CLOVER_OK)
        error_add(err, CLOVER_BAD_INPUT, "%s: the folder has no weights: expected *.safetensors files; "
                  "give the folder that holds them, or a .gguf file", folder);
}

/* Without an index, names that count (model-00001-of-00003) tell what is missing or does not belong. */
static void check_sequence(const char *folder, const FileNames *files, CloverError *err) {
    PartName name, other;
    if (files->n == 0 || !part_name_parse(files->name[0], extension, &name)) return;
    for (int64_t i = 0; i < files->n; i++)
        if (part_name_parse(files->name[i], extension, &other) &&
            (other.parts != name.parts || other.part < 1 || other.part > name.parts))
            error_add(err, CLOVER_BAD_INPUT, "%s/%s: by its name is part %d of %d, expected 1 to %d of %d; "
                      "remove the files that do not belong to the model",
                      folder, files->name[i], other.part, other.parts, name.parts, name.parts);
    for (int i = 1; i <= name.parts && err->status != CLOVER_SYSTEM; i++) {
        char *part = part_name_make(files->name[0], &name, i, extension);
        if (!part) {
            error_memory(err, "a path", strlen(files->name[0]) + 16);
        } else if (!bsearch(&part, files->name, (size_t)files->n, sizeof *files->name, compare_names)) {
            error_add(err, CLOVER_BAD_INPUT, "%s/%s: is missing: it is part %d of %d of this model; download it", folder, part,
                      i, name.parts);
        }
        free(part);
    }
}

/* The distinct shards that an index names, in name order. */
static void list_shards(const char *path, const json_t *weight_map, FileNames *files, CloverError *err) {
    Names seen = { 0 };
    const char *tensor;
    json_t *value;
    char shown[NAME_SHOWN], file[NAME_SHOWN];
    json_object_foreach((json_t *)(uintptr_t)weight_map, tensor, value) {
        const char *name = json_string_value(value);
        if (!name || name[0] == '\0' || strchr(name, '/')) {
            error_add(err, CLOVER_BAD_INPUT,
                      "%s: tensor %s is said to be in %s, expected the name of a file in the same folder", path,
                      name_show(tensor, strlen(tensor), shown), name ? name_show(name, strlen(name), file) : "no text");
            continue;
        }
        if (names_find(&seen, name) >= 0) continue;
        if (add_file(files, name) && names_add(&seen, name, 0)) continue;
        error_memory(err, "the list of shards", 2 * (size_t)files->room * sizeof *files->name);
        break;
    }
    names_free(&seen);
    if (files->n) qsort(files->name, (size_t)files->n, sizeof *files->name, compare_names);
    if (files->n == 0 && err->status == CLOVER_OK)
        error_add(err, CLOVER_BAD_INPUT, "%s: weight_map names no tensor; the file is damaged", path);
}

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Index and shards must say the same. */
static void check_index(const Safetensors *s, const char *path, const json_t *weight_map, CloverError *err) {
    const char *name;
    json_t *value;
    char shown[NAME_SHOWN];
    json_object_foreach((json_t *)(uintptr_t)weight_map, name, value) {
        const Tensor *t = safetensors_tensor(s, name);
        if (!t)
            error_add(err, CLOVER_BAD_INPUT,
                      "%s: tensor %s is said to be in %s, but is in no shard; the shards are of another model, or incomplete",
                      path, name_show(name, strlen(name), shown), json_string_value(value));
        else if (strcmp(file_name(t->file), json_string_value(value)) != 0)
            error_add(err, CLOVER_BAD_INPUT, "%s: tensor %s is said to be in %s, but is in %s; the shards are of another model",
                      path, name_show(name, strlen(name), shown), json_string_value(value), file_name(t->file));
    }
    for (int64_t i = 0; i < s->tensors.n; i++) {
        const Tensor *t = &s->tensors.tensor[i];
        if (!json_object_get(weight_map, t->name))
            error_add(err, CLOVER_BAD_INPUT, "%s: tensor %s is not in the index %s; the shards are of another model", t->file,
                      name_show(t->name, strlen(t->name), shown), path);
    }
}

/* NULL without a problem when there is no index. */
static json_t *load_weight_map(const char *path, CloverError *err) {
    Map map;
    if (access(path, F_OK) != 0 && errno == ENOENT) return NULL;
    if (map_open(path, &map, err) != CLOVER_OK) return NULL;
    json_t *root = parse_object((const char *)map.data, (size_t)map.bytes, path, "the index", err);
    json_t *weight_map = json_incref(json_object_get(root, "weight_map"));
    if (root && !json_is_object(weight_map)) {
        error_add(err, CLOVER_BAD_INPUT, "%s: has no object \"weight_map\", expected a file name for each tensor", path);
        json_decref(weight_map);
        weight_map = NULL;
    }
    json_decref(root);
    map_close(&map);
    return weight_map;
}

static void open_files(Safetensors *s, const char *folder, const FileNames *files, bool indexed, CloverError *err) {
    s->part = calloc((size_t)files->n, sizeof *s->part);
    if (!s->part) {
        error_memory(err, "the list of files", (size_t)files->n * sizeof *s->part);
        return;
    }
    for (; s->parts < files->n && err->status != CLOVER_SYSTEM; s->parts++) {
        Map *map = &s->part[s->parts];
        char *path = join(folder, files->name[s->parts], err);
        if (!path) return;
        if (indexed && access(path, F_OK) != 0 && errno == ENOENT)
            error_add(err, CLOVER_BAD_INPUT, "%s: is missing: %s names it; download it", path, index_name);
        else if (map_open(path, map, err) == CLOVER_OK)
            read_part(s, map, err);
        free(path);
    }
}

static void open_folder(Safetensors *s, const char *folder, CloverError *err) {
    FileNames files = { 0 };
    char *path = join(folder, index_name, err);
    json_t *weight_map = path ? load_weight_map(path, err) : NULL;
    if (weight_map) {
        list_shards(path, weight_map, &files, err);
    } else if (err->status == CLOVER_OK) {
        list_folder(folder, &files, err);
        check_sequence(folder, &files, err);
    }
    if (files.n && err->status != CLOVER_SYSTEM) open_files(s, folder, &files, weight_map != NULL, err);
    if (weight_map && err->status == CLOVER_OK) check_index(s, path, weight_map, err);
    json_decref(weight_map);
    free_files(&files);
    free(path);
}

/* ---- opening and looking up ---------------------------------------------------------------------------------------- */

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static Safetensors *new_safetensors(CloverError *err) {
    error_clear(err);
    Safetensors *s = calloc(1, sizeof *s);
    if (!s) error_memory(err, "a safetensors file", sizeof *s);
    return s;
}

/* Room for one file's map. */
static bool one_part(Safetensors *s, CloverError *err) {
    s->part = calloc(1, sizeof *s->part);
    s->parts = s->part ? 1 : 0;
    if (!s->part) error_memory(err, "a file's map", sizeof *s->part);
    return s->part != NULL;
}

/* Hands s over when all is well, else closes it. */
static CloverStatus finish(Safetensors *s, Safetensors **out, CloverError *err) {
    if (err->status == CLOVER_OK) *out = s;
    else safetensors_close(s);
    return err->status;
}

CloverStatus safetensors_open(const char *path, Safetensors **out, CloverError *err) {
    Safetensors *s = new_safetensors(err);
    if (!s) return err->status;
    if (is_folder(path)) open_folder(s, path, err);
    else if (one_part(s, err) && map_open(path, s->part, err) == CLOVER_OK) read_part(s, s->part, err);
    return finish(s, out, err);
}

CloverStatus safetensors_open_bytes(const uint8_t *bytes, uint64_t n, const char *label, Safetensors **out, CloverError *err) {
    Safetensors *s = new_safetensors(err);
    if (!s) return err->status;
    if (one_part(s, err) && map_bytes(bytes, n, label, s->part, err) == CLOVER_OK) read_part(s, s->part, err);
    return finish(s, out, err);
}

void safetensors_close(Safetensors *s) {
    if (!s) return;
    for (int64_t i = 0; i < s->parts; i++) map_close(&s->part[i]);
    for (int64_t i = 0; i < s->tensors.n; i++) free((void *)(uintptr_t)s->tensors.tensor[i].name);
    json_decref(s->metadata);
    names_free(&s->tensor_names);
    free(s->tensors.tensor);
    free(s->part);
    free(s);
}

TensorList safetensors_tensors(const Safetensors *s) { return s->tensors; }
int64_t safetensors_parts(const Safetensors *s) { return s->parts; }
const char *safetensors_metadata(const Safetensors *s, const char *key) {
    return json_string_value(json_object_get(s->metadata, key));
}

const Tensor *safetensors_tensor(const Safetensors *s, const char *name) {
    int64_t i = names_find(&s->tensor_names, name);
    return i < 0 ? NULL : &s->tensors.tensor[i];
}

uint64_t safetensors_file_bytes(const Safetensors *s) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < s->parts; i++) sum += s->part[i].bytes;
    return sum;
}
