"""The arrays that kernels take and return."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]
Words = NDArray[np.uint32]  # a bitmap, or the bits of float32
Selected = tuple[Ints, Floats]  # indices, ascending, and the values there

LANES = 512  # partial sums of the statistics: enough for a vector loop
SQUARES_LANES = 32  # of a block's sum of squares; the size of a warp
ROW_LANES = 32  # of a row times a vector


def chunks_of(parts: Longs) -> int:
    """How many chunks there are in parts given by begin, end and length of a chunk."""
    begins, ends, chunks = parts.T
    return int((-(-(ends - begins) // chunks)).sum())
