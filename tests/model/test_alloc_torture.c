/* Fails each allocation of the load path in turn (curl's torture tests): for k = 0, 1, 2, ... the k-th allocation returns NULL, and
 * the call must report DI_E_MEMORY, free all it had and leave its output alone, until a run succeeds.
 * Only calls from our own code are counted and failed; what foreign libraries do inside is theirs.
 * ctest: timeout=120 wrap=malloc,calloc,realloc,strdup,aligned_alloc,free */
#include "support/unit.h"

#include "core/buf.h"
#include "core/file.h"
#include "core/json.h"
#include "core/pool.h"
#include "model/mdl_weights.h"
#include "model/tiny.h"

#include <deepinfer/model.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void __wrap_free(void *memory);

static struct {
    bool on;
    long left; /* allocations that still succeed */
    bool failed;
} torture;

/* Addresses of the blocks that our code has allocated since `on` and not freed: an open hash table. Blocks that a foreign library hands
 * out for us to free are not in it. */
enum { TABLE_SIZE = 1 << 17 };
static void *live[TABLE_SIZE];
static long n_live;
static char gone; /* its address marks a place whose block was freed */

static size_t place_of(const void *memory)
{
    return ((uintptr_t)memory >> 4) * 0x9E3779B97F4A7C15u >> 47;
}

static void remember(void *memory)
{
    size_t i = place_of(memory);
    while (live[i] != NULL && live[i] != &gone) {
        i = (i + 1) % TABLE_SIZE;
    }
    live[i] = memory;
    n_live++;
}

static void forget(const void *memory)
{
    for (size_t i = place_of(memory); live[i] != NULL; i = (i + 1) % TABLE_SIZE) {
        if (live[i] == memory) {
            live[i] = &gone;
            n_live--;
            return;
        }
    }
}

static bool refuse(void)
{
    if (!torture.on) {
        return false;
    }
    if (torture.left == 0) {
        torture.failed = true;
        return true; /* and every later one too: memory that is short stays short */
    }
    torture.left--;
    return false;
}

static void *counted(void *memory)
{
    if (torture.on && memory != NULL) {
        remember(memory);
    }
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return refuse() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse() ? NULL : counted(__real_calloc(n, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    if (refuse()) {
        return NULL;
    }
    const bool known = torture.on && old != NULL;
    if (known) {
        forget(old);
    }
    void *const memory = __real_realloc(old, size);
    if (known && memory == NULL) {
        remember(old);
    }
    return counted(memory);
}

char *__wrap_strdup(const char *text)
{
    return refuse() ? NULL : counted(__real_strdup(text));
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return refuse() ? NULL : counted(__real_aligned_alloc(alignment, size));
}

void __wrap_free(void *memory)
{
    if (torture.on && memory != NULL) {
        forget(memory);
    }
    __real_free(memory);
}

static char *dir;

static int make_dir(void **state)
{
    (void)state;
    dir = unit_scratch_new();
    tiny_write(dir, NULL);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unit_scratch_remove(dir);
    return 0;
}

/* Does something and undoes it; `arg` is the case's own. */
typedef di_status (*attempt)(const void *arg, di_error *err);

#if defined(__SANITIZE_THREAD__)
enum { SAMPLES = 4 }; /* nothing here is about threads */
#elif defined(__SANITIZE_ADDRESS__)
enum { SAMPLES = 16 };
#else
enum { SAMPLES = 64 };
#endif

/* Every k up to `dense`, then in steps that grow with k, so that a call of very many allocations is sampled. */
static void torment(const char *what, attempt fn, const void *arg, long dense)
{
    long k = 0;
    for (;; k += k < dense ? 1 : 1 + k / SAMPLES) {
        di_error err = {.message = ""};
        torture.left = k;
        torture.failed = false;
        memset(live, 0, sizeof live);
        n_live = 0;
        torture.on = true;
        const di_status status = fn(arg, &err);
        torture.on = false;
        if (n_live != 0) {
            fail_msg("%s: %ld blocks leak when allocation %ld fails", what, n_live, k);
        }
        if (!torture.failed) {
            assert_int_equal(status, DI_OK);
            break;
        }
        if (status != DI_E_MEMORY) {
            fail_msg("%s: allocation %ld fails, status %s: %s", what, k, di_status_name(status), err.message);
        }
        unit_expect_error(status, DI_E_MEMORY, &err, "out of memory", NULL);
    }
    print_message("%s: succeeds with %ld allocations\n", what, k);
    assert_true(k > 0);
}

static di_status load(const void *arg, di_error *err)
{
    const char *const path = arg;
    mdl_config config;
    mdl_checkpoint *c = NULL;
    mdl_weights w = {.owned = NULL};
    di_status status = mdl_config_read(path, &config, err);
    if (status == DI_OK) {
        status = mdl_checkpoint_open(path, &c, err);
    }
    if (status == DI_OK) {
        status = mdl_weights_bind(&config, c, &w, err);
    }
    mdl_weights_free(&w);
    mdl_checkpoint_close(c);
    return status;
}

static void loading_a_checkpoint(void **state)
{
    (void)state;
    torment("config, checkpoint, weights", load, dir, 1000);
}

static di_status open_model(const void *arg, di_error *err)
{
    di_model *model = NULL;
    const di_status status = di_model_open(arg, NULL, &model, err);
    assert_true((status == DI_OK) == (model != NULL));
    di_model_close(model);
    return status;
}

static void opening_the_demo_model(void **state)
{
    (void)state;
    const char *const source = getenv("DI_SOURCE_DIR");
    assert_non_null(source);
    char *const path = file_path_join(source, "models/demo");
    assert_non_null(path);
    torment("demo model", open_model, path, SAMPLES);
    free(path);
}

static di_status parse_json(const void *arg, di_error *err)
{
    const js_limits limits = {.last_duplicate_wins = true};
    const char *const text = arg;
    js_doc *doc = NULL;
    const di_status status = js_parse(text, strlen(text), "doc", &limits, &doc, err);
    js_free(doc);
    return status;
}

static void parsing_a_document(void **state)
{
    (void)state;
    torment("JSON", parse_json, "{\"a\":[1,2.5,{\"b\":\"x\"}],\"a\":null,\"c\":{}}", 1000);
}

static di_status write_tensors(const void *arg, di_error *err)
{
    st_writer *w = NULL;
    char *const path = file_path_join(arg, "written.safetensors");
    di_status status = path == NULL ? DI_E_MEMORY : st_writer_new(&w, err);
    if (path == NULL) {
        snprintf(err->message, sizeof err->message, "out of memory");
        err->code = DI_E_MEMORY;
    }
    for (int i = 0; status == DI_OK && i < 20; i++) {
        char name[48];
        snprintf(name, sizeof name, "tensor with a long name %d", i);
        status = st_writer_add(w, name, ST_U8, 1, (const int64_t[]){3}, "xyz", err);
    }
    if (status == DI_OK) {
        status = st_write(w, path, err);
    }
    st_writer_free(w);
    free(path);
    return status;
}

static void writing_tensors(void **state)
{
    (void)state;
    torment("safetensors writer", write_tensors, dir, 1000);
}

static di_status start_pool(const void *arg, di_error *err)
{
    (void)arg;
    pool *p = NULL;
    const di_status status = pool_new(2, &p, err);
    pool_free(p);
    return status;
}

static void starting_a_pool(void **state)
{
    (void)state;
    torment("thread pool", start_pool, NULL, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading_a_checkpoint),
        cmocka_unit_test(opening_the_demo_model),
        cmocka_unit_test(parsing_a_document),
        cmocka_unit_test(writing_tensors),
        cmocka_unit_test(starting_a_pool),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
