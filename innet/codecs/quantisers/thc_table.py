"""The entries of THC's table: which of the integers 0 .. g stand for a value in a few bits."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


def reach_of(truncated: float) -> float:
    """T with P(|Z| > t) = ``truncated`` for a standard normal Z."""
    return NormalDist().inv_cdf(1 - truncated / 2)


@lru_cache
def table(bits: int, granularity: int, reach: float) -> tuple[int, ...]:
    """The 2**bits of the integers 0 .. g with the least error for normal values.

    Entry T stands for (2·T / g - 1) · reach. A standard normal value within the reach is rounded by
    chance to one of the two entries next to it, so that the mean is right; the variance of a value
    z between a and b is (z - a) · (b - z). Of the symmetric tables with the ends 0 and g that of
    the least mean variance is found by dynamic programming over half of it.

    Args:
        bits: at least 1.
        granularity: g, at least 2**bits - 1.
        reach: in standard deviations, above 0.
    """
    half = 2**bits // 2
    below = (granularity + 1) // 2  # the integers of the lower half; a middle one has no partner
    z = (2 * np.arange(granularity + 1) / granularity - 1) * reach
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    share = np.array([NormalDist().cdf(each) for each in z])
    cost = _variance(z, density, share)
    # least[n]: with entry n the last one so far, of as many as the turn says.
    least = np.where(np.arange(below) == 0, 0.0, np.inf)
    before: list[NDArray[np.intp]] = []
    for _ in range(half - 1):
        sums = least[:, np.newaxis] + 2 * cost[:below, :below]
        before.append(sums.argmin(axis=0))
        least = sums.min(axis=0)
    mirror = granularity - np.arange(below)
    entry = int((least + cost[np.arange(below), mirror]).argmin())
    lower = [entry]
    for choice in reversed(before):
        lower.append(int(choice[lower[-1]]))
    lower.reverse()
    return (*lower, *(granularity - each for each in reversed(lower)))


def _variance(z: Doubles, density: Doubles, share: Doubles) -> Doubles:
    """Shape (g + 1, g + 1): the integral of (z - a) · (b - z) · density over a .. b; infinite where
    b is not above a.
    """
    a, b = z[:, np.newaxis], z[np.newaxis, :]
    mass = share[np.newaxis, :] - share[:, np.newaxis]
    first = density[:, np.newaxis] - density[np.newaxis, :]
    second = mass + a * density[:, np.newaxis] - b * density[np.newaxis, :]
    integral = -second + (a + b) * first - a * b * mass
    return np.asarray(np.where(b > a, integral, np.inf))
