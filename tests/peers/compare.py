"""compare.py OURS PEER.safetensors [--bound B]: are these the same next-token distributions?

OURS is a folder that `clover logits … -o OURS` wrote. PEER.safetensors holds `logits` [T, V] for the same ids.
The peer scripts import this file; the command line serves anyone who has a dump of another engine.
`compare.py --selftest` proves that the comparison can fail.

What is compared is log p, not the logits: a constant added to a row changes no distribution. Every (row, id) counts,
the improbable ids too, so one number bounds everything that a sampler could see.
"""
import argparse
import contextlib
import io
import os
import sys

import numpy as np
from safetensors.numpy import load_file

SKIPPED = 77          # exit status of a peer that could not run (the convention of automake's test drivers)
FLOAT32_LOG_P = 5e-3  # bound for a peer in float32 when it is not known what float32 costs the model: README.md, "Bounds"


class Step:
    """What our interpreter computed: `commit`, then (if it is there) `then`, row after row."""

    def __init__(self, folder):
        parts = [load_file(os.path.join(folder, name)) for name in ('commit.safetensors', 'then.safetensors')
                 if os.path.exists(os.path.join(folder, name))]
        if not parts:
            raise SystemExit(f'{folder}: neither commit.safetensors nor then.safetensors')
        self.sizes = [len(part['ids']) for part in parts]                      # tokens in each step
        self.ids = np.concatenate([part['ids'] for part in parts]).astype(np.int64)        # [T]
        self.logits = np.concatenate([part['logits'] for part in parts]).astype(np.float64)  # [T, V]
        self.probes = {}
        for name in parts[0].keys() - {'ids', 'logits'}:
            if name.endswith('gdn.state'):        # a value after the step, not a row of it: the last one stands
                self.probes[name] = parts[-1].get(name)
            elif all(name in part for part in parts):
                self.probes[name] = np.concatenate([part[name] for part in parts])


def log_probs(logits):
    """Logits [T, V] to log p [T, V]: the log-sum-exp with the maximum taken out."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def compare_logits(title, ours, theirs, bound):
    """Print one line of numbers; True when every |difference in log p| is at most `bound`."""
    if ours.shape != theirs.shape:
        print(f'  FAIL {title}: ours has shape {list(ours.shape)}, the peer {list(theirs.shape)}')
        return False
    log_p, log_q = log_probs(ours), log_probs(theirs)
    apart = np.abs(log_p - log_q)
    worst_row, worst_id = np.unravel_index(apart.argmax(), apart.shape)
    divergence = (np.exp(log_p) * (log_p - log_q)).sum(axis=1)                 # KL(ours ‖ peer) [T], nats
    same_top = int((log_p.argmax(axis=1) == log_q.argmax(axis=1)).sum())
    good = bool(apart.max() <= bound)  # a NaN on either side compares false: a failure, as it must be
    print(f'  {"ok  " if good else "FAIL"} {title}: max |Δ log p| {apart.max():.2g} (row {worst_row}, id {worst_id}), '
          f'bound {bound:.2g}; argmax {same_top}/{len(apart)}; KL max {np.abs(divergence).max():.1g}')
    return good


def compare_probes(title, ours, theirs, bound):
    """Compare every probe that both sides have, each relative to its own largest value. One line; True when all agree."""
    names = [name for name in theirs if name in ours]                          # in the order in which the peer computed them
    if not names:
        print(f'  skip {title}: no probes in our dump')
        return True
    errors = {}
    for name in names:
        a, b = np.asarray(ours[name], np.float64), np.asarray(theirs[name], np.float64)
        errors[name] = np.abs(a - b.reshape(a.shape)).max() / max(np.abs(a).max(), 1e-30) if a.size == b.size else np.inf
    bad = [name for name in names if not errors[name] <= bound]
    worst = max(names, key=lambda name: np.inf if np.isnan(errors[name]) else errors[name])
    unmatched = sorted(ours.keys() - theirs.keys())
    print(f'  {"FAIL" if bad else "ok  "} {title}: {len(names)} probes, worst relative {errors[worst]:.2g} ({worst}), '
          f'bound {bound:.2g}' + (f'; {len(bad)} over it, first {" ".join(bad[:3])}' if bad else '')
          + (f'; without a counterpart: {" ".join(unmatched)}' if unmatched else ''))
    return not bad


def selftest():
    """The right pair passes; each wrong one fails."""
    random = np.random.default_rng(1)
    ours = random.normal(0, 5, (4, 50))
    one_off, broken, swapped = ours.copy(), ours.copy(), ours[::-1]
    one_off[2, 7] += 1e-3
    broken[3, 3] = np.nan
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        right, wrong = selftest_cases(ours, one_off, broken, swapped, random)
    if all(right) and not any(wrong):
        print(f'  ok   compare.py: {len(right)} right pairs pass, {len(wrong)} wrong ones fail')
        return True
    print(f'{printed.getvalue()}  FAIL compare.py: a right pair fails or a wrong one passes')
    return False


def selftest_cases(ours, one_off, broken, swapped, random):
    right = [compare_logits('a constant added to each row', ours, ours + random.normal(0, 9, (4, 1)), 1e-12),
             compare_probes('a probe in another shape', {'x': ours}, {'x': ours.reshape(-1)}, 1e-12)]
    wrong = [compare_logits('one logit off by 1e-3', ours, one_off, 1e-4),
             compare_logits('a NaN', ours, broken, 1e-4),
             compare_logits('a NaN of ours', broken, ours, 1e-4),
             compare_logits('rows in another order', ours, swapped, 1e-4),
             compare_logits('a row too few', ours, ours[:3], 1e-4),
             compare_probes('one probe off', {'x': ours}, {'x': one_off}, 1e-6),
             compare_probes('a NaN in a probe', {'x': ours}, {'x': broken}, 1e-6)]
    return right, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('ours', nargs='?')
    parser.add_argument('peer', nargs='?')
    parser.add_argument('--bound', type=float, default=FLOAT32_LOG_P, help='largest |difference in log p| (default %(default)s)')
    parser.add_argument('--selftest', action='store_true')
    arguments = parser.parse_args()
    if arguments.selftest:
        return 0 if selftest() else 1
    if not arguments.peer:
        parser.error('two dumps are needed')
    return 0 if compare_logits(os.path.basename(arguments.peer), Step(arguments.ours).logits,
                               load_file(arguments.peer)['logits'], arguments.bound) else 1


if __name__ == '__main__':
    sys.exit(main())
