/* log_ring.c - see log_ring.h. */
#include "core/log_ring.h"

#include "core/arith.h"

#define PADDING UINT32_MAX

bool log_ring_init(log_ring *r, size_t capacity)
{
    memset(r, 0, sizeof *r);
    r->bytes = ar_calloc_aligned(1, capacity, 64);
    r->mask = capacity - 1;
    return r->bytes != NULL;
}

void log_ring_fini(log_ring *r)
{
    free(r->bytes);
    memset(r, 0, sizeof *r);
}

static _Atomic uint32_t *mark_at(const log_ring *r, uint64_t position)
{
    return (_Atomic uint32_t *)(void *)(r->bytes + (position & r->mask));
}

static uint64_t record_bytes(size_t n)
{
    return (sizeof(uint32_t) + n + 7) / 8 * 8;
}

/* Claims room for a record. One that would go over the ring's end starts at its beginning, and the rest is padding. */
static bool claim(log_ring *r, uint64_t bytes, uint64_t *position)
{
    const uint64_t capacity = r->mask + 1;
    for (;;) {
        /* In this order, so that tail is never behind head. */
        const uint64_t head = atomic_load_explicit(&r->head, memory_order_acquire);
        uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
        const uint64_t to_end = capacity - (tail & r->mask);
        const uint64_t padding = bytes <= to_end ? 0 : to_end;
        if (tail + padding + bytes - head > capacity) {
            return false;
        }
        if (atomic_compare_exchange_weak_explicit(&r->tail, &tail, tail + padding + bytes, memory_order_acq_rel, memory_order_relaxed)) {
            if (padding > 0) {
                atomic_store_explicit(mark_at(r, tail), PADDING, memory_order_release);
            }
            *position = tail + padding;
            return true;
        }
    }
}

bool log_ring_put(log_ring *r, const char *line, size_t n)
{
    uint64_t position;
    if (n >= PADDING - 8 || !claim(r, record_bytes(n), &position)) {
        return false;
    }
    _Atomic uint32_t *const mark = mark_at(r, position);
    if (n > 0) {
        memcpy((uint8_t *)mark + sizeof *mark, line, n);
    }
    atomic_store(mark, (uint32_t)n + 1);
    return true;
}

bool log_ring_has(const log_ring *r)
{
    return atomic_load(mark_at(r, atomic_load_explicit(&r->head, memory_order_relaxed))) != 0;
}

size_t log_ring_take(log_ring *r, char *out, size_t capacity)
{
    uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    _Atomic uint32_t *mark = mark_at(r, head);
    uint32_t value = atomic_load_explicit(mark, memory_order_acquire);
    if (value == PADDING) {
        atomic_store_explicit(mark, 0, memory_order_relaxed);
        head += r->mask + 1 - (head & r->mask);
        atomic_store_explicit(&r->head, head, memory_order_release);
        mark = mark_at(r, head);
        value = atomic_load_explicit(mark, memory_order_acquire);
    }
    if (value == 0 || value > capacity) {
        return 0;
    }
    const size_t n = value - 1;
    uint8_t *const text = (uint8_t *)mark + sizeof *mark;
    memcpy(out, text, n);
    out[n] = '\n';
    memset(text, 0, (size_t)record_bytes(n) - sizeof *mark);
    atomic_store_explicit(mark, 0, memory_order_relaxed);
    atomic_store_explicit(&r->head, head + record_bytes(n), memory_order_release);
    return n + 1;
}
