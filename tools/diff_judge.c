/* diff_judge.c - from figures to verdicts. [DIF-4, DIF-5, DIF-6] */
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
static void total_budget(const DiffRun *d, const ProbeResult *r, double *rms, double *max) {
    const DiffTotal *t = &d->total[r - d->result->probe];
    const double unit = d->options->profile == CLOVER_BF16 ? 0x1p-9 : 0x1p-24;
    *rms = d->result->margin_rms * fmax(sqrt(t->floor_rms * t->floor_rms + t->storage_rms * t->storage_rms), unit / 2 * t->right_rms);
    *max = d->result->margin_max * fmax(t->floor_max + t->storage_max, unit * t->right_max);
}

/* Does its own value agree with the golden (given the dump's choices), as far as the profile's rounding lets it? */
static bool agrees_in_total(const DiffRun *d, const ProbeResult *r) {
    const DiffTotal *t = &d->total[r - d->result->probe];
    double rms, max;
    if (is_choice(stage_of(r->probe))) return r->total.max == 0;
    total_budget(d, r, &rms, &max);
    return r->verdict != STAGE_WRONG && r->total.not_finite == 0 && t->rms <= rms && t->max <= max;
}

/* Does it agree when a form that engines use is undone? */
static bool agrees_in_form(const DiffRun *d, const ProbeResult *r) {
    const FormFit *f = &d->total[r - d->result->probe].form;
    double rms, max;
    total_budget(d, r, &rms, &max);
    return f->name && f->rms <= rms && f->max <= max;
}

/* Added beyond the budget, not finite, or another choice that is no near tie. */
static bool beyond(const ProbeResult *r) {
    if (is_choice(stage_of(r->probe))) return r->flips > r->near_ties;
    return !(r->added.rms <= r->budget_rms && r->added.max <= r->budget_max);   /* NaN is beyond too */
}

static bool in_another_form(const ProbeResult *except, const ProbeResult *r) { return r && r != except && (r->verdict == STAGE_DIFFERS || r->verdict == STAGE_REPRESENTATION); }

/* Was this stage fed what may be another form: does a stage that it reads, other than `except`, differ? */
static bool was_fed_another_form(const DiffRun *d, const ProbeResult *r, const ProbeResult *except) {
    static const struct { const char *stage, *reads[3]; } across_steps[] = {
        { "attn.context", { "attn.k_rope", "attn.v" } }, { "gdn.conv", { "gdn.qkv" } }, { "gdn.mixed", { "gdn.state" } }, { "gdn.state", { "gdn.state" } } };
    const char *stage = stage_of(r->probe);
    const CloverConfig *c = &d->model->config;
    for (int i = 0; i < N_STAGES; i++)
        for (int k = 0; k < 6 && readers_of[i].readers[k]; k++) {
            const char *name = readers_of[i].readers[k];
            const bool next_layer = *name == '+';
            if (next_layer ? strcmp(name + 1, stage) == 0 && in_another_form(except, find(d, r, strcmp(readers_of[i].stage, "embed") == 0 ? -1 : r->layer - 1, readers_of[i].stage))
                           : strcmp(name, stage) == 0 && in_another_form(except, find(d, r, r->layer, readers_of[i].stage))) return true;
        }
    if (strncmp(stage, "attn.", 5) == 0 && in_another_form(except, find(d, r, r->layer, "attn_norm"))) return true;
    if (strcmp(stage, "final_norm") == 0 && in_another_form(except, find(d, r, c->layers - 1, "out"))) return true;
    if (strcmp(stage, "gdn.block_weights") == 0 && (in_another_form(except, find(d, r, r->layer, "gdn.q")) || in_another_form(except, find(d, r, r->layer, "gdn.k")))) return true;
    for (size_t i = 0; i < sizeof across_steps / sizeof *across_steps; i++)
        for (int k = 0; k < 3 && across_steps[i].reads[k]; k++)
            if (strcmp(across_steps[i].stage, stage) == 0 && in_another_form(except, find_near(d, r, -1, r->layer, across_steps[i].reads[k]))) return true;
    return false;
}

static bool restored_between(const DiffRun *d, const ProbeResult *from, const ProbeResult *to) {
    const BundleCase *c = d->bundle->cases;
    while (c->name != from->case_name) c++;
    for (int64_t i = from->step_index + 1; i < to->step_index; i++)
        if (c->step[i].kind == STEP_RESTORE) return true;
    return false;
}

/* Does this reader tell that what it reads is another form: it undoes it (so it is not what the rule makes of it), or another of its
 * inputs differs too and makes up for it, to within about what the profile's rounding does? A reader that hardly depends on the stage tells
 * nothing. */
static bool tells_a_form(const DiffRun *d, const ProbeResult *reader, const ProbeResult *of) {
    if (is_choice(stage_of(reader->probe))) return was_fed_another_form(d, reader, of);
    const DiffTotal *t = &d->total[reader - d->result->probe];
    return beyond(reader) || (was_fed_another_form(d, reader, of) && t->rms <= 2 * fmax(t->floor_rms, reader->floor_rms));
}

/* Every reader is in the dump and agrees with the golden: the stage holds the same thing in another form. [DIF-6] */
static bool readers_agree(const DiffRun *d, const ProbeResult *r) {
    const char *stage = stage_of(r->probe);
    const CloverConfig *c = &d->model->config;
    int64_t readers = 0;
    bool told = false;
    if (strcmp(stage, "gdn.state") == 0) {   /* read by the next step, unless a restore comes between */
        const ProbeResult *reader = find_near(d, r, 1, r->layer, "gdn.mixed");
        if (reader && !restored_between(d, r, reader)) return agrees_in_total(d, reader) && tells_a_form(d, reader, r);
        const ProbeResult *before = find_near(d, r, -1, r->layer, stage);   /* nobody reads this one: as those before it */
        return before && before->verdict == STAGE_REPRESENTATION;
    }
    for (int i = 0; i < N_STAGES; i++) {
        if (strcmp(readers_of[i].stage, stage) != 0) continue;
        for (int k = 0; k < 6 && readers_of[i].readers[k]; k++) {
            const char *name = readers_of[i].readers[k];
            int64_t layer = r->layer;
            if (*name == '+') {
                layer++;
                name++;
                if (layer >= c->layers) {
                    if (strcmp(name, "mixer_residual") == 0) continue;
                    layer = -1;
                    name = "final_norm";
                }
            }
            static const char *const of_attention[4] = { "attn.q", "attn.gate", "attn.k", "attn.v" };
            if (strcmp(stage, "attn_norm") == 0 && layer >= 0 && c->full_attention[layer]) name = of_attention[k];
            if (strcmp(name, "gdn.state") == 0 && !find(d, r, layer, name)) continue;   /* a preview has none */
            const ProbeResult *reader = find(d, r, layer, name);
            if (!reader || !agrees_in_total(d, reader)) return false;
            readers++;
            told |= tells_a_form(d, reader, r);
        }
        /* In a preview q and k go through the block weights. */
        if (strcmp(stage, "gdn.q") == 0 || strcmp(stage, "gdn.k") == 0) {
            const ProbeResult *weights = find(d, r, r->layer, "gdn.block_weights");
            if (weights && !agrees_in_total(d, weights)) return false;
            told |= weights && tells_a_form(d, weights, r);
        }
    }
    return readers > 0 && told;
}

static void set_budget(const DiffRun *d, ProbeResult *r) {
    /* A floor of zero (a value that happens to be exact) does not forbid half a unit in the last place. */
    const double rms = r->added.relative > 0 && isfinite(r->added.relative) ? r->added.rms / r->added.relative : fabs(r->added.expected);
    /* Few elements: that the profile happened to round them all the right way says little. */
    int64_t n = 1;
    for (int i = 0; i < r->dims; i++) n *= r->shape[i];
    const double unit = n < 64 && d->options->profile == CLOVER_BF16 ? 0x1p-9 : 0x1p-24;
    r->floor_rms = fmax(r->floor_rms, unit / 2 * rms);
    r->floor_max = fmax(r->floor_max, unit * fmax(rms, fabs(r->added.expected)));
    r->budget_rms = d->result->margin_rms * r->floor_rms;
    r->budget_max = d->result->margin_max * r->floor_max;
    r->passing = is_choice(stage_of(r->probe)) ? 0 : fmax(r->floor_rms > 0 ? r->added.rms / r->floor_rms : 0, r->floor_max > 0 ? r->added.max / r->floor_max : 0);
}

/* The first thing compared says whether the dump is of this model and prompt at all. */
static void note_strangers(DiffRun *d, const ProbeResult *r) {
    if ((r == d->result->probe || strcmp(r->probe, "embed") == 0) && r->verdict == STAGE_DIFFERS && fabs(r->added.cosine) < 0.5)
        diff_note(d, "%s/%s: the dump's %s has nothing in common with the model's (cosine %.2f): it is of another model, another prompt, or its rows stand in another order",
                  r->case_name, r->step, r->probe, r->added.cosine);
}

/* What the steps of a case start from. [DIF-3] */
static void note_state(DiffRun *d) {
    static const struct { const char *stage, *what; bool attention; } carried[] = {
        { "attn.k_rope", "keys", true }, { "attn.v", "values", true }, { "gdn.qkv", "conv rings", false }, { "gdn.state", "S", false } };
    const CloverConfig *c = &d->model->config;
    const DiffResult *out = d->result;
    int64_t commits = 0, attention = 0, have[4] = { 0 };
    for (int64_t l = 0; l < c->layers; l++) attention += c->full_attention[l];
    for (int64_t i = 0; i < d->bundle->n_cases; i++)
        for (int64_t k = 0; k + 1 < d->bundle->cases[i].n_steps; k++) commits += d->bundle->cases[i].step[k].kind == STEP_COMMIT;   /* a later step starts from it */
    for (int64_t i = 0; i < out->n_probes; i++) {
        const ProbeResult *r = &out->probe[i];
        const BundleCase *b = d->bundle->cases;
        while (b->name != r->case_name) b++;
        for (int k = 0; k < 4; k++)
            have[k] += r->verdict != STAGE_WRONG && b->step[r->step_index].kind == STEP_COMMIT && r->step_index + 1 < b->n_steps && strcmp(stage_of(r->probe), carried[k].stage) == 0;
    }
    if (commits == 0 || out->n_probes == 0) return;
    char text[256];
    size_t used = 0;
    for (int k = 0; k < 4; k++) {
        const int64_t all = commits * (carried[k].attention ? attention : c->layers - attention);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %lld of %lld", k ? ", " : "", carried[k].what, (long long)have[k], (long long)all);
    }
    diff_note(d, "state carried between steps, taken from the dump (layers x steps): %s; the rest is rebuilt by running the layers over what the dump has, or is the golden's where a step is missing", text);
}

/* Where no stage added more than its budget, the whole must still be what the profile's rounding makes of it: else the budgets were
 * made from inputs that are wrong, or many small errors have one sign. Measured: sound engines stay below a quarter of this. */
static void check_the_whole(DiffRun *d) {
    DiffResult *out = d->result;
    for (int64_t i = 0; i < out->n_probes; i++) {
        ProbeResult *r = &out->probe[i];
        if (r->verdict != STAGE_CONFORMS || !r->injected || is_choice(stage_of(r->probe)) || agrees_in_total(d, r)) continue;
        r->verdict = STAGE_DIFFERS;
        snprintf(r->note, sizeof r->note, "no stage adds more than its budget, but this one is off the golden by more than the profile's rounding explains in the whole");
        out->first = i;
        return;
    }
}

void diff_judge(DiffRun *d) {
    DiffResult *out = d->result;
    int64_t coarse = 0, near_ties = 0, flips = 0, choices = 0;
    for (int64_t i = 0; i < out->n_probes; i++) {
        ProbeResult *r = &out->probe[i];
        if (r->verdict == STAGE_WRONG) continue;
        set_budget(d, r);
        near_ties += r->near_ties, flips += r->flips, choices += strcmp(stage_of(r->probe), "moe.ids") == 0 ? r->choices : 0;
        if (r->added.not_finite) {
            r->verdict = STAGE_WRONG;
            snprintf(r->note, sizeof r->note, "%lld values are NaN or infinite", (long long)r->added.not_finite);
        } else if (beyond(r)) r->verdict = STAGE_DIFFERS;
        else if (!is_choice(stage_of(r->probe)) && is_coarse(r->type, d->options->profile)) {
            r->verdict = STAGE_BELOW_FLOOR;
            coarse++;
        }
    }
    /* [DIF-6] Another representation: the stage differs, its readers do not. A reader that is fed such a stage is judged by its own value. */
    for (int64_t i = 0; i < out->n_probes; i++) {
        ProbeResult *r = &out->probe[i];
        if (r->verdict != STAGE_DIFFERS || is_choice(stage_of(r->probe)) || !r->injected) continue;
        if (agrees_in_total(d, r) && was_fed_another_form(d, r, NULL)) {
            r->verdict = STAGE_CONFORMS;
            snprintf(r->note, sizeof r->note, "agrees with the golden, though not with what its inputs say: they stand for the same thing in another form");
        } else if (readers_agree(d, r)) {
            const char *form = d->total[i].form.name;
            if (agrees_in_form(d, r)) {
                r->verdict = STAGE_REPRESENTATION;
                snprintf(r->note, sizeof r->note, "differs, but every stage that reads it agrees with the golden: another representation of the same thing (%s)", form);
                diff_note(d, "%s/%s %s: differs, but every stage that reads it agrees: another representation (%s)", r->case_name, r->step, r->probe, form);
            } else snprintf(r->note, sizeof r->note, "every stage that reads it agrees with the golden, and it is no form of the golden's numbers: perhaps this is not what the engine went on with");
        }
    }
    out->first = -1;
    for (int64_t i = 0; i < out->n_probes; i++) {
        ProbeResult *r = &out->probe[i];
        if (r->verdict != STAGE_DIFFERS && r->verdict != STAGE_WRONG) continue;
        if (out->first < 0) out->first = i;
        note_strangers(d, r);
    }
    if (out->first < 0) check_the_whole(d);
    if (d->model) note_state(d);
    if (coarse)
        diff_note(d, "%lld arrays are stored so coarsely that a fault smaller than their storage's rounding would not show: they are below the floor, not proven to conform", (long long)coarse);
    if (flips)
        diff_note(d, "choices of experts: %lld of %lld differ, %lld of them near ties (followed, the rest judged given them)", (long long)flips, (long long)choices, (long long)near_ties);
    if (d->hidden_flips)
        diff_note(d, "choices of experts that the dump does not show: %lld near ties went the other way, as what follows from them tells (followed)", (long long)d->hidden_flips);
    out->verdict = out->first >= 0 ? DIFF_DIFFERS : out->n_probes == 0 || d->broken ? DIFF_INCOMPARABLE : DIFF_CONFORMS;
}
