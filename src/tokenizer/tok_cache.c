/* tok_cache.c - the compiled cache file: the flat tables of a tokenizer as they lie in memory, to be mapped instead of built
 * (tokenizer.md 9).
 *
 * One file for each path of a tokenizer.json: a head, then the tables in the order of list_tables, each at a multiple of 64. The
 * head names the SHA-256 of the JSON, and a stamp (size, times, inode, device) as it was when the digest was taken. While the
 * stamp is the same, the JSON is not read at all; when it differs, the digest decides and the file gets the new stamp. The
 * change time is part of the stamp, so that a program can't hide an edit by setting the modification time back; a stamp
 * taken within a second of the change is not believed (the clock of the file system is coarse; git calls such entries racy).
 *
 * A cache is never the reason of an error: whatever is wrong with it, the tokenizer is built from the JSON. Before use the
 * file must be this user's, its size and XXH3 checksum must fit, and every index in it is checked, so that even a forged
 * file cannot lead outside the tables. Written under another name and renamed; readers map the old or the new one. */
#include "tokenizer/tok_cache.h"

#include "core/arith.h"
#include "core/file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define N_TABLES 11
#define TABLE_ALIGN 64u
#define RACY_NS 1000000000

/* Where a table lies in a di_tokenizer, and its size there. */
typedef struct table {
    void **data;
    size_t bytes;
} table;

static size_t aligned(size_t offset)
{
    return (offset + TABLE_ALIGN - 1) & ~(size_t)(TABLE_ALIGN - 1);
}

/* The sizes follow from the numbers in the head alone; n_bytes is what the spellings and their padding take. */
static void list_tables(di_tokenizer *tok, size_t n_bytes, table out[N_TABLES])
{
    const size_t n = (size_t)tok->n_ids;
    const size_t n_pairs = (size_t)1 << (64 - tok->pairs.shift);
    const table all[N_TABLES] = {
        {(void **)&tok->offset, (n + 1) * sizeof *tok->offset},
        {(void **)&tok->bytes, n_bytes},
        {(void **)&tok->flags, n},
        {(void **)&tok->pairs.slots, n_pairs * sizeof *tok->pairs.slots},
        {(void **)&tok->pairs.filter, (n_pairs << TOK_FILTER_LOG2) / 8},
        {(void **)&tok->pieces.slots, sizeof *tok->pieces.slots << (64 - tok->pieces.shift)},
        {(void **)&tok->words.slots, sizeof *tok->words.slots << (64 - tok->words.shift)},
        {(void **)&tok->added.nodes, tok->added.n_nodes * sizeof *tok->added.nodes},
        {(void **)&tok->cjk, TOK_N_CJK * sizeof *tok->cjk},
        {(void **)&tok->seams, ((size_t)1 << TOK_SEAMS_LOG2) / 8},
        {(void **)&tok->byte_pair, 256 * 256 * sizeof *tok->byte_pair},
    };
    memcpy(out, all, sizeof all);
}

static size_t file_size(const table tables[N_TABLES])
{
    size_t size = sizeof(tok_cache_head);
    for (int i = 0; i < N_TABLES; i++) {
        size = aligned(size) + tables[i].bytes;
    }
    return size;
}

/* ---- reading ---- */

static bool in_range(int32_t id, int32_t low, int32_t n_ids)
{
    return id >= low && id < n_ids;
}

static bool ids_fit(const int32_t *ids, size_t n, int32_t low, int32_t n_ids)
{
    bool fit = true;
    for (size_t i = 0; i < n; i++) {
        fit = fit & in_range(ids[i], low, n_ids);
    }
    return fit;
}

static bool head_fits(const tok_cache_head *head)
{
    return memcmp(head->magic, TOK_CACHE_MAGIC, sizeof head->magic) == 0 && head->version == TOK_CACHE_VERSION &&
           head->n_ids >= 256 && head->n_ids <= TOK_MAX_IDS && head->max_token_bytes >= 1 &&
           head->max_token_bytes <= TOK_MAX_TOKEN_BYTES && head->n_bytes >= TOK_PAD && head->n_bytes <= UINT32_MAX &&
           head->shifts[0] >= 40 && head->shifts[0] <= 60 && head->shifts[1] >= 40 && head->shifts[1] <= 60 &&
           head->shifts[2] >= 40 && head->shifts[2] <= 60 && head->n_nodes >= 1 && head->n_nodes <= INT32_MAX &&
           head->whole_pieces <= 1 && ids_fit(head->byte_id, 256, 0, head->n_ids);
}

/* Spellings lie one behind the other, none empty, none longer than the head says. */
static bool tokens_fit(const di_tokenizer *tok, size_t n_bytes)
{
    bool fit = tok->offset[0] == 0;
    for (int32_t id = 0; id < tok->n_ids; id++) {
        fit = fit & (tok->offset[id + 1] - tok->offset[id] - 1 < tok->max_token_bytes) & (tok->offset[id] < tok->offset[id + 1]);
    }
    return fit && tok->offset[tok->n_ids] == n_bytes - TOK_PAD;
}

/* Every id of the hash tables exists, and an empty slot ends every search. */
static bool slots_fit(const di_tokenizer *tok)
{
    const uint64_t n_ids = (uint64_t)tok->n_ids;
    bool fit = true;
    size_t n_empty[3] = {0};
    for (size_t i = 0; i < (size_t)1 << (64 - tok->pairs.shift); i++) {
        fit = fit & ((tok->pairs.slots[i] & 0xFFFFF) < n_ids);
        n_empty[0] += tok->pairs.slots[i] == 0;
    }
    for (size_t i = 0; i < (size_t)1 << (64 - tok->pieces.shift); i++) {
        const uint64_t slot = tok->pieces.slots[i];
        fit = fit & ((slot & 0xFFFFFFFF) - (slot != 0) < n_ids);
        n_empty[1] += slot == 0;
    }
    for (size_t i = 0; i < (size_t)1 << (64 - tok->words.shift); i++) {
        fit = fit & (tok->words.slots[i].rest >> 40 < n_ids);
        n_empty[2] += tok->words.slots[i].rest == 0;
    }
    return fit && n_empty[0] != 0 && n_empty[1] != 0 && n_empty[2] != 0;
}

/* Children come after their parent and siblings before one another, so that no walk goes round. */
static bool added_fits(const di_tokenizer *tok)
{
    const tok_added *added = &tok->added;
    bool fit = true;
    for (uint32_t i = 0; i < added->n_nodes; i++) {
        const tok_node *node = &added->nodes[i];
        fit = fit && node->child < added->n_nodes && (node->child == 0 || node->child > i) &&
              (node->sibling == 0 || node->sibling < i) && ids_fit(node->id, TOK_PASSES, TOK_NONE, tok->n_ids);
    }
    for (int pass = 0; pass < TOK_PASSES; pass++) {
        fit = fit && added->n_lead[pass] >= 0 && added->n_lead[pass] <= 256;
        for (int byte = 0; fit && byte < 256; byte++) {
            fit = added->first[pass][byte] < added->n_nodes;
        }
    }
    return fit;
}

di_tokenizer *tok_cache_adopt(file_map *map)
{
    tok_cache_head head;
    if (map->size < sizeof head) {
        return NULL;
    }
    memcpy(&head, map->data, sizeof head);
    if (!head_fits(&head)) {
        return NULL;
    }
    di_tokenizer *tok = calloc(1, sizeof *tok);
    if (tok == NULL) {
        return NULL;
    }
    (void)pthread_mutex_init(&tok->lock, NULL);
    tok->cut = tok_cut_variant(0);
    tok->n_ids = head.n_ids;
    tok->n_base = head.n_base;
    tok->whole_pieces = head.whole_pieces != 0;
    tok->max_token_bytes = (size_t)head.max_token_bytes;
    memcpy(tok->byte_id, head.byte_id, sizeof tok->byte_id);
    tok->pairs.shift = head.shifts[0];
    tok->pieces.shift = head.shifts[1];
    tok->words.shift = head.shifts[2];
    tok->added.n_nodes = tok->added.capacity = head.n_nodes;
    memcpy(tok->added.first, head.first, sizeof head.first);
    memcpy(tok->added.lead, head.lead, sizeof head.lead);
    memcpy(tok->added.n_lead, head.n_lead, sizeof head.n_lead);
    tok->mapped = *map; /* from here on closing the tokenizer unmaps */
    table tables[N_TABLES];
    list_tables(tok, (size_t)head.n_bytes, tables);
    bool fit = file_size(tables) == map->size;
    size_t offset = sizeof head;
    for (int i = 0; fit && i < N_TABLES; i++) {
        offset = aligned(offset);
        *tables[i].data = (void *)(uintptr_t)(map->data + offset); /* read-only: nothing writes to an open tokenizer */
        offset += tables[i].bytes;
    }
    fit = fit && tok_cache_checksum(map->data, map->size) == head.checksum && tokens_fit(tok, (size_t)head.n_bytes) &&
          slots_fit(tok) && added_fits(tok) && ids_fit(tok->cjk, TOK_N_CJK, TOK_NONE, tok->n_ids) &&
          ids_fit(tok->byte_pair, 256 * 256, TOK_NONE, tok->n_ids);
    if (!fit) {
        tok->mapped = (file_map){0}; /* stays with the caller */
        free(tok);
        return NULL;
    }
    *map = (file_map){0};
    return tok;
}

uint64_t tok_cache_checksum(const uint8_t *file, size_t size)
{
    return XXH3_64bits(file + TOK_CACHE_SUMMED, size - TOK_CACHE_SUMMED);
}

/* A file of another user could say anything about the text; one that anyone may write, too. */
static bool trusted(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && (info.st_uid == geteuid() || info.st_uid == 0) &&
           (info.st_mode & S_IWOTH) == 0;
}

di_tokenizer *tok_cache_load(const char *file, tok_stamp *stamp, uint8_t digest[DIGEST_BYTES])
{
    file_map map;
    if (!trusted(file) || file_map_open(file, &map, NULL) != DI_OK) {
        return NULL;
    }
    di_tokenizer *const tok = tok_cache_adopt(&map);
    if (tok != NULL) {
        const tok_cache_head *const head = (const tok_cache_head *)(const void *)tok->mapped.data;
        *stamp = head->stamp;
        memcpy(digest, head->digest, DIGEST_BYTES);
    }
    file_map_close(&map); /* empty when adopted */
    return tok;
}

/* ---- writing ---- */

void tok_cache_store(const char *file, const tok_stamp *stamp, const uint8_t digest[DIGEST_BYTES], const di_tokenizer *tok)
{
    static const uint8_t padding[TABLE_ALIGN];
    tok_cache_head head = {
        .version = TOK_CACHE_VERSION,
        .n_ids = tok->n_ids,
        .n_base = tok->n_base,
        .whole_pieces = tok->whole_pieces ? 1 : 0,
        .max_token_bytes = (uint32_t)tok->max_token_bytes,
        .n_bytes = (uint64_t)tok->offset[tok->n_ids] + TOK_PAD,
        .shifts = {tok->pairs.shift, tok->pieces.shift, tok->words.shift},
        .n_nodes = tok->added.n_nodes,
        .stamp = *stamp,
    };
    memcpy(head.magic, TOK_CACHE_MAGIC, sizeof head.magic);
    memcpy(head.digest, digest, DIGEST_BYTES);
    memcpy(head.byte_id, tok->byte_id, sizeof head.byte_id);
    memcpy(head.first, tok->added.first, sizeof head.first);
    memcpy(head.lead, tok->added.lead, sizeof head.lead);
    memcpy(head.n_lead, tok->added.n_lead, sizeof head.n_lead);
    di_tokenizer shallow = *tok; /* list_tables wants to be able to write */
    table tables[N_TABLES];
    list_tables(&shallow, (size_t)head.n_bytes, tables);
    file_part parts[1 + 2 * N_TABLES] = {{&head, sizeof head}};
    size_t offset = sizeof head;
    size_t n_parts = 1;
    XXH3_state_t *const sum = XXH3_createState();
    if (sum == NULL) {
        return;
    }
    (void)XXH3_64bits_reset(sum);
    (void)XXH3_64bits_update(sum, (const uint8_t *)&head + TOK_CACHE_SUMMED, sizeof head - TOK_CACHE_SUMMED);
    for (int i = 0; i < N_TABLES; i++) {
        parts[n_parts++] = (file_part){padding, aligned(offset) - offset};
        parts[n_parts++] = (file_part){*tables[i].data, tables[i].bytes};
        offset = aligned(offset) + tables[i].bytes;
        (void)XXH3_64bits_update(sum, parts[n_parts - 2].data, parts[n_parts - 2].size);
        (void)XXH3_64bits_update(sum, parts[n_parts - 1].data, parts[n_parts - 1].size);
    }
    head.checksum = XXH3_64bits_digest(sum);
    (void)XXH3_freeState(sum);
    (void)file_write_parts(file, parts, n_parts, NULL); /* a cache that can't be written is none */
}

/* ---- names and stamps ---- */

bool tok_stamp_take(const char *path, tok_stamp *out)
{
    struct stat info;
    struct timespec now;
    if (stat(path, &info) != 0 || clock_gettime(CLOCK_REALTIME, &now) != 0) {
        return false;
    }
    *out = (tok_stamp){
        .size = (uint64_t)info.st_size,
        .modified_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec,
        .changed_ns = (int64_t)info.st_ctim.tv_sec * 1000000000 + info.st_ctim.tv_nsec,
        .inode = (uint64_t)info.st_ino,
        .device = (uint64_t)info.st_dev,
    };
    const int64_t age = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - out->changed_ns;
    out->believed = age > RACY_NS;
    return true;
}

bool tok_stamp_same(const tok_stamp *a, const tok_stamp *b)
{
    return a->believed != 0 && b->believed != 0 && memcmp(a, b, sizeof *a) == 0;
}

/* Makes the folder and those above it. The result shows when the file is written. */
static void make_folders(char *folder)
{
    for (char *slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(folder, 0700);
        *slash = '/';
    }
    (void)mkdir(folder, 0700);
}

static bool default_folder(char *out, size_t capacity)
{
    const char *const own = getenv("DI_CACHE_DIR");
    const char *const xdg = getenv("XDG_CACHE_HOME");
    const char *const home = getenv("HOME");
    int n = -1;
    if (own != NULL) {
        n = snprintf(out, capacity, "%s", own);
    } else if (xdg != NULL && xdg[0] == '/') {
        n = snprintf(out, capacity, "%s/deepinfer", xdg);
    } else if (home != NULL && home[0] == '/') {
        n = snprintf(out, capacity, "%s/.cache/deepinfer", home);
    }
    return n > 0 && (size_t)n < capacity;
}

char *tok_cache_path(const char *folder, const char *json)
{
    char base[PATH_MAX];
    if (folder == NULL ? !default_folder(base, sizeof base) : folder[0] == '\0' || strlen(folder) >= sizeof base) {
        return NULL;
    }
    if (folder != NULL) {
        (void)snprintf(base, sizeof base, "%s", folder);
    }
    char *const real = realpath(json, NULL);
    if (real == NULL) {
        return NULL;
    }
    char name[64];
    (void)snprintf(name, sizeof name, "tokenizer-%016llx.v%d", (unsigned long long)XXH3_64bits(real, strlen(real)),
                   TOK_CACHE_VERSION);
    free(real);
    make_folders(base);
    return file_path_join(base, name);
}
