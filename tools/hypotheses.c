/* hypotheses.c - clover hypotheses: the catalogue of known mistakes, and the dump of an engine that makes them. [HYP-1, HYP-3] */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "golden.h"
#include "hypotheses_case.h"
#include "output.h"
#include "tools.h"

static const char *const kinds[] = { "stage", "parameter", "state", "decoding" };

/* ---- the catalogue ------------------------------------------------------------------------------------------------- */

static json_t *json_of(const Hypothesis *h) {
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "name", h->name, "kind", kinds[h->kind], "clause", h->clause, "stages", h->stages,
                     "says", h->says, "right", h->right, "wrong", h->wrong, "shows", h->shows, "needs", h->needs, "report", h->report, "lint", h->lint);
}

static void print_list(void) {
    int widest = 0;
    for (int i = 0; i < hypotheses_count(); i++) widest = (int)strlen(hypothesis_at(i)->name) > widest ? (int)strlen(hypothesis_at(i)->name) : widest;
    for (HypothesisKind kind = HYPOTHESIS_STAGE; kind <= HYPOTHESIS_DECODING; kind++) {
        printf("%s\n", kinds[kind]);
        for (int i = 0; i < hypotheses_count(); i++) {
            const Hypothesis *h = hypothesis_at(i);
            if (h->kind == kind) printf("  %-*s  %-6s  your engine %s\n", widest, h->name, h->clause, h->says);
        }
    }
    printf("\n%d known mistakes; clover hypotheses NAME shows one, with --dump DIR --model MODEL an engine that makes it\n", hypotheses_count());
}

/* Characters, where strlen counts bytes. */
static int columns(const char *text) {
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void print_line(const char *what, const char *text) { if (*text) printf("  %-8s %s\n", what, text); }

/* The formulas stand side by side where that fits a screen. */
static void print_formulas(const Hypothesis *h) {
    const int left = columns(h->right) > 5 ? columns(h->right) : 5, right = columns(h->wrong) > 5 ? columns(h->wrong) : 5;
    if (left + right > 110) {
        print_line("right", h->right);
        print_line("wrong", h->wrong);
        return;
    }
    printf("  right%*s | wrong\n  ", left - 5, "");
    for (int i = 0; i < left; i++) putchar('-');
    printf("-+-");
    for (int i = 0; i < right; i++) putchar('-');
    printf("\n  %s%*s | %s\n", h->right, left - columns(h->right), "", h->wrong);
}

static void print_one(const Hypothesis *h) {
    printf("%s: a %s%s that breaks [%s]\n\n  your engine %s\n\n", h->name, kinds[h->kind], h->kind == HYPOTHESIS_STAGE ? " rule" : h->kind == HYPOTHESIS_PARAMETER ? "" : " fault", h->clause, h->says);
    print_formulas(h);
    printf("\n");
    print_line("enters", h->stages);
    print_line("shows", h->shows);
    print_line("needs", *h->needs ? h->needs : "nothing: any step shows it");
    print_line("met in", h->report);
    if (*h->lint) printf("  %-8s the file may be the cause: clover lint MODEL checks it as %s\n", "lint", h->lint);
}

/* ---- the dump of an engine that makes them ------------------------------------------------------------------------- */

typedef struct Wanted {
    const char *names, *dump, *golden;
    ModelArgs model;
    int type;
    bool json;
    const Hypothesis *h[IN_FORCE_MAX];
    int n;
} Wanted;

static const char *const type_names[] = { "f64", "f32", "f16", "bf16", NULL };
static const DType types[] = { DT_F64, DT_F32, DT_F16, DT_BF16 };

static CloverStatus find_names(Wanted *a, CloverError *err) {
    for (const char *name = a->names; name && (*name || name == a->names);) {
        char one[64];
        const size_t length = strcspn(name, ",");
        snprintf(one, sizeof one, "%.*s", (int)(length < 63 ? length : 63), name);
        if (a->n == IN_FORCE_MAX) return error_set(err, CLOVER_USAGE, "%d hypotheses at once are the most", (int)IN_FORCE_MAX);
        if (!(a->h[a->n++] = hypothesis_named(one)))
            return error_set(err, CLOVER_USAGE, "no hypothesis is named \"%s\"; clover hypotheses lists them", one);
        name += length + (name[length] == ',');
    }
    return CLOVER_OK;
}

/* The model opened as the golden's was, and that model alone. */
static CloverStatus as_in_golden(ModelArgs *m, const Bundle *b, CloverError *err) {
    const json_t *open = json_object_get(json_object_get(b->manifest, "model"), "open");
    const char *heads = json_string_value(json_object_get(open, "diffusion_heads"));
    if (!m->path) m->path = b->model_path;
    m->mend = json_is_true(json_object_get(open, "mend"));
    m->as_is = json_is_true(json_object_get(open, "as_is"));
    if (json_is_integer(json_object_get(open, "mask_id"))) m->mask_id = (int32_t)json_integer_value(json_object_get(open, "mask_id"));
    for (int i = 0; heads && diffusion_head_orders[i]; i++)
        if (strcmp(diffusion_head_orders[i], heads) == 0) m->head_order = i;
    for (int i = 0; numerics_names[i]; i++)
        if (strcmp(numerics_names[i], b->numerics) == 0) m->numerics = i;
    return json_object_get(b->manifest, "shard") ? error_set(err, CLOVER_USAGE, "%s is a part of a golden; join the parts first: clover golden --merge", b->path) : CLOVER_OK;
}

static CloverStatus check_identity(const Bundle *b, const CloverModel *model, CloverError *err) {
    char identity[65];
    if (model_identity(model, b->full_hash, identity, err) != CLOVER_OK) return err->status;
    if (strcmp(identity, b->identity) == 0) return CLOVER_OK;
    return error_set(err, CLOVER_BAD_INPUT, "the model is not the one that %s was made of: identity %.16s..., the golden's is %.16s...; give the right one with --model", b->path, identity,
                     b->identity);
}

/* A fault that rewinds nothing commits more than a right run does. */
static void make_room(Golden *g) {
    for (int64_t i = 0; i < g->n_cases; i++) {
        GoldenCase *c = &g->cases[i];
        if (c->is_run && c->decode.mode == CLOVER_DRAFT) c->capacity += c->decode.max_tokens * decode_draft_width(&c->decode);
    }
}

static CloverStatus run_cases(Golden *g, CloverError *err) {
    CloverStatus status = CLOVER_OK;
    char *journal = text_format(err, "%s/%s", g->out, BUNDLE_UNFINISHED);
    if (!journal) return err->status;
    if (mkdir(journal, 0777) != 0) status = error_set(err, CLOVER_SYSTEM, "%s: cannot make the folder", journal);
    for (int64_t i = 0; i < g->n_cases && status == CLOVER_OK; i++) {
        const char *folder = json_string_value(json_object_get(g->cases[i].json, "folder"));
        char *path = text_format(err, "%s/%s", g->out, folder);
        CaseFiles files = { 0 };
        CloverError own;
        if (!path) status = err->status;
        else if (*folder && mkdir(path, 0777) != 0) status = error_set(err, CLOVER_SYSTEM, "%s: cannot make the folder", path);
        else if (golden_case(g, &g->cases[i], NULL, NULL, &files, &own) != CLOVER_OK) status = error_set(err, own.status, "case %s: %s", g->cases[i].given.name, own.text);
        json_decref(files.steps);
        json_decref(files.names);
        free(path);
    }
    remove_all(journal);
    free(journal);
    return status;
}

/* Written beside the folder and renamed: a dump is whole or not there. */
static CloverStatus write_dump(Golden *g, const char *to, const json_t *cases, bool with_cases, CloverError *err) {
    bool made = false;
    size_t length = strlen(to);
    while (length > 1 && to[length - 1] == '/') length--;    /* beside it, not in it */
    char *partial = text_format(err, "%.*s.partial-%ld", (int)length, to, (long)getpid()), *file = partial ? text_format(err, "%s/cases.json", partial) : NULL;
    CloverStatus status = file ? output_folder(to, false, &made, err) : err->status;
    if (status == CLOVER_USAGE) error_set(err, status, "%s: the folder is not empty; a dump needs a new or an empty one", to);
    if (status == CLOVER_OK && mkdir(partial, 0777) != 0) status = error_set(err, CLOVER_SYSTEM, "%s: cannot make the folder", partial);
    else if (status == CLOVER_OK) {
        g->out = partial;
        status = run_cases(g, err);
        json_t *all = status == CLOVER_OK && with_cases ? json_pack("{s:O}", "cases", cases) : NULL;
        if (all) status = write_sorted_json(file, all, err);
        json_decref(all);
        if (status == CLOVER_OK && rename(partial, to) != 0) status = error_set(err, CLOVER_SYSTEM, "%s: cannot be renamed to %s", partial, to);
        if (status != CLOVER_OK) remove_all(partial);
    }
    if (status != CLOVER_OK && made) rmdir(to);
    free(partial);
    free(file);
    return status;
}

static CloverStatus dump(Wanted *a, CloverError *err) {
    Bundle b = { 0 };
    CloverModel *model = NULL;
    json_t *cases = NULL;
    const GoldenFaults faults = { a->h, a->n, types[a->type] };
    Golden g = { .faults = &faults, .args = &a->model };
    if (!a->golden && !a->model.path) return error_set(err, CLOVER_USAGE, "say which model the engine runs: --model MODEL, or --golden BUNDLE to take the bundle's");
    CloverStatus status = a->golden ? bundle_open(a->golden, &b, err) : CLOVER_OK;
    if (status == CLOVER_OK && a->golden) status = as_in_golden(&a->model, &b, err);
    if (status == CLOVER_OK) status = model_args_open(&a->model, &model, err);
    if (status == CLOVER_OK && a->golden) status = check_identity(&b, model, err);
    if (status == CLOVER_OK && !a->golden) status = fitting_cases(a->h[0], model, &a->model, &cases, err);
    if (status == CLOVER_OK && a->golden && !(cases = bundle_cases(&b))) status = error_memory(err, "the cases", 0);
    const bool single = a->golden && b.n_cases == 1 && !*b.cases[0].folder;
    g.model = model;
    if (status == CLOVER_OK) status = golden_plan(&g, cases, single, a->golden ? a->golden : "the default case", (GoldenShard){ 1, 1 }, false, err);
    if (status == CLOVER_OK) {
        make_room(&g);
        status = write_dump(&g, a->dump, cases, !a->golden, err);
    }
    if (status == CLOVER_OK) {
        printf("%s: the dump of an engine that %s", a->dump, a->h[0]->says);
        for (int i = 1; i < a->n; i++) printf("; %s", a->h[i]->says);
        if (*a->h[0]->needs) printf("\nto show, that needs: %s", a->h[0]->needs);
        if (a->golden) printf("\nto find it: clover diff %s %s\n", a->golden, a->dump);
        else {
            const char *numerics = a->model.numerics ? numerics_names[a->model.numerics] : NULL;
            printf("\nto find it: clover golden %s%s%s --cases %s/cases.json -o GOLDEN && clover diff GOLDEN %s%s%s\n", a->model.path, numerics ? " --numerics " : "", numerics ? numerics : "",
                   a->dump, a->dump, numerics ? " --profile " : "", numerics ? numerics : "");
        }
    }
    golden_free(&g);
    clover_model_close(model);
    bundle_close(&b);
    json_decref(cases);
    return status;
}

/* ---- the command --------------------------------------------------------------------------------------------------- */

static CloverStatus show(const Wanted *a, CloverError *err) {
    if (!a->json) {
        if (!a->n) print_list();
        for (int i = 0; i < a->n; i++) {
            if (i) printf("\n");
            print_one(a->h[i]);
        }
        return CLOVER_OK;
    }
    const int n = a->n ? a->n : hypotheses_count();
    json_t *list = json_array();
    int failed = 0;
    for (int i = 0; i < n; i++) failed |= json_array_append_new(list, json_of(a->n ? a->h[i] : hypothesis_at(i)));
    json_t *all = json_pack("{s:O}", "hypotheses", list);
    failed |= all == NULL || json_dumpf(all, stdout, JSON_INDENT(1)) != 0;
    putchar('\n');
    json_decref(all);
    json_decref(list);
    return failed ? error_set(err, CLOVER_SYSTEM, "cannot write the hypotheses as JSON") : CLOVER_OK;
}

int cmd_hypotheses(int argc, char **argv) {
    Wanted a = { .model = model_args_defaults() };
    const ArgOption options[] = {
        { .name = "NAME", .kind = ARG_POSITIONAL, .target = &a.names, .help = "the one to show; NAME,NAME: several, in force together" },
        { .name = "json", .kind = ARG_FLAG, .target = &a.json, .help = "print JSON" },
        { .kind = ARG_HEADING, .help = "An engine that makes this mistake" },
        { .name = "dump", .kind = ARG_STRING, .target = &a.dump, .value = "DIR", .help = "write its dump into DIR, a new or empty folder, in the form that clover diff reads" },
        { .name = "model", .kind = ARG_STRING, .target = &a.model.path, .value = "MODEL", .help = "the model it runs (with --golden: the bundle's)" },
        { .name = "golden", .kind = ARG_STRING, .target = &a.golden, .value = "BUNDLE", .help = "run the bundle's cases (a case that fits the mistake, kept as DIR/cases.json)" },
        { .name = "type", .kind = ARG_CHOICE, .target = &a.type, .choices = type_names, .value = "TYPE", .help = "of the dump's numbers: f64 (default), f32, f16, bf16" },
    };
    const ArgCommand command = { .name = "hypotheses", .usage = "[NAME[,NAME]] [--json] [--dump DIR (--model MODEL | --golden BUNDLE)]",
        .summary = "The catalogue of known mistakes: what clover diff names when an engine differs.\n"
                   "Without NAME a list; with it the right and the wrong formula, how it shows, and, with --dump, an engine that does it wrong on purpose.",
        .example = "clover hypotheses gdn_heads_tiled --dump build/tiled --model tiny.gguf", .options = options, .n = sizeof options / sizeof *options };
    CloverError err;
    const int code = args_begin(&command, argc, argv, &err);
    if (code != ARGS_GO) return code;
    CloverStatus status = find_names(&a, &err);
    if (status == CLOVER_OK && !a.dump && (a.golden || a.model.path || a.type)) status = error_set(&err, CLOVER_USAGE, "--model, --golden and --type go with --dump DIR");
    if (status == CLOVER_OK && a.dump && a.n == 0) status = error_set(&err, CLOVER_USAGE, "say which mistake the dump's engine makes: clover hypotheses NAME --dump DIR");
    if (status == CLOVER_OK && a.dump && a.json) status = error_set(&err, CLOVER_USAGE, "--json shows a hypothesis, --dump runs it; give one of them");
    if (status == CLOVER_OK) status = a.dump ? dump(&a, &err) : show(&a, &err);
    args_free(&command);
    return status == CLOVER_OK ? 0 : command_failed("hypotheses", &err);
}
