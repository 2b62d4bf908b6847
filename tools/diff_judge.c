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

static bool is_preview_only(const char *stage) { return strcmp(stage, "gdn.block_weights") == 0; }

/* The result of a stage in the same step, NULL when the dump lacks it. */
static const ProbeResult *find(const DiffRun *d, const ProbeResult *at, int64_t layer, const char *stage) {
    char name[64];
    if (layer < 0) snprintf(name, sizeof name, "%s", stage);
    else snprintf(name, sizeof name, "L%02lld.%s", (long long)layer, stage);
    for (int64_t i = 0; i < d->result->n_probes; i++) {
        const ProbeResult *r = &d->result->probe[i];
        if (r->step_index == at->step_index && r->case_name == at->case_name && strcmp(r->probe, name) == 0) return r;
    }
    return NULL;
}

/* Does its own value agree with the golden, as far as the profile's rounding lets it? */
static bool agrees_in_total(const DiffRun *d, const ProbeResult *r) {
    const int64_t i = r - d->result->probe;
    const double rms = d->result->margin_rms * fmax(d->total_floor[2 * i], r->floor_rms), max = d->result->margin_max * fmax(d->total_floor[2 * i + 1], r->floor_max);
    if (is_choice(stage_of(r->probe))) return r->total.max == 0;
    return r->verdict != STAGE_WRONG && r->total.not_finite == 0 && r->total.rms <= rms && r->total.max <= max;
}

/* Every reader is in the dump and agrees with the golden: the stage holds the same thing in another form. [DIF-5] */
static bool readers_agree(const DiffRun *d, const ProbeResult *r) {
    const char *stage = stage_of(r->probe);
    const CloverConfig *c = &d->model->config;
    int64_t readers = 0;
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
        }
        /* In a preview q and k go through the block weights. */
        if (strcmp(stage, "gdn.q") == 0 || strcmp(stage, "gdn.k") == 0) {
            const ProbeResult *weights = find(d, r, r->layer, "gdn.block_weights");
            if (weights && !agrees_in_total(d, weights)) return false;
        }
    }
    return readers > 0 && !is_preview_only(stage);
}

static double unit_of(CloverNumerics profile) { return profile == CLOVER_BF16 ? 0x1p-9 : 0x1p-24; }

static void set_budget(const DiffRun *d, ProbeResult *r) {
    /* A floor of zero (a value that happens to be exact) does not forbid half a unit in the last place. */
    const double rms = r->added.relative > 0 && isfinite(r->added.relative) ? r->added.rms / r->added.relative : fabs(r->added.expected);
    const double unit = 0x1p-24;
    r->floor_rms = fmax(r->floor_rms, unit / 2 * rms);
    r->floor_max = fmax(r->floor_max, unit * fmax(rms, fabs(r->added.expected)));
    r->budget_rms = d->result->margin_rms * r->floor_rms;
    r->budget_max = d->result->margin_max * r->floor_max;
    r->passing = is_choice(stage_of(r->probe)) ? 0 : fmax(r->floor_rms > 0 ? r->added.rms / r->floor_rms : 0, r->floor_max > 0 ? r->added.max / r->floor_max : 0);
}

/* Added beyond the budget, not finite, or another choice that is no near tie. */
static bool beyond(const ProbeResult *r) {
    if (is_choice(stage_of(r->probe))) return r->flips > r->near_ties;
    return r->added.rms > r->budget_rms || r->added.max > r->budget_max;
}

static double storage_unit(DType t) { return t == DT_F16 ? 0x1p-11 : t == DT_BF16 ? 0x1p-8 : t == DT_F32 ? 0x1p-24 : 0; }

/* The embedding says whether the dump is of this model and prompt at all. */
static void note_strangers(DiffRun *d, const ProbeResult *r) {
    if (strcmp(r->probe, "embed") == 0 && r->verdict == STAGE_DIFFERS && fabs(r->added.cosine) < 0.5)
        diff_note(d, "%s/%s: the dump's embedding has nothing in common with the model's (cosine %.2f): it is of another model, another prompt, or its rows stand in another order",
                  r->case_name, r->step, r->added.cosine);
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
        else if (!is_choice(stage_of(r->probe)) && storage_unit(r->type) > 4 * unit_of(d->options->profile)) {
            r->verdict = STAGE_BELOW_FLOOR;
            coarse++;
        }
    }
    /* Another representation: the stage differs, its readers do not. A reader that is fed such a stage is judged by its own value. */
    for (int64_t i = 0; i < out->n_probes; i++) {
        ProbeResult *r = &out->probe[i];
        if (r->verdict != STAGE_DIFFERS || is_choice(stage_of(r->probe)) || !r->injected) continue;
        if (agrees_in_total(d, r)) {
            r->verdict = STAGE_CONFORMS;
            snprintf(r->note, sizeof r->note, "agrees with the golden, though not with what its inputs say: they stand for the same thing in another form");
        } else if (readers_agree(d, r)) {
            r->verdict = STAGE_REPRESENTATION;
            snprintf(r->note, sizeof r->note, "differs, but every stage that reads it agrees with the golden: another representation of the same thing");
            diff_note(d, "%s/%s %s: differs, but every stage that reads it agrees: another representation (positions counted from elsewhere, heads in another order, a scale moved)",
                      r->case_name, r->step, r->probe);
        }
    }
    out->first = -1;
    for (int64_t i = 0; i < out->n_probes; i++) {
        ProbeResult *r = &out->probe[i];
        if (r->verdict != STAGE_DIFFERS && r->verdict != STAGE_WRONG) continue;
        if (out->first < 0) out->first = i;
        note_strangers(d, r);
    }
    if (coarse)
        diff_note(d, "%lld arrays are stored so coarsely that a fault smaller than their storage's rounding would not show: they are below the floor, not proven to conform", (long long)coarse);
    if (flips)
        diff_note(d, "choices of experts: %lld of %lld differ, %lld of them near ties (followed, the rest judged given them)", (long long)flips, (long long)choices, (long long)near_ties);
    out->verdict = out->n_probes == 0 ? DIFF_INCOMPARABLE : out->first >= 0 ? DIFF_DIFFERS : DIFF_CONFORMS;
}
