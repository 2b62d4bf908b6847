/* synth.h - random models: their numbers, their tensors, their values.
 *
 * Every value is a function of (seed, tensor's Hugging Face name, index in the Hugging Face tensor) alone, and is exact
 * in bfloat16 and in float16. So the F32, F16 and BF16 files of one seed, GGUF or HF, are one model. A matrix of a block type
 * has random blocks instead: another model, whose values have the same mean and scale. */
#ifndef CLOVER_SYNTH_H
#define CLOVER_SYNTH_H

#include "../ref/files/dtype.h"
#include "gguf_write.h"
#include "output.h"
#include "safetensors_write.h"

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

typedef struct SynthModel {
    int64_t layers, hidden, heads, kv_heads, head_width, rotary_dims;
    int64_t key_heads, value_heads, key_width, value_width, taps, interval;
    int64_t experts, experts_used, expert_width, shared_width, vocab, context, block;
    double rope_base, threshold;
    double coreset_top_p;            /* -1: off */
    int32_t mask_id;
    bool tied, diffusion, base;      /* base: the family without diffusion */
    bool hf;                         /* a Hugging Face folder, else a GGUF */
    bool per_expert, nested_config, language_prefix;
    DType type;                      /* of the matrices; in a folder of everything */
    uint64_t seed;
    const char *name;
} SynthModel;

/* The vocabulary: byte b is token b, then these, then fillers that no text encodes to. */
enum { TOKEN_ENDOFTEXT = 256, TOKEN_IM_START, TOKEN_IM_END, TOKEN_THINK, TOKEN_THINK_END, TOKEN_MASK, FIRST_FILLER };

CloverStatus synth_put_keys(const SynthModel *m, GgufWriter *w, CloverError *err);
/* config.json, generation_config.json, tokenizer.json, tokenizer_config.json */
CloverStatus synth_write_json(const SynthModel *m, const char *folder, bool force, CloverError *err);

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* how the file's value follows from HF's [TEN-5, TEN-6] */
typedef enum SynthForm { FORM_AS_HF, FORM_PLUS_ONE, FORM_NEGATIVE_EXP } SynthForm;

enum { SYNTH_NAME = 112 };

typedef struct SynthTensor {
    char name[SYNTH_NAME];           /* in the file */
    /* layer and HF name of the tensor that its values come from; of blocks: the name in the file counts */
    char key[SYNTH_NAME];
    DType type;
    int dims;
    int64_t shape[3];
    int64_t rows, cols;              /* the same as rows: all dims but the last, and the last; a vector is [n, 1] */
    double mean, sd;                 /* of HF's values */
    SynthForm form;
    /* The HF row of the file's row i is first + (i / group) * stride + i % group: an expert's gate rows inside gate_up. */
    int64_t first, group, stride;
    /* GGUF's order of value heads: rows from tiled_row on, and all columns, are whole heads of so many. 0: as in HF. [TEN-7] */
    int64_t tiled_row, row_head, col_head, key_heads, heads_per_key;
    bool fell_back;                  /* its rows are no whole blocks of the type wanted */
} SynthTensor;

typedef struct SynthTensors { SynthTensor *tensor; int64_t n, room; bool no_memory; } SynthTensors;

CloverStatus synth_list(const SynthModel *m, SynthTensors *out, CloverError *err);   /* free(out->tensor) */

/* Writes every tensor's bytes in order through write(self, …). */
typedef CloverStatus SynthWrite(void *self, const void *bytes, size_t n, CloverError *err);
CloverStatus synth_write(const SynthModel *m, const SynthTensors *tensors, SynthWrite *write, void *self, CloverError *err);

/* ---- values ------------------------------------------------------------------------------------------------------ */

uint64_t random_stream(uint64_t seed, const char *name);

/* Elements first .. first+n of a stream: mean + sd * (nearly normal, within 3.47), rounded to what bfloat16 and float16 both hold. */
void random_normal(uint64_t stream, int64_t first, int64_t n, double mean, double sd, float *out);

/* Blocks first .. first+n: random bits under a scale such that the values' root mean square is about sd and their mean is zero. */
void random_blocks(uint64_t stream, DType type, int64_t first, int64_t n, double sd, uint8_t *out);

#endif
