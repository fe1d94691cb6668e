/* rec_responses_names.c - names of tools in namespaces, and of historical calls to them (recipe.md 2.2, 3.4).
 *
 * A namespace is flattened: its members get names of their own, which must not meet any other. Every candidate is tried once in
 * the life of a request (a number per taken name is kept), so 10,000 clashing members cost 10,000 steps. */
#include "recipe/rec_responses.h"

#include <inttypes.h>
#include <stdio.h>

static rec_str flat_name(di_request *r, rec_str space, rec_str member)
{
    if (r->talk.version != DI_V4) {
        return rec_join(r, space, "::", member);
    }
    const bool joined = (space.size > 0 && space.data[space.size - 1] == '_') || (member.size > 0 && member.data[0] == '_');
    return rec_join(r, space, joined ? "" : "__", member);
}

/* base, or base_1, base_2, ... : the first that nothing has. data NULL when memory ends. */
static rec_str free_name(rec_responses *x, rec_str base)
{
    if (base.data == NULL || rec_names_add(&x->used, base) != SIZE_MAX) {
        return base;
    }
    size_t index = rec_names_add(&x->bases, base);
    index = index != SIZE_MAX ? index : rec_names_find(&x->bases, base);
    for (;;) {
        char number[24];
        const int n = snprintf(number, sizeof number, "_%" PRIu64, ++x->next_number[index]);
        const rec_str name = rec_join(x->r, base, "", (rec_str){number, (size_t)n});
        if (name.data == NULL || rec_names_add(&x->used, name) != SIZE_MAX) {
            return name;
        }
    }
}

/* One text for both, so that no two pairs meet: the length of the first in front. */
static rec_str pair_key(di_request *r, rec_str space, rec_str member)
{
    char number[24];
    const int n = snprintf(number, sizeof number, "%zu:", space.size);
    const rec_str both = rec_join(r, space, "", member);
    return both.data == NULL ? both : rec_join(r, (rec_str){number, (size_t)n}, "", both);
}

di_status rec_responses_name_members(rec_responses *x, di_error *err)
{
    for (size_t i = 0; i < x->n_tools; i++) {
        rec_tool *const tool = x->tools[i];
        if (tool->space.size == 0) {
            continue;
        }
        tool->name = free_name(x, flat_name(x->r, tool->space, tool->member));
        const rec_str key = pair_key(x->r, tool->space, tool->member);
        if (tool->name.data == NULL || key.data == NULL) {
            return rec_no_memory(x->r, err);
        }
        const size_t index = rec_names_add(&x->pairs, key);
        if (index != SIZE_MAX) {
            x->pair_names[index] = tool->name;
        }
    }
    return DI_OK;
}

di_status rec_responses_call_name(rec_responses *x, rec_str space, rec_str member, rec_str *out, di_error *err)
{
    const rec_str key = pair_key(x->r, space, member);
    if (key.data == NULL) {
        return rec_no_memory(x->r, err);
    }
    const size_t index = rec_names_add(&x->pairs, key);
    if (index == SIZE_MAX) {
        *out = x->pair_names[rec_names_find(&x->pairs, key)];
        return DI_OK;
    }
    *out = x->pair_names[index] = free_name(x, flat_name(x->r, space, member));
    return out->data != NULL ? DI_OK : rec_no_memory(x->r, err);
}
