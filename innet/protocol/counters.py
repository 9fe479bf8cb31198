"""What a worker's end counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


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
