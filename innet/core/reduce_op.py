"""Integer words and the operation that the network applies to them.

This is what codecs hand to the protocol: segments of int32 words, each with the operation by which
the switch combines the same segment of all workers, word by word.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class ReduceOp(enum.IntEnum):
    """How the switch combines the words of the workers. The values are those on the wire."""

    SUM = 1  # modulo 2**32, as two's complement
    OR = 2  # bit by bit
    MAX = 3  # of signed 32-bit integers


@dataclass(frozen=True, slots=True)
class Segment:
    """``words`` (shape (n,), int32) to be combined over all workers by ``operation``.

    All workers of a job send segments of the same operations and lengths in the same order.
    """

    operation: ReduceOp
    words: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class ThinSegment:
    """A segment of ``size`` words, without the words: for thin packets, which carry none."""

    operation: ReduceOp
    size: int


def combine(operation: ReduceOp, contributions: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    """What the network must answer: the oracle for tests and for loop-back use.

    Args:
        operation: how to combine.
        contributions: one int32 array per worker, all of the same shape.

    Returns:
        int32 of that shape.
    """
    stacked = np.stack(contributions)
    if operation is ReduceOp.SUM:
        return np.asarray(stacked.view(np.uint32).sum(axis=0, dtype=np.uint32)).view(np.int32)
    if operation is ReduceOp.OR:
        return np.asarray(np.bitwise_or.reduce(stacked, axis=0), np.int32)
    return np.asarray(stacked.max(axis=0), np.int32)
