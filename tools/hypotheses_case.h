/* hypotheses_case.h - a case on which a hypothesis shows, as far as the model lets it. [HYP] */
#ifndef CLOVER_HYPOTHESES_CASE_H
#define CLOVER_HYPOTHESES_CASE_H

#include <jansson.h>
#include "hypotheses/hypothesis.h"

/* The "cases" of a case file, one case; NULL: no memory. */
json_t *fitting_cases(const Hypothesis *h, const CloverConfig *c);

#endif
