"""The stream of numbers behind ``random()``: splitmix64, the same from both engines.

One word of state, which may start anywhere (Steele, Lea and Flood, "Fast splittable pseudorandom
number generators", OOPSLA 2014, figure 17; Java's SplittableRandom). simple_switch draws from a
generator of its own, seeded by chance, so that no program can depend on the numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

INCREMENT = 0x9E3779B97F4A7C15
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)

_EVERY = (1 << 64) - 1


def next_word(state: NDArray[np.uint64]) -> int:
    """The next 64 random bits; ``state``, shape (1,), moves on."""
    word = (int(state[0]) + INCREMENT) & _EVERY
    state[0] = word
    word = (word ^ word >> 30) * MULTIPLIERS[0] & _EVERY
    word = (word ^ word >> 27) * MULTIPLIERS[1] & _EVERY
    return word ^ word >> 31


def uniform(state: NDArray[np.uint64], low: int, high: int) -> int:
    """One of low .. high, 0 <= low <= high < 2**64, each as likely as the others.

    Words cut to the bits of high - low are drawn until one is not above it: two on average at most.
    """
    span = high - low
    every = (1 << span.bit_length()) - 1
    while True:
        word = next_word(state) & every
        if word <= span:
            return low + word
