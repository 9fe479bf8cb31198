"""What selectors ``gs-sgd`` and ``sketched-sgd`` share: heavy hitters of a sum, from a sketch."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field, field_validator

from innet.codecs.parts import (
    LEAVES_RESIDUAL,
    SAME_INDICES,
    Capabilities,
    Floats,
    Ints,
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
    """How many coordinates are found, and the size of the sketch that finds them.

    Attributes:
        ratio: share of the elements, above 0, at most 1; 0.001 if neither it nor k is given.
        k: at least 1; of smaller gradients everything is selected.
        rows: of the sketch, odd: an estimate is the median of so many cells.
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
    """All workers select the coordinates whose sum a count sketch holds to be the largest.

    The sketch of a sum is the sum of the sketches. So the network adds up the workers' sketches, in
    two rounds: the largest magnitude M of a cell of any worker, by MAX, then the cells as integers.
    From the sum all workers estimate every coordinate, each as the median over the rows, and select
    the same ones; of equal estimates the first. What they send for these are the values themselves.

    No overflow. A cell c becomes round(c · B / M) with B = floor((2**31 - 1) / N), as quantizer
    ``fixed`` does it with values: each is at most B in magnitude, N of them and all partial sums
    stay within 2**31 - 1. Cells beyond float32 are held at its largest number. Signs are applied
    to cells above -2**31.

    Each all-reduce hashes in another way, so that a coordinate that shares its cells with heavier
    ones is not overlooked forever. Where sketch and candidates would take as many words as the
    gradient, everything is selected, without a round. A gradient whose cells are all zero selects
    the first coordinates after one round.
    """

    local = False
    capabilities = Capabilities(
        provides=frozenset({SAME_INDICES, LEAVES_RESIDUAL}),
        rounds=(0, 2),
        metadata="rows * columns + 1",
    )
    settings = HeavySettings

    def count(self, size: int) -> int:
        """K for a gradient of ``size`` elements, as selector ``topk`` counts."""
        return resolve_k(self.parameters, size, DEFAULT_RATIO)

    def candidates(self, size: int) -> int:
        """How many coordinates are sent."""
        return self.count(size)

    def layout(self, size: int) -> CountLayout | None:
        """The next sketch; None where it saves nothing."""
        columns = self.parameters.columns or _COLUMNS_PER_ITEM * self.count(size)
        words = self.parameters.rows * columns + 1
        if words + self.candidates(size) >= size:
            return None
        seed = (self.context.seed + self._step * 0xD1B54A32D192ED03) % 2**63
        return CountLayout(self.parameters.rows, columns, seed)

    def select(self, x: Floats) -> SparseValues:
        """What a worker that is alone would select, up to the rounding of the cells: the largest
        estimates of its own sketch.
        """
        choice = self.choose(x, 1)
        try:
            segments = next(choice)
            while True:
                segments = choice.send([segment.words for segment in segments])
        except StopIteration as stop:
            selected: SparseValues = stop.value
            return selected

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

    def applied_indices(self, total: Floats) -> Ints | None:
        """All that was selected counts; the next all-reduce hashes in another way."""
        del total
        self._step += 1
        return None


# ----------------------------------------------------------------------------
# Selector ``gs-sgd``: the heavy hitters of the sum, found in a count sketch of it.
#
# Dai et al., "A distributed SGD algorithm with global sketching for deep learning training
# acceleration" (gs-SGD), 2021, arXiv 2108.06004.


class GsSgd(HeavyHitters):
    """The k coordinates with the largest estimates are sent, and all of them count.

    Differences with the paper: the workers' sketches are added up by the switch in one round, not
    by pairs of workers in log2 N.
    """

    name = "gs-sgd"
