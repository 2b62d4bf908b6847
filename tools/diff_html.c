/* diff_html.c - a diff's result as one page that needs no network. [DIF-10]
 *
 * Everything that it says stands in its HTML, so that it reads without scripts, but for the numbers of the many stages that
 * conform: those are in one JSON list, from which the script shows the one that is clicked. Style and script are allowed by
 * their hashes alone: a name out of a file cannot run anything even if it were written out wrongly. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "diff_html.h"
#include "sha256.h"

enum { MAX_FINDINGS = 200, MAX_STAGES = 64, FEW_LOGITS = 12, DRAWN_DECISIONS = 100000 };

/* ---- writing --------------------------------------------------------------------------------------------------- */

void html(Page *p, const char *markup) { buffer_text(&p->out, markup); }

void html_format(Page *p, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    html(p, text);
}

/* Valid UTF-8, malloc'ed; NULL: no memory, which the page remembers. */
static char *valid_utf8(Page *p, const char *text) {
    const size_t n = strlen(text);
    CloverUtf8Stream stream = { .n = 0 };
    char *valid = malloc(3 * n + 17);
    if (valid) valid[clover_utf8_feed(&stream, text, n, true, valid)] = '\0';
    else p->out.no_memory = true;
    return valid;
}

static void escape(Page *p, const char *text, bool lines) {
    char *valid = valid_utf8(p, text);
    for (const char *s = valid; s && *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '&') html(p, "&amp;");
        else if (c == '<') html(p, "&lt;");
        else if (c == '>') html(p, "&gt;");
        else if (c == '"') html(p, "&quot;");
        else if (c == '\'') html(p, "&#39;");
        else if (lines && (c == '\n' || c == '\t')) buffer_add(&p->out, s, 1);
        else if (c == '\n') html(p, "\\n");
        else if (c < 32 || c == 127) html_format(p, "\\x%02x", c);
        else buffer_add(&p->out, s, 1);
    }
    free(valid);
}
void html_text(Page *p, const char *text) { escape(p, text, false); }
void html_lines(Page *p, const char *text) { escape(p, text, true); }

void html_number(Page *p, double x, int digits) {
    if (isnan(x)) html(p, "NaN");
    else if (isinf(x)) html(p, x < 0 ? "-Infinity" : "Infinity");
    else html_format(p, "%.*g", digits, x);
}

/* The same inside the JSON list, where what is no number is a string. */
static void put_json_number(Page *p, double x, int digits) {
    if (!isfinite(x)) html(p, "\"");
    html_number(p, x, digits);
    if (!isfinite(x)) html(p, "\"");
}

/* A JSON string inside a <script>: no "<", so that nothing there ends it. */
static void put_json_text(Page *p, const char *text) {
    char *valid = valid_utf8(p, text);
    html(p, "\"");
    for (const char *s = valid; s && *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c < 32 || c == '<' || c == '>' || c == '&' || c == '"' || c == '\\' || c == 127) html_format(p, "\\u%04x", c);
        else buffer_add(&p->out, s, 1);
    }
    html(p, "\"");
    free(valid);
}

/* ---- what is said of a probe ----------------------------------------------------------------------------------- */

static const BundleStep *step_of(const Page *p, const ProbeResult *r) {
    for (int64_t i = 0; i < p->bundle->n_cases; i++) {
        const BundleCase *c = &p->bundle->cases[i];
        if (strcmp(c->name, r->case_name) == 0 && r->step_index >= 0 && r->step_index < c->n_steps) return &c->step[r->step_index];
    }
    return NULL;
}

static const char *clause_of(const Page *p, const ProbeResult *r) {
    const BundleStep *step = step_of(p, r);
    return stage_clause(stage_of(r->probe), step && step->kind == STEP_PREVIEW);
}

static const char *type_name(const ProbeResult *r) { return dtype_info(r->type) ? dtype_info(r->type)->name : "?"; }
static const Difference *judged(const ProbeResult *r) { return r->injected ? &r->added : &r->total; }

/* How often the budget is used up: 1 is all of it. */
static double share(double error, double budget) { return error == 0 ? 0 : error / budget; }
static double budgets(const ProbeResult *r) {
    const double rms = share(judged(r)->rms, r->budget_rms), worst = share(judged(r)->max, r->budget_max);
    return isnan(rms) || isnan(worst) ? INFINITY : rms > worst ? rms : worst;
}

/* The map's colour: 0 to 3 within the budget, 4 to 6 beyond it. */
static int colour_of(const ProbeResult *r) {
    static const double limits[] = { 0.01, 0.1, 0.5, 1, 10, 100 };
    if (r->verdict == STAGE_WRONG) return 6;
    if (is_choice(stage_of(r->probe))) return r->verdict == STAGE_DIFFERS ? 6 : r->flips ? 2 : 0;
    int colour = 0;
    while (colour < 6 && budgets(r) > limits[colour]) colour++;
    return colour;
}

/* The letter in it, so that no verdict is told by colour alone. */
static const char *mark_of(const ProbeResult *r) {
    static const char *const marks[] = { "", "f", "r", "&times;", "!" };
    return r->verdict == STAGE_CONFORMS && r->flips ? "&asymp;" : marks[r->verdict];
}
static const char *pattern_of(const ProbeResult *r) {
    static const char *const patterns[] = { "", " floor", " repr", " bad", " wrong" };
    return patterns[r->verdict];
}

static void put_row_and_index(Page *p, const ProbeResult *r) {
    char index[96];
    index_text(r, judged(r)->worst, index, sizeof index);
    html_format(p, "row %lld, index [%s]", (long long)row_of(r, judged(r)->worst), index);
}

static void put_place(Page *p, const ProbeResult *r) {
    html_text(p, r->case_name);
    html(p, "/");
    html_text(p, r->step);
}

/* ---- the top --------------------------------------------------------------------------------------------------- */

/* CSP names a text by the base64 of its SHA-256. */
static CloverStatus csp_hash(const char *const *lines, char out[45], CloverError *err) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    Sha256 sha;
    char hex[SHA256_HEX];
    unsigned char bytes[33] = { 0 };     /* 32, and a zero that the last group needs */
    if (sha256_begin(&sha, err) != CLOVER_OK) return err->status;
    for (int i = 0; lines[i]; i++) {
        sha256_add(&sha, lines[i], strlen(lines[i]));
        sha256_add(&sha, "\n", 1);
    }
    if (sha256_end(&sha, hex, err) != CLOVER_OK) return err->status;
    for (int i = 0; i < 32; i++) {
        const char pair[] = { hex[2 * i], hex[2 * i + 1], '\0' };
        bytes[i] = (unsigned char)strtol(pair, NULL, 16);
    }
    for (int i = 0; i < 11; i++) {
        const unsigned group = (unsigned)bytes[3 * i] << 16 | (unsigned)bytes[3 * i + 1] << 8 | bytes[3 * i + 2];
        for (int k = 0; k < 4; k++) out[4 * i + k] = digits[group >> (18 - 6 * k) & 63];
    }
    out[43] = '=';
    out[44] = '\0';
    return CLOVER_OK;
}

static void put_lines(Page *p, const char *const *lines) {
    for (int i = 0; lines[i]; i++) {
        html(p, lines[i]);
        html(p, "\n");
    }
}

static CloverStatus put_head(Page *p, CloverError *err) {
    char style[45], script[45];
    if (csp_hash(diff_html_style, style, err) != CLOVER_OK || csp_hash(diff_html_script, script, err) != CLOVER_OK) return err->status;
    html(p, "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n");
    html_format(p, "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; base-uri 'none'; form-action 'none'\">\n",
               style, script);
    html(p, "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n<meta name=color-scheme content=\"light dark\">\n<title>");
    html_format(p, "%s: ", verdict_name(p->result->verdict));
    html_text(p, p->bundle->path);
    html(p, "</title>\n<style>");
    put_lines(p, diff_html_style);
    html(p, "</style>\n</head>\n<body>\n");
    return CLOVER_OK;
}

static void put_verdict(Page *p) {
    static const char *const classes[] = { "good", "bad", "warn" };
    const DiffResult *r = p->result;
    html_format(p, "<header><p class=what>clover diff</p><h1 class=%s>%s</h1><p>", classes[r->verdict],
               r->verdict == DIFF_CONFORMS ? "&check; Conforms" : r->verdict == DIFF_DIFFERS ? "&cross; Differs" : "? Incomparable");
    if (r->verdict == DIFF_CONFORMS) html(p, "Everything that could be compared stays within its budget.");
    else if (r->verdict == DIFF_INCOMPARABLE) html(p, "The golden and this dump have nothing in common that can be compared.");
    else if (r->first >= 0) {
        html(p, "The engine leaves the reference first at <code>");
        html_text(p, r->probe[r->first].probe);
        html(p, "</code> of ");
        put_place(p, &r->probe[r->first]);
        html(p, ".");
    } else html(p, "No stage differs; the decisions below do.");
    html(p, "</p><dl class=facts><dt>golden<dd>");
    html_text(p, p->bundle->path);
    if (p->bundle->numerics) {
        html(p, ", numerics ");
        html_text(p, p->bundle->numerics);
    }
    html(p, "<dt>dump<dd>");
    html_text(p, p->dump ? p->dump : "none");
    html(p, "<dt>model<dd>");
    html_text(p, p->bundle->model_path ? p->bundle->model_path : "not named");
    html(p, "<dt>profile<dd>");
    html_text(p, r->profile);
    html_format(p, "; a budget is %g times the floor by RMS, %g times by worst element</dl></header>\n", r->margin_rms, r->margin_max);
}

static void put_term(Page *p, const char *term, double rms, double worst) {
    html_format(p, "<tr><th scope=row>%s<td>", term);
    html_number(p, rms, 4);
    html(p, "<td>");
    html_number(p, worst, 4);
}

static void put_first(Page *p) {
    if (p->result->first < 0) return;
    const ProbeResult *r = &p->result->probe[p->result->first];
    html(p, "<section id=first class=box><h2>First divergence</h2><dl class=facts><dt>case<dd>");
    html_text(p, r->case_name);
    html(p, "<dt>step<dd>");
    html_text(p, r->step);
    html_format(p, "<dt>probe<dd><a href=\"#p%lld\"><code>", (long long)p->result->first);
    html_text(p, r->probe);
    html_format(p, "</code></a><dt>clause of SPEC.md<dd>%s", clause_of(p, r));
    if (*r->note) {
        html(p, "<dt>note<dd>");
        html_text(p, r->note);
    }
    if (is_choice(stage_of(r->probe)))
        html_format(p, "<dt>choices<dd>%lld of %lld differ, %lld of them near ties</dl>", (long long)r->flips, (long long)r->choices,
                    (long long)r->near_ties);
    else if (r->verdict == STAGE_WRONG && judged(r)->not_finite == 0) html(p, "</dl>");
    else {
        html(p, "<dt>worst element<dd>");
        put_row_and_index(p, r);
        html(p, "<dt>expected<dd><code>");
        html_number(p, judged(r)->expected, 9);
        html(p, "</code><dt>actual<dd><code>");
        html_number(p, judged(r)->actual, 9);
        html(p, "</code></dl><div class=scroll><table class=figures><thead><tr><th scope=col>error<th scope=col>RMS<th scope=col>worst<tbody>");
        if (r->injected) {
            put_term(p, "added here", r->added.rms, r->added.max);
            put_term(p, "inherited", r->inherited_rms, r->inherited_max);
        }
        put_term(p, "total", r->total.rms, r->total.max);
        put_term(p, "budget", r->budget_rms, r->budget_max);
        html(p, "</table></div>");
    }
    html(p, "</section>\n");
}

static void put_diagnosis(Page *p) {
    const DiffResult *r = p->result;
    if (!r->diagnosed) return;
    html(p, "<section id=diagnosis class=box><h2>Diagnosis</h2>");
    if (r->n_diagnoses == 0) html(p, "<p>None of the known mistakes.");
    else html(p, "<ul>");
    for (int64_t i = 0; i < r->n_diagnoses; i++) {
        static const char *const starts[] = { "Your engine ", "Or it ", "Runner-up: it ", "In part: it " };
        const Diagnosis *g = &r->diagnosis[i];
        html_format(p, "<li>%s", starts[g->rank]);
        html_text(p, g->says);
        if (g->layer >= 0) html_format(p, ", in layer %lld only", (long long)g->layer);
        html_format(p, " [%s] (<code>", g->clause);
        html_text(p, g->hypothesis);
        html(p, "</code>), at <code>");
        html_text(p, g->probe);
        html(p, "</code> of ");
        html_text(p, g->case_name);
        if (g->step) {
            html(p, "/");
            html_text(p, g->step);
            html(p, ": residual ");
            html_number(p, g->residual, 2);
            html(p, ", floor ");
            html_number(p, g->floor, 2);
        }
        if (*g->lint) {
            html(p, "; the file may be the cause as well: <code>clover lint</code> (");
            html_text(p, g->lint);
            html(p, ")");
        }
        if (*g->tells) {
            html(p, "; to tell: ");
            html_text(p, g->tells);
        }
    }
    html(p, r->n_diagnoses ? "</ul></section>\n" : "</section>\n");
}

static void put_features(Page *p) {
    static const char *const classes[] = { "quiet", "good", "bad" }, *const marks[] = { "&ndash;", "&check;", "&cross;" };
    html(p, "<section id=features><h2>Features</h2><div class=scroll><table class=figures><thead><tr><th scope=col>feature<th scope=col>result<tbody>");
    for (Feature f = 0; f < FEATURES; f++) {
        const FeatureVerdict v = p->result->feature[f];
        html_format(p, "<tr><th scope=row>%s<td class=%s>%s %s", feature_name(f), classes[v], marks[v], feature_verdict_name(v));
    }
    html(p, "</table></div></section>\n");
}

/* ---- the map --------------------------------------------------------------------------------------------------- */

/* Rows and columns of one step's map. */
typedef struct Map {
    const char *stage[MAX_STAGES];
    int stages;
    int64_t layer[CLOVER_MAX_LAYERS + 1];        /* -1 first, for what belongs to no layer */
    int layers, column[CLOVER_MAX_LAYERS + 1];   /* column of layer i at i + 1 */
    int64_t *cell;                               /* [stages, layers]; a probe's index, or -1 */
} Map;

/* The order of SPEC.md's table. [PRB-2] */
static const char *const stage_order[] = {
    "ids", "embed", "attn_norm", "attn.q", "attn.gate", "attn.k", "attn.v", "attn.q_norm", "attn.k_norm", "attn.q_rope", "attn.k_rope", "attn.context",
    "attn.gated", "gdn.qkv", "gdn.z", "gdn.beta", "gdn.g", "gdn.conv", "gdn.q", "gdn.k", "gdn.v", "gdn.block_weights", "gdn.state", "gdn.mixed",
    "gdn.gated", "mixer", "mixer_residual", "ffn_norm", "moe.probs", "moe.coreset", "moe.ids", "moe.weights", "moe.routed", "moe.shared", "moe.shared_gate",
    "moe", "out", "final_norm", "logits",
};
enum { ORDERED = sizeof stage_order / sizeof *stage_order };

static int rank_of(const char *stage) {
    int rank = 0;
    while (rank < ORDERED && strcmp(stage_order[rank], stage) != 0) rank++;
    return rank;
}

static int64_t layer_of(const ProbeResult *r) { return r->layer < 0 || r->layer >= CLOVER_MAX_LAYERS ? -1 : r->layer; }

static int stage_row(const Map *m, const char *stage) {
    int row = 0;
    while (row < m->stages && strcmp(m->stage[row], stage) != 0) row++;
    return row;
}

static void add_stage(Map *m, const char *stage) {
    if (stage_row(m, stage) < m->stages || m->stages == MAX_STAGES) return;
    int at = m->stages++;
    for (; at > 0 && rank_of(m->stage[at - 1]) > rank_of(stage); at--) m->stage[at] = m->stage[at - 1];
    m->stage[at] = stage;
}

static bool map_build(Map *m, const ProbeResult *r, int64_t from, int64_t to) {
    bool present[CLOVER_MAX_LAYERS + 1] = { false };
    *m = (Map){ .stages = 0 };
    for (int64_t i = from; i < to; i++) {
        add_stage(m, stage_of(r[i].probe));
        present[layer_of(&r[i]) + 1] = true;
    }
    for (int i = 0; i <= CLOVER_MAX_LAYERS; i++) {
        if (!present[i]) continue;
        m->column[i] = m->layers;
        m->layer[m->layers++] = i - 1;
    }
    m->cell = malloc((size_t)m->stages * (size_t)m->layers * sizeof *m->cell);
    if (!m->cell) return false;
    for (int i = 0; i < m->stages * m->layers; i++) m->cell[i] = -1;
    for (int64_t i = from; i < to; i++) {
        const int row = stage_row(m, stage_of(r[i].probe));
        if (row < m->stages) m->cell[row * m->layers + m->column[layer_of(&r[i]) + 1]] = i;
    }
    return true;
}

static void put_map(Page *p, const Map *m) {
    const ProbeResult *r = p->result->probe;
    html(p, "<div class=scroll><table class=map><thead><tr><th scope=col>stage");
    for (int k = 0; k < m->layers; k++) {
        if (m->layer[k] < 0) html(p, "<th scope=col title=\"of the whole model\">&ndash;");
        else html_format(p, "<th scope=col>%lld", (long long)m->layer[k]);
    }
    html(p, "<tbody>");
    for (int s = 0; s < m->stages; s++) {
        const int64_t *cell = m->cell + s * m->layers;               /* [layers] */
        const char *clause = "";
        for (int k = 0; k < m->layers; k++)
            if (cell[k] >= 0) clause = clause_of(p, &r[cell[k]]);
        html(p, "<tr><th scope=row>");
        html_text(p, m->stage[s]);
        html_format(p, " <i>%s</i>", clause);
        for (int k = 0; k < m->layers; k++) {
            if (cell[k] < 0) {
                html(p, "<td>");
                continue;
            }
            const ProbeResult *q = &r[cell[k]];
            const char *first = cell[k] == p->result->first ? " first" : "";
            html_format(p, "<td class=\"v%d%s%s\" data-i=%lld", colour_of(q), pattern_of(q), first, (long long)cell[k]);
            if (q->verdict != STAGE_CONFORMS) html_format(p, " id=p%lld", (long long)cell[k]);
            html_format(p, ">%s", mark_of(q));
        }
    }
    html(p, "</table></div>");
}

/* ", 3 differ" of results, or the largest share of a budget that one of them uses. */
static void put_differing(Page *p, int64_t from, int64_t to) {
    const ProbeResult *r = p->result->probe;
    int64_t differ = 0;
    double worst = 0;
    for (int64_t i = from; i < to; i++) {
        differ += r[i].verdict >= STAGE_DIFFERS;
        if (!is_choice(stage_of(r[i].probe)) && r[i].verdict != STAGE_REPRESENTATION && budgets(&r[i]) > worst) worst = budgets(&r[i]);
    }
    if (differ) html_format(p, ", <b class=bad>&cross; %lld differ%s</b>", (long long)differ, differ == 1 ? "s" : "");
    else html_format(p, ", at most %.2g of a budget", worst);
}

static void put_step(Page *p, int64_t from, int64_t to, bool open) {
    static const char *const kinds[] = { "commit", "preview", "snapshot", "restore" };
    const ProbeResult *r = p->result->probe;
    const BundleStep *step = step_of(p, &r[from]);
    Map m;
    html_format(p, "<details class=step%s><summary><b>", open ? " open" : "");
    put_place(p, &r[from]);
    html(p, "</b>");
    if (step) html_format(p, " %s of %lld row%s:", kinds[step->kind], (long long)step->n, step->n == 1 ? "" : "s");
    html_format(p, " %lld stage%s", (long long)(to - from), to - from == 1 ? "" : "s");
    put_differing(p, from, to);
    html(p, "</summary>");
    if (map_build(&m, r, from, to)) put_map(p, &m);
    else p->out.no_memory = true;
    free(m.cell);
    html(p, "</details>");
}

static bool same_case(const DiffResult *r, int64_t a, int64_t b) { return strcmp(r->probe[a].case_name, r->probe[b].case_name) == 0; }

/* Where the step of probe i ends. */
static int64_t step_end(const DiffResult *r, int64_t i) {
    int64_t end = i + 1;
    while (end < r->n_probes && same_case(r, i, end) && r->probe[end].step_index == r->probe[i].step_index) end++;
    return end;
}

static int64_t case_end(const DiffResult *r, int64_t i) {
    int64_t end = i + 1;
    while (end < r->n_probes && same_case(r, i, end)) end++;
    return end;
}

/* Open is what holds the first divergence, else what comes first. */
static bool opens(const DiffResult *r, int64_t from, int64_t to) { return r->first < 0 ? from == 0 : r->first >= from && r->first < to; }

/* The steps of a case; in a fold of their own when there are several cases. */
static void put_case_maps(Page *p, int64_t from, int64_t to) {
    const DiffResult *r = p->result;
    const bool fold = to - from < r->n_probes;
    if (fold) {
        html_format(p, "<details class=case%s><summary><b>case ", opens(r, from, to) ? " open" : "");
        html_text(p, r->probe[from].case_name);
        html(p, "</b>");
        put_differing(p, from, to);
        html(p, "</summary>");
    }
    for (int64_t i = from; i < to; i = step_end(r, i)) put_step(p, i, step_end(r, i), opens(r, i, step_end(r, i)));
    if (fold) html(p, "</details>");
}

static void put_maps(Page *p) {
    const DiffResult *r = p->result;
    html(p, "<section id=maps><h2>Layers &times; stages</h2>");
    if (r->n_probes == 0) {
        html(p, "<p>No stage was compared.</p></section>\n");
        return;
    }
    html(p, "<p class=quiet>A column is a layer (&ndash;: the whole model), a row is a stage, in the order of computation from top to bottom. The colour is the error "
           "that the stage itself added, in budgets. Click a cell, or go there with Tab and the arrow keys, for its numbers.</p>"
           "<ul class=legend><li><span class=v0></span> to 0.01 budgets<li><span class=v1></span> to 0.1<li><span class=v2></span> to 0.5<li><span class=v3></span> to 1"
           "<li><span class=v4></span> to 10<li><span class=v5></span> to 100<li><span class=v6></span> beyond"
           "<li><span class=\"v4 bad\">&times;</span> differs<li><span class=\"v6 wrong\">!</span> another shape, or not finite"
           "<li><span class=\"v4 repr\">r</span> another representation: its readers agree<li><span class=\"v1 floor\">f</span> below the floor: a fault could hide in the dump's storage"
           "<li><span class=v2>&asymp;</span> choices differ, all near ties<li><span class=\"v5 bad first\">&times;</span> the first divergence</ul>"
           "<noscript><p class=warn>Without scripts a cell shows its colour and letter; the table of findings has the numbers of those that do not conform.</p></noscript>"
           "<div class=beside><div class=steps>");
    for (int64_t i = 0; i < r->n_probes; i = case_end(r, i)) put_case_maps(p, i, case_end(r, i));
    html(p, "</div><aside id=panel aria-label=\"numbers of a stage\" tabindex=-1 hidden></aside></div></section>\n");
}

/* ---- findings and figures -------------------------------------------------------------------------------------- */

static void put_finding(Page *p, int64_t i) {
    const ProbeResult *r = &p->result->probe[i];
    html_format(p, "<tr><td class=%s>%s<td>", r->verdict >= STAGE_DIFFERS ? "bad" : "quiet", stage_verdict_name(r->verdict));
    put_place(p, r);
    html_format(p, "<td><a href=\"#p%lld\"><code>", (long long)i);
    html_text(p, r->probe);
    html_format(p, "</code></a><td>%s<td>", clause_of(p, r));
    if (is_choice(stage_of(r->probe))) html_format(p, "%lld of %lld<td><td><td>", (long long)r->flips, (long long)r->choices);
    else {
        html_number(p, judged(r)->rms, 3);
        html(p, "<td>");
        html_number(p, r->budget_rms, 3);
        html(p, "<td>");
        html_number(p, budgets(r), 3);
        html(p, "<td>");
        if (r->injected) html_number(p, r->inherited_rms, 3);
    }
    html(p, "<td>");
    html_text(p, r->note);
}

static void put_findings(Page *p) {
    const DiffResult *r = p->result;
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_probes; i++) n += r->probe[i].verdict != STAGE_CONFORMS;
    if (n == 0) return;
    html_format(p, "<section id=findings><h2>What does not simply conform (%lld)</h2><div class=scroll><table class=figures><thead><tr><th scope=col>verdict<th scope=col>step"
                  "<th scope=col>probe<th scope=col>clause<th scope=col>added RMS<th scope=col>budget<th scope=col>budgets<th scope=col>inherited<th scope=col>note<tbody>", (long long)n);
    int64_t left = MAX_FINDINGS;
    for (int pass = 0; pass < 2; pass++)                             /* what differs comes first */
        for (int64_t i = 0; i < r->n_probes; i++) {
            const StageVerdict v = r->probe[i].verdict;
            const bool now = pass == 0 ? v >= STAGE_DIFFERS : v == STAGE_BELOW_FLOOR || v == STAGE_REPRESENTATION;
            if (now && left-- > 0) put_finding(p, i);
        }
    html(p, "</table></div>");
    if (n > MAX_FINDINGS) html_format(p, "<p>And %lld more: in the maps, and in the output of --json.</p>", (long long)(n - MAX_FINDINGS));
    html(p, "</section>\n");
}

static bool has_logits(const ProbeResult *r) { return strcmp(r->probe, "logits") == 0 && r->verdict != STAGE_WRONG; }

static void put_logits(Page *p) {
    const DiffResult *r = p->result;
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_probes; i++) n += has_logits(&r->probe[i]);
    if (n == 0) return;
    html_format(p, "<section id=logits><details%s><summary><h2>Logits (%lld)</h2></summary><div class=scroll><table class=figures><thead><tr><th scope=col>step"
                   "<th scope=col>rows<th scope=col>KL, worst<th scope=col>KL, mean<th scope=col>top-5 overlap<th scope=col>argmax differs<th scope=col>regret, worst<tbody>",
                n <= FEW_LOGITS ? " open" : "", (long long)n);
    for (int64_t i = 0; i < r->n_probes; i++) {
        const ProbeResult *q = &r->probe[i];
        if (!has_logits(q)) continue;
        html(p, "<tr><th scope=row>");
        put_place(p, q);
        html_format(p, "<td>%lld<td>", (long long)q->logits.rows);
        html_number(p, q->logits.kl_max, 3);
        html(p, "<td>");
        html_number(p, q->logits.kl_mean, 3);
        html(p, "<td>");
        html_number(p, q->logits.top5_overlap, 4);
        html_format(p, "<td>%lld<td>", (long long)q->logits.argmax_differs);
        html_number(p, q->logits.regret_max, 3);
    }
    html(p, "</table></div></details></section>\n");
}

static void put_list(Page *p, const char *id, const char *title, char *const *lines, int64_t n, bool open) {
    if (n == 0) return;
    html_format(p, "<section id=%s><details%s><summary><h2>%s (%lld)</h2></summary><ul>", id, open ? " open" : "", title, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        html(p, "<li>");
        html_text(p, lines[i]);
    }
    html(p, "</ul></details></section>\n");
}

/* ---- the list that the script reads ---------------------------------------------------------------------------- */

static void put_json_difference(Page *p, const Difference *d) {
    const double figures[] = { d->max, d->mean, d->rms, d->p99, d->relative, d->cosine, d->ulp };
    html(p, ",[");
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        put_json_number(p, figures[i], &figures[i] == &figures[5] ? 9 : 3);      /* a cosine is 0.99999… */
        html(p, ",");
    }
    html_format(p, "%lld,", (long long)d->worst);
    put_json_number(p, d->expected, 9);
    html(p, ",");
    put_json_number(p, d->actual, 9);
    html_format(p, ",%lld]", (long long)d->not_finite);
}

/* [step, probe, clause, type, [shape], verdict, total, added or 0, [inherited, floor, budget: rms, max each], budgets, beyond, passing,
 * [choices, flips, near ties] or 0, logits or 0, note]: without names, for a page may have 20,000 of them. */
static void put_json_probe(Page *p, int64_t step, const ProbeResult *r) {
    const double bounds[] = { r->inherited_rms, r->inherited_max, r->floor_rms, r->floor_max, r->budget_rms, r->budget_max };
    const double logits[] = { r->logits.kl_max, r->logits.kl_mean, r->logits.top5_overlap, r->logits.regret_max };
    html_format(p, "[%lld,", (long long)step);
    put_json_text(p, r->probe);
    html_format(p, ",\"%s\",\"%s\",[", clause_of(p, r), type_name(r));
    for (int d = 0; d < r->dims; d++) html_format(p, "%s%lld", d ? "," : "", (long long)r->shape[d]);
    html_format(p, "],%d", (int)r->verdict);
    put_json_difference(p, &r->total);
    if (r->injected) put_json_difference(p, &r->added);
    else html(p, ",0");
    html(p, ",[");
    for (int i = 0; i < 6; i++) {
        put_json_number(p, bounds[i], 3);
        html(p, i < 5 ? "," : "],");
    }
    put_json_number(p, budgets(r), 3);
    html(p, ",");
    put_json_number(p, r->beyond, 3);
    html(p, ",");
    put_json_number(p, r->passing, 3);
    if (is_choice(stage_of(r->probe))) html_format(p, ",[%lld,%lld,%lld]", (long long)r->choices, (long long)r->flips, (long long)r->near_ties);
    else html(p, ",0");
    if (strcmp(r->probe, "logits") == 0) {
        html_format(p, ",[%lld,%lld", (long long)r->logits.rows, (long long)r->logits.argmax_differs);
        for (int i = 0; i < 4; i++) {
            html(p, ",");
            put_json_number(p, logits[i], 3);
        }
        html(p, "],");
    } else html(p, ",0,");
    put_json_text(p, r->note);
    html(p, "]");
}

static void put_data(Page *p) {
    const DiffResult *r = p->result;
    html(p, "<script type=\"application/json\" id=data>{\"verdicts\":[");
    for (StageVerdict v = STAGE_CONFORMS; v <= STAGE_WRONG; v++) html_format(p, "%s\"%s\"", v ? "," : "", stage_verdict_name(v));
    html(p, "],\"steps\":[");
    for (int64_t i = 0; i < r->n_probes; i = step_end(r, i)) {
        html(p, i ? ",[" : "[");
        put_json_text(p, r->probe[i].case_name);
        html(p, ",");
        put_json_text(p, r->probe[i].step);
        html(p, "]");
    }
    html_format(p, "],\"first\":%lld,\"probes\":[", (long long)r->first);
    int64_t step = 0;
    for (int64_t i = 0, end; i < r->n_probes; i = end, step++) {
        end = step_end(r, i);
        for (int64_t k = i; k < end; k++) {
            if (k) html(p, ",\n");
            put_json_probe(p, step, &r->probe[k]);
        }
    }
    html(p, "]}</script>\n<script>");
    put_lines(p, diff_html_script);
    html(p, "</script>\n");
}

CloverStatus diff_html(const DiffResult *r, const Bundle *b, const char *dump, const char *path, CloverError *err) {
    Page p = { .result = r, .bundle = b, .dump = dump, .room = DRAWN_DECISIONS };
    CloverStatus status = put_head(&p, err);
    if (status == CLOVER_OK) {
        put_verdict(&p);
        html(&p, "<main>\n");
        put_first(&p);
        put_diagnosis(&p);
        put_features(&p);
        put_maps(&p);
        put_findings(&p);
        put_list(&p, "notes", "Notes", r->note, r->n_notes, true);
        html_traces(&p);
        put_logits(&p);
        put_list(&p, "not-compared", "Not compared", r->not_compared, r->n_not_compared, r->n_not_compared <= 50);
        html(&p, "</main>\n");
        put_data(&p);
        html(&p, "</body>\n</html>\n");
        status = p.out.no_memory ? error_memory(err, path, p.out.n) : output_file(path, p.out.data, p.out.n, true, err);
    }
    buffer_free(&p.out);
    return status;
}
