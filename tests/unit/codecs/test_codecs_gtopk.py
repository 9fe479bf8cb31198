"""gTop-k: what counts of the sum, what returns to the residuals, and the paper's tree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gradients
from support.lockstep import all_reduce

from innet.codecs import build_codec


def gtopk(k, **parts):
    return {"preset": "gtopk", "selector": {"k": k}, **parts}


def workers(spec, count, **keywords):
    return [build_codec(spec, worker=worker, **keywords) for worker in range(count)]


def largest(values, k):
    """The k largest magnitudes of a dense vector, of equal ones the first; zeros elsewhere."""
    order = sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))[:k]
    return [value if i in order else 0.0 for i, value in enumerate(values)]


def tree(job, k):
    """The paper's algorithm: pairs add up their selections and select again, until one is left."""
    level = [largest(gradient.tolist(), k) for gradient in job]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=True)  # a power of two
        level = [largest([a + b for a, b in zip(*pair, strict=True)], k) for pair in pairs]
    return level[0]


def integers(rng, size):
    """Distinct magnitudes whose sums float32 holds."""
    return (rng.permutation(size) + 1) * rng.choice([-1.0, 1.0], size)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 31])
@pytest.mark.parametrize("k", [1, 7, 60, 100])
def test_the_k_largest_of_the_sum_of_the_selections(count, k):
    rng = np.random.default_rng(count)
    job = [integers(rng, 60).astype(np.float32) for _ in range(count)]
    outcomes = all_reduce(workers(gtopk(k, quantizer="exact"), count), job)
    total = np.sum([largest(gradient.tolist(), k) for gradient in job], axis=0)
    for outcome in outcomes:
        assert outcome.sum.tolist() == largest(total.tolist(), k)
        assert outcome.infinite == 0


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("kind", ["disjoint", "same support", "few in all"])
def test_agrees_with_the_papers_tree_where_nothing_is_lost_on_the_way(count, kind):
    rng = np.random.default_rng(count)
    k, size = 10, 320
    job = []
    for worker in range(count):
        gradient = np.zeros(size)
        if kind == "disjoint":  # then no coordinate has shares that come later
            gradient[worker::count] = integers(rng, size)[worker::count]
        elif kind == "same support":  # then nothing is dropped in any merge
            gradient[5:50:5] = rng.integers(1, 1000, 9)
        else:  # the union has at most k coordinates
            gradient[rng.choice(k, 3, replace=False)] = rng.integers(-9, 10, 3)
        job.append(gradient.astype(np.float32))
    (outcome, *_) = all_reduce(workers(gtopk(k, quantizer="exact"), count), job)
    assert outcome.sum.tolist() == tree(job, k)


@given(st.data())
def test_two_workers_are_the_papers_tree(data):
    size, k = data.draw(st.integers(1, 80)), data.draw(st.integers(1, 20))
    rng = np.random.default_rng(data.draw(gradients.seeds))
    job = [rng.integers(-5, 6, size).astype(np.float32) for _ in range(2)]  # ties abound
    (outcome, _) = all_reduce(workers(gtopk(k, quantizer="exact"), 2), job)
    assert outcome.sum.tolist() == tree(job, k)


def test_what_the_tree_loses_on_the_way_is_kept():
    # Coordinate 0 is the largest of the sum, and in no pair the largest.
    job = [np.array(x, np.float32) for x in ([3, 0, 0], [0, 4, 0], [3, 0, 0], [0, 0, 4])]
    (outcome, *_) = all_reduce(workers(gtopk(1, quantizer="exact"), 4), job)
    assert outcome.sum.tolist() == [6, 0, 0]
    assert tree(job, 1) == [0, 4, 0]


def test_the_picks_that_lost_return_to_the_residual():
    codecs = workers(gtopk(1, quantizer="exact"), 3)
    job = [np.array(x, np.float32) for x in ([5, 1, 0], [0, 3, 2], [1, 4, 0])]
    outcomes = all_reduce(codecs, job)
    assert [outcome.sum.tolist() for outcome in outcomes] == [[0, 7, 0]] * 3
    assert outcomes[0].applied.tolist() == [1]
    residuals = [codec.error_feedback.residual.tolist() for codec in codecs]
    assert residuals == [[5, 1, 0], [0, 0, 2], [1, 0, 0]]
    (outcome, *_) = all_reduce(codecs, [np.zeros(3, np.float32)] * 3)
    assert outcome.sum.tolist() == [6, 0, 0]


@given(st.data())
def test_what_counted_and_what_is_kept_are_x_bit_for_bit(data):
    size, count = data.draw(gradients.sizes()), data.draw(st.sampled_from((1, 2, 5)))
    codecs = workers(gtopk(data.draw(st.sampled_from((1, 5, 300)))), count)
    before = [np.zeros(size, np.float32)] * count
    for _ in range(3):
        job = [data.draw(gradients.vectors(size, kind="heavy")) for _ in range(count)]
        outcomes = all_reduce(codecs, job)
        for gradient, residual, codec, outcome in zip(job, before, codecs, outcomes, strict=True):
            x = gradient + residual
            counted = np.isin(np.arange(size), outcome.indices)
            if outcome.applied is not None:
                counted &= np.isin(np.arange(size), outcome.applied)
            # A coordinate that was not sent is still there; one that was and counted is gone.
            after = codec.error_feedback.residual
            assert after[~counted].tobytes() == x[~counted].tobytes()
            assert not after[counted].any()
        before = [codec.error_feedback.residual.copy() for codec in codecs]


def test_equal_sums_are_kept_in_order():
    job = [np.array([0, 2, 0, 2, 2], np.float32)] * 2
    codecs = workers(gtopk(2, quantizer="exact"), 2)
    assert all_reduce(codecs, job)[0].sum.tolist() == [0, 4, 0, 4, 0]
    job = [np.array([1, 0, 0, 0], np.float32), np.array([0, 0, 0, 1], np.float32)]
    (outcome, _) = all_reduce(workers(gtopk(1, quantizer="exact"), 2), job)
    assert outcome.sum.tolist() == [1, 0, 0, 0]


def test_shares_that_cancel_out_have_arrived_where_there_is_room():
    x = np.array([7, 0, 0], np.float32)
    codecs = workers(gtopk(1, quantizer="exact"), 2)
    outcomes = all_reduce(codecs, [x, -x])
    assert outcomes[0].applied is None
    assert not any(codec.error_feedback.residual.any() for codec in codecs)


def test_sums_that_float32_cannot_hold_are_the_largest():
    big = np.array([3e38, 1, 0], np.float32)
    other = np.array([3e38, 0, 2], np.float32)
    (outcome, _) = all_reduce(workers(gtopk(2, quantizer="exact"), 2), [big, other])
    assert outcome.sum.tolist() == [np.inf, 0, 2]


@pytest.mark.parametrize("size", [0, 1, 5])
def test_small_gradients_arrive_whole(size):
    job = [np.arange(size, dtype=np.float32)] * 3
    outcomes = all_reduce(workers(gtopk(5, quantizer="exact"), 3), job)
    assert outcomes[2].sum.tolist() == (3 * np.arange(size)).tolist()
