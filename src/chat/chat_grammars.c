/* chat_grammars.c - see chat_grammars.h. */
#include "chat/chat_grammars.h"

#include <string.h>

#define MAX_BYTES ((size_t)256 << 20)

/* A grammar grows with the texts it reads and never shrinks, and has a budget: one of so many bytes that has grown so many times is
 * compiled anew. */
#define WORN_BYTES (MAX_BYTES / 4)
#define WORN_TIMES 2

static chat_cached_grammar *find(chat_grammars *g, const uint8_t key[DIGEST_BYTES])
{
    for (int i = 0; i < CHAT_MAX_GRAMMARS; i++) {
        if (g->entries[i].grammar != NULL && memcmp(g->entries[i].key, key, DIGEST_BYTES) == 0) {
            return &g->entries[i];
        }
    }
    return NULL;
}

static size_t weigh(const chat_cached_grammar *entry)
{
    di_grammar_stats stats;
    di_grammar_get_stats(entry->grammar, &stats);
    return stats.memory_bytes;
}

static bool is_worn(const chat_cached_grammar *entry)
{
    const size_t bytes = weigh(entry);
    return bytes > WORN_BYTES && bytes / WORN_TIMES > entry->fresh_bytes;
}

static void drop(chat_cached_grammar *entry)
{
    di_grammar_free(entry->grammar);
    *entry = (chat_cached_grammar){.grammar = NULL};
}

/* The entry that was used longest ago, but not `kept`. */
static chat_cached_grammar *oldest(chat_grammars *g, const chat_cached_grammar *kept)
{
    chat_cached_grammar *found = NULL;
    for (int i = 0; i < CHAT_MAX_GRAMMARS; i++) {
        chat_cached_grammar *const entry = &g->entries[i];
        if (entry->grammar != NULL && entry != kept && (found == NULL || entry->used < found->used)) {
            found = entry;
        }
    }
    return found;
}

static void bound(chat_grammars *g, const chat_cached_grammar *kept)
{
    size_t bytes = 0;
    int64_t n = 0;
    for (int i = 0; i < CHAT_MAX_GRAMMARS; i++) {
        if (g->entries[i].grammar != NULL) {
            bytes += weigh(&g->entries[i]);
            n++;
        }
    }
    for (chat_cached_grammar *old = oldest(g, kept); bytes > MAX_BYTES && old != NULL; old = oldest(g, kept), n--) {
        const size_t part = weigh(old);
        bytes = bytes > part ? bytes - part : 0;
        drop(old);
    }
    g->n = n;
    g->n_bytes = (int64_t)bytes;
}

di_grammar *chat_grammars_get(chat_grammars *g, const uint8_t key[DIGEST_BYTES])
{
    chat_cached_grammar *const entry = find(g, key);
    if (entry != NULL && is_worn(entry)) {
        drop(entry); /* those who have it keep it; whoever comes compiles a new one */
        bound(g, NULL);
        return NULL;
    }
    if (entry == NULL) {
        return NULL;
    }
    entry->used = ++g->turn;
    di_grammar_retain(entry->grammar);
    return entry->grammar;
}

void chat_grammars_keep(chat_grammars *g, const uint8_t key[DIGEST_BYTES], di_grammar *grammar)
{
    chat_cached_grammar *entry = NULL;
    if (find(g, key) != NULL) {
        return;
    }
    for (int i = 0; i < CHAT_MAX_GRAMMARS && entry == NULL; i++) {
        entry = g->entries[i].grammar == NULL ? &g->entries[i] : NULL;
    }
    if (entry == NULL) {
        entry = oldest(g, NULL);
        drop(entry);
    }
    di_grammar_retain(grammar);
    entry->grammar = grammar;
    entry->fresh_bytes = weigh(entry);
    entry->used = ++g->turn;
    memcpy(entry->key, key, DIGEST_BYTES);
    bound(g, entry);
}

void chat_grammars_fini(chat_grammars *g)
{
    for (int i = 0; i < CHAT_MAX_GRAMMARS; i++) {
        if (g->entries[i].grammar != NULL) {
            drop(&g->entries[i]);
        }
    }
}
