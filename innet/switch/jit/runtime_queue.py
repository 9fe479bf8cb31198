"""Arrays that grow, for emitted code whose output has no bound that is known before."""

from __future__ import annotations

from typing import Any

import numpy as np

from innet.switch.jit.runtime import copy, inlined

__all__ = ["with_room"]


@inlined
def with_room(array: Any, used: int, more: int) -> Any:
    """``array``, or a longer one that starts with its ``used`` elements, with room for ``more``."""
    if used + more <= len(array):
        return array
    longer = np.empty(2 * (used + more), array.dtype)
    copy(longer, 0, array, 0, used * array.itemsize)
    return longer
