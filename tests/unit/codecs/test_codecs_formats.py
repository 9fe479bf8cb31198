"""Quantizer format: bf16, fp16, fp8, MX and int8; what the numbers are, and what their sum is."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import gradients
from support.lockstep import all_reduce
from support.tiers import examples

from innet.codecs import build_codec
from innet.core.errors import ConfigError, GradientError, InputError
from innet.core.reduce_op import ReduceOp
from innet.kernels.layout.formats import FORMATS

SCALED = [name for name, form in FORMATS.items() if form.scaled != "no"]
MX = [name for name in FORMATS if name.startswith("mx")]


def workers(spec, count, **keywords):
    return [build_codec(spec, worker=worker, **keywords) for worker in range(count)]


def job(count, size=1000, seed=0):
    """Of magnitudes that differ by a factor of a million, and blocks of zeros."""
    rng = np.random.default_rng(seed)
    each = rng.standard_normal((count, size)) * 10.0 ** rng.uniform(-6, 0, (count, size))
    each[:, 64:128] = 0
    return list(each.astype(np.float32))


def steps_at(values, form):
    """The distance of the format's numbers at each value, which is scaled already."""
    _, above = np.frexp(np.abs(values))
    exponents = np.where(values == 0, form.lowest, np.maximum(above - 1, form.lowest))
    return np.ldexp(1.0, np.maximum(exponents, form.lowest) - form.mantissa)


def scales_of(name, each):
    """Those of the elements, as the OCP specification and the class's docstring say."""
    form, block = FORMATS[name], 32 if name in MX or FORMATS[name].scaled == "no" else len(each[0])
    largest = np.abs(np.array(each, np.float64)).max(axis=0)
    starts = np.arange(0, largest.size, block)
    largest = np.maximum.reduceat(largest, starts)
    with np.errstate(divide="ignore"):
        exponents = np.floor(np.log2(largest))
    if form.scaled == "no":
        scales = np.ones(largest.size)
    elif form.scaled == "linear":
        scales = np.where(largest > 0, largest / form.largest, 1)
    else:
        powers = np.where(largest > 0, np.maximum(exponents - form.highest, -127), -127)
        if form.scaled == "tensor":
            powers += np.ldexp(largest, -powers.astype(int)) > form.largest
        scales = np.ldexp(1.0, powers.astype(int))
    return np.repeat(scales, block)[: len(each[0])]


# ----------------------------------------------------------------------------
# What the numbers are.


@pytest.mark.parametrize("name", FORMATS)
def test_the_sum_of_one_workers_numbers_is_the_numbers(name):
    """wide: bit for bit what ml_dtypes rounds the scaled elements to."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    (x,) = job(1)
    (outcome,) = all_reduce(workers(f"{name}:sums=wide", 1), [x])
    form, scales = FORMATS[name], scales_of(name, [x])
    types = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16, "mxfp4": ml_dtypes.float4_e2m1fn}
    end = name.rpartition("-")[2]
    if name in types:
        kind = types[name]
    elif "int" not in name:
        kind = getattr(ml_dtypes, f"float{form.width}_{end}" + ("" if end == "e5m2" else "fn"))
    else:  # multiples of the smallest
        rounded = np.clip(np.rint(x / scales / form.smallest) * form.smallest, -127, 127)
        rounded = np.clip(rounded, -form.largest, form.largest)
        np.testing.assert_allclose(outcome.sum, rounded * scales, rtol=1e-6)
        return
    scaled = np.clip(x / scales, -form.largest, form.largest).astype(np.float32)
    rounded = scaled.astype(kind).astype(np.float64) * scales
    np.testing.assert_array_equal(outcome.sum, rounded.astype(np.float32) + np.float32(0))


@pytest.mark.parametrize("name", MX)
def test_scales_are_e8m0s(name):
    """2**(floor(log2(amax)) - emax), which ml_dtypes holds, for any largest magnitude."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.zeros(32 * 300, np.float32)
    largest = np.ldexp(np.linspace(1, 1.999, 300), np.arange(300) % 277 - 149)
    x[::32] = largest.astype(np.float32)
    codec = build_codec(f"{name}:sums=wide")
    quantizer = codec.quantizer
    form = FORMATS[name]
    list(all_reduce([codec], [x]))
    answers = [np.abs(x[::32]).view(np.int32)]
    scaling = quantizer.agree(answers, 1)
    unit = scaling.dequantize(np.ones(x.size // 1, np.int32)) if scaling.bound else None
    if form.largest / form.smallest * 1 > 2**31:
        return  # in limbs: the lowest is what a 1 stands for, too
    scales = unit[::32].astype(np.float64) / form.smallest
    exponents = np.log2(scales)
    np.testing.assert_array_equal(exponents, np.rint(exponents))
    expected = np.floor(np.log2(x[::32].astype(np.float64))) - form.highest
    np.testing.assert_array_equal(exponents, np.maximum(expected, -127))
    np.testing.assert_array_equal(scales.astype(ml_dtypes.float8_e8m0fnu).astype(float), scales)


def test_what_is_larger_than_the_largest_number_becomes_that_number():
    """MX's scale leaves 448 .. 512 of E4M3 above the end; one scale for all does not."""
    x = np.full(32, 1.99, np.float32)
    (mx,) = all_reduce(workers("mxfp8-e4m3:sums=wide", 1), [x])
    assert (mx.sum == 1.75).all()
    (fp8,) = all_reduce(workers("fp8-e4m3:sums=wide", 1), [x])
    assert (fp8.sum == 2).all()


# ----------------------------------------------------------------------------
# What their sum is.


@settings(max_examples=examples(40))
@given(
    st.sampled_from(sorted(FORMATS)),
    st.sampled_from(["grid", "wide"]),
    st.sampled_from(["nearest", "stochastic"]),
    st.sampled_from(["dense", "packed", "lhc", "union"]),
    st.sampled_from(["all", "topk", "scalecom"]),
    st.sampled_from([0, 1, 31, 32, 1000]),
    st.data(),
)
def test_sums_are_those_of_what_the_integers_stand_for(
    name, sums, rounding, carrier, selector, block, data
):
    """Exactly, rounded once, in any composition, and with the residual nothing is lost."""
    parameters = {"format": name, "sums": sums, "rounding": rounding, "block": block}
    spec = {
        "selector": {"name": selector, **({"ratio": 0.2} if selector == "topk" else {})},
        "quantizer": {"name": "format", **parameters},
        "carrier": carrier,
        "error_feedback": "residual" if selector != "scalecom" else "lowpass",
    }
    each = data.draw(gradients.jobs(max_workers=8))
    reach = build_codec(spec).quantizer.reach
    each = [np.clip(x, -reach, reach).astype(np.float32) for x in each]
    codecs = workers(spec, len(each))
    outcomes = all_reduce(codecs, each)
    exact = np.zeros(each[0].size)
    for outcome in outcomes:
        place = slice(None) if outcome.indices is None else outcome.indices
        sent = outcome.sent if outcome.represented is None else outcome.represented
        exact[place] += sent
    fits = np.abs(exact) < gradients.LARGEST / 2
    # Represented values are exact: integers of few bits times a power of two; int8's are rounded.
    tolerance = np.abs(exact) * 2.0**-23 * (len(each) if name == "int8" else 1) + 2.0**-148
    assert (np.abs(outcomes[0].sum - exact)[fits] <= tolerance[fits]).all()
    for outcome in outcomes:
        assert outcome.sum.tobytes() == outcomes[0].sum.tobytes()
    if selector != "scalecom":
        for codec, x, outcome in zip(codecs, each, outcomes, strict=True):
            place = slice(None) if outcome.indices is None else outcome.indices
            sent = np.zeros_like(x)
            sent[place] = outcome.represented if outcomes[0].scale else 0
            rest = np.clip(x.astype(np.float64) - sent, -gradients.LARGEST, gradients.LARGEST)
            np.testing.assert_array_equal(codec.error_feedback.residual, rest.astype(np.float32))


@pytest.mark.parametrize("count", [1, 4, 16, 64])
@pytest.mark.parametrize("name", FORMATS)
def test_errors_are_within_their_bounds(name, count):
    """A large element and 31 tiny ones in each block, all sizes between, and blocks of zeros."""
    each = job(count)
    for x in each:
        x[::32] *= 50
    form, scales = FORMATS[name], scales_of(name, each)
    values = np.array(each, np.float64) / scales
    exact = np.sum(each, axis=0, dtype=np.float64)
    numbers = steps_at(values, form) / 2
    ends = np.maximum(np.abs(values) - form.largest, 0)
    for sums in ("grid", "wide"):
        codecs = workers(f"{name}:sums={sums}", count)
        outcomes = all_reduce(codecs, each)
        bound = np.maximum(numbers, ends).sum(axis=0) * scales
        if sums == "grid":
            width, most = codecs[0].quantizer._grid(count)
            if form.scaled == "no":
                largest = np.abs(each).max(axis=0)
                largest = np.maximum.reduceat(largest, np.arange(0, largest.size, 32))
                with np.errstate(divide="ignore"):
                    tops = np.where(largest > 0, np.floor(np.log2(largest)) + 1, -100)
                units = np.repeat(np.ldexp(1.0, (tops + 2 - width).astype(int)), 32)[: exact.size]
                units = np.maximum(units, form.smallest)
            else:
                units = scales * max(2.0 ** (form.highest + 2 - width), form.smallest)
            bound += count * units / 2
            assert count * most < 2**31
        off = np.abs(outcomes[0].sum - exact)
        assert (off <= bound + np.abs(exact) * 2.0**-23).all()
        # The bound says something: the error is at least a hundredth of it somewhere.
        assert (off > bound / 100).any() or name in {"fp16", "bf16"}


@pytest.mark.parametrize("name", FORMATS)
def test_by_chance_there_is_no_bias(name):
    """The mean of 600 all-reduces; with nearest the same small value vanishes each time."""
    x = np.full(64, 0.003, np.float32)
    x[::32] = 0.7  # the scales
    total = np.zeros(64)
    codecs = workers(f"{name}:rounding=stochastic", 2)
    seen = set()
    for _ in range(600):
        outcome = all_reduce(codecs, [x, x])[0]
        total += outcome.sum
        seen.update(outcome.sum[1:32].tolist())
    steps = np.diff(sorted(seen)).max(initial=0)
    assert np.abs(total / 600 - 2 * x).max() < 5 * max(steps, 0.7 / 4) / np.sqrt(600)
    inner = (total / 600)[1:32].mean()
    assert abs(inner - 0.006) < 5 * max(steps, 1e-5) / np.sqrt(600 * 31)


def test_random_numbers_differ_by_worker_and_all_reduce():
    x = np.full(320, 0.3, np.float32)
    x[0] = 1
    codecs = workers("fp8-e4m3:rounding=stochastic", 2)
    first = [outcome.contribution.integers for outcome in all_reduce(codecs, [x, x])]
    second = [outcome.contribution.integers for outcome in all_reduce(codecs, [x, x])]
    assert (first[0] != first[1]).any()
    assert (first[0] != second[0]).any()


# ----------------------------------------------------------------------------
# What travels.


@pytest.mark.parametrize(
    ("spec", "workers_bits_lanes"),
    [
        ("mxfp4:sums=wide", {1: (5, 6), 4: (7, 4), 16: (9, 3), 64: (11, 2)}),
        ("mxfp4", {1: (4, 8), 4: (6, 5), 16: (8, 4), 64: (10, 3)}),
        ("mxfp8-e4m3", {1: (8, 4), 4: (10, 3), 16: (16, 2), 64: (16, 2)}),
        ("mxfp8-e4m3:sums=wide", {1: (19, 1), 4: (21, 1), 64: (25, 1)}),
        ("bf16", {1: (16, 2), 4: (16, 2), 64: (16, 2), 256: (16, 2), 257: (31, 1)}),
        ("bf16:bits=10", {4: (10, 3), 16: (10, 3)}),
    ],
)
def test_bits_of_a_sum_and_sums_in_a_word(spec, workers_bits_lanes):
    """Those that formats.md's arithmetic gives; ``stated`` are those of a word."""
    codec = build_codec(spec)
    for count, (bits, lanes) in workers_bits_lanes.items():
        largest = codec.quantizer.largest_integer(count) * count
        assert largest.bit_length() + 1 == bits
        assert 32 // bits == lanes


def test_a_scale_is_a_word_for_each_block():
    lengths = []
    codecs = workers("mxfp8-e4m3", 4)
    all_reduce(
        codecs,
        job(4, 1000),
        lambda each: lengths.append([(s.operation, s.words.size) for s in each[0]]),
    )
    maxima = [size for operation, size in lengths[0] if operation is ReduceOp.MAX]
    assert sum(maxima) >= 32  # of 1,000 elements
    assert lengths[1] == [(ReduceOp.SUM, 334)]


def test_blocks_need_not_fit_packets_or_the_gradient():
    for size in (1, 31, 33, 63, 65):
        each = job(3, size)
        exact = np.sum(each, axis=0, dtype=np.float64)
        for block in (1, 7, 32, 48, 10**6):
            outcome = all_reduce(workers(f"mxint8:block={block}", 3), each)[0]
            assert np.abs(outcome.sum - exact).max() <= 3 * np.abs(each).max() / 64


# ----------------------------------------------------------------------------
# What is refused.


@pytest.mark.parametrize("sums", ["grid", "wide"])
def test_a_gradient_beyond_fp16_is_refused_by_all_workers_before_anything_is_sent(sums):
    each = job(3, 100)
    each[1][7] = 70_000
    codecs = workers(f"fp16:sums={sums}", 3)
    exchanges = [codec.exchange(x, 3) for codec, x in zip(codecs, each, strict=True)]
    segments = [next(exchange) for exchange in exchanges]
    answers = [np.max([s.words for s in column], axis=0) for column in zip(*segments, strict=True)]
    for exchange in exchanges:
        with pytest.raises(GradientError, match="magnitude of 70000; fp16 holds numbers up to 655"):
            exchange.send(answers)
    assert all_reduce(workers("bf16", 3), each)[0].sum[7] == pytest.approx(70_000, rel=0.01)


@pytest.mark.parametrize(("bits", "most"), [(8, 64), (4, 4), (2, 1)])
def test_more_workers_than_there_are_bits_for(bits, most):
    quantizer = build_codec(f"mxfp8-e4m3:bits={bits}").quantizer
    assert quantizer.largest_integer(most) >= 1
    message = f"format' with {bits} bits sums up to {most} workers, not {most + 1}; choose more"
    with pytest.raises(InputError, match=re.escape(message)):
        quantizer.largest_integer(most + 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mxfp4:format=fp3", "format"),
        ("mxfp4:sums=broad", "sums"),
        ("mxfp4:bits=40", "bits"),
        ("mxfp4:block=-1", "block"),
        ("mxfp4:sums=wide,bits=8", "bits are of a grid"),
    ],
)
def test_parameters_are_checked(text, message):
    with pytest.raises(ConfigError, match=message):
        build_codec(text)


def test_what_few_elements_would_pay_for_blocks_is_said():
    spec = {"preset": "topk", "quantizer": {"name": "format", "format": "mxint8"}}
    (hint,) = build_codec(spec).hints()
    assert "a word for each 32 elements" in hint
    assert not build_codec("mxint8").hints()
