"""Naive kernels for words of several small integers: see ``innet.kernels.Kernels.pack``."""

from __future__ import annotations

import numpy as np

from innet.kernels.arrays import Ints


def pack(integers: Ints, least: int, lanes: int, bits: int, /) -> Ints:
    """See ``innet.kernels.Kernels.pack``."""
    words = -(-integers.size // lanes)
    total = np.zeros(words, np.uint32)
    for lane in range(lanes):
        own = integers[lane * words : (lane + 1) * words].astype(np.int64) - least
        total[: own.size] |= own.astype(np.uint32) << np.uint32(lane * bits)
    return total.view(np.int32)


def unpack(words: Ints, least: int, size: int, lanes: int, bits: int, /) -> Ints:
    """See ``innet.kernels.Kernels.unpack``."""
    mask = np.uint32(2**bits - 1)
    parts = [(words.view(np.uint32) >> np.uint32(lane * bits)) & mask for lane in range(lanes)]
    return (np.concatenate(parts)[:size].astype(np.int64) + least).astype(np.int32)
