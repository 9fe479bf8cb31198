"""Statistics of a gradient: extremes and counts, sums, squares and products of magnitudes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.arrays import LANES
from innet.kernels.cpu.topk import least_bits
from innet.kernels.cuda.bitmap import bitmap_to_indices
from innet.kernels.cuda.blocks import gather_blocks
from innet.kernels.cuda.device import (
    WARP,
    Array,
    back,
    ballot,
    empty,
    floats,
    threads_for,
    times,
    warps_for,
)

_INFINITY = 0x7F800000  # the bits of infinity; those of a NaN are larger
_MAGNITUDE = 0x7FFFFFFF
_NOWHERE = 2**31 - 1


def absmax_nnz(x: Any, /) -> tuple[int, int, int]:
    """See ``innet.kernels.Kernels.absmax_nnz``."""
    words = floats(x).view(np.int32)
    found = _nothing_found()
    _absmax_nnz[threads_for(words.size)](words, found)
    return _told(found)


def absmax_nnz_sparse(x: Any, most: int, /) -> tuple[int, int, int, Any]:
    """See ``innet.kernels.Kernels.absmax_nnz_sparse``."""
    words = floats(x).view(np.int32)
    found, bitmap = _nothing_found(), empty(-(-words.size // 32), np.uint32)
    _absmax_nnz_bitmap[warps_for(bitmap.size)](words, found, bitmap)
    largest, nonzero, bad = _told(found)
    picks = None
    if nonzero <= most:
        indices = bitmap_to_indices(bitmap.view(np.int32), words.size)
        values = gather_blocks(words, indices, 1).view(np.float32)
        picks = back(indices, x), back(values, x)
    return largest, nonzero, bad, picks


def _nothing_found() -> Array:
    """The largest bits, how many elements are not zero, the first that is not finite."""
    return cuda.to_device(np.array([0, 0, _NOWHERE], np.int32))


def _told(found: Array) -> tuple[int, int, int]:
    largest, nonzero, bad = found.copy_to_host().tolist()
    return largest, nonzero, -1 if bad == _NOWHERE else bad


def absmin_count(x: Any, least: float, /) -> tuple[float, int]:
    """See ``innet.kernels.Kernels.absmin_count``."""
    words = floats(x).view(np.int32)
    found = cuda.to_device(np.array([_INFINITY, 0], np.int32))
    _absmin_count[threads_for(words.size)](words, least_bits(least), found)
    bits, count = found.copy_to_host()
    return float(bits.view(np.float32)), int(count)


@cuda.jit
def _absmin_count(words: Array, least: int, found: Array) -> None:
    shared = cuda.shared.array(2, np.int32)
    if cuda.threadIdx.x == 0:
        shared[0] = _INFINITY
        shared[1] = 0
    cuda.syncthreads()
    part = np.int32(_INFINITY)
    count = np.int32(0)
    for i in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        bits = np.int32(words[i] & _MAGNITUDE)
        if bits >= least:
            part = min(part, bits)
            count += np.int32(1)
    cuda.atomic.min(shared, 0, part)
    cuda.atomic.add(shared, 1, count)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.min(found, 0, shared[0])
        cuda.atomic.add(found, 1, shared[1])


@cuda.jit
def _absmax_nnz(words: Array, found: Array) -> None:
    largest = np.int32(0)
    nonzero = np.int32(0)
    bad = np.int32(_NOWHERE)
    for i in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        bits = np.int32(words[i] & _MAGNITUDE)
        largest = max(largest, bits)
        nonzero += np.int32(bits != 0)
        if bits >= _INFINITY:
            bad = min(bad, np.int32(i))
    _combine(largest, nonzero, bad, found)


@cuda.jit
def _absmax_nnz_bitmap(words: Array, found: Array, bitmap: Array) -> None:
    lane = cuda.grid(1) & 31
    largest = np.int32(0)
    nonzero = np.int32(0)
    bad = np.int32(_NOWHERE)
    for w in range(cuda.grid(1) >> 5, bitmap.size, cuda.gridsize(1) >> 5):
        bits = np.int32(0)
        if 32 * w + lane < words.size:
            bits = np.int32(words[32 * w + lane] & _MAGNITUDE)
        largest = max(largest, bits)
        nonzero += np.int32(bits != 0)
        if bits >= _INFINITY:
            bad = min(bad, np.int32(32 * w + lane))
        flags = ballot(bits != 0)
        if lane == 0:
            bitmap[w] = flags
    _combine(largest, nonzero, bad, found)


@cuda.jit(device=True)
def _combine(largest: np.int32, nonzero: np.int32, bad: np.int32, found: Array) -> None:
    """Combine the threads' results, first in shared memory of the block, then in ``found``."""
    shared = cuda.shared.array(3, np.int32)
    if cuda.threadIdx.x == 0:
        shared[0] = 0
        shared[1] = 0
        shared[2] = _NOWHERE
    cuda.syncthreads()
    cuda.atomic.max(shared, 0, largest)
    cuda.atomic.add(shared, 1, nonzero)
    cuda.atomic.min(shared, 2, bad)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.max(found, 0, shared[0])
        cuda.atomic.add(found, 1, shared[1])
        cuda.atomic.min(found, 2, shared[2])


# ----------------------------------------------------------------------------
# Sums, squares and products of magnitudes in the order that ``innet.kernels`` defines.
#
# One thread per lane: the fixed order allows no more parallelism. So these kernels are bound by the
# latency of additions, not by memory. The lanes are folded on the host, where the result is needed
# anyway.

_EACH_LANE = (LANES // WARP, WARP)  # a warp on each multiprocessor
_FRACTION = 0x7FFFFF
_LEADING = 0x800000  # the bit of a normal number's mantissa that is not stored


def moments(x: Any, shift: float, least: float, /) -> tuple[float, float]:
    """See ``innet.kernels.Kernels.moments``."""
    sums, squares = empty(LANES, np.float64), empty(LANES, np.float64)
    _moments[_EACH_LANE](floats(x), shift, least, sums, squares)
    return _folded(np.add, sums), _folded(np.add, squares)


def abs_product(x: Any, /) -> tuple[float, int]:
    """See ``innet.kernels.Kernels.abs_product``."""
    fractions, exponents = empty(LANES, np.float64), empty(LANES, np.int64)
    _abs_product[_EACH_LANE](floats(x).view(np.int32), fractions, exponents)
    half, exponent = np.frexp(_folded(np.multiply, fractions))  # below 2**512
    return 2 * float(half), int(exponents.copy_to_host().sum()) + int(exponent) - 1


def _folded(operation: np.ufunc, array: Array) -> float:
    lanes = array.copy_to_host()
    while lanes.size > 1:
        half = lanes.size // 2
        lanes = operation(lanes[:half], lanes[half:])
    return float(lanes[0])


@cuda.jit
def _moments(x: Array, shift: float, least: float, sums: Array, squares: Array) -> None:
    lane = cuda.grid(1)
    total = np.float64(0)
    square = np.float64(0)
    for i in range(lane, x.size, LANES):
        magnitude = np.float64(abs(x[i]))
        if magnitude >= np.float64(least):
            deviation = magnitude - np.float64(shift)
            total += deviation
            square += times(deviation, deviation)
    sums[lane] = total
    squares[lane] = square


@cuda.jit
def _abs_product(words: Array, fractions: Array, exponents: Array) -> None:
    """Each lane's product stays in [1, 2): scaling by a power of two does not change its bits."""
    lane = cuda.grid(1)
    fraction = np.float64(1)
    exponent = np.int64(0)
    for i in range(lane, words.size, LANES):
        if words[i] & _MAGNITUDE == 0:
            continue
        field = (words[i] >> 23) & 0xFF
        mantissa = words[i] & _FRACTION
        if field == 0:
            field = 1
        else:
            mantissa |= _LEADING
        above = cuda.clz(np.int32(mantissa)) - 8  # how far a subnormal's leading bit is from bit 23
        exponent += np.int64(field - 127 - above)
        fraction = times(fraction, np.float64(mantissa << above) * 2.0**-23)
        if fraction >= 2.0:
            fraction *= 0.5
            exponent += np.int64(1)
    fractions[lane] = fraction
    exponents[lane] = exponent
