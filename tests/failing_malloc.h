/* failing_malloc.h - memory that runs out when a test says so. Include it in one file of a program only.
 *
 * malloc, calloc, realloc and free of the whole program (of the C library and of other libraries too) go through here. After
 * malloc_fail_after(n) the next n allocations succeed and then one fails, or all. Sanitizers and valgrind have an allocator
 * of their own: there malloc_can_fail() is false, and the test says "skip". */
#ifndef CLOVER_TEST_FAILING_MALLOC_H
#define CLOVER_TEST_FAILING_MALLOC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define MALLOC_CAN_FAIL 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MALLOC_CAN_FAIL 0
#endif
#endif
#ifndef MALLOC_CAN_FAIL
#define MALLOC_CAN_FAIL 1
#endif

/* volatile: a compiler may believe that malloc neither reads nor writes what the program can see. */
static volatile long malloc_left = -1;        /* allocations until one fails; -1: none does */
static volatile bool malloc_then_all, malloc_failed;
static volatile long malloc_live;             /* allocations not freed: the same before and after means no leak */

static inline void malloc_fail_after(long n, bool then_all) {
    malloc_left = n;
    malloc_then_all = then_all;
    malloc_failed = false;
}

/* Back to plenty; did an allocation fail? */
static inline bool malloc_recover(void) {
    malloc_left = -1;
    return malloc_failed;
}

#if MALLOC_CAN_FAIL
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);
void *malloc(size_t size);
void *calloc(size_t n, size_t size);
void *realloc(void *p, size_t size);
void free(void *p);

static bool malloc_fails_now(void) {
    if (malloc_left < 0) return false;
    if (malloc_left > 0) {
        malloc_left--;
        return false;
    }
    if (!malloc_then_all) malloc_left = -1;
    malloc_failed = true;
    errno = ENOMEM;
    return true;
}

static void *malloc_count(void *fresh) {
    malloc_live += fresh != NULL;
    return fresh;
}

void *malloc(size_t size) { return malloc_fails_now() ? NULL : malloc_count(__libc_malloc(size)); }
void *calloc(size_t n, size_t size) { return malloc_fails_now() ? NULL : malloc_count(__libc_calloc(n, size)); }

void *realloc(void *p, size_t size) {
    if (malloc_fails_now()) return NULL;
    return p ? __libc_realloc(p, size) : malloc_count(__libc_malloc(size));
}

void free(void *p) {
    malloc_live -= p != NULL;
    __libc_free(p);
}
#endif

static inline bool malloc_can_fail(void) {
    void *(*volatile allocate)(size_t) = malloc;                     /* volatile: the call must not be inlined */
    malloc_fail_after(0, false);
    free(allocate(1));
    return malloc_recover();
}

#endif
