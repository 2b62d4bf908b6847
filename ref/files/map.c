/* map.c - mapping a file, with every way it can fail said plainly. [GGUF] [SFT] */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../error.h"
#include "map.h"

static CloverStatus cannot(const char *doing, const char *path, int number, CloverError *err) {
    if (number == ENOENT || number == ENOTDIR || number == ENAMETOOLONG)
        return error_add(err, CLOVER_BAD_INPUT, "%s: no such file; check the path", path);
    if (number == ENOMEM)
        return error_add(err, CLOVER_SYSTEM, "%s: out of memory: cannot %s the file; free some, or raise `ulimit -v`", path,
                         doing);
    return error_add(err, CLOVER_SYSTEM, "%s: cannot %s the file: %s", path, doing, strerror(number));
}

/* Fills *out from an open file, which stays open. */
static CloverStatus map_descriptor(int file, const char *path, Map *out, CloverError *err) {
    struct stat st;
    if (fstat(file, &st) != 0) return cannot("examine", path, errno, err);
    if (S_ISDIR(st.st_mode)) return error_add(err, CLOVER_BAD_INPUT, "%s: is a folder, expected a file", path);
    if (!S_ISREG(st.st_mode))
        return error_add(err, CLOVER_BAD_INPUT,
                         "%s: is a pipe, a socket or a device, which cannot be mapped; copy it into a file first", path);
    if (st.st_size == 0)
        return error_add(err, CLOVER_BAD_INPUT, "%s: is empty (0 bytes); download or copy it again", path);

    /* Private and read-only: nothing here can change the file. Should another program cut it short while it is mapped,
     * touching the lost pages raises SIGBUS; no check at this place can prevent that. */
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED) return cannot("map", path, errno, err);
    *out = (Map){ .path = strdup(path), .data = data, .bytes = (uint64_t)st.st_size, .mapped = true };
    if (out->path) return CLOVER_OK;
    map_close(out);
    return error_memory(err, "a path", strlen(path) + 1);
}

CloverStatus map_open(const char *path, Map *out, CloverError *err) {
    *out = (Map){ 0 };
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);   /* nonblocking: opening a pipe would wait for its writer */
    if (file < 0) return cannot("open", path, errno, err);
    CloverStatus status = map_descriptor(file, path, out, err);
    close(file);                                                /* the mapping outlives it */
    return status;
}

CloverStatus map_bytes(const uint8_t *data, uint64_t bytes, const char *label, Map *out, CloverError *err) {
    *out = (Map){ .path = strdup(label), .data = data, .bytes = bytes };
    return out->path ? CLOVER_OK : error_memory(err, "a path", strlen(label) + 1);
}

void map_close(Map *map) {
    if (map->mapped) munmap((void *)(uintptr_t)map->data, (size_t)map->bytes);
    free(map->path);
    *map = (Map){ 0 };
}

static bool starts_with(const Map *map, const char *text) {
    return map->bytes >= strlen(text) && memcmp(map->data, text, strlen(text)) == 0;
}

const char *map_advice(const Map *map) {
    if (starts_with(map, "version https://git-lfs")) return "; it is a Git LFS pointer, not the data: run `git lfs pull`";
    if (starts_with(map, "<!") || starts_with(map, "<html")) return "; it is a web page: the download went wrong";
    if (starts_with(map, "GGUF")) return "; it is a GGUF file: give it a name that ends in .gguf";
    if (starts_with(map, "PK\003\004")) return "; it is a ZIP archive (PyTorch writes such files): convert it to safetensors";
    if (starts_with(map, "ggml") || starts_with(map, "lmgg") || starts_with(map, "tjgg"))
        return "; it is from before GGUF: convert the model again with a current converter";
    if (map->bytes > 8 && map->data[8] == '{') return "; it may be a safetensors file: give it, or its folder, as such";
    return "";
}
