"""Exact top-k by magnitude, with or without a residual, in little more than one reading.

A sample gives a threshold that slightly more than k elements reach; one pass lists these candidates
(and adds gradient and residual on the way, and writes what will probably not be selected); a select
among the candidates is exact, and where it decided otherwise than was written that is put right. A
sample that misled, or a gradient with too many equal magnitudes, costs another few passes over the
whole array, never exactness.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from innet import memory
from innet.kernels.arrays import Floats, Ints, Selected
from innet.kernels.cpu.candidates import STRETCH, list_reaching, list_sums, new_lists
from innet.kernels.cpu.intrinsics import magnitude_bits
from innet.kernels.cpu.sums import add_scaled

_SMALL = 1 << 15  # below this a select over everything is as fast as sampling
_TOGETHER = 4  # neighbours of the sample: they come with one access to the memory
_DEVIATIONS = 6  # by how many the sample may be wrong
_TINIEST = 1  # the bits of the smallest magnitude that is not zero


class _Guess(NamedTuple):
    """What a sample says of the k-th largest magnitude.

    Attributes:
        least: bits of a magnitude that very likely k and not many more elements reach.
        likely: bits of one that about k elements reach.
        room: how many will very likely reach ``least`` at the most, with that of a stretch.
    """

    least: np.uint32
    likely: np.uint32
    room: int


def top_k(x: Floats, k: int, /) -> Selected:
    """See ``innet.kernels.Kernels.top_k``."""
    if not _worth_sampling(x, k):
        return _exact(x, k)
    guess = _guess(x, None, k)
    lists = new_lists(guess.room)
    place, found = list_reaching(x, guess.least, lists, (0, 0))
    if place < x.size:
        return _exact(x, k)
    if found >= k:
        bits, last = _kth_magnitude(lists[1][:found], k)
        chosen = new_lists(k + 1)
        _keep(lists, found, bits, last, chosen)
        return chosen[0][:k], chosen[1][:k]
    if guess.least == _TINIEST:
        # All that is not zero, and the first zeros to make up the number.
        return _collect(x, k, 0, _nth_zero(x, k - found))
    return _exact(x, k)


def top_k_residual(gradient: Floats, residual: Floats, k: int, /) -> tuple[Ints, Floats, Floats]:
    """See ``innet.kernels.Kernels.top_k_residual``."""
    if _worth_sampling(residual, k):
        guess = _guess(residual, gradient, k)
        lists = new_lists(guess.room)
        rest: Floats = memory.empty(residual.size, np.float32)
        terms, bounds = (residual, gradient), (guess.least, guess.likely)
        past = memory.passes_caches(rest)
        place, found = list_sums(terms, rest, bounds, lists, (0, 0), past)
        if place == residual.size and found >= k:
            bits, last = _kth_magnitude(lists[1][:found], k)
            chosen = new_lists(k + 1)
            _keep(lists, found, bits, last, chosen)
            _mend(lists, found, bits, last, int(guess.likely), rest)
            return chosen[0][:k], chosen[1][:k], rest
    rest, _ = add_scaled(residual, gradient, 1.0)
    indices, values = _exact(rest, k)
    _clear(rest, indices)
    return indices, values, rest


def _worth_sampling(x: Floats, k: int) -> bool:
    return x.size >= _SMALL and 0 < k < x.size // 4


def _guess(x: Floats, y: Floats | None, k: int) -> _Guess:
    """From a sample of x (+ y)."""
    # A sample of s costs in proportion to s, its error, which lets more candidates through, to
    # k / sqrt(s · k / n): together least where s³ is in proportion to k · n. Where k is small it is
    # the constant below that lets most through, and s² that is to be in proportion to n.
    size = x.size
    sample = _sample(x, y, max(3 * math.ceil(math.cbrt(k * size)), 4 * math.isqrt(size)))
    each = size / sample.size  # so many elements one of the sample stands for
    expected = k / each
    # Deviations of a count of independent elements; half as many of one of elements that are as
    # large as their neighbours; and a constant for when that count is small.
    rank = min(math.ceil(expected + _DEVIATIONS * math.sqrt(expected) + 8), sample.size)
    bits, _ = _kth_magnitude(sample, rank)
    # At zero everything would be a candidate; what is not zero is a better guess.
    least = np.uint32(max(int(bits), _TINIEST))
    likely = least if y is None else _within(sample, least, math.ceil(expected))
    room = math.ceil((rank + _DEVIATIONS * math.sqrt(rank)) * each) + STRETCH
    return _Guess(least, likely, room)


def _within(sample: Floats, least: np.uint32, rank: int) -> np.uint32:
    """Bits of the magnitude of that rank, among those that reach ``least`` where so many do."""
    lists = new_lists(sample.size + STRETCH)
    _, found = list_reaching(sample, least, lists, (0, 0))
    if found < rank:
        return least
    bits, _ = _kth_magnitude(lists[1][:found], rank)
    return np.uint32(bits)


def _exact(x: Floats, k: int) -> Selected:
    if k == 0:
        return np.empty(0, np.int32), np.empty(0, np.float32)
    if k == x.size:
        return np.arange(k, dtype=np.int32), x.copy()
    return _collect(x, k, *_kth_magnitude(x, k))


@njit(cache=True, nogil=True)
def _sample(x: Floats, y: Floats | None, count: int) -> Floats:
    """``count`` elements or a few less, groups of neighbours, ascending: as many pieces of the
    array have one group each, at the places of a Weyl sequence, which no stride of a layout falls
    in step with.
    """
    groups = count // _TOGETHER
    sample = np.empty(groups * _TOGETHER, np.float32)
    piece = np.uint64((x.size - _TOGETHER) // groups)
    fraction = np.uint64(0)
    for j in range(groups):
        fraction += np.uint64(0x9E3779B97F4A7C15)
        offset = ((fraction >> np.uint64(32)) * piece) >> np.uint64(32)
        first = np.int64(np.uint64(j) * piece + offset)
        for i in range(_TOGETHER):
            value = x[first + i]
            if y is not None:
                value += y[first + i]
            sample[j * _TOGETHER + i] = value
    return sample


@njit(cache=True, nogil=True)
def _kth_magnitude(x: Floats, k: int) -> tuple[int, int]:
    """Radix select of the k-th largest magnitude, 1 <= k <= n.

    Returns:
        Its bits, and the index of the last element of that magnitude that is among the k largest.
    """
    largest = np.int32(0)
    for i in range(x.size):
        largest = max(largest, magnitude_bits(x[i]))
    # The first digit tells 32 magnitudes of the same exponent apart: few elements share that of the
    # k-th, and it is seldom the same for neighbours, whose counts would wait for each other.
    count = np.zeros(1 << 13, np.int32)
    for i in range(x.size):
        count[np.uint64(magnitude_bits(x[i])) >> np.uint64(18)] += 1
    prefix, left = _descend(count[: (largest >> 18) + 1], k)
    places = np.empty(count[prefix] + 1, np.int32)
    found = 0
    for i in range(x.size):
        # Written in any case, as a branch might be guessed wrongly: hence the place more.
        places[found] = i
        found += int(magnitude_bits(x[i]) >> 18 == prefix)
    for shift in (9, 0):
        count[: 1 << 9] = 0
        for j in range(found):
            bits = magnitude_bits(x[np.uint64(places[j])])
            # Of the last digit, only what shares all before it counts.
            if bits >> (shift + 9) == prefix:
                count[(bits >> shift) & 0x1FF] += 1
        digit, left = _descend(count[: 1 << 9], left)
        prefix = (prefix << 9) | digit
    j = -1
    while left > 0:
        j += 1
        left -= int(magnitude_bits(x[np.uint64(places[j])]) == prefix)
    return prefix, int(places[j])


@njit(cache=True, nogil=True)
def _descend(count: Ints, k: int) -> tuple[int, int]:
    """The digit that the k-th largest has, and how many of those k have that digit."""
    digit = count.size - 1
    while count[digit] < k:
        k -= count[digit]
        digit -= 1
    return digit, k


@njit(cache=True, nogil=True)
def _keep(lists: Selected, found: int, bits: int, last: int, chosen: Selected) -> None:
    """Copy the selected of the candidates, in order; ``chosen`` has one place more.

    Up to the ``last`` those are selected whose magnitude has these bits.
    """
    indices, values = chosen
    kept = 0
    for start, end, least in ((0, last + 1, bits), (last + 1, found, bits + 1)):
        for i in range(start, end):
            # Written whether selected or not: a branch here would be guessed wrongly too often.
            indices[kept] = lists[0][i]
            values[kept] = lists[1][i]
            kept += int(magnitude_bits(lists[1][i]) >= least)


@njit(cache=True, nogil=True)
def _mend(  # noqa: PLR0917 - compiled functions are called by position
    lists: Selected, found: int, bits: int, last: int, cleared: int, rest: Floats
) -> None:
    """``rest``, which is 0 in the place of what reaches ``cleared``, becomes so in the place of the
    selected, and has the values of the others. They were guessed wrongly only near the bound.
    """
    lower, upper = min(bits, cleared), max(bits, cleared)
    for i in range(found):
        magnitude = magnitude_bits(lists[1][i])
        if lower <= magnitude <= upper:
            selected = magnitude > bits or (magnitude == bits and i <= last)
            rest[np.uint64(lists[0][i])] = np.float32(0) if selected else lists[1][i]


@njit(cache=True, nogil=True)
def _collect(x: Floats, k: int, bits: int, last: int) -> Selected:
    """The k elements above the magnitude, and those of that magnitude up to the ``last``."""
    indices = np.empty(k + 1, np.int32)
    values = np.empty(k + 1, np.float32)
    kept = 0
    for start, end, least in ((0, last + 1, bits), (last + 1, x.size, bits + 1)):
        for i in range(start, end):
            # As in ``_keep``.
            indices[kept] = i
            values[kept] = x[i]
            kept += int(magnitude_bits(x[i]) >= least)
    return indices[:k], values[:k]


@njit(cache=True, nogil=True)
def _nth_zero(x: Floats, n: int) -> int:
    """The index of the n-th zero, 1 <= n."""
    i = -1
    while n > 0:
        i += 1
        n -= int(x[i] == 0)
    return i


@njit(cache=True, nogil=True)
def _clear(residual: Floats, indices: Ints) -> None:
    for i in range(indices.size):
        residual[indices[i]] = 0
