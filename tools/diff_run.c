/* diff_run.c - the passes of a diff over the steps of a case. [DIF-2, DIF-3]
 *
 * A pass is a session whose watcher puts the dump's values in place of the computed ones, stage by stage: what a stage
 * computes then is rule(dump's inputs), or, where the dump lacks an input, what follows from the nearest values that it
 * has; and the state that the next step starts from is the dump's as far as the dump tells it. Three passes:
 *   1. exact arithmetic on the dump's values      added = dump - computed, inherited = computed - golden
 *   2. the profile's arithmetic on the same       floor = computed here - computed in pass 1
 *   3. the profile's arithmetic on its own values what rounding alone does to the whole, against the golden; or, where the dump made
 *      other choices, against exact arithmetic on its own values with the dump's choices */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../ref/error.h"
#include "diff_parts.h"
#include "output.h"

/* ---- lists that grow ------------------------------------------------------------------------------------------- */

static void add_line(DiffRun *d, char ***list, int64_t *n, int64_t *room, const char *format, va_list args) {
    char text[768];
    vsnprintf(text, sizeof text, format, args);
    for (int64_t i = 0; i < *n; i++)
        if (strcmp((*list)[i], text) == 0) return;   /* said already */
    if (*n == *room) {
        const int64_t more = *room ? 2 * *room : 16;
        char **grown = realloc(*list, (size_t)more * sizeof *grown);
        if (!grown) {
            error_memory(d->err, "the report", (size_t)more * sizeof *grown);
            return;
        }
        *list = grown;
        *room = more;
    }
    char *copy = malloc(strlen(text) + 1);
    if (!copy) {
        error_memory(d->err, "the report", strlen(text) + 1);
        return;
    }
    strcpy(copy, text);
    (*list)[(*n)++] = copy;
}

void diff_note(DiffRun *d, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_line(d, &d->result->note, &d->result->n_notes, &d->room_notes, format, args);
    va_end(args);
}

void diff_not_compared(DiffRun *d, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_line(d, &d->result->not_compared, &d->result->n_not_compared, &d->room_not_compared, format, args);
    va_end(args);
}

static ProbeResult *add_probe(DiffRun *d) {
    DiffResult *r = d->result;
    if (r->n_probes == d->room_probes) {
        const int64_t more = d->room_probes ? 2 * d->room_probes : 256;
        ProbeResult *probes = realloc(r->probe, (size_t)more * sizeof *probes);
        if (probes) r->probe = probes;
        DiffTotal *totals = probes ? realloc(d->total, (size_t)more * sizeof *totals) : NULL;
        if (!totals) {
            error_memory(d->err, "the results", (size_t)more * sizeof *probes);
            return NULL;
        }
        d->total = totals;
        d->room_probes = more;
    }
    d->total[r->n_probes] = (DiffTotal){ 0 };
    ProbeResult *p = &r->probe[r->n_probes++];
    *p = (ProbeResult){ .layer = -1 };
    return p;
}

/* ---- scratch --------------------------------------------------------------------------------------------------- */

static void scratch_put(DiffRun *d, const double *data, int64_t n) {
    const char *p = (const char *)data;
    for (size_t left = (size_t)n * sizeof *data; left > 0 && d->err->status == CLOVER_OK;) {
        const ssize_t wrote = pwrite(d->scratch.fd, p, left, (off_t)d->scratch.used);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            error_set(d->err, CLOVER_SYSTEM, "cannot write the scratch file: %s", wrote < 0 ? strerror(errno) : "disk full");
            return;
        }
        p += wrote;
        left -= (size_t)wrote;
        d->scratch.used += (uint64_t)wrote;
    }
}

static void scratch_get(DiffRun *d, uint64_t at, double *data, int64_t n) {
    char *p = (char *)data;
    for (size_t left = (size_t)n * sizeof *data; left > 0 && d->err->status == CLOVER_OK;) {
        const ssize_t got = pread(d->scratch.fd, p, left, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            error_set(d->err, CLOVER_SYSTEM, "cannot read the scratch file: %s", got < 0 ? strerror(errno) : "it is shorter than it was");
            return;
        }
        p += got;
        left -= (size_t)got;
        at += (uint64_t)got;
    }
}

/* ---- one pass -------------------------------------------------------------------------------------------------- */

static bool failed(const Pass *p) { return p->d->err->status != CLOVER_OK; }

/* The last shape[0] rows of a probe; false: the golden has none of that shape. */
static bool golden_values(const Safetensors *s, const char *name, const int64_t *shape, int dims, double *out) {
    const Tensor *t = s ? safetensors_tensor(s, name) : NULL;
    if (!t || t->type != DT_F64 || t->dims != dims || t->shape[0] < shape[0] || memcmp(t->shape + 1, shape + 1, (size_t)(dims - 1) * sizeof *shape) != 0) return false;
    const size_t bytes = (size_t)(t->elements / t->shape[0] * shape[0]) * sizeof *out;
    memcpy(out, t->data + t->bytes - bytes, bytes);
    return true;
}

static double *copy_of(DiffRun *d, const double *data, int64_t n) {
    double *copy = malloc((size_t)n * sizeof *copy + 1);
    if (copy) memcpy(copy, data, (size_t)n * sizeof *copy);
    else error_memory(d->err, "a stage's values", (size_t)n * sizeof *copy);
    return copy;
}

/* What storing in the dump's type adds: [0] rms, [1] max, over the computed values. */
static void storage_floor(const double *computed, int64_t n, DType type, double out[2]) {
    double squares = 0;
    out[1] = 0;
    for (int64_t i = 0; i < n; i++) {
        const double stored = round_to_type(type, computed[i]), off = isfinite(stored) ? stored - computed[i] : 0;   /* beyond the type's range: no excuse */
        squares += off * off;
        out[1] = fmax(out[1], fabs(off));
    }
    out[0] = n ? sqrt(squares / (double)n) : 0;
}

/* A stage's own value against the right one. */
static void fill_total(DiffRun *d, ProbeResult *r, const double *dump, const double *right, int64_t n) {
    DiffTotal *t = &d->total[r - d->result->probe];
    double storage[2];
    storage_floor(right, n, r->type, storage);
    t->storage_rms = storage[0], t->storage_max = storage[1];
    t->right_rms = rms_of(right, n), t->right_max = largest_of(right, n);
    int64_t in_bf16 = 0;
    for (int64_t i = 0; i < n; i++) in_bf16 += round_to_type(DT_BF16, dump[i]) == dump[i];
    t->in_bf16 = n ? (double)in_bf16 / (double)n : 0;
    if (!form_fit(&t->form, &d->model->config, stage_of(r->probe), r->shape, r->dims, dump, right)) error_memory(d->err, "a stage's forms", (size_t)n * sizeof *right);
}

static void fill_numbers(Pass *p, ProbeResult *r, const double *dump, const double *computed, int64_t n) {
    DiffRun *d = p->d;
    double *golden = copy_of(d, computed, n);
    if (!golden) return;
    const bool have = golden_values(p->golden, r->probe, r->shape, r->dims, golden);
    bool ok = difference(&r->added, dump, computed, n, r->type) && difference(&r->total, dump, golden, n, r->type);
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
        const double off = computed[i] - golden[i];
        squares += off * off;
        r->inherited_max = fmax(r->inherited_max, fabs(off));
    }
    r->inherited_rms = sqrt(squares / (double)n);
    if (strcmp(r->probe, "logits") == 0 && r->total.not_finite == 0) logits_figures(&r->logits, dump, golden, r->shape[0], r->shape[1]);
    if (!have) snprintf(r->note, sizeof r->note, "the golden has no such probe of this shape: compared with the rule alone");
    if (r->added.not_finite == 0) fill_total(d, r, dump, golden, n);
    if (!ok) error_memory(d->err, "the figures", (size_t)n * sizeof *golden);
    free(golden);
}

/* Are the choices that pass 1 went on with the golden's? If it does not say, perhaps not. */
static void note_other_choices(Pass *p, const char *name, const double *values, const int64_t *shape, int dims) {
    const int64_t n = shape[0] * (dims == 2 ? shape[1] : 1);
    double *golden = copy_of(p->d, values, n);
    if (!golden) return;
    if (!golden_values(p->golden, name, shape, dims, golden) || memcmp(golden, values, (size_t)n * sizeof *golden) != 0) p->d->other_choices = true;
    free(golden);
}

static void off_by(const double *a, const double *b, int64_t n, double *rms, double *max) {
    double squares = 0;
    *max = 0;
    for (int64_t i = 0; i < n; i++) {
        const double off = a[i] - b[i];
        squares += off * off;
        *max = fmax(*max, fabs(off));
    }
    *rms = n ? sqrt(squares / (double)n) : 0;
}

/* A result of pass 1: what the dump is off the rule and off the golden. */
static void record(Pass *p, const char *name, const int64_t *shape, int dims, DumpFound found, DType type, int64_t rows, const CloverError *why, const double *dump, const double *data) {
    DiffRun *d = p->d;
    const char *stage = stage_of(name);
    int64_t n = 1;
    for (int i = 0; i < dims; i++) n *= shape[i];
    ProbeResult *r = add_probe(d);
    if (!r) return;
    r->case_name = p->c->name;
    r->step = p->step->name;
    r->step_index = p->step_index;
    snprintf(r->probe, sizeof r->probe, "%s", name);
    r->layer = stage == name ? -1 : strtoll(name + 1, NULL, 10);
    r->type = type;
    r->dims = dims;
    memcpy(r->shape, shape, (size_t)dims * sizeof *shape);
    r->injected = true;
    if (found == DUMP_WRONG) {
        r->verdict = STAGE_WRONG;
        snprintf(r->note, sizeof r->note, "%.250s", why->text);
        return;
    }
    const int64_t skip = n - rows * (n / shape[0]);
    r->shape[0] = rows;
    fill_numbers(p, r, dump + skip, data + skip, n - skip);
    DiffTotal *total = &d->total[r - d->result->probe];
    total->rms = r->total.rms, total->max = r->total.max;
    double storage[2];
    storage_floor(data + skip, n - skip, type, storage);
    r->floor_rms = total->own_rms = storage[0];
    r->floor_max = total->own_max = storage[1];
    scratch_put(d, data + skip, n - skip);
}

/* What the rule leaves unexplained of the dump's stage; then nothing more is asked. */
static void measure(Pass *p, const char *name, const int64_t *shape, int dims, int64_t rows, const double *dump, const double *data) {
    Trial *t = p->trial;
    int64_t n = 1;
    for (int i = 0; i < dims; i++) n *= shape[i];
    const int64_t skip = n - rows * (n / shape[0]);
    ProbeResult r = { .dims = dims, .layer = stage_of(name) == name ? -1 : strtoll(name + 1, NULL, 10) };
    snprintf(r.probe, sizeof r.probe, "%s", name);
    memcpy(r.shape, shape, (size_t)dims * sizeof *shape);
    off_by(dump + skip, data + skip, n - skip, &t->rms, &t->max);
    t->value_rms = rms_of(data + skip, n - skip);
    if (is_choice(stage_of(name))) {
        if (strcmp(stage_of(name), "moe.ids") == 0) p->k = shape[1];
        choice_judge(p, &r, dump, data, n);
    }
    t->flips = r.flips, t->near_ties = r.near_ties;
    t->measured = true;
}

static bool all_finite(const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* Where a fault may hide: among the stages that the dump lacks, back to where it has the residual stream. */
static void note_suspect(Trial *t, const char *stage, int64_t layer, bool dumped, bool target) {
    const bool residual = strcmp(stage, "embed") == 0 || strcmp(stage, "mixer_residual") == 0 || strcmp(stage, "out") == 0;
    size_t bit = 0;
    while (stage_at(bit) && strcmp(stage_at(bit), stage) != 0) bit++;
    if (dumped && residual && !target) {
        t->stages = 0;
        t->from_layer = strcmp(stage, "mixer_residual") == 0 ? layer : layer + 1;
    } else if ((!dumped || target) && bit < 64) t->stages |= UINT64_C(1) << bit;
}

/* Pass 1, and trials, at one stage: compare, keep, inject. */
static void exact_stage(Pass *p, const char *name, double *data, const int64_t *shape, int dims) {
    DiffRun *d = p->d;
    const char *stage = stage_of(name);
    const bool trial = p->kind == PASS_TRIAL, asked = trial && p->c == p->trial->c && p->step_index == p->trial->step_index;
    const bool target = asked && p->trial->probe && strcmp(name, p->trial->probe) == 0;
    int64_t n = 1, rows = 0;
    for (int i = 0; i < dims; i++) n *= shape[i];
    if (trial && p->trial->over) return;
    if (strcmp(stage, "moe.weights") == 0 && p->followed) choice_weights(p, data);   /* the rule, given those ids */
    choice_own(p, stage, data, n);

    double *dump = malloc((size_t)n * sizeof *dump + 1);
    if (!dump) {
        error_memory(d->err, "a stage of the dump", (size_t)n * sizeof *dump);
        return;
    }
    DType type = DT_F64;
    CloverError why;
    DumpFound found = dump_load(d->dump, p->c->name, p->step->name, name, shape, dims, dump, &type, &rows, &why);
    if (found == DUMP_BAD) {
        *d->err = why;
        free(dump);
        return;
    }
    if (found == DUMP_WRONG && p->coreset_unseen && (strcmp(stage, "moe.ids") == 0 || strcmp(stage, "moe.weights") == 0)) {
        found = DUMP_ABSENT;             /* as many experts as another coreset leaves, by a near tie perhaps: without the coreset nothing can be said */
        if (!trial) diff_not_compared(d, "%s/%s %s (another number of experts, and the dump has no moe.coreset to tell why)", p->c->name, p->step->name, name);
    }
    if (asked) note_suspect(p->trial, stage, stage == name ? -1 : strtoll(name + 1, NULL, 10), found == DUMP_FOUND, target);
    if (!trial && found == DUMP_ABSENT && p->golden && safetensors_tensor(p->golden, name)) diff_not_compared(d, "%s/%s %s", p->c->name, p->step->name, name);
    bool usable = false;
    if (found == DUMP_FOUND) {
        const int64_t skip = n - rows * (n / shape[0]);   /* rows that the dump lacks stand before those it has */
        if (type != DT_I32 && type != DT_I64) p->type = type;
        usable = all_finite(dump + skip, n - skip) && choice_valid(p, stage, dump, n);
        const bool sum = strcmp(stage, "moe.routed") == 0 || strcmp(stage, "moe") == 0 || strcmp(stage, "out") == 0;
        if (sum && p->hidden && rms_of(dump, n) < HUGE_VAL) {
            choice_settle(p, stage == name ? -1 : strtoll(name + 1, NULL, 10), data, dump);
            p->hidden = false;
        }
        if (target) measure(p, name, shape, dims, rows, dump, data);
        if (!trial) record(p, name, shape, dims, found, type, rows, &why, dump, data);
        if (usable) memcpy(data + skip, dump + skip, (size_t)(n - skip) * sizeof *dump);
    } else if (found == DUMP_WRONG && !trial) record(p, name, shape, dims, found, type, rows, &why, dump, data);
    free(dump);
    if (target) {                    /* the rest of the step is of no interest */
        p->trial->over = true;
        error_set(p->session->run.err, CLOVER_USAGE, "enough");
        return;
    }
    choice_remember(p, stage, data, shape, n);
    if (strcmp(stage, "moe.coreset") == 0) {
        if (!trial) note_other_choices(p, name, data, shape, dims);
        p->coreset_unseen = found != DUMP_FOUND && p->session->coreset_top_p >= 0;
        choice_keep(p, data, n, found == DUMP_FOUND);
    } else if (strcmp(stage, "moe.ids") == 0) p->followed = usable, p->hidden = !usable;
    else if (strcmp(stage, "out") == 0 && p->ids) {
        const int64_t ids_shape[2] = { p->T, p->k };
        char ids_name[64];
        snprintf(ids_name, sizeof ids_name, "%.*s.moe.ids", (int)(stage - name - 1), name);
        if (!trial) note_other_choices(p, ids_name, p->ids, ids_shape, 2);
        d->unseen |= p->hidden || p->coreset_unseen;
        choice_keep(p, p->ids, p->T * p->k, !p->hidden && !p->coreset_unseen);
        p->coreset_unseen = false;
    }
}

/* Passes 2 and 3 meet the same stages in the same order; find this one among the results. */
static ProbeResult *same_stage(Pass *p, const char *name) {
    DiffResult *r = p->d->result;
    if (p->next >= r->n_probes) return NULL;
    ProbeResult *candidate = &r->probe[p->next];
    if (candidate->step_index != p->step_index || strcmp(candidate->case_name, p->c->name) != 0 || strcmp(candidate->probe, name) != 0) return NULL;
    p->next++;
    return candidate;
}

/* The engine may have gone on with what it had before storing rounded it: anything within half a spacing of the dump's values. Matters
 * where storage is not finer than the profile. */
static void blur(Pass *p, double *values, int64_t n, DType type) {
    for (int64_t i = 0; i < n; i++) {
        p->noise = p->noise * 6364136223846793005u + 1442695040888963407u;
        values[i] += type_spacing(type, values[i]) * ((double)(p->noise >> 11) * 0x1p-53 - 0.5);
    }
}

/* Pass 2: what the profile computes here, against what exact computed; then inject the dump again. */
static void profile_stage(Pass *p, const char *name, double *data, const int64_t *shape, int dims) {
    DiffRun *d = p->d;
    const char *stage = stage_of(name);
    const bool choice = is_choice(stage);
    int64_t n = 1, rows;
    for (int i = 0; i < dims; i++) n *= shape[i];
    if (strcmp(stage, "moe.weights") == 0 && p->followed) choice_weights(p, data);
    choice_own(p, stage, data, n);
    ProbeResult *r = same_stage(p, name);
    int64_t stored = 1;
    for (int i = 0; r && i < r->dims; i++) stored *= r->shape[i];
    if (r && r->verdict != STAGE_WRONG && stored != r->shape[0] * (n / shape[0])) p->at += (uint64_t)stored * sizeof *data;   /* its own coreset, where none is shown, leaves another number of experts */
    else if (r && r->verdict != STAGE_WRONG) {
        const int64_t had = r->shape[0] * (n / shape[0]), skip = n - had;
        double *computed = malloc((size_t)n * sizeof *computed + 1), *dump = malloc((size_t)n * sizeof *dump + 1);
        DType type;
        CloverError why;
        if (computed && dump) {
            scratch_get(d, p->at, computed, had);
            p->at += (uint64_t)had * sizeof *computed;
            double rms, largest;
            off_by(data + skip, computed, had, &rms, &largest);
            DiffTotal *t = &d->total[r - d->result->probe];
            t->profile_rms = fmax(t->profile_rms, rms), t->profile_max = fmax(t->profile_max, largest);
            r->floor_rms = sqrt(t->own_rms * t->own_rms + t->profile_rms * t->profile_rms);
            r->floor_max = t->own_max + t->profile_max;
            const bool loaded = dump_load(d->dump, p->c->name, p->step->name, name, shape, dims, dump, &type, &rows, &why) == DUMP_FOUND;
            int64_t past = 0;
            for (int64_t i = 0; loaded && i < had; i++) past += !(fabs(dump[skip + i] - computed[i]) <= d->options->margin_max * r->floor_max);
            r->beyond = had ? (double)past / (double)had : 0;
            if (loaded) {
                if (choice) {
                    if (strcmp(stage, "moe.ids") == 0) p->k = shape[1];
                    choice_judge(p, r, dump, computed, n);
                } else if (r->added.not_finite == 0) {
                    memcpy(data + skip, dump + skip, (size_t)had * sizeof *dump);
                    if (is_coarse(type, d->options->profile) || (type == DT_F32 && d->options->profile == CLOVER_F32)) blur(p, data + skip, had, type);
                    else if (p->sample > 0) blur(p, data + skip, had, d->options->profile == CLOVER_BF16 ? DT_BF16 : DT_F32);
                    p->type = type;
                }
            }
        } else error_memory(d->err, "a stage's values", (size_t)n * sizeof *computed);
        free(computed);
        free(dump);
    }
    if (choice) {
        choice_take(p, data, n);
        p->followed = true;
    }
    choice_remember(p, stage, data, shape, n);
}

/* Pass 3: a run on its own values, with the choices of pass 1. In exact arithmetic it is the golden given the dump's choices (and not run
 * where these are the golden's own): what the dump is off it. In the profile's arithmetic: what rounding does to the whole. */
static void own_stage(Pass *p, const char *name, double *data, const int64_t *shape, int dims) {
    DiffRun *d = p->d;
    const char *stage = stage_of(name);
    int64_t n = 1, rows;
    for (int i = 0; i < dims; i++) n *= shape[i];
    if (strcmp(stage, "moe.weights") == 0 && p->followed) choice_weights(p, data);
    choice_own(p, stage, data, n);
    if (is_choice(stage)) {
        choice_take(p, data, n);
        p->followed = true;
    }
    choice_remember(p, stage, data, shape, n);
    const int64_t index = p->next;
    ProbeResult *r = same_stage(p, name);
    if (!r || r->verdict == STAGE_WRONG) return;
    DiffTotal *t = &d->total[index];
    double *other = copy_of(d, data, n);
    DType type;
    CloverError why;
    if (!other) return;
    bool have;
    const double size = (double)n;
    if (p->kind == PASS_GIVEN) {
        scratch_put(d, &size, 1);
        scratch_put(d, data, n);
        have = dump_load(d->dump, p->c->name, p->step->name, name, shape, dims, other, &type, &rows, &why) == DUMP_FOUND && rows == shape[0];
        if (have) {
            off_by(data, other, n, &t->rms, &t->max);
            fill_total(d, r, other, data, n);
        }
    } else {
        double given = size;
        if (d->other_choices && p->at + sizeof given <= d->scratch.used) scratch_get(d, p->at, &given, 1);
        have = d->other_choices ? given == size && p->at + (uint64_t)(n + 1) * sizeof *other <= d->scratch.used : golden_values(p->golden, name, shape, dims, other);
        if (have && d->other_choices) scratch_get(d, p->at + sizeof given, other, n);
        if (d->other_choices) p->at += (uint64_t)(given + 1) * sizeof *other;
        if (have) off_by(data, other, n, &t->floor_rms, &t->floor_max);
    }
    free(other);
}

static void watch(void *user, const char *name, double *data, const int64_t *shape, int dims) {
    Pass *p = user;
    if (failed(p)) return;
    if (p->kind == PASS_EXACT || p->kind == PASS_TRIAL) exact_stage(p, name, data, shape, dims);
    else if (p->kind == PASS_PROFILE) profile_stage(p, name, data, shape, dims);
    else own_stage(p, name, data, shape, dims);
    in_force_observe(&p->force, p->session, p->step->kind == STEP_PREVIEW, name, data, shape, dims);
    in_force_passed(&p->force, p->session, name);
}

/* ---- the steps of a case --------------------------------------------------------------------------------------- */

typedef struct Named { const char *name; CloverSnapshot *snapshot; } Named;

static bool same_ids(const double *a, const int32_t *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (a[i] != (double)b[i]) return false;
    return true;
}

/* The dump's ids, where it has them, must be the step's: else it answers another prompt, or, in a run, has decided otherwise
 * before; then there is nothing to compare from here on, and its trace tells why. */
static void check_ids(Pass *p) {
    const int64_t shape[1] = { p->step->n };
    double *ids = malloc((size_t)p->step->n * sizeof *ids);
    DType type;
    int64_t rows;
    CloverError why = { .text = "" };
    if (dump_open_step(p->d->dump, p->c->name, p->step->name, p->d->err) != CLOVER_OK) {
        free(ids);
        return;
    }
    if (!ids) {
        error_memory(p->d->err, "a step's ids", (size_t)p->step->n * sizeof *ids);
        return;
    }
    const DumpFound found = dump_load(p->d->dump, p->c->name, p->step->name, "ids", shape, 1, ids, &type, &rows, &why);
    if (found == DUMP_BAD) *p->d->err = why;
    if (found == DUMP_WRONG)
        error_set(p->d->err, CLOVER_BAD_INPUT, "%s/%s: the dump's ids cannot be compared with the golden's %lld: %s", p->c->name, p->step->name, (long long)p->step->n, why.text);
    const bool decided = p->c->mode && p->step_index > 0;
    if (decided && (found == DUMP_WRONG || (found == DUMP_FOUND && !same_ids(ids, p->step->ids, p->step->n)))) {
        error_clear(p->d->err);
        diff_not_compared(p->d, "%s/%s and the steps after it (the dump's run has gone another way: its ids differ)", p->c->name, p->step->name);
        p->d->end = p->step_index;
    }
    for (int64_t i = 0; found == DUMP_FOUND && !decided && i < p->step->n && !failed(p); i++)
        if (ids[i] != (double)p->step->ids[i])
            error_set(p->d->err, CLOVER_BAD_INPUT, "%s/%s: the dump's id %lld is %.0f, the golden's %d: the dump answers another prompt, so they cannot be compared",
                      p->c->name, p->step->name, (long long)i, ids[i], (int)p->step->ids[i]);
    free(ids);
}

static void count_step(DiffRun *d, const BundleCase *c, const BundleStep *st, bool dumped) {
    d->result->n_steps++;
    if (dumped) return;
    d->result->n_missing++;
    diff_not_compared(d, "%s/%s (the dump has no such step)", c->name, st->name);
}

/* A run's steps are numbered calls; one of that number and another kind: the dump's run has gone another way before. */
static bool of_another_kind(const Pass *p) {
    static const char *const kinds[] = { "commit", "preview", "snapshot", "restore" };
    char other[64];
    const char *dash = strchr(p->step->name, '-');
    for (int k = STEP_COMMIT; p->c->mode && k <= STEP_PREVIEW; k++) {
        if (k == (int)p->step->kind) continue;
        snprintf(other, sizeof other, "%03lld-%s", (long long)p->step_index, kinds[k]);
        if ((!dash || strncmp(p->step->name, other, 4) == 0 || p->step->kind > STEP_PREVIEW) && dump_has_step(p->d->dump, p->c->name, other)) return true;
    }
    return false;
}

static CloverStatus one_step(Pass *p, CloverSession *s, Named *snapshots, int64_t *n_snapshots, double *logits) {
    DiffRun *d = p->d;
    const BundleStep *st = p->step;
    if (p->kind == PASS_EXACT && of_another_kind(p)) {
        diff_not_compared(d, "%s/%s and the steps after it (the dump's run has gone another way: it made another call here)", p->c->name, st->name);
        d->end = p->step_index;
        return CLOVER_OK;
    }
    if (st->kind == STEP_SNAPSHOT) {
        Named *slot = &snapshots[*n_snapshots];
        slot->name = st->name;
        CloverStatus status = in_force_snapshot(&p->force, s, &slot->snapshot, d->err);
        if (status == CLOVER_OK) ++*n_snapshots;
        return status;
    }
    if (st->kind == STEP_RESTORE) {
        for (int64_t i = *n_snapshots - 1; i >= 0; i--)
            if (strcmp(snapshots[i].name, st->name) == 0) return in_force_restore(&p->force, s, snapshots[i].snapshot, d->err);
        return error_set(d->err, CLOVER_BAD_INPUT, "%s: case %s restores a snapshot \"%s\" that no step before took", d->bundle->path, p->c->name, st->name);
    }
    Safetensors *golden = NULL;
    if (st->recorded) {
        char *path = bundle_file(d->bundle, p->c, st->name, ".safetensors");
        if (!path) return error_memory(d->err, "a path", 0);
        CloverStatus status = safetensors_open(path, &golden, d->err);
        free(path);
        if (status != CLOVER_OK) return status;
    }
    p->golden = golden;
    const bool dumped = dump_has_step(d->dump, p->c->name, st->name);
    if (p->kind == PASS_EXACT && st->recorded) count_step(d, p->c, st, dumped);
    if (dumped && p->kind == PASS_EXACT) check_ids(p);
    if (!failed(p) && p->step_index < d->end) {
        CloverError own;
        clover_session_watch(s, dumped || p->force.n ? watch : NULL, p);
        const CloverStatus status = st->kind == STEP_COMMIT ? in_force_commit(&p->force, s, st->ids, st->n, logits, st->n, &own) : in_force_preview(&p->force, s, st->ids, st->n, logits, &own);
        clover_session_watch(s, NULL, NULL);
        if (p->trial && (p->trial->over || status == CLOVER_BAD_INPUT)) p->broken = true;   /* it has what it wanted, or will not get it */
        else if (status == CLOVER_BAD_INPUT && dumped && !failed(p)) {   /* NaN or infinity came out */
            diff_note(d, "%s/%s: given the dump's values it cannot be computed to its end: %s", p->c->name, st->name, own.text);
            d->broken = p->broken = true;
        } else if (status != CLOVER_OK && !failed(p)) *d->err = own;
    }
    safetensors_close(golden);
    p->golden = NULL;
    return d->err->status;
}

/* Runs a pass over the case's steps from..to-1. keep: the state after them; or NULL. */
static CloverStatus run_steps(Pass *p, int64_t from, int64_t to, CloverSnapshot **keep) {
    DiffRun *d = p->d;
    const BundleCase *c = p->c;
    const int64_t V = d->model->config.vocab;
    const bool exact = p->kind == PASS_EXACT || p->kind == PASS_GIVEN || p->kind == PASS_TRIAL;
    CloverSessionOptions o = clover_session_defaults();
    o.numerics = exact ? CLOVER_EXACT : d->options->profile;
    o.coreset_top_p = c->coreset_top_p;
    o.capacity = 1;
    int64_t longest = 1;
    for (int64_t i = 0; i < c->n_steps; i++) {
        o.capacity += c->step[i].n;          /* previews too: a fault may keep their rows */
        if (c->step[i].n > longest) longest = c->step[i].n;
    }
    CloverSession *s = NULL;
    Named *snapshots = calloc((size_t)c->n_steps + 1, sizeof *snapshots);
    double *logits = malloc((size_t)(longest * V) * sizeof *logits);
    int64_t n_snapshots = 0;
    CloverStatus status = snapshots && logits ? clover_session_new(d->model, &o, &s, d->err) : error_memory(d->err, "a pass", (size_t)(longest * V) * sizeof *logits);
    ProfileRules rules;
    const Hypothesis *h[IN_FORCE_MAX];
    for (int i = 0; i < d->n_force; i++) h[i] = d->force[i].h;
    if (status == CLOVER_OK && !exact) diff_profile(s, d->options, &rules);
    if (status == CLOVER_OK && d->n_force) status = in_force_begin(&p->force, h, d->n_force, s, d->err);
    for (int i = 0; i < d->n_force && status == CLOVER_OK; i++) in_force_only(&p->force, s, i, d->force[i].layer);
    if (status == CLOVER_OK && p->trial && p->trial->before) status = clover_snapshot_restore(s, p->trial->before, d->err);
    p->session = s;
    for (int64_t i = from; i < to && i < d->end && status == CLOVER_OK && !p->broken; i++) {
        p->step = &c->step[i];
        p->step_index = i;
        status = one_step(p, s, snapshots, &n_snapshots, logits);
    }
    if (status == CLOVER_OK && keep) status = clover_snapshot_take(s, keep, d->err);
    for (int64_t i = 0; i < n_snapshots; i++) clover_snapshot_free(snapshots[i].snapshot);
    free(snapshots);
    free(logits);
    choice_forget(p);
    in_force_end(&p->force);
    clover_session_free(s);
    return status;
}
static CloverStatus one_pass(Pass *p) { return run_steps(p, 0, p->d->end, NULL); }

CloverStatus diff_trial(DiffRun *d, Trial *t) {
    const int64_t flips = d->hidden_flips, chosen = d->n_chosen;
    Pass p = { .d = d, .kind = PASS_TRIAL, .c = t->c, .trial = t };
    t->over = t->measured = false;
    t->stages = 0;
    t->from_layer = 0;
    d->end = t->step_index + 1;
    const CloverStatus status = run_steps(&p, t->before ? t->step_index : 0, t->step_index + 1, NULL);
    d->hidden_flips = flips, d->n_chosen = chosen;
    return status;
}

CloverStatus diff_state_before(DiffRun *d, const BundleCase *c, int64_t step_index, CloverSnapshot **out) {
    const int64_t flips = d->hidden_flips, chosen = d->n_chosen;
    Trial none = { .c = c, .step_index = -1 };
    d->end = step_index;
    Pass p = { .d = d, .kind = PASS_TRIAL, .c = c, .trial = &none };
    const CloverStatus status = run_steps(&p, 0, step_index, out);
    d->hidden_flips = flips, d->n_chosen = chosen;
    return status;
}

enum { PROFILE_SAMPLES = 4 };

static void note_unseen(DiffRun *d, int64_t from) {
    for (int64_t i = from; i < d->result->n_probes; i++) d->total[i].unseen = d->unseen;
}

CloverStatus diff_cases(DiffRun *d) {
    for (int64_t i = 0; i < d->bundle->n_cases && d->err->status == CLOVER_OK; i++) {
        const int64_t from = d->result->n_probes;
        uint64_t at = d->scratch.used;
        d->n_chosen = 0;
        d->end = d->bundle->cases[i].n_steps;
        d->other_choices = d->unseen = false;
        for (PassKind kind = PASS_EXACT; kind <= PASS_FREE && d->err->status == CLOVER_OK; kind++) {
            Pass p = { .d = d, .kind = kind, .c = &d->bundle->cases[i], .next = from, .at = at };
            if (kind == PASS_GIVEN) {
                if (!d->other_choices) continue;
                at = d->scratch.used;
            }
            one_pass(&p);
            if (kind == PASS_EXACT) note_unseen(d, from);
            /* Which experts rounding flips where nothing shows it is a matter of chance: some more runs of it. */
            for (int sample = 1; kind == PASS_PROFILE && d->unseen && sample < PROFILE_SAMPLES; sample++) {
                p = (Pass){ .d = d, .kind = kind, .c = &d->bundle->cases[i], .next = from, .at = at, .noise = (uint64_t)sample * 7919, .sample = sample };
                one_pass(&p);
            }
        }
    }
    return d->err->status;
}

/* ---- without a model ------------------------------------------------------------------------------------------- */

/* What a sound engine may be off the golden when no rule is run: stated, not measured. */
static double plain_bound(const DiffRun *d) { return d->options->profile == CLOVER_BF16 ? 0x1p-4 : d->options->profile == CLOVER_LLAMA_CPP ? 0x1p-6 : 0x1p-14; }

static void plain_tensor(DiffRun *d, const BundleCase *c, int64_t step_index, const Tensor *t) {
    const BundleStep *st = &c->step[step_index];
    double *dump = malloc((size_t)t->elements * sizeof *dump + 1), *golden = malloc((size_t)t->elements * sizeof *golden + 1);
    DType type = DT_F64;
    int64_t rows = 0;
    CloverError why;
    if (!dump || !golden || t->type != DT_F64 || t->dims > 4 || t->dims < 1) {
        if (!dump || !golden) error_memory(d->err, "a stage", (size_t)t->elements * sizeof *dump);
        free(dump);
        free(golden);
        return;
    }
    memcpy(golden, t->data, (size_t)t->elements * sizeof *golden);
    const DumpFound found = dump_load(d->dump, c->name, st->name, t->name, t->shape, t->dims, dump, &type, &rows, &why);
    if (found == DUMP_BAD) *d->err = why;
    ProbeResult *r = found == DUMP_ABSENT || found == DUMP_BAD ? NULL : add_probe(d);
    if (found == DUMP_ABSENT) diff_not_compared(d, "%s/%s %s", c->name, st->name, t->name);
    if (r) {
        r->case_name = c->name, r->step = st->name, r->step_index = step_index, r->type = type, r->dims = t->dims;
        snprintf(r->probe, sizeof r->probe, "%s", t->name);
        r->layer = stage_of(r->probe) == r->probe ? -1 : strtoll(r->probe + 1, NULL, 10);
        memcpy(r->shape, t->shape, (size_t)t->dims * sizeof *t->shape);
        if (found == DUMP_WRONG) {
            r->verdict = STAGE_WRONG;
            snprintf(r->note, sizeof r->note, "%.250s", why.text);
        } else {
            const int64_t skip = rows == t->shape[0] ? 0 : (t->shape[0] - rows) * (t->elements / t->shape[0]), n = t->elements - skip;
            r->shape[0] = rows;
            if (!difference(&r->total, dump + skip, golden + skip, n, type)) error_memory(d->err, "the figures", (size_t)n * sizeof *golden);
            r->added = r->total;
            double storage[2];
            storage_floor(golden + skip, n, type, storage);
            r->floor_rms = plain_bound(d) * rms_of(golden + skip, n) / d->options->margin_rms + storage[0];
            r->floor_max = plain_bound(d) * 16 * largest_of(golden + skip, n) / d->options->margin_max + storage[1];
            if (strcmp(r->probe, "logits") == 0 && r->total.not_finite == 0) logits_figures(&r->logits, dump + skip, golden + skip, rows, t->shape[1]);
            if (is_choice(stage_of(r->probe)))
                for (int64_t i = 0; i < n; i++) r->choices++, r->flips += dump[skip + i] != golden[skip + i];
        }
    }
    free(dump);
    free(golden);
}

CloverStatus diff_plain(DiffRun *d) {
    diff_note(d, "no model was given: the dump is only compared with the golden, nothing says which stage added what; bound %.2g relative", plain_bound(d));
    for (int64_t i = 0; i < d->bundle->n_cases; i++) {
        const BundleCase *c = &d->bundle->cases[i];
        d->end = c->n_steps;
        for (int64_t k = 0; k < d->end && d->err->status == CLOVER_OK; k++) {
            if (!c->step[k].recorded) continue;
            const bool dumped = dump_has_step(d->dump, c->name, c->step[k].name);
            count_step(d, c, &c->step[k], dumped);
            if (!dumped) continue;
            Pass p = { .d = d, .c = c, .step = &c->step[k], .step_index = k };
            check_ids(&p);
            if (k >= d->end) break;
            char *path = bundle_file(d->bundle, c, c->step[k].name, ".safetensors");
            Safetensors *golden = NULL;
            if (!path) error_memory(d->err, "a path", 0);
            if (d->err->status == CLOVER_OK) safetensors_open(path, &golden, d->err);
            free(path);
            const TensorList list = golden ? safetensors_tensors(golden) : (TensorList){ 0 };
            for (int64_t t = 0; t < list.n && d->err->status == CLOVER_OK; t++)
                if (strcmp(list.tensor[t].name, "ids") != 0) plain_tensor(d, c, k, &list.tensor[t]);
            safetensors_close(golden);
        }
    }
    return d->err->status;
}
