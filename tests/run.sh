#!/bin/bash
# run.sh - what `make check` does: install what is missing, build, run every test, sum up.
#
# The last line is plain: "N passed, N failed", with ", N skipped" when some were; skips are named above it. Every suite,
# script and check that is expected leaves a count; one that leaves none (it crashed, say) counts as one failure.
# A suite prints Check's summary line. A script in tests/cli prints "ok NAME" and "not ok NAME". Both may print "skip ..."
# with what is skipped and why.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

MAKE=${MAKE:-make}
OUT=build/check                 # logs and counts of this run
JOBS=$(nproc 2>/dev/null || echo 2)
MAX_LINES=800                   # no source file is longer

count() { echo "$2 $3 $4" >"$OUT/$1.count"; }    # NAME PASSED FAILED SKIPPED

# ---- one job, in a process of its own: run.sh --job KIND VARIANT NAME ----

# Counts of a Check suite's log: the line "95%: Checks: 20, Failures: 1, Errors: 0".
read_check_summary() {
    sed -n 's/^[0-9]*%: Checks: \([0-9]*\), Failures: \([0-9]*\), Errors: \([0-9]*\)$/\1 \2 \3/p' "$1" | tail -1
}

run_suite() {                   # VARIANT NAME
    local id=$2.$1 log=$OUT/$2.$1.log checks failures errors passed failed skipped status
    timeout 600 "build/$1/tests/$2" >"$log" 2>&1 </dev/null
    status=$?
    read -r checks failures errors <<<"$(read_check_summary "$log")"
    skipped=$(grep -c '^skip[ :]' "$log")
    if [ -z "${checks:-}" ] || [ "$checks" = 0 ]; then
        passed=0 failed=1
        echo "no test ran to its end (exit status $status)" >>"$log"
    else
        failed=$((failures + errors)) passed=$((checks - failures - errors))
        if [ $status != 0 ] && [ $failed = 0 ]; then
            failed=1
            echo "exit status $status though no test failed" >>"$log"
        fi
    fi
    report "$id" "$passed" "$failed" "$skipped"
}

run_script() {                  # VARIANT NAME
    local id=$2.$1 log=$OUT/$2.$1.log passed failed skipped status
    CLOVER=build/$1/clover timeout 600 "tests/cli/$2.sh" >"$log" 2>&1 </dev/null
    status=$?
    passed=$(grep -c '^ok ' "$log") failed=$(grep -c '^not ok ' "$log") skipped=$(grep -c '^skip[ :]' "$log")
    if [ $failed = 0 ] && { [ $status != 0 ] || [ $((passed + skipped)) = 0 ]; }; then
        failed=1
        echo "exit status $status, $passed passed, none reported as failed" >>"$log"
    fi
    report "$id" "$passed" "$failed" "$skipped"
}

report() {                      # ID PASSED FAILED SKIPPED: the count, one line, and the log when something failed
    count "$@"
    local line
    line=$(printf '%-36s %4d passed' "$1" "$2")
    [ "$4" = 0 ] || line="$line, $4 skipped"
    if [ "$3" = 0 ]; then echo "$line"
    else printf '%s, %d FAILED\n%s\n' "$line" "$3" "$(tail -60 "$OUT/$1.log" | sed 's/^/    /')"; fi
}

if [ "${1-}" = --job ]; then
    "run_$2" "$3" "$4"
    exit 0
fi

# ---- checks that are no suites ----

check_bits() {                  # exact arithmetic gives the same bits on both compilers at both ends of optimisation
    local first= variant
    for variant in release gcc-O0 clang-O0 clang-O3; do
        if ! "build/$variant/bits" >"$OUT/bits.$variant" 2>>"$OUT/bits.log"; then
            echo "bits of $variant did not run" >>"$OUT/bits.log"; report bits 0 1 0; return
        fi
        first=${first:-$OUT/bits.$variant}
        if [ ! -s "$first" ] || ! diff "$first" "$OUT/bits.$variant" >>"$OUT/bits.log"; then
            echo "the bits of $variant differ from those of release (above)" >>"$OUT/bits.log"; report bits 0 1 0; return
        fi
    done
    report bits 3 0 0
}

check_spec() {
    if ./tests/spec_check.sh >"$OUT/spec_check.log" 2>&1; then report spec_check 1 0 0; else report spec_check 0 1 0; fi
}

check_sizes() {
    find . \( -path ./build -o -path ./.git -o -path ./tests/vectors -o -path './golden/*/*' \) -prune -o -type f \
        \( -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.sh' -o -name '*.py' -o -name '*.md' -o -name Makefile \) -exec wc -l {} + |
        awk -v max=$MAX_LINES '$2 != "total" && $1 > max { print $2 " has " $1 " lines, more than " max; bad = 1 } END { exit bad }' \
        >"$OUT/sizes.log"
    if [ $? = 0 ]; then report sizes 1 0 0; else report sizes 0 1 0; fi
}

# ---- the whole ----

finish() {
    local passed=0 failed=0 skipped=0 id p f s
    for id in "${expected[@]}"; do
        if [ -s "$OUT/$id.count" ]; then read -r p f s <"$OUT/$id.count"
        else p=0 f=1 s=0; echo "$id left no result"; fi
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    done
    for id in "${expected[@]}"; do sed -n "s/^skip[: ]*/skip $id: /p" "$OUT/$id.log" 2>/dev/null; done
    if [ $skipped = 0 ]; then echo "$passed passed, $failed failed"
    else echo "$passed passed, $failed failed, $skipped skipped"; fi
    [ $failed = 0 ] && [ $passed -gt 0 ]
    exit
}

build() {                       # VARIANT TARGET...; false: what was built before must not be run in its place
    local variant=$1; shift
    expected+=("build.$variant")
    count "build.$variant" 0 0 0
    $MAKE -k -j"$JOBS" VARIANT="$variant" "$@" >"$OUT/build.$variant.log" 2>&1 && return
    count "build.$variant" 0 1 0
    echo "the build of $variant FAILED, so its tests do not run ($OUT/build.$variant.log):"
    grep -E 'error:|error |undefined|No rule|missing Debian' "$OUT/build.$variant.log" | awk '!seen[$0]++' | head -20 | sed 's/^/    /'
    return 1
}

plan() {                        # KIND VARIANT NAME...
    local kind=$1 variant=$2 name; shift 2
    for name in "$@"; do jobs+=("$kind $variant $name"); expected+=("$name.$variant"); done
}

rm -rf $OUT && mkdir -p $OUT build/tmp
expected=()

if ! ./tools/install-deps.sh check; then expected+=(dependencies); finish; fi

suites=() scripts=()
for f in tests/test_*.c; do [ -e "$f" ] && f=${f##*/} && suites+=("${f%.c}"); done
for f in tests/cli/*.sh; do [ -e "$f" ] && f=${f##*/} && scripts+=("${f%.sh}"); done

echo "building with gcc and clang, and with sanitizers"
bits=; [ -e tests/bits.c ] && bits=bits
vectors=; [ -n "$(ls tests/vectors*.c 2>/dev/null)" ] && vectors=vectors
# `vectors` alone would also run them: here only the program is built.
jobs=()
if build asan build/asan/clover suites; then plan suite asan "${suites[@]}"; fi      # the slow ones first
if build release build/clover suites $bits ${vectors:+build/release/vectors}; then
    plan script release "${scripts[@]}"
    plan suite release "${suites[@]}"
fi
build clang-O3 build/clang-O3/clover suites $bits ${vectors:+build/clang-O3/vectors} || bits=
if [ -n "$bits" ]; then build gcc-O0 bits || bits=; build clang-O0 bits || bits=; fi

# A test that hangs is stopped, late: sanitizers and busy machines are slow. A huge allocation returns NULL under ASan too.
export CK_DEFAULT_TIMEOUT=60 CK_TIMEOUT_MULTIPLIER=5
export ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
[ ${#jobs[@]} = 0 ] || printf '%s\n' "${jobs[@]}" | xargs -P "$JOBS" -L 1 "$0" --job

if [ -n "$bits" ]; then expected+=(bits); check_bits; fi
expected+=(spec_check sizes)
check_spec
check_sizes
finish
