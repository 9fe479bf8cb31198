"""The exact quantizer: the correctly rounded sum, against rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import gradients
from support.lockstep import all_reduce, sent_oracle
from support.tiers import examples

from innet import kernels
from innet.codecs import build_codec
from innet.codecs.parts import Selection
from innet.codecs.quantizers.exact import ExactScaling
from innet.core.errors import GradientError, InputError
from innet.kernels import Limbs

INT32_MAX = 2**31 - 1
LARGEST, TINIEST = gradients.LARGEST, gradients.TINIEST
naive = kernels.get("reference")
WORKERS = (1, 2, 3, 4, 7, 8, 31, 32, 64, 65_535, 2**31 - 1)

# Any bits that are a number: every exponent is as likely as any other.
any_float32 = st.integers(0, 2**32 - 1).map(lambda bits: np.uint32(bits).view(np.float32).item())
finite = st.one_of(
    any_float32.filter(math.isfinite),
    st.sampled_from(np.array(gradients.EXTREMES, np.float32).tolist()),
    st.floats(-1, 1, width=32),
)


def nearest(exact: Fraction) -> float:
    """The float32 nearest to a rational number, by bisection of the float32s in order."""
    magnitude = abs(exact)
    if magnitude >= Fraction(2) ** 128 - Fraction(2) ** 103:
        return math.copysign(math.inf, exact)

    def at(bits):
        return Fraction(np.int32(bits).view(np.float32).item())

    low, high = 0, 0x7F7FFFFF
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if at(middle) <= magnitude else (low, middle - 1)
    if low < 0x7F7FFFFF:
        below, above = magnitude - at(low), at(low + 1) - magnitude
        low += above < below or (above == below and low % 2)
    return math.copysign(np.int32(low).view(np.float32).item(), exact) if exact else 0.0


def exact_sum(values):
    return nearest(sum(map(Fraction, values), Fraction(0)))


def reduced(rows, spec="exact", kernel_set="cpu"):
    """What each worker has after an all-reduce of its row."""
    job = [np.array(row, np.float32) for row in rows]
    codecs = [build_codec(spec, kernels=kernel_set, worker=i) for i in range(len(job))]
    return [outcome.sum for outcome in all_reduce(codecs, job)]


SPECS = st.sampled_from(
    (
        "exact",
        "lhc-exact",
        {"preset": "lhc-exact", "quantizer": {"block": 1}},
        {"preset": "lhc-exact", "quantizer": {"block": 2}, "carrier": "union"},
        {"preset": "exact", "quantizer": {"block": 3}},
    )
)


@pytest.mark.parametrize("kernel_set", kernels.names())
@settings(max_examples=examples(60))
@given(st.data())
def test_the_sum_is_the_true_sum_rounded_once(kernel_set, data):
    workers = data.draw(st.sampled_from((1, 2, 3, 4, 17, 64)))
    size = data.draw(st.integers(1, 4))
    rows = [data.draw(st.lists(finite, min_size=size, max_size=size)) for _ in range(workers)]
    expected = np.array([exact_sum(column) for column in zip(*rows, strict=True)], np.float32)
    for each in reduced(rows, data.draw(SPECS), kernel_set):
        assert each.tobytes() == expected.tobytes()


@given(st.lists(finite, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_what_cancels_leaves_what_does_not(values, random):
    # Every value, its negation, and one small thing among them, in any order of the workers.
    everything = [*values, *(-value for value in values), TINIEST]
    random.shuffle(everything)
    assert reduced([[value] for value in everything])[0].tolist() == [np.float32(TINIEST).item()]


@pytest.mark.parametrize("kernel_set", kernels.names())
@pytest.mark.parametrize(
    ("values", "total"),
    [
        # Ties go to the even neighbor, and what breaks a tie may be 2**-149.
        ([1.0, 2.0**-24], 1.0),
        ([1.0, 3 * 2.0**-24], 1.0 + 2.0**-22),
        ([1.0, 2.0**-24, TINIEST], 1.0 + 2.0**-23),
        ([-1.0, -(2.0**-24), -TINIEST], -1.0 - 2.0**-23),
        ([1.0, 2.0**-24, -TINIEST], 1.0),
        ([1.0 + 2.0**-23, 2.0**-24, -TINIEST], 1.0 + 2.0**-23),
        # Rounding to 53 bits first would make a tie of it.
        ([1.0, 2.0**-24, 2.0**-54], 1.0 + 2.0**-23),
        # Infinite from half a step above the largest float32, not below, and not on the way.
        ([LARGEST, 2.0**103], math.inf),
        ([LARGEST, 2.0**103, -TINIEST], LARGEST),
        ([-LARGEST, -(2.0**103), -TINIEST], -math.inf),
        ([LARGEST, LARGEST, -LARGEST], LARGEST),
        ([LARGEST] * 63 + [-LARGEST], math.inf),
        # Subnormal sums, and the step from them to the normal ones.
        ([TINIEST, TINIEST, TINIEST], 3 * TINIEST),
        ([2.0**-126, -TINIEST], 2.0**-126 - TINIEST),
        ([2.0**-126 - TINIEST, TINIEST], 2.0**-126),
        # Every zero is positive.
        ([-0.0, -0.0], 0.0),
        ([1.0, -1.0, -0.0], 0.0),
    ],
)
def test_roundings_that_are_easily_wrong(kernel_set, values, total):
    assert exact_sum(values) == total
    lifted = {"preset": "exact", "quantizer": {"block": 1}}
    # Beside it, what it may be lifted to.
    beside = reduced([[value, 3.0] for value in values], lifted, kernel_set)
    assert [each[0] for each in beside] == [total] * len(values)
    for each in reduced([[value] for value in values], kernel_set=kernel_set):
        assert each.tobytes() == np.array([total], np.float32).tobytes()


@pytest.mark.parametrize(
    "spec",
    [
        {"quantizer": "exact", "carrier": "lhc"},
        {"quantizer": "exact", "carrier": {"name": "lhc", "cells_per_item": 0.5, "spread": 0.0}},
        {"preset": "topk", "selector": {"ratio": 0.05}, "quantizer": "exact"},
    ],
    ids=("lhc", "lhc that stalls", "topk"),
)
def test_it_is_exact_through_every_carrier(spec):
    rng = np.random.default_rng(0)
    shape = (4, 3000)
    scales = 10.0 ** rng.integers(-20, 20, shape)
    keep = rng.random(shape) < 0.02
    job = list(np.where(keep, rng.standard_normal(shape) * scales, 0).astype(np.float32))
    outcomes = all_reduce([build_codec(spec, worker=i) for i in range(4)], job)
    sent = np.zeros(shape, np.float32)
    for row, outcome in zip(sent, outcomes, strict=True):
        row[slice(None) if outcome.indices is None else outcome.indices] = outcome.sent
    expected = np.array([exact_sum(column) for column in sent.T.tolist()], np.float32)
    assert outcomes[0].contribution.limbs > 3
    assert outcomes[0].details["form"] == "sketch"
    assert all(outcome.sum.tobytes() == expected.tobytes() for outcome in outcomes)


def test_workers_come_in_any_order():
    rng = np.random.default_rng(1)
    job = list((rng.standard_cauchy((64, 500)) * 10.0 ** rng.integers(-30, 30, 500)).astype("f4"))
    sums = [reduced([job[i] for i in rng.permutation(64)])[0].tobytes() for _ in range(3)]
    assert len(set(sums)) == 1


def test_a_residual_keeps_no_error():
    rng = np.random.default_rng(2)
    gradient = rng.standard_normal(1000).astype(np.float32)
    spec = {
        "selector": {"name": "topk", "ratio": 0.1},
        "quantizer": "exact",
        "error_feedback": "residual",
    }
    codec = build_codec(spec)
    zero = np.zeros(1000, np.float32)
    total = np.zeros(1000)
    for k in range(12):
        total += all_reduce([codec], [gradient if k == 0 else zero])[0].sum
    np.testing.assert_array_equal(total.astype(np.float32), gradient)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("largest", [TINIEST, 2.0**-126, 1.0, 16777215.0, LARGEST])
def test_no_sum_of_limbs_leaves_int32(workers, largest):
    for exponent in (-149, -126, -24, 0, 104):
        x = np.array([largest, -largest], np.float32)
        if naive.lowest_exponent(x) < exponent:
            continue
        limbs = Limbs.of(naive.absmax_nnz(x)[0], exponent, workers)
        most = 2**limbs.bits - 1
        assert workers * most <= INT32_MAX < workers * (2 ** (limbs.bits + 1) - 1)
        assert np.abs(naive.split_limbs(x, limbs).astype(np.int64)).max() <= most
        # As few as possible: one limb less would not hold the largest.
        width = (int(Fraction(largest) / Fraction(2) ** exponent)).bit_length()
        assert (limbs.count - 1) * limbs.bits < width <= limbs.count * limbs.bits


@pytest.mark.parametrize("kernel_set", kernels.names())
def test_sums_at_the_edge_of_int32_are_joined(kernel_set):
    rng = np.random.default_rng(3)
    for count in (1, 2, 3, 10):
        for bits in (1, 25, 31):
            limbs = Limbs(-149, bits, count)
            sums = rng.choice([-INT32_MAX, INT32_MAX, -1, 0, 1], (count, 50)).astype(np.int32)
            expected = [
                nearest(
                    Fraction(sum(int(s) << bits * k for k, s in enumerate(column)))
                    / Fraction(2) ** 149
                )
                for column in sums.T
            ]
            found = kernels.get(kernel_set).join_limbs(sums.ravel(), limbs)
            assert found.tobytes() == np.array(expected, np.float32).tobytes()


@settings(max_examples=examples(200))
@given(st.data())
def test_compiled_limbs_are_the_naive_ones(data):
    size = data.draw(st.sampled_from((0, 1, 31, 511, 512, 513, 1100)))
    x = data.draw(gradients.vectors(size))
    cpu = kernels.get("cpu")
    exponent = cpu.lowest_exponent(x)
    assert type(exponent) is int
    assert exponent == naive.lowest_exponent(x)
    if not x.any():
        assert exponent == 128
        return
    limbs = Limbs.of(naive.absmax_nnz(x)[0], exponent, data.draw(st.sampled_from(WORKERS)))
    if limbs.count * size > 20_000:
        return
    parts = cpu.split_limbs(x, limbs)
    assert parts.tobytes() == naive.split_limbs(x, limbs).tobytes()
    assert cpu.join_limbs(parts, limbs).tobytes() == (x + np.float32(0)).tobytes()  # but for -0.0
    sums = parts + np.roll(parts, 1)
    assert cpu.join_limbs(sums, limbs).tobytes() == naive.join_limbs(sums, limbs).tobytes()


def test_zeros_and_nothing_at_all():
    (outcome,) = all_reduce([build_codec("exact")], [np.array([-0.0, 0.0], np.float32)])
    assert (outcome.scale, outcome.contribution.limbs) == (0.0, 1)
    assert outcome.sum.tobytes() == np.zeros(2, np.float32).tobytes()


def test_one_limb_is_enough_for_integers():
    outcomes = all_reduce([build_codec("exact")] * 1, [np.array([3.0, -5.0, 1024.0], np.float32)])
    assert outcomes[0].contribution.integers.tolist() == [3, -5, 1024]
    assert outcomes[0].scale == 1.0
    (outcome,) = all_reduce([build_codec("exact")], [np.array([0.75, -0.25], np.float32)])
    assert outcome.contribution.integers.tolist() == [3, -1]
    assert outcome.scale == 4.0


def test_integers_that_no_index_can_reach_are_refused():
    limbs = Limbs(-149, 1, 277)
    selection = Selection(2**27, np.zeros(1, np.int32), np.ones(1, np.float32), 1, 1)
    with pytest.raises(GradientError, match="277 limbs"):
        ExactScaling(kernels.get("cpu"), limbs).contribute(selection)


@pytest.mark.parametrize("wrong", [(-150, 29, 1), (129, 29, 1), (0, 0, 1), (0, 32, 1), (0, 29, 0)])
def test_impossible_limbs_are_refused(wrong):
    with pytest.raises(InputError):
        Limbs(*wrong)


def test_the_announced_support_size_counts_limbs():
    # The sketch has room for every limb of every element, so that none is left to a repair.
    rng = np.random.default_rng(4)
    job = [np.where(rng.random(20_000) < 0.005, rng.standard_normal(20_000), 0).astype("f4")] * 3
    spec = {"quantizer": "exact", "carrier": "lhc"}
    codecs = [build_codec(spec, worker=i) for i in range(3)]
    for _ in range(3):
        outcomes = all_reduce(codecs, job)
        details = outcomes[0].details
        assert details["form"] == "sketch"
        assert details["stalled_items"] == 0
        assert details["union"] == np.count_nonzero(outcomes[0].contribution.integers)
        np.testing.assert_array_equal(
            outcomes[0].sum, sent_oracle(outcomes, 20_000).astype(np.float32)
        )


@pytest.mark.parametrize("selector", ["all", {"name": "topk", "ratio": 0.3}])
@given(st.data())
def test_blocks_change_words_and_not_the_sum(selector, data):
    size, workers = data.draw(gradients.sizes()), data.draw(st.sampled_from((1, 3)))
    job = [data.draw(gradients.vectors(size, kind="heavy")) for _ in range(workers)]
    spec = {"selector": selector, "carrier": data.draw(st.sampled_from(("lhc", "union", "dense")))}
    plain = reduced(job, {**spec, "quantizer": "exact"})[0]
    block = data.draw(st.sampled_from((1, 2, 16, 32, size, 2**31 - 1)))
    for each in reduced(job, {**spec, "quantizer": {"name": "exact", "block": block}}):
        assert each.tobytes() == plain.tobytes()


@pytest.mark.parametrize("kernel_set", kernels.names())
def test_blocks_save_the_lower_limbs(kernel_set):
    """Rows of magnitudes that differ by far: all elements of a row fit one limb."""
    rng = np.random.default_rng(0)
    rows = 1 + rng.random((40, 32))
    job = [(rows * 4.0 ** np.arange(-20, 20)[:, np.newaxis]).astype(np.float32).ravel()] * 2
    nonzero = {}
    for block in (0, 32):
        codecs = [
            build_codec({"preset": "lhc-exact", "quantizer": {"block": block}}, kernels=kernel_set)
            for _ in job
        ]
        outcome, _ = all_reduce(codecs, job)
        assert outcome.sum.tobytes() == (2 * job[0]).tobytes()
        nonzero[block] = np.count_nonzero(outcome.total.integers)
    assert nonzero[32] == 40 * 32
    assert nonzero[0] > 1.5 * nonzero[32]


def test_a_codec_is_told_from_the_preset_by_its_block():
    assert build_codec("lhc-exact").describe() == "lhc-exact"
    spec = {"quantizer": "exact", "carrier": "lhc", "selector": "all", "error_feedback": "none"}
    assert build_codec(spec).describe() == "lhc-exact(block=0)"
