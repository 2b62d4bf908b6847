/* hypotheses_case.h - a case on which a hypothesis shows, as far as the model lets it. [HYP] */
#ifndef CLOVER_HYPOTHESES_CASE_H
#define CLOVER_HYPOTHESES_CASE_H

#include <jansson.h>
#include "hypotheses/hypothesis.h"
#include "model_args.h"

/* The "cases" of a case file, one case. Of a decoding fault it is the first of some runs in which a decision differs, where the
 * model is small enough to try; a->numerics becomes bf16 where only rounded logits show it. */
CloverStatus fitting_cases(const Hypothesis *h, const CloverModel *model, ModelArgs *a, json_t **cases, CloverError *err);

#endif
