"""Words of several small integers."""

from __future__ import annotations

import numpy as np
from numba import njit

from innet.kernels.arrays import Ints
from innet.kernels.cpu import memory


def pack(integers: Ints, least: int, lanes: int, bits: int, /) -> Ints:
    """See ``innet.kernels.Kernels.pack``."""
    words = memory.empty(-(-integers.size // lanes), np.int32)
    _pack(integers, np.int32(least), lanes, bits, words)
    return words


def unpack(words: Ints, least: int, size: int, lanes: int, bits: int, /) -> Ints:
    """See ``innet.kernels.Kernels.unpack``."""
    integers = memory.empty(size, np.int32)
    _unpack(words.view(np.uint32), np.int32(least), lanes, bits, integers)
    return integers


_STRIP = 2048  # words that are filled lane by lane before they leave the first cache


@njit(cache=True, nogil=True)
def _pack(integers: Ints, least: np.int32, lanes: int, bits: int, words: Ints) -> None:
    for start in range(0, words.size, _STRIP):
        strip = words[start : start + _STRIP]
        strip[:] = 0
        for lane in range(lanes):
            shift = np.int32(lane * bits)
            first = lane * words.size + start
            own = integers[first : min(first + strip.size, (lane + 1) * words.size)]
            for i in range(own.size):
                strip[i] |= np.int32(np.int32(own[i] - least) << shift)


@njit(cache=True, nogil=True)
def _unpack(words: Ints, least: np.int32, lanes: int, bits: int, integers: Ints) -> None:
    mask = np.uint32((1 << bits) - 1)
    for lane in range(lanes):
        shift = np.uint32(lane * bits)
        own = integers[lane * words.size : (lane + 1) * words.size]
        for i in range(own.size):
            own[i] = np.int32(np.int32((words[i] >> shift) & mask) + least)
