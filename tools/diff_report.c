/* diff_report.c - a diff's result on one screen, and as JSON. [DIF-8] */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "diff_parts.h"

/* ---- names ----------------------------------------------------------------------------------------------------- */

const char *stage_of(const char *probe) {
    const char *dot = probe[0] == 'L' && probe[1] >= '0' && probe[1] <= '9' ? strchr(probe, '.') : NULL;
    return dot ? dot + 1 : probe;
}
bool is_choice(const char *stage) { return strcmp(stage, "moe.ids") == 0 || strcmp(stage, "moe.coreset") == 0; }

const char *feature_name(Feature f) {
    static const char *const names[FEATURES] = { "causal", "preview", "coreset", "denoise", "draft-self", "controls", "tokenizer" };
    return names[f];
}

static const struct { const char *stage, *causal, *preview; } clauses[] = {
        { "embed", "LAY-1", NULL }, { "attn_norm", "ROW-1", NULL }, { "ffn_norm", "ROW-1", NULL }, { "mixer_residual", "LAY-2", NULL }, { "out", "LAY-2", NULL },
        { "final_norm", "LAY-3", NULL }, { "logits", "LAY-3", NULL }, { "attn.q", "ATT-1", NULL }, { "attn.gate", "ATT-1", NULL }, { "attn.k", "ATT-1", NULL },
        { "attn.v", "ATT-1", NULL }, { "attn.q_norm", "ATT-2", NULL }, { "attn.k_norm", "ATT-2", NULL }, { "attn.q_rope", "ATT-3", NULL }, { "attn.k_rope", "ATT-3", NULL },
        { "attn.context", "ATT-4", "ATT-6" }, { "attn.gated", "ATT-7", NULL }, { "gdn.qkv", "GDN-1", NULL }, { "gdn.z", "GDN-1", NULL }, { "gdn.beta", "GDN-2", NULL },
        { "gdn.g", "GDN-2", NULL }, { "gdn.conv", "GDN-3", "PRV-2" }, { "gdn.q", "GDN-4", NULL }, { "gdn.k", "GDN-4", NULL }, { "gdn.v", "GDN-4", NULL },
        { "gdn.block_weights", "PRV-3", NULL }, { "gdn.state", "GDN-6", NULL }, { "gdn.mixed", "GDN-6", "PRV-6" }, { "gdn.gated", "GDN-7", NULL }, { "mixer", "LAY-2", NULL },
        { "moe.probs", "MOE-1", NULL }, { "moe.coreset", "COR-3", NULL }, { "moe.ids", "MOE-1", "COR-4" }, { "moe.weights", "MOE-2", "COR-4" }, { "moe.routed", "MOE-3", NULL },
        { "moe.shared", "MOE-4", NULL }, { "moe.shared_gate", "MOE-4", NULL }, { "moe", "MOE-4", NULL },
    };

/* Stage i, NULL behind the last. */
const char *stage_at(size_t i) { return i < sizeof clauses / sizeof *clauses ? clauses[i].stage : NULL; }

const char *stage_clause(const char *stage, bool preview) {
    for (size_t i = 0; i < sizeof clauses / sizeof *clauses; i++)
        if (strcmp(clauses[i].stage, stage) == 0) return preview && clauses[i].preview ? clauses[i].preview : clauses[i].causal;
    return "";
}

const char *verdict_name(DiffVerdict v) { return v == DIFF_CONFORMS ? "conforms" : v == DIFF_DIFFERS ? "differs" : "incomparable"; }
const char *stage_verdict_name(StageVerdict v) {
    static const char *const names[] = { "conforms", "below-floor", "representation", "differs", "wrong" };
    return names[v];
}
const char *feature_verdict_name(FeatureVerdict v) {
    static const char *const names[] = { "not shown", "conforms", "differs" };
    return names[v];
}

const BundleCase *case_named(const Bundle *b, const char *name) {
    for (int64_t i = 0; i < b->n_cases; i++)
        if (b->cases[i].name == name) return &b->cases[i];
    return NULL;
}

static bool is_preview(const ProbeResult *r, const Bundle *b) {
    const BundleCase *c = case_named(b, r->case_name);
    return c && c->step[r->step_index].kind == STEP_PREVIEW;
}

/* "3, 1, 8" of a flat index. */
void index_text(const ProbeResult *r, int64_t flat, char *out, size_t room) {
    int64_t index[4] = { 0 };
    for (int d = r->dims - 1; d >= 0; d--) {
        index[d] = r->shape[d] ? flat % r->shape[d] : 0;
        flat = r->shape[d] ? flat / r->shape[d] : 0;
    }
    size_t used = 0;
    out[0] = '\0';
    for (int d = 0; d < r->dims && used < room; d++) used += (size_t)snprintf(out + used, room - used, "%s%lld", d ? ", " : "", (long long)index[d]);
}

int64_t row_of(const ProbeResult *r, int64_t flat) {
    int64_t inner = 1;
    for (int d = 1; d < r->dims; d++) inner *= r->shape[d];
    return inner && flat >= 0 ? flat / inner : 0;
}

/* ---- one screen ------------------------------------------------------------------------------------------------ */

static void print_first(const DiffResult *r, const Bundle *b) {
    const ProbeResult *p = &r->probe[r->first];
    const char *stage = stage_of(p->probe);
    char index[96];
    index_text(p, p->added.worst, index, sizeof index);
    printf("first divergence  %s/%s  %s  [%s]\n", p->case_name, p->step, p->probe, stage_clause(stage, is_preview(p, b)));
    const ProbeResult *before = r->first > 0 ? p - 1 : NULL;
    if (before && before->case_name == p->case_name && before->step_index == p->step_index)
        printf("  somewhere behind %s, the last array before it that was compared, and up to %s\n", before->probe, p->probe);
    if (p->verdict == STAGE_WRONG) printf("  %s\n", p->note);
    else if (is_choice(stage)) printf("  %lld of %lld choices differ, %lld of them near ties\n", (long long)p->flips, (long long)p->choices, (long long)p->near_ties);
    else {
        printf("  worst element   [%s]: expected %.9g, found %.9g", index, p->added.expected, p->added.actual);
        if (p->type == DT_F64) putchar('\n');   /* no engine stores doubles: its ulp says nothing */
        else printf(" (%.3g ulp of %s)\n", p->added.ulp, dtype_info(p->type) ? dtype_info(p->type)->name : "?");
        if (p->injected) {
            printf("  added here      rms %.3g, worst %.3g   (budget %.3g and %.3g; %.3g%% of the elements lie beyond; cosine %.6f)\n", p->added.rms, p->added.max, p->budget_rms,
                   p->budget_max, 100 * p->beyond, p->added.cosine);
            printf("  inherited       rms %.3g, worst %.3g   (what the stages before had already moved)\n", p->inherited_rms, p->inherited_max);
            if (*p->note) printf("  %s\n", p->note);
        } else printf("  off the golden  rms %.3g, worst %.3g   (bound %.3g and %.3g)\n", p->total.rms, p->total.max, p->budget_rms, p->budget_max);
    }
}

static void print_others(const DiffResult *r) {
    int64_t more = 0, shown = 0;
    for (int64_t i = 0; i < r->n_probes; i++) {
        const ProbeResult *p = &r->probe[i];
        if (i == r->first || (p->verdict != STAGE_DIFFERS && p->verdict != STAGE_WRONG)) continue;
        if (shown == 0) printf(p->injected ? "after it, each on its own inputs:\n" : "after it:\n");
        if (shown++ >= 5) more++;
        else if (p->verdict == STAGE_WRONG) printf("  %s/%s  %-24s %.100s\n", p->case_name, p->step, p->probe, p->note);
        else if (is_choice(stage_of(p->probe))) printf("  %s/%s  %-24s %lld of %lld choices differ\n", p->case_name, p->step, p->probe, (long long)p->flips, (long long)p->choices);
        else printf("  %s/%s  %-24s %s rms %.3g (budget %.3g)\n", p->case_name, p->step, p->probe, p->injected ? "added" : "off the golden", p->added.rms, p->budget_rms);
    }
    if (more) printf("  ... and %lld more\n", (long long)more);
}

static const char *const rank_names[] = { "cause", "alike", "runner-up", "partial" };

static void print_one_diagnosis(const DiffResult *r, int64_t at, const Bundle *b) {
    const Diagnosis *g = &r->diagnosis[at];
    char where[160], only[48] = "";
    if (g->step) snprintf(where, sizeof where, "%s/%s %s", g->case_name, g->step, g->probe);
    else snprintf(where, sizeof where, "trace %s", g->case_name);
    if (g->layer >= 0) snprintf(only, sizeof only, ", in layer %lld only", (long long)g->layer);
    if (g->rank == DIAGNOSIS_ALIKE) printf("            or it %s%s [%s] (%s): on this data the two are alike; to tell: %s\n", g->says, only, g->clause, g->hypothesis, *g->tells ? g->tells : "another run");
    else if (g->rank == DIAGNOSIS_RUNNER_UP)
        printf("            runner-up: %s%s explains %s as well; with it %lld stages differ still\n", g->hypothesis, only, g->probe, (long long)g->left);
    else if (g->rank == DIAGNOSIS_PARTIAL && g->left >= 0)
        printf("diagnosis   in part: your engine %s%s [%s] (%s) there, which gives %s to %.2g, but not everywhere: with it in force %lld stages differ still\n", g->says, only, g->clause, g->hypothesis,
               where, g->residual, (long long)g->left);
    else if (g->rank == DIAGNOSIS_PARTIAL)
        printf("diagnosis   not at the floor: %s (%s) explains %.1f%% of %s; residual %.2g, floor %.2g\n", g->hypothesis, g->says, 100 * g->explains, where, g->residual, g->floor);
    else {
        const bool together = at > 0 && g[-1].rank == DIAGNOSIS_CAUSE && g[-1].divergence == g->divergence;   /* two that meet in one array */
        printf("%s your engine %s%s [%s] (%s)\n", together ? "       and " : "diagnosis  ", g->says, only, g->clause, g->hypothesis);
        if (strcmp(g->hypothesis, hypothesis_bf16.name) == 0) return;
        if (!g->step) printf("            with that the reference makes the decisions of %s\n", where);
        else if (!strcmp(stage_of(g->probe), "moe.ids") || !strcmp(stage_of(g->probe), "moe.coreset")) printf("            with that the reference makes the choices of %s\n", where);
        else printf("            with that the reference gives %s to %.2g (floor %.2g); explains %.4g%%\n", where, g->residual, g->floor, 100 * g->explains);
        if (*g->lint)
            printf("            the file may be the cause as well as the engine: clover lint %s (%s); %s\n", b->model_path, g->lint,
                   r->engine_file && *r->engine_file ? r->engine_file : "the dump does not say which file its engine ran");
    }
}

static void print_diagnosis(const DiffResult *r, const Bundle *b) {
    for (int64_t i = 0; i < r->n_diagnoses; i++) print_one_diagnosis(r, i, b);
    if (r->diagnosed && r->n_diagnoses == 0) printf("diagnosis   none of the known mistakes (clover hypotheses lists them)\n");
    if (r->diagnosed) printf("\n");
}

void diff_print(const DiffResult *r, const Bundle *b) {
    int64_t count[STAGE_WRONG + 1] = { 0 };
    for (int64_t i = 0; i < r->n_probes; i++) count[r->probe[i].verdict]++;
    printf("%s: %s%s", verdict_name(r->verdict), b->path, r->verdict == DIFF_INCOMPARABLE ? " and this dump have nothing in common that can be compared" : "");
    if (r->n_missing) printf("  (%lld of its %lld steps are missing in the dump: nothing is said of those)", (long long)r->n_missing, (long long)r->n_steps);
    if (r->verdict == DIFF_CONFORMS && count[STAGE_BELOW_FLOOR]) printf("  (%lld of %lld stages are below the floor of the dump's storage: not proven)", (long long)count[STAGE_BELOW_FLOOR], (long long)r->n_probes);
    putchar('\n');
    printf("profile %s; budget = %g x the floor by rms, %g x by worst element\n\n", r->profile, r->margin_rms, r->margin_max);
    if (r->first >= 0) {
        print_first(r, b);
        print_others(r);
        printf("\n");
    }
    print_diagnosis(r, b);
    for (int64_t i = 0; i < r->n_traces; i++)
        if (r->trace[i].compared) printf("trace %s: %s\n", r->trace[i].case_name, r->trace[i].differs ? r->trace[i].text : "every decision is the golden's");
    printf("stages     %lld compared: %lld conform, %lld below the floor, %lld other representations, %lld differ, %lld wrong\n", (long long)r->n_probes,
           (long long)count[STAGE_CONFORMS], (long long)count[STAGE_BELOW_FLOOR], (long long)count[STAGE_REPRESENTATION], (long long)count[STAGE_DIFFERS], (long long)count[STAGE_WRONG]);
    printf("features  ");
    for (Feature f = 0; f < FEATURES; f++) printf(" %s: %s%s", feature_name(f), feature_verdict_name(r->feature[f]), f + 1 < FEATURES ? "," : "\n");
    const ProbeResult *worst = NULL;
    for (int64_t i = 0; i < r->n_probes; i++)
        if (strcmp(r->probe[i].probe, "logits") == 0 && r->probe[i].verdict != STAGE_WRONG && (!worst || r->probe[i].logits.kl_max > worst->logits.kl_max)) worst = &r->probe[i];
    if (worst)
        printf("logits     worst step %s/%s: KL %.3g, top-5 overlap %.3f, argmax differs in %lld of %lld rows, regret %.3g\n", worst->case_name, worst->step, worst->logits.kl_max,
               worst->logits.top5_overlap, (long long)worst->logits.argmax_differs, (long long)worst->logits.rows, worst->logits.regret_max);
    for (int64_t i = 0; i < r->n_notes; i++) printf("note       %s\n", r->note[i]);
    if (r->n_not_compared) {
        printf("not compared (%lld; --json lists all): ", (long long)r->n_not_compared);
        for (int64_t i = 0; i < r->n_not_compared && i < 4; i++) printf("%s%s", i ? "; " : "", r->not_compared[i]);
        printf("%s\n", r->n_not_compared > 4 ? "; ..." : "");
    }
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

/* JSON has no infinity. */
static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *difference_json(const Difference *d) {
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:I}", "max", number(d->max), "mean", number(d->mean), "rms", number(d->rms), "p99", number(d->p99),
                     "relative", number(d->relative), "cosine", number(d->cosine), "ulp", number(d->ulp), "worst", (json_int_t)d->worst, "expected", number(d->expected),
                     "actual", number(d->actual), "not_finite", (json_int_t)d->not_finite);
}

static json_t *probe_json(const ProbeResult *p, const Bundle *b) {
    json_t *shape = json_array();
    for (int i = 0; i < p->dims; i++) json_array_append_new(shape, json_integer(p->shape[i]));
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:s, s:o}", "case", p->case_name, "step", p->step, "probe", p->probe, "clause",
                          stage_clause(stage_of(p->probe), is_preview(p, b)), "type", dtype_info(p->type) ? dtype_info(p->type)->name : "?", "shape", shape, "verdict",
                          stage_verdict_name(p->verdict), "total", difference_json(&p->total));
    if (p->injected) {
        json_object_set_new(o, "added", difference_json(&p->added));
        json_object_set_new(o, "inherited", json_pack("{s:o, s:o}", "rms", number(p->inherited_rms), "max", number(p->inherited_max)));
        json_object_set_new(o, "floor", json_pack("{s:o, s:o}", "rms", number(p->floor_rms), "max", number(p->floor_max)));
    }
    json_object_set_new(o, "budget", json_pack("{s:o, s:o}", "rms", number(p->budget_rms), "max", number(p->budget_max)));
    json_object_set_new(o, "beyond", number(p->beyond));
    json_object_set_new(o, "passing_margin", number(p->passing));
    if (is_choice(stage_of(p->probe)))
        json_object_set_new(o, "choices", json_pack("{s:I, s:I, s:I}", "all", (json_int_t)p->choices, "differ", (json_int_t)p->flips, "near_ties", (json_int_t)p->near_ties));
    if (strcmp(p->probe, "logits") == 0)
        json_object_set_new(o, "logits", json_pack("{s:o, s:o, s:o, s:o, s:I, s:I}", "kl_max", number(p->logits.kl_max), "kl_mean", number(p->logits.kl_mean), "top5_overlap",
                                                   number(p->logits.top5_overlap), "regret_max", number(p->logits.regret_max), "argmax_differs",
                                                   (json_int_t)p->logits.argmax_differs, "rows", (json_int_t)p->logits.rows));
    if (*p->note) json_object_set_new(o, "note", json_string(p->note));
    return o;
}

/* Where no stage differs and a decision does, that is the first. */
static json_t *first_decision_json(const DiffResult *r) {
    for (int64_t i = 0; i < r->n_traces; i++) {
        const TraceResult *t = &r->trace[i];
        char step[48];
        if (!t->compared || !t->differs || t->explained) continue;
        snprintf(step, sizeof step, "decision %lld", (long long)t->step);
        return json_pack("{s:s, s:s, s:s, s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:s}", "case", t->case_name, "step", step, "probe", "trace", "row", "index", "expected", "actual", "added",
                         "inherited", "budget", "text", t->text);
    }
    return json_null();
}

static json_t *first_json(const DiffResult *r) {
    if (r->first < 0) return first_decision_json(r);
    const ProbeResult *p = &r->probe[r->first];
    char index[96];
    index_text(p, p->added.worst, index, sizeof index);
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:o, s:o, s:o, s:o, s:o}", "case", p->case_name, "step", p->step, "probe", p->probe, "row", (json_int_t)row_of(p, p->added.worst),
                     "index", index, "expected", number(p->added.expected), "actual", number(p->added.actual), "added", number(p->added.rms), "inherited",
                     number(p->inherited_rms), "budget", number(p->budget_rms));
}

/* [DIA-4] */
static json_t *diagnosis_json(const DiffResult *r) {
    json_t *all = json_array();
    for (int64_t i = 0; i < r->n_diagnoses; i++) {
        const Diagnosis *g = &r->diagnosis[i];
        json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s, s:i, s:s, s:s?, s:o, s:o, s:s, s:s, s:s}", "hypothesis", g->hypothesis, "clause", g->clause, "stage", g->probe,
                                             "explains", number(g->explains), "residual", number(g->residual), "floor", number(g->floor), "rank", rank_names[g->rank], "divergence",
                                             g->divergence, "case", g->case_name, "step", g->step, "layer", g->layer < 0 ? json_null() : json_integer(g->layer), "left",
                                             g->left < 0 ? json_null() : json_integer(g->left), "says", g->says, "lint", g->lint, "tells", g->tells));
    }
    return all;
}

json_t *diff_json(const DiffResult *r, const Bundle *b) {
    json_t *features = json_object(), *probes = json_array(), *notes = json_array(), *not_compared = json_array(), *traces = json_array();
    for (Feature f = 0; f < FEATURES; f++) json_object_set_new(features, feature_name(f), json_string(feature_verdict_name(r->feature[f])));
    for (int64_t i = 0; i < r->n_probes; i++) json_array_append_new(probes, probe_json(&r->probe[i], b));
    for (int64_t i = 0; i < r->n_notes; i++) json_array_append_new(notes, json_string(r->note[i]));
    for (int64_t i = 0; i < r->n_not_compared; i++) json_array_append_new(not_compared, json_string(r->not_compared[i]));
    for (int64_t i = 0; i < r->n_traces; i++)
        if (r->trace[i].compared)
            json_array_append_new(traces, json_pack("{s:s, s:b, s:b, s:I, s:s}", "case", r->trace[i].case_name, "differs", (int)r->trace[i].differs, "explained",
                                                    (int)r->trace[i].explained, "step", (json_int_t)r->trace[i].step, "text", r->trace[i].text));
    return json_pack("{s:s, s:s, s:{s:f, s:f}, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "verdict", verdict_name(r->verdict), "profile", r->profile, "margin", "rms", r->margin_rms, "max",
                     r->margin_max, "first", first_json(r), "diagnosis", diagnosis_json(r), "engine_file", r->engine_file && *r->engine_file ? json_string(r->engine_file) : json_null(), "features", features, "traces", traces, "notes", notes, "not_compared", not_compared, "probes", probes);
}
