/* traces.h - replays a folder's decode traces on its models and compares every step. [AR-1, DEN-2, DRA-4] */
#ifndef CLOVER_TEST_TRACES_H
#define CLOVER_TEST_TRACES_H

#include <jansson.h>
#include <stdio.h>
#include "../ref/clover.h"

/* A traces.json with the folder that holds its models. A case on "hf-flat" runs on that folder where it is there, else on
 * "hf" with the logits divided by 16, which is the same to the bit: its head is hf's divided by 16. */
typedef struct Traces {
    json_t *root, *cases;            /* cases is borrowed */
    char folder[4096];
} Traces;

bool traces_open(Traces *t, const char *folder, const char *traces_json, char *message, size_t room);
void traces_close(Traces *t);
size_t traces_count(const Traces *t);
const char *traces_name(const Traces *t, size_t i);

/* Runs case i in exact numerics: tokens and steps must be those of the trace, reals within 1e-9 relative (an
 * entropy also within 1e-14). false: message says where it first differs. */
bool traces_check(const Traces *t, size_t i, char *message, size_t room);

/* All cases, a line on report for each that fails. Returns how many failed (one when the file cannot be read). */
int traces_run(const char *folder, const char *traces_json, FILE *report, int *checked);

#endif
