"""The lossless homomorphic sketch: encode, occupancy, peel and unblock.

``innet.kernels.layout.lhc`` defines the cells of an element. A warp processes the 32 elements of a
word of the bitmap, so that the elements of a block go to neighboring cells of the same rows at the
same time: with 32 lanes a row is one line of 128 bytes. Additions are atomic, on integers, so that
their order does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.bitmap import bitmap_to_indices, word_below
from innet.kernels.cuda.blocks import gather_blocks
from innet.kernels.cuda.device import (
    HALF,
    LOW,
    ONE,
    ONE_BLOCK,
    Array,
    back,
    ballot,
    empty,
    filled,
    ints,
    mix,
    reserve,
    threads_for,
    warps_for,
)
from innet.kernels.layout.hashing import GOLDEN
from innet.kernels.layout.lhc import SketchLayout

# A layout as kernels take it: (part, starts, log2(lanes), seed, hashes). A division for each
# element would cost more than its hash.
Hashing = tuple[np.uint64, np.uint64, np.uint64, np.uint64, np.uint64]
Hash = tuple[np.uint64, np.uint64, np.uint64]  # determines a block's cells and signs


def lhc_encode(indices: Any, integers: Any, size: int, layout: SketchLayout, /) -> Any:
    """See ``innet.kernels.Kernels.lhc_encode``."""
    words = ints(integers)
    bitmap = filled(-(-size // 32), 0, np.uint32)
    sketch = filled(layout.cells)
    hashing = hashing_of(layout)
    if indices is None:
        _encode_dense[warps_for(bitmap.size)](words, hashing, bitmap, sketch)
    else:
        grid = threads_for(words.size)
        _encode_sparse[grid](ints(indices), words, hashing, bitmap, sketch)
    return back(bitmap.view(np.int32), integers), back(sketch, integers)


def lhc_occupancy(bitmap: Any, size: int, layout: SketchLayout, /) -> Any:
    """See ``innet.kernels.Kernels.lhc_occupancy``."""
    occupancy = filled(layout.cells)
    occupy(ints(bitmap).view(np.uint32), size, hashing_of(layout), occupancy, empty(0))
    return back(occupancy, bitmap)


def occupy(words: Array, size: int, hashing: Hashing, occupancy: Array, combined: Array) -> None:
    """Count the elements of every cell; combine their indices by exclusive or.

    Args:
        words: the bitmap; bits from ``size`` on are ignored.
        size: elements of the gradient.
        hashing: see ``hashing``.
        occupancy: zeros, shape (cells,); becomes the counts.
        combined: zeros, shape (cells,); becomes the combined indices. Empty: not needed.
    """
    _occupy[warps_for(words.size)](words, size, hashing, occupancy, combined)


@cuda.jit(device=True)
def _add(sketch: Array, item: np.uint64, integer: np.int32, hashing: Hashing) -> None:
    words = hash_of(item, hashing)
    for j in range(np.int64(hashing[4])):
        cuda.atomic.add(sketch, cell_of(words, j, item, hashing), signed(words, j, integer))


@cuda.jit
def _encode_dense(integers: Array, hashing: Hashing, bitmap: Array, sketch: Array) -> None:
    lane = cuda.grid(1) & 31
    for w in range(cuda.grid(1) >> 5, bitmap.size, cuda.gridsize(1) >> 5):
        item = 32 * w + lane
        integer = np.int32(0)
        if item < integers.size:
            integer = integers[item]
        flags = ballot(integer != 0)
        if lane == 0:
            bitmap[w] = flags
        if integer != 0:
            _add(sketch, np.uint64(item), integer, hashing)


@cuda.jit
def _encode_sparse(
    indices: Array, integers: Array, hashing: Hashing, bitmap: Array, sketch: Array
) -> None:
    for i in range(cuda.grid(1), indices.size, cuda.gridsize(1)):
        if integers[i] != 0:
            item = np.int64(indices[i])
            cuda.atomic.or_(bitmap, item >> 5, np.uint32(1) << np.uint32(item & 31))
            _add(sketch, np.uint64(item), integers[i], hashing)


@cuda.jit
def _occupy(words: Array, size: int, hashing: Hashing, occupancy: Array, combined: Array) -> None:
    lane = cuda.grid(1) & 31
    for w in range(cuda.grid(1) >> 5, words.size, cuda.gridsize(1) >> 5):
        if (word_below(words, w, size) >> np.uint32(lane)) & np.uint32(1) != 0:
            item = np.uint64(32 * w + lane)
            hashes = hash_of(item, hashing)
            for j in range(np.int64(hashing[4])):
                cell = cell_of(hashes, j, item, hashing)
                cuda.atomic.add(occupancy, cell, np.int32(1))
                if combined.size != 0:
                    cuda.atomic.xor(combined, cell, np.int32(item))


# ----------------------------------------------------------------------------
# Peeling, and which elements to request when it gets stuck.
#
# In rounds over a work list: all elements that are alone in a cell are read off, then all of them
# are taken from their cells, and cells with one element left are listed for the next round. Within
# a step no thread changes what others read, so the order does not matter.

_BETWEEN_LOOKS = 8  # rounds before the host checks whether work remains
# The list of cells to be peeled: this round's lie from BEGIN to END, the next one's up to TAIL.
_BEGIN, _END, _TAIL = 0, 1, 2


@dataclass(frozen=True, slots=True)
class _Graph:
    """The remainder of a sketch, on the GPU. ``rest`` and ``total`` are empty without values."""

    hashing: Hashing
    pending: Array  # a bitmap of the elements not read off yet
    occupancy: Array  # of each cell
    combined: Array  # the indices in each cell, combined by exclusive or
    rest: Array  # the sketch without the elements read off
    total: Array  # the integers read off
    # A cell comes to hold one element once at the most; one more place for what unlocking takes.
    listed: Array
    state: Array

    def arrays(self) -> tuple[Any, ...]:
        """As the kernels take them."""
        return (
            self.state, self.listed, self.occupancy, self.combined, self.rest, self.hashing,
            self.total, self.pending,
        )  # fmt: skip


def lhc_peel(bitmap: Any, sketch: Any, size: int, layout: SketchLayout, /) -> Any:
    """See ``innet.kernels.Kernels.lhc_peel``.

    Scratch: 16 bytes for each cell and a copy of the bitmap.
    """
    rest = empty(layout.cells)
    rest.copy_to_device(ints(sketch))
    graph = _peel(bitmap, rest, filled(size), size, layout)
    items = bitmap_to_indices(ints(bitmap), size)
    integers = gather_blocks(graph.total, items, 1)
    found = back(items, bitmap, sketch), back(integers, bitmap, sketch)
    return found, back(graph.pending.view(np.int32), bitmap, sketch)


def lhc_unblock(bitmap: Any, size: int, layout: SketchLayout, /) -> Any:
    """See ``innet.kernels.Kernels.lhc_unblock``.

    Few elements usually remain after the peel, and each element that is taken depends on those
    before. So one block does it, without returning to the host. Scratch: 12 bytes per cell, and the
    remaining elements.
    """
    graph = _peel(bitmap, empty(0), empty(0), size, layout)
    asked = filled(graph.pending.size, 0, np.uint32)
    _unblock[ONE_BLOCK](
        bitmap_to_indices(graph.pending.view(np.int32), size), asked, *graph.arrays()
    )
    return back(asked.view(np.int32), bitmap)


def _peel(bitmap: Any, rest: Array, total: Array, size: int, layout: SketchLayout) -> _Graph:
    words = ints(bitmap).view(np.uint32)
    cells = layout.cells
    graph = _Graph(
        hashing_of(layout), empty(words.size, np.uint32), filled(cells), filled(cells), rest, total,
        empty(cells + 1), filled(3),
    )  # fmt: skip
    _copy_below[threads_for(words.size)](words, size, graph.pending)
    occupy(words, size, graph.hashing, graph.occupancy, graph.combined)
    _list_alone[threads_for(cells)](graph.occupancy, graph.listed, graph.state)
    while True:
        _next_round[1, 1](graph.state)
        begin, end, _ = graph.state.copy_to_host().tolist()
        if begin == end:
            return graph
        grid = threads_for(end - begin)  # rounds become smaller; in a larger one threads stride
        for i in range(_BETWEEN_LOOKS):
            if i:
                _next_round[1, 1](graph.state)
            _read_off[grid](*graph.arrays())
            _take_out[grid](*graph.arrays()[:-1])


@cuda.jit
def _copy_below(words: Array, size: int, pending: Array) -> None:
    """The words without bits after the last element, which would index outside the arrays."""
    for w in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        pending[w] = word_below(words, w, size)


@cuda.jit
def _list_alone(occupancy: Array, listed: Array, state: Array) -> None:
    lane = cuda.grid(1) & 31
    for first in range(cuda.grid(1) - lane, occupancy.size, cuda.gridsize(1)):
        cell = first + lane
        alone = False
        if cell < occupancy.size:
            alone = occupancy[cell] == 1
        position = reserve(alone, state, _TAIL)
        if alone:
            listed[position] = cell


@cuda.jit
def _next_round(state: Array) -> None:
    state[_BEGIN] = state[_END]
    state[_END] = state[_TAIL]


@cuda.jit
def _read_off(
    state: Array, listed: Array, occupancy: Array, combined: Array, rest: Array, hashing: Hashing,
    total: Array, pending: Array,
) -> None:  # fmt: skip
    for q in range(state[_BEGIN] + cuda.grid(1), state[_END], cuda.gridsize(1)):
        listed[q] = _alone_in(listed[q], occupancy, combined, rest, hashing, total, pending)


@cuda.jit(device=True)
def _alone_in(
    cell: int, occupancy: Array, combined: Array, rest: Array, hashing: Hashing, total: Array,
    pending: Array,
) -> np.int32:  # fmt: skip
    """Read off the element that is alone in the cell: its index, or -1.

    If it is alone in several cells, the thread that clears its bit gets it.
    """
    if occupancy[cell] != 1:  # it was taken from this cell meanwhile
        return np.int32(-1)
    item = combined[cell]
    bit = np.uint32(np.uint32(1) << np.uint32(item & 31))
    if np.uint32(cuda.atomic.and_(pending, item >> 5, np.uint32(~bit)) & bit) == 0:
        return np.int32(-1)
    if total.size != 0:
        words = hash_of(np.uint64(item), hashing)
        for j in range(np.int64(hashing[4])):
            if cell_of(words, j, np.uint64(item), hashing) == np.uint64(cell):
                total[item] = signed(words, j, rest[cell])
    return np.int32(item)


@cuda.jit
def _take_out(
    state: Array, listed: Array, occupancy: Array, combined: Array, rest: Array, hashing: Hashing,
    total: Array,
) -> None:  # fmt: skip
    lane = cuda.grid(1) & 31
    end = state[_END]
    for first in range(state[_BEGIN] + cuda.grid(1) - lane, end, cuda.gridsize(1)):
        item = np.int32(-1)
        if first + lane < end:
            item = listed[first + lane]
        _take(item, state, listed, occupancy, combined, rest, hashing, total)


@cuda.jit(device=True)
def _take(
    item: np.int32, state: Array, listed: Array, occupancy: Array, combined: Array, rest: Array,
    hashing: Hashing, total: Array,
) -> None:  # fmt: skip
    """Take the item, unless it is -1, out of its cells; list cells with one element left.

    Whole warps take part, so that they can reserve list entries together.
    """
    known = np.uint64(item if item >= 0 else 0)
    words = hash_of(known, hashing)
    for j in range(np.int64(hashing[4])):
        alone = False
        cell = cell_of(words, j, known, hashing)
        if item >= 0:
            if total.size != 0:
                taken = np.int64(signed(words, j, total[item]))
                cuda.atomic.add(rest, cell, np.int32(-taken))  # modulo 2**32
            cuda.atomic.xor(combined, cell, item)
            alone = cuda.atomic.add(occupancy, cell, np.int32(-1)) == 2
        position = reserve(alone, state, _TAIL)
        if alone:
            listed[position] = np.int32(cell)


@cuda.jit
def _unblock(
    left: Array, asked: Array, state: Array, listed: Array, occupancy: Array, combined: Array,
    rest: Array, hashing: Hashing, total: Array, pending: Array,
) -> None:  # fmt: skip
    """One block: take the first element that is left, peel, and so on; ``left`` is ascending."""
    thread = cuda.threadIdx.x
    for i in range(left.size):
        item = left[i]
        bit = np.uint32(np.uint32(1) << np.uint32(item & 31))
        word = pending[item >> 5]
        cuda.syncthreads()  # all threads have read the word before it changes
        if np.uint32(word & bit) != 0:
            if thread == 0:
                pending[item >> 5] = np.uint32(word ^ bit)
                asked[item >> 5] |= bit
                listed[0] = item
                state[_TAIL] = 1
            begin, end = 0, 1
            while begin < end:
                cuda.syncthreads()
                for first in range(begin, end, cuda.blockDim.x):
                    known = np.int32(-1)
                    if first + thread < end:
                        known = listed[first + thread]
                    _take(known, state, listed, occupancy, combined, rest, hashing, total)
                cuda.syncthreads()
                begin, end = end, state[_TAIL]
                for q in range(begin + thread, end, cuda.blockDim.x):
                    listed[q] = _alone_in(
                        listed[q], occupancy, combined, rest, hashing, total, pending
                    )
            cuda.syncthreads()


def hashing_of(layout: SketchLayout) -> Hashing:
    """The layout as kernels take it."""
    return (
        np.uint64(layout.part),
        np.uint64(layout.starts),
        np.uint64(layout.lanes.bit_length() - 1),
        np.uint64(layout.seed),
        np.uint64(layout.hashes),
    )


@cuda.jit(device=True)
def hash_of(item: np.uint64, hashing: Hashing) -> Hash:
    """The three words that determine the cells of the item's block."""
    z0 = mix((item >> hashing[2]) * GOLDEN + hashing[3])
    z1 = mix(z0 + GOLDEN)
    return z0, z1, mix(z1 + GOLDEN)


@cuda.jit(device=True)
def cell_of(words: Hash, j: int, item: np.uint64, hashing: Hashing) -> np.uint64:
    """The item's j-th cell, given its block's hash."""
    z0, z1, z2 = words
    part, starts, shift = hashing[0], hashing[1], hashing[2]
    half = z1 & LOW
    if j == 1:
        half = z1 >> HALF
    elif j == 2:
        half = z2 & LOW
    elif j == 3:
        half = z2 >> HALF
    row = ((((z0 & LOW) * starts) >> HALF) + np.uint64(j)) * part + ((half * part) >> HALF)
    turn = z0 >> np.uint64(36 + 7 * j)
    return (row << shift) + ((item + turn) & ((ONE << shift) - ONE))


@cuda.jit(device=True)
def signed(words: Hash, j: int, integer: np.int32) -> np.int32:
    """The integer modulo 2**32, negated where the j-th sign says so."""
    negative = np.int64((words[0] >> np.uint64(32 + j)) & ONE)
    return np.int32(np.int64(integer) * (np.int64(1) - np.int64(2) * negative))
