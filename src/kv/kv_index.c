/* kv_index.c - the index of the disk tier over LMDB: three tables in one file.
 *
 *   names     key and kind -> kv_entry
 *   tenants   tenant and sequence, big-endian -> name: the records of a tenant from the oldest on
 *   segments  number of a segment -> kv_scanned; filled when the index is closed
 *
 * LMDB does not check what it reads, so a damaged file could lead it anywhere: only one whose checksum is right is opened. It runs
 * without syncing; the file is whole whenever the process ends, and made anew after anything worse. */
#include "kv/kv_index.h"

#include "kv/kv_rank.h"

#if DI_LMDB

#include "core/core.h"

#include <lmdb.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_TABLES = 3 };

typedef struct index_sum { /* of the file that a clean close left */
    char magic[8];
    uint32_t version;
    uint32_t page_bytes;
    uint64_t size;
    uint8_t sum[DIGEST_SUM_BYTES];
} index_sum;

#define INDEX_VERSION 1

struct kv_index { /* owner: the disk tier. `look` is the reading thread's, `batch` and `failed` the writing thread's */
    MDB_env *env;
    MDB_dbi names;
    MDB_dbi tenants;
    MDB_dbi segments;
    MDB_txn *look;
    MDB_txn *batch;
    MDB_cursor *walk; /* over names, inside a batch */
    bool failed;
    char *data_path;
    char *lock_path;
    char *sum_path;
};

typedef struct tenant_key {
    uint8_t bytes[KV_TENANT_BYTES + 8];
} tenant_key;

static tenant_key tenant_key_of(const uint8_t *tenant, uint64_t sequence)
{
    tenant_key key;
    memcpy(key.bytes, tenant, KV_TENANT_BYTES);
    for (size_t i = 0; i < 8; i++) {
        key.bytes[KV_TENANT_BYTES + i] = (uint8_t)(sequence >> (56 - 8 * i));
    }
    return key;
}

static uint64_t sequence_of(const uint8_t *key)
{
    uint64_t sequence = 0;
    for (size_t i = 0; i < 8; i++) {
        sequence = sequence << 8 | key[KV_TENANT_BYTES + i];
    }
    return sequence;
}

kv_entry kv_entry_of(const kv_listed *listed, uint64_t segment)
{
    kv_entry entry = {.segment = segment,
                      .sequence = listed->sequence,
                      .expiry_s = listed->expiry_s,
                      .block = listed->block,
                      .bytes = listed->bytes,
                      .ttl_s = listed->ttl_s,
                      .tag = listed->tag,
                      .class_id = listed->class_id,
                      .pinned = listed->pinned,
                      .spared = listed->spared};
    memcpy(entry.tenant, listed->tenant, sizeof entry.tenant);
    return entry;
}

/* ---- open and close ---- */

static bool sum_file(const char *path, index_sum *out)
{
    file_map map;
    if (file_map_open(path, &map, NULL) != DI_OK) {
        return false;
    }
    *out = (index_sum){.magic = "dikvidx", .version = INDEX_VERSION, .page_bytes = (uint32_t)sysconf(_SC_PAGESIZE), .size = map.size};
    digest_sum(map.data, map.size, out->sum);
    file_map_close(&map);
    return true;
}

/* Whether the file is as the last close left it. */
static bool is_whole(const kv_index *index)
{
    char *text = NULL;
    size_t size = 0;
    index_sum now;
    const bool whole = file_read(index->sum_path, sizeof now, &text, &size, NULL) == DI_OK && size == sizeof now &&
                       sum_file(index->data_path, &now) && memcmp(text, &now, sizeof now) == 0;
    free(text);
    return whole;
}

static di_status open_env(kv_index *index, const char *path, uint64_t max_bytes, di_error *err)
{
    int rc = mdb_env_create(&index->env);
    if (rc == 0) {
        rc = mdb_env_set_mapsize(index->env, (size_t)max_bytes);
    }
    if (rc == 0) {
        rc = mdb_env_set_maxdbs(index->env, N_TABLES);
    }
    if (rc == 0) {
        rc = mdb_env_open(index->env, path, MDB_NOSYNC | MDB_NOTLS | MDB_NORDAHEAD, 0644);
    }
    return rc == 0 ? DI_OK : err_set(err, rc == ENOMEM ? DI_E_MEMORY : DI_E_IO, "%s: index: %s", path, mdb_strerror(rc));
}

static di_status open_tables(kv_index *index, const char *path, di_error *err)
{
    MDB_txn *txn = NULL;
    int rc = mdb_txn_begin(index->env, NULL, 0, &txn);
    if (rc == 0) {
        rc = mdb_dbi_open(txn, "names", MDB_CREATE, &index->names);
    }
    if (rc == 0) {
        rc = mdb_dbi_open(txn, "tenants", MDB_CREATE, &index->tenants);
    }
    if (rc == 0) {
        rc = mdb_dbi_open(txn, "segments", MDB_CREATE, &index->segments);
    }
    if (rc == 0) {
        rc = mdb_txn_commit(txn);
    } else {
        mdb_txn_abort(txn); /* NULL is ignored */
    }
    if (rc == 0) {
        rc = mdb_txn_begin(index->env, NULL, MDB_RDONLY, &index->look);
    }
    if (rc != 0) {
        return err_set(err, rc == ENOMEM ? DI_E_MEMORY : DI_E_IO, "%s: index: %s", path, mdb_strerror(rc));
    }
    mdb_txn_reset(index->look);
    return DI_OK;
}

static void index_free(kv_index *index)
{
    if (index->look != NULL) {
        mdb_txn_abort(index->look);
    }
    if (index->env != NULL) {
        mdb_env_close(index->env);
    }
    free(index->data_path);
    free(index->lock_path);
    free(index->sum_path);
    free(index);
}

di_status kv_index_open(const char *path, uint64_t max_bytes, kv_index **out, bool *fresh, di_error *err)
{
    kv_index *const index = calloc(1, sizeof *index);
    if (index == NULL) {
        return err_memory(err, "index", sizeof *index);
    }
    index->data_path = file_path_join(path, "data.mdb");
    index->lock_path = file_path_join(path, "lock.mdb");
    index->sum_path = file_path_join(path, "sum");
    di_status status = DI_OK;
    if (index->data_path == NULL || index->lock_path == NULL || index->sum_path == NULL) {
        status = err_memory(err, "index", strlen(path));
    } else if (mkdir(path, 0755) != 0 && errno != EEXIST) {
        status = err_set_errno(err, errno, "%s", path);
    }
    if (status == DI_OK) {
        *fresh = !is_whole(index);
        (void)unlink(index->sum_path);
        (void)unlink(index->lock_path); /* nobody else uses it: the writer's lock says so */
        if (*fresh) {
            (void)unlink(index->data_path);
        }
        status = open_env(index, path, max_bytes, err);
    }
    if (status == DI_OK) {
        status = open_tables(index, path, err);
    }
    if (status != DI_OK) {
        index_free(index);
        return status;
    }
    *out = index;
    return DI_OK;
}

/* Nothing is synced: should the machine stop before the disk has it all, the sum is wrong, and the index made anew. */
static void write_sum(const kv_index *index, const index_sum *sum)
{
    const int fd = open(index->sum_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd >= 0) {
        (void)!write(fd, sum, sizeof *sum);
        close(fd);
    }
}

void kv_index_close(kv_index *index, bool keep)
{
    if (index == NULL) {
        return;
    }
    index_sum sum;
    mdb_txn_abort(index->look);
    index->look = NULL;
    mdb_env_close(index->env);
    index->env = NULL;
    if (keep && sum_file(index->data_path, &sum)) {
        write_sum(index, &sum);
    }
    index_free(index);
}

uint64_t kv_index_bytes(const kv_index *index)
{
    MDB_envinfo info;
    MDB_stat stat;
    if (mdb_env_info(index->env, &info) != 0 || mdb_env_stat(index->env, &stat) != 0) {
        return 0;
    }
    return (uint64_t)(info.me_last_pgno + 1) * stat.ms_psize;
}

/* ---- looking up ---- */

bool kv_index_look(kv_index *index) { return mdb_txn_renew(index->look) == 0; }
void kv_index_look_end(kv_index *index) { mdb_txn_reset(index->look); }

static bool get(MDB_txn *txn, MDB_dbi table, const void *key, size_t key_size, void *out, size_t size)
{
    MDB_val k = {.mv_size = key_size, .mv_data = (void *)(uintptr_t)key};
    MDB_val v;
    if (mdb_get(txn, table, &k, &v) != 0 || v.mv_size != size) {
        return false;
    }
    memcpy(out, v.mv_data, size);
    return true;
}

bool kv_index_find(kv_index *index, const kv_name *name, kv_entry *out)
{
    return get(index->look, index->names, name, sizeof *name, out, sizeof *out);
}

/* ---- changing ---- */

bool kv_index_begin(kv_index *index)
{
    index->failed = false;
    return mdb_txn_begin(index->env, NULL, 0, &index->batch) == 0;
}

static void end_walk(kv_index *index)
{
    if (index->walk != NULL) {
        mdb_cursor_close(index->walk);
        index->walk = NULL;
    }
}

bool kv_index_commit(kv_index *index)
{
    if (index->failed) {
        kv_index_abort(index);
        return false;
    }
    end_walk(index);
    const int rc = mdb_txn_commit(index->batch);
    index->batch = NULL;
    return rc == 0;
}

void kv_index_abort(kv_index *index)
{
    end_walk(index);
    mdb_txn_abort(index->batch);
    index->batch = NULL;
}

bool kv_index_get(kv_index *index, const kv_name *name, kv_entry *out)
{
    return get(index->batch, index->names, name, sizeof *name, out, sizeof *out);
}

static void put_with(kv_index *index, MDB_dbi table, const void *key, size_t key_size, const void *value, size_t size, unsigned flags)
{
    MDB_val k = {.mv_size = key_size, .mv_data = (void *)(uintptr_t)key};
    MDB_val v = {.mv_size = size, .mv_data = (void *)(uintptr_t)value};
    index->failed = index->failed || mdb_put(index->batch, table, &k, &v, flags) != 0;
}

static void put(kv_index *index, MDB_dbi table, const void *key, size_t key_size, const void *value, size_t size)
{
    put_with(index, table, key, key_size, value, size, 0);
}

static void drop(kv_index *index, MDB_dbi table, const void *key, size_t key_size)
{
    MDB_val k = {.mv_size = key_size, .mv_data = (void *)(uintptr_t)key};
    const int rc = index->failed ? 0 : mdb_del(index->batch, table, &k, NULL);
    index->failed = index->failed || (rc != 0 && rc != MDB_NOTFOUND);
}

void kv_index_put(kv_index *index, const kv_name *name, const kv_entry *entry, const kv_entry *before)
{
    const tenant_key key = tenant_key_of(entry->tenant, entry->sequence);
    if (before != NULL && (before->sequence != entry->sequence || memcmp(before->tenant, entry->tenant, KV_TENANT_BYTES) != 0)) {
        const tenant_key old = tenant_key_of(before->tenant, before->sequence);
        drop(index, index->tenants, &old, sizeof old);
        before = NULL;
    }
    put(index, index->names, name, sizeof *name, entry, sizeof *entry);
    if (before == NULL) {
        put(index, index->tenants, &key, sizeof key, name, sizeof *name);
    }
}

void kv_index_fill(kv_index *index, kv_ranked *items, size_t n)
{
    /* In the order of the keys each record goes to the end of the last page: several times faster than looking for its place. */
    for (size_t i = 0; i < n; i++) {
        const kv_indexed *const item = items[i].item;
        put_with(index, index->names, &item->name, sizeof item->name, &item->entry, sizeof item->entry, MDB_APPEND);
    }
    kv_rank_by_tenant(items, n);
    tenant_key last = {{0}};
    for (size_t i = 0; i < n; i++) {
        const kv_indexed *const item = items[i].item;
        const tenant_key key = tenant_key_of(item->entry.tenant, item->entry.sequence);
        const bool same = i > 0 && memcmp(&key, &last, sizeof key) == 0; /* two writers at one moment */
        put_with(index, index->tenants, &key, sizeof key, &item->name, sizeof item->name, same ? 0 : MDB_APPEND);
        last = key;
    }
}

void kv_index_remove(kv_index *index, const kv_name *name, const kv_entry *entry)
{
    const tenant_key key = tenant_key_of(entry->tenant, entry->sequence);
    drop(index, index->names, name, sizeof *name);
    drop(index, index->tenants, &key, sizeof key);
}

bool kv_index_next(kv_index *index, bool start, kv_name *name, kv_entry *entry)
{
    MDB_val k = {.mv_size = sizeof *name, .mv_data = name};
    MDB_val v;
    if (index->walk == NULL && mdb_cursor_open(index->batch, index->names, &index->walk) != 0) {
        return false;
    }
    int rc = mdb_cursor_get(index->walk, &k, &v, MDB_SET_RANGE);
    if (rc == 0 && !start && k.mv_size == sizeof *name && memcmp(k.mv_data, name, sizeof *name) == 0) {
        rc = mdb_cursor_get(index->walk, &k, &v, MDB_NEXT);
    }
    if (rc != 0 || k.mv_size != sizeof *name || v.mv_size != sizeof *entry) {
        return false;
    }
    memcpy(name, k.mv_data, sizeof *name);
    memcpy(entry, v.mv_data, sizeof *entry);
    return true;
}

bool kv_index_oldest(kv_index *index, const uint8_t *tenant, uint64_t *sequence, kv_name *name, kv_entry *entry)
{
    tenant_key key = tenant_key_of(tenant, *sequence);
    MDB_val k = {.mv_size = sizeof key, .mv_data = &key};
    MDB_val v;
    MDB_cursor *cursor;
    if (mdb_cursor_open(index->batch, index->tenants, &cursor) != 0) {
        return false;
    }
    const bool found = mdb_cursor_get(cursor, &k, &v, MDB_SET_RANGE) == 0 && k.mv_size == sizeof key &&
                       v.mv_size == sizeof *name && memcmp(k.mv_data, tenant, KV_TENANT_BYTES) == 0;
    if (found) {
        *sequence = sequence_of(k.mv_data);
        memcpy(name, v.mv_data, sizeof *name);
    }
    mdb_cursor_close(cursor);
    return found && kv_index_get(index, name, entry);
}

bool kv_index_get_scanned(kv_index *index, uint64_t segment, kv_scanned *out)
{
    return get(index->batch, index->segments, &segment, sizeof segment, out, sizeof *out);
}

void kv_index_put_scanned(kv_index *index, uint64_t segment, const kv_scanned *scanned)
{
    put(index, index->segments, &segment, sizeof segment, scanned, sizeof *scanned);
}

void kv_index_clear_scanned(kv_index *index)
{
    index->failed = index->failed || mdb_drop(index->batch, index->segments, 0) != 0;
}

#endif
