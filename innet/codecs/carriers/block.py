"""Carrier ``block``: blocks that are zero on every worker are left out.

Fei et al., "Efficient sparse collective communication and its application to accelerate
distributed deep learning" (OmniReduce), SIGCOMM 2021, https://doi.org/10.1145/3452296.3472904.

Differences with the paper: there, a worker names with each block the next one that it sends, and
the aggregator asks for the smallest of these. A switch that only combines words cannot do this. So
a separate round combines the workers' bitmaps of non-zero blocks by OR. Then all workers send the
blocks of the union, in order, including blocks that are zero on this worker.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from innet.codecs.carriers.dense import sum_dense
from innet.codecs.parts import (
    INT32,
    ONE_VALUE_PER_WORD,
    Capabilities,
    Carrier,
    CarrySteps,
    Contribution,
    Ints,
    Selection,
    Stopwatch,
    Total,
)
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.settings import Settings


class BlockSettings(Settings):
    """How fine the blocks are.

    Attributes:
        block: integers in a block; the last of a gradient may be shorter.
    """

    block: Annotated[int, Field(ge=1, le=2**20)] = 256


class BlockCarrier(Carrier[BlockSettings]):
    """Saves bytes if zeros are consecutive: rows of an embedding, layers without a gradient.

    Lossless for any support. A gradient of a single block is sent densely, without a bitmap. If no
    block is zero on all workers, the whole gradient follows the bitmap of ceil(d / (32 · block))
    words. So the blocks never take more words than the gradient.
    """

    name = "block"
    capabilities = Capabilities(
        provides=frozenset({ONE_VALUE_PER_WORD}),
        requires={INT32: "the switch adds 32-bit integers."},
        fixed_size=False,
        rounds=(0, 2),
        index="bitmap of blocks",
        metadata="ceil(d / (32 * block))",
    )
    settings = BlockSettings

    def announce(self, selection: Selection, workers: int) -> list[Segment]:
        # Which blocks are zero is known once there are integers: small values round to zero, and
        # a quantizer may make several integers of an element.
        del selection, workers
        return []

    def carry(
        self, contribution: Contribution, answers: list[Ints], workers: int, watch: Stopwatch
    ) -> CarrySteps:
        del answers, workers
        kernels, block, size = self.context.kernels, self.parameters.block, contribution.size
        if size <= block:
            total = yield from sum_dense(contribution, kernels, watch)
            return Total(total, {"form": "dense"})
        integers = contribution.integers
        if contribution.indices is not None:
            integers = kernels.scatter(contribution.indices, integers, size)
        (union,) = yield [Segment(ReduceOp.OR, kernels.block_bitmap(integers, block))]
        blocks = -(-size // block)
        present = kernels.bitmap_to_indices(union, blocks)
        details = {"blocks": blocks, "union_blocks": int(present.size)}
        if present.size == blocks:
            (total,) = yield [Segment(ReduceOp.SUM, integers)]
            watch.enter("decode")
            return Total(total, {"form": "dense", **details})
        if not present.size:  # the values were not zero, and all of them were rounded to zero
            watch.enter("decode")
            return Total(np.zeros(size, np.int32), {"form": "blocks", **details})
        (summed,) = yield [Segment(ReduceOp.SUM, kernels.gather_blocks(integers, present, block))]
        watch.enter("decode")
        total = kernels.scatter_blocks(present, summed, block, size)
        return Total(total, {"form": "blocks", **details})
