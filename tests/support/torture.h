/* torture.h - fails allocations in turn (the torture tests of curl): for k = 0, 1, 2, ... the k-th allocation and all behind it return
 * NULL, until a run succeeds.
 *
 * Included by the one .c file of a test that has the line `ctest: wrap=malloc,calloc,realloc,strdup,aligned_alloc,free` in its head
 * comment: it defines what the linker puts in place of these functions. Only calls from our own code are counted, failed and watched
 * for leaks; what foreign libraries do inside is theirs. The counters are those of one thread: what runs on other threads must not
 * allocate. */
#ifndef SUPPORT_TORTURE_H
#define SUPPORT_TORTURE_H

#include "support/unit.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void __wrap_free(void *memory);

static struct {
    bool on;
    long left; /* allocations that still succeed */
    bool failed;
} torture;

/* Addresses of the blocks that our code has allocated since `on` and not freed: an open hash table. Blocks that a foreign library hands
 * out for us to free are not in it. */
enum { TABLE_SIZE = 1 << 17 };
static void *live[TABLE_SIZE];
static long n_live;
static char gone; /* its address marks a place whose block was freed */

static size_t place_of(const void *memory)
{
    return ((uintptr_t)memory >> 4) * 0x9E3779B97F4A7C15u >> 47;
}

static void remember(void *memory)
{
    size_t i = place_of(memory);
    while (live[i] != NULL && live[i] != &gone) {
        i = (i + 1) % TABLE_SIZE;
    }
    live[i] = memory;
    n_live++;
}

static void forget(const void *memory)
{
    for (size_t i = place_of(memory); live[i] != NULL; i = (i + 1) % TABLE_SIZE) {
        if (live[i] == memory) {
            live[i] = &gone;
            n_live--;
            return;
        }
    }
}

static bool refuse(void)
{
    if (!torture.on) {
        return false;
    }
    if (torture.left == 0) {
        torture.failed = true;
        return true; /* and every later one too: memory that is short stays short */
    }
    torture.left--;
    return false;
}

static void *counted(void *memory)
{
    if (torture.on && memory != NULL) {
        remember(memory);
    }
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return refuse() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse() ? NULL : counted(__real_calloc(n, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    if (refuse()) {
        return NULL;
    }
    const bool known = torture.on && old != NULL;
    if (known) {
        forget(old);
    }
    void *const memory = __real_realloc(old, size);
    if (known && memory == NULL) {
        remember(old);
    }
    return counted(memory);
}

char *__wrap_strdup(const char *text)
{
    return refuse() ? NULL : counted(__real_strdup(text));
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return refuse() ? NULL : counted(__real_aligned_alloc(alignment, size));
}

void __wrap_free(void *memory)
{
    if (torture.on && memory != NULL) {
        forget(memory);
    }
    __real_free(memory);
}

/* Does something and undoes it; `arg` is the case's own. */
typedef di_status (*torture_attempt)(const void *arg, di_error *err);

#if defined(__SANITIZE_THREAD__)
enum { TORTURE_SAMPLES = 4 }; /* nothing here is about threads */
#elif defined(__SANITIZE_ADDRESS__)
enum { TORTURE_SAMPLES = 16 };
#else
enum { TORTURE_SAMPLES = 64 };
#endif

/* Every k up to `dense`, then in steps that grow with k, so that a call of very many allocations is sampled. */
static void torture_all(const char *what, torture_attempt fn, const void *arg, long dense)
{
    long k = 0;
    for (;; k += k < dense ? 1 : 1 + k / TORTURE_SAMPLES) {
        di_error err = {.message = ""};
        torture.left = k;
        torture.failed = false;
        memset(live, 0, sizeof live);
        n_live = 0;
        torture.on = true;
        const di_status status = fn(arg, &err);
        torture.on = false;
        if (n_live != 0) {
            fail_msg("%s: %ld blocks leak when allocation %ld fails", what, n_live, k);
        }
        if (!torture.failed) {
            assert_int_equal(status, DI_OK);
            break;
        }
        if (status != DI_E_MEMORY) {
            fail_msg("%s: allocation %ld fails, status %s: %s", what, k, di_status_name(status), err.message);
        }
        unit_expect_error(status, DI_E_MEMORY, &err, "out of memory", NULL);
    }
    print_message("%s: succeeds with %ld allocations\n", what, k);
    assert_true(k > 0);
}

#endif
