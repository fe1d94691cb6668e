/* chat_compile.h - constraints to grammars: threads that compile, and a cache of what they made.
 *
 * Behind its preparation a call with a constraint takes the grammar from the cache, or waits here for a thread to compile it, so that
 * neither other requests' preparation nor the engine waits for a heavy one. A call that is cancelled or too late ends its compilation.
 *
 * Owner: the service. The cache is guarded by its lock, under which nothing is compiled. */
#ifndef CHAT_CHAT_COMPILE_H
#define CHAT_CHAT_COMPILE_H

#include "chat/chat_int.h"

typedef struct chat_compiler chat_compiler;

typedef struct chat_compiler_stats {
    int64_t n_compiled;
    int64_t n_hits;     /* constraints found in the cache */
    int64_t n_refused;  /* wrong, unsupported, too complex, or no room in the queue */
    int64_t n_grammars; /* cached now */
    int64_t n_bytes;    /* of them */
} chat_compiler_stats;

/* Errors: DI_E_MEMORY, DI_E_IO. */
di_status chat_compiler_new(di_service *s, chat_compiler **out, di_error *err);
void chat_compiler_free(chat_compiler *k); /* no call may be on its way; NULL is ignored */

/* A prepared call with a constraint: takes it over, and sends it on to the engine or to its end. */
void chat_compile(chat_compiler *k, di_call *c);

/* What the threads do: c->constraint to c->grammar, past the cache. Errors: those of di_grammar_compile, in front of them the field. */
di_status chat_compile_now(di_call *c, di_error *err);

void chat_compiler_get_stats(chat_compiler *k, chat_compiler_stats *out);

#endif
