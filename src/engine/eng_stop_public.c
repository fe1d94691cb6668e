/* eng_stop_public.c - stop strings of the public API (<deepinfer/engine.h>): eng_stop with a buffer for what is free to go. */
#include "core/core.h"
#include "engine/engine.h"
#include "engine/eng_stop.h"

#include <string.h>

#define MAX_PIECE_BYTES ((size_t)1 << 30)

_Static_assert(DI_MAX_STOP_STRINGS == ENG_STOP_MAX_STRINGS, "public limit");
_Static_assert(DI_MAX_STOP_BYTES == ENG_STOP_MAX_BYTES, "public limit");

struct di_stop {
    eng_stop *strings;
    buf out; /* what the last call let go */
};

static di_status new_strings(const char *const *strings, const size_t *sizes, size_t n, eng_stop **out, di_error *err)
{
    size_t measured[ENG_STOP_MAX_STRINGS];
    if (sizes == NULL && n <= ENG_STOP_MAX_STRINGS) {
        for (size_t i = 0; i < n; i++) {
            measured[i] = strlen(strings[i]);
        }
        sizes = measured;
    }
    return eng_stop_new(strings, sizes, n, out, err);
}

di_status di_stop_new(const char *const *strings, const size_t *sizes, size_t n, di_stop **out, di_error *err)
{
    di_stop *s = ar_calloc(1, sizeof *s);
    if (s == NULL) {
        return err_memory(err, "stop strings", sizeof *s);
    }
    buf_init(&s->out, MAX_PIECE_BYTES + ENG_STOP_MAX_BYTES);
    const di_status status = new_strings(strings, sizes, n, &s->strings, err);
    if (status != DI_OK) {
        di_stop_free(s);
        return status;
    }
    *out = s;
    return DI_OK;
}

void di_stop_free(di_stop *s)
{
    if (s == NULL) {
        return;
    }
    eng_stop_free(s->strings);
    buf_fini(&s->out);
    free(s);
}

static void let_go(const di_stop *s, const char **out, size_t *n_out)
{
    *out = s->out.size > 0 ? s->out.data : "";
    *n_out = s->out.size;
}

di_status di_stop_push(di_stop *s, const char *text, size_t n, const char **out, size_t *n_out, di_error *err)
{
    if (n > MAX_PIECE_BYTES) {
        return err_set(err, DI_E_LIMIT, "a piece of %zu bytes, must be at most %zu", n, MAX_PIECE_BYTES);
    }
    buf_clear(&s->out);
    /* The buffer's bound cannot be reached, so the one failure left is that of memory. */
    if (eng_stop_push(s->strings, text, n, &s->out, NULL) != DI_OK) {
        return err_memory(err, "text before a stop string", n);
    }
    let_go(s, out, n_out);
    return DI_OK;
}

di_status di_stop_finish(di_stop *s, const char **out, size_t *n_out, di_error *err)
{
    buf_clear(&s->out);
    if (eng_stop_flush(s->strings, &s->out, NULL) != DI_OK) {
        return err_memory(err, "text before a stop string", ENG_STOP_MAX_BYTES);
    }
    let_go(s, out, n_out);
    return DI_OK;
}

int di_stop_matched(const di_stop *s)
{
    return eng_stop_matched(s->strings);
}

void di_stop_reset(di_stop *s)
{
    eng_stop_reset(s->strings);
    buf_clear(&s->out);
}
