/* layers.h - the three kinds of layer, each as one struct of named buffers and one table of rules.
 *
 * A rule reads buffers that earlier rules wrote and writes its own, nothing else; so it can be run alone on a dump's
 * values, replaced by a wrong one (a hypothesis), watched and overwritten. const inputs: no rule can write state; the
 * forward pass commits it. The layer functions at the end of each file read like the clauses they cite. */
#ifndef CLOVER_LAYERS_H
#define CLOVER_LAYERS_H

#include "../math/linear.h"

/* A named point where a stage's buffer can be seen and overwritten. */
typedef struct Tap { CloverWatcher *watcher; void *user; int64_t layer; } Tap;   /* layer < 0: no L-prefix */
void tap(const Tap *t, const char *stage, double *data, int dims, ...);          /* dims sizes follow, each an int64_t */

/* ---- full attention [ATT] ---- */
typedef struct Attn {
    const CloverConfig *c;
    int64_t T, past;                 /* rows now, rows in the cache; row t stands at position past + t */
    const double *x;                 /* [T, D] after attn_norm */
    const double *k_past, *v_past;   /* [past, Hkv, width] rotated keys, values */
    double *qg;                      /* [T, H, 2, width] q_proj's rows as they are */
    double *q, *gate;                /* [T, H, width] */
    double *k, *v;                   /* [T, Hkv, width] */
    double *q_norm, *k_norm;         /* after the head norm */
    double *q_rope, *k_rope;         /* after rotation */
    double *context, *gated;         /* [T, H, width] before, after the gate */
    double *out;                     /* [T, D] */
    double *scores;                  /* scratch [past + T] */
    double *angles;                  /* scratch [T, R/2, 2] cos, sin */
} Attn;
typedef void AttnRule(Run *run, const AttnW *w, Attn *a);
typedef struct AttnRules { AttnRule *project, *norm, *rotate, *attend, *gate, *out; } AttnRules;
extern const AttnRules attn_causal, attn_preview;
void attn_layer(Run *run, const Tap *t, const AttnW *w, const AttnRules *r, Attn *a);

/* ---- Gated DeltaNet [GDN, PRV] ---- */
typedef struct Gdn {
    const CloverConfig *c;
    int64_t T;
    const double *x;                 /* [T, D] after attn_norm */
    const double *ring;              /* [taps-1, C] the last raw qkv rows, oldest first */
    const double *S0;                /* [Hv, dk, dv] the state before the step */
    double *qkv;                     /* [T, C] projection */
    double *z;                       /* [T, Hv, dv] projection */
    double *b, *a;                   /* [T, Hv] projections */
    double *beta, *g;                /* [T, Hv] after sigmoid; log decay */
    double *conv;                    /* [T, C] after SiLU */
    double *q, *k;                   /* [T, Hk, dk] L2-normalised */
    double *v;                       /* [T, Hv, dv] */
    double *weights;                 /* [T, Hv, T+1] softmax, history slot last (preview) */
    double *mixed, *gated;           /* [T, Hv, dv] before, after head norm and z gate */
    double *state;                   /* [Hv, dk, dv] after the step (causal) */
    double *out;                     /* [T, D] */
    double *d;                       /* scratch [dv] */
} Gdn;
typedef void GdnRule(Run *run, const GdnW *w, Gdn *a);
typedef struct GdnRules { GdnRule *project, *gates, *conv, *split, *weigh, *mix, *gate, *out; } GdnRules;   /* weigh: NULL when causal */
extern const GdnRules gdn_causal, gdn_preview;
void gdn_layer(Run *run, const Tap *t, const GdnW *w, const GdnRules *r, Gdn *a);

/* ---- mixture of experts [MOE] ---- */
typedef struct Moe {
    const CloverConfig *c;
    int64_t T;
    double top_p;                    /* coreset bound; negative: no coreset */
    const double *x;                 /* [T, D] after ffn_norm */
    double *probs;                   /* [T, E] softmax over all */
    double *coreset;                 /* [E] 1 kept, 0 not (preview); NULL when causal: all may be chosen */
    int64_t k;                       /* experts a row has: experts_used, or the kept ones if those are fewer */
    double *ids;                     /* [T, k] in descending weight */
    double *weights;                 /* [T, k] renormalised */
    double *routed, *shared;         /* [T, D] */
    double *shared_gate;             /* [T, 1] after sigmoid */
    double *out;                     /* [T, D] */
    double *rows, *hidden, *up, *result;   /* scratch: gathered rows [T, D], [T, max(F, Fs)] twice, [T, D] */
    double *totals;                  /* scratch [E] */
    int64_t *order;                  /* scratch [max(E, T)] */
} Moe;
typedef void MoeRule(Run *run, const MoeW *w, Moe *a);
typedef struct MoeRules { MoeRule *route, *keep, *choose, *experts, *shared, *sum; } MoeRules;   /* keep: NULL when causal */
extern const MoeRules moe_causal, moe_preview;
void moe_layer(Run *run, const Tap *t, const MoeW *w, const MoeRules *r, Moe *a);

#endif
