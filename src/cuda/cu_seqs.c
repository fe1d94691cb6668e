/* cu_seqs.c - what kernels need of the host's arrays: sequences, page tables, moves. A table is uploaded when a stage asks for one that
 * none
 * of the last few is like; the layers of a step ask for the same two or three. Uploads go through the stream, so a table may be replaced
 * while earlier stages still wait to run. Owner: the device; its thread. */
#include "core/arith.h"
#include "cuda/cu_int.h"

#include <cuda_runtime_api.h>

#include <stdlib.h>
#include <string.h>

static bool reserve_host(cu_device *dev, cu_table *t, size_t bytes)
{
    if (bytes > t->capacity || t->host == NULL) {
        const size_t capacity = bytes > (size_t)64 << 10 ? bytes + bytes / 2 : (size_t)64 << 10;
        uint8_t *host = realloc(t->host, capacity);
        if (host == NULL) {
            return cu_ok(dev, (int)cudaErrorMemoryAllocation, "table of sequences");
        }
        t->host = host;
        t->capacity = capacity;
    }
    return true;
}

/* Room for the table on both sides. The old device memory may still be read by work that has been asked for. */
static bool reserve(cu_device *dev, cu_table *t, size_t bytes)
{
    const bool grows = bytes > t->capacity || t->device == NULL;
    if (!reserve_host(dev, t, bytes)) {
        return false;
    }
    if (grows) {
        void *memory = NULL;
        if (!cu_ok(dev, (int)cudaStreamSynchronize(dev->stream), "synchronise") || !cu_ok(dev, (int)cudaFree(t->device), "free table")) {
            return false;
        }
        t->device = NULL;
        t->size = 0;
        if (!cu_ok(dev, (int)cudaMalloc(&memory, t->capacity), "table of sequences")) {
            return false;
        }
        t->device = memory;
    }
    return true;
}

const void *cu_table_of(cu_device *dev, const void *bytes, size_t n)
{
    if (dev->steps.recording != NULL) {
        cu_refuse(dev, "step", "it uploads a table");
        return NULL;
    }
    for (int i = 0; i < CU_TABLES; i++) {
        const cu_table *t = &dev->seqs[i];
        if (t->size == n && memcmp(t->host, bytes, n) == 0) {
            return t->device;
        }
    }
    cu_table *t = &dev->seqs[dev->next_table];
    dev->next_table = (dev->next_table + 1) % CU_TABLES;
    if (!reserve(dev, t, n)) {
        return NULL;
    }
    memcpy(t->host, bytes, n);
    t->size = n;
    if (!cu_ok(dev, (int)cudaMemcpyAsync(t->device, t->host, n, cudaMemcpyHostToDevice, dev->stream), "table of sequences")) {
        t->size = 0;
        return NULL;
    }
    return t->device;
}

void cu_tables_free(cu_device *dev)
{
    for (int i = 0; i < CU_TABLES; i++) {
        free(dev->seqs[i].host);
        cudaFree(dev->seqs[i].device);
    }
    free(dev->building.host);
}

static size_t pages_of(const ops_seq *s, int32_t page_tokens)
{
    return page_tokens > 0 ? (size_t)((s->pos0 + s->n_rows + page_tokens - 1) / page_tokens) : 0;
}

bool cu_seqs_build(cu_device *dev, const ops_seq *seqs, int32_t n_seqs, int32_t page_tokens, size_t *n_bytes, size_t *row_seq_at)
{
    const size_t head = (size_t)n_seqs * sizeof(cu_seq);
    size_t n_rows = 0;
    size_t n_pages = 0;
    for (int32_t i = 0; i < n_seqs; i++) {
        const size_t end = (size_t)(seqs[i].row0 + seqs[i].n_rows);
        n_rows = end > n_rows ? end : n_rows;
        n_pages += pages_of(&seqs[i], page_tokens);
    }
    const size_t pages_at = (head + n_rows * sizeof(int32_t) + 7) / 8 * 8;
    const size_t bytes = pages_at + n_pages * sizeof(uint8_t *);
    if (!reserve_host(dev, &dev->building, bytes)) {
        return false;
    }
    uint8_t *table = dev->building.host;
    memset(table, 0, pages_at);
    int32_t *row_seq = (int32_t *)(void *)(table + head);
    size_t page = pages_at;
    for (int32_t i = 0; i < n_seqs; i++) {
        const ops_seq *s = &seqs[i];
        const cu_seq on_device = {.row0 = s->row0, .n_rows = s->n_rows, .pos0 = s->pos0, .window_from = s->window_from, .state = s->state,
                                  .pages_at = (int64_t)page};
        memcpy(table + (size_t)i * sizeof on_device, &on_device, sizeof on_device);
        for (int32_t t = 0; t < s->n_rows; t++) {
            row_seq[s->row0 + t] = i;
        }
        const size_t n = pages_of(s, page_tokens) * sizeof(uint8_t *);
        if (n > 0) {
            memcpy(table + page, s->pages, n);
        }
        page += n;
    }
    *n_bytes = bytes;
    *row_seq_at = head;
    return true;
}

/* In a pass that repeats the table is where it always is, if it is what the pass has announced. */
static const void *recorded_table(cu_device *dev, size_t n, bool pages)
{
    const cu_steps *s = &dev->steps;
    if (n != s->size[pages] || memcmp(s->host + s->at[pages], dev->building.host, n) != 0) {
        cu_refuse(dev, "step", "a table of sequences differs from the step's");
        return NULL;
    }
    return s->device + s->at[pages];
}

bool cu_seqs_of(cu_device *dev, const ops_seq *seqs, int32_t n_seqs, int32_t page_tokens, cu_seqs *out)
{
    size_t bytes;
    size_t head;
    if (!cu_seqs_build(dev, seqs, n_seqs, page_tokens, &bytes, &head)) {
        return false;
    }
    const void *table = dev->steps.recording != NULL ? recorded_table(dev, bytes, page_tokens > 0)
                                                     : cu_table_of(dev, dev->building.host, bytes);
    *out = (cu_seqs){.table = table, .n_seqs = n_seqs, .row_seq_at = (int64_t)head};
    return table != NULL;
}
