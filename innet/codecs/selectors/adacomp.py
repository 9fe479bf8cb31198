"""Selector ``adacomp``: the local maxima of each bin, after adding the gradient once more."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from innet.codecs.layers import Layers, slices
from innet.codecs.optional_methods import CountsBits, ObservesGradient
from innet.codecs.parts import LEAVES_RESIDUAL, Capabilities, Floats, Ints, PartContext
from innet.codecs.selectors.layered import LayeredSelector
from innet.core.errors import ConfigError
from innet.core.settings import Settings

# What the paper counts for an element sent: by the length of its bin.
_SHORT_BIN, _SHORT_BITS, _LONG_BITS = 64, 8, 16

Bin = Annotated[int, Field(ge=1, lt=2**31)]


class AdaCompSettings(Settings):
    """The bins of the layers.

    Attributes:
        bin: consecutive elements of a bin. The paper uses it for convolutions.
        matrix_bin: the same for layers whose shape is a matrix: fully connected and recurrent ones.
        scale_factor: weight of the gradient, at least 1; the paper uses 2.
        layers: elements or shape of each layer of the gradient; by default those of the codec.
        bins: a bin for each layer, instead of ``bin`` and ``matrix_bin``.
    """

    bin: Bin = 50
    matrix_bin: Bin = 500
    scale_factor: Annotated[float, Field(ge=1, le=2**20)] = 2.0
    layers: Annotated[Layers, Field(strict=False, min_length=1)] = None
    bins: Annotated[tuple[Bin, ...], Field(strict=False)] | None = None


class AdaComp(LayeredSelector[AdaCompSettings], CountsBits, ObservesGradient):
    """AdaComp (Chen et al., AAAI 2018, arXiv 1712.02679).

    x is G, the sum of the residual and the gradient dW. H = G + (scale_factor - 1) · dW. The
    selector sends the elements of each bin with |H| >= max |G| of the bin. The value sent is
    sign(G) times the mean of the layer's maxima, so all values of a layer have one magnitude. More
    elements are sent where gradient and residual have the same sign. Nothing is sent if all
    gradients oppose the residual.

    Differences with the paper: H is computed in float64, so it cannot overflow. A bin of zeros
    sends nothing and does not count in the mean. The mean is therefore at least the smallest of the
    other maxima, and never rounds to zero.
    """

    name = "adacomp"
    verbatim = False
    capabilities = Capabilities(provides=frozenset({LEAVES_RESIDUAL}))
    settings = AdaCompSettings

    def __init__(self, parameters: AdaCompSettings, context: PartContext) -> None:
        super().__init__(parameters, context)
        if parameters.bins is not None and len(parameters.bins) != len(self.layers or ()):
            raise ConfigError(
                f"selector 'adacomp': {len(parameters.bins)} bins for {len(self.layers or ())} "
                "layers; give as many bins as layers."
            )
        self._gradient: Floats | None = None

    def observe(self, gradient: Floats) -> None:
        self._gradient = gradient

    def select(self, x: Floats) -> tuple[Ints | None, Floats]:
        """If nothing was observed, x is the gradient."""
        gradient = x if self._gradient is None else self._gradient
        self._gradient = None
        found = [
            self._of_layer(x[part], gradient[part], width, part.start)
            for part, width in self._layers(x.size)
        ]
        if len(found) == 1:
            return found[0]
        return np.concatenate([i for i, _ in found]), np.concatenate([v for _, v in found])

    def counted_bits(self, indices: Ints | None, size: int) -> tuple[int, ...]:
        """8 bits for each element sent of a bin of at most 64 elements, 16 of a longer bin.

        The paper's element is its index in the bin and its sign. Scales of layers are not counted.
        """
        if indices is None:
            indices = np.arange(size, dtype=np.int32)
        layers = self._layers(size)
        bits = [_SHORT_BITS if width <= _SHORT_BIN else _LONG_BITS for _, width in layers]
        own = np.searchsorted([part.stop for part, _ in layers], indices, side="right")
        # The codec's layers may be others than those that the selector has as a parameter.
        told = [part.stop for part in slices(self.context.layers, size)]
        layer = np.searchsorted(told, indices, side="right")
        counted = np.bincount(layer, np.array(bits)[own], len(told))
        return tuple(int(each) for each in counted)

    def _layers(self, size: int) -> list[tuple[slice, int]]:
        if size == 0:
            return [(slice(0, 0), 1)]
        parameters, parts = self.parameters, slices(self.layers, size)
        widths = parameters.bins or tuple(
            parameters.matrix_bin if len(shape) == 2 else parameters.bin
            for shape in self.layers or ((size,),)
        )
        return list(zip(parts, widths, strict=True))

    def _of_layer(self, x: Floats, gradient: Floats, width: int, start: int) -> tuple[Ints, Floats]:
        kernels = self.context.kernels
        weight = self.parameters.scale_factor - 1
        indices, maxima = kernels.select_above_chunk_max(x, gradient, weight, width)
        if not indices.size:
            return indices, np.empty(0, np.float32)
        mean = np.float32(maxima[maxima > 0].mean(dtype=np.float64))
        picked = x[indices]
        values = np.copysign(mean, picked)
        values[picked == 0] = 0
        return (indices + np.int32(start) if start else indices), values
