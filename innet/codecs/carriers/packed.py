"""Carrier ``packed``: several small integers in a word, in lanes that do not carry."""

from __future__ import annotations

from innet.codecs.carriers.dense import sum_integers
from innet.codecs.parts import (
    INT32,
    SMALL_INTEGERS,
    Capabilities,
    Carrier,
    CarrySteps,
    Contribution,
    Ints,
    Selection,
    Stopwatch,
    Total,
)
from innet.core.reduce_op import Segment
from innet.core.settings import Settings


class Packed(Carrier[Settings]):
    """As ``dense`` or, if all workers select the same coordinates, as ``shared``; but several
    integers share a word, as many as the sum of all workers leaves room for.

    The quantizer declares that no integer is larger than B in magnitude. Sums over N workers are at
    most N · B. A lane has the bits of such a sum and its sign. floor(32 / bits) lanes share a word,
    as digits share a number: a word is the sum of its integers times powers of 2**bits. No digit of
    a sum reaches 2**(bits - 1). So no lane overflows into another and no word leaves int32, for any
    number of added workers. The switch adds words and does not know of lanes.

    Every quantizer keeps N · B below 2**31, so there is always at least one lane. More workers
    leave fewer lanes; with one lane the form is the dense one.
    """

    name = "packed"
    scatters = True
    capabilities = Capabilities(
        wraps=True,
        requires={
            INT32: "the switch adds 32-bit integers.",
            SMALL_INTEGERS: "integers that fill a word leave nothing to pack; use carrier 'dense'.",
        },
        rounds=(0, 1),
        index="none",
    )

    def announce(self, selection: Selection, workers: int) -> list[Segment]:
        del selection, workers  # its size follows from what all know
        return []

    def carry(
        self, contribution: Contribution, answers: list[Ints], workers: int, watch: Stopwatch
    ) -> CarrySteps:
        del answers
        kernels, indices = self.context.kernels, contribution.indices
        assert contribution.bound is not None, "what is small has a bound"
        bits = bits_of_sum(contribution.bound, workers)
        lanes = 32 // bits
        integers = contribution.integers
        if indices is not None and not contribution.shared:
            integers, indices = kernels.scatter(indices, integers, contribution.size), None
        pack = (
            lambda each: kernels.pack(each, lanes, bits),
            lambda words, count: kernels.unpack(words, count, lanes, bits),
        )
        total = yield from sum_integers(contribution, integers, indices, watch, pack)
        return Total(total, {"form": "packed", "lanes": lanes, "lane_bits": bits}, indices)


def bits_of_sum(largest: int, workers: int) -> int:
    """The bits, with the sign, of a sum of so many integers of such a magnitude."""
    return (workers * largest).bit_length() + 1
