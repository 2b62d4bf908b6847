/* trace.c - a decode's steps as JSON. */
#include "trace.h"

/* Appends value, which it takes; a list that did not grow is given up, so that no trace lacks an entry silently. */
static json_t *append(json_t *list, json_t *value) {
    if (json_array_append_new(list, value) == 0) return list;
    json_decref(list);
    return NULL;
}

static json_t *id_list(const int32_t *ids, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) list = append(list, json_integer(ids[i]));
    return list;
}

static json_t *row_list(const int64_t *rows, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) list = append(list, json_integer(rows[i]));
    return list;
}

static json_t *candidate_list(const CloverEvent *e) {
    json_t *list = json_array();
    for (int64_t i = 0; i < e->n_candidates; i++) {
        const CloverCandidate *c = &e->candidates[i];
        list = append(list, json_pack("[I, i, f]", (json_int_t)c->row, (int)c->id, c->p));
    }
    return list;
}

static json_t *judged_list(const CloverEvent *e) {
    json_t *list = json_array();
    for (int64_t i = 0; i < e->n_judged; i++) {
        const CloverJudged *j = &e->judged[i];
        list = append(list, json_pack("[i, f, f, b]", (int)j->id, j->p, j->entropy, (int)j->accepted));
    }
    return list;
}

json_t *trace_step(const CloverEvent *e) {
    switch (e->kind) {
    case CLOVER_EVENT_TOKEN:
        return json_pack("{s:s, s:i, s:f}", "step", "token", "id", (int)e->id, "p", e->p);
    case CLOVER_EVENT_PASS:
        return json_pack("{s:s, s:I, s:I, s:o, s:o}", "step", "pass", "pos", (json_int_t)e->position, "passno", (json_int_t)e->pass,
                         "candidates", candidate_list(e), "fixed", row_list(e->fixed, e->n_fixed));
    case CLOVER_EVENT_BLOCK:
        return json_pack("{s:s, s:I, s:o, s:I}", "step", "block", "pos", (json_int_t)e->position, "ids", id_list(e->ids, e->n_ids),
                         "emitted", (json_int_t)e->emitted);
    case CLOVER_EVENT_FIRST:
        return json_pack("{s:s, s:i}", "step", "first", "id", (int)e->id);
    case CLOVER_EVENT_ROUND:
        return json_pack("{s:s, s:I, s:o, s:o, s:I, s:i}", "step", "round", "pos", (json_int_t)e->position,
                         "draft", id_list(e->ids, e->n_ids), "judged", judged_list(e), "accepted", (json_int_t)e->accepted, "bonus", (int)e->bonus);
    case CLOVER_EVENT_OUTPUT:
        break;
    }
    return NULL;
}
