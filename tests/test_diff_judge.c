/* test_diff_judge.c - what clover diff makes of near ties, other representations, and dumps that cannot be compared. [DIF] */
#include <math.h>
#include "../ref/files/safetensors.h"
#include "../tools/safetensors_write.h"
#include "../tools/tools.h"
#include "judged.h"
#include "model_edit.h"

/* ---- choices that may fall either way [DIF-4] ------------------------------------------------------------------------ */

/* Where just one of experts 0 and 1 is chosen, the other one is. */
static void choose_the_twin(Run *run, const MoeW *w, Moe *a) {
    moe_causal.choose(run, w, a);
    const int64_t k = a->k;
    for (int64_t t = 0; t < a->T; t++) {
        double *ids = a->ids + t * k;
        int64_t at = -1;
        int twins = 0;
        for (int64_t i = 0; i < k; i++)
            if (ids[i] < 2) at = i, twins++;
        if (twins == 1) ids[at] = 1 - ids[at];
        double sum = 0;
        for (int64_t i = 0; i < k; i++) sum += a->weights[t * k + i] = a->probs[t * a->c->experts + (int64_t)ids[i]];
        for (int64_t i = 0; i < k; i++) a->weights[t * k + i] /= sum;
    }
}
static void set_twin(EngineRules *r) { r->moe[0].choose = r->moe[1].choose = choose_the_twin; }
static const Fault twin = { .name = "twin", .rules = set_twin };

/* The router's row of expert 1 is that of expert 0 times `factor`. Returns the model's path; its golden is twin-golden. */
static const char *make_twins(Edit *e, float factor) {
    for (int l = 0; l < 4; l++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.%d.mlp.gate.weight", l);
        EditTensor *t = edit_tensor(e, name);
        const int64_t D = t->shape[1];
        for (int64_t i = 0; i < D; i++) edit_set(t, D + i, edit_get(t, i) * factor);
    }
    const char *path = edit_write(e);
    char text[512];
    snprintf(text, sizeof text, "%s/twin-golden", judged_root);
    remove_folder(text);
    make_golden(path, "twin", -1);
    return path;
}

START_TEST(near_ties_are_followed) {
    Edit *e = edit_hf();
    Judged *j = judged_at(make_twins(e, 1 + 0x1p-23f), "twin-golden");
    Engine engine = { .fault = &twin, .type = DT_F32, .coreset_top_p = -1 };
    engine_dump(j->model, &engine, judged_folder);
    const DiffResult *r = judge(j);
    assert_conforms(j, "near ties");
    int64_t flips = 0;
    for (int64_t i = 0; i < r->n_probes; i++) {
        ck_assert_int_eq(r->probe[i].flips, r->probe[i].near_ties);
        flips += r->probe[i].flips;
    }
    ck_assert_int_gt(flips, 10);
    ck_assert(notes(r, "near ties (followed"));
    /* With layer outputs alone the choices show only in what came of them. */
    engine.wants = layers_only;
    engine_dump(j->model, &engine, judged_folder);
    judge(j);
    assert_conforms(j, "near ties, layers only");
    ck_assert(notes(r, "went the other way"));
    judged_free(j);
    edit_free(e);
}
END_TEST

/* The same where the probabilities are not that near. */
START_TEST(no_near_tie) {
    Edit *e = edit_hf();
    Judged *j = judged_at(make_twins(e, 1.25f), "twin-golden");
    Engine engine = { .fault = &twin, .type = DT_F32, .coreset_top_p = -1 };
    engine_dump(j->model, &engine, judged_folder);
    const DiffResult *r = judge(j);
    assert_first(j, "no near tie", "prompt", "L00.moe.ids");
    ck_assert_int_lt(r->probe[r->first].near_ties, r->probe[r->first].flips);
    engine.wants = layers_only;
    engine_dump(j->model, &engine, judged_folder);
    judge(j);
    assert_first(j, "no near tie, layers only", "prompt", "L00.out");
    judged_free(j);
    edit_free(e);
}
END_TEST

/* Ids as a set: another order with its weights in that order is the same; an id twice, or none, is not. */
static int64_t spoil;
static void reorder(void *user, const char *step, const char *probe, double *data, const int64_t *shape, int dims) {
    (void)user, (void)step, (void)dims;
    if (strcmp(stage_of(probe), "moe.ids") != 0 && strcmp(stage_of(probe), "moe.weights") != 0) return;
    const bool ids = strcmp(stage_of(probe), "moe.ids") == 0;
    for (int64_t t = 0; t < shape[0]; t++) {
        double *row = data + t * shape[1], first = row[0];
        row[0] = row[shape[1] - 1];
        row[shape[1] - 1] = first;
        if (ids && t == 1 && spoil == 1) row[0] = row[1];
        if (ids && t == 1 && spoil == 2) row[0] = 4711;
        if (ids && t == 1 && spoil == 3) row[0] = -1;
    }
}

START_TEST(order_of_experts) {
    Judged *j = judged_new("a-hf");
    Engine e = engine_of(&shapes[0], NULL, DT_F32);
    e.shows = reorder;
    for (spoil = 0; spoil < 4; spoil++) {
        engine_dump(j->model, &e, judged_folder);
        judge(j);
        if (spoil == 0) assert_conforms(j, "order of experts");
        else assert_first(j, "an id that cannot be", "prompt", "L00.moe.ids");
    }
    judged_free(j);
}
END_TEST

/* The bound so near to an expert's place that the two sides keep it or not: a near tie. */
START_TEST(coreset_at_its_bound) {
    char file[512], text[512];
    CloverError err;
    Safetensors *s;
    /* The places of layer 0's experts by hand, from the golden's probabilities [6, 8], two votes a row. */
    snprintf(file, sizeof file, "%s/a-hf-golden/case/block.safetensors", judged_root);
    assert_ok(safetensors_open(file, &s, &err), err);
    double probs[48], votes[8] = { 0 }, sum = 0;
    memcpy(probs, safetensors_tensor(s, "L00.moe.probs")->data, sizeof probs);
    safetensors_close(s);
    for (int t = 0; t < 6; t++)
        for (int n = 0; n < 2; n++) {
            int best = 0;
            for (int e = 1; e < 8; e++)
                if (probs[t * 8 + e] > probs[t * 8 + best]) best = e;
            votes[best] += probs[t * 8 + best], sum += probs[t * 8 + best];
            probs[t * 8 + best] = -1;
        }
    double before = 0;
    for (int n = 0; n < 2; n++) {    /* of the third */
        int best = 0;
        for (int e = 1; e < 8; e++)
            if (votes[e] > votes[best]) best = e;
        before += votes[best] / sum, votes[best] = -1;
    }
    const double bound = before + 1e-10;
    snprintf(text, sizeof text, "%s/bound-golden", judged_root);
    remove_folder(text);
    make_golden(in_folder(judged_root, "a-hf"), "bound", bound);
    Judged *j = judged_at(in_folder(judged_root, "a-hf"), "bound-golden");
    for (int far = 0; far < 2; far++) {
        Engine e = { .type = DT_F64, .coreset_top_p = bound - (far ? 1e-3 : 2e-10) };
        engine_dump(j->model, &e, judged_folder);
        const DiffResult *r = judge(j);
        int64_t flips = 0, near_ties = 0;
        for (int64_t i = 0; i < r->n_probes; i++)
            if (strcmp(r->probe[i].probe, "L00.moe.coreset") == 0) flips += r->probe[i].flips, near_ties += r->probe[i].near_ties;
        ck_assert_int_eq(flips, 1);
        ck_assert_int_eq(near_ties, 1);          /* the dump does not say by how much its bound is off */
        assert_conforms(j, "at the bound");
    }
    judged_free(j);
}
END_TEST

/* Kept besides, though no row voted for it: another expert with no votes that is not kept makes no near tie of it. */
static void keep_a_stranger(Run *run, const MoeW *w, Moe *a) {
    moe_preview.keep(run, w, a);
    for (int64_t e = a->c->experts - 1; e >= 0; e--)
        if (a->totals[e] == 0) {
            a->coreset[e] = 1;
            return;
        }
}
static void set_stranger(EngineRules *r) { r->moe[1].keep = keep_a_stranger; }
static const Fault stranger = { .name = "stranger", .rules = set_stranger };

START_TEST(an_expert_without_votes) {
    char text[1024];
    snprintf(text, sizeof text, "synth -o %s/many --form hf --hidden 32 --layers 2 --interval 2 --experts 20 --experts-used 2 --vocab 270 --seed 21", judged_root);
    must(cmd_synth, text);
    make_golden(in_folder(judged_root, "many"), "many", 0.5);
    Judged *j = judged_new("many");
    Engine e = { .fault = &stranger, .type = DT_F32, .coreset_top_p = 0.5 };
    engine_dump(j->model, &e, judged_folder);
    judge(j);
    assert_first(j, "an expert without votes", "block", "L00.moe.coreset");
    judged_free(j);
}
END_TEST

/* ---- other representations [DIF-6] ------------------------------------------------------------------------------------ */

static void rotate_7_on(Run *run, const AttnW *w, Attn *a) {
    a->past += 7;
    attn_causal.rotate(run, w, a);
    a->past -= 7;
}
static void set_7_on(EngineRules *r) { r->attn[0].rotate = r->attn[1].rotate = rotate_7_on; }
static const Fault seven_on = { .name = "seven on", .rules = set_7_on };

static bool is_stage(const char *probe, const char *stage) { return strcmp(stage_of(probe), stage) == 0; }

/* Heads of gdn.z in reverse, as if their reader knew. */
static void z_reversed(void *user, const char *step, const char *probe, double *data, const int64_t *shape, int dims) {
    (void)user, (void)step, (void)dims;
    if (!is_stage(probe, "gdn.z")) return;
    const int64_t Hv = shape[1], dv = shape[2];
    for (int64_t t = 0; t < shape[0]; t++)
        for (int64_t h = 0; h < Hv / 2; h++)
            for (int64_t j = 0; j < dv; j++) {
                double *a = data + (t * Hv + h) * dv + j, *b = data + (t * Hv + Hv - 1 - h) * dv + j, was = *a;
                *a = *b, *b = was;
            }
}
static void q_scaled(void *user, const char *step, const char *probe, double *data, const int64_t *shape, int dims) {
    (void)user, (void)step, (void)dims;
    for (int64_t i = 0; is_stage(probe, "gdn.q") && i < shape[0] * shape[1] * shape[2]; i++) data[i] *= 0.25;
}
/* S as [dv, dk], which has the same shape here. */
static void S_transposed(void *user, const char *step, const char *probe, double *data, const int64_t *shape, int dims) {
    (void)user, (void)step, (void)dims;
    for (int64_t h = 0; is_stage(probe, "gdn.state") && h < shape[0]; h++)
        for (int64_t i = 0; i < shape[1]; i++)
            for (int64_t k = 0; k < i; k++) {
                double *a = data + (h * shape[1] + i) * shape[2] + k, *b = data + (h * shape[1] + k) * shape[2] + i, was = *a;
                *a = *b, *b = was;
            }
}

static const struct { const char *name; const Fault *fault; void (*shows)(void *, const char *, const char *, double *, const int64_t *, int); const char *stage; } forms[] = {
    { "positions 7 on", &seven_on, NULL, "attn.q_rope" }, { "heads of z reversed", NULL, z_reversed, "gdn.z" }, { "q scaled", NULL, q_scaled, "gdn.q" },
    { "S transposed", NULL, S_transposed, "gdn.state" } };

START_TEST(other_representations) {
    Judged *j = judged_new("a-hf");
    Engine e = engine_of(&shapes[0], forms[_i].fault, DT_F32);
    const DiffResult *r = &j->result;
    e.shows = forms[_i].shows;
    e.numerics = CLOVER_BF16;
    j->options.profile = CLOVER_BF16;
    engine_dump(j->model, &e, judged_folder);
    judge(j);
    assert_conforms(j, forms[_i].name);
    e.numerics = CLOVER_F32;
    j->options.profile = CLOVER_F32;
    engine_dump(j->model, &e, judged_folder);
    judge(j);
    assert_conforms(j, forms[_i].name);
    ck_assert(notes(r, "another representation"));
    int64_t found = 0;
    for (int64_t i = 0; i < r->n_probes; i++) found += is_stage(r->probe[i].probe, forms[_i].stage) && r->probe[i].verdict == STAGE_REPRESENTATION;
    ck_assert_int_gt(found, 0);
    judged_free(j);
}
END_TEST

static bool up_to_mixed(void *user, const char *step, const char *probe) {
    (void)user, (void)step;
    return *probe == '\0' || is_stage(probe, "attn_norm") || (strncmp(stage_of(probe), "gdn.", 4) == 0 && !is_stage(probe, "gdn.gated"));
}
static bool all_but_gated(void *user, const char *step, const char *probe) {
    (void)user, (void)step;
    return !is_stage(probe, "gdn.gated");
}
static bool all_but_context(void *user, const char *step, const char *probe) {
    (void)user, (void)step;
    return !is_stage(probe, "attn.context");
}

/* Where nothing that reads it is there, it is a difference; where what its reader feeds is there, that tells. */
START_TEST(readers_must_agree) {
    Judged *j = judged_new("a-hf");
    Engine e = engine_of(&shapes[0], NULL, DT_F32);
    e.shows = z_reversed;
    e.wants = up_to_mixed;
    engine_dump(j->model, &e, judged_folder);
    const DiffResult *r = judge(j);
    assert_first(j, "z reversed, no reader", "prompt", "L00.gdn.z");
    ck_assert_ptr_nonnull(strstr(r->probe[r->first].note, "another order"));
    e.wants = all_but_gated;
    engine_dump(j->model, &e, judged_folder);
    judge(j);
    assert_conforms(j, "z reversed, its reader's reader");
    e = engine_of(&shapes[0], &seven_on, DT_F32);
    e.wants = all_but_context;
    engine_dump(j->model, &e, judged_folder);
    judge(j);
    assert_conforms(j, "positions 7 on, no context");
    ck_assert(notes(r, "positions counted from elsewhere"));
    judged_free(j);
}
END_TEST

/* Only the first step's keys are shown in another form: what the later steps read is that, and their values are right. */
static void first_keys_scaled(void *user, const char *step, const char *probe, double *data, const int64_t *shape, int dims) {
    (void)user, (void)dims;
    for (int64_t i = 0; strcmp(step, "prompt") == 0 && is_stage(probe, "attn.k_rope") && i < shape[0] * shape[1] * shape[2]; i++) data[i] *= 0.25;
}
START_TEST(form_of_an_earlier_step) {
    Judged *j = judged_new("a-hf");
    Engine e = engine_of(&shapes[0], NULL, DT_F32);
    e.shows = first_keys_scaled;
    engine_dump(j->model, &e, judged_folder);
    judge(j);
    assert_conforms(j, "keys of the first step scaled");
    ck_assert(notes(&j->result, "prompt L03.attn.k_rope: differs, but every stage that reads it agrees"));
    judged_free(j);
}
END_TEST

/* ---- dumps that cannot be compared [DIF-7] ------------------------------------------------------------------------------ */

static const char *in_dump(const char *name) { return in_folder(judged_folder, name); }

static Judged *right_dump(DType type) {
    Judged *j = judged_new("a-hf");
    Engine e = engine_of(&shapes[0], NULL, type);
    engine_dump(j->model, &e, judged_folder);
    return j;
}

START_TEST(a_step_is_missing) {
    Judged *j = right_dump(DT_F32);
    unlink(in_dump("prompt.safetensors"));
    const DiffResult *r = judge(j);
    ck_assert(r->n_steps == 4 && r->n_missing == 1);
    assert_conforms(j, "without the prompt");
    ck_assert(says(r->not_compared, r->n_not_compared, "case/prompt (the dump has no such step)"));
    judged_free(j);
}
END_TEST

START_TEST(nothing_to_compare) {
    Judged *j = judged_new("a-hf");
    const DiffResult *r = judge(j);          /* an empty folder */
    ck_assert_int_eq(j->status, CLOVER_OK);
    ck_assert_int_eq(r->verdict, DIFF_INCOMPARABLE);
    ck_assert(says(r->not_compared, r->n_not_compared, "case/block"));
    static const double one[1] = { 1 };
    const NamedArray theirs = { .name = "their.name", .type = DT_F64, .dims = 1, .shape = { 1 }, .data = one };
    assert_ok(safetensors_save(in_folder(judged_folder, "prompt.safetensors"), &theirs, 1, NULL, &j->err), j->err);
    judge(j);
    ck_assert_int_eq(r->verdict, DIFF_INCOMPARABLE);
    ck_assert(says(r->not_compared, r->n_not_compared, "their.name"));
    j->options.dump = "build/tmp/no-such-dump";
    judge(j);
    ck_assert_int_eq(j->status, CLOVER_BAD_INPUT);
    assert_says(j->err, "no-such-dump");
    judged_free(j);
}
END_TEST

static bool all_but_ids(void *user, const char *step, const char *probe) {
    (void)user, (void)step;
    return strcmp(probe, "ids") != 0;
}

/* The dump's files under each other's names: its ids are another step's. */
START_TEST(another_prompt) {
    Judged *j = right_dump(DT_F32);
    rename(in_dump("again.safetensors"), in_dump("more.safetensors"));
    judge(j);
    ck_assert_int_eq(j->status, CLOVER_BAD_INPUT);
    assert_says(j->err, "case/more");
    assert_says(j->err, "ids");
    judged_free(j);
}
END_TEST

static void next_ids(Run *run, const Weights *w, const CloverConfig *c, const int32_t *ids, int64_t T, double *h) {
    int32_t other[16];
    for (int64_t t = 0; t < T; t++) other[t] = ids[t] == 0 ? 1 : ids[t] - 1;
    trunk_rules.embed(run, w, c, other, T, h);
}
static void set_next_ids(EngineRules *r) { r->trunk.embed = next_ids; }
static const Fault other_ids = { .name = "other ids", .rules = set_next_ids };

START_TEST(another_prompt_without_ids) {
    Judged *j = judged_new("a-hf");
    Engine e = engine_of(&shapes[0], &other_ids, DT_F32);
    e.wants = all_but_ids;
    engine_dump(j->model, &e, judged_folder);
    const DiffResult *r = judge(j);
    assert_first(j, "other ids", "prompt", "embed");
    ck_assert(notes(r, "another prompt"));
    judged_free(j);
}
END_TEST

/* Of another seed: the shapes fit, the values do not. Of other sizes: nothing fits. */
START_TEST(another_model) {
    char text[1024];
    CloverError err;
    CloverModel *other;
    Judged *j = judged_new("a-hf");
    for (int sizes = 0; sizes < 2; sizes++) {
        const char *path = in_folder(judged_root, sizes ? "b-hf" : "other");
        if (!sizes) {
            snprintf(text, sizeof text, "synth -o %s %s --seed 99 --force", path, shapes[0].flags);
            char *seed = strstr(text, "--seed 11");
            memcpy(seed + 7, "99", 2);
            *strstr(text, " --seed 99 --force") = '\0';
            must(cmd_synth, text);
        }
        assert_ok(clover_model_open(path, NULL, &other, &err), err);
        Engine e = engine_of(&shapes[0], NULL, DT_F32);
        if (sizes) e.coreset_top_p = -1;
        engine_dump(other, &e, judged_folder);
        clover_model_close(other);
        const DiffResult *r = judge(j);
        assert_first(j, "another model", "prompt", "embed");
        if (sizes) ck_assert_msg(strstr(r->probe[r->first].note, "[12, 40]") && strstr(r->probe[r->first].note, "[12, 48]"), "%s", r->probe[r->first].note);
        else ck_assert(notes(r, "another model"));
        /* And as the model itself: it is not the golden's. */
        j->options.model = path;
        judge(j);
        ck_assert_int_eq(j->status, CLOVER_BAD_INPUT);
        assert_says(j->err, "is not the model that");
        j->options.model = NULL;
    }
    judged_free(j);
}
END_TEST

static void transposed(void *user, const char *step, const char *probe, double *data, const int64_t *shape, int dims) {
    (void)user, (void)step, (void)probe, (void)data;
    if (dims != 2) return;
    int64_t *changed = (int64_t *)(uintptr_t)shape, rows = shape[0];
    changed[0] = shape[1], changed[1] = rows;
}

START_TEST(transposed_arrays) {
    Judged *j = judged_new("a-hf");
    Engine e = engine_of(&shapes[0], NULL, DT_F32);
    e.shows = transposed;
    engine_dump(j->model, &e, judged_folder);
    const DiffResult *r = judge(j);
    assert_first(j, "transposed", "prompt", "embed");
    ck_assert_int_eq(r->probe[r->first].verdict, STAGE_WRONG);
    ck_assert_msg(strstr(r->probe[r->first].note, "transposed") != NULL, "%s", r->probe[r->first].note);
    judged_free(j);
}
END_TEST

START_TEST(truncated_file) {
    Judged *j = right_dump(DT_F32);
    ck_assert_int_eq(truncate(in_dump("block.safetensors"), 5000), 0);
    judge(j);
    ck_assert_int_eq(j->status, CLOVER_BAD_INPUT);
    assert_says(j->err, "block.safetensors");
    judged_free(j);
}
END_TEST

static void one_nan(void *user, const char *step, const char *probe, double *data, const int64_t *shape, int dims) {
    (void)shape, (void)dims;
    if (strcmp(step, "block") == 0 && strcmp(probe, "L02.gdn.v") == 0) data[17] = *(const double *)user;
}

START_TEST(not_finite) {
    const double values[2] = { (double)NAN, HUGE_VAL };
    Judged *j = judged_new("a-hf");
    for (int i = 0; i < 2; i++) {
        Engine e = engine_of(&shapes[0], NULL, DT_F32);
        e.shows = one_nan;
        e.user = (void *)(uintptr_t)&values[i];
        engine_dump(j->model, &e, judged_folder);
        const DiffResult *r = judge(j);
        assert_first(j, "NaN", "block", "L02.gdn.v");
        ck_assert_int_eq(r->probe[r->first].verdict, STAGE_WRONG);
        ck_assert_int_eq(r->probe[r->first].added.not_finite, 1);
        ck_assert_int_eq(r->probe[r->first].added.worst, 17);
        ck_assert(!isfinite(r->probe[r->first].added.actual));
    }
    judged_free(j);
}
END_TEST

/* A value so large that nothing finite follows from it, with nothing in the dump to go on from: a finding, no error of the model. */
static bool gates_only(void *user, const char *step, const char *probe) {
    (void)user, (void)step;
    return *probe == '\0' || strcmp(probe, "embed") == 0 || is_stage(probe, "gdn.g");
}
static void huge(void *user, const char *step, const char *probe, double *data, const int64_t *shape, int dims) {
    (void)user, (void)step, (void)shape, (void)dims;
    if (strcmp(probe, "L00.gdn.g") == 0) data[3] = 1e4;
}
START_TEST(overflow) {
    Judged *j = judged_new("a-hf");
    Engine e = engine_of(&shapes[0], NULL, DT_F32);
    e.shows = huge;
    e.wants = gates_only;
    engine_dump(j->model, &e, judged_folder);
    const DiffResult *r = judge(j);
    assert_first(j, "overflow", "prompt", "L00.gdn.g");
    ck_assert(notes(r, "cannot be computed to its end"));
    judged_free(j);
}
END_TEST

START_TEST(flipped_byte_in_the_bundle) {
    char text[1024];
    Judged *j = right_dump(DT_F32);
    judged_free(j);
    const char *victim = in_folder(judged_root, "a-hf-golden/case/more.safetensors");
    Bytes good = read_file(victim), bad = read_file(victim);
    bad.data[bad.n - 9] ^= 1;
    write_file(victim, bad.data, bad.n);
    snprintf(text, sizeof text, "diff %s/a-hf-golden %s", judged_root, judged_folder);
    const int code = command(cmd_diff, text);
    write_file(victim, good.data, good.n);
    free_bytes(&good);
    free_bytes(&bad);
    ck_assert_int_eq(code, CLOVER_BAD_INPUT);
    Bytes said = read_file(in_folder(judged_root, "said"));
    put_number(&said, 0, 1);
    ck_assert_ptr_nonnull(strstr((char *)said.data, "more.safetensors"));
    free_bytes(&said);
    ck_assert_int_eq(command(cmd_diff, text), 0);
}
END_TEST

/* ---- the result ---------------------------------------------------------------------------------------------------------- */

static void last_row(void *user, const char *step, const char *probe, double *data, const int64_t *shape, int dims) {
    (void)user, (void)step, (void)dims;
    if (strcmp(probe, "logits") != 0) return;
    memmove(data, data + (shape[0] - 1) * shape[1], (size_t)shape[1] * sizeof *data);
    *(int64_t *)(uintptr_t)shape = 1;
}

START_TEST(logits_of_the_last_row) {
    for (int capped = 0; capped < 2; capped++) {
        Judged *j = judged_new("a-hf");
        Engine e = engine_of(&shapes[0], capped ? fault_named("logits capped") : NULL, DT_F32);
        e.shows = last_row;
        engine_dump(j->model, &e, judged_folder);
        const DiffResult *r = judge(j);
        if (capped) assert_first(j, "last row", "prompt", "logits");
        else assert_conforms(j, "last row");
        for (int64_t i = 0; i < r->n_probes; i++)
            if (strcmp(r->probe[i].probe, "logits") == 0) {
                ck_assert_int_eq(r->probe[i].shape[0], 1);
                ck_assert_int_eq(r->probe[i].logits.rows, 1);
                ck_assert_str_eq(r->probe[i].note, "");
                ck_assert(capped || r->probe[i].total.relative < 1e-6);
            }
        judged_free(j);
    }
}
END_TEST

static double one_logit_off;
static void one_logit(void *user, const char *step, const char *probe, double *data, const int64_t *shape, int dims) {
    (void)user, (void)shape, (void)dims;
    if (strcmp(step, "more") == 0 && strcmp(probe, "logits") == 0) data[123] += one_logit_off;
}

/* One element among a thousand: too little for the root mean square, enough for the worst element. [DIF-5] */
START_TEST(one_element) {
    Judged *j = right_dump(DT_F32);
    const DiffResult *r = judge(j);
    for (int64_t i = 0; i < r->n_probes; i++)
        if (strcmp(r->probe[i].step, "more") == 0 && strcmp(r->probe[i].probe, "logits") == 0) one_logit_off = 3 * r->probe[i].budget_max;
    Engine e = engine_of(&shapes[0], NULL, DT_F32);
    e.shows = one_logit;
    engine_dump(j->model, &e, judged_folder);
    judge(j);
    assert_first(j, "one element", "more", "logits");
    const ProbeResult *p = &r->probe[r->first];
    ck_assert(p->added.rms < p->budget_rms && p->added.max > p->budget_max);
    ck_assert_int_eq(p->added.worst, 123);
    ck_assert(close_to(p->beyond, 1 / (4 * 280.0), 1e-9, 0) && p->passing > DIFF_MARGIN_MAX);
    judged_free(j);
}
END_TEST

/* What a fault in the preview leaves of the features; where the state came from. [DIF-3, DIF-7] */
START_TEST(features) {
    Judged *j = judged_new("a-hf");
    Engine e = engine_of(&shapes[0], NULL, DT_F32);
    engine_dump(j->model, &e, judged_folder);
    const DiffResult *r = judge(j);
    ck_assert(r->feature[FEATURE_CAUSAL] == FEATURE_CONFORMS && r->feature[FEATURE_PREVIEW] == FEATURE_CONFORMS && r->feature[FEATURE_CORESET] == FEATURE_CONFORMS);
    ck_assert(r->feature[FEATURE_DENOISE] == FEATURE_NOT_SHOWN && r->feature[FEATURE_DRAFT] == FEATURE_NOT_SHOWN && r->feature[FEATURE_TOKENIZER] == FEATURE_NOT_SHOWN);
    ck_assert(notes(r, "keys 2 of 2, values 2 of 2, conv rings 6 of 6, S 6 of 6"));   /* one attention layer, three GDN; two commits that a step follows */
    e.fault = fault_named("block is causal");
    engine_dump(j->model, &e, judged_folder);
    judge(j);
    ck_assert(r->feature[FEATURE_CAUSAL] == FEATURE_CONFORMS && r->feature[FEATURE_PREVIEW] == FEATURE_DIFFERS);
    unlink(in_dump("block.safetensors"));
    judge(j);
    ck_assert(r->verdict == DIFF_CONFORMS && r->feature[FEATURE_CAUSAL] == FEATURE_CONFORMS && r->feature[FEATURE_PREVIEW] == FEATURE_NOT_SHOWN);   /* AR only is not wrong */
    judged_free(j);
}
END_TEST

START_TEST(without_a_model) {
    Judged *j = judged_new("a-hf");
    j->options.no_model = true;
    for (int i = 0; i < 3; i++) {
        Engine e = engine_of(&shapes[0], i == 2 ? fault_named("embedding scaled") : NULL, i == 1 ? DT_F16 : DT_F32);
        if (i < 2) e.numerics = CLOVER_F32;
        engine_dump(j->model, &e, judged_folder);
        const DiffResult *r = judge(j);
        if (i == 2) assert_first(j, "no model", "prompt", "embed");
        else assert_conforms(j, "no model");
        ck_assert(notes(r, "no model was given"));
        ck_assert(!r->probe[0].injected);
    }
    judged_free(j);
}
END_TEST

/* In float16 the arrays that conform are said to be below the floor. */
START_TEST(below_the_floor) {
    Judged *j = right_dump(DT_F16);
    const DiffResult *r = judge(j);
    assert_conforms(j, "f16");
    for (int64_t i = 0; i < r->n_probes; i++) ck_assert_int_eq(r->probe[i].verdict, is_choice(stage_of(r->probe[i].probe)) ? STAGE_CONFORMS : STAGE_BELOW_FLOOR);
    ck_assert(notes(r, "below the floor"));
    judged_free(j);
}
END_TEST

/* Added, inherited and total: the fault adds at its stage, and the stages after it inherit. */
START_TEST(added_and_inherited) {
    Judged *j = judged_new("a-hf");
    Engine e = engine_of(&shapes[0], NULL, DT_F32);
    e.fault = fault_named("output gate missing");
    engine_dump(j->model, &e, judged_folder);
    const DiffResult *r = judge(j);
    for (int64_t i = 0; i < r->n_probes; i++) {
        const ProbeResult *p = &r->probe[i];
        if (strcmp(p->step, "prompt") != 0) continue;
        if (strcmp(p->probe, "L03.attn.context") == 0) ck_assert(p->added.relative < 1e-6 && p->inherited_rms < 1e-6);
        if (strcmp(p->probe, "L03.attn.gated") == 0) ck_assert(p->added.relative > 0.1 && p->inherited_rms < 1e-6 && p->beyond > 0.9 && p->passing > 1000);
        if (strcmp(p->probe, "L03.mixer") == 0) ck_assert(p->added.relative < 1e-6 && p->inherited_rms > 1e-3 && p->total.relative > 0.1);
    }
    judged_free(j);
}
END_TEST

/* [DIF-8] */
START_TEST(as_json) {
    Judged *j = judged_new("a-hf");
    Engine e = engine_of(&shapes[0], fault_named("embedding scaled"), DT_F32);
    engine_dump(j->model, &e, judged_folder);
    json_t *o = diff_json(judge(j), &j->bundle), *first, *probe;
    static const char *const members[] = { "verdict", "profile", "margin", "first", "diagnosis", "engine_file", "features", "traces", "notes", "not_compared", "probes" };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) ck_assert_msg(json_object_get(o, members[i]) != NULL, "no %s", members[i]);
    ck_assert_uint_eq(json_object_size(o), sizeof members / sizeof *members);
    ck_assert_str_eq(json_string_value(json_object_get(o, "verdict")), "differs");
    first = json_object_get(o, "first");
    static const char *const of_first[] = { "case", "step", "probe", "row", "index", "expected", "actual", "added", "inherited", "budget" };
    for (size_t i = 0; i < sizeof of_first / sizeof *of_first; i++) ck_assert_msg(json_object_get(first, of_first[i]) != NULL, "no first.%s", of_first[i]);
    ck_assert_str_eq(json_string_value(json_object_get(first, "probe")), "embed");
    /* Scaled by sqrt(48): what is expected and found is that far apart. */
    ck_assert(close_to(json_real_value(json_object_get(first, "actual")) / json_real_value(json_object_get(first, "expected")), sqrt(48), 1e-6, 0));
    probe = json_array_get(json_object_get(o, "probes"), 0);
    static const char *const of_probe[] = { "case", "step", "probe", "clause", "type", "shape", "verdict", "total", "added", "inherited", "floor", "budget", "beyond", "passing_margin" };
    for (size_t i = 0; i < sizeof of_probe / sizeof *of_probe; i++) ck_assert_msg(json_object_get(probe, of_probe[i]) != NULL, "no probes[].%s", of_probe[i]);
    ck_assert_str_eq(json_string_value(json_object_get(probe, "clause")), "LAY-1");
    ck_assert_uint_eq(json_array_size(json_object_get(o, "probes")), (size_t)j->result.n_probes);
    json_decref(o);
    judged_free(j);
}
END_TEST

/* Every stage that a session shows has its clause. */
START_TEST(clauses) {
    Judged *j = right_dump(DT_F32);
    const DiffResult *r = judge(j);
    for (int64_t i = 0; i < r->n_probes; i++)
        ck_assert_msg(*stage_clause(stage_of(r->probe[i].probe), strcmp(r->probe[i].step, "block") == 0), "%s has no clause", r->probe[i].probe);
    judged_free(j);
}
END_TEST

Suite *diff_judge_suite(void) {
    Suite *s = suite_create("diff_judge");
    TCase *t = tcase_create("judgement");
    tcase_add_unchecked_fixture(t, judged_make_two, judged_remove);
    tcase_add_checked_fixture(t, judged_setup, judged_teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, near_ties_are_followed);
    tcase_add_test(t, no_near_tie);
    tcase_add_test(t, order_of_experts);
    tcase_add_test(t, coreset_at_its_bound);
    tcase_add_test(t, an_expert_without_votes);
    tcase_add_loop_test(t, other_representations, 0, (int)(sizeof forms / sizeof *forms));
    tcase_add_test(t, readers_must_agree);
    tcase_add_test(t, form_of_an_earlier_step);
    tcase_add_test(t, a_step_is_missing);
    tcase_add_test(t, nothing_to_compare);
    tcase_add_test(t, another_prompt);
    tcase_add_test(t, another_prompt_without_ids);
    tcase_add_test(t, another_model);
    tcase_add_test(t, transposed_arrays);
    tcase_add_test(t, truncated_file);
    tcase_add_test(t, not_finite);
    tcase_add_test(t, overflow);
    tcase_add_test(t, flipped_byte_in_the_bundle);
    tcase_add_test(t, logits_of_the_last_row);
    tcase_add_test(t, one_element);
    tcase_add_test(t, features);
    tcase_add_test(t, without_a_model);
    tcase_add_test(t, below_the_floor);
    tcase_add_test(t, added_and_inherited);
    tcase_add_test(t, as_json);
    tcase_add_test(t, clauses);
    suite_add_tcase(s, t);
    return s;
}

int main(void) { return harness_run(diff_judge_suite()); }
