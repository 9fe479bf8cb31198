"""Random meter rates made to fit a program (see ``guided``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from innet.switch.engine import SwitchState
from innet.switch.meters import Rate


def fill_meters(rng: np.random.Generator, states: Sequence[SwitchState]) -> None:
    """The same rates for some cells of every meter of all ``states``.

    Bursts of a few packets and rates that give back a few in a thousand microseconds, so that all
    colours occur.
    """
    for index, meter in enumerate(states[0].meters):
        array = meter.array
        scale = 60 if array.bytes else 1
        for cell in rng.permutation(min(array.size, 256))[:128]:
            rates = np.sort(rng.choice([0.0, 0.001, 0.0125, 2.0], array.rates)) * scale
            bursts = rng.integers(0, 12, array.rates) * scale
            chosen = [
                Rate(float(rate), int(burst)) for rate, burst in zip(rates, bursts, strict=True)
            ]
            for state in states:
                state.meters[index].set_rates([int(cell)], chosen)
