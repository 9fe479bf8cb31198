"""The compiled kernels return what the naive ones return, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gradients
from support.kernels import assert_same, bitmap_of, sparse_integers, too_small
from support.tiers import tiered

from innet import kernels
from innet.core.errors import InputError, UnknownNameError
from innet.core.threads import while_others_wait
from innet.kernels import Filter, SketchLayout

cpu, naive = kernels.get("cpu"), kernels.get("reference")
compiled = [kernels.get(name) for name in kernels.names() if name != "reference"]
each_compiled = pytest.mark.parametrize("fast", compiled, ids=lambda module: module.__name__)


@each_compiled
@given(st.data())
def test_survey(fast, data):
    x = data.draw(gradients.vectors(data.draw(gradients.sizes(large=True))))
    assert_same(fast.absmax_nnz(x), naive.absmax_nnz(x))
    most = data.draw(st.sampled_from((0, x.size // 8, x.size)))
    assert_same(fast.absmax_nnz_sparse(x, most), naive.absmax_nnz_sparse(x, most))


@each_compiled
@pytest.mark.parametrize("size", [1, 63, 64, 65, 128, 129, 200])
def test_picks_up_to_the_last_element_and_to_as_many_as_are_asked_for(fast, size):
    x = np.zeros(size, np.float32)
    for first in (size - 1, size // 2, 0):
        x[first:] = -1.5
        for most in (0, size - first - 1, size - first, size):
            assert_same(fast.absmax_nnz_sparse(x, most), naive.absmax_nnz_sparse(x, most))


@each_compiled
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("size", "index"), [(1, 0), (1000, 999), (1000, 500)])
def test_survey_finds_the_first_value_that_is_not_finite(fast, bad, size, index):
    x = np.ones(size, np.float32)
    x[index:] = bad
    assert fast.absmax_nnz(x)[2] == naive.absmax_nnz(x)[2] == index
    assert fast.absmax_nnz_sparse(x, 9)[2] == naive.absmax_nnz_sparse(x, 9)[2] == index


@each_compiled
@given(st.data())
def test_top_k(fast, data):
    size = data.draw(gradients.sizes(large=True))
    x = data.draw(gradients.vectors(size))
    k = data.draw(st.one_of(st.integers(0, size), st.integers(0, min(size, size // 50 + 1))))
    before = x.copy()
    assert_same(fast.top_k(x, k), naive.top_k(x, k))
    assert_same(x, before)


@each_compiled
@given(st.data())
def test_top_k_residual(fast, data):
    size = data.draw(gradients.sizes(large=True))
    gradient, residual = (data.draw(gradients.vectors(size)) for _ in range(2))
    k = data.draw(st.one_of(st.integers(0, size), st.integers(0, min(size, size // 50 + 1))))
    before = gradient.copy(), residual.copy()
    chosen = naive.top_k_residual(gradient, residual, k)
    assert_same(fast.top_k_residual(gradient, residual, k), chosen)
    assert_same((gradient, residual), before)


@each_compiled
@given(st.data())
def test_sums(fast, data):
    size = data.draw(gradients.sizes(large=True))
    x, y = (data.draw(gradients.vectors(size)) for _ in range(2))
    for weight in (1.0, 0.1, 1e-38):
        assert_same(fast.add_scaled(x, y, weight), naive.add_scaled(x, y, weight))
    indices = np.flatnonzero(data.draw(gradients.vectors(size)) > 0).astype(np.int32)
    for weight in (1.0, 0.1):
        for places in (indices, indices[::100], indices[:0]):
            taken, _ = naive.add_scaled(x, y, weight)
            filtered = naive.low_pass(x, y, weight, places, taken)
            assert_same(fast.low_pass(x, y, weight, places, taken.copy()), filtered)
    for parts in gradients.parts_of(size):
        largest = naive.add_scaled_argmax(x, y, 0.1, parts)
        assert_same(fast.add_scaled_argmax(x, y, 0.1, parts), largest)


@pytest.mark.parametrize(
    "size", tiered([1 << 20, (1 << 20) + 37], [(1 << 20) + 37], "the same without a rest")
)
def test_results_that_pass_the_caches(size):
    rng = np.random.default_rng(size)
    gradient, residual = rng.standard_normal((2, size)).astype(np.float32)
    for k in (1, size // 100, size // 5):
        chosen = naive.top_k_residual(gradient, residual, k)
        assert_same(cpu.top_k_residual(gradient, residual, k), chosen)
    for threshold in (3.0, 0.1):
        reaching = naive.select_threshold_residual(gradient, residual, threshold)
        assert_same(cpu.select_threshold_residual(gradient, residual, threshold), reaching)
    sums = naive.add_scaled(gradient, residual, 0.1)
    assert_same(cpu.add_scaled(gradient, residual, 0.1), sums)
    taken, _ = naive.add_scaled(residual, gradient, 0.1)
    filtered = naive.low_pass(residual, gradient, 0.1, chosen[0], taken)
    assert_same(cpu.low_pass(residual, gradient, 0.1, chosen[0], taken.copy()), filtered)
    integers = naive.quantize(gradient, 1e6)
    assert_same(cpu.quantize(gradient, 1e6), integers)
    assert_same(cpu.dequantize(integers, 0.3), naive.dequantize(integers, 0.3))
    indices, integers = chosen[0], chosen[1].view(np.int32)
    assert_same(cpu.scatter(indices, integers, size), naive.scatter(indices, integers, size))


@each_compiled
@given(st.data())
def test_fixed_point(fast, data):
    x = data.draw(gradients.vectors(data.draw(gradients.sizes())))
    largest = float(np.abs(x).max(initial=0)) or 1.0
    scale = data.draw(st.sampled_from((2**31 - 1, 2**26 - 1, 1000.5, 2.5))) / largest
    integers = fast.quantize(x, scale)
    assert_same(integers, naive.quantize(x, scale))
    for step in (1 / scale, largest, 2.0**-200):
        assert_same(fast.dequantize(integers, step), naive.dequantize(integers, step))


@pytest.mark.parametrize("some", [naive, *compiled], ids=lambda module: module.__name__)
def test_what_is_too_small_is_a_zero_without_a_sign(some):
    for size in (33, 1 << 20):  # the second is written past the caches
        for values in too_small(some, size):
            assert not values.view(np.int32).any()


@each_compiled
@given(st.data())
def test_rounding_by_chance(fast, data):
    x = data.draw(gradients.vectors(data.draw(gradients.sizes())))
    largest = float(np.abs(x).max(initial=0)) or 1.0
    scale = data.draw(st.sampled_from((2**20, 127, 1.5))) / largest
    key = data.draw(st.integers(0, 2**64 - 1))
    assert_same(fast.quantize_stochastic(x, scale, key), naive.quantize_stochastic(x, scale, key))


@each_compiled
@given(sparse_integers())
def test_bitmaps_and_scatter(fast, case):
    dense, _ = case
    bitmap = bitmap_of(dense != 0)
    indices = np.flatnonzero(dense).astype(np.int32)
    assert fast.popcount(bitmap) == naive.popcount(bitmap) == indices.size
    assert_same(fast.bitmap_to_indices(bitmap, dense.size), indices)
    assert_same(naive.bitmap_to_indices(bitmap, dense.size), indices)
    assert_same(fast.scatter(indices, dense[indices], dense.size), dense)
    for each in (fast, naive):
        out = np.full(dense.size, 7, np.int32)
        assert each.scatter(indices, dense[indices], dense.size, out) is out
        assert_same(out, dense)
    assert_same(naive.scatter(indices, dense[indices], dense.size), dense)


@pytest.mark.parametrize("size", [2970, 3000])  # an odd number of words and an even one
@pytest.mark.parametrize("density", [0, 0.001, 0.01, 0.03, 0.08, 0.5, 1])
def test_bits_of_any_density_are_listed(density, size):
    # The CPU's kernel lists few bits, some and many in different ways.
    places = np.flatnonzero(np.random.default_rng(0).random(size) < density).astype(np.int32)
    bitmap = naive.nonzero_bitmap(places, np.ones_like(places), size)
    assert_same(cpu.bitmap_to_indices(bitmap, size), places)
    bitmap[50] = -1  # one word that has more than the others
    assert_same(cpu.bitmap_to_indices(bitmap, size), naive.bitmap_to_indices(bitmap, size))
    bitmap[-1] = -1
    assert_same(cpu.bitmap_to_indices(bitmap, size), naive.bitmap_to_indices(bitmap, size))


@each_compiled
@given(sparse_integers())
def test_sketch(fast, case):
    dense, layout = case
    bitmap, sketch = naive.lhc_encode(None, dense, dense.size, layout)
    indices = np.flatnonzero(dense).astype(np.int32)
    some_zero = np.sort(np.union1d(indices, np.arange(0, dense.size, 7))).astype(np.int32)
    for places in (None, indices, some_zero):
        integers = dense if places is None else dense[places]
        assert_same(fast.lhc_encode(places, integers, dense.size, layout), (bitmap, sketch))
        assert_same(naive.lhc_encode(places, integers, dense.size, layout), (bitmap, sketch))
        assert_same(fast.nonzero_bitmap(places, integers, dense.size), bitmap)
        assert_same(naive.nonzero_bitmap(places, integers, dense.size), bitmap)
    for wanted in (indices, some_zero, some_zero[1::3].copy(), indices[:0]):
        assert_same(fast.gather_sparse(indices, dense[indices], wanted), dense[wanted])
        assert_same(naive.gather_sparse(indices, dense[indices], wanted), dense[wanted])
        assert_same(fast.gather_sparse(wanted, dense[wanted], wanted), dense[wanted])
        found = naive.gather_sparse(wanted, dense[wanted], some_zero)
        assert_same(fast.gather_sparse(wanted, dense[wanted], some_zero), found)
    occupancy = naive.lhc_occupancy(bitmap, dense.size, layout)
    assert occupancy.sum() == layout.hashes * indices.size
    assert_same(fast.lhc_occupancy(bitmap, dense.size, layout), occupancy)
    before = bitmap.copy(), sketch.copy()
    peeled = naive.lhc_peel(bitmap, sketch, dense.size, layout)
    assert_same(fast.lhc_peel(bitmap, sketch, dense.size, layout), peeled)
    assert_same((bitmap, sketch), before)
    found, missing = peeled
    assert_same(found[0], indices)
    total = naive.scatter(*found, dense.size)
    lost = naive.bitmap_to_indices(missing, dense.size)
    assert_same(np.delete(total, lost), np.delete(dense, lost))
    assert not total[lost].any()
    if lost.size <= 200:  # the oracle peels anew for each element that it takes
        asked = naive.lhc_unblock(bitmap, dense.size, layout)
        assert_same(fast.lhc_unblock(bitmap, dense.size, layout), asked)
        assert not (asked & ~missing).any()
        rest = bitmap & ~asked
        assert not naive.lhc_peel(rest, sketch, dense.size, layout)[1].any()


@pytest.mark.parametrize("density", [0, 0.001, 0.05, 1])
def test_filter_of_many_blocks(density):
    # The CPU's kernels hash some hundred blocks of 32 side by side.
    size, shape = 20_011, Filter(900, 7, 3)
    bitmap = bitmap_of(np.random.default_rng(0).random(size) < density)
    filled = naive.bloom_insert(bitmap, shape)
    assert_same(cpu.bloom_insert(bitmap, shape), filled)
    assert_same(cpu.bloom_query(filled, size, shape), naive.bloom_query(filled, size, shape))


def test_a_filter_is_looked_up_in_parts_while_others_wait():
    size, shape = 400_011, Filter(9000, 7, 3)  # more than two parts of blocks of 32
    bitmap = bitmap_of(np.random.default_rng(0).random(size) < 0.02)
    filled = cpu.bloom_insert(bitmap, shape)
    whole = cpu.bloom_query(filled, size, shape)
    with while_others_wait(2):
        assert_same(cpu.bloom_query(filled, size, shape), whole)
    assert_same(naive.bloom_query(filled, size, shape), whole)


@each_compiled
@given(st.data())
def test_filter(fast, data):
    dense, _ = data.draw(sparse_integers())
    bitmap = bitmap_of(dense != 0)
    words = data.draw(st.sampled_from((1, 2, 7, 100)))
    shape = Filter(words, data.draw(st.integers(1, 31)), data.draw(st.integers(0, 2**63 - 1)))
    filled = naive.bloom_insert(bitmap, shape)
    assert_same(fast.bloom_insert(bitmap, shape), filled)
    found = naive.bloom_query(filled, dense.size, shape)
    assert_same(fast.bloom_query(filled, dense.size, shape), found)
    assert not (bitmap & ~found).any()
    half = np.int32(0x55555555)
    halves = [naive.bloom_insert(each, shape) for each in (bitmap & half, bitmap & ~half)]
    assert_same(halves[0] | halves[1], filled)


SIZE = 10**6
SUPPORTS = {
    "at random": lambda rng: rng.random(SIZE) < 0.02,
    "every fiftieth": lambda _: np.arange(SIZE) % 50 == 0,
    "the same lane": lambda _: np.arange(SIZE) % 64 == 5,
    "whole blocks": lambda rng: np.repeat(rng.random(SIZE // 32) < 0.02, 32),
}


@pytest.mark.parametrize("support", SUPPORTS)
def test_a_filter_lets_few_others_pass(support):
    # With 10 probes and half of the bits set, one in 1024 of the others; in whole blocks 32 pass
    # together, so that it takes more tries to see the mean.
    rng, fast = np.random.default_rng(0), kernels.get("cpu")
    false = expected = 0.0
    for seed in range(40):
        flags = SUPPORTS[support](rng)
        bitmap = bitmap_of(flags)
        items = np.count_nonzero(flags)
        shape = Filter(int(items * 10 / 0.693 / 32) + 1, 10, seed)
        found = fast.bloom_query(fast.bloom_insert(bitmap, shape), SIZE, shape)
        false += fast.popcount(found) - items
        expected += (SIZE - items) / 1024
    assert 0.9 < false / expected < 1.1


@pytest.mark.parametrize("wrong", [(0, 1, 0), (2**26, 1, 0), (1, 0, 0), (1, 32, 0), (1, 1, -1)])
def test_impossible_filters_are_refused(wrong):
    with pytest.raises(InputError):
        Filter(*wrong)


@each_compiled
def test_bits_past_the_last_element_are_ignored(fast):
    layout = SketchLayout(10, 1, 3)
    bitmap, sketch = naive.lhc_encode(None, np.array([5, 0, -7], np.int32), 3, layout)
    bitmap[0] |= np.int32(-8)  # bits 3 to 31
    for each in (fast, naive):
        (items, integers), missing = each.lhc_peel(bitmap, sketch, 3, layout)
        assert (items.tolist(), integers.tolist()) == ([0, 2], [5, -7])
        assert not missing.any()
        assert each.bitmap_to_indices(bitmap, 3).tolist() == [0, 2]


def test_unknown_kernels_are_refused():
    with pytest.raises(UnknownNameError, match="Known: cpu, cuda, reference"):
        kernels.get("gpu")


@pytest.mark.parametrize(
    "wrong",
    [
        (0, 16, 0), (1, 3, 0), (1, 256, 0), (1, 0, 0), (1, 16, -1), (2**30, 16, 0),
        (1, 1, 0, 2), (1, 1, 0, 5), (1, 1, 0, 3, 0), (2**10, 1, 0, 3, 2**21),
    ],
)  # fmt: skip
def test_impossible_layouts_are_refused(wrong):
    with pytest.raises(InputError):
        SketchLayout(*wrong)
