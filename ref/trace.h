/* trace.h - a decode's steps as JSON, one object a step, in the form that SPEC.md gives traces. */
#ifndef CLOVER_TRACE_H
#define CLOVER_TRACE_H

#include <jansson.h>
#include "clover.h"

/*   {"step": "token", "id", "p"}
 *   {"step": "pass", "pos", "passno", "candidates": [[row, id, p] ...], "fixed": [row ...]}
 *   {"step": "block", "pos", "ids", "emitted"}
 *   {"step": "first", "id"}
 *   {"step": "round", "pos", "draft", "judged": [[id, p, entropy, accepted] ...], "accepted", "bonus"}
 * A new reference; NULL for an event that is no step (CLOVER_EVENT_OUTPUT) and when there is no memory. */
json_t *trace_step(const CloverEvent *event);

#endif
