/* eng_cache.c - see eng_cache.h. */
#include "engine/eng_cache.h"

#include "core/core.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(KV_UNIT_TOKENS == MDL_PAGE_TOKENS, "a unit is a page");

di_status eng_cache_init(eng_cache *c, kv_store *store, mdl_runner *r, mdl_seq *seq, bool promised, di_error *err)
{
    *c = (eng_cache){.store = store};
    c->state = kv_take_state(store, promised);
    if (c->state == NULL) {
        return err_set(err, DI_E_MEMORY, "out of memory: no KV state is left for another sequence (free one, or raise kv_bytes)");
    }
    mdl_seq_init(r, seq, kv_data(c->state));
    return DI_OK;
}

static void drop_pages(eng_cache *c)
{
    for (int32_t i = c->n_pages; i-- > 0;) { /* from the end: heads of prefixes stay longest */
        kv_drop(c->store, c->pages[i]);
    }
    c->n_pages = 0;
    kv_unpin(c->store, c->unit);
    c->unit = NULL;
    c->n_units = 0;
}

void eng_cache_reset(eng_cache *c, mdl_seq *seq)
{
    drop_pages(c);
    seq->n_pages = 0;
    seq->n_tokens = 0;
    seq->n_frozen = 0;
    seq->window_from = 0;
    seq->decoder_from = 0;
    seq->draft_from = 0;
    seq->n_recent = 0;
    c->n_ids = 0;
    c->n_prompt = 0;
    c->stop = 0;
    c->cached = 0;
}

void eng_cache_leave(eng_cache *c)
{
    c->active = false;
    c->publishing = false;
    c->stop = 0;
}

static void keep_state(eng_cache *c, const kv_slot *state, uint32_t tag)
{
    if (c->tier != NULL) {
        eng_tier_keep_state(c->tier, &c->keep, kv_unit_key(c->unit), state, tag, c->n_units * KV_UNIT_TOKENS);
    }
}

/* A unit keeps the snapshot that it has. */
static void attach(eng_cache *c, kv_slot *state)
{
    kv_attach_snapshot(c->store, c->unit, state);
    if (kv_unit_snapshot(c->unit) == state) {
        keep_state(c, state, kv_tag(state));
    }
}

void eng_cache_fini(eng_cache *c, mdl_seq *seq, bool whole)
{
    if (whole && c->rolling != NULL && c->publishing && c->rolling_at == c->n_units * KV_UNIT_TOKENS) {
        attach(c, c->rolling);
    }
    kv_drop(c->store, c->rolling);
    drop_pages(c);
    kv_drop(c->store, c->state);
    kv_unreserve(c->store, c->promised, 0);
    mdl_seq_fini(seq);
    free(c->pages);
    free(c->salt);
    free(c->ids);
    *c = (eng_cache){.store = NULL};
}

di_status eng_cache_activate(eng_cache *c, const void *salt, size_t size, di_replay replay, di_error *err)
{
    char *const copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) {
        return err_memory(err, "cache salt", size);
    }
    if (size > 0) {
        memcpy(copy, salt, size);
    }
    free(c->salt);
    c->salt = copy;
    c->salt_size = size;
    c->active = true;
    c->publishing = true;
    c->replay = replay;
    return DI_OK;
}

void eng_cache_set_tier(eng_cache *c, eng_tier *tier, const eng_keep *keep)
{
    c->tier = tier;
    c->keep = *keep;
}

/* ---- pages ---- */

static di_status grow_list(eng_cache *c, mdl_seq *seq, int64_t n, di_error *err)
{
    if (n > INT32_MAX / 2) {
        return err_set(err, DI_E_LIMIT, "%lld pages in one sequence", (long long)n);
    }
    di_status status = mdl_seq_reserve(seq, (int32_t)n, err);
    if (status != DI_OK || n <= c->capacity) {
        return status;
    }
    int32_t capacity = c->capacity > 0 ? c->capacity : 8;
    while (capacity < n) {
        capacity *= 2;
    }
    kv_slot **const pages = realloc(c->pages, (size_t)capacity * sizeof(kv_slot *));
    if (pages == NULL) {
        return err_memory(err, "page list", (size_t)capacity * sizeof(kv_slot *));
    }
    c->pages = pages;
    c->capacity = capacity;
    return DI_OK;
}

static void add_page(eng_cache *c, mdl_seq *seq, kv_slot *page)
{
    c->pages[c->n_pages++] = page;
    mdl_seq_add_page(seq, kv_data(page));
}

int64_t eng_cache_pages(const mdl_runner *r, int64_t n_tokens)
{
    return mdl_runner_layout(r)->page_bytes > 0 ? (n_tokens + KV_UNIT_TOKENS - 1) / KV_UNIT_TOKENS : 0;
}

di_status eng_cache_list(eng_cache *c, mdl_seq *seq, int64_t n_tokens, di_error *err)
{
    return grow_list(c, seq, eng_cache_pages(seq->runner, n_tokens), err);
}

bool eng_cache_promise(eng_cache *c, int64_t n_pages)
{
    const int64_t more = n_pages - c->n_pages - c->promised;
    if (more > 0 && !kv_reserve(c->store, more, 0)) {
        return false;
    }
    c->promised += more > 0 ? more : 0;
    return true;
}

static kv_slot *take_page(eng_cache *c)
{
    const bool promised = c->promised > 0;
    c->promised -= promised;
    return kv_take_page(c->store, promised);
}

di_status eng_cache_reserve(eng_cache *c, mdl_seq *seq, int64_t n_tokens, di_error *err)
{
    const int64_t need = eng_cache_pages(seq->runner, n_tokens);
    const di_status status = grow_list(c, seq, need, err);
    if (status != DI_OK) {
        return status;
    }
    while (c->n_pages < need) {
        kv_slot *const page = take_page(c);
        if (page == NULL) {
            return err_set(err, DI_E_MEMORY, "out of memory: no KV page is left for %lld tokens (free a sequence, or raise kv_bytes)",
                           (long long)n_tokens);
        }
        add_page(c, seq, page);
    }
    return DI_OK;
}

di_status eng_cache_note(eng_cache *c, const int32_t *ids, size_t n, di_error *err)
{
    if (!c->active || n == 0) {
        return DI_OK;
    }
    if (c->n_ids + n > c->ids_capacity) {
        const size_t capacity = (c->n_ids + n) * 2;
        int32_t *const grown = realloc(c->ids, capacity * sizeof *grown);
        if (grown == NULL) {
            return err_memory(err, "token ids", capacity * sizeof *grown);
        }
        c->ids = grown;
        c->ids_capacity = capacity;
    }
    memcpy(c->ids + c->n_ids, ids, n * sizeof *ids);
    c->n_ids += n;
    return DI_OK;
}

void eng_cache_forget(eng_cache *c, size_t n)
{
    c->n_ids -= c->active ? n : 0;
}

/* ---- forks ---- */

static di_status copy_ids(eng_cache *c, const eng_cache *from, di_error *err)
{
    if (!from->active) {
        return DI_OK;
    }
    const di_status status = eng_cache_activate(c, from->salt, from->salt_size, from->replay, err);
    eng_cache_set_tier(c, from->tier, &from->keep);
    return status == DI_OK ? eng_cache_note(c, from->ids, from->n_ids, err) : status;
}

static void share_pages(eng_cache *c, mdl_seq *seq, const eng_cache *from, const mdl_seq *from_seq)
{
    const int64_t whole = from->n_pages > 0 ? from_seq->n_tokens / KV_UNIT_TOKENS : 0;
    for (int64_t i = 0; i < whole; i++) {
        (void)kv_hold(from->pages[i]); /* never refused: `from` holds it */
        add_page(c, seq, from->pages[i]);
    }
    for (int64_t i = whole; i < from->n_pages && i * KV_UNIT_TOKENS < from_seq->n_tokens; i++) {
        kv_slot *const page = take_page(c);
        mdl_copy_page(seq->runner, kv_data(page), kv_data(from->pages[i]));
        add_page(c, seq, page);
    }
}

di_status eng_cache_fork(eng_cache *c, mdl_seq *seq, const eng_cache *from, const mdl_seq *from_seq, int64_t n_tokens, int64_t promised,
                         di_error *err)
{
    *c = (eng_cache){.store = from->store};
    mdl_seq_init(from_seq->runner, seq, NULL);
    di_status status = eng_cache_list(c, seq, n_tokens, err);
    if (status == DI_OK) {
        status = copy_ids(c, from, err);
    }
    if (status != DI_OK) {
        eng_cache_fini(c, seq, false);
        return status;
    }
    c->state = kv_take_state(c->store, true);
    seq->state = kv_data(c->state);
    c->promised = promised;
    mdl_copy_state(seq->runner, seq->state, from_seq->state);
    share_pages(c, seq, from, from_seq);
    mdl_seq_continue(seq, from_seq);
    c->publishing = from->publishing;
    c->n_prompt = from->n_prompt;
    if (c->publishing && from->unit != NULL) {
        (void)kv_pin(from->unit); /* never refused: `from` pins it */
        c->unit = from->unit;
        c->n_units = from->n_units;
    }
    return DI_OK;
}

/* ---- look-up ---- */

static kv_salt salt_of(const eng_cache *c) { return (kv_salt){.data = c->salt, .size = c->salt_size}; }

static eng_text text_of(const eng_cache *c, const mdl_seq *seq)
{
    return (eng_text){.replay = c->replay, .n_tokens = (int64_t)c->n_ids, .decoder_from = seq->decoder_from};
}

int64_t eng_decoder_from(const mdl_runner *r, di_replay replay, int64_t n)
{
    return eng_replays_decoder(replay) && n > mdl_window(r) ? n - mdl_window(r) : 0;
}

static int64_t less(int64_t a, int64_t b) { return a < b ? a : b; }

/* What is computed must be exact from the end of the match on; the input of a decoder that is replayed also from where that begins. */
int64_t eng_cache_start_of(const mdl_runner *r, const eng_text *text, int64_t n_units, int64_t snapshot)
{
    const int64_t matched = n_units * KV_UNIT_TOKENS;
    int64_t start = matched - mdl_halo(r);
    if (text->replay == DI_REPLAY_DECODER) {
        start = less(matched, text->decoder_from) - mdl_encoder_halo(r);
    } else if (eng_replays_encoder(text->replay)) {
        start = matched - mdl_window(r);
        start = text->replay == DI_REPLAY_BOTH ? less(start, text->decoder_from) : start;
    }
    start = start > 0 ? start / 2 * 2 : 0; /* at an even position */
    return start > snapshot * KV_UNIT_TOKENS ? start : snapshot * KV_UNIT_TOKENS;
}

/* A snapshot without decoder windows must lie so far back that the next snapshot, at the last unit end, does not need them either. */
bool eng_cache_serves(const mdl_runner *r, const eng_text *text, uint32_t tag, int64_t at)
{
    if (text->replay != DI_REPLAY_OFF) {
        return text->replay == DI_REPLAY_DECODER && at * KV_UNIT_TOKENS <= text->decoder_from;
    }
    return tag == ENG_STATE_WHOLE || (text->n_tokens / KV_UNIT_TOKENS - at) * KV_UNIT_TOKENS >= mdl_decoder_reach(r, 1);
}

kv_unit *eng_cache_snapshot(const mdl_runner *r, const eng_text *text, kv_unit *last, int64_t *units)
{
    kv_unit *unit = last;
    for (*units = kv_depth(last); unit != NULL; unit = kv_parent(unit), --*units) {
        const kv_slot *const snapshot = kv_unit_snapshot(unit);
        if (snapshot != NULL && eng_cache_serves(r, text, kv_tag(snapshot), *units)) {
            return unit;
        }
    }
    return NULL;
}

/* Shares the pages of the match, which is pinned. */
static void hold_pages(eng_cache *c, mdl_seq *seq, const kv_match *m)
{
    const kv_unit *unit = m->last;
    for (int64_t i = m->n_units; i-- > 0; unit = kv_parent(unit)) {
        kv_slot *const page = kv_unit_page(unit);
        (void)kv_hold(page); /* never refused below a pin */
        c->pages[i] = page;
    }
    for (int64_t i = 0; i < m->n_units; i++) {
        mdl_seq_add_page(seq, kv_data(c->pages[i]));
    }
    c->n_pages = (int32_t)m->n_units;
}

/* What is used on the device is used below it, too. */
static void keep_match(eng_cache *c, const kv_match *m)
{
    for (kv_unit *unit = m->last; c->tier != NULL && unit != NULL; unit = kv_parent(unit)) {
        const kv_slot *const state = kv_unit_snapshot(unit);
        if (eng_tier_keep_page(c->tier, &c->keep, kv_unit_key(unit), kv_unit_page(unit)) && state != NULL) {
            eng_tier_keep_state(c->tier, &c->keep, kv_unit_key(unit), state, kv_tag(state), kv_depth(unit) * KV_UNIT_TOKENS);
        }
    }
}

/* Copies the snapshot into the sequence's state. */
static bool take_snapshot(const eng_cache *c, const mdl_seq *seq, const kv_unit *unit)
{
    kv_slot *const snapshot = kv_unit_snapshot(unit);
    if (!kv_hold(snapshot)) {
        return false;
    }
    mdl_copy_state(seq->runner, kv_data(c->state), kv_data(snapshot));
    kv_drop(c->store, snapshot);
    return true;
}

eng_restored eng_cache_restore(const eng_cache *c, const mdl_seq *seq)
{
    const eng_text text = text_of(c, seq);
    return c->active && c->tier != NULL ? eng_restore_run(c->tier, salt_of(c), c->ids, &text) : (eng_restored){.unit = NULL};
}

/* Where the last snapshot of a prompt is due: the last unit end. 0 = nowhere. */
static int64_t stop_of(const eng_text *text)
{
    const int64_t last = eng_replays_decoder(text->replay) ? text->decoder_from : text->n_tokens;
    return eng_replays_encoder(text->replay) ? 0 : last / KV_UNIT_TOKENS * KV_UNIT_TOKENS;
}

di_status eng_cache_find(eng_cache *c, mdl_seq *seq, int64_t *start, di_error *err)
{
    const eng_text text = text_of(c, seq);
    const int64_t n = text.n_tokens;
    kv_match m;
    *start = 0;
    if (!c->active) {
        return DI_OK;
    }
    c->n_prompt = n;
    c->stop = stop_of(&text);
    kv_find(c->store, salt_of(c), c->ids, n, NULL, n - 1, &m);
    if (m.n_units == 0) {
        return DI_OK;
    }
    const di_status status = grow_list(c, seq, m.n_units, err);
    if (status != DI_OK || !kv_pin(m.last)) {
        return status; /* a refused pin is a miss */
    }
    const int64_t matched = m.n_units * KV_UNIT_TOKENS;
    int64_t units = 0;
    const kv_unit *const resume = eng_cache_snapshot(seq->runner, &text, m.last, &units);
    hold_pages(c, seq, &m);
    keep_match(c, &m);
    c->unit = m.last;
    c->n_units = m.n_units;
    *start = eng_cache_start_of(seq->runner, &text, m.n_units, 0);
    if (eng_replays_encoder(c->replay)) {
        seq->window_from = *start;
    } else if (resume != NULL && units * KV_UNIT_TOKENS >= *start && take_snapshot(c, seq, resume)) {
        *start = units * KV_UNIT_TOKENS;
    }
    mdl_seq_resume(seq, c->ids, *start, matched);
    c->stop = c->stop > matched ? c->stop : 0;
    c->cached = *start;
    return DI_OK;
}

/* ---- passes ---- */

int64_t eng_cache_limit(const eng_cache *c, const mdl_seq *seq, int64_t position, int64_t end)
{
    if (position < seq->n_frozen && end > seq->n_frozen) {
        end = seq->n_frozen;
    }
    if (position < c->stop) {
        const int64_t next = (position / ENG_SNAPSHOT_TOKENS + 1) * ENG_SNAPSHOT_TOKENS;
        const int64_t due = next < c->stop ? next : c->stop;
        end = end < due ? end : due;
    }
    return end;
}

int64_t eng_cache_target(const eng_cache *c, int64_t position, int64_t goal)
{
    return position < c->stop && !eng_replays_decoder(c->replay) ? c->stop : goal;
}

/* Another sequence was first: its page takes the place of the own one, which nobody else holds. Giving that back makes room for the
 * reference, so that it can't be refused. */
static void share_page(eng_cache *c, mdl_seq *seq, int64_t i, const kv_unit *unit)
{
    kv_slot *const theirs = kv_unit_page(unit);
    if (theirs != c->pages[i] && !kv_shared(c->pages[i])) {
        kv_drop(c->store, c->pages[i]);
        (void)kv_hold(theirs);
        c->pages[i] = theirs;
        seq->pages[i] = kv_data(theirs);
    }
}

static bool publish_next(eng_cache *c, mdl_seq *seq)
{
    const int64_t i = c->n_units;
    kv_unit *const unit = kv_publish(c->store, c->unit, salt_of(c), c->ids + i * KV_UNIT_TOKENS, NULL, c->pages[i]);
    if (unit == NULL) {
        return false;
    }
    share_page(c, seq, i, unit);
    if (!kv_pin(unit)) {
        return false;
    }
    kv_unpin(c->store, c->unit);
    c->unit = unit;
    c->n_units++;
    if (c->tier != NULL) {
        (void)eng_tier_keep_page(c->tier, &c->keep, kv_unit_key(unit), kv_unit_page(unit));
    }
    return true;
}

/* A unit keeps the snapshot that it has: another one would only push out somebody else's. */
static void snapshot(eng_cache *c, const mdl_seq *seq, uint32_t tag)
{
    if (kv_unit_snapshot(c->unit) != NULL || eng_replays_encoder(c->replay)) {
        return;
    }
    kv_slot *const state = kv_take_state(c->store, false);
    if (state == NULL) {
        keep_state(c, c->state, tag); /* on the device the prefix stays without it */
        return;
    }
    mdl_copy_state(seq->runner, kv_data(state), kv_data(c->state));
    kv_set_tag(state, tag);
    attach(c, state);
    kv_drop(c->store, state);
}

/* One copy that moves along with the output: of the state behind the last unit. A few tokens more may be in it, drafts that were wrong
 * among them: what they overwrote was not needed behind the unit (OPS_REWIND), and a sequence that resumes there writes them anew. */
static void roll(eng_cache *c, const mdl_seq *seq)
{
    if (c->rolling == NULL && !eng_replays_encoder(c->replay)) {
        c->rolling = kv_take_state(c->store, false);
    }
    if (c->rolling != NULL) {
        mdl_copy_state(seq->runner, kv_data(c->rolling), kv_data(c->state));
        kv_set_tag(c->rolling, eng_replays_decoder(c->replay) ? ENG_STATE_PARTIAL : ENG_STATE_WHOLE);
        c->rolling_at = c->n_units * KV_UNIT_TOKENS;
    }
}

void eng_cache_update(eng_cache *c, mdl_seq *seq, bool whole)
{
    while (c->publishing && (c->n_units + 1) * KV_UNIT_TOKENS <= seq->n_tokens) {
        c->publishing = publish_next(c, seq);
    }
    const int64_t unit_end = c->n_units * KV_UNIT_TOKENS;
    const int64_t past = seq->n_tokens - unit_end;
    if (!c->publishing || unit_end == 0 || seq->n_tokens < seq->n_frozen) {
        return;
    }
    if (unit_end > c->n_prompt) {
        if (whole && past < OPS_REWIND && unit_end > c->rolling_at) {
            roll(c, seq);
        }
    } else if (past != 0) {
        return;
    } else if (seq->n_tokens == c->stop || seq->n_tokens % ENG_SNAPSHOT_TOKENS == 0) {
        snapshot(c, seq, whole && !eng_replays_decoder(c->replay) ? ENG_STATE_WHOLE : ENG_STATE_PARTIAL);
    }
}
