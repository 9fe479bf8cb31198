"""Selector ``threshold``: the elements whose magnitude reaches a fixed threshold."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

import numpy as np
from pydantic import Field

from innet.codecs.optional_methods import SelectsFromSum
from innet.codecs.parts import (
    INCLUDES_LARGEST,
    LEAVES_RESIDUAL,
    Capabilities,
    Floats,
    Ints,
    Selector,
    SparseValues,
)
from innet.core.numbers import FLOAT32_MAX
from innet.core.settings import Settings
from innet.kernels import Kernels

TINIEST = float(np.finfo(np.float32).smallest_subnormal)
"""The lowest threshold: every element that is not zero reaches it."""


class ThresholdSettings(Settings):
    """The threshold.

    Attributes:
        threshold: magnitude, above 0. Elements of at least this magnitude are selected.
    """

    threshold: Annotated[float, Field(gt=0, le=FLOAT32_MAX)] = 0.01


class Threshold(Selector[ThresholdSettings], SelectsFromSum):
    """Selects |x| >= threshold, or the largest element if none reaches the threshold.

    So at least one element of a gradient that is not zero is sent, and none of a gradient of zeros.
    How many are sent depends on the data. It may be all.
    """

    name = "threshold"
    selects_nonfinite = True
    capabilities = Capabilities(provides=frozenset({LEAVES_RESIDUAL, INCLUDES_LARGEST}))
    settings = ThresholdSettings

    def select(self, x: Floats) -> tuple[Ints | None, Floats]:
        return threshold_or_largest(self.context.kernels, x, self.parameters.threshold)

    def select_from_sum(self, gradient: Floats, residual: Floats) -> tuple[SparseValues, Floats]:
        kernels, threshold = self.context.kernels, self.parameters.threshold
        indices, values, rest = kernels.select_threshold_residual(gradient, residual, threshold)
        if not indices.size:
            indices, values = largest(kernels, rest)
            rest[indices] = 0
        return (indices, values), rest


def threshold_or_largest(kernels: Kernels, x: Floats, threshold: float) -> tuple[Ints, Floats]:
    """Indices and values of |x| >= threshold, or of the largest element if there are none."""
    indices, values = kernels.select_threshold(x, threshold)
    return (indices, values) if indices.size else largest(kernels, x)


def largest(kernels: Kernels, x: Floats) -> tuple[Ints, Floats]:
    """Index and value of the first element of largest magnitude; empty if all are zero."""
    indices, values = kernels.top_k(x, min(1, x.size))
    return indices[values != 0], values[values != 0]


# ----------------------------------------------------------------------------
# What the selectors share that look for a threshold in each layer.


def share_of(ratio: float, size: int) -> int:
    """max(1, floor(ratio · size)), with the ratio as the decimal number that the user wrote."""
    return max(1, int(Fraction(str(ratio)) * size))
