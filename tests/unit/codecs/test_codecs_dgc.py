"""DGC: momentum correction with factor masking, thresholds from samples, warm-up."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gradients
from support.lockstep import all_reduce

from innet.codecs import build_codec
from innet.core.errors import CompositionError, ConfigError, GradientError, StateError

TINIEST = float(np.finfo(np.float32).smallest_subnormal)


def codec(error_feedback=None, **selector):
    return build_codec(
        {
            "preset": "dgc",
            "selector": selector,
            "error_feedback": error_feedback or {"momentum": 0.9},
        }
    )


def momentum(selector, **parameters):
    error_feedback = {"name": "momentum", **parameters}
    return build_codec({"selector": selector, "carrier": "lhc", "error_feedback": error_feedback})


def give_up(mine, gradient, workers=2):
    exchange = mine.exchange(gradient, workers)
    next(exchange)
    exchange.close()


@given(st.data())
def test_the_recurrence_bit_for_bit(data):
    size = data.draw(gradients.sizes())
    mine = momentum({"name": "topk", "ratio": data.draw(st.sampled_from((0.01, 0.3)))})
    u, v = np.zeros(size, np.float32), np.zeros(size, np.float32)
    for _ in range(4):
        gradient = data.draw(gradients.vectors(size, kind="heavy"))
        u = np.float32(0.9) * u + gradient
        v = v + u
        if data.draw(st.booleans()) and size:
            give_up(mine, gradient)
        else:
            (outcome,) = all_reduce([mine], [gradient])
            assert outcome.sent.tobytes() == v[outcome.indices].tobytes()
            u[outcome.indices] = v[outcome.indices] = 0
        assert mine.error_feedback.velocity.tobytes() == u.tobytes()
        assert mine.error_feedback.residual.tobytes() == v.tobytes()


def test_by_hand():
    mine = momentum({"name": "topk", "k": 1}, momentum=0.5)
    gradient = np.array([4, 1, 0], np.float32)
    sums = [all_reduce([mine], [gradient])[0].sum.tolist() for _ in range(3)]
    # v: 4 1 | 4 2.5 (u 1.5) | 4 4.25 (u 1.75): element 1 wins; its velocity is forgotten.
    assert sums == [[4, 0, 0], [4, 0, 0], [0, 4.25, 0]]
    assert mine.error_feedback.velocity.tolist() == [4, 0, 0]
    assert mine.error_feedback.residual.tolist() == [4, 0, 0]


def test_what_is_not_sent_is_delayed_and_not_lost():
    """Without sparsification, SGD with momentum adds g · (1 + m + m² ...) for one gradient."""
    mine = momentum({"name": "topk", "k": 1}, momentum=0.5)
    total = np.zeros(2)
    for step in range(40):
        gradient = np.array([100, 1 if step == 0 else 0], np.float32)
        total += all_reduce([mine], [gradient])[0].sum
    assert mine.error_feedback.residual[1] == pytest.approx(2)


def test_without_momentum_it_is_the_residual():
    one = momentum({"name": "topk", "ratio": 0.1}, momentum=0.0)
    other = build_codec({"preset": "topk", "selector": {"ratio": 0.1}})
    rng = np.random.default_rng(0)
    for _ in range(5):
        x = rng.standard_normal(500).astype(np.float32)
        (mine,), (theirs,) = all_reduce([one], [x]), all_reduce([other], [x])
        assert mine.sum.tobytes() == theirs.sum.tobytes()
        assert one.error_feedback.residual.tobytes() == other.error_feedback.residual.tobytes()


def test_values_that_are_not_those_of_x_leave_a_rest():
    mine = momentum({"name": "adacomp", "bin": 3}, momentum=0.5)
    all_reduce([mine], [np.array([4, 1, -3, 1, 0, -2], np.float32)])
    assert mine.error_feedback.residual.tolist() == [1, 1, 0, -2, 0, 1]
    assert mine.error_feedback.velocity.tolist() == [0, 1, 0, 0, 0, 0]


def test_what_lost_returns_with_its_velocity():
    """Of the sum [5, 0, 3 + 3] the largest counts; what was sent for the others is kept."""
    spec = {"preset": "gtopk", "selector": {"k": 1}, "error_feedback": {"name": "momentum"}}
    mine = [build_codec(spec, worker=worker) for worker in range(3)]
    job = [np.array(x, np.float32) for x in ([5, 0, 1], [0, 1, 3], [0, 1, 3])]
    outcomes = all_reduce(mine, job)
    assert outcomes[0].applied.tolist() == [2]
    assert mine[0].error_feedback.residual.tolist() == [5, 0, 1]
    assert mine[0].error_feedback.velocity.tolist() == [5, 0, 1]
    assert mine[1].error_feedback.residual.tolist() == [0, 1, 0]
    assert mine[1].error_feedback.velocity.tolist() == [0, 1, 0]


@pytest.mark.parametrize("workers", [1, 4])
def test_clipping(workers):
    mine = [momentum({"name": "topk", "k": 2}, clip=1.0) for _ in range(workers)]
    long, short = np.array([3, 4], np.float32), np.array([0.1, 0.2], np.float32)
    outcome = all_reduce(mine, [long] * workers)[0]
    np.testing.assert_allclose(outcome.sent, long / 5 / math.sqrt(workers), rtol=1e-6)
    outcome = all_reduce(mine, [short] * workers)[0]
    assert outcome.sent.tobytes() == short.tobytes()
    for value in (0.0, TINIEST, gradients.LARGEST):  # no norm overflows, none divides by zero
        (outcome,) = all_reduce(
            [momentum({"name": "topk", "k": 2}, clip=1.0)], [np.full(2, value, np.float32)]
        )
        assert np.hypot(*outcome.sent.astype(float)) == pytest.approx(min(1, value * 2**0.5))


def test_overflow_is_refused_before_anything_changes():
    mine = momentum({"name": "topk", "k": 1})
    gradient = np.array([3.4e38, 1, 1.2e38], np.float32)
    all_reduce([mine], [gradient])
    before = mine.state_dict()["parts"]["error_feedback"]
    with pytest.raises(GradientError, match="index 2 "):  # 1.2 + 0.9 · 1.2 + 1.2 of 3.4
        next(mine.exchange(gradient, 1))
    after = mine.state_dict()["parts"]["error_feedback"]
    assert all(after[key].tobytes() == before[key].tobytes() for key in before)
    all_reduce([mine], [np.zeros(3, np.float32)])


def test_large_gradients_over_small_sums_pass():
    mine = momentum({"name": "topk", "k": 1})
    for x in ([2.0**101, 1], [gradients.LARGEST, 1], [-gradients.LARGEST, 1]):
        (outcome,) = all_reduce([mine], [np.array(x, np.float32)])
        assert outcome.sent.tolist() == [np.float32(x[0])]


@pytest.mark.parametrize("ratio", [0.001, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("data", ["normal", "laplace", "sorted", "sparse", "two levels"])
def test_how_many_are_selected(ratio, data):
    rng = np.random.default_rng(3)
    size = 200_000
    x = rng.laplace(size=size) if data == "laplace" else rng.standard_normal(size)
    if data == "sorted":
        x = np.sort(x)
    elif data == "sparse":
        x[rng.random(size) < 0.99] = 0
    elif data == "two levels":
        x = np.where(rng.random(size) < 0.002, 2.0, 1.0)
    x = x.astype(np.float32)
    indices, values = codec(ratio=ratio).selector.select(x)
    wanted = int(size * ratio)
    assert (np.diff(indices) > 0).all()
    assert values.tobytes() == x[indices].tobytes()
    least = 0.8 * wanted
    if data == "sparse":
        least = min(least, np.count_nonzero(x))
    assert least <= indices.size <= 1.3 * wanted
    # A threshold: whatever was left behind is no larger than what was selected.
    rest = np.delete(np.abs(x), indices)
    assert rest.max(initial=0) <= np.abs(values).min()


def test_all_that_reach_the_samples_threshold_go_if_they_are_about_as_many_as_wanted():
    x = np.random.default_rng(4).standard_normal(3000).astype(np.float32)
    indices, _ = codec(ratio=0.1, sample=0.2).selector.select(x)
    least = np.sort(np.abs(x[::5]))[-60]
    expected = np.flatnonzero(np.abs(x) >= least)
    assert 240 <= expected.size <= 390
    assert expected.size != 300
    assert indices.tolist() == expected.tolist()


def test_a_small_sample_is_as_large_as_the_ratio_needs():
    x = np.random.default_rng(5).standard_normal(10_000).astype(np.float32)
    x[0] = 1e6  # a sample of this one would mislead
    indices, _ = codec(ratio=0.01, sample=1e-4).selector.select(x)
    assert 80 <= indices.size <= 130


def test_a_sample_that_misleads_is_mended():
    size = 100_000
    mine = codec(ratio=0.01)
    stride = 100_000 // 1000 - 1
    low = np.ones(size, np.float32)  # the sample sees only what is small
    low[::stride] = 1e-3
    indices, _ = mine.selector.select(low)
    assert indices.size == 1000
    high = np.full(size, 0.5, np.float32)  # the sample sees only what is large
    high[::stride] = np.linspace(1, 2, high[::stride].size)
    high[1::stride] = 1.9
    indices, values = mine.selector.select(high)
    assert 800 <= indices.size <= 1300
    assert values.min() > 0.5


def test_a_threshold_is_lowered_ten_times_at_most():
    x = np.full(100_000, 0.01, np.float32)
    x[::99] = np.random.default_rng(0).random(x[::99].size) * 1e9
    indices, _ = codec(ratio=0.5).selector.select(x)
    assert 0 < indices.size < 0.4 * x.size


@given(st.data())
def test_bounds_on_anything(data):
    x = data.draw(gradients.vectors(data.draw(gradients.sizes(large=True))))
    ratio = data.draw(st.sampled_from((1e-300, 0.001, 0.063, 0.5, 1.0)))
    indices, values = codec(ratio=ratio).selector.select(x)
    assert indices.size <= 1.3 * max(1, int(ratio * x.size))
    assert values.tobytes() == x[indices].tobytes()
    assert np.abs(values).max(initial=0) == np.abs(x).max(initial=0)
    assert values.all()


def test_the_warm_up_survives_in_the_state_and_counts_what_arrived():
    spec = {"warmup": [0.25, 0.063], "warmup_steps": 2, "ratio": 0.01}
    mine = codec(**spec)
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    seen = []
    for step in range(6):
        if step == 3:
            give_up(mine, x)
            state = mine.state_dict()
            mine = codec(**spec)
            mine.load_state_dict(state)
        seen.append(mine.selector.ratio())
        (outcome,) = all_reduce([mine], [x])
        assert outcome.indices.size <= 1.3 * 1000 * seen[-1]
    assert seen == [0.25, 0.25, 0.063, 0.063, 0.01, 0.01]


def test_layers_have_their_share_each():
    mine = codec(ratio=0.01, layers=[10_000, 30_000])
    x = np.random.default_rng(0).standard_normal(40_000).astype(np.float32)
    x[10_000:] *= np.float32(1e-3)
    indices, _ = mine.selector.select(x)
    assert 80 <= (indices < 10_000).sum() <= 130
    assert 240 <= (indices >= 10_000).sum() <= 390
    with pytest.raises(StateError, match="40000 elements together, the gradient 3"):
        next(mine.exchange(np.ones(3, np.float32), 1))


def test_what_is_wrong_is_refused():
    with pytest.raises(ConfigError, match="momentum = 1"):
        momentum("topk", momentum=1.0)
    with pytest.raises(ConfigError, match="clip = 0"):
        momentum("topk", clip=0.0)
    with pytest.raises(ConfigError, match="warmup"):
        codec(warmup=[0.1, 2.0])
    with pytest.raises(CompositionError, match="'momentum' needs 'leaves a residual'"):
        momentum("all")
    mine = codec()
    ones = np.ones(3, np.float32)
    for velocity, residual in ((ones, ones[:2]), (None, ones), (ones.astype("f8"), ones)):
        with pytest.raises(StateError, match="velocity"):
            mine.error_feedback.load_state_dict({"velocity": velocity, "residual": residual})
    with pytest.raises(StateError, match="not a count"):
        mine.selector.load_state_dict({"step": -1})


def test_what_others_passed_over_may_overflow_when_its_velocity_is_gone():
    spec = {"selector": {"name": "scalecom", "rate": 2, "exact": True}}
    spec |= {"error_feedback": {"name": "momentum", "momentum": 0.0}}
    codecs = [build_codec(spec, worker=worker) for worker in range(3)]
    low, high = np.array([0, 1], np.float32), np.array([3e38, 1], np.float32)
    all_reduce(codecs, [low, low, high])  # the first two lead in turn
    all_reduce(codecs, [low, low, low])
    assert codecs[2].error_feedback.velocity.tolist() == [0, 0]
    with pytest.raises(GradientError, match=r"overflow.* at index 0"):
        codecs[2].check(high)
