"""No kernel allocates more than twice the gradient besides its results.

What Python allocates is measured. Inside compiled functions there are tables of a fixed size, a
small sample, 4 bytes for each element whose magnitude is nearly the k-th and, where a peel has
halted, 5 bytes for each cell.
"""

from __future__ import annotations

import inspect
import tracemalloc

import numpy as np
import pytest

from innet import kernels
from innet.codecs.carriers.sketch_sizing import LhcSettings, sketch_layout
from innet.core import buffers
from innet.kernels import CountLayout, Filter, Kernels, Limbs
from innet.kernels.layout.formats import FORMATS

cpu = kernels.get("cpu")
naive = kernels.get(
    "reference"
)  # for what the tests begin with: nothing is compiled before they run
SIZE = 1 << 20  # large enough for results to come from memory that is kept

rng = np.random.default_rng(0)
X = rng.standard_normal(SIZE).astype(np.float32)
Y = rng.standard_normal(SIZE).astype(np.float32)
ONES = np.ones(SIZE, np.float32)
INTEGERS = naive.quantize(X, 1e6)
DENSE = np.where(rng.random(SIZE) < 0.2, INTEGERS, np.int32(0))  # a fifth is not zero
INDICES = np.flatnonzero(DENSE).astype(np.int32)
VALUES = DENSE[INDICES]
LAYOUTS = {
    hashing: sketch_layout(INDICES.size, LhcSettings(hashing=hashing), 0)
    for hashing in ("coupled", "plain")
}
ENCODED = {hashing: naive.lhc_encode(None, DENSE, SIZE, LAYOUTS[hashing]) for hashing in LAYOUTS}
BITMAP = ENCODED["plain"][0]
LIMBS = Limbs(-30, 29, 2)
# Of a few elements again and again: the reference takes seconds for all, in each process.
SUMS = np.resize(naive.split_limbs(X[:1024], LIMBS), naive.split_limbs(X[:1], LIMBS).size * SIZE)
COLUMNS = CountLayout(5, SIZE // 100, 0)
SHAPE = Filter(INDICES.size // 4, 6, 0)
BLOCKS = np.arange(0, SIZE // 256, 3, dtype=np.int32)
BLOCK = 1024
SCALES = np.full(SIZE // BLOCK, 1e3)
FACTOR = X[: 2 * BLOCK]
POWERS, FORM = ONES[: SIZE // 32], FORMATS["mxfp8-e4m3"]

CASES = {
    "absmax_nnz": lambda: cpu.absmax_nnz(X),
    "absmax_nnz_sparse": lambda: cpu.absmax_nnz_sparse(DENSE.view(np.float32), SIZE // 4),
    "absmax_nnz_sparse, too many": lambda: cpu.absmax_nnz_sparse(X, SIZE // 8),
    "top_k": lambda: cpu.top_k(X, SIZE // 10),
    "top_k of many": lambda: cpu.top_k(X, SIZE // 2),
    "top_k of equal magnitudes": lambda: cpu.top_k(ONES, SIZE // 10),
    "top_k_residual": lambda: cpu.top_k_residual(X, Y, SIZE // 10),
    "select_threshold": lambda: cpu.select_threshold(X, 3.0),
    "select_threshold, by many": lambda: cpu.select_threshold(X, 0.01),
    "select_threshold_residual": lambda: cpu.select_threshold_residual(X, Y, 1.0),
    "add_scaled": lambda: cpu.add_scaled(X, Y, 0.1),
    "low_pass": lambda: cpu.low_pass(X, Y, 0.1, INDICES, X.copy()),
    "chunk_argmax": lambda: cpu.chunk_argmax(X, 2),
    "add_scaled_argmax": lambda: cpu.add_scaled_argmax(X, Y, 0.1, np.array([[0, SIZE, 2]])),
    "select_above_chunk_max": lambda: cpu.select_above_chunk_max(X, Y, 1.0, 2),
    "absmin_count": lambda: cpu.absmin_count(X, 0.5),
    "moments": lambda: cpu.moments(X, 0.5, 0.5),
    "abs_product": lambda: cpu.abs_product(X),
    "quantize": lambda: cpu.quantize(X, 1e6),
    "quantize_stochastic": lambda: cpu.quantize_stochastic(X, 20.0, 1),
    "dequantize": lambda: cpu.dequantize(INTEGERS, 1e-6),
    "lowest_exponent": lambda: cpu.lowest_exponent(X),
    "split_limbs": lambda: cpu.split_limbs(X, LIMBS),
    "join_limbs": lambda: cpu.join_limbs(SUMS, LIMBS),
    "pack": lambda: cpu.pack(BITMAP, 4, 8),
    "unpack": lambda: cpu.unpack(INTEGERS, SIZE, 4, 8),
    "pack_bits": lambda: cpu.pack_bits(BLOCKS, 31),
    "unpack_bits": lambda: cpu.unpack_bits(INTEGERS, SIZE, 9),
    "block_magnitudes": lambda: cpu.block_magnitudes(X, 32),
    "round_to_format": lambda: cpu.round_to_format(X, POWERS, 32, FORM, None),
    "round_to_format, by chance": lambda: cpu.round_to_format(X, POWERS, 32, FORM, 1),
    "quantize_to_format": lambda: cpu.quantize_to_format(X, POWERS, POWERS, 32, FORM, 99, None),
    "quantize_to_format, by chance": lambda: cpu.quantize_to_format(
        X, POWERS, POWERS, 32, FORM, 99, 1
    ),
    "dequantize_blocks": lambda: cpu.dequantize_blocks(INTEGERS, np.ones(SIZE // 32), 32),
    "block_squares": lambda: cpu.block_squares(X, BLOCK),
    "hadamard": lambda: cpu.hadamard(X, SCALES, BLOCK, 1),
    "hadamard_inverse": lambda: cpu.hadamard_inverse(INTEGERS, SCALES, BLOCK, 1, SIZE),
    "quantize_to_table": lambda: cpu.quantize_to_table(
        INTEGERS, SCALES, np.array([0, 3, 7], np.int32), BLOCK, 1
    ),
    "project_rows": lambda: cpu.project_rows(X, BLOCK, FACTOR),
    "project_columns": lambda: cpu.project_columns(X, BLOCK, FACTOR),
    "factor_product": lambda: cpu.factor_product(FACTOR, FACTOR, 2),
    "scatter": lambda: cpu.scatter(INDICES, VALUES, SIZE),
    "nonzero_bitmap": lambda: cpu.nonzero_bitmap(None, DENSE, SIZE),
    "nonzero_bitmap, from indices": lambda: cpu.nonzero_bitmap(INDICES, VALUES, SIZE),
    "gather_sparse": lambda: cpu.gather_sparse(INDICES, VALUES, BLOCKS),
    "popcount": lambda: cpu.popcount(BITMAP),
    "bitmap_to_indices": lambda: cpu.bitmap_to_indices(BITMAP, SIZE),
    "block_bitmap": lambda: cpu.block_bitmap(DENSE, 256),
    "gather_blocks": lambda: cpu.gather_blocks(DENSE, BLOCKS, 256),
    "scatter_blocks": lambda: cpu.scatter_blocks(BLOCKS, DENSE[: BLOCKS.size * 256], 256, SIZE),
    "count_sketch_encode": lambda: cpu.count_sketch_encode(X, COLUMNS),
    "count_sketch_estimate": lambda: cpu.count_sketch_estimate(
        INTEGERS[: COLUMNS.cells], SIZE, COLUMNS
    ),
    "lhc_encode": lambda: cpu.lhc_encode(None, DENSE, SIZE, LAYOUTS["coupled"]),
    "lhc_encode, from indices": lambda: cpu.lhc_encode(INDICES, VALUES, SIZE, LAYOUTS["plain"]),
    "lhc_occupancy": lambda: cpu.lhc_occupancy(BITMAP, SIZE, LAYOUTS["plain"]),
    "lhc_peel": lambda: cpu.lhc_peel(*ENCODED["coupled"], SIZE, LAYOUTS["coupled"]),
    "lhc_peel, plain": lambda: cpu.lhc_peel(*ENCODED["plain"], SIZE, LAYOUTS["plain"]),
    "lhc_unblock": lambda: cpu.lhc_unblock(BITMAP, SIZE, LAYOUTS["plain"]),
    "bloom_insert": lambda: cpu.bloom_insert(BITMAP, SHAPE),
    "bloom_query": lambda: cpu.bloom_query(INTEGERS[: SHAPE.words], SIZE, SHAPE),
}


def flattened(results):
    if not isinstance(results, tuple):
        return [results]
    return [each for result in results for each in flattened(result)]


def test_every_kernel_is_measured():
    methods = {name for name, _ in inspect.getmembers(Kernels, inspect.isfunction)}
    assert {name.split(",")[0].split(" of ")[0] for name in CASES} == {
        name for name in methods if not name.startswith("_")
    }


@pytest.mark.parametrize("case", CASES)
def test_scratch_stays_below_twice_the_gradient(case):
    CASES[case]()  # compiled before it is measured
    buffers._unused.clear()
    tracemalloc.start()
    results = CASES[case]()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    kept = sum(each.nbytes for each in flattened(results) if isinstance(each, np.ndarray))
    assert peak - kept <= 2 * X.nbytes
