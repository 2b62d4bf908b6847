#!/usr/bin/env python3
"""make_shapes.py - writes tests/vectors/shapes: three small random models of shapes far from tiny-a's, what numpy_model.py
(float64) says of their steps, and decode runs. Nothing of it comes from ref/. Needs numpy; run from the repository root.

Each number is computed again in the 80-bit type: it must agree to 1e-12, and every run must take the same decisions.
"""
import json
import os
import shutil
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'peers'))
from numpy_model import Decoder, Model, write_safetensors  # noqa: E402

V, STOP, PAD, THINK_END, MASK = 32, 28, 29, 30, 31

# interval 2: GDN, attention. Three query heads on one KV head of an odd multiple; one GDN key head for three value heads; an odd
# block, so that a draft's width is halved to 2 and 1.
THREE = dict(D=12, layers=2, interval=2, H=3, KV=1, width=12, rotary=6, base=10000.0, Hk=1, Hv=3, dk=6, dv=10, taps=3, E=5, k=3,
             F=6, shared=10, block=5, coreset=None, tied=False, threshold=0.95, seed=3)
# Two taps, dv < dk, as many value as key heads, all dims rotated, and the coreset on in the config.
TAPS2 = dict(D=10, layers=3, interval=3, H=4, KV=2, width=4, rotary=4, base=1e6, Hk=2, Hv=2, dk=6, dv=4, taps=2, E=6, k=2,
             F=9, shared=5, block=8, coreset=0.5, tied=False, threshold=0.8, seed=2)
# No attention at all, four value heads a key head, five taps, a tied head; a block of 7 is halved to 3 and 1.
RECURRENT = dict(D=11, layers=2, interval=5, H=1, KV=1, width=8, rotary=4, base=1e7, Hk=1, Hv=4, dk=5, dv=3, taps=5, E=9, k=4,
                 F=6, shared=9, block=7, coreset=None, tied=True, threshold=0.6, seed=1)

CONTROLS = dict(presence_penalty=0.5, frequency_penalty=0.3, repetition_penalty=1.2,
                dllm_length_penalty=12.0, dllm_length_penalty_start=4, dllm_length_penalty_window=16,
                dllm_think_end_bias=8.0, dllm_think_end_start=2, dllm_think_end_window=6,
                dllm_think_end_token_id=THINK_END)
# Name, model, mode, prompt, budget, controls, options in traces.json's words.
RUNS = [
    ('ar-controls', 'hf', 'ar', [5, 9, 2], 16, CONTROLS, {}),
    ('denoise', 'hf', 'denoise', [4, 8, 15, 16], 14, {}, {}),
    ('denoise-controls', 'hf', 'denoise', [7], 18, CONTROLS, {'thr': 0.4}),
    ('denoise-block-coreset', 'hf', 'denoise', [1, 2], 12, {}, {'block': 6, 'coreset_top_p': 0.3, 'thr': 0.9}),
    ('draft-exact', 'hf', 'draft', [3, 3, 7], 12, {}, {'exact': True}),
    ('draft-default', 'hf-flat', 'draft', [20, 6, 1], 20, {}, {}),
    ('draft-width-controls', 'hf-flat', 'draft', [11, 12, 13], 18, CONTROLS, {'block': 8, 'width': 4, 'ratio': 0.05, 'delta': 0.9}),
    ('draft-coreset', 'hf-flat', 'draft', [10], 10, {}, {'coreset_top_p': 0.6, 'ratio': 0.03, 'delta': 5.0}),
]


def config_of(s):
    types = ['full_attention' if (i + 1) % s['interval'] == 0 else 'linear_attention' for i in range(s['layers'])]
    return {
        'architectures': ['CloverMoeModelLM'], 'model_type': 'clover_moe', 'hidden_size': s['D'], 'num_hidden_layers': s['layers'],
        'num_attention_heads': s['H'], 'num_key_value_heads': s['KV'], 'head_dim': s['width'], 'vocab_size': V,
        'rms_norm_eps': 1e-6,
        'hidden_act': 'silu', 'attn_output_gate': True, 'attention_bias': False, 'full_attention_interval': s['interval'],
        'layer_types': types, 'linear_conv_kernel_dim': s['taps'], 'linear_key_head_dim': s['dk'], 'linear_value_head_dim': s['dv'],
        'linear_num_key_heads': s['Hk'], 'linear_num_value_heads': s['Hv'], 'num_experts': s['E'], 'num_experts_per_tok': s['k'],
        'moe_intermediate_size': s['F'], 'shared_expert_intermediate_size': s['shared'], 'norm_topk_prob': True,
        'num_shared_experts': 1, 'max_position_embeddings': 256, 'tie_word_embeddings': s['tied'],
        'rope_parameters': {'rope_theta': s['base'], 'rope_type': 'default', 'partial_rotary_factor': s['rotary'] / s['width']},
        'torch_dtype': 'float32', 'eos_token_id': STOP, 'pad_token_id': PAD, 'block_size': s['block'], 'mask_token_id': MASK,
        'denoising_config': {'algorithm': 'low_confidence', 'threshold': s['threshold']},
        'moe_block_coreset_enabled': s['coreset'] is not None, 'moe_block_coreset_top_p': s['coreset'] or 1.0}


def weights_of(s):
    """Random float32 tensors; matrices scaled by their columns, so that every stage has numbers of about one."""
    rng = np.random.default_rng(s['seed'])
    D, K, W = s['D'], s['Hk'] * s['dk'], s['Hv'] * s['dv']
    tensors = {}

    def put(name, *shape, scale=None, middle=0.0):
        scale = 1 / np.sqrt(shape[-1]) if scale is None else scale
        tensors[name] = (middle + scale * rng.standard_normal(shape)).astype(np.float32)
    put('model.embed_tokens.weight', V, D, scale=0.6 if s['tied'] else 1.0)
    put('model.norm.weight', D, scale=0.2, middle=1.0 if s['tied'] else 0.0)
    if not s['tied']:
        put('lm_head.weight', V, D, scale=4 / np.sqrt(D))
    for i in range(s['layers']):
        at = f'model.layers.{i}.'
        put(at + 'input_layernorm.weight', D, scale=0.2)
        put(at + 'post_attention_layernorm.weight', D, scale=0.2)
        if (i + 1) % s['interval'] == 0:
            put(at + 'self_attn.q_proj.weight', 2 * s['H'] * s['width'], D)
            put(at + 'self_attn.k_proj.weight', s['KV'] * s['width'], D)
            put(at + 'self_attn.v_proj.weight', s['KV'] * s['width'], D)
            put(at + 'self_attn.o_proj.weight', D, s['H'] * s['width'])
            put(at + 'self_attn.q_norm.weight', s['width'], scale=0.2)
            put(at + 'self_attn.k_norm.weight', s['width'], scale=0.2)
        else:
            gdn = at + 'linear_attn.'
            put(gdn + 'in_proj_qkv.weight', 2 * K + W, D)
            put(gdn + 'in_proj_z.weight', W, D)
            put(gdn + 'in_proj_b.weight', s['Hv'], D)
            put(gdn + 'in_proj_a.weight', s['Hv'], D)
            put(gdn + 'conv1d.weight', 2 * K + W, 1, s['taps'])
            put(gdn + 'dt_bias', s['Hv'], scale=0.5)
            put(gdn + 'A_log', s['Hv'], scale=0.7, middle=-0.5)
            put(gdn + 'norm.weight', s['dv'], scale=0.2, middle=1.0)
            put(gdn + 'out_proj.weight', D, W)
            put(gdn + 'conv_right_weight', 2 * K + W, s['taps'] - 1)
            put(gdn + 'bd_softmax_logit_scale', s['Hv'], scale=0.5, middle=2.0)
            put(gdn + 'bd_softmax_history_bias', s['Hv'], scale=0.5, middle=1.0)
            put(gdn + 'bd_softmax_history_c', s['Hv'], scale=0.4)
        put(at + 'mlp.gate.weight', s['E'], D, scale=1.5 / np.sqrt(D))
        put(at + 'mlp.experts.gate_up_proj', s['E'], 2 * s['F'], D)
        put(at + 'mlp.experts.down_proj', s['E'], D, s['F'])
        for name, shape in (('gate', (s['shared'], D)), ('up', (s['shared'], D)), ('down', (D, s['shared']))):
            put(f'{at}mlp.shared_expert.{name}_proj.weight', *shape)
        put(at + 'mlp.shared_expert_gate.weight', 1, D)
    return tensors


def steps_of(model, seed):
    """The seven steps. Each but preview_coreset uses the config's coreset."""
    rng = np.random.default_rng(100 + seed)

    def ids(n):
        return rng.integers(0, STOP, n).tolist()

    def block(n, resolved):
        rows = [MASK] * n
        for row in resolved:
            rows[row] = ids(1)[0]
        return rows
    n = model.block
    steps = {}
    _, steps['causal'], state = model.commit(ids(4), model.empty_state())
    _, steps['causal_continued'], _ = model.commit(ids(2), state)
    _, steps['preview_full'] = model.preview(block(n, (0, 2, n - 2)), state, model.top_p)
    _, steps['preview_8rows'] = model.preview(block(8, (3,)), state, model.top_p)
    _, steps['preview_1row'] = model.preview(block(1, ()), state, model.top_p)
    _, steps['preview_coreset'] = model.preview(block(3, (1,)), state, 0.5)
    _, steps['preview_empty_prefix'] = model.preview(block(2, ()), model.empty_state(), model.top_p)
    return steps


def flat(model):
    model.head = model.head / 16
    return model


def run(model, mode, prompt, budget, controls, options):
    settings = {'top_p': model.top_p}
    settings.update({{'thr': 'threshold', 'coreset_top_p': 'top_p'}.get(key, key): value for key, value in options.items()})
    return getattr(Decoder(model, [STOP, PAD], controls, **settings), mode)(prompt, budget)


def assert_near(a, b, what):
    if isinstance(a, dict):
        assert set(a) == set(b), what
        for key in a:
            assert_near(a[key], b[key], f'{what}.{key}')
    elif isinstance(a, list):
        assert len(a) == len(b), what
        for x, y in zip(a, b):
            assert_near(x, y, what)
    elif isinstance(a, float):
        assert abs(a - b) <= 1e-12, (what, a, b)
    else:
        assert a == b, (what, a, b)


def write(name, shape):
    folder = os.path.join(HERE, 'shapes', name)
    shutil.rmtree(folder, ignore_errors=True)
    hf, expected = os.path.join(folder, 'hf'), os.path.join(folder, 'expected-hf')
    os.makedirs(hf)
    os.makedirs(expected)
    write_safetensors(os.path.join(hf, 'model.safetensors'), weights_of(shape))
    with open(os.path.join(hf, 'config.json'), 'w', encoding='utf-8') as file:
        file.write(json.dumps(config_of(shape), indent=1) + '\n')
    with open(os.path.join(hf, 'generation_config.json'), 'w', encoding='utf-8') as file:
        file.write(json.dumps({'eos_token_id': [STOP], 'pad_token_id': PAD}, indent=1) + '\n')
    steps = steps_of(Model(hf), shape['seed'])
    for step, precise in steps_of(Model(hf, np.longdouble), shape['seed']).items():
        for probe, values in precise.items():
            assert np.max(np.abs(values - steps[step][probe])) <= 1e-12, (name, step, probe)
        write_safetensors(os.path.join(expected, step + '.safetensors'), steps[step])
    cases = []
    for title, which, mode, prompt, budget, controls, options in RUNS:
        models = [Model(hf), Model(hf, np.longdouble)]
        if which == 'hf-flat':
            models = [flat(model) for model in models]
        tokens, trace = run(models[0], mode, prompt, budget, controls, options)
        assert_near(list(run(models[1], mode, prompt, budget, controls, options)), [tokens, trace], f'{name} {title}')
        cases.append({'name': title, 'model': which, 'mode': mode, 'prompt': prompt, 'max_tokens': budget, 'controls': controls,
                      'options': options, 'tokens': tokens, 'steps': trace})
        print(f'{name} {title}: {len(tokens)} tokens, {len(trace)} steps, '
              f'{sum(step.get("accepted", 0) for step in trace)} accepted, ends with {tokens[-1]}')
    head = json.dumps({'model': name, 'mask': MASK, 'stop': [STOP, PAD], 'block': shape['block']})[:-1]
    with open(os.path.join(folder, 'traces.json'), 'w', encoding='utf-8') as file:
        file.write(head + ', "cases": [\n' + ',\n'.join(json.dumps(case, separators=(',', ':')) for case in cases) + '\n]}\n')


if __name__ == '__main__':
    for name, shape in (('three', THREE), ('taps2', TAPS2), ('recurrent', RECURRENT)):
        write(name, shape)
