"""Selector ``sketched-sgd``: candidates from a sketch; of their exact sums the k largest count.

Ivkin et al., "Communication-efficient distributed SGD with sketching", NeurIPS 2019,
arXiv 1903.04488.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from innet.codecs.parts import Context, Floats, Ints
from innet.codecs.selectors.gs_sgd import HeavyHitters, HeavySettings
from innet.codecs.selectors.gtopk import largest_of_sum


class SketchedSgdSettings(HeavySettings):
    """How many coordinates count, how many are asked for, and the size of the sketch.

    Attributes:
        ratio: share of the elements, above 0, at most 1; 0.001 if neither it nor k is given.
        k: at least 1; of smaller gradients everything is selected.
        rows: of the sketch, odd: an estimate is the median of so many cells.
        columns: cells in a row; by default 10 for each of the k.
        candidates: for each of the k, so many coordinates are sent exactly (the paper's P; its
            value is a choice of this project).
    """

    candidates: Annotated[int, Field(ge=1, le=1000)] = 4


class SketchedSgd(HeavyHitters):
    """The P·k coordinates with the largest estimates are sent; of their exact sums the k largest
    count. What was sent for the others stays with the error feedback, which in the paper is
    momentum and error accumulation, both zeroed at the k.

    Differences with the paper: the sketch is of integers, added up by the switch; it is hashed
    without tables; and biases are compressed like everything else.
    """

    name = "sketched-sgd"
    settings = SketchedSgdSettings

    def __init__(self, parameters: SketchedSgdSettings, context: Context) -> None:
        super().__init__(parameters, context)
        self._factor = parameters.candidates

    def candidates(self, size: int) -> int:
        return min(size, self._factor * self.count(size))

    def applied_indices(self, total: Floats) -> Ints | None:
        super().applied_indices(total)
        return largest_of_sum(self.context.kernels, total, self.count(total.size))
