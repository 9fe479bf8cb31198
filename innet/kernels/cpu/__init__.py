"""CPU kernels, compiled by Numba for one thread: the worker processes are the parallelism.

See ``innet.kernels`` for what each must do. Compiled code is cached on disk.
"""

from __future__ import annotations

from innet.kernels.cpu.bitmap import expand, popcount
from innet.kernels.cpu.fixed import dequantise, quantise, scatter
from innet.kernels.cpu.lhc import lhc_encode, lhc_occupancy, lhc_peel
from innet.kernels.cpu.limbs import grain, join, split
from innet.kernels.cpu.survey import survey
from innet.kernels.cpu.topk import top_k, top_k_residual

__all__ = [
    "dequantise",
    "expand",
    "grain",
    "join",
    "lhc_encode",
    "lhc_occupancy",
    "lhc_peel",
    "popcount",
    "quantise",
    "scatter",
    "split",
    "survey",
    "top_k",
    "top_k_residual",
]
