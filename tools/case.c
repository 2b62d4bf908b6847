/* case.c - reading one case, with all its problems at once. [BND-2, BND-3] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "case.h"
#include "json_check.h"

static const char *const kind_keys[] = { "commit", "preview", "snapshot", "restore" };   /* the order of StepKind */
enum { KINDS = 4 };

static const char *name_of(const json_t *object, const char *key, const char *where, CloverError *err) {
    const char *name = json_string_value(json_object_get(object, key));
    if (name && json_is_file_name(name)) return name;
    json_wrong(err, where, key, "a name (not empty, at most 128 bytes, not beginning with a dot, without / \\ .. and control characters)", json_object_get(object, key));
    return NULL;
}

/* Adds name to the set; a problem when it is there. */
static void once(json_t *names, const char *name, const char *what, const char *where, CloverError *err) {
    if (json_object_get(names, name)) error_add(err, CLOVER_BAD_INPUT, "%s: %s \"%s\" stands there twice", where, what, name);
    else if (json_object_set_new(names, name, json_true()) != 0) error_memory(err, "the names", strlen(name));
}

static void read_step(const json_t *object, const char *where, int64_t vocab, json_t *names, json_t *snapshots, BundleStep *s, CloverError *err) {
    static const char *const known[] = { "name", "commit", "preview", "snapshot", "restore", NULL };
    if (!json_known_keys(err, where, "step", object, known)) return;
    int kinds = 0;
    for (int k = 0; k < KINDS; k++)
        if (json_object_get(object, kind_keys[k])) s->kind = (StepKind)k, kinds++;
    if (kinds != 1) {
        json_wrong(err, where, "step", "exactly one of commit, preview, snapshot and restore", object);
        return;
    }
    if (s->kind == STEP_COMMIT || s->kind == STEP_PREVIEW) {
        s->name = name_of(object, "name", where, err);
        if (s->name) once(names, s->name, "the step name", where, err);
        s->ids = json_id_list(err, where, kind_keys[s->kind], json_object_get(object, kind_keys[s->kind]), vocab, &s->n);
        return;
    }
    if (json_object_get(object, "name")) error_add(err, CLOVER_BAD_INPUT, "%s: a %s has no name beside its own", where, kind_keys[s->kind]);
    s->name = name_of(object, kind_keys[s->kind], where, err);
    if (!s->name) return;
    if (s->kind == STEP_SNAPSHOT) json_object_set_new(snapshots, s->name, json_true());   /* taken again: the later one counts */
    else if (!json_object_get(snapshots, s->name)) error_add(err, CLOVER_BAD_INPUT, "%s: no step before takes a snapshot \"%s\"", where, s->name);
}

static void read_steps(const json_t *steps, const char *where, int64_t vocab, BundleCase *c, CloverError *err) {
    const size_t n = json_array_size(steps);
    if (n == 0) {
        json_wrong(err, where, "steps", "a non-empty array", steps);
        return;
    }
    json_t *names = json_object(), *snapshots = json_object();
    c->step = calloc(n, sizeof *c->step);
    if (c->step && names && snapshots) {
        c->n_steps = (int64_t)n;
        for (size_t i = 0; i < n; i++) {
            char here[256];
            snprintf(here, sizeof here, "%.200s: steps[%zu]", where, i);
            read_step(json_array_get(steps, i), here, vocab, names, snapshots, &c->step[i], err);
        }
    } else error_memory(err, "a case's steps", n * sizeof *c->step);
    json_decref(names);
    json_decref(snapshots);
}

static json_t *strings(const json_t *object, const char *key, const char *where, CloverError *err) {
    json_t *list = json_list(err, where, object, key, false);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (json_string_length(v) == 0) json_wrong(err, where, key, "an array of non-empty strings", v);
    }
    return list;
}

/* A case of steps has nothing that only a run has. */
static void refuse_run_members(const json_t *object, const char *where, CloverError *err) {
    static const char *const of_runs[] = { "prompt", "mode", "n", "controls", NULL };
    for (const char *const *k = of_runs; *k; k++)
        if (json_object_get(object, *k)) error_add(err, CLOVER_BAD_INPUT, "%s: %s belongs to a run, but the case lists steps", where, *k);
}

void case_read(const json_t *object, CaseForm form, const char *where, int64_t vocab, BundleCase *c, RunArgs *run, CloverError *err) {
    static const char *const known[] = { "folder", "name", "why", "features", "probes", "prompt", "mode", "n", "options", "controls", "steps", NULL };
    *c = (BundleCase){ .folder = "" };
    *run = run_args_defaults();
    if (!json_known_keys(err, where, "case", object, form == CASE_MANIFEST ? known : known + 1)) return;
    char here[256];
    c->name = name_of(object, "name", where, err);
    if (c->name) {
        snprintf(here, sizeof here, "%.120s (%s)", where, c->name);
        where = here;
    }
    c->why = json_text(err, where, object, "why", false);
    c->features = strings(object, "features", where, err);
    strings(object, "probes", where, err);
    json_t *steps = json_list(err, where, object, "steps", form == CASE_MANIFEST);
    const bool is_run = form == CASE_MANIFEST ? json_object_get(object, "mode") != NULL : json_object_get(object, "steps") == NULL;
    if (is_run) {
        run_args_from_json(run, object, where, vocab, err);
        c->prompt = json_object_get(object, "prompt");
        c->mode = json_object_get(object, "mode");
        c->controls = json_object_get(object, "controls");
    } else {
        refuse_run_members(object, where, err);
        run_args_steps_options(run, object, where, err);
    }
    c->options = json_object_get(object, "options");
    c->coreset_top_p = run->model.coreset_top_p;
    if (steps) read_steps(steps, where, vocab, c, err);
    if (form != CASE_MANIFEST) return;
    const char *folder = json_text(err, where, object, "folder", true);
    if (folder && *folder && (!c->name || strcmp(folder, c->name) != 0)) json_wrong(err, where, "folder", "the case's name, or \"\"", json_object_get(object, "folder"));
    else if (folder) c->folder = folder;
}

void case_free(BundleCase *c) {
    for (int64_t i = 0; i < c->n_steps; i++) free(c->step[i].ids);
    free(c->step);
    *c = (BundleCase){ .folder = "" };
}

void case_run_free(RunArgs *run) {
    free(run->ids.ids);
    run->ids = (ArgIds){ 0 };
}

json_t *case_step_json(const BundleStep *s) {
    if (s->kind == STEP_SNAPSHOT || s->kind == STEP_RESTORE) return json_pack("{s:s}", kind_keys[s->kind], s->name);
    json_t *ids = json_array();
    for (int64_t i = 0; i < s->n && ids; i++)
        if (json_array_append_new(ids, json_integer(s->ids[i])) != 0) {
            json_decref(ids);
            return NULL;
        }
    return ids ? json_pack("{s:s, s:o}", "name", s->name, kind_keys[s->kind], ids) : NULL;
}
