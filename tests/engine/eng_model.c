/* eng_model.c - see eng_model.h. */
#include "engine/eng_model.h"

#include "support/unit.h"

#include <stdio.h>
#include <stdlib.h>

di_model *eng_model_open(const char *dir)
{
    char path[1024];
    di_error err;
    di_model *model = NULL;
    const char *const source = getenv("DI_SOURCE_DIR");
    assert_non_null(source);
    (void)snprintf(path, sizeof path, "%s/%s", source, dir);
    if (di_model_open(path, NULL, &model, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return model;
}
