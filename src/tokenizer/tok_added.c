/* tok_added.c - finds added tokens in text: leftmost, then longest, without overlap (tokenizer.md 3).
 *
 * A trie holds all spellings of both passes. Text is scanned for bytes that can begin a spelling of the pass; in the
 * released files these are '<' and 0xEF, so that ordinary text costs one vectorised scan. */
#include "tokenizer/tok_int.h"

#include "core/err.h"

#include <stdlib.h>

di_status tok_added_init(tok_added *added, di_error *err)
{
    memset(added, 0, sizeof *added);
    added->capacity = 1024;
    added->nodes = calloc(added->capacity, sizeof *added->nodes);
    if (added->nodes == NULL) {
        return err_memory(err, "added tokens", added->capacity * sizeof *added->nodes);
    }
    added->nodes[0].id[0] = added->nodes[0].id[1] = TOK_NONE;
    added->n_nodes = 1;
    return DI_OK;
}

void tok_added_fini(tok_added *added)
{
    free(added->nodes);
    added->nodes = NULL;
}

static uint32_t find_child(const tok_added *added, uint32_t node, uint8_t byte)
{
    uint32_t child = added->nodes[node].child;
    while (child != 0 && added->nodes[child].byte != byte) {
        child = added->nodes[child].sibling;
    }
    return child;
}

static di_status add_child(tok_added *added, uint32_t node, uint8_t byte, uint32_t *child, di_error *err)
{
    if (added->n_nodes == added->capacity) {
        const size_t bytes = 2 * (size_t)added->capacity * sizeof *added->nodes;
        tok_node *nodes = added->capacity > UINT32_MAX / 2 ? NULL : realloc(added->nodes, bytes);
        if (nodes == NULL) {
            return err_memory(err, "added tokens", bytes);
        }
        added->nodes = nodes;
        added->capacity *= 2;
    }
    *child = added->n_nodes++;
    added->nodes[*child] = (tok_node){.sibling = added->nodes[node].child, .id = {TOK_NONE, TOK_NONE}, .byte = byte};
    added->nodes[node].child = *child;
    return DI_OK;
}

static void note_lead(tok_added *added, int pass, uint8_t byte, uint32_t child)
{
    if (added->first[pass][byte] == 0) {
        if (added->n_lead[pass] < 2) {
            added->lead[pass][added->n_lead[pass]] = byte;
        }
        added->n_lead[pass]++;
        added->first[pass][byte] = child;
    }
}

di_status tok_added_add(tok_added *added, const uint8_t *s, size_t n, int32_t id, int pass, di_error *err)
{
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t child = find_child(added, node, s[i]);
        if (child == 0) {
            const di_status status = add_child(added, node, s[i], &child, err);
            if (status != DI_OK) {
                return status;
            }
        }
        if (i == 0) {
            note_lead(added, pass, s[0], child);
        }
        node = child;
    }
    const int32_t *ids = added->nodes[node].id;
    if (ids[0] != TOK_NONE || ids[1] != TOK_NONE) {
        return err_set(err, DI_E_FORMAT, "added_tokens: ids %d and %d have the same content",
                       ids[0] != TOK_NONE ? ids[0] : ids[1], id);
    }
    added->nodes[node].id[pass] = id;
    return DI_OK;
}

int32_t tok_added_find(const tok_added *added, const uint8_t *s, size_t n)
{
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        node = find_child(added, node, s[i]);
        if (node == 0) {
            return TOK_NONE;
        }
    }
    const int32_t *ids = added->nodes[node].id;
    return ids[0] != TOK_NONE ? ids[0] : ids[1];
}

/* First position in [begin, end) whose byte can begin a spelling of the pass; `end` when none. */
static size_t next_lead(const tok_added *added, int pass, const uint8_t *s, size_t begin, size_t end)
{
    size_t i = begin;
    if (added->n_lead[pass] == 0) {
        return end;
    }
    if (added->n_lead[pass] == 1) {
        const uint8_t *found = memchr(s + i, added->lead[pass][0], end - i);
        return found != NULL ? (size_t)(found - s) : end;
    }
    if (added->n_lead[pass] == 2) {
        const uint8_t a = added->lead[pass][0];
        const uint8_t b = added->lead[pass][1];
        for (; end - i >= 64; i += 64) {
            uint8_t any = 0;
            for (size_t k = 0; k < 64; k++) {
                any |= (uint8_t)((s[i + k] == a) | (s[i + k] == b));
            }
            if (any != 0) {
                break;
            }
        }
    }
    while (i < end && added->first[pass][s[i]] == 0) {
        i++;
    }
    return i;
}

bool tok_added_next(const tok_added *added, int pass, const uint8_t *s, size_t begin, size_t end, tok_match *out)
{
    for (size_t i = next_lead(added, pass, s, begin, end); i < end; i = next_lead(added, pass, s, i + 1, end)) {
        uint32_t node = added->first[pass][s[i]];
        out->id = TOK_NONE;
        for (size_t j = i + 1; node != 0; j++) {
            const int32_t id = added->nodes[node].id[pass];
            if (id != TOK_NONE) {
                out->begin = i;
                out->end = j;
                out->id = id;
            }
            if (j == end) {
                break;
            }
            node = find_child(added, node, s[j]);
        }
        if (out->id != TOK_NONE) {
            return true;
        }
    }
    return false;
}
