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

cpu = kernels.get("cpu")
SIZE = 1 << 20  # large enough for results to come from memory that is kept

rng = np.random.default_rng(0)
X = rng.standard_normal(SIZE).astype(np.float32)
Y = rng.standard_normal(SIZE).astype(np.float32)
ONES = np.ones(SIZE, np.float32)
INTEGERS = cpu.quantize(X, 1e6)
DENSE = np.where(rng.random(SIZE) < 0.2, INTEGERS, np.int32(0))  # a fifth is not zero
INDICES = np.flatnonzero(DENSE).astype(np.int32)
VALUES = DENSE[INDICES]
LAYOUTS = {
    hashing: sketch_layout(INDICES.size, LhcSettings(hashing=hashing), 0)
    for hashing in ("coupled", "plain")
}
ENCODED = {hashing: cpu.lhc_encode(None, DENSE, SIZE, LAYOUTS[hashing]) for hashing in LAYOUTS}
BITMAP = ENCODED["plain"][0]
LIMBS = Limbs(-30, 29, 2)
SUMS = cpu.split(X, LIMBS)
COLUMNS = CountLayout(5, SIZE // 100, 0)
SHAPE = Filter(INDICES.size // 4, 6, 0)
BLOCKS = np.arange(0, SIZE // 256, 3, dtype=np.int32)
BLOCK = 1024
SCALES = np.full(SIZE // BLOCK, 1e3)
FACTOR = X[: 2 * BLOCK]

CASES = {
    "survey": lambda: cpu.survey(X),
    "survey_and_pick": lambda: cpu.survey_and_pick(DENSE.view(np.float32), SIZE // 4),
    "survey_and_pick, too many": lambda: cpu.survey_and_pick(X, SIZE // 8),
    "top_k": lambda: cpu.top_k(X, SIZE // 10),
    "top_k of many": lambda: cpu.top_k(X, SIZE // 2),
    "top_k of equal magnitudes": lambda: cpu.top_k(ONES, SIZE // 10),
    "top_k_residual": lambda: cpu.top_k_residual(X, Y, SIZE // 10),
    "reaching": lambda: cpu.reaching(X, 3.0),
    "reaching, by many": lambda: cpu.reaching(X, 0.01),
    "reaching_residual": lambda: cpu.reaching_residual(X, Y, 1.0),
    "add_scaled": lambda: cpu.add_scaled(X, Y, 0.1),
    "low_pass": lambda: cpu.low_pass(X, Y, 0.1, INDICES, X.copy()),
    "chunk_largest": lambda: cpu.chunk_largest(X, 2),
    "chunk_largest_sum": lambda: cpu.chunk_largest_sum(X, Y, 2),
    "reaching_maxima": lambda: cpu.reaching_maxima(X, Y, 1.0, 2),
    "smallest": lambda: cpu.smallest(X, 0.5),
    "moments": lambda: cpu.moments(X, 0.5, 0.5),
    "product": lambda: cpu.product(X),
    "quantize": lambda: cpu.quantize(X, 1e6),
    "quantise_randomly": lambda: cpu.quantise_randomly(X, 20.0, 1),
    "dequantise": lambda: cpu.dequantise(INTEGERS, 1e-6),
    "grain": lambda: cpu.grain(X),
    "split": lambda: cpu.split(X, LIMBS),
    "join": lambda: cpu.join(SUMS, LIMBS),
    "pack": lambda: cpu.pack(BITMAP, 4, 8),
    "unpack": lambda: cpu.unpack(INTEGERS, SIZE, 4, 8),
    "block_squares": lambda: cpu.block_squares(X, BLOCK),
    "hadamard": lambda: cpu.hadamard(X, SCALES, BLOCK, 1),
    "hadamard_back": lambda: cpu.hadamard_back(INTEGERS, SCALES, BLOCK, 1, SIZE),
    "quantise_to_table": lambda: cpu.quantise_to_table(
        INTEGERS, SCALES, np.array([0, 3, 7], np.int32), BLOCK, 1
    ),
    "project_rows": lambda: cpu.project_rows(X, BLOCK, FACTOR),
    "project_columns": lambda: cpu.project_columns(X, BLOCK, FACTOR),
    "factor_product": lambda: cpu.factor_product(FACTOR, FACTOR, 2),
    "scatter": lambda: cpu.scatter(INDICES, VALUES, SIZE),
    "mark": lambda: cpu.mark(None, DENSE, SIZE),
    "mark, from indices": lambda: cpu.mark(INDICES, VALUES, SIZE),
    "align": lambda: cpu.align(INDICES, VALUES, BLOCKS),
    "popcount": lambda: cpu.popcount(BITMAP),
    "expand": lambda: cpu.expand(BITMAP, SIZE),
    "block_bitmap": lambda: cpu.block_bitmap(DENSE, 256),
    "gather_blocks": lambda: cpu.gather_blocks(DENSE, BLOCKS, 256),
    "scatter_blocks": lambda: cpu.scatter_blocks(BLOCKS, DENSE[: BLOCKS.size * 256], 256, SIZE),
    "count_sketch": lambda: cpu.count_sketch(X, COLUMNS),
    "count_estimate": lambda: cpu.count_estimate(INTEGERS[: COLUMNS.cells], SIZE, COLUMNS),
    "lhc_encode": lambda: cpu.lhc_encode(None, DENSE, SIZE, LAYOUTS["coupled"]),
    "lhc_encode, from indices": lambda: cpu.lhc_encode(INDICES, VALUES, SIZE, LAYOUTS["plain"]),
    "lhc_occupancy": lambda: cpu.lhc_occupancy(BITMAP, SIZE, LAYOUTS["plain"]),
    "lhc_peel": lambda: cpu.lhc_peel(*ENCODED["coupled"], SIZE, LAYOUTS["coupled"]),
    "lhc_peel, plain": lambda: cpu.lhc_peel(*ENCODED["plain"], SIZE, LAYOUTS["plain"]),
    "lhc_unlock": lambda: cpu.lhc_unlock(BITMAP, SIZE, LAYOUTS["plain"]),
    "bloom_fill": lambda: cpu.bloom_fill(BITMAP, SHAPE),
    "bloom_members": lambda: cpu.bloom_members(INTEGERS[: SHAPE.words], SIZE, SHAPE),
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
