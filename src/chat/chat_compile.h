/* chat_compile.h - constraints to grammars: threads that compile, and what they made (chat_grammars.h).
 *
 * Behind its preparation a call with a constraint takes the grammar from the cache, or waits here for a thread to compile it, so that
 * neither other requests' preparation nor the engine waits for a heavy one. Calls that come with the same constraint while it waits or is
 * compiled join the one compilation. A call that is cancelled or too late leaves it; the last one that leaves ends it.
 *
 * Owner: the service. The cache and what waits are guarded by its lock, under which nothing is compiled. */
#ifndef CHAT_CHAT_COMPILE_H
#define CHAT_CHAT_COMPILE_H

#include "chat/chat_int.h"

typedef struct chat_compiler chat_compiler;

typedef struct chat_compiler_stats {
    int64_t n_compiled;
    int64_t n_hits;     /* constraints found in the cache */
    int64_t n_joined;   /* calls that joined the compilation of another one */
    int64_t n_refused;  /* wrong, unsupported, too complex, or no room in the queue */
    int64_t n_grammars; /* cached now */
    int64_t n_bytes;    /* of them */
} chat_compiler_stats;

/* Errors: DI_E_MEMORY, DI_E_IO. */
di_status chat_compiler_new(di_service *s, chat_compiler **out, di_error *err);
void chat_compiler_free(chat_compiler *k); /* no call may be on its way; NULL is ignored */

/* A prepared call with a constraint: takes it over, and sends it on to the engine or to its end. */
void chat_compile(chat_compiler *k, di_call *c);

/* What the threads do, past cache and queue: errors are those of di_grammar_compile. `cancelled` as in di_grammar_options. */
typedef di_status (*chat_compile_fn)(const chat_constraint *source, bool (*cancelled)(void *user), void *user, di_grammar **out,
                                     di_grammar_fault *fault, di_error *err);
di_status chat_compile_source(const chat_constraint *source, bool (*cancelled)(void *user), void *user, di_grammar **out,
                              di_grammar_fault *fault, di_error *err);
/* Another function in its place, before the first call comes: tests, which hold it and let it go. */
void chat_compiler_set(chat_compiler *k, chat_compile_fn fn);

void chat_compiler_get_stats(chat_compiler *k, chat_compiler_stats *out);

#endif
