/* srv_auth.h - API keys: who may come in, and as which tenant.
 *
 * Keys are kept as SHA-256 digests over a salt that is new in each process. A key is looked for by its digest, which whoever guesses
 * neither knows nor chooses, and the found one is compared in constant time. */
#ifndef SERVER_SRV_AUTH_H
#define SERVER_SRV_AUTH_H

#include "core/digest.h"
#include "server/srv_limit.h"

#define SRV_MAX_KEY_BYTES 512
#define SRV_MAX_TENANT_BYTES 128

typedef struct srv_key {
    uint8_t digest[DIGEST_BYTES];
    char tenant[SRV_MAX_TENANT_BYTES + 1];
    int32_t priority;
    srv_limit limit;
} srv_key;

/* Owned by the server; immutable but for the limits' counters, so any thread may look keys up. */
typedef struct srv_keys {
    srv_key *items; /* [n] by digest */
    size_t n;
    size_t capacity;
    uint8_t salt[DIGEST_BYTES];
} srv_keys;

/* What a key has unless its line says otherwise. */
typedef struct srv_key_defaults {
    int32_t rate;
    int32_t concurrency;
} srv_key_defaults;

/* Reads both sources; with neither there are no keys. Errors: DI_E_ARGUMENT, DI_E_FORMAT (file and line), DI_E_IO, DI_E_MEMORY. */
di_status srv_keys_open(srv_keys *keys, const char *const *list, size_t n_list, const char *file, srv_key_defaults defaults,
                        di_error *err);
void srv_keys_fini(srv_keys *keys);

/* A step of srv_keys_open: adds the keys of a file's text, which is written over; `name` is for messages. Errors: DI_E_FORMAT,
 * DI_E_MEMORY. */
di_status srv_keys_add_text(srv_keys *keys, char *text, size_t size, const char *name, srv_key_defaults defaults, di_error *err);

/* NULL when there is no such key. */
srv_key *srv_keys_find(const srv_keys *keys, const char *secret);

/* True for 1..SRV_MAX_TENANT_BYTES letters, digits and -_.:@/+ */
bool srv_tenant_valid(const char *name);

#endif
