/* expected.h - compares steps of a model with files of expected values. */
#ifndef CLOVER_TEST_EXPECTED_H
#define CLOVER_TEST_EXPECTED_H

#include "../ref/clover.h"

/* What a comparison found; one a step file. */
typedef struct ExpectedResult {
    int64_t arrays, values;          /* compared */
    double worst;                    /* largest |a - b| */
    char worst_name[64];
    int64_t beyond;                  /* values beyond both bounds, plus arrays missing or of another shape */
    char problem[256];               /* the first one, in words */
} ExpectedResult;

typedef enum ExpectedStep { EXPECTED_COMMIT, EXPECTED_PREVIEW } ExpectedStep;

/* Runs the step whose ids the file holds and compares every array of the file with the session's. */
CloverStatus expected_step(CloverSession *session, int64_t vocab, ExpectedStep kind, const char *file, double relative, double absolute,
                           ExpectedResult *result, CloverError *err);

/* All steps of a folder that are there: causal, then over its state the previews and the continuation; preview_empty_prefix
 * over nothing; preview_coreset with top_p 0.5, the other previews with the model's own coreset. Calls report after each. */
typedef void ExpectedReport(void *user, const char *step, const ExpectedResult *result);
CloverStatus expected_folder(const CloverModel *model, const char *folder, double relative, double absolute, ExpectedReport *report, void *user, CloverError *err);

#endif
