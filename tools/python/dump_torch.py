"""dump_torch.py - dumps what every module of a torch model computes, for `clover diff`.

    from dump_torch import Dumper
    with Dumper(model) as dump:                  # any nn.Module: Transformers, the vendor's own code, vLLM, SGLang
        model(input_ids=ids)
        dump.save('my-dump/prompt.safetensors', ids)
        model(input_ids=block, ...)              # the next step of the golden
        dump.save('my-dump/block.safetensors', block)

    clover diff GOLDEN my-dump --map transformers

One file a step, in the type that the engine computed in: each module's output under the module's name; of several outputs the
first, the others as NAME.1, NAME.2, … where they are no larger (attention weights are); its first input under NAME.input.

It sees what passes between modules. It cannot see what happens inside one: in Transformers the convolution, the decay, L2
norms, the recurrent state, rotated queries and keys. An engine with fused modules shows less; what is not shown is counted as
not compared. A module that runs several times in a step keeps its last values. Compiled or captured graphs run no hooks: run
the model eagerly.
"""
import os

import torch
from safetensors.torch import save_file

SAVED = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32)


class Dumper:
    """Hooks every module of `model` while it is open. keep: which modules, by name (their values all stay in memory until save)."""

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
            given, results = tensors(args) or tensors(kwargs.get('hidden_states')), tensors(output)
            if given:
                self._take(f'{name}.input', given[0])
            for i, result in enumerate(results):
                if result.numel() <= results[0].numel():
                    self._take(f'{name}.{i}' if i else name, result)
        return hook

    def _take(self, name, tensor):
        if tensor.dtype in SAVED:
            self.values[name] = tensor.detach().to('cpu', copy=True).contiguous()

    def save(self, path, ids):
        """Writes what the hooks saw since the last save. ids: the step's input, any shape."""
        os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
        ids = torch.as_tensor(ids, dtype=torch.int64).reshape(-1).to('cpu', copy=True)
        save_file({**self.values, 'ids': ids}, path + '.partial')
        os.replace(path + '.partial', path)
        self.values = {}


def tensors(value):
    """The tensors of what a module was given or gave: one, or those in a tuple, list or output object."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [item for item in value if isinstance(item, torch.Tensor)] if isinstance(value, (tuple, list)) else []
