/* net_leaving.c - clients that leave, at every phase of their request; readers too slow to serve; heads and bodies that do not come. */
#include "rig.h"
#include "support/unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* How a client can go. */
typedef enum departure { CLOSE, RESET, HALF_CLOSE } departure;

static void depart(wire *w, departure how)
{
    if (how == CLOSE) {
        wire_close(w);
    } else if (how == RESET) {
        wire_reset(w);
    } else {
        assert_int_equal(shutdown(w->fd, SHUT_WR), 0);
        wire_wait_end(w);
        wire_close(w);
    }
}

static void a_leaving_client_cancels_its_call_in_every_phase(void **state)
{
    (void)state;
    static const struct {
        di_call_phase phase;
        const char *name;
    } phases[] = {{DI_CALL_PREPARING, "preparing"}, {DI_CALL_QUEUED, "queued"}, {DI_CALL_PREFILL, "prefill"}, {DI_CALL_DECODE, "decode"}};
    for (int stream = 0; stream <= 1; stream++) {
        rig g;
        rig_start(&g, &(srv_options){.port = 0});
        for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
            for (departure how = CLOSE; how <= HALF_CLOSE; how++) {
                wire w;
                di_call *const call = rig_call(&g, &w, "/v1/responses");
                if (phases[i].phase != DI_CALL_PREPARING) {
                    fake_phase(call, phases[i].phase);
                }
                if (stream && phases[i].phase != DI_CALL_PREPARING) {
                    wire_reply r;
                    fake_status(call, 200, true, 0);
                    fake_write(call, "data: 1\n\n");
                    wire_read_head(&w, &r);
                    wire_read_more(&w, &r, "data: 1\n\n");
                    wire_fini(&r);
                }
                depart(&w, how);
                fake_wait_cancelled(call);
                fake_wait_freed(call);
            }
            char metric[96];
            snprintf(metric, sizeof metric, "deepinfer_http_disconnects_total{phase=\"%s\"}", phases[i].name);
            wire_wait_metric(g.url, metric, 3);
        }
        wire_wait_metric(g.url, "deepinfer_http_requests_in_flight", 1); /* the one that asks */
        rig_stop(&g);
    }
}

static void a_client_that_has_everything_may_go(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    rig_start(&g, &(srv_options){.port = 0});
    di_call *const call = rig_call(&g, &w, "/v1/chat/completions");
    fake_status(call, 200, true, 0);
    fake_write(call, "data: [DONE]\n\n");
    fake_end(call, DI_FINISH_STOP);
    wire_read(&w, &r);
    assert_string_equal(r.body.data, "data: [DONE]\n\n");
    wire_fini(&r);
    wire_close(&w);
    fake_wait_freed(call);
    for (int i = 0; i < 50; i++) { /* a whole answer, and gone at once */
        di_call *const whole = rig_call(&g, &w, "/v1/chat/completions");
        fake_write(whole, "{}");
        fake_status(whole, 200, false, 0);
        fake_end(whole, DI_FINISH_STOP);
        wire_read(&w, &r);
        wire_expect(&r, 200, "{}");
        wire_fini(&r);
        wire_close(&w);
        fake_wait_freed(whole);
    }
    assert_true(wire_metric(g.url, "deepinfer_http_disconnects_total{phase=\"flush\"}") == -1);
    rig_stop(&g);
}

static void a_client_that_leaves_while_it_is_written_to(void **state)
{
    (void)state;
    rig g;
    wire w;
    rig_start(&g, &(srv_options){.port = 0});
    di_call *const call = rig_call(&g, &w, "/v1/chat/completions");
    char text[4097];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    fake_status(call, 200, true, 0);
    /* More than the sockets hold, so that the server is stuck in writing. */
    for (int i = 0; i < 4000; i++) {
        fake_write(call, text);
    }
    fake_end(call, DI_FINISH_STOP);
    wire_reply r;
    wire_read_head(&w, &r);
    wire_fini(&r);
    wire_close(&w);
    fake_wait_freed(call);
    wire_wait_metric(g.url, "deepinfer_http_disconnects_total{phase=\"flush\"}", 1);
    rig_stop(&g);
}

static void a_reader_that_is_too_slow_is_cut(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    rig_start(&g, &(srv_options){.port = 0});
    di_call *const call = rig_call(&g, &w, "/v1/messages");
    char text[4097];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    fake_status(call, 200, true, 0);
    wire_read_head(&w, &r);
    wire_fini(&r);
    for (int i = 0; i < 4000; i++) {
        fake_write(call, text);
    }
    assert_true(fake_unread(call) > 0);
    fake_give_up(call);
    fake_wait_freed(call);
    wire_wait_metric(g.url, "deepinfer_http_slow_readers_total", 1);
    /* Others were served all the while. */
    fake_answer_all(g.service);
    rig_ask(&g, "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 200, "echo");
    wire_wait_end(&w);
    wire_close(&w);
    rig_stop(&g);
}

static void clients_that_leave_while_they_send(void **state)
{
    (void)state;
    rig g;
    wire w;
    rig_start(&g, &(srv_options){.port = 0});
    wire_open(&w, g.url);
    wire_send(&w, "POST /v1/messages HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{");
    wire_wait_metric(g.url, "deepinfer_http_requests_in_flight", 2);
    wire_close(&w);
    wire_wait_metric(g.url, "deepinfer_http_disconnects_total{phase=\"reading\"}", 1);
    wire_open(&w, g.url);
    wire_send(&w, "POST /v1/messages HTTP/1.1\r\nHo");
    wire_close(&w);
    wire_wait_metric(g.url, "deepinfer_http_connections", 1);
    assert_int_equal(fake_n_calls(g.service), 0);
    rig_stop(&g);
}

static void bodies_and_heads_that_do_not_come_end_in_time(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    rig_start(&g, &(srv_options){.body_timeout = 50, .header_timeout = 60000});
    wire_open(&w, g.url);
    wire_send(&w, "POST /v1/messages HTTP/1.1\r\nHost: t\r\nx-request-id: late\r\nContent-Type: application/json\r\n"
                  "Content-Length: 100\r\n\r\n{");
    wire_read(&w, &r);
    wire_expect(&r, 408, "{\"type\":\"error\",\"error\":{\"type\":\"timeout_error\"");
    assert_string_equal(wire_header(&r, "x-request-id"), "late");
    wire_wait_end(&w);
    wire_fini(&r);
    wire_close(&w);
    wire_wait_metric(g.url, "deepinfer_http_requests_total{route=\"messages\",code=\"408\"}", 1);
    rig_stop(&g);
    rig_start(&g, &(srv_options){.header_timeout = 50});
    wire_open(&w, g.url);
    wire_send(&w, "GET /health HTTP/1.1\r\nHost: t\r\nx-slow: ");
    wire_wait_end(&w);
    wire_close(&w);
    /* One that waits for its answer is not idle. */
    di_call *const call = rig_call(&g, &w, "/v1/messages");
    wire other;
    wire_open(&other, g.url);
    wire_wait_end(&other);
    wire_close(&other);
    assert_false(fake_is_cancelled(call));
    fake_status(call, 200, false, 0);
    fake_end(call, DI_FINISH_STOP);
    wire_read(&w, &r);
    assert_int_equal(r.status, 200);
    wire_fini(&r);
    wire_close(&w);
    rig_stop(&g);
}

static void connections_have_a_limit(void **state)
{
    (void)state;
    rig g;
    wire held[4];
    wire w;
    wire_reply r;
    rig_start(&g, &(srv_options){.max_connections_per_address = 4});
    for (size_t i = 0; i < 4; i++) {
        wire_open(&held[i], g.url);
        wire_send(&held[i], "GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
        wire_read(&held[i], &r);
        wire_fini(&r);
    }
    wire_open(&w, g.url);
    wire_wait_end(&w);
    assert_int_equal(w.in.size, 0);
    wire_close(&w);
    wire_send(&held[0], "GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n");
    wire_read(&held[0], &r);
    wire_expect(&r, 200, "\ndeepinfer_http_connections_refused_total 1\n");
    wire_fini(&r);
    for (size_t i = 0; i < 4; i++) {
        wire_close(&held[i]);
    }
    rig_stop(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leaving_client_cancels_its_call_in_every_phase),
        cmocka_unit_test(a_client_that_has_everything_may_go),
        cmocka_unit_test(a_client_that_leaves_while_it_is_written_to),
        cmocka_unit_test(a_reader_that_is_too_slow_is_cut),
        cmocka_unit_test(clients_that_leave_while_they_send),
        cmocka_unit_test(bodies_and_heads_that_do_not_come_end_in_time),
        cmocka_unit_test(connections_have_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
