/* engine.h - engines for clover diff to judge: our own session with one wrong rule, parameter or state, and what it dumps. */
#ifndef CLOVER_TEST_ENGINE_H
#define CLOVER_TEST_ENGINE_H

#include "../ref/files/dtype.h"
#include "../ref/forward.h"
#include "../tools/hypotheses/hypothesis.h"

typedef HypothesisRules EngineRules;   /* of an engine of our own: its mistakes are not the catalogue's */

typedef struct Fault {
    const char *name;
    const char *step, *probe;        /* where it enters: A. the first full-attention layer, G. the first GDN layer, 0. layer 0 */
    void (*rules)(EngineRules *r);   /* or NULL */
    void (*session)(CloverSession *s);                       /* a parameter; or NULL */
    void (*after)(CloverSession *s, const char *step);       /* the state, after a step; or NULL */
    bool coreset;                    /* shows only where a coreset is on */
    bool small;                      /* no more than float16 rounds */
} Fault;

extern const Fault engine_faults[];
extern const int n_engine_faults;

/* The steps that every test engine runs: commits, a preview, a snapshot and its restore. */
typedef struct EngineStep { const char *name; char kind; int32_t ids[16]; int64_t n; } EngineStep;   /* kind: c p s r */
extern const EngineStep engine_steps[];
extern const int n_engine_steps;
enum { ENGINE_STEPS = 6 };

typedef struct Engine {
    const Fault *fault;              /* NULL: a right engine */
    CloverNumerics numerics;
    DType type;                      /* of the dump's floats; ids are int32 */
    double coreset_top_p;
    bool (*wants)(void *user, const char *step, const char *probe);            /* NULL: every probe; asked with "" for a step's file, "ids" for its ids */
    void (*shows)(void *user, const char *step, const char *probe, double *data, const int64_t *shape, int dims);   /* changes what the dump holds; or NULL */
    void *user;
} Engine;

/* FOLDER/STEP.safetensors for every step. Fails the test when something else fails. */
void engine_dump(const CloverModel *model, const Engine *e, const char *folder);

/* The case as clover golden takes it, all probes. */
void engine_cases(const char *path, double coreset_top_p);

/* The probe where a fault enters in this model. */
void engine_probe(const CloverModel *model, const Fault *f, char *out, size_t room);

#endif
