/* lint_header.c - names and keys held against each other: which tensors there are, in which layers, and what the header
 * says of them. Shapes are lint_shapes.c's, values lint_values.c's. [LNT-2] */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "lint.h"

/* [TEN-1] as lint needs it: every name that a role has or is met under, its shape, and how its values are judged. */
const LintRole lint_roles[LINT_ROLES] = {
    { IN_MODEL, V_MATRIX,     "token_embd.weight",  "embed_tokens.weight", { NULL }, 2, { S_V, S_D } },
    { IN_MODEL, V_LAYER_NORM, "output_norm.weight", "norm.weight",         { NULL }, 1, { S_D } },
    { IN_MODEL, V_MATRIX,     "output.weight",      "lm_head.weight",      { NULL }, 2, { S_V, S_D } },

    { IN_EVERY, V_LAYER_NORM, "attn_norm.weight",           "input_layernorm.weight",             { NULL }, 1, { S_D } },
    { IN_EVERY, V_LAYER_NORM, "post_attention_norm.weight", "post_attention_layernorm.weight",    { "ffn_norm.weight" }, 1, { S_D } },
    { IN_EVERY, V_ROUTER,     "ffn_gate_inp.weight",        "mlp.gate.weight",                    { NULL }, 2, { S_E, S_D } },
    { IN_EVERY, V_MATRIX,     "ffn_gate_shexp.weight",      "mlp.shared_expert.gate_proj.weight", { NULL }, 2, { S_FS, S_D } },
    { IN_EVERY, V_MATRIX,     "ffn_up_shexp.weight",        "mlp.shared_expert.up_proj.weight",   { NULL }, 2, { S_FS, S_D } },
    { IN_EVERY, V_MATRIX,     "ffn_down_shexp.weight",      "mlp.shared_expert.down_proj.weight", { NULL }, 2, { S_D, S_FS } },
    { IN_EVERY, V_ROUTER,     "ffn_gate_inp_shexp.weight",  "mlp.shared_expert_gate.weight",      { NULL }, 2, { S_ONE, S_D } },

    { IN_ATTENTION, V_MATRIX,  "attn_q.weight",      "self_attn.q_proj.weight", { NULL }, 2, { S_QG, S_D } },
    { IN_ATTENTION, V_MATRIX,  "attn_k.weight",      "self_attn.k_proj.weight", { NULL }, 2, { S_KV, S_D } },
    { IN_ATTENTION, V_MATRIX,  "attn_v.weight",      "self_attn.v_proj.weight", { NULL }, 2, { S_KV, S_D } },
    { IN_ATTENTION, V_MATRIX,  "attn_output.weight", "self_attn.o_proj.weight", { NULL }, 2, { S_D, S_O } },
    { IN_ATTENTION, V_QK_NORM, "attn_q_norm.weight", "self_attn.q_norm.weight", { NULL }, 1, { S_WIDTH } },
    { IN_ATTENTION, V_QK_NORM, "attn_k_norm.weight", "self_attn.k_norm.weight", { NULL }, 1, { S_WIDTH } },

    { IN_GDN, V_MATRIX,     "attn_qkv.weight",   "linear_attn.in_proj_qkv.weight", { NULL }, 2, { S_C, S_D } },
    { IN_GDN, V_MATRIX,     "attn_gate.weight",  "linear_attn.in_proj_z.weight",   { NULL }, 2, { S_VD, S_D } },
    { IN_GDN, V_ALPHA_BETA, "ssm_beta.weight",   "linear_attn.in_proj_b.weight",   { NULL }, 2, { S_HV, S_D } },
    { IN_GDN, V_ALPHA_BETA, "ssm_alpha.weight",  "linear_attn.in_proj_a.weight",   { NULL }, 2, { S_HV, S_D } },
    { IN_GDN, V_MATRIX,     "ssm_out.weight",    "linear_attn.out_proj.weight",    { NULL }, 2, { S_D, S_VD } },
    { IN_GDN, V_CONV,       "ssm_conv1d.weight", "linear_attn.conv1d.weight",      { "ssm_conv1d" }, 2, { S_C, S_TAPS } },
    { IN_GDN, V_GDN_NORM,   "ssm_norm.weight",   "linear_attn.norm.weight",        { "ssm_norm" }, 1, { S_DV } },
    { IN_GDN, V_RATE,       "ssm_a",             "linear_attn.A_log",              { "ssm_a.weight", "ssm_a_log" }, 1, { S_HV } },
    { IN_GDN, V_VECTOR,     "ssm_dt.bias",       "linear_attn.dt_bias",            { "ssm_dt", "ssm_dt.weight" }, 1, { S_HV } },

    { IN_DIFFUSION, V_DIFFUSION, "conv_right_weight",       "linear_attn.conv_right_weight",       { NULL }, 2, { S_C, S_RIGHT } },
    { IN_DIFFUSION, V_DIFFUSION, "bd_softmax_logit_scale",  "linear_attn.bd_softmax_logit_scale",  { NULL }, 1, { S_HV } },
    { IN_DIFFUSION, V_DIFFUSION, "bd_softmax_history_bias", "linear_attn.bd_softmax_history_bias", { NULL }, 1, { S_HV } },
    { IN_DIFFUSION, V_DIFFUSION, "bd_softmax_history_c",    "linear_attn.bd_softmax_history_c",    { NULL }, 1, { S_HV } },

    { IN_EXPERTS, V_EXPERTS, "ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj", { NULL }, 3, { S_E, S_F2, S_D } },
    { IN_EXPERTS, V_EXPERTS, "ffn_gate_exps.weight",    NULL,                       { NULL }, 3, { S_E, S_F, S_D } },
    { IN_EXPERTS, V_EXPERTS, "ffn_up_exps.weight",      NULL,                       { NULL }, 3, { S_E, S_F, S_D } },
    { IN_EXPERTS, V_EXPERTS, "ffn_down_exps.weight",    "mlp.experts.down_proj",    { NULL }, 3, { S_E, S_D, S_F } },
    { IN_EXPERTS, V_EXPERTS, NULL, "gate_proj.weight", { NULL }, 2, { S_F, S_D } },
    { IN_EXPERTS, V_EXPERTS, NULL, "up_proj.weight",   { NULL }, 2, { S_F, S_D } },
    { IN_EXPERTS, V_EXPERTS, NULL, "down_proj.weight", { NULL }, 2, { S_D, S_F } },
};

/* ---- numbers of the header ----------------------------------------------------------------------------------------- */

/* The member that a.b|c leads to; null counts as absent. */
static const json_t *member(const json_t *object, const char *names) {
    for (const char *p = names;; p++) {
        const json_t *at = object;
        for (;; p++) {
            const size_t n = strcspn(p, ".|");
            at = json_object_getn(at, p, n);
            p += n;
            if (*p != '.') break;
        }
        if (at && !json_is_null(at)) return at;
        if (*p == '\0') return NULL;
    }
}

static const json_t *config_member(const LintModel *m, const char *names) {
    const json_t *v = member(m->file->text, names);
    return v ? v : member(m->file->config, names);
}

static const GgufKey *key_of(const LintModel *m, const char *name) {
    char whole[192];
    snprintf(whole, sizeof whole, "%s.%s", m->architecture, name);
    return lint_key(m->file, whole);
}

int lint_number(const LintModel *m, const char *gguf, const char *json, double *out) {
    if (m->file->form == NAMES_HF) {
        const json_t *v = json ? config_member(m, json) : NULL;
        if (!v) return 0;
        if (json_is_boolean(v)) { *out = json_is_true(v); return 1; }
        *out = json_number_value(v);
        return json_is_number(v) ? 1 : -1;
    }
    bool truth;
    const GgufKey *k = gguf ? key_of(m, gguf) : NULL;
    if (!k) return 0;
    if (k->type != GGUF_ARRAY && gguf_bool(k, 0, &truth)) { *out = truth; return 1; }
    return k->type != GGUF_ARRAY && gguf_real(k, 0, out) ? 1 : -1;
}

/* ---- architecture [CFG-1] ------------------------------------------------------------------------------------------ */

static bool is_text(const GgufKey *k, const char *word) {
    GgufString s;
    return k && gguf_string(k, &s) && s.length == strlen(word) && memcmp(s.bytes, word, s.length) == 0;
}

static CloverStatus find_architecture(LintModel *m, Report *r, CloverError *err) {
    char shown[NAME_SHOWN] = "nothing";
    GgufString s;
    m->architecture = "clover_moe";
    m->clover = true;
    if (m->file->form == NAMES_HF) {
        const json_t *type = json_object_get(m->file->config, "model_type");
        const char *name = json_string_value(type);
        if (!m->file->config) return CLOVER_OK;
        if (!name) report_add(r, KEY_MISSING, BREAKS, CLOVER | TRANSFORMERS, NULL, "config.json has no model_type; read as clover_moe");
        else if (strcmp(name, "qwen3_5_moe") == 0 || strcmp(name, "qwen3_5_moe_text") == 0) { m->architecture = "qwen35moe"; m->clover = false; }
        else if (strcmp(name, "clover_moe") != 0)
            return error_set(err, CLOVER_UNSUPPORTED, "%s: model_type is %s; clover lint knows clover_moe, qwen3_5_moe and qwen3_5_moe_text",
                             m->file->path,
                             name_show(name, strlen(name), shown));
        return CLOVER_OK;
    }
    const GgufKey *k = lint_key(m->file, "general.architecture");
    if (is_text(k, "clover_moe")) return CLOVER_OK;
    if (is_text(k, "qwen35moe")) { m->architecture = "qwen35moe"; m->clover = false; return CLOVER_OK; }
    if (k && gguf_string(k, &s))
        return error_set(err, CLOVER_UNSUPPORTED, "%s: general.architecture is %s; clover lint knows clover_moe and qwen35moe", m->file->path,
                         name_show(s.bytes, s.length, shown));
    if (m->file->whole)
        report_add(r, KEY_MISSING, BREAKS, LLAMA_CPP | CLOVER, NULL, "general.architecture is no text or not there; read as clover_moe");
    return CLOVER_OK;
}

/* ---- tensors by role ----------------------------------------------------------------------------------------------- */

/* What stands behind prefix, a number and a dot; NULL: the name does not begin so. */
static const char *behind_number(const char *name, const char *prefix, int64_t *number) {
    const size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || name[n] < '0' || name[n] > '9') return NULL;
    const size_t digits = strspn(name + n, "0123456789");
    if (digits > 9 || name[n + digits] != '.') return NULL;
    *number = strtoll(name + n, NULL, 10);
    return name + n + digits + 1;
}

static bool ends_with(const char *name, const char *suffix) {
    const size_t n = strlen(name), k = strlen(suffix);
    return n >= k && strcmp(name + n - k, suffix) == 0;
}

static bool gguf_name_is(const LintRole *role, const char *name, bool *drifted) {
    if (!role->gguf) return false;
    if (strcmp(role->gguf, name) == 0) return true;
    if (role->where == IN_DIFFUSION) {                           /* [TEN-3] */
        char dotted[64];
        snprintf(dotted, sizeof dotted, "%s.weight", role->gguf);
        return ends_with(name, role->gguf) || ends_with(name, dotted);
    }
    for (int i = 0; i < 2 && role->other[i]; i++)
        if (strcmp(role->other[i], name) == 0) return *drifted = true;
    return false;
}

static bool role_fits(const LintRole *role, int64_t layer, int64_t expert) {
    const bool single = role->where == IN_EXPERTS && !role->gguf;
    return (role->where == IN_MODEL) == (layer < 0) && single == (expert >= 0);
}

/* What the name says in this form; role -1: nothing. */
static LintTensor role_of(const char *name, NameForm form) {
    static const char *const trunks[] = { "model.language_model.", "model.", "language_model.model.", "" };
    LintTensor t = { .role = -1, .layer = -1, .expert = -1 };
    const char *inside = NULL, *own;
    if (form == NAMES_GGUF) inside = behind_number(name, "blk.", &t.layer);
    for (int i = 0; form == NAMES_HF && i < 4 && !inside; i++) {
        char layers[48];
        snprintf(layers, sizeof layers, "%slayers.", trunks[i]);
        if ((inside = behind_number(name, layers, &t.layer))) break;
        if (trunks[i][0] && strncmp(name, trunks[i], strlen(trunks[i])) == 0) { inside = name + strlen(trunks[i]); break; }
    }
    if (!inside) inside = name;
    if (form == NAMES_HF && t.layer >= 0 && (own = behind_number(inside, "mlp.experts.", &t.expert))) inside = own;
    for (int i = 0; i < LINT_ROLES; i++) {
        const LintRole *role = &lint_roles[i];
        bool drifted = false;
        if (!role_fits(role, t.layer, t.expert)) continue;
        if (form == NAMES_GGUF ? !gguf_name_is(role, inside, &drifted) : !role->hf ||
            (strcmp(role->hf, inside) != 0 && !((role->where == IN_DIFFUSION || role->where == IN_EXPERTS) &&
            strncmp(role->hf, inside, strlen(role->hf)) == 0 && strcmp(inside + strlen(role->hf), ".weight") == 0))) continue;
        t.role = i;
        t.drifted_name = drifted;
        break;
    }
    return t;
}

void lint_role_name(const LintModel *m, int role, int64_t layer, char out[160]) {
    const LintRole *r = &lint_roles[role];
    const bool hf = m->file->form == NAMES_HF;
    const char *own = hf ? r->hf : r->gguf;
    if (!own) own = r->hf ? r->hf : r->gguf;
    if (layer >= 0) snprintf(out, 160, hf ? "model.layers.%lld.%s" : "blk.%lld.%s", (long long)layer, own);
    else snprintf(out, 160, "%s%s", hf && role != ROLE_HEAD ? "model." : "", own);
}

static void classify(LintModel *m, Report *r) {
    const NameForm form = m->file->form, other = form == NAMES_GGUF ? NAMES_HF : NAMES_GGUF;
    for (int64_t i = 0; i < m->file->tensors.n; i++) {
        const char *name = m->file->tensors.tensor[i].name;
        LintTensor t = role_of(name, form);
        if (t.role < 0) {
            LintTensor u = role_of(name, other);
            if (u.role >= 0) { t = u; t.drifted_name = true; }
        }
        if (t.layer >= CLOVER_MAX_LAYERS) t.role = -1;
        m->of[i] = t;
        if (t.role < 0 || !t.drifted_name) continue;
        char expected[160];
        lint_role_name(m, t.role, t.layer, expected);
        const int hurts = (form == NAMES_GGUF ? LLAMA_CPP : TRANSFORMERS) | (weights_role(name, form) ? 0 : CLOVER);   /* [TEN-12] */
        report_add(r, NAME_FORM, BREAKS, hurts, name, "%s, expected %s", name, expected);
    }
}

/* ---- layers -------------------------------------------------------------------------------------------------------- */

enum { KIND_UNKNOWN, KIND_ATTENTION, KIND_GDN };

static bool is_mtp(const char *name) {
    return strstr(name, ".nextn.") || strncmp(name, "mtp.", 4) == 0 || strncmp(name, "model.mtp.", 10) == 0;
}

/* By the tensors that a layer has. kind: [CLOVER_MAX_LAYERS]. Returns the number of layers that have tensors; *mtp: the first
 * layer with a nextn tensor, or that number. */
static int64_t kinds_by_tensors(const LintModel *m, int kind[CLOVER_MAX_LAYERS], int64_t *mtp) {
    int64_t n = 0;
    int attention[CLOVER_MAX_LAYERS] = { 0 }, gdn[CLOVER_MAX_LAYERS] = { 0 };
    *mtp = INT64_MAX;
    for (int64_t i = 0; i < m->file->tensors.n; i++) {
        const LintTensor *t = &m->of[i];
        if (t->layer < 0 || t->layer >= CLOVER_MAX_LAYERS) continue;
        if (is_mtp(m->file->tensors.tensor[i].name) && t->layer < *mtp) *mtp = t->layer;
        if (t->role < 0) continue;
        if (t->layer >= n) n = t->layer + 1;
        attention[t->layer] += lint_roles[t->role].where == IN_ATTENTION;
        gdn[t->layer] += lint_roles[t->role].where == IN_GDN;
    }
    for (int64_t l = 0; l < n; l++)
        kind[l] = attention[l] > gdn[l] ? KIND_ATTENTION : gdn[l] > attention[l] ? KIND_GDN : KIND_UNKNOWN;
    if (*mtp > n) *mtp = n;
    return n;
}

/* By the header; false: it says nothing (or, reported, nothing usable). how: its words. */
static bool kinds_by_header(const LintModel *m, int64_t layers, int kind[CLOVER_MAX_LAYERS], char how[64], Report *r) {
    double interval = 0;
    const bool hf = m->file->form == NAMES_HF;
    const int said = lint_number(m, "full_attention_interval", "full_attention_interval", &interval);
    const json_t *types = hf ? config_member(m, "layer_types") : NULL;
    const GgufKey *recurrent = hf ? NULL : key_of(m, "attention.recurrent_layers");
    const int64_t listed = types ? (int64_t)json_array_size(types) : recurrent ? (int64_t)recurrent->count : -1;
    if (said == 1 && interval >= 1) snprintf(how, 64, "full_attention_interval %g", interval);
    if (listed >= 0) snprintf(how, 64, hf ? "layer_types" : "attention.recurrent_layers");
    if (listed >= 0 && listed < layers) {
        report_add(r, INTERVAL_CONTRADICTS, BREAKS, LLAMA_CPP | CLOVER, NULL, "%s has %lld entries for %lld layers", how, (long long)listed,
                   (long long)layers);
        return false;
    }
    int64_t first = -1;
    for (int64_t l = 0; l < layers; l++) {
        const bool by_interval = interval >= 1 && fmod((double)(l + 1), interval) == 0;
        bool truth = false;
        if (types) {
            const char *word = json_string_value(json_array_get(types, (size_t)l));
            truth = word && strcmp(word, "linear_attention") == 0;
        } else if (recurrent) gguf_bool(recurrent, (uint64_t)l, &truth);
        kind[l] = (listed >= 0 ? !truth : by_interval) ? KIND_ATTENTION : KIND_GDN;
        if (listed >= 0 && said == 1 && by_interval != !truth && first < 0) first = l;
    }
    if (first >= 0)
        report_add(r, INTERVAL_CONTRADICTS, BREAKS, CLOVER, NULL, "%s and full_attention_interval %g contradict each other at layer %lld", how,
                   interval, (long long)first);
    return listed >= 0 || (said == 1 && interval >= 1);
}

/* Which interval the tensors follow; 0: none. */
static int64_t regular_interval(const int *kind, int64_t layers) {
    int64_t every = 0;
    for (int64_t l = 0; l < layers && !every; l++)
        if (kind[l] == KIND_ATTENTION) every = l + 1;
    for (int64_t l = 0; every && l < layers; l++)
        if (kind[l] != KIND_UNKNOWN && (kind[l] == KIND_ATTENTION) != ((l + 1) % every == 0)) return 0;
    return every;
}

static void compare_kinds(LintModel *m, const int *tensors, const int *header, const char *how, Report *r) {
    char list[256] = "";
    int64_t differ = 0, last = -1;
    for (int64_t l = 0; l < m->layers; l++) {
        if (tensors[l] == KIND_UNKNOWN || tensors[l] == header[l]) continue;
        const size_t used = strlen(list);
        if (differ++ < 12) snprintf(list + used, sizeof list - used, "%s%lld", used ? ", " : "", (long long)l);
        last = l;
    }
    if (differ == 0) return;
    if (differ == 1 && last == m->layers - 1 && m->layers > 1 && tensors[last] == KIND_ATTENTION && regular_interval(header, last)) {
        report_add(r, MTP_BUNDLED, BREAKS, LLAMA_CPP | CLOVER, NULL,
                   "layer %lld, the last, has attention tensors where %s says GDN: it is a prediction block counted as a layer (nextn_predict_layers is not there)",
                   (long long)last, how);
        m->layers--;                                             /* sort_further names its tensors */
        return;
    }
    const int64_t every = regular_interval(tensors, m->layers);
    char follow[64] = "no interval";
    if (every) snprintf(follow, sizeof follow, "interval %lld", (long long)every);
    report_add(r, INTERVAL_CONTRADICTS, BREAKS, LLAMA_CPP | CLOVER, NULL,
               "%s, but the tensors follow %s: %lld of %lld layers are of the other kind (%s)", how, follow, (long long)differ, (long long)m->layers,
                       list);
}

static void find_layers(LintModel *m, Report *r) {
    int by_tensors[CLOVER_MAX_LAYERS] = { 0 }, by_header[CLOVER_MAX_LAYERS] = { 0 };
    double blocks = -1, nextn = 0;
    int64_t mtp;
    const bool whole = m->file->whole;
    const int64_t found = kinds_by_tensors(m, by_tensors, &mtp);
    const int hurts = LLAMA_CPP | CLOVER;
    const bool said = lint_number(m, "block_count", "num_hidden_layers", &blocks) == 1 && blocks >= 1 && blocks <= CLOVER_MAX_LAYERS;
    if (lint_number(m, "nextn_predict_layers", NULL, &nextn) != 1 || !(nextn >= 0 && nextn < blocks)) nextn = 0;
    m->layers = said ? (int64_t)blocks - (int64_t)nextn : found;
    if (nextn > 0)
        report_add(r, MTP_BUNDLED, BREAKS, LLAMA_CPP, NULL, "nextn_predict_layers is %g: the last %g of %g layers are no part of the model", nextn,
                   nextn, blocks);
    else if (mtp < found && mtp > 0) {
        if (mtp < m->layers)
            report_add(r, MTP_BUNDLED, BREAKS, hurts, NULL, "layer %lld has nextn tensors, but nextn_predict_layers is not there", (long long)mtp);
        m->layers = mtp;
    } else if (said && whole && found > 0 && m->layers > found) {
        report_add(r, KEY_CONTRADICTS, BREAKS, hurts, NULL, "%s is %lld, but there are tensors of %lld layers only", m->file->form == NAMES_HF
                   ? "num_hidden_layers" : "block_count", (long long)m->layers, (long long)found);
        m->layers = found;
    } else if (said && found > m->layers) {
        report_add(r, KEY_CONTRADICTS, BREAKS, hurts, NULL, "%s is %lld, but there are tensors of %lld layers", m->file->form == NAMES_HF
                   ? "num_hidden_layers" : "block_count", (long long)m->layers, (long long)found);
        m->layers = found;
    }
    char how[64] = "";
    const bool told = kinds_by_header(m, m->layers, by_header, how, r);
    if (told) compare_kinds(m, by_tensors, by_header, how, r);
    else if (whole && (m->file->form == NAMES_GGUF || m->file->config) && !report_has(r, INTERVAL_CONTRADICTS)) {
        const int64_t every = regular_interval(by_tensors, m->layers);
        report_add(r, KEY_MISSING, BREAKS, hurts, NULL, "full_attention_interval is not there%s%.0lld", every ? "; the tensors follow " : "",
                   (long long)every);
    }
    for (int64_t l = 0; l < m->layers; l++)
        m->attention[l] = (by_tensors[l] != KIND_UNKNOWN ? by_tensors[l] : by_header[l]) == KIND_ATTENTION;
}

/* ---- missing and further tensors ----------------------------------------------------------------------------------- */

static bool belongs(const LintModel *m, const LintTensor *t) {
    const Where where = lint_roles[t->role].where;
    if (where == IN_MODEL) return true;
    if (t->layer >= m->layers) return false;
    return where == IN_ATTENTION ? m->attention[t->layer] : where == IN_GDN || where == IN_DIFFUSION ? !m->attention[t->layer] : true;
}

static void sort_further(const LintModel *m, int64_t i, Report *r) {
    static const char *const vision[] = { "v.", "mm.", "visual.", "model.visual.", "vision_", "model.vision_" };
    static const char *const unread[] = { ".bias", ".scale", ".input_scale", ".weight_scale", ".weight_scale_inv", ".qweight" };
    const Tensor *t = &m->file->tensors.tensor[i];
    const bool gguf = m->file->form == NAMES_GGUF;
    const Severity severity = gguf ? BREAKS : NOTE;              /* upstream's loader counts tensors; a folder may have more */
    double nextn = 0;
    if (lint_number(m, "nextn_predict_layers", NULL, &nextn) != 1) nextn = 0;
    if (is_mtp(t->name) || (m->of[i].layer >= m->layers && (double)m->of[i].layer < (double)m->layers + nextn) ||
        (m->of[i].layer >= m->layers && report_has(r, MTP_BUNDLED))) {
        if (!report_has(r, MTP_BUNDLED))
            report_add(r, MTP_BUNDLED, severity, gguf ? LLAMA_CPP : 0, NULL, "tensors such as %s are no part of the text model", t->name);
        report_tensor(r, MTP_BUNDLED, severity, gguf ? LLAMA_CPP : 0, t->name);
        return;
    }
    for (size_t k = 0; k < sizeof vision / sizeof *vision; k++) {
        if (strncmp(t->name, vision[k], strlen(vision[k])) != 0) continue;
        if (!report_has(r, VISION_BUNDLED))
            report_add(r, VISION_BUNDLED, severity, gguf ? LLAMA_CPP : 0, NULL, "tensors such as %s are no part of the text model", t->name);
        report_tensor(r, VISION_BUNDLED, severity, gguf ? LLAMA_CPP : 0, t->name);
        return;
    }
    bool changes = false;                                        /* would the model compute otherwise? [CFG-7] */
    for (size_t k = 0; k < sizeof unread / sizeof *unread; k++) changes |= ends_with(t->name, unread[k]);
    const char *why = m->of[i].role >= 0 ? "stands in a layer of the other kind" : changes ? "would change what the model computes"
            : "has no role in this architecture";
    report_add(r, TENSOR_EXTRA, gguf || changes ? BREAKS : NOTE, (gguf ? LLAMA_CPP : 0) | (changes ? CLOVER : 0), t->name, "%s %s", t->name, why);
}

/* Per layer and role, how many tensors. */
typedef struct Presence { int *count; int64_t layers; } Presence;
static int *at(const Presence *p, int64_t layer, int role) { return &p->count[(layer + 1) * LINT_ROLES + role]; }   /* layer -1: the model's */

static void need(const LintModel *m, const Presence *p, int64_t layer, int role, Report *r) {
    char name[160];
    if (*at(p, layer, role)) return;
    lint_role_name(m, role, layer, name);
    report_add(r, TENSOR_MISSING, BREAKS, m->file->form == NAMES_GGUF ? LLAMA_CPP | CLOVER : CLOVER | TRANSFORMERS, name, "%s is not there", name);
}

static void need_experts(const LintModel *m, const Presence *p, int64_t layer, Report *r) {
    const bool hf = m->file->form == NAMES_HF, fused = *at(p, layer, ROLE_GATE_UP);
    const int singles = *at(p, layer, ROLE_GATE_1) + *at(p, layer, ROLE_UP_1) + *at(p, layer, ROLE_DOWN_1);
    if (singles > 0) {                                           /* as many as the router has rows */
        const int64_t E = m->size[S_E];
        for (int role = ROLE_GATE_1; role <= ROLE_DOWN_1; role++) {
            char name[160];
            if (E < 0 || *at(p, layer, role) == E || (role < ROLE_DOWN_1 && fused) || (role == ROLE_DOWN_1 && *at(p, layer, ROLE_DOWN))) continue;
            lint_role_name(m, role, layer, name);
            report_add(r, TENSOR_MISSING, BREAKS, CLOVER | TRANSFORMERS, NULL, "layer %lld has %s of %d experts, of %lld", (long long)layer,
                       lint_roles[role].hf, *at(p, layer, role), (long long)E);
        }
        return;
    }
    if (!fused && (hf || !(*at(p, layer, ROLE_GATE) || *at(p, layer, ROLE_UP)))) need(m, p, layer, hf ? ROLE_GATE_UP : ROLE_GATE, r);
    if (!fused && !hf && *at(p, layer, ROLE_UP)) need(m, p, layer, ROLE_GATE, r);
    if (!fused && !hf) need(m, p, layer, ROLE_UP, r);
    need(m, p, layer, ROLE_DOWN, r);
}

static void need_diffusion(LintModel *m, const Presence *p, Report *r) {
    int64_t there = 0, missing = 0, gdn = 0;
    const bool gguf = m->file->form == NAMES_GGUF;
    for (int64_t l = 0; l < m->layers; l++)
        for (int role = 0; role < LINT_ROLES && !m->attention[l]; role++) {
            if (lint_roles[role].where != IN_DIFFUSION || (lint_roles[role].shape[1] == S_RIGHT && m->size[S_TAPS] == 1)) continue;
            gdn++;
            if (*at(p, l, role)) there++;
            else missing++;
        }
    m->any_diffusion = there > 0;
    if (gdn == 0 || !m->clover) return;
    if (there == 0) {
        report_add(r, DIFFUSION_MISSING, NOTE, PREVIEWS, NULL,
                   "none of %lld diffusion tensors is there (upstream's converter drops them): only token by token", (long long)missing);
        return;
    }
    if (missing == 0) {
        if (gguf)
            report_add(r, TENSOR_EXTRA, NOTE, LLAMA_CPP, NULL,
                       "%lld diffusion tensors: previews need them, upstream's llama.cpp refuses a file that has them", (long long)there);
        return;
    }
    report_add(r, DIFFUSION_PARTIAL, BREAKS, CLOVER | PREVIEWS, NULL, "%lld of %lld diffusion tensors are there", (long long)there, (long long)gdn);
    for (int64_t l = 0; l < m->layers; l++)
        for (int role = 0; role < LINT_ROLES && !m->attention[l]; role++) {
            char name[160];
            if (lint_roles[role].where != IN_DIFFUSION || *at(p, l, role)) continue;
            lint_role_name(m, role, l, name);
            report_add(r, DIFFUSION_PARTIAL, BREAKS, CLOVER | PREVIEWS, name, "%s is not there", name);
        }
}

static void check_presence(LintModel *m, Report *r) {
    Presence p = { calloc((size_t)(m->layers + 1) * LINT_ROLES, sizeof(int)), m->layers };
    if (!p.count) { r->no_memory = true; return; }
    for (int64_t i = 0; i < m->file->tensors.n; i++) {
        const LintTensor *t = &m->of[i];
        if (t->role < 0 || !belongs(m, t)) { sort_further(m, i, r); continue; }
        int *count = at(&p, t->layer, t->role);
        if (++*count == 2 && t->expert < 0)
            report_add(r, TENSOR_EXTRA, BREAKS, LLAMA_CPP | CLOVER, m->file->tensors.tensor[i].name, "%s is the second tensor for its role",
                       m->file->tensors.tensor[i].name);
    }
    double tied = 0;
    const bool head_is_needed = m->file->form == NAMES_HF && lint_number(m, NULL, "tie_word_embeddings", &tied) == 1 && tied == 0;
    if (m->file->whole) {
        need(m, &p, -1, ROLE_EMBED, r);
        need(m, &p, -1, ROLE_FINAL_NORM, r);
        if (head_is_needed) need(m, &p, -1, ROLE_HEAD, r);
        for (int64_t l = 0; l < m->layers; l++) {
            for (int role = 0; role < LINT_ROLES; role++) {
                const Where where = lint_roles[role].where;
                if (where == IN_EVERY || where == (m->attention[l] ? IN_ATTENTION : IN_GDN)) need(m, &p, l, role, r);
            }
            need_experts(m, &p, l, r);
        }
        need_diffusion(m, &p, r);
    } else for (int64_t i = 0; i < m->file->tensors.n; i++)
        m->any_diffusion |= m->of[i].role >= 0 && lint_roles[m->of[i].role].where == IN_DIFFUSION;
    free(p.count);
}

/* ---- types --------------------------------------------------------------------------------------------------------- */

/* The type of most of the model's matrices. */
DType lint_matrix_type(const LintModel *m) {
    int64_t elements[256] = { 0 };
    int most = DT_F32;
    for (int64_t i = 0; i < m->file->tensors.n; i++) {
        const Tensor *t = &m->file->tensors.tensor[i];
        if (m->of[i].role < 0 || (unsigned)t->type > 255) continue;
        const Value v = lint_roles[m->of[i].role].value;
        if (v == V_MATRIX || v == V_EXPERTS) elements[t->type] += t->elements > INT64_MAX / 4096 ? INT64_MAX / 4096 : t->elements;
    }
    for (int type = 0; type < 256; type++)
        if (elements[type] > elements[most]) most = type;
    return (DType)most;
}

double lint_bits(DType type) {
    const DTypeInfo *info = dtype_info(type);
    return info ? 8 * (double)info->bytes / (double)info->block : 8;
}

/* A right GGUF stores norms, conv, router, shared gate and vectors in F32; alpha and beta follow the file's type. */
static void check_types(const LintModel *m, Report *r) {
    const DType most = lint_matrix_type(m);
    if (m->file->form == NAMES_HF) return;
    for (int64_t i = 0; i < m->file->tensors.n; i++) {
        const Tensor *t = &m->file->tensors.tensor[i];
        if (m->of[i].role < 0) continue;
        const Value v = lint_roles[m->of[i].role].value;
        const DTypeInfo *info = dtype_info(t->type);
        const char *name = info ? info->name : "an unknown type";
        if (v == V_ALPHA_BETA) {
            if (lint_bits(t->type) >= 16 || lint_bits(t->type) > lint_bits(most)) continue;
            const bool follows = t->type == most;
            report_add(r, ALPHA_BETA_QUANTISED, follows ? NOTE : QUALITY, LLAMA_CPP | CLOVER, t->name,
                       "%s is %s, %.3g bits a value (most matrices: %s)", t->name, name, lint_bits(t->type),
                       dtype_info(most) ? dtype_info(most)->name : "?");
        } else if (v != V_MATRIX && v != V_EXPERTS && v != V_DIFFUSION && t->type != DT_F32 && t->type != DT_F64)
            report_add(r, ROUTER_QUANTISED, QUALITY, LLAMA_CPP | CLOVER, t->name, "%s is %s, expected F32 (router, shared gate, conv, norms and vectors)",
                       t->name, name);
    }
}

/* ---- rotary dims, tokenizer, ids ----------------------------------------------------------------------------------- */

/* The sum of the sections and how many there are; false: no list of whole numbers. */
static bool sections(const LintModel *m, double *sum, int64_t *n, bool *there) {
    *sum = 0;
    if (m->file->form == NAMES_HF) {
        const json_t *list = config_member(m, "rope_parameters.mrope_section|rope_scaling.mrope_section|mrope_section");
        *there = list != NULL;
        *n = (int64_t)json_array_size(list);
        for (int64_t i = 0; i < *n; i++) *sum += json_number_value(json_array_get(list, (size_t)i));
        return json_is_array(list);
    }
    const GgufKey *k = key_of(m, "rope.dimension_sections");
    *there = k != NULL;
    *n = k ? (int64_t)k->count : 0;
    for (int64_t i = 0; i < *n && *n <= 64; i++) {
        int64_t v;
        if (!gguf_int(k, (uint64_t)i, &v) || v < 0) return false;
        *sum += (double)v;
    }
    return k && k->type == GGUF_ARRAY && *n <= 64;
}

static void check_rotary(const LintModel *m, Report *r) {
    const bool gguf = m->file->form == NAMES_GGUF;
    const double width = (double)m->size[S_WIDTH];
    double R = 0, sum;
    int64_t n;
    bool there;
    const bool list = sections(m, &sum, &n, &there);
    const int said = lint_number(m, "rope.dimension_count", "rope_parameters.partial_rotary_factor|partial_rotary_factor", &R);
    if (said == 1 && !gguf) R = width > 0 ? R * width : 0;
    if (gguf && there && !list) report_add(r, ROPE_SECTIONS_FORM, BREAKS, LLAMA_CPP, NULL, "rope.dimension_sections is no list of whole numbers");
    else if (gguf && there && n != 4)
        report_add(r, ROPE_SECTIONS_FORM, NOTE, 0, NULL,
                   "rope.dimension_sections has %lld entries, usually 4; text has one position for all axes, so nothing changes", (long long)n);
    else if (gguf && !there && m->file->whole)
        report_add(r, ROPE_SECTIONS_FORM, NOTE, LLAMA_CPP, NULL, "rope.dimension_sections is not there; some loaders ask for it");
    if (said == 0) {
        if (m->file->whole && (gguf || m->file->config))
            report_add(r, ROPE_DIMS_MISSING, GARBAGE, gguf ? LLAMA_CPP | CLOVER : CLOVER, NULL, list && sum > 0
                       ? "%s is not there; the sections say %g" : "%s is not there",
                       gguf ? "rope.dimension_count" : "partial_rotary_factor", 2 * sum);
        return;
    }
    if (said < 0 || !(R >= 2) || fmod(R, 2) > 1e-6 || (width > 0 && R > width)) {
        if (gguf || width > 0) {
            report_add(r, KEY_CONTRADICTS, BREAKS, LLAMA_CPP | CLOVER, NULL,
                       "%g rotary dims of a head of %g: expected an even number from 2 to that", R, width);
            report_beyond_fix(r, KEY_CONTRADICTS, BREAKS);
        }
    } else if (list && sum > 0 && fabs(2 * sum - R) > 0.5) {
        report_add(r, KEY_CONTRADICTS, GARBAGE, LLAMA_CPP | CLOVER, NULL, "%g rotary dims, but the sections (pairs) say %g", R, 2 * sum);
        report_beyond_fix(r, KEY_CONTRADICTS, GARBAGE);
    }
}

static void check_token_table(const LintModel *m, const GgufKey *tokens, Report *r) {
    static const char *const beside[] = { "tokenizer.ggml.token_type", "tokenizer.ggml.scores" };
    const Tensor *embedding = lint_tensor(m->file, "token_embd.weight");
    if (embedding && embedding->dims == 2 && (uint64_t)embedding->shape[0] != tokens->count)
        report_add(r, TOKEN_TABLE_SIZE, BREAKS, LLAMA_CPP | CLOVER, embedding->name, "%llu tokens, %lld embedding rows",
                   (unsigned long long)tokens->count, (long long)embedding->shape[0]);
    for (int i = 0; i < 2; i++) {
        const GgufKey *k = lint_key(m->file, beside[i]);
        if (k && k->count != tokens->count)
            report_add(r, TOKEN_TABLE_SIZE, BREAKS, LLAMA_CPP | CLOVER, NULL, "%s has %llu entries for %llu tokens", beside[i],
                       (unsigned long long)k->count, (unsigned long long)tokens->count);
    }
}

static void check_ids(const LintModel *m, const GgufKey *tokens, Report *r) {
    static const char *const ends[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eos_token_ids", "tokenizer.ggml.eot_token_id" };
    bool any = key_of(m, "generation.eos_token_id") != NULL;
    for (int i = 0; i < 3; i++) {
        const GgufKey *k = lint_key(m->file, ends[i]);
        int64_t id = -1;
        if (!k) continue;
        any = true;
        if (!gguf_int(k, 0, &id) || id < 0 || (tokens && (uint64_t)id >= tokens->count)) {
            report_add(r, KEY_CONTRADICTS, BREAKS, LLAMA_CPP | CLOVER, NULL, "%s is %lld, outside the vocabulary", ends[i], (long long)id);
            report_beyond_fix(r, KEY_CONTRADICTS, BREAKS);
        }
    }
    if (!any)
        report_add(r, EOS_MISSING, QUALITY, LLAMA_CPP | CLOVER, NULL, "none of tokenizer.ggml.eos_token_id, eos_token_ids and eot_token_id is there");
    if (m->clover && m->any_diffusion && !key_of(m, "diffusion.mask_token_id") && !lint_key(m->file, "tokenizer.ggml.mask_token_id") &&
        gguf_find_string(tokens, "<|mask|>") < 0)
        report_add(r, MASK_UNKNOWN, BREAKS, PREVIEWS, NULL,
                   "neither diffusion.mask_token_id nor tokenizer.ggml.mask_token_id nor a token <|mask|> is there");
}

static void check_tokenizer(const LintModel *m, Report *r) {
    const LintFile *f = m->file;
    if (f->form == NAMES_HF) {
        const bool eos = json_object_get(f->generation, "eos_token_id") || config_member(m, "eos_token_id");
        if (f->config && !eos)
            report_add(r, EOS_MISSING, QUALITY, CLOVER | TRANSFORMERS, NULL, "neither generation_config.json nor config.json has eos_token_id");
        if (f->config && m->clover && m->any_diffusion && !config_member(m, "mask_token_id") && !f->has_mask_token)
            report_add(r, MASK_UNKNOWN, BREAKS, PREVIEWS, NULL, "config.json has no mask_token_id, and tokenizer.json no <|mask|>");
        if (f->splits_otherwise)
            report_add(r, TOKENIZER_PRE, QUALITY, CLOVER | TRANSFORMERS, NULL,
                       "tokenizer.json splits text by another pattern, in which marks (\\p{M}) do not stay with letters");
        if (!f->has_tokenizer) report_remark(r, "no tokenizer.json: prompts must be given as ids");
        return;
    }
    if (!f->whole) return;
    const GgufKey *tokens = lint_key(f, "tokenizer.ggml.tokens"), *pre = lint_key(f, "tokenizer.ggml.pre"),
            *merges = lint_key(f, "tokenizer.ggml.merges");
    GgufString s;
    char shown[NAME_SHOWN] = "not there";
    if (!tokens || tokens->element != GGUF_STRING) {
        report_add(r, KEY_MISSING, BREAKS, LLAMA_CPP, NULL, "tokenizer.ggml.tokens is not there, or no list of texts");
        report_beyond_fix(r, KEY_MISSING, BREAKS);
        tokens = NULL;
    } else check_token_table(m, tokens, r);
    if (!is_text(lint_key(f, "tokenizer.ggml.model"), "gpt2"))
        report_add(r, TOKENIZER_PRE, BREAKS, LLAMA_CPP | CLOVER, NULL, "tokenizer.ggml.model is not \"gpt2\"");
    if (!is_text(pre, "qwen35")) {
        if (pre && gguf_string(pre, &s)) name_show(s.bytes, s.length, shown);
        report_add(r, TOKENIZER_PRE, QUALITY, LLAMA_CPP, NULL,
                   "tokenizer.ggml.pre is %s, expected 'qwen35': text is split otherwise than in training", shown);
    }
    if (!merges || merges->element != GGUF_STRING)
        report_add(r, MERGES_MISSING, BREAKS, LLAMA_CPP | CLOVER, NULL, "tokenizer.ggml.merges is not there: text cannot be encoded");
    check_ids(m, tokens, r);
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

CloverStatus lint_header(LintModel *m, const LintFile *f, Report *r, CloverError *err) {
    error_clear(err);
    *m = (LintModel){ .file = f };
    if (find_architecture(m, r, err) != CLOVER_OK) return err->status;
    m->of = calloc(f->tensors.n ? (size_t)f->tensors.n : 1, sizeof *m->of);
    if (!m->of) return error_memory(err, "the roles of tensors", (size_t)f->tensors.n * sizeof *m->of);
    classify(m, r);
    find_layers(m, r);
    lint_shapes(m, r);
    check_presence(m, r);
    check_types(m, r);
    check_rotary(m, r);
    check_tokenizer(m, r);
    return r->no_memory ? error_memory(err, "the report", 4096) : CLOVER_OK;
}

void lint_model_free(LintModel *m) {
    free(m->of);
    m->of = NULL;
}
