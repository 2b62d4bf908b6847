#!/bin/sh
# demo.sh - a small random model answers in all three modes; how a block resolves; one layer's stages. Called by make demo.
set -eu
clover=${CLOVER:-build/clover}
dir=build/demo
mkdir -p "$dir"
say() { printf '\n== %s\n' "$*"; }
run() { printf '$ '; for word in "$@"; do case $word in *[!A-Za-z0-9_./,-]*) printf "'%s' " "$word" ;; *) printf "%s " "$word" ;; esac; done; printf "\n"; "$@"; }

say 'A random model of Clover'\''s architecture, 1.4 MB (its answers mean nothing; every rule is at work in them)'
run "$clover" synth -o "$dir/tiny.gguf" --preset tiny --seed 9 --force

say 'Token by token (ar): each step commits one token and chooses the next'
run "$clover" run "$dir/tiny.gguf" --prompt 'Hello, Clover' -n 8 --steps

say 'Block by block (denoise): every pass previews 32 rows and fixes those it is sure of; dots are still masked'
run "$clover" run "$dir/tiny.gguf" --prompt 'Hello, Clover' -n 32 --mode denoise --steps

say 'Drafting for itself (draft): a preview drafts, one causal step verifies (random weights agree seldom, so this accepts all but impossible tokens)'
run "$clover" run "$dir/tiny.gguf" --prompt 'Hello, Clover' -n 8 --mode draft --accept 0,1 --steps

say 'Layer 0 of a step of five tokens, stage by stage: shapes, sizes, first numbers'
run "$clover" logits "$dir/tiny.gguf" --ids 72,101,108,108,111 --probes 'embed,L00.*' --list
