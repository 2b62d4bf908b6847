/* bits.c - prints a hash of the bits of many results, a line for each part of the library that promises the same bits on
 * every compiler, optimisation level and CPU. `make check` builds it in several ways and compares what they print. NaNs
 * are left out: no promise is made about their sign and payload. [NUM-1] */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "../ref/clover.h"
#include "../ref/files/quant.h"
#include "../ref/math/elementary.h"
#include "../ref/math/kernels.h"
#include "../ref/math/rowwise.h"
#include "random.h"

/* FNV-1a over the eight bytes of x, lowest first. */
static void hash_double(uint64_t *hash, double x) {
    uint64_t bits;
    if (x != x) x = 0.125;
    memcpy(&bits, &x, sizeof bits);
    for (int i = 0; i < 64; i += 8) *hash = (*hash ^ (bits >> i & 255)) * 0x100000001B3u;
}

static const uint64_t HASH_START = 0xCBF29CE484222325u;

static double either_sign(uint64_t *random, double x) { return random_bits(random) & 1 ? x : -x; }

static uint64_t elementary_hash(void) {
    uint64_t hash = HASH_START, random = 11;
    for (int i = 0; i < 100000; i++) {
        double any = either_sign(&random, random_magnitude(&random, -40, 9)), positive = random_magnitude(&random, -1022, 1023);
        hash_double(&hash, el_exp(any));
        hash_double(&hash, el_log(positive));
        hash_double(&hash, el_log(1.0 + 0x1p-10 * any));
        hash_double(&hash, el_log1p(any));
        hash_double(&hash, el_sin(any * 0x1p22));
        hash_double(&hash, el_cos(any * 0x1p22));
        hash_double(&hash, el_pow(positive, 0.01 * any));
    }
    return hash;
}

static uint64_t rowwise_hash(void) {
    enum { N = 1000 };
    double x[N], w[N], y[N];
    uint64_t hash = HASH_START, random = 12;
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < N; i++) {
            x[i] = either_sign(&random, random_magnitude(&random, -20, 8));
            w[i] = random_between(&random, -2.0, 2.0);
            hash_double(&hash, sigmoid(x[i]));
            hash_double(&hash, silu(x[i]));
            hash_double(&hash, softplus(x[i]));
            hash_double(&hash, round_to(STORE_BF16, x[i]));
            hash_double(&hash, round_to(STORE_F32, x[i]));
        }
        hash_double(&hash, dot_ascending(x, w, N));
        rms_norm(y, x, w, N, 1e-6);
        for (int i = 0; i < N; i++) hash_double(&hash, y[i]);
        l2_norm(y, x, N, 1e-6);
        for (int i = 0; i < N; i++) hash_double(&hash, y[i]);
        softmax(x, N);
        for (int i = 0; i < N; i++) hash_double(&hash, x[i]);
    }
    return hash;
}

typedef void Decode(DType type, const uint8_t *src, int64_t n, double *dst);
typedef void DecodeFloat(DType type, const uint8_t *src, int64_t n, float *dst);

static uint64_t decode_hash(Decode *decode, DecodeFloat *decode_float) {
    static const DType types[] = { DT_F32, DT_F64, DT_F16, DT_BF16, DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1, DT_Q8_0, DT_IQ4_NL,
                                   DT_Q2_K, DT_Q3_K, DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_IQ4_XS };
    enum { N = 2560 };
    static uint8_t bytes[N * 8];
    static double exact[N];
    static float single[N];
    uint64_t hash = HASH_START, random = 13;
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)random_bits(&random);
        decode(types[t], bytes, N, exact);
        decode_float(types[t], bytes, N, single);
        for (int i = 0; i < N; i++) {
            hash_double(&hash, exact[i]);
            hash_double(&hash, (double)single[i]);
        }
    }
    return hash;
}

static uint64_t encode_hash(void) {
    static const DType types[] = { DT_F16, DT_BF16, DT_Q8_0, DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1 };
    enum { N = 32 * 200 };
    static float x[N];
    static uint8_t bytes[N * 2];
    uint64_t hash = HASH_START, random = 14;
    for (int i = 0; i < N; i++) x[i] = (float)either_sign(&random, random_magnitude(&random, -12, -2));
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        quant_encode(types[t], x, N, bytes);
        for (int64_t i = 0; i < dtype_bytes(types[t], N); i++) hash_double(&hash, bytes[i]);
    }
    return hash;
}

/* The product of the kernels that this CPU gets: its order of summation is the same for all. */
static uint64_t dot_hash(void) {
    enum { N = 1003, ROWS = 7 };
    static double w[N], x[ROWS * N];
    double y[ROWS];
    uint64_t hash = HASH_START, random = 15;
    for (int i = 0; i < N; i++) w[i] = either_sign(&random, random_magnitude(&random, -20, 0));
    for (int i = 0; i < ROWS * N; i++) x[i] = either_sign(&random, random_magnitude(&random, -20, 0));
    kernels_best()->dot(w, x, N, ROWS, N, y, 1);
    for (int r = 0; r < ROWS; r++) hash_double(&hash, y[r]);
    return hash;
}

/* A whole model: commits, a preview and the state they leave. Run from the repository's root. */
static uint64_t forward_hash(void) {
    enum { V = 320, N = 40 };
    static double logits[2 * N * V];
    static CloverError err;
    CloverModel *model = NULL;
    CloverSession *s = NULL;
    CloverSessionOptions o = clover_session_defaults();
    int32_t ids[N];
    uint64_t hash = 0;
    for (int i = 0; i < N; i++) ids[i] = (i * 29 + 3) % V;
    o.coreset_top_p = 0.6;
    CloverStatus status = clover_model_open("tests/vectors/tiny-a/hf", NULL, &model, &err);
    if (status == CLOVER_OK) status = clover_session_new(model, &o, &s, &err);
    if (status == CLOVER_OK) status = clover_commit(s, ids, N, logits, N, &err);
    if (status == CLOVER_OK) status = clover_preview(s, ids, N, logits + N * V, &err);
    if (status == CLOVER_OK) {
        hash = clover_session_hash(s);
        for (int i = 0; i < 2 * N * V; i++) hash_double(&hash, logits[i]);
    } else fprintf(stderr, "bits: %s\n", err.text);
    clover_session_free(s);
    clover_model_close(model);
    return hash;
}

int main(void) {
    printf("elementary     %016" PRIx64 "\n", elementary_hash());
    printf("rowwise        %016" PRIx64 "\n", rowwise_hash());
    printf("decode         %016" PRIx64 "\n", decode_hash(quant_decode, quant_decode_float));
    printf("decode kernels %016" PRIx64 "\n", decode_hash(kernels_best()->decode, kernels_best()->decode_float));
    printf("encode         %016" PRIx64 "\n", encode_hash());
    printf("dot            %016" PRIx64 "\n", dot_hash());
    const uint64_t forward = forward_hash();
    printf("forward        %016" PRIx64 "\n", forward);
    return forward == 0;
}
