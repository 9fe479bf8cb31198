"""Words of several small integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import Array, back, empty, ints, threads_for


def pack(integers: Any, least: int, lanes: int, bits: int, /) -> Any:
    """See ``innet.kernels.Kernels.pack``."""
    own = ints(integers)
    words = empty(-(-own.size // lanes))
    _pack[threads_for(words.size)](own, least, lanes, bits, words)
    return back(words, integers)


def unpack(words: Any, least: int, size: int, lanes: int, bits: int, /) -> Any:
    """See ``innet.kernels.Kernels.unpack``."""
    del lanes  # as many as the words have
    packed, integers = ints(words), empty(size)
    _unpack[threads_for(size)](packed, least, bits, integers)
    return back(integers, words)


@cuda.jit
def _pack(integers: Array, least: int, lanes: int, bits: int, words: Array) -> None:
    for w in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        word = np.int64(0)
        for lane in range(lanes):
            i = lane * words.size + w
            if i < integers.size:
                word |= (np.int64(integers[i]) - np.int64(least)) << np.int64(lane * bits)
        words[w] = np.int32(word & np.int64(0xFFFFFFFF))


@cuda.jit
def _unpack(words: Array, least: int, bits: int, integers: Array) -> None:
    mask = (np.int64(1) << np.int64(bits)) - np.int64(1)
    for i in range(cuda.grid(1), integers.size, cuda.gridsize(1)):
        lane = i // words.size
        word = np.int64(words[i - lane * words.size]) & np.int64(0xFFFFFFFF)
        field = (word >> np.int64(lane * bits)) & mask
        integers[i] = np.int32(field + np.int64(least))
