"""Do all workers take part in the same all-reduce? Two words of the opening round tell."""

from __future__ import annotations

import hashlib

import numpy as np

from innet.codecs.parts import Ints
from innet.errors import InputError
from innet.words import Operation, Segment


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
        return [Segment(Operation.MAX, self._own)]

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
