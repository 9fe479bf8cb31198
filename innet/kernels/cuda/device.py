"""Where arrays lie, and how many threads work on them.

Kernels take NumPy arrays, which are copied to the GPU and whose results are copied back, and arrays
that are on the GPU already: Numba's, and whatever has ``__cuda_array_interface__``, as torch's CUDA
tensors do. Those are used in place, and the results are Numba device arrays, which torch and
others adopt without a copy. All work is queued on the default stream.

Numba-cuda's simulator runs each thread of a block as a thread of Python, so there a block is one
warp and there are few of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda
from numba.core import config

from innet.core.errors import InputError

Array = Any  # on the GPU

SIMULATED = bool(getattr(config, "ENABLE_CUDASIM", 0))
WARP = 32
THREADS = WARP if SIMULATED else 256  # of a block; a multiple of a warp
# Enough for all multiprocessors of an H200 (132), which hold 8 such blocks each.
MOST_BLOCKS = 2 if SIMULATED else 132 * 8
MOST_WARPS = MOST_BLOCKS * THREADS // WARP

Grid = tuple[int, int]  # blocks, threads of a block
ONE_BLOCK: Grid = (1, THREADS)


def threads_for(items: int) -> Grid:
    """A grid with a thread for each item, as far as the GPU has room; kernels stride over it."""
    return max(1, min(-(-items // THREADS), MOST_BLOCKS)), THREADS


def warps_for(items: int) -> Grid:
    """A grid with a warp for each item, likewise."""
    return threads_for(items * WARP)


def floats(array: Any) -> Array:
    """A float32 array on the GPU: copied there from NumPy's, otherwise the same memory.

    Raises:
        InputError: it has another dtype or more dimensions; nothing else would notice.
    """
    return _on_device(array, np.dtype(np.float32))


def ints(array: Any) -> Array:
    """An int32 array, likewise."""
    return _on_device(array, np.dtype(np.int32))


def _on_device(array: Any, dtype: np.dtype[Any]) -> Array:
    if isinstance(array, np.ndarray):
        placed = cuda.to_device(array)
    else:
        # The simulator has device arrays of its own, but no interface to adopt others by.
        placed = array if SIMULATED else cuda.as_cuda_array(array)
    if placed.dtype != dtype or placed.ndim != 1:
        raise InputError(
            f"a CUDA kernel takes {dtype} in one dimension, not {placed.dtype} in {placed.ndim}."
        )
    return placed


def back(result: Array, *arguments: Any) -> Any:
    """The result where the arguments were: copied to the host if one of them is NumPy's."""
    if any(isinstance(argument, np.ndarray) for argument in arguments):
        return result.copy_to_host()
    return result


def empty(size: int, dtype: Any = np.int32) -> Array:
    """An array on the GPU whose content is not defined."""
    return cuda.device_array(size, dtype)


def filled(size: int, value: int = 0, dtype: Any = np.int32) -> Array:
    """An array of one integer on the GPU."""
    array = empty(size, dtype)
    _fill[threads_for(size)](array, value)
    return array


@cuda.jit
def _fill(array: Array, value: int) -> None:
    for i in range(cuda.grid(1), array.size, cuda.gridsize(1)):
        array[i] = value
