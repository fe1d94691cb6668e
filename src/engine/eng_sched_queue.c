/* eng_sched_queue.c - tenants and their waiting tasks.
 *
 * Fairness is the virtual token counter of Sheng et al. (OSDI 2024): among tenants that wait with equal priority, the one that was
 * served least goes next; a tenant that comes back after a pause starts at the level of those that are served now, so that nobody saves
 * up. A tenant's queue is in order of priority, then arrival; a preempted task keeps its arrival, so it stands in front again. */
#include "core/core.h"
#include "engine/eng_sched.h"

#include <stdlib.h>
#include <string.h>

#define MAX_IDLE_TENANTS 4096

static bool is_idle(const eng_tenant *t)
{
    return t->n_waiting == 0 && t->n_running == 0 && t->state == DI_TENANT_OPEN && t->weight == 1.0 && !t->pinned;
}

/* Forgets idle tenants, so that names made up by callers don't fill the memory. */
static void forget_idle(di_scheduler *s)
{
    for (size_t b = 0; b < ENG_TENANT_BUCKETS; b++) {
        for (eng_tenant **at = &s->buckets[b]; *at != NULL;) {
            eng_tenant *const t = *at;
            if (is_idle(t)) {
                *at = t->next_hash;
                s->n_tenants--;
                free(t);
            } else {
                at = &t->next_hash;
            }
        }
    }
}

eng_tenant *eng_queue_tenant(di_scheduler *s, const char *name, bool make)
{
    const size_t size = strlen(name);
    const uint64_t hash = digest_hash(name, size, s->seed);
    for (eng_tenant *t = s->buckets[hash % ENG_TENANT_BUCKETS]; t != NULL; t = t->next_hash) {
        if (t->hash == hash && t->salt_size == size && memcmp(t->name, name, size) == 0) {
            return t;
        }
    }
    if (!make) {
        return NULL;
    }
    if (s->n_tenants >= MAX_IDLE_TENANTS) {
        forget_idle(s);
    }
    eng_tenant *const t = calloc(1, sizeof *t + size + 1);
    if (t != NULL) {
        memcpy(t->name, name, size + 1);
        t->hash = hash;
        t->salt_size = size;
        t->weight = 1.0;
        t->next_hash = s->buckets[hash % ENG_TENANT_BUCKETS];
        s->buckets[hash % ENG_TENANT_BUCKETS] = t;
        s->n_tenants++;
    }
    return t;
}

void eng_queue_fini(di_scheduler *s)
{
    for (size_t b = 0; b < ENG_TENANT_BUCKETS; b++) {
        while (s->buckets[b] != NULL) {
            eng_tenant *const t = s->buckets[b];
            s->buckets[b] = t->next_hash;
            while (t->first != NULL) {
                di_task *const task = t->first;
                t->first = task->next;
                eng_retire_free(task);
            }
            free(t);
        }
    }
}

/* ---- order ---- */

static bool before(const di_task *a, const di_task *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->arrival < b->arrival;
}

static void link_tenant(di_scheduler *s, eng_tenant *t)
{
    t->previous = NULL;
    t->next = s->waiting;
    if (s->waiting != NULL) {
        s->waiting->previous = t;
    }
    s->waiting = t;
}

static void unlink_tenant(di_scheduler *s, eng_tenant *t)
{
    *(t->previous != NULL ? &t->previous->next : &s->waiting) = t->next;
    if (t->next != NULL) {
        t->next->previous = t->previous;
    }
}

static int64_t deadline_of(const di_task *task)
{
    const int64_t queue = task->admission == 0 && task->queue_deadline > 0 ? task->queue_deadline : INT64_MAX;
    const int64_t end = task->deadline > 0 ? task->deadline : INT64_MAX;
    return queue < end ? queue : end;
}

/* From the end: tasks mostly come in order. */
void eng_queue_add(di_scheduler *s, di_task *task)
{
    eng_tenant *const t = task->tenant;
    if (t->n_waiting == 0) {
        link_tenant(s, t);
        if (t->n_running == 0 && t->service < s->service_floor) {
            t->service = s->service_floor;
        }
    }
    di_task *after = t->last;
    while (after != NULL && before(task, after)) {
        after = after->previous;
    }
    task->previous = after;
    task->next = after != NULL ? after->next : t->first;
    *(after != NULL ? &after->next : &t->first) = task;
    *(task->next != NULL ? &task->next->previous : &t->last) = task;
    task->waiting = true;
    t->n_waiting++;
    s->n_waiting++;
    const int64_t deadline = deadline_of(task);
    s->next_deadline = deadline < s->next_deadline ? deadline : s->next_deadline;
}

void eng_queue_remove(di_scheduler *s, di_task *task)
{
    eng_tenant *const t = task->tenant;
    *(task->previous != NULL ? &task->previous->next : &t->first) = task->next;
    *(task->next != NULL ? &task->next->previous : &t->last) = task->previous;
    task->next = NULL;
    task->previous = NULL;
    task->waiting = false;
    s->n_waiting--;
    t->n_waiting--;
    if (t->n_waiting == 0) {
        unlink_tenant(s, t);
    }
}

di_task *eng_queue_next(const di_scheduler *s)
{
    di_task *best = NULL;
    for (const eng_tenant *t = s->waiting; t != NULL; t = t->next) {
        di_task *task = t->first;
        while (task != NULL && task->is_loading) {
            task = task->next;
        }
        if (task == NULL || t->state == DI_TENANT_PAUSED) {
            continue;
        }
        if (best == NULL || task->priority > best->priority ||
            (task->priority == best->priority &&
             (t->service < best->tenant->service || (t->service == best->tenant->service && task->arrival < best->arrival)))) {
            best = task;
        }
    }
    return best;
}

void eng_queue_charge(eng_tenant *tenant, double tokens) { tenant->service += tokens / tenant->weight; }

void eng_queue_expire(di_scheduler *s, int64_t now, void (*fn)(di_scheduler *s, di_task *task))
{
    if (now < s->next_deadline) {
        return;
    }
    s->next_deadline = INT64_MAX;
    for (eng_tenant *t = s->waiting; t != NULL;) {
        eng_tenant *const next_tenant = t->next;
        for (di_task *task = t->first; task != NULL;) {
            di_task *const next = task->next;
            const int64_t deadline = deadline_of(task);
            if (deadline <= now) {
                fn(s, task);
            } else {
                s->next_deadline = deadline < s->next_deadline ? deadline : s->next_deadline;
            }
            task = next;
        }
        t = next_tenant;
    }
}

/* ---- public ---- */

static di_status named(di_scheduler *s, const char *name, eng_tenant **out, di_error *err)
{
    if (name == NULL || strlen(name) > DI_MAX_TENANT_BYTES) {
        return err_set(err, DI_E_ARGUMENT, "tenant: a name of at most %d bytes is needed", DI_MAX_TENANT_BYTES);
    }
    *out = eng_queue_tenant(s, name, true);
    return *out != NULL ? DI_OK : err_memory(err, "tenant", sizeof **out);
}

di_status di_scheduler_set_tenant(di_scheduler *s, const char *name, di_tenant_state state, di_error *err)
{
    eng_tenant *t;
    const di_status status = named(s, name, &t, err);
    if (status == DI_OK) {
        t->state = state;
    }
    return status;
}

di_status di_scheduler_set_weight(di_scheduler *s, const char *name, double weight, di_error *err)
{
    eng_tenant *t;
    if (!(weight >= 0.001 && weight <= 1000.0)) {
        return err_set(err, DI_E_ARGUMENT, "weight of a tenant is %g: must be from 0.001 to 1000", weight);
    }
    const di_status status = named(s, name, &t, err);
    if (status == DI_OK) {
        t->weight = weight;
    }
    return status;
}

di_status di_scheduler_pin_tenant(di_scheduler *s, const char *name, bool pinned, di_error *err)
{
    eng_tenant *t;
    const di_status status = named(s, name, &t, err);
    if (status == DI_OK) {
        t->pinned = pinned;
    }
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const di_tenant_info *)a)->name, ((const di_tenant_info *)b)->name);
}

size_t di_scheduler_get_tenants(const di_scheduler *s, di_tenant_info *out, size_t capacity)
{
    size_t n = 0;
    for (size_t b = 0; b < ENG_TENANT_BUCKETS; b++) {
        for (const eng_tenant *t = s->buckets[b]; t != NULL; t = t->next_hash, n++) {
            if (n < capacity) {
                out[n] = (di_tenant_info){.name = t->name,
                                          .state = t->state,
                                          .n_waiting = t->n_waiting,
                                          .n_running = t->n_running,
                                          .prompt_tokens = t->prompt_tokens,
                                          .generated_tokens = t->generated_tokens};
            }
        }
    }
    if (n > 0 && capacity > 0) {
        qsort(out, n < capacity ? n : capacity, sizeof *out, by_name);
    }
    return n;
}
