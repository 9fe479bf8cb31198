"""Words of several small integers."""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Ints, Words

_STRIP = 2048  # words filled lane by lane while they are in the L1 cache


def pack(integers: Ints, lanes: int, bits: int, /) -> Ints:
    """See ``innet.kernels.Kernels.pack``."""
    words = buffers.empty(-(-integers.size // lanes), np.int32)
    _pack(integers, lanes, bits, words)
    return words


def unpack(words: Ints, size: int, lanes: int, bits: int, /) -> Ints:
    """See ``innet.kernels.Kernels.unpack``."""
    integers = buffers.empty(size, np.int32)
    # Half a lane's range is added to each lane, so that all are positive and none borrows.
    raised = sum(1 << (lane * bits + bits - 1) for lane in range(lanes))
    _unpack(words.view(np.uint32), lanes, bits, np.uint32(raised), integers)
    return integers


@njit(cache=True, nogil=True)
def _pack(integers: Ints, lanes: int, bits: int, words: Ints) -> None:
    for start in range(0, words.size, _STRIP):
        strip = words[start : start + _STRIP]
        strip[:] = 0
        for lane in range(lanes):
            shift = np.int32(lane * bits)
            first = lane * words.size + start
            part = integers[first : min(first + strip.size, (lane + 1) * words.size)]
            for i in range(part.size):
                strip[i] = np.int32(strip[i] + np.int32(part[i] << shift))


@njit(cache=True, nogil=True)
def _unpack(words: Words, lanes: int, bits: int, raised: np.uint32, integers: Ints) -> None:
    mask = np.uint32((1 << bits) - 1)
    half = np.uint32(1 << (bits - 1))
    for lane in range(lanes):
        shift = np.uint32(lane * bits)
        part = integers[lane * words.size : (lane + 1) * words.size]
        for i in range(part.size):
            field = (np.uint32(words[i] + raised) >> shift) & mask
            part[i] = np.int32(np.uint32(field - half))


def pack_bits(integers: Ints, bits: int, /) -> Ints:
    """See ``innet.kernels.Kernels.pack_bits``."""
    words = buffers.empty(-(-integers.size * bits // 32), np.int32)
    _pack_bits(integers, bits, words)
    return words


def unpack_bits(words: Ints, size: int, bits: int, /) -> Ints:
    """See ``innet.kernels.Kernels.unpack_bits``."""
    integers = buffers.empty(size, np.int32)
    _unpack_bits(words.view(np.uint32), bits, integers)
    return integers


@njit(cache=True, nogil=True)
def _pack_bits(integers: Ints, bits: int, words: Ints) -> None:
    """``held`` has the bits, fewer than 32, that do not fill a word yet."""
    held, filled, w = np.uint64(0), 0, 0
    for i in range(integers.size):
        held |= np.uint64(integers[i]) << np.uint64(filled)
        filled += bits
        if filled >= 32:
            words[w] = np.int32(held & np.uint64(0xFFFFFFFF))
            held >>= np.uint64(32)
            filled -= 32
            w += 1
    if filled:
        words[w] = np.int32(held & np.uint64(0xFFFFFFFF))


@njit(cache=True, nogil=True)
def _unpack_bits(words: Words, bits: int, integers: Ints) -> None:
    mask = np.uint64((1 << bits) - 1)
    held, filled, w = np.uint64(0), 0, 0
    for i in range(integers.size):
        if filled < bits:
            held |= np.uint64(words[w]) << np.uint64(filled)
            filled += 32
            w += 1
        integers[i] = np.int32(held & mask)
        held >>= np.uint64(bits)
        filled -= bits
