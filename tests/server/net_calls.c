/* net_calls.c - requests that the service answers: whole and streamed, however the bytes come, and what keeps a silent stream alive. */
#include "rig.h"
#include "support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void an_answer_comes_whole(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    rig_start(&g, &(srv_options){.port = 0});
    di_call *const call = rig_call(&g, &w, "/v1/chat/completions");
    assert_int_equal(fake_seen_of(call)->route, DI_ROUTE_CHAT);
    assert_string_equal(fake_seen_of(call)->body, "{}");
    fake_phase(call, DI_CALL_QUEUED);
    fake_phase(call, DI_CALL_PREFILL);
    fake_phase(call, DI_CALL_DECODE);
    fake_write(call, "{\"answer\":");
    fake_write(call, "42}");
    fake_status(call, 200, false, 0);
    fake_end(call, DI_FINISH_STOP);
    wire_read(&w, &r);
    wire_expect(&r, 200, "{\"answer\":42}");
    assert_string_equal(wire_header(&r, "Content-Type"), "application/json");
    assert_string_equal(wire_header(&r, "Content-Length"), "13");
    assert_string_equal(wire_header(&r, "Cache-Control"), "no-store");
    wire_fini(&r);
    fake_wait_freed(call);
    assert_false(fake_is_cancelled(call));
    wire_close(&w);
    rig_stop(&g);
}

static void a_large_answer_comes_whole(void **state)
{
    (void)state;
    enum { N = 3000000 };
    rig g;
    wire w;
    wire_reply r;
    char *const text = malloc(N + 1);
    assert_non_null(text);
    for (size_t i = 0; i < N; i++) {
        text[i] = (char)('a' + i % 23);
    }
    text[N] = '\0';
    rig_start(&g, &(srv_options){.port = 0});
    di_call *const call = rig_call(&g, &w, "/v1/responses");
    fake_write(call, text);
    fake_status(call, 200, false, 0);
    fake_end(call, DI_FINISH_STOP);
    wire_read(&w, &r);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.body.size, N);
    assert_memory_equal(r.body.data, text, N);
    wire_fini(&r);
    wire_close(&w);
    rig_stop(&g);
    free(text);
}

static void refusals_of_the_service_are_passed_on(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    rig_start(&g, &(srv_options){.port = 0});
    di_call *const call = rig_call(&g, &w, "/v1/messages");
    fake_write(call, "{\"type\":\"error\"}");
    fake_status(call, 429, false, 7);
    fake_end(call, DI_FINISH_NONE);
    wire_read(&w, &r);
    wire_expect(&r, 429, "{\"type\":\"error\"}");
    assert_string_equal(wire_header(&r, "Retry-After"), "7");
    assert_string_equal(wire_header(&r, "Content-Type"), "application/json");
    wire_fini(&r);
    static const struct {
        di_status status;
        int http_status;
        const char *part;
    } cases[] = {
        {DI_E_LIMIT, 429, "rate_limit_exceeded"},
        {DI_E_STATE, 503, "shutting down"},
        {DI_E_MEMORY, 503, "out of memory"},
        {DI_E_INTERNAL, 500, "refused by the test"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake_refuse(g.service, cases[i].status);
        wire_post(&w, "/v1/chat/completions", "", "{}");
        wire_read(&w, &r);
        wire_expect(&r, cases[i].http_status, cases[i].part);
        assert_int_equal(wire_header(&r, "Retry-After") != NULL, cases[i].http_status != 500);
        wire_fini(&r);
    }
    wire_close(&w);
    rig_stop(&g);
}

static void a_stream_comes_as_it_is_made(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    rig_start(&g, &(srv_options){.port = 0});
    di_call *const call = rig_call(&g, &w, "/v1/chat/completions");
    fake_phase(call, DI_CALL_QUEUED);
    fake_status(call, 200, true, 0);
    wire_read_head(&w, &r); /* before anything is in it */
    assert_int_equal(r.status, 200);
    assert_string_equal(wire_header(&r, "Content-Type"), "text/event-stream; charset=utf-8");
    assert_string_equal(wire_header(&r, "Cache-Control"), "no-cache");
    assert_string_equal(wire_header(&r, "X-Accel-Buffering"), "no");
    assert_string_equal(wire_header(&r, "Transfer-Encoding"), "chunked");
    for (int i = 0; i < 100; i++) {
        char text[32];
        snprintf(text, sizeof text, "data: %d\n\n", i);
        fake_write(call, text);
        wire_read_more(&w, &r, text); /* each before the next one is made */
    }
    fake_write(call, "data: [DONE]\n\n");
    fake_end(call, DI_FINISH_STOP);
    wire_read_rest(&w, &r, true);
    assert_non_null(strstr(r.body.data, "data: 99\n\ndata: [DONE]\n\n"));
    wire_fini(&r);
    fake_wait_freed(call);
    /* and on the same connection the next request */
    wire_post(&w, "/v1/chat/completions", "", "{\"a\":1}");
    di_call *const next = fake_call(g.service, 1);
    assert_string_equal(fake_seen_of(next)->body, "{\"a\":1}");
    fake_status(next, 200, false, 0);
    fake_end(next, DI_FINISH_STOP);
    wire_read(&w, &r);
    assert_int_equal(r.status, 200);
    assert_string_equal(wire_header(&r, "Content-Length"), "0");
    wire_fini(&r);
    wire_close(&w);
    rig_stop(&g);
}

static void clients_of_http_1_0_get_their_streams_too(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    char text[3001];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    rig_start(&g, &(srv_options){.port = 0});
    wire_open(&w, g.url);
    wire_send(&w, "POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
    di_call *const call = fake_call(g.service, 0);
    fake_status(call, 200, true, 0);
    fake_write(call, text);
    fake_end(call, DI_FINISH_STOP);
    wire_read(&w, &r);
    assert_int_equal(r.status, 200);
    assert_null(wire_header(&r, "Transfer-Encoding"));
    assert_string_equal(r.body.data, text);
    wire_fini(&r);
    wire_close(&w);
    rig_stop(&g);
}

static void silent_streams_show_signs_of_life(void **state)
{
    (void)state;
    rig g;
    wire chat;
    wire messages;
    wire_reply a;
    wire_reply b;
    rig_start(&g, &(srv_options){.keep_alive = 30});
    di_call *const first = rig_call(&g, &chat, "/v1/chat/completions");
    di_call *const second = rig_call(&g, &messages, "/v1/messages");
    fake_status(first, 200, true, 0);
    fake_status(second, 200, true, 0);
    wire_read_head(&chat, &a);
    wire_read_head(&messages, &b);
    wire_read_more(&chat, &a, ": keep-alive\n\n: keep-alive\n\n");
    wire_read_more(&messages, &b, "event: ping\ndata: {\"type\": \"ping\"}\n\n");
    fake_write(first, "data: 1\n\n");
    wire_read_more(&chat, &a, "\n\ndata: 1\n\n");
    wire_read_more(&chat, &a, "data: 1\n\n: keep-alive\n\n");
    fake_end(first, DI_FINISH_STOP);
    fake_end(second, DI_FINISH_STOP);
    wire_read_rest(&chat, &a, true);
    wire_read_rest(&messages, &b, true);
    wire_fini(&a);
    wire_fini(&b);
    wire_close(&chat);
    wire_close(&messages);
    assert_true(wire_metric(g.url, "deepinfer_http_keep_alives_total") >= 4);
    rig_stop(&g);
}

static void requests_may_come_byte_by_byte(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    static const char request[] = "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
                                  "Content-Length: 10\r\n\r\n{\"b\":\"\xc3\xa9\"}";
    rig_start(&g, &(srv_options){.port = 0});
    fake_answer_all(g.service);
    wire_open(&w, g.url);
    for (size_t i = 0; i + 1 < sizeof request; i++) {
        wire_send_bytes(&w, request + i, 1);
    }
    wire_read(&w, &r);
    wire_expect(&r, 200, "{\"echo\":\"{\\\"b\\\":\\\"\xc3\xa9\\\"}\"}");
    wire_fini(&r);
    wire_close(&w);
    rig_stop(&g);
}

static void bodies_may_come_in_chunks_and_with_expectations(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    rig_start(&g, &(srv_options){.port = 0});
    fake_answer_all(g.service);
    wire_open(&w, g.url);
    wire_send(&w, "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    wire_send(&w, "1\r\n{\r\n5;note=x\r\n\"a\":1\r\n1\r\n}\r\n0\r\nx-trailer: y\r\n\r\n");
    wire_read(&w, &r);
    wire_expect(&r, 200, "{\"echo\":\"{\\\"a\\\":1}\"}");
    wire_fini(&r);
    wire_send(&w, "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
                  "Content-Length: 2\r\n\r\n");
    wire_read_head(&w, &r);
    assert_int_equal(r.status, 100);
    wire_fini(&r);
    wire_send(&w, "{}");
    wire_read(&w, &r);
    wire_expect(&r, 200, "echo");
    wire_fini(&r);
    /* What would be refused anyway is refused before it is sent. */
    wire_send(&w, "POST /nothing HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    wire_read(&w, &r);
    wire_expect(&r, 404, "not_found");
    wire_fini(&r);
    wire_wait_end(&w);
    wire_close(&w);
    wire_open(&w, g.url);
    wire_send(&w, "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n");
    wire_read_head(&w, &r);
    assert_int_equal(r.status, 400);
    wire_fini(&r);
    wire_close(&w);
    rig_stop(&g);
}

static void requests_may_be_pipelined(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    rig_start(&g, &(srv_options){.port = 0});
    wire_open(&w, g.url);
    wire_post(&w, "/v1/chat/completions", "x-request-id: one\r\n", "{\"n\":1}");
    wire_post(&w, "/v1/chat/completions", "x-request-id: two\r\n", "{\"n\":2}");
    wire_send(&w, "GET /health HTTP/1.1\r\nHost: t\r\nx-request-id: three\r\n\r\n");
    for (size_t i = 0; i < 2; i++) {
        di_call *const call = fake_call(g.service, i);
        assert_int_equal(fake_n_calls(g.service), i + 1); /* one at a time */
        fake_write(call, fake_seen_of(call)->body);
        fake_status(call, 200, false, 0);
        fake_end(call, DI_FINISH_STOP);
        wire_read(&w, &r);
        wire_expect(&r, 200, i == 0 ? "{\"n\":1}" : "{\"n\":2}");
        assert_string_equal(wire_header(&r, "x-request-id"), i == 0 ? "one" : "two");
        wire_fini(&r);
    }
    wire_read(&w, &r);
    wire_expect(&r, 200, "ok");
    assert_string_equal(wire_header(&r, "x-request-id"), "three");
    wire_fini(&r);
    wire_close(&w);
    rig_stop(&g);
}

static void bytes_are_passed_on_whatever_they_are(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    rig_start(&g, &(srv_options){.port = 0});
    fake_answer_all(g.service);
    wire_open(&w, g.url);
    wire_send(&w, "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n");
    wire_send_bytes(&w, "\xff\xfe{\0}", 5);
    wire_read(&w, &r);
    assert_int_equal(r.status, 200);
    assert_int_equal(fake_seen_of(fake_call(g.service, 0))->n_body, 5);
    assert_memory_equal(fake_seen_of(fake_call(g.service, 0))->body, "\xff\xfe{\0}", 5);
    wire_fini(&r);
    wire_post(&w, "/v1/completions", "", "");
    wire_read(&w, &r);
    assert_int_equal(r.status, 200);
    assert_int_equal(fake_seen_of(fake_call(g.service, 1))->n_body, 0);
    wire_fini(&r);
    wire_close(&w);
    rig_stop(&g);
}

static void keys_have_a_rate_and_a_concurrency(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire other;
    wire_reply r;
    rig_start(&g, &(srv_options){.rate_limit = 2});
    fake_answer_all(g.service);
    wire_open(&w, g.url);
    for (int i = 0; i < 3; i++) {
        wire_post(&w, "/v1/chat/completions", "", "{}");
        wire_read(&w, &r);
        wire_expect(&r, i < 2 ? 200 : 429, i < 2 ? "echo" : "at most 2 a minute");
        if (i == 2) {
            const char *const after = wire_header(&r, "Retry-After");
            assert_non_null(after);
            assert_in_range(strtol(after, NULL, 10), 1, 30);
        }
        wire_fini(&r);
    }
    wire_send(&w, "GET /v1/models HTTP/1.1\r\nHost: t\r\n\r\n"); /* only calls count */
    wire_read(&w, &r);
    assert_int_equal(r.status, 200);
    wire_fini(&r);
    wire_close(&w);
    rig_stop(&g);

    static const char *const keys[] = {"a", "b"};
    rig_start(&g, &(srv_options){.api_keys = keys, .n_api_keys = 2, .concurrency_limit = 1});
    wire_open(&w, g.url);
    wire_open(&other, g.url);
    wire_post(&w, "/v1/messages", "x-api-key: a\r\n", "{}");
    di_call *const call = fake_call(g.service, 0);
    wire_post(&other, "/v1/messages", "x-api-key: a\r\n", "{}");
    wire_read(&other, &r);
    wire_expect(&r, 429, "{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\"");
    assert_string_equal(wire_header(&r, "Retry-After"), "1");
    wire_fini(&r);
    wire_post(&other, "/v1/messages", "x-api-key: b\r\n", "{}");
    di_call *const second = fake_call(g.service, 1);
    fake_status(second, 200, false, 0);
    fake_end(second, DI_FINISH_STOP);
    wire_read(&other, &r);
    assert_int_equal(r.status, 200);
    wire_fini(&r);
    fake_status(call, 200, false, 0);
    fake_end(call, DI_FINISH_STOP);
    wire_read(&w, &r);
    assert_int_equal(r.status, 200);
    wire_fini(&r);
    fake_wait_freed(call);
    fake_answer_all(g.service);
    wire_post(&other, "/v1/messages", "x-api-key: a\r\n", "{}");
    wire_read(&other, &r);
    assert_int_equal(r.status, 200);
    wire_fini(&r);
    wire_close(&w);
    wire_close(&other);
    rig_stop(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_comes_whole),
        cmocka_unit_test(a_large_answer_comes_whole),
        cmocka_unit_test(refusals_of_the_service_are_passed_on),
        cmocka_unit_test(a_stream_comes_as_it_is_made),
        cmocka_unit_test(clients_of_http_1_0_get_their_streams_too),
        cmocka_unit_test(silent_streams_show_signs_of_life),
        cmocka_unit_test(requests_may_come_byte_by_byte),
        cmocka_unit_test(bodies_may_come_in_chunks_and_with_expectations),
        cmocka_unit_test(requests_may_be_pipelined),
        cmocka_unit_test(bytes_are_passed_on_whatever_they_are),
        cmocka_unit_test(keys_have_a_rate_and_a_concurrency),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
