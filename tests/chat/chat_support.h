/* chat_support.h - a service over the demo model's tokenizer whose tokens come from a script that tests hold and let go. */
#ifndef CHAT_SUPPORT_H
#define CHAT_SUPPORT_H

#include "support/unit.h"

#include "chat/chat_int.h"

/* Every choice gets the same text, then the end of sentence. No more than `allowed` tokens are given; the executor's thread waits for
 * the next one (its own; a test must let it go before the service closes). */
typedef struct held_script {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int32_t ids[1024]; /* [n] */
    size_t n;
    int64_t allowed;
    int64_t given;
} held_script;

/* Opens the model once for a test program. */
int chat_setup(void **state);
int chat_teardown(void **state);
const di_model *chat_model(void);
const di_tokenizer *chat_tokenizer(void);

void held_init(held_script *h, const char *text, int64_t allowed);
void held_fini(held_script *h);
void held_allow(held_script *h, int64_t allowed);
void held_wait(held_script *h, int64_t given); /* until so many tokens were given */
int32_t held_fn(void *user, void *task_user, int32_t choice, int64_t n);

/* A service over the script with small budgets; `options` may be NULL. */
di_service *chat_open(held_script *h, const di_service_options *options);
/* Lets the script go and closes. */
void chat_close(di_service *s, held_script *h);

di_call *chat_submit(di_service *s, di_route route, const char *body);
di_call *chat_submit_with(di_service *s, const di_call_options *options);
di_call_info chat_info(const di_call *c);
/* Waits until the phase is reached or passed; fails the test after a generous time. */
di_call_info chat_wait_phase(const di_call *c, di_call_phase phase);
/* All output up to the end, NUL-terminated; free() it. */
char *chat_read_all(di_call *c);
/* The whole: submit, read all, expect the status, free the call. free() the text. */
char *chat_ask(di_service *s, di_route route, const char *body, int http_status);
/* Waits until the condition holds. */
void chat_until(bool (*holds)(void *arg), void *arg);
/* The text holds the part; says which when not. */
void expect_part(const char *text, const char *part);
void expect_no_part(const char *text, const char *part);
size_t count_parts(const char *text, const char *part);

#define CHAT_HELLO "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]," \
                   "\"thinking\":{\"type\":\"disabled\"}"

#endif
