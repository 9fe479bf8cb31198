"""The lossless homomorphic sketch: encode, occupancy, peel. ``innet.kernels.layout`` defines it.

Compiled functions get the layout as one tuple ``hashing`` = (part, log2(lanes), seed): a division
for each item would cost more than its hash.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from innet.kernels.arrays import Ints, Words
from innet.kernels.cpu.intrinsics import flag_32, trailing_zeros
from innet.kernels.layout import SketchLayout

Hashing = tuple[int, int, np.uint64]
Hash = tuple[np.uint64, np.uint64]  # what a block's three cells and signs are read from
Cells = NDArray[np.int32]  # shape (cells, 3): sum, occupancy, exclusive or of the indices

_QUEUE = 1 << 15  # cells waiting to be peeled, a power of two; another sweep finds what overflows


def lhc_encode(
    indices: Ints | None, integers: Ints, size: int, layout: SketchLayout, /
) -> tuple[Ints, Ints]:
    """See ``innet.kernels.Kernels.lhc_encode``."""
    bitmap = np.zeros(-(-size // 32), np.uint32)
    sketch = np.zeros(layout.cells, np.int32)
    if indices is None:
        _encode_dense(integers, _hashing(layout), bitmap, sketch)
    else:
        _encode_sparse(indices, integers, _hashing(layout), bitmap, sketch)
    return bitmap.view(np.int32), sketch


def lhc_occupancy(bitmap: Ints, size: int, layout: SketchLayout, /) -> Ints:
    """See ``innet.kernels.Kernels.lhc_occupancy``."""
    cells = np.zeros((layout.cells, 3), np.int32)
    _occupy(_pending(bitmap, size), _hashing(layout), cells)
    return cells[:, 1].copy()


def lhc_peel(bitmap: Ints, sketch: Ints, size: int, layout: SketchLayout, /) -> tuple[Ints, Ints]:
    """See ``innet.kernels.Kernels.lhc_peel``.

    Scratch: 12 bytes for each cell, a copy of the bitmap and the queue.
    """
    pending = _pending(bitmap, size)
    # Whoever needs one of a cell's three numbers needs the others, so they share a cache line.
    cells = np.zeros((layout.cells, 3), np.int32)
    cells[:, 0] = sketch
    total = np.zeros(size, np.int32)
    _occupy(pending, _hashing(layout), cells)
    _peel(pending, _hashing(layout), cells, total)
    return total, pending.view(np.int32)


def _hashing(layout: SketchLayout) -> Hashing:
    return layout.part, layout.lanes.bit_length() - 1, np.uint64(layout.seed)


def _pending(bitmap: Ints, size: int) -> Words:
    """A copy without the bits past the last element, which would lead outside the arrays."""
    pending = bitmap.view(np.uint32).copy()
    if size % 32:
        pending[-1] &= np.uint32((1 << size % 32) - 1)
    return pending


@njit(cache=True)
def _mix(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True)
def _hash(item: int, hashing: Hashing) -> Hash:
    """The two words that decide where the block of the item goes."""
    _, shift, seed = hashing
    z0 = _mix(np.uint64(item >> shift) * np.uint64(0x9E3779B97F4A7C15) + seed)
    return z0, _mix(z0 + np.uint64(0x9E3779B97F4A7C15))


@njit(cache=True)
def _cell(words: Hash, j: int, item: int, hashing: Hashing) -> int:
    """The item's cell in part j, given its block's hash."""
    z0, z1 = words
    part, shift, _ = hashing
    half = z0 & np.uint64(0xFFFFFFFF)
    if j == 1:
        half = z0 >> np.uint64(32)
    elif j == 2:
        half = z1 & np.uint64(0xFFFFFFFF)
    row = j * part + int((half * np.uint64(part)) >> np.uint64(32))
    turn = int((z1 >> np.uint64(35 + 9 * j)) & np.uint64(511))
    return (row << shift) + ((item + turn) & ((1 << shift) - 1))


@njit(cache=True)
def _signed(words: Hash, j: int, integer: np.int32) -> int:
    """The integer, negated where the sign of part j says so, in 64 bits."""
    return int(integer) * (1 - 2 * int((words[1] >> np.uint64(32 + j)) & np.uint64(1)))


@njit(cache=True)
def _add(sketch: Ints, item: int, integer: np.int32, words: Hash, hashing: Hashing) -> None:
    for j in range(3):
        cell = _cell(words, j, item, hashing)
        # Added up in 64 bits and stored in 32: modulo 2**32.
        sketch[cell] = np.int32(sketch[cell] + _signed(words, j, integer))


@njit(cache=True)
def _encode_dense(integers: Ints, hashing: Hashing, bitmap: Words, sketch: Ints) -> None:
    shift = hashing[1]
    last = -1
    words = (np.uint64(0), np.uint64(0))
    for w in range(bitmap.size):
        first = 32 * w
        if first + 32 <= integers.size:
            flags = flag_32(integers, first, np.uint32(0xFFFFFFFF), np.uint32(1))
        else:
            flags = np.uint32(0)
            for i in range(first, integers.size):
                flags |= np.uint32(integers[i] != 0) << np.uint32(i - first)
        bitmap[w] = flags
        while flags != np.uint32(0):
            item = first + trailing_zeros(flags)
            flags &= flags - np.uint32(1)
            if item >> shift != last:
                last = item >> shift
                words = _hash(item, hashing)
            _add(sketch, item, integers[item], words, hashing)


@njit(cache=True)
def _encode_sparse(
    indices: Ints, integers: Ints, hashing: Hashing, bitmap: Words, sketch: Ints
) -> None:
    for i in range(indices.size):
        if integers[i] != 0:
            item = int(indices[i])
            bitmap[item >> 5] |= np.uint32(1) << np.uint32(item & 31)
            _add(sketch, item, integers[i], _hash(item, hashing), hashing)


@njit(cache=True)
def _occupy(pending: Words, hashing: Hashing, cells: Cells) -> None:
    """Count the elements of every cell and combine their indices by exclusive or."""
    shift = hashing[1]
    last = -1
    words = (np.uint64(0), np.uint64(0))
    for w in range(pending.size):
        flags = pending[w]
        while flags != np.uint32(0):
            item = 32 * w + trailing_zeros(flags)
            flags &= flags - np.uint32(1)
            if item >> shift != last:
                last = item >> shift
                words = _hash(item, hashing)
            for j in range(3):
                cell = _cell(words, j, item, hashing)
                cells[cell, 1] += 1
                cells[cell, 2] ^= np.int32(item)


@njit(cache=True)
def _peel(pending: Words, hashing: Hashing, cells: Cells, total: Ints) -> None:
    """Peel until nothing moves; clear the pending bits of what was recovered."""
    third = hashing[0] << hashing[1]  # cells of a part
    queue = np.empty(_QUEUE, np.int32)
    again = True
    while again:
        again = False
        start = 0
        while start < cells.shape[0]:
            # Many cells at a time: what follows is bound by the memory's latency, and cells that
            # have nothing to do with each other are fetched side by side.
            tail = 0
            while start < cells.shape[0] and tail < _QUEUE // 2:
                queue[tail] = start
                tail += cells[start, 1] == 1
                start += 1
            head = 0
            while head != tail:
                cell = int(queue[head & (_QUEUE - 1)])
                head += 1
                if cells[cell, 1] != 1:  # peeled meanwhile from another of its cells
                    continue
                item = int(cells[cell, 2])
                words = _hash(item, hashing)
                part = int(cell >= third) + int(cell >= 2 * third)
                value = np.int32(_signed(words, part, cells[cell, 0]))
                total[item] = value
                pending[item >> 5] ^= np.uint32(1) << np.uint32(item & 31)
                for j in range(3):
                    other = _cell(words, j, item, hashing)
                    cells[other, 0] = np.int32(cells[other, 0] - _signed(words, j, value))
                    cells[other, 1] -= 1
                    cells[other, 2] ^= np.int32(item)
                    simple = cells[other, 1] == 1
                    if tail - head < _QUEUE:
                        queue[tail & (_QUEUE - 1)] = other
                        tail += simple
                    else:
                        again |= simple
