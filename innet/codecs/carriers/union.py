"""Carrier ``union``: one round combines the indices of all workers, the next sums their values.

``lhc`` sends index and values together; ``union`` sends the values when all workers know the union.
It takes one more round but fewer words, because each element of the union is one word instead of
more than one cell, and nothing is peeled. ``block`` sends the index first, too, and its blocks may
be single integers. But here the index can be a Bloom filter.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from innet.codecs.carriers.dense import sum_dense
from innet.codecs.carriers.sketch_sizing import bloom_filter
from innet.codecs.carriers.support_size import (
    SupportSize,
    SupportSizeCarrier,
    SupportSizeSettings,
)
from innet.codecs.parts import (
    INT32,
    KEEPS_ZEROS,
    ONE_VALUE_PER_WORD,
    Capabilities,
    CarrySteps,
    Contribution,
    Ints,
    Stopwatch,
    Total,
)
from innet.core.reduce_op import ReduceOp, Segment
from innet.kernels import Filter


class UnionSettings(SupportSizeSettings):
    """What the index is.

    Attributes:
        index: "bitmap", a bit for each element; "bloom", a Bloom filter, whose false positives are
            words of value zero; "auto", which of them is expected to take fewer words.
        remember: expect the workers' supports to overlap as last time. Otherwise they are taken to
            be disjoint.
        margin: by how much the union may exceed what the remembered overlap predicts.
        seed: of the hashes; by default that of the codec. The same on all workers.
    """

    index: Literal["auto", "bitmap", "bloom"] = "auto"


class UnionCarrier(SupportSizeCarrier[UnionSettings]):
    """Lossless for any support. The gradient is sent densely if that is expected to take no more
    words. If all workers' indices are the same, only the integers are sent.
    """

    name = "union"
    capabilities = Capabilities(
        provides=frozenset({ONE_VALUE_PER_WORD}),
        requires={
            INT32: "the switch adds 32-bit integers.",
            KEEPS_ZEROS: "its index says what is zero, and must know where that is.",
        },
        fixed_size=False,
        rounds=(0, 2),
        index="bitmap, Bloom filter or none",
        metadata="at most ceil(d / 32) + 2",
    )
    settings = UnionSettings

    def carry(
        self, contribution: Contribution, answers: list[Ints], workers: int, watch: Stopwatch
    ) -> CarrySteps:
        if contribution.shared and contribution.indices is not None:
            (summed,) = yield [Segment(ReduceOp.SUM, contribution.integers)]
            watch.enter("decode")
            details = {"form": "list", "items": summed.size}
            return Total(summed, details, contribution.indices)
        support_size = self.support_size(contribution, answers, workers)
        if not support_size.summed:
            return Total.zero()
        words, shape = self.sizing(support_size)
        if words < support_size.size:
            return (yield from self._carry_union(contribution, support_size, shape, watch))
        total = yield from sum_dense(contribution, self.context.kernels, watch)
        self._overlap = int(np.count_nonzero(total)) / support_size.summed
        return Total(total, {"form": "dense", "union_expected": self.expected_union(support_size)})

    def sizing(self, support_size: SupportSize) -> tuple[int, Filter | None]:
        """How many words index and values are expected to take; the filter, None for a bitmap."""
        items, size, index = (
            self.expected_union(support_size),
            support_size.size,
            self.parameters.index,
        )
        sizings: list[tuple[int, Filter | None]] = []
        if index != "bloom":
            sizings.append((-(-size // 32) + items, None))
        if index != "bitmap" and (found := bloom_filter(items, size, self.seed(), 1.0)):
            shape, candidates = found
            sizings.append((shape.words + candidates, shape))
        # Without either, as no filter may be that large, everything goes densely.
        return min(sizings, key=lambda each: each[0], default=(size, None))

    def _carry_union(
        self,
        contribution: Contribution,
        support_size: SupportSize,
        shape: Filter | None,
        watch: Stopwatch,
    ) -> CarrySteps:
        kernels, size, integers = self.context.kernels, support_size.size, contribution.integers
        index = kernels.nonzero_bitmap(contribution.indices, integers, size)
        if shape is not None:
            index = kernels.bloom_insert(index, shape)
            self._sketches += 1
        (union,) = yield [Segment(ReduceOp.OR, index)]
        if shape is not None:
            union = kernels.bloom_query(union, size, shape)
        indices = kernels.bitmap_to_indices(union, size)
        summed = np.empty(0, np.int32)
        if indices.size:  # else all values were rounded to zero
            if contribution.indices is None:
                local = kernels.gather_blocks(integers, indices, 1)
            else:
                local = kernels.gather_sparse(contribution.indices, integers, indices)
            (summed,) = yield [Segment(ReduceOp.SUM, local)]
        watch.enter("decode")
        # What passes a filter by mistake is zero; so are sums that cancelled out, which are few.
        items = indices.size if shape is None else int(np.count_nonzero(summed))
        self._overlap = items / support_size.summed
        details = {
            "form": "union",
            "index": "bitmap" if shape is None else "bloom",
            "union": items,
            "union_expected": self.expected_union(support_size),
            "false_positives": int(indices.size) - items,
            "index_bits": 32 * index.size,
        }
        return Total(summed, details, indices)
