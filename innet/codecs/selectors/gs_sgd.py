"""Selector ``gs-sgd``, and what it shares with ``sketched-sgd``: heavy hitters from a sketch."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field, field_validator

from innet.codecs.parts import (
    LEAVES_RESIDUAL,
    SAME_INDICES,
    Capabilities,
    Floats,
    Selector,
    SelectSteps,
    SparseValues,
    StepCounter,
)
from innet.codecs.quantizers.fixed import FixedScaling
from innet.codecs.selectors.topk import TopKSettings, resolve_k
from innet.core.reduce_op import ReduceOp, Segment
from innet.kernels import CountLayout
from innet.kernels.layout.count_sketch import MAX_ROWS

DEFAULT_RATIO = 0.001
_COLUMNS_PER_ITEM = 10  # with 5 rows the proportions of FetchSGD: 500,000 columns for k = 50,000


class HeavySettings(TopKSettings):
    """The number of coordinates, and the size of the sketch that finds them.

    Attributes:
        ratio: share of the elements, above 0, at most 1; 0.001 if neither it nor k is given.
        k: at least 1. A gradient of at most k elements is selected completely.
        rows: rows of the sketch, an odd number. An estimate is the median of one cell of each row.
        columns: cells in a row; by default 10 for each of the k.
    """

    rows: Annotated[int, Field(ge=3, le=MAX_ROWS)] = 5
    columns: Annotated[int, Field(ge=1, lt=2**31 // MAX_ROWS)] | None = None

    @field_validator("rows")
    @classmethod
    def _odd(cls, rows: int) -> int:
        if rows % 2 == 0:
            raise ValueError("rows must be odd")
        return rows


class HeavyHitters(StepCounter[HeavySettings], Selector[HeavySettings]):
    """All workers select the coordinates with the largest estimates in a count sketch of the sum.

    The sketch of a sum is the sum of the sketches, so the network adds up the workers' sketches. It
    takes two rounds: the largest magnitude M of a cell of any worker, by MAX, then the cells as
    integers. All workers estimate every coordinate from the sum, as the median over the rows, and
    select the same ones; among equal estimates the first. For these they send the exact values.

    No overflow. A cell c becomes round(c · B / M) with B = floor((2**31 - 1) / N), as in quantizer
    ``fixed``. Each is at most B in magnitude, so N of them and all partial sums stay within
    2**31 - 1. Cells beyond float32 are clipped to its largest number. Signs are applied to cells
    above -2**31.

    Each all-reduce uses other hashes, so that a coordinate that shares its cells with heavier ones
    is found later. If sketch and candidates would take as many words as the gradient, everything is
    selected without a round. If all cells are zero, the first coordinates are selected after one
    round.
    """

    local = False
    capabilities = Capabilities(
        provides=frozenset({SAME_INDICES, LEAVES_RESIDUAL}),
        rounds=(0, 2),
        metadata="rows * columns + 1",
    )
    settings = HeavySettings

    def count(self, size: int) -> int:
        """The k for a gradient of ``size`` elements, counted as in selector ``topk``."""
        return resolve_k(self.parameters, size, DEFAULT_RATIO)

    def candidates(self, size: int) -> int:
        """How many coordinates are sent."""
        return self.count(size)

    def layout(self, size: int) -> CountLayout | None:
        """The layout of the next sketch; None if the sketch would save nothing."""
        columns = self.parameters.columns or _COLUMNS_PER_ITEM * self.count(size)
        words = self.parameters.rows * columns + 1
        if words + self.candidates(size) >= size:
            return None
        seed = (self.context.seed + self._step * 0xD1B54A32D192ED03) % 2**63
        return CountLayout(self.parameters.rows, columns, seed)

    def select(self, x: Floats) -> SparseValues:
        """The selection of a single worker: the largest estimates of its own sketch."""
        return self.select_alone(x)

    def choose(self, x: Floats, workers: int) -> SelectSteps:
        layout = self.layout(x.size)
        if layout is None:
            return None, x
        kernels = self.context.kernels
        cells = kernels.count_sketch_encode(x, layout)
        magnitude, _, _ = kernels.absmax_nnz(cells)
        (largest,) = yield [Segment(ReduceOp.MAX, np.array([magnitude], np.int32))]
        scaling = FixedScaling(kernels, float(largest.view(np.float32)[0]), workers)
        count = self.candidates(x.size)
        if not scaling.scale:
            indices = np.arange(count, dtype=np.int32)
        else:
            (summed,) = yield [Segment(ReduceOp.SUM, scaling.quantize(cells))]
            indices, _ = kernels.top_k(kernels.count_sketch_estimate(summed, x.size, layout), count)
        return indices, x[indices]


# ----------------------------------------------------------------------------
# Selector ``gs-sgd``: the heavy hitters of the sum, found in a count sketch of it.
#
# Dai et al., "A distributed SGD algorithm with global sketching for deep learning training
# acceleration" (gs-SGD), 2021, arXiv 2108.06004.


class GsSgd(HeavyHitters):
    """Sends the k coordinates with the largest estimates, and applies all of them.

    Differences with the paper: the switch adds up the workers' sketches in one round. In the paper
    pairs of workers add them up in log2 N rounds.
    """

    name = "gs-sgd"
