"""Kernels for the randomized Hadamard transform of ``innet.kernels.layout.hadamard``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.kernels.arrays import SQUARES_LANES, Doubles, Floats, Ints
from innet.kernels.layout.hadamard import padded
from innet.kernels.layout.hashing import GOLDEN, mix


def block_squares(x: Floats, block: int, /) -> Doubles:
    """See ``innet.kernels.Kernels.block_squares``."""
    sums = []
    for start in range(0, x.size, block):
        lanes = np.zeros(SQUARES_LANES)
        part = x[start : start + block].astype(np.float64)
        for first in range(0, part.size, SQUARES_LANES):
            row = part[first : first + SQUARES_LANES]
            lanes[: row.size] += row * row
        while lanes.size > 1:
            lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
        sums.append(lanes[0])
    return np.array(sums, np.float64)


def hadamard(x: Floats, scales: Doubles, block: int, key: int, /) -> Ints:
    """See ``innet.kernels.Kernels.hadamard``."""
    integers = np.zeros(padded(x.size, block), np.int64)
    scale = np.repeat(scales, block)[: x.size]
    integers[: x.size] = np.rint(x.astype(np.float64) * scale) * _signs(x.size, key)
    for start in range(0, x.size, block):
        part = integers[start : start + block]
        part[:] = _matrix_product(part)
    return integers.astype(np.int32)


def hadamard_inverse(integers: Ints, steps: Doubles, block: int, key: int, size: int, /) -> Floats:
    """See ``innet.kernels.Kernels.hadamard_inverse``."""
    sums = np.concatenate(
        [
            _matrix_product(integers[start : start + block].astype(np.int64))
            for start in range(0, integers.size, block)
        ]
        or [np.empty(0, np.int64)]
    )[:size]
    step = np.repeat(steps, block)[:size]
    with np.errstate(over="ignore"):
        values = ((sums * _signs(size, key)).astype(np.float64) * step).astype(np.float32)
        return values + np.float32(0)


def quantize_to_table(
    integers: Ints, scales: Doubles, table: Ints, block: int, key: int, /
) -> Ints:
    """See ``innet.kernels.Kernels.quantize_to_table``."""
    half = float(table[-1]) / 2
    scale = np.repeat(scales, block)[: integers.size]
    product = integers.astype(np.float64) * scale
    position = np.clip(product + half, 0, 2 * half)
    above = np.searchsorted(table, position, side="right").clip(1, table.size - 1)
    low, high = table[above - 1], table[above]
    up = _chance(integers.size, key) * (high - low).astype(np.float64) < (position - low) * 2.0**32
    return np.asarray(np.where(up, high, low), np.int32)


def _matrix_product(x: NDArray[np.int64]) -> NDArray[np.int64]:
    """H · x by halves: H of size 2n is [[H, H], [H, -H]]."""
    if x.size <= 1:
        return x
    low, high = x[: x.size // 2], x[x.size // 2 :]
    return np.concatenate([_matrix_product(low + high), _matrix_product(low - high)])


def _signs(size: int, key: int) -> NDArray[np.int64]:
    """Shape (size,): 1 or -1."""
    i = np.arange(size, dtype=np.uint64)
    words = mix((i // np.uint64(64) + np.uint64(1)) * GOLDEN + np.uint64(key))
    return 1 - 2 * ((words >> (i % np.uint64(64))) & np.uint64(1)).astype(np.int64)


def _chance(size: int, key: int) -> NDArray[np.uint64]:
    """Shape (size,): random integers of 32 bits."""
    i = np.arange(size, dtype=np.uint64)
    words = mix((i // np.uint64(2) + np.uint64(1)) * GOLDEN + np.uint64(key))
    return (words >> (np.uint64(32) * (i % np.uint64(2)))) & np.uint64(0xFFFFFFFF)
