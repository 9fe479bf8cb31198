"""Words of several small integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import Array, back, empty, ints, threads_for


def pack(integers: Any, lanes: int, bits: int, /) -> Any:
    """See ``innet.kernels.Kernels.pack``."""
    part = ints(integers)
    words = empty(-(-part.size // lanes))
    _pack[threads_for(words.size)](part, lanes, bits, words)
    return back(words, integers)


def unpack(words: Any, size: int, lanes: int, bits: int, /) -> Any:
    """See ``innet.kernels.Kernels.unpack``."""
    packed, integers = ints(words), empty(size)
    # Half a lane's range is added to each lane, so that all are positive and none borrows.
    raised = sum(1 << (lane * bits + bits - 1) for lane in range(lanes))
    _unpack[threads_for(size)](packed, bits, raised, integers)
    return back(integers, words)


@cuda.jit
def _pack(integers: Array, lanes: int, bits: int, words: Array) -> None:
    for w in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        word = np.int64(0)
        for lane in range(lanes):
            i = lane * words.size + w
            if i < integers.size:
                word += np.int64(integers[i]) << np.int64(lane * bits)
        words[w] = np.int32(word & np.int64(0xFFFFFFFF))


@cuda.jit
def _unpack(words: Array, bits: int, raised: int, integers: Array) -> None:
    half = np.int64(1) << np.int64(bits - 1)
    for i in range(cuda.grid(1), integers.size, cuda.gridsize(1)):
        lane = i // words.size
        word = (np.int64(words[i - lane * words.size]) + raised) & np.int64(0xFFFFFFFF)
        field = (word >> np.int64(lane * bits)) & (2 * half - np.int64(1))
        integers[i] = np.int32(field - half)


def pack_bits(integers: Any, bits: int, /) -> Any:
    """See ``innet.kernels.Kernels.pack_bits``."""
    part = ints(integers)
    words = empty(-(-part.size * bits // 32))
    _pack_bits[threads_for(words.size)](part, bits, words)
    return back(words, integers)


def unpack_bits(words: Any, size: int, bits: int, /) -> Any:
    """See ``innet.kernels.Kernels.unpack_bits``."""
    packed, integers = ints(words), empty(size)
    _unpack_bits[threads_for(size)](packed, bits, integers)
    return back(integers, words)


@cuda.jit
def _pack_bits(integers: Array, bits: int, words: Array) -> None:
    """A thread for each word: all integers that have a bit in it."""
    for w in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        begin = np.int64(w) * np.int64(32)
        word = np.int64(0)
        for i in range(begin // bits, min((begin + 31) // bits + 1, integers.size)):
            shift = np.int64(i) * np.int64(bits) - begin  # -30 .. 31
            if shift >= 0:
                word |= np.int64(integers[i]) << shift
            else:
                word |= np.int64(integers[i]) >> -shift
        words[w] = np.int32(word & np.int64(0xFFFFFFFF))


@cuda.jit
def _unpack_bits(words: Array, bits: int, integers: Array) -> None:
    mask = (np.int64(1) << np.int64(bits)) - np.int64(1)
    for i in range(cuda.grid(1), integers.size, cuda.gridsize(1)):
        begin = np.int64(i) * np.int64(bits)
        w, shift = begin // 32, begin % 32
        held = np.int64(words[w]) & np.int64(0xFFFFFFFF)
        if shift + bits > 32:
            held |= (np.int64(words[w + 1]) & np.int64(0xFFFFFFFF)) << np.int64(32)
        integers[i] = np.int32((held >> shift) & mask)
