"""Rounding to number formats of few bits, and blocks that share a scale.

A float32 from ``lowest`` on is rounded as the integer that its bits are: half of what is dropped is
added, and the rest cut off. Below it all numbers have one step, and adding 1.5 · 2**23 steps rounds
to it. Both compile to vector instructions.
"""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Doubles, Floats, Ints
from innet.kernels.cpu.intrinsics import float_of_bits, magnitude_bits, mix
from innet.kernels.layout.formats import NumberFormat
from innet.kernels.layout.hashing import GOLDEN

_ROUNDER = np.float32(1.5 * 2**23)  # added to a float32 below 2**22, it rounds to an integer


def block_magnitudes(x: Floats, block: int, /) -> Ints:
    """See ``innet.kernels.Kernels.block_magnitudes``."""
    largest = buffers.empty(-(-x.size // block), np.int32)
    _block_magnitudes(x, block, largest)
    return largest


def round_to_format(
    x: Floats, powers: Floats, block: int, form: NumberFormat, key: int | None, /
) -> Floats:
    """See ``innet.kernels.Kernels.round_to_format``."""
    values = buffers.empty(x.size, np.float32)
    if key is None:
        _round_nearest(x, powers, block, *_constants(form), np.float32(form.largest), values)
    else:
        limits = *_steps(form), np.float32(form.largest)
        _round_by_chance(x, powers, block, *limits, np.uint64(key), values)
    return values


def quantize_to_format(  # noqa: PLR0917 - kernels are called by position
    x: Floats,
    powers: Floats,
    finer: Floats,
    block: int,
    form: NumberFormat,
    most: int,
    key: int | None,
    /,
) -> Ints:
    """See ``innet.kernels.Kernels.quantize_to_format``."""
    integers = buffers.empty(x.size, np.int32)
    if key is None:
        _quantize_nearest(x, powers, finer, block, *_constants(form), np.float32(most), integers)
    else:
        limits = *_steps(form), most
        _quantize_by_chance(x, powers, finer, block, *limits, np.uint64(key), integers)
    return integers


def dequantize_blocks(integers: Ints, steps: Doubles, block: int, /) -> Floats:
    """See ``innet.kernels.Kernels.dequantize_blocks``."""
    values = buffers.empty(integers.size, np.float32)
    _dequantize_blocks(integers, steps, block, values)
    return values


def _constants(form: NumberFormat) -> tuple[np.int32, np.float32, np.float32]:
    """Of a format: the bits that a float32 loses, the smallest normal number, and what rounds the
    numbers below it.
    """
    rounder = np.float32(1.5 * 2.0 ** (23 + form.lowest - form.mantissa))
    return np.int32(23 - form.mantissa), np.float32(2.0**form.lowest), rounder


def _steps(form: NumberFormat) -> tuple[np.int32, np.int32]:
    """Of a format: its bits after the leading one, and the exponent of its smallest number."""
    return np.int32(form.mantissa), np.int32(form.lowest - form.mantissa)


@njit(cache=True, nogil=True)
def _block_magnitudes(x: Floats, block: int, largest: Ints) -> None:
    for b in range(largest.size):
        piece = x[b * block : (b + 1) * block]
        most = np.int32(0)
        for i in range(piece.size):
            most = max(most, magnitude_bits(piece[i]))
        largest[b] = most


@njit(cache=True, nogil=True)
def _nearest(
    y: np.float32, drop: np.int32, smallest: np.float32, rounder: np.float32
) -> np.float32:
    """The magnitude of y, rounded."""
    bits = magnitude_bits(y)
    half = (np.int32(1) << np.int32(drop - 1)) - np.int32(1)
    odd = (bits >> drop) & np.int32(1)
    normal = float_of_bits(((bits + half + odd) >> drop) << drop)
    small = np.float32(np.float32(abs(y) + rounder) - rounder)
    return small if abs(y) < smallest else normal


@njit(cache=True, nogil=True)
def _round_nearest(  # noqa: PLR0917 - compiled functions are called by position
    x: Floats,
    powers: Floats,
    block: int,
    drop: np.int32,
    smallest: np.float32,
    rounder: np.float32,
    largest: np.float32,
    values: Floats,
) -> None:
    for b in range(powers.size):
        piece, rounded = x[b * block : (b + 1) * block], values[b * block : (b + 1) * block]
        power = powers[b]
        for i in range(piece.size):
            y = np.float32(piece[i] * power)
            rounded[i] = np.copysign(min(_nearest(y, drop, smallest, rounder), largest), y)


@njit(cache=True, nogil=True)
def _quantize_nearest(  # noqa: PLR0917 - compiled functions are called by position
    x: Floats,
    powers: Floats,
    finer: Floats,
    block: int,
    drop: np.int32,
    smallest: np.float32,
    rounder: np.float32,
    most: np.float32,
    integers: Ints,
) -> None:
    for b in range(powers.size):
        piece, rounded = x[b * block : (b + 1) * block], integers[b * block : (b + 1) * block]
        power, per_unit = powers[b], finer[b]
        for i in range(piece.size):
            y = np.float32(piece[i] * power)
            value = np.float32(_nearest(y, drop, smallest, rounder) * per_unit)
            integer = np.int32(min(np.float32(np.float32(value + _ROUNDER) - _ROUNDER), most))
            rounded[i] = -integer if y < 0 else integer


@njit(cache=True, nogil=True)
def _by_chance(
    bits: np.int32, mantissa: np.int32, least: np.int32, chance: np.uint64
) -> tuple[np.int64, np.int32]:
    """A magnitude in steps of 2**e, rounded by chance; and e, which is ``least`` or more."""
    field = bits >> np.int32(23)
    fraction = np.int64(bits & np.int32(0x7FFFFF))
    whole = fraction | np.int64(0x800000 if field else 0)
    exponent = max(field, np.int32(1)) - np.int32(150)  # of the lowest bit of the fraction
    step = np.int32(max(exponent + np.int32(23) - mantissa, least))
    # Bits below the step; those below 2**-32 steps do not count.
    below = np.int64(step - exponent)
    up = max(np.int64(32) - below, np.int64(0))
    down = min(max(below - np.int64(32), np.int64(0)), np.int64(63))
    return (((whole << up) >> down) + np.int64(chance)) >> np.int64(32), step


@njit(cache=True, nogil=True)
def _round_by_chance(  # noqa: PLR0917 - compiled functions are called by position
    x: Floats,
    powers: Floats,
    block: int,
    mantissa: np.int32,
    least: np.int32,
    largest: np.float32,
    key: np.uint64,
    values: Floats,
) -> None:
    for b in range(powers.size):
        piece, rounded = x[b * block : (b + 1) * block], values[b * block : (b + 1) * block]
        power, before = powers[b], np.uint64(b * block + 1)
        for i in range(piece.size):
            chance = mix((before + np.uint64(i)) * GOLDEN + key) >> np.uint64(32)
            y = np.float32(piece[i] * power)
            steps, exponent = _by_chance(magnitude_bits(y), mantissa, least, chance)
            # In two factors, of which each is a normal number.
            value = np.float32(steps) * _power(exponent >> 1) * _power(exponent - (exponent >> 1))
            rounded[i] = np.copysign(min(value, largest), y)


@njit(cache=True, nogil=True)
def _power(exponent: np.int32) -> np.float32:
    """2**exponent, a normal number."""
    return float_of_bits((exponent + np.int32(127)) << np.int32(23))


@njit(cache=True, nogil=True)
def _quantize_by_chance(  # noqa: PLR0917 - compiled functions are called by position
    x: Floats,
    powers: Floats,
    finer: Floats,
    block: int,
    mantissa: np.int32,
    least: np.int32,
    most: int,
    key: np.uint64,
    integers: Ints,
) -> None:
    for b in range(powers.size):
        piece, rounded = x[b * block : (b + 1) * block], integers[b * block : (b + 1) * block]
        power, before = powers[b], np.uint64(b * block + 1)
        unit = np.int32(127) - (magnitude_bits(finer[b]) >> np.int32(23))
        coarsest = max(least, unit)
        for i in range(piece.size):
            chance = mix((before + np.uint64(i)) * GOLDEN + key) >> np.uint64(32)
            y = np.float32(piece[i] * power)
            steps, exponent = _by_chance(magnitude_bits(y), mantissa, coarsest, chance)
            integer = np.int32(min(steps << np.int64(exponent - unit), np.int64(most)))
            rounded[i] = -integer if y < 0 else integer


@njit(cache=True, nogil=True)
def _dequantize_blocks(integers: Ints, steps: Doubles, block: int, values: Floats) -> None:
    for b in range(steps.size):
        piece, floats = integers[b * block : (b + 1) * block], values[b * block : (b + 1) * block]
        step = steps[b]
        for i in range(piece.size):
            floats[i] = np.float32(np.float64(piece[i]) * step) + np.float32(0)  # not -0.0
