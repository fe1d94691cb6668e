/* backend_list.c - which backends this build has, fastest first. The only file outside a backend that names one. */
#include "core/err.h"
#include "cpu/cpu.h"
#ifdef DI_HAVE_CUDA
#include "cuda/cuda.h"
#endif
#include "ops/ops.h"
#include "ops/ref.h"

#include <stdio.h>
#include <string.h>

static const ops_backend *const BACKENDS[] = {
#ifdef DI_HAVE_CUDA
    &cuda_backend,
#endif
    &cpu_backend, &ref_backend, NULL};

const ops_backend *const *ops_backends(void) { return BACKENDS; }

static void list_names(char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (const ops_backend *const *b = BACKENDS; *b != NULL && at < size; b++) {
        int n = snprintf(out + at, size - at, "%s%s", at > 0 ? ", " : "", (*b)->name);
        at += n > 0 ? (size_t)n : 0;
    }
}

di_status ops_backend_find(const char *name, const ops_backend **out, di_error *err)
{
    bool any = name == NULL || strcmp(name, "auto") == 0;
    for (const ops_backend *const *b = BACKENDS; *b != NULL; b++) {
        if (any ? (*b)->available() : strcmp(name, (*b)->name) == 0) {
            if (!(*b)->available()) {
                return err_set(err, DI_E_UNSUPPORTED, "backend \"%s\" cannot run on this machine", name);
            }
            *out = *b;
            return DI_OK;
        }
    }
    char names[128];
    list_names(names, sizeof names);
    return err_set(err, DI_E_ARGUMENT, "unknown backend \"%s\": this build has %s", any ? "auto" : name, names);
}
