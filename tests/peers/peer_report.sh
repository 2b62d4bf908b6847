#!/bin/sh
# peer_report.sh - the page of `clover diff --html` in a real browser: Debian's Chromium, through Playwright.
#
# The pages are the ones that tests/test_diff_html.c writes. browser/install.sh installs what is missing.
# Screenshots, to be looked at: build/peers/report. Exit status: 0 as it should be, 1 not, 77 cannot run here.
set -u
cd "$(dirname "$0")/../.." || exit 1

home=build/peers/browser
shots=build/peers/report
suite=build/release/tests/test_diff_html

skip() { echo "skip report: $1"; exit 77; }

CHROMIUM=$(tests/peers/browser/install.sh) || skip "$CHROMIUM"
export CHROMIUM

make $suite >build/peers/suite.log 2>&1 && $suite >>build/peers/suite.log 2>&1 || { tail -20 build/peers/suite.log; exit 1; }
rm -rf $shots && mkdir -p $shots
node tests/peers/browser/report.mjs $home build/tmp/report.html build/tmp/report-large.html $shots
