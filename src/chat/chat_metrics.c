/* chat_metrics.c - what a service counts, and its page (docs/serving.md lists the names).
 *
 * Histograms and counters are fed where things happen, with an atomic add each; what scheduler and engine count themselves is taken
 * over when the page is written. Names are ours, and a second time vLLM's, so that dashboards made for it work as they are. */
#include "chat/chat_metrics.h"

#include "chat/chat_metrics_cache.h"
#include "chat/chat_metrics_stream.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

typedef enum ended_how { ENDED_STOP, ENDED_LENGTH, ENDED_ABORT, ENDED_ERROR, N_ENDED } ended_how;

struct chat_metrics {
    met_registry *registry;
    buf labels;
    met_gauge *gauges[CHAT_N_GAUGES];
    met_counter *counters[CHAT_N_COUNTERS];
    met_histogram *histograms[CHAT_N_HISTOGRAMS];
    met_counter *ended[N_ENDED];
    chat_cache_metrics cache;
    chat_stream_metrics stream;
    met_counter *verified_at[DI_MAX_VERIFIED];
    met_counter *accepted_at[DI_MAX_VERIFIED];
};

/* --- Names -------------------------------------------------------------------------------------------------------------------------- */

static const met_desc gauges[CHAT_N_GAUGES] = {
    [CHAT_G_PREPARING] = {.name = "deepinfer_requests_preparing", .help = "Requests whose prompt is being made."},
    [CHAT_G_WAITING] = {.name = "deepinfer_requests_waiting", .alias = "vllm:num_requests_waiting", .help = "Requests in the queue."},
    [CHAT_G_RUNNING] = {.name = "deepinfer_requests_running", .alias = "vllm:num_requests_running",
                        .help = "Requests that the engine works on."},
    [CHAT_G_CHOICES] = {.name = "deepinfer_choices_running", .help = "Answers that are being generated; a request has n of them."},
    [CHAT_G_KV_USAGE] = {.name = "deepinfer_kv_cache_usage_ratio", .alias = "vllm:kv_cache_usage_perc",
                         .help = "Part of the KV pages that running requests hold, 0 to 1; what is only cached counts as free."},
    [CHAT_G_KV_PAGES] = {.name = "deepinfer_kv_pages", .help = "KV pages in the budget, of 128 tokens each."},
    [CHAT_G_KV_USED] = {.name = "deepinfer_kv_pages_used", .help = "KV pages that running requests hold."},
    [CHAT_G_KV_CACHED] = {.name = "deepinfer_kv_pages_cached", .help = "KV pages that only the prefix cache holds."},
    [CHAT_G_KV_BYTES] = {.name = "deepinfer_kv_bytes", .help = "Bytes taken from the KV budget so far."},
    [CHAT_G_CALIBRATION] = {.name = "deepinfer_draft_calibration_error",
                            .help = "Mean distance between how likely verified drafts were said to be and how often they were right."},
    [CHAT_G_DRAFT_BUDGET] = {.name = "deepinfer_draft_budget",
                             .help = "Draft tokens that the last step verified, of all answers together."},
    [CHAT_G_CONSTRAINED] = {.name = "deepinfer_constrained_choices_running", .help = "Running answers that are held to a grammar."},
    [CHAT_G_GRAMMARS] = {.name = "deepinfer_grammars_cached", .help = "Compiled grammars in the cache."},
    [CHAT_G_GRAMMAR_BYTES] = {.name = "deepinfer_grammars_cached_bytes", .help = "Their memory when one was last added."},
};

static const met_desc counters[CHAT_N_COUNTERS] = {
    [CHAT_C_PROMPT] = {.name = "deepinfer_prompt_tokens_total", .alias = "vllm:prompt_tokens_total", .help = "Tokens of prompts."},
    [CHAT_C_GENERATED] = {.name = "deepinfer_generation_tokens_total", .alias = "vllm:generation_tokens_total",
                          .help = "Tokens generated, those that end an answer included."},
    [CHAT_C_PREEMPTIONS] = {.name = "deepinfer_preemptions_total", .alias = "vllm:num_preemptions_total",
                            .help = "Requests that gave their KV memory back for a while."},
    [CHAT_C_LOOKUPS] = {.name = "deepinfer_prefix_cache_queries_total", .alias = "vllm:prefix_cache_queries_total",
                        .help = "Prompt tokens that were looked for in the prefix cache."},
    [CHAT_C_HITS] = {.name = "deepinfer_prefix_cache_hits_total", .alias = "vllm:prefix_cache_hits_total",
                     .help = "Prompt tokens that did not have to run."},
    [CHAT_C_LOOKUPS_VLLM] = {.name = "vllm:prefix_cache_queries", .help = "The same as vllm:prefix_cache_queries_total."},
    [CHAT_C_HITS_VLLM] = {.name = "vllm:prefix_cache_hits", .help = "The same as vllm:prefix_cache_hits_total."},
    [CHAT_C_STEPS] = {.name = "deepinfer_steps_total", .help = "Steps of the engine."},
    [CHAT_C_EXECUTE] = {.name = "deepinfer_step_execute_seconds_total", .help = "Time in forward passes.", .unit = MET_SECONDS},
    [CHAT_C_SCHEDULE] = {.name = "deepinfer_step_schedule_seconds_total", .help = "Time between forward passes, with work waiting.",
                         .unit = MET_SECONDS},
    [CHAT_C_PLAN] = {.name = "deepinfer_step_plan_seconds_total", .help = "Time of planning beside a forward pass.", .unit = MET_SECONDS},
    [CHAT_C_EVICTED] = {.name = "deepinfer_kv_pages_evicted_total", .help = "KV pages that the prefix cache gave up."},
    [CHAT_C_DRAFTS] = {.name = "deepinfer_drafts_total", .alias = "vllm:spec_decode_num_drafts_total",
                       .help = "Proposals that were verified."},
    [CHAT_C_PROPOSED] = {.name = "deepinfer_draft_tokens_proposed_total", .help = "Draft tokens that were made, verified or not."},
    [CHAT_C_WASTED] = {.name = "deepinfer_draft_tokens_wasted_total", .help = "Draft tokens that were verified and wrong."},
    [CHAT_C_DRAFTED] = {.name = "deepinfer_draft_tokens_total", .alias = "vllm:spec_decode_num_draft_tokens_total",
                        .help = "Draft tokens that were verified."},
    [CHAT_C_ACCEPTED] = {.name = "deepinfer_draft_tokens_accepted_total", .alias = "vllm:spec_decode_num_accepted_tokens_total",
                         .help = "Draft tokens that were right."},
    [CHAT_C_DRAFT_TIME] = {.name = "deepinfer_step_draft_seconds_total", .help = "Time of the draft model in forward passes.",
                           .unit = MET_SECONDS},
    [CHAT_C_MASKS] = {.name = "deepinfer_grammar_masks_total", .help = "Masks made for tokens and drafts of answers with a grammar."},
    [CHAT_C_MASK_TIME] = {.name = "deepinfer_grammar_mask_seconds_total", .help = "Time of all threads for these masks.",
                          .unit = MET_SECONDS},
    [CHAT_C_MASK_WAIT] = {.name = "deepinfer_grammar_mask_wait_seconds_total",
                          .help = "Time in forward passes that sampling waited for masks.", .unit = MET_SECONDS},
    [CHAT_C_GRAMMAR_HITS] = {.name = "deepinfer_grammar_cache_hits_total", .help = "Constraints whose grammar was in the cache."},
    [CHAT_C_GRAMMAR_JOINED] = {.name = "deepinfer_grammar_compiles_joined_total",
                               .help = "Constraints that were being compiled for another request, and waited for that."},
    [CHAT_C_GRAMMAR_REFUSED] = {.name = "deepinfer_grammars_refused_total",
                                .help = "Constraints that were wrong, not supported or too complex, or found no room in the queue."},
    [CHAT_C_GRAMMAR_FORCED] = {.name = "deepinfer_grammar_forced_tokens_total",
                               .help = "Tokens that a grammar forced and that came without a pass of their own."},
    [CHAT_C_UNREAD] = {.name = "deepinfer_requests_unread_total", .help = "Streams cancelled because nobody read them."},
};

static const met_desc histograms[CHAT_N_HISTOGRAMS] = {
    [CHAT_H_TTFT] = {.name = "deepinfer_time_to_first_token_seconds", .alias = "vllm:time_to_first_token_seconds",
                     .help = "From the arrival of a request to its first token.", .unit = MET_SECONDS},
    [CHAT_H_ITL] = {.name = "deepinfer_inter_token_latency_seconds", .alias = "vllm:inter_token_latency_seconds",
                    .help = "Between two tokens of an answer.", .unit = MET_SECONDS},
    [CHAT_H_E2E] = {.name = "deepinfer_request_seconds", .alias = "vllm:e2e_request_latency_seconds",
                    .help = "From the arrival of a request to its end.", .unit = MET_SECONDS},
    [CHAT_H_QUEUE] = {.name = "deepinfer_request_queue_seconds", .alias = "vllm:request_queue_time_seconds",
                      .help = "Time of a request in the queue.", .unit = MET_SECONDS},
    [CHAT_H_PREFILL] = {.name = "deepinfer_request_prefill_seconds", .alias = "vllm:request_prefill_time_seconds",
                        .help = "From the queue to the first token.", .unit = MET_SECONDS},
    [CHAT_H_DECODE] = {.name = "deepinfer_request_decode_seconds", .alias = "vllm:request_decode_time_seconds",
                       .help = "From the first token to the end.", .unit = MET_SECONDS},
    [CHAT_H_PREPARE] = {.name = "deepinfer_request_prepare_seconds", .help = "From the arrival of a request to the queue.",
                        .unit = MET_SECONDS},
    [CHAT_H_ITERATION] = {.name = "deepinfer_step_tokens", .alias = "vllm:iteration_tokens_total", .help = "Tokens of a step."},
    [CHAT_H_COMPILE] = {.name = "deepinfer_grammar_compile_seconds", .help = "Time to compile a constraint.", .unit = MET_SECONDS},
};

static const met_desc ended_desc = {.name = "deepinfer_requests_total", .alias = "vllm:request_success_total",
                                    .help = "Requests that have left the queue or were taken out of it, by how they ended."};

static const met_desc verified_desc = {.name = "deepinfer_draft_tokens_per_position_total",
                                       .help = "Draft tokens that were verified, by their place in the proposal."};
static const met_desc accepted_desc = {.name = "deepinfer_draft_tokens_accepted_per_position_total",
                                       .alias = "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                                       .help = "Draft tokens that were right, by their place in the proposal."};

static const char *const reasons[N_ENDED] = {
    [ENDED_STOP] = "stop", [ENDED_LENGTH] = "length", [ENDED_ABORT] = "abort", [ENDED_ERROR] = "error"};

static const double token_bounds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                      0.3,    0.4,   0.5,    0.75,  1,    2.5,   5,    10,    20,  40,   80};
static const double request_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1,    2.5,
                                        5,     7.5,    10,    20,   40,    60,   120, 240,  480, 960,  1920, 7680};
static const double step_bounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

/* --- Making --------------------------------------------------------------------------------------------------------------------------- */

static di_status make_histogram(chat_metrics *m, int i, di_error *err)
{
    const double *bounds = request_bounds;
    size_t n = COUNT_OF(request_bounds);
    met_desc desc = histograms[i];
    desc.labels = m->labels.data;
    if (i == CHAT_H_ITL || i == CHAT_H_COMPILE) {
        bounds = token_bounds;
        n = COUNT_OF(token_bounds);
    } else if (i == CHAT_H_ITERATION) {
        bounds = step_bounds;
        n = COUNT_OF(step_bounds);
    }
    return met_histogram_get(m->registry, &desc, bounds, n, &m->histograms[i], err);
}

/* One of several counters of a name, told apart by a label. */
static di_status make_labelled(chat_metrics *m, met_desc desc, const char *label, const char *value, met_counter **out, di_error *err)
{
    buf labels;
    buf_init(&labels, SIZE_MAX);
    buf_append(&labels, m->labels.data, m->labels.size);
    met_label(&labels, label, value);
    desc.labels = labels.data;
    const di_status status = labels.failed ? err_memory(err, "metrics", labels.size) : met_counter_get(m->registry, &desc, out, err);
    buf_fini(&labels);
    return status;
}

static di_status make_position(chat_metrics *m, int i, di_error *err)
{
    const char place[] = {(char)('0' + i), '\0'};
    const di_status status = make_labelled(m, verified_desc, "position", place, &m->verified_at[i], err);
    return status == DI_OK ? make_labelled(m, accepted_desc, "position", place, &m->accepted_at[i], err) : status;
}

static di_status make_series(chat_metrics *m, di_error *err)
{
    di_status status = DI_OK;
    for (int i = 0; status == DI_OK && i < CHAT_N_GAUGES; i++) {
        met_desc desc = gauges[i];
        desc.labels = m->labels.data;
        status = met_gauge_get(m->registry, &desc, &m->gauges[i], err);
    }
    for (int i = 0; status == DI_OK && i < CHAT_N_COUNTERS; i++) {
        met_desc desc = counters[i];
        desc.labels = m->labels.data;
        status = met_counter_get(m->registry, &desc, &m->counters[i], err);
    }
    for (int i = 0; status == DI_OK && i < N_ENDED; i++) {
        status = make_labelled(m, ended_desc, "finished_reason", reasons[i], &m->ended[i], err);
    }
    for (int i = 0; status == DI_OK && i < DI_MAX_VERIFIED; i++) {
        status = make_position(m, i, err);
    }
    for (int i = 0; status == DI_OK && i < CHAT_N_HISTOGRAMS; i++) {
        status = make_histogram(m, i, err);
    }
    if (status == DI_OK) {
        status = chat_cache_metrics_init(&m->cache, m->registry, &m->labels, err);
    }
    return status == DI_OK ? chat_stream_metrics_init(&m->stream, m->registry, &m->labels, err) : status;
}

di_status chat_metrics_new(const char *model_name, chat_metrics **out, di_error *err)
{
    chat_metrics *const m = ar_calloc(1, sizeof *m);
    if (m == NULL) {
        return err_memory(err, "metrics", sizeof *m);
    }
    buf_init(&m->labels, SIZE_MAX);
    met_label(&m->labels, "model_name", model_name);
    di_status status = m->labels.failed ? err_memory(err, "metrics", m->labels.size) : met_registry_new(&m->registry, err);
    if (status == DI_OK) {
        status = make_series(m, err);
    }
    if (status != DI_OK) {
        chat_metrics_free(m);
        return status;
    }
    *out = m;
    return DI_OK;
}

void chat_metrics_free(chat_metrics *m)
{
    if (m != NULL) {
        met_registry_free(m->registry);
        buf_fini(&m->labels);
        free(m);
    }
}

/* --- Feeding ------------------------------------------------------------------------------------------------------------------------ */

void chat_metrics_token(chat_metrics *m, int64_t since_last_ns)
{
    if (since_last_ns >= 0) {
        met_observe(m->histograms[CHAT_H_ITL], since_last_ns);
    }
    met_counter_add(m->counters[CHAT_C_GENERATED], 1);
}

void chat_metrics_admitted(chat_metrics *m, int64_t cached_tokens)
{
    chat_cache_metrics_hit(&m->cache, cached_tokens);
}

void chat_metrics_first(chat_metrics *m, const di_call *c)
{
    const di_call_info *const d = &c->draft;
    met_counter_add(m->counters[CHAT_C_PROMPT], (uint64_t)c->n_prompt_tokens);
    met_observe(m->histograms[CHAT_H_TTFT], d->first_token_at - d->submitted_at);
    met_observe(m->histograms[CHAT_H_PREFILL], d->first_token_at - d->admitted_at);
}

static ended_how how(const di_call_info *d)
{
    if (d->cancelled) {
        return ENDED_ABORT;
    }
    if (d->error != DI_OK) {
        return ENDED_ERROR;
    }
    return d->finish == DI_FINISH_LENGTH ? ENDED_LENGTH : ENDED_STOP;
}

void chat_metrics_ended(chat_metrics *m, const di_call *c)
{
    const di_call_info *const d = &c->draft;
    if (d->queued_at == 0) {
        return; /* refused, or no work for the engine */
    }
    met_counter_add(m->ended[how(d)], 1);
    met_observe(m->histograms[CHAT_H_PREPARE], d->queued_at - d->submitted_at);
    met_observe(m->histograms[CHAT_H_QUEUE], (d->admitted_at != 0 ? d->admitted_at : d->ended_at) - d->queued_at);
    met_observe(m->histograms[CHAT_H_E2E], d->ended_at - d->submitted_at);
    if (d->first_token_at != 0) {
        met_observe(m->histograms[CHAT_H_DECODE], d->ended_at - d->first_token_at);
    }
}

void chat_metrics_step(chat_metrics *m, const di_step_info *info)
{
    met_observe(m->histograms[CHAT_H_ITERATION], info->n_tokens);
}

void chat_metrics_compiled(chat_metrics *m, int64_t took_ns)
{
    met_observe(m->histograms[CHAT_H_COMPILE], took_ns);
}

void chat_metrics_unread(chat_metrics *m)
{
    met_counter_add(m->counters[CHAT_C_UNREAD], 1);
}

/* --- The page ------------------------------------------------------------------------------------------------------------------------- */

static void take_over(chat_metrics *m, const di_service_stats *stats, const chat_compiler_stats *grammars)
{
    const di_scheduler_stats *const s = &stats->scheduler;
    const di_kv_stats *const kv = &stats->kv;
    const struct {
        int i;
        int64_t value;
    } totals[] = {
        {CHAT_C_PREEMPTIONS, s->n_preempted}, {CHAT_C_LOOKUPS, kv->lookup_tokens},      {CHAT_C_HITS, kv->resumed_tokens},
        {CHAT_C_STEPS, s->n_steps},           {CHAT_C_LOOKUPS_VLLM, kv->lookup_tokens}, {CHAT_C_HITS_VLLM, kv->resumed_tokens},
        {CHAT_C_EXECUTE, s->execute_ns},      {CHAT_C_SCHEDULE, s->schedule_ns},        {CHAT_C_PLAN, s->plan_ns},
        {CHAT_C_EVICTED, kv->pages_evicted},  {CHAT_C_DRAFTS, s->n_verified},           {CHAT_C_DRAFTED, s->drafted_tokens},
        {CHAT_C_PROPOSED, s->proposed_tokens}, {CHAT_C_WASTED, s->drafted_tokens - s->accepted_tokens},
        {CHAT_C_ACCEPTED, s->accepted_tokens}, {CHAT_C_DRAFT_TIME, s->draft_ns},
        {CHAT_C_MASKS, s->n_masks},           {CHAT_C_MASK_TIME, s->mask_ns},           {CHAT_C_MASK_WAIT, s->mask_wait_ns},
        {CHAT_C_GRAMMAR_HITS, grammars->n_hits}, {CHAT_C_GRAMMAR_REFUSED, grammars->n_refused},
        {CHAT_C_GRAMMAR_JOINED, grammars->n_joined}, {CHAT_C_GRAMMAR_FORCED, s->forced_right},
    };
    const struct {
        int i;
        double value;
    } now[] = {
        {CHAT_G_PREPARING, (double)stats->n_preparing},
        {CHAT_G_WAITING, (double)stats->n_waiting},
        {CHAT_G_RUNNING, (double)stats->n_running},
        {CHAT_G_CHOICES, (double)s->n_choices},
        {CHAT_G_KV_USAGE, kv->pages > 0 ? (double)kv->pages_used / (double)kv->pages : 0.0},
        {CHAT_G_KV_PAGES, (double)kv->pages},
        {CHAT_G_KV_USED, (double)kv->pages_used},
        {CHAT_G_KV_CACHED, (double)kv->pages_cached},
        {CHAT_G_KV_BYTES, (double)kv->bytes},
        {CHAT_G_CALIBRATION, s->calibration_error},
        {CHAT_G_DRAFT_BUDGET, (double)s->draft_budget},
        {CHAT_G_CONSTRAINED, (double)s->n_constrained},
        {CHAT_G_GRAMMARS, (double)grammars->n_grammars},
        {CHAT_G_GRAMMAR_BYTES, (double)grammars->n_bytes},
    };
    for (size_t i = 0; i < COUNT_OF(totals); i++) {
        met_counter_set(m->counters[totals[i].i], (uint64_t)totals[i].value);
    }
    chat_cache_metrics_set(&m->cache, &stats->cache);
    chat_stream_metrics_set(&m->stream, &stats->stream);
    for (int i = 0; i < DI_MAX_VERIFIED; i++) {
        met_counter_set(m->verified_at[i], (uint64_t)s->verified_at[i]);
        met_counter_set(m->accepted_at[i], (uint64_t)s->accepted_at[i]);
    }
    for (size_t i = 0; i < COUNT_OF(now); i++) {
        met_gauge_set(m->gauges[now[i].i], now[i].value);
    }
}

void chat_metrics_write(chat_metrics *m, const di_service_stats *stats, const chat_compiler_stats *grammars, buf *out)
{
    take_over(m, stats, grammars);
    met_write(m->registry, out);
}
