"""Selector ``adacomp``: what would be the largest of its bin if the gradient came once more."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from innet.codecs.capabilities import REST, Capabilities
from innet.codecs.layers import Layers, check_layers, slices
from innet.codecs.parts import Context, Floats, Ints, Selector
from innet.config import Settings


class AdaCompSettings(Settings):
    """The bins of the layers.

    Attributes:
        bin: consecutive elements that compete with each other, of all layers for which ``bins``
            says nothing else; the paper uses 50 for convolutions and 500 for fully connected and
            recurrent layers.
        scale_factor: how often the gradient counts, from 1 on; 2 in the paper.
        layers: elements of each layer of the gradient; without, it is one layer.
        bins: of each layer; ``bin`` for all if not given.
    """

    bin: Annotated[int, Field(ge=1, lt=2**31)] = 50
    scale_factor: Annotated[float, Field(ge=1, le=2**20)] = 2.0
    layers: Annotated[Layers, Field(strict=False, min_length=1)] = None
    bins: Annotated[Layers, Field(strict=False)] = None

    @model_validator(mode="after")
    def _a_bin_for_each_layer(self) -> AdaCompSettings:
        if self.bins is not None and len(self.bins) != len(self.layers or ()):
            raise ValueError("give as many bins as layers")
        return self


class AdaComp(Selector[AdaCompSettings]):
    """AdaComp (Chen et al., AAAI 2018, arXiv 1712.02679).

    x is G, the residual with the gradient dW; H = G + (scale_factor - 1) · dW. Of each bin those
    with |H| >= max |G| of the bin are sent, and for each sign(G) · the mean of the layer's maxima,
    the same magnitude for all of a layer. How many are sent depends on how the gradients agree with
    the residual; should all oppose it, nothing is, and all waits for the next time.

    Differences with the paper: H is computed in float64, so that it cannot overflow. A bin of
    zeros sends nothing and has no part in the mean, which hence is as large as the smallest of the
    other maxima at least and never rounds to zero.
    """

    name = "adacomp"
    verbatim = False
    capabilities = Capabilities(provides=frozenset({REST}))
    settings = AdaCompSettings

    def __init__(self, parameters: AdaCompSettings, context: Context) -> None:
        super().__init__(parameters, context)
        self._gradient: Floats | None = None

    def check(self, gradient: Floats) -> None:
        check_layers(self.parameters.layers, gradient.size, self.context.worker)

    def observe(self, gradient: Floats) -> None:
        self._gradient = gradient

    def select(self, x: Floats) -> tuple[Ints | None, Floats]:
        """Where no feedback has told the gradient, x is taken for it."""
        gradient = x if self._gradient is None else self._gradient
        self._gradient = None
        found = [
            self._of_layer(x[part], gradient[part], width, part.start)
            for part, width in self._layers(x.size)
        ]
        if len(found) == 1:
            return found[0]
        return np.concatenate([i for i, _ in found]), np.concatenate([v for _, v in found])

    def _layers(self, size: int) -> list[tuple[slice, int]]:
        if size == 0:
            return [(slice(0, 0), 1)]
        parts = slices(self.parameters.layers, size)
        widths = self.parameters.bins or [self.parameters.bin] * len(parts)
        return list(zip(parts, widths, strict=True))

    def _of_layer(self, x: Floats, gradient: Floats, width: int, start: int) -> tuple[Ints, Floats]:
        kernels = self.context.kernels
        maxima = np.abs(x[kernels.chunk_largest(x, width)])
        weight = self.parameters.scale_factor - 1
        indices = kernels.reaching_maxima(x, gradient, weight, maxima, width)
        if not indices.size:
            return indices, np.empty(0, np.float32)
        mean = np.float32(maxima[maxima > 0].mean(dtype=np.float64))
        values = mean * np.sign(x[indices])
        return (indices + np.int32(start) if start else indices), values
