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
    digits = "".join(f"{value:0{bits}b}" for value in reversed(integers.tolist()))
    stream = int(digits or "0", 2)
    return np.frombuffer(stream.to_bytes(4 * words, "little"), "<i4").astype(np.int32)


def unpack_bits(words: Ints, size: int, bits: int, /) -> Ints:
    """See ``innet.kernels.Kernels.unpack_bits``."""
    stream = int.from_bytes(words.astype("<i4").tobytes(), "little")
    digits = f"{stream:0{size * bits}b}"
    end = len(digits)
    pieces = (digits[end - (i + 1) * bits : end - i * bits] for i in range(size))
    return np.array([int(each, 2) for each in pieces], np.int32)
