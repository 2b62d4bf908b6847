#!/usr/bin/env python3
# needs: tokenizers==0.23.3
"""make.py - a small vocabulary of our own with merges, and hard texts with the ids that `tokenizers` gives.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers==0.23.3
    /tmp/venv/bin/python tests/vectors/tokenizer/make.py

Writes beside itself tokenizer.json (trained on the text below), added.json (the same with added tokens that overlap,
nest and are "normalized") and expected.json: per file the texts with `ids` (special tokens become ids) and `plain`
(special tokens are text: encode_special_tokens of `tokenizers`; left out where it is `ids`), and `streams`: bytes with what
Python's UTF-8 decoder makes of them, and the offset of the first that is wrong.
"""
import json, os
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")

TRAINING = """
A clover has three leaves. The fourth one is luck, and the gardener who finds it keeps it between the pages of a book.
She didn't say what she'd found; they've looked, we're looking, I'm sure you'll see it's there. Don't worry, it can't be lost.
There are blocks of thirty-two rows. Every row of the block sees every other row, and the mask is taken away where the answer is sure.
for (int i = 0; i < n; i++) { sum += a[i] * b[i]; }
    if (row == NULL) return -1;
    else return row->next;
def leaves(n):
    return [i for i in range(n) if i % 3 == 0]
Das Kleeblatt hat drei Blätter, das vierte bringt Glück. Über den Wiesen wächst es grün.
Le trèfle à quatre feuilles est rare; l'été, on le cherche près de la forêt. Où est-il caché ?
El trébol tiene tres hojas. ¿Dónde está la cuarta? ¡Mañana la encontraré!
Клевер растёт на лугу, и у него три листа. Четвёртый лист приносит удачу.
三つ葉のクローバーの四つ目の葉は幸運をもたらす。四つ葉を見つけた。
三叶草有三片叶子，第四片叶子带来好运。我们在草地上寻找它。
세 잎 클로버와 네 잎 클로버가 있다. 네 잎은 행운이다.
तिपतिया घास की तीन पत्तियाँ होती हैं। चौथी पत्ती भाग्य लाती है।
ใบโคลเวอร์มีสามใบ ใบที่สี่นำโชคมาให้
ạ ế ộ ḫ ṣ ṭ ሀ መ ሰ ጀ ᠠ ᠡ ក ខ ᐃ ᓄ Ა Ნ ა ნ ᏣᎳᎩ ạ ế ộ ḫ ṣ ṭ
للبرسيم ثلاث أوراق والورقة الرابعة تجلب الحظ
The end is not the end: ... --- *** === !!! ??? "quoted" 'single' (in brackets) [and] {others} <|not special|> 😀😀 👍👍
0 1 2 3 4 5 6 7 8 9 10 100 1000\t\tindent\t\tindent\n\n\n\nlines\r\n\r\nother lines\r\n\r\n
""" * 4

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"]
NOT_SPECIAL = ["<think>", "</think>"]

TEXTS = [
    "", " ", "\n", "a", "The clover has three leaves.", "the the the", " The the  The", "don't can't we're I'M YOU'LL they'VE it'S he'd 'tis 'S's",
    "it'ſ K's ’s", "n't'll've", "12345 3.14 1,000,000", "0x1F 1e-6 ½ ² Ⅷ", "٣٤٥ १२३ 三３", "room101 a1b2c3", "naïve café Blätter Glück Où forêt",
    "nai\u0308ve cafe\u0301 Bla\u0308tter Glu\u0308ck Ou\u0300 fore\u0302t", "e\u0301 \u0301e \u0301\u0301 e\u0301\u0323 e\u0323\u0301 \u1e69 s\u0323\u0307 s\u0307\u0323",
    "\u212b \u2126 \u212a \u0340 \u0344 \u0374 \u037e \u0387", "\u0958 \u09dc \ufb2e \u2adc \U0001d15e", "\u1100\u1161\u11a8 \u1100\u1161 각 \u1112\u1161\u11ab\u1100\u116e\u11a8",
    "q\u0307\u0323\u0301\u0345 \u0f71\u0f72\u0f74 \u0fb2\u0f80", "\u03b1\u0345\u0301 \u1f80 \u03b1\u0313\u0300\u0345", "\u00c5 A\u030a \u01d5 U\u0308\u0304 \u1e17 e\u0304\u0301",
    "a\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308\u0309\u0316\u0317\u0318\u0319 zalgo", "三叶草有三片叶子，第四片叶子带来好运。", "三つ葉のクローバー。四つ葉を見つけた！",
    "네 잎 클로버는 행운이다. 한국어", "神神神 \ufa19 \u795e 侮", "तिपतिया घास की तीन पत्तियाँ होती हैं।", "क्षत्रिय हिन्दी ज़", "ใบโคลเวอร์มีสามใบ ใบที่สี่นำโชคมาให้", "ภาษาไทย ำ า้",
    "للبرسيم ثلاث أوراق والورقة الرابعة", "العَرَبِيَّة مُشَكَّلَة آ ا\u0653", "עברית שָׁלוֹם \ufb2a", "Клевер растёт на лугу Й И\u0306", "Ελληνικά ΐ ὰ ᾷ", "ქართული հայերեն ትግርኛ",
    "😀😀 👍👍🏽", "👩‍👩‍👧‍👦 🏳️‍🌈 🧑🏿‍🚀", "🇦🇺🇩🇪 1️⃣ ❤️ ☃", "\U0001f3f4\U000e0067\U000e0062\U000e007f", "\t", "\t\t", "\ta\t b", "a\t\t\tb \t c", "\n\n\n\n", "\r\n\r\n\r\nx", "\r\r\n\n\r",
    "a\n", "a \n", "a  \n  b", "a\n \n b", " \n\n  \r\n \t\n x", "trailing space ", "trailing spaces    ", "    leading", "a    b", "a  b   c    d     e", "x\n    if (row == NULL) return -1;\n    else return row->next;\n",
    "\u00a0", "a\u00a0b \u00a0 c\u00a0\u00a0", "a\u3000b\u3000\u3000c \u3000", "a\u0085b\u0085\u0085c \u0085\n", "a\u2028b\u2029c\u2003\u2003d\u202fe\u205ff\u1680g", "\x0b\x0c a\x0bb\x0c\x0c",
    "a\u180eb \u180e\u180e c\u180e", "a\u200bb\u200b\u200b \u200b", "a\ufeffb \ufeff", "\u200d \u200c \u2060 \u00ad", "\x1c\x1d\x1e\x1f a\x1c b\x1f\x1f", "a\x00b\x00\x00 \x00", "\x01\x02\x7f\u0080\u009f",
    "... --- *** === !!! ???", "!?\n\n x", " !\r\n", "a.b,c;d:e", "->next(); // comment\n", "\"quoted\" 'single' ‘x’ “y”", "<>{}[]()|&^%$#@~`", "a_b_c __init__ snake_case CamelCase", "https://example.org/a?b=c&d=%20#e",
    "antidisestablishmentarianism", "leavesleavesleavesleaves", "the" * 40, "a" * 300, "é" * 100, "三" * 100, " " * 100 + "x", "\n" * 100, "1" * 50, "!" * 100,
    "<|im_start|>user\nWhere is the fourth leaf?<|im_end|>\n<|im_start|>assistant\n<think>\n", "<|im_start|><|im_start|><|im_end|><|endoftext|><|mask|><|mask|>", "a<|im_end|>b", " <|im_end|> ", "the<|mask|>the end",
    "<|im_ <|im_start <|im_start| im_start|> <|im_end|", "<<|im_end|>>", "<|im_<|im_end|>end|>", "<|IM_END|> <| im_end |>", "<think></think><think", "<think>\n\n</think>\n\nThe end", "a</think>b </think> c", "\u2028<|im_end|>\u2028",
    "<|im_end|>\u0338 <think>\u0338", "e<|mask|>\u0301", "x <|mask|>  y", "don<|mask|>'t", "\r<|mask|>\n", "\ufffd \ufffe \U0010ffff \ue000", "ﬁ ﬆ ǆ ß ẞ İ ı ſ",
]

ADDED = [  # content, special, normalized
    ("ab", False, False), ("abc", False, False), ("bcd", False, False), ("cdefg", False, False), ("<é>", False, True), ("<o\u0308>", False, True),
    ("<ü>", False, False), ("<|s<n>|>", True, False), ("<n>", False, False), ("q\u0307\u0323", True, True), ("  ", False, False), ("\n\n", True, False)]
ADDED_TEXTS = [
    "abcd", "ababcabcd", "bcdefg abcdefg", "aabbccdd", "xabx", "<é> <e\u0301> <é", "<ö> <o\u0308>", "<ü> <u\u0308>", "<|s<n>|> <n> <|s<n> <n>|>", "q\u0307\u0323 q\u0323\u0307 q",
    "a  b   c    d", "a\n\nb\n\n\nc", "abc\u0301", "<\u00e9>\u0338", "<|s<n>|><|s<n>|>ab", "the ab end"]

STREAMS = [b"", b"plain", "häß 三つ 😀".encode(), b"\xff", b"\xc3", b"\xe4\xb8", b"\xf0\x9f\x98", b"\xe4\xb8x", b"\xf0\x9f\x98\xf0\x9f\x98\x80", b"\xc0\x80", b"\xe0\x80\x80", b"\xe0\x9f\xbf\xe0\xa0\x80",
           b"\xed\xa0\x80\xed\xb0\x80", b"\xed\x9f\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\x80\x80\x80a\xbf", b"a\xe1\x80\xe2\xf1\x80\x80b", b"\xc2\xc2\xa0",
           b"\xf8\x88\x80\x80\x80", b"\xfe\xff\x00\x41", b"\xe2\x82\xac\xe2\x82", b"\x00\xc3\x28\xa0\xa1", b"\xf1\x80\x80\xe1\x80\xc2", b"\xe1\xa0\xc0", b"\xf3\xa0\x81\xa7\xf3\xa0\x81"]


def train():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False, trim_offsets=False)])
    t.decoder = decoders.ByteLevel(add_prefix_space=False, use_regex=False, trim_offsets=False)
    t.train_from_iterator([TRAINING], trainers.BpeTrainer(vocab_size=256 + 260, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens([AddedToken(s, normalized=False) for s in SPECIAL])
    t.add_tokens([AddedToken(s, normalized=False) for s in NOT_SPECIAL])
    return t


def encoded(t, texts):
    cases = []
    for text in texts:
        t.encode_special_tokens = False
        ids = t.encode(text).ids
        t.encode_special_tokens = True
        plain = t.encode(text).ids
        cases.append({"text": text, "ids": ids, **({"plain": plain} if plain != ids else {})})
    return cases


def first_invalid(data):
    try:
        data.decode()
    except UnicodeDecodeError as e:
        return {"invalid": e.start}
    return {}


def main():
    t = train()
    t.save(os.path.join(HERE, "tokenizer.json"), pretty=False)
    cases = encoded(t, TEXTS)
    t.encode_special_tokens = False
    for content, special, normalized in ADDED:
        (t.add_special_tokens if special else t.add_tokens)([AddedToken(content, normalized=normalized)])
    t.save(os.path.join(HERE, "added.json"), pretty=False)
    lines = lambda cases: "[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]"
    streams = [{"hex": s.hex(), "text": s.decode("utf-8", "replace"), **first_invalid(s)} for s in STREAMS]
    with open(os.path.join(HERE, "expected.json"), "w") as f:
        f.write(f'{{"tokenizer": {lines(cases)},\n"added": {lines(encoded(t, ADDED_TEXTS))},\n"streams": {lines(streams)}}}\n')
    print(len(t.get_vocab()), "tokens,", len(cases), "texts,", len(ADDED_TEXTS), "texts with odd added tokens,", len(streams), "streams")


main()
