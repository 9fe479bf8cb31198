"""What may become of a packet at a worker's end, and where it is counted."""

from __future__ import annotations

import enum

from innet.wire import Refusal


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


class Tally(enum.IntEnum):
    """Places in what ``take`` counts; the verdicts come first, by number."""

    REFUSED = len(Verdict)  # by number of the Refusal, from here on
    FLAGS = len(Verdict) + len(Refusal)  # of all answers together
    QUEUED = FLAGS + 1  # slots in the queue
    MARKED = FLAGS + 2  # the newest chunk that met congestion; -1 for none
    LENGTH = FLAGS + 3  # how many places there are
