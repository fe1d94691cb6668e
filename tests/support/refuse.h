/* refuse.h - allocations of our own code that a test refuses, on whichever thread they are made. (torture.h also watches for leaks, on one
 * thread.)
 *
 * Included by the one .c file of a test that has the line `ctest: wrap=malloc,calloc,realloc,strdup,aligned_alloc` in its head comment. The
 * file defines refuse(): true = this allocation fails. */
#ifndef SUPPORT_REFUSE_H
#define SUPPORT_REFUSE_H

#include <stdbool.h>
#include <stddef.h>

static bool refuse(void);

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size) { return refuse() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t n, size_t size) { return refuse() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *old, size_t size) { return refuse() ? NULL : __real_realloc(old, size); }
char *__wrap_strdup(const char *text) { return refuse() ? NULL : __real_strdup(text); }
void *__wrap_aligned_alloc(size_t alignment, size_t size) { return refuse() ? NULL : __real_aligned_alloc(alignment, size); }

#endif
