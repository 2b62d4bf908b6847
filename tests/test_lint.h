/* test_lint.h - what the suites of clover lint share: lint a file that was edited, and say what it must find. */
#ifndef CLOVER_TEST_LINT_H
#define CLOVER_TEST_LINT_H

#include "../tools/lint.h"
#include "model_edit.h"

typedef struct Linted { LintFile file; Report report; CloverStatus status; CloverError err; } Linted;

static inline Linted *lint_path(const char *path) {
    Linted *l = calloc(1, sizeof *l);
    ck_assert_ptr_nonnull(l);
    l->status = lint_examine(path, &l->file, &l->report, &l->err);
    report_sort(&l->report);
    return l;
}

/* Writes e, lints it and frees e. */
static inline Linted *lint_edit(Edit *e) {
    Linted *l = lint_path(edit_write(e));
    lint_file_free(&l->file);
    edit_free(e);
    return l;
}

static inline void linted_free(Linted *l) {
    report_free(&l->report);
    lint_file_free(&l->file);
    free(l);
}

/* The finding of this id and severity; fails when there is none. */
static inline const Finding *finding(const Report *r, LintId id, Severity severity) {
    for (int64_t i = 0; i < r->n; i++)
        if (r->finding[i].id == id && r->finding[i].severity == severity) return &r->finding[i];
    ck_abort_msg("no finding %s of severity %d; the first of %lld is %s", lint_id_name(id), (int)severity, (long long)r->n,
                 r->n ? lint_id_name(r->finding[0].id) : "none");
    return NULL;
}

/* Nothing above note but this one; its evidence contains text. id LINT_IDS: nothing at all. */
static inline void assert_only_in(const Report *r, LintId id, Severity severity, const char *text) {
    for (int64_t i = 0; i < r->n; i++)
        if (r->finding[i].severity > NOTE && (r->finding[i].id != id || r->finding[i].severity != severity))
            ck_abort_msg("expected %s alone, found %s (severity %d): %s", id == LINT_IDS ? "nothing" : lint_id_name(id),
                         lint_id_name(r->finding[i].id), (int)r->finding[i].severity,
                         r->finding[i].evidence[0] ? r->finding[i].evidence[0] : "");
    if (id == LINT_IDS) return;
    const Finding *f = finding(r, id, severity);
    ck_assert(f->n_evidence > 0 && f->hurts != 0);
    bool said = false;
    for (int64_t i = 0; i < f->n_evidence && i < 8; i++) said |= strstr(f->evidence[i], text) != NULL;
    ck_assert_msg(said, "%s: expected \"%s\" in: %s", lint_id_name(id), text, f->evidence[0]);
}

/* The same of an edited model, which it frees. */
static inline void assert_only(Edit *e, LintId id, Severity severity, const char *text) {
    Linted *l = lint_edit(e);
    assert_ok(l->status, l->err);
    assert_only_in(&l->report, id, severity, text);
    linted_free(l);
}
#define assert_clean(e) assert_only((e), LINT_IDS, NOTE, "")

/* Layers of good.gguf: 0, 1, 2 are GDN, 3 is attention. blk.N.NAME in one of four buffers that take turns. */
static inline const char *blk(int layer, const char *name) {
    static char names[4][160];
    static int turn;
    char *out = names[turn++ % 4];
    snprintf(out, 160, "blk.%d.%s", layer, name);
    return out;
}

/* Every value of a tensor through a function. */
static inline void edit_each(Edit *e, const char *name, float (*change)(float)) {
    EditTensor *t = edit_tensor(e, name);
    for (size_t i = 0; i < t->data.n / 4; i++) edit_set(t, (int64_t)i, change(edit_get(t, (int64_t)i)));
}

/* Rows of an F32 tensor in another order: new row i is old row from(i, user). */
static inline void edit_rows(EditTensor *t, int64_t rows, int64_t (*from)(int64_t)) {
    const size_t bytes = t->data.n / (size_t)rows;
    Bytes old = { 0 };
    put_bytes(&old, t->data.data, t->data.n);
    for (int64_t i = 0; i < rows; i++) memcpy(t->data.data + (size_t)i * bytes, old.data + (size_t)from(i) * bytes, bytes);
    free_bytes(&old);
}

/* A text of the model's own: ids[committed..rows) as its previews would have them, block by block, three rows of four masked; the fourth is as
 * it stands in ids. The session is begun anew. */
enum { BLOCK = 16 };
static inline void resolve_blocks(CloverSession *session, const CloverConfig *c, int32_t *ids, int committed, int rows) {
    CloverError err;
    double *logits = malloc((size_t)(BLOCK * c->vocab) * sizeof *logits);
    ck_assert_ptr_nonnull(logits);
    clover_session_reset(session);
    assert_ok(clover_commit(session, ids, committed, NULL, 0, &err), err);
    for (int at = committed; at < rows; at += BLOCK) {
        int32_t block[BLOCK];
        for (int i = 0; i < BLOCK; i++) block[i] = i % 4 == 3 ? ids[at + i] : c->mask_id;
        assert_ok(clover_preview(session, block, BLOCK, logits, &err), err);
        for (int i = 0; i < BLOCK; i++) {
            int32_t best = 0;
            for (int32_t v = 1; v < c->vocab; v++)
                if (logits[i * c->vocab + v] > logits[i * c->vocab + best]) best = v;
            if (i % 4 != 3) ids[at + i] = best;
        }
        assert_ok(clover_commit(session, ids + at, BLOCK, NULL, 0, &err), err);
    }
    free(logits);
}

#endif
