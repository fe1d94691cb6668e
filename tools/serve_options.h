/* serve_options.h - the options of `deepinfer serve`: what the table reads, and what the service and the server are given. */
#ifndef TOOLS_SERVE_OPTIONS_H
#define TOOLS_SERVE_OPTIONS_H

#include "draft.h"
#include "options.h"

#include "server/server.h"

/* As read: seconds, megabytes. Strings are borrowed from the parser and its sources. */
typedef struct serve_options {
    cli_engine_options engine;
    const char *model_name;
    cli_draft draft;
    int64_t kv_mb;
    int64_t max_context;
    int64_t step_tokens;
    int64_t max_running;
    int64_t max_waiting;
    int64_t prepare_threads;
    int64_t max_calls;
    int64_t max_unread_kb;
    int64_t max_request_mb;
    int64_t max_messages;
    int64_t max_tokens_bound;
    bool no_prefix_cache;
    const char *cache_dir;
    const char *cache_bytes;
    const char *cache_shared;
    const char *cache_shared_bytes;
    const char *cache_ram;
    const char *cache_tenant_bytes;
    double cache_chat_days;
    double cache_agent_days;
    int64_t cache_admit;
    const char *cache_load;
    bool thinking_off;
    bool deepseek_exact;

    const char *host;
    int64_t port;
    int64_t http_threads;
    const char *tls_cert;
    const char *tls_key;
    const char *admin_host;
    int64_t admin_port; /* -1 = no admin API */
    const char *admin_key;
    cli_list api_keys;
    const char *api_keys_file;
    bool trust_tenant_header;
    int64_t rate_limit;
    int64_t concurrency_limit;
    const char *cors_origin;
    int64_t max_body_mb;
    int64_t max_body_memory_mb;
    int64_t max_header_kb;
    int64_t max_connections;
    int64_t max_connections_per_address;
    double header_seconds;
    double body_seconds;
    double idle_seconds;
    double queue_seconds;
    double call_seconds;
    double keep_alive_seconds;
    double drain_seconds;
    const char *access_log;
    const char *otlp_endpoint;
    bool json;
} serve_options;

void serve_options_init(serve_options *o);
void serve_add_options(cli_parser *p, serve_options *o);

/* What the ranges of the table can't say; prints what is wrong and returns CLI_USAGE, else CLI_OK. */
int serve_check_options(const cli_parser *p, const serve_options *o);

void serve_get_service(const serve_options *o, di_service_options *out);
void serve_get_server(const serve_options *o, srv_options *out);

#endif
