/* test_spec.c - every worked example of SPEC.md, recomputed with ref/. The numbers are read from SPEC.md itself, where
 * they were put from a computation apart from this code; so the text cannot drift from what the code does. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "../ref/controls.h"
#include "../ref/files/config.h"
#include "../ref/files/quant.h"
#include "../ref/layers/layers.h"
#include "../ref/math/rowwise.h"
#include "../ref/sample.h"
#include "files.h"
#include "harness.h"
#include "scripted_engine.h"
#include "spec_example.h"

enum { ROOM = EXAMPLE_NUMBERS };

/* An F64 matrix over values that the test holds. */
static Matrix matrix(const double *values, int64_t rows, int64_t cols) {
    static const Tensor unnamed = { .name = "example", .file = "SPEC.md" };
    return (Matrix){ .tensor = &unnamed, .data = (const uint8_t *)values, .type = DT_F64, .rows = rows, .cols = cols, .row_bytes = cols * 8 };
}

static void run_start(Run *run, CloverError *err) {
    memset(err, 0, sizeof *err);
    assert_ok(run_init(run, CLOVER_EXACT, err), *err);
    run->err = err;
}

static void run_end(Run *run) {
    ck_assert_msg(run->err->status == CLOVER_OK, "%s", run->err->text);
    run_free(run);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static void full_attention_by_interval(const Example *e) {   /* [CFG-3] */
    CloverError err;
    CloverConfig config;
    double expected[ROOM];
    const int64_t layers = example_int(e, "layers"), n = example_numbers(e, "full_attention", expected);
    char folder[TEST_PATH], text[1024];
    make_folder("spec", folder);
    const int length = snprintf(text, sizeof text,
            "{\"model_type\": \"clover_moe\", \"hidden_size\": 4, \"num_hidden_layers\": %d, \"full_attention_interval\": %d,"
            "\"num_attention_heads\": 1, \"num_key_value_heads\": 1, \"head_dim\": 4, \"vocab_size\": 4, \"rms_norm_eps\": 1e-6,"
            "\"max_position_embeddings\": 8, \"rope_theta\": 100, \"partial_rotary_factor\": 0.5, \"linear_num_key_heads\": 1,"
            "\"linear_key_head_dim\": 1, \"linear_num_value_heads\": 1, \"linear_value_head_dim\": 1, \"linear_conv_kernel_dim\": 4,"
            "\"num_experts\": 1, \"num_experts_per_tok\": 1, \"moe_intermediate_size\": 1, \"shared_expert_intermediate_size\": 1}",
            (int)layers, (int)example_int(e, "interval"));
    write_file(in_folder(folder, "config.json"), text, (size_t)length);
    assert_ok(config_from_folder(folder, &config, &err), err);
    remove_folder(folder);
    int64_t found = 0;
    for (int64_t i = 0; i < layers; i++)
        if (config.full_attention[i]) {
            ck_assert_int_lt(found, n);
            ck_assert_int_eq(i, (int64_t)expected[found++]);
        }
    ck_assert_int_eq(found, n);
}

static void float32_means_what_it_says(const Example *e) {   /* [CFG-4] */
    const uint32_t bits = (uint32_t)strtoul(example_text(e, "float32_bits"), NULL, 16);
    const uint8_t bytes[4] = { (uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16), (uint8_t)(bits >> 24) };
    const GgufKey key = { .name = "epsilon", .type = GGUF_F32, .element = GGUF_F32, .count = 1, .data = bytes, .bytes = 4 };
    double value;
    ck_assert(gguf_real(&key, 0, &value));
    ck_assert(value == example_number(e, "value"));
}

static void tiled_heads(const Example *e) {   /* [TEN-7] */
    const int64_t Hk = example_int(e, "Hk"), Hv = example_int(e, "Hv");
    const HeadMap map = { .start = 0, .width = 1, .Hk = Hk, .r = Hv / Hk };
    double in_file[ROOM], hf_of[ROOM];
    for (int64_t h = 0; h < Hv; h++) {
        in_file[h] = (double)head_map(&map, h);
        hf_of[head_map(&map, h)] = (double)h;
    }
    example_expect(e, "gguf_head_of_hf_head", in_file, Hv);
    example_expect(e, "hf_head_of_gguf_head", hf_of, Hv);
}

static int hex_words(const char *text, uint16_t *words) {
    int n = 0;
    for (char *end; *text; text = *end ? end + 1 : end) words[n++] = (uint16_t)strtoul(text, &end, 16);
    return n;
}

static void halves(const Example *e) {   /* [QNT-2] */
    uint16_t words[ROOM];
    double values[ROOM];
    int n = hex_words(example_text(e, "f16"), words);
    for (int i = 0; i < n; i++) values[i] = half_to_double(words[i]);
    example_expect(e, "f16_values", values, n);
    n = hex_words(example_text(e, "bf16"), words);
    for (int i = 0; i < n; i++) values[i] = bf16_to_double(words[i]);
    example_expect(e, "bf16_values", values, n);
}

static DType type_of(const char *name) {
    for (int t = 0; t < 31; t++) {
        const DTypeInfo *info = dtype_info((DType)t);
        if (info && strcmp(info->name, name) == 0) return (DType)t;
    }
    ck_abort_msg("no type %s", name);
    return DT_F32;
}

/* [QNT-1, QNT-3, QNT-4, QNT-5, QNT-6, QNT-7, QNT-8, QNT-9, QNT-10, QNT-11, QNT-12]: one block, its bytes by a formula but for those that are set. */
static void block(const Example *e) {
    const DType type = type_of(example_text(e, "type"));
    const DTypeInfo *info = dtype_info(type);
    uint8_t bytes[256];
    double values[256], elements[ROOM], picked[ROOM];
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)(37 * i + 11);
    for (const char *p = example_text(e, "set"); *p;) {
        char *end;
        const long offset = strtol(p, &end, 10);
        ck_assert(*end == ':' && offset >= 0 && offset < info->bytes);
        bytes[offset] = (uint8_t)strtoul(end + 1, &end, 16);
        p = *end ? end + 1 : end;
    }
    quant_decode(type, bytes, info->block, values);
    const int64_t n = example_numbers(e, "elements", elements);
    for (int64_t i = 0; i < n; i++) picked[i] = values[(int64_t)elements[i]];
    example_expect(e, "values", picked, n);
}

/* ---- arithmetic, rows ------------------------------------------------------------------------------------------- */

static void lanes_of_sixteen(const Example *e) {   /* [NUM-2], [NUM-3] */
    CloverError err;
    Run run;
    double w[ROOM], x[ROOM], y;
    const int64_t n = example_numbers(e, "w", w);
    example_numbers(e, "x", x);
    const Matrix m = matrix(w, 1, n);
    run_start(&run, &err);
    linear(&run, &m, x, 1, &y);
    run_end(&run);
    example_expect(e, "y", &y, 1);
    y = dot_ascending(w, x, n);
    example_expect(e, "ascending", &y, 1);
}

static void bf16_rounding(const Example *e) {   /* [NUM-6] */
    double x[ROOM];
    const int64_t n = example_numbers(e, "x", x);
    round_row(STORE_BF16, x, n);
    example_expect(e, "R", x, n);
}

static void norm_of_mean(const Example *e) {   /* [ROW-1] */
    double x[ROOM], factor[ROOM];
    const int64_t n = example_numbers(e, "x", x);
    example_numbers(e, "factor", factor);
    rms_norm(x, x, factor, n, example_number(e, "epsilon"));
    example_expect(e, "y", x, n);
}

static void norm_of_sum(const Example *e) {   /* [ROW-2] */
    double x[ROOM];
    const int64_t n = example_numbers(e, "x", x);
    l2_norm(x, x, n, 1e-6);
    example_expect(e, "y", x, n);
}

static void each(const Example *e, const char *key, double (*f)(double)) {
    double x[ROOM];
    const int64_t n = example_numbers(e, "x", x);
    for (int64_t i = 0; i < n; i++) x[i] = f(x[i]);
    example_expect(e, key, x, n);
}
static void sigmoid_silu(const Example *e) {   /* [ROW-3] */
    each(e, "sigmoid", sigmoid);
    each(e, "silu", silu);
}
static void softplus_to_twenty(const Example *e) { each(e, "y", softplus); }   /* [ROW-4] */

static void softmax_with_infinity(const Example *e) {   /* [ROW-5] */
    double x[ROOM];
    const int64_t n = example_numbers(e, "x", x);
    softmax(x, n);
    example_expect(e, "y", x, n);
}

/* ---- full attention --------------------------------------------------------------------------------------------- */

/* What the examples of a layer share: sizes, buffers, a run. */
typedef struct AttnCase { CloverConfig c; CloverError err; Run run; AttnW w; Attn a; double room[16][ROOM]; } AttnCase;

static void attn_start(AttnCase *k) {
    memset(k, 0, sizeof *k);
    k->a.c = &k->c;
    run_start(&k->run, &k->err);
    double **buffers[] = { &k->a.qg, &k->a.q, &k->a.gate, &k->a.k, &k->a.v, &k->a.q_norm, &k->a.k_norm, &k->a.q_rope, &k->a.k_rope,
                           &k->a.context, &k->a.gated, &k->a.scores, &k->a.angles };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) *buffers[i] = k->room[i];
}

static void query_and_gate_rows(const Example *e) {   /* [ATT-1] */
    AttnCase k;
    double x[ROOM], q_proj[ROOM];
    attn_start(&k);
    const int64_t rows = example_numbers(e, "q_proj", q_proj), D = example_numbers(e, "x", x);
    k.c = (CloverConfig){ .hidden = D, .heads = example_int(e, "heads"), .kv_heads = 1, .head_width = example_int(e, "width") };
    k.w.q = matrix(q_proj, rows, D);
    k.w.k = k.w.v = matrix(q_proj, k.c.head_width, D);
    k.a.x = x;
    k.a.T = 1;
    attn_causal.project(&k.run, &k.w, &k.a);
    example_expect(e, "q", k.a.q, rows / 2);
    example_expect(e, "gate", k.a.gate, rows / 2);
    run_end(&k.run);
}

static void head_norms(const Example *e) {   /* [ATT-2] */
    AttnCase k;
    double factor[ROOM];
    attn_start(&k);
    const int64_t width = example_numbers(e, "factor", factor);
    k.c = (CloverConfig){ .heads = 1, .kv_heads = 1, .head_width = width, .rms_eps = example_number(e, "epsilon") };
    k.w.q_norm = k.w.k_norm = factor;
    k.a.T = 1;
    example_numbers(e, "q", k.a.q);
    attn_causal.norm(&k.run, &k.w, &k.a);
    example_expect(e, "q_norm", k.a.q_norm, width);
    run_end(&k.run);
}

static void rotation(const Example *e) {   /* [ATT-3] */
    AttnCase k;
    attn_start(&k);
    const int64_t width = example_numbers(e, "q", k.a.q_norm);
    k.c = (CloverConfig){ .heads = 1, .kv_heads = 1, .head_width = width, .rotary_dims = example_int(e, "R"), .rope_base = example_number(e, "base") };
    k.a.past = example_int(e, "position");
    k.a.T = 1;
    attn_causal.rotate(&k.run, &k.w, &k.a);
    example_expect(e, "q_rope", k.a.q_rope, width);
    run_end(&k.run);
}

/* Scores, softmax and context over what a row may see. */
static void attend(const Example *e, const AttnRules *rules) {
    AttnCase k;
    double k_past[ROOM], v_past[ROOM];
    attn_start(&k);
    k.c = (CloverConfig){ .heads = example_int(e, "heads"), .kv_heads = example_int(e, "kv_heads"), .head_width = example_int(e, "width") };
    k.a.past = example_numbers(e, "k_past", k_past) / (k.c.kv_heads * k.c.head_width);
    example_numbers(e, "v_past", v_past);
    const int64_t n = example_numbers(e, "q_rope", k.a.q_rope);
    example_numbers(e, "k_rope", k.a.k_rope);
    example_numbers(e, "v", k.a.v);
    k.a.k_past = k_past;
    k.a.v_past = v_past;
    k.a.T = n / (k.c.heads * k.c.head_width);
    rules->attend(&k.run, &k.w, &k.a);
    example_expect(e, "context", k.a.context, n);
    run_end(&k.run);
}
static void attend_causal(const Example *e) { attend(e, &attn_causal); }     /* [ATT-4], [ATT-5] */
static void attend_preview(const Example *e) { attend(e, &attn_preview); }   /* [ATT-6] */

static void output_gate(const Example *e) {   /* [ATT-7] */
    AttnCase k;
    attn_start(&k);
    const int64_t n = example_numbers(e, "context", k.a.context);
    example_numbers(e, "gate", k.a.gate);
    k.c = (CloverConfig){ .heads = 1, .kv_heads = 1, .head_width = n };
    k.a.T = 1;
    attn_causal.gate(&k.run, &k.w, &k.a);
    example_expect(e, "gated", k.a.gated, n);
    run_end(&k.run);
}

/* ---- Gated DeltaNet --------------------------------------------------------------------------------------------- */

typedef struct GdnCase { CloverConfig c; CloverError err; Run run; GdnW w; Gdn a; double S0[ROOM]; double room[16][ROOM]; } GdnCase;

static void gdn_start(GdnCase *k, int64_t Hk, int64_t Hv, int64_t dk, int64_t dv) {
    memset(k, 0, sizeof *k);
    k->c = (CloverConfig){ .key_heads = Hk, .value_heads = Hv, .key_width = dk, .value_width = dv, .taps = 4, .rms_eps = 1e-6, .l2_eps = 1e-6 };
    k->a.c = &k->c;
    k->a.S0 = k->S0;
    k->a.T = 1;
    run_start(&k->run, &k->err);
    double **buffers[] = { &k->a.qkv, &k->a.z, &k->a.b, &k->a.a, &k->a.beta, &k->a.g, &k->a.conv, &k->a.q, &k->a.k, &k->a.v,
                           &k->a.weights, &k->a.mixed, &k->a.gated, &k->a.state, &k->a.d };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) *buffers[i] = k->room[i];
}

static void write_and_decay(const Example *e) {   /* [GDN-2] */
    GdnCase k;
    double dt_bias[ROOM], rate[ROOM];
    const int64_t Hv = example_numbers(e, "dt_bias", dt_bias);
    gdn_start(&k, 1, Hv, 1, 1);
    example_numbers(e, "rate", rate);
    example_numbers(e, "a", k.a.a);
    example_numbers(e, "b", k.a.b);
    k.w.dt_bias = dt_bias;
    k.w.rate = rate;
    gdn_causal.gates(&k.run, &k.w, &k.a);
    example_expect(e, "beta", k.a.beta, Hv);
    example_expect(e, "g", k.a.g, Hv);
    run_end(&k.run);
}

/* Three channels, one of each kind. */
static void convolution(const Example *e, const GdnRules *rules) {
    GdnCase k;
    double weights[ROOM], right[ROOM], ring[ROOM];
    gdn_start(&k, 1, 1, 1, 1);
    example_numbers(e, "weights", weights);
    example_numbers(e, "ring", ring);
    const int64_t n = example_numbers(e, "u", k.a.qkv);
    k.a.T = n / 3;
    k.a.ring = ring;
    k.w.conv = weights;
    if (example_has(e, "right")) {
        example_numbers(e, "right", right);
        k.w.conv_right = right;
    }
    rules->conv(&k.run, &k.w, &k.a);
    example_expect(e, "conv", k.a.conv, n);
    run_end(&k.run);
}
static void conv_causal(const Example *e) { convolution(e, &gdn_causal); }     /* [GDN-3] */
static void conv_preview(const Example *e) { convolution(e, &gdn_preview); }   /* [PRV-2] */

static void split_and_normalise(const Example *e) {   /* [GDN-4], and [PRV-7]: a preview's is the same rule */
    GdnCase k;
    const int64_t dk = example_int(e, "dk");
    gdn_start(&k, 1, 1, dk, dk);
    example_numbers(e, "conv", k.a.conv);
    gdn_causal.split(&k.run, &k.w, &k.a);
    example_expect(e, "q", k.a.q, dk);
    example_expect(e, "k", k.a.k, dk);
    example_expect(e, "v", k.a.v, dk);
    ck_assert(gdn_preview.split == gdn_causal.split && gdn_preview.project == gdn_causal.project && gdn_preview.gates == gdn_causal.gates);
    ck_assert(gdn_preview.gate == gdn_causal.gate && gdn_preview.out == gdn_causal.out);
    run_end(&k.run);
}

/* [GDN-5]: with one dimension a head, an empty S, beta 1 and no decay, o = v k q; the key heads hold 1, 2, ..., q and v 1. */
static void key_head_of_value_head(const Example *e) {
    GdnCase k;
    double head[ROOM];
    const int64_t Hk = example_int(e, "Hk"), Hv = example_int(e, "Hv");
    gdn_start(&k, Hk, Hv, 1, 1);
    for (int64_t h = 0; h < Hk; h++) k.a.k[h] = (double)(h + 1), k.a.q[h] = 1.0;
    for (int64_t h = 0; h < Hv; h++) k.a.v[h] = 1.0, k.a.beta[h] = 1.0;
    gdn_causal.mix(&k.run, &k.w, &k.a);
    for (int64_t h = 0; h < Hv; h++) head[h] = k.a.mixed[h] - 1.0;
    example_expect(e, "key_head", head, Hv);
    run_end(&k.run);
}

static void delta_rule(const Example *e) {   /* [GDN-6] */
    GdnCase k;
    gdn_start(&k, 1, 1, 2, 2);
    example_numbers(e, "S", k.S0);
    example_numbers(e, "g", k.a.g);
    example_numbers(e, "beta", k.a.beta);
    example_numbers(e, "q", k.a.q);
    example_numbers(e, "k", k.a.k);
    example_numbers(e, "v", k.a.v);
    gdn_causal.mix(&k.run, &k.w, &k.a);
    example_expect(e, "S_after", k.a.state, 4);
    example_expect(e, "o", k.a.mixed, 2);
    run_end(&k.run);
}

static void head_norm_and_z(const Example *e) {   /* [GDN-7] */
    GdnCase k;
    double norm[ROOM];
    const int64_t dv = example_numbers(e, "norm", norm);
    gdn_start(&k, 1, 1, 1, dv);
    k.c.rms_eps = example_number(e, "epsilon");
    k.w.norm = norm;
    example_numbers(e, "o", k.a.mixed);
    example_numbers(e, "z", k.a.z);
    gdn_causal.gate(&k.run, &k.w, &k.a);
    example_expect(e, "gated", k.a.gated, dv);
    run_end(&k.run);
}

static void slots(const Example *e) {   /* [PRV-3], [PRV-4], [PRV-5] */
    GdnCase k;
    gdn_start(&k, 1, 1, 2, 2);
    const double scale = example_number(e, "logit_scale"), bias = example_number(e, "history_bias"), c = example_number(e, "history_c");
    k.w.logit_scale = &scale;
    k.w.history_bias = &bias;
    k.w.history_c = &c;
    k.a.T = example_numbers(e, "q", k.a.q) / 2;
    example_numbers(e, "k", k.a.k);
    gdn_preview.weigh(&k.run, &k.w, &k.a);
    example_expect(e, "weights", k.a.weights, k.a.T * (k.a.T + 1));
    run_end(&k.run);
}

static void read_block_and_history(const Example *e) {   /* [PRV-6], and [PRV-1]: S stays as it was */
    GdnCase k;
    gdn_start(&k, 1, 1, 2, 2);
    k.a.T = example_numbers(e, "q", k.a.q) / 2;
    example_numbers(e, "v", k.a.v);
    example_numbers(e, "g", k.a.g);
    example_numbers(e, "S", k.S0);
    example_numbers(e, "weights", k.a.weights);
    gdn_preview.mix(&k.run, &k.w, &k.a);
    example_expect(e, "o", k.a.mixed, k.a.T * 2);
    example_expect(e, "S", k.S0, 4);
    run_end(&k.run);
}

/* ---- experts ---------------------------------------------------------------------------------------------------- */

typedef struct MoeCase { CloverConfig c; CloverError err; Run run; MoeW w; ExpertW expert; Moe a; double m[4][ROOM]; double room[12][ROOM]; int64_t order[ROOM]; } MoeCase;

static void moe_start(MoeCase *k, int64_t D, int64_t E, int64_t used) {
    memset(k, 0, sizeof *k);
    k->c = (CloverConfig){ .hidden = D, .experts = E, .experts_used = used };
    k->a.c = &k->c;
    k->a.T = 1;
    k->a.top_p = -1;
    k->a.order = k->order;
    run_start(&k->run, &k->err);
    double **buffers[] = { &k->a.probs, &k->a.coreset, &k->a.ids, &k->a.weights, &k->a.routed, &k->a.shared, &k->a.shared_gate, &k->a.out,
                           &k->a.rows, &k->a.hidden, &k->a.up, &k->a.result };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) *buffers[i] = k->room[i];
    k->a.totals = k->m[3];
}

static void chosen_and_renormalised(const Example *e) {   /* [MOE-1], [MOE-2] */
    MoeCase k;
    double probs[ROOM];
    const int64_t E = example_numbers(e, "probs", probs), used = example_int(e, "k");
    moe_start(&k, 1, E, used);
    memcpy(k.a.probs, probs, sizeof probs);
    k.a.coreset = NULL;
    moe_causal.choose(&k.run, &k.w, &k.a);
    example_expect(e, "ids", k.a.ids, used);
    example_expect(e, "weights", k.a.weights, used);
    run_end(&k.run);
}

/* D 2, F 2; the one expert is the shared one too. */
static void expert_start(MoeCase *k, const Example *e, double x[ROOM]) {
    moe_start(k, 2, 1, 1);
    k->c.expert_width = k->c.shared_width = 2;
    example_numbers(e, "x", x);
    example_numbers(e, "gate", k->m[0]);
    example_numbers(e, "up", k->m[1]);
    example_numbers(e, "down", k->m[2]);
    k->expert = (ExpertW){ matrix(k->m[0], 2, 2), matrix(k->m[1], 2, 2), matrix(k->m[2], 2, 2) };
    k->w.expert = &k->expert;
    k->w.shared = k->expert;
    k->a.x = x;
}

static void routed_expert(const Example *e) {   /* [MOE-3] */
    MoeCase k;
    double x[ROOM];
    expert_start(&k, e, x);
    k.a.k = 1;
    k.a.weights[0] = example_number(e, "weight");
    moe_causal.experts(&k.run, &k.w, &k.a);
    example_expect(e, "y", k.a.routed, 2);
    run_end(&k.run);
}

static void shared_expert(const Example *e) {   /* [MOE-4] */
    MoeCase k;
    double x[ROOM], gate[ROOM];
    expert_start(&k, e, x);
    example_numbers(e, "shared_gate", gate);
    k.w.shared_gate = matrix(gate, 1, 2);
    example_numbers(e, "routed", k.a.routed);
    moe_causal.shared(&k.run, &k.w, &k.a);
    moe_causal.sum(&k.run, &k.w, &k.a);
    example_expect(e, "y", k.a.out, 2);
    run_end(&k.run);
}

/* The block's votes; every top_p of the example keeps E entries of `kept`. */
static void votes(const Example *e, double totals[ROOM], double kept[ROOM], const double *top_p, int64_t n) {
    MoeCase k;
    double probs[ROOM];
    const int64_t E = 4, count = example_numbers(e, "probs", probs);
    moe_start(&k, 1, E, example_int(e, "k"));
    k.a.T = count / E;
    memcpy(k.a.probs, probs, sizeof probs);
    for (int64_t i = 0; i < n; i++) {
        k.a.top_p = top_p[i];
        moe_preview.keep(&k.run, &k.w, &k.a);
        memcpy(kept + i * E, k.a.coreset, (size_t)E * sizeof(double));
    }
    memcpy(totals, k.a.totals, (size_t)E * sizeof(double));
    run_end(&k.run);
}

static void coreset_totals(const Example *e) {   /* [COR-2] */
    double totals[ROOM], kept[ROOM];
    votes(e, totals, kept, &(double){ 0.5 }, 1);
    example_expect(e, "totals", totals, 4);
}

static void coreset_bound(const Example *e) {   /* [COR-3]; and [COR-1]: off keeps all, a commit has no such stage */
    double totals[ROOM], kept[ROOM], top_p[ROOM];
    const int64_t n = example_numbers(e, "top_p", top_p);
    votes(e, totals, kept, top_p, n);
    example_expect(e, "kept", kept, 4 * n);
    votes(e, totals, kept, &(double){ -1 }, 1);
    for (int i = 0; i < 4; i++) ck_assert(kept[i] == 1.0);
    ck_assert(moe_causal.keep == NULL);
}

static void choice_inside_coreset(const Example *e) {   /* [COR-4] */
    MoeCase k;
    double probs[ROOM];
    const int64_t E = example_numbers(e, "probs", probs), used = example_int(e, "k");
    moe_start(&k, 1, E, used);
    memcpy(k.a.probs, probs, sizeof probs);
    example_numbers(e, "kept", k.a.coreset);
    moe_preview.choose(&k.run, &k.w, &k.a);
    example_expect(e, "ids", k.a.ids, used);
    example_expect(e, "weights", k.a.weights, used);
    example_numbers(e, "kept_2", k.a.coreset);
    moe_preview.choose(&k.run, &k.w, &k.a);
    ck_assert_int_lt(k.a.k, used);
    example_expect(e, "ids_2", k.a.ids, k.a.k);
    example_expect(e, "weights_2", k.a.weights, k.a.k);
    run_end(&k.run);
}

/* ---- decoding --------------------------------------------------------------------------------------------------- */

/* A model of n ids and the mask (id n), whose rows the example writes. */
typedef struct Script {
    double causal[ROOM], preview[ROOM];   /* every causal row [n]; the preview's rows [rows, n], the first for each further row */
    int64_t n, rows;
    int64_t first_width;                  /* of the first round */
    CloverJudged first_judged;
    int64_t fixed[ROOM], n_fixed;         /* of the first pass */
} Script;

static void causal_row(void *user, const int32_t *prefix, int64_t n_prefix, double *logits) {
    const Script *s = user;
    (void)prefix, (void)n_prefix;
    memcpy(logits, s->causal, (size_t)s->n * sizeof(double));
    logits[s->n] = 100;                   /* the mask's logit never counts, [AR-2] */
}

static void preview_rows(void *user, const int32_t *prefix, int64_t n_prefix, const int32_t *ids, int64_t n, double *logits) {
    const Script *s = user;
    (void)prefix, (void)n_prefix, (void)ids;
    for (int64_t t = 0; t < n; t++) {
        memcpy(logits + t * (s->n + 1), s->preview + (t < s->rows ? t : 0) * s->n, (size_t)s->n * sizeof(double));
        logits[t * (s->n + 1) + s->n] = 100;
    }
}

/* Keeps what the first pass or round says, then has heard enough. */
static bool listen(void *user, const CloverEvent *event) {
    Script *s = user;
    if (event->kind == CLOVER_EVENT_ROUND) {
        s->first_width = event->n_ids;
        if (event->n_judged > 0) s->first_judged = event->judged[0];
        return false;
    }
    if (event->kind == CLOVER_EVENT_PASS) {
        s->n_fixed = event->n_fixed;
        memcpy(s->fixed, event->fixed, (size_t)event->n_fixed * sizeof *s->fixed);
        return false;
    }
    return true;
}

static void decode(Script *s, CloverDecodeOptions o) {
    CloverError err;
    int32_t out[128];
    int64_t n_out;
    const CloverConfig config = { .block = o.block, .mask_id = (int32_t)s->n, .threshold = o.threshold, .controls = { .repetition_penalty = 1, .dllm_length_penalty_window = 1, .dllm_think_end_window = 1, .dllm_think_end_token_id = -1 } };
    CloverDecodeOptions all = clover_decode_defaults(&config);
    all.mode = o.mode, all.max_tokens = o.max_tokens, all.width = o.width;
    ScriptedEngine *scripted = scripted_new(s->n + 1, causal_row, preview_rows, s);
    const CloverEngine engine = scripted_engine(scripted);
    assert_ok(clover_decode(&engine, &all, &(int32_t){ 0 }, 1, listen, s, out, &n_out, &err), err);
    free(scripted);
}

static void round_widths(const Example *e) {   /* [DRA-2] */
    double block_size[ROOM], width[ROOM], wanted[ROOM], w[ROOM];
    const int64_t n = example_numbers(e, "wanted", wanted);
    example_numbers(e, "block", block_size);
    example_numbers(e, "width", width);
    for (int64_t i = 0; i < n; i++) {
        Script s = { .n = 2 };
        decode(&s, (CloverDecodeOptions){ .mode = CLOVER_DRAFT, .block = (int64_t)block_size[i], .width = (int64_t)width[i], .max_tokens = (int64_t)wanted[i] + 1 });
        w[i] = (double)s.first_width;
    }
    example_expect(e, "w", w, n);
}

/* [DRA-5]: each id in turn is drafted by the preview and judged by the same causal row. */
static void acceptance(const Example *e) {
    double p[ROOM], entropy[ROOM], accepted[ROOM], logits[ROOM];
    const int64_t n = example_numbers(e, "logits", logits);
    for (int64_t c = 0; c < n; c++) {
        Script s = { .n = n, .rows = 1 };
        memcpy(s.causal, logits, sizeof logits);
        s.preview[c] = 1;
        decode(&s, (CloverDecodeOptions){ .mode = CLOVER_DRAFT, .block = 2, .width = -1, .max_tokens = 3 });
        ck_assert_int_eq(s.first_judged.id, c);
        p[c] = s.first_judged.p;
        entropy[c] = s.first_judged.entropy;
        accepted[c] = s.first_judged.accepted;
    }
    example_expect(e, "p", p, n);
    example_expect(e, "entropy", entropy, 1);
    example_expect(e, "accepted", accepted, n);
    /* The bound lies between the least accepted and the greatest rejected probability of the example. */
    const double bound = example_number(e, "bound");
    for (int64_t c = 0; c < n; c++) ck_assert((p[c] >= bound) == (accepted[c] == 1.0));
}

static void fixed_rows(const Example *e) {   /* [DEN-3], [DEN-4] */
    double fixed[ROOM];
    Script s = { .n = 2 };
    s.rows = example_numbers(e, "logits", s.preview) / 2;
    decode(&s, (CloverDecodeOptions){ .mode = CLOVER_DENOISE, .block = s.rows, .threshold = example_number(e, "threshold"), .max_tokens = 8 });
    for (int64_t i = 0; i < s.n_fixed; i++) fixed[i] = (double)s.fixed[i];
    example_expect(e, "fixed", fixed, s.n_fixed);
}

static void penalties(const Example *e) {   /* [CTL-1], [CTL-2], [CTL-3] */
    double logits[ROOM], counted[ROOM];
    int64_t counts[ROOM];
    const int64_t n = example_numbers(e, "logits", logits);
    example_numbers(e, "counts", counted);
    for (int64_t i = 0; i < n; i++) counts[i] = (int64_t)counted[i];
    const CloverControls controls = { .frequency_penalty = example_number(e, "frequency_penalty"), .presence_penalty = example_number(e, "presence_penalty"),
                                      .repetition_penalty = example_number(e, "repetition_penalty"), .dllm_think_end_token_id = -1 };
    const ControlContext context = { .controls = &controls, .mask_id = -1, .vocab = n, .counts = counts };
    controls_apply(logits, &context, 1, false);
    example_expect(e, "result", logits, n);
}

static void ramps(const Example *e) {   /* [CTL-4] */
    double position[ROOM];
    const int64_t n = example_numbers(e, "positions", position);
    for (int64_t i = 0; i < n; i++)
        position[i] = controls_ramp((int64_t)position[i], example_int(e, "start"), example_int(e, "window"), example_number(e, "strength"));
    example_expect(e, "ramps", position, n);
}

static void top_k_with_ties(const Example *e) {   /* [SMP-1], [SMP-2] */
    double logits[ROOM], p[ROOM];
    RankedId work[ROOM];
    const int64_t n = example_numbers(e, "logits", logits);
    sample_distribution(p, logits, n, example_number(e, "temperature"), example_int(e, "top_k"), 1, work);
    example_expect(e, "p", p, n);
}

static void top_p(const Example *e) {   /* [SMP-3]: the logits ln p give p again at T = 1 */
    double logits[ROOM], p[ROOM];
    RankedId work[ROOM];
    const int64_t n = example_numbers(e, "p", logits);
    for (int64_t i = 0; i < n; i++) logits[i] = log(logits[i]);
    sample_distribution(p, logits, n, 1, 0, example_number(e, "top_p"), work);
    example_expect(e, "kept", p, n);
    sample_distribution(p, logits, n, 1, 0, example_number(e, "top_p_2"), work);
    example_expect(e, "kept_2", p, n);
}

static void generator(const Example *e) {   /* [SMP-4] */
    Generator g;
    double u[3];
    char text[256] = "";
    generator_seed(&g, (uint64_t)example_int(e, "seed"));
    for (int i = 0; i < 4; i++) snprintf(text + strlen(text), sizeof text - strlen(text), "%s0x%016llx", i ? " " : "", (unsigned long long)g.state[i]);
    ck_assert_str_eq(text, example_text(e, "state"));
    text[0] = '\0';
    for (int i = 0; i < 3; i++) snprintf(text + strlen(text), sizeof text - strlen(text), "%s0x%016llx", i ? " " : "", (unsigned long long)generator_next(&g));
    ck_assert_str_eq(text, example_text(e, "numbers"));
    generator_seed(&g, (uint64_t)example_int(e, "seed"));
    for (int i = 0; i < 3; i++) u[i] = generator_uniform(&g);
    example_expect(e, "u", u, 3);
}

static void draws(const Example *e) {   /* [SMP-5] */
    double p[ROOM], u[ROOM];
    const int64_t V = example_numbers(e, "p", p), n = example_numbers(e, "u", u);
    for (int64_t i = 0; i < n; i++) u[i] = (double)sample_draw(p, V, u[i]);
    example_expect(e, "ids", u, n);
}

/* ---- chat ------------------------------------------------------------------------------------------------------- */

static void expect_chat(const Example *e, const char *key, bool think) {
    CloverError err;
    CloverMessage messages[2];
    int64_t n = 0;
    char *text, shown[EXAMPLE_TEXT];
    size_t length = 0;
    if (example_has(e, "system")) messages[n++] = (CloverMessage){ "system", example_text(e, "system") };
    messages[n++] = (CloverMessage){ "user", example_text(e, "user") };
    assert_ok(clover_chat_text(messages, n, think, &text, &err), err);
    for (const char *p = text; *p && length < sizeof shown - 2; p++) {   /* SPEC.md writes a newline as \n */
        if (*p == '\n') shown[length++] = '\\';
        shown[length++] = *p == '\n' ? 'n' : *p;
    }
    shown[length] = '\0';
    ck_assert_str_eq(shown, example_text(e, key));
    free(text);
}
static void chat_thinking(const Example *e) { expect_chat(e, "thinking", true); }    /* [CHT-1] */
static void chat_no_thinking(const Example *e) { expect_chat(e, "prompt", false); }  /* [CHT-2] */

/* ---- the suite -------------------------------------------------------------------------------------------------- */

static const struct { const char *name; void (*recompute)(const Example *e); } checks[] = {
    { "CFG-3", full_attention_by_interval }, { "CFG-4", float32_means_what_it_says }, { "TEN-7", tiled_heads },
    { "QNT-2", halves }, { "QNT-3", block }, { "QNT-3b", block }, { "QNT-4", block }, { "QNT-4b", block }, { "QNT-5", block }, { "QNT-6", block },
    { "QNT-7", block }, { "QNT-8", block }, { "QNT-9", block }, { "QNT-10", block }, { "QNT-11", block }, { "QNT-12", block },
    { "NUM-2", lanes_of_sixteen }, { "NUM-6", bf16_rounding },
    { "ROW-1", norm_of_mean }, { "ROW-2", norm_of_sum }, { "ROW-3", sigmoid_silu }, { "ROW-4", softplus_to_twenty }, { "ROW-5", softmax_with_infinity },
    { "ATT-1", query_and_gate_rows }, { "ATT-2", head_norms }, { "ATT-3", rotation }, { "ATT-5", attend_causal }, { "ATT-6", attend_preview },
    { "ATT-7", output_gate },
    { "GDN-2", write_and_decay }, { "GDN-3", conv_causal }, { "GDN-4", split_and_normalise }, { "GDN-5", key_head_of_value_head },
    { "GDN-6", delta_rule }, { "GDN-7", head_norm_and_z },
    { "PRV-2", conv_preview }, { "PRV-5", slots }, { "PRV-6", read_block_and_history },
    { "MOE-2", chosen_and_renormalised }, { "MOE-3", routed_expert }, { "MOE-4", shared_expert },
    { "COR-2", coreset_totals }, { "COR-3", coreset_bound }, { "COR-4", choice_inside_coreset },
    { "DEN-3", fixed_rows }, { "DEN-4", fixed_rows }, { "DRA-2", round_widths }, { "DRA-5", acceptance },
    { "CTL-3", penalties }, { "CTL-4", ramps },
    { "SMP-2", top_k_with_ties }, { "SMP-3", top_p }, { "SMP-4", generator }, { "SMP-5", draws },
    { "CHT-1", chat_thinking }, { "CHT-2", chat_no_thinking },
};
enum { CHECKS = sizeof checks / sizeof checks[0] };

START_TEST(example_holds) {
    Example e;
    example_load(&e, checks[_i].name);
    checks[_i].recompute(&e);
}
END_TEST

START_TEST(every_example_is_recomputed) {
    char names[2 * CHECKS][32];
    const int n = example_names(names, 2 * CHECKS);
    for (int i = 0; i < n; i++) {
        bool found = false;
        for (int j = 0; j < CHECKS; j++) found |= strcmp(names[i], checks[j].name) == 0;
        ck_assert_msg(found, "no test recomputes example %s of SPEC.md", names[i]);
    }
    ck_assert_int_eq(n, CHECKS);
}
END_TEST

Suite *spec_suite(void) {
    Suite *s = suite_create("spec");
    TCase *t = tcase_create("examples");
    tcase_add_loop_test(t, example_holds, 0, CHECKS);
    tcase_add_test(t, every_example_is_recomputed);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(spec_suite()); }
