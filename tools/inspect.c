/* inspect.c - clover inspect: what a model file holds, lacks and can run. Works on files that do not open, too. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ref/error.h"
#include "../ref/model.h"
#include "identity.h"
#include "model_args.h"
#include "tools.h"

/* Tensors of the same name but for the layer (and expert), shape and type. */
typedef struct Group {
    char pattern[160];
    const Tensor *first;
    const char *role;                /* NULL: none known */
    int64_t count;
    uint64_t bytes;
} Group;

typedef struct Inspection {
    const char *path;
    NameForm form;
    TensorList tensors;
    uint64_t file_bytes;
    int64_t parts;
    const CloverModel *model;        /* NULL: it does not open */
    CloverError problems;            /* why not */
    CloverError preview;             /* why it cannot preview */
    Group *group;
    int64_t n_groups;
    int64_t undecodable;             /* tensors */
} Inspection;

/* blk.7.attn_q.weight -> blk.N.attn_q.weight: each run of digits between dots. */
static void make_pattern(char *pattern, size_t room, const char *name) {
    size_t used = 0;
    for (const char *p = name; *p && used + 2 < room;) {
        const size_t digits = strspn(p, "0123456789");
        const bool number = digits > 0 && (p == name || p[-1] == '.') && (p[digits] == '.' || p[digits] == '\0');
        if (number) {
            pattern[used++] = 'N';
            p += digits;
        } else pattern[used++] = *p++;
    }
    pattern[used] = '\0';
}

static bool same_shape(const Tensor *a, const Tensor *b) {
    return a->type == b->type && a->dims == b->dims && memcmp(a->shape, b->shape, (size_t)a->dims * sizeof *a->shape) == 0;
}

static CloverStatus group_tensors(Inspection *x, CloverError *err) {
    x->group = calloc(x->tensors.n ? (size_t)x->tensors.n : 1, sizeof *x->group);
    if (!x->group) return error_memory(err, "the list of tensors", (size_t)x->tensors.n * sizeof *x->group);
    for (int64_t i = 0; i < x->tensors.n; i++) {
        const Tensor *t = &x->tensors.tensor[i];
        char pattern[sizeof x->group->pattern];
        make_pattern(pattern, sizeof pattern, t->name);
        Group *g = NULL;
        for (int64_t k = 0; k < x->n_groups && !g; k++)
            if (strcmp(x->group[k].pattern, pattern) == 0 && same_shape(x->group[k].first, t)) g = &x->group[k];
        if (!g) {
            g = &x->group[x->n_groups++];
            strcpy(g->pattern, pattern);
            g->first = t;
            g->role = weights_role(t->name, x->form);
        }
        g->count++;
        g->bytes += t->bytes;
        const DTypeInfo *info = dtype_info(t->type);
        if (!info || !info->decodable) x->undecodable++;
    }
    return CLOVER_OK;
}

static const char *type_text(DType type, char *room, size_t n) {
    const DTypeInfo *info = dtype_info(type);
    if (info) return info->name;
    snprintf(room, n, "type %d", (int)type);
    return room;
}

static void product_text(const Tensor *t, char *out, size_t room) {
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < t->dims && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%lld", i ? " x " : "", (long long)t->shape[i]);
}

static void print_bytes(double bytes) {
    const char *const units[] = { "B", "kB", "MB", "GB", "TB" };
    int u = 0;
    for (; bytes >= 1000 && u < 4; u++) bytes /= 1000;
    printf(u ? "%.2f %s" : "%.0f %s", bytes, units[u]);
}

static void print_config(const Inspection *x) {
    const CloverConfig *c = &x->model->config;
    int64_t full = 0, every = 0;
    for (int64_t l = 0; l < c->layers; l++) {
        full += c->full_attention[l];
        if (c->full_attention[l] && !every) every = l + 1;
    }
    for (int64_t l = 0; every && l < c->layers; l++)
        if (c->full_attention[l] != ((l + 1) % every == 0)) every = 0;
    printf("\nconfig\n");
    printf("  family           %s\n", c->family == CLOVER_FAMILY_CLOVER ? "Clover (clover_moe): causal steps and previews" : "base (qwen35moe, qwen3_5_moe): causal steps only");
    printf("  layers           %lld: %lld full attention", (long long)c->layers, (long long)full);
    if (every) printf(" (every %lld)", (long long)every);
    printf(", %lld GDN\n", (long long)(c->layers - full));
    printf("  hidden           %lld   vocabulary %lld   context %lld   %s\n", (long long)c->hidden, (long long)c->vocab, (long long)c->context, c->tied ? "head tied to the embedding" : "head of its own");
    printf("  attention        %lld query heads, %lld KV heads of %lld; %lld rotary dims, base %g\n", (long long)c->heads, (long long)c->kv_heads, (long long)c->head_width, (long long)c->rotary_dims, c->rope_base);
    printf("  GDN              %lld key heads of %lld, %lld value heads of %lld; %lld conv taps\n", (long long)c->key_heads, (long long)c->key_width, (long long)c->value_heads, (long long)c->value_width, (long long)c->taps);
    printf("  experts          %lld of %lld wide, %lld chosen per row; shared expert %lld\n", (long long)c->experts, (long long)c->expert_width, (long long)c->experts_used, (long long)c->shared_width);
    printf("  RMSNorm epsilon  %.17g\n", c->rms_eps);
    if (c->family == CLOVER_FAMILY_CLOVER) {
        printf("  diffusion        block %lld, ", (long long)c->block);
        if (c->mask_id >= 0) printf("mask id %d, ", (int)c->mask_id);
        else printf("mask id unknown (give --mask-id), ");
        printf("threshold %g, coreset ", c->threshold);
        if (c->coreset_enabled) printf("on with top_p %g\n", c->coreset_top_p);
        else printf("off\n");
    }
    printf("  stop ids        ");
    for (int64_t i = 0; i < c->n_stops; i++) printf(" %d", (int)c->stops[i]);
    printf("%s\n", c->n_stops ? "" : " none: answers end at the token budget");
    const CloverControls *k = &c->controls;
    printf("  controls         frequency %g, presence %g, repetition %g, length %g (%lld, %lld), think end %g (%lld, %lld, id %d)\n", k->frequency_penalty, k->presence_penalty,
           k->repetition_penalty, k->dllm_length_penalty, (long long)k->dllm_length_penalty_start, (long long)k->dllm_length_penalty_window, k->dllm_think_end_bias,
           (long long)k->dllm_think_end_start, (long long)k->dllm_think_end_window, (int)k->dllm_think_end_token_id);
    if (x->model->tokenizer) printf("  tokenizer        %lld ids\n", (long long)clover_tokenizer_size(x->model->tokenizer));
    else printf("  tokenizer        none: prompts must be given as ids\n");
}

static const char *head_order(const Inspection *x) {
    return x->form == NAMES_HF ? "grouped (Hugging Face's)" : "tiled (GGUF's), read through a map (taken from the format: values cannot show it)";
}

static void print_names(const char *title, const Tensor **list, int64_t n) {
    if (n == 0) return;
    printf("\n%s (%lld)\n", title, (long long)n);
    for (int64_t i = 0; i < n && i < 20; i++) {
        char room[32], shape[96];
        product_text(list[i], shape, sizeof shape);
        printf("  %s [%s] %s\n", list[i]->name, shape, type_text(list[i]->type, room, sizeof room));
    }
    if (n > 20) printf("  ... and %lld more\n", (long long)n - 20);
}

static void print_text(const Inspection *x) {
    int64_t elements = 0;
    for (int64_t i = 0; i < x->tensors.n; i++) elements += x->tensors.tensor[i].elements;
    printf("%s: %s, %lld %s, ", x->path, x->form == NAMES_GGUF ? "GGUF v3" : "safetensors folder", (long long)x->parts, x->parts == 1 ? "file" : "files");
    print_bytes((double)x->file_bytes);
    printf(", %lld tensors, %lld numbers\n", (long long)x->tensors.n, (long long)elements);
    if (x->model) print_config(x);

    printf("\n%-44s %-42s %-18s %-8s %6s  %s\n", "role", "name", "shape", "type", "count", "size");
    for (int64_t i = 0; i < x->n_groups; i++) {
        const Group *g = &x->group[i];
        char room[32], shape[96];
        product_text(g->first, shape, sizeof shape);
        printf("%-44s %-42s %-18s %-8s %6lld  ", g->role ? g->role : "-", g->pattern, shape, type_text(g->first->type, room, sizeof room), (long long)g->count);
        print_bytes((double)g->bytes);
        const DTypeInfo *info = dtype_info(g->first->type);
        printf("%s\n", !info || !info->decodable ? "  (cannot be decoded)" : "");
    }
    printf("\nvalue heads of GDN: %s\n", head_order(x));
    if (x->model) {
        const Weights *w = &x->model->weights;
        print_names("known and left out", w->ignored, w->n_ignored);
        print_names("unknown, without effect", w->unknown, w->n_unknown);
        if (w->n_missing) {
            printf("\nmissing (%lld): the diffusion tensors\n", (long long)w->n_missing);
            for (int64_t i = 0; i < w->n_missing && i < 8; i++) printf("  %s\n", w->missing[i]);
            if (w->n_missing > 8) printf("  ... and %lld more\n", (long long)w->n_missing - 8);
        }
        printf("\nruns\n  ar       yes\n");
        const bool can = x->preview.status == CLOVER_OK;
        printf("  denoise  %s\n  draft    %s\n", can ? "yes" : "no", can ? "yes" : "no");
        if (!can) printf("  because  %s\n", x->preview.text);
        if (x->undecodable) printf("  but %lld tensors have types that cannot be decoded: whatever touches them stops with an error\n", (long long)x->undecodable);
    } else printf("\nit does not open:\n%s\n", x->problems.text);
}

static json_t *tensor_names(const Tensor **list, int64_t n) {
    json_t *a = json_array();
    for (int64_t i = 0; i < n; i++) json_array_append_new(a, json_string(list[i]->name));
    return a;
}

static bool print_json(const Inspection *x) {
    json_t *tensors = json_array();
    for (int64_t i = 0; i < x->tensors.n; i++) {
        const Tensor *t = &x->tensors.tensor[i];
        const char *role = weights_role(t->name, x->form);
        char room[32];
        json_t *shape = json_array();
        for (int k = 0; k < t->dims; k++) json_array_append_new(shape, json_integer(t->shape[k]));
        json_array_append_new(tensors, json_pack("{s:s, s:o, s:s, s:o, s:I}", "name", t->name, "role", role ? json_string(role) : json_null(), "type",
                                                 type_text(t->type, room, sizeof room), "shape", shape, "bytes", (json_int_t)t->bytes));
    }
    json_t *o = json_pack("{s:s, s:s, s:I, s:I, s:o, s:b}", "path", x->path, "form", x->form == NAMES_GGUF ? "gguf" : "hf", "bytes", (json_int_t)x->file_bytes,
                          "parts", (json_int_t)x->parts, "tensors", tensors, "opens", (int)(x->model != NULL));
    if (x->model) {
        const Weights *w = &x->model->weights;
        json_t *missing = json_array();
        for (int64_t i = 0; i < w->n_missing; i++) json_array_append_new(missing, json_string(w->missing[i]));
        json_object_set_new(o, "config", config_json(&x->model->config));
        json_object_set_new(o, "head_order", json_string(x->form == NAMES_HF ? "grouped" : "tiled"));
        json_object_set_new(o, "ignored", tensor_names(w->ignored, w->n_ignored));
        json_object_set_new(o, "unknown", tensor_names(w->unknown, w->n_unknown));
        json_object_set_new(o, "missing", missing);
        json_object_set_new(o, "runs", json_pack("{s:b, s:b, s:b}", "ar", 1, "denoise", (int)(x->preview.status == CLOVER_OK), "draft", (int)(x->preview.status == CLOVER_OK)));
    } else json_object_set_new(o, "problems", json_string(x->problems.text));
    const bool ok = o && json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) == 0;
    putchar('\n');
    json_decref(o);
    return ok;
}

int cmd_inspect(int argc, char **argv) {
    ModelArgs m = model_args_defaults();
    bool json = false;
    const ArgOption options[] = {
        MODEL_FILE_OPTIONS(m),
        { .name = "json", .kind = ARG_FLAG, .target = &json, .help = "print JSON, every tensor in it" },
    };
    const ArgCommand command = { .name = "inspect", .usage = "MODEL [options]",
        .summary = "Shows a model's numbers, its tensors by role, what it lacks and has beyond them, and which modes it can run.\n"
                   "A file whose keys or tensors do not fit is shown all the same, with all its problems; the exit code is then their class.\nOf a damaged file only the problems are shown.",
        .example = "clover inspect model.gguf", .options = options, .n = sizeof options / sizeof *options };
    CloverError err;
    const int code = args_begin(&command, argc, argv, &err);
    if (code != ARGS_GO) return code;

    CloverModel *model = NULL;
    Gguf *gguf = NULL;
    Safetensors *safetensors = NULL;
    Inspection x = { .path = m.path };
    if (json && json_holds_path(m.path, &err) != CLOVER_OK) {
        args_free(&command);
        return command_failed("inspect", &err);
    }
    CloverStatus status = model_args_open(&m, &model, &x.problems);
    if (status == CLOVER_OK) {
        x.model = model;
        clover_model_can_preview(model, &x.preview);
    }
    const Gguf *g = model ? model->gguf : NULL;
    const Safetensors *s = model ? model->safetensors : NULL;
    if (!model && gguf_open(m.path, &gguf, &err) == CLOVER_OK) g = gguf;
    else if (!model && safetensors_open(m.path, &safetensors, &err) == CLOVER_OK) s = safetensors;
    if (g || s) {
        x.form = g ? NAMES_GGUF : NAMES_HF;
        x.tensors = g ? gguf_tensors(g) : safetensors_tensors(s);
        x.file_bytes = g ? gguf_file_bytes(g) : safetensors_file_bytes(s);
        x.parts = g ? gguf_parts(g) : safetensors_parts(s);
        CloverStatus grouped = group_tensors(&x, &err);
        if (grouped == CLOVER_OK && json && !print_json(&x)) grouped = error_set(&err, CLOVER_SYSTEM, "cannot write JSON");
        if (grouped == CLOVER_OK && !json) print_text(&x);
        if (grouped != CLOVER_OK) status = (CloverStatus)command_failed("inspect", &err);
    } else {
        if (json) {   /* not even a container: JSON all the same */
            json_t *o = json_pack("{s:s, s:b, s:s}", "path", m.path, "opens", 0, "problems", x.problems.text);
            if (o) json_dumpf(o, stdout, JSON_INDENT(1));
            putchar('\n');
            json_decref(o);
        }
        command_failed("inspect", &x.problems);
    }
    free(x.group);
    gguf_close(gguf);
    safetensors_close(safetensors);
    clover_model_close(model);
    args_free(&command);
    return (int)status;
}
