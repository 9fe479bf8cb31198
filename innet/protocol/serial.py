"""Chunk numbers on the wire: 32-bit serial arithmetic (RFC 1982, SERIAL_BITS = 32)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def sequence_of(chunk: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The header's ``sequence`` of chunks, which count from 0 and never wrap themselves."""
    return (chunk + 1).astype(np.uint32)  # keeps the low 32 bits


def serial_distances(
    sequence: NDArray[np.uint32], reference: NDArray[np.uint32]
) -> NDArray[np.int32]:
    """How far ``sequence`` is ahead of ``reference`` (negative: behind), for arrays."""
    return (sequence - reference).view(np.int32)


def serial_distance(sequence: int, reference: int) -> int:
    """How far ``sequence`` is ahead of ``reference`` (negative: behind)."""
    return ((sequence - reference + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000
