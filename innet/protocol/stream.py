"""A worker's end as compiled code sees it that moves packets over a socket by itself."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Stream(NamedTuple):
    """Arrays of a worker's end, in one all-reduce; see ``answers.take`` and ``chunks.fill``.

    Attributes:
        terms, slots, chunks, notes: what ``take`` wants.
        head: of frames.
        message: words, operations and elements of chunks.
        timeouts: (window,) float64, of each slot.
        patience: the time-out of a chunk that is sent for the first time; after how long it is
            given up; and the time from which results end a silence, of which Python is told.
        waiting: how many chunks wait for their results.
        held: no chunk may be sent for the first time.
        halts: flags of results after which Python is asked before more is sent.
    """

    terms: tuple[Any, ...]
    slots: tuple[Any, ...]
    chunks: tuple[Any, ...]
    notes: tuple[Any, ...]
    head: NDArray[np.uint8]
    message: tuple[Any, ...]
    timeouts: NDArray[np.float64]
    patience: tuple[float, float, float]
    waiting: int
    held: bool
    halts: int


class Count(enum.IntEnum):
    """Places in what compiled code counts of a ``Stream``."""

    ANSWERS = 0  # packets that were
    RECEIVED = 1  # all that came
    BYTES = 2  # theirs
    SENT = 3  # frames of chunks whose turn had come
    WAITING = 4  # chunks that wait for their results now
    FIRST = 5  # from this one of the frames that were filled last to the one before
    END = 6  # this one, the socket has not taken them
    LOST = 7  # frames that the interface's queue had no room for
    ERROR = 8  # the number of the error that stopped it, or 0


class Time(enum.IntEnum):
    """Places among the times that it notes; infinity for none."""

    SINCE = 0  # answers have come since then without a silence
    UNTIL = 1  # when the last of them came
    NOW = 2  # at the end
    SILENT_FROM = 3  # answers from then on end a silence
    BOUND = 4  # no timer runs out before


class Moved(NamedTuple):
    """What compiled code did with a ``Stream``: numbers by ``Count``, and by ``Time``."""

    counts: list[int]
    times: list[float]
