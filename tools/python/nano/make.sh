#!/bin/sh
# make.sh - trains nano from nothing and asks it; make nano calls it. Everything it writes is in build/nano; golden/ stays as it is.
# Stopped at any time and started again, it goes on from the last checkpoint.
#
#   NANO_PYTHON=P   a Python that has the packages; nothing is installed into it
#   THREADS=N       of the training (2)
set -eu
cd "$(dirname "$0")/../../.."
out=build/nano
scripts=tools/python/nano
python=${NANO_PYTHON-$out/venv/bin/python}
threads=${THREADS-2}
mkdir -p $out
if [ ! -x "$python" ]; then
    needs=$(sed -n 's/^# needs: //p' $scripts/train.py)
    echo "installing $needs into $out/venv"
    python3 -m venv $out/venv
    # shellcheck disable=SC2086 # a list of words
    $out/venv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check $needs
fi
# Sleeping threads, not spinning ones: training is beside other work.
OMP_WAIT_POLICY=passive "$python" $scripts/train.py --out $out --threads "$threads"
"$python" $scripts/export.py checkpoint $out $out/hf
"$python" $scripts/export.py gguf $out/hf $out/nano.gguf
echo "written: $out/nano.gguf, $out/hf, $out/loss.svg; asking it"
"$python" $scripts/accept.py $out/nano.gguf | tee $out/accept.txt
