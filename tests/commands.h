/* commands.h - a command run as from the command line, with what it prints kept. */
#ifndef CLOVER_TEST_COMMANDS_H
#define CLOVER_TEST_COMMANDS_H

#include <fcntl.h>
#include <jansson.h>
#include "failing_malloc.h"
#include "files.h"
#include "../tools/tools.h"

typedef struct Said { int code; char *text; } Said;      /* text: standard output and error, malloc'ed */

/* Words separated by single spaces; the first is the command's name. */
static inline Said run_words(int (*cmd)(int, char **), const char *words) {
    char copy[2048], *argv[64];
    int argc = 0;
    ck_assert_int_lt(snprintf(copy, sizeof copy, "%s", words), (int)sizeof copy);
    for (char *p = strtok(copy, " "); p && argc < 63; p = strtok(NULL, " ")) argv[argc++] = p;
    argv[argc] = NULL;
    fflush(stdout), fflush(stderr);
    FILE *f = tmpfile();
    ck_assert_ptr_nonnull(f);
    const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    dup2(fileno(f), STDOUT_FILENO), dup2(fileno(f), STDERR_FILENO);
    Said said = { .code = cmd(argc, argv) };
    fflush(stdout), fflush(stderr);
    dup2(out, STDOUT_FILENO), dup2(err, STDERR_FILENO);
    close(out), close(err);
    const long n = ftell(f);
    said.text = calloc(1, (size_t)(n < 0 ? 0 : n) + 1);
    ck_assert_ptr_nonnull(said.text);
    rewind(f);
    if (n > 0) ck_assert_uint_eq(fread(said.text, 1, (size_t)n, f), (size_t)n);
    fclose(f);
    return said;
}

/* Its code must be this, and the text must be in what it says (NULL: any). */
static inline void assert_run(int (*cmd)(int, char **), const char *words, int code, const char *text) {
    Said said = run_words(cmd, words);
    ck_assert_msg(said.code == code, "%s: code %d, expected %d: %.1500s", words, said.code, code, said.text);
    ck_assert_msg(!text || strstr(said.text, text) != NULL, "%s: expected \"%s\" in: %.1500s", words, text ? text : "", said.text);
    free(said.text);
}

/* What it prints as JSON; json_decref it. */
static inline json_t *run_json(int (*cmd)(int, char **), const char *words, int code) {
    Said said = run_words(cmd, words);
    ck_assert_msg(said.code == code, "%s: code %d, expected %d: %.1500s", words, said.code, code, said.text);
    json_t *value = json_loads(said.text, 0, NULL);
    ck_assert_msg(value != NULL, "%s: no JSON: %.1500s", words, said.text);
    free(said.text);
    return value;
}

static inline bool same_files(const char *a, const char *b) {
    Bytes x = read_file(a), y = read_file(b);
    const bool same = x.n == y.n && memcmp(x.data, y.data, x.n) == 0;
    free_bytes(&x);
    free_bytes(&y);
    return same;
}

static inline bool is_there(const char *path) { return access(path, F_OK) == 0; }

/* The command, with memory that runs out after ever more allocations until it does no more: each time code 71, nothing leaked (what
 * aligned_alloc gives is not counted, so fewer may be left than before), and the file out (NULL: none) not there. fine: the code it
 * ends with. */
static inline void assert_survives_without_memory(int (*cmd)(int, char **), const char *words, const char *out, int fine) {
    char copy[2048], *argv[64], first[256] = "";
    if (!malloc_can_fail()) { printf("skip %s: this allocator cannot be made to fail\n", words); return; }
    fflush(stdout), fflush(stderr);
    const int null = open("/dev/null", O_WRONLY), kept_out = dup(STDOUT_FILENO), kept_err = dup(STDERR_FILENO);
    dup2(null, STDOUT_FILENO), dup2(null, STDERR_FILENO);
    bool done = false;
    int bad = 0;
    for (long n = 0; !done && n < 1000000; n += n < 40 ? 1 : n / 4) {
        int argc = 0;
        snprintf(copy, sizeof copy, "%s", words);
        for (char *p = strtok(copy, " "); p; p = strtok(NULL, " ")) argv[argc++] = p;
        argv[argc] = NULL;
        const long live = malloc_live;
        malloc_fail_after(n, true);
        const int code = cmd(argc, argv);
        done = !malloc_recover();
        const bool right = code == (done ? fine : 71) && malloc_live <= live && (!out || is_there(out) == done);
        if (!right && bad++ == 0) snprintf(first, sizeof first, "after %ld: code %d, %ld not freed", n, code, malloc_live - live);
        if (out) unlink(out);
    }
    fflush(stdout), fflush(stderr);
    dup2(kept_out, STDOUT_FILENO), dup2(kept_err, STDERR_FILENO);
    close(null), close(kept_out), close(kept_err);
    ck_assert_msg(done && bad == 0, "%s: %d of the failures were not taken well: %s", words, bad, first);
}

#endif
