"""Entries with masks and ranges divided into a tree, so that a search looks at few of them.

A node stands for its entries and all below it. The few entries that reach across the place where a
node is divided stay at it (as in interval trees); where there are many of them, the best entries do
(as in priority search trees: McCreight, SIAM Journal on Computing 14, 1985), so that a search soon
has an entry that most others cannot win against. What nodes say of their entries is in
``cover_arrays``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

#: Nodes with so many entries are not divided.
LEAF = 16
#: So many entries stay at a node that is divided.
KEPT = 6
#: The share of entries that may be left on one side of a division and across it.
_MOST_LEFT = 7 / 8

Numbers = NDArray[np.int32]
Entries = NDArray[np.int64]


@dataclass(slots=True)
class CoverTree:
    """Nodes, each before those below it.

    Args:
        lows, highs: shape (fields, entries), int32: from where to where an entry reaches; the first
            entries win.

    Attributes:
        order: entries, those at a node and below it side by side, its own first, ascending.
        starts: per node, where its entries begin in ``order``.
        skips: per node, the next one that is not below it.
    """

    lows: Numbers
    highs: Numbers
    order: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    skips: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.lows.shape[1]:
            self._add(np.arange(self.lows.shape[1]))

    def _add(self, entries: Entries) -> None:
        """A node of these entries, which ascend, and those below it."""
        node = len(self.starts)
        self.starts.append(len(self.order))
        self.skips.append(0)
        kept, parts = entries, list[Entries]()
        if len(entries) > LEAF:
            kept, parts = _divided(entries, self.lows[:, entries], self.highs[:, entries])
        self.order += kept.tolist()
        for part in sorted(parts, key=lambda part: int(part[0])):
            self._add(part)
        self.skips[node] = len(self.starts)


def _divided(entries: Entries, lows: Numbers, highs: Numbers) -> tuple[Entries, list[Entries]]:
    """The entries that stay, and the parts of the others."""
    ordered = np.sort(lows, axis=1)
    places = [len(entries) * quarter // 4 for quarter in (1, 2, 3)]
    cuts = ordered[:, places, None]
    below = (highs[:, None] < cuts).sum(axis=2)
    across = ((lows[:, None] < cuts) & (highs[:, None] >= cuts)).sum(axis=2)
    above = len(entries) - below - across
    left = np.maximum(below, above) + np.where(across <= KEPT, 0, across)
    chosen, place = np.unravel_index(np.argmin(left), left.shape)
    if left[chosen, place] > _MOST_LEFT * len(entries):
        return _halved(entries, lows, highs, int(chosen))
    cut = cuts[chosen, place]
    side = np.where(highs[chosen] < cut, 0, np.where(lows[chosen] < cut, 1, 2))
    stays = side == 1
    if across[chosen, place] > KEPT:
        stays = np.arange(len(entries)) < KEPT
    parts = [entries[(side == each) & ~stays] for each in range(3)]
    return entries[stays], [part for part in parts if len(part)]


def _halved(
    entries: Entries, lows: Numbers, highs: Numbers, chosen: int
) -> tuple[Entries, list[Entries]]:
    """The best entries, and two halves of the others by where the middle of a field lies."""
    kept, others = entries[:LEAF], entries[LEAF:]
    middles = lows[chosen, LEAF:].astype(np.int64) + highs[chosen, LEAF:]
    order = np.argsort(middles, kind="stable")
    half = len(others) // 2
    parts = [others[np.sort(each)] for each in (order[:half], order[half:])]
    return kept, [part for part in parts if len(part)]
