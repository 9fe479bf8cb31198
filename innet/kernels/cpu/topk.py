"""Selection by magnitude: the elements that reach a threshold, and the k largest.

A mispredicted branch costs more than processing a few elements. So there is no branch per element:
64 elements are tested at a time, a fixed number of indices is written for them, and values are
fetched when a stretch is listed, while it is in the L1 cache.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Floats, Ints, Selected
from innet.kernels.cpu.intrinsics import (
    flag_32,
    magnitude_bits,
    prefetch,
    set_bits,
    split_sum_64,
    trailing_zeros,
)
from innet.kernels.cpu.residual import add_scaled

STRETCH = 2048  # elements listed before their values are fetched
AT_ONCE = 4  # items written for each 64 elements, as in ``list_bits``
_MORE_AT_ONCE = 12  # likewise, if more than ``_MANY`` of a stretch were listed
_MANY = STRETCH // 32
_MAGNITUDE = np.uint32(0x7FFFFFFF)


def new_lists(room: int) -> Selected:
    """Arrays for that number of indices and values."""
    return buffers.empty(room, np.int32), buffers.empty(room, np.float32)


@njit(cache=True, nogil=True)
def list_threshold(
    x: Floats, least: np.uint32, lists: Selected, progress: tuple[int, int]
) -> tuple[int, int]:
    """List the elements whose magnitude's bits reach ``least``.

    ``progress`` is the index to begin at, a multiple of ``STRETCH``, and how many are listed
    already. The new progress is returned: its index is the end, or where the lists may have no room
    for another stretch.
    """
    indices, values = lists
    start, found = progress
    listed = found
    while start < x.size and found + STRETCH <= indices.size:
        many, listed = found - listed > _MANY, found
        end = min(start + STRETCH, x.size)
        full = end - (end - start) % 64
        if many:
            found = _reach(x, start, full, least, indices, found, _MORE_AT_ONCE)
        else:
            found = _reach(x, start, full, least, indices, found, AT_ONCE)
        for i in range(full, end):
            indices[found] = i
            found += int(magnitude_bits(x[i]) >= np.int32(least))
        for j in range(listed, found):
            values[j] = x[np.uint64(indices[j])]
        start = end
    return start, found


@njit(cache=True, nogil=True)
def list_sums(  # noqa: PLR0917 - compiled functions are called by position
    terms: tuple[Floats, Floats],
    rest: Floats,
    bounds: tuple[np.uint32, np.uint32],
    lists: Selected,
    progress: tuple[int, int],
    past: bool,
) -> tuple[int, int]:
    """``list_threshold`` of the sums of two arrays and the first of the bounds. The sums go to
    ``rest``, which is 0 in the place of those that reach the second, ``past`` the caches or not.
    """
    x, y = terms
    least, cleared = bounds
    indices, values = lists
    start, found = progress
    listed = found
    while start < x.size and found + STRETCH <= indices.size:
        many, listed = found - listed > _MANY, found
        end = min(start + STRETCH, x.size)
        full = end - (end - start) % 64
        if many:
            found = _split(terms, rest, bounds, past, start, full, indices, found, _MORE_AT_ONCE)
        else:
            found = _split(terms, rest, bounds, past, start, full, indices, found, AT_ONCE)
        for i in range(full, end):
            value = x[i] + y[i]
            bits = magnitude_bits(value)
            rest[i] = np.float32(0) if bits >= np.int32(cleared) else value
            indices[found] = i
            found += int(bits >= np.int32(least))
        for j in range(listed, found):
            position = np.uint64(indices[j])
            values[j] = x[position] + y[position]
        start = end
    return start, found


@njit(cache=True, nogil=True)
def list_between(x: Floats, least: np.uint32, bound: np.uint32, positions: Ints) -> int:
    """Write the places where the magnitude's bits reach ``least``, but not ``bound``; returns how
    many there are.

    ``places`` has ``AT_ONCE`` places more than that, which are overwritten.
    """
    found = 0
    full = x.size - x.size % 64
    for i in range(0, full, 64):
        flags = _flag_64(x, i, least) & ~_flag_64(x, i, bound)
        found = _list_64(flags, i, positions, found, AT_ONCE)
    for i in range(full, x.size):
        positions[found] = i
        found += int(np.int64(least) <= magnitude_bits(x[i]) < np.int64(bound))
    return found


@njit(cache=True, inline="always")
def _reach(  # noqa: PLR0917 - written into its callers, where ``at_once`` is a constant
    x: Floats, start: int, end: int, least: np.uint32, indices: Ints, found: int, at_once: int
) -> int:
    """The indices of ``list_threshold``, of 64 elements at a time; returns how many there are."""
    for i in range(start, end, 64):
        found = _list_64(_flag_64(x, i, least), i, indices, found, at_once)
    return found


@njit(cache=True, inline="always")
def _split(  # noqa: PLR0917 - as ``_reach``
    terms: tuple[Floats, Floats],
    rest: Floats,
    bounds: tuple[np.uint32, np.uint32],
    past: bool,
    start: int,
    end: int,
    indices: Ints,
    found: int,
    at_once: int,
) -> int:
    """The same of ``list_sums``; and ``rest``."""
    for i in range(start, end, 64):
        flags = split_sum_64(terms[0], terms[1], i, bounds[0], bounds[1], rest, past)
        found = _list_64(flags, i, indices, found, at_once)
    return found


@njit(cache=True, inline="always")
def _flag_64(x: Floats, start: int, least: np.uint32) -> np.uint64:
    """Bit j tells whether the magnitude's bits at start + j reach ``least``, for j = 0 .. 63."""
    lower = np.uint64(flag_32(x, start, _MAGNITUDE, least))
    upper = np.uint64(flag_32(x, start + 32, _MAGNITUDE, least))
    return lower | (upper << np.uint64(32))


@njit(cache=True, inline="always")
def _list_64(flags: np.uint64, first: int, indices: Ints, found: int, at_once: int) -> int:
    """Append ``first`` + the position of each bit; returns how many there are now."""
    position = np.uint64(found)  # unsigned, so that nothing wraps around
    count = set_bits(flags)
    for k in range(at_once):
        indices[position + np.uint64(k)] = first + trailing_zeros(flags)
        flags &= flags - np.uint64(1)
    for k in range(at_once, count):
        indices[position + np.uint64(k)] = first + trailing_zeros(flags)
        flags &= flags - np.uint64(1)
    return found + count


# ----------------------------------------------------------------------------
# The elements that reach a known threshold, with or without a residual, in one pass.
#
# Their number is not known in advance: the lists begin with room for a sixteenth of the elements.
# If that is not enough, the rest is counted, and the lists are enlarged accordingly. The worst case
# costs a second pass and little memory beyond the result.

_INFINITY = 0x7F800000


def select_threshold(x: Floats, threshold: float, /) -> Selected:
    """See ``innet.kernels.Kernels.select_threshold``."""
    least = np.uint32(least_bits(threshold))
    lists = new_lists(x.size // 16 + STRETCH)
    position, found = list_threshold(x, least, lists, (0, 0))
    if position == x.size:
        return lists[0][:found].copy(), lists[1][:found].copy()
    lists = _longer(lists, found, _count(x[position:], None, least))
    _, found = list_threshold(x, least, lists, (position, found))
    return lists[0][:found], lists[1][:found]


def select_threshold_residual(
    gradient: Floats, residual: Floats, threshold: float, /
) -> tuple[Ints, Floats, Floats]:
    """See ``innet.kernels.Kernels.select_threshold_residual``."""
    least = np.uint32(least_bits(threshold))
    rest: Floats = buffers.empty(residual.size, np.float32)
    past = buffers.passes_caches(rest)
    terms, bounds = (residual, gradient), (least, least)
    lists = new_lists(residual.size // 16 + STRETCH)
    position, found = list_sums(terms, rest, bounds, lists, (0, 0), past)
    if position == residual.size:
        return lists[0][:found].copy(), lists[1][:found].copy(), rest
    lists = _longer(lists, found, _count(residual[position:], gradient[position:], least))
    _, found = list_sums(terms, rest, bounds, lists, (position, found), past)
    return lists[0][:found], lists[1][:found], rest


def least_bits(threshold: float) -> int:
    """The bits of the smallest float32, infinity included, that is not below the threshold."""
    with np.errstate(over="ignore", under="ignore"):
        nearest = np.float32(threshold)
    bits = int(nearest.view(np.int32))
    return bits + 1 if float(nearest) < threshold and bits < _INFINITY else bits


def _longer(lists: Selected, found: int, more: int) -> Selected:
    """The lists, with room for that number of further items."""
    longer = new_lists(found + more + STRETCH)
    for old, new in zip(lists, longer, strict=True):
        new[:found] = old[:found]
    return longer


@njit(cache=True, nogil=True)
def _count(x: Floats, gradient: Floats | None, least: np.uint32) -> int:
    """How many of x, or of x + gradient, reach the bits."""
    count = 0
    for i in range(x.size):
        value = x[i] if gradient is None else x[i] + gradient[i]
        count += int(magnitude_bits(value) >= np.int32(least))
    return count


# ----------------------------------------------------------------------------
# Exact top-k by magnitude, with or without a residual, in little more than one pass.
#
# A sample gives a threshold that slightly more than k elements reach. One pass lists these
# candidates; it also adds gradient and residual, and writes the values that are probably not
# selected. The selection among the candidates is exact, and corrects what was written wrongly. A
# misleading sample, or a gradient with too many equal magnitudes, costs a few more passes over the
# array, but the result is exact.

_SMALL = 1 << 13  # below this, a selection among all elements is as fast as sampling
_TOGETHER = 4  # neighbors in the sample, which share one memory access
_DEVIATIONS = 6  # standard deviations that the sample may be wrong by
_AHEAD = 16  # items to prefetch before they are written
_TINIEST = 1  # the bits of the smallest magnitude that is not zero


class _Guess(NamedTuple):
    """An estimate of the k-th largest magnitude from a sample.

    Attributes:
        least: bits of a magnitude that very likely at least k elements reach, and not many more.
        likely: bits of a magnitude that about k elements reach.
        room: an upper bound, very likely, on how many reach ``least``, plus a stretch.
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
    position, found = list_threshold(x, guess.least, lists, (0, 0))
    if position == x.size and found >= k:
        indices, values = lists[0][:found], lists[1][:found]
        return _pick(indices, values, k, *_kth_magnitude(values, k))
    if position == x.size and guess.least == _TINIEST:
        # All elements that are not zero, and as many of the first zeros as needed.
        return _pick(None, x, k, 0, _nth_zero(x, k - found))
    return _exact(x, k)


def top_k_residual(gradient: Floats, residual: Floats, k: int, /) -> tuple[Ints, Floats, Floats]:
    """See ``innet.kernels.Kernels.top_k_residual``."""
    if _worth_sampling(residual, k):
        guess = _guess(residual, gradient, k)
        lists = new_lists(guess.room)
        rest: Floats = buffers.empty(residual.size, np.float32)
        terms, bounds = (residual, gradient), (guess.least, guess.likely)
        past = buffers.passes_caches(rest)
        position, found = list_sums(terms, rest, bounds, lists, (0, 0), past)
        if position == residual.size and found >= k:
            indices, values = lists[0][:found], lists[1][:found]
            bits, last = _kth_magnitude(values, k)
            _mend(indices, values, bits, last, int(guess.likely), rest)
            return *_pick(indices, values, k, bits, last), rest
    rest, _ = add_scaled(residual, gradient, 1.0)
    indices, values = _exact(rest, k)
    _clear(rest, indices)
    return indices, values, rest


def _worth_sampling(x: Floats, k: int) -> bool:
    return x.size >= _SMALL and 0 < k < x.size // 4


def _guess(x: Floats, y: Floats | None, k: int) -> _Guess:
    """An estimate from a sample of x (+ y)."""
    # A sample of s costs in proportion to s, its error, which lets more candidates through, to
    # k / sqrt(s · k / n): together least where s³ is in proportion to k · n. Where k is small it is
    # the constant below that lets most through, and s² that is to be in proportion to n.
    size = x.size
    sample = _sample(x, y, max(3 * math.ceil(math.cbrt(k * size)), 4 * math.isqrt(size)))
    each = size / sample.size  # elements per element of the sample
    expected = k / each
    # Deviations of a count of independent elements; half as many of one of elements that are as
    # large as their neighbors; and a constant for when that count is small.
    rank = min(math.ceil(expected + _DEVIATIONS * math.sqrt(expected) + 8), sample.size)
    bits, _ = _kth_magnitude(sample, rank)
    # At zero all elements would be candidates; the nonzero ones are a better guess.
    least = np.uint32(max(int(bits), _TINIEST))
    likely = least if y is None else _within(sample, least, math.ceil(expected))
    room = math.ceil((rank + _DEVIATIONS * math.sqrt(rank)) * each) + STRETCH
    return _Guess(least, likely, room)


def _within(sample: Floats, least: np.uint32, rank: int) -> np.uint32:
    """Bits of the magnitude of that rank; if enough reach ``least``, only those are searched."""
    lists = new_lists(sample.size + STRETCH)
    _, found = list_threshold(sample, least, lists, (0, 0))
    if found < rank:
        return least
    bits, _ = _kth_magnitude(lists[1][:found], rank)
    return np.uint32(bits)


def _exact(x: Floats, k: int) -> Selected:
    if k == 0:
        return np.empty(0, np.int32), np.empty(0, np.float32)
    if k == x.size:
        return np.arange(k, dtype=np.int32), x.copy()
    return _pick(None, x, k, *_kth_magnitude(x, k))


def _pick(indices: Ints | None, values: Floats, k: int, bits: int, last: int) -> Selected:
    """The k of the candidates whose magnitude is above these bits, or has them and comes no later
    than the ``last`` of them; without indices everything is a candidate.
    """
    chosen = new_lists(k + 1)
    _copy_selected(indices, values, bits, last, chosen)
    return chosen[0][:k], chosen[1][:k]


@njit(cache=True, nogil=True)
def _sample(x: Floats, y: Floats | None, count: int) -> Floats:
    """A sample of ``count`` elements or a few less: ascending groups of neighbors.

    The array is cut into as many pieces, with one group each. The positions within the pieces are a
    Weyl sequence, which does not resonate with the stride of a layout.
    """
    groups = count // _TOGETHER
    sample = np.empty(groups * _TOGETHER, np.float32)
    piece = np.uint64((x.size - _TOGETHER) // groups)
    for j in range(groups):
        first = _place(j, piece)
        ahead = _place(min(j + _AHEAD, groups - 1), piece)
        prefetch(x, ahead)
        if y is not None:
            prefetch(y, ahead)
        for i in range(_TOGETHER):
            value = x[first + i]
            if y is not None:
                value += y[first + i]
            sample[j * _TOGETHER + i] = value
    return sample


@njit(cache=True, inline="always")
def _place(j: int, piece: np.uint64) -> int:
    """The position within the j-th piece."""
    fraction = np.uint64(j) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
    return int(np.uint64(j) * piece + ((fraction * piece) >> np.uint64(32)))


@njit(cache=True, nogil=True)
def _kth_magnitude(x: Floats, k: int) -> tuple[int, int]:
    """Radix select of the k-th largest magnitude, 1 <= k <= n.

    Returns:
        Its bits, and the index of the last element of that magnitude that is among the k largest.
    """
    # The range of the magnitudes' bits.
    smallest, largest = np.int32(0x7FFFFFFF), np.int32(0)
    for i in range(x.size):
        smallest = min(smallest, magnitude_bits(x[i]))
        largest = max(largest, magnitude_bits(x[i]))
    least, span = int(smallest), int(largest) - int(smallest)
    # The first digit divides the actual range into many values, even if it is narrow. So few
    # elements share the digit of the k-th, and neighbors seldom share one, which would make their
    # counts wait for each other. More values than elements would only lengthen the search.
    shift = 0
    while span >> shift >= min(x.size, 1 << 13):
        shift += 1
    count = np.zeros(max((span >> shift) + 1, 1 << 9), np.int32)
    for i in range(x.size):
        count[np.uint64(magnitude_bits(x[i]) - smallest) >> np.uint64(shift)] += 1
    # The first digit of the k-th, and the indices of all elements that share it.
    prefix, left = _descend(count, span >> shift, k)
    positions = np.empty(count[prefix] + AT_ONCE, np.int32)
    lower = least + (prefix << shift)
    found = list_between(x, np.uint32(lower), np.uint32(lower + (1 << shift)), positions)
    # Digit by digit, among these.
    while shift > 0:
        above = shift
        shift = max(0, shift - 9)
        mask = (1 << (above - shift)) - 1
        count[: mask + 1] = 0
        for j in range(found):
            bits = magnitude_bits(x[positions[j]]) - least
            # Only elements that share all earlier digits count.
            if bits >> above == prefix:
                count[(bits >> shift) & mask] += 1
        digit, left = _descend(count, mask, left)
        prefix = (prefix << (above - shift)) | digit
    # The last one of that magnitude which is among the k largest.
    j = -1
    while left > 0:
        j += 1
        left -= int(magnitude_bits(x[positions[j]]) - least == prefix)
    return least + prefix, int(positions[j])


@njit(cache=True, nogil=True)
def _descend(count: Ints, digit: int, k: int) -> tuple[int, int]:
    """The digit that the k-th largest has, where the largest has ``digit``; and how many of those k
    have that digit.
    """
    while count[digit] < k:
        k -= count[digit]
        digit -= 1
    return digit, k


@njit(cache=True, nogil=True)
def _copy_selected(
    indices: Ints | None, values: Floats, bits: int, last: int, chosen: Selected
) -> None:
    """See ``_pick``; ``chosen`` has one more item."""
    kept = 0
    for start, end, least in ((0, last + 1, bits), (last + 1, values.size, bits + 1)):
        for i in range(start, end):
            # Written whether selected or not: a branch would be mispredicted too often.
            chosen[0][kept] = i if indices is None else indices[i]
            chosen[1][kept] = values[i]
            kept += int(magnitude_bits(values[i]) >= least)


@njit(cache=True, nogil=True)
def _mend(  # noqa: PLR0917 - compiled functions are called by position
    indices: Ints, values: Floats, bits: int, last: int, cleared: int, rest: Floats
) -> None:
    """``rest``, which is 0 in the place of what reaches ``cleared``, becomes so in the place of the
    selected, see ``_pick``, and has the values of the others.
    """
    lower, upper = min(bits, cleared), max(bits, cleared)
    positions = np.empty(values.size + AT_ONCE, np.int32)
    wrong = list_between(values, np.uint32(lower), np.uint32(upper + 1), positions)
    for j in range(wrong):
        i = positions[j]
        prefetch(rest, indices[positions[min(j + _AHEAD, wrong - 1)]])
        magnitude = magnitude_bits(values[i])
        selected = magnitude > bits or (magnitude == bits and i <= last)
        rest[indices[i]] = np.float32(0) if selected else values[i]


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
