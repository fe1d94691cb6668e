/* Heads of records: every flipped bit, every other place and every impossible field is noticed. */
#include "support/unit.h"

#include "kv/kv_record.h"

#include <string.h>

enum { BYTES = 300 };

static const kv_where here = {.segment = 7, .nonce = 0x1234567890abcdef, .offset = 8192, .limit = 65536};
static uint8_t payload[BYTES];

static kv_head a_head(void)
{
    kv_head head = kv_head_at(&here, KV_DISK_UNIT);
    memset(payload, 0x5a, sizeof payload);
    memset(head.key, 3, sizeof head.key);
    head.bytes = BYTES;
    head.class_id = 2;
    kv_head_seal(&head, payload);
    return head;
}

static void a_head_is_read_where_it_was_written(void **state)
{
    (void)state;
    const kv_head head = a_head();
    kv_head got;
    assert_true(kv_head_read((const uint8_t *)&head, &here, &got));
    assert_memory_equal(&head, &got, sizeof head);
    assert_true(kv_payload_good(&got, payload));
    assert_int_equal(kv_record_bytes(BYTES), KV_BLOCK);
    assert_int_equal(kv_record_bytes(KV_BLOCK - KV_HEAD_BYTES), KV_BLOCK);
    assert_int_equal(kv_record_bytes(KV_BLOCK - KV_HEAD_BYTES + 1), 2 * KV_BLOCK);
}

static void every_flipped_bit_of_a_head_is_noticed(void **state)
{
    (void)state;
    kv_head head = a_head();
    uint8_t *const bytes = (uint8_t *)&head;
    kv_head got;
    for (size_t bit = 0; bit < 8 * sizeof head; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(kv_head_read(bytes, &here, &got));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void every_flipped_bit_of_a_payload_is_noticed(void **state)
{
    (void)state;
    const kv_head head = a_head();
    for (size_t bit = 0; bit < 8 * (size_t)BYTES; bit++) {
        payload[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(kv_payload_good(&head, payload));
        payload[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void a_head_elsewhere_is_none(void **state)
{
    (void)state;
    const kv_head head = a_head();
    const kv_where elsewhere[] = {
        {.segment = 8, .nonce = here.nonce, .offset = here.offset, .limit = here.limit},
        {.segment = 7, .nonce = here.nonce + 1, .offset = here.offset, .limit = here.limit},
        {.segment = 7, .nonce = here.nonce, .offset = here.offset + KV_BLOCK, .limit = here.limit},
        {.segment = 7, .nonce = here.nonce, .offset = here.offset, .limit = here.offset + KV_BLOCK - 1},
        {.segment = 7, .nonce = here.nonce, .offset = here.offset, .limit = here.offset - 1},
    };
    kv_head got;
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++) {
        assert_false(kv_head_read((const uint8_t *)&head, &elsewhere[i], &got));
    }
}

static void impossible_fields_are_refused_under_a_right_sum(void **state)
{
    (void)state;
    kv_head bad[7];
    kv_head got;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        bad[i] = a_head();
    }
    bad[0].bytes = 0;
    bad[1].kind = KV_DISK_KINDS;
    bad[2].class_id = KV_DISK_CLASSES;
    bad[3].pinned = 2;
    bad[4].expiry_s = -1;
    bad[5].version++;
    bad[6].zero[0] = 0; /* the one that is possible */
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kv_head_seal(&bad[i], payload);
        assert_int_equal(kv_head_read((const uint8_t *)&bad[i], &here, &got), i == 6);
    }
    bad[0].bytes = UINT64_MAX - 100; /* no sum is made over that */
    digest_sum(&bad[0], offsetof(kv_head, head_sum), bad[0].head_sum);
    assert_false(kv_head_read((const uint8_t *)&bad[0], &here, &got));
}

static void entries_of_a_catalogue_stay_inside_the_segment(void **state)
{
    (void)state;
    const kv_head head = a_head();
    const kv_listed good = kv_listed_of(&head);
    assert_true(kv_listed_good(&good, here.limit));
    assert_false(kv_listed_good(&good, here.offset + KV_BLOCK - 1));
    kv_listed bad = good;
    bad.block = UINT32_MAX;
    assert_false(kv_listed_good(&bad, here.limit));
    bad = good;
    bad.bytes = UINT32_MAX;
    assert_false(kv_listed_good(&bad, here.limit));
    bad = good;
    bad.kind = KV_REC_TRAILER;
    assert_false(kv_listed_good(&bad, here.limit));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_is_read_where_it_was_written),
        cmocka_unit_test(every_flipped_bit_of_a_head_is_noticed),
        cmocka_unit_test(every_flipped_bit_of_a_payload_is_noticed),
        cmocka_unit_test(a_head_elsewhere_is_none),
        cmocka_unit_test(impossible_fields_are_refused_under_a_right_sum),
        cmocka_unit_test(entries_of_a_catalogue_stay_inside_the_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
