/* dump_callback.c - llama.cpp's evaluation callback in C: every node of NODES, a .npy file each, for `clover diff --map llama.cpp`.
 *
 *     cc dump_callback.c -I llama.cpp/include -I llama.cpp/ggml/include -L llama.cpp/build/bin -lllama -lggml -lggml-base -o dump_callback
 *     ./dump_callback model.gguf my-dump prompt=3,17,200 more=5,6
 *     clover diff golden my-dump --map llama.cpp --profile llama.cpp
 *
 * my-dump must not exist yet. Steps are commits, one after the other, under the golden's names; for a golden of several cases dump
 * into my-dump/CASE. To dump from your own program, set cb_eval and cb_eval_user_data as main does, and a new folder before each
 * llama_decode. A step must fit one ubatch: a node then has all of its rows. What this can and cannot see: README.md. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "ggml.h"
#include "ggml-backend.h"
#include "llama.h"

static const char *const NODES[] = {
    "model.input_embed", "attn_norm", "attn_residual", "attn_post_norm", "attn_output", "l_out", "result_norm", "result_output",
    "Qcur_full", "Kcur", "Vcur", "Qcur_normed", "Kcur_normed", "Qcur", "attn_pregate", "attn_gated",
    "linear_attn_qkv_mixed", "z", "beta_sigmoid", "gate", "conv_output_silu", "q_conv_predelta", "k_conv_predelta", "v_conv_predelta", "new_state",
    "final_output", "linear_attn_out",
    "ffn_moe_probs", "ffn_moe_topk", "ffn_moe_weights_norm", "ffn_moe_out", "ffn_shexp", "shared_expert_gate_sigmoid", "ffn_out",
};

static void stop(const char *what, const char *which) {
    fprintf(stderr, "dump_callback: %s: %s%s%s\n", which, what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

/* NumPy's format, version 1: 10 bytes, a header padded to 64, the elements. ne: dims, fastest first, as ggml has them. */
static void write_npy(const char *path, const char *type, const int64_t ne[4], const void *elements, size_t bytes) {
    char header[128];
    int used = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%lld, %lld, %lld, %lld)}", type, (long long)ne[3], (long long)ne[2],
                        (long long)ne[1], (long long)ne[0]);
    const int length = (10 + used + 1 + 63) / 64 * 64 - 10;
    memset(header + used, ' ', (size_t)(length - used));
    header[length - 1] = '\n';
    const unsigned char magic[10] = { 0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(length & 255), (unsigned char)(length >> 8) };
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(magic, 1, 10, file) != 10 || fwrite(header, 1, (size_t)length, file) != (size_t)length || fwrite(elements, 1, bytes, file) != bytes || fclose(file) != 0)
        stop("cannot be written", path);
}

/* Is the node NAME-LAYER (or NAME) with a name of NODES? Not "NAME-LAYER (view)" and the like. */
static bool wanted(const char *name) {
    for (size_t i = 0; i < sizeof NODES / sizeof *NODES; i++) {
        const size_t n = strlen(NODES[i]);
        if (strncmp(name, NODES[i], n) != 0) continue;
        if (name[n] == '\0' || (name[n] == '-' && name[n + 1 + strspn(name + n + 1, "0123456789")] == '\0')) return true;
    }
    return false;
}

/* A node of float32 or int32. A view's elements lie apart: nb says where, in bytes. */
static void dump(const char *folder, const struct ggml_tensor *t) {
    if (t->type != GGML_TYPE_F32 && t->type != GGML_TYPE_I32) return;
    const int64_t *ne = t->ne, n = ne[0] * ne[1] * ne[2] * ne[3];
    char *raw = malloc(ggml_nbytes(t)), *out = malloc((size_t)n * 4), path[4096], earlier[4200];
    if (!raw || !out) stop("out of memory", ggml_get_name(t));
    ggml_backend_tensor_get(t, raw, 0, ggml_nbytes(t));   /* from a GPU too */
    char *to = out;
    for (int64_t d = 0; d < ne[3]; d++)
        for (int64_t c = 0; c < ne[2]; c++)
            for (int64_t b = 0; b < ne[1]; b++)
                for (int64_t a = 0; a < ne[0]; a++, to += 4) memcpy(to, raw + d * (int64_t)t->nb[3] + c * (int64_t)t->nb[2] + b * (int64_t)t->nb[1] + a * (int64_t)t->nb[0], 4);
    /* A name that comes again (Kcur, before and after its rotation): the earlier one becomes NAME.1, .2, ... */
    snprintf(path, sizeof path, "%s/%s.npy", folder, ggml_get_name(t));
    struct stat st;
    if (stat(path, &st) == 0) {
        int k = 1;
        do snprintf(earlier, sizeof earlier, "%s/%s.%d.npy", folder, ggml_get_name(t), k++); while (stat(earlier, &st) == 0);
        if (rename(path, earlier) != 0) stop("cannot be renamed", path);
    }
    write_npy(path, t->type == GGML_TYPE_F32 ? "<f4" : "<i4", ne, out, (size_t)n * 4);
    free(raw);
    free(out);
}

/* The callback. Asked: is this node wanted? Then, when its values are there: go on (false would end the evaluation). */
static bool on_node(struct ggml_tensor *t, bool ask, void *user) {
    if (ask) return wanted(ggml_get_name(t));
    if (wanted(ggml_get_name(t))) dump(user, t);
    return true;
}

int main(int argc, char **argv) {
    enum { ROWS = 4096 };
    static char folder[4096];
    static int32_t ids[ROWS];
    if (argc < 4) {
        fprintf(stderr, "usage: dump_callback MODEL.gguf OUT STEP=ID,ID,... ...\n");
        return 2;
    }
    ggml_backend_load_all();
    struct llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = p.n_batch = p.n_ubatch = ROWS;
    p.type_k = p.type_v = GGML_TYPE_F32;                                /* no rounding of the cache: the profile has none */
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    p.cb_eval = on_node;
    p.cb_eval_user_data = folder;
    struct llama_context *context = model ? llama_init_from_model(model, p) : NULL;
    if (!context) stop("llama.cpp cannot load it", argv[1]);
    struct llama_batch batch = llama_batch_init(ROWS, 0, 1);
    if (mkdir(argv[2], 0777) != 0) stop("cannot be made", argv[2]);
    for (int step = 3, position = 0; step < argc; step++) {
        char *list = strchr(argv[step], '='), path[4200];
        if (!list) stop("expected STEP=ID,ID,...", argv[step]);
        *list++ = '\0';
        snprintf(folder, sizeof folder, "%s/%s", argv[2], argv[step]);
        if (mkdir(folder, 0777) != 0) stop("cannot be made", folder);
        for (batch.n_tokens = 0; *list && batch.n_tokens < ROWS; batch.n_tokens++, list += *list == ',') {
            const int i = batch.n_tokens;
            batch.token[i] = ids[i] = (int32_t)strtol(list, &list, 10);
            batch.pos[i] = position++;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;                                        /* result_norm and result_output of every row */
        }
        if (llama_decode(context, batch) != 0) stop("llama_decode fails", argv[step]);
        const int64_t ne[4] = { batch.n_tokens, 1, 1, 1 };
        snprintf(path, sizeof path, "%s/ids.npy", folder);
        write_npy(path, "<i4", ne, ids, (size_t)batch.n_tokens * 4);
    }
    llama_batch_free(batch);
    llama_free(context);
    llama_model_free(model);
    return 0;
}
