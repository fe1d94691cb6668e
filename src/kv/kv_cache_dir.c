/* kv_cache_dir.c - the public functions of <deepinfer/cache.h>: a store is opened for one job, and its answer waited for. */
#include "kv/kv_tenant.h"

#include "core/err.h"

#include <deepinfer/cache.h>

#include <errno.h>
#include <semaphore.h>
#include <string.h>
#include <sys/stat.h>

#define GIB ((int64_t)1 << 30)

/* The budget only has to be above what is there: nothing is put here. Segments of 256 MiB follow from it, so records of any size that a
 * server writes can be moved. */
enum { BUDGET_TIB = 1 };

static void wake(void *user)
{
    sem_post(user);
}

static void set_flag(kv_disk_op *op)
{
    *(bool *)op->user = true;
}

static di_status open_dir(const char *dir, bool read_only, bool shared, sem_t *news, kv_disk **out, di_error *err)
{
    struct stat st;
    if (stat(dir, &st) != 0) {
        return err_set_errno(err, errno, "%s", dir);
    }
    if (!S_ISDIR(st.st_mode)) {
        return err_set_errno(err, ENOTDIR, "%s", dir);
    }
    const kv_disk_options options = {.path = dir,
                                     .read_only = read_only,
                                     .shared = shared,
                                     .max_bytes = BUDGET_TIB * 1024 * GIB,
                                     .wake = wake,
                                     .wake_user = news};
    return kv_disk_open(&options, out, err);
}

di_status di_cache_read_stats(const char *dir, di_cache_dir_stats *out, di_error *err)
{
    sem_t news;
    kv_disk *disk;
    sem_init(&news, 0, 0);
    const di_status status = open_dir(dir, true, false, &news, &disk, err);
    if (status == DI_OK) {
        kv_disk_counters c;
        kv_disk_get_counters(disk, &c);
        *out = (di_cache_dir_stats){.bytes = c.bytes,
                                .segments = c.segments,
                                .units = c.records[KV_DISK_UNIT],
                                .snapshots = c.records[KV_DISK_SNAPSHOT],
                                .record_bytes = c.live_bytes,
                                .pinned_bytes = c.pinned_bytes,
                                .expired = c.expired};
        kv_disk_close(disk);
    }
    sem_destroy(&news);
    return status;
}

di_status di_cache_read_tenants(const char *dir, di_cache_tenant *out, size_t n, size_t *n_all, di_error *err)
{
    sem_t news;
    kv_disk *disk;
    sem_init(&news, 0, 0);
    const di_status status = open_dir(dir, true, false, &news, &disk, err);
    if (status == DI_OK) {
        const kv_lower lower = kv_lower_of_disk(disk);
        *n_all = kv_tenants_list(&lower, out, n);
        kv_disk_close(disk);
    }
    sem_destroy(&news);
    return status;
}

di_status di_cache_verify(const char *dir, di_cache_report *out, di_error *err)
{
    sem_t news;
    kv_disk *disk;
    kv_disk_report report;
    sem_init(&news, 0, 0);
    di_status status = open_dir(dir, true, false, &news, &disk, err);
    if (status == DI_OK) {
        status = kv_disk_verify(disk, &report, err);
        kv_disk_close(disk);
    }
    if (status == DI_OK) {
        *out = (di_cache_report){.segments = report.segments,
                                 .segments_damaged = report.segments_damaged,
                                 .records = report.records,
                                 .record_bytes = report.bytes,
                                 .records_damaged = report.records_damaged};
    }
    sem_destroy(&news);
    return status;
}

static di_status take_care(const char *dir, const di_cache_dir_options *options, kv_disk_care_kind kind, const kv_tenant *tenant,
                           int64_t *n, di_error *err)
{
    sem_t news;
    kv_disk *disk;
    bool over = false;
    sem_init(&news, 0, 0);
    di_status status = open_dir(dir, false, options != NULL && options->shared, &news, &disk, err);
    if (status == DI_OK) {
        kv_disk_care care = {.op = {.done = set_flag, .user = &over}, .kind = kind, .tenant = tenant};
        kv_disk_care_start(disk, &care);
        while (!over) {
            sem_wait(&news);
            kv_disk_poll(disk);
        }
        kv_disk_close(disk);
        *n = care.n_done;
        status = care.op.status == DI_OK ? DI_OK : err_set(err, care.op.status, "%s: it could not be written", dir);
    }
    sem_destroy(&news);
    return status;
}

di_status di_cache_compact(const char *dir, const di_cache_dir_options *options, int64_t *freed, di_error *err)
{
    return take_care(dir, options, KV_DISK_COMPACT, NULL, freed, err);
}

di_status di_cache_purge(const char *dir, const di_cache_dir_options *options, const char *salt, int64_t *n, di_error *err)
{
    kv_tenant tenant;
    if (salt != NULL && !kv_tenant_of((kv_salt){.data = salt, .size = strlen(salt)}, &tenant)) {
        return err_set(err, DI_E_INTERNAL, "SHA-256 is not available in the installed OpenSSL");
    }
    return take_care(dir, options, KV_DISK_PURGE, salt != NULL ? &tenant : NULL, n, err);
}
