"""Ternary tables as arrays: entries by their masks.

All entries of one mask are found by one hash of the masked key, so that a look-up costs as much as
there are different masks, whatever the number of entries (tuple space search: Srinivasan, Suri and
Varghese, "Packet Classification using Tuple Space Search", SIGCOMM 1999). Masks stand in the order
of the best entry that they have, and the search ends at the first whose best is not better than
what was found. One hash table serves all masks: the number of the mask is part of the key.

Where there are few entries to a mask, a scan in the order of precedence is faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch.hash_index import Words, all_hashed, placed

#: So many entries are scanned in the time that a hashed look-up under one mask takes.
_SCANNED = 4


def mask_arrays(values: Words, masks: Words) -> list[NDArray[Any]]:
    """The arguments of ``runtime_masks.find_masked``, from the words of entries in the order of
    precedence.

    ``values`` (entries x words) and ``masks`` (the same) when they are to be scanned. Else no
    ``values``, and ``masks`` (different masks x words), ``best`` entry per mask, ``keys`` (entries
    x number of the mask and words), and the slots of a hash table of entries: ``rows``. Entries
    count from 1.
    """
    nothing = np.zeros(0, np.uint64)
    different, first, number = np.unique(masks, axis=0, return_index=True, return_inverse=True)
    if len(values) <= _SCANNED * len(different):
        arrays = [values, masks, nothing, nothing]
        return [*map(_as_emitted, arrays), np.zeros(0, np.uint32)]
    order = np.argsort(first)
    numbers = np.argsort(order)[number.reshape(-1)]
    keyed = np.column_stack((numbers.astype(np.uint64), values))
    _, kept = np.unique(keyed, axis=0, return_index=True)
    slots = 1 << (2 * len(kept)).bit_length()
    wanted = all_hashed(keyed[kept], 0) & np.uint64(slots - 1)
    rows = placed(kept + 1, wanted, slots)
    return [*map(_as_emitted, (nothing, different[order], first[order] + 1, keyed)), rows]


def _as_emitted(words: NDArray[Any]) -> NDArray[np.int64]:
    return np.ascontiguousarray(words).view(np.int64)
