"""The largest element of each chunk; and what reaches the largest of its chunk.

To find a chunk's largest element, magnitude and place are made one number, of which the largest is
taken: in any order, in vectors, and without a branch that could be guessed wrongly.
"""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Floats, Ints, Words
from innet.kernels.cpu.bitmap import words_to_indices
from innet.kernels.cpu.intrinsics import (
    float_of_bits,
    largest_16,
    magnitude_bits,
    threshold_flags_16,
)

_LAST = 0x7FFFFFFF  # no element has a larger index


def chunk_argmax(x: Floats, chunk: int, /) -> Ints:
    """See ``innet.kernels.Kernels.chunk_argmax``."""
    indices: Ints = buffers.empty(-(-x.size // chunk), np.int32)
    _chunk_argmax(x, chunk, indices)
    return indices


def chunk_argmax_sum(x: Floats, y: Floats, chunk: int, /) -> Ints:
    """See ``innet.kernels.Kernels.chunk_argmax_sum``."""
    indices: Ints = buffers.empty(-(-x.size // chunk), np.int32)
    _chunk_argmax_sum(x, y, chunk, indices)
    return indices


@njit(cache=True, nogil=True)
def _key(value: np.float32, index: int) -> np.int64:
    """The larger, the larger the magnitude is; of equal ones, the smaller the index."""
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
def _chunk_argmax_sum(x: Floats, y: Floats, chunk: int, indices: Ints) -> None:
    for c in range(indices.size):
        begin = c * chunk
        first, second = x[begin : begin + chunk], y[begin : begin + chunk]
        largest = np.int64(0)
        for i in range(first.size):
            largest = max(largest, _key(first[i] + second[i], i))
        indices[c] = begin + _LAST - (largest & _LAST)


# ----------------------------------------------------------------------------
# What reaches the largest magnitude of its chunk once a multiple of the gradient is added.
#
# Chunks are short and their lengths odd. So they are looked at in windows of 16 elements, of which
# the last overlaps the one before it: neither a maximum nor a flag minds being taken twice.

_WINDOW = 16
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
        # Flag what reaches it: one by one in short chunks, by windows in others.
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
