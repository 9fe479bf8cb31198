"""Naive kernels: the oracle. Written to be checked by reading; see ``innet.kernels`` for what each
must do. Slow on purpose wherever speed would cost clarity.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.kernels.arrays import Floats, Ints
from innet.kernels.layout.lhc import SketchLayout
from innet.kernels.reference.blocks import block_bitmap, gather_blocks, scatter_blocks  # noqa: F401
from innet.kernels.reference.bloom import bloom_fill, bloom_members  # noqa: F401 - of this set too
from innet.kernels.reference.count_sketch import count_estimate, count_sketch  # noqa: F401 - of this set too
from innet.kernels.reference.hadamard import (  # noqa: F401
    block_squares,
    hadamard,
    hadamard_back,
    quantise_to_table,
)
from innet.kernels.reference.limbs import grain, join, split  # noqa: F401 - kernels of this set
from innet.kernels.reference.low_rank import factor_product, project_columns, project_rows  # noqa: F401
from innet.kernels.reference.packing import pack, unpack  # noqa: F401 - kernels of this set
from innet.kernels.reference.statistics import moments, product, smallest  # noqa: F401 - as above

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def survey(x: Floats, /) -> tuple[int, int, int]:
    """See ``innet.kernels.Kernels.survey``."""
    bad = np.flatnonzero(~np.isfinite(x))
    largest = np.max(np.abs(x), initial=np.float32(0))
    return (
        int(np.float32(largest).view(np.int32)),
        int(np.count_nonzero(x)),
        int(bad[0]) if bad.size else -1,
    )


def survey_and_pick(x: Floats, most: int, /) -> tuple[int, int, int, tuple[Ints, Floats] | None]:
    """See ``innet.kernels.Kernels.survey_and_pick``."""
    indices = np.flatnonzero(x).astype(np.int32)
    return *survey(x), (indices, x[indices]) if indices.size <= most else None


def top_k(x: Floats, k: int, /) -> tuple[Ints, Floats]:
    """See ``innet.kernels.Kernels.top_k``."""
    # By their bits, in which a NaN is larger than infinity.
    descending = np.argsort(-np.abs(x).view(np.int32), kind="stable")
    indices = np.sort(descending[:k])
    return indices.astype(np.int32), x[indices]


def add_scaled(x: Floats, y: Floats, weight: float, /) -> tuple[Floats, int]:
    """See ``innet.kernels.Kernels.add_scaled``."""
    with np.errstate(over="ignore"):
        total = x + np.float32(weight) * y
    return total, survey(total)[0]


def low_pass(
    memory: Floats, gradient: Floats, weight: float, indices: Ints, taken: Floats, /
) -> tuple[Floats, Floats, int]:
    """See ``innet.kernels.Kernels.low_pass``."""
    kept = taken.copy()
    stays = np.float32(1) - np.float32(weight)
    kept[indices] = stays * memory[indices] + np.float32(0)
    sums, _ = add_scaled(memory[indices], gradient[indices], 1.0)
    return kept, sums, survey(kept[indices])[0]


def top_k_residual(gradient: Floats, residual: Floats, k: int, /) -> tuple[Ints, Floats, Floats]:
    """See ``innet.kernels.Kernels.top_k_residual``."""
    rest, _ = add_scaled(residual, gradient, 1.0)
    indices, values = top_k(rest, k)
    rest[indices] = 0
    return indices, values, rest


def reaching(x: Floats, threshold: float, /) -> tuple[Ints, Floats]:
    """See ``innet.kernels.Kernels.reaching``."""
    indices = np.flatnonzero(~(np.abs(x).astype(np.float64) < threshold))
    return indices.astype(np.int32), x[indices]


def reaching_residual(
    gradient: Floats, residual: Floats, threshold: float, /
) -> tuple[Ints, Floats, Floats]:
    """See ``innet.kernels.Kernels.reaching_residual``."""
    rest, _ = add_scaled(residual, gradient, 1.0)
    indices, values = reaching(rest, threshold)
    rest[indices] = 0
    return indices, values, rest


def chunk_largest(x: Floats, chunk: int, /) -> Ints:
    """See ``innet.kernels.Kernels.chunk_largest``."""
    starts = range(0, x.size, chunk)
    return np.array([i + np.argmax(np.abs(x[i : i + chunk])) for i in starts], np.int32)


def chunk_largest_sum(x: Floats, y: Floats, chunk: int, /) -> Ints:
    """See ``innet.kernels.Kernels.chunk_largest_sum``."""
    return chunk_largest(add_scaled(x, y, 1.0)[0], chunk)


def reaching_maxima(
    x: Floats, gradient: Floats, weight: float, chunk: int, /
) -> tuple[Ints, Floats]:
    """See ``innet.kernels.Kernels.reaching_maxima``."""
    h = np.abs(x + gradient.astype(np.float64) * weight)
    maxima = np.abs(x[chunk_largest(x, chunk)])
    least = maxima[np.arange(x.size) // chunk]
    return np.flatnonzero((h >= least) & (least > 0)).astype(np.int32), maxima


def quantize(x: Floats, scale: float, /) -> Ints:
    """See ``innet.kernels.Kernels.quantize``."""
    return np.rint(x.astype(np.float64) * scale).astype(np.int32)


def quantise_randomly(x: Floats, scale: float, key: int, /) -> Ints:
    """See ``innet.kernels.Kernels.quantise_randomly``."""
    finest = (np.abs(x).astype(np.float64) * (scale * 2.0**32)).astype(np.uint64)
    counter = np.arange(1, x.size + 1, dtype=np.uint64)
    chance = _mix(counter * _GOLDEN + np.uint64(key)) >> np.uint64(32)
    magnitudes = ((finest + chance) >> np.uint64(32)).astype(np.int64)
    return np.where(x < 0, -magnitudes, magnitudes).astype(np.int32)


def dequantise(integers: Ints, step: float, /) -> Floats:
    """See ``innet.kernels.Kernels.dequantise``."""
    with np.errstate(over="ignore"):
        return (integers.astype(np.float64) * step).astype(np.float32)


def scatter(indices: Ints, integers: Ints, size: int, /) -> Ints:
    """See ``innet.kernels.Kernels.scatter``."""
    dense = np.zeros(size, np.int32)
    dense[indices] = integers
    return dense


def mark(indices: Ints | None, integers: Ints, size: int, /) -> Ints:
    """See ``innet.kernels.Kernels.mark``."""
    dense = integers if indices is None else scatter(indices, integers, size)
    return _bitmap(np.flatnonzero(dense), size)


def align(indices: Ints, integers: Ints, places: Ints, /) -> Ints:
    """See ``innet.kernels.Kernels.align``."""
    known = dict(zip(indices.tolist(), integers.tolist(), strict=True))
    return np.array([known.get(place, 0) for place in places.tolist()], np.int32)


def popcount(bitmap: Ints, /) -> int:
    """See ``innet.kernels.Kernels.popcount``."""
    return int(_bits(bitmap).sum())


def expand(bitmap: Ints, size: int, /) -> Ints:
    """See ``innet.kernels.Kernels.expand``."""
    return np.flatnonzero(_bits(bitmap)[:size]).astype(np.int32)


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
    return _bitmap(items, size), sketch.view(np.int32)


def lhc_occupancy(bitmap: Ints, size: int, layout: SketchLayout, /) -> Ints:
    """See ``innet.kernels.Kernels.lhc_occupancy``."""
    cells, _ = _places(expand(bitmap, size), layout)
    return np.bincount(cells.ravel(), minlength=layout.cells).astype(np.int32)


def lhc_peel(
    bitmap: Ints, sketch: Ints, size: int, layout: SketchLayout, /
) -> tuple[tuple[Ints, Ints], Ints]:
    """See ``innet.kernels.Kernels.lhc_peel``."""
    total, missing, _ = peel_rounds(bitmap, sketch, size, layout)
    items = expand(bitmap, size)
    return (items, total[items]), missing


def peel_rounds(
    bitmap: Ints, sketch: Ints, size: int, layout: SketchLayout, /
) -> tuple[Ints, Ints, int]:
    """The integers, shape (size,), what is missing, and how many rounds it took when each round
    peels all that can be peeled.
    """
    total = np.zeros(size, np.uint32)
    rest = sketch.copy().view(np.uint32)
    items = expand(bitmap, size).astype(np.int64)
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
    return total.view(np.int32), _bitmap(items[pending], size), rounds


def lhc_unlock(bitmap: Ints, size: int, layout: SketchLayout, /) -> Ints:
    """See ``innet.kernels.Kernels.lhc_unlock``."""
    left = bitmap.copy()
    asked: list[int] = []
    nothing = np.zeros(layout.cells, np.int32)
    while True:
        _, left = lhc_peel(left, nothing, size, layout)
        items = expand(left, size)
        if not items.size:
            return _bitmap(np.array(asked, np.int64), size)
        asked.append(int(items[0]))
        left = _bitmap(items[1:].astype(np.int64), size)


def _bits(bitmap: Ints) -> NDArray[np.bool_]:
    """Shape (32 · words,): element i is bit i of the bitmap."""
    shifts = np.arange(32, dtype=np.uint32)
    return ((bitmap.view(np.uint32)[:, np.newaxis] >> shifts) & 1).astype(np.bool_).ravel()


def _bitmap(items: NDArray[np.int64], size: int) -> Ints:
    words = np.zeros(-(-size // 32), np.uint32)
    np.bitwise_or.at(words, items // 32, np.uint32(1) << (items % 32).astype(np.uint32))
    return words.view(np.int32)


def _places(
    items: NDArray[np.int64] | Ints, layout: SketchLayout
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Cells of the items, shape (hashes, items), and where they are negated, of the same shape."""
    block, lane = np.divmod(items.astype(np.uint64), np.uint64(layout.lanes))
    z0 = _mix(block * _GOLDEN + np.uint64(layout.seed))
    z1 = _mix(z0 + _GOLDEN)
    z2 = _mix(z1 + _GOLDEN)
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


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
