/* tier_pair.c - see tier_pair.h. A child is the test's own executable, started anew. Scripts come in six groups that share nothing:
 *
 *   first   one for each child, which computes it with an engine that is closed before the two begin together
 *   late    one for each child, which computes it as soon as they have
 *   alone   one for each child that the other never asks for
 *
 * A script of the other's `first` or `late` that a child asks for the first time, and that is not computed from its start, came out of the
 * other's segments: its own cache has never seen it (it knows the answers from runs without a cache). */
#include "engine/tier_pair.h"

#include "engine/eng_model.h"
#include "engine/tier_crowd.h"
#include "support/unit.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { GROUP = 4, FIRST = 0, LATE = 2, ALONE = 4, GROUPS = 6, OPENING = 3 * GROUP, ENTRIES_A_STATE = 9, LIMIT_S = 1800 };

static crowd *new_crowd(const pair_plan *plan, const di_model *model)
{
    return crowd_new(&(crowd_plan){.model = model, .n_scripts = GROUPS * GROUP, .group = GROUP, .least = 130, .most = plan->most, .seed = 77});
}

/* Room for little above the folder, so that most of what is asked again comes out of it. */
static di_engine_options options_of(const di_model *model, const char *dir)
{
    di_model_info info;
    di_model_get_info(model, &info);
    return (di_engine_options){.n_threads = 1,
                               .kv_bytes = ENTRIES_A_STATE * 4 * info.state_bytes,
                               .cache = {.shared_dir = dir,
                                         .shared_bytes = (int64_t)64 << 20,
                                         .ram_bytes = 12 * info.state_bytes,
                                         .load = DI_CACHE_LOAD_ALWAYS}};
}

/* ---- a child ---- */

typedef struct news { /* what a child says behind each request, and once before the first of them */
    uint64_t n_done;
    uint64_t first_hits; /* scripts of the other's first group that were found */
    uint64_t late_hits;  /* of its late group */
} news;

typedef struct child_state {
    size_t who;
    size_t n_requests;
    uint64_t seed;
    bool known[GROUPS * GROUP]; /* scripts that this child has asked for */
    news said;
} child_state;

static void say(news n)
{
    if (write(STDOUT_FILENO, &n, sizeof n) != (ssize_t)sizeof n) {
        _exit(3); /* the parent is gone */
    }
}

static size_t script_of(size_t group, size_t who, size_t i) { return (group + who) * GROUP + i; }

/* Its own groups, the other's first one, and then anything but what is the other's alone; the other's late ones are spread over that. */
static size_t pick(void *user, size_t n)
{
    child_state *const c = user;
    const size_t other = 1 - c->who;
    if (n < OPENING) {
        const size_t i = n % GROUP;
        return n < GROUP ? script_of(ALONE, c->who, i) : n < 2 * GROUP ? script_of(LATE, c->who, i) : script_of(FIRST, other, i);
    }
    const size_t spread = (c->n_requests - OPENING) / (GROUP + 1) + 1;
    const size_t late = (n - OPENING) / spread;
    if ((n - OPENING) % spread == spread - 1 && late < GROUP) {
        return script_of(LATE, other, late);
    }
    const size_t i = (size_t)(unit_random(&c->seed) % GROUP);
    const size_t kind = (size_t)(unit_random(&c->seed) % 4);
    return kind < 2 ? script_of(FIRST, kind, i) : script_of(kind == 2 ? LATE : ALONE, c->who, i);
}

static void ended(void *user, size_t script, int64_t cached)
{
    child_state *const c = user;
    const size_t group = script / GROUP;
    const bool news_of_other = !c->known[script] && cached > 0 && group % 2 != c->who;
    c->known[script] = true;
    c->said.n_done++;
    c->said.first_hits += news_of_other && group < LATE;
    c->said.late_hits += news_of_other && group >= LATE;
    say(c->said);
}

static int run_child(const pair_plan *plan, const char *dir, size_t who)
{
    char go;
    alarm(LIMIT_S);
    di_model *const model = eng_model_open(plan->model);
    crowd *const c = new_crowd(plan, model);
    const di_engine_options o = options_of(model, dir);
    crowd_ways ways = {.units = 0};
    child_state state = {.who = who, .n_requests = plan->n_requests, .seed = who + 1};
    crowd_run(c, &(crowd_turn){.options = &o, .n_requests = GROUP, .first = script_of(FIRST, who, 0), .n_scripts = GROUP, .in_order = true},
              &ways);
    memset(&state.known[script_of(FIRST, who, 0)], true, GROUP);
    say(state.said);
    if (read(STDIN_FILENO, &go, 1) != 1) {
        return 3;
    }
    crowd_run(c, &(crowd_turn){.options = &o, .n_requests = plan->n_requests, .pick = pick, .ended = ended, .user = &state}, &ways);
    crowd_free(c);
    di_model_close(model);
    return 0;
}

bool pair_is_child(int argc, char **argv, int *result)
{
    if (argc != 7 || strcmp(argv[1], "child") != 0) {
        return false;
    }
    const pair_plan plan = {.model = argv[2], .n_requests = strtoul(argv[5], NULL, 10), .most = strtoul(argv[6], NULL, 10)};
    *result = run_child(&plan, argv[3], strtoul(argv[4], NULL, 10));
    return true;
}

/* ---- the parent ---- */

typedef struct child {
    pid_t pid;
    int from;
    int to;
    news heard;
} child;

static child start(const pair_plan *plan, const char *dir, size_t who)
{
    char numbers[3][24];
    int out[2];
    int in[2];
    child c = {.pid = 0};
    (void)snprintf(numbers[0], sizeof numbers[0], "%zu", who);
    (void)snprintf(numbers[1], sizeof numbers[1], "%zu", plan->n_requests);
    (void)snprintf(numbers[2], sizeof numbers[2], "%zu", plan->most);
    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(in), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    for (int i = 0; i < 2; i++) {
        posix_spawn_file_actions_addclose(&actions, in[i]);
        posix_spawn_file_actions_addclose(&actions, out[i]);
    }
    char *const argv[] = {(char *)"pair",  (char *)"child", (char *)(uintptr_t)plan->model, (char *)(uintptr_t)dir, numbers[0],
                          numbers[1], numbers[2],      NULL};
    assert_int_equal(posix_spawn(&c.pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    c.to = in[1];
    c.from = out[0];
    return c;
}

static bool hear(child *c)
{
    news n;
    ssize_t got;
    do {
        got = read(c->from, &n, sizeof n);
    } while (got < 0 && errno == EINTR);
    c->heard = got == (ssize_t)sizeof n ? n : c->heard;
    return got == (ssize_t)sizeof n;
}

static void let_go(const child *c) { assert_int_equal(write(c->to, "", 1), 1); }

static int end_of(child *c)
{
    int status;
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    close(c->from);
    close(c->to);
    return status;
}

static void expect_end(const pair_plan *plan, child *c)
{
    while (hear(c)) {
    }
    const int status = end_of(c);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(c->heard.n_done, plan->n_requests);
    assert_true(c->heard.first_hits > 0);
    assert_true(c->heard.late_hits > 0 || !plan->live);
}

static void kill_behind(child *c, uint64_t n_done)
{
    while (c->heard.n_done < n_done) {
        assert_true(hear(c));
    }
    kill(c->pid, SIGKILL);
    while (hear(c)) { /* said before it died */
    }
    assert_true(WIFSIGNALED(end_of(c)));
    assert_true(c->heard.first_hits > 0);
}

typedef struct count {
    size_t found;
} count;

static void count_found(void *user, size_t script, int64_t cached)
{
    (void)script;
    ((count *)user)->found += cached > 0;
}

/* How many scripts that `who` alone has computed are found by an engine of this process, with the right answers. */
static size_t found_alone(crowd *c, const di_engine_options *o, size_t who)
{
    count n = {.found = 0};
    crowd_ways ways = {.units = 0};
    const crowd_turn turn = {.options = o,
                             .n_requests = GROUP,
                             .first = script_of(ALONE, who, 0),
                             .n_scripts = GROUP,
                             .in_order = true,
                             .ended = count_found,
                             .user = &n};
    crowd_run(c, &turn, &ways);
    assert_true(n.found == 0 || ways.cache.tiers[DI_CACHE_SHARED].restored_units > 0);
    assert_int_equal(ways.cache.tiers[DI_CACHE_SHARED].corrupt, 0);
    return n.found;
}

/* victim: 0, 1, or neither. */
static void run_two(const pair_plan *plan, size_t victim, uint64_t kill_at)
{
    char *const dir = unit_scratch_new();
    child children[2];
    for (size_t i = 0; i < 2; i++) {
        children[i] = start(plan, dir, i);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_true(hear(&children[i]));
    }
    for (size_t i = 0; i < 2; i++) {
        let_go(&children[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        if (i == victim) {
            kill_behind(&children[i], kill_at);
        }
    }
    for (size_t i = 0; i < 2; i++) {
        if (i != victim) {
            expect_end(plan, &children[i]);
        }
    }
    di_model *const model = eng_model_open(plan->model);
    const di_engine_options o = options_of(model, dir);
    crowd *const c = new_crowd(plan, model);
    const size_t found[2] = {found_alone(c, &o, 0), found_alone(c, &o, 1)};
    crowd_free(c);
    di_model_close(model);
    print_message("requests %llu and %llu; scripts of the other found at once %llu and %llu of %d, computed meanwhile %llu and %llu; read "
                  "afterwards %zu and %zu\n",
                  (unsigned long long)children[0].heard.n_done, (unsigned long long)children[1].heard.n_done,
                  (unsigned long long)children[0].heard.first_hits, (unsigned long long)children[1].heard.first_hits, (int)GROUP,
                  (unsigned long long)children[0].heard.late_hits, (unsigned long long)children[1].heard.late_hits, found[0], found[1]);
    assert_true(found[0] > 0);
    assert_true(found[1] > 0);
    unit_scratch_remove(dir);
}

void pair_run(const pair_plan *plan, int n_kills)
{
    uint64_t seed = 7;
    run_two(plan, 2, 0);
    for (int i = 0; i < n_kills; i++) {
        const uint64_t room = plan->n_requests - OPENING - 1;
        run_two(plan, (size_t)i % 2, OPENING + 1 + unit_random(&seed) % (room * 3 / 4));
    }
}
