#!/bin/sh
# commands.sh - the command line as a user meets it: exit codes, outputs, refusals. [ERR-3 ERR-4 ERR-5 PRB-1]
# $CLOVER is the program; prints "ok NAME" or "not ok NAME".
set -u
clover=${CLOVER-build/clover}
dir=build/tmp/cli-commands-$$
rm -rf "$dir"
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT

ok() { if [ "$2" = 0 ]; then echo "ok $1"; else echo "not ok $1"; fi; }
# NAME EXPECTED-CODE TEXT-ON-STDERR COMMAND...: exact code, and the text somewhere on standard error
refuses() {
    name=$1 code=$2 text=$3
    shift 3
    "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    if [ $got = "$code" ] && grep -qF -- "$text" "$dir/err" && [ ! -s "$dir/out" ]; then echo "ok $name"
    else echo "not ok $name: code $got, expected $code; $(head -c 300 "$dir/err")"; fi
}
tiny=$dir/tiny.gguf
"$clover" synth -o "$tiny" --preset tiny --seed 9 2>/dev/null >/dev/null; ok 'synth writes a model' $?

# ---- every command explains itself
for c in run logits golden diff inspect synth explain; do
    "$clover" $c --help >"$dir/out" 2>"$dir/err" && grep -q '^example:' "$dir/out" && [ ! -s "$dir/err" ]; ok "$c --help has an example" $?
done

# ---- run: three modes, JSON, sampling repeats itself
for mode in ar denoise draft; do
    "$clover" run "$tiny" --prompt Hello -n 12 --mode $mode --json >"$dir/$mode.json" 2>"$dir/err" && grep -q '"tokens":\[' "$dir/$mode.json"; ok "run --mode $mode --json" $?
done
a=$("$clover" run "$tiny" --ids 72,101,108 -n 12 --json | sed 's/,"text".*//')
b=$("$clover" run "$tiny" --ids 72,101,108 -n 12 --mode draft --accept exact --json | sed 's/,"text".*//; s/"draft"/"ar"/')
[ -n "$a" ] && [ "$a" = "$b" ]; ok 'exact drafting gives the tokens of ar' $?
a=$("$clover" run "$tiny" --prompt Hi -n 12 --temperature 1 --seed 5 --steps)
b=$("$clover" run "$tiny" --prompt Hi -n 12 --temperature 1 --seed 5 --steps)
c=$("$clover" run "$tiny" --prompt Hi -n 12 --temperature 1 --seed 6 --steps)
[ "$a" = "$b" ] && [ "$a" != "$c" ]; ok 'a seed gives the same answer, another seed another' $?
printf 'Hello' >"$dir/prompt"
a=$("$clover" run "$tiny" --prompt Hello -n 6 --steps)
b=$("$clover" run "$tiny" --prompt "@$dir/prompt" -n 6 --steps)
c=$(printf 'Hello' | "$clover" run "$tiny" --prompt @- -n 6 --steps)
[ "$a" = "$b" ] && [ "$a" = "$c" ]; ok '@file and @- give the same prompt' $?

# ---- logits: files, listing, and the bits of every plain type [PRB-1]
"$clover" logits "$tiny" --ids 1,2,3 --then 4 --preview 261,261 --probes '*' -o "$dir/steps" >"$dir/out" 2>&1 &&
    [ -s "$dir/steps/commit.safetensors" ] && [ -s "$dir/steps/then.safetensors" ] && [ -s "$dir/steps/preview.safetensors" ]; ok 'logits writes a file a step' $?
[ "$(grep -c 'L00\.gdn\.' "$dir/out")" = 0 ]; ok 'logits lists stages only when asked' $?
[ "$("$clover" logits "$tiny" --ids 1,2,3 --probes 'L00.gdn.*' --list | grep -c '^  L00\.gdn\.')" = 11 ]; ok 'logits --list shows the stages of a glob' $?
state() { "$clover" logits "$1" --ids 9,8,7,6 --preview 261,3,261 -o "$dir/bits" | sed 's/ in [^ ]*$//; s/  [^ ]*safetensors$//'; }
for t in f16 bf16; do
    "$clover" synth -o "$dir/$t.gguf" --preset tiny --seed 9 --type $t >/dev/null 2>&1
    [ "$(state "$tiny" | sed 's/build.*//')" = "$(state "$dir/$t.gguf" | sed 's/build.*//')" ]; ok "a $t file gives the bits of the f32 file" $?
done

# ---- inspect and explain
"$clover" inspect "$tiny" | grep -q 'Gated\|GDN'; ok 'inspect shows the config' $?
"$clover" inspect "$tiny" --json | grep -q '"opens": true'; ok 'inspect --json' $?
"$clover" explain "$tiny" --ids 1,2,3 --layer 0 | grep -q 'GDN-6'; ok 'explain names the clauses' $?
"$clover" explain "$tiny" --preview 261,261 --layer 3 --row 0 | grep -q 'ATT-6'; ok 'explain shows a preview over nothing' $?

# ---- usage [ERR-3]: class 2, the flag named
refuses 'no prompt' 2 'give a prompt' "$clover" run "$tiny"
refuses 'two prompts' 2 '--' "$clover" run "$tiny" --prompt a --ids 1
refuses 'junk number' 2 '12x' "$clover" run "$tiny" --prompt a -n 12x
refuses 'unknown flag' 2 '--nonsense' "$clover" run "$tiny" --nonsense
refuses 'unknown command' 2 'frobnicate' "$clover" frobnicate
refuses 'id outside the vocabulary' 2 '0 to 271' "$clover" run "$tiny" --ids 1,272
refuses 'width that does not divide the block' 2 'width' "$clover" run "$tiny" --prompt a --mode draft --width 5
refuses 'a flag of another mode' 2 '--mode denoise' "$clover" run "$tiny" --prompt a --threshold 0.5
refuses 'a seed without sampling' 2 '--temperature' "$clover" run "$tiny" --prompt a --seed 5
refuses 'probes that match nothing' 2 'zzz' "$clover" logits "$tiny" --ids 1 --probes zzz -o "$dir/none"
[ ! -e "$dir/none" ]; ok 'a refused step leaves no folder' $?
refuses 'head out of range' 2 '--head' "$clover" explain "$tiny" --ids 1 --head 99
refuses 'an endless file of ids' 2 'MiB' "$clover" run "$tiny" --ids @/dev/zero
refuses 'context exceeded' 2 'context' "$clover" run "$tiny" --prompt a -n 100000
refuses 'layer out of range' 2 '--layer' "$clover" explain "$tiny" --ids 1 --layer 99
refuses 'results nowhere' 2 '-o' "$clover" logits "$tiny" --ids 1

# ---- bad input [ERR-4]: class 3, file named
refuses 'no such file' 3 "$dir/none.gguf" "$clover" run "$dir/none.gguf" --prompt a
head -c 5000 "$tiny" >"$dir/cut.gguf"
refuses 'truncated' 3 "$dir/cut.gguf" "$clover" run "$dir/cut.gguf" --prompt a
printf 'GGUF' >"$dir/four.gguf"
refuses 'four bytes' 3 "$dir/four.gguf" "$clover" inspect "$dir/four.gguf"
mkdir "$dir/empty"
refuses 'a folder without a model' 3 config.json "$clover" run "$dir/empty" --prompt a
sed 's/clover_moe\.rope\.dimension_count/clover_moe.rope.dimension_xxxxx/' "$tiny" >"$dir/drift.gguf"
refuses 'a missing rope.dimension_count is refused' 3 '--mend' "$clover" run "$dir/drift.gguf" --prompt a
a=$("$clover" run "$tiny" --prompt a -n 8 --steps)
b=$("$clover" run "$dir/drift.gguf" --prompt a -n 8 --steps --mend 2>/dev/null)
c=$("$clover" run "$dir/drift.gguf" --prompt a -n 8 --steps --as-is)
[ "$a" = "$b" ]; ok '--mend reads it right' $?
"$clover" run "$dir/drift.gguf" --prompt a -n 1 --mend 2>&1 >/dev/null | grep -q '^mended in memory: .*missing key clover_moe.rope.dimension_count: a loader[^;]*$'; ok '--mend says what it mended' $?
"$clover" run "$tiny" --prompt a -n 1 --mend 2>&1 >/dev/null | grep -q 'nothing to mend'; ok '--mend says that nothing was wrong' $?
[ -n "$c" ] && [ "$a" != "$c" ]; ok '--as-is shows other tokens' $?

# ---- unsupported: class 4
"$clover" synth -o "$dir/base.gguf" --preset tiny --arch qwen35moe >/dev/null 2>&1
"$clover" run "$dir/base.gguf" --prompt a -n 2 >/dev/null 2>&1; ok 'a base model runs token by token' $?
refuses 'a base model has no preview' 4 'ar' "$clover" run "$dir/base.gguf" --prompt a --mode denoise

# ---- the machine refuses: class 71 [ERR-5], and nothing half-written stays
"$clover" run "$tiny" --prompt a -n 4 >/dev/full 2>"$dir/err"; [ $? = 71 ]; ok 'a full disk behind standard output' $?
(ulimit -f 8; "$clover" logits "$tiny" --ids 1,2,3 --probes '*' -o "$dir/full" >/dev/null 2>"$dir/err"; [ $? = 71 ]); ok 'a full disk behind logits' $?
[ -z "$(find "$dir/full" -type f 2>/dev/null)" ]; ok 'it leaves no half-written file' $?
(ulimit -v 400000; "$clover" logits "$tiny" --ids "$(seq -s, 1 200 | sed 's/$//')" -o "$dir/small" >/dev/null 2>&1); code=$?
[ $code = 0 ] || [ $code = 71 ]; ok 'little memory: an answer or class 71' $?
