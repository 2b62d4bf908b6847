"""Floats and the bytes that the PyPI package gguf (0.19.0) quantises them to: encode.safetensors, for tests/test_quant.c.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install gguf && /tmp/venv/bin/python tests/vectors/make_encode.py
"""
import json
import struct
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, quants

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]


def blocks() -> np.ndarray:
    """[blocks, 32] floats: ordinary weights at many scales, and the corners where a rounding or a sign can go wrong."""
    rng = np.random.default_rng(20)
    rows = [rng.standard_normal(32) * 2.0 ** e for e in range(-30, 18, 2)]
    rows += [rng.uniform(0, 1, 32) + 3, rng.uniform(-1, 0, 32) - 3]             # one sign: the minimum types
    rows += [np.zeros(32), np.full(32, -0.0), np.full(32, 0.75), np.full(32, -0.75)]
    rows += [np.arange(32) - 16, 16 - np.arange(32), np.arange(32)]             # exact steps, equal magnitudes, ties at half a step
    rows += [(np.arange(32) - 16) / 2 - 0.25, np.where(np.arange(32) % 2, 127, 0.5)]
    rows += [np.where(np.arange(32) == 9, -5, np.where(np.arange(32) == 4, 5, 0.1))]        # +5 before -5
    rows += [2.0 ** -14 + np.arange(32) * 2.0 ** -25, 2.0 ** -25 * np.arange(32)]           # half: subnormal, half-way
    rows += [1 + np.arange(32) * 2.0 ** -11 / 2, 1 + np.arange(32) * 2.0 ** -9]             # half and bfloat16 ties
    rows += [65504 + np.arange(32), 65472 + np.arange(32) * 4.0]                            # the end of half's range
    rows += [rng.standard_normal(32) * 1e-41, rng.standard_normal(32) * 1e30]               # subnormal floats; scale overflows to infinity
    return np.array(rows, dtype=np.float32)


def main() -> None:
    values = blocks()
    arrays = {"values": ("F32", values)}
    with np.errstate(all="ignore"):
        for name in TYPES:
            data = quants.quantize(values, GGMLQuantizationType[name])
            arrays[name] = ("U8", np.ascontiguousarray(data).view(np.uint8).reshape(len(values), -1))
    header, offset = {}, 0
    for name, (dtype, array) in arrays.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = Path(__file__).parent / "encode.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for _, array in arrays.values()))


if __name__ == "__main__":
    main()
