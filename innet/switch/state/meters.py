"""Meters: cells that color packets by their rate, computed as in BMv2.

A cell has one token bucket per rate. A bucket gains ``rate`` tokens a microsecond up to its burst
size. Each packet takes one token, or one for each of its bytes, from every bucket, beginning with
the highest rate, until a bucket has too few. The color is the position of that bucket's rate among
the ascending rates, counted from 1; it is 0 if all buckets had enough. With two rates 0 is green, 1
yellow and 2 red (RFC 2698, color-blind, as in BMv2). The color of a cell without rates is always 0.

Tokens are integers: the total gain of a bucket since time 0 is rounded down, so that small rates
lose nothing by frequent updates. Time is an argument, in microseconds; a time before the last one
adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.state.tables import zeros

MAX_TOKENS = 1 << 61
"""Most tokens that a bucket may hold or gain: a sum of two such numbers fits int64."""

CONFIGURED = 0
"""Column of ``MeterState.cells``: 1 when the cell has rates."""
FIRST_BUCKET = 1
"""Column of the first bucket, that of the highest rate."""
BURST, TOKENS, GAINED = 0, 1, 2
"""Columns of a bucket: its size, its tokens, and its gain since time 0."""
BUCKET = 3
"""Columns of each bucket."""


@dataclass(frozen=True, slots=True)
class MeterRate:
    """``per_microsecond`` packets or bytes a microsecond, after a burst of ``burst`` at once."""

    per_microsecond: float
    burst: int


@dataclass(slots=True)
class MeterState:
    """The cells of one meter array.

    Attributes:
        rates: float64 (size, rates), tokens a microsecond, the highest rate first.
        cells: int64 (size, 1 + 3 * rates); see the columns above.
    """

    array: ir.MeterArray
    rates: NDArray[np.float64] = field(init=False)
    cells: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        array, count = self.array, self.array.rates
        what = f"meter {array.name}"
        self.rates = zeros((array.size, count), np.dtype(np.float64), what)
        columns = FIRST_BUCKET + BUCKET * count
        self.cells = zeros((array.size, columns), np.dtype(np.int64), what)

    def execute(self, index: int, size: int, clock: int) -> int:
        """The color of a packet of ``size`` bytes at ``clock`` microseconds.

        ``jit.runtime.externs.execute_meter`` does the same.
        """
        cell = self.cells[index]
        if not cell[CONFIGURED]:
            return 0
        amount = size if self.array.bytes else 1
        for position, rate in enumerate(self.rates[index]):
            first = FIRST_BUCKET + BUCKET * position
            bucket = cell[first : first + BUCKET]
            gained = int(min(max(clock, 0) * float(rate), float(MAX_TOKENS)))
            if gained > bucket[GAINED]:
                full = bucket[TOKENS] + gained - bucket[GAINED]
                bucket[TOKENS] = min(full, bucket[BURST])
                bucket[GAINED] = gained
            if bucket[TOKENS] < amount:
                return self.array.rates - position
            bucket[TOKENS] -= amount
        return 0

    def set_rates(self, indices: Sequence[int] | slice, rates: Sequence[MeterRate]) -> None:
        """Set the rates of cells. They must be checked: as many as the array has, in ascending
        order.

        Buckets are full afterwards.
        """
        self.rates[indices] = [rate.per_microsecond for rate in reversed(rates)]
        row = [1]
        for rate in reversed(rates):
            row += [rate.burst, rate.burst, 0]
        self.cells[indices] = row

    def clear_rates(self, indices: int | slice) -> None:
        """Remove the rates of cells: every packet is green then."""
        self.rates[indices] = 0
        self.cells[indices] = 0

    def get_rates(self, index: int) -> list[MeterRate]:
        """The rates of a cell in ascending order; none if none were set."""
        cell = self.cells[index]
        if not cell[CONFIGURED]:
            return []
        bursts = cell[FIRST_BUCKET + BURST :: BUCKET]
        pairs = zip(self.rates[index], bursts, strict=True)
        return [MeterRate(float(rate), int(burst)) for rate, burst in reversed(list(pairs))]
