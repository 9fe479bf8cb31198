"""Kernels for words of several small integers: see ``pack`` of ``innet.kernels.Kernels``."""

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


def pack_bits(integers: Ints, bits: int, /) -> Ints:
    """See ``innet.kernels.Kernels.pack_bits``."""
    words = -(-integers.size * bits // 32)
    stream = sum(value << (i * bits) for i, value in enumerate(integers.tolist()))
    return np.frombuffer(stream.to_bytes(4 * words, "little"), "<i4").astype(np.int32)


def unpack_bits(words: Ints, size: int, bits: int, /) -> Ints:
    """See ``innet.kernels.Kernels.unpack_bits``."""
    stream = int.from_bytes(words.astype("<i4").tobytes(), "little")
    mask = 2**bits - 1
    return np.array([stream >> (i * bits) & mask for i in range(size)], np.int32)
