"""Selector ``sampled``: top-k by a threshold from a sample, corrected where it is far off."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from pydantic import Field

from innet.codecs.layers import Layers
from innet.codecs.parts import (
    INCLUDES_LARGEST,
    LEAVES_RESIDUAL,
    Capabilities,
    Floats,
    Ints,
    StepCounter,
)
from innet.codecs.selectors.layered import LayeredSelector
from innet.codecs.selectors.threshold import (
    TINIEST,
    share_of,
    threshold_or_largest,
)
from innet.core.settings import Settings

Ratio = Annotated[float, Field(gt=0, le=1)]

_TOO_MANY, _TOO_FEW = 1.3, 0.8  # selected / wanted
_LOWER, _TIMES = 0.8, 10  # factor by which a threshold is lowered, and how often at most
_SAMPLED_HITS = 2  # elements of the sample that should reach the threshold, at least


class SampledSettings(Settings):
    """The target, and how the threshold is found.

    Attributes:
        ratio: share of the elements to select, above 0 and at most 1.
        sample: share of the elements in the sample; the sample has at least 2 / ratio elements.
        warmup: the first ratios, one after the other.
        warmup_steps: all-reduces for each ratio of ``warmup``, an epoch in the paper; 0 for no
            warm-up.
        layers: elements or shape of each layer of the gradient; by default those of the codec.
    """

    ratio: Ratio = 0.001
    sample: Ratio = 0.01
    warmup: Annotated[tuple[Ratio, ...], Field(strict=False)] = (0.25, 0.063, 0.015, 0.004)
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    layers: Annotated[Layers, Field(strict=False, min_length=1)] = None


class Sampled(StepCounter[SampledSettings], LayeredSelector[SampledSettings]):
    """The sparsification of DGC (Lin et al., ICLR 2018, arXiv 1712.01887).

    The sample is every n-th element of a layer. The smallest magnitude of its top ``ratio`` is the
    threshold. If more than 1.3 times the target reach the threshold, exact top-k runs on them. If
    fewer than 0.8 times the target do, the threshold is multiplied by 0.8, at most ten times. So at
    most 1.3 · max(1, floor(ratio · size)) elements of a layer are selected, and at least the
    largest element of a layer that is not zero.

    Differences with the paper: the sample is every n-th element instead of a random one, so that
    runs can be repeated. n is odd, so that the sample does not align with rows of even length.
    """

    name = "sampled"
    capabilities = Capabilities(provides=frozenset({LEAVES_RESIDUAL, INCLUDES_LARGEST}))
    settings = SampledSettings

    def ratio(self) -> float:
        """The ratio of the next all-reduce."""
        steps, warmup = self.parameters.warmup_steps, self.parameters.warmup
        if steps and self._step // steps < len(warmup):
            return warmup[self._step // steps]
        return self.parameters.ratio

    def select(self, x: Floats) -> tuple[Ints | None, Floats]:
        ratio = self.ratio()
        return self.by_layer(x, lambda _, part: self._of_layer(part, ratio))

    def _of_layer(self, x: Floats, ratio: float) -> tuple[Ints, Floats]:
        kernels = self.context.kernels
        wanted = share_of(ratio, x.size)
        threshold = self._guess(x, ratio)
        indices, values = threshold_or_largest(kernels, x, threshold)
        for _ in range(_TIMES):
            if indices.size >= _TOO_FEW * wanted or threshold == TINIEST:
                break
            threshold = max(TINIEST, threshold * _LOWER)
            indices, values = threshold_or_largest(kernels, x, threshold)
        if indices.size > _TOO_MANY * wanted:
            chosen, values = kernels.top_k(values, wanted)
            indices = indices[chosen]
        return indices, values

    def _guess(self, x: Floats, ratio: float) -> float:
        """The threshold from the sample."""
        count = max(self.parameters.sample * x.size, min(x.size, _SAMPLED_HITS / ratio))
        stride = max(1, x.size // math.ceil(count))
        sample = np.ascontiguousarray(x[:: stride - (stride % 2 == 0)])
        _, values = self.context.kernels.top_k(sample, share_of(ratio, sample.size))
        return max(TINIEST, self.context.kernels.absmin_count(values, 0.0)[0])
