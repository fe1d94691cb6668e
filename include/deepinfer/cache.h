/* deepinfer/cache.h - the directory in which the KV cache is kept on disk, looked at and looked after from outside.
 *
 * Reading (di_cache_read_stats, di_cache_verify) disturbs nobody and works while a server uses the directory. What changes it
 * (di_cache_compact, di_cache_purge) needs the directory for itself, unless all that use it share it and `shared` says so here as well;
 * then a purge reaches the other processes within a second.
 *
 * Every function waits for the disk. Any thread. */
#ifndef DEEPINFER_CACHE_H
#define DEEPINFER_CACHE_H

#include <deepinfer/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct di_cache_dir_options {
    bool shared; /* other processes may have the directory open, sharing it */
} di_cache_dir_options;

typedef struct di_cache_dir_stats {
    int64_t bytes;        /* of the directory, as a budget counts them */
    int64_t segments;     /* files with records */
    int64_t units;        /* records of 128 tokens that can be found */
    int64_t snapshots;    /* records of states */
    int64_t record_bytes; /* of both, without heads and padding */
    int64_t pinned_bytes;
    int64_t expired;      /* records whose time is over, not counted above */
} di_cache_dir_stats;

typedef struct di_cache_report {
    int64_t segments;
    int64_t segments_damaged; /* that can't be read, or in part */
    int64_t records;
    int64_t record_bytes;
    int64_t records_damaged;  /* misses for whoever asks for them */
} di_cache_report;

#define DI_CACHE_TENANT_ID_BYTES 33 /* 32 hexadecimal digits, and a NUL */

typedef struct di_cache_tenant { /* what one tenant has in a folder */
    char id[DI_CACHE_TENANT_ID_BYTES]; /* a digest of its salt, which itself is not on the disk */
    int64_t bytes;         /* as its quota counts them */
    int64_t units;
    int64_t snapshots;
    int64_t pinned_bytes;
} di_cache_tenant;

/* The id of the tenant with this salt [n]. Errors: DI_E_INTERNAL (no SHA-256). */
DI_API di_status di_cache_tenant_id(const void *salt, size_t n, char out[DI_CACHE_TENANT_ID_BYTES], di_error *err);

/* Every tenant that has something in the directory, those with the most bytes first. At most n are written to `out`; *n_all = how many
 * there are. Errors: as below. */
DI_API di_status di_cache_read_tenants(const char *dir, di_cache_tenant *out, size_t n, size_t *n_all, di_error *err);

/* Errors: DI_E_IO (no such directory, or it can't be read), DI_E_MEMORY, DI_E_UNSUPPORTED (built without the disk tier). */
DI_API di_status di_cache_read_stats(const char *dir, di_cache_dir_stats *out, di_error *err);

/* Reads every record and checks it. Errors: the same. Damage is no error. */
DI_API di_status di_cache_verify(const char *dir, di_cache_report *out, di_error *err);

/* Expired and superseded records leave the disk; *freed = bytes. options == NULL: all zero. Errors: those above and DI_E_STATE (another
 * process has the directory). */
DI_API di_status di_cache_compact(const char *dir, const di_cache_dir_options *options, int64_t *freed, di_error *err);

/* Removes every record of the tenant with this salt, or of all tenants with NULL, *n = how many could be found. They stay away after any
 * crash. Errors: the same. */
DI_API di_status di_cache_purge(const char *dir, const di_cache_dir_options *options, const char *salt, int64_t *n, di_error *err);

#ifdef __cplusplus
}
#endif

#endif
