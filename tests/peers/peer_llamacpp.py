"""peer_llamacpp.py MODEL.gguf OURS [--libraries DIR] [--work DIR] [--name NAME] [--float32 FILE]:
our causal logits against those of llama.cpp.

MODEL.gguf is the file that `clover logits` read, OURS the folder it wrote. llama.cpp reads a copy under the base family's
name (rename_gguf.py). It evaluates our ids in two ways, which take different code in it:

batched      each of our steps as one batch, the second over the state that the first left
one by one   a batch for each token, so that every row goes through the recurrent form

LLAMA_CPU names the CPU backend (haswell, zen4, skylakex, …); without it the first that this CPU can run is taken.
"""
# needs: llama-cpp-py-sync==0.11739 gguf==0.19.* safetensors==0.8.* numpy
import argparse
import os
import sys

import numpy as np

from compare import FLOAT32_LOG_P, SKIPPED, Step, compare_logits

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', '..', 'tools', 'python'))
try:
    import dump_llamacpp
    from rename_gguf import rename
except ImportError as error:
    print(f'  skip llama.cpp: {error}')
    sys.exit(SKIPPED)

TIMES_FLOAT32 = 4      # the bound, in units of what float32 costs Transformers on the same weights: README.md, "Bounds"


class Llama(dump_llamacpp.Llama):
    def logits(self, model, batches):
        """Evaluate the batches of ids one after the other from an empty state: logits [T, V], float32."""
        library, total, largest = self.library, sum(map(len, batches)), max(map(len, batches))
        parameters = library.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = max(total, 64), largest, largest
        parameters.n_seq_max = parameters.n_threads = parameters.n_threads_batch = 1
        parameters.flash_attn_type = library.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.type_k = parameters.type_v = library.GGML_TYPE_F32
        parameters.offload_kqv = parameters.op_offload = False
        context = library.llama_init_from_model(model, parameters)
        if not context:
            raise SystemExit('  FAIL llama.cpp cannot make a context')
        vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
        batch, rows, position = library.llama_batch_init(largest, 0, 1), [], 0
        for ids in batches:
            batch.n_tokens = len(ids)
            for row, token in enumerate(ids):
                batch.token[row], batch.pos[row], batch.logits[row] = int(token), position + row, True
                batch.n_seq_id[row], batch.seq_id[row][0] = 1, 0
            status = library.llama_decode(context, batch)
            if status:
                raise SystemExit(f'  FAIL llama_decode returned {status}')
            values = self.ffi.buffer(library.llama_get_logits(context), len(ids) * vocabulary * 4)
            rows.append(np.frombuffer(values, np.float32).reshape(len(ids), vocabulary).copy())
            position += len(ids)
        library.llama_batch_free(batch)
        library.llama_free(context)
        return np.concatenate(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('model')
    parser.add_argument('ours')
    parser.add_argument('--libraries', default='build/peers/llama')
    parser.add_argument('--work', default='build/peers/work')
    parser.add_argument('--name', help='the model, in what is printed')
    parser.add_argument('--float32', help="peer_transformers.py's file on the same weights: what float32 costs")
    arguments = parser.parse_args()
    name = arguments.name or os.path.basename(arguments.model).removesuffix('.gguf')

    ours = Step(arguments.ours)
    os.makedirs(arguments.work, exist_ok=True)
    renamed = os.path.join(arguments.work, name + '-qwen35moe.gguf')
    rename(arguments.model, renamed)

    try:
        llama = Llama(arguments.libraries)
    except dump_llamacpp.Unavailable as error:
        print(f'  skip llama.cpp: {error}')
        return SKIPPED
    model = llama.open(renamed)
    bound = FLOAT32_LOG_P
    if arguments.float32 and os.path.exists(arguments.float32):
        with open(arguments.float32) as file:
            bound = min(bound, TIMES_FLOAT32 * float(file.read()))
    steps = np.split(ours.ids, np.cumsum(ours.sizes)[:-1])
    single = [[token] for token in ours.ids]
    title = f'{name}, llama.cpp ({llama.backend})'
    good = compare_logits(f'{title}, batched', ours.logits, llama.logits(model, steps), bound)
    good &= compare_logits(f'{title}, one by one', ours.logits, llama.logits(model, single), bound)
    llama.library.llama_model_free(model)
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
