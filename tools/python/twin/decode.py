"""decode.py - the three modes of decoding, greedy, with the response's controls: SPEC.md sections 16 to 19.

    tokens, steps = Decoder(model).denoise(prompt_ids, budget)

steps are what `clover run --json` shows. A Decoder's settings are keywords: stops, controls, block, mask, threshold, top_p (the
coreset's bound, None: off), width, exact, ratio, delta; what is not given is the model's.
"""
import math

import torch

NEUTRAL = {'presence_penalty': 0.0, 'frequency_penalty': 0.0, 'repetition_penalty': 1.0,
           'dllm_length_penalty': 0.0, 'dllm_length_penalty_start': 8192, 'dllm_length_penalty_window': 8192,
           'dllm_think_end_bias': 0.0, 'dllm_think_end_start': 4096, 'dllm_think_end_window': 4096, 'dllm_think_end_token_id': None}


def ramp(position, start, window, strength):                                                        # [CTL-4]
    return min(max((position - start) / window, 0.0), 1.0) * strength


class Decoder:
    def __init__(self, model, *, stops=None, controls=None, block=None, mask=None, threshold=None, top_p='model', width=16,
                 exact=False, ratio=0.9, delta=0.6):
        c = model.config
        self.model = model
        self.stops = set(c.stop_ids if stops is None else stops)
        self.controls = {**NEUTRAL, **c.controls, **(controls or {})}
        self.block = block or c.block_size
        self.mask = c.mask_id if mask is None else mask
        self.threshold = c.threshold if threshold is None else threshold
        self.top_p = c.coreset_top_p if top_p == 'model' else top_p
        self.width, self.exact, self.ratio, self.delta = width, exact, ratio, delta

    def processed(self, logits, response, position, block=()):
        """A row's logits after the controls, [CTL-1], and without the mask [AR-2]. `response`: the ids seen, [CTL-7]."""
        c, logits = self.controls, logits.clone()
        counts = {}
        for token in response:
            counts[token] = counts.get(token, 0) + 1
        for token, count in counts.items():
            logits[token] = logits[token] - count * c['frequency_penalty'] - c['presence_penalty']  # [CTL-2]
            rho = c['repetition_penalty']
            if rho != 1:                                                                            # [CTL-3]
                logits[token] = logits[token] * rho if logits[token] < 0 else logits[token] / rho
        for stop in self.stops:                                                                     # [CTL-5]
            logits[stop] += ramp(position, c['dllm_length_penalty_start'], c['dllm_length_penalty_window'], c['dllm_length_penalty'])
        end = c['dllm_think_end_token_id']
        if end is not None and end not in counts and end not in block:                              # [CTL-6]
            logits[end] += ramp(position, c['dllm_think_end_start'], c['dllm_think_end_window'], c['dllm_think_end_bias'])
        if self.mask is not None:
            logits[self.mask] = -torch.inf
        return logits

    def choose(self, logits):
        """The argmax, the lowest id of equals [AR-2], and its probability."""
        token = int((logits == logits.max()).nonzero()[0])
        return token, float(logits.softmax(-1)[token])

    def cut(self, tokens, budget):
        """Cut at the budget and after the first stop id: the tokens, and whether they end the response."""
        tokens = tokens[:budget]
        for i, token in enumerate(tokens):
            if token in self.stops:
                return tokens[:i + 1], True
        return tokens, len(tokens) == budget

    def ar(self, prompt, budget):
        """[AR-1] to [AR-3]."""
        logits, state = self.model.commit(prompt, self.model.empty_state())
        out, steps = [], []
        while True:
            token, p = self.choose(self.processed(logits[-1], out, len(out) + 1))
            steps.append({'step': 'token', 'id': token, 'p': p})
            out.append(token)
            if token in self.stops or len(out) == budget:
                return out, steps
            logits, state = self.model.commit([token], state)

    def denoise(self, prompt, budget):
        """[DEN-1] to [DEN-7]."""
        _, state = self.model.commit(prompt, self.model.empty_state())
        out, steps = [], []
        while True:
            block = [self.mask] * self.block
            resolved = [False] * self.block
            passes = 0
            while not all(resolved):
                logits = self.model.preview(block, state, self.top_p)
                candidates = []
                for row in range(self.block):
                    if not resolved[row]:
                        candidates.append((row, *self.choose(self.processed(logits[row], out, len(out) + row + 1, block))))
                fixed = [c for c in candidates if c[2] > self.threshold]                            # [DEN-3]
                fixed = fixed or [max(candidates, key=lambda c: (c[2], -c[0]))]                     # [DEN-4]
                for row, token, _ in fixed:
                    block[row], resolved[row] = token, True
                steps.append({'step': 'pass', 'pos': state.position, 'passno': passes, 'candidates': [list(c) for c in candidates],
                              'fixed': [c[0] for c in fixed]})
                passes += 1
            tokens, done = self.cut(block, budget - len(out))                                       # [DEN-6]
            steps.append({'step': 'block', 'pos': state.position, 'ids': block, 'emitted': len(tokens)})
            out += tokens
            if done:
                return out, steps
            _, state = self.model.commit(block, state)

    def draft(self, prompt, budget):
        """Draft-self, [DRA-1] to [DRA-9]."""
        state = self.model.empty_state()
        if len(prompt) > 1:
            _, state = self.model.commit(prompt[:-1], state)
        logits, state = self.model.commit(prompt[-1:], state)
        pending, _ = self.choose(self.processed(logits[-1], [], 1))
        steps = [{'step': 'first', 'id': pending}]
        out, done = self.cut([pending], budget)
        while not done:
            L = len(out)
            w = min(self.width, self.block)                                                         # [DRA-2]
            while w > 1 and w > budget - L:
                w //= 2
            candidates = [pending] + [self.mask] * (w - 1)
            if w > 1:                                                                               # [DRA-3]
                drafts = self.model.preview(candidates, state, self.top_p)
                candidates = [pending] + [self.choose(self.processed(drafts[t], out, L + t))[0] for t in range(1, w)]
            logits, _ = self.model.commit(candidates, state)
            judged = []
            for j in range(w):                                                                      # [DRA-4]
                row = self.processed(logits[j], out, L + j + 1)
                if j < w - 1:
                    judged.append(self.judge(row, candidates[j + 1]))
                if j == w - 1 or not judged[-1][3]:
                    break
            bonus, _ = self.choose(row)                                                             # [DRA-6]
            steps.append({'step': 'round', 'pos': state.position, 'draft': candidates, 'judged': judged, 'accepted': j, 'bonus': bonus})
            _, state = self.model.commit(candidates[:j + 1], state)                                 # [DRA-7]
            tokens, done = self.cut(candidates[1:j + 1] + [bonus], budget - L)                      # [DRA-8]
            out, pending = out + tokens, bonus
        return out, steps

    def judge(self, row, token):                                                                    # [DRA-5]
        """[candidate, its p, the row's entropy, accepted]."""
        p = row.softmax(-1)
        entropy, chance = -float(torch.xlogy(p, p).sum()), float(p[token])
        if self.exact:
            return [token, chance, entropy, token == self.choose(row)[0]]
        return [token, chance, entropy, chance > 0 and chance >= min(self.ratio, self.delta * math.exp(-entropy))]
