/* rec_responses_content.c - content blocks of Responses messages and tool outputs (recipe.md 3.4, 3.2). */
#include "recipe/rec_responses.h"

#include <stdio.h>
#include <strings.h>

static const char *key_of(rec_responses_place place)
{
    return place == REC_R_OUTPUT ? "output" : "content";
}

static bool is_link(rec_str url)
{
    return url.size >= 4 && strncasecmp(url.data, "http", 4) == 0;
}

static di_status read_image(rec_responses *x, rec_responses_place place, size_t item, const js_value *block, const rec_path *at,
                            rec_content *out, di_error *err)
{
    di_request *const r = x->r;
    rec_str url = REC_STR("");
    rec_str file = REC_STR("");
    bool has_file = false;
    di_image_detail detail = DI_DETAIL_HIGH;
    di_image_ref *image = NULL;
    char text[64];
    di_status status = rec_get_string(block, at, "image_url", &url, NULL, err);
    if (status == DI_OK) {
        status = rec_get_string(block, at, "file_id", &file, &has_file, err);
    }
    if (status == DI_OK) {
        status = rec_read_detail(block, at, &detail, err);
    }
    if (status != DI_OK) {
        return status;
    }
    if (r->talk.version == DI_V4) {
        return rec_add_image(r, out, NULL) != NULL ? DI_OK : rec_no_memory(r, err); /* V4 looks at no image */
    }
    snprintf(text, sizeof text, "input[%zu].%s[%zu]", item, key_of(place), at->index);
    if (has_file) {
        return url.size > 0
                   ? err_set(err, DI_E_ARGUMENT, "%s: input_image cannot have both image_url and file_id", text)
                   : err_set(err, DI_E_ARGUMENT,
                             "%s: file_id is not supported. Pass the image as a base64 data url instead.", text);
    }
    if (url.size == 0) {
        return err_set(err, DI_E_ARGUMENT, "%s: input_image must have image_url or file_id", text);
    }
    if (is_link(url) && url.size > REC_MAX_URL) {
        return err_set(err, DI_E_ARGUMENT,
                       "%s: image_url external link length %zu too long, max link length %d. Consider passing file data directly "
                       "with base64 data url instead.",
                       text, url.size, REC_MAX_URL);
    }
    if (place == REC_R_ANSWER) {
        return err_set(err, DI_E_ARGUMENT, "input[%zu]: Image in assistant message is unsupported", item);
    }
    snprintf(text, sizeof text, "input[%zu]", item);
    status = rec_image_url(r, url, detail, text, text, &image, err);
    if (status == DI_OK && rec_add_image(r, out, image) == NULL) {
        status = rec_no_memory(r, err);
    }
    return status;
}

static di_status read_block(rec_responses *x, rec_responses_place place, size_t item, const js_value *block, const rec_path *at,
                            rec_content *out, di_error *err)
{
    static const char *const kinds[] = {"input_text", "input_image", "input_file", "output_text", NULL};
    static const char *const output_kinds[] = {"input_text", "input_image", "input_file", NULL};
    int kind = 0;
    rec_str text = REC_STR("[Unsupported Document]");
    di_status status = rec_need_variant(block, at, "type", place == REC_R_OUTPUT ? output_kinds : kinds, &kind, err);
    if (status == DI_OK && kind == 1) {
        return read_image(x, place, item, block, at, out, err);
    }
    if (status == DI_OK && kind != 2) {
        status = rec_need_string(block, at, "text", &text, err);
    }
    if (status == DI_OK && rec_add_text(x->r, out, text) == NULL) {
        status = rec_no_memory(x->r, err);
    }
    return status;
}

di_status rec_responses_content(rec_responses *x, rec_responses_place place, const js_value *item, const rec_path *at,
                                rec_content *out, di_error *err)
{
    const char *const key = key_of(place);
    const js_value *const content = js_get(item, key);
    const rec_path list = {at, key, 0};
    di_status status = DI_OK;
    if (js_kind_of(content) != JS_ARRAY && js_kind_of(content) != JS_STRING) {
        return content == NULL ? rec_bad_form(at, key, err, "missing field")
                               : rec_bad_form(at, key, err, "expected a string or an array of blocks, not %s",
                                              js_kind_name(js_kind_of(content)));
    }
    if (js_kind_of(content) == JS_STRING || js_length(content) == 0) {
        return rec_add_text(x->r, out, rec_string(content)) != NULL ? DI_OK : rec_no_memory(x->r, err);
    }
    for (size_t i = 0; status == DI_OK && i < js_length(content); i++) {
        const rec_path block_at = {&list, NULL, i};
        status = read_block(x, place, at->index, js_at(content, i), &block_at, out, err);
    }
    return status;
}
