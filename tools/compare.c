/* compare.c - clover compare: two files' tensors, by what they mean. [CMP-1]
 *
 * Tensors are matched by role, decoded, brought to Hugging Face's order and the GGUF's form, and compared. What the two formats
 * always do differently (1 + w, -exp(A_log), tiled heads, experts in one tensor or in several) is no difference. A relation is the
 * first that holds:
 *   identical            the same values to the bit
 *   equal                within 1 ulp of float32, or so after the transform that is named
 *   within-quantisation  the rms of the difference is at most 1.5 times what rounding to the coarser type costs (measured by rounding
 *                        the finer file's values where that type has an encoder here), and no element is further off than the type
 *                        can be; possibly after a transform
 *   different, absent
 * Transforms: heads permuted, shifted by 1, exp, transposed, split, merged, reversed, swapped, experts permuted; several may be
 * joined by a comma. Where one file is a Hugging Face folder its order and form are taken for the right ones, else the first
 * file's; where no transform of the other explains a tensor, one of that file is looked for.
 * Tensors without a role (mtp, vision, unknown ones) are matched by name, byte for byte. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "args.h"
#include "compare.h"
#include "model_args.h"
#include "tools.h"

typedef struct Row {
    char name[ROLE_NAME];            /* of a role; else other is set */
    const char *other;               /* a tensor without a role */
    Match match;
    int in;                          /* 1, 2: only in the first, the second file; 0: in both */
    bool of_second;                  /* the transform is the first file's: the second has the right form */
} Row;

typedef struct Compare {
    const char *path[2];
    bool json, all;
    ModelFile file[2];
    const CloverConfig *config;
    RoleList roles;
    Row *row;                        /* [n] */
    int64_t n;
    char numbers[2048];              /* what the two files' numbers differ in, one line each */
} Compare;

static bool fine(const Row *r) { return r->match.relation <= RELATION_WITHIN && !r->match.transform.name[0]; }
static const char *row_name(const Row *r) { return r->other ? r->other : r->name; }

/* ---- numbers --------------------------------------------------------------------------------------------------------- */

#define NUMBER(field) { #field, offsetof(CloverConfig, field) }
static const struct { const char *name; size_t at; } numbers[] = {
    NUMBER(layers), NUMBER(hidden), NUMBER(vocab), NUMBER(heads), NUMBER(kv_heads), NUMBER(head_width), NUMBER(rotary_dims), NUMBER(key_heads),
    NUMBER(value_heads), NUMBER(key_width), NUMBER(value_width), NUMBER(taps), NUMBER(experts), NUMBER(experts_used), NUMBER(expert_width), NUMBER(shared_width),
};

static void add_number(Compare *c, const char *name, double a, double b) {
    const size_t n = strlen(c->numbers);
    snprintf(c->numbers + n, sizeof c->numbers - n, "%s%s: %.9g and %.9g", n ? "\n" : "", name, a, b);
}

/* Floats of a GGUF are float32: they are compared as such. */
static void compare_numbers(Compare *c) {
    const CloverConfig *a = &c->file[0].config, *b = &c->file[1].config;
    if (!c->file[0].has_config || !c->file[1].has_config) return;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int64_t x, y;
        memcpy(&x, (const char *)a + numbers[i].at, sizeof x);
        memcpy(&y, (const char *)b + numbers[i].at, sizeof y);
        if (x != y) add_number(c, numbers[i].name, (double)x, (double)y);
    }
    if ((float)a->rope_base != (float)b->rope_base) add_number(c, "rope_base", a->rope_base, b->rope_base);
    if ((float)a->rms_eps != (float)b->rms_eps) add_number(c, "rms_eps", a->rms_eps, b->rms_eps);
    for (int64_t i = 0; a->layers == b->layers && i < a->layers; i++)
        if (a->full_attention[i] != b->full_attention[i]) { add_number(c, "first layer of another kind", (double)i, (double)i); break; }
}

/* ---- tensors ---------------------------------------------------------------------------------------------------------- */

static bool present(const Compare *c, int which, int64_t role, bool *out, CloverError *err) {
    RoleView v;
    if (role_view(&c->file[which], &c->roles.role[role], c->config, &v, err) != CLOVER_OK) return false;
    *out = role_view_present(&v);
    role_view_free(&v);
    return true;
}

static CloverStatus compare_one(Compare *c, int64_t role, CloverError *err) {
    bool there[2];
    Row *r = &c->row[c->n];
    for (int i = 0; i < 2; i++)
        if (!present(c, i, role, &there[i], err)) return err->status;
    if (!there[0] && !there[1]) return CLOVER_OK;        /* a head that is the embedding, diffusion of a base model */
    const bool hf_second = c->file[0].form == NAMES_GGUF && c->file[1].form == NAMES_HF;
    snprintf(r->name, sizeof r->name, "%s", c->roles.role[role].name);
    r->in = there[0] && there[1] ? 0 : there[0] ? 1 : 2;
    r->of_second = hf_second;
    c->n++;
    if (compare_role(&c->file[hf_second], &c->file[!hf_second], &c->roles, role, c->config, &r->match, err) != CLOVER_OK) return err->status;
    const ValueForm form = r->match.transform.value;
    const bool doubled = form == VALUE_MINUS_1 || form == VALUE_LOG_NEG || form == VALUE_NEG_LOG_NEG;
    if (r->match.relation != RELATION_DIFFERENT && !(doubled && c->file[0].form == c->file[1].form)) return CLOVER_OK;
    Match back;                                          /* either may be the drifted one: of two readings, a form left out is likelier than one applied twice */
    if (compare_role(&c->file[!hf_second], &c->file[hf_second], &c->roles, role, c->config, &back, err) != CLOVER_OK) return err->status;
    if (back.relation == RELATION_DIFFERENT) transform_free(&back.transform);
    else {
        transform_free(&r->match.transform);
        r->match = back;
        r->of_second = !hf_second;
    }
    return CLOVER_OK;
}

static void compare_extra(Compare *c, int which, const Tensor *t) {
    if (weights_role(t->name, c->file[which].form)) return;
    const Tensor *twin = model_file_tensor(&c->file[!which], t->name);
    if (twin && which == 1) return;                      /* seen from the first file */
    Row *r = &c->row[c->n++];
    r->other = t->name;
    r->match = (Match){ .relation = RELATION_ABSENT, .error = NAN, .expected = NAN, .transform = { .from = -1 } };
    r->in = which + 1;
    if (!twin) return;
    const bool same = t->type == twin->type && t->bytes == twin->bytes && memcmp(t->data, twin->data, t->bytes) == 0;
    r->in = 0;
    r->match.relation = same ? RELATION_IDENTICAL : RELATION_DIFFERENT;
    r->match.error = same ? 0 : NAN;
}

static int badness(const Row *r) { return 2 * (int)r->match.relation + (r->match.transform.name[0] != 0 && r->match.relation < RELATION_DIFFERENT ? 4 : 0); }

static double excess(const Row *r) {                     /* error against what was to be expected */
    return isnan(r->match.error) ? 0 : r->match.expected > 0 ? r->match.error / r->match.expected : r->match.error;
}

static int worst_first(const void *x, const void *y) {
    const Row *a = x, *b = y;
    if (badness(a) != badness(b)) return badness(b) - badness(a);
    if (excess(a) != excess(b)) return excess(a) < excess(b) ? 1 : -1;
    return strcmp(row_name(a), row_name(b));
}

static CloverStatus compare_all(Compare *c, CloverError *err) {
    for (int64_t i = 0; i < c->roles.n; i++)
        if (compare_one(c, i, err) != CLOVER_OK) return err->status;
    for (int which = 0; which < 2; which++)
        for (int64_t i = 0; i < c->file[which].tensors.n; i++) compare_extra(c, which, &c->file[which].tensors.tensor[i]);
    qsort(c->row, (size_t)c->n, sizeof *c->row, worst_first);
    return CLOVER_OK;
}

/* ---- telling ------------------------------------------------------------------------------------------------------------ */

static json_t *real_or_null(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *row_json(const Compare *c, const Row *r) {
    const Match *m = &r->match;
    json_t *o = json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", row_name(r), "relation", relation_names[m->relation],
                          "transform", m->transform.name[0] ? json_string(m->transform.name) : json_null(),
                          "error", real_or_null(m->error), "expected", real_or_null(m->expected));
    if (!o) return NULL;
    const char *detail = m->transform.detail[0] ? m->transform.detail : m->detail;
    if (detail[0]) json_object_set_new(o, "detail", json_string(detail));
    if (m->transform.name[0]) json_object_set_new(o, "transformed", json_string(c->path[!r->of_second]));
    if (r->in) json_object_set_new(o, "only_in", json_string(c->path[r->in - 1]));
    if (m->error > 0 && m->relation != RELATION_ABSENT)
        json_object_set_new(o, "worst", json_pack("{s:[I,I,I], s:o, s:o}", "at", (json_int_t)m->worst[0], (json_int_t)m->worst[1], (json_int_t)m->worst[2],
                                                  "first", real_or_null((double)(r->of_second ? m->worst_other : m->worst_right)),
                                                  "second", real_or_null((double)(r->of_second ? m->worst_right : m->worst_other))));
    return o;
}

static CloverStatus print_json(const Compare *c, CloverError *err) {
    json_t *tensors = json_array(), *all = json_object();
    for (int64_t i = 0; i < c->n; i++) json_array_append_new(tensors, row_json(c, &c->row[i]));
    json_object_set_new(all, "tensors", tensors);
    if (c->numbers[0]) json_object_set_new(all, "numbers", json_string(c->numbers));
    int result = all && json_array_size(tensors) == (size_t)c->n ? json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : -1;
    json_decref(all);
    putchar('\n');
    return result == 0 ? CLOVER_OK : error_set(err, CLOVER_SYSTEM, "cannot write the result as JSON (out of memory, or standard output is full)");
}

static void print_row(const Compare *c, const Row *r) {
    const Match *m = &r->match;
    printf("%-20s %-34s", relation_names[m->relation], row_name(r));
    if (m->relation == RELATION_ABSENT) printf(" only in %s", c->path[r->in - 1]);
    else if (isfinite(m->error)) printf(" error %.3g", m->error);
    if (m->relation == RELATION_WITHIN || (m->relation == RELATION_DIFFERENT && m->expected > 0)) printf(" (expected %.3g)", m->expected);
    if (m->transform.name[0]) printf(" after: %s (%s), in %s", m->transform.name, m->transform.detail, c->path[!r->of_second]);
    if (m->detail[0]) printf(" %s", m->detail);
    if (m->relation == RELATION_DIFFERENT && m->error > 0 && !m->detail[0])
        printf("; worst at expert %lld, row %lld, column %lld: %.9g and %.9g", (long long)m->worst[0], (long long)m->worst[1], (long long)m->worst[2],
               (double)(r->of_second ? m->worst_other : m->worst_right), (double)(r->of_second ? m->worst_right : m->worst_other));
    putchar('\n');
}

static void print_table(const Compare *c) {
    enum { SHOWN = 60 };
    int64_t count[5] = { 0 }, transformed = 0, shown = 0, wanted = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const Row *r = &c->row[i];
        count[r->match.relation]++;
        transformed += r->match.transform.name[0] != 0;
        if (!c->all && r->match.relation <= RELATION_EQUAL && fine(r)) continue;
        wanted++;
        if (!c->all && shown >= SHOWN) continue;
        print_row(c, r);
        shown++;
    }
    if (wanted > shown) printf("... and %lld more: --all shows them\n", (long long)(wanted - shown));
    if (c->numbers[0]) printf("the models' numbers differ:\n%s\n", c->numbers);
    printf("%lld tensors: %lld identical, %lld equal, %lld within quantisation, %lld different, %lld absent; %lld transformed\n", (long long)c->n,
           (long long)count[0], (long long)count[1], (long long)count[2], (long long)count[3], (long long)count[4], (long long)transformed);
}

/* ---- the command ---------------------------------------------------------------------------------------------------------- */

static CloverStatus compare(Compare *c, bool *differs, CloverError *err) {
    for (int i = 0; i < 2; i++)
        if (model_file_open(c->path[i], &c->file[i], err) != CLOVER_OK) return err->status;
    if (!c->file[0].has_config && !c->file[1].has_config) {
        *err = c->file[0].why;
        return error_add(err, err->status, "and neither does the other file say the model's numbers: %.4000s", c->file[1].why.text);
    }
    const int from = c->file[1].form == NAMES_HF && c->file[1].has_config ? 1 : !c->file[0].has_config;
    c->config = &c->file[from].config;
    if (role_list(c->config, &c->roles, err) != CLOVER_OK) return err->status;
    const size_t most = (size_t)(c->roles.n + c->file[0].tensors.n + c->file[1].tensors.n);
    c->row = calloc(most, sizeof *c->row);
    if (!c->row) return error_memory(err, "the list of tensors", most * sizeof *c->row);
    compare_numbers(c);
    if (compare_all(c, err) != CLOVER_OK) return err->status;
    *differs = c->numbers[0] != 0;
    for (int64_t i = 0; i < c->n; i++) *differs |= !fine(&c->row[i]);
    if (c->json) return print_json(c, err);
    print_table(c);
    return CLOVER_OK;
}

int cmd_compare(int argc, char **argv) {
    Compare c = { 0 };
    const ArgOption options[] = {
        { .name = "A", .kind = ARG_POSITIONAL, .target = &c.path[0], .required = true, .help = "a .gguf, a .safetensors or a folder" },
        { .name = "B", .kind = ARG_POSITIONAL, .target = &c.path[1], .required = true, .help = "another, of any type and format" },
        { .name = "all", .kind = ARG_FLAG, .target = &c.all, .help = "list the tensors that are identical or equal, too" },
        { .name = "json", .kind = ARG_FLAG, .target = &c.json, .help = "one JSON object, every tensor, worst first" },
    };
    const ArgCommand command = { .name = "compare", .usage = "A B [options]",
        .summary = "Tells two model files apart by meaning: tensor by tensor, whatever the formats and quantisations.\n"
                   "Exit code 0: faithful to each other, as far as their types allow; 1: not.",
        .example = "clover compare export.gguf Clover-35B",
        .options = options, .n = sizeof options / sizeof *options };
    CloverError err;
    bool differs = false;
    int code = args_begin(&command, argc, argv, &err);
    if (code != ARGS_GO) return code;
    CloverStatus status = c.json ? json_holds_path(c.path[0], &err) : CLOVER_OK;
    if (status == CLOVER_OK && c.json) status = json_holds_path(c.path[1], &err);
    if (status == CLOVER_OK) status = compare(&c, &differs, &err);
    for (int64_t i = 0; i < c.n; i++) transform_free(&c.row[i].match.transform);
    free(c.row);
    free(c.roles.role);
    model_file_close(&c.file[0]);
    model_file_close(&c.file[1]);
    return status == CLOVER_OK ? differs : command_failed(command.name, &err);
}
