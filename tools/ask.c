/* ask.c - clover ask: a few questions whose answers are known, asked greedily token by token and by denoising. [ASK-1]
 *
 * A file that loads may still answer garbage, and looks like any other until it is asked something. Each answer is judged: right
 * when the known word stands in it. Garbage is named by what it shows: one token for ever, a loop, an entropy near zero or near
 * ln V. The verdict counts: more than half right is a model that answers. */
#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "../ref/controls.h"
#include "../ref/error.h"
#include "../ref/files/names.h"
#include "../ref/math/rowwise.h"
#include "ask.h"
#include "run_args.h"
#include "show.h"
#include "tools.h"

static const struct { const char *text, *expected; } questions[] = {
    { "What is the capital of France?", "Paris" },
    { "What is the capital of Japan?", "Tokyo" },
    { "What is the capital of Australia?", "Canberra" },
    { "What is 7 + 5?", "12" },
    { "What is 9 times 6?", "54" },
    { "Repeat after me:\numbrella", "umbrella" },
    { "Which day comes after Monday?", "Tuesday" },
    { "What is the opposite of hot?", "cold" },
};
enum { QUESTIONS = sizeof questions / sizeof *questions };

/* ---- judging ----------------------------------------------------------------------------------------------------------- */

static bool in_word(char c) { return isalnum((unsigned char)c) || (c & 0x80) != 0; }

bool ask_is_right(const char *answer, const char *expected) {
    const size_t n = strlen(expected);
    for (const char *p = answer; *p; p++)
        if (strncasecmp(p, expected, n) == 0 && (p == answer || !in_word(p[-1])) && !in_word(p[n])) return true;
    return false;
}

/* The most frequent id: how often. */
static int64_t most_frequent(const int32_t *ids, int64_t n) {
    int64_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t count = 0;
        for (int64_t k = 0; k < n; k++) count += ids[k] == ids[i];
        if (count > most) most = count;
    }
    return most;
}

/* Does it end in at least three turns of 2 to 8 ids, which make up half of it or more? */
static bool loops(const int32_t *ids, int64_t n) {
    for (int64_t period = 2; period <= 8; period++) {
        int64_t same = 0;
        while (same + period < n && ids[n - 1 - same] == ids[n - 1 - same - period]) same++;
        if (same >= 2 * period && 2 * (same + period) >= n) return true;
    }
    return false;
}

int ask_telltales(const int32_t *ids, int64_t n, double entropy, int64_t vocab) {
    int found = 0;
    if (n == 0) found |= SILENT;
    const bool one = n >= 8 && 10 * most_frequent(ids, n) >= 9 * n;
    if (one) found |= ONE_TOKEN;
    else if (loops(ids, n)) found |= LOOP;
    if (n >= 8 && entropy < 0.001) found |= NO_DOUBT;
    if (entropy > 0.9 * log((double)vocab)) found |= NO_IDEA;
    return found;
}

const char *telltale_name(Telltale one) {
    switch (one) {
    case ONE_TOKEN: return "one token for ever";
    case LOOP: return "a loop";
    case NO_DOUBT: return "entropy near zero";
    case NO_IDEA: return "entropy near ln V";
    case SILENT: return "no answer";
    }
    return "";
}

/* ---- an engine that is listened to -------------------------------------------------------------------------------------------- */

typedef struct Listened { CloverEngine inner; double *p; double entropy; int64_t rows; } Listened;   /* p: [V] */

static void listen(Listened *l, const double *logits, int64_t rows) {
    for (int64_t r = 0; logits && r < rows; r++) {
        memcpy(l->p, logits + r * l->inner.vocab, (size_t)l->inner.vocab * sizeof *l->p);
        softmax(l->p, l->inner.vocab);
        l->entropy += row_entropy(l->p, l->inner.vocab);
        l->rows++;
    }
}

static CloverStatus listened_commit(void *self, const int32_t *ids, int64_t n, double *logits, int64_t rows, CloverError *err) {
    Listened *l = self;
    const CloverStatus status = l->inner.commit(l->inner.self, ids, n, logits, rows, err);
    if (status == CLOVER_OK) listen(l, logits, rows);
    return status;
}

static CloverStatus listened_preview(void *self, const int32_t *ids, int64_t n, double *logits, CloverError *err) {
    Listened *l = self;
    const CloverStatus status = l->inner.preview(l->inner.self, ids, n, logits, err);
    if (status == CLOVER_OK) listen(l, logits, n);
    return status;
}

static CloverStatus listened_snapshot(void *self, void **out, CloverError *err) { const Listened *l = self; return l->inner.snapshot(l->inner.self, out, err); }
static CloverStatus listened_restore(void *self, const void *s, CloverError *err) { const Listened *l = self; return l->inner.restore(l->inner.self, s, err); }
static void listened_snapshot_free(void *self, void *s) { const Listened *l = self; l->inner.snapshot_free(l->inner.self, s); }
static int64_t listened_position(void *self) { const Listened *l = self; return l->inner.position(l->inner.self); }

static CloverEngine listened_engine(Listened *l) {
    return (CloverEngine){ .self = l, .vocab = l->inner.vocab, .commit = listened_commit, .preview = listened_preview, .snapshot = listened_snapshot,
                           .restore = listened_restore, .snapshot_free = listened_snapshot_free, .position = listened_position };
}

/* ---- asking -------------------------------------------------------------------------------------------------------------------- */

typedef struct Ask {
    ModelArgs model;
    int64_t max_tokens;
    bool json;
    int64_t asked, right, garbage;
    json_t *answers;
} Ask;

static void tell(Ask *a, int q, CloverMode mode, const char *answer, bool right, int telltales, double entropy) {
    json_t *names = json_array();
    char shown[NAME_SHOWN];
    a->asked++;
    a->right += right;
    a->garbage += !right && telltales != 0;
    if (!a->json) {
        printf("%-7s %-5s %s\n              %s", mode_names[mode], right ? "right" : "WRONG", questions[q].text, name_show(answer, strlen(answer), shown));
        if (telltales) printf("\n              shows: ");
    }
    for (int bit = ONE_TOKEN, n = 0; bit <= SILENT; bit *= 2) {
        if (!(telltales & bit)) continue;
        json_array_append_new(names, json_string(telltale_name((Telltale)bit)));
        if (!a->json) printf("%s%s", n++ ? ", " : "", telltale_name((Telltale)bit));
    }
    if (!a->json) printf("\n");
    json_t *one = json_pack("{s:s, s:s, s:s, s:s, s:b, s:o, s:o}", "question", questions[q].text, "expected", questions[q].expected,
                            "mode", mode_names[mode], "answer", answer, "right", (int)right, "telltales", names,
                            "entropy", isfinite(entropy) ? json_real(entropy) : json_null());
    json_array_append_new(a->answers, one);
}

static CloverStatus ask_one(Ask *a, const CloverModel *model, int q, CloverMode mode, CloverError *err) {
    const CloverTokenizer *tokenizer = clover_model_tokenizer(model);
    const CloverConfig *c = clover_model_config(model);
    const CloverMessage turn = { "user", questions[q].text };
    CloverDecodeOptions o = clover_decode_defaults(c);
    CloverSession *session = NULL;
    char *text = NULL, *answer = NULL;
    int32_t *prompt = NULL, *out = malloc((size_t)a->max_tokens * sizeof *out);
    double *row = malloc((size_t)c->vocab * sizeof *row);
    int64_t n_prompt = 0, n = 0;
    o.mode = mode;
    o.max_tokens = a->max_tokens;
    CloverStatus status = out && row ? clover_chat_text(&turn, 1, false, &text, err)
        : error_memory(err, "the answer", (size_t)a->max_tokens * 4 + (size_t)c->vocab * sizeof *row);
    if (status == CLOVER_OK) status = clover_encode(tokenizer, text, strlen(text), true, &prompt, &n_prompt, err);
    if (status == CLOVER_OK) status = model_args_session(&a->model, model, run_args_capacity(&o, n_prompt), &session, err);
    if (status == CLOVER_OK) {
        Listened l = { .inner = clover_session_engine(session), .p = row };
        const CloverEngine engine = listened_engine(&l);
        status = clover_decode(&engine, &o, prompt, n_prompt, NULL, NULL, out, &n, err);
        for (int64_t i = 0; n > 0 && i < o.n_stops; i++)
            if (out[n - 1] == o.stops[i]) { n--; break; }
        const double entropy = l.rows ? l.entropy / (double)l.rows : (double)NAN;
        if (status == CLOVER_OK && !(answer = text_of(tokenizer, out, n))) status = error_memory(err, "the answer", (size_t)n);
        if (status == CLOVER_OK) tell(a, q, mode, answer, ask_is_right(answer, questions[q].expected), ask_telltales(out, n, entropy, c->vocab), entropy);
    }
    clover_session_free(session);
    free(text);
    free(answer);
    free(prompt);
    free(out);
    free(row);
    return status;
}

static const char *verdict(const Ask *a) {
    if (2 * a->right > a->asked) return "it answers";
    return 2 * a->garbage > a->asked ? "garbage: clover lint may say why" : "it does not answer: clover lint may say why";
}

static CloverStatus ask(Ask *a, CloverError *err) {
    CloverModel *model = NULL;
    CloverError no_preview;
    if (model_args_open(&a->model, &model, err) != CLOVER_OK) return err->status;
    CloverStatus status = clover_model_tokenizer(model) ? CLOVER_OK
        : error_set(err, CLOVER_UNSUPPORTED, "%s: it has no tokenizer: it cannot be asked in words", a->model.path);
    const bool denoises = clover_model_can_preview(model, &no_preview) == CLOVER_OK;
    for (int q = 0; q < QUESTIONS && status == CLOVER_OK; q++) {
        status = ask_one(a, model, q, CLOVER_AR, err);
        if (status == CLOVER_OK && denoises) status = ask_one(a, model, q, CLOVER_DENOISE, err);
    }
    clover_model_close(model);
    if (status != CLOVER_OK) return status;
    if (!a->json) {
        if (!denoises) printf("denoising is not possible with this file\n");
        printf("%lld of %lld right: %s\n", (long long)a->right, (long long)a->asked, verdict(a));
    }
    else {
        json_t *all = json_pack("{s:O, s:I, s:I, s:s}", "answers", a->answers, "right", (json_int_t)a->right, "asked", (json_int_t)a->asked, "verdict", verdict(a));
        if (!all || json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) != 0)
            status = error_set(err, CLOVER_SYSTEM, "cannot write the result as JSON (out of memory, or standard output is full)");
        putchar('\n');
        json_decref(all);
    }
    return status;
}

int cmd_ask(int argc, char **argv) {
    Ask a = { .model = model_args_defaults(), .max_tokens = 24, .answers = json_array() };
    a.model.numerics = CLOVER_FAST;
    const ArgOption options[] = {
        MODEL_FILE_OPTIONS(a.model),
        MODEL_RUN_OPTIONS(a.model),
        { .kind = ARG_HEADING, .help = "The answers" },
        { .name = "max-tokens", .letter = 'n', .kind = ARG_INT, .target = &a.max_tokens, .value = "N", .min = 1, .max = 4096, .help = "tokens of an answer (24)" },
        { .name = "json", .kind = ARG_FLAG, .target = &a.json, .help = "one JSON object" },
    };
    const ArgCommand command = { .name = "ask", .usage = "MODEL [options]",
        .summary = "Asks a few questions whose answers are known, greedily, token by token and by denoising (numerics: fast), and judges.\n"
                   "Exit code 0: more than half are right; 1: not, and what the answers show is named.",
        .example = "clover ask model.gguf\nclover ask drifted.gguf --as-is",
        .options = options, .n = sizeof options / sizeof *options };
    CloverError err;
    int code = args_begin(&command, argc, argv, &err);
    if (code == ARGS_GO) code = ask(&a, &err) == CLOVER_OK ? !(2 * a.right > a.asked) : command_failed(command.name, &err);
    json_decref(a.answers);
    return code;
}
