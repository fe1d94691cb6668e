/* digest.c - see digest.h. */
#include "core/digest.h"

#include "core/err.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <xxhash.h>

di_status digest_sha256(const void *data, size_t size, uint8_t out[DIGEST_BYTES], di_error *err)
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned int digest_size = 0;
    if (EVP_Digest(data, size, digest, &digest_size, EVP_sha256(), NULL) != 1 || digest_size != DIGEST_BYTES) {
        return err_set(err, DI_E_INTERNAL, "SHA-256 is not available in the installed OpenSSL");
    }
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        out[i] = digest[i];
    }
    return DI_OK;
}

bool digest_equal(const uint8_t a[DIGEST_BYTES], const uint8_t b[DIGEST_BYTES])
{
    return CRYPTO_memcmp(a, b, DIGEST_BYTES) == 0;
}

void digest_sum(const void *data, size_t size, uint8_t out[DIGEST_SUM_BYTES])
{
    XXH128_canonical_t canonical;
    _Static_assert(sizeof canonical == DIGEST_SUM_BYTES, "128 bits");
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, size));
    for (size_t i = 0; i < DIGEST_SUM_BYTES; i++) {
        out[i] = canonical.digest[i];
    }
}

uint64_t digest_hash(const void *data, size_t size, uint64_t seed) { return XXH3_64bits_withSeed(data, size, seed); }

void digest_hex(const uint8_t digest[DIGEST_BYTES], char out[DIGEST_HEX_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[DIGEST_HEX_BYTES - 1] = '\0';
}
