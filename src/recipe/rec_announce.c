/* rec_announce.c - tools that become known in the middle of a conversation (recipe.md 2.4), once tool_choice has been applied.
 *
 * A choice keeps all tools, one of them, or none; announcements follow it. A System message that says nothing but what was dropped
 * is not written. The one tool that must be called has to be listed somewhere: at the start when nothing announces it. */
#include "recipe/rec_read.h"

static bool is_kept(const di_request *r, const rec_tool *tool)
{
    return r->talk.n_tools == r->n_declared || (r->talk.n_tools == 1 && r->talk.tools[0] == tool);
}

static void drop_others(const di_request *r, rec_message *message)
{
    size_t n = 0;
    for (size_t i = 0; i < message->n_announced; i++) {
        if (is_kept(r, message->announced[i])) {
            message->announced[n++] = message->announced[i];
        }
    }
    message->n_announced = n;
}

void rec_settle_announced(di_request *r)
{
    rec_message **link = &r->talk.first;
    rec_message *last = NULL;
    bool announced = false;
    while (*link != NULL) {
        rec_message *const message = *link;
        const bool said = message->n_announced > 0;
        drop_others(r, message);
        if (said && message->n_announced == 0 && rec_content_empty(&message->content)) {
            *link = message->next;
            continue;
        }
        announced = announced || message->n_announced > 0;
        last = message;
        link = &message->next;
    }
    r->talk.last = last;
    if (r->talk.n_tools == 1 && !announced) {
        r->talk.tools[0]->deferred = false;
    }
}
