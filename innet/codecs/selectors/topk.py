"""Selector ``topk``: the k elements of largest magnitude."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

from pydantic import Field, model_validator

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
from innet.core.settings import Settings

DEFAULT_RATIO = 0.01


class TopKSettings(Settings):
    """How many elements are selected: a share or a number, not both.

    Attributes:
        ratio: share of the elements, above 0, at most 1; 0.01 if neither is given.
        k: number of elements, at least 1. A gradient of at most k elements is selected completely.
    """

    ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    k: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _not_both(self) -> TopKSettings:
        if self.ratio is not None and self.k is not None:
            raise ValueError("give either ratio or k, not both")
        return self


def resolve_k(parameters: TopKSettings, size: int, ratio: float) -> int:
    """See ``TopK.count``. ``ratio`` is the default if the parameters give neither."""
    if size == 0:
        return 0
    if parameters.k is not None:
        return min(parameters.k, size)
    given = ratio if parameters.ratio is None else parameters.ratio
    return max(1, int(Fraction(str(given)) * size))


class TopK(Selector[TopKSettings], SelectsFromSum):
    """Exact top-k; among equal magnitudes the first elements.

    Each worker selects by itself, so the union of N workers' indices has up to N·k elements.
    """

    name = "topk"
    selects_nonfinite = True
    capabilities = Capabilities(provides=frozenset({LEAVES_RESIDUAL, INCLUDES_LARGEST}))
    settings = TopKSettings

    def count(self, size: int) -> int:
        """How many of ``size`` elements: max(1, floor(ratio · size)), or 0 if ``size`` is 0.

        The ratio is the decimal number that the user wrote: 0.29 of 100 is 29, although the float64
        nearest to 0.29 is smaller.
        """
        return resolve_k(self.parameters, size, DEFAULT_RATIO)

    def select(self, x: Floats) -> tuple[Ints | None, Floats]:
        return self.context.kernels.top_k(x, self.count(x.size))

    def select_from_sum(self, gradient: Floats, residual: Floats) -> tuple[SparseValues, Floats]:
        kernels, k = self.context.kernels, self.count(gradient.size)
        indices, values, rest = kernels.top_k_residual(gradient, residual, k)
        return (indices, values), rest
