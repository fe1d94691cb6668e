/* Feeds bytes as a file of prepared weights (mdl_kept_file.h). The first byte says whether size and checksum of the head are made right
 * first, so that what lies behind them is reached too. Whatever is accepted lies inside of the file, in order, and can be read. */
#include "model/mdl_kept_int.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth)
{
    if (!truth) {
        abort();
    }
}

static void sign(uint8_t *bytes, size_t size)
{
    mdl_kept_head head;
    if (size < sizeof head) {
        return;
    }
    memcpy(&head, bytes, sizeof head);
    memcpy(head.magic, MDL_KEPT_MAGIC, sizeof head.magic);
    head.version = MDL_KEPT_VERSION;
    head.file_bytes = size;
    if (head.n_entries <= (size - sizeof head) / sizeof(mdl_kept_entry)) {
        mdl_kept_head_sum(&head, (const mdl_kept_entry *)(const void *)(bytes + sizeof head), head.sum);
    }
    memcpy(bytes, &head, sizeof head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const mdl_kept_entry *entries = NULL;
    size_t n = 0;
    di_error err = {.message = ""};
    if (size < 2) {
        return 0;
    }
    uint8_t *const bytes = malloc(size - 1); /* its own block, as aligned as a mapping: reads behind it are seen */
    require(bytes != NULL);
    memcpy(bytes, data + 1, size - 1);
    if (data[0] % 2 == 1) {
        sign(bytes, size - 1);
    }
    if (mdl_kept_check(bytes, size - 1, NULL, "fuzz", &entries, &n, &err) != DI_OK) {
        require(err.message[0] != '\0' && strchr(err.message, '\n') == NULL);
        free(bytes);
        return 0;
    }
    size_t end = sizeof(mdl_kept_head) + n * sizeof *entries;
    require(end <= size - 1);
    for (size_t i = 0; i < n; i++) {
        const mdl_kept_entry *const e = &entries[i];
        if (e->size > 0) {
            require(e->offset >= end && e->offset % MDL_KEPT_ALIGN == 0 && e->offset + e->size <= size - 1);
            end = (size_t)(e->offset + e->size);
        }
        (void)mdl_kept_sound(e, bytes + e->offset, true);
        (void)mdl_kept_sound(e, bytes + e->offset, false);
    }
    free(bytes);
    return 0;
}
