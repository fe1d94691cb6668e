/* chat_service.c - a service: opening and closing, submitting, draining, tenants, figures.
 *
 * Closing cancels all calls, waits until the last has left its way, and only then ends the threads in the order of the way. So no
 * thread ever has to look whether the next one is still there. Calls that the user has not freed by then stay readable; the last one
 * frees the struct. */
#include "chat/chat_cache.h"
#include "chat/chat_compile.h"
#include "chat/chat_int.h"
#include "chat/chat_metrics.h"

#define DEFAULT_MODEL_NAME "DeepSeek-V4.1-Flash"
#define OTHER_MODEL_NAME "DeepSeek-V4-Pro" /* the recipe's second name */
#define DEFAULT_PREPARE_THREADS 2
#define THINK_END "</think>"
#define DEFAULT_MAX_CALLS 20000
#define DEFAULT_MAX_WAITING 100000 /* of the scheduler */
#define DEFAULT_UNREAD_BYTES ((size_t)1 << 20)

/* --- Names ------------------------------------------------------------------------------------------------------------------------- */

static bool knows_name(const di_service *s, const char *name, size_t n)
{
    for (size_t i = 0; i < s->n_names; i++) {
        if (strlen(s->names[i]) == n && memcmp(s->names[i], name, n) == 0) {
            return true;
        }
    }
    return false;
}

di_status chat_check_model(const di_service *s, const char *name, size_t n, di_error *err)
{
    if (knows_name(s, name, n)) {
        return DI_OK;
    }
    buf list;
    buf_init(&list, 256);
    for (size_t i = 0; i < s->n_names; i++) {
        buf_printf(&list, "%s%s", i > 0 ? ", " : "", s->names[i]);
    }
    err_set(err, DI_E_ARGUMENT, "The supported API model names are %s, but you passed %.*s.", list.size > 0 ? list.data : s->model_name,
            n < 128 ? (int)n : 128, name);
    buf_fini(&list);
    return DI_E_ARGUMENT;
}

static bool add_name(di_service *s, const char *name)
{
    if (knows_name(s, name, strlen(name))) {
        return true;
    }
    s->names[s->n_names] = strdup(name);
    return s->names[s->n_names] != NULL && ++s->n_names > 0;
}

/* The service's own name, those of the recipe, those of the options. */
static di_status open_recipe(di_service *s, const di_service_options *o, di_error *err)
{
    di_recipe_options recipe = o->recipe;
    const size_t n = o->recipe.n_aliases;
    bool listed = strcmp(s->model_name, DEFAULT_MODEL_NAME) == 0 || strcmp(s->model_name, OTHER_MODEL_NAME) == 0;
    di_model_alias *const aliases = ar_calloc(n + 1, sizeof *aliases);
    s->names = n < SIZE_MAX - 3 ? ar_calloc(n + 3, sizeof *s->names) : NULL;
    if (aliases == NULL || s->names == NULL) {
        free(aliases);
        return err_memory(err, "model names", n * sizeof *aliases);
    }
    bool copied = add_name(s, s->model_name) && add_name(s, DEFAULT_MODEL_NAME) && add_name(s, OTHER_MODEL_NAME);
    for (size_t i = 0; i < n && copied; i++) {
        aliases[i] = o->recipe.aliases[i];
        if (aliases[i].name != NULL) { /* else the recipe says what is wrong */
            listed |= strcmp(aliases[i].name, s->model_name) == 0;
            copied = add_name(s, aliases[i].name);
        }
    }
    aliases[n] = (di_model_alias){.name = s->model_name, .version = DI_V41};
    recipe.aliases = aliases;
    recipe.n_aliases = listed ? n : n + 1;
    const di_status status = copied ? di_recipe_open(s->tokenizer, &recipe, &s->recipe, err) : err_memory(err, "model names", n);
    free(aliases);
    return status;
}

/* --- Opening and closing -------------------------------------------------------------------------------------------------------------- */

static di_status check_options(const di_service_options *o, di_error *err)
{
    if (o->n_prepare_threads < 0 || o->n_prepare_threads > CHAT_MAX_PREPARE_THREADS) {
        return err_set(err, DI_E_ARGUMENT, "n_prepare_threads: must be 0 (2 threads) or 1..%d, not %d", CHAT_MAX_PREPARE_THREADS,
                       (int)o->n_prepare_threads);
    }
    if (o->max_calls < 0) {
        return err_set(err, DI_E_ARGUMENT, "max_calls: is negative");
    }
    if (o->model_name != NULL && o->model_name[0] == '\0') {
        return err_set(err, DI_E_ARGUMENT, "model_name: is empty");
    }
    return DI_OK;
}

static void set_limits(di_service *s, const di_service_options *o)
{
    di_model_info info;
    di_model_get_info(s->model, &info);
    const int64_t asked = o->engine.max_tokens;
    s->eos = info.eos_token_id;
    s->context = asked > 0 && asked < info.max_tokens ? asked : info.max_tokens;
    s->max_calls = o->max_calls > 0 ? o->max_calls : DEFAULT_MAX_CALLS;
    s->max_waiting = o->scheduler.max_waiting > 0 ? o->scheduler.max_waiting : DEFAULT_MAX_WAITING;
    s->max_unread_bytes = o->max_unread_bytes > 0 ? o->max_unread_bytes : DEFAULT_UNREAD_BYTES;
    s->no_cache = o->no_cache;
    s->deepseek_exact = o->deepseek_exact;
    s->verify = o->verify;
    s->think_end = di_tokenizer_find(s->tokenizer, THINK_END, sizeof THINK_END - 1);
}

static di_status open_engine(di_service *s, const di_service_options *o, di_script_fn script, void *script_user, di_error *err)
{
    di_engine_options engine = o->engine;
    di_scheduler_options scheduler = o->scheduler;
    di_status status = di_vocabulary_new(s->tokenizer, &s->eos, 1, &s->vocabulary, err);
    scheduler.on_events = chat_engine_on_events;
    scheduler.user = s;
    scheduler.script = script;
    scheduler.script_user = script_user;
    scheduler.vocabulary = s->vocabulary;
    if (status == DI_OK && engine.backend != NULL && strcmp(engine.backend, "null") == 0) {
        engine.backend = "ref"; /* which never runs */
        if (script == NULL) {
            status = chat_null_new(s->tokenizer, s->eos, &s->null, err);
            scheduler.script = chat_null_script;
            scheduler.script_user = s->null;
        }
    }
    if (status == DI_OK) {
        status = di_engine_open(s->model, &engine, &s->engine, err);
        if (status == DI_OK) {
            di_engine_get_weight_stats(s->engine, &s->engine_thread.stats.weights); /* nobody else runs yet */
        }
    }
    return status == DI_OK ? di_scheduler_new(s->engine, &scheduler, &s->scheduler, err) : status;
}

static di_status start_threads(di_service *s, int32_t n_prepare, di_error *err)
{
    di_status status = chat_output_start(s, err);
    if (status == DI_OK) {
        status = chat_engine_start(s, err);
    }
    if (status == DI_OK) {
        status = chat_compiler_new(s, &s->compiler, err);
    }
    return status == DI_OK ? chat_prepare_start(s, n_prepare > 0 ? n_prepare : DEFAULT_PREPARE_THREADS, err) : status;
}

static di_status open_service(di_service *s, const di_service_options *o, di_script_fn script, void *script_user, di_error *err)
{
    di_status status = check_options(o, err);
    if (status != DI_OK) {
        return status;
    }
    set_limits(s, o);
    s->model_name = strdup(o->model_name != NULL ? o->model_name : DEFAULT_MODEL_NAME);
    if (s->model_name == NULL) {
        return err_memory(err, "model name", 1);
    }
    status = open_recipe(s, o, err);
    if (status == DI_OK) {
        status = chat_metrics_new(s->model_name, &s->metrics, err);
    }
    if (status == DI_OK) {
        status = open_engine(s, o, script, script_user, err);
    }
    return status == DI_OK ? start_threads(s, o->n_prepare_threads, err) : status;
}

di_status chat_service_open(const di_model *model, const di_tokenizer *tokenizer, const di_service_options *options, di_script_fn script,
                            void *script_user, di_service **out, di_error *err)
{
    const di_service_options defaults = {.no_cache = false};
    if (model == NULL || tokenizer == NULL) {
        return err_set(err, DI_E_ARGUMENT, "a service needs a model and a tokenizer");
    }
    di_service *const s = calloc(1, sizeof *s);
    if (s == NULL) {
        return err_memory(err, "service", sizeof *s);
    }
    s->model = model;
    s->tokenizer = tokenizer;
    pthread_mutex_init(&s->calls, NULL);
    pthread_mutex_init(&s->cancelling, NULL);
    pthread_cond_init(&s->left, NULL);
    pthread_mutex_init(&s->preparation.queue, NULL);
    pthread_cond_init(&s->preparation.filled, NULL);
    pthread_mutex_init(&s->engine_thread.shown, NULL);
    chat_link_init(&s->link);
    const di_status status = open_service(s, options != NULL ? options : &defaults, script, script_user, err);
    if (status != DI_OK) {
        di_service_close(s);
        return status;
    }
    *out = s;
    return DI_OK;
}

di_status di_service_open(const di_model *model, const di_tokenizer *tokenizer, const di_service_options *options, di_service **out,
                          di_error *err)
{
    return chat_service_open(model, tokenizer, options, NULL, NULL, out, err);
}

static void wait_until_left(di_service *s)
{
    pthread_mutex_lock(&s->calls);
    while (s->n_on_way > 0) {
        pthread_cond_wait(&s->left, &s->calls);
    }
    pthread_mutex_unlock(&s->calls);
}

void chat_service_free(di_service *s)
{
    pthread_mutex_destroy(&s->calls);
    free(s);
}

void di_service_close(di_service *s)
{
    if (s == NULL) {
        return;
    }
    di_service_drain(s);
    di_service_cancel_all(s);
    wait_until_left(s);
    chat_prepare_stop(s);
    chat_compiler_free(s->compiler);
    chat_engine_stop(s);
    chat_output_stop(s);
    di_scheduler_free(s->scheduler);
    di_engine_close(s->engine);
    di_vocabulary_free(s->vocabulary);
    chat_null_free(s->null);
    di_recipe_close(s->recipe);
    chat_metrics_free(s->metrics);
    for (size_t i = 0; i < s->n_names; i++) {
        free(s->names[i]);
    }
    free(s->names);
    free(s->model_name);
    free(s->engine_thread.tenants);
    free(s->engine_thread.names);
    chat_link_fini(&s->link);
    pthread_mutex_destroy(&s->engine_thread.shown);
    pthread_cond_destroy(&s->preparation.filled);
    pthread_mutex_destroy(&s->preparation.queue);
    pthread_cond_destroy(&s->left);
    pthread_mutex_destroy(&s->cancelling);
    pthread_mutex_lock(&s->calls);
    s->closed = true;
    const bool last = s->n_calls == 0;
    pthread_mutex_unlock(&s->calls);
    if (last) {
        chat_service_free(s);
    }
}

const char *di_service_model_name(const di_service *service)
{
    return service->model_name;
}

int64_t di_service_context(const di_service *service)
{
    return service->context;
}

/* --- Calls -------------------------------------------------------------------------------------------------------------------------- */

/* Takes a place among the calls. */
static di_status enter(di_service *s, di_call *c, di_error *err)
{
    di_status status = DI_OK;
    pthread_mutex_lock(&s->calls);
    if (atomic_load(&s->draining)) {
        status = err_set(err, DI_E_STATE, "the service is draining: it accepts no more requests");
    } else if (s->n_calls >= s->max_calls) {
        status = err_set(err, DI_E_LIMIT, "there are %lld calls already, which is the most", (long long)s->n_calls);
    } else {
        c->next_of_all = s->first_call;
        if (s->first_call != NULL) {
            s->first_call->previous_of_all = c;
        }
        s->first_call = c;
        s->n_calls++;
        s->n_on_way++;
    }
    pthread_mutex_unlock(&s->calls);
    return status;
}

di_status di_service_submit(di_service *s, const di_call_options *options, di_call **out, di_error *err)
{
    di_call *c = NULL;
    di_status status = chat_call_new(s, options, &c, err);
    if (status != DI_OK) {
        return status;
    }
    status = enter(s, c, err);
    if (status != DI_OK) {
        chat_call_discard(c);
        return status;
    }
    atomic_fetch_add(&s->n_pending, 1);
    atomic_fetch_add(&s->n_phase[DI_CALL_PREPARING], 1);
    *out = c; /* before anything can wake for it */
    chat_prepare_add(s, c);
    return DI_OK;
}

void di_service_drain(di_service *s)
{
    pthread_mutex_lock(&s->calls); /* who entered before has entered, who comes later sees it */
    atomic_store(&s->draining, true);
    pthread_mutex_unlock(&s->calls);
}

int64_t di_service_pending(const di_service *s)
{
    return atomic_load(&s->n_pending);
}

void di_service_cancel_all(di_service *s)
{
    di_call *cancelled = NULL;
    pthread_mutex_lock(&s->cancelling);
    pthread_mutex_lock(&s->calls);
    for (di_call *c = s->first_call; c != NULL; c = c->next_of_all) {
        if (chat_call_try_get(c)) {
            c->next_cancelled = cancelled;
            cancelled = c;
        }
    }
    pthread_mutex_unlock(&s->calls);
    while (cancelled != NULL) {
        di_call *const next = cancelled->next_cancelled;
        chat_call_cancel(cancelled, CHAT_CANCEL_SHUTDOWN);
        chat_call_put(cancelled);
        cancelled = next;
    }
    pthread_mutex_unlock(&s->cancelling);
}

/* --- Tenants ------------------------------------------------------------------------------------------------------------------------ */

/* A command about a tenant, copied with the name behind it. */
static di_status send(di_service *s, chat_command command, const char *name, di_error *err)
{
    const size_t n = name != NULL ? strlen(name) : 0;
    if ((name == NULL && command.kind != CHAT_PURGE_CACHE) || n > DI_MAX_TENANT_BYTES) {
        return err_set(err, DI_E_ARGUMENT, "name: must be there and have at most %d bytes", DI_MAX_TENANT_BYTES);
    }
    chat_command *const copy = malloc(sizeof *copy + n + 1);
    if (copy == NULL) {
        return err_memory(err, "tenant", sizeof *copy + n);
    }
    command.name = name != NULL ? memcpy(copy + 1, name, n + 1) : NULL;
    *copy = command;
    chat_link_command(&s->link, copy);
    return DI_OK;
}

di_status di_service_purge_cache(di_service *s, const char *tenant, di_error *err)
{
    return send(s, (chat_command){.kind = CHAT_PURGE_CACHE}, tenant, err);
}

di_status di_service_pin_cache(di_service *s, const char *tenant, bool pinned, di_error *err)
{
    return send(s, (chat_command){.kind = CHAT_PIN_CACHE, .pinned = pinned}, tenant, err);
}

di_status di_service_set_tenant(di_service *s, const char *name, di_tenant_state state, di_error *err)
{
    if ((int)state < DI_TENANT_OPEN || state > DI_TENANT_DRAINING) {
        return err_set(err, DI_E_ARGUMENT, "state: %d is none", (int)state);
    }
    return send(s, (chat_command){.kind = CHAT_SET_TENANT, .state = state}, name, err);
}

size_t chat_give(const char *text, size_t n, char *out, size_t capacity)
{
    if (capacity > 0) {
        const size_t written = n < capacity ? n : capacity - 1;
        if (written > 0) {
            memcpy(out, text, written);
        }
        out[written] = '\0';
    }
    return n;
}

size_t di_service_tenants(const di_service *service, char *out, size_t capacity)
{
    static const char none[] = "{\"tenants\":[]}";
    chat_engine *const e = &((di_service *)(uintptr_t)service)->engine_thread;
    pthread_mutex_lock(&e->shown);
    const bool some = e->tenants != NULL;
    const size_t n = chat_give(some ? e->tenants : none, some ? e->n_tenants : sizeof none - 1, out, capacity);
    pthread_mutex_unlock(&e->shown);
    return n;
}

size_t di_service_cache(const di_service *service, char *out, size_t capacity)
{
    di_service_stats stats;
    buf text;
    buf_init(&text, SIZE_MAX);
    di_service_get_stats(service, &stats);
    chat_cache_write(&stats.cache, &text);
    const size_t n = chat_give(text.data, text.failed ? 0 : text.size, out, capacity);
    buf_fini(&text);
    return n;
}

/* --- Figures ------------------------------------------------------------------------------------------------------------------------ */

void di_service_get_stats(const di_service *service, di_service_stats *out)
{
    di_service *const s = (di_service *)(uintptr_t)service;
    pthread_mutex_lock(&s->engine_thread.shown);
    *out = s->engine_thread.stats;
    pthread_mutex_unlock(&s->engine_thread.shown);
    out->n_preparing = atomic_load(&s->n_phase[DI_CALL_PREPARING]);
    out->n_waiting = atomic_load(&s->n_phase[DI_CALL_QUEUED]);
    out->n_running = atomic_load(&s->n_phase[DI_CALL_PREFILL]) + atomic_load(&s->n_phase[DI_CALL_DECODE]);
    out->n_output = atomic_load(&s->n_flushing);
}

size_t di_service_metrics(const di_service *service, char *out, size_t capacity)
{
    di_service_stats stats;
    chat_compiler_stats grammars;
    buf page;
    buf_init(&page, SIZE_MAX);
    di_service_get_stats(service, &stats);
    chat_compiler_get_stats(service->compiler, &grammars);
    chat_metrics_write(service->metrics, &stats, &grammars, &page);
    const size_t n = chat_give(page.data, page.failed ? 0 : page.size, out, capacity);
    buf_fini(&page);
    return n;
}
