/* serve_options.c - see serve_options.h. docs/serving.md explains the limits; --help names the defaults. */
#include "serve_options.h"

#include "tools.h"

#include <stdlib.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)
#define KIB ((int64_t)1 << 10)
#define MOST_SECONDS 1000000.0

void serve_options_init(serve_options *o)
{
    *o = (serve_options){
        .port = 8000,
        .admin_port = -1,
        .max_body_mb = 32,
        .max_body_memory_mb = 1024,
        .max_header_kb = 16,
        .header_seconds = 60,
        .body_seconds = 120,
        .idle_seconds = 60,
        .keep_alive_seconds = 15,
        .drain_seconds = 30,
        .cache_chat_days = 7,
        .cache_agent_days = 3,
    };
}

static void add_model_options(cli_parser *p, serve_options *o)
{
    cli_add_model(p, &o->engine);
    cli_add_string(p, "model-name", "NAME", &o->model_name, "as /v1/models and responses spell it (DeepSeek-V4.1-Flash)");
    cli_add_engine(p, &o->engine);
    cli_add_int(p, "kv-mb", "N", &o->kv_mb, 0, INT64_C(1) << 30, "memory for KV in MiB; 0 = a quarter of RAM");
    cli_add_int(p, "max-context", "N", &o->max_context, 0, INT64_C(1) << 40, "tokens of prompt and output; 0 = the model's limit");
    cli_add_flag(p, "no-prefix-cache", &o->no_prefix_cache, "prompts share nothing");
    cli_add_replay(p, &o->engine);
    cli_add_draft(p, &o->draft, false);
    cli_add_int(p, "step-tokens", "N", &o->step_tokens, 0, 1 << 20, "most tokens of a step; 0 = those of a chunk");
    cli_add_int(p, "max-running", "N", &o->max_running, 0, 1 << 20, "most choices that run together; 0 = 256");
    cli_add_int(p, "max-waiting", "N", &o->max_waiting, 0, INT64_C(1) << 30, "most requests in the queue; 0 = 100,000");
    cli_add_int(p, "max-calls", "N", &o->max_calls, 0, INT64_C(1) << 30, "most requests in the server; 0 = 20,000");
    cli_add_int(p, "prepare-threads", "N", &o->prepare_threads, 0, 256, "threads that read bodies and encode prompts; 0 = 2");
    cli_add_int(p, "max-unread-kb", "N", &o->max_unread_kb, 0, INT64_C(1) << 20,
                "output of a stream that waits for its reader; beyond it is cancelled; 0 = 1024");
    cli_add_int(p, "max-request-mb", "N", &o->max_request_mb, 0, INT64_C(1) << 20, "memory of one request while it is read; 0 = 1024");
    cli_add_int(p, "max-messages", "N", &o->max_messages, 0, UINT32_MAX, "most messages of a request; 0 = 100,000");
    cli_add_int(p, "max-tokens-bound", "N", &o->max_tokens_bound, 0, UINT32_MAX, "largest max_tokens of a request; 0 = 393216");
    cli_add_flag(p, "deepseek-exact", &o->deepseek_exact, "as DeepSeek's service: a schema as response format is a wish, not enforced");
    cli_add_flag(p, "thinking-off", &o->thinking_off, "requests that do not say want no thinking");
}

static void add_cache_options(cli_parser *p, serve_options *o)
{
    cli_add_string(p, "cache-dir", "DIR", &o->cache_dir, "keep computed prefixes in this folder, over restarts (default: in memory only)");
    cli_add_string(p, "cache-bytes", "SIZE", &o->cache_bytes, "budget of that folder, as in 500M or 2T (16G)");
    cli_add_string(p, "cache-shared", "DIR", &o->cache_shared, "the same in a folder that several servers use at once");
    cli_add_string(p, "cache-shared-bytes", "SIZE", &o->cache_shared_bytes, "its budget for all of them together (16G)");
    cli_add_string(p, "cache-ram", "SIZE", &o->cache_ram,
                   "memory between the device and those folders (a sixteenth of RAM when there is a folder, else none)");
    cli_add_string(p, "cache-tenant-bytes", "SIZE", &o->cache_tenant_bytes, "most that a tenant has of a folder (no quota)");
    cli_add_real(p, "cache-chat-days", "D", &o->cache_chat_days, 0.0001, 3650,
                 "prefixes of class chat stay so long after their last use (7)");
    cli_add_real(p, "cache-agent-days", "D", &o->cache_agent_days, 0.0001, 3650, "those of class agent (3)");
    cli_add_int(p, "cache-admit", "N", &o->cache_admit, 0, 100, "write what was computed N times; 0, 1 = at once");
    cli_add_string(p, "cache-load", "WHAT", &o->cache_load, "auto: load when that is faster than computing; always (auto)");
}

static void add_port_options(cli_parser *p, serve_options *o)
{
    cli_add_string(p, "host", "ADDRESS", &o->host, "numeric address to serve on (127.0.0.1)");
    cli_add_int(p, "port", "N", &o->port, 0, 65535, "port (8000); 0 = a free one");
    cli_add_int(p, "http-threads", "N", &o->http_threads, 0, 256, "threads that read and write connections; 0 = 16");
    cli_add_string(p, "tls-cert", "FILE", &o->tls_cert, "certificate chain in PEM: serve HTTPS");
    cli_add_string(p, "tls-key", "FILE", &o->tls_key, "its key in PEM");
    cli_add_string(p, "admin-host", "ADDRESS", &o->admin_host, "address of the admin API (127.0.0.1)");
    cli_add_int(p, "admin-port", "N", &o->admin_port, -1, 65535, "port of the admin API; 0 = a free one; -1 = none (default)");
    cli_add_string(p, "admin-key", "KEY", &o->admin_key, "key of the admin API; needed unless it is on a loopback address");
    cli_mark_secret(p);
}

static void add_access_options(cli_parser *p, serve_options *o)
{
    cli_add_list(p, "api-key", "KEY", &o->api_keys, "a key that may use the API; may be repeated");
    cli_mark_secret(p);
    cli_add_string(p, "api-keys-file", "FILE", &o->api_keys_file, "lines KEY TENANT [rate=N] [concurrency=N] [priority=N]");
    cli_add_flag(p, "trust-tenant-header", &o->trust_tenant_header, "without keys: the header x-tenant names the tenant");
    cli_add_int(p, "rate-limit", "N", &o->rate_limit, 0, 60000000, "requests a minute of a key, of all when there are none; 0 = no limit");
    cli_add_int(p, "concurrency-limit", "N", &o->concurrency_limit, 0, 1 << 30, "requests of a key at a time; 0 = no limit");
    cli_add_string(p, "cors-origin", "ORIGIN", &o->cors_origin, "web pages of this origin may use the API; * = all (default: none)");
}

static void add_limit_options(cli_parser *p, serve_options *o)
{
    cli_add_int(p, "max-body-mb", "N", &o->max_body_mb, 1, INT64_C(1) << 20, "largest request body in MiB (32)");
    cli_add_int(p, "max-body-memory-mb", "N", &o->max_body_memory_mb, 1, INT64_C(1) << 30, "all bodies that are being read, in MiB (1024)");
    cli_add_int(p, "max-header-kb", "N", &o->max_header_kb, 1, 1024, "largest head of a request in KiB (16)");
    cli_add_int(p, "max-connections", "N", &o->max_connections, 0, 1 << 20, "0 = 16,384, or what the limit of open files allows");
    cli_add_int(p, "max-connections-per-address", "N", &o->max_connections_per_address, 0, 1 << 20, "0 = no limit");
    cli_add_real(p, "header-seconds", "S", &o->header_seconds, 0.001, MOST_SECONDS, "longest wait for a request's head (60)");
    cli_add_real(p, "body-seconds", "S", &o->body_seconds, 0.001, MOST_SECONDS, "longest wait for its body (120)");
    cli_add_real(p, "idle-seconds", "S", &o->idle_seconds, 1, MOST_SECONDS, "a connection on which nothing moves is closed (60)");
    cli_add_real(p, "queue-seconds", "S", &o->queue_seconds, 0, MOST_SECONDS, "a request must have begun by then; 0 = no limit");
    cli_add_real(p, "call-seconds", "S", &o->call_seconds, 0, MOST_SECONDS, "a request must have ended by then; 0 = no limit");
    cli_add_real(p, "keep-alive-seconds", "S", &o->keep_alive_seconds, 0.01, 3600, "between signs of life in a silent stream (15)");
    cli_add_real(p, "drain-seconds", "S", &o->drain_seconds, 0, MOST_SECONDS, "behind SIGTERM requests may go on so long (30)");
}

void serve_add_options(cli_parser *p, serve_options *o)
{
    add_model_options(p, o);
    add_cache_options(p, o);
    add_port_options(p, o);
    add_access_options(p, o);
    add_limit_options(p, o);
    cli_add_string(p, "access-log", "FILE", &o->access_log, "JSON lines, one a request; - = standard error (default: none)");
    cli_add_string(p, "otlp-endpoint", "URL", &o->otlp_endpoint, "trace collector (OTLP, JSON), as in http://host:4318/v1/traces");
    cli_add_flag(p, "json", &o->json, "the line that says where it serves is JSON");
}

static int check_cache(const cli_parser *p, const serve_options *o)
{
    const struct {
        const char *name;
        const char *text;
    } sizes[] = {{"cache-bytes", o->cache_bytes},
                 {"cache-shared-bytes", o->cache_shared_bytes},
                 {"cache-ram", o->cache_ram},
                 {"cache-tenant-bytes", o->cache_tenant_bytes}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (cli_size(sizes[i].text) < 0) {
            return cli_usage(p, "--%s: '%s' is no size: a number of bytes, or with K, M, G or T behind it, up to 1024T", sizes[i].name,
                             sizes[i].text);
        }
    }
    if (o->cache_load != NULL && strcmp(o->cache_load, "auto") != 0 && strcmp(o->cache_load, "always") != 0) {
        return cli_usage(p, "--cache-load: '%s' is neither auto nor always", o->cache_load);
    }
    if ((o->cache_dir != NULL || o->cache_shared != NULL || cli_size(o->cache_ram) > 0) && o->no_prefix_cache) {
        return cli_usage(p, "--no-prefix-cache leaves nothing to be kept in a cache");
    }
    return CLI_OK;
}

int serve_check_options(const cli_parser *p, const serve_options *o)
{
    const int code = cli_check_replay(p, &o->engine);
    if (code != CLI_OK) {
        return code;
    }
    if (cli_check_draft(p, &o->draft) != CLI_OK) {
        return CLI_USAGE;
    }
    if ((o->tls_cert != NULL) != (o->tls_key != NULL)) {
        return cli_usage(p, "--tls-cert and --tls-key go together");
    }
    if (o->admin_port < 0 && (o->admin_key != NULL || o->admin_host != NULL)) {
        return cli_usage(p, "the admin API needs --admin-port");
    }
    return check_cache(p, o);
}

static int64_t in_seconds(double days)
{
    const double seconds = days * 86400;
    return seconds > 1 ? (int64_t)seconds : 1;
}

static void get_engine(const serve_options *o, di_engine_options *out)
{
    cli_get_engine(&o->engine, out);
    out->max_tokens = o->max_context;
    out->kv_bytes = o->kv_mb * MIB;
    out->draft = cli_draft_on(&o->draft);
    out->cache = (di_cache_options){
        .ram_bytes = cli_size(o->cache_ram),
        .dir = o->cache_dir,
        .dir_bytes = cli_size(o->cache_bytes),
        .shared_dir = o->cache_shared,
        .shared_bytes = cli_size(o->cache_shared_bytes),
        .tenant_bytes = cli_size(o->cache_tenant_bytes),
        .ttl_s = {[DI_CACHE_CHAT] = in_seconds(o->cache_chat_days), [DI_CACHE_AGENT] = in_seconds(o->cache_agent_days)},
        .admit = (int32_t)o->cache_admit,
        .load = o->cache_load != NULL && strcmp(o->cache_load, "always") == 0 ? DI_CACHE_LOAD_ALWAYS : DI_CACHE_LOAD_AUTO,
    };
}

void serve_get_service(const serve_options *o, di_service_options *out)
{
    *out = (di_service_options){
        .scheduler =
            {
                .step_tokens = (int32_t)o->step_tokens,
                .max_running = (int32_t)o->max_running,
                .max_waiting = o->max_waiting,
                .draft_tokens = cli_draft_tokens(&o->draft),
                .draft_auto = cli_draft_auto(&o->draft),
            },
        .recipe =
            {
                .thinking_off = o->thinking_off,
                .max_tokens_bound = (uint32_t)o->max_tokens_bound,
                .max_request_bytes = (size_t)(o->max_request_mb * MIB),
                .max_messages = (uint32_t)o->max_messages,
            },
        .model_name = o->model_name,
        .n_prepare_threads = (int32_t)o->prepare_threads,
        .max_calls = o->max_calls,
        .max_unread_bytes = (size_t)(o->max_unread_kb * KIB),
        .no_cache = o->no_prefix_cache,
        .deepseek_exact = o->deepseek_exact,
        .verify = cli_draft_verify(&o->draft, DI_VERIFY_BLOCK),
    };
    get_engine(o, &out->engine);
}

static int32_t in_ms(double seconds)
{
    return (int32_t)(seconds * 1000);
}

void serve_get_server(const serve_options *o, srv_options *out)
{
    *out = (srv_options){
        .host = o->host,
        .port = (int32_t)o->port,
        .threads = (int32_t)o->http_threads,
        .tls_cert = o->tls_cert,
        .tls_key = o->tls_key,
        .admin = o->admin_port >= 0,
        .admin_host = o->admin_host,
        .admin_port = o->admin_port >= 0 ? (int32_t)o->admin_port : 0,
        .admin_key = o->admin_key,
        .api_keys = o->api_keys.items,
        .n_api_keys = o->api_keys.n,
        .api_keys_file = o->api_keys_file,
        .trust_tenant_header = o->trust_tenant_header,
        .rate_limit = (int32_t)o->rate_limit,
        .concurrency_limit = (int32_t)o->concurrency_limit,
        .cors_origin = o->cors_origin,
        .max_body_bytes = o->max_body_mb * MIB,
        .max_body_memory = o->max_body_memory_mb * MIB,
        .max_header_bytes = (int32_t)(o->max_header_kb * KIB),
        .max_connections = (int32_t)o->max_connections,
        .max_connections_per_address = (int32_t)o->max_connections_per_address,
        .header_timeout = in_ms(o->header_seconds),
        .body_timeout = in_ms(o->body_seconds),
        .idle_timeout = in_ms(o->idle_seconds),
        .queue_timeout = (int64_t)(o->queue_seconds * 1000),
        .call_timeout = (int64_t)(o->call_seconds * 1000),
        .keep_alive = in_ms(o->keep_alive_seconds),
        .access_log = o->access_log,
        .otlp_endpoint = o->otlp_endpoint,
    };
}
