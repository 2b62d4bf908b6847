/* model_edit.h - a good model read into memory, changed at one place, and written again: what the tests of config, weights
 * and model open. The writer is the test's own (gguf_build.h, safetensors_build.h). */
#ifndef CLOVER_TEST_MODEL_EDIT_H
#define CLOVER_TEST_MODEL_EDIT_H

#include <jansson.h>
#include "files.h"
#include "../ref/files/gguf.h"

#define GOOD_GGUF "tests/vectors/drifts/good.gguf"
#define GOOD_HF "tests/vectors/drifts/hf"

typedef struct EditKey { char name[128]; GgufType type, element; uint64_t count; Bytes value; } EditKey;
typedef struct EditTensor { char name[128]; DType type; int dims; int64_t shape[TENSOR_MAX_DIMS]; Bytes data; } EditTensor;

enum { EDIT_ROOM = 256 };

typedef struct Edit {
    EditKey key[EDIT_ROOM]; int n_keys;              /* a GGUF's */
    EditTensor tensor[EDIT_ROOM]; int n_tensors;
    json_t *config, *generation;                     /* a folder's; NULL: not written */
    char folder[TEST_PATH], path[2 * TEST_PATH];     /* where it was written */
} Edit;

Edit *edit_open(const char *path);   /* any GGUF of one file */
Edit *edit_gguf(void);               /* good.gguf */
Edit *edit_hf(void);                 /* drifts/hf; its tokenizer.json is not part of it */
void edit_free(Edit *e);             /* and removes what was written */

/* Writes it: a file in, or a folder below, build/tmp; returns its path. */
const char *edit_write(Edit *e);

/* Keys of a GGUF; an existing one is replaced. */
void edit_drop_key(Edit *e, const char *name);
void edit_u32(Edit *e, const char *name, uint32_t value);
void edit_f32(Edit *e, const char *name, float value);
void edit_f64(Edit *e, const char *name, double value);
void edit_bool(Edit *e, const char *name, bool value);
void edit_string(Edit *e, const char *name, const char *text);
void edit_ints(Edit *e, const char *name, const int32_t *values, uint64_t n);
void edit_bools(Edit *e, const char *name, const bool *values, uint64_t n);
void edit_rename_prefix(Edit *e, const char *from, const char *to);      /* of all keys */

/* config.json's members, as JSON text; NULL removes one. */
void edit_config(Edit *e, const char *name, const char *json);
void edit_generation(Edit *e, const char *name, const char *json);

/* Tensors. */
EditTensor *edit_tensor(Edit *e, const char *name);                      /* fails the test when absent */
void edit_drop(Edit *e, const char *name);
void edit_rename(Edit *e, const char *from, const char *to);
void edit_widen(Edit *e);                                                /* every tensor in F32 */
EditTensor *edit_add(Edit *e, const char *name, DType type, int dims, const int64_t *shape);   /* F32 or of one byte; zeros */
float edit_get(const EditTensor *t, int64_t i);                          /* element i of an F32 tensor */
void edit_set(EditTensor *t, int64_t i, float value);

#endif
