#!/bin/sh
# lint.sh - clover lint as a user meets it: exit codes, text, JSON, damaged files. [LNT-1 LNT-2]
# $CLOVER is the program; prints "ok NAME" or "not ok NAME".
set -u
clover=${CLOVER-build/clover}
dir=build/tmp/cli-lint-$$
rm -rf "$dir"
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
ok() { if [ "$2" = 0 ]; then echo "ok $1"; else echo "not ok $1"; fi; }
# NAME CODE TEXT COMMAND...: exact code, and the text on standard output or error
says() {
    name=$1 code=$2 text=$3
    shift 3
    "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    if [ $got = "$code" ] && cat "$dir/out" "$dir/err" | grep -qF -- "$text"; then echo "ok $name"
    else echo "not ok $name: code $got, expected $code; $(head -c 300 "$dir/out" "$dir/err")"; fi
}
good=tests/vectors/drifts/good.gguf
says 'lint --help has an example' 0 'example:' "$clover" lint --help
says 'a good file' 0 'nothing is wrong' "$clover" lint $good
says 'a good folder' 0 'nothing is wrong' "$clover" lint tests/vectors/drifts/hf
sed 's/clover_moe\.expert_shared_count/clover_moe.expert_shared_xxxxx/' $good >"$dir/drift.gguf"
says 'a finding is exit code 1' 1 'breaks    key-missing' "$clover" lint "$dir/drift.gguf"
says 'it says the mend' 1 "clover fix $dir/drift.gguf $dir/drift-fixed.gguf --for llama.cpp --only key-missing" "$clover" lint "$dir/drift.gguf"
says 'JSON' 1 '"id": "key-missing"' "$clover" lint "$dir/drift.gguf" --json
[ ! -s "$dir/err" ]; ok 'JSON alone is printed' $?
head -c 500000 $good >"$dir/cut.gguf"
says 'a cut file is read as far as it goes' 1 'truncated' "$clover" lint "$dir/cut.gguf"
head -c 20 $good >"$dir/four.gguf"
says 'what cannot be read at all' 3 "$dir/four.gguf" "$clover" lint "$dir/four.gguf"
says 'no such file' 3 "$dir/none" "$clover" lint "$dir/none"
sed 's/clover_moe/llama_moex/g' $good >"$dir/llama.gguf"
says 'another architecture' 4 'llama_moex' "$clover" lint "$dir/llama.gguf"
says 'no file given' 2 'MODEL' "$clover" lint
says 'text without --deep' 2 '--deep' "$clover" lint $good --text Hello
says 'random weights are undecidable' 0 'undecidable' "$clover" lint $good --deep --rows 32
says 'a text that is too short' 0 'at least 16' "$clover" lint $good --deep --text Hello
for t in f32 bf16 q8_0 q4_0; do
    "$clover" synth -o "$dir/$t.gguf" --preset tiny --type $t >/dev/null 2>&1
    says "a synthetic $t file" 0 'nothing is wrong' "$clover" lint "$dir/$t.gguf"
done
"$clover" synth -o "$dir/base.gguf" --preset tiny --arch qwen35moe >/dev/null 2>&1
says 'a base model' 0 'nothing is wrong' "$clover" lint "$dir/base.gguf"
# a file of 52 MB in 30 MB of memory of its own: the values are walked, not loaded
"$clover" synth -o "$dir/large.gguf" --preset tiny --experts 16 --expert-width 256 --hidden 256 >/dev/null 2>&1
(ulimit -d 30000; "$clover" lint "$dir/large.gguf" >"$dir/out" 2>"$dir/err"); ok 'little private memory' $?
"$clover" lint $good >/dev/full 2>"$dir/err"; [ $? = 71 ]; ok 'a full disk behind standard output' $?
