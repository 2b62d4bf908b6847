#!/bin/sh
# install-deps.sh [--missing] build|check|fuzz
#
# Installs the Debian packages that building (build), testing (check) or fuzzing (fuzz) need and this machine lacks;
# does nothing when all are there. --missing installs nothing: it fails with one line that says what is missing.
set -u

only_say=0
if [ "${1-}" = --missing ]; then only_say=1; shift; fi
purpose=${1-build}

missing=
command_of() { command -v "$2" >/dev/null 2>&1 || missing="$missing $1"; }               # PACKAGE COMMAND
library_of() { pkg-config --exists "$2" >/dev/null 2>&1 || missing="$missing $1"; }      # PACKAGE PKG-CONFIG-NAME

case $purpose in
build|check|fuzz) ;;
*) echo "install-deps.sh: unknown purpose '$purpose' (build, check or fuzz)" >&2; exit 2 ;;
esac

command_of gcc gcc
command_of make make
command_of pkg-config pkg-config
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
library_of libjansson-dev jansson
library_of libpcre2-dev libpcre2-8
library_of libutf8proc-dev libutf8proc
# The serial OpenBLAS where Debian has it (the threaded one starts threads when it is loaded), else any.
ls /usr/lib/*/openblas-serial/libopenblas.so >/dev/null 2>&1 || { [ ! -e /etc/debian_version ] && pkg-config --exists openblas; } ||
    missing="$missing libopenblas-serial-dev"
library_of libssl-dev libcrypto
if [ "$purpose" != build ]; then
    command_of clang clang
    library_of check check
    library_of libmpfr-dev mpfr
fi
if [ "$purpose" = fuzz ] && command -v clang >/dev/null 2>&1; then
    runtime=$(clang -print-file-name=libclang_rt.fuzzer-"$(uname -m)".a)
    major=$(clang -dumpversion | cut -d. -f1)
    [ -e "$runtime" ] || missing="$missing libclang-rt-$major-dev"
fi

[ -n "$missing" ] || exit 0
if [ $only_say = 1 ]; then
    echo "missing Debian packages:$missing - install them with: make deps" >&2
    exit 1
fi

if [ "$(id -u)" = 0 ]; then as_root=
elif sudo -n true 2>/dev/null; then as_root='sudo -n'
else
    echo "missing Debian packages, and no right to install them: run as root: apt-get install -y$missing" >&2
    exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "missing, and this is no Debian (there is no apt-get): install by hand what these packages hold:$missing" >&2
    exit 1
fi

echo "installing Debian packages:$missing"
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # words on purpose: $as_root is a prefix, $missing a list
if ! { $as_root apt-get update && $as_root apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1 </dev/null; then
    tail -5 "$log" >&2
    echo "could not install:$missing (the last lines of apt-get stand above)" >&2
    exit 1
fi
