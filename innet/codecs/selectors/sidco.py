"""Selectors ``sidco-e``, ``sidco-gp``, ``sidco-p``: a threshold from a fitted distribution.

The fits use moments, after SIDCo (Abdelmoniem et al., MLSys 2021, arXiv 2101.10761). Kernels
compute all statistics, in one defined order of additions. The rest is computed here in float64. So
a threshold does not depend on the set of kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field
from scipy.special import gammaincinv

from innet.codecs.layers import Layers
from innet.codecs.parts import (
    INCLUDES_LARGEST,
    LEAVES_RESIDUAL,
    Capabilities,
    Floats,
    Ints,
    PartContext,
)
from innet.codecs.selectors.layered import LayeredSelector
from innet.codecs.selectors.threshold import TINIEST, threshold_or_largest
from innet.core.errors import StateError
from innet.core.numbers import is_int
from innet.core.settings import Settings
from innet.kernels import Kernels


@dataclass(frozen=True, slots=True)
class Tail:
    """The elements of an array that reach a threshold. They are not copied.

    Attributes:
        kernels: for the statistics.
        x: shape (n,).
        least: the threshold, above 0.
        smallest: the smallest |x| >= least.
        count: how many elements reach it.
    """

    kernels: Kernels
    x: Floats
    least: float
    smallest: float
    count: int

    @classmethod
    def of(cls, kernels: Kernels, x: Floats, least: float) -> Tail:
        """The elements that reach ``least``."""
        return cls(kernels, x, least, *kernels.absmin_count(x, least))

    def moments(self, shift: float) -> tuple[float, float]:
        """The sums of |x| - shift and of its square."""
        return self.kernels.moments(self.x, shift, self.least)


def exponential(tail: Tail, share: float) -> float:
    """The threshold by an exponential distribution: P(|x| - min > t) = exp(-t / mean).

    Args:
        tail: at least one element.
        share: share of the elements that should exceed the threshold, above 0, at most 1.
    """
    total, _ = tail.moments(tail.smallest)
    return tail.smallest - total / tail.count * math.log(share)


def exponential_from_zero(tail: Tail, share: float) -> float:
    """The same with |x| itself, for the first stage. Arguments as above."""
    total, _ = tail.moments(0.0)
    return -total / tail.count * math.log(share)


def pareto(tail: Tail, share: float) -> float:
    """The same with a generalized Pareto distribution of t = |x| - min. Arguments as above.

    The sign of κ is such that κ > 0 is a heavy tail. P(t > q) = (1 + κ·q/α)^(-1/κ), κ < 1/2, has
    mean μ = α / (1 - κ) and variance σ² = α² / ((1 - κ)² (1 - 2κ)). Hence μ²/σ² = 1 - 2κ, so that

        κ = (1 - μ²/σ²) / 2        α = μ (1 + μ²/σ²) / 2        q = α (share^-κ - 1) / κ

    which becomes -α·ln(share) for κ → 0. With e = -κ·ln(share), q = -α·ln(share) · (exp(e) - 1)/e.
    expm1 computes that without cancellation, however small e is.

    One of the n values t is 0, so σ² >= μ² / (n - 1): κ is bounded, and σ² = 0 only for μ = 0.
    """
    total, squares = tail.moments(tail.smallest)
    mean = total / tail.count
    variance = squares / tail.count - mean * mean
    if mean == 0 or variance <= 0:  # all magnitudes are equal
        return tail.smallest
    inverse = mean * mean / variance
    kappa, alpha = (1 - inverse) / 2, mean * (1 + inverse) / 2
    exponent = -kappa * math.log(share)
    growth = math.expm1(exponent) / exponent if exponent else 1.0
    return tail.smallest - alpha * math.log(share) * growth


def gamma(tail: Tail, share: float) -> float:
    """The same with a gamma distribution of |x| without zeros, for the first stage.

    The shape is the closed approximation of the maximum likelihood estimate from
    s = ln(mean) - mean(ln |x|) (Minka: Estimating a Gamma distribution, 2002, equation 8). The mean
    of the logarithms is the logarithm of the product, divided by the count.
    """
    total, _ = tail.moments(0.0)
    mean = total / tail.count
    fraction, exponent = tail.kernels.abs_product(tail.x)
    s = math.log(mean) - (math.log(fraction) + exponent * math.log(2)) / tail.count
    if s < 1e-12:  # all magnitudes are equal, but for what rounding leaves of the logarithms
        return tail.smallest
    shape = (3 - s + math.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    return mean / shape * float(gammaincinv(shape, 1 - share))


# ----------------------------------------------------------------------------
# Selectors ``sidco-e``, ``sidco-gp`` and ``sidco-p``: a threshold from a fitted distribution.

Fit = Callable[[Tail, float], float]

_TOO_FEW, _TOO_MANY = 0.8, 1.2  # selected / wanted beyond which the number of stages changes
# Assumed: per adaptation, of the error of a number of stages that is not in use; and the largest
# factor between the share that is asked for and the share that is wanted.
_FADING, _CORRECTION = 0.95, 16.0


class SidcoSettings(Settings):
    """The target, and how the threshold is found.

    Attributes:
        ratio: share of the elements to select, above 0 and at most 1. The fit selects roughly as
            many.
        first: share of the elements that pass the first of several stages.
        stages: number of stages at the start, 1 to ceil(log2(1 / ratio)).
        every: all-reduces between two adaptations of the stages; 0 for never.
        layers: elements or shape of each layer of the gradient; by default those of the codec.
    """

    ratio: Annotated[float, Field(gt=0, le=1)] = 0.01
    first: Annotated[float, Field(gt=0, lt=1)] = 0.25
    stages: Annotated[int, Field(ge=1)] = 1
    every: Annotated[int, Field(ge=0)] = 5
    layers: Annotated[Layers, Field(strict=False, min_length=1)] = None


class Sidco(LayeredSelector[SidcoSettings]):
    """SIDCo (Abdelmoniem et al., MLSys 2021, arXiv 2101.10761).

    A distribution is fitted to the magnitudes of a layer. The threshold is its quantile. With M
    stages, the share ``first`` of the elements passes the first stage. Each later stage is fitted
    to the elements that passed the stage before, of which the share (ratio / first)^(1 / (M - 1))
    passes. After ``every`` all-reduces, M of each layer is adapted by the mean of selected /
    wanted: one stage more below 0.8, one less above 1.2. Failed exchanges count, too.

    Differences with the paper:

    - Zeros do not belong to the distribution. It is fitted to the other elements, and their share
      is such that the target stays the same. If at most the target are not zero, all of them are
      selected.
    - The first stage of SIDCo-P fits |x| - min, as the later stages do. In the paper it fits |x|.
    - A stage that no element would pass is skipped, except the last. If nothing reaches the last
      threshold, the largest element of the layer is selected.
    - The paper's rule stays at M = 1 forever if one stage selects too many, and with a heavy tail
      one stage less selects more. So the error of each M is remembered, fading with time. M goes to
      the neighbor whose error was smaller; if there is none, to one that was not tried yet, in the
      paper's direction first.
    - If no neighbor is better, M stays, and the share that is asked of the fit is corrected: it is
      divided by selected / wanted.
    - If ``ratio`` is so large, or so few elements are not zero, that ``first`` would be below the
      share that all stages together should let pass, each of M stages lets share^(1 / M) pass. In
      the paper there is then one stage, whatever M is.
    """

    capabilities = Capabilities(provides=frozenset({LEAVES_RESIDUAL, INCLUDES_LARGEST}))
    settings = SidcoSettings
    fits: ClassVar[tuple[Fit, Fit]]  # for the first stage, and for the others

    def __init__(self, parameters: SidcoSettings, context: PartContext) -> None:
        super().__init__(parameters, context)
        self._most = max(1, math.ceil(-math.log2(parameters.ratio)))
        layers = len(self.layers or (0,))
        self.stages = np.full(layers, min(parameters.stages, self._most))
        self._sums = np.zeros(layers)  # of selected / target, since the last adaptation
        self._count = 0  # of all-reduces since then
        # |ln(selected / wanted)| at the last try of each number of stages, fading; 0 if never.
        self._errors = np.zeros((layers, self._most))
        self._corrections = np.ones(layers)  # of the share that is asked for

    def select(self, x: Floats) -> tuple[Ints | None, Floats]:
        selected = self.by_layer(x, self._of_layer)
        if x.size:
            self._count += 1
            if self._count == self.parameters.every:
                self._adapt()
        return selected

    def with_parameters(self, parameters: SidcoSettings) -> Self:
        """The same state. Stages beyond the new range are left out, and a count that the new
        ``every`` would never reach starts again.
        """
        part = type(self)(parameters, self.context)
        state = self.state_dict()
        state["stages"] = np.minimum(state["stages"], part._most)
        known = state["errors"][:, : part._most]
        state["errors"] = np.pad(known, ((0, 0), (0, part._most - known.shape[1])))
        if 0 < parameters.every <= self._count:
            state["count"], state["sums"] = 0, np.zeros_like(self._sums)
        part.load_state_dict(state)
        return part

    def state_dict(self) -> dict[str, Any]:
        return {
            "stages": self.stages.copy(),
            "sums": self._sums.copy(),
            "count": self._count,
            "errors": self._errors.copy(),
            "corrections": self._corrections.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        mine = self.state_dict()
        self._expect(state, set(mine))
        arrays = {key: np.array(state[key]) for key in mine if key != "count"}
        for key, array in arrays.items():
            if array.shape != mine[key].shape or array.dtype != mine[key].dtype:
                raise StateError(
                    f"the saved state of {self.name!r} has {key} {array.dtype} of shape "
                    f"{array.shape}, not {mine[key].dtype} of {mine[key].shape}: it is of another "
                    "tensor layout."
                )
        if not ((arrays["stages"] >= 1) & (arrays["stages"] <= self._most)).all():
            raise StateError(
                f"the saved state of {self.name!r} has {arrays['stages']} stages; there are 1 to "
                f"{self._most}."
            )
        count = self._loaded_count(state["count"])
        # ``_adapt`` uses these values in the middle of an all-reduce, so they are checked now.
        for key, least in (("sums", 0.0), ("errors", 0.0), ("corrections", 1 / _CORRECTION)):
            if not (np.isfinite(arrays[key]) & (arrays[key] >= least)).all():
                raise StateError(
                    f"the saved state of {self.name!r} has {key} {arrays[key]}; they are finite "
                    f"and at least {least}."
                )
        self.stages, self._sums = arrays["stages"], arrays["sums"]
        self._errors, self._corrections = arrays["errors"], arrays["corrections"]
        self._count = count

    def _loaded_count(self, count: object) -> int:
        """The count of a saved state. One above ``every`` would never become equal to it."""
        every = self.parameters.every or math.inf
        if not is_int(count) or not 0 <= count < every:
            raise StateError(
                f"the saved state of {self.name!r} has {count!r} for the number of all-reduces "
                f"since the stages were adapted; it is below {every}."
            )
        return count

    def _of_layer(self, layer: int, x: Floats) -> tuple[Ints, Floats]:
        threshold, wanted = self._threshold(x, layer)
        indices, values = threshold_or_largest(self.context.kernels, x, threshold)
        self._sums[layer] += indices.size / wanted if wanted else 1
        return indices, values

    def _threshold(self, x: Floats, layer: int) -> tuple[float, float]:
        """The threshold, above 0, and how many elements of x, shape (n,), should be selected."""
        kernels, parameters = self.context.kernels, self.parameters
        left = Tail.of(kernels, x, TINIEST)
        wanted = max(1.0, parameters.ratio * x.size)
        if left.count <= wanted:
            return TINIEST, left.count
        stages = int(self.stages[layer])
        share = min(1.0, wanted / left.count * float(self._corrections[layer]))
        if stages == 1:
            shares = [share]
        elif share >= parameters.first:
            shares = [share ** (1 / stages)] * stages
        else:
            rest = (share / parameters.first) ** (1 / (stages - 1))
            shares = [parameters.first, *[rest] * (stages - 1)]
        fit, later = self.fits
        for each in shares[:-1]:
            through = Tail.of(kernels, x, max(left.least, fit(left, each)))
            left = through if through.count else left
            fit = later
        return max(TINIEST, fit(left, shares[-1])), wanted

    def _adapt(self) -> None:
        """Of each layer that selects too few or too many: take one stage more or less, or correct
        the share that is asked for.
        """
        for layer, mean in enumerate(self._sums / self._count):
            known, stages = self._errors[layer], int(self.stages[layer])
            error = abs(math.log(mean))
            known *= _FADING
            known[stages - 1] = error
            if _TOO_FEW <= mean <= _TOO_MANY:
                continue
            step = 1 if mean < _TOO_FEW else -1  # the paper's, which goes first
            neighbors = [each for each in (stages + step, stages - step) if 1 <= each <= self._most]
            better = [each for each in neighbors if 0 < known[each - 1] < error]
            untried = [each for each in neighbors if not known[each - 1]]
            if better:
                self.stages[layer] = min(better, key=lambda each: known[each - 1])
            elif untried:
                self.stages[layer] = untried[0]
            else:
                corrected = self._corrections[layer] / min(max(mean, 0.5), 2.0)
                self._corrections[layer] = min(max(corrected, 1 / _CORRECTION), _CORRECTION)
        self._sums[:] = 0
        self._count = 0


class SidcoExponential(Sidco):
    """Exponential distributions: SIDCo-E."""

    name = "sidco-e"
    fits = (exponential_from_zero, exponential)


class SidcoPareto(Sidco):
    """Generalized Pareto distributions: SIDCo-P."""

    name = "sidco-p"
    fits = (pareto, pareto)


class SidcoGamma(Sidco):
    """A gamma distribution, then generalized Pareto distributions: SIDCo-GP."""

    name = "sidco-gp"
    fits = (gamma, pareto)
