/* output.c - files that appear whole or not at all; progress. */
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <jansson.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include "../ref/files/names.h"
#include "output.h"

enum { BUFFER = 1 << 20 };

char *text_format(CloverError *err, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    char *text = n < 0 ? NULL : malloc((size_t)n + 1);
    if (text) vsnprintf(text, (size_t)n + 1, format, again);
    else error_memory(err, "a name", (size_t)(n < 0 ? 0 : n) + 1);
    va_end(args);
    va_end(again);
    return text;
}

/* ---- bytes that grow ----------------------------------------------------------------------------------------------- */

void buffer_add(Buffer *b, const void *data, size_t n) {
    if (b->no_memory || n == 0) return;
    if (n > b->room - b->n) {
        size_t room = b->room ? b->room : 256;
        while (n > room - b->n && room <= SIZE_MAX / 2) room *= 2;
        uint8_t *larger = n > room - b->n ? NULL : realloc(b->data, room);
        if (!larger) {
            b->no_memory = true;
            return;
        }
        b->data = larger;
        b->room = room;
    }
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

void buffer_text(Buffer *b, const char *text) { buffer_add(b, text, strlen(text)); }

void buffer_json(Buffer *b, const char *text) {
    json_t *value = json_string(text);
    char *dump = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    if (dump) buffer_text(b, dump);
    else b->no_memory = true;
    free(dump);
    json_decref(value);
}

void buffer_free(Buffer *b) {
    free(b->data);
    *b = (Buffer){ 0 };
}

/* ---- one file ------------------------------------------------------------------------------------------------------ */

static CloverStatus failed(const Output *o, const char *doing, int error, CloverError *err) {
    if (error == ENOSPC || error == EDQUOT || error == EFBIG)
        return error_set(err, CLOVER_SYSTEM, "%s: disk full: %s after %llu bytes", o->path, strerror(error),
            (unsigned long long)o->written);
    return error_set(err, CLOVER_SYSTEM, "%s: cannot %s: %s", o->path, doing, strerror(error));
}

CloverStatus output_may_replace(const char *path, bool force, CloverError *err) {
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode)) return error_set(err, CLOVER_USAGE, "%s: is a folder, a file was meant", path);
    if (exists && S_ISREG(info.st_mode) && !force) return error_set(err, CLOVER_USAGE, "%s: exists; --force replaces it", path);
    return CLOVER_OK;
}

/* The file's folder, and its name there; NULL: no memory. */
static char *folder_of(const char *path, const char **name) {
    char *copy = strdup(path), *slash = copy ? strrchr(copy, '/') : NULL;
    *name = slash ? path + (slash - copy) + 1 : path;
    if (slash) slash[slash == copy] = '\0';
    else if (copy) { free(copy); copy = strdup("."); }
    return copy;
}

static bool same_inode(const struct stat *a, const struct stat *b) { return a->st_dev == b->st_dev && a->st_ino == b->st_ino; }

bool output_same_file(const char *a, const char *b) {
    struct stat x, y;
    const bool first = stat(a, &x) == 0, second = stat(b, &y) == 0;
    if (first || second) return first && second && same_inode(&x, &y);
    const char *a_name, *b_name;
    char *a_folder = folder_of(a, &a_name), *b_folder = folder_of(b, &b_name);
    const bool same = a_folder && b_folder && strcmp(a_name, b_name) == 0 && stat(a_folder, &x) == 0 && stat(b_folder, &y) == 0 && same_inode(&x, &y);
    free(a_folder);
    free(b_folder);
    return same;
}

static CloverStatus refuse_input(const char *path, const char *input, CloverError *err) {
    struct stat a, b;
    if (stat(path, &a) == 0 && stat(input, &b) == 0 && S_ISREG(b.st_mode) && same_inode(&a, &b))
        return error_set(err, CLOVER_USAGE, "%s: is a file that is read here (%s); write to another", path, input);
    return CLOVER_OK;
}

static CloverStatus spare_folder(const char *path, const char *folder, CloverError *err) {
    DIR *d = opendir(folder);
    for (struct dirent *e; d && err->status == CLOVER_OK && (e = readdir(d)); ) {
        char *input = text_format(err, "%s/%s", folder, e->d_name);
        if (input) refuse_input(path, input, err);
        free(input);
    }
    if (d) closedir(d);
    return err->status;
}

CloverStatus output_spares(const char *path, const char *input, CloverError *err) {
    struct stat info;
    PartName name;
    error_clear(err);
    if (stat(path, &info) != 0) return CLOVER_OK;                    /* nothing lies there */
    if (stat(input, &info) == 0 && S_ISDIR(info.st_mode)) return spare_folder(path, input, err);
    if (refuse_input(path, input, err) != CLOVER_OK || !part_name_parse(input, ".gguf", &name)) return err->status;
    for (int i = 1; i <= name.parts && err->status == CLOVER_OK; i++) {
        char *part = part_name_make(input, &name, i, ".gguf");
        if (!part) return error_memory(err, "a part's name", strlen(input));
        refuse_input(path, part, err);
        free(part);
    }
    return err->status;
}

CloverStatus output_open(Output *o, const char *path, bool force, CloverError *err) {
    struct stat info;
    *o = (Output){ .fd = -1 };
    if (output_may_replace(path, force, err) != CLOVER_OK) return err->status;
    bool direct = stat(path, &info) == 0 && !S_ISREG(info.st_mode);  /* a device or a pipe is nothing to rename over */

    o->path = text_format(err, "%s", path);
    o->buffer = malloc(BUFFER);
    if (!direct) o->partial = text_format(err, "%s.partial-%ld", path, (long)getpid());
    if (!o->path || !o->buffer || (!direct && !o->partial)) {
        output_discard(o);
        return error_memory(err, path, BUFFER);
    }
    o->fd = direct ? open(path, O_WRONLY | O_CLOEXEC) : open(o->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (o->fd < 0) {
        failed(o, "create it", errno, err);
        free(o->partial);                                            /* nothing of ours to remove */
        o->partial = NULL;
        output_discard(o);
        return err->status;
    }
    return CLOVER_OK;
}

static CloverStatus write_all(Output *o, const uint8_t *bytes, size_t n, CloverError *err) {
    while (n > 0) {
        ssize_t w = write(o->fd, bytes, n);
        if (w < 0 && errno == EINTR) continue;
        if (w <= 0) return failed(o, "write", w < 0 ? errno : ENOSPC, err);
        bytes += w;
        n -= (size_t)w;
        o->written += (uint64_t)w;
    }
    return CLOVER_OK;
}

static CloverStatus flush(Output *o, CloverError *err) {
    size_t n = o->buffered;
    o->buffered = 0;
    return write_all(o, o->buffer, n, err);
}

CloverStatus output_write(Output *o, const void *bytes, size_t n, CloverError *err) {
    if (n > BUFFER - o->buffered && flush(o, err) != CLOVER_OK) return err->status;
    if (n >= BUFFER) return write_all(o, bytes, n, err);
    if (n) memcpy(o->buffer + o->buffered, bytes, n);
    o->buffered += n;
    return CLOVER_OK;
}

CloverStatus output_zeros(Output *o, uint64_t n, CloverError *err) {
    static const uint8_t zeros[4096];
    for (; n > 0; n -= n < sizeof zeros ? n : sizeof zeros)
        if (output_write(o, zeros, n < sizeof zeros ? (size_t)n : sizeof zeros, err) != CLOVER_OK) return err->status;
    return CLOVER_OK;
}

CloverStatus output_close(Output *o, CloverError *err) {
    if (o->complete) return CLOVER_OK;
    if (flush(o, err) != CLOVER_OK) return err->status;
    if (o->partial && fsync(o->fd) != 0) return failed(o, "sync", errno, err);
    int result = close(o->fd);
    o->fd = -1;
    if (result != 0) return failed(o, "close", errno, err);
    free(o->buffer);
    o->buffer = NULL;
    o->complete = true;
    return CLOVER_OK;
}

CloverStatus output_commit(Output *o, CloverError *err) {
    CloverStatus status = output_close(o, err);
    if (status == CLOVER_OK && o->partial && rename(o->partial, o->path) != 0) status = failed(o, "rename to it", errno, err);
    if (status == CLOVER_OK) {
        free(o->partial);                                            /* so that discard finds nothing to remove */
        o->partial = NULL;
    }
    output_discard(o);
    return status;
}

void output_discard(Output *o) {
    if (o->path && o->fd >= 0) close(o->fd);
    if (o->partial) unlink(o->partial);
    free(o->path);
    free(o->partial);
    free(o->buffer);
    *o = (Output){ .fd = -1 };
}

CloverStatus output_file(const char *path, const void *bytes, size_t n, bool force, CloverError *err) {
    Output o;
    if (output_open(&o, path, force, err) != CLOVER_OK) return err->status;
    if (output_write(&o, bytes, n, err) != CLOVER_OK) {
        output_discard(&o);
        return err->status;
    }
    return output_commit(&o, err);
}

/* ---- folders and room ---------------------------------------------------------------------------------------------- */

static bool folder_is_empty(const char *path) {
    DIR *d = opendir(path);
    if (!d) return false;
    int n = 0;
    for (struct dirent *e; (e = readdir(d)); ) n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n == 0;
}

CloverStatus output_folder(const char *path, bool force, bool *made, CloverError *err) {
    *made = mkdir(path, 0777) == 0;
    if (*made) return CLOVER_OK;
    int error = errno;
    struct stat info;
    if (error != EEXIST) return error_set(err, CLOVER_SYSTEM, "%s: cannot make the folder: %s", path, strerror(error));
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return error_set(err, CLOVER_USAGE, "%s: is a file, a folder was meant", path);
    if (!force && !folder_is_empty(path))
        return error_set(err, CLOVER_USAGE, "%s: the folder is not empty; --force replaces what is in it", path);
    return CLOVER_OK;
}

CloverStatus output_room(const char *path, uint64_t bytes, CloverError *err) {
    struct stat info;
    struct statvfs fs;
    bool exists = stat(path, &info) == 0;
    if (exists && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) return CLOVER_OK;
    char *copy = text_format(err, "%s", path);
    if (!copy) return err->status;
    int result = statvfs(exists && S_ISDIR(info.st_mode) ? path : dirname(copy), &fs);
    free(copy);
    if (result != 0) return CLOVER_OK;                               /* the open that follows says what is wrong */
    double free_bytes = (double)fs.f_bavail * (double)fs.f_frsize;
    if ((double)bytes <= free_bytes) return CLOVER_OK;
    return error_set(err, CLOVER_SYSTEM, "%s: disk full: %llu bytes are needed (%.2f GB), %.0f are free", path,
        (unsigned long long)bytes, (double)bytes / 1e9, free_bytes);
}

/* ---- progress ------------------------------------------------------------------------------------------------------ */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

Progress progress_start(const char *what, double total) {
    return (Progress){ .what = what, .total = total, .start = now(), .on = isatty(STDERR_FILENO) == 1 };
}

void progress_add(Progress *p, double n) {
    p->done += n;
    if (!p->on) return;
    double t = now(), seconds = t - p->start;
    if (t - p->shown < 0.2 || seconds <= 0) return;
    p->shown = t;
    double rate = p->done / seconds, left = rate > 0 ? (p->total - p->done) / rate : 0;
    fprintf(stderr, "\r%s: %.0f%% of %.2f GB, %.0f MB/s, %.0f s left \033[K", p->what, 100 * p->done / p->total, p->total / 1e9,
        rate / 1e6, left);
}

void progress_end(Progress *p) {
    if (p->on && p->shown > 0) fprintf(stderr, "\r\033[K");
}
