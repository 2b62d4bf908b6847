/* failing_malloc.h - memory that runs out when a test says so. Include it in one file of a program only.
 *
 * malloc, calloc and realloc of the whole program (of the C library and of other libraries too) go through here. After
 * malloc_fail_after(n) the next n allocations succeed and then one fails, or all. Sanitizers have an allocator of their
 * own: there malloc_can_fail is false, and the test says "skip". */
#ifndef CLOVER_TEST_FAILING_MALLOC_H
#define CLOVER_TEST_FAILING_MALLOC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

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

static const bool malloc_can_fail = MALLOC_CAN_FAIL;
static long malloc_left = -1;        /* allocations until one fails; -1: none does */
static bool malloc_then_all, malloc_failed;

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
void *malloc(size_t size);
void *calloc(size_t n, size_t size);
void *realloc(void *p, size_t size);

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

void *malloc(size_t size) { return malloc_fails_now() ? NULL : __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return malloc_fails_now() ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t size) { return malloc_fails_now() ? NULL : __libc_realloc(p, size); }
#endif

#endif
