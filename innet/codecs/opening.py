"""The opening round: what quantiser and carrier must know of all workers, in as few segments."""

from __future__ import annotations

from itertools import chain

import numpy as np

from innet.codecs.parts import Ints
from innet.words import Operation, Segment


class Opening:
    """Joins the segments of several announcements by operation, and takes the answers apart.

    A packet carries one operation, so a segment each would cost a packet for a word.
    """

    def __init__(self, *announcements: list[Segment]) -> None:
        self._announcements = announcements
        by_operation: dict[Operation, list[Ints]] = {}
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
