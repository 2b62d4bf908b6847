#!/bin/sh
# hypotheses.sh - clover hypotheses on the command line: the list, one mistake, and dumps in which clover diff finds it. [HYP-1, HYP-3]
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/lib/command.sh
MODEL=tests/vectors/tiny-a/hf

# ---- the catalogue
run 0 hypotheses && says '^stage$' && says '^parameter$' && says '^state$' && says '^decoding$' && [ "$(grep -c '  your engine ' "$work/out")" -ge 82 ] &&
    says '^  gdn_heads_tiled  *GDN-5  *your engine pairs value heads tiled instead of grouped$' && says '^[0-9]* known mistakes; '
result list $?
[ "$(grep -c '  your engine ' "$work/out")" = "$(sed -n 's/^\([0-9]*\) known mistakes;.*/\1/p' "$work/out")" ]
result list_is_counted $?

run 0 hypotheses draft_state_not_rewound && cat >"$work/expected" <<'END'
draft_state_not_rewound: a decoding fault that breaks [DRA-7]

  your engine does not rewind the state after rejected drafts

  right                             | wrong
  ----------------------------------+---------------------------------------------
  state = prefix, pending, accepted | state = prefix, all candidates of the verify

  enters   round
  shows    All is well until a draft is rejected; the next round stands at too high a position and its rows read the rejected tokens.
  needs    draft; a rejected draft and a round after it
  met in   vllm-project/vllm issue 39273; raullenchai/Rapid-MLX issue 3295
END
diff "$work/expected" "$work/out" >"$work/err"
result one $?

run 0 hypotheses gdn_heads_tiled,state_bf16 --json && says '"name": "gdn_heads_tiled"' && says '"kind": "stage"' && says '"name": "state_bf16"' && says '"kind": "state"' &&
    says '"clause": "GDN-5"' && [ "$(grep -c '"name"' "$work/out")" = 2 ]
result one_as_json $?
run 0 hypotheses --json && [ "$(grep -c '"says"' "$work/out")" -ge 82 ] && [ "$(head -c 1 "$work/out")" = '{' ]
result list_as_json $?

# ---- usage
run 2 hypotheses no_such_mistake && errs 'no hypothesis is named "no_such_mistake"'
result unknown_name $?
run 2 hypotheses --dump "$work/x" --model $MODEL && errs 'say which mistake'
result dump_needs_a_name $?
run 2 hypotheses l2_mean --dump "$work/x" && errs 'say which model'
result dump_needs_a_model $?
run 2 hypotheses l2_mean --model $MODEL && errs 'go with --dump'
result model_without_dump $?
run 3 hypotheses l2_mean --dump "$work/x" --model "$work/none.gguf"
result no_such_model $?
mkdir "$work/full" && touch "$work/full/file"
run 2 hypotheses l2_mean --dump "$work/full" --model $MODEL && errs 'not empty' && [ "$(ls "$work/full")" = file ]
result folder_that_is_full $?
[ -z "$(ls "$work" | grep -e '^x' -e partial)" ]
result nothing_was_begun $?

# ---- dumps that clover diff takes in
run 0 hypotheses preview_mutates_ring --dump "$work/ring" --model $MODEL && says 'moves the ring on' && says 'clover golden' &&
    run 0 golden $MODEL --cases "$work/ring/cases.json" -o "$work/golden" && run 1 diff "$work/golden" "$work/ring" && says '^first divergence.*more *L00.gdn.conv'
result default_case $?
for type in f32 f16 bf16; do
    run 0 hypotheses gdn_heads_tiled --dump "$work/tiled-$type" --golden "$work/golden" --type $type && run 1 diff "$work/golden" "$work/tiled-$type" --json && says '"probe": "L00.gdn.state"'
    result dump_in_$type $?
done
run 0 hypotheses l2_mean --dump "$work/one" --golden "$work/golden" && run 0 hypotheses l2_mean --dump "$work/two" --golden "$work/golden" && diff -r "$work/one" "$work/two" >"$work/err"
result same_bytes $?
mkdir "$work/slash" && run 0 hypotheses l2_mean --dump "$work/slash//" --golden "$work/golden" && diff -r "$work/one" "$work/slash" >"$work/err" && [ -z "$(ls "$work" | grep partial)" ]
result folder_with_a_slash $?
run 0 hypotheses gdn_gate_sigmoid,rope_base_10000 --dump "$work/both" --golden "$work/golden" && run 1 diff "$work/golden" "$work/both" && says 'L00.gdn.gated' && says 'L03.attn.q_rope'
result two_at_once $?

# ---- runs: decoded anew
cat >"$work/runs.json" <<'END'
{"cases": [
  {"name": "denoise", "prompt": {"ids": [72, 79, 86]}, "mode": "denoise", "n": 12, "options": {"block": 8}},
  {"name": "draft", "prompt": {"ids": [72, 79, 86]}, "mode": "draft", "n": 16, "options": {"block": 8, "width": 4, "accept": "exact"}}
]}
END
run 0 golden $MODEL --cases "$work/runs.json" -o "$work/runs"
result golden_of_runs $?
run 0 hypotheses commit_skipped --dump "$work/skipped" --golden "$work/runs" && run 1 diff "$work/runs" "$work/skipped" && says '^trace draft: every decision is the golden' && says '^trace denoise: .*8 masked rows at position 11, the dump.s 8 at 3'
result decoding_fault_in_one_mode $?
run 0 hypotheses draft_state_not_rewound --dump "$work/stay" --golden "$work/runs" && run 1 diff "$work/runs" "$work/stay" && says '^trace denoise: every decision is the golden' && says '^trace draft: decision' &&
    [ -s "$work/stay/draft/trace.json" ] && [ -s "$work/stay/draft/000-commit.safetensors" ]
result decoding_fault_in_the_other $?

# ---- the default case of a decoding fault: one in which a decision differs
fits() {                        # NAME
    run 0 hypotheses "$1" --dump "$work/$1" --model $MODEL || return 1
    numerics=$(grep -o -e '--numerics [a-z0-9]*' "$work/out")
    # shellcheck disable=SC2086 # two words or none
    run 0 golden $MODEL $numerics --cases "$work/$1/cases.json" -o "$work/$1-golden" && ! cmp -s "$work/$1/$1/trace.json" "$work/$1-golden/$1/trace.json"
}
for h in threshold_inclusive denoise_fixes_one denoise_remasks denoise_aligned_blocks block_cut_to_budget commit_skipped draft_state_not_rewound draft_accept_exact_only \
         controls_count_prompt repetition_before_presence candidates_include_mask tie_takes_last; do
    fits $h
    result "default case of $h" $?
done
run 0 hypotheses tie_takes_last --dump "$work/again" --model $MODEL && diff -r "$work/tie_takes_last" "$work/again" >"$work/err"
result the_case_is_the_same_again $?

# ---- the golden's model and no other
run 0 synth -o "$work/other" --form hf --hidden 32 --layers 2 --interval 2 --vocab 320 --seed 3
run 3 hypotheses l2_mean --dump "$work/x" --golden "$work/golden" --model "$work/other" && errs 'is not the one'
result another_model $?
