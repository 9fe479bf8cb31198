"""AdaScale's gain: how many steps of one worker a step of all workers is worth.

Johnson, Agrawal, Gu, Guestrin: "AdaScale SGD: A user-friendly algorithm for distributed training",
ICML 2020. The learning rate of one worker is multiplied by the gain, which lies between 1 and the
number of workers: near 1 where the workers' gradients agree, near their number where they are
noise.

It needs the sum of the squares of all workers' gradients. Workers send their squares with the
opening round, as integers whose sum is exact (``square_words``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from innet.codecs.parts import Ints
from innet.core.errors import InputError, StateError
from innet.core.numbers import is_int, is_real, require_int

_BITS = 15  # of a word: the sum over 32,768 workers fits int32
_WORDS = 44  # 660 bits: squares of float32 gradients of 2**31 elements lie between
_LOWEST = 352  # 2**-298 and 2**287, and a float64 has 53 bits
_STATE_VERSION = 1


def square_words(square: float) -> Ints:
    """A float64, not negative and below 2**300, as int32 words; shape (44,).

    The sum of the words of up to 32,768 workers stands for the exact sum.
    """
    fraction, exponent = math.frexp(square)
    shift = exponent - 53 + _LOWEST
    bits = int(math.ldexp(fraction, 53))
    whole = bits << shift if shift >= 0 else bits >> -shift
    mask = (1 << _BITS) - 1
    return np.array([whole >> _BITS * word & mask for word in range(_WORDS)], np.int32)


def square_of_words(words: Ints) -> float:
    """The sum that summed words stand for, rounded once."""
    whole = sum(int(each) << _BITS * word for word, each in enumerate(words))
    return whole / (1 << _LOWEST)


class Moments(NamedTuple):
    """Estimates from one all-reduce.

    Attributes:
        variance: of a worker's gradient, the sum over its elements: sigma².
        square: of the norm of the expected gradient: mu². It may be negative by chance.
    """

    variance: float
    square: float


def moments_of(squares: float, square_of_sum: float, workers: int) -> Moments:
    """Unbiased estimates of sigma² and mu² from S gradients g_i with the mean g (section 4.2):

    sigma² = (sum of |g_i|² - S · |g|²) / (S - 1), mu² = |g|² - sigma² / S.

    Args:
        squares: the sum of |g_i|².
        square_of_sum: |S · g|².
        workers: S; one worker has no variance.
    """
    mean = square_of_sum / workers**2
    if workers == 1:
        return Moments(0.0, mean)
    variance = (squares - workers * mean) / (workers - 1)
    return Moments(variance, mean - variance / workers)


class AdaScale:
    """The gain, from moving averages of the estimates.

        gain = (sigma² + mu²) / (sigma² / S + mu²)

    Estimates below 0 occur by chance and count as 0. If both are 0 the gain is 1.

    Args:
        workers: S, at least 1.
        smoothing: share of the last average in the next one, 0 to below 1; by default the paper's,
            max(0, 1 - S / 1000). The first estimate is the first average (assumed).

    Attributes:
        gain: the last one, 1 at first.
        steps: the sum of the gains: steps of one worker that were done, by which the paper follows
            the schedule of the learning rate.

    Raises:
        InputError: a number out of range.
    """

    def __init__(self, workers: int, smoothing: float | None = None) -> None:
        self.workers = require_int(workers, "the number of workers")
        if self.workers < 1:
            raise InputError(f"{workers} workers; AdaScale needs at least 1.")
        if smoothing is None:
            smoothing = max(0.0, 1 - self.workers / 1000)
        if not is_real(smoothing) or not 0 <= smoothing < 1:
            raise InputError(f"a smoothing of {smoothing!r}; give a number from 0 to below 1.")
        self.smoothing = float(smoothing)
        self.gain = 1.0
        self.steps = 0.0
        self._average: Moments | None = None

    def update(self, squares: float, square_of_sum: float, workers: int | None = None) -> float:
        """The gain after another all-reduce.

        Args:
            squares: the sum of the squares of the workers' gradients.
            square_of_sum: the square of the norm of their sum.
            workers: how many took part; by default all.
        """
        number = self.workers if workers is None else workers
        found = moments_of(squares, square_of_sum, number)
        if self._average is not None:
            old, share = self._average, self.smoothing
            found = Moments(*(share * a + (1 - share) * b for a, b in zip(old, found, strict=True)))
        self._average = found
        variance, square = max(0.0, found.variance), max(0.0, found.square)
        below = variance / number + square
        self.gain = (variance + square) / below if below else 1.0
        self.steps += self.gain
        return self.gain

    def state_dict(self) -> dict[str, Any]:
        """The averages and the last gain, as numbers."""
        average = None if self._average is None else list(self._average)
        return {
            "version": _STATE_VERSION,
            "workers": self.workers,
            "gain": self.gain,
            "steps": self.steps,
            "average": average,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the result of ``state_dict``.

        Raises:
            StateError: it is of another number of workers, or no such state.
        """
        keys = set(self.state_dict())
        fits = isinstance(state, Mapping) and set(state) == keys
        if not fits or state["version"] != _STATE_VERSION or not is_int(state["workers"]):
            raise StateError(
                "the saved state is not AdaScale's; give what its state_dict returned."
            )
        if state["workers"] != self.workers:
            raise StateError(
                f"the saved state of AdaScale is of {state['workers']} workers, and there are "
                f"{self.workers}; begin with a new one."
            )
        self.gain, self.steps = float(state["gain"]), float(state["steps"])
        average = state["average"]
        self._average = None if average is None else Moments(*map(float, average))
