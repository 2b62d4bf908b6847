#!/bin/sh
# spec_check.sh - the rules of SPEC.md, the code and the tests cite each other.
#
# Every rule that SPEC.md defines (a paragraph that begins **[TAG-n]**) is cited in ref/ or tools/ and in tests/; every
# rule cited anywhere is defined. A citation is [TAG-n], or a list of labels in brackets: [GDN-4, PRV-7].
set -u
cd "$(dirname "$0")/.." || exit 1

labels() {   # FILE...: "LABEL FILE" for each citation
    awk '{
        line = $0
        while (match(line, /\[[A-Z][A-Z][A-Z]?[A-Z]?-[0-9]+[^]]*\]/)) {
            inside = substr(line, RSTART + 1, RLENGTH - 2)
            line = substr(line, RSTART + RLENGTH)
            n = split(inside, part, /[ ,;]+/)
            for (i = 1; i <= n; i++) if (part[i] ~ /^[A-Z]+-[0-9]+$/) print part[i], FILENAME
        }
    }' "$@"
}

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

sed -n 's/^\*\*\[\([A-Z]*-[0-9]*\)\]\*\*.*/\1/p' SPEC.md >"$work/defined"
sources() { find "$@" -type f \( -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.sh' -o -name '*.py' \); }
# shellcheck disable=SC2046 # no file name here has a space
labels $(sources ref tools) /dev/null >"$work/code"
# shellcheck disable=SC2046
labels $(sources tests | grep -v spec_check.sh) /dev/null >"$work/tests"
labels SPEC.md >"$work/text"

awk -v work="$work" '
    FILENAME == work "/defined" { if ($1 in defined) { print "SPEC.md defines [" $1 "] twice"; bad = 1 } defined[$1] = 1; order[++n] = $1; next }
    FILENAME == work "/code"    { code[$1] = $2 }
    FILENAME == work "/tests"   { test[$1] = $2 }
    !($1 in defined) && !(($1, $2) in told) { print $2 " cites [" $1 "], which SPEC.md does not define"; told[$1, $2] = 1; bad = 1 }
    END {
        for (i = 1; i <= n; i++) {
            if (!(order[i] in code)) { print "[" order[i] "] is not cited in ref/ or tools/"; bad = 1 }
            if (!(order[i] in test)) { print "[" order[i] "] is not cited in tests/"; bad = 1 }
        }
        if (n == 0) { print "SPEC.md defines no rule"; bad = 1 }
        if (!bad) print n " rules, each cited in code and tests"
        exit bad
    }' "$work/defined" "$work/code" "$work/tests" "$work/text"
