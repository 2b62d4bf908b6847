#!/bin/sh
# demo.sh - the nano model answers in all three modes; a drifted export of it, mended; a faulty engine, named. Called by make demo.
set -eu
clover=${CLOVER:-build/clover}
dir=build/demo
nano=golden/nano.gguf
question='What is the capital of Australia?'
mkdir -p "$dir"
rm -rf "$dir/golden" "$dir/faulty" "$dir/fixed.gguf"
say() { printf '\n== %s\n' "$*"; }
show() { printf '$ '; for word in "$@"; do case $word in *[!A-Za-z0-9_./,=-]*) printf "'%s' " "$word" ;; *) printf "%s " "$word" ;; esac; done; printf "\n"; }
run() { show "$@"; "$@"; }
fails() { show "$@"; if "$@"; then echo 'this should not have worked' >&2; exit 1; fi; }   # a command whose failing is the point

say 'A small trained Clover (2 M parameters, golden/README.md). Token by token (ar): each step commits one token and chooses the next'
run "$clover" run $nano --chat "$question" --no-think -n 16 --steps
say 'Block by block (denoise): every pass previews 32 rows and fixes those it is sure of; dots are still masked'
run "$clover" run $nano --chat "$question" --no-think -n 32 --mode denoise --steps
say 'Drafting for itself (draft): a preview drafts, one causal step verifies'
run "$clover" run $nano --chat "$question" --no-think -n 16 --mode draft --steps

say 'A drifted export: one key is lost. It is refused; read as a naive loader would, it is sure and wrong'
sed 's/clover_moe\.rope\.dimension_count/clover_moe.rope.dimension_xxxxx/' $nano >"$dir/drifted.gguf"
fails "$clover" run "$dir/drifted.gguf" --chat "$question" --no-think -n 16
run "$clover" run "$dir/drifted.gguf" --chat "$question" --no-think -n 16 --as-is
say 'lint says why, fix writes a right file, which answers as it should'
fails "$clover" lint "$dir/drifted.gguf"
run "$clover" fix "$dir/drifted.gguf" "$dir/fixed.gguf" --for self
run "$clover" compare $nano "$dir/fixed.gguf"
show "$clover" ask "$dir/fixed.gguf" --numerics exact
"$clover" ask "$dir/fixed.gguf" --numerics exact | sed -n '/Australia/{N;p;};$p'

say 'An engine that pairs value heads wrongly, as its dump shows: where it leaves the reference, and which mistake it makes'
run "$clover" golden $nano --ids 258,259,260,261,262,263 --then 264,265 --preview 266,267,268,269 --probes '*' -o "$dir/golden"
run "$clover" hypotheses gdn_heads_tiled --dump "$dir/faulty" --golden "$dir/golden" --type f32
fails "$clover" diff "$dir/golden" "$dir/faulty" --html "$dir/report.html"
printf '\nThe report as a page: %s\n' "$dir/report.html"
