/* Weights from the disk give the bits of weights in memory: all budgets from the smallest to all, every way of reading, many threads, drafts,
 * Engram rows; a disk that fails gives an error and then goes on; a file that is cut or replaced gives an error and no signal.
 * ctest: timeout=300 */
#include "core/core.h"
#include "model/mdl_stream.h"
#include "model/model.h"
#include "support/faulty.h"
#include "support/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { PROMPT = 10, STEPS = 2, BUDGETS = 3 }; /* ten times slower there */
#else
enum { PROMPT = 24, STEPS = 5, BUDGETS = 9 };
#endif
enum { PAGES = 1, MAX_ROWS = 64, SEQS = 2, MAX_TOKENS = 128 };

typedef struct setup {
    const char *backend;
    int32_t threads;
    int64_t budget;
    const io_table *io;
} setup;

/* Logits of everything that ran, one after the other. */
typedef struct record {
    float *values;
    size_t n;
} record;

static di_model *open_model(void)
{
    char path[1024];
    di_error err;
    di_model *m = NULL;
    (void)snprintf(path, sizeof path, "%s/models/demo", getenv("DI_SOURCE_DIR"));
    if (di_model_open(path, NULL, &m, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return m;
}

static di_status new_runner(const di_model *m, const setup *s, mdl_runner **out, di_error *err)
{
    mdl_runner_options o = {.device = {.n_threads = s->threads},
                            .max_rows = MAX_ROWS,
                            .max_tokens = MAX_TOKENS,
                            .draft = true,
                            .ram_budget = s->budget,
                            .io = s->io};
    assert_int_equal(ops_backend_find(s->backend, &o.backend, err), DI_OK);
    return mdl_runner_new(m, &o, out, err);
}

static void new_seq(mdl_runner *r, mdl_seq *seq)
{
    mdl_seq_init(r, seq, mdl_alloc(r, mdl_runner_layout(r)->state_bytes));
    assert_int_equal(mdl_seq_reserve(seq, PAGES, NULL), DI_OK);
    mdl_seq_add_page(seq, mdl_alloc(r, mdl_runner_layout(r)->page_bytes));
}

static void free_seq(mdl_runner *r, mdl_seq *seq)
{
    mdl_free(r, seq->state);
    mdl_free(r, seq->pages[0]);
    mdl_seq_fini(seq);
}

/* Prompts of two sequences, some steps of both, a draft behind each step. */
static di_status run(mdl_runner *r, int32_t vocab, record *out, di_error *err)
{
    mdl_seq seqs[SEQS];
    int32_t ids[PROMPT];
    uint64_t seed = 5;
    di_status status = DI_OK;
    out->n = 0;
    out->values = malloc((size_t)vocab * (SEQS + 2 * SEQS * STEPS) * sizeof *out->values);
    for (int i = 0; i < SEQS; i++) {
        new_seq(r, &seqs[i]);
    }
    for (int step = 0; step <= STEPS && status == DI_OK; step++) {
        mdl_item items[SEQS];
        int32_t n = 0;
        for (int i = 0; i < PROMPT; i++) {
            ids[i] = (int32_t)(unit_random(&seed) % (uint64_t)(vocab / 2));
        }
        for (int i = 0; i < SEQS; i++) {
            items[i] = (mdl_item){.seq = &seqs[i], .ids = ids + i, .n = step == 0 ? PROMPT - SEQS : 1, .n_logits = 1};
        }
        status = mdl_forward(r, items, SEQS, out->values + out->n, &n, err);
        out->n += status == DI_OK ? (size_t)n * (size_t)vocab : 0;
        if (status == DI_OK && step > 0 && mdl_draft_block(r) > 0) {
            const mdl_seq *both[SEQS] = {&seqs[0], &seqs[1]};
            float confidence[SEQS];
            status = mdl_draft_begin(r, both, ids, SEQS, err);
            status = status == DI_OK ? mdl_draft_step(r, 0, ids, out->values + out->n, confidence, err) : status;
            out->n += status == DI_OK ? SEQS * (size_t)vocab : 0;
        }
    }
    for (int i = 0; i < SEQS; i++) {
        free_seq(r, &seqs[i]);
    }
    return status;
}

static record run_all(const di_model *m, const setup *s, mdl_stream_stats *stats)
{
    mdl_runner *r;
    di_error err;
    record out;
    if (new_runner(m, s, &r, &err) != DI_OK || run(r, mdl_config_of(m)->vocab, &out, &err) != DI_OK) {
        fail_msg("%s, budget %lld: %s", s->backend, (long long)s->budget, err.message);
    }
    mdl_runner_get_stream_stats(r, stats);
    mdl_runner_free(r);
    return out;
}

static void assert_same(const record *a, const record *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->values, b->values, a->n * sizeof *a->values);
}

/* The smallest budget that a runner takes, about. */
static int64_t least_budget(const di_model *m, const setup *s)
{
    di_model_info info;
    di_model_get_info(m, &info);
    int64_t low = 0;
    int64_t high = 4 * info.weight_bytes;
    while (high - low > 100000) { /* a few slots */
        mdl_runner *r = NULL;
        setup try = *s;
        di_error err;
        try.budget = low + (high - low) / 2;
        const di_status status = new_runner(m, &try, &r, &err);
        if (status != DI_OK) {
            unit_expect_error(status, DI_E_LIMIT, &err, "RAM budget", "two experts", NULL);
        }
        mdl_runner_free(r);
        *(status == DI_OK ? &high : &low) = try.budget;
    }
    return high;
}

static void check_budgets(const char *backend, int n_budgets)
{
    di_model *const m = open_model();
    di_model_info info;
    setup s = {.backend = backend, .threads = 2};
    mdl_stream_stats stats;
    record all = run_all(m, &s, &stats);
    di_model_get_info(m, &info);
    assert_int_equal(stats.budget_bytes, 0);
    const int64_t least = least_budget(m, &s);
    int64_t most_misses = 0; /* of the smallest budget */
    int n_streams = 0;
    for (int i = 0; i <= n_budgets; i++) {
        s.budget = least + (info.weight_bytes * 5 / 4 - least) * i / n_budgets;
        s.threads = 1 + i % 3;
        record part = run_all(m, &s, &stats);
        assert_same(&all, &part);
        free(part.values);
        assert_true(stats.resident_bytes + stats.cache_bytes <= s.budget);
        if (stats.budget_bytes > 0) {
            assert_true(stats.slots >= MDL_STREAM_LEAST && stats.hits + stats.misses > 0);
            assert_true(i > 0 || stats.slots <= MDL_STREAM_LEAST + 2);
            assert_true(stats.guessed_right <= stats.guessed);
            most_misses = most_misses == 0 ? stats.misses : most_misses;
            assert_true(stats.misses <= most_misses);
            n_streams++;
        }
    }
    assert_int_equal(stats.budget_bytes, 0); /* the last budget holds everything */
    assert_true(n_streams >= 2);
    free(all.values);
    di_model_close(m);
}

static void bits_do_not_depend_on_the_budget(void **state)
{
    (void)state;
    check_budgets("auto", BUDGETS);
    check_budgets("ref", 3);
}

static void bits_do_not_depend_on_how_files_are_read(void **state)
{
    (void)state;
    di_model *const m = open_model();
    mdl_stream_stats stats;
    faulty disk;
    faulty_init(&disk);
    setup s = {.backend = "auto", .threads = 2};
    record all = run_all(m, &s, &stats);
    s.budget = least_budget(m, &s) + 40000;
    const io_table *const tables[] = {&io_by_uring, &io_by_threads, &disk.table, &disk.table};
    for (int i = 0; i < 4; i++) {
        s.io = tables[i];
        atomic_store(&disk.is_short, i == 3);
        record part = run_all(m, &s, &stats);
        assert_true(stats.misses > 0 && stats.read_bytes > 0);
        assert_int_equal(stats.engram_rows > 0, 1);
        assert_same(&all, &part);
        free(part.values);
    }
    free(all.values);
    di_model_close(m);
}

static void a_disk_that_fails_is_an_error_of_the_pass(void **state)
{
    (void)state;
    di_model *const m = open_model();
    const int32_t vocab = mdl_config_of(m)->vocab;
    mdl_stream_stats stats;
    mdl_runner *r;
    record out;
    di_error err;
    faulty disk;
    faulty_init(&disk);
    setup s = {.backend = "auto", .threads = 2, .io = &disk.table};
    record all = run_all(m, &(setup){.backend = "auto", .threads = 2}, &stats);
    s.budget = least_budget(m, &s);
    assert_int_equal(new_runner(m, &s, &r, &err), DI_OK);
    for (int i = 0; i < 3; i++) {
        atomic_store(&disk.read_error, EIO);
        unit_expect_error(run(r, vocab, &out, &err), DI_E_IO, &err, "cannot read model-0000", "Input/output error", NULL);
        free(out.values);
        atomic_store(&disk.read_error, 0);
        assert_int_equal(run(r, vocab, &out, &err), DI_OK);
        assert_same(&all, &out);
        free(out.values);
    }
    mdl_runner_free(r);
    free(all.values);
    di_model_close(m);
}

/* --- Files that somebody touches ---------------------------------------------------------------------------------------- */

static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors.index.json",
                                    "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                    "model-00003-of-00003.safetensors"};

static void copy_model(const char *to)
{
    char dir[1024];
    (void)snprintf(dir, sizeof dir, "%s/models/demo", getenv("DI_SOURCE_DIR"));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char *const path = file_path_join(dir, files[i]);
        char *data;
        size_t size;
        assert_int_equal(file_read(path, (size_t)64 << 20, &data, &size, NULL), DI_OK);
        unit_write(to, files[i], data, size);
        free(data);
        free(path);
    }
}

typedef void (*damage_fn)(const char *path);

static void cut(const char *path) { assert_int_equal(truncate(path, 4096), 0); }

static void take_away(const char *path) { assert_int_equal(unlink(path), 0); }

static void rewrite(const char *path)
{
    const int fd = open(path, O_WRONLY);
    const struct timespec times[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}}; /* whatever the clock's steps are */
    assert_true(fd >= 0);
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(close(fd), 0);
}

static void damage_all(const char *dir, damage_fn damage)
{
    for (size_t i = 3; i < sizeof files / sizeof files[0]; i++) {
        char *const path = file_path_join(dir, files[i]);
        damage(path);
        free(path);
    }
}

/* Damaged while a runner is open, and before one is. */
static void check_damage(damage_fn damage)
{
    char *const dir = unit_scratch_new();
    di_model *m;
    mdl_runner *r;
    mdl_runner *late = NULL;
    record out;
    di_error err;
    copy_model(dir);
    assert_int_equal(di_model_open(dir, NULL, &m, &err), DI_OK);
    setup s = {.backend = "auto", .threads = 2};
    s.budget = least_budget(m, &s);
    assert_int_equal(new_runner(m, &s, &r, &err), DI_OK);
    damage_all(dir, damage);
    unit_expect_error(run(r, mdl_config_of(m)->vocab, &out, &err), DI_E_IO, &err, "model-0000", "was changed or cut", NULL);
    free(out.values);
    unit_expect_error(new_runner(m, &s, &late, &err), DI_E_IO, &err, "was changed or replaced since the model was opened", NULL);
    mdl_runner_free(r);
    di_model_close(m);
    unit_scratch_remove(dir);
}

static void a_file_that_changes_is_an_error(void **state)
{
    (void)state;
    check_damage(cut);
    check_damage(rewrite);
}

/* The runner has the old files open. */
static void files_may_be_replaced_by_renaming(void **state)
{
    (void)state;
    char *const dir = unit_scratch_new();
    di_model *m;
    mdl_runner *r;
    record out;
    di_error err;
    mdl_stream_stats stats;
    copy_model(dir);
    assert_int_equal(di_model_open(dir, NULL, &m, &err), DI_OK);
    setup s = {.backend = "auto", .threads = 2};
    record all = run_all(m, &s, &stats);
    s.budget = least_budget(m, &s);
    assert_int_equal(new_runner(m, &s, &r, &err), DI_OK);
    damage_all(dir, take_away);
    assert_int_equal(run(r, mdl_config_of(m)->vocab, &out, &err), DI_OK);
    assert_same(&all, &out);
    free(out.values);
    free(all.values);
    mdl_runner_free(r);
    di_model_close(m);
    unit_scratch_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_the_budget),
        cmocka_unit_test(bits_do_not_depend_on_how_files_are_read),
        cmocka_unit_test(a_disk_that_fails_is_an_error_of_the_pass),
        cmocka_unit_test(a_file_that_changes_is_an_error),
        cmocka_unit_test(files_may_be_replaced_by_renaming),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
