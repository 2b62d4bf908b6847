/* test_synth.c - clover synth: what it writes, read back and held against the rules by hand. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include "../ref/files/quant.h"
#include "../ref/files/safetensors.h"
#include "../tools/synth.h"
#include "../tools/tools.h"
#include "failing_malloc.h"
#include "files.h"

/* ---- running the command ------------------------------------------------------------------------------------------ */

static char folder[TEST_PATH];

static void setup(void) { make_folder("synth", folder); }
static void teardown(void) { remove_folder(folder); }

static char said[4096];              /* what the last run wrote on standard error */

/* clover synth -o FOLDER/OUT and the flags, separated by spaces. */
static int synth(const char *out, const char *flags) {
    char copy[1024], path[2 * TEST_PATH], name[] = "synth", o[] = "-o", *argv[64] = { name, o, path };
    int argc = 3;
    snprintf(path, sizeof path, "%s", out[0] == '/' ? out : in_folder(folder, out));
    snprintf(copy, sizeof copy, "%s", flags);
    for (char *p = strtok(copy, " "); p; p = strtok(NULL, " ")) argv[argc++] = p;
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    FILE *f = tmpfile();
    ck_assert_ptr_nonnull(f);
    dup2(fileno(f), STDERR_FILENO);
    int code = cmd_synth(argc, argv);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(f);
    said[fread(said, 1, sizeof said - 1, f)] = '\0';
    fclose(f);
    return code;
}

static void assert_synth(const char *out, const char *flags) {
    int code = synth(out, flags);
    ck_assert_msg(code == 0, "synth %s: code %d: %s", flags, code, said);
}

static Gguf *open_gguf(const char *name) {
    CloverError err;
    Gguf *g;
    assert_ok(gguf_open(in_folder(folder, name), &g, &err), err);
    return g;
}

static Safetensors *open_folder(const char *name) {
    CloverError err;
    Safetensors *s;
    assert_ok(safetensors_open(in_folder(folder, name), &s, &err), err);
    return s;
}

/* A tensor's values; free them. */
static double *values(const Tensor *t) {
    ck_assert_ptr_nonnull(t);
    double *x = malloc((size_t)t->elements * sizeof *x);
    quant_decode(t->type, t->data, t->elements, x);
    return x;
}

static bool bytes_equal(const char *a, const char *b) {
    Bytes x = read_file(in_folder(folder, a)), y = read_file(in_folder(folder, b));
    bool same = x.n == y.n && memcmp(x.data, y.data, x.n) == 0;
    free_bytes(&x);
    free_bytes(&y);
    return same;
}

static int64_t key_int(const Gguf *g, const char *name) {
    int64_t v;
    const GgufKey *k = gguf_key(g, name);
    ck_assert_msg(k != NULL, "no key %s", name);
    ck_assert(gguf_int(k, 0, &v));
    return v;
}

/* ---- what is in the file ------------------------------------------------------------------------------------------- */

/* Three value heads a key head, so that grouped and tiled order differ; every width another. */
#define SHAPE "--layers 2 --interval 2 --hidden 40 --heads 6 --kv-heads 3 --head-width 10 --rotary-dims 6 --key-heads 2 " \
    "--value-heads 6 --key-width 5 --value-width 7 --taps 3 --experts 5 --experts-used 2 --expert-width 11 --shared-width 13 --vocab 270 --context 99"
enum { D = 40, V = 270, KEYS = 10, VALUES = 42, CHANNELS = 62, TAPS = 3, E = 5, F = 11, FS = 13, DV = 7, HV = 6 };

typedef struct Expected { const char *gguf, *hf; int dims; int64_t shape[3]; } Expected;

/* Written down from the tables of facts: GGUF's shape; HF's differs only where a comment says so. */
static const Expected tensors[] = {
    { "token_embd.weight", "model.embed_tokens.weight", 2, { V, D } },
    { "output_norm.weight", "model.norm.weight", 1, { D } },
    { "output.weight", "lm_head.weight", 2, { V, D } },
    { "blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight", 1, { D } },
    { "blk.0.post_attention_norm.weight", "model.layers.0.post_attention_layernorm.weight", 1, { D } },
    { "blk.0.attn_qkv.weight", "model.layers.0.linear_attn.in_proj_qkv.weight", 2, { CHANNELS, D } },
    { "blk.0.attn_gate.weight", "model.layers.0.linear_attn.in_proj_z.weight", 2, { VALUES, D } },
    { "blk.0.ssm_beta.weight", "model.layers.0.linear_attn.in_proj_b.weight", 2, { HV, D } },
    { "blk.0.ssm_alpha.weight", "model.layers.0.linear_attn.in_proj_a.weight", 2, { HV, D } },
    { "blk.0.ssm_conv1d.weight", "model.layers.0.linear_attn.conv1d.weight", 2, { CHANNELS, TAPS } },    /* HF [C,1,taps] */
    { "blk.0.ssm_dt.bias", "model.layers.0.linear_attn.dt_bias", 1, { HV } },
    { "blk.0.ssm_a", "model.layers.0.linear_attn.A_log", 1, { HV } },
    { "blk.0.ssm_norm.weight", "model.layers.0.linear_attn.norm.weight", 1, { DV } },
    { "blk.0.ssm_out.weight", "model.layers.0.linear_attn.out_proj.weight", 2, { D, VALUES } },
    { "blk.0.conv_right_weight", "model.layers.0.linear_attn.conv_right_weight", 2, { CHANNELS, TAPS - 1 } },
    { "blk.0.bd_softmax_logit_scale", "model.layers.0.linear_attn.bd_softmax_logit_scale", 1, { HV } },
    { "blk.0.bd_softmax_history_bias", "model.layers.0.linear_attn.bd_softmax_history_bias", 1, { HV } },
    { "blk.0.bd_softmax_history_c", "model.layers.0.linear_attn.bd_softmax_history_c", 1, { HV } },
    { "blk.0.ffn_gate_inp.weight", "model.layers.0.mlp.gate.weight", 2, { E, D } },
    { "blk.0.ffn_down_exps.weight", "model.layers.0.mlp.experts.down_proj", 3, { E, D, F } },
    { "blk.0.ffn_gate_inp_shexp.weight", "model.layers.0.mlp.shared_expert_gate.weight", 1, { D } },     /* HF [1,D] */
    { "blk.0.ffn_gate_shexp.weight", "model.layers.0.mlp.shared_expert.gate_proj.weight", 2, { FS, D } },
    { "blk.0.ffn_up_shexp.weight", "model.layers.0.mlp.shared_expert.up_proj.weight", 2, { FS, D } },
    { "blk.0.ffn_down_shexp.weight", "model.layers.0.mlp.shared_expert.down_proj.weight", 2, { D, FS } },
    { "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight", 2, { 120, D } },
    { "blk.1.attn_k.weight", "model.layers.1.self_attn.k_proj.weight", 2, { 30, D } },
    { "blk.1.attn_v.weight", "model.layers.1.self_attn.v_proj.weight", 2, { 30, D } },
    { "blk.1.attn_output.weight", "model.layers.1.self_attn.o_proj.weight", 2, { D, 60 } },
    { "blk.1.attn_q_norm.weight", "model.layers.1.self_attn.q_norm.weight", 1, { 10 } },
    { "blk.1.attn_k_norm.weight", "model.layers.1.self_attn.k_norm.weight", 1, { 10 } },
    { "blk.0.ffn_gate_exps.weight", NULL, 3, { E, F, D } },                                              /* HF: one tensor */
    { "blk.0.ffn_up_exps.weight", NULL, 3, { E, F, D } },
};
enum { N_TENSORS = sizeof tensors / sizeof *tensors };

START_TEST(gguf_shapes_and_keys) {
    assert_synth("m.gguf", SHAPE " --seed 3 --rope-base 12345 --block 8 --mask-id 265 --threshold 0.7 --coreset-top-p 0.25");
    Gguf *g = open_gguf("m.gguf");
    for (int i = 0; i < N_TENSORS; i++) {
        const Tensor *t = gguf_tensor(g, tensors[i].gguf);
        ck_assert_msg(t != NULL, "no %s", tensors[i].gguf);
        ck_assert_msg(t->dims == tensors[i].dims && memcmp(t->shape, tensors[i].shape, (size_t)t->dims * sizeof *t->shape) == 0,
            "shape of %s", t->name);
        ck_assert_int_eq(t->type, DT_F32);
    }
    ck_assert_int_eq(gguf_tensors(g).n, 3 + 23 + 16);                /* 3 global, a GDN and an attention layer */

    static const struct { const char *name; int64_t value; } sizes[] = {
        { "clover_moe.block_count", 2 }, { "clover_moe.context_length", 99 }, { "clover_moe.embedding_length", 40 },
        { "clover_moe.attention.head_count", 6 }, { "clover_moe.attention.head_count_kv", 3 },
            { "clover_moe.attention.key_length", 10 }, { "clover_moe.attention.value_length", 10 },
        { "clover_moe.rope.dimension_count", 6 }, { "clover_moe.expert_count", 5 }, { "clover_moe.expert_used_count", 2 },
        { "clover_moe.expert_feed_forward_length", 11 }, { "clover_moe.expert_shared_feed_forward_length", 13 },
            { "clover_moe.expert_shared_count", 1 },
        { "clover_moe.ssm.conv_kernel", 3 }, { "clover_moe.ssm.state_size", 5 }, { "clover_moe.ssm.group_count", 2 },
            { "clover_moe.ssm.time_step_rank", 6 },
        { "clover_moe.ssm.inner_size", 42 }, { "clover_moe.full_attention_interval", 2 }, { "clover_moe.diffusion.block_size", 8 },
        { "clover_moe.diffusion.mask_token_id", 265 }, { "tokenizer.ggml.eos_token_id", 258 },
            { "tokenizer.ggml.padding_token_id", 256 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) ck_assert_int_eq(key_int(g, sizes[i].name), sizes[i].value);
    static const struct { const char *name; double value; } reals[] = {
        { "clover_moe.rope.freq_base", 12345 }, { "clover_moe.diffusion.threshold", 0.7 },
        { "clover_moe.diffusion.coreset_top_p", 0.25 }, { "clover_moe.attention.layer_norm_rms_epsilon", 1e-6f } };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double v;
        ck_assert(gguf_real(gguf_key(g, reals[i].name), 0, &v));
        ck_assert_msg(v == reals[i].value, "%s is %.17g", reals[i].name, v);
    }
    bool on;
    GgufString s;
    ck_assert(gguf_bool(gguf_key(g, "clover_moe.diffusion.coreset_enabled"), 0, &on) && on);
    ck_assert(gguf_string(gguf_key(g, "clover_moe.diffusion.head_order"), &s) && s.length == 5 && memcmp(s.bytes, "tiled", 5) == 0);
    ck_assert_uint_eq(gguf_key(g, "clover_moe.rope.dimension_sections")->count, 4);

    const GgufKey *tokens = gguf_key(g, "tokenizer.ggml.tokens");
    const uint8_t *cursor = NULL;
    static const struct { int id; const char *text; } some[] = {                 /* byte 32 is U+0120, 127 U+0121 */
        { 0, "\xc4\x80" }, { 10, "\xc4\x8a" }, { 32, "\xc4\xa0" }, { 65, "A" }, { 127, "\xc4\xa1" }, { 173, "\xc5\x83" },
        { 195, "\xc3\x83" }, { 255, "\xc3\xbf" }, { 256, "<|endoftext|>" }, { 257, "<|im_start|>" }, { 258, "<|im_end|>" },
        { 259, "<think>" }, { 260, "</think>" }, { 261, "<|mask|>" }, { 262, "w262_" }, { 269, "w269_" } };
    size_t next = 0;
    ck_assert_uint_eq(tokens->count, V);
    for (int id = 0; gguf_next_string(tokens, &cursor, &s); id++) {
        if (next == sizeof some / sizeof *some || id != some[next].id) continue;
        ck_assert_msg(s.length == strlen(some[next].text) && memcmp(s.bytes, some[next].text, s.length) == 0, "token %d", id);
        next++;
    }
    ck_assert_uint_eq(next, sizeof some / sizeof *some);
    gguf_close(g);
}
END_TEST

START_TEST(presets) {
    assert_synth("tiny.gguf", "");
    struct stat info;
    ck_assert_int_eq(stat(in_folder(folder, "tiny.gguf"), &info), 0);
    ck_assert(info.st_size > 1000000 && info.st_size < 2000000);
    Gguf *g = open_gguf("tiny.gguf");
    ck_assert_int_eq(key_int(g, "clover_moe.diffusion.block_size"), 32);
    ck_assert_int_eq(key_int(g, "clover_moe.diffusion.mask_token_id"), 261);
    gguf_close(g);
    /* The 35B model's list of tensors, without its 19.6 GB: 733 and 120 for diffusion, 34,660,610,688 parameters and theirs. */
    CloverError err;
    SynthTensors list;
    SynthModel m = { .layers = 40, .hidden = 2048, .heads = 16, .kv_heads = 2, .head_width = 256, .rotary_dims = 64,
        .rope_base = 1e7,
        .key_heads = 16, .value_heads = 32, .key_width = 128, .value_width = 128, .taps = 4, .interval = 4, .experts = 256,
            .experts_used = 8, .expert_width = 512, .shared_width = 512, .vocab = 248320, .type = DT_Q4_0 };
    for (int diffusion = 0; diffusion < 2; diffusion++) {
        int64_t parameters = 0;
        m.diffusion = diffusion == 1;
        assert_ok(synth_list(&m, &list, &err), err);
        for (int64_t i = 0; i < list.n; i++) parameters += list.tensor[i].rows * list.tensor[i].cols;
        ck_assert_int_eq(list.n, diffusion ? 853 : 733);
        ck_assert_int_eq(parameters, 34660610688 + (diffusion ? 30 * (3 * 8192 + 3 * 32) : 0));
        free(list.tensor);
    }
}
END_TEST

/* ---- one seed, one model ------------------------------------------------------------------------------------------- */

START_TEST(the_same_seed_gives_the_same_bytes) {
    assert_synth("a.gguf", SHAPE " --seed 5");
    assert_synth("b.gguf", SHAPE " --seed 5");
    assert_synth("c.gguf", SHAPE " --seed 6");
    ck_assert(bytes_equal("a.gguf", "b.gguf"));
    Gguf *a = open_gguf("a.gguf"), *c = open_gguf("c.gguf");
    for (int i = 0; i < N_TENSORS; i++) {                            /* another seed: every tensor differs */
        const Tensor *x = gguf_tensor(a, tensors[i].gguf), *y = gguf_tensor(c, tensors[i].gguf);
        ck_assert_msg(memcmp(x->data, y->data, x->bytes) != 0, "%s does not depend on the seed", x->name);
    }
    for (int i = 0; i < N_TENSORS; i++)                              /* and no tensor begins as another does */
        for (int k = 0; k < i; k++)
            ck_assert(memcmp(gguf_tensor(a, tensors[i].gguf)->data, gguf_tensor(a, tensors[k].gguf)->data, 16) != 0);
    gguf_close(a);
    gguf_close(c);
    assert_synth("q.gguf", "--seed 5 --type q4_0");
    assert_synth("r.gguf", "--seed 5 --type q4_0");
    ck_assert(bytes_equal("q.gguf", "r.gguf"));
}
END_TEST

START_TEST(f32_f16_bf16_are_one_model) {
    static const char *const types[] = { "f32", "f16", "bf16" };
    Gguf *g[3];
    Safetensors *s[3];
    for (int i = 0; i < 3; i++) {
        char name[32], flags[512];
        snprintf(name, sizeof name, "%s.gguf", types[i]);
        snprintf(flags, sizeof flags, SHAPE " --seed 9 --type %s", types[i]);
        assert_synth(name, flags);
        g[i] = open_gguf(name);
        assert_synth(types[i], flags);
        s[i] = open_folder(types[i]);
    }
    int narrow = 0;
    for (int64_t k = 0; k < gguf_tensors(g[0]).n; k++) {
        const Tensor *a = &gguf_tensors(g[0]).tensor[k];
        double *x = values(a);
        for (int i = 1; i < 3; i++) {
            const Tensor *b = gguf_tensor(g[i], a->name);
            double *y = values(b);
            ck_assert_msg(memcmp(x, y, (size_t)a->elements * sizeof *x) == 0, "%s in %s", a->name, types[i]);
            narrow += b->type != DT_F32;
            free(y);
        }
        free(x);
    }
    ck_assert_int_gt(narrow, 40);                                    /* the matrices are in the type asked for */
    for (int64_t k = 0; k < safetensors_tensors(s[0]).n; k++) {
        const Tensor *a = &safetensors_tensors(s[0]).tensor[k];
        double *x = values(a);
        for (int i = 1; i < 3; i++) {
            const Tensor *b = safetensors_tensor(s[i], a->name);
            double *y = values(b);
            ck_assert_int_eq(b->type, i == 1 ? DT_F16 : DT_BF16);
            ck_assert_msg(memcmp(x, y, (size_t)a->elements * sizeof *x) == 0, "%s in %s", a->name, types[i]);
            free(y);
        }
        free(x);
    }
    for (int i = 0; i < 3; i++) gguf_close(g[i]), safetensors_close(s[i]);
}
END_TEST

/* HF's value head at each place of the GGUF, for 2 key heads and 6 value heads: SPEC's example of [TEN-7]. */
static const int hf_head_at[6] = { 0, 3, 1, 4, 2, 5 };

/* The row of HF's that GGUF's row r holds: rows from start on are heads of `width` rows. */
static int64_t row_of(int64_t r, int64_t start, int64_t width) {
    return r < start ? r : start + hf_head_at[(r - start) / width] * width + (r - start) % width;
}

START_TEST(gguf_and_hf_are_related_as_the_formats_say) {
    assert_synth("m.gguf", SHAPE " --seed 11");
    assert_synth("hf", SHAPE " --seed 11");
    Gguf *g = open_gguf("m.gguf");
    Safetensors *s = open_folder("hf");
    for (int i = 0; i < N_TENSORS; i++) {
        if (!tensors[i].hf) continue;
        const Tensor *a = gguf_tensor(g, tensors[i].gguf), *b = safetensors_tensor(s, tensors[i].hf);
        double *x = values(a), *y = values(b);
        const char *name = strchr(a->name, '.') + 1;                 /* without blk */
        if (name[1] == '.') name += 2;
        ck_assert_int_eq(a->elements, b->elements);
        int64_t cols = a->dims == 1 ? 1 : a->shape[a->dims - 1], rows = a->elements / cols;
        bool tiled = strncmp(name, "ssm_", 4) == 0 || strncmp(name, "bd_", 3) == 0 || strcmp(name, "attn_gate.weight") == 0;
        bool channels = strcmp(name, "attn_qkv.weight") == 0 || strncmp(name, "ssm_conv1d", 10) == 0
            || strncmp(name, "conv_right", 10) == 0;
        bool columns = strcmp(name, "ssm_out.weight") == 0, plain_norm = strcmp(name, "ssm_norm.weight") == 0;
        bool shifted = strstr(a->name, "norm.weight") && !plain_norm;
        int64_t wrong = -1;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++) {
                int64_t hr = columns || plain_norm ? r : channels ? row_of(r, 2 * KEYS, DV) : tiled ? row_of(r, 0, rows / HV) : r;
                int64_t hc = columns ? row_of(c, 0, DV) : c;
                double expected = y[hr * cols + hc];
                if (shifted) expected += 1;
                if (strcmp(name, "ssm_a") == 0) expected = -expf((float)expected);
                if (!close_to(x[r * cols + c], expected, strcmp(name, "ssm_a") == 0 ? 2e-7 : 0, 0)) wrong = r * cols + c;
            }
        ck_assert_msg(wrong < 0, "%s: element %d is %.9g, HF says otherwise", a->name, (int)wrong, wrong < 0 ? 0 : x[wrong]);
        free(x);
        free(y);
    }
    double *gate = values(gguf_tensor(g, "blk.0.ffn_gate_exps.weight")), *up = values(gguf_tensor(g, "blk.0.ffn_up_exps.weight"));
    /* [E,2F,D]: gate rows first */
    double *both = values(safetensors_tensor(s, "model.layers.0.mlp.experts.gate_up_proj"));
    for (int e = 0; e < E; e++) {
        ck_assert_mem_eq(gate + e * F * D, both + e * 2 * F * D, F * D * sizeof *gate);
        ck_assert_mem_eq(up + e * F * D, both + (e * 2 + 1) * F * D, F * D * sizeof *up);
    }
    free(gate);
    free(up);
    free(both);
    ck_assert_int_eq(safetensors_tensor(s, "model.layers.0.linear_attn.conv1d.weight")->dims, 3);
    ck_assert_int_eq(safetensors_tensor(s, "model.layers.0.mlp.shared_expert_gate.weight")->shape[0], 1);
    gguf_close(g);
    safetensors_close(s);
}
END_TEST

/* One assertion a tensor: Check tells its parent of each, which is slow for millions. */
static void statistics(const Tensor *t, double *mean, double *rms, double *low, double *high) {
    double *x = values(t), sum = 0, squares = 0;
    *low = *high = x[0];
    for (int64_t i = 0; i < t->elements; i++) {
        sum += x[i];
        squares += x[i] * x[i];
        if (!(x[i] >= *low)) *low = x[i];
        if (!(x[i] <= *high)) *high = x[i];
    }
    *mean = sum / (double)t->elements;
    *rms = sqrt(squares / (double)t->elements);
    free(x);
}

/* Nothing that a drift is recognised by: rates negative, norms around 1. And no value that overflows a layer. */
START_TEST(values_are_sane) {
    assert_synth("m.gguf", "--preset tiny");
    Gguf *g = open_gguf("m.gguf");
    for (int64_t k = 0; k < gguf_tensors(g).n; k++) {
        const Tensor *t = &gguf_tensors(g).tensor[k];
        double mean, rms, low, high;
        statistics(t, &mean, &rms, &low, &high);
        ck_assert(low > -64 && high < 64);
        if (strstr(t->name, "ssm_a") && !strstr(t->name, "alpha")) ck_assert(high < 0);
        if (strstr(t->name, "norm.weight")) ck_assert(mean > 0.8 && mean < 1.7);
        /* 1/sqrt(64) */
        if (strcmp(t->name, "blk.1.attn_qkv.weight") == 0)
            ck_assert(fabs(mean) < 0.01 && rms > 0.95 / 8 && rms < 1.05 / 8);
        if (strcmp(t->name, "token_embd.weight") == 0) ck_assert(fabs(mean) < 0.05 && rms > 0.95 && rms < 1.05);
    }
    gguf_close(g);
}
END_TEST

/* ---- every type ---------------------------------------------------------------------------------------------------- */

static const struct { const char *flag; DType type; } block_types[] = {
    { "q8_0", DT_Q8_0 }, { "q4_0", DT_Q4_0 }, { "q4_1", DT_Q4_1 }, { "q5_0", DT_Q5_0 }, { "q5_1", DT_Q5_1 }, { "q2_k", DT_Q2_K },
    { "q3_k", DT_Q3_K }, { "q4_k", DT_Q4_K }, { "q5_k", DT_Q5_K }, { "q6_k", DT_Q6_K }, { "iq4_nl", DT_IQ4_NL },
        { "iq4_xs", DT_IQ4_XS } };

#define WIDE "--layers 2 --interval 2 --hidden 256 --heads 4 --kv-heads 2 --head-width 64 --rotary-dims 16 " \
    "--value-width 64 --expert-width 256 --shared-width 256"

START_TEST(block_types_have_the_right_scale) {
    char flags[512];
    snprintf(flags, sizeof flags, WIDE " --type %s", block_types[_i].flag);
    assert_synth("m.gguf", flags);
    ck_assert_ptr_null(strstr(said, "F16"));
    Gguf *g = open_gguf("m.gguf");
    int matrices = 0;
    for (int64_t k = 0; k < gguf_tensors(g).n; k++) {
        const Tensor *t = &gguf_tensors(g).tensor[k];
        bool plain = t->dims == 1 || strstr(t->name, "conv") || strstr(t->name, "ffn_gate_inp");
        ck_assert_int_eq(t->type, plain ? DT_F32 : block_types[_i].type);
        if (plain) continue;
        double mean, rms, low, high;
        statistics(t, &mean, &rms, &low, &high);
        ck_assert(isfinite(low) && isfinite(high) && isfinite(rms));
        double wanted = strcmp(t->name, "token_embd.weight") == 0 ? 1 : strcmp(t->name, "output.weight") == 0 ? 12.0 / 16
            : strstr(t->name, "attn_q.") ? 1.5 / 16 : 1.0 / 16;
        if (t->elements >= 65536)
            ck_assert_msg(rms > 0.9 * wanted && rms < 1.15 * wanted && fabs(mean) < 0.06 * wanted,
                "%s: rms %g, mean %g, wanted %g", t->name, rms, mean, wanted);
        matrices++;
    }
    ck_assert_int_eq(matrices, 2 + 5 + 4 + 2 * 6);
    ck_assert_mem_ne(gguf_tensor(g, "blk.0.ffn_gate_exps.weight")->data, gguf_tensor(g, "blk.0.ffn_up_exps.weight")->data, 16);
    gguf_close(g);
}
END_TEST

START_TEST(rows_that_are_no_whole_blocks_fall_back) {
    assert_synth("m.gguf",
        "--layers 2 --interval 2 --hidden 256 --heads 4 --kv-heads 2 --head-width 64 "
        "--value-width 64 --shared-width 256 --type q4_k");
    ck_assert_ptr_nonnull(strstr(said,
        "2 matrices are F16: their rows are no multiple of Q4_K's 256 elements (blk.0.ffn_down_exps.weight"));
    Gguf *g = open_gguf("m.gguf");
    ck_assert_int_eq(gguf_tensor(g, "blk.0.ffn_down_exps.weight")->type, DT_F16);
    ck_assert_int_eq(gguf_tensor(g, "blk.0.ffn_up_exps.weight")->type, DT_Q4_K);
    ck_assert_int_eq(gguf_tensor(g, "blk.0.ssm_alpha.weight")->type, DT_Q4_K);
    gguf_close(g);
}
END_TEST

/* ---- forms --------------------------------------------------------------------------------------------------------- */

START_TEST(folder_forms) {
    assert_synth("plain", SHAPE);
    assert_synth("experts", SHAPE " --per-expert --prefix-language-model --nested-config --split-size 20K");
    Safetensors *a = open_folder("plain"), *b = open_folder("experts");
    ck_assert_int_gt(safetensors_parts(b), 3);
    ck_assert_int_eq(safetensors_tensors(b).n, safetensors_tensors(a).n + 2 * (3 * E - 2));
    double *fused = values(safetensors_tensor(a, "model.layers.1.mlp.experts.gate_up_proj")),
        *down = values(safetensors_tensor(a, "model.layers.1.mlp.experts.down_proj"));
    for (int e = 0; e < E; e++) {
        char name[96];
        const char *const parts[] = { "gate", "up", "down" };
        const double *expected[] = { fused + e * 2 * F * D, fused + (e * 2 + 1) * F * D, down + e * D * F };
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "model.language_model.layers.1.mlp.experts.%d.%s_proj.weight", e, parts[k]);
            double *x = values(safetensors_tensor(b, name));
            ck_assert_int_eq(safetensors_tensor(b, name)->shape[0], k == 2 ? D : F);
            ck_assert_mem_eq(x, expected[k], F * D * sizeof *x);
            free(x);
        }
    }
    free(fused);
    free(down);
    ck_assert_ptr_nonnull(safetensors_tensor(b, "lm_head.weight"));
    ck_assert_ptr_nonnull(safetensors_tensor(b, "model.language_model.embed_tokens.weight"));
    safetensors_close(a);
    safetensors_close(b);
}
END_TEST

START_TEST(split_gguf_is_the_same_model) {
    assert_synth("whole.gguf", SHAPE);
    assert_synth("split.gguf", SHAPE " --split-size 40K");
    DIR *d = opendir(folder);
    char first[64] = "";
    for (struct dirent *e; (e = readdir(d)); )
        if (strncmp(e->d_name, "split-00001-of-", 15) == 0) snprintf(first, sizeof first, "%.60s", e->d_name);
    closedir(d);
    Gguf *a = open_gguf("whole.gguf"), *b = open_gguf(first);
    ck_assert_int_gt(gguf_parts(b), 3);
    ck_assert_int_eq(gguf_tensors(a).n, gguf_tensors(b).n);
    for (int64_t k = 0; k < gguf_tensors(a).n; k++) {
        const Tensor *x = &gguf_tensors(a).tensor[k], *y = gguf_tensor(b, x->name);
        ck_assert(y && x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0);
    }
    gguf_close(a);
    gguf_close(b);
}
END_TEST

START_TEST(tied_base_and_without_diffusion) {
    assert_synth("tied.gguf", "--tied");
    assert_synth("none.gguf", "--no-diffusion");
    assert_synth("base.gguf", "--arch qwen35moe");
    Gguf *tied = open_gguf("tied.gguf"), *none = open_gguf("none.gguf"), *base = open_gguf("base.gguf");
    GgufString s;
    ck_assert_ptr_null(gguf_tensor(tied, "output.weight"));
    ck_assert_ptr_nonnull(gguf_tensor(tied, "blk.0.conv_right_weight"));
    ck_assert_int_eq(gguf_tensors(none).n, gguf_tensors(tied).n + 1 - 3 * 4);
    ck_assert_ptr_null(gguf_tensor(none, "blk.0.conv_right_weight"));
    ck_assert_ptr_null(gguf_key(none, "clover_moe.diffusion.block_size"));
    ck_assert(gguf_string(gguf_key(base, "general.architecture"), &s) && s.length == 9 && memcmp(s.bytes, "qwen35moe", 9) == 0);
    ck_assert_int_eq(key_int(base, "qwen35moe.block_count"), 4);
    ck_assert_ptr_null(gguf_key(base, "clover_moe.block_count"));
    ck_assert_ptr_null(gguf_key(base, "qwen35moe.diffusion.block_size"));
    ck_assert_int_eq(gguf_tensors(base).n, gguf_tensors(none).n);
    for (int64_t k = 0; k < gguf_tensors(none).n; k++) {             /* the base has the trunk's tensors, and the same */
        const Tensor *x = &gguf_tensors(none).tensor[k], *y = gguf_tensor(base, x->name);
        ck_assert(y && memcmp(x->data, y->data, x->bytes) == 0);
    }
    gguf_close(tied);
    gguf_close(none);
    gguf_close(base);
}
END_TEST

/* 30 / 44 in double, times 44, is a hair below 30, and Transformers truncates. */
START_TEST(the_rotary_factor_survives_truncation) {
    CloverError err;
    CloverModel *m;
    ck_assert_int_eq((int)(30.0 / 44 * 44), 29);
    assert_synth("hf", "--head-width 44 --rotary-dims 30");
    CloverOpenOptions options = clover_open_defaults();
    assert_ok(clover_model_open(in_folder(folder, "hf"), &options, &m, &err), err);
    ck_assert_int_eq(clover_model_config(m)->rotary_dims, 30);
    clover_model_close(m);
    Bytes config = read_file(in_folder(folder, "hf/config.json"));
    put_number(&config, 0, 1);
    const char *at = strstr((const char *)config.data, "\"partial_rotary_factor\": ");
    ck_assert_ptr_nonnull(at);
    double factor = strtod(at + strlen("\"partial_rotary_factor\": "), NULL);
    ck_assert_int_eq((int)(factor * 44), 30);
    free_bytes(&config);
}
END_TEST

/* Every form opens as a model, says the same numbers, and gives the same logits where the weights are the same. */
START_TEST(models_open_and_run) {
    static const char *const flags[] = { "", "--type f16", "--type bf16", "--form hf",
        "--form hf --type f16 --per-expert --nested-config",
                                         "--form hf --type bf16 --prefix-language-model --split-size 100K" };
    static const int32_t ids[] = { 72, 101, 257, 10 };
    double first[6][270];
    for (int i = 0; i < 6; i++) {
        char name[16], all[512];
        CloverError err;
        CloverModel *m;
        CloverSession *session;
        snprintf(name, sizeof name, i < 3 ? "%d.gguf" : "%d", i);
        snprintf(all, sizeof all, SHAPE " --seed 2 --threshold 0.7 --coreset-top-p 0.5 --block 8 --mask-id 263 %s", flags[i]);
        assert_synth(name, all);
        CloverOpenOptions options = clover_open_defaults();
        assert_ok(clover_model_open(in_folder(folder, name), &options, &m, &err), err);
        const CloverConfig *c = clover_model_config(m);
        ck_assert(c->family == CLOVER_FAMILY_CLOVER && c->layers == 2 && c->hidden == D && c->vocab == V && c->context == 99
            && c->heads == 6 && c->kv_heads == 3);
        ck_assert(c->head_width == 10 && c->rotary_dims == 6 && c->rope_base == 1e7 && c->key_heads == 2 && c->value_heads == 6
            && c->key_width == 5);
        ck_assert(c->value_width == 7 && c->taps == 3 && c->experts == 5 && c->experts_used == 2 && c->expert_width == 11
            && c->shared_width == 13);
        ck_assert(!c->full_attention[0] && c->full_attention[1] && !c->tied && c->block == 8 && c->mask_id == 263
            && c->threshold == 0.7);
        ck_assert(c->coreset_enabled && c->coreset_top_p == 0.5 && c->n_stops == 2);
        assert_ok(clover_model_can_preview(m, &err), err);
        ck_assert_ptr_nonnull(clover_model_tokenizer(m));
        ck_assert_int_eq(clover_token_find(clover_model_tokenizer(m), "<|im_end|>"), TOKEN_IM_END);
        int32_t *encoded;
        int64_t n;
        assert_ok(clover_encode(clover_model_tokenizer(m), "A \n", 3, false, &encoded, &n, &err), err);
        ck_assert(n == 3 && encoded[0] == 'A' && encoded[1] == ' ' && encoded[2] == '\n');
        free(encoded);

        CloverSessionOptions how = clover_session_defaults();
        how.capacity = 16;
        double preview[3 * V];
        assert_ok(clover_session_new(m, &how, &session, &err), err);
        assert_ok(clover_commit(session, ids, 4, first[i], 1, &err), err);
        assert_ok(clover_preview(session, (int32_t[]){ 263, 65, 263 }, 3, preview, &err), err);
        for (int k = 0; k < V; k++) {
            ck_assert(isfinite(first[i][k]) && isfinite(preview[k]));
            int same = i < 3 ? 0 : 3;                    /* a GGUF rounds ε and A to float32 */
            ck_assert(first[i][k] == first[same][k]);
            ck_assert(close_to(first[i][k], first[0][k], 1e-4, 1e-4));
        }
        clover_session_free(session);
        clover_model_close(m);
    }
    double low = first[0][0], high = low;
    for (int k = 0; k < V; k++) low = fmin(low, first[0][k]), high = fmax(high, first[0][k]);
    ck_assert_msg(high - low > 20 && high - low < 200, "logits from %g to %g", low, high);
}
END_TEST

/* ---- what is refused ----------------------------------------------------------------------------------------------- */

static const struct { const char *out, *flags, *says; } refused[] = {
    { "m.gguf", "--vocab 261", "--vocab: 261 is out of range" },
    { "m.gguf", "--heads 6 --kv-heads 4", "--heads: 6 is no multiple of --kv-heads 4" },
    { "m.gguf", "--key-heads 3", "--value-heads: 4 is no multiple of --key-heads 3" },
    { "m.gguf", "--rotary-dims 5", "--rotary-dims: 5 is not even" },
    { "m.gguf", "--rotary-dims 34", "--rotary-dims: 34 is not even or exceeds --head-width 32" },
    { "m.gguf", "--experts-used 9", "--experts-used: 9 exceeds --experts 8" },
    { "m.gguf", "--mask-id 272", "--mask-id: 272 is not below --vocab 272" },
    { "m.gguf", "--interval 5", "--interval: 5 leaves none" },
    { "m.gguf", "--taps 1", "--taps: 1 is out of range" },
    { "m.gguf", "--layers 0", "--layers: 0 is out of range" },
    { "m.gguf", "--layers 12x", "--layers: \"12x\"" },
    { "m.gguf", "--type q9", "--type: \"q9\" is none of f32" },
    { "m.gguf", "--preset huge", "--preset: \"huge\" is none of tiny, small, 35b" },
    { "m.gguf", "--threshold 1.5", "--threshold: 1.5 is out of range" },
    { "m.gguf", "--per-expert", "--per-expert: goes with the form hf" },
    { "m.gguf", "--nested-config", "--nested-config: goes with the form hf" },
    { "m.gguf", "--prefix-language-model", "--prefix-language-model: goes with the form hf" },
    { "m.gguf", "--form hf", "--form: hf writes a folder" },
    { "hf", "--type q4_0", "--type: q4_0 does not go with the form hf" },
    { "m.gguf", "--arch qwen35moe --block 8", "--block: a model of --arch qwen35moe has no blocks" },
    { "m.gguf", "--no-diffusion --mask-id 261", "--mask-id: a model of --no-diffusion has no mask" },
    { "m.gguf", "--no-diffusion --threshold 0.5", "--threshold: a model of --no-diffusion has none" },
    { "m.gguf", "--arch qwen35moe --coreset-top-p 0.5", "--coreset-top-p: a model of --arch qwen35moe has none" },
    { "m.gguf", "--split-size 0", "--split-size: 0 is out of range" },
    { "m.gguf", "--nonsense", "--nonsense: no such flag" },
    { "m.gguf", "--experts-used 9 --rotary-dims 5", "--experts-used: 9 exceeds --experts 8" },           /* both are told */
};

static int files_in(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d)); ) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

START_TEST(requests_that_make_no_sense) {
    ck_assert_int_eq(synth(refused[_i].out, refused[_i].flags), CLOVER_USAGE);
    ck_assert_msg(strstr(said, refused[_i].says) != NULL, "%s: %s", refused[_i].flags, said);
    ck_assert_int_eq(strncmp(said, "clover synth: ", 14), 0);
    ck_assert_int_eq(files_in(folder), 0);
}
END_TEST

START_TEST(what_exists_stays_unless_forced) {
    assert_synth("m.gguf", SHAPE);
    ck_assert_int_eq(synth("m.gguf", SHAPE " --seed 1"), CLOVER_USAGE);
    ck_assert_ptr_nonnull(strstr(said, "m.gguf: exists; --force"));
    assert_synth("n.gguf", SHAPE);
    ck_assert(bytes_equal("m.gguf", "n.gguf"));
    assert_synth("m.gguf", SHAPE " --seed 1 --force");
    ck_assert(!bytes_equal("m.gguf", "n.gguf"));

    assert_synth("hf", SHAPE " --split-size 20K");
    ck_assert_int_eq(synth("hf", SHAPE), CLOVER_USAGE);
    ck_assert_ptr_nonnull(strstr(said, "hf: the folder is not empty; --force"));
    assert_synth("hf", SHAPE " --seed 1 --force");                   /* no shard and no index of the old model is left */
    ck_assert_int_eq(files_in(in_folder(folder, "hf")), 5);
    assert_synth("other", SHAPE " --seed 1");
    ck_assert(bytes_equal("hf/model.safetensors", "other/model.safetensors"));
    ck_assert(bytes_equal("hf/config.json", "other/config.json"));
}
END_TEST

START_TEST(a_full_disk_leaves_nothing) {
    static const char *const outs[] = { "m.gguf", "hf", "m.gguf", "hf" };
    static const rlim_t limits[] = { 50000, 50000, 100, 100 };
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 4; i++) {
        struct rlimit old, limit;
        getrlimit(RLIMIT_FSIZE, &old);
        limit = old;
        limit.rlim_cur = limits[i];
        setrlimit(RLIMIT_FSIZE, &limit);
        char name[] = "synth", o[] = "-o", path[2 * TEST_PATH], *argv[] = { name, o, path, NULL };
        snprintf(path, sizeof path, "%s/%s", folder, outs[i]);
        int saved = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        int code = cmd_synth(3, argv);
        dup2(saved, STDERR_FILENO);
        close(saved);
        close(null);
        setrlimit(RLIMIT_FSIZE, &old);
        ck_assert_int_eq(code, CLOVER_SYSTEM);
        ck_assert_int_eq(files_in(folder), 0);
    }
    if (access("/dev/full", W_OK) == 0) {
        ck_assert_int_eq(synth("/dev/full", "--form gguf"), CLOVER_SYSTEM);
        ck_assert_ptr_nonnull(strstr(said, "/dev/full: disk full"));
    }
    ck_assert_int_eq(synth("m.gguf", "--hidden 1048576 --vocab 16777216 --expert-width 1048576 --experts 4096"), CLOVER_SYSTEM);
    ck_assert_ptr_nonnull(strstr(said, "disk full"));
    ck_assert_int_eq(files_in(folder), 0);
}
END_TEST

START_TEST(no_memory_at_any_point) {
    static const char *const flags[] = { "--layers 2 --interval 2 --experts 2 --vocab 262",
        "--layers 2 --interval 2 --experts 2 --vocab 262 --form hf --split-size 64K" };
    if (!malloc_can_fail()) {
        puts("skip synth_no_memory (a sanitizer or valgrind has its own allocator)");
        return;
    }
    for (int form = 0; form < 2; form++) {
        char path[2 * TEST_PATH];
        snprintf(path, sizeof path, "%s/out%s", folder, form ? "" : ".gguf");
        bool failed = true;
        for (long i = 0; failed; i += 1 + i / 50) {
            char copy[256], name[] = "synth", o[] = "-o", *argv[32] = { name, o, path };
            int argc = 3, saved = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
            snprintf(copy, sizeof copy, "%s", flags[form]);
            for (char *p = strtok(copy, " "); p; p = strtok(NULL, " ")) argv[argc++] = p;
            dup2(null, STDERR_FILENO);
            malloc_fail_after(i, true);
            int code = cmd_synth(argc, argv);
            failed = malloc_recover();
            dup2(saved, STDERR_FILENO);
            close(saved);
            close(null);
            ck_assert_msg(code == (failed ? CLOVER_SYSTEM : CLOVER_OK), "allocation %ld: code %d", i, code);
            if (failed) ck_assert_int_eq(files_in(folder), 0);
        }
        remove_folder(in_folder(folder, "out"));
        unlink(in_folder(folder, "out.gguf"));
    }
}
END_TEST

Suite *synth_suite(void) {
    Suite *s = suite_create("synth");
    TCase *t = tcase_create("synth");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, gguf_shapes_and_keys);
    tcase_add_test(t, presets);
    tcase_add_test(t, the_same_seed_gives_the_same_bytes);
    tcase_add_test(t, f32_f16_bf16_are_one_model);
    tcase_add_test(t, gguf_and_hf_are_related_as_the_formats_say);
    tcase_add_test(t, values_are_sane);
    tcase_add_loop_test(t, block_types_have_the_right_scale, 0, sizeof block_types / sizeof *block_types);
    tcase_add_test(t, rows_that_are_no_whole_blocks_fall_back);
    tcase_add_test(t, folder_forms);
    tcase_add_test(t, split_gguf_is_the_same_model);
    tcase_add_test(t, tied_base_and_without_diffusion);
    tcase_add_test(t, the_rotary_factor_survives_truncation);
    tcase_add_test(t, models_open_and_run);
    tcase_add_loop_test(t, requests_that_make_no_sense, 0, sizeof refused / sizeof *refused);
    tcase_add_test(t, what_exists_stays_unless_forced);
    tcase_add_test(t, a_full_disk_leaves_nothing);
    tcase_add_test(t, no_memory_at_any_point);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(synth_suite()); }
