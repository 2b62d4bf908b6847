/* lint_report.c - findings: their catalogue, how they are collected, and how they are told. [LNT-1] */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "lint.h"

typedef enum Mend { FIX, FIX_SELF, FIX_LIKE, CONVERT, COPY_AGAIN, GIVE_MASK, NO_MEND } Mend;

/* What each id means, in words, and what mends it. */
static const struct { const char *id, *title; Mend mend; } catalogue[LINT_IDS] = {
    [KEY_MISSING]          = { "key-missing", "a key that a loader needs is not there", FIX },
    [KEY_CONTRADICTS]      = { "key-contradicts", "a key says what the tensors, or other keys, contradict", FIX },
    [TENSOR_MISSING]       = { "tensor-missing", "a tensor of the model is not there", CONVERT },
    [TENSOR_EXTRA]         = { "tensor-extra", "tensors that upstream's model does not have", FIX },
    [TENSOR_SHAPE]         = { "tensor-shape", "a tensor of another shape than the model's", CONVERT },
    [NAME_FORM]            = { "name-form", "a tensor under a name that loaders do not look for", FIX },
    [A_LOG_RAW]            = { "a-log-raw", "ssm_a holds A_log, not -exp(A_log)", FIX },
    [A_EXP_TWICE]          = { "a-exp-twice", "the exponential of A_log was taken twice", FIX },
    [NORM_SHIFT_MISSING]   = { "norm-shift-missing", "the norms hold w, not 1 + w", FIX },
    [NORM_SHIFT_TWICE]     = { "norm-shift-twice", "1 was added to the norms twice", FIX },
    [NORM_SHIFT_MIXED]     = { "norm-shift-mixed", "1 was added to some norms and not to others", FIX },
    [HEAD_NORM_SHIFTED]    = { "head-norm-shifted", "1 was added to the GDN head norm, which is a plain factor", FIX },
    [CONV_LAYOUT]          = { "conv-layout", "the conv kernel has another layout", FIX },
    [ROPE_DIMS_MISSING]    = { "rope-dims-missing", "nothing says how many dims are rotated, so that loaders rotate the whole head", FIX },
    [ROPE_SECTIONS_FORM]   = { "rope-sections-form", "rope.dimension_sections has an unusual form", FIX },
    [ROUTER_QUANTISED]     = { "router-quantised", "a router, norm, conv or vector, which a right export stores in F32, is stored in less", CONVERT },
    [ALPHA_BETA_QUANTISED] = { "alpha-beta-quantised", "ssm_alpha or ssm_beta has fewer than 16 bits", CONVERT },
    [DIFFUSION_MISSING]    = { "diffusion-missing", "the diffusion tensors are not there", CONVERT },
    [DIFFUSION_PARTIAL]    = { "diffusion-partial", "some diffusion tensors are there and others are not", CONVERT },
    [MTP_BUNDLED]          = { "mtp-bundled", "a multi-token-prediction block comes with the model", FIX },
    [VISION_BUNDLED]       = { "vision-bundled", "a vision tower comes with the model", FIX },
    [INTERVAL_CONTRADICTS] = { "interval-contradicts", "the layers that have attention tensors are others than the header says", FIX },
    [TOKEN_TABLE_SIZE]     = { "token-table-size", "the token table and the embedding differ in length", CONVERT },
    [TOKENIZER_PRE]        = { "tokenizer-pre", "the header names another way to split text", FIX },
    [MERGES_MISSING]       = { "merges-missing", "the tokenizer has no merges", CONVERT },
    [EOS_MISSING]          = { "eos-missing", "no end-of-sequence id: answers never end by themselves", FIX },
    [MASK_UNKNOWN]         = { "mask-unknown", "nothing says which token is the mask", GIVE_MASK },
    [NAN_OR_INF]           = { "nan-or-inf", "values that are no finite numbers", CONVERT },
    [ALL_ZERO]             = { "all-zero", "weights that are zero throughout", CONVERT },
    [DUPLICATE_EXPERTS]    = { "duplicate-experts", "two experts of a layer have the same weights", CONVERT },
    [SPLIT_PART_MISSING]   = { "split-part-missing", "a part of the model is not there", COPY_AGAIN },
    [TRUNCATED]            = { "truncated", "the file is cut short or damaged", COPY_AGAIN },
    [ALIGNMENT]            = { "alignment", "tensors do not lie where loaders expect them", FIX },
    [HEAD_ORDER]           = { "head-order", "the GDN value heads stand in the other order", FIX },
    [Q_GATE_FLAT]          = { "q-gate-flat", "query and gate rows stand one after the other, not head by head", FIX },
    [CONV_REVERSED]        = { "conv-reversed", "the conv taps run backwards", FIX },
    [GATE_UP_SWAPPED]      = { "gate-up-swapped", "the experts' gate and up are exchanged", FIX },
    [EXPERT_ORDER]         = { "expert-order", "the experts stand in another order than the router's rows", FIX_LIKE },
    [DIFFUSION_HEAD_ORDER] = { "diffusion-head-order", "the diffusion tensors' value heads stand in the other order", FIX_SELF },
};

static const char *const severities[] = { "note", "quality", "garbage", "breaks" };
static const struct { int bit; const char *name; } sufferers[] = {
    { LLAMA_CPP, "llama.cpp" }, { CLOVER, "clover" }, { PREVIEWS, "previews" }, { TRANSFORMERS, "Transformers" },
};
enum { SUFFERERS = sizeof sufferers / sizeof *sufferers, MOST_EVIDENCE = sizeof ((Finding *)0)->evidence / sizeof (char *) };

const char *lint_id_name(LintId id) { return catalogue[id].id; }

/* ---- collecting ---------------------------------------------------------------------------------------------------- */

static Finding *finding_of(Report *r, LintId id, Severity severity) {
    for (int64_t i = 0; i < r->n; i++)
        if (r->finding[i].id == id && r->finding[i].severity == severity) return &r->finding[i];
    if (r->n == r->room) {
        int64_t more = r->room ? 2 * r->room : 16;
        Finding *larger = realloc(r->finding, (size_t)more * sizeof *larger);
        if (!larger) { r->no_memory = true; return NULL; }
        r->finding = larger;
        r->room = more;
    }
    r->finding[r->n] = (Finding){ .id = id, .severity = severity };
    return &r->finding[r->n++];
}

static void add_name(Report *r, Finding *f, const char *tensor) {
    if (f->n_tensors > 0 && strcmp(f->tensor[f->n_tensors - 1], tensor) == 0) return;
    if (f->n_tensors == f->room) {
        int64_t more = f->room ? 2 * f->room : 8;
        char **larger = realloc(f->tensor, (size_t)more * sizeof *larger);
        if (!larger) { r->no_memory = true; return; }
        f->tensor = larger;
        f->room = more;
    }
    char *copy = strdup(tensor);
    if (copy) f->tensor[f->n_tensors++] = copy;
    else r->no_memory = true;
}

void report_tensor(Report *r, LintId id, Severity severity, int hurts, const char *tensor) {
    Finding *f = finding_of(r, id, severity);
    if (!f) return;
    f->hurts |= hurts;
    add_name(r, f, tensor);
}

void report_add(Report *r, LintId id, Severity severity, int hurts, const char *tensor, const char *format, ...) {
    Finding *f = finding_of(r, id, severity);
    if (!f) return;
    f->hurts |= hurts;
    if (tensor) add_name(r, f, tensor);
    if (f->n_evidence++ >= MOST_EVIDENCE) return;
    char text[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    char *copy = strdup(text);
    if (copy) f->evidence[f->n_evidence - 1] = copy;
    else { f->n_evidence--; r->no_memory = true; }
}

void report_beyond_fix(Report *r, LintId id, Severity severity) {
    Finding *f = finding_of(r, id, severity);
    if (f) f->beyond_fix = true;
}

void report_remark(Report *r, const char *format, ...) {
    char text[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (r->remark.n) buffer_text(&r->remark, "\n");
    buffer_text(&r->remark, text);
}

bool report_has(const Report *r, LintId id) {
    for (int64_t i = 0; i < r->n; i++)
        if (r->finding[i].id == id) return true;
    return false;
}

Severity report_worst(const Report *r) {
    Severity worst = NOTE;
    for (int64_t i = 0; i < r->n; i++)
        if (r->finding[i].severity > worst) worst = r->finding[i].severity;
    return worst;
}

static int worse_first(const void *a, const void *b) {
    const Finding *f = a, *g = b;
    if (f->severity != g->severity) return f->severity > g->severity ? -1 : 1;
    return (f->id > g->id) - (f->id < g->id);
}

void report_sort(Report *r) {
    if (r->n > 1) qsort(r->finding, (size_t)r->n, sizeof *r->finding, worse_first);
}

void report_free(Report *r) {
    for (int64_t i = 0; i < r->n; i++) {
        Finding *f = &r->finding[i];
        for (int64_t k = 0; k < f->n_tensors; k++) free(f->tensor[k]);
        for (int64_t k = 0; k < MOST_EVIDENCE; k++) free(f->evidence[k]);
        free(f->tensor);
    }
    free(r->finding);
    buffer_free(&r->remark);
    *r = (Report){ 0 };
}

/* ---- telling ------------------------------------------------------------------------------------------------------- */

static void shell_word(Buffer *b, const char *path) {
    const bool plain = path[strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@%,")] == '\0';
    if (plain && path[0] != '-') { buffer_text(b, path); return; }
    buffer_text(b, path[0] == '-' ? "./'" : "'");
    for (const char *p = path; *p; p++) {
        if (*p == '\'') buffer_text(b, "'\\''");
        else buffer_add(b, p, 1);
    }
    buffer_text(b, "'");
}

/* The command that mends it; false: none does. */
static bool mend_command(Buffer *b, const Finding *f, const char *path, NameForm form) {
    Mend mend = catalogue[f->id].mend;
    if (mend == GIVE_MASK) {
        buffer_text(b, "clover run ");
        shell_word(b, path);
        buffer_text(b, " --mask-id ID ...");
    } else if (mend == NO_MEND || mend == COPY_AGAIN || form == NAMES_HF) return false;   /* a folder is a source: nothing here rewrites it */
    else if (f->beyond_fix && (mend == FIX || mend == FIX_SELF)) return false;
    else if (mend == CONVERT) buffer_text(b, "clover convert HF_DIR OUT.gguf");
    else {
        const size_t n = strlen(path);
        char *out = malloc(n + 16);
        if (!out) { b->no_memory = true; return false; }
        const bool extension = n > 5 && strcmp(path + n - 5, ".gguf") == 0;
        snprintf(out, n + 16, "%.*s-fixed.gguf", (int)(extension ? n - 5 : n), path);
        buffer_text(b, "clover fix ");
        shell_word(b, path);
        buffer_text(b, " ");
        shell_word(b, out);
        buffer_text(b, mend == FIX_LIKE ? " --like GOOD --only " : mend == FIX_SELF ? " --for self --only " : " --for llama.cpp --only ");
        buffer_text(b, catalogue[f->id].id);
        free(out);
    }
    return true;
}

/* Where no command helps. */
static const char *advice(const Finding *f, NameForm form) {
    if (catalogue[f->id].mend == COPY_AGAIN) return "get the file, or the missing part, again";
    if (f->beyond_fix && form == NAMES_GGUF) return "clover fix IN OUT --like GOOD, with a good file of the same model; else write the file again from its source";
    return form == NAMES_HF ? "correct the folder at its source" : "write the file again from its source";
}

const char *lint_advice(const Finding *f, bool has_good) {
    const Mend mend = catalogue[f->id].mend;
    if (mend == COPY_AGAIN) return "get the file, or the missing part, again";
    if (mend == GIVE_MASK) return "give it as --mask-id when the model is run";
    if (has_good) return "the good file does not settle it; write the file again from its source (clover convert)";
    return "the file does not say what is right; --like GOOD, or write it again from its source (clover convert)";
}

static void evidence_text(Buffer *b, const Finding *f) {
    char more[64];
    for (int64_t i = 0; i < f->n_evidence && i < MOST_EVIDENCE; i++) {
        if (i) buffer_text(b, "; ");
        buffer_text(b, f->evidence[i]);
    }
    if (f->n_evidence <= MOST_EVIDENCE) return;
    snprintf(more, sizeof more, "; and %lld more", (long long)(f->n_evidence - MOST_EVIDENCE));
    buffer_text(b, more);
}

static void print_names(FILE *out, const Finding *f) {
    if (f->n_tensors == 0) return;
    fprintf(out, "  tensors   ");
    for (int64_t i = 0; i < f->n_tensors && i < 6; i++) fprintf(out, "%s%s", i ? ", " : "", f->tensor[i]);
    if (f->n_tensors > 6) fprintf(out, ", and %lld more", (long long)f->n_tensors - 6);
    fprintf(out, "\n");
}

static void print_finding(FILE *out, const Finding *f, const char *path, NameForm form) {
    Buffer b = { 0 };
    fprintf(out, "%-8s  %s: %s\n", severities[f->severity], catalogue[f->id].id, catalogue[f->id].title);
    print_names(out, f);
    evidence_text(&b, f);
    fprintf(out, "  evidence  %.*s\n  hurts     ", (int)b.n, b.n ? (const char *)b.data : "");
    bool first = true;
    for (size_t i = 0; i < SUFFERERS; i++) {
        if (!(f->hurts & sufferers[i].bit)) continue;
        fprintf(out, "%s%s", first ? "" : ", ", sufferers[i].name);
        first = false;
    }
    buffer_free(&b);
    b = (Buffer){ 0 };
    if (mend_command(&b, f, path, form)) fprintf(out, "%s\n  mend      %.*s\n\n", first ? "nobody" : "", (int)b.n, (const char *)b.data);
    else fprintf(out, "%s\n  mend      %s\n\n", first ? "nobody" : "", advice(f, form));
    buffer_free(&b);
}

void report_print(FILE *out, const Report *r, const char *path, NameForm form) {
    int64_t above = 0;
    for (int64_t i = 0; i < r->n; i++) above += r->finding[i].severity > NOTE;
    fprintf(out, "%s: ", path);
    if (above) fprintf(out, "%lld %s", (long long)above, above == 1 ? "finding" : "findings");
    else fprintf(out, r->skipped ? "no fault found in what could be looked at" : "nothing is wrong");
    if (r->n > above) fprintf(out, ", %lld %s", (long long)(r->n - above), r->n - above == 1 ? "note" : "notes");
    fprintf(out, "\n\n");
    for (int64_t i = 0; i < r->n; i++) print_finding(out, &r->finding[i], path, form);
    if (r->remark.n) fprintf(out, "%.*s\n", (int)r->remark.n, (const char *)r->remark.data);
}

static json_t *text_json(Buffer *b, bool there) {
    json_t *text = there && !b->no_memory ? json_stringn(b->n ? (const char *)b->data : "", b->n) : NULL;
    buffer_free(b);
    *b = (Buffer){ 0 };
    return text ? text : json_null();
}

static json_t *finding_json(const Finding *f, const char *path, NameForm form) {
    json_t *tensors = json_array(), *hurts = json_array();
    Buffer b = { 0 };
    for (int64_t i = 0; i < f->n_tensors; i++) json_array_append_new(tensors, json_string(f->tensor[i]));
    for (size_t i = 0; i < SUFFERERS; i++)
        if (f->hurts & sufferers[i].bit) json_array_append_new(hurts, json_string(sufferers[i].name));
    evidence_text(&b, f);
    json_t *evidence = text_json(&b, true);
    const bool mends = mend_command(&b, f, path, form);
    json_t *mend = text_json(&b, mends);
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "id", catalogue[f->id].id, "severity", severities[f->severity], "tensors", tensors,
                     "evidence", evidence, "hurts", hurts, "mend", mend);
}

bool report_json(FILE *out, const Report *r, const char *path, NameForm form) {
    json_t *findings = json_array(), *remarks = json_array();
    for (int64_t i = 0; i < r->n; i++) json_array_append_new(findings, finding_json(&r->finding[i], path, form));
    const char *at = (const char *)r->remark.data, *end = at ? at + r->remark.n : at;
    while (at < end) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        const size_t n = line ? (size_t)(line - at) : (size_t)(end - at);
        json_array_append_new(remarks, json_stringn(at, n));
        at += n + 1;
    }
    json_t *whole = json_pack("{s:o, s:o}", "findings", findings, "remarks", remarks);
    const bool ok = whole && json_dumpf(whole, out, JSON_INDENT(1)) == 0;
    if (ok) fputc('\n', out);
    json_decref(whole);
    return ok;
}
