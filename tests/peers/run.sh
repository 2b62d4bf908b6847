#!/bin/sh
# run.sh - compare the interpreter with programs that others wrote. `make peers` calls it; README.md says what is compared.
#
#   VECTORS=DIR     compare on DIR/tiny-a and DIR/tokenizer.json as well (`make peers VECTORS=DIR`)
#   PEERS='a b'     only the peers of these names
#   CLOVER=FILE     the clover to compare (build/clover)
#   LLAMA_CPU=NAME  llama.cpp's CPU backend
#   PEERS_PYTHON=P  a Python that has the packages already; nothing is installed into it
#
# Everything it downloads and writes is in build/peers. A peer that cannot run here is a skip with its reason, never a
# pass. Exit status: 0 all that ran agree, 1 something does not, 77 nothing could run.
set -u
cd "$(dirname "$0")/../.." || exit 1

known='numpy twin transformers llamacpp adapters tokenizer writers exports report'
peers=${PEERS-$known}
vectors=${VECTORS-}
clover=${CLOVER-build/clover}
home=build/peers
work=$home/work
python=${PEERS_PYTHON-$home/venv/bin/python}
LLAMA_LIBRARIES=@node-llama-cpp/linux-x64@3.21.1
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

passed=0 failed=0 skipped=0 skips=
[ -x "$clover" ] || { echo "run.sh: $clover is not built; make peers builds it" >&2; exit 1; }
[ -z "$vectors" ] || [ -d "$vectors" ] || { echo "run.sh: there is no folder $vectors" >&2; exit 2; }
rm -rf $work && mkdir -p $work || exit 1
for peer in $peers; do
    case " $known " in *" $peer "*) ;; *) echo "run.sh: no peer $peer; there are: $known" >&2; exit 2 ;; esac
done

skip() { # NAME WHY
    skipped=$((skipped + 1))
    skips="$skips  skip $1: $2
"
}
count() { # NAME STATUS
    case $2 in
    0) passed=$((passed + 1)) ;;
    77) skip "$1" 'said above' ;;
    *) failed=$((failed + 1)); echo "  FAIL $1: exit status $2" ;;
    esac
}

# ---- installing -----------------------------------------------------------------------------------------------------
# Each of these is true, or sets $why.

make_venv() {
    [ -x $home/venv/bin/pip ] && return
    rm -rf $home/venv $home/installed
    command -v python3 >/dev/null || { why='there is no python3'; return 1; }
    python3 -m venv $home/venv >$home/venv.log 2>&1 || { why="python3 -m venv fails (Debian: python3-venv): $home/venv.log"; return 1; }
}

# What the script's line "# needs: PACKAGE==VERSION …" names. One environment for all: the second peer finds much of it there.
install_python() { # SCRIPT
    [ -z "${PEERS_PYTHON-}" ] || return 0
    make_venv || return 1
    needs=$(sed -n 's/^# needs: //p' "$1")
    grep -qxsF -- "$needs" $home/installed && return
    echo "installing $needs"
    # shellcheck disable=SC2086 # a list of words
    $home/venv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check $needs >$home/pip.log 2>&1 || {
        why="pip: $(grep -i error $home/pip.log | tail -n 1)"
        return 1
    }
    echo "$needs" >>$home/installed
}

install_llama() {
    [ -e $home/llama/libllama.v0.4.0.so ] && return
    [ "$(uname -sm)" = 'Linux x86_64' ] || { why='its libraries are for Linux on x86-64'; return 1; }
    command -v npm >/dev/null || { why='there is no npm to fetch its libraries with'; return 1; }
    echo "fetching $LLAMA_LIBRARIES"
    rm -rf $home/llama $home/fetched && mkdir -p $home/fetched
    (cd $home/fetched && npm pack --silent $LLAMA_LIBRARIES >../npm.log 2>&1) || { why="npm pack fails: $home/npm.log"; return 1; }
    tar -xzf $home/fetched/*.tgz -C $home/fetched package/bins/linux-x64 && mv $home/fetched/package/bins/linux-x64 $home/llama ||
        { why='its package is not as expected'; return 1; }
    rm -rf $home/fetched
}

# Is this peer wanted, there and installed? Sets $script. A peer that is wanted and cannot run is a skip.
ready() { # NAME
    case " $peers " in *" $1 "*) ;; *) return 1 ;; esac
    echo "$1"
    for script in tests/peers/peer_"$1".py tests/peers/"$1"_peer.py none; do [ ! -e "$script" ] || break; done
    [ "$script" != none ] || { skip "$1" 'it has no script in tests/peers'; return 1; }
    install_python "$script" || { skip "$1" "$why"; return 1; }
    [ "$1" != llamacpp ] || install_llama || { skip "$1" "$why"; return 1; }
    [ "$1" != adapters ] || install_llama || skip "$1" "llama.cpp: $why"   # its other half can run
}

# ---- comparing ------------------------------------------------------------------------------------------------------
# N ids below V, the same ones every time.
ids() { # N V SEED
    awk -v n="$1" -v v="$2" -v x="$3" 'BEGIN {
        for (i = 0; i < n; i++) { x = (x * 16807) % 2147483647; printf "%s%d", i ? "," : "", x % v } }'
}

# Our logits and probes of MODEL, two steps, the second over the state that the first leaves; then the peer's of the same ids.
on_model() { # PEER NAME MODEL IDS THEN [OPTION…]
    peer=$1 name=$2 model=$3 commit=$4 then=$5
    shift 5
    rm -rf "$work/$name"
    if ! "$clover" logits "$model" --ids "$commit" --then "$then" --probes '*' -o "$work/$name" >"$work/$name.log" 2>&1; then
        cat "$work/$name.log"
        count "clover logits on $name" 1
        return
    fi
    "$python" "$script" "$model" "$work/$name" --work $work --name "$name" "$@"
    count "$peer on $name" $?
}

# Random models, a line each: a name, its vocabulary, options of `clover synth`. 150 ids cross Transformers' chunks of 64
# twice, 29 more continue the state.
on_synthesised() { # PEER FORM <<SHAPES
    while read -r shape vocabulary options; do
        model=$work/$shape.$2
        rm -rf "$model"
        # shellcheck disable=SC2086 # a list of words
        if "$clover" synth -o "$model" --form "$2" --vocab "$vocabulary" $options >$work/synth.log 2>&1; then
            on_model "$1" "$shape-$2" "$model" "$(ids 150 "$vocabulary" 1)" "$(ids 29 "$vocabulary" 2)" \
                --float32 "$work/$shape.float32" </dev/null
        else
            cat $work/synth.log
            count "clover synth of $shape" 1
        fi
    done
}

# For both peers. Among them: 1, 3 and 8 query heads a KV head; 1, 2 and 3 value heads a key head; widths that are no power of
# two; intervals 2, 3 and 4; 3 taps; a rotation of a quarter, a half and all of the head; from 4 experts, all chosen, to 64.
shapes() { cat <<'END'
tiny 272 --seed 1
base 272 --seed 2 --arch qwen35moe
odd 300 --seed 3 --layers 6 --interval 3 --hidden 160 --heads 6 --kv-heads 2 --head-width 24 --rotary-dims 12 --key-heads 2 --value-heads 6 --experts 12 --experts-used 3 --expert-width 48 --shared-width 80
short 280 --seed 4 --interval 2 --hidden 96 --heads 4 --kv-heads 4 --head-width 32 --rotary-dims 32 --rope-base 10000 --key-heads 3 --value-heads 3 --taps 3 --experts 4 --experts-used 4
large 400 --seed 5 --layers 8 --hidden 256 --heads 16 --kv-heads 2 --head-width 64 --rotary-dims 16 --key-heads 4 --value-heads 8 --key-width 32 --value-width 32 --experts 64 --experts-used 8 --expert-width 64 --shared-width 64
tied 272 --seed 7 --tied
END
}
# What llama.cpp refuses, and the forms of a folder.
folders() { cat <<'END'
uneven 272 --seed 6 --key-width 16 --value-width 24
attention 272 --seed 8 --interval 1
recurrent 272 --seed 9 --interval 5
experts 272 --seed 10 --type bf16 --per-expert --split-size 100K
nested 272 --seed 11 --nested-config --prefix-language-model
END
}
# Types of a GGUF: we decode a weight when it is used, the peer reads what the gguf package decodes.
files() { cat <<'END'
bf16 272 --seed 12 --type bf16
q8_0 272 --seed 13 --type q8_0
q4_0 272 --seed 14 --type q4_0
q4_k 272 --seed 15 --type q4_k --hidden 256 --expert-width 256
iq4_xs 272 --seed 16 --type iq4_xs --hidden 256 --expert-width 256
END
}

# The ids of two of the vectors' steps; the expected numbers there are not read.
on_vectors() { # PEER NAME MODEL EXPECTED
    pair=$("$python" -c 'import sys
from safetensors.numpy import load_file
for step in ("causal", "causal_continued"):
    print(*load_file(f"{sys.argv[1]}/{step}.safetensors")["ids"], sep=",")' "$4") || { count "the ids of $4" 1; return; }
    on_model "$1" "$2" "$3" "${pair%%
*}" "${pair#*
}" --float32 $work/vectors.float32
}

if ready numpy; then
    "$python" "$script" --clover "$clover" --work $work ${vectors:+--vectors "$vectors"}
    count numpy $?
fi
if ready twin; then
    nano=
    if [ -e golden/nano.gguf ]; then
        nano=$work/nano-hf
        "$python" tools/python/nano/export.py hf golden/nano.gguf "$nano"
        count 'nano as a folder' $?
    fi
    "$python" "$script" --clover "$clover" --work $work ${nano:+--nano "$nano"}
    count twin $?
fi
if ready transformers; then
    "$python" tests/peers/compare.py --selftest
    count compare.py $?
    { shapes; folders; } >$work/list
    on_synthesised transformers hf <$work/list
    [ -z "$vectors" ] || on_vectors transformers vectors-hf "$vectors/tiny-a/hf" "$vectors/tiny-a/expected-hf"
fi
if ready llamacpp; then
    { shapes; files; } >$work/list
    on_synthesised llamacpp gguf <$work/list
    [ -z "$vectors" ] || on_vectors llamacpp vectors-gguf "$vectors/tiny-a/upstream-f32.gguf" "$vectors/tiny-a/expected-gguf"
fi
if ready adapters; then
    "$python" "$script" --clover "$clover" --work $work
    count adapters $?
fi
if ready tokenizer; then
    if [ -n "$vectors" ] && [ -e "$vectors/tokenizer.json" ]; then "$python" "$script" "$vectors/tokenizer.json"; else "$python" "$script"; fi
    count tokenizer $?
fi
if ready writers; then
    "$python" "$script"
    count writers $?
fi
if ready exports; then
    if chromium=$(tests/peers/browser/install.sh); then :; else skip exports "llama.cpp in a browser: $chromium" && chromium=; fi   # its other half can run
    "$python" "$script" --clover "$clover" --work $work ${chromium:+--chromium "$chromium"}
    count exports $?
fi
case " $peers " in *' report '*)
    echo report
    tests/peers/peer_report.sh
    count report $?
    ;;
esac
printf '%s' "$skips"
echo "peers: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] || exit 1
[ $passed != 0 ] || exit 77
