/* kv_lower.h - what a tier below the memory can be asked: the operations of kv_disk.h as a table, so that a tier that lies, dawdles or
 * forgets is an implementation like any other (tests), and so that there may be several, one under the other.
 *
 * The contract of each member is that of the function of kv_disk.h with the same name. */
#ifndef KV_KV_LOWER_H
#define KV_KV_LOWER_H

#include "kv/kv_disk.h"

typedef struct kv_lower_table {
    void (*find)(void *store, kv_disk_find *find);
    void (*release)(void *store, kv_disk_find *find);
    void (*read)(void *store, kv_disk_read *read);
    bool (*put)(void *store, kv_disk_put *put);
    void (*care)(void *store, kv_disk_care *care);
    int (*poll)(void *store);
    void (*counters)(const void *store, kv_disk_counters *out);
    size_t (*tenants)(const void *store, kv_tenant_use *out, size_t capacity); /* any thread */
    void (*close)(void *store);
} kv_lower_table;

typedef struct kv_lower {
    const kv_lower_table *table;
    void *store;
} kv_lower;

/* A kv_disk as a lower tier, which takes it over. */
kv_lower kv_lower_of_disk(kv_disk *disk);

#endif
