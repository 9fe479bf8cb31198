"""What DCQCN's mean rate is where each packet is marked with a probability: two models of it.

``fluid_rate`` is the fixed point of the fluid model of its paper (Zhu et al., SIGCOMM 2015, section
5). It counts on congestion notifications at any time, and on timers that they always reset before
they end. ``renewal_rate`` has what the model leaves out: for ``cnp_interval`` after a notification
there is none, so that the first recovery is nearly certain.

Rates are packets per second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Parameters:
    cnp_interval: float = 50e-6
    alpha_timer: float = 55e-6
    rate_timer: float = 55e-6
    byte_counter: float = 10e6 / 4096  # packets
    additive: float = 40e6 / 8 / (4096 + 82)  # packets per second
    recovery_steps: int = 5


def _root(function, low, high):
    """Where a function that grows is 0."""
    for _ in range(100):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return low


def fluid_rate(p: float, given: Parameters) -> float:
    """Where the derivatives of alpha, target and rate are 0 (equations 5 to 8)."""
    log, steps = -np.log1p(-p), given.recovery_steps

    def excess(rate):
        alpha = -np.expm1(-given.alpha_timer * rate * log)
        cut = -np.expm1(-given.cnp_interval * rate * log) / given.cnp_interval
        counted, timed = given.byte_counter * log, given.rate_timer * rate * log
        by_bytes = p / np.expm1(min(counted, 700))
        by_timer = p / np.expm1(min(timed, 700))
        gap = alpha * cut / (by_bytes + by_timer)  # of target and rate, so that the rate stays
        raised = np.exp(-steps * counted) * by_bytes + np.exp(-steps * timed) * by_timer
        return gap * cut - given.additive * rate * raised

    return _root(excess, 1e3, 1e9)


def renewal_rate(p: float, given: Parameters) -> float:
    """The mean rate if the next notification comes ``cnp_interval`` and an exponential time later,
    and the rate is the same at the end of this time as before, in the mean. Without the counter of
    bytes.
    """
    step = np.arange(400)
    beyond = np.maximum(step - given.recovery_steps, 0)
    raised = given.additive * (beyond - (1 - 2.0**-beyond))

    def cycle(rate):
        marks, dead = p * rate, given.cnp_interval

        def after(time):
            """The probability that no notification has come."""
            return np.where(time <= dead, 1.0, np.exp(-marks * (time - dead)))

        def spent(time):
            """Mean time before ``time`` in which none had."""
            return np.minimum(time, dead) + (1 - after(time)) / marks

        alpha = 1 / (1 + after(given.alpha_timer * np.arange(1, 3000)).sum())
        rates = raised - rate * alpha / 2 * 2.0**-step  # after so many steps, beside ``rate``
        reached = after(given.rate_timer * step)
        ends = reached - np.append(reached[1:], 0.0)
        times = spent(given.rate_timer * (step + 1)) - spent(given.rate_timer * step)
        return (ends * rates).sum(), rate + (times * rates).sum() / (dead + 1 / marks)

    return cycle(_root(lambda rate: -cycle(rate)[0], 1e3, 1e9))[1]


def marking_of(rate: float, model, given: Parameters) -> float:
    """The probability at which a model's rate is this."""
    return _root(lambda p: rate - model(p, given), 1e-6, 0.5)
