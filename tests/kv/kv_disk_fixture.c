/* kv_disk_fixture.c - see kv_disk_fixture.h. */
#include "kv_disk_fixture.h"

#include "core/core.h"

#include <dirent.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

dfix_dir dfix_make(void)
{
    dfix_dir d;
    const char *folder = getenv("TMPDIR");
    if (folder == NULL) { /* memory where there is some to be had: a disk may take 100 ms for a sync */
        folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : P_tmpdir;
    }
    snprintf(d.path, sizeof d.path, "%s/di-kv-XXXXXX", folder);
    assert_non_null(mkdtemp(d.path));
    return d;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st, (void)type, (void)walk;
    return remove(path);
}

void dfix_remove(const dfix_dir *d)
{
    (void)nftw(d->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

kv_disk_options dfix_options(const dfix_dir *d)
{
    return (kv_disk_options){.path = d->path, .max_bytes = 64 << 20, .segment_bytes = 1 << 20};
}

kv_disk *dfix_open(const kv_disk_options *options)
{
    kv_disk *disk = NULL;
    di_error err;
    kv_disk_options o = *options;
    o.wake = o.wake != NULL ? o.wake : dfix_wake;
    const di_status status = kv_disk_open(&o, &disk, &err);
    if (status == DI_E_UNSUPPORTED) {
        skip(); /* a build without LMDB */
    } else if (status != DI_OK) {
        fail_msg("%s", err.message);
    }
    return disk;
}

void dfix_key(uint64_t i, uint8_t out[KV_KEY_BYTES])
{
    assert_int_equal(digest_sha256(&i, sizeof i, out, NULL), DI_OK);
}

void dfix_fill(uint64_t i, kv_disk_kind kind, uint8_t *out, size_t size)
{
    uint64_t x = (i * 2 + (uint64_t)kind + 1) * 0x9E3779B97F4A7C15u ^ size;
    for (size_t k = 0; k < size; k++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out[k] = (uint8_t)(x >> 32);
    }
}

void dfix_set(kv_disk_op *op)
{
    *(bool *)op->user = true;
}

/* Of all disks of a test together: who is woken for another one polls in vain. */
static pthread_mutex_t news_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news_came = PTHREAD_COND_INITIALIZER;
static bool news;

void dfix_wake(void *user)
{
    (void)user;
    pthread_mutex_lock(&news_lock);
    news = true;
    pthread_cond_signal(&news_came);
    pthread_mutex_unlock(&news_lock);
}

/* To spin instead would cost a time slice of everybody else's on a busy machine. */
void dfix_pause(void)
{
    struct timespec end;
    int late = 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += 5000000;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&news_lock);
    while (!news && late == 0) {
        late = pthread_cond_timedwait(&news_came, &news_lock, &end);
    }
    news = false;
    pthread_mutex_unlock(&news_lock);
}

void dfix_wait(kv_disk *disk, const bool *flag)
{
    const int64_t end = clock_now_ns() + (int64_t)60 * 1000000000;
    while (!*flag) {
        if (kv_disk_poll(disk) == 0) {
            dfix_pause();
        }
        if (clock_now_ns() > end) {
            fail_msg("an operation is not over after a minute");
        }
    }
}

kv_disk_verdict dfix_put_as(kv_disk *disk, uint64_t i, const kv_disk_put *like)
{
    kv_disk_put put = *like;
    bool over = false;
    uint8_t *const payload = malloc((size_t)put.bytes);
    dfix_fill(i, put.kind, payload, (size_t)put.bytes);
    dfix_key(i, put.key);
    put.op = (kv_disk_op){.done = dfix_set, .user = &over};
    put.payload = payload;
    put.tag = (uint32_t)i;
    assert_true(kv_disk_put_start(disk, &put));
    dfix_wait(disk, &over);
    free(payload);
    return put.verdict;
}

kv_disk_verdict dfix_put(kv_disk *disk, uint64_t i, kv_disk_kind kind, size_t size)
{
    return dfix_put_as(disk, i, &(kv_disk_put){.kind = kind, .bytes = (int64_t)size});
}

static di_status read_place(kv_disk *disk, uint64_t i, kv_disk_kind kind, const kv_disk_place *place)
{
    const size_t size = (size_t)place->bytes;
    bool over = false;
    uint8_t *const got = malloc(size);
    uint8_t *const want = malloc(size);
    kv_disk_read read = {.op = {.done = dfix_set, .user = &over}, .place = *place, .kind = kind, .out = got};
    dfix_key(i, read.key);
    kv_disk_read_start(disk, &read);
    dfix_wait(disk, &over);
    if (read.op.status == DI_OK) {
        dfix_fill(i, kind, want, size);
        assert_memory_equal(got, want, size);
        assert_int_equal(place->tag, (uint32_t)i);
    }
    free(got);
    free(want);
    return read.op.status;
}

di_status dfix_get(kv_disk *disk, uint64_t i, kv_disk_kind kind, size_t *size)
{
    uint8_t key[1][KV_KEY_BYTES];
    kv_disk_found found;
    bool over = false;
    kv_disk_find find = {
        .op = {.done = dfix_set, .user = &over}, .keys = key, .n = 1, .first = kind == KV_DISK_UNIT ? 0 : 1, .found = &found};
    dfix_key(i, key[0]);
    kv_disk_find_start(disk, &find);
    dfix_wait(disk, &over);
    assert_int_equal(find.op.status, DI_OK);
    const kv_disk_place place = find.n_units == 0 ? (kv_disk_place){0} : kind == KV_DISK_UNIT ? found.unit : found.snapshot;
    di_status status = DI_E_STATE;
    if (place.bytes != 0) {
        status = read_place(disk, i, kind, &place);
    }
    if (size != NULL) {
        *size = (size_t)place.bytes;
    }
    kv_disk_release(disk, &find);
    return status;
}

int64_t dfix_care(kv_disk *disk, kv_disk_care_kind kind, const kv_tenant *tenant)
{
    bool over = false;
    kv_disk_care care = {.op = {.done = dfix_set, .user = &over}, .kind = kind, .tenant = tenant};
    kv_disk_care_start(disk, &care);
    dfix_wait(disk, &over);
    assert_int_equal(care.op.status, DI_OK);
    return care.n_done;
}

kv_disk_counters dfix_counters(const kv_disk *disk)
{
    kv_disk_counters c;
    kv_disk_get_counters(disk, &c);
    return c;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

bool dfix_segment(const dfix_dir *d, int n, char out[DFIX_PATH_BYTES + 64])
{
    static char names[1024][64];
    size_t count = 0;
    DIR *const dir = opendir(d->path);
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        const size_t length = strlen(e->d_name);
        if (length < 64 && length > 4 && strcmp(e->d_name + length - 4, ".kvs") == 0 && count < 1024) {
            memcpy(names[count++], e->d_name, length + 1);
        }
    }
    closedir(dir);
    qsort(names, count, sizeof names[0], by_text);
    if (n < 0 || (size_t)n >= count) {
        return false;
    }
    snprintf(out, DFIX_PATH_BYTES + 64, "%s/%s", d->path, names[n]);
    return true;
}

int dfix_n_segments(const dfix_dir *d)
{
    char path[DFIX_PATH_BYTES + 64];
    int n = 0;
    while (dfix_segment(d, n, path)) {
        n++;
    }
    return n;
}

void dfix_drop_index(const dfix_dir *d)
{
    char path[DFIX_PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/index-00/sum", d->path);
    (void)unlink(path);
}
