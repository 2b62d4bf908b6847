#!/bin/sh
# install.sh - what the peers in a browser need: Debian's Chromium (apt), and in build/peers/browser Playwright's driver of it and wllama,
# llama.cpp as WebAssembly (npm). Prints Chromium's path; exit status 77, with the reason instead, where it cannot be had.
set -u
cd "$(dirname "$0")/../../.." || exit 1

PACKAGES='playwright-core@1.65.1 @wllama/wllama@3.13.0'
home=build/peers/browser

why() { echo "$1"; exit 77; }

command -v node >/dev/null && command -v npm >/dev/null || why 'there is no Node.js'
if ! command -v chromium >/dev/null; then
    if [ "$(id -u)" = 0 ]; then as_root=
    elif sudo -n true 2>/dev/null; then as_root='sudo -n'
    else why 'there is no Chromium, and no right to install it (Debian: chromium)'
    fi
    command -v apt-get >/dev/null || why 'there is no Chromium'
    mkdir -p build/peers
    echo 'installing Chromium' >&2
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y --no-install-recommends chromium >build/peers/apt.log 2>&1 </dev/null ||
        why 'apt-get install chromium fails: build/peers/apt.log'
fi
if ! grep -qxsF "$PACKAGES" $home/installed; then
    echo "installing $PACKAGES" >&2
    rm -rf $home && mkdir -p $home && echo '{"private": true}' >$home/package.json
    # shellcheck disable=SC2086 # a list of words
    (cd $home && npm install --silent --no-audit --no-fund --no-package-lock $PACKAGES >../npm.log 2>&1) || why 'npm install fails: build/peers/npm.log'
    echo "$PACKAGES" >$home/installed
fi
command -v chromium
