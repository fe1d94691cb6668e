/* eng_restore.c - what a waiting request has in the tiers below the device, and whether loading it is worth the wait; see eng_tier.h.
 *
 * The way of a restore: keys of the chain -> memory tier -> each lower tier in turn, from where the one before ended -> decision -> reads
 * -> ready. The plan is chosen like a prefix hit (eng_cache_find): up to the deepest snapshot that serves the request, else the longest
 * chain with the dependency halo recomputed; units behind the snapshot would save nothing and are not read.
 *
 * Deadline: a load may take half of the time that computing the same tokens would, from the moment that the request was queued. A wrong
 * guess so costs at most that, and what has come by then, in order, is used. Before speeds are known everything is loaded.
 *
 * Operations belong to a lower tier until they are done, so a restore that is given up lives on until its last one is. */
#include "engine/eng_restore_int.h"

#include "core/core.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST_NS ((int64_t)10 * 1000000000) /* wait, while nothing is known of speeds */
#define SHORTEST_NS ((int64_t)2 * 1000000)    /* deadline: below it noise decides */
#define WAIT_SHARE 0.5                        /* of the time that computing takes */
#define RAM_BYTE_NS 0.5

eng_restore *eng_restore_next(const eng_restore *r) { return r->next; }

static void link_restore(eng_tier *t, eng_restore *r)
{
    r->next = t->restores;
    if (t->restores != NULL) {
        t->restores->previous = r;
    }
    t->restores = r;
}

static void unlink_restore(eng_restore *r)
{
    *(r->previous != NULL ? &r->previous->next : &r->tier->restores) = r->next;
    if (r->next != NULL) {
        r->next->previous = r->previous;
    }
}

static void free_restore(eng_restore *r)
{
    for (int64_t i = 0; r->units != NULL && i < r->n_units; i++) {
        kv_ram_drop(r->tier->ram, r->units[i].record);
    }
    kv_ram_drop(r->tier->ram, r->snapshot.record);
    for (int32_t i = 0; i < ENG_LOWERS; i++) {
        free(r->found[i]);
    }
    free(r->units);
    free(r->ids);
    free(r->keys);
    free(r);
}

/* ---- looking up ---- */

static bool make_keys(const eng_tier *t, kv_salt salt, eng_restore *r)
{
    uint8_t key[KV_KEY_BYTES];
    bool made = kv_key_root(t->name_space, salt, key);
    for (int64_t i = 0; made && i < r->n_units; i++) {
        made = kv_key_next(t->name_space, key, r->ids + i * KV_UNIT_TOKENS, NULL, key);
        memcpy(r->keys[i], key, sizeof key);
    }
    return made;
}

/* Units that the memory tier has, from where the device's end. */
static void find_in_ram(eng_restore *r)
{
    r->n_chain = r->n_have;
    while (r->n_chain < r->n_units) {
        kv_ram_record *const record = kv_ram_find(r->tier->ram, r->keys[r->n_chain], KV_DISK_UNIT, r->began_ns);
        if (record == NULL) {
            return;
        }
        r->units[r->n_chain++] = (eng_piece){.record = record, .source = ENG_FROM_RAM, .there = true};
    }
}

static void find_done(kv_disk_op *op) { ((eng_restore *)op->user)->finding = false; }

static void ask_next(eng_restore *r)
{
    const int32_t i = r->n_asked++;
    const kv_lower lower = r->tier->lowers[i];
    r->finds[i] = (kv_disk_find){.op = {.done = find_done, .user = r},
                                 .keys = (const uint8_t(*)[KV_KEY_BYTES])r->keys,
                                 .n = r->n_units,
                                 .first = r->n_chain,
                                 .found = r->found[i]};
    r->finding = true;
    lower.table->find(lower.store, &r->finds[i]);
}

/* A record of another size than it should have is none. */
static bool is_page(const eng_tier *t, const kv_disk_place *place) { return place->bytes == (int64_t)mdl_flat_page_bytes(t->runner); }

static bool is_state(const eng_tier *t, const kv_disk_place *place)
{
    return place->tag <= ENG_STATE_WHOLE && place->bytes == (int64_t)mdl_flat_state_bytes(t->runner, place->tag == ENG_STATE_WHOLE);
}

/* What the last find says of units. */
static void take_found(eng_restore *r)
{
    const int32_t i = r->n_asked - 1;
    const kv_disk_find *const f = &r->finds[i];
    r->leased[i] = f->op.status == DI_OK;
    for (; r->leased[i] && r->n_chain < f->n_units && is_page(r->tier, &r->found[i][r->n_chain].unit); r->n_chain++) {
        r->units[r->n_chain] = (eng_piece){.place = r->found[i][r->n_chain].unit, .source = (eng_source)(ENG_FROM_LOWER + i)};
    }
}

/* ---- the plan ---- */

/* A snapshot behind `at` units in any tier. */
static bool find_snapshot(eng_restore *r, int64_t at)
{
    eng_tier *const t = r->tier;
    kv_ram_record *const record = kv_ram_find(t->ram, r->keys[at - 1], KV_DISK_SNAPSHOT, r->began_ns);
    if (record != NULL && eng_cache_serves(t->runner, &r->text, record->tag, at)) {
        r->snapshot = (eng_piece){.record = record, .source = ENG_FROM_RAM, .there = true};
        return true;
    }
    kv_ram_drop(t->ram, record);
    for (int32_t i = 0; i < r->n_asked; i++) {
        const kv_disk_place *const place = &r->found[i][at - 1].snapshot;
        if (r->leased[i] && at <= r->finds[i].n_units && is_state(t, place) && eng_cache_serves(t->runner, &r->text, place->tag, at)) {
            r->snapshot = (eng_piece){.place = *place, .source = (eng_source)(ENG_FROM_LOWER + i)};
            return true;
        }
    }
    return false;
}

/* Sets target and snapshot; returns where the request would start. */
static int64_t choose_target(eng_restore *r)
{
    const eng_tier *const t = r->tier;
    const int64_t without = eng_cache_start_of(t->runner, &r->text, r->n_chain, 0);
    int64_t at = r->n_chain;
    while (at > 0 && at * KV_UNIT_TOKENS >= without && !find_snapshot(r, at)) {
        at--;
    }
    const bool some = at > 0 && at * KV_UNIT_TOKENS >= without;
    r->snapshot_at = some ? at : 0;
    r->target = some ? at : r->n_chain;
    return some ? at * KV_UNIT_TOKENS : without;
}

static int64_t size_of(const eng_piece *p) { return p->record != NULL ? p->record->bytes : p->place.bytes; }

/* Bytes by source; false when those to be read do not fit the memory tier. */
static bool measure(eng_restore *r)
{
    kv_ram_counters k;
    int64_t to_read = 0;
    kv_ram_get_counters(r->tier->ram, &k);
    for (int64_t i = r->n_have; i <= r->target; i++) {
        const eng_piece *const p = i < r->target ? &r->units[i] : &r->snapshot;
        if (i < r->target || r->snapshot_at > 0) {
            r->planned_bytes[p->source] += size_of(p);
            to_read += p->there ? 0 : size_of(p);
        }
    }
    return to_read <= k.max_bytes - k.held_bytes;
}

static double load_time(const eng_restore *r)
{
    double ns = (double)r->planned_bytes[ENG_FROM_RAM] * RAM_BYTE_NS;
    for (int32_t i = 0; i < ENG_LOWERS; i++) {
        ns += (double)r->planned_bytes[ENG_FROM_LOWER + i] * r->tier->byte_ns[i];
    }
    return ns;
}

static int64_t deadline_of(const eng_restore *r, int64_t n_tokens)
{
    const eng_tier *const t = r->tier;
    if (t->load == ENG_LOAD_ALWAYS || t->token_ns <= 0) {
        return r->began_ns + LONGEST_NS;
    }
    const double wait = (double)n_tokens * t->token_ns * WAIT_SHARE;
    return r->began_ns + (wait < (double)SHORTEST_NS ? SHORTEST_NS : wait < (double)LONGEST_NS ? (int64_t)wait : LONGEST_NS);
}

/* Whether loading is worth it. */
static bool decide(eng_restore *r)
{
    eng_tier *const t = r->tier;
    const int64_t saved = choose_target(r) - r->device_start;
    if (saved <= 0) {
        return false;
    }
    if (!measure(r) || (t->load == ENG_LOAD_AUTO && t->token_ns > 0 && load_time(r) > (double)saved * t->token_ns * WAIT_SHARE)) {
        t->counters.recompute++;
        return false;
    }
    t->counters.load++;
    r->deadline_ns = deadline_of(r, saved);
    return true;
}

/* ---- reading ---- */

static void read_done(kv_disk_op *op)
{
    eng_piece *const p = op->user;
    kv_ram *const ram = p->restore->tier->ram;
    p->there = op->status == DI_OK && p->restore->n_purges == p->restore->tier->n_purges;
    if (p->there) {
        kv_ram_list(ram, p->record);
    } else {
        kv_ram_drop(ram, p->record);
        p->record = NULL;
        p->restore->tier->counters.late += op->status == DI_E_CANCELLED;
    }
    p->restore->n_pending--;
}

/* False: no room any more. */
static bool begin_read(eng_restore *r, eng_piece *p, const uint8_t *key, kv_disk_kind kind)
{
    eng_tier *const t = r->tier;
    const kv_lower lower = t->lowers[p->source - ENG_FROM_LOWER];
    p->record = kv_ram_add(t->ram, key, kind, p->place.bytes);
    if (p->record == NULL) {
        return false;
    }
    p->record->tag = p->place.tag;
    p->restore = r;
    p->read = (kv_disk_read){.op = {.done = read_done, .user = p},
                             .place = p->place,
                             .kind = kind,
                             .out = p->record->data,
                             .deadline_ns = r->deadline_ns};
    memcpy(p->read.key, key, KV_KEY_BYTES);
    r->n_pending++;
    lower.table->read(lower.store, &p->read);
    return true;
}

static void begin_reads(eng_restore *r)
{
    r->loading_ns = clock_now_ns();
    bool room = true;
    if (r->snapshot_at > 0 && !r->snapshot.there) {
        room = begin_read(r, &r->snapshot, r->keys[r->snapshot_at - 1], KV_DISK_SNAPSHOT);
    }
    for (int64_t i = r->n_have; i < r->target && room; i++) {
        room = r->units[i].there || begin_read(r, &r->units[i], r->keys[i], KV_DISK_UNIT);
    }
}

static void release_leases(eng_restore *r)
{
    for (int32_t i = 0; i < r->n_asked && i < r->tier->n_lowers; i++) {
        if (r->leased[i]) {
            r->tier->lowers[i].table->release(r->tier->lowers[i].store, &r->finds[i]);
            r->leased[i] = false;
        }
    }
}

/* The bandwidth of a tier, when the load came of it alone. */
static void note_speed(eng_restore *r)
{
    eng_tier *const t = r->tier;
    const int64_t ns = clock_now_ns() - r->loading_ns;
    t->counters.load_ns += ns;
    for (int32_t i = 0; i < t->n_lowers; i++) {
        const int64_t bytes = r->planned_bytes[ENG_FROM_LOWER + i];
        const int64_t other = r->planned_bytes[ENG_FROM_LOWER + 1 - i];
        if (bytes > 0 && other == 0) {
            t->byte_ns[i] = eng_tier_smooth(t->byte_ns[i], (double)ns / (double)bytes);
        }
    }
}

void eng_restore_advance(eng_restore *r)
{
    while (!r->over && !r->finding && r->n_pending == 0) {
        if (r->loading_ns != 0) {
            note_speed(r);
            r->over = true;
            break;
        }
        if (r->n_asked > 0) {
            take_found(r);
        }
        if (r->n_asked < r->tier->n_lowers && !r->abandoned && !r->purging) {
            ask_next(r);
        } else if (r->abandoned || !decide(r)) {
            r->over = true;
        } else {
            begin_reads(r);
        }
    }
    if (r->over) {
        release_leases(r);
        if (r->abandoned) {
            unlink_restore(r);
            free_restore(r);
        }
    }
}

/* ---- for the request ---- */

/* Nothing below the device can make it start later than it does already. */
static bool nothing_to_gain(const eng_restore *r)
{
    const mdl_runner *const runner = r->tier->runner;
    int64_t best = r->n_units;
    while (best > 0 && !eng_cache_serves(runner, &r->text, ENG_STATE_WHOLE, best)) {
        best--;
    }
    return r->n_units == 0 || r->device_start >= eng_cache_start_of(runner, &r->text, r->n_units, best);
}

static void look_at_device(eng_restore *r, kv_salt salt, const int32_t *ids)
{
    const eng_tier *const t = r->tier;
    int64_t snapshot = 0;
    kv_unit *const last = kv_peek(t->kv, salt, ids, r->n_units);
    (void)eng_cache_snapshot(t->runner, &r->text, last, &snapshot);
    r->n_have = kv_depth(last);
    r->device_start = eng_cache_start_of(t->runner, &r->text, r->n_have, snapshot);
}

static bool allocate(eng_restore *r, const int32_t *ids)
{
    const size_t n = (size_t)r->n_units;
    r->units = ar_calloc(n, sizeof *r->units);
    r->keys = ar_calloc(n, sizeof *r->keys);
    r->ids = ar_calloc(n, KV_UNIT_TOKENS * sizeof *r->ids);
    bool all = r->units != NULL && r->keys != NULL && r->ids != NULL;
    for (int32_t i = 0; i < r->tier->n_lowers; i++) {
        r->found[i] = ar_calloc(n, sizeof *r->found[i]);
        all = all && r->found[i] != NULL;
    }
    if (all) {
        memcpy(r->ids, ids, n * KV_UNIT_TOKENS * sizeof *r->ids);
    }
    return all;
}

eng_restore *eng_restore_start(eng_tier *t, kv_salt salt, const int32_t *ids, const eng_text *text)
{
    eng_restore *const r = calloc(1, sizeof *r);
    if (r == NULL) {
        return NULL;
    }
    *r = (eng_restore){.tier = t,
                       .text = *text,
                       .n_units = (text->n_tokens - 1) / KV_UNIT_TOKENS,
                       .began_ns = clock_now_ns(),
                       .purging = eng_tier_is_purging(t, salt),
                       .n_purges = t->n_purges};
    look_at_device(r, salt, ids);
    if (nothing_to_gain(r) || !allocate(r, ids) || !make_keys(t, salt, r)) {
        free_restore(r);
        return NULL;
    }
    r->deadline_ns = deadline_of(r, r->n_units * KV_UNIT_TOKENS - r->device_start);
    t->counters.lookups++;
    link_restore(t, r);
    find_in_ram(r);
    eng_restore_advance(r);
    return r;
}

bool eng_restore_ready(eng_restore *r, int64_t now_ns) { return r->over || now_ns >= r->deadline_ns; }

void eng_restore_abandon(eng_restore *r)
{
    if (r != NULL) {
        r->abandoned = true;
        eng_restore_advance(r);
    }
}
