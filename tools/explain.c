/* explain.c - clover explain: one row's way through one layer, stage by stage: clause, formula, shape, numbers. [PRB] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../ref/error.h"
#include "bundle.h"
#include "diff_parts.h"
#include "model_args.h"
#include "output.h"
#include "tools.h"

/* What a stage does, in a line each. {p}: where a preview does something else, what. */
typedef struct Lesson { const char *stage, *formula, *preview_formula, *remark; } Lesson;
static const Lesson lessons[] = {
    { "embed", "h = embedding row of the id", NULL, "no scale" },
    { "attn_norm", "x = h / sqrt(mean(h^2) + eps) * f,  f = 1 + w", NULL, "the residual stream h goes on unnormalised; only what the mixer reads is normalised" },
    { "attn.q", "q = the first `width` rows of each head of q_proj, times x", NULL, "q_proj holds, head by head, query rows and then gate rows" },
    { "attn.gate", "gate = the other `width` rows of each head of q_proj, times x", NULL, "used after attention, through a sigmoid" },
    { "attn.k", "k = k_proj x", NULL, "fewer KV heads than query heads: several queries share one" },
    { "attn.v", "v = v_proj x", NULL, "not normalised, not rotated" },
    { "attn.q_norm", "per head: q / sqrt(mean(q^2) + eps) * f", NULL, "over the head's own width" },
    { "attn.k_norm", "per head: k / sqrt(mean(k^2) + eps) * f", NULL, "" },
    { "attn.q_rope", "pairs (i, i+R/2) turned by position * base^(-2i/R)", NULL, "dims from R on pass unchanged" },
    { "attn.k_rope", "the same for k; this is what the KV cache keeps", NULL, "" },
    { "attn.context", "softmax(q.k / sqrt(width)) over positions up to the row's own, times v", "softmax(q.k / sqrt(width)) over the whole prefix AND the whole block, times v", "query head h reads KV head h div (H/Hkv)" },
    { "attn.gated", "context * sigmoid(gate)", NULL, "element by element, before the output projection" },
    { "gdn.qkv", "u = in_proj_qkv x: q | k | v channels", NULL, "the last taps-1 raw rows are what the ring keeps" },
    { "gdn.z", "z = in_proj_z x", NULL, "the output's gate" },
    { "gdn.beta", "beta = sigmoid(b), one per value head", NULL, "how strongly the row corrects the notebook S" },
    { "gdn.g", "g = -exp(A_log) * softplus(a + dt_bias)", NULL, "e^g is what S keeps of its past: always below 1" },
    { "gdn.conv", "SiLU(sum of taps over the row and the rows before it)", "SiLU(sum of taps over the row and the rows before it + right taps over the rows after it, inside the block)", "a channel sees only itself, over time" },
    { "gdn.q", "q / sqrt(sum(q^2) + 1e-6) per head", NULL, "a unit vector: the sum, not the mean" },
    { "gdn.k", "k / sqrt(sum(k^2) + 1e-6) per head", NULL, "" },
    { "gdn.v", "the conv's v channels as they are", NULL, "" },
    { "gdn.block_weights", "", "softmax over the block's rows (logit_scale * q.k) and one history slot (bias + c ln(n/32))", "the last entry is the history's share" },
    { "gdn.state", "S <- e^g S;  d = beta (v - S'k);  S <- S + k d'", NULL, "the notebook after the step: what it said under k is corrected towards v" },
    { "gdn.mixed", "o = S'q / sqrt(dk), read after the write", "o = sum of weights * v of the block + history share * e^g * S'q / sqrt(dk)", "value head h uses key head h div (Hv/Hk)" },
    { "gdn.gated", "o / sqrt(mean(o^2) + eps) * norm * SiLU(z)", NULL, "the head norm's weight is a plain factor, not 1 + w" },
    { "mixer", "output projection", NULL, "" },
    { "mixer_residual", "h = h + mixer", NULL, "" },
    { "ffn_norm", "x = h / sqrt(mean(h^2) + eps) * f", NULL, "called post_attention_norm in the files; it stands before the experts" },
    { "moe.probs", "softmax over all experts of router x", NULL, "" },
    { "moe.coreset", "", "1: the expert is kept for this block, 0: not", "every row of the block votes" },
    { "moe.ids", "the k most probable experts, equal ones by lower id", "the k most probable of the kept experts, equal ones by lower id", "" },
    { "moe.weights", "their probabilities, divided by their sum", NULL, "they sum to 1" },
    { "moe.routed", "sum of weight * down(SiLU(gate x) * (up x))", NULL, "the weight comes after down" },
    { "moe.shared", "the shared expert, of the same form", NULL, "" },
    { "moe.shared_gate", "sigmoid(shared_gate x)", NULL, "one number a row" },
    { "moe", "routed + shared_gate * shared", NULL, "" },
    { "out", "h = h + moe", NULL, "what the next layer reads" },
    { "final_norm", "x = h / sqrt(mean(h^2) + eps) * f", NULL, "after the last layer" },
    { "logits", "head x", NULL, "causal: what comes after the row; preview: what stands at the row" },
};

typedef struct Walk {
    const CloverConfig *c;
    int64_t layer, row, head;        /* row: within the step; head: of the queries, or of the values in GDN */
    bool preview;
    int64_t numbers;                 /* how many to print */
} Walk;

static const Lesson *lesson_of(const char *stage) {
    for (size_t i = 0; i < sizeof lessons / sizeof *lessons; i++)
        if (strcmp(lessons[i].stage, stage) == 0) return &lessons[i];
    return NULL;
}

static bool has_rows(const char *stage) { return strcmp(stage, "gdn.state") != 0 && strcmp(stage, "moe.coreset") != 0; }

/* The part of the stage that is the row's (and head's), as numbers and as text. */
static void print_part(const Walk *w, const char *stage, const double *data, const int64_t *shape, int dims) {
    int64_t n = 1;
    for (int i = 1; i < dims; i++) n *= shape[i];
    const double *part = data;
    char where[64] = "";
    if (has_rows(stage)) {
        part = data + w->row * n;
        snprintf(where, sizeof where, "row %lld", (long long)w->row);
    } else if (dims == 1) n = shape[0];
    if (dims == 3) {   /* [T, heads, width], or a state [heads, dk, dv] */
        const int64_t heads = has_rows(stage) ? shape[1] : shape[0], size = has_rows(stage) ? shape[2] : shape[1] * shape[2];
        /* Fewer heads than the layer's: the KV or key head that this head uses. [ATT-4] [GDN-5] */
        const int64_t of_layer = w->c->full_attention[w->layer] ? w->c->heads : w->c->value_heads, head = w->head / (of_layer / heads);
        part += head * size;
        n = size;
        const size_t used = strlen(where);
        snprintf(where + used, sizeof where - used, "%shead %lld of %lld", used ? ", " : "", (long long)head, (long long)heads);
    }
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += part[i] * part[i];
    printf("    %s%s", where, *where ? ":" : "   ");
    for (int64_t i = 0; i < n && i < w->numbers; i++) printf(" %.6g", part[i]);
    if (n > w->numbers) printf(" ... %.6g", part[n - 1]);
    if (n > 1) printf("   (%lld numbers, rms %.5g)", (long long)n, sqrt(squares / (double)n));
    putchar('\n');
}

static void walk_stage(void *user, const char *name, double *data, const int64_t *shape, int dims) {
    const Walk *w = user;
    const char *stage = stage_of(name);
    const bool in_layer = stage != name;
    if (in_layer && strtoll(name + 1, NULL, 10) != w->layer) return;
    const Lesson *l = lesson_of(stage);
    char shape_text[64];
    size_t used = 0;
    for (int i = 0; i < dims && used < sizeof shape_text; i++) used += (size_t)snprintf(shape_text + used, sizeof shape_text - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
    printf("%-22s [%s]  [%s]\n", name, stage_clause(stage, w->preview), shape_text);
    if (l) {
        printf("    %s\n", w->preview && l->preview_formula ? l->preview_formula : l->formula);
        if (*l->remark) printf("    - %s\n", l->remark);
    }
    print_part(w, stage, data, shape, dims);
}

static CloverStatus walk(const ModelArgs *m, Walk *w, const ArgIds *commit, const ArgIds *preview, CloverError *err) {
    CloverModel *model = NULL;
    CloverSession *s = NULL;
    CloverStatus status = model_args_open(m, &model, err);
    if (status == CLOVER_OK) status = model_args_session(m, model, commit->n + 1, &s, err);
    const CloverConfig *c = model ? clover_model_config(model) : NULL;
    const int64_t rows = preview->ids ? preview->n : commit->n;
    w->preview = preview->ids != NULL;
    if (status == CLOVER_OK && w->layer >= c->layers)
        status = error_set(err, CLOVER_USAGE, "--layer %lld: the model has layers 0 to %lld", (long long)w->layer, (long long)c->layers - 1);
    if (status == CLOVER_OK && w->row >= rows) status = error_set(err, CLOVER_USAGE, "--row %lld: the step has rows 0 to %lld", (long long)w->row, (long long)rows - 1);
    w->c = c;
    const int64_t heads = c ? (c->full_attention[w->layer < c->layers ? w->layer : 0] ? c->heads : c->value_heads) : 1;
    if (status == CLOVER_OK && w->head >= heads) status = error_set(err, CLOVER_USAGE, "--head %lld: the layer has heads 0 to %lld", (long long)w->head, (long long)heads - 1);
    double *logits = NULL;
    if (status == CLOVER_OK && !(logits = malloc((size_t)(rows * c->vocab) * sizeof *logits))) status = error_memory(err, "logits", (size_t)(rows * c->vocab) * sizeof *logits);
    if (status == CLOVER_OK) {
        if (w->row < 0) w->row = rows - 1;
        printf("%s: layer %lld is %s; row %lld of a %s of %lld rows%s\n\n", m->path, (long long)w->layer, c->full_attention[w->layer] ? "full attention" : "Gated DeltaNet", (long long)w->row,
               w->preview ? "preview" : "commit", (long long)rows, w->preview ? ", over the rows committed before" : "");
    }
    if (status == CLOVER_OK && w->preview && commit->n > 0) status = clover_commit(s, commit->ids, commit->n, NULL, 0, err);
    if (status == CLOVER_OK) {
        clover_session_watch(s, walk_stage, w);
        status = w->preview ? clover_preview(s, preview->ids, rows, logits, err) : clover_commit(s, commit->ids, rows, logits, rows, err);
    }
    free(logits);
    clover_session_free(s);
    clover_model_close(model);
    return status;
}

/* A bundle's step: its ids, after all that its case committed before. */
static CloverStatus from_bundle(ModelArgs *m, const char *case_name, const char *step_name, ArgIds *commit, ArgIds *preview, char **model_path, CloverError *err) {
    Bundle b;
    CloverStatus status = bundle_open(m->path, &b, err);
    if (status != CLOVER_OK) return status;
    const BundleCase *c = NULL;
    for (int64_t i = 0; i < b.n_cases && !c; i++)
        if (!case_name || strcmp(b.cases[i].name, case_name) == 0) c = &b.cases[i];
    if (!c) status = error_set(err, CLOVER_USAGE, "%s: no case \"%s\"", m->path, case_name ? case_name : "");
    bool found = false;
    for (int64_t i = 0; c && i < c->n_steps && !found && status == CLOVER_OK; i++) {
        const BundleStep *st = &c->step[i];
        if (st->kind == STEP_SNAPSHOT || st->kind == STEP_RESTORE) {
            status = error_set(err, CLOVER_USAGE, "%s: case %s rewinds its state before that step; give the model and --ids instead", m->path, c->name);
            break;
        }
        found = (!step_name && st->recorded) || (step_name && strcmp(st->name, step_name) == 0);
        if (st->kind == STEP_PREVIEW && !found) continue;
        ArgIds *to = st->kind == STEP_PREVIEW ? preview : commit;
        int32_t *more = realloc(to->ids, (size_t)(to->n + st->n) * sizeof *more);
        if (!more) {
            status = error_memory(err, "a step's ids", (size_t)(to->n + st->n) * sizeof *more);
            break;
        }
        memcpy(more + to->n, st->ids, (size_t)st->n * sizeof *more);
        to->ids = more;
        to->n += st->n;
    }
    if (status == CLOVER_OK && !found) status = error_set(err, CLOVER_USAGE, "%s: case %s has no step \"%s\"", m->path, c->name, step_name ? step_name : "");
    if (status == CLOVER_OK && !(*model_path = text_format(err, "%s", b.model_path))) status = err->status;
    bundle_close(&b);
    return status;
}

int cmd_explain(int argc, char **argv) {
    ModelArgs m = model_args_defaults();
    ArgIds commit = { 0 }, preview = { 0 };
    Walk w = { .row = -1, .numbers = 6 };
    const char *case_name = NULL, *step_name = NULL;
    const ArgOption options[] = {
        MODEL_FILE_OPTIONS(m),
        { .kind = ARG_HEADING, .help = "The step: ids, or a step of a bundle given in place of MODEL" },
        { .name = "ids", .kind = ARG_IDS, .target = &commit, .value = "LIST", .help = "ids committed from an empty state" },
        { .name = "preview", .kind = ARG_IDS, .target = &preview, .value = "LIST", .help = "then a block of ids to preview: it is what is shown" },
        { .name = "case", .kind = ARG_STRING, .target = &case_name, .value = "NAME", .help = "of a bundle (its first)" },
        { .name = "step", .kind = ARG_STRING, .target = &step_name, .value = "NAME", .help = "of the case (its first)" },
        { .kind = ARG_HEADING, .help = "What is shown" },
        { .name = "layer", .kind = ARG_INT, .target = &w.layer, .value = "N", .min = 0, .max = CLOVER_MAX_LAYERS, .help = "(0)" },
        { .name = "row", .kind = ARG_INT, .target = &w.row, .value = "N", .min = 0, .max = 1e9, .help = "of the step (its last)" },
        { .name = "head", .kind = ARG_INT, .target = &w.head, .value = "N", .min = 0, .max = 1e6, .help = "where a stage has heads (0)" },
        { .name = "numbers", .kind = ARG_INT, .target = &w.numbers, .value = "N", .min = 1, .max = 1e6, .help = "how many numbers of each stage (6)" },
        MODEL_RUN_OPTIONS(m),
    };
    const ArgCommand command = { .name = "explain", .usage = "MODEL --ids LIST [--preview LIST] | BUNDLE [--case NAME] [--step NAME]",
        .summary = "Walks one row through one layer: each stage with its clause of SPEC.md, its formula, its shape and its numbers.",
        .example = "clover explain tiny.gguf --ids 72,101,108 --preview 261,261,261,261 --layer 0 --row 1", .options = options, .n = sizeof options / sizeof *options };
    CloverError err;
    const int code = args_begin(&command, argc, argv, &err);
    if (code != ARGS_GO) return code;

    CloverStatus status = CLOVER_OK;
    char *model_path = NULL, *manifest = text_format(&err, "%s/manifest.json", m.path);
    struct stat st;
    if (!manifest) status = err.status;
    else if (stat(manifest, &st) == 0) {
        if (commit.ids || preview.ids) status = error_set(&err, CLOVER_USAGE, "%s is a bundle: its steps have their ids; give --case and --step", m.path);
        else status = from_bundle(&m, case_name, step_name, &commit, &preview, &model_path, &err);
        if (model_path) m.path = model_path;
    } else if (case_name || step_name) status = error_set(&err, CLOVER_USAGE, "--case and --step go with a bundle; %s is none", m.path);
    if (status == CLOVER_OK && !commit.ids && !preview.ids) status = error_set(&err, CLOVER_USAGE, "give the ids of a step: --ids LIST");
    if (status == CLOVER_OK) status = walk(&m, &w, &commit, &preview, &err);
    free(manifest);
    free(model_path);
    args_free(&command);
    return status == CLOVER_OK ? 0 : command_failed("explain", &err);
}
