"""Selection by a threshold, with or without a residual, in two passes: count, then write."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cpu.topk import least_bits
from innet.kernels.cuda.device import (
    ONE_BLOCK,
    THREADS,
    Array,
    back,
    ballot,
    empty,
    exclusive_scan,
    filled,
    floats,
    rank,
    segment_of,
    threads_for,
    warps_for,
)
from innet.kernels.cuda.residual import sum_of

_NONE_TIED = 0


def select_threshold(x: Any, threshold: float, /) -> Any:
    """See ``innet.kernels.Kernels.select_threshold``."""
    indices, values = _select_threshold(floats(x), threshold)
    return back(indices, x), back(values, x)


def select_threshold_residual(gradient: Any, residual: Any, threshold: float, /) -> Any:
    """See ``innet.kernels.Kernels.select_threshold_residual``."""
    rest = sum_of(floats(residual), floats(gradient))
    indices, values = _select_threshold(rest, threshold)
    clear(rest, indices)
    return tuple(back(each, gradient, residual) for each in (indices, values, rest))


def _select_threshold(x: Array, threshold: float) -> tuple[Array, Array]:
    # The elements above the largest number that does not reach the threshold.
    state = cuda.to_device(np.array([least_bits(threshold) - 1, _NONE_TIED], np.int32))
    above, tied = ranks(x, state)
    count = int(above[above.size - 1 :].copy_to_host()[0])  # the size of the results
    indices, values = empty(count), empty(count, np.float32)
    write(x, state, above, tied, indices, values)
    return indices, values


# ----------------------------------------------------------------------------
# Exact top-k by magnitude, with or without a residual.
#
# A radix select finds the k-th largest magnitude in three passes, each with a histogram per block
# in shared memory. A fourth pass counts, for each segment of consecutive elements, those above that
# magnitude and those equal to it. The running totals of both give every element its position in the
# result, and tell which of the equal ones come first. A fifth pass writes. Nothing is copied to the
# host in between.

_MAGNITUDE = 0x7FFFFFFF
_BINS = 2048
_EACH = _BINS // THREADS  # bins per thread of one block
_AHEAD = 4  # words that a thread loads before it uses the first, to hide latency
_DIGITS = ((20, 11), (10, 10), (0, 10))  # shift and width
_KTH, _LEFT = 0, 1  # the bits of the k-th magnitude; how many of its elements are selected


def top_k(x: Any, k: int, /) -> Any:
    """See ``innet.kernels.Kernels.top_k``."""
    indices, values = _top_k(floats(x), k)
    return back(indices, x), back(values, x)


def top_k_residual(gradient: Any, residual: Any, k: int, /) -> Any:
    """See ``innet.kernels.Kernels.top_k_residual``."""
    rest = sum_of(floats(residual), floats(gradient))
    indices, values = _top_k(rest, k)
    clear(rest, indices)
    return tuple(back(each, gradient, residual) for each in (indices, values, rest))


def _top_k(x: Array, k: int) -> tuple[Array, Array]:
    indices, values = empty(k), empty(k, np.float32)
    if k == 0:
        return indices, values
    words = x.view(np.int32)
    state = cuda.to_device(np.array([0, k], np.int32))
    counts = filled(_BINS)
    for shift, width in _DIGITS:
        _histogram[threads_for(x.size)](words, shift, width, state, counts)
        _choose_digit[ONE_BLOCK](shift, state, counts)
    write(x, state, *ranks(x, state), indices, values)
    return indices, values


def clear(residual: Array, indices: Array) -> None:
    """Set the elements of these indices to zero."""
    _clear[threads_for(indices.size)](residual, indices)


def ranks(x: Array, state: Array) -> tuple[Array, Array]:
    """How many elements before each segment are above a magnitude, and how many equal to it.

    Args:
        x: shape (n,).
        state: the magnitude's bits, and how many of the elements equal to it are selected.

    Returns:
        Both for all segments and, as one more element, for the whole array.
    """
    segment = segment_of(x.size, 32 * _AHEAD)
    segments = -(-x.size // segment)
    above, tied = filled(segments + 1), filled(segments + 1)
    _tally[warps_for(segments)](x.view(np.int32), segment, state, above, tied)
    exclusive_scan(above)
    exclusive_scan(tied)
    return above, tied


def write(x: Array, state: Array, above: Array, tied: Array, indices: Array, values: Array) -> None:
    """Write the selected, with what ``ranks`` returned, into arrays of the right size."""
    segment = segment_of(x.size, 32 * _AHEAD)
    grid = warps_for(above.size - 1)
    _write[grid](x, x.view(np.int32), segment, state, above, tied, indices, values)


@cuda.jit
def _clear(residual: Array, indices: Array) -> None:
    for i in range(cuda.grid(1), indices.size, cuda.gridsize(1)):
        residual[indices[i]] = 0


@cuda.jit
def _histogram(words: Array, shift: int, width: int, state: Array, counts: Array) -> None:
    """Count the digits of the elements that agree with the k-th magnitude in all digits above."""
    bins = cuda.shared.array(_BINS, np.int32)
    for b in range(cuda.threadIdx.x, _BINS, cuda.blockDim.x):
        bins[b] = 0
    cuda.syncthreads()
    above = shift + width
    mask = (1 << width) - 1
    prefix = state[_KTH] >> above
    for i in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        bits = words[i] & _MAGNITUDE
        if (bits >> above) == prefix:
            cuda.atomic.add(bins, (bits >> shift) & mask, 1)
    cuda.syncthreads()
    for b in range(cuda.threadIdx.x, _BINS, cuda.blockDim.x):
        if bins[b] != 0:
            cuda.atomic.add(counts, b, bins[b])


@cuda.jit
def _choose_digit(shift: int, state: Array, counts: Array) -> None:
    """The digit of the k-th magnitude; the counts are zero afterwards."""
    sums = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    own = np.int32(0)
    for b in range(thread * _EACH, (thread + 1) * _EACH):
        own += counts[b]
    sums[thread] = own
    cuda.syncthreads()
    if thread == 0:
        left = state[_LEFT]
        part = THREADS - 1
        while sums[part] < left:
            left -= sums[part]
            part -= 1
        digit = (part + 1) * _EACH - 1
        while counts[digit] < left:
            left -= counts[digit]
            digit -= 1
        state[_KTH] |= np.int32(digit << shift)
        state[_LEFT] = left
    cuda.syncthreads()
    for b in range(thread, _BINS, THREADS):
        counts[b] = 0


@cuda.jit
def _tally(words: Array, segment: int, state: Array, above: Array, tied: Array) -> None:
    kth = state[_KTH]
    lane = cuda.grid(1) & 31
    for s in range(cuda.grid(1) >> 5, above.size - 1, cuda.gridsize(1) >> 5):
        more = np.int32(0)
        same = np.int32(0)
        for i in range(s * segment + lane, min((s + 1) * segment, words.size), 32):
            bits = words[i] & _MAGNITUDE
            more += np.int32(bits > kth)
            same += np.int32(bits == kth)
        if more != 0:
            cuda.atomic.add(above, s, more)
        if same != 0:
            cuda.atomic.add(tied, s, same)


@cuda.jit(device=True)
def _bits_at(words: Array, i: int) -> np.int32:
    """The magnitude's bits, or a number below all magnitudes after the end."""
    if i < words.size:
        return np.int32(words[i] & _MAGNITUDE)
    return np.int32(-1)


@cuda.jit(device=True)
def _write_32(
    x: Array, i: int, bits: np.int32, state: Array, more: np.int32, same: np.int32,
    indices: Array, values: Array,
) -> tuple[np.int32, np.int32]:  # fmt: skip
    """Write the selected of a warp's 32 elements; ``more`` and ``same`` precede them."""
    kth, ties = state[_KTH], state[_LEFT]
    reaching = ballot(bits >= kth)
    if reaching != 0:  # for all lanes or for none
        equal = ballot(bits == kth)
        larger = np.uint32(reaching ^ equal)
        lane = i & 31
        ties_before = same + rank(equal, lane)
        if bits > kth or (bits == kth and ties_before < ties):
            position = more + rank(larger, lane) + min(ties_before, ties)
            indices[position] = i
            values[position] = x[i]
        more += np.int32(cuda.popc(larger))
        same += np.int32(cuda.popc(equal))
    return more, same


@cuda.jit
def _write(
    x: Array, words: Array, segment: int, state: Array, above: Array, tied: Array,
    indices: Array, values: Array,
) -> None:  # fmt: skip
    lane = cuda.grid(1) & 31
    for s in range(cuda.grid(1) >> 5, above.size - 1, cuda.gridsize(1) >> 5):
        more, same = above[s], tied[s]
        for start in range(s * segment, min((s + 1) * segment, words.size), 32 * _AHEAD):
            i = start + lane
            first, second = _bits_at(words, i), _bits_at(words, i + 32)
            third, fourth = _bits_at(words, i + 64), _bits_at(words, i + 96)
            more, same = _write_32(x, i, first, state, more, same, indices, values)
            more, same = _write_32(x, i + 32, second, state, more, same, indices, values)
            more, same = _write_32(x, i + 64, third, state, more, same, indices, values)
            more, same = _write_32(x, i + 96, fourth, state, more, same, indices, values)
