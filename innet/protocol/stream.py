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
        message: words, operations and elements of chunks.
        timeouts: (window,) float64, of each slot.
        patience: (2,) float64: the time-out of a chunk that is sent for the first time, and after
            how long it is given up.
    """

    terms: tuple[Any, ...]
    slots: tuple[Any, ...]
    chunks: tuple[Any, ...]
    notes: tuple[Any, ...]
    head: NDArray[np.uint8]
    message: tuple[Any, ...]
    timeouts: NDArray[np.float64]
    patience: NDArray[np.float64]


class Moved(NamedTuple):
    """What compiled code did with a ``Stream``.

    Attributes:
        answers: packets that were.
        received: all that came.
        bytes_received: theirs.
        sent: frames of chunks whose turn had come.
        first, end: those among the frames that were filled last that the socket has not taken.
        lost: frames that the interface's queue had no room for.
        error: the number of the error that stopped it, or 0.
    """

    answers: int
    received: int
    bytes_received: int
    sent: int
    first: int
    end: int
    lost: int
    error: int
