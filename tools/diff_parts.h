/* diff_parts.h - what the files of clover diff share. */
#ifndef CLOVER_DIFF_PARTS_H
#define CLOVER_DIFF_PARTS_H

#include "../ref/forward.h"
#include "diff.h"

/* Budgets are these times what the profile adds by itself: a float32 engine sums in orders that no profile runs, while a
 * fault adds a thousand times more. */
#define DIFF_MARGIN_RMS 8.0
#define DIFF_MARGIN_MAX 16.0

/* ---- difference.c ---- */
bool difference(Difference *d, const double *actual, const double *expected, int64_t n, DType type);   /* false: no memory */
double rms_of(const double *x, int64_t n);
double largest_of(const double *x, int64_t n);
double round_to_type(DType type, double x);          /* the value that a dump of that type would hold */
void logits_figures(LogitsFigures *f, const double *actual, const double *expected, int64_t rows, int64_t V);

/* ---- diff_run.c: the passes over a case, which fill probe results ---- */

/* Values that a pass keeps for the next one: in a mapped scratch file, so that they are no private memory. */
typedef struct Scratch { int fd; uint64_t used; } Scratch;

typedef struct DiffRun {
    const DiffOptions *options;
    Bundle *bundle;
    CloverModel *model;              /* NULL: only compare */
    Dump *dump;
    DiffResult *result;
    CloverError *err;                /* sticky */
    Scratch scratch;
    int64_t room_probes, room_notes, room_not_compared;
    double *total_floor;             /* [n_probes, 2] rms and max of the profile's own total error */
} DiffRun;

CloverStatus diff_cases(DiffRun *d);
CloverStatus diff_plain(DiffRun *d);             /* without a model: the dump against the golden, nothing more */
void diff_note(DiffRun *d, const char *format, ...);
void diff_not_compared(DiffRun *d, const char *format, ...);

/* ---- diff_judge.c: from figures to verdicts ---- */
void diff_judge(DiffRun *d);

/* ---- diff_trace.c: decisions ---- */
CloverStatus diff_traces(DiffRun *d);

/* ---- diff_report.c ---- */
const char *stage_clause(const char *stage, bool preview);   /* "GDN-4", "" when none is known */
const char *verdict_name(DiffVerdict v);
const char *stage_verdict_name(StageVerdict v);

/* Is this stage (without layer) a set of choices and no array of numbers? */
bool is_choice(const char *stage);
/* "gdn.mixed" of "L03.gdn.mixed"; a name without layer as it is. */
const char *stage_of(const char *probe);

#endif
