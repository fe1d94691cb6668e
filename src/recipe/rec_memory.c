/* rec_memory.c - memory of a request: its arena, the JSON documents it borrows from, and the lists of a conversation.
 *
 * One budget (di_recipe_options.max_request_bytes) covers everything: what a document holds is taken off the arena's budget when the
 * document is added, so that arena and documents together never hold more than was allowed. */
#include "recipe/rec_int.h"

di_status rec_no_memory(const di_request *r, di_error *err)
{
    if (r->memory.over_budget || r->prompt.full) {
        return err_set(err, DI_E_LIMIT, "the request needs more than %zu bytes of memory", r->recipe->options.max_request_bytes);
    }
    return err_memory(err, "request", r->memory.held);
}

size_t rec_memory_left(const di_request *r)
{
    return r->memory.max - r->memory.held;
}

di_status rec_parse_json(di_request *r, const char *text, size_t size, const char *name, const js_value **root, di_error *err)
{
    rec_docs *const node = arena_alloc(&r->memory, 1, sizeof *node);
    if (node == NULL) {
        return rec_no_memory(r, err);
    }
    const js_limits limits = {
        .max_depth = REC_MAX_DEPTH,
        .last_duplicate_wins = true,
        .deep_is_malformed = true,
        .max_bytes = rec_memory_left(r) + 1, /* never 0, which would be no limit */
    };
    const di_status status = js_parse(text, size, name, &limits, &node->doc, err);
    if (status != DI_OK) {
        return status;
    }
    const size_t held = js_doc_bytes(node->doc);
    r->memory.max -= held < rec_memory_left(r) ? held : rec_memory_left(r);
    node->next = r->docs;
    r->docs = node;
    *root = js_root(node->doc);
    return DI_OK;
}

rec_str rec_copy(di_request *r, const void *data, size_t size)
{
    return (rec_str){arena_copy(&r->memory, data, size), size};
}

rec_str rec_from_buf(di_request *r, buf *b)
{
    rec_str s = {NULL, 0};
    if (!b->failed) {
        s = rec_copy(r, b->data, b->size);
    }
    r->memory.over_budget = r->memory.over_budget || b->full;
    buf_fini(b);
    return s;
}

rec_str rec_join(di_request *r, rec_str a, const char *between, rec_str b)
{
    const size_t n_between = strlen(between);
    rec_str s = {NULL, 0};
    if (a.size > SIZE_MAX - n_between - 1 || b.size > SIZE_MAX - n_between - 1 - a.size) {
        return s;
    }
    char *const text = arena_alloc(&r->memory, 1, a.size + n_between + b.size + 1);
    if (text != NULL) {
        memcpy(text, a.data, a.size);
        memcpy(text + a.size, between, n_between);
        memcpy(text + a.size + n_between, b.data, b.size);
        s = (rec_str){text, a.size + n_between + b.size};
    }
    return s;
}

rec_message *rec_add_message(di_request *r, rec_role role)
{
    rec_message *const message = arena_alloc(&r->memory, 1, sizeof *message);
    if (message == NULL) {
        return NULL;
    }
    message->role = role;
    message->reasoning = REC_STR("");
    message->call_id = REC_STR("");
    if (r->talk.last != NULL) {
        r->talk.last->next = message;
    } else {
        r->talk.first = message;
    }
    r->talk.last = message;
    return message;
}

static rec_part *add_part(di_request *r, rec_content *content)
{
    rec_part *const part = arena_alloc(&r->memory, 1, sizeof *part);
    if (part == NULL) {
        return NULL;
    }
    part->text = REC_STR("");
    if (content->last != NULL) {
        content->last->next = part;
    } else {
        content->first = part;
    }
    content->last = part;
    return part;
}

rec_part *rec_add_text(di_request *r, rec_content *content, rec_str text)
{
    rec_part *const part = add_part(r, content);
    if (part != NULL) {
        part->text = text;
    }
    return part;
}

rec_part *rec_add_image(di_request *r, rec_content *content, const di_image_ref *image)
{
    if (r->talk.version == DI_V4) {
        return rec_add_text(r, content, REC_STR("[Unsupported Image]"));
    }
    di_image_ref *const copy = arena_alloc(&r->memory, 1, sizeof *copy);
    rec_part *const part = copy != NULL ? add_part(r, content) : NULL;
    if (part != NULL) {
        *copy = *image;
        part->image = copy;
    }
    return part;
}

bool rec_content_empty(const rec_content *content)
{
    for (const rec_part *part = content->first; part != NULL; part = part->next) {
        if (part->image != NULL || part->text.size != 0) {
            return false;
        }
    }
    /* Two empty texts are a blank line between them. */
    return content->first == content->last;
}
