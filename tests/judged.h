/* judged.h - models, their goldens, and one diff after the other of what test engines dump. [DIF] */
#ifndef CLOVER_TEST_JUDGED_H
#define CLOVER_TEST_JUDGED_H

#include "../tools/diff_parts.h"
#include "engine.h"
#include "files.h"

typedef struct Shape { const char *name, *flags; double coreset_top_p; } Shape;
enum { SHAPES = 3 };
extern const Shape shapes[SHAPES];   /* a-hf, b-hf, c.gguf */

extern char judged_root[TEST_PATH];  /* of models and goldens, made once for a case of tests */
extern char judged_folder[TEST_PATH];   /* of one test's dumps */

void judged_make_all(void);
void judged_make_two(void);          /* the first two */
void judged_remove(void);
void judged_setup(void);
void judged_teardown(void);

/* Runs a command, its words separated by spaces, with both outputs in ROOT/said; must: its code is 0. */
int command(int (*cmd)(int, char **), const char *text);
void must(int (*cmd)(int, char **), const char *text);
/* ROOT/NAME-golden of the engines' steps. */
void make_golden(const char *model, const char *name, double coreset_top_p);

typedef struct Judged { CloverModel *model; Bundle bundle; DiffOptions options; DiffResult result; CloverStatus status; CloverError err; } Judged;
Judged *judged_at(const char *model, const char *golden);   /* golden: in ROOT */
Judged *judged_new(const char *name);                       /* ROOT/NAME and ROOT/NAME-golden */
void judged_free(Judged *j);
DiffResult *judge(Judged *j);        /* of what lies in judged_folder */

const char *first_probe(const DiffResult *r);
const char *first_step(const DiffResult *r);
bool says(char *const *lines, int64_t n, const char *text);
bool notes(const DiffResult *r, const char *text);
void assert_conforms(const Judged *j, const char *what);
void assert_first(const Judged *j, const char *what, const char *step, const char *probe);

Engine engine_of(const Shape *s, const Fault *f, DType type);
const Fault *fault_named(const char *name);
bool layers_only(void *user, const char *step, const char *probe);   /* an engine's `wants` */

#endif
