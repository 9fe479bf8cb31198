"""What the 32 threads of a warp do together. All of them must call these functions, at once.

The simulator has no such operations, but its blocks are single warps (``device``): there the same
results come from a barrier of the block.
"""

from __future__ import annotations

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import SIMULATED, Array

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
        cuda.syncthreads()  # nobody may vote again before all have counted
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
