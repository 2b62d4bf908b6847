/* test_hypotheses.c - the catalogue is complete, and every hypothesis does what it says where it says so. [HYP-1, HYP-2] */
#include <math.h>
#include <string.h>
#include "../tools/diff_parts.h"
#include "../tools/hypotheses/hypothesis.h"
#include "engine.h"
#include "files.h"

/* ---- what a catalogue must have ------------------------------------------------------------------------------------- */

static const char *const wanted[] = {
    /* stage rules */
    "rope_adjacent_pairs", "rope_all_dims", "qk_norm_after_rope", "qk_norm_missing", "attention_gate_missing", "attention_gate_silu", "q_gate_flat", "kv_heads_tiled",
    "attention_scale_missing", "conv_taps_reversed", "conv_without_silu", "l2_mean", "l2_max_eps", "l2_missing_on_q", "l2_missing_on_k", "gdn_q_unscaled",
    "gdn_read_before_write", "gdn_decay_after_update", "gdn_beta_missing", "dt_bias_missing", "a_log_as_decay", "a_exp_twice", "softplus_missing", "gdn_heads_tiled",
    "gdn_gate_before_norm", "gdn_gate_sigmoid", "gdn_gate_missing", "router_not_renormalised", "router_top_k_less_one", "router_bf16", "weight_before_down",
    "gate_up_swapped", "shared_gate_missing", "shared_missing", "post_norm_on_mixer_output", "residual_missing", "embedding_scaled", "logits_shifted_by_one",
    "preview_history_unscaled", "preview_history_not_decayed", "preview_history_decay_summed", "preview_history_missing", "preview_history_c_ignored",
    "preview_logits_scaled", "preview_right_conv_missing", "preview_right_conv_reversed", "preview_attention_causal", "preview_gdn_causal", "preview_beta_on_v",
    "preview_positions_from_zero", "coreset_ignored", "coreset_crossing_dropped", "coreset_guard_16", "coreset_in_commit",
    /* parameters */
    "rope_base_10000", "rope_query_off_by_one", "qk_norm_plain_weight", "norms_plain_weight", "norms_shifted_twice", "final_norm_plain", "gdn_norm_shifted", "eps_1e-5",
    /* state */
    "conv_ring_dropped", "state_bf16", "state_fp16", "state_reset_between_chunks", "preview_mutates_ring", "preview_mutates_state", "preview_rows_kept_in_kv",
    "state_not_carried", "kv_row_lost", "ring_not_rewound", "hybrid_state_not_rewound", "positions_restart_after_preview",
    /* decoding */
    "threshold_inclusive", "candidates_include_mask", "denoise_remasks", "denoise_aligned_blocks", "commit_skipped", "draft_state_not_rewound",
    "draft_accept_exact_only", "controls_count_prompt", "repetition_before_presence", "tie_takes_last",
};

START_TEST(every_known_mistake_is_there) {
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) ck_assert_msg(hypothesis_named(wanted[i]) != NULL, "no hypothesis %s", wanted[i]);
    ck_assert_ptr_null(hypothesis_named("no_such_mistake"));
    ck_assert_ptr_null(hypothesis_at(-1));
    ck_assert_ptr_null(hypothesis_at(hypotheses_count()));
}
END_TEST

static bool is_stage(const char *name) {
    for (size_t i = 0; stage_at(i); i++) if (strcmp(stage_at(i), name) == 0) return true;
    return false;
}

static bool is_decision(const char *name) {
    static const char *const kinds[] = { "token", "first", "pass", "block", "round" };
    for (int i = 0; i < 5; i++) if (strcmp(kinds[i], name) == 0) return true;
    return false;
}

START_TEST(every_text_is_there) {
    Bytes spec = read_file("SPEC.md");
    put_bytes(&spec, "", 1);
    for (int i = 0; i < hypotheses_count(); i++) {
        const Hypothesis *h = hypothesis_at(i);
        char label[32], stages[256], *rest;
        const char *const texts[] = { h->name, h->says, h->right, h->wrong, h->shows, h->stages, h->clause };
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) ck_assert_msg(texts[k] && *texts[k], "%s lacks a text", h->name);
        ck_assert_msg(h->needs && h->report && h->lint, "%s has a text that is NULL", h->name);
        ck_assert_msg(strcmp(h->right, h->wrong) != 0, "%s is as right as it is wrong", h->name);
        ck_assert_msg(!strchr(h->right, '\n') && !strchr(h->wrong, '\n') && !strchr(h->says, '\n'), "%s: a formula is one line", h->name);
        ck_assert_msg(h->says[strlen(h->says) - 1] != '.', "%s: what it says goes on in a sentence", h->name);
        snprintf(label, sizeof label, "**[%s]**", h->clause);
        ck_assert_msg(strstr((const char *)spec.data, label) != NULL, "%s breaks [%s], which is no rule of SPEC.md", h->name, h->clause);
        ck_assert_int_lt(snprintf(stages, sizeof stages, "%s", h->stages), (int)sizeof stages);
        for (char *s = strtok_r(stages, " ", &rest); s; s = strtok_r(NULL, " ", &rest)) {
            ck_assert_msg(h->kind == HYPOTHESIS_DECODING ? is_decision(s) : is_stage(s), "%s enters at %s, which is no stage", h->name, s);
            ck_assert_msg(hypothesis_enters(h, s), "%s does not enter at %s", h->name, s);
        }
        ck_assert_msg(!hypothesis_enters(h, "") && !hypothesis_enters(h, "moe.") && !hypothesis_enters(h, "ound"), "%s enters where it should not", h->name);
        for (int k = 0; k < i; k++) ck_assert_str_ne(h->name, hypothesis_at(k)->name);
    }
    free_bytes(&spec);
}
END_TEST

/* A kind has what it works by, and a state fault alone sees and meddles. */
START_TEST(every_hypothesis_does_something) {
    for (int i = 0; i < hypotheses_count(); i++) {
        const Hypothesis *h = hypothesis_at(i);
        const bool any = h->rules || h->parameter || h->at || h->decoding;
        ck_assert_msg(any, "%s does nothing", h->name);
        ck_assert_msg((h->kind == HYPOTHESIS_DECODING) == (h->decoding != NULL), "%s: its kind and its rule do not fit", h->name);
        ck_assert_msg(h->kind == HYPOTHESIS_STATE || (!h->at && !h->observe), "%s meddles with the state, but is no state fault", h->name);
        ck_assert_msg(!h->observe || h->at, "%s sees, and does nothing with it", h->name);
    }
}
END_TEST

/* ---- a session's stages --------------------------------------------------------------------------------------------- */

/* Every stage of every step, in order. */
typedef struct Seen { char step[16], probe[48]; double *data; int64_t n, rows; } Seen;
typedef struct Watched {
    InForce *f;
    const CloverSession *s;
    const char *step;
    bool preview;
    Seen *seen; int64_t n, room;
    bool differs;                    /* from the right session's, if there is one */
} Watched;

static Watched right;

static void see(void *user, const char *name, double *data, const int64_t *shape, int dims) {
    Watched *w = user;
    if (w->f) in_force_observe(w->f, w->s, w->preview, name, data, shape, dims);
    if (w->n == w->room) {
        w->room = w->room ? 2 * w->room : 256;
        w->seen = realloc(w->seen, (size_t)w->room * sizeof *w->seen);
        ck_assert_ptr_nonnull(w->seen);
    }
    Seen *e = &w->seen[w->n++];
    e->n = 1;
    for (int i = 0; i < dims; i++) e->n *= shape[i];
    e->rows = shape[0];
    e->data = malloc((size_t)e->n * sizeof *data + 1);
    ck_assert_ptr_nonnull(e->data);
    memcpy(e->data, data, (size_t)e->n * sizeof *data);
    snprintf(e->step, sizeof e->step, "%s", w->step);
    snprintf(e->probe, sizeof e->probe, "%s", name);
    const Seen *r = w->n <= right.n ? &right.seen[w->n - 1] : NULL;
    w->differs |= r && (r->n != e->n || memcmp(r->data, e->data, (size_t)e->n * sizeof *data) != 0);
}

static CloverModel *model;
static void open_model(void) {
    CloverError err;
    assert_ok(clover_model_open("tests/vectors/tiny-a/hf", NULL, &model, &err), err);
}
static void close_model(void) { clover_model_close(model); }

static CloverSession *session(void) {
    CloverSession *s;
    CloverError err;
    CloverSessionOptions o = clover_session_defaults();
    o.capacity = 24;
    o.coreset_top_p = 0.6;
    assert_ok(clover_session_new(model, &o, &s, &err), err);
    return s;
}

/* The engines' steps under hypotheses (n 0: the right session); all of them, or up to the first that differs. */
static Watched run_some(const Hypothesis *const *h, int n, bool all) {
    CloverError err;
    CloverSession *s = session();
    CloverSnapshot *mid = NULL;
    InForce f;
    double *logits = malloc((size_t)(16 * s->c.vocab) * sizeof *logits);
    assert_ok(in_force_begin(&f, h, n, s, &err), err);
    Watched w = { .f = &f, .s = s };
    clover_session_watch(s, see, &w);
    for (int i = 0; i < n_engine_steps && (all || !w.differs); i++) {
        const EngineStep *st = &engine_steps[i];
        w.step = st->name;
        w.preview = st->kind == 'p';
        if (st->kind == 's') assert_ok(in_force_snapshot(&f, s, &mid, &err), err);
        else if (st->kind == 'r') assert_ok(in_force_restore(&f, s, mid, &err), err);
        else if (st->kind == 'c') assert_ok(in_force_commit(&f, s, st->ids, st->n, logits, st->n, &err), err);
        else assert_ok(in_force_preview(&f, s, st->ids, st->n, logits, &err), err);
    }
    in_force_end(&f);
    clover_snapshot_free(mid);
    clover_session_free(s);
    free(logits);
    return w;
}

static Watched run_steps(const Hypothesis *const *h, int n) { return run_some(h, n, true); }
static Watched run_to_difference(const Hypothesis *h) { return run_some(&h, 1, false); }

static void forget(Watched *w) {
    for (int64_t i = 0; i < w->n; i++) free(w->seen[i].data);
    free(w->seen);
    *w = (Watched){ 0 };
}

static void see_right(void) {
    open_model();
    right = run_steps(NULL, 0);
}
static void forget_right(void) {
    forget(&right);
    close_model();
}

/* The first stage whose bits differ; NULL: none. */
static const Seen *first_difference(const Watched *w) {
    for (int64_t i = 0; i < w->n && i < right.n; i++) {
        const Seen *a = &w->seen[i], *b = &right.seen[i];
        ck_assert_msg(strcmp(a->step, b->step) == 0 && strcmp(a->probe, b->probe) == 0, "%s %s where %s %s was expected", a->step, a->probe, b->step, b->probe);
        if (a->n != b->n || memcmp(a->data, b->data, (size_t)a->n * sizeof *a->data) != 0) return a;
    }
    return NULL;
}

/* ---- where each shows ----------------------------------------------------------------------------------------------- */

/* What tiny-a and these steps cannot show: its block size is 32, and the coreset's votes come in the same order either way. */
static bool hidden_here(const char *name) {
    static const char *const hidden[] = { "preview_history_by_block", "coreset_votes_renormalised" };
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) if (strcmp(hidden[i], name) == 0) return true;
    return false;
}

START_TEST(every_hypothesis_enters_at_its_stages) {
    int shown = 0;
    for (int i = 0; i < hypotheses_count(); i++) {
        const Hypothesis *h = hypothesis_at(i);
        if (h->kind == HYPOTHESIS_DECODING) continue;
        Watched w = run_to_difference(h);
        const Seen *first = first_difference(&w);
        if (hidden_here(h->name)) ck_assert_msg(!first, "%s shows here", h->name);
        else {
            ck_assert_msg(first != NULL, "%s changes nothing", h->name);
            ck_assert_msg(hypothesis_enters(h, stage_of(first->probe)), "%s: first seen at %s %s, not at %s", h->name, first->step, first->probe, h->stages);
            shown++;
        }
        forget(&w);
    }
    ck_assert_int_gt(shown, 80);
}
END_TEST

static const struct { const char *name, *step, *probe; } state_faults[] = {
    { "conv_ring_dropped", "block", "L00.gdn.conv" },
    { "state_not_carried", "block", "L00.gdn.mixed" },
    { "state_reset_between_chunks", "more", "L00.gdn.state" },
    { "cached_forward_restarts", "more", "L00.gdn.conv" },
    { "kv_row_lost", "block", "L03.attn.context" },
    { "state_bf16", "prompt", "L00.gdn.state" },
    { "state_fp16", "prompt", "L00.gdn.state" },
    { "preview_mutates_ring", "more", "L00.gdn.conv" },
    { "preview_mutates_state", "more", "L00.gdn.state" },
    { "preview_rows_kept_in_kv", "more", "L03.attn.q_rope" },
    { "preview_crops_cache", "more", "L03.attn.q_rope" },
    { "positions_restart_after_preview", "more", "L03.attn.q_rope" },
    { "hybrid_state_not_rewound", "again", "L00.gdn.conv" },
    { "ring_not_rewound", "again", "L00.gdn.conv" },
    { "snapshot_without_ring", "again", "L00.gdn.conv" },
};

START_TEST(a_state_fault_shows_at_its_step) {
    for (size_t i = 0; i < sizeof state_faults / sizeof *state_faults; i++) {
        const Hypothesis *h = hypothesis_named(state_faults[i].name);
        ck_assert_ptr_nonnull(h);
        Watched w = run_to_difference(h);
        const Seen *first = first_difference(&w);
        ck_assert_msg(first && strcmp(first->step, state_faults[i].step) == 0 && strcmp(first->probe, state_faults[i].probe) == 0, "%s: at %s %s", h->name,
                      first ? first->step : "", first ? first->probe : "");
        forget(&w);
    }
}
END_TEST

START_TEST(no_state_fault_is_left_out) {
    int n = 0;
    for (int i = 0; i < hypotheses_count(); i++) n += hypothesis_at(i)->kind == HYPOTHESIS_STATE;
    ck_assert_int_eq(n, (int)(sizeof state_faults / sizeof *state_faults));
}
END_TEST

/* ---- what they leave in the state ----------------------------------------------------------------------------------- */

static const int32_t prompt[] = { 72, 101, 108, 108, 111, 44, 32 }, block[] = { 261, 261, 105, 261, 116 };
enum { PROMPT = 7, BLOCK = 5 };

/* The layer's stages of a committed block, to be put in place of a preview's. */
typedef struct Injected { InForce *f; const CloverSession *s; const Watched *commit; } Injected;

static void inject(void *user, const char *name, double *data, const int64_t *shape, int dims) {
    Injected *in = user;
    int64_t n = 1;
    for (int i = 0; i < dims; i++) n *= shape[i];
    for (int64_t i = 0; i < in->commit->n; i++)
        if (strcmp(in->commit->seen[i].probe, name) == 0 && in->commit->seen[i].n == n) memcpy(data, in->commit->seen[i].data, (size_t)n * sizeof *data);
    in_force_observe(in->f, in->s, true, name, data, shape, dims);
}

/* Two sessions over one prompt, both with another mistake (NULL: none): one commits the block, the other previews it under the
 * hypothesis, every stage that both have being overwritten by the committed one's. */
static void commit_and_preview(const char *name, const char *other, CloverSession **committed, CloverSession **previewed) {
    CloverError err;
    const Hypothesis *const h[] = { hypothesis_named(name), other ? hypothesis_named(other) : NULL };
    InForce f, of_other;
    *committed = session();
    *previewed = session();
    Watched w = { .s = *committed, .step = "block" };
    assert_ok(in_force_begin(&of_other, h + 1, other ? 1 : 0, *committed, &err), err);
    assert_ok(clover_commit(*committed, prompt, PROMPT, NULL, 0, &err), err);
    clover_session_watch(*committed, see, &w);
    assert_ok(clover_commit(*committed, block, BLOCK, NULL, 0, &err), err);
    assert_ok(in_force_begin(&f, h, other ? 2 : 1, *previewed, &err), err);
    Injected in = { &f, *previewed, &w };
    assert_ok(in_force_commit(&f, *previewed, prompt, PROMPT, NULL, 0, &err), err);
    clover_session_watch(*previewed, inject, &in);
    assert_ok(in_force_preview(&f, *previewed, block, BLOCK, NULL, &err), err);
    clover_session_watch(*previewed, NULL, NULL);
    in_force_end(&f);
    in_force_end(&of_other);
    forget(&w);
}

static bool same(const double *a, const double *b, int64_t n) { return memcmp(a, b, (size_t)n * sizeof *a) == 0; }

/* What a preview wrote is what a commit of the injected values writes, in every layer; the rest is as before. */
START_TEST(what_a_preview_writes_follows_from_the_injected_values) {
    static const char *const names[] = { "preview_mutates_ring", "preview_mutates_state", "preview_rows_kept_in_kv" };
    CloverError err;
    for (int i = 0; i < 3; i++) {
        CloverSession *a, *b, *before = session();
        commit_and_preview(names[i], NULL, &a, &b);
        assert_ok(clover_commit(before, prompt, PROMPT, NULL, 0, &err), err);
        const CloverConfig *c = &a->c;
        ck_assert_int_eq(b->state.position, i == 2 ? PROMPT + BLOCK : PROMPT);
        for (int64_t l = 0; l < c->layers; l++) {
            const LayerState *x = &a->state.layer[l], *y = &b->state.layer[l], *z = &before->state.layer[l];
            if (c->full_attention[l]) {
                const int64_t n = b->state.position * state_kv_row(c);
                ck_assert_msg(same(y->k, x->k, n) && same(y->v, x->v, n), "%s: keys of layer %d", names[i], (int)l);
            } else {
                ck_assert_msg(same(y->ring, (i == 0 ? x : z)->ring, state_ring_size(c)), "%s: ring of layer %d", names[i], (int)l);
                ck_assert_msg(same(y->S, (i == 1 ? x : z)->S, state_S_size(c)), "%s: S of layer %d", names[i], (int)l);
            }
        }
        clover_session_free(a);
        clover_session_free(b);
        clover_session_free(before);
    }
}
END_TEST

/* An engine that pairs heads wrongly does so where a preview writes S, too. */
START_TEST(what_a_preview_writes_is_as_wrong_as_a_commit) {
    CloverSession *a, *b;
    commit_and_preview("preview_mutates_state", "gdn_heads_tiled", &a, &b);
    for (int64_t l = 0; l < a->c.layers; l++)
        if (!a->c.full_attention[l]) ck_assert(same(b->state.layer[l].S, a->state.layer[l].S, state_S_size(&a->c)));
    clover_session_free(a);
    clover_session_free(b);
}
END_TEST

/* The cache grows with the rows that stay in it: what had room before has room after. */
START_TEST(rows_that_stay_take_no_room_from_commits) {
    CloverError err;
    const Hypothesis *h = hypothesis_named("preview_rows_kept_in_kv");
    CloverSession *s = session();
    InForce f;
    assert_ok(in_force_begin(&f, &h, 1, s, &err), err);
    Watched w = { .f = &f, .s = s, .step = "", .preview = true };
    clover_session_watch(s, see, &w);
    for (int i = 0; i < 3; i++) assert_ok(in_force_preview(&f, s, block, BLOCK, NULL, &err), err);
    w.preview = false;
    for (int i = 0; i < 3; i++) assert_ok(in_force_commit(&f, s, prompt, PROMPT, NULL, 0, &err), err);
    ck_assert_int_eq(s->state.position, 3 * BLOCK + 3 * PROMPT);
    ck_assert_int_eq(s->state.capacity, 24 + 3 * BLOCK);
    in_force_end(&f);
    forget(&w);
    clover_session_free(s);
}
END_TEST

START_TEST(a_preview_that_nobody_watched_is_an_error) {
    CloverError err;
    const Hypothesis *h = hypothesis_named("preview_mutates_ring");
    CloverSession *s = session();
    InForce f;
    assert_ok(in_force_begin(&f, &h, 1, s, &err), err);
    assert_status(in_force_preview(&f, s, block, BLOCK, NULL, &err), CLOVER_BUG, err);
    in_force_end(&f);
    clover_session_free(s);
}
END_TEST

/* Commit, snapshot, commit, restore: which parts are the snapshot's, which what stood before the restore. */
START_TEST(what_a_restore_leaves) {
    static const char *const names[] = { "hybrid_state_not_rewound", "ring_not_rewound", "snapshot_without_ring" };
    CloverError err;
    for (int i = 0; i < 3; i++) {
        const Hypothesis *h = hypothesis_named(names[i]);
        CloverSession *s = session(), *old = session(), *now = session();
        CloverSnapshot *mid;
        InForce f;
        assert_ok(clover_commit(old, prompt, PROMPT, NULL, 0, &err), err);
        assert_ok(clover_commit(now, prompt, PROMPT, NULL, 0, &err), err);
        assert_ok(clover_commit(now, block, BLOCK, NULL, 0, &err), err);
        assert_ok(in_force_begin(&f, &h, 1, s, &err), err);
        assert_ok(in_force_commit(&f, s, prompt, PROMPT, NULL, 0, &err), err);
        assert_ok(in_force_snapshot(&f, s, &mid, &err), err);
        assert_ok(in_force_commit(&f, s, block, BLOCK, NULL, 0, &err), err);
        assert_ok(in_force_restore(&f, s, mid, &err), err);
        const int64_t ring = state_ring_size(&s->c), S = state_S_size(&s->c);
        double *zeros = calloc((size_t)ring, sizeof *zeros);
        ck_assert_int_eq(s->state.position, PROMPT);
        for (int64_t l = 0; l < s->c.layers; l++) {
            if (s->c.full_attention[l]) continue;
            const LayerState *x = &s->state.layer[l];
            ck_assert_msg(same(x->ring, i == 2 ? zeros : now->state.layer[l].ring, ring), "%s: ring of layer %d", h->name, (int)l);
            ck_assert_msg(same(x->S, (i == 0 ? now : old)->state.layer[l].S, S), "%s: S of layer %d", h->name, (int)l);
        }
        free(zeros);
        in_force_end(&f);
        clover_snapshot_free(mid);
        clover_session_free(s), clover_session_free(old), clover_session_free(now);
    }
}
END_TEST

/* The last row of a step alone is lost. */
START_TEST(which_row_is_lost) {
    CloverError err;
    const Hypothesis *h = hypothesis_named("kv_row_lost");
    CloverSession *s = session(), *whole = session();
    InForce f;
    assert_ok(clover_commit(whole, prompt, PROMPT, NULL, 0, &err), err);
    assert_ok(in_force_begin(&f, &h, 1, s, &err), err);
    assert_ok(in_force_commit(&f, s, prompt, PROMPT, NULL, 0, &err), err);
    const int64_t row = state_kv_row(&s->c);
    double *zeros = calloc((size_t)row, sizeof *zeros);
    for (int64_t l = 0; l < s->c.layers; l++) {
        if (!s->c.full_attention[l]) continue;
        const LayerState *x = &s->state.layer[l], *y = &whole->state.layer[l];
        ck_assert(same(x->k, y->k, (PROMPT - 1) * row) && same(x->v, y->v, (PROMPT - 1) * row));
        ck_assert(same(x->k + (PROMPT - 1) * row, zeros, row) && same(x->v + (PROMPT - 1) * row, zeros, row));
    }
    free(zeros);
    in_force_end(&f);
    clover_session_free(s), clover_session_free(whole);
}
END_TEST

/* One row at a time is right: an engine that restarts does so in a forward of several rows. */
START_TEST(a_commit_of_one_row_does_not_restart) {
    static const char *const names[] = { "state_reset_between_chunks", "cached_forward_restarts" };
    CloverError err;
    for (int i = 0; i < 2; i++) {
        const Hypothesis *h = hypothesis_named(names[i]);
        CloverSession *s = session(), *good = session();
        InForce f;
        assert_ok(in_force_begin(&f, &h, 1, s, &err), err);
        for (int k = 0; k < PROMPT; k++) {
            assert_ok(in_force_commit(&f, s, prompt + k, 1, NULL, 0, &err), err);
            assert_ok(clover_commit(good, prompt + k, 1, NULL, 0, &err), err);
        }
        ck_assert(clover_session_hash(s) == clover_session_hash(good));
        assert_ok(in_force_commit(&f, s, block, 2, NULL, 0, &err), err);
        assert_ok(clover_commit(good, block, 2, NULL, 0, &err), err);
        ck_assert(clover_session_hash(s) != clover_session_hash(good));
        in_force_end(&f);
        clover_session_free(s), clover_session_free(good);
    }
}
END_TEST

/* S rounded: every value is one of the type, and the nearest to the right one. */
START_TEST(half_precision_is_the_nearest) {
    static const struct { const char *name; double unit, least; } halves[] = { { "state_bf16", 0x1p-8, 0x1p-126 }, { "state_fp16", 0x1p-11, 0x1p-14 } };   /* half a spacing, relative */
    for (int i = 0; i < 2; i++) {
        const Hypothesis *h = hypothesis_named(halves[i].name);
        Watched w = run_to_difference(h);
        const Seen *first = first_difference(&w);
        ck_assert_ptr_nonnull(first);
        const Seen *exact = &right.seen[first - w.seen];
        double worst = 0;
        for (int64_t k = 0; k < first->n; k++) {
            const double x = first->data[k], y = exact->data[k];
            int e;
            const double m = frexp(x, &e) / halves[i].unit;
            if (fabs(x) > halves[i].least) ck_assert_msg(m == rint(m), "%s: %.17g is no value of the type", h->name, x);
            if (fabs(y) > halves[i].least) worst = fmax(worst, fabs(x - y) / fabs(y));
        }
        ck_assert_msg(worst <= halves[i].unit && worst > halves[i].unit / 4, "%s: off by %g", h->name, worst);
        forget(&w);
    }
}
END_TEST

/* ---- in force ------------------------------------------------------------------------------------------------------- */

START_TEST(two_at_once) {
    const Hypothesis *const two[] = { hypothesis_named("rope_base_10000"), hypothesis_named("preview_mutates_ring") };
    Watched w = run_steps(two, 2), alone = run_steps(two, 1);
    const Seen *first = first_difference(&w);
    ck_assert(first && strcmp(first->step, "prompt") == 0 && strcmp(first->probe, "L03.attn.q_rope") == 0);
    bool ring = false;
    for (int64_t i = 0; i < w.n; i++)
        if (strcmp(w.seen[i].probe, "L00.gdn.conv") == 0 && !same(w.seen[i].data, alone.seen[i].data, w.seen[i].n)) ring = true;
    ck_assert(ring);
    forget(&w), forget(&alone);
}
END_TEST

START_TEST(none_at_all) {
    Watched w = run_steps(NULL, 0);
    ck_assert_ptr_null(first_difference(&w));
    forget(&w);
}
END_TEST

START_TEST(too_many) {
    CloverError err;
    const Hypothesis *h[IN_FORCE_MAX + 1];
    InForce f;
    CloverSession *s = session();
    for (int i = 0; i <= IN_FORCE_MAX; i++) h[i] = hypothesis_at(i);
    assert_status(in_force_begin(&f, h, IN_FORCE_MAX + 1, s, &err), CLOVER_USAGE, err);
    in_force_end(&f);
    clover_session_free(s);
}
END_TEST

Suite *hypotheses_suite(void) {
    Suite *s = suite_create("hypotheses");
    TCase *c = tcase_create("catalogue");
    tcase_add_test(c, every_known_mistake_is_there);
    tcase_add_test(c, every_text_is_there);
    tcase_add_test(c, every_hypothesis_does_something);
    suite_add_tcase(s, c);
    c = tcase_create("in force");
    tcase_set_timeout(c, 300);
    tcase_add_checked_fixture(c, see_right, forget_right);
    tcase_add_test(c, every_hypothesis_enters_at_its_stages);
    tcase_add_test(c, a_state_fault_shows_at_its_step);
    tcase_add_test(c, half_precision_is_the_nearest);
    tcase_add_test(c, two_at_once);
    tcase_add_test(c, none_at_all);
    suite_add_tcase(s, c);
    c = tcase_create("state");
    tcase_add_checked_fixture(c, open_model, close_model);
    tcase_add_test(c, no_state_fault_is_left_out);
    tcase_add_test(c, what_a_preview_writes_follows_from_the_injected_values);
    tcase_add_test(c, what_a_preview_writes_is_as_wrong_as_a_commit);
    tcase_add_test(c, rows_that_stay_take_no_room_from_commits);
    tcase_add_test(c, a_preview_that_nobody_watched_is_an_error);
    tcase_add_test(c, what_a_restore_leaves);
    tcase_add_test(c, which_row_is_lost);
    tcase_add_test(c, a_commit_of_one_row_does_not_restart);
    tcase_add_test(c, too_many);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(hypotheses_suite()); }
