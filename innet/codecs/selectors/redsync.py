"""Selector ``redsync``: top-k by a threshold that is searched between mean and maximum."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

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


class RedSyncSettings(Settings):
    """The target, and how the threshold is searched.

    Attributes:
        ratio: share of the elements to select, above 0 and at most 1.
        search: "binary" stops where between k and 2·k elements reach the threshold; "trimmed"
            lowers the threshold until k do, and selects the k largest of them.
        tolerance: of "binary": it ends where its interval, of length 1 at first, is no longer than
            this. The default is assumed; SIDCo's public code, which compares with RedSync, has 0.2.
        step: of "trimmed": by how much of the distance from maximum to mean the threshold is
            lowered each time.
        layers: elements or shape of each layer of the gradient; by default those of the codec.
    """

    ratio: Annotated[float, Field(gt=0, le=1)] = 0.01
    search: Literal["binary", "trimmed"] = "binary"
    tolerance: Annotated[float, Field(ge=1e-9, lt=1)] = 0.001
    step: Annotated[float, Field(ge=0.01, lt=1)] = 0.2
    layers: Annotated[Layers, Field(strict=False, min_length=1)] = None


class RedSync(LayeredSelector[RedSyncSettings]):
    """RedSync (Fang, Fu, Yang, Hsieh, 2018, arXiv 1808.04357), without its quantization.

    With the mean and the maximum of the magnitudes of a layer, the threshold is
    mean + r · (maximum - mean). "binary" halves the interval 0 .. 1 of r. "trimmed" takes
    r = 1 - step, 1 - 2 · step, and so on. k = max(1, floor(ratio · size)).

    Differences with the paper:

    - A layer has one search, whatever its size; the paper sends small layers whole, trims those
      of medium size, and searches large ones. ``layers`` and the codecs of layers can do that.
    - The threshold is searched in every all-reduce. The paper may use one for several.
    - The binary search lowers the threshold if fewer than k elements reach it. In SIDCo's public
      code it does so below k / 2, and rises from k / 2 to k, away from the target.
    - If a search ends without success, its last threshold is used, as in that code. If nothing
      reaches it, the largest element is selected.
    """

    name = "redsync"
    capabilities = Capabilities(provides=frozenset({LEAVES_RESIDUAL, INCLUDES_LARGEST}))
    settings = RedSyncSettings

    def select(self, x: Floats) -> tuple[Ints, Floats]:
        return self.by_layer(x, self._of_layer)

    def _of_layer(self, layer: int, x: Floats) -> tuple[Ints, Floats]:
        del layer
        kernels, k = self.context.kernels, share_of(self.parameters.ratio, x.size)
        total, _ = kernels.moments(x, 0.0, 0.0)
        bits, _, _ = kernels.absmax_nnz(x)
        mean, largest = total / x.size, float(np.int32(bits).view(np.float32))
        trimmed = self.parameters.search == "trimmed"
        search = self._trimmed if trimmed else self._binary
        indices, values = threshold_or_largest(kernels, x, search(x, k, mean, largest))
        if trimmed and indices.size > k:
            chosen, values = kernels.top_k(values, k)
            indices = indices[chosen]
        return indices, values

    def _binary(self, x: Floats, k: int, mean: float, largest: float) -> float:
        lower, upper, threshold = 0.0, 1.0, TINIEST
        while upper - lower > self.parameters.tolerance:
            middle = (lower + upper) / 2
            threshold = max(TINIEST, mean + middle * (largest - mean))
            _, count = self.context.kernels.absmin_count(x, threshold)
            if k <= count < 2 * k:
                break
            lower, upper = (lower, middle) if count < k else (middle, upper)
        return threshold

    def _trimmed(self, x: Floats, k: int, mean: float, largest: float) -> float:
        threshold, times = largest, 0
        while threshold > TINIEST:
            times += 1
            share = 1 - times * self.parameters.step
            threshold = max(TINIEST, mean + share * (largest - mean))
            _, count = self.context.kernels.absmin_count(x, threshold)
            if count >= k:
                break
        return max(TINIEST, threshold)
