"""The layers of a model in its flat gradient, for parts that treat each by itself."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Annotated

from pydantic import Field

from innet.errors import StateError

Layers = tuple[Annotated[int, Field(ge=1)], ...] | None
"""A parameter: the layers' numbers of elements, in the order of the gradient; None for one."""


def slices(layers: Layers, size: int) -> list[slice]:
    """Where the layers lie in a gradient of ``size`` elements; see ``check_layers``."""
    sizes = (size,) if layers is None else layers
    return [slice(start, stop) for start, stop in pairwise(accumulate(sizes, initial=0))]


def check_layers(layers: Layers, size: int, worker: int) -> None:
    """Refuse a gradient that does not have these layers; one that is empty is taken.

    Raises:
        StateError: names the worker and both numbers of elements.
    """
    if layers is not None and size and sum(layers) != size:
        raise StateError(
            f"the layers of worker {worker}'s codec have {sum(layers)} elements together, the "
            f"gradient {size}; use one codec for each tensor layout."
        )
