#!/bin/sh
# fix.sh - clover fix and convert killed at any moment; the public case from the command line; lint's commands do what they say. [ERR-4]
# $CLOVER is the program; prints "ok NAME" or "not ok NAME".
set -u
clover=${CLOVER-build/clover}
dir=build/tmp/cli-fix-$$
rm -rf "$dir"
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
ok() { if [ "$2" = 0 ]; then echo "ok $1"; else echo "not ok $1"; fi; }
good=tests/vectors/drifts/good.gguf hf=tests/vectors/drifts/hf

for c in convert compare fix ask; do
    "$clover" $c --help >"$dir/out" 2>"$dir/err" && grep -q '^example:' "$dir/out" && [ ! -s "$dir/err" ]; ok "$c --help has an example" $?
done

# ---- convert, compare, fix and back, as a user types it
"$clover" convert $hf "$dir/q8.gguf" --type q8_0 2>"$dir/err"; ok 'convert writes' $?
"$clover" compare "$dir/q8.gguf" $hf >"$dir/out"; ok 'compare finds a q8_0 export faithful' $?
grep -q '45 within quantisation' "$dir/out"; ok 'and says what is within quantisation' $?
"$clover" run "$dir/q8.gguf" --prompt Hello -n 8 --mode denoise >/dev/null; ok 'a converted file denoises' $?
"$clover" fix "$dir/q8.gguf" "$dir/llama.gguf" --for llama.cpp --keep-diffusion "$dir/side.gguf" >"$dir/out"; ok 'fix --for llama.cpp' $?
"$clover" lint "$dir/llama.gguf" >/dev/null; ok 'lint finds nothing above a note in what fix wrote' $?
"$clover" fix "$dir/llama.gguf" "$dir/back.gguf" --like "$dir/side.gguf" >/dev/null && cmp -s "$dir/back.gguf" "$dir/q8.gguf"; ok 'what was left out comes back to the byte' $?

# ---- killed at any moment: the input stays, and nothing looks finished that is not
"$clover" synth -o "$dir/in.gguf" --layers 8 --hidden 256 --experts 64 --expert-width 256 --type q8_0 --seed 4 >/dev/null 2>&1
"$clover" synth -o "$dir/hf" --form hf --layers 4 --hidden 256 --experts 32 --expert-width 256 --type bf16 --seed 4 >/dev/null 2>&1
sum=$(cksum <"$dir/in.gguf")
"$clover" fix "$dir/in.gguf" "$dir/want.gguf" --for llama.cpp --keep-diffusion "$dir/want-side.gguf" >/dev/null
"$clover" convert "$dir/hf" "$dir/want-hf.gguf" --type q4_0 2>/dev/null
whole() { [ ! -e "$1" ] || cmp -s "$1" "$2"; }
bad=0 killed=0
for delay in 0.001 0.005 0.01 0.02 0.03 0.04 0.05 0.06 0.08 0.1 0.13 0.17; do
    "$clover" fix "$dir/in.gguf" "$dir/o.gguf" --for llama.cpp --keep-diffusion "$dir/o-side.gguf" >/dev/null 2>&1 &
    a=$!
    "$clover" convert "$dir/hf" "$dir/c.gguf" --type q4_0 >/dev/null 2>&1 &
    b=$!
    sleep $delay
    kill -9 $a 2>/dev/null && killed=$((killed + 1))
    kill -9 $b 2>/dev/null && killed=$((killed + 1))
    wait $a $b 2>/dev/null
    whole "$dir/o.gguf" "$dir/want.gguf" && whole "$dir/o-side.gguf" "$dir/want-side.gguf" && whole "$dir/c.gguf" "$dir/want-hf.gguf" || bad=$((bad + 1))
    [ ! -e "$dir/o.gguf" ] || [ -e "$dir/o-side.gguf" ] || bad=$((bad + 1))     # what is left out is safe before OUT appears
    rm -f "$dir"/o.gguf* "$dir"/o-side.gguf* "$dir"/c.gguf*
done
[ $bad = 0 ]; ok 'kill -9 at any moment leaves no file that looks finished' $?
[ $killed -gt 4 ]; ok 'and most of them were killed at work' $?
[ "$(cksum <"$dir/in.gguf")" = "$sum" ]; ok 'and the input is as it was' $?

# ---- a full disk (a file size limit) is said, and leaves nothing
(ulimit -f 64; "$clover" fix "$dir/in.gguf" "$dir/full.gguf" --for llama.cpp >/dev/null 2>"$dir/err")
[ $? = 71 ] && grep -q 'disk full' "$dir/err" && [ -z "$(ls "$dir" | grep '^full')" ]; ok 'a full disk is said and leaves nothing' $?

# ---- ask: garbage is an exit code
"$clover" ask $good -n 4 >"$dir/out"; [ $? = 1 ] && grep -q 'of 16 right' "$dir/out"; ok 'random weights do not answer' $?
