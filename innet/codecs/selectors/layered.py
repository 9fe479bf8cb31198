"""The base class of selectors that treat each layer of a model by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from innet.codecs.layers import check_layers, chosen_layers, slices
from innet.codecs.parts import Floats, Ints, PartContext, Selector
from innet.core.settings import Settings

P = TypeVar("P", bound=Settings)


class LayeredSelector(Selector[P]):
    """A selector that knows the layers of the gradient.

    Attributes:
        layers: their shapes, those of the parameter ``layers`` if the settings have it and it is
            given, else those of the codec; None for one layer.
    """

    def __init__(self, parameters: P, context: PartContext) -> None:
        super().__init__(parameters, context)
        self.layers = chosen_layers(getattr(parameters, "layers", None), context.layers)

    def check(self, gradient: Floats) -> None:
        """See ``Selector.check``: the layers have another size together."""
        check_layers(self.layers, gradient.size, self.context.worker)

    def by_layer(
        self, x: Floats, select: Callable[[int, Floats], tuple[Ints, Floats]]
    ) -> tuple[Ints, Floats]:
        """Select in each layer of x by itself.

        Args:
            x: the gradient, shape (d,).
            select: given the layer's number and its elements, ascending indices in it and values.

        Returns:
            Ascending indices in x, and their values.
        """
        if not x.size:
            return np.empty(0, np.int32), np.empty(0, np.float32)
        found = []
        for layer, part in enumerate(slices(self.layers, x.size)):
            indices, values = select(layer, x[part])
            found.append((indices + np.int32(part.start), values))
        if len(found) == 1:
            return found[0]
        return np.concatenate([i for i, _ in found]), np.concatenate([v for _, v in found])
