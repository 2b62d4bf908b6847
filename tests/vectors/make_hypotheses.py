#!/usr/bin/env python3
"""make_hypotheses.py - writes tests/vectors/hypotheses.safetensors: what engines with one mistake each would answer.

A mistake is an edit of tests/peers/numpy_model.py, a model that owes nothing to ref/ or tools/: the right text on the left, the
wrong one on the right. Each tensor is named "MISTAKE MODEL TOP_P" and holds the first 16 logits [5, 16] of the rows of a commit of two
and of a preview of three, both after a commit of four, from the first model on which the mistake changes them.
Needs numpy; run from the repository root.
"""
import os
import types

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, '..', 'peers', 'numpy_model.py'), encoding='utf-8') as file:
    SOURCE = file.read()
FOLDERS = {'three': 'shapes/three/hf', 'taps2': 'shapes/taps2/hf', 'recurrent': 'shapes/recurrent/hf', 'tiny-a': 'tiny-a/hf'}
FIRST, MORE, BLOCK = [3, 10, 17, 24], [5, 12], [9, 16, 23]

COARSE = '''

def coarse(x):
    bits = x.astype('<f4').view('<u4').astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16 << 16).astype('<u4').view('<f4').astype(x.dtype)
'''
MIXER, MOE, HEAD = "h + p['mixer']", "h + p['moe']", "probes['final_norm'] @ self.head.T"
Q_NORM, K_NORM = "rms_norm(p['attn.q'], w['q_norm'], self.epsilon)", "rms_norm(p['attn.k'], w['k_norm'], self.epsilon)"
Q_ROPE, K_ROPE = "self.rotate(p['attn.q_norm'], positions)", "self.rotate(p['attn.k_norm'], positions)"
VISIBLE, GATE = 'len(keys) if preview else position + t + 1', "context * sigmoid(p['attn.gate'])"
SOFTPLUS, RATE, CONV = "softplus(x @ w['a'].T + w['dt_bias'])", "-w['A'] *", "get(gdn + 'conv1d.weight').reshape(self.C, self.taps)"
L2 = 'x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6)'
L2_Q, L2_K = 'l2_norm(y[:, :K].reshape(T, self.Hk, self.dk))', 'l2_norm(y[:, K:2 * K].reshape(T, self.Hk, self.dk))'
DECAY, WRITE, READ = "                S[h] *= np.exp(p['gdn.g'][t, h])\n", 'S[h] += np.outer(k, d)', 'mixed[t, h] = S[h].T @ q / np.sqrt(self.real(self.dk))'
Z_GATE = "rms_norm(mixed, w['head_norm'], self.epsilon) * silu(p['gdn.z'])"
SCORE, SIZE, BIAS = "w['scale'][h] * (q @ k.T)", "w['history_c'][h] * np.log(self.real(n) / 32)", "w['history_bias'][h]"
SOFTMAX, HISTORY = 'weights[:, h] = softmax(slots)', '(q / np.sqrt(self.real(self.dk))) @ S[h]'
RANKED = "np.argsort(-np.where(kept == 1, p['moe.probs'][t], -1), kind='stable')[:k]"
COUNT, EXPERT = 'k = min(self.k, int(np.sum(kept)))', "(silu(w['gate'][e] @ x[t]) * (w['up'][e] @ x[t]))"
SHARED = "p['moe.shared_gate'] * p['moe.shared']"
LAYER_NORMS = ["get(at + 'input_layernorm.weight')", "get(at + 'post_attention_layernorm.weight')"]
FINAL_NORM, HEAD_NORMS = "get('norm.weight')", ["get(at + 'self_attn.q_norm.weight')", "get(at + 'self_attn.k_norm.weight')"]


def shift(names, by):
    return [('1 + ' + name, by + name) for name in names]


DELTA_RULE = """p['gdn.block_weights'] = weights
        S = S.copy()
        for t in range(n):
            for h in range(self.Hv):
                k = p['gdn.k'][t, h // (self.Hv // self.Hk)]
                S[h] *= np.exp(p['gdn.g'][t, h])
                S[h] += np.outer(k, p['gdn.beta'][t, h] * (p['gdn.v'][t, h] - k @ S[h]))
                mixed[t, h] = p['gdn.q'][t, h // (self.Hv // self.Hk)] @ S[h] / np.sqrt(self.real(self.dk))"""

MISTAKES = {
    'embedding_scaled': [('self.embed[np.array(ids)]', 'self.D ** 0.5 * self.embed[np.array(ids)]')],
    'residual_missing': [(MIXER, "p['mixer']"), (MOE, "p['moe']")],
    'post_norm_on_mixer_output': [(MIXER, "h + rms_norm(p['mixer'], w['ffn_norm'], self.epsilon)"),
                                  ("p['ffn_norm'] = rms_norm(h, w['ffn_norm'], self.epsilon)", "p['ffn_norm'] = h")],
    'logits_shifted_by_one': [(HEAD, "probes['final_norm'][[0] + list(range(len(h) - 1))] @ self.head.T")],
    'logits_capped': [(HEAD, f'30 * np.tanh({HEAD} / 30)')],
    'q_gate_flat': [('both[..., :width].copy(), both[..., width:].copy()', '(both.reshape(T, 2, self.H, width)[:, i] for i in (0, 1))')],
    'q_gate_swapped': [("p['attn.q'], p['attn.gate'] = both", "p['attn.gate'], p['attn.q'] = both")],
    'qk_norm_missing': [(Q_NORM, "p['attn.q']"), (K_NORM, "p['attn.k']")],
    'qk_norm_after_rope': [(Q_ROPE, "rms_norm(self.rotate(p['attn.q'], positions), w['q_norm'], self.epsilon)"),
                           (K_ROPE, "rms_norm(self.rotate(p['attn.k'], positions), w['k_norm'], self.epsilon)")],
    'rope_adjacent_pairs': [('a, b = x[..., :half], x[..., half:2 * half]', 'a, b = x[..., 0:2 * half:2], x[..., 1:2 * half:2]'),
                            ('y[..., :half] =', 'y[..., 0:2 * half:2] ='), ('y[..., half:2 * half] =', 'y[..., 1:2 * half:2] =')],
    'rope_all_dims': [('half = self.rotary // 2', 'half = self.width // 2'), ('dtype=self.real) / self.rotary', 'dtype=self.real) / self.width')],
    'rope_frequency_by_width': [('dtype=self.real) / self.rotary', 'dtype=self.real) / self.width')],
    'rope_frequency_bf16': [('np.outer(positions, frequency)', 'np.outer(positions, coarse(frequency))')],
    'rope_missing_on_k': [(K_ROPE, "p['attn.k_norm']")],
    'rope_query_off_by_one': [(Q_ROPE, "self.rotate(p['attn.q_norm'], positions + 1)")],
    'rope_base_10000': [("self.rope_base = rope['rope_theta']", 'self.rope_base = 10000')],
    'kv_heads_tiled': [('head // (self.H // self.KV)', 'head % self.KV')],
    'attention_scale_missing': [(' / np.sqrt(self.real(width))', '')],
    'attention_scale_by_width': [('np.sqrt(self.real(width))', 'self.real(width)')],
    'attention_mask_missing': [(VISIBLE, 'len(keys)')],
    'attention_gate_missing': [(GATE, 'context')],
    'attention_gate_silu': [(GATE, "context * silu(p['attn.gate'])")],
    'gdn_beta_doubled': [("p['gdn.beta'] = sigmoid", "p['gdn.beta'] = 2 * sigmoid")],
    'gdn_beta_bf16': [("sigmoid(x @ w['b'].T)", "coarse(sigmoid(x @ w['b'].T))")],
    'dt_bias_missing': [(SOFTPLUS, "softplus(x @ w['a'].T)")],
    'dt_bias_after_softplus': [(SOFTPLUS, "(softplus(x @ w['a'].T) + w['dt_bias'])")],
    'softplus_missing': [(SOFTPLUS, "(x @ w['a'].T + w['dt_bias'])")],
    'a_log_as_decay': [(RATE, "np.log(w['A']) *")],
    'a_exp_twice': [(RATE, "-np.exp(w['A']) *")],
    'a_exp_of_ssm_a': [(RATE, "-np.exp(-w['A']) *")],
    'conv_taps_reversed': [(CONV, CONV + '[:, ::-1]')],
    'conv_transposed': [(CONV, "get(gdn + 'conv1d.weight').reshape(self.taps, self.C).T")],
    'conv_without_silu': [("p['gdn.conv'] = silu(y)", "p['gdn.conv'] = y")],
    'l2_mean': [(L2, L2.replace('np.sum', 'np.mean'))],
    'l2_max_eps': [(L2, 'x / np.maximum(np.sqrt(np.sum(x * x, axis=-1, keepdims=True)), 1e-6)')],
    'l2_missing_on_q': [(L2_Q, L2_Q[8:-1])],
    'l2_missing_on_k': [(L2_K, L2_K[8:-1])],
    'gdn_qk_swapped': [('y[:, :K]', 'y[:, K + 0:2 * K]'), ('y[:, K:2 * K]', 'y[:, :K]')],
    'gdn_heads_tiled': [('h // (self.Hv // self.Hk)', 'h % self.Hk')],
    'gdn_read_before_write': [(WRITE, 'before = S[h].copy(); S[h] += np.outer(k, d)'), (READ, READ.replace('S[h]', 'before'))],
    'gdn_decay_after_update': [(DECAY, ''), (WRITE, "S[h] = np.exp(p['gdn.g'][t, h]) * (S[h] + np.outer(k, d))")],
    'gdn_decay_after_read': [(DECAY, ''), (WRITE, "S[h] = np.exp(p['gdn.g'][t, h]) * S[h] + np.outer(k, d)")],
    'gdn_decay_missing': [(DECAY, '')],
    'gdn_beta_missing': [("p['gdn.beta'][t, h] * (p['gdn.v']", "(p['gdn.v']")],
    'gdn_q_unscaled': [(READ, 'mixed[t, h] = S[h].T @ q'), (HISTORY, 'q @ S[h]')],
    'gdn_gate_before_norm': [(Z_GATE, "rms_norm(mixed * silu(p['gdn.z']), w['head_norm'], self.epsilon)")],
    'gdn_gate_sigmoid': [(Z_GATE, Z_GATE.replace('silu', 'sigmoid'))],
    'gdn_gate_missing': [(" * silu(p['gdn.z'])", '')],
    'gdn_norm_shifted': [("rms_norm(mixed, w['head_norm']", "rms_norm(mixed, 1 + w['head_norm']")],
    'preview_right_conv_missing': [("w['right'][:, d - 1] * u[d:] if d < n else 0", '0')],
    'preview_right_conv_reversed': [("w['right'][:, d - 1]", "w['right'][:, self.taps - 1 - d]")],
    'preview_logits_scaled': [(SCORE, SCORE + ' / np.sqrt(self.real(self.dk))')],
    'preview_logit_scale_missing': [(SCORE, 'q @ k.T')],
    'preview_gdn_causal': [(SOFTMAX, 'seen = np.tri(n, n + 1) + np.eye(1, n + 1, n) > 0; weights[:, h] = softmax(np.where(seen, slots, -np.inf))')],
    'preview_history_c_ignored': [(' + ' + SIZE, '')],
    'preview_history_bias_missing': [(BIAS + ' + ', '')],
    'preview_history_by_rows': [('np.log(self.real(n) / 32)', 'np.log(self.real(n))')],
    'preview_history_by_block': [('np.log(self.real(n) / 32)', 'np.log(self.real(n) / self.block)')],
    'preview_history_missing': [(SOFTMAX, 'weights[:, h, :n] = softmax(slots[:, :n])')],
    'preview_history_unread': [(' + weights[:, h, n:] * history', '')],
    'preview_history_unscaled': [(HISTORY, 'q @ S[h]')],
    'preview_history_not_decayed': [("np.exp(p['gdn.g'][:, h])[:, None] * ", '')],
    'preview_history_decay_summed': [("np.exp(p['gdn.g'][:, h])", "np.exp(np.cumsum(p['gdn.g'][:, h]))")],
    'preview_beta_on_v': [("weights[:, h, :n] @ p['gdn.v'][:, h]", "weights[:, h, :n] @ (p['gdn.beta'][:, h, None] * p['gdn.v'][:, h])")],
    'preview_delta_rule': [("p['gdn.block_weights'] = weights", DELTA_RULE)],
    'preview_attention_causal': [(VISIBLE, 'position + t + 1')],
    'preview_positions_from_zero': [('positions = position + np.arange(T)', 'positions = (0 if preview else position) + np.arange(T)')],
    'router_bf16': [("softmax(x @ w['router'].T)", "softmax(coarse(x @ w['router'].T))")],
    'router_sigmoid': [("softmax(x @ w['router'].T)", "sigmoid(x @ w['router'].T)")],
    'router_top_k_less_one': [(COUNT, COUNT.replace('self.k', 'self.k - 1'))],
    'router_not_renormalised': [(" / np.sum(p['moe.probs'][t, ranked])", '')],
    'coreset_ignored': [("kept = np.ones(self.experts) if top_p is None else self.coreset(p['moe.probs'], top_p)", 'kept = np.ones(self.experts)')],
    'coreset_in_commit': [('self.forward(ids, state, False, None)', 'self.forward(ids, state, False, TOP_P)')],
    'coreset_all_vote': [("np.argsort(-row, kind='stable')[:self.k]", 'range(self.experts)')],
    'coreset_votes_renormalised': [('totals[e] += row[e]', 'totals[e] += row[e] / np.sum(np.sort(row)[-self.k:])')],
    'coreset_crossing_dropped': [('before < top_p', 'before + totals[e] <= top_p')],
    'coreset_guard_16': [('rank == 0 or', 'rank < 16 or')],
    'coreset_not_obeyed': [(RANKED, "np.argsort(-p['moe.probs'][t], kind='stable')[:k]"), (COUNT, 'k = self.k')],
    'weight_on_expert_input': [('weight * (w[\'down\'][e] @ ' + EXPERT + ')', "w['down'][e] @ " + EXPERT.replace('x[t]', '(weight * x[t])'))],
    'gate_up_swapped': [(EXPERT, "(silu(w['up'][e] @ x[t]) * (w['gate'][e] @ x[t]))")],
    'expert_ids_off_by_one': [('zip(ranked, weights)', 'zip((ranked + 1) % self.experts, weights)')],
    'shared_gate_raw': [("sigmoid(x @ w['shared_expert_gate'].T)", "x @ w['shared_expert_gate'].T")],
    'shared_gate_missing': [(SHARED, "p['moe.shared']")],
    'shared_missing': [(' + ' + SHARED, '')],
    'eps_1e-5': [("self.epsilon = config['rms_norm_eps']", 'self.epsilon = 1e-5')],
    'norms_plain_weight': shift(LAYER_NORMS + [FINAL_NORM], ''),
    'norms_shifted_twice': shift(LAYER_NORMS + [FINAL_NORM], '2 + '),
    'final_norm_plain': shift([FINAL_NORM], ''),
    'final_norm_shifted_twice': shift([FINAL_NORM], '2 + '),
    'qk_norm_plain_weight': shift(HEAD_NORMS, ''),
    'qk_norm_shifted_twice': shift(HEAD_NORMS, '2 + '),
}


def answer(edits, folder, top_p):
    source = SOURCE
    for right, wrong in edits:
        assert right in source, right
        source = source.replace(right, wrong)
    module = types.ModuleType('wrong')
    exec(compile(source + COARSE, 'numpy_model.py, edited', 'exec'), module.__dict__)
    module.TOP_P = top_p
    model = module.Model(os.path.join(HERE, folder))
    _, _, state = model.commit(FIRST, model.empty_state())
    more, _, _ = model.commit(MORE, state)
    block, _ = model.preview(BLOCK, state, top_p)
    return np.concatenate([more, block])[:, :16]


def main():
    tensors, right = {}, {}
    for name, folder in FOLDERS.items():
        for top_p in (0.4, 0.6, 0.8):
            right[name, top_p] = answer([], folder, top_p)
    for mistake, edits in MISTAKES.items():
        best, key = 0, None
        for name, top_p in sorted(right, key=lambda pair: (pair[1], list(FOLDERS).index(pair[0]))):
            values = answer(edits, FOLDERS[name], top_p)
            off = np.max(np.abs(values - right[name, top_p]))
            if off > best and (key is None or name != 'tiny-a' and best < 1e-3):
                best, key, kept = off, (name, top_p), values
        assert key, mistake
        small = best < 1e-3                          # what float32 would hide is kept in float64
        tensors[f'{mistake} {key[0]} {key[1]}'] = kept if small else kept.astype(np.float32)
        print(f'{mistake}: {key[0]}, coreset {key[1]}, logits off by {best:.2g}')
    from_module = types.ModuleType('right')
    exec(compile(SOURCE, 'numpy_model.py', 'exec'), from_module.__dict__)
    from_module.write_safetensors(os.path.join(HERE, 'hypotheses.safetensors'), tensors)


if __name__ == '__main__':
    main()
