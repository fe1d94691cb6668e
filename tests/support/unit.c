/* unit.c - see unit.h. */
#include "support/unit.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *unit_scratch_new(void)
{
    char *const dir = strdup("scratch-XXXXXX");
    assert_non_null(dir);
    assert_non_null(mkdtemp(dir));
    return dir;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

void unit_scratch_remove(char *dir)
{
    assert_int_equal(nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    free(dir);
}

void unit_write(const char *dir, const char *name, const void *data, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void unit_expect_error(di_status status, di_status code, const di_error *err, ...)
{
    if (status != code) {
        fail_msg("status %s, expected %s: %s", di_status_name(status), di_status_name(code), err->message);
    }
    assert_int_equal(err->code, code);
    assert_null(strchr(err->message, '\n'));
    va_list texts;
    va_start(texts, err);
    for (const char *text = va_arg(texts, const char *); text != NULL; text = va_arg(texts, const char *)) {
        if (strstr(err->message, text) == NULL) {
            fail_msg("message does not mention \"%s\": %s", text, err->message);
        }
    }
    va_end(texts);
}

uint64_t unit_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint64_t unit_seed(void)
{
    const char *const text = getenv("DI_TEST_SEED");
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}
