/* Fuzzes config.json (model/mdl_config.c). What is accepted must be safe to compute with: the inventory of its tensors is walked and
 * every source must be an earlier layer of the same ratio. */
#include "model/mdl_config.h"
#include "model/mdl_inventory.h"

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
    mdl_config c;
    di_error err = {.message = ""};
    if (mdl_config_parse((const char *)data, size, &c, &err) != DI_OK) {
        require(err.message[0] != '\0' && strchr(err.message, '\n') == NULL);
        return 0;
    }
    for (int32_t layer = 0; layer < c.n_layers + c.draft.n_stages; layer++) {
        const int32_t source = c.kv_source[layer];
        require(c.ratio[layer] == 0 ? source == -1 : source >= 0 && source <= layer && c.ratio[source] == c.ratio[layer]);
    }
    require(c.rope_dim <= c.head_dim && c.n_active_experts <= c.n_experts && c.image_token_id < c.vocab);
    /* A configuration of the largest size has millions of tensors: slow to list, and nothing new. */
    if ((int64_t)(c.n_layers + c.draft.n_stages) * (c.n_experts + c.draft.n_experts) < 2000) {
        uint64_t n_tensors;
        uint64_t n_bytes;
        mdl_inventory_totals(&c, &n_tensors, &n_bytes);
        require(n_tensors >= 3 && n_bytes >= n_tensors);
    }
    return 0;
}
