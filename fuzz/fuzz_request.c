/* Fuzzes request bodies: each input is read as all three protocols, without a tokenizer and under a small budget of memory.
 *
 * A refused body has a status of HTTP and a message of UTF-8. A body that is read has a prompt of UTF-8 whose control ranges ascend and
 * begin and end between characters, one image range for each image, and a constraint that is what it says. */
#include "core/json.h"
#include "core/utf8.h"

#include <deepinfer/recipe.h>

#include <stdlib.h>
#include <string.h>

static void require(bool truth)
{
    if (!truth) {
        abort();
    }
}

static bool is_utf8(const char *text, size_t n)
{
    return utf8_valid_prefix((const uint8_t *)text, n) == n;
}

static bool between_characters(const char *text, size_t n, size_t i)
{
    return i == n || ((unsigned char)text[i] & 0xC0) != 0x80;
}

static void check_prompt(const di_request *request)
{
    static const char image[] = "<｜image｜>";
    size_t n;
    size_t n_ranges;
    size_t n_images;
    size_t n_places = 0;
    size_t last = 0;
    const char *const prompt = di_request_prompt(request, &n);
    const di_range *const ranges = di_request_control_ranges(request, &n_ranges);
    require(is_utf8(prompt, n) && prompt[n] == '\0');
    for (size_t i = 0; i < n_ranges; i++) {
        require(ranges[i].begin >= last && ranges[i].begin < ranges[i].end && ranges[i].end <= n);
        require(between_characters(prompt, n, ranges[i].begin) && between_characters(prompt, n, ranges[i].end));
        last = ranges[i].end;
        n_places += last - ranges[i].begin == sizeof image - 1 && memcmp(prompt + ranges[i].begin, image, sizeof image - 1) == 0;
    }
    const di_image_ref *const images = di_request_images(request, &n_images);
    require(n_images == n_places);
    for (size_t i = 0; i < n_images; i++) {
        require(images[i].data != NULL && images[i].path[0] != '\0');
    }
}

static void check_inference(const di_request *request)
{
    const di_inference *const inference = di_request_inference(request);
    const di_output_options *const output = di_request_output(request);
    const js_limits limits = {.max_depth = 127};
    int64_t max_tokens;
    js_doc *doc;
    require(inference->temperature >= 0.0f && inference->temperature <= 2.0f);
    require(inference->top_p > 0.0f && inference->top_p <= 1.0f);
    require(inference->n >= 1 && inference->n <= 128 && output->n_stops <= 16);
    require(di_request_max_tokens(request, 0, 1 << 20, &max_tokens, NULL) == DI_OK && max_tokens > 0);
    if (inference->constraint != DI_CONSTRAINT_NONE && inference->constraint != DI_CONSTRAINT_REGEX && inference->constraint_size > 0) {
        require(js_parse(inference->constraint_text, inference->constraint_size, "constraint", &limits, &doc, NULL) == DI_OK);
        js_free(doc);
    }
}

static void read_as(const di_recipe *recipe, di_protocol protocol, const char *text, size_t size)
{
    di_error err = {.message = ""};
    di_request *request = NULL;
    const di_status status = di_request_read(recipe, protocol, text, size, &request, &err);
    if (status != DI_OK) {
        const int http = di_recipe_http_status(status);
        require(request == NULL && (http == 400 || http == 413));
        require(err.message[0] != '\0' && is_utf8(err.message, strlen(err.message)));
        return;
    }
    check_prompt(request);
    check_inference(request);
    di_request_free(request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const di_recipe_options options = {
        .thinking_off = size % 2 == 0,
        .reject_missing_reasoning = size % 3 == 0,
        .drop_messages_web_search = size % 5 == 0,
        .max_request_bytes = (size_t)16 << 20,
    };
    di_recipe *recipe;
    require(di_recipe_open(NULL, &options, &recipe, NULL) == DI_OK);
    for (int protocol = DI_CHAT; protocol <= DI_MESSAGES; protocol++) {
        read_as(recipe, (di_protocol)protocol, (const char *)data, size);
    }
    di_recipe_close(recipe);
    return 0;
}
