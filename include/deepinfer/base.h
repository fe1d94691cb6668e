/* deepinfer/base.h - what every other public header needs: status codes, errors, version.
 *
 * Conventions of the whole public API:
 *  - A function that can fail returns di_status (0 is success) and takes `di_error *err` last; `err` may be NULL.
 *    On failure outputs are untouched unless the function says otherwise.
 *  - Handles are opaque. `x_open`/`x_new` give ownership to the caller, `x_close`/`x_free` take it back and accept NULL.
 *  - Borrowed pointers (`const T *` results) live as long as the object they came from unless a shorter life is stated.
 *  - Sizes in bytes are size_t, token ids int32_t, positions int64_t.
 *  - Structs that the caller fills start from their `x_default` function or a designated initialiser, never by position:
 *    fields are appended, and one that is left zero means what was before it existed.
 *  - Thread rules stand at each object. There is no global state.
 *
 * Stability: within one minor version functions are only added, and a program runs with every later patch version. A new minor
 * version may append fields and so needs a recompilation; the shared library's soname (libdeepinfer.so.0.1) carries it.
 * Guide with examples: docs/api.md. */
#ifndef DEEPINFER_BASE_H
#define DEEPINFER_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DI_API __attribute__((visibility("default")))
#else
#define DI_API
#endif

#define DI_VERSION_MAJOR 0
#define DI_VERSION_MINOR 1
#define DI_VERSION_PATCH 0

/* Of the headers, to compare with #if: 0.1.0 is 100, 1.2.3 is 10203. */
#define DI_VERSION (DI_VERSION_MAJOR * 10000 + DI_VERSION_MINOR * 100 + DI_VERSION_PATCH)

/* Values never change; new ones are appended. */
typedef enum di_status {
    DI_OK = 0,
    DI_E_ARGUMENT = -1,    /* the caller passed something the function does not accept */
    DI_E_FORMAT = -2,      /* a file or text is malformed, or contradicts another part of itself */
    DI_E_UNSUPPORTED = -3, /* well-formed, but not something this build implements */
    DI_E_IO = -4,          /* the operating system refused a file or socket operation */
    DI_E_MEMORY = -5,      /* an allocation failed */
    DI_E_LIMIT = -6,       /* a configured limit was reached (context length, budget, queue) */
    DI_E_STATE = -7,       /* the call is not allowed in the object's present state */
    DI_E_DEVICE = -8,      /* a device reported a failure */
    DI_E_CANCELLED = -9,   /* the caller or another thread cancelled the operation */
    DI_E_MISMATCH = -10,   /* a comparison (deepinfer verify) found a difference */
    DI_E_INTERNAL = -11    /* a bug in deepinfer */
} di_status;

/* Filled once, where the failure is found. `message` is one line, names the field, file or tensor and the fix. */
typedef struct di_error {
    di_status code;
    int line;         /* source position of the origin, for bug reports */
    const char *file; /* static string, may be NULL */
    char message[512];
} di_error;

/* Version of the library that runs: "0.1.0", a static string; and as DI_VERSION counts it. */
DI_API const char *di_version(void);
DI_API int32_t di_version_number(void);

/* Short name of a status ("format"), for logs. Static string. */
DI_API const char *di_status_name(di_status status);

#ifdef __cplusplus
}
#endif
#endif
