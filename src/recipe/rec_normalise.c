/* rec_normalise.c - order and merging of messages before they are rendered (recipe.md 2.3).
 *
 * V4 knows one system text, at the front, so later ones move there. Neighbouring user messages become one. Results of
 * parallel calls are put in the order of the calls; only Tool entries change places, and only among themselves. */
#include "recipe/rec_int.h"

#include <stdlib.h>

static void append_parts(rec_content *to, const rec_content *from)
{
    if (from->first == NULL) {
        return;
    }
    if (to->last != NULL) {
        to->last->next = from->first;
    } else {
        to->first = from->first;
    }
    to->last = from->last;
}

/* Two texts become one with an empty line between them; V4 leaves it out when a side is empty. */
static void merge(const di_request *r, rec_content *to, const rec_content *from)
{
    if (r->talk.version == DI_V4 && rec_content_empty(from)) {
        return;
    }
    if (r->talk.version == DI_V4 && rec_content_empty(to)) {
        *to = *from;
        return;
    }
    append_parts(to, from);
}

/* Every content has a part, so that two empty ones have an empty line between them. */
static bool ensure_part(di_request *r, rec_content *content)
{
    return content->first != NULL || rec_add_text(r, content, REC_STR("")) != NULL;
}

/* Takes the System entries out of the list and puts their texts into one at the front. */
static di_status gather_system(di_request *r, di_error *err)
{
    rec_content system = {.first = NULL};
    rec_message *kept_first = NULL;
    rec_message *kept_last = NULL;
    for (rec_message *message = r->talk.first; message != NULL; message = message->next) {
        if (message->role == REC_SYSTEM) {
            if (!rec_content_empty(&message->content)) {
                append_parts(&system, &message->content);
            }
            continue;
        }
        if (kept_last != NULL) {
            kept_last->next = message;
        } else {
            kept_first = message;
        }
        kept_last = message;
    }
    if (kept_last != NULL) {
        kept_last->next = NULL;
    }
    r->talk.first = kept_first;
    r->talk.last = kept_last;
    if (system.first == NULL) {
        return DI_OK;
    }
    rec_message *const front = arena_alloc(&r->memory, 1, sizeof *front);
    if (front == NULL) {
        return rec_no_memory(r, err);
    }
    *front = (rec_message){.role = REC_SYSTEM, .content = system, .reasoning = REC_STR(""), .call_id = REC_STR("")};
    front->next = kept_first;
    r->talk.first = front;
    r->talk.last = kept_last != NULL ? kept_last : front;
    return DI_OK;
}

static di_status merge_users(di_request *r, di_error *err)
{
    rec_message *last = NULL;
    for (rec_message *message = r->talk.first; message != NULL; message = message->next) {
        if (message->role == REC_USER && !ensure_part(r, &message->content)) {
            return rec_no_memory(r, err);
        }
        if (message->role == REC_USER && last != NULL && last->role == REC_USER) {
            merge(r, &last->content, &message->content);
            last->next = message->next;
        } else {
            last = message;
        }
    }
    r->talk.last = last;
    return DI_OK;
}

static int compare_ids(const rec_call *a, const rec_call *b)
{
    const size_t n = a->id.size < b->id.size ? a->id.size : b->id.size;
    const int order = memcmp(a->id.data, b->id.data, n);
    return order != 0 ? order : (a->id.size > b->id.size) - (a->id.size < b->id.size);
}

typedef struct sortable_call {
    rec_call call;
    size_t at;
} sortable_call;

static int by_id(const void *a, const void *b)
{
    const sortable_call *const x = a;
    const sortable_call *const y = b;
    const int order = compare_ids(&x->call, &y->call);
    return order != 0 ? order : (x->at > y->at) - (x->at < y->at);
}

di_status rec_sort_calls(di_request *r, rec_call *calls, size_t n, di_error *err)
{
    bool sorted = true;
    for (size_t i = 1; i < n; i++) {
        sorted = sorted && compare_ids(&calls[i - 1], &calls[i]) <= 0;
    }
    if (sorted) {
        return DI_OK;
    }
    sortable_call *const copy = arena_alloc(&r->memory, n, sizeof *copy);
    if (copy == NULL) {
        return rec_no_memory(r, err);
    }
    for (size_t i = 0; i < n; i++) {
        copy[i] = (sortable_call){calls[i], i};
    }
    qsort(copy, n, sizeof *copy, by_id);
    for (size_t i = 0; i < n; i++) {
        calls[i] = copy[i].call;
    }
    return DI_OK;
}

/* ---- results in the order of their calls ---- */

typedef struct sortable_result {
    rec_message message;
    size_t call; /* place of its call; an unknown id counts as the first */
    size_t at;
} sortable_result;

static int by_call(const void *a, const void *b)
{
    const sortable_result *const x = a;
    const sortable_result *const y = b;
    if (x->call != y->call) {
        return x->call < y->call ? -1 : 1;
    }
    return (x->at > y->at) - (x->at < y->at);
}

/* A run of User and Tool entries from `first` up to `end`, n_tools of them Tool entries. */
static di_status sort_results(di_request *r, const rec_message *caller, rec_message *first, const rec_message *end, size_t n_tools,
                              di_error *err)
{
    rec_names order;
    sortable_result *const results = arena_alloc(&r->memory, n_tools, sizeof *results);
    if (results == NULL || !rec_names_init(&order, r, caller->n_calls)) {
        return rec_no_memory(r, err);
    }
    for (size_t i = 0; i < caller->n_calls; i++) {
        (void)rec_names_add(&order, caller->calls[i].id); /* of equal ids the first one counts */
    }
    size_t n = 0;
    for (const rec_message *message = first; message != end; message = message->next) {
        if (message->role == REC_TOOL) {
            const size_t place = rec_names_find(&order, message->call_id);
            results[n] = (sortable_result){*message, place != SIZE_MAX ? place : 0, n};
            n++;
        }
    }
    qsort(results, n, sizeof *results, by_call);
    n = 0;
    for (rec_message *message = first; message != end; message = message->next) {
        if (message->role == REC_TOOL) {
            rec_message *const next = message->next;
            *message = results[n++].message;
            message->next = next;
        }
    }
    return DI_OK;
}

static di_status order_results(di_request *r, di_error *err)
{
    const rec_message *caller = NULL; /* the latest turn with calls */
    di_status status = DI_OK;
    for (rec_message *message = r->talk.first; message != NULL && status == DI_OK;) {
        if (message->role == REC_ASSISTANT && message->n_calls > 0) {
            caller = message;
        }
        rec_message *end = message;
        size_t n_tools = 0;
        while (end != NULL && (end->role == REC_USER || end->role == REC_TOOL)) {
            n_tools += end->role == REC_TOOL ? 1 : 0;
            end = end->next;
        }
        if (n_tools > 1 && caller != NULL) {
            status = sort_results(r, caller, message, end, n_tools, err);
        }
        message = end != message ? end : message->next;
    }
    return status;
}

di_status rec_normalise(di_request *r, di_error *err)
{
    const bool v4 = r->talk.version == DI_V4;
    di_status status = v4 ? gather_system(r, err) : DI_OK;
    if (status == DI_OK) {
        status = merge_users(r, err);
    }
    for (const rec_message *message = r->talk.first; v4 && message != NULL && status == DI_OK; message = message->next) {
        status = rec_sort_calls(r, message->calls, message->n_calls, err);
    }
    return status == DI_OK ? order_results(r, err) : status;
}
