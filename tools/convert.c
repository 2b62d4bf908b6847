/* convert.c - clover convert: a right GGUF of a Hugging Face folder, streamed. [CNV-1]
 *
 * What a right export does: norms are written as 1 + w, the rate as -exp(A_log), GDN value heads tiled, experts as gate, up and
 * down [TEN-5, TEN-6, TEN-7]; norms, vectors, conv, router and shared gate stay F32, every other matrix takes the type asked for,
 * quantised to the bit as the gguf package does [QNT]. Rows that are no whole blocks become F16.
 *
 * --for self (default) keeps the four diffusion tensors of each GDN layer and the numbers of denoising, so that the file runs in
 * all three modes. --for llama.cpp leaves both out: llama.cpp refuses files with tensors it does not know. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../ref/error.h"
#include "args.h"
#include "convert.h"
#include "convert_roles.h"
#include "lint.h"
#include "output.h"
#include "tools.h"

static const char *const type_names[] = { "f32", "f16", "bf16", "q8_0", "q4_0", NULL };
static const DType types[] = { DT_F32, DT_F16, DT_BF16, DT_Q8_0, DT_Q4_0 };
static const char *const readers[] = { "self", "llama.cpp", NULL };
static const char *const architectures[] = { "clover_moe", "qwen35moe", NULL };
enum { FOR_SELF, FOR_LLAMA_CPP };

typedef struct Conversion {
    const char *folder, *out;
    int type, reader, architecture;
    bool force;
} Conversion;

typedef struct Sink { GgufWriter *w; Progress progress; } Sink;

static CloverStatus to_writer(void *self, const void *bytes, size_t n, CloverError *err) {
    Sink *s = self;
    progress_add(&s->progress, (double)n);
    return gguf_writer_write(s->w, bytes, n, err);
}

/* Does this role go into the file? A head that is the embedding does not, diffusion tensors only where they are wanted. */
static bool wanted(const RoleOf *role, const RoleView *v, bool diffusion) {
    return role_view_present(v) && (diffusion || !role->what.diffusion);
}

/* What stands in the view must be values of the right shape: else what would be written is no weight at all. */
static CloverStatus check_view(const RoleView *v, CloverError *err) {
    const Tensor *t = v->single ? v->single[0] : v->tensor;
    for (int64_t e = 0; v->single && e < v->experts && t->type == v->type; e++) t = v->single[e];     /* the first of another type */
    const DTypeInfo *info = dtype_info(t->type);
    if (!info || !info->decodable)
        return error_set(err, CLOVER_UNSUPPORTED, "%s: %s: its type %s cannot be decoded; export the folder in F32, F16 or BF16", t->file, t->name,
                         info ? info->name : "(unknown)");
    if (t->type != v->type)
        return error_set(err, CLOVER_UNSUPPORTED, "%s: %s is %s, others of its layer's experts are %s: experts of more than one type are not converted",
                         t->file, t->name, info->name, dtype_info(v->type)->name);
    if (!v->fits) return error_set(err, CLOVER_BAD_INPUT, "%s: %s has not the shape that the model's numbers give it", t->file, t->name);
    return CLOVER_OK;
}

static CloverStatus write_tensors(const Conversion *a, const ModelFile *f, const RoleList *roles, bool diffusion, GgufWriter *w, CloverError *err) {
    RoleView *views = calloc((size_t)roles->n, sizeof *views);
    bool *use = calloc((size_t)roles->n, sizeof *use);
    int64_t fell_back = 0;
    error_clear(err);
    if (!views || !use) error_memory(err, "the list of tensors", (size_t)roles->n * sizeof *views);
    for (int64_t i = 0; i < roles->n && err->status == CLOVER_OK; i++) {
        const RoleOf *role = &roles->role[i];
        int64_t shape[3];
        if (role_view(f, role, &f->config, &views[i], err) != CLOVER_OK || !(use[i] = wanted(role, &views[i], diffusion))) continue;
        if (check_view(&views[i], err) != CLOVER_OK) break;
        const DType type = role_type(role, types[a->type]);
        fell_back += type == DT_F16 && types[a->type] != DT_F16;
        gguf_add_tensor(w, role->name, type, role_shape(role, shape), shape);
    }
    if (err->status == CLOVER_OK) gguf_writer_begin(w, a->out, 0, 0, a->force, err);
    Sink sink = { .w = w, .progress = progress_start("converting", (double)gguf_writer_bytes(w)) };
    for (int64_t i = 0; i < roles->n && err->status == CLOVER_OK; i++) {
        HeadMap rows, cols;
        role_maps(&roles->role[i], &f->config, &rows, &cols);
        if (use[i]) role_write(&views[i], &rows, &cols, role_type(&roles->role[i], types[a->type]), to_writer, &sink, err);
    }
    progress_end(&sink.progress);
    for (int64_t i = 0; views && i < roles->n; i++) role_view_free(&views[i]);
    free(views);
    free(use);
    if (err->status == CLOVER_OK && fell_back)
        fprintf(stderr, "clover convert: %lld tensors have rows that are no whole blocks of %s: written as F16\n", (long long)fell_back, type_names[a->type]);
    return err->status == CLOVER_OK ? gguf_writer_finish(w, err) : err->status;
}

static CloverStatus convert_model(const Conversion *a, const CloverModel *model, const ModelFile *f, CloverError *err) {
    const CloverConfig *c = clover_model_config(model);
    CloverError no_preview;
    const bool has_diffusion = clover_model_can_preview(model, &no_preview) == CLOVER_OK;
    const bool diffusion = has_diffusion && a->reader == FOR_SELF && a->architecture == 0;
    RoleList roles;
    if (a->architecture == 0 && c->family == CLOVER_FAMILY_BASE)
        return error_set(err, CLOVER_USAGE, "%s is a base model, without diffusion: --arch qwen35moe writes it", a->folder);
    if (role_list(c, &roles, err) != CLOVER_OK) return err->status;
    GgufWriter *w = gguf_writer_new();
    CloverStatus status = w ? convert_put_keys(a->folder, c, architectures[a->architecture], types[a->type], diffusion, w, err)
                            : error_memory(err, "the writer", 1024);
    if (status == CLOVER_OK) status = write_tensors(a, f, &roles, diffusion, w, err);
    gguf_writer_free(w);
    free(roles.role);
    if (status == CLOVER_OK && has_diffusion && !diffusion)
        fprintf(stderr, "clover convert: the diffusion tensors and numbers are left out (%s): this file runs token by token only\n",
                a->architecture ? "--arch qwen35moe" : "--for llama.cpp");
    else if (status == CLOVER_OK && !has_diffusion && c->family == CLOVER_FAMILY_CLOVER)
        fprintf(stderr, "clover convert: no denoising: %s\n", no_preview.text);
    return status;
}

/* A folder whose rates or norms are in a GGUF's form already would get theirs twice. [TEN-5, TEN-6, LNT-3] */
static CloverStatus check_values(const char *folder, CloverError *err) {
    Report r = { 0 };
    lint_quickly(folder, &r, err);
    for (int64_t i = 0; i < r.n && (err->status == CLOVER_OK || err->status == CLOVER_BAD_INPUT); i++) {
        const Finding *f = &r.finding[i];
        if (f->severity >= GARBAGE)
            error_add(err, CLOVER_BAD_INPUT, "%s: %s: %s; the export would be garbage: correct the folder at its source (clover lint says more)", folder,
                      lint_id_name(f->id), f->n_evidence ? f->evidence[0] : "");
    }
    report_free(&r);
    return err->status;
}

/* A model that does not open is not exported: every shape, key and vector has then been looked at. */
static CloverStatus convert(const Conversion *a, CloverError *err) {
    CloverModel *model = NULL;
    ModelFile f = { 0 };
    struct stat info;
    if (stat(a->folder, &info) == 0 && !S_ISDIR(info.st_mode))
        return error_set(err, CLOVER_USAGE, "%s: expected a folder with config.json and *.safetensors", a->folder);
    if (output_spares(a->out, a->folder, err) != CLOVER_OK || output_may_replace(a->out, a->force, err) != CLOVER_OK) return err->status;
    CloverStatus status = clover_model_open(a->folder, NULL, &model, err);
    if (status == CLOVER_OK) status = check_values(a->folder, err);
    if (status == CLOVER_OK) status = model_file_open(a->folder, &f, err);
    if (status == CLOVER_OK) f.config = *clover_model_config(model);
    if (status == CLOVER_OK) status = convert_model(a, model, &f, err);
    model_file_close(&f);
    clover_model_close(model);
    return status;
}

int cmd_convert(int argc, char **argv) {
    Conversion a = { 0 };
    const ArgOption options[] = {
        { .name = "HF_DIR", .kind = ARG_POSITIONAL, .target = &a.folder, .required = true, .help = "a folder with config.json and *.safetensors" },
        { .name = "OUT", .kind = ARG_POSITIONAL, .target = &a.out, .required = true, .help = "the GGUF to write" },
        { .name = "type", .kind = ARG_CHOICE, .target = &a.type, .value = "TYPE", .choices = type_names, .help = "of the matrices (f32)" },
        { .name = "for", .kind = ARG_CHOICE, .target = &a.reader, .value = "READER", .choices = readers,
            .help = "self: all of it (default); llama.cpp: without the diffusion tensors, which it refuses" },
        { .name = "arch", .kind = ARG_CHOICE, .target = &a.architecture, .value = "ARCH", .choices = architectures,
            .help = "clover_moe (default), or qwen35moe: the same trunk as a base model" },
        { .name = "force", .kind = ARG_FLAG, .target = &a.force, .help = "replace what is there" },
    };
    const ArgCommand command = { .name = "convert", .usage = "HF_DIR OUT.gguf [options]",
        .summary = "Writes a right GGUF of a Hugging Face folder, in any of five types.",
        .example = "clover convert Clover-35B clover.gguf --type q8_0\n"
                   "clover convert Clover-35B clover-llama.gguf --type q4_0 --for llama.cpp",
        .options = options, .n = sizeof options / sizeof *options };
    CloverError err;
    int code = args_begin(&command, argc, argv, &err);
    if (code != ARGS_GO) return code;
    return convert(&a, &err) == CLOVER_OK ? CLOVER_OK : command_failed(command.name, &err);
}
