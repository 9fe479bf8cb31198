"""The fixed-point quantizer: no overflow at the extremes, and the error that it promises."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gradients

from innet import kernels
from innet.codecs.quantizers.fixed import FixedScaling

INT32_MAX = 2**31 - 1
WORKERS = (1, 2, 3, 5, 7, 31, 32, 1000, 65_535, 2**31 - 1)


@pytest.mark.parametrize("name", kernels.names())
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize(
    "largest",
    [
        gradients.TINIEST,
        3 * gradients.TINIEST,
        float(gradients.FLOAT32.smallest_normal),
        float(np.nextafter(np.float32(1), np.float32(0))),
        1.0,
        float(np.nextafter(np.float32(1), np.float32(2))),
        gradients.LARGEST,
    ],
)
def test_the_extremes_of_all_workers_together_do_not_overflow(name, workers, largest):
    scaling = FixedScaling(kernels.get(name), largest, workers)
    assert np.isfinite(scaling.scale)
    integers = scaling.quantize(np.array([largest, -largest, 0.0, -0.0], np.float32))
    bound = INT32_MAX // workers
    # The largest magnitude is the bound itself, so that no bit is wasted.
    assert integers.tolist() == [bound, -bound, 0, 0]
    assert workers * bound <= INT32_MAX


@given(st.data())
def test_no_magnitude_exceeds_the_bound(data):
    largest = data.draw(st.floats(gradients.TINIEST, gradients.LARGEST, width=32))
    workers = data.draw(st.integers(1, INT32_MAX))
    share = data.draw(st.lists(st.floats(-1, 1, width=32), min_size=1))
    x = (np.array(share) * largest).astype(np.float32)
    x = x[np.abs(x) <= largest]
    integers = FixedScaling(kernels.get("cpu"), largest, workers).quantize(x)
    assert np.abs(integers.astype(np.int64)).max(initial=0) <= INT32_MAX // workers


@given(st.data())
def test_the_error_is_half_a_step_for_each_worker(data):
    workers = data.draw(st.integers(1, 32))
    size = data.draw(st.integers(1, 20))
    each = [data.draw(gradients.vectors(size)) for _ in range(workers)]
    largest = max(float(np.abs(x).max()) for x in each)
    scaling = FixedScaling(kernels.get("cpu"), largest, workers)
    total = np.sum([scaling.quantize(x).astype(np.int64) for x in each], axis=0)
    decoded = scaling.dequantize(total.astype(np.int32))
    step = Fraction(largest) / (INT32_MAX // workers)
    for i in range(size):
        exact = sum(Fraction(float(x[i])) for x in each)
        if abs(exact) > gradients.LARGEST or not np.isfinite(decoded[i]):
            continue  # rounding to infinity is tested below
        to_float32 = max(abs(Fraction(float(decoded[i]))) / 2**24, Fraction(2) ** -150)
        # 2**-50: the scale and two products are rounded in float64.
        slack = Fraction(2) ** -50 * workers * Fraction(largest)
        assert abs(Fraction(float(decoded[i])) - exact) <= workers * step / 2 + to_float32 + slack


def test_a_sum_beyond_float32_is_infinite():
    scaling = FixedScaling(kernels.get("cpu"), gradients.LARGEST, 2)
    one = scaling.quantize(np.array([gradients.LARGEST, -gradients.LARGEST], np.float32))
    assert scaling.dequantize(one).tolist() == [gradients.LARGEST, -gradients.LARGEST]
    assert scaling.dequantize(2 * one).tolist() == [np.inf, -np.inf]
    assert not scaling.finite


@given(st.floats(2.0**120, gradients.LARGEST, width=32), st.integers(1, 64))
def test_what_is_said_to_be_finite_is(largest, workers):
    scaling = FixedScaling(kernels.get("cpu"), largest, workers)
    extremes = np.array([-INT32_MAX - 1, INT32_MAX], np.int32)
    assert np.isfinite(scaling.dequantize(extremes)).all() or not scaling.finite
    assert scaling.finite or 1.001 * workers * largest > gradients.LARGEST


def test_all_zero_has_scale_zero():
    scaling = FixedScaling(kernels.get("cpu"), 0.0, 4)
    assert scaling.scale == 0
    assert scaling.quantize(np.zeros(3, np.float32)).tolist() == [0, 0, 0]
    assert scaling.dequantize(np.zeros(3, np.int32)).tolist() == [0, 0, 0]


def test_bits_of_magnitudes_are_in_the_order_of_the_magnitudes():
    # What the MAX aggregation of the handshake relies on.
    values = np.sort(np.abs(np.array(gradients.EXTREMES, np.float32)))
    bits = [kernels.get("cpu").absmax_nnz(values[i : i + 1])[0] for i in range(values.size)]
    assert bits == sorted(bits)


@pytest.mark.parametrize("name", kernels.names())
def test_a_sum_too_small_for_float32_is_a_zero_without_a_sign(name):
    """Rounding to integers may be why they do not add up to zero."""
    scaling = FixedScaling(kernels.get(name), 2.0**-140, 4)
    tiny, zero = scaling.dequantize(np.array([-1, 0], np.int32)).tolist()
    assert (tiny, math.copysign(1, tiny)) == (0, 1)
    assert (zero, math.copysign(1, zero)) == (0, 1)
