/* Orders of many records: by name with the record that counts, by tenant and sequence; equal beginnings are compared to their ends. */
#include "support/unit.h"

#include "kv/kv_rank.h"

#include <stdlib.h>
#include <string.h>

enum { N = 3000 };

static kv_indexed items[N];
static kv_ranked ranked[N];

/* Names of few values at their beginning, so that many are decided by their last byte or by nothing. */
static void make_items(void)
{
    srand(7);
    for (size_t i = 0; i < N; i++) {
        memset(&items[i], 0, sizeof items[i]);
        items[i].name.bytes[0] = (uint8_t)(rand() % 3);
        items[i].name.bytes[7] = (uint8_t)(rand() % 2);
        items[i].name.bytes[23] = (uint8_t)(rand() % 2 * 255);
        items[i].name.bytes[31] = (uint8_t)(rand() % 3);
        items[i].name.bytes[KV_KEY_BYTES] = (uint8_t)(rand() % 2);
        items[i].entry.tenant[0] = (uint8_t)(rand() % 2 * 200);
        items[i].entry.tenant[15] = (uint8_t)(rand() % 3);
        items[i].entry.sequence = (uint64_t)rand() % 1000 << 20 | i;
    }
}

static void names_are_in_order_once_and_the_newest_counts(void **state)
{
    (void)state;
    make_items();
    const size_t n = kv_rank_by_name(ranked, items, N);
    assert_int_equal(n, 3 * 2 * 2 * 3 * 2);
    for (size_t i = 1; i < n; i++) {
        assert_true(memcmp(&ranked[i - 1].item->name, &ranked[i].item->name, sizeof(kv_name)) < 0);
    }
    for (size_t i = 0; i < N; i++) {
        size_t k = 0;
        while (k < n && memcmp(&ranked[k].item->name, &items[i].name, sizeof(kv_name)) != 0) {
            k++;
        }
        assert_true(k < n);
        assert_true(ranked[k].item->entry.sequence >= items[i].entry.sequence);
    }
}

static void tenants_are_in_order_and_their_records_by_age(void **state)
{
    (void)state;
    make_items();
    const size_t n = kv_rank_by_name(ranked, items, N);
    kv_rank_by_tenant(ranked, n);
    for (size_t i = 1; i < n; i++) {
        const kv_entry *const a = &ranked[i - 1].item->entry;
        const kv_entry *const b = &ranked[i].item->entry;
        const int order = memcmp(a->tenant, b->tenant, KV_TENANT_BYTES);
        assert_true(order < 0 || (order == 0 && a->sequence < b->sequence));
    }
    assert_int_equal(kv_rank_by_name(ranked, items, 0), 0);
    kv_rank_by_tenant(ranked, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_in_order_once_and_the_newest_counts),
        cmocka_unit_test(tenants_are_in_order_and_their_records_by_age),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
