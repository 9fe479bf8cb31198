"""Fixed-point numbers, rounded to the nearest or at random; and a sparse array made dense."""

from __future__ import annotations

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
    mix,
    threads_for,
)
from innet.kernels.layout.hashing import GOLDEN


def quantize(x: Any, scale: float, /) -> Any:
    """See ``innet.kernels.Kernels.quantize``."""
    values = floats(x)
    integers = empty(values.size)
    _quantize[threads_for(values.size)](values, scale, integers)
    return back(integers, x)


def quantize_stochastic(x: Any, scale: float, key: int, /) -> Any:
    """See ``innet.kernels.Kernels.quantize_stochastic``."""
    values = floats(x)
    integers = empty(values.size)
    finest = scale * 2.0**32
    _quantize_stochastic[threads_for(values.size)](values, finest, np.uint64(key), integers)
    return back(integers, x)


def dequantize(integers: Any, step: float, /) -> Any:
    """See ``innet.kernels.Kernels.dequantize``."""
    words = ints(integers)
    values = empty(words.size, np.float32)
    _dequantize[threads_for(words.size)](words, step, values)
    return back(values, integers)


@cuda.jit
def _quantize(x: Array, scale: float, integers: Array) -> None:
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        # Rounded by a separate instruction: adding and subtracting 1.5 · 2**52, as on the CPU,
        # would be fused with the product, which would then not be rounded first.
        integers[i] = np.int32(round(np.float64(x[i]) * np.float64(scale)))


@cuda.jit
def _quantize_stochastic(x: Array, finest: float, key: np.uint64, integers: Array) -> None:
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        chance = mix(np.uint64(i + 1) * GOLDEN + key) >> HALF
        t = np.int64(np.float64(abs(x[i])) * np.float64(finest))
        magnitude = (t + np.int64(chance)) >> np.int64(32)
        integers[i] = np.int32(-magnitude if x[i] < 0 else magnitude)


@cuda.jit
def _dequantize(integers: Array, step: float, values: Array) -> None:
    for i in range(cuda.grid(1), integers.size, cuda.gridsize(1)):
        product = np.float64(integers[i]) * np.float64(step)
        values[i] = np.float32(product) + np.float32(0)  # not -0.0
