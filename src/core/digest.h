/* digest.h - SHA-256 (wraps OpenSSL), a checksum against accidents and a hash for tables (wrap xxHash). */
#ifndef CORE_DIGEST_H
#define CORE_DIGEST_H

#include <deepinfer/base.h>

#define DIGEST_BYTES 32
#define DIGEST_HEX_BYTES 65

di_status digest_sha256(const void *data, size_t size, uint8_t out[DIGEST_BYTES], di_error *err);
/* Takes the same time wherever the two differ. */
bool digest_equal(const uint8_t a[DIGEST_BYTES], const uint8_t b[DIGEST_BYTES]);

void digest_hex(const uint8_t digest[DIGEST_BYTES], char out[DIGEST_HEX_BYTES]);

/* A checksum (XXH3-128, its canonical bytes): finds what disks and wires do to data, not what people do. */
#define DIGEST_SUM_BYTES 16
void digest_sum(const void *data, size_t size, uint8_t out[DIGEST_SUM_BYTES]);

/* For hash tables (XXH3). Names that outsiders choose need a seed that they don't know. */
uint64_t digest_hash(const void *data, size_t size, uint64_t seed);

#endif
