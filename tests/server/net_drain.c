/* net_drain.c - ends of a server: what was accepted goes on, new calls are told to go elsewhere, and a stop in the middle of everything
 * leaves nothing behind. */
#include "rig.h"
#include "support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE_MS = 60000 };

static void a_drain_finishes_what_was_accepted(void **state)
{
    (void)state;
    rig g;
    wire stream;
    wire whole;
    wire_reply r;
    wire_reply s;
    rig_start(&g, &(srv_options){.port = 0});
    di_call *const first = rig_call(&g, &stream, "/v1/chat/completions");
    di_call *const second = rig_call(&g, &whole, "/v1/messages");
    fake_status(first, 200, true, 0);
    fake_write(first, "data: 1\n\n");
    wire_read_head(&stream, &s);
    wire_read_more(&stream, &s, "data: 1\n\n");
    assert_false(srv_draining(g.server));
    srv_drain(g.server);
    assert_true(srv_draining(g.server));
    rig_ask(&g, "GET /health HTTP/1.1\r\nHost: t\r\n\r\n", 200, "ok");
    rig_ask(&g, "GET /ready HTTP/1.1\r\nHost: t\r\n\r\n", 503, "\"code\":\"overloaded\"");
    rig_ask(&g, "POST /v1/messages HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 503,
            "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"");
    assert_false(srv_wait_idle(g.server, 0));
    fake_write(first, "data: 2\n\n");
    wire_read_more(&stream, &s, "data: 2\n\n");
    fake_write(second, "{}");
    fake_status(second, 200, false, 0);
    fake_end(second, DI_FINISH_STOP);
    wire_read(&whole, &r);
    wire_expect(&r, 200, "{}");
    assert_string_equal(wire_header(&r, "Connection"), "close");
    wire_fini(&r);
    wire_wait_end(&whole);
    assert_false(srv_wait_idle(g.server, 0));
    fake_write(first, "data: [DONE]\n\n");
    fake_end(first, DI_FINISH_STOP);
    wire_read_rest(&stream, &s, true);
    assert_string_equal(s.body.data, "data: 1\n\ndata: 2\n\ndata: [DONE]\n\n");
    wire_fini(&s);
    assert_true(srv_wait_idle(g.server, PATIENCE_MS));
    wire_close(&stream);
    wire_close(&whole);
    rig_stop(&g);
}

static void a_stop_cuts_whatever_is_there(void **state)
{
    (void)state;
    enum { N = 12 };
    rig g;
    wire w[N];
    wire_reply r;
    char text[4097];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    rig_start(&g, &(srv_options){.port = 0});
    for (size_t i = 0; i < N; i++) {
        di_call *const call = rig_call(&g, &w[i], i % 2 == 0 ? "/v1/chat/completions" : "/v1/messages");
        if (i % 3 != 0) { /* the others wait for a status */
            fake_status(call, 200, true, 0);
            wire_read_head(&w[i], &r);
            wire_fini(&r);
        }
        for (int k = 0; i % 3 == 2 && k < 2000; k++) { /* stuck in writing */
            fake_write(call, text);
        }
    }
    wire idle;
    wire sending;
    wire_open(&idle, g.url);
    wire_open(&sending, g.url);
    wire_send(&sending, "POST /v1/messages HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{");
    rig_stop(&g); /* fails when a call was not freed */
    for (size_t i = 0; i < N; i++) {
        wire_wait_end(&w[i]);
        wire_close(&w[i]);
    }
    wire_wait_end(&idle);
    wire_close(&idle);
    wire_wait_end(&sending);
    wire_close(&sending);
}

static void a_server_may_be_opened_again_on_its_port(void **state)
{
    (void)state;
    rig g;
    rig_start(&g, &(srv_options){.port = 0});
    const int32_t port = (int32_t)strtol(strrchr(g.url, ':') + 1, NULL, 10);
    rig_ask(&g, "GET /health HTTP/1.1\r\nHost: t\r\n\r\n", 200, "ok");
    rig_stop(&g);
    rig_start(&g, &(srv_options){.port = port});
    rig_ask(&g, "GET /health HTTP/1.1\r\nHost: t\r\n\r\n", 200, "ok");
    rig_stop(&g);
}

static void the_access_log_tells_of_every_request(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    char *const dir = unit_scratch_new();
    char path[512];
    char text[8192] = "";
    snprintf(path, sizeof path, "%s/log", dir);
    rig_start(&g, &(srv_options){.access_log = path});
    di_call *const call = rig_call(&g, &w, "/v1/chat/completions");
    fake_phase(call, DI_CALL_QUEUED);
    fake_phase(call, DI_CALL_PREFILL);
    fake_phase(call, DI_CALL_DECODE);
    fake_usage(call, 12, 8, 5);
    fake_write(call, "data: 1\n\n");
    fake_status(call, 200, true, 0);
    fake_end(call, DI_FINISH_LENGTH);
    wire_read(&w, &r);
    wire_fini(&r);
    wire_close(&w);
    fake_wait_freed(call); /* its line is written by then */
    rig_ask(&g, "GET /\"x HTTP/1.1\r\nHost: t\r\nx-request-id: odd\r\n\r\n", 404, "not_found");
    srv_reopen_log(g.server);
    rig_stop(&g);
    FILE *const file = fopen(path, "rb");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    char *const second = strchr(text, '\n');
    assert_non_null(second);
    *second = '\0';
    static const char *const parts[] = {"\"request_id\":\"req_", "\"client\":\"127.0.0.1\"", "\"tenant\":\"\"", "\"method\":\"POST\"",
                                        "\"route\":\"chat\"", "\"status\":200", "\"stream\":true", "\"received_bytes\":2",
                                        "\"sent_bytes\":9", "\"response_id\":\"fake-0\"", "\"prompt_tokens\":12", "\"cached_tokens\":8",
                                        "\"completion_tokens\":5", "\"queue_ms\":", "\"ttft_ms\":", "\"finish\":\"length\"",
                                        "\"error\":null", "\"total_ms\":", "\"left\":null", "\"trace_id\":\""};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strstr(text, parts[i]) == NULL) {
            fail_msg("%s is not in %s", parts[i], text);
        }
    }
    assert_non_null(strstr(second + 1, "\"request_id\":\"odd\""));
    assert_non_null(strstr(second + 1, "\"status\":404"));
    assert_non_null(strstr(second + 1, "\"refused\":\"There is no /\\\"x here.\""));
    unit_scratch_remove(dir);
}

static void a_full_disk_loses_lines_and_nothing_else(void **state)
{
    (void)state;
    rig g;
    rig_start(&g, &(srv_options){.access_log = "/dev/full"});
    fake_answer_all(g.service);
    for (int i = 0; i < 20; i++) {
        rig_ask(&g, "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 200, "echo");
    }
    wire_reply r;
    do {
        wire_ask(g.url, "GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n", true, &r);
        const bool counted = strstr(r.body.data, "\ndeepinfer_log_dropped_total 0\n") == NULL;
        wire_fini(&r);
        if (counted) {
            break;
        }
    } while (true);
    rig_stop(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drain_finishes_what_was_accepted),
        cmocka_unit_test(a_stop_cuts_whatever_is_there),
        cmocka_unit_test(a_server_may_be_opened_again_on_its_port),
        cmocka_unit_test(the_access_log_tells_of_every_request),
        cmocka_unit_test(a_full_disk_loses_lines_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
