/* kv_crash.c - see kv_crash.h. A child is the test's own executable, started anew with its part as arguments; what it has to say it writes
 * to a pipe in numbers. How many acknowledgements are waited for, and how long after the last one, is drawn from a fixed seed; where exactly
 * that finds the child is up to the machine. */
#include "kv_crash.h"

#include "kv_disk_fixture.h"

#include "core/core.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum {
    IN_FLIGHT = 4,
    PUTS = 256,         /* of a child, which is killed long before it has finished them, as a rule */
    MAX_ACKS = 24,      /* that are waited for */
    LONGEST_LINGER_NS = 2000000,
    MAX_RECORDS = 8192, /* of a directory */
    SHARED_RECORDS = 200,
    REQUESTS = 1000,
    LIMIT_S = 120       /* a child that nobody kills ends by itself */
};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static size_t size_of(uint64_t i)
{
    return 500 + i * 7919 % 9000;
}

/* ---- children ---- */

typedef struct writing { /* one put of a child */
    kv_disk_put put;
    uint64_t i;
    uint8_t payload[10000];
    bool free;
} writing;

static void say(uint64_t value)
{
    if (write(STDOUT_FILENO, &value, sizeof value) != (ssize_t)sizeof value) {
        _exit(3); /* the parent is gone */
    }
}

static void written(kv_disk_op *op)
{
    writing *const w = op->user;
    if (w->put.verdict == KV_DISK_STORED) {
        say(w->i);
    }
    w->free = true;
}

static void put_next(kv_disk *disk, writing *w, uint64_t i)
{
    w->i = i;
    w->free = false;
    w->put = (kv_disk_put){
        .op = {.done = written, .user = w}, .tag = (uint32_t)i, .payload = w->payload, .bytes = (int64_t)size_of(i)};
    dfix_key(i, w->put.key);
    dfix_fill(i, KV_DISK_UNIT, w->payload, size_of(i));
    if (!kv_disk_put_start(disk, &w->put)) {
        w->free = true;
    }
}

static kv_disk_options crash_options(const char *path)
{
    return (kv_disk_options){.path = path, .max_bytes = 512 << 20, .segment_bytes = 1 << 20, .no_sync = true, .wake = dfix_wake};
}

/* Puts records from `first` on, until it is killed. */
static int run_writer(const char *path, uint64_t first)
{
    static writing writings[IN_FLIGHT];
    const kv_disk_options o = crash_options(path);
    const uint64_t end = first + PUTS;
    kv_disk *disk;
    alarm(LIMIT_S);
    if (kv_disk_open(&o, &disk, NULL) != DI_OK) {
        return 2;
    }
    for (int k = 0; k < IN_FLIGHT; k++) {
        writings[k].free = true;
    }
    for (;;) {
        for (int k = 0; k < IN_FLIGHT && first < end; k++) {
            if (writings[k].free) {
                put_next(disk, &writings[k], first++);
            }
        }
        if (kv_disk_poll(disk) == 0) {
            dfix_pause();
        }
    }
}

static kv_disk_options shared_options(const char *path)
{
    return (kv_disk_options){.path = path, .max_bytes = 64 << 20, .segment_bytes = 1 << 20, .no_sync = true, .shared = true};
}

/* Asks for random records, and puts those of its own half that are missing. Says its number of hits on the other half: after each hundred
 * requests, and last after at least REQUESTS and one such hit. With `for_ever` it goes on until it is killed. */
static int run_sharer(const char *path, uint64_t half, bool for_ever)
{
    const kv_disk_options o = shared_options(path);
    kv_disk *const disk = dfix_open(&o);
    const int64_t end = clock_now_ns() + (int64_t)LIMIT_S * 1000000000;
    uint64_t state = half + 1;
    uint64_t hits = 0;
    for (int n = 1; n <= REQUESTS || hits == 0 || for_ever; n++) {
        const uint64_t i = next_random(&state) % SHARED_RECORDS;
        const di_status status = dfix_get(disk, i, KV_DISK_UNIT, NULL);
        if (status == DI_OK) {
            hits += i % 2 != half ? 1 : 0;
        } else if (i % 2 == half) {
            (void)dfix_put(disk, i, KV_DISK_UNIT, size_of(i));
        }
        if (n % 100 == 0) {
            say(hits);
        }
        if (clock_now_ns() > end) {
            return 4;
        }
    }
    say(UINT64_MAX);
    kv_disk_close(disk);
    return 0;
}

/* ---- the parent ---- */

typedef struct child {
    pid_t pid;
    int from;
} child;

static child start(const char *what, const char *path, uint64_t number)
{
    char text[32];
    int ends[2];
    child c;
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    assert_int_equal(pipe(ends), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    char *const argv[] = {(char *)"child", (char *)(uintptr_t)what, (char *)(uintptr_t)path, text, NULL};
    assert_int_equal(posix_spawn(&c.pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    c.from = ends[0];
    return c;
}

static bool hear(const child *c, uint64_t *value)
{
    ssize_t n;
    do {
        n = read(c->from, value, sizeof *value);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof *value;
}

static void kill_child(const child *c)
{
    int status;
    kill(c->pid, SIGKILL);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    assert_true(WIFSIGNALED(status)); /* it did not end by itself before */
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

/* Busy, so that a machine with other work does not make a long wait of it. */
static void linger(int64_t ns)
{
    const int64_t end = clock_now_ns() + ns;
    while (clock_now_ns() < end) {
    }
}

/* How many of the acknowledged records are found. dfix_get fails the test over a wrong byte. */
static int count_found(const char *path, const bool *acked, uint64_t n)
{
    const kv_disk_options o = crash_options(path);
    kv_disk *const disk = dfix_open(&o);
    int found = 0;
    for (uint64_t i = 0; i < n; i++) {
        const di_status status = dfix_get(disk, i, KV_DISK_UNIT, NULL);
        assert_true(status == DI_OK || status == DI_E_STATE || status == DI_E_MISMATCH);
        found += acked[i] && status == DI_OK ? 1 : 0;
    }
    kv_disk_close(disk);
    return found;
}

typedef struct ledger { /* of one directory */
    bool acked[MAX_RECORDS];
    uint64_t next; /* record that nobody has put yet */
    int n_acked;
} ledger;

static bool note_ack(ledger *l, const child *c)
{
    uint64_t i;
    if (!hear(c, &i)) {
        return false;
    }
    assert_true(i < MAX_RECORDS);
    l->acked[i] = true;
    l->n_acked++;
    l->next = i + 1 > l->next ? i + 1 : l->next;
    return true;
}

static void write_and_kill(ledger *l, const char *path, uint64_t *random)
{
    const uint64_t wanted = next_random(random) % MAX_ACKS;
    const child c = start("writer", path, l->next);
    for (uint64_t k = 0; k < wanted && note_ack(l, &c); k++) {
    }
    linger((int64_t)(next_random(random) % LONGEST_LINGER_NS));
    kill_child(&c);
    while (note_ack(l, &c)) { /* said before it died */
    }
    close(c.from);
    l->next += IN_FLIGHT; /* some may have been put without a word */
}

void crash_writers(int n_directories, int n_kills)
{
    static ledger l;
    uint64_t random = 42;
    int n_acked = 0;
    int n_found = 0;
    for (int k = 0; k < n_directories; k++) {
        const dfix_dir d = dfix_make();
        l = (ledger){.next = 0};
        for (int round = 0; round < n_kills; round++) {
            assert_true(l.next + PUTS + IN_FLIGHT <= MAX_RECORDS);
            write_and_kill(&l, d.path, &random);
        }
        n_acked += l.n_acked;
        n_found += count_found(d.path, l.acked, l.next);
        dfix_remove(&d);
    }
    print_message("%d kills: %d of %d acknowledged records are found\n", n_directories * n_kills, n_found, n_acked);
    assert_true(n_acked > n_directories * n_kills);
    assert_true((int64_t)n_found * 100 >= (int64_t)n_acked * 99);
}

void crash_sharers(void)
{
    const dfix_dir d = dfix_make();
    const child a = start("sharer-for-ever", d.path, 0);
    const child b = start("sharer", d.path, 1);
    uint64_t hits = 0;
    int status;
    while (hits == 0) { /* across processes */
        assert_true(hear(&a, &hits));
    }
    kill_child(&a);
    hits = 0;
    uint64_t said;
    while (hear(&b, &said) && said != UINT64_MAX) {
        hits = said;
    }
    assert_true(hits > 0 || said == UINT64_MAX);
    assert_int_equal(waitpid(b.pid, &status, 0), b.pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(a.from);
    close(b.from);
    const kv_disk_options o = shared_options(d.path);
    kv_disk *const disk = dfix_open(&o); /* both have gone: it has what they left */
    int found[2] = {0};
    for (uint64_t i = 0; i < SHARED_RECORDS; i++) {
        found[i % 2] += dfix_get(disk, i, KV_DISK_UNIT, NULL) == DI_OK ? 1 : 0;
    }
    assert_true(found[0] > 0);
    assert_true(found[1] > SHARED_RECORDS / 4);
    kv_disk_close(disk);
    dfix_remove(&d);
}

bool crash_is_child(int argc, char **argv, int *result)
{
    if (argc != 4) {
        return false;
    }
    const uint64_t number = strtoull(argv[3], NULL, 10);
    *result = strcmp(argv[1], "writer") == 0 ? run_writer(argv[2], number)
                                             : run_sharer(argv[2], number, strcmp(argv[1], "sharer-for-ever") == 0);
    return true;
}
