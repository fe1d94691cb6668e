/* rec_messages_blocks.c - content blocks of a Messages request: text, images, documents, tool results (recipe.md 3.5, 3.2). */
#include "recipe/rec_messages.h"

#include <stdio.h>
#include <strings.h>

di_status rec_messages_kind(const js_value *block, const rec_path *at, rec_block *out, di_error *err)
{
    static const char *const names[] = {"text",     "image",       "document",               "thinking",      "redacted_thinking",
                                        "server_tool_use", "tool_use", "tool_result", "web_search_tool_result", "tool_addition",
                                        NULL};
    int kind = 0;
    const di_status status = rec_need_variant(block, at, "type", names, &kind, err);
    *out = (rec_block)kind;
    return status;
}

static const char *place_text(rec_block_place place, char *out, size_t capacity)
{
    if (place.in_result) {
        snprintf(out, capacity, "messages.%zu.content.%zu.tool_result.content[%zu]", place.message, place.block, place.part);
    } else {
        snprintf(out, capacity, "messages.%zu.content[%zu]", place.message, place.block);
    }
    return out;
}

/* Links only: unlike the other protocols, a data URL has no place here. */
static di_status check_link(rec_str url, const char *where, di_error *err)
{
    if (url.size < 4 || strncasecmp(url.data, "http", 4) != 0) {
        return err_set(err, DI_E_ARGUMENT, "%s: invalid url: \"%s\"", where, url.data);
    }
    if (url.size > REC_MAX_URL) {
        return err_set(err, DI_E_ARGUMENT,
                       "%s: external link length %zu too long, max link length %d. Consider passing file data directly with base64 "
                       "data url instead.",
                       where, url.size, REC_MAX_URL);
    }
    return DI_OK;
}

static di_status image_base64(di_request *r, const js_value *source, const rec_path *at, const char *where, di_image_ref **out,
                              di_error *err)
{
    static const char *const types[] = {"image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp", NULL};
    rec_str data;
    int type = 0;
    di_status status = rec_need_variant(source, at, "media_type", types, &type, err);
    if (status == DI_OK) {
        status = rec_need_string(source, at, "data", &data, err);
    }
    if (status != DI_OK || r->talk.version == DI_V4) {
        return status; /* V4 looks at no image */
    }
    return rec_image_base64(r, (rec_str){types[type], strlen(types[type])}, data, where, out, err);
}

static di_status image_url(di_request *r, const js_value *source, const rec_path *at, const char *where, di_image_ref **out,
                           di_error *err)
{
    rec_str url;
    di_status status = rec_need_string(source, at, "url", &url, err);
    if (status != DI_OK || r->talk.version == DI_V4) {
        return status;
    }
    status = check_link(url, where, err);
    return status == DI_OK ? rec_image_url(r, url, DI_DETAIL_HIGH, where, where, out, err) : status;
}

static di_status image_file(const di_request *r, const js_value *source, const rec_path *at, const char *where, di_error *err)
{
    rec_str id;
    const di_status status = rec_need_string(source, at, "file_id", &id, err);
    if (status != DI_OK || r->talk.version == DI_V4) {
        return status;
    }
    return err_set(err, DI_E_ARGUMENT, "%s: file_id is not supported. Pass the image as a base64 data url instead.", where);
}

static di_status read_image(rec_messages *x, const js_value *block, const rec_path *at, rec_block_place place, rec_content *out,
                            di_error *err)
{
    static const char *const kinds[] = {"base64", "url", "file", NULL};
    const js_value *const source = js_get(block, "source");
    const rec_path source_at = {at, "source", 0};
    di_image_ref *image = NULL;
    char where[128];
    int kind = 0;
    place_text(place, where, sizeof where);
    di_status status = rec_need_variant(source, &source_at, "type", kinds, &kind, err);
    if (status == DI_OK) {
        status = kind == 0   ? image_base64(x->r, source, &source_at, where, &image, err)
                 : kind == 1 ? image_url(x->r, source, &source_at, where, &image, err)
                             : image_file(x->r, source, &source_at, where, err);
    }
    if (status == DI_OK && rec_add_image(x->r, out, image) == NULL) {
        status = rec_no_memory(x->r, err);
    }
    return status;
}

static di_status read_document(rec_messages *x, const js_value *block, const rec_path *at, rec_str *out, di_error *err)
{
    const rec_path source_at = {at, "source", 0};
    const js_value *source;
    rec_str type = REC_STR("unknown");
    di_status status = rec_get_object(block, at, "source", &source, err);
    if (status == DI_OK && source == NULL) {
        status = rec_bad_form(at, "source", err, "missing field");
    }
    if (status == DI_OK) {
        status = rec_get_string(source, &source_at, "media_type", &type, NULL, err);
    }
    if (status != DI_OK) {
        return status;
    }
    const rec_str opening = rec_join(x->r, REC_STR("[Unsupported document type: "), "", type);
    if (opening.data == NULL) {
        return rec_no_memory(x->r, err);
    }
    *out = rec_join(x->r, opening, "", REC_STR("]"));
    return out->data != NULL ? DI_OK : rec_no_memory(x->r, err);
}

di_status rec_messages_part(rec_messages *x, rec_block kind, const js_value *block, const rec_path *at, rec_block_place place,
                            rec_content *out, di_error *err)
{
    rec_str text;
    if (kind == REC_B_IMAGE) {
        return read_image(x, block, at, place, out, err);
    }
    di_status status = kind == REC_B_TEXT ? rec_need_string(block, at, "text", &text, err)
                                          : read_document(x, block, at, &text, err);
    if (status == DI_OK && rec_add_text(x->r, out, text) == NULL) {
        status = rec_no_memory(x->r, err);
    }
    return status;
}

static di_status read_reference(rec_messages *x, const js_value *part, const rec_path *at, rec_block_place place, rec_content *out,
                                rec_tool **known, size_t *n_known, di_error *err)
{
    rec_str name;
    const di_status status = rec_need_string(part, at, "tool_name", &name, err);
    if (status != DI_OK) {
        return status;
    }
    rec_tool *const tool = rec_messages_find(x, name);
    if (tool == NULL) {
        return err_set(err, DI_E_ARGUMENT, "messages.%zu.content.%zu: tool reference '%s' not found in available tools",
                       place.message, place.block, name.data);
    }
    known[(*n_known)++] = tool;
    return rec_add_text(x->r, out, name) != NULL ? DI_OK : rec_no_memory(x->r, err);
}

static di_status read_result_part(rec_messages *x, const js_value *part, const rec_path *at, rec_block_place place,
                                  rec_content *out, rec_tool **known, size_t *n_known, di_error *err)
{
    static const char *const kinds[] = {"text", "image", "document", "tool_reference", NULL};
    int kind = 0;
    const di_status status = rec_need_variant(part, at, "type", kinds, &kind, err);
    if (status != DI_OK) {
        return status;
    }
    return kind == 3 ? read_reference(x, part, at, place, out, known, n_known, err)
                     : rec_messages_part(x, (rec_block)kind, part, at, place, out, err);
}

di_status rec_messages_result(rec_messages *x, const js_value *block, const rec_path *at, rec_block_place place, rec_content *out,
                              rec_tool **known, size_t *n_known, di_error *err)
{
    const js_value *const content = js_get(block, "content");
    const js_kind kind = js_kind_of(content);
    const rec_path list = {at, "content", 0};
    bool unused;
    di_status status = rec_get_bool(block, at, "is_error", &unused, NULL, err);
    if (status != DI_OK) {
        return status;
    }
    if (kind != JS_NULL && kind != JS_STRING && kind != JS_ARRAY) {
        return rec_bad_form(at, "content", err, "expected a string or an array of blocks, not %s", js_kind_name(kind));
    }
    if (kind != JS_ARRAY || js_length(content) == 0) {
        return rec_add_text(x->r, out, rec_string(content)) != NULL ? DI_OK : rec_no_memory(x->r, err);
    }
    for (size_t i = 0; status == DI_OK && i < js_length(content); i++) {
        const rec_path part_at = {&list, NULL, i};
        place.part = i;
        place.in_result = true;
        status = read_result_part(x, js_at(content, i), &part_at, place, out, known, n_known, err);
    }
    return status;
}
