"""Quantizer ``thc``: rotated blocks, rounded to the few entries of a table that sums keep."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from innet.codecs.parts import (
    INT32,
    LEAVES_RESIDUAL,
    SAME_INDICES,
    SMALL_INTEGERS,
    Capabilities,
    Contribution,
    Floats,
    Ints,
    PartContext,
    Quantizer,
    Scaling,
    Selection,
    StepCounter,
)
from innet.core.errors import InputError
from innet.core.numbers import FLOAT32_MAX, INT32_MAX
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.settings import Settings
from innet.kernels import Kernels
from innet.kernels.layout.hadamard import MOST
from innet.kernels.layout.hashing import key_of

Doubles = NDArray[np.float64]

_LEAST_BLOCK = 16
_ROOM = 2.0**30  # of 2**31, for the sum of the magnitudes of a block's integers


class ThcSettings(Settings):
    """The table of values, and the range that it covers.

    Attributes:
        bits: the table has 2**bits entries, 1 to 8.
        granularity: the largest entry; others are integers between 0 and it.
        truncated: share of normal values beyond the table's ends; they are clipped.
        block: elements that are rotated together, a power of two from 16 to 8192.
    """

    bits: Annotated[int, Field(ge=1, le=8)] = 4
    granularity: Annotated[int, Field(ge=1, le=1023)] = 30
    truncated: Annotated[float, Field(gt=0, lt=1)] = 1 / 32
    block: Annotated[int, Field(ge=_LEAST_BLOCK, le=MOST)] = 4096

    @field_validator("block")
    @classmethod
    def _power_of_two(cls, block: int) -> int:
        if block & (block - 1):
            raise ValueError("block must be a power of two")
        return block

    @model_validator(mode="after")
    def _room_for_the_entries(self) -> ThcSettings:
        if self.granularity < 2**self.bits - 1:
            raise ValueError("granularity must be 2**bits - 1 at least: entries are distinct")
        return self


class Thc(StepCounter[ThcSettings], Quantizer[ThcSettings]):
    """Tensor homomorphic compression, after Li, Ben Basat, Vargaftik, Lao, Xu, Mitzenmacher, Yu:
    THC: Accelerating distributed deep learning using tensor homomorphic compression, NSDI 2024,
    https://arxiv.org/abs/2302.08545.

    A block x of n values is rotated, y = H · D · x / sqrt(n), with H the Hadamard matrix and D
    random signs that all workers share, so that its coordinates are nearly normal with the block's
    root mean square R as their deviation. With M = t · R, R the largest of all workers, y is held
    within -M .. M and rounded by chance, without bias, to one of 2**bits values (2·T / g - 1) · M,
    T from a table of integers 0 .. g. T - floor(g / 2) is what is sent. As the values are linear in
    T, the sum of the integers stands for the sum of the values, and the inverse rotation of it is
    the result: sum x = D · H · (2 · sum T - N·g) · M / (g · sqrt(n)).

    No overflow. N workers' sum is N·g at most. The inverse rotation adds n
    integers of magnitude N·g at most; block · N · g < 2**31 is checked, and bounds both. The
    rotation adds integers, round(x · s) with s = 2**30 / (n · r), r the worker's own root mean
    square: as the magnitudes of x add up to n · r at most (Cauchy-Schwarz), those of the integers
    do to 2**30 + n / 2, and a bit for the rounding of r and s.

    The error is that of the table, and of what was held within M; it is known to the worker and fed
    back: with ``residual`` sent + new residual == x holds for what the integers stand for, rounded
    to float32. Rounding x to integers adds less than 2**-17 of R.

    As in the paper: the rotation with shared signs that are new each time, the range from the
    largest norm in a separate round, stochastic rounding to the entries of an optimized table,
    the truncated share and the error feedback. Different from it:

    * Blocks are rotated by themselves, as the paper's public code does it, and have norms of their
      own: one float32 word for each.
    * Workers look the table up themselves and send its entry. The paper's send the entry's number,
      4 bits, and its switch looks it up. A switch that only adds is enough here, and takes the bits
      of N · g for each value both ways (carrier ``packed``), as the paper's for the way back.
    * The table is the best of those that are symmetric. For the granularity of 30 and the truncated
      share of 1/32, as in the paper's public code, that is the table which it has.
    """

    name = "thc"
    settings = ThcSettings
    capabilities = Capabilities(
        provides=frozenset({INT32, SMALL_INTEGERS, LEAVES_RESIDUAL}),
        requires={
            SAME_INDICES: "it mixes the values that a worker sends, so all workers must send those "
            "of the same coordinates."
        },
        integer_width=32,
        overflow_bound="ceil(granularity / 2), with block * N * granularity < 2**31",
        metadata="ceil(d / block)",
    )

    def __init__(self, parameters: ThcSettings, context: PartContext) -> None:
        super().__init__(parameters, context)
        self._reach = table_reach(parameters.truncated)
        entries = table(parameters.bits, parameters.granularity, self._reach)
        self._table = np.array(entries, np.int32)
        self._local_scales = np.empty(0)  # root mean squares of what was announced

    def largest_integer(self, workers: int) -> int:
        """See ``Quantizer``; the inverse rotation adds ``block`` sums of ``workers`` entries."""
        self._check_room(workers)
        granularity = self.parameters.granularity
        return granularity - granularity // 2

    def _check_room(self, workers: int) -> None:
        bits, granularity = self.parameters.bits, self.parameters.granularity
        block = self.parameters.block
        if workers <= INT32_MAX // (block * granularity):
            return
        finest = INT32_MAX // (block * workers)
        longest = 1 << (INT32_MAX // (granularity * workers)).bit_length() >> 1
        instead = [f"granularity {finest}"] if finest >= 2**bits - 1 else []
        instead += [f"block {longest}"] if longest >= _LEAST_BLOCK else []
        choose = f"{' or '.join(instead)}, or less" if instead else "quantizer 'qsgd' or 'fixed'"
        raise InputError(
            f"quantizer 'thc' with block {block} and granularity {granularity} sums up to "
            f"{INT32_MAX // (block * granularity)} workers, not {workers}; choose {choose}."
        )

    def announce(self, selection: Selection) -> list[Segment]:
        block = self.parameters.block
        squares = self.context.kernels.block_squares(selection.values, block)
        self._local_scales = np.sqrt(squares / _lengths(selection.values.size, block))
        # Rounded up, so that what is not zero does not become zero; it is no larger than the
        # largest value, but for rounding, so float32 has it.
        rounded = np.minimum(self._local_scales, FLOAT32_MAX).astype(np.float32)
        short = rounded < self._local_scales
        rounded[short] = np.nextafter(rounded[short], FLOAT32_MAX)
        return [Segment(ReduceOp.MAX, rounded.view(np.int32))]

    def agree(self, answers: list[Ints], workers: int) -> Scaling:
        """What follows from the norms.

        Raises:
            InputError: the integers of the workers could overflow; the same on all workers.
        """
        parameters = self.parameters
        self._check_room(workers)
        largest = answers[0].view(np.float32).astype(np.float64)
        scaling = ThcScaling(
            self.context.kernels,
            self._table,
            ranges=self._reach * largest,
            local_scales=self._local_scales,
            block=parameters.block,
            workers=workers,
            keys=(
                key_of("thc", "signs", self.context.seed, self._step),
                key_of("thc", "rounding", self.context.seed, self._step, self.context.worker),
            ),
        )
        self._step += 1
        return scaling


class ThcScaling(Scaling):
    """The ranges of the blocks, and this worker's random numbers.

    Args:
        kernels: the functions that work on arrays.
        entries: of the table, int32, from 0 to the granularity.
        ranges: shape (blocks,): M.
        local_scales: shape (blocks,): the root mean squares of this worker's blocks.
        block: elements of a block.
        workers: whose integers are added up.
        keys: of the signs, which all workers share, and of the rounding.
    """

    def __init__(
        self,
        kernels: Kernels,
        entries: Ints,
        *,
        ranges: Doubles,
        local_scales: Doubles,
        block: int,
        workers: int,
        keys: tuple[int, int],
    ) -> None:
        self._kernels = kernels
        self._entries = entries
        self._ranges, self._local_scales = ranges, local_scales
        self._block, self._workers = block, workers
        self._signs, self._rounding = keys
        self._granularity = int(entries[-1])
        self._indices: Ints | None = None
        self._size = 0  # of the values
        self._middle = self._granularity // 2
        self.bound = self._granularity - self._middle
        largest = float(ranges.max(initial=0))
        self.scale = self._granularity / (2 * largest) if largest else 0.0

    def quantize(self, values: Floats) -> Ints:
        """Entries of the table, less the middle of its range, for the rotated values: as many as
        the padded blocks have.
        """
        self._size = values.size
        if not self.scale:
            return np.zeros(_padded(values.size, self._block), np.int32)
        lengths = _lengths(values.size, self._block)
        fine = np.zeros_like(lengths)
        np.divide(_ROOM / lengths, self._local_scales, out=fine, where=self._local_scales > 0)
        rotated = self._kernels.hadamard(values, fine, self._block, self._signs)
        # From the fine integers, sqrt(n) · fine to 1, to the table's, g / (2·M) to 1.
        unit = 2 * self._ranges * np.sqrt(lengths) * fine
        coarse = np.divide(self._granularity, unit, out=np.zeros_like(unit), where=unit > 0)
        integers = self._kernels.quantize_to_table(
            rotated, coarse, self._entries, self._block, self._rounding
        )
        integers -= np.int32(self._middle)
        return integers

    def dequantize(self, integers: Ints) -> Floats:
        """The values whose rotation the sums of all workers' entries stand for."""
        return self._rotated_back(integers, self._workers)

    def contribute(self, selection: Selection) -> Contribution:
        """The integers belong to no coordinate of the gradient: all are sent."""
        self._indices = selection.indices
        integers = self.quantize(selection.values)
        return Contribution(integers.size, None, integers, bound=self.bound)

    def restore(self, total: Ints, size: int) -> Floats:
        values = self.dequantize(total)
        if self._indices is None:
            return values
        dense = np.zeros(size, np.float32)
        dense[self._indices] = values
        return dense

    def represented(self, contribution: Contribution) -> Floats:
        """What this worker's entries stand for, held within float32's range."""
        values = self._rotated_back(contribution.integers, 1)
        return np.clip(values, -FLOAT32_MAX, FLOAT32_MAX, out=values)

    def _rotated_back(self, integers: Ints, workers: int) -> Floats:
        lengths = _lengths(self._size, self._block)
        steps = self._ranges / (self._granularity * np.sqrt(lengths))
        # Twice the entries, less what is in the middle: an odd granularity has it at a half.
        centered = 2 * integers - np.int32(workers * (self._granularity % 2))
        return self._kernels.hadamard_inverse(centered, steps, self._block, self._signs, self._size)


def _lengths(size: int, block: int) -> Doubles:
    """Of the blocks, with the last one filled up to a power of two."""
    blocks, left = divmod(size, block)
    last = [1 << (left - 1).bit_length()] if left else []
    return np.array([block] * blocks + last, np.float64)


def _padded(size: int, block: int) -> int:
    return int(_lengths(size, block).sum())


# ----------------------------------------------------------------------------
# The entries of THC's table: which of the integers 0 .. g stand for a value in a few bits.


def table_reach(truncated: float) -> float:
    """T with P(|Z| > t) = ``truncated`` for a standard normal Z."""
    return NormalDist().inv_cdf(1 - truncated / 2)


@lru_cache
def table(bits: int, granularity: int, reach: float) -> tuple[int, ...]:
    """The 2**bits of the integers 0 .. g with the least error for normal values.

    Entry T stands for (2·T / g - 1) · reach. A standard normal value within the reach is rounded by
    chance to one of the two entries next to it, so that the mean is right; the variance of a value
    z between a and b is (z - a) · (b - z). Of the symmetric tables with the ends 0 and g that of
    the least mean variance is found by dynamic programming over half of it.

    Args:
        bits: at least 1.
        granularity: g, at least 2**bits - 1.
        reach: in standard deviations, above 0.
    """
    half = 2**bits // 2
    below = (granularity + 1) // 2  # the integers of the lower half; a middle one has no partner
    z = (2 * np.arange(granularity + 1) / granularity - 1) * reach
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    share = np.array([NormalDist().cdf(each) for each in z])
    cost = _variance(z, density, share)
    # least[n]: with entry n the last one so far, of as many as the turn says.
    least = np.where(np.arange(below) == 0, 0.0, np.inf)
    before: list[NDArray[np.intp]] = []
    for _ in range(half - 1):
        sums = least[:, np.newaxis] + 2 * cost[:below, :below]
        before.append(sums.argmin(axis=0))
        least = sums.min(axis=0)
    mirror = granularity - np.arange(below)
    entry = int((least + cost[np.arange(below), mirror]).argmin())
    lower = [entry]
    for choice in reversed(before):
        lower.append(int(choice[lower[-1]]))
    lower.reverse()
    return (*lower, *(granularity - each for each in reversed(lower)))


def _variance(z: Doubles, density: Doubles, share: Doubles) -> Doubles:
    """Shape (g + 1, g + 1): the integral of (z - a) · (b - z) · density over a .. b; infinite where
    b is not above a.
    """
    a, b = z[:, np.newaxis], z[np.newaxis, :]
    mass = share[np.newaxis, :] - share[:, np.newaxis]
    first = density[:, np.newaxis] - density[np.newaxis, :]
    second = mass + a * density[:, np.newaxis] - b * density[np.newaxis, :]
    integral = -second + (a + b) * first - a * b * mass
    return np.asarray(np.where(b > a, integral, np.inf))
