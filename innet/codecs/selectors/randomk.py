"""Selector ``randomk``: random coordinates, the same on all workers."""

from __future__ import annotations

import hashlib

import numpy as np

from innet.codecs.parts import (
    LEAVES_RESIDUAL,
    SAME_INDICES,
    Capabilities,
    Floats,
    Ints,
    Selector,
    SparseValues,
    StepCounter,
)
from innet.codecs.selectors.topk import DEFAULT_RATIO, TopKSettings, resolve_k
from innet.kernels.layout.hashing import GOLDEN, mix


class RandomK(StepCounter[TopKSettings], Selector[TopKSettings]):
    """All workers select the same k coordinates, redrawn for each all-reduce (Stich, Cordonnier,
    Jaggi: Sparsified SGD with memory, NeurIPS 2018, arXiv 1809.07599).

    No index is sent: the coordinates follow from the seed and the number of the all-reduce. All
    sets of k coordinates are equally probable, but for the 2**-32 by which a multiplication of a
    64-bit random number is off. An all-reduce that fails keeps its number.

    Values are sent as they are. So the preset adds up the others in error feedback ``residual``.
    Without error feedback the expected sum is k / d of the gradients' sum; there is no scaling.
    """

    name = "randomk"
    capabilities = Capabilities(provides=frozenset({SAME_INDICES, LEAVES_RESIDUAL}))
    settings = TopKSettings

    def count(self, size: int) -> int:
        """The k for a gradient of ``size`` elements, counted as in selector ``topk``."""
        return resolve_k(self.parameters, size, DEFAULT_RATIO)

    def select(self, x: Floats) -> SparseValues:
        indices = random_subset(x.size, self.count(x.size), self._key())
        return indices, x[indices]

    def _key(self) -> int:
        digest = hashlib.sha256(f"randomk {self.context.seed} {self._step}".encode()).digest()
        return int.from_bytes(digest[:8], "little")


def random_subset(size: int, count: int, key: int) -> Ints:
    """``count`` different numbers below ``size``, ascending; int32.

    Args:
        size: below 2**31.
        count: at most ``size``.
        key: names the random numbers, 0 .. 2**64 - 1.
    """
    if 2 * count > size:
        # Few are left out, so draw these: distinct numbers are then found with few draws.
        kept = np.ones(size, np.bool_)
        kept[random_subset(size, size - count, key)] = False
        return np.flatnonzero(kept).astype(np.int32)
    found = np.empty(0, np.int64)
    drawn = 0
    while found.size < count:
        # Of numbers in the order of their drawing, keep those that are new.
        more = np.arange(drawn + 1, drawn + count - found.size + 65, dtype=np.uint64)
        drawn += more.size
        high = mix(np.uint64(key) + more * GOLDEN) >> np.uint64(32)
        numbers = (high * np.uint64(size) >> np.uint64(32)).astype(np.int64)
        together = np.concatenate([found, numbers])
        _, first = np.unique(together, return_index=True)
        found = together[np.sort(first)]
    return np.sort(found[:count]).astype(np.int32)
