"""Distributions fitted to magnitudes, and the threshold that a given share of them exceeds.

The fits are by moments, after SIDCo (Abdelmoniem et al., MLSys 2021, arXiv 2101.10761). All
statistics come from kernels that add in one defined order; what follows from them is computed here,
in float64, so that a threshold does not depend on the set of kernels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import gammaincinv

from innet.codecs.parts import Floats
from innet.kernels import Kernels


@dataclass(frozen=True, slots=True)
class Tail:
    """The elements of an array that reach a threshold; they are looked at where they lie.

    Attributes:
        kernels: for the statistics.
        x: shape (n,).
        least: the threshold, above 0.
        smallest: the smallest |x| >= least.
        count: how many they are.
    """

    kernels: Kernels
    x: Floats
    least: float
    smallest: float
    count: int

    @classmethod
    def of(cls, kernels: Kernels, x: Floats, least: float) -> Tail:
        """Those that reach ``least``."""
        return cls(kernels, x, least, *kernels.smallest(x, least))

    def moments(self, shift: float) -> tuple[float, float]:
        """The sums of |x| - shift and of its square."""
        return self.kernels.moments(self.x, shift, self.least)


def exponential(tail: Tail, share: float) -> float:
    """An exponential distribution of |x| - min: P(|x| - min > t) = exp(-t / mean).

    Args:
        tail: at least one element.
        share: of the elements that shall exceed the threshold, above 0 and at most 1.
    """
    total, _ = tail.moments(tail.smallest)
    return tail.smallest - total / tail.count * math.log(share)


def exponential_from_zero(tail: Tail, share: float) -> float:
    """An exponential distribution of |x| itself, for the first stage. Arguments as above."""
    total, _ = tail.moments(0.0)
    return -total / tail.count * math.log(share)


def pareto(tail: Tail, share: float) -> float:
    """A generalised Pareto distribution of t = |x| - min. Arguments as above.

    With the sign by which κ > 0 is a heavy tail, P(t > q) = (1 + κ·q/α)^(-1/κ) for κ < 1/2 has mean
    μ = α / (1 - κ) and variance σ² = α² / ((1 - κ)² (1 - 2κ)). Hence μ²/σ² = 1 - 2κ, so that

        κ = (1 - μ²/σ²) / 2        α = μ (1 + μ²/σ²) / 2        q = α (share^-κ - 1) / κ

    which for κ → 0 becomes -α·ln(share). With e = -κ·ln(share), q = -α·ln(share) · (exp(e) - 1)/e,
    and expm1 computes that without cancellation for however small an e.

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
    """A gamma distribution of |x|, for the first stage: all but the zeros. Arguments as above.

    The shape is the closed approximation of the maximum likelihood estimate from
    s = ln(mean) - mean(ln |x|) (Minka: Estimating a Gamma distribution, 2002, equation 8), the mean
    of the logarithms being the logarithm of the product.
    """
    total, _ = tail.moments(0.0)
    mean = total / tail.count
    fraction, exponent = tail.kernels.product(tail.x)
    s = math.log(mean) - (math.log(fraction) + exponent * math.log(2)) / tail.count
    if s < 1e-12:  # all magnitudes are equal, but for what rounding leaves of the logarithms
        return tail.smallest
    shape = (3 - s + math.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    return mean / shape * float(gammaincinv(shape, 1 - share))
