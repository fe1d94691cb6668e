/* Fuzzes the header of safetensors files (core/safetensors.c). Input: 4 bytes little-endian size of the data, then the header.
 * What is accepted must keep the promises of safetensors.h: extents tile the data, names are found and differ. */
#include "core/safetensors.h"

#include <stdlib.h>
#include <string.h>

static void require(bool truth)
{
    if (!truth) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4) {
        return 0;
    }
    const size_t data_size = (size_t)data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16 | (size_t)data[3] << 24;
    st_file *file;
    di_error err = {.message = ""};
    if (st_open_header((const char *)data + 4, size - 4, data_size, "fuzz", &file, &err) != DI_OK) {
        require(err.message[0] != '\0' && strchr(err.message, '\n') == NULL);
        return 0;
    }
    size_t total = 0;
    for (size_t i = 0; i < st_count(file); i++) {
        const st_tensor *const t = st_at(file, i);
        size_t bytes = st_dtype_bytes(t->dtype);
        for (int j = 0; j < t->n_dims; j++) {
            require(t->dims[j] >= 0);
            bytes *= (size_t)t->dims[j];
        }
        require(bytes == t->size);
        require(st_find(file, t->name) == t);
        total += t->size;
    }
    require(total == data_size);
    st_close(file);
    return 0;
}
