/* fix.c - clover fix: a right file of a drifted one, without rounding anything anew. [FIX-1]
 *
 * What is wrong is lint's to say (fix asks the same code, vectors' values included); with --like GOOD it is also compare's: a
 * tensor that is right after a transform is put right, one that is missing, NaN or zero is lent by the good file. --only ID,...
 * keeps to some findings; the deep ones (head-order, q-gate-flat, conv-reversed, gate-up-swapped, diffusion-head-order), which no
 * value shows, are mended when named, and the file remembers it under clover.mended, so that none is done twice.
 *
 * Untouched tensors keep their bytes. Quantised blocks move whole or, where a column order would cut them, not at all, which is
 * said. Vectors that change form become F32. A file with nothing to mend is copied to the byte. IN is never touched; OUT appears
 * when it is whole, under its name, and not before; what is left out goes to --keep-diffusion FILE first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "args.h"
#include "fix.h"
#include "tools.h"

static const char *const readers[] = { "self", "llama.cpp", NULL };

static CloverStatus read_only(Fix *x, const char *list, CloverError *err) {
    x->only_given = list != NULL;
    for (const char *p = list; p && *p; ) {
        const size_t n = strcspn(p, ",");
        int id = 0;
        while (id < LINT_IDS && (strlen(lint_id_name((LintId)id)) != n || strncmp(lint_id_name((LintId)id), p, n) != 0)) id++;
        if (id == LINT_IDS) return error_set(err, CLOVER_USAGE, "--only: \"%.*s\" is no finding of clover lint", (int)(n > 80 ? 80 : n), p);
        x->only[id] = true;
        p += n + (p[n] == ',');
    }
    return CLOVER_OK;
}

static CloverStatus plan(Fix *x) {
    if (fix_open(x) != CLOVER_OK || fix_keys(x) != CLOVER_OK || fix_names(x) != CLOVER_OK) return x->err->status;
    return x->has_good ? fix_like(x) : fix_values(x);
}

/* Writing over a file that is being read would be its end. */
static CloverStatus spares_inputs(const Fix *x, const char *path) {
    if (output_spares(path, x->in, x->err) != CLOVER_OK || !x->like) return x->err->status;
    return output_spares(path, x->like, x->err);
}

/* Findings of the input that nothing was said of: each with what would mend it. */
static int64_t tell_left(Fix *x) {
    int64_t left = 0;
    for (int64_t i = 0; i < x->report.n; i++) {
        const Finding *f = &x->report.finding[i];
        if (f->severity == NOTE || (x->only_given && !x->only[f->id])) continue;
        if (x->said[f->id]) continue;
        const bool theirs = x->reader == FIX_FOR_SELF && !(f->hurts & CLOVER);
        left++;
        fix_cannot(x, f->id, "%s (%s)", f->n_evidence && f->evidence[0] ? f->evidence[0] : f->n_tensors ? f->tensor[0] : "",
                   theirs ? "it hurts others than clover: --for llama.cpp" : lint_advice(f, x->has_good));
    }
    return left;
}

/* What the written file still has of it: a finding of which only a part was mended. Header, norms and rates are looked at again. */
static CloverStatus tell_rest(Fix *x) {
    LintFile f = { 0 };
    LintModel m = { 0 };
    Report r = { 0 };
    CloverStatus status = lint_read_gguf(x->out, &f, &r, x->err);
    if (status == CLOVER_OK) status = lint_header(&m, &f, &r, x->err);
    if (status == CLOVER_OK) status = lint_vectors(&m, &r, x->err);
    if (status == CLOVER_OK && r.no_memory) status = error_memory(x->err, "the report", (size_t)r.n * sizeof *r.finding);
    for (int64_t i = 0; i < r.n; i++) {
        const Finding *left = &r.finding[i];
        if (left->severity == NOTE || (x->only_given && !x->only[left->id]) || (x->reader == FIX_FOR_SELF && !(left->hurts & CLOVER))) continue;
        if (!x->said[left->id] || !report_has(&x->report, left->id)) continue;
        printf("still there: %s: %s (%s)\n", lint_id_name(left->id), left->n_evidence && left->evidence[0] ? left->evidence[0] : "", lint_advice(left, x->has_good));
    }
    lint_model_free(&m);
    lint_file_free(&f);
    report_free(&r);
    return status == CLOVER_SYSTEM ? status : CLOVER_OK;         /* another: what is wrong has been said */
}

static CloverStatus fix(Fix *x) {
    struct stat info;
    if (stat(x->in, &info) == 0 && S_ISDIR(info.st_mode))
        return error_set(x->err, CLOVER_USAGE, "%s: a folder is a source; clover convert writes a GGUF of it", x->in);
    if (!x->out && !x->dry_run) return error_set(x->err, CLOVER_USAGE, "OUT is missing: the file to write (or --dry-run)");
    if (x->side && x->out && output_same_file(x->side, x->out))
        return error_set(x->err, CLOVER_USAGE, "--keep-diffusion and OUT are one file: %s", x->out);
    if (!x->dry_run && (spares_inputs(x, x->out) != CLOVER_OK || (x->side && spares_inputs(x, x->side) != CLOVER_OK))) return x->err->status;
    if (!x->dry_run && output_may_replace(x->out, x->force, x->err) != CLOVER_OK) return x->err->status;
    if (plan(x) != CLOVER_OK) return x->err->status;
    const int64_t left = tell_left(x);
    if (!x->dry_run && fix_write(x) != CLOVER_OK) return x->err->status;
    if (x->changes > 0 && !x->dry_run && stat(x->out, &info) == 0 && S_ISREG(info.st_mode) && tell_rest(x) != CLOVER_OK) {
        unlink(x->out);                                          /* after an error there is no output [ERR-4] */
        return x->err->status;
    }
    const char *nothing = left || x->differing ? "nothing that could be mended" : "nothing to mend";
    if (x->changes == 0) printf("%s%s%s\n", nothing, x->dry_run ? "" : ": copied to ", x->dry_run ? "" : x->out);
    else if (x->dry_run) printf("%lld changes, none written (--dry-run)\n", (long long)x->changes);
    else {
        const bool side = x->side && x->dropped;
        printf("%lld changes: %s written%s%s\n", (long long)x->changes, x->out, side ? ", what is left out in " : "", side ? x->side : "");
    }
    return CLOVER_OK;
}

int cmd_fix(int argc, char **argv) {
    CloverError err;
    const char *only = NULL;
    int reader = 0;
    Fix *x = calloc(1, sizeof *x);
    if (!x) { error_memory(&err, "the plan", sizeof *x); return command_failed("fix", &err); }
    x->err = &err;
    const ArgOption options[] = {
        { .name = "IN", .kind = ARG_POSITIONAL, .target = &x->in, .required = true, .help = "a .gguf (any part of a split one)" },
        { .name = "OUT", .kind = ARG_POSITIONAL, .target = &x->out, .help = "the file to write; not needed with --dry-run" },
        { .name = "for", .kind = ARG_CHOICE, .target = &reader, .value = "READER", .choices = readers,
            .help = "self: all that a Clover has stays (default); llama.cpp: without the tensors that it refuses" },
        { .name = "only", .kind = ARG_STRING, .target = &only, .value = "ID,...", .help = "mend only these findings of clover lint" },
        { .name = "like", .kind = ARG_STRING, .target = &x->like, .value = "GOOD",
            .help = "a good file or folder of the same model: what only clover compare can see is mended, too" },
        { .name = "keep-diffusion", .kind = ARG_STRING, .target = &x->side, .value = "FILE",
            .help = "write tensors that are left out into this GGUF; --like FILE brings them back" },
        { .name = "dry-run", .kind = ARG_FLAG, .target = &x->dry_run, .help = "say what would change, write nothing" },
        { .name = "force", .kind = ARG_FLAG, .target = &x->force, .help = "replace what is there" },
    };
    const ArgCommand command = { .name = "fix", .usage = "IN OUT [options]",
        .summary = "Writes a right GGUF of a drifted one: keys edited, tensors renamed, moved or left out, nothing quantised again.\n"
                   "Each change is printed. Exit code 0: written; what cannot be mended is said.",
        .example = "clover fix vendor.gguf right.gguf --for llama.cpp --keep-diffusion diffusion.gguf\n"
                   "clover fix export.gguf right.gguf --like Clover-35B",
        .options = options, .n = sizeof options / sizeof *options };
    int code = args_begin(&command, argc, argv, &err);
    if (code == ARGS_GO) {
        error_clear(&err);
        x->reader = (FixFor)reader;
        CloverStatus status = read_only(x, only, &err);
        if (status == CLOVER_OK) status = fix(x);
        fflush(stdout);
        code = status == CLOVER_OK ? CLOVER_OK : command_failed(command.name, &err);
        fix_free(x);
    }
    free(x);
    return code;
}
