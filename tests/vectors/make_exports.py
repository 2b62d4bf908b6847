"""make_exports.py: drifts/exports.json, what a right export of drifts/hf holds in four types.

From the folder's tensors with numpy, by the rules of SPEC section 3 ([TEN-5] to [TEN-7]), and quantised by the PyPI package
gguf (0.19.0, quants.quantize); of each tensor's bytes the first 16 digits of their SHA-256, its shape and its type. Run in tests/vectors.
"""
import hashlib
import json

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import quantize
from safetensors.numpy import load_file

HF, CONFIG = load_file('drifts/hf/model.safetensors'), json.load(open('drifts/hf/config.json'))
HK, HV = CONFIG['linear_num_key_heads'], CONFIG['linear_num_value_heads']
DV, K = CONFIG['linear_value_head_dim'], HK * CONFIG['linear_key_head_dim']
TILED = [(p % HK) * (HV // HK) + p // HK for p in range(HV)]


def tile(x, width, axis=0, start=0):
    head, rest = np.split(x, [start], axis)
    parts = np.split(rest, HV, axis)
    assert parts[0].shape[axis] == width
    return np.concatenate([head] + [parts[h] for h in TILED], axis)


def layer(n):
    h = lambda name: HF[f'model.layers.{n}.{name}'].astype(np.float32)
    out = {'attn_norm.weight': 1 + h('input_layernorm.weight'), 'post_attention_norm.weight': 1 + h('post_attention_layernorm.weight')}
    if CONFIG['layer_types'][n] == 'full_attention':
        for g, name in (('q', 'q_proj'), ('k', 'k_proj'), ('v', 'v_proj'), ('output', 'o_proj')):
            out[f'attn_{g}.weight'] = h(f'self_attn.{name}.weight')
        for g in 'qk':
            out[f'attn_{g}_norm.weight'] = 1 + h(f'self_attn.{g}_norm.weight')
    else:
        g = lambda name: h(f'linear_attn.{name}')
        out |= {'attn_qkv.weight': tile(g('in_proj_qkv.weight'), DV, start=2 * K), 'attn_gate.weight': tile(g('in_proj_z.weight'), DV),
                'ssm_beta.weight': tile(g('in_proj_b.weight'), 1), 'ssm_alpha.weight': tile(g('in_proj_a.weight'), 1),
                'ssm_conv1d.weight': tile(g('conv1d.weight')[:, 0], DV, start=2 * K), 'ssm_dt.bias': tile(g('dt_bias'), 1),
                'ssm_norm.weight': g('norm.weight'), 'ssm_a': tile(-np.exp(g('A_log').astype(np.float64)), 1).astype(np.float32),
                'ssm_out.weight': tile(g('out_proj.weight'), DV, axis=1), 'conv_right_weight': tile(g('conv_right_weight'), DV, start=2 * K)}
        for name in ('bd_softmax_logit_scale', 'bd_softmax_history_bias', 'bd_softmax_history_c'):
            out[name] = tile(g(name), 1)
    gate, up = np.split(h('mlp.experts.gate_up_proj'), 2, 1)
    out |= {'ffn_gate_inp.weight': h('mlp.gate.weight'), 'ffn_gate_exps.weight': gate, 'ffn_up_exps.weight': up, 'ffn_down_exps.weight': h('mlp.experts.down_proj'),
            'ffn_gate_inp_shexp.weight': h('mlp.shared_expert_gate.weight')[0]}
    for g in ('gate', 'up', 'down'):
        out[f'ffn_{g}_shexp.weight'] = h(f'mlp.shared_expert.{g}_proj.weight')
    return {f'blk.{n}.{name}': x for name, x in out.items()}


def plain(name, x):
    """Stored in F32 whatever the file's type: norms, vectors, conv, router, shared gate, diffusion."""
    return x.ndim == 1 or any(part in name for part in ('conv', 'ffn_gate_inp'))


tensors = {'token_embd.weight': HF['model.embed_tokens.weight'].astype(np.float32), 'output_norm.weight': 1 + HF['model.norm.weight'].astype(np.float32),
           'output.weight': HF['lm_head.weight'].astype(np.float32)}
for n in range(CONFIG['num_hidden_layers']):
    tensors |= layer(n)
result = {}
for kind in (Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0):
    of = result[kind.name] = {}
    for name, x in tensors.items():
        if name.startswith(('blk.1.', 'blk.2.')) and kind not in (Type.Q8_0, Type.Q4_0):
            continue
        t = Type.F32 if plain(name, x) else kind
        x = np.ascontiguousarray(x, np.float32)
        data = x if t == Type.F32 else x.astype(np.float16) if t == Type.F16 else quantize(x, t)
        of[name] = [t.name, 'x'.join(map(str, x.shape)), hashlib.sha256(data.tobytes()).hexdigest()[:16]]
text = json.dumps(result).replace('], "', '],\n"')
open('drifts/exports.json', 'w').write(text + '\n')
