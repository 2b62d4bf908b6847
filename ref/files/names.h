/* names.h - names in model files: how they are printed, which entry has one, which file comes next. [GGUF] [SFT] */
#ifndef CLOVER_NAMES_H
#define CLOVER_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A name for a message: at most 80 bytes of it, quoted, what is no printable UTF-8 written as \xNN. Returns out. */
enum { NAME_SHOWN = 80 + 16 };
const char *name_show(const char *bytes, uint64_t length, char out[NAME_SHOWN]);

/* From a name to its place in a list, in constant time. Start as { 0 }. The names stay the caller's. */
typedef struct Names {
    const char **name;       /* [room] NULL: free */
    int64_t *place;          /* [room] */
    uint64_t room, used;     /* room: 0 or a power of two */
} Names;

int64_t names_find(const Names *names, const char *name);              /* -1 when absent */
bool names_add(Names *names, const char *name, int64_t place);         /* absent so far; false: out of memory */
void names_free(Names *names);

/* A file that is one of several: STEM-00002-of-00003.gguf. */
typedef struct PartName {
    size_t stem;             /* bytes of the path before "-00002-of-" */
    int part, parts;         /* counted from 1, as written: part may exceed parts */
} PartName;

bool part_name_parse(const char *path, const char *extension, PartName *out);
char *part_name_make(const char *path, const PartName *of, int part, const char *extension);   /* NULL: out of memory; free it */

#endif
