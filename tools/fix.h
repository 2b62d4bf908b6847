/* fix.h - the parts of clover fix: the plan of a right file, the mends that change it, the writing. */
#ifndef CLOVER_FIX_H
#define CLOVER_FIX_H

#include "compare.h"
#include "gguf_write.h"
#include "lint.h"

typedef struct FixKey {
    char *name;
    GgufType type, element;
    uint64_t count;
    const void *data;                /* in the mapping, or own */
    uint64_t bytes;
    void *own;
} FixKey;

typedef enum FixHow {
    FIX_COPY,                        /* the source's bytes as they are */
    FIX_MOVE,                        /* whole rows or blocks in another order */
    FIX_VALUES                       /* decoded, put into another form, stored again: vectors, and what a good file lends */
} FixHow;

typedef struct FixTensor {
    char *name;
    DType type;
    int dims;
    int64_t shape[TENSOR_MAX_DIMS];
    FixHow how;
    const Tensor *source;            /* FIX_COPY */
    RoleView view;                   /* of the source, else */
    Transform t;
    HeadMap rows, cols;              /* the right order in a GGUF */
    bool dropped;
} FixTensor;

typedef enum FixFor { FIX_FOR_SELF, FIX_FOR_LLAMA_CPP } FixFor;

typedef struct Fix {
    const char *in, *out, *like, *side;
    FixFor reader;
    bool only_given, only[LINT_IDS], dry_run, force;
    LintFile file;
    LintModel model;
    Report report;
    FixKey *key; int64_t n_keys, key_room;
    FixTensor *tensor; int64_t n, room;
    CloverConfig config;             /* the model's sizes, whoever says them */
    bool sized;                      /* config holds them all: tensors can be looked at by role */
    bool heads_stuck;                /* ssm_out's blocks straddle heads: then none of the tensors may take another order */
    RoleList roles;
    ModelFile now;                   /* the planned tensors under their new names, as a file to look at */
    ModelFile good;
    bool has_good;
    int64_t changes, dropped, stuck_told;
    int64_t shared, differing;       /* tensors that the file and --like both have, and those that no transform explains */
    bool said[LINT_IDS];             /* findings that were told of, mended or not */
    CloverError *err;
} Fix;

#define FIX_MENDED "clover.mended"   /* the mends that were done on the caller's word alone */
#define FIX_STUCK "the columns of ssm_out cannot move, its blocks straddle heads; write the file again from its source"

/* ---- the plan (fix_plan.c) ------------------------------------------------------------------------------------------ */

CloverStatus fix_open(Fix *x);
void fix_free(Fix *x);
bool fix_wanted(const Fix *x, LintId id);                              /* by --only, and possible */
/* A change, told at once on standard output as "ID: ...". */
void fix_say(Fix *x, LintId id, const char *format, ...) CLOVER_PRINTF(3, 4);
/* What cannot be mended, and why. */
void fix_cannot(Fix *x, LintId id, const char *format, ...) CLOVER_PRINTF(3, 4);

FixKey *fix_key(const Fix *x, const char *name);                       /* NULL when absent */
/* Sets a key (copying data), at its usual place when it is new; name: whole. */
void fix_set_key(Fix *x, const char *name, GgufType type, GgufType element, uint64_t count, const void *data, uint64_t bytes);
void fix_drop_key(Fix *x, const char *name);
const char *fix_scoped(const Fix *x, const char *name, char out[160]); /* behind the architecture */
FixTensor *fix_tensor(const Fix *x, const char *name);                 /* not a dropped one; NULL when absent */
FixTensor *fix_add_tensor(Fix *x, const RoleOf *role);                 /* at its usual place; NULL: no memory */
void fix_drop_tensor(Fix *x, FixTensor *t);
/* The planned tensors as a file: after names have changed. */
CloverStatus fix_look_again(Fix *x);

/* ---- mends ------------------------------------------------------------------------------------------------------------ */

CloverStatus fix_keys(Fix *x);                                         /* fix_keys.c: by the header */
CloverStatus fix_names(Fix *x);                                        /* fix_tensors.c: renamed and dropped tensors */
CloverStatus fix_values(Fix *x);                                       /* fix_tensors.c: by values and shapes */
CloverStatus fix_like(Fix *x);                                         /* fix_like.c: by a good file */
/* Gives a tensor the values of view after t, in the right order; type: F32 where values change. id, what: for the message. */
void fix_rearrange(Fix *x, FixTensor *tensor, const RoleView *view, Transform *t, LintId id);

/* The column of the source's file that stands at place i of the right file's row. */
int64_t fix_source_column(const FixTensor *t, int64_t i);

/* ---- writing (fix_write.c) ------------------------------------------------------------------------------------------ */

CloverStatus fix_write(Fix *x);

#endif
