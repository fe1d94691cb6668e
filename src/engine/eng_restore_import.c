/* eng_restore_import.c - what a restore has loaded becomes units of the tree, at the admission of its request; see eng_tier.h.
 *
 * Units are published one behind the other, each pinned until the next one is, so that making room for one never takes the one before; the
 * snapshot is held. When a slot is refused, what is there by then is used. The look-up that follows verifies ids like any other. */
#include "engine/eng_restore_int.h"

#include "core/core.h"

static void count(eng_tier *t, const eng_piece *p, kv_disk_kind kind)
{
    t->counters.restored_bytes[p->source] += p->record->bytes;
    (kind == KV_DISK_UNIT ? t->counters.restored_units : t->counters.restored_snapshots)[p->source]++;
}

/* The unit behind `last`, pinned in its place. NULL: no slot is free, and `last` stays pinned. */
static kv_unit *import_unit(eng_restore *r, kv_salt salt, kv_unit *last, int64_t i)
{
    eng_tier *const t = r->tier;
    const eng_piece *const p = &r->units[i];
    kv_slot *const page = kv_take_page(t->kv, false);
    if (page == NULL) {
        return NULL;
    }
    mdl_flat_page_in(t->runner, kv_data(page), p->record->data);
    eng_tier_note_kept(t, page);
    kv_unit *const unit = kv_publish(t->kv, last, salt, r->ids + i * KV_UNIT_TOKENS, NULL, page);
    kv_drop(t->kv, page);
    if (unit == NULL || !kv_pin(unit)) {
        return NULL;
    }
    kv_unpin(t->kv, last);
    count(t, p, KV_DISK_UNIT);
    return unit;
}

/* Returns the state with a reference, so that it is not evicted before it is used; NULL = none came. */
static kv_slot *import_snapshot(eng_restore *r, kv_unit *last)
{
    eng_tier *const t = r->tier;
    const eng_piece *const p = &r->snapshot;
    kv_unit *unit = last;
    while (kv_depth(unit) > r->snapshot_at) {
        unit = kv_parent(unit);
    }
    kv_slot *const state = kv_depth(unit) == r->snapshot_at && kv_unit_snapshot(unit) == NULL ? kv_take_state(t->kv, false) : NULL;
    if (state == NULL) {
        return NULL;
    }
    mdl_flat_state_in(t->runner, kv_data(state), p->record->data, r->snapshot_at * KV_UNIT_TOKENS, p->record->tag == ENG_STATE_WHOLE);
    kv_set_tag(state, p->record->tag);
    kv_attach_snapshot(t->kv, unit, state);
    count(t, p, KV_DISK_SNAPSHOT);
    return state;
}

/* Units that came, behind those that the device has by now. */
static kv_unit *import_units(eng_restore *r, kv_salt salt, kv_unit *last)
{
    for (int64_t i = kv_depth(last); i >= r->n_have && i < r->target && r->units[i].there; i++) {
        kv_unit *const unit = import_unit(r, salt, last, i);
        if (unit == NULL) {
            break;
        }
        last = unit;
    }
    return last;
}

eng_restored eng_restore_finish(eng_restore *r, kv_salt salt)
{
    eng_restored out = {.unit = NULL};
    const bool loaded = r->loading_ns != 0 && r->n_purges == r->tier->n_purges;
    kv_unit *const there = loaded ? kv_peek(r->tier->kv, salt, r->ids, r->n_units) : NULL;
    if (loaded && kv_pin(there)) {
        out.unit = import_units(r, salt, there);
        out.snapshot = r->snapshot_at > 0 && r->snapshot.there ? import_snapshot(r, out.unit) : NULL;
        r->tier->counters.broken += kv_depth(out.unit) < r->target || (r->snapshot_at > 0 && !r->snapshot.there);
    }
    eng_restore_abandon(r);
    return out;
}

void eng_restored_fini(kv_store *kv, eng_restored *restored)
{
    kv_drop(kv, restored->snapshot);
    kv_unpin(kv, restored->unit);
}

eng_restored eng_restore_run(eng_tier *t, kv_salt salt, const int32_t *ids, const eng_text *text)
{
    eng_restore *const r = eng_restore_start(t, salt, ids, text);
    for (int64_t now = clock_now_ns(); r != NULL && !eng_restore_ready(r, now); now = clock_now_ns()) {
        eng_tier_wait(t, r->deadline_ns - now);
    }
    return r != NULL ? eng_restore_finish(r, salt) : (eng_restored){.unit = NULL};
}
