/* encode.c - encodes texts for tokenizer_peer.py: encode TOKENIZER.json|VOCABULARY.gguf special|plain < TEXTS > IDS
 *
 * TEXTS: each a little-endian uint32 length and so many bytes. IDS: a line each, ids with spaces between. Standard error
 * gets the seconds that loading and encoding took. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../../ref/files/tokenizer.h"

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *next_text(size_t *length) {
    unsigned char n[4];
    if (fread(n, 1, 4, stdin) != 4) return NULL;
    *length = (size_t)n[0] | (size_t)n[1] << 8 | (size_t)n[2] << 16 | (size_t)n[3] << 24;
    char *text = malloc(*length + 1);
    if (!text || fread(text, 1, *length, stdin) != *length) {
        fprintf(stderr, "encode: a text is cut short\n");
        exit(3);
    }
    return text;
}

static CloverStatus load(const char *path, CloverTokenizer **t, CloverError *err) {
    size_t length = strlen(path);
    if (length < 5 || strcmp(path + length - 5, ".gguf") != 0) return tokenizer_from_json(path, t, err);
    Gguf *g;
    if (gguf_open(path, &g, err) != CLOVER_OK) return err->status;
    CloverStatus status = tokenizer_from_gguf(g, t, err);
    gguf_close(g);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    CloverError err;
    CloverTokenizer *t;
    double start = seconds();
    if (load(argv[1], &t, &err) != CLOVER_OK) {
        fprintf(stderr, "encode: %s\n", err.text);
        return err.status;
    }
    double loaded = seconds(), encoding = 0;
    size_t length, bytes = 0;
    for (char *text; (text = next_text(&length)) != NULL; free(text)) {
        int32_t *id;
        int64_t n;
        double before = seconds();
        if (clover_encode(t, text, length, strcmp(argv[2], "special") == 0, &id, &n, &err) != CLOVER_OK) {
            fprintf(stderr, "encode: %s\n", err.text);
            return err.status;
        }
        encoding += seconds() - before;
        bytes += length;
        for (int64_t i = 0; i < n; i++) printf(i ? " %d" : "%d", (int)id[i]);
        putchar('\n');
        free(id);
    }
    fprintf(stderr, "encode: loaded in %.2f s, %zu bytes in %.2f s\n", loaded - start, bytes, encoding);
    tokenizer_free(t);
    return 0;
}
