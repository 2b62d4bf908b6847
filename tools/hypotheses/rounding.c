/* rounding.c - a residual stream that is stored in 16 bits: no mistake, but under the f32 profile a divergence. The diagnosis tells
 * it from mistakes. [HYP] */
#include "../../ref/files/quant.h"
#include "hypothesis.h"

static double to_half(double x) { return half_to_double(half_from_float((float)x)); }

static void embed_bf16(Run *run, const Weights *w, const CloverConfig *c, const int32_t *ids, int64_t T, double *h) {
    trunk_rules.embed(run, w, c, ids, T, h);
    for (int64_t i = 0; i < T * c->hidden; i++) h[i] = bf16_round(h[i]);
}
static void embed_f16(Run *run, const Weights *w, const CloverConfig *c, const int32_t *ids, int64_t T, double *h) {
    trunk_rules.embed(run, w, c, ids, T, h);
    for (int64_t i = 0; i < T * c->hidden; i++) h[i] = to_half(h[i]);
}
static void add_bf16(Run *run, const double *y, int64_t n, double *h) {
    trunk_rules.add(run, y, n, h);
    for (int64_t i = 0; i < n; i++) h[i] = bf16_round(h[i]);
}
static void add_f16(Run *run, const double *y, int64_t n, double *h) {
    trunk_rules.add(run, y, n, h);
    for (int64_t i = 0; i < n; i++) h[i] = to_half(h[i]);
}
static void set_bf16(HypothesisRules *r) { r->trunk.embed = embed_bf16, r->trunk.add = add_bf16; }
static void set_f16(HypothesisRules *r) { r->trunk.embed = embed_f16, r->trunk.add = add_f16; }

static const Hypothesis all[] = {
    { .name = "rounding: bf16 residual", .kind = HYPOTHESIS_STAGE, .clause = "LAY-2", .stages = "embed mixer_residual out", .says = "rounds its residual stream to bf16",
      .right = "h <- h + y", .wrong = "h <- bf16(h + y)", .shows = "2^-9 of the residual stream at every sum, and nothing else", .needs = "", .report = "", .lint = "", .rules = set_bf16 },
    { .name = "rounding: f16 residual", .kind = HYPOTHESIS_STAGE, .clause = "LAY-2", .stages = "embed mixer_residual out", .says = "rounds its residual stream to float16",
      .right = "h <- h + y", .wrong = "h <- f16(h + y)", .shows = "2^-12 of the residual stream at every sum, and nothing else", .needs = "", .report = "", .lint = "", .rules = set_f16 },
};
const Hypothesis hypothesis_bf16 = { .name = "rounding: bf16", .kind = HYPOTHESIS_STAGE, .clause = "NUM-7", .stages = "", .says = "computes in bf16: under --profile bf16 this dump conforms",
                                     .right = "", .wrong = "", .shows = "", .needs = "", .report = "", .lint = "" };
const HypothesisList hypotheses_rounding = { all, sizeof all / sizeof *all };
