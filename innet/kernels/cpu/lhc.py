"""The lossless homomorphic sketch: hashing, encode, occupancy. ``innet.kernels.layout.lhc`` defines
it.

Compiled functions get the layout as one tuple ``hashing`` = (part, starts, log2(lanes), seed,
turns), where turns[j] is the lowest bit of turn j: its length is the number of hashes, which the
compiler knows, as it is part of the type, so that loops over the hashes leave no branch behind.
Part and starts are of 32 bits: what is known to fit into 32 bits is multiplied faster in vectors.

Elements are hashed by the strip, which compiles to vector instructions. A ``Strip`` is one array,
with the rows ``ITEM``, ``Z0`` to ``Z2``, and from ``CELLS`` on their cells by hash. Those who work
on a strip pass no array on, and take no views: each costs atomic operations, for all arrays at
hand, that with so few elements take as long as the work.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Ints, Words
from innet.kernels.cpu.bitmap import AT_ONCE, expand, list_bits
from innet.kernels.cpu.marks import mark_sparse, mark_word
from innet.kernels.layout.lhc import SketchLayout

Hashing = tuple[np.uint32, np.uint32, np.uint64, np.uint64, tuple[np.uint64, ...]]
Hash = tuple[np.uint64, np.uint64, np.uint64]  # what a block's cells and signs are read from
Strip = NDArray[np.uint64]  # shape (CELLS + hashes, n)

STRIP = 128  # elements hashed side by side; all that is known of them stays in the first cache
ITEM, Z0, Z1, Z2, CELLS = range(5)  # rows of a strip

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
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
    _count(expand(bitmap, size), hashing_of(layout), counts)
    return counts


def hashing_of(layout: SketchLayout) -> Hashing:
    """The layout as compiled functions take it."""
    return (
        np.uint32(layout.part),
        np.uint32(layout.starts),
        np.uint64(layout.lanes.bit_length() - 1),
        np.uint64(layout.seed),
        tuple(np.uint64(36 + 7 * j) for j in range(layout.hashes)),
    )


@njit(cache=True, nogil=True)
def mix(z: np.uint64) -> np.uint64:
    """The finaliser of SplitMix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def first_word(item: np.uint64, hashing: Hashing) -> np.uint64:
    """z0 of the item's block: first segment, signs and turns."""
    return mix((item >> hashing[2]) * _GOLDEN + hashing[3])


@njit(cache=True, nogil=True)
def first_segment(z0: np.uint64, hashing: Hashing) -> np.uint64:
    """The segment of the first row."""
    return ((z0 & _LOW) * np.uint64(hashing[1])) >> _HALF


@njit(cache=True, nogil=True)
def hash_of(item: np.uint64, hashing: Hashing) -> Hash:
    """The three words that decide where the block of the item goes."""
    z0 = first_word(item, hashing)
    z1 = mix(z0 + _GOLDEN)
    return z0, z1, mix(z1 + _GOLDEN)


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
    """Room for so many elements, each of them element 0."""
    return np.zeros((CELLS + len(hashing[4]), size), np.uint64)


@njit(cache=True, nogil=True)
def load_strip(listed: Ints, start: int, count: int, strip: Strip) -> None:
    """Have these of the listed elements hashed next."""
    for b in range(count):
        strip[ITEM, b] = np.uint64(listed[np.uint64(start + b)])


@njit(cache=True, nogil=True)
def hash_strip(strip: Strip, hashing: Hashing) -> None:
    """Hash all elements of the strip, also those that were left in it from before."""
    part, _, shift, _, turns = hashing
    size = strip.shape[1]
    for b in range(size):
        strip[Z0, b] = first_word(strip[ITEM, b], hashing)
    for b in range(size):
        strip[Z1, b] = mix(strip[Z0, b] + _GOLDEN)
    for b in range(size):
        strip[Z2, b] = mix(strip[Z1, b] + _GOLDEN)
    for j in range(len(turns)):
        begin = np.uint64(j) * part
        upper = _HALF * np.uint64(j & 1)
        for b in range(size):
            half = (strip[Z1 + (j >> 1), b] >> upper) & _LOW
            base = first_segment(strip[Z0, b], hashing) * part + begin
            strip[CELLS + j, b] = base + ((half * part) >> _HALF)
    if shift:  # with one lane the rows are the cells
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
            # Added up in 64 bits and stored in 32: modulo 2**32.
            sketch[cell] = np.int32(sketch[cell] + ((integer ^ negate) - negate))


@njit(cache=True, nogil=True)
def _encode_dense(integers: Ints, hashing: Hashing, bitmap: Words, sketch: Ints) -> None:
    strip = new_strip(STRIP, hashing)
    indices = np.empty(32 * STRIP + AT_ONCE, np.int32)
    values = np.empty(32 * STRIP, np.int32)
    for first in range(0, bitmap.size, STRIP):
        flags = bitmap[first : first + STRIP]
        for w in range(flags.size):
            flags[w] = mark_word(integers, 32 * (first + w))
        count = list_bits(flags, 32 * first, indices)
        for i in range(count):
            values[i] = integers[np.uint64(indices[i])]
        _add_all(indices[:count], values, strip, hashing, sketch)


@njit(cache=True, nogil=True)
def _encode_sparse(
    indices: Ints, integers: Ints, hashing: Hashing, bitmap: Words, sketch: Ints
) -> None:
    mark_sparse(indices, integers, bitmap)
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
