/* bundle.h - a golden bundle: the folder that clover golden writes and clover diff reads. [BND]
 *
 *   manifest.json      schema version, SPEC version, model (path, identity, config), numerics, cases with their steps, SHA-256 of every file
 *   provenance.json    tool, commit, command, time: what differs from run to run, so it stands in no hash
 *   CASE/STEP.safetensors   one step: ids, logits and the probes asked for (a single case may lie at the top)
 *   CASE/trace.json    a run's decisions: prompt, options, controls, tokens, steps as clover run --json gives them
 *
 * A case is a list of steps, whatever it was made from: a decode run's steps are the calls that decoding made of the
 * engine, in order, so that a diff can replay them. */
#ifndef CLOVER_BUNDLE_H
#define CLOVER_BUNDLE_H

#include <jansson.h>
#include "../ref/clover.h"

enum { BUNDLE_SCHEMA = 1 };
#define BUNDLE_UNFINISHED ".unfinished"   /* the folder in a bundle's that holds what a broken-off run needs to go on */

typedef enum StepKind { STEP_COMMIT, STEP_PREVIEW, STEP_SNAPSHOT, STEP_RESTORE } StepKind;

typedef struct BundleStep {
    const char *name;                /* of the file; of the snapshot for snapshot and restore */
    StepKind kind;
    int32_t *ids;                    /* commit, preview */
    int64_t n;
    bool recorded;                   /* NAME.safetensors exists */
} BundleStep;

typedef struct BundleCase {
    const char *name, *why;
    const char *folder;              /* of its files, "" at the top */
    BundleStep *step;
    int64_t n_steps;
    double coreset_top_p;            /* of its previews: NaN as the model says, < 0 off */
    json_t *features;                /* array of strings, or NULL; borrowed from the manifest */
    json_t *prompt, *mode, *options, *controls;   /* of a run, or NULL; borrowed */
    bool has_trace;
} BundleCase;

typedef struct Bundle {
    char *path;
    json_t *manifest;
    const char *model_path, *identity, *numerics;  /* as the manifest says; borrowed */
    bool full_hash;                  /* identity is over all bytes of the tensors */
    BundleCase *cases;
    int64_t n_cases;
} Bundle;

/* Reads and checks the manifest (schema, types, names without "/" or ".."), not the files' hashes. */
CloverStatus bundle_open(const char *path, Bundle *out, CloverError *err);
void bundle_close(Bundle *b);

/* SHA-256 of every file named, and no file that is not named: each difference is a line, class CLOVER_BAD_INPUT. */
CloverStatus bundle_verify(const Bundle *b, CloverError *err);

/* PATH/FOLDER/NAME.ending, malloc'ed; NULL when out of memory. */
char *bundle_file(const Bundle *b, const BundleCase *c, const char *name, const char *ending);

/* Its cases as a case file has them (a run's steps are what comes out again); NULL when out of memory. */
json_t *bundle_cases(const Bundle *b);

/* A model's identity: SHA-256 (hex) over its header and config and the first 4 KiB of each tensor (all of it when full). */
CloverStatus model_identity(const CloverModel *model, bool full, char hex[65], CloverError *err);

#endif
