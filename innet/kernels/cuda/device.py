"""Arrays on the GPU, launch configurations, and operations of whole warps.

Kernels take NumPy arrays, which are copied to the GPU; results are then copied back. They also take
arrays on the GPU: Numba's, and all with ``__cuda_array_interface__``, such as torch's CUDA tensors.
These are used in place; results are then Numba device arrays, which torch and others can use
without a copy. All work is queued on the default stream.

Numba-cuda's simulator runs each thread of a block as a Python thread, so there a block is one warp,
and grids are small.
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
# Enough for all multiprocessors of an H200 (132), which run 8 such blocks each.
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
        InputError: another dtype, or more dimensions, which nothing else checks.
    """
    return _on_device(array, np.dtype(np.float32))


def ints(array: Any) -> Array:
    """An int32 array, likewise."""
    return _on_device(array, np.dtype(np.int32))


def _on_device(array: Any, dtype: np.dtype[Any]) -> Array:
    if isinstance(array, np.ndarray):
        placed = cuda.to_device(array)
    else:
        # The simulator has device arrays of its own, but cannot adopt others.
        placed = array if SIMULATED else cuda.as_cuda_array(array)
    if placed.dtype != dtype or placed.ndim != 1:
        raise InputError(
            f"a CUDA kernel takes {dtype} in one dimension, not {placed.dtype} in {placed.ndim}."
        )
    return placed


def back(result: Array, *arguments: Any) -> Any:
    """The result, copied to the host if one of the arguments is a NumPy array."""
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


# ----------------------------------------------------------------------------
# Hashing.

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
ONE = np.uint64(1)


@cuda.jit(device=True)
def mix(z: np.uint64) -> np.uint64:
    """The finalizer of SplitMix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


# ----------------------------------------------------------------------------
# Products that are rounded before something is added to them, as in all other kernels.
#
# The compiler may fuse a product and a sum, which skips the rounding between them.

if SIMULATED:

    @cuda.jit(device=True)
    def times(a: np.float64, b: np.float64) -> np.float64:
        """The rounded product."""
        return np.float64(a * b)

    @cuda.jit(device=True)
    def times_32(a: np.float32, b: np.float32) -> np.float32:
        """The same of float32."""
        return np.float32(a * b)

else:
    from numba.cuda import libdevice

    @cuda.jit(device=True)
    def times(a: np.float64, b: np.float64) -> np.float64:
        """The rounded product."""
        return np.float64(libdevice.dmul_rn(a, b))

    @cuda.jit(device=True)
    def times_32(a: np.float32, b: np.float32) -> np.float32:
        """The same of float32."""
        return np.float32(libdevice.fmul_rn(a, b))


# ----------------------------------------------------------------------------
# Operations of the 32 threads of a warp. All of them must call these functions together.
#
# The simulator has no such operations, but its blocks are single warps (see above): there the same
# results come from a barrier of the block.

_ALL = np.uint32(0xFFFFFFFF)

if SIMULATED:

    @cuda.jit(device=True)
    def ballot(flag: bool) -> np.uint32:
        """Bit i tells whether the flag of lane i is set."""
        votes = cuda.shared.array(32, np.uint32)
        votes[cuda.laneid] = np.uint32(flag) << np.uint32(cuda.laneid)
        cuda.syncthreads()
        word = np.uint32(0)
        for lane in range(32):
            word |= votes[lane]
        cuda.syncthreads()  # no thread may vote again before all have counted
        return word

    @cuda.jit(device=True)
    def reserve(flag: bool, counters: Array, which: int) -> int:
        """A number of its own, counted up from counters[which], for each lane whose flag is set."""
        return int(cuda.atomic.add(counters, which, 1)) if flag else -1

    @cuda.jit(device=True)
    def largest(key: np.int64) -> np.int64:
        """The largest of the lanes' keys, for all of them."""
        keys = cuda.shared.array(32, np.int64)
        keys[cuda.laneid] = key
        cuda.syncthreads()
        for lane in range(32):
            key = max(key, keys[lane])
        cuda.syncthreads()
        return key

else:

    @cuda.jit(device=True)
    def ballot(flag: bool) -> np.uint32:
        """Bit i tells whether the flag of lane i is set."""
        return np.uint32(cuda.ballot_sync(_ALL, flag))

    @cuda.jit(device=True)
    def reserve(flag: bool, counters: Array, which: int) -> int:
        """A number of its own, counted up from counters[which], for each lane whose flag is set."""
        flags = ballot(flag)
        first = np.int32(0)
        if cuda.laneid == 0 and flags != 0:
            # One atomic operation for the warp: a counter takes only one at a time.
            first = cuda.atomic.add(counters, which, np.int32(cuda.popc(flags)))
        first = cuda.shfl_sync(_ALL, first, 0)
        return int(first + rank(flags, cuda.laneid))

    @cuda.jit(device=True)
    def largest(key: np.int64) -> np.int64:
        """The largest of the lanes' keys, for all of them."""
        for distance in (16, 8, 4, 2, 1):
            key = max(key, cuda.shfl_xor_sync(_ALL, key, distance))
        return key


@cuda.jit(device=True)
def rank(flags: np.uint32, lane: int) -> int:
    """How many of the flags below the lane's are set."""
    below = (np.uint32(1) << np.uint32(lane)) - np.uint32(1)
    return int(cuda.popc(np.uint32(flags & below)))


# ----------------------------------------------------------------------------
# Running totals, which tell the warps where to write in a shared result.


def segment_of(size: int, multiple: int) -> int:
    """How many consecutive elements each warp processes, so that all warps have some."""
    return multiple * max(1, -(-size // (multiple * MOST_WARPS)))


def exclusive_scan(counts: Array) -> None:
    """Replace each count by the sum of those before it. Sums stay below 2**31."""
    _scan[ONE_BLOCK](counts)


@cuda.jit
def _scan(counts: Array) -> None:
    """One block: there are a few counts for each thread of the GPU's, not of the gradient's."""
    sums = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    each = (counts.size + THREADS - 1) // THREADS
    begin = min(thread * each, counts.size)
    end = min(begin + each, counts.size)
    part = np.int32(0)
    for i in range(begin, end):
        part += counts[i]
    sums[thread] = part
    cuda.syncthreads()
    before = np.int32(0)
    for i in range(thread):
        before += sums[i]
    for i in range(begin, end):
        count = counts[i]
        counts[i] = before
        before += count
