"""Float32 numbers split into limbs and joined again, as ``innet.kernels.layout.limbs`` defines.

One thread per number. Neighbors in a limb lie side by side, so that all accesses are coalesced.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import Array, back, empty, filled, floats, ints, threads_for
from innet.kernels.layout.limbs import NO_EXPONENT, Limbs

_FRACTION = 0x7FFFFF
_LEADING = 0x800000  # the bit of a normal number's mantissa that is not stored
_WIDE = 1 << 31


def lowest_exponent(x: Any, /) -> int:
    """See ``innet.kernels.Kernels.lowest_exponent``."""
    words = floats(x).view(np.int32)
    finest = filled(1, NO_EXPONENT)
    _lowest_exponent[threads_for(words.size)](words, finest)
    return int(finest.copy_to_host()[0])


def split_limbs(x: Any, limbs: Limbs, /) -> Any:
    """See ``innet.kernels.Kernels.split_limbs``."""
    words = floats(x).view(np.int32)
    parts = empty(limbs.count * words.size)
    _split[threads_for(words.size)](words, limbs.exponent, limbs.bits, limbs.count, parts)
    return back(parts, x)


def join_limbs(sums: Any, limbs: Limbs, /) -> Any:
    """See ``innet.kernels.Kernels.join_limbs``. Scratch: a copy of the sums, from three limbs
    on.
    """
    parts = ints(sums)
    size = parts.size // limbs.count
    values = empty(size, np.float32)
    grid = threads_for(size)
    step = 2.0**limbs.exponent
    if limbs.count <= 2:
        _join_short[grid](parts, limbs.bits, limbs.count, step, values)
    else:
        # Less than 2**160, as the uppermost limb holds a bit of a float32.
        unit = step * 2.0 ** (limbs.bits * limbs.count)
        finer = 2.0**-limbs.bits
        scratch = empty(parts.size)
        _join_long[grid](parts, limbs.bits, limbs.count, unit, finer, scratch, values)
    return back(values, sums)


@cuda.jit
def _lowest_exponent(words: Array, finest: Array) -> None:
    shared = cuda.shared.array(1, np.int32)
    if cuda.threadIdx.x == 0:
        shared[0] = NO_EXPONENT
    cuda.syncthreads()
    part = np.int32(NO_EXPONENT)
    for i in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        field, mantissa = _parts_of(words[i])
        if mantissa != 0:
            lowest = field - 150 + cuda.ffs(np.int32(mantissa)) - 1
            part = min(part, np.int32(lowest))
    cuda.atomic.min(shared, 0, part)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.min(finest, 0, shared[0])


@cuda.jit(device=True)
def _parts_of(word: np.int32) -> tuple[np.int64, np.int64]:
    """Exponent field, at least 1, and mantissa: the magnitude is mantissa · 2**(field - 150)."""
    field = np.int64((word >> 23) & 0xFF)
    mantissa = np.int64(word & _FRACTION)
    if field == 0:
        return np.int64(1), mantissa
    return field, mantissa | np.int64(_LEADING)


@cuda.jit
def _split(words: Array, exponent: int, bits: int, count: int, parts: Array) -> None:
    mask = (np.int64(1) << np.int64(bits)) - np.int64(1)
    for i in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        field, mantissa = _parts_of(words[i])
        shift = field - 150 - exponent
        for k in range(count):
            # Shifts by 31 and more leave nothing of 24 bits in a limb, to either side.
            up = np.int64(min(max(shift, 0), 31))
            down = np.int64(min(max(-shift, 0), 31))
            limb = ((mantissa << up) >> down) & mask
            if words[i] < 0:
                limb = -limb
            parts[k * words.size + i] = np.int32(limb)
            shift -= bits


@cuda.jit(device=True)
def _rounded(integer: np.int64, step: float) -> np.float32:
    """Integer · step with one rounding; see ``innet.kernels.cpu.limbs._rounded``."""
    return np.float32(np.float64(np.float32(integer)) * np.float64(step))


@cuda.jit
def _join_short(parts: Array, bits: int, count: int, step: float, values: Array) -> None:
    """One or two limbs: below 2**31 · 2**31 + 2**31, exact in int64."""
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        full = np.int64(parts[i])
        if count == 2:
            full += np.int64(parts[values.size + i]) << np.int64(bits)
        values[i] = _rounded(full, step)


@cuda.jit
def _join_long(
    parts: Array, bits: int, count: int, unit: float, finer: float, limbs: Array, values: Array
) -> None:
    """Any number of limbs, as ``innet.kernels.cpu.limbs._join_many`` explains."""
    mask = (np.int64(1) << np.int64(bits)) - np.int64(1)
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        rest = np.int64(0)
        for k in range(count):
            full = np.int64(parts[k * values.size + i]) + rest
            limbs[k * values.size + i] = np.int32(full & mask)
            rest = full >> np.int64(bits)
        weight = np.float64(unit)
        for k in range(count - 1, -1, -1):
            limb = np.int64(limbs[k * values.size + i])
            if -_WIDE <= rest < _WIDE:
                rest = (rest << np.int64(bits)) + limb
                weight *= np.float64(finer)
            elif limb != 0:
                rest |= np.int64(1)
        values[i] = _rounded(rest, weight)
