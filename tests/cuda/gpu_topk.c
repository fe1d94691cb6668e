/* Selection of the best entries of long and short rows on the GPU: lists and candidate blocks are exactly those of a count over all orders, for
 * every number of blocks that may share a row. ctest: serial timeout=300 */
#include "cuda/caches.h"

#include "cuda/cu_kernels.h"

#include <stdlib.h>
#include <string.h>

enum { TOPK = 512, BLOCK = 8, BLOCKS = 2048, ORDERS = 1 << 16, PINNED = 0xFF80, MOST_ROWS = 5 };

static gpu_pair pair;

typedef enum spread { BELL, EQUAL, RARE, COARSE, N_SPREADS } spread;

static const char *const names[] = {"bell", "equal", "rare", "coarse"};

/* Orders as scores have them: bell-shaped; all the same; most of them not counting; few different ones. */
static void fill(uint16_t *order, size_t n, spread how, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        const float x = how == EQUAL ? 1.0f : gpu_normal(&seed);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        bits >>= 16;
        order[i] = (uint16_t)(bits & 0x8000u ? ~bits : bits | 0x8000u);
        if (how == COARSE) {
            order[i] &= 0xFFC0;
        } else if (how == RARE && seed % 1021 != 0) {
            order[i] = 0;
        }
    }
}

/* The k best, ascending, equal ones by position; -1 behind them. */
static void choose(const uint16_t *order, int32_t n, int32_t k, int32_t *list)
{
    static int32_t count[ORDERS];
    memset(count, 0, sizeof count);
    for (int32_t i = 0; i < n; i++) {
        count[order[i]]++;
    }
    int32_t last = ORDERS - 1;
    int32_t left = k;
    while (last > 0 && count[last] < left) {
        left -= count[last--];
    }
    int32_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        const bool equal = order[i] == last && last > 0 && left > 0;
        left -= equal;
        if (order[i] > last || equal) {
            list[at++] = i;
        }
    }
    while (at < k) {
        list[at++] = -1;
    }
}

static void choose_blocks(const uint16_t *order, int32_t n, uint8_t *bits)
{
    const int32_t n_blocks = (n + BLOCK - 1) / BLOCK;
    uint16_t *best = calloc((size_t)n_blocks + 1, sizeof *best);
    int32_t *list = malloc(BLOCKS * sizeof *list);
    for (int32_t i = 0; i < n; i++) {
        best[i / BLOCK] = order[i] > best[i / BLOCK] ? order[i] : best[i / BLOCK];
    }
    best[n_blocks - 1] = PINNED;
    choose(best, n_blocks, BLOCKS, list);
    for (int32_t i = 0; i < BLOCKS && list[i] >= 0; i++) {
        bits[list[i] / 8] |= (uint8_t)(1 << list[i] % 8);
    }
    free(best);
    free(list);
}

static uint8_t table[sizeof(cu_seq) + MOST_ROWS * sizeof(int32_t)];

/* Rows that see n - rows + 1 ... n entries. */
static void check(int32_t n, int32_t rows, spread how, bool blocks)
{
    const cu_seq seq = {.n_rows = rows, .pos0 = n - rows};
    const int32_t stride = (n + 8) / 8 * 8;
    const int32_t block_stride = (stride / BLOCK + 8) / 8 * 8;
    const int32_t cand_stride = block_stride / 8 + 1;
    memset(table, 0, sizeof table);
    memcpy(table, &seq, sizeof seq);
    uint16_t *order = calloc((size_t)stride * (size_t)rows, sizeof *order);
    fill(order, (size_t)stride * (size_t)rows, how, (uint64_t)n);
    gpu_twin seqs = gpu_twin_new(&pair, table, sizeof table);
    gpu_twin orders = gpu_twin_new(&pair, order, (size_t)stride * (size_t)rows * 2);
    gpu_twin block_orders = gpu_twin_new(&pair, NULL, (size_t)block_stride * (size_t)rows * 2);
    gpu_twin bits = gpu_twin_new(&pair, NULL, (size_t)cand_stride * (size_t)rows);
    gpu_twin list = gpu_twin_new(&pair, NULL, TOPK * sizeof(int32_t) * (size_t)rows);
    for (int32_t r = 0; r < rows; r++) {
        const uint16_t *row = order + (size_t)r * (size_t)stride;
        choose(row, n - rows + 1 + r, TOPK, (int32_t *)(void *)list.host + r * TOPK);
        if (blocks) {
            choose_blocks(row, n - rows + 1 + r, bits.host + r * cand_stride);
        }
    }
    const cu_index_job job = {.n_rows = rows, .n_group = rows, .ratio = 1, .topk = TOPK, .n_blocks = BLOCKS, .block_size = BLOCK,
                              .cand_stride = cand_stride, .make_candidates = blocks,
                              .seqs = {.table = seqs.gpu, .n_seqs = 1, .row_seq_at = sizeof(cu_seq)},
                              .order = (uint16_t *)(void *)orders.gpu, .block_order = (uint16_t *)(void *)block_orders.gpu,
                              .stride = stride, .block_stride = block_stride, .candidates = bits.gpu,
                              .list = (int32_t *)(void *)list.gpu};
    print_message("%d entries, %d rows, %s%s\n", (int)n, (int)rows, names[how], blocks ? ", blocks" : "");
    assert_int_equal(cu_launch_index_select(&job, cu_stream_of(pair.gpu)), 0);
    gpu_expect_bytes(&pair, "lists", &list, 0.0);
    gpu_expect_bytes(&pair, "candidates", &bits, 0.0);
    gpu_twin *all[] = {&seqs, &orders, &block_orders, &bits, &list};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        gpu_twin_free(&pair, all[i]);
    }
    free(order);
}

static void the_best_entries_are_taken(void **state)
{
    (void)state;
    static const int32_t sizes[] = {5, 511, 513, 520, 4099, 8184, 8185, 20001, 70003, 524288};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int how = 0; how < N_SPREADS; how++) {
            check(sizes[i], i % 2 == 0 ? 1 : MOST_ROWS, (spread)how, false);
        }
    }
    check(524288, MOST_ROWS, BELL, false);
    check(70003, MOST_ROWS, COARSE, false);
}

static void candidate_blocks_are_the_best(void **state)
{
    (void)state;
    static const int32_t sizes[] = {5, 513, 16385, 30000, 1000001};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check(sizes[i], i % 2 == 0 ? 1 : MOST_ROWS, BELL, true);
        check(sizes[i], 2, EQUAL, true);
    }
}

int main(void)
{
    if (!gpu_pair_open(&pair)) {
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_entries_are_taken),
        cmocka_unit_test(candidate_blocks_are_the_best),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gpu_pair_close(&pair);
    return failed;
}
