"""Products that are rounded before anything is added to them, as IEEE 754 and all other kernels do.

The compiler may fuse a product and a sum, which skips the rounding between them.
"""

from __future__ import annotations

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import SIMULATED

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
