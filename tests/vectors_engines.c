/* vectors_engines.c - DIR/engines/KIND: where does clover diff say that each leaves the reference? [DIF-6] */
#include "vectors_engines.h"
#include <glob.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../ref/error.h"
#include "../ref/files/quant.h"
#include "../tools/diff_parts.h"
#include "../tools/hypotheses/hypothesis.h"
#include "../tools/output.h"
#include "../tools/safetensors_write.h"
#include "../tools/sha256.h"
#include "expected.h"

/* A folder of this run's own. */
static char work[64];

/* The kinds that are known, and where their fault enters; NULL: nowhere. */
static const struct { const char *kind, *step, *probe; } kinds[] = {
    { "attention_gate_missing", "causal", "L03.attn.gated" }, { "bf16", "causal", "L00.mixer_residual" }, { "conv_taps_reversed", "causal", "L00.gdn.conv" },
    { "final_norm_plain", "causal", "final_norm" }, { "gdn_heads_tiled", "causal", "L00.gdn.state" }, { "gdn_norm_shifted", "causal", "L00.gdn.gated" },
    { "gdn_read_before_write", "causal", "L00.gdn.mixed" }, { "l2_mean", "causal", "L00.gdn.q" }, { "preview_attention_causal", "preview_8rows", "L03.attn.context" },
    { "preview_history_c_ignored", "preview_8rows", "L00.gdn.block_weights" }, { "preview_history_not_decayed", "preview_8rows", "L00.gdn.mixed" },
    { "preview_right_conv_missing", "preview_8rows", "L00.gdn.conv" }, { "right", NULL, NULL }, { "right_float32", NULL, NULL }, { "rope_position_plus_1", NULL, NULL },
    { "rope_adjacent_pairs", "causal", "L03.attn.q_rope" }, { "router_not_renormalised", "causal", "L00.moe.weights" }, { "shared_gate_missing", "causal", "L00.moe" },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const struct { const char *name; StepKind kind; } steps[] = { { "causal", STEP_COMMIT }, { "preview_8rows", STEP_PREVIEW }, { "causal_continued", STEP_COMMIT } };
enum { STEPS = sizeof steps / sizeof *steps };

static const char *in_work(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", work, name);
    return path;
}

/* ---- the golden: the expected steps, and a manifest over them ------------------------------------------------------- */

static json_t *ids_of(const char *path, CloverError *err) {
    Safetensors *s;
    if (safetensors_open(path, &s, err) != CLOVER_OK) return NULL;
    const Tensor *t = safetensors_tensor(s, "ids");
    json_t *ids = json_array();
    for (int64_t i = 0; t && t->type == DT_I64 && i < t->elements; i++) {
        int64_t id;
        memcpy(&id, t->data + 8 * i, 8);
        json_array_append_new(ids, json_integer(id));
    }
    safetensors_close(s);
    return ids;
}

static CloverStatus copy_file(const char *from, const char *to, CloverError *err) {
    char *bytes;
    size_t n;
    FILE *f = fopen(from, "rb");
    if (!f) return error_set(err, CLOVER_SYSTEM, "%s: cannot be read", from);
    fseek(f, 0, SEEK_END);
    n = (size_t)ftell(f);
    rewind(f);
    bytes = malloc(n + 1);
    const bool ok = bytes && fread(bytes, 1, n, f) == n;
    fclose(f);
    CloverStatus status = ok ? output_file(to, bytes, n, true, err) : error_set(err, CLOVER_SYSTEM, "%s: cannot be read", from);
    free(bytes);
    return status;
}

static CloverStatus make_golden(const char *dir, const char *model_path, CloverError *err) {
    char from[640], to[128], hex[SHA256_HEX], identity[65];
    CloverModel *model = NULL;
    bool made;
    CloverStatus status = clover_model_open(model_path, NULL, &model, err);
    const int64_t vocab = model ? clover_model_config(model)->vocab : 0;
    if (status == CLOVER_OK) status = model_identity(model, false, identity, err);
    clover_model_close(model);
    if (status == CLOVER_OK) status = output_folder(in_work("golden"), true, &made, err);
    json_t *list = json_array(), *files = json_object();
    for (int i = 0; i < STEPS && status == CLOVER_OK; i++) {
        snprintf(from, sizeof from, "%s/tiny-a/expected-hf/%s.safetensors", dir, steps[i].name);
        snprintf(to, sizeof to, "%s/golden/%s.safetensors", work, steps[i].name);
        status = copy_file(from, to, err);
        if (status == CLOVER_OK) status = sha256_file(to, hex, err);
        json_t *ids = status == CLOVER_OK ? ids_of(to, err) : NULL;
        if (!ids) break;
        json_array_append_new(list, json_pack("{s:s, s:o}", "name", steps[i].name, steps[i].kind == STEP_COMMIT ? "commit" : "preview", ids));
        json_object_set_new(files, strrchr(to, '/') + 1, json_string(hex));
    }
    json_t *manifest = json_pack("{s:i, s:s, s:{s:s, s:s, s:s, s:{s:I}}, s:s, s:[{s:s, s:s, s:o}], s:o}", "schema", (int)BUNDLE_SCHEMA, "spec", "1", "model", "path", model_path, "identity",
                                 identity, "identity_of", "start", "config", "vocab", (json_int_t)vocab, "numerics", "exact", "cases", "name", "engines", "folder", "", "steps", list,
                                 "files", files);
    if (err->status == CLOVER_OK && (!manifest || json_dump_file(manifest, in_work("golden/manifest.json"), JSON_INDENT(1)) != 0))
        status = error_set(err, CLOVER_SYSTEM, "cannot write the manifest");
    json_decref(manifest);
    return err->status == CLOVER_OK ? status : err->status;
}

/* ---- a dump, thinned or coarser --------------------------------------------------------------------------------------- */

typedef enum Variant { IN_FULL, LAYERS_ONLY, IN_F16, VARIANTS } Variant;
static const char *const variant_names[VARIANTS] = { "in full", "layer outputs only", "in float16" };

static CloverStatus thin_step(const char *from, const char *to, Variant v, CloverError *err) {
    Safetensors *s;
    if (safetensors_open(from, &s, err) != CLOVER_OK) return err->status;
    const TensorList list = safetensors_tensors(s);
    NamedArray *arrays = calloc((size_t)list.n + 1, sizeof *arrays);
    void **owned = calloc((size_t)list.n + 1, sizeof *owned);
    int64_t n = 0;
    for (int64_t i = 0; arrays && owned && i < list.n; i++) {
        const Tensor *t = &list.tensor[i];
        const char *stage = stage_of(t->name);
        if (v == LAYERS_ONLY && strcmp(stage, "out") != 0 && strcmp(stage, "logits") != 0 && strcmp(stage, "ids") != 0) continue;
        NamedArray *a = &arrays[n];
        *a = (NamedArray){ .name = t->name, .type = t->type, .dims = t->dims, .data = t->data };
        memcpy(a->shape, t->shape, sizeof a->shape);
        if (v == IN_F16 && t->type == DT_F32) {
            uint16_t *half = owned[n] = malloc((size_t)t->elements * sizeof *half + 1);
            for (int64_t e = 0; half && e < t->elements; e++) {
                float x;
                memcpy(&x, t->data + 4 * e, 4);
                half[e] = half_from_float(x);
            }
            a->type = DT_F16;
            a->data = half;
        }
        n++;
    }
    CloverStatus status = arrays && owned ? safetensors_save(to, arrays, n, NULL, err) : error_memory(err, "a dump", (size_t)list.n * sizeof *arrays);
    for (int64_t i = 0; owned && i < n; i++) free(owned[i]);
    free(owned);
    free(arrays);
    safetensors_close(s);
    return status;
}

static CloverStatus make_dump(const char *engine, Variant v, CloverError *err) {
    char from[640], to[128];
    bool made;
    CloverStatus status = output_folder(in_work("dump"), true, &made, err);
    for (int i = 0; i < STEPS && status == CLOVER_OK; i++) {
        snprintf(from, sizeof from, "%s/%s.safetensors", engine, steps[i].name);
        snprintf(to, sizeof to, "%s/dump/%s.safetensors", work, steps[i].name);
        status = thin_step(from, to, v, err);
    }
    return status;
}

/* ---- the hypothesis of that name ---------------------------------------------------------------------------------------- */

/* A session with it in force gives every number of the dump, to the float32 that it is stored in. [HYP] */
static void as_the_hypothesis(const char *model_path, const char *folder, const Hypothesis *h, EngineTold *told, void *user) {
    char path[700], detail[512];
    CloverError err;
    CloverModel *model = NULL;
    CloverSession *s = NULL;
    InForce f = { 0 };
    int64_t values = 0, beyond = 0;
    CloverStatus status = clover_model_open(model_path, NULL, &model, &err);
    if (status == CLOVER_OK) status = clover_session_new(model, NULL, &s, &err);
    if (status == CLOVER_OK) status = in_force_begin(&f, &h, 1, s, &err);
    detail[0] = '\0';
    for (int i = 0; i < STEPS && status == CLOVER_OK; i++) {
        ExpectedResult r;
        snprintf(path, sizeof path, "%s/%s.safetensors", folder, steps[i].name);
        status = expected_step(s, clover_model_config(model)->vocab, steps[i].kind == STEP_COMMIT ? EXPECTED_COMMIT : EXPECTED_PREVIEW, path, 1.2e-7, 1e-9, &r, &err);
        if (status != CLOVER_OK) break;
        values += r.values;
        if (r.beyond && !beyond) snprintf(detail, sizeof detail, "%s %.400s", steps[i].name, r.problem);
        beyond += r.beyond;
    }
    if (status != CLOVER_OK) snprintf(detail, sizeof detail, "%.400s", err.text);
    else if (!beyond) snprintf(detail, sizeof detail, "%lld values", (long long)values);
    snprintf(path, sizeof path, "%s is the hypothesis", folder);
    told(user, status == CLOVER_OK && !beyond, path, detail);
    clover_session_free(s);
    in_force_end(&f);
    clover_model_close(model);
}

/* ---- one diff ----------------------------------------------------------------------------------------------------------- */

/* Says in detail what came out; true: the verdict is that, the first divergence there (NULL: none), and the mistake named (NULL: not asked). */
static bool diff_says(CloverNumerics profile, const char *step, const char *probe, const char *named, char *detail, size_t room) {
    CloverError err;
    Bundle bundle = { 0 };
    DiffResult r = { .first = -1 };
    char golden[128], dump[128];
    snprintf(golden, sizeof golden, "%s/golden", work);
    snprintf(dump, sizeof dump, "%s/dump", work);
    const DiffOptions o = { .golden = golden, .dump = dump, .profile = profile, .margin_rms = DIFF_MARGIN_RMS, .margin_max = DIFF_MARGIN_MAX };
    CloverStatus status = bundle_open(o.golden, &bundle, &err);
    if (status == CLOVER_OK) status = bundle_verify(&bundle, &err);
    if (status == CLOVER_OK) status = diff_run(&o, &bundle, &r, &err);
    bool ok = status == CLOVER_OK;
    const ProbeResult *first = ok && r.first >= 0 ? &r.probe[r.first] : NULL;
    if (!ok) snprintf(detail, room, "%.400s", err.text);
    else if (first) snprintf(detail, room, "differs at %s %s, added %.2g of %.2g", first->step, first->probe, first->added.rms, first->budget_rms);
    else snprintf(detail, room, "%s, %lld arrays", verdict_name(r.verdict), (long long)r.n_probes);
    const Diagnosis *g = r.n_diagnoses ? r.diagnosis : NULL;
    if (ok && g) {
        const size_t used = strlen(detail);
        snprintf(detail + used, room - used, "; %s, residual %.2g, floor %.2g", g->hypothesis, g->residual, g->floor);
    }
    const bool right_name = !named || (probe ? g && strcmp(g->hypothesis, named) == 0 && g->rank == DIAGNOSIS_CAUSE && (r.n_diagnoses == 1 || g[1].rank != DIAGNOSIS_ALIKE) : !g);
    if (ok) ok = right_name && (probe ? first && strcmp(first->step, step) == 0 && strcmp(first->probe, probe) == 0 : r.verdict == DIFF_CONFORMS);
    diff_free(&r);
    bundle_close(&bundle);
    return ok;
}

static void one_engine(const char *model_path, const char *folder, EngineTold *told, void *user) {
    const char *kind = strrchr(folder, '/') + 1;
    char what[700], detail[512];
    CloverError err;
    int k = 0;
    while (k < KINDS && strcmp(kinds[k].kind, kind) != 0) k++;
    const bool rounds = strcmp(kind, "bf16") == 0;
    const Hypothesis *h = hypothesis_named(kind);
    if (h && (h->kind == HYPOTHESIS_STAGE || h->kind == HYPOTHESIS_PARAMETER)) as_the_hypothesis(model_path, folder, h, told, user);
    for (Variant v = 0; v < VARIANTS; v++) {
        char out[32] = "";
        const char *probe = k < KINDS ? kinds[k].probe : NULL;
        error_clear(&err);
        if (make_dump(folder, v, &err) != CLOVER_OK) {
            told(user, false, folder, err.text);
            return;
        }
        if (v == LAYERS_ONLY && probe) {     /* the layer's output; of what follows the layers, the logits */
            if (*probe == 'L') snprintf(out, sizeof out, "%.3s.out", probe);
            else snprintf(out, sizeof out, "logits");
            probe = out;
        }
        for (int wide = 0; wide < (rounds ? 2 : 1); wide++) {
            if (rounds && !wide && v == IN_F16) continue;    /* what bf16 rounds is near what float16 does: neither verdict is due */
            snprintf(what, sizeof what, "%s %s%s", folder, variant_names[v], wide ? ", profile bf16" : "");
            bool ok = diff_says(wide ? CLOVER_BF16 : CLOVER_F32, k < KINDS ? kinds[k].step : NULL, wide ? NULL : probe, v == IN_F16 ? NULL : rounds ? "rounding: bf16 residual" : kind, detail, sizeof detail);
            told(user, ok || k == KINDS, what, detail);      /* of a kind that is not known, any verdict is news */
        }
    }
}

static void clear_work(void) {
    static const char *const folders[] = { "golden", "dump" };
    char path[192];
    for (int f = 0; f < 2; f++) {
        for (int i = 0; i < STEPS; i++) {
            snprintf(path, sizeof path, "%s/%s/%s.safetensors", work, folders[f], steps[i].name);
            unlink(path);
        }
        if (f == 0) unlink(in_work("golden/manifest.json"));
        rmdir(in_work(folders[f]));
    }
    rmdir(work);
}

void vectors_engines(const char *dir, EngineTold *told, void *user) {
    char path[600];
    CloverError err;
    glob_t g = { 0 };
    bool made;
    error_clear(&err);
    snprintf(work, sizeof work, "build/tmp/vectors-engines-%ld", (long)getpid());
    snprintf(path, sizeof path, "%s/tiny-a/hf", dir);
    CloverStatus status = output_folder("build", true, &made, &err);
    if (status == CLOVER_OK) status = output_folder("build/tmp", true, &made, &err);
    if (status == CLOVER_OK) status = output_folder(work, true, &made, &err);
    if (status == CLOVER_OK) status = make_golden(dir, path, &err);
    if (status != CLOVER_OK) {
        told(user, false, "engines", err.text);
        return;
    }
    char engines[600];
    snprintf(engines, sizeof engines, "%s/engines/*", dir);
    if (glob(engines, 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc; i++) one_engine(path, g.gl_pathv[i], told, user);
    globfree(&g);
    clear_work();
}
