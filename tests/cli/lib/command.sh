# command.sh - sourced by the scripts in tests/cli: run a command, ask for its exit code and what it said. $CLOVER is the program, $work a folder.
CLOVER=${CLOVER:-build/clover}
mkdir -p build/tmp
work=$(mktemp -d build/tmp/cli-"$(basename "$0" .sh)"-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT

result() {                      # NAME STATUS
    if [ "$2" = 0 ]; then echo "ok $1"; else echo "not ok $1"; sed 's/^/    /' "$work/out" "$work/err" | head -20; fi
}
run() {                         # EXPECTED-CODE ARGUMENTS...
    want=$1; shift
    "$CLOVER" "$@" >"$work/out" 2>"$work/err"
    code=$?
    [ $code = "$want" ] || echo "exit code $code, expected $want" >>"$work/err"
    [ $code = "$want" ]
}
says() { grep -q -e "$1" "$work/out"; }
errs() { grep -q -e "$1" "$work/err"; }
