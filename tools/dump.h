/* dump.h - an engine's dump: arrays by step and probe, under our names or through a map. [DMP] */
#ifndef CLOVER_DUMP_H
#define CLOVER_DUMP_H

#include "../ref/clover.h"
#include "../ref/files/dtype.h"
#include "bundle.h"

typedef struct Dump Dump;

/* path: a folder like a bundle's: CASE/STEP.safetensors, or STEP.safetensors at the top for a single case, or folders
 * [CASE/]STEP/ of PROBE.npy files. map: NULL (our names), "transformers", "llama.cpp" (built in), or a map file's path. config: of
 * the golden's model, for forms that need sizes (NULL: none of those). single_case: steps may lie at the top. A file that cannot be read is CLOVER_BAD_INPUT, named. */
CloverStatus dump_open(const char *path, const char *map, const CloverConfig *config, bool single_case, Dump **out, CloverError *err);
void dump_close(Dump *d);

bool dump_has_step(const Dump *d, const char *case_name, const char *step);
CloverStatus dump_open_step(Dump *d, const char *case_name, const char *step, CloverError *err);   /* can its file be read? One that is not there can. */

typedef enum DumpFound { DUMP_ABSENT, DUMP_FOUND, DUMP_WRONG, DUMP_BAD } DumpFound;

/* The probe in our form: rows first, value heads in HF order, as doubles [shape], shape being what the reference has.
 * FOUND: data is filled, *type is the dump's element type, *rows how many of the LAST rows the dump has (less than shape[0] only
 * for logits of the last row). WRONG: it is there and cannot be brought to that shape; why says what was found. BAD: its file
 * is broken or its type is no number's; why is the error. */
DumpFound dump_load(Dump *d, const char *case_name, const char *step, const char *probe, const int64_t *shape, int dims,
                    double *data, DType *type, int64_t *rows, CloverError *why);

/* The dump's trace.json of a case, or NULL; free with json_decref. */
json_t *dump_trace(const Dump *d, const char *case_name, CloverError *err);

/* Names in the dump that nothing asked for, for the report: *n of them, borrowed. */
const char *const *dump_unused(const Dump *d, int64_t *n);

#endif
