#!/usr/bin/env python3
# needs: numpy
"""peer_numpy.py - compare `clover logits` and `clover run` with numpy_model.py, a float64 model from the same facts.

    peer_numpy.py --clover build/clover --work build/peers/work [--vectors DIR] [--only NAME]

1. numpy_model.py itself against DIR/tiny-a (every step and trace), where --vectors names it.
2. Every probe and logit of commit, then and preview on random models of `clover synth`, several n and coreset bounds.
3. `clover run --json` in the three modes, token for token and step for step.

Prints a line a model and one summary; exit status 0 agrees, 1 does not. A difference is printed with the command that shows it.
"""
import argparse
import functools
import json
import math
import os
import random
import shlex
import shutil
import subprocess
import sys

import numpy as np

from numpy_model import NEUTRAL, Decoder, Model, read_safetensors, stop_ids, write_safetensors

RELATIVE, ABSOLUTE = 1e-9, 1e-12

# A name, then options of `clover synth`. Among them: 1 to 8 query heads; widths 6 to 40, odd multiples, odd GDN widths; dk < dv
# and dk > dv; one to four value heads a key head; taps 2 to 5; intervals 1 (no GDN), 2, 3, 5, and 9 (no attention); 3 to 20
# experts, 1 to all of them chosen.
SHAPES = '''
single    --layers 2 --interval 1 --hidden 24 --heads 1 --kv-heads 1 --head-width 8 --rotary-dims 8 --experts 3
          --experts-used 1 --expert-width 8 --shared-width 20 --block 4
three     --layers 4 --interval 2 --hidden 40 --heads 3 --kv-heads 1 --head-width 12 --rotary-dims 6 --key-heads 1
          --value-heads 3 --key-width 6 --value-width 10 --taps 3 --experts 5 --experts-used 3 --expert-width 24
          --shared-width 16 --block 16
taps2     --layers 3 --interval 3 --hidden 32 --heads 4 --kv-heads 4 --head-width 16 --rotary-dims 2 --key-heads 2
          --value-heads 2 --key-width 12 --value-width 8 --taps 2 --experts 6 --experts-used 2 --expert-width 16
          --shared-width 40 --block 8 --coreset-top-p 0.5
recurrent --layers 3 --interval 9 --hidden 28 --key-heads 3 --value-heads 3 --key-width 10 --value-width 14 --taps 5
          --experts 7 --experts-used 6 --expert-width 12 --shared-width 12 --block 32
fourfold  --layers 5 --interval 5 --hidden 48 --heads 8 --kv-heads 2 --head-width 24 --rotary-dims 12 --key-heads 2
          --value-heads 8 --key-width 8 --value-width 8 --taps 4 --experts 20 --experts-used 6 --expert-width 20
          --shared-width 28 --block 48
wide      --layers 3 --interval 3 --hidden 36 --heads 5 --kv-heads 5 --head-width 40 --rotary-dims 20 --key-heads 1
          --value-heads 4 --key-width 24 --value-width 6 --taps 3 --experts 9 --experts-used 4 --expert-width 32
          --shared-width 8 --vocab 301
slow      --layers 4 --interval 2 --hidden 52 --heads 6 --kv-heads 3 --head-width 20 --rotary-dims 10 --rope-base 100
          --key-heads 2 --value-heads 6 --key-width 16 --value-width 12 --taps 5 --experts 12 --experts-used 5
          --expert-width 16 --shared-width 24 --block 16 --threshold 0.5
seven     --layers 3 --interval 2 --hidden 30 --heads 7 --kv-heads 1 --head-width 10 --rotary-dims 4 --key-heads 5
          --value-heads 5 --key-width 7 --value-width 9 --taps 4 --experts 4 --experts-used 4 --expert-width 10
          --shared-width 14 --block 32 --coreset-top-p 0.9
odd       --layers 6 --interval 3 --hidden 33 --heads 2 --kv-heads 1 --head-width 14 --rotary-dims 14 --key-heads 3
          --value-heads 12 --key-width 5 --value-width 11 --taps 2 --experts 11 --experts-used 1 --expert-width 9
          --shared-width 13 --block 8 --vocab 263
tied      --layers 4 --hidden 44 --heads 4 --kv-heads 2 --head-width 16 --rotary-dims 4 --tied --experts 3
          --experts-used 3 --expert-width 24 --shared-width 12 --block 4
names     --layers 3 --interval 3 --hidden 32 --heads 6 --kv-heads 2 --head-width 12 --rotary-dims 12 --key-heads 1
          --value-heads 1 --key-width 20 --value-width 20 --taps 3 --experts 8 --experts-used 2 --per-expert
          --nested-config --prefix-language-model --split-size 64K --block 16
half      --layers 4 --interval 2 --hidden 64 --type bf16 --heads 8 --kv-heads 8 --head-width 8 --rotary-dims 4
          --key-heads 4 --value-heads 4 --key-width 8 --value-width 16 --taps 4 --experts 16 --experts-used 6
          --expert-width 8 --shared-width 32 --block 48 --vocab 512
deep      --layers 10 --interval 5 --hidden 20 --heads 3 --kv-heads 3 --head-width 18 --rotary-dims 6 --key-heads 2
          --value-heads 4 --key-width 9 --value-width 7 --taps 5 --experts 6 --experts-used 5 --expert-width 6
          --shared-width 6 --block 32
attention --layers 3 --interval 1 --hidden 56 --type f16 --heads 8 --kv-heads 4 --head-width 6 --rotary-dims 2
          --experts 10 --experts-used 2 --expert-width 14 --shared-width 30 --block 16 --coreset-top-p 0.2
'''.strip().replace('\n ', ' ').splitlines()

PREVIEW_ROWS = (1, 3, 8, 32, 40)
CORESETS = (None, 0.2, 0.5, 0.9)
RUNS_A_MODEL = 9


class Worst:
    """The largest differences so far, and how many numbers were compared."""

    def __init__(self):
        self.absolute, self.relative, self.count, self.where = 0.0, 0.0, 0, ''

    def take(self, ours, theirs, where):
        """True when every number is within the bounds. The relative difference counts where the absolute bound is exceeded,
        and otherwise against the array's largest value."""
        a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
        if a.shape != b.shape or not np.all(np.isfinite(a)):
            return False
        if a.size == 0:
            return True
        difference = np.abs(a - b)
        self.count += a.size
        relative = float(np.max(difference)) / max(float(np.max(np.abs(b))), 1e-300) if np.max(difference) > 0 else 0.0
        if relative > self.relative:
            self.relative, self.where = relative, where
        self.absolute = max(self.absolute, float(np.max(difference)))
        return bool(np.all(difference <= ABSOLUTE + RELATIVE * np.abs(b)))


failures = []


def fail(message):
    failures.append(message)
    print('  DIFFERS ' + message)


def call(clover, arguments):
    done = subprocess.run([clover] + arguments, capture_output=True, text=True)
    if done.returncode != 0:
        fail(f'exit status {done.returncode}: {clover} {shlex.join(arguments)}\n    {done.stderr.strip()}')
        return None
    return done.stdout


def listed(ids):
    return ','.join(map(str, ids))


# ---- probes ---------------------------------------------------------------------------------------------------------


def compare_step(path, probes, worst, what, precise=None):
    """Every probe of a step. precise() gives the same step in more than double precision: beyond the bounds, the file's numbers
    may be four times as far from those as ours are, because a model can amplify rounding more than the bounds allow.
    Returns the number of arrays that needed that."""
    theirs, by_rounding = read_safetensors(path), 0
    if set(theirs) != set(probes):
        fail(f'{what}: probes {sorted(set(theirs) ^ set(probes))} on one side only')
        return 0
    for name, expected in theirs.items():
        ours = probes[name]
        if worst.take(ours, expected, name):
            continue
        if ours.shape != expected.shape:
            fail(f'{what}: {name} {ours.shape} and {expected.shape}')
            break
        if precise is None:
            fail(f'{what}: {name} differs by {np.max(np.abs(ours - expected)):.1e}')
            break
        true = precise()[name]
        cost, distance = float(np.max(np.abs(ours - true))), float(np.max(np.abs(expected - true)))
        if not distance <= 4 * cost:
            fail(f'{what}: {name} differs by {np.max(np.abs(ours - expected)):.1e}; clover is {distance:.1e}, numpy {cost:.1e} '
                 'from the precise value')
            break
        by_rounding += 1
    return by_rounding


def compare_probes(clover, name, folder, model, work, rng, worst, seen):
    out = os.path.join(work, 'steps')
    for n in PREVIEW_ROWS:
        for top_p in CORESETS:
            ids = [rng.randrange(model.V) for _ in range(rng.choice((1, 2, 3, 7, 18)))]
            then = [rng.randrange(model.V) for _ in range(rng.choice((1, 2, 5)))]
            block = [model.mask if rng.random() < 0.7 else rng.randrange(model.V) for _ in range(n)]
            arguments = ['logits', folder, '--ids', listed(ids), '--then', listed(then), '--preview', listed(block),
                         '--probes', '*', '--coreset-top-p', 'off' if top_p is None else str(top_p), '-o', out]
            if call(clover, arguments) is None:
                continue

            def three_steps(model):
                _, commit, state = model.commit(ids, model.empty_state())
                _, then_probes, state = model.commit(then, state)
                return {'commit': commit, 'then': then_probes, 'preview': model.preview(block, state, top_p)[1]}
            precise = functools.lru_cache(lambda: three_steps(Model(folder, np.longdouble)))
            for step, probes in three_steps(model).items():
                seen['by rounding'] += compare_step(os.path.join(out, step + '.safetensors'), probes, worst,
                                                    f'{name} {step}: {shlex.join([clover] + arguments)}', lambda: precise()[step])
                seen['forwards'] += 1


# ---- decode runs ----------------------------------------------------------------------------------------------------


def same(ours, theirs, worst, where):
    if isinstance(ours, dict):
        return (isinstance(theirs, dict) and set(ours) == set(theirs) and
                all(same(ours[k], theirs[k], worst, f'{where}.{k}') for k in ours))
    if isinstance(ours, list):
        return (isinstance(theirs, list) and len(ours) == len(theirs) and
                all(same(a, b, worst, where) for a, b in zip(ours, theirs)))
    if isinstance(ours, float):
        return isinstance(theirs, (int, float)) and worst.take([ours], [theirs], where)
    return type(ours) is type(theirs) and ours == theirs


def random_controls(rng, model):
    if rng.random() < 0.4:
        return {}
    controls = {}
    if rng.random() < 0.6:
        controls.update(presence_penalty=rng.choice((0.3, 2.0, -0.5)), frequency_penalty=rng.choice((0.0, 0.2, 1.5)),
                        repetition_penalty=rng.choice((1.0, 1.1, 2.0, 0.8)))
    if rng.random() < 0.5:
        controls.update(dllm_length_penalty=rng.choice((6.0, 40.0, -3.0)), dllm_length_penalty_start=rng.choice((0, 3, 12)),
                        dllm_length_penalty_window=rng.choice((1, 20, 40)))
    if rng.random() < 0.5:
        controls.update(dllm_think_end_bias=rng.choice((5.0, 60.0)), dllm_think_end_start=rng.choice((0, 4, 9)),
                        dllm_think_end_window=rng.choice((1, 10, 40)), dllm_think_end_token_id=rng.choice((260, 5, model.V - 1)))
        if controls['dllm_think_end_token_id'] == model.mask:
            controls['dllm_think_end_token_id'] = 260
    return controls


def random_run(rng, model, mode):
    """Arguments of `clover run`, and the same as the decoder's settings."""
    arguments, settings = [], {'controls': random_controls(rng, model), 'top_p': model.top_p}
    block = model.block
    if mode != 'ar' and rng.random() < 0.5:
        block = settings['block'] = rng.choice((4, 8, 10, 16, 24, 32, 48))
        arguments += ['--block', str(block)]
    if mode != 'ar' and rng.random() < 0.5:
        top_p = settings['top_p'] = rng.choice(CORESETS)
        arguments += ['--coreset-top-p', 'off' if top_p is None else str(top_p)]
    if mode == 'denoise' and rng.random() < 0.7:
        settings['threshold'] = rng.choice((0.0, 0.05, 0.3, 0.6, 0.9, 1.0))
        arguments += ['--threshold', str(settings['threshold'])]
    if mode == 'draft':
        if rng.random() < 0.5:
            settings['width'] = rng.choice([w for w in range(1, block + 1) if block % w == 0])
            arguments += ['--width', str(settings['width'])]
        rule = rng.choice(('', 'exact', '1e-18,1e9', '0,0', '0.02,3', '0.9,5'))
        if rule == 'exact':
            settings['exact'] = True
        elif rule:
            settings['ratio'], settings['delta'] = map(float, rule.split(','))
        arguments += ['--accept', rule] if rule else []
    for name, value in settings['controls'].items():
        arguments += [f'--{name.replace("_", "-")}={value}']
    return arguments, settings


def flatten(folder, flat):
    """The same model with its head divided by 16, so that accept rules accept and thresholds are met late."""
    shutil.copytree(folder, flat)
    for file in os.listdir(flat):
        if file.endswith('.safetensors'):
            path = os.path.join(flat, file)
            tensors = read_safetensors(path)
            write_safetensors(path, {name: (values / 16 if name == 'lm_head.weight' else values).astype(np.float32)
                                     for name, values in tensors.items()})


def write_generation(folder, model, rng):
    """Stop ids that answers of this model hold, spread over the three keys; and in half of the files some controls."""
    prompt = [rng.randrange(256) for _ in range(4)]
    free = Decoder(model, [], top_p=model.top_p, threshold=0.3)
    seen = free.ar(prompt, 24)[0][6:] + free.denoise(prompt, model.block)[0][2:]
    chosen = rng.sample(sorted(set(seen)), 3) if len(set(seen)) >= 3 else sorted(set(seen)) * 3
    generation = {'eos_token_id': [258, chosen[0]], 'stop_token_ids': [chosen[1]], 'pad_token_id': chosen[2]}
    if rng.random() < 0.5:
        generation.update(presence_penalty=0.25, repetition_penalty=1.05, dllm_length_penalty=2.0, dllm_length_penalty_start=2,
                          dllm_length_penalty_window=30)
    with open(os.path.join(folder, 'generation_config.json'), 'w', encoding='utf-8') as file:
        json.dump(generation, file)


def undecided(ours, theirs, threshold):
    """The same candidates in a pass, and the rows fixed by one side only had a probability that rounding can move over the
    threshold or past the row that the other side chose: saturated rows, whose p is 1 less a few units in the last place."""
    if ours['step'] != 'pass' or not same(ours['candidates'], theirs.get('candidates'), Worst(), ''):
        return False
    p = {row: p for row, _, p in ours['candidates']}
    rows = set(ours['fixed']) ^ set(theirs['fixed'])
    at_threshold = all(abs(p[row] - threshold) < ABSOLUTE for row in rows)
    one_each = len(ours['fixed']) == len(theirs['fixed']) == 1 and abs(p[ours['fixed'][0]] - p[theirs['fixed'][0]]) < ABSOLUTE
    return bool(rows) and (at_threshold or one_each)


def compare_runs(clover, name, folder, model, count, rng, worst, seen):
    stops = stop_ids(model.generation, model.config)
    in_file = {key: value for key, value in model.generation.items() if key in NEUTRAL}
    for number in range(count):
        mode = ('denoise', 'draft', 'ar')[number % 3]
        prompt = [rng.randrange(model.V) for _ in range(rng.choice((1, 2, 3, 5, 9)))]
        budget = rng.choice((1, 2, 7, 20, 40, 60))
        arguments, settings = random_run(rng, model, mode)
        command = ['run', folder, '--ids', listed(prompt), '--mode', mode, '-n', str(budget), '--json'] + arguments
        text = call(clover, command)
        if text is None:
            continue
        theirs = json.loads(text)
        settings['controls'] = {**in_file, **settings['controls']}
        decoder = Decoder(model, stops, **settings)
        tokens, steps = getattr(decoder, mode)(prompt, budget)
        seen['runs'] += 1
        seen['steps'] += len(steps)
        seen['tokens'] += len(tokens)
        seen['stopped'] += tokens[-1] in stops
        seen['accepted'] += sum(step.get('accepted', 0) for step in steps)
        seen['together'] += sum(len(step.get('fixed', [])) > 1 for step in steps)
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


# ---- the vectors ----------------------------------------------------------------------------------------------------

OPTION_NAMES = {'thr': 'threshold', 'coreset_top_p': 'top_p'}


def check_vectors(vectors):
    """numpy_model.py against numbers of a third float64 model."""
    base = os.path.join(vectors, 'tiny-a')
    worst, steps = Worst(), 0
    models = {name: Model(os.path.join(base, name)) for name in ('hf', 'hf-flat') if os.path.isdir(os.path.join(base, name))}
    model, state, after = models['hf'], models['hf'].empty_state(), None
    for step in ('causal', 'causal_continued', 'preview_full', 'preview_8rows', 'preview_1row', 'preview_coreset',
                 'preview_empty_prefix'):
        path = os.path.join(base, 'expected-hf', step + '.safetensors')
        ids = read_safetensors(path)['ids'].tolist()
        if step == 'causal':
            _, probes, after = model.commit(ids, state)
        elif step == 'causal_continued':
            _, probes, _ = model.commit(ids, after)
        else:
            prefix = state if step == 'preview_empty_prefix' else after
            _, probes = model.preview(ids, prefix, 0.5 if step == 'preview_coreset' else None)
        kept = read_safetensors(path)
        compare_step(path, {name: probes[name] for name in probes if name in kept}, worst, f'vectors {step}')
        steps += 1
    with open(os.path.join(base, 'traces.json'), encoding='utf-8') as file:
        traces = json.load(file)
    runs = 0
    for case in traces['cases']:
        if case['model'] not in models:
            continue
        settings = {OPTION_NAMES.get(key, key): value for key, value in case['options'].items()}
        decoder = Decoder(models[case['model']], traces['stop'], case['controls'], **settings)
        tokens, trace = getattr(decoder, case['mode'])(case['prompt'], case['max_tokens'])
        if tokens != case['tokens'] or not same(trace, case['steps'], worst, case['name']):
            fail(f'vectors trace {case["name"]}')
        runs += 1
    print(f'numpy_model on the vectors: {steps} steps, {runs} runs, {worst.count} numbers, '
          f'worst absolute {worst.absolute:.1e}, relative {worst.relative:.1e} ({worst.where})')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--clover', default='build/clover')
    parser.add_argument('--work', default='build/peers/work')
    parser.add_argument('--vectors')
    parser.add_argument('--only')
    parser.add_argument('--seed', type=int, default=0)
    options = parser.parse_args()
    work = os.path.join(options.work, 'numpy')
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    if options.vectors:
        check_vectors(options.vectors)
    probes, runs, models = Worst(), Worst(), 0
    seen = dict.fromkeys(('forwards', 'by rounding', 'runs', 'steps', 'tokens', 'stopped', 'accepted', 'together', 'undecided'), 0)
    for number, line in enumerate(SHAPES):
        name, *synth = line.split()
        if options.only and name != options.only:
            continue
        rng = random.Random(1000 * options.seed + number)
        folder = os.path.join(work, name)
        if '--vocab' not in synth:
            synth += ['--vocab', '262']
        synth = ['synth', '-o', folder, '--form', 'hf', '--seed', str(100 * options.seed + number + 1)] + synth
        if call(options.clover, synth) is None:
            continue
        model = Model(folder)
        here, failed = Worst(), len(failures)
        compare_probes(options.clover, name, folder, model, work, rng, here, seen)
        compare_runs(options.clover, name, folder, model, 3, rng, runs, seen)
        flatten(folder, folder + '-flat')
        flat = Model(folder + '-flat')
        write_generation(folder + '-flat', flat, rng)
        compare_runs(options.clover, name, folder + '-flat', Model(folder + '-flat'), RUNS_A_MODEL - 3, rng, runs, seen)
        models += 1
        print(f'{name}: {here.count} numbers, worst absolute {here.absolute:.1e}, relative {here.relative:.1e} ({here.where})'
              f'{"" if len(failures) == failed else ", DIFFERS"}', flush=True)
        probes.count += here.count
        probes.absolute = max(probes.absolute, here.absolute)
        if here.relative > probes.relative:
            probes.relative, probes.where = here.relative, f'{name} {here.where}'
    print(f'numpy: {models} models, {seen["forwards"]} steps, {probes.count} numbers, worst absolute {probes.absolute:.1e}, '
          f'relative {probes.relative:.1e} ({probes.where}), {seen["by rounding"]} arrays beyond the bounds by rounding alone; '
          f'{seen["runs"]} runs, {seen["steps"]} decode steps, {seen["tokens"]} tokens, worst {runs.absolute:.1e} '
          f'({seen["stopped"]} ended by a stop token, {seen["accepted"]} drafts accepted, {seen["together"]} passes that fixed '
          f'several rows, {seen["undecided"]} undecided by rounding); {len(failures)} differences')
    return 1 if failures or models == 0 or seen['undecided'] > seen['runs'] // 20 or math.isnan(probes.absolute) else 0


if __name__ == '__main__':
    sys.exit(main())
