/* rec_render.c - conversation to prompt (recipe.md 2.6): entries in order, then the header of the turn to be generated.
 *
 * Plain text goes through rec_put, control tokens through rec_put_marker, which also notes the place. The one case in which text of
 * a conversation holds control tokens are the grounding tokens that the model itself writes around parts of an image: they count
 * in assistant text and reasoning, and nowhere else. */
#include "recipe/rec_render.h"

#include "core/arith.h"

#include <stdlib.h>

#define FIRST_RANGES 64
#define GROUND_START "<\xEF\xBD\x9C" /* what all grounding tokens begin with */

void rec_put(rec_writer *w, rec_str text)
{
    buf_append(w->out, text.data, text.size);
}

void rec_put_text(rec_writer *w, const char *text)
{
    buf_puts(w->out, text);
}

/* Ranges and text together stay within the budget of the request. */
static bool grow_ranges(rec_writer *w)
{
    const size_t item = sizeof *w->r->ranges + sizeof *w->r->markers;
    const size_t capacity = w->capacity != 0 ? 2 * w->capacity : FIRST_RANGES;
    if (capacity > (rec_memory_left(w->r) - w->out->size) / item) {
        w->r->memory.over_budget = true;
        return false;
    }
    di_range *const ranges = realloc(w->r->ranges, capacity * sizeof *ranges);
    if (ranges == NULL) {
        return false;
    }
    w->r->ranges = ranges;
    uint8_t *const markers = realloc(w->r->markers, capacity);
    if (markers == NULL) {
        return false;
    }
    w->r->markers = markers;
    w->capacity = capacity;
    return true;
}

void rec_put_marker(rec_writer *w, rec_marker marker)
{
    const rec_str spelling = w->r->recipe->spelling[marker];
    if (w->r->n_ranges == w->capacity && !grow_ranges(w)) {
        w->failed = true;
        return;
    }
    w->r->ranges[w->r->n_ranges] = (di_range){w->out->size, w->out->size + spelling.size};
    w->r->markers[w->r->n_ranges] = (uint8_t)marker;
    w->r->n_ranges++;
    rec_put(w, spelling);
}

const rec_tags *rec_tags_of(di_prompt_version version)
{
    static const rec_tags tags[] = {
        [DI_V41] = {.block = " calls", .call = " invoke", .parameter = " parameter"},
        [DI_V4] = {.block = "tool_calls", .call = "invoke", .parameter = "parameter"},
    };
    return &tags[version];
}

void rec_put_tag(rec_writer *w, bool closing, const char *name)
{
    rec_put_text(w, closing ? "</" : "<");
    rec_put_marker(w, REC_DSML);
    rec_put_text(w, name);
}

/* ---- content ---- */

/* The grounding token at the start of text, or REC_N_MARKERS. */
static int grounding_at(const di_recipe *recipe, const char *text, size_t size)
{
    int i = REC_GROUND;
    while (i < REC_N_MARKERS) {
        const rec_str spelling = recipe->spelling[i];
        if (spelling.size <= size && memcmp(text, spelling.data, spelling.size) == 0) {
            break;
        }
        i++;
    }
    /* A tokenizer without them reads the spelling as plain text. */
    return i < REC_N_MARKERS && recipe->tokenizer != NULL && recipe->id[i] < 0 ? REC_N_MARKERS : i;
}

static void put_model_text(rec_writer *w, rec_str text)
{
    const char *p = text.data;
    size_t left = text.size;
    size_t searched = 0; /* bytes of p that hold no grounding token */
    for (;;) {
        const char *const found = memmem(p + searched, left - searched, GROUND_START, sizeof GROUND_START - 1);
        if (found == NULL) {
            break;
        }
        const size_t before = (size_t)(found - p);
        const int marker = grounding_at(w->r->recipe, found, left - before);
        if (marker == REC_N_MARKERS) {
            searched = before + sizeof GROUND_START - 1;
            continue;
        }
        rec_put(w, (rec_str){p, before});
        rec_put_marker(w, (rec_marker)marker);
        const size_t taken = before + w->r->recipe->spelling[marker].size;
        p += taken;
        left -= taken;
        searched = 0;
    }
    rec_put(w, (rec_str){p, left});
}

static void put_content(rec_writer *w, const rec_content *content, bool by_model)
{
    for (const rec_part *part = content->first; part != NULL; part = part->next) {
        if (part != content->first) {
            rec_put_text(w, "\n\n");
        }
        if (part->image != NULL) {
            rec_put_marker(w, REC_IMAGE);
        } else if (by_model) {
            put_model_text(w, part->text);
        } else {
            rec_put(w, part->text);
        }
    }
}

/* ---- entries ---- */

static void put_thoughts(rec_writer *w, const rec_message *message)
{
    if (w->talk->thinking && w->has_tools) {
        rec_put_marker(w, REC_THINK);
        put_model_text(w, message->reasoning);
    }
    rec_put_marker(w, REC_END_THINK);
}

static di_status put_assistant(rec_writer *w, const rec_message *message, di_error *err)
{
    rec_put_marker(w, REC_M_ASSISTANT);
    put_thoughts(w, message);
    put_content(w, &message->content, true);
    const di_status status = message->n_calls > 0 ? rec_put_calls(w, message, err) : DI_OK;
    rec_put_marker(w, REC_EOS);
    return status;
}

/* The unfinished turn that the model is to continue (2.10). */
static void put_prefix(rec_writer *w, const rec_message *message)
{
    const bool answered = !rec_content_empty(&message->content);
    rec_put_marker(w, REC_M_ASSISTANT);
    if (w->talk->thinking) {
        rec_put_marker(w, REC_THINK);
        put_model_text(w, message->reasoning);
    }
    if (answered || !w->talk->thinking) {
        rec_put_marker(w, REC_END_THINK);
    }
    put_content(w, &message->content, true);
}

static bool speaks_as_user(const rec_message *message)
{
    return message != NULL && (message->role == REC_USER || message->role == REC_TOOL);
}

static void put_user_turn(rec_writer *w, const rec_message *before)
{
    if (speaks_as_user(before)) {
        rec_put_text(w, "\n\n");
    } else {
        rec_put_marker(w, REC_M_USER);
    }
}

static di_status put_entry(rec_writer *w, const rec_message *before, const rec_message *message, di_error *err)
{
    switch (message->role) {
    case REC_SYSTEM:
        if (before != NULL && w->talk->version == DI_V41) {
            rec_put_marker(w, REC_M_SYSTEM);
        }
        put_content(w, &message->content, false);
        if (before == NULL) {
            rec_put_tool_block(w);
        }
        rec_put_announcement(w, message);
        return DI_OK;
    case REC_USER:
        put_user_turn(w, before);
        put_content(w, &message->content, false);
        return DI_OK;
    case REC_TOOL:
        put_user_turn(w, before);
        rec_put_text(w, "<tool_result>");
        put_content(w, &message->content, false);
        rec_put_text(w, "</tool_result>");
        return DI_OK;
    case REC_REMINDER:
        rec_put_marker(w, REC_M_REMINDER);
        put_content(w, &message->content, false);
        return DI_OK;
    case REC_ASSISTANT:
        if (message->prefix) {
            put_prefix(w, message);
            return DI_OK;
        }
        return put_assistant(w, message, err);
    }
    return DI_OK;
}

/* An announcement that announces nothing is no entry at all. */
static bool is_silent(const rec_writer *w, const rec_message *message)
{
    const bool announces = w->talk->version == DI_V41 && w->talk->choice != REC_CHOICE_NONE;
    return message->role == REC_SYSTEM && message->n_announced > 0 && !announces && rec_content_empty(&message->content);
}

/* What stands in front of the first entry. */
static void put_lead(rec_writer *w, bool system)
{
    const char *const effort = rec_effort_text(w->talk);
    if (w->talk->version == DI_V41 && (system || effort[0] != '\0')) {
        rec_put_marker(w, REC_M_SYSTEM);
    }
    rec_put_text(w, effort);
}

static void put_generation(rec_writer *w)
{
    rec_put_marker(w, REC_M_ASSISTANT);
    rec_put_marker(w, w->talk->thinking ? REC_THINK : REC_END_THINK);
    if (w->talk->choice == REC_CHOICE_REQUIRED && w->has_tools) {
        rec_put_text(w, "\n\n");
        rec_put_tag(w, false, rec_tags_of(w->talk->version)->block);
        rec_put_text(w, ">\n");
    }
}

static di_status put_entries(rec_writer *w, di_error *err)
{
    static const rec_message empty_system = {.role = REC_SYSTEM};
    const rec_message *before = NULL;
    di_status status = DI_OK;
    for (const rec_message *message = w->talk->first; message != NULL && status == DI_OK; message = message->next) {
        if (is_silent(w, message)) {
            continue;
        }
        if (before == NULL) {
            put_lead(w, message->role == REC_SYSTEM || rec_has_tool_block(w));
            if (message->role != REC_SYSTEM && rec_has_tool_block(w)) {
                status = put_entry(w, NULL, &empty_system, err);
                before = &empty_system;
            }
        }
        if (status == DI_OK) {
            status = put_entry(w, before, message, err);
        }
        before = message;
    }
    if (before == NULL && rec_has_tool_block(w)) {
        put_lead(w, true);
        status = put_entry(w, NULL, &empty_system, err);
    }
    return status;
}

/* ---- the request ---- */

static bool any_announced(const rec_conversation *talk)
{
    bool any = false;
    for (const rec_message *message = talk->first; message != NULL; message = message->next) {
        any = any || message->n_announced > 0;
    }
    return any;
}

static bool has_tools(const rec_conversation *talk)
{
    return talk->choice != REC_CHOICE_NONE && (talk->n_tools > 0 || (talk->version == DI_V41 && any_announced(talk)));
}

static di_status collect_images(di_request *r, di_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_ranges; i++) {
        n += r->markers[i] == REC_IMAGE ? 1 : 0;
    }
    r->images = arena_alloc(&r->memory, n, sizeof *r->images);
    if (r->images == NULL) {
        return rec_no_memory(r, err);
    }
    for (const rec_message *message = r->talk.first; message != NULL; message = message->next) {
        for (const rec_part *part = message->content.first; part != NULL; part = part->next) {
            if (part->image != NULL && r->n_images < n) {
                r->images[r->n_images++] = *part->image;
            }
        }
    }
    return DI_OK;
}

di_status rec_render(di_request *r, di_error *err)
{
    buf_init(&r->prompt, rec_memory_left(r));
    rec_writer w = {
        .r = r,
        .talk = &r->talk,
        .out = &r->prompt,
        .style = r->talk.version == DI_V4 ? REC_JSON_PYTHON_V4 : REC_JSON_PYTHON,
        .has_tools = has_tools(&r->talk),
    };
    rec_put_marker(&w, REC_BOS);
    const di_status status = put_entries(&w, err);
    if (status != DI_OK) {
        return status;
    }
    if (r->talk.last == NULL || !r->talk.last->prefix) {
        put_generation(&w);
    }
    if (w.failed || r->prompt.failed) {
        r->memory.over_budget = r->memory.over_budget || r->prompt.full;
        return rec_no_memory(r, err);
    }
    const size_t used = r->prompt.capacity + w.capacity * (sizeof *r->ranges + sizeof *r->markers);
    r->memory.max -= used < rec_memory_left(r) ? used : rec_memory_left(r);
    return collect_images(r, err);
}
