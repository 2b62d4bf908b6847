/* hypothesis.h - the catalogue of known mistakes: each a few lines that do a rule wrong on purpose. [HYP]
 *
 * Right rules are in ref/, wrong ones only here. A hypothesis is put in force on a session: it points some of the session's
 * rules elsewhere, changes a parameter, or meddles with the state between two steps; a decoding fault replaces a decision of
 * a decode mode. The diff's diagnosis and `clover hypotheses NAME --dump` use the same ones. */
#ifndef CLOVER_HYPOTHESIS_H
#define CLOVER_HYPOTHESIS_H

#include "../../ref/decoder.h"
#include "../../ref/forward.h"

typedef enum HypothesisKind { HYPOTHESIS_STAGE, HYPOTHESIS_PARAMETER, HYPOTHESIS_STATE, HYPOTHESIS_DECODING } HypothesisKind;

/* Copies of a session's rules, in which some are replaced. [0] commit, [1] preview */
typedef struct HypothesisRules { TrunkRules trunk; AttnRules attn[2]; GdnRules gdn[2]; MoeRules moe[2]; } HypothesisRules;

/* What a state fault sees of a step, and what it may keep from one stage or step to the next. */
typedef enum HypothesisMoment { BEFORE_COMMIT, AFTER_COMMIT, BEFORE_PREVIEW, AFTER_PREVIEW, AFTER_SNAPSHOT, AFTER_RESTORE } HypothesisMoment;
typedef struct HypothesisKeep { double *data; int64_t n, rows; } HypothesisKeep;         /* data NULL until kept; freed for it */
typedef struct HypothesisMemory { HypothesisKeep *layer[4]; int64_t layers; } HypothesisMemory;   /* up to four arrays a layer, each [layers] */

typedef struct Hypothesis {
    const char *name;                /* gdn_heads_tiled */
    HypothesisKind kind;
    const char *clause;              /* of SPEC.md, that it breaks: "GDN-5" */
    const char *stages;              /* where it enters, without layer, in the order in which they are computed: "gdn.mixed gdn.state" */
    const char *says;                /* "your engine " + says: "pairs value heads tiled instead of grouped" */
    const char *right, *wrong;       /* the formulas, one line each */
    const char *shows;               /* one sentence: how it shows */
    const char *needs;               /* what it needs to show: "a preview", "a second step", "n not 32"; "" */
    const char *report;              /* where it was met, from public reports; "" */
    const char *lint;                /* the lint id by which a file, not the engine, may be the cause; "" */
    void (*rules)(HypothesisRules *r);                      /* or NULL */
    void (*parameter)(CloverSession *s);                    /* changes s->c, s->coreset_top_p; or NULL */
    /* State faults. observe sees every stage of every step (after injection, if there is any); at meddles with s->state. Both or one; NULL. */
    void (*observe)(HypothesisMemory *m, const CloverSession *s, bool preview, const char *name, const double *data, const int64_t *shape, int dims);
    void (*at)(HypothesisMemory *m, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err);
    void (*decoding)(DecodeRules *r);                       /* decoding faults: points one of ref/'s decoding rules elsewhere; or NULL */
} Hypothesis;

/* ---- catalogue.c ---- */
int hypotheses_count(void);
const Hypothesis *hypothesis_at(int i);
const Hypothesis *hypothesis_named(const char *name);       /* NULL: there is none */
bool hypothesis_enters(const Hypothesis *h, const char *stage);   /* is stage (without layer) one of h->stages? */

/* The parts of the catalogue, a file each. */
typedef struct HypothesisList { const Hypothesis *h; int n; } HypothesisList;
extern const HypothesisList hypotheses_rounding;           /* no mistakes, but what a diff may take for one; not in the catalogue */
extern const Hypothesis hypothesis_bf16;                   /* nor is this one: bf16 throughout */
extern const HypothesisList hypotheses_trunk, hypotheses_attention, hypotheses_gdn, hypotheses_preview, hypotheses_moe, hypotheses_parameters,
                            hypotheses_state, hypotheses_decoding;

/* ---- in_force.c: hypotheses at work on a session ---- */
enum { IN_FORCE_MAX = 8 };
typedef struct InForce {
    const Hypothesis *h[IN_FORCE_MAX];
    int n;
    int64_t layer[IN_FORCE_MAX];     /* the only layer where it is in force; -1: everywhere */
    HypothesisRules base, rules;     /* the session's own; what its rules point at */
    CloverConfig config;             /* the session's own */
    double coreset_top_p;
    DecodeRules decoding;
    HypothesisMemory memory[IN_FORCE_MAX];
} InForce;

/* s's rules, as they are, with the hypotheses' own in place of some; f must live as long as s is used and be released after. */
CloverStatus in_force_begin(InForce *f, const Hypothesis *const *h, int n, CloverSession *s, CloverError *err);
/* To be called from the session's watcher, and around every step, snapshot and restore. */
void in_force_observe(InForce *f, const CloverSession *s, bool preview, const char *name, const double *data, const int64_t *shape, int dims);
CloverStatus in_force_at(InForce *f, CloverSession *s, HypothesisMoment moment, int64_t rows, CloverError *err);
void in_force_end(InForce *f);
/* A stage rule or a parameter in one layer only. Then the watcher calls in_force_passed with every stage, so that rules change between layers. */
void in_force_only(InForce *f, CloverSession *s, int i, int64_t layer);
void in_force_passed(InForce *f, CloverSession *s, const char *name);

/* Steps with the hypotheses at work; f NULL: as they are. The session's watcher calls in_force_observe. */
CloverStatus in_force_commit(InForce *f, CloverSession *s, const int32_t *ids, int64_t n, double *logits, int64_t rows, CloverError *err);
CloverStatus in_force_preview(InForce *f, CloverSession *s, const int32_t *ids, int64_t n, double *logits, CloverError *err);
CloverStatus in_force_snapshot(InForce *f, CloverSession *s, CloverSnapshot **out, CloverError *err);
CloverStatus in_force_restore(InForce *f, CloverSession *s, const CloverSnapshot *snapshot, CloverError *err);

#endif
