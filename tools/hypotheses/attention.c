/* attention.c - mistakes in full attention. [ATT] */
#include <math.h>
#include "../../ref/math/elementary.h"
#include "wrong.h"

static int64_t queries(const Attn *a) { return a->T * a->c->heads * a->c->head_width; }

/* ---- q_proj's rows --------------------------------------------------------------------------------------------- */

static void project_flat(Run *run, const AttnW *w, Attn *a) {   /* all query rows first, then all gate rows */
    const int64_t row = a->c->heads * a->c->head_width;
    attn_causal.project(run, w, a);
    for (int64_t t = 0; t < a->T; t++) {
        memcpy(a->q + t * row, a->qg + 2 * t * row, (size_t)row * sizeof(double));
        memcpy(a->gate + t * row, a->qg + (2 * t + 1) * row, (size_t)row * sizeof(double));
    }
}
static void set_flat(HypothesisRules *r) { r->attn[0].project = r->attn[1].project = project_flat; }

static void project_gate_first(Run *run, const AttnW *w, Attn *a) {
    Attn b = *a;
    b.q = a->gate, b.gate = a->q;
    attn_causal.project(run, w, &b);
}
static void set_gate_first(HypothesisRules *r) { r->attn[0].project = r->attn[1].project = project_gate_first; }

/* ---- head norms and rotation ----------------------------------------------------------------------------------- */

static void no_norm(Run *run, const AttnW *w, Attn *a) {
    (void)run, (void)w;
    memcpy(a->q_norm, a->q, (size_t)queries(a) * sizeof(double));
    memcpy(a->k_norm, a->k, (size_t)(a->T * a->c->kv_heads * a->c->head_width) * sizeof(double));
}
static void set_no_norm(HypothesisRules *r) { r->attn[0].norm = r->attn[1].norm = no_norm; }

/* norm(rotate(q)): the length is the same, but the norm's weight meets other dims. */
static void norm_late(Run *run, const AttnW *w, Attn *a) {
    Attn turned = *a, normed = *a;
    turned.q_norm = a->q, turned.k_norm = a->k;
    attn_causal.rotate(run, w, &turned);
    normed.q = normed.q_norm = a->q_rope, normed.k = normed.k_norm = a->k_rope;
    attn_causal.norm(run, w, &normed);
}
static void set_norm_late(HypothesisRules *r) { r->attn[0].rotate = r->attn[1].rotate = norm_late; }

/* How an engine may rotate. */
typedef struct Rotary {
    int64_t dims, of;                /* how many dims turn; frequencies are base^(-2i/of) */
    int64_t later;                   /* added to the position */
    bool adjacent;                   /* pairs (2i, 2i+1) */
    Storage frequency;
} Rotary;
static Rotary rotary(const Run *run, const Attn *a) { return (Rotary){ a->c->rotary_dims, a->c->rotary_dims, 0, false, run->inner }; }

/* from, to [T, heads, width] */
static void turn(const Run *run, const Attn *a, Rotary how, double *to, const double *from, int64_t heads) {
    const int64_t width = a->c->head_width;
    const Storage s = run->storage;
    memcpy(to, from, (size_t)(a->T * heads * width) * sizeof *to);
    for (int64_t t = 0; t < a->T; t++)
        for (int64_t i = 0; i < how.dims / 2; i++) {
            const double frequency = round_to(how.frequency, round_to(run->inner, el_pow(a->c->rope_base, -2.0 * (double)i / (double)how.of)));
            const double angle = round_to(run->inner, (double)(a->past + t + how.later) * frequency);
            const double c = round_to(s, el_cos(angle)), sn = round_to(s, el_sin(angle));
            const int64_t first = how.adjacent ? 2 * i : i, second = how.adjacent ? 2 * i + 1 : i + how.dims / 2;
            for (int64_t h = t * heads; h < (t + 1) * heads; h++) {
                const double lo = from[h * width + first], hi = from[h * width + second];
                to[h * width + first] = round_to(s, round_to(s, lo * c) - round_to(s, hi * sn));
                to[h * width + second] = round_to(s, round_to(s, hi * c) + round_to(s, lo * sn));
            }
        }
}
static void turn_both(const Run *run, Attn *a, Rotary how) {
    turn(run, a, how, a->q_rope, a->q_norm, a->c->heads);
    turn(run, a, how, a->k_rope, a->k_norm, a->c->kv_heads);
}
static void rotate_adjacent(Run *run, const AttnW *w, Attn *a) {
    (void)w;
    Rotary how = rotary(run, a);
    how.adjacent = true;
    turn_both(run, a, how);
}
static void rotate_all(Run *run, const AttnW *w, Attn *a) {
    (void)w;
    Rotary how = rotary(run, a);
    how.dims = how.of = a->c->head_width / 2 * 2;
    turn_both(run, a, how);
}
static void rotate_by_width(Run *run, const AttnW *w, Attn *a) {
    (void)w;
    Rotary how = rotary(run, a);
    how.of = a->c->head_width;
    turn_both(run, a, how);
}
static void rotate_coarse(Run *run, const AttnW *w, Attn *a) {
    (void)w;
    Rotary how = rotary(run, a);
    how.frequency = STORE_BF16;
    turn_both(run, a, how);
}
static void rotate_queries_only(Run *run, const AttnW *w, Attn *a) {
    attn_causal.rotate(run, w, a);
    memcpy(a->k_rope, a->k_norm, (size_t)(a->T * a->c->kv_heads * a->c->head_width) * sizeof(double));
}
static void rotate_queries_late(Run *run, const AttnW *w, Attn *a) {   /* a query stands one position after its own key */
    Rotary how = rotary(run, a);
    how.later = 1;
    attn_causal.rotate(run, w, a);
    turn(run, a, how, a->q_rope, a->q_norm, a->c->heads);
}
static void set_adjacent(HypothesisRules *r) { r->attn[0].rotate = r->attn[1].rotate = rotate_adjacent; }
static void set_all(HypothesisRules *r) { r->attn[0].rotate = r->attn[1].rotate = rotate_all; }
static void set_by_width(HypothesisRules *r) { r->attn[0].rotate = r->attn[1].rotate = rotate_by_width; }
static void set_coarse(HypothesisRules *r) { r->attn[0].rotate = r->attn[1].rotate = rotate_coarse; }
static void set_queries_only(HypothesisRules *r) { r->attn[0].rotate = r->attn[1].rotate = rotate_queries_only; }
static void set_queries_late(HypothesisRules *r) { r->attn[0].rotate = r->attn[1].rotate = rotate_queries_late; }

/* ---- scores ---------------------------------------------------------------------------------------------------- */

/* Query head h reads KV head h mod Hkv: the right rule on query heads put where the right KV head is theirs. */
static void attend_tiled(Run *run, const AttnW *w, Attn *a, AttnRule *right) {
    const int64_t H = a->c->heads, Hkv = a->c->kv_heads, width = a->c->head_width, group = H / Hkv;
    double *room = wrong_room(run, 2 * queries(a));
    if (!room) {
        right(run, w, a);
        return;
    }
    Attn b = *a;
    b.q_rope = room, b.context = room + queries(a);
    for (int64_t i = 0; i < a->T * H; i++) {
        const int64_t h = i % H, at = h % Hkv * group + h / Hkv;
        memcpy(b.q_rope + (i - h + at) * width, a->q_rope + i * width, (size_t)width * sizeof(double));
    }
    right(run, w, &b);
    for (int64_t i = 0; i < a->T * H; i++) {
        const int64_t h = i % H, at = h % Hkv * group + h / Hkv;
        memcpy(a->context + i * width, b.context + (i - h + at) * width, (size_t)width * sizeof(double));
    }
    free(room);
}
static void commit_tiled(Run *run, const AttnW *w, Attn *a) { attend_tiled(run, w, a, attn_causal.attend); }
static void preview_tiled(Run *run, const AttnW *w, Attn *a) { attend_tiled(run, w, a, attn_preview.attend); }
static void set_tiled(HypothesisRules *r) { r->attn[0].attend = commit_tiled, r->attn[1].attend = preview_tiled; }

/* Scores `factor` times as large. */
static void attend_scaled(Run *run, const AttnW *w, Attn *a, AttnRule *right, double factor) {
    double *q = wrong_times(run, a->q_rope, factor, queries(a));
    Attn b = *a;
    if (q) b.q_rope = q;
    right(run, w, &b);
    free(q);
}
static double root_width(const Attn *a) { return sqrt((double)a->c->head_width); }
static void commit_unscaled(Run *run, const AttnW *w, Attn *a) { attend_scaled(run, w, a, attn_causal.attend, root_width(a)); }
static void preview_unscaled(Run *run, const AttnW *w, Attn *a) { attend_scaled(run, w, a, attn_preview.attend, root_width(a)); }
static void set_unscaled(HypothesisRules *r) { r->attn[0].attend = commit_unscaled, r->attn[1].attend = preview_unscaled; }
static void commit_by_width(Run *run, const AttnW *w, Attn *a) { attend_scaled(run, w, a, attn_causal.attend, 1 / root_width(a)); }
static void preview_by_width(Run *run, const AttnW *w, Attn *a) { attend_scaled(run, w, a, attn_preview.attend, 1 / root_width(a)); }
static void set_scaled_by_width(HypothesisRules *r) { r->attn[0].attend = commit_by_width, r->attn[1].attend = preview_by_width; }

static void set_unmasked(HypothesisRules *r) { r->attn[0].attend = attn_preview.attend; }

/* ---- the output gate ------------------------------------------------------------------------------------------- */

static void gate_missing(Run *run, const AttnW *w, Attn *a) {
    (void)run, (void)w;
    memcpy(a->gated, a->context, (size_t)queries(a) * sizeof(double));
}
static void gate_silu(Run *run, const AttnW *w, Attn *a) {
    (void)w;
    const Storage s = run->storage;
    for (int64_t i = 0; i < queries(a); i++) a->gated[i] = round_to(s, a->context[i] * round_to(s, silu(a->gate[i])));
}
static void set_gate_missing(HypothesisRules *r) { r->attn[0].gate = r->attn[1].gate = gate_missing; }
static void set_gate_silu(HypothesisRules *r) { r->attn[0].gate = r->attn[1].gate = gate_silu; }

#define A_LAYER "a full-attention layer"
static const Hypothesis list[] = {
    { .name = "q_gate_flat", .kind = HYPOTHESIS_STAGE, .clause = "ATT-1", .stages = "attn.q attn.gate", .rules = set_flat,
      .says = "splits q_proj into all query rows and all gate rows instead of head by head",
      .right = "q_proj rows: head 0's q, head 0's gate, head 1's q, ...", .wrong = "q_proj rows: q of all heads, gate of all heads",
      .shows = "Only the first half of head 0 is right; the text is garbage.", .needs = A_LAYER " of two heads",
      .report = "llmmanorg/llmman PR 16; NeuraLegion/shainet PR 199; kekzl/imp PR 1279", .lint = "q-gate-flat" },
    { .name = "q_gate_swapped", .kind = HYPOTHESIS_STAGE, .clause = "ATT-1", .stages = "attn.q attn.gate", .rules = set_gate_first,
      .says = "takes q_proj's gate rows for the query rows", .right = "per head: width query rows, then width gate rows",
      .wrong = "per head: width gate rows, then width query rows",
      .shows = "Queries and gates are each other.", .needs = A_LAYER, .report = "", .lint = "" },
    { .name = "qk_norm_missing", .kind = HYPOTHESIS_STAGE, .clause = "ATT-2", .stages = "attn.q_norm attn.k_norm", .rules = set_no_norm,
      .says = "does not normalise the heads of q and k", .right = "q = RMSNorm(q; q_norm), k = RMSNorm(k; k_norm)", .wrong = "q = q, k = k",
      .shows = "Scores have another size, so attention is too sharp or too flat.", .needs = A_LAYER, .report = "", .lint = "" },
    { .name = "qk_norm_after_rope", .kind = HYPOTHESIS_STAGE, .clause = "ATT-2", .stages = "attn.q_rope attn.k_rope", .rules = set_norm_late,
      .says = "normalises q and k after the rotation instead of before", .right = "rotate(RMSNorm(q))", .wrong = "RMSNorm(rotate(q))",
      .shows = "The norm's weights meet dims that were mixed; small where those weights are alike.",
      .needs = A_LAYER " with uneven q_norm weights, a position after the first", .report = "", .lint = "" },
    { .name = "rope_adjacent_pairs", .kind = HYPOTHESIS_STAGE, .clause = "ATT-3", .stages = "attn.q_rope attn.k_rope", .rules = set_adjacent,
      .says = "rotates adjacent dims (2i, 2i+1) instead of (i, i+R/2)", .right = "pairs (i, i + R/2)", .wrong = "pairs (2i, 2i + 1)",
      .shows = "Position 0 is right, later ones drift; the text loses its order.", .needs = A_LAYER ", four rotary dims, a position after the first",
      .report = "", .lint = "" },
    { .name = "rope_all_dims", .kind = HYPOTHESIS_STAGE, .clause = "ATT-3", .stages = "attn.q_rope attn.k_rope", .rules = set_all,
      .says = "rotates the whole head instead of its first R dims", .right = "R dims turn, the rest pass", .wrong = "all dims of the head turn",
      .shows = "Position 0 is right; loads and answers other tokens.", .needs = A_LAYER " with R < width, a position after the first",
      .report = "the article on the drifted Clover GGUF", .lint = "rope-dims-missing" },
    { .name = "rope_frequency_by_width", .kind = HYPOTHESIS_STAGE, .clause = "ATT-3", .stages = "attn.q_rope attn.k_rope", .rules = set_by_width,
      .says = "takes rotary frequencies from the head's width instead of R", .right = "angle = position * base^(-2i/R)",
      .wrong = "angle = position * base^(-2i/width)",
      .shows = "The first pair is right, later ones turn too fast.",
      .needs = A_LAYER " with R < width and four rotary dims, a position after the first", .report = "", .lint = "" },
    { .name = "rope_frequency_bf16", .kind = HYPOTHESIS_STAGE, .clause = "ATT-3", .stages = "attn.q_rope attn.k_rope", .rules = set_coarse,
      .says = "keeps the rotary frequencies in bf16", .right = "angle = position * f in float32", .wrong = "angle = position * bf16(f)",
      .shows = "A small error that grows with the position.", .needs = A_LAYER ", four rotary dims, late positions",
      .report = "NVIDIA-NeMo/Automodel PR 3233", .lint = "" },
    { .name = "rope_missing_on_k", .kind = HYPOTHESIS_STAGE, .clause = "ATT-3", .stages = "attn.k_rope", .rules = set_queries_only,
      .says = "rotates the queries but not the keys", .right = "q and k turn", .wrong = "q turns, k stays",
      .shows = "Scores depend on the absolute position.", .needs = A_LAYER ", a position after the first", .report = "", .lint = "" },
    { .name = "rope_query_off_by_one", .kind = HYPOTHESIS_PARAMETER, .clause = "ATT-3", .stages = "attn.q_rope", .rules = set_queries_late,
      .says = "rotates queries one position further than the keys of the same row", .right = "row t: q and k at position t",
      .wrong = "row t: q at t + 1, k at t",
      .shows = "Every distance is one too many; small errors everywhere.", .needs = A_LAYER, .report = "", .lint = "" },
    { .name = "kv_heads_tiled", .kind = HYPOTHESIS_STAGE, .clause = "ATT-4", .stages = "attn.context", .rules = set_tiled,
      .says = "pairs query head h with KV head h mod Hkv instead of h div (H/Hkv)", .right = "KV head = h div (H/Hkv)",
      .wrong = "KV head = h mod Hkv",
      .shows = "Most heads read another's keys and values; garbage.", .needs = A_LAYER " of two KV heads that several query heads share",
      .report = "llmmanorg/llmman PR 17", .lint = "" },
    { .name = "attention_scale_missing", .kind = HYPOTHESIS_STAGE, .clause = "ATT-4", .stages = "attn.context", .rules = set_unscaled,
      .says = "does not divide the scores by sqrt(width)", .right = "score = q.k / sqrt(width)", .wrong = "score = q.k",
      .shows = "Attention looks at one row only.", .needs = A_LAYER ", two visible rows", .report = "", .lint = "" },
    { .name = "attention_scale_by_width", .kind = HYPOTHESIS_STAGE, .clause = "ATT-4", .stages = "attn.context", .rules = set_scaled_by_width,
      .says = "divides the scores by width instead of sqrt(width)", .right = "score = q.k / sqrt(width)", .wrong = "score = q.k / width",
      .shows = "Attention is nearly flat.", .needs = A_LAYER ", two visible rows", .report = "", .lint = "" },
    { .name = "attention_mask_missing", .kind = HYPOTHESIS_STAGE, .clause = "ATT-5", .stages = "attn.context", .rules = set_unmasked,
      .says = "lets committed rows see the rows after them", .right = "row t sees 0...t", .wrong = "row t sees all rows of the step",
      .shows = "Right row by row, wrong for a prompt committed at once.", .needs = A_LAYER ", a commit of two rows", .report = "", .lint = "" },
    { .name = "attention_gate_missing", .kind = HYPOTHESIS_STAGE, .clause = "ATT-7", .stages = "attn.gated", .rules = set_gate_missing,
      .says = "does not apply the output gate of full attention", .right = "context * sigmoid(gate)", .wrong = "context",
      .shows = "Attention's output is about twice too large.", .needs = A_LAYER, .report = "", .lint = "" },
    { .name = "attention_gate_silu", .kind = HYPOTHESIS_STAGE, .clause = "ATT-7", .stages = "attn.gated", .rules = set_gate_silu,
      .says = "gates the context of full attention by SiLU instead of sigmoid", .right = "context * sigmoid(gate)",
      .wrong = "context * gate * sigmoid(gate)",
      .shows = "Signs flip wherever the gate is negative.", .needs = A_LAYER, .report = "", .lint = "" },
};
const HypothesisList hypotheses_attention = HYPOTHESES(list);
