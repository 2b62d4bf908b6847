/* ask.h - how an answer of clover ask is judged. */
#ifndef CLOVER_ASK_H
#define CLOVER_ASK_H

#include "../ref/clover.h"

/* Does the answer hold the expected word, as a word, whatever the case? */
bool ask_is_right(const char *answer, const char *expected);

/* What garbage shows, as bits. */
typedef enum Telltale {
    ONE_TOKEN = 1,           /* the same id nine times of ten, eight ids at least */
    LOOP = 2,                /* the same two to eight ids over and over, to the end */
    NO_DOUBT = 4,            /* mean entropy of the rows below 0.001 nats: nothing is weighed */
    NO_IDEA = 8,             /* above 0.9 ln V: all tokens alike */
    SILENT = 16              /* nothing but a stop token */
} Telltale;

/* ids: the answer without its stop token. entropy: mean over the rows that chose, nats; NaN: not known. */
int ask_telltales(const int32_t *ids, int64_t n, double entropy, int64_t vocab);
const char *telltale_name(Telltale one);

#endif
