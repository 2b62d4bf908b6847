#!/usr/bin/env python3
"""accept.py - does nano answer? Held-out questions in every mode, through `clover run`, with counts.

    accept.py golden/nano.gguf [--clover build/clover] [--each 30] [--kinds capital,copy] [--wrong 20]

--each questions of every kind, from questions.py's held-out side, every fifth with thinking; an answer is right when its text is
the expected one, letter for letter (with thinking: what follows </think>). Then every capital, asked plainly.

Counted of denoising: tokens put out over passes. Of drafting: drafts up to the answer's end; `judged` are those that were
accepted or were the first of their round to be rejected, `offered` also those behind a rejection.
Exit status 0 when every line of "It counts when" holds, else 1.
"""
import argparse
import json
import os
import random
import subprocess
import sys
from collections import defaultdict

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from facts import CAPITALS
from questions import KINDS, draw

BUDGET = 160
BLOCK = 32
MODES = {'ar': ['--mode', 'ar'], 'denoise': ['--mode', 'denoise', '--threshold', '0.95'],
         'coreset': ['--mode', 'denoise', '--threshold', '0.95', '--coreset-top-p', '0.9'],
         'draft': ['--mode', 'draft'], 'exact': ['--mode', 'draft', '--accept', 'exact']}
NEEDED = {'held-out AR': 0.97, 'held-out denoising': 0.93, 'tokens per pass': 6, 'drafts accepted (of those judged)': 0.95,
          'exact drafting = AR': 1, 'answers over several blocks': 0.9, 'every capital, every mode': 1}


def run(options, user, think, mode):
    command = [options.clover, 'run', options.model, '--chat', user, '--think' if think else '--no-think', '-n', str(BUDGET), '--json',
               '--numerics', options.numerics] + MODES[mode]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def answer_of(text, think):
    text = text.removesuffix('<|im_end|>')
    return text.split('</think>\n\n', 1)[-1] if think else text


def drafts(result, stops):
    """Accepted, judged and offered drafts up to the answer's end."""
    accepted = judged = offered = 0
    for step in result['steps']:
        if step['step'] != 'round':
            continue
        row = step['draft'][1:]
        end = next((i for i, token in enumerate(row) if token in stops), len(row) - 1)
        offered += end + 1
        accepted += min(step['accepted'], end + 1)
        judged += min(len(step['judged']), end + 1)
    return accepted, judged, offered


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('model')
    parser.add_argument('--clover', default='build/clover')
    parser.add_argument('--each', type=int, default=30)
    parser.add_argument('--kinds', default=','.join(KINDS))
    parser.add_argument('--numerics', default='exact')
    parser.add_argument('--capitals', type=int, default=len(CAPITALS))
    parser.add_argument('--wrong', type=int, default=12, help='wrong answers to show')
    options = parser.parse_args()
    shown = json.loads(subprocess.run([options.clover, 'inspect', options.model, '--json'], capture_output=True, text=True, check=True).stdout)
    stops = set(shown['config']['stops'])

    right, total, passes, put_out = defaultdict(lambda: defaultdict(int)), defaultdict(int), defaultdict(int), defaultdict(int)
    draft = defaultdict(lambda: [0, 0, 0, 0, 0])                    # accepted, judged, offered, tokens, rounds
    several, agree, thinking, wrong = [0, 0], [0, 0], defaultdict(lambda: [0, 0]), []
    for kind in options.kinds.split(','):
        rng = random.Random(f'accept/{kind}')
        for number in range(options.each):
            question, think = draw(rng, 'test', kind), number % 5 == 4
            total[kind] += 1
            results = {}
            for mode in MODES:
                result = results[mode] = run(options, question.user, think, mode)
                good = answer_of(result['text'], think) == question.answer
                right[kind][mode] += good
                if think:
                    thinking[mode][0] += good
                    thinking[mode][1] += 1
                if not good and mode in ('ar', 'denoise') and len(wrong) < 400:
                    wrong.append((kind, mode, question.user, question.answer, answer_of(result['text'], think)))
            passes[kind] += sum(step['step'] == 'pass' for step in results['denoise']['steps'])
            put_out[kind] += len(results['denoise']['tokens'])
            for i, n in enumerate(drafts(results['draft'], stops)):
                draft[kind][i] += n
            draft[kind][3] += len(results['draft']['tokens'])
            draft[kind][4] += sum(step['step'] == 'round' for step in results['draft']['steps'])
            agree[0] += results['ar']['tokens'] == results['exact']['tokens']
            agree[1] += 1
            if len(results['ar']['tokens']) > BLOCK:
                several[0] += answer_of(results['denoise']['text'], think) == question.answer
                several[1] += 1

    print('| kind | AR | denoising | with coreset 0.9 | drafting | tokens a pass | drafts accepted of judged | of offered | tokens a round |')
    print('|---|---|---|---|---|---|---|---|---|')

    def line(name, kinds):
        n = sum(total[k] for k in kinds)
        cells = [f'{sum(right[k][m] for k in kinds)} of {n}' for m in ('ar', 'denoise', 'coreset', 'draft')]
        a, j, o, t, r = (sum(draft[k][i] for k in kinds) for i in range(5))
        p, out = sum(passes[k] for k in kinds), sum(put_out[k] for k in kinds)
        cells += [f'{out} / {p} = {out / max(p, 1):.1f}', f'{a} of {j}', f'{a} of {o}', f'{t} / {r} = {t / max(r, 1):.1f}']
        print(f'| {name} | ' + ' | '.join(cells) + ' |')
        return [sum(right[k][m] for k in kinds) / n for m in ('ar', 'denoise')] + [out / max(p, 1), a / max(j, 1)]
    for kind in total:
        line(kind, [kind])
    ar, denoise, rate, accepted = line('all', list(total))
    print('with thinking: ' + ', '.join(f'{mode} {a} of {b}' for mode, (a, b) in thinking.items()))

    capitals = {mode: 0 for mode in ('ar', 'denoise', 'draft')}
    for country, city in list(CAPITALS.items())[:options.capitals]:
        for mode in capitals:
            text = answer_of(run(options, f'What is the capital of {country}?', False, mode)['text'], False)
            capitals[mode] += text == f'The capital of {country} is {city}.'
            if text != f'The capital of {country} is {city}.':
                print(f'  {mode}: {text}')
    print('capitals: ' + ', '.join(f'{mode} {n} of {options.capitals}' for mode, n in capitals.items()))
    for kind, mode, user, expected, got in wrong[:: max(1, len(wrong) // max(options.wrong, 1))][:options.wrong]:
        print(f'  wrong, {kind}, {mode}: {user!r} -> {got!r}, expected {expected!r}')

    found = dict(zip(NEEDED, (ar, denoise, rate, accepted, agree[0] / agree[1], several[0] / max(several[1], 1),
                              min(capitals.values()) / max(options.capitals, 1))))
    counts = {'exact drafting = AR': f'{agree[0]} of {agree[1]}', 'answers over several blocks': f'{several[0]} of {several[1]}'}
    for name, value in found.items():
        print(f'{"ok  " if value >= NEEDED[name] else "NOT "} {name}: {value:.3f} {counts.get(name, "")}, needed {NEEDED[name]}')
    return 0 if all(found[name] >= NEEDED[name] for name in NEEDED) else 1


if __name__ == '__main__':
    sys.exit(main())
