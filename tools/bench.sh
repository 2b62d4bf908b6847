#!/bin/sh
# bench.sh - speed on the 35B shape, as ratios within one run: make bench. Needs 20 GB of disk for the model it makes in build/.
# Prints whole-process figures: opening, tokens a second, private memory.
set -eu
clover=${CLOVER:-build/clover}
model=${MODEL:-build/bench/35b-q4_0.gguf}
tokens=${TOKENS:-8}
mkdir -p build/bench
[ -e "$model" ] || "$clover" synth -o "$model" --preset 35b --type q4_0
number() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" "$2"; }
# Twice: the first run brings the weights that it touches into memory.
for numerics in exact fast exact fast; do
    "$clover" run "$model" --ids 1,2,3,4 -n "$tokens" --numerics $numerics --json >build/bench/$numerics.json
done
for numerics in exact fast; do
    awk -v n="$tokens" -v open="$(number open_seconds build/bench/$numerics.json)" -v first="$(number first_token_seconds build/bench/$numerics.json)" \
        -v total="$(number total_seconds build/bench/$numerics.json)" -v what=$numerics \
        'BEGIN { printf "%-6s opens in %.2f s, then decodes %.2f tokens/s\n", what, open, (n - 1) / (total - first) }'
done
