/* Loads every checkpoint of the golden data and the demo model: configuration, shards and weights agree, the inventory accounts for every
 * tensor and byte, and every golden file opens. The folder is DI_TEST_DATA, else tests/data. */
#include "support/unit.h"

#include "core/file.h"
#include "model/mdl_inventory.h"
#include "model/mdl_weights.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t n_passed;
static size_t n_skipped;

static char *join(const char *a, const char *b)
{
    char *const path = file_path_join(a, b);
    assert_non_null(path);
    return path;
}

static void load(const char *dir)
{
    mdl_config config;
    mdl_checkpoint *c;
    mdl_weights w;
    di_error err;
    if (mdl_config_read(dir, &config, &err) != DI_OK || mdl_checkpoint_open(dir, &c, &err) != DI_OK) {
        fail_msg("%s: %s", dir, err.message);
    }
    if (mdl_weights_bind(&config, c, &w, &err) != DI_OK) {
        fail_msg("%s: %s", dir, err.message);
    }
    uint64_t n_tensors;
    uint64_t n_bytes;
    mdl_inventory_totals(&config, &n_tensors, &n_bytes);
    assert_int_equal(mdl_checkpoint_count(c), n_tensors);
    assert_int_equal(mdl_checkpoint_bytes(c), n_bytes);
    for (int32_t i = 0; i < config.hidden; i++) {
        assert_true(isfinite(w.norm[i]));
    }
    mdl_weights_free(&w);
    mdl_checkpoint_close(c);
    n_passed++;
}

static void open_golden(const char *dir)
{
    char *const golden = join(dir, "golden");
    DIR *const files = opendir(golden);
    for (const struct dirent *e; files != NULL && (e = readdir(files)) != NULL;) {
        if (strstr(e->d_name, ".safetensors") == NULL) {
            continue;
        }
        char *const path = join(golden, e->d_name);
        st_file *file;
        di_error err;
        if (st_open(path, &file, &err) != DI_OK) {
            fail_msg("%s", err.message);
        }
        assert_true(st_count(file) > 0);
        st_close(file);
        free(path);
        n_passed++;
    }
    if (files != NULL) {
        closedir(files);
    }
    free(golden);
}

static void every_checkpoint_loads(void **state)
{
    (void)state;
    const char *const source = getenv("DI_SOURCE_DIR");
    const char *const data = getenv("DI_TEST_DATA");
    assert_non_null(source);
    char *const root = data != NULL ? join(data, "model") : join(source, "tests/data/model");
    DIR *const folders = opendir(root);
    for (const struct dirent *e; folders != NULL && (e = readdir(folders)) != NULL;) {
        char *const dir = join(root, e->d_name);
        char *const manifest = join(dir, "golden/manifest.json");
        if (e->d_name[0] != '.' && file_exists(manifest)) {
            load(dir);
            open_golden(dir);
        }
        free(manifest);
        free(dir);
    }
    if (folders != NULL) {
        closedir(folders);
    } else {
        n_skipped++;
    }
    char *const demo = join(source, "models/demo");
    load(demo);
    free(demo);
    free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_checkpoint_loads),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("model/*/config.json, *.safetensors: %zu passed, %zu skipped (%s)\n", n_passed, n_skipped,
           n_skipped > 0 ? "no folder model/ in the test data" : "none");
    return failed;
}
