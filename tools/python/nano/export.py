#!/usr/bin/env python3
# needs: torch==2.13.0 tokenizers==0.23.3 safetensors==0.8.* numpy gguf==0.19.*
"""export.py - nano from a checkpoint to its two file forms, and from one form to the other.

    export.py checkpoint build/nano build/nano/hf       a Hugging Face folder, matrices in BF16
    export.py gguf build/nano/hf build/nano/nano.gguf   that folder as a GGUF
    export.py hf golden/nano.gguf build/nano/hf         and back

What a GGUF stores otherwise is SPEC.md's [TEN-5] (1 + w), [TEN-6] (-exp(A_log)), [TEN-7] and [TEN-8] (tiled value heads); its keys
are those of [CFG-2], [CFG-12] and [TOK-6]. Norm weights are rounded to multiples of 2^-12, so that both forms hold the same number.
"""
import json
import os
import shutil
import sys

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))

from tokens import Tokens, write_tokenizer
from twin.files import load, save
from twin.model import Clover

ARCH = 'clover_moe'
GENERAL = {'model.embed_tokens.weight': 'token_embd.weight', 'model.norm.weight': 'output_norm.weight', 'lm_head.weight': 'output.weight'}
LAYER = {
    'input_layernorm.weight': 'attn_norm.weight', 'post_attention_layernorm.weight': 'post_attention_norm.weight',
    'self_attn.q_proj.weight': 'attn_q.weight', 'self_attn.k_proj.weight': 'attn_k.weight', 'self_attn.v_proj.weight': 'attn_v.weight',
    'self_attn.o_proj.weight': 'attn_output.weight', 'self_attn.q_norm.weight': 'attn_q_norm.weight', 'self_attn.k_norm.weight': 'attn_k_norm.weight',
    'linear_attn.in_proj_qkv.weight': 'attn_qkv.weight', 'linear_attn.in_proj_z.weight': 'attn_gate.weight',
    'linear_attn.in_proj_b.weight': 'ssm_beta.weight', 'linear_attn.in_proj_a.weight': 'ssm_alpha.weight',
    'linear_attn.conv1d.weight': 'ssm_conv1d.weight', 'linear_attn.dt_bias': 'ssm_dt.bias', 'linear_attn.A_log': 'ssm_a',
    'linear_attn.norm.weight': 'ssm_norm.weight', 'linear_attn.out_proj.weight': 'ssm_out.weight',
    'linear_attn.conv_right_weight': 'conv_right_weight', 'linear_attn.bd_softmax_logit_scale': 'bd_softmax_logit_scale',
    'linear_attn.bd_softmax_history_bias': 'bd_softmax_history_bias', 'linear_attn.bd_softmax_history_c': 'bd_softmax_history_c',
    'mlp.gate.weight': 'ffn_gate_inp.weight', 'mlp.experts.down_proj': 'ffn_down_exps.weight',
    'mlp.shared_expert.gate_proj.weight': 'ffn_gate_shexp.weight', 'mlp.shared_expert.up_proj.weight': 'ffn_up_shexp.weight',
    'mlp.shared_expert.down_proj.weight': 'ffn_down_shexp.weight', 'mlp.shared_expert_gate.weight': 'ffn_gate_inp_shexp.weight',
}
BY_HEAD = ('attn_gate.weight', 'ssm_beta.weight', 'ssm_alpha.weight', 'ssm_dt.bias', 'ssm_a', 'bd_softmax_logit_scale',
           'bd_softmax_history_bias', 'bd_softmax_history_c')
BY_CHANNEL = ('attn_qkv.weight', 'ssm_conv1d.weight', 'conv_right_weight')


def reorder(name, x, config, to_gguf):
    """Value heads grouped to tiled, or back: `name` is the GGUF's."""
    heads, group = config.value_heads, config.value_heads // config.key_heads
    tiled = [(p % config.key_heads) * group + p // config.key_heads for p in range(heads)]          # HF's head of GGUF's head p
    order = tiled if to_gguf else np.argsort(tiled)
    rows = (np.asarray(order)[:, None] * config.value_width + np.arange(config.value_width)).ravel()
    if name in BY_HEAD:
        return x[order] if len(x) == heads else x[rows]
    if name in BY_CHANNEL:
        first = 2 * config.key_heads * config.key_width
        return np.concatenate((x[:first], x[first:][rows]))
    return x[:, rows] if name == 'ssm_out.weight' else x


def to_bf16(x):
    """float32 to the bits of BF16; the values are BF16 numbers already."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    assert not (bits & 0xffff).any()
    return (bits >> 16).astype(np.uint16)


def from_checkpoint(folder, out):
    from train import nano_config
    tokens = Tokens(os.path.join(folder, 'tokenizer.json'))
    model = Clover(nano_config(tokens))
    model.load_state_dict(torch.load(os.path.join(folder, 'checkpoint.pt'), weights_only=False)['model'])
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith('norm.weight'):
                p.copy_((p * 4096).round() / 4096)
    save(model, out, torch.bfloat16, eos=tokens.end, pad=tokens.pad)
    for name in ('tokenizer.json', 'tokenizer_config.json'):
        shutil.copyfile(os.path.join(folder, name), os.path.join(out, name))


def to_gguf(folder, out):
    model = load(folder, torch.float32)
    c = model.config
    with open(os.path.join(folder, 'tokenizer.json'), encoding='utf-8') as file:
        tokenizer = json.load(file)
    with open(os.path.join(folder, 'tokenizer_config.json'), encoding='utf-8') as file:
        template = json.load(file)['chat_template']
    w = GGUFWriter(out + '.part', ARCH)
    w.add_string('general.name', 'nano')
    w.add_string('general.description', 'a small Clover, trained by tools/python/nano')
    integers = {
        'block_count': len(c.full_attention), 'context_length': c.context, 'embedding_length': c.hidden_size, 'attention.head_count': c.heads,
        'attention.head_count_kv': c.kv_heads, 'attention.key_length': c.head_width, 'attention.value_length': c.head_width,
        'rope.dimension_count': c.rotary_dims, 'expert_count': c.experts, 'expert_used_count': c.experts_used,
        'expert_feed_forward_length': c.expert_width, 'expert_shared_feed_forward_length': c.shared_width, 'expert_shared_count': 1,
        'ssm.conv_kernel': c.taps, 'ssm.state_size': c.key_width, 'ssm.group_count': c.key_heads, 'ssm.time_step_rank': c.value_heads,
        'ssm.inner_size': c.value_heads * c.value_width, 'full_attention_interval': c.full_attention.index(True) + 1,
        'diffusion.block_size': c.block_size, 'diffusion.mask_token_id': c.mask_id,
    }
    for name, value in integers.items():
        w.add_uint32(f'{ARCH}.{name}', value)
    w.add_array(f'{ARCH}.rope.dimension_sections', sections(c.rotary_dims))
    w.add_float32(f'{ARCH}.rope.freq_base', c.rope_base)
    w.add_float32(f'{ARCH}.attention.layer_norm_rms_epsilon', c.epsilon)
    w.add_float64(f'{ARCH}.diffusion.threshold', c.threshold)
    w.add_bool(f'{ARCH}.diffusion.coreset_enabled', c.coreset_top_p is not None)
    w.add_float64(f'{ARCH}.diffusion.coreset_top_p', 1.0 if c.coreset_top_p is None else c.coreset_top_p)
    w.add_string(f'{ARCH}.diffusion.head_order', 'tiled')
    vocabulary = {token: id for token, id in tokenizer['model']['vocab'].items()}
    special = {added['id']: added for added in tokenizer['added_tokens']}
    names = {id: token for token, id in vocabulary.items()} | {id: added['content'] for id, added in special.items()}
    w.add_tokenizer_model('gpt2')
    w.add_tokenizer_pre('qwen35')
    w.add_token_list([names[i] for i in range(c.vocab_size)])
    w.add_token_types([1 if i not in special else 3 if special[i]['special'] else 4 for i in range(c.vocab_size)])  # control, user's
    w.add_token_merges([m if isinstance(m, str) else ' '.join(m) for m in tokenizer['model']['merges']])
    ids = {added['content']: id for id, added in special.items()}
    w.add_eos_token_id(ids['<|im_end|>'])
    w.add_pad_token_id(ids['<|endoftext|>'])
    w.add_add_bos_token(False)
    w.add_chat_template(template)
    state = {name: t.numpy() for name, t in model.state_dict().items()}
    for name, x in state.items():
        if name in GENERAL:
            add_tensor(w, GENERAL[name], x, name.endswith('norm.weight'), c)
            continue
        _, _, layer, rest = name.split('.', 3)
        at = f'blk.{layer}.'
        if rest == 'mlp.experts.gate_up_proj':
            for part, rows in (('ffn_gate_exps', x[:, :c.expert_width]), ('ffn_up_exps', x[:, c.expert_width:])):
                add_tensor(w, at + part + '.weight', rows, False, c)
        else:
            add_tensor(w, at + LAYER[rest], x, rest.endswith('norm.weight') and not rest.startswith('linear_attn'), c)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    os.replace(out + '.part', out)


def sections(rotary_dims):
    """Rotary pairs over three axes, as evenly as Clover's own 11, 11, 10, 0."""
    pairs = rotary_dims // 2
    return [(pairs + 2) // 3, (pairs + 1) // 3, pairs // 3, 0]


def add_tensor(writer, name, x, shifted, c):
    bare = name.split('.', 2)[-1] if name.startswith('blk.') else name
    x = x.reshape([n for n in x.shape if n != 1]) if bare != 'ssm_a' else -np.exp(x.astype(np.float64)).astype(np.float32)
    x = reorder(bare, x + np.float32(1) if shifted else x, c, to_gguf=True)
    if x.ndim > 1 and bare not in ('ssm_conv1d.weight', 'conv_right_weight', 'ffn_gate_inp.weight'):
        writer.add_tensor(name, to_bf16(x), raw_shape=x.shape, raw_dtype=GGMLQuantizationType.BF16)
    else:
        writer.add_tensor(name, np.ascontiguousarray(x, dtype=np.float32))


def to_folder(path, out):
    """The Hugging Face form of a GGUF that to_gguf wrote."""
    from train import nano_config
    reader = GGUFReader(path)
    key = {name: field.contents() for name, field in reader.fields.items()}
    os.makedirs(out, exist_ok=True)
    write_tokenizer(os.path.join(out, 'tokenizer.json'), key['tokenizer.ggml.tokens'], key['tokenizer.ggml.merges'])
    tokens = Tokens(os.path.join(out, 'tokenizer.json'))
    c = nano_config(tokens)
    if key[f'{ARCH}.embedding_length'] != c.hidden_size or key[f'{ARCH}.block_count'] != len(c.full_attention):
        raise SystemExit(f'{path} is not of nano\'s sizes')
    files = {}
    for t in reader.tensors:
        data = np.asarray(t.data)
        if t.tensor_type == GGMLQuantizationType.BF16:
            data = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        files[t.name] = data.reshape([int(n) for n in reversed(t.shape)])
    model, state = Clover(c), {}
    for name, p in model.state_dict().items():
        layer = name.split('.')[2] if '.layers.' in name else ''
        rest = name.split('.', 3)[-1]
        if rest == 'mlp.experts.gate_up_proj':
            x = np.concatenate([files[f'blk.{layer}.{part}.weight'] for part in ('ffn_gate_exps', 'ffn_up_exps')], 1)
        else:
            gguf = GENERAL.get(name) or LAYER[rest]
            x = reorder(gguf, files[f'blk.{layer}.{gguf}' if layer else gguf], c, to_gguf=False)
        if name.endswith('norm.weight') and not rest.startswith('linear_attn'):
            x = x - np.float32(1)
        if rest == 'linear_attn.A_log':
            x = np.log(-x.astype(np.float64)).astype(np.float32)
        state[name] = torch.from_numpy(np.array(x)).reshape(p.shape)
    model.load_state_dict(state)
    save(model, out, torch.bfloat16, eos=tokens.end, pad=tokens.pad)


if __name__ == '__main__':
    if len(sys.argv) != 4 or sys.argv[1] not in ('checkpoint', 'gguf', 'hf'):
        sys.exit(__doc__)
    {'checkpoint': from_checkpoint, 'gguf': to_gguf, 'hf': to_folder}[sys.argv[1]](*sys.argv[2:])
