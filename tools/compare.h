/* compare.h - how two files' tensors of one role stand to each other, and how one becomes the other. */
#ifndef CLOVER_COMPARE_H
#define CLOVER_COMPARE_H

#include "convert_roles.h"

/* From best to worst. */
typedef enum Relation {
    RELATION_IDENTICAL,      /* the same values, to the bit */
    RELATION_EQUAL,          /* within 1 ulp of float32: values that one of the files holds transformed */
    RELATION_WITHIN,         /* as far apart as the types of the two make it */
    RELATION_DIFFERENT,
    RELATION_ABSENT          /* in one of the two */
} Relation;

extern const char *const relation_names[];

/* What brings the other file's values into the right place and form: right[e][r][c] = value(other[expert[e]][row[r]][col[c]]). */
typedef struct Transform {
    char name[64], detail[160];      /* name "": none */
    ValueForm value;
    int64_t from;                    /* the role whose tensor holds the values; -1: its own */
    int64_t *expert, *row, *col;     /* NULL: as they are; HF's indices; owned */
    bool transposed;                 /* a square matrix, the other way round */
} Transform;

void transform_free(Transform *t);

/* The ones met in the wild. */
typedef enum Known { HEADS_GROUPED, HEADS_TILED_TWICE, QUERY_GATE_FLAT, QUERY_GATE_TWICE, QUERY_GATE_SWAPPED, Q_K_SWAPPED, TAPS_REVERSED } Known;
/* Adds its maps, name and detail to t. False, and t as it was: it does not concern this role or moves nothing; err: no memory. */
bool transform_known(Known known, const RoleView *of, const CloverConfig *config, Transform *t, CloverError *err);

typedef struct Match {
    Relation relation;
    Transform transform;             /* of the other file; relation then is what is left after it */
    double error, expected;          /* relative: rms of the difference / rms of the values; NaN: not known */
    int64_t worst[3];                /* expert, row, column, HF's indices, of the largest difference */
    float worst_right, worst_other;
    char detail[200];                /* why they cannot be compared; "" else */
} Match;

/* Compares a role of two files. right: the one whose order and form count; other: where a transform is looked for. config: of
 * the model. Free match->transform. */
CloverStatus compare_role(const ModelFile *right, const ModelFile *other, const RoleList *roles, int64_t role, const CloverConfig *config,
                          Match *match, CloverError *err);

/* ---- inside ------------------------------------------------------------------------------------------------------ */

/* What measuring a transform over (some of) the rows gave. */
typedef struct Measure {
    double n, difference2, right2, expected2, expected_right2;
    int64_t unequal, beyond_ulp;     /* elements */
    bool beyond_bound;               /* an element further off than its type can be */
    int64_t worst[3];
    double worst_distance;
    float worst_right, worst_other;
} Measure;

/* rows: at most so many, spread over all; 0: every one. */
CloverStatus compare_measure(const RoleView *right, const RoleView *other, const Transform *t, int64_t rows, Measure *out, CloverError *err);
Relation measure_relation(const RoleView *right, const RoleView *other, const Measure *m, double *error, double *expected);
/* The other file's row in the right place and form. scratch: [2, cols] */
void transform_row(const RoleView *other, const Transform *t, int64_t e, int64_t r, float *out, float *scratch);
/* Can values be stored as this type here? */
bool type_has_encoder(DType type);
/* Looks for a transform that makes other right; found: its relation is not different. */
CloverStatus compare_search(const RoleView *right, const RoleView *other, const ModelFile *file, const RoleList *roles, int64_t role,
                            const CloverConfig *config, Match *match, bool *found, CloverError *err);

#endif
