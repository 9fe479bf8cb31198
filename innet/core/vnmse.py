"""The vector's normalized mean squared error of sums, by which papers compare codecs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 17  # elements; one of float64 is a megabyte


class SquaredErrors:
    """Squares of a sum's errors and of the true sum, added up block by block in float64."""

    def __init__(self) -> None:
        self._errors = self._true = 0.0

    def add(self, difference: NDArray[np.float64], true: NDArray[np.float64]) -> None:
        """Count a block: its sum less the true one, and the true one, both of shape (m,)."""
        # np.dot would wake BLAS's threads for each block.
        self._errors += float(np.einsum("i,i->", difference, difference))
        self._true += float(np.einsum("i,i->", true, true))

    @property
    def vnmse(self) -> float:
        """As ``vnmse`` says, of all blocks together."""
        if not self._true:
            return math.inf if self._errors else 0.0
        return self._errors / self._true


def vnmse(total: NDArray[Any], gradients: Sequence[NDArray[Any]]) -> float:
    """|sum - true sum|² / |true sum|², as of THC (NSDI 2024) and DynamiQ.

    Args:
        total: the sum that was found, shape (d,).
        gradients: what it is the sum of, shape (d,) each. The true sum is that in float64.

    Returns:
        0 for a sum without error, also of zeros; infinite where only the true sum is zero.
    """
    squares = SquaredErrors()
    for begin in range(0, total.size, _BLOCK):
        block = slice(begin, begin + _BLOCK)
        true = np.zeros(total[block].size, np.float64)
        for each in gradients:
            true += each[block]
        squares.add(total[block] - true, true)
    return squares.vnmse
