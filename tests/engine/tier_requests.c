/* tier_requests.c - see tier_requests.h. A turn is one engine; what the turns differ in makes sure that every way is taken:
 *
 *   0  folder and shared folder, loads always, few pages
 *   1  shared folder alone, which so gives what an earlier engine left there
 *   2  both, loads where it pays, and the folders are as slow as can be: what is there is computed
 *   3  no folder, a third of the scripts, much in memory: what the device evicts comes back from there
 *   4  both, with purges and compaction while requests run
 *   5  both, loads where it pays, by speeds as they are measured
 *
 * Before each turn bits flip in some segments, before turn 4 the indexes are lost, and between turns two hours pass on the folders' clock. */
#include "engine/tier_requests.h"

#include "support/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, KINDS = 6, FLIP_EVERY = 256 << 10, FLIP_ONE_OF = 4, MORE_RAM = 6, BETWEEN_TURNS_S = 7200 };

typedef struct folders {
    char dir[PATH_BYTES];
    char shared[PATH_BYTES];
} folders;

/* ---- harm ---- */

static bool ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name);
    return n >= strlen(end) && strcmp(name + n - strlen(end), end) == 0;
}

static void flip_bits(int dir, const char *name, uint64_t *seed)
{
    const int fd = openat(dir, name, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    const off_t size = lseek(fd, 0, SEEK_END);
    for (off_t at = 0; at < size; at += FLIP_EVERY) {
        const off_t byte = at + (off_t)(unit_random(seed) % FLIP_EVERY);
        uint8_t value;
        if (byte < size && pread(fd, &value, 1, byte) == 1) {
            value ^= (uint8_t)(1u << unit_random(seed) % 8);
            assert_int_equal(pwrite(fd, &value, 1, byte), 1);
        }
    }
    close(fd);
}

/* Of a folder that nobody has open. */
static void harm(const char *path, bool loses_index, uint64_t *seed)
{
    DIR *const dir = opendir(path);
    if (dir == NULL) {
        return; /* no engine has been there */
    }
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (ends_in(e->d_name, ".kvs") && unit_random(seed) % FLIP_ONE_OF == 0) {
            flip_bits(dirfd(dir), e->d_name, seed);
        } else if (loses_index && strncmp(e->d_name, "index-", 6) == 0) {
            char sum[PATH_BYTES];
            assert_true(snprintf(sum, sizeof sum, "%s/sum", e->d_name) < (int)sizeof sum);
            (void)unlinkat(dirfd(dir), sum, 0); /* without it an index is not trusted */
        }
    }
    closedir(dir);
}

/* ---- turns ---- */

static di_engine_options options_of(const tier_plan *plan, const folders *f, size_t kind)
{
    di_model_info info;
    di_model_get_info(plan->crowd.model, &info);
    const int64_t ram_states = kind == 3 ? MORE_RAM * plan->ram_states : plan->ram_states;
    return (di_engine_options){.n_threads = 2,
                               .kv_bytes = plan->n_states * info.state_bytes * 9,
                               .cache = {.dir = kind == 1 || kind == 3 ? NULL : f->dir,
                                         .dir_bytes = plan->dir_bytes,
                                         .shared_dir = kind == 3 ? NULL : f->shared,
                                         .shared_bytes = plan->shared_bytes,
                                         .ram_bytes = ram_states * info.state_bytes,
                                         .load = kind == 2 || kind == 5 ? DI_CACHE_LOAD_AUTO : DI_CACHE_LOAD_ALWAYS}};
}

static void take_turn(const tier_plan *plan, crowd *c, const folders *f, size_t i, crowd_ways *ways)
{
    const size_t kind = i % KINDS;
    const di_engine_options o = options_of(plan, f, kind);
    const di_engine_options all = options_of(plan, f, 0);
    uint64_t seed = i + 1;
    harm(f->dir, kind == 4, &seed);
    harm(f->shared, kind == 4, &seed);
    const crowd_turn turn = {.options = &o,
                             .n_requests = plan->n_requests / plan->n_turns + (i < plan->n_requests % plan->n_turns ? 1 : 0),
                             .n_scripts = kind == 3 ? plan->crowd.n_scripts / 3 : plan->crowd.n_scripts,
                             .n_pages = plan->n_pages,
                             .slow = kind == 2,
                             .care = kind == 4};
    crowd_run(c, &turn, ways);
    ways->requests += turn.n_requests;
    if (plan->checks) {
        crowd_check_persistence(c, &all);
    }
    plan->pass(BETWEEN_TURNS_S);
}

static void show(const crowd_ways *w)
{
    static const char *const names[DI_CACHE_TIERS] = {"memory", "folder", "shared"};
    print_message("%zu requests: %lld tokens cached; hits of the device %lld, restores of units alone %lld, of a snapshot "
                  "alone %lld, of both %lld; evicted pages %lld, states %lld\n",
                  w->requests, (long long)w->cached_tokens, (long long)w->device, (long long)w->units,
                  (long long)w->snapshots, (long long)w->both, (long long)w->pages_evicted, (long long)w->states_evicted);
    for (int i = 0; i < DI_CACHE_TIERS; i++) {
        const di_cache_tier_stats *const t = &w->cache.tiers[i];
        print_message("%s: restored units %lld, snapshots %lld, bytes %lld; evicted %lld, expired %lld, corrupt %lld, failed %lld, refused %lld\n",
                      names[i], (long long)t->restored_units, (long long)t->restored_snapshots, (long long)t->restored_bytes,
                      (long long)t->evicted, (long long)t->expired, (long long)t->corrupt, (long long)t->failed, (long long)t->refused);
    }
    print_message("loads %lld, recomputed %lld, late %lld, incomplete %lld; bytes rewritten %lld, compacted %lld; purged %lld; rebuilt %lld\n",
                  (long long)w->cache.loads, (long long)w->cache.recomputes, (long long)w->cache.late, (long long)w->cache.incomplete,
                  (long long)w->rewritten_bytes, (long long)w->compacted_bytes, (long long)w->purged, (long long)w->rebuilt);
}

typedef struct way {
    const char *name;
    int64_t n;
} way;

/* The name of a way that was not taken, or NULL. */
static const char *way_left(const tier_plan *plan, const crowd_ways *w)
{
    const di_cache_tier_stats *const t = w->cache.tiers;
    const way ways[] = {{"a hit of the device", w->device},
                        {"a page evicted", w->pages_evicted},
                        {"a state evicted", w->states_evicted},
                        {"units alone", plan->crowd.n_long > 0 ? w->units : 1},
                        {"a snapshot alone", w->snapshots},
                        {"units with a snapshot", w->both},
                        {"units of memory", t[DI_CACHE_MEMORY].restored_units},
                        {"a snapshot of memory", t[DI_CACHE_MEMORY].restored_snapshots},
                        {"evicted from memory", t[DI_CACHE_MEMORY].evicted},
                        {"units of the folder", t[DI_CACHE_DIR].restored_units},
                        {"a snapshot of the folder", t[DI_CACHE_DIR].restored_snapshots},
                        {"evicted from the folder", t[DI_CACHE_DIR].evicted},
                        {"expired in the folder", t[DI_CACHE_DIR].expired},
                        {"corrupt in the folder", t[DI_CACHE_DIR].corrupt},
                        {"units of the shared folder", t[DI_CACHE_SHARED].restored_units},
                        {"a snapshot of the shared folder", t[DI_CACHE_SHARED].restored_snapshots},
                        {"evicted from the shared folder", t[DI_CACHE_SHARED].evicted},
                        {"expired in the shared folder", t[DI_CACHE_SHARED].expired},
                        {"corrupt in the shared folder", t[DI_CACHE_SHARED].corrupt},
                        {"recomputed, though it was there", w->cache.recomputes},
                        {"a load that missed something", w->cache.incomplete},
                        {"compacted", w->compacted_bytes},
                        {"rewritten", w->rewritten_bytes},
                        {"purged", w->purged},
                        {"an index made anew", w->rebuilt}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (ways[i].n == 0) {
            return ways[i].name;
        }
    }
    return NULL;
}

crowd_ways tier_requests(const tier_plan *plan)
{
    char *const scratch = unit_scratch_new();
    crowd *const c = crowd_new(&plan->crowd);
    crowd_ways ways = {.units = 0};
    folders f;
    assert_true(snprintf(f.dir, sizeof f.dir, "%s/dir", scratch) < (int)sizeof f.dir);
    assert_true(snprintf(f.shared, sizeof f.shared, "%s/shared", scratch) < (int)sizeof f.shared);
    for (size_t i = 0; i < plan->n_turns || (i < plan->most_turns && way_left(plan, &ways) != NULL); i++) {
        take_turn(plan, c, &f, i, &ways);
    }
    show(&ways);
    assert_int_equal(ways.cache.tiers[DI_CACHE_DIR].failed + ways.cache.tiers[DI_CACHE_SHARED].failed, 0);
    crowd_free(c);
    unit_scratch_remove(scratch);
    if (plan->most_turns > 0 && way_left(plan, &ways) != NULL) {
        fail_msg("a way was not taken: %s", way_left(plan, &ways));
    }
    return ways;
}
