"""dump_torch.py - dumps what every module of a torch model computes, for `clover diff`.

    from dump_torch import Dumper
    with Dumper(model) as dump:                  # any nn.Module: Transformers, the vendor's own code, vLLM, SGLang
        model(input_ids=ids)
        dump.save('my-dump/prompt.safetensors', ids)
        model(input_ids=block, ...)              # the next step of the golden
        dump.save('my-dump/block.safetensors', block)

    clover diff GOLDEN my-dump --map transformers

One file a step: each module's output under the module's name, and its first input under NAME.input, in the type that the
engine computed in.

It sees what passes between modules. It cannot see what happens inside one: the convolution, the gate values, L2 norms, the
recurrent state, rotated queries, router probabilities. An engine with fused modules shows less; what is not shown is
counted as not compared. A module that runs several times in a step keeps its last values.
"""
import os

import torch
from safetensors.torch import save_file


class Dumper:
    """Hooks every module of `model` while it is open."""

    def __init__(self, model, keep=lambda name: True):
        self.model, self.keep, self.values, self.hooks = model, keep, {}, []

    def __enter__(self):
        for name, module in self.model.named_modules():
            if name and self.keep(name):
                self.hooks.append(module.register_forward_hook(self._hook(name), with_kwargs=True))
        return self

    def __exit__(self, *_):
        for hook in self.hooks:
            hook.remove()
        self.hooks.clear()

    def _hook(self, name):
        def hook(module, args, kwargs, output):
            given = first_tensor(args) if args else first_tensor(kwargs.get('hidden_states'))
            result = first_tensor(output)
            if given is not None:
                self.values[f'{name}.input'] = given.detach().to('cpu', copy=True)
            if result is not None:
                self.values[name] = result.detach().to('cpu', copy=True)
        return hook

    def save(self, path, ids):
        """Writes what the hooks saw since the last save. ids: the step's input, any shape."""
        os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
        arrays = {name: value.contiguous() for name, value in self.values.items() if value.dtype in FLOATS or value.dtype == torch.int64}
        arrays['ids'] = torch.as_tensor(ids, dtype=torch.int64).reshape(-1).contiguous().clone()
        save_file(arrays, path + '.partial')
        os.replace(path + '.partial', path)
        self.values = {}


FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def first_tensor(value):
    """A module's main tensor: itself, or the first in a tuple, list or output object."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            if isinstance(item, torch.Tensor):
                return item
    return None
