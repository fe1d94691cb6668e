/* eng_tier.c - the tiers below the KV store as one object: opening, polling, keeping; see eng_tier.h. Restoring is in eng_restore.c. */
#include "engine/eng_cache.h"

#include "core/core.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SMOOTHING 0.2                         /* of measured speeds: the weight of the newest */
#define CLOSE_NS ((int64_t)30 * 1000000000)   /* longest wait for what is still to be written */
#define CLOSE_STEP_NS ((int64_t)100 * 1000000)
#define HOUR_NS INT64_C(3600000000000)

/* ---- opening ---- */

di_status eng_tier_new(const eng_tier_options *o, eng_tier **out, di_error *err)
{
    eng_tier *const t = calloc(1, sizeof *t);
    pthread_condattr_t monotonic;
    if (t == NULL) {
        return err_memory(err, "cache tiers", sizeof *t);
    }
    t->runner = o->runner;
    t->kv = o->kv;
    t->load = o->load;
    memcpy(t->name_space, o->name_space, sizeof t->name_space);
    memcpy(t->ttl_s, o->ttl_s, sizeof t->ttl_s);
    t->began_ns = clock_now_ns();
    const di_status status = kv_ram_new(o->ram_bytes, &t->ram, err);
    if (status != DI_OK) {
        free(t);
        return status;
    }
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = t;
    return DI_OK;
}

void eng_tier_add(eng_tier *t, kv_lower lower) { t->lowers[t->n_lowers++] = lower; }

void eng_tier_free(eng_tier *t)
{
    if (t == NULL) {
        return;
    }
    const int64_t end = clock_now_ns() + CLOSE_NS;
    while ((t->n_puts > 0 || t->restores != NULL) && clock_now_ns() < end) {
        eng_tier_wait(t, CLOSE_STEP_NS);
    }
    for (int32_t i = 0; i < t->n_lowers; i++) {
        t->lowers[i].table->close(t->lowers[i].store); /* whatever is left ends in here */
    }
    t->n_lowers = 0; /* leases that were left are gone with them */
    eng_tier_poll(t);
    kv_ram_free(t->ram);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->mutex);
    free(t);
}

/* ---- polling ---- */

void eng_tier_wake(void *tier)
{
    eng_tier *const t = tier;
    pthread_mutex_lock(&t->mutex);
    t->signalled = true;
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->mutex);
}

void eng_tier_poll(eng_tier *t)
{
    for (int32_t i = 0; i < t->n_lowers; i++) {
        (void)t->lowers[i].table->poll(t->lowers[i].store);
    }
    for (eng_restore *r = t->restores, *next; r != NULL; r = next) {
        next = eng_restore_next(r);
        eng_restore_advance(r); /* an abandoned one may be gone behind it */
    }
}

void eng_tier_wait(eng_tier *t, int64_t timeout_ns)
{
    const int64_t end = clock_now_ns() + timeout_ns;
    const struct timespec at = {.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
    int late = 0;
    pthread_mutex_lock(&t->mutex);
    while (!t->signalled && late == 0) {
        late = pthread_cond_timedwait(&t->changed, &t->mutex, &at);
    }
    t->signalled = false;
    pthread_mutex_unlock(&t->mutex);
    eng_tier_poll(t);
}

/* ---- keeping ---- */

typedef struct put {
    kv_disk_put put;
    eng_tier *tier;
    kv_ram_record *record; /* held */
} put;

static void put_done(kv_disk_op *op)
{
    put *const p = op->user;
    kv_ram_drop(p->tier->ram, p->record);
    p->tier->n_puts--;
    free(p);
}

/* Writes come from the memory tier; half of it at most, so that restores find room. */
static bool may_hold(const eng_tier *t, int64_t bytes)
{
    kv_ram_counters k;
    kv_ram_get_counters(t->ram, &k);
    return t->n_lowers == 0 || bytes <= k.max_bytes / 2 - k.held_bytes;
}

static void write_down(eng_tier *t, kv_lower lower, const eng_keep *keep, kv_ram_record *record)
{
    put *const p = calloc(1, sizeof *p);
    if (p == NULL) {
        t->counters.not_kept++;
        return;
    }
    p->tier = t;
    p->record = record;
    p->put = (kv_disk_put){.op = {.done = put_done, .user = p},
                           .kind = record->kind,
                           .tag = record->tag,
                           .class_id = keep->class_id,
                           .ttl_s = keep->ttl_s,
                           .pinned = keep->pinned,
                           .tenant = keep->tenant,
                           .payload = record->data,
                           .bytes = record->bytes};
    memcpy(p->put.key, record->key, KV_KEY_BYTES);
    kv_ram_hold(record);
    t->n_puts++;
    if (!lower.table->put(lower.store, &p->put)) {
        t->counters.not_kept++;
        put_done(&p->put.op);
    }
}

static void write_everywhere(eng_tier *t, const eng_keep *keep, kv_ram_record *record)
{
    for (int32_t i = 0; i < t->n_lowers; i++) {
        write_down(t, t->lowers[i], keep, record);
    }
}

static int64_t ttl_of(const eng_tier *t, const eng_keep *keep) { return keep->ttl_s > 0 ? keep->ttl_s : t->ttl_s[keep->class_id]; }

static int64_t expiry_of(const eng_tier *t, const eng_keep *keep, int64_t now)
{
    const int64_t ttl = ttl_of(t, keep);
    return ttl > 0 && ttl < INT64_MAX / 2000000000 && !keep->pinned ? now + ttl * 1000000000 : INT64_MAX;
}

/* The record, held: one that is there already (*fresh = false), or one to be filled. NULL: there is no room. */
static kv_ram_record *take_record(eng_tier *t, const eng_keep *keep, const uint8_t *key, kv_disk_kind kind, size_t bytes, bool *fresh)
{
    const int64_t now = clock_now_ns();
    kv_ram_record *record = kv_ram_find(t->ram, key, kind, now);
    *fresh = record == NULL;
    if (*fresh) {
        record = may_hold(t, (int64_t)bytes) ? kv_ram_add(t->ram, key, kind, (int64_t)bytes) : NULL;
    }
    if (record == NULL) {
        t->counters.not_kept++;
        return NULL;
    }
    record->tenant = keep->tenant;
    record->expires_ns = expiry_of(t, keep, now);
    return record;
}

/* Lists a filled record and writes it down. */
static void keep_record(eng_tier *t, const eng_keep *keep, kv_ram_record *record)
{
    kv_ram_list(t->ram, record);
    write_everywhere(t, keep, record);
    t->counters.kept[record->kind]++;
    t->counters.kept_bytes += record->bytes;
}

/* Hours since the tiers were opened, from 1 on: the tag of a page says when the lower tiers were last given its bytes. */
static uint32_t hour(const eng_tier *t) { return (uint32_t)((clock_now_ns() - t->began_ns) / HOUR_NS) + 1; }

/* What is used on the device all the time must not expire below it: a quarter of its time to live may pass in between. */
static bool is_due(const eng_tier *t, const eng_keep *keep, const kv_slot *page)
{
    const int64_t age = (int64_t)hour(t) - (int64_t)kv_tag(page);
    return kv_tag(page) == 0 || (ttl_of(t, keep) > 0 && age * 3600 > ttl_of(t, keep) / 4);
}

bool eng_tier_keep_page(eng_tier *t, const eng_keep *keep, const uint8_t *key, kv_slot *page)
{
    bool fresh;
    const bool again = kv_tag(page) != 0;
    if (!is_due(t, keep, page)) {
        return false;
    }
    kv_ram_record *const record = take_record(t, keep, key, KV_DISK_UNIT, mdl_flat_page_bytes(t->runner), &fresh);
    if (record == NULL) {
        return false;
    }
    if (fresh) {
        mdl_flat_page_out(t->runner, record->data, kv_data(page));
        keep_record(t, keep, record);
    } else if (again) {
        write_everywhere(t, keep, record);
    }
    kv_ram_drop(t->ram, record);
    kv_set_tag(page, hour(t));
    return again;
}

void eng_tier_keep_state(eng_tier *t, const eng_keep *keep, const uint8_t *key, const kv_slot *state, uint32_t tag, int64_t at)
{
    bool fresh;
    const bool whole = tag == ENG_STATE_WHOLE;
    kv_ram_record *const record = take_record(t, keep, key, KV_DISK_SNAPSHOT, mdl_flat_state_bytes(t->runner, whole), &fresh);
    if (record == NULL) {
        return;
    }
    if (fresh) {
        record->tag = tag;
        mdl_flat_state_out(t->runner, record->data, kv_data(state), at, whole);
        keep_record(t, keep, record);
    } else {
        write_everywhere(t, keep, record);
    }
    kv_ram_drop(t->ram, record);
}

void eng_tier_note_kept(const eng_tier *t, kv_slot *page) { kv_set_tag(page, hour(t)); }

/* ---- care ---- */

typedef struct eng_care {
    kv_disk_care care;
    eng_tier *tier;
    kv_tenant tenant;
    struct eng_care *next_purge;
    uint8_t keys[][KV_KEY_BYTES];
} eng_care;

static void care_done(kv_disk_op *op)
{
    eng_care *const c = op->user;
    c->tier->n_puts--;
    for (eng_care **at = &c->tier->purges; *at != NULL; at = &(*at)->next_purge) {
        if (*at == c) {
            *at = c->next_purge;
            break;
        }
    }
    free(c);
}

/* In every lower tier; without memory for it nothing happens. */
static void start_care(eng_tier *t, kv_disk_care_kind kind, const kv_tenant *tenant, const uint8_t (*keys)[KV_KEY_BYTES], int64_t n)
{
    for (int32_t i = 0; i < t->n_lowers; i++) {
        eng_care *const c = calloc(1, sizeof *c + (size_t)n * KV_KEY_BYTES);
        if (c == NULL) {
            return;
        }
        c->tier = t;
        c->care = (kv_disk_care){.op = {.done = care_done, .user = c}, .kind = kind, .n = n};
        if (tenant != NULL) {
            c->tenant = *tenant;
            c->care.tenant = &c->tenant;
        }
        if (n > 0) {
            memcpy(c->keys, keys, (size_t)n * KV_KEY_BYTES);
            c->care.keys = (const uint8_t(*)[KV_KEY_BYTES])c->keys;
        }
        if (kind == KV_DISK_PURGE) {
            c->next_purge = t->purges;
            t->purges = c;
        }
        t->n_puts++;
        t->lowers[i].table->care(t->lowers[i].store, &c->care);
    }
}

void eng_tier_purge(eng_tier *t, const kv_tenant *tenant)
{
    t->n_purges++;
    (void)kv_ram_purge(t->ram, tenant);
    start_care(t, KV_DISK_PURGE, tenant, NULL, 0);
}

bool eng_tier_is_purging(const eng_tier *t, kv_salt salt)
{
    kv_tenant tenant;
    const bool known = t->purges != NULL && kv_tenant_of(salt, &tenant);
    for (const eng_care *c = t->purges; c != NULL; c = c->next_purge) {
        if (!known || c->care.tenant == NULL || memcmp(c->tenant.id, tenant.id, sizeof tenant.id) == 0) {
            return true;
        }
    }
    return false;
}

void eng_tier_pin(eng_tier *t, kv_salt salt, const int32_t *ids, int64_t n_units)
{
    uint8_t (*const keys)[KV_KEY_BYTES] = ar_calloc((size_t)n_units, sizeof *keys);
    uint8_t key[KV_KEY_BYTES];
    bool made = keys != NULL && n_units > 0 && kv_key_root(t->name_space, salt, key);
    for (int64_t i = 0; made && i < n_units; i++) {
        made = kv_key_next(t->name_space, key, ids + i * KV_UNIT_TOKENS, NULL, key);
        memcpy(keys[i], key, sizeof key);
    }
    if (made) {
        start_care(t, KV_DISK_PIN, NULL, (const uint8_t(*)[KV_KEY_BYTES])keys, n_units);
    }
    free(keys);
}

/* ---- speeds ---- */

double eng_tier_smooth(double before, double now) { return before > 0 ? before + SMOOTHING * (now - before) : now; }

void eng_tier_note_prefill(eng_tier *t, int64_t n_tokens, int64_t ns)
{
    if (n_tokens > 0 && ns > 0) {
        t->token_ns = eng_tier_smooth(t->token_ns, (double)ns / (double)n_tokens);
    }
}
