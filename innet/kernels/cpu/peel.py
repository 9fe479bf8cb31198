"""Peeling a lossless homomorphic sketch, and what to ask for when it comes to a halt.

The elements are first sorted by their first segment, in one pass, and then have numbers in that
order. With coupled hashing, neighbours by number share their segments, so that filling the cells
and peeling, wave by wave, stay within the caches, however large the sketch is.

A cell's state is one word: the sum, over the elements that it holds, of 2**32 plus the element's
number. So its upper half counts them, and when it is 1 the lower half names the one that is left.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from innet import memory
from innet.kernels.arrays import Ints, Words
from innet.kernels.cpu.bitmap import expand_words, without_tail
from innet.kernels.cpu.intrinsics import prefetch
from innet.kernels.cpu.lhc import (
    STRIP,
    Hashing,
    Strip,
    cell_of,
    first_segment,
    first_word,
    hash_of,
    hash_strip,
    hashing_of,
    new_strip,
    sign_of,
)
from innet.kernels.layout import SketchLayout

States = NDArray[np.uint64]
Counts = NDArray[np.int64]
Arrays = tuple[States, Ints, Ints, Ints]  # states, the sketch, its working copy, the queue
Graph = tuple[Ints, Hashing, States]  # the elements by number, and what their cells hold

_BATCH = 32  # cells whose elements are hashed side by side: nothing waits for the memory
_GATHERED = 2048  # cells to begin with before anything is peeled; few, so that they stay cached
_ALONE = np.uint64(1 << 32)  # the count's unit
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)


def lhc_peel(
    bitmap: Ints, sketch: Ints, size: int, layout: SketchLayout, /
) -> tuple[tuple[Ints, Ints], Ints]:
    """See ``innet.kernels.Kernels.lhc_peel``.

    Scratch: 16 bytes for each cell, 12 for each element that is looked for, a copy of the bitmap;
    less than twice the gradient where fewer than a quarter of the elements are looked for.
    """
    hashing = hashing_of(layout)
    items = expand_words(without_tail(bitmap, size))
    segments = memory.empty(items.size if layout.coupled else 0, np.int32)
    ends = np.zeros(layout.starts, np.int64)
    order = _sorted(items, layout, segments, ends)
    states = memory.empty(layout.cells, np.uint64)
    _occupy(order, hashing, states)
    values = memory.empty(order.size, np.int32)
    rest = memory.empty(layout.cells, np.int32)
    queue = memory.empty(layout.cells + 1, np.int32)
    _peel(order, hashing, (states, sketch, rest, queue), values)
    integers = memory.empty(items.size, np.int32)
    missing = np.zeros(-(-size // 32), np.uint32)
    starts = np.concatenate([ends[:1] * 0, ends[:-1]])
    _collect(items, segments, starts, (order, values), integers, missing)
    return (items, integers), missing.view(np.int32)


def lhc_unlock(bitmap: Ints, size: int, layout: SketchLayout, /) -> Ints:
    """See ``innet.kernels.Kernels.lhc_unlock``."""
    hashing = hashing_of(layout)
    items = expand_words(without_tail(bitmap, size))
    states = np.zeros(layout.cells, np.uint64)
    _occupy(items, hashing, states)
    asked = np.zeros(-(-size // 32), np.uint32)
    _unlock(items, hashing, states, asked)
    return asked.view(np.int32)


def _sorted(items: Ints, layout: SketchLayout, segments: Ints, ends: Counts) -> Ints:
    """A copy of the elements by first segment, in each of them ascending.

    ``segments``, one for each element, become these; ``ends``, shape (layout.starts,) and zero,
    each segment's end among the elements. In plain hashing there is one segment, and none is noted.
    """
    order = memory.empty(items.size, np.int32)
    if not layout.coupled:
        order[:] = items
        return order
    _first_segments(items, hashing_of(layout), segments)
    _sort(items, segments, ends, order)
    return order


@njit(cache=True, nogil=True)
def _first_segments(items: Ints, hashing: Hashing, segments: Ints) -> None:
    for i in range(items.size):
        segments[i] = first_segment(first_word(np.uint64(items[i]), hashing), hashing)


@njit(cache=True, nogil=True)
def _sort(items: Ints, segments: Ints, ends: Counts, order: Ints) -> None:
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


@njit(cache=True, nogil=True)
def _occupy(order: Ints, hashing: Hashing, states: States) -> None:
    """Fill in the states, which may be anything before: each is set to zero just in time."""
    hashes = len(hashing[4])
    segment = int(hashing[0] << hashing[2])
    strip = new_strip(STRIP, hashing)
    items, words, cells = strip
    cleared = 0
    for start in range(0, order.size, STRIP):
        count = min(STRIP, order.size - start)
        for b in range(count):
            items[b] = np.uint64(order[start + b])
        hash_strip(strip, hashing)
        last = np.uint64(0)
        for b in range(count):
            last = max(last, first_segment(words[0, b], hashing))
        end = (int(last) + hashes) * segment
        if end > cleared:
            states[cleared:end] = np.uint64(0)
            cleared = end
        for b in range(count):
            for j in range(hashes):
                states[cells[j, b]] += _ALONE + np.uint64(start + b)
    states[cleared:] = np.uint64(0)


@njit(cache=True, nogil=True)
def _peel(order: Ints, hashing: Hashing, arrays: Arrays, values: Ints) -> None:
    """Peel until nothing moves. The bits in ``order`` of what was recovered are inverted.

    A cell comes to hold one element once at the most, so that the queue cannot overflow. Cells
    that are still to be looked at are not queued: all that is touched stays near them.
    """
    hashes = len(hashing[4])
    states, _, rest, queue = arrays
    strip = new_strip(_BATCH, hashing)
    items, cells, z0 = strip[0], strip[2], strip[1][0]
    homes = np.empty(_BATCH, np.uint64)  # the cells that hold them alone
    numbers = np.empty(_BATCH, np.uint64)
    # An item that is alone in a cell before ``start`` has no cell after the next segments.
    ahead = hashes * int(hashing[0] << hashing[2])
    start = fetched = 0
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
                homes[ready] = cell
                numbers[ready] = states[cell] & _LOW
                ready += int((states[cell] >> _HALF) == _ONE)
            head = end
            for b in range(ready):
                items[b] = np.uint64(order[numbers[b]])
            hash_strip(strip, hashing)
            for b in range(ready):
                if (states[homes[b]] >> _HALF) != _ONE:  # peeled from another of its cells
                    continue
                number = numbers[b]
                value = _read(homes[b], b, strip, hashing, rest)
                values[number] = np.int32(value)
                order[number] = ~order[number]
                for j in range(hashes):
                    cell = cells[j, b]
                    negate = sign_of(z0[b], j)
                    rest[cell] = np.int32(rest[cell] - ((value ^ negate) - negate))
                    state = states[cell] - (_ALONE + number)
                    states[cell] = state
                    queue[tail] = np.int32(cell)
                    tail += int((state >> _HALF) == _ONE) & int(cell < np.uint64(start))


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _read(home: np.uint64, b: int, strip: Strip, hashing: Hashing, rest: Ints) -> np.int64:
    """The value of the strip's b-th element, which is alone in ``home``, one of its cells."""
    _, words, cells = strip
    negate = np.int64(0)
    for j in range(len(hashing[4])):
        # Without a branch: which of the cells it is cannot be guessed.
        negate |= sign_of(words[0, b], j) & -np.int64(cells[j, b] == home)
    return (np.int64(rest[home]) ^ negate) - negate


@njit(cache=True, nogil=True)
def _collect(  # noqa: PLR0917 - compiled functions are called by position
    items: Ints,
    segments: Ints,
    following: Counts,
    peeled: tuple[Ints, Ints],
    integers: Ints,
    missing: Words,
) -> None:
    """The values in the order of the elements, zero where missing: each is the next of its segment.

    ``following`` are the segments' starts among what was peeled, order and values; not kept.
    """
    order, values = peeled
    for i in range(items.size):
        place = np.uint64(i)
        if segments.size != 0:
            segment = np.uint64(segments[i])
            place = np.uint64(following[segment])
            following[segment] += 1
        if order[place] < 0:
            integers[i] = values[place]
        else:
            integers[i] = 0
            item = int(items[i])
            missing[item >> 5] |= np.uint32(1) << np.uint32(item & 31)


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _drain(graph: Graph, queue: Ints, tail: int, gone: NDArray[np.bool_]) -> None:
    """Peel from the cells in the queue on, without values."""
    head = 0
    while head != tail:
        state = graph[2][np.uint64(queue[head])]
        head += 1
        if (state >> _HALF) == _ONE:
            gone[state & _LOW] = True
            tail = _remove(state & _LOW, graph, queue, tail)


@njit(cache=True, nogil=True)
def _remove(number: np.uint64, graph: Graph, queue: Ints, tail: int) -> int:
    """Take an element out of its cells; append those that hold one element now to the queue."""
    items, hashing, states = graph
    item = np.uint64(items[number])
    words = hash_of(item, hashing)
    for j in range(len(hashing[4])):
        cell = cell_of(words, j, item, hashing)
        states[cell] -= _ALONE + number
        queue[tail] = np.int32(cell)
        tail += int((states[cell] >> _HALF) == _ONE)
    return tail
