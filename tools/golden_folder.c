/* golden_folder.c - the folder of a bundle: begun, gone on with, finished. [BND-1, BND-6, BND-7]
 *
 * While a bundle is written, FOLDER/.unfinished holds what it is to be (plan.json), what is done of it (done/CASE.json),
 * the state of the case at work, and a lock. manifest.json comes last: without it there is no bundle. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "golden.h"
#include "json_check.h"
#include "output.h"

#ifndef CLOVER_COMMIT
#define CLOVER_COMMIT "unknown"
#endif

/* ---- small things -------------------------------------------------------------------------------------------------- */

bool path_exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

/* Puts arrays of numbers on one line each: text as jansson indents it, changed in place. */
static void join_numbers(char *text) {
    char *to = text;
    bool in_string = false;
    for (char *p = text; *p;) {
        if (*p == '"') in_string = !in_string;
        const size_t plain = *p == '[' && !in_string ? strspn(p + 1, "0123456789+-.eE, \n") : 0;
        if (plain > 0 && p[1 + plain] == ']') {
            *to++ = *p++;
            for (; *p != ']'; p++)
                if (*p != '\n' && *p != ' ') *to++ = *p;
            continue;
        }
        if (*p == '\\' && in_string) *to++ = *p++;       /* what follows is no end of the string */
        *to++ = *p++;
    }
    *to = '\0';
}

CloverStatus write_sorted_json(const char *path, const json_t *json, CloverError *err) {
    char *text = json_dumps(json, JSON_INDENT(1) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    if (!text) return error_memory(err, path, 0);
    join_numbers(text);
    CloverStatus status = output_file(path, text, strlen(text), true, err);
    free(text);
    return status;
}

void remove_all(const char *path) {
    CloverError ignored;
    struct stat info;
    if (lstat(path, &info) != 0) return;
    DIR *dir = S_ISDIR(info.st_mode) ? opendir(path) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        char *inside = text_format(&ignored, "%s/%s", path, e->d_name);
        if (inside) remove_all(inside);
        free(inside);
    }
    if (dir) closedir(dir);
    if (S_ISDIR(info.st_mode)) rmdir(path);
    else unlink(path);
}

/* What a killed run was about to write: NAME.partial-PID. */
void remove_partials(const char *folder) {
    CloverError ignored;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!strstr(e->d_name, ".partial-")) continue;
        char *path = text_format(&ignored, "%s/%s", folder, e->d_name);
        if (path) unlink(path);
        free(path);
    }
    if (dir) closedir(dir);
}

static json_t *provenance(int argc, char **argv) {
    char when[32];
    const time_t t = time(NULL);
    struct tm utc;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &utc));
    json_t *command = json_array();
    json_array_append_new(command, json_string("clover"));
    for (int i = 0; i < argc; i++) {
        json_t *word = json_string(argv[i]);
        json_array_append_new(command, word ? word : json_string("(not UTF-8)"));
    }
    return json_pack("{s:s, s:s, s:o, s:s}", "tool", "clover " CLOVER_VERSION, "commit", CLOVER_COMMIT, "command", command, "time", when);
}

/* ---- the folder ---------------------------------------------------------------------------------------------------- */

void folder_free(Folder *f) {
    if (f->lock >= 0) close(f->lock);
    free(f->unfinished);
    free(f->plan);
    free(f->done);
    free(f->manifest);
    free(f->provenance);
}

static CloverStatus set_names(Folder *f, const char *out, CloverError *err) {
    *f = (Folder){ .out = out, .lock = -1 };
    f->unfinished = text_format(err, "%s/%s", out, BUNDLE_UNFINISHED);
    f->plan = text_format(err, "%s/%s/plan.json", out, BUNDLE_UNFINISHED);
    f->done = text_format(err, "%s/%s/done", out, BUNDLE_UNFINISHED);
    f->manifest = text_format(err, "%s/manifest.json", out);
    f->provenance = text_format(err, "%s/provenance.json", out);
    return f->unfinished && f->plan && f->done && f->manifest && f->provenance ? CLOVER_OK : err->status;
}

/* Two runs must not write one folder. The lock goes with the process, however that ends. */
static CloverStatus take_lock(Folder *f, CloverError *err) {
    char *path = text_format(err, "%s/lock", f->unfinished);
    if (!path) return err->status;
    f->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    CloverStatus status = CLOVER_OK;
    if (f->lock < 0) status = error_set(err, CLOVER_SYSTEM, "%s: %s", path, strerror(errno));
    else if (fcntl(f->lock, F_SETLK, &lock) != 0 && (errno == EACCES || errno == EAGAIN))
        status = error_set(err, CLOVER_USAGE, "%s: another clover golden is writing this bundle", f->out);
    free(path);
    return status;
}


json_t *plan_of_manifest(const json_t *manifest) {
    json_t *plan = json_deep_copy(manifest), *c;
    size_t i;
    json_object_del(plan, "files");
    json_array_foreach(json_object_get(plan, "cases"), i, c)
        if (json_object_get(c, "mode")) json_object_del(c, "steps");
    return plan;
}

/* Removes a finished bundle's files, those that its manifest names and no others. */
static void remove_bundle(const Folder *f) {
    CloverError ignored;
    Bundle b;
    if (bundle_open(f->out, &b, &ignored) == CLOVER_OK) {
        const char *name;
        json_t *hash;
        unlink(f->manifest);                             /* first: half a bundle must not look like one */
        json_object_foreach(json_object_get(b.manifest, "files"), name, hash) {
            char *path = text_format(&ignored, "%s/%s", f->out, name);
            if (path) unlink(path);
            free(path);
        }
        for (int64_t i = 0; i < b.n_cases; i++) {
            char *path = *b.cases[i].folder ? text_format(&ignored, "%s/%s", f->out, b.cases[i].folder) : NULL;
            if (path) rmdir(path);
            free(path);
        }
        bundle_close(&b);
        unlink(f->provenance);
    }
}

/* Removes what an unfinished run wrote: the files of its plan's cases. */
static void remove_unfinished(const Folder *f) {
    CloverError ignored;
    json_t *plan = json_read(f->plan, &ignored), *c;
    size_t i;
    json_array_foreach(json_object_get(plan, "cases"), i, c) {
        const char *folder = json_string_value(json_object_get(c, "folder"));
        char *path = folder && json_is_file_name(folder) ? text_format(&ignored, "%s/%s", f->out, folder) : NULL;
        if (path) remove_all(path);
        free(path);
    }
    DIR *dir = opendir(f->out);                          /* a single case's files lie at the top */
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const size_t n = strlen(e->d_name);
        const bool ours = (n > 12 && strcmp(e->d_name + n - 12, ".safetensors") == 0) || strcmp(e->d_name, "trace.json") == 0;
        char *path = ours && json_array_size(json_object_get(plan, "cases")) == 1 ? text_format(&ignored, "%s/%s", f->out, e->d_name) : NULL;
        if (path) unlink(path);
        free(path);
    }
    if (dir) closedir(dir);
    json_decref(plan);
    remove_partials(f->out);
    unlink(f->provenance);
    remove_all(f->unfinished);
}

CloverStatus folder_begin(Folder *f, const char *out, const json_t *plan, bool force, bool *whole, CloverError *err) {
    bool made;
    CloverError ignored;
    *whole = false;
    if (set_names(f, out, err) != CLOVER_OK) return err->status;
    if (output_folder(f->out, true, &made, err) != CLOVER_OK) return err->status;
    if (force && path_exists(f->manifest)) remove_bundle(f);
    if (path_exists(f->manifest)) {
        json_t *old = json_read(f->manifest, &ignored), *old_plan = old ? plan_of_manifest(old) : NULL;
        const bool same = old_plan && json_equal(old_plan, plan);
        json_decref(old);
        json_decref(old_plan);
        if (!same && force) return error_set(err, CLOVER_USAGE, "%s: its manifest.json is damaged, so its files are not known; remove the folder by hand", f->out);
        if (!same) return error_set(err, CLOVER_USAGE, "%s: another bundle stands there (its model, SPEC version or cases are not these); --force replaces it", f->out);
        remove_all(f->unfinished);
        *whole = true;
        return CLOVER_OK;
    }
    if (path_exists(f->unfinished)) {
        if (take_lock(f, err) != CLOVER_OK) return err->status;
        json_t *old = path_exists(f->plan) ? json_read(f->plan, &ignored) : NULL;
        const bool same = old && json_equal(old, plan), none = old == NULL;
        json_decref(old);
        if (!same && !none && !force)
            return error_set(err, CLOVER_USAGE, "%s: an unfinished bundle of another model or of other cases stands there; --force replaces it", f->out);
        if (same && !force) {
            remove_partials(f->out);
            remove_partials(f->unfinished);
            return CLOVER_OK;
        }
        if (f->lock >= 0) close(f->lock);
        f->lock = -1;
        remove_unfinished(f);
    }
    if (output_folder(f->out, false, &made, err) != CLOVER_OK)
        return error_set(err, CLOVER_USAGE, "%s: the folder holds files that are no bundle; give an empty or a new one", f->out);
    if (mkdir(f->unfinished, 0777) != 0 && errno != EEXIST) return error_set(err, CLOVER_SYSTEM, "%s: cannot make the folder: %s", f->unfinished, strerror(errno));
    if (take_lock(f, err) != CLOVER_OK) return err->status;
    if (mkdir(f->done, 0777) != 0 && errno != EEXIST) return error_set(err, CLOVER_SYSTEM, "%s: cannot make the folder: %s", f->done, strerror(errno));
    return write_sorted_json(f->plan, plan, err);
}

CloverStatus folder_finish(Folder *f, const json_t *manifest, int argc, char **argv, CloverError *err) {
    json_t *about = provenance(argc, argv);
    CloverStatus status = about ? write_sorted_json(f->provenance, about, err) : error_memory(err, "provenance.json", 0);
    json_decref(about);
    if (status == CLOVER_OK) status = write_sorted_json(f->manifest, manifest, err);
    if (status == CLOVER_OK) remove_all(f->unfinished);
    return status;
}
