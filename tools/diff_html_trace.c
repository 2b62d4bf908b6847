/* diff_html_trace.c - decisions on the diff's page: each block's denoising as a grid of rows x passes, each draft round with
 * what became of its tokens, AR tokens in a line; the golden's and, where the dump has a trace, the engine's beside it. [DIF-10]
 *
 * Traces are files of others: whatever is not as `clover run --json` writes it is passed over, never trusted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "diff_html.h"
#include "json_check.h"

enum { MAX_ROWS = 65536, MAX_CELLS = 1 << 22 };

static const char *step_kind(const json_t *step) {
    const char *kind = json_string_value(json_object_get(step, "step"));
    return kind ? kind : "";
}
static bool is_kind(const json_t *step, const char *kind) { return strcmp(step_kind(step), kind) == 0; }
static int64_t whole(const json_t *object, const char *key) { return json_integer_value(json_object_get(object, key)); }

/* ---- blocks ---------------------------------------------------------------------------------------------------- */

/* A row of a block at a pass. OPEN: still a mask, id is what it would become; FIXED: decided here; KEPT: decided before. */
typedef enum CellKind { CELL_NONE, CELL_OPEN, CELL_FIXED, CELL_KEPT } CellKind;
typedef struct Cell { CellKind kind; int64_t id; double p; } Cell;

typedef struct Grid {
    int64_t position, rows, passes, emitted;     /* emitted -1: the block did not end */
    Cell *cell;                                  /* [passes, rows]; NULL: no memory, or too large to draw */
} Grid;

/* A row number that a trace may have, or -1. */
static int64_t row_number(const json_t *value) {
    const int64_t row = json_is_integer(value) ? json_integer_value(value) : -1;
    return row < MAX_ROWS ? row : -1;
}

static int64_t rows_of(const json_t *const *passes, int64_t n, const json_t *block) {
    int64_t rows = (int64_t)json_array_size(json_object_get(block, "ids"));
    size_t i;
    json_t *value;
    for (int64_t t = 0; t < n; t++) {
        json_array_foreach(json_object_get(passes[t], "candidates"), i, value) {
            const int64_t row = row_number(json_array_get(value, 0));
            if (row >= rows) rows = row + 1;
        }
    }
    return rows > MAX_ROWS ? MAX_ROWS : rows;
}

static void fill_pass(Grid *g, int64_t t, const json_t *pass) {
    Cell *now = g->cell + t * g->rows;                               /* [rows] */
    size_t i;
    json_t *value;
    for (int64_t row = 0; row < g->rows; row++) {
        const Cell *before = t ? now - g->rows + row : NULL;
        const bool decided = before && (before->kind == CELL_FIXED || before->kind == CELL_KEPT);
        now[row] = decided ? (Cell){ CELL_KEPT, before->id, before->p } : (Cell){ .kind = CELL_NONE, .id = -1, .p = NAN };
    }
    json_array_foreach(json_object_get(pass, "candidates"), i, value) {
        const int64_t row = row_number(json_array_get(value, 0));
        if (row < 0 || row >= g->rows) continue;
        now[row] = (Cell){ CELL_OPEN, json_integer_value(json_array_get(value, 1)), json_number_value(json_array_get(value, 2)) };
    }
    json_array_foreach(json_object_get(pass, "fixed"), i, value) {
        const int64_t row = row_number(value);
        if (row >= 0 && row < g->rows) now[row].kind = CELL_FIXED;
    }
}

/* The next block of steps from *at on; false: there is none. Free g->cell. */
static bool next_block(const json_t *steps, size_t *at, Grid *g) {
    const size_t n = json_array_size(steps);
    size_t first = *at;
    while (first < n && !is_kind(json_array_get(steps, first), "pass")) first++;
    if (first == n) return false;
    size_t end = first + 1;
    while (end < n && is_kind(json_array_get(steps, end), "pass") && whole(json_array_get(steps, end), "passno") != 0) end++;
    const json_t *block = end < n && is_kind(json_array_get(steps, end), "block") ? json_array_get(steps, end) : NULL;
    *at = block ? end + 1 : end;

    *g = (Grid){ .position = whole(json_array_get(steps, first), "pos"), .passes = (int64_t)(end - first) };
    g->emitted = block ? whole(block, "emitted") : -1;
    const json_t **passes = calloc(end - first, sizeof *passes);
    if (!passes) return true;
    for (size_t t = first; t < end; t++) passes[t - first] = json_array_get(steps, t);
    g->rows = rows_of(passes, g->passes, block);
    if (g->rows > 0 && g->passes <= MAX_CELLS / g->rows) g->cell = calloc((size_t)(g->rows * g->passes), sizeof *g->cell);
    for (int64_t t = 0; t < g->passes && g->cell; t++) fill_pass(g, t, passes[t]);
    free(passes);
    return true;
}

/* The token decided for this row at this pass, or -1. */
static int64_t decision(const Grid *g, int64_t t, int64_t row) {
    if (!g->cell || t >= g->passes || row >= g->rows) return -1;
    const Cell *c = &g->cell[t * g->rows + row];
    return c->kind == CELL_FIXED ? c->id : -1;
}

static bool grids_differ(const Grid *a, const Grid *b) {
    const int64_t passes = a->passes > b->passes ? a->passes : b->passes, rows = a->rows > b->rows ? a->rows : b->rows;
    if (a->passes != b->passes || a->rows != b->rows || a->position != b->position) return true;
    for (int64_t t = 0; t < passes; t++)
        for (int64_t row = 0; row < rows; row++)
            if (decision(a, t, row) != decision(b, t, row)) return true;
    return false;
}

/* 0 to 9. */
static int shade(double p) { return isnan(p) || p <= 0 ? 0 : p >= 1 ? 9 : (int)(p * 10); }

/* Confidence as .97; what would round to 1 but is less stays below it. */
static void put_confidence(Page *p, double value) {
    if (isnan(value)) html(p, "?");
    else if (value >= 1) html(p, "1");
    else if (value < 0.005) html(p, "0");
    else html_format(p, ".%02d", value >= 0.99 ? 99 : (int)(value * 100 + 0.5));
}

static void put_cell(Page *p, const Cell *c, bool differs) {
    const char *mark = differs ? " ne" : "";
    if (c->kind == CELL_NONE) html_format(p, "<td class=\"none%s\">", mark);
    else if (c->kind == CELL_KEPT) html_format(p, "<td class=\"kept%s\">%lld", mark, (long long)c->id);
    else if (c->kind == CELL_FIXED) {
        html_format(p, "<td class=\"p%d fixed%s\"><b>%lld</b> <small>", shade(c->p), mark, (long long)c->id);
        put_confidence(p, c->p);
        html(p, "</small>");
    } else {
        html_format(p, "<td class=\"p%d%s\"><small>%lld</small> ", shade(c->p), mark, (long long)c->id);
        put_confidence(p, c->p);
    }
}

static void put_grid(Page *p, const char *title, const Grid *g, const Grid *other) {
    html_format(p, "<div class=scroll><table class=grid><caption>%s</caption><thead><tr><th scope=col>row", title);
    for (int64_t t = 0; t < g->passes; t++) html_format(p, "<th scope=col>pass %lld", (long long)t);
    html(p, "<tbody>");
    for (int64_t row = 0; row < g->rows; row++) {
        const bool cut = g->emitted >= 0 && row >= g->emitted;       /* never became part of the answer */
        html_format(p, "<tr%s><th scope=row>%lld", cut ? " class=cut" : "", (long long)row);
        for (int64_t t = 0; t < g->passes; t++)
            put_cell(p, &g->cell[t * g->rows + row], other && decision(g, t, row) != decision(other, t, row));
    }
    html(p, "</table></div>");
    p->room -= g->rows * g->passes;
}

/* golden, engine: NULL where that side has no such block. compared: there is an engine's trace. */
static void put_block(Page *p, int64_t number, const Grid *golden, const Grid *engine, bool compared) {
    const Grid *g = golden ? golden : engine;
    const bool differs = compared && (!golden || !engine || grids_differ(golden, engine));
    html_format(p, "<details%s><summary>Block %lld at position %lld: %lld row%s, %lld pass%s", differs || number < 2 ? " open" : "",
                (long long)number, (long long)g->position, (long long)g->rows, g->rows == 1 ? "" : "s", (long long)g->passes,
                g->passes == 1 ? "" : "es");
    if (g->emitted < 0) html(p, ", did not end");
    else if (g->emitted < g->rows) html_format(p, ", %lld of the rows went out", (long long)g->emitted);
    const char *how = !engine ? "the engine has no such block" : !golden ? "the golden has no such block" : "decided otherwise";
    if (differs) html_format(p, " <b class=bad>&ne; %s</b>", how);
    else if (compared) html(p, ", the same decisions");
    html(p, "</summary><div class=pair>");
    const int64_t cells = (golden && golden->cell ? golden->rows * golden->passes : 0) + (engine && engine->cell ? engine->rows * engine->passes : 0);
    if (cells == 0 || cells > p->room) html(p, "<p>Too large to draw here; its trace.json has it.</p>");
    else {
        if (golden && golden->cell) put_grid(p, "golden", golden, engine);
        if (engine && engine->cell) put_grid(p, "engine", engine, golden);
    }
    html(p, "</div></details>");
}

static void put_blocks(Page *p, const json_t *golden, const json_t *engine) {
    size_t at = 0, engine_at = 0;
    for (int64_t number = 0;; number++) {
        Grid a = { 0 }, b = { 0 };
        const bool has_a = next_block(golden, &at, &a), has_b = engine && next_block(engine, &engine_at, &b);
        if (has_a || has_b) put_block(p, number, has_a ? &a : NULL, has_b ? &b : NULL, engine != NULL);
        free(a.cell);
        free(b.cell);
        if (!has_a && !has_b) return;
    }
}

/* ---- draft rounds ---------------------------------------------------------------------------------------------- */

static void put_round(Page *p, const json_t *round) {
    const json_t *draft = json_object_get(round, "draft"), *judged = json_object_get(round, "judged");
    size_t i;
    json_t *value;
    json_array_foreach((json_t *)(uintptr_t)draft, i, value) {
        const json_t *verdict = i ? json_array_get(judged, i - 1) : NULL;
        const bool accepted = json_is_true(json_array_get(verdict, 3));
        const char *kind = i == 0 ? "pending" : !verdict ? "unjudged" : accepted ? "accepted" : "rejected";
        html_format(p, "<span class=\"tok %s\">%lld", kind, (long long)json_integer_value(value));
        if (verdict) {
            html_format(p, " %s <small>p ", accepted ? "&check;" : "&cross;");
            html_number(p, json_number_value(json_array_get(verdict, 1)), 2);
            html(p, ", H ");
            html_number(p, json_number_value(json_array_get(verdict, 2)), 2);
            html(p, "</small>");
        }
        html(p, "</span> ");
        p->room--;
    }
    if (json_is_integer(json_object_get(round, "bonus")) && whole(round, "bonus") >= 0)
        html_format(p, "<span class=\"tok bonus\">&rarr; %lld</span>", (long long)whole(round, "bonus"));
}

static const json_t *next_step(const json_t *steps, const char *kind, size_t *at) {
    while (*at < json_array_size(steps)) {
        const json_t *step = json_array_get(steps, (*at)++);
        if (is_kind(step, kind)) return step;
    }
    return NULL;
}

/* Two rounds' decisions, without the probabilities behind them. */
static bool rounds_differ(const json_t *a, const json_t *b) {
    static const char *const keys[] = { "pos", "draft", "accepted", "bonus" };
    if (!a || !b) return true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i]))) return true;
    return false;
}

static void put_rounds(Page *p, const json_t *golden, const json_t *engine) {
    size_t at = 0, engine_at = 0;
    html_format(p, "<div class=scroll><table class=rounds><thead><tr><th scope=col>round<th scope=col>position<th scope=col>golden%s<tbody>",
                engine ? "<th scope=col>engine" : "");
    for (int64_t number = 0; p->room > 0; number++) {
        const json_t *a = next_step(golden, "round", &at), *b = engine ? next_step(engine, "round", &engine_at) : NULL;
        if (!a && !b) break;
        const bool differs = engine && rounds_differ(a, b);
        html_format(p, "<tr%s><th scope=row>%lld%s<td>%lld<td>", differs ? " class=ne" : "", (long long)number, differs ? " &ne;" : "",
                    (long long)whole(a ? a : b, "pos"));
        if (a) put_round(p, a);
        else html(p, "no such round");
        if (engine) html(p, "<td>");
        if (engine && b) put_round(p, b);
        else if (engine) html(p, "no such round");
    }
    html(p, "</table></div>");
    if (p->room <= 0) html(p, "<p>The rest is too much to draw here; its trace.json has it.</p>");
}

/* ---- tokens in a line ------------------------------------------------------------------------------------------ */

static void put_line(Page *p, const char *title, const json_t *ids, const json_t *other) {
    size_t i;
    json_t *value;
    html_format(p, "<div class=line><b>%s</b> ", title);
    json_array_foreach((json_t *)(uintptr_t)ids, i, value) {
        if (p->room-- <= 0) {
            html(p, "<span>and more, in its trace.json</span>");
            break;
        }
        const bool differs = other && !json_equal(value, json_array_get(other, i));
        html_format(p, "<span class=\"tok%s\">%lld</span> ", differs ? " ne" : "", (long long)json_integer_value(value));
    }
    html(p, "</div>");
}

/* ---- cases ----------------------------------------------------------------------------------------------------- */

/* The dump's trace.json: DUMP/CASE/trace.json, or at the top for a single case. NULL: none, or *why says why not. */
static json_t *engine_trace(const Page *p, const BundleCase *c, CloverError *why) {
    error_clear(why);
    if (!p->dump) return NULL;
    char *inside = text_format(why, "%s/%s/trace.json", p->dump, c->name), *top = text_format(why, "%s/trace.json", p->dump);
    json_t *trace = NULL;
    if (inside && access(inside, F_OK) == 0) trace = json_read(inside, why);
    else if (top && p->bundle->n_cases == 1 && access(top, F_OK) == 0) trace = json_read(top, why);
    free(inside);
    free(top);
    return trace;
}

static json_t *golden_trace(const Page *p, const BundleCase *c, CloverError *why) {
    error_clear(why);
    char *path = bundle_file(p->bundle, c, "trace", ".json");
    json_t *trace = path ? json_read(path, why) : NULL;
    if (!path) error_memory(why, "a file's name", 0);
    free(path);
    return trace;
}

static bool has_steps(const json_t *steps, const char *kind) {
    size_t at = 0;
    return next_step(steps, kind, &at) != NULL;
}

static void put_answer(Page *p, const char *title, const json_t *trace) {
    const char *text = json_string_value(json_object_get(trace, "text"));
    if (!text) return;
    html_format(p, "<div class=scroll><b>%s</b><pre>", title);
    html_lines(p, text);
    html(p, "</pre></div>");
}

static void put_problem(Page *p, const char *whose, const CloverError *why) {
    html_format(p, "<p class=warn>The %s's trace cannot be read: ", whose);
    html_text(p, why->text);
    html(p, "</p>");
}

static void put_case(Page *p, const BundleCase *c) {
    CloverError why, engine_why;
    json_t *golden = golden_trace(p, c, &why), *engine = engine_trace(p, c, &engine_why);
    const json_t *steps = json_object_get(golden, "steps"), *engine_steps = json_object_get(engine, "steps");
    const json_t *tokens = json_object_get(golden, "tokens"), *engine_tokens = json_object_get(engine, "tokens");
    const char *mode = json_string_value(json_object_get(golden, "mode"));

    html(p, "<section><h3>");
    html_text(p, c->name);
    if (mode) html(p, " <small>");
    if (mode) html_text(p, mode);
    html(p, mode ? "</small></h3>" : "</h3>");
    for (int64_t i = 0; i < p->result->n_traces; i++) {
        const TraceResult *t = &p->result->trace[i];
        if (!t->compared || strcmp(t->case_name, c->name) != 0) continue;
        html_format(p, "<p class=\"%s\">", t->differs ? t->explained ? "warn" : "bad" : "good");
        if (!t->differs) html(p, "Every decision is the golden's.");
        html_text(p, t->differs ? t->text : "");
        html(p, "</p>");
    }
    if (!golden) put_problem(p, "golden", &why);
    if (engine_why.status != CLOVER_OK) put_problem(p, "dump", &engine_why);
    if (golden && !engine && engine_why.status == CLOVER_OK) html(p, "<p class=quiet>The dump has no trace of this case; the golden's stands alone.</p>");
    if (json_is_array(tokens)) put_line(p, "golden", tokens, NULL);
    if (json_is_array(engine_tokens)) put_line(p, "engine", engine_tokens, tokens);
    put_answer(p, "golden", golden);
    put_answer(p, "engine", engine);
    if (has_steps(steps, "pass") || has_steps(engine_steps, "pass")) put_blocks(p, steps, engine_steps);
    if (has_steps(steps, "round") || has_steps(engine_steps, "round")) put_rounds(p, steps, engine_steps);
    html(p, "</section>");
    json_decref(golden);
    json_decref(engine);
}

void html_traces(Page *p) {
    bool any = false;
    for (int64_t i = 0; i < p->bundle->n_cases; i++) {
        const BundleCase *c = &p->bundle->cases[i];
        if (!c->has_trace) continue;
        if (!any)
            html(p, "<section id=traces><h2>Decisions</h2>"
                   "<p class=quiet>A block's grid has a row for each of its rows and a column for each pass. A masked row shows the token that it would become and its "
                   "confidence; <b>bold</b> in a frame: fixed in this pass; grey: fixed before. Struck out: never became part of the answer. "
                   "<span class=ne>&ne;</span>: decided otherwise than the other side.</p>"
                   "<p class=scale><span class=p0>.0</span><span class=p1>.1</span><span class=p2>.2</span><span class=p3>.3</span><span class=p4>.4</span>"
                   "<span class=p5>.5</span><span class=p6>.6</span><span class=p7>.7</span><span class=p8>.8</span><span class=p9>.9</span> confidence</p>"
                   "<p class=quiet>A draft's round: its pending token, then each candidate with p and the entropy H of its row: "
                   "<span class=\"tok accepted\">accepted &check;</span> <span class=\"tok rejected\">rejected &cross;</span> "
                   "<span class=\"tok unjudged\">not judged</span>, and the token that was <span class=\"tok bonus\">&rarr; chosen</span> after them.</p>");
        any = true;
        put_case(p, c);
    }
    if (any) html(p, "</section>");
}
