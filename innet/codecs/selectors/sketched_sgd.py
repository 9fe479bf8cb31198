"""Selector ``sketched-sgd``: candidates from a sketch, then the k largest of their exact sums.

Ivkin et al., "Communication-efficient distributed SGD with sketching", NeurIPS 2019,
arXiv 1903.04488.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from innet.codecs.optional_methods import AppliesPart
from innet.codecs.parts import Floats, Ints, PartContext
from innet.codecs.selectors.gs_sgd import HeavyHitters, HeavySettings
from innet.codecs.selectors.gtopk import largest_of_sum


class SketchedSgdSettings(HeavySettings):
    """How many coordinates count, how many are asked for, and the size of the sketch.

    Attributes:
        ratio: share of the elements, above 0, at most 1; 0.001 if neither it nor k is given.
        k: at least 1; of smaller gradients everything is selected.
        rows: of the sketch, odd. An estimate is the median of one cell from each row.
        columns: cells in a row; by default 10 for each of the k.
        candidates: coordinates that are sent exactly for each of the k (the paper's P; innet chose
            the default).
    """

    candidates: Annotated[int, Field(ge=1, le=1000)] = 4


class SketchedSgd(HeavyHitters, AppliesPart):
    """Sends the P·k coordinates with the largest estimates, and applies the k largest of their
    exact sums. The values sent for the others stay in the error feedback. In the paper that is
    momentum and error accumulation, both set to zero at the k coordinates.

    Differences with the paper: the sketch consists of integers, which the switch adds up. It is
    hashed without tables. Biases are compressed like everything else.
    """

    name = "sketched-sgd"
    settings = SketchedSgdSettings

    def __init__(self, parameters: SketchedSgdSettings, context: PartContext) -> None:
        super().__init__(parameters, context)
        self._factor = parameters.candidates

    def candidates(self, size: int) -> int:
        return min(size, self._factor * self.count(size))

    def applied_indices(self, total: Floats) -> Ints | None:
        return largest_of_sum(self.context.kernels, total, self.count(total.size))
