/* srv_auth.c - see srv_auth.h. */
#include "server/srv_auth.h"

#include "core/arith.h"
#include "core/err.h"
#include "core/file.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

#define MAX_FILE_BYTES (16u << 20)

bool srv_tenant_valid(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:@/+";
    const size_t n = strspn(name, allowed);
    return n > 0 && n <= SRV_MAX_TENANT_BYTES && name[n] == '\0';
}

static di_status digest_of(const srv_keys *keys, const char *secret, size_t n, uint8_t out[DIGEST_BYTES], di_error *err)
{
    uint8_t text[DIGEST_BYTES + SRV_MAX_KEY_BYTES];
    memcpy(text, keys->salt, DIGEST_BYTES);
    memcpy(text + DIGEST_BYTES, secret, n);
    const di_status status = digest_sha256(text, DIGEST_BYTES + n, out, err);
    explicit_bzero(text, sizeof text);
    return status;
}

static di_status add_key(srv_keys *keys, const char *secret, size_t n, srv_key_defaults defaults, srv_key **out, di_error *err)
{
    if (n == 0 || n > SRV_MAX_KEY_BYTES) {
        return err_set(err, DI_E_FORMAT, "an API key has 1 to %d bytes, not %zu", SRV_MAX_KEY_BYTES, n);
    }
    if (keys->n == keys->capacity) {
        const size_t capacity = keys->capacity > 0 ? 2 * keys->capacity : 16;
        srv_key *const items = ar_calloc(capacity, sizeof *items);
        if (items == NULL) {
            return err_memory(err, "API keys", capacity * sizeof *items);
        }
        if (keys->n > 0) {
            memcpy(items, keys->items, keys->n * sizeof *items);
        }
        free(keys->items);
        keys->items = items;
        keys->capacity = capacity;
    }
    srv_key *const key = &keys->items[keys->n];
    key->limit.rate = defaults.rate;
    key->limit.concurrency = defaults.concurrency;
    const di_status status = digest_of(keys, secret, n, key->digest, err);
    if (status == DI_OK) {
        keys->n++;
        *out = key;
    }
    return status;
}

/* --- The file ----------------------------------------------------------------------------------------------------------- */

static char *next_word(char **text)
{
    char *const word = *text + strspn(*text, " \t\r");
    char *const end = word + strcspn(word, " \t\r");
    *text = *end == '\0' ? end : end + 1;
    *end = '\0';
    return word;
}

static bool read_number(const char *text, int32_t min, int32_t max, int32_t *out)
{
    char *end = NULL;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < min || value > max) {
        return false;
    }
    *out = (int32_t)value;
    return true;
}

static di_status read_limit(srv_key *key, const char *word, di_error *err)
{
    const struct {
        const char *name;
        int32_t *value;
        int32_t min;
        int32_t max;
    } fields[] = {
        {"rate=", &key->limit.rate, 0, 60000000},
        {"concurrency=", &key->limit.concurrency, 0, 1 << 30},
        {"priority=", &key->priority, -1000, 1000},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const size_t n = strlen(fields[i].name);
        if (strncmp(word, fields[i].name, n) != 0) {
            continue;
        }
        if (!read_number(word + n, fields[i].min, fields[i].max, fields[i].value)) {
            return err_set(err, DI_E_FORMAT, "%s takes a whole number from %d to %d", fields[i].name, fields[i].min, fields[i].max);
        }
        return DI_OK;
    }
    return err_set(err, DI_E_FORMAT, "a key and its tenant are followed by rate=N, concurrency=N or priority=N only");
}

/* `KEY TENANT [limits]`. Messages never repeat the line: it holds a secret. */
static di_status read_line(srv_keys *keys, char *line, srv_key_defaults defaults, di_error *err)
{
    char *rest = line;
    const char *const secret = next_word(&rest);
    if (secret[0] == '\0' || secret[0] == '#') {
        return DI_OK;
    }
    const char *const tenant = next_word(&rest);
    srv_key *key;
    di_status status = add_key(keys, secret, strlen(secret), defaults, &key, err);
    if (status != DI_OK) {
        return status;
    }
    if (!srv_tenant_valid(tenant)) {
        return err_set(err, DI_E_FORMAT, "a key is followed by a tenant of 1 to %d letters, digits and -_.:@/+", SRV_MAX_TENANT_BYTES);
    }
    snprintf(key->tenant, sizeof key->tenant, "%s", tenant);
    for (const char *word = next_word(&rest); status == DI_OK && word[0] != '\0'; word = next_word(&rest)) {
        if (word[0] == '#') {
            break;
        }
        status = read_limit(key, word, err);
    }
    return status;
}

di_status srv_keys_add_text(srv_keys *keys, char *text, size_t size, const char *name, srv_key_defaults defaults, di_error *err)
{
    di_status status = DI_OK;
    size_t number = 0;
    for (char *line = text; status == DI_OK && line < text + size;) {
        char *const end = memchr(line, '\n', (size_t)(text + size - line));
        char *const next = end != NULL ? end + 1 : text + size;
        number++;
        if (end != NULL) {
            *end = '\0';
        }
        status = memchr(line, '\0', (size_t)(next - line - (end != NULL))) != NULL
                     ? err_set(err, DI_E_FORMAT, "a line holds a NUL byte")
                     : read_line(keys, line, defaults, err);
        line = next;
    }
    if (status != DI_OK) {
        err_prefix(err, "%s: line %zu", name, number);
    }
    return status;
}

static di_status read_file(srv_keys *keys, const char *path, srv_key_defaults defaults, di_error *err)
{
    char *text;
    size_t size;
    di_status status = file_read(path, MAX_FILE_BYTES, &text, &size, err);
    if (status != DI_OK) {
        return status;
    }
    status = srv_keys_add_text(keys, text, size, path, defaults, err);
    if (status == DI_OK && keys->n == 0) {
        status = err_set(err, DI_E_FORMAT, "%s: no API key in this file, so nobody could come in", path);
    }
    explicit_bzero(text, size);
    free(text);
    return status;
}

/* --- All together --------------------------------------------------------------------------------------------------------- */

static int by_digest(const void *a, const void *b)
{
    return memcmp(((const srv_key *)a)->digest, ((const srv_key *)b)->digest, DIGEST_BYTES);
}

static di_status read_all(srv_keys *keys, const char *const *list, size_t n_list, const char *file, srv_key_defaults defaults,
                          di_error *err)
{
    for (size_t i = 0; i < n_list; i++) {
        srv_key *key;
        const di_status status = add_key(keys, list[i], strlen(list[i]), defaults, &key, err);
        if (status != DI_OK) {
            return status;
        }
        snprintf(key->tenant, sizeof key->tenant, "key-%zu", i + 1);
    }
    return file != NULL ? read_file(keys, file, defaults, err) : DI_OK;
}

di_status srv_keys_open(srv_keys *keys, const char *const *list, size_t n_list, const char *file, srv_key_defaults defaults,
                        di_error *err)
{
    *keys = (srv_keys){.n = 0};
    if (getrandom(keys->salt, sizeof keys->salt, 0) != (ssize_t)sizeof keys->salt) {
        return err_set_errno(err, errno, "random bytes");
    }
    di_status status = read_all(keys, list, n_list, file, defaults, err);
    if (keys->n > 1) {
        qsort(keys->items, keys->n, sizeof *keys->items, by_digest);
    }
    for (size_t i = 1; status == DI_OK && i < keys->n; i++) {
        if (by_digest(&keys->items[i - 1], &keys->items[i]) == 0) {
            status = err_set(err, DI_E_FORMAT, "an API key is given twice (tenants \"%s\" and \"%s\")", keys->items[i - 1].tenant,
                             keys->items[i].tenant);
        }
    }
    if (status != DI_OK) {
        srv_keys_fini(keys);
    }
    return status;
}

void srv_keys_fini(srv_keys *keys)
{
    free(keys->items);
    keys->items = NULL;
    keys->n = 0;
    keys->capacity = 0;
}

srv_key *srv_keys_find(const srv_keys *keys, const char *secret)
{
    const size_t n = strnlen(secret, SRV_MAX_KEY_BYTES + 1);
    srv_key wanted;
    if (keys->n == 0 || n == 0 || n > SRV_MAX_KEY_BYTES || digest_of(keys, secret, n, wanted.digest, NULL) != DI_OK) {
        return NULL;
    }
    srv_key *const found = bsearch(&wanted, keys->items, keys->n, sizeof *keys->items, by_digest);
    return found != NULL && digest_equal(found->digest, wanted.digest) ? found : NULL;
}
