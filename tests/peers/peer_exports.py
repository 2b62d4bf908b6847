"""peer_exports.py - what `clover convert` and `clover fix` write, and what `clover lint` says of drifted files, judged by others.

    peer_exports.py [--clover FILE] [--work DIR] [--chromium FILE] [--only NAME,…]

gguf       the public package reads every file that we write: keys, shapes, types, values
llama.cpp  its clover_moe and qwen35moe (wllama, in Chromium; peer_wllama.mjs) loads them and gives the reference's greedy tokens;
           a drifted file is refused where lint says `breaks`, and answers other tokens where lint says `garbage`

The drifts are made here, in numpy, from tests/vectors/drifts/good.gguf. Without --chromium the second half is left out.
Exit status: 0 all as it should be, 1 not.
"""
# needs: gguf==0.19.* safetensors==0.8.* tokenizers==0.23.3 numpy
import argparse
import json
import os
import shutil
import subprocess
import sys

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader, GGUFValueType, GGUFWriter, dequantize
from gguf.quants import quantize

HERE = os.path.dirname(os.path.abspath(__file__))
VECTORS = 'tests/vectors/drifts'
# ASCII, of which each byte is one token. The prompts are the three at whose first TOKENS the reference is surest: a random model has near ties, and llama.cpp rounds to float32 and, in a matrix product with a smaller
# type, to that type or to 8 bits.
TEXTS = ['Hello', 'a right export', '17 + 4 = 21; and', 'tokens', 'Norms are shifted by one.', 'x', 'Heads are tiled', 'zero, one', 'QKV', 'conv',
         'gate', 'up', 'down', 'router', 'blk.0', 'Shared', 'A_log', 'epsilon', 'row', 'mask', 'q4_0', 'bf16', 'The end', 'why?']
PROMPTS, TOKENS, LONG = 3, 8, 24                                   # greedy tokens of a prompt; of a file whose answers should differ
DIFFUSION = ('conv_right_weight', 'bd_softmax_logit_scale', 'bd_softmax_history_bias', 'bd_softmax_history_c')
HK, HV, DV, K, WIDTH, HEADS, LAYERS = 2, 4, 32, 64, 32, 2, 4      # of good.gguf
SHIFTED = ('attn_norm.weight', 'post_attention_norm.weight', 'output_norm.weight', 'attn_q_norm.weight', 'attn_k_norm.weight')


# ---- files ----------------------------------------------------------------------------------------------------------------
class File:
    """A GGUF in memory: keys {name: (value, type, element type)}, tensors {name: float32 array}."""

    def __init__(self, path):
        reader = GGUFReader(path)
        self.keys = {f.name: (f.contents(), f.types[0], f.types[-1] if len(f.types) > 1 else None)
                     for f in reader.fields.values() if not f.name.startswith('GGUF.')}
        self.tensors = {t.name: np.array(values(t)) for t in reader.tensors}
        self.stored = {t.name: t.tensor_type for t in reader.tensors}

    def of(self, end):
        return [name for name in self.tensors if name.endswith(end)]

    def each(self, end, f):
        names = self.of(end)
        assert names, end
        for name in names:
            self.tensors[name] = f(self.tensors[name]).astype(np.float32)

    def integer(self, name, value):
        self.keys[name] = (value, GGUFValueType.UINT32, None)

    def without_diffusion(self):
        self.tensors = {n: x for n, x in self.tensors.items() if not n.endswith(DIFFUSION)}
        return self

    def write(self, path, kind=Type.F32):
        writer = GGUFWriter(path, self.keys['general.architecture'][0])
        for name, (value, of, element) in self.keys.items():
            if name != 'general.architecture':
                writer.add_key_value(name, value, of, element)
        for name, x in self.tensors.items():
            x = np.ascontiguousarray(x, np.float32)
            as_f32 = x.ndim == 1 or 'conv' in name or 'ffn_gate_inp' in name or kind == Type.F32
            if as_f32:
                writer.add_tensor(name, x)
            elif kind == Type.F16:
                writer.add_tensor(name, x.astype(np.float16))
            else:
                with np.errstate(invalid='ignore'):                # one drift has a NaN
                    writer.add_tensor(name, quantize(x, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def values(tensor):
    shape = [int(n) for n in reversed(tensor.shape)]
    return dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(shape)


def plain_tokens(folder):
    """Give every byte from 128 on a text in ASCII: wllama hands no token over whose text is not UTF-8. The ids stay."""
    path = os.path.join(folder, 'tokenizer.json')
    with open(path, encoding='utf-8') as file:
        tokenizer = json.load(file)
    vocabulary = tokenizer['model']['vocab']
    tokenizer['model']['vocab'] = {text if not 128 <= i < 256 else f'w{i}_': i for text, i in vocabulary.items()}
    with open(path, 'w', encoding='utf-8') as file:
        json.dump(tokenizer, file)


# ---- drifts ---------------------------------------------------------------------------------------------------------------
TILED = [(p % HK) * (HV // HK) + p // HK for p in range(HV)]       # the grouped head at each tiled place


def grouped(x, axis=0, start=0):
    """Value heads of a tiled array back in Hugging Face's order."""
    head, rest = np.split(x, [start], axis)
    parts = np.split(rest, HV, axis)
    return np.concatenate([head] + [parts[TILED.index(h)] for h in range(HV)], axis)


def heads_grouped(f):
    for end in 'attn_gate.weight', 'ssm_alpha.weight', 'ssm_beta.weight', 'ssm_a', 'ssm_dt.bias':
        f.each(end, grouped)
    for end in 'attn_qkv.weight', 'ssm_conv1d.weight':
        f.each(end, lambda x: grouped(x, start=2 * K))
    f.each('ssm_out.weight', lambda x: grouped(x, axis=1))


def norms(f, by):
    for end in SHIFTED:
        f.each(end, lambda x: x + np.float32(by))


def one_norm(f):
    f.tensors['blk.1.attn_norm.weight'] = f.tensors['blk.1.attn_norm.weight'] - np.float32(1)


def q_gate_flat(f):
    f.each('attn_q.weight', lambda x: x.reshape(HEADS, 2, WIDTH, -1).swapaxes(0, 1).reshape(x.shape))


def gate_up_swapped(f):
    for n in range(LAYERS):
        gate, up = f'blk.{n}.ffn_gate_exps.weight', f'blk.{n}.ffn_up_exps.weight'
        f.tensors[gate], f.tensors[up] = f.tensors[up], f.tensors[gate]


def experts_moved(f):
    for end in 'ffn_gate_exps.weight', 'ffn_up_exps.weight', 'ffn_down_exps.weight':
        f.each(end, lambda x: x[[2, 0, 3, 1]])


def renamed(f, pairs):
    f.tensors = {pairs.get(name, name): x for name, x in f.tensors.items()}


def mtp(f):
    f.integer('clover_moe.block_count', 5)
    f.integer('clover_moe.nextn_predict_layers', 1)
    f.tensors['blk.4.nextn.eh_proj.weight'] = np.zeros((64, 128), np.float32)
    f.tensors['blk.4.attn_norm.weight'] = np.ones(64, np.float32)


def vision(f):
    f.tensors['v.patch_embd.weight'] = np.zeros((8, 32), np.float32)
    f.tensors['mm.0.weight'] = np.zeros(8, np.float32)


def a_nan(f):
    f.tensors['blk.2.ffn_down_exps.weight'][1, 3, 5] = np.nan


def public_case(f):
    del f.keys['clover_moe.expert_shared_count']
    f.each('ssm_a', lambda x: np.log(-x))


def drop_key(name):
    return lambda f: f.keys.pop(name)


# name: (drift, the id that lint must report or None where no value shows it, how clover fix mends it or None)
LIKE = ['--like', 'GOOD']
DRIFTS = {
    'no-shared-count': (drop_key('clover_moe.expert_shared_count'), 'key-missing', []),
    'no-rope-dims': (drop_key('clover_moe.rope.dimension_count'), 'rope-dims-missing', []),
    'three-sections': (lambda f: f.keys.update({'clover_moe.rope.dimension_sections': ([2, 1, 1], GGUFValueType.ARRAY, GGUFValueType.INT32)}),
                       'rope-sections-form', []),
    'interval': (lambda f: f.integer('clover_moe.full_attention_interval', 2), 'interval-contradicts', []),
    'no-attention': (lambda f: f.integer('clover_moe.full_attention_interval', 8), 'interval-contradicts', []),
    'taps-key': (lambda f: f.integer('clover_moe.ssm.conv_kernel', 3), 'key-contradicts', []),
    'pre': (lambda f: f.keys.update({'tokenizer.ggml.pre': ('gpt-2', GGUFValueType.STRING, None)}), 'tokenizer-pre', []),
    'no-eos': (drop_key('tokenizer.ggml.eos_token_id'), 'eos-missing', []),
    'raw-a-log': (lambda f: f.each('ssm_a', lambda x: np.log(-x)), 'a-log-raw', []),
    'a-exp-twice': (lambda f: f.each('ssm_a', lambda x: -np.exp(x)), 'a-exp-twice', []),
    'norms-plain': (lambda f: norms(f, -1), 'norm-shift-missing', []),
    'norms-twice': (lambda f: norms(f, 1), 'norm-shift-twice', []),
    'norm-mixed': (one_norm, 'norm-shift-mixed', []),
    'head-norm': (lambda f: f.each('ssm_norm.weight', lambda x: x + np.float32(1)), 'head-norm-shifted', []),
    'conv-turned': (lambda f: f.each('ssm_conv1d.weight', np.transpose), 'conv-layout', []),
    'dt-name': (lambda f: renamed(f, {f'blk.{n}.ssm_dt.bias': f'blk.{n}.ssm_dt' for n in range(3)}), 'name-form', []),
    'hf-names': (lambda f: renamed(f, {'output_norm.weight': 'model.norm.weight'}), 'name-form', []),
    'mtp': (mtp, 'mtp-bundled', []),
    'vision': (vision, 'vision-bundled', []),
    'public-case': (public_case, 'a-log-raw', []),
    'missing-tensor': (lambda f: f.tensors.pop('blk.1.ssm_norm.weight'), 'tensor-missing', LIKE),
    'nan': (a_nan, 'nan-or-inf', None),
    'zeros': (lambda f: f.each('blk.1.attn_gate.weight', np.zeros_like), 'all-zero', None),
    'heads-grouped': (heads_grouped, None, LIKE),
    'q-gate-flat': (q_gate_flat, None, LIKE),
    'conv-reversed': (lambda f: f.each('ssm_conv1d.weight', lambda x: x[:, ::-1]), None, LIKE),
    'gate-up-swapped': (gate_up_swapped, None, LIKE),
    'experts-moved': (experts_moved, None, LIKE),
}
CONVERT_TYPES = ('f32', 'f16', 'bf16', 'q8_0', 'q4_0')
# Other shapes of `clover synth`: one and three value heads a key head, other widths, a tied head, one tensor an expert.
SHAPES = {
    'three': '--seed 31 --layers 6 --interval 3 --hidden 96 --heads 6 --kv-heads 2 --head-width 32 --rotary-dims 16 --key-heads 2 '
             '--value-heads 6 --key-width 32 --value-width 32 --experts 8 --experts-used 3 --expert-width 64 --shared-width 96 --per-expert',
    'tied': '--seed 32 --layers 4 --interval 2 --hidden 128 --heads 4 --kv-heads 1 --head-width 64 --rotary-dims 64 --key-heads 4 '
            '--value-heads 4 --key-width 32 --value-width 32 --experts 4 --experts-used 2 --expert-width 32 --shared-width 32 --tied --type bf16',
}


# ---- what is done ---------------------------------------------------------------------------------------------------------
class Peer:
    def __init__(self, arguments):
        self.clover, self.work, self.chromium = arguments.clover, os.path.join(arguments.work, 'exports'), arguments.chromium
        self.types = [Type[name] for name in arguments.types.split(',')]
        self.jobs, self.wrong, self.references = [], 0, {}
        shutil.rmtree(self.work, ignore_errors=True)
        os.makedirs(self.work)

    def path(self, name):
        return os.path.join(self.work, name)

    def check(self, good, what):
        if not good:
            self.wrong += 1
            print('  wrong:', what)
        return good

    def run(self, *words, status=(0,)):
        done = subprocess.run([self.clover, *words], capture_output=True, text=True)
        if done.returncode not in status:
            self.check(False, f'clover {" ".join(words)}: exit status {done.returncode}: {done.stderr.strip()[:300]}')
        return done.stdout

    def reference(self, model, rounded=False):
        """{text: its greedy tokens}, of the prompts chosen; rounded: computed with llama.cpp's roundings."""
        if model not in self.references:
            found = []
            for text in TEXTS:
                answer = json.loads(self.run('run', model, '--ids', ','.join(map(str, text.encode())), '-n', str(LONG), '--json',
                                             '--numerics', 'llama.cpp' if rounded else 'exact'))
                if len(answer['tokens']) == LONG:                  # a stop token would end ours, not llama.cpp's
                    found.append((min(step['p'] for step in answer['steps'][:TOKENS]), text, answer['tokens']))
            assert len(found) >= PROMPTS, f'{model}: too few prompts'
            self.references[model] = {text: tokens for _, text, tokens in sorted(found)[-PROMPTS:]}
        return self.references[model]

    def load(self, name, model, expected, reference, twin=None):
        """Later, with all the others: expected is 'same', 'other', 'refused' or 'loads'; twin: the job whose tokens these must be."""
        self.jobs.append({'name': name, 'twin': twin, 'model': os.path.abspath(model), 'prompts': list(reference),
                          'tokens': TOKENS if expected == 'same' else LONG, 'expected': expected, 'reference': reference})

    # ---- convert
    def convert(self):
        folders = {'drifts-hf': self.path('hf')}
        shutil.copytree(f'{VECTORS}/hf', folders['drifts-hf'])
        for name, options in SHAPES.items():
            folders[name] = self.path(name)
            self.run('synth', '-o', folders[name], '--form', 'hf', *options.split())
        files = blocks = 0
        for name, folder in folders.items():
            plain_tokens(folder)
            for arch in 'clover_moe', 'qwen35moe':
                exact = None
                for kind in CONVERT_TYPES:
                    for reader in ('self', 'llama.cpp') if arch == 'clover_moe' else ('llama.cpp',):
                        path = self.path(f'{name}-{kind}-{arch}-{reader}.gguf')
                        self.run('convert', folder, path, '--type', kind, '--arch', arch, '--for', reader)
                        read = GGUFReader(path)
                        files += 1
                        if reader == 'self':
                            self.check(any(t.name.endswith(DIFFUSION) for t in read.tensors), f'{path}: no diffusion tensors')
                            if kind == 'f32':
                                self.load(f'convert {name} {kind} for self', path, 'refused', self.reference(folder))
                            continue
                        tensors = {t.name: t for t in read.tensors}
                        exact = exact or {n: values(t) for n, t in tensors.items()}
                        self.check(tensors.keys() == exact.keys(), f'{path}: other tensors than the f32 file')
                        self.check(read.fields['general.architecture'].contents() == arch, f'{path}: architecture')
                        blocks += self.as_the_package_rounds(path, tensors, exact, kind)
                        self.load(f'convert {name} {kind} {arch}', path, 'same', self.reference(folder) if kind == 'f32' else self.reference(path, True))
        print(f'  convert: the gguf package reads {files} files; {blocks} matrices have its bytes of their type')

    def as_the_package_rounds(self, path, tensors, exact, kind):
        wanted, n = Type[kind.upper()], 0
        for name, t in tensors.items():
            x = exact[name]
            plain = x.ndim == 1 or 'conv' in name or 'ffn_gate_inp' in name
            of = Type.F32 if plain else wanted
            if not self.check(t.tensor_type == of, f'{path}: {name} is {t.tensor_type.name}, not {of.name}'):
                continue
            data = x if of == Type.F32 else x.astype(np.float16) if of == Type.F16 else quantize(x, of)
            self.check(data.tobytes() == t.data.tobytes(), f'{path}: {name} has other bytes than the package gives')
            n += of == wanted
        return n

    # ---- lint and fix
    def good(self, kind, diffusion):
        f = File(f'{VECTORS}/good.gguf')
        texts, of, element = f.keys['tokenizer.ggml.tokens']
        f.keys['tokenizer.ggml.tokens'] = ([t if not 128 <= i < 256 else f'w{i}_' for i, t in enumerate(texts)], of, element)
        return f if diffusion else f.without_diffusion()

    def findings(self, path):
        return json.loads(self.run('lint', path, '--json', status=(0, 1)))['findings']

    def drifts(self, only):
        drifted = fixed = 0
        for kind in self.types:
            reference = self.reference(self.good(kind, False).write(self.path(f'good-{kind.name}.gguf'), kind), kind != Type.F32)
            right = File(self.path(f'good-{kind.name}.gguf'))
            right.kind = kind.name
            self.load(f'good {kind.name}', self.path(f'good-{kind.name}.gguf'), 'same', reference)
            full = self.good(kind, True).write(self.path(f'good-{kind.name}-full.gguf'), kind)
            self.load(f'good {kind.name} with diffusion', full, 'refused', reference)
            self.fixed(f'diffusion {kind.name}', full, [], right, reference)
            for name, (drift, finding, mend) in DRIFTS.items():
                if only and name not in only:
                    continue
                drifted += 1
                self.unfixed(name, kind, drift, finding, reference)
                if mend is not None:
                    fixed += 1
                    f = self.good(kind, True)
                    drift(f)
                    path = f.write(self.path(f'{name}-{kind.name}-full.gguf'), kind)
                    self.fixed(f'{name} {kind.name}', path, [full if word == 'GOOD' else word for word in mend], right, reference)
        print(f'  drifts: {drifted} drifted files, {fixed + len(self.types)} mended; the gguf package reads them, and finds the good values and keys')

    def unfixed(self, name, kind, drift, wanted, reference):
        f = self.good(kind, False)
        drift(f)
        path = f.write(self.path(f'{name}-{kind.name}.gguf'), kind)
        found = self.findings(path)
        ids = {x['id'] for x in found}
        above = {x['id'] for x in found if x['severity'] != 'note'}
        self.check(wanted in ids if wanted else not above, f'{name} {kind.name}: lint reports {sorted(ids)}')
        severities = {x['severity'] for x in found if 'llama.cpp' in x['hurts']} - {'note'}
        expected = 'refused' if 'breaks' in severities else 'other' if 'garbage' in severities or not wanted else 'loads'
        self.load(f'{name} {kind.name} unfixed ({", ".join(sorted(severities)) or "no finding above note for llama.cpp"})', path, expected, reference)

    def fixed(self, name, path, flags, right, reference):
        out, side = path.removesuffix('.gguf') + '-fixed.gguf', path.removesuffix('.gguf') + '-side.gguf'
        self.run('fix', path, out, '--for', 'llama.cpp', '--keep-diffusion', side, *flags)
        if not self.check(os.path.exists(out), f'{name}: clover fix wrote nothing'):
            return
        f = File(out)
        self.check(len(GGUFReader(side).tensors) >= 12 if os.path.exists(side) else False, f'{name}: the side file lacks the diffusion tensors')
        self.check(f.stored == right.stored, f'{name}: fixed, other tensors or types: {sorted(set(f.stored.items()) ^ set(right.stored.items()))[:4]}')
        for key, value in right.keys.items():
            self.check(f.keys.get(key) == value, f'{name}: fixed, {key} is {f.keys.get(key)}')
        for tensor, x in right.tensors.items():
            y = f.tensors.get(tensor)
            # exp(log x), (x + 1) - 1 and the like round once in float32 each way; what the type stores moves whole.
            self.check(y is not None and y.shape == x.shape and np.allclose(x, y, rtol=3e-6, atol=3e-7, equal_nan=True),
                       f'{name}: fixed, {tensor} has other values')
        self.check(not [x for x in self.findings(out) if x['severity'] != 'note'], f'{name}: fixed, lint finds more')
        self.load(f'{name} fixed', out, 'same', reference, f'good {right.kind}')

    # ---- the browser
    def browse(self):
        path = self.path('jobs.json')
        with open(path, 'w') as file:
            json.dump([{k: job[k] for k in ('name', 'model', 'prompts', 'tokens')} for job in self.jobs], file)
        with open(self.path('results.jsonl'), 'w') as file:
            subprocess.run(['node', os.path.join(HERE, 'peer_wllama.mjs'), 'build/peers/browser', path], stdout=file,
                           env=os.environ | {'CHROMIUM': self.chromium})
        with open(self.path('results.jsonl')) as file:
            results = [json.loads(line) for line in file]
        if not self.check(len(results) == len(self.jobs), f'the browser answered {len(results)} of {len(self.jobs)} jobs'):
            return
        kinds, self.answers = {}, {result['name']: result.get('tokens') for result in results}
        for job, result in zip(self.jobs, results):
            self.judge(job, result, kinds.setdefault(job['expected'], [0, 0, 0, 0]))
        told = {'same': 'files that are right', 'other': 'files with garbage (a finding, or one that only compare sees)',
                'refused': 'files that a finding says are refused', 'loads': 'files with a finding that is no garbage'}
        for expected, (files, right, equal, of) in kinds.items():
            print(f'  llama.cpp, {told[expected]}: {right} of {files} as said' + (f'; {equal} of {of} tokens are the reference\'s' if of else ''))

    def judge(self, job, result, count):
        count[0] += 1
        name, expected = job['name'], job['expected']
        if 'failed' in result or (expected == 'refused') != ('refused' in result):
            self.check(False, f'{name}: {result}')
            return
        if expected == 'refused':
            print(f'    {name}: refused: {result["refused"]}')
            count[1] += 1
            return
        pairs = [(a, b) for ours, its in zip(job['reference'].values(), result['tokens']) for a, b in zip(ours, its)]
        equal, of = sum(a == b for a, b in pairs), job['tokens'] * PROMPTS
        count[2] += equal
        count[3] += of
        if expected != 'same':
            print(f'    {name}: {equal} of {of} tokens equal')
        blocks = 'q8_0' in name.lower() or 'q4_0' in name.lower()    # llama.cpp rounds the activations, too: one prompt may part
        whole = sum(ours[:TOKENS] == its for ours, its in zip(job['reference'].values(), result['tokens']))
        good = {'same': whole >= PROMPTS - blocks, 'other': equal < of, 'loads': True}[expected]
        if job['twin']:
            self.check(result['tokens'] == self.answers[job['twin']], f'{name}: other tokens than llama.cpp gives for the good file')
        count[1] += self.check(good and len(pairs) == of, f'{name}: {equal} of {of} tokens are the reference\'s')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--clover', default='build/clover')
    parser.add_argument('--work', default='build/peers/work')
    parser.add_argument('--chromium', help='where llama.cpp runs')
    parser.add_argument('--only', help='drifts of these names')
    parser.add_argument('--types', default='F32,BF16,Q8_0,Q4_0', help='of the drifted files')
    arguments = parser.parse_args()
    peer = Peer(arguments)
    peer.convert()
    peer.drifts(arguments.only.split(',') if arguments.only else None)
    if arguments.chromium:
        peer.browse()
    print('exports: ' + ('agree' if peer.wrong == 0 else f'{peer.wrong} wrong'))
    return peer.wrong != 0


if __name__ == '__main__':
    sys.exit(main())
