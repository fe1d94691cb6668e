/* bench_kv.c - the disk tier of the KV cache, one JSON line a figure.
 *
 *   bench_kv [--json] [MEGABYTES [RECORDS]]
 *
 * write    units of the released size (113,920 bytes) put one behind the other, acknowledged by the disk
 * restore  the same units read in the order of writing, 32 in flight, against fio's sequential read of the same files: same block size
 *          (a record with its padding), queue depth and O_DIRECT; five turns each, interleaved, medians
 * start    opening a directory that lists RECORDS such units (877,808: 100 GB): from the catalogues, and from the index that a
 *          clean close leaves. The files are sparse: catalogues and trailers are real, records are holes
 *
 * The directory is made in TMPDIR, or where temporary files go, and removed at the end. */
#include "kv/kv_disk_int.h"

#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UNIT_BYTES = 128 * 890, TURNS = 5, DEPTH = 32, SEGMENT_BYTES = 64 << 20, BIG_SEGMENT_BYTES = 256 << 20 };

typedef struct bench { /* one store and what runs in it */
    char path[256];
    kv_disk *disk;
    sem_t news;
    int64_t n;      /* units */
    int64_t next;   /* to be begun */
    int64_t n_over; /* done */
    int64_t n_bad;
} bench;

_Noreturn static void fail(const char *what)
{
    fprintf(stderr, "bench_kv: %s\n", what);
    exit(1);
}

static void *need(void *p)
{
    if (p == NULL) {
        fail("out of memory");
    }
    return p;
}

static void report(const char *name, const char *metric, double value, const char *unit, const char *baseline, double ratio)
{
    printf("{\"bench\":\"kv\",\"case\":\"%s\",\"metric\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",", name, metric, value, unit);
    if (baseline != NULL) {
        printf("\"baseline\":\"%s\",\"ratio\":%.3f}\n", baseline, ratio);
    } else {
        printf("\"baseline\":null,\"ratio\":null}\n");
    }
    fflush(stdout);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, TURNS, sizeof *values, by_value);
    return values[TURNS / 2];
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st, (void)type, (void)walk;
    return remove(path);
}

static void wake(void *user)
{
    sem_post(user);
}

static void open_store(bench *b, int64_t segment_bytes, int64_t max_bytes)
{
    const kv_disk_options o = {.path = b->path,
                               .max_bytes = max_bytes,
                               .segment_bytes = segment_bytes,
                               .queue_depth = DEPTH,
                               .wake = wake,
                               .wake_user = &b->news};
    di_error err;
    if (kv_disk_open(&o, &b->disk, &err) != DI_OK) {
        fail(err.message);
    }
}

static void key_of(int64_t i, uint8_t out[KV_KEY_BYTES])
{
    if (digest_sha256(&i, sizeof i, out, NULL) != DI_OK) {
        fail("no SHA-256");
    }
}

/* ---- write ---- */

typedef struct writing {
    kv_disk_put put;
    bench *owner;
    uint8_t *payload;
} writing;

static void put_next(writing *w);

static void written(kv_disk_op *op)
{
    writing *const w = op->user;
    w->owner->n_over++;
    w->owner->n_bad += w->put.verdict == KV_DISK_STORED ? 0 : 1;
    put_next(w);
}

static void put_next(writing *w)
{
    bench *const b = w->owner;
    if (b->next < b->n) {
        w->put = (kv_disk_put){.op = {.done = written, .user = w}, .payload = w->payload, .bytes = UNIT_BYTES};
        key_of(b->next++, w->put.key);
        if (!kv_disk_put_start(b->disk, &w->put)) {
            fail("a put was refused");
        }
    }
}

static void until_over(bench *b)
{
    while (b->n_over < b->n) {
        sem_wait(&b->news);
        kv_disk_poll(b->disk);
    }
}

static void bench_write(bench *b)
{
    writing *const writings = need(calloc(DEPTH, sizeof *writings));
    b->next = b->n_over = b->n_bad = 0;
    const int64_t start = clock_now_ns();
    for (int i = 0; i < DEPTH; i++) {
        writings[i] = (writing){.owner = b, .payload = need(malloc(UNIT_BYTES))};
        memset(writings[i].payload, i, UNIT_BYTES);
        put_next(&writings[i]);
    }
    until_over(b);
    const double seconds = (double)(clock_now_ns() - start) / 1e9;
    for (int i = 0; i < DEPTH; i++) {
        free(writings[i].payload);
    }
    free(writings);
    kv_disk_counters c;
    kv_disk_get_counters(b->disk, &c);
    if (b->n_bad != 0) {
        fail("puts failed");
    }
    report("write", "throughput", (double)(b->n * UNIT_BYTES) / seconds / 1e6, "MB/s", NULL, 0);
    report("write", "amplification", (double)c.written_bytes / (double)c.stored_bytes, "ratio", NULL, 0);
}

/* ---- restore ---- */

typedef struct reading {
    kv_disk_read read;
    bench *owner;
    const kv_disk_found *found;
    const uint8_t (*keys)[KV_KEY_BYTES];
    uint8_t *out;
} reading;

static void read_next(reading *r);

static void was_read(kv_disk_op *op)
{
    reading *const r = op->user;
    r->owner->n_over++;
    r->owner->n_bad += op->status == DI_OK ? 0 : 1;
    read_next(r);
}

static void read_next(reading *r)
{
    bench *const b = r->owner;
    if (b->next < b->n) {
        const int64_t i = b->next++;
        r->read = (kv_disk_read){.op = {.done = was_read, .user = r}, .place = r->found[i].unit, .out = r->out};
        memcpy(r->read.key, r->keys[i], sizeof r->read.key);
        kv_disk_read_start(b->disk, &r->read);
    }
}

static void found_all(kv_disk_op *op)
{
    *(bool *)op->user = true;
}

/* MB/s of payload. Twice the depth is handed over, so that the next read waits in the store. */
static double restore_once(bench *b, const kv_disk_found *found, const uint8_t (*keys)[KV_KEY_BYTES], reading *readings)
{
    b->next = b->n_over = b->n_bad = 0;
    const int64_t start = clock_now_ns();
    for (int i = 0; i < 2 * DEPTH; i++) {
        readings[i].owner = b;
        readings[i].found = found;
        readings[i].keys = keys;
        read_next(&readings[i]);
    }
    until_over(b);
    if (b->n_bad != 0) {
        fail("reads failed");
    }
    return (double)(b->n * UNIT_BYTES) / ((double)(clock_now_ns() - start) / 1e9) / 1e6;
}

/* MB/s of fio over the files of the store; 0: fio is not there. */
static double fio_once(const bench *b)
{
    char command[8192];
    char line[4096];
    size_t at = (size_t)snprintf(command, sizeof command,
                                 "fio --name=restore --rw=read --direct=1 --ioengine=io_uring --iodepth=%d --bs=%zu --readonly "
                                 "--file_service_type=sequential --output-format=terse --terse-version=3 --filename=",
                                 DEPTH, (size_t)kv_record_bytes(UNIT_BYTES));
    for (const kv_segment *s = kv_table_next(&b->disk->table, NULL); s != NULL; s = kv_table_next(&b->disk->table, s)) {
        at += (size_t)snprintf(command + at, sizeof command - at, "%s%s/%s", command[at - 1] == '=' ? "" : ":", b->path, s->name);
        if (at + 512 > sizeof command) {
            break;
        }
    }
    snprintf(command + at, sizeof command - at, " 2>/dev/null");
    FILE *const pipe = popen(command, "re");
    double kib = 0;
    if (pipe != NULL && fgets(line, sizeof line, pipe) != NULL) {
        const char *field = line;
        for (int i = 0; i < 6 && field != NULL; i++) {
            field = strchr(field, ';');
            field = field != NULL ? field + 1 : NULL;
        }
        kib = field != NULL ? strtod(field, NULL) : 0;
    }
    if (pipe != NULL) {
        pclose(pipe);
    }
    return kib * 1024 / 1e6;
}

static void bench_restore(bench *b)
{
    uint8_t(*const keys)[KV_KEY_BYTES] = need(calloc((size_t)b->n, sizeof *keys));
    kv_disk_found *const found = need(calloc((size_t)b->n, sizeof *found));
    reading *const readings = need(calloc(2 * DEPTH, sizeof *readings));
    double ours[TURNS];
    double theirs[TURNS];
    bool over = false;
    for (int64_t i = 0; i < b->n; i++) {
        key_of(i, keys[i]);
    }
    kv_disk_find find = {.op = {.done = found_all, .user = &over}, .keys = (const uint8_t(*)[KV_KEY_BYTES])keys, .n = b->n, .found = found};
    kv_disk_find_start(b->disk, &find);
    while (!over) {
        sem_wait(&b->news);
        kv_disk_poll(b->disk);
    }
    if (find.n_units != b->n) {
        fail("not every unit was found");
    }
    for (int i = 0; i < 2 * DEPTH; i++) {
        readings[i].out = need(malloc(UNIT_BYTES));
    }
    for (int i = 0; i < TURNS; i++) {
        ours[i] = restore_once(b, found, (const uint8_t(*)[KV_KEY_BYTES])keys, readings);
        theirs[i] = fio_once(b);
    }
    const double rate = median(ours);
    const double fio = median(theirs);
    report("restore", "throughput", rate, "MB/s", fio > 0 ? "fio" : NULL, fio > 0 ? rate / fio : 0);
    if (fio <= 0) {
        fprintf(stderr, "bench_kv: fio is not there: no baseline (Debian: fio)\n");
    } else {
        report("restore", "fio", fio, "MB/s", NULL, 0);
    }
    kv_disk_release(b->disk, &find);
    for (int i = 0; i < 2 * DEPTH; i++) {
        free(readings[i].out);
    }
    free(readings);
    free(found);
    free(keys);
}

/* ---- start ---- */

/* A full segment whose records are holes. */
static void make_segment(const bench *b, uint64_t born, int64_t first, size_t n)
{
    const uint64_t nonce = born * 0x9E3779B97F4A7C15u;
    char name[KV_SEGMENT_NAME_BYTES];
    char path[sizeof b->path + sizeof name + 1];
    kv_listed *const listed = need(calloc(n, sizeof *listed));
    kv_where where = {.segment = born, .nonce = nonce, .offset = n * kv_record_bytes(UNIT_BYTES), .limit = UINT64_MAX};
    for (size_t i = 0; i < n; i++) {
        key_of(first + (int64_t)i, listed[i].key);
        listed[i].sequence = (uint64_t)(first + (int64_t)i + 1) << 8;
        listed[i].block = (uint32_t)(i * kv_record_bytes(UNIT_BYTES) / KV_BLOCK);
        listed[i].bytes = UNIT_BYTES;
        listed[i].tenant[0] = (uint8_t)(i % 16);
    }
    kv_head head = kv_head_at(&where, KV_REC_CATALOGUE);
    head.bytes = n * sizeof *listed;
    kv_head_seal(&head, listed);
    kv_segment_name(born, nonce, name);
    snprintf(path, sizeof path, "%s/%s", b->path, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    const uint64_t end = where.offset + kv_record_bytes(head.bytes);
    bool good = fd >= 0 && ftruncate(fd, (off_t)(end + KV_BLOCK)) == 0 &&
                pwrite(fd, &head, sizeof head, (off_t)where.offset) == (ssize_t)sizeof head &&
                pwrite(fd, listed, head.bytes, (off_t)(where.offset + sizeof head)) == (ssize_t)head.bytes;
    where.offset = end;
    head = kv_head_at(&where, KV_REC_TRAILER);
    head.aux = end - kv_record_bytes(n * sizeof *listed);
    kv_head_seal(&head, "");
    good = good && pwrite(fd, &head, sizeof head, (off_t)end) == (ssize_t)sizeof head;
    if (!good) {
        fail("a file could not be written");
    }
    close(fd);
    free(listed);
}

static void bench_start(bench *b, int64_t n_records)
{
    const int64_t per_segment = BIG_SEGMENT_BYTES / (int64_t)kv_record_bytes(UNIT_BYTES) - 2;
    uint64_t born = 1;
    for (int64_t first = 0; first < n_records; first += per_segment) {
        const int64_t n = n_records - first < per_segment ? n_records - first : per_segment;
        make_segment(b, born++, first, (size_t)n);
    }
    static const char *const cases[] = {"rebuild", "index"};
    for (size_t i = 0; i < 2; i++) {
        kv_disk_counters c;
        open_store(b, BIG_SEGMENT_BYTES, 2 * n_records * UNIT_BYTES + ((int64_t)16 << 30));
        kv_disk_get_counters(b->disk, &c);
        if (c.records[KV_DISK_UNIT] != n_records || c.rebuilt != (i == 0)) {
            fail("not every record was found");
        }
        report("start", cases[i], (double)c.open_ns / 1e9, "s", NULL, 0);
        kv_disk_close(b->disk);
    }
}

static void make_directory(bench *b)
{
    const char *const folder = getenv("TMPDIR");
    snprintf(b->path, sizeof b->path, "%s/bench-kv-XXXXXX", folder != NULL ? folder : P_tmpdir);
    if (mkdtemp(b->path) == NULL) {
        fail("no directory can be made");
    }
}

int main(int argc, char **argv)
{
    bench b = {.disk = NULL};
    const int first = argc > 1 && strcmp(argv[1], "--json") == 0 ? 2 : 1;
    const int64_t megabytes = argc > first ? strtoll(argv[first], NULL, 10) : 512;
    const int64_t n_records = argc > first + 1 ? strtoll(argv[first + 1], NULL, 10) : 877808;
    if (megabytes < 64 || megabytes > 1 << 20 || n_records < 1 || n_records > 1 << 26) {
        fail("usage: bench_kv [--json] [MEGABYTES [RECORDS]]");
    }
    sem_init(&b.news, 0, 0);
    make_directory(&b);
    b.n = megabytes * 1000000 / UNIT_BYTES;
    open_store(&b, SEGMENT_BYTES, 4 * megabytes * 1000000 + 16 * (int64_t)SEGMENT_BYTES);
    bench_write(&b);
    kv_disk_close(b.disk); /* so that fio reads files of their real size */
    open_store(&b, SEGMENT_BYTES, 4 * megabytes * 1000000 + 16 * (int64_t)SEGMENT_BYTES);
    bench_restore(&b);
    kv_disk_close(b.disk);
    (void)nftw(b.path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    make_directory(&b);
    bench_start(&b, n_records);
    (void)nftw(b.path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    sem_destroy(&b.news);
    return 0;
}
