/* diff_judge.c - from figures to verdicts. [DIF-4, DIF-5, DIF-6] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "diff_parts.h"

static void set_budget(const DiffRun *d, ProbeResult *r) {
    /* A floor of zero (a value that happens to be exact) does not forbid half a unit in the last place. */
    const double rms = r->added.relative > 0 && isfinite(r->added.relative) ? r->added.rms / r->added.relative : fabs(r->added.expected);
    /* Few elements: that the profile happened to round them all the right way says little. */
    int64_t n = 1;
    for (int i = 0; i < r->dims; i++) n *= r->shape[i];
    const double unit = n < 64 ? profile_unit(d->options->profile) : 0x1p-24;
    r->floor_rms = fmax(r->floor_rms, unit / 2 * rms);
    r->floor_max = fmax(r->floor_max, unit * fmax(rms, fabs(r->added.expected)));
    r->budget_rms = d->result->margin_rms * r->floor_rms;
    r->budget_max = d->result->margin_max * r->floor_max;
    r->passing = is_choice(stage_of(r->probe)) ? 0 : fmax(r->floor_rms > 0 ? r->added.rms / r->floor_rms : 0, r->floor_max > 0 ? r->added.max / r->floor_max : 0);
}

/* A coarse profile hides small faults: how small? */
static void note_resolution(DiffRun *d) {
    const DiffResult *out = d->result;
    double *relative = malloc((size_t)out->n_probes * sizeof *relative + 1);
    int64_t n = 0;
    if (!relative || d->options->profile == CLOVER_F32) {
        free(relative);
        return;
    }
    for (int64_t i = 0; i < out->n_probes; i++)
        if (out->probe[i].injected && d->total[i].right_rms > 0 && !is_choice(stage_of(out->probe[i].probe))) relative[n++] = out->probe[i].budget_rms / d->total[i].right_rms;
    qsort(relative, (size_t)n, sizeof *relative, ascending);
    if (n) diff_note(d, "profile %s: a stage may add %.2g of its values' rms (median of the budgets) before it differs; a fault smaller than that does not show", out->profile, relative[n / 2]);
    free(relative);
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
        const BundleCase *b = case_named(d->bundle, r->case_name);
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
 * made from inputs that are wrong, or many small errors have one sign. A probe's arrays of a case are taken together, since a few
 * elements of one step say little. */
static bool is_of_the_whole(const DiffRun *d, const ProbeResult *r) {
    const char *stage = stage_of(r->probe);
    return r->verdict == STAGE_CONFORMS && r->injected && !d->total[r - d->result->probe].unseen && (strcmp(stage, "out") == 0 || strcmp(stage, "final_norm") == 0 || strcmp(stage, "logits") == 0);
}

static bool off_in_the_whole(const DiffRun *d, const ProbeResult *of) {
    const DiffResult *out = d->result;
    const double unit = profile_unit(d->options->profile);
    double off = 0, floor = 0, elements = 0;
    for (const ProbeResult *r = of; r < out->probe + out->n_probes && r->case_name == of->case_name; r++) {
        if (strcmp(r->probe, of->probe) != 0 || !is_of_the_whole(d, r)) continue;
        const DiffTotal *t = &d->total[r - out->probe];
        double n = 1;
        for (int k = 0; k < r->dims; k++) n *= (double)r->shape[k];
        off += n * t->rms * t->rms;
        floor += n * fmax(t->floor_rms * t->floor_rms + t->storage_rms * t->storage_rms, unit * t->right_rms * unit * t->right_rms);
        elements += n;
    }
    return elements >= 256 && sqrt(off) > out->margin_rms / DIFF_MARGIN_RMS * DIFF_WHOLE_RMS * sqrt(floor);
}

static void check_the_whole(DiffRun *d) {
    DiffResult *out = d->result;
    for (int64_t i = 0; i < out->n_probes; i++) {
        ProbeResult *r = &out->probe[i];
        bool first = is_of_the_whole(d, r);
        for (int64_t k = 0; k < i && first; k++) first = out->probe[k].case_name != r->case_name || strcmp(out->probe[k].probe, r->probe) != 0 || !is_of_the_whole(d, &out->probe[k]);
        if (!first || !off_in_the_whole(d, r)) continue;
        r->verdict = STAGE_DIFFERS;
        snprintf(r->note, sizeof r->note, "no stage adds more than its budget, but in this case's steps together this one is off the golden by more than the profile's rounding explains");
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
        near_ties += r->near_ties, flips += r->flips, choices += r->choices;
        if (r->added.not_finite) {
            r->verdict = STAGE_WRONG;
            snprintf(r->note, sizeof r->note, "%lld of the values %s NaN or infinite", (long long)r->added.not_finite, r->added.not_finite == 1 ? "is" : "are");
        } else if (diff_beyond(r)) r->verdict = STAGE_DIFFERS;
        else if (!is_choice(stage_of(r->probe)) && is_coarse(r->type, d->options->profile)) {
            r->verdict = STAGE_BELOW_FLOOR;
            coarse++;
        }
    }
    /* [DIF-6] Another representation: the stage differs, its readers do not. A reader that is fed such a stage is judged by its own value. */
    for (int64_t i = 0; i < out->n_probes; i++) {
        ProbeResult *r = &out->probe[i];
        if (r->verdict != STAGE_DIFFERS || is_choice(stage_of(r->probe)) || !r->injected) continue;
        if (diff_agrees(d, r) && diff_fed_another_form(d, r)) {
            r->verdict = STAGE_CONFORMS;
            snprintf(r->note, sizeof r->note, "agrees with the golden, though not with what its inputs say: they stand for the same thing in another form");
            continue;
        }
        const ReadersSay readers = diff_readers(d, r);
        const char *form = diff_agrees_in_form(d, r) ? d->total[i].form.name : NULL;
        if (readers == READERS_AGREE && form) {
            r->verdict = STAGE_REPRESENTATION;
            snprintf(r->note, sizeof r->note, "differs, but every stage that reads it agrees with the golden: another representation of the same thing (%s)", form);
            diff_note(d, "%s/%s %s: differs, but every stage that reads it agrees: another representation (%s)", r->case_name, r->step, r->probe, form);
        } else if (readers == READERS_AGREE)
            snprintf(r->note, sizeof r->note, "every stage that reads it agrees with the golden, and it is no form of the golden's numbers: perhaps this is not what the engine went on with");
        else if (readers == READERS_NONE && form)
            snprintf(r->note, sizeof r->note, "may be another representation of the same thing (%s): the dump has nothing that reads it; dump what does to tell", form);
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
    note_resolution(d);
    for (int64_t i = 0; i < out->n_probes; i++)
        if (d->total[i].unseen) {
            diff_note(d, "the dump shows neither the experts chosen (moe.ids, with a coreset moe.coreset) nor what came of them in some layers: the budgets leave room for the flips of near ties there");
            break;
        }
    if (coarse)
        diff_note(d, "%lld arrays are stored so coarsely that a fault smaller than their storage's rounding would not show: they are below the floor, not proven to conform", (long long)coarse);
    if (flips)
        diff_note(d, "choices: %lld of %lld differ, %lld of them near ties (followed, the rest judged given them)", (long long)flips, (long long)choices, (long long)near_ties);
    if (d->hidden_flips)
        diff_note(d, "choices of experts that the dump does not show: %lld near ties went the other way, as what follows from them tells (followed)", (long long)d->hidden_flips);
    out->verdict = out->first >= 0 ? DIFF_DIFFERS : out->n_probes == 0 || d->broken ? DIFF_INCOMPARABLE : DIFF_CONFORMS;
}
