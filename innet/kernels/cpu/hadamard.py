"""The randomized Hadamard transform of ``innet.kernels.layout.hadamard``; blocks fit the cache."""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import SQUARES_LANES, Doubles, Floats, Ints
from innet.kernels.cpu.intrinsics import mix
from innet.kernels.layout.hadamard import padded
from innet.kernels.layout.hashing import GOLDEN

_ROUNDER = 6755399441055744.0  # as in ``innet.kernels.cpu.fixed_point``: rounds what is below 2**51
_FIRST = 8  # neighbors transformed in registers; larger steps add whole vectors


def block_squares(x: Floats, block: int, /) -> Doubles:
    """See ``innet.kernels.Kernels.block_squares``."""
    lanes = np.zeros((-(-x.size // block), SQUARES_LANES))
    _block_squares(x, block, lanes)
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0].copy()


def hadamard(x: Floats, scales: Doubles, block: int, key: int, /) -> Ints:
    """See ``innet.kernels.Kernels.hadamard``."""
    integers = buffers.empty(padded(x.size, block), np.int32)
    _hadamard(x, scales, block, np.uint64(key), integers)
    return integers


def hadamard_inverse(integers: Ints, steps: Doubles, block: int, key: int, size: int, /) -> Floats:
    """See ``innet.kernels.Kernels.hadamard_inverse``."""
    values = buffers.empty(size, np.float32)
    scratch = np.empty(min(block, integers.size), np.int32)
    _hadamard_inverse(integers, steps, block, np.uint64(key), scratch, values)
    return values


def quantize_to_table(
    integers: Ints, scales: Doubles, table: Ints, block: int, key: int, /
) -> Ints:
    """See ``innet.kernels.Kernels.quantize_to_table``."""
    # By the integer part of the position: the entry below, and the distance to the next one.
    positions = np.arange(int(table[-1]) + 1)
    entry = np.minimum(np.searchsorted(table, positions, side="right"), table.size - 1) - 1
    steps = np.stack((table[entry], np.diff(table)[entry])).astype(np.float64)
    quantized = buffers.empty(integers.size, np.int32)
    _quantize_to_table(integers, scales, steps, block, np.uint64(key), quantized)
    return quantized


@njit(cache=True, nogil=True)
def _block_squares(x: Floats, block: int, lanes: Doubles) -> None:
    for b in range(lanes.shape[0]):
        sums = lanes[b]
        part = x[b * block : (b + 1) * block]
        for start in range(0, part.size, SQUARES_LANES):
            row = part[start : start + SQUARES_LANES]
            for j in range(row.size):
                sums[j] += np.float64(row[j]) * np.float64(row[j])


@njit(cache=True, nogil=True)
def _hadamard(x: Floats, scales: Doubles, block: int, key: np.uint64, integers: Ints) -> None:
    for b in range(scales.size):
        start = b * block
        part = x[start : start + block]
        out = integers[start : start + block]
        for i in range(part.size):
            out[i] = np.int32((np.float64(part[i]) * scales[b] + _ROUNDER) - _ROUNDER)
        out[part.size :] = 0
        _flip(out[: part.size], start, key)
        _transform(out)


@njit(cache=True, nogil=True)
def _hadamard_inverse(  # noqa: PLR0917 - compiled code takes no keywords
    integers: Ints, steps: Doubles, block: int, key: np.uint64, scratch: Ints, values: Floats
) -> None:
    for b in range(steps.size):
        start = b * block
        part = integers[start : start + block]
        sums = scratch[: part.size]
        for i in range(part.size):
            sums[i] = part[i]
        _transform(sums)
        out = values[start : start + block]
        _flip(sums[: out.size], start, key)
        for i in range(out.size):
            out[i] = np.float32(np.float64(sums[i]) * steps[b]) + np.float32(0)  # not -0.0


@njit(cache=True, nogil=True)
def _flip(integers: Ints, first: int, key: np.uint64) -> None:
    """Random signs. ``first`` is the index of the first of them in the whole vector, a multiple of
    32 where there are so many.
    """
    full = integers.size // 32 * 32
    for start in range(0, full, 32):
        at = first + start
        word = mix(np.uint64((at >> 6) + 1) * GOLDEN + key)
        bits = np.uint32(word >> np.uint64(at & 63))
        part = integers[start : start + 32]
        for j in range(32):
            # All ones where bit j is set: (v ^ -1) + 1 is -v, without a branch.
            negate = np.int32(np.uint32(bits << np.uint32(31 - j))) >> np.int32(31)
            part[j] = np.int32(np.int32(part[j] ^ negate) - negate)
    for i in range(full, integers.size):
        at = first + i
        word = mix(np.uint64((at >> 6) + 1) * GOLDEN + key)
        if (word >> np.uint64(at & 63)) & np.uint64(1):
            integers[i] = np.int32(-integers[i])


@njit(cache=True, nogil=True)
def _transform(x: Ints) -> None:
    """H · x in place. With integers the order of the additions does not matter."""
    size = x.size
    width = 1
    if size >= _FIRST:
        for start in range(0, size, _FIRST):
            _transform_eight(x[start : start + _FIRST])
        width = _FIRST
    while 4 * width <= size:  # two steps in one pass over the block
        for start in range(0, size, 4 * width):
            a = x[start : start + width]
            b = x[start + width : start + 2 * width]
            c = x[start + 2 * width : start + 3 * width]
            d = x[start + 3 * width : start + 4 * width]
            for i in range(width):
                p, q = np.int32(a[i] + b[i]), np.int32(a[i] - b[i])
                r, s = np.int32(c[i] + d[i]), np.int32(c[i] - d[i])
                a[i], b[i] = np.int32(p + r), np.int32(q + s)
                c[i], d[i] = np.int32(p - r), np.int32(q - s)
        width *= 4
    while width < size:
        for start in range(0, size, 2 * width):
            a = x[start : start + width]
            b = x[start + width : start + 2 * width]
            for i in range(width):
                p = np.int32(a[i] + b[i])
                b[i] = np.int32(a[i] - b[i])
                a[i] = p
        width *= 2


@njit(cache=True, inline="always")
def _transform_eight(x: Ints) -> None:
    a0, a1, a2, a3 = x[0] + x[1], x[0] - x[1], x[2] + x[3], x[2] - x[3]
    a4, a5, a6, a7 = x[4] + x[5], x[4] - x[5], x[6] + x[7], x[6] - x[7]
    b0, b1, b2, b3 = a0 + a2, a1 + a3, a0 - a2, a1 - a3
    b4, b5, b6, b7 = a4 + a6, a5 + a7, a4 - a6, a5 - a7
    x[0], x[1], x[2], x[3] = b0 + b4, b1 + b5, b2 + b6, b3 + b7
    x[4], x[5], x[6], x[7] = b0 - b4, b1 - b5, b2 - b6, b3 - b7


@njit(cache=True, nogil=True)
def _quantize_to_table(  # noqa: PLR0917 - compiled code takes no keywords
    integers: Ints, scales: Doubles, steps: Doubles, block: int, key: np.uint64, quantized: Ints
) -> None:
    below, gaps = steps[0], steps[1]
    most = np.float64(below.size - 1)
    half = most / 2
    chances = np.empty(block)
    for b in range(scales.size):
        start = b * block
        part, out = integers[start : start + block], quantized[start : start + block]
        scale = scales[b]
        for pair in range((part.size + 1) // 2):
            word = mix(np.uint64((start >> 1) + pair + 1) * GOLDEN + key)
            chances[2 * pair] = np.float64(np.uint32(word))
            chances[2 * pair + 1] = np.float64(np.uint32(word >> np.uint64(32)))
        for i in range(part.size):
            position = min(max(np.float64(part[i]) * scale + half, 0.0), most)
            entry = np.int32(position)
            low, gap = below[entry], gaps[entry]
            up = gap if chances[i] * gap < (position - low) * 4294967296.0 else 0.0
            out[i] = np.int32(low + up)
