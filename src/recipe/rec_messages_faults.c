/* rec_messages_faults.c - refusals of a Messages conversation: calls without results, blocks out of place (recipe.md 3.5). */
#include "recipe/rec_messages.h"

#include <stdio.h>
#include <stdlib.h>

static int by_bytes(const void *a, const void *b)
{
    const rec_str *const x = a;
    const rec_str *const y = b;
    const int order = memcmp(x->data, y->data, x->size < y->size ? x->size : y->size);
    return order != 0 ? order : (x->size > y->size) - (x->size < y->size);
}

di_status rec_turns_unanswered(rec_turns *t, const char *where, di_error *err)
{
    di_request *const r = t->x->r;
    rec_str *const open = arena_alloc(&r->memory, t->n_open, sizeof *open);
    char ids[320];
    size_t n = 0;
    size_t used = 0;
    if (open == NULL) {
        return rec_no_memory(r, err);
    }
    for (size_t i = 0; i < t->n_ids; i++) {
        if (!t->answered[i]) {
            open[n++] = t->id[i];
        }
    }
    qsort(open, n, sizeof *open, by_bytes);
    ids[0] = '\0';
    for (size_t i = 0; i < n && used < sizeof ids - 1; i++) {
        const int added = snprintf(ids + used, sizeof ids - used, "%s%s", i > 0 ? ", " : "", open[i].data);
        used += added > 0 ? (size_t)added : 0;
    }
    return err_set(err, DI_E_ARGUMENT,
                   "%s`tool_use` ids were found without `tool_result` blocks immediately after: %s. Each `tool_use` block must "
                   "have a corresponding `tool_result` block in the next message.",
                   where, ids);
}

di_status rec_turns_before(rec_turns *t, di_error *err)
{
    char where[40];
    snprintf(where, sizeof where, "messages.%zu: ", t->index);
    return rec_turns_unanswered(t, where, err);
}

di_status rec_turns_behind(rec_turns *t, size_t turn, di_error *err)
{
    char where[40];
    snprintf(where, sizeof where, "messages.%zu:", turn);
    return rec_turns_unanswered(t, where, err);
}

di_status rec_turns_misplaced(const rec_turns *t, rec_block kind, di_error *err)
{
    const char *name = "tool_addition";
    const char *role = "system";
    switch (kind) {
    case REC_B_THINKING:
    case REC_B_REDACTED:
        return err_set(err, DI_E_ARGUMENT, "messages.%zu.content: thinking blocks may only be in `assistant` messages", t->index);
    case REC_B_USE:
    case REC_B_SERVER_USE:
        name = "tool_use";
        role = "assistant";
        break;
    case REC_B_SERVER_RESULT:
        name = "web_search_tool_result";
        role = "assistant";
        break;
    case REC_B_RESULT:
        name = "tool_result";
        role = "user";
        break;
    default:
        break;
    }
    return err_set(err, DI_E_ARGUMENT, "messages.%zu: `%s` blocks can only be in `%s` messages", t->index, name, role);
}
