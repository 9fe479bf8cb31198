"""Rounding to number formats of few bits, and blocks that share a scale.

A thread for each number, and integers throughout: the 24 bits of a float32, shifted to the step.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import (
    HALF,
    Array,
    back,
    empty,
    floats,
    ints,
    largest,
    mix,
    threads_for,
    times_32,
    warps_for,
)
from innet.kernels.layout.formats import NumberFormat
from innet.kernels.layout.hashing import GOLDEN


def block_magnitudes(x: Any, block: int, /) -> Any:
    """See ``innet.kernels.Kernels.block_magnitudes``."""
    words = floats(x).view(np.int32)
    maxima = empty(-(-words.size // block))
    _block_magnitudes[warps_for(maxima.size)](words, block, maxima)
    return back(maxima, x)


def round_to_format(x: Any, powers: Any, block: int, form: NumberFormat, key: int | None, /) -> Any:
    """See ``innet.kernels.Kernels.round_to_format``."""
    values = floats(x)
    rounded = empty(values.size, np.float32)
    _round[threads_for(values.size)](
        values, floats(powers), block, *_steps(form), form.largest, *_chance(key), rounded
    )
    return back(rounded, x)


def quantize_to_format(
    x: Any,
    powers: Any,
    finer: Any,
    block: int,
    form: NumberFormat,
    most: int,
    key: int | None,
    /,
) -> Any:
    """See ``innet.kernels.Kernels.quantize_to_format``."""
    values = floats(x)
    integers = empty(values.size)
    _quantize[threads_for(values.size)](
        values, floats(powers), floats(finer), block, *_steps(form), most, *_chance(key), integers
    )
    return back(integers, x)


def dequantize_blocks(integers: Any, steps: Any, block: int, /) -> Any:
    """See ``innet.kernels.Kernels.dequantize_blocks``."""
    words = ints(integers)
    values = empty(words.size, np.float32)
    _dequantize_blocks[threads_for(words.size)](words, cuda.to_device(steps), block, values)
    return back(values, integers)


def _steps(form: NumberFormat) -> tuple[int, int]:
    """Of a format: its bits after the leading one, and the exponent of its smallest number."""
    return form.mantissa, form.lowest - form.mantissa


def _chance(key: int | None) -> tuple[int, np.uint64]:
    """1 and the key, or 0 for rounding to the nearest."""
    return int(key is not None), np.uint64(key or 0)


@cuda.jit
def _block_magnitudes(words: Array, block: int, maxima: Array) -> None:
    """A warp for each block."""
    lane = cuda.grid(1) & 31
    for b in range(cuda.grid(1) >> 5, maxima.size, cuda.gridsize(1) >> 5):
        most = np.int64(0)
        for i in range(b * block + lane, min((b + 1) * block, words.size), 32):
            most = max(most, np.int64(words[i] & np.int32(0x7FFFFFFF)))
        most = largest(most)
        if lane == 0:
            maxima[b] = np.int32(most)


@cuda.jit(device=True)
def _shifted(integer: np.int64, bits: int) -> np.int64:
    """Integer / 2**bits, rounded to the nearest, half to even; bits may be negative."""
    if bits <= 0:
        return integer << np.int64(-bits)
    if bits > 60:
        return np.int64(0)
    whole = integer >> np.int64(bits)
    rest = integer - (whole << np.int64(bits))
    half = np.int64(1) << np.int64(bits - 1)
    up = rest > half or (rest == half and whole & np.int64(1) != 0)
    rounded: np.int64 = whole + np.int64(up)
    return rounded


@cuda.jit(device=True)
def _in_steps(y: np.float32, step: int, by_chance: int, chance: np.uint64) -> np.int64:
    """The magnitude of y in steps of 2**step, rounded."""
    fraction, exponent = math.frexp(abs(np.float64(y)))
    whole = np.int64(math.ldexp(fraction, 24))
    below = step - (exponent - 24)
    if by_chance == 0:
        nearest: np.int64 = _shifted(whole, below)
        return nearest
    up = max(32 - below, 0)
    down = min(max(below - 32, 0), 63)
    finest = (whole << np.int64(up)) >> np.int64(down)
    rounded: np.int64 = (finest + np.int64(chance)) >> np.int64(32)
    return rounded


@cuda.jit(device=True)
def _step_at(y: np.float32, mantissa: int, least: int) -> int:
    """The exponent of the format's step at y."""
    _, exponent = math.frexp(abs(np.float64(y)))
    return int(max(exponent - 1 - mantissa, least) if y != 0 else least)


@cuda.jit
def _round(
    x: Array,
    powers: Array,
    block: int,
    mantissa: int,
    least: int,
    most: float,
    by_chance: int,
    key: np.uint64,
    rounded: Array,
) -> None:
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        chance = mix(np.uint64(i + 1) * GOLDEN + key) >> HALF
        y = times_32(x[i], powers[i // block])
        step = _step_at(y, mantissa, least)
        steps = _in_steps(y, step, by_chance, chance)
        value = np.float32(min(math.ldexp(np.float64(steps), step), np.float64(most)))
        rounded[i] = math.copysign(value, y)


@cuda.jit
def _quantize(
    x: Array,
    powers: Array,
    finer: Array,
    block: int,
    mantissa: int,
    least: int,
    most: int,
    by_chance: int,
    key: np.uint64,
    integers: Array,
) -> None:
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        chance = mix(np.uint64(i + 1) * GOLDEN + key) >> HALF
        y = times_32(x[i], powers[i // block])
        _, finest = math.frexp(np.float64(finer[i // block]))
        unit = 1 - finest  # the exponent of an integer's step
        step = _step_at(y, mantissa, least)
        if by_chance != 0:
            step = max(step, unit)
        steps = _in_steps(y, step, by_chance, chance)
        integer = min(_shifted(steps, unit - step), np.int64(most))
        integers[i] = np.int32(-integer if y < 0 else integer)


@cuda.jit
def _dequantize_blocks(integers: Array, steps: Array, block: int, values: Array) -> None:
    for i in range(cuda.grid(1), integers.size, cuda.gridsize(1)):
        product = np.float64(integers[i]) * steps[i // block]
        values[i] = np.float32(product) + np.float32(0)  # not -0.0
