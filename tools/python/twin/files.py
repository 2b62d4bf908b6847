"""files.py - a model folder in Hugging Face's form: read and written under the vendor's names.

    model = load('folder', torch.float64)
    save(model, 'folder', torch.bfloat16)

config.json as in [CFG-2], [CFG-10], [CFG-11]; tensors as in [TEN-1] to [TEN-4]; safetensors as in [SFT-1] to [SFT-3]. What the
twin does not know is an error with its name: nothing is guessed.
"""
import json
import os
import re

import torch
from safetensors.torch import load_file, save_file

from .model import Clover, Config

CONTROLS = ('presence_penalty', 'frequency_penalty', 'repetition_penalty',
            'dllm_length_penalty', 'dllm_length_penalty_start', 'dllm_length_penalty_window',
            'dllm_think_end_bias', 'dllm_think_end_start', 'dllm_think_end_window', 'dllm_think_end_token_id')
DIFFUSION = ('conv_right_weight', 'bd_softmax_logit_scale', 'bd_softmax_history_bias', 'bd_softmax_history_c')
LEFT_OUT = re.compile(r'(mtp|visual|model\.visual)\.')                                              # [TEN-9]


def read_json(folder, name, default=None):
    path = os.path.join(folder, name)
    if default is not None and not os.path.exists(path):
        return default
    with open(path, encoding='utf-8') as file:
        return json.load(file)


def as_list(value):
    return [] if value is None else value if isinstance(value, list) else [value]


def config_of(top, generation, names):
    """[CFG-1] to [CFG-15] for a folder; `names`: its tensors', which tell whether the model is tied and has diffusion."""
    c = {**top, **top.get('text_config', {})}                                                       # [CFG-10]
    if c['model_type'] not in ('clover_moe', 'qwen3_5_moe', 'qwen3_5_moe_text'):
        raise ValueError(f'unsupported model_type {c["model_type"]}')
    rope = {**c, **c.get('rope_parameters', {})}
    refused = {'norm_topk_prob': True, 'num_shared_experts': 1, 'attention_bias': False, 'attn_output_gate': True, 'hidden_act': 'silu'}
    for name, value in refused.items():                                                             # [CFG-7]
        if c.get(name, value) != value:
            raise ValueError(f'unsupported: {name} {c[name]}')
    if rope.get('rope_type', 'default') != 'default' or c.get('rope_scaling'):
        raise ValueError('unsupported: rope scaling')
    denoising = c.get('denoising_config', {})
    if denoising.get('algorithm', 'low_confidence') != 'low_confidence':
        raise ValueError(f'unsupported: denoising algorithm {denoising["algorithm"]}')
    layers = c['num_hidden_layers']
    if 'layer_types' in c:                                                                          # [CFG-3]
        full = [{'full_attention': True, 'linear_attention': False}[kind] for kind in c['layer_types']]
    else:
        full = [(i + 1) % c['full_attention_interval'] == 0 for i in range(layers)]
    if len(full) != layers:
        raise ValueError(f'layer_types has {len(full)} entries for {layers} layers')
    stops = as_list(generation.get('eos_token_id', c.get('eos_token_id'))) + as_list(generation.get('stop_token_ids'))
    stops += as_list(generation.get('pad_token_id', c.get('pad_token_id')))                         # [CFG-14]
    return Config(
        hidden_size=c['hidden_size'], vocab_size=c['vocab_size'], full_attention=full, heads=c['num_attention_heads'],
        kv_heads=c['num_key_value_heads'], head_width=c['head_dim'], rotary_dims=round(c['head_dim'] * rope['partial_rotary_factor']),
        rope_base=rope['rope_theta'], key_heads=c['linear_num_key_heads'], value_heads=c['linear_num_value_heads'],
        key_width=c['linear_key_head_dim'], value_width=c['linear_value_head_dim'], taps=c['linear_conv_kernel_dim'],
        experts=c['num_experts'], experts_used=c['num_experts_per_tok'], expert_width=c['moe_intermediate_size'],
        shared_width=c['shared_expert_intermediate_size'], epsilon=c['rms_norm_eps'], context=c['max_position_embeddings'],
        tied='lm_head.weight' not in names, diffusion=any(name.endswith(DIFFUSION) for name in names),
        block_size=c.get('block_size', 32), mask_id=c.get('mask_token_id'), threshold=denoising.get('threshold', 0.95),
        coreset_top_p=c.get('moe_block_coreset_top_p', 1.0) if c.get('moe_block_coreset_enabled') else None,
        stop_ids=sorted(set(stops)), controls={name: generation[name] for name in CONTROLS if name in generation})


def read_tensors(folder):
    """Every tensor of the model under `model.…`, experts joined ([TEN-2], [SFT-3])."""
    index = read_json(folder, 'model.safetensors.index.json', {})
    files = sorted(set(index['weight_map'].values())) if index else sorted(f for f in os.listdir(folder) if f.endswith('.safetensors'))
    tensors = {}
    for file in files:
        tensors.update(load_file(os.path.join(folder, file)))
    tensors = {re.sub(r'^model\.language_model\.', 'model.', name): t for name, t in tensors.items() if not LEFT_OUT.match(name)}
    tensors = {re.sub(r'(linear_attn\.\w+)\.weight$', lambda m: m[1] if m[1].endswith(DIFFUSION) else m[0], name): t
               for name, t in tensors.items()}
    separate = {}
    for name in [name for name in tensors if re.search(r'\.experts\.\d+\.', name)]:
        layer, expert, part = re.fullmatch(r'(.*\.experts)\.(\d+)\.(\w+)_proj\.weight', name).groups()
        separate.setdefault(layer, {})[int(expert), part] = tensors.pop(name)
    for layer, parts in separate.items():
        count = 1 + max(expert for expert, _ in parts)
        tensors[layer + '.gate_up_proj'] = torch.stack([torch.cat((parts[e, 'gate'], parts[e, 'up'])) for e in range(count)])
        tensors[layer + '.down_proj'] = torch.stack([parts[e, 'down'] for e in range(count)])
    return tensors


def load(folder, dtype=torch.float64):
    tensors = read_tensors(folder)
    config = config_of(read_json(folder, 'config.json'), read_json(folder, 'generation_config.json', {}), tensors)
    model = Clover(config).to(dtype)
    model.load_state_dict(tensors)                                                                  # names and shapes, all of them
    return model.requires_grad_(False)


def config_json(c, dtype):
    return {
        'architectures': ['CloverMoeModelLM'], 'model_type': 'clover_moe', 'hidden_size': c.hidden_size,
        'num_hidden_layers': len(c.full_attention), 'num_attention_heads': c.heads, 'num_key_value_heads': c.kv_heads,
        'head_dim': c.head_width, 'vocab_size': c.vocab_size, 'rms_norm_eps': c.epsilon, 'hidden_act': 'silu',
        'attn_output_gate': True, 'attention_bias': False,
        'layer_types': ['full_attention' if full else 'linear_attention' for full in c.full_attention],
        'linear_conv_kernel_dim': c.taps, 'linear_key_head_dim': c.key_width, 'linear_value_head_dim': c.value_width,
        'linear_num_key_heads': c.key_heads, 'linear_num_value_heads': c.value_heads, 'num_experts': c.experts,
        'num_experts_per_tok': c.experts_used, 'moe_intermediate_size': c.expert_width,
        'shared_expert_intermediate_size': c.shared_width, 'norm_topk_prob': True, 'num_shared_experts': 1,
        'max_position_embeddings': c.context, 'tie_word_embeddings': c.tied,
        'rope_parameters': {'rope_theta': c.rope_base, 'rope_type': 'default', 'partial_rotary_factor': c.rotary_dims / c.head_width},
        'torch_dtype': str(dtype).removeprefix('torch.'), 'block_size': c.block_size, 'mask_token_id': c.mask_id,
        'denoising_config': {'algorithm': 'low_confidence', 'threshold': c.threshold},
        'moe_block_coreset_enabled': c.coreset_top_p is not None,
        'moe_block_coreset_top_p': 1.0 if c.coreset_top_p is None else c.coreset_top_p,
    }


def save(model, folder, dtype=torch.bfloat16, eos=None, pad=None):
    """Norms and other vectors keep float32; matrices get `dtype`."""
    os.makedirs(folder, exist_ok=True)
    tensors = {name: t.detach().to(dtype if t.squeeze().ndim > 1 and 'conv' not in name else torch.float32).contiguous()
               for name, t in model.state_dict().items()}
    save_file(tensors, os.path.join(folder, 'model.safetensors'), metadata={'format': 'pt'})
    generation = {'eos_token_id': as_list(eos), 'pad_token_id': pad, **model.config.controls}
    for name, value in (('config.json', config_json(model.config, dtype)), ('generation_config.json', generation)):
        with open(os.path.join(folder, name), 'w', encoding='utf-8') as file:
            json.dump(value, file, indent=1)
            file.write('\n')
