"""The CUDA kernels return what the naive ones return, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda
from support import gradients
from support.formats import check_formats
from support.kernels import assert_same, bitmap_of, sparse_integers, too_small
from support.tiers import examples

from innet import kernels
from innet.core.errors import InputError
from innet.kernels import CountLayout, Filter, Limbs, SketchLayout
from innet.kernels.cuda.device import SIMULATED
from innet.kernels.reference import lhc

naive = kernels.get("reference")
gpu = kernels.get("cuda")

SMALL = st.sampled_from((0, 1, 2, 31, 32, 33, 65, 130, 257))
SIZES = SMALL if SIMULATED else st.one_of(gradients.sizes(large=True), st.just(3_000_001))
some_examples = settings(max_examples=examples(12) if SIMULATED else 200)

on_gpu = pytest.mark.skipif(SIMULATED, reason="the simulator has no array interface")


def vector(data, size=None):
    return data.draw(gradients.vectors(data.draw(SIZES) if size is None else size))


@some_examples
@given(st.data())
def test_survey_and_grain(data):
    x = vector(data)
    assert_same(gpu.absmax_nnz(x), naive.absmax_nnz(x))
    most = data.draw(st.sampled_from((0, x.size // 8, x.size)))
    assert_same(gpu.absmax_nnz_sparse(x, most), naive.absmax_nnz_sparse(x, most))
    assert_same(gpu.lowest_exponent(x[:1000]), naive.lowest_exponent(x[:1000]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("size", "index"), [(1, 0), (300, 299), (300, 150)])
def test_survey_finds_the_first_value_that_is_not_finite(bad, size, index):
    x = np.ones(size, np.float32)
    x[index:] = bad
    assert gpu.absmax_nnz(x)[2] == gpu.absmax_nnz_sparse(x, 9)[2] == index


@some_examples
@given(st.data())
def test_top_k(data):
    size = data.draw(SIZES)
    x, residual = vector(data, size), vector(data, size)
    k = data.draw(st.sampled_from((0, min(1, size), size // 50, size // 2, max(0, size - 1), size)))
    before = x.copy()
    assert_same(gpu.top_k(x, k), naive.top_k(x, k))
    other = residual.copy()
    assert_same(gpu.top_k_residual(x, residual, k), naive.top_k_residual(x, residual, k))
    assert_same((x, residual), (before, other))


def test_top_k_of_equal_magnitudes_takes_the_first():
    x = np.where(np.arange(300) % 2, np.float32(-1.5), np.float32(1.5))
    x[[7, 250]] = 2
    indices, values = gpu.top_k(x, 100)
    assert indices.tolist() == [*range(99), 250]
    assert_same(values, x[indices])


def test_top_k_of_infinite_sums():
    gradient, residual = (np.full(40, gradients.LARGEST, np.float32) for _ in range(2))
    residual[10:] = gradients.TINIEST
    gradient[20:] = 0
    chosen = naive.top_k_residual(gradient, residual, 25)
    assert_same(gpu.top_k_residual(gradient, residual, 25), chosen)


@some_examples
@given(st.data())
def test_threshold(data):
    size = data.draw(SIZES)
    x, residual = vector(data, size), vector(data, size)
    tops = st.sampled_from((1e-60, gradients.TINIEST, 0.5, 1.0, 1 / 3, 3.0, 1e30, 1e39, np.inf))
    threshold = float(np.abs(x).max(initial=0)) or data.draw(tops)
    for each in (threshold, data.draw(tops)):
        assert_same(gpu.select_threshold(x, each), naive.select_threshold(x, each))
    other = residual.copy()
    found = gpu.select_threshold_residual(x, residual, threshold)
    assert_same(found, naive.select_threshold_residual(x, residual, threshold))
    assert_same(residual, other)


@some_examples
@given(st.data())
def test_statistics(data):
    x = vector(data)
    middle = float(np.median(np.abs(x))) if x.size else 1.0
    for least in (0.0, middle, 1e39):
        assert gpu.absmin_count(x, least) == naive.absmin_count(x, least)
        for shift in (0.0, middle):
            assert gpu.moments(x, shift, least) == naive.moments(x, shift, least)
    assert gpu.abs_product(x) == naive.abs_product(x)


@pytest.mark.parametrize("size", [511, 512, 513, 1300])
def test_statistics_of_several_rows_of_lanes(size):
    x = np.random.default_rng(size).standard_cauchy(size).astype(np.float32)
    x[::97] = gradients.TINIEST
    assert gpu.moments(x, 0.1, 0.2) == naive.moments(x, 0.1, 0.2)
    assert gpu.abs_product(x) == naive.abs_product(x)


@some_examples
@given(st.data())
def test_sums(data):
    x = vector(data)
    y = vector(data, x.size)
    for weight in (1.0, 0.1, 1e-38):
        assert_same(gpu.add_scaled(x, y, weight), naive.add_scaled(x, y, weight))
    places = np.flatnonzero(x > y).astype(np.int32)
    for weight in (1.0, 0.1):
        taken, _ = naive.add_scaled(x, y, weight)
        filtered = naive.low_pass(x, y, weight, places, taken)
        assert_same(gpu.low_pass(x, y, weight, places, taken.copy()), filtered)


@some_examples
@given(st.data())
def test_fixed_point(data):
    x = vector(data)
    largest = float(np.abs(x).max(initial=0)) or 1.0
    scale = data.draw(st.sampled_from((2**31 - 1, 2**26 - 1, 1000.5, 2.5))) / largest
    integers = gpu.quantize(x, scale)
    assert_same(integers, naive.quantize(x, scale))
    for step in (1 / scale, largest, 2.0**-200):
        assert_same(gpu.dequantize(integers, step), naive.dequantize(integers, step))


def test_what_is_too_small_is_a_zero_without_a_sign():
    for values in too_small(gpu, 33):
        assert not np.asarray(values).view(np.int32).any()


@some_examples
@given(st.data())
def test_rounding_by_chance(data):
    x = vector(data)
    largest = float(np.abs(x).max(initial=0)) or 1.0
    scale = data.draw(st.sampled_from((2**20, 127, 1.5))) / largest
    key = data.draw(st.integers(0, 2**64 - 1))
    assert_same(gpu.quantize_stochastic(x, scale, key), naive.quantize_stochastic(x, scale, key))


def test_quantize_rounds_half_to_even():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997], np.float32)
    assert gpu.quantize(x, 1.0).tolist() == [0, 2, 2, 0, -2, 0]


@some_examples
@given(st.data())
def test_limbs(data):
    x = vector(data, data.draw(SMALL))
    workers = data.draw(st.sampled_from((1, 3, 64, 2**24)))
    magnitude, _, _ = naive.absmax_nnz(x)
    limbs = Limbs.of(magnitude, min(naive.lowest_exponent(x), 127), workers)
    parts = gpu.split_limbs(x, limbs)
    assert_same(parts, naive.split_limbs(x, limbs))
    assert_same(gpu.join_limbs(parts, limbs), naive.join_limbs(parts, limbs))
    rng = np.random.default_rng(data.draw(gradients.seeds))
    sums = rng.integers(-(2**31) + 1, 2**31, parts.size).astype(np.int32)
    assert_same(gpu.join_limbs(sums, limbs), naive.join_limbs(sums, limbs))


@some_examples
@given(sparse_integers(SIZES))
def test_bitmaps_scatter_and_blocks(case):
    dense, _ = case
    size = dense.size
    indices = np.flatnonzero(dense).astype(np.int32)
    bitmap = naive.block_bitmap(dense, 1)
    assert_same(gpu.popcount(bitmap), indices.size)
    assert_same(gpu.bitmap_to_indices(bitmap, size), indices)
    assert_same(gpu.bitmap_to_indices(~bitmap, size), np.flatnonzero(dense == 0).astype(np.int32))
    assert_same(gpu.scatter(indices, dense[indices], size), dense)
    for block in (5, 100):
        flags = naive.block_bitmap(dense, block)
        assert_same(gpu.block_bitmap(dense, block), flags)
        blocks = naive.bitmap_to_indices(flags, -(-size // block))
        words = naive.gather_blocks(dense, blocks, block)
        assert_same(gpu.gather_blocks(dense, blocks, block), words)
        assert_same(gpu.scatter_blocks(blocks, words, block, size), dense)


@some_examples
@given(st.data())
def test_largest_of_chunks(data):
    x = vector(data)
    for chunk in (9, 100):
        largest = naive.chunk_argmax(x, chunk)
        assert_same(gpu.chunk_argmax(x, chunk), largest)
        gradient = vector(data, x.size)
        for parts in gradients.parts_of(x.size):
            of_sum = naive.add_scaled_argmax(x, gradient, 0.1, parts)
            assert_same(gpu.add_scaled_argmax(x, gradient, 0.1, parts), of_sum)
        arguments = x, gradient, data.draw(st.sampled_from((0.0, 0.3, 1.0))), chunk
        assert_same(
            gpu.select_above_chunk_max(*arguments), naive.select_above_chunk_max(*arguments)
        )


@some_examples
@given(sparse_integers(SIZES))
def test_sketch(case):
    dense, layout = case
    size = dense.size
    bitmap, sketch = naive.lhc_encode(None, dense, size, layout)
    assert_same(gpu.lhc_encode(None, dense, size, layout), (bitmap, sketch))
    places = np.union1d(np.flatnonzero(dense), np.arange(0, size, 7)).astype(np.int32)
    encoded = gpu.lhc_encode(places, dense[places], size, layout)
    assert_same(encoded, (bitmap, sketch))
    assert_same(gpu.nonzero_bitmap(None, dense, size), bitmap)
    assert_same(gpu.nonzero_bitmap(places, dense[places], size), bitmap)
    some = places[1::2].copy()
    for own, wanted in ((places, some), (some, places)):
        found = naive.gather_sparse(own, dense[own], wanted)
        assert_same(gpu.gather_sparse(own, dense[own], wanted), found)
    occupancy = naive.lhc_occupancy(bitmap, size, layout)
    assert_same(gpu.lhc_occupancy(bitmap, size, layout), occupancy)
    peeled = naive.lhc_peel(bitmap, sketch, size, layout)
    assert_same(gpu.lhc_peel(bitmap, sketch, size, layout), peeled)
    if naive.popcount(peeled[1]) <= 200:  # the oracle peels anew for each element that it takes
        asked = naive.lhc_unblock(bitmap, size, layout)
        assert_same(gpu.lhc_unblock(bitmap, size, layout), asked)


def test_a_peel_of_many_rounds():
    # A few cells more than it takes at all: rounds between which the host looks several times.
    dense = np.random.default_rng(0).integers(-(2**31), 2**31, 400).astype(np.int32)
    layout = SketchLayout(176, 1, 0)
    bitmap, sketch = naive.lhc_encode(None, dense, dense.size, layout)
    _, missing, rounds = lhc.peel_rounds(bitmap, sketch, dense.size, layout)
    assert rounds > 8
    assert not missing.any()
    (items, integers), missing = gpu.lhc_peel(bitmap, sketch, dense.size, layout)
    assert_same(items, np.arange(dense.size, dtype=np.int32))
    assert_same(integers, dense)
    assert not missing.any()


def test_bits_past_the_last_element_are_ignored():
    layout = SketchLayout(10, 1, 3)
    bitmap, sketch = naive.lhc_encode(None, np.array([5, 0, -7], np.int32), 3, layout)
    bitmap[0] |= np.int32(-8)  # bits 3 to 31
    (items, integers), missing = gpu.lhc_peel(bitmap, sketch, 3, layout)
    assert (items.tolist(), integers.tolist()) == ([0, 2], [5, -7])
    assert not missing.any()
    assert not gpu.lhc_unblock(bitmap, 3, layout).any()
    assert gpu.bitmap_to_indices(bitmap, 3).tolist() == [0, 2]
    assert gpu.lhc_occupancy(bitmap, 3, layout).sum() == 6


@some_examples
@given(st.data())
def test_filter(data):
    dense, _ = data.draw(sparse_integers(SIZES))
    bitmap = bitmap_of(dense != 0)
    words = data.draw(st.sampled_from((1, 2, 7, 100)))
    shape = Filter(words, data.draw(st.integers(1, 31)), data.draw(st.integers(0, 2**63 - 1)))
    filled = naive.bloom_insert(bitmap, shape)
    assert_same(gpu.bloom_insert(bitmap, shape), filled)
    members = naive.bloom_query(filled, dense.size, shape)
    assert_same(gpu.bloom_query(filled, dense.size, shape), members)


@some_examples
@given(st.data())
def test_count_sketch(data):
    x = vector(data)
    rows, columns = data.draw(st.sampled_from(((3, 1), (5, 7), (31, 20), (3, 256), (5, 999))))
    layout = CountLayout(rows, columns, data.draw(st.integers(0, 2**63 - 1)))
    assert_same(gpu.count_sketch_encode(x, layout), naive.count_sketch_encode(x, layout))
    rng = np.random.default_rng(data.draw(gradients.seeds))
    sketch = rng.integers(-(2**31) + 1, 2**31, layout.cells).astype(np.int32)
    estimates = naive.count_sketch_estimate(sketch, x.size, layout)
    assert_same(gpu.count_sketch_estimate(sketch, x.size, layout), estimates)


@some_examples
@given(st.data())
def test_packing(data):
    bits = data.draw(st.sampled_from((2, 7, 10, 31, 32)))
    rng = np.random.default_rng(data.draw(gradients.seeds))
    half, lanes = 2 ** (bits - 1), 32 // bits
    integers = rng.integers(1 - half, half, data.draw(SIZES)).astype(np.int32)
    words = naive.pack(integers, lanes, bits)
    assert_same(gpu.pack(integers, lanes, bits), words)
    assert_same(gpu.unpack(words, integers.size, lanes, bits), integers)


@some_examples
@given(st.data())
def test_packing_bits(data):
    bits = data.draw(st.sampled_from((1, 7, 9, 16, 31)))
    rng = np.random.default_rng(data.draw(gradients.seeds))
    integers = rng.integers(0, 2**bits, data.draw(SIZES)).astype(np.int32)
    words = naive.pack_bits(integers, bits)
    assert_same(gpu.pack_bits(integers, bits), words)
    assert_same(gpu.unpack_bits(words, integers.size, bits), integers)


@some_examples
@given(st.data())
def test_hadamard(data):
    x = vector(data)
    block = data.draw(st.sampled_from((16, 64, 512)))
    key = data.draw(st.integers(0, 2**64 - 1))
    squares = naive.block_squares(x, block)
    assert_same(gpu.block_squares(x, block), squares)
    scales = np.zeros(squares.size)
    np.divide(2.0**30 / block, np.sqrt(squares / block), out=scales, where=squares > 0)
    rotated = naive.hadamard(x, scales, block, key)
    assert_same(gpu.hadamard(x, scales, block, key), rotated)
    back = rotated // block
    arguments = scales * 2.0**-40, block, key, x.size
    assert_same(gpu.hadamard_inverse(back, *arguments), naive.hadamard_inverse(back, *arguments))
    table = np.array([0, 2, 5, 9], np.int32)
    coarse = np.full(squares.size, 3 * 2.0**-30 * block / np.sqrt(block))
    assert_same(
        gpu.quantize_to_table(rotated, coarse, table, block, key),
        naive.quantize_to_table(rotated, coarse, table, block, key),
    )


@some_examples
@given(st.data())
def test_formats(data):
    check_formats(gpu, data, SIZES)


@some_examples
@given(st.data())
def test_low_rank(data):
    rows, columns, rank = (data.draw(st.sampled_from(each)) for each in ((1, 9), (1, 40), (1, 3)))
    x, p, q = (vector(data, size) for size in (rows * columns, rank * rows, rank * columns))
    assert_same(gpu.project_rows(x, columns, q), naive.project_rows(x, columns, q))
    assert_same(gpu.project_columns(x, columns, p), naive.project_columns(x, columns, p))
    assert_same(gpu.factor_product(p, q, rank), naive.factor_product(p, q, rank))


def test_arrays_on_the_device_stay_there():
    rng = np.random.default_rng(0)
    gradient, residual = rng.standard_normal((2, 300)).astype(np.float32)
    chosen = naive.top_k_residual(gradient, residual, 30)
    found = gpu.top_k_residual(cuda.to_device(gradient), cuda.to_device(residual), 30)
    assert not any(isinstance(each, np.ndarray) for each in found)
    assert_same(tuple(each.copy_to_host() for each in found), chosen)
    indices, values, _ = found
    dense = gpu.scatter(indices, gpu.quantize(values, 1e6), 300)
    layout = SketchLayout(4, 16, 1)
    encoded = gpu.lhc_encode(None, dense, 300, layout)
    found, missing = gpu.lhc_peel(*encoded, 300, layout)
    assert not missing.copy_to_host().any()
    assert_same(gpu.scatter(*found, 300).copy_to_host(), dense.copy_to_host())


@pytest.mark.parametrize("place", [np.asarray, cuda.to_device])
def test_arrays_of_another_dtype_or_shape_are_refused(place):
    for wrong in (np.zeros(4), np.zeros(4, np.float16), np.zeros((2, 2), np.float32)):
        with pytest.raises(InputError, match=f"float32 in one dimension, not {wrong.dtype}"):
            gpu.top_k(place(wrong), 1)
    with pytest.raises(InputError, match="int32 in one dimension, not uint32"):
        gpu.popcount(place(np.zeros(4, np.uint32)))


@on_gpu
def test_tensors_of_torch_are_used_in_place():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    gradient = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    chosen = naive.top_k_residual(gradient, np.zeros_like(gradient), 100)
    residual = torch.zeros(10_000, device="cuda")
    found = gpu.top_k_residual(torch.from_numpy(gradient).cuda(), residual, 100)
    tensors = [torch.as_tensor(each, device="cuda") for each in found]
    assert_same(tuple(each.cpu().numpy() for each in tensors), chosen)
