/* diff_html_example.h - a made-up diff with everything in it that a page can show, of as many layers and steps as wanted.
 * tests/peers/browser/report.mjs knows its planted numbers. */
#ifndef CLOVER_TEST_DIFF_HTML_EXAMPLE_H
#define CLOVER_TEST_DIFF_HTML_EXAMPLE_H

#include "../tools/diff_parts.h"
#include "files.h"
#include "random.h"

enum { EXAMPLE_STEPS = 32, EXAMPLE_BLOCK = 16 };

typedef struct Example {
    DiffResult result;
    Bundle bundle;
    BundleCase cases[3];             /* steps, a denoise run, a draft run */
    BundleStep step[EXAMPLE_STEPS];
    char names[EXAMPLE_STEPS][16], path[64];
    TraceResult trace[2];
    char *notes[2], *missing[2];
    uint64_t random;
} Example;

/* ---- stages --------------------------------------------------------------------------------------------------------- */

static inline ProbeResult *example_probe(Example *e, int64_t step, int64_t layer, const char *stage) {
    ProbeResult *r = &e->result.probe[e->result.n_probes++];
    *r = (ProbeResult){ .case_name = e->cases[0].name, .step = e->step[step].name, .step_index = step, .layer = layer, .type = DT_F32, .shape = { 12, 32, 128 }, .dims = 3,
                        .injected = true, .verdict = STAGE_CONFORMS };
    if (layer < 0) snprintf(r->probe, sizeof r->probe, "%s", stage);
    else snprintf(r->probe, sizeof r->probe, "L%02d.%s", (int)layer, stage);
    const double floor = random_magnitude(&e->random, -24, -22), added = floor * random_magnitude(&e->random, -4, 1);
    r->floor_rms = floor;
    r->floor_max = 9 * floor;
    r->budget_rms = 8 * floor;
    r->budget_max = 16 * 9 * floor;
    r->added = (Difference){ 7 * added, 0.7 * added, added, 3 * added, added, 1 - added * added, 3.5, (int64_t)(random_bits(&e->random) % (12 * 32 * 128)), 0.5, 0.5 + 7 * added, 0 };
    r->inherited_rms = added * (1 + (double)(layer < 0 ? 0 : layer));
    r->inherited_max = 6 * r->inherited_rms;
    r->total = r->added;
    r->total.rms += r->inherited_rms;
    r->total.max += r->inherited_max;
    r->passing = 8 * added / r->budget_rms;
    return r;
}

/* times: how many budgets the stage adds. */
static inline void example_fault(ProbeResult *r, StageVerdict verdict, double times, const char *note) {
    r->verdict = verdict;
    r->added.rms = times * r->budget_rms;
    r->added.max = times * r->budget_max;
    r->beyond = 0.375;
    r->passing = 8 * times;
    snprintf(r->note, sizeof r->note, "%s", note);
}

static inline void example_stage(Example *e, int64_t step, int64_t layer, const char *stage) {
    ProbeResult *r = example_probe(e, step, layer, stage);
    const int64_t index = e->result.n_probes - 1;
    if (is_choice(stage)) r->choices = 96;
    if (step == 0 && strcmp(r->probe, "L01.gdn.conv") == 0) example_fault(r, STAGE_REPRESENTATION, 40, "its readers agree with the golden");
    if (strcmp(stage, "gdn.g") == 0) r->verdict = STAGE_BELOW_FLOOR;
    if (step == 1 && strcmp(r->probe, "L02.gdn.mixed") == 0) {
        example_fault(r, STAGE_DIFFERS, 500, "S was rebuilt from the dump's earlier inputs");
        r->budget_rms = 2.5e-6;
        r->budget_max = 5e-5;
        r->added = (Difference){ 0.0125, 1e-3, 1.25e-3, 4e-3, 2e-3, 0.999998765, 52428.8, 12345, 0.123456789, 0.135956789, 0 };
        r->inherited_rms = 3.25e-7;
        r->inherited_max = 1.5e-6;
        e->result.first = index;
    }
    if (step == 1 && layer >= 3 && strcmp(stage, "attn.context") == 0) example_fault(r, STAGE_DIFFERS, 3, "");
    if (step == 1 && layer == 4 && strcmp(stage, "moe.ids") == 0) {
        r->flips = r->near_ties = 2;
        snprintf(r->note, sizeof r->note, "2 near ties; the dump's choice was followed");
    }
    if (step == 1 && strcmp(r->probe, "L05.gdn.state") == 0) {
        example_fault(r, STAGE_WRONG, 1, "4096 elements are not finite");
        r->added.rms = r->added.max = r->total.rms = NAN;
        r->added.actual = INFINITY;
        r->added.not_finite = r->total.not_finite = 4096;
    }
    if (strcmp(stage, "logits") == 0) r->logits = (LogitsFigures){ 3.5e-4 * (double)step, 1e-5, 1 - 0.025 * (double)step, 0.0625, step, 12 };
}

static inline void example_layer(Example *e, int64_t step, int64_t layer, bool preview) {
    static const char *const attention[] = { "attn.q", "attn.gate", "attn.k", "attn.v", "attn.q_norm", "attn.k_norm", "attn.q_rope", "attn.k_rope", "attn.context", "attn.gated", NULL };
    static const char *const gdn[] = { "gdn.qkv", "gdn.z", "gdn.beta", "gdn.g", "gdn.conv", "gdn.q", "gdn.k", "gdn.v", "gdn.state", "gdn.mixed", "gdn.gated", NULL };
    static const char *const rest[] = { "mixer", "mixer_residual", "ffn_norm", "moe.probs", "moe.coreset", "moe.ids", "moe.weights", "moe.routed", "moe.shared", "moe.shared_gate", "moe", "out", NULL };
    example_stage(e, step, layer, "attn_norm");
    for (const char *const *s = (layer + 1) % 4 == 0 ? attention : gdn; *s; s++)
        example_stage(e, step, layer, preview && strcmp(*s, "gdn.state") == 0 ? "gdn.block_weights" : *s);
    for (const char *const *s = rest; *s; s++)
        if (preview || strcmp(*s, "moe.coreset") != 0) example_stage(e, step, layer, *s);
}

/* ---- decisions ------------------------------------------------------------------------------------------------------ */

static inline void put_printed(Bytes *b, const char *format, int64_t x, double y) {
    char text[128];
    snprintf(text, sizeof text, format, (long long)x, y);
    put_text(b, text);
}

/* Each pass fixes what is above 0.9, at least one row; other: the first row of block 1 is decided otherwise. */
static inline void put_example_block(Bytes *b, uint64_t *random, int64_t block, bool other) {
    bool decided[EXAMPLE_BLOCK] = { false };
    int64_t id[EXAMPLE_BLOCK];
    for (int row = 0; row < EXAMPLE_BLOCK; row++) id[row] = (int64_t)(random_bits(random) % 248000) + (other && block == 1 && row == 0);
    for (int pass = 0, left = EXAMPLE_BLOCK; left > 0; pass++) {
        double p[EXAMPLE_BLOCK];
        int best = -1;
        put_printed(b, "{\"step\":\"pass\",\"pos\":%lld,\"passno\":%.0f,\"candidates\":[", 12 + block * EXAMPLE_BLOCK, pass);
        for (int row = 0, first = 1; row < EXAMPLE_BLOCK; row++) {
            if (decided[row]) continue;
            p[row] = random_between(random, 0, 1) > 0.6 ? random_between(random, 0.9, 1) : random_between(random, 0, 0.9);
            if (best < 0 || p[row] > p[best]) best = row;
            put_printed(b, first ? "[%lld," : ",[%lld,", row, 0);
            put_printed(b, "%lld,%.4f]", id[row], p[row]);
            first = 0;
        }
        put_text(b, "],\"fixed\":[");
        for (int row = 0, first = 1; row < EXAMPLE_BLOCK; row++) {
            if (decided[row] || (row != best && p[row] <= 0.95)) continue;
            decided[row] = true;
            put_printed(b, first ? "%lld" : ",%lld", row, 0);
            first = 0;
            left--;
        }
        put_text(b, "]},");
    }
    put_printed(b, "{\"step\":\"block\",\"pos\":%lld,\"ids\":[", 12 + block * EXAMPLE_BLOCK, 0);
    for (int row = 0; row < EXAMPLE_BLOCK; row++) put_printed(b, row ? ",%lld" : "%lld", id[row], 0);
    put_printed(b, "],\"emitted\":%lld}", block == 1 ? 11 : EXAMPLE_BLOCK, 0);
}

static inline void write_example_traces(const char *folder, bool other) {
    static const char *const draft =
        "{\"mode\":\"draft\",\"tokens\":[31,40,41,42,77,78,90],\"text\":\"seven <tokens>\\nover two lines\",\"steps\":[{\"step\":\"first\",\"id\":31},"
        "{\"step\":\"round\",\"pos\":12,\"draft\":[31,40,41,42,55,56,57,58],\"judged\":[[40,0.98,0.1,true],[41,0.91,0.4,true],[42,0.62,1.1,true],[55,0.0012,2.3,false]],\"accepted\":3,\"bonus\":77},"
        "{\"step\":\"round\",\"pos\":16,\"draft\":[77,78],\"judged\":[[78,0.999,0.01,true]],\"accepted\":1,\"bonus\":%s}]}";
    char path[256], text[2048];
    Bytes b = { 0 };
    uint64_t random = 7;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i ? "draft" : "denoise");
        mkdir(path, 0777);
    }
    put_text(&b, "{\"mode\":\"denoise\",\"tokens\":[101,102,103],\"text\":\"A block of text\",\"steps\":[");
    for (int64_t block = 0; block < 3; block++) {
        if (block) put_text(&b, ",");
        put_example_block(&b, &random, block, other);
    }
    put_text(&b, "]}");
    snprintf(path, sizeof path, "%s/denoise/trace.json", folder);
    write_file(path, b.data, b.n);
    free_bytes(&b);
    snprintf(path, sizeof path, "%s/draft/trace.json", folder);
    snprintf(text, sizeof text, draft, other ? "91" : "90");
    write_file(path, text, strlen(text));
}

/* ---- the whole ------------------------------------------------------------------------------------------------------ */

/* folder: where the golden's traces are written, the dump's in folder/dump; NULL: no traces. */
static inline void example_new(Example *e, int64_t layers, int64_t steps, const char *folder) {
    static char note[] = "moe.ids of one/commit: 2 near ties were followed", other[] = "KV of full attention comes from the dump's k_rope and v",
                gap[] = "sentence/step-01 L06.gdn.z: not in the dump", gaps[] = "long/preview: the dump has no such step";
    *e = (Example){ .random = 1, .notes = { note, other }, .missing = { gap, gaps } };
    snprintf(e->path, sizeof e->path, "%s", folder ? folder : "build/tmp/golden");
    for (int64_t i = 0; i < steps; i++) {
        snprintf(e->names[i], sizeof e->names[i], "step-%02d", (int)i);
        e->step[i] = (BundleStep){ .name = e->names[i], .kind = i % 3 == 2 ? STEP_PREVIEW : STEP_COMMIT, .n = 12, .recorded = true };
    }
    e->cases[0] = (BundleCase){ .name = "sentence", .folder = "sentence", .step = e->step, .n_steps = steps };
    e->cases[1] = (BundleCase){ .name = "denoise", .folder = "denoise", .has_trace = folder != NULL };
    e->cases[2] = (BundleCase){ .name = "draft", .folder = "draft", .has_trace = folder != NULL };
    e->bundle = (Bundle){ .path = e->path, .model_path = "models/clover-tiny.gguf", .numerics = "exact", .cases = e->cases, .n_cases = 3 };
    e->trace[0] = (TraceResult){ .case_name = "denoise", .compared = true, .differs = true, .explained = true, .text = "block 1, pass 0: row 0 became another token; its two best logits are within the profile's error" };
    e->trace[1] = (TraceResult){ .case_name = "draft", .compared = true, .differs = true, .text = "round 1: bonus 91, golden 90" };
    e->result = (DiffResult){ .verdict = DIFF_DIFFERS, .profile = "f32", .margin_rms = 8, .margin_max = 16, .first = -1, .trace = e->trace, .n_traces = folder ? 2 : 0,
                              .feature = { FEATURE_DIFFERS, FEATURE_CONFORMS, FEATURE_NOT_SHOWN, FEATURE_CONFORMS, FEATURE_DIFFERS }, .note = e->notes, .n_notes = 2,
                              .not_compared = e->missing, .n_not_compared = 2 };
    e->result.probe = calloc((size_t)(steps * (layers * 32 + 8)), sizeof *e->result.probe);
    ck_assert_ptr_nonnull(e->result.probe);
    for (int64_t i = 0; i < steps; i++) {
        example_stage(e, i, -1, "embed");
        for (int64_t layer = 0; layer < layers; layer++) example_layer(e, i, layer, e->step[i].kind == STEP_PREVIEW);
        example_stage(e, i, -1, "final_norm");
        example_stage(e, i, -1, "logits");
    }
    if (!folder) return;
    char dump[256];
    snprintf(dump, sizeof dump, "%s/dump", folder);
    mkdir(dump, 0777);
    write_example_traces(folder, false);
    write_example_traces(dump, true);
}

static inline void example_free(Example *e) { free(e->result.probe); }

#endif
