/* record.h - runs a step and keeps what it showed: ids, the probes asked for, logits; as one safetensors file. [PRB-1]
 *
 * Values go to a scratch file beside the result as they pass and are put together when the step is done, so that no more
 * than the step's logits are held in memory. */
#ifndef CLOVER_RECORD_H
#define CLOVER_RECORD_H

#include "../ref/error.h"
#include "../ref/files/dtype.h"
#include "hypotheses/hypothesis.h"

typedef struct RecordedArray {
    char *name;
    DType type;
    int dims;
    int64_t shape[4];
    uint64_t at, bytes;              /* in the scratch file */
} RecordedArray;

typedef struct Record {
    const char *globs;               /* comma-separated names with wildcards; NULL or "": no probe */
    bool list;                       /* print a line a stage */
    int fd;                          /* of the scratch file, which has no name any more; -1: nothing is kept */
    uint64_t used;
    RecordedArray *array; int64_t n, room;
    double *logits;                  /* [rows, V] of the last step */
    CloverError *err;                /* during a step */
    DType type;                      /* of the floats in the file: F64, or F32, F16, BF16 as an engine's dump has them (then ids are I32) */
    InForce *in_force;               /* the hypotheses that the session works under; NULL: none */
    const CloverSession *session;    /* during a step */
    bool preview;
} Record;

/* folder: where the scratch file lies; NULL: nothing is kept. globs must outlive *r.
 * type and in_force may be set afterwards. */
CloverStatus record_open(Record *r, const char *globs, bool list, const char *folder, CloverError *err);
void record_close(Record *r);

/* Commits or previews ids[0..n) and records it, forgetting the step before. The logits of all rows are r->logits [n,V]. */
CloverStatus record_step(Record *r, CloverSession *s, int64_t vocab, bool preview, const int32_t *ids, int64_t n, CloverError *err);

/* The step as a file: ids, probes in the order in which they are computed, logits. */
CloverStatus record_save(Record *r, const char *path, CloverError *err);

/* Does every pattern name a stage that such a model has? CLOVER_USAGE with the pattern that does not. */
CloverStatus record_check_globs(const char *globs, const CloverConfig *c, CloverError *err);

/* Is name one of these? */
bool record_wants(const char *globs, const char *name);

#endif
