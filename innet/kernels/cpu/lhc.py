"""The lossless homomorphic sketch: encode, occupancy, peel and unblock.

``innet.kernels.layout.lhc`` defines the cells of an element. Compiled functions get the layout as
one tuple ``hashing`` = (part, starts, log2(lanes), seed, turns), where turns[j] is the lowest bit
of turn j. The length of ``turns`` is the number of hashes. It is part of the type, so that the
compiler unrolls loops over the hashes. Part and starts have 32 bits, since vectors multiply these
faster.

Elements are hashed in strips, which compiles to vector instructions. A ``Strip`` is one array, with
the rows ``ITEM``, ``Z0`` to ``Z2``, and from ``CELLS`` on the cells by hash. Functions that work on
a strip pass no array to others and take no views: each costs atomic reference counts for all arrays
in use, which for so few elements take as long as the work.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.core.threads import in_parts
from innet.kernels.arrays import Ints, Words
from innet.kernels.cpu.bitmap import (
    AT_ONCE,
    bitmap_to_indices,
    list_bits,
    nonzero_bitmap_sparse,
    nonzero_word,
    without_tail,
    words_to_indices,
)
from innet.kernels.cpu.intrinsics import mix, prefetch
from innet.kernels.layout.hashing import GOLDEN
from innet.kernels.layout.lhc import SketchLayout

Hashing = tuple[np.uint32, np.uint32, np.uint64, np.uint64, tuple[np.uint64, ...]]
Hash = tuple[np.uint64, np.uint64, np.uint64]  # determines a block's cells and signs
Strip = NDArray[np.uint64]  # shape (CELLS + hashes, n)
States = NDArray[np.uint64]  # a word for each cell
Range = tuple[int, int]  # its beginning and its end
Graph = tuple[Ints, Hashing, States]  # the elements by number, and what their cells hold

STRIP = 128  # elements hashed side by side; their strip stays in the L1 cache
ITEM, Z0, Z1, Z2, CELLS = range(5)  # rows of a strip

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)


def lhc_encode(
    indices: Ints | None, integers: Ints, size: int, layout: SketchLayout, /
) -> tuple[Ints, Ints]:
    """See ``innet.kernels.Kernels.lhc_encode``."""
    bitmap = buffers.zeros(-(-size // 32), np.uint32)
    sketch = buffers.zeros(layout.cells, np.int32)
    if indices is None:
        _encode_dense(integers, hashing_of(layout), bitmap, sketch)
    else:
        _encode_sparse(indices, integers, hashing_of(layout), bitmap, sketch)
    return bitmap.view(np.int32), sketch


def lhc_occupancy(bitmap: Ints, size: int, layout: SketchLayout, /) -> Ints:
    """See ``innet.kernels.Kernels.lhc_occupancy``."""
    counts = np.zeros(layout.cells, np.int32)
    _count(bitmap_to_indices(bitmap, size), hashing_of(layout), counts)
    return counts


def hashing_of(layout: SketchLayout) -> Hashing:
    """The layout in the form for compiled functions."""
    return (
        np.uint32(layout.part),
        np.uint32(layout.starts),
        np.uint64(layout.lanes.bit_length() - 1),
        np.uint64(layout.seed),
        tuple(np.uint64(36 + 7 * j) for j in range(layout.hashes)),
    )


@njit(cache=True, nogil=True)
def first_word(item: np.uint64, hashing: Hashing) -> np.uint64:
    """z0 of the item's block: first segment, signs and turns."""
    return mix((item >> hashing[2]) * GOLDEN + hashing[3])


@njit(cache=True, nogil=True)
def first_segment(z0: np.uint64, hashing: Hashing) -> np.uint64:
    """The segment of the first row."""
    return ((z0 & _LOW) * np.uint64(hashing[1])) >> _HALF


@njit(cache=True, nogil=True)
def hash_of(item: np.uint64, hashing: Hashing) -> Hash:
    """The three words that determine the cells of the item's block."""
    z0 = first_word(item, hashing)
    z1 = mix(z0 + GOLDEN)
    return z0, z1, mix(z1 + GOLDEN)


@njit(cache=True, nogil=True)
def cell_of(words: Hash, j: int, item: np.uint64, hashing: Hashing) -> np.uint64:
    """The item's j-th cell, given its block's hash. Unsigned, so that nothing wraps around."""
    z0, z1, z2 = words
    _, _, shift, _, turns = hashing
    part = np.uint64(hashing[0])
    half = z1 & _LOW
    if j == 1:
        half = z1 >> _HALF
    elif j == 2:
        half = z2 & _LOW
    elif j == 3:
        half = z2 >> _HALF
    row = first_segment(z0, hashing) * part + np.uint64(j) * part + ((half * part) >> _HALF)
    lane = (item + (z0 >> turns[j])) & ((_ONE << shift) - _ONE)
    return (row << shift) + lane


@njit(cache=True, nogil=True)
def new_strip(size: int, hashing: Hashing) -> Strip:
    """A strip for that number of elements, all element 0."""
    return np.zeros((CELLS + len(hashing[4]), size), np.uint64)


@njit(cache=True, nogil=True)
def load_strip(listed: Ints, start: int, count: int, strip: Strip) -> None:
    """Put some of the listed elements into the strip."""
    for b in range(count):
        strip[ITEM, b] = np.uint64(listed[np.uint64(start + b)])


@njit(cache=True, nogil=True)
def hash_strip(strip: Strip, hashing: Hashing) -> None:
    """Hash all elements of the strip, including those left from earlier."""
    part, _, shift, _, turns = hashing
    size = strip.shape[1]
    for b in range(size):
        strip[Z0, b] = first_word(strip[ITEM, b], hashing)
    for b in range(size):
        strip[Z1, b] = mix(strip[Z0, b] + GOLDEN)
    for b in range(size):
        strip[Z2, b] = mix(strip[Z1, b] + GOLDEN)
    for j in range(len(turns)):
        begin = np.uint64(j) * part
        upper = _HALF * np.uint64(j & 1)
        for b in range(size):
            half = (strip[Z1 + (j >> 1), b] >> upper) & _LOW
            base = first_segment(strip[Z0, b], hashing) * part + begin
            strip[CELLS + j, b] = base + ((half * part) >> _HALF)
    if shift:  # with one lane, rows are cells
        lane = (_ONE << shift) - _ONE
        for j in range(len(turns)):
            for b in range(size):
                turned = (strip[ITEM, b] + (strip[Z0, b] >> turns[j])) & lane
                strip[CELLS + j, b] = (strip[CELLS + j, b] << shift) + turned


@njit(cache=True, nogil=True)
def sign_of(z0: np.uint64, j: int) -> np.int64:
    """-1 where the j-th sign says negative, else 0: (v ^ -1) + 1 is -v, without a branch."""
    return -np.int64((z0 >> np.uint64(32 + j)) & _ONE)


@njit(cache=True, nogil=True)
def _add_all(indices: Ints, integers: Ints, strip: Strip, hashing: Hashing, sketch: Ints) -> None:
    """Add the integers at the indices to their cells."""
    for start in range(0, indices.size, STRIP):
        count = min(STRIP, indices.size - start)
        load_strip(indices, start, count, strip)
        hash_strip(strip, hashing)
        _add(integers, start, count, strip, hashing, sketch)


@njit(cache=True, nogil=True)
def _add(  # noqa: PLR0917 - compiled functions are called by position
    integers: Ints, start: int, count: int, strip: Strip, hashing: Hashing, sketch: Ints
) -> None:
    for b in range(count):
        integer = np.int64(integers[np.uint64(start + b)])
        for j in range(len(hashing[4])):
            cell = strip[CELLS + j, b]
            negate = sign_of(strip[Z0, b], j)
            # Added in 64 bits and stored in 32: modulo 2**32.
            sketch[cell] = np.int32(sketch[cell] + ((integer ^ negate) - negate))


@njit(cache=True, nogil=True)
def _encode_dense(integers: Ints, hashing: Hashing, bitmap: Words, sketch: Ints) -> None:
    strip = new_strip(STRIP, hashing)
    indices = np.empty(32 * STRIP + AT_ONCE, np.int32)
    values = np.empty(32 * STRIP, np.int32)
    for first in range(0, bitmap.size, STRIP):
        flags = bitmap[first : first + STRIP]
        for w in range(flags.size):
            flags[w] = nonzero_word(integers, 32 * (first + w))
        count = list_bits(flags, 32 * first, indices)
        for i in range(count):
            values[i] = integers[np.uint64(indices[i])]
        _add_all(indices[:count], values, strip, hashing, sketch)


@njit(cache=True, nogil=True)
def _encode_sparse(
    indices: Ints, integers: Ints, hashing: Hashing, bitmap: Words, sketch: Ints
) -> None:
    nonzero_bitmap_sparse(indices, integers, bitmap)
    _add_all(indices, integers, new_strip(STRIP, hashing), hashing, sketch)


@njit(cache=True, nogil=True)
def _count(listed: Ints, hashing: Hashing, counts: Ints) -> None:
    strip = new_strip(STRIP, hashing)
    for start in range(0, listed.size, STRIP):
        count = min(STRIP, listed.size - start)
        load_strip(listed, start, count, strip)
        hash_strip(strip, hashing)
        for b in range(count):
            for j in range(len(hashing[4])):
                counts[strip[CELLS + j, b]] += 1


# ----------------------------------------------------------------------------
# Peeling, fast.
#
# The elements are first sorted by their first segment, in one pass, and numbered in that order.
# With coupled hashing, neighbors by number share their segments, so that filling the cells and
# peeling, wave by wave, stay within the caches for sketches of any size.
#
# The state of a cell is one word, so that one subtraction removes an element: the sum, modulo
# 2**64, of a word for each element that it holds,
#
#     bits 32 .. 63: the element's integer, as it was added to the sketch
#     bits 7 .. 31: its number
#     bit 6: whether it was negated
#     bits 0 .. 5: 1
#
# minus 1. So the lowest bits count the elements less one. When they are 0, one element is left, and
# the other bits are its own, regardless of carries. The highest bit of the count is set until the
# cell has been visited, so that no cell is taken for one with a single element before. A cell can
# hold at most 32 elements, and numbers are below 2**25. Other sketches are rare (more elements in a
# cell mean many times too few cells), and are peeled by ``_peel_any`` below.
#
# The words of cells with a single element wait on a stack, so that those found last are taken
# first, while they are in the L1 cache.

Words64 = NDArray[np.uint64]  # the words of a strip's elements: shape (hashes or more, n)

_BATCH = 64  # elements hashed side by side and then taken out
_SWEPT = 64  # cells visited when fewer elements wait; few, so that they stay cached
_MOST = 1 << 25  # items that have numbers
_UNSEEN = np.uint64(1 << 5)  # the count's highest bit
_COUNT = np.uint64((1 << 6) - 1)
_NEGATED = np.uint64(1 << 6)
_SIGN = np.uint64(6)
_NUMBER = np.uint64(7)
_RECOVERED = np.int32(-(2**31))  # the highest bit marks a recovered element
_NONE = np.uint64(0)
_UP, _DOWN, _AGAIN = range(3)  # cells are visited ascending, descending, or once more
# Two threads take less time where each half is large, and what is between them small.
_SPLIT_STARTS, _SPLIT_ITEMS = 32, 1 << 15


def lhc_peel(
    bitmap: Ints, sketch: Ints, size: int, layout: SketchLayout, /
) -> tuple[tuple[Ints, Ints], Ints]:
    """See ``innet.kernels.Kernels.lhc_peel``.

    Scratch: 16 bytes per cell, 12 per element in the bitmap, and a copy of the bitmap; less than
    twice the gradient if the bitmap has fewer than a quarter of the elements.
    """
    # Number the elements in the order in which they will be peeled.
    items = words_to_indices(without_tail(bitmap, size))
    positions = buffers.empty(items.size if layout.coupled else 0, np.int32)
    order, ends = _sorted(items, layout, positions)
    # Peel; the fast way if no cell holds too many elements.
    values = buffers.empty(order.size, np.int32)
    recovered = -1
    if items.size < _MOST:
        recovered = _peel_fast(order, ends, layout, sketch, values)
    if recovered < 0:
        order &= ~_RECOVERED  # one half may have been peeled
        states = buffers.empty(layout.cells, np.uint64)
        _peel_any(order, hashing_of(layout), states, sketch.copy(), values)
    # Note what is missing, and put the values back into the order of the elements.
    missing = buffers.zeros(-(-size // 32), np.uint32)
    if recovered < order.size:
        _list_missing(order, values, missing)
    integers = values
    if layout.coupled:
        integers = buffers.empty(items.size, np.int32)
        _collect(positions, values, integers)
    return (items, integers), missing.view(np.int32)


def _sorted(items: Ints, layout: SketchLayout, positions: Ints) -> tuple[Ints, Ints]:
    """A copy of the elements sorted by first segment, ascending in each; and where each segment
    ends in it.

    ``positions``, one per element, become their positions in it. Plain hashing has one segment,
    and leaves ``positions`` as they are.
    """
    order = buffers.empty(items.size, np.int32)
    if not layout.coupled:
        order[:] = items
        return order, np.array([items.size], np.int32)
    ends = np.zeros(layout.starts, np.int32)
    _first_segments(items, hashing_of(layout), positions)
    _sort(items, ends, positions, order)
    return order, ends


@njit(cache=True, nogil=True)
def _first_segments(items: Ints, hashing: Hashing, segments: Ints) -> None:
    for i in range(items.size):
        segments[i] = first_segment(first_word(np.uint64(items[i]), hashing), hashing)


@njit(cache=True, nogil=True)
def _sort(items: Ints, ends: Ints, positions: Ints, order: Ints) -> None:
    """``positions`` are the elements' segments before; ``ends`` are zero."""
    # Count the elements of each segment, and sum the counts to the segments' beginnings.
    for i in range(items.size):
        ends[np.uint64(positions[i])] += 1
    begin = 0
    for s in range(ends.size):
        count = ends[s]
        ends[s] = begin
        begin += count
    # Append each element to its segment.
    for i in range(items.size):
        segment = np.uint64(positions[i])
        position = ends[segment]
        order[np.uint64(position)] = items[i]
        positions[i] = position
        ends[segment] = position + 1


def _peel_fast(order: Ints, ends: Ints, layout: SketchLayout, sketch: Ints, values: Ints) -> int:
    """Peel, from both ends at once where a core is idle.

    Then each half of the cells has a thread, which takes out the elements that have no cell in the
    other half. What is left in between is peeled when both are done.

    Returns:
        How many elements were recovered; -1 if a cell holds too many.
    """
    hashing, count = hashing_of(layout), order.size
    states = buffers.empty(layout.cells, np.uint64)
    stack = buffers.empty(layout.cells + 2, np.uint64)
    segment, later = layout.part * layout.lanes, layout.hashes - 1  # later segments of an element
    middle = (layout.starts + later) // 2  # the first segment of the second half
    half = middle * segment
    splits = layout.starts >= _SPLIT_STARTS and count >= _SPLIT_ITEMS
    # The elements between have cells in both halves.
    between = (int(ends[middle - 1 - later]), int(ends[middle - 1])) if splits else (count, count)
    recovered = []

    def peel(begin: int, end: int) -> None:
        """The halves from ``begin`` to ``end``, of two."""
        own, way, room = (0, count), _UP, stack
        shared, cells = between, (half * begin, half if end == 1 else layout.cells)
        if end - begin == 2:
            shared = count, count
        elif begin == 0:
            own, room = (0, between[0]), stack[: half + 1]
        else:
            own, way, room = (between[1], count), _DOWN, stack[half + 1 :]
        fits = _occupy(order, own, shared, cells, hashing, sketch, states)
        found = _peel(order, own, cells, way, hashing, states, room, values) if fits else -1
        recovered.append(found)

    if splits:
        in_parts(peel, 2, 1)
    else:
        peel(0, 2)
    if min(recovered) < 0:
        return -1
    if len(recovered) > 1:
        # Of the cells that hold elements between, those with a single one were left alone.
        near = half - later * segment, half + later * segment
        recovered.append(_peel(order, (0, count), near, _AGAIN, hashing, states, stack, values))
    return sum(recovered)


@njit(cache=True, nogil=True)
def _occupy(  # noqa: PLR0917 - compiled functions are called by position
    order: Ints,
    own: Range,
    shared: Range,
    cells: Range,
    hashing: Hashing,
    sketch: Ints,
    states: States,
) -> bool:
    """Fill in the states of some cells, whose earlier contents are ignored: each is initialized
    just in time.

    The elements with the numbers ``own`` have all of their cells there. Those with the numbers
    ``shared`` have others, too.

    Returns:
        Whether no cell holds too many elements.
    """
    hashes = len(hashing[4])
    segment = int(hashing[0] << hashing[2])
    strip = new_strip(STRIP, hashing)
    words = np.empty((hashes, STRIP), np.uint64)
    begun = cells[0]
    for start in range(own[0], own[1], STRIP):
        count = min(STRIP, own[1] - start)
        load_strip(order, start, count, strip)
        hash_strip(strip, hashing)
        end = (int(first_segment(strip[Z0, count - 1], hashing)) + hashes) * segment
        if end > begun:
            _clear_states(begun, end, sketch, states)
            begun = end
        _element_words(start, strip, words)
        if not _add_words(count, strip, words, hashing, states):
            return False
    _clear_states(begun, cells[1], sketch, states)
    for start in range(shared[0], shared[1], STRIP):
        count = min(STRIP, shared[1] - start)
        load_strip(order, start, count, strip)
        hash_strip(strip, hashing)
        _element_words(start, strip, words)
        if not _add_words_within(cells, count, strip, words, states):
            return False
    return True


@njit(cache=True, nogil=True)
def _clear_states(begin: int, end: int, sketch: Ints, states: States) -> None:
    """Initialize these cells: no elements, not visited."""
    for c in range(np.uint64(begin), np.uint64(end)):
        states[c] = (np.uint64(sketch[c]) << _HALF) + (_UNSEEN - _ONE)


@njit(cache=True, nogil=True)
def _element_words(start: int, strip: Strip, words: Words64) -> None:
    """The words, without integers, of elements that are numbered from ``start`` on."""
    for j in range(words.shape[0]):
        for b in range(words.shape[1]):
            negated = (strip[Z0, b] >> np.uint64(32 - 6 + j)) & _NEGATED
            words[j, b] = (np.uint64(start + b) << _NUMBER) + negated + _ONE


@njit(cache=True, nogil=True)
def _add_words(count: int, strip: Strip, words: Words64, hashing: Hashing, states: States) -> bool:
    """Add the words to the elements' cells; returns whether no cell holds too many."""
    counted = _UNSEEN  # cleared when a count overflows
    for b in range(count):
        for j in range(len(hashing[4])):
            cell = strip[CELLS + j, b]
            state = states[cell] + words[j, b]
            states[cell] = state
            counted &= state
    return bool(counted != _NONE)


@njit(cache=True, nogil=True)
def _add_words_within(
    cells: Range, count: int, strip: Strip, words: Words64, states: States
) -> bool:
    """``_add_words`` to those of the elements' cells that are among ``cells``."""
    counted = _UNSEEN
    first, size = np.uint64(cells[0]), np.uint64(cells[1] - cells[0])
    for b in range(count):
        for j in range(words.shape[0]):
            cell = strip[CELLS + j, b]
            if cell - first < size:
                state = states[cell] + words[j, b]
                states[cell] = state
                counted &= state
    return bool(counted != _NONE)


@njit(cache=True, nogil=True)
def _peel(  # noqa: PLR0917 - compiled functions are called by position
    order: Ints,
    own: Range,
    cells: Range,
    way: int,
    hashing: Hashing,
    states: States,
    stack: States,
    values: Ints,
) -> int:
    """Peel from some cells on until no cell holds a single element with a number in ``own``.
    Recovered elements are negative in ``order``.

    A cell comes to hold a single element at most once, so that the stack cannot overflow. When few
    elements wait on the stack, a few more cells are visited, the ``way`` that is said; so memory
    accesses stay near them.

    A batch taken from the stack is hashed only after the previous batch has been taken out of its
    cells. By then the batch is in memory, and vectors of it are read without a stall.

    Returns:
        How many elements were recovered.
    """
    hashes = len(hashing[4])
    strip = new_strip(_BATCH, hashing)
    words = np.empty((1 + hashes, _BATCH), np.uint64)
    waiting = np.zeros((2, _BATCH), np.uint64)
    # An element alone in a cell that was seen has no cell after the next segments.
    ahead = hashes * int(hashing[0] << hashing[2])
    unseen = _NONE if way == _AGAIN else _UNSEEN
    size = cells[1] - cells[0]
    seen = fetched = recovered = 0
    top = ready = _NONE
    while True:
        # Visit further cells while fewer elements than a batch wait.
        while seen < size and top < np.uint64(_BATCH):
            more = min(_SWEPT, size - seen)
            begin = cells[1] - seen - more if way == _DOWN else cells[0] + seen
            top = _push_singles(begin, begin + more, states, unseen, stack, top)
            seen += more
            more = min(seen + ahead, size) - fetched
            begin = cells[1] - fetched - more if way == _DOWN else cells[0] + fetched
            _prefetch_region(begin, begin + more, states, order, values)
            fetched += more
        if top == _NONE and ready == _NONE:
            return recovered
        # Hash the batch that waits.
        _load(waiting, strip)
        hash_strip(strip, hashing)
        _signed_words(waiting, strip, words)
        # Take the next batch from the stack, then this one out of its cells.
        bottom = top - min(top, np.uint64(_BATCH))
        taken = _pop_elements(bottom, top, stack, order, own, waiting)
        top = _subtract(ready, strip, words, hashing, values, states, stack, bottom)
        ready = taken
        recovered += int(ready)


@njit(cache=True, nogil=True)
def _push_singles(  # noqa: PLR0917 - compiled functions are called by position
    begin: int, end: int, states: States, unseen: np.uint64, stack: States, top: np.uint64
) -> np.uint64:
    """Mark the cells as visited; push the words of those with a single element onto the stack."""
    for cell in range(np.uint64(begin), np.uint64(end)):
        state = states[cell] - unseen
        states[cell] = state
        stack[top] = state
        top += np.uint64((state & _COUNT) == _NONE)
    return top


@njit(cache=True, nogil=True)
def _pop_elements(  # noqa: PLR0917 - compiled functions are called by position
    bottom: np.uint64, top: np.uint64, stack: States, order: Ints, own: Range, waiting: Words64
) -> np.uint64:
    """Take the stack's elements from ``bottom`` on as the next batch, with their words, except
    those already recovered from another cell and those that are not ``own``; returns how many.
    """
    ready = _NONE
    first, count = np.uint64(own[0]), np.uint64(own[1] - own[0])
    for q in range(bottom, top):
        state = stack[q]
        number = (state & _LOW) >> _NUMBER
        item = order[number]
        mine = number - first < count
        order[number] = item | (_RECOVERED if mine else np.int32(0))
        waiting[0, ready] = np.uint64(item)
        waiting[1, ready] = state
        ready += np.uint64(mine and item >= 0)
    return ready


@njit(cache=True, nogil=True)
def _load(waiting: Words64, strip: Strip) -> None:
    for b in range(waiting.shape[1]):
        strip[ITEM, b] = waiting[0, b]


@njit(cache=True, nogil=True)
def _signed_words(waiting: Words64, strip: Strip, words: Words64) -> None:
    """The elements' words with their integers: without the sign, and for each cell."""
    for b in range(waiting.shape[1]):
        state = waiting[1, b]
        negate = _NONE - ((state >> _SIGN) & _ONE)
        high = ((state & ~_LOW) ^ negate) - negate
        words[0, b] = high + (state & _LOW & ~_NEGATED) + _ONE
    for j in range(words.shape[0] - 1):
        for b in range(waiting.shape[1]):
            word = words[0, b]
            negate = _NONE - ((strip[Z0, b] >> np.uint64(32 + j)) & _ONE)
            high = ((word & ~_LOW) ^ negate) - negate
            words[1 + j, b] = high + (word & _LOW) + (negate & _NEGATED)


@njit(cache=True, nogil=True)
def _subtract(  # noqa: PLR0917 - compiled functions are called by position
    ready: np.uint64,
    strip: Strip,
    words: Words64,
    hashing: Hashing,
    values: Ints,
    states: States,
    stack: States,
    top: np.uint64,
) -> np.uint64:
    """Take elements out of their cells; returns the stack's new top."""
    for b in range(ready):
        word = words[0, b]
        values[(word & _LOW) >> _NUMBER] = np.int32(word >> _HALF)
        for j in range(len(hashing[4])):
            cell = strip[CELLS + j, b]
            left = states[cell] - words[1 + j, b]
            states[cell] = left
            stack[top] = left
            top += np.uint64((left & _COUNT) == _NONE)
    return top


@njit(cache=True, nogil=True)
def _prefetch_region(begin: int, end: int, states: States, order: Ints, values: Ints) -> None:
    """Prefetch some states and what belongs to them, since they will be visited in an order that
    the processor cannot predict.
    """
    for cell in range(begin, end, 8):
        prefetch(states, cell)
    share = order.size / states.size
    for i in range(int(begin * share), int(end * share), 16):
        prefetch(order, i)
        prefetch(values, i)


@njit(cache=True, nogil=True)
def _list_missing(order: Ints, values: Ints, missing: Words) -> None:
    """Set the bits of what was not recovered, and its values to zero."""
    for number in range(order.size):
        item = int(order[number])
        if item >= 0:
            values[number] = 0
            missing[item >> 5] |= np.uint32(1) << np.uint32(item & 31)


@njit(cache=True, nogil=True)
def _collect(positions: Ints, values: Ints, integers: Ints) -> None:
    """The values in the order of the elements."""
    for i in range(positions.size):
        integers[i] = values[np.uint64(positions[i])]


# ----------------------------------------------------------------------------
# Which elements to request when a peel gets stuck; and a peel of any sketch, several times slower.
#
# A cell's state is one word: the sum, over the elements that it holds, of 2**32 plus the element's
# number, its index in the list of elements. So the upper half counts them. When it is 1, the lower
# half is the number of the last one.

_ALONE = np.uint64(1 << 32)  # the count's unit


def lhc_unblock(bitmap: Ints, size: int, layout: SketchLayout, /) -> Ints:
    """See ``innet.kernels.Kernels.lhc_unblock``."""
    hashing = hashing_of(layout)
    items = words_to_indices(without_tail(bitmap, size))
    states = np.zeros(layout.cells, np.uint64)
    _fill_states(items, hashing, states)
    asked = np.zeros(-(-size // 32), np.uint32)
    _unblock(items, hashing, states, asked)
    return asked.view(np.int32)


@njit(cache=True, nogil=True)
def _peel_any(order: Ints, hashing: Hashing, states: States, rest: Ints, values: Ints) -> None:
    """Peel a sketch of any size and load, several times slower.

    ``rest`` is a copy of the sketch, which is overwritten.
    """
    _fill_states(order, hashing, states)
    graph = order, hashing, states
    queue = np.empty(states.size + 1, np.int32)
    head, tail = 0, _list_singles(states, queue)
    while head != tail:
        home = np.uint64(queue[head])
        head += 1
        number = states[home] & _LOW
        if (states[home] >> _HALF) != _ONE:  # peeled from another of its cells
            continue
        # Read the element from the cell where it is alone.
        item = np.uint64(order[number])
        words = hash_of(item, hashing)
        value = np.int64(0)
        for j in range(len(hashing[4])):
            if cell_of(words, j, item, hashing) == home:
                negate = sign_of(words[0], j)
                value = (np.int64(rest[home]) ^ negate) - negate
        # Take it out of all of its cells.
        for j in range(len(hashing[4])):
            cell = cell_of(words, j, item, hashing)
            negate = sign_of(words[0], j)
            rest[cell] = np.int32(rest[cell] - ((value ^ negate) - negate))
        values[number] = np.int32(value)
        tail = _remove(number, graph, queue, tail)
        order[number] = ~order[number]


@njit(cache=True, nogil=True)
def _list_singles(states: States, queue: Ints) -> int:
    """Put the cells that hold one element into the queue; returns how many there are."""
    tail = 0
    for cell in range(states.size):
        queue[tail] = cell
        tail += int((states[cell] >> _HALF) == _ONE)
    return tail


@njit(cache=True, nogil=True)
def _fill_states(order: Ints, hashing: Hashing, states: States) -> None:
    """Fill in the states, whose earlier contents are ignored: each is set to zero just in time."""
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
def _unblock(items: Ints, hashing: Hashing, states: States, asked: Words) -> None:
    graph = items, hashing, states
    queue = np.empty(states.size + 1, np.int32)
    tail = _list_singles(states, queue)
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
