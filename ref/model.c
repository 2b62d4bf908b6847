/* model.c - opening a model: which file it is, its numbers, its tokenizer and its weights. [CFG] [TEN] */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "error.h"
#include "files/config.h"
#include "files/tokenizer.h"
#include "model.h"

CloverOpenOptions clover_open_defaults(void) {
    return (CloverOpenOptions){ .drifts = CLOVER_REFUSE_DRIFTS, .block = -1, .mask_id = -1, .threshold = NAN,
                                .diffusion_heads_grouped = -1 };
}

/* Adds every line of a part's problems, so that one error tells of config, tokenizer and weights together. When the
 * machine refuses, that alone is told: what else seems wrong may come of it. */
static void add_problems(CloverError *err, CloverError *part) {
    if (err->status == CLOVER_SYSTEM) return;
    if (part->status == CLOVER_SYSTEM) {
        *err = *part;
        return;
    }
    for (char *line = part->status == CLOVER_OK ? NULL : part->text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        error_add(err, part->status, "%s", line);
    }
}

/* What the caller gives wins over what the file says. [CFG-13] */
static CloverStatus apply_options(CloverModel *m, const CloverOpenOptions *o, CloverError *err) {
    if (o->block < -1 || o->block == 0 || o->block > INT32_MAX)
        return error_set(err, CLOVER_USAGE, "block size %lld: expected at least 1", (long long)o->block);
    if (o->mask_id < -1 || o->mask_id >= m->config.vocab)
        return error_set(err, CLOVER_USAGE, "mask id %d: expected 0 to %lld, the vocabulary of %s", o->mask_id,
                         (long long)m->config.vocab - 1, m->path);
    if (!isnan(o->threshold) && !(isfinite(o->threshold) && o->threshold >= 0))
        return error_set(err, CLOVER_USAGE, "threshold %g: expected a finite number of at least 0", o->threshold);
    if (o->block != -1) m->config.block = o->block;
    if (o->mask_id != -1) m->config.mask_id = o->mask_id;
    if (!isnan(o->threshold)) m->config.threshold = o->threshold;
    return CLOVER_OK;
}

static void check_tokenizer(const CloverModel *m, CloverError *err) {
    if (m->tokenizer && clover_tokenizer_size(m->tokenizer) > m->config.vocab)
        error_add(err, CLOVER_BAD_INPUT, "%s: the tokenizer has ids up to %lld, the model a vocabulary of %lld", m->path,
                  (long long)clover_tokenizer_size(m->tokenizer) - 1, (long long)m->config.vocab);
}

/* What comes after the numbers: options, the tokenizer's fit, the weights. `part` collects one step's problems. */
static void open_weights(CloverModel *m, NameForm form, int heads_tiled, const CloverOpenOptions *o, CloverError *err,
                         CloverError *part) {
    if (apply_options(m, o, err) != CLOVER_OK) return;
    check_tokenizer(m, err);
    weights_bind(&m->tensors, form, &m->config, o, heads_tiled, &m->weights, part);
    add_problems(err, part);
    if (err->status == CLOVER_OK) m->config.tied = m->weights.head.data == m->weights.embed.data;   /* [CFG-15] */
}

static void open_gguf(CloverModel *m, const CloverOpenOptions *o, CloverError *err, CloverError *part) {
    int heads_tiled;
    if (gguf_open(m->path, &m->gguf, err) != CLOVER_OK) return;
    m->tensors = gguf_tensors(m->gguf);
    if (gguf_key(m->gguf, "tokenizer.ggml.tokens")) {
        tokenizer_from_gguf(m->gguf, &m->tokenizer, part);
        add_problems(err, part);
    }
    config_head_order(m->gguf, &heads_tiled, part);
    add_problems(err, part);
    config_from_gguf(m->gguf, o->drifts, &m->config, part);
    add_problems(err, part);
    if (part->status == CLOVER_OK) open_weights(m, NAMES_GGUF, heads_tiled, o, err, part);
}

static void open_folder(CloverModel *m, const CloverOpenOptions *o, CloverError *err, CloverError *part) {
    char tokenizer[4096];
    struct stat found;
    if (snprintf(tokenizer, sizeof tokenizer, "%s/tokenizer.json", m->path) >= (int)sizeof tokenizer) {
        error_set(err, CLOVER_USAGE, "%.200s...: the path is too long", m->path);
        return;
    }
    config_from_folder(m->path, &m->config, part);
    const bool numbers = part->status == CLOVER_OK;
    add_problems(err, part);
    if (stat(tokenizer, &found) == 0) {
        tokenizer_from_json(tokenizer, &m->tokenizer, part);
        add_problems(err, part);
    }
    safetensors_open(m->path, &m->safetensors, part);
    add_problems(err, part);
    if (!numbers || part->status != CLOVER_OK) return;
    m->tensors = safetensors_tensors(m->safetensors);
    if (m->config.family == CLOVER_FAMILY_CLOVER && m->config.mask_id < 0 && m->tokenizer)   /* [CFG-13] */
        m->config.mask_id = clover_token_find(m->tokenizer, "<|mask|>");
    open_weights(m, NAMES_HF, -1, o, err, part);
}

CloverStatus clover_model_open(const char *path, const CloverOpenOptions *options, CloverModel **out, CloverError *err) {
    const CloverOpenOptions defaults = clover_open_defaults();
    struct stat found;
    error_clear(err);
    if (!options) options = &defaults;
    if (stat(path, &found) != 0) {
        bool absent = errno == ENOENT || errno == ENOTDIR;
        return error_set(err, absent ? CLOVER_BAD_INPUT : CLOVER_SYSTEM, "%s: %s%s", path, strerror(errno),
                         absent ? "; expected a .gguf file, or a folder with config.json and *.safetensors" : "");
    }
    const size_t n = strlen(path);
    if (!S_ISDIR(found.st_mode) && n > 12 && strcmp(path + n - 12, ".safetensors") == 0)
        return error_set(err, CLOVER_USAGE, "%s: give the folder that holds it beside config.json", path);

    CloverModel *m = calloc(1, sizeof *m);
    CloverError *part = malloc(sizeof *part);
    if (!m || !part || !(m->path = malloc(n + 1))) error_memory(err, "opening a model", sizeof *m + sizeof *part + n + 1);
    else {
        memcpy(m->path, path, n + 1);
        if (S_ISDIR(found.st_mode)) open_folder(m, options, err, part);
        else open_gguf(m, options, err, part);
    }
    free(part);
    if (err->status == CLOVER_OK) *out = m;
    else clover_model_close(m);
    return err->status;
}

void clover_model_close(CloverModel *model) {
    if (!model) return;
    weights_free(&model->weights);
    tokenizer_free(model->tokenizer);
    gguf_close(model->gguf);
    safetensors_close(model->safetensors);
    free(model->path);
    free(model);
}

const CloverConfig *clover_model_config(const CloverModel *model) { return &model->config; }
const CloverTokenizer *clover_model_tokenizer(const CloverModel *model) { return model->tokenizer; }

CloverStatus clover_model_can_preview(const CloverModel *m, CloverError *err) {
    error_clear(err);
    if (m->config.family == CLOVER_FAMILY_BASE)   /* [CFG-1] */
        return error_set(err, CLOVER_UNSUPPORTED, "%s is a base model (%s): it has no preview, only --mode ar runs", m->path,
                         m->gguf ? "qwen35moe" : "qwen3_5_moe");
    if (!m->weights.diffusion)                    /* [TEN-4] */
        error_add(err, CLOVER_UNSUPPORTED,
                  "%s lacks the diffusion tensors (%s and %lld more), only --mode ar runs; llama.cpp's converter drops "
                  "them: open the Hugging Face folder that the file was made from", m->path, m->weights.missing[0],
                  (long long)m->weights.n_missing - 1);
    if (m->config.block < 1)
        error_add(err, CLOVER_BAD_INPUT, "%s: the file does not say its block size: give it with --block", m->path);
    if (m->config.mask_id < 0)                    /* [CFG-13] */
        error_add(err, CLOVER_BAD_INPUT, "%s: the file does not say which token is the mask: give its id with --mask-id",
                  m->path);
    return err->status;
}
