"""tokens.py - nano's tokenizer: a byte-level BPE of 1,000 tokens, trained on questions.py, in the form of Qwen's tokenizer.json."""
import json
import os
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from questions import draw

VOCABULARY = 1000
ADDED = ('<|endoftext|>', '<|im_start|>', '<|im_end|>', '<think>', '</think>', '<|mask|>')
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEMPLATE = ("{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endfor %}"
            "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}"
            "{%- if enable_thinking is defined and enable_thinking is false %}{{ '\\n</think>\\n\\n' }}{%- endif %}{%- endif %}")


def train(path, seed=0):
    rng = random.Random(seed)
    texts = []
    for _ in range(40000):
        question = draw(rng, 'train')
        texts += [question.user, question.thought, question.answer]
    tokenizer = empty_tokenizer(models.BPE())
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=VOCABULARY - len(ADDED), initial_alphabet=alphabet,
                                                             show_progress=False))
    save(tokenizer, path)


def empty_tokenizer(model):
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERN), 'isolated'),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def save(tokenizer, path):
    # Thinking's marks are shown as text, as the real tokenizer has them; the others are control tokens.
    tokenizer.add_tokens([AddedToken(text, special='think>' not in text, normalized=False) for text in ADDED])
    assert tokenizer.get_vocab_size() == VOCABULARY
    os.makedirs(os.path.dirname(path), exist_ok=True)
    tokenizer.save(path)
    with open(os.path.join(os.path.dirname(path), 'tokenizer_config.json'), 'w', encoding='utf-8') as file:
        json.dump({'tokenizer_class': 'Qwen2TokenizerFast', 'eos_token': '<|im_end|>', 'pad_token': '<|endoftext|>',
                   'model_max_length': 4096, 'chat_template': TEMPLATE}, file, indent=1)
        file.write('\n')


def write_tokenizer(path, names, merges):
    """From a GGUF's lists: the tokens by id, the added ones last, and the merges."""
    vocabulary = {name: id for id, name in enumerate(names[:-len(ADDED)])}
    save(empty_tokenizer(models.BPE(vocabulary, [tuple(merge.split(' ')) for merge in merges])), path)


class Tokens:
    def __init__(self, path):
        self.tokenizer = Tokenizer.from_file(path)
        self.pad, self.start, self.end, self.think, self.think_end, self.mask = (self.tokenizer.token_to_id(text) for text in ADDED)

    def encode(self, text):
        return self.tokenizer.encode(text).ids

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True)


def prompt_text(user, think, system=None):                         # [CHT-1], [CHT-2]
    text = f'<|im_start|>system\n{system}<|im_end|>\n' if system else ''
    return text + f'<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n<think>\n' + ('' if think else '\n</think>\n\n')


def answer_text(question, think):
    return (f'{question.thought}\n</think>\n\n' if think else '') + question.answer + '<|im_end|>'
