"""Top-k with error feedback: nothing is lost, nothing is counted twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gradients
from support.lockstep import all_reduce

from innet.codecs import build_codec
from innet.core.errors import GradientError, StateError


def dense_of(outcome, size):
    dense = np.zeros(size, np.float32)
    dense[outcome.indices] = outcome.sent
    return dense


@given(st.data())
def test_sent_plus_new_residual_is_what_there_was(data):
    size = data.draw(gradients.sizes())
    codec = build_codec(
        {"preset": "topk", "selector": {"ratio": data.draw(st.sampled_from((0.01, 0.3)))}}
    )
    residual = np.zeros(size, np.float32)
    for _ in range(3):
        gradient = data.draw(gradients.vectors(size, kind="heavy"))
        x = gradient + residual
        (outcome,) = all_reduce([codec], [gradient])
        after = codec.error_feedback.residual
        sent = dense_of(outcome, size)
        # Every element is on one side only, with all its bits; so the float sum is exact too.
        chosen = np.isin(np.arange(size), outcome.indices)
        assert np.where(chosen, sent, after).tobytes() == x.tobytes()
        assert not after[chosen].any()
        np.testing.assert_array_equal(sent + after, x)
        residual = after.copy()


@pytest.mark.parametrize(
    ("size", "ratio", "k"),
    [(0, 0.01, 0), (1, 0.01, 1), (99, 0.01, 1), (200, 0.01, 2), (100, 0.29, 29), (7, 1.0, 7)],
)
def test_how_many_are_selected(size, ratio, k):
    codec = build_codec({"selector": {"name": "topk", "ratio": ratio}})
    assert codec.selector.count(size) == k
    (outcome,) = all_reduce([codec], [np.ones(size, np.float32)])
    assert outcome.indices.tolist() == list(range(k))


def test_k_larger_than_the_gradient_selects_everything():
    codec = build_codec({"preset": "topk", "selector": {"k": 5}})
    (outcome,) = all_reduce([codec], [np.array([1, 0, 3], np.float32)])
    assert outcome.indices.tolist() == [0, 1, 2]
    assert outcome.sum.tolist() == [1, 0, 3]


def test_everything_arrives_in_the_end():
    rng = np.random.default_rng(0)
    codec = build_codec({"preset": "topk", "selector": {"k": 10}})
    gradient = rng.standard_normal(100).astype(np.float32)
    total = all_reduce([codec], [gradient])[0].sum.astype(np.float64)
    for _ in range(9):
        total += all_reduce([codec], [np.zeros(100, np.float32)])[0].sum
    np.testing.assert_allclose(total, gradient, rtol=1e-6)
    assert not codec.error_feedback.residual.any()


def test_an_exchange_that_is_given_up_keeps_the_gradient():
    codec = build_codec({"preset": "topk", "selector": {"k": 1}})
    exchange = codec.exchange(np.array([1, -3, 2], np.float32), 2)
    next(exchange)
    with pytest.raises(StateError, match="under way"):
        next(codec.exchange(np.zeros(3, np.float32), 2))
    exchange.close()
    assert codec.error_feedback.residual.tolist() == [1, -3, 2]
    (outcome,) = all_reduce([codec], [np.zeros(3, np.float32)])
    assert outcome.sum.tolist() == [0, -3, 0]


def test_a_network_that_fails_keeps_the_gradient():
    codec = build_codec("topk")
    exchange = codec.exchange(np.array([4, 5], np.float32), 2)
    next(exchange)
    with pytest.raises(TimeoutError):
        exchange.throw(TimeoutError())
    assert codec.error_feedback.residual.tolist() == [4, 5]


def test_another_length_is_refused_and_named():
    codec = build_codec("topk", worker=3)
    all_reduce([codec], [np.ones(10, np.float32)])
    with pytest.raises(StateError, match=r"worker 3 has 10 elements, the gradient 11"):
        next(codec.exchange(np.ones(11, np.float32), 1))
    all_reduce([codec], [np.ones(10, np.float32)])  # still works


def test_a_residual_that_overflows_is_refused_before_it_changes():
    codec = build_codec({"preset": "topk", "selector": {"k": 1}}, worker=2)
    gradient = np.array([3e38, 1, 2e38], np.float32)
    all_reduce([codec], [gradient])
    with pytest.raises(GradientError, match=r"worker 2 .* index 2 "):
        next(codec.exchange(gradient, 1))
    assert codec.error_feedback.residual.tolist() == np.array([0, 1, 2e38], np.float32).tolist()
    (outcome,) = all_reduce([codec], [np.zeros(3, np.float32)])
    assert outcome.indices.tolist() == [2]


@pytest.mark.parametrize("error_feedback", ["residual", "momentum"])
def test_what_others_passed_over_may_overflow_later(error_feedback):
    """Worker 1 sends what worker 0 chose, nothing; what it keeps is near the largest float32."""
    spec = {"preset": "scalecom", "selector": {"rate": 2, "first_dense": False}}
    codecs = [
        build_codec({**spec, "error_feedback": error_feedback}, worker=worker)
        for worker in range(2)
    ]
    gradient = np.array([0, 3e38], np.float32)
    all_reduce(codecs, [np.array([1, 0], np.float32), gradient])
    with pytest.raises(GradientError, match=r"worker 1 .*overflow.* at index 1 "):
        next(codecs[1].exchange(gradient, 2))
    assert codecs[1].error_feedback.residual.tolist() == gradient.tolist()


def test_state_of_another_kind_is_refused():
    codec = build_codec("topk")
    for wrong in (np.ones(3), np.ones((2, 2), np.float32), np.array([np.nan], np.float32)):
        state = codec.state_dict()
        state["parts"]["error_feedback"] = {"residual": wrong}
        with pytest.raises(StateError, match="residual"):
            codec.load_state_dict(state)
