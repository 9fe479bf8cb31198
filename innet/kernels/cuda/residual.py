"""The sum of an array and a multiple of another one, and the low-pass filter based on it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import Array, back, empty, floats, ints, threads_for, times_32
from innet.kernels.cuda.statistics import absmax_nnz


def add_scaled(x: Any, y: Any, weight: float, /) -> Any:
    """See ``innet.kernels.Kernels.add_scaled``."""
    total = _scaled(floats(x), floats(y), weight)
    return back(total, x, y), absmax_nnz(total)[0]


def low_pass(memory: Any, gradient: Any, weight: float, indices: Any, taken: Any, /) -> Any:
    """See ``innet.kernels.Kernels.low_pass``."""
    held, added, positions, kept = floats(memory), floats(gradient), ints(indices), floats(taken)
    sums, stayed = (empty(positions.size, np.float32) for _ in range(2))
    stays = np.float32(1) - np.float32(weight)
    _send[threads_for(positions.size)](held, added, stays, positions, kept, sums, stayed)
    arguments = memory, gradient, indices, taken
    return back(kept, *arguments), back(sums, *arguments), absmax_nnz(stayed)[0]


def sum_of(x: Array, y: Array) -> Array:
    """X + y, on the GPU."""
    return _scaled(x, y, 1.0)


def _scaled(x: Array, y: Array, weight: float) -> Array:
    total = empty(x.size, np.float32)
    _add_scaled[threads_for(x.size)](x, y, np.float32(weight), total)
    return total


@cuda.jit
def _add_scaled(x: Array, y: Array, weight: np.float32, total: Array) -> None:
    for i in range(cuda.grid(1), total.size, cuda.gridsize(1)):
        total[i] = x[i] + times_32(weight, y[i])


@cuda.jit
def _send(
    held: Array,
    added: Array,
    stays: np.float32,
    positions: Array,
    kept: Array,
    sums: Array,
    stayed: Array,
) -> None:
    for j in range(cuda.grid(1), positions.size, cuda.gridsize(1)):
        i = positions[j]
        sums[j] = held[i] + added[i]
        stayed[j] = kept[i] = times_32(stays, held[i]) + np.float32(0)
