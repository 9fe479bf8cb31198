"""Rounding to number formats of few bits, and blocks that share a scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.kernels.arrays import Doubles, Floats, Ints
from innet.kernels.layout.formats import NumberFormat
from innet.kernels.layout.hashing import GOLDEN, mix


def block_magnitudes(x: Floats, block: int, /) -> Ints:
    """See ``innet.kernels.Kernels.block_magnitudes``."""
    magnitudes = np.abs(x).view(np.int32)
    starts = np.arange(0, x.size, block)
    return np.maximum.reduceat(magnitudes, starts) if x.size else np.empty(0, np.int32)


def round_to_format(
    x: Floats, powers: Floats, block: int, form: NumberFormat, key: int | None, /
) -> Floats:
    """See ``innet.kernels.Kernels.round_to_format``."""
    y = x * powers[np.arange(x.size) // block]
    steps = _steps(y, form)
    rounded = _in_steps(np.abs(y) / steps, key) * steps
    values: Floats = np.copysign(np.minimum(rounded, form.largest), y).astype(np.float32)
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
    blocks = np.arange(x.size) // block
    y, per_unit = x * powers[blocks], finer[blocks].astype(np.float64)
    steps = _steps(y, form)
    if key is not None:
        steps = np.maximum(steps, 1 / per_unit)
    rounded = _in_steps(np.abs(y) / steps, key) * steps
    integers = np.minimum(np.rint(rounded * per_unit), most)
    return np.where(y < 0, -integers, integers).astype(np.int32)


def dequantize_blocks(integers: Ints, steps: Doubles, block: int, /) -> Floats:
    """See ``innet.kernels.Kernels.dequantize_blocks``."""
    with np.errstate(over="ignore"):
        products = integers.astype(np.float64) * steps[np.arange(integers.size) // block]
        return products.astype(np.float32) + np.float32(0)


def _steps(y: Floats, form: NumberFormat) -> Doubles:
    """The distance of the format's numbers at each element."""
    _, above = np.frexp(y.astype(np.float64))  # |y| is in 2**(above - 1) .. 2**above
    exponents = np.maximum(np.where(y == 0, form.lowest, above - 1), form.lowest)
    steps: Doubles = np.ldexp(1.0, exponents - form.mantissa)
    return steps


def _in_steps(magnitudes: Doubles, key: int | None) -> Doubles:
    """Rounded to integers, half to even or by chance."""
    if key is None:
        nearest: Doubles = np.rint(magnitudes)
        return nearest
    finest = (magnitudes * 2.0**32).astype(np.uint64)
    counter: NDArray[np.uint64] = np.arange(1, magnitudes.size + 1, dtype=np.uint64)
    chance = mix(counter * GOLDEN + np.uint64(key)) >> np.uint64(32)
    return ((finest + chance) >> np.uint64(32)).astype(np.float64)
