"""Selector ``gaussiank``: top-k by the threshold of a fitted normal distribution, refined."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from scipy.special import ndtri

from innet.codecs.layers import Layers
from innet.codecs.parts import (
    INCLUDES_LARGEST,
    LEAVES_RESIDUAL,
    Capabilities,
    Floats,
    Ints,
)
from innet.codecs.selectors.layered import LayeredSelector
from innet.codecs.selectors.threshold import (
    TINIEST,
    share_of,
    threshold_or_largest,
)
from innet.core.settings import Settings

_TOO_FEW, _TOO_MANY = 2 / 3, 4 / 3  # selected / wanted beyond which the threshold changes
_LOWER, _RAISE = 0.5, 1.5
_COLUMNS = 1024  # of the matrix whose rows are summed


class GaussianKSettings(Settings):
    """The target, and what is fitted.

    Attributes:
        ratio: share of the elements to select, above 0 and at most 1.
        fit: "values" fits the values, as the paper does; "magnitudes" fits their magnitudes, as
            SIDCo's public code does where it compares with this method.
        refinements: how many thresholds are tried at most; 3 in the public code.
        layers: elements or shape of each layer of the gradient; by default those of the codec.
    """

    ratio: Annotated[float, Field(gt=0, le=1)] = 0.01
    fit: Literal["values", "magnitudes"] = "values"
    refinements: Annotated[int, Field(ge=1, le=100)] = 3
    layers: Annotated[Layers, Field(strict=False, min_length=1)] = None


class GaussianK(LayeredSelector[GaussianKSettings]):
    """GaussianK-SGD (Shi, Chu, Cheung, See: Understanding top-k sparsification in distributed deep
    learning, 2019, arXiv 1911.08772).

    A normal distribution with mean m and standard deviation s is fitted to a layer. The first
    threshold for the magnitudes is m + z · s, where a standard normal number is beyond z in
    magnitude with a probability of ``ratio``. A threshold that fewer than 2/3 of the wanted
    elements reach is halved. One that more than 4/3 of them reach is multiplied by 1.5. The last
    threshold that was tried is used.

    Differences with the paper: none known in the threshold. If nothing reaches it, the largest
    element of the layer is selected. Some versions of the public code send only the first k of the
    selected elements; here all are sent.
    """

    name = "gaussiank"
    capabilities = Capabilities(provides=frozenset({LEAVES_RESIDUAL, INCLUDES_LARGEST}))
    settings = GaussianKSettings

    def select(self, x: Floats) -> tuple[Ints, Floats]:
        return self.by_layer(x, self._of_layer)

    def _of_layer(self, layer: int, x: Floats) -> tuple[Ints, Floats]:
        del layer
        kernels, wanted = self.context.kernels, share_of(self.parameters.ratio, x.size)
        following = self._first_threshold(x)
        for _ in range(self.parameters.refinements):
            threshold = max(TINIEST, following)
            _, count = kernels.absmin_count(x, threshold)
            if count < _TOO_FEW * wanted:
                following = threshold * _LOWER
            elif count > _TOO_MANY * wanted:
                following = threshold * _RAISE
            else:
                break
        return threshold_or_largest(kernels, x, threshold)

    def _first_threshold(self, x: Floats) -> float:
        total, squares = self.context.kernels.moments(x, 0.0, 0.0)
        mean = (total if self.parameters.fit == "magnitudes" else self._sum(x)) / x.size
        deviation = math.sqrt(max(0.0, squares / x.size - mean * mean))
        return mean - float(ndtri(self.parameters.ratio / 2)) * deviation

    def _sum(self, x: Floats) -> float:
        """The sum of the values, in one defined order of additions: that of a matrix's rows."""
        rows = x.size // _COLUMNS * _COLUMNS
        ones = np.ones(_COLUMNS, np.float32)
        parts = [np.empty(0)]
        if rows:
            parts.append(self.context.kernels.project_rows(x[:rows], _COLUMNS, ones))
        if rest := x[rows:].size:
            parts.append(self.context.kernels.project_rows(x[rows:], rest, ones[:rest]))
        return math.fsum(np.concatenate(parts))
