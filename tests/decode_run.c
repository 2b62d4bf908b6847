/* decode_run.c - see decode_run.h. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "decode_run.h"

void digits_row(const char *ids, double *logits) {
    bool unseen = strcmp(ids, ".") == 0;
    for (int i = 0; i < DIGITS; i++) logits[i] = unseen ? NAN : -INFINITY;
    for (; !unseen && *ids; ids++) logits[*ids - '0'] = 0;
}

static void note(DecodeRun *r, const char *format, ...) {
    size_t used = strlen(r->steps);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(r->steps + used, sizeof r->steps - used, format, args);
    va_end(args);
    script_require(n >= 0 && (size_t)n < sizeof r->steps - used);
}

static void note_ids(DecodeRun *r, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++) note(r, " %d", (int)ids[i]);
}

static void note_p(DecodeRun *r, double p) {
    ck_assert_int_lt(r->n_p, 1024);
    r->p[r->n_p++] = p;
}

static void table_causal(void *user, const int32_t *prefix, int64_t n_prefix, double *logits) {
    DecodeRun *r = user;
    (void)prefix;
    script_require(r->causal != NULL);
    int64_t i = n_prefix - r->n_prompt;
    for (int64_t k = 0; k < i; k++) if (r->causal[k + 1] == NULL) i = k;
    digits_row(r->causal[i], logits);
}

static void table_preview(void *user, const int32_t *prefix, int64_t n_prefix, const int32_t *block, int64_t n, double *logits) {
    DecodeRun *r = user;
    (void)prefix;
    (void)n_prefix;
    script_require(r->preview != NULL);
    note(r, "see");
    note_ids(r, block, n);
    note(r, "\n");
    for (int64_t t = 0; t < n; t++) {
        script_require(r->preview[r->n_previewed] != NULL);
        digits_row(r->preview[r->n_previewed++], logits + t * DIGITS);
    }
}

DecodeRun *decode_run_new(CloverMode mode, const char *const *causal, const char *const *preview) {
    DecodeRun *r = calloc(1, sizeof *r);
    ck_assert_ptr_nonnull(r);
    r->engine = scripted_new(DIGITS, table_causal, table_preview, r);
    r->causal = causal;
    r->preview = preview;
    r->options = (CloverDecodeOptions){ .mode = mode, .max_tokens = 8, .mask_id = MASK, .stops = { STOP }, .n_stops = 1,
                                        .block = 4, .threshold = 0.9, .width = -1, .ratio = 0.9, .delta = 0.6, .top_p = 1,
                                        .controls = { 0, 0, 1, 0, 8192, 8192, 0, 4096, 4096, THINK_END } };
    for (int i = 0; i < 3; i++) r->prompt[i] = i + 1;
    r->n_prompt = 3;
    r->stop_listening_after = -1;
    return r;
}

void decode_run_script(DecodeRun *r, CausalScript *causal, PreviewScript *preview, void *user) {
    r->engine->causal = causal;
    r->engine->preview = preview;
    r->engine->user = user;
}

static void note_event(DecodeRun *r, const CloverEvent *e) {
    switch (e->kind) {
    case CLOVER_EVENT_TOKEN:
        note(r, "token %d\n", (int)e->id);
        note_p(r, e->p);
        break;
    case CLOVER_EVENT_PASS:
        note(r, "pass %d @%d:", (int)e->pass, (int)e->position);
        for (int64_t i = 0; i < e->n_candidates; i++) {
            note(r, " %d=%d", (int)e->candidates[i].row, (int)e->candidates[i].id);
            note_p(r, e->candidates[i].p);
        }
        note(r, " fixed");
        for (int64_t i = 0; i < e->n_fixed; i++) note(r, " %d", (int)e->fixed[i]);
        note(r, "\n");
        break;
    case CLOVER_EVENT_BLOCK:
        note(r, "block @%d:", (int)e->position);
        note_ids(r, e->ids, e->n_ids);
        note(r, " emitted %d\n", (int)e->emitted);
        break;
    case CLOVER_EVENT_FIRST:
        note(r, "first %d\n", (int)e->id);
        break;
    case CLOVER_EVENT_ROUND:
        note(r, "round @%d:", (int)e->position);
        note_ids(r, e->ids, e->n_ids);
        note(r, " judged");
        for (int64_t i = 0; i < e->n_judged; i++) {
            note(r, " %d%c", (int)e->judged[i].id, e->judged[i].accepted ? '+' : '-');
            note_p(r, e->judged[i].p);
            r->entropy[r->n_entropy++] = e->judged[i].entropy;
        }
        note(r, " accepted %d bonus %d\n", (int)e->accepted, (int)e->bonus);
        break;
    case CLOVER_EVENT_OUTPUT:
        r->told[r->n_told++] = e->id;
        break;
    }
}

static bool listen(void *user, const CloverEvent *e) {
    DecodeRun *r = user;
    ck_assert_msg(r->stop_listening_after < 0 || r->n_events < r->stop_listening_after, "an event after the listener had ended it");
    note_event(r, e);
    r->n_events++;
    return r->n_events != r->stop_listening_after;
}

void decode_run_go(DecodeRun *r) {
    CloverEngine engine = scripted_engine(r->engine);
    r->status = r->rules ? decode_with_rules(&engine, r->rules, &r->options, r->prompt, r->n_prompt, listen, r, r->out, &r->n_out, &r->err)
                         : clover_decode(&engine, &r->options, r->prompt, r->n_prompt, listen, r, r->out, &r->n_out, &r->err);
    ck_assert_int_eq(r->engine->live_snapshots, 0);
    ck_assert_int_le(r->n_out, r->options.max_tokens);
    scripted_log(r->engine, r->log, sizeof r->log);
}

void decode_run_free(DecodeRun *r) {
    free(r->engine);
    free(r);
}

void assert_steps(const DecodeRun *r, const char *expected) {
    ck_assert_msg(strcmp(r->steps, expected) == 0, "steps:\n%sexpected:\n%s", r->steps, expected);
}

static void assert_digits(const int32_t *ids, int64_t n, const char *expected, const char *what) {
    char text[1024];
    ck_assert_int_lt(n, 1024);
    for (int64_t i = 0; i < n; i++) text[i] = (char)('0' + ids[i]);
    text[n] = '\0';
    ck_assert_msg(strcmp(text, expected) == 0, "%s %s, expected %s", what, text, expected);
}

void assert_answer(const DecodeRun *r, const char *expected) {
    assert_digits(r->out, r->n_out, expected, "answer");
    assert_digits(r->told, r->n_told, expected, "told");
}

void assert_calls(const DecodeRun *r, const char *expected) {
    ck_assert_str_eq(r->log, expected);
}

void assert_committed(const DecodeRun *r, const char *expected) {
    assert_digits(r->engine->committed, r->engine->position, expected, "committed");
}
