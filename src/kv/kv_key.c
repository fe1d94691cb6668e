/* kv_key.c - names of units: what a prefix is called in memory, on disk and between machines.
 *
 * Key of a unit = SHA-256(1 || namespace || parent key || 128 ids, little-endian || image digest). The parent key of a first unit is
 * SHA-256(0 || namespace || length of the salt, 8 bytes little-endian || SHA-256(salt)): the first byte keeps the two kinds apart, the
 * lengths are fixed, so no two different prefixes give the same bytes (serving.md 4.5; the salt against timing across tenants: 4.4).
 * Pure functions, any thread. */
#include "kv/kv_disk.h"

#include "core/digest.h"

#include <string.h>

_Static_assert(DIGEST_BYTES == KV_KEY_BYTES, "keys are SHA-256");

static const uint8_t no_image[KV_KEY_BYTES];

static uint8_t *put_bytes(uint8_t *to, const uint8_t *bytes)
{
    memcpy(to, bytes, KV_KEY_BYTES);
    return to + KV_KEY_BYTES;
}

bool kv_key_root(const uint8_t name_space[KV_KEY_BYTES], kv_salt salt, uint8_t out[KV_KEY_BYTES])
{
    uint8_t text[1 + KV_KEY_BYTES + 8 + KV_KEY_BYTES] = {0};
    uint8_t *const size = put_bytes(text + 1, name_space);
    for (size_t i = 0; i < 8; i++) {
        size[i] = (uint8_t)((uint64_t)salt.size >> (8 * i));
    }
    return digest_sha256(salt.size > 0 ? salt.data : "", salt.size, size + 8, NULL) == DI_OK &&
           digest_sha256(text, sizeof text, out, NULL) == DI_OK;
}

bool kv_key_next(const uint8_t name_space[KV_KEY_BYTES], const uint8_t parent[KV_KEY_BYTES], const int32_t ids[KV_UNIT_TOKENS],
                 const uint8_t *image, uint8_t out[KV_KEY_BYTES])
{
    uint8_t text[1 + 3 * KV_KEY_BYTES + 4 * KV_UNIT_TOKENS] = {1};
    uint8_t *to = put_bytes(put_bytes(text + 1, name_space), parent);
    for (size_t i = 0; i < KV_UNIT_TOKENS; i++) {
        const uint32_t id = (uint32_t)ids[i];
        for (int shift = 0; shift < 32; shift += 8) {
            *to++ = (uint8_t)(id >> shift);
        }
    }
    put_bytes(to, image != NULL ? image : no_image);
    return digest_sha256(text, sizeof text, out, NULL) == DI_OK;
}

/* Of the salt alone: a tenant is the same one in every namespace. */
bool kv_tenant_of(kv_salt salt, kv_tenant *out)
{
    uint8_t text[1 + KV_KEY_BYTES] = {2};
    uint8_t digest[KV_KEY_BYTES];
    if (digest_sha256(salt.size > 0 ? salt.data : "", salt.size, text + 1, NULL) != DI_OK ||
        digest_sha256(text, sizeof text, digest, NULL) != DI_OK) {
        return false;
    }
    memcpy(out->id, digest, sizeof out->id);
    return true;
}
