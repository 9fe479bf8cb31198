"""What may become of a packet at a worker's end, and where it is counted."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from innet.wire import Refusal


@dataclass(slots=True)
class Counters:
    """What a worker's end has seen since it was made.

    Attributes:
        sent: frames handed out, retransmissions among them.
        bytes_sent: their bytes, Ethernet header included.
        retransmissions: frames handed out again.
        received: frames passed in, whatever they were.
        bytes_received: their bytes.
        results: results accepted, one per chunk.
        duplicates: results of chunks that had theirs already.
        refused: frames that fit nothing that was asked for, by reason.
    """

    sent: int = 0
    bytes_sent: int = 0
    retransmissions: int = 0
    received: int = 0
    bytes_received: int = 0
    results: int = 0
    duplicates: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def refuse(self, reason: str, wrong: NDArray[np.bool_]) -> None:
        """Count those for which ``wrong``, if there are any."""
        number = int(wrong.sum())
        if number:
            self.refused[reason] += number


class Verdict(enum.IntEnum):
    """What becomes of a packet: the first that holds, from the top."""

    ANSWER = 0
    UNREADABLE = 1  # counted by the reason that parsing gives
    NOT_A_RESULT = 2
    JOB = 3
    EPOCH = 4
    WORKER = 5
    COUNT = 6
    SLOT = 7
    DUPLICATE = 8
    SEQUENCE = 9
    SLOT_VERSION = 10
    OPERATION = 11
    ELEMENTS = 12

    @property
    def label(self) -> str:
        """As it reads in a sentence: "slot version"."""
        return self.name.lower().replace("_", " ")


class Stats(enum.IntEnum):
    """Places in what ``take`` counts; the verdicts come first, by number."""

    REFUSED = len(Verdict)  # by number of the Refusal, from here on
    FLAGS = len(Verdict) + len(Refusal)  # of all answers together
    QUEUED = FLAGS + 1  # slots in the queue
    MARKED = FLAGS + 2  # the newest chunk that met congestion; -1 for none
    LENGTH = FLAGS + 3  # how many places there are
