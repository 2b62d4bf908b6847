#!/usr/bin/env python3
# needs: torch==2.13.0 tokenizers==0.23.3 safetensors==0.8.* numpy gguf==0.19.*
"""train.py - trains nano, a small Clover, from questions.py; `make nano` runs it.

    train.py --out build/nano [--steps N] [--optimizer muon|adamw]

Seeded, and resumable: stopped at any time and started again, it goes on from its last checkpoint with the same data and the
same random numbers. Writes OUT/tokenizer.json, OUT/checkpoint.pt, OUT/loss.tsv and OUT/loss.svg.

Loss = causal + 1.5 · denoising + 0.01 · balance of experts. Causal: the next token of the answer. Denoising: the masked rows of
two blocks a sequence, over a clean causal prefix, predict themselves: one of 32 rows as denoising asks, one of 16, 8 or 4 rows
as drafting does, its first row shown mostly.
"""
import argparse
import math
import os
import random
import sys
import time

import torch
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))

from curve import draw_curve
from questions import draw
from tokens import Tokens, answer_text, prompt_text, train as train_tokens
from twin.batched import Block, forward
from twin.model import Clover, Config

BATCH = 32
CHUNK = 48                                                          # batches drawn together, so that they can be of like lengths
LONGEST = 208
PAST_END = 0.15                                                     # weight of a block's rows after the answer's end


def nano_config(tokens):
    return Config(hidden_size=128, vocab_size=1000, full_attention=[False, True, False, True], heads=4, kv_heads=2, head_width=64,
                  rotary_dims=16, rope_base=10000.0, key_heads=2, value_heads=4, key_width=32, value_width=32, taps=4, experts=8,
                  experts_used=2, expert_width=96, shared_width=96, epsilon=1e-6, context=4096, block_size=32, mask_id=tokens.mask,
                  threshold=0.95, stop_ids=[tokens.end, tokens.pad])


def initialise(model, generator):
    layers = len(model.model.layers)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(('embed_tokens.weight', 'lm_head.weight')):
                p.normal_(0, 0.02, generator=generator)
            elif name.endswith(('conv1d.weight', 'conv_right_weight')):
                p.uniform_(-0.4, 0.4, generator=generator)
            elif name.endswith('A_log'):
                p.uniform_(1, 16, generator=generator).log_()
            elif name.endswith('dt_bias'):                          # softplus(dt_bias) from 0.001 to 0.1
                dt = torch.exp(torch.empty_like(p).uniform_(math.log(0.001), math.log(0.1), generator=generator))
                p.copy_(dt + torch.log(-torch.expm1(-dt)))
            elif name.endswith('logit_scale'):
                p.fill_(5)
            elif name.endswith('history_bias'):                     # ln 32: the history starts as heavy as a block of equal rows
                p.fill_(3.5)
            elif name.endswith('history_c'):                        # and stays so for other sizes
                p.fill_(1)
            elif p.ndim > 1:
                out = name.endswith(('o_proj.weight', 'out_proj.weight', 'down_proj', 'down_proj.weight'))
                p.normal_(0, p.shape[-1] ** -0.5 / (math.sqrt(2 * layers) if out else 1), generator=generator)


# ---- data ----------------------------------------------------------------------------------------------------------


def batches(tokens, seed, split, step=0):
    """Batches of (prompt ids, answer ids) from `step` on; chunk c's come from seed and c alone."""
    chunk, skip = divmod(step, CHUNK)
    while True:
        rng = random.Random(f'{seed}/{split}/{chunk}')
        pool = []
        while len(pool) < BATCH * CHUNK:
            question, think = draw(rng, split), rng.random() < 0.25
            system = 'You are a helpful assistant.' if rng.random() < 0.04 else None
            pair = tokens.encode(prompt_text(question.user, think, system)), tokens.encode(answer_text(question, think))
            if len(pair[0]) + len(pair[1]) <= LONGEST:
                pool.append(pair)
        pool.sort(key=lambda pair: len(pair[0]) + len(pair[1]) + rng.random())
        groups = [pool[i:i + BATCH] for i in range(0, len(pool), BATCH)]
        rng.shuffle(groups)
        yield from groups[skip:]
        chunk, skip = chunk + 1, 0


def blocks_of(batch, ids, tokens, rng):
    """Two blocks a sequence, their targets [B, n] and the weights of those [B, n]."""
    made = []
    for n in (32, rng.choices((16, 8, 4), (0.8, 0.12, 0.08))[0]):
        starts, rows, targets, weights = [], [], [], []
        for i, (prompt, answer) in enumerate(batch):
            first, length = len(prompt), len(prompt) + len(answer)
            if n == 32 and rng.random() < 0.7:                      # where denoising starts its blocks
                start = first + 32 * rng.randrange((len(answer) + 31) // 32)
            else:
                start = rng.randrange(first, length)
            target = ids[i][start:start + n]
            ratio = 1 if rng.random() < (0.4 if n == 32 else 0.75) else rng.uniform(0.1, 1)
            masked = [rng.random() < ratio for _ in range(n)]
            if rng.random() < (0.15 if n == 32 else 0.85):
                masked[0] = False
            starts.append(start)
            targets.append(target)
            rows.append([tokens.mask if m else t for m, t in zip(masked, target)])
            weights.append([0 if not m else 1 if start + j < length else PAST_END for j, m in enumerate(masked)])
        top_p = rng.uniform(0.5, 1) if rng.random() < 0.25 else None
        made.append((Block(torch.tensor(rows), torch.tensor(starts), top_p), torch.tensor(targets), torch.tensor(weights, dtype=torch.float)))
    return made


def losses(model, batch, tokens, rng):
    """Causal, denoising and balance losses of a batch."""
    T = max(len(p) + len(a) for p, a in batch)
    ids = [p + a + [tokens.pad] * (T + 33 - len(p) - len(a)) for p, a in batch]
    made = blocks_of(batch, ids, tokens, rng)
    first, others, balance = forward(model, torch.tensor([row[:T] for row in ids]), [block for block, _, _ in made])
    wanted = torch.zeros(len(batch), T)
    for i, (p, a) in enumerate(batch):
        wanted[i, len(p) - 1:len(p) + len(a) - 1] = 1
        wanted[i, len(p) + len(a) - 1:len(p) + len(a) + 1] = PAST_END
    causal = mean_loss(model, first, torch.tensor([row[1:T + 1] for row in ids]), wanted)
    rows = torch.cat([h.flatten(0, 1) for h in others])
    denoising = mean_loss(model, rows, torch.cat([t.flatten() for _, t, _ in made]), torch.cat([w.flatten() for _, _, w in made]))
    return causal, denoising, balance


def mean_loss(model, h, targets, weights):
    at = weights.flatten() > 0                                      # the head is for those rows alone
    loss = F.cross_entropy(model.head(h.flatten(0, -2)[at]), targets.flatten()[at], reduction='none')
    weights = weights.flatten()[at]
    return (loss * weights).sum() / weights.sum()


# ---- optimisers ----------------------------------------------------------------------------------------------------


class Muon:
    """Momentum whose matrix steps are made orthogonal (five Newton-Schulz steps), for the matrices inside the layers."""

    def __init__(self, params, momentum=0.95, decay=0.1):
        self.groups = {}
        for p in params:
            self.groups.setdefault(p.shape[-2:], []).append(p)
        self.moving = {shape: [torch.zeros_like(p) for p in params] for shape, params in self.groups.items()}
        self.momentum, self.decay = momentum, decay

    @torch.no_grad()
    def step(self, rate):
        for shape, params in self.groups.items():
            steps = []
            for p, moving in zip(params, self.moving[shape]):
                moving.lerp_(p.grad, 1 - self.momentum)
                steps.append(p.grad.lerp(moving, self.momentum).reshape(-1, *shape))
            x = torch.cat(steps).bfloat16()                         # enough for a direction, and half the time
            tall = shape[0] > shape[1]
            x = x.mT if tall else x
            x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
            for _ in range(5):
                a = x @ x.mT
                x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
            x = (x.mT if tall else x).float() * max(1, shape[0] / shape[1]) ** 0.5
            for p, part in zip(params, x.split([len(s) for s in steps])):
                p.mul_(1 - rate * self.decay).sub_(part.reshape(p.shape), alpha=rate)

    def state_dict(self):
        return {tuple(shape): moving for shape, moving in self.moving.items()}

    def load_state_dict(self, state):
        self.moving = {torch.Size(shape): moving for shape, moving in state.items()}


def rate_at(step, steps):
    """Of the peak: warm-up, level, then down to nothing."""
    return min(1, (step + 1) / 200, max(0.0, (steps - step) / (0.45 * steps)))


# ---- the run -------------------------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--out', default='build/nano')
    parser.add_argument('--steps', type=int, default=12000)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--optimizer', choices=('muon', 'adamw'), default='muon')
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--stop-at', type=int, help='stop after this step, as if interrupted')
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    os.makedirs(options.out, exist_ok=True)
    path = os.path.join(options.out, 'tokenizer.json')
    if not os.path.exists(path):
        train_tokens(path)
    tokens = Tokens(path)
    model = Clover(nano_config(tokens))
    initialise(model, torch.Generator().manual_seed(options.seed))
    print(f'{sum(p.numel() for p in model.parameters()):,} parameters', flush=True)

    matrices = [p for name, p in model.model.layers.named_parameters() if p.ndim > 1 and 'conv' not in name and min(p.shape[-2:]) > 8]
    chosen = {id(p) for p in matrices} if options.optimizer == 'muon' else set()
    others = [p for p in model.parameters() if id(p) not in chosen]
    adam = torch.optim.AdamW([{'params': [p for p in others if p.ndim > 1], 'weight_decay': 0.1 if not chosen else 0.01},
                              {'params': [p for p in others if p.ndim == 1], 'weight_decay': 0.0}], lr=4e-3, betas=(0.9, 0.98))
    muon = Muon(matrices) if chosen else None

    step, seconds, table = 0, 0.0, []
    saved = os.path.join(options.out, 'checkpoint.pt')
    if os.path.exists(saved):
        state = torch.load(saved, weights_only=False)
        model.load_state_dict(state['model'])
        adam.load_state_dict(state['adam'])
        if muon:
            muon.load_state_dict(state['muon'])
        step, seconds, table = state['step'], state['seconds'], state['table']
        print(f'going on from step {step}', flush=True)

    data = batches(tokens, options.seed, 'train', step)
    check = [next(group) for group in [batches(tokens, options.seed, 'test')] for _ in range(6)]
    sums, since, began = [0.0] * 3, step, time.time()
    last = min(options.steps, options.stop_at or options.steps)
    while step < last:
        rate = rate_at(step, options.steps)
        causal, denoising, balance = losses(model, next(data), tokens, random.Random(f'{options.seed}/blocks/{step}'))
        (causal + 1.5 * denoising + 0.01 * balance).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in adam.param_groups:
            group['lr'] = 4e-3 * rate
        adam.step()
        if muon:
            muon.step(0.02 * rate)
        for p in model.parameters():
            p.grad = None
        step += 1
        sums = [a + float(b.detach()) for a, b in zip(sums, (causal, denoising, balance))]
        if step % 50 == 0 or step == last:
            seconds, began = seconds + time.time() - began, time.time()
            means = [s / (step - since) for s in sums]
            row = [step, seconds, *means]
            if step % 500 == 0 or step == last:
                with torch.no_grad():
                    held = [losses(model, batch, tokens, random.Random(f'test/{i}')) for i, batch in enumerate(check)]
                row += [float(sum(h[k] for h in held)) / len(held) for k in (0, 1)]
            table.append(row)
            print('step {} {:.0f} s  causal {:.4f}  denoising {:.4f}  balance {:.3f}'.format(*row[:5]) +
                  ('  held out {:.4f} {:.4f}'.format(*row[5:]) if len(row) > 5 else ''), flush=True)
            sums, since = [0.0] * 3, step
        if step % 100 == 0 or step == last:
            torch.save({'model': model.state_dict(), 'adam': adam.state_dict(), 'muon': muon and muon.state_dict(), 'step': step,
                        'seconds': seconds, 'table': table}, saved + '.part')
            os.replace(saved + '.part', saved)
            with open(os.path.join(options.out, 'loss.tsv'), 'w', encoding='utf-8') as file:
                file.write('step\tseconds\tcausal\tdenoising\tbalance\theld-out causal\theld-out denoising\n')
                file.writelines('\t'.join(f'{v:.6g}' for v in r) + '\n' for r in table)
            draw_curve(table, os.path.join(options.out, 'loss.svg'))


if __name__ == '__main__':
    main()
