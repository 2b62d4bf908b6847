/* test_diff_html.c - the diff's page, from results made by hand. What it looks like in a browser is tests/peers/peer_report.sh's
 * matter, which opens the two pages that the last tests here leave: build/tmp/report.html and report-large.html. [DIF-10] */
#include <jansson.h>
#include <math.h>
#include <openssl/err.h>
#include "../tools/diff_parts.h"
#include "diff_html_example.h"
#include "failing_malloc.h"

/* ---- a result ------------------------------------------------------------------------------------------------------- */

#define EVIL "<img src=x>&\"'\n\xff"
#define EVIL_ESCAPED "&lt;img src=x&gt;&amp;&quot;&#39;\\n\xef\xbf\xbd"

static char folder[TEST_PATH];
static CloverError err;
static char *page;                   /* the last one written */

static void setup(void) { make_folder("diff-html", folder); }
static void teardown(void) {
    free(page);
    page = NULL;
    remove_folder(folder);
}

/* Numbers of which each is told from each other in the page. */
static ProbeResult probe_named(const char *case_name, const char *step, int64_t step_index, const char *name, int64_t layer) {
    ProbeResult r = { .case_name = case_name, .step = step, .step_index = step_index, .layer = layer, .type = DT_F32, .shape = { 5, 4, 8 }, .dims = 3, .injected = true,
                      .total = { 1.11e-3, 1.12e-4, 1.13e-4, 1.14e-4, 1.15e-4, 0.123456789, 16, 70, 1.5, 1.25, 0 },
                      .added = { 2.11e-7, 2.12e-8, 2.13e-8, 2.14e-8, 2.15e-8, 0.987654321, 26, 75, 2.5, 2.25, 0 },
                      .inherited_rms = 3.11e-4, .inherited_max = 3.12e-4, .floor_rms = 4.11e-7, .floor_max = 4.12e-7, .budget_rms = 5.11e-6, .budget_max = 5.12e-6,
                      .beyond = 0.0625, .passing = 0.75, .verdict = STAGE_CONFORMS };
    snprintf(r.probe, sizeof r.probe, "%s", name);
    return r;
}

static void read_page(const char *path) {
    Bytes b = read_file(path);
    put_number(&b, 0, 1);
    free(page);
    page = (char *)b.data;
}

static void write_page(const DiffResult *r, const Bundle *b, const char *dump) {
    const char *path = in_folder(folder, "report.html");
    assert_ok(diff_html(r, b, dump, path, &err), err);
    read_page(path);
}

/* The list that the page's script reads. */
static json_t *page_data(void) {
    const char *from = strstr(page, "id=data>"), *to = from ? strstr(from, "</script>") : NULL;
    json_error_t why;
    ck_assert_ptr_nonnull(to);
    from += strlen("id=data>");
    json_t *data = json_loadb(from, (size_t)(to - from), JSON_REJECT_DUPLICATES, &why);
    ck_assert_msg(data != NULL, "%s", why.text);
    return data;
}

#define assert_has(text) ck_assert_msg(strstr(page, (text)) != NULL, "the page lacks %s", (text))
#define assert_lacks(text) ck_assert_msg(strstr(page, (text)) == NULL, "the page has %s", (text))

static int count(const char *text) {
    const size_t length = strlen(text);
    int n = 0;
    for (const char *at = page; *at; at++) n += *at == *text && strncmp(at, text, length) == 0;
    return n;
}

/* One case "one" of two steps, a commit of 5 rows and a preview of 3. */
static char path_text[] = "golden-path";
static BundleStep two_steps[] = { { .name = "commit", .kind = STEP_COMMIT, .n = 5, .recorded = true }, { .name = "preview", .kind = STEP_PREVIEW, .n = 3, .recorded = true } };
static BundleCase one_case = { .name = "one", .why = "", .folder = "one", .step = two_steps, .n_steps = 2 };
static const Bundle one_bundle = { .path = path_text, .model_path = "model.gguf", .numerics = "exact", .cases = &one_case, .n_cases = 1 };

static DiffResult result_of(ProbeResult *probes, int64_t n) {
    return (DiffResult){ .verdict = DIFF_CONFORMS, .profile = "f32", .margin_rms = 8, .margin_max = 16, .probe = probes, .n_probes = n, .first = -1 };
}

/* [DIA-4] What is named stands behind the first divergence, escaped. */
START_TEST(the_diagnosis) {
    ProbeResult p = probe_named("one", "commit", 0, "L00.gdn.q", 0);
    Diagnosis named[2] = { { .hypothesis = "l2_mean", .clause = "ROW-2", .says = "normalises <q> & k", .lint = "", .case_name = "one", .step = "commit", .probe = "L00.gdn.q", .layer = 3,
                             .rank = DIAGNOSIS_CAUSE, .residual = 2e-7, .floor = 1e-7 },
                           { .hypothesis = "tie_takes_last", .clause = "AR-2", .says = "takes the last", .lint = "head-order", .case_name = "one", .probe = "trace", .layer = -1,
                             .rank = DIAGNOSIS_ALIKE, .tells = "dump gdn.v" } };
    DiffResult r = result_of(&p, 1);
    write_page(&r, &one_bundle, NULL);
    assert_lacks("<h2>Diagnosis");
    r.diagnosed = true;
    write_page(&r, &one_bundle, NULL);
    assert_has("None of the known mistakes");
    r.diagnosis = named, r.n_diagnoses = 2;
    write_page(&r, &one_bundle, NULL);
    assert_has("Your engine normalises &lt;q&gt; &amp; k, in layer 3 only [ROW-2] (<code>l2_mean</code>)");
    assert_has("Or it takes the last");
    assert_has("to tell: dump gdn.v");
    assert_has("(head-order)");
}
END_TEST

/* ---- one file, no network ------------------------------------------------------------------------------------------- */

START_TEST(nothing_is_fetched_and_only_our_script_may_run) {
    ProbeResult p = probe_named("one", "commit", 0, "L00.attn_norm", 0);
    DiffResult r = result_of(&p, 1);
    write_page(&r, &one_bundle, NULL);
    assert_has("default-src 'none'; style-src 'sha256-");
    assert_lacks("unsafe-inline");
    assert_lacks("http:");
    assert_lacks("https:");
    assert_lacks("src=");
    assert_lacks("url(");
    assert_lacks("@import");
    assert_lacks("style=");
    assert_has("prefers-color-scheme: dark");
    ck_assert_int_eq(count("<script"), 2);
    ck_assert_int_eq(strncmp(page, "<!doctype html>", 15), 0);
    ck_assert_str_eq(page + strlen(page) - 8, "</html>\n");
}
END_TEST

START_TEST(text_of_files_is_escaped_everywhere) {
    char evil[] = EVIL, *lines[] = { evil };
    BundleStep step = { .name = evil, .kind = STEP_COMMIT, .n = 5 };
    BundleCase c = { .name = evil, .folder = evil, .step = &step, .n_steps = 1, .has_trace = true };
    Bundle b = { .path = folder, .model_path = evil, .numerics = evil, .cases = &c, .n_cases = 1 };
    ProbeResult p = probe_named(evil, evil, 0, "L00." EVIL, 0);
    TraceResult t = { .case_name = evil, .compared = true, .differs = true };
    DiffResult r = result_of(&p, 1);
    snprintf(p.note, sizeof p.note, "%s</script><script>alert(1)", evil);
    snprintf(t.text, sizeof t.text, "%s", evil);
    p.verdict = STAGE_DIFFERS;
    r.verdict = DIFF_DIFFERS;
    r.profile = evil;
    r.first = 0;
    r.trace = &t;
    r.n_traces = r.n_notes = r.n_not_compared = 1;
    r.note = r.not_compared = lines;
    write_page(&r, &b, evil);
    assert_lacks("<img");
    assert_lacks("<script>alert");
    assert_lacks("\xff");
    assert_has("<dt>dump<dd>" EVIL_ESCAPED);
    assert_has("<dt>model<dd>" EVIL_ESCAPED);
    assert_has("numerics " EVIL_ESCAPED);
    assert_has("<dt>profile<dd>" EVIL_ESCAPED);
    assert_has("<dt>case<dd>" EVIL_ESCAPED);
    assert_has("<dt>step<dd>" EVIL_ESCAPED);
    assert_has("<code>L00." EVIL_ESCAPED);
    assert_has("<th scope=row>" EVIL_ESCAPED);
    assert_has("<h3>" EVIL_ESCAPED);
    assert_has("<p class=\"bad\">" EVIL_ESCAPED);
    ck_assert_int_eq(count("<li>" EVIL_ESCAPED), 2);
    ck_assert_int_eq(count("<script"), 2);

    json_t *data = page_data();
    const json_t *probe = json_array_get(json_object_get(data, "probes"), 0);
    ck_assert_str_eq(json_string_value(json_array_get(probe, 1)), "L00.<img src=x>&\"'\n\xef\xbf\xbd");
    ck_assert_str_eq(json_string_value(json_array_get(probe, 14)), "<img src=x>&\"'\n\xef\xbf\xbd</script><script>alert(1)");
    ck_assert_str_eq(json_string_value(json_array_get(json_array_get(json_object_get(data, "steps"), 0), 0)), "<img src=x>&\"'\n\xef\xbf\xbd");
    json_decref(data);
}
END_TEST

/* ---- verdict and first divergence ----------------------------------------------------------------------------------- */

START_TEST(the_first_line_is_the_verdict) {
    DiffResult r = result_of(NULL, 0);
    write_page(&r, &one_bundle, "dump-path");
    assert_has("<h1 class=good>&check; Conforms</h1>");
    assert_has("<dt>golden<dd>golden-path, numerics exact<dt>dump<dd>dump-path<dt>model<dd>model.gguf<dt>profile<dd>f32; a budget is 8 times the floor by RMS, 16 times by worst element");
    assert_has("No stage was compared.");
    assert_lacks("First divergence");
    r.verdict = DIFF_INCOMPARABLE;
    write_page(&r, &one_bundle, NULL);
    assert_has("<h1 class=warn>? Incomparable</h1>");
    r.verdict = DIFF_DIFFERS;
    write_page(&r, &one_bundle, NULL);
    assert_has("<h1 class=bad>&cross; Differs</h1><p>No stage differs; the decisions below do.");
}
END_TEST

START_TEST(the_first_divergence_has_its_place_and_its_numbers) {
    ProbeResult p[] = { probe_named("one", "commit", 0, "L03.gdn.mixed", 3), probe_named("one", "preview", 1, "L03.gdn.mixed", 3) };
    DiffResult r = result_of(p, 2);
    p[1].verdict = STAGE_DIFFERS;
    r.verdict = DIFF_DIFFERS;
    r.first = 1;
    write_page(&r, &one_bundle, NULL);
    assert_has("first at <code>L03.gdn.mixed</code> of one/preview.");
    assert_has("<dt>case<dd>one<dt>step<dd>preview<dt>probe<dd><a href=\"#p1\"><code>L03.gdn.mixed</code></a><dt>clause of SPEC.md<dd>PRV-6");
    assert_has("row 2, index [2, 1, 3]");            /* 75 of [5, 4, 8] */
    assert_has("<dt>expected<dd><code>2.5</code><dt>actual<dd><code>2.25</code>");
    assert_has("added here<td>2.13e-08<td>2.11e-07<tr><th scope=row>inherited<td>0.000311<td>0.000312<tr><th scope=row>total<td>0.000113<td>0.00111"
               "<tr><th scope=row>budget<td>5.11e-06<td>5.12e-06");
    assert_has("gdn.mixed <i>GDN-6</i>");            /* the clause of the commit's */
    assert_has("gdn.mixed <i>PRV-6</i>");

    p[1].injected = false;                           /* no model: nothing is known of added and inherited */
    write_page(&r, &one_bundle, NULL);
    assert_lacks("added here");
    assert_has("row 2, index [2, 0, 6]");            /* 70 */
    assert_has("<tbody><tr><th scope=row>total<td>0.000113<td>0.00111");

    snprintf(p[1].note, sizeof p[1].note, "shape [4], expected [5]");
    p[1].verdict = STAGE_WRONG;
    write_page(&r, &one_bundle, NULL);
    assert_has("<dt>note<dd>shape [4], expected [5]</dl></section>");

    p[1].total = (Difference){ .max = INFINITY, .rms = NAN, .expected = 1, .actual = -INFINITY, .not_finite = 3 };
    write_page(&r, &one_bundle, NULL);
    assert_has("<dt>expected<dd><code>1</code><dt>actual<dd><code>-Infinity</code>");
    assert_has("total<td>NaN<td>Infinity");
}
END_TEST

START_TEST(choices_are_counted) {
    ProbeResult p = probe_named("one", "commit", 0, "L00.moe.ids", 0);
    DiffResult r = result_of(&p, 1);
    p.choices = 40;
    p.flips = 3;
    p.near_ties = 1;
    p.verdict = STAGE_DIFFERS;
    r.first = 0;
    r.verdict = DIFF_DIFFERS;
    write_page(&r, &one_bundle, NULL);
    assert_has("<dt>choices<dd>3 of 40 differ, 1 of them near ties");
    assert_has("<td class=\"v6 bad first\" data-i=0 id=p0>&times;");
    p.verdict = STAGE_CONFORMS;
    r.first = -1;
    write_page(&r, &one_bundle, NULL);
    assert_has("<td class=\"v2\" data-i=0>&asymp;");
    p.flips = 0;
    write_page(&r, &one_bundle, NULL);
    assert_has("<td class=\"v0\" data-i=0></table>");
}
END_TEST

/* ---- the map -------------------------------------------------------------------------------------------------------- */

/* Colour by error against budget, a letter and a pattern by verdict. */
START_TEST(a_cell_tells_its_verdict_without_colour) {
    static const struct { double rms, max; StageVerdict verdict; const char *cell; } cases[] = {
        { 0, 0, STAGE_CONFORMS, "\"v0\" data-i=0>" }, { 0.01, 0, STAGE_CONFORMS, "\"v0\" data-i=0>" }, { 0.02, 0, STAGE_CONFORMS, "\"v1\" data-i=0>" },
        { 0, 0.2, STAGE_CONFORMS, "\"v2\" data-i=0>" }, { 0.75, 1, STAGE_CONFORMS, "\"v3\" data-i=0>" }, { 2, 0.5, STAGE_DIFFERS, "\"v4 bad\" data-i=0 id=p0>&times;" },
        { 0.5, 11, STAGE_DIFFERS, "\"v5 bad\" data-i=0 id=p0>&times;" }, { 101, 0, STAGE_DIFFERS, "\"v6 bad\" data-i=0 id=p0>&times;" },
        { 5, 0, STAGE_REPRESENTATION, "\"v4 repr\" data-i=0 id=p0>r" }, { 0.05, 0, STAGE_BELOW_FLOOR, "\"v1 floor\" data-i=0 id=p0>f" },
        { 0, 0, STAGE_WRONG, "\"v6 wrong\" data-i=0 id=p0>!" }, { NAN, 0, STAGE_DIFFERS, "\"v6 bad\" data-i=0 id=p0>&times;" },
        { INFINITY, 0, STAGE_DIFFERS, "\"v6 bad\" data-i=0 id=p0>&times;" },
    };
    ProbeResult p = probe_named("one", "commit", 0, "L00.mixer", 0);
    DiffResult r = result_of(&p, 1);
    p.budget_rms = p.budget_max = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        p.added.rms = cases[i].rms;
        p.added.max = cases[i].max;
        p.verdict = cases[i].verdict;
        write_page(&r, &one_bundle, NULL);
        ck_assert_msg(strstr(page, cases[i].cell) != NULL, "case %zu: %s", i, cases[i].cell);
    }
}
END_TEST

START_TEST(rows_are_stages_in_order_and_columns_are_layers) {
    ProbeResult p[] = { probe_named("one", "commit", 0, "embed", -1),       probe_named("one", "commit", 0, "L00.attn_norm", 0), probe_named("one", "commit", 0, "L00.gdn.q", 0),
                        probe_named("one", "commit", 0, "L00.out", 0),      probe_named("one", "commit", 0, "L12.attn_norm", 12), probe_named("one", "commit", 0, "L12.attn.q", 12),
                        probe_named("one", "commit", 0, "L12.new.stage", 12), probe_named("one", "commit", 0, "final_norm", -1) };
    DiffResult r = result_of(p, 8);
    write_page(&r, &one_bundle, NULL);
    assert_has("<summary><b>one/commit</b> commit of 5 rows: 8 stages, at most 0.041 of a budget</summary>");
    assert_has("<th scope=col>stage<th scope=col title=\"of the whole model\">&ndash;<th scope=col>0<th scope=col>12<tbody>"
               "<tr><th scope=row>embed <i>LAY-1</i><td class=\"v1\" data-i=0><td><td>"
               "<tr><th scope=row>attn_norm <i>ROW-1</i><td><td class=\"v1\" data-i=1><td class=\"v1\" data-i=4>"
               "<tr><th scope=row>attn.q <i>ATT-1</i><td><td><td class=\"v1\" data-i=5>"
               "<tr><th scope=row>gdn.q <i>GDN-4</i><td><td class=\"v1\" data-i=2><td>"
               "<tr><th scope=row>out <i>LAY-2</i><td><td class=\"v1\" data-i=3><td>"
               "<tr><th scope=row>final_norm <i>LAY-3</i><td class=\"v1\" data-i=7><td><td>"
               "<tr><th scope=row>new.stage <i></i><td><td><td class=\"v1\" data-i=6></table>");
}
END_TEST

/* Only the step with the first divergence is open; without one, the first step. */
START_TEST(each_step_has_a_map) {
    ProbeResult p[] = { probe_named("one", "commit", 0, "L00.mixer", 0), probe_named("one", "preview", 1, "L00.mixer", 0), probe_named("one", "preview", 1, "L00.out", 0) };
    DiffResult r = result_of(p, 3);
    write_page(&r, &one_bundle, NULL);
    assert_has("<details class=step open><summary><b>one/commit</b> commit of 5 rows: 1 stage, at most 0.041 of a budget</summary>");
    assert_has("<details class=step><summary><b>one/preview</b> preview of 3 rows: 2 stages, at most 0.041 of a budget</summary>");
    p[1].verdict = STAGE_DIFFERS;
    r.first = 1;
    write_page(&r, &one_bundle, NULL);
    assert_has("<details class=step><summary><b>one/commit</b>");
    assert_has("<details class=step open><summary><b>one/preview</b> preview of 3 rows: 2 stages, <b class=bad>&cross; 1 differs</b></summary>");
}
END_TEST

START_TEST(several_cases_fold) {
    BundleCase cases[] = { one_case, one_case };
    cases[1].name = "two";
    Bundle b = { .path = path_text, .cases = cases, .n_cases = 2 };
    ProbeResult p[] = { probe_named("one", "commit", 0, "L00.mixer", 0), probe_named("two", "commit", 0, "L00.mixer", 0), probe_named("two", "preview", 1, "L00.gdn.mixed", 0) };
    DiffResult r = result_of(p, 3);
    write_page(&r, &b, NULL);
    assert_has("<details class=case open><summary><b>case one</b>, at most 0.041 of a budget</summary><details class=step open><summary><b>one/commit");
    assert_has("<details class=case><summary><b>case two</b>, at most 0.041 of a budget</summary><details class=step><summary><b>two/commit");
    p[2].verdict = STAGE_DIFFERS;
    r.first = 2;
    write_page(&r, &b, NULL);
    assert_has("<details class=case><summary><b>case one</b>");
    assert_has("<details class=case open><summary><b>case two</b>, <b class=bad>&cross; 1 differs</b></summary>");
    assert_has("gdn.mixed <i>PRV-6</i>");
}
END_TEST

/* Every figure of a probe is in the list that the script reads. */
START_TEST(the_numbers_of_every_cell_are_there) {
    ProbeResult p[] = { probe_named("one", "commit", 0, "L00.moe.ids", 0), probe_named("one", "commit", 0, "logits", -1), probe_named("one", "preview", 1, "L00.out", 0) };
    DiffResult r = result_of(p, 3);
    p[0].choices = 40;
    p[0].flips = 3;
    p[0].near_ties = 2;
    p[1].logits = (LogitsFigures){ 0.5, 0.25, 0.875, 0.125, 2, 5 };
    p[1].injected = false;
    p[2].verdict = STAGE_WRONG;
    p[2].type = DT_BF16;
    p[2].added.rms = NAN;
    p[2].added.actual = -INFINITY;
    p[2].added.not_finite = 7;
    write_page(&r, &one_bundle, NULL);
    json_t *data = page_data(), *expected = json_loads(
        "{\"verdicts\": [\"conforms\", \"below-floor\", \"representation\", \"differs\", \"wrong\"], \"steps\": [[\"one\", \"commit\"], [\"one\", \"preview\"]], \"first\": -1, \"probes\": ["
        "[0, \"L00.moe.ids\", \"MOE-1\", \"F32\", [5, 4, 8], 0, [1.11e-3, 1.12e-4, 1.13e-4, 1.14e-4, 1.15e-4, 0.123456789, 16, 70, 1.5, 1.25, 0],"
        " [2.11e-7, 2.12e-8, 2.13e-8, 2.14e-8, 2.15e-8, 0.987654321, 26, 75, 2.5, 2.25, 0], [3.11e-4, 3.12e-4, 4.11e-7, 4.12e-7, 5.11e-6, 5.12e-6], 0.0412, 0.0625, 0.75, [40, 3, 2], 0, \"\"],"
        "[0, \"logits\", \"LAY-3\", \"F32\", [5, 4, 8], 0, [1.11e-3, 1.12e-4, 1.13e-4, 1.14e-4, 1.15e-4, 0.123456789, 16, 70, 1.5, 1.25, 0], 0,"
        " [3.11e-4, 3.12e-4, 4.11e-7, 4.12e-7, 5.11e-6, 5.12e-6], 217, 0.0625, 0.75, 0, [5, 2, 0.5, 0.25, 0.875, 0.125], \"\"],"
        "[1, \"L00.out\", \"LAY-2\", \"BF16\", [5, 4, 8], 4, [1.11e-3, 1.12e-4, 1.13e-4, 1.14e-4, 1.15e-4, 0.123456789, 16, 70, 1.5, 1.25, 0],"
        " [2.11e-7, 2.12e-8, \"NaN\", 2.14e-8, 2.15e-8, 0.987654321, 26, 75, 2.5, \"-Infinity\", 7], [3.11e-4, 3.12e-4, 4.11e-7, 4.12e-7, 5.11e-6, 5.12e-6], \"Infinity\", 0.0625, 0.75, 0, 0, \"\"]"
        "]}", 0, NULL);
    ck_assert_ptr_nonnull(expected);
    char *found = json_dumps(data, JSON_REAL_PRECISION(9) | JSON_SORT_KEYS), *wanted = json_dumps(expected, JSON_REAL_PRECISION(9) | JSON_SORT_KEYS);
    ck_assert_str_eq(found, wanted);
    free(found);
    free(wanted);
    json_decref(data);
    json_decref(expected);
}
END_TEST

/* ---- tables and lists ----------------------------------------------------------------------------------------------- */

START_TEST(findings_stand_in_a_table_what_differs_first) {
    ProbeResult p[] = { probe_named("one", "commit", 0, "L00.attn_norm", 0), probe_named("one", "commit", 0, "L00.mixer", 0), probe_named("one", "commit", 0, "L00.out", 0) };
    DiffResult r = result_of(p, 3);
    p[0].verdict = STAGE_BELOW_FLOOR;
    p[2].verdict = STAGE_DIFFERS;
    snprintf(p[2].note, sizeof p[2].note, "S from the golden");
    write_page(&r, &one_bundle, NULL);
    assert_has("What does not simply conform (2)");
    assert_has("<tr><td class=bad>differs<td>one/commit<td><a href=\"#p2\"><code>L00.out</code></a><td>LAY-2<td>2.13e-08<td>5.11e-06<td>0.0412<td>0.000311<td>S from the golden"
               "<tr><td class=quiet>below-floor<td>one/commit<td><a href=\"#p0\"><code>L00.attn_norm</code></a>");
    p[0].verdict = p[2].verdict = STAGE_CONFORMS;
    write_page(&r, &one_bundle, NULL);
    assert_lacks("simply conform");
}
END_TEST

START_TEST(many_findings_are_counted) {
    enum { N = 250 };
    ProbeResult *p = calloc(N, sizeof *p);
    ck_assert_ptr_nonnull(p);
    for (int i = 0; i < N; i++) {
        char name[32];
        snprintf(name, sizeof name, "L%02d.out", i);
        p[i] = probe_named("one", "commit", 0, name, i);
        p[i].verdict = STAGE_DIFFERS;
    }
    DiffResult r = result_of(p, N);
    write_page(&r, &one_bundle, NULL);
    ck_assert_int_eq(count("<td class=bad>differs"), 200);
    assert_has("And 50 more");
    free(p);
}
END_TEST

START_TEST(features_logits_notes_and_what_was_not_compared) {
    char one[] = "state from the dump", two[] = "one/commit L00.gdn.z", three[] = "one/preview";
    char *notes[] = { one }, *missing[] = { two, three };
    ProbeResult p[] = { probe_named("one", "commit", 0, "logits", -1), probe_named("one", "preview", 1, "logits", -1) };
    DiffResult r = result_of(p, 2);
    p[0].logits = (LogitsFigures){ 0.5, 0.25, 0.875, 0.125, 2, 5 };
    p[1].verdict = STAGE_WRONG;                      /* has no figures */
    r.feature[FEATURE_CAUSAL] = FEATURE_DIFFERS;
    r.feature[FEATURE_PREVIEW] = FEATURE_CONFORMS;
    r.note = notes;
    r.n_notes = 1;
    r.not_compared = missing;
    r.n_not_compared = 2;
    write_page(&r, &one_bundle, NULL);
    assert_has("<tr><th scope=row>causal<td class=bad>&cross; differs<tr><th scope=row>preview<td class=good>&check; conforms<tr><th scope=row>coreset<td class=quiet>&ndash; not shown");
    assert_has("regret, worst<tbody><tr><th scope=row>one/commit<td>5<td>0.5<td>0.25<td>0.875<td>2<td>0.125</table>");
    assert_has("<h2>Notes (1)</h2></summary><ul><li>state from the dump</ul>");
    assert_has("<h2>Not compared (2)</h2></summary><ul><li>one/commit L00.gdn.z<li>one/preview</ul>");
}
END_TEST

/* ---- decisions ------------------------------------------------------------------------------------------------------ */

/* Two passes over a block of three: row 1 is fixed first, then rows 0 and 2. */
#define TWO_PASSES \
    "{\"step\":\"pass\",\"pos\":4,\"passno\":0,\"candidates\":[[0,10,0.5],[1,11,0.97],[2,12,0.25]],\"fixed\":[1]}," \
    "{\"step\":\"pass\",\"pos\":4,\"passno\":1,\"candidates\":[[0,10,0.996],[2,13,1]],\"fixed\":[0,2]}," \
    "{\"step\":\"block\",\"pos\":4,\"ids\":[10,11,13],\"emitted\":2}"

static void write_trace(const char *inside, const char *steps, const char *more) {
    char text[8192], path[2 * TEST_PATH];
    snprintf(path, sizeof path, "%s/%s", folder, inside);
    snprintf(text, sizeof text, "{\"mode\":\"denoise\",\"steps\":[%s]%s}", steps, more);
    write_file(path, text, strlen(text));
}

static Bundle traced_bundle(void) {
    static BundleCase c;
    c = one_case;
    c.has_trace = true;
    mkdir(in_folder(folder, "one"), 0777);
    mkdir(in_folder(folder, "dump"), 0777);
    mkdir(in_folder(folder, "dump/one"), 0777);
    return (Bundle){ .path = folder, .cases = &c, .n_cases = 1 };
}

START_TEST(a_block_is_a_grid_of_rows_and_passes) {
    Bundle b = traced_bundle();
    DiffResult r = result_of(NULL, 0);
    write_trace("one/trace.json", TWO_PASSES, ",\"tokens\":[10,11],\"text\":\"<a>\\n b\"");
    write_page(&r, &b, NULL);
    assert_has("<h3>one <small>denoise</small></h3>");
    assert_has("Block 0 at position 4: 3 rows, 2 passes, 2 of the rows went out</summary>");
    assert_has("<th scope=col>row<th scope=col>pass 0<th scope=col>pass 1<tbody>"
               "<tr><th scope=row>0<td class=\"p5\"><small>10</small> .50<td class=\"p9 fixed\"><b>10</b> <small>.99</small>"
               "<tr><th scope=row>1<td class=\"p9 fixed\"><b>11</b> <small>.97</small><td class=\"kept\">11"
               "<tr class=cut><th scope=row>2<td class=\"p2\"><small>12</small> .25<td class=\"p9 fixed\"><b>13</b> <small>1</small></table>");
    assert_has("<pre>&lt;a&gt;\n b</pre>");
    assert_has("<span class=\"tok\">10</span> <span class=\"tok\">11</span> </div>");
}
END_TEST

START_TEST(the_engines_block_stands_beside_the_goldens) {
    Bundle b = traced_bundle();
    DiffResult r = result_of(NULL, 0);
    const char *dump = in_folder(folder, "dump");
    write_trace("one/trace.json", TWO_PASSES "," TWO_PASSES, "");
    write_trace("dump/one/trace.json",
                "{\"step\":\"pass\",\"pos\":4,\"passno\":0,\"candidates\":[[0,10,0.5],[1,19,0.97],[2,12,0.25]],\"fixed\":[1]},"
                "{\"step\":\"pass\",\"pos\":4,\"passno\":1,\"candidates\":[[0,10,0.996],[2,13,1]],\"fixed\":[0,2]},"
                "{\"step\":\"block\",\"pos\":4,\"ids\":[10,19,13],\"emitted\":3}," TWO_PASSES, ",\"tokens\":[1]");
    write_page(&r, &b, dump);
    ck_assert_int_eq(count("<table class=grid>"), 4);
    ck_assert_int_eq(count("<caption>engine"), 2);
    assert_has("<b class=bad>&ne; decided otherwise</b></summary>");
    ck_assert_int_eq(count(", the same decisions</summary>"), 1);
    assert_has("<td class=\"p9 fixed ne\"><b>11</b>");
    assert_has("<td class=\"p9 fixed ne\"><b>19</b>");
    ck_assert_int_eq(count(" ne\""), 2);
}
END_TEST

START_TEST(a_single_cases_trace_may_lie_at_the_dumps_top) {
    Bundle b = traced_bundle();
    DiffResult r = result_of(NULL, 0);
    write_trace("one/trace.json", TWO_PASSES, "");
    write_trace("dump/trace.json", TWO_PASSES, "");
    write_page(&r, &b, in_folder(folder, "dump"));
    ck_assert_int_eq(count("<table class=grid>"), 2);
    BundleCase cases[] = { b.cases[0], b.cases[0] };                 /* of several cases it is nobody's */
    cases[1].name = "two";
    b = (Bundle){ .path = folder, .cases = cases, .n_cases = 2 };
    write_page(&r, &b, in_folder(folder, "dump"));
    ck_assert_int_eq(count("<caption>engine"), 0);
}

/* The same decisions at another position are others. */
START_TEST(a_block_elsewhere_is_another_block) {
    Bundle b = traced_bundle();
    DiffResult r = result_of(NULL, 0);
    write_trace("one/trace.json", "{\"step\":\"pass\",\"pos\":4,\"passno\":0,\"candidates\":[[0,10,0.5]],\"fixed\":[0]}", "");
    write_trace("dump/one/trace.json", "{\"step\":\"pass\",\"pos\":5,\"passno\":0,\"candidates\":[[0,10,0.5]],\"fixed\":[0]}", "");
    write_page(&r, &b, in_folder(folder, "dump"));
    assert_has("Block 0 at position 4: 1 row, 1 pass, did not end <b class=bad>&ne; decided otherwise</b></summary>");
}
END_TEST

START_TEST(a_block_of_one_side_only) {
    Bundle b = traced_bundle();
    DiffResult r = result_of(NULL, 0);
    write_trace("one/trace.json", TWO_PASSES, "");
    write_trace("dump/one/trace.json", TWO_PASSES "," TWO_PASSES, "");
    write_page(&r, &b, in_folder(folder, "dump"));
    assert_has("<b class=bad>&ne; the golden has no such block</b>");
    ck_assert_int_eq(count(", the same decisions</summary>"), 1);
    write_trace("dump/one/trace.json", "", "");
    write_page(&r, &b, in_folder(folder, "dump"));
    assert_has("<b class=bad>&ne; the engine has no such block</b>");
    write_page(&r, &b, NULL);
    assert_lacks("no such block");
}
END_TEST

START_TEST(too_many_decisions_are_said_not_drawn) {
    Bundle b = traced_bundle();
    DiffResult r = result_of(NULL, 0);
    write_trace("one/trace.json", "{\"step\":\"pass\",\"candidates\":[[65535,1,0.5]]},{\"step\":\"pass\",\"passno\":1}", "");
    write_page(&r, &b, NULL);
    assert_has("Block 0 at position 0: 65536 rows, 2 passes, did not end</summary><div class=pair><p>Too large to draw here; its trace.json has it.</p>");
    write_trace("one/trace.json", "{\"step\":\"pass\",\"candidates\":[[70000,1,0.5],[0,1,0.5]]}", "");
    write_page(&r, &b, NULL);
    assert_has("Block 0 at position 0: 1 row, 1 pass");              /* no row has that number */
}
END_TEST

#define ROUND "{\"step\":\"first\",\"id\":7},{\"step\":\"round\",\"pos\":3,\"draft\":[7,8,9,6],\"judged\":[[8,0.75,0.5,true],[9,4.5e-8,1.25,false]],\"accepted\":1,\"bonus\":"

START_TEST(a_round_shows_what_was_accepted) {
    Bundle b = traced_bundle();
    DiffResult r = result_of(NULL, 0);
    write_trace("one/trace.json", ROUND "5}", "");
    write_page(&r, &b, NULL);
    assert_has("<th scope=row>0<td>3<td><span class=\"tok pending\">7</span> <span class=\"tok accepted\">8 &check; <small>p 0.75, H 0.5</small></span> "
               "<span class=\"tok rejected\">9 &cross; <small>p 4.5e-08, H 1.2</small></span> <span class=\"tok unjudged\">6</span> <span class=\"tok bonus\">&rarr; 5</span></table>");
    assert_has("The dump has no trace of this case");
    write_trace("dump/one/trace.json", ROUND "4}", "");
    write_page(&r, &b, in_folder(folder, "dump"));
    assert_has("<tr class=ne><th scope=row>0 &ne;<td>3<td>");
    assert_has("&rarr; 4</span></table>");
    write_trace("dump/one/trace.json", ROUND "5}", "");
    write_page(&r, &b, in_folder(folder, "dump"));
    assert_lacks("<tr class=ne>");
    write_trace("dump/one/trace.json", "", "");
    write_page(&r, &b, in_folder(folder, "dump"));
    assert_has("<td>no such round</table>");
}
END_TEST

START_TEST(what_the_traces_verdict_was) {
    Bundle b = traced_bundle();
    TraceResult t[] = { { .case_name = "one", .compared = true }, { .case_name = "two", .compared = true, .differs = true, .text = "not here" } };
    DiffResult r = result_of(NULL, 0);
    r.trace = t;
    r.n_traces = 2;
    write_trace("one/trace.json", TWO_PASSES, "");
    write_page(&r, &b, NULL);
    assert_has("<p class=\"good\">Every decision is the golden's.</p>");
    assert_lacks("not here");
    t[0].differs = true;
    snprintf(t[0].text, sizeof t[0].text, "pass 1 fixes row 2");
    write_page(&r, &b, NULL);
    assert_has("<p class=\"bad\">pass 1 fixes row 2</p>");
    t[0].explained = true;
    write_page(&r, &b, NULL);
    assert_has("<p class=\"warn\">pass 1 fixes row 2</p>");
}
END_TEST

/* A trace that is missing, cut or nonsense costs its grids and nothing else. */
START_TEST(a_bad_trace_is_said_not_trusted) {
    static const char *const nonsense[] = {
        "1", "null", "{}", "[]", "{\"step\":3}", "{\"step\":\"pass\"}", "{\"step\":\"pass\",\"candidates\":7,\"fixed\":{}}",
        "{\"step\":\"pass\",\"candidates\":[[]],\"fixed\":[-1,9e99,\"x\",99999999999]}", "{\"step\":\"pass\",\"candidates\":[[-5,1,0.5],[70000,1,0.5],[\"a\",\"b\",\"c\"],4]}",
        "{\"step\":\"pass\",\"candidates\":[[65535,1,0.5]]},{\"step\":\"pass\",\"passno\":1}", "{\"step\":\"block\",\"ids\":[1]}", "{\"step\":\"round\"}",
        "{\"step\":\"round\",\"draft\":[1,2],\"judged\":[4],\"bonus\":\"x\"}", "{\"step\":\"round\",\"draft\":3,\"judged\":{}}",
    };
    Bundle b = traced_bundle();
    DiffResult r = result_of(NULL, 0);
    char dump[2 * TEST_PATH];
    snprintf(dump, sizeof dump, "%s/dump", folder);
    write_page(&r, &b, NULL);
    assert_has("The golden's trace cannot be read: ");
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        write_trace("one/trace.json", nonsense[i], ",\"tokens\":[null,\"<\",{}],\"text\":4");
        write_trace("dump/one/trace.json", nonsense[i], ",\"tokens\":{}");
        write_page(&r, &b, dump);
        assert_has("</html>");
    }
    write_trace("one/trace.json", TWO_PASSES, "");
    write_file(in_folder(folder, "dump/one/trace.json"), "{\"steps\":", 9);
    write_page(&r, &b, dump);
    assert_has("The dump's trace cannot be read: ");
    ck_assert_int_eq(count("<table class=grid>"), 1);
}
END_TEST

/* ---- the file ------------------------------------------------------------------------------------------------------- */

START_TEST(the_page_appears_whole_or_not_at_all) {
    DiffResult r = result_of(NULL, 0);
    assert_status(diff_html(&r, &one_bundle, NULL, in_folder(folder, "no-such-folder/report.html"), &err), CLOVER_SYSTEM, err);
    assert_says(err, "no-such-folder/report.html");
    assert_status(diff_html(&r, &one_bundle, NULL, folder, &err), CLOVER_USAGE, err);
    write_file(in_folder(folder, "report.html"), "old", 3);
    write_page(&r, &one_bundle, NULL);               /* an old page is replaced */
    assert_has("</html>");
    DIR *dir = opendir(folder);
    for (struct dirent *e; (e = readdir(dir)); ) ck_assert_msg(e->d_name[0] == '.' || strcmp(e->d_name, "report.html") == 0, "left behind: %s", e->d_name);
    closedir(dir);
}
END_TEST


/* Wherever memory runs out there is an error and no page, or, where a library did without, the whole page; and no leak. */
START_TEST(memory_that_runs_out) {
    if (!malloc_can_fail()) {
        puts("skip memory_that_runs_out (a sanitizer or valgrind has its own allocator)");
        return;
    }
    ProbeResult p = probe_named("one", "commit", 0, "L00.attn_norm", 0);
    DiffResult r = result_of(&p, 1);
    const char *path = in_folder(folder, "report.html");
    write_page(&r, &one_bundle, NULL);
    char *whole = page;
    page = NULL;
    for (int turn = 0; turn < 2; turn++) {           /* libcrypto keeps what its first failure makes */
        bool failed = true;
        for (long n = 0; failed; n++) {
            unlink(path);
            const long live = malloc_live;
            malloc_fail_after(n, n % 2);
            const CloverStatus status = diff_html(&r, &one_bundle, NULL, path, &err);
            failed = malloc_recover();
            ERR_clear_error();
            if (turn) ck_assert_int_eq(malloc_live, live);
            if (status == CLOVER_OK) {
                read_page(path);
                ck_assert_str_eq(page, whole);
            } else {
                ck_assert_int_eq(status, CLOVER_SYSTEM);
                ck_assert_int_ne(access(path, F_OK), 0);
            }
            ck_assert_int_lt(n, 10000);
        }
    }
    free(whole);
}
END_TEST

START_TEST(a_page_of_every_kind_for_the_browser) {
    Example e;
    mkdir("build/tmp/report", 0777);
    example_new(&e, 8, 3, "build/tmp/report");
    assert_ok(diff_html(&e.result, &e.bundle, "build/tmp/report/dump", "build/tmp/report.html", &err), err);
    read_page("build/tmp/report.html");
    ck_assert_int_eq(count(" first\" data-i="), 1);
    example_free(&e);
}
END_TEST

/* 40 layers and 20 steps stay a page that a browser can hold. */
START_TEST(a_large_model_makes_a_page_of_a_few_megabytes) {
    Example e;
    example_new(&e, 40, 20, NULL);
    ck_assert_int_gt(e.result.n_probes, 18000);
    assert_ok(diff_html(&e.result, &e.bundle, NULL, "build/tmp/report-large.html", &err), err);
    read_page("build/tmp/report-large.html");
    ck_assert_uint_lt(strlen(page), 8u << 20);
    ck_assert_int_eq(count(" data-i="), (int)e.result.n_probes);
    example_free(&e);
}
END_TEST

static Suite *diff_html_suite(void) {
    Suite *s = suite_create("diff_html");
    TCase *c = tcase_create("page");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, nothing_is_fetched_and_only_our_script_may_run);
    tcase_add_test(c, text_of_files_is_escaped_everywhere);
    tcase_add_test(c, the_diagnosis);
    tcase_add_test(c, the_first_line_is_the_verdict);
    tcase_add_test(c, the_first_divergence_has_its_place_and_its_numbers);
    tcase_add_test(c, choices_are_counted);
    tcase_add_test(c, a_cell_tells_its_verdict_without_colour);
    tcase_add_test(c, rows_are_stages_in_order_and_columns_are_layers);
    tcase_add_test(c, each_step_has_a_map);
    tcase_add_test(c, several_cases_fold);
    tcase_add_test(c, the_numbers_of_every_cell_are_there);
    tcase_add_test(c, findings_stand_in_a_table_what_differs_first);
    tcase_add_test(c, many_findings_are_counted);
    tcase_add_test(c, features_logits_notes_and_what_was_not_compared);
    tcase_add_test(c, a_block_is_a_grid_of_rows_and_passes);
    tcase_add_test(c, the_engines_block_stands_beside_the_goldens);
    tcase_add_test(c, a_single_cases_trace_may_lie_at_the_dumps_top);
    tcase_add_test(c, a_block_elsewhere_is_another_block);
    tcase_add_test(c, a_block_of_one_side_only);
    tcase_add_test(c, too_many_decisions_are_said_not_drawn);
    tcase_add_test(c, a_round_shows_what_was_accepted);
    tcase_add_test(c, what_the_traces_verdict_was);
    tcase_add_test(c, a_bad_trace_is_said_not_trusted);
    tcase_add_test(c, the_page_appears_whole_or_not_at_all);
    tcase_add_test(c, memory_that_runs_out);
    tcase_add_test(c, a_page_of_every_kind_for_the_browser);
    tcase_add_test(c, a_large_model_makes_a_page_of_a_few_megabytes);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(diff_html_suite()); }
