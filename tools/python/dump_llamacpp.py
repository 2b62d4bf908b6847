"""dump_llamacpp.py MODEL.gguf GOLDEN OUT: dumps the nodes of llama.cpp's graph for the steps of a golden, for `clover diff`.

    clover golden model.gguf --ids 1,2,3 --then 4,5 --probes '*' -o golden
    python dump_llamacpp.py model.gguf golden my-dump
    clover diff golden my-dump --map llama.cpp --profile llama.cpp

The values come from llama.cpp's evaluation callback (cb_eval), which is asked about every node of the graph before it is
computed and shown it afterwards. One file a step: each node of NODES under the name that llama.cpp gives it, NAME-LAYER,
in float32 (expert ids in int32), its dims slowest first; and `ids`. A name that occurs again in a step, as Kcur does before
and after its rotation, stands for the last; earlier ones of other values are NAME-LAYER.1, .2, … in their order.

It sees nearly every stage of a causal step. llama.cpp has no preview, so a golden's previews are left out. Its value heads
are in a GGUF's order; the map undoes that. dump_callback.c is the same callback for those who build llama.cpp themselves.

Libraries: bins/linux-x64 of the npm package @node-llama-cpp/linux-x64 3.21.1, opened with the declarations of the PyPI
package llama-cpp-py-sync 0.11739. LLAMA_CPU names a CPU backend; without it the first that this CPU runs is taken.
"""
# needs: llama-cpp-py-sync==0.11739 safetensors==0.8.* numpy
import argparse
import json
import os
import sys

import numpy as np
from cffi import FFI
from llama_cpp_py_sync import _cffi_bindings as declarations
from safetensors.numpy import save_file

NODES = set('''
    model.input_embed attn_norm attn_residual attn_post_norm attn_output l_out result_norm result_output
    Qcur_full Kcur Vcur Qcur_normed Kcur_normed Qcur attn_pregate attn_gated
    linear_attn_qkv_mixed z beta_sigmoid gate conv_output_silu q_conv_predelta k_conv_predelta v_conv_predelta new_state
    final_output linear_attn_out
    ffn_moe_probs ffn_moe_topk ffn_moe_weights_norm ffn_moe_out ffn_shexp shared_expert_gate_sigmoid ffn_out
'''.split())
BACKENDS = ('haswell', 'sandybridge', 'sse42', 'x64')  # in this order: each needs less of the CPU than the one before
F32, I32 = 0, 26                                       # ggml's numbers of the two types that such nodes have

# What is read of ggml_tensor: its first fields. The rest of it changes between versions; the functions hide it.
GGML = '''
    struct tensor_head { int type; void * buffer; int64_t ne[4]; size_t nb[4]; };   /* ne, nb: dims, strides in bytes; fastest first */
    void * ggml_backend_load(const char *);
    const char * ggml_get_name(const struct ggml_tensor *);
    size_t ggml_nbytes(const struct ggml_tensor *);
    void ggml_backend_tensor_get(const struct ggml_tensor *, void *, size_t, size_t);
'''


class Unavailable(Exception):
    """llama.cpp cannot run here."""


class Llama:
    """libllama, opened with the declarations of a Python package whose own library is not used."""

    def __init__(self, libraries):
        self.ffi = FFI()
        # The package's header is a little newer than the library: its context parameters have one field more.
        self.ffi.cdef(declarations._LLAMA_H_CDEF.replace('size_t moe_cache_size;', '') + GGML)
        self.library = self.ffi.dlopen(os.path.join(libraries, 'libllama.v0.4.0.so'))
        self.ggml = self.ffi.dlopen(os.path.join(libraries, 'libggml-base.so'))
        backends = self.ffi.dlopen(os.path.join(libraries, 'libggml.v0.4.0.so'))
        self.log = self.ffi.callback('void(enum ggml_log_level, const char *, void *)', self._log)
        self.library.llama_log_set(self.log, self.ffi.NULL)
        wanted = [os.environ['LLAMA_CPU']] if 'LLAMA_CPU' in os.environ else BACKENDS
        self.backend = next((name for name in wanted if backends.ggml_backend_load(
            os.fsencode(os.path.join(libraries, f'libggml-cpu-{name}.so')))), None)
        if not self.backend:
            raise Unavailable(f'this CPU runs none of the backends {", ".join(wanted)}; name another in LLAMA_CPU')
        self.library.llama_backend_init()

    def _log(self, level, text, _):
        if level >= 3:  # warnings and errors
            os.write(2, self.ffi.string(text))

    def open(self, path):
        parameters = self.library.llama_model_default_params()
        parameters.n_gpu_layers = 0
        model = self.library.llama_model_load_from_file(os.fsencode(path), parameters)
        if not model:
            raise SystemExit(f'llama.cpp cannot load {path}')
        return model

    def value(self, tensor):
        """A node's values, dims slowest first; None for one of another type. A view's elements lie apart: its strides say where."""
        head = self.ffi.cast('struct tensor_head *', tensor)
        if head.type not in (F32, I32):
            return None
        size = self.ggml.ggml_nbytes(tensor)            # from the first element to the end of the last
        raw = np.empty(size // 4, np.float32 if head.type == F32 else np.int32)
        self.ggml.ggml_backend_tensor_get(tensor, self.ffi.from_buffer(raw), 0, size)
        return np.lib.stride_tricks.as_strided(raw, list(head.ne)[::-1], list(head.nb)[::-1]).copy()


class Run:
    """Steps, one after the other, from an empty state."""

    def __init__(self, llama, model, rows, context, f16_cache=False):
        self.llama, self.library, self.nodes, self.position = llama, llama.library, {}, 0
        self.callback = llama.ffi.callback('bool(struct ggml_tensor *, bool, void *)', self._node)
        parameters = self.library.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = max(context, 64), rows, rows   # one ubatch: a node has all rows of a step
        parameters.n_seq_max = parameters.n_threads = parameters.n_threads_batch = 1
        parameters.flash_attn_type = self.library.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.type_k = parameters.type_v = self.library.GGML_TYPE_F16 if f16_cache else self.library.GGML_TYPE_F32
        parameters.offload_kqv = parameters.op_offload = False
        parameters.cb_eval = self.callback
        self.context = self.library.llama_init_from_model(model, parameters)
        if not self.context:
            raise SystemExit('llama.cpp cannot make a context')
        self.batch = self.library.llama_batch_init(rows, 0, 1)

    def _node(self, tensor, ask, _):
        """The callback. Asked: is this node wanted? Later: its values are there."""
        name = self.llama.ffi.string(self.llama.ggml.ggml_get_name(tensor)).decode()
        stem, _, layer = name.rpartition('-')
        wanted = (stem if layer.isdigit() else name) in NODES
        if not ask and wanted:
            value = self.llama.value(tensor)
            if value is not None:
                values = self.nodes.setdefault(name, [])
                if values and np.array_equal(values[-1].reshape(-1), value.reshape(-1)):
                    values.pop()                        # the same in another shape
                values.append(value)
        return wanted or not ask    # False to a node that is shown would end the evaluation

    def step(self, ids):
        """Commits ids; every wanted node of the step by its name."""
        self.nodes.clear()
        self.batch.n_tokens = len(ids)
        for row, token in enumerate(ids):
            self.batch.token[row], self.batch.pos[row], self.batch.logits[row] = token, self.position + row, True
            self.batch.n_seq_id[row], self.batch.seq_id[row][0] = 1, 0
        status = self.library.llama_decode(self.context, self.batch)
        if status:
            raise SystemExit(f'llama_decode returned {status}')
        self.position += len(ids)
        out = {'ids': np.array(ids, np.int64)}
        for name, values in self.nodes.items():
            out.update({f'{name}.{i}': value for i, value in enumerate(values[:-1], 1)})
            out[name] = values[-1]
        return out

    def close(self):
        self.library.llama_batch_free(self.batch)
        self.library.llama_free(self.context)


def commits(case):
    """The steps (name, ids) of a golden's case up to the first that llama.cpp cannot follow, and what that is."""
    steps = []
    for step in case['steps']:
        if 'commit' in step:
            steps.append((step['name'], step['commit']))
        elif 'restore' in step:
            return steps, 'a restore'
    return steps, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('model')
    parser.add_argument('golden')
    parser.add_argument('out')
    parser.add_argument('--libraries', default='build/peers/llama', help='the folder of libllama.v0.4.0.so (%(default)s)')
    parser.add_argument('--f16-cache', action='store_true', help="keys and values in float16, llama.cpp's default")
    arguments = parser.parse_args()

    with open(os.path.join(arguments.golden, 'manifest.json')) as file:
        cases = json.load(file)['cases']
    llama = Llama(arguments.libraries)
    model = llama.open(arguments.model)
    for case in cases:
        steps, end = commits(case)
        if not steps:
            continue
        folder = os.path.join(arguments.out, case['folder'])
        os.makedirs(folder, exist_ok=True)
        run = Run(llama, model, max(len(ids) for _, ids in steps), sum(len(ids) for _, ids in steps), arguments.f16_cache)
        for name, ids in steps:
            arrays = run.step(ids)
            save_file({key: np.ascontiguousarray(value) for key, value in arrays.items()}, os.path.join(folder, name + '.safetensors'))
            print(f'{case["name"]}/{name}: {len(ids)} rows, {len(arrays)} arrays')
        run.close()
        if end:
            print(f'{case["name"]}: not followed beyond {end}')
    llama.library.llama_model_free(model)
    return 0


if __name__ == '__main__':
    sys.exit(main())
