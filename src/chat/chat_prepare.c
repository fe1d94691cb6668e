/* chat_prepare.c - the preparation threads: a body to what the engine needs, and the routes that need no engine (chat_tokens.c).
 *
 * Everything that can be wrong with a request is found here, off the engine's and the output's thread. A call that is cancelled or too
 * late before its turn is not read at all. */
#include "chat/chat_cache.h"
#include "chat/chat_compile.h"
#include "chat/chat_int.h"

#define KEPT_SCRATCH_IDS ((size_t)1 << 18)
#define ENCODE_THREADS 1 /* a request alone; the pool works on several */

/* --- Scratch ------------------------------------------------------------------------------------------------------------------------- */

di_status chat_scratch_reserve(chat_scratch *scratch, size_t n, di_error *err)
{
    if (n <= scratch->capacity) {
        return DI_OK;
    }
    int32_t *const ids = ar_calloc(n, sizeof *ids);
    if (ids == NULL) {
        return err_memory(err, "token ids", n);
    }
    free(scratch->ids);
    scratch->ids = ids;
    scratch->capacity = n;
    return DI_OK;
}

void chat_scratch_trim(chat_scratch *scratch)
{
    if (scratch->capacity > KEPT_SCRATCH_IDS) {
        free(scratch->ids);
        *scratch = (chat_scratch){.ids = NULL};
    }
}

/* --- What routes share ---------------------------------------------------------------------------------------------------------------- */

di_status chat_read_request(di_call *c, di_protocol protocol, const char *body, size_t n, di_request **out, di_error *err)
{
    size_t n_images;
    di_request *request = NULL;
    const di_status status = rec_request_read(c->service->recipe, protocol, body, n, &c->constraint.refusal, &request, err);
    if (status != DI_OK) {
        return status;
    }
    const di_image_ref *const images = di_request_images(request, &n_images);
    if (n_images > 0) {
        err_set(err, DI_E_UNSUPPORTED, "%s: images are not supported by this server yet", images[0].path);
        di_request_free(request);
        return DI_E_UNSUPPORTED;
    }
    *out = request;
    return DI_OK;
}

/* Valid UTF-8 never needs more ids than bytes. */
di_status chat_encode_request(const di_request *request, chat_scratch *scratch, size_t *n_ids, di_error *err)
{
    size_t n_text;
    di_request_prompt(request, &n_text);
    const di_status status = chat_scratch_reserve(scratch, n_text, err);
    return status == DI_OK ? di_request_encode(request, ENCODE_THREADS, scratch->ids, scratch->capacity, n_ids, err) : status;
}

di_status chat_encode_text(const di_service *s, const char *text, size_t n, chat_scratch *scratch, size_t *n_ids, di_error *err)
{
    const di_status status = chat_scratch_reserve(scratch, n, err);
    if (status != DI_OK) {
        return status;
    }
    return di_tokenizer_encode(s->tokenizer, text, n, DI_ENCODE_SPECIAL, scratch->ids, scratch->capacity, n_ids, err);
}

di_status chat_decode_ids(const di_service *s, const int32_t *ids, size_t n, char **text, size_t *n_text, di_error *err)
{
    size_t size = 0;
    di_status status = di_tokenizer_decode(s->tokenizer, ids, n, 0, NULL, 0, &size, err);
    char *const out = status == DI_OK ? malloc(size + 1) : NULL;
    if (status == DI_OK && out == NULL) {
        status = err_memory(err, "text of tokens", size);
    }
    if (status == DI_OK) {
        status = di_tokenizer_decode(s->tokenizer, ids, n, 0, out, size, &size, err);
    }
    if (status != DI_OK) {
        free(out);
        return status;
    }
    *text = out;
    *n_text = size;
    return DI_OK;
}

di_status chat_call_alloc(di_call *c, size_t n_tasks, int32_t n, di_error *err)
{
    const size_t n_choices = n_tasks * (size_t)n; /* both bounded by CHAT_MAX_CHOICES */
    c->tasks = ar_calloc(n_tasks, sizeof *c->tasks);
    c->choices = ar_calloc(n_choices, sizeof *c->choices);
    if (c->tasks == NULL || c->choices == NULL) {
        return err_memory(err, "choices of a call", n_tasks * sizeof *c->tasks + n_choices * sizeof *c->choices);
    }
    c->n_tasks = n_tasks;
    c->n_choices = (int32_t)n_choices;
    c->choices_a_task = n;
    for (size_t i = 0; i < n_tasks; i++) {
        c->tasks[i].call = c;
        c->tasks[i].first_choice = (int32_t)i * n;
    }
    return DI_OK;
}

di_status chat_call_set_prompt(di_call *c, size_t task, const int32_t *ids, size_t n, di_error *err)
{
    int32_t *const copy = ar_calloc(n, sizeof *copy);
    if (copy == NULL) {
        return err_memory(err, "prompt", n * sizeof *copy);
    }
    memcpy(copy, ids, n * sizeof *copy);
    c->tasks[task].prompt = copy;
    c->tasks[task].n_prompt = n;
    c->n_prompt_tokens += (int64_t)n;
    return DI_OK;
}

/* --- Conversations ----------------------------------------------------------------------------------------------------------------- */

static di_protocol protocol_of(di_route route)
{
    return route == DI_ROUTE_RESPONSES ? DI_RESPONSES : route == DI_ROUTE_MESSAGES ? DI_MESSAGES : DI_CHAT;
}

static di_status set_sampling(di_call *c, const di_inference *inference, di_error *err)
{
    di_sampling *const o = &c->sampling;
    di_sampling_default(o);
    o->temperature = inference->temperature;
    o->top_p = inference->top_p;
    o->presence_penalty = inference->presence_penalty;
    o->frequency_penalty = inference->frequency_penalty;
    o->bias = inference->bias;
    o->n_bias = inference->n_bias;
    o->stop_ids = &c->service->eos;
    o->n_stop_ids = 1;
    o->seed = inference->seed;
    c->verify = inference->verify >= 0 ? (di_verify)inference->verify : inference->has_seed ? DI_VERIFY_COUPLED : c->service->verify;
    c->logprobs = inference->logprobs || inference->top_logprobs >= 0;
    o->n_top_logprobs = inference->top_logprobs > 0 ? inference->top_logprobs : 0;
    return inference->has_seed ? DI_OK : chat_random(&o->seed, sizeof o->seed, err);
}

static di_status set_cache(di_call *c, const di_inference *inference, di_error *err)
{
    chat_cache text;
    const chat_cache body = {
        .class_id = inference->cache_class, .ttl_s = inference->cache_ttl_s, .pinned = inference->cache_pinned};
    const di_status status = chat_cache_read_text(c->cache_text, &text, err);
    c->cache = chat_cache_settle(&body, &text, inference->has_tools);
    return status;
}

static di_status new_reply(di_call *c, di_error *err)
{
    di_reply *reply = NULL;
    const di_reply_options options = {.id = c->id, .created = c->created, .model = c->service->model_name};
    const di_status status = di_reply_new(c->service->recipe, c->request, &options, &reply, err);
    c->writer_fns = &chat_reply_writer;
    c->writer = reply;
    return status;
}

di_status chat_prepare_conversation(di_call *c, chat_scratch *scratch, di_error *err)
{
    size_t n_ids;
    di_status status = chat_read_request(c, protocol_of(c->route), c->body, c->n_body, &c->request, err);
    if (status == DI_OK) {
        status = chat_encode_request(c->request, scratch, &n_ids, err);
    }
    if (status == DI_OK) {
        status = di_request_max_tokens(c->request, (int64_t)n_ids, c->service->context, &c->max_tokens, err);
    }
    if (status == DI_OK) {
        status = chat_call_alloc(c, 1, di_request_inference(c->request)->n, err);
    }
    if (status == DI_OK) {
        status = chat_call_set_prompt(c, 0, scratch->ids, n_ids, err);
    }
    if (status == DI_OK) {
        status = set_sampling(c, di_request_inference(c->request), err);
    }
    if (status == DI_OK) {
        status = chat_constraint_request(&c->constraint, c->request, c->service->deepseek_exact, err);
    }
    if (status == DI_OK) {
        status = set_cache(c, di_request_inference(c->request), err);
    }
    if (status == DI_OK) {
        c->stream = di_request_stream(c->request);
        c->thinking = di_request_thinking(c->request);
        status = new_reply(c, err);
    }
    return status;
}

/* --- Threads ------------------------------------------------------------------------------------------------------------------------- */

/* *done: the call has its answer, or none is needed. */
static di_status prepare_route(di_call *c, chat_scratch *scratch, bool *done, di_error *err)
{
    *done = true;
    switch (c->route) {
    case DI_ROUTE_CHAT:
    case DI_ROUTE_RESPONSES:
    case DI_ROUTE_MESSAGES:
        *done = false;
        return chat_prepare_conversation(c, scratch, err);
    case DI_ROUTE_COMPLETIONS:
        *done = false;
        return chat_prepare_completions(c, scratch, done, err);
    case DI_ROUTE_COUNT_TOKENS:
        return chat_count_tokens(c, scratch, err);
    case DI_ROUTE_TOKENIZE:
        return chat_tokenize(c, scratch, err);
    case DI_ROUTE_DETOKENIZE:
        return chat_detokenize(c, scratch, err);
    }
    return err_set(err, DI_E_INTERNAL, "route %d", (int)c->route);
}

/* The queue of this room counts as a queue. */
bool chat_is_late(const di_call *c)
{
    const int64_t now = clock_now_ns();
    return (c->queue_deadline != 0 && now >= c->queue_deadline) || (c->deadline != 0 && now >= c->deadline);
}

void chat_finish(di_call *c)
{
    if (chat_publish(c) != CHAT_PUBLISHED) {
        c->draft.http_status = 503;
        c->draft.error = DI_E_MEMORY;
        (void)chat_publish(c);
    }
    chat_leave(c);
}

static void prepare(di_call *c, chat_scratch *scratch)
{
    di_error err;
    bool done = false;
    if (chat_call_cancelled(c) != CHAT_NOT_CANCELLED) {
        chat_end_cancelled(c);
        chat_finish(c);
        return;
    }
    if (chat_is_late(c)) {
        chat_failure late = chat_late_failure();
        chat_end_failed(c, &late);
        chat_finish(c);
        return;
    }
    const di_status status = prepare_route(c, scratch, &done, &err);
    free(c->body);
    c->body = NULL;
    if (status != DI_OK) {
        chat_failure failure = chat_fail_status(status, &err);
        failure.refusal = c->constraint.refusal;
        chat_end_failed(c, &failure);
        chat_finish(c);
    } else if (done) {
        chat_end(c);
        chat_finish(c);
    } else if (c->constraint.field != NULL) {
        chat_compile(c->service->compiler, c);
    } else {
        chat_link_command(&c->service->link, &c->submit);
    }
}

/* NULL: the service closes. */
static di_call *next_call(chat_preparation *p)
{
    pthread_mutex_lock(&p->queue);
    while (p->first == NULL && !p->stop) {
        pthread_cond_wait(&p->filled, &p->queue);
    }
    di_call *const c = p->first;
    if (c != NULL) {
        p->first = c->next_to_prepare;
        p->last = p->first != NULL ? p->last : NULL;
    }
    pthread_mutex_unlock(&p->queue);
    return c;
}

static void *prepare_main(void *arg)
{
    di_service *const s = arg;
    chat_scratch scratch = {.ids = NULL};
    di_call *c;
    while ((c = next_call(&s->preparation)) != NULL) {
        prepare(c, &scratch);
        chat_scratch_trim(&scratch);
    }
    free(scratch.ids);
    return NULL;
}

void chat_prepare_add(di_service *s, di_call *c)
{
    chat_preparation *const p = &s->preparation;
    c->next_to_prepare = NULL;
    pthread_mutex_lock(&p->queue);
    if (p->last != NULL) {
        p->last->next_to_prepare = c;
    } else {
        p->first = c;
    }
    p->last = c;
    pthread_cond_signal(&p->filled);
    pthread_mutex_unlock(&p->queue);
}

di_status chat_prepare_start(di_service *s, int32_t n_threads, di_error *err)
{
    chat_preparation *const p = &s->preparation;
    for (int32_t i = 0; i < n_threads; i++) {
        const int failed = pthread_create(&p->threads[i], NULL, prepare_main, s);
        if (failed != 0) {
            return err_set_errno(err, failed, "cannot start preparation thread %d of %d", (int)i + 1, (int)n_threads);
        }
        p->n_threads++;
    }
    return DI_OK;
}

void chat_prepare_stop(di_service *s)
{
    chat_preparation *const p = &s->preparation;
    pthread_mutex_lock(&p->queue);
    p->stop = true;
    pthread_cond_broadcast(&p->filled);
    pthread_mutex_unlock(&p->queue);
    for (int32_t i = 0; i < p->n_threads; i++) {
        pthread_join(p->threads[i], NULL);
    }
    p->n_threads = 0;
}
