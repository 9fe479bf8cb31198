"""What carriers of sparse contributions ask all workers, and remember, to know the union's size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import Field

from innet.codecs.parts import Carrier, Contribution, Ints, PartContext, Selection
from innet.core.errors import StateError
from innet.core.numbers import INT32_MAX, is_int
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.settings import Settings


class SupportSizeSettings(Settings):
    """What is assumed about the size of the union.

    Attributes:
        remember: expect the workers' supports to overlap as last time. Otherwise they are taken to
            be disjoint.
        margin: by how much the union may exceed what the remembered overlap predicts.
        seed: of the hashes; by default that of the codec. The same on all workers.
    """

    remember: bool = True
    margin: Annotated[float, Field(ge=0, le=10)] = 0.1
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None


S = TypeVar("S", bound=SupportSizeSettings)


@dataclass(frozen=True, slots=True)
class SupportSize:
    """What the workers know of their supports before the index is known. The same on all.

    Attributes:
        largest: the most non-zero elements of a worker; the union has at least as many items.
        summed: the items of all workers added up, at most. An element has an item for each of its
            integers.
        size: integers of the whole contribution.
    """

    largest: int
    summed: int
    size: int


class SupportSizeCarrier(Carrier[S]):
    """Sums the numbers of non-zero elements in the handshake, and remembers the overlap."""

    def __init__(self, parameters: S, context: PartContext) -> None:
        super().__init__(parameters, context)
        self._overlap: float | None = None  # union / sum of the supports, as last seen
        self._sketches = 0  # number of hashed indices or sketches sent; each uses other hashes

    def announce(self, selection: Selection, workers: int) -> list[Segment]:
        """Each worker's number of non-zero elements: the largest and the sum are asked for."""
        units = -(-selection.nonzero // _unit(selection.size, workers))
        return [
            Segment(ReduceOp.MAX, np.array([selection.nonzero], np.int32)),
            Segment(ReduceOp.SUM, np.array([units], np.int32)),
        ]

    def support_size(
        self, contribution: Contribution, answers: list[Ints], workers: int
    ) -> SupportSize:
        """What follows from the combined announcements."""
        size, limbs = contribution.size, contribution.limbs
        summed = limbs * int(answers[1][0]) * _unit(size // limbs, workers)
        return SupportSize(largest=int(answers[0][0]), summed=summed, size=size)

    def expected_union(self, support_size: SupportSize) -> int:
        """How many elements of the union to make room for."""
        bound = min(support_size.size, support_size.summed)
        if self._overlap is None or not self.parameters.remember:
            return bound
        likely = math.ceil(support_size.summed * self._overlap * (1 + self.parameters.margin))
        return min(bound, max(support_size.largest, likely))

    def seed(self) -> int:
        """Of what is hashed next: a support that was unlucky once must not be so every time."""
        seed = self.context.seed if self.parameters.seed is None else self.parameters.seed
        return (seed + self._sketches * 0xD1B54A32D192ED03) % 2**63

    def common(self) -> tuple[object, ...]:
        return self._overlap, self._sketches

    def adopt(self, state: Mapping[str, Any]) -> None:
        self.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        return {"overlap": self._overlap, "sketches": self._sketches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._expect(state, {"overlap", "sketches"})
        overlap, sketches = state["overlap"], state["sketches"]
        if not (overlap is None or (isinstance(overlap, float) and overlap >= 0)):
            raise StateError(f"the saved overlap of the supports is {overlap!r}, not a share.")
        if not (is_int(sketches) and sketches >= 0):
            raise StateError(f"the saved number of sketches is {sketches!r}, not a count.")
        self._overlap, self._sketches = overlap, sketches


def _unit(size: int, workers: int) -> int:
    """Elements of a unit of counting: with it the sum of the workers' counts fits an int32."""
    return max(1, -(-(size * workers) // (INT32_MAX - workers)))
