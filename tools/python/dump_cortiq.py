"""dump_cortiq.py FIRST.json MODEL: cortiq's first preview against the reference's.

    cortiq convert --model MODEL --output model.cmf --quant f16
    CMF_CLOVER_DUMP=first.json CMF_CLOVER_MODE=denoise cortiq run model.cmf --raw --prompt 'Hello' --max-tokens 1
    python dump_cortiq.py first.json MODEL

cortiq writes no stages: it shows the prompt's ids and, of each row of the first denoising pass (a block of masks after the
committed prompt), the ten largest raw logits. That is too little for `clover diff`, so the comparison is made here:
`clover logits` computes the same preview, exactly and as a float32 engine does, and cortiq may be 16 times as far from the
exact logits as float32 is at its worst. An id among the ten that is not among the reference's ten must be a near tie there.
MODEL is the folder that the .cmf was made of. f16 keeps weights that are bfloat16 numbers of at least 6e-5 (0.00006) as they
are; other weights and coarser types show as differences. Exit status: 0 conforms, 1 differs.

cortiq 0.8.54: cargo install cortiq-cli --version 0.8.54 --no-default-features (on two cores, the better part of an hour).
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
        prompt, block = (','.join(map(str, ids)) for ids in (prompt, block))
        subprocess.run([clover, 'logits', model, '--ids', prompt, '--preview', block, '--numerics', numerics, '-o', folder],
                       check=True, stdout=subprocess.DEVNULL)
        return load_file(os.path.join(folder, 'preview.safetensors'))['logits'].astype(np.float64)     # [n, V]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('first')
    parser.add_argument('model')
    parser.add_argument('--clover', default='build/clover')
    arguments = parser.parse_args()
    with open(arguments.first) as file:
        first = json.load(file)
    inspected = subprocess.run([arguments.clover, 'inspect', arguments.model, '--json'], check=True, capture_output=True).stdout
    block = [json.loads(inspected)['config']['mask_id']] * len(first['rows'])
    exact, single = (preview(arguments.clover, arguments.model, first['prompt_ids'], block, numerics) for numerics in ('exact', 'f32'))

    bound = MARGIN * max(np.abs(single - exact).max(), np.abs(exact).max() * 2.0 ** -24)
    ids = np.array([row['ids'] for row in first['rows']])                              # [n, 10]
    theirs = np.array([row['logits'] for row in first['rows']], np.float64)
    ours = np.take_along_axis(exact, ids, 1)
    apart = np.abs(theirs - ours)
    tenth = np.sort(exact, 1)[:, -ids.shape[1]]                                        # the reference's last of the ten
    short = np.maximum(tenth[:, None] - ours, 0)                                       # how far below it theirs are
    good = bool(apart.max() <= bound and short.max() <= 2 * bound)                     # a NaN is no conformance
    row, column = np.unravel_index(apart.argmax(), apart.shape)
    print(f'{"conforms" if good else "differs"}: {len(ids)} rows x {ids.shape[1]} logits after {len(first["prompt_ids"])} tokens; '
          f'worst |difference| {apart.max():.2g} (row {row}, id {ids[row, column]}: expected {ours[row, column]:.9g}, '
          f'found {theirs[row, column]:.9g}), bound {bound:.2g}; {int((short > 0).sum())} ids not among the reference\'s ten, '
          f'by {short.max():.2g} at most; argmax differs in {int((exact.argmax(1) != ids[:, 0]).sum())} rows')
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
