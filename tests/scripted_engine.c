/* scripted_engine.c - see scripted_engine.h. */
#include <stdio.h>
#include <string.h>
#include "scripted_engine.h"

typedef struct ScriptedSnapshot { int64_t position; int32_t committed[SCRIPT_MAX_ROWS]; } ScriptedSnapshot;

static bool record(ScriptedEngine *s, CallKind kind, int64_t n, int64_t rows) {
    script_require(s->n_calls < SCRIPT_MAX_CALLS);
    s->calls[s->n_calls] = (Call){ kind, s->position, n, rows };
    return s->n_calls++ != s->fail_at;
}

static CloverStatus scripted_failure(CloverError *err) {
    err->status = CLOVER_SYSTEM;
    snprintf(err->text, sizeof err->text, "scripted failure");
    return CLOVER_SYSTEM;
}

static void check_ids(const ScriptedEngine *s, const int32_t *ids, int64_t n) {
    script_require(n >= 1);
    for (int64_t i = 0; i < n; i++) script_require(ids[i] >= 0 && ids[i] < s->vocab);
}

static CloverStatus scripted_commit(void *self, const int32_t *ids, int64_t n, double *logits, int64_t rows, CloverError *err) {
    ScriptedEngine *s = self;
    check_ids(s, ids, n);
    script_require(rows >= 0 && rows <= n && (rows == 0) == (logits == NULL));
    script_require(s->position + n <= SCRIPT_MAX_ROWS);
    if (!record(s, CALL_COMMIT, n, rows)) return scripted_failure(err);
    for (int64_t t = 0; t < n; t++) {
        s->committed[s->position++] = ids[t];
        if (t >= n - rows) s->causal(s->user, s->committed, s->position, logits + (t - (n - rows)) * s->vocab);
    }
    return CLOVER_OK;
}

static CloverStatus scripted_preview(void *self, const int32_t *ids, int64_t n, double *logits, CloverError *err) {
    ScriptedEngine *s = self;
    check_ids(s, ids, n);
    if (!record(s, CALL_PREVIEW, n, n)) return scripted_failure(err);
    s->preview(s->user, s->committed, s->position, ids, n, logits);
    return CLOVER_OK;
}

static CloverStatus scripted_snapshot(void *self, void **out, CloverError *err) {
    ScriptedEngine *s = self;
    if (!record(s, CALL_SNAPSHOT, 0, 0)) return scripted_failure(err);
    ScriptedSnapshot *snapshot = malloc(sizeof *snapshot);
    if (snapshot == NULL) return scripted_failure(err);
    snapshot->position = s->position;
    memcpy(snapshot->committed, s->committed, sizeof s->committed);
    s->live_snapshots++;
    *out = snapshot;
    return CLOVER_OK;
}

static CloverStatus scripted_restore(void *self, const void *snapshot, CloverError *err) {
    ScriptedEngine *s = self;
    const ScriptedSnapshot *from = snapshot;
    script_require(from != NULL);
    script_require(s->live_snapshots >= 1);
    if (!record(s, CALL_RESTORE, 0, 0)) return scripted_failure(err);
    s->position = from->position;
    memcpy(s->committed, from->committed, sizeof s->committed);
    s->calls[s->n_calls - 1].position = s->position;
    return CLOVER_OK;
}

static void scripted_snapshot_free(void *self, void *snapshot) {
    ScriptedEngine *s = self;
    script_require(snapshot != NULL);
    s->live_snapshots--;
    free(snapshot);
}

static int64_t scripted_position(void *self) { return ((ScriptedEngine *)self)->position; }

ScriptedEngine *scripted_new(int64_t vocab, CausalScript *causal, PreviewScript *preview, void *user) {
    ScriptedEngine *s = calloc(1, sizeof *s);
    ck_assert_ptr_nonnull(s);
    s->vocab = vocab;
    s->causal = causal;
    s->preview = preview;
    s->user = user;
    s->fail_at = -1;
    return s;
}

CloverEngine scripted_engine(ScriptedEngine *s) {
    return (CloverEngine){ .self = s, .vocab = s->vocab, .commit = scripted_commit, .preview = scripted_preview,
                           .snapshot = scripted_snapshot, .restore = scripted_restore, .snapshot_free = scripted_snapshot_free,
                           .position = scripted_position };
}

int64_t scripted_count(const ScriptedEngine *s, CallKind kind) {
    int64_t n = 0;
    for (int64_t i = 0; i < s->n_calls; i++) n += s->calls[i].kind == kind;
    return n;
}

void scripted_log(const ScriptedEngine *s, char *text, size_t room) {
    size_t used = 0;
    text[0] = '\0';
    for (int64_t i = 0; i < s->n_calls; i++) {
        const Call *c = &s->calls[i];
        char word[32] = "s";
        if (c->kind == CALL_PREVIEW) snprintf(word, sizeof word, "p%d", (int)c->n);
        if (c->kind == CALL_RESTORE) snprintf(word, sizeof word, "r%d", (int)c->position);
        if (c->kind == CALL_COMMIT && c->rows == 0) snprintf(word, sizeof word, "c%d", (int)c->n);
        if (c->kind == CALL_COMMIT && c->rows > 0) snprintf(word, sizeof word, "c%d+%d", (int)c->n, (int)c->rows);
        used += (size_t)snprintf(text + used, room - used, "%s%s", i ? " " : "", word);
        ck_assert_uint_lt(used, room);
    }
}
