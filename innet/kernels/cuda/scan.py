"""Running totals, by which the warps know where in a common result to write."""

from __future__ import annotations

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import MOST_WARPS, ONE_BLOCK, THREADS, Array


def segment_of(size: int, multiple: int) -> int:
    """How many consecutive elements each warp goes through, so that all warps have some."""
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
    own = np.int32(0)
    for i in range(begin, end):
        own += counts[i]
    sums[thread] = own
    cuda.syncthreads()
    before = np.int32(0)
    for i in range(thread):
        before += sums[i]
    for i in range(begin, end):
        count = counts[i]
        counts[i] = before
        before += count
