/* case.h - one case, as a case file and a manifest have it. [BND-2, BND-3] */
#ifndef CLOVER_CASE_H
#define CLOVER_CASE_H

#include "bundle.h"
#include "run_args.h"

typedef enum CaseForm { CASE_FILE, CASE_MANIFEST } CaseForm;

/* Checks object, each problem a line of *err that begins with `where`. A case of a file has steps, or prompt, mode and n;
 * one of a manifest has steps in any case, and a folder. vocab -1: any id.
 * Fills *c (its strings and JSON borrowed from object, but step and its ids: case_free) and *run, the run's arguments or a
 * case of steps' coreset option (a run's ids: free with case_run_free). c->recorded and has_trace stay false. */
void case_read(const json_t *object, CaseForm form, const char *where, int64_t vocab, BundleCase *c, RunArgs *run, CloverError *err);
void case_free(BundleCase *c);
void case_run_free(RunArgs *run);

/* {"name", "commit": [...]} and so on; NULL: no memory. */
json_t *case_step_json(const BundleStep *step);

#endif
