"""The largest element of each chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import Array, back, empty, floats, warps_for
from innet.kernels.cuda.sums import sum_of
from innet.kernels.cuda.warp import largest

_MAGNITUDE = 0x7FFFFFFF
_LAST = 2**31 - 1  # no index is larger


def chunk_largest(x: Any, chunk: int, /) -> Any:
    """See ``innet.kernels.Kernels.chunk_largest``."""
    words = floats(x).view(np.int32)
    indices = empty(-(-words.size // chunk))
    _chunk_largest[warps_for(indices.size)](words, chunk, indices)
    return back(indices, x)


def chunk_largest_sum(x: Any, y: Any, chunk: int, /) -> Any:
    """See ``innet.kernels.Kernels.chunk_largest_sum``. Scratch: the sum."""
    return back(chunk_largest(sum_of(floats(x), floats(y)), chunk), x, y)


@cuda.jit
def _chunk_largest(words: Array, chunk: int, indices: Array) -> None:
    """A warp for each chunk."""
    lane = cuda.grid(1) & 31
    for c in range(cuda.grid(1) >> 5, indices.size, cuda.gridsize(1) >> 5):
        key = np.int64(-1)
        for i in range(c * chunk + lane, min((c + 1) * chunk, words.size), 32):
            # Of equal magnitudes the first has the largest key.
            own = (np.int64(words[i] & _MAGNITUDE) << np.int64(32)) | np.int64(_LAST - i)
            key = max(key, own)
        key = largest(key)
        if lane == 0:
            indices[c] = _LAST - (key & np.int64(_LAST))
