/* diff_readers.c - who reads a stage, and what its readers say of it: the same thing in another form? [DIF-6] */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "diff_parts.h"

/* Who reads a stage, by name without layer. A name with a leading + is of the next layer, or final_norm after the last. */
static const struct { const char *stage, *readers[6]; } readers_of[] = {
    { "embed", { "+attn_norm", "+mixer_residual" } },
    { "attn_norm", { "gdn.qkv", "gdn.z", "gdn.beta", "gdn.g" } },   /* in full attention: attn.q, attn.gate, attn.k, attn.v; see below */
    { "attn.q", { "attn.q_norm" } }, { "attn.k", { "attn.k_norm" } }, { "attn.q_norm", { "attn.q_rope" } }, { "attn.k_norm", { "attn.k_rope" } },
    { "attn.q_rope", { "attn.context" } }, { "attn.k_rope", { "attn.context" } }, { "attn.v", { "attn.context" } },
    { "attn.context", { "attn.gated" } }, { "attn.gate", { "attn.gated" } }, { "attn.gated", { "mixer" } },
    { "gdn.qkv", { "gdn.conv" } }, { "gdn.z", { "gdn.gated" } }, { "gdn.beta", { "gdn.mixed", "gdn.state" } }, { "gdn.g", { "gdn.mixed", "gdn.state" } },
    { "gdn.conv", { "gdn.q", "gdn.k", "gdn.v" } }, { "gdn.q", { "gdn.mixed" } }, { "gdn.k", { "gdn.mixed", "gdn.state" } }, { "gdn.v", { "gdn.mixed", "gdn.state" } },
    { "gdn.block_weights", { "gdn.mixed" } }, { "gdn.mixed", { "gdn.gated" } }, { "gdn.gated", { "mixer" } },
    { "mixer", { "mixer_residual" } }, { "mixer_residual", { "ffn_norm", "out" } }, { "ffn_norm", { "moe.probs", "moe.routed", "moe.shared", "moe.shared_gate" } },
    { "moe.probs", { "moe.ids", "moe.weights" } }, { "moe.ids", { "moe.routed" } }, { "moe.weights", { "moe.routed" } },
    { "moe.routed", { "moe" } }, { "moe.shared", { "moe" } }, { "moe.shared_gate", { "moe" } }, { "moe", { "out" } },
    { "out", { "+attn_norm", "+mixer_residual" } }, { "final_norm", { "logits" } },
};
enum { N_STAGES = sizeof readers_of / sizeof *readers_of };

/* The result of a stage in the same step, or the nearest in a step before (-1) or after (1); NULL when the dump lacks it. */
static const ProbeResult *find_near(const DiffRun *d, const ProbeResult *at, int which, int64_t layer, const char *stage) {
    const DiffResult *out = d->result;
    char name[64];
    if (layer < 0) snprintf(name, sizeof name, "%s", stage);
    else snprintf(name, sizeof name, "L%02lld.%s", (long long)layer, stage);
    const int64_t by = which < 0 ? -1 : 1;
    int64_t i = at - out->probe;
    if (which == 0)
        while (i > 0 && out->probe[i - 1].step_index == at->step_index && out->probe[i - 1].case_name == at->case_name) i--;
    for (; i >= 0 && i < out->n_probes && out->probe[i].case_name == at->case_name; i += by) {
        const ProbeResult *r = &out->probe[i];
        if (which == 0 && r->step_index != at->step_index) return NULL;
        if ((which == 0 || r->step_index != at->step_index) && r->layer == layer && strcmp(r->probe, name) == 0) return r;
    }
    return NULL;
}
static const ProbeResult *find(const DiffRun *d, const ProbeResult *at, int64_t layer, const char *stage) { return find_near(d, at, 0, layer, stage); }

/* What a sound engine may be off in the whole: the profile's own run and the dump's storage. The measure is the golden's, for a budget
 * made from the dump's own inputs grows with what is wrong in them. At least half a unit in the last place. */
void diff_total_budget(const DiffRun *d, const ProbeResult *r, double *rms, double *max) {
    const DiffTotal *t = &d->total[r - d->result->probe];
    const double unit = profile_unit(d->options->profile);
    *rms = d->result->margin_rms * fmax(sqrt(t->floor_rms * t->floor_rms + t->storage_rms * t->storage_rms), unit / 2 * t->right_rms);
    *max = d->result->margin_max * fmax(t->floor_max + t->storage_max, unit * t->right_max);
}

/* Does its own value agree with the golden (given the dump's choices), as far as the profile's rounding lets it? */
bool diff_agrees(const DiffRun *d, const ProbeResult *r) {
    const DiffTotal *t = &d->total[r - d->result->probe];
    double rms, max;
    if (is_choice(stage_of(r->probe))) return r->total.max == 0;
    diff_total_budget(d, r, &rms, &max);
    return r->verdict != STAGE_WRONG && r->total.not_finite == 0 && t->rms <= rms && t->max <= max;
}

/* Does it agree when a form that engines use is undone? */
bool diff_agrees_in_form(const DiffRun *d, const ProbeResult *r) {
    const FormFit *f = &d->total[r - d->result->probe].form;
    double rms, max;
    diff_total_budget(d, r, &rms, &max);
    return f->name && f->rms <= rms && f->max <= max;
}

/* Added beyond the budget, not finite, or another choice that is no near tie. */
bool diff_beyond(const ProbeResult *r) {
    if (is_choice(stage_of(r->probe))) return r->flips > r->near_ties;
    return !(r->added.rms <= r->budget_rms && r->added.max <= r->budget_max);   /* NaN is beyond too */
}

static bool in_another_form(const ProbeResult *except, const ProbeResult *r) { return r && r != except && (r->verdict == STAGE_DIFFERS || r->verdict == STAGE_REPRESENTATION); }

/* Who reads what of the steps before. */
static const struct { const char *stage, *reads[3]; } across_steps[] = {
    { "attn.context", { "attn.k_rope", "attn.v" } }, { "gdn.conv", { "gdn.qkv" } }, { "gdn.mixed", { "gdn.state" } }, { "gdn.state", { "gdn.state" } } };
enum { N_ACROSS = sizeof across_steps / sizeof *across_steps };

/* Does `stage` differ in a step before r's? Keys and values of all of them are read. */
static bool differed_before(const DiffRun *d, const ProbeResult *r, int64_t layer, const char *stage, const ProbeResult *except) {
    for (const ProbeResult *p = r; (p = find_near(d, p, -1, layer, stage)) != NULL;)
        if (in_another_form(except, p)) return true;
    return false;
}

static bool is_full_attention(const DiffRun *d, int64_t layer) { return layer >= 0 && d->model->config.full_attention[layer]; }

/* Of layer `at`, the stage that `name` in readers_of stands for there: attn_norm's readers depend on the layer's kind. */
static const char *reader_name(const DiffRun *d, int64_t at, const char *stage, int k, const char *name) {
    static const char *const of_attention[4] = { "attn.q", "attn.gate", "attn.k", "attn.v" };
    return strcmp(stage, "attn_norm") == 0 && is_full_attention(d, at) && k < 4 ? of_attention[k] : name;
}

/* Does a stage that `stage` of r's step and `layer` reads, other than `except`, differ? Where the dump lacks what it reads: what that reads. */
static bool fed_another_form(const DiffRun *d, const ProbeResult *r, int64_t layer, const char *stage, const ProbeResult *except) {
    for (int i = 0; i < N_STAGES; i++)
        for (int k = 0; k < 6 && readers_of[i].readers[k]; k++) {
            const bool next_layer = *readers_of[i].readers[k] == '+';
            const char *name = next_layer ? readers_of[i].readers[k] + 1 : reader_name(d, layer, readers_of[i].stage, k, readers_of[i].readers[k]);
            const bool head = strcmp(stage, "final_norm") == 0 && strcmp(readers_of[i].stage, "out") == 0 && k == 0;
            if (!head && strcmp(name, stage) != 0) continue;
            const bool embed = strcmp(readers_of[i].stage, "embed") == 0, final = strcmp(readers_of[i].stage, "final_norm") == 0;
            if (next_layer && !head && embed != (layer == 0)) continue;   /* layer 0 reads embed, the others the layer before */
            const int64_t of = embed || final ? -1 : head ? d->model->config.layers - 1 : next_layer ? layer - 1 : layer;
            const ProbeResult *input = find(d, r, of, readers_of[i].stage);
            if (input ? in_another_form(except, input) : fed_another_form(d, r, of, readers_of[i].stage, except)) return true;
        }
    if (strcmp(stage, "gdn.block_weights") == 0 && (in_another_form(except, find(d, r, layer, "gdn.q")) || in_another_form(except, find(d, r, layer, "gdn.k")))) return true;
    for (size_t i = 0; i < N_ACROSS; i++)
        for (int k = 0; k < 3 && across_steps[i].reads[k]; k++)
            if (strcmp(across_steps[i].stage, stage) == 0 && differed_before(d, r, layer, across_steps[i].reads[k], except)) return true;
    return false;
}

bool diff_fed_another_form(const DiffRun *d, const ProbeResult *r) { return fed_another_form(d, r, r->layer, stage_of(r->probe), NULL); }

static bool restored_between(const DiffRun *d, const ProbeResult *from, const ProbeResult *to) {
    const BundleCase *c = case_named(d->bundle, from->case_name);
    for (int64_t i = from->step_index + 1; i < to->step_index; i++)
        if (c->step[i].kind == STEP_RESTORE) return true;
    return false;
}

/* Does this reader tell that what it reads is another form: it undoes it (so it is not what the rule makes of it), or another of its
 * inputs differs too and makes up for it, to within about what the profile's rounding does? A reader that hardly depends on the stage tells
 * nothing. */
static bool tells_a_form(const DiffRun *d, const ProbeResult *reader, const ProbeResult *of) {
    const bool fed = fed_another_form(d, reader, reader->layer, stage_of(reader->probe), of);
    if (is_choice(stage_of(reader->probe))) return fed;
    const DiffTotal *t = &d->total[reader - d->result->probe];
    return diff_beyond(reader) || (fed && t->rms <= 2 * fmax(t->floor_rms, reader->floor_rms));
}

typedef struct Readers { int64_t n; bool agree, told; } Readers;

static void ask(const DiffRun *d, const ProbeResult *r, const ProbeResult *reader, Readers *all) {
    all->n++;
    all->agree = all->agree && diff_agrees(d, reader);
    all->told = all->told || tells_a_form(d, reader, r);
}

/* Every reader of `stage` in r's layer and step; of one that the dump lacks, its own. */
static void ask_readers(const DiffRun *d, const ProbeResult *r, const char *stage, Readers *all) {
    for (int i = 0; i < N_STAGES; i++) {
        if (strcmp(readers_of[i].stage, stage) != 0) continue;
        for (int k = 0; k < 6 && readers_of[i].readers[k]; k++) {
            const char *name = reader_name(d, r->layer, stage, k, readers_of[i].readers[k]);
            if (*name == '+' || strcmp(name, "gdn.state") == 0) continue;   /* S: asked below */
            const ProbeResult *reader = find(d, r, r->layer, name);
            if (reader) ask(d, r, reader, all);
            else ask_readers(d, r, name, all);
        }
    }
}

/* The readers of later steps, unless a restore comes between. */
static void ask_later(const DiffRun *d, const ProbeResult *r, const char *stage, Readers *all) {
    static const char *const behind_S[] = { "gdn.mixed", "gdn.gated", "mixer", NULL };
    for (size_t i = 0; i < N_ACROSS; i++)
        for (int k = 0; k < 3 && across_steps[i].reads[k]; k++) {
            if (strcmp(across_steps[i].reads[k], stage) != 0 || strcmp(across_steps[i].stage, stage) == 0) continue;
            const char *name = across_steps[i].stage;
            const ProbeResult *reader = find_near(d, r, 1, r->layer, name);
            for (int b = 1; !reader && strcmp(name, behind_S[0]) == 0 && behind_S[b]; b++) reader = find_near(d, r, 1, r->layer, behind_S[b]);
            if (reader && !restored_between(d, r, reader)) ask(d, r, reader, all);
        }
}

ReadersSay diff_readers(const DiffRun *d, const ProbeResult *r) {
    const char *stage = stage_of(r->probe);
    Readers all = { 0, true, false };
    ask_readers(d, r, stage, &all);
    if (strcmp(stage, "gdn.q") == 0 || strcmp(stage, "gdn.k") == 0) {   /* in a preview they go through the block weights */
        const ProbeResult *weights = find(d, r, r->layer, "gdn.block_weights");
        if (weights) ask(d, r, weights, &all);
    }
    if (strcmp(stage, "gdn.k") == 0 || strcmp(stage, "gdn.v") == 0 || strcmp(stage, "gdn.beta") == 0 || strcmp(stage, "gdn.g") == 0) {
        const ProbeResult *state = find(d, r, r->layer, "gdn.state");
        if (state) ask(d, r, state, &all);
    }
    ask_later(d, r, stage, &all);
    if (all.n == 0 && strcmp(stage, "gdn.state") == 0) {   /* nobody reads this one: as those before it */
        const ProbeResult *before = find_near(d, r, -1, r->layer, stage);
        return before && before->verdict == STAGE_REPRESENTATION ? READERS_AGREE : READERS_NONE;
    }
    return all.n == 0 ? READERS_NONE : all.agree && all.told ? READERS_AGREE : READERS_DIFFER;
}
