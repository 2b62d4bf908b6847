/* show.c - decode events as lines for people. */
#include <stdlib.h>
#include <string.h>
#include "show.h"

char *text_of(const CloverTokenizer *t, const int32_t *ids, int64_t n) {
    size_t length = 0;
    for (int64_t i = 0; i < n; i++) {
        size_t piece;
        clover_token_bytes(t, ids[i], &piece);
        length += piece;
    }
    char *raw = malloc(length + 1), *text = malloc(3 * length + 17);
    if (raw && text) {
        size_t used = 0;
        for (int64_t i = 0; i < n; i++) {
            size_t piece;
            const char *bytes = clover_token_bytes(t, ids[i], &piece);
            if (bytes) memcpy(raw + used, bytes, piece);
            used += piece;
        }
        CloverUtf8Stream stream = { .n = 0 };
        text[clover_utf8_feed(&stream, raw, length, true, text)] = '\0';
    } else {
        free(text);
        text = NULL;
    }
    free(raw);
    return text;
}

/* One id so that it stays on its line: bytes that are no printable text on their own as escapes, a dot for the mask. */
static void print_id(FILE *out, const CloverTokenizer *t, int32_t id, int32_t mask_id) {
    if (id == mask_id) {
        fputs("\xC2\xB7", out);
        return;
    }
    size_t length = 0;
    const char *bytes = t ? clover_token_bytes(t, id, &length) : NULL;
    char *text = bytes ? text_of(t, &id, 1) : NULL;
    const bool whole = text && strlen(text) == length && memcmp(text, bytes, length) == 0;
    if (!bytes) fprintf(out, "<%d>", (int)id);
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c == '\n') fputs("\\n", out);
        else if (whole && c >= 0x20 && c != 0x7f) fputc(c, out);
        else fprintf(out, "\\x%02x", (unsigned)c);
    }
    free(text);
}

static void print_ids(FILE *out, const CloverTokenizer *t, const int32_t *ids, int64_t n, int32_t mask_id) {
    fputc('|', out);
    for (int64_t i = 0; i < n; i++) print_id(out, t, ids[i], mask_id);
    fputc('|', out);
}

void show_step(FILE *out, const CloverEvent *e, const CloverTokenizer *t, int32_t mask_id) {
    switch (e->kind) {
    case CLOVER_EVENT_TOKEN:
        fprintf(out, "token  position %lld  id %d  p %.4f  ", (long long)e->position, (int)e->id, e->p);
        print_ids(out, t, &e->id, 1, -1);
        break;
    case CLOVER_EVENT_PASS:
        fprintf(out, "pass %2lld  masked %2lld  fixed %2lld  ", (long long)e->pass, (long long)e->n_candidates, (long long)e->n_fixed);
        print_ids(out, t, e->ids, e->n_ids, mask_id);
        break;
    case CLOVER_EVENT_BLOCK:
        fprintf(out, "block  position %lld  emitted %lld of %lld", (long long)e->position, (long long)e->emitted, (long long)e->n_ids);
        break;
    case CLOVER_EVENT_FIRST:
        fprintf(out, "first  id %d  ", (int)e->id);
        print_ids(out, t, &e->id, 1, -1);
        break;
    case CLOVER_EVENT_ROUND:
        fprintf(out, "round  position %lld  drafted %lld  accepted %lld  ", (long long)e->position, (long long)e->n_ids - 1, (long long)e->accepted);
        print_ids(out, t, e->ids, e->n_ids, -1);
        if (e->bonus >= 0) {
            fputs("  then ", out);
            print_ids(out, t, &e->bonus, 1, -1);
        }
        break;
    case CLOVER_EVENT_OUTPUT: return;
    }
    fputc('\n', out);
}
