/* scripted_engine.h - a CloverEngine whose logits a test writes, and which checks how decoding uses it.
 *
 * Its state is the list of ids committed so far. Two functions are the model: one gives the causal row that follows a
 * prefix, one the rows of a previewed block; both depend on nothing else, so a commit may be split anywhere, as with a
 * real model. Every call is recorded. A call against the contract (an id out of range, more rows than ids, a restore of
 * a dead snapshot ...) fails the test at once. */
#ifndef CLOVER_TEST_SCRIPTED_ENGINE_H
#define CLOVER_TEST_SCRIPTED_ENGINE_H

#include "harness.h"

/* An assertion that allocates nothing while it holds (Check's note where they are), so that memory may run out beside it. */
#define script_require(condition) do { if (!(condition)) ck_abort_msg("%s", #condition); } while (0)

/* logits [V]: the row after prefix [n_prefix], n_prefix >= 1 */
typedef void CausalScript(void *user, const int32_t *prefix, int64_t n_prefix, double *logits);
/* logits [n,V]: the rows of block [n] over prefix */
typedef void PreviewScript(void *user, const int32_t *prefix, int64_t n_prefix, const int32_t *block, int64_t n, double *logits);

typedef enum CallKind { CALL_COMMIT, CALL_PREVIEW, CALL_SNAPSHOT, CALL_RESTORE } CallKind;
typedef struct Call { CallKind kind; int64_t position, n, rows; } Call;      /* position: before the call; a restore's: after it */

enum { SCRIPT_MAX_ROWS = 8192, SCRIPT_MAX_CALLS = 8192 };

typedef struct ScriptedEngine {
    int64_t vocab;
    CausalScript *causal;
    PreviewScript *preview;
    void *user;
    int32_t committed[SCRIPT_MAX_ROWS];
    int64_t position;
    Call calls[SCRIPT_MAX_CALLS];
    int64_t n_calls;
    int64_t live_snapshots;
    int64_t fail_at;                 /* this call fails with CLOVER_SYSTEM; -1: none */
} ScriptedEngine;

ScriptedEngine *scripted_new(int64_t vocab, CausalScript *causal, PreviewScript *preview, void *user);   /* free() it */
CloverEngine scripted_engine(ScriptedEngine *s);
int64_t scripted_count(const ScriptedEngine *s, CallKind kind);

/* The calls as text, one word each: "c5" commits 5 ids, "c5+2" and asks 2 rows of logits, "p8" previews 8, "s" takes a
 * snapshot, "r3" restores to position 3. Static length; the caller gives room. */
void scripted_log(const ScriptedEngine *s, char *text, size_t room);

#endif
