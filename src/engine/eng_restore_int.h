/* eng_restore_int.h - inside of a restore (eng_tier.h): what eng_restore.c finds and reads, and eng_restore_import.c makes units of. */
#ifndef ENGINE_ENG_RESTORE_INT_H
#define ENGINE_ENG_RESTORE_INT_H

#include "engine/eng_cache.h"

typedef struct eng_piece { /* one record that is wanted */
    kv_disk_read read;
    eng_restore *restore;
    kv_ram_record *record; /* held; NULL = not begun */
    kv_disk_place place;   /* in a lower tier; bytes == 0: nowhere */
    eng_source source;
    bool there; /* the record is complete */
} eng_piece;

struct eng_restore { /* owner: who started it, then itself once abandoned */
    eng_tier *tier;
    eng_restore *next; /* in tier->restores */
    eng_restore *previous;
    bool abandoned;
    bool over;         /* nothing more comes */
    bool finding;      /* a find is with a lower tier */
    int32_t n_asked;   /* lower tiers that were asked */
    int64_t n_pending; /* reads */
    eng_text text;
    int64_t n_units;      /* whole ones that may match */
    int64_t n_have;       /* on the device when it began */
    int64_t device_start; /* where the request would start with them */
    int64_t n_chain;      /* units that are known to be somewhere */
    int64_t target;       /* units to load up to */
    int64_t snapshot_at;  /* units; 0 = without */
    int64_t planned_bytes[ENG_SOURCES];
    int64_t began_ns;
    int64_t loading_ns; /* when the reads began; 0 = not */
    int64_t deadline_ns;
    eng_piece snapshot;
    eng_piece *units;                    /* [n_units] */
    int32_t *ids;                    /* [n_units, KV_UNIT_TOKENS] */
    uint8_t (*keys)[KV_KEY_BYTES];   /* [n_units] */
    kv_disk_find finds[ENG_LOWERS];
    kv_disk_found *found[ENG_LOWERS]; /* [n_units] */
    bool leased[ENG_LOWERS];
    bool purging;     /* the lower tiers are not asked */
    int64_t n_purges; /* of the tier, when it began */
};

#endif
