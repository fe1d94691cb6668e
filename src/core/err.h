/* err.h - errors: a status plus one message, written once where the failure is found (design: QEMU's Error **).
 * Callers may put context in front with err_prefix. Every function accepts err == NULL. Thread: any. */
#ifndef CORE_ERR_H
#define CORE_ERR_H

#include <deepinfer/base.h>

/* Stores code, source position and the formatted message in *err, and returns code, so that
 * `return err_set(err, DI_E_FORMAT, "...")` reads as one step. Messages longer than the buffer are cut at a character. */
#define err_set(err, code, ...) err_set_at((err), (code), __FILE__, __LINE__, __VA_ARGS__)

di_status err_set_at(di_error *err, di_status code, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* As err_set with DI_E_IO and ": <strerror(errno_value)>" appended. */
#define err_set_errno(err, errno_value, ...) err_set_errno_at((err), (errno_value), __FILE__, __LINE__, __VA_ARGS__)

di_status err_set_errno_at(di_error *err, int errno_value, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Out of memory: "out of memory: <what> (<bytes> bytes)". */
#define err_memory(err, what, bytes) \
    err_set_at((err), DI_E_MEMORY, __FILE__, __LINE__, "out of memory: %s (%zu bytes)", (what), (size_t)(bytes))

/* Puts "<formatted>: " in front of the message already in *err. Keeps code and origin. */
void err_prefix(di_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
