/* lint.h - clover lint: what is wrong with a model file, named from its header and its values. [LNT]
 *
 * Four steps, each in its own file: read the header as far as it goes (lint_gguf.c, lint_folder.c), hold names, keys and
 * shapes against each other (lint_header.c, lint_shapes.c), walk all values once (lint_values.c), and, when asked,
 * try other readings on text (lint_deep.c, lint_reading.c). What they find goes into one report (lint_report.c). */
#ifndef CLOVER_LINT_H
#define CLOVER_LINT_H

#include <jansson.h>
#include <stdio.h>
#include "../ref/error.h"
#include "../ref/files/gguf.h"
#include "../ref/files/map.h"
#include "../ref/files/names.h"
#include "../ref/files/weights.h"
#include "output.h"

/* ---- findings ----------------------------------------------------------------------------------------------------- */

typedef enum Severity {
    NOTE,                    /* nothing is wrong for those who know it */
    QUALITY,                 /* worse answers */
    GARBAGE,                 /* loads, and answers wrongly */
    BREAKS                   /* a loader refuses */
} Severity;

typedef enum LintId {
    KEY_MISSING, KEY_CONTRADICTS, TENSOR_MISSING, TENSOR_EXTRA, TENSOR_SHAPE, NAME_FORM, A_LOG_RAW, A_EXP_TWICE, NORM_SHIFT_MISSING,
    NORM_SHIFT_TWICE, NORM_SHIFT_MIXED, HEAD_NORM_SHIFTED, CONV_LAYOUT, ROPE_DIMS_MISSING, ROPE_SECTIONS_FORM, ROUTER_QUANTISED,
    ALPHA_BETA_QUANTISED, DIFFUSION_MISSING, DIFFUSION_PARTIAL, MTP_BUNDLED, VISION_BUNDLED, INTERVAL_CONTRADICTS, TOKEN_TABLE_SIZE,
    TOKENIZER_PRE, MERGES_MISSING, EOS_MISSING, MASK_UNKNOWN, NAN_OR_INF, ALL_ZERO, DUPLICATE_EXPERTS, SPLIT_PART_MISSING, TRUNCATED,
    ALIGNMENT, HEAD_ORDER, Q_GATE_FLAT, CONV_REVERSED, GATE_UP_SWAPPED, EXPERT_ORDER, DIFFUSION_HEAD_ORDER, LINT_IDS
} LintId;

typedef enum Hurts { LLAMA_CPP = 1, CLOVER = 2, PREVIEWS = 4, TRANSFORMERS = 8 } Hurts;   /* a set of bits */

/* All that is wrong in one way is one finding; a kind that is a note here and worse there is two. */
typedef struct Finding {
    LintId id;
    Severity severity;
    int hurts;
    char **tensor;           /* [n_tensors] names; empty: it concerns keys or the file */
    int64_t n_tensors, room;
    char *evidence[8];       /* sentences; more are counted */
    int64_t n_evidence;
    bool beyond_fix;         /* the file itself does not say what is right: clover fix needs a good one */
} Finding;

typedef struct Report {
    Finding *finding;        /* [n] */
    int64_t n, room;
    Buffer remark;           /* what was not looked at, and why: lines */
    bool skipped;            /* values were passed over */
    bool no_memory;          /* remembered; checked at the end */
} Report;

const char *lint_id_name(LintId id);
/* Adds a sentence of evidence (and a tensor's name, when not NULL) to the finding of this id and severity. */
void report_add(Report *r, LintId id, Severity severity, int hurts, const char *tensor, const char *format, ...) CLOVER_PRINTF(6, 7);
void report_tensor(Report *r, LintId id, Severity severity, int hurts, const char *tensor);      /* the name alone */
void report_beyond_fix(Report *r, LintId id, Severity severity);             /* of the finding just reported */
/* What mends a finding, where clover fix has not: for its "not mended". */
const char *lint_advice(const Finding *f, bool has_good);
void report_remark(Report *r, const char *format, ...) CLOVER_PRINTF(2, 3);
bool report_has(const Report *r, LintId id);
Severity report_worst(const Report *r);              /* NOTE when there is nothing */
void report_sort(Report *r);                         /* worst first */
void report_print(FILE *out, const Report *r, const char *path, NameForm form);
bool report_json(FILE *out, const Report *r, const char *path, NameForm form);
void report_free(Report *r);

/* ---- the file, as far as it can be read ---------------------------------------------------------------------------- */

/* Like what gguf_open and safetensors_open read, but a problem is a finding and the walk goes on where it can: a tensor
 * whose bytes are not in the file stays in the list with data NULL. Names are valid UTF-8 without control characters. */
typedef struct LintFile {
    const char *path;
    NameForm form;
    Map *map;                        /* [maps] */
    int64_t maps;
    uint64_t bytes;                  /* of all maps */
    TensorList tensors;
    int64_t tensor_room;
    Names tensor_names;
    bool whole;                      /* every key and tensor was read: only then is an absence a finding */
    GgufKey *key;                    /* [n_keys], of the first part */
    int64_t n_keys, key_room;
    json_t *config, *text, *generation;      /* a folder's; text: text_config, else config (borrowed) */
    bool has_tokenizer, has_mask_token;      /* a folder's tokenizer.json, and whether <|mask|> stands in it */
    bool splits_otherwise;                   /* its pattern is not Qwen3.5's */
} LintFile;

/* CLOVER_BAD_INPUT: nothing can be read (no such file, not a GGUF, a folder without weights). */
CloverStatus lint_read_gguf(const char *path, LintFile *f, Report *r, CloverError *err);
CloverStatus lint_read_folder(const char *path, LintFile *f, Report *r, CloverError *err);
void lint_file_free(LintFile *f);

/* For the readers. A name that is no proper text is replaced by how it is shown, and reported. False: out of memory. */
bool lint_add_tensor(LintFile *f, Report *r, const char *name, uint64_t length, Tensor *t);
char *lint_name(Report *r, const char *kind, const char *bytes, uint64_t length);

const GgufKey *lint_key(const LintFile *f, const char *name);            /* NULL when absent */
const Tensor *lint_tensor(const LintFile *f, const char *name);

/* ---- the model in it ----------------------------------------------------------------------------------------------- */

/* Letters for sizes, as in SPEC section 1. */
typedef enum Size { S_ONE, S_D, S_V, S_QG, S_KV, S_O, S_WIDTH, S_C, S_VD, S_HV, S_DV, S_TAPS, S_RIGHT, S_E, S_F, S_F2, S_FS, SIZES } Size;

typedef enum Where { IN_MODEL, IN_EVERY, IN_ATTENTION, IN_GDN, IN_DIFFUSION, IN_EXPERTS } Where;

typedef enum Value {                 /* what a tensor's values are judged as */
    V_MATRIX, V_ROUTER, V_ALPHA_BETA, V_EXPERTS, V_LAYER_NORM, V_QK_NORM, V_GDN_NORM, V_RATE, V_CONV, V_VECTOR, V_DIFFUSION
} Value;

typedef struct LintRole {
    Where where;
    Value value;
    const char *gguf, *hf;           /* behind the layer's prefix; an expert's own tensor: behind experts.E. */
    const char *other[2];            /* drifted GGUF names for it */
    int dims;
    Size shape[3];
} LintRole;

enum { LINT_ROLES = 36 };
extern const LintRole lint_roles[LINT_ROLES];
enum { ROLE_EMBED = 0, ROLE_FINAL_NORM, ROLE_HEAD, ROLE_GATE_UP = 29, ROLE_GATE, ROLE_UP, ROLE_DOWN, ROLE_GATE_1, ROLE_UP_1, ROLE_DOWN_1 };

typedef struct LintTensor {          /* what a tensor is */
    int role;                        /* -1: none */
    int64_t layer, expert;           /* -1: none */
    bool drifted_name;
} LintTensor;

typedef struct LintModel {
    const LintFile *file;
    const char *architecture;        /* "clover_moe", "qwen35moe"; a folder's: of the same two */
    bool clover;
    int64_t layers;                  /* of the model; tensors of later ones are nextn's or wrong */
    bool attention[CLOVER_MAX_LAYERS];
    int64_t size[SIZES];             /* -1: unknown */
    int64_t heads, kv_heads, key_heads, key_width;   /* -1: unknown */
    LintTensor *of;                  /* [file->tensors.n] */
    bool any_diffusion;
} LintModel;

/* Fill m (zeroed) and report what header and names show. CLOVER_UNSUPPORTED: another architecture. */
CloverStatus lint_header(LintModel *m, const LintFile *f, Report *r, CloverError *err);
void lint_shapes(LintModel *m, Report *r);           /* called by lint_header: sizes from keys and tensors, each shape */
CloverStatus lint_values(const LintModel *m, Report *r, CloverError *err);
/* The same of norms and rates alone: what large matrices hold takes long to read. */
CloverStatus lint_vectors(const LintModel *m, Report *r, CloverError *err);
void lint_model_free(LintModel *m);

DType lint_matrix_type(const LintModel *m);          /* of most of the model's matrices */
double lint_bits(DType type);                        /* a value */

/* A number of the file under its GGUF key (behind the architecture) or its config.json name: 1, 0 absent, -1 of another kind. */
int lint_number(const LintModel *m, const char *gguf, const char *json, double *out);

/* How a tensor's name begins in this file: "blk.3.ssm_a" */
void lint_role_name(const LintModel *m, int role, int64_t layer, char out[160]);

/* All of it but deep: header, values, and, where these are fine, what the loader says. f and r: zeroed; free both in any case. */
CloverStatus lint_examine(const char *path, LintFile *f, Report *r, CloverError *err);

/* What norms and rates show, and nothing else, of a file that opens: r (zeroed) has the findings of lint_vectors. */
CloverStatus lint_quickly(const char *path, Report *r, CloverError *err);

/* ---- deep ---------------------------------------------------------------------------------------------------------- */

typedef struct DeepOptions {
    const char *text; size_t length; /* NULL: built-in sentences */
    const int32_t *ids; int64_t n_ids;
    int64_t rows;                    /* at most so many are read, a part of them as a block */
} DeepOptions;

/* Orders of experts that exporters are known to make: sorted as text, last first, one off either way. order [E]: where expert e
 * stands in such a file. */
enum { DEEP_ORDERS = 4 };
void deep_order(int kind, int64_t E, int64_t *order);

CloverStatus lint_deep(const char *path, const DeepOptions *o, Report *r, CloverError *err);

#endif
