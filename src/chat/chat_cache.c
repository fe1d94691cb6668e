/* chat_cache.c - what a request says of how its prefix is kept (docs/kv_cache.md), and the cache's figures as JSON.
 *
 * The same three things come as a field of the body, {"cache": {"class": "agent", "ttl": 3600, "pin": true}}, and as text beside it (a
 * header over HTTP), "class=agent; ttl=3600; pin". What the body says wins, thing by thing; who says nothing gets class agent when the
 * request declares tools, else chat. */
#include "chat/chat_cache.h"

#include "chat/chat_fields.h"

#define MAX_TTL_S INT64_C(315360000) /* ten years */

typedef struct word {
    const char *text;
    size_t n;
} word;

static bool is(word w, const char *text) { return w.n == strlen(text) && memcmp(w.text, text, w.n) == 0; }

static bool class_of(word w, int32_t *out)
{
    *out = is(w, "agent") ? DI_CACHE_AGENT : DI_CACHE_CHAT;
    return *out == DI_CACHE_AGENT || is(w, "chat");
}

static word trimmed(const char *begin, const char *end)
{
    while (begin < end && *begin == ' ') {
        begin++;
    }
    while (begin < end && end[-1] == ' ') {
        end--;
    }
    return (word){.text = begin, .n = (size_t)(end - begin)};
}

static bool read_ttl(word w, int64_t *out)
{
    int64_t value = 0;
    for (size_t i = 0; i < w.n; i++) {
        if (w.text[i] < '0' || w.text[i] > '9' || value > MAX_TTL_S) {
            return false;
        }
        value = value * 10 + (w.text[i] - '0');
    }
    *out = value;
    return w.n > 0 && value >= 1 && value <= MAX_TTL_S;
}

static bool read_part(word w, chat_cache *out)
{
    const char *const sign = memchr(w.text, '=', w.n);
    if (sign == NULL) {
        out->pinned = is(w, "pin") || out->pinned;
        return w.n == 0 || is(w, "pin");
    }
    const word name = trimmed(w.text, sign);
    const word value = trimmed(sign + 1, w.text + w.n);
    return is(name, "class") ? class_of(value, &out->class_id) : is(name, "ttl") && read_ttl(value, &out->ttl_s);
}

di_status chat_cache_read_text(const char *text, chat_cache *out, di_error *err)
{
    *out = (chat_cache){.class_id = CHAT_CACHE_UNSAID};
    for (const char *at = text; at != NULL;) {
        const char *const end = strchr(at, ';');
        if (!read_part(trimmed(at, end != NULL ? end : at + strlen(at)), out)) {
            return err_set(err, DI_E_ARGUMENT,
                           "cache: '%.80s' is not understood: parts are class=chat or class=agent, ttl=SECONDS (1 to %lld), pin, with ; "
                           "between them",
                           text, (long long)MAX_TTL_S);
        }
        at = end != NULL ? end + 1 : NULL;
    }
    return DI_OK;
}

di_status chat_cache_read_body(const js_value *body, chat_cache *out, di_error *err)
{
    const js_value *const cache = js_get(body, "cache");
    const char *name = NULL;
    size_t n = 0;
    *out = (chat_cache){.class_id = CHAT_CACHE_UNSAID};
    if (js_kind_of(cache) == JS_NULL) {
        return DI_OK;
    }
    if (js_kind_of(cache) != JS_OBJECT) {
        return err_set(err, DI_E_ARGUMENT, "cache: expected an object, not %s", js_kind_name(js_kind_of(cache)));
    }
    di_status status = chat_get_string(cache, "class", &name, &n, err);
    if (status == DI_OK && name != NULL && !class_of((word){.text = name, .n = n}, &out->class_id)) {
        status = err_set(err, DI_E_ARGUMENT, "class: must be chat or agent");
    }
    if (status == DI_OK) {
        status = chat_get_int(cache, "ttl", 1, MAX_TTL_S, &out->ttl_s, err);
    }
    if (status == DI_OK) {
        status = chat_get_bool(cache, "pin", &out->pinned, err);
    }
    if (status != DI_OK) {
        err_prefix(err, "cache");
    }
    return status;
}

di_task_cache chat_cache_settle(const chat_cache *body, const chat_cache *text, bool with_tools)
{
    const int32_t otherwise = text->class_id != CHAT_CACHE_UNSAID ? text->class_id : with_tools ? DI_CACHE_AGENT : DI_CACHE_CHAT;
    return (di_task_cache){.class_id = (di_cache_class)(body->class_id != CHAT_CACHE_UNSAID ? body->class_id : otherwise),
                           .ttl_s = body->ttl_s > 0 ? body->ttl_s : text->ttl_s,
                           .pinned = body->pinned || text->pinned};
}

/* ---- figures ---- */

static void write_tier(const char *name, const di_cache_tier_stats *t, buf *out)
{
    const struct {
        const char *name;
        int64_t value;
    } fields[] = {{"bytes", t->bytes},
                  {"max_bytes", t->max_bytes},
                  {"units", t->units},
                  {"snapshots", t->snapshots},
                  {"restored_units", t->restored_units},
                  {"restored_snapshots", t->restored_snapshots},
                  {"restored_bytes", t->restored_bytes},
                  {"stored_bytes", t->stored_bytes},
                  {"written_bytes", t->written_bytes},
                  {"evicted", t->evicted},
                  {"expired", t->expired},
                  {"corrupt", t->corrupt},
                  {"failed", t->failed},
                  {"refused", t->refused}};
    buf_printf(out, "{\"name\":\"%s\"", name);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        buf_printf(out, ",\"%s\":%lld", fields[i].name, (long long)fields[i].value);
    }
    buf_puts(out, "}");
}

void chat_cache_write(const di_cache_stats *c, buf *out)
{
    static const char *const names[DI_CACHE_TIERS] = {"memory", "dir", "shared"};
    bool first = true;
    buf_puts(out, "{\"tiers\":[");
    for (int i = 0; i < DI_CACHE_TIERS; i++) {
        if (c->tiers[i].max_bytes > 0) {
            buf_puts(out, first ? "" : ",");
            write_tier(names[i], &c->tiers[i], out);
            first = false;
        }
    }
    buf_printf(out, "],\"lookups\":%lld,\"loads\":%lld,\"recomputes\":%lld,\"late\":%lld,\"incomplete\":%lld,\"load_ns\":%lld}",
               (long long)c->lookups, (long long)c->loads, (long long)c->recomputes, (long long)c->late, (long long)c->incomplete,
               (long long)c->load_ns);
}
