/* srv_log.c - the access log: one line of JSON for each request, when it has ended. What a client sends is in it only where it was
 * checked before (id, tenant) or escaped. */
#include "server/srv_int.h"

#include "core/log_text.h"

#include <string.h>

static const char *finish_name(di_finish finish)
{
    switch (finish) {
    case DI_FINISH_NONE:
        return NULL;
    case DI_FINISH_STOP:
    case DI_FINISH_STOP_STRING:
        return "stop";
    case DI_FINISH_LENGTH:
        return "length";
    case DI_FINISH_FILTER:
        return "content_filter";
    case DI_FINISH_TOOL_CALLS:
        return "tool_calls";
    case DI_FINISH_CUT:
        return "cut";
    }
    return NULL;
}

static const char *method_name(int method)
{
    switch (method) {
    case SRV_GET:
        return "GET";
    case SRV_HEAD:
        return "HEAD";
    case SRV_POST:
        return "POST";
    case SRV_OPTIONS:
        return "OPTIONS";
    default:
        return "other";
    }
}

static void add_call(buf *line, const di_call_info *info)
{
    log_json_int(line, "prompt_tokens", info->usage.prompt_tokens);
    log_json_int(line, "cached_tokens", info->usage.cached_tokens);
    log_json_int(line, "completion_tokens", info->usage.completion_tokens);
    log_json_int(line, "reasoning_tokens", info->usage.reasoning_tokens);
    log_json_ms(line, "queue_ms", info->admitted_at > 0 ? info->admitted_at - info->submitted_at : -1);
    log_json_ms(line, "ttft_ms", info->first_token_at > 0 ? info->first_token_at - info->submitted_at : -1);
    log_json_string(line, "finish", finish_name(info->finish));
    log_json_string(line, "error", info->error != DI_OK ? di_status_name(info->error) : NULL);
}

void srv_log_request(srv_request *r, const di_call_info *info, const char *left, int64_t now)
{
    buf line;
    if (r->server->log == NULL) {
        return;
    }
    buf_init(&line, LOG_MAX_LINE);
    log_json_begin(&line);
    log_json_string(&line, "request_id", r->id);
    log_json_string(&line, "client", r->conn->address);
    log_json_string(&line, "tenant", r->tenant);
    log_json_string(&line, "method", method_name(r->method));
    log_json_string(&line, "route", r->route->label);
    log_json_int(&line, "status", r->status);
    log_json_bool(&line, "stream", atomic_load(&r->streaming));
    log_json_int(&line, "received_bytes", (int64_t)r->n_received);
    log_json_int(&line, "sent_bytes", (int64_t)r->n_sent);
    if (r->call != NULL) {
        log_json_string(&line, "response_id", di_call_id(r->call));
        add_call(&line, info);
    }
    log_json_ms(&line, "total_ms", now - r->started_at);
    log_json_string(&line, "left", left);
    log_json_string(&line, "refused", r->refusal != 0 ? r->why : NULL);
    log_json_string(&line, "trace_id", r->trace.trace_id);
    log_json_end(&line, r->server->log);
    buf_fini(&line);
}
