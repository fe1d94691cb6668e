/* chat_cache.h - how a request wants its prefix kept; see chat_cache.c. */
#ifndef CHAT_CHAT_CACHE_H
#define CHAT_CHAT_CACHE_H

#include "core/core.h"

#include <deepinfer/scheduler.h>

#define CHAT_CACHE_UNSAID (-1)

typedef struct chat_cache {
    int32_t class_id; /* di_cache_class, or CHAT_CACHE_UNSAID */
    int64_t ttl_s;    /* 0 = unsaid */
    bool pinned;
} chat_cache;

/* Text beside a body; NULL says nothing. Errors: DI_E_ARGUMENT. */
di_status chat_cache_read_text(const char *text, chat_cache *out, di_error *err);
/* The field of a body. Errors: DI_E_ARGUMENT. */
di_status chat_cache_read_body(const js_value *body, chat_cache *out, di_error *err);
di_task_cache chat_cache_settle(const chat_cache *body, const chat_cache *text, bool with_tools);

/* {"tiers": [...], "lookups": ...} */
void chat_cache_write(const di_cache_stats *c, buf *out);

#endif
