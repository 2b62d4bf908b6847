/* forward.h - the forward pass and the session that runs it. Internal; tools that swap rules (hypotheses) use it. */
#ifndef CLOVER_FORWARD_H
#define CLOVER_FORWARD_H

#include "layers/layers.h"
#include "model.h"
#include "state.h"

/* What stands between the layers. h is the residual stream [T, D]. */
typedef struct TrunkRules {
    void (*embed)(Run *run, const Weights *w, const CloverConfig *c, const int32_t *ids, int64_t T, double *h);
    void (*norm)(Run *run, const double *weight, const CloverConfig *c, const double *h, int64_t T, double *x);   /* before a mixer, a MoE, the head */
    void (*add)(Run *run, const double *y, int64_t n, double *h);                                                /* h += y, n elements */
    void (*head)(Run *run, const Weights *w, const double *x, int64_t T, double *logits);                        /* logits [T, V] */
    /* Rules of single places, for hypotheses; NULL: as above. */
    void (*ffn_norm)(Run *run, const double *weight, const CloverConfig *c, const double *h, int64_t T, double *x);     /* before a MoE */
    void (*final_norm)(Run *run, const double *weight, const CloverConfig *c, const double *h, int64_t T, double *x);   /* before the head */
    void (*add_mixer)(Run *run, const LayerW *w, const CloverConfig *c, const double *y, int64_t T, double *h);         /* the mixer's output */
} TrunkRules;

typedef struct Rules {
    const TrunkRules *trunk;
    const AttnRules *attn_commit, *attn_preview;
    const GdnRules *gdn_commit, *gdn_preview;
    const MoeRules *moe_commit, *moe_preview;
} Rules;

extern const TrunkRules trunk_rules;
extern const Rules right_rules;

struct CloverSession {
    const CloverModel *model;
    CloverConfig c;                  /* a copy: a hypothesis may change a parameter */
    Rules rules;                     /* a hypothesis points one of them elsewhere */
    Run run;
    double coreset_top_p;            /* negative: off */
    State state;                     /* committed */
    State next;                      /* ring and S as a commit leaves them; becomes the state when all of it succeeded */
    CloverWatcher *watcher;
    void *watcher_user;
};

struct CloverSnapshot { State state; };

/* to: the last taps-1 rows of [from | qkv [T, C]], a ring moved on by T raw rows; from may be to. [STA-2] */
void roll_ring(double *to, const double *from, const double *qkv, const CloverConfig *c, int64_t T);

/* Rows a commit computes at once, when nobody watches: any number gives the same bits, this one bounds the buffers. [STA-3] */
enum { COMMIT_ROWS = 128 };

#endif
