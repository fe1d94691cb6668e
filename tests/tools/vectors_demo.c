/* The demo model answers its evaluation set as the reference does (bars: tools/verify/evalset.h), within five minutes on two cores.
 * ctest: serial timeout=1200 */
#include "command.h"

#include "support/unit.h"

#include "core/core.h"

#include <stdio.h>
#include <string.h>

/* The last line of JSON output. */
static js_doc *last_line(char *text, size_t size)
{
    di_error err;
    js_doc *doc = NULL;
    while (size > 0 && text[size - 1] == '\n') {
        text[--size] = '\0';
    }
    const char *const newline = strrchr(text, '\n');
    const char *const line = newline != NULL ? newline + 1 : text;
    if (js_parse(line, strlen(line), "verify --eval", NULL, &doc, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return doc;
}

static void demo_model_gives_the_reference_outputs(void **state)
{
    (void)state;
    char *const data = command_data("demo_model");
    char *const model = command_source("models/demo");
    char *const outputs = command_data("demo_model/eval.jsonl");
    char *const logits = command_data("demo_model/reference_logits.safetensors");
    const char *const argv[] = {"verify", "--json", "--eval", data, model, NULL};
    char *text = NULL;
    size_t size = 0;
    const bool any = file_exists(outputs) || file_exists(logits);
    if (any) {
        const int code = command_run(argv, &text, &size);
        if (code != 0) {
            print_error("%s", text);
        }
        js_doc *const doc = last_line(text, size);
        const js_value *const root = js_root(doc);
        print_message("%lld tokens in %.0f s; rel rms of logits %.4f on average, %.4f at most\n",
                      (long long)js_int(js_get(root, "tokens")), js_number(js_get(root, "seconds")),
                      js_number(js_get(root, "mean_rel_rms")), js_number(js_get(root, "max_rel_rms")));
        printf("demo_model/eval.jsonl: %lld passed, 0 skipped (%lld prompts parted where two tokens are about equally likely)\n",
               (long long)js_int(js_get(root, "equal")),
               (long long)(js_int(js_get(root, "prompts")) - js_int(js_get(root, "equal"))));
        printf("demo_model/reference_logits.safetensors: %lld passed, 0 skipped (none)\n",
               (long long)js_int(js_get(root, "logits")));
        printf("demo_model/reference_logits.safetensors, drafts: %lld passed, 0 skipped (confidences: rel rms %.4f at most)\n",
               (long long)js_int(js_get(root, "draft_blocks_equal")), js_number(js_get(root, "max_confidence_rel_rms")));
        assert_int_equal(code, 0);
        assert_true(!file_exists(logits) || js_int(js_get(root, "draft_blocks")) == js_int(js_get(root, "logits")));
        assert_string_equal(js_string(js_get(root, "verdict"), NULL), "ok");
        js_free(doc);
    } else {
        printf("demo_model/eval.jsonl: 0 passed, 1 skipped (not in the test data)\n");
    }
    free(text);
    free(data);
    free(model);
    free(outputs);
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(demo_model_gives_the_reference_outputs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
