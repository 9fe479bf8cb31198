"""Selector ``topk``: the k elements of largest magnitude."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

from pydantic import Field, model_validator

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
    """How many are selected: a share of the elements or a number, not both.

    Attributes:
        ratio: above 0, at most 1; 0.01 if neither is given.
        k: at least 1; of smaller gradients everything is selected.
    """

    ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    k: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _not_both(self) -> TopKSettings:
        if self.ratio is not None and self.k is not None:
            raise ValueError("give either ratio or k, not both")
        return self


def resolve_k(parameters: TopKSettings, size: int, ratio: float) -> int:
    """See ``TopK.count``; ``ratio`` is taken where the parameters give none."""
    if size == 0:
        return 0
    if parameters.k is not None:
        return min(parameters.k, size)
    given = ratio if parameters.ratio is None else parameters.ratio
    return max(1, int(Fraction(str(given)) * size))


class TopK(Selector[TopKSettings]):
    """Exact; among equal magnitudes those that come first.

    Each worker selects by itself, so the union of N workers' indices may reach N·k.
    """

    name = "topk"
    selects_nonfinite = True
    capabilities = Capabilities(provides=frozenset({LEAVES_RESIDUAL, INCLUDES_LARGEST}))
    settings = TopKSettings

    def count(self, size: int) -> int:
        """How many of ``size`` elements: max(1, floor(ratio · size)), none of none.

        The ratio is taken as the decimal number that a person wrote: 0.29 of 100 is 29, although
        the float64 nearest to 0.29 is less.
        """
        return resolve_k(self.parameters, size, DEFAULT_RATIO)

    def select(self, x: Floats) -> tuple[Ints | None, Floats]:
        return self.context.kernels.top_k(x, self.count(x.size))

    def select_from_sum(self, gradient: Floats, residual: Floats) -> tuple[SparseValues, Floats]:
        kernels, k = self.context.kernels, self.count(gradient.size)
        indices, values, rest = kernels.top_k_residual(gradient, residual, k)
        return (indices, values), rest
