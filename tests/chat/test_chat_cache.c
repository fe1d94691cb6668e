/* How a request wants its prefix kept: the text beside a body, the field of a body, and which of them wins. */
#include "chat/chat_cache.h"
#include "chat/chat_fields.h"
#include "support/unit.h"

#include <string.h>

static void expect(chat_cache c, int32_t class_id, int64_t ttl_s, bool pinned)
{
    assert_int_equal(c.class_id, class_id);
    assert_int_equal(c.ttl_s, ttl_s);
    assert_int_equal(c.pinned, pinned);
}

static chat_cache text(const char *s)
{
    chat_cache c;
    di_error err;
    if (chat_cache_read_text(s, &c, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return c;
}

static void text_beside_a_body(void **state)
{
    (void)state;
    expect(text(NULL), CHAT_CACHE_UNSAID, 0, false);
    expect(text(""), CHAT_CACHE_UNSAID, 0, false);
    expect(text("class=agent; ttl=3600; pin"), DI_CACHE_AGENT, 3600, true);
    expect(text(" pin ;class = chat"), DI_CACHE_CHAT, 0, true);
    expect(text("ttl=315360000;"), CHAT_CACHE_UNSAID, 315360000, false);
    static const char *const wrong[] = {"agent", "class=", "class=Agent", "ttl=", "ttl=0", "ttl=-1", "ttl=1h", "ttl=315360001",
                                        "ttl=99999999999999999999", "pin=1", "pin; pi", "class=agent, pin"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        chat_cache c;
        di_error err;
        unit_expect_error(chat_cache_read_text(wrong[i], &c, &err), DI_E_ARGUMENT, &err, "cache: ", wrong[i], NULL);
    }
}

static di_status read_field(const char *json, chat_cache *out, di_error *err)
{
    js_doc *doc = NULL;
    assert_int_equal(chat_parse_body(json, strlen(json), &doc, NULL), DI_OK);
    const di_status status = chat_cache_read_body(js_root(doc), out, err);
    js_free(doc);
    return status;
}

static void the_field_of_a_body(void **state)
{
    (void)state;
    chat_cache c;
    di_error err;
    assert_int_equal(read_field("{}", &c, &err), DI_OK);
    expect(c, CHAT_CACHE_UNSAID, 0, false);
    assert_int_equal(read_field("{\"cache\": {\"class\": \"agent\", \"ttl\": 60, \"pin\": true, \"more\": 1}}", &c, &err), DI_OK);
    expect(c, DI_CACHE_AGENT, 60, true);
    unit_expect_error(read_field("{\"cache\": 1}", &c, &err), DI_E_ARGUMENT, &err, "cache: expected an object", NULL);
    unit_expect_error(read_field("{\"cache\": {\"class\": \"x\"}}", &c, &err), DI_E_ARGUMENT, &err, "cache: class", NULL);
    unit_expect_error(read_field("{\"cache\": {\"ttl\": 0}}", &c, &err), DI_E_ARGUMENT, &err, "cache: ttl", NULL);
    unit_expect_error(read_field("{\"cache\": {\"pin\": 1}}", &c, &err), DI_E_ARGUMENT, &err, "cache: pin", NULL);
}

static void the_body_wins_thing_by_thing(void **state)
{
    (void)state;
    const chat_cache unsaid = {.class_id = CHAT_CACHE_UNSAID};
    const chat_cache body = {.class_id = CHAT_CACHE_UNSAID, .ttl_s = 5};
    const chat_cache beside = {.class_id = DI_CACHE_CHAT, .ttl_s = 7, .pinned = true};
    di_task_cache c = chat_cache_settle(&body, &beside, true);
    assert_int_equal(c.class_id, DI_CACHE_CHAT);
    assert_int_equal(c.ttl_s, 5);
    assert_true(c.pinned);
    c = chat_cache_settle(&unsaid, &unsaid, true); /* tools make an agent */
    assert_int_equal(c.class_id, DI_CACHE_AGENT);
    assert_int_equal(c.ttl_s, 0);
    assert_false(c.pinned);
    c = chat_cache_settle(&unsaid, &unsaid, false);
    assert_int_equal(c.class_id, DI_CACHE_CHAT);
}

static void figures_of_the_tiers_there_are(void **state)
{
    (void)state;
    const di_cache_stats stats = {.tiers[DI_CACHE_DIR] = {.max_bytes = 100, .bytes = 40, .units = 3}, .loads = 2};
    buf out;
    buf_init(&out, SIZE_MAX);
    chat_cache_write(&stats, &out);
    assert_false(out.failed);
    assert_non_null(strstr(out.data, "{\"tiers\":[{\"name\":\"dir\",\"bytes\":40,\"max_bytes\":100,\"units\":3,"));
    assert_non_null(strstr(out.data, "}],\"lookups\":0,\"loads\":2,"));
    assert_null(strstr(out.data, "shared"));
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_beside_a_body),
        cmocka_unit_test(the_field_of_a_body),
        cmocka_unit_test(the_body_wins_thing_by_thing),
        cmocka_unit_test(figures_of_the_tiers_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
