"""Carrier ``lhc``: the lossless homomorphic sketch, which needs no agreement on indices.

Li et al., "Lossless homomorphic compression", arXiv 2402.07529. Each worker sends an index of its
non-zero elements, a bitmap or a Bloom filter, which the network combines by OR, and a sketch of
them, which it sums. The index of the union tells which elements each cell of the summed sketch
holds; cells that hold one are read off, taken from the other cells of that element, and so on until
all are known.

Differences with the paper: integers instead of floats, so that the result is exact whatever the
order of the sum; an index of its own instead of a stolen bit; rows of an element that cannot
coincide, in neighbouring segments where that takes fewer cells; lanes that are connected
(``innet.kernels.layout``); and a peel that comes to a halt is finished by asking for what it takes
to go on, never by an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from innet.codecs.capabilities import INT32, ZEROS, Capabilities
from innet.codecs.carriers.dense import sum_dense
from innet.codecs.carriers.sketch_plan import LhcSettings, Plan, plan
from innet.codecs.parts import Carrier, Context, Contribution, Ints, Rounds, Selection, Total
from innet.codecs.stopwatch import Stopwatch
from innet.errors import StateError
from innet.words import Operation, Segment

_INT32_MAX = 2**31 - 1


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

    Three forms, of which the one of the fewest words goes: sketch and index; where all workers'
    indices are the same, the integers at them alone, a *list*; and everything, *densely*.

    No overflow can do harm. Cells are added modulo 2**32, and an element is read off as a signed
    sum of cells and elements modulo 2**32. Integers of that range differ by a multiple of 2**32
    only when they are the same, and the quantiser keeps an element's sum over the workers in the
    range; whether a cell's true sum leaves it on the way makes no difference.
    """

    name = "lhc"
    capabilities = Capabilities(
        wraps=True,
        requires={
            INT32: "the cells of the sketch are 32-bit integers.",
            ZEROS: "its sketch saves what is zero, and must know where that is.",
        },
        fixed_size=False,
        rounds=(0, 2),
        index="bitmap, Bloom filter or none",
        metadata="at most ceil(d / 32) + 2",
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
        chosen = self.plan(census)
        listed = self._listed(contribution)
        least = min(size if chosen is None else chosen.words, size if listed is None else listed)
        if listed == least:
            return (yield from self._carry_list(contribution, watch))
        if chosen is not None:
            return (yield from self._carry_sketch(contribution, census, chosen, watch))
        total = yield from sum_dense(contribution, self.context.kernels, watch)
        # Sums that cancelled out are missing here: few, and the margin has room for them.
        details = {"form": "dense", "union_expected": self.expected_union(census)}
        self._overlap = int(np.count_nonzero(total)) / summed
        return Total(total, details)

    def expected_union(self, census: Census) -> int:
        """How many elements of the union to make room for."""
        bound = min(census.size, census.summed)
        if self._overlap is None or not self.parameters.remember:
            return bound
        likely = math.ceil(census.summed * self._overlap * (1 + self.parameters.margin))
        return min(bound, max(census.largest, likely))

    def plan(self, census: Census) -> Plan | None:
        """Size and hashes of the next sketch; None where the dense form takes no more words."""
        seed = self.context.seed if self.parameters.seed is None else self.parameters.seed
        # A support that stalled once must not stall every time it comes back.
        seed = (seed + self._sketches * 0xD1B54A32D192ED03) % 2**63
        return plan(self.expected_union(census), census.size, self.parameters, seed)

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
        if not (isinstance(sketches, int) and sketches >= 0):
            raise StateError(f"the saved number of sketches is {sketches!r}, not a count.")
        self._overlap, self._sketches = overlap, sketches

    def _listed(self, contribution: Contribution) -> int | None:
        """How many words a list takes; None where it cannot be sent."""
        known = contribution.shared and contribution.indices is not None
        return contribution.integers.size if known and self.parameters.index == "auto" else None

    def _carry_list(self, contribution: Contribution, watch: Stopwatch) -> Rounds:
        assert contribution.indices is not None
        (summed,) = yield [Segment(Operation.SUM, contribution.integers)]
        watch.enter("decode")
        return Total(summed, {"form": "list", "items": summed.size}, contribution.indices)

    def _carry_sketch(
        self, contribution: Contribution, census: Census, chosen: Plan, watch: Stopwatch
    ) -> Rounds:
        kernels, size, layout = self.context.kernels, contribution.size, chosen.layout
        bitmap, sketch = kernels.lhc_encode(
            contribution.indices, contribution.integers, size, layout
        )
        index = bitmap
        if chosen.filter is not None:
            index = kernels.bloom_fill(bitmap, chosen.filter)
        self._sketches += 1
        union, summed = yield [Segment(Operation.OR, index), Segment(Operation.SUM, sketch)]
        watch.enter("decode")
        if chosen.filter is not None:
            union = kernels.bloom_members(union, size, chosen.filter)
        found, missing = kernels.lhc_peel(union, summed, size, layout)
        asked = 0
        if missing.any():
            asked = yield from self._repair(contribution, found, missing, summed, chosen)
        listed, integers = found
        # What passes a filter by mistake is zero; so are sums that cancelled out, which are few.
        items = listed.size if chosen.filter is None else int(np.count_nonzero(integers))
        self._overlap = items / census.summed
        details = {
            "form": "sketch",
            "index": "bitmap" if chosen.filter is None else "bloom",
            "union": items,
            "union_expected": self.expected_union(census),
            "false_positives": listed.size - items,
            "hashing": "coupled" if layout.coupled else "plain",
            "hashes": layout.hashes,
            "rows": layout.rows,
            "lanes": layout.lanes,
            "cells_per_item": layout.cells / max(items, 1),
            "index_bits": 32 * index.size,
            "stalled_items": kernels.popcount(missing),
            "repair_words": asked,
            "repair_rounds": int(asked > 0),
        }
        return Total(integers, details, listed)

    def _repair(
        self,
        contribution: Contribution,
        found: tuple[Ints, Ints],
        missing: Ints,
        summed: Ints,
        chosen: Plan,
    ) -> Generator[list[Segment], list[Ints], int]:
        """Ask for as many of the missing items as it takes to peel the others; fill them in.

        Every value asked for is a further row of the sketch, one that holds a single item. Such a
        row is as good as one with several, and it is known beforehand that they suffice: there are
        never more than missing items, and usually far fewer.

        Returns:
            How many words it took.
        """
        kernels, size, layout = self.context.kernels, contribution.size, chosen.layout
        asked = kernels.lhc_unlock(missing, size, layout)
        places = kernels.expand(asked, size)
        (answer,) = yield [Segment(Operation.SUM, _at(contribution, places))]
        listed, integers = found
        integers[np.searchsorted(listed, places)] = answer
        _, known = kernels.lhc_encode(listed, integers, size, layout)
        (late, rest), left = kernels.lhc_peel(missing & ~asked, summed - known, size, layout)
        assert not left.any(), "what was asked for must suffice"
        integers[np.searchsorted(listed, late)] = rest
        return int(places.size)


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
