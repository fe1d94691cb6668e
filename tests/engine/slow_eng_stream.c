/* A slice of real shapes within a third of its bytes: the process never holds more than the budget and what a small pass takes, and the
 * logits have the bits of a run with all weights in memory. Writes 1.3 GB into the build folder. */
#include "support/unit.h"

#include <deepinfer/engine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPERTS = 24, STEPS = 6, VOCAB = 4096, PERCENT = 45 };

/* Beside the weights: buffers of a pass of 16 tokens, KV, one matrix of the mapping while it is packed, the program itself. */
#define OTHER_BYTES (INT64_C(64) << 20)

static int64_t peak_bytes(void)
{
    char line[256];
    long long kib = -1;
    FILE *const f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "VmHWM:", 6) == 0) {
            kib = strtoll(line + 6, NULL, 10);
        }
    }
    (void)fclose(f);
    assert_true(kib > 0);
    return kib * 1024;
}

/* The peak begins anew; false where the system does not let us. */
static bool reset_peak(void)
{
    FILE *const f = fopen("/proc/self/clear_refs", "w");
    const bool done = f != NULL && fputs("5", f) >= 0;
    return f != NULL && fclose(f) == 0 && done;
}

static void run(const di_model *m, int32_t percent, float *logits, di_stream_stats *stats)
{
    const di_engine_options o = {.chunk_tokens = 16, .max_tokens = 256, .kv_bytes = 32 << 20, .ram_percent = percent};
    di_engine *e;
    di_sequence *s;
    di_error err;
    if (di_engine_open(m, &o, &e, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(di_sequence_new(e, &s, &err), DI_OK);
    for (int i = 0; i < STEPS; i++) {
        const int32_t ids[8] = {5 + i, 70 + i, 300 + i, 17, 901, 42 + i, 8, 9};
        const float *row;
        int32_t n;
        assert_int_equal(di_sequence_feed(s, ids, i == 0 ? 8 : 1, &err), DI_OK);
        if (di_sequence_run(s, &err) != DI_OK) {
            fail_msg("%s", err.message);
        }
        assert_int_equal(di_sequence_logits(s, &row, &n, &err), DI_OK);
        memcpy(logits + (size_t)i * VOCAB, row, VOCAB * sizeof *row);
    }
    di_engine_get_stream_stats(e, stats);
    di_engine_close(e);
}

static void a_slice_within_a_part_of_its_bytes(void **state)
{
    (void)state;
    char *const dir = unit_scratch_new();
    di_model *m;
    di_model_info info;
    di_stream_stats stats;
    di_error err;
    float *const part = calloc((size_t)STEPS * VOCAB, sizeof *part);
    float *const all = calloc((size_t)STEPS * VOCAB, sizeof *all);
    assert_true(part != NULL && all != NULL);
    if (di_synthetic_write(&(di_synthetic){.n_experts = EXPERTS, .vocab = VOCAB}, dir, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(di_model_open(dir, NULL, &m, &err), DI_OK);
    di_model_get_info(m, &info);
    const bool measured = reset_peak();
    const int64_t before = peak_bytes();
    run(m, PERCENT, part, &stats);
    const int64_t taken = peak_bytes() - before;
    print_message("budget %lld MB, weights %lld, peak %lld; %lld hits, %lld misses\n", (long long)(stats.budget_bytes >> 20),
                  (long long)((stats.resident_bytes + stats.cache_bytes) >> 20), (long long)(taken >> 20), (long long)stats.hits,
                  (long long)stats.misses);
    assert_true(stats.budget_bytes > 0 && stats.misses > 0);
    assert_true(stats.resident_bytes + stats.cache_bytes <= stats.budget_bytes);
    assert_true(stats.budget_bytes <= info.weight_bytes * PERCENT / 100 + 1);
    assert_true(!measured || taken <= stats.budget_bytes + OTHER_BYTES);
    run(m, 0, all, &stats);
    assert_int_equal(stats.budget_bytes, 0);
    assert_memory_equal(part, all, (size_t)STEPS * VOCAB * sizeof *all);
    free(part);
    free(all);
    di_model_close(m);
    unit_scratch_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_slice_within_a_part_of_its_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
