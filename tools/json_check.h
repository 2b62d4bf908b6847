/* json_check.h - what every reader of a JSON file of ours says about values that are not what they should be: one line
 * each, with where, the key, what was expected and what stands there. [ERR-2] */
#ifndef CLOVER_JSON_CHECK_H
#define CLOVER_JSON_CHECK_H

#include <jansson.h>
#include "../ref/error.h"

/* A whole file, or NULL and *err set: CLOVER_BAD_INPUT when it is not JSON or has a key twice, CLOVER_SYSTEM when it cannot be read. */
json_t *json_read(const char *path, CloverError *err);

/* "WHERE: KEY: expected EXPECTED, found VALUE"; found NULL: "missing". Class CLOVER_BAD_INPUT, as all below. */
void json_wrong(CloverError *err, const char *where, const char *key, const char *expected, const json_t *found);

/* Each key of object that is not in known (NULL-terminated); false when object is no object, which is a problem too. */
bool json_known_keys(CloverError *err, const char *where, const char *key, const json_t *object, const char *const *known);

/* The value of key in object; a problem when it is missing (and required) or of another kind: NULL then. */
const char *json_text(CloverError *err, const char *where, const json_t *object, const char *key, bool required);
json_t *json_list(CloverError *err, const char *where, const json_t *object, const char *key, bool required);

/* A non-empty array of token ids in 0..vocab-1 (vocab < 0: any int32), malloc'ed; NULL: a problem, and *n 0. */
int32_t *json_id_list(CloverError *err, const char *where, const char *key, const json_t *array, int64_t vocab, int64_t *n);

/* A name that a file may have: not empty, at most 128 bytes, not beginning with a dot, without "/", "\", ".." and control
 * characters. */
bool json_is_file_name(const char *name);

#endif
