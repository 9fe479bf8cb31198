"""Large arrays from memory that was used before.

The first touch of a fresh page costs the operating system more time than a kernel spends on what it
writes there: filling 40 MB of new memory ran at 10 GB/s where memory that had been touched took
38. So the memory of large results is kept when they are gone, and handed out again.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_SMALL = 1 << 17  # bytes; the C library keeps memory of this size itself
_LINE = 64  # bytes; pieces begin at a multiple, as writing past the caches asks for
_CACHED = 4 << 20  # bytes; what is larger has left a core's cache before it is read again
_KEPT = 24  # unused pieces that are kept at the most; those that have waited longest are given up

_begin: Any = (ctypes.c_char * 0).from_buffer

# Its operations are atomic: arrays may end in any thread, and between any two steps of this one.
_unused: deque[memoryview] = deque(maxlen=_KEPT)


class _Loan(weakref.ref[NDArray[Any]]):
    """A piece of memory that an array has, for as long as there is the array."""

    __slots__ = ("piece", "whose")

    piece: memoryview
    whose: int  # the array's id


_lent: dict[int, _Loan] = {}  # by the array's id


def _returned(
    loan: _Loan, lent: dict[int, _Loan] = _lent, unused: deque[memoryview] = _unused
) -> None:
    """The array is gone; as the interpreter ends, perhaps after this module's names."""
    del lent[loan.whose]
    unused.append(loan.piece)


def empty(size: int, dtype: DTypeLike) -> NDArray[Any]:
    """An array of ``size`` elements, shape (size,), whatever they are."""
    needed = size * np.dtype(dtype).itemsize
    if needed < _SMALL:
        return np.empty(size, dtype)
    piece = _take(needed)
    # A memoryview in between, so that every view of the array keeps the array alive and not only
    # the piece: the array's end is then the end of all use of the piece.
    array = np.frombuffer(piece, dtype, size)
    loan = _Loan(array, _returned)
    loan.piece, loan.whose = piece, id(array)
    _lent[loan.whose] = loan
    return array


def zeros(size: int, dtype: DTypeLike) -> NDArray[Any]:
    """An array of ``size`` zeros, shape (size,)."""
    if size * np.dtype(dtype).itemsize < _SMALL:
        return np.zeros(size, dtype)
    array = empty(size, dtype)
    # Unlike NumPy's fill, the C library's does not read what it overwrites.
    ctypes.memset(_begin(array), 0, array.nbytes)
    return array


def address_of(array: NDArray[Any]) -> int:
    """Where the elements of a C-contiguous array are."""
    if array.flags.writeable:  # three times as fast as asking the array
        return ctypes.addressof(_begin(array))
    return int(array.__array_interface__["data"][0])


def passes_caches(array: NDArray[Any]) -> bool:
    """Whether a kernel should write this array past the caches, and can: see ``split_sum_64``."""
    # An array that is none of ours, or a part of one, may begin anywhere.
    return array.nbytes >= _CACHED and id(array) in _lent


def _take(needed: int) -> memoryview:
    """The smallest unused piece that suffices and is not more than twice as large, or a new one.

    The smallest, since whoever needs the larger one later would have to make it anew.
    """
    best: memoryview | None = None
    most = 2 * needed
    for _ in range(_KEPT):
        try:
            piece = _unused.popleft()
        except IndexError:
            break
        if not needed <= piece.nbytes <= most:
            _unused.append(piece)
            continue
        if best is not None:
            _unused.append(best)
        best, most = piece, piece.nbytes - 1
        if most < needed:
            break
    if best is not None:
        return best
    room = np.empty(needed + _LINE, np.uint8)
    return room[-room.ctypes.data % _LINE :][:needed].data
