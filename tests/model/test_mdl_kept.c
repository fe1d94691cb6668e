/* The folder of prepared weights: the second start maps what the first has written and gives the same bits; whatever is wrong with a file
 * is said, and a good one takes its place; a disk that is full, or another process that writes, costs the file and nothing else. */
#include "core/core.h"
#include "model/mdl_kept.h"
#include "model/model_int.h"
#include "support/faulty.h"
#include "support/unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#define CPU_PLAIN_NAME "panels16-2"
#define SHARD_2 "model-00002-of-00003.safetensors"

enum { MAX_ROWS = 16, MAX_TOKENS = 128, PROMPT = 9 };

typedef struct place {
    char *model_dir;
    char *dir; /* the cache */
    di_model *model;
} place;

static di_model *open_model(const char *dir)
{
    di_error err;
    di_model *m = NULL;
    if (di_model_open(dir, NULL, &m, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return m;
}

/* A copy of the tiny model, so that a test may change it. */
static place new_place(void)
{
    static const char *const files[] = {"config.json", "engram_compressed_map.i32", "model.safetensors.index.json",
                                        "model-00001-of-00003.safetensors", SHARD_2, "model-00003-of-00003.safetensors"};
    place p = {.model_dir = unit_scratch_new(), .dir = unit_scratch_new()};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[1024];
        char *data;
        size_t size;
        (void)snprintf(path, sizeof path, "%s/tests/data/model/t6/%s", getenv("DI_SOURCE_DIR"), files[i]);
        assert_int_equal(file_read(path, (size_t)1 << 30, &data, &size, NULL), DI_OK);
        unit_write(p.model_dir, files[i], data, size);
        free(data);
    }
    p.model = open_model(p.model_dir);
    return p;
}

static void end_place(place *p)
{
    di_model_close(p->model);
    unit_scratch_remove(p->model_dir);
    unit_scratch_remove(p->dir);
}

static mdl_runner *start_with(const di_model *m, const mdl_runner_options *options, const char *backend)
{
    mdl_runner_options o = *options;
    mdl_runner *r = NULL;
    di_error err = {.message = ""};
    o.device.n_threads = 2;
    o.max_rows = MAX_ROWS;
    o.max_tokens = MAX_TOKENS;
    if (ops_backend_find(backend, &o.backend, &err) != DI_OK || mdl_runner_new(m, &o, &r, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return r;
}

/* A start and its end; the note has both texts. */
static mdl_weight_stats start(const di_model *m, const mdl_runner_options *o, const char *text1, const char *text2)
{
    mdl_weight_stats stats;
    mdl_runner *const r = start_with(m, o, "cpu");
    mdl_runner_get_weight_stats(r, &stats);
    mdl_runner_free(r);
    if (strstr(stats.note, text1) == NULL || strstr(stats.note, text2) == NULL) {
        fail_msg("'%s' lacks '%s' or '%s'", stats.note, text1, text2);
    }
    return stats;
}

/* The only file in a folder; NULL = it is empty. */
static char *only_file(const char *dir)
{
    char *path = NULL;
    DIR *const d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] != '.') {
            assert_null(path);
            path = file_path_join(dir, e->d_name);
        }
    }
    closedir(d);
    return path;
}

static void the_second_start_maps_what_the_first_wrote(void **state)
{
    (void)state;
    place p = new_place();
    const mdl_runner_options o = {.weight_cache = p.dir, .draft = true};
    const mdl_weight_stats first = start(p.model, &o, "weights were prepared and written to", p.dir);
    assert_true(first.written_bytes > 0 && first.mapped_bytes == 0);
    const mdl_weight_stats second = start(p.model, &o, "weights are mapped from", p.dir);
    assert_true(second.mapped_bytes > 0 && second.mapped_bytes < first.written_bytes && second.written_bytes == 0);
    free(only_file(p.dir));
    end_place(&p);
}

/* Logits of a short prompt on the demo model. */
static float *logits_of(const di_model *m, const char *dir, int64_t *mapped)
{
    const mdl_runner_options o = {.weight_cache = dir};
    const size_t vocab = (size_t)mdl_config_of(m)->vocab;
    float *const logits = calloc(vocab, sizeof *logits);
    int32_t ids[PROMPT];
    mdl_weight_stats stats;
    mdl_seq seq;
    int32_t n;
    di_error err = {.message = ""};
    mdl_runner *const r = start_with(m, &o, "cpu");
    mdl_runner_get_weight_stats(r, &stats);
    *mapped = stats.mapped_bytes;
    mdl_seq_init(r, &seq, mdl_alloc(r, mdl_runner_layout(r)->state_bytes));
    assert_int_equal(mdl_seq_reserve(&seq, 1, &err), DI_OK);
    mdl_seq_add_page(&seq, mdl_alloc(r, mdl_runner_layout(r)->page_bytes));
    for (int i = 0; i < PROMPT; i++) {
        ids[i] = 40 + 3 * i;
    }
    const mdl_item item = {.seq = &seq, .ids = ids, .n = PROMPT, .n_logits = 1};
    assert_int_equal(mdl_forward(r, &item, 1, logits, &n, &err), DI_OK);
    mdl_free(r, seq.state);
    mdl_free(r, seq.pages[0]);
    mdl_seq_fini(&seq);
    mdl_runner_free(r);
    return logits;
}

static void mapped_weights_give_the_same_logits(void **state)
{
    (void)state;
    char path[1024];
    int64_t mapped[3];
    char *const dir = unit_scratch_new();
    (void)snprintf(path, sizeof path, "%s/models/demo", getenv("DI_SOURCE_DIR"));
    di_model *const m = open_model(path);
    const size_t bytes = (size_t)mdl_config_of(m)->vocab * sizeof(float);
    float *const without = logits_of(m, NULL, &mapped[0]);
    float *const written = logits_of(m, dir, &mapped[1]);
    float *const read = logits_of(m, dir, &mapped[2]);
    assert_true(mapped[0] == 0 && mapped[1] == 0 && mapped[2] > 10000000);
    assert_memory_equal(without, written, bytes);
    assert_memory_equal(without, read, bytes);
    free(without);
    free(written);
    free(read);
    di_model_close(m);
    unit_scratch_remove(dir);
}

/* One way of spoiling a file. */
typedef struct harm {
    const char *text; /* in the note */
    size_t flip;      /* byte to change; with from_end counted from there */
    bool from_end;
    size_t keep;      /* bytes to keep; 0 = all */
    size_t more;      /* bytes to add */
} harm;

static void spoil(const char *path, const harm *h)
{
    char *data;
    size_t size;
    assert_int_equal(file_read(path, (size_t)1 << 30, &data, &size, NULL), DI_OK);
    char *const out = calloc(1, size + h->more + 1);
    assert_non_null(out);
    memcpy(out, data, size);
    if (h->flip > 0 || h->from_end) {
        out[h->from_end ? size - 1 - h->flip : h->flip] ^= 1;
    }
    assert_int_equal(file_write(path, out, (h->keep > 0 ? h->keep : size) + h->more, NULL), DI_OK);
    free(out);
    free(data);
}

static void a_spoilt_file_is_said_and_written_anew(void **state)
{
    static const harm harms[] = {
        {.text = "is no file of prepared weights", .flip = 1},
        {.text = "version", .flip = 8},
        {.text = "is damaged", .flip = 12},
        {.text = "its head says", .flip = 17},
        {.text = "wrong checksum of its table", .flip = 25},
        {.text = "wrong checksum of its table", .flip = 60},
        {.text = "wrong checksum of its table", .flip = 90},
        {.text = "wrong checksum of its table", .flip = 130},
        {.text = "wrong checksum of a matrix", .from_end = true, .flip = 0},
        {.text = "it ends in its head", .keep = 100},
        {.text = "its head says", .keep = 1000},
        {.text = "its head says", .more = 1},
    };
    (void)state;
    place p = new_place();
    const mdl_runner_options o = {.weight_cache = p.dir};
    (void)start(p.model, &o, "written to", "");
    char *const path = only_file(p.dir);
    for (size_t i = 0; i < sizeof harms / sizeof *harms; i++) {
        spoil(path, &harms[i]);
        (void)start(p.model, &o, harms[i].text, "weights were prepared and written to");
        (void)start(p.model, &o, "weights are mapped from", path);
    }
    assert_int_equal(file_write(path, "", 0, NULL), DI_OK);
    (void)start(p.model, &o, "it ends in its head", "written to");
    free(only_file(p.dir));
    free(path);
    end_place(&p);
}

static void other_weights_have_another_file(void **state)
{
    (void)state;
    place p = new_place();
    const mdl_runner_options o = {.weight_cache = p.dir};
    (void)start(p.model, &o, "written to", "");
    char *const path = only_file(p.dir);
    char *const shard = file_path_join(p.model_dir, SHARD_2);
    spoil(shard, &(harm){.from_end = true}); /* the last weight is another one */
    di_model *const changed = open_model(p.model_dir);
    const mdl_weight_stats stats = start(changed, &o, "written to", "");
    assert_null(strstr(stats.note, path));
    (void)start(p.model, &o, "weights are mapped from", path);

    /* The right name on the wrong file. */
    char *written = strstr(stats.note, p.dir);
    assert_non_null(written);
    *strrchr(written, ':') = '\0';
    assert_int_equal(rename(path, written), 0);
    (void)start(changed, &o, "is of other weights than the checkpoint has now", "written to");
    (void)start(changed, &o, "weights are mapped from", "");
    di_model_close(changed);
    free(shard);
    free(path);
    end_place(&p);
}

static void instruction_sets_with_other_layouts_have_other_files(void **state)
{
    (void)state;
    place p = new_place();
    mdl_runner_options o = {.weight_cache = p.dir, .device = {.isa = "avx2"}};
    (void)start(p.model, &o, "written to", CPU_PLAIN_NAME);
    (void)start(p.model, &o, "weights are mapped from", CPU_PLAIN_NAME);
    o.device.isa = "auto";
    char *const path = only_file(p.dir);
    mdl_weight_stats stats;
    mdl_runner *const r = start_with(p.model, &o, "cpu");
    mdl_runner_get_weight_stats(r, &stats);
    const bool same = strcmp(r->ops->kept_name(r->dev), CPU_PLAIN_NAME) == 0;
    assert_true(same == (strstr(stats.note, "weights are mapped from") != NULL));
    mdl_runner_free(r);
    free(path);
    end_place(&p);
}

static void a_file_without_the_draft_model_is_completed_for_who_wants_it(void **state)
{
    (void)state;
    place p = new_place();
    mdl_runner_options o = {.weight_cache = p.dir};
    (void)start(p.model, &o, "written to", "");
    o.draft = true;
    (void)start(p.model, &o, "lacks weights of the draft model", "written to");
    (void)start(p.model, &o, "weights are mapped from", "");
    o.draft = false;
    (void)start(p.model, &o, "weights are mapped from", "");
    free(only_file(p.dir));
    end_place(&p);
}

static void a_disk_that_fails_costs_the_file_alone(void **state)
{
    (void)state;
    place p = new_place();
    faulty disk;
    const mdl_runner_options o = {.weight_cache = p.dir, .io = &disk.table};
    faulty_init(&disk);
    atomic_store(&disk.allocate_error, ENOSPC);
    (void)start(p.model, &o, "in memory only: cannot take space for", "No space left");
    assert_null(only_file(p.dir));
    faulty_init(&disk);
    for (int n = 0; n < 12; n += 5) {
        atomic_store(&disk.writes_left, n);
        atomic_store(&disk.write_error, n % 2 == 0 ? ENOSPC : EIO);
        (void)start(p.model, &o, "in memory only: cannot write", "");
        assert_null(only_file(p.dir));
    }
    faulty_init(&disk);
    atomic_store(&disk.sync_error, EIO);
    (void)start(p.model, &o, "in memory only: cannot write", "Input/output");
    assert_null(only_file(p.dir));
    faulty_init(&disk);
    atomic_store(&disk.create_error, EACCES);
    (void)start(p.model, &o, "in memory only", "Permission denied");
    faulty_init(&disk);
    atomic_store(&disk.is_short, true);
    (void)start(p.model, &o, "written to", "");
    (void)start(p.model, &o, "weights are mapped from", "");
    end_place(&p);
}

static void a_folder_that_cannot_be_is_said(void **state)
{
    (void)state;
    place p = new_place();
    unit_write(p.dir, "file", "x", 1);
    char *const below = file_path_join(p.dir, "file/below");
    (void)start(p.model, &(mdl_runner_options){.weight_cache = below}, "in memory only: cannot make folder", "Not a directory");
    free(below);
    end_place(&p);
}

/* The name that a file has while it is written. */
static char *part_of(const place *p)
{
    const mdl_runner_options o = {.weight_cache = p->dir};
    (void)start(p->model, &o, "written to", "");
    char *const path = only_file(p->dir);
    char *const part = malloc(strlen(path) + sizeof ".part");
    assert_non_null(part);
    (void)snprintf(part, strlen(path) + sizeof ".part", "%s.part", path);
    assert_int_equal(unlink(path), 0);
    free(path);
    return part;
}

static void what_another_process_writes_is_left_alone(void **state)
{
    (void)state;
    place p = new_place();
    const mdl_runner_options o = {.weight_cache = p.dir};
    char *const part = part_of(&p);
    char *data;
    size_t size;
    assert_int_equal(file_write(part, "half of it", 10, NULL), DI_OK);
    const int fd = open(part, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    (void)start(p.model, &o, "in memory only: another process is writing", "");
    assert_int_equal(file_read(part, 100, &data, &size, NULL), DI_OK);
    assert_int_equal(size, 10);
    free(data);
    close(fd); /* it was killed */
    (void)start(p.model, &o, "written to", "");
    (void)start(p.model, &o, "weights are mapped from", "");
    free(only_file(p.dir));
    free(part);
    end_place(&p);
}

static void processes_that_start_together_end_with_one_good_file(void **state)
{
    (void)state;
    place p = new_place();
    const mdl_runner_options o = {.weight_cache = p.dir};
    pid_t children[3];
    for (size_t i = 0; i < 3; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            mdl_runner *r = NULL;
            mdl_runner_options mine = o;
            mine.max_rows = MAX_ROWS;
            mine.max_tokens = MAX_TOKENS;
            const bool good = ops_backend_find("cpu", &mine.backend, NULL) == DI_OK && mdl_runner_new(p.model, &mine, &r, NULL) == DI_OK;
            _exit(good ? 0 : 1); /* without what the parent has open */
        }
    }
    for (size_t i = 0; i < 3; i++) {
        int how = -1;
        assert_int_equal(waitpid(children[i], &how, 0), children[i]);
        assert_int_equal(how, 0);
    }
    (void)start(p.model, &o, "weights are mapped from", "");
    free(only_file(p.dir));
    end_place(&p);
}

static void who_has_no_form_of_its_own_says_so(void **state)
{
    (void)state;
    place p = new_place();
    mdl_weight_stats stats;
    mdl_runner_options o = {.weight_cache = p.dir};
    mdl_runner *const r = start_with(p.model, &o, "ref");
    mdl_runner_get_weight_stats(r, &stats);
    assert_non_null(strstr(stats.note, "the weight cache is not used: this backend"));
    mdl_runner_free(r);
    o.weight_cache = NULL;
    assert_string_equal(start(p.model, &o, "", "").note, "");
    assert_null(only_file(p.dir));
    end_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_start_maps_what_the_first_wrote),
        cmocka_unit_test(mapped_weights_give_the_same_logits),
        cmocka_unit_test(a_spoilt_file_is_said_and_written_anew),
        cmocka_unit_test(other_weights_have_another_file),
        cmocka_unit_test(instruction_sets_with_other_layouts_have_other_files),
        cmocka_unit_test(a_file_without_the_draft_model_is_completed_for_who_wants_it),
        cmocka_unit_test(a_disk_that_fails_costs_the_file_alone),
        cmocka_unit_test(a_folder_that_cannot_be_is_said),
        cmocka_unit_test(what_another_process_writes_is_left_alone),
        cmocka_unit_test(processes_that_start_together_end_with_one_good_file),
        cmocka_unit_test(who_has_no_form_of_its_own_says_so),
    };
    const ops_backend *found;
    if (ops_backend_find("cpu", &found, NULL) != DI_OK) {
        printf("skipped: this processor can't run backend cpu\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
