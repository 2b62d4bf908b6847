/* sha256.c - SHA-256 by libcrypto. */
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sha256.h"

CloverStatus sha256_begin(Sha256 *s, CloverError *err) {
    *s = (Sha256){ .context = EVP_MD_CTX_new() };
    if (s->context && EVP_DigestInit_ex(s->context, EVP_sha256(), NULL) == 1) return CLOVER_OK;
    EVP_MD_CTX_free(s->context);
    s->context = NULL;
    return error_memory(err, "a hash", 0);
}

void sha256_add(Sha256 *s, const void *bytes, size_t n) {
    if (n > 0 && EVP_DigestUpdate(s->context, bytes, n) != 1) s->failed = true;
}

CloverStatus sha256_end(Sha256 *s, char hex[SHA256_HEX], CloverError *err) {
    unsigned char digest[EVP_MAX_MD_SIZE] = { 0 };
    const bool failed = s->failed || EVP_DigestFinal_ex(s->context, digest, NULL) != 1;
    EVP_MD_CTX_free(s->context);
    *s = (Sha256){ 0 };
    if (failed) return error_set(err, CLOVER_BUG, "libcrypto could not hash");
    for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return CLOVER_OK;
}

CloverStatus sha256_file(const char *path, char hex[SHA256_HEX], CloverError *err) {
    enum { PIECE = 1 << 18 };
    Sha256 s;
    FILE *f = fopen(path, "rb");
    if (!f) return error_set(err, CLOVER_SYSTEM, "cannot read %s: %s", path, strerror(errno));
    unsigned char *piece = malloc(PIECE);
    CloverStatus status = piece ? sha256_begin(&s, err) : error_memory(err, path, PIECE);
    if (status == CLOVER_OK) {
        errno = 0;
        for (size_t n; (n = fread(piece, 1, PIECE, f)) > 0;) sha256_add(&s, piece, n);
        const int error = ferror(f) ? (errno ? errno : EIO) : 0;
        status = sha256_end(&s, hex, err);
        if (error) status = error_set(err, CLOVER_SYSTEM, "cannot read %s: %s", path, strerror(error));
    }
    free(piece);
    fclose(f);
    return status;
}
