#!/bin/bash
# golden.sh - clover golden as people run it: one case, a case file, four shards at once, kill -9, checks, long prompts.
# [BND-1, BND-2, BND-5, BND-6, BND-7, BND-8, STA-3]
set -u
CLOVER=${CLOVER:-build/clover}
MODEL=tests/vectors/tiny-a/hf
mkdir -p build/tmp
W=$(mktemp -d build/tmp/golden-cli-XXXXXX) || exit 1
trap 'rm -rf "$W"' EXIT

result() { if [ "$2" = 0 ]; then echo "ok $1"; else echo "not ok $1"; fi; }
check() { local name=$1; shift; "$@" >"$W/log" 2>&1; local s=$?; result "$name" $s; [ $s = 0 ] || tail -5 "$W/log"; }
# says NAME CODE TEXT COMMAND...: the exit code, and TEXT in what it says
says() {
    local name=$1 code=$2 text=$3; shift 3
    "$@" >"$W/log" 2>&1
    local s=$?
    if [ $s = "$code" ] && grep -qF -- "$text" "$W/log"; then echo "ok $name"; else echo "not ok $name (exit $s)"; tail -5 "$W/log"; fi
}
same() { diff -r -x provenance.json "$1" "$2"; }
golden() { "$CLOVER" golden "$MODEL" "$@"; }

# ---- one case from flags
check one_case golden --ids 72,101,108 -n 4 --mode ar --probes 'L00.*,final_norm' -o "$W/one"
check one_case_is_at_the_top test -s "$W/one/000-commit.safetensors" -a -s "$W/one/trace.json" -a -s "$W/one/provenance.json"
check one_case_again golden --ids 72,101,108 -n 4 --mode ar --probes 'L00.*,final_norm' -o "$W/one"
check same_bytes_elsewhere golden --ids 72,101,108 -n 4 --mode ar --probes 'L00.*,final_norm' -o "$W/two"
check same_bytes same "$W/one" "$W/two"
"$CLOVER" run $MODEL --ids 72,101,108 -n 4 --mode ar --json | grep -o '"tokens":\[[0-9,]*\]' >"$W/tokens"
check tokens_as_run_gives_them grep -qFf "$W/tokens" "$W/one/trace.json"
says check_whole 0 'whole; 1 cases, 4 recorded steps, 5 files' "$CLOVER" golden --check "$W/one"
check steps_from_flags golden --ids 1,2 --then 3 --preview 261,261 --probes '*' --coreset-top-p 0.5 -o "$W/steps"
check steps_as_logits_has_them "$CLOVER" logits $MODEL --ids 1,2 --then 3 --preview 261,261 --probes '*' --coreset-top-p 0.5 -o "$W/logits"
for s in commit then preview; do check "$s as logits has it" cmp "$W/steps/$s.safetensors" "$W/logits/$s.safetensors"; done
golden --chat 'Hi' --no-think --mode denoise -n 4 --block 8 --threshold 0.5 -o "$W/flags" >/dev/null
cat >"$W/flags.json" <<'JSON'
{"cases": [{"name": "denoise", "prompt": {"chat": "Hi"}, "mode": "denoise", "n": 4, "options": {"think": false, "block": 8, "threshold": 0.5}}]}
JSON
golden --cases "$W/flags.json" -o "$W/file" >/dev/null
check flags_and_file_agree same "$W/flags/trace.json" "$W/file/denoise/trace.json"

# ---- usage
says no_out 2 'say where the bundle goes' golden --ids 1
says no_prompt 2 'give a prompt' golden -o "$W/x"
says cases_and_flags 2 '--cases FILE says what the cases are' golden --cases "$W/flags.json" --ids 1 -o "$W/x"
says steps_and_run_flags 2 'decodes nothing' golden --ids 1 --then 2 --temperature 1 -o "$W/x"
says bad_shard 2 '--shard takes I/N' golden --cases "$W/flags.json" --shard 5/4 -o "$W/x"
says shard_of_one_case 2 '--shard goes with --cases' golden --ids 1 --shard 1/4 -o "$W/x"
says ids_outside 2 'commit[0]: expected a token id' golden --ids 320 --steps -o "$W/x"
says no_case_file 71 'cannot read' golden --cases "$W/none.json" -o "$W/x"
says unknown_key 3 'unknown key "casses"' golden --cases <(echo '{"casses": []}') -o "$W/x"
says merge_needs_parts 2 '--merge takes' "$CLOVER" golden --merge "$W/x"
check nothing_was_begun test ! -e "$W/x"

# ---- four shards at once
cat >"$W/cases.json" <<'JSON'
{"cases": [
 {"name": "ar", "why": "\"[1, 2]\" \\", "features": ["causal"], "prompt": {"ids": [72, 101, 108]}, "mode": "ar", "n": 4, "probes": ["L03.*"]},
 {"name": "denoise", "prompt": {"text": "Hello"}, "mode": "denoise", "n": 8, "options": {"threshold": 0.5, "block": 8}},
 {"name": "draft", "prompt": {"chat": "Hi"}, "mode": "draft", "n": 4, "options": {"width": 8, "accept": "exact"}},
 {"name": "steps", "steps": [{"name": "a", "commit": [1, 2]}, {"snapshot": "s"}, {"name": "b", "commit": [3]}, {"restore": "s"}, {"name": "c", "preview": [261, 7]}]},
 {"name": "last", "steps": [{"name": "a", "commit": [5]}]}]}
JSON
golden --cases "$W/cases.json" -o "$W/whole" >/dev/null
pids=()
for i in 1 2 3 4; do golden --cases "$W/cases.json" --shard $i/4 -o "$W/part$i" >/dev/null & pids+=($!); done
status=0
for p in "${pids[@]}"; do wait "$p" || status=1; done
result four_shards_at_once $status
check merge "$CLOVER" golden --merge "$W/merged" "$W/part2" "$W/part1" "$W/part4" "$W/part3"
check merged_is_one_run same "$W/whole" "$W/merged"
says merge_lacks_a_part 3 'part 3 of 4 is missing' "$CLOVER" golden --merge "$W/x" "$W/part2" "$W/part1" "$W/part4"

# ---- kill -9
delay=0.004 kills=0 bad=0
until "$CLOVER" golden $MODEL --cases "$W/cases.json" -o "$W/killed" >/dev/null 2>&1 & p=$!; sleep $delay; kill -9 $p 2>/dev/null; wait $p 2>/dev/null; do
    kills=$((kills + 1))
    if [ ! -e "$W/killed/manifest.json" ] && "$CLOVER" golden --check "$W/killed" >/dev/null 2>&1; then bad=1; fi
    delay=$(awk "BEGIN { print $delay * 1.15 }")
    [ $kills -lt 60 ] || break
done 2>/dev/null
golden --cases "$W/cases.json" -o "$W/killed" >/dev/null
echo "killed $kills times"
result killed_is_never_a_bundle $bad
check killed_and_gone_on_with same "$W/whole" "$W/killed"
golden --cases "$W/cases.json" -o "$W/both" >"$W/log1" 2>&1 & p=$!
golden --cases "$W/cases.json" -o "$W/both" >"$W/log2" 2>&1
wait $p
golden --cases "$W/cases.json" -o "$W/both" >/dev/null
check two_runs_in_one_folder same "$W/whole" "$W/both"

# ---- damage
cp -r "$W/whole" "$W/flipped"
printf '\001' | dd of="$W/flipped/draft/001-commit.safetensors" bs=1 seek=900 conv=notrunc 2>/dev/null
says a_flipped_byte 3 'flipped/draft/001-commit.safetensors: changed' "$CLOVER" golden --check "$W/flipped"
rm "$W/flipped/ar/trace.json"; echo >"$W/flipped/ar/extra.txt"
says a_missing_file 3 'flipped/ar/trace.json: missing' "$CLOVER" golden --check "$W/flipped"
says an_extra_file 3 'flipped/ar/extra.txt: not in the manifest' "$CLOVER" golden --check "$W/flipped"
says another_plan 2 'another bundle stands there' golden --ids 1 -n 1 -o "$W/whole"
says no_bundle 3 'has no manifest.json' "$CLOVER" golden --check "$W"

# ---- a long prompt, whole and in pieces: the same logits, the same state after it
awk 'BEGIN {
    split("1 127 1000 64 2000 904", piece, " "); seed = 1; n = 0
    for (i = 0; i < 4096; i++) { seed = (seed * 75 + 74) % 65537; id[i] = seed % 320 }
    printf "{\"cases\": [{\"name\": \"whole\", \"probes\": [\"*.gdn.state\"], \"steps\": [{\"name\": \"all\", \"commit\": ["
    for (i = 0; i < 4096; i++) printf "%s%d", i ? "," : "", id[i]
    printf "]}, {\"name\": \"look\", \"preview\": [261, 5, 261]}]},\n {\"name\": \"cut\", \"probes\": [\"*.gdn.state\"], \"steps\": ["
    for (k = 1; k <= 6; k++) {
        printf "{\"name\": \"c%d\", \"commit\": [", k
        for (i = 0; i < piece[k]; i++) printf "%s%d", i ? "," : "", id[n++]
        printf "]}, "
    }
    print "{\"name\": \"look\", \"preview\": [261, 5, 261]}]}]}"
}' >"$W/long.json"
check long_prompts golden --cases "$W/long.json" -o "$W/long"
logits() { tail -c $(($2 * 320 * 8)) "$1"; }                 # FILE ROWS: they stand last
states() { tail -c $(($2 * 320 * 8 + 3 * 4 * 32 * 32 * 8)) "$1" | head -c $((3 * 4 * 32 * 32 * 8)); }
logits "$W/long/whole/all.safetensors" 4096 >"$W/a"
k=0
for rows in 1 127 1000 64 2000 904; do k=$((k + 1)); logits "$W/long/cut/c$k.safetensors" $rows; done >"$W/b"
check long_logits cmp "$W/a" "$W/b"
states "$W/long/whole/all.safetensors" 4096 >"$W/a"
states "$W/long/cut/c6.safetensors" 904 >"$W/b"
check long_states cmp "$W/a" "$W/b"
check long_previews cmp "$W/long/whole/look.safetensors" "$W/long/cut/look.safetensors"
