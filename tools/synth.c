/* synth.c - clover synth: a random model of any shape, type and file form, streamed to disk. */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "args.h"
#include "synth.h"
#include "tools.h"

/* ---- what can be asked for --------------------------------------------------------------------------------------- */

static const char *const type_names[] = { "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1",
    "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", NULL };
static const DType types[] = { DT_F32, DT_F16, DT_BF16, DT_Q8_0, DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1,
    DT_Q2_K, DT_Q3_K, DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_IQ4_NL, DT_IQ4_XS };

enum { TYPE_F32 = 0, TYPE_Q8_0 = 3, TYPE_Q4_0 = 4 };     /* indices in types */
enum { FORM_GGUF, FORM_HF };
static const char *const form_names[] = { "gguf", "hf", NULL };
static const char *const arch_names[] = { "clover_moe", "qwen35moe", NULL };
static const char *const preset_names[] = { "tiny", "small", "35b", NULL };

typedef struct Preset { int type; SynthModel model; } Preset;

static const Preset presets[] = {
    { TYPE_F32, { .name = "synth-tiny", .layers = 4, .interval = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .head_width = 32,
        .rotary_dims = 8, .rope_base = 1e7, .key_heads = 2, .value_heads = 4, .key_width = 16, .value_width = 16, .taps = 4,
        .experts = 8, .experts_used = 2, .expert_width = 32, .shared_width = 32, .vocab = 272, .context = 4096 } },
    { TYPE_Q8_0, { .name = "synth-small", .layers = 8, .interval = 4, .hidden = 256, .heads = 8, .kv_heads = 2, .head_width = 64,
        .rotary_dims = 16, .rope_base = 1e7, .key_heads = 4, .value_heads = 8, .key_width = 32, .value_width = 32, .taps = 4,
        .experts = 8, .experts_used = 2, .expert_width = 256, .shared_width = 256, .vocab = 512, .context = 8192 } },
    { TYPE_Q4_0, { .name = "synth-35b", .layers = 40, .interval = 4, .hidden = 2048, .heads = 16, .kv_heads = 2, .head_width = 256,
        .rotary_dims = 64, .rope_base = 1e7, .key_heads = 16, .value_heads = 32, .key_width = 128, .value_width = 128, .taps = 4,
        .experts = 256, .experts_used = 8, .expert_width = 512, .shared_width = 512, .vocab = 248320, .context = 131072 } },
};

/* As the command line has it; -1 and NaN: not given. */
typedef struct Request {
    const char *out;
    int form, arch, type, preset;
    int64_t split;
    bool force, threshold_given, coreset_given;
    SynthModel model;
} Request;

static SynthModel nothing_given(void) {
    return (SynthModel){ .layers = -1, .hidden = -1, .heads = -1, .kv_heads = -1, .head_width = -1, .rotary_dims = -1,
        .rope_base = -1, .key_heads = -1, .value_heads = -1, .key_width = -1, .value_width = -1, .taps = -1, .interval = -1,
        .experts = -1, .experts_used = -1, .expert_width = -1, .shared_width = -1, .vocab = -1, .context = -1,
        .block = -1, .mask_id = -1, .threshold = 0.95, .coreset_top_p = -1, .diffusion = true };
}

static void take_size(int64_t *size, int64_t from_preset) { if (*size < 0) *size = from_preset; }

static bool ends_in(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* What was not given comes from the preset. */
static void complete(Request *r) {
    const Preset *p = &presets[r->preset];
    SynthModel *m = &r->model;
    take_size(&m->layers, p->model.layers);
    take_size(&m->hidden, p->model.hidden);
    take_size(&m->heads, p->model.heads);
    take_size(&m->kv_heads, p->model.kv_heads);
    take_size(&m->head_width, p->model.head_width);
    take_size(&m->rotary_dims, p->model.rotary_dims);
    take_size(&m->key_heads, p->model.key_heads);
    take_size(&m->value_heads, p->model.value_heads);
    take_size(&m->key_width, p->model.key_width);
    take_size(&m->value_width, p->model.value_width);
    take_size(&m->taps, p->model.taps);
    take_size(&m->interval, p->model.interval);
    take_size(&m->experts, p->model.experts);
    take_size(&m->experts_used, p->model.experts_used);
    take_size(&m->expert_width, p->model.expert_width);
    take_size(&m->shared_width, p->model.shared_width);
    take_size(&m->vocab, p->model.vocab);
    take_size(&m->context, p->model.context);
    if (m->rope_base < 0) m->rope_base = p->model.rope_base;
    m->name = p->model.name;
    m->base = r->arch == 1;
    if (r->form < 0) r->form = ends_in(r->out, ".gguf") ? FORM_GGUF : FORM_HF;
    m->hf = r->form == FORM_HF;
    if (r->type < 0) r->type = m->hf ? TYPE_F32 : p->type;
    m->type = types[r->type];
}

/* All that is wrong with the request, one line each. [CFG-5] */
static CloverStatus check(const Request *r, CloverError *err) {
    const SynthModel *m = &r->model;
    error_clear(err);
    if (m->heads % m->kv_heads != 0)
        error_add(err, CLOVER_USAGE, "--heads: %lld is no multiple of --kv-heads %lld", (long long)m->heads,
            (long long)m->kv_heads);
    if (m->value_heads % m->key_heads != 0)
        error_add(err, CLOVER_USAGE, "--value-heads: %lld is no multiple of --key-heads %lld", (long long)m->value_heads,
            (long long)m->key_heads);
    if (m->rotary_dims % 2 != 0 || m->rotary_dims > m->head_width)
        error_add(err, CLOVER_USAGE, "--rotary-dims: %lld is not even or exceeds --head-width %lld", (long long)m->rotary_dims,
            (long long)m->head_width);
    if (m->experts_used > m->experts)
        error_add(err, CLOVER_USAGE, "--experts-used: %lld exceeds --experts %lld", (long long)m->experts_used,
            (long long)m->experts);
    if (m->mask_id >= m->vocab)
        error_add(err, CLOVER_USAGE, "--mask-id: %d is not below --vocab %lld", (int)m->mask_id, (long long)m->vocab);
    if (!m->hf && m->interval > m->layers)
        error_add(err, CLOVER_USAGE, "--interval: %lld leaves none of %lld layers with full attention", (long long)m->interval,
            (long long)m->layers);

    const char *form = m->hf ? "hf" : "gguf";
    if (m->hf && dtype_info(m->type)->block > 1)
        error_add(err, CLOVER_USAGE, "--type: %s does not go with the form hf; f32, f16 and bf16 do", type_names[r->type]);
    if (!m->hf && m->per_expert) error_add(err, CLOVER_USAGE, "--per-expert: goes with the form hf, not with %s", form);
    if (!m->hf && m->nested_config) error_add(err, CLOVER_USAGE, "--nested-config: goes with the form hf, not with %s", form);
    if (!m->hf && m->language_prefix)
        error_add(err, CLOVER_USAGE, "--prefix-language-model: goes with the form hf, not with %s", form);
    if (m->hf && ends_in(r->out, ".gguf")) error_add(err, CLOVER_USAGE, "--form: hf writes a folder, and %s ends in .gguf", r->out);

    const char *why = m->base ? "--arch qwen35moe" : !m->diffusion ? "--no-diffusion" : NULL;
    if (why && m->block >= 0) error_add(err, CLOVER_USAGE, "--block: a model of %s has no blocks", why);
    if (why && m->mask_id >= 0) error_add(err, CLOVER_USAGE, "--mask-id: a model of %s has no mask", why);
    if (why && r->threshold_given) error_add(err, CLOVER_USAGE, "--threshold: a model of %s has none", why);
    if (why && r->coreset_given) error_add(err, CLOVER_USAGE, "--coreset-top-p: a model of %s has none", why);
    return err->status;
}

/* ---- writing ------------------------------------------------------------------------------------------------------ */

static CloverStatus to_gguf(void *self, const void *bytes, size_t n, CloverError *err) {
    return gguf_writer_write(self, bytes, n, err);
}
static CloverStatus to_safetensors(void *self, const void *bytes, size_t n, CloverError *err) {
    return safetensors_writer_write(self, bytes, n, err);
}

static CloverStatus write_gguf(const Request *r, const SynthTensors *list, CloverError *err) {
    GgufWriter *w = gguf_writer_new();
    if (!w) return error_memory(err, "the writer", 1024);
    CloverStatus status = synth_put_keys(&r->model, w, err);
    for (int64_t i = 0; i < list->n; i++)
        gguf_add_tensor(w, list->tensor[i].name, list->tensor[i].type, list->tensor[i].dims, list->tensor[i].shape);
    if (status == CLOVER_OK) status = gguf_writer_begin(w, r->out, 0, (uint64_t)r->split, r->force, err);
    if (status == CLOVER_OK) status = synth_write(&r->model, list, to_gguf, w, err);
    if (status == CLOVER_OK) status = gguf_writer_finish(w, err);
    gguf_writer_free(w);
    return status;
}

/* Weights of an earlier model in the folder would be read together with the new ones. */
static CloverStatus remove_weights(const char *folder, CloverError *err) {
    DIR *d = opendir(folder);
    if (!d) return error_set(err, CLOVER_SYSTEM, "%s: cannot be read", folder);
    error_clear(err);
    for (struct dirent *e; err->status == CLOVER_OK && (e = readdir(d)); ) {
        if (!ends_in(e->d_name, ".safetensors") && strcmp(e->d_name, "model.safetensors.index.json") != 0) continue;
        char *path = text_format(err, "%s/%s", folder, e->d_name);
        if (path && unlink(path) != 0) error_set(err, CLOVER_SYSTEM, "%s: cannot be replaced", path);
        free(path);
    }
    closedir(d);
    return err->status;
}

static CloverStatus write_weights(const Request *r, const SynthTensors *list, SafetensorsWriter *w, CloverError *err) {
    char *path = text_format(err, r->split ? "%s" : "%s/model.safetensors", r->out);
    if (!path) return err->status;
    safetensors_writer_metadata(w, "format", "pt");
    for (int64_t i = 0; i < list->n; i++)
        safetensors_writer_add(w, list->tensor[i].name, list->tensor[i].type, list->tensor[i].dims, list->tensor[i].shape);
    CloverStatus status = safetensors_writer_begin(w, path, (uint64_t)r->split, r->force, err);
    free(path);
    if (status == CLOVER_OK) status = synth_write(&r->model, list, to_safetensors, w, err);
    if (status == CLOVER_OK && r->force) status = remove_weights(r->out, err);
    if (status == CLOVER_OK) status = synth_write_json(&r->model, r->out, r->force, err);
    return status == CLOVER_OK ? safetensors_writer_finish(w, err) : status;
}

/* What this command made, it takes away again when it fails: also when there is no memory for a path. */
static void take_away(const char *folder) {
    static const char *const ours[] = { "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json" };
    int d = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; d >= 0 && i < sizeof ours / sizeof *ours; i++) unlinkat(d, ours[i], 0);
    if (d >= 0) close(d);
    rmdir(folder);
}

static CloverStatus write_folder(const Request *r, const SynthTensors *list, CloverError *err) {
    bool made;
    if (output_folder(r->out, r->force, &made, err) != CLOVER_OK) return err->status;
    SafetensorsWriter *w = safetensors_writer_new();
    CloverStatus status = w ? write_weights(r, list, w, err) : error_memory(err, "the writer", 1024);
    safetensors_writer_free(w);
    if (status != CLOVER_OK && made) take_away(r->out);
    return status;
}

static void tell(const Request *r, const SynthTensors *list) {
    double parameters = 0, bytes = 0;
    int64_t fallen = 0;
    const char *example = NULL;
    for (int64_t i = 0; i < list->n; i++) {
        const SynthTensor *t = &list->tensor[i];
        double n = (double)t->rows * (double)t->cols;
        parameters += n;
        bytes += n / (double)dtype_info(t->type)->block * (double)dtype_info(t->type)->bytes;
        if (t->fell_back && fallen++ == 0) example = t->name;
    }
    fprintf(stderr, "%s: %lld tensors, %.0f parameters, %.2f MB of weights, %s, seed %llu\n", r->out, (long long)list->n,
            parameters, bytes / 1e6, dtype_info(r->model.type)->name, (unsigned long long)r->model.seed);
    if (!fallen) return;
    fprintf(stderr, "%lld matrices are F16: their rows are no multiple of %s's %lld elements (%s%s)\n", (long long)fallen,
            dtype_info(r->model.type)->name, (long long)dtype_info(r->model.type)->block, example, fallen > 1 ? ", …" : "");
}

static CloverStatus synthesise(Request *r, CloverError *err) {
    SynthTensors list;
    complete(r);
    if (check(r, err) != CLOVER_OK) return err->status;
    if (r->model.base) r->model.diffusion = false;
    if (r->model.block < 0) r->model.block = 32;
    if (r->model.mask_id < 0) r->model.mask_id = TOKEN_MASK;
    if (synth_list(&r->model, &list, err) != CLOVER_OK) return err->status;
    CloverStatus status = r->model.hf ? write_folder(r, &list, err) : write_gguf(r, &list, err);
    if (status == CLOVER_OK) tell(r, &list);
    free(list.tensor);
    return status;
}

/* ---- the command --------------------------------------------------------------------------------------------------- */

#define SIZE(flag, field, low, high, text) \
    { .name = flag, .kind = ARG_INT, .target = &m->field, .value = "N", .min = low, .max = high, .help = text }

int cmd_synth(int argc, char **argv) {
    Request r = { .form = -1, .type = -1, .model = nothing_given() };
    SynthModel *m = &r.model;
    const ArgOption options[] = {
        { .name = "output", .letter = 'o', .kind = ARG_STRING, .target = &r.out, .value = "OUT", .required = true,
            .help = "the file to write, or the folder" },
        { .name = "form", .kind = ARG_CHOICE, .target = &r.form, .value = "FORM", .choices = form_names,
            .help = "file form (gguf when OUT ends in .gguf, else hf)" },
        { .name = "arch", .kind = ARG_CHOICE, .target = &r.arch, .value = "ARCH", .choices = arch_names,
            .help = "Clover, or the base family without diffusion (clover_moe)" },
        { .name = "type", .kind = ARG_CHOICE, .target = &r.type, .value = "TYPE", .choices = type_names,
          .help = "of the matrices (tiny f32, small q8_0, 35b q4_0; hf f32);\n"
                  "f32, f16, bf16 of one seed are one model, a block type another" },
        { .name = "seed", .kind = ARG_SEED, .target = &m->seed, .value = "N", .help = "the same seed gives the same bytes (0)" },
        { .name = "preset", .kind = ARG_CHOICE, .target = &r.preset, .value = "NAME", .choices = preset_names,
            .help = "sizes that are not given (tiny, about 1.4 MB)" },
        { .name = "force", .kind = ARG_FLAG, .target = &r.force, .help = "replace what is there" },
        { .kind = ARG_HEADING, .help = "sizes" },
        SIZE("layers", layers, 1, CLOVER_MAX_LAYERS, "layers"),
        SIZE("interval", interval, 1, CLOVER_MAX_LAYERS, "layer i has full attention when (i+1) % N is 0"),
        SIZE("hidden", hidden, 1, 1 << 20, "hidden size"),
        SIZE("heads", heads, 1, 4096, "query heads"),
        SIZE("kv-heads", kv_heads, 1, 4096, "KV heads, a divisor of the query heads"),
        SIZE("head-width", head_width, 2, 65536, "of attention heads"),
        SIZE("rotary-dims", rotary_dims, 2, 65536, "even, at most the head width"),
        { .name = "rope-base", .kind = ARG_REAL, .target = &m->rope_base, .value = "X", .min = 1, .max = 1e30,
            .help = "rotary base" },
        SIZE("key-heads", key_heads, 1, 4096, "GDN key heads"),
        SIZE("value-heads", value_heads, 1, 4096, "GDN value heads, a multiple of the key heads"),
        SIZE("key-width", key_width, 1, 65536, "of GDN key heads"),
        SIZE("value-width", value_width, 1, 65536, "of GDN value heads"),
        SIZE("taps", taps, 2, 64, "of the GDN conv"),
        SIZE("experts", experts, 1, 4096, "experts"),
        SIZE("experts-used", experts_used, 1, 4096, "experts a row chooses"),
        SIZE("expert-width", expert_width, 1, 1 << 20, "of an expert"),
        SIZE("shared-width", shared_width, 1, 1 << 20, "of the shared expert"),
        SIZE("vocab", vocab, FIRST_FILLER, 1 << 24, "vocabulary; 262 at least: the bytes and six special tokens"),
        SIZE("context", context, 1, 1 << 30, "context length that the file states"),
        { .name = "tied", .kind = ARG_FLAG, .target = &m->tied, .help = "the head is the embedding" },
        { .kind = ARG_HEADING, .help = "diffusion" },
        SIZE("block", block, 1, 65536, "block size (32)"),
        { .name = "mask-id", .kind = ARG_ID, .target = &m->mask_id, .value = "ID", .help = "mask token (261)" },
        { .name = "threshold", .kind = ARG_REAL, .target = &m->threshold, .value = "P", .min = 0, .max = 1,
            .given = &r.threshold_given, .help = "probability above which a row is fixed (0.95)" },
        { .name = "coreset-top-p", .kind = ARG_REAL_OR_OFF, .target = &m->coreset_top_p, .value = "P|off", .min = 0, .max = 1,
            .given = &r.coreset_given, .help = "expert coreset in previews (off)" },
        { .name = "no-diffusion", .kind = ARG_FLAG, .target = &m->diffusion, .off = true,
            .help = "leave the diffusion tensors and keys out" },
        { .kind = ARG_HEADING, .help = "file form" },
        { .name = "split-size", .kind = ARG_BYTES, .target = &r.split, .value = "BYTES", .min = 1, .max = 0x1p62,
          .help = "parts of at most so many bytes of tensors (64K, 8M, 2G):\nOUT-00001-of-000NN.gguf, or shards with an index" },
        { .name = "per-expert", .kind = ARG_FLAG, .target = &m->per_expert, .help = "hf: a tensor for each expert" },
        { .name = "nested-config", .kind = ARG_FLAG, .target = &m->nested_config, .help = "hf: the numbers inside text_config" },
        { .name = "prefix-language-model", .kind = ARG_FLAG, .target = &m->language_prefix,
            .help = "hf: names start with model.language_model." },
    };
    const ArgCommand command = { .name = "synth", .usage = "-o OUT [options]",
        .summary = "Writes a random model that every command reads: Clover's architecture in any shape, a byte-level\n"
                   "tokenizer included. Streamed: the 35b preset is 19.6 GB on disk and needs 20 MB of memory.",
        .example = "clover synth -o tiny.gguf --seed 7\n"
                   "clover synth -o tiny-hf --form hf --type bf16 --seed 7      # the same model\n"
                   "clover synth -o big.gguf --preset 35b",
        .options = options, .n = sizeof options / sizeof *options };
    CloverError err;
    int code = args_begin(&command, argc, argv, &err);
    if (code != ARGS_GO) return code;
    return synthesise(&r, &err) == CLOVER_OK ? CLOVER_OK : command_failed(command.name, &err);
}
