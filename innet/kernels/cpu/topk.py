"""Exact top-k by magnitude, with or without a residual, in little more than one reading.

A sample gives a threshold that slightly more than k elements reach; one pass lists these candidates
(and adds gradient and residual on the way, and writes what is not listed); a radix select among the
candidates is exact, and those that are not selected are put back. A sample that misled, or a
gradient with too many equal magnitudes, costs another few passes over the whole array, never
exactness.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from innet import memory
from innet.kernels.arrays import Floats, Ints, Selected
from innet.kernels.cpu.intrinsics import flag_32, magnitude_bits, split_sum_32, trailing_zeros
from innet.kernels.cpu.sums import add_scaled

_SMALL = 1 << 15  # below this the radix select over everything is as fast as sampling
_SAMPLED = 64  # one element in so many is looked at to guess the threshold
STRETCH = 2048  # elements whose flags are found before any is listed
_TOGETHER = 4  # neighbours of the sample: they come with one access to the memory
_TINIEST = 1  # the bits of the smallest magnitude that is not zero
_MAGNITUDE = np.uint32(0x7FFFFFFF)


def top_k(x: Floats, k: int, /) -> Selected:
    """See ``innet.kernels.Kernels.top_k``."""
    if not _worth_sampling(x, k):
        return _exact(x, k)
    least = _guess(x, None, k)
    candidates = _room(x.size, k)
    found = list_reaching(x, 0, np.uint32(least), candidates, 0)
    return _finish(x, k, least, candidates, found)


def top_k_residual(gradient: Floats, residual: Floats, k: int, /) -> tuple[Ints, Floats, Floats]:
    """See ``innet.kernels.Kernels.top_k_residual``."""
    if _worth_sampling(residual, k):
        least = np.uint32(_guess(residual, gradient, k))
        rest: Floats = memory.empty(residual.size, np.float32)
        indices, values = _room(residual.size, k)
        past = memory.passes_caches(rest)
        terms = residual, gradient
        place, found = list_sums(terms, rest, least, (indices, values), (0, 0), past)
        if place == residual.size and found >= k:
            bits, ties = _kth_magnitude(values[:found], k)
            _keep_or_put_back(indices, values, found, bits, ties, rest)
            return indices[:k].copy(), values[:k].copy(), rest
    rest, _ = add_scaled(residual, gradient, 1.0)
    indices, values = _exact(rest, k)
    _clear(rest, indices)
    return indices, values, rest


def _worth_sampling(x: Floats, k: int) -> bool:
    return x.size >= _SMALL and 0 < k < x.size // 4


def _room(size: int, k: int) -> Selected:
    capacity = 2 * k + size // 256 + STRETCH
    return memory.empty(capacity, np.int32), memory.empty(capacity, np.float32)


def _guess(x: Floats, y: Floats | None, k: int) -> int:
    """Bits of a magnitude that very likely k and not many more elements of x (+ y) reach."""
    sample = _sample(x, y, x.size // _SAMPLED)
    expected = k / _SAMPLED
    # Four standard deviations of a count of independent elements, or nearly so many where those
    # that lie together are as large as each other; and a constant for when that count is small.
    rank = math.ceil(expected + 6 * math.sqrt(expected) + 8)
    bits, _ = _kth_magnitude(sample, min(rank, sample.size))
    # At zero everything would be a candidate; what is not zero is a better guess.
    return max(int(bits), _TINIEST)


def _finish(x: Floats, k: int, least: int, candidates: Selected, found: int) -> Selected:
    """The exact selection, from ``found`` candidates where they suffice and else from x."""
    indices, values = candidates
    if found >= k:
        bits, ties = _kth_magnitude(values[:found], k)
        _keep(indices, values, found, bits, ties)
        return indices[:k].copy(), values[:k].copy()
    if found >= 0 and least == _TINIEST:
        # All that is not zero, and the first zeros to make up the number.
        return _collect(x, k, np.int32(0), k - found)
    return _exact(x, k)


def _exact(x: Floats, k: int) -> Selected:
    if k == 0:
        return np.empty(0, np.int32), np.empty(0, np.float32)
    if k == x.size:
        return np.arange(k, dtype=np.int32), x.copy()
    bits, ties = _kth_magnitude(x, k)
    return _collect(x, k, bits, ties)


@njit(cache=True, nogil=True)
def _sample(x: Floats, y: Floats | None, count: int) -> Floats:
    """Elements at the places of a Weyl sequence, which no stride of a layout falls in step with."""
    places = count // _TOGETHER
    sample = np.empty(places * _TOGETHER, np.float32)
    size = np.uint64(x.size // _TOGETHER)
    place = np.uint64(0)
    for j in range(places):
        place += np.uint64(0x9E3779B97F4A7C15)
        first = np.int64(((place >> np.uint64(32)) * size) >> np.uint64(32)) * _TOGETHER
        for i in range(_TOGETHER):
            value = x[first + i]
            if y is not None:
                value += y[first + i]
            sample[j * _TOGETHER + i] = value
    return sample


@njit(cache=True, nogil=True)
def _kth_magnitude(x: Floats, k: int) -> tuple[np.int32, int]:
    """Radix select of the k-th largest magnitude, 1 <= k <= n.

    Returns:
        Its bits, and how many of the elements of that magnitude are among the k largest.
    """
    count = np.zeros(2048, np.int64)
    left = k
    prefix = np.int32(0)
    for shift, width in ((20, 11), (10, 10), (0, 10)):
        count[:] = 0
        above = shift + width
        mask = (1 << width) - 1
        for i in range(x.size):
            bits = magnitude_bits(x[i])
            # The first digit is the uppermost: there is nothing above it to compare.
            if above == 31 or (bits >> above) == (prefix >> above):
                count[(bits >> shift) & mask] += 1
        digit = mask
        while count[digit] < left:
            left -= count[digit]
            digit -= 1
        prefix |= np.int32(digit << shift)
    return prefix, left


@njit(cache=True, nogil=True)
def list_reaching(x: Floats, base: int, least: np.uint32, candidates: Selected, found: int) -> int:
    """Append to the candidates those of x whose magnitude's bits reach ``least``; ``base``
    is the index that x[0] has in the gradient.

    Returns:
        How many candidates there are now, or -1 when they are too many for the arrays.
    """
    indices, values = candidates
    for i in range(0, x.size, 32):
        if i + 32 <= x.size:
            flags = flag_32(x, i, _MAGNITUDE, least)
        else:
            flags = np.uint32(0)
            for j in range(i, x.size):
                flags |= np.uint32(magnitude_bits(x[j]) >= least) << np.uint32(j - i)
        if flags != np.uint32(0) and found + 32 > indices.size:
            return -1
        while flags != np.uint32(0):
            j = i + trailing_zeros(flags)
            flags &= flags - np.uint32(1)
            indices[found] = base + j
            values[found] = x[j]
            found += 1
    return found


@njit(cache=True, nogil=True)
def list_sums(  # noqa: PLR0917 - compiled functions are called by position
    terms: tuple[Floats, Floats],
    rest: Floats,
    least: np.uint32,
    lists: Selected,
    progress: tuple[int, int],
    past: bool,
) -> tuple[int, int]:
    """List the sums of two arrays whose magnitude's bits reach ``least``; the others go to
    ``rest``, which is 0 in the place of those, ``past`` the caches or not.

    ``progress`` is the place to begin at, a multiple of ``STRETCH``, and how many are listed
    already. It is returned as it is afterwards: the place is the end, or where the lists may have
    no room.
    """
    x, y = terms
    indices, values = lists
    start, found = progress
    words = np.empty(STRETCH // 32, np.uint32)
    while start < x.size and found + STRETCH <= indices.size:
        # First all flags, then what they say: a branch that was guessed wrongly does not wait for
        # the memory, nor what comes from there for the branch.
        count = 0
        for first in range(start, min(start + STRETCH, x.size), 32):
            if first + 32 <= x.size:
                words[count] = split_sum_32(x, y, first, least, rest, past)
            else:
                words[count] = _split_last(x[first:], y[first:], least, rest[first:])
            count += 1
        for w in range(count):
            flags = words[w]
            while flags != np.uint32(0):
                i = start + 32 * w + trailing_zeros(flags)
                flags &= flags - np.uint32(1)
                indices[found] = i
                values[found] = x[i] + y[i]
                found += 1
        start += STRETCH
    return min(start, x.size), found


@njit(cache=True, nogil=True)
def _split_last(x: Floats, y: Floats, least: np.uint32, rest: Floats) -> np.uint32:
    """``split_sum_32`` of fewer than 32."""
    flags = np.uint32(0)
    for j in range(x.size):
        value = x[j] + y[j]
        reaches = magnitude_bits(value) >= np.int32(least)
        rest[j] = np.float32(0) if reaches else value
        flags |= np.uint32(reaches) << np.uint32(j)
    return flags


@njit(cache=True, nogil=True)
def _keep(indices: Ints, values: Floats, found: int, bits: np.int32, ties: int) -> None:
    """Move the selected of the candidates to the front, in order."""
    kept = 0
    for i in range(found):
        magnitude = magnitude_bits(values[i])
        tied = int(magnitude == bits) & int(ties > 0)
        ties -= tied
        # Written whether selected or not: a branch here would be guessed wrongly too often.
        indices[kept] = indices[i]
        values[kept] = values[i]
        kept += int(magnitude > bits) | tied


@njit(cache=True, nogil=True)
def _keep_or_put_back(  # noqa: PLR0917 - compiled functions are called by position
    indices: Ints, values: Floats, found: int, bits: np.int32, ties: int, rest: Floats
) -> None:
    """As ``_keep``; the values of the others go to ``rest``. They are few."""
    kept = 0
    for i in range(found):
        magnitude = magnitude_bits(values[i])
        tied = magnitude == bits and ties > 0
        if magnitude > bits or tied:
            ties -= int(tied)
            indices[kept] = indices[i]
            values[kept] = values[i]
            kept += 1
        else:
            rest[indices[i]] = values[i]


@njit(cache=True, nogil=True)
def _collect(x: Floats, k: int, bits: np.int32, ties: int) -> Selected:
    """The k elements above the magnitude, and the first ``ties`` of that magnitude."""
    indices = np.empty(k, np.int32)
    values = np.empty(k, np.float32)
    kept = 0
    for i in range(x.size):
        magnitude = magnitude_bits(x[i])
        if magnitude > bits or (magnitude == bits and ties > 0):
            ties -= magnitude == bits
            indices[kept] = i
            values[kept] = x[i]
            kept += 1
            if kept == k:
                break
    return indices, values


@njit(cache=True, nogil=True)
def _clear(residual: Floats, indices: Ints) -> None:
    for i in range(indices.size):
        residual[indices[i]] = 0
