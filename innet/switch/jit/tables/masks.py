"""Ternary tables as arrays: entries by their masks.

All entries of one mask are found by one hash of the masked key, so that a look-up costs as much as
there are different masks, whatever the number of entries (tuple space search: Srinivasan, Suri and
Varghese, "Packet Classification using Tuple Space Search", SIGCOMM 1999). Masks stand in the order
of the best entry that they have, and the search ends at the first whose best would not win against
what was found. One hash table serves all masks; its slots hold rows of entries, which are compared
where they lie, in ``EntryColumns``.

Where there are few entries to a mask, they are a tree (``cover_arrays``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch.state.entries import EntryColumns
from innet.switch.state.hash_index import all_hashed, all_slots, placed, slots_for

#: Masks with so many entries on the average are worth a hashed look-up each.
_SHARED = 4


def mask_arrays(columns: EntryColumns) -> list[NDArray[Any]]:
    """The arguments of ``runtime_masks.find_masked`` but the words of entries: nothing where masks
    have too few entries each.

    Else the different ``masks`` (masks x words), priority and row of the ``best`` entry of each,
    and the slots of a hash table of ``rows``, found by number of the mask and masked key.
    """
    order = columns.ordered()
    values, masks, _, _ = columns.masked(order)
    different, first, number = np.unique(masks, axis=0, return_index=True, return_inverse=True)
    if len(order) <= _SHARED * len(different):
        nothing = np.zeros(0, np.int64)
        return [nothing, nothing, nothing.astype(np.uint32)]
    by_best = np.argsort(first)
    numbers = np.argsort(by_best)[number.reshape(-1)]
    keyed = np.column_stack((numbers.astype(np.uint64), values))
    _, kept = np.unique(keyed, axis=0, return_index=True)
    slots = slots_for(len(kept))
    wanted = all_slots(all_hashed(keyed[kept], 0), slots)
    rows = order[first[by_best]]
    best = np.column_stack((columns.words[rows, -1].view(np.int64), rows))
    return [different[by_best].view(np.int64), best, placed(order[kept], wanted, slots)]
