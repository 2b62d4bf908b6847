/* clover.h - the public API of the Clover reference interpreter, whole.
 *
 * Clover is a diffusion language model on a Qwen3.6 mixture-of-experts trunk. A MODEL is a file, mapped and checked;
 * a SESSION is a model being run: a numerics choice and a state. Token ids are COMMITTED (causal rows that extend the
 * state) or PREVIEWED (a block of rows that sees itself whole and leaves the state as it was). Decoding needs only that.
 *
 * Conventions. Plain types and opaque handles; no globals; no function prints, exits or keeps a pointer that it was
 * given, unless it says so. Every fallible function returns a CloverStatus and fills *err (never NULL) when that is not
 * CLOVER_OK; it then leaves its outputs and the session as they were. All arrays are row-major, the last index fastest.
 * A handle may be used by one thread at a time; different handles are independent.
 *
 * Shape legend, used in every comment of this project:
 *   T rows of a step     D hidden size        V vocabulary rows    E experts           k experts chosen per row
 *   H query heads        Hkv KV heads         width head width     R rotary dims       n rows of a block
 *   Hk GDN key heads     Hv GDN value heads   dk, dv their widths  K = Hk*dk, Vd = Hv*dv, C = 2K+Vd conv channels
 *   taps conv taps       F expert width       Fs shared expert width
 */
#ifndef CLOVER_H
#define CLOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CLOVER_VERSION "0.1.0"
#define CLOVER_SPEC_VERSION "1"      /* of SPEC.md, whose head says it */

/* ---- errors ---------------------------------------------------------------------------------------------------- */

/* [ERR-1] The classes of failure; each is also the exit code of the command line. Exit code 1 (differs, finding) is no failure
 * of the library and has no status. */
typedef enum CloverStatus {
    CLOVER_OK = 0,
    CLOVER_USAGE = 2,        /* the caller asked for something that makes no sense: a flag, an id out of range */
    CLOVER_BAD_INPUT = 3,    /* a file is damaged, incomplete or contradicts itself */
    CLOVER_UNSUPPORTED = 4,  /* a file is well formed, but uses what this project does not implement */
    CLOVER_BUG = 70,         /* a mistake of ours */
    CLOVER_SYSTEM = 71       /* the machine refused: out of memory, disk full, permission, I/O error */
} CloverStatus;

enum { CLOVER_ERROR_TEXT = 16384 };

/* text: UTF-8, possibly several lines (a file's problems are reported all at once), no newline at the end. */
typedef struct CloverError {
    CloverStatus status;
    char text[CLOVER_ERROR_TEXT];
} CloverError;

/* ---- what a model is ------------------------------------------------------------------------------------------- */

typedef enum CloverFamily {
    CLOVER_FAMILY_CLOVER,    /* GGUF clover_moe, HF clover_moe */
    CLOVER_FAMILY_BASE       /* GGUF qwen35moe, HF qwen3_5_moe and qwen3_5_moe_text: the same trunk, causal only */
} CloverFamily;

enum { CLOVER_MAX_LAYERS = 1024, CLOVER_MAX_STOPS = 64 };

/* Response controls (SPEC CTL), under their generation_config names. Neutral: 0, 0, 1, 0, 0. */
typedef struct CloverControls {
    double frequency_penalty, presence_penalty, repetition_penalty;
    double dllm_length_penalty;
    int64_t dllm_length_penalty_start, dllm_length_penalty_window;   /* response positions, counted from 1; 8192, 8192 */
    double dllm_think_end_bias;
    int64_t dllm_think_end_start, dllm_think_end_window;             /* 4096, 4096 */
    int32_t dllm_think_end_token_id;                                 /* -1: none */
} CloverControls;

/* Everything read from a file's header or config.json; every number means what the file says (a float32 epsilon of
 * 1e-6 in a GGUF is 9.99999997e-07). Values a file may lack hold -1 (ids, sizes) or NaN (reals) when it lacks them. */
typedef struct CloverConfig {
    CloverFamily family;
    int64_t layers, hidden, vocab, context;
    int64_t nextn_layers;                                            /* further layers in a GGUF, for other uses: no part of the model */
    int64_t heads, kv_heads, head_width, rotary_dims;                /* H, Hkv, width, R */
    double rope_base, rms_eps, l2_eps;                               /* l2_eps is 1e-6 by definition, in no file */
    int64_t key_heads, value_heads, key_width, value_width, taps;    /* Hk, Hv, dk, dv */
    int64_t experts, experts_used, expert_width, shared_width;       /* E, k, F, Fs */
    bool full_attention[CLOVER_MAX_LAYERS];                          /* per layer; false is GDN */
    bool tied, tied_said;                                            /* the head is the embedding; config.json says true */
    int64_t block;                                                   /* block size, -1 when unknown */
    int32_t mask_id;                                                 /* -1 when unknown */
    double threshold;
    bool coreset_enabled;
    double coreset_top_p;
    int32_t stops[CLOVER_MAX_STOPS];                                 /* eos, stop_token_ids and pad ids, each once */
    int64_t n_stops;
    CloverControls controls;                                         /* generation_config's, else neutral */
} CloverConfig;

typedef enum CloverDriftMode {
    CLOVER_REFUSE_DRIFTS,    /* a file with a drift that makes garbage is refused, the mend named */
    CLOVER_MEND,             /* read mended, in memory */
    CLOVER_AS_IS             /* read as a naive loader would, to show the garbage */
} CloverDriftMode;

/* Values given here win over the file's. Start from clover_open_defaults(). */
typedef struct CloverOpenOptions {
    CloverDriftMode drifts;
    int64_t block;                /* -1: the file's */
    int32_t mask_id;              /* -1: the file's */
    double threshold;             /* NaN: the file's */
    int diffusion_heads_grouped;  /* how a GGUF orders its diffusion tensors' value heads: 1 grouped, 0 tiled, -1 as the file says, else tiled */
} CloverOpenOptions;

typedef struct CloverModel CloverModel;
typedef struct CloverTokenizer CloverTokenizer;

CloverOpenOptions clover_open_defaults(void);

/* path: a .gguf (the first part of a split one) or a folder with config.json and *.safetensors. Maps the weights, reads
 * no values but the vectors'; every shape is checked against the config; all problems are reported in one error. */
CloverStatus clover_model_open(const char *path, const CloverOpenOptions *options, CloverModel **out, CloverError *err);
void clover_model_close(CloverModel *model);                         /* NULL is fine */
const CloverConfig *clover_model_config(const CloverModel *model);
const CloverTokenizer *clover_model_tokenizer(const CloverModel *model);   /* NULL when the file has none */

/* Can this file run previews? OK, or an error that says what it lacks (diffusion tensors, block size, mask id). */
CloverStatus clover_model_can_preview(const CloverModel *model, CloverError *err);

/* ---- running it ------------------------------------------------------------------------------------------------ */

typedef enum CloverNumerics {
    CLOVER_EXACT,            /* double throughout, the same bits on every compiler and CPU: the reference */
    CLOVER_FAST,             /* matrix products in float32 (OpenBLAS), the rest as exact */
    CLOVER_BF16,             /* exact, rounded to bfloat16 where a bf16 engine rounds */
    CLOVER_F32,              /* exact, rounded to float32 where a float32 engine rounds, products summed in float32 */
    CLOVER_LLAMA_CPP         /* as f32, with the rows that meet a matrix quantised as llama.cpp does for its type */
} CloverNumerics;

typedef struct CloverSessionOptions {
    CloverNumerics numerics;
    int64_t capacity;        /* positions to reserve memory for */
    double coreset_top_p;    /* previews: NaN as the file says; >= 0 on with this bound; < 0 off */
} CloverSessionOptions;

typedef struct CloverSession CloverSession;
typedef struct CloverSnapshot CloverSnapshot;

CloverSessionOptions clover_session_defaults(void);                  /* exact, 4096 positions, as the file says */

/* The session uses the model until it is freed; the model must outlive it. */
CloverStatus clover_session_new(const CloverModel *model, const CloverSessionOptions *options, CloverSession **out, CloverError *err);
void clover_session_free(CloverSession *session);

int64_t clover_session_position(const CloverSession *session);       /* rows committed so far */

/* Commits ids[0..n) as causal rows. logits: NULL, or room for `rows` rows [rows,V]: those of the LAST `rows` rows,
 * 0 <= rows <= n. Row t's logits predict the token after row t. */
CloverStatus clover_commit(CloverSession *session, const int32_t *ids, int64_t n, double *logits, int64_t rows, CloverError *err);

/* Previews ids[0..n) as a block at the current position. logits [n,V] or NULL: row t's predict the token AT row t. */
CloverStatus clover_preview(CloverSession *session, const int32_t *ids, int64_t n, double *logits, CloverError *err);

/* A snapshot is a value: restoring it returns the state bit for bit, whatever was committed since. */
CloverStatus clover_snapshot_take(const CloverSession *session, CloverSnapshot **out, CloverError *err);
CloverStatus clover_snapshot_restore(CloverSession *session, const CloverSnapshot *snapshot, CloverError *err);
void clover_snapshot_free(CloverSnapshot *snapshot);
void clover_session_reset(CloverSession *session);                   /* back to the empty state */

/* FNV-1a (64 bit) over the position and every value of the state. */
uint64_t clover_session_hash(const CloverSession *session);

/* A watcher sees every stage as it is computed, rows first, value heads in HF order; name as in SPEC (L03.gdn.qkv).
 * It may overwrite data: later stages then read what it wrote (injection). NULL watches nothing. */
typedef void CloverWatcher(void *user, const char *name, double *data, const int64_t *shape, int dims);
void clover_session_watch(CloverSession *session, CloverWatcher *watcher, void *user);

/* ---- decoding -------------------------------------------------------------------------------------------------- */

/* What decoding needs of a model: the CPU session, a CUDA one and a scripted one in tests all fit. The functions keep
 * the contracts of clover_commit, clover_preview, clover_snapshot_take and clover_snapshot_restore. */
typedef struct CloverEngine {
    void *self;
    int64_t vocab;
    CloverStatus (*commit)(void *self, const int32_t *ids, int64_t n, double *logits, int64_t rows, CloverError *err);
    CloverStatus (*preview)(void *self, const int32_t *ids, int64_t n, double *logits, CloverError *err);
    CloverStatus (*snapshot)(void *self, void **out, CloverError *err);
    CloverStatus (*restore)(void *self, const void *snapshot, CloverError *err);
    void (*snapshot_free)(void *self, void *snapshot);
    int64_t (*position)(void *self);
} CloverEngine;

CloverEngine clover_session_engine(CloverSession *session);

typedef enum CloverMode { CLOVER_AR, CLOVER_DENOISE, CLOVER_DRAFT } CloverMode;

typedef struct CloverDecodeOptions {
    CloverMode mode;
    int64_t max_tokens;              /* the token budget, >= 1 */
    int32_t mask_id;                 /* never chosen; needed by denoise and draft, -1 allowed in AR */
    int32_t stops[CLOVER_MAX_STOPS];
    int64_t n_stops;
    int64_t block;                   /* denoise: rows of a block; draft: upper bound of the width */
    double threshold;                /* denoise: a row is fixed when its probability is strictly greater */
    int64_t width;                   /* draft: candidates a round, -1: 16, or the block size where that is smaller */
    bool accept_exact;               /* draft: accept only the argmax */
    double ratio, delta;             /* draft: accept when p >= min(ratio, delta*exp(-H)); 0.9, 0.6 */
    double temperature, top_p;       /* temperature 0: greedy; top_p 1: off */
    int64_t top_k;                   /* 0: off */
    uint64_t seed;
    CloverControls controls;
} CloverDecodeOptions;

/* Defaults for a config: AR, its block, mask id, threshold, stops and controls; greedy. */
CloverDecodeOptions clover_decode_defaults(const CloverConfig *config);

typedef struct CloverCandidate { int64_t row; int32_t id; double p; } CloverCandidate;
typedef struct CloverJudged { int32_t id; double p, entropy; bool accepted; } CloverJudged;   /* entropy in nats */

/* What happened, as it happens. Pointers are valid during the call only. */
typedef enum CloverEventKind {
    CLOVER_EVENT_TOKEN,      /* AR: one token chosen: id, p (its probability in the processed row, T = 1) */
    CLOVER_EVENT_PASS,       /* denoise: position, pass, candidates (every masked row), fixed rows, block as it is now */
    CLOVER_EVENT_BLOCK,      /* denoise: position, block ids, emitted */
    CLOVER_EVENT_FIRST,      /* draft: the first output token: id */
    CLOVER_EVENT_ROUND,      /* draft: position, draft ids (pending first), judged, accepted, bonus (-1: none) */
    CLOVER_EVENT_OUTPUT      /* every mode: id is now part of the answer, in order (the last may be a stop id) */
} CloverEventKind;

typedef struct CloverEvent {
    CloverEventKind kind;
    int64_t position;                /* rows committed when the step began */
    int32_t id;
    double p;
    int64_t pass;                    /* counted from 0 within its block */
    const CloverCandidate *candidates; int64_t n_candidates;
    const int64_t *fixed; int64_t n_fixed;
    const int32_t *ids; int64_t n_ids;          /* the block, or the draft */
    int64_t emitted;                 /* tokens of the block that went out */
    const CloverJudged *judged; int64_t n_judged;
    int64_t accepted;
    int32_t bonus;
} CloverEvent;

/* Return false to end decoding early: what was output so far stands, the status is CLOVER_OK. */
typedef bool CloverListener(void *user, const CloverEvent *event);

/* Decodes from the engine's current state, which must be empty. prompt: [n_prompt], at least one id, each in 0..V-1.
 * out: [max_tokens]; *n_out: how many were written, the stop id included. A failure half-way keeps what was output
 * before it (out, *n_out) and leaves the engine's state where the failing step left it: reset it before another use. */
CloverStatus clover_decode(const CloverEngine *engine, const CloverDecodeOptions *options, const int32_t *prompt, int64_t n_prompt,
                           CloverListener *listener, void *user, int32_t *out, int64_t *n_out, CloverError *err);

/* ---- text ------------------------------------------------------------------------------------------------------ */

/* Encodes UTF-8 text (length bytes). special: added tokens in the text become their ids; else only those do that the file
 * does not mark as special, and special ones are text. *out is malloc'ed (free it).
 * Invalid UTF-8 is CLOVER_BAD_INPUT with its byte offset. */
CloverStatus clover_encode(const CloverTokenizer *t, const char *text, size_t length, bool special, int32_t **out, int64_t *n_out, CloverError *err);

/* The bytes of one id (not NUL-terminated; valid as long as the tokenizer), possibly part of a character. Added tokens
 * give their content. Returns NULL and *length 0 for an id that has none. */
const char *clover_token_bytes(const CloverTokenizer *t, int32_t id, size_t *length);
bool clover_token_is_special(const CloverTokenizer *t, int32_t id);
int32_t clover_token_find(const CloverTokenizer *t, const char *content);    /* an added token's id, -1 when absent */
int64_t clover_tokenizer_size(const CloverTokenizer *t);                     /* ids 0..size-1 */

/* Streaming: feed bytes, get only whole characters. At the end of the text the rest is one U+FFFD per maximal
 * invalid part, as Unicode recommends. */
typedef struct CloverUtf8Stream { unsigned char held[4]; int n; } CloverUtf8Stream;
/* Appends at most length + 16 bytes, times 3 for invalid ones, to out (room: 3*length + 16); returns how many. */
size_t clover_utf8_feed(CloverUtf8Stream *s, const char *bytes, size_t length, bool end, char *out);

typedef struct CloverMessage { const char *role, *content; } CloverMessage;  /* role: system, user or assistant */
/* The chat form of SPEC CHT, as text to be encoded with special = true; *out is malloc'ed. think: leave the thinking
 * open for the model, else closed and empty. */
CloverStatus clover_chat_text(const CloverMessage *messages, int64_t n, bool think, char **out, CloverError *err);

#ifdef __cplusplus
}
#endif
#endif
