/* chat_support.c - see chat_support.h. */
#include "chat_support.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

#define PATIENCE_NS INT64_C(60000000000)
#define KV_BYTES ((int64_t)64 << 20)

static di_model *model;

/* --- Model --------------------------------------------------------------------------------------------------------------------- */

int chat_setup(void **state)
{
    di_error err = {0};
    char path[1024];
    (void)state;
    snprintf(path, sizeof path, "%s/models/demo", getenv("DI_SOURCE_DIR") != NULL ? getenv("DI_SOURCE_DIR") : ".");
    if (di_model_open(path, NULL, &model, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return 0;
}

int chat_teardown(void **state)
{
    (void)state;
    di_model_close(model);
    return 0;
}

const di_model *chat_model(void)
{
    return model;
}

const di_tokenizer *chat_tokenizer(void)
{
    return di_model_tokenizer(model);
}

/* --- Script -------------------------------------------------------------------------------------------------------------------- */

void held_init(held_script *h, const char *text, int64_t allowed)
{
    di_model_info info;
    memset(h, 0, sizeof *h);
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->changed, NULL);
    di_model_get_info(model, &info);
    const size_t capacity = sizeof h->ids / sizeof h->ids[0] - 1;
    assert_int_equal(di_tokenizer_encode(chat_tokenizer(), text, strlen(text), DI_ENCODE_SPECIAL, h->ids, capacity, &h->n, NULL), DI_OK);
    assert_true(h->n <= capacity);
    h->ids[h->n++] = info.eos_token_id;
    h->allowed = allowed;
}

void held_fini(held_script *h)
{
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->mutex);
}

void held_allow(held_script *h, int64_t allowed)
{
    pthread_mutex_lock(&h->mutex);
    h->allowed = allowed;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->mutex);
}

void held_wait(held_script *h, int64_t given)
{
    pthread_mutex_lock(&h->mutex);
    while (h->given < given) {
        pthread_cond_wait(&h->changed, &h->mutex);
    }
    pthread_mutex_unlock(&h->mutex);
}

int32_t held_fn(void *user, void *task_user, int32_t choice, int64_t n)
{
    held_script *const h = user;
    (void)task_user;
    (void)choice;
    pthread_mutex_lock(&h->mutex);
    while (h->given >= h->allowed) {
        pthread_cond_wait(&h->changed, &h->mutex);
    }
    h->given++;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->mutex);
    return h->ids[(size_t)n % h->n];
}

/* --- Service ------------------------------------------------------------------------------------------------------------------- */

di_service *chat_open(held_script *h, const di_service_options *options)
{
    di_error err = {0};
    di_service *s = NULL;
    di_service_options o = options != NULL ? *options : (di_service_options){.no_cache = false};
    o.engine.backend = "null";
    o.engine.n_threads = 1;
    o.engine.kv_bytes = o.engine.kv_bytes != 0 ? o.engine.kv_bytes : KV_BYTES;
    if (chat_service_open(model, chat_tokenizer(), &o, h != NULL ? held_fn : NULL, h, &s, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return s;
}

void chat_close(di_service *s, held_script *h)
{
    if (h != NULL) {
        held_allow(h, INT64_MAX);
    }
    di_service_close(s);
    if (h != NULL) {
        held_fini(h);
    }
}

di_call *chat_submit_with(di_service *s, const di_call_options *options)
{
    di_error err = {0};
    di_call *c = NULL;
    if (di_service_submit(s, options, &c, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return c;
}

di_call *chat_submit(di_service *s, di_route route, const char *body)
{
    return chat_submit_with(s, &(di_call_options){.route = route, .body = body, .n = strlen(body)});
}

di_call_info chat_info(const di_call *c)
{
    di_call_info info;
    di_call_get(c, &info);
    return info;
}

void chat_until(bool (*holds)(void *arg), void *arg)
{
    const int64_t end = clock_now_ns() + PATIENCE_NS;
    while (!holds(arg)) {
        if (clock_now_ns() > end) {
            fail_msg("waited in vain");
        }
        sched_yield();
    }
}

di_call_info chat_wait_phase(const di_call *c, di_call_phase phase)
{
    const int64_t end = clock_now_ns() + PATIENCE_NS;
    for (;;) {
        const di_call_info info = chat_info(c);
        if (info.phase >= phase) {
            return info;
        }
        if (clock_now_ns() > end) {
            fail_msg("phase %d is not reached, it is %d", (int)phase, (int)info.phase);
        }
        sched_yield();
    }
}

char *chat_read_all(di_call *c)
{
    buf all;
    char part[1000];
    buf_init(&all, SIZE_MAX);
    for (;;) {
        assert_true(di_call_wait(c, PATIENCE_NS / 1000000));
        const di_call_info info = chat_info(c);
        size_t n;
        while ((n = di_call_read(c, part, sizeof part)) > 0) {
            assert_true(buf_append(&all, part, n));
        }
        if (info.phase == DI_CALL_ENDED && chat_info(c).unread == 0) {
            break;
        }
    }
    assert_true(buf_append(&all, "", 0));
    return all.data;
}

char *chat_ask(di_service *s, di_route route, const char *body, int http_status)
{
    di_call *const c = chat_submit(s, route, body);
    char *const text = chat_read_all(c);
    if (chat_info(c).http_status != http_status) {
        fail_msg("status %d, expected %d: %s", chat_info(c).http_status, http_status, text);
    }
    di_call_free(c);
    return text;
}

/* --- Texts --------------------------------------------------------------------------------------------------------------------- */

void expect_part(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("no %s in: %s", part, text);
    }
}

void expect_no_part(const char *text, const char *part)
{
    if (strstr(text, part) != NULL) {
        fail_msg("%s in: %s", part, text);
    }
}

size_t count_parts(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        n++;
    }
    return n;
}
