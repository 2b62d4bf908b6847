#!/usr/bin/env python3
# needs: torch==2.13.0 safetensors==0.8.* numpy tokenizers==0.23.3 gguf==0.19.*
"""peer_twin.py - compare `clover logits` and `clover run` with the twin, a model in PyTorch written from SPEC.md alone.

    peer_twin.py --clover build/clover --work build/peers/work [--nano FOLDER] [--seed N] [--only NAME]

1. Every probe and logit of commit, then and preview on random models of `clover synth`, in float64 and in float32.
2. `clover run --json` in the three modes with random settings, token for token and step for step (float64).
3. The twin's training form against its plain form, and its writer: a saved model is the model that was loaded.
4. --nano: the trained model's Hugging Face folder, the same way, on prompts of its chat.

How numbers are compared, random settings and most shapes are peer_numpy.py's; where float64 alone cannot decide,
numpy_model.py in the 80-bit type does. Prints a line a model and one summary; exit status 0 agrees, 1 does not.
"""
import argparse
import functools
import json
import os
import random
import shlex
import shutil
import sys

import numpy as np
import torch

import peer_numpy
from numpy_model import Model, read_safetensors
from peer_numpy import SHAPES, Worst, call, compare_step, fail, flatten, listed, random_run, same, undecided, write_generation

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tools/python'))
from twin.batched import Block, forward
from twin.decode import Decoder
from twin.files import load, save

# Of peer_numpy.py's shapes, with other seeds; and one of nano's own sizes.
CHOSEN = ('three', 'taps2', 'recurrent', 'seven', 'odd', 'tied', 'names', 'half', 'attention')
NANO = '''nano-like --layers 6 --interval 3 --hidden 128 --heads 4 --kv-heads 2 --head-width 64 --rotary-dims 16 --rope-base 10000 --key-heads 2
          --value-heads 4 --key-width 32 --value-width 32 --experts 8 --experts-used 2 --expert-width 96 --shared-width 128'''

PREVIEW_ROWS = (1, 8, 32, 40)
CORESETS = (None, 0.5, 0.9)
RUNS_A_MODEL = 9
# Float32 against exact, relative to an array's largest value. Seen: 4e-5, since these models amplify rounding up to a thousandfold
# and float32's unit is 6e-8. An expert chosen otherwise ends a step's comparison.
FLOAT32 = 4e-4


def arrays(probes):
    return {name: value.numpy().astype(np.int64 if not value.is_floating_point() and 'coreset' not in name else np.float64)
            for name, value in probes.items()}


class View:
    """What peer_numpy.py's helpers ask of a model: sizes and settings; `decoder` makes ours from its settings."""

    def __init__(self, folder, dtype=torch.float64):
        self.twin = load(folder, dtype)
        c = self.twin.config
        self.V, self.mask, self.block, self.top_p = c.vocab_size, c.mask_id, c.block_size, c.coreset_top_p

    def decoder(self, settings, stops):
        return Decoder(self.twin, stops=stops, **settings)

    def steps(self, ids, then, block, top_p):
        probes = {'commit': {}, 'then': {}, 'preview': {}}
        _, state = self.twin.commit(ids, self.twin.empty_state(), probes['commit'])
        _, state = self.twin.commit(then, state, probes['then'])
        self.twin.preview(block, state, top_p, probes['preview'])
        return {step: arrays(values) for step, values in probes.items()}


def compare_float32(path, probes, worst, what):
    theirs = read_safetensors(path)
    for name in probes:                                             # in the order of computation
        expected, ours = theirs[name], probes[name]
        if name.endswith(('moe.ids', 'moe.coreset')):
            if ours.shape != expected.shape or (np.sort(ours, -1) != np.sort(expected, -1)).any():
                return 0                                            # a near tie: what follows has other experts
            continue
        if name.endswith('moe.weights') and ours.shape == expected.shape:
            ours, expected = np.sort(ours, -1), np.sort(expected, -1)
        scale = max(float(np.abs(expected).max()), 1e-30)
        off = float(np.abs(ours - expected).max()) / scale if ours.shape == expected.shape else np.inf
        if off > worst.relative:
            worst.relative, worst.where = off, name
        worst.count += ours.size
        if not off <= FLOAT32:
            fail(f'{what}: {name} is off by {off:.1e} of its largest value in float32')
            return 0
    return 1


def compare_probes(clover, name, folder, view, single, work, rng, worst, rough, seen):
    out = os.path.join(work, 'steps')
    for n in PREVIEW_ROWS:
        for top_p in CORESETS:
            ids = [rng.randrange(view.V) for _ in range(rng.choice((1, 2, 3, 7, 18)))]
            then = [rng.randrange(view.V) for _ in range(rng.choice((1, 2, 5)))]
            block = [view.mask if rng.random() < 0.7 else rng.randrange(view.V) for _ in range(n)]
            arguments = ['logits', folder, '--ids', listed(ids), '--then', listed(then), '--preview', listed(block),
                         '--probes', '*', '--coreset-top-p', 'off' if top_p is None else str(top_p), '-o', out]
            if call(clover, arguments) is None:
                continue

            def three_steps():
                model = Model(folder, np.longdouble)
                _, commit, state = model.commit(ids, model.empty_state())
                _, after, state = model.commit(then, state)
                return {'commit': commit, 'then': after, 'preview': model.preview(block, state, top_p)[1]}
            precise = functools.lru_cache(three_steps)
            exact, float32 = view.steps(ids, then, block, top_p), single.steps(ids, then, block, top_p)
            for step in exact:
                path, what = os.path.join(out, step + '.safetensors'), f'{name} {step}: {shlex.join([clover] + arguments)}'
                seen['by rounding'] += compare_step(path, exact[step], worst, what, lambda: precise()[step])
                seen['float32'] += compare_float32(path, float32[step], rough, what)
                seen['steps'] += 1


def compare_runs(clover, name, folder, view, prompts, rng, worst, seen):
    stops = view.twin.config.stop_ids
    for number, prompt in enumerate(prompts):
        mode = ('denoise', 'draft', 'ar')[number % 3]
        budget = rng.choice((1, 2, 7, 20, 40, 60))
        arguments, settings = random_run(rng, view, mode)
        command = ['run', folder, '--ids', listed(prompt), '--mode', mode, '-n', str(budget), '--json'] + arguments
        text = call(clover, command)
        if text is None:
            continue
        theirs = json.loads(text)
        decoder = view.decoder(settings, stops)
        tokens, steps = getattr(decoder, mode)(prompt, budget)
        seen['runs'] += 1
        seen['tokens'] += len(tokens)
        shown = shlex.join([clover] + command)
        for i, (ours, other) in enumerate(zip(steps, theirs['steps'])):
            if not same(ours, other, worst, ours['step']):
                if undecided(ours, other, decoder.threshold):
                    seen['undecided'] += 1
                    print(f'  undecided by rounding: {name}, rows {ours["fixed"]} and {other["fixed"]} of step {i}: {shown}')
                else:
                    fail(f'{name} step {i}, {ours} and {other}: {shown}')
                break
        else:
            if tokens != theirs['tokens'] or len(steps) != len(theirs['steps']):
                fail(f'{name} {len(steps)} and {len(theirs["steps"])} steps, tokens {tokens} and {theirs["tokens"]}: {shown}')


def compare_forms(name, twin, work, worst):
    """The batched form against the plain one; then a saved and loaded model, tensor by tensor."""
    torch.manual_seed(0)
    V = twin.config.vocab_size
    ids = torch.randint(0, V, (3, 19))
    blocks = [Block(torch.randint(0, V, (3, 8)), torch.tensor([0, 5, 19])), Block(torch.randint(0, V, (3, 32)), torch.tensor([2, 1, 13]), 0.6)]
    with torch.no_grad():
        first, others, _ = forward(twin, ids, blocks)
        for i in range(len(ids)):
            plain, _ = twin.commit(ids[i], twin.empty_state())
            pairs = [(twin.head(first[i]), plain)]
            for block, rows in zip(blocks, others):
                _, state = twin.commit(ids[i, :int(block.start[i])], twin.empty_state()) if block.start[i] else (None, twin.empty_state())
                pairs.append((twin.head(rows[i]), twin.preview(block.ids[i], state, block.top_p)))
            for ours, expected in pairs:
                off = float((ours - expected).abs().max() / expected.abs().max())
                worst.absolute = max(worst.absolute, off)
                if not off < 1e-8:
                    fail(f'{name}: the batched form is off by {off:.1e}')
    folder = os.path.join(work, 'saved')
    save(twin, folder, torch.float32, eos=twin.config.stop_ids)
    again = load(folder).state_dict()
    for key, value in twin.state_dict().items():
        if not torch.equal(again[key], value):
            fail(f'{name}: {key} is another after saving')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--clover', default='build/clover')
    parser.add_argument('--work', default='build/peers/work')
    parser.add_argument('--nano')
    parser.add_argument('--only')
    parser.add_argument('--seed', type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    work = os.path.join(options.work, 'twin')
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    probes, rough, runs, forms, models = Worst(), Worst(), Worst(), Worst(), 0
    seen = dict.fromkeys(('steps', 'float32', 'by rounding', 'runs', 'tokens', 'undecided'), 0)
    for number, line in enumerate([line for line in SHAPES if line.split()[0] in CHOSEN] + [NANO]):
        name, *synth = line.split()
        if options.only and name != options.only:
            continue
        rng = random.Random(1000 * options.seed + 500 + number)
        folder = os.path.join(work, name)
        if '--vocab' not in synth:
            synth += ['--vocab', '262']
        if call(options.clover, ['synth', '-o', folder, '--form', 'hf', '--seed', str(100 * options.seed + 51 + number)] + synth) is None:
            continue
        here, before = Worst(), len(peer_numpy.failures)
        view = View(folder)
        compare_probes(options.clover, name, folder, view, View(folder, torch.float32), work, rng, here, rough, seen)
        compare_forms(name, view.twin, work, forms)
        flatten(folder, folder + '-flat')
        write_generation(folder + '-flat', Model(folder + '-flat'), rng)
        prompts = [[rng.randrange(view.V) for _ in range(rng.choice((1, 2, 3, 5, 9)))] for _ in range(RUNS_A_MODEL)]
        compare_runs(options.clover, name, folder + '-flat', View(folder + '-flat'), prompts, rng, runs, seen)
        models += 1
        print(f'{name}: {here.count} numbers, worst absolute {here.absolute:.1e}, relative {here.relative:.1e} ({here.where})'
              f'{"" if len(peer_numpy.failures) == before else ", DIFFERS"}', flush=True)
        probes.count += here.count
        probes.absolute = max(probes.absolute, here.absolute)
        if here.relative > probes.relative:
            probes.relative, probes.where = here.relative, f'{name} {here.where}'
    if options.nano and not options.only:
        models += 1
        compare_nano(options, work, rough, runs, seen, probes)
    print(f'twin: {models} models, {seen["steps"]} steps, {probes.count} numbers, float64 worst absolute {probes.absolute:.1e}, relative '
          f'{probes.relative:.1e} ({probes.where}), {seen["by rounding"]} arrays beyond the bounds by rounding alone; float32 {seen["float32"]} '
          f'whole steps, worst {rough.relative:.1e} of an array\'s largest ({rough.where}); {seen["runs"]} runs, {seen["tokens"]} tokens '
          f'({seen["undecided"]} undecided by rounding); batched form off by {forms.absolute:.1e}; {len(peer_numpy.failures)} differences')
    return 1 if peer_numpy.failures or models == 0 or seen['undecided'] > seen['runs'] // 20 else 0


def compare_nano(options, work, rough, runs, seen, probes):
    rng, folder = random.Random(7), options.nano
    view = View(folder)
    here = Worst()
    compare_probes(options.clover, 'nano', folder, view, View(folder, torch.float32), work, rng, here, rough, seen)
    prompts = []
    for question in ('What is the capital of Australia?', 'What is 17 + 5?', 'List the capitals of France, Japan, Peru, Kenya and Norway.'):
        for think in ('--think', '--no-think'):
            text = call(options.clover, ['run', folder, '--chat', question, think, '-n', '1', '--json'])
            prompts += [json.loads(text)['prompt']] * 3 if text else []
    compare_runs(options.clover, 'nano', folder, view, prompts, rng, runs, seen)
    print(f'nano: {here.count} numbers, worst absolute {here.absolute:.1e}, relative {here.relative:.1e} ({here.where})', flush=True)
    probes.count += here.count


if __name__ == '__main__':
    sys.exit(main())
