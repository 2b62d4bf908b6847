"""numpy_model.py - Clover in numpy float64: a second model, written from the architecture's facts and not from ref/.

It reads a Hugging Face folder, runs the causal path and the preview with every probe, and decodes greedily in the three
modes. Shapes in comments: T rows, D hidden size, n block rows, H query heads, Hk and Hv GDN key and value heads.

    model = Model('folder')
    state = model.empty_state()
    logits, probes, state = model.commit([1, 2, 3], state)     # causal; gives the state after these rows
    logits, probes = model.preview([9, 9], state, top_p=0.5)   # a block; the state is only read; top_p None: no coreset
    tokens, steps = Decoder(model, stops=[258]).denoise([1, 2, 3], 40)
"""
import json
import math
import os

import numpy as np

# ---- files ----------------------------------------------------------------------------------------------------------


def read_safetensors(path):
    """All tensors of a file: floats as float64, I64 as int64."""
    with open(path, 'rb') as file:
        data = file.read()
    length = int.from_bytes(data[:8], 'little')
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == '__metadata__':
            continue
        begin, end = entry['data_offsets']
        raw = data[8 + length + begin:8 + length + end]
        kind = entry['dtype']
        if kind == 'BF16':
            values = (np.frombuffer(raw, '<u2').astype('<u4') << 16).view('<f4').astype(np.float64)
        elif kind == 'I64':
            values = np.frombuffer(raw, '<i8')
        else:
            values = np.frombuffer(raw, {'F64': '<f8', 'F32': '<f4', 'F16': '<f2'}[kind]).astype(np.float64)
        tensors[name] = values.reshape(entry['shape'])
    return tensors


def write_safetensors(path, tensors):
    """Names sorted; float64 as F64, float32 as F32, int64 as I64; the header padded to 8 bytes with spaces."""
    kinds = {'float64': 'F64', 'float32': 'F32', 'int64': 'I64'}
    header, parts, offset = {}, [], 0
    for name in sorted(tensors):
        values = np.ascontiguousarray(tensors[name])
        raw = values.tobytes()
        header[name] = {'dtype': kinds[values.dtype.name], 'shape': list(values.shape), 'data_offsets': [offset, offset + len(raw)]}
        parts.append(raw)
        offset += len(raw)
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as file:
        file.write(len(text).to_bytes(8, 'little') + text + b''.join(parts))


def read_folder(folder):
    """config (text_config where the numbers are nested), generation_config ({} if none) and all tensors."""
    def read_json(name):
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            return {}
        with open(path, encoding='utf-8') as file:
            return json.load(file)
    config = read_json('config.json')
    config = {**config, **config.get('text_config', {})}
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith('.safetensors'):
            tensors.update(read_safetensors(os.path.join(folder, name)))
    return config, read_json('generation_config.json'), tensors


# ---- row-wise functions (facts 3) -----------------------------------------------------------------------------------


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def l2_norm(x):
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6)


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


# ---- the model ------------------------------------------------------------------------------------------------------


class State:
    """What the committed tokens leave: their number, and for each layer keys and values, or conv ring and S."""

    def __init__(self, position, layers):
        self.position, self.layers = position, layers


class Model:
    def __init__(self, folder, real=np.float64):
        """real: the type of every number; np.longdouble shows what rounding costs the float64 one."""
        self.real = real
        config, self.generation, tensors = read_folder(folder)
        self.config = config
        self.V, self.D = config['vocab_size'], config['hidden_size']
        self.layers = config['num_hidden_layers']
        interval = config.get('full_attention_interval')
        types = config.get('layer_types') or ['full_attention' if (i + 1) % interval == 0 else 'linear_attention'
                                              for i in range(self.layers)]
        self.is_attention = [kind == 'full_attention' for kind in types]
        self.epsilon = config['rms_norm_eps']
        self.H, self.KV, self.width = config['num_attention_heads'], config['num_key_value_heads'], config['head_dim']
        rope = config.get('rope_parameters') or config
        self.rope_base = rope['rope_theta']
        self.rotary = round(self.width * rope.get('partial_rotary_factor', config.get('partial_rotary_factor', 1)))
        self.Hk, self.Hv = config['linear_num_key_heads'], config['linear_num_value_heads']
        self.dk, self.dv = config['linear_key_head_dim'], config['linear_value_head_dim']
        self.taps = config['linear_conv_kernel_dim']
        self.C = 2 * self.Hk * self.dk + self.Hv * self.dv
        self.experts, self.k = config['num_experts'], config['num_experts_per_tok']
        self.F = config['moe_intermediate_size']
        self.block, self.mask = config.get('block_size'), config.get('mask_token_id')
        self.threshold = config.get('denoising_config', {}).get('threshold', 0.95)
        self.top_p = config['moe_block_coreset_top_p'] if config.get('moe_block_coreset_enabled') else None
        self.take({name: values.astype(real) for name, values in tensors.items()})

    def zeros(self, *shape):
        return np.zeros(shape, dtype=self.real)

    def take(self, tensors):
        """Weights in the form the formulas use: norms with their 1 added, A = exp(A_log), experts as [E, …]."""
        prefix = 'model.language_model.' if 'model.language_model.norm.weight' in tensors else 'model.'

        def get(name):
            return tensors[prefix + name]
        self.embed = get('embed_tokens.weight')                                             # [V, D]
        self.norm = 1 + get('norm.weight')
        self.head = tensors.get('lm_head.weight', self.embed)                               # [V, D]
        self.weights = []
        for i in range(self.layers):
            w, at = {}, f'layers.{i}.'
            w['attn_norm'] = 1 + get(at + 'input_layernorm.weight')
            w['ffn_norm'] = 1 + get(at + 'post_attention_layernorm.weight')
            if self.is_attention[i]:
                for name in 'qkvo':
                    w[name] = get(f'{at}self_attn.{name}_proj.weight')
                w['q_norm'] = 1 + get(at + 'self_attn.q_norm.weight')
                w['k_norm'] = 1 + get(at + 'self_attn.k_norm.weight')
            else:
                gdn = at + 'linear_attn.'
                for short, name in {'qkv': 'in_proj_qkv', 'z': 'in_proj_z', 'b': 'in_proj_b', 'a': 'in_proj_a',
                                    'out': 'out_proj', 'head_norm': 'norm'}.items():
                    w[short] = get(f'{gdn}{name}.weight')
                w['conv'] = get(gdn + 'conv1d.weight').reshape(self.C, self.taps)
                w['A'] = np.exp(get(gdn + 'A_log'))
                w['dt_bias'] = get(gdn + 'dt_bias')
                for short, name in {'right': 'conv_right_weight', 'scale': 'bd_softmax_logit_scale',
                                    'history_bias': 'bd_softmax_history_bias', 'history_c': 'bd_softmax_history_c'}.items():
                    full = prefix + gdn + name
                    if full in tensors:                                                     # else it cannot preview
                        w[short] = tensors[full]
            mlp = at + 'mlp.'
            w['router'] = get(mlp + 'gate.weight')                                          # [E, D]
            if prefix + mlp + 'experts.gate_up_proj' in tensors:
                w['gate'], w['up'] = np.split(get(mlp + 'experts.gate_up_proj'), 2, axis=1)  # [E, F, D] each
                w['down'] = get(mlp + 'experts.down_proj')                                  # [E, D, F]
            else:
                for name in ('gate', 'up', 'down'):
                    w[name] = np.stack([get(f'{mlp}experts.{e}.{name}_proj.weight') for e in range(self.experts)])
            for name in ('gate', 'up', 'down'):
                w['shared_' + name] = get(f'{mlp}shared_expert.{name}_proj.weight')
            w['shared_expert_gate'] = get(mlp + 'shared_expert_gate.weight').reshape(1, self.D)
            self.weights.append(w)

    def empty_state(self):
        layers = []
        for attention in self.is_attention:
            if attention:
                layers.append((self.zeros(0, self.KV, self.width), self.zeros(0, self.KV, self.width)))
            else:
                layers.append((self.zeros(self.taps - 1, self.C), self.zeros(self.Hv, self.dk, self.dv)))
        return State(0, layers)

    def commit(self, ids, state):
        """Causal rows after the state. Returns logits [T, V], probes and the state after them; the given one stays as it is."""
        logits, probes, layers = self.forward(ids, state, False, None)
        return logits, probes, State(state.position + len(ids), layers)

    def preview(self, ids, state, top_p=None):
        """A block after the state, every row seeing all of it. Returns logits [n, V] and probes."""
        logits, probes, _ = self.forward(ids, state, True, top_p)
        return logits, probes

    def forward(self, ids, state, preview, top_p):
        probes = {'ids': np.array(ids, dtype=np.int64)}
        h = probes['embed'] = self.embed[np.array(ids)]                                     # [T, D]
        layers = []
        for i, w in enumerate(self.weights):
            p = {}
            x = p['attn_norm'] = rms_norm(h, w['attn_norm'], self.epsilon)
            if self.is_attention[i]:
                p['mixer'], after = self.attention(w, x, state.position, state.layers[i], preview, p)
            elif preview:
                p['mixer'], after = self.gdn_preview(w, x, state.layers[i], p), None
            else:
                p['mixer'], after = self.gdn_causal(w, x, state.layers[i], p)
            layers.append(after)
            h = p['mixer_residual'] = h + p['mixer']
            x = p['ffn_norm'] = rms_norm(h, w['ffn_norm'], self.epsilon)
            p['moe'] = self.moe(w, x, preview, top_p, p)
            h = p['out'] = h + p['moe']
            probes.update({f'L{i:02d}.{name}': value for name, value in p.items()})
        probes['final_norm'] = rms_norm(h, self.norm, self.epsilon)
        probes['logits'] = probes['final_norm'] @ self.head.T                               # [T, V]
        return probes['logits'], probes, layers

    # ---- full attention (facts 5) ----

    def rotate(self, x, positions):
        """x [T, heads, width]: pairs (i, i + R/2) of the first R dims; the rest passes."""
        half = self.rotary // 2
        frequency = self.real(self.rope_base) ** (-2 * np.arange(half, dtype=self.real) / self.rotary)
        angle = np.outer(positions, frequency)[:, None, :]                                  # [T, 1, R/2]
        a, b = x[..., :half], x[..., half:2 * half]
        y = x.copy()
        y[..., :half] = a * np.cos(angle) - b * np.sin(angle)
        y[..., half:2 * half] = b * np.cos(angle) + a * np.sin(angle)
        return y

    def attention(self, w, x, position, cache, preview, p):
        T, width = len(x), self.width
        both = (x @ w['q'].T).reshape(T, self.H, 2 * width)                                 # per head: query rows, gate rows
        p['attn.q'], p['attn.gate'] = both[..., :width].copy(), both[..., width:].copy()
        p['attn.k'] = (x @ w['k'].T).reshape(T, self.KV, width)
        p['attn.v'] = (x @ w['v'].T).reshape(T, self.KV, width)
        p['attn.q_norm'] = rms_norm(p['attn.q'], w['q_norm'], self.epsilon)
        p['attn.k_norm'] = rms_norm(p['attn.k'], w['k_norm'], self.epsilon)
        positions = position + np.arange(T)
        p['attn.q_rope'] = self.rotate(p['attn.q_norm'], positions)
        p['attn.k_rope'] = self.rotate(p['attn.k_norm'], positions)
        keys = np.concatenate([cache[0], p['attn.k_rope']])                                 # [position + T, KV, width]
        values = np.concatenate([cache[1], p['attn.v']])
        context = self.zeros(T, self.H, width)
        for head in range(self.H):
            kv = head // (self.H // self.KV)
            for t in range(T):
                visible = len(keys) if preview else position + t + 1
                scores = keys[:visible, kv] @ p['attn.q_rope'][t, head] / np.sqrt(self.real(width))
                context[t, head] = softmax(scores) @ values[:visible, kv]
        p['attn.context'] = context
        p['attn.gated'] = context * sigmoid(p['attn.gate'])
        return p['attn.gated'].reshape(T, -1) @ w['o'].T, (keys, values)

    # ---- Gated DeltaNet (facts 6 and 7) ----

    def gdn_project(self, w, x, p):
        p['gdn.qkv'] = x @ w['qkv'].T                                                       # [T, C]
        p['gdn.z'] = (x @ w['z'].T).reshape(len(x), self.Hv, self.dv)
        p['gdn.beta'] = sigmoid(x @ w['b'].T)                                               # [T, Hv]
        p['gdn.g'] = -w['A'] * softplus(x @ w['a'].T + w['dt_bias'])

    def gdn_split(self, y, p):
        T, K = len(y), self.Hk * self.dk
        p['gdn.q'] = l2_norm(y[:, :K].reshape(T, self.Hk, self.dk))
        p['gdn.k'] = l2_norm(y[:, K:2 * K].reshape(T, self.Hk, self.dk))
        p['gdn.v'] = y[:, 2 * K:].reshape(T, self.Hv, self.dv)

    def gdn_output(self, w, mixed, p):
        p['gdn.mixed'] = mixed                                                              # [T, Hv, dv]
        p['gdn.gated'] = rms_norm(mixed, w['head_norm'], self.epsilon) * silu(p['gdn.z'])
        return p['gdn.gated'].reshape(len(mixed), -1) @ w['out'].T

    def gdn_causal(self, w, x, kept, p):
        ring, S = kept
        T = len(x)
        self.gdn_project(w, x, p)
        rows = np.concatenate([ring, p['gdn.qkv']])                                         # [taps-1 + T, C]
        y = self.zeros(T, self.C)
        for j in range(self.taps):
            y += w['conv'][:, j] * rows[j:j + T]
        p['gdn.conv'] = silu(y)
        self.gdn_split(p['gdn.conv'], p)
        S, mixed = S.copy(), self.zeros(T, self.Hv, self.dv)
        for t in range(T):
            for h in range(self.Hv):
                key_head = h // (self.Hv // self.Hk)
                q, k = p['gdn.q'][t, key_head], p['gdn.k'][t, key_head]
                S[h] *= np.exp(p['gdn.g'][t, h])
                d = p['gdn.beta'][t, h] * (p['gdn.v'][t, h] - S[h].T @ k)
                S[h] += np.outer(k, d)
                mixed[t, h] = S[h].T @ q / np.sqrt(self.real(self.dk))
        p['gdn.state'] = S
        return self.gdn_output(w, mixed, p), (rows[len(rows) - (self.taps - 1):], S)

    def gdn_preview(self, w, x, kept, p):
        ring, S = kept
        n = len(x)
        self.gdn_project(w, x, p)
        u = p['gdn.qkv']
        rows = np.concatenate([ring, u])
        y = self.zeros(n, self.C)
        for j in range(self.taps):
            y += w['conv'][:, j] * rows[j:j + n]
        for d in range(1, self.taps):                                                       # the row d after, inside the block
            y[:n - d] += w['right'][:, d - 1] * u[d:] if d < n else 0
        p['gdn.conv'] = silu(y)
        self.gdn_split(p['gdn.conv'], p)
        mixed = self.zeros(n, self.Hv, self.dv)
        weights = self.zeros(n, self.Hv, n + 1)
        for h in range(self.Hv):
            key_head = h // (self.Hv // self.Hk)
            q, k = p['gdn.q'][:, key_head], p['gdn.k'][:, key_head]                         # [n, dk]
            slots = self.zeros(n, n + 1)
            slots[:, :n] = w['scale'][h] * (q @ k.T)
            slots[:, n] = w['history_bias'][h] + w['history_c'][h] * np.log(self.real(n) / 32)
            weights[:, h] = softmax(slots)
            history = np.exp(p['gdn.g'][:, h])[:, None] * (q / np.sqrt(self.real(self.dk))) @ S[h]   # [n, dv]
            mixed[:, h] = weights[:, h, :n] @ p['gdn.v'][:, h] + weights[:, h, n:] * history
        p['gdn.block_weights'] = weights
        return self.gdn_output(w, mixed, p)

    # ---- mixture of experts (facts 8) ----

    def coreset(self, probabilities, top_p):
        """The kept experts [E] as 1 and 0."""
        totals = self.zeros(self.experts)
        for row in probabilities:
            for e in np.argsort(-row, kind='stable')[:self.k]:
                totals[e] += row[e]
        totals /= max(np.sum(totals), 1e-9)
        kept, before = self.zeros(self.experts), 0.0
        for rank, e in enumerate(np.argsort(-totals, kind='stable')):
            if rank == 0 or before < top_p:
                kept[e] = 1
            before += totals[e]
        return kept

    def moe(self, w, x, preview, top_p, p):
        T = len(x)
        p['moe.probs'] = softmax(x @ w['router'].T)                                         # [T, E]
        kept = np.ones(self.experts) if top_p is None else self.coreset(p['moe.probs'], top_p)
        if preview:
            p['moe.coreset'] = kept
        k = min(self.k, int(np.sum(kept)))                                                  # fewer columns if fewer are kept
        p['moe.ids'], p['moe.weights'] = self.zeros(T, k), self.zeros(T, k)
        p['moe.routed'] = self.zeros(T, self.D)
        for t in range(T):
            ranked = np.argsort(-np.where(kept == 1, p['moe.probs'][t], -1), kind='stable')[:k]
            weights = p['moe.probs'][t, ranked] / np.sum(p['moe.probs'][t, ranked])
            p['moe.ids'][t], p['moe.weights'][t] = ranked, weights
            for e, weight in zip(ranked, weights):
                p['moe.routed'][t] += weight * (w['down'][e] @ (silu(w['gate'][e] @ x[t]) * (w['up'][e] @ x[t])))
        p['moe.shared'] = (silu(x @ w['shared_gate'].T) * (x @ w['shared_up'].T)) @ w['shared_down'].T
        p['moe.shared_gate'] = sigmoid(x @ w['shared_expert_gate'].T)                       # [T, 1]
        return p['moe.routed'] + p['moe.shared_gate'] * p['moe.shared']


# ---- decoding (facts 9 and 10), greedy ------------------------------------------------------------------------------

NEUTRAL = {'presence_penalty': 0.0, 'frequency_penalty': 0.0, 'repetition_penalty': 1.0,
           'dllm_length_penalty': 0.0, 'dllm_length_penalty_start': 8192, 'dllm_length_penalty_window': 8192,
           'dllm_think_end_bias': 0.0, 'dllm_think_end_start': 4096, 'dllm_think_end_window': 4096,
           'dllm_think_end_token_id': None}


def as_list(value):
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def stop_ids(generation, config):
    """eos ids, stop_token_ids and pad; a key that generation_config lacks comes from config."""
    found = []
    for key in ('eos_token_id', 'stop_token_ids', 'pad_token_id'):
        found += as_list(generation.get(key, config.get(key)))
    return sorted(set(found))


class Decoder:
    """One request's settings. Each mode returns (tokens, steps), the steps as in the vectors' traces.json."""

    def __init__(self, model, stops, controls=None, block=None, threshold=None, top_p=None, width=None,
                 exact=False, ratio=0.9, delta=0.6):
        self.model, self.stops = model, stops
        self.controls = {**NEUTRAL, **(controls or {})}
        self.block = block or model.block
        self.threshold = model.threshold if threshold is None else threshold
        self.top_p = top_p
        self.width = width or min(16, self.block)
        self.exact, self.ratio, self.delta = exact, ratio, delta

    def process(self, logits, position, response, block=()):
        """A row's logits under the mask rule and the controls; position counts from 1 in the response."""
        c, x = self.controls, logits.copy()
        for token in sorted(set(response)):
            x[token] -= response.count(token) * c['frequency_penalty']
            x[token] -= c['presence_penalty']
            if c['repetition_penalty'] != 1:
                x[token] = x[token] * c['repetition_penalty'] if x[token] < 0 else x[token] / c['repetition_penalty']
        if c['dllm_length_penalty'] != 0:
            x[self.stops] += self.ramp('dllm_length_penalty', 'dllm_length_penalty', position)
        end = c['dllm_think_end_token_id']
        if c['dllm_think_end_bias'] != 0 and end is not None and end not in response and end not in block:
            x[end] += self.ramp('dllm_think_end', 'dllm_think_end_bias', position)
        x[self.model.mask] = -np.inf
        return x

    def ramp(self, name, strength, position):
        share = (position - self.controls[name + '_start']) / self.controls[name + '_window']
        return min(max(share, 0.0), 1.0) * self.controls[strength]

    def cut(self, tokens, budget):
        """Up to the budget and to the first stop token, which stays. The second value says that the response ends here."""
        tokens = tokens[:budget]
        for i, token in enumerate(tokens):
            if token in self.stops:
                return tokens[:i + 1], True
        return tokens, len(tokens) == budget

    def ar(self, prompt, budget):
        logits, _, state = self.model.commit(prompt, self.model.empty_state())
        response, steps = [], []
        while True:
            row = self.process(logits[-1], len(response) + 1, response)
            token = int(np.argmax(row))
            steps.append({'step': 'token', 'id': token, 'p': float(softmax(row)[token])})
            response.append(token)
            if token in self.stops or len(response) == budget:
                return response, steps
            logits, _, state = self.model.commit([token], state)

    def denoise(self, prompt, budget):
        model, n = self.model, self.block
        _, _, state = model.commit(prompt, model.empty_state())
        response, steps = [], []
        while True:
            block, passno = [model.mask] * n, 0
            masked = list(range(n))
            while masked:
                logits, _ = model.preview(block, state, self.top_p)
                candidates = []
                for row in masked:
                    x = self.process(logits[row], len(response) + row + 1, response, block)
                    token = int(np.argmax(x))
                    candidates.append([row, token, float(softmax(x)[token])])
                fixed = [c for c in candidates if c[2] > self.threshold] or [max(candidates, key=lambda c: (c[2], -c[0]))]
                for row, token, _ in fixed:
                    block[row] = token
                    masked.remove(row)
                steps.append({'step': 'pass', 'pos': state.position, 'passno': passno, 'candidates': candidates,
                              'fixed': [c[0] for c in fixed]})
                passno += 1
            emitted, ends = self.cut(block, budget - len(response))
            steps.append({'step': 'block', 'pos': state.position, 'ids': block, 'emitted': len(emitted)})
            response += emitted
            if ends:
                return response, steps
            _, _, state = model.commit(block, state)

    def draft(self, prompt, budget):
        model = self.model
        state = model.empty_state()
        if len(prompt) > 1:
            _, _, state = model.commit(prompt[:-1], state)
        logits, _, state = model.commit(prompt[-1:], state)
        pending = int(np.argmax(self.process(logits[-1], 1, [])))
        response, steps = [pending], [{'step': 'first', 'id': pending}]
        while pending not in self.stops and len(response) < budget:
            wanted, length, width = budget - len(response), len(response), self.width
            while width > wanted and width > 1:
                width //= 2
            candidates = [pending] + [model.mask] * (width - 1)
            if width > 1:
                logits, _ = model.preview(candidates, state, self.top_p)
                for row in range(1, width):
                    candidates[row] = int(np.argmax(self.process(logits[row], length + row, response)))
            logits, _, _ = model.commit(candidates, state)
            judged, accepted = [], 0
            for j in range(width - 1):
                row = self.process(logits[j], length + j + 1, response)
                p = softmax(row)
                entropy = -float(np.sum(p[p > 0] * np.log(p[p > 0])))
                c = candidates[j + 1]
                if self.exact:
                    accept = c == int(np.argmax(row))
                else:
                    accept = p[c] > 0 and p[c] >= min(self.ratio, self.delta * math.exp(-entropy))
                judged.append([c, float(p[c]), entropy, bool(accept)])
                if not accept:
                    break
                accepted += 1
            bonus = int(np.argmax(self.process(logits[accepted], length + accepted + 1, response)))
            steps.append({'step': 'round', 'pos': state.position, 'draft': candidates, 'judged': judged,
                          'accepted': accepted, 'bonus': bonus})
            out, ends = self.cut(candidates[1:accepted + 1] + [bonus], wanted)
            response += out
            if ends:
                break
            _, _, state = model.commit(candidates[:accepted + 1], state)                    # rewound to pending + accepted
            pending = bonus
        return response, steps
