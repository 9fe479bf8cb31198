"""Verdicts on packets at a worker, and their counters."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from innet.wire import FrameRefusal


@dataclass(slots=True)
class Counters:
    """Packets of a client since it was made.

    Attributes:
        sent: frames sent, with retransmissions.
        bytes_sent: their bytes, with the Ethernet header.
        retransmissions: frames sent again.
        received: all frames received.
        bytes_received: their bytes.
        results: results accepted, one per chunk.
        duplicates: results of chunks that already had one.
        refused: other frames, by reason.
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
        """Count the frames for which ``wrong`` is true."""
        number = int(wrong.sum())
        if number:
            self.refused[reason] += number


class PacketVerdict(enum.IntEnum):
    """The verdict on a packet: the first in this order that applies."""

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
        """Its name as text, such as "slot version"."""
        return self.name.lower().replace("_", " ")


class Stats(enum.IntEnum):
    """Places in what ``take`` counts; the verdicts come first, by number."""

    REFUSED = len(PacketVerdict)  # by number of the FrameRefusal, from here on
    FLAGS = len(PacketVerdict) + len(FrameRefusal)  # of all answers together
    QUEUED = FLAGS + 1  # slots in the queue
    MARKED = FLAGS + 2  # the newest chunk that met congestion; -1 for none
    BARE = FLAGS + 3  # frames sent that end with the header
    SHORT = FLAGS + 4  # frames received that are shorter than one with values
    LENGTH = FLAGS + 5  # how many places there are
