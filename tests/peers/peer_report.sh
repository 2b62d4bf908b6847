#!/bin/sh
# peer_report.sh - the page of `clover diff --html` in a real browser: Debian's Chromium, through Playwright.
#
# The pages are the ones that tests/test_diff_html.c writes. Installs Chromium (apt) and playwright-core (npm, into build/peers/browser)
# where they are missing. Screenshots, to be looked at: build/peers/report. Exit status: 0 as it should be, 1 not, 77 cannot run here.
set -u
cd "$(dirname "$0")/../.." || exit 1

PLAYWRIGHT=playwright-core@1.65.1
home=build/peers/browser
shots=build/peers/report
suite=build/release/tests/test_diff_html

skip() { echo "skip report: $1"; exit 77; }

command -v node >/dev/null && command -v npm >/dev/null || skip 'there is no Node.js'
if ! command -v chromium >/dev/null; then
    if [ "$(id -u)" = 0 ]; then as_root=
    elif sudo -n true 2>/dev/null; then as_root='sudo -n'
    else skip 'there is no Chromium, and no right to install it (Debian: chromium)'
    fi
    command -v apt-get >/dev/null || skip 'there is no Chromium'
    mkdir -p build/peers
    echo 'installing Chromium'
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y --no-install-recommends chromium >build/peers/apt.log 2>&1 </dev/null ||
        skip "apt-get install chromium fails: build/peers/apt.log"
fi
CHROMIUM=$(command -v chromium)
export CHROMIUM
if ! grep -qxsF $PLAYWRIGHT $home/installed; then
    echo "installing $PLAYWRIGHT"
    rm -rf $home && mkdir -p $home && echo '{"private": true}' >$home/package.json
    (cd $home && npm install --silent --no-audit --no-fund --no-package-lock $PLAYWRIGHT >../npm.log 2>&1) || skip 'npm install fails: build/peers/npm.log'
    echo $PLAYWRIGHT >$home/installed
fi

make $suite >build/peers/suite.log 2>&1 && $suite >>build/peers/suite.log 2>&1 || { tail -20 build/peers/suite.log; exit 1; }
rm -rf $shots && mkdir -p $shots
node tests/peers/browser/report.mjs $home build/tmp/report.html build/tmp/report-large.html $shots
