/* output.h - files that appear whole or not at all. [ERR-4]
 *
 * An output is written to PATH.partial-PID beside PATH, synced, then renamed; on an error it is removed. Every write
 * and close is checked: a full disk is CLOVER_SYSTEM with the file's name. What is no regular file (/dev/stdout, a
 * pipe) is written directly. */
#ifndef CLOVER_OUTPUT_H
#define CLOVER_OUTPUT_H

#include "../ref/error.h"

typedef struct Output {
    char *path, *partial;    /* partial NULL: written directly */
    int fd;                  /* -1: closed */
    bool complete;           /* written, synced and closed: only the rename is left */
    uint64_t written;
    uint8_t *buffer;
    size_t buffered;
} Output;

/* force: an existing file may be replaced; else it is CLOVER_USAGE. On an error nothing is left open. */
CloverStatus output_may_replace(const char *path, bool force, CloverError *err);     /* the same check, nothing opened */
CloverStatus output_open(Output *o, const char *path, bool force, CloverError *err);
CloverStatus output_write(Output *o, const void *bytes, size_t n, CloverError *err);
CloverStatus output_zeros(Output *o, uint64_t n, CloverError *err);
CloverStatus output_close(Output *o, CloverError *err);      /* flush, sync, close; the file is still the partial one */
CloverStatus output_commit(Output *o, CloverError *err);     /* output_close unless done, then rename; frees o */
void output_discard(Output *o);                              /* removes what was written; fine when zeroed or committed */

/* Are the two one file: by device and inode, and where neither is there yet, by folder and name? */
bool output_same_file(const char *a, const char *b);
/* CLOVER_USAGE when path is one of the input's files: itself, any part of a split one, any file of a folder. An output that
 * replaced one of them would be the end of what it is made of. */
CloverStatus output_spares(const char *path, const char *input, CloverError *err);

/* A whole file at once. */
CloverStatus output_file(const char *path, const void *bytes, size_t n, bool force, CloverError *err);

/* Makes the folder (not its parents); *made: whether it is new. An existing one must be empty unless force. */
CloverStatus output_folder(const char *path, bool force, bool *made, CloverError *err);

/* Is there room for bytes more where path lies? */
CloverStatus output_room(const char *path, uint64_t bytes, CloverError *err);

/* A text like printf's, malloc'ed; NULL and *err when there is no memory. */
char *text_format(CloverError *err, const char *format, ...) CLOVER_PRINTF(2, 3);

/* Bytes that grow. A failed allocation is remembered, so that a row of appends needs one check at its end. */
typedef struct Buffer { uint8_t *data; size_t n, room; bool no_memory; } Buffer;
void buffer_add(Buffer *b, const void *data, size_t n);
void buffer_text(Buffer *b, const char *text);        /* without its NUL */
void buffer_json(Buffer *b, const char *text);        /* as a JSON string, quotes included */
void buffer_free(Buffer *b);

/* A line on standard error, redrawn in place with rate and time left; nothing unless that is a terminal. */
typedef struct Progress { const char *what; double total, done, start, shown; bool on; } Progress;
Progress progress_start(const char *what, double total);     /* total in bytes */
void progress_add(Progress *p, double n);
void progress_end(Progress *p);                              /* clears the line */

#endif
