/* open.c - see open.h. */
#include "open.h"

#include <stdio.h>

#define MAX_PATH_BYTES 4096

di_status cli_open_model(const char *dir, di_model **out, di_error *err)
{
    char path[MAX_PATH_BYTES];
    if (dir == NULL) {
        const di_status status = di_model_default_path(path, sizeof path, err);
        if (status != DI_OK) {
            return status;
        }
        dir = path;
    }
    return di_model_open(dir, NULL, out, err);
}

di_status cli_open_tokenizer(const char *dir, const char *file, di_tokenizer **out, di_error *err)
{
    char path[MAX_PATH_BYTES];
    const char *from = file != NULL ? file : dir;
    if (from == NULL) {
        const di_status status = di_model_default_path(path, sizeof path, err);
        if (status != DI_OK) {
            return status;
        }
        from = path;
    }
    return di_tokenizer_open(from, out, err);
}

void cli_say_weights(const di_weight_stats *weights)
{
    if (weights->note[0] != '\0') {
        fprintf(stderr, "deepinfer: %s, %.3f s\n", weights->note, (double)weights->load_ns * 1e-9);
    }
    if (weights->placement[0] != '\0') {
        fprintf(stderr, "deepinfer: %s\n", weights->placement);
    }
}

void cli_say_engine_weights(const di_engine *engine)
{
    di_weight_stats weights;
    di_engine_get_weight_stats(engine, &weights);
    cli_say_weights(&weights);
}
