"""peer_adapters.py [--clover FILE] [--work DIR] [--libraries DIR]: other engines' dumps, made with the adapters of tools/python,
through `clover diff`.

For each model a golden of three causal steps (21 rows, 5 more, one more) with every probe. Then:

Transformers   in float32 under the profile f32, in bfloat16 under bf16 (the models' weights are bfloat16 numbers)
llama.cpp      F32, BF16 and Q8_0 files of the same random models, under the profile llama.cpp; from Python and from C
cortiq         the first preview's ten largest logits a row, without and with a coreset, by dump_cortiq.py; only if --cortiq names
               a program that is there (tools/python/dump_cortiq.py says how to get it: it takes too long to build here)

A right engine must conform, and show every stage that its adapter says it can see. Controls must differ, each at the stage
where its fault is: norms without their 1 +, a state lost between steps, one head norm 1% off, bfloat16 held to float32.
"""
# needs: torch==2.13.0 transformers==5.24.* llama-cpp-py-sync==0.11739 gguf==0.19.* safetensors==0.8.* numpy
import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import warnings

import numpy as np

from compare import SKIPPED

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', '..', 'tools', 'python'))

STEPS = {'prompt': [3, 17, 200, 5, 261, 7, 8, 9, 9, 9, 12, 13, 14, 155, 16, 17, 18, 19, 20, 0, 22],
         'more': [30, 31, 3, 33, 34], 'one': [35]}
PLAIN = ['--vocab', '272', '--seed', '2']
ODD = ['--vocab', '300', '--seed', '3', '--layers', '6', '--interval', '3', '--hidden', '160', '--heads', '6', '--kv-heads', '2',
       '--head-width', '24', '--rotary-dims', '12', '--key-heads', '2', '--value-heads', '6', '--experts', '12', '--experts-used', '3',
       '--expert-width', '48', '--shared-width', '80']

# What a hook on modules cannot see in Transformers: tools/python/README.md.
HIDDEN = {'gdn.g', 'gdn.conv', 'gdn.q', 'gdn.k', 'gdn.v', 'gdn.state', 'attn.q_rope', 'attn.k_rope', 'attn.context'}


def stage_of(probe):
    return probe.split('.', 1)[1] if probe[0] == 'L' and probe[1].isdigit() else probe


class Comparison:
    def __init__(self, clover, work):
        self.clover, self.work, self.good, self.ran = clover, work, True, 0

    def path(self, name):
        return os.path.join(self.work, 'adapters', name)

    def run(self, *arguments, codes=(0,)):
        done = subprocess.run([self.clover, *arguments], capture_output=True, text=True)
        if done.returncode not in codes:
            raise SystemExit(f'  FAIL {self.clover} {" ".join(arguments)}: exit code {done.returncode}: {done.stderr}')
        return done.stdout

    def synth(self, name, *options):
        path = self.path(name)
        self.run('synth', '-o', path, *options)
        return path

    def golden(self, model, name):
        cases = self.path(name + '-cases.json')
        with open(cases, 'w') as file:
            steps = [{'name': step, 'commit': ids} for step, ids in STEPS.items()]
            json.dump({'cases': [{'name': 'steps', 'probes': ['*'], 'steps': steps}]}, file)
        self.run('golden', model, '--cases', cases, '-o', self.path(name))
        return name

    def diff(self, golden, dump, map_name, profile):
        golden, dump = self.path(golden), self.path(dump)
        return json.loads(self.run('diff', golden, dump, '--map', map_name, '--profile', profile, '--json', codes=(0, 1)))

    def report(self, good, title, text):
        self.ran += 1
        self.good &= good
        print(f'  {"ok  " if good else "FAIL"} {title}: {text}', flush=True)

    def conforms(self, title, result, hidden=frozenset()):
        """Right: the verdict, every array's own verdict, and exactly the stages `hidden` not shown."""
        probes, margin = result['probes'], result['margin']['rms']
        others = [f'{p["step"]} {p["probe"]} ({p["verdict"]}, {p["passing_margin"]:.2g})'
                  for p in probes if p['verdict'] != 'conforms']
        missing = {stage_of(entry.split()[1]) for entry in result['not_compared'] if '(' not in entry}
        worst = max(probes, key=lambda p: p['passing_margin'])
        good = result['verdict'] == 'conforms' and not others and missing == hidden
        text = (f'{result["verdict"]} under {result["profile"]}, {len(probes)} arrays, worst {worst["passing_margin"]:.2g} '
                f'times the floor ({worst["step"]} {worst["probe"]}), margin {margin:g}')
        text += f'; {len(missing)} stages not shown' if missing else ''
        if others:
            text += f'; {len(others)} arrays do not conform: {"; ".join(others[:3])}'
        if missing != hidden:
            text += f'; not shown but expected: {" ".join(sorted(missing - hidden)) or "-"}'
            text += f'; shown but not expected: {" ".join(sorted(hidden - missing)) or "-"}'
        self.report(good, title, text)

    def differs(self, title, result, step, probe):
        first = result['first'] or {}
        good = result['verdict'] == 'differs' and (first.get('step'), first.get('probe')) == (step, probe)
        where = 'nowhere'
        if first:
            where = f'first at {first["step"]} {first["probe"]}, added {first["added"]:.2g}, budget {first["budget"]:.2g}'
        text = f'{result["verdict"]} under {result["profile"]}, {where}'
        self.report(good, f'{title}, control', text + ('' if good else f'; expected {step} {probe}'))


# ---- Transformers ---------------------------------------------------------------------------------------------------

def dump_transformers(model, folder, keep_state=True):
    import torch
    from dump_torch import Dumper
    state = None
    with Dumper(model) as dump, torch.no_grad():
        for step, ids in STEPS.items():
            out = model(input_ids=torch.tensor([ids]), past_key_values=state, use_cache=True)
            state = out.past_key_values if keep_state else None
            dump.save(os.path.join(folder, step + '.safetensors'), ids)


def plain_norms(model):
    """The fault: RMSNorm with w in place of 1 + w."""
    for module in model.modules():
        if type(module).__name__ == 'Qwen3_5MoeRMSNorm':
            module.weight.data -= 1


def transformers(comparison):
    import torch
    from safetensors.torch import load_file, save_file
    from peer_transformers import causal_copy, load
    import transformers as package
    torch.set_num_threads(1)
    package.logging.set_verbosity_error()
    package.logging.disable_progress_bar()
    warnings.filterwarnings('ignore')
    models = {'tiny-a': 'tests/vectors/tiny-a/hf',
              'plain': comparison.synth('plain-hf', '--form', 'hf', '--type', 'bf16', *PLAIN),
              'odd': comparison.synth('odd-hf', '--form', 'hf', '--type', 'bf16', *ODD)}
    for name, folder in models.items():
        golden, copy = comparison.golden(folder, name + '-hf-golden'), comparison.path(name + '-causal')
        causal_copy(folder, copy)
        for dtype, profile in ((torch.float32, 'f32'), (torch.bfloat16, 'bf16')):
            title, dump = f'{name}, Transformers {package.__version__} in {str(dtype)[6:]}', f'{name}-{profile}'
            dump_transformers(load(copy, dtype), comparison.path(dump))
            comparison.conforms(title, comparison.diff(golden, dump, 'transformers', profile), hidden=HIDDEN)
    for step in STEPS:   # written as float32, or the coarse storage would be granted to it
        path = os.path.join(comparison.path(dump), step + '.safetensors')
        save_file({key: value.float() if value.is_floating_point() else value for key, value in load_file(path).items()}, path)

    def control(fault, dump, step, probe):
        comparison.differs(f'{name}, Transformers, {fault}', comparison.diff(golden, dump, 'transformers', 'f32'), step, probe)

    control('bfloat16 held to float32', dump, 'prompt', 'L00.attn_norm')

    model = load(copy, torch.float32)
    dump_transformers(model, comparison.path('lost'), keep_state=False)
    control('state lost between steps', 'lost', 'more', 'L00.gdn.mixed')
    plain_norms(model)
    dump_transformers(model, comparison.path('plain-norms'))
    control('norms without 1 +', 'plain-norms', 'prompt', 'L00.attn_norm')


# ---- llama.cpp ------------------------------------------------------------------------------------------------------

def dump_llamacpp(comparison, arguments, model, golden, dump):
    command = [sys.executable, 'tools/python/dump_llamacpp.py', model, comparison.path(golden), comparison.path(dump)]
    done = subprocess.run([*command, '--libraries', arguments.libraries], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f'  FAIL dump_llamacpp.py on {model}: {done.stderr}')


def scaled_copy(source, target, tensor, factor):
    """A GGUF with one tensor of float32 scaled."""
    from gguf import GGUFReader
    shutil.copyfile(source, target)
    reader = GGUFReader(target, 'r+')
    data = next(t.data for t in reader.tensors if t.name == tensor)
    data *= np.float32(factor)     # in the mapped file
    reader.data.flush()


def llamacpp(comparison, arguments):
    files = ('plain', 'f32', PLAIN), ('odd', 'f32', ODD), ('plain', 'bf16', PLAIN), ('odd', 'bf16', ODD), ('plain', 'q8_0', PLAIN)
    for name, type_, options in files:
        model = comparison.synth(f'{name}-{type_}.gguf', '--arch', 'qwen35moe', '--type', type_, *options)
        golden, dump = comparison.golden(model, f'{name}-{type_}-golden'), f'{name}-{type_}-dump'
        dump_llamacpp(comparison, arguments, model, golden, dump)
        comparison.conforms(f'{name}, llama.cpp, {type_}', comparison.diff(golden, dump, 'llama.cpp', 'llama.cpp'))
    scaled = comparison.path('scaled.gguf')
    scaled_copy(comparison.path('plain-f32.gguf'), scaled, 'blk.0.ssm_norm.weight', 1.01)
    dump_llamacpp(comparison, arguments, scaled, 'plain-f32-golden', 'scaled')
    result = comparison.diff('plain-f32-golden', 'scaled', 'llama.cpp', 'llama.cpp')
    comparison.differs('plain, llama.cpp, one head norm 1% larger', result, 'prompt', 'L00.gdn.gated')


def callback_in_c(comparison, arguments):
    """tools/python/dump_callback.c, built against the libraries with the declarations that Python has, on the file `plain`."""
    from llama_cpp_py_sync import _cffi_bindings as declarations
    include, program, dump = (os.path.abspath(comparison.path(name)) for name in ('include', 'dump_callback', 'c-dump'))
    headers = {'llama.h': declarations._LLAMA_H_CDEF.replace('size_t moe_cache_size;', ''),
               'ggml.h': 'struct ggml_tensor { int type; void * buffer; int64_t ne[4]; size_t nb[4]; };\n'
                         'const char * ggml_get_name(const struct ggml_tensor *);\n'
                         'size_t ggml_nbytes(const struct ggml_tensor *);',
               'ggml-backend.h': 'void ggml_backend_tensor_get(const struct ggml_tensor *, void *, size_t, size_t);\n'
                                 'void ggml_backend_load_all(void);'}
    os.makedirs(include)
    for header, text in headers.items():
        with open(os.path.join(include, header), 'w') as file:
            file.write('#pragma once\n#include <stdbool.h>\n#include <stdint.h>\n#include <stdio.h>\n#include "llama.h"\n' + text)
    libraries = os.path.abspath(arguments.libraries)
    subprocess.run(['cc', '-std=c11', '-D_POSIX_C_SOURCE=200809L', '-Wall', '-Wextra', '-Werror', '-isystem', include,
                    'tools/python/dump_callback.c', '-o', program, '-L', libraries, f'-Wl,-rpath,{libraries}',
                    '-l:libllama.v0.4.0.so', '-l:libggml.v0.4.0.so', '-l:libggml-base.so'], check=True)
    steps = [f'{name}={",".join(map(str, ids))}' for name, ids in STEPS.items()]
    # Its backends are found in the working directory.
    model = os.path.abspath(comparison.path('plain-f32.gguf'))
    done = subprocess.run([program, model, dump, *steps], cwd=libraries, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f'  FAIL dump_callback: exit status {done.returncode}: {done.stderr[-500:]}')
    result = comparison.diff('plain-f32-golden', 'c-dump', 'llama.cpp', 'llama.cpp')
    comparison.conforms('plain, llama.cpp, f32, dump_callback.c', result)


# ---- cortiq ---------------------------------------------------------------------------------------------------------

def cortiq(comparison, program):
    def compare(first, model):
        return subprocess.run([sys.executable, 'tools/python/dump_cortiq.py', first, model, '--clover', comparison.clover],
                              capture_output=True, text=True)

    coreset = ('--form', 'hf', '--type', 'bf16', '--seed', '5', '--coreset-top-p')
    models = {'tiny-a': 'tests/vectors/tiny-a/hf', 'coreset': comparison.synth('coreset-hf', *coreset, '0.3')}
    for name, model in models.items():
        converted, first = (os.path.abspath(comparison.path(f'{name}.{ending}')) for ending in ('cmf', 'json'))
        environment = {**os.environ, 'CMF_CLOVER_MODE': 'denoise', 'CMF_CLOVER_DUMP': first}
        for command in (['convert', '--model', model, '--output', converted, '--quant', 'f16'],
                        ['run', converted, '--raw', '--prompt', 'Hello there', '--max-tokens', '1']):
            done = subprocess.run([program, *command], env=environment, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f'  FAIL cortiq {command[0]}: {done.stderr[-500:]}')
        done = compare(first, model)
        comparison.report(done.returncode == 0, f'{name}, cortiq', (done.stdout or done.stderr).strip())
    done = compare(first, comparison.synth('no-coreset-hf', *coreset, 'off'))
    good = done.returncode == 1 and done.stdout.startswith('differs')
    comparison.report(good, 'coreset, cortiq, held to a model without one, control', (done.stdout or done.stderr).strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--clover', default='build/clover')
    parser.add_argument('--work', default='build/peers/work')
    parser.add_argument('--libraries', default='build/peers/llama', help="llama.cpp's")
    parser.add_argument('--cortiq', default='build/peers/cortiq/bin/cortiq')
    arguments = parser.parse_args()
    comparison = Comparison(arguments.clover, arguments.work)
    shutil.rmtree(comparison.path(''), ignore_errors=True)
    os.makedirs(comparison.path(''))

    try:
        transformers(comparison)
    except ImportError as error:
        print(f'  skip Transformers: {error}')
    if glob.glob(os.path.join(arguments.libraries, 'libllama.*')):
        llamacpp(comparison, arguments)
        callback_in_c(comparison, arguments)
    else:
        print(f'  skip llama.cpp: no libraries in {arguments.libraries}')
    if os.access(arguments.cortiq, os.X_OK):
        cortiq(comparison, arguments.cortiq)
    else:
        print(f'  skip cortiq: there is no {arguments.cortiq}')
    return SKIPPED if comparison.ran == 0 else 0 if comparison.good else 1


if __name__ == '__main__':
    sys.exit(main())
