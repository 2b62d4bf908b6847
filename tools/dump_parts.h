/* dump_parts.h - what the files of the dump reader share. [DMP] */
#ifndef CLOVER_DUMP_PARTS_H
#define CLOVER_DUMP_PARTS_H

#include "dump.h"
#include "../ref/files/tensor.h"

/* ---- dump_npy.c ---- */

/* One .npy file, mapped; shape in C order (a Fortran-order file is an array of the reversed shape, said by `reversed`). */
typedef struct Npy { Tensor array; bool reversed; void *map; size_t bytes; } Npy;
CloverStatus npy_open(const char *path, Npy *out, CloverError *err);
void npy_close(Npy *n);

/* ---- dump_map.c ---- */

enum { MAP_MAX_FORMS = 6 };

/* How one probe stands in the dump. */
typedef enum FormKind {
    FORM_TRANSPOSE,          /* dims in the reverse order: [D, T] */
    FORM_SWAP_LAST,          /* the last two dims swapped: a state [Hv, dv, dk] */
    FORM_TILED,              /* value heads in GGUF's order; of q | k | v channels only v's */
    FORM_EXPANDED,           /* key heads repeated for their value heads, copies side by side */
    FORM_EXPANDED_TILED,     /* the same in GGUF's order: all key heads, then all again */
    FORM_PART,               /* each head holds `of` parts of width; this is part `take` (q and gate in q_proj's rows) */
    FORM_COLUMNS,            /* columns take..of of a wider row: q, k or v of their channels */
    FORM_SIGMOID, FORM_EXP, FORM_LOG, FORM_NEGATE, FORM_SCALE,
    FORM_SOFTMAX             /* over each row: router logits */
} FormKind;

typedef struct Form { FormKind kind; int64_t take, of; double scale; } Form;
typedef struct MapEntry { const char *stage, *name, *or_name; Form form[MAP_MAX_FORMS + 1]; int n_forms; } MapEntry;   /* + 1: a file's Fortran order comes before them */
typedef struct DumpMap { json_t *root; MapEntry *entry; int64_t n; } DumpMap;

/* map: "transformers", "llama.cpp" or a path. */
CloverStatus names_map_open(const char *map, DumpMap *out, CloverError *err);
void names_map_close(DumpMap *m);
const MapEntry *names_map_find(const DumpMap *m, const char *probe, int64_t *layer);   /* by stage name; NULL: the map has none */
/* An entry's name in a layer ({layer} filled in). */
void names_map_name(const char *name, int64_t layer, char *out, size_t room);

/* Brings values [n], which have the dump's shape, into ours: out [product of shape]. False: they do not fit; why says so. */
bool names_map_apply(const MapEntry *e, const CloverConfig *c, const double *values, const int64_t *have, int have_dims, const int64_t *shape, int dims,
               double *out, CloverError *why);

#endif
