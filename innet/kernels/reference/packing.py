"""Kernels for words of several small integers: see ``innet.kernels.Kernels.pack``."""

from __future__ import annotations

import numpy as np

from innet.kernels.arrays import Ints


def pack(integers: Ints, lanes: int, bits: int, /) -> Ints:
    """See ``innet.kernels.Kernels.pack``."""
    words = -(-integers.size // lanes)
    total = np.zeros(words, np.int64)
    for lane in range(lanes):
        part = integers[lane * words : (lane + 1) * words]
        total[: part.size] += part.astype(np.int64) << (lane * bits)
    return total.astype(np.int32)


def unpack(words: Ints, size: int, lanes: int, bits: int, /) -> Ints:
    """See ``innet.kernels.Kernels.unpack``."""
    left = words.astype(np.int64)
    half = 1 << (bits - 1)
    parts = []
    for _ in range(lanes):
        part = (left + half) % (1 << bits) - half  # the lowest lane, with its sign
        parts.append(part)
        left = (left - part) >> bits
    return np.concatenate(parts)[:size].astype(np.int32)
