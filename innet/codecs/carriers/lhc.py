"""Carrier ``lhc``: the lossless homomorphic sketch, which needs no agreement on indices.

Li et al., "Accelerating distributed deep learning using lossless homomorphic compression", 2024,
arXiv 2402.07529. Each worker sends an index of its non-zero elements, a bitmap or a Bloom filter,
which the network combines by OR, and a sketch of them, which it sums. The index of the union shows
which elements each cell of the summed sketch holds. A cell with one element gives its value, which
is subtracted from the element's other cells, and so on until all elements are known (peeling).

Differences with the paper: integers instead of floats, so the result is exact in every order of the
sum; a separate index instead of a bit of each value; rows of an element that cannot coincide, in
neighboring segments if that takes fewer cells; lanes that are connected
(``innet.kernels.layout.lhc``). If a peel stalls, the workers exchange the items that it needs to
continue, instead of estimating them.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from innet.codecs.carriers.dense import sum_dense
from innet.codecs.carriers.sketch_sizing import LhcSettings, SketchSizing, size_sketch
from innet.codecs.carriers.support_size import SupportSize, SupportSizeCarrier
from innet.codecs.decode_once import current_decoding
from innet.codecs.parts import (
    INT32,
    KEEPS_ZEROS,
    Capabilities,
    CarrySteps,
    Contribution,
    Ints,
    Stopwatch,
    Total,
)
from innet.core.reduce_op import ReduceOp, Segment


class Lhc(SupportSizeCarrier[LhcSettings]):
    """Lossless for any support; saves most if the union of the supports is sparse.

    There are three forms; the one with the fewest words is sent: a sketch and an index; a *list* of
    the integers, if all workers' indices are the same; or all integers, *densely*.

    Overflows of cells do no harm. Cells are added modulo 2**32, and an element's value is a signed
    sum of cells and elements modulo 2**32. The quantizer keeps an element's sum over the workers in
    the range of int32, where integers that are equal modulo 2**32 are the same. So a cell's true
    sum may leave the range.
    """

    name = "lhc"
    capabilities = Capabilities(
        wraps=True,
        requires={
            INT32: "the cells of the sketch are 32-bit integers.",
            KEEPS_ZEROS: "its sketch saves what is zero, and must know where that is.",
        },
        fixed_size=False,
        rounds=(0, 2),
        index="bitmap, Bloom filter or none",
        metadata="at most ceil(d / 32) + 2",
    )
    settings = LhcSettings

    def carry(
        self, contribution: Contribution, answers: list[Ints], workers: int, watch: Stopwatch
    ) -> CarrySteps:
        size, support_size = contribution.size, self.support_size(contribution, answers, workers)
        if not support_size.summed:
            return Total.zero()
        chosen = self.sizing(support_size)
        listed = self._listed(contribution)
        least = min(size if chosen is None else chosen.words, size if listed is None else listed)
        if listed == least:
            return (yield from self._carry_list(contribution, watch))
        if chosen is not None:
            return (yield from self._carry_sketch(contribution, support_size, chosen, watch))
        total = yield from sum_dense(contribution, self.context.kernels, watch)
        # Sums that cancelled out are missing here: few, and the margin has room for them.
        details = {"form": "dense", "union_expected": self.expected_union(support_size)}
        self._overlap = int(np.count_nonzero(total)) / support_size.summed
        return Total(total, details)

    def sizing(self, support_size: SupportSize) -> SketchSizing | None:
        """Size and hashes of the next sketch; None where the dense form takes no more words."""
        return size_sketch(
            self.expected_union(support_size), support_size.size, self.parameters, self.seed()
        )

    def _listed(self, contribution: Contribution) -> int | None:
        """How many words a list takes; None where it cannot be sent."""
        known = contribution.shared and contribution.indices is not None
        return contribution.integers.size if known and self.parameters.index == "auto" else None

    def _carry_list(self, contribution: Contribution, watch: Stopwatch) -> CarrySteps:
        assert contribution.indices is not None
        (summed,) = yield [Segment(ReduceOp.SUM, contribution.integers)]
        watch.enter("decode")
        return Total(summed, {"form": "list", "items": summed.size}, contribution.indices)

    def _carry_sketch(
        self,
        contribution: Contribution,
        support_size: SupportSize,
        chosen: SketchSizing,
        watch: Stopwatch,
    ) -> CarrySteps:
        kernels, size, layout = self.context.kernels, contribution.size, chosen.layout
        bitmap, sketch = kernels.lhc_encode(
            contribution.indices, contribution.integers, size, layout
        )
        index = bitmap
        if chosen.filter is not None:
            index = kernels.bloom_insert(bitmap, chosen.filter)
        self._sketches += 1
        union, summed = yield [Segment(ReduceOp.OR, index), Segment(ReduceOp.SUM, sketch)]
        watch.enter("decode")

        def peel() -> tuple[Ints, ...]:
            items = union
            if chosen.filter is not None:
                items = kernels.bloom_query(union, size, chosen.filter)
            found, missing = kernels.lhc_peel(items, summed, size, layout)
            # Others get a copy of this, and there is mostly nothing missing.
            return *found, missing if missing.any() else missing[:0]

        once = self.context.decoding or current_decoding()
        if once is None:
            listed, integers, missing = peel()
        else:
            how = (size, layout, chosen.filter)
            listed, integers, missing = once(
                how, (union, summed), peel, lambda found: _is_peeled(found, size)
            )
        asked, stalled = 0, kernels.popcount(missing)
        if stalled:
            asked = yield from self._repair(
                contribution, (listed, integers), missing, summed, chosen
            )
        # What passes a filter by mistake is zero; so are sums that cancelled out, which are few.
        items = listed.size if chosen.filter is None else int(np.count_nonzero(integers))
        self._overlap = items / support_size.summed
        details = {
            "form": "sketch",
            "index": "bitmap" if chosen.filter is None else "bloom",
            "union": items,
            "union_expected": self.expected_union(support_size),
            "false_positives": listed.size - items,
            "hashing": "coupled" if layout.coupled else "plain",
            "hashes": layout.hashes,
            "rows": layout.rows,
            "lanes": layout.lanes,
            "cells_per_item": layout.cells / max(items, 1),
            "index_bits": 32 * index.size,
            "stalled_items": stalled,
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
        chosen: SketchSizing,
    ) -> Generator[list[Segment], list[Ints], int]:
        """Exchange as many of the missing items as the peel of the others needs; fill them in.

        Every exchanged value acts as one more cell of the sketch, with a single item. It is known
        beforehand that these values suffice. There are at most as many as missing items, usually
        far fewer.

        Returns:
            How many words it took.
        """
        kernels, size, layout = self.context.kernels, contribution.size, chosen.layout
        asked = kernels.lhc_unblock(missing, size, layout)
        indices = kernels.bitmap_to_indices(asked, size)
        if contribution.indices is None:
            local = kernels.gather_blocks(contribution.integers, indices, 1)
        else:
            local = kernels.gather_sparse(contribution.indices, contribution.integers, indices)
        (answer,) = yield [Segment(ReduceOp.SUM, local)]
        listed, integers = found
        integers[np.searchsorted(listed, indices)] = answer
        _, known = kernels.lhc_encode(listed, integers, size, layout)
        (late, rest), left = kernels.lhc_peel(missing & ~asked, summed - known, size, layout)
        assert not left.any(), "what was asked for must suffice"
        integers[np.searchsorted(listed, late)] = rest
        return int(indices.size)


def _is_peeled(found: tuple[Ints, ...], size: int) -> bool:
    """Whether arrays can be what ``lhc_peel`` returns for so many elements."""
    if len(found) != 3:
        return False
    listed, integers, missing = found
    if listed.size != integers.size or missing.size not in {0, -(-size // 32)}:
        return False
    return not listed.size or bool(listed.min() >= 0 and listed.max() < size)
