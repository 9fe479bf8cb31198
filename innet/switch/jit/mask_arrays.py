"""Ternary tables as arrays: entries by their masks.

All entries of one mask are found by one hash of the masked key, so that a look-up costs as much as
there are different masks, whatever the number of entries (tuple space search: Srinivasan, Suri and
Varghese, "Packet Classification using Tuple Space Search", SIGCOMM 1999). Masks stand in the order
of the best entry that they have, and the search ends at the first whose best is not better than
what was found. One hash table serves all masks: the number of the mask is part of the key.

Where there are few entries to a mask, a scan in the order of precedence is faster.
"""

from __future__ import annotations

import numpy as np

from innet.switch.jit.hash_arrays import Array, place, scatter, wrapped
from innet.switch.jit.keys import KeyWords
from innet.switch.tables import RuntimeEntry

#: So many entries are scanned in the time that a hashed look-up under one mask takes.
_SCANNED = 4


def mask_arrays(packing: KeyWords, entries: list[RuntimeEntry]) -> list[Array]:
    """The arguments of ``runtime_masks.find_masked``; entries are in the order of precedence.

    ``values`` (entries x words) and ``masks`` (the same) when they are to be scanned. Else no
    ``values``, and ``masks`` (different masks x words), ``best`` row per mask, and the hash table:
    ``keys`` (slots x number of the mask and words) and ``rows`` (slots).
    """
    columns = len(packing.words)
    values = wrapped([packing.pack(entry.values) for entry in entries], columns)
    masks = wrapped([packing.pack(entry.masks) for entry in entries], columns)
    nothing = np.zeros(0, np.int64)
    different, first, number = np.unique(masks, axis=0, return_index=True, return_inverse=True)
    if len(entries) <= _SCANNED * len(different):
        return [values, masks, nothing, nothing, nothing]
    order = np.argsort(first)
    numbers = np.argsort(order)[number.reshape(-1)]
    keyed = np.column_stack((numbers, values)).astype(np.int64)
    _, kept = np.unique(keyed, axis=0, return_index=True)
    slots = 1 << (2 * len(kept)).bit_length()
    wanted = scatter(keyed[kept], 0) & (slots - 1)
    keys, rows = place(keyed[kept], kept + 1, wanted, slots)
    return [nothing, different[order], first[order] + 1, keys, rows]
