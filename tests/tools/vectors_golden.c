/* Every golden checkpoint of the test data meets the three criteria of its README, and grouping does not show; with each instruction set.
 *
 * All checkpoints go through one `deepinfer verify --all-chunkings`, because the third criterion is about the whole set.
 * ctest: serial timeout=900 */
#include "command.h"

#include "support/unit.h"

#include "core/core.h"
#include "ops/ops.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CHECKPOINTS = 32, N_OPTIONS = 5 };

typedef struct count {
    size_t passed;
    size_t skipped;
    buf why;
} count;

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

/* Folders of `root` that hold a checkpoint and golden data; paths are malloc'ed. */
static size_t find_checkpoints(const char *root, const char **out)
{
    struct dirent **entries = NULL;
    const int n = scandir(root, &entries, NULL, by_name);
    size_t found = 0;
    for (int i = 0; i < n; i++) {
        char *const dir = file_path_join(root, entries[i]->d_name);
        char *const config = file_path_join(dir, "config.json");
        char *const manifest = file_path_join(dir, "golden/manifest.json");
        if (entries[i]->d_name[0] != '.' && file_exists(config) && file_exists(manifest) && found < MAX_CHECKPOINTS) {
            out[found++] = strdup(dir);
        }
        free(dir);
        free(config);
        free(manifest);
        free(entries[i]);
    }
    free(entries);
    return found;
}

static void count_line(const js_value *line, const char *const *dirs, size_t n, count *counts)
{
    const char *const dir = js_string(js_get(line, "checkpoint"), NULL);
    const char *const verdict = js_string(js_get(line, "verdict"), NULL);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(dir, dirs[i]) != 0) {
            continue;
        }
        if (strcmp(verdict, "skipped") == 0) {
            const char *const name = js_string(js_get(line, "case"), NULL);
            buf_printf(&counts[i].why, "%s%s: %s", counts[i].skipped > 0 ? "; " : "", name,
                       js_string(js_get(line, "reason"), NULL));
            counts[i].skipped++;
        } else if (strcmp(verdict, "ok") == 0) {
            counts[i].passed++;
        } else {
            print_error("%s, case %s: %s, row %lld: %s\n", dir, js_string(js_get(line, "case"), NULL),
                        js_string(js_get(line, "first_tensor"), NULL), (long long)js_int(js_get(line, "row")),
                        js_string(js_get(line, "message"), NULL));
        }
    }
}

static void count_lines(const char *text, size_t size, const char *const *dirs, size_t n, count *counts)
{
    for (size_t begin = 0; begin < size;) {
        const char *const end = memchr(text + begin, '\n', size - begin);
        const size_t length = end != NULL ? (size_t)(end - (text + begin)) : size - begin;
        js_doc *doc = NULL;
        di_error err;
        if (js_parse(text + begin, length, "verify", NULL, &doc, &err) != DI_OK) {
            fail_msg("%s", err.message);
        }
        count_line(js_root(doc), dirs, n, counts);
        js_free(doc);
        begin += length + 1;
    }
}

static void check(const char *isa)
{
    const char *argv[N_OPTIONS + MAX_CHECKPOINTS + 1] = {"verify", "--json", "--all-chunkings", "--cpu-isa", isa};
    const char **const dirs = argv + N_OPTIONS;
    count counts[MAX_CHECKPOINTS] = {{0}};
    char *const root = command_data("model");
    const size_t n = find_checkpoints(root, dirs);
    char *text = NULL;
    size_t size = 0;
    if (n == 0) {
        printf("model/*/golden: 0 passed, 1 skipped (no golden folder in the test data)\n");
        free(root);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        buf_init(&counts[i].why, 1 << 16);
    }
    const int code = command_run(argv, &text, &size);
    count_lines(text, size, dirs, n, counts);
    for (size_t i = 0; i < n; i++) {
        printf("%s/golden/manifest.json, %s: %zu passed, %zu skipped (%s)\n", dirs[i] + strlen(root) + 1, isa, counts[i].passed,
               counts[i].skipped, counts[i].skipped > 0 ? counts[i].why.data : "none");
        assert_true(counts[i].passed > 0);
        buf_fini(&counts[i].why);
        free((char *)(uintptr_t)dirs[i]);
    }
    fflush(stdout);
    free(text);
    free(root);
    assert_int_equal(code, 0);
}

static void golden_checkpoints_meet_the_criteria(void **state)
{
    (void)state;
    check("auto");
}

/* As the backend sees it. A device that can't be opened for another reason fails the test. */
static bool is_there(const char *isa)
{
    const ops_backend *cpu;
    ops_device *dev = NULL;
    di_error err;
    if (ops_backend_find("cpu", &cpu, &err) != DI_OK) {
        return false;
    }
    const di_status status = cpu->open(&(ops_device_options){.n_threads = 1, .isa = isa}, &dev, &err);
    if (status == DI_OK) {
        cpu->close(dev);
    } else if (status != DI_E_UNSUPPORTED) {
        fail_msg("%s", err.message);
    }
    return status == DI_OK;
}

static void every_instruction_set_meets_them(void **state)
{
    static const char *const isas[] = {"avx2", "avx512", "avx512vnni", "avx512bf16"};
    (void)state;
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        if (is_there(isas[i])) {
            check(isas[i]);
        } else {
            printf("model/*/golden, %s: 0 passed, 1 skipped (not a processor for it)\n", isas[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_checkpoints_meet_the_criteria),
        cmocka_unit_test(every_instruction_set_meets_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
