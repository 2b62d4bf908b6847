/* tap.c - showing a stage's buffer to a watcher, under its probe name. [PRB-2, PRB-3] */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "layers.h"

enum { MAX_DIMS = 4 };

static void show(const Tap *t, const char *stage, double *data, const int64_t *shape, int dims) {
    char name[64];
    if (t->layer < 0) snprintf(name, sizeof name, "%s", stage);
    else snprintf(name, sizeof name, "L%02lld.%s", (long long)t->layer, stage);
    t->watcher(t->user, name, data, shape, dims);
}

void tap(const Tap *t, const char *stage, double *data, int dims, ...) {
    if (!t->watcher) return;
    int64_t shape[MAX_DIMS];
    va_list sizes;
    va_start(sizes, dims);
    for (int i = 0; i < dims; i++) shape[i] = va_arg(sizes, int64_t);
    va_end(sizes);
    show(t, stage, data, shape, dims);
}
