"""The largest element of each chunk, and the elements that reach the largest of their chunk.

To find a chunk's largest element, magnitude and index are combined into one number, and the maximum
of these is taken: in any order, in vectors, and without branches. Of sums, the maximum of the
magnitudes is taken in windows of 16 elements, and then looked for.
"""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Floats, Ints, Longs, Words, chunks_of
from innet.kernels.cpu.bitmap import words_to_indices
from innet.kernels.cpu.intrinsics import (
    add_scaled_16,
    float_of_bits,
    largest_16,
    largest_sum_16,
    magnitude_bits,
    sum_flags_16,
    threshold_flags_16,
    trailing_zeros,
)

_LAST = 0x7FFFFFFF  # no element has a larger index
_WINDOW = 16


def chunk_argmax(x: Floats, chunk: int, /) -> Ints:
    """See ``innet.kernels.Kernels.chunk_argmax``."""
    indices: Ints = buffers.empty(-(-x.size // chunk), np.int32)
    _chunk_argmax(x, chunk, indices)
    return indices


def add_scaled_argmax(
    x: Floats, y: Floats, weight: float, parts: Longs, /
) -> tuple[Floats, int, Ints]:
    """See ``innet.kernels.Kernels.add_scaled_argmax``."""
    total: Floats = buffers.empty(x.size, np.float32)
    indices: Ints = buffers.empty(chunks_of(parts), np.int32)
    past = buffers.passes_caches(total)
    bits = _add_scaled_argmax(x, y, np.float32(weight), parts, total, past, indices)
    return total, int(bits), indices


@njit(cache=True, nogil=True)
def _key(value: np.float32, index: int) -> np.int64:
    """A key that orders by magnitude, and equal magnitudes by descending index."""
    return np.int64(np.int64(magnitude_bits(value)) << np.int64(32) | np.int64(_LAST - index))


@njit(cache=True, nogil=True)
def _chunk_argmax(x: Floats, chunk: int, indices: Ints) -> None:
    for c in range(indices.size):
        begin = c * chunk
        piece = x[begin : begin + chunk]
        largest = np.int64(0)
        for i in range(piece.size):
            largest = max(largest, _key(piece[i], i))
        indices[c] = begin + _LAST - (largest & _LAST)


@njit(cache=True, nogil=True)
def _add_scaled_argmax(  # noqa: PLR0917 - compiled functions are called by position
    x: Floats,
    y: Floats,
    weight: np.float32,
    parts: Longs,
    total: Floats,
    past: bool,
    indices: Ints,
) -> np.int32:
    """Each chunk is looked at when it has been added up, while it is in the cache.

    Returns the bits of the largest magnitude of the total.
    """
    maxima = np.zeros(16, np.int32)
    full = x.size // 16 * 16
    added = found = 0
    for p in range(parts.shape[0]):
        end, chunk = parts[p, 1], parts[p, 2]
        for begin in range(parts[p, 0], end, chunk):
            size = min(chunk, end - begin)
            while added < min(begin + size, full):
                add_scaled_16(x, y, added, weight, total, past, maxima)
                added += 16
            indices[found] = _argmax_of_sum(x, y, begin, size)
            found += 1
    while added < full:
        add_scaled_16(x, y, added, weight, total, past, maxima)
        added += 16
    largest = maxima.max()
    for i in range(full, x.size):
        total[i] = x[i] + weight * y[i]
        largest = max(largest, magnitude_bits(total[i]))
    return np.int32(largest)


@njit(cache=True, nogil=True)
def _argmax_of_sum(x: Floats, y: Floats, begin: int, size: int) -> int:
    """The first index of the largest magnitude of the sum in a chunk."""
    if size < _WINDOW:
        key = np.int64(0)
        for i in range(size):
            key = max(key, _key(x[begin + i] + y[begin + i], i))
        return int(begin + _LAST - (key & _LAST))
    last = begin + size - _WINDOW
    largest = np.int32(0)
    for i in range(begin, begin + size, _WINDOW):
        largest = max(largest, largest_sum_16(x, y, min(i, last)))
    for i in range(begin, begin + size, _WINDOW):
        flags = sum_flags_16(x, y, min(i, last), largest)
        if flags != np.uint64(0):
            return int(min(i, last) + trailing_zeros(flags))
    return begin


# ----------------------------------------------------------------------------
# The elements that reach the largest magnitude of their chunk after a multiple of the gradient is
# added.
#
# Chunks are short and of any length. So they are processed in windows of 16 elements, of which the
# last overlaps the one before it; maxima and flags may be taken twice.

_LOW = np.uint64(0xFFFFFFFF)


def select_above_chunk_max(
    x: Floats, gradient: Floats, weight: float, chunk: int, /
) -> tuple[Ints, Floats]:
    """See ``innet.kernels.Kernels.select_above_chunk_max``. Scratch: a bitmap of the elements."""
    maxima = buffers.empty(-(-x.size // chunk), np.float32)
    bitmap = np.zeros(-(-x.size // 32) + 1, np.uint32)  # a window's flags may begin in any word
    _flag(x, gradient, weight, chunk, maxima, bitmap)
    return words_to_indices(bitmap), maxima


@njit(cache=True, nogil=True)
def _flag(  # noqa: PLR0917 - compiled functions are called by position
    x: Floats, gradient: Floats, weight: float, chunk: int, maxima: Floats, bitmap: Words
) -> None:
    for c in range(maxima.size):
        begin = c * chunk
        size = min(chunk, x.size - begin)
        largest = largest_of(x, begin, size)
        maxima[c] = float_of_bits(largest)
        if largest == 0:
            continue
        # Flag the elements that reach it: one by one in short chunks, else in windows.
        least = np.float64(maxima[c])
        if size < _WINDOW:
            for i in range(begin, begin + size):
                reaches = abs(x[i] + weight * np.float64(gradient[i])) >= least
                _set(bitmap, i, np.uint64(reaches))
        for k in range(0, size if size >= _WINDOW else 0, _WINDOW):
            i = begin + min(k, size - _WINDOW)
            _set(bitmap, i, threshold_flags_16(x, gradient, i, weight, least))


@njit(cache=True, nogil=True)
def largest_of(x: Floats, begin: int, size: int) -> np.int32:
    """The bits of the largest magnitude."""
    largest = np.int32(0)
    if size < _WINDOW:
        for i in range(begin, begin + size):
            largest = max(largest, magnitude_bits(x[i]))
    else:
        for k in range(0, size, _WINDOW):
            largest = max(largest, largest_16(x, begin + min(k, size - _WINDOW)))
    return largest


@njit(cache=True, nogil=True)
def _set(bitmap: Words, i: int, flags: np.uint64) -> None:
    """Set the bits from bit i on that are set in the flags, of which there are up to 16."""
    turned = flags << np.uint64(i & 31)
    bitmap[i >> 5] |= np.uint32(turned & _LOW)
    bitmap[(i >> 5) + 1] |= np.uint32(turned >> np.uint64(32))
