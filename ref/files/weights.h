/* weights.h - from a file's tensor names to the roles that the layers read. [TEN]
 *
 * Matrices stay in the mapping as the file has them and are decoded row by row when used. Vectors and conv kernels are
 * small: they are decoded once into doubles, in HF head order, with norms as the factor that multiplies (1 + w added
 * where the file does not hold it) and A as the positive rate exp(A_log). */
#ifndef CLOVER_WEIGHTS_H
#define CLOVER_WEIGHTS_H

#include "../clover.h"
#include "tensor.h"

/* Where a GGUF keeps HF's value head h: at p = (h % r)*Hk + h/r ("tiled"), r = Hv/Hk. A map, not a copy: indices in
 * [start, start + Hk*r*width) move by whole heads, those before start stay. width 0: no map. */
typedef struct HeadMap { int64_t start, width, Hk, r; } HeadMap;

/* The file's index of HF's index i. */
static inline int64_t head_map(const HeadMap *m, int64_t i) {
    if (m->width == 0 || i < m->start) return i;
    int64_t h = (i - m->start) / m->width, within = (i - m->start) % m->width;
    return m->start + ((h % m->r) * m->Hk + h / m->r) * m->width + within;
}

/* A matrix [rows, cols] in the mapping; rows of row_bytes each. Indices are HF's; the maps lead to the file's. */
typedef struct Matrix {
    const Tensor *tensor;            /* for messages */
    const uint8_t *data;             /* row 0 of this matrix (an expert's slice of a 3-D tensor starts inside it) */
    DType type;
    int64_t rows, cols, row_bytes;
    HeadMap row_map, col_map;
} Matrix;

typedef struct AttnW {
    Matrix q, k, v, o;               /* [H*2*width, D] per head query rows then gate rows; [Hkv*width, D] twice; [D, H*width] */
    const double *q_norm, *k_norm;   /* [width] factors */
} AttnW;

typedef struct GdnW {
    Matrix qkv, z, beta, alpha, out; /* [C, D], [Vd, D], [Hv, D], [Hv, D], [D, Vd] */
    const double *conv;              /* [C, taps], the last tap reads the row itself */
    const double *dt_bias, *rate;    /* [Hv]; rate = exp(A_log) */
    const double *norm;              /* [dv] plain factor */
    const double *conv_right;        /* [C, taps-1], entry d-1 reads d rows after; NULL when the file has none */
    const double *logit_scale, *history_bias, *history_c;   /* [Hv]; NULL when the file has none */
} GdnW;

typedef struct ExpertW { Matrix gate, up, down; } ExpertW;   /* [F, D], [F, D], [D, F] */

typedef struct MoeW {
    Matrix router;                   /* [E, D] */
    ExpertW *expert;                 /* [E] */
    ExpertW shared;                  /* [Fs, D], [Fs, D], [D, Fs] */
    Matrix shared_gate;              /* [1, D] */
} MoeW;

typedef struct LayerW {
    bool full_attention;
    const double *attn_norm, *ffn_norm;   /* [D] factors */
    AttnW attn;                      /* filled when full_attention */
    GdnW gdn;                        /* filled when not */
    MoeW moe;
} LayerW;

typedef struct Weights {
    Matrix embed, head;              /* [V, D] each; the same when tied */
    const double *norm;              /* [D] final norm factor */
    LayerW *layer;                   /* [layers] */
    int64_t layers;
    bool diffusion;                  /* every GDN layer has its four diffusion tensors */
    bool tiled;                      /* the file holds value heads in GGUF's order */
    /* What the file has beyond the model, and lacks: for inspect. Names point into the tensor list or into `arena`. */
    const Tensor **ignored; int64_t n_ignored;    /* mtp.*, visual.*, nextn layers: known and left out */
    const Tensor **unknown; int64_t n_unknown;    /* no role known */
    char **missing; int64_t n_missing;            /* names of tensors a full Clover has and this file lacks (diffusion) */
    void *arena;                     /* owns everything above that is not in the mapping */
} Weights;

typedef enum NameForm { NAMES_GGUF, NAMES_HF } NameForm;

/* Binds every role. Reports all missing tensors and wrong shapes at once, the diffusion tensors' absence excepted (some
 * present and others missing is a problem). Vectors with a NaN or infinity are a problem of class CLOVER_BAD_INPUT.
 * A GGUF whose values show a drift that makes garbage (an ssm_a >= 0 anywhere: raw A_log there; norms that average near 0:
 * not shifted) is refused with the mend named, read mended, or as it is. diffusion_heads_tiled: what the file says of its
 * diffusion tensors (1, 0, -1 when it does not say); the options' diffusion_heads_grouped wins. */
CloverStatus weights_bind(const TensorList *tensors, NameForm form, const CloverConfig *config, const CloverOpenOptions *options,
                          int diffusion_heads_tiled, Weights *out, CloverError *err);
void weights_free(Weights *w);

/* The role that a name of that form has, as the Hugging Face name behind the layer's prefix ("self_attn.q_proj.weight",
 * "embed_tokens.weight"), whatever the layer; NULL when no role has it. [TEN-1, TEN-3] */
const char *weights_role(const char *name, NameForm form);

/* What one layer's ssm_a holds, in a GGUF where some layer holds raw A_log: every value may be one or the other where all are
 * below 0, so that likelihood decides, and where it is less than e^4 either way nothing does. [TEN-10] */
typedef enum RateForm { RATE_RIGHT, RATE_RAW, RATE_UNDECIDED } RateForm;
RateForm weights_rate_form(const double *values, int64_t n);
double weights_log_usual(double a_log);    /* log density, but for a constant, of what A_log usually is: 0.7 +- 1.5 */

/* What stands behind a role, for tools that write, compare and mend files. [TEN-1, TEN-5, TEN-6, TEN-7] */
typedef enum RoleForm { ROLE_MATRIX, ROLE_PLAIN, ROLE_LAYER_NORM, ROLE_HEAD_NORM, ROLE_RATE } RoleForm;
typedef enum RoleHeads { ROLE_NO_HEADS, ROLE_QKV_ROWS, ROLE_V_ROWS, ROLE_HEAD_ROWS, ROLE_V_COLS } RoleHeads;
typedef struct WeightRole {
    const char *const *gguf, *const *hf;   /* [3] the names it may have behind the layer's prefix, the usual one first, then NULL */
    const char *single;              /* of experts: HF's name behind mlp.experts.E., else NULL */
    RoleForm form;
    RoleHeads heads;
    int64_t experts, rows, cols;     /* experts 0: none; a vector's cols are 1 */
    int half;                        /* of experts' gate and up, which HF keeps in one tensor: 0 and 1, else -1 */
    bool diffusion;
} WeightRole;

/* The role that has this usual GGUF name behind the layer's prefix ("attn_q.weight"); false: none has. */
bool weights_describe(const char *gguf, const CloverConfig *config, WeightRole *out);

#endif
