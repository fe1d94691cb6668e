/* net_torture.c - memory that ends while a request is admitted and answered: for each allocation of ours in turn, on whichever thread,
 * the request gets an answer or a closed connection, and the next one is served as ever.
 *
 * ctest: wrap=malloc,calloc,realloc,strdup,aligned_alloc */
#include "rig.h"
#include "support/refuse.h"
#include "support/unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Allocations that still succeed; negative = all do. The test's own thread is not concerned. */
static _Atomic long left = -1;
static _Atomic long failed;
static _Thread_local bool is_test;

static bool refuse(void)
{
    if (is_test) {
        return false;
    }
    long now = atomic_load(&left);
    while (now > 0 && !atomic_compare_exchange_weak(&left, &now, now - 1)) {
    }
    if (now == 0) {
        atomic_fetch_add(&failed, 1);
    }
    return now == 0;
}

static void request_while_memory_ends(const rig *g, const char *request, size_t n)
{
    long k = 0;
    for (;; k++) {
        wire w;
        atomic_store(&failed, 0);
        atomic_store(&left, k);
        wire_open(&w, g->url);
        wire_try_send(&w, request, n);
        wire_wait_end(&w); /* they ask for it: Connection: close */
        atomic_store(&left, -1);
        int status = 0;
        if (w.in.size > 0) {
            assert_int_equal(sscanf(w.in.data, "HTTP/1.1 %d", &status), 1);
        }
        wire_close(&w);
        if (status != 0 && status != 200 && status != 503) {
            fail_msg("status %d when allocation %ld fails", status, k);
        }
        if (atomic_load(&failed) == 0) {
            assert_int_equal(status, 200);
            break;
        }
        rig_ask(g, "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 200, "echo");
    }
    print_message("succeeds with %ld allocations\n", k);
    assert_true(k > 0);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    rig g;
    char request[6000];
    is_test = true;
    rig_start(&g, &(srv_options){.port = 0});
    fake_answer_all(g.service);
    const size_t head = (size_t)snprintf(request, sizeof request,
                                         "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nConnection: close\r\n"
                                         "Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n");
    memset(request + head, ' ', 5000);
    request_while_memory_ends(&g, request, head + 5000);
    static const char *const pages[] = {"/v1/models", "/v1/models/fake/model", "/metrics"};
    for (size_t i = 0; i < 3; i++) {
        const size_t n = (size_t)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n", pages[i]);
        request_while_memory_ends(&g, request, n);
    }
    rig_stop(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
