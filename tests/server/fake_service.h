/* fake_service.h - a service (deepinfer/chat.h) that a test plays: it sees each call that the server submits and says what comes out,
 * byte by byte. The test links this in place of the chat room. All functions may be called from any thread. */
#ifndef TESTS_SERVER_FAKE_SERVICE_H
#define TESTS_SERVER_FAKE_SERVICE_H

#include <deepinfer/chat.h>

di_service *fake_new(void);
void fake_free(di_service *service); /* and all calls; fails the test when one of them was not freed by the server */

/* From now on each call is answered at once: status 200, no stream, {"echo": body}. */
void fake_answer_all(di_service *service);
/* The next submits fail with this; DI_OK ends it. */
void fake_refuse(di_service *service, di_status status);

/* The i-th call that was submitted, waits for it. Good until fake_free, also behind di_call_free. */
di_call *fake_call(di_service *service, size_t i);
size_t fake_n_calls(di_service *service);

void fake_phase(di_call *call, di_call_phase phase);
void fake_status(di_call *call, int http_status, bool stream, int32_t retry_after_s);
void fake_write(di_call *call, const char *text);
void fake_usage(di_call *call, int64_t prompt, int64_t cached, int64_t completion);
void fake_end(di_call *call, di_finish finish);
void fake_give_up(di_call *call); /* as the service does with a stream that nobody reads */

typedef struct fake_seen {
    di_route route;
    char body[4096]; /* the beginning, NUL-terminated */
    size_t n_body;
    char tenant[256];
    char cache[64]; /* "(none)" */
    int32_t priority;
    int64_t queue_timeout_ms;
    int64_t timeout_ms;
} fake_seen;

const fake_seen *fake_seen_of(const di_call *call);
void fake_wait_cancelled(di_call *call);
void fake_wait_freed(di_call *call);
bool fake_is_cancelled(di_call *call);
size_t fake_unread(di_call *call);

/* State that the admin API set last, and of whom. */
void fake_last_cache(di_service *service, char *out, size_t capacity); /* "pin team/a" */
void fake_last_tenant(di_service *service, char *name, size_t capacity, di_tenant_state *state);

#endif
