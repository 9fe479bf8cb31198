"""Carrier ``packed``: several small integers in a word, in lanes that do not carry."""

from __future__ import annotations

from innet.codecs.capabilities import INT32, SMALL, Capabilities
from innet.codecs.parts import Carrier, Contribution, Ints, Rounds, Selection, Total
from innet.codecs.stopwatch import Stopwatch
from innet.config import Settings
from innet.words import Operation, Segment


class Packed(Carrier[Settings]):
    """As ``dense`` or, where all workers mean the same coordinates, as ``shared``; but with as many
    integers in a word as the sum of all workers leaves room for.

    The quantiser says between which bounds low <= 0 <= high its integers q lie. A lane holds q -
    low, from 0 to high - low, and after the sum over N workers at most S = N · (high - low). It has
    the bits of S, so that no lane carries into the next; floor(32 / bits) lanes share a word, which
    as an unsigned number stays below 2**32. The switch adds words and knows nothing of lanes:
    modulo 2**32 its sum of signed words has the same bits. From a lane of the sum N · low is added.

    Every quantiser keeps N · (high - low) below 2**32, so there is always one lane: the more
    workers, the fewer lanes, and in the end the form is the dense one.
    """

    name = "packed"
    capabilities = Capabilities(
        requires={
            INT32: "the switch adds 32-bit integers.",
            SMALL: "integers that fill a word leave nothing to pack; use carrier 'dense'.",
        },
        rounds=(0, 1),
        index="none",
    )

    def announce(self, selection: Selection, workers: int) -> list[Segment]:
        del selection, workers  # its size follows from what all know
        return []

    def carry(
        self, contribution: Contribution, answers: list[Ints], workers: int, watch: Stopwatch
    ) -> Rounds:
        del answers
        kernels, indices = self.context.kernels, contribution.indices
        assert contribution.bounds is not None, "what is small has bounds"
        low, high = contribution.bounds
        bits = (workers * (high - low)).bit_length()
        lanes = 32 // bits
        integers = contribution.integers
        if indices is not None and not contribution.shared:
            integers, indices = kernels.scatter(indices, integers, contribution.size), None
        (summed,) = yield [Segment(Operation.SUM, kernels.pack(integers, low, lanes, bits))]
        watch.enter("decode")
        total = kernels.unpack(summed, workers * low, integers.size, lanes, bits)
        if indices is not None:
            total = kernels.scatter(indices, total, contribution.size)
        return Total(total, {"form": "packed", "lanes": lanes, "lane_bits": bits})
