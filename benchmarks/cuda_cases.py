"""A call of each kernel for any number of elements, to compare implementations by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from innet import kernels
from innet.kernels import CountLayout, Filter, Limbs, SketchLayout
from innet.kernels.arrays import Floats, Ints
from innet.kernels.layout.formats import FORMATS

Call = Callable[[Any], Any]
cpu = kernels.get("cpu")
DENSITY = 0.05  # of the integers that are not zero
KEY = 0x0123_4567_89AB_CDEF


def calls(size: int, rng: np.random.Generator) -> Iterator[tuple[str, Call]]:
    """The name of each kernel, and its call with arrays of about ``size`` elements.

    Args:
        size: of the gradient, 0 or more.
        rng: draws it.
    """
    x = rng.standard_normal(size, np.float32)
    dense = cpu.quantize(np.where(rng.random(size) < DENSITY, x, np.float32(0)), 1e6)
    yield from _of_statistics(x, np.flatnonzero(dense).astype(np.int32))
    yield from _of_selectors(x)
    yield from _of_quantizers(x, dense, rng)
    yield from _of_transforms(x)
    yield from _of_carriers(dense)
    yield from _of_sketches(x, dense, rng)


def _of_statistics(x: Floats, places: Ints) -> Iterator[tuple[str, Call]]:
    y = x[::-1].copy()
    yield "absmax_nnz", lambda k: k.absmax_nnz(x)
    yield "absmax_nnz_sparse", lambda k: k.absmax_nnz_sparse(x, x.size)
    yield "lowest_exponent", lambda k: k.lowest_exponent(x)
    yield "absmin_count", lambda k: k.absmin_count(x, 0.5)
    yield "moments", lambda k: k.moments(x, 0.1, 0.2)
    yield "abs_product", lambda k: k.abs_product(x)
    yield "add_scaled", lambda k: k.add_scaled(x, y, 0.1)
    taken, _ = cpu.add_scaled(x, y, 0.1)
    yield "low_pass", lambda k: k.low_pass(x, y, 0.1, places, taken.copy())


def _of_selectors(x: Floats) -> Iterator[tuple[str, Call]]:
    size, y = x.size, x[::-1].copy()
    share = size // 100
    yield "top_k", lambda k: k.top_k(x, share)
    yield "top_k_residual", lambda k: k.top_k_residual(x, y, share)
    yield "select_threshold", lambda k: k.select_threshold(x, 2.5)
    yield "select_threshold_residual", lambda k: k.select_threshold_residual(x, y, 2.5)
    yield "chunk_argmax", lambda k: k.chunk_argmax(x, 100)
    parts = np.array([(0, size, 16)] if size else np.empty((0, 3)), np.int64)
    yield "add_scaled_argmax", lambda k: k.add_scaled_argmax(x, y, 0.1, parts)
    yield "select_above_chunk_max", lambda k: k.select_above_chunk_max(x, y, 0.3, 100)


def _of_quantizers(x: Floats, dense: Ints, rng: np.random.Generator) -> Iterator[tuple[str, Call]]:
    size = x.size
    yield "quantize", lambda k: k.quantize(x, 1e6)
    yield "quantize_stochastic", lambda k: k.quantize_stochastic(x, 100.0, KEY)
    yield "dequantize", lambda k: k.dequantize(dense, 1e-6)
    limbs = Limbs.of(cpu.absmax_nnz(x)[0], min(cpu.lowest_exponent(x), 127), 8)
    sums = cpu.split_limbs(x, limbs)
    yield "split_limbs", lambda k: k.split_limbs(x, limbs)
    yield "join_limbs", lambda k: k.join_limbs(sums, limbs)
    blocks = -(-size // 32)
    powers, finer = np.full((2, blocks), 2.0, np.float32)
    form, steps = FORMATS["mxfp8-e4m3"], np.full(blocks, 0.25)
    yield "block_magnitudes", lambda k: k.block_magnitudes(x, 32)
    yield "round_to_format", lambda k: k.round_to_format(x, powers, 32, form, None)
    yield "round_to_format, by chance", lambda k: k.round_to_format(x, powers, 32, form, KEY)
    numbers = x, powers, finer, 32, form, 896
    yield "quantize_to_format", lambda k: k.quantize_to_format(*numbers, None)
    yield "quantize_to_format, by chance", lambda k: k.quantize_to_format(*numbers, KEY)
    yield "dequantize_blocks", lambda k: k.dequantize_blocks(dense, steps, 32)
    small = rng.integers(-63, 64, size).astype(np.int32)
    words, bits = cpu.pack(small, 4, 7), cpu.pack_bits(small + 64, 7)
    yield "pack", lambda k: k.pack(small, 4, 7)
    yield "unpack", lambda k: k.unpack(words, size, 4, 7)
    yield "pack_bits", lambda k: k.pack_bits(small + 64, 7)
    yield "unpack_bits", lambda k: k.unpack_bits(bits, size, 7)


def _of_transforms(x: Floats) -> Iterator[tuple[str, Call]]:
    size, block = x.size, 512
    squares = cpu.block_squares(x, block)
    scales = np.where(squares > 0, 2.0**30 / block / np.sqrt(np.maximum(squares, 1e-30)), 0.0)
    rotated = cpu.hadamard(x, scales, block, KEY)
    back, table = rotated // block, np.array([0, 2, 5, 9], np.int32)
    yield "block_squares", lambda k: k.block_squares(x, block)
    yield "hadamard", lambda k: k.hadamard(x, scales, block, KEY)
    yield "hadamard_inverse", lambda k: k.hadamard_inverse(back, scales, block, KEY, size)
    coarse = np.full(squares.size, 3 * 2.0**-30 * np.sqrt(block))
    yield "quantize_to_table", lambda k: k.quantize_to_table(rotated, coarse, table, block, KEY)
    columns, rank = max(1, int(size**0.5)), 2
    matrix = x[: size // columns * columns] if size else np.zeros(1, np.float32)
    left, right = (np.resize(matrix[::-1], rank * n) for n in (matrix.size // columns, columns))
    yield "project_rows", lambda k: k.project_rows(matrix, columns, right)
    yield "project_columns", lambda k: k.project_columns(matrix, columns, left)
    yield "factor_product", lambda k: k.factor_product(left, right, rank)


def _of_carriers(dense: Ints) -> Iterator[tuple[str, Call]]:
    size, places = dense.size, np.flatnonzero(dense).astype(np.int32)
    values, bitmap = dense[places], cpu.nonzero_bitmap(None, dense, size)
    yield "scatter", lambda k: k.scatter(places, values, size)
    yield "nonzero_bitmap", lambda k: k.nonzero_bitmap(places, values, size)
    yield "gather_sparse", lambda k: k.gather_sparse(places, values, places[1::2].copy())
    yield "popcount", lambda k: k.popcount(bitmap)
    yield "bitmap_to_indices", lambda k: k.bitmap_to_indices(bitmap, size)
    flags = cpu.block_bitmap(dense, 256)
    blocks = cpu.bitmap_to_indices(flags, -(-size // 256))
    gathered = cpu.gather_blocks(dense, blocks, 256)
    yield "block_bitmap", lambda k: k.block_bitmap(dense, 256)
    yield "gather_blocks", lambda k: k.gather_blocks(dense, blocks, 256)
    yield "scatter_blocks", lambda k: k.scatter_blocks(blocks, gathered, 256, size)


def _of_sketches(x: Floats, dense: Ints, rng: np.random.Generator) -> Iterator[tuple[str, Call]]:
    size, places = x.size, np.flatnonzero(dense).astype(np.int32)
    values, bitmap = dense[places], cpu.nonzero_bitmap(None, dense, size)
    count = CountLayout(5, max(1, size // 100), 0)
    cells = rng.integers(-1000, 1000, count.cells).astype(np.int32)
    yield "count_sketch_encode", lambda k: k.count_sketch_encode(x, count)
    yield "count_sketch_estimate", lambda k: k.count_sketch_estimate(cells, size, count)
    layout = SketchLayout(max(1, int(1.3 * places.size / 3 / 32)), 32, 0)
    encoded, sketch = cpu.lhc_encode(None, dense, size, layout)
    yield "lhc_encode", lambda k: k.lhc_encode(places, values, size, layout)
    yield "lhc_occupancy", lambda k: k.lhc_occupancy(encoded, size, layout)
    yield "lhc_peel", lambda k: k.lhc_peel(encoded, sketch, size, layout)
    yield "lhc_unblock", lambda k: k.lhc_unblock(encoded, size, layout)
    shape = Filter(max(1, places.size * 10 // 22), 10, 0)
    filled = cpu.bloom_insert(bitmap, shape)
    yield "bloom_insert", lambda k: k.bloom_insert(bitmap, shape)
    yield "bloom_query", lambda k: k.bloom_query(filled, size, shape)


def same(one: Any, other: Any) -> bool:
    """Equal dtypes, shapes and bits of two results; those on a GPU are copied."""
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    one, other = (
        each.copy_to_host() if hasattr(each, "copy_to_host") else np.asarray(each)
        for each in (one, other)
    )
    alike = one.dtype == other.dtype and one.shape == other.shape
    return bool(alike and one.tobytes() == other.tobytes())
