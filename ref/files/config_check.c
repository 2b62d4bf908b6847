/* config_check.c - what a model's numbers must satisfy, wherever they come from. [CFG-5] */
#include <math.h>
#include <string.h>
#include "../error.h"
#include "config.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct { const char *name; size_t field; int64_t most; } sizes[] = {
    { "number of layers",         offsetof(CloverConfig, layers),       CLOVER_MAX_LAYERS },
    { "hidden size",              offsetof(CloverConfig, hidden),       INT32_MAX },
    { "vocabulary",               offsetof(CloverConfig, vocab),        INT32_MAX },
    { "context",                  offsetof(CloverConfig, context),      INT64_MAX },
    { "number of query heads",    offsetof(CloverConfig, heads),        INT32_MAX },
    { "number of KV heads",       offsetof(CloverConfig, kv_heads),     INT32_MAX },
    { "head width",               offsetof(CloverConfig, head_width),   INT32_MAX },
    { "number of rotary dims",    offsetof(CloverConfig, rotary_dims),  INT32_MAX },
    { "number of GDN key heads",  offsetof(CloverConfig, key_heads),    INT32_MAX },
    { "number of GDN value heads", offsetof(CloverConfig, value_heads), INT32_MAX },
    { "GDN key width",            offsetof(CloverConfig, key_width),    INT32_MAX },
    { "GDN value width",          offsetof(CloverConfig, value_width),  INT32_MAX },
    { "number of conv taps",      offsetof(CloverConfig, taps),         INT32_MAX },
    { "number of experts",        offsetof(CloverConfig, experts),      INT32_MAX },
    { "number of experts used",   offsetof(CloverConfig, experts_used), INT32_MAX },
    { "expert width",             offsetof(CloverConfig, expert_width), INT32_MAX },
    { "shared expert width",      offsetof(CloverConfig, shared_width), INT32_MAX },
};

/* No array may have more elements, so that its bytes can be counted too. */
static const int64_t MOST_ELEMENTS = (int64_t)1 << 56;

static int64_t times(int64_t a, int64_t b) { return a > MOST_ELEMENTS / b ? MOST_ELEMENTS : a * b; }   /* saturates; a, b > 0 */

static void check_products(const CloverConfig *c, const char *where, CloverError *err) {
    const int64_t D = c->hidden, K = times(c->key_heads, c->key_width), Vd = times(c->value_heads, c->value_width);
    const int64_t C = K + K + Vd;
    const struct { const char *name; int64_t elements; } arrays[] = {
        { "the embedding",         times(c->vocab, D) },
        { "attention q and gate",  times(times(c->heads, 2 * c->head_width), D) },
        { "the GDN projection",    times(C, D) },
        { "the GDN conv",          times(C, c->taps) },
        { "the GDN state",         times(times(Vd, c->key_width), c->layers) },
        { "the router",            times(c->experts, D) },
        { "the experts",           times(times(c->experts, 2 * c->expert_width), D) },
        { "the shared expert",     times(c->shared_width, D) },
    };
    for (size_t i = 0; i < COUNT(arrays); i++)
        if (arrays[i].elements >= MOST_ELEMENTS)
            error_add(err, CLOVER_BAD_INPUT, "%s: absurd sizes: %s would have more than 2^56 elements", where, arrays[i].name);
}

static void check_real(const char *where, const char *name, double x, double least, bool open, CloverError *err) {
    if (isnan(x) && err->status != CLOVER_OK) return;   /* what could not be read was reported */
    if (isfinite(x) && (open ? x > least : x >= least)) return;
    error_add(err, CLOVER_BAD_INPUT, "%s: %s: expected a finite number %s %g, found %g", where, name,
              open ? "above" : "of at least", least, x);
}

static void check_id(const CloverConfig *c, const char *where, const char *name, int64_t id, CloverError *err) {
    if (id < -1 || id >= c->vocab)
        error_add(err, CLOVER_BAD_INPUT, "%s: %s: id %lld lies outside the vocabulary of %lld", where, name, (long long)id,
                  (long long)c->vocab);
}

static void check_multiple(const char *where, const char *name, int64_t n, const char *of, int64_t unit, CloverError *err) {
    if (n % unit != 0)
        error_add(err, CLOVER_BAD_INPUT, "%s: %s: expected a multiple of the %s (%lld), found %lld", where, name, of,
                  (long long)unit, (long long)n);
}

static void check_controls(const CloverControls *k, const char *where, CloverError *err) {
    const struct { const char *name; double value; } reals[] = {
        { "frequency_penalty", k->frequency_penalty }, { "presence_penalty", k->presence_penalty },
        { "dllm_length_penalty", k->dllm_length_penalty }, { "dllm_think_end_bias", k->dllm_think_end_bias },
    };
    for (size_t i = 0; i < COUNT(reals); i++)
        if (!isfinite(reals[i].value))
            error_add(err, CLOVER_BAD_INPUT, "%s: %s: expected a finite number, found %g", where, reals[i].name, reals[i].value);
    check_real(where, "repetition_penalty", k->repetition_penalty, 0, true, err);
    const struct { const char *name; int64_t value; } windows[] = {
        { "dllm_length_penalty_window", k->dllm_length_penalty_window }, { "dllm_think_end_window", k->dllm_think_end_window },
    };
    for (size_t i = 0; i < COUNT(windows); i++)
        if (windows[i].value < 1)
            error_add(err, CLOVER_BAD_INPUT, "%s: %s: expected at least 1, found %lld", where, windows[i].name,
                      (long long)windows[i].value);
}

CloverStatus config_check(const CloverConfig *c, const char *where, CloverError *err) {
    bool sane = true;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        int64_t n;
        memcpy(&n, (const char *)c + sizes[i].field, sizeof n);
        if (n >= 1 && n <= sizes[i].most) continue;
        sane = false;
        if (n == CONFIG_REPORTED && err->status != CLOVER_OK) continue;   /* reported where it was read */
        error_add(err, n < 1 ? CLOVER_BAD_INPUT : CLOVER_UNSUPPORTED, "%s: %s: expected 1 to %lld, found %lld", where,
                  sizes[i].name,
                  (long long)sizes[i].most, (long long)n);
    }
    if (sane) {
        check_multiple(where, "number of query heads", c->heads, "number of KV heads", c->kv_heads, err);
        check_multiple(where, "number of GDN value heads", c->value_heads, "number of GDN key heads", c->key_heads, err);
        check_multiple(where, "number of rotary dims", c->rotary_dims, "pair", 2, err);
        if (c->rotary_dims > c->head_width)
            error_add(err, CLOVER_BAD_INPUT, "%s: number of rotary dims: expected at most the head width (%lld), found %lld",
                      where,
                      (long long)c->head_width, (long long)c->rotary_dims);
        if (c->experts_used > c->experts)
            error_add(err, CLOVER_BAD_INPUT,
                      "%s: number of experts used: expected at most the number of experts (%lld), found %lld", where,
                      (long long)c->experts, (long long)c->experts_used);
        check_products(c, where, err);
        check_id(c, where, "mask id", c->mask_id, err);
        check_id(c, where, "dllm_think_end_token_id", c->controls.dllm_think_end_token_id, err);
        for (int64_t i = 0; i < c->n_stops; i++) check_id(c, where, "stop id", c->stops[i], err);
    }
    check_real(where, "RMSNorm epsilon", c->rms_eps, 0, true, err);
    check_real(where, "rotary base", c->rope_base, 1, false, err);
    check_controls(&c->controls, where, err);
    if (c->family == CLOVER_FAMILY_CLOVER) {
        if ((c->block < 1 || c->block > INT32_MAX) && !(c->block == CONFIG_REPORTED && err->status != CLOVER_OK))
            error_add(err, CLOVER_BAD_INPUT, "%s: block size: expected at least 1, found %lld", where, (long long)c->block);
        check_real(where, "threshold", c->threshold, 0, false, err);
        check_real(where, "coreset top_p", c->coreset_top_p, 0, false, err);
    }
    return err->status;
}
