/* Fuzzes model.safetensors.index.json (model/mdl_checkpoint.c). */
#include "model/mdl_checkpoint.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n_tensors = 0;
    di_error err = {.message = ""};
    const di_status status = mdl_checkpoint_check_index((const char *)data, size, &n_tensors, &err);
    const bool told = err.message[0] != '\0' && strchr(err.message, '\n') == NULL;
    if (status == DI_OK ? n_tensors == 0 : !told) {
        abort();
    }
    return 0;
}
