"""The layers of a model in its flat gradient, for parts that treat each by itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Annotated

from pydantic import Field

from innet.core.errors import InputError, StateError

ModelLayers = Sequence[int | Sequence[int]] | Mapping[str, int | Sequence[int]]
"""Of each layer the shape or the number of elements, in the order of the gradient; with or without
the layers' names.
"""

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]

_Extent = Annotated[int, Field(ge=1)]
_Shape = Annotated[tuple[_Extent, ...], Field(strict=False, min_length=1)]
Layers = tuple[_Extent | _Shape, ...] | None
"""A parameter: of each layer the shape, or its number of elements where that is all that is known;
in the order of the gradient. None: those given to the codec, else one layer.
"""


def as_shapes(layers: ModelLayers) -> Shapes:
    """Shapes of a model's layers; a number n stands for n elements in a row.

    Raises:
        InputError: there is none, or one is no shape of positive whole numbers.
    """
    if not isinstance(layers, Iterable):
        raise InputError(f"the layers are {layers!r}; give a list with the shape of each.")
    if isinstance(layers, Mapping):
        layers = list(layers.values())
    shapes = tuple(tuple(each) if isinstance(each, Iterable) else (each,) for each in layers)
    for layer, shape in enumerate(shapes):
        # A model's shapes may hold NumPy's integers or torch's; bool is an int, but no extent.
        is_shape = all(hasattr(extent, "__index__") and extent is not True for extent in shape)
        if not (shape and is_shape and min(shape) >= 1):
            raise InputError(
                f"layer {layer} has the shape {shape}; a layer is a number of elements or a shape, "
                "of whole numbers from 1 on."
            )
    if not shapes:
        raise InputError("the list of layers is empty; leave it out where layers are not known.")
    return tuple(tuple(int(extent) for extent in shape) for shape in shapes)


def names_of(layers: ModelLayers) -> list[str]:
    """The names of layers; "0", "1", ... if they have none."""
    return list(layers) if isinstance(layers, Mapping) else [str(i) for i in range(len(layers))]


def chosen_layers(parameter: Layers, told: Shapes | None) -> Shapes | None:
    """The layers of a part: its own parameter, or those that the codec was given."""
    return told if parameter is None else as_shapes(parameter)


def sizes(layers: Shapes) -> list[int]:
    """Elements of each layer."""
    return [math.prod(shape) for shape in layers]


def slices(layers: Shapes | None, size: int) -> list[slice]:
    """Where the layers lie in a gradient of ``size`` elements; see ``check_layers``."""
    lengths = [size] if layers is None else sizes(layers)
    return [slice(start, stop) for start, stop in pairwise(accumulate(lengths, initial=0))]


def check_layers(layers: Shapes | None, size: int, worker: int) -> None:
    """Refuse a gradient that does not have these layers; one that is empty is taken.

    Raises:
        StateError: names the worker and both numbers of elements.
    """
    if layers is not None and size and sum(sizes(layers)) != size:
        raise StateError(
            f"the layers of worker {worker}'s codec have {sum(sizes(layers))} elements together, "
            f"the gradient {size}; use one codec for each tensor layout."
        )
