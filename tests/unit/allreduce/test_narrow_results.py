"""Results in fewer bits: the codes of the formats, the residual, and all-reduces with them."""

from __future__ import annotations

import numpy as np
import pytest

from innet.allreduce.narrow_results import NarrowResults, codes_of, numbers_of
from innet.core.errors import StateError, UnknownNameError
from innet.kernels.layout.formats import FORMATS


def types():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return {
        "bf16": (ml_dtypes.bfloat16, np.uint16),
        "fp16": (np.float16, np.uint16),
        "fp8-e4m3": (ml_dtypes.float8_e4m3fn, np.uint8),
        "fp8-e5m2": (ml_dtypes.float8_e5m2, np.uint8),
        "mxfp6-e2m3": (ml_dtypes.float6_e2m3fn, np.uint8),
        "mxfp6-e3m2": (ml_dtypes.float6_e3m2fn, np.uint8),
        "mxfp4": (ml_dtypes.float4_e2m1fn, np.uint8),
    }


@pytest.mark.parametrize("name", ["bf16", "fp16", "fp8-e4m3", "fp8-e5m2", "mxfp6-e2m3", "mxfp4"])
def test_codes_are_those_of_ml_dtypes(name):
    kind, word = types()[name]
    form = FORMATS[name]
    codes = np.arange(2**form.width).astype(word)
    with np.errstate(invalid="ignore"):
        values = codes.view(kind).astype(np.float32)
    finite = np.isfinite(values)
    np.testing.assert_array_equal(codes_of(values[finite], form), codes[finite])
    again = numbers_of(codes[finite].astype(np.int32), form)
    assert again.tobytes() == values[finite].tobytes()


@pytest.mark.parametrize("name", ["int8", "mxint8"])
def test_integers_are_twos_complements(name):
    form = FORMATS[name]
    numbers = (np.arange(-127, 128) * form.smallest).astype(np.float32)
    codes = codes_of(numbers, form)
    np.testing.assert_array_equal(codes.astype(np.uint8).view(np.int8), np.arange(-127, 128))
    np.testing.assert_array_equal(numbers_of(codes, form), numbers)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 1000])
@pytest.mark.parametrize("name", FORMATS)
def test_what_is_rounded_away_comes_later(name, size):
    """The results of many sums add up to the sums, but for the last residual."""
    rng = np.random.default_rng(size)
    owner, given, got = NarrowResults(name), np.zeros(size), np.zeros(size)
    for _ in range(20):
        sums = (rng.standard_normal(size) * 10.0 ** rng.uniform(-4, 0, size)).astype(np.float32)
        data, rest = owner.narrow(sums)
        assert data.dtype == np.uint8
        assert data.size == owner.size(size)
        given += sums
        got += owner.widen(data, size)
        owner.commit(rest)
    np.testing.assert_allclose(got + rest, given, atol=1e-5)
    largest = np.abs(given).max(initial=0)
    assert np.abs(rest).max(initial=0) <= largest / (2 if name == "mxfp4" else 4)


def test_infinite_sums_and_formats_that_do_not_reach():
    owner = NarrowResults("fp16")
    data, rest = owner.narrow(np.array([np.inf, -np.inf, 1e6], np.float32))
    np.testing.assert_array_equal(owner.widen(data, 3), [65504, -65504, 65504])
    assert rest[2] == np.float32(1e6 - 65504)


def test_state():
    owner = NarrowResults("mxfp4")
    _, rest = owner.narrow(np.linspace(-1, 1, 50, dtype=np.float32))
    owner.commit(rest)
    again = NarrowResults("mxfp4")
    again.load_state_dict(owner.state_dict())
    np.testing.assert_array_equal(again.residual, rest)
    with pytest.raises(StateError, match="mxfp4, these bf16"):
        NarrowResults("bf16").load_state_dict(owner.state_dict())
    with pytest.raises(StateError, match=r"49 elements.* is of 50"):
        owner.narrow(np.ones(49, np.float32))
    with pytest.raises(UnknownNameError, match="mxfp5"):
        NarrowResults("mxfp5")
