/* recipe.c - the conversation layer alone: recipe [DIR_OR_TOKENIZER_JSON]. A Chat body goes in, the ids of its prompt come out; ids
 * that some engine would have made go in, and the events of a Chat stream come out. */
#include <deepinfer/recipe.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char body[] =
    "{\"model\": \"DeepSeek-V4.1-Flash\", \"stream\": true, \"thinking\": {\"type\": \"enabled\"},"
    " \"messages\": [{\"role\": \"user\", \"content\": \"Weather in <｜User｜>Cairo?\"}],"
    " \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": {\"type\": \"object\"}}}]}";

static const char answer[] =
    "I need the tool.</think>One moment.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n"
    "<｜DSML｜ parameter name=\"place\" string=\"true\">Cairo</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";

static void must(di_status status, const di_error *err)
{
    if (status != DI_OK) {
        fprintf(stderr, "%s\n", err->message);
        exit(1);
    }
}

static void print_frames(di_reply *reply)
{
    const char *frames;
    size_t n;
    di_error err;
    must(di_reply_frames(reply, &frames, &n, &err), &err);
    fwrite(frames, 1, n, stdout);
}

int main(int argc, char **argv)
{
    di_error err;
    di_tokenizer *tokenizer;
    must(di_tokenizer_open(argc > 1 ? argv[1] : "models/demo", &tokenizer, &err), &err);
    di_recipe *recipe;
    must(di_recipe_open(tokenizer, NULL, &recipe, &err), &err);
    di_request *request;
    must(di_request_read(recipe, DI_CHAT, body, strlen(body), &request, &err), &err);

    size_t n_text;
    size_t n_ranges;
    size_t n_ids;
    (void)di_request_prompt(request, &n_text);
    (void)di_request_control_ranges(request, &n_ranges); /* the user's <｜User｜> is none of them */
    must(di_request_encode(request, 1, NULL, 0, &n_ids, &err), &err); /* only counts */
    printf("prompt: %zu bytes, %zu of its %zu ids are control tokens\n\n", n_text, n_ranges, n_ids);

    int32_t ids[sizeof answer];
    size_t n;
    must(di_tokenizer_encode(tokenizer, answer, strlen(answer), DI_ENCODE_SPECIAL, ids, sizeof answer, &n, &err), &err);
    const di_reply_options options = {.id = "chatcmpl-1", .created = 0};
    di_reply *reply;
    must(di_reply_new(recipe, request, &options, &reply, &err), &err);
    must(di_reply_ready(reply, (int64_t)n_ids, 0, &err), &err);
    for (size_t i = 0; i < n; i++) {
        must(di_reply_push_ids(reply, 0, &ids[i], 1, NULL, &err), &err);
        print_frames(reply);
    }
    must(di_reply_finish(reply, 0, DI_FINISH_STOP, &err), &err);
    print_frames(reply);

    di_reply_free(reply);
    di_request_free(request);
    di_recipe_close(recipe);
    di_tokenizer_close(tokenizer);
    return 0;
}
