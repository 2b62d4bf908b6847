/* diff.h - the result of a diff, as the reports read it. [DIF] */
#ifndef CLOVER_DIFF_H
#define CLOVER_DIFF_H

#include "bundle.h"
#include "dump.h"

/* How one array differs from another. Everything about finite elements; relative figures against rms(expected). */
typedef struct Difference {
    double max, mean, rms, p99;      /* of |actual - expected| */
    double relative;                 /* rms / rms(expected), 0 when both are 0 */
    double cosine;
    double ulp;                      /* of the worst element, in units of the dump's type */
    int64_t worst;                   /* its flat index */
    double expected, actual;         /* at worst */
    int64_t not_finite;              /* elements of actual */
} Difference;

typedef enum StageVerdict {
    STAGE_CONFORMS,                  /* added error within the budget */
    STAGE_BELOW_FLOOR,               /* within it, but the dump's storage is so coarse that a fault could hide; see resolved */
    STAGE_REPRESENTATION,            /* beyond it, while every reader's own value agrees with the golden: another representation */
    STAGE_DIFFERS,                   /* beyond it */
    STAGE_WRONG                      /* another shape, or not finite */
} StageVerdict;

/* Logits beside the plain figures. Near ties and regret as in SPEC DIF. */
typedef struct LogitsFigures { double kl_max, kl_mean, top5_overlap, regret_max; int64_t argmax_differs, rows; } LogitsFigures;

typedef struct ProbeResult {
    const char *case_name, *step;    /* borrowed from the bundle */
    int64_t step_index;
    char probe[48];                  /* L03.gdn.mixed */
    int64_t layer;                   /* -1: none */
    DType type;                      /* of the dump */
    int64_t shape[4];
    int dims;
    Difference total;                /* dump - golden */
    bool injected;                   /* there was a model: added, inherited, floor and budget mean something */
    Difference added;                /* dump - rule(dump's inputs) */
    double inherited_rms, inherited_max;   /* rule(dump's inputs) - golden */
    double floor_rms, floor_max;     /* what the profile and the dump's storage add here */
    double budget_rms, budget_max;
    double beyond;                   /* share of elements beyond budget_max */
    double passing;                  /* the margin that would have passed */
    int64_t choices, flips, near_ties;     /* ids and coreset: decisions, those that differ, those of them within the error */
    StageVerdict verdict;
    LogitsFigures logits;            /* of the probe "logits" */
    char note[256];                  /* what a reader should know, or "" */
} ProbeResult;

typedef enum Feature { FEATURE_CAUSAL, FEATURE_PREVIEW, FEATURE_CORESET, FEATURE_DENOISE, FEATURE_DRAFT, FEATURE_CONTROLS, FEATURE_TOKENIZER, FEATURES } Feature;
typedef enum FeatureVerdict { FEATURE_NOT_SHOWN, FEATURE_CONFORMS, FEATURE_DIFFERS } FeatureVerdict;

typedef struct TraceResult {
    const char *case_name;
    bool compared, differs, explained;     /* explained: the logits put the decision within the profile's error */
    int64_t step;                    /* number of the first differing decision */
    char text[512];
} TraceResult;

/* Which mistake is it? [DIA] */
typedef enum DiagnosisRank {
    DIAGNOSIS_CAUSE,                 /* with it in force the reference gives the dump's numbers, to the floor */
    DIAGNOSIS_ALIKE,                 /* so with this one, on this data */
    DIAGNOSIS_RUNNER_UP,             /* so at the first divergence, but more is left than with the cause */
    DIAGNOSIS_PARTIAL                /* explains a part; not at the floor */
} DiagnosisRank;
typedef struct Diagnosis {
    const char *hypothesis, *clause, *says, *lint;   /* borrowed from the catalogue; clause and lint may be "" */
    const char *case_name, *step;    /* of the divergence that it explains; step NULL: a trace */
    char probe[48];                  /* of it; "trace" */
    int64_t layer;                   /* the only layer where it is so; -1: everywhere */
    int divergence;                  /* 0: the first; 1: the first with the causes before in force; ... */
    DiagnosisRank rank;
    double explains;                 /* share of the error that is gone with it in force */
    double residual, floor;          /* what is left, and what the profile and the storage add there: relative to the values' rms; of choices and decisions: shares */
    int64_t left;                    /* stages that still differ with it in force; -1: not run */
    char tells[256];                 /* ALIKE: what would tell it from the cause; "" */
} Diagnosis;

typedef enum DiffVerdict { DIFF_CONFORMS, DIFF_DIFFERS, DIFF_INCOMPARABLE } DiffVerdict;

typedef struct DiffResult {
    DiffVerdict verdict;
    const char *profile;             /* f32, bf16, llama.cpp */
    double margin_rms, margin_max;
    ProbeResult *probe;              /* in the order in which they are computed */
    int64_t n_probes;
    int64_t first;                   /* index of the first divergence, -1 */
    int64_t n_steps, n_missing;      /* steps of the golden with numbers, and those of them that the dump has no file of */
    TraceResult *trace;
    int64_t n_traces;
    Diagnosis *diagnosis;            /* best first, divergence by divergence */
    int64_t n_diagnoses;
    const char *engine_file;         /* does the dump say which file its engine ran? "the same file", "another file", "": it does not say */
    bool diagnosed;                  /* it was tried: where n_diagnoses is 0, none of the known mistakes explains it */
    FeatureVerdict feature[FEATURES];
    char **note; int64_t n_notes;
    char **not_compared; int64_t n_not_compared;   /* "CASE/STEP PROBE" or "CASE/STEP", with why */
} DiffResult;

typedef struct DiffOptions {
    const char *golden, *dump, *map, *model;   /* model NULL: the manifest's path */
    bool no_model;
    CloverNumerics profile;          /* CLOVER_F32, CLOVER_BF16, CLOVER_LLAMA_CPP */
    double margin_rms, margin_max;
    bool no_diagnosis;
    bool half_cache;                 /* the llama.cpp profile's keys and values are float16 */
} DiffOptions;

CloverStatus diff_run(const DiffOptions *options, Bundle *bundle, DiffResult *out, CloverError *err);
void diff_free(DiffResult *r);

/* Reports. */
void diff_print(const DiffResult *r, const Bundle *b);                       /* one screen */
json_t *diff_json(const DiffResult *r, const Bundle *b);                     /* NULL: no memory */
CloverStatus diff_html(const DiffResult *r, const Bundle *b, const char *dump, const char *path, CloverError *err);   /* one self-contained page */

const char *feature_name(Feature f);

#endif
