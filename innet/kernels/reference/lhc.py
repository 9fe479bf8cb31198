"""The lossless homomorphic sketch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.kernels.arrays import Ints
from innet.kernels.layout.hashing import GOLDEN, mix
from innet.kernels.layout.lhc import SketchLayout
from innet.kernels.reference.bitmap import bitmap_of, bitmap_to_indices, scatter


def lhc_encode(
    indices: Ints | None, integers: Ints, size: int, layout: SketchLayout, /
) -> tuple[Ints, Ints]:
    """See ``innet.kernels.Kernels.lhc_encode``."""
    dense = integers if indices is None else scatter(indices, integers, size)
    items = np.flatnonzero(dense)
    sketch = np.zeros(layout.cells, np.uint32)
    cells, negative = _places(items, layout)
    for j in range(layout.hashes):
        words = dense[items].view(np.uint32)
        # The unsigned type wraps around without a warning, as the switch's adder does.
        np.add.at(sketch, cells[j], np.where(negative[j], np.uint32(0) - words, words))
    return bitmap_of(items, size), sketch.view(np.int32)


def lhc_occupancy(bitmap: Ints, size: int, layout: SketchLayout, /) -> Ints:
    """See ``innet.kernels.Kernels.lhc_occupancy``."""
    cells, _ = _places(bitmap_to_indices(bitmap, size), layout)
    return np.bincount(cells.ravel(), minlength=layout.cells).astype(np.int32)


def lhc_peel(
    bitmap: Ints, sketch: Ints, size: int, layout: SketchLayout, /
) -> tuple[tuple[Ints, Ints], Ints]:
    """See ``innet.kernels.Kernels.lhc_peel``."""
    total, missing, _ = peel_rounds(bitmap, sketch, size, layout)
    items = bitmap_to_indices(bitmap, size)
    return (items, total[items]), missing


def peel_rounds(
    bitmap: Ints, sketch: Ints, size: int, layout: SketchLayout, /
) -> tuple[Ints, Ints, int]:
    """The integers, shape (size,), what is missing, and the number of rounds, if each round peels
    all elements that can be peeled.
    """
    total = np.zeros(size, np.uint32)
    rest = sketch.copy().view(np.uint32)
    items = bitmap_to_indices(bitmap, size).astype(np.int64)
    cells, negative = _places(items, layout)
    pending = np.ones(items.size, np.bool_)
    rounds = 0
    while True:
        occupancy = np.bincount(cells[:, pending].ravel(), minlength=layout.cells)
        alone = pending & (occupancy[cells] == 1).any(axis=0)
        if not alone.any():
            break
        rounds += 1
        chosen = np.flatnonzero(alone)
        part = np.argmax(occupancy[cells[:, chosen]] == 1, axis=0)
        found = rest[cells[part, chosen]]
        value = np.where(negative[part, chosen], np.uint32(0) - found, found)
        total[items[chosen]] = value
        for j in range(layout.hashes):
            signed = np.where(negative[j, chosen], np.uint32(0) - value, value)
            np.subtract.at(rest, cells[j, chosen], signed)
        pending[chosen] = False
    return total.view(np.int32), bitmap_of(items[pending], size), rounds


def lhc_unblock(bitmap: Ints, size: int, layout: SketchLayout, /) -> Ints:
    """See ``innet.kernels.Kernels.lhc_unblock``."""
    left = bitmap.copy()
    asked: list[int] = []
    nothing = np.zeros(layout.cells, np.int32)
    while True:
        _, left = lhc_peel(left, nothing, size, layout)
        items = bitmap_to_indices(left, size)
        if not items.size:
            return bitmap_of(np.array(asked, np.int64), size)
        asked.append(int(items[0]))
        left = bitmap_of(items[1:].astype(np.int64), size)


def _places(
    items: NDArray[np.int64] | Ints, layout: SketchLayout
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Cells of the items, shape (hashes, items), and where they are negated, of the same shape."""
    block, lane = np.divmod(items.astype(np.uint64), np.uint64(layout.lanes))
    z0 = mix(block * GOLDEN + np.uint64(layout.seed))
    z1 = mix(z0 + GOLDEN)
    z2 = mix(z1 + GOLDEN)
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    segment = (z0 & low) * np.uint64(layout.starts) >> high
    halves = (z1 & low, z1 >> high, z2 & low, z2 >> high)
    cells, negative = [], []
    for j in range(layout.hashes):
        row = (segment + np.uint64(j)) * np.uint64(layout.part)
        row += halves[j] * np.uint64(layout.part) >> high
        turn = (z0 >> np.uint64(36 + 7 * j)) % np.uint64(128)
        column = (lane + turn) % np.uint64(layout.lanes)
        cells.append((row * np.uint64(layout.lanes) + column).astype(np.int64))
        negative.append((z0 >> np.uint64(32 + j)) & np.uint64(1) == 1)
    return np.stack(cells), np.stack(negative)
