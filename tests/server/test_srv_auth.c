/* Tests of srv_auth.c: files of keys, what is wrong with them, and finding a key. */
#include "support/unit.h"

#include "server/srv_auth.h"

#include <stdio.h>
#include <string.h>

static const srv_key_defaults none = {.rate = 0};

static di_status open_text(srv_keys *keys, const char *text, size_t n, srv_key_defaults defaults, di_error *err)
{
    char *const dir = unit_scratch_new();
    char path[512];
    snprintf(path, sizeof path, "%s/keys", dir);
    unit_write(dir, "keys", text, n);
    const di_status status = srv_keys_open(keys, NULL, 0, path, defaults, err);
    unit_scratch_remove(dir);
    return status;
}

static void keys_are_found_with_their_limits(void **state)
{
    (void)state;
    srv_keys keys;
    di_error err;
    static const char text[] = "# who\n\nsk-1 team-a\r\nsk-2\tteam/b  rate=30 concurrency=4 priority=-2 # few\n  sk-3 c priority=5";
    assert_int_equal(open_text(&keys, text, sizeof text - 1, (srv_key_defaults){.rate = 10, .concurrency = 2}, &err), DI_OK);
    assert_int_equal(keys.n, 3);
    const srv_key *key = srv_keys_find(&keys, "sk-1");
    assert_non_null(key);
    assert_string_equal(key->tenant, "team-a");
    assert_int_equal(key->limit.rate, 10);
    assert_int_equal(key->limit.concurrency, 2);
    assert_int_equal(key->priority, 0);
    key = srv_keys_find(&keys, "sk-2");
    assert_non_null(key);
    assert_string_equal(key->tenant, "team/b");
    assert_int_equal(key->limit.rate, 30);
    assert_int_equal(key->limit.concurrency, 4);
    assert_int_equal(key->priority, -2);
    assert_int_equal(srv_keys_find(&keys, "sk-3")->priority, 5);
    assert_null(srv_keys_find(&keys, "sk-"));
    assert_null(srv_keys_find(&keys, "sk-11"));
    assert_null(srv_keys_find(&keys, ""));
    assert_null(srv_keys_find(&keys, "#"));
    srv_keys_fini(&keys);
    assert_null(srv_keys_find(&keys, "sk-1"));
}

static void many_keys_are_found(void **state)
{
    (void)state;
    enum { N = 3000 };
    char text[N * 24] = "";
    size_t n = 0;
    srv_keys keys;
    di_error err;
    for (int i = 0; i < N; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "key-%d t%d\n", i, i);
    }
    assert_int_equal(open_text(&keys, text, n, none, &err), DI_OK);
    for (int i = 0; i < N; i++) {
        char name[32];
        char tenant[32];
        snprintf(name, sizeof name, "key-%d", i);
        snprintf(tenant, sizeof tenant, "t%d", i);
        const srv_key *const key = srv_keys_find(&keys, name);
        assert_non_null(key);
        assert_string_equal(key->tenant, tenant);
    }
    srv_keys_fini(&keys);
}

static void mistakes_are_named_by_line_and_show_no_secret(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *part;
    } cases[] = {
        {"good a\nsecret", "line 2: a key is followed by a tenant"},
        {"secret a b", "line 1: a key and its tenant are followed by rate=N"},
        {"secret a rate=x", "rate= takes a whole number from 0"},
        {"secret a rate=-1", "rate= takes a whole number from 0"},
        {"secret a priority=1001", "from -1000 to 1000"},
        {"secret a:b\"", "line 1: a key is followed by a tenant"},
        {"secret a\nother b\nsecret c", "given twice (tenants \""},
        {"# nobody\n", "no API key in this file"},
        {"", "no API key in this file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        srv_keys keys;
        di_error err;
        unit_expect_error(open_text(&keys, cases[i].text, strlen(cases[i].text), none, &err), DI_E_FORMAT, &err, cases[i].part, NULL);
        assert_null(strstr(err.message, "secret"));
        assert_null(keys.items);
    }
    srv_keys keys;
    di_error err;
    unit_expect_error(open_text(&keys, "a\0b c\n", 6, none, &err), DI_E_FORMAT, &err, "line 1: a line holds a NUL byte", NULL);
    char large[700];
    memset(large, 'k', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    memcpy(large + SRV_MAX_KEY_BYTES + 1, " t", 3);
    unit_expect_error(open_text(&keys, large, strlen(large), none, &err), DI_E_FORMAT, &err, "1 to 512 bytes, not 513", NULL);
}

static void listed_keys_have_numbered_tenants(void **state)
{
    (void)state;
    static const char *const list[] = {"one", "two"};
    static const char *const bad[] = {"one", ""};
    srv_keys keys;
    di_error err;
    assert_int_equal(srv_keys_open(&keys, list, 2, NULL, none, &err), DI_OK);
    assert_string_equal(srv_keys_find(&keys, "one")->tenant, "key-1");
    assert_string_equal(srv_keys_find(&keys, "two")->tenant, "key-2");
    srv_keys_fini(&keys);
    assert_int_equal(srv_keys_open(&keys, NULL, 0, NULL, none, &err), DI_OK);
    assert_int_equal(keys.n, 0);
    srv_keys_fini(&keys);
    unit_expect_error(srv_keys_open(&keys, bad, 2, NULL, none, &err), DI_E_FORMAT, &err, "not 0", NULL);
}

static void tenants_are_plain_words(void **state)
{
    (void)state;
    char large[SRV_MAX_TENANT_BYTES + 2];
    memset(large, 'a', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    assert_false(srv_tenant_valid(large));
    large[SRV_MAX_TENANT_BYTES] = '\0';
    assert_true(srv_tenant_valid(large));
    assert_true(srv_tenant_valid("org/team-1_x.y:z@w+"));
    assert_false(srv_tenant_valid(""));
    assert_false(srv_tenant_valid("a b"));
    assert_false(srv_tenant_valid("a\n"));
    assert_false(srv_tenant_valid("\xc3\xa9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_found_with_their_limits),
        cmocka_unit_test(many_keys_are_found),
        cmocka_unit_test(mistakes_are_named_by_line_and_show_no_secret),
        cmocka_unit_test(listed_keys_have_numbered_tenants),
        cmocka_unit_test(tenants_are_plain_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
