/* kv_index_none.c - in place of kv_index.c in a build without LMDB: there is no disk tier, and opening one says so. */
#include "kv/kv_index.h"

#if !DI_LMDB

#include "core/err.h"

di_status kv_index_open(const char *path, uint64_t max_bytes, kv_index **out, bool *fresh, di_error *err)
{
    (void)max_bytes;
    (void)out;
    (void)fresh;
    return err_set(err, DI_E_UNSUPPORTED, "%s: this build has no disk tier; build with LMDB (Debian: liblmdb-dev)", path);
}

/* Nobody has an index to call the rest with. */
kv_entry kv_entry_of(const kv_listed *listed, uint64_t segment) { return (kv_entry){.segment = segment, .bytes = listed->bytes}; }
void kv_index_close(kv_index *index, bool keep) { (void)index, (void)keep; }
uint64_t kv_index_bytes(const kv_index *index) { return (void)index, 0; }
bool kv_index_look(kv_index *index) { return (void)index, false; }
void kv_index_look_end(kv_index *index) { (void)index; }
bool kv_index_find(kv_index *index, const kv_name *name, kv_entry *out) { return (void)index, (void)name, (void)out, false; }
bool kv_index_begin(kv_index *index) { return (void)index, false; }
bool kv_index_commit(kv_index *index) { return (void)index, false; }
void kv_index_abort(kv_index *index) { (void)index; }
bool kv_index_get(kv_index *index, const kv_name *name, kv_entry *out) { return (void)index, (void)name, (void)out, false; }

void kv_index_put(kv_index *index, const kv_name *name, const kv_entry *entry, const kv_entry *before)
{
    (void)index, (void)name, (void)entry, (void)before;
}

void kv_index_remove(kv_index *index, const kv_name *name, const kv_entry *entry) { (void)index, (void)name, (void)entry; }

void kv_index_fill(kv_index *index, struct kv_ranked *items, size_t n) { (void)index, (void)items, (void)n; }

bool kv_index_next(kv_index *index, bool start, kv_name *name, kv_entry *entry)
{
    return (void)index, (void)start, (void)name, (void)entry, false;
}

bool kv_index_oldest(kv_index *index, const uint8_t *tenant, uint64_t *sequence, kv_name *name, kv_entry *entry)
{
    return (void)index, (void)tenant, (void)sequence, (void)name, (void)entry, false;
}

bool kv_index_get_scanned(kv_index *index, uint64_t segment, kv_scanned *out) { return (void)index, (void)segment, (void)out, false; }
void kv_index_put_scanned(kv_index *index, uint64_t segment, const kv_scanned *scanned) { (void)index, (void)segment, (void)scanned; }
void kv_index_clear_scanned(kv_index *index) { (void)index; }

#endif
