/* Tests of srv_trace.c; the headers are those of the W3C recommendation's examples, and broken ones. */
#include "support/unit.h"

#include "server/srv_trace.h"

#include <string.h>

static const uint8_t random_bytes[24] = {1, 2, 3, 0xab, [16] = 0xf0, [23] = 0x0f};

static void a_trace_is_continued(void **state)
{
    (void)state;
    srv_trace t;
    char header[SRV_TRACEPARENT_BYTES];
    srv_trace_begin(&t, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", random_bytes);
    assert_string_equal(t.trace_id, "0af7651916cd43dd8448eb211c80319c");
    assert_string_equal(t.parent_id, "b7ad6b7169203331");
    assert_string_equal(t.span_id, "f00000000000000f");
    assert_true(t.sampled);
    srv_trace_header(&t, header);
    assert_string_equal(header, "00-0af7651916cd43dd8448eb211c80319c-f00000000000000f-01");
    srv_trace_begin(&t, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", random_bytes);
    assert_false(t.sampled);
    srv_trace_header(&t, header);
    assert_string_equal(header, "00-0af7651916cd43dd8448eb211c80319c-f00000000000000f-00");
    srv_trace_begin(&t, "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0f-what-comes-later", random_bytes);
    assert_string_equal(t.parent_id, "b7ad6b7169203331");
    assert_true(t.sampled);
}

static void what_is_no_header_begins_a_trace(void **state)
{
    (void)state;
    static const char *const cases[] = {
        NULL,
        "",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more",
        "0x-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        srv_trace t;
        srv_trace_begin(&t, cases[i], random_bytes);
        assert_string_equal(t.trace_id, "010203ab000000000000000000000000");
        assert_string_equal(t.parent_id, "");
        assert_true(t.sampled);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_is_continued),
        cmocka_unit_test(what_is_no_header_begins_a_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
