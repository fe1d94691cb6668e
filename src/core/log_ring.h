/* log_ring.h - private to log.c: lines from many threads to one, in a block of bytes of fixed size. The idea is that of Aeron's ring for
 * many producers and one consumer.
 *
 * A record is a 4-byte mark and the line, rounded up to 8 bytes. A producer claims room by moving `tail`, copies the line, and then sets
 * the mark, which says that the record is whole. The consumer takes records in order while their marks are set, zeroes what it took and
 * moves `head`. So every mark beyond the last whole record is zero, and nobody but the consumer waits for a producer that was stopped
 * half-way. */
#ifndef CORE_LOG_RING_H
#define CORE_LOG_RING_H

#include <deepinfer/base.h>

#include <stdatomic.h>

/* Positions only grow; the place in the ring is position & mask. */
typedef struct log_ring {
    _Alignas(64) _Atomic uint64_t tail; /* moved by producers */
    _Alignas(64) _Atomic uint64_t head; /* moved by the consumer */
    uint8_t *bytes;
    uint64_t mask;
} log_ring;

/* capacity: a power of two. False when memory is short. */
bool log_ring_init(log_ring *ring, size_t capacity);
void log_ring_fini(log_ring *ring);

/* Any thread. False when there is no room. Sequentially consistent with log_ring_has: a producer that puts and then looks whether the
 * consumer sleeps, and a consumer that says it sleeps and then calls log_ring_has, do not miss each other. */
bool log_ring_put(log_ring *ring, const char *line, size_t n);

/* The consumer. The next line with a newline behind it into out[capacity]; its length, or 0 when none is whole or it does not fit. */
size_t log_ring_take(log_ring *ring, char *out, size_t capacity);
bool log_ring_has(const log_ring *ring);

#endif
