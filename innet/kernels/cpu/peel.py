"""Peeling a lossless homomorphic sketch, and what to ask for when it comes to a halt.

The elements are first sorted by their first segment, in one pass, and then have numbers in that
order. With coupled hashing, neighbours by number share their segments, so that filling the cells
and peeling, wave by wave, stay within the caches, however large the sketch is.

A cell's state is one word: how many elements it holds, times 2**32, and the exclusive or of their
numbers, which names the element when there is one left.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from innet.kernels.arrays import Ints, Words
from innet.kernels.cpu import memory
from innet.kernels.cpu.bitmap import expand
from innet.kernels.cpu.intrinsics import prefetch
from innet.kernels.cpu.lhc import (
    Hashing,
    cell_of,
    first_segment,
    first_word,
    hash_of,
    hashing_of,
    without_tail,
)
from innet.kernels.layout import SketchLayout

States = NDArray[np.uint64]
Arrays = tuple[States, Ints, Ints, Ints]  # states, the sketch, its working copy, the queue
Graph = tuple[Ints, Hashing, States]  # the elements by number, and what their cells hold

_BATCH = 32  # cells whose elements are hashed side by side: nothing waits for the memory
_GATHERED = 256  # cells to begin with before anything is peeled; few, so that they stay cached
_ALONE = np.uint64(1 << 32)  # the count's unit
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)


def lhc_peel(bitmap: Ints, sketch: Ints, size: int, layout: SketchLayout, /) -> tuple[Ints, Ints]:
    """See ``innet.kernels.Kernels.lhc_peel``.

    Scratch: 16 bytes for each cell, 12 for each element that is looked for, a copy of the bitmap;
    less than twice the gradient where fewer than a quarter of the elements are looked for.
    """
    hashing = hashing_of(layout)
    order = _sorted(without_tail(bitmap, size), layout)
    states = memory.empty(layout.cells, np.uint64)
    _occupy(order, hashing, states)
    values = memory.empty(order.size, np.int32)
    rest = memory.empty(layout.cells, np.int32)
    queue = memory.empty(layout.cells + 1, np.int32)
    _peel(order, hashing, (states, sketch, rest, queue), values)
    total = memory.zeros(size, np.int32)
    missing = np.zeros(-(-size // 32), np.uint32)
    _place(order, values, total, missing)
    return total, missing.view(np.int32)


def lhc_unlock(bitmap: Ints, size: int, layout: SketchLayout, /) -> Ints:
    """See ``innet.kernels.Kernels.lhc_unlock``."""
    hashing = hashing_of(layout)
    items = expand(without_tail(bitmap, size).view(np.int32), size)
    states = np.zeros(layout.cells, np.uint64)
    _occupy(items, hashing, states)
    asked = np.zeros(-(-size // 32), np.uint32)
    _unlock(items, hashing, states, asked)
    return asked.view(np.int32)


def _sorted(pending: Words, layout: SketchLayout) -> Ints:
    """The elements by first segment, in each of them ascending."""
    items = expand(pending.view(np.int32), 32 * pending.size)
    if not layout.coupled:
        return items
    order = memory.empty(items.size, np.int32)
    segments = memory.empty(items.size, np.int32)
    _first_segments(items, hashing_of(layout), segments)
    _sort(items, segments, np.zeros(layout.starts, np.int64), order)
    return order


@njit(cache=True)
def _first_segments(items: Ints, hashing: Hashing, segments: Ints) -> None:
    for i in range(items.size):
        segments[i] = first_segment(first_word(np.uint64(items[i]), hashing), hashing)


@njit(cache=True)
def _sort(items: Ints, segments: Ints, ends: NDArray[np.int64], order: Ints) -> None:
    for i in range(items.size):
        ends[np.uint64(segments[i])] += 1
    begin = 0
    for s in range(ends.size):
        count = ends[s]
        ends[s] = begin
        begin += count
    for i in range(items.size):
        segment = np.uint64(segments[i])
        order[np.uint64(ends[segment])] = items[i]
        ends[segment] += 1


@njit(cache=True)
def _occupy(order: Ints, hashing: Hashing, states: States) -> None:
    """Fill in the states, which may be anything before: each is set to zero just in time."""
    hashes = len(hashing[4])
    segment = int(hashing[0] << hashing[2])
    cleared = 0
    for i in range(order.size):
        item = np.uint64(order[i])
        words = hash_of(item, hashing)
        end = (int(first_segment(words[0], hashing)) + hashes) * segment
        if end > cleared:
            states[cleared:end] = np.uint64(0)
            cleared = end
        for j in range(hashes):
            cell = cell_of(words, j, item, hashing)
            states[cell] = (states[cell] ^ np.uint64(i)) + _ALONE
    states[cleared:] = np.uint64(0)


@njit(cache=True)
def _peel(order: Ints, hashing: Hashing, arrays: Arrays, values: Ints) -> None:
    """Peel until nothing moves. Of what was recovered, the bits in ``order`` are inverted.

    A cell comes to hold one element once at the most, so that the queue cannot overflow. Cells
    that are still to be looked at are not queued: all that is touched stays near them.
    """
    hashes = len(hashing[4])
    states, _, rest, queue = arrays
    cells = np.empty((_BATCH, 1 + hashes), np.uint64)  # the cell that holds it alone, and all
    numbers = np.empty(_BATCH, np.uint64)
    signs = np.empty(_BATCH, np.uint64)
    # An item that is alone in a cell before ``start`` has no cell after the next segments.
    ahead = hashes * int(hashing[0] << hashing[2])
    start = 0
    fetched = 0
    while start < states.size:
        head = tail = 0
        while start < states.size and tail < _GATHERED:
            queue[tail] = start
            tail += int((states[start] >> _HALF) == _ONE)
            start += 1
        fetched = _fetch(fetched, start + ahead, arrays, order, values)
        while head != tail:
            ready = 0
            end = min(tail, head + _BATCH)
            for q in range(head, end):
                cell = np.uint64(queue[q])
                state = states[cell]
                cells[ready, 0] = cell
                numbers[ready] = state & _LOW
                ready += int((state >> _HALF) == _ONE)
            head = end
            for b in range(ready):
                item = np.uint64(order[numbers[b]])
                words = hash_of(item, hashing)
                signs[b] = words[0] >> _HALF
                for j in range(hashes):
                    cells[b, 1 + j] = cell_of(words, j, item, hashing)
            for b in range(ready):
                if (states[cells[b, 0]] >> _HALF) != _ONE:  # peeled from another of its cells
                    continue
                value = _read(cells[b], signs[b], rest)
                number = numbers[b]
                values[number] = value
                order[number] = ~order[number]
                for j in range(hashes):
                    cell = cells[b, 1 + j]
                    negative = int((signs[b] >> np.uint64(j)) & _ONE)
                    rest[cell] = np.int32(rest[cell] - (1 - 2 * negative) * int(value))
                    state = (states[cell] - _ALONE) ^ number
                    states[cell] = state
                    queue[tail] = np.int32(cell)
                    tail += int((state >> _HALF) == _ONE) & int(cell < np.uint64(start))


@njit(cache=True)
def _fetch(begin: int, end: int, arrays: Arrays, order: Ints, values: Ints) -> int:
    """Copy the sketch up to ``end``, and have all that belongs there brought into the caches: it
    will be visited in an order that the processor cannot foresee.
    """
    states, sketch, rest, _ = arrays
    end = min(end, states.size)
    rest[begin:end] = sketch[begin:end]
    for cell in range(begin, end, 8):
        prefetch(states, cell)
    share = order.size / states.size
    for i in range(int(begin * share), int(end * share), 16):
        prefetch(order, i)
        prefetch(values, i)
    return end


@njit(cache=True)
def _read(cells: NDArray[np.uint64], signs: np.uint64, sketch: Ints) -> np.int32:
    """The value of the element that is alone in cells[0]."""
    negative = 0
    for j in range(cells.size - 1):
        # Without a branch: which of the cells it is cannot be guessed.
        negative |= int((signs >> np.uint64(j)) & _ONE) & int(cells[1 + j] == cells[0])
    return np.int32((1 - 2 * negative) * int(sketch[cells[0]]))


@njit(cache=True)
def _place(order: Ints, values: Ints, total: Ints, missing: Words) -> None:
    for i in range(order.size):
        if order[i] < 0:
            total[np.uint64(~order[i])] = values[i]
        else:
            item = int(order[i])
            missing[item >> 5] |= np.uint32(1) << np.uint32(item & 31)


@njit(cache=True)
def _unlock(items: Ints, hashing: Hashing, states: States, asked: Words) -> None:
    graph = items, hashing, states
    queue = np.empty(states.size + 1, np.int32)
    tail = 0
    for cell in range(states.size):
        queue[tail] = cell
        tail += int((states[cell] >> _HALF) == _ONE)
    gone = np.zeros(items.size, np.bool_)
    _drain(graph, queue, tail, gone)
    for i in range(items.size):
        if not gone[i]:
            gone[i] = True
            item = int(items[i])
            asked[item >> 5] |= np.uint32(1) << np.uint32(item & 31)
            _drain(graph, queue, _remove(np.uint64(i), graph, queue, 0), gone)


@njit(cache=True)
def _drain(graph: Graph, queue: Ints, tail: int, gone: NDArray[np.bool_]) -> None:
    """Peel from the cells in the queue on, without values."""
    head = 0
    while head != tail:
        state = graph[2][np.uint64(queue[head])]
        head += 1
        if (state >> _HALF) == _ONE:
            gone[state & _LOW] = True
            tail = _remove(state & _LOW, graph, queue, tail)


@njit(cache=True)
def _remove(number: np.uint64, graph: Graph, queue: Ints, tail: int) -> int:
    """Take an element out of its cells; append those that hold one element now to the queue."""
    items, hashing, states = graph
    item = np.uint64(items[number])
    words = hash_of(item, hashing)
    for j in range(len(hashing[4])):
        cell = cell_of(words, j, item, hashing)
        states[cell] = (states[cell] - _ALONE) ^ number
        queue[tail] = np.int32(cell)
        tail += int((states[cell] >> _HALF) == _ONE)
    return tail
