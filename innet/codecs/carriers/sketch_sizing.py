"""The size of a lossless sketch and its index: the parameters of ``lhc``, and the sizing.

All inputs are known to all workers. The computation has only sums, products, quotients and square
roots, because other functions of floats differ between machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, field_validator

from innet.codecs.carriers.support_size import SupportSizeSettings
from innet.kernels import Filter, SketchLayout
from innet.kernels.layout.bloom import MAX_PROBES, MAX_WORDS
from innet.kernels.layout.lhc import HASHES, MAX_LANES

# A plain sketch of up to this number of cells stays in a core's own cache, where lanes save no
# time; without them every element is hashed by itself, and a small sketch has no room to waste on
# shared fates.
_NARROW_CELLS = 1 << 16
_WIDE_LANES = 16  # 16 lanes of 4 bytes are a cache line
# Cells per item from which plain peeling succeeds for infinitely many items, and a little more.
_PLAIN = {3: 1.23, 4: 1.31}
# Coupled hashing: items, cells per item, segments. Simulated (benchmarks/stalls.py): fewer than 1 %
# of sketches stall. Between these the numbers are interpolated, which errs on the safe side.
_COUPLED = {
    3: ((10_000, 1.31, 12), (100_000, 1.25, 36), (1_000_000, 1.15, 126)),
    4: (
        (1_000, 1.40, 22), (3_000, 1.29, 30), (10_000, 1.215, 47), (30_000, 1.165, 68),
        (100_000, 1.13, 110), (300_000, 1.10, 160), (1_000_000, 1.079, 400),
    ),
}  # fmt: skip
_CELLS = 1.2  # about this number for each item; what a filter is chosen by
_FEWEST = 1_000  # items; with fewer, too much of a coupled sketch is its boundary


class LhcSettings(SupportSizeSettings):
    """How the sketch is hashed and sized, and which index is sent with it.

    Attributes:
        hashing: "plain" rows anywhere in each part of the sketch; "coupled" rows in neighboring
            segments, which needs fewer cells from some thousand items on, and peels faster; "auto"
            is the one of fewer cells.
        hashes: cells of an element, 3 or 4; by default the number that needs fewer cells.
        cells_per_item: cells for each item, that is for each non-zero element of the union; by
            default what the hashing needs so that stalls are rare.
        spread: in plain sketches, cells added for each square root of the number of items, for the
            random variation.
        pair_stalls: in plain sketches, the accepted probability that two items share all their
            cells, which decides the size of small ones.
        lanes: elements that share a hash, a power of two; by default 16 in plain sketches too large
            for a core's cache, else 1. The sketch has room for supports that consist of whole
            blocks of lanes.
        index: "bitmap", a bit for each element; "bloom", a Bloom filter, whose false positives are
            items of value zero; "auto", the one with fewer words. If all workers select the same
            indices, there is neither an index nor a sketch.
        remember: expect the workers' supports to overlap as last time. Otherwise they are taken to
            be disjoint.
        margin: by how much the union may exceed what the remembered overlap predicts.
        seed: of the hashes; by default that of the codec. The same on all workers.
    """

    hashing: Literal["auto", "plain", "coupled"] = "auto"
    hashes: Literal[3, 4] | None = None
    cells_per_item: Annotated[float, Field(gt=0, le=100)] | None = None
    spread: Annotated[float, Field(ge=0, le=100)] = 3.0
    pair_stalls: Annotated[float, Field(gt=0, le=1)] = 0.006
    lanes: Annotated[int, Field(ge=1, le=MAX_LANES)] | None = None
    index: Literal["auto", "bitmap", "bloom"] = "auto"

    @field_validator("lanes")
    @classmethod
    def _power_of_two(cls, lanes: int | None) -> int | None:
        if lanes is not None and lanes & (lanes - 1):
            raise ValueError("lanes must be a power of two")
        return lanes


@dataclass(frozen=True, slots=True)
class SketchSizing:
    """A sketch and its index.

    Attributes:
        layout: of the sketch.
        filter: the Bloom filter that is the index; None for a bitmap.
        words: of both together.
    """

    layout: SketchLayout
    filter: Filter | None
    words: int


def size_sketch(items: int, size: int, settings: LhcSettings, seed: int) -> SketchSizing | None:
    """The sketch and the index of the fewest words; None where they take ``size`` words or more.

    Args:
        items: how many the union is expected to have.
        size: integers of the whole contribution, at least 1.
        settings: what may be chosen.
        seed: of this sketch.
    """
    sizings = []
    if settings.index != "bloom" and (layout := sketch_layout(items, settings, seed)):
        sizings.append(SketchSizing(layout, None, layout.cells + -(-size // 32)))
    if settings.index != "bitmap" and (filtered := bloom_filter(items, size, seed, _CELLS)):
        shape, candidates = filtered
        if layout := sketch_layout(candidates, settings, seed):
            sizings.append(SketchSizing(layout, shape, layout.cells + shape.words))
    least = min(sizings, key=lambda each: each.words, default=None)
    return least if least is not None and least.words < size else None


def sketch_layout(items: int, settings: LhcSettings, seed: int) -> SketchLayout | None:
    """The smallest sketch that peels these items with few stalls; None if too large."""
    layouts = []
    for hashes in HASHES if settings.hashes is None else (settings.hashes,):
        if settings.hashing != "coupled":
            layouts.append(_plain(items, hashes, settings, seed))
        if settings.hashing == "coupled" or (
            settings.hashing == "auto" and items >= _FEWEST * (settings.lanes or 1)
        ):
            layouts.append(_coupled(items, hashes, settings, seed))
    fitting = [each for each in layouts if each is not None]
    return min(fitting, key=lambda each: each.cells, default=None)


def _plain(items: int, hashes: int, settings: LhcSettings, seed: int) -> SketchLayout | None:
    """The larger of two needs. For many items: the threshold of peeling, plus the variation around
    it, whose share falls with the square root of the number of items. In the worst case all lanes
    of a block are items and stall together, so blocks are counted instead of items. For few items:
    none of the items·(items - 1) / 2 pairs should share all their cells.
    """
    per_item = settings.cells_per_item or _PLAIN[hashes]
    part = _root(items * (items - 1) / 2 / settings.pair_stalls, hashes)
    lanes = settings.lanes or 1
    while True:
        cells = per_item * items + settings.spread * math.sqrt(items * lanes)
        cells = max(math.ceil(cells), hashes * part)
        if cells <= _NARROW_CELLS or settings.lanes or lanes == _WIDE_LANES:
            return _layout(cells, hashes, 1, lanes, seed)
        lanes = _WIDE_LANES


def _coupled(items: int, hashes: int, settings: LhcSettings, seed: int) -> SketchLayout | None:
    """As simulated, for the items; with lanes, for the blocks, all lanes of which may be items."""
    lanes = settings.lanes or 1
    blocks = -(-items // lanes)
    per_item, segments = _interpolated(_COUPLED[hashes], blocks)
    cells = lanes * math.ceil((settings.cells_per_item or per_item) * blocks)
    return _layout(cells, hashes, max(2, segments - hashes + 1), lanes, seed)


def _layout(cells: int, hashes: int, starts: int, lanes: int, seed: int) -> SketchLayout | None:
    """At least this number of cells; None where an index would not fit an int32."""
    segments = starts + hashes - 1
    part = max(1, -(-cells // (segments * lanes)))
    if part * segments * lanes >= 2**31:
        return None
    return SketchLayout(part, lanes, seed, hashes, starts)


def _interpolated(table: tuple[tuple[int, float, int], ...], items: int) -> tuple[float, int]:
    """Cells per item and segments for a number of items; outside the table, those at its ends."""
    last = table[0]
    if items < last[0]:
        # With fewer items each segment would be so small that the numbers in it vary too much.
        more = 12 * (1 / math.sqrt(max(items, 1)) - 1 / math.sqrt(last[0]))
        return last[1] + more, max(last[2] // 2, 6)
    for entry in table[1:]:
        if items <= entry[0]:
            way = (items - last[0]) / (entry[0] - last[0])
            return last[1] + way * (entry[1] - last[1]), round(last[2] + way * (entry[2] - last[2]))
        last = entry
    return last[1], last[2]


def bloom_filter(items: int, size: int, seed: int, cost: float) -> tuple[Filter, int] | None:
    """The Bloom filter that takes the fewest words, with ``cost`` words for each element that
    passes, and how many elements are expected to pass it; None if it would be too large.

    With k probes and half of the bits set it has items · k / ln 2 bits, and one in 2**k of the
    other elements passes. Some standard deviations of
    their number are added: eight and a half for random supports. If the union consists of whole
    blocks of 32, others pass by whole blocks, too, and this is one and a half standard deviations.
    """
    best: tuple[float, int, int, int] | None = None
    for probes in range(1, MAX_PROBES + 1):
        words = max(1, math.ceil(items * probes / (32 * 0.6931471805599453)))
        false = max(0, size - items) / 2**probes
        candidates = items + math.ceil(false + 8.5 * math.sqrt(false))
        expected = words + cost * candidates
        if best is None or expected < best[0]:
            best = expected, words, probes, min(candidates, size)
    assert best is not None
    _, words, probes, candidates = best
    if words > MAX_WORDS:
        return None
    # Another seed than the sketch's: who passes the filter must not share cells.
    return Filter(words, probes, seed ^ 0x5851F42D4C957F2D), candidates


def _root(x: float, degree: int) -> int:
    """The least integer whose power of that degree reaches x."""
    low, high = 0, 1
    while high**degree < x:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if middle**degree >= x else (middle, high)
    return high if x > 0 else 0
