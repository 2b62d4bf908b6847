/* tokenizer_bpe.c - byte pair merging: the pair of the lowest rank first, of equal ones the leftmost. [TOK-3]
 *
 * Symbols form a linked list; every neighbouring pair that has a merge waits in a heap. A merge leaves stale candidates
 * behind, known by symbols that are no longer there, and brings at most two new ones: n log n in the length of a piece,
 * also where the piece is a megabyte of one letter. */
#include <stdlib.h>
#include "tokenizer_parts.h"

/* ---- the table of merges --------------------------------------------------------------------------------------- */

static size_t pair_slot(const MergeTable *m, int32_t left, int32_t right) {
    uint64_t h = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;     /* splitmix64's mixing */
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9u;
    h = (h ^ h >> 27) * 0x94D049BB133111EBu;
    return (size_t)(h ^ h >> 31) & (m->slots - 1);
}

/* The pair's slot, or the empty one where it would go. */
static Merge *find_slot(const MergeTable *m, int32_t left, int32_t right) {
    size_t i = pair_slot(m, left, right);
    while (m->slot[i].rank >= 0 && (m->slot[i].left != left || m->slot[i].right != right)) i = (i + 1) & (m->slots - 1);
    return &m->slot[i];
}

bool merge_table_new(MergeTable *m, size_t merges) {
    m->slots = 16;
    while (m->slots < merges * 2) m->slots *= 2;
    m->slot = malloc(m->slots * sizeof *m->slot);
    if (!m->slot) return false;
    for (size_t i = 0; i < m->slots; i++) m->slot[i].rank = -1;
    return true;
}

bool merge_table_add(MergeTable *m, Merge merge) {
    Merge *slot = find_slot(m, merge.left, merge.right);
    if (slot->rank >= 0) return false;
    *slot = merge;
    return true;
}

const Merge *merge_table_find(const MergeTable *m, int32_t left, int32_t right) {
    const Merge *slot = find_slot(m, left, right);
    return slot->rank >= 0 ? slot : NULL;
}

/* ---- the heap of candidates ------------------------------------------------------------------------------------ */

static bool comes_before(const Candidate *a, const Candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static bool heap_push(BpeSpace *s, Candidate c) {
    if (s->heap_n == s->heap_room) {
        size_t room = s->heap_room * 2 + 64;
        Candidate *grown = realloc(s->heap, room * sizeof *grown);
        if (!grown) return false;
        s->heap = grown;
        s->heap_room = room;
    }
    size_t i = s->heap_n++;
    for (size_t up; i > 0 && comes_before(&c, &s->heap[up = (i - 1) / 2]); i = up) s->heap[i] = s->heap[up];
    s->heap[i] = c;
    return true;
}

static Candidate heap_pop(BpeSpace *s) {
    Candidate least = s->heap[0], last = s->heap[--s->heap_n];
    size_t i = 0;
    for (size_t down; (down = 2 * i + 1) < s->heap_n; i = down) {
        if (down + 1 < s->heap_n && comes_before(&s->heap[down + 1], &s->heap[down])) down++;
        if (!comes_before(&s->heap[down], &last)) break;
        s->heap[i] = s->heap[down];
    }
    s->heap[i] = last;
    return least;
}

/* ---- merging a piece ------------------------------------------------------------------------------------------- */

bool bpe_space_reserve(BpeSpace *s, int32_t symbols) {
    if (symbols <= s->room) return true;
    size_t bytes = (size_t)symbols * sizeof(int32_t);
    int32_t *id = realloc(s->id, bytes);
    if (id) s->id = id;
    int32_t *before = realloc(s->before, bytes);
    if (before) s->before = before;
    int32_t *after = realloc(s->after, bytes);
    if (after) s->after = after;
    if (!id || !before || !after) return false;
    s->room = symbols;
    return true;
}

void bpe_space_free(BpeSpace *s) {
    free(s->id), free(s->before), free(s->after), free(s->heap);
}

/* Lets the symbol at `at` and the one after it be candidates, where both exist and have a merge. */
static bool consider(const MergeTable *m, BpeSpace *s, int32_t at) {
    if (at < 0 || s->after[at] < 0) return true;
    int32_t left = s->id[at], right = s->id[s->after[at]];
    const Merge *merge = merge_table_find(m, left, right);
    return !merge || heap_push(s, (Candidate){merge->rank, at, left, right});
}

int32_t bpe_merge(const MergeTable *m, BpeSpace *s, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        s->before[i] = i - 1;
        s->after[i] = i + 1 < n ? i + 1 : -1;
    }
    s->heap_n = 0;
    for (int32_t i = 0; i < n; i++)
        if (!consider(m, s, i)) return -1;

    while (s->heap_n > 0) {
        Candidate c = heap_pop(s);
        int32_t next = s->after[c.at];
        if (s->id[c.at] != c.left || next < 0 || s->id[next] != c.right) continue;   /* stale */
        s->id[c.at] = merge_table_find(m, c.left, c.right)->result;
        s->id[next] = -1;                                                            /* swallowed */
        s->after[c.at] = s->after[next];
        if (s->after[next] >= 0) s->before[s->after[next]] = c.at;
        if (!consider(m, s, s->before[c.at]) || !consider(m, s, c.at)) return -1;
    }
    int32_t left = 0;
    for (int32_t i = 0; i >= 0; i = s->after[i]) s->id[left++] = s->id[i];
    return left;
}
