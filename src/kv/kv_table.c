/* kv_table.c - the segments of a directory: their names, and a table of those that are known. */
#include "kv/kv_disk_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- names: "WW-BBBBBBBBBBBBBB-NNNNNNNNNNNNNNNN.kvs", writer, time of birth and nonce in hexadecimal ---- */

enum { NAME_LENGTH = 2 + 1 + 14 + 1 + 16 + 4 };

void kv_segment_name(uint64_t id, uint64_t nonce, char out[KV_SEGMENT_NAME_BYTES])
{
    snprintf(out, KV_SEGMENT_NAME_BYTES, "%02x-%014llx-%016llx.kvs", (unsigned)kv_segment_writer(id),
             (unsigned long long)kv_segment_born(id), (unsigned long long)nonce);
}

static bool read_hex(const char *text, int n, uint64_t *out)
{
    uint64_t value = 0;
    for (int i = 0; i < n; i++) {
        const char c = text[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) {
            return false;
        }
        value = value << 4 | (uint64_t)digit;
    }
    *out = value;
    return true;
}

bool kv_segment_parse(const char *name, uint64_t *id, uint64_t *nonce)
{
    uint64_t writer;
    uint64_t born;
    if (strlen(name) != NAME_LENGTH || name[2] != '-' || name[17] != '-' || strcmp(name + 34, ".kvs") != 0 ||
        !read_hex(name, 2, &writer) || !read_hex(name + 3, 14, &born) || !read_hex(name + 18, 16, nonce) || writer >= KV_WRITERS) {
        return false;
    }
    *id = writer << 56 | born;
    return true;
}

/* ---- the table ---- */

kv_segment *kv_segment_new(uint64_t id, uint64_t nonce)
{
    kv_segment *const segment = calloc(1, sizeof *segment);
    if (segment != NULL) {
        segment->id = id;
        segment->nonce = nonce;
        segment->read_fd = -1;
        kv_segment_name(id, nonce, segment->name);
    }
    return segment;
}

static size_t bucket_of(uint64_t id)
{
    return (size_t)(id * 0x9E3779B97F4A7C15u >> 54);
}

void kv_table_add(kv_table *table, kv_segment *segment)
{
    kv_segment **const bucket = &table->buckets[bucket_of(segment->id)];
    segment->next = *bucket;
    *bucket = segment;
    table->n++;
}

static void segment_free(kv_segment *segment)
{
    if (segment->read_fd >= 0) {
        close(segment->read_fd);
    }
    free(segment);
}

void kv_table_remove(kv_table *table, kv_segment *segment)
{
    kv_segment **link = &table->buckets[bucket_of(segment->id)];
    while (*link != segment) {
        link = &(*link)->next;
    }
    *link = segment->next;
    table->n--;
    segment_free(segment);
}

kv_segment *kv_table_find(const kv_table *table, uint64_t id)
{
    kv_segment *segment = table->buckets[bucket_of(id)];
    while (segment != NULL && segment->id != id) {
        segment = segment->next;
    }
    return segment;
}

kv_segment *kv_table_next(const kv_table *table, const kv_segment *after)
{
    if (after != NULL && after->next != NULL) {
        return after->next;
    }
    for (size_t i = after != NULL ? bucket_of(after->id) + 1 : 0; i < KV_TABLE_BUCKETS; i++) {
        if (table->buckets[i] != NULL) {
            return table->buckets[i];
        }
    }
    return NULL;
}

void kv_table_fini(kv_table *table)
{
    for (kv_segment *segment = kv_table_next(table, NULL); segment != NULL; segment = kv_table_next(table, NULL)) {
        kv_table_remove(table, segment);
    }
}
