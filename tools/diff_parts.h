/* diff_parts.h - what the files of clover diff share. */
#ifndef CLOVER_DIFF_PARTS_H
#define CLOVER_DIFF_PARTS_H

#include "../ref/files/safetensors.h"
#include "../ref/forward.h"
#include "diff.h"
#include "hypotheses/hypothesis.h"

/* Budgets are these times what the profile adds by itself: a float32 engine sums in orders that no profile runs, while a
 * fault adds a thousand times more. */
#define DIFF_MARGIN_RMS 8.0
#define DIFF_MARGIN_MAX 16.0
/* The whole may be off by this times what the profile's own run is off: two roundings of one run seldom differ by a factor of 2. */
#define DIFF_WHOLE_RMS 4.0

/* ---- difference.c ---- */
bool difference(Difference *d, const double *actual, const double *expected, int64_t n, DType type);   /* false: no memory */
double rms_of(const double *x, int64_t n);
double largest_of(const double *x, int64_t n);
double round_to_type(DType type, double x);          /* the value that a dump of that type would hold */
double type_spacing(DType type, double x);           /* from x to its neighbour in that type */
double storage_unit(DType type);                     /* a float's rounding, relative; 0 for integers and F64 */
double profile_unit(CloverNumerics profile);         /* half a unit in the last place of what its engines store, relative */
bool is_coarse(DType type, CloverNumerics profile);  /* rounds more than the profile by itself */
int ascending(const void *a, const void *b);         /* doubles, for qsort */
void logits_figures(LogitsFigures *f, const double *actual, const double *expected, int64_t rows, int64_t V);

/* ---- diff_run.c: the passes over a case, which fill probe results ---- */

/* Values that a pass keeps for the next one: in a mapped scratch file, so that they are no private memory. */
typedef struct Scratch { int fd; uint64_t used; } Scratch;

/* ---- diff_forms.c ---- */
typedef struct FormFit { const char *name; double rms, max; } FormFit;   /* what is left when the form is undone, in the golden's measure; NULL: none is near */
bool form_fit(FormFit *best, const CloverConfig *c, const char *stage, const int64_t *shape, int dims, const double *dump, const double *right);   /* false: no memory */

/* A stage against what the whole, given the dump's choices, should have there: what the dump is off, what the profile is off, and what
 * rounding to the dump's type adds to the right values. */
typedef struct DiffTotal { double rms, max, floor_rms, floor_max, storage_rms, storage_max, right_rms, right_max, in_bf16; FormFit form;
    bool unseen;                     /* its case has choices that nothing shows */
    double own_rms, own_max, profile_rms, profile_max; } DiffTotal;   /* in_bf16: share of the dump's elements that are bf16 numbers; own: storage of the computed values; profile: what pass 2 shows */

/* A hypothesis that the reference runs under; layer: the only one, -1 everywhere. */
typedef struct Forced { const Hypothesis *h; int64_t layer; } Forced;

typedef struct DiffRun {
    const DiffOptions *options;
    Bundle *bundle;
    CloverModel *model;              /* NULL: only compare */
    Dump *dump;
    DiffResult *result;
    CloverError *err;                /* sticky */
    Scratch scratch;
    int64_t room_probes, room_notes, room_not_compared;
    struct DiffTotal *total;         /* [n_probes] */
    bool other_choices;              /* the case's choices are not all the golden's */
    bool unseen;                     /* the case has choices of which the dump shows neither them nor what came of them */
    double *chosen; int64_t n_chosen, room_chosen;   /* of the case: every coreset and every expert choice that pass 1 went on with, in order */
    int64_t hidden_flips;            /* choices that only what follows from them shows */
    bool broken;                     /* a step could not be computed to its end from the dump's values */
    Forced force[IN_FORCE_MAX]; int n_force;   /* diagnosed already */
    int64_t end;                     /* of the case's steps: from this one on the dump's run has gone another way */
} DiffRun;

typedef enum PassKind { PASS_EXACT, PASS_PROFILE, PASS_GIVEN, PASS_FREE, PASS_TRIAL } PassKind;

/* One stage of one step as it comes out under other rules, from the dump's own values: what a hypothesis leaves unexplained. */
typedef struct Trial {
    const BundleCase *c;
    int64_t step_index;
    const char *probe;
    const CloverSnapshot *before;    /* the state that the step starts from; NULL: run the case from its beginning */
    int64_t from_layer;              /* the first layer of those: 0 for embed, layers when only the head is left */
    bool over, measured;             /* the stage was met; the dump has it in the shape that the rule gives */
    double rms, max, value_rms;      /* of dump - rule; of rule */
    int64_t flips, near_ties;        /* of choices */
    uint64_t stages;                 /* where the fault may be: bit i for stage_at(i), those that the dump lacks since the residual stream was in it, and the probe's own */
} Trial;

typedef struct Pass {
    DiffRun *d;
    PassKind kind;
    CloverSession *session;
    const BundleCase *c;
    const BundleStep *step;
    int64_t step_index;
    const Safetensors *golden;       /* of the step, NULL when it was not recorded */
    int64_t next;                    /* passes 2 and 3: the next result to fill */
    uint64_t at;                     /* where the values to compare with stand in the scratch */
    int64_t next_chosen;             /* passes 2 and 3: of DiffRun.chosen */
    /* Of the layer, as the later stages read them: */
    double *x, *probs, *own_probs, *coreset, *ids, *own_ids; int64_t T, k;   /* [T, D] ffn_norm, [T, E], [E] or NULL, [T, k]; own: before injection */
    bool followed;                   /* ids are not the computed ones, so the weights must be made from them */
    bool hidden;                     /* the dump does not show the layer's ids */
    bool broken;                     /* the step could not be computed to its end */
    Trial *trial;                    /* PASS_TRIAL */
    InForce force;
    DType type;                      /* of the dump's floats, as met last */
    uint64_t noise;                  /* pass 2: of the generator */
    int sample;                      /* pass 2: which run of it */
    bool coreset_unseen;             /* of the layer */
} Pass;

CloverStatus diff_cases(DiffRun *d);
CloverStatus diff_trial(DiffRun *d, Trial *t);   /* under d->force; the results stay as they are */
CloverStatus diff_state_before(DiffRun *d, const BundleCase *c, int64_t step_index, CloverSnapshot **out);   /* what that step starts from */
CloverStatus diff_plain(DiffRun *d);             /* without a model: the dump against the golden, nothing more */
void diff_note(DiffRun *d, const char *format, ...);
void diff_not_compared(DiffRun *d, const char *format, ...);

/* ---- diff_choice.c: experts and coresets, which an engine chooses ---- */
void choice_remember(Pass *p, const char *stage, const double *data, const int64_t *shape, int64_t n);
void choice_own(Pass *p, const char *stage, const double *data, int64_t n);
void choice_forget(Pass *p);
bool choice_valid(const Pass *p, const char *stage, const double *values, int64_t n);   /* can a pass go on with them? */
void choice_weights(const Pass *p, double *weights);                                    /* [T, k] of p->ids */
void choice_judge(const Pass *p, ProbeResult *r, const double *dump, const double *computed, int64_t n);
void choice_settle(Pass *p, int64_t layer, double *data, const double *dump);           /* data, dump [T, D]: what came of a hidden choice */
void choice_keep(Pass *p, const double *values, int64_t n, bool shown);                             /* pass 1 */
void choice_take(Pass *p, double *values, int64_t n);                                   /* passes 2 and 3 */

/* ---- diff_profile.c ---- */
/* Makes a session of the profile's numerics do what its engines do; rules must live as long. */
typedef struct ProfileRules { GdnRules gdn; AttnRules attn[2]; } ProfileRules;
void diff_profile(CloverSession *s, const DiffOptions *options, ProfileRules *rules);

/* ---- diff_readers.c: who reads a stage ---- */
typedef enum ReadersSay { READERS_NONE, READERS_AGREE, READERS_DIFFER } ReadersSay;   /* none: the dump has no reader of it */
void diff_total_budget(const DiffRun *d, const ProbeResult *r, double *rms, double *max);
bool diff_agrees(const DiffRun *d, const ProbeResult *r);          /* its own value with the golden's */
bool diff_agrees_in_form(const DiffRun *d, const ProbeResult *r);  /* when the nearest form is undone */
bool diff_beyond(const ProbeResult *r);                            /* what it adds exceeds the budget */
bool diff_fed_another_form(const DiffRun *d, const ProbeResult *r);
ReadersSay diff_readers(const DiffRun *d, const ProbeResult *r);

/* ---- diff_judge.c: from figures to verdicts ---- */
void diff_judge(DiffRun *d);

/* ---- diff_trace.c: decisions ---- */
CloverStatus diff_traces(DiffRun *d);

/* The first decision where a run's trace (steps, tokens) leaves the golden's. */
void diff_compare_traces(const DiffOptions *options, const json_t *golden, const json_t *dump, TraceResult *r);
/* The largest difference of two probabilities of the same decision. */
double diff_trace_distance(const json_t *golden, const json_t *dump);

/* ---- diagnose.c, diagnose_trace.c: which mistake is it? [DIA] ---- */
CloverStatus diff_diagnose(DiffRun *d);
CloverStatus diff_diagnose_traces(DiffRun *d, int divergence);
Diagnosis *diagnosis_add(DiffRun *d, const Hypothesis *h, const char *case_name, const char *step, const char *probe, int divergence, DiagnosisRank rank);   /* NULL: no memory */

/* ---- diff_report.c ---- */
const BundleCase *case_named(const Bundle *b, const char *name);   /* by the name that results borrow from the bundle */
const char *stage_at(size_t i);                      /* the names of all stages, without layers; NULL behind the last */
const char *stage_clause(const char *stage, bool preview);   /* "GDN-4", "" when none is known */
const char *verdict_name(DiffVerdict v);
const char *stage_verdict_name(StageVerdict v);
const char *feature_verdict_name(FeatureVerdict v);
void index_text(const ProbeResult *r, int64_t flat, char *out, size_t room);   /* "3, 1, 8" of a flat index */
int64_t row_of(const ProbeResult *r, int64_t flat);

/* Is this stage (without layer) a set of choices and no array of numbers? */
bool is_choice(const char *stage);
/* "gdn.mixed" of "L03.gdn.mixed"; a name without layer as it is. */
const char *stage_of(const char *probe);

#endif
