"""What to ask for when the peel of a sketch halts; and a peel of any sketch, step by step.

A cell's state is one word: the sum, over the elements that it holds, of 2**32 plus the element's
number, its place in the list of elements. So its upper half counts them, and when it is 1 the lower
half names the one that is left.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.compiled import njit
from innet.kernels.arrays import Ints, Words
from innet.kernels.cpu.bitmap import expand_words, without_tail
from innet.kernels.cpu.lhc import (
    CELLS,
    STRIP,
    Z0,
    Hashing,
    cell_of,
    first_segment,
    hash_of,
    hash_strip,
    hashing_of,
    load_strip,
    new_strip,
    sign_of,
)
from innet.kernels.layout import SketchLayout

States = NDArray[np.uint64]
Graph = tuple[Ints, Hashing, States]  # the elements by number, and what their cells hold

_ALONE = np.uint64(1 << 32)  # the count's unit
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)


def lhc_unlock(bitmap: Ints, size: int, layout: SketchLayout, /) -> Ints:
    """See ``innet.kernels.Kernels.lhc_unlock``."""
    hashing = hashing_of(layout)
    items = expand_words(without_tail(bitmap, size))
    states = np.zeros(layout.cells, np.uint64)
    occupy(items, hashing, states)
    asked = np.zeros(-(-size // 32), np.uint32)
    _unlock(items, hashing, states, asked)
    return asked.view(np.int32)


@njit(cache=True, nogil=True)
def peel_any(order: Ints, hashing: Hashing, states: States, rest: Ints, values: Ints) -> None:
    """The peel of sketches of any size and load, several times slower.

    ``rest`` is a copy of the sketch; not kept.
    """
    occupy(order, hashing, states)
    graph = order, hashing, states
    queue = np.empty(states.size + 1, np.int32)
    head, tail = 0, _list_alone(states, queue)
    while head != tail:
        home = np.uint64(queue[head])
        head += 1
        number = states[home] & _LOW
        if (states[home] >> _HALF) != _ONE:  # peeled from another of its cells
            continue
        item = np.uint64(order[number])
        words = hash_of(item, hashing)
        value = np.int64(0)
        for j in range(len(hashing[4])):
            if cell_of(words, j, item, hashing) == home:
                negate = sign_of(words[0], j)
                value = (np.int64(rest[home]) ^ negate) - negate
        for j in range(len(hashing[4])):
            cell = cell_of(words, j, item, hashing)
            negate = sign_of(words[0], j)
            rest[cell] = np.int32(rest[cell] - ((value ^ negate) - negate))
        values[number] = np.int32(value)
        tail = _remove(number, graph, queue, tail)
        order[number] = ~order[number]


@njit(cache=True, nogil=True)
def _list_alone(states: States, queue: Ints) -> int:
    """Put the cells that hold one element into the queue; returns how many there are."""
    tail = 0
    for cell in range(states.size):
        queue[tail] = cell
        tail += int((states[cell] >> _HALF) == _ONE)
    return tail


@njit(cache=True, nogil=True)
def occupy(order: Ints, hashing: Hashing, states: States) -> None:
    """Fill in the states, which may be anything before: each is set to zero just in time."""
    hashes = len(hashing[4])
    segment = int(hashing[0] << hashing[2])
    strip = new_strip(STRIP, hashing)
    cleared = 0
    for start in range(0, order.size, STRIP):
        count = min(STRIP, order.size - start)
        load_strip(order, start, count, strip)
        hash_strip(strip, hashing)
        last = np.uint64(0)
        for b in range(count):
            last = max(last, first_segment(strip[Z0, b], hashing))
        end = (int(last) + hashes) * segment
        if end > cleared:
            states[cleared:end] = np.uint64(0)
            cleared = end
        for b in range(count):
            for j in range(hashes):
                states[strip[CELLS + j, b]] += _ALONE + np.uint64(start + b)
    states[cleared:] = np.uint64(0)


@njit(cache=True, nogil=True)
def _unlock(items: Ints, hashing: Hashing, states: States, asked: Words) -> None:
    graph = items, hashing, states
    queue = np.empty(states.size + 1, np.int32)
    tail = _list_alone(states, queue)
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
