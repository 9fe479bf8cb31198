"""Who takes records of what a compiled program does to packets."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class RecordSink(Protocol):
    """Takes records (``jit.records``) of what happens to packets.

    Attributes:
        buffer: shape (n,), int64: where emitted code writes them; the last word counts those that
            found no room.
    """

    buffer: NDArray[np.int64]

    def take(self, count: int) -> None:
        """The first ``count`` words of the buffer were written, and may be overwritten next."""
        ...
