/* Which models the CUDA backend takes is said before a device is opened, and names the field of config.json. Needs no GPU. */
#include "support/unit.h"

#include "cuda/cuda.h"

#include <string.h>

static ops_sizes released(void)
{
    return (ops_sizes){.hidden = 4096,
                       .hc = 4,
                       .head_dim = 512,
                       .rope_dim = 64,
                       .o_lora = 1024,
                       .index_heads = 64,
                       .index_dim = 128,
                       .moe_inter = 2048,
                       .n_experts = 384,
                       .n_active = 6,
                       .engram_dim = 256};
}

static void assert_refused(ops_sizes sizes, const char *field)
{
    di_error err;
    assert_int_equal(cuda_backend.suits(&sizes, &err), DI_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, field));
}

static void released_sizes_suit(void **state)
{
    (void)state;
    ops_sizes sizes = released();
    di_error err;
    assert_int_equal(cuda_backend.suits(&sizes, &err), DI_OK);
    sizes.index_heads = sizes.index_dim = sizes.engram_dim = 0; /* neither index nor Engram */
    assert_int_equal(cuda_backend.suits(&sizes, &err), DI_OK);
}

static void each_size_is_checked(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        int32_t value;
        const char *field;
    } cases[] = {
        {offsetof(ops_sizes, hidden), 4100, "hidden_size"},
        {offsetof(ops_sizes, hidden), 8224, "hidden_size"},
        {offsetof(ops_sizes, hc), 2, "hc_mult"},
        {offsetof(ops_sizes, head_dim), 520, "head_dim"},
        {offsetof(ops_sizes, head_dim), 544, "head_dim"},
        {offsetof(ops_sizes, rope_dim), 514, "qk_rope_head_dim"},
        {offsetof(ops_sizes, o_lora), 32, "o_lora_rank"},
        {offsetof(ops_sizes, index_heads), 257, "index_n_heads"},
        {offsetof(ops_sizes, index_dim), 48, "index_head_dim"},
        {offsetof(ops_sizes, index_dim), 160, "index_head_dim"},
        {offsetof(ops_sizes, moe_inter), 100, "moe_intermediate_size"},
        {offsetof(ops_sizes, n_experts), 513, "n_routed_experts"},
        {offsetof(ops_sizes, n_active), 33, "num_experts_per_tok"},
        {offsetof(ops_sizes, engram_dim), 40, "engram_head_dim"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ops_sizes sizes = released();
        memcpy((char *)&sizes + cases[i].at, &cases[i].value, sizeof cases[i].value);
        assert_refused(sizes, cases[i].field);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(released_sizes_suit),
        cmocka_unit_test(each_size_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
