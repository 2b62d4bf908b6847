/* json_check.c - see json_check.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "json_check.h"

json_t *json_read(const char *path, CloverError *err) {
    FILE *f = fopen(path, "rb");
    if (!f) {
        error_set(err, CLOVER_SYSTEM, "cannot read %s: %s", path, strerror(errno));
        return NULL;
    }
    json_error_t problem;
    json_t *json = json_loadf(f, JSON_REJECT_DUPLICATES, &problem);
    const bool unreadable = ferror(f) != 0;
    fclose(f);
    if (json) return json;
    if (unreadable) error_set(err, CLOVER_SYSTEM, "cannot read %s", path);
    else if (json_error_code(&problem) == json_error_out_of_memory) error_memory(err, path, 0);
    else error_set(err, CLOVER_BAD_INPUT, "%s: line %d, column %d: not JSON as expected: %s", path, problem.line, problem.column, problem.text);
    return NULL;
}

void json_wrong(CloverError *err, const char *where, const char *key, const char *expected, const json_t *found) {
    if (!found) {
        error_add(err, CLOVER_BAD_INPUT, "%s: %s: missing; expected %s", where, key, expected);
        return;
    }
    char *text = json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT);
    error_add(err, CLOVER_BAD_INPUT, "%s: %s: expected %s, found %.60s%s", where, key, expected, text ? text : "?", text && strlen(text) > 60 ? " ..." : "");
    free(text);
}

bool json_known_keys(CloverError *err, const char *where, const char *key, const json_t *object, const char *const *known) {
    if (!json_is_object(object)) {
        json_wrong(err, where, key, "an object", object);
        return false;
    }
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        bool found = false;
        for (const char *const *k = known; *k && !found; k++) found = strcmp(*k, name) == 0;
        if (!found) error_add(err, CLOVER_BAD_INPUT, "%s: %s: unknown key \"%.60s\"", where, key, name);
    }
    return true;
}

const char *json_text(CloverError *err, const char *where, const json_t *object, const char *key, bool required) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value) && (value || required)) json_wrong(err, where, key, "a string", value);
    return json_string_value(value);
}

json_t *json_list(CloverError *err, const char *where, const json_t *object, const char *key, bool required) {
    json_t *value = json_object_get(object, key);
    if (json_is_array(value)) return value;
    if (value || required) json_wrong(err, where, key, "an array", value);
    return NULL;
}

int32_t *json_id_list(CloverError *err, const char *where, const char *key, const json_t *array, int64_t vocab, int64_t *n) {
    *n = 0;
    if (!json_is_array(array) || json_array_size(array) == 0) {
        json_wrong(err, where, key, "a non-empty array of token ids", array);
        return NULL;
    }
    const size_t count = json_array_size(array);
    int32_t *ids = malloc(count * sizeof *ids);
    if (!ids) {
        error_memory(err, key, count * sizeof *ids);
        return NULL;
    }
    const int64_t end = vocab >= 0 ? vocab : (int64_t)INT32_MAX + 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(array, i);
        const json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= end) {
            char name[160], expected[64];
            snprintf(name, sizeof name, "%.128s[%zu]", key, i);
            snprintf(expected, sizeof expected, "a token id, 0 to %lld", (long long)end - 1);
            json_wrong(err, where, name, expected, id);
            free(ids);
            return NULL;                                 /* one line, however long the list */
        }
        ids[i] = (int32_t)value;
    }
    *n = (int64_t)count;
    return ids;
}

bool json_is_file_name(const char *name) {
    const size_t length = strlen(name);
    if (length == 0 || length > 128 || name[0] == '.' || strstr(name, "..")) return false;
    for (const char *p = name; *p; p++)
        if (*p == '/' || *p == '\\' || (unsigned char)*p < 0x20 || *p == 0x7f) return false;
    return true;
}
