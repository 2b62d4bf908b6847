"""peer_transformers.py MODEL_FOLDER OURS [--work DIR] [--name NAME] [--float32 FILE]: our causal logits
against those of Hugging Face Transformers.

MODEL_FOLDER is the Hugging Face folder that `clover logits` read, OURS the folder it wrote. Two comparisons:

float32  Transformers as it is: its whole path in float32. It shows that the class and the weights are the right ones.
float64  the same code, with every mention of float32 in it read as float64. What remains is the order of summation, so
         the bound can be seven digits tighter, and each probe is compared as well: rules, not just outcomes.

A control follows: with every norm's epsilon a thousandth larger, the float64 comparison must fail.
What float32 costs this model, Transformers against itself, goes to FILE, for peers that have float32 only.

The model's class is Qwen3_5MoeForCausalLM: the base family that Clover's trunk comes from. It knows no diffusion, so its
copy of the folder (under --work) gets the base family's model_type and loses the four diffusion tensors of each layer.
"""
# needs: torch==2.13.0 transformers==5.24.* safetensors==0.8.* numpy
import argparse
import glob
import itertools
import json
import os
import sys
import warnings

import numpy as np

from compare import FLOAT32_LOG_P, SKIPPED, Step, compare_logits, compare_probes, log_probs

try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as modeling
except ImportError as error:
    print(f'  skip Transformers: {error}')
    sys.exit(SKIPPED)

# Why these: README.md, "Bounds".
FLOAT64_LOG_P = 1e-10
FLOAT64_PROBE = 1e-11

DIFFUSION = ('conv_right_weight', 'bd_softmax_logit_scale', 'bd_softmax_history_bias', 'bd_softmax_history_c')


def causal_copy(source, target):
    """Write `source` to `target` as a model of the base family."""
    os.makedirs(target, exist_ok=True)
    with open(os.path.join(source, 'config.json')) as file:
        config = json.load(file)
    config = config.get('text_config', config)
    config.update(model_type='qwen3_5_moe_text', architectures=['Qwen3_5MoeForCausalLM'])
    with open(os.path.join(target, 'config.json'), 'w') as file:
        json.dump(config, file, indent=1)
    tensors = {}
    for part in sorted(glob.glob(os.path.join(source, '*.safetensors'))):
        tensors.update(load_file(part))
    kept = {name.replace('model.language_model.', 'model.'): tensor for name, tensor in tensors.items()
            if not name.removesuffix('.weight').endswith(DIFFUSION)}
    save_file(kept, os.path.join(target, 'model.safetensors'), metadata={'format': 'pt'})


def load(folder, dtype):
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation='eager', experts_implementation='eager', output_loading_info=True)
    left = {key: value for key, value in loading.items() if value}
    if left:  # a tensor that Transformers did not use, or made up, would make the comparison worthless
        raise SystemExit(f'  FAIL Transformers did not load the folder as it is: {left}')
    return model.eval()


class TorchInFloat64:
    """torch, except that its two names for float32 mean float64. Transformers' own formulas then run in double."""

    def __getattr__(self, name):
        return torch.float64 if name in ('float', 'float32') else getattr(torch, name)


def read_float32_as_float64():
    modeling.torch = TorchInFloat64()
    torch.Tensor.float = torch.Tensor.double


def watch(model):
    """Fill the returned dictionary, when `model` runs, with its values under the names of our probes."""
    seen = {}
    config = model.config

    def keep(name, tensor):
        seen[name] = tensor.detach().double().numpy()

    def output_of(module, name, change=lambda tensor: tensor):
        def hook(_, __, output):
            keep(name, change(output[0] if isinstance(output, tuple) else output))
        module.register_forward_hook(hook)

    def input_of(module, name):
        module.register_forward_pre_hook(lambda _, inputs: keep(name, inputs[0]))

    def watch_router(router, at):
        def hook(_, __, output):
            logits, weights, ids = output
            keep(at + 'moe.probs', logits.softmax(-1))
            keep(at + 'moe.weights', weights)
            keep(at + 'moe.ids', ids)
        router.register_forward_hook(hook)

    def watch_query(projection, at):  # each head's rows: its query, then its gate
        def hook(_, __, output):
            query, gate = output.view(*output.shape[:-1], config.num_attention_heads, 2, config.head_dim).unbind(-2)
            keep(at + 'attn.q', query)
            keep(at + 'attn.gate', gate)
        projection.register_forward_hook(hook)

    output_of(model.model.embed_tokens, 'embed')
    for index, layer in enumerate(model.model.layers):
        at = f'L{index:02d}.'
        output_of(layer.input_layernorm, at + 'attn_norm')
        if layer.block_type == 'linear_attention':
            mixer = layer.linear_attn
            output_of(mixer.in_proj_qkv, at + 'gdn.qkv')
            output_of(mixer.in_proj_z, at + 'gdn.z')
            output_of(mixer.in_proj_b, at + 'gdn.beta', torch.sigmoid)
            input_of(mixer.norm, at + 'gdn.mixed')
            output_of(mixer.norm, at + 'gdn.gated')
        else:
            mixer = layer.self_attn
            watch_query(mixer.q_proj, at)
            output_of(mixer.k_proj, at + 'attn.k')
            output_of(mixer.v_proj, at + 'attn.v')
            output_of(mixer.q_norm, at + 'attn.q_norm')
            output_of(mixer.k_norm, at + 'attn.k_norm')
            input_of(mixer.o_proj, at + 'attn.gated')
        output_of(mixer, at + 'mixer')
        input_of(layer.post_attention_layernorm, at + 'mixer_residual')
        output_of(layer.post_attention_layernorm, at + 'ffn_norm')
        watch_router(layer.mlp.gate, at)
        output_of(layer.mlp.experts, at + 'moe.routed')
        output_of(layer.mlp.shared_expert, at + 'moe.shared')
        output_of(layer.mlp.shared_expert_gate, at + 'moe.shared_gate', torch.sigmoid)
        output_of(layer.mlp, at + 'moe')
        output_of(layer, at + 'out')
    output_of(model.model.norm, 'final_norm')

    # Three steps are functions, not modules: watch them by standing in for them. Layers run in order, so going round the
    # layers of a kind says which one is calling.
    def layers_of(kind):
        return itertools.cycle([f'L{i:02d}.' for i, layer in enumerate(model.model.layers) if layer.block_type == kind])

    recurrent, rotating, attending = layers_of('linear_attention'), layers_of('full_attention'), layers_of('full_attention')
    delta_rule, rotate, attend = (modeling.torch_chunk_gated_delta_rule, modeling.apply_rotary_pos_emb,
                                  modeling.eager_attention_forward)

    def watched_delta_rule(query, key, value, g, **rest):
        at = next(recurrent)
        keep(at + 'gdn.g', g)
        keep(at + 'gdn.conv', torch.cat([part.flatten(2) for part in (query, key, value)], dim=-1))
        keep(at + 'gdn.q', modeling.l2norm(query))
        keep(at + 'gdn.k', modeling.l2norm(key))
        keep(at + 'gdn.v', value)
        mixed, state = delta_rule(query, key, value, g=g, **{**rest, 'output_final_state': True})
        keep(at + 'gdn.state', state)
        return mixed, state

    def watched_rotate(query, key, *rest, **options):
        at = next(rotating)
        query, key = rotate(query, key, *rest, **options)          # [1, heads, T, width]
        keep(at + 'attn.q_rope', query.transpose(1, 2))
        keep(at + 'attn.k_rope', key.transpose(1, 2))
        return query, key

    def watched_attend(*arguments, **options):
        context, weights = attend(*arguments, **options)           # [1, T, heads, width]
        keep(next(attending) + 'attn.context', context)
        return context, weights

    modeling.torch_chunk_gated_delta_rule = watched_delta_rule
    modeling.apply_rotary_pos_emb = watched_rotate
    modeling.eager_attention_forward = watched_attend
    return seen


def run(model, ids):
    """Causal logits [T, V] of all rows in one pass: our `--then` step continued a state, this has none to continue."""
    with torch.no_grad():
        return model(torch.tensor(ids)[None], use_cache=False).logits[0].double().numpy()


def control(title, model, ours):
    """A comparison that cannot fail shows nothing: a rule that is wrong by very little must be over the bound."""
    for module in model.modules():
        for name in ('eps', 'variance_epsilon'):
            if hasattr(module, name):
                setattr(module, name, getattr(module, name) * 1.001)
    apart = np.abs(log_probs(ours.logits) - log_probs(run(model, ours.ids))).max()
    good = bool(apart > FLOAT64_LOG_P)
    print(f'  {"ok  " if good else "FAIL"} {title}, control: epsilon 0.1% larger moves log p by {apart:.2g}, '
          f'{"over" if good else "within"} the bound of {FLOAT64_LOG_P:.2g}')
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('model')
    parser.add_argument('ours')
    parser.add_argument('--work', default='build/peers/work')
    parser.add_argument('--name', help='the model, in what is printed')
    parser.add_argument('--float32', help='the file to write: what float32 costs this model')
    arguments = parser.parse_args()
    name = arguments.name or os.path.basename(os.path.normpath(arguments.model))

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings('ignore')

    ours = Step(arguments.ours)
    copy = os.path.join(arguments.work, name + '-transformers')
    causal_copy(arguments.model, copy)

    single = run(load(copy, torch.float32), ours.ids)
    read_float32_as_float64()
    model = load(copy, torch.float64)
    seen = watch(model)
    double = run(model, ours.ids)

    cost = np.abs(log_probs(single) - log_probs(double)).max()
    if arguments.float32:
        with open(arguments.float32, 'w') as file:
            print(cost, file=file)
    title = f'{name}, Transformers {transformers.__version__}'
    good = compare_logits(f'{title} in float32', ours.logits, single, FLOAT32_LOG_P)
    good &= compare_logits(f'{title} in float64', ours.logits, double, FLOAT64_LOG_P)
    good &= compare_probes(f'{title} in float64', ours.probes, seen, FLOAT64_PROBE)
    good &= control(title, model, ours)
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
