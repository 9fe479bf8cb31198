"""What reaches a known threshold, with or without a residual: one reading counts, one writes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cpu.threshold import least_bits
from innet.kernels.cuda.device import Array, back, empty, floats
from innet.kernels.cuda.sums import sum_of
from innet.kernels.cuda.topk import clear, ranks, write

_NONE_TIED = 0


def reaching(x: Any, threshold: float, /) -> Any:
    """See ``innet.kernels.Kernels.reaching``."""
    indices, values = _reaching(floats(x), threshold)
    return back(indices, x), back(values, x)


def reaching_residual(gradient: Any, residual: Any, threshold: float, /) -> Any:
    """See ``innet.kernels.Kernels.reaching_residual``."""
    rest = sum_of(floats(residual), floats(gradient))
    indices, values = _reaching(rest, threshold)
    clear(rest, indices)
    return tuple(back(each, gradient, residual) for each in (indices, values, rest))


def _reaching(x: Array, threshold: float) -> tuple[Array, Array]:
    # What is above the largest number that does not reach the threshold, and nothing equal to it.
    state = cuda.to_device(np.array([least_bits(threshold) - 1, _NONE_TIED], np.int32))
    above, tied = ranks(x, state)
    count = int(above[above.size - 1 :].copy_to_host()[0])  # the size of the results
    indices, values = empty(count), empty(count, np.float32)
    write(x, state, above, tied, indices, values)
    return indices, values
