/* eng_eval.c - see eng_eval.h. */
#include "engine/eng_eval.h"

#include "core/core.h"
#include "engine/eng_model.h"
#include "support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EOS = 1 };

static void each_of(const char *line, size_t size, eng_eval_fn fn, void *user)
{
    js_doc *doc = NULL;
    di_error err;
    if (js_parse(line, size, "eval.jsonl", NULL, &doc, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    fn(user, js_root(doc));
    js_free(doc);
}

void eng_eval_each(const eng_eval_setup *setup, int first, int stride, eng_eval_fn fn, void *user)
{
    const char *const end_of_text = setup->text + setup->size;
    int i = 0;
    for (const char *line = setup->text; line < end_of_text; i++) {
        const char *const end = memchr(line, '\n', (size_t)(end_of_text - line));
        const size_t n = (size_t)((end != NULL ? end : end_of_text) - line);
        if (n > 0 && i >= first && (i - first) % stride == 0) {
            each_of(line, n, fn, user);
        }
        line += n + 1;
    }
}

int32_t *eng_eval_ids(const js_value *list, size_t *n)
{
    *n = js_length(list);
    int32_t *const ids = ar_calloc(*n, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < *n; i++) {
        ids[i] = (int32_t)js_int(js_at(list, i));
    }
    return ids;
}

eng_eval_setup eng_eval_open(const di_scheduler_options *options)
{
    char path[1024];
    di_error err;
    eng_eval_setup setup = {.text = NULL};
    const char *const data = getenv("DI_TEST_DATA");
    (void)snprintf(path, sizeof path, "%s/%sdemo_model/eval.jsonl", data != NULL ? data : getenv("DI_SOURCE_DIR"),
                   data != NULL ? "" : "tests/data/");
    if (file_read(path, (size_t)256 << 20, &setup.text, &setup.size, &err) != DI_OK) {
        printf("demo_model/eval.jsonl: 0 passed, 1 skipped (%s)\n", err.message);
        skip();
    }
    setup.model = eng_model_open("models/demo");
    di_status status = di_engine_open(setup.model, &(di_engine_options){.draft = true}, &setup.engine, &err);
    if (status == DI_OK) {
        status = di_scheduler_new(setup.engine, options, &setup.scheduler, &err);
    }
    if (status != DI_OK) {
        fail_msg("%s", err.message);
    }
    return setup;
}

void eng_eval_close(eng_eval_setup *setup)
{
    di_scheduler_free(setup->scheduler);
    di_engine_close(setup->engine);
    di_model_close(setup->model);
    free(setup->text);
}

void eng_eval_submit(di_scheduler *s, const int32_t *prompt, size_t n)
{
    static const int32_t stop = EOS;
    di_sampling sampling;
    di_task *task;
    di_error err;
    di_sampling_default(&sampling);
    sampling.temperature = 0.0f;
    sampling.stop_ids = &stop;
    sampling.n_stop_ids = 1;
    if (di_task_submit(s, &(di_task_options){.prompt = prompt, .n_prompt = n, .sampling = &sampling, .no_cache = true}, &task, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
}
