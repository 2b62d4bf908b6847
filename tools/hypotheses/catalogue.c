/* catalogue.c - all hypotheses, part by part. [HYP-1] */
#include <string.h>
#include "hypothesis.h"

static const HypothesisList *const parts[] = { &hypotheses_trunk, &hypotheses_attention, &hypotheses_gdn, &hypotheses_preview, &hypotheses_moe,
                                               &hypotheses_parameters, &hypotheses_state, &hypotheses_decoding };
enum { PARTS = sizeof parts / sizeof *parts };

int hypotheses_count(void) {
    int n = 0;
    for (int i = 0; i < PARTS; i++) n += parts[i]->n;
    return n;
}

const Hypothesis *hypothesis_at(int i) {
    for (int p = 0; p < PARTS && i >= 0; p++) {
        if (i < parts[p]->n) return &parts[p]->h[i];
        i -= parts[p]->n;
    }
    return NULL;
}

const Hypothesis *hypothesis_named(const char *name) {
    for (int i = 0; i < hypotheses_count(); i++)
        if (strcmp(hypothesis_at(i)->name, name) == 0) return hypothesis_at(i);
    return NULL;
}

bool hypothesis_enters(const Hypothesis *h, const char *stage) {
    const size_t length = strlen(stage);
    for (const char *s = h->stages; length && (s = strstr(s, stage)); s += length)
        if ((s == h->stages || s[-1] == ' ') && (s[length] == ' ' || s[length] == '\0')) return true;
    return false;
}
