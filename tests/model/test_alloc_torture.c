/* Fails each allocation of the load path in turn (support/torture.h): the call must report DI_E_MEMORY, free all it had and leave its
 * output alone, until a run succeeds.
 * ctest: timeout=120 wrap=malloc,calloc,realloc,strdup,aligned_alloc,free */
#include "support/torture.h"

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
    torture_all("config, checkpoint, weights", load, dir, 1000);
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
    torture_all("demo model", open_model, path, TORTURE_SAMPLES);
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
    torture_all("JSON", parse_json, "{\"a\":[1,2.5,{\"b\":\"x\"}],\"a\":null,\"c\":{}}", 1000);
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
    torture_all("safetensors writer", write_tensors, dir, 1000);
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
    torture_all("thread pool", start_pool, NULL, 1000);
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
