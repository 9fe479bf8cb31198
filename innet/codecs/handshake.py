"""The handshake: one round before the data, in which the workers agree on what they will send.

Three announcements share it: two words that tell whether all workers have the same configuration,
the quantizer's (the largest magnitude, say), and the carrier's (sizes of the supports, say).
"""

from __future__ import annotations

import hashlib
from itertools import chain

import numpy as np

from innet.codecs.parts import Ints
from innet.core.errors import InputError
from innet.core.reduce_op import Operation, ReduceOp, Segment


class Handshake:
    """Joins the segments of several announcements by operation, and takes the answers apart.

    A packet carries one operation: a segment for each announcement would cost a packet each.
    """

    def __init__(self, *announcements: list[Segment]) -> None:
        self._announcements = announcements
        by_operation: dict[Operation, list[Ints]] = {}
        for segment in chain(*announcements):
            by_operation.setdefault(segment.operation, []).append(segment.words)
        self.segments = [
            Segment(operation, np.concatenate(words)) for operation, words in by_operation.items()
        ]

    def own_answers(self) -> list[Ints]:
        """What would come back if all workers announced the same as this one."""
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


class ConfigDigest:
    """Tells whether all workers have the same configuration: 31 bits of its hash and their
    complement, combined by MAX.

    The largest complement belongs to the smallest hash. If it matches the largest hash, all hashes
    are equal. Different configurations have equal hashes once in 2**31 times.

    Args:
        config: everything that must be the same on all workers.
        worker: whose codec it is, for the message.
    """

    def __init__(self, config: str, worker: int) -> None:
        digest = hashlib.sha256(config.encode()).digest()
        bits = int.from_bytes(digest[:4], "little") >> 1
        self._words = np.array([bits, ~bits], np.int32)
        self._config = config
        self._worker = worker

    def announce(self) -> list[Segment]:
        return [Segment(ReduceOp.MAX, self._words)]

    def check(self, answers: list[Ints]) -> None:
        """Refuse to go on with workers that have another configuration.

        Raises:
            InputError: says what this worker's codec is; every worker raises it.
        """
        if answers[0].tolist() != self._words.tolist():
            raise InputError(
                f"the workers' codecs disagree; that of worker {self._worker} is: {self._config}. "
                "Give all the same description, seed and layers, and load states of one time."
            )
