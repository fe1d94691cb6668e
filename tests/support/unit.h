/* unit.h - what every C test includes: cmocka with its prerequisites, and a scratch folder. */
#ifndef SUPPORT_UNIT_H
#define SUPPORT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <deepinfer/base.h>

/* A new empty folder under the working directory (the build folder); unit_scratch_remove deletes it with its files and frees the
 * name. */
char *unit_scratch_new(void);
void unit_scratch_remove(char *dir);

/* Writes DIR/NAME. */
void unit_write(const char *dir, const char *name, const void *data, size_t size);

/* Fails the test unless `status` is `code` and the message is one line that holds every one of the texts up to NULL. */
void unit_expect_error(di_status status, di_status code, const di_error *err, ...);

/* splitmix64: the pseudo-random numbers of property tests. */
uint64_t unit_random(uint64_t *state);

/* DI_TEST_SEED, else 0: added to the seeds of tests that can be run over other numbers. */
uint64_t unit_seed(void);

#endif
