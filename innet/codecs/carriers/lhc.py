"""Carrier ``lhc``: the lossless homomorphic sketch, which needs no agreement on indices.

Li et al., "Lossless homomorphic compression", arXiv 2402.07529. Each worker sends a bitmap of its
non-zero elements, which the network combines by OR, and a sketch of them, which it sums. The bitmap
of the union tells which elements each cell of the summed sketch holds; cells that hold one are read
off, taken from the other cells of that element, and so on until all are known.

Differences with the paper: integers instead of floats, so that the result is exact whatever the
order of the sum; an index of its own instead of a stolen bit; rows of an element that cannot
coincide; lanes that are connected (``innet.kernels.layout``); and a peel that comes to a halt is
finished by asking for what is missing, never by an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field, field_validator

from innet.codecs.capabilities import INT32, Capabilities
from innet.codecs.carriers.dense import sum_dense
from innet.codecs.parts import Carrier, Context, Contribution, Ints, Rounds, Selection, Total
from innet.codecs.stopwatch import Stopwatch
from innet.config import Settings
from innet.errors import StateError
from innet.kernels import SketchLayout
from innet.kernels.layout import MAX_LANES
from innet.words import Operation, Segment

_INT32_MAX = 2**31 - 1
# A sketch of so many cells stays in a core's own cache, where lanes save no time; without them
# every element is hashed by itself, and a small sketch has no room to waste on shared fates.
_NARROW_CELLS = 1 << 16


class LhcSettings(Settings):
    """How the sketch is sized.

    Attributes:
        cells_per_item: cells for each non-zero element of the union. With three hashes and
            infinitely many elements, peeling succeeds from 1.222 on.
        spread: cells added for each square root of the number of elements, as finitely many vary.
        pair_stalls: accepted probability that two elements share all three cells, which decides
            the size of small sketches.
        lanes: elements that share a hash in sketches too large for a core's cache; a power of two.
            16 lanes of 4 bytes are a cache line.
        remember: size the sketch by how much the workers' supports overlapped last time. Otherwise
            they are taken to be disjoint.
        margin: by how much the union may exceed what the remembered overlap predicts.
        seed: of the hashes; by default that of the codec. The same on all workers.
    """

    cells_per_item: Annotated[float, Field(gt=0, le=100)] = 1.23
    spread: Annotated[float, Field(ge=0, le=100)] = 3.0
    pair_stalls: Annotated[float, Field(gt=0, le=1)] = 0.006
    lanes: Annotated[int, Field(ge=1, le=MAX_LANES)] = 16
    remember: bool = True
    margin: Annotated[float, Field(ge=0, le=10)] = 0.1
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None

    @field_validator("lanes")
    @classmethod
    def _power_of_two(cls, lanes: int) -> int:
        if lanes & (lanes - 1):
            raise ValueError("lanes must be a power of two")
        return lanes


@dataclass(frozen=True, slots=True)
class Census:
    """What the workers know of their supports before the index is known. The same on all.

    Attributes:
        largest: the union has at least so many items: the most non-zero elements of a worker.
        summed: the items of all workers added up, at most. An element has an item for each of its
            integers.
        size: integers of the whole contribution.
    """

    largest: int
    summed: int
    size: int


class Lhc(Carrier[LhcSettings]):
    """Lossless for any support; saves most where the union of the supports is sparse.

    The gradient goes densely where sketch and bitmap would take as many words.
    """

    name = "lhc"
    capabilities = Capabilities(
        requires={INT32: "the cells of the sketch are 32-bit integers."},
        fixed_size=False,
        rounds=(0, 2),
        index="bitmap",
        metadata="ceil(d / 32) + 2",
    )
    settings = LhcSettings

    def __init__(self, parameters: LhcSettings, context: Context) -> None:
        super().__init__(parameters, context)
        self._overlap: float | None = None  # union / sum of the supports, as last seen
        self._sketches = 0  # so many were sent; each is hashed in another way

    def announce(self, selection: Selection, workers: int) -> list[Segment]:
        """Each worker's number of non-zero elements: the largest and the sum are asked for."""
        units = -(-selection.nonzero // _unit(selection.size, workers))
        return [
            Segment(Operation.MAX, np.array([selection.nonzero], np.int32)),
            Segment(Operation.SUM, np.array([units], np.int32)),
        ]

    def carry(
        self, contribution: Contribution, answers: list[Ints], workers: int, watch: Stopwatch
    ) -> Rounds:
        size, limbs = contribution.size, contribution.limbs
        summed = limbs * int(answers[1][0]) * _unit(size // limbs, workers)
        census = Census(largest=int(answers[0][0]), summed=summed, size=size)
        layout = self.plan(census)
        if layout is None:
            total = yield from sum_dense(contribution, self.context.kernels, watch)
            # Sums that cancelled out are missing here: few, and the margin has room for them.
            details = {"form": "dense", "union_expected": self.expected_union(census)}
            self._overlap = int(np.count_nonzero(total)) / summed
            return Total(total, details)
        return (yield from self._carry_sketch(contribution, census, layout, watch))

    def expected_union(self, census: Census) -> int:
        """How many elements of the union to make room for."""
        bound = min(census.size, census.summed)
        if self._overlap is None or not self.parameters.remember:
            return bound
        likely = math.ceil(census.summed * self._overlap * (1 + self.parameters.margin))
        return min(bound, max(census.largest, likely))

    def plan(self, census: Census) -> SketchLayout | None:
        """Size and hashes of the next sketch; None where the dense form takes no more words."""
        items = self.expected_union(census)
        lanes = 1
        cells = self._cells(items, lanes)
        if cells > _NARROW_CELLS:
            lanes = self.parameters.lanes
            cells = self._cells(items, lanes)
        part = -(-cells // (3 * lanes))
        if 3 * part * lanes + -(-census.size // 32) >= census.size:
            return None
        seed = self.context.seed if self.parameters.seed is None else self.parameters.seed
        # A support that stalled once must not stall every time it comes back.
        seed = (seed + self._sketches * 0xD1B54A32D192ED03) % 2**63
        return SketchLayout(part, lanes, seed)

    def state_dict(self) -> dict[str, Any]:
        return {"overlap": self._overlap, "sketches": self._sketches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._expect(state, {"overlap", "sketches"})
        overlap, sketches = state["overlap"], state["sketches"]
        if not (overlap is None or (isinstance(overlap, float) and overlap >= 0)):
            raise StateError(f"the saved overlap of the supports is {overlap!r}, not a share.")
        if not (isinstance(sketches, int) and sketches >= 0):
            raise StateError(f"the saved number of sketches is {sketches!r}, not a count.")
        self._overlap, self._sketches = overlap, sketches

    def _cells(self, items: int, lanes: int) -> int:
        """Cells that make a stall rare.

        Three needs, the first and second together: the threshold; the variation around it, which
        falls with the square root of the items, and in the worst case all lanes of a block are
        items and share its fate, so that only the blocks count; and, for few items, that no two
        of the items·(items - 1) / 2 pairs share all three cells of cells/3 each.
        """
        threshold = self.parameters.cells_per_item * items
        threshold += self.parameters.spread * math.sqrt(items * lanes)
        pairs = items * (items - 1) / 2
        return math.ceil(max(threshold, 3 * math.cbrt(pairs / self.parameters.pair_stalls)))

    def _carry_sketch(
        self, contribution: Contribution, census: Census, layout: SketchLayout, watch: Stopwatch
    ) -> Rounds:
        kernels = self.context.kernels
        size = contribution.size
        bitmap, sketch = kernels.lhc_encode(
            contribution.indices, contribution.integers, size, layout
        )
        self._sketches += 1
        union, summed = yield [Segment(Operation.OR, bitmap), Segment(Operation.SUM, sketch)]
        watch.enter("decode")
        integers, missing = kernels.lhc_peel(union, summed, size, layout)
        items = kernels.popcount(union)
        stalled = kernels.expand(missing, size)
        if stalled.size:
            (repair,) = yield [Segment(Operation.SUM, _at(contribution, stalled))]
            integers[stalled] = repair
        details = {
            "form": "sketch",
            "union": items,
            "union_expected": self.expected_union(census),
            "rows": layout.rows,
            "lanes": layout.lanes,
            "cells_per_item": layout.cells / max(items, 1),
            "index_bits": 32 * bitmap.size,
            "stalled_items": int(stalled.size),
            "repair_rounds": int(stalled.size > 0),
        }
        self._overlap = items / census.summed
        return Total(integers, details)


def _unit(size: int, workers: int) -> int:
    """Elements are counted in units of so many: the sum of the workers' counts fits an int32."""
    return max(1, -(-(size * workers) // (_INT32_MAX - workers)))


def _at(contribution: Contribution, items: Ints) -> Ints:
    """The worker's own integers at the items, 0 where it has none."""
    if contribution.indices is None:
        return contribution.integers[items]
    found = np.zeros(items.size, np.int32)
    if contribution.indices.size:
        places = np.searchsorted(contribution.indices, items)
        places = np.minimum(places, contribution.indices.size - 1)
        own = contribution.indices[places] == items
        found[own] = contribution.integers[places[own]]
    return found
