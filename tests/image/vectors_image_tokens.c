/* image_tokens.jsonl: how many tokens of the model an image of a size becomes. And what the file cannot show: every plan is
 * within the bounds, and sizes that can't be used have none. */
#include "support/unit.h"

#include "core/json.h"
#include "image/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "image_tokens.jsonl"

static const char *data_path(char *out, size_t capacity)
{
    const char *const folder = getenv("DI_TEST_DATA");
    const char *const source = getenv("DI_SOURCE_DIR");
    if (folder != NULL && folder[0] != '\0') {
        snprintf(out, capacity, "%s/recipe/%s", folder, FILE_NAME);
    } else {
        snprintf(out, capacity, "%s/tests/data/recipe/%s", source != NULL ? source : ".", FILE_NAME);
    }
    return out;
}

static void sizes_have_the_recorded_counts(void **state)
{
    (void)state;
    char path[4096];
    FILE *const file = fopen(data_path(path, sizeof path), "r");
    if (file == NULL) {
        printf("%s: 0 passed, 1 skipped (file not there)\n", FILE_NAME);
        skip();
    }
    char line[1024];
    int n = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        js_doc *doc;
        img_plan plan;
        assert_int_equal(js_parse(line, strlen(line), FILE_NAME, NULL, &doc, NULL), DI_OK);
        const js_value *const root = js_root(doc);
        const int32_t width = (int32_t)js_int(js_get(root, "width"));
        const int32_t height = (int32_t)js_int(js_get(root, "height"));
        assert_true(img_plan_size(width, height, &plan));
        if (plan.tokens != js_int(js_get(root, "tokens"))) {
            fail_msg("%d x %d: %d tokens, expected %lld", width, height, plan.tokens, (long long)js_int(js_get(root, "tokens")));
        }
        js_free(doc);
        n++;
    }
    (void)fclose(file);
    printf("%s: %d passed, 0 skipped\n", FILE_NAME, n);
}

static void a_plan_keeps_its_bounds(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 200000; i++) {
        img_plan plan;
        const int32_t width = 1 + (int32_t)(unit_random(&seed) % (1u << (unit_random(&seed) % 21)));
        const int32_t height = 1 + (int32_t)(unit_random(&seed) % (1u << (unit_random(&seed) % 21)));
        assert_true(img_plan_size(width, height, &plan));
        assert_int_equal(plan.tokens, plan.rows * (plan.columns + 1) + 2);
        assert_in_range(plan.tokens, 3, IMG_MAX_TOKENS);
        assert_int_equal(plan.width % IMG_PATCH, 0);
        assert_int_equal(plan.height % IMG_PATCH, 0);
        assert_in_range(plan.width, IMG_PATCH, plan.columns * IMG_PATCH * IMG_DOWNSAMPLE);
        assert_in_range(plan.height, IMG_PATCH, plan.rows * IMG_PATCH * IMG_DOWNSAMPLE);
    }
}

static void long_pictures_become_one_row_or_column(void **state)
{
    (void)state;
    img_plan plan;
    assert_true(img_plan_size(1 << 20, 1, &plan));
    assert_int_equal(plan.rows, 1);
    assert_int_equal(plan.columns, 1021);
    assert_int_equal(plan.tokens, 1024);
    assert_true(img_plan_size(1, 1 << 20, &plan));
    assert_int_equal(plan.rows, 511);
    assert_int_equal(plan.columns, 1);
}

static void sizes_out_of_range_have_no_plan(void **state)
{
    (void)state;
    img_plan plan;
    assert_false(img_plan_size(0, 5, &plan));
    assert_false(img_plan_size(5, -1, &plan));
    assert_false(img_plan_size(INT32_MAX, 5, &plan));
    assert_true(img_plan_size(IMG_MAX_SIDE, IMG_MAX_SIDE, &plan));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_have_the_recorded_counts),
        cmocka_unit_test(a_plan_keeps_its_bounds),
        cmocka_unit_test(long_pictures_become_one_row_or_column),
        cmocka_unit_test(sizes_out_of_range_have_no_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
