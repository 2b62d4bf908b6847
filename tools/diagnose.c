/* diagnose.c - which mistake is it? Every hypothesis that can enter where the dump leaves the reference is tried on the dump's own
 * inputs; one that leaves no more than the floor stays in force, and the search goes on from the next divergence. [DIA-1, DIA-2] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "diff_parts.h"

enum { TRIED_MAX = 256, EVALUATED_MAX = 8, DIVERGENCES_MAX = IN_FORCE_MAX };
#define CLOSE 2.0                    /* residuals within this factor are alike: both are rounding */
#define A_PART 0.5                   /* what explains less of an error is not worth a line */
#define MOST 0.75                    /* a cause explains at least this: what was beyond eight floors comes down to about one */
#define NEARLY 0.9                   /* what explains so much may be at its own floor, which the whole diff measures */

/* A hypothesis, or two, tried at one divergence. */
typedef struct Tried {
    const Hypothesis *h, *with;      /* with: a second one; NULL */
    int64_t layer;
    double explains, residual, floor;
    bool at_floor;
    int64_t left, first;             /* evaluated: stages that differ still, the first of them; left < 0: not evaluated */
} Tried;

typedef struct Search {
    DiffRun *d;
    const ProbeResult *at;           /* the divergence */
    Trial trial;
    CloverSnapshot *before;          /* the state that its step starts from */
    double right_rms, right_value;   /* what the right rule leaves; rms of what it gives */
    int64_t right_flips;
    const Tried *breaks_as_much;     /* explains the divergence, but with it in force as much differs elsewhere */
    int64_t left_before;             /* stages that differ without it */
    Tried tried[TRIED_MAX];
    int n;
} Search;

Diagnosis *diagnosis_add(DiffRun *d, const Hypothesis *h, const char *case_name, const char *step, const char *probe, int divergence, DiagnosisRank rank) {
    DiffResult *r = d->result;
    Diagnosis *grown = realloc(r->diagnosis, (size_t)(r->n_diagnoses + 1) * sizeof *grown);
    if (!grown) {
        error_memory(d->err, "the diagnosis", (size_t)(r->n_diagnoses + 1) * sizeof *grown);
        return NULL;
    }
    r->diagnosis = grown;
    Diagnosis *g = &grown[r->n_diagnoses++];
    *g = (Diagnosis){ .hypothesis = h->name, .clause = h->clause, .says = h->says, .lint = h->lint, .case_name = case_name, .step = step, .layer = -1, .divergence = divergence,
                      .rank = rank, .left = -1 };
    snprintf(g->probe, sizeof g->probe, "%s", probe);
    return g;
}

/* ---- one hypothesis at one divergence ------------------------------------------------------------------------------ */

static bool needs_the_whole_case(const DiffRun *d) {
    for (int i = 0; i < d->n_force; i++)
        if (d->force[i].h->kind == HYPOTHESIS_STATE) return true;
    return false;
}

/* Rounding grows with the values: where a wrong rule's are larger than the right one's, so is its floor. */
static double grown(const Search *s) { return s->right_value > 0 ? fmax(1, s->trial.value_rms / s->right_value) : 1; }

static bool run_trial(Search *s) {
    s->trial.before = needs_the_whole_case(s->d) ? NULL : s->before;
    return diff_trial(s->d, &s->trial) == CLOVER_OK && s->trial.measured;
}

/* With the last n of d->force being those under trial. */
static void try_them(Search *s, const Hypothesis *h, const Hypothesis *with) {
    if (s->n == TRIED_MAX || !run_trial(s)) return;
    const Trial *t = &s->trial;
    const ProbeResult *r = s->at;
    Tried tried = { .h = h, .with = with, .layer = s->d->force[s->d->n_force - 1].layer, .left = -1 };
    if (is_choice(stage_of(r->probe))) {
        const double choices = r->choices ? (double)r->choices : 1;
        tried.explains = s->right_flips ? 1 - (double)(t->flips - t->near_ties) / (double)s->right_flips : 0;
        tried.residual = (double)(t->flips - t->near_ties) / choices;
        tried.at_floor = t->flips <= t->near_ties;
    } else {
        tried.explains = isfinite(s->right_rms) ? 1 - t->rms / s->right_rms : 1;
        tried.residual = t->value_rms > 0 ? t->rms / t->value_rms : t->rms;
        tried.floor = t->value_rms > 0 ? r->floor_rms * grown(s) / t->value_rms : r->floor_rms;
        tried.at_floor = t->rms <= r->budget_rms * grown(s) && t->max <= r->budget_max * grown(s);
    }
    if (tried.explains > 0) s->tried[s->n++] = tried;
}

/* At one of these stages, or, of a state fault, in what they read of an earlier step. */
static bool may_enter(const Hypothesis *h, uint64_t stages) {
    static const struct { const char *reader, *reads[3]; } carried[] = { { "attn.context", { "attn.k_rope", "attn.v" } }, { "gdn.conv", { "gdn.qkv" } }, { "gdn.mixed", { "gdn.state" } } };
    for (size_t i = 0; stage_at(i); i++) {
        if (!(stages >> i & 1)) continue;
        if (hypothesis_enters(h, stage_at(i))) return true;
        for (size_t k = 0; h->kind == HYPOTHESIS_STATE && k < sizeof carried / sizeof *carried; k++)
            for (int r = 0; strcmp(carried[k].reader, stage_at(i)) == 0 && r < 3 && carried[k].reads[r]; r++)
                if (hypothesis_enters(h, carried[k].reads[r])) return true;
    }
    return false;
}

static bool in_force(const DiffRun *d, const Hypothesis *h, int64_t layer) {
    for (int i = 0; i < d->n_force; i++)
        if (d->force[i].h == h && (d->force[i].layer < 0 || d->force[i].layer == layer)) return true;
    return false;
}

static void try_one(Search *s, const Hypothesis *h, uint64_t stages, int64_t layer) {
    DiffRun *d = s->d;
    if (d->err->status != CLOVER_OK || h->kind == HYPOTHESIS_DECODING || in_force(d, h, s->at->layer) || !may_enter(h, stages)) return;
    if (h->kind == HYPOTHESIS_STATE && !h->rules && s->at->step_index == 0) return;   /* nothing was carried yet */
    d->force[d->n_force++] = (Forced){ h, layer };
    try_them(s, h, NULL);
    d->n_force--;
}

static void try_all(Search *s, uint64_t stages) {
    for (int i = 0; i < hypotheses_count(); i++) try_one(s, hypothesis_at(i), stages, -1);
    for (int i = 0; i < hypotheses_rounding.n; i++) try_one(s, &hypotheses_rounding.h[i], stages, -1);
}

/* In one layer alone: of those that the dump passed over in silence, the last few. Where it passed over none, the layer of the divergence is
 * what it was tried in already. */
static void try_layers(Search *s, uint64_t stages, int64_t from_layer) {
    enum { BACK = 3 };
    const int64_t last = s->at->layer < 0 ? s->d->model->config.layers - 1 : s->at->layer;
    for (int64_t layer = last; layer >= from_layer && from_layer < last && (s->at->layer < 0 || layer + BACK >= last); layer--)
        for (int i = 0; i < hypotheses_count(); i++)
            if (hypothesis_at(i)->kind != HYPOTHESIS_STATE) try_one(s, hypothesis_at(i), stages, layer);
}

static int best_first(const void *a, const void *b) {
    const Tried *x = a, *y = b;
    return x->explains > y->explains ? -1 : x->explains < y->explains ? 1 : 0;
}

/* Two mistakes that meet in one array, where no single one explains it: those that explain most, each with every other. */
static void try_pairs(Search *s, uint64_t stages) {
    enum { LEADERS = 6 };
    DiffRun *d = s->d;
    if (d->n_force + 2 > IN_FORCE_MAX || is_choice(stage_of(s->at->probe))) return;
    const Hypothesis *leading[LEADERS];
    int leaders = 0;
    for (int i = 0; i < s->n && leaders < LEADERS; i++) {
        bool had = false;                /* in one layer and everywhere it is the same leader */
        for (int k = 0; k < leaders; k++) had |= leading[k] == s->tried[i].h;
        if (!had) leading[leaders++] = s->tried[i].h;
    }
    for (int i = 0; i < leaders; i++)
        for (int k = 0; k < hypotheses_count() && d->err->status == CLOVER_OK; k++) {
            const Hypothesis *other = hypothesis_at(k);
            if (other == leading[i] || other->kind == HYPOTHESIS_DECODING || in_force(d, other, s->at->layer) || !may_enter(other, stages)) continue;
            d->force[d->n_force++] = (Forced){ leading[i], -1 };
            d->force[d->n_force++] = (Forced){ other, -1 };
            const int n = s->n;
            try_them(s, leading[i], other);
            d->n_force -= 2;
            if (s->n > n && !s->tried[n].at_floor) s->n = n;   /* a pair that is not it says nothing */
            for (int m = 0; m < n && s->n > n; m++)
                if (s->tried[m].h == other && s->tried[m].with == leading[i]) s->n = n;   /* the same two */
        }
}

/* ---- the whole diff with hypotheses in force ----------------------------------------------------------------------- */

/* d's force decides; the result is to be freed. */
static CloverStatus diff_again(DiffRun *d, DiffResult *out) {
    *out = (DiffResult){ .first = -1, .margin_rms = d->result->margin_rms, .margin_max = d->result->margin_max, .profile = d->result->profile };
    DiffRun again = { .options = d->options, .bundle = d->bundle, .model = d->model, .dump = d->dump, .result = out, .err = d->err, .scratch = { .fd = d->scratch.fd },
                      .n_force = d->n_force };
    memcpy(again.force, d->force, sizeof d->force);
    if (diff_cases(&again) == CLOVER_OK) diff_judge(&again);
    free(again.total);
    free(again.chosen);
    return d->err->status;
}

static int64_t count_left(const DiffResult *r) {
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_probes; i++) n += r->probe[i].verdict == STAGE_DIFFERS || r->probe[i].verdict == STAGE_WRONG;
    return n;
}

static int put_in_force(DiffRun *d, const Tried *t) {
    d->force[d->n_force++] = (Forced){ t->h, t->layer };
    if (t->with) d->force[d->n_force++] = (Forced){ t->with, -1 };
    return t->with ? 2 : 1;
}

/* What is left with it in force: everywhere, or, where that makes another layer differ, in this layer only. */
static void evaluate(Search *s, Tried *t, DiffResult *after) {
    DiffRun *d = s->d;
    const int n = put_in_force(d, t);
    diff_again(d, after);
    t->left = count_left(after);
    t->first = after->first;
    const ProbeResult *first = after->first >= 0 ? &after->probe[after->first] : NULL;
    if (d->err->status == CLOVER_OK && first && !t->with && t->layer < 0 && t->h->kind != HYPOTHESIS_STATE && s->at->layer >= 0) {
        DiffResult only;
        d->force[d->n_force - 1].layer = s->at->layer;
        diff_again(d, &only);
        if (count_left(&only) < t->left) {
            diff_free(after);
            *after = only;
            t->left = count_left(after);
            t->first = after->first;
            t->layer = s->at->layer;
        } else diff_free(&only);
    }
    d->n_force -= n;
}

/* At the floor or not: by what the profile adds to the wrong rule itself, on these inputs. */
static void floor_of_its_own(const Search *s, Tried *t, const DiffResult *after) {
    for (int64_t i = 0; i < after->n_probes; i++) {
        const ProbeResult *r = &after->probe[i];
        if (r->case_name != s->at->case_name || r->step_index != s->at->step_index || strcmp(r->probe, s->at->probe) != 0) continue;
        t->at_floor = r->verdict == STAGE_CONFORMS || r->verdict == STAGE_BELOW_FLOOR;
        if (is_choice(stage_of(r->probe)) || !(r->added.relative >= 0)) return;
        const double rms = r->added.relative > 0 ? r->added.rms / r->added.relative : fabs(r->added.expected);
        t->residual = r->added.relative;
        t->floor = rms > 0 ? r->floor_rms / rms : r->floor_rms;
        return;
    }
    t->at_floor = false;
}

/* ---- one divergence ------------------------------------------------------------------------------------------------ */

static void report(Search *s, const Tried *t, int divergence, DiagnosisRank rank) {
    for (int i = 0; i < (t->with ? 2 : 1); i++) {
        Diagnosis *g = diagnosis_add(s->d, i ? t->with : t->h, s->at->case_name, s->at->step, s->at->probe, divergence, rank);
        if (!g) return;
        g->layer = i ? -1 : t->layer;
        g->explains = t->explains, g->residual = t->residual, g->floor = t->floor, g->left = t->left;
    }
}

/* What would tell two apart that give the same numbers: where they enter and the dump is silent, else what they need. */
static void say_what_tells(const Search *s, const Tried *a, const Tried *b, char *out, size_t room) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; stage_at(i); i++) {
        if (!(s->trial.stages >> i & 1) || strcmp(stage_at(i), stage_of(s->at->probe)) == 0) continue;
        if (hypothesis_enters(a->h, stage_at(i)) == hypothesis_enters(b->h, stage_at(i))) continue;
        if (used + 24 < room) used += (size_t)snprintf(out + used, room - used, "%s%s", used ? ", " : "dump ", stage_at(i));
    }
    if (used == 0 && (*a->h->needs || *b->h->needs))
        snprintf(out, room, "another step: %s%s%s", a->h->needs, *a->h->needs && *b->h->needs && strcmp(a->h->needs, b->h->needs) != 0 ? "; " : "", strcmp(a->h->needs, b->h->needs) != 0 ? b->h->needs : "");
    else if (used == 0) snprintf(out, room, "another prompt or another step");
}

/* Those at the floor, run over everything. The best stays in force; *after is what the diff says then. */
static bool choose(Search *s, int divergence, DiffResult *after) {
    Tried *best = NULL, *report_partial = NULL;
    int evaluated = 0;
    for (int i = 0; i < s->n && s->d->err->status == CLOVER_OK; i++) {
        Tried *t = &s->tried[i];
        if (!((t->at_floor && t->explains >= MOST) || t->explains >= NEARLY) || t->left >= 0 || evaluated == EVALUATED_MAX) continue;
        DiffResult this;
        evaluated++;
        evaluate(s, t, &this);
        floor_of_its_own(s, t, &this);
        if (t->at_floor && t->left >= s->left_before) {   /* it mends this and breaks as much: no cause */
            if (!best) report_partial = t;
            t->at_floor = false;
        }
        if (!t->at_floor) {
            diff_free(&this);
            continue;
        }
        const bool simpler = best && (t->layer < 0) > (best->layer < 0), less_simple = best && (t->layer < 0) < (best->layer < 0);
        if (best && (t->left > best->left || (t->left == best->left && !simpler && (less_simple || t->residual >= best->residual)))) {
            diff_free(&this);
            continue;
        }
        diff_free(after);
        *after = this;
        best = t;
    }
    if (!best && report_partial) s->breaks_as_much = report_partial;
    if (!best) return false;
    report(s, best, divergence, DIAGNOSIS_CAUSE);
    for (int alike = 1; alike >= 0; alike--)
        for (int i = 0; i < s->n; i++) {
            const Tried *t = &s->tried[i];
            if (t == best || t->left < 0 || !t->at_floor) continue;
            const bool same = t->left == best->left && t->first == best->first && t->layer == best->layer && t->residual <= CLOSE * best->residual;
            if (same != (alike == 1)) continue;
            report(s, t, divergence, same ? DIAGNOSIS_ALIKE : DIAGNOSIS_RUNNER_UP);
            if (same && s->d->err->status == CLOVER_OK) {
                Diagnosis *g = &s->d->result->diagnosis[s->d->result->n_diagnoses - 1];
                say_what_tells(s, best, t, g->tells, sizeof g->tells);
            }
        }
    put_in_force(s->d, best);
    return true;
}

/* Under f32, an engine that rounds to bf16 throughout adds at nearly every stage: no mistake either. */
static bool only_rounds(DiffRun *d) {
    double in_bf16 = 0;
    for (int64_t i = 0; i < d->result->n_probes; i++) in_bf16 += d->total[i].in_bf16 / (double)d->result->n_probes;
    if (d->options->profile != CLOVER_F32 || in_bf16 < 0.5 || d->total[d->result->first].in_bf16 < 0.99) return false;   /* its values would be bf16 numbers, most of them */
    DiffOptions bf16 = *d->options;
    const DiffOptions *own = d->options;
    DiffResult after;
    bf16.profile = CLOVER_BF16;
    d->options = &bf16;
    const bool conforms = diff_again(d, &after) == CLOVER_OK && after.verdict == DIFF_CONFORMS;
    d->options = own;
    diff_free(&after);
    return conforms;
}

/* Nothing is at the floor: what explains a part, and what was ruled out. */
static void report_none(Search *s, uint64_t stages, int divergence) {
    DiffRun *d = s->d;
    const ProbeResult *r = s->at;
    if (s->breaks_as_much) report(s, s->breaks_as_much, divergence, DIAGNOSIS_PARTIAL);
    for (int i = 0; i < s->n && i < 2 && !s->breaks_as_much; i++)
        if (s->tried[i].explains >= A_PART) report(s, &s->tried[i], divergence, DIAGNOSIS_PARTIAL);
    char ruled_out[512] = "";
    size_t used = 0;
    int n = 0;
    for (int i = 0; i < hypotheses_count(); i++) {
        const Hypothesis *h = hypothesis_at(i);
        if (h->kind == HYPOTHESIS_DECODING || !may_enter(h, stages)) continue;
        if (n++ < 12 && used < sizeof ruled_out) used += (size_t)snprintf(ruled_out + used, sizeof ruled_out - used, "%s%s", used ? ", " : "", h->name);
    }
    if (n == 0) diff_note(d, "no known mistake enters at %s, where %s/%s differs", r->probe, r->case_name, r->step);
    else diff_note(d, "none of the known mistakes explains %s of %s/%s to the floor; ruled out: %d that can enter there (%s%s)", r->probe, r->case_name, r->step, n, ruled_out, n > 12 ? ", ..." : "");
}

/* Names what explains now's first divergence; false: nothing does to the floor. */
static bool search(DiffRun *d, const DiffResult *now, int divergence, DiffResult *after) {
    Search s = { .d = d, .at = &now->probe[now->first] };
    const ProbeResult *r = s.at;
    bool named = false;
    *after = (DiffResult){ .first = -1 };
    s.trial = (Trial){ .c = case_named(d->bundle, r->case_name), .step_index = r->step_index, .probe = r->probe };
    s.left_before = count_left(now);
    if (r->verdict == STAGE_DIFFERS && !is_choice(stage_of(r->probe)) && !diff_beyond(r)) {
        if (divergence == 0) diff_note(d, "no diagnosis: no stage adds more than its budget, so there is none to try a mistake at");
        return false;
    }
    if (r->added.not_finite) {
        if (divergence == 0) diff_note(d, "no diagnosis: %s of %s/%s is not finite, and no rule's numbers can be held against that; where an engine overflows, a shorter prompt shows more", r->probe, r->case_name, r->step);
        return false;
    }
    if (r->step_index > 0 && diff_state_before(d, s.trial.c, r->step_index, &s.before) != CLOVER_OK) return false;
    run_trial(&s);
    if (s.trial.over && d->err->status == CLOVER_OK) {   /* not measured: the dump has another shape than the right rule gives */
        const uint64_t stages = s.trial.stages;
        const int64_t from_layer = s.trial.from_layer;
        s.right_rms = s.trial.measured ? s.trial.rms : HUGE_VAL, s.right_value = s.trial.value_rms;
        s.right_flips = s.trial.flips - s.trial.near_ties;
        if (!s.trial.measured) s.right_value = 0, s.right_flips = INT64_MAX;
        try_all(&s, stages);
        qsort(s.tried, (size_t)s.n, sizeof *s.tried, best_first);
        named = choose(&s, divergence, after);
        if (!named && d->err->status == CLOVER_OK) {
            try_layers(&s, stages, from_layer);
            qsort(s.tried, (size_t)s.n, sizeof *s.tried, best_first);
            s.breaks_as_much = NULL;     /* it moved */
            named = choose(&s, divergence, after);
        }
        if (!named && d->err->status == CLOVER_OK) {
            const int n = s.n;
            try_pairs(&s, stages);
            if (s.n > n) named = choose(&s, divergence, after);
        }
        if (!named && d->err->status == CLOVER_OK) {
            if (divergence == 0 && only_rounds(d)) {
                Diagnosis *g = diagnosis_add(d, &hypothesis_bf16, r->case_name, r->step, r->probe, 0, DIAGNOSIS_CAUSE);
                if (g) g->explains = 1, g->left = 0;
                clover_snapshot_free(s.before);
                return false;                /* nothing to put in force */
            }
            report_none(&s, stages, divergence);
        }
    }
    clover_snapshot_free(s.before);
    return named;
}

CloverStatus diff_diagnose(DiffRun *d) {
    DiffResult now = *d->result, after;
    bool own = false;                    /* now is to be freed */
    int divergence = 0;
    d->result->diagnosed = true;
    while (now.first >= 0 && d->n_force < DIVERGENCES_MAX && d->err->status == CLOVER_OK) {
        const bool named = search(d, &now, divergence, &after);
        if (!named) {
            diff_free(&after);
            break;
        }
        /* What was diagnosed is named by pointers into the bundle and the catalogue: now can go. */
        if (own) diff_free(&now);
        now = after;
        own = true;
        divergence++;
    }
    const int64_t left = now.first;
    if (own) diff_free(&now);
    return left < 0 && d->err->status == CLOVER_OK ? diff_diagnose_traces(d, divergence) : d->err->status;
}
