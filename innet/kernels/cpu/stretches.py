"""Large arrays are made by the stretch, in the first cache, from where it goes to its place."""

from __future__ import annotations

from innet.compiled import njit
from innet.kernels.arrays import Floats, Ints
from innet.kernels.cpu.intrinsics import copy_16

STRETCH = 1024  # elements; a multiple of those that fill a cache line


@njit(cache=True, nogil=True)
def put(stretch: Floats | Ints, array: Floats | Ints, start: int, end: int, past: bool) -> None:
    """Copy a stretch to where it begins and ends in the array, past the caches or not. Only the
    array's last stretch is shorter.
    """
    whole = start + (end - start) // 16 * 16
    for i in range(start, whole, 16):
        copy_16(stretch, i - start, array, i, past)
    for i in range(whole, end):
        array[i] = stretch[i - start]
