"""Quantizer ``optimistic``: finer steps while sums fit, the round again while they do not."""

from __future__ import annotations

import numpy as np
import pytest
from support.lockstep import all_reduce, integer_oracle

from innet.codecs import build_codec
from innet.codecs.quantizers.fixed import FixedScaling
from innet.codecs.quantizers.optimistic import OptimisticScaling
from innet.core.errors import CompositionError, OverflowedError
from innet.kernels import get

SPEC = {"preset": "dense", "quantizer": "optimistic"}


def summed(gradients: list[np.ndarray], **quantizer: int):
    spec = {"preset": "dense", "quantizer": {"name": "optimistic", **quantizer}}
    codecs = [build_codec(spec, worker=worker) for worker in range(len(gradients))]
    outcomes = all_reduce(codecs, gradients)
    oracle = integer_oracle(outcomes, gradients[0].size)
    for outcome in outcomes:
        np.testing.assert_array_equal(outcome.integer_sum, oracle)
    return outcomes[0]


def test_steps_are_finer_where_the_sum_fits() -> None:
    rng = np.random.default_rng(0)
    gradients = [rng.standard_normal(1000).astype(np.float32) for _ in range(16)]
    hopeful, fixed = summed(gradients), all_reduce([build_codec("dense")] * 1, gradients[:1])[0]
    assert "overflows" not in hopeful.details
    largest = max(float(np.abs(each).max()) for each in gradients)
    assert hopeful.scale == (2**31 - 1) // 4 / largest
    assert hopeful.rounds == fixed.rounds == 2


@pytest.mark.parametrize(("workers", "headroom", "overflows"), [
    (2, 1, 1), (2, 2, 0), (3, 1, 2), (4, 2, 1), (8, 1, 3), (32, 1, 5), (32, 3, 4), (5, 100, 0)
])  # fmt: skip
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_as_large_as_can_be_are_exact(
    workers: int, headroom: int, overflows: int, sign: int
) -> None:
    """All workers hold the largest float32 number, or its negative: the sum is N times that."""
    largest = np.float32(sign) * np.finfo(np.float32).max
    gradients = [np.array([largest, 0, largest / 2], np.float32) for _ in range(workers)]
    outcome = summed(gradients, headroom=headroom)
    assert outcome.details.get("overflows", 0) == overflows
    assert outcome.rounds == 2 + overflows
    bound = (2**31 - 1) // min(workers, headroom * 2**overflows)
    assert outcome.integer_sum.tolist() == [
        sign * workers * bound, 0, outcome.integer_sum[2]
    ]  # fmt: skip


def test_sums_that_just_fit_are_not_repeated() -> None:
    for values, overflows in (([1.0, 0.0], 0), ([1.0, 2.0**-20], 1)):
        gradients = [np.array([value], np.float32) for value in values]
        assert summed(gradients, headroom=1).details.get("overflows", 0) == overflows


def test_scales_end_at_the_safe_one() -> None:
    kernels = get("cpu")
    scaling = OptimisticScaling(kernels, 1.0, 6, 1)
    scales = [scaling.scale]
    while scaling.may_overflow:
        following = scaling.after_overflow()
        assert isinstance(following, OptimisticScaling)
        scaling = following
        scales.append(scaling.scale)
    assert scales == sorted(scales, reverse=True)
    assert len(scales) == 4
    assert scales[-1] == FixedScaling(kernels, 1.0, 6).scale


def test_scales_that_are_safe_are_not_asked_for_another() -> None:
    exchange = build_codec("dense").exchange(np.ones(3, np.float32), 6)
    handshake = next(exchange)
    exchange.send([segment.words for segment in handshake])
    with pytest.raises(AssertionError, match="promises"):
        exchange.throw(OverflowedError("a sum has left int32."))


@pytest.mark.parametrize("carrier", ["lhc", "packed"])
def test_carriers_that_mix_integers_are_refused(carrier: str) -> None:
    with pytest.raises(CompositionError, match="needs 'one value per word'"):
        build_codec({**SPEC, "carrier": carrier})
