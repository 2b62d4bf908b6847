/* files.h - bytes put together by hand, folders to put them in, and checks of what a reader says about them. */
#ifndef CLOVER_TEST_FILES_H
#define CLOVER_TEST_FILES_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "harness.h"

/* ---- bytes, little-endian ---------------------------------------------------------------------------------------- */

typedef struct Bytes { uint8_t *data; size_t n, room; } Bytes;       /* starts as { 0 } */

static inline void put_bytes(Bytes *b, const void *data, size_t n) {
    if (b->n + n > b->room) {
        b->room = 2 * (b->n + n);
        b->data = realloc(b->data, b->room);
        ck_assert_ptr_nonnull(b->data);
    }
    if (n) memcpy(b->data + b->n, data, n);
    b->n += n;
}

static inline void put_number(Bytes *b, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)(value >> (8 * i));
        put_bytes(b, &byte, 1);
    }
}

static inline void put_u32(Bytes *b, uint32_t value) { put_number(b, value, 4); }
static inline void put_u64(Bytes *b, uint64_t value) { put_number(b, value, 8); }

static inline void put_zeros(Bytes *b, size_t n) {
    for (size_t i = 0; i < n; i++) put_number(b, 0, 1);
}

static inline void put_text(Bytes *b, const char *text) { put_bytes(b, text, strlen(text)); }

static inline void free_bytes(Bytes *b) {
    free(b->data);
    *b = (Bytes){ 0 };
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

enum { TEST_PATH = 256 };

/* A new folder build/tmp/NAME-XXXXXX. */
static inline void make_folder(const char *name, char folder[TEST_PATH]) {
    mkdir("build", 0777);
    mkdir("build/tmp", 0777);
    snprintf(folder, TEST_PATH, "build/tmp/%s-XXXXXX", name);
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

/* FOLDER/NAME, in one of eight buffers that take turns. */
static inline const char *in_folder(const char *folder, const char *name) {
    static char paths[8][4 * TEST_PATH];
    static int turn;
    char joined[4 * TEST_PATH];                                      /* of its own: folder may be one of the eight */
    ck_assert_int_lt(snprintf(joined, sizeof joined, "%s/%s", folder, name), (int)sizeof joined);
    return strcpy(paths[turn++ % 8], joined);
}

/* Removes a folder and what is in it, folders inside included. */
static inline void remove_folder(const char *folder) {
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir)); ) {
        char path[4 * TEST_PATH];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path) continue;
        if (unlink(path) != 0) remove_folder(path);
    }
    if (dir) closedir(dir);
    rmdir(folder);
}

static inline void write_file(const char *path, const void *data, size_t n) {
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f != NULL, "cannot write %s", path);
    ck_assert_uint_eq(n ? fwrite(data, 1, n, f) : 0, n);
    ck_assert_int_eq(fclose(f), 0);
}

static inline Bytes read_file(const char *path) {
    Bytes b = { 0 };
    uint8_t piece[65536];
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "cannot read %s", path);
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0; ) put_bytes(&b, piece, n);
    fclose(f);
    return b;
}

/* ---- what an error must say -------------------------------------------------------------------------------------- */

#define assert_says(err, text_) \
    ck_assert_msg(strstr((err).text, (text_)) != NULL, "expected \"%s\" in: %s", (text_), (err).text)

/* Lines of an error's text: one a problem. */
static inline int problems(const CloverError *err) {
    int n = 1;
    for (const char *p = err->text; *p; p++) n += *p == '\n';
    return n;
}

#endif
