/* golden.h - what the files of clover golden share: the plan, the run of one case, the folder that it goes to. */
#ifndef CLOVER_GOLDEN_H
#define CLOVER_GOLDEN_H

#include "case.h"
#include "../ref/files/dtype.h"
#include "hypotheses/hypothesis.h"

/* One case, ready to run. */
typedef struct GoldenCase {          /* what it points to in the case's JSON is borrowed: keep that */
    json_t *json;                    /* as the manifest will have it, but for the steps of a run and the folder; borrowed from the plan */
    BundleCase given;                /* its names, and the steps of a case of steps */
    RunArgs args;
    bool is_run;
    char *globs;                     /* its probes, comma-separated; "" for none */
    CloverDecodeOptions decode;      /* of a run */
    int32_t *prompt;                 /* [n_prompt] of a run */
    int64_t n_prompt;
    int64_t capacity;                /* positions */
} GoldenCase;

/* Cases run by an engine with known mistakes: what comes out is its dump, no bundle. [HYP] */
typedef struct GoldenFaults {
    const Hypothesis *const *h;      /* [n] */
    int n;
    DType type;                      /* of the dump's floats */
} GoldenFaults;

typedef struct Golden {
    const GoldenFaults *faults;      /* NULL: the right engine */
    const ModelArgs *args;
    const CloverModel *model;
    json_t *plan;                    /* the manifest, but for files and the steps of runs: what two runs must share to go on where one stopped */
    GoldenCase *cases;               /* those of this shard */
    int64_t n_cases;
    const char *out;                 /* the bundle's folder */
} Golden;

/* ---- golden_plan.c ---- */
typedef struct GoldenShard { int64_t index, count; } GoldenShard;   /* index from 1; 1 of 1: everything */

/* cases: the array of a case file, or one made of the command line's flags (single), which then lies at the top. label
 * stands for its source in messages. Every problem of every case is reported at once. */
CloverStatus golden_plan(Golden *g, const json_t *cases, bool single, const char *label, GoldenShard shard, bool full_hash, CloverError *err);
void golden_free(Golden *g);

/* ---- golden_case.c: one case, every step of which becomes a file ---- */
typedef struct CaseFiles {           /* what a case came to */
    json_t *steps;                   /* array, as the manifest has it */
    json_t *names;                   /* array: the files that it wrote, relative to the bundle */
} CaseFiles;

/* told is called after every step: how much of the case is done, 0 to 1. */
typedef void GoldenTold(void *user, const char *step, double done);
CloverStatus golden_case(const Golden *g, const GoldenCase *c, GoldenTold *told, void *user, CaseFiles *out, CloverError *err);

/* ---- golden_state.c: a session's state on disk, so that a broken-off case goes on ---- */
typedef struct KeptSnapshot {
    const char *name;
    int64_t call, position;          /* the call that took it; the position it holds */
    CloverSnapshot *snapshot;        /* NULL: not taken in this session yet */
    bool released;                   /* nobody will restore it again */
} KeptSnapshot;

CloverStatus state_save(const char *path, const char *case_name, int64_t calls, const CloverSession *s, KeptSnapshot *const *kept, int64_t n_kept, CloverError *err);
/* How many calls of that case the file's state is after; 0: it is of no use. Fills the session and the snapshots that it holds. */
int64_t state_load(const char *path, const char *case_name, int64_t at_most, CloverSession *s, KeptSnapshot *const *kept, int64_t n_kept);

/* ---- golden_folder.c: the bundle's folder ---- */
typedef struct Folder {
    const char *out;
    char *unfinished, *plan, *done, *manifest, *provenance;   /* paths */
    int lock;                        /* -1: not held */
} Folder;

/* Makes the folder ready for this plan, or to go on where a run of the same plan stopped; *whole: it is that bundle already.
 * Free f in any case. */
CloverStatus folder_begin(Folder *f, const char *out, const json_t *plan, bool force, bool *whole, CloverError *err);
/* Everything is there but the manifest. */
CloverStatus folder_finish(Folder *f, const json_t *manifest, int argc, char **argv, CloverError *err);
void folder_free(Folder *f);

/* A manifest without what a run adds to the plan; NULL: no memory. */
json_t *plan_of_manifest(const json_t *manifest);

bool path_exists(const char *path);
/* Removes what a killed run was about to write: NAME.partial-PID. */
void remove_partials(const char *folder);
/* A file, or a folder and what is in it. Links are removed, not followed. */
void remove_all(const char *path);
/* Keys sorted and reals with all their digits, so that equal things are equal bytes. */
CloverStatus write_sorted_json(const char *path, const json_t *json, CloverError *err);

/* ---- golden_write.c, golden_merge.c ---- */
CloverStatus golden_write(Golden *g, bool force, int argc, char **argv, CloverError *err);
CloverStatus golden_merge(const char *out, char *const *parts, int64_t n, bool force, int argc, char **argv, CloverError *err);

#endif
