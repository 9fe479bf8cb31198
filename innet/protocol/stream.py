"""A worker's end as compiled code sees it that moves packets over a socket by itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Stream(NamedTuple):
    """Arrays of a worker's end, in one all-reduce; see ``answers.take`` and ``chunks.fill``.

    Attributes:
        terms, slots, chunks, notes: what ``take`` wants.
        head: of frames.
        words: of all chunks, see ``fill``.
        timeouts: (window,) float64, of each slot; and when its chunk was sent last.
        patience: the time-out of a chunk that is sent for the first time; after how long it is
            given up; the time from which results end a silence, of which Python is told; how long
            one waits that later ones have overtaken, infinity where that makes no difference; and
            how long the all-reduce's last one waits when it is sent for the first time.
        waiting: how many chunks wait for their results.
        held: no chunk may be sent for the first time.
        halts: flags of results after which Python is asked before more is sent.
    """

    terms: tuple[Any, ...]
    slots: tuple[Any, ...]
    chunks: tuple[Any, ...]
    notes: tuple[Any, ...]
    head: NDArray[np.uint8]
    words: NDArray[np.int32]
    timeouts: tuple[NDArray[np.float64], NDArray[np.float64]]
    patience: tuple[float, float, float, float, float]
    waiting: int
    held: bool
    halts: int


class Moved(NamedTuple):
    """What compiled code did with a ``Stream``: counts, and then times, infinity for none.

    Attributes:
        answers: packets that were.
        received: all that came.
        bytes: theirs.
        sent: frames of chunks whose turn had come.
        waiting: chunks that wait for their results now.
        first, end: from this one of the frames that were filled last to the one before that one,
            the socket has not taken them.
        lost: frames that the interface's queue had no room for.
        error: the number of the error that stopped it, or 0.
        since: answers have come since then without a silence.
        until: when the last of them came.
        now: the time at the end.
        silent_from: answers from then on end a silence.
        bound: no timer runs out before.
    """

    answers: int
    received: int
    bytes: int
    sent: int
    waiting: int
    first: int
    end: int
    lost: int
    error: int
    since: float
    until: float
    now: float
    silent_from: float
    bound: float


COUNTS = 9
"""So many numbers of a ``Moved`` are counts; those after them are times."""
