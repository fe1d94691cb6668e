/* mdl_kept_file.c - see mdl_kept_file.h: reading. */
#include "model/mdl_kept_file.h"
#include "model/mdl_kept_int.h"

#include "core/arith.h"
#include "core/err.h"

#include <string.h>

_Static_assert(sizeof(mdl_kept_head) == 128, "the head as it is in files");
_Static_assert(sizeof(mdl_kept_entry) == 64, "an entry as it is in files");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian");

void mdl_kept_head_sum(const mdl_kept_head *head, const mdl_kept_entry *entries, uint8_t out[DIGEST_SUM_BYTES])
{
    uint8_t both[2 * DIGEST_SUM_BYTES];
    digest_sum(head, offsetof(mdl_kept_head, sum), both);
    digest_sum(entries, head->n_entries * sizeof *entries, both + DIGEST_SUM_BYTES);
    digest_sum(both, sizeof both, out);
}

static di_status damaged(const char *label, const char *what, di_error *err)
{
    return err_set(err, DI_E_FORMAT, "%s is damaged: %s", label, what);
}

static di_status check_head(const mdl_kept_head *head, size_t size, const char *label, di_error *err)
{
    if (memcmp(head->magic, MDL_KEPT_MAGIC, sizeof head->magic) != 0) {
        return err_set(err, DI_E_FORMAT, "%s is no file of prepared weights", label);
    }
    if (head->version != MDL_KEPT_VERSION) {
        return err_set(err, DI_E_FORMAT, "%s has version %u of its format, this program reads %d", label, head->version, MDL_KEPT_VERSION);
    }
    if (head->file_bytes != size) {
        return err_set(err, DI_E_FORMAT, "%s is damaged: %zu bytes, its head says %llu", label, size,
                       (unsigned long long)head->file_bytes);
    }
    if (head->n_entries > (size - sizeof *head) / sizeof(mdl_kept_entry)) {
        return damaged(label, "its table does not fit in", err);
    }
    return head->key.form[MDL_KEPT_FORM_BYTES - 1] == '\0' ? DI_OK : damaged(label, "its form has no name", err);
}

/* Forms lie behind the table, one after the other. */
static bool entries_fit(const mdl_kept_entry *entries, size_t n, size_t from, size_t size)
{
    for (size_t i = 0; i < n; i++) {
        const mdl_kept_entry *const e = &entries[i];
        if (e->format > OPS_FP4 || e->zero != 0 || e->n_out <= 0 || e->n_in <= 0) {
            return false;
        }
        if (e->size == 0) {
            if (e->offset != 0) {
                return false;
            }
            continue;
        }
        if (e->offset % MDL_KEPT_ALIGN != 0 || e->offset < from || e->offset > size || e->size > size - e->offset) {
            return false;
        }
        from = (size_t)(e->offset + e->size);
    }
    return true;
}

di_status mdl_kept_check(const uint8_t *data, size_t size, const mdl_kept_key *key, const char *label, const mdl_kept_entry **entries,
                         size_t *n_entries, di_error *err)
{
    mdl_kept_head head;
    uint8_t sum[DIGEST_SUM_BYTES];
    if (size < sizeof head) {
        return damaged(label, "it ends in its head", err);
    }
    memcpy(&head, data, sizeof head);
    const di_status status = check_head(&head, size, label, err);
    if (status != DI_OK) {
        return status;
    }
    const mdl_kept_entry *const table = (const mdl_kept_entry *)(const void *)(data + sizeof head); /* mapped, or aligned by the caller */
    mdl_kept_head_sum(&head, table, sum);
    if (memcmp(sum, head.sum, sizeof sum) != 0) {
        return damaged(label, "wrong checksum of its table", err);
    }
    if (!entries_fit(table, head.n_entries, sizeof head + head.n_entries * sizeof *table, size)) {
        return damaged(label, "an entry of its table is impossible", err);
    }
    if (key != NULL && memcmp(head.key.form, key->form, sizeof key->form) != 0) {
        return err_set(err, DI_E_STATE, "%s is of form %s, this device has %s", label, head.key.form, key->form);
    }
    if (key != NULL && memcmp(head.key.checkpoint, key->checkpoint, sizeof key->checkpoint) != 0) {
        return err_set(err, DI_E_STATE, "%s is of other weights than the checkpoint has now", label);
    }
    *entries = table;
    *n_entries = head.n_entries;
    return DI_OK;
}

uint64_t mdl_kept_piece(const uint8_t *form, size_t size)
{
    const size_t n = size < MDL_KEPT_PIECE ? size : MDL_KEPT_PIECE;
    return digest_hash(form + (size - n) / 2, n, size);
}

bool mdl_kept_sound(const mdl_kept_entry *entry, const uint8_t *form, bool whole)
{
    uint8_t sum[DIGEST_SUM_BYTES];
    if (entry->size == 0) {
        return true;
    }
    if (!whole) {
        return mdl_kept_piece(form, (size_t)entry->size) == entry->piece;
    }
    digest_sum(form, (size_t)entry->size, sum);
    return memcmp(sum, entry->sum, sizeof sum) == 0;
}
