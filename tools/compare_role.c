/* compare_role.c - one role in two files: the first of the relations that holds. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "../ref/error.h"
#include "compare.h"

const char *const relation_names[] = { "identical", "equal", "within-quantisation", "different", "absent" };

static void say_shape(const RoleView *v, const ModelFile *f, Match *m) {
    char shape[SHAPE_TEXT];
    const Tensor *t = v->single ? v->single[0] : v->tensor;
    snprintf(m->detail, sizeof m->detail, "%.60s has shape %.95s, not that of the model's numbers", f->path, shape_text(t->shape, t->dims, shape));
}

/* Types that nobody here decodes: the same bytes in the same order, or not comparable. */
static void compare_bytes(const RoleView *a, const RoleView *b, const ModelFile *fa, const ModelFile *fb, Match *m) {
    const Tensor *x = a->tensor, *y = b->tensor;
    const bool same = x && y && fa->form == fb->form && x->type == y->type && x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0;
    const DTypeInfo *info = dtype_info(a->decodable ? b->type : a->type);
    m->relation = same ? RELATION_IDENTICAL : RELATION_DIFFERENT;
    m->error = same ? 0 : NAN;
    if (!same) snprintf(m->detail, sizeof m->detail, "type %s cannot be decoded", info ? info->name : "(unknown)");
}

/* Several tensors for one, or one for several, between files of one format, where the format itself does not ask for it. */
static const char *layout(const RoleView *v) { return v->single ? "split" : v->stride != v->rows ? "merged" : "apart"; }

static void note_layout(const RoleView *right, const RoleView *other, const ModelFile *fr, const ModelFile *fo, Match *m) {
    const char *a = layout(right), *b = layout(other);
    if (fr->form != fo->form || strcmp(a, b) == 0 || m->relation > RELATION_WITHIN || m->transform.name[0]) return;
    const bool merged = strcmp(b, "merged") == 0 || (fr->form == NAMES_HF && strcmp(a, "split") == 0);
    snprintf(m->transform.name, sizeof m->transform.name, merged ? "merged" : "split");
    snprintf(m->transform.detail, sizeof m->transform.detail, merged ? "several tensors in one" : "one tensor in several");
    if (m->relation == RELATION_IDENTICAL) m->relation = RELATION_EQUAL;
}

CloverStatus compare_role(const ModelFile *right, const ModelFile *other, const RoleList *roles, int64_t role, const CloverConfig *config,
                          Match *match, CloverError *err) {
    RoleView a = { 0 }, b = { 0 };
    bool found = false;
    *match = (Match){ .relation = RELATION_ABSENT, .error = NAN, .expected = NAN, .transform = { .from = -1 } };
    if (role_view(right, &roles->role[role], config, &a, err) != CLOVER_OK) return err->status;
    if (role_view(other, &roles->role[role], config, &b, err) != CLOVER_OK) { role_view_free(&a); return err->status; }
    if (role_view_present(&a) && role_view_present(&b)) {
        match->relation = RELATION_DIFFERENT;
        if (!a.fits && !a.transposed) say_shape(&a, right, match);
        else if (!b.fits && !b.transposed) say_shape(&b, other, match);
        else if (a.transposed && !b.transposed) snprintf(match->detail, sizeof match->detail, "%.60s has it transposed", right->path);
        else if (!a.decodable || !b.decodable) compare_bytes(&a, &b, right, other, match);
        else {
            Measure m;
            const Transform as_is = { .from = -1 };
            compare_search(&a, &b, other, roles, role, config, match, &found, err);
            if (err->status == CLOVER_OK && !found && compare_measure(&a, &b, &as_is, 0, &m, err) == CLOVER_OK) {
                measure_relation(&a, &b, &m, &match->error, &match->expected);
                memcpy(match->worst, m.worst, sizeof m.worst);
                match->worst_right = m.worst_right;
                match->worst_other = m.worst_other;
            }
            note_layout(&a, &b, right, other, match);
        }
    }
    role_view_free(&a);
    role_view_free(&b);
    return err->status;
}
