"""Selection by a known magnitude: the kernels, the selector, and the law of the residual."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gradients
from support.lockstep import all_reduce

from innet import kernels as kernel_sets
from innet.codecs import build_codec
from innet.core.errors import ConfigError, GradientError

TINIEST = float(np.finfo(np.float32).smallest_subnormal)
EACH_SET = pytest.mark.parametrize("name", kernel_sets.names())

thresholds = st.one_of(
    st.sampled_from([TINIEST, TINIEST * 1.5, 1e-60, 1.0, 1 + 1e-12, gradients.LARGEST, 1e39]),
    st.floats(1e-3, 10),
)


def codec(threshold, **keywords):
    return build_codec({"preset": "threshold", "selector": {"threshold": threshold}}, **keywords)


@EACH_SET
@given(st.data())
def test_the_kernels_select_what_reaches(name, data):
    kernels = kernel_sets.get(name)
    size = data.draw(gradients.sizes(large=True))
    gradient, residual = (data.draw(gradients.vectors(size)) for _ in range(2))
    threshold = data.draw(thresholds)
    expected = np.flatnonzero(np.abs(gradient.astype(np.float64)) >= threshold)
    indices, values = kernels.select_threshold(gradient, threshold)
    assert (indices.dtype, values.dtype) == (np.int32, np.float32)
    assert indices.tolist() == expected.tolist()
    assert values.tobytes() == gradient[expected].tobytes()

    with np.errstate(over="ignore"):
        x = gradient + residual
    expected = np.flatnonzero(np.abs(x.astype(np.float64)) >= threshold)
    indices, values, rest = kernels.select_threshold_residual(gradient, residual, threshold)
    assert indices.tolist() == expected.tolist()
    assert values.tobytes() == x[expected].tobytes()
    x[expected] = 0
    assert rest.tobytes() == x.tobytes()


@EACH_SET
@pytest.mark.parametrize("dense_from", [0, 100, 60_000, 99_990])
def test_lists_that_grow_past_their_first_room(name, dense_from):
    x = np.zeros(100_003, np.float32)
    x[dense_from:] = -2
    x[::5000] = 2
    expected = np.flatnonzero(x)
    kernels = kernel_sets.get(name)
    indices, values, rest = kernels.select_threshold_residual(x, np.zeros_like(x), 2.0)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, x[expected])
    assert not rest.any()


@given(st.data())
def test_sent_plus_new_residual_is_what_there_was(data):
    size = data.draw(gradients.sizes())
    threshold = data.draw(st.sampled_from((1e-3, 1.0, 30.0)))
    mine = codec(threshold)
    residual = np.zeros(size, np.float32)
    for _ in range(3):
        gradient = data.draw(gradients.vectors(size, kind="heavy"))
        x = gradient + residual
        (outcome,) = all_reduce([mine], [gradient])
        after = mine.error_feedback.residual
        chosen = np.isin(np.arange(size), outcome.indices)
        sent = np.zeros(size, np.float32)
        sent[outcome.indices] = outcome.sent
        assert np.where(chosen, sent, after).tobytes() == x.tobytes()
        assert not after[chosen].any()
        if (np.abs(x) >= threshold).any():
            np.testing.assert_array_equal(chosen, np.abs(x.astype(np.float64)) >= threshold)
        else:
            assert outcome.indices.size == x.any()
        residual = after.copy()


def test_where_nothing_reaches_it_the_largest_goes():
    mine = codec(10.0)
    (outcome,) = all_reduce([mine], [np.array([1, -3, 3, 0], np.float32)])
    assert outcome.sum.tolist() == [0, -3, 0, 0]
    assert mine.error_feedback.residual.tolist() == [1, 0, 3, 0]
    (outcome,) = all_reduce([codec(10.0)], [np.full(3, TINIEST, np.float32)])
    assert outcome.indices.tolist() == [0]
    assert outcome.sum.tolist() == [np.float32(TINIEST), 0, 0]


@pytest.mark.parametrize("size", [0, 1, 50])
def test_of_zeros_nothing_goes(size):
    (outcome,) = all_reduce([codec(1.0)], [np.zeros(size, np.float32)])
    assert outcome.indices.size == 0
    assert outcome.sum.tolist() == [0] * size


def test_equal_magnitudes_go_together():
    (outcome,) = all_reduce([codec(0.5)], [np.tile(np.array([0.5, -0.5], np.float32), 20)])
    assert outcome.indices.size == 40


def test_small_steps_add_up_until_they_are_sent():
    mine = codec(1.0)
    gradient = np.array([4, 0.25], np.float32)
    sums = [all_reduce([mine], [gradient])[0].sum.tolist() for _ in range(4)]
    assert sums == [[4, 0], [4, 0], [4, 0], [4, 1]]


def test_a_sum_beyond_float32_is_refused():
    mine = codec(gradients.LARGEST)
    big = np.array([3.4e38, 3e38], np.float32)
    all_reduce([mine], [big])
    with pytest.raises(GradientError, match="index 1 "):
        next(mine.exchange(big, 1))


@pytest.mark.parametrize("threshold", [0, -1.0, 1e39])
def test_thresholds_out_of_range_are_refused(threshold):
    with pytest.raises(ConfigError, match="threshold"):
        codec(float(threshold))
