"""CPU kernels, compiled by Numba for one thread: the workers are the parallelism.

While a kernel runs, other threads of Python do, too: one process can run several workers' kernels
at a time (``innet.core.threads``), and what each computes does not depend on how many.

See ``innet.kernels`` for what each must do. Compiled code is cached on disk.
"""

from __future__ import annotations

from innet.kernels.cpu.bitmap import expand, popcount
from innet.kernels.cpu.blocks import block_bitmap, gather_blocks, scatter_blocks
from innet.kernels.cpu.bloom import bloom_fill, bloom_members
from innet.kernels.cpu.chunks import chunk_largest, chunk_largest_sum
from innet.kernels.cpu.count_sketch import count_estimate, count_sketch
from innet.kernels.cpu.fixed import dequantise, quantise_randomly, quantize, scatter
from innet.kernels.cpu.hadamard import (
    block_squares,
    hadamard,
    hadamard_back,
    quantise_to_table,
)
from innet.kernels.cpu.lhc import lhc_encode, lhc_occupancy
from innet.kernels.cpu.limbs import grain, join, split
from innet.kernels.cpu.low_rank import factor_product, project_columns, project_rows
from innet.kernels.cpu.marks import align, mark
from innet.kernels.cpu.maxima import reaching_maxima
from innet.kernels.cpu.packing import pack, unpack
from innet.kernels.cpu.peel import lhc_peel, lhc_unlock
from innet.kernels.cpu.statistics import moments, product, smallest
from innet.kernels.cpu.sums import add_scaled, low_pass
from innet.kernels.cpu.survey import survey, survey_and_pick
from innet.kernels.cpu.topk import reaching, reaching_residual, top_k, top_k_residual

__all__ = [
    "add_scaled",
    "align",
    "block_bitmap",
    "block_squares",
    "bloom_fill",
    "bloom_members",
    "chunk_largest",
    "chunk_largest_sum",
    "count_estimate",
    "count_sketch",
    "dequantise",
    "expand",
    "factor_product",
    "gather_blocks",
    "grain",
    "hadamard",
    "hadamard_back",
    "join",
    "lhc_encode",
    "lhc_occupancy",
    "lhc_peel",
    "lhc_unlock",
    "low_pass",
    "mark",
    "moments",
    "pack",
    "popcount",
    "product",
    "project_columns",
    "project_rows",
    "quantise_randomly",
    "quantise_to_table",
    "quantize",
    "reaching",
    "reaching_maxima",
    "reaching_residual",
    "scatter",
    "scatter_blocks",
    "smallest",
    "split",
    "survey",
    "survey_and_pick",
    "top_k",
    "top_k_residual",
    "unpack",
]
