/* dump_npy.c - reads .npy files (format versions 1 to 3): floats, integers, C or Fortran order. [DMP-2] */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../ref/error.h"
#include "dump_parts.h"

static const struct { const char *descr; DType type; int64_t bytes; } types[] = {
    { "<f2", DT_F16, 2 }, { "<f4", DT_F32, 4 }, { "<f8", DT_F64, 8 }, { "<i4", DT_I32, 4 }, { "<i8", DT_I64, 8 },
    { "<V2", DT_BF16, 2 }, { "|V2", DT_BF16, 2 },   /* how numpy's bfloat16 (ml_dtypes) is written */
};

/* The text behind 'key': in the header's dictionary, spaces skipped. */
static const char *value_of(const char *header, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *at = strstr(header, quoted);
    if (!at || !(at = strchr(at, ':'))) return NULL;
    return at + 1 + strspn(at + 1, " ");
}

static CloverStatus read_header(const char *path, const char *header, Npy *out, CloverError *err) {
    Tensor *a = &out->array;
    const char *descr = value_of(header, "descr"), *order = value_of(header, "fortran_order"), *shape = value_of(header, "shape");
    if (!descr || !order || !shape || *shape != '(' || (strncmp(order, "True", 4) != 0 && strncmp(order, "False", 5) != 0))
        return error_set(err, CLOVER_BAD_INPUT, "%s: the .npy header lacks descr, fortran_order or shape", path);
    int64_t width = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (*descr == '\'' && strncmp(descr + 1, types[i].descr, 3) == 0 && descr[4] == '\'') {
            a->type = types[i].type;
            width = types[i].bytes;
        }
    if (!width) return error_set(err, CLOVER_BAD_INPUT, "%s: element type %.*s; expected '<f2', '<f4', '<f8', '<V2' (bfloat16), '<i4' or '<i8'", path, (int)strcspn(descr, ","), descr);
    a->elements = 1;
    for (const char *p = shape + 1; *p != ')';) {
        char *end;
        p += strspn(p, " ,");
        if (*p == ')') break;
        const long long size = strtoll(p, &end, 10);
        int64_t product;
        if (end == p || size < 0 || a->dims == TENSOR_MAX_DIMS || __builtin_mul_overflow(a->elements, (int64_t)size, &product))
            return error_set(err, CLOVER_BAD_INPUT, "%s: the .npy header's shape cannot be read", path);
        a->shape[a->dims++] = size;
        a->elements = product;
        p = end;
    }
    if (__builtin_mul_overflow((uint64_t)a->elements, (uint64_t)width, &a->bytes) || a->bytes > out->bytes - a->offset)
        return error_set(err, CLOVER_BAD_INPUT, "%s: truncated: its shape needs %lld elements of %lld bytes, the file has %zu bytes behind the header", path,
                         (long long)a->elements, (long long)width, out->bytes - a->offset);
    out->reversed = order[0] == 'T';
    if (out->reversed)
        for (int i = 0; i < a->dims / 2; i++) {
            const int64_t other = a->shape[i];
            a->shape[i] = a->shape[a->dims - 1 - i];
            a->shape[a->dims - 1 - i] = other;
        }
    a->data = (const uint8_t *)out->map + a->offset;
    return CLOVER_OK;
}

CloverStatus npy_open(const char *path, Npy *out, CloverError *err) {
    *out = (Npy){ .map = MAP_FAILED };
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        const int why = errno;
        if (fd >= 0) close(fd);
        return error_set(err, why == ENOENT ? CLOVER_BAD_INPUT : CLOVER_SYSTEM, "%s: %s", path, strerror(why));
    }
    out->bytes = (size_t)st.st_size;
    if (out->bytes >= 12) out->map = mmap(NULL, out->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    const uint8_t *b = out->map;
    if (out->map == MAP_FAILED || memcmp(b, "\x93NUMPY", 6) != 0 || b[6] < 1 || b[6] > 3) {
        npy_close(out);
        return error_set(err, CLOVER_BAD_INPUT, "%s: not a .npy file (its first bytes are not \\x93NUMPY and a version 1 to 3)", path);
    }
    const size_t at = b[6] == 1 ? 10 : 12;
    const size_t length = b[6] == 1 ? (size_t)(b[8] | b[9] << 8) : (size_t)b[8] | (size_t)b[9] << 8 | (size_t)b[10] << 16 | (size_t)b[11] << 24;
    CloverStatus status;
    char *header = NULL;
    if (length > out->bytes - at || length > 1 << 16) status = error_set(err, CLOVER_BAD_INPUT, "%s: the .npy header leaves the file", path);
    else if (!(header = malloc(length + 1))) status = error_memory(err, "a .npy header", length + 1);
    else {
        memcpy(header, b + at, length);
        header[length] = '\0';
        out->array.offset = at + length;
        out->array.name = out->array.file = "";
        status = read_header(path, header, out, err);
    }
    free(header);
    if (status != CLOVER_OK) npy_close(out);
    return status;
}

void npy_close(Npy *n) {
    if (n->map && n->map != MAP_FAILED) munmap(n->map, n->bytes);
    n->map = NULL;
}
