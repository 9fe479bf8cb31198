"""Meters in emitted code: as ``innet.switch.state.meters`` does it, over the same arrays, flat."""

from __future__ import annotations

from typing import Any

from innet.switch.jit.runtime.core import get, inlined, put
from innet.switch.state.meters import (
    BUCKET,
    BURST,
    CONFIGURED,
    FIRST_BUCKET,
    GAINED,
    MAX_TOKENS,
    TOKENS,
)

__all__ = ["meter_colour"]  # what emitted code may import


@inlined
def meter_colour(  # noqa: PLR0917 - called by emitted code only
    rates: Any, cells: Any, count: int, index: int, amount: int, clock: int
) -> int:
    """``MeterState.execute`` of cell ``index`` of a meter with ``count`` rates; ``amount`` is 1 or
    the packet's bytes.
    """
    cell = index * (FIRST_BUCKET + BUCKET * count)
    if get(cells, cell + CONFIGURED) == 0:
        return 0
    for position in range(count):
        bucket = cell + FIRST_BUCKET + BUCKET * position
        gained = int(min(max(clock, 0) * rates[index * count + position], float(MAX_TOKENS)))
        tokens = get(cells, bucket + TOKENS)
        if gained > get(cells, bucket + GAINED):
            full = tokens + gained - get(cells, bucket + GAINED)
            tokens = min(full, get(cells, bucket + BURST))
            put(cells, bucket + GAINED, gained)
        if tokens < amount:
            put(cells, bucket + TOKENS, tokens)
            return count - position
        put(cells, bucket + TOKENS, tokens - amount)
    return 0
