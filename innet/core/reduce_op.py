"""Integer words and the operation that the network applies to them.

This is what codecs hand to the protocol: segments of int32 words, each with the operation by which
the switch combines the same segment of all workers, word by word.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from innet.core.float_sums import FloatSum, sum_in_order

_LEAST_NORMAL = float(np.finfo(np.float32).smallest_normal)


class ReduceOp(enum.IntEnum):
    """How the switch combines the words of the workers. The values are those on the wire."""

    SUM = 1  # modulo 2**32, as two's complement
    OR = 2  # bit by bit
    MAX = 3  # of signed 32-bit integers


class CollectiveOp(enum.IntEnum):
    """What the network does with words that one worker, their owner, has or gets.

    The values are those on the wire, after those of ``ReduceOp``.
    """

    REDUCE = 4  # sum the others' words for the owner, modulo 2**32
    BROADCAST = 5  # give the owner's words to the others
    BARRIER = 6  # carry no words: all workers have come so far


Operation: TypeAlias = ReduceOp | CollectiveOp | FloatSum
"""What the network does with words."""


@dataclass(frozen=True, slots=True)
class Segment:
    """``words`` (shape (n,), int32) to be combined over all workers by ``operation``.

    All workers of a job send segments of the same operations, owners and lengths in the same order.

    Attributes:
        operation: how.
        words: those of this worker. In a BROADCAST those of the owner count, in a REDUCE those of
            all others, and in a BARRIER none.
        owner: with a CollectiveOp, the index of a worker. The results of the others in a REDUCE,
            of the owner in a BROADCAST and of all in a BARRIER mean nothing.
    """

    operation: Operation
    words: NDArray[np.int32]
    owner: int | None = None

    @property
    def size(self) -> int:
        """How many words there are."""
        return len(self.words)

    def has_result(self, worker: int) -> bool:
        """Whether the worker's result means something."""
        if isinstance(self.operation, ReduceOp):
            return True
        if self.operation is CollectiveOp.BARRIER:
            return False
        return (self.operation is CollectiveOp.REDUCE) == (worker == self.owner)


class FloatSegment(Segment):
    """Fixed-point words to be summed, which are made of floats where and when they are needed.

    Who sends the words can make them of the floats as each packet leaves, and floats of the sums as
    they arrive, instead of before and after all packets. The words of both ways are the same.

    Args:
        values: shape (n,), float32, C-contiguous and writable; not changed meanwhile.
        scale: a word is ``values * scale``, rounded half to even in float64.
        step: a sum of words stands for ``words * step``, rounded to float32.
        quantize: makes the words of the values and the scale.

    Attributes:
        sums: shape (n,), float32: what the sums stand for, once they have arrived, if it was made
            on the way; else None. If it was, the sums themselves were not kept: the array in their
            place is empty.
        overwrites: sums that are made on the way are written over the values, each when the value
            in its place need not be sent again.
    """

    __slots__ = ("_quantize", "_words", "overwrites", "scale", "step", "sums", "values")

    def __init__(
        self,
        values: NDArray[np.float32],
        scale: float,
        step: float,
        quantize: Callable[[NDArray[np.float32], float], NDArray[np.int32]],
    ) -> None:
        for name, each in (
            ("operation", ReduceOp.SUM), ("values", values), ("scale", scale), ("step", step),
            ("sums", None), ("overwrites", False), ("_quantize", quantize), ("_words", None),
            ("owner", None),
        ):  # fmt: skip
            object.__setattr__(self, name, each)

    values: NDArray[np.float32]
    scale: float
    step: float
    sums: NDArray[np.float32] | None
    overwrites: bool
    _quantize: Callable[[NDArray[np.float32], float], NDArray[np.int32]]
    _words: NDArray[np.int32] | None

    def overwrite(self) -> None:
        """Let sums be written over the values."""
        object.__setattr__(self, "overwrites", True)

    def multiply(self, factor: float) -> bool:
        """Multiply ``step``, if this changes no bit of the product of a rounded sum and the factor.

        That is so for a power of two, if neither sums nor products can be subnormal.

        Returns:
            Whether it was done.
        """
        step = self.step * factor
        if math.frexp(factor)[0] != 0.5 or min(self.step, step) < _LEAST_NORMAL:
            return False
        object.__setattr__(self, "step", step)
        return True

    def arrived(self, sums: NDArray[np.float32]) -> None:
        """Note what the sums stand for."""
        object.__setattr__(self, "sums", sums)

    @property
    def size(self) -> int:
        return self.values.size

    @property
    def words(self) -> NDArray[np.int32]:
        """All words; made at the first call, when the values must be unchanged."""
        if self._words is None:
            words = self._quantize(self.values, self.scale)
            object.__setattr__(self, "_words", words)
            return words
        return self._words


@dataclass(frozen=True, slots=True)
class SizedSegment:
    """A segment of ``size`` words, without the words: for header-only packets, which carry none."""

    operation: Operation
    size: int
    owner: int | None = None


def sends(operation: int, is_owner: bool) -> bool:
    """Whether a worker's words of a segment with an owner travel. Whose do not, gets the result."""
    if operation == CollectiveOp.BARRIER:
        return False
    return is_owner == (operation == CollectiveOp.BROADCAST)


def combine(
    operation: ReduceOp | FloatSum, contributions: Sequence[NDArray[np.int32]]
) -> NDArray[np.int32]:
    """What the network must answer: the oracle for tests and for loop-back use.

    Args:
        operation: how to combine.
        contributions: one int32 array per worker, all of the same shape; of a ``FloatSum`` in the
            order of their arrival.

    Returns:
        int32 of that shape.
    """
    if isinstance(operation, FloatSum):
        return sum_in_order(operation, contributions)
    stacked = np.stack(contributions)
    if operation is ReduceOp.SUM:
        return np.asarray(stacked.view(np.uint32).sum(axis=0, dtype=np.uint32)).view(np.int32)
    if operation is ReduceOp.OR:
        return np.asarray(np.bitwise_or.reduce(stacked, axis=0), np.int32)
    return np.asarray(stacked.max(axis=0), np.int32)
