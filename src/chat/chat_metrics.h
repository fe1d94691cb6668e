/* chat_metrics.h - what a service counts. Feeding is an atomic add or two and may be done by any thread. */
#ifndef CHAT_CHAT_METRICS_H
#define CHAT_CHAT_METRICS_H

#include "chat/chat_compile.h"

#include "core/metrics.h"

enum {
    CHAT_G_PREPARING, CHAT_G_WAITING, CHAT_G_RUNNING, CHAT_G_CHOICES, CHAT_G_KV_USAGE, CHAT_G_KV_PAGES, CHAT_G_KV_USED,
    CHAT_G_KV_CACHED, CHAT_G_KV_BYTES, CHAT_G_CALIBRATION, CHAT_G_DRAFT_BUDGET, CHAT_G_CONSTRAINED, CHAT_G_GRAMMARS,
    CHAT_G_GRAMMAR_BYTES, CHAT_N_GAUGES
};

enum {
    CHAT_C_PROMPT, CHAT_C_GENERATED, CHAT_C_PREEMPTIONS, CHAT_C_LOOKUPS, CHAT_C_HITS, CHAT_C_LOOKUPS_VLLM, CHAT_C_HITS_VLLM,
    CHAT_C_STEPS, CHAT_C_EXECUTE, CHAT_C_SCHEDULE, CHAT_C_PLAN, CHAT_C_EVICTED, CHAT_C_UNREAD,
    CHAT_C_DRAFTS, CHAT_C_PROPOSED, CHAT_C_WASTED, CHAT_C_DRAFTED, CHAT_C_ACCEPTED, CHAT_C_DRAFT_TIME,
    CHAT_C_MASKS, CHAT_C_MASK_TIME, CHAT_C_MASK_WAIT, CHAT_C_GRAMMAR_HITS, CHAT_C_GRAMMAR_JOINED, CHAT_C_GRAMMAR_REFUSED,
    CHAT_C_GRAMMAR_FORCED,
    CHAT_N_COUNTERS
};

enum {
    CHAT_H_TTFT, CHAT_H_ITL, CHAT_H_E2E, CHAT_H_QUEUE, CHAT_H_PREFILL, CHAT_H_DECODE, CHAT_H_PREPARE, CHAT_H_ITERATION,
    CHAT_H_COMPILE,
    CHAT_N_HISTOGRAMS
};

di_status chat_metrics_new(const char *model_name, chat_metrics **out, di_error *err);
void chat_metrics_free(chat_metrics *m); /* NULL is ignored */

void chat_metrics_token(chat_metrics *m, int64_t since_last_ns); /* -1: the first of its choice */
void chat_metrics_admitted(chat_metrics *m, int64_t cached_tokens); /* a task left the queue */
void chat_metrics_first(chat_metrics *m, const di_call *c);      /* the first token of a call */
void chat_metrics_ended(chat_metrics *m, const di_call *c);
void chat_metrics_step(chat_metrics *m, const di_step_info *info);
void chat_metrics_unread(chat_metrics *m);                       /* a call was cancelled because nobody read */
void chat_metrics_compiled(chat_metrics *m, int64_t took_ns);    /* a constraint, in vain or not */
/* The page, with what scheduler, engine and compiler count. */
void chat_metrics_write(chat_metrics *m, const di_service_stats *stats, const chat_compiler_stats *grammars, buf *out);

#endif
