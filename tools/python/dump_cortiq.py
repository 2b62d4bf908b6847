"""dump_cortiq.py FIRST.json MODEL: cortiq's first preview against the reference's.

    cortiq convert MODEL --output model.cmf --quant f32
    CMF_CLOVER_DUMP=first.json CMF_CLOVER_MODE=denoise cortiq run model.cmf --raw --prompt 'Hello' --max-tokens 1
    python dump_cortiq.py first.json MODEL

cortiq writes no stages: it shows the prompt's ids and, of each row of the first denoising pass (a block of masks after the
committed prompt), the ten largest raw logits. That is too little for `clover diff`, so the comparison is made here:
`clover logits` computes the same preview, exactly and as a float32 engine does, and cortiq may be 16 times as far from the
exact logits as float32 is at its worst. MODEL is the folder or GGUF that the .cmf was made of. An id among the ten that is not
among the reference's ten must be a near tie there. Exit status: 0 conforms, 1 differs.
"""
# needs: safetensors==0.8.* numpy
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

MARGIN = 16     # the diff's, for worst elements: SPEC.md, DIF-5


def preview(clover, model, prompt, block, numerics):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([clover, 'logits', model, '--ids', ','.join(map(str, prompt)), '--preview', ','.join(map(str, block)),
                        '--numerics', numerics, '-o', folder], check=True, stdout=subprocess.DEVNULL)
        return load_file(os.path.join(folder, 'preview.safetensors'))['logits'].astype(np.float64)     # [n, V]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('first')
    parser.add_argument('model')
    parser.add_argument('--clover', default='build/clover')
    arguments = parser.parse_args()
    with open(arguments.first) as file:
        first = json.load(file)
    config = json.loads(subprocess.run([arguments.clover, 'inspect', arguments.model, '--json'], check=True, capture_output=True).stdout)['config']
    block = [config['mask_id']] * len(first['rows'])
    exact, single = (preview(arguments.clover, arguments.model, first['prompt_ids'], block, numerics) for numerics in ('exact', 'f32'))

    bound = MARGIN * max(np.abs(single - exact).max(), np.abs(exact).max() * 2.0 ** -24)
    ids = np.array([row['ids'] for row in first['rows']])                                                  # [n, 10]
    theirs = np.array([row['logits'] for row in first['rows']], np.float64)
    apart = np.abs(theirs - np.take_along_axis(exact, ids, 1))
    tenth = np.sort(exact, 1)[:, -ids.shape[1]]                                                            # the reference's last of the ten
    short = np.maximum(tenth[:, None] - np.take_along_axis(exact, ids, 1), 0)                              # how far below it theirs are
    good = bool(apart.max() <= bound and short.max() <= 2 * bound)                                         # a NaN is no conformance
    row, column = np.unravel_index(apart.argmax(), apart.shape)
    print(f'{"conforms" if good else "differs"}: {len(ids)} rows x {ids.shape[1]} logits after {len(first["prompt_ids"])} tokens; worst |difference| {apart.max():.2g} '
          f'(row {row}, id {ids[row, column]}: expected {exact[row, ids[row, column]]:.9g}, found {theirs[row, column]:.9g}), bound {bound:.2g}; '
          f'{int((short > 0).sum())} ids not among the reference\'s, by {short.max():.2g} at most; argmax differs in {int((exact.argmax(1) != ids[:, 0]).sum())}')
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
