"""Arrays of zeros for what grows: memory that is given back for good as soon as it is dropped.

An allocator keeps the memory of large arrays that were replaced by larger ones, so that a table
that grew would take twice what it holds.
"""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

#: Smaller arrays are the allocator's.
_LARGE = 1 << 18


def fresh(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Zeros in an array of its own, C-contiguous."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size < _LARGE:
        return np.zeros(shape, kind)
    return np.frombuffer(mmap.mmap(-1, size), kind).reshape(shape)


def resized(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """An array of so many rows, of which those that were there stay; zeros follow."""
    kept = min(rows, len(array))
    longer = fresh((rows, *array.shape[1:]), array.dtype)
    longer[:kept] = array[:kept]
    return longer
