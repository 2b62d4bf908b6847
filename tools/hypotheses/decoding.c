/* decoding.c - decisions of the decode modes that ports get wrong. They show in a run's trace and tokens, not in a step's stages:
 * `stages` names the trace's steps instead. [HYP-1] */
#include <math.h>
#include "hypothesis.h"

/* ---- denoising ----------------------------------------------------------------------------------------------------- */

static bool at_or_above(double p, double threshold) { return p >= threshold; }
static bool never(double p, double threshold) { (void)p, (void)threshold; return false; }

static int64_t last_most_probable(const CloverCandidate *c, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) if (c[i].p >= c[best].p) best = i;
    return best;
}

/* Rows fixed in an earlier pass whose token is no longer above the threshold are masked again, while fewer masks remain than the
 * pass began with, so that the block comes to an end. */
static CloverStatus remask(Decoder *d, Block *b) {
    const int64_t began_with = b->left + b->n_fixed;
    for (int64_t t = 0; t < b->n && b->left + 1 < began_with; t++) {
        bool now = b->masked[t];
        for (int64_t i = 0; i < b->n_fixed; i++) now |= b->fixed[i] == t;
        if (now) continue;
        CloverStatus status = decoder_process(d, t, d->n_response + t + 1, false);
        if (status != CLOVER_OK) return status;
        if (d->p[b->ids[t]] > d->options->threshold) continue;
        b->ids[t] = d->options->mask_id;
        b->masked[t] = true;
        b->left++;
    }
    return CLOVER_OK;
}

static int64_t rows_to_the_next_multiple(const Decoder *d) {
    const int64_t n = d->options->block;
    return n - d->engine->position(d->engine->self) % n;
}

static int64_t rows_wanted(const Decoder *d) {
    const int64_t wanted = d->options->max_tokens - d->n_response;
    return wanted < d->options->block ? wanted : d->options->block;
}

static CloverStatus keep_nothing(Decoder *d, const Block *b) {
    (void)d, (void)b;
    return CLOVER_OK;
}

static void set_threshold(DecodeRules *r) { r->confident = at_or_above; }
static void set_one(DecodeRules *r) { r->confident = never; }
static void set_last_row(DecodeRules *r) { r->most_probable = last_most_probable; }
static void set_remask(DecodeRules *r) { r->revise = remask; }
static void set_aligned(DecodeRules *r) { r->block_rows = rows_to_the_next_multiple; }
static void set_cut(DecodeRules *r) { r->block_rows = rows_wanted; }
static void set_skipped(DecodeRules *r) { r->keep_block = keep_nothing; }

/* ---- draft-self ---------------------------------------------------------------------------------------------------- */

static CloverStatus stay(Decoder *d, const Round *r, const void *before) {
    (void)d, (void)r, (void)before;
    return CLOVER_OK;
}

static bool accept_argmax(const Decoder *d, int64_t row, const CloverJudged *j) { return j->id == d->rules->best(decoder_row(d, row), d->engine->vocab); }

static void set_stay(DecodeRules *r) { r->rewind = stay; }
static void set_argmax(DecodeRules *r) { r->accept = accept_argmax; }

/* ---- every mode ---------------------------------------------------------------------------------------------------- */

static void leave_mask(double *logits, int32_t mask_id) { (void)logits, (void)mask_id; }

static int32_t last_best(const double *row, int64_t vocab) {
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++) if (row[i] >= row[best]) best = i;
    return (int32_t)best;
}

static void count_prompt(int64_t *counts, const int32_t *prompt, int64_t n) {
    for (int64_t i = 0; i < n; i++) counts[prompt[i]]++;
}

static void repetition_first(double *logits, const ControlContext *c) {
    const CloverControls *k = c->controls;
    for (int64_t id = 0; id < c->vocab; id++) {
        if (c->counts[id] == 0) continue;
        if (k->repetition_penalty != 1) logits[id] = logits[id] < 0 ? logits[id] * k->repetition_penalty : logits[id] / k->repetition_penalty;
        logits[id] -= (double)c->counts[id] * k->frequency_penalty;
        logits[id] -= k->presence_penalty;
    }
}

static void set_mask(DecodeRules *r) { r->control.mask = leave_mask; }
static void set_last(DecodeRules *r) { r->best = last_best; }
static void set_count_prompt(DecodeRules *r) { r->count_prompt = count_prompt; }
static void set_repetition_first(DecodeRules *r) { r->control.penalise = repetition_first; }

/* ---- the list ------------------------------------------------------------------------------------------------------ */

static const Hypothesis list[] = {
    { .name = "threshold_inclusive", .kind = HYPOTHESIS_DECODING, .clause = "DEN-3", .stages = "pass", .decoding = set_threshold,
      .says = "fixes rows at the threshold too, not only above it",
      .right = "fixed when p > threshold", .wrong = "fixed when p >= threshold",
      .shows = "A pass fixes a row whose probability equals the threshold; the golden's leaves it masked.",
      .needs = "denoise; a row whose probability is the threshold exactly (1 at threshold 1)", .report = "", .lint = "" },
    { .name = "denoise_fixes_one", .kind = HYPOTHESIS_DECODING, .clause = "DEN-3", .stages = "pass", .decoding = set_one,
      .says = "fixes one row in every pass, however many are above the threshold",
      .right = "fixed = every masked row with p > threshold, else the most probable one", .wrong = "fixed = the most probable masked row",
      .shows = "A block of n rows takes n passes whatever the threshold is.",
      .needs = "denoise; a pass with two rows above the threshold", .report = "", .lint = "" },
    { .name = "tie_takes_last_row", .kind = HYPOTHESIS_DECODING, .clause = "DEN-4", .stages = "pass", .decoding = set_last_row,
      .says = "fixes the last of equally probable rows instead of the lowest",
      .right = "row = min { t : p_t = max p }", .wrong = "row = max { t : p_t = max p }",
      .shows = "Where no row is above the threshold and two are equally probable, the later one is fixed.",
      .needs = "denoise; two most probable rows that are equal", .report = "", .lint = "" },
    { .name = "denoise_remasks", .kind = HYPOTHESIS_DECODING, .clause = "DEN-5", .stages = "pass", .decoding = set_remask,
      .says = "masks a fixed row again when its token falls to or below the threshold",
      .right = "nothing fixed is revised", .wrong = "masked again when p(fixed token) <= threshold",
      .shows = "A row that an earlier pass fixed is a candidate again, and a block takes more passes.",
      .needs = "denoise; a pass that fixes two rows or more while an earlier one is no longer above the threshold", .report = "", .lint = "" },
    { .name = "denoise_aligned_blocks", .kind = HYPOTHESIS_DECODING, .clause = "DEN-1", .stages = "pass block", .decoding = set_aligned,
      .says = "ends the first block at a multiple of the block size instead of giving it all its rows",
      .right = "block = n rows from where the prompt ends", .wrong = "block = n - (position mod n) rows",
      .shows = "The first pass has fewer rows than the golden's, and its history weights and values differ with it.",
      .needs = "denoise; a prompt whose length is no multiple of the block size", .report = "", .lint = "" },
    { .name = "block_cut_to_budget", .kind = HYPOTHESIS_DECODING, .clause = "DEN-7", .stages = "pass block", .decoding = set_cut,
      .says = "shortens the last block to the tokens still wanted",
      .right = "every block has n rows; the answer is cut", .wrong = "block = min(n, tokens still wanted) rows",
      .shows = "The last block has fewer rows than the golden's and its tokens differ.",
      .needs = "denoise; a budget that is no multiple of the block size", .report = "", .lint = "" },
    { .name = "commit_skipped", .kind = HYPOTHESIS_DECODING, .clause = "DEN-6", .stages = "pass block", .decoding = set_skipped,
      .says = "does not commit a resolved block before it begins the next",
      .right = "commit(block), then the next block at position + n", .wrong = "the next block over the same prefix",
      .shows = "The second block stands at the first one's position and repeats it.",
      .needs = "denoise; a second block", .report = "", .lint = "" },
    { .name = "draft_state_not_rewound", .kind = HYPOTHESIS_DECODING, .clause = "DRA-7", .stages = "round", .decoding = set_stay,
      .says = "does not rewind the state after rejected drafts",
      .right = "state = prefix, pending, accepted", .wrong = "state = prefix, all candidates of the verify",
      .shows = "All is well until a draft is rejected; the next round stands at too high a position and its rows read the rejected tokens.",
      .needs = "draft; a rejected draft and a round after it", .report = "vllm-project/vllm issue 39273; raullenchai/Rapid-MLX issue 3295", .lint = "" },
    { .name = "draft_accept_exact_only", .kind = HYPOTHESIS_DECODING, .clause = "DRA-5", .stages = "round", .decoding = set_argmax,
      .says = "accepts a draft only when it is the argmax",
      .right = "accepted when p(c) >= min(RATIO, DELTA e^-H) and p(c) > 0", .wrong = "accepted when c = argmax p",
      .shows = "A likely draft that is not the argmax is rejected; answers become those of one token at a time.",
      .needs = "draft, not in exact mode; a draft that is no argmax but likely enough", .report = "", .lint = "" },
    { .name = "controls_count_prompt", .kind = HYPOTHESIS_DECODING, .clause = "CTL-7", .stages = "token first pass round", .decoding = set_count_prompt,
      .says = "counts the prompt's ids for the penalties",
      .right = "seen = ids of the response", .wrong = "seen = ids of prompt and response",
      .shows = "Tokens of the prompt are penalised from the first answer token on.",
      .needs = "a presence, frequency or repetition penalty; an answer that takes up ids of the prompt", .report = "", .lint = "" },
    { .name = "repetition_before_presence", .kind = HYPOTHESIS_DECODING, .clause = "CTL-1", .stages = "token first pass round", .decoding = set_repetition_first,
      .says = "applies the repetition penalty before frequency and presence",
      .right = "l <- l - count f - presence, then l rho or l/rho", .wrong = "l <- l rho or l/rho, then l - count f - presence",
      .shows = "Probabilities of repeated tokens differ by a few percent.",
      .needs = "a repetition penalty other than 1 together with a presence or frequency penalty; a repeated token", .report = "", .lint = "" },
    { .name = "candidates_include_mask", .kind = HYPOTHESIS_DECODING, .clause = "AR-2", .stages = "token first pass round", .decoding = set_mask,
      .says = "lets the mask id be chosen as a token",
      .right = "logit of the mask id = -infinity", .wrong = "logit of the mask id as it is",
      .shows = "Every probability is a little smaller, by the mask's; now and then the answer holds a mask.",
      .needs = "", .report = "", .lint = "" },
    { .name = "tie_takes_last", .kind = HYPOTHESIS_DECODING, .clause = "AR-2", .stages = "token first pass round", .decoding = set_last,
      .says = "takes the last of equal logits instead of the lowest id",
      .right = "id = min { i : l_i = max l }", .wrong = "id = max { i : l_i = max l }",
      .shows = "Two to four tokens in 512 differ where logits are rounded; none where they are exact.",
      .needs = "two largest logits that are equal", .report = "rMLX 373, 389", .lint = "" },
};
const HypothesisList hypotheses_decoding = { list, sizeof list / sizeof *list };
