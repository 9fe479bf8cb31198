"""Peeling a lossless homomorphic sketch.

The elements are first sorted by their first segment, in one pass, and then have numbers in that
order. With coupled hashing, neighbours by number share their segments, so that filling the cells
and peeling, wave by wave, stay within the caches, however large the sketch is.

All that is known of a cell is one word, so that an element is taken out of it by one subtraction:
the sum, modulo 2**64, of a word for each element that it holds,

    bits 32 .. 63: the element's integer, as it was added to the sketch
    bits 7 .. 31: its number
    bit 6: whether it was negated
    bits 0 .. 5: 1

so that the lowest bits count them, and when they say 1 the others are those of the one that is
left, whatever carries there were between them. The highest bit of the count is set as long as the
cell has not been looked at; so nobody takes it for one that holds an element alone before. A cell
has no room for more elements than 31, nor for numbers of 2**25: such sketches are rare (the
former have many times too few cells), and are peeled by ``innet.kernels.cpu.unlock``.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from innet import memory
from innet.kernels.arrays import Ints, Words
from innet.kernels.cpu.bitmap import expand_words, without_tail
from innet.kernels.cpu.intrinsics import prefetch
from innet.kernels.cpu.lhc import (
    STRIP,
    Hashing,
    first_segment,
    first_word,
    hash_strip,
    hashing_of,
    new_strip,
)
from innet.kernels.cpu.unlock import States, peel_any
from innet.kernels.layout import SketchLayout

_BATCH = 32  # cells whose elements are hashed side by side: nothing waits for the memory
_ENOUGH = np.uint64(64)  # cells in the queue with which it goes on; few, so that they stay cached
_SWEPT = 64  # cells that are looked at where the queue has fewer
_MOST = 1 << 25  # items that have numbers
_UNSEEN = np.uint64(1 << 5)  # the count's highest bit
_COUNT = np.uint64((1 << 6) - 1)
_NEGATED = np.uint64(1 << 6)
_SIGN = np.uint64(6)
_NUMBER = np.uint64(7)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_NONE = np.uint64(0)


def lhc_peel(
    bitmap: Ints, sketch: Ints, size: int, layout: SketchLayout, /
) -> tuple[tuple[Ints, Ints], Ints]:
    """See ``innet.kernels.Kernels.lhc_peel``.

    Scratch: 12 bytes for each cell, 12 for each element that is looked for, a copy of the bitmap;
    less than twice the gradient where fewer than a quarter of the elements are looked for.
    """
    hashing = hashing_of(layout)
    items = expand_words(without_tail(bitmap, size))
    places = memory.empty(items.size if layout.coupled else 0, np.int32)
    order = _sorted(items, layout, places)
    states = memory.empty(layout.cells, np.uint64)
    values = memory.empty(order.size, np.int32)
    if items.size < _MOST and _occupy(order, hashing, sketch, states):
        _peel(order, hashing, states, memory.empty(layout.cells + 1, np.int32), values)
    else:
        peel_any(order, hashing, states, sketch.copy(), values)
    missing = memory.zeros(-(-size // 32), np.uint32)
    _list_missing(order, values, missing)
    integers = values
    if layout.coupled:
        integers = memory.empty(items.size, np.int32)
        _collect(places, values, integers)
    return (items, integers), missing.view(np.int32)


def _sorted(items: Ints, layout: SketchLayout, places: Ints) -> Ints:
    """A copy of the elements by first segment, in each of them ascending.

    ``places``, one for each element, become where they lie there. In plain hashing there is one
    segment, and none is noted.
    """
    order = memory.empty(items.size, np.int32)
    if layout.coupled:
        _first_segments(items, hashing_of(layout), places)
        _sort(items, np.zeros(layout.starts, np.int32), places, order)
    else:
        order[:] = items
    return order


@njit(cache=True, nogil=True)
def _first_segments(items: Ints, hashing: Hashing, segments: Ints) -> None:
    for i in range(items.size):
        segments[i] = first_segment(first_word(np.uint64(items[i]), hashing), hashing)


@njit(cache=True, nogil=True)
def _sort(items: Ints, ends: Ints, places: Ints, order: Ints) -> None:
    """``places``, the elements' segments before; ``ends``, zero for each segment, are not kept."""
    for i in range(items.size):
        ends[np.uint64(places[i])] += 1
    begin = 0
    for s in range(ends.size):
        count = ends[s]
        ends[s] = begin
        begin += count
    for i in range(items.size):
        segment = np.uint64(places[i])
        place = ends[segment]
        order[np.uint64(place)] = items[i]
        places[i] = place
        ends[segment] = place + 1


@njit(cache=True, nogil=True)
def _occupy(order: Ints, hashing: Hashing, sketch: Ints, states: States) -> bool:
    """Fill in the states, which may be anything before: each is begun just in time.

    Returns:
        Whether all cells have room for what they hold.
    """
    hashes = len(hashing[4])
    segment = int(hashing[0] << hashing[2])
    strip = new_strip(STRIP, hashing)
    items, words, cells = strip
    z0 = words[0]
    own = np.empty((hashes, STRIP), np.uint64)
    counted = _UNSEEN  # while no count has reached it: one does not pass it without clearing it
    begun = 0
    for start in range(0, order.size, STRIP):
        count = min(STRIP, order.size - start)
        for b in range(count):
            items[b] = np.uint64(order[start + b])
        hash_strip(strip, hashing)
        last = _NONE
        for b in range(count):
            last = max(last, first_segment(z0[b], hashing))
        end = (int(last) + hashes) * segment
        if end > begun:
            _begin(sketch[begun:end], states[begun:end])
            begun = end
        for j in range(hashes):
            word = own[j]
            for b in range(STRIP):
                negated = (z0[b] >> np.uint64(32 - 6 + j)) & _NEGATED
                word[b] = (np.uint64(start + b) << _NUMBER) + negated + _ONE
        for b in range(count):
            for j in range(hashes):
                cell = cells[j, b]
                state = states[cell] + own[j, b]
                states[cell] = state
                counted &= state
    _begin(sketch[begun:], states[begun:])
    return bool(counted != _NONE)


@njit(cache=True, nogil=True)
def _begin(sketch: Ints, states: States) -> None:
    for c in range(states.size):
        states[c] = (np.uint64(sketch[c]) << _HALF) | _UNSEEN


@njit(cache=True, nogil=True)
def _peel(order: Ints, hashing: Hashing, states: States, queue: Ints, values: Ints) -> None:
    """Peel until nothing moves. The bits in ``order`` of what was recovered are inverted.

    A cell comes to hold one element once at the most, so that the queue cannot overflow. Where it
    has few cells left, some more are looked at: all that is touched stays near them.
    """
    hashes = len(hashing[4])
    strip = new_strip(_BATCH, hashing)
    items, cells, z0 = strip[0], strip[2], strip[1][0]
    homes = np.empty(_BATCH, np.uint64)  # the cells that hold them alone
    found = np.empty(_BATCH, np.uint64)  # what is in these
    # An item that is alone in a cell before ``seen`` has no cell after the next segments.
    ahead = hashes * int(hashing[0] << hashing[2])
    seen = fetched = 0
    head = tail = _NONE
    while True:
        while seen < states.size and tail - head < _ENOUGH:
            end = min(seen + _SWEPT, states.size)
            tail = _look(seen, end, states, queue, tail)
            seen = end
            fetched = _fetch(fetched, seen + ahead, states, order, values)
        if head == tail:
            break
        ready = 0
        for q in range(head, min(tail, head + np.uint64(_BATCH))):
            cell = np.uint64(queue[q])
            homes[ready] = cell
            found[ready] = states[cell]
            ready += int((states[cell] & _COUNT) == _ONE)
        head = min(tail, head + np.uint64(_BATCH))
        for b in range(ready):
            items[b] = np.uint64(order[(found[b] & _LOW) >> _NUMBER])
        hash_strip(strip, hashing)
        for b in range(ready):
            state = found[b]
            if states[homes[b]] != state:  # peeled from another of its cells
                continue
            number = (state & _LOW) >> _NUMBER
            negate = -np.int64((state >> _SIGN) & _ONE)
            value = (np.int64(state >> _HALF) ^ negate) - negate
            values[number] = np.int32(value)
            order[number] = ~order[number]
            base = (number << _NUMBER) | _ONE
            added = (np.uint64(value) << _HALF) + base
            negated = (np.uint64(-value) << _HALF) + (base | _NEGATED)
            for j in range(hashes):
                cell = cells[j, b]
                # A selection, no branch: signs cannot be guessed.
                left = states[cell] - (negated if (z0[b] >> np.uint64(32 + j)) & _ONE else added)
                states[cell] = left
                queue[tail] = np.int32(cell)
                tail += np.uint64((left & _COUNT) == _ONE)


@njit(cache=True, nogil=True)
def _look(begin: int, end: int, states: States, queue: Ints, tail: np.uint64) -> np.uint64:
    """Have the cells seen, and append those that hold one element to the queue."""
    for cell in range(begin, end):
        state = states[cell] - _UNSEEN
        states[cell] = state
        queue[tail] = cell
        tail += np.uint64((state & _COUNT) == _ONE)
    return tail


@njit(cache=True, nogil=True)
def _fetch(begin: int, end: int, states: States, order: Ints, values: Ints) -> int:
    """Have the states up to ``end``, and all that belongs there, brought into the caches: it will
    be visited in an order that the processor cannot foresee.
    """
    end = min(end, states.size)
    for cell in range(begin, end, 8):
        prefetch(states, cell)
    share = order.size / states.size
    for i in range(int(begin * share), int(end * share), 16):
        prefetch(order, i)
        prefetch(values, i)
    return end


@njit(cache=True, nogil=True)
def _list_missing(order: Ints, values: Ints, missing: Words) -> None:
    """Set the bits of what was not recovered, and its values to zero."""
    for number in range(order.size):
        item = int(order[number])
        if item >= 0:
            values[number] = 0
            missing[item >> 5] |= np.uint32(1) << np.uint32(item & 31)


@njit(cache=True, nogil=True)
def _collect(places: Ints, values: Ints, integers: Ints) -> None:
    """The values in the order of the elements."""
    for i in range(places.size):
        integers[i] = values[np.uint64(places[i])]
