"""The opening round: what quantizer and carrier must know of all workers, in as few segments."""

from __future__ import annotations

import hashlib
from itertools import chain

import numpy as np

from innet.codecs.parts import Ints
from innet.core.errors import InputError
from innet.core.reduce_op import ReduceOp, Segment


class Opening:
    """Joins the segments of several announcements by operation, and takes the answers apart.

    A packet carries one operation, so a segment each would cost a packet for a word.
    """

    def __init__(self, *announcements: list[Segment]) -> None:
        self._announcements = announcements
        by_operation: dict[ReduceOp, list[Ints]] = {}
        for segment in chain(*announcements):
            by_operation.setdefault(segment.operation, []).append(segment.words)
        self.segments = [
            Segment(operation, np.concatenate(words)) for operation, words in by_operation.items()
        ]

    def nothing(self) -> list[Ints]:
        """The answers of workers that all announced what this one does."""
        return [segment.words for segment in self.segments]

    def split(self, answers: list[Ints]) -> list[list[Ints]]:
        """For each announcement, the answers to its segments."""
        operations = [segment.operation for segment in self.segments]
        left = dict(zip(operations, answers, strict=True))
        parts: list[list[Ints]] = []
        for announcement in self._announcements:
            parts.append([])
            for segment in announcement:
                words = left[segment.operation]
                parts[-1].append(words[: segment.words.size])
                left[segment.operation] = words[segment.words.size :]
        return parts


# ----------------------------------------------------------------------------
# Do all workers take part in the same all-reduce? Two words of the opening round tell.


class Agreement:
    """31 bits of a hash of what a worker takes for common, and their complement, by MAX.

    The largest complement is that of the smallest hash: where it belongs to the largest hash, all
    are the same. Workers that differ have equal hashes once in 2**31 times.

    Args:
        common: everything that must be the same on all workers.
        worker: whose codec it is, for the message.
    """

    def __init__(self, common: str, worker: int) -> None:
        digest = hashlib.sha256(common.encode()).digest()
        bits = int.from_bytes(digest[:4], "little") >> 1
        self._own = np.array([bits, ~bits], np.int32)
        self._common = common
        self._worker = worker

    def announce(self) -> list[Segment]:
        return [Segment(ReduceOp.MAX, self._own)]

    def check(self, answers: list[Ints]) -> None:
        """Refuse to go on with workers that mean something else.

        Raises:
            InputError: says what this worker's codec is; every worker raises it.
        """
        if answers[0].tolist() != self._own.tolist():
            raise InputError(
                f"the workers' codecs disagree; that of worker {self._worker} is: {self._common}. "
                "Give all the same description, seed and layers, and load states of one time."
            )
