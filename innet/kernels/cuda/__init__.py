"""CUDA kernels, compiled by numba-cuda; ``innet.kernels.get("cuda")`` checks that they can run.

See ``innet.kernels`` for what each must do, and ``device`` for where arrays may lie. Compiled at
first use for the GPU that is there.
"""

from __future__ import annotations

from innet.kernels.cuda.bitmap import expand, popcount
from innet.kernels.cuda.blocks import block_bitmap, gather_blocks, scatter_blocks
from innet.kernels.cuda.bloom import bloom_fill, bloom_members
from innet.kernels.cuda.chunks import chunk_largest, chunk_largest_sum
from innet.kernels.cuda.count_sketch import count_estimate, count_sketch
from innet.kernels.cuda.fixed import dequantise, quantise_randomly, quantize, scatter
from innet.kernels.cuda.hadamard import (
    block_squares,
    hadamard,
    hadamard_back,
    quantise_to_table,
)
from innet.kernels.cuda.lhc import lhc_encode, lhc_occupancy
from innet.kernels.cuda.limbs import grain, join, split
from innet.kernels.cuda.low_rank import factor_product, project_columns, project_rows
from innet.kernels.cuda.marks import align, mark
from innet.kernels.cuda.maxima import reaching_maxima
from innet.kernels.cuda.packing import pack, unpack
from innet.kernels.cuda.peel import lhc_peel, lhc_unlock
from innet.kernels.cuda.statistics import moments, product
from innet.kernels.cuda.sums import add_scaled, low_pass
from innet.kernels.cuda.survey import smallest, survey, survey_and_pick
from innet.kernels.cuda.topk import reaching, reaching_residual, top_k, top_k_residual

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
