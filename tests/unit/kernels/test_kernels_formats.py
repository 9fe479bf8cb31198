"""Rounding to number formats: as ml_dtypes does it, as the naive kernels do, and without bias."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gradients
from support.formats import check_formats

from innet import kernels
from innet.kernels.layout.formats import FORMATS

ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml-dtypes, of the group dev, is not installed")
TYPES = {
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
    "fp8-e4m3": ml_dtypes.float8_e4m3fn,
    "fp8-e5m2": ml_dtypes.float8_e5m2,
    "mxfp8-e4m3": ml_dtypes.float8_e4m3fn,
    "mxfp8-e5m2": ml_dtypes.float8_e5m2,
    "mxfp6-e2m3": ml_dtypes.float6_e2m3fn,
    "mxfp6-e3m2": ml_dtypes.float6_e3m2fn,
    "mxfp4": ml_dtypes.float4_e2m1fn,
}
each = pytest.mark.parametrize("name", ["cpu", "reference"])
ONE = np.ones(1, np.float32)


def numbers(name):
    """All finite numbers of a format, ascending, in float64."""
    form = FORMATS[name]
    if name not in TYPES:  # the integer formats, whose numbers are multiples of the smallest
        return np.arange(-127, 128) * form.smallest
    codes = np.arange(2**form.width).astype(np.uint16 if form.width == 16 else np.uint8)
    with np.errstate(invalid="ignore"):  # NaN is among them
        found = codes.view(TYPES[name]).astype(np.float64)
    return np.unique(found[np.isfinite(found)])


@each
@pytest.mark.parametrize("form", FORMATS)
def test_every_code_is_a_number_of_the_format_and_its_neighbors_meet_in_the_middle(name, form):
    """With all codes, all points in the middle between two, and the floats next to these."""
    kernel, known = kernels.get(name), numbers(form)
    form = FORMATS[form]
    assert (known.max(), known[known > 0].min()) == (form.largest, form.smallest)
    assert math.floor(math.log2(form.largest)) == form.highest
    middles = ((known[1:] + known[:-1]) / 2).astype(np.float32)
    x = np.concatenate([known.astype(np.float32), middles])
    x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, -np.float32(3e38))])
    rounded = kernel.round_to_format(x, ONE, x.size, form, None).astype(np.float64)
    # The nearest number; of two the one that is an even multiple of their distance.
    above = np.clip(np.searchsorted(known, x.astype(np.float64)), 1, known.size - 1)
    low, high = known[above - 1], known[above]
    middle, exact = (low + high) / 2, x.astype(np.float64)
    even = np.where(np.rint(low / (high - low)) % 2 == 0, low, high)
    nearest = np.where(exact < middle, low, np.where(exact > middle, high, even))
    np.testing.assert_array_equal(rounded, nearest)


@each
@pytest.mark.parametrize("form", TYPES)
def test_rounds_as_ml_dtypes_does(name, form):
    rng = np.random.default_rng(1)
    x = rng.standard_normal(20_000) * 10.0 ** rng.integers(-12, 5, 20_000)
    x = np.concatenate([x, [0, -0.0, 1e-45, -1e-40, 1e30, -1e30]]).astype(np.float32)
    known = FORMATS[form]
    rounded = kernels.get(name).round_to_format(x, ONE, x.size, known, None)
    expected = np.clip(x, -known.largest, known.largest).astype(TYPES[form]).astype(np.float32)
    np.testing.assert_array_equal(rounded, expected)
    np.testing.assert_array_equal(np.signbit(rounded), np.signbit(x))


@given(st.data())
def test_the_compiled_kernels_equal_the_naive_ones(data):
    check_formats(kernels.get("cpu"), data, gradients.sizes())


@pytest.mark.parametrize("form", FORMATS)
def test_by_chance_the_mean_is_right(form):
    """A number between two of the format: the larger one as often as it is near."""
    form = FORMATS[form]
    for low, part in ((1.0, 0.3), (0.0, 0.7)):
        step = max(2.0**-form.mantissa, form.smallest) if low else form.smallest
        x = np.full(40_000, low + part * step, np.float32)
        if not low and form.smallest < 2.0**-126:
            continue  # too small for a float32 to have a part of
        rounded = kernels.get("cpu").round_to_format(x, ONE, x.size, form, 7).astype(np.float64)
        steps = (rounded - low) / step
        exact = (float(x[0]) - low) / step
        if step > 1:  # int8: 1.3 lies between 1 and 2 only with that step
            continue
        assert set(np.unique(steps)) == {0, 1}
        assert abs(steps.mean() - exact) < 5 * math.sqrt(exact * (1 - exact) / x.size)


def test_the_integers_are_those_of_the_format_then_of_the_grid():
    """0.3 is 0.3125 in E4M3 and 5 of 6.1 sixteenths; 0.28125, the middle, goes to the even one."""
    form, kernel = FORMATS["mxfp8-e4m3"], kernels.get("cpu")
    x = np.array([0.3, -0.3, 0.28125, 0.0, -0.0, 500.0, -1e9], np.float32)
    finer = np.full(1, 16, np.float32)
    integers = kernel.quantize_to_format(x, ONE, finer, x.size, form, 7168, None)
    assert integers.tolist() == [5, -5, 4, 0, 0, 7168, -7168]
    coarse = kernel.quantize_to_format(x, ONE, finer / 16, x.size, form, 448, None)
    assert coarse.tolist() == [0, 0, 0, 0, 0, 448, -448]
