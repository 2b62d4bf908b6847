/* tokenizer_parts.h - what the tokenizer's own files share: the structure, its building, the merging. [TOK] */
#ifndef CLOVER_TOKENIZER_PARTS_H
#define CLOVER_TOKENIZER_PARTS_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include "../error.h"
#include "tokenizer.h"

/* ---- merging --------------------------------------------------------------------------------------------------- */

/* A merge: the neighbours left, right become result. The lower the rank, the earlier. rank -1: an empty slot. */
typedef struct Merge { int32_t left, right, rank, result; } Merge;

typedef struct MergeTable { Merge *slot; size_t slots; } MergeTable;   /* [slots], a power of two, by the pair's hash */

bool merge_table_new(MergeTable *m, size_t merges);                    /* false: out of memory */
bool merge_table_add(MergeTable *m, Merge merge);                      /* false: the pair has a merge already */
const Merge *merge_table_find(const MergeTable *m, int32_t left, int32_t right);   /* NULL when absent */

/* Room for one piece's symbols and the merges that could happen next. Grows with the longest piece; zero it to start. */
typedef struct Candidate { int32_t rank, at, left, right; } Candidate;
typedef struct BpeSpace {
    int32_t *id, *before, *after;    /* [room]: symbols; positions of the neighbours, -1 at the ends */
    int32_t room;
    Candidate *heap;                 /* [heap_room], heap_n in use; the least (rank, at) first */
    size_t heap_n, heap_room;
} BpeSpace;

bool bpe_space_reserve(BpeSpace *s, int32_t symbols);                  /* false: out of memory */
void bpe_space_free(BpeSpace *s);
/* Merges s->id[0..n), n >= 1, in place and returns how many symbols are left; -1: out of memory. */
int32_t bpe_merge(const MergeTable *m, BpeSpace *s, int32_t n);

/* ---- the tokenizer --------------------------------------------------------------------------------------------- */

typedef struct Token { const char *bytes; uint32_t length; bool special; } Token;   /* bytes NULL: no such id */

typedef struct AddedToken { const char *text; size_t length; int32_t id; bool special; } AddedToken;

/* Added tokens looked for in one kind of text, those with one first byte together, the longest first. */
typedef struct AddedTokens {
    AddedToken *token; size_t n;
    size_t first[257];               /* those that start with byte b: token[first[b]] .. token[first[b+1]-1] */
} AddedTokens;

struct CloverTokenizer {
    Token *token; int64_t n;         /* [n], by id */
    char *arena;                     /* the tokens' bytes */
    char *normal_arena;              /* the texts of added_normal */
    int32_t byte_id[256];            /* the token of each single byte, -1: none */
    MergeTable merges;
    AddedTokens added_raw;           /* looked for in the text as given */
    AddedTokens added_normal;        /* "normalized": looked for after NFC */
    bool nfc;
    pcre2_code *split;
};

/* ---- building it ----------------------------------------------------------------------------------------------- */

enum { MAX_TOKENS = 1 << 22 };       /* ids below this; a file that wants more is damaged */

typedef enum TokenKind {
    TOKEN_NONE,
    TOKEN_NORMAL,                    /* text written in GPT-2's byte alphabet */
    TOKEN_ADDED                      /* text as it is */
} TokenKind;

typedef struct TokenText { const char *text; size_t length; TokenKind kind; bool special, normalized; } TokenText;

/* The file's view of the vocabulary; texts stay in the file's memory until build_finish. Problems go to *err, all of
 * them; `source` and the names in messages are the file's. */
typedef struct TokenizerBuild {
    const char *source;
    CloverError *err;
    TokenText *token; int64_t n;     /* [n], by id */
    int32_t *slot; size_t slots;     /* text -> id by hash, -1 empty */
    MergeTable merges;
    bool nfc;
    pcre2_code *split;
} TokenizerBuild;

/* The split pattern of pre "qwen35". */
extern const char tokenizer_pattern_qwen35[];

/* error_add with the source in front. */
void build_problem(TokenizerBuild *b, CloverStatus status, const char *format, ...) CLOVER_PRINTF(3, 4);
CloverStatus build_begin(TokenizerBuild *b, int64_t n, size_t merges);
/* name: how the file calls this token, for messages. A text or an id that is taken is a problem, unless both are those
 * of one token (an added token may stand in the vocabulary too). */
void build_token(TokenizerBuild *b, int64_t id, TokenText token, const char *name);
void build_merge(TokenizerBuild *b, int32_t rank, const char *left, size_t left_length, const char *right, size_t right_length);
void build_split(TokenizerBuild *b, const char *pattern);
/* Makes the tokenizer when err is still clear; frees what the build holds in every case. */
CloverStatus build_finish(TokenizerBuild *b, CloverTokenizer **out);

#endif
