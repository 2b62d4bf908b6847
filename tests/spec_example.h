/* spec_example.h - the worked examples of SPEC.md, read from its text: fenced blocks ```example NAME with lines of
 * "key = values", several on a line parted by "; ". */
#ifndef CLOVER_TEST_SPEC_EXAMPLE_H
#define CLOVER_TEST_SPEC_EXAMPLE_H

#include <stdbool.h>
#include <stdint.h>

enum { EXAMPLE_KEYS = 24, EXAMPLE_TEXT = 512, EXAMPLE_NUMBERS = 64 };

typedef struct Example {
    char name[32];                   /* GDN-6, or QNT-3b for a second example of a rule */
    struct { char key[32], text[EXAMPLE_TEXT]; } pair[EXAMPLE_KEYS];
    int n;
} Example;

/* Loads an example; its line "as = OTHER" brings in the other's pairs. Fails the test when there is none of that name. */
void example_load(Example *e, const char *name);

/* A value as text. Fails the test when the key is absent. */
const char *example_text(const Example *e, const char *key);
bool example_has(const Example *e, const char *key);

/* A value as numbers; returns how many. */
int64_t example_numbers(const Example *e, const char *key, double numbers[EXAMPLE_NUMBERS]);
double example_number(const Example *e, const char *key);                    /* exactly one */
int64_t example_int(const Example *e, const char *key);                      /* exactly one, an integer */

/* actual[0..n) are the numbers of the key, to 1e-14 relative (1e-15 near zero). */
void example_expect(const Example *e, const char *key, const double *actual, int64_t n);

/* Names of all examples of SPEC.md, in its order; returns how many. */
int example_names(char names[][32], int room);

#endif
