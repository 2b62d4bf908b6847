#!/bin/sh
# diff.sh - clover diff on the command line: exit codes, what is printed where, a case file's run and its trace. [DIF-7, DIF-8]
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/cli/lib/command.sh

cat >"$work/cases.json" <<'END'
{"cases": [
  {"name": "steps", "probes": ["*"], "steps": [{"name": "a", "commit": [72, 105]}, {"name": "b", "preview": [261, 261, 33]}]},
  {"name": "run", "prompt": {"text": "Hi!"}, "mode": "denoise", "n": 6, "options": {"block": 4}, "controls": {"repetition_penalty": 1.25}}
]}
END
"$CLOVER" synth -o "$work/model.gguf" --hidden 32 --layers 2 --interval 2 --vocab 270 --seed 5 >"$work/out" 2>"$work/err" &&
    "$CLOVER" golden "$work/model.gguf" --cases "$work/cases.json" -o "$work/golden" >"$work/out" 2>"$work/err"
result make $?

cp -r "$work/golden" "$work/same"
run 0 diff "$work/golden" "$work/same" && says '^conforms' && says 'trace run: every decision is the golden' && says 'denoise: conforms' && says 'tokenizer: conforms' &&
    says 'controls: conforms' && says 'draft-self: not shown' && [ ! -s "$work/err" ]
result same $?

run 0 diff "$work/golden" "$work/same" --json && says '^ "verdict": "conforms"' && says '^ "first": null' && [ "$(head -c 1 "$work/out")" = '{' ] && [ "$(tail -n 1 "$work/out")" = '}' ]
result json $?

run 0 diff "$work/golden" "$work/same" --no-model && says 'no model was given'
result no-model $?

# Another trace: one output token changed.
cp -r "$work/golden" "$work/trace"
tr '\n' ' ' <"$work/golden/run/trace.json" | sed 's/"tokens": *\[ *[0-9]*/"tokens": [1/' >"$work/trace/run/trace.json"
run 1 diff "$work/golden" "$work/trace" && says '^differs' && says 'trace run: .*output token 0' && says 'denoise: differs'
result trace $?

# Another prompt in the trace: what the tokenizer made of the text.
tr '\n' ' ' <"$work/golden/run/trace.json" | sed 's/"prompt": *\[ *[0-9]*/"prompt": [1/' >"$work/trace/run/trace.json"
run 1 diff "$work/golden" "$work/trace" && says 'prompt has other ids' && says 'tokenizer: differs'
result trace-prompt $?

# Another step's file in the place of one: other ids.
cp -r "$work/golden" "$work/mixed"
cp "$work/golden/steps/b.safetensors" "$work/mixed/steps/a.safetensors"
run 3 diff "$work/golden" "$work/mixed" && grep -q 'steps/a' "$work/err" && [ ! -s "$work/out" ]
result other-ids $?

mkdir "$work/empty"
run 3 diff "$work/golden" "$work/empty" && says '^incomparable'
result empty $?
run 3 diff "$work/golden" "$work/none" && grep -q "$work/none: no such folder" "$work/err"
result no-folder $?
run 3 diff "$work/none" "$work/same" && grep -q "$work/none" "$work/err"
result no-golden $?

# A step of another model: differs.
"$CLOVER" synth -o "$work/other.gguf" --hidden 32 --layers 2 --interval 2 --vocab 270 --seed 6 >"$work/out" 2>"$work/err" &&
    "$CLOVER" golden "$work/other.gguf" --cases "$work/cases.json" -o "$work/other" >"$work/out" 2>"$work/err" &&
    run 1 diff "$work/golden" "$work/other" && says '^first divergence *steps/a  embed  \[LAY-1\]' && says 'nothing in common' &&
    says 'gone another way'
result other-model $?
run 3 diff "$work/golden" "$work/same" --model "$work/other.gguf" && grep -q 'is not the model' "$work/err"
result other-model-given $?

# A byte flipped in the bundle.
cp -r "$work/golden" "$work/flipped"
printf '\377' | dd of="$work/flipped/steps/b.safetensors" bs=1 seek=4000 conv=notrunc 2>/dev/null
run 3 diff "$work/flipped" "$work/same" && grep -q 'steps/b.safetensors' "$work/err"
result flipped $?

run 0 diff "$work/golden" "$work/same" --html "$work/page.html" && [ -s "$work/page.html" ] && grep -qi '<html' "$work/page.html"
result html $?
run 0 diff --help && says 'GOLDEN' && says 'example'
result help $?
run 2 diff "$work/golden" && [ -s "$work/err" ]
result one-argument $?
run 2 diff "$work/golden" "$work/same" --no-model --model "$work/model.gguf"
result two-models $?
run 2 diff "$work/golden" "$work/same" --profile f64
result no-profile $?
