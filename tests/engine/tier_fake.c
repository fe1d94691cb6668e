/* tier_fake.c - see tier_fake.h. */
#include "engine/tier_fake.h"

#include "support/unit.h"

#include <stdlib.h>
#include <string.h>

enum { FIND = 1, READ, PUT, CARE };

void tier_fake_init(tier_fake *f, uint64_t seed) { *f = (tier_fake){.seed = seed}; }

void tier_fake_fini(tier_fake *f)
{
    assert_null(f->queue);
    assert_int_equal(f->n_leases, 0);
    for (size_t i = 0; i < f->n; i++) {
        free(f->records[i].payload);
    }
    free(f->records);
    *f = (tier_fake){.records = NULL};
}

static bool happens(tier_fake *f, uint32_t chance) { return chance > 0 && unit_random(&f->seed) % 100 < chance; }

static tier_record *record_of(const tier_fake *f, const uint8_t *key, kv_disk_kind kind)
{
    for (size_t i = 0; i < f->n; i++) {
        if (f->records[i].kind == kind && memcmp(f->records[i].key, key, KV_KEY_BYTES) == 0) {
            return &f->records[i];
        }
    }
    return NULL;
}

int64_t tier_fake_bytes(const tier_fake *f, kv_disk_kind kind)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < f->n; i++) {
        bytes += f->records[i].kind == kind ? f->records[i].bytes : 0;
    }
    return bytes;
}

/* ---- operations ---- */

static void add_silently(tier_fake *f, kv_disk_op *op, int what)
{
    kv_disk_op **place = &f->queue;
    while (*place != NULL) {
        place = &(*place)->next;
    }
    op->what = what;
    op->next = NULL;
    *place = op;
}

static void add(tier_fake *f, kv_disk_op *op, int what)
{
    add_silently(f, op, what);
    if (f->wake != NULL) {
        f->wake(f->wake_user);
    }
}

static kv_disk_place place_of(tier_fake *f, const uint8_t *key, kv_disk_kind kind)
{
    const tier_record *const r = record_of(f, key, kind);
    if (r == NULL || happens(f, f->forgets)) {
        return (kv_disk_place){.bytes = 0};
    }
    return (kv_disk_place){.bytes = r->bytes - (happens(f, f->lies_about_size) ? 64 : 0), .tag = r->tag};
}

static void do_find(tier_fake *f, kv_disk_find *find)
{
    bool more = true;
    find->n_units = find->first;
    for (int64_t i = 0; i < find->n && more; i++) {
        kv_disk_found *const found = &find->found[i];
        *found = (kv_disk_found){.unit = {.bytes = 0}};
        if (i >= find->first) {
            found->unit = place_of(f, find->keys[i], KV_DISK_UNIT);
            more = found->unit.bytes > 0;
            find->n_units += more;
        }
        if (more) {
            found->snapshot = place_of(f, find->keys[i], KV_DISK_SNAPSHOT);
        }
    }
    f->n_leases++;
}

static void do_read(tier_fake *f, kv_disk_read *read)
{
    const tier_record *const r = record_of(f, read->key, read->kind);
    memset(read->out, 0xEE, (size_t)read->place.bytes);
    if (happens(f, f->late)) {
        read->op.status = DI_E_CANCELLED;
    } else if (r == NULL || r->bytes != read->place.bytes || happens(f, f->fails)) {
        read->op.status = happens(f, 50) ? DI_E_MISMATCH : DI_E_IO;
    } else {
        memcpy(read->out, r->payload, (size_t)r->bytes);
        f->counters.reads++;
        f->counters.read_bytes += r->bytes;
    }
}

static void do_put(tier_fake *f, kv_disk_put *put)
{
    if (record_of(f, put->key, put->kind) != NULL) {
        put->verdict = KV_DISK_PRESENT;
        f->counters.present++;
        return;
    }
    if (happens(f, f->refuses)) {
        put->verdict = KV_DISK_NO_ROOM;
        return;
    }
    if (f->n == f->capacity) {
        f->capacity = f->capacity * 2 + 16;
        f->records = realloc(f->records, f->capacity * sizeof *f->records);
        assert_non_null(f->records);
    }
    tier_record *const r = &f->records[f->n++];
    *r = (tier_record){.kind = put->kind,
                       .tag = put->tag,
                       .tenant = put->tenant,
                       .class_id = put->class_id,
                       .ttl_s = put->ttl_s,
                       .pinned = put->pinned,
                       .bytes = put->bytes,
                       .payload = malloc((size_t)put->bytes)};
    assert_non_null(r->payload);
    memcpy(r->key, put->key, KV_KEY_BYTES);
    memcpy(r->payload, put->payload, (size_t)put->bytes);
    put->verdict = KV_DISK_STORED;
    f->counters.stored++;
    f->counters.stored_bytes += put->bytes;
}

static void do_care(tier_fake *f, kv_disk_care *care)
{
    for (size_t i = f->n; i-- > 0;) {
        tier_record *const r = &f->records[i];
        if (care->kind == KV_DISK_PURGE && (care->tenant == NULL || memcmp(&r->tenant, care->tenant, sizeof r->tenant) == 0)) {
            free(r->payload);
            *r = f->records[--f->n];
            care->n_done++;
        }
        for (int64_t k = 0; care->kind == KV_DISK_PIN && k < care->n; k++) {
            if (memcmp(r->key, care->keys[k], KV_KEY_BYTES) == 0) {
                r->pinned = true;
                care->n_done++;
            }
        }
    }
}

static void run(tier_fake *f, kv_disk_op *op)
{
    op->status = DI_OK;
    switch (op->what) {
    case FIND:
        do_find(f, (kv_disk_find *)op);
        break;
    case READ:
        do_read(f, (kv_disk_read *)op);
        break;
    case PUT:
        do_put(f, (kv_disk_put *)op);
        break;
    default:
        do_care(f, (kv_disk_care *)op);
        break;
    }
    op->done(op);
}

/* ---- the table ---- */

static void fake_find(void *store, kv_disk_find *find) { add(store, &find->op, FIND); }
static void fake_read(void *store, kv_disk_read *read) { add(store, &read->op, READ); }
static void fake_care(void *store, kv_disk_care *care) { add(store, &care->op, CARE); }

static void fake_release(void *store, kv_disk_find *find)
{
    (void)find;
    ((tier_fake *)store)->n_leases--;
}

static bool fake_put(void *store, kv_disk_put *put)
{
    tier_fake *const f = store;
    if (happens(f, f->refuses)) {
        return false;
    }
    add(f, &put->op, PUT);
    return true;
}

static int fake_poll(void *store)
{
    tier_fake *const f = store;
    int n = 0;
    kv_disk_op *op = f->hangs ? NULL : f->queue;
    f->queue = f->hangs ? f->queue : NULL;
    while (op != NULL) {
        kv_disk_op *const next = op->next;
        if (f->care_waits && op->what == CARE) {
            add_silently(f, op, CARE);
        } else if (happens(f, f->dawdles)) {
            add(f, op, op->what);
        } else if (happens(f, f->stalls)) {
            add_silently(f, op, op->what);
        } else {
            run(f, op);
            n++;
        }
        op = next;
    }
    return n;
}

static void fake_counters(const void *store, kv_disk_counters *out) { *out = ((const tier_fake *)store)->counters; }

/* It keeps no accounts. */
static size_t fake_tenants(const void *store, kv_tenant_use *out, size_t capacity)
{
    (void)store;
    (void)out;
    (void)capacity;
    return 0;
}

static void fake_close(void *store)
{
    tier_fake *const f = store;
    while (f->queue != NULL) {
        kv_disk_op *const op = f->queue;
        f->queue = op->next;
        op->status = DI_E_CANCELLED;
        op->done(op);
    }
}

kv_lower tier_fake_lower(tier_fake *f)
{
    static const kv_lower_table table = {
        .find = fake_find,
        .release = fake_release,
        .read = fake_read,
        .put = fake_put,
        .care = fake_care,
        .poll = fake_poll,
        .counters = fake_counters,
        .tenants = fake_tenants,
        .close = fake_close,
    };
    return (kv_lower){.table = &table, .store = f};
}

static void attach(di_engine *e, tier_fake *f)
{
    if (f != NULL) {
        f->wake = eng_tier_wake;
        f->wake_user = e->tier;
        eng_tier_add(e->tier, tier_fake_lower(f));
    }
}

void tier_fake_attach(di_engine *e, int64_t ram_bytes, tier_fake *disk, tier_fake *shared)
{
    eng_tier_options o = {.runner = e->runner,
                          .kv = e->kv,
                          .load = ENG_LOAD_ALWAYS,
                          .ram_bytes = ram_bytes};
    assert_int_equal(eng_tier_name_space(e, &(di_cache_options){.dir = NULL}, o.name_space, NULL), DI_OK);
    assert_int_equal(eng_tier_new(&o, &e->tier, NULL), DI_OK);
    attach(e, disk);
    attach(e, shared);
}

void tier_fake_set_faults(tier_fake *f, uint64_t round)
{
    f->forgets = round % 2 == 1 ? 5 : 0;
    f->fails = round % 3 == 1 ? 10 : 0;
    f->late = round % 5 == 2 ? 20 : 0;
    f->refuses = round % 3 == 2 ? 20 : 0;
    f->lies_about_size = round % 4 == 3 ? 10 : 0;
    f->dawdles = round % 2 == 0 ? 50 : 0;
    f->stalls = round % 4 == 1 ? 30 : 0;
}
