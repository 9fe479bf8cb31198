"""An array and a multiple of another one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import Array, back, empty, floats, threads_for
from innet.kernels.cuda.rounding import times_32
from innet.kernels.cuda.survey import survey


def add_scaled(x: Any, y: Any, weight: float, /) -> Any:
    """See ``innet.kernels.Kernels.add_scaled``."""
    total = _scaled(floats(x), floats(y), weight)
    return back(total, x, y), survey(total)[0]


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
