"""What rings sum in trainings: numbers of few bits that are rounded at each hop, or coded without
loss.

A ring's sum depends on where numbers are rounded. Gradients of 16 bits are rounded at each worker
before, as a model of that type has them. Number formats with scales are requantized: a host decodes
what came, adds its own float32, and encodes the sum with the scales of its blocks.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from innet import kernels as kernel_sets
from innet.codecs.quantizers.formats import powers_of
from innet.core.errors import ConfigError
from innet.core.numbers import FLOAT32_MAX
from innet.core.vnmse import vnmse
from innet.experiments.models.model import Vector
from innet.kernels.layout.formats import FORMATS, MX_BLOCK
from innet.kernels.layout.hashing import key_of
from innet.scenarios.baselines import MEASURED, Baseline

_16_BITS = {"float16": "fp16", "bfloat16": "bf16"}  # and what number formats are called


def to_float16(numbers: Vector) -> Vector:
    """The nearest float16; infinite beyond its range."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float16).astype(np.float32)


def to_bfloat16(numbers: Vector) -> Vector:
    """The nearest bfloat16, ties to even: the upper half of a float32."""
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(numbers), nearest.view(np.float32), numbers)


class HopRounding:
    """What hosts send around a ring: float32 rounded to a type or a number format.

    Args:
        dtype: a name of ``innet.sim.messages.ELEMENTS``.
        by_chance: round to one of the two neighbors by chance and without bias, not to the nearest.
        seed: of chance.

    Attributes:
        own: what a host's own gradient is before it is added.
    """

    own: Callable[[Vector], Vector]

    def __init__(self, dtype: str, *, by_chance: bool = False, seed: int = 0) -> None:
        self._form = FORMATS.get(_16_BITS.get(dtype, dtype))
        self._block = MX_BLOCK if self._form and self._form.scaled == "block" else 0
        self._by_chance, self._seed, self._calls = by_chance, seed, itertools.count()
        self._kernels = kernel_sets.get("cpu")
        nearest = {"float16": to_float16, "bfloat16": to_bfloat16}.get(dtype)
        self.own = nearest or _as_it_is
        self._nearest = nearest

    def __call__(self, numbers: Vector) -> Vector:
        """What arrives, shape (d,): numbers times scales. What is not finite stays as it is."""
        form = self._form
        if form is None or not numbers.size:
            return numbers
        if self._nearest and not self._by_chance:
            return self._nearest(numbers)
        if not np.isfinite(numbers).all():
            return numbers
        key = key_of("ring", self._seed, next(self._calls)) if self._by_chance else None
        block = self._block or numbers.size
        powers = powers_of(form, self._kernels.block_magnitudes(numbers, block))
        rounded = self._kernels.round_to_format(numbers, powers, block, form, key)
        values = rounded / powers.astype(np.float64)[np.arange(numbers.size) // block]
        decoded: Vector = np.clip(values, -FLOAT32_MAX, FLOAT32_MAX).astype(np.float32)
        return decoded


def _as_it_is(numbers: Vector) -> Vector:
    return numbers


def ring_sum(
    gradients: Sequence[Vector],
    rounded: Callable[[Vector], Vector],
    own: Callable[[Vector], Vector] | None = None,
) -> Vector:
    """The sum as a ring makes it: part i begins at worker i, and each worker adds and rounds.

    Args:
        gradients: shape (d,) of each worker.
        rounded: what a worker sends on.
        own: what a worker's gradient is before it is added; by default rounded as well. Where both
            are numbers of 16 bits, rounding their float32 sum is rounding once.
    """
    total = np.empty_like(gradients[0])
    workers, own = len(gradients), own or rounded
    for first, part in enumerate(np.array_split(np.arange(total.size), workers)):
        rows = slice(part[0], part[-1] + 1) if part.size else slice(0)
        here = rounded(own(gradients[first][rows]))
        for hop in range(1, workers):
            here = rounded(here + own(gradients[(first + hop) % workers][rows]))
        total[rows] = here
    return total


def lossless_ratio(arrays: Sequence[Vector], dtype: str = "float32") -> float:
    """How many times shorter a coder without loss makes arrays.

    The coder is ZipNN's (Hershcovitch et al. 2024): of each number the exponent is a byte of its
    own, and sign and fraction are the others. Each plane of bytes has a Huffman code for itself
    (zlib's, Z_HUFFMAN_ONLY), or stays as it is where that is shorter, as it does for fractions.

    Args:
        arrays: of any shapes, together at least one element.
        dtype: float32 or bfloat16, to which elements are rounded before.

    Raises:
        ConfigError: another type.
    """
    if dtype not in {"float32", "bfloat16"}:
        raise ConfigError(
            f"lossless coding of {dtype} is not measured; choose float32 or bfloat16, or give a "
            "number, as in lossless=1.2."
        )
    plain = coded = 0
    for array in arrays:
        numbers = np.ascontiguousarray(array, np.float32).ravel()
        if dtype == "bfloat16":
            bits = to_bfloat16(numbers).view(np.uint32)
        else:
            bits = numbers.view(np.uint32)
        # The sign becomes the lowest bit, so that the exponent is the highest byte.
        turned = (bits << np.uint32(1)) | (bits >> np.uint32(31))
        if dtype == "bfloat16":  # without the zeros between fraction and sign
            turned |= (turned & np.uint32(1)) << np.uint32(16)
        planes = turned.astype("<u4").view(np.uint8).reshape(-1, 4)
        for plane in range(2 if dtype == "bfloat16" else 0, 4):
            data = planes[:, plane].tobytes()
            coder = zlib.compressobj(strategy=zlib.Z_HUFFMAN_ONLY, wbits=-zlib.MAX_WBITS)
            plain += len(data)
            coded += min(len(data), len(coder.compress(data)) + len(coder.flush()))
    return plain / coded if coded else 1.0


def ring_of(name: str) -> Baseline:
    """The ring that a training takes beside codecs.

    Raises:
        UnknownNameError, ConfigError: as ``Baseline.of``; no ring, or that of plain float32, which
            trainings have anyway.
    """
    baseline = Baseline.of(name)
    if baseline.algorithm != "ring" or not baseline.is_encoded:
        raise ConfigError(
            f"a training's baseline is a ring of numbers of few bits or coded ones, not {name!r}; "
            "choose ring-bfloat16, ring-mxfp8-e4m3, ring:lossless=measured or the like. Plain "
            "float32 sums take the time of a ring anyway."
        )
    if baseline.options.lossless == MEASURED:
        lossless_ratio([], baseline.dtype)
    return baseline


class RingReducer:
    """Sums gradients as a ring does.

    Args:
        name: of the ring, as ``ring_of`` takes it.
        seed: of stochastic rounding.

    Attributes:
        vnmse: of the last sum.
        lossless: by how many times the last gradients were coded shorter, where that is measured;
            otherwise 1.
        ratios: all that were measured.
    """

    def __init__(self, name: str, seed: int = 0) -> None:
        baseline = ring_of(name)
        self._dtype, self._measured = baseline.dtype, baseline.options.lossless == MEASURED
        by_chance = baseline.options.rounding == "stochastic"
        self._rounding = HopRounding(baseline.dtype, by_chance=by_chance, seed=seed)
        self.vnmse, self.lossless = 0.0, 1.0
        self.ratios: list[float] = []

    def __call__(self, gradients: list[Vector]) -> tuple[Vector, None]:
        """The workers' gradients to their sum; there is no report."""
        total = ring_sum(gradients, self._rounding, self._rounding.own)
        self.vnmse = vnmse(total, gradients)
        if self._measured:
            self.lossless = lossless_ratio(gradients, self._dtype)
            self.ratios.append(self.lossless)
        return total, None

    def about(self) -> dict[str, Any]:
        """Settings of the run: the mean of what was measured."""
        return {"lossless": float(np.mean(self.ratios))} if self.ratios else {}
